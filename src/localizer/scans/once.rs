//! One scan, without what came before.

use super::places::{judge, MIN_SCORE};
use super::search::{Engine, PlaceCandidate, Vertical};
use super::StageTimes;
use crate::features::Surface;
use crate::geometry::{Point, Vector};
use crate::params::{Gravity, Params};
use crate::registration::Registrar;
use crate::status::Status;
use std::time::Instant;

/// What a single scan says of where it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Once {
    /// Whether the first candidate is trusted. A robot in motion asks for more: several scans that agree.
    pub status: Status,
    /// Why not.
    pub why: String,
    /// Places, the best first.
    pub candidates: Vec<PlaceCandidate>,
    /// Features of the scan.
    pub features: usize,
    /// Their matches with those of the map.
    pub matches: usize,
    /// Time of each stage.
    pub times: StageTimes,
}

impl Engine {
    /// Localizes one scan, points in the frame of the sensor. `upright`: about the vertical there. It is taken to be
    /// known exactly only with `registration.gravity` odom.
    pub fn localize(
        &mut self,
        points: &[Point],
        upright: &Vector,
        registrar: &mut Registrar,
        params: &Params,
    ) -> Once {
        let params = self.registration_params(params);
        let mut times = StageTimes::default();
        let scan = self.surface_of(points, &mut times);
        let vertical = Vertical { up: *upright, is_known: params.registration.gravity == Gravity::Odom };
        let candidates = match self.search(&scan, &scan, &vertical, registrar, &params, &mut times) {
            Ok(candidates) => candidates.to_vec(),
            Err(fault) => return self.once(Status::GpuFault, fault.to_string(), Vec::new(), times),
        };
        let mut why = String::new();
        let status = decide(&candidates, &params, &mut why);
        self.once(status, why, candidates, times)
    }

    /// Voxels and normals of one scan, points in the frame of the sensor.
    pub(super) fn surface_of(&mut self, points: &[Point], times: &mut StageTimes) -> Surface {
        let started = Instant::now();
        let mut scan = Surface::default();
        self.front.surface(points, self.map.lengths.voxel, Some(Point::origin()), &mut scan);
        times.surface = started.elapsed().as_secs_f64() * 1e6;
        scan
    }

    pub(super) fn once(
        &self,
        status: Status,
        why: String,
        candidates: Vec<PlaceCandidate>,
        times: StageTimes,
    ) -> Once {
        let matches = self.matches.iter().map(Vec::len).sum();
        Once { status, why, candidates, features: self.features.points.len(), matches, times }
    }
}

fn decide(candidates: &[PlaceCandidate], params: &Params, why: &mut String) -> Status {
    let Some(best) = candidates.first() else {
        why.push_str("no place of the map explains the scan");
        return Status::LowOverlap;
    };
    let status = judge(&best.alignment, &best.evidence, false, params, why);
    if status == Status::Ok && best.evidence.score < MIN_SCORE {
        why.push_str(&format!("no_evidence: score {:.1}, {MIN_SCORE} is needed", best.evidence.score));
        return Status::LowOverlap;
    }
    unless_ambiguous(status, candidates, params, why)
}

/// The status of the first of some candidates, unless the second explains the scan nearly as well.
pub(super) fn unless_ambiguous(
    status: Status,
    candidates: &[PlaceCandidate],
    params: &Params,
    why: &mut String,
) -> Status {
    let Some((best, others)) = candidates.split_first() else { return status };
    let rival = others.first().map_or(0.0, |other| other.evidence.score / best.evidence.score.max(1e-9));
    if status == Status::Ok && rival > params.acceptance.max_runner_up {
        why.push_str(&format!("another place has {:.0} % of the evidence", 100.0 * rival));
        return Status::Ambiguous;
    }
    status
}
