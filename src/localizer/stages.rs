//! Times of the stages of an answer.

use super::{scans, Input};
use crate::{estimation, registration};

/// Time of each stage of what answered, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stages {
    /// Of 3D-3D correspondences.
    Registration(registration::StageTimes),
    /// Of those of a camera.
    Estimation(estimation::StageTimes),
    /// Of raw clouds.
    Scan(scans::StageTimes),
}

impl Stages {
    /// The names of all stages that there are: columns of reports.
    pub const NAMES: [&'static str; 17] = [
        "upload",
        "fog",
        "sog",
        "pivots",
        "cliques",
        "hypotheses",
        "sample",
        "search",
        "optimise",
        "refine",
        "deskew",
        "surface",
        "track",
        "features",
        "matching",
        "register",
        "places",
    ];

    /// None of the stages of an input was entered.
    pub fn none(input: Input) -> Self {
        match input {
            Input::Points3d3d => Self::Registration(registration::StageTimes::default()),
            Input::Sights2d3d | Input::Sights2d2d => Self::Estimation(estimation::StageTimes::default()),
            Input::Points => Self::Scan(scans::StageTimes::default()),
        }
    }

    /// Names and times, in the order in which they were passed.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let (registration, estimation, scan) = match self {
            Self::Registration(times) => (Some(times), None, None),
            Self::Estimation(times) => (None, Some(times), None),
            Self::Scan(times) => (None, None, Some(times)),
        };
        let registration =
            registration.map(|times| registration::StageTimes::NAMES.into_iter().zip(times.values()));
        let estimation =
            estimation.map(|times| estimation::StageTimes::NAMES.into_iter().zip(times.values()));
        let scan = scan.map(|times| scans::StageTimes::NAMES.into_iter().zip(times.values()));
        registration
            .into_iter()
            .flatten()
            .chain(estimation.into_iter().flatten())
            .chain(scan.into_iter().flatten())
    }

    /// The time of one of the stages. None: it is none of this input.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, time)| time)
    }

    /// Time in all stages.
    pub fn total(&self) -> f64 {
        match self {
            Self::Registration(times) => times.total(),
            Self::Estimation(times) => times.total(),
            Self::Scan(times) => times.total(),
        }
    }
}

impl From<registration::StageTimes> for Stages {
    fn from(times: registration::StageTimes) -> Self {
        Self::Registration(times)
    }
}

impl From<estimation::StageTimes> for Stages {
    fn from(times: estimation::StageTimes) -> Self {
        Self::Estimation(times)
    }
}

impl From<scans::StageTimes> for Stages {
    fn from(times: scans::StageTimes) -> Self {
        Self::Scan(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_its_column() {
        let all = registration::StageTimes::NAMES.iter().chain(&estimation::StageTimes::NAMES);
        let all = all.chain(&scans::StageTimes::NAMES);
        assert!(all.clone().all(|name| Stages::NAMES.contains(name)));
        assert!(Stages::NAMES.iter().all(|name| all.clone().any(|known| known == name)));
        let times = estimation::StageTimes { refine: 3.0, ..estimation::StageTimes::default() };
        let stages = Stages::Estimation(times);
        assert_eq!((stages.get("refine"), stages.get("fog"), stages.total()), (Some(3.0), None, 3.0));
    }
}
