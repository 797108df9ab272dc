//! Global localization: the places of the map that a scan may come from.
//!
//! Features of the scan are matched with those of every submap, each set of matches is registered, and what is
//! found is aligned to the map and verified. Within a submap a second place is found as the runner-up of the
//! registration, and more once the matches that the places known explain are taken away.

use super::walls::Walls;
use super::StageTimes;
use crate::features::matching::{correspondences, Matcher};
use crate::features::{Descriptor, Features, FrontEnd, Match, Surface};
use crate::geometry::{pose_error, Rigid, Vector};
use crate::localizer::dense::{Aligner, Alignment, Evidence, Settings, SurfaceIndex};
use crate::localizer::map::Map;
use crate::params::Params;
use crate::registration::{BackendError, Problem, Reason, Registrar};
use crate::status::Status;
use nalgebra::Matrix6;
use std::sync::Arc;
use std::time::Instant;

/// Largest residual of an inlier, differences of equal lengths, and shortest length that is compared, voxels.
pub(super) const THRESHOLD: f64 = 1.5;
const TAU: f64 = 0.4;
const MIN_LENGTH: f64 = 4.0;
/// Matches of a submap that are registered at most.
const ROWS: usize = 2000;
/// Points that a pose is first aligned with, in so many iterations, and the share of the smallest overlap that must
/// come to lie on the map for a second look.
pub(super) const SKETCH: usize = 1500;
const ITERATIONS: usize = 8;
const LEAST: f64 = 0.3;
/// Poses that are aligned at most.
const POSES: usize = 16;
/// Poses from walls that are aligned beside them.
const WALL_POSES: usize = 10;
/// Cosine of the largest tilt of a scan, 45 degrees. Floors and ceilings are alike: upside down a place fits another,
/// or itself in a mirrored map.
const UPRIGHT: f64 = 0.7;
/// How often the matches that are explained are taken away, to find further places.
const PEELS: usize = 2;
/// How far a pose from matches may be off, voxels.
pub(super) const OFF: f64 = 4.0;
/// Two poses closer than this are of one place: voxels, rad.
const SAME: (f64, f64) = (6.0, 0.2);

/// A place that a scan may come from.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceCandidate {
    /// The pose, refined.
    pub alignment: Alignment,
    /// How well the scan lies there.
    pub evidence: Evidence,
}

/// Up, in the frame of the sensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vertical {
    /// The direction, of length one.
    pub up: Vector,
    /// It is exact; else about right.
    pub is_known: bool,
}

impl Default for Vertical {
    fn default() -> Self {
        Self { up: Vector::z(), is_known: false }
    }
}

/// A map with all that is derived from it, and what works on it.
pub struct Engine {
    pub(super) map: Arc<Map>,
    pub(super) index: SurfaceIndex,
    pub(super) front: FrontEnd,
    pub(super) aligner: Aligner,
    walls: Walls,
    matcher: Matcher,
    pub(super) features: Features,
    pub(super) matches: Vec<Vec<Match>>,
    problems: Vec<Problem>,
    pub(super) poses: Vec<(Rigid, usize)>,
    pub(super) sketch: Surface,
    candidates: Vec<PlaceCandidate>,
    targets: Vec<usize>,
}

impl Engine {
    /// With so many threads; 0: one per core.
    pub fn new(map: Arc<Map>, params: &Params) -> Result<Self, BackendError> {
        let threads = params.backend.threads.max(0) as usize;
        let failed = |e: rayon::ThreadPoolBuildError| BackendError::Threads(e.to_string());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(failed)?;
        let mut matcher = Matcher::new(params)?;
        let descriptors: Vec<&[Descriptor]> =
            map.submaps.iter().map(|submap| submap.features.descriptors.as_slice()).collect();
        // A fault of the GPU has put the CPU in its place, or is told by the next call.
        let _ = matcher.set_targets(&descriptors);
        let index = SurfaceIndex::new(&map.surface, map.lengths.voxel);
        Ok(Self {
            index,
            front: FrontEnd::new(threads).map_err(failed)?,
            aligner: Aligner::new(Arc::new(pool)),
            walls: Walls::new(&map.surface, map.lengths.voxel),
            matcher,
            features: Features::default(),
            matches: Vec::new(),
            problems: Vec::new(),
            poses: Vec::new(),
            sketch: Surface::default(),
            candidates: Vec::new(),
            targets: (0..map.submaps.len()).collect(),
            map,
        })
    }

