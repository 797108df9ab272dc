//! Alignment of point sets: the rotation and translation with the least squared error.

use super::{Rigid, Vector};
use nalgebra::{Matrix3, Rotation3, Translation3, UnitQuaternion};

/// A pose as rotation matrix and translation: what hypotheses are scored with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pose {
    /// Rotation, `p_target = rotation * p_source + translation`.
    pub rotation: Matrix3<f64>,
    /// Translation, m.
    pub translation: Vector,
}

impl Pose {
    /// The pose that moves nothing.
    pub fn identity() -> Self {
        Self { rotation: Matrix3::identity(), translation: Vector::zeros() }
    }

    /// Where a source point lies in the target frame.
    pub fn apply(&self, p: &Vector) -> Vector {
        self.rotation * p + self.translation
    }

    /// As quaternion and translation. The rotation must be proper.
    pub fn to_rigid(&self) -> Rigid {
        let rotation = UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(self.rotation));
        Rigid::from_parts(Translation3::from(self.translation), rotation)
    }

    /// Every number is finite.
    pub fn is_finite(&self) -> bool {
        self.rotation.iter().chain(self.translation.iter()).all(|v| v.is_finite())
    }
}

impl From<&Rigid> for Pose {
    fn from(t: &Rigid) -> Self {
        Self { rotation: *t.rotation.to_rotation_matrix().matrix(), translation: t.translation.vector }
    }
}

/// The best pose for three correspondences, in closed form, and the smallest height of the two
/// triangles (m), which tells how close they are to a line.
///
/// The optimum of Kabsch's problem (appendix A8 of the design) for three points: the planes of
/// the triangles are laid upon each other, sides by the order of the corners, and the rotation
/// within the plane is the one of the planar problem. `None` if a triangle has no area.
///
/// Only + - * / and square roots, written out in the order in which they are rounded, so that a
/// GPU gives the same bits.
pub fn align_three(source: &[Vector; 3], target: &[Vector; 3]) -> Option<(Pose, f64)> {
    let s = source.map(|p| [p.x, p.y, p.z]);
    let t = target.map(|p| [p.x, p.y, p.z]);
    let (cs, ct) = (centroid(&s), centroid(&t));
    let (a, b) = (frame(&s)?, frame(&t)?);
    // Planar problem: cosine and sine of the rotation that maximises the sum of the dot products.
    let (mut c, mut d) = (0.0, 0.0);
    for k in 0..3 {
        let (p, q) = (minus(&s[k], &cs), minus(&t[k], &ct));
        let (px, py) = (dot(&p, &a.x), dot(&p, &a.y));
        let (qx, qy) = (dot(&q, &b.x), dot(&q, &b.y));
        c += px * qx + py * qy;
        d += px * qy - py * qx;
    }
    let length = (c * c + d * d).sqrt();
    if !is_positive(length) {
        return None;
    }
    let (c, d) = (c / length, d / length);
    let rotation = [0, 1, 2].map(|i| {
        let x = b.x[i] * c + b.y[i] * d;
        let y = b.y[i] * c - b.x[i] * d;
        [0, 1, 2].map(|j| (x * a.x[j] + y * a.y[j]) + b.z[i] * a.z[j])
    });
    let translation = [0, 1, 2].map(|i| ct[i] - dot(&rotation[i], &cs));
    let pose =
        Pose { rotation: Matrix3::from_fn(|i, j| rotation[i][j]), translation: Vector::from(translation) };
    Some((pose, if a.height < b.height { a.height } else { b.height }))
}

/// Known verticals of two frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vertical {
    /// Up in the source frame and in the target frame, unit vectors.
    pub up: [[f64; 3]; 2],
    /// Some rotation that carries the first onto the second, row by row.
    pub rotation: [[f64; 3]; 3],
}

impl Vertical {
    /// From two unit vectors.
    pub fn new(source_up: &Vector, target_up: &Vector) -> Option<Self> {
        let r = vertical_to_vertical(source_up, target_up)?;
        let up = [source_up, target_up].map(|u| [u.x, u.y, u.z]);
        Some(Self { up, rotation: [0, 1, 2].map(|i| [r[(i, 0)], r[(i, 1)], r[(i, 2)]]) })
    }
}

