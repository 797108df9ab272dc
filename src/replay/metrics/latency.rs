//! Times of the stages.

use crate::latency::Percentiles;
use crate::localizer::Stages;
use crate::replay::FrameRecord;
use serde::{Deserialize, Serialize};

/// How long a stage took, milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageLatency {
    /// `parse`, a stage of the registration or of the estimation, or `total`: from the message to the answer.
    pub stage: String,
    /// Frames that came to this stage.
    pub frames: usize,
    /// The distribution.
    #[serde(flatten)]
    pub ms: Percentiles,
}

/// How long answers took in a mode of the localizer, milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModeLatency {
    /// The mode that the answer left the localizer in, by its name.
    pub mode: String,
    /// Answers.
    pub frames: usize,
    /// From the message to the answer.
    #[serde(flatten)]
    pub ms: Percentiles,
}

impl ModeLatency {
    /// Of all modes that there were, in the order of their first answer.
    pub(super) fn all(frames: &[FrameRecord]) -> Vec<Self> {
        let mut modes: Vec<(&str, Vec<f64>)> = Vec::new();
        for (mode, ms) in frames.iter().filter_map(|frame| Some((frame.mode?.name(), frame.total_us * 1e-3)))
        {
            match modes.iter_mut().find(|(known, _)| *known == mode) {
                Some((_, all)) => all.push(ms),
                None => modes.push((mode, vec![ms])),
            }
        }
        let of = |(mode, mut ms): (&str, Vec<f64>)| Self {
            mode: mode.to_owned(),
            frames: ms.len(),
            ms: Percentiles::of(&mut ms),
        };
        modes.into_iter().map(of).collect()
    }
}

/// Name of the time from the message to the answer.
pub const TOTAL: &str = "total";

/// All stages that the frames can have, in the order in which they are passed, then the whole.
pub(super) fn stages(frames: &[&FrameRecord]) -> Vec<StageLatency> {
    let mut all = vec![stage("parse", frames.iter().map(|frame| frame.parse_us))];
    for name in Stages::NAMES.iter().filter(|name| frames.iter().any(|f| f.stages.get(name).is_some())) {
        let came_so_far = frames.iter().filter(|frame| frame.stages.total() > 0.0);
        all.push(stage(name, came_so_far.filter_map(|frame| frame.stages.get(name))));
    }
    all.push(stage(TOTAL, frames.iter().map(|frame| frame.total_us)));
    all
}

fn stage(name: &str, microseconds: impl Iterator<Item = f64>) -> StageLatency {
    let mut ms: Vec<f64> = microseconds.map(|us| us * 1e-3).collect();
    StageLatency { stage: name.to_owned(), frames: ms.len(), ms: Percentiles::of(&mut ms) }
}
