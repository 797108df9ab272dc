//! Errors of single poses, and what follows from counting them.

use super::{consistency, FrameTruth};
use crate::geometry::{Rigid, Vector};
use crate::replay::{Estimate, FrameRecord};
use nalgebra::UnitQuaternion;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How far a pose is from the truth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoseError {
    /// Angle of the rotation between them, degrees.
    pub re_deg: f64,
    /// Distance between them, m.
    pub te_m: f64,
    /// Squared error in units of the covariance (NEES); 6 is to be expected. None: the covariance
    /// is not positive definite.
    pub nees: Option<f64>,
}

impl PoseError {
    /// Of an estimate.
    pub fn new(estimate: &Estimate, truth: &Rigid) -> Self {
        let pose = &estimate.map_t_base;
        Self {
            re_deg: rotation_vector(&(truth.rotation.inverse() * pose.rotation)).norm().to_degrees(),
            te_m: (pose.translation.vector - truth.translation.vector).norm(),
            nees: consistency::nees(estimate, truth),
        }
    }

    /// Within a limit, both bounds included.
    pub fn is_within(&self, limit: Limit) -> bool {
        self.re_deg <= limit.re_deg && self.te_m <= limit.te_m
    }
}

/// Axis times angle (rad), exact for the smallest angles too, where an arc cosine is not.
pub(super) fn rotation_vector(rotation: &UnitQuaternion<f64>) -> Vector {
    let sign = if rotation.w < 0.0 { -1.0 } else { 1.0 };
    let imaginary = rotation.imag() * sign;
    let sine = imaginary.norm();
    if sine == 0.0 {
        return Vector::zeros();
    }
    imaginary * (2.0 * sine.atan2(rotation.w * sign) / sine)
}

/// The largest errors of a pose that counts as right.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Rotation, degrees.
    pub re_deg: f64,
    /// Translation, m.
    pub te_m: f64,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} deg, {} m", self.re_deg, self.te_m)
    }
}

/// `5,2`: 5 degrees, 2 metres.
impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = || {
            let (re_deg, te_m) = text.split_once(',')?;
            Some(Self { re_deg: positive(re_deg)?, te_m: positive(te_m)? })
        };
        limit().ok_or_else(|| format!("'{text}': degrees and metres needed, such as 5,2"))
    }
}

/// A finite number above zero.
pub(super) fn positive(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0)
}

/// How many of the frames have an accepted pose within a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recall {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// Frames with such a pose.
    pub right: usize,
    /// The share of all frames that have a truth, with or without a pose; 0 .. 1.
    pub share: f64,
}

impl Recall {
    pub(super) fn new(errors: &[PoseError], with_truth: usize, limit: Limit) -> Option<Self> {
        let right = errors.iter().filter(|error| error.is_within(limit)).count();
        (with_truth > 0).then(|| Self { limit, right, share: right as f64 / with_truth as f64 })
    }
}

/// Poses that were accepted and are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Wrong {
    /// Beyond this, a pose is wrong.
    #[serde(flatten)]
    pub limit: Limit,
    /// So many are.
    pub accepted: usize,
    /// The share of the accepted poses that have a truth; 0 .. 1.
    pub share: f64,
}

impl Wrong {
    pub(super) fn new(errors: &[PoseError], limit: Limit) -> Option<Self> {
        let accepted = errors.iter().filter(|error| !error.is_within(limit)).count();
        (!errors.is_empty()).then(|| Self { limit, accepted, share: accepted as f64 / errors.len() as f64 })
    }
}

/// Seconds from the first message to that which gave the first pose.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstFix {
    /// The first pose that was accepted.
    pub accepted_s: Option<f64>,
    /// The first that was accepted and is not wrong.
    pub right_s: Option<f64>,
}

impl FirstFix {
    pub(super) fn new(frames: &[FrameRecord], beside: &[FrameTruth], wrong: Limit) -> Self {
        let seconds = |frame: &FrameRecord| {
            frames.first().map_or(0.0, |first| frame.arrived.seconds_since(first.arrived))
        };
        let is_right = |truth: &FrameTruth| truth.error.is_some_and(|error| error.is_within(wrong));
        let right = frames.iter().zip(beside).find(|(_, truth)| is_right(truth));
        Self {
            accepted_s: frames.iter().find(|frame| frame.estimate.is_some()).map(seconds),
            right_s: right.map(|(frame, _)| seconds(frame)),
        }
    }
}
