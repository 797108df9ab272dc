//! Refinement of a pose by all correspondences.
//!
//! Minimises the Geman-McClure cost `sum w r^2 / (theta^2 + r^2)` by reweighting: residuals up to
//! the inlier threshold theta count nearly fully, larger ones fade, beyond 3 theta they are
//! ignored. Against a hard cut at theta (appendix A10 of the design) this keeps the true
//! correspondences whose noise is larger than theta.
//!
//! The cost is drawn down by a hundredth of the residual, so that the influence ends at 3 theta
//! without a jump.
//!
//! Each iteration solves for a step about the weighted centroid: the translation of the centroids,
//! and a turn. Reweighting alone converges slowly where noise is near theta, because its equations
//! take the weights for fixed; Newton's equations know how they change (what couples turn and
//! translation is left out). They are used where they are positive definite, and a step of theirs
//! that makes the cost larger is replaced by one of reweighting. The turn is applied as a
//! rotation, so a start that is a reflection stays one, and the best reflection is found the same
//! way.
//!
//! Only + - * / in a fixed order (see `sums.rs`): `kernels/refine.cu` gives the same bits.

use super::hypotheses::within;
use super::layout::Layout;
use super::sums::{Sums, LANES};
use crate::geometry::{Pose, Vector};
use multiversion::multiversion;
use nalgebra::Matrix3;

/// Residuals beyond this many thresholds have no influence.
pub const CUT: f64 = 3.0;
/// Correspondences within this many thresholds of the start are looked at.
const REACH: f64 = 6.0;
/// Most iterations for the best pose, and where a pose is only to be ranked.
const ITERATIONS: usize = 30;
const FEW_ITERATIONS: usize = 16;
/// A step below this (rad, and centroid in thresholds) ends the refinement.
const FINE: f64 = 1e-6;
/// The same where a pose is only to be ranked.
const COARSE: f64 = 1e-3;
/// Iterations after which a pose may be given up, if its weight is below this share of the other's.
const PATIENCE: usize = 4;
const HOPELESS: f64 = 0.25;
/// Added to the moments of inertia, as a share of their sum: a line has no turn about itself.
const DAMPING: f64 = 1e-9;

/// Newton's equations are used if their determinant is above this share of that of reweighting.
const DEFINITE: f64 = 1e-3;
/// A cost may grow by this share: rounding.
const LEVEL: f64 = 1.0 + 1e-12;

/// What one iteration sums, see `accumulate`.
const SUMS: usize = 29;
/// Lanes that are summed at a time.
const ABREAST: usize = 8;

/// How far a refinement goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// Good enough to be ranked.
    Rank,
    /// The same, but given up where it falls far behind a pose of this weight.
    Rival(f64),
    /// The same as if all correspondences had the same weight.
    RankUnweighted,
    /// The best.
    Best,
}

/// Squared residuals (m^2) below which a correspondence supports a pose, also a little.
pub fn cut2(theta: f64) -> f32 {
    (CUT * theta).powi(2) as f32
}

/// Squared residuals (m^2) under the start below which a correspondence is looked at.
pub fn reach2(theta: f64) -> f32 {
    (REACH * theta).powi(2) as f32
}

/// Rotation row by row, then translation.
pub type Numbers = [f64; 12];

/// The numbers of a pose.
pub fn numbers(pose: &Pose) -> Numbers {
    let (r, t) = (&pose.rotation, &pose.translation);
    std::array::from_fn(|k| if k < 9 { r[(k / 3, k % 3)] } else { t[k - 9] })
}

/// The pose of the numbers.
pub fn pose_of(p: &Numbers) -> Pose {
    Pose { rotation: Matrix3::from_fn(|i, j| p[3 * i + j]), translation: Vector::new(p[9], p[10], p[11]) }
}

/// Where the pose takes a point.
#[inline(always)]
pub fn apply(p: &Numbers, s: [f64; 3]) -> [f64; 3] {
    let row = |k: usize| ((p[3 * k] * s[0] + p[3 * k + 1] * s[1]) + p[3 * k + 2] * s[2]) + p[9 + k];
    [row(0), row(1), row(2)]
}

/// Makes the influence 1 where there is no residual.
const SCALE: f64 = 1.0 / 0.99;

