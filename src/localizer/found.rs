//! What the localizer needs of a result, whichever way it was found.

use super::Stages;
use crate::estimation::Estimation;
use crate::geometry::Rigid;
use crate::registration::{Registration, RunnerUp};
use crate::status::Status;
use nalgebra::Matrix6;
use std::fmt::Display;

/// The result of a registration or of an estimation. The fields are theirs.
pub(super) struct Found<'a> {
    pub status: Status,
    pub reason: &'a dyn Display,
    pub target_t_source: Option<Rigid>,
    pub covariance: &'a Matrix6<f64>,
    /// Other poses, best first.
    pub others: &'a [RunnerUp],
    pub inliers: usize,
    pub independent_inliers: usize,
    pub inlier_mask: &'a [bool],
    /// Share of a scan that lies on the map; zero of the other inputs.
    pub overlap: f64,
    pub log10_false_alarms: f64,
    pub spread: [f64; 3],
    pub margin: f64,
    pub stages: Stages,
}

/// Both results have these fields under these names.
macro_rules! found {
    ($($result:ty),+) => {$(
        impl<'a> From<&'a $result> for Found<'a> {
            fn from(result: &'a $result) -> Self {
                Self {
                    status: result.status,
                    reason: &result.reason,
                    target_t_source: result.target_t_source,
                    covariance: &result.covariance,
                    others: result.runner_up.as_slice(),
                    inliers: result.inliers,
                    independent_inliers: result.independent_inliers,
                    inlier_mask: &result.inlier_mask,
                    overlap: 0.0,
                    log10_false_alarms: result.log10_false_alarms,
                    spread: result.spread,
                    margin: result.margin,
                    stages: result.stages.into(),
                }
            }
        }
    )+};
}

found!(Registration, Estimation);
