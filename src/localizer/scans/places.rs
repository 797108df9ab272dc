//! Which place the robot is in, by the evidence of several scans.
//!
//! A place is a pose of the odometry frame in the map, which does not change while the robot moves. Every place that
//! was a candidate at any scan stays in the race and is weighed with all views that are kept: so one that is found
//! late is not behind, and a place is trusted only if no other explains the same views nearly as well.

use super::search::same;
use crate::geometry::{Rigid, Vector};
use crate::localizer::dense::{Alignment, Evidence};
use crate::params::Params;
use crate::status::Status;
use std::fmt::Write as _;

/// Share of the points whose rays go through the map above which the map contradicts a scan.
const MAX_THROUGH: f64 = 0.15;
/// Score (natural logarithm of a likelihood ratio) below which a scan says too little for a place that was searched
/// for among many.
const MIN_SCORE: f64 = 20.0;
/// Share of the floors of a scan, of those that the map knows, that must lie on the map: walls leave the height open.
const MIN_LEVEL: f64 = 0.3;
/// Share of the smallest overlap that is enough where odometry says that the robot is there.
const EXPECTED: f64 = 0.8;
/// Scans in a row that may contradict a place before it is dropped.
const MISSES: u32 = 3;
/// A place that has less than this share of the evidence of the best is dropped.
const HOPELESS: f64 = 0.3;

/// A place that the robot may be in.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Pose of the odometry frame in the map.
    pub map_t_odom: Rigid,
    /// The newest scan aligned there.
    pub alignment: Alignment,
    /// What the newest scan says.
    pub evidence: Evidence,
    /// What each of the views before says, by its number.
    pub scores: Vec<(u64, f64)>,
    /// The sum of the scores, that of the newest scan included.
    pub total: f64,
    /// Scans that agreed, in a row, but for single ones.
    pub scans: u32,
    /// Scans that did not, in a row.
    pub misses: u32,
    /// It is where a person or another program says that the robot is.
    pub hinted: bool,
}

/// What a scan says of a pose that is expected from the one before: nothing against it, or the status and why.
pub fn judge_expected(
    alignment: &Alignment,
    evidence: &Evidence,
    params: &Params,
    why: &mut String,
) -> Status {
    why.clear();
    match fits(evidence, EXPECTED * params.localization.min_overlap, 0.0, why) {
        true => judge_constraint(alignment, params, why),
        false => Status::LowOverlap,
    }
}

/// What a scan says of a place that was searched for: nothing against it, or the status and why.
pub fn judge(alignment: &Alignment, evidence: &Evidence, params: &Params, why: &mut String) -> Status {
    why.clear();
    match judge_overlap(evidence, params, why) {
        Status::Ok => judge_constraint(alignment, params, why),
        status => status,
    }
}

/// Whether the scan fixes the pose.
pub fn judge_constraint(alignment: &Alignment, params: &Params, why: &mut String) -> Status {
    let [translation, rotation] = weakest(alignment);
    let limits = &params.acceptance;
    if translation > limits.max_translation_std || rotation > limits.max_rotation_std {
        let _ =
            write!(why, "unconstrained: {translation:.2} m, {rotation:.3} rad along the weakest directions");
        return Status::Degenerate;
    }
    Status::Ok
}

/// As [`judge`], of the overlap alone.
pub fn judge_overlap(evidence: &Evidence, params: &Params, why: &mut String) -> Status {
    match fits(evidence, params.localization.min_overlap, MIN_SCORE, why) {
        true => Status::Ok,
        false => Status::LowOverlap,
    }
}

fn fits(evidence: &Evidence, min_overlap: f64, min_score: f64, why: &mut String) -> bool {
    let Evidence { on, through, level, score, .. } = *evidence;
    let told = if on < min_overlap {
        write!(why, "low_overlap: {:.0} % of the scan lies on the map", 100.0 * on)
    } else if through > MAX_THROUGH {
        write!(why, "contradicted: {:.0} % of the rays go through surfaces of the map", 100.0 * through)
    } else if level < MIN_LEVEL {
        write!(why, "contradicted: {:.0} % of the floors lie on those of the map", 100.0 * level)
    } else if score.is_nan() || score < min_score {
        write!(why, "no_evidence: score {score:.1}, {min_score} is needed")
    } else {
        return true;
    };
    let _ = told;
    false
}

/// Largest standard deviations of translation (m) and rotation (rad).
fn weakest(alignment: &Alignment) -> [f64; 2] {
    let block = |at: usize| {
        let block = alignment.covariance.fixed_view::<3, 3>(at, at).into_owned();
        let block = (block + block.transpose()) * 0.5;
        nalgebra::SymmetricEigen::try_new(block, f64::EPSILON, 1000)
            .map_or(f64::INFINITY, |eigen| eigen.eigenvalues.max().max(0.0).sqrt())
    };
    [block(0), block(3)]
}

