//! How a drive was replayed: all that is known beside its frames.

use super::drive::{Options, Outcome};
use crate::gpu::device;
use crate::localizer::Localizer;
use crate::params::{Params, Value};
use crate::status::{Counter, Counters};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The circumstances of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The bag.
    pub bag: String,
    /// Where the truth comes from.
    pub truth: Option<String>,
    /// The topic with the truth of relative poses.
    #[serde(default)]
    pub truth_relative: Option<String>,
    /// What of the bag was driven, and how.
    pub drive: Options,
    /// False: it was interrupted, and all that follows is of the part until then.
    pub complete: bool,
    /// What of the bag could not be read, in words.
    pub losses: Vec<String>,
    /// What else should be said.
    pub notes: Vec<String>,
    /// Seconds that the replay took.
    pub wall_s: f64,
    /// What computed.
    pub backend: Backend,
    /// What was counted, by the names of [`Counter`]; all of them.
    pub counters: BTreeMap<String, u64>,
    /// Every parameter.
    pub params: BTreeMap<String, serde_json::Value>,
}

/// What computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// Why this one.
    pub why: String,
    /// Name of the GPU, if it is one.
    pub gpu: Option<String>,
    /// The newest CUDA that its driver supports.
    pub cuda: Option<String>,
}

impl Run {
    /// Of a drive through `bag` that took `wall_s` seconds; without a truth until the caller names one.
    pub fn new(
        bag: String,
        drive: Options,
        outcome: &Outcome,
        localizer: &Localizer,
        params: &Params,
        wall_s: f64,
    ) -> Self {
        let lost = outcome.lost.iter().map(|why| format!("the GPU was lost: {why}"));
        Self {
            bag,
            truth: None,
            truth_relative: None,
            drive,
            complete: outcome.complete,
            losses: outcome.losses.iter().map(ToString::to_string).collect(),
            notes: outcome.notes.iter().cloned().chain(lost).collect(),
            wall_s,
            backend: Backend::of(localizer),
            counters: counts(&localizer.counters()),
            params: values(params),
        }
    }
}

impl Backend {
    fn of(localizer: &Localizer) -> Self {
        let input = localizer.deciding();
        let (kind, why) = (localizer.backend(input).to_owned(), localizer.why(input).to_owned());
        let probe = (kind == "cuda").then(device::probe);
        let driver = probe.as_ref().and_then(|probe| probe.driver.as_ref().ok());
        Self {
            gpu: probe.as_ref().and_then(|probe| Some(probe.first_device()?.name.clone())),
            cuda: driver.map(|driver| driver.cuda.map(|part| part.to_string()).join(".")),
            kind,
            why,
        }
    }
}

fn counts(counters: &Counters) -> BTreeMap<String, u64> {
    Counter::ALL.iter().map(|&counter| (counter.name().to_owned(), counters.get(counter))).collect()
}

fn values(params: &Params) -> BTreeMap<String, serde_json::Value> {
    let value = |name| match params.get(name)? {
        Value::Bool(value) => Some(value.into()),
        Value::Int(value) => Some(value.into()),
        Value::Float(value) => Some(value.into()),
        Value::Text(value) => Some(value.into()),
    };
    let named = |spec: &crate::params::Spec| Some((spec.name.to_owned(), value(spec.name)?));
    Params::specs().iter().filter_map(named).collect()
}
