//! Robots that were carried away: how long it takes until that is noticed, and until the pose is right again.

use super::{FrameTruth, Limit};
use crate::io::trajectory::Trajectory;
use crate::messages::Stamp;
use crate::replay::FrameRecord;
use serde::{Deserialize, Serialize};

/// A step of the truth that is longer than this, and than [`SPEED`] times its neighbours, is no motion, m.
const JUMP: f64 = 1.0;
/// See [`JUMP`].
const SPEED: f64 = 3.0;

/// The robot was carried to another place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kidnap {
    /// Seconds from the first message of the drive to the first true pose at the new place.
    pub at_s: f64,
    /// How far away it is, m.
    pub far_m: f64,
    /// Seconds until an answer that claims no wrong pose. None: there was none.
    pub noticed_s: Option<f64>,
    /// Wrong poses that were accepted until the next kidnap or the end.
    pub wrong: usize,
    /// Seconds until the first accepted pose that is right. None: there was none.
    pub recovered_s: Option<f64>,
}

impl Kidnap {
    /// All of them, as the truth shows them. The time until something is the time until its answer.
    pub(super) fn all(
        frames: &[FrameRecord],
        beside: &[FrameTruth],
        truth: Option<&Trajectory>,
        wrong: Limit,
    ) -> Vec<Self> {
        let (Some(truth), Some(first)) = (truth, frames.first()) else { return Vec::new() };
        let jumps = jumps(truth);
        let ends = jumps.iter().skip(1).map(|(at, _)| *at).chain([Stamp(i64::MAX)]);
        let of = |(&(at, far_m), end): (&(Stamp, f64), Stamp)| {
            let after = || {
                let all = frames.iter().zip(beside);
                all.filter(move |(frame, _)| (at..end).contains(&frame.stamp) && frame.input.is_absolute())
            };
            let is_right = |beside: &FrameTruth| beside.error.map(|error| error.is_within(wrong));
            let seconds = |(frame, _): (&FrameRecord, _)| frame.answered.seconds_since(at);
            after().next()?;
            Some(Self {
                at_s: at.seconds_since(first.arrived),
                far_m,
                noticed_s: after().find(|(_, beside)| is_right(beside) != Some(false)).map(seconds),
                wrong: after().filter(|(_, beside)| is_right(beside) == Some(false)).count(),
                recovered_s: after().find(|(_, beside)| is_right(beside) == Some(true)).map(seconds),
            })
        };
        jumps.iter().zip(ends).filter_map(of).collect()
    }
}

/// When the truth jumps, and how far, m.
fn jumps(truth: &Trajectory) -> Vec<(Stamp, f64)> {
    let (stamps, poses) = (truth.stamps(), truth.poses());
    let steps: Vec<(Stamp, f64, f64)> = poses
        .windows(2)
        .zip(stamps.windows(2))
        .filter_map(|pair| match pair {
            ([a, b], [from, to]) => {
                let far = (b.translation.vector - a.translation.vector).norm();
                Some((*to, far, to.seconds_since(*from).max(1e-9)))
            }
            _ => None,
        })
        .collect();
    let speed = |k: Option<usize>| k.and_then(|k| steps.get(k)).map_or(0.0, |(_, far, dt)| far / dt);
    let is_jump = |(k, (_, far, dt)): &(usize, &(Stamp, f64, f64))| {
        let usual = speed(k.checked_sub(1)).max(speed(Some(k + 1)));
        *far > JUMP && *far > SPEED * usual * dt
    };
    steps.iter().enumerate().filter(is_jump).map(|(_, (to, far, _))| (*to, *far)).collect()
}
