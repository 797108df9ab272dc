//! Alignment by distances to planes, coarse to fine.

use super::index::{cell_of, SurfaceIndex, Surfel};
use super::normal_equations::{information, parts, Groups, Observed, Shared, Sums};
use super::Alignment;
use crate::estimation::rotation;
use crate::features::Surface;
use crate::geometry::{Point, Pose, Rigid, Vector};
use nalgebra::{Matrix3, Matrix6, Vector6};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Points that one task of a thread handles; also what fixes the order of the sums.
const CHUNK: usize = 256;
/// Points that are enough while the distances are still coarse.
const COARSE_POINTS: usize = 1000;
/// Points that are enough for the last steps: what they have in common, not their noise, limits the accuracy.
const FINE_POINTS: usize = 4096;
/// The last distance at which points are matched, voxels: normals reach that far.
const FINEST: f64 = 2.0;
/// Cosine of the largest angle between the normals of points that are matched, 60 degrees.
const ALIKE: f64 = 0.5;
/// Edge of a patch of the scan that counts as one point against the prior, voxels.
const PATCH: f64 = 8.0;
/// Points that face the same way and whose planes are within this distance from each other belong to one surface,
/// voxels.
const SURFACE: f64 = 4.0;
/// Edge of the blocks of a surface whose points share errors, voxels.
const BLOCK: f64 = 16.0;
/// Errors that points share, of a whole surface and of a block of one: the deviation of an offset that is always
/// possible (m), and how much of what the residuals have in common counts. Fitted to the poses of 15 simulated drives
/// (four places, three LiDARs, the map made from sweeps that are 1 cm off). They explain the errors but for the pitch
/// outdoors, of which too few are within 2 sigma, and are wide for most angles and across tunnels. Residuals of blocks
/// count twice, since the pose has taken its share of them.
const SHARED: [Shared; 2] =
    [Shared { offset: 0.003, residuals: 1.0 }, Shared { offset: 0.007, residuals: 2.0 }];
/// Of Cauchy's weights for 95 % efficiency, deviations.
const CAUCHY: f64 = 2.385;
/// From the median of absolute values to the deviation.
const MEDIAN: f64 = 1.4826;
/// Smallest deviation of residuals that is believed, voxels.
const LEAST_DEVIATION: f64 = 0.02;
/// A step that is shorter ends the search, voxels.
const STEP: f64 = 0.01;

/// How a scan is aligned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How far a point may be from its place at first, m: more than the error of the guess at the distance of the
    /// points. It halves with every iteration.
    pub max_distance: f64,
    /// Iterations at most.
    pub iterations: usize,
}

impl Settings {
    /// For a guess whose points are this far from their place (m).
    pub fn new(max_distance: f64) -> Self {
        Self { max_distance, iterations: 15 }
    }
}

/// A point of the scan and the plane that it should lie on. All in axes of the map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// From the origin of the sensor to the point, m.
    pub lever: Vector,
    /// Of the map, and that of the scan turned to the same side, or zero.
    pub normal: Vector,
    pub scan_normal: Vector,
    /// Distance to the plane, m.
    pub residual: f64,
    /// There is such a plane.
    pub matched: bool,
}

const UNMATCHED: Row = Row {
    lever: Vector::new(0.0, 0.0, 0.0),
    normal: Vector::new(0.0, 0.0, 0.0),
    scan_normal: Vector::new(0.0, 0.0, 0.0),
    residual: 0.0,
    matched: false,
};

/// Aligns scans with the map. Its memory is reused.
pub struct Aligner {
    pub(super) pool: Arc<rayon::ThreadPool>,
    rows: Vec<Row>,
    sums: Vec<Sums>,
    residuals: Vec<f64>,
    patch_numbers: FxHashMap<[i64; 3], u32>,
    /// Surfaces, and their blocks.
    groups: [Groups; 2],
    pub(super) verification: super::verify::Memory,
}

impl Aligner {
    /// On these threads. Results do not depend on their number.
    pub fn new(pool: Arc<rayon::ThreadPool>) -> Self {
        Self {
            pool,
            rows: Vec::new(),
            sums: Vec::new(),
            residuals: Vec::new(),
            patch_numbers: FxHashMap::default(),
            groups: Default::default(),
            verification: Default::default(),
        }
    }

    /// Refines a guess of `map_t_sensor` until the scan lies on the surface of the map.
    ///
    /// Gauss-Newton on distances to planes (Chen and Medioni 1991) with Cauchy's weights, whose scale follows the
    /// residuals. `prior` is the covariance of the guess (translation, then rotation about the fixed axes of the map
    /// at the origin of the sensor); without one the guess is taken to be right to `settings.max_distance`. Directions
    /// that the scan does not fix stay with the guess.
    ///
    /// A scan that meets no surface comes back where it was guessed, with the covariance of the prior and no inliers.
    pub fn align(
        &mut self,
        map: &SurfaceIndex,
        scan: &Surface,
        guess: &Rigid,
        prior: Option<&Matrix6<f64>>,
        settings: &Settings,
    ) -> Alignment {
        let pool = self.pool.clone();
        pool.install(|| self.align_here(map, scan, guess, prior, settings))
    }

