//! `flashreg bench camera`: poses of a camera from planted features, how often they are right, how exact and how
//! fast; and what comes of input that fixes no pose, or hardly one.

use super::params::Choice;
use super::{say, write_json};
use anyhow::{bail, Context};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use flashreg::estimation::{Estimation, Estimator};
use flashreg::geometry::{pose_error, Rigid};
use flashreg::latency::Percentiles;
use flashreg::params::{BackendChoice, Params, Value};

use flashreg::simulate::sights::{absolute, relative, Kind, Pinhole, PixelMatch, PointMatch, Sights};
use flashreg::status::Status;
use nalgebra::{Vector3, Vector6};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Shares of wrong matches of the table `robust`.
const OUTLIERS: [f64; 6] = [0.0, 0.25, 0.5, 0.75, 0.8, 0.9];
/// Numbers of matches of the table `robust`.
const SIZES: [usize; 3] = [200, 1000, 5000];
/// A pose is right up to so many degrees of rotation,
const RIGHT_DEG: f64 = 2.0;
/// and, of an absolute one, a position off by no more than this share of the median depth,
const RIGHT_SHARE: f64 = 0.05;
/// nor by more than so many of the largest standard deviations that are accepted;
const RIGHT_STD: f64 = 4.0;
/// of a relative one, a direction of translation off by no more than so many degrees.
const RIGHT_DIRECTION_DEG: f64 = 10.0;
/// A trusted pose that is not right says so if its error is below so many of the standard deviations it tells.
const TOLD: f64 = 5.0;

