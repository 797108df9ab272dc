//! `flashreg replay`

use super::params::Choice;
use super::say;
use anyhow::{bail, ensure, Context};
use clap::{Args, ValueEnum};
use flashreg::io::bag::Bag;
use flashreg::localizer::{Input, Localizer};
use flashreg::params::Params;
use flashreg::replay::drive::{self, Progress};
use flashreg::replay::files::{self, Drive};
use flashreg::replay::gates::{Gates, MinRecall};
use flashreg::replay::metrics::{self, Align, Angle, Evaluation, Limit, RelativeOptions, Step, Truths};
use flashreg::replay::result::ResultFile;
use flashreg::replay::truth::{self, Source, Truth};
use flashreg::replay::{table, FrameRecord, Run};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Instant;

/// What the exit code is when a gate has failed.
const GATE_FAILED: u8 = 2;

/// A drive and what is asked of it.
#[derive(Args)]
pub struct Replay {
    /// MCAP file, sqlite3 file of rosbag2, or folder of them
    bag: PathBuf,
    /// Map of the place; raw clouds are localized in it
    #[arg(long, value_name = "MAP")]
    map: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    /// Topic of 3D-3D correspondences. Of these three topics those are driven that the bag has; an empty name
    /// leaves one out
    #[arg(long, value_name = "NAME", default_value_t = drive::default_topic(Input::Points3d3d))]
    topic: String,
    /// Topic of 2D-3D correspondences
    #[arg(long, value_name = "NAME", default_value_t = drive::default_topic(Input::Sights2d3d))]
    topic_2d3d: String,
    /// Topic of 2D-2D correspondences
    #[arg(long, value_name = "NAME", default_value_t = drive::default_topic(Input::Sights2d2d))]
    topic_2d2d: String,
    /// Topic of raw clouds, which need a map
    #[arg(long, value_name = "NAME", default_value_t = drive::default_topic(Input::Points))]
    topic_points: String,
    /// Topic of the calibration of cameras
    #[arg(long, value_name = "NAME", default_value = drive::CAMERA_INFO)]
    camera_info: String,
    /// Truth, poses of the base in the map: a topic of poses or odometry, `tf:PARENT:CHILD`, a TUM
    /// file, or a KITTI file FILE.kitti
    #[arg(long, value_name = "TOPIC|FILE|tf:PARENT:CHILD")]
    gt: Option<Source>,
    /// Times of the poses of a KITTI file, a line each; without it they belong to the messages one to one
    #[arg(long, value_name = "FILE", requires = "gt")]
    gt_times: Option<PathBuf>,
    /// Largest pause between two true poses over which is interpolated, s
    #[arg(long, value_name = "S", default_value_t = metrics::Options::default().max_gap_s)]
    gt_max_gap: f64,
    /// Truth of 2D-2D correspondences: a topic of poses of the camera in its reference view, at the very stamps of
    /// the correspondences [default: that of simulated drives, if the bag has it]
    #[arg(long, value_name = "TOPIC")]
    gt_relative: Option<String>,
    /// Lay the truth onto the estimate first, for a truth in another frame than the map
    #[arg(long, value_enum, default_value = "none")]
    align: Alignment,
    /// Limits for which the recall is told, in degrees and metres; may be given again
    /// [default: 5,2 5,0.6 2,0.2 1,0.1]
    #[arg(long, value_name = "DEG,M")]
    recall: Vec<Limit>,
    /// Limits for which the recall of relative poses is told, in degrees; may be given again
    /// [default: 10 5 2 1]
    #[arg(long, value_name = "DEG")]
    recall_relative: Vec<Angle>,
    /// An accepted pose beyond this limit is wrong
    #[arg(long, value_name = "DEG,M", default_value = "5,2")]
    wrong: Limit,
    /// Forget the pose again and again after so many seconds: as many unknown starts, of which is told how long
    /// they take
    #[arg(long, value_name = "S")]
    restart_every: Option<f64>,
    /// An unknown start has succeeded if its first accepted pose is right and comes within so many seconds, s
    #[arg(long, value_name = "S", default_value_t = metrics::Options::default().within_s)]
    within: f64,
    /// Step of the relative error: frames, seconds or metres, such as 10, 5s, 20m
    #[arg(long, value_name = "STEP", default_value = "1")]
    rpe: Step,
    /// Folder for the report and its data, made if need be
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// An answer takes the time that it takes on this machine, and what comes meanwhile is dropped but
    /// for the newest, as on the robot; otherwise every message is answered
    #[arg(long)]
    realtime: bool,
    /// Begin so many seconds after the begin of the bag, s; transforms are heard from its begin
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    start: f64,
    /// End so many seconds after that, s
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// With --realtime: as if the robot drove so many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "realtime")]
    rate: f64,
    /// Compare with the result of an earlier replay; worse is a failed gate
    #[arg(long, value_name = "result.json")]
    baseline: Option<PathBuf>,
    /// Gate: no accepted pose further from the truth, m
    #[arg(long, value_name = "M", requires = "gt")]
    max_te: Option<f64>,
    /// Gate: no accepted pose turned further from the truth, degrees
    #[arg(long, value_name = "DEG", requires = "gt")]
    max_re: Option<f64>,
    /// Gate: recall, 0 .. 1, at the first limit or at DEG,M
    #[arg(long, value_name = "SHARE[@DEG,M]", requires = "gt")]
    min_recall: Option<MinRecall>,
    /// Gate: root mean square of the distances of the accepted poses from the truth, m
    #[arg(long, value_name = "M", requires = "gt")]
    max_rmse: Option<f64>,
    /// Gate: root mean square of their angles to the truth, degrees
    #[arg(long, value_name = "DEG", requires = "gt")]
    max_rmse_deg: Option<f64>,
    /// Gate: so many accepted poses are wrong, at most
    #[arg(long, value_name = "N", requires = "gt")]
    max_wrong: Option<u64>,
    /// Gate: share of unknown starts that succeed, 0 .. 1
    #[arg(long, value_name = "SHARE", requires_all = ["gt", "restart_every"], value_parser = share)]
    min_localized: Option<f64>,
    /// Gate: share of the errors within two standard deviations, least and most, for each of the six coordinates
    #[arg(long, value_name = "LEAST,MOST", requires = "gt", value_parser = shares)]
    coverage: Option<[f64; 2]>,
    /// Gate: time until a robot that was carried away is noticed, s
    #[arg(long, value_name = "S", requires = "gt")]
    max_notice: Option<f64>,
    /// Gate: time until its pose is right again, s
    #[arg(long, value_name = "S", requires = "gt")]
    max_recover: Option<f64>,
    /// Gate: 99th percentile of the time to an answer, ms
    #[arg(long, value_name = "MS")]
    max_p99_ms: Option<f64>,
    /// Gate: no accepted relative pose turned further from the truth, degrees
    #[arg(long, value_name = "DEG")]
    max_relative_re: Option<f64>,
    /// Gate: the direction of no accepted relative pose further from the truth, degrees
    #[arg(long, value_name = "DEG")]
    max_direction: Option<f64>,
    /// Gate: recall of relative poses, 0 .. 1, at the first limit or at DEG
    #[arg(long, value_name = "SHARE[@DEG]")]
    min_relative_recall: Option<MinRecall<Angle>>,
    /// Print one JSON object, that of result.json
    #[arg(long)]
    json: bool,
}

