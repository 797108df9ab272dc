//! Instances of absolute pose, and poses from their roots.

use super::instance::{quaternion, rotation, vector, Instance, Random};
use crate::geometry::{align_three, Pose};
use nalgebra::{DMatrix, Matrix3, Matrix4, SMatrix, Vector3, Vector4};

/// Noise of image points, in units of the focal length.
const NOISE: f64 = 1e-3;

/// A pose that carries the frame of the points to that of the camera.
fn pose(random: &mut Random) -> Pose {
    Pose { rotation: random.rotation().to_rotation_matrix().into_inner(), translation: random.vector(3.0) }
}

pub(super) fn p3p(random: &mut Random) -> Option<Instance> {
    let pose = pose(random);
    let seen: Vec<_> = (0..3).map(|_| random.seen()).collect();
    let points = seen.iter().map(|p| pose.rotation.transpose() * (p - pose.translation));
    let near = seen.iter().map(|p| p.norm()).collect();
    let rays = seen.iter().map(|p| p.normalize());
    let parameters = rays.chain(points).flat_map(|v| [v.x, v.y, v.z]).collect();
    Some(Instance::real(parameters, near, Some(pose)))
}

pub(super) fn p3p_recovered(root: &[f64], parameters: &[f64]) -> Option<Pose> {
    let flip = if root.iter().all(|r| *r < 0.0) { -1.0 } else { 1.0 };
    let mut seen = [Vector3::zeros(); 3];
    let mut points = [Vector3::zeros(); 3];
    for i in 0..3 {
        seen[i] = vector(parameters, 3 * i)? * (*root.get(i)? * flip);
        points[i] = vector(parameters, 9 + 3 * i)?;
    }
    align_three(&points, &seen).map(|(pose, _)| pose)
}

pub(super) fn p3p_pose(random: &mut Random) -> Option<Instance> {
    let (q, t) = (random.rotation(), random.vector(3.0));
    let seen: Vec<_> = (0..3).map(|_| random.seen()).collect();
    let images = seen.iter().flat_map(|p| [p.x / p.z, p.y / p.z]);
    let points = seen.iter().flat_map(|p| (q * p + t).iter().copied().collect::<Vec<_>>());
    let parameters = images.chain(points).collect();
    let near = [t.as_slice(), &quaternion(&q), &seen.iter().map(|p| p.z).collect::<Vec<_>>()].concat();
    let pose = Pose { rotation: q.to_rotation_matrix().into_inner(), translation: t };
    Some(Instance::real(parameters, near, Some(pose)))
}

pub(super) fn p3p_pose_recovered(root: &[f64], _: &[f64]) -> Option<Pose> {
    Some(Pose { rotation: rotation(root.get(3..7)?)?, translation: vector(root, 0)? })
}

/// Ten points with noise: the matrix of the cost with the translation eliminated.
pub(super) fn optimal_pnp(random: &mut Random) -> Option<Instance> {
    let q = random.rotation();
    let t = random.vector(1.0);
    let mut sum = Matrix3::zeros();
    let mut rows: Vec<(Matrix3<f64>, SMatrix<f64, 3, 9>)> = Vec::new();
    let mut weighted = SMatrix::<f64, 3, 9>::zeros();
    for _ in 0..10 {
        let seen = random.seen();
        let point = q.inverse() * (seen - t);
        let ray = (seen / seen.z + Vector3::new(random.normal(NOISE), random.normal(NOISE), 0.0)).normalize();
        let off = Matrix3::identity() - ray * ray.transpose();
        // R X as a matrix times the columns of R.
        let mut linear = SMatrix::<f64, 3, 9>::zeros();
        for (column, x) in point.iter().enumerate() {
            for row in 0..3 {
                linear[(row, 3 * column + row)] = *x;
            }
        }
        sum += off;
        weighted += off * linear;
        rows.push((off, linear));
    }
    let shift = -sum.try_inverse()? * weighted;
    let mut cost = SMatrix::<f64, 9, 9>::zeros();
    for (off, linear) in &rows {
        cost += (linear + shift).transpose() * off * (linear + shift);
    }
    let parameters = (0..9).flat_map(|i| (i..9).map(move |j| cost[(i, j)])).collect();
    Some(Instance::real(parameters, quaternion(&q).to_vec(), None))
}

