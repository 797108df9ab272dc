//! A pair of clouds, neither of which is a map: which way is up is not known, and they may share no more than a part.
//!
//! Features are what tells such clouds apart: where they share a place, a good part of the matches there is right. At a
//! wrong pose matches agree too, where things look alike, but in a few spots only, and what one cloud saw the other
//! saw through.

use super::once::unless_ambiguous;
use super::places::judge_constraint;
use super::search::{same, thin, Engine, PlaceCandidate, OFF, SKETCH, THRESHOLD};
use super::{Once, StageTimes};
use crate::features::Surface;
use crate::geometry::{Point, Rigid};
use crate::localizer::dense::{Evidence, Settings, SurfaceIndex};
use crate::params::Params;
use crate::registration::Registrar;
use crate::status::Status;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

/// Edge of the spots in which matches agree together or not at all: the radius of a feature, voxels.
const SPOT: f64 = 8.0;
/// Share of the rays that go through the other cloud at wrong poses.
const THROUGH: f64 = 0.3;
/// Score that is needed. The best wrong poses looked at in 80 simulated pairs and 120 strangers, whose chairs and cars are all
/// the same, had about 5; right ones of real pairs 9 and more.
const MIN_SPOTS: f64 = 7.0;
/// Share of each cloud, of what the other could explain, that must lie on the other.
const MIN_ON: f64 = 0.35;

impl Engine {
    /// Registers a cloud with the one that the map was made of, with the origin as its viewpoint
    /// ([`crate::localizer::map::Settings`]); the cloud too was seen from about its origin. Their frames are their own.
    ///
    /// [`Evidence`] of a candidate: `on`, the smaller of the shares of both clouds, of what the other could explain;
    /// `through` and `unknown`, the larger ones; `score`, the spots whose matches agree, less what the rays say
    /// against it; `reach`, those spots; `level` is 1.
    pub fn register_pair(&mut self, points: &[Point], registrar: &mut Registrar, params: &Params) -> Once {
        let params = self.registration_params(params);
        let mut times = StageTimes::default();
        let cloud = self.surface_of(points, &mut times);
        if let Err(fault) = self.recognize(&cloud, None, registrar, &params, &mut times) {
            return self.once(Status::GpuFault, fault.to_string(), Vec::new(), times);
        }
        let started = Instant::now();
        let candidates = self.weigh_pair(&cloud);
        let mut why = String::new();
        let status = decide(&candidates, &params, &mut why);
        times.places = started.elapsed().as_secs_f64() * 1e6;
        self.once(status, why, candidates, times)
    }

    /// Poses -> candidates, the best first.
    fn weigh_pair(&mut self, cloud: &Surface) -> Vec<PlaceCandidate> {
        let voxel = self.index.voxel();
        let cloud_index = SurfaceIndex::new(cloud, voxel);
        thin(cloud, SKETCH, &mut self.sketch);
        let mut candidates: Vec<PlaceCandidate> = Vec::new();
        for (pose, _) in std::mem::take(&mut self.poses) {
            let settings = Settings::new(OFF * voxel);
            let alignment = self.aligner.align(&self.index, &self.sketch, &pose, None, &settings);
            let found = &alignment.map_t_sensor;
            if candidates.iter().any(|known| same(&known.alignment.map_t_sensor, found, voxel)) {
                continue;
            }
            let there = self.aligner.compare(&self.index, &self.sketch, found);
            let back = self.aligner.compare(&cloud_index, &self.map.surface, &found.inverse());
            let through = there.through.max(back.through);
            let spots = self.spots(found);
            let evidence = Evidence {
                on: there.on.min(back.on),
                through,
                unknown: there.unknown.max(back.unknown),
                level: 1.0,
                score: spots * (1.0 - through / THROUGH),
                reach: spots,
            };
            candidates.push(PlaceCandidate { alignment, evidence });
        }
        candidates.sort_by(|a, b| b.evidence.score.total_cmp(&a.evidence.score));
        candidates
    }

    /// Where the clouds meet at a pose: the spots with matches there, each counted as the share of them that agrees.
    fn spots(&self, map_t_cloud: &Rigid) -> f64 {
        let (voxel, near) = (self.index.voxel(), THRESHOLD * self.index.voxel());
        let mut spots: BTreeMap<[i64; 3], [f64; 2]> = BTreeMap::new();
        for (matches, submap) in self.matches.iter().zip(&self.map.submaps) {
            for m in matches {
                let source = self.features.points.get(m.source as usize);
                let target = submap.features.points.get(m.target as usize);
                let (Some(source), Some(target)) = (source, target) else { continue };
                let there = map_t_cloud * source;
                if self.index.nearest(&there, near).is_none() {
                    continue;
                }
                let cell = [source.x, source.y, source.z].map(|v| (v / (SPOT * voxel)).floor() as i64);
                let [agree, all] = spots.entry(cell).or_default();
                *agree += f64::from(u8::from((there - target).norm() < near));
                *all += 1.0;
            }
        }
        spots.values().map(|[agree, all]| agree / all).sum()
    }
}

fn decide(candidates: &[PlaceCandidate], params: &Params, why: &mut String) -> Status {
    let Some(best) = candidates.first() else {
        why.push_str("no pose explains the matches");
        return Status::LowInliers;
    };
    let Evidence { on, through, score, .. } = best.evidence;
    if score.is_nan() || score < MIN_SPOTS {
        let _ = write!(
            why,
            "no_evidence: score {score:.1}, {MIN_SPOTS} is needed; {:.0} % of the rays go through the other cloud",
            100.0 * through
        );
        return Status::LowInliers;
    }
    if on < MIN_ON {
        let _ = write!(why, "low_overlap: {:.0} % of what they share lies on the other", 100.0 * on);
        return Status::LowOverlap;
    }
    let status = judge_constraint(&best.alignment, params, why);
    unless_ambiguous(status, candidates, params, why)
}