/// The answer of the race.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Whether the first place is trusted.
    pub status: Status,
    /// 1 - (evidence of the best other place) / (evidence of the first).
    pub margin: f64,
}

/// The places in the race, the best first.
#[derive(Debug, Clone, Default)]
pub struct Places(pub Vec<Place>);

impl Places {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a place unless it is there; true if it was added.
    pub fn add(&mut self, place: Place, odom_t_sensor: &Rigid, voxel: f64) -> bool {
        let pose = place.map_t_odom * odom_t_sensor;
        let known = self.0.iter_mut().find(|known| same(&(known.map_t_odom * odom_t_sensor), &pose, voxel));
        match known {
            Some(known) => {
                known.hinted |= place.hinted;
                false
            }
            None => {
                self.0.push(place);
                true
            }
        }
    }

    /// Drops what is hopeless, what came together with a better place, and the least beyond `max`; the best first.
    pub fn tidy(&mut self, odom_t_sensor: &Rigid, voxel: f64, max: usize) {
        self.0.sort_by(|a, b| b.total.total_cmp(&a.total));
        let best = self.0.first().map_or(0.0, |place| place.total);
        self.0.retain(|place| place.misses < MISSES && place.total >= HOPELESS * best);
        let mut kept: Vec<Rigid> = Vec::with_capacity(self.0.len());
        self.0.retain(|place| {
            let pose = place.map_t_odom * odom_t_sensor;
            let is_new = !kept.iter().any(|other| same(other, &pose, voxel));
            kept.extend(is_new.then_some(pose));
            is_new
        });
        self.0.truncate(max);
    }

    /// Puts a place that was hinted at first, unless another explains the scans clearly better.
    pub fn prefer_hinted(&mut self, params: &Params) {
        let best = self.0.first().map_or(0.0, |place| place.total);
        let least = params.acceptance.max_runner_up * best;
        if let Some(at) = self.0.iter().position(|place| place.hinted && place.total >= least) {
            if let Some(front) = self.0.get_mut(..=at) {
                front.rotate_right(1);
            }
        }
    }

    /// Whether the best place is trusted, and why not.
    pub fn decide(&self, params: &Params, why: &mut String) -> Verdict {
        why.clear();
        let Some(best) = self.0.first() else {
            why.push_str("no_place: no place of the map explains the scan");
            return Verdict { status: Status::LowOverlap, margin: 0.0 };
        };
        let rival = self.0.get(1).map_or(0.0, |rival| (rival.total / best.total.max(1e-9)).max(0.0));
        // A hint settles which of two places it is, as far as both explain the scans.
        let rival = if best.hinted { 0.0 } else { rival };
        let margin = (1.0 - rival).clamp(0.0, 1.0);
        let verdict = |status| Verdict { status, margin };
        let status = judge(&best.alignment, &best.evidence, params, why);
        if status != Status::Ok {
            return verdict(status);
        }
        if rival > params.acceptance.max_runner_up {
            let _ = write!(why, "runner_up: another place has {:.0} % of the evidence", 100.0 * rival);
            return verdict(Status::Ambiguous);
        }
        let need = params.localization.min_scans.max(1) as u32;
        if best.scans < need {
            let _ = write!(why, "unconfirmed: {} of {need} scans agree", best.scans);
            return verdict(Status::Unconfirmed);
        }
        verdict(Status::Ok)
    }
}

/// Moves a covariance to another pose nearby, and adds what odometry may have got wrong on the way. `moved`: m and
/// rad; the standard deviations are `voxel / 4` and 0.5 degrees, and a tenth of the way.
pub fn predicted(
    covariance: &nalgebra::Matrix6<f64>,
    moved: (f64, f64),
    voxel: f64,
) -> nalgebra::Matrix6<f64> {
    let translation = 0.25 * voxel + 0.1 * moved.1;
    let rotation = 0.01 + 0.1 * moved.0;
    let mut out = *covariance;
    for i in 0..3 {
        out[(i, i)] += translation * translation;
        out[(i + 3, i + 3)] += rotation * rotation;
    }
    out
}

/// Whether two poses are further apart than both covariances allow, five standard deviations.
pub fn jumped(guess: &Rigid, found: &Rigid, covariance: &nalgebra::Matrix6<f64>) -> bool {
    let turn = (found.rotation * guess.rotation.inverse()).scaled_axis();
    let shift: Vector = found.translation.vector - guess.translation.vector;
    let error = nalgebra::Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z);
    let distance = nalgebra::Cholesky::new(*covariance).map(|c| error.dot(&c.solve(&error)));
    distance.is_none_or(|d| d.is_nan() || d > 25.0)
}