    fn align_here(
        &mut self,
        map: &SurfaceIndex,
        scan: &Surface,
        guess: &Rigid,
        prior: Option<&Matrix6<f64>>,
        settings: &Settings,
    ) -> Alignment {
        let voxel = map.voxel();
        let finest = FINEST * voxel;
        let coarsest = settings.max_distance.clamp(finest, map.reach().max(finest));
        let length = typical_range(scan).max(voxel);
        let default = {
            let turn = coarsest / length;
            let sigma = Vector6::new(coarsest, coarsest, coarsest, turn, turn, turn);
            Matrix6::from_diagonal(&sigma.component_mul(&sigma))
        };
        let usable = prior.and_then(|covariance| Some((covariance, information(covariance)?)));
        let (prior, prior_information) = match usable {
            Some((covariance, information)) => (*covariance, information),
            None => (default, information(&default).unwrap_or_else(Matrix6::zeros)),
        };
        let mut out = Alignment {
            map_t_sensor: *guess,
            covariance: prior,
            observed: 0,
            overlap: 0.0,
            rms: 0.0,
            inliers: 0,
            iterations: 0,
            converged: false,
        };
        let (guess_rotation, guess_translation) = parts(guess);
        let mut pose = Pose { rotation: guess_rotation, translation: guess_translation };
        if !pose.is_finite() {
            return out;
        }
        // As many independent points as there are patches: the weight of the scan against the prior.
        let independent = self.independent_share(scan, PATCH * voxel);
        let mut distance = coarsest;
        while out.iterations < settings.iterations {
            let stride = (1 << map.level(distance / FINEST)).min(scan.points.len() / COARSE_POINTS);
            let stride = stride.max(scan.points.len().div_ceil(FINE_POINTS)).max(1);
            self.find(map, scan, &pose, distance, stride);
            let Some((sums, deviation)) = self.sum(voxel, distance) else { break };
            let Some(observed) = Observed::new(&sums, length) else { break };
            let a = independent * stride as f64 / (deviation * deviation);
            let offset = difference(&pose, &guess_rotation, &guess_translation);
            let Some(step) = observed.step(&sums, a, &prior_information, &offset) else { break };
            out.iterations += 1;
            let (mut shift, mut turn) =
                (step.fixed_rows::<3>(0).into_owned(), step.fixed_rows::<3>(3).into_owned());
            // No further than points are looked for.
            let far = shift.norm() + turn.norm() * length;
            if far > distance {
                shift *= distance / far;
                turn *= distance / far;
            }
            pose.translation += shift;
            pose.rotation = rotation::exp(&turn) * pose.rotation;
            if distance <= finest && far < STEP * voxel {
                out.converged = true;
                break;
            }
            distance = (0.5 * distance).max(finest);
        }
        self.find(map, scan, &pose, finest, 1);
        let summed = self.sum(voxel, finest);
        let Some((sums, deviation)) = summed else { return Alignment { converged: false, ..out } };
        let Some(observed) = Observed::new(&sums, length) else {
            return Alignment { converged: false, ..out };
        };
        out.map_t_sensor = pose.to_rigid();
        out.observed = observed.count();
        let scores = self.scores(voxel, CAUCHY * deviation);
        let a = independent / (deviation * deviation);
        if let Some(covariance) = observed.covariance(&sums, a, &scores, &prior_information) {
            out.covariance = covariance;
        }
        self.judge(map, scan, &pose, &mut out);
        out
    }

    /// Share of the points that are independent: one a patch.
    fn independent_share(&mut self, scan: &Surface, patch: f64) -> f64 {
        self.patch_numbers.clear();
        for point in &scan.points {
            self.patch_numbers.insert(cell_of(point, patch), 0);
        }
        self.patch_numbers.len().max(1) as f64 / scan.points.len().max(1) as f64
    }

