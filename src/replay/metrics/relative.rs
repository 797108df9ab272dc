//! Poses relative to another view of the camera, whose translation is known up to its length.

use super::errors::{positive, rotation_vector};
use super::{FrameTruth, Truths};
use crate::geometry::{Rigid, Vector};
use crate::latency::Percentiles;
use crate::replay::FrameRecord;
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What is asked of the evaluation of relative poses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelativeOptions {
    /// Limits for which the recall is told.
    pub recall: Vec<Angle>,
    /// An accepted relative pose beyond this limit is wrong.
    pub wrong: Angle,
    /// A camera that is nearer to its reference view, m, has not moved: there the direction of the translation has
    /// no truth.
    pub min_baseline_m: f64,
}

impl Default for RelativeOptions {
    fn default() -> Self {
        let recall = [10.0, 5.0, 2.0, 1.0].map(|deg| Angle { deg }).to_vec();
        Self { recall, wrong: Angle { deg: 10.0 }, min_baseline_m: 0.01 }
    }
}

/// The largest error of a relative pose that counts as right: of its rotation and of the direction of its
/// translation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Angle {
    /// Degrees.
    pub deg: f64,
}

impl fmt::Display for Angle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} deg", self.deg)
    }
}

/// `5`: 5 degrees.
impl FromStr for Angle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let deg = positive(text).ok_or_else(|| format!("'{text}': degrees needed, such as 5"))?;
        Ok(Self { deg })
    }
}

/// How far a relative pose is from the truth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelativePoseError {
    /// Angle of the rotation between them, degrees.
    pub re_deg: f64,
    /// Angle between the directions of translation, degrees. None: the camera has not moved.
    pub direction_deg: Option<f64>,
}

impl RelativePoseError {
    fn new(estimate: &Rigid, truth: &Rigid, has_moved: bool) -> Self {
        let turn = rotation_vector(&(truth.rotation.inverse() * estimate.rotation));
        let direction = angle(&estimate.translation.vector, &truth.translation.vector).to_degrees();
        Self { re_deg: turn.norm().to_degrees(), direction_deg: has_moved.then_some(direction) }
    }

    /// The larger of both angles. None: the camera has not moved.
    fn larger(&self) -> Option<f64> {
        self.direction_deg.map(|direction| direction.max(self.re_deg))
    }
}

/// Between two vectors, rad; exact for small angles too.
fn angle(a: &Vector, b: &Vector) -> f64 {
    libm::atan2(a.cross(b).norm(), a.dot(b))
}

/// A message beside the true relative pose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelativeTruth {
    /// The camera was far enough from its reference view.
    pub has_moved: bool,
    /// How far the accepted relative pose is from the truth.
    pub error: Option<RelativePoseError>,
}

impl RelativeTruth {
    /// Of a message with relative correspondences whose truth is known at its very stamp: between two stamps the
    /// reference view may be another one.
    pub(super) fn new(frame: &FrameRecord, truths: &Truths, options: &RelativeOptions) -> Option<Self> {
        let truths = truths.relative.filter(|_| !frame.input.is_absolute())?;
        let truth = truths.at(frame.stamp, 0.0).ok()?;
        let has_moved = truth.translation.vector.norm() >= options.min_baseline_m;
        let error = |estimate: &Rigid| RelativePoseError::new(estimate, &truth, has_moved);
        Some(Self { has_moved, error: frame.relative.as_ref().map(error) })
    }
}

/// What can be said of the relative poses of a drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelativeSummary {
    /// Messages that were answered.
    pub frames: usize,
    /// Of these, with a relative pose that was accepted.
    pub accepted: usize,
    /// Of these, with a truth at their stamp, and of a camera that has moved.
    pub with_truth: usize,
    /// Messages of a camera that has not moved: no direction that is accepted there is right or wrong.
    pub still: Still,
    /// Angles between accepted and true rotations, degrees, whether the camera has moved or not.
    pub rotation_deg: Option<Percentiles>,
    /// Angles between accepted and true directions of translation, degrees.
    pub direction_deg: Option<Percentiles>,
    /// Recall at each limit of the options; empty without truth.
    pub recall: Vec<AngleRecall>,
    /// Relative poses that were accepted although they are wrong.
    pub wrong: Option<AngleWrong>,
}

