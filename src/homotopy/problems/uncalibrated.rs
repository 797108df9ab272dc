//! Absolute pose of cameras of which not all is known: instances, and what their roots say.

use super::absolute::{flat, images};
use super::geometry::{null_space, rays, vectors, Geometry};
use super::instance::{matrix, quaternion, rotation, Instance, Random};
use crate::geometry::{Pose, Vector};
use nalgebra::{
    DMatrix, DVector, Matrix3, Matrix4, Quaternion, SMatrix, UnitQuaternion, Vector2, Vector3, Vector4,
};

/// All cameras that see four points at their image points, up to four shares and distortion: columns that
/// span the first two rows of `P`, and the matrix of the third row. Measured: image points, points.
fn cameras(measured: &[f64]) -> Option<(DMatrix<f64>, SMatrix<f64, 4, 8>)> {
    let images: Vec<Vector2<f64>> =
        measured.get(..8)?.chunks_exact(2).map(|d| Vector2::new(d[0], d[1])).collect();
    let points = vectors(measured.get(8..20)?);
    let points = Matrix4::from_fn(|i, j| points[i].push(1.0)[j]);
    let mut linear = DMatrix::zeros(4, 8);
    for (i, d) in images.iter().enumerate() {
        for j in 0..4 {
            linear[(i, j)] = d.y * points[(i, j)];
            linear[(i, 4 + j)] = -d.x * points[(i, j)];
        }
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
    Some((basis, points.try_inverse()? * right))
}

pub(super) fn p4p_focal_radial_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    let (basis, third) = cameras(measured)?;
    let n = (0..8).flat_map(|i| (0..4).map(move |j| (i, j))).map(|cell| basis[cell]);
    let b = (0..3).flat_map(|i| (0..8).map(move |j| (i, j))).map(|cell| third[cell]);
    Some(n.chain(b).collect())
}

pub(super) fn p4p_focal_radial(random: &mut Random) -> Option<Instance> {
    let pose = Pose { rotation: matrix(&random.rotation()), translation: random.vector(1.0) };
    let (f, k) = (random.between(0.7, 1.5), random.between(-0.3, -0.05));
    let (mut images, mut points) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let seen = random.seen();
        points.push(pose.rotation.transpose() * (seen - pose.translation));
        let u = seen.xy() / seen.z * f;
        // The division model: u = d / (1 + k |d|^2).
        images.extend((u * (2.0 / (1.0 + (1.0 - 4.0 * k * u.norm_squared()).sqrt()))).iter());
    }
    let measured = [images, flat(&points)].concat();
    let (basis, _) = cameras(&measured)?;
    let row = |i: usize| (pose.rotation.row(i).transpose() * f).push(pose.translation[i] * f);
    let rows = DMatrix::from_iterator(8, 1, row(0).iter().chain(row(1).iter()).copied());
    let share = basis.transpose() * rows;
    let last = share[3];
    let near = vec![share[0] / last, share[1] / last, share[2] / last, k];
    let truth = Geometry { focal: Some(f), distortion: Some(k), ..Geometry::of_points(pose, &points) };
    let parameters = p4p_focal_radial_reduced(&measured)?;
    (last.abs() > 0.05).then(|| Instance::reduced(measured, parameters, near, truth))
}

pub(super) fn p4p_focal_radial_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (basis, third) = cameras(measured)?;
    let [a, b, c, k] = *root.first_chunk()?;
    let rows = basis * DMatrix::from_column_slice(4, 1, &[a, b, c, 1.0]);
    let last = third * SMatrix::<f64, 8, 1>::from([a, b, c, k * a, k * b, k * c, k, 1.0]);
    let row = |v: &[f64]| Vector4::from_column_slice(v);
    let p = [row(&rows.as_slice()[..4]), row(&rows.as_slice()[4..]), last];
    let scales = p.map(|row| row.xyz().norm());
    let mut r = Matrix3::from_fn(|i, j| p[i][j] / scales[i]);
    let sign = r.determinant().signum();
    r *= sign;
    let translation = Vector3::from_fn(|i, _| p[i][3] / scales[i] * sign);
    let pose = Pose { rotation: r, translation };
    let points = vectors(measured.get(8..20)?);
    let focal = Some(scales[0] / scales[2]);
    Some(vec![Geometry { focal, distortion: Some(k), ..Geometry::of_points(pose, &points) }])
}

