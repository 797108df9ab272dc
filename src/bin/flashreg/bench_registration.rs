//! `flashreg bench registration`: recall and errors over folders of pairs with a known pose, as papers
//! print them.

use super::bench_pairs::{self, Pair};
use super::params::{Choice, Preset};
use super::{say, write_json};
use anyhow::{bail, Context};
use clap::builder::PossibleValuesParser;
use clap::Args;
use flashreg::geometry::pose_error;
use flashreg::io::correspondence_file::CorrespondenceFile;
use flashreg::latency::Percentiles;
use flashreg::params::{BackendChoice, Params, Value};
use flashreg::registration::{Problem, Registrar, Registration};
use flashreg::status::Status;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

#[derive(Args)]
pub struct BenchRegistration {
    /// Folder with a truth.json, or with a gt.log (the format of 3DMatch), or with folders that have
    /// one each; correspondences in files beside it
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// A pose is right within so many degrees and metres; may be given again for more tables
    /// [default: 15,0.3 indoors; 5,0.6 and 5,2 outdoors]
    #[arg(long, value_name = "DEGREES,METRES", value_parser = limit)]
    limit: Vec<Limit>,
    /// The rows of the files lead from the first fragment of a pair in gt.log to the second: against
    /// its matrix, which leads from the second to the first
    #[arg(long)]
    forward: bool,
    /// Pairs worked on at the same time: on the CPU with a thread each, on the GPU in one submission;
    /// with 1, each has the whole machine [default: as many as threads; backend.batch on the GPU]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Register each so many times; its time is the median
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// The same as --set backend.kind=...
    #[arg(long, value_parser = PossibleValuesParser::new(BackendChoice::WORDS))]
    backend: Option<String>,
    /// Write a row for each pair
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write one JSON object; `-` prints it in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

/// How far off a right pose is at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Limit {
    degrees: f64,
    metres: f64,
}

fn limit(text: &str) -> Result<Limit, String> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|v| v.parse().ok().filter(|v| *v > 0.0)).collect();
    match numbers.as_deref() {
        Some([degrees, metres]) => Ok(Limit { degrees: *degrees, metres: *metres }),
        _ => Err("two numbers above zero are needed, such as 15,0.3".to_owned()),
    }
}

/// What came of a pair.
#[derive(Serialize)]
struct Outcome {
    set: String,
    pair: String,
    preset: Preset,
    n: usize,
    status: &'static str,
    /// Error of the pose, whether it is trusted or not; null where there is none.
    re_deg: Option<f64>,
    te_m: Option<f64>,
    ms: f64,
}

impl Outcome {
    fn right(&self, limit: &Limit) -> bool {
        let errors = self.re_deg.zip(self.te_m);
        errors.is_some_and(|(re, te)| re < limit.degrees && te < limit.metres)
    }

    fn trusted(&self) -> bool {
        self.status == Status::Ok.name()
    }
}

/// A line of the table.
#[derive(Serialize)]
struct Line {
    set: String,
    limit: Limit,
    pairs: usize,
    /// Share of the pairs with a right pose, trusted or not: as papers, whose methods always answer.
    recall: f64,
    /// Mean errors of the right poses.
    re_deg: f64,
    te_m: f64,
    /// Share of the pairs with a right pose that is trusted.
    trusted: f64,
    /// Poses that are trusted and wrong.
    wrong: usize,
    ms: Percentiles,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    backend: &'static str,
    backend_why: String,
    jobs: usize,
    seconds: f64,
    lines: Vec<Line>,
    pairs: Vec<Outcome>,
}

