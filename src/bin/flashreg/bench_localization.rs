//! `flashreg bench localization`: the localizer in simulated places, as tables.

use super::params::{Choice, Preset};
use super::scenarios::{self, Case, MapOf, Table};
use super::{replay, say, write_json};
use anyhow::{bail, ensure, Context};
use clap::Args;
use flashreg::io::bag::Bag;
use flashreg::localizer::map::{Map, Settings};
use flashreg::localizer::Localizer;
use flashreg::params::Params;
use flashreg::replay::drive;
use flashreg::replay::files::{self, Drive};
use flashreg::replay::gates::Gates;
use flashreg::replay::metrics::{self, Evaluation, Truths};
use flashreg::replay::result::ResultFile;
use flashreg::replay::truth::{Source, Truth};
use flashreg::replay::Run;
use flashreg::simulate::{write, Options, Simulation};
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Topic of the truth of simulated drives.
const TRUTH: &str = "/ground_truth";

#[derive(Args)]
pub struct BenchLocalization {
    /// What is measured; may be given again [default: all]
    #[arg(long, value_enum)]
    table: Vec<Table>,
    /// Unknown starts of each line, and refusals of each kind; kidnaps and twin rooms are a tenth of them
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    starts: u32,
    /// Seconds of each drive that is tracked
    #[arg(long, value_name = "S", default_value_t = 600.0)]
    seconds: f64,
    /// LiDAR, by its name in the levels of the simulation
    #[arg(long, value_name = "NAME", default_value = "vlp16")]
    lidar: String,
    /// The first seed: each drive has one of its own
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// An answer takes the time that it takes on this machine, and what comes meanwhile is dropped but for the
    /// newest, as on the robot
    #[arg(long)]
    realtime: bool,
    /// Keep the report of each drive in this folder, DIR/TABLE/CASE; what is there already is not driven again
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Drive only each N-th case from the I-th on, 1 to N: for several processes with the same --out
    #[arg(long, value_name = "I/N", value_parser = part, default_value = "1/1")]
    part: [usize; 2],
    /// Print the commands that make and replay each drive in place of driving it
    #[arg(long)]
    commands: bool,
    /// Fail with exit code 2 where a line does not reach what is asked of the localizer
    #[arg(long)]
    check: bool,
    /// Write one JSON object; `-` prints it in place of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

/// `2/4`
fn part(text: &str) -> Result<[usize; 2], String> {
    let numbers =
        text.split_once('/').and_then(|(i, n)| Some([i.trim().parse().ok()?, n.trim().parse().ok()?]));
    let numbers = numbers.filter(|[i, n]: &[usize; 2]| (1..=*n).contains(i));
    numbers.ok_or_else(|| format!("'{text}': a part such as 2/4 needed"))
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    threads: usize,
    realtime: bool,
    lidar: String,
    seed: u64,
    rows: Vec<scenarios::Row>,
    cases: Vec<Driven>,
}

/// A case and what came of it.
#[derive(Serialize)]
struct Driven {
    table: Table,
    line: String,
    name: String,
    commands: [String; 2],
    result: ResultFile,
}

impl BenchLocalization {
    pub fn run(self) -> anyhow::Result<()> {
        ensure!(self.seconds.is_finite() && self.seconds >= 1.0, "--seconds {}: 1 or more", self.seconds);
        let params = self.choice.params()?;
        let tables = if self.table.is_empty() { Table::ALL.to_vec() } else { self.table.clone() };
        let wanted = scenarios::Wanted {
            starts: self.starts as usize,
            seconds: self.seconds,
            seed: self.seed,
            lidar: &self.lidar,
        };
        let mut cases = Vec::new();
        for table in tables {
            cases.extend(scenarios::cases(table, &wanted)?);
        }
        let [first, of] = self.part;
        let cases: Vec<Case> = cases.into_iter().skip(first - 1).step_by(of).collect();
        if self.commands {
            cases.iter().flat_map(|case| self.commands_of(case)).for_each(say);
            return Ok(());
        }
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        let mut driven: Vec<Driven> = Vec::new();
        let mut rows: Vec<scenarios::Row> = Vec::new();
        let mut head = None;
        for (k, case) in cases.iter().enumerate() {
            let result =
                self.result(case, &params).with_context(|| format!("{} {}", case.table, case.name))?;
            let (table, line, name) = (case.table, case.line.clone(), case.name.clone());
            driven.push(Driven { table, line, name, commands: self.commands_of(case), result });
            let same = |other: &&Case| other.table == case.table && other.line == case.line;
            if cases.get(k + 1).as_ref().is_some_and(same) {
                continue;
            }
            let of_line = driven.iter().filter(|d| d.table == case.table && d.line == case.line);
            let row = scenarios::Row::new(case, of_line.map(|d| &d.result));
            if !to_stdout {
                if head.replace(case.table) != Some(case.table) {
                    say(case.table.head());
                }
                say(&row);
            }
            rows.push(row);
        }
        let failed: Vec<String> =
            rows.iter().filter(|row| row.passed == Some(false)).map(|r| r.line.clone()).collect();
        if let Some(path) = &self.json {
            let (version, threads) = (env!("CARGO_PKG_VERSION"), rayon::current_num_threads());
            let (realtime, lidar, seed) = (self.realtime, self.lidar.clone(), self.seed);
            write_json(path, &Report { version, threads, realtime, lidar, seed, rows, cases: driven })?;
        }
        match self.check && !failed.is_empty() {
            true => bail!("not reached: {}", failed.join(", ")),
            false => Ok(()),
        }
    }