/// The first three columns of the rows of `P`. Measured: four image points, four points.
pub(super) fn p4p_focal_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    let (basis, third) = cameras(measured)?;
    let n = [0, 1, 2, 4, 5, 6].into_iter().flat_map(|i| (0..4).map(move |j| (i, j))).map(|cell| basis[cell]);
    let b = (0..3).flat_map(|i| UNDISTORTED.map(|j| (i, j))).map(|cell| third[cell]);
    Some(n.chain(b).collect())
}

/// Columns of the matrix of the third row without distortion.
const UNDISTORTED: [usize; 4] = [0, 1, 2, 7];

pub(super) fn p4p_focal(random: &mut Random) -> Option<Instance> {
    let pose = Pose { rotation: matrix(&random.rotation()), translation: random.vector(1.0) };
    let f = random.between(0.7, 1.5);
    let seen: Vec<_> = (0..4).map(|_| random.seen()).collect();
    let points: Vec<_> = seen.iter().map(|p| pose.rotation.transpose() * (p - pose.translation)).collect();
    let images = images(&seen).into_iter().map(|v| v * f);
    let measured: Vec<f64> = images.chain(flat(&points)).collect();
    let (basis, _) = cameras(&measured)?;
    let row = |i: usize| pose.rotation.row(i).transpose().push(pose.translation[i]);
    let rows = DMatrix::from_iterator(8, 1, row(0).iter().chain(row(1).iter()).copied());
    let share = basis.transpose() * rows;
    let last = share[3];
    let near = vec![share[0] / last, share[1] / last, share[2] / last];
    let truth = Geometry { focal: Some(f), ..Geometry::of_points(pose, &points) };
    let parameters = p4p_focal_reduced(&measured)?;
    (near.iter().all(|v| v.abs() < 20.0)).then(|| Instance::reduced(measured, parameters, near, truth))
}

/// With noise the third row is not orthogonal to the others: the rotation is that of the first two.
pub(super) fn p4p_focal_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (basis, third) = cameras(measured)?;
    let [a, b, c] = *root.first_chunk()?;
    let share = Vector4::new(a, b, c, 1.0);
    let row = |first: usize| Vector4::from_fn(|i, _| (0..4).map(|j| basis[(first + i, j)] * share[j]).sum());
    let (x, y) = (row(0), row(4));
    let z = Vector4::from_fn(|i, _| (0..4).map(|j| third[(i, UNDISTORTED[j])] * share[j]).sum::<f64>());
    // P is known but for its sign.
    let normal = x.xyz().cross(&y.xyz()).normalize();
    let sign = normal.dot(&z.xyz()).signum();
    let scales = [x.xyz().norm() * sign, y.xyz().norm() * sign, normal.dot(&z.xyz()) * sign];
    let rows = [x.xyz() / scales[0], y.xyz() / scales[1], normal].map(|row| row.transpose());
    let translation = Vector3::new(x.w / scales[0], y.w / scales[1], z.w * sign / scales[2]);
    let pose = Pose { rotation: Matrix3::from_rows(&rows), translation };
    let points = vectors(measured.get(8..20)?);
    Some(vec![Geometry { focal: Some(scales[0].abs() / scales[2]), ..Geometry::of_points(pose, &points) }])
}

