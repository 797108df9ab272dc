//! `flashreg bench`: how long a registration takes, as a whole and stage by stage.

use super::bench_camera::BenchCamera;
use super::bench_clouds::BenchClouds;
use super::bench_localization::BenchLocalization;
use super::bench_registration::BenchRegistration;
use super::params::{Choice, Preset};
use super::{say, write_json};
use anyhow::{bail, Context};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use flashreg::gpu::device::DeviceMemory;
use flashreg::io::correspondence_file::CorrespondenceFile;
use flashreg::latency::Percentiles;
use flashreg::params::{BackendChoice, Params};
use flashreg::registration::{Correspondence, Problem, Registrar, StageTimes};
use flashreg::simulate::planted::{planted, random_pose, ROOM, STREET};
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Problems that are registered in turn, so that no frame has the input of the one before.
const RING: usize = 16;
/// Sizes that are measured unless others are asked for.
const SIZES: [usize; 6] = [1000, 2000, 4000, 5000, 8000, 16_000];

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    of: Option<Of>,
    /// Numbers of correspondences of problems with a planted pose, a line each
    /// [default: 1000,2000,4000,5000,8000,16000; none with --file]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    n: Vec<usize>,
    /// Share of the correspondences that follow the planted pose, 0 .. 1; it decides the density of
    /// the graph
    #[arg(long, default_value_t = 0.1)]
    inlier_rate: f64,
    /// Correspondence files as `flashreg register` takes them, a line each, their rows shuffled
    #[arg(long, value_name = "FILE", num_args = 1..)]
    file: Vec<PathBuf>,
    /// Frames that are measured for a line, after one round of warm-up
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    frames: u32,
    /// Also measure submissions of so many problems at once, of which `backend.batch` are worked on at
    /// the same time
    #[arg(long, value_name = "M,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: Vec<u32>,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The same as --set backend.kind=...
    #[arg(long, value_parser = PossibleValuesParser::new(BackendChoice::WORDS))]
    backend: Option<String>,
    /// Write one JSON object; `-` prints it in place of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

#[derive(Subcommand)]
enum Of {
    /// Measure over folders of real pairs how often the pose is right, and how exact.
    Registration(BenchRegistration),
    /// Measure over folders of real pairs of raw clouds how often the pose is right, and whether clouds of different
    /// places are refused.
    Clouds(BenchClouds),
    /// Measure in simulated places how often and how fast a robot with a LiDAR is localized, how well it is tracked, and
    /// what is refused.
    Localization(BenchLocalization),
    /// Measure poses of a camera from planted features: how often right, how exact, how fast.
    Camera(BenchCamera),
}

/// What a line measures.
struct Subject {
    name: String,
    preset: Preset,
    input: Input,
}

enum Input {
    /// So many correspondences with a planted pose.
    Planted(usize),
    /// These, in another order each time.
    Rows(Vec<Correspondence>),
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    backend: &'static str,
    backend_why: String,
    threads: usize,
    /// Of the CUDA backend.
    memory: Option<DeviceMemory>,
    /// Problems of a batch that are worked on at the same time.
    batch: i64,
    /// K
    pivots: i64,
    /// T
    triples_per_pivot: i64,
    frames: u32,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    problem: String,
    preset: Preset,
    backend: &'static str,
    n: usize,
    /// Edges of the graph, mean of the frames.
    edges: f64,
    /// Share of all pairs that are edges.
    density: f64,
    /// How many frames had which status.
    statuses: BTreeMap<&'static str, usize>,
    /// The whole registration.
    ms: Percentiles,
    /// Time of all threads per frame.
    cpu_ms: f64,
    /// Problems a second, one after another.
    per_second: f64,
    stages_us: BTreeMap<&'static str, Percentiles>,
    batches: Vec<Batch>,
}