/// Weight of a correspondence by its squared residual relative to the squared threshold.
#[inline(always)]
pub fn influence(r2: f64, weight: f64) -> f64 {
    let g = 1.0 / (1.0 + r2);
    if r2 < CUT * CUT {
        (g * g - 0.01) * (SCALE * weight)
    } else {
        0.0
    }
}

/// Refines poses; the buffers are reused.
#[derive(Debug)]
pub struct Refiner {
    /// Source, target and weight of the correspondences near the start, filled up with weight zero
    /// to a multiple of the lanes.
    near: [Vec<f64>; 7],
    sums: Box<Sums<SUMS>>,
    weight: f64,
}

impl Refiner {
    /// Room for `max` correspondences.
    pub fn with_capacity(max: usize) -> Self {
        let near = || Vec::with_capacity(max.next_multiple_of(LANES));
        let near = [near(), near(), near(), near(), near(), near(), near()];
        Self { near, sums: Box::new(Sums::new()), weight: 0.0 }
    }

    /// Weight of influence before the last step of the last refinement.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The best pose near `start`, a reflection if `start` is one; `None` if no correspondence is
    /// near.
    pub fn refine(&mut self, layout: &Layout, start: &Pose, theta: f64, aim: Aim) -> Option<Pose> {
        self.go_on(layout, start, start, theta, aim)
    }

    /// The same from another pose on, with the correspondences that are near `start`.
    pub fn go_on(
        &mut self,
        layout: &Layout,
        start: &Pose,
        from: &Pose,
        theta: f64,
        aim: Aim,
    ) -> Option<Pose> {
        self.gather(layout, start, reach2(theta), aim != Aim::RankUnweighted);
        let (step, most) = match aim {
            Aim::Best => (FINE, ITERATIONS),
            Aim::Rank | Aim::Rival(_) | Aim::RankUnweighted => (COARSE, FEW_ITERATIONS),
        };
        let least = if let Aim::Rival(weight) = aim { HOPELESS * weight } else { 0.0 };
        let (per_theta2, up) = (1.0 / (theta * theta), layout.up.map(|[_, up]| [up.x, up.y, up.z]));
        let mut pose = numbers(from);
        let mut about = [0.0; 3];
        // Where the last step of Newton came from.
        let mut before: Option<(Numbers, [f64; 3], [f64; SUMS])> = None;
        for iteration in 0..most {
            accumulate(&self.near, &pose, &about, per_theta2, &mut self.sums);
            let mut sums = self.sums.totals();
            let mut newton = iteration > 0;
            if let Some((from, then, its)) = before.filter(|(_, _, its)| sums[COST] > its[COST] * LEVEL) {
                (pose, about, sums, newton) = (from, then, its, false);
            }
            before = newton.then_some((pose, about, sums));
            self.weight = sums[0];
            if iteration >= PATIENCE && self.weight < least {
                break;
            }
            let [turn2, move2] = advance(&mut pose, &mut about, &sums, up, newton)?;
            if turn2 < step * step && move2 < (step * theta) * (step * theta) {
                break;
            }
        }
        let pose = pose_of(&pose);
        pose.is_finite().then_some(pose)
    }

    fn gather(&mut self, layout: &Layout, start: &Pose, reach2: f32, weighted: bool) {
        self.near.iter_mut().for_each(Vec::clear);
        for i in within(layout, start, reach2) {
            let (s, t) = (layout.source_at(i), layout.target_at(i));
            let weight = if weighted { f64::from(layout.weight()[i]) } else { 1.0 };
            for (column, value) in self.near.iter_mut().zip([s.x, s.y, s.z, t.x, t.y, t.z, weight]) {
                column.push(value);
            }
        }
        let filled = self.near[0].len().next_multiple_of(LANES);
        self.near.iter_mut().for_each(|column| column.resize(filled, 0.0));
    }
}

/// The cost among the sums.
const COST: usize = 28;

