//! The numbers of each input.

use super::{latency, statuses, AbsoluteError, Consistency, FrameTruth, Options, Pair, PoseError, Recall};
use super::{StageLatency, Wrong};
use crate::localizer::Input;
use crate::replay::FrameRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What can be said of the messages of one input. The errors of relative poses stand in
/// [`RelativeSummary`](super::RelativeSummary).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputSummary {
    /// Its name.
    pub input: String,
    /// Messages that were answered.
    pub frames: usize,
    /// Of these, with a pose that was accepted.
    pub accepted: usize,
    /// Of these, with a true pose in the map at their stamp.
    pub with_truth: usize,
    /// How many messages had which status; all names.
    pub statuses: BTreeMap<String, u64>,
    /// Recall at each limit of the options; empty without truth.
    pub recall: Vec<Recall>,
    /// Poses that were accepted although they are wrong.
    pub wrong: Option<Wrong>,
    /// Absolute trajectory error.
    pub ate: Option<AbsoluteError>,
    /// Whether the covariances say how large the errors are.
    pub consistency: Option<Consistency>,
    /// Time of each stage.
    pub latency: Vec<StageLatency>,
}

impl InputSummary {
    /// Those of which there are messages, in the order of [`Input::ALL`].
    pub(super) fn all(
        frames: &[FrameRecord],
        beside: &[FrameTruth],
        pairs: &[Pair],
        options: &Options,
    ) -> Vec<Self> {
        let of = |input: Input| {
            let own = || frames.iter().zip(beside).filter(move |(frame, _)| frame.input == input);
            let frames: Vec<&FrameRecord> = own().map(|(frame, _)| frame).collect();
            let errors: Vec<PoseError> = own().filter_map(|(_, beside)| beside.error).collect();
            let with_truth = own().filter(|(_, beside)| beside.truth.is_some()).count();
            let recall = |limit: &_| Recall::new(&errors, with_truth, *limit);
            (!frames.is_empty()).then(|| Self {
                input: input.name().to_owned(),
                frames: frames.len(),
                accepted: frames.iter().filter(|frame| frame.is_accepted()).count(),
                with_truth,
                statuses: statuses(&frames),
                recall: options.recall.iter().filter_map(recall).collect(),
                wrong: Wrong::new(&errors, options.wrong),
                ate: AbsoluteError::new(&errors),
                consistency: Consistency::new(pairs.iter().filter(|pair| pair.frame.input == input)),
                latency: latency::stages(&frames),
            })
        };
        Input::ALL.into_iter().filter_map(of).collect()
    }
}
