//! How good a drive was: errors, recall, trajectory errors, covariance, latency, in numbers.

mod consistency;
mod errors;
mod inputs;
mod kidnaps;
mod latency;
mod relative;
mod starts;
mod trajectory;

pub use consistency::{Consistency, Coverage, EXPECTED};
pub use errors::{FirstFix, Limit, PoseError, Recall, Wrong};
pub use inputs::InputSummary;
pub use kidnaps::Kidnap;
pub use latency::{ModeLatency, StageLatency};
pub use relative::{Angle, AngleRecall, AngleWrong, RelativeOptions, RelativePoseError, RelativeSummary};
pub use relative::{RelativeTruth, Still};
pub use starts::{Start, Starts};
pub use trajectory::{AbsoluteError, RelativeError, Statistics, Step};

use super::FrameRecord;
use crate::geometry::Rigid;
use crate::io::trajectory::Trajectory;
use crate::latency::Percentiles;
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is asked of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Limits for which the recall is told.
    pub recall: Vec<Limit>,
    /// An accepted pose beyond this limit is wrong.
    pub wrong: Limit,
    /// An unknown start has succeeded if its first accepted pose is right and comes within so many seconds.
    #[serde(default = "within_s")]
    pub within_s: f64,
    /// The truth between two of its poses is known if they are at most so many seconds apart.
    pub max_gap_s: f64,
    /// Whether the truth is laid onto the estimate first.
    pub align: Align,
    /// From which pose to which the relative error is measured.
    pub rpe: Step,
    /// Of poses relative to another view of the camera.
    #[serde(default)]
    pub relative: RelativeOptions,
}

fn within_s() -> f64 {
    2.0
}

impl Default for Options {
    fn default() -> Self {
        let pairs = [(5.0, 2.0), (5.0, 0.6), (2.0, 0.2), (1.0, 0.1)];
        Self {
            recall: pairs.map(|(re_deg, te_m)| Limit { re_deg, te_m }).to_vec(),
            wrong: Limit { re_deg: 5.0, te_m: 2.0 },
            within_s: within_s(),
            max_gap_s: 0.5,
            align: Align::None,
            rpe: Step::Frames(1),
            relative: RelativeOptions::default(),
        }
    }
}

/// How the frame of the truth is made that of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// It is that of the map.
    None,
    /// By the rigid transform with the least squared distance between positions.
    Se3,
}

/// What is known to be true.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Truths<'a> {
    /// Poses of the base in the map.
    pub absolute: Option<&'a Trajectory>,
    /// Poses of the camera in its reference view, at the very stamps of the messages.
    pub relative: Option<&'a Trajectory>,
}

/// All that can be said of a drive in some numbers: what `result.json` holds of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Messages that were answered, of all inputs.
    pub frames: usize,
    /// Of these, with a pose that was accepted, in the map or relative.
    pub accepted: usize,
    /// Messages that ask for a pose in the map and have a truth at their stamp.
    pub with_truth: usize,
    /// Seconds from the first message to the last.
    pub duration_s: f64,
    /// How many frames had which status; all names.
    pub statuses: BTreeMap<String, u64>,
    /// Recall at each limit of the options; empty without truth.
    pub recall: Vec<Recall>,
    /// Poses that were accepted although they are wrong.
    pub wrong: Option<Wrong>,
    /// When the first pose came.
    pub first_fix: FirstFix,
    /// The unknown starts. None: the pose was never forgotten.
    #[serde(default)]
    pub starts: Option<Starts>,
    /// Where the robot was carried away, as the truth shows it.
    #[serde(default)]
    pub kidnaps: Vec<Kidnap>,
    /// Absolute trajectory error.
    pub ate: Option<AbsoluteError>,
    /// Relative pose error.
    pub rpe: Option<RelativeError>,
    /// Whether the covariances say how large the errors are.
    pub consistency: Option<Consistency>,
    /// Time of each stage: `parse`, those of the registration and of the estimation, `total`.
    pub latency: Vec<StageLatency>,
    /// Time of an answer by the mode of the localizer; empty where there are no modes.
    #[serde(default)]
    pub modes: Vec<ModeLatency>,
    /// The same of each input that was driven.
    #[serde(default)]
    pub inputs: Vec<InputSummary>,
    /// Of poses relative to another view of the camera. None: no message asked for one.
    #[serde(default)]
    pub relative: Option<RelativeSummary>,
}

impl Summary {
    /// Frames with an accepted pose among all. None: there are no frames.
    pub fn accepted_share(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.accepted as f64 / self.frames as f64)
    }

    /// Time from the message to the answer, milliseconds.
    pub fn total_ms(&self) -> Option<Percentiles> {
        self.latency.iter().find(|stage| stage.stage == latency::TOTAL).map(|stage| stage.ms)
    }
}