impl BenchRegistration {
    pub fn run(self) -> anyhow::Result<()> {
        let pairs = bench_pairs::find(&self.folder, self.choice.preset, self.forward)
            .with_context(|| self.folder.display().to_string())?;
        if pairs.is_empty() {
            bail!("{}: no pairs in it", self.folder.display());
        }
        let params = |preset| self.choice.params_on(self.backend.as_deref(), preset);
        let mut by_preset = [params(Preset::Indoor)?, params(Preset::Outdoor)?];
        let mut registrar = Registrar::new(&by_preset[0])?;
        let gpu = registrar.backend() == "cuda";
        let usual = if gpu { by_preset[0].backend.batch.max(1) as usize } else { registrar.threads() };
        let jobs = self.jobs.map_or(usual, usize::from).min(pairs.len());
        let (backend, backend_why) = (registrar.backend(), registrar.why().to_owned());
        let start = Instant::now();
        let outcomes = if gpu || jobs == 1 {
            in_turn(&mut registrar, &pairs, &by_preset, jobs, self.repeat)?
        } else {
            for params in &mut by_preset {
                params.set("backend.kind", &Value::Text("cpu".to_owned()))?;
                params.set("backend.threads", &Value::Int(1))?;
            }
            side_by_side(&pairs, &by_preset, jobs, self.repeat)?
        };
        let seconds = start.elapsed().as_secs_f64();
        let lines = self.lines(&outcomes);
        let version = env!("CARGO_PKG_VERSION");
        let report = Report { version, backend, backend_why, jobs, seconds, lines, pairs: outcomes };

        if let Some(path) = &self.csv {
            std::fs::write(path, csv(&report.pairs)).with_context(|| path.display().to_string())?;
        }
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        if !to_stdout {
            say(report.table());
        }
        if registrar.faults() > 0 {
            bail!("the GPU failed {} times, now: {}", registrar.faults(), registrar.why());
        }
        Ok(())
    }

    fn limits(&self, preset: Preset) -> Vec<Limit> {
        if !self.limit.is_empty() {
            return self.limit.clone();
        }
        match preset {
            // 3DMatch and its descendants.
            Preset::Indoor => vec![Limit { degrees: 15.0, metres: 0.3 }],
            // KITTI odometry: PointDSC and later; DGR and FCGF.
            Preset::Outdoor => {
                vec![Limit { degrees: 5.0, metres: 0.6 }, Limit { degrees: 5.0, metres: 2.0 }]
            }
        }
    }

    /// A line for each set, and for all pairs of a preset where there are several sets.
    fn lines(&self, outcomes: &[Outcome]) -> Vec<Line> {
        let mut lines = Vec::new();
        for preset in [Preset::Indoor, Preset::Outdoor] {
            let of: Vec<&Outcome> = outcomes.iter().filter(|o| o.preset == preset).collect();
            let mut sets: Vec<&str> = of.iter().map(|o| o.set.as_str()).collect();
            sets.dedup();
            for limit in self.limits(preset) {
                let one = |set: &&str| {
                    let own: Vec<&Outcome> = of.iter().filter(|o| o.set == *set).copied().collect();
                    Line::of(set, &limit, &own)
                };
                let own: Vec<Line> = sets.iter().map(one).collect();
                let mean = own.iter().map(|line| line.recall).sum::<f64>() / own.len().max(1) as f64;
                let several = own.len() > 1;
                lines.extend(own);
                if several {
                    let name = format!("all; mean of the sets {:.2} %", 100.0 * mean);
                    lines.push(Line::of(&name, &limit, &of));
                }
            }
        }
        lines
    }
}

/// One submission after another, each of `jobs` pairs of the same preset; the first one twice, to warm up.
fn in_turn(
    registrar: &mut Registrar,
    pairs: &[Pair],
    params: &[Params; 2],
    jobs: usize,
    repeat: u32,
) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::with_capacity(pairs.len());
    for same in pairs.chunk_by(|a, b| a.preset == b.preset) {
        for batch in same.chunks(jobs) {
            let params = &params[batch[0].preset as usize];
            let problems: Vec<Problem> =
                batch.iter().map(|p| problem(p, params)).collect::<Result<_, _>>()?;
            if outcomes.is_empty() {
                registrar.register_batch(&problems, params);
            }
            let mut times = Vec::new();
            for _ in 1..repeat {
                let start = Instant::now();
                registrar.register_batch(&problems, params);
                times.push(ms_since(start));
            }
            let start = Instant::now();
            let results = registrar.register_batch(&problems, params);
            times.push(ms_since(start));
            let ms = Percentiles::of(&mut times).p50 / batch.len() as f64;
            let all = batch.iter().zip(&problems).zip(results);
            outcomes.extend(all.map(|((pair, problem), result)| outcome(pair, problem, result, ms)));
        }
    }
    Ok(outcomes)
}