#[derive(Args)]
pub struct BenchCamera {
    /// robust: planted problems with 1 px of noise, by number of matches and share of wrong ones;
    /// degenerate: input that fixes no pose, or hardly one
    #[arg(long, value_enum, default_value = "robust")]
    table: Table,
    /// Only absolute poses (2D-3D), or only relative ones (2D-2D)
    #[arg(long, value_enum)]
    problem: Option<Problem>,
    /// Only these kinds of the table degenerate
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    kind: Vec<String>,
    /// Numbers of matches of the table robust [default: 200,1000,5000]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    n: Vec<usize>,
    /// Shares of wrong matches of the table robust [default: 0,0.25,0.5,0.75,0.8,0.9]
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',')]
    outliers: Vec<f64>,
    /// Instances of a line [default: 100 robust, 1000 degenerate]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    instances: Option<u32>,
    /// Estimate each so many times; its time is the least
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first instance: with `--instances 1` a single one again
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The same as --set backend.kind=...
    #[arg(long, value_parser = PossibleValuesParser::new(BackendChoice::WORDS))]
    backend: Option<String>,
    /// The same as --set backend.threads=...
    #[arg(long)]
    threads: Option<u16>,
    /// Write one JSON object; `-` prints it in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write what is estimated as NAME.f64 (rows of little-endian doubles) and NAME.json (what they are, and
    /// the truth), for other programs
    #[arg(long, value_name = "FOLDER")]
    dump: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Table {
    Robust,
    Degenerate,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Problem {
    Absolute,
    Relative,
}

/// An instance.
enum Case {
    Absolute(Sights<PointMatch>),
    Relative(Sights<PixelMatch>),
}

/// What a line measures.
struct Subject {
    problem: Problem,
    name: String,
    outliers: Option<f64>,
    make: Box<dyn Fn(u64) -> Case>,
}

/// What came of an instance.
#[derive(Serialize)]
struct Outcome {
    status: &'static str,
    reason: String,
    n: usize,
    /// The pose is right, whatever the status.
    right: bool,
    /// Errors of the pose, whatever the status; infinite (null) where there is none or no truth: degrees, and
    /// the share of the median depth, or the degrees of the direction.
    rotation: f64,
    translation: f64,
    /// Error in units of the covariance that is told.
    sigma: Option<f64>,
    samples: u64,
    backend: &'static str,
    ms: f64,
}

impl Outcome {
    fn trusted(&self) -> bool {
        self.status == Status::Ok.name()
    }

    /// Trusted, not right, and its covariance says so.
    fn loose(&self) -> bool {
        self.trusted() && !self.right && self.sigma.is_some_and(|sigma| sigma < TOLD)
    }
}

/// Median, 90 % and the largest of those that are trusted.
#[derive(Serialize)]
struct Errors {
    p50: f64,
    p90: f64,
    trusted_max: f64,
}

#[derive(Serialize)]
struct Line {
    problem: Problem,
    name: String,
    outliers: Option<f64>,
    instances: usize,
    /// Right poses, trusted or not.
    right: usize,
    /// Right and trusted.
    trusted: usize,
    /// Trusted, not right, and the covariance says so.
    loose: usize,
    /// Trusted, not right, and the covariance does not say so.
    wrong: usize,
    /// The others, by status and reason.
    refused: BTreeMap<String, usize>,
    rotation_deg: Errors,
    /// Of the median depth, or degrees of the direction.
    translation: Errors,
    /// Errors of trusted poses in units of the covariance that is told.
    sigma: Percentiles,
    samples: Percentiles,
    ms: Percentiles,
    backend: &'static str,
    outcomes: Vec<Outcome>,
}

/// What right means.
#[derive(Serialize)]
struct Limits {
    rotation_deg: f64,
    depth_share: f64,
    metres: f64,
    direction_deg: f64,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    table: Table,
    backend: &'static str,
    backend_why: String,
    threads: i64,
    seed: u64,
    threshold_px: f64,
    limits: Limits,
    lines: Vec<Line>,
}

impl BenchCamera {
    pub fn run(self) -> anyhow::Result<()> {
        let subjects = self.subjects()?;
        let mut params = self.choice.params_on(self.backend.as_deref(), self.choice.preset)?;
        if let Some(threads) = self.threads {
            params.set("backend.threads", &Value::Int(threads.into()))?;
        }
        let most = self.sizes().iter().copied().max().unwrap_or(0).max(200);
        if most as i64 > params.camera.max_correspondences {
            params.set("camera.max_correspondences", &Value::Int(most as i64))?;
        }
        if let Some(folder) = &self.dump {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let mut estimator = Estimator::new(&params)?;
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            table: self.table,
            backend: estimator.backend(),
            backend_why: estimator.why().to_owned(),
            threads: params.backend.threads,
            seed: self.seed,
            threshold_px: params.camera.inlier_threshold_px,
            limits: Limits {
                rotation_deg: RIGHT_DEG,
                depth_share: RIGHT_SHARE,
                metres: RIGHT_STD * params.acceptance.max_translation_std,
                direction_deg: RIGHT_DIRECTION_DEG,
            },
            lines: Vec::new(),
        };
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        let print = |line: String| {
            if !to_stdout {
                say(line);
            }
        };
        print(report.head());
        for subject in subjects {
            let line = self.measure(&mut estimator, &subject, &params, &report.limits)?;
            print(line.text());
            report.lines.push(line);
        }
        print(report.foot());
        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        if let Some(fault) = estimator.lost() {
            bail!("the GPU failed: {fault}");
        }
        Ok(())
    }

    fn sizes(&self) -> &[usize] {
        match (self.table, self.n.is_empty()) {
            (Table::Degenerate, _) => &[],
            (Table::Robust, true) => &SIZES,
            (Table::Robust, false) => &self.n,
        }
    }

    /// What is asked for, checked.
    fn subjects(&self) -> anyhow::Result<Vec<Subject>> {
        let seed = self.seed;
        let mut subjects = Vec::new();
        if self.table == Table::Robust {
            if let Some(n) = self.sizes().iter().find(|n| !(1..=32_768).contains(*n)) {
                bail!("--n {n}: from 1 to 32768 are possible");
            }
            if let Some(share) = self.outliers.iter().find(|share| !(0.0..=1.0).contains(*share)) {
                bail!("--outliers {share}: a share from 0 to 1 is needed");
            }
            let shares = if self.outliers.is_empty() { &OUTLIERS[..] } else { &self.outliers };
            for problem in [Problem::Absolute, Problem::Relative] {
                for n in self.sizes().iter().copied() {
                    subjects.extend(shares.iter().map(|&share| Subject {
                        problem,
                        name: format!("{n}"),
                        outliers: Some(share),
                        make: match problem {
                            Problem::Absolute => {
                                Box::new(move |i| Case::Absolute(absolute::planted(seed, i, n, share)))
                            }
                            Problem::Relative => {
                                Box::new(move |i| Case::Relative(relative::planted(seed, i, n, share)))
                            }
                        },
                    }));
                }
            }
        } else {
            let wanted = |name: &str| self.kind.is_empty() || self.kind.iter().any(|kind| kind == name);
            fn of<M>(problem: Problem, kind: &'static Kind<M>, make: Box<dyn Fn(u64) -> Case>) -> Subject {
                Subject { problem, name: kind.name.to_owned(), outliers: None, make }
            }
            subjects.extend(absolute::KINDS.iter().filter(|kind| wanted(kind.name)).map(|kind| {
                of(Problem::Absolute, kind, Box::new(move |i| Case::Absolute(kind.make(seed, i))))
            }));
            subjects.extend(relative::KINDS.iter().filter(|kind| wanted(kind.name)).map(|kind| {
                of(Problem::Relative, kind, Box::new(move |i| Case::Relative(kind.make(seed, i))))
            }));
            if let Some(kind) = self.kind.iter().find(|kind| subjects.iter().all(|s| s.name != **kind)) {
                let mut names: Vec<&str> = absolute::KINDS.iter().map(|kind| kind.name).collect();
                names.extend(relative::KINDS.iter().map(|kind| kind.name));
                names.sort_unstable();
                names.dedup();
                bail!("--kind {kind}: not one of {}", names.join(", "));
            }
        }
        subjects.retain(|subject| self.problem.is_none_or(|problem| problem == subject.problem));
        if subjects.is_empty() {
            bail!("nothing is left to measure");
        }
        Ok(subjects)
    }

    fn measure(
        &self,
        estimator: &mut Estimator,
        subject: &Subject,
        params: &Params,
        limits: &Limits,
    ) -> anyhow::Result<Line> {
        let usual = if self.table == Table::Robust { 100 } else { 1000 };
        let indices = self.first..self.first + u64::from(self.instances.unwrap_or(usual));
        let mut dump = Dump::default();
        let mut outcomes = Vec::new();
        for index in indices {
            let case = (subject.make)(index);
            if self.dump.is_some() {
                dump.add(&case);
            }
            // The first one twice, to warm up.
            let times = self.repeat + u32::from(outcomes.is_empty());
            outcomes.push(case.estimate(estimator, params, limits, times));
        }
        if let Some(folder) = &self.dump {
            let share = subject.outliers.map_or(String::new(), |share| format!("_{}", 100.0 * share));
            dump.write(folder, &format!("{}_{}{share}", subject.problem.name(), subject.name))?;
        }
        Ok(Line::of(subject, outcomes))
    }
}

impl Problem {
    fn name(self) -> &'static str {
        match self {
            Problem::Absolute => "absolute",
            Problem::Relative => "relative",
        }
    }
}