pub(super) fn optimal_p4p(random: &mut Random) -> Option<Instance> {
    const CONE: f64 = 0.005;
    let angle = random.between(-3.0, 3.0);
    let (s, c) = (libm::sin(angle), libm::cos(angle));
    let r = Matrix3::new(c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0);
    let t = random.vector(2.0);
    let (mut points, mut images) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let seen = random.seen();
        points.extend((r.transpose() * (seen - t)).iter());
        let around = random.between(-3.2, 3.2);
        images
            .extend([seen.x / seen.z + CONE * libm::cos(around), seen.y / seen.z + CONE * libm::sin(around)]);
    }
    let parameters = [points, images, vec![CONE]].concat();
    let pose = Pose { rotation: r, translation: t };
    Some(Instance::real(parameters, vec![t.x, t.y, t.z, c, s], Some(pose)))
}

pub(super) fn optimal_p4p_recovered(root: &[f64], _: &[f64]) -> Option<Pose> {
    let (c, s) = (*root.get(3)?, *root.get(4)?);
    let rotation = Matrix3::new(c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0);
    Some(Pose { rotation, translation: vector(root, 0)? })
}

/// Orthonormal vectors whose products with all rows of `matrix` vanish, `count` of them, as columns.
pub(super) fn null_space(matrix: &DMatrix<f64>, count: usize) -> Option<DMatrix<f64>> {
    let columns = matrix.ncols();
    let mut square = DMatrix::zeros(matrix.nrows().max(columns), columns);
    square.rows_mut(0, matrix.nrows()).copy_from(matrix);
    let v = square.svd(false, true).v_t?;
    Some(v.rows(columns - count, count).transpose())
}

pub(super) fn p4p_focal_radial(random: &mut Random) -> Option<Instance> {
    let Pose { rotation: r, .. } = pose(random);
    let (f, k) = (random.between(0.7, 1.5), random.between(-0.3, -0.05));
    let t = random.vector(1.0);
    let mut linear = DMatrix::zeros(4, 8);
    let mut points = Matrix4::zeros();
    let mut images = Vec::new();
    for i in 0..4 {
        let seen = random.seen();
        let point = (r.transpose() * (seen - t)).push(1.0);
        let u = seen.xy() / seen.z * f;
        // The division model: u = d / (1 + k |d|^2).
        let d = u * (2.0 / (1.0 + (1.0 - 4.0 * k * u.norm_squared()).sqrt()));
        for j in 0..4 {
            linear[(i, j)] = d.y * point[j];
            linear[(i, 4 + j)] = -d.x * point[j];
            points[(i, j)] = point[j];
        }
        images.push(d);
    }
    let basis = null_space(&linear, 4)?;
    // P3 X = (1 + k |d|^2) (d . (P1 X, P2 X)) / |d|^2
    let mut right = SMatrix::<f64, 4, 8>::zeros();
    for (i, d) in images.iter().enumerate() {
        let square = d.norm_squared();
        for j in 0..4 {
            let along = |first: usize| (0..4).map(|m| basis[(first + m, j)] * points[(i, m)]).sum::<f64>();
            let value = (d.x * along(0) + d.y * along(4)) / square;
            right[(i, if j < 3 { j } else { 7 })] = value;
            right[(i, if j < 3 { 3 + j } else { 6 })] = value * square;
        }
    }
    let third = points.try_inverse()? * right;
    let mut truth = [0.0; 8];
    for row in 0..2 {
        let p: Vector4<f64> = (r.row(row).transpose() * f).push(t[row] * f);
        truth[4 * row..4 * row + 4].copy_from_slice(p.as_slice());
    }
    let share = basis.transpose() * DMatrix::from_column_slice(8, 1, &truth);
    let last = share[3];
    let near = vec![share[0] / last, share[1] / last, share[2] / last, k];
    let n = (0..8).flat_map(|i| (0..4).map(move |j| (i, j))).map(|cell| basis[cell]);
    let b = (0..3).flat_map(|i| (0..8).map(move |j| (i, j))).map(|cell| third[cell]);
    (last.abs() > 0.05).then(|| Instance::real(n.chain(b).collect(), near, None))
}

