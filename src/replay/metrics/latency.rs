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