/// Many problems at once.
#[derive(Serialize)]
struct Batch {
    problems: u32,
    /// A submission: from its call until all its results are there.
    ms: Percentiles,
    /// Problems a second.
    per_second: f64,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<()> {
        match self.of {
            Some(Of::Registration(registration)) => return registration.run(),
            Some(Of::Clouds(clouds)) => return clouds.run(),
            Some(Of::Camera(camera)) => return camera.run(),
            Some(Of::Localization(localization)) => return localization.run(),
            None => {}
        }
        let params = self.choice.params_on(self.backend.as_deref(), self.choice.preset)?;
        let subjects = self.subjects(&params)?;
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        let mut registrar = Registrar::new(&params)?;
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            backend: registrar.backend(),
            backend_why: registrar.why().to_owned(),
            threads: registrar.threads(),
            memory: registrar.memory(),
            batch: params.backend.batch,
            pivots: params.registration.pivots,
            triples_per_pivot: params.registration.triples_per_pivot,
            frames: self.frames,
            lines: Vec::new(),
        };
        let print = |line: String| {
            if !to_stdout {
                say(line);
            }
        };
        if let Some(memory) = &report.memory {
            print(format!("memory: {memory}"));
        }
        print(report.head());
        for subject in subjects {
            let line = self.measure(&mut registrar, subject)?;
            print(line.whole());
            report.lines.push(line);
        }
        print(stages_head());
        report.lines.iter().for_each(|line| print(line.stages()));
        if !self.batch.is_empty() {
            print(report.batches_head());
            report.lines.iter().flat_map(Line::batches).for_each(print);
        }

        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        if registrar.faults() > 0 {
            bail!("the GPU failed {} times, now: {}", registrar.faults(), registrar.why());
        }
        Ok(())
    }

    /// What is asked for, read and checked.
    fn subjects(&self, params: &Params) -> anyhow::Result<Vec<Subject>> {
        if !(0.0..=1.0).contains(&self.inlier_rate) {
            bail!("--inlier-rate {}: a share from 0 to 1 is needed", self.inlier_rate);
        }
        let most = usize::try_from(params.registration.max_correspondences)?;
        let sizes = match self.n.is_empty() && self.file.is_empty() {
            true => &SIZES[..],
            false => &self.n,
        };
        let mut subjects = Vec::new();
        for n in sizes {
            if !(3..=most).contains(n) {
                bail!("--n {n}: from 3 to registration.max_correspondences = {most} are possible");
            }
            let preset = self.choice.preset;
            let name = format!("planted, {:.1} % inliers", 100.0 * self.inlier_rate);
            subjects.push(Subject { name, preset, input: Input::Planted(*n) });
        }
        for path in &self.file {
            let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            subjects.push(Subject { name, preset: self.choice.preset, input: read(path)? });
        }
        Ok(subjects)
    }

    /// The problems of a line.
    fn ring(&self, subject: &mut Subject, params: &Params) -> anyhow::Result<Vec<Problem>> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let size = match subject.preset {
            Preset::Indoor => ROOM,
            Preset::Outdoor => STREET,
        };
        let most = usize::try_from(params.registration.max_correspondences)?;
        let mut problem = || {
            let shuffled;
            let rows = match &mut subject.input {
                Input::Planted(n) => {
                    let inliers = (*n as f64 * self.inlier_rate).round() as usize;
                    let pose = random_pose(&mut rng, 20.0);
                    // With this noise most of the right ones agree with each other.
                    shuffled = planted(&mut rng, *n, inliers, size, 0.5 * params.registration.tau, &pose);
                    &shuffled
                }
                Input::Rows(rows) => {
                    rows.shuffle(&mut rng);
                    rows
                }
            };
            let mut problem = Problem::with_capacity(rows.len());
            for row in rows {
                problem.push(*row);
            }
            problem.keep_heaviest(most);
            problem
        };
        Ok((0..RING).map(|_| problem()).collect())
    }

    fn measure(&self, registrar: &mut Registrar, mut subject: Subject) -> anyhow::Result<Line> {
        let params = self.choice.params_on(self.backend.as_deref(), subject.preset)?;
        let ring = self.ring(&mut subject, &params)?;
        let frames = self.frames as usize;
        let mut line = Line {
            problem: subject.name,
            preset: subject.preset,
            backend: registrar.backend(),
            n: ring.first().map_or(0, Problem::len),
            edges: 0.0,
            density: 0.0,
            statuses: BTreeMap::new(),
            ms: Percentiles::default(),
            cpu_ms: 0.0,
            per_second: 0.0,
            batches: Vec::new(),
            stages_us: BTreeMap::new(),
        };
        let mut whole = Vec::with_capacity(frames);
        let mut stages = StageTimes::NAMES.map(|_| Vec::with_capacity(frames));
        for problem in &ring {
            registrar.register(problem, &params);
        }
        let cpu = cpu_seconds();
        for problem in ring.iter().cycle().take(frames) {
            let start = Instant::now();
            let result = registrar.register(problem, &params);
            whole.push(start.elapsed().as_secs_f64() * 1e3);
            for (series, us) in stages.iter_mut().zip(result.stages.values()) {
                series.push(us);
            }
            line.backend = result.backend;
            line.edges += result.edges as f64 / frames as f64;
            *line.statuses.entry(result.status.name()).or_default() += 1;
        }
        line.cpu_ms = (cpu_seconds() - cpu) * 1e3 / frames as f64;
        line.per_second = per_second(frames, &whole);
        line.ms = Percentiles::of(&mut whole);
        let series = StageTimes::NAMES.into_iter().zip(&mut stages);
        line.stages_us = series.map(|(name, series)| (name, Percentiles::of(series))).collect();
        let pairs = line.n as f64 * (line.n as f64 - 1.0) / 2.0;
        line.density = line.edges / pairs.max(1.0);
        line.batches = self.batch.iter().map(|m| self.measure_batch(registrar, &ring, *m, &params)).collect();
        Ok(line)
    }

    /// Submissions of `m` problems; each begins one further in the ring than the one before.
    fn measure_batch(&self, registrar: &mut Registrar, ring: &[Problem], m: u32, params: &Params) -> Batch {
        let problems: Vec<Problem> = ring.iter().cycle().take(RING + m as usize).cloned().collect();
        let submissions = problems.windows(m as usize).take(RING).cycle();
        let mut submit = |problems| {
            let start = Instant::now();
            registrar.register_batch(problems, params);
            start.elapsed().as_secs_f64() * 1e3
        };
        // The first one makes the memory of all that work at the same time.
        let mut whole: Vec<f64> =
            submissions.take(1 + self.frames as usize).map(&mut submit).skip(1).collect();
        let per_second = per_second(whole.len() * m as usize, &whole);
        Batch { problems: m, ms: Percentiles::of(&mut whole), per_second }
    }
}