/// Sums of one iteration: weight; weight times point (3), residual (3), products of the point's
/// coordinates (xx yy zz xy xz yz), point x residual (3); change of weight times products of the
/// residual's coordinates (6), of those of point x residual (6); cost. Points are those under the
/// pose, relative to `about`.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
fn accumulate(
    near: &[Vec<f64>; 7],
    pose: &Numbers,
    about: &[f64; 3],
    per_theta2: f64,
    sums: &mut Sums<SUMS>,
) {
    let count = near[0].len();
    for first in (0..LANES).step_by(ABREAST) {
        let mut sum = [[0.0; ABREAST]; SUMS];
        for start in (first..count).step_by(LANES) {
            let column = |k: usize| &near[k][start..start + ABREAST];
            let [sx, sy, sz, tx, ty, tz, w] = [0, 1, 2, 3, 4, 5, 6].map(column);
            for l in 0..ABREAST {
                let [px, py, pz] = apply(pose, [sx[l], sy[l], sz[l]]);
                let (ex, ey, ez) = (tx[l] - px, ty[l] - py, tz[l] - pz);
                let (qx, qy, qz) = (px - about[0], py - about[1], pz - about[2]);
                let r2 = ((ex * ex + ey * ey) + ez * ez) * per_theta2;
                let (within, weight) = (r2 < CUT * CUT, SCALE * w[l]);
                let r2 = if within { r2 } else { CUT * CUT };
                let g = 1.0 / (1.0 + r2);
                let w = if within { (g * g - 0.01) * weight } else { 0.0 };
                let change = if within { ((4.0 * per_theta2) * (g * g)) * (g * weight) } else { 0.0 };
                let (wx, wy, wz) = (w * qx, w * qy, w * qz);
                sum[0][l] += w;
                sum[1][l] += wx;
                sum[2][l] += wy;
                sum[3][l] += wz;
                sum[4][l] += w * ex;
                sum[5][l] += w * ey;
                sum[6][l] += w * ez;
                sum[7][l] += wx * qx;
                sum[8][l] += wy * qy;
                sum[9][l] += wz * qz;
                sum[10][l] += wx * qy;
                sum[11][l] += wx * qz;
                sum[12][l] += wy * qz;
                sum[13][l] += wy * ez - wz * ey;
                sum[14][l] += wz * ex - wx * ez;
                sum[15][l] += wx * ey - wy * ex;
                let (cx, cy, cz) = (change * ex, change * ey, change * ez);
                sum[16][l] += cx * ex;
                sum[17][l] += cy * ey;
                sum[18][l] += cz * ez;
                sum[19][l] += cx * ey;
                sum[20][l] += cx * ez;
                sum[21][l] += cy * ez;
                let (tx, ty, tz) = (qy * ez - qz * ey, qz * ex - qx * ez, qx * ey - qy * ex);
                let (cx, cy, cz) = (change * tx, change * ty, change * tz);
                sum[22][l] += cx * tx;
                sum[23][l] += cy * ty;
                sum[24][l] += cz * tz;
                sum[25][l] += cx * ty;
                sum[26][l] += cx * tz;
                sum[27][l] += cy * tz;
                sum[COST][l] += (r2 * g - 0.01 * r2) * weight;
            }
        }
        for (lanes, sum) in sums.lanes.iter_mut().zip(&sum) {
            lanes[first..first + ABREAST].copy_from_slice(sum);
        }
    }
}

/// Determinant, cofactors (xx yy zz xy xz yz) and whether all minors are positive, of a symmetric
/// matrix.
struct Cofactors {
    determinant: f64,
    of: [f64; 6],
    definite: bool,
}

impl Cofactors {
    fn new([xx, yy, zz, xy, xz, yz]: [f64; 6]) -> Self {
        let (a, b, c) = (yy * zz - yz * yz, xx * zz - xz * xz, xx * yy - xy * xy);
        let (d, e, f) = (xz * yz - xy * zz, xy * yz - xz * yy, xy * xz - xx * yz);
        let determinant = (xx * a + xy * d) + xz * e;
        let definite = xx > 0.0 && c > 0.0 && determinant > 0.0;
        Self { determinant, of: [a, b, c, d, e, f], definite }
    }

    fn solve(&self, v: &[f64; 3]) -> [f64; 3] {
        let ([a, b, c, d, e, f], per) = (self.of, 1.0 / self.determinant);
        [
            ((a * v[0] + d * v[1]) + e * v[2]) * per,
            ((d * v[0] + b * v[1]) + f * v[2]) * per,
            ((e * v[0] + f * v[1]) + c * v[2]) * per,
        ]
    }
}