/// Motion of a camera while its rows are read.
struct Shutter {
    turn: Vector3<f64>,
    rate: Vector3<f64>,
    centre: Vector3<f64>,
    velocity: Vector3<f64>,
}

impl Shutter {
    fn new(random: &mut Random) -> Self {
        let (turn, rate) = (random.vector(0.1), random.vector(0.1));
        Self { turn, rate, centre: random.vector(0.5), velocity: random.vector(0.2) }
    }

    /// Where a point is for the row that sees it, if there is one; `rotated` is the point turned.
    fn see(&self, rotated: Vector3<f64>) -> Option<Vector3<f64>> {
        let mut seen = rotated + self.centre;
        for _ in 0..200 {
            let row = seen.y / seen.z;
            seen = rotated + self.rate.cross(&rotated) * row + self.centre + self.velocity * row;
            if (seen.y / seen.z - row).abs() < 1e-14 {
                return (seen.z > 0.1).then_some(seen);
            }
        }
        None
    }
}

pub(super) fn rolling_shutter(random: &mut Random) -> Option<Instance> {
    let shutter = Shutter::new(random);
    let mut known = DMatrix::zeros(12, 16);
    let mut eliminated = DMatrix::zeros(12, 6);
    for i in 0..6 {
        let point = random.seen();
        let seen = shutter.see(point + shutter.turn.cross(&point))?;
        let (u, row) = (seen.x / seen.z, seen.y / seen.z);
        // The vectors that stand with each monomial: (I + row [w]) (I + [v]) X.
        let unit = |k: usize| Vector3::ith(k, 1.0);
        let mut vectors = Vec::new();
        for a in 0..3 {
            (0..3).for_each(|b| vectors.push(unit(b).cross(&unit(a).cross(&point)) * row));
        }
        (0..3).for_each(|a| vectors.push(unit(a).cross(&point)));
        (0..3).for_each(|b| vectors.push(unit(b).cross(&point) * row));
        vectors.push(point);
        for (line, image) in [u, row].into_iter().enumerate() {
            let at = 2 * i + line;
            let part = |v: &Vector3<f64>| v[line] - image * v.z;
            vectors.iter().enumerate().for_each(|(k, v)| known[(at, k)] = part(v));
            for k in 0..3 {
                eliminated[(at, k)] = part(&unit(k));
                eliminated[(at, 3 + k)] = part(&unit(k)) * row;
            }
        }
    }
    let free = null_space(&eliminated.transpose(), 6)?;
    let rest = free.transpose() * known;
    let parameters = (0..6).flat_map(|i| (0..16).map(move |k| (i, k))).map(|cell| rest[cell]).collect();
    let near = [shutter.turn.as_slice(), shutter.rate.as_slice()].concat();
    Some(Instance::real(parameters, near, None))
}

pub(super) fn rolling_shutter_1lin(random: &mut Random) -> Option<Instance> {
    let mut shutter = Shutter::new(random);
    // Cayley: any rotation but by 180 degrees.
    shutter.turn = random.vector(0.5);
    let v = shutter.turn;
    let rotation = nalgebra::UnitQuaternion::from_quaternion(nalgebra::Quaternion::new(1.0, v.x, v.y, v.z));
    let (mut rows, mut images, mut points, mut depths) = (vec![0.0], Vec::new(), Vec::new(), Vec::new());
    for _ in 0..6 {
        let point = rotation.inverse() * random.seen();
        let seen = shutter.see(rotation * point)?;
        rows.push(seen.y / seen.z);
        images.extend([seen.x / seen.z, seen.y / seen.z]);
        points.extend(point.iter());
        depths.push(seen.z);
    }
    let motion = [v, shutter.rate, shutter.centre, shutter.velocity];
    let near = motion.iter().flat_map(|v| [v.x, v.y, v.z]).chain(depths).collect();
    Some(Instance::real([rows, images, points].concat(), near, None))
}