impl Report {
    fn head(&self) -> String {
        let names = ["N", "edges", "%", "p50", "p95", "p99", "max", "cpu"];
        let [n, edges, density, p50, p95, p99, max, cpu] = names;
        format!(
            "flashreg {}, {} ({}), {} threads, K = {}, T = {}, {} frames a line, {RING} inputs in turn; \
             milliseconds, cpu: of all threads per frame\n\
             {:42} {n:>6} {edges:>9} {density:>6} {p50:>8} {p95:>8} {p99:>8} {max:>8} {cpu:>8}  status",
            self.version,
            self.backend,
            self.backend_why,
            self.threads,
            self.pivots,
            self.triples_per_pivot,
            self.frames,
            "problem",
        )
    }

    fn batches_head(&self) -> String {
        let [n, m, p50, p99, rate, one] = ["N", "M", "p50", "p99", "problems/s", "one by one"];
        format!(
            "\n{:42} {n:>6} {m:>6} {p50:>9} {p99:>9} {rate:>12} {one:>12}   ms a submission; backend.batch = {}",
            "batches", self.batch
        )
    }
}

/// From the milliseconds that each part of the work took.
fn per_second(problems: usize, ms: &[f64]) -> f64 {
    problems as f64 / (ms.iter().sum::<f64>() * 1e-3).max(f64::MIN_POSITIVE)
}

fn stages_head() -> String {
    let names = StageTimes::NAMES.map(|name| format!("{name:>17}"));
    format!("\n{:42} {:>6}{}   p50 and p99, ms", "stages", "N", names.concat())
}

impl Line {
    fn whole(&self) -> String {
        let Percentiles { p50, p95, p99, max } = self.ms;
        let statuses: Vec<String> = self.statuses.iter().map(|(name, n)| format!("{name} {n}")).collect();
        format!(
            "{:42} {:6} {:9.0} {:6.2} {p50:8.3} {p95:8.3} {p99:8.3} {max:8.3} {:8.1}  {}",
            self.problem,
            self.n,
            self.edges,
            100.0 * self.density,
            self.cpu_ms,
            statuses.join(", ")
        )
    }

    fn batches(&self) -> impl Iterator<Item = String> + '_ {
        self.batches.iter().map(|Batch { problems, ms, per_second }| {
            format!(
                "{:42} {:6} {problems:6} {:9.3} {:9.3} {per_second:12.0} {:12.0}",
                self.problem, self.n, ms.p50, ms.p99, self.per_second
            )
        })
    }

    fn stages(&self) -> String {
        let of = |name| self.stages_us.get(name).copied().unwrap_or_default();
        let both = StageTimes::NAMES.map(of).map(|p| format!("{:9.3}{:8.3}", p.p50 * 1e-3, p.p99 * 1e-3));
        format!("{:42} {:6}{}", self.problem, self.n, both.concat())
    }
}

fn read(path: &Path) -> anyhow::Result<Input> {
    let file = CorrespondenceFile::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Input::Rows(file.rows))
}

/// CPU seconds of all threads so far (Linux, in steps of 10 ms; else zero). Other programs that run
/// at the same time lengthen the latencies but hardly this.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|v| v.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
