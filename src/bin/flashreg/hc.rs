//! `flashreg hc`: all roots of systems of polynomial equations.

use super::figure::Histograms;
#[cfg(feature = "cuda")]
use super::hc_lu::BenchLu;
use super::hc_start::Start;
use super::say;
use anyhow::{bail, Context};
use clap::{Args, Subcommand};
use flashreg::estimation::solvers::recall_of_closed_form;
use flashreg::geometry::{Pose, Vector};
use flashreg::homotopy::monodromy::{monodromy, Options, Progress};
use flashreg::homotopy::problems::{all, find, Geometry, Problem};
use flashreg::homotopy::recall::{recall, Recall, SEEDS_APART};
use flashreg::homotopy::{numbers, Arithmetic, Backend, Settings, Solution, Solver, StartSet, System};
use flashreg::status::TrackStatus;
use indicatif::{ProgressBar, ProgressStyle};
use nalgebra::{Complex, Matrix3};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A start by the degrees of the equations is chosen up to so many paths; beyond, monodromy.
pub const FEW_PATHS: u128 = 4096;

type Numbers = Vec<Complex<f64>>;

#[derive(Args)]
pub struct Hc {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find all roots of a system for given parameters.
    Solve(Solve),
    /// Solve random instances of problems of the library: time, and how many of the roots are found.
    Bench(Bench),
    /// Make a start set by monodromy, check it, test that it is complete, and move it to where tracks
    /// to instances are short.
    Start(Start),
    /// Print the problems of the library.
    List,
    /// Print random instances of a problem, one JSON object a line: what `bench` solves with this seed.
    Instances(Instances),
    /// Measure the batched solution of small linear systems on the GPU beside cuBLAS.
    ///
    /// Both get the same matrices, fresh for every measurement, column by column, on the device; both
    /// are measured there, in the same stream. cuBLAS is getrfBatched and getrsBatched.
    #[cfg(feature = "cuda")]
    Lu(BenchLu),
}

