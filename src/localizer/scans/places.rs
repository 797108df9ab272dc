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
use nalgebra::Matrix6;
use std::fmt::Write as _;

/// Share of the points whose rays go through the map above which the map contradicts a scan.
const MAX_THROUGH: f64 = 0.15;
/// Score (natural logarithm of a likelihood ratio) of all views below which they say too little for a place that was
/// searched for among many, and that of a view on average. A scan alone has to speak for the place at all.
pub const MIN_SCORE: f64 = 20.0;
const MIN_MEAN: f64 = 10.0;
/// A place that was searched for may be one that only looks alike, such as the same room with other furniture, or the
/// other hand of it in a mirrored map. There less of the scan lies on the map, and more rays go through it: what lies on
/// it, less so many times what goes through, is below this. Measured in simulated buildings, of which a third had
/// changed and a third was mirrored.
const CLEAR: f64 = 0.62;
const DOUBT: f64 = 3.0;
/// Share of the floors of a scan, of those that the map knows, that must lie on the map: walls leave the height open.
const MIN_LEVEL: f64 = 0.3;
/// Share of the score that the scan could have at all (see [`Evidence::reach`]) that a place needs where somebody says
/// that the robot is; it is enough, however little a bare corridor tells of other places.
const HINTED: f64 = 0.1;
/// The same where odometry says that the robot is: only what speaks clearly against it counts.
const TRACKED: f64 = -0.5;
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
    /// Scans in a row for which no other place explained the views nearly as well.
    pub clear: u32,
    /// It is where a person or another program says that the robot is.
    pub hinted: bool,
    /// Of the pose of the sensor, as it was said. Without it the pose is as sure as the search is wide.
    pub prior: Option<Matrix6<f64>>,
}

/// What a scan says of a pose that is expected from the one before: nothing against it, or the status and why. It is
/// not weighed against other places: odometry says which it is.
pub fn judge_expected(
    alignment: &Alignment,
    evidence: &Evidence,
    params: &Params,
    why: &mut String,
) -> Status {
    why.clear();
    match fits(evidence, EXPECTED * params.localization.min_overlap, TRACKED * evidence.reach, why) {
        true => judge_constraint(alignment, params, why),
        false => Status::LowOverlap,
    }
}