    /// `flashreg simulate` and `flashreg replay` for the same.
    fn commands_of(&self, case: &Case) -> [String; 2] {
        let preset = if self.choice.preset == Preset::Outdoor { " --preset outdoor" } else { "" };
        let realtime = if self.realtime { " --realtime" } else { "" };
        let [simulate, replay] = case.commands(&self.lidar);
        [simulate, format!("{replay}{preset}{realtime}")]
    }

    /// What is kept of an earlier run, or a new drive.
    fn result(&self, case: &Case, params: &Params) -> anyhow::Result<ResultFile> {
        let folder = self.out.as_ref().map(|out| out.join(case.table.to_string()).join(&case.name));
        if let Some(folder) = &folder {
            let kept = ResultFile::read(&folder.join("result.json"));
            if let Some(kept) = kept.ok().filter(|kept| kept.run.complete) {
                return Ok(kept);
            }
        }
        let started = Instant::now();
        let simulation = Simulation::new(case.options.clone())?;
        let map = map(case, &simulation, params)?;
        let temporary = tempfile::tempdir().context("no temporary folder")?;
        let path = temporary.path().join("drive.mcap");
        let mut file = BufWriter::new(File::create(&path)?);
        write::mcap(&simulation, &mut file, |_| ())?;
        drop(file);
        let simulated = started.elapsed().as_secs_f64();
        let bag = Bag::open(&path)?;
        let result = self.drive(case, &bag, map, params, folder.as_deref())?;
        log::info!(
            "{} {}: simulated in {simulated:.1} s, driven in {:.1} s",
            case.table,
            case.name,
            result.run.wall_s
        );
        Ok(result)
    }

    fn drive(
        &self,
        case: &Case,
        bag: &Bag,
        map: Map,
        params: &Params,
        folder: Option<&Path>,
    ) -> anyhow::Result<ResultFile> {
        let options = drive::Options {
            realtime: self.realtime,
            restart_every: case.restart_every,
            ..drive::Options::default()
        };
        let truth = Truth::read(&Source::Topic(TRUTH.to_owned()), bag, params, &options.topic_points, None)?;
        let mut localizer = Localizer::new(params)?;
        localizer.set_map(map.into())?;
        if case.starts_known {
            replay::tell_initial_pose(&mut localizer, params, &truth)?;
        }
        let (started, mut frames) = (Instant::now(), Vec::new());
        let stop = AtomicBool::new(false);
        let outcome =
            drive::drive(bag, &mut localizer, params, &options, &stop, |frame, _| frames.push(*frame))?;
        let name = format!("{} {}", case.table, case.name);
        let mut run = Run::new(name, options, &outcome, &localizer, params, started.elapsed().as_secs_f64());
        run.truth = Some(TRUTH.to_owned());
        run.notes.extend(self.commands_of(case));
        let options = metrics::Options { wrong: case.wrong, ..metrics::Options::default() };
        let truths = Truths { absolute: Some(&truth.trajectory), relative: None };
        let evaluation = Evaluation::new(&frames, truths, &options);
        let gates = Gates::default();
        let drive = Drive { run, frames: &frames, evaluation: &evaluation, options, gates, baseline: None };
        Ok(match folder {
            Some(folder) => files::write(folder, drive)?,
            None => drive.result(),
        })
    }
}

fn map(case: &Case, simulation: &Simulation, params: &Params) -> anyhow::Result<Map> {
    let points = match &case.map {
        MapOf::Place(change) => change.points(simulation),
        MapOf::Other(seed) => {
            let options = Options { seed: *seed, faults: Vec::new(), ..case.options.clone() };
            write::MapChange::default().points(&Simulation::new(options)?)
        }
    };
    Ok(Map::from_points(&points, &Settings::from(params), |_| ())?)
}
