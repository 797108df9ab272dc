//! Unknown starts: how long it takes until the localizer says where it is, and whether that is right.

use super::{FrameTruth, Limit};
use crate::latency::Percentiles;
use crate::replay::FrameRecord;
use serde::{Deserialize, Serialize};

/// What became of the unknown starts of a drive: its begin, and each time at which the pose was forgotten.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Starts {
    /// So many have a truth where it counts: at their first accepted pose, or anywhere if there is none.
    pub count: usize,
    /// Of these, with a first accepted pose that is right and came in time.
    pub localized: usize,
    /// The share of them; 0 .. 1.
    pub share: f64,
    /// In time: so many seconds after the first message, at most.
    pub within_s: f64,
    /// With a wrong accepted pose, at any time.
    pub wrong: usize,
    /// Beyond this, a pose is wrong.
    pub limit: Limit,
    /// Without an accepted pose.
    pub never: usize,
    /// Seconds from the first message of a start to its first accepted pose, of those that have one.
    pub first_s: Option<Percentiles>,
    /// Each of them, in their order.
    pub each: Vec<Start>,
}

/// An unknown start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Seconds from the first message of the drive to its first one.
    pub at_s: f64,
    /// Messages that were answered.
    pub frames: usize,
    /// Seconds from its first message to the answer with the first accepted pose.
    pub accepted_s: Option<f64>,
    /// Error of that pose: rotation, degrees. None: no pose or no truth.
    pub re_deg: Option<f64>,
    /// Error of that pose: distance, m.
    pub te_m: Option<f64>,
    /// That pose is right. None: no pose or no truth.
    pub right: Option<bool>,
    /// Accepted poses that are wrong.
    pub wrong: usize,
    /// The status that most of its answers without a pose had.
    pub refused_as: Option<String>,
}

impl Start {
    fn new(
        first: &FrameRecord,
        frames: &[FrameRecord],
        beside: &[FrameTruth],
        wrong: Limit,
    ) -> Option<(Self, bool)> {
        let begin = frames.first()?;
        let accepted = frames.iter().zip(beside).find(|(frame, _)| frame.estimate.is_some());
        let error = accepted.and_then(|(_, beside)| beside.error);
        let has_truth = match accepted {
            Some(_) => error.is_some(),
            None => beside.iter().any(|beside| beside.truth.is_some()),
        };
        let errors = beside.iter().filter_map(|beside| beside.error);
        let mut statuses: Vec<(&str, usize)> = Vec::new();
        for frame in frames.iter().filter(|frame| frame.estimate.is_none()) {
            let name = frame.status.name();
            match statuses.iter_mut().find(|(known, _)| *known == name) {
                Some((_, n)) => *n += 1,
                None => statuses.push((name, 1)),
            }
        }
        // Of equally many the first.
        let most = statuses.iter().rev().max_by_key(|(_, n)| *n);
        let start = Self {
            at_s: begin.arrived.seconds_since(first.arrived),
            frames: frames.len(),
            accepted_s: accepted.map(|(frame, _)| frame.answered.seconds_since(begin.arrived)),
            re_deg: error.map(|error| error.re_deg),
            te_m: error.map(|error| error.te_m),
            right: error.map(|error| error.is_within(wrong)),
            wrong: errors.filter(|error| !error.is_within(wrong)).count(),
            refused_as: most.map(|(name, _)| (*name).to_owned()),
        };
        Some((start, has_truth))
    }
}

impl Starts {
    /// None: the pose was never forgotten, or no start has a truth.
    pub(super) fn new(
        frames: &[FrameRecord],
        beside: &[FrameTruth],
        wrong: Limit,
        within_s: f64,
    ) -> Option<Self> {
        let first = frames.first()?;
        frames.iter().find(|frame| frame.start > 0)?;
        let (mut each, mut rest, mut rest_beside) = (Vec::new(), frames, beside);
        while let Some(start) = rest.first().map(|frame| frame.start) {
            let n = rest.partition_point(|frame| frame.start <= start).max(1);
            let (own, after) = rest.split_at(n);
            let (own_beside, after_beside) = rest_beside.split_at(n.min(rest_beside.len()));
            each.extend(Start::new(first, own, own_beside, wrong));
            (rest, rest_beside) = (after, after_beside);
        }
        let count = each.iter().filter(|(_, has_truth)| *has_truth).count();
        let each: Vec<Start> = each.into_iter().map(|(start, _)| start).collect();
        let in_time = |start: &&Start| start.accepted_s.is_some_and(|seconds| seconds <= within_s);
        let localized = each.iter().filter(in_time).filter(|start| start.right == Some(true)).count();
        let mut seconds: Vec<f64> = each.iter().filter_map(|start| start.accepted_s).collect();
        (count > 0).then(|| Self {
            count,
            localized,
            share: localized as f64 / count as f64,
            within_s,
            wrong: each.iter().filter(|start| start.wrong > 0).count(),
            limit: wrong,
            never: each.iter().filter(|start| start.accepted_s.is_none()).count(),
            first_s: (!seconds.is_empty()).then(|| Percentiles::of(&mut seconds)),
            each,
        })
    }
}