/// Messages of a camera that has not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Still {
    /// All of them.
    pub frames: usize,
    /// Refused as degenerate, as they should be.
    pub degenerate: usize,
    /// Accepted.
    pub accepted: usize,
}

/// How many of the messages have an accepted relative pose within a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AngleRecall {
    /// The limit.
    #[serde(flatten)]
    pub limit: Angle,
    /// Messages with such a pose.
    pub right: usize,
    /// The share of all messages of a camera that has moved and whose truth is known; 0 .. 1.
    pub share: f64,
}

/// Relative poses that were accepted and are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AngleWrong {
    /// Beyond this, a pose is wrong.
    #[serde(flatten)]
    pub limit: Angle,
    /// So many are; where the camera has not moved, by their rotation alone.
    pub accepted: usize,
    /// The share of the accepted poses that have a truth; 0 .. 1.
    pub share: f64,
}

impl AngleRecall {
    /// Of messages with relative correspondences and their truth.
    pub(super) fn new(beside: impl Iterator<Item = RelativeTruth>, limit: Angle) -> Option<Self> {
        let (mut right, mut with_truth) = (0, 0);
        for truth in beside.filter(|truth| truth.has_moved) {
            with_truth += 1;
            let larger = truth.error.and_then(|error| error.larger());
            right += usize::from(larger.is_some_and(|angle| angle <= limit.deg));
        }
        (with_truth > 0).then(|| Self { limit, right, share: right as f64 / with_truth as f64 })
    }
}

impl AngleWrong {
    fn new(errors: &[RelativePoseError], limit: Angle) -> Option<Self> {
        let is_wrong = |error: &&RelativePoseError| error.larger().unwrap_or(error.re_deg) > limit.deg;
        let accepted = errors.iter().filter(is_wrong).count();
        (!errors.is_empty()).then(|| Self { limit, accepted, share: accepted as f64 / errors.len() as f64 })
    }
}

impl Still {
    fn new<'a>(messages: impl Iterator<Item = (&'a FrameRecord, RelativeTruth)>) -> Self {
        let mut still = Self::default();
        for (frame, truth) in messages.filter(|(_, truth)| !truth.has_moved) {
            still.frames += 1;
            still.degenerate += usize::from(frame.status == Status::Degenerate);
            still.accepted += usize::from(truth.error.is_some());
        }
        still
    }
}

impl RelativeSummary {
    /// Of the messages with relative correspondences. None: there are none.
    pub(super) fn new(
        frames: &[FrameRecord],
        beside: &[FrameTruth],
        options: &RelativeOptions,
    ) -> Option<Self> {
        let own = || frames.iter().zip(beside).filter(|(frame, _)| !frame.input.is_absolute());
        let truths = || own().filter_map(|(_, beside)| beside.relative);
        let errors: Vec<RelativePoseError> = truths().filter_map(|truth| truth.error).collect();
        own().next()?;
        Some(Self {
            frames: own().count(),
            accepted: own().filter(|(frame, _)| frame.relative.is_some()).count(),
            with_truth: truths().filter(|truth| truth.has_moved).count(),
            still: Still::new(own().filter_map(|(frame, beside)| Some((frame, beside.relative?)))),
            rotation_deg: percentiles(errors.iter().map(|error| error.re_deg)),
            direction_deg: percentiles(errors.iter().filter_map(|error| error.direction_deg)),
            recall: options.recall.iter().filter_map(|&limit| AngleRecall::new(truths(), limit)).collect(),
            wrong: AngleWrong::new(&errors, options.wrong),
        })
    }

    /// Messages with an accepted relative pose among those of a camera that is not known to stand. None: there are
    /// none.
    pub fn accepted_share(&self) -> Option<f64> {
        let moving = self.frames - self.still.frames;
        (moving > 0).then(|| (self.accepted - self.still.accepted) as f64 / moving as f64)
    }
}

fn percentiles(values: impl Iterator<Item = f64>) -> Option<Percentiles> {
    let mut values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| Percentiles::of(&mut values))
}