/// The best rotation about known verticals and translation for three correspondences, and the
/// largest horizontal distance between source points (m), which is what fixes the rotation.
/// `None` if nothing fixes it.
///
/// The solution of [`Moments::pose_about`], written as [`align_three`] is and for the same reason.
pub fn align_three_about(
    source: &[Vector; 3],
    target: &[Vector; 3],
    vertical: &Vertical,
) -> Option<(Pose, f64)> {
    let s = source.map(|p| [p.x, p.y, p.z]);
    let t = target.map(|p| [p.x, p.y, p.z]);
    let [up_source, up] = vertical.up;
    let horizontal = |a: &Triad, b: &Triad| {
        let d = minus(a, b);
        let along = dot(&up_source, &d);
        let rest = [0, 1, 2].map(|k| d[k] - up_source[k] * along);
        dot(&rest, &rest).sqrt()
    };
    let extent = horizontal(&s[0], &s[1]).max(horizontal(&s[0], &s[2])).max(horizontal(&s[1], &s[2]));
    let (cs, ct) = (centroid(&s), centroid(&t));
    let r0 = &vertical.rotation;
    let (mut c, mut d) = (0.0, 0.0);
    for k in 0..3 {
        let (p, q) = (minus(&s[k], &cs), minus(&t[k], &ct));
        let a = [dot(&r0[0], &p), dot(&r0[1], &p), dot(&r0[2], &p)];
        c += dot(&a, &q) - dot(&a, &up) * dot(&q, &up);
        d += dot(&up, &cross(&a, &q));
    }
    let length = (c * c + d * d).sqrt();
    if !is_positive(length) {
        return None;
    }
    let (c, d) = (c / length, d / length);
    let [x, y, z] = up;
    let rest = 1.0 - c;
    let turn = [
        [x * x * rest + c, x * y * rest - z * d, x * z * rest + y * d],
        [y * x * rest + z * d, y * y * rest + c, y * z * rest - x * d],
        [z * x * rest - y * d, z * y * rest + x * d, z * z * rest + c],
    ];
    let rotation = turn.map(|t| [0, 1, 2].map(|j| (t[0] * r0[0][j] + t[1] * r0[1][j]) + t[2] * r0[2][j]));
    let translation = [0, 1, 2].map(|i| ct[i] - dot(&rotation[i], &cs));
    let pose =
        Pose { rotation: Matrix3::from_fn(|i, j| rotation[i][j]), translation: Vector::from(translation) };
    Some((pose, extent))
}

type Triad = [f64; 3];

fn minus(a: &Triad, b: &Triad) -> Triad {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: &Triad, b: &Triad) -> f64 {
    (a[0] * b[0] + a[1] * b[1]) + a[2] * b[2]
}