/// Quadratic form of a symmetric matrix.
fn quadratic([xx, yy, zz, xy, xz, yz]: &[f64; 6], u: &[f64; 3]) -> f64 {
    let x = (xx * u[0] + xy * u[1]) + xz * u[2];
    let y = (xy * u[0] + yy * u[1]) + yz * u[2];
    let z = (xz * u[0] + yz * u[1]) + zz * u[2];
    (u[0] * x + u[1] * y) + u[2] * z
}

/// Moments of inertia xx yy zz xy xz yz about the centroid `c`, from weighted points and weighted
/// products.
pub fn inertia(c: &[f64; 3], point: &[f64; 3], product: &[f64; 6]) -> [f64; 6] {
    let xx = product[0] - point[0] * c[0];
    let yy = product[1] - point[1] * c[1];
    let zz = product[2] - point[2] * c[2];
    let xy = product[3] - point[0] * c[1];
    let xz = product[4] - point[0] * c[2];
    let yz = product[5] - point[1] * c[2];
    [yy + zz, xx + zz, xx + yy, -xy, -xz, -yz]
}

/// One step, and the centroid as the point that the next one is about; squares of the turn (rad)
/// and of the way of the centroid (m). `None` without weight.
fn advance(
    pose: &mut Numbers,
    about: &mut [f64; 3],
    s: &[f64; SUMS],
    up: Option<[f64; 3]>,
    newton: bool,
) -> Option<[f64; 2]> {
    let weight = s[0];
    if !(weight > 0.0 && weight.is_finite()) {
        return None;
    }
    let (point, per_weight) = ([s[1], s[2], s[3]], 1.0 / weight);
    let c = point.map(|p| p * per_weight);
    let mut d = [s[4] * per_weight, s[5] * per_weight, s[6] * per_weight];
    let inertia = inertia(&c, &point, &[s[7], s[8], s[9], s[10], s[11], s[12]]);
    let torque = [
        s[13] - (c[1] * s[6] - c[2] * s[5]),
        s[14] - (c[2] * s[4] - c[0] * s[6]),
        s[15] - (c[0] * s[5] - c[1] * s[4]),
    ];
    let curved: [f64; 6] = std::array::from_fn(|k| inertia[k] - s[22 + k]);
    if newton {
        let flat = [weight - s[16], weight - s[17], weight - s[18], -s[19], -s[20], -s[21]];
        let flat = Cofactors::new(flat);
        if flat.definite && flat.determinant > DEFINITE * ((weight * weight) * weight) {
            d = flat.solve(&[s[4], s[5], s[6]]);
        }
    }
    let mut turn = [0.0; 3];
    match up {
        None => {
            let damping = DAMPING * ((inertia[0] + inertia[1]) + inertia[2]);
            let damped = |m: [f64; 6]| [m[0] + damping, m[1] + damping, m[2] + damping, m[3], m[4], m[5]];
            let (plain, curved) = (Cofactors::new(damped(inertia)), Cofactors::new(damped(curved)));
            let better = newton && curved.definite && curved.determinant > DEFINITE * plain.determinant;
            let taken = if better { curved } else { plain };
            if taken.determinant > 0.0 {
                turn = taken.solve(&torque);
            }
        }
        Some(u) => {
            let (plain, curved) = (quadratic(&inertia, &u), quadratic(&curved, &u));
            let taken = if newton && curved > 0.1 * plain { curved } else { plain };
            if taken > 0.0 {
                let angle = ((u[0] * torque[0] + u[1] * torque[1]) + u[2] * torque[2]) / taken;
                turn = u.map(|u| u * angle);
            }
        }
    }
    let turn2 = (turn[0] * turn[0] + turn[1] * turn[1]) + turn[2] * turn[2];
    // Cayley's rotation by the turn.
    let [x, y, z] = turn.map(|t| t * 0.5);
    let f = 2.0 / (1.0 + turn2 * 0.25);
    let q = [
        [1.0 - f * (y * y + z * z), f * (x * y - z), f * (x * z + y)],
        [f * (x * y + z), 1.0 - f * (x * x + z * z), f * (y * z - x)],
        [f * (x * z - y), f * (y * z + x), 1.0 - f * (x * x + y * y)],
    ];
    let before = *pose;
    let c = [about[0] + c[0], about[1] + c[1], about[2] + c[2]];
    let from = [before[9] - c[0], before[10] - c[1], before[11] - c[2]];
    *about = c;
    for (i, q) in q.iter().enumerate() {
        for j in 0..3 {
            pose[3 * i + j] = (q[0] * before[j] + q[1] * before[3 + j]) + q[2] * before[6 + j];
        }
        pose[9 + i] = ((q[0] * from[0] + q[1] * from[1]) + q[2] * from[2]) + (c[i] + d[i]);
    }
    Some([turn2, (d[0] * d[0] + d[1] * d[1]) + d[2] * d[2]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Moments, Rigid};
    use crate::registration::{Correspondence, Problem};
    use nalgebra::UnitQuaternion;
    use rand::{Rng, SeedableRng};

    /// Noise of some thresholds, so that all weights differ; the fixed point of reweighting is the
    /// best pose of its own weights, which the general solution (Kabsch) gives.
    #[test]
    fn the_result_is_the_best_pose_of_its_own_weights() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        for seed in 0..200 {
            let mut v = |size: f64| Vector::from_fn(|_, _| rng.random_range(-size..size));
            let up = seed % 3 == 1;
            let axis = if up { Vector::z() } else { v(1.0).normalize() };
            let truth = Rigid::from_parts(v(5.0).into(), UnitQuaternion::from_scaled_axis(axis * 0.7));
            let sign = if seed % 3 == 2 { -1.0 } else { 1.0 };
            let mut problem = Problem::with_capacity(300);
            for _ in 0..300 {
                let p = v(4.0);
                let target = truth * crate::geometry::Point::from(p * sign) + v(0.06);
                problem.push(Correspondence::new(p.into(), target));
            }
            if up {
                problem.set_up(Vector::z(), Vector::z());
            }
            let mut layout = Layout::with_capacity(300);
            layout.load(&problem);
            let mut start = Pose::from(&truth);
            start.rotation *= sign;
            // Into the centred frames, and off by a degree and a bit.
            start.translation += start.rotation * layout.source_origin - layout.target_origin;
            let off = UnitQuaternion::from_scaled_axis(axis * 0.02);
            start.rotation = off.to_rotation_matrix().matrix() * start.rotation;
            let theta = 0.1;
            let mut refiner = Refiner::with_capacity(300);
            let found = refiner.refine(&layout, &start, theta, Aim::Best).expect("points are near");
            assert!((found.rotation.determinant() - sign).abs() < 1e-12);
            let mut moments = Moments::default();
            for i in 0..300 {
                let (s, t) = (layout.source_at(i), layout.target_at(i));
                let r2 = (found.apply(&s) - t).norm_squared() / (theta * theta);
                moments.add(&s, &t, influence(r2, f64::from(layout.weight()[i])));
            }
            let best = match (up, sign < 0.0) {
                (true, _) => moments.pose_about(&Vector::z(), &Vector::z()),
                (_, true) => moments.reflection(),
                _ => moments.pose(),
            }
            .expect("points in general position");
            assert!((best.rotation - found.rotation).norm() < 3e-7, "seed {seed}");
            assert!((best.translation - found.translation).norm() < 3e-7, "seed {seed}");
        }
    }

    #[test]
    fn a_line_and_a_point_give_a_finite_pose_and_nothing_near_gives_none() {
        let mut problem = Problem::with_capacity(20);
        for i in 0..20 {
            let p = crate::geometry::Point::new(f64::from(i) * 0.3, 0.0, 0.0);
            problem.push(Correspondence::new(p, p));
        }
        let mut layout = Layout::with_capacity(20);
        layout.load(&problem);
        let mut refiner = Refiner::with_capacity(20);
        let found = refiner.refine(&layout, &Pose::identity(), 0.1, Aim::Best).expect("a pose");
        assert!((found.apply(&Vector::x()) - Vector::x()).norm() < 1e-6);
        let far = Pose { translation: Vector::z() * 9.0, ..Pose::identity() };
        assert!(refiner.refine(&layout, &far, 0.1, Aim::Best).is_none());
    }
}
