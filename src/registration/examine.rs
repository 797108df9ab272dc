//! Measurements under a pose on the CPU. The arithmetic and its order are those of
//! `kernels/examine.cu`.

use super::findings::{Comparison, Information, Measured, Mirror, Rival};
use super::hypotheses::{self, place, single, Hypothesis, Scoring};
use super::layout::Layout;
use super::refine::{apply, influence, numbers, pose_of, Aim, Numbers, Refiner};
use super::sums::{symmetric_eigen, Sums, AXES, LANES, SWEEPS};
use crate::geometry::{Pose, Vector};
use multiversion::multiversion;

/// Source points for which chance matches are counted.
pub const SAMPLES: usize = 256;
/// Inliers in one cell of this many thresholds are one piece of evidence.
pub const CELL: f64 = 2.0;
/// Differences of a squared residual below this share of the squared threshold may be rounding.
const ROUNDING: f64 = 1e-6;
/// Reweightings of the line through most inliers.
const LINES: usize = 6;
/// Sweeps for its axes after each: these come nearer together with the weights.
const FEW_SWEEPS: usize = 1;

/// Measures; the buffers are reused.
#[derive(Debug, Default)]
pub struct Examiner {
    inliers: Vec<u32>,
    cells: Vec<[i32; 3]>,
    points: [Vec<f64>; 3],
}

/// Centroid, eigenvalues of the scatter (variances, largest first) and their axes.
type Scatter = ([f64; 3], [f64; 3], [[f64; 3]; 3]);

impl Examiner {
    /// Room for `max` correspondences.
    pub fn with_capacity(max: usize) -> Self {
        let points = || Vec::with_capacity(max);
        Self {
            inliers: Vec::with_capacity(max),
            cells: Vec::with_capacity(max),
            points: [points(), points(), points()],
        }
    }

