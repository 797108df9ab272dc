//! One scan, without what came before.

use super::places::judge;
use super::search::{Engine, PlaceCandidate, Vertical};
use super::StageTimes;
use crate::features::Surface;
use crate::geometry::{Point, Vector};
use crate::params::{Gravity, Params};
use crate::registration::Registrar;
use crate::status::Status;

/// What a single scan says of where it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Once {
    /// Whether the first candidate is trusted. A robot in motion asks for more: several scans that agree.
    pub status: Status,
    /// Why not.
    pub why: String,
    /// Places, the best first.
    pub candidates: Vec<PlaceCandidate>,
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
        let mut scan = Surface::default();
        self.front.surface(points, self.map.lengths.voxel, Some(Point::origin()), &mut scan);
        let vertical = Vertical { up: *upright, is_known: params.registration.gravity == Gravity::Odom };
        let mut times = StageTimes::default();
        let candidates = match self.search(&scan, &scan, &vertical, registrar, &params, &mut times) {
            Ok(candidates) => candidates.to_vec(),
            Err(fault) => {
                let (status, why) = (Status::GpuFault, fault.to_string());
                return Once { status, why, candidates: Vec::new(), times };
            }
        };
        let mut why = String::new();
        let status = decide(&candidates, &params, &mut why);
        Once { status, why, candidates, times }
    }
}

fn decide(candidates: &[PlaceCandidate], params: &Params, why: &mut String) -> Status {
    let Some((best, others)) = candidates.split_first() else {
        why.push_str("no place of the map explains the scan");
        return Status::LowOverlap;
    };
    let status = judge(&best.alignment, &best.evidence, false, params, why);
    let rival = others.first().map_or(0.0, |other| other.evidence.score / best.evidence.score.max(1e-9));
    if status == Status::Ok && rival > params.acceptance.max_runner_up {
        why.push_str(&format!("another place has {:.0} % of the evidence", 100.0 * rival));
        return Status::Ambiguous;
    }
    status
}