/// Measured: four image points in focal lengths, four points.
pub(super) fn pnp_principal_point(random: &mut Random) -> Option<Instance> {
    let (q, t) = (random.rotation(), random.vector(3.0));
    let centre = Vector2::new(random.between(-0.5, 0.5), random.between(-0.5, 0.5));
    let seen: Vec<_> = (0..4).map(|_| random.seen()).collect();
    let points: Vec<_> = seen.iter().map(|p| q.inverse() * (p - t)).collect();
    let images = seen.iter().flat_map(|p| [p.x / p.z + centre.x, p.y / p.z + centre.y]).collect::<Vec<_>>();
    let depths: Vec<_> = seen.iter().map(|p| p.z).collect();
    let near = [&depths, centre.as_slice(), &quaternion(&q)].concat();
    let pose = Pose { rotation: matrix(&q), translation: t };
    let truth = Geometry { principal: vec![centre], ..Geometry::of_points(pose, &points) };
    Some(Instance::plain([images, flat(&points)].concat(), near, truth))
}

pub(super) fn pnp_principal_point_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let centre = Vector2::new(*root.get(4)?, *root.get(5)?);
    let rotation = rotation(root.get(6..)?)?;
    let points = vectors(measured.get(8..)?);
    let image = Vector2::new(*measured.first()?, *measured.get(1)?) - centre;
    let translation = image.push(1.0) * *root.first()? - rotation * points.first()?;
    let geometry = Geometry::of_points(Pose { rotation, translation }, &points);
    Some(vec![Geometry { principal: vec![centre], ..geometry }])
}

/// The smallest principal points of the joint, root mean square.
const SHIFT: f64 = 0.02;

/// Differences to the first point of five.
fn differences(points: &[Vector]) -> Option<Vec<Vector>> {
    let (first, rest) = points.split_first()?;
    Some(rest.iter().map(|p| first - p).collect())
}

/// A joint to which five points are tied by rods, seen by two cameras. The principal points are the smallest
/// that fit by construction: they are the gradients of the constraints times multipliers. Measured: the points
/// in the frame of each camera, the image points of the joint.
pub(super) fn joint_2view(random: &mut Random) -> Option<Instance> {
    let joints = [random.seen(), random.seen()];
    let rods: Vec<f64> = (0..5).map(|_| random.between(0.5, 2.0)).collect();
    let points = joints.map(|joint| {
        rods.iter().map(|rod| joint + random.vector(1.0).normalize() * *rod).collect::<Vec<Vector>>()
    });
    let apart = [differences(&points[0])?, differences(&points[1])?];
    // Multipliers with which nothing is gained by other depths.
    let depths = DMatrix::from_fn(2, 4, |view, j| apart[view][j].dot(&joints[view]));
    let free = null_space(&depths, 2)?;
    let drawn = free * DVector::from_vec(vec![random.normal(1.0), random.normal(1.0)]);
    let shifts = |multipliers: &DVector<f64>| {
        [(0, -1.0), (1, 1.0)].map(|(view, sign)| {
            let sum: Vector = apart[view].iter().zip(multipliers.iter()).map(|(d, k)| d * *k).sum();
            sum.xy() * (sign * joints[view].z)
        })
    };
    let size = shifts(&drawn).iter().map(|c| c.norm_squared()).sum::<f64>().sqrt();
    let multipliers = drawn * (2.0 * SHIFT * random.between(0.1, 1.5) / size);
    let principal = shifts(&multipliers).to_vec();
    let images = joints.iter().zip(&principal).flat_map(|(p, c)| [p.x / p.z + c.x, p.y / p.z + c.y]);
    let measured = points.iter().flat_map(flat).chain(images).collect();
    let depths: Vec<f64> = joints.iter().map(|p| p.z).collect();
    let shifts: Vec<f64> = principal.iter().flat_map(|c| [c.x, c.y]).collect();
    let near = [&shifts[..], &depths, multipliers.as_slice()].concat();
    let truth = Geometry { principal, points: joints.to_vec(), depths, ..Geometry::default() };
    Some(Instance::plain(measured, near, truth))
}