impl Case {
    /// The least time of so many estimations, and what the last one found.
    fn estimate(&self, estimator: &mut Estimator, params: &Params, limits: &Limits, times: u32) -> Outcome {
        let threshold = params.camera.inlier_threshold_px;
        let mut ms = f64::INFINITY;
        let mut timed = |run: &mut dyn FnMut()| {
            for _ in 0..times {
                let start = Instant::now();
                run();
                ms = ms.min(start.elapsed().as_secs_f64() * 1e3);
            }
        };
        let mut result = Estimation::default();
        let (truth, n) = match self {
            Case::Absolute(sights) => {
                let problem = sights.problem(threshold);
                timed(&mut || result.clone_from(estimator.absolute(&problem, params)));
                (sights.truth, sights.matches.len())
            }
            Case::Relative(sights) => {
                let problem = sights.problem(threshold);
                timed(&mut || result.clone_from(estimator.relative(&problem, params)));
                (sights.truth, sights.matches.len())
            }
        };
        let (rotation, translation) = match (truth, result.target_t_source) {
            (Some(truth), Some(pose)) => self.errors(&truth, &pose),
            _ => (f64::INFINITY, f64::INFINITY),
        };
        let near = match self {
            Case::Absolute(sights) => limits.depth_share.min(limits.metres / sights.depth),
            Case::Relative(_) => limits.direction_deg,
        };
        Outcome {
            status: result.status.name(),
            reason: result.reason.to_string(),
            n,
            right: rotation <= limits.rotation_deg && translation <= near,
            rotation,
            translation,
            sigma: truth.and_then(|truth| self.sigma(&truth, &result)),
            samples: result.samples,
            backend: result.backend,
            ms,
        }
    }

    /// Degrees; share of the depth, or degrees.
    fn errors(&self, truth: &Rigid, pose: &Rigid) -> (f64, f64) {
        let (rotation, distance) = pose_error(truth, pose);
        let translation = match self {
            Case::Absolute(sights) => distance / sights.depth,
            Case::Relative(_) => truth.translation.vector.angle(&pose.translation.vector).to_degrees(),
        };
        (rotation.to_degrees(), translation)
    }

