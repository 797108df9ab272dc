//! Absolute and relative errors of a trajectory, defined as `evo` defines them.

use super::errors::{positive, rotation_vector};
use super::{Pair, PoseError};
use crate::geometry::{Moments, Rigid, Vector};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A set of errors in a few numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Root of the mean square.
    pub rmse: f64,
    /// Mean.
    pub mean: f64,
    /// Median; of two in the middle, their mean.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Statistics {
    /// Of some errors. None: there are none.
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = errors.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let middle = |i: usize| sorted.get(i).copied().unwrap_or(max);
        Some(Self {
            rmse: (sorted.iter().map(|error| error * error).sum::<f64>() / n as f64).sqrt(),
            mean: sorted.iter().sum::<f64>() / n as f64,
            median: 0.5 * (middle((n - 1) / 2) + middle(n / 2)),
            min,
            max,
        })
    }
}

/// The absolute error: how far each pose is from the truth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AbsoluteError {
    /// Poses compared.
    pub pairs: usize,
    /// Distances, m.
    pub translation_m: Statistics,
    /// Angles, degrees.
    pub rotation_deg: Statistics,
}

impl AbsoluteError {
    pub(super) fn new(errors: &[PoseError]) -> Option<Self> {
        Some(Self {
            pairs: errors.len(),
            translation_m: Statistics::of(errors.iter().map(|error| error.te_m))?,
            rotation_deg: Statistics::of(errors.iter().map(|error| error.re_deg))?,
        })
    }
}

/// From which pose to which a relative error is measured. One step begins where the one before
/// ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// So many poses further.
    Frames(usize),
    /// To the first pose that was measured at least so many seconds later.
    Seconds(f64),
    /// To the first pose before which the estimate went at least so many metres.
    Metres(f64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Frames(1) => write!(f, "1 frame"),
            Step::Frames(n) => write!(f, "{n} frames"),
            Step::Seconds(s) => write!(f, "{s} s"),
            Step::Metres(m) => write!(f, "{m} m"),
        }
    }
}

/// `10` frames, `5s`, `20m`.
impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let step = if let Some(seconds) = text.strip_suffix('s') {
            positive(seconds).map(Step::Seconds)
        } else if let Some(metres) = text.strip_suffix('m') {
            positive(metres).map(Step::Metres)
        } else {
            text.parse().ok().filter(|n| *n > 0).map(Step::Frames)
        };
        step.ok_or_else(|| {
            format!("'{text}': a number of frames, seconds or metres needed, such as 10, 5s or 20m")
        })
    }
}

/// The relative error: how far motions are from the true ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RelativeError {
    /// From where to where.
    pub step: Step,
    /// Motions compared.
    pub pairs: usize,
    /// Distances, m.
    pub translation_m: Statistics,
    /// Angles, degrees.
    pub rotation_deg: Statistics,
}

impl RelativeError {
    pub(super) fn new(pairs: &[Pair], step: Step) -> Option<Self> {
        let ends = ends(pairs, step);
        let motions = ends.iter().zip(ends.iter().skip(1));
        let errors: Vec<Rigid> = motions
            .map(|(a, b)| {
                let estimate = a.estimate.map_t_base.inv_mul(&b.estimate.map_t_base);
                a.truth.inv_mul(&b.truth).inv_mul(&estimate)
            })
            .collect();
        Some(Self {
            step,
            pairs: errors.len(),
            translation_m: Statistics::of(errors.iter().map(|error| error.translation.vector.norm()))?,
            rotation_deg: Statistics::of(
                errors.iter().map(|error| rotation_vector(&error.rotation).norm().to_degrees()),
            )?,
        })
    }
}

/// Where the steps begin and end.
fn ends<'a, 'b>(pairs: &'a [Pair<'b>], step: Step) -> Vec<&'a Pair<'b>> {
    let Some(mut begin) = pairs.first() else { return Vec::new() };
    let mut ends = vec![begin];
    let (mut frames, mut metres) = (0, 0.0);
    for (before, pair) in pairs.iter().zip(pairs.iter().skip(1)) {
        frames += 1;
        metres += (position(&pair.estimate.map_t_base) - position(&before.estimate.map_t_base)).norm();
        let is_end = match step {
            Step::Frames(n) => frames >= n,
            Step::Seconds(s) => pair.frame.stamp.seconds_since(begin.frame.stamp) >= s,
            Step::Metres(m) => metres >= m,
        };
        if is_end {
            ends.push(pair);
            begin = pair;
            (frames, metres) = (0, 0.0);
        }
    }
    ends
}

/// The rigid transform that brings the truth to the estimates with the least squared distance
/// between positions (Umeyama without scale).
pub(super) fn alignment(pairs: &[Pair]) -> Option<Rigid> {
    // Sums near the origin keep their digits.
    let first = pairs.first()?;
    let (from, to) = (position(&first.truth), position(&first.estimate.map_t_base));
    let mut moments = Moments::default();
    for pair in pairs {
        moments.add(&(position(&pair.truth) - from), &(position(&pair.estimate.map_t_base) - to), 1.0);
    }
    let near = moments.pose()?.to_rigid();
    let (before, after) = (nalgebra::Translation3::from(-from), nalgebra::Translation3::from(to));
    Some(after * near * before)
}

fn position(pose: &Rigid) -> Vector {
    pose.translation.vector
}
