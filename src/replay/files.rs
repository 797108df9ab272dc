//! The folder of a replay.

use super::gates::{compare, Gates};
use super::metrics::{Evaluation, Options};
use super::report;
use super::result::{Program, ResultFile, SCHEMA};
use super::{FrameRecord, Run};
use crate::figure::FigureError;
use crate::geometry::Rigid;
use crate::io::trajectory::write_tum_line;
use crate::localizer::{Mode, Stages};
use crate::messages::Stamp;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A drive and all that is asked of it.
pub struct Drive<'a> {
    /// The circumstances.
    pub run: Run,
    /// The answers.
    pub frames: &'a [FrameRecord],
    /// Beside the truth.
    pub evaluation: &'a Evaluation,
    /// As which it was evaluated.
    pub options: Options,
    /// What it has to reach.
    pub gates: Gates,
    /// What it is compared with.
    pub baseline: Option<&'a ResultFile>,
}

impl Drive<'_> {
    /// What `result.json` holds.
    pub fn result(&self) -> ResultFile {
        let evaluation = self.evaluation;
        ResultFile {
            schema: SCHEMA,
            program: Program::this(),
            run: self.run.clone(),
            options: self.options.clone(),
            summary: evaluation.summary.clone(),
            map_t_truth: evaluation.map_t_truth.as_ref().map(numbers),
            verdicts: self.gates.check(evaluation),
            comparison: self.baseline.map(|baseline| compare(baseline, evaluation)).unwrap_or_default(),
            gates: self.gates.clone(),
        }
    }
}

/// A folder could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file or the folder.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// A figure of the report.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// `result.json`
    #[error("result.json: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes the folder, which is made if need be: `estimate.tum`, `groundtruth.tum` (with a truth),
/// `frames.csv`, the figures, `report.html` and, last, `result.json`. Each file is whole or the one that
/// was there before. Returns what `result.json` holds.
pub fn write(dir: &Path, drive: Drive) -> Result<ResultFile, WriteError> {
    fs::create_dir_all(dir).map_err(|e| WriteError::Io(dir.to_owned(), e))?;
    let Drive { frames, evaluation, .. } = drive;
    let estimates = frames.iter().filter_map(|frame| Some((frame.stamp, frame.estimate?.map_t_base)));
    whole(&dir.join("estimate.tum"), |out| write_poses(out, estimates))?;
    if evaluation.summary.with_truth > 0 {
        let truths = frames.iter().zip(&evaluation.frames);
        let truths = truths.filter_map(|(frame, beside)| Some((frame.stamp, beside.truth?)));
        whole(&dir.join("groundtruth.tum"), |out| write_poses(out, truths))?;
    }
    whole(&dir.join("frames.csv"), |out| write_frames(out, frames, evaluation))?;
    let result = drive.result();
    let report = report::Report::new(&result, frames, evaluation);
    for (name, file) in report.figures()? {
        whole(&dir.join(name), |out| out.write_all(&file))?;
    }
    let page = report.html()?;
    whole(&dir.join("report.html"), |out| out.write_all(page.as_bytes()))?;
    let json = serde_json::to_string_pretty(&result)?;
    whole(&dir.join("result.json"), |out| writeln!(out, "{json}"))?;
    Ok(result)
}

/// Writes a file beside its place and moves it there.
fn whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
) -> Result<(), WriteError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    let written = || {
        let mut out = BufWriter::new(fs::File::create(&partial)?);
        write(&mut out)?;
        out.into_inner()?.sync_all()?;
        fs::rename(&partial, path)
    };
    written().map_err(|e| WriteError::Io(path.to_owned(), e))
}

fn write_poses(out: &mut impl Write, poses: impl Iterator<Item = (Stamp, Rigid)>) -> io::Result<()> {
    writeln!(out, "# timestamp tx ty tz qx qy qz qw")?;
    let mut last = None;
    for (stamp, pose) in poses {
        // Two inputs may be measured at once: a trajectory has one pose at a time, the first to arrive.
        if last != Some(stamp) {
            write_tum_line(&mut *out, stamp, &pose)?;
        }
        last = Some(stamp);
    }
    Ok(())
}

/// x y z, quaternion x y z w
fn numbers(pose: &Rigid) -> [f64; 7] {
    let (t, q) = (pose.translation.vector, pose.rotation.coords);
    [t.x, t.y, t.z, q.x, q.y, q.z, q.w]
}

/// The columns of `frames.csv` before the times of the stages, which are `NAME_us`.
const COLUMNS: [&str; 22] = [
    "stamp",
    "arrived",
    "status",
    "input",
    "re_deg",
    "te_m",
    "nees",
    "direction_deg",
    "x",
    "y",
    "z",
    "qx",
    "qy",
    "qz",
    "qw",
    "correspondences",
    "inliers",
    "log10_false_alarms",
    "margin",
    "mode",
    "start",
    "answered",
];

fn write_frames(out: &mut impl Write, frames: &[FrameRecord], evaluation: &Evaluation) -> io::Result<()> {
    let stages = ["parse"].iter().chain(&Stages::NAMES).chain(&["total"]);
    let stages: Vec<String> = stages.map(|stage| format!("{stage}_us")).collect();
    writeln!(out, "{},{}", COLUMNS.join(","), stages.join(","))?;
    for (frame, beside) in frames.iter().zip(&evaluation.frames) {
        let (stamp, arrived) = (seconds(frame.stamp), seconds(frame.arrived));
        write!(out, "{stamp},{arrived},{},{}", frame.status, frame.input)?;
        let (error, relative) = (beside.error, beside.relative.and_then(|truth| truth.error));
        let errors = [
            error.map(|e| e.re_deg).or(relative.map(|e| e.re_deg)),
            error.map(|e| e.te_m),
            error.and_then(|e| e.nees),
            relative.and_then(|e| e.direction_deg),
        ];
        let pose = frame.estimate.map(|estimate| estimate.map_t_base).or(frame.relative);
        let pose = pose.as_ref().map(numbers);
        let pose = (0..7).map(|i| pose.and_then(|pose| pose.get(i).copied()));
        // What is not there is an empty field.
        for value in errors.into_iter().chain(pose) {
            match value {
                Some(value) => write!(out, ",{value:.9}")?,
                None => write!(out, ",")?,
            }
        }
        write!(out, ",{},{}", frame.correspondences, frame.inliers)?;
        write!(out, ",{:.3},{:.6}", frame.log10_false_alarms, frame.margin)?;
        write!(out, ",{}", frame.mode.map_or("", Mode::name))?;
        write!(out, ",{},{}", frame.start, seconds(frame.answered))?;
        write!(out, ",{:.1}", frame.parse_us)?;
        for name in Stages::NAMES {
            match frame.stages.get(name) {
                Some(us) => write!(out, ",{us:.1}")?,
                None => write!(out, ",")?,
            }
        }
        writeln!(out, ",{:.1}", frame.total_us)?;
    }
    Ok(())
}

/// With all nanoseconds.
fn seconds(stamp: Stamp) -> String {
    let sign = if stamp.0 < 0 { "-" } else { "" };
    let nanos = stamp.0.unsigned_abs();
    format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
