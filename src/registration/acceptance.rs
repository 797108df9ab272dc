//! Whether a pose is to be trusted: what speaks for it and what else could explain it.
//!
//! A pose is `ok` only if it has far more support than chance gives, the support fixes every
//! degree of freedom, no reflection explains the input better, and no other pose comes near.

use super::layout::Layout;
use super::refine::{Kind, Refiner};
use super::result::Reason;
use crate::geometry::{Pose, Vector};
use crate::params::AcceptanceParams;
use crate::status::Status;
use multiversion::multiversion;
use nalgebra::{Matrix3, SymmetricEigen};

/// Source points for which chance matches are counted.
const SAMPLES: usize = 256;
/// Real mismatches go to places that look alike, so they hit by chance more often than matches
/// drawn from all targets would: walls match walls. Allowed for by this factor.
const CLUTTER: f64 = 3.0;
/// Inliers in one cell of this many thresholds are one piece of evidence.
const CELL: f64 = 2.0;
/// A reflection that fits better than the pose by this many standard deviations is the truth.
const MIRRORED: f64 = 2.0;
/// Differences of a squared residual below this share of the squared threshold may be rounding.
const ROUNDING: f64 = 1e-6;

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
    /// Eigenvalues of the scatter of the inliers, largest first, m^2.
    pub spread: [f64; 3],
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
    if let Some(mirror) = e.mirror.filter(|mirror| mirror.sigmas > MIRRORED) {
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

/// Buffers for the measurements.
#[derive(Debug, Default)]
pub struct Examiner {
    inliers: Vec<u32>,
    cells: Vec<[i32; 3]>,
}

impl Examiner {
    /// Room for `max` correspondences.
    pub fn with_capacity(max: usize) -> Self {
        Self { inliers: Vec::with_capacity(max), cells: Vec::with_capacity(max) }
    }

    /// Measures everything but the covariance and the runner-up, which the caller knows.
    /// `mask` says which correspondences are inliers.
    pub fn examine(
        &mut self,
        layout: &Layout,
        pose: &Pose,
        theta: f64,
        mask: &[bool],
        refiner: &mut Refiner,
    ) -> Evidence {
        let n = layout.count();
        self.inliers.clear();
        self.inliers.extend(mask.iter().enumerate().filter(|(_, inlier)| **inlier).map(|(i, _)| i as u32));
        let inliers = self.inliers.len();
        let chance = chance_inliers(layout, pose, theta);
        let (spread, plane) = self.spread_and_plane(layout);
        let off_line = if layout.up.is_some() { inliers } else { self.off_line(layout, theta) };
        let n_f = n as f64;
        // Any three correspondences may have made the pose; one more fixes the turn about a line.
        let triples = (n_f * (n_f - 1.0) * (n_f - 2.0) / 6.0).max(1.0).log10();
        Evidence {
            inliers,
            independent: self.independent(layout, theta),
            log10_false_alarms: triples + log10_poisson_tail(inliers as f64 - 3.0, chance),
            log10_false_alarms_off_line: n_f.max(1.0).log10()
                + log10_poisson_tail(off_line as f64 - 1.0, chance),
            spread,
            mirror: plane.and_then(|plane| mirror(layout, pose, &plane, theta, refiner)),
            weakest: None,
            runner_up: 0.0,
        }
    }

    /// Inliers that lie in different cells, counted in the frame where they are fewer.
    fn independent(&mut self, layout: &Layout, theta: f64) -> usize {
        let mut count = |point: &dyn Fn(usize) -> Vector| {
            self.cells.clear();
            self.cells.extend(self.inliers.iter().map(|i| {
                let cell = point(*i as usize) / (CELL * theta);
                [cell.x.floor() as i32, cell.y.floor() as i32, cell.z.floor() as i32]
            }));
            self.cells.sort_unstable();
            self.cells.dedup();
            self.cells.len()
        };
        count(&|i| layout.source_at(i)).min(count(&|i| layout.target_at(i)))
    }

    /// Eigenvalues of the scatter of the inliers' sources, largest first, and the reflection
    /// across their plane.
    fn spread_and_plane(&self, layout: &Layout) -> ([f64; 3], Option<Pose>) {
        let points = self.inliers.iter().map(|i| layout.source_at(*i as usize));
        let Some((centre, values, axes)) = scatter(points, |_| 1.0) else {
            return ([0.0; 3], None);
        };
        let normal: Vector = axes.column(2).into();
        let rotation = Matrix3::identity() - normal * normal.transpose() * 2.0;
        (values, Some(Pose { rotation, translation: normal * (2.0 * normal.dot(&centre)) }))
    }

    /// Inliers that are not on the line through most of them: what fixes the turn about it.
    fn off_line(&self, layout: &Layout, theta: f64) -> usize {
        let points = || self.inliers.iter().map(|i| layout.source_at(*i as usize));
        let Some((mut centre, _, axes)) = scatter(points(), |_| 1.0) else {
            return 0;
        };
        let mut axis: Vector = axes.column(0).into();
        let distance2 = |p: &Vector, centre: &Vector, axis: &Vector| {
            let d = p - centre;
            (d.norm_squared() - d.dot(axis).powi(2)) / (theta * theta)
        };
        for _ in 0..10 {
            // Reweighted, so that a few points off a line do not hide it.
            match scatter(points(), |p| 1.0 / (1.0 + distance2(p, &centre, &axis)).powi(2)) {
                Some((c, _, axes)) => (centre, axis) = (c, axes.column(0).into()),
                None => return 0,
            }
        }
        points().filter(|p| distance2(p, &centre, &axis) > 1.0).count()
    }
}

/// All points lie within half a threshold (root mean square) of a line or a point.
pub fn is_line(points: impl Iterator<Item = Vector> + Clone, theta: f64) -> bool {
    scatter(points, |_| 1.0).is_none_or(|(_, values, _)| values[1] < 0.25 * theta * theta)
}

/// Weighted centroid, eigenvalues of the scatter (variances, largest first) and their axes.
fn scatter(
    points: impl Iterator<Item = Vector> + Clone,
    weight: impl Fn(&Vector) -> f64,
) -> Option<(Vector, [f64; 3], Matrix3<f64>)> {
    let (mut sum, mut total) = (Vector::zeros(), 0.0);
    for p in points.clone() {
        let w = weight(&p);
        sum += p * w;
        total += w;
    }
    if total.is_nan() || total <= 0.0 {
        return None;
    }
    let centre = sum / total;
    let mut second = Matrix3::zeros();
    for p in points {
        let d = p - centre;
        second += d * (d.transpose() * weight(&p));
    }
    let eigen = SymmetricEigen::try_new(second / total, f64::EPSILON, 200)?;
    let mut order = [0, 1, 2];
    order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
    let axes = Matrix3::from_columns(&order.map(|k| eigen.eigenvectors.column(k).into_owned()));
    Some((centre, order.map(|k| eigen.eigenvalues[k].max(0.0)), axes))
}

/// Number of inliers to be expected under the pose if every source had been matched to a target
/// drawn at random (and [`CLUTTER`] times that, for matches that are wrong but not random).
fn chance_inliers(layout: &Layout, pose: &Pose, theta: f64) -> f64 {
    let n = layout.count();
    let samples = SAMPLES.min(n);
    let theta2 = (theta * theta) as f32;
    let mut hits = 0u64;
    for k in 0..samples {
        let i = k * n / samples;
        let q = pose.apply(&layout.source_at(i)).map(|v| v as f32);
        let own = (q - layout.target_at(i).map(|v| v as f32)).norm_squared() < theta2;
        hits += u64::from(count_near(layout, [q.x, q.y, q.z], theta2)) - u64::from(own);
    }
    (CLUTTER * hits as f64 + 1.0) / samples as f64
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn count_near(layout: &Layout, q: [f32; 3], theta2: f32) -> u32 {
    let mut count = 0;
    let t = &layout.target;
    for ((x, y), z) in t[0].iter().zip(&t[1]).zip(&t[2]) {
        let (x, y, z) = (q[0] - x, q[1] - y, q[2] - z);
        count += u32::from((x * x + y * y) + z * z < theta2);
    }
    count
}

/// Upper bound (Chernoff) of log10 P(X >= k) for a Poisson variable.
fn log10_poisson_tail(k: f64, mean: f64) -> f64 {
    match k > mean {
        true => (k - mean - k * (k / mean).ln()) / std::f64::consts::LN_10,
        false => 0.0,
    }
}

/// The best reflection, compared with the pose.
#[derive(Debug, Clone, Copy)]
pub struct Mirror {
    /// Its inliers.
    pub inliers: usize,
    /// By how many standard deviations it fits better.
    pub sigmas: f64,
}

/// The reflection across the inliers' plane. A scene flatter than the threshold keeps all its
/// inliers when it is mirrored, so the residuals are compared: for each correspondence the gain of
/// the one over the other in the truncated quadratic score, and their sum with its own noise.
fn mirror(layout: &Layout, pose: &Pose, across: &Pose, theta: f64, refiner: &mut Refiner) -> Option<Mirror> {
    let start = Pose {
        rotation: pose.rotation * across.rotation,
        translation: pose.rotation * across.translation + pose.translation,
    };
    let mirror = refiner.refine(layout, &start, theta, Kind::Reflection)?;
    let loss = |pose: &Pose, i: usize| {
        let r2 = (pose.apply(&layout.source_at(i)) - layout.target_at(i)).norm_squared();
        // NaN, of absurd coordinates, becomes 1 too.
        (r2 / (theta * theta)).min(1.0)
    };
    let (mut inliers, mut gain, mut noise2) = (0, 0.0, 0.0);
    for i in 0..layout.count() {
        let (of_mirror, of_pose) = (loss(&mirror, i), loss(pose, i));
        inliers += usize::from(of_mirror < 1.0);
        gain += of_pose - of_mirror;
        noise2 += (of_pose - of_mirror).powi(2) + ROUNDING * ROUNDING;
    }
    Some(Mirror { inliers, sigmas: gain / noise2.sqrt() })
}

/// Another pose compared with the one found.
#[derive(Debug, Clone, Copy)]
pub struct Rivalry {
    /// Root mean square distance (m) by which the two lay the inliers of either apart.
    pub separation: f64,
    /// Inliers of the other alone, relative to the inliers of the pose alone, at most 1. What both
    /// explain speaks for neither.
    pub support: f64,
}

/// Compares `other` with the pose whose inliers are in `mask`.
pub fn rivalry(layout: &Layout, pose: &Pose, mask: &[bool], other: &Pose, theta: f64) -> Rivalry {
    let (mut sum, mut inliers) = (0.0, 0usize);
    let (mut only_pose, mut only_other) = (0usize, 0usize);
    for (i, inlier) in mask.iter().enumerate() {
        let p = layout.source_at(i);
        let q = other.apply(&p);
        let within = (q - layout.target_at(i)).norm_squared() < theta * theta;
        if *inlier || within {
            sum += (pose.apply(&p) - q).norm_squared();
            inliers += 1;
        }
        only_pose += usize::from(*inlier && !within);
        only_other += usize::from(within && !*inlier);
    }
    let support = only_other as f64 / only_pose.max(1) as f64;
    Rivalry { separation: (sum / inliers.max(1) as f64).sqrt(), support: support.min(1.0) }
}
