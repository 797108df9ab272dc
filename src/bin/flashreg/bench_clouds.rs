//! `flashreg bench clouds`: raw clouds in, a pose out, over folders of pairs with a known pose.

use super::answer::named;
use super::bench_pairs::{self, Clouds};
use super::params::Choice;
use super::{say, write_json};
use anyhow::{bail, Context};
use clap::builder::PossibleValuesParser;
use clap::Args;
use flashreg::geometry::{pose_error, Point};
use flashreg::io::cloud_files;
use flashreg::latency::Percentiles;
use flashreg::localizer::map::{Map, Settings};
use flashreg::localizer::{Engine, ScanTimes};
use flashreg::params::{BackendChoice, Params};
use flashreg::registration::Registrar;
use flashreg::status::Status;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

#[derive(Args)]
pub struct BenchClouds {
    /// Folder with a truth.json that names pairs with clouds
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Also lay the source of each pair upon the targets of pairs from other places, which has to be refused
    #[arg(long)]
    strangers: bool,
    /// Sets whose clouds are from one place, and so no strangers; may be given again
    #[arg(long, value_name = "SET,SET,...", value_delimiter = ',', num_args = 1, action = clap::ArgAction::Append)]
    one_place: Vec<String>,
    /// Register each so many times; its time is the median
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// The same as --set backend.kind=...
    #[arg(long, value_parser = PossibleValuesParser::new(BackendChoice::WORDS))]
    backend: Option<String>,
    /// Fail with exit code 2 where a pose is accepted that is wrong
    #[arg(long)]
    check: bool,
    /// Write one JSON object; `-` prints it in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

/// What came of a pair.
#[derive(Serialize)]
struct Outcome {
    /// Of the source, and of the target where that is another.
    pair: String,
    strangers: bool,
    /// Points of source and target.
    points: [usize; 2],
    voxel_m: f64,
    features: usize,
    matches: usize,
    status: &'static str,
    reason: String,
    /// Error of the pose, whether it is trusted or not; null where there is none, and between strangers.
    re_deg: Option<f64>,
    te_m: Option<f64>,
    right: bool,
    /// Making the target ready, once; and each source.
    target_ms: f64,
    source_ms: f64,
    /// Both.
    ms: f64,
    stages_us: Value,
}

#[derive(Serialize)]
struct Totals {
    pairs: usize,
    right: usize,
    accepted: usize,
    /// Accepted and not right, strangers among them.
    wrong: usize,
    strangers: usize,
    strangers_accepted: usize,
    /// Of the pairs alone.
    target_ms: Percentiles,
    source_ms: Percentiles,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    backend: &'static str,
    threads: usize,
    totals: Totals,
    pairs: Vec<Outcome>,
}

impl BenchClouds {
    pub fn run(self) -> anyhow::Result<()> {
        let pairs = bench_pairs::clouds(&self.folder).with_context(|| self.folder.display().to_string())?;
        if pairs.is_empty() {
            bail!("{}: no pairs with clouds in it", self.folder.display());
        }
        let params = self.choice.params_on(self.backend.as_deref(), self.choice.preset)?;
        let mut registrar = Registrar::new(&params)?;
        let mut outcomes = Vec::new();
        for target in &pairs {
            let of = pairs.iter().filter(|source| {
                source.name == target.name || self.strangers && self.is_elsewhere(source, target)
            });
            let found = self
                .upon(target, of, &mut registrar, &params)
                .with_context(|| target.target.display().to_string())?;
            outcomes.extend(found);
        }
        // Stable: the pairs first.
        outcomes.sort_by_key(|outcome| outcome.strangers);
        let (version, backend) = (env!("CARGO_PKG_VERSION"), registrar.backend());
        let threads = registrar.threads();
        let report = Report { version, backend, threads, totals: Totals::of(&outcomes), pairs: outcomes };
        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        if self.json.as_deref() != Some(Path::new("-")) {
            say(report.table());
        }
        match self.check && report.totals.wrong > 0 {
            true => bail!("{} wrong poses were accepted", report.totals.wrong),
            false => Ok(()),
        }
    }

    fn is_elsewhere(&self, one: &Clouds, other: &Clouds) -> bool {
        let together = |set: &String| self.one_place.contains(set);
        one.set != other.set && !(together(&one.set) && together(&other.set))
    }

