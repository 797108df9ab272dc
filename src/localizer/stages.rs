//! Times of the stages of an answer.

use crate::{estimation, registration};

/// Time of each stage of what answered, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stages {
    /// Of 3D-3D correspondences.
    Registration(registration::StageTimes),
    /// Of those of a camera.
    Estimation(estimation::StageTimes),
}

impl Stages {
    /// The names of all stages that there are: columns of reports.
    pub const NAMES: [&'static str; 10] =
        ["upload", "fog", "sog", "pivots", "cliques", "hypotheses", "sample", "search", "optimise", "refine"];

    /// The time of one of the stages. None: it is none of this input.
    pub fn get(&self, name: &str) -> Option<f64> {
        let (names, values): (&[&str], &[f64]) = match self {
            Self::Registration(times) => (&registration::StageTimes::NAMES, &times.values()),
            Self::Estimation(times) => (&estimation::StageTimes::NAMES, &times.values()),
        };
        names.iter().zip(values).find(|(known, _)| **known == name).map(|(_, value)| *value)
    }

    /// Time in all stages.
    pub fn total(&self) -> f64 {
        match self {
            Self::Registration(times) => times.total(),
            Self::Estimation(times) => times.total(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_its_column() {
        let all = registration::StageTimes::NAMES.iter().chain(&estimation::StageTimes::NAMES);
        assert!(all.clone().all(|name| Stages::NAMES.contains(name)));
        assert!(Stages::NAMES.iter().all(|name| all.clone().any(|known| known == name)));
        let times = estimation::StageTimes { refine: 3.0, ..estimation::StageTimes::default() };
        let stages = Stages::Estimation(times);
        assert_eq!((stages.get("refine"), stages.get("fog"), stages.total()), (Some(3.0), None, 3.0));
    }
}