/// Each pair on a thread of its own.
fn side_by_side(
    pairs: &[Pair],
    params: &[Params; 2],
    jobs: usize,
    repeat: u32,
) -> anyhow::Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let made: Mutex<Vec<(usize, Outcome)>> = Mutex::new(Vec::with_capacity(pairs.len()));
    let work = || -> anyhow::Result<()> {
        let mut registrar = Registrar::new(&params[0])?;
        let mut warm = false;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(pair) = pairs.get(index) else { return Ok(()) };
            let params = &params[pair.preset as usize];
            let problem = problem(pair, params)?;
            if !std::mem::replace(&mut warm, true) {
                registrar.register(&problem, params);
            }
            let mut times = Vec::new();
            for _ in 1..repeat {
                let start = Instant::now();
                registrar.register(&problem, params);
                times.push(ms_since(start));
            }
            let start = Instant::now();
            let result = registrar.register(&problem, params);
            times.push(ms_since(start));
            let outcome = outcome(pair, &problem, result, Percentiles::of(&mut times).p50);
            made.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((index, outcome));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let mut made = made.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    made.sort_unstable_by_key(|(index, _)| *index);
    Ok(made.into_iter().map(|(_, outcome)| outcome).collect())
}

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn problem(pair: &Pair, params: &Params) -> anyhow::Result<Problem> {
    let path = &pair.correspondences;
    let file = CorrespondenceFile::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut problem = Problem::with_capacity(file.rows.len());
    for row in file.rows {
        problem.push(row);
    }
    problem.keep_heaviest(usize::try_from(params.registration.max_correspondences)?);
    Ok(problem)
}

fn outcome(pair: &Pair, problem: &Problem, result: &Registration, ms: f64) -> Outcome {
    let errors = result.target_t_source.map(|pose| pose_error(&pair.target_t_source, &pose));
    Outcome {
        set: pair.set.clone(),
        pair: pair.name.clone(),
        preset: pair.preset,
        n: problem.len(),
        status: result.status.name(),
        re_deg: errors.map(|(re, _)| re.to_degrees()),
        te_m: errors.map(|(_, te)| te),
        ms,
    }
}

impl Line {
    fn of(set: &str, limit: &Limit, outcomes: &[&Outcome]) -> Self {
        let right: Vec<&&Outcome> = outcomes.iter().filter(|o| o.right(limit)).collect();
        let pairs = outcomes.len();
        let mean = |of: fn(&Outcome) -> Option<f64>| {
            right.iter().filter_map(|o| of(o)).sum::<f64>() / right.len().max(1) as f64
        };
        let share = |n: usize| n as f64 / pairs.max(1) as f64;
        let mut ms: Vec<f64> = outcomes.iter().map(|o| o.ms).collect();
        Self {
            set: set.to_owned(),
            limit: *limit,
            pairs,
            recall: share(right.len()),
            re_deg: mean(|o| o.re_deg),
            te_m: mean(|o| o.te_m),
            trusted: share(right.iter().filter(|o| o.trusted()).count()),
            wrong: outcomes.iter().filter(|o| o.trusted() && !o.right(limit)).count(),
            ms: Percentiles::of(&mut ms),
        }
    }
}

impl Report {
    fn table(&self) -> String {
        let pairs = self.pairs.len();
        let mut text = format!(
            "flashreg {}, {} ({}), {pairs} pairs in {:.2} s, {} at the same time\n\
             RR: right poses; RE, TE: their mean errors; trusted: right and status ok; wrong: status ok and not right\n\
             {:42} {:>12} {:>6} {:>7} {:>7} {:>7} {:>9} {:>6} {:>9} {:>9}",
            self.version,
            self.backend,
            self.backend_why,
            self.seconds,
            self.jobs,
            "set",
            "right within",
            "pairs",
            "RR %",
            "RE deg",
            "TE cm",
            "trusted %",
            "wrong",
            "ms p50",
            "ms p95",
        );
        for line in &self.lines {
            let limit = format!("{} deg {} m", line.limit.degrees, line.limit.metres);
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n{:42} {limit:>12} {:6} {:7.2} {:7.2} {:7.2} {:9.2} {:6} {:9.2} {:9.2}",
                line.set,
                line.pairs,
                100.0 * line.recall,
                line.re_deg,
                100.0 * line.te_m,
                100.0 * line.trusted,
                line.wrong,
                line.ms.p50,
                line.ms.p95,
            );
        }
        text
    }
}

fn csv(outcomes: &[Outcome]) -> String {
    let mut text = "set,pair,n,status,re_deg,te_m,ms\n".to_owned();
    for o in outcomes {
        let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.6}"));
        let (re, te) = (number(o.re_deg), number(o.te_m));
        let _ = writeln!(text, "{},{},{},{},{re},{te},{:.3}", o.set, o.pair, o.n, o.status, o.ms);
    }
    text
}
