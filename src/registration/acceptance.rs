//! Whether a pose is to be trusted: what speaks for it and what else could explain it.
//!
//! A pose is `ok` only if it has far more support than chance gives, the support fixes every
//! degree of freedom, no reflection explains the input better, and no other pose comes near.

use super::findings::{Measured, Mirror};
use super::result::Reason;
use crate::params::AcceptanceParams;
use crate::status::Status;

/// Real mismatches go to places that look alike, so they hit by chance more often than matches
/// drawn from all targets would: walls match walls. Allowed for by this factor.
pub const CLUTTER: f64 = 3.0;
/// A reflection that fits better than the pose by this many standard deviations is the truth.
const MIRRORED: f64 = 2.0;

/// What is known of a refined pose.
#[derive(Debug, Clone, Copy)]
pub struct Evidence {
    /// Correspondences within the threshold.
    pub inliers: usize,
    /// Inliers in different places, in both frames.
    pub independent: usize,
    /// Base-10 logarithm of the expected number of poses this good among random correspondences.
    pub log10_false_alarms: f64,
    /// The same for the rotation about the line through most of the inliers.
    pub log10_false_alarms_off_line: f64,
    /// The best reflection.
    pub mirror: Option<Mirror>,
    /// Standard deviations in the weakest direction: m, rad. `None`: not fixed at all.
    pub weakest: Option<[f64; 2]>,
    /// Support of the runner-up alone, relative to the support of the pose alone.
    pub runner_up: f64,
}

/// The verdict.
pub fn judge(e: &Evidence, params: &AcceptanceParams) -> (Status, Reason) {
    if e.log10_false_alarms > -params.significance {
        return (Status::LowInliers, Reason::Chance(e.log10_false_alarms));
    }
    let need = params.min_inliers.max(3) as usize;
    if e.independent < need {
        return (Status::LowInliers, Reason::Inliers { got: e.independent, need });
    }
    if let Some(mirror) = e.mirror.filter(|mirror| mirror.sigmas() > MIRRORED) {
        return (Status::Degenerate, Reason::Mirrored { mirrored: mirror.inliers, proper: e.inliers });
    }
    if e.log10_false_alarms_off_line > -params.significance {
        return (Status::Degenerate, Reason::Collinear);
    }
    let [translation, rotation] = e.weakest.unwrap_or([f64::INFINITY; 2]);
    if translation > params.max_translation_std || rotation > params.max_rotation_std {
        return (Status::Degenerate, Reason::Unconstrained { translation, rotation });
    }
    if e.runner_up > params.max_runner_up {
        return (Status::Ambiguous, Reason::RunnerUp(e.runner_up));
    }
    (Status::Ok, Reason::None)
}

impl Evidence {
    /// What the measurements mean; `n` correspondences were given.
    pub fn new(n: usize, m: &Measured, weakest: Option<[f64; 2]>) -> Self {
        let n = n as f64;
        // Inliers to be expected if every source had been matched to a target drawn at random (and
        // CLUTTER times that, for matches that are wrong but not random).
        let chance = (CLUTTER * m.chance_hits as f64 + 1.0) / m.samples.max(1) as f64;
        // Any three correspondences may have made the pose; one more fixes the turn about a line.
        let triples = (n * (n - 1.0) * (n - 2.0) / 6.0).max(1.0).log10();
        Self {
            inliers: m.inliers,
            independent: m.independent,
            log10_false_alarms: triples + log10_poisson_tail(m.inliers as f64 - 3.0, chance),
            log10_false_alarms_off_line: n.max(1.0).log10()
                + log10_poisson_tail(m.off_line as f64 - 1.0, chance),
            mirror: m.mirror,
            weakest,
            runner_up: 0.0,
        }
    }
}

/// Upper bound (Chernoff) of log10 P(X >= k) for a Poisson variable.
pub fn log10_poisson_tail(k: f64, mean: f64) -> f64 {
    match k > mean {
        true => (k - mean - k * (k / mean).ln()) / std::f64::consts::LN_10,
        false => 0.0,
    }
}