    /// Sources of the inliers.
    fn points(&self) -> impl Iterator<Item = [f64; 3]> + Clone + '_ {
        let [x, y, z] = &self.points;
        x.iter().zip(y).zip(z).map(|((x, y), z)| [*x, *y, *z])
    }

    /// Measures under a pose; `mask` says which correspondences are its inliers. The refiner has just
    /// made the pose.
    pub fn examine(
        &mut self,
        layout: &Layout,
        pose: &Pose,
        theta: f64,
        mask: &[bool],
        refiner: &mut Refiner,
    ) -> Measured {
        self.inliers.clear();
        self.inliers.extend(mask.iter().enumerate().filter(|(_, inlier)| **inlier).map(|(i, _)| i as u32));
        self.points.iter_mut().for_each(Vec::clear);
        for i in &self.inliers {
            let p = layout.source_at(*i as usize);
            self.points.iter_mut().zip(p.iter()).for_each(|(column, value)| column.push(*value));
        }
        let pose = numbers(pose);
        let weight = refiner.weight();
        let about = self.points().next().unwrap_or_default();
        let scattered = scatter(self.points(), about, (AXES, SWEEPS), |_| 1.0);
        let upright = layout.up.is_some();
        Measured {
            inliers: self.inliers.len(),
            independent: self.independent(layout, theta),
            off_line: if upright { self.inliers.len() } else { self.off_line(scattered.as_ref(), theta) },
            samples: SAMPLES.min(layout.count()),
            chance_hits: chance_hits(layout, &pose, theta),
            spread: scattered.map_or([0.0; 3], |(_, values, _)| values.map(|v| v.max(0.0))),
            mirror: scattered.and_then(|s| mirror(layout, &pose, &s, theta, weight, refiner)),
            information: information(layout, &pose, theta),
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

    /// Inliers that are not on the line through most of them: what fixes the turn about it.
    fn off_line(&self, start: Option<&Scatter>, theta: f64) -> usize {
        let Some((mut centre, _, mut axes)) = start else {
            return 0;
        };
        let per_theta2 = 1.0 / (theta * theta);
        for _ in 0..LINES {
            // Reweighted, so that a few points off a line do not hide it.
            let weight = |p: [f64; 3]| {
                let g = 1.0 + beside(p, centre, axes[0], per_theta2);
                1.0 / (g * g)
            };
            match scatter(self.points(), centre, (axes, FEW_SWEEPS), weight) {
                Some((c, _, found)) => (centre, axes) = (c, found),
                None => return 0,
            }
        }
        self.points().filter(|p| beside(*p, centre, axes[0], per_theta2) > 1.0).count()
    }
}

/// Squared distance from a line relative to the squared threshold.
fn beside(p: [f64; 3], centre: [f64; 3], axis: [f64; 3], per_theta2: f64) -> f64 {
    let d = [p[0] - centre[0], p[1] - centre[1], p[2] - centre[2]];
    let along = (d[0] * axis[0] + d[1] * axis[1]) + d[2] * axis[2];
    (((d[0] * d[0] + d[1] * d[1]) + d[2] * d[2]) - along * along) * per_theta2
}

/// Points lie within half a threshold (root mean square) of a line or a point.
pub fn is_line(points: impl Iterator<Item = [f64; 3]> + Clone, theta: f64) -> bool {
    let about = points.clone().next().unwrap_or_default();
    scatter(points, about, (AXES, SWEEPS), |_| 1.0)
        .is_none_or(|(_, values, _)| values[1] < 0.25 * theta * theta)
}

/// Sums are taken about a point that is near the centroid, or among the points; the axes are looked for
/// from some on, in so many sweeps.
fn scatter(
    points: impl Iterator<Item = [f64; 3]>,
    about: [f64; 3],
    (from, sweeps): ([[f64; 3]; 3], usize),
    weight: impl Fn([f64; 3]) -> f64,
) -> Option<Scatter> {
    let mut sums = Sums::<10>::new();
    for (i, p) in points.enumerate() {
        let w = weight(p);
        let d = [p[0] - about[0], p[1] - about[1], p[2] - about[2]];
        let [x, y, z] = d.map(|d| w * d);
        sums.add(i, [w, x, y, z, x * d[0], y * d[1], z * d[2], x * d[1], x * d[2], y * d[2]]);
    }
    let [total, x, y, z, square @ ..] = sums.totals();
    if !(total > 0.0 && total.is_finite()) {
        return None;
    }
    let m = [x / total, y / total, z / total];
    let products = [m[0] * m[0], m[1] * m[1], m[2] * m[2], m[0] * m[1], m[0] * m[2], m[1] * m[2]];
    let (values, axes) =
        symmetric_eigen(&std::array::from_fn(|k| square[k] / total - products[k]), from, sweeps);
    Some(([about[0] + m[0], about[1] + m[1], about[2] + m[2]], values, axes))
}

/// Hits of targets but their own by source points, each brought to where the pose takes it.
fn chance_hits(layout: &Layout, pose: &Numbers, theta: f64) -> u64 {
    let n = layout.count();
    let samples = SAMPLES.min(n);
    let theta2 = (theta * theta) as f32;
    let mut hits = 0u64;
    for k in 0..samples {
        let i = k * n / samples;
        let s = layout.source_at(i);
        let q = apply(pose, [s.x, s.y, s.z]).map(|v| v as f32);
        let t = layout.target();
        let d = [q[0] - t[0][i], q[1] - t[1][i], q[2] - t[2][i]];
        let own = (d[0] * d[0] + d[1] * d[1]) + d[2] * d[2] < theta2;
        hits += u64::from(count_near(layout, q, theta2)) - u64::from(own);
    }
    hits
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn count_near(layout: &Layout, q: [f32; 3], theta2: f32) -> u32 {
    let mut count = 0;
    let t = layout.target();
    for ((x, y), z) in t[0].iter().zip(t[1]).zip(t[2]) {
        let (x, y, z) = (q[0] - x, q[1] - y, q[2] - z);
        count += u32::from((x * x + y * y) + z * z < theta2);
    }
    count
}

/// Point under the pose and squared residual (m^2) of correspondence `i`.
fn residual(layout: &Layout, pose: &Numbers, i: usize) -> ([f64; 3], f64) {
    let (s, t) = (layout.source_at(i), layout.target_at(i));
    let p = apply(pose, [s.x, s.y, s.z]);
    let e = [t.x - p[0], t.y - p[1], t.z - p[2]];
    (p, (e[0] * e[0] + e[1] * e[1]) + e[2] * e[2])
}

/// The reflection across the inliers' plane. A scene flatter than the threshold keeps all its
/// inliers when it is mirrored, so the residuals are compared: for each correspondence the gain of
/// the one over the other in the truncated quadratic score, and their sum with its own noise.
fn mirror(
    layout: &Layout,
    pose: &Numbers,
    (centre, _, axes): &Scatter,
    theta: f64,
    weight: f64,
    refiner: &mut Refiner,
) -> Option<Mirror> {
    let start = pose_of(&mirrored(pose, centre, &axes[2]));
    let mirror = numbers(&refiner.refine(layout, &start, theta, Aim::Rival(weight))?);
    let per_theta2 = 1.0 / (theta * theta);
    // NaN, of absurd coordinates, becomes 1 too.
    let loss = |pose: &Numbers, i: usize| (residual(layout, pose, i).1 * per_theta2).min(1.0);
    let mut inliers = 0;
    let mut sums = Sums::<2>::new();
    for i in 0..layout.count() {
        let (of_mirror, of_pose) = (loss(&mirror, i), loss(pose, i));
        inliers += usize::from(of_mirror < 1.0);
        let gain = of_pose - of_mirror;
        sums.add(i, [gain, gain * gain + ROUNDING * ROUNDING]);
    }
    let [gain, noise2] = sums.totals();
    Some(Mirror { inliers, gain, noise2 })
}

/// The pose after a reflection across the plane through `centre` with the unit normal `n`.
fn mirrored(pose: &Numbers, centre: &[f64; 3], n: &[f64; 3]) -> Numbers {
    let offset = 2.0 * ((n[0] * centre[0] + n[1] * centre[1]) + n[2] * centre[2]);
    let mut out = *pose;
    for i in 0..3 {
        let row = [pose[3 * i], pose[3 * i + 1], pose[3 * i + 2]];
        let along = (row[0] * n[0] + row[1] * n[1]) + row[2] * n[2];
        for j in 0..3 {
            out[3 * i + j] = row[j] - (2.0 * along) * n[j];
        }
        out[9 + i] = pose[9 + i] + offset * along;
    }
    out
}

fn information(layout: &Layout, pose: &Numbers, theta: f64) -> Information {
    let per_theta2 = 1.0 / (theta * theta);
    let mut sums = Sums::<12>::new();
    let mut radius2 = 0.0f64;
    for i in 0..layout.count() {
        let s = layout.source_at(i);
        radius2 = radius2.max((s.x * s.x + s.y * s.y) + s.z * s.z);
        let (p, e2) = residual(layout, pose, i);
        let w = influence(e2 * per_theta2, f64::from(layout.weight()[i]));
        if w > 0.0 {
            let wp = p.map(|p| w * p);
            let [x, y, z] = wp;
            sums.add(
                i,
                [w, x, y, z, x * p[0], y * p[1], z * p[2], x * p[1], x * p[2], y * p[2], w * e2, 1.0],
            );
        }
    }
    let t = sums.totals();
    Information {
        weight: t[0],
        point: [t[1], t[2], t[3]],
        product: [t[4], t[5], t[6], t[7], t[8], t[9]],
        error: t[10],
        count: t[11],
        radius2,
    }
}

/// Compares another pose with the one whose inliers are in `mask`. Single precision, as the scores.
pub fn rival(
    layout: &Layout,
    pose: &Pose,
    mask: &[bool],
    other: &Pose,
    theta: f64,
    scoring: Scoring,
) -> Rival {
    let (a, b) = (single(pose), single(other));
    let theta2 = scoring.theta2();
    let per_theta2 = 1.0 / theta2;
    let (source, target) = (layout.source(), layout.target());
    let mut found = Comparison::default();
    for (i, inlier) in mask.iter().enumerate() {
        let (s, t) = (source.map(|array| array[i]), target.map(|array| array[i]));
        let q = place(&b, s);
        let e = [q[0] - t[0], q[1] - t[1], q[2] - t[2]];
        let within = (e[0] * e[0] + e[1] * e[1]) + e[2] * e[2] < theta2;
        if *inlier || within {
            let p = place(&a, s);
            let d = [p[0] - q[0], p[1] - q[1], p[2] - q[2]];
            found.add(((d[0] * d[0] + d[1] * d[1]) + d[2] * d[2]) * per_theta2);
        }
        found.only_pose += u32::from(*inlier && !within);
        found.only_other += u32::from(within && !*inlier);
    }
    let (score, inliers) = hypotheses::score(layout, other, scoring);
    found.rival(Hypothesis { pose: *other, score, inliers }, theta)
}

const _: () = assert!(LANES == 256, "the layout of the kernels");