    /// Error in units of the covariance, over the directions in which there is one.
    fn sigma(&self, truth: &Rigid, result: &Estimation) -> Option<f64> {
        let pose = result.target_t_source?;
        let at = match self {
            Case::Absolute(_) => truth.translation.vector,
            Case::Relative(_) => truth.translation.vector.try_normalize(0.0)?,
        };
        let shift: Vector3<f64> = pose.translation.vector - at;
        let turn = (pose.rotation * truth.rotation.inverse()).scaled_axis();
        let error = Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z);
        // Metres and radians to one scale, so that a direction without variance is told from a small one.
        let scale = result.covariance.diagonal().map(|v| if v > 0.0 { v.sqrt().recip() } else { 0.0 });
        let scaled = nalgebra::Matrix6::from_fn(|i, j| result.covariance[(i, j)] * scale[i] * scale[j]);
        let eigen = scaled.symmetric_eigen();
        let error = eigen.eigenvectors.tr_mul(&error.component_mul(&scale));
        let parts = error.iter().zip(eigen.eigenvalues.iter()).filter(|(_, v)| **v > 1e-9);
        let squares: Vec<f64> = parts.map(|(e, v)| e * e / v).collect();
        (!squares.is_empty()).then(|| squares.iter().sum::<f64>().sqrt())
    }
}

impl Errors {
    fn of(outcomes: &[Outcome], error: impl Fn(&Outcome) -> f64) -> Self {
        let mut all: Vec<f64> = outcomes.iter().map(&error).collect();
        all.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * all.len() as f64).ceil() as usize;
            all.get(rank.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
        };
        let (p50, p90) = (at(0.5), at(0.9));
        let trusted_max = outcomes.iter().filter(|o| o.trusted()).map(error).fold(0.0, f64::max);
        Self { p50, p90, trusted_max }
    }

    fn text(&self, factor: f64) -> String {
        [self.p50, self.p90, self.trusted_max].map(|v| format!("{:8.3}", factor * v)).concat()
    }
}

impl Line {
    fn of(subject: &Subject, outcomes: Vec<Outcome>) -> Self {
        let count = |of: fn(&Outcome) -> bool| outcomes.iter().filter(|o| of(o)).count();
        let mut refused = BTreeMap::new();
        for o in outcomes.iter().filter(|o| !o.trusted()) {
            let word = o.reason.split(':').next().unwrap_or_default();
            *refused.entry(format!("{} {word}", o.status).trim_end().to_owned()).or_default() += 1;
        }
        let all = |of: fn(&Outcome) -> f64| Percentiles::of(&mut outcomes.iter().map(of).collect::<Vec<_>>());
        let mut sigma: Vec<f64> = outcomes.iter().filter(|o| o.trusted()).filter_map(|o| o.sigma).collect();
        Self {
            problem: subject.problem,
            name: subject.name.clone(),
            outliers: subject.outliers,
            instances: outcomes.len(),
            right: count(|o| o.right),
            trusted: count(|o| o.right && o.trusted()),
            loose: count(Outcome::loose),
            wrong: count(|o| o.trusted() && !o.right && !o.loose()),
            refused,
            rotation_deg: Errors::of(&outcomes, |o| o.rotation),
            translation: Errors::of(&outcomes, |o| o.translation),
            sigma: Percentiles::of(&mut sigma),
            samples: all(|o| o.samples as f64),
            ms: all(|o| o.ms),
            backend: outcomes.first().map_or("", |o| o.backend),
            outcomes,
        }
    }

    fn text(&self) -> String {
        let Percentiles { p50, p95, p99, .. } = self.ms;
        let times = format!("{:8.0} {p50:8.2} {p95:8.2} {p99:8.2}", self.samples.p50);
        let refused: Vec<String> = self.refused.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let refused = refused.join(", ");
        let problem = self.problem.name();
        let counts = format!("{:6} {:8} {:6} {:6}", self.right, self.trusted, self.loose, self.wrong);
        match self.outliers {
            Some(share) => {
                let factor = if self.problem == Problem::Absolute { 100.0 } else { 1.0 };
                let sigma = format!("{:8.1}{:6.1}", self.sigma.p50, self.sigma.p99);
                let errors = format!("{}{}", self.rotation_deg.text(1.0), self.translation.text(factor));
                let (n, share) = (&self.name, 100.0 * share);
                format!("{problem:9} {n:>5} {share:5.0} {counts}{errors}{sigma}{times}  {refused}")
            }
            None => format!("{problem:9} {:20} {counts}{times}  {refused}", self.name),
        }
    }
}