    /// The parameters of registrations of matches between scan and map.
    pub fn registration_params(&self, params: &Params) -> Params {
        let voxel = self.map.lengths.voxel;
        let mut out = params.clone();
        out.registration.tau = TAU * voxel;
        out.registration.inlier_threshold = THRESHOLD * voxel;
        out.registration.min_length = MIN_LENGTH * voxel;
        out
    }

    /// Lays a scan upon the map near a pose whose points are off by `off` at most, m, and says how well it lies there.
    pub(super) fn lay(
        &mut self,
        scan: &Surface,
        guess: &Rigid,
        prior: Option<&Matrix6<f64>>,
        off: f64,
    ) -> PlaceCandidate {
        let Self { index, aligner, .. } = self;
        let alignment = aligner.align(index, scan, guess, prior, &Settings::new(off));
        let evidence = aligner.verify(index, scan, &alignment.map_t_sensor);
        PlaceCandidate { alignment, evidence }
    }

    /// Aligns a scan at a pose that was searched for; none if too little of it comes to lie on the map. Most such poses
    /// are wrong, and verifying costs as much as several alignments.
    pub(super) fn try_pose(
        &mut self,
        scan: &Surface,
        guess: &Rigid,
        prior: Option<&Matrix6<f64>>,
        settings: &Settings,
        params: &Params,
    ) -> Option<Alignment> {
        let alignment = self.aligner.align(&self.index, scan, guess, prior, settings);
        let least = LEAST * params.localization.min_overlap * scan.points.len() as f64;
        (alignment.inliers as f64 >= least).then_some(alignment)
    }

    /// The places that `local` may come from, verified with `scan`, the best first. Both are in the frame of the
    /// sensor; `local` may hold more than one sweep. `params` are those of [`Engine::registration_params`].
    ///
    /// # Errors
    /// The GPU failed; the next search finds what takes its place.
    pub fn search(
        &mut self,
        local: &Surface,
        scan: &Surface,
        vertical: &Vertical,
        registrar: &mut Registrar,
        params: &Params,
        times: &mut StageTimes,
    ) -> Result<&[PlaceCandidate], Reason> {
        self.recognize(local, vertical.is_known.then_some(vertical.up), registrar, params, times)?;
        let started = Instant::now();
        self.poses
            .extend(self.walls.search(local, &vertical.up, WALL_POSES).into_iter().map(|pose| (pose, 0)));
        self.weigh(scan, &vertical.up, params);
        times.places += started.elapsed().as_secs_f64() * 1e6;
        Ok(&self.candidates)
    }

    /// Poses of `local` by its features, those with most inliers first.
    pub(super) fn recognize(
        &mut self,
        local: &Surface,
        sensor_up: Option<Vector>,
        registrar: &mut Registrar,
        params: &Params,
        times: &mut StageTimes,
    ) -> Result<(), Reason> {
        let mut started = Instant::now();
        let mut lap = |time: &mut f64| {
            *time += started.elapsed().as_secs_f64() * 1e6;
            started = Instant::now();
        };
        let max = params.scan.max_features.max(0) as usize;
        self.front.features(local, &self.map.lengths, max, &mut self.features);
        lap(&mut times.features);
        let Self { matcher, features, matches, targets, .. } = self;
        let matched = matcher.matches(&features.descriptors, targets, params.scan.match_ratio, matches);
        matched.map_err(|error| Reason::GpuFault(error.code()))?;
        lap(&mut times.matching);
        self.register(sensor_up, registrar, params)?;
        lap(&mut times.register);
        Ok(())
    }