/// What a scan says of a place that was searched for, or hinted at: nothing against it, or the status and why.
pub fn judge(
    alignment: &Alignment,
    evidence: &Evidence,
    hinted: bool,
    params: &Params,
    why: &mut String,
) -> Status {
    why.clear();
    match judge_overlap(evidence, hinted, params, why) {
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
pub fn judge_overlap(evidence: &Evidence, hinted: bool, params: &Params, why: &mut String) -> Status {
    let least = if hinted { (HINTED * evidence.reach).min(MIN_SCORE) } else { 0.0 };
    if !fits(evidence, params.localization.min_overlap, least, why) {
        return Status::LowOverlap;
    }
    let Evidence { on, through, .. } = *evidence;
    if on - DOUBT * through < CLEAR {
        let _ = write!(
            why,
            "contradicted: {:.0} % of the rays go through surfaces of the map, and only {:.0} % of the scan lies on it",
            100.0 * through,
            100.0 * on
        );
        return Status::LowOverlap;
    }
    Status::Ok
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
        write!(why, "no_evidence: score {score:.1}, {min_score:.1} is needed")
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

    /// Whether the best place is trusted, and why not; once a scan. That no other place is as good has to hold for as
    /// many scans in a row as have to agree: one look out of a door does not tell two rooms apart.
    pub fn decide(&mut self, params: &Params, why: &mut String) -> Verdict {
        why.clear();
        let Some((best, others)) = self.0.split_first_mut() else {
            why.push_str("no_place: no place of the map explains the scan");
            return Verdict { status: Status::LowOverlap, margin: 0.0 };
        };
        others.iter_mut().for_each(|other| other.clear = 0);
        let rival = others.first().map_or(0.0, |rival| (rival.total / best.total.max(1e-9)).max(0.0));
        // A hint settles which of two places it is, as far as both explain the scans.
        let rival = if best.hinted { 0.0 } else { rival };
        let margin = (1.0 - rival).clamp(0.0, 1.0);
        let verdict = |status| Verdict { status, margin };
        let status = judge(&best.alignment, &best.evidence, best.hinted, params, why);
        let is_clear = rival <= params.acceptance.max_runner_up;
        best.clear = if is_clear { best.clear + 1 } else { 0 };
        if status != Status::Ok {
            return verdict(status);
        }
        let views = best.scores.len() + 1;
        // Hints may be of bare places.
        let least = if best.hinted { 0.0 } else { MIN_SCORE.max(MIN_MEAN * views as f64) };
        if best.total.is_nan() || best.total < least {
            let _ =
                write!(why, "no_evidence: score {:.1} of {views} views, {least:.1} is needed", best.total);
            return verdict(Status::LowOverlap);
        }
        if !is_clear {
            let _ = write!(why, "runner_up: another place has {:.0} % of the evidence", 100.0 * rival);
            return verdict(Status::Ambiguous);
        }
        let need = params.localization.min_scans.max(1) as u32;
        if best.clear < need.min(best.scans) {
            let _ = write!(why, "runner_up: no other place is as good, for {} of {need} scans", best.clear);
            return verdict(Status::Ambiguous);
        }
        if best.scans < need {
            let _ = write!(why, "unconfirmed: {} of {need} scans agree", best.scans);
            return verdict(Status::Unconfirmed);
        }
        verdict(Status::Ok)
    }
}

/// Moves a covariance to another pose nearby, and adds what odometry may have got wrong on the way. `moved`: m and
/// rad; the standard deviations are `voxel / 4` and 0.5 degrees, and a tenth of the way.
pub fn predicted(covariance: &Matrix6<f64>, moved: (f64, f64), voxel: f64) -> Matrix6<f64> {
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
pub fn jumped(guess: &Rigid, found: &Rigid, covariance: &Matrix6<f64>) -> bool {
    let turn = (found.rotation * guess.rotation.inverse()).scaled_axis();
    let shift: Vector = found.translation.vector - guess.translation.vector;
    let error = nalgebra::Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z);
    let distance = nalgebra::Cholesky::new(*covariance).map(|c| error.dot(&c.solve(&error)));
    distance.is_none_or(|d| d.is_nan() || d > 25.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alignment(translation_std: f64) -> Alignment {
        let mut covariance = Matrix6::identity() * 1e-6;
        covariance[(0, 0)] = translation_std * translation_std;
        Alignment {
            map_t_sensor: Rigid::identity(),
            covariance,
            observed: 5,
            overlap: 0.95,
            rms: 0.01,
            inliers: 3000,
            iterations: 5,
            converged: true,
        }
    }

    fn evidence(score: f64, reach: f64) -> Evidence {
        Evidence { on: 0.95, through: 0.0, unknown: 0.0, level: 1.0, score, reach }
    }

    fn place(x: f64, score: f64) -> Place {
        Place {
            map_t_odom: Rigid::translation(x, 0.0, 0.0),
            alignment: alignment(0.01),
            evidence: evidence(score, 150.0),
            scores: Vec::new(),
            total: score,
            scans: 1,
            misses: 0,
            clear: 0,
            hinted: false,
            prior: None,
        }
    }

    #[test]
    fn a_tracked_pose_needs_no_evidence_against_other_places() {
        let params = Params::default();
        let mut why = String::new();
        let mut judge = |std, evidence| judge_expected(&alignment(std), &evidence, &params, &mut why);
        assert_eq!(judge(0.01, evidence(-3.0, 20.0)), Status::Ok, "a bare tunnel");
        assert_eq!(judge(0.9, evidence(0.0, 20.0)), Status::Ok, "carried along by odometry");
        assert_eq!(judge(1.1, evidence(0.0, 20.0)), Status::Degenerate);
        assert_eq!(judge(0.01, evidence(-90.0, 150.0)), Status::LowOverlap, "it should have seen more");
        assert_eq!(judge(0.01, Evidence { on: 0.35, ..evidence(50.0, 150.0) }), Status::LowOverlap);
        assert_eq!(judge(0.01, Evidence { through: 0.2, ..evidence(50.0, 150.0) }), Status::LowOverlap);
        assert_eq!(judge(0.01, Evidence { level: 0.1, ..evidence(50.0, 150.0) }), Status::LowOverlap);
        assert_eq!(judge(0.01, evidence(f64::NAN, 150.0)), Status::LowOverlap);
    }

    #[test]
    fn a_hint_needs_some_of_the_evidence_that_there_can_be() {
        let params = Params::default();
        let judge = |score, reach, hinted| {
            judge_overlap(&evidence(score, reach), hinted, &params, &mut String::new()) == Status::Ok
        };
        assert!(judge(6.0, 50.0, true) && !judge(4.0, 50.0, true));
        assert!(!judge(-10.0, 150.0, true) && !judge(19.0, 400.0, true) && judge(21.0, 400.0, true));
        assert!(judge(1.0, 50.0, false) && !judge(-1.0, 50.0, false));
    }

    #[test]
    fn a_place_is_trusted_once_no_other_was_as_good_for_several_scans() {
        let params = Params::default();
        let mut places = Places(vec![place(0.0, 70.0), place(8.0, 50.0)]);
        // Of the other place: 50 of 70 is too near, 40 is not.
        let mut statuses = Vec::new();
        for rival in [40.0, 50.0, 40.0, 40.0, 60.0, 40.0, 40.0, 40.0] {
            places.0[1].total = rival;
            statuses.push(places.decide(&params, &mut String::new()).status);
            places.0[0].scans += 1;
        }
        let [unconfirmed, ambiguous, ok] = [Status::Unconfirmed, Status::Ambiguous, Status::Ok];
        assert_eq!(statuses[..2], [unconfirmed, ambiguous]);
        assert_eq!(statuses[2..], [ambiguous, ambiguous, ambiguous, ambiguous, ambiguous, ok]);
    }

    #[test]
    fn a_place_that_looks_alike_is_not_trusted() {
        let params = Params::default();
        let judge = |on, through| {
            let evidence = Evidence { on, through, ..evidence(60.0, 150.0) };
            judge_overlap(&evidence, false, &params, &mut String::new()) == Status::Ok
        };
        // As measured: the room itself, the room after a third has changed, and the other hand of it.
        assert!(judge(0.88, 0.02) && judge(0.74, 0.03));
        assert!(!judge(0.77, 0.07) && !judge(0.7, 0.05) && !judge(0.6, 0.0));
    }

    #[test]
    fn every_view_has_to_speak_for_a_place() {
        let params = Params::default();
        let decide = |newest: f64, scores: &[f64]| {
            let scores = (0..).zip(scores.iter().copied()).collect();
            let mut best = Place { scores, scans: 3, clear: 3, ..place(0.0, newest) };
            best.total += best.scores.iter().map(|(_, score)| score).sum::<f64>();
            Places(vec![best]).decide(&params, &mut String::new()).status
        };
        assert_eq!(decide(15.0, &[]), Status::LowOverlap);
        assert_eq!(decide(15.0, &[16.0, 9.0]), Status::Ok);
        assert_eq!(decide(21.0, &[-10.0, 5.0]), Status::LowOverlap);
    }
}