impl Report {
    fn head(&self) -> String {
        let Limits { rotation_deg, depth_share, metres, direction_deg } = self.limits;
        let [right, trusted, loose, wrong] = ["right", "trusted", "loose", "wrong"];
        let [samples, p50, p95, p99] = ["samples", "p50", "p95", "p99"];
        let counts = format!("{right:>6} {trusted:>8} {loose:>6} {wrong:>6}");
        let times = format!("{samples:>8} {p50:>8} {p95:>8} {p99:>8}");
        let columns = match self.table {
            Table::Robust => {
                let errors = ["rot p50", "p90", "max", "tr p50", "p90", "max"].map(|v| format!("{v:>8}"));
                let errors = errors.concat();
                format!(
                    "{:9} {:>5} {:>5} {counts}{errors}{:>8}{:>6}{times}  refused",
                    "", "n", "out %", "sg p50", "p99"
                )
            }
            Table::Degenerate => format!("{:9} {:20} {counts}{times}  refused", "", "kind"),
        };
        format!(
            "flashreg {}, {} ({}), threshold {} px\n\
             right: within {rotation_deg} degrees and, absolute, {} % of the median depth and {metres} m, relative, \
             {direction_deg} degrees of the direction; trusted: right and status ok; loose: ok, not right, but \
             within {TOLD} of the standard deviations told; wrong: ok and neither\n\
             rot: degrees; tr: % of the median depth, or degrees of the direction; p50 and p90 of all, max of the \
             trusted; sg: errors of the trusted in units of the covariance told; times in ms\n{columns}",
            self.version,
            self.backend,
            self.backend_why,
            self.threshold_px,
            100.0 * depth_share,
        )
    }

    fn foot(&self) -> String {
        let wrong: usize = self.lines.iter().map(|line| line.wrong).sum();
        let instances: usize = self.lines.iter().map(|line| line.instances).sum();
        format!("wrong poses called ok: {wrong} of {instances}")
    }
}

/// Instances for other programs.
#[derive(Default)]
struct Dump {
    numbers: Vec<u8>,
    instances: Vec<DumpedInstance>,
}

#[derive(Serialize)]
struct DumpedInstance {
    rows: usize,
    camera: DumpedCamera,
    depth: f64,
    /// Rows of the matrix `target_t_source`, null where there is no truth.
    truth: Option<[[f64; 4]; 3]>,
}

#[derive(Serialize)]
struct DumpedCamera {
    focal: f64,
    center: [f64; 2],
    size: [f64; 2],
}

impl Dump {
    fn add(&mut self, case: &Case) {
        match case {
            Case::Absolute(s) => {
                let rows = s
                    .matches
                    .iter()
                    .flat_map(|m| [m.pixel[0], m.pixel[1], m.landmark.x, m.landmark.y, m.landmark.z]);
                self.numbers.extend(rows.flat_map(f64::to_le_bytes));
                self.about(s.matches.len(), &s.camera, s.depth, s.truth);
            }
            Case::Relative(s) => {
                let rows =
                    s.matches.iter().flat_map(|m| [m.pixel[0], m.pixel[1], m.reference[0], m.reference[1]]);
                self.numbers.extend(rows.flat_map(f64::to_le_bytes));
                self.about(s.matches.len(), &s.camera, s.depth, s.truth);
            }
        }
    }

    fn about(&mut self, rows: usize, camera: &Pinhole, depth: f64, truth: Option<Rigid>) {
        let truth = truth.map(|pose| {
            let matrix = pose.to_homogeneous();
            [0, 1, 2].map(|i| [0, 1, 2, 3].map(|j| matrix[(i, j)]))
        });
        let camera = DumpedCamera { focal: camera.focal, center: camera.center, size: camera.size };
        self.instances.push(DumpedInstance { rows, camera, depth, truth });
    }

    fn write(&self, folder: &Path, name: &str) -> anyhow::Result<()> {
        let numbers = folder.join(format!("{name}.f64"));
        std::fs::write(&numbers, &self.numbers).with_context(|| numbers.display().to_string())?;
        write_json(&folder.join(format!("{name}.json")), &self.instances)
    }
}