    /// Why the GPU is lost for good: the program should end. See [`Matcher::lost`].
    pub fn lost(&self) -> Option<&str> {
        self.matcher.lost()
    }

    /// Matches -> poses, those with most inliers first.
    fn register(
        &mut self,
        sensor_up: Option<Vector>,
        registrar: &mut Registrar,
        params: &Params,
    ) -> Result<(), Reason> {
        let Self { features, matches, problems, poses, map, .. } = self;
        let rows = ROWS.min(params.registration.max_correspondences.max(0) as usize);
        problems.resize_with(matches.len(), Problem::default);
        for ((problem, matches), submap) in problems.iter_mut().zip(matches.iter()).zip(&map.submaps) {
            problem.clear();
            correspondences(matches, features, &submap.features, rows, problem);
            if let Some(up) = sensor_up {
                problem.set_up(up, Vector::z());
            }
        }
        poses.clear();
        let threshold = params.registration.inlier_threshold;
        for round in 0..=PEELS {
            let found = poses.len();
            for result in registrar.register_batch(problems, params) {
                if result.status == Status::GpuFault {
                    return Err(result.reason);
                }
                let Some(pose) = result.target_t_source else { continue };
                let others = result.runner_up.iter().map(|other| (other.target_t_source, other.inliers));
                poses.push((pose, result.inliers));
                poses.extend(others);
            }
            if round == PEELS {
                break;
            }
            let known = poses.get(found..).unwrap_or_default();
            for problem in problems.iter_mut() {
                peel(problem, known, threshold);
            }
        }
        // Stable: equal ones in the order of the submaps.
        poses.sort_by_key(|(_, inliers)| std::cmp::Reverse(*inliers));
        poses.truncate(POSES);
        Ok(())
    }

    /// Poses -> candidates, verified, the best first.
    fn weigh(&mut self, scan: &Surface, sensor_up: &Vector, params: &Params) {
        let voxel = self.index.voxel();
        let mut sketch = std::mem::take(&mut self.sketch);
        thin(scan, SKETCH, &mut sketch);
        let settings = Settings { iterations: ITERATIONS, ..Settings::new(OFF * voxel) };
        self.candidates.clear();
        for i in 0..self.poses.len() {
            let Some((pose, _)) = self.poses.get(i).copied() else { continue };
            if (pose * sensor_up).z < UPRIGHT {
                continue;
            }
            let Some(alignment) = self.try_pose(&sketch, &pose, None, &settings, params) else { continue };
            let pose = &alignment.map_t_sensor;
            if !self.candidates.iter().any(|known| same(&known.alignment.map_t_sensor, pose, voxel)) {
                let evidence = self.aligner.verify(&self.index, &sketch, pose);
                self.candidates.push(PlaceCandidate { alignment, evidence });
            }
        }
        self.candidates.sort_by(|a, b| b.evidence.score.total_cmp(&a.evidence.score));
        self.sketch = sketch;
    }
}

/// Two poses are of one place.
pub fn same(a: &Rigid, b: &Rigid, voxel: f64) -> bool {
    let (angle, distance) = pose_error(a, b);
    distance < SAME.0 * voxel && angle < SAME.1
}

/// Takes away the rows that a pose explains.
fn peel(problem: &mut Problem, known: &[(Rigid, usize)], threshold: f64) {
    let mut left = Problem::with_capacity(problem.len());
    for row in problem.rows() {
        let explained = known.iter().any(|(pose, _)| (pose * row.source - row.target).norm() < threshold);
        if !explained {
            left.push(row);
        }
    }
    if let Some([source, target]) = problem.up() {
        left.set_up(source, target);
    }
    *problem = left;
}

/// Every so many-th point, so that about `most` are left.
pub(super) fn thin(surface: &Surface, most: usize, out: &mut Surface) {
    let step = surface.points.len().div_ceil(most.max(1)).max(1);
    out.points.clear();
    out.normals.clear();
    out.points.extend(surface.points.iter().step_by(step));
    out.normals.extend(surface.normals.iter().step_by(step));
}