/// A number of 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("'{text}': a share of 0 to 1 needed"))
}

/// Two of them.
fn shares(text: &str) -> Result<[f64; 2], String> {
    let (least, most) =
        text.split_once(',').ok_or_else(|| format!("'{text}': two shares needed, such as 0.9,0.99"))?;
    Ok([share(least)?, share(most)?])
}

#[derive(Clone, Copy, ValueEnum)]
enum Alignment {
    None,
    Se3,
}

impl Replay {
    /// 0, 1 with an error or what was interrupted, 2 if a gate has failed.
    pub fn run(self) -> ExitCode {
        match self.try_run() {
            Ok(result) => {
                let failures = result.failures();
                for failure in &failures {
                    eprintln!("{failure}");
                }
                match (result.run.complete, failures.is_empty()) {
                    (false, _) => ExitCode::FAILURE,
                    (true, false) => ExitCode::from(GATE_FAILED),
                    (true, true) => ExitCode::SUCCESS,
                }
            }
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn try_run(&self) -> anyhow::Result<ResultFile> {
        self.check()?;
        let params = self.choice.params()?;
        let baseline = self.baseline.as_deref().map(ResultFile::read).transpose()?;
        let bag = Bag::open(&self.bag).context("cannot read the bag")?;
        let truth = self.truth(&bag, &params)?;
        let relative_topic = truth::relative_topic(&bag, self.gt_relative.as_deref());
        let relative = match &relative_topic {
            Some(topic) => Some(Truth::read_relative(topic, &bag, &params).context("no relative truth")?),
            None => None,
        };
        let (mut run, frames) = self.drive(&bag, &params)?;
        run.truth = self.gt.as_ref().map(ToString::to_string);
        run.truth_relative = relative_topic;
        let both = truth.iter().chain(&relative);
        run.notes.extend(both.flat_map(|truth| truth.notes.iter().cloned()));
        let options = self.options();
        let truths = Truths {
            absolute: truth.as_ref().map(|truth| &truth.trajectory),
            relative: relative.as_ref().map(|truth| &truth.trajectory),
        };
        let evaluation = Evaluation::new(&frames, truths, &options);
        let gates = Gates {
            max_te_m: self.max_te,
            max_re_deg: self.max_re,
            min_recall: self.min_recall,
            max_rmse_m: self.max_rmse,
            max_rmse_deg: self.max_rmse_deg,
            max_wrong: self.max_wrong,
            min_localized: self.min_localized,
            coverage: self.coverage,
            max_notice_s: self.max_notice,
            max_recover_s: self.max_recover,
            max_p99_ms: self.max_p99_ms,
            max_relative_re_deg: self.max_relative_re,
            max_direction_deg: self.max_direction,
            min_relative_recall: self.min_relative_recall,
        };
        let baseline = baseline.as_ref();
        let drive = Drive { run, frames: &frames, evaluation: &evaluation, options, gates, baseline };
        let result = match &self.out {
            Some(folder) => files::write(folder, drive)?,
            None => drive.result(),
        };
        match self.json {
            true => say(serde_json::to_string(&result)?),
            false => say(table::summary(&result).trim_end()),
        }
        Ok(result)
    }

    fn check(&self) -> anyhow::Result<()> {
        if let Some(map) = &self.map {
            bail!(
                "--map {}: a map is needed for raw clouds, which this version does not replay; \
                 correspondences hold their points of the map",
                map.display()
            );
        }
        for (name, value) in [
            ("--gt-max-gap", Some(self.gt_max_gap)),
            ("--start", Some(self.start)),
            ("--duration", self.duration),
            ("--rate", Some(self.rate)),
            ("--max-te", self.max_te),
            ("--max-re", self.max_re),
            ("--max-rmse", self.max_rmse),
            ("--max-rmse-deg", self.max_rmse_deg),
            ("--max-notice", self.max_notice),
            ("--max-recover", self.max_recover),
            ("--within", Some(self.within)),
            ("--restart-every", self.restart_every),
            ("--max-p99-ms", self.max_p99_ms),
            ("--max-relative-re", self.max_relative_re),
            ("--max-direction", self.max_direction),
        ] {
            let fits = value.is_none_or(|value| value.is_finite() && value >= 0.0);
            ensure!(fits, "{name} {}: a number that is not negative is needed", value.unwrap_or_default());
        }
        ensure!(self.rate > 0.0, "--rate 0: above zero is needed");
        ensure!(self.restart_every != Some(0.0), "--restart-every 0: above zero is needed");
        Ok(())
    }

    fn truth(&self, bag: &Bag, params: &Params) -> anyhow::Result<Option<Truth>> {
        let Some(source) = &self.gt else { return Ok(None) };
        let truth = Truth::read(source, bag, params, &self.topic, self.gt_times.as_deref());
        truth.map(Some).context("no truth")
    }

    fn drive(&self, bag: &Bag, params: &Params) -> anyhow::Result<(Run, Vec<FrameRecord>)> {
        let options = drive::Options {
            topic: self.topic.clone(),
            topic_2d3d: self.topic_2d3d.clone(),
            topic_2d2d: self.topic_2d2d.clone(),
            topic_points: self.topic_points.clone(),
            camera_info: self.camera_info.clone(),
            realtime: self.realtime,
            start: self.start,
            duration: self.duration,
            rate: self.rate,
            restart_every: self.restart_every,
        };
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the program at once.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut localizer = Localizer::new(params)?;
        let bar = ProgressBar::new(0).with_style(
            ProgressStyle::with_template("{bar:40} {msg} {eta}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let started = Instant::now();
        let mut frames = Vec::new();
        let seen = |frame: &FrameRecord, Progress { done, total }: Progress| {
            frames.push(*frame);
            bar.set_length((total * 1e3) as u64);
            bar.set_position((done * 1e3) as u64);
            bar.set_message(format!("{done:.0} of {total:.0} s"));
        };
        let outcome = drive::drive(bag, &mut localizer, params, &options, &stop, seen);
        bar.finish_and_clear();
        let outcome = outcome.context("cannot drive")?;
        let wall_s = started.elapsed().as_secs_f64();
        let name = self.bag.display().to_string();
        Ok((Run::new(name, options, &outcome, &localizer, params, wall_s), frames))
    }

    fn options(&self) -> metrics::Options {
        let default = metrics::Options::default();
        metrics::Options {
            recall: if self.recall.is_empty() { default.recall } else { self.recall.clone() },
            wrong: self.wrong,
            within_s: self.within,
            max_gap_s: self.gt_max_gap,
            align: match self.align {
                Alignment::None => Align::None,
                Alignment::Se3 => Align::Se3,
            },
            rpe: self.rpe,
            relative: match self.recall_relative.is_empty() {
                true => default.relative,
                false => RelativeOptions { recall: self.recall_relative.clone(), ..default.relative },
            },
        }
    }
}