#[derive(Args)]
struct Solve {
    /// A form (FILE.yaml), or a problem of the library
    system: String,
    /// Parameters of the target, one a line, `re im` [default: the values of the form, or a random
    /// instance of the problem]
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// What was measured, one number a line, in the order of the instances of a problem of the library:
    /// the parameters are computed from it, and roots are followed by what they say about the scene
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    measured: Option<PathBuf>,
    /// A start set that `flashreg hc start` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["start_params", "start_sols"])]
    start: Option<PathBuf>,
    /// Parameters of a start set, one a line
    #[arg(long, value_name = "FILE", requires = "start_sols")]
    start_params: Option<PathBuf>,
    /// Its roots, one number a line, root after root
    #[arg(long, value_name = "FILE", requires = "start_params")]
    start_sols: Option<PathBuf>,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    way: Way,
    /// Tracks that are not done by then end with the status budget, ms; 0: no limit
    #[arg(long, default_value_t = 0.0)]
    budget_ms: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Bench {
    /// Problems of the library [default: all]
    problems: Vec<String>,
    /// Random instances of each
    #[arg(long, default_value_t = 200)]
    instances: usize,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    way: Way,
    /// By the closed form, for problems that have one (p3p, p3p_pose, and the forms of five_point)
    #[arg(long, conflicts_with_all = ["residuals", "batch"])]
    closed_form: bool,
    /// Draw histograms of residuals and errors of the roots
    #[arg(long, value_name = "FILE.png")]
    residuals: Option<PathBuf>,
    /// After that, so many instances in one call
    #[arg(long, default_value_t = 0)]
    batch: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Instances {
    /// A problem of the library
    problem: String,
    /// How many
    #[arg(long, default_value_t = 200)]
    instances: usize,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Where and how tracks are followed.
#[derive(Clone, Copy, Args)]
struct Way {
    /// Where tracks are followed
    #[arg(long, value_enum, default_value = "auto")]
    backend: On,
    /// Numbers in which the GPU follows tracks; roots are polished in double precision
    #[arg(long, value_enum, default_value = "auto")]
    precision: Digits,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum On {
    /// On the GPU if there is one, the system fits it, and there is enough to do; else on the CPU
    Auto,
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Digits {
    /// f32 on GPUs that are much slower in double precision
    Auto,
    F64,
    /// What is doubtful is followed again, and roots are polished, in double precision on the CPU
    F32,
}

impl Way {
    fn of_solver(self) -> (Backend, Arithmetic) {
        let backend = match self.backend {
            On::Auto => Backend::Auto,
            On::Cpu => Backend::Cpu,
            On::Cuda => Backend::Cuda,
        };
        let arithmetic = match self.precision {
            Digits::Auto => Arithmetic::Auto,
            Digits::F64 => Arithmetic::Double,
            Digits::F32 => Arithmetic::Single,
        };
        (backend, arithmetic)
    }
}

impl Hc {
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Solve(args) => args.run(),
            Command::Bench(args) => args.run(),
            Command::Start(args) => args.run(),
            Command::List => list(),
            Command::Instances(args) => args.run(),
            #[cfg(feature = "cuda")]
            Command::Lu(args) => args.run(),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Numbers> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    numbers::parse(&text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
}

/// The system of a form, or of a problem of the library.
pub fn load(name: &str) -> anyhow::Result<(System, Option<Problem>)> {
    if let Some(problem) = find(name) {
        return Ok((problem.system()?, Some(problem)));
    }
    let path = Path::new(name);
    if !path.exists() {
        bail!("{name}: neither a file nor a problem of the library (see `flashreg hc list`)");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    Ok((System::from_yaml(&text).with_context(|| name.to_owned())?, None))
}

impl Solve {
    fn run(self) -> anyhow::Result<()> {
        let (mut system, problem) = load(&self.system)?;
        let (target, measured) = self.target(&system, problem.as_ref())?;
        if target.len() != system.size().1 {
            bail!("{} parameters in the target, the system has {}", target.len(), system.size().1);
        }
        let (start, target) = match self.given(&system)? {
            Some(start) => (start, target),
            None => {
                let prepared = self.make(system, problem.as_ref(), target)?;
                system = prepared.0;
                (prepared.1, prepared.2)
            }
        };
        let (backend, arithmetic) = self.way.of_solver();
        let solver = Solver::new(system, start, Settings::default()).on(backend, arithmetic, 1)?;
        let begin = Instant::now();
        let budget = self.budget_ms > 0.0 && self.budget_ms.is_finite();
        let deadline = budget.then(|| begin + Duration::from_secs_f64(self.budget_ms.min(1e9) * 1e-3));
        let solution = solver.solve(&[target], deadline).remove(0);
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        let geometry = problem.zip(measured).map(|(problem, measured)| {
            let told = solution.found().map(|root| problem.geometry(solver.system(), root.point, &measured));
            told.flatten().collect::<Vec<_>>()
        });
        self.print(&solver, &solution, geometry.unwrap_or_default(), ms);
        Ok(())
    }

    /// The parameters of the target, and what was measured where it is known.
    fn target(
        &self,
        system: &System,
        problem: Option<&Problem>,
    ) -> anyhow::Result<(Numbers, Option<Vec<f64>>)> {
        if let Some(path) = &self.measured {
            let problem = problem.context("--measured is for problems of the library")?;
            let measured: Vec<f64> = read(path)?.iter().map(|v| v.re).collect();
            let target = problem.parameters(&measured);
            return Ok((target.context("no parameters follow from what was measured")?, Some(measured)));
        }
        if let Some(path) = &self.target {
            return Ok((read(path)?, None));
        }
        if let Some(values) = &system.values {
            return Ok((values.clone(), None));
        }
        let drawn = problem.and_then(|p| p.instance(self.seed));
        let instance = drawn.context("no target: --target, or values in the form")?;
        Ok((instance.parameters, Some(instance.measured)))
    }

    /// The start set of the options.
    fn given(&self, system: &System) -> anyhow::Result<Option<StartSet>> {
        if let Some(path) = &self.start {
            let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            return Ok(Some(StartSet::from_bytes(&bytes, system)?));
        }
        let (Some(parameters), Some(roots)) = (&self.start_params, &self.start_sols) else { return Ok(None) };
        let (parameters, numbers) = (read(parameters)?, read(roots)?);
        let n = system.size().0;
        let roots = numbers.chunks(n).map(<[_]>::to_vec).collect();
        Ok(Some(StartSet { parameters, roots, note: String::new() }.checked(system)?))
    }

    /// System, start set and target: from the library, by the degrees, or by monodromy.
    fn make(
        &self,
        system: System,
        problem: Option<&Problem>,
        target: Numbers,
    ) -> anyhow::Result<(System, StartSet, Numbers)> {
        if let Some(problem) = problem {
            let (system, start) = problem.prepared(self.seed)?;
            let target =
                if problem.start.is_some() { target } else { system.values.clone().unwrap_or_default() };
            return Ok((system, start, target));
        }
        let family = if system.parameters.is_empty() { system.free_coefficients() } else { None };
        if system.bezout() <= FEW_PATHS {
            let (blend, start) = StartSet::total_degree(&system, &target, self.seed)?;
            let target = blend.values.clone().unwrap_or_default();
            return Ok((blend, start, target));
        }
        let target = family.as_ref().and_then(|f| f.values.clone()).unwrap_or(target);
        let system = family.unwrap_or(system);
        let options = Options { seed: self.seed, ..Options::default() };
        let start = with_bar("monodromy", |show| monodromy(&system, &options, |p| show(state(p))))?;
        Ok((system, start, target))
    }

    fn print(&self, solver: &Solver, solution: &Solution, geometry: Vec<Geometry>, ms: f64) {
        let system = solver.system();
        let counts: serde_json::Map<String, Value> =
            TrackStatus::ALL.iter().map(|s| (s.name().into(), solution.count(*s).into())).collect();
        let again = solution.roots.outcomes().iter().filter(|o| o.is_followed_again()).count();
        if self.json {
            let mut roots = Vec::new();
            for root in solution.roots.iter() {
                let images = if root.ok() { system.orbit(root.point) } else { vec![root.point.to_vec()] };
                for image in images {
                    let pairs: Vec<[f64; 2]> = image.iter().map(|v| [v.re, v.im]).collect();
                    // JSON knows no infinity.
                    let [residual, condition] =
                        [root.residual, root.condition].map(|v| v.is_finite().then_some(v));
                    roots.push(json!({"root": pairs, "residual": residual, "condition": condition, "status": root.status.name(), "steps": root.steps}));
                }
            }
            say(json!({"system": system.name, "unknowns": system.unknowns, "tracks": solution.roots.len(),
                "roots": roots, "geometry": geometry.iter().map(geometry_json).collect::<Vec<_>>(),
                "counts": counts, "ms": ms, "kernel_ms": solver.kernel_ms(),
                "place": solver.place(), "again": again}));
            return;
        }
        for root in solution.found() {
            for image in system.orbit(root.point) {
                let text: Vec<String> =
                    image.iter().map(|v| format!("{:.10} {:+.10}i", v.re, v.im)).collect();
                say(format!("{}   residual {:.1e}", text.join("   "), root.residual));
            }
        }
        geometry.iter().for_each(|one| say(geometry_line(one)));
        let counts: Vec<String> =
            counts.iter().filter(|(_, n)| **n != 0).map(|(name, n)| format!("{n} {name}")).collect();
        let kernel =
            solver.kernel_ms().map_or(String::new(), |ms| format!(", of that the kernel {ms:.3} ms"));
        let again = if again > 0 { format!(", {again} followed again") } else { String::new() };
        let (tracks, counts) = (solution.roots.len(), counts.join(", "));
        say(format!("{tracks} tracks: {counts}{again}; {ms:.3} ms{kernel}, {}", solver.place()));
    }
}

fn geometry_json(one: &Geometry) -> Value {
    let list = |v: &Vector| v.as_slice().to_vec();
    let rows = |r: &Matrix3<f64>| (0..3).map(|i| list(&r.row(i).transpose())).collect::<Vec<_>>();
    let pose = |p: &Pose| json!({"rotation": rows(&p.rotation), "translation": list(&p.translation)});
    json!({"poses": one.poses.iter().map(pose).collect::<Vec<_>>(), "focal": one.focal,
        "principal": one.principal.iter().map(|c| [c.x, c.y]).collect::<Vec<_>>(), "distortion": one.distortion,
        "rate": one.motion.map(|m| list(&m[0])), "velocity": one.motion.map(|m| list(&m[1])),
        "points": one.points.iter().map(list).collect::<Vec<_>>(), "direction": one.direction.map(|d| list(&d)),
        "depths": one.depths, "in_front": one.is_in_front()})
}

/// What is known of the scene; rotations as vectors, rad.
fn geometry_line(one: &Geometry) -> String {
    let vector = |name: &str, v: &Vector| format!("{name} ({:.7}, {:.7}, {:.7})", v.x, v.y, v.z);
    let pose = |p: &Pose| {
        let turn = p.to_rigid().rotation.scaled_axis();
        format!("{}, {}", vector("rotation", &turn), vector("translation", &p.translation))
    };
    let mut parts: Vec<String> = one.poses.iter().map(pose).collect();
    parts.extend(one.focal.map(|f| format!("focal length {f:.7}")));
    parts.extend(one.principal.iter().map(|c| format!("principal point ({:.7}, {:.7})", c.x, c.y)));
    parts.extend(one.distortion.map(|k| format!("distortion {k:.7}")));
    if let Some([rate, velocity]) = &one.motion {
        parts.extend([vector("rate", rate), vector("velocity", velocity)]);
    }
    parts.extend(one.points.iter().map(|p| vector("point", p)));
    parts.extend(one.direction.iter().map(|d| vector("direction", d)));
    let place = if one.is_in_front() { "" } else { "   (points behind a camera)" };
    format!("{}{place}", parts.join("; "))
}

impl Bench {
    fn run(self) -> anyhow::Result<()> {
        let problems = match self.problems.is_empty() {
            true => all(),
            false => {
                let found = |name: &String| find(name).with_context(|| format!("no problem `{name}`"));
                self.problems.iter().map(found).collect::<anyhow::Result<_>>()?
            }
        };
        if !self.json {
            say(format!(
                "{:<26} {:>5} {:>15} {:>8} {:>11} {:>11} {:>5} {:>6} {:>7} {:>8} {:>9} {:>17} {:>7} {:>10} {:>10} {:>11} {:>10} {:>10}  not ok",
                "problem",
                "inst.",
                "found/expected",
                "%",
                "true found",
                "geometry",
                "wrong",
                "silent",
                "steps",
                "longest",
                "Mflop",
                "residual, error",
                "again",
                "call ms",
                "kernel ms",
                "batch ms",
                "kernel ms",
                "per second",
            ));
        }
        let (mut rows, mut place) = (Vec::new(), String::new());
        for problem in problems {
            let row = self.row(&problem).with_context(|| problem.name.clone())?;
            if !self.json {
                if place != row.place {
                    say(format!("{}:", row.place));
                    place = row.place.clone();
                }
                say(line(&row));
                row.misses.iter().for_each(|miss| {
                    let condition =
                        miss.condition.map_or("no root".to_owned(), |c| format!("condition {c:.1e}"));
                    say(format!("  geometry missed: seed {}, {condition}", miss.seed));
                });
            }
            rows.push(row);
        }
        if let Some(path) = &self.residuals {
            let figure = Histograms(rows.iter().map(|row| (row.problem.as_str(), &row.precision)).collect());
            let file = flashreg::figure::png(&figure, figure.size())?;
            std::fs::write(path, file).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            say(
                json!({"version": env!("CARGO_PKG_VERSION"), "gpu": rows.iter().any(|row: &Recall| row.kernel_ms.is_some()),
                "threads": rayon::current_num_threads(), "seed": self.seed, "problems": rows}),
            );
        }
        Ok(())
    }
}

impl Bench {
    fn row(&self, problem: &Problem) -> anyhow::Result<Recall> {
        if self.closed_form {
            return recall_of_closed_form(problem, self.instances, self.seed)?
                .context("it has no closed form");
        }
        Ok(recall(problem, self.instances, self.seed, self.way.of_solver(), self.batch)?)
    }
}

fn line(row: &Recall) -> String {
    let share = if row.expected > 0 { 100.0 * row.found as f64 / row.expected as f64 } else { f64::NAN };
    let of = |a: usize, b: usize| format!("{a}/{b}");
    let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.4}"));
    let others = row.counts.iter().filter(|(name, n)| **name != "ok" && **n > 0);
    let others: Vec<String> = others.map(|(name, n)| format!("{n} {name}")).collect();
    format!(
        "{:<26} {:>5} {:>15} {share:>8.3} {:>11} {:>11} {:>5} {:>6} {:>7.1} {:>8.1} {:>9.3} {:>17} {:>7} {:>10.4} {:>10} {:>11} {:>10} {:>10}  {}",
        row.problem,
        row.instances,
        of(row.found, row.expected),
        of(row.true_found, row.truths),
        of(row.poses_right, row.poses),
        row.wrong,
        row.silent,
        row.steps,
        row.longest,
        // Of a track.
        row.double * 1e-6,
        format!("{:.0e}, {:.0e}", row.precision.residuals.largest, row.precision.errors.largest),
        row.again,
        row.ms,
        time(row.kernel_ms),
        time(row.batch.as_ref().map(|b| b.ms)),
        time(row.batch.as_ref().and_then(|b| b.kernel_ms)),
        row.batch.as_ref().map_or("-".to_owned(), |b| format!("{:.0}", b.per_second)),
        others.join(", ")
    )
}

impl Instances {
    fn run(self) -> anyhow::Result<()> {
        let problem = find(&self.problem).with_context(|| format!("no problem `{}`", self.problem))?;
        for seed in (self.seed..).step_by(SEEDS_APART as usize).take(self.instances) {
            let instance =
                problem.instance(seed).context("the problem is one system, it has no instances")?;
            let real = |list: &[Complex<f64>]| list.iter().map(|v| v.re).collect::<Vec<_>>();
            say(
                json!({"seed": seed, "measured": instance.measured, "parameters": real(&instance.parameters),
                "near": real(&instance.near), "truth": geometry_json(&instance.truth)}),
            );
        }
        Ok(())
    }
}

/// Runs something that takes a while under a line that says how far it is.
pub fn with_bar<T>(what: &'static str, work: impl FnOnce(&mut dyn FnMut(String)) -> T) -> T {
    let bar = ProgressBar::new_spinner().with_prefix(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}: {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    let result = work(&mut |message| bar.set_message(message));
    bar.finish_and_clear();
    result
}

/// How far monodromy is, in words.
pub fn state(p: Progress) -> String {
    format!("{} roots after {} loops, {} without a new one", p.roots, p.loops, p.quiet)
}

/// Up to a full stop after which a sentence begins, or the end.
fn first_sentence(text: &str) -> &str {
    let begins = |rest: &str| rest.starts_with(". ") && rest[2..].starts_with(char::is_uppercase);
    let end = text.char_indices().map(|(at, _)| at).find(|&at| begins(&text[at..]));
    text[..end.unwrap_or(text.len())].trim_end().trim_end_matches('.')
}

fn list() -> anyhow::Result<()> {
    say(format!(
        "{:<26} {:>8} {:>10} {:>8} {:<23} {:>8}  about",
        "problem", "unknowns", "parameters", "roots", "counted by", "start"
    ));
    for problem in all() {
        let system = problem.system()?;
        let (n, p) = system.size();
        let start = if problem.start.is_some() { "stored" } else { "degrees" };
        let about = first_sentence(&system.about);
        let Problem { name, expected, counted, .. } = &problem;
        say(format!("{name:<26} {n:>8} {p:>10} {expected:>8} {counted:<23} {start:>8}  {about}"));
    }
    Ok(())
}