    /// Lays sources upon a target.
    fn upon<'a>(
        &self,
        target: &Clouds,
        sources: impl Iterator<Item = &'a Clouds>,
        registrar: &mut Registrar,
        params: &Params,
    ) -> anyhow::Result<Vec<Outcome>> {
        let cloud = cloud_files::read(&target.target)?;
        let settings = Settings { viewpoint: Some(Point::origin()), ..Settings::from(params) };
        let start = Instant::now();
        let map = Arc::new(Map::from_points(&cloud.points, &settings, |_| ())?);
        let mut engine = Engine::new(map.clone(), params)?;
        let target_ms = ms_since(start);
        let mut outcomes = Vec::new();
        for source in sources {
            let scan =
                cloud_files::read(&source.source).with_context(|| source.source.display().to_string())?;
            let mut times = Vec::new();
            let mut lay = || {
                let start = Instant::now();
                let once = engine.register_pair(&scan.points, registrar, params);
                times.push(ms_since(start));
                once
            };
            for _ in 1..self.repeat {
                lay();
            }
            let once = lay();
            let source_ms = Percentiles::of(&mut times).p50;
            let strangers = source.name != target.name;
            let best = once.candidates.first().filter(|_| !strangers);
            let errors = best.map(|best| pose_error(&target.target_t_source, &best.alignment.map_t_sensor));
            let [degrees, metres] = target.within;
            outcomes.push(Outcome {
                pair: match strangers {
                    true => format!("{} upon {}", source.name, target.name),
                    false => source.name.clone(),
                },
                strangers,
                points: [scan.points.len(), cloud.points.len()],
                voxel_m: map.lengths.voxel,
                features: once.features,
                matches: once.matches,
                status: once.status.name(),
                reason: once.why,
                re_deg: errors.map(|(re, _)| re.to_degrees()),
                te_m: errors.map(|(_, te)| te),
                right: errors.is_some_and(|(re, te)| re.to_degrees() < degrees && te < metres),
                target_ms,
                source_ms,
                ms: target_ms + source_ms,
                stages_us: named(&ScanTimes::NAMES, &once.times.values()),
            });
        }
        Ok(outcomes)
    }
}

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

impl Outcome {
    fn accepted(&self) -> bool {
        self.status == Status::Ok.name()
    }

    fn verdict(&self) -> &'static str {
        match (self.accepted(), self.right) {
            (true, true) => "right",
            (true, false) => "WRONG",
            (false, true) => "refused, right",
            (false, false) => "refused",
        }
    }
}

impl Totals {
    fn of(outcomes: &[Outcome]) -> Self {
        let count = |of: &dyn Fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| of(outcome)).count();
        let times = |of: fn(&Outcome) -> f64| {
            let mut times: Vec<f64> = outcomes.iter().filter(|o| !o.strangers).map(of).collect();
            Percentiles::of(&mut times)
        };
        Self {
            pairs: count(&|o| !o.strangers),
            right: count(&|o| o.right),
            accepted: count(&|o| o.accepted() && o.right),
            wrong: count(&|o| o.accepted() && !o.right),
            strangers: count(&|o| o.strangers),
            strangers_accepted: count(&|o| o.strangers && o.accepted()),
            target_ms: times(|o| o.target_ms),
            source_ms: times(|o| o.source_ms),
        }
    }
}

impl Report {
    fn table(&self) -> String {
        let t = &self.totals;
        // Writing to a string does not fail.
        let mut text = format!(
            "flashreg {}, {}, {} threads\n{:32} {:>7} {:>8} {:>7} {:>8} {:>8} {:>7} {:>9} {:>9}  verdict",
            self.version,
            self.backend,
            self.threads,
            "pair",
            "voxel m",
            "features",
            "matches",
            "RE deg",
            "TE cm",
            "right",
            "target ms",
            "source ms",
        );
        // Of strangers only those that should worry.
        for o in self.pairs.iter().filter(|o| !o.strangers || o.accepted()) {
            let number = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
            let _ = write!(
                text,
                "\n{:32} {:7.2} {:8} {:7} {:>8} {:>8} {:>7} {:9.1} {:9.1}  {}  {}",
                o.pair,
                o.voxel_m,
                o.features,
                o.matches,
                number(o.re_deg),
                number(o.te_m.map(|te| 100.0 * te)),
                if o.right { "yes" } else { "no" },
                o.target_ms,
                o.source_ms,
                o.verdict(),
                o.reason,
            );
        }
        let _ = write!(
            text,
            "\n{} pairs: {} right, {} of them accepted; {} wrong accepted; {} strangers, {} accepted; \
             target {:.1} ms, source {:.1} ms (p50)",
            t.pairs,
            t.right,
            t.accepted,
            t.wrong,
            t.strangers,
            t.strangers_accepted,
            t.target_ms.p50,
            t.source_ms.p50,
        );
        text
    }
}