/// A drive measured against the truth.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The numbers.
    pub summary: Summary,
    /// For each frame, what is known of its pose.
    pub frames: Vec<FrameTruth>,
    /// The transform that the options asked for, applied to the truth: pose of its frame in the map.
    pub map_t_truth: Option<Rigid>,
}

/// A frame beside the truth.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FrameTruth {
    /// Where the base was in the map.
    pub truth: Option<Rigid>,
    /// How far the accepted pose is from that.
    pub error: Option<PoseError>,
    /// The same of a relative pose.
    pub relative: Option<RelativeTruth>,
}

impl Evaluation {
    /// Measures the answers to all messages of a drive, in the order of their arrival.
    pub fn new(frames: &[FrameRecord], truths: Truths, options: &Options) -> Self {
        let in_map = |frame: &FrameRecord| {
            let truth = truths.absolute.filter(|_| frame.input.is_absolute())?;
            truth.at(frame.stamp, options.max_gap_s).ok()
        };
        let mut poses: Vec<Option<Rigid>> = frames.iter().map(in_map).collect();
        let map_t_truth = match options.align {
            Align::None => None,
            Align::Se3 => trajectory::alignment(&pairs(frames, &poses)),
        };
        if let Some(map_t_truth) = map_t_truth {
            poses.iter_mut().flatten().for_each(|truth| *truth = map_t_truth * *truth);
        }
        let pairs = pairs(frames, &poses);
        let beside = |(frame, truth): (&FrameRecord, Option<Rigid>)| FrameTruth {
            truth,
            error: frame.estimate.zip(truth).map(|(estimate, truth)| PoseError::new(&estimate, &truth)),
            relative: RelativeTruth::new(frame, &truths, &options.relative),
        };
        let beside: Vec<_> = frames.iter().zip(poses).map(beside).collect();
        let errors: Vec<PoseError> = beside.iter().filter_map(|frame| frame.error).collect();
        let with_truth = beside.iter().filter(|frame| frame.truth.is_some()).count();
        let all: Vec<&FrameRecord> = frames.iter().collect();
        let summary = Summary {
            frames: frames.len(),
            accepted: frames.iter().filter(|frame| frame.is_accepted()).count(),
            with_truth,
            duration_s: match frames {
                [first, .., last] => last.arrived.seconds_since(first.arrived),
                _ => 0.0,
            },
            statuses: statuses(&all),
            recall: options
                .recall
                .iter()
                .filter_map(|&limit| Recall::new(&errors, with_truth, limit))
                .collect(),
            wrong: Wrong::new(&errors, options.wrong),
            first_fix: FirstFix::new(frames, &beside, options.wrong),
            starts: Starts::new(frames, &beside, options.wrong, options.within_s),
            kidnaps: Kidnap::all(frames, &beside, truths.absolute, options.wrong),
            ate: AbsoluteError::new(&errors),
            rpe: RelativeError::new(&pairs, options.rpe),
            consistency: Consistency::new(pairs.iter()),
            latency: latency::stages(&all),
            modes: ModeLatency::all(frames),
            inputs: InputSummary::all(frames, &beside, &pairs, options),
            relative: RelativeSummary::new(frames, &beside, &options.relative),
        };
        Self { summary, frames: beside, map_t_truth }
    }

    /// The recall at any limit. None: no frame has a truth.
    pub fn recall(&self, limit: Limit) -> Option<Recall> {
        let errors: Vec<_> = self.errors().collect();
        Recall::new(&errors, self.summary.with_truth, limit)
    }

    /// The recall of relative poses at any limit. None: no such message has a truth.
    pub fn relative_recall(&self, limit: Angle) -> Option<AngleRecall> {
        AngleRecall::new(self.frames.iter().filter_map(|frame| frame.relative), limit)
    }

    /// The errors of the accepted poses that have a truth.
    pub fn errors(&self) -> impl Iterator<Item = PoseError> + '_ {
        self.frames.iter().filter_map(|frame| frame.error)
    }
}

/// An accepted pose with the truth.
struct Pair<'a> {
    frame: &'a FrameRecord,
    estimate: super::Estimate,
    truth: Rigid,
}

fn pairs<'a>(frames: &'a [FrameRecord], truths: &[Option<Rigid>]) -> Vec<Pair<'a>> {
    let pair = |(frame, truth): (&'a FrameRecord, &Option<Rigid>)| {
        Some(Pair { frame, estimate: frame.estimate?, truth: (*truth)? })
    };
    frames.iter().zip(truths).filter_map(pair).collect()
}

fn statuses(frames: &[&FrameRecord]) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<_, _> = Status::ALL.iter().map(|status| (status.name().to_owned(), 0)).collect();
    for frame in frames {
        *counts.entry(frame.status.name().to_owned()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests;