pub(super) fn joint_2view_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let depths = root.get(4..6)?.to_vec();
    let pairs = |v: &[f64]| v.chunks_exact(2).map(|c| Vector2::new(c[0], c[1])).collect::<Vec<_>>();
    let (principal, images) = (pairs(root.get(..4)?), pairs(measured.get(30..34)?));
    let seen = images.iter().zip(&principal).zip(&depths);
    let points = seen.map(|((image, centre), depth)| (image - centre).push(1.0) * *depth).collect();
    Some(vec![Geometry { principal, points, depths, ..Geometry::default() }])
}

/// At which of two points each of three directions is.
const DIRECTIONS: [usize; 3] = [0, 0, 1];

/// Conditions on `K R`, by its columns: the images of three directions, and of the line through both points.
/// Measured: two image points, the images `(x, y)` of two directions at the first point and one at the
/// second, both points, the three directions.
pub(super) fn relative_pose_focal_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    let images = rays(measured.get(..4)?);
    let lines = measured.get(4..10)?.chunks_exact(2).map(|d| Vector3::new(d[0], d[1], 0.0));
    let points = vectors(measured.get(10..16)?);
    let directions = vectors(measured.get(16..25)?);
    let pairs = lines.zip(DIRECTIONS).map(|(line, point)| images[point].cross(&line)).zip(directions);
    let through = (images[0].cross(&images[1]), points[1] - points[0]);
    let rows: Vec<Matrix3<f64>> = pairs.chain([through]).map(|(l, d)| l * d.transpose()).collect();
    Some((0..9).flat_map(|k| rows.iter().map(move |row| row.as_slice()[k])).collect())
}

pub(super) fn relative_pose_focal(random: &mut Random) -> Option<Instance> {
    let (q, t, f) = (random.rotation(), random.vector(1.0), random.between(0.5, 2.0));
    let seen = [random.seen(), random.seen()];
    let points = seen.map(|p| q.inverse() * (p - t));
    let directions = DIRECTIONS.map(|_| random.vector(1.0).normalize());
    let lines = DIRECTIONS.iter().zip(&directions).flat_map(|(point, d)| {
        let (p, d) = (seen[*point], q * d);
        let image = (d.xy() * p.z - p.xy() * d.z).normalize();
        [image.x, image.y]
    });
    let images = images(&seen).into_iter().map(|v| v * f);
    let measured = images.chain(lines).chain(flat(&points)).chain(flat(&directions)).collect::<Vec<_>>();
    let pose = Pose { rotation: matrix(&q), translation: t };
    let truth = Geometry { focal: Some(f), ..Geometry::of_points(pose, &points) };
    let parameters = relative_pose_focal_reduced(&measured)?;
    let near = vec![q.i / q.w, q.j / q.w, q.k / q.w, 1.0 / f];
    (q.w.abs() > 0.1).then(|| Instance::reduced(measured, parameters, near, truth))
}

pub(super) fn relative_pose_focal_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let [b, c, d, w] = *root.first_chunk()?;
    // The camera turned by half a turn has the focal length with the other sign.
    (w > 0.0).then_some(())?;
    let rotation = matrix(&UnitQuaternion::from_quaternion(Quaternion::new(1.0, b, c, d)));
    let points = vectors(measured.get(10..16)?);
    let rays: Vec<Vector> =
        rays(measured.get(..4)?).into_iter().map(|x| Vector3::new(w * x.x, w * x.y, 1.0)).collect();
    // z1 x1 - z2 x2 = R (X1 - X2)
    let between = rotation * (points[0] - points[1]);
    let (normal, second) = (rays[0].cross(&rays[1]), between.cross(&rays[1]));
    let depth = second.dot(&normal) / normal.norm_squared();
    let translation = rays[0] * depth - rotation * points[0];
    let pose = Pose { rotation, translation };
    Some(vec![Geometry { focal: Some(1.0 / w), ..Geometry::of_points(pose, &points) }])
}