fn cross(a: &Triad, b: &Triad) -> Triad {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn centroid(p: &[Triad; 3]) -> Triad {
    [0, 1, 2].map(|k| ((p[0][k] + p[1][k]) + p[2][k]) / 3.0)
}

/// Above zero and finite; false for NaN.
fn is_positive(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

struct Frame {
    x: Triad,
    y: Triad,
    z: Triad,
    height: f64,
}

/// Right-handed frame of a triangle: x along the first side, z normal to the plane.
fn frame(p: &[Triad; 3]) -> Option<Frame> {
    let (e1, e2, e3) = (minus(&p[1], &p[0]), minus(&p[2], &p[0]), minus(&p[2], &p[1]));
    let n = cross(&e1, &e2);
    let area2 = dot(&n, &n).sqrt();
    let side = dot(&e1, &e1).sqrt();
    let (second, third) = (dot(&e2, &e2).sqrt(), dot(&e3, &e3).sqrt());
    let longest = side.max(second).max(third);
    if !is_positive(area2) || !is_positive(side) {
        return None;
    }
    let x = e1.map(|v| v / side);
    let z = n.map(|v| v / area2);
    let y = cross(&z, &x);
    Some(Frame { x, y, z, height: area2 / longest })
}

/// Weighted sums from which the best pose of many correspondences follows.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    weight: f64,
    source: Vector,
    target: Vector,
    cross: Matrix3<f64>,
    count: usize,
}

impl Default for Moments {
    fn default() -> Self {
        Self {
            weight: 0.0,
            source: Vector::zeros(),
            target: Vector::zeros(),
            cross: Matrix3::zeros(),
            count: 0,
        }
    }
}

impl Moments {
    /// Adds a correspondence. Coordinates should be near the origin, lest digits cancel.
    pub fn add(&mut self, source: &Vector, target: &Vector, weight: f64) {
        self.weight += weight;
        self.source += source * weight;
        self.target += target * weight;
        self.cross += target * (source.transpose() * weight);
        self.count += 1;
    }

    /// Correspondences added.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Centroids and centred cross-covariance `sum w (t - ct)(s - cs)^T`.
    fn centred(&self) -> Option<(Vector, Vector, Matrix3<f64>)> {
        if self.count < 3 || !is_positive(self.weight) {
            return None;
        }
        let (cs, ct) = (self.source / self.weight, self.target / self.weight);
        Some((cs, ct, self.cross - ct * self.source.transpose()))
    }

    /// The best proper rotation and translation (Kabsch, Umeyama); `None` below three
    /// correspondences. Ill-determined for collinear points: the caller looks at their spread.
    pub fn pose(&self) -> Option<Pose> {
        self.orthogonal(false)
    }

    /// The best reflection (determinant -1) and translation.
    pub fn reflection(&self) -> Option<Pose> {
        self.orthogonal(true)
    }

    fn orthogonal(&self, improper: bool) -> Option<Pose> {
        let (cs, ct, h) = self.centred()?;
        let svd = h.try_svd(true, true, f64::EPSILON, 200)?;
        let (u, vt) = (svd.u?, svd.v_t?);
        let wanted = if improper { -1.0 } else { 1.0 };
        let sign = (u.determinant() * vt.determinant()).signum() * wanted;
        // nalgebra orders singular values descending, so the last one takes the sign.
        let mut d = Matrix3::identity();
        d[(2, 2)] = sign;
        let rotation = u * d * vt;
        let pose = Pose { rotation, translation: ct - rotation * cs };
        pose.is_finite().then_some(pose)
    }

    /// The best rotation about a known vertical and translation: `source_up` is carried onto
    /// `target_up` (unit vectors). Two correspondences not above each other are enough.
    pub fn pose_about(&self, source_up: &Vector, target_up: &Vector) -> Option<Pose> {
        if self.count < 2 || !is_positive(self.weight) {
            return None;
        }
        let (cs, ct) = (self.source / self.weight, self.target / self.weight);
        let h = self.cross - ct * self.source.transpose();
        // With a fixed rotation r0 that carries one vertical onto the other, only the angle about
        // target_up is left: maximise tr(R(angle) r0 h^T).
        let r0 = vertical_to_vertical(source_up, target_up)?;
        let m = r0 * h.transpose();
        let along = target_up.dot(&(m * target_up));
        let c = m.trace() - along;
        let k = Vector::new(m[(1, 2)] - m[(2, 1)], m[(2, 0)] - m[(0, 2)], m[(0, 1)] - m[(1, 0)]);
        let s = k.dot(target_up);
        let length = c.hypot(s);
        if !is_positive(length) {
            return None;
        }
        let angle = s.atan2(c);
        let axis = nalgebra::Unit::new_normalize(*target_up);
        let rotation = Rotation3::from_axis_angle(&axis, angle).into_inner() * r0;
        let pose = Pose { rotation, translation: ct - rotation * cs };
        pose.is_finite().then_some(pose)
    }
}

/// Some rotation that carries one unit vector onto another.
fn vertical_to_vertical(from: &Vector, to: &Vector) -> Option<Matrix3<f64>> {
    let rotation = Rotation3::rotation_between(from, to).or_else(|| {
        // Opposite vectors: half a turn about any axis at right angles to them.
        let other = if from.x.abs() < 0.9 { Vector::x() } else { Vector::y() };
        let axis = nalgebra::Unit::try_new(from.cross(&other), 1e-9)?;
        Some(Rotation3::from_axis_angle(&axis, std::f64::consts::PI))
    })?;
    Some(rotation.into_inner())
}

/// Rotation angle (rad) and distance (m) between two poses: RE and TE of the literature.
pub fn pose_error(a: &Rigid, b: &Rigid) -> (f64, f64) {
    (a.rotation.angle_to(&b.rotation), (a.translation.vector - b.translation.vector).norm())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Point;
    use rand::{Rng, SeedableRng};

    fn random_rigid(rng: &mut impl Rng) -> Rigid {
        let mut v = || {
            Vector::new(rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0))
        };
        let (axis, t) = (v(), v() * 10.0);
        let angle = rng.random_range(-3.1..3.1);
        Rigid::from_parts(Translation3::from(t), UnitQuaternion::from_scaled_axis(axis.normalize() * angle))
    }

    fn moments(s: &[Vector], t: &[Vector]) -> Moments {
        let mut m = Moments::default();
        for (a, b) in s.iter().zip(t) {
            m.add(a, b, 1.0);
        }
        m
    }

    #[test]
    fn three_points_agree_with_the_general_solution() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        for _ in 0..2000 {
            let truth = random_rigid(&mut rng);
            let mut point = || {
                Vector::new(
                    rng.random_range(-5.0..5.0),
                    rng.random_range(-5.0..5.0),
                    rng.random_range(-5.0..5.0),
                )
            };
            let s = [point(), point(), point()];
            let noise = [point() * 0.02, point() * 0.02, point() * 0.02];
            let t = [0, 1, 2].map(|k| (truth * Point::from(s[k])).coords + noise[k]);
            let (pose, height) = align_three(&s, &t).unwrap();
            if height < 0.3 {
                continue;
            }
            let general = moments(&s, &t).pose().unwrap();
            assert!(
                (pose.rotation - general.rotation).norm() < 1e-9,
                "{} {}",
                pose.rotation,
                general.rotation
            );
            assert!((pose.translation - general.translation).norm() < 1e-8);
            assert!((pose.rotation.determinant() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_line_or_a_point_has_no_pose() {
        let p = Vector::new(1.0, 2.0, 3.0);
        assert!(align_three(&[p, p, p], &[p, p, p]).is_none());
        let line = [p, p * 2.0, p * 3.0];
        assert!(align_three(&line, &line).is_none_or(|(_, height)| height < 1e-6));
    }

    #[test]
    fn a_reflection_is_found() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(2);
        let s: Vec<Vector> = (0..20).map(|_| Vector::from_fn(|_, _| rng.random_range(-5.0..5.0))).collect();
        let t: Vec<Vector> = s.iter().map(|p| Vector::new(-p.x, p.y + 1.0, p.z)).collect();
        let m = moments(&s, &t);
        let mirror = m.reflection().unwrap();
        assert!((mirror.rotation.determinant() + 1.0).abs() < 1e-12);
        assert!(s.iter().zip(&t).all(|(a, b)| (mirror.apply(a) - b).norm() < 1e-9));
        assert!((m.pose().unwrap().rotation.determinant() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn yaw_is_found_about_any_vertical() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        for _ in 0..500 {
            let truth = random_rigid(&mut rng);
            let up_s = random_rigid(&mut rng).rotation * Vector::z();
            let up_t = truth.rotation * up_s;
            let s: Vec<Vector> =
                (0..2).map(|_| Vector::from_fn(|_, _| rng.random_range(-5.0..5.0))).collect();
            let t: Vec<Vector> = s.iter().map(|p| (truth * Point::from(*p)).coords).collect();
            let pose = moments(&s, &t).pose_about(&up_s, &up_t).unwrap();
            let (re, te) = pose_error(&pose.to_rigid(), &truth);
            assert!(re < 1e-7 && te < 1e-6, "{re} {te}");
            // Three noisy points: the closed form and the general one agree.
            let mut point = || Vector::from_fn(|_, _| rng.random_range(-5.0..5.0));
            let s = [point(), point(), point()];
            let noise = [point() * 0.02, point() * 0.02, point() * 0.02];
            let t = [0, 1, 2].map(|k| (truth * Point::from(s[k])).coords + noise[k]);
            let vertical = Vertical::new(&up_s, &up_t).unwrap();
            let (pose, extent) = align_three_about(&s, &t, &vertical).unwrap();
            let general = moments(&s, &t).pose_about(&up_s, &up_t).unwrap();
            assert!(extent > 0.0 && (pose.rotation * up_s - up_t).norm() < 1e-12);
            if extent > 0.3 {
                assert!((pose.rotation - general.rotation).norm() < 1e-9);
                assert!((pose.translation - general.translation).norm() < 1e-8);
            }
        }
    }
}