    /// Matches every `stride`-th point with the surface.
    fn find(&mut self, map: &SurfaceIndex, scan: &Surface, pose: &Pose, distance: f64, stride: usize) {
        self.rows.clear();
        self.rows.resize(scan.points.len().div_ceil(stride), UNMATCHED);
        self.rows.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, rows)| {
            let first = chunk * CHUNK * stride;
            let points = scan.points.iter().zip(&scan.normals).skip(first).step_by(stride);
            for (row, (point, normal)) in rows.iter_mut().zip(points) {
                *row = match_point(map, pose, point, normal, distance).map_or(UNMATCHED, |(row, _)| row);
            }
        });
    }

    /// Sums up the rows, with weights by their own deviation (m), which is returned. None without rows.
    fn sum(&mut self, voxel: f64, distance: f64) -> Option<(Sums, f64)> {
        self.residuals.clear();
        self.residuals.extend(self.rows.iter().filter(|row| row.matched).map(|row| row.residual.abs()));
        let middle = self.residuals.len() / 2;
        if self.residuals.is_empty() {
            return None;
        }
        let (_, median, _) = self.residuals.select_nth_unstable_by(middle, f64::total_cmp);
        let deviation = (MEDIAN * *median).clamp(LEAST_DEVIATION * voxel, distance);
        self.sums.clear();
        self.sums.resize(self.rows.len().div_ceil(CHUNK), Sums::default());
        self.sums.par_iter_mut().zip(self.rows.par_chunks(CHUNK)).for_each(|(sums, rows)| {
            for row in rows.iter().filter(|row| row.matched) {
                sums.add(row, CAUCHY * deviation);
            }
        });
        let mut total = Sums::default();
        self.sums.iter().for_each(|sums| total.merge(sums));
        Some((total, deviation))
    }

    /// Covariance of the gradient `sum w J r`: errors are those of whole walls and floors, and of parts of them, so
    /// that their points are not independent, however many they are. A surface that has few blocks has few independent
    /// errors to average: little structure makes the covariance wide.
    fn scores(&mut self, voxel: f64, scale: f64) -> Matrix6<f64> {
        self.groups.iter_mut().for_each(Groups::clear);
        for row in self.rows.iter().filter(|row| row.matched) {
            let axis = row.normal.iamax();
            let normal = row.normal * row.normal[axis].signum();
            let away = (row.lever.dot(&normal) / (SURFACE * voxel)).floor() as i64;
            let block = cell_of(&Point::from(row.lever), BLOCK * voxel);
            let [surfaces, blocks] = &mut self.groups;
            surfaces.add((axis, away, [0; 3]), row, scale);
            blocks.add((axis, away, block), row, scale);
        }
        self.groups.iter().zip(&SHARED).map(|(groups, shared)| groups.covariance(shared)).sum()
    }

    /// Overlap, inliers and residuals, from the rows of the last pose.
    fn judge(&mut self, map: &SurfaceIndex, scan: &Surface, pose: &Pose, out: &mut Alignment) {
        let near = super::verify::ON * map.voxel();
        let mut sum = 0.0;
        for row in self.rows.iter().filter(|row| row.matched && row.residual.abs() <= near) {
            out.inliers += 1;
            sum += row.residual * row.residual;
        }
        let explained = |(row, point): (&Row, &Point)| {
            row.matched || map.nearest(&place(pose, point), super::verify::EXPLAINED * map.voxel()).is_some()
        };
        let explained = self.rows.par_iter().zip(&scan.points).filter(|pair| explained(*pair)).count();
        out.overlap = out.inliers as f64 / explained.max(1) as f64;
        out.rms = (sum / out.inliers.max(1) as f64).sqrt();
    }
}

/// Where a point of the scan lies in the map.
pub(super) fn place(pose: &Pose, point: &Point) -> Point {
    Point::from(pose.apply(&point.coords))
}

/// The plane for a point: that of the nearest point of the map, if the normals agree.
pub(super) fn match_point<'a>(
    map: &'a SurfaceIndex,
    pose: &Pose,
    point: &Point,
    normal: &Vector,
    distance: f64,
) -> Option<(Row, &'a Surfel)> {
    let lever = pose.rotation * point.coords;
    let surfel = map.nearest(&Point::from(lever + pose.translation), distance)?;
    let turned = pose.rotation * normal;
    let cosine = turned.dot(&surfel.normal);
    let known = *normal != Vector::zeros();
    if known && (cosine.is_nan() || cosine.abs() < ALIKE) {
        return None;
    }
    let residual = surfel.normal.dot(&(lever + (pose.translation - surfel.point.coords)));
    let scan_normal = turned * cosine.signum();
    let row = Row { lever, normal: surfel.normal, scan_normal, residual, matched: true };
    Some((row, surfel))
}

/// Root mean square of the distances of points from the sensor, m.
fn typical_range(scan: &Surface) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for squared in scan.points.iter().map(|p| p.coords.norm_squared()).filter(|v| v.is_finite()) {
        sum += squared;
        count += 1.0;
    }
    (sum / f64::max(count, 1.0)).sqrt()
}

/// From a pose to another: translation, then rotation about the fixed axes of the map at the origin of the sensor.
fn difference(pose: &Pose, rotation_to: &Matrix3<f64>, translation_to: &Vector) -> Vector6<f64> {
    let shift = translation_to - pose.translation;
    let turn = rotation::log(&(rotation_to * pose.rotation.transpose()));
    Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z)
}
