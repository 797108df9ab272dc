//! Absolute pose of a calibrated camera: instances, and what their roots say.

use super::geometry::{cayley, least_squares, null_space, rays, refined, vector, vectors, Geometry};
use super::instance::{matrix, quaternion, rotation, Instance, Random};
use crate::geometry::{align_three, Pose, Vector};
use nalgebra::{DMatrix, DVector, Matrix3, SMatrix, UnitQuaternion, Vector3};

/// Noise of image points, in units of the focal length.
const NOISE: f64 = 1e-3;
/// Points of problems that take any number.
const POINTS: usize = 10;

/// A pose that carries the frame of the points to that of the camera.
fn pose(random: &mut Random) -> Pose {
    Pose { rotation: matrix(&random.rotation()), translation: random.vector(3.0) }
}

/// The other way round.
fn inverse(pose: &Pose) -> Pose {
    let rotation = pose.rotation.transpose();
    Pose { rotation, translation: -(rotation * pose.translation) }
}

/// Coordinates one after another.
pub(super) fn flat<'a>(vectors: impl IntoIterator<Item = &'a Vector>) -> Vec<f64> {
    vectors.into_iter().flat_map(|v| [v.x, v.y, v.z]).collect()
}

/// Image points one after another.
pub(super) fn images<'a>(seen: impl IntoIterator<Item = &'a Vector>) -> Vec<f64> {
    seen.into_iter().flat_map(|p| [p.x / p.z, p.y / p.z]).collect()
}

/// Measured: three unit rays, three points.
pub(super) fn p3p(random: &mut Random) -> Option<Instance> {
    let pose = pose(random);
    let seen: Vec<_> = (0..3).map(|_| random.seen()).collect();
    let points: Vec<_> = seen.iter().map(|p| inverse(&pose).apply(p)).collect();
    let near = seen.iter().map(|p| p.norm()).collect();
    let rays: Vec<_> = seen.iter().map(|p| p.normalize()).collect();
    Some(Instance::plain([flat(&rays), flat(&points)].concat(), near, Geometry::of_points(pose, &points)))
}

pub(super) fn p3p_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let mut seen = [Vector3::zeros(); 3];
    let mut points = [Vector3::zeros(); 3];
    for i in 0..3 {
        seen[i] = vector(measured, 3 * i)? * *root.get(i)?;
        points[i] = vector(measured, 9 + 3 * i)?;
    }
    let (pose, _) = align_three(&points, &seen)?;
    Some(vec![Geometry::of_points(pose, &points)])
}

/// Measured: three image points, three points.
pub(super) fn p3p_pose(random: &mut Random) -> Option<Instance> {
    let (q, t) = (random.rotation(), random.vector(3.0));
    let seen: Vec<_> = (0..3).map(|_| random.seen()).collect();
    let to_points = Pose { rotation: matrix(&q), translation: t };
    let points: Vec<_> = seen.iter().map(|p| to_points.apply(p)).collect();
    let depths: Vec<_> = seen.iter().map(|p| p.z).collect();
    let near = [t.as_slice(), &quaternion(&q), &depths].concat();
    let truth = Geometry::of_points(inverse(&to_points), &points);
    Some(Instance::plain([images(&seen), flat(&points)].concat(), near, truth))
}

pub(super) fn p3p_pose_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let to_points = Pose { rotation: rotation(root.get(3..7)?)?, translation: vector(root, 0)? };
    Some(vec![Geometry::of_points(inverse(&to_points), &vectors(measured.get(6..)?))])
}

/// Image points with noise, and the points: `u, v` of all, then `x, y, z` of all.
fn scene(random: &mut Random) -> (UnitQuaternion<f64>, Vector, Vec<f64>) {
    let (q, t) = (random.rotation(), random.vector(1.0));
    let seen: Vec<_> = (0..POINTS).map(|_| random.seen()).collect();
    let points: Vec<_> = seen.iter().map(|p| q.inverse() * (p - t)).collect();
    let noisy = images(&seen).into_iter().map(|v| v + random.normal(NOISE)).collect::<Vec<_>>();
    (q, t, [noisy, flat(&points)].concat())
}

/// Rays `(u, v, 1)` and points of any number of correspondences.
fn correspondences(measured: &[f64]) -> Option<(Vec<Vector>, Vec<Vector>)> {
    let enough = measured.len() >= 15 && measured.len().is_multiple_of(5);
    let (images, points) = measured.split_at(measured.len() / 5 * 2);
    enough.then(|| (rays(images), vectors(points)))
}

/// A point as a matrix by which the columns of a rotation are multiplied.
fn by_columns(point: &Vector) -> SMatrix<f64, 3, 9> {
    SMatrix::from_fn(|row, k| if k % 3 == row { point[k / 3] } else { 0.0 })
}

/// What is off a ray.
fn off(ray: &Vector) -> Matrix3<f64> {
    let ray = ray.normalize();
    Matrix3::identity() - ray * ray.transpose()
}

/// The matrix that gives the best translation of a rotation, by its columns.
fn shift(rays: &[Vector], points: &[Vector]) -> Option<SMatrix<f64, 3, 9>> {
    let sum = rays.iter().fold(Matrix3::zeros(), |sum, ray| sum + off(ray));
    let weighted = rays.iter().zip(points).map(|(ray, point)| off(ray) * by_columns(point));
    Some(-sum.try_inverse()? * weighted.fold(SMatrix::zeros(), |sum, m| sum + m))
}

/// The upper triangle, row by row.
fn triangle(m: &SMatrix<f64, 9, 9>) -> Vec<f64> {
    (0..9).flat_map(|i| (i..9).map(move |j| m[(i, j)])).collect()
}

/// The matrix of the cost with the translation eliminated.
pub(super) fn optimal_pnp_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    let (rays, points) = correspondences(measured)?;
    let shift = shift(&rays, &points)?;
    let terms = rays.iter().zip(&points).map(|(ray, point)| {
        let linear = by_columns(point) + shift;
        linear.transpose() * off(ray) * linear
    });
    Some(triangle(&terms.fold(SMatrix::zeros(), |sum, m| sum + m)))
}

pub(super) fn optimal_pnp(random: &mut Random) -> Option<Instance> {
    let (q, t, measured) = scene(random);
    let (rays, points) = correspondences(&measured)?;
    // Turned by a small angle, and moved.
    let at = |x: &DVector<f64>| {
        let turn = UnitQuaternion::from_scaled_axis(Vector3::new(x[0], x[1], x[2])) * q;
        (turn, t + Vector3::new(x[3], x[4], x[5]))
    };
    let residual = |x: &DVector<f64>| {
        let (turn, t) = at(x);
        let parts = rays.iter().zip(&points).flat_map(|(ray, p)| flat(&[off(ray) * (turn * p + t)]));
        DVector::from_vec(parts.collect())
    };
    let (best, t) = at(&refined(DVector::zeros(6), residual)?);
    let truth = Geometry::of_points(Pose { rotation: matrix(&best), translation: t }, &points);
    let parameters = optimal_pnp_reduced(&measured)?;
    Some(Instance::reduced(measured, parameters, quaternion(&best).to_vec(), truth))
}

pub(super) fn optimal_pnp_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (rays, points) = correspondences(measured)?;
    let rotation = rotation(root)?;
    let translation = shift(&rays, &points)? * SMatrix::<f64, 9, 1>::from_column_slice(rotation.as_slice());
    Some(vec![Geometry::of_points(Pose { rotation, translation }, &points)])
}

/// The algebraic cost of a rotation times a scale at which the mean depth is one: rows `A` and `c` of
/// `A r + c` with its columns `r`, before x and y of the translation are eliminated, all of x first.
fn algebraic(rays: &[Vector], points: &[Vector]) -> (DMatrix<f64>, DVector<f64>) {
    let mean = points.iter().sum::<Vector>() / points.len() as f64;
    let n = points.len();
    let mut rows = DMatrix::zeros(2 * n, 9);
    let mut right = DVector::zeros(2 * n);
    for (i, (ray, point)) in rays.iter().zip(points).enumerate() {
        for line in 0..2 {
            let at = line * n + i;
            for c in 0..3 {
                rows[(at, 3 * c + line)] = -point[c];
                rows[(at, 3 * c + 2)] = ray[line] * (point[c] - mean[c]);
            }
            right[at] = ray[line];
        }
    }
    (rows, right)
}

/// The quadratic form of the cost and its linear part, with the translation eliminated.
pub(super) fn pnp_cubics_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    let (rays, points) = correspondences(measured)?;
    let n = points.len();
    let (mut rows, mut right) = algebraic(&rays, &points);
    for line in 0..2 {
        let mut part = rows.rows_mut(line * n, n);
        let mean = part.row_mean();
        part.row_iter_mut().for_each(|mut row| row -= &mean);
        let mut part = right.rows_mut(line * n, n);
        let mean = part.mean();
        part.add_scalar_mut(-mean);
    }
    let form = rows.transpose() * &rows / n as f64;
    let linear = rows.transpose() * right / n as f64;
    let form = SMatrix::<f64, 9, 9>::from_column_slice(form.as_slice());
    Some([triangle(&form), linear.as_slice().to_vec()].concat())
}

/// The rotation of a quaternion times its squared length.
fn scaled(q: &[f64]) -> Option<Matrix3<f64>> {
    Some(rotation(q)? * q.iter().map(|v| v * v).sum::<f64>())
}

pub(super) fn pnp_cubics(random: &mut Random) -> Option<Instance> {
    let (q, t, measured) = scene(random);
    let (rays, points) = correspondences(&measured)?;
    let n = points.len();
    let (rows, right) = algebraic(&rays, &points);
    let mean = points.iter().sum::<Vector>() / n as f64;
    let depth = (q * mean + t).z;
    let begin = quaternion(&q).map(|v| v / depth.abs().sqrt());
    let begin = DVector::from_vec([&begin[..], &[t.x / depth, t.y / depth]].concat());
    let residual = |x: &DVector<f64>| {
        let r = scaled(&x.as_slice()[..4]).unwrap_or_else(Matrix3::zeros);
        let mut sum = &rows * DVector::from_column_slice(r.as_slice()) + &right;
        (0..2).for_each(|line| sum.rows_mut(line * n, n).add_scalar_mut(-x[4 + line]));
        sum
    };
    let best = refined(begin, residual)?;
    let (q, t) = best.as_slice().split_at(4);
    let scale: f64 = q.iter().map(|v| v * v).sum();
    let rotation = rotation(q)?;
    let depth = 1.0 - (rotation * mean).z * scale;
    let pose = Pose { rotation, translation: Vector3::new(t[0], t[1], depth) / scale };
    let truth = Geometry::of_points(pose, &points);
    let parameters = pnp_cubics_reduced(&measured)?;
    Some(Instance::reduced(measured, parameters, q.to_vec(), truth))
}

pub(super) fn pnp_cubics_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (rays, points) = correspondences(measured)?;
    let n = points.len();
    let scale: f64 = root.iter().map(|v| v * v).sum();
    // The root at zero stands for no pose.
    let turned = scaled(root).filter(|_| scale > 1e-9)?;
    let (rows, right) = algebraic(&rays, &points);
    let sum = rows * DVector::from_column_slice(turned.as_slice()) + right;
    let mean = points.iter().sum::<Vector>() / n as f64;
    let depth = 1.0 - (turned * mean).z;
    let translation = Vector3::new(sum.rows(0, n).mean(), sum.rows(n, n).mean(), depth) / scale;
    Some(vec![Geometry::of_points(Pose { rotation: turned / scale, translation }, &points)])
}

/// Measured: four points, four image points, the radius of the cones.
pub(super) fn optimal_p4p(random: &mut Random) -> Option<Instance> {
    const CONE: f64 = 0.005;
    let angle = random.between(-3.0, 3.0);
    let (s, c) = (libm::sin(angle), libm::cos(angle));
    let pose = Pose { rotation: upright(c, s), translation: random.vector(2.0) };
    let (mut points, mut images) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let seen = random.seen();
        points.push(inverse(&pose).apply(&seen));
        let around = random.between(-3.2, 3.2);
        images
            .extend([seen.x / seen.z + CONE * libm::cos(around), seen.y / seen.z + CONE * libm::sin(around)]);
    }
    let near = [pose.translation.as_slice(), &[c, s]].concat();
    let measured = [flat(&points), images, vec![CONE]].concat();
    Some(Instance::plain(measured, near, Geometry::of_points(pose, &points)))
}

pub(super) fn optimal_p4p_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let pose = Pose { rotation: upright(*root.get(3)?, *root.get(4)?), translation: vector(root, 0)? };
    Some(vec![Geometry::of_points(pose, &vectors(measured.get(..12)?))])
}

/// The rotation about the z axis with this cosine and sine.
pub(super) fn upright(c: f64, s: f64) -> Matrix3<f64> {
    Matrix3::new(c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0)
}

/// A receiver pair and five sources. Measured: the sources, and the cosines of their directions to the
/// axis of the pair.
pub(super) fn tdoa_5(random: &mut Random) -> Option<Instance> {
    let centre = random.vector(1.0);
    let n = Vector3::new(random.normal(0.7), random.normal(0.7), 1.0);
    let sources: Vec<Vector> = (0..5).map(|_| random.vector(2.0)).collect();
    let cosines = sources.iter().map(|u| (u - centre).normalize().dot(&n.normalize()));
    let measured = flat(&sources).into_iter().chain(cosines).collect();
    let near = vec![centre.x, centre.y, centre.z, n.x, n.y];
    let truth = Geometry { points: vec![centre], direction: Some(n.normalize()), ..Geometry::default() };
    Some(Instance::plain(measured, near, truth))
}

/// The place of the pair and its axis, of which only the squares of the cosines are used: both signs.
pub(super) fn tdoa_5_recovered(root: &[f64], _: &[f64]) -> Option<Vec<Geometry>> {
    let axis = Vector3::new(*root.get(3)?, *root.get(4)?, 1.0).normalize();
    let points = vec![vector(root, 0)?];
    let one = |axis| Geometry { points: points.clone(), direction: Some(axis), ..Geometry::default() };
    Some(vec![one(axis), one(-axis)])
}

/// Motion of a camera while its rows are read.
struct Shutter {
    turn: Vector,
    rate: Vector,
    centre: Vector,
    velocity: Vector,
}

impl Shutter {
    fn new(random: &mut Random) -> Self {
        let (turn, rate) = (random.vector(0.1), random.vector(0.1));
        Self { turn, rate, centre: random.vector(0.5), velocity: random.vector(0.2) }
    }

    /// Where a point is for the row that sees it, if there is one; `rotated` is the point turned.
    fn see(&self, rotated: Vector) -> Option<Vector> {
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

    fn geometry(&self, rotation: Matrix3<f64>, depths: Vec<f64>) -> Geometry {
        let poses = vec![Pose { rotation, translation: self.centre }];
        Geometry { poses, motion: Some([self.rate, self.velocity]), depths, ..Geometry::default() }
    }
}

/// The linear equations of a shutter: per image coordinate the vectors that stand with each monomial
/// of `v` and `w`, and those of centre and velocity. Measured: six image points, six points.
fn shutter_equations(measured: &[f64]) -> Option<(DMatrix<f64>, DMatrix<f64>)> {
    let (rays, points) = correspondences(measured)?;
    let mut known = DMatrix::zeros(12, 16);
    let mut eliminated = DMatrix::zeros(12, 6);
    for (i, (ray, point)) in rays.iter().zip(&points).enumerate().take(6) {
        // (I + row [w]) (I + [v]) X
        let unit = |k: usize| Vector3::ith(k, 1.0);
        let row = ray.y;
        let mut vectors = Vec::new();
        for a in 0..3 {
            (0..3).for_each(|b| vectors.push(unit(b).cross(&unit(a).cross(point)) * row));
        }
        (0..3).for_each(|a| vectors.push(unit(a).cross(point)));
        (0..3).for_each(|b| vectors.push(unit(b).cross(point) * row));
        vectors.push(*point);
        for line in 0..2 {
            let at = 2 * i + line;
            let part = |v: &Vector| v[line] - ray[line] * v.z;
            vectors.iter().enumerate().for_each(|(k, v)| known[(at, k)] = part(v));
            for k in 0..3 {
                eliminated[(at, k)] = part(&unit(k));
                eliminated[(at, 3 + k)] = part(&unit(k)) * row;
            }
        }
    }
    (rays.len() == 6).then_some((known, eliminated))
}

/// Coefficients of the monomials with centre and velocity eliminated.
pub(super) fn rolling_shutter_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    let (known, eliminated) = shutter_equations(measured)?;
    let free = null_space(&eliminated.transpose(), 6)?;
    let rest = free.transpose() * known;
    Some((0..6).flat_map(|i| (0..16).map(move |k| (i, k))).map(|cell| rest[cell]).collect())
}

pub(super) fn rolling_shutter(random: &mut Random) -> Option<Instance> {
    let shutter = Shutter::new(random);
    let points: Vec<_> = (0..6).map(|_| random.seen()).collect();
    let seen = points.iter().map(|p| shutter.see(p + shutter.turn.cross(p))).collect::<Option<Vec<_>>>()?;
    let measured = [images(&seen), flat(&points)].concat();
    let near = [shutter.turn.as_slice(), shutter.rate.as_slice()].concat();
    let truth = shutter.geometry(of_vector(&shutter.turn), seen.iter().map(|p| p.z).collect());
    let parameters = rolling_shutter_reduced(&measured)?;
    Some(Instance::reduced(measured, parameters, near, truth))
}

/// The rotation about a vector by its length: to first order what the problem has.
fn of_vector(v: &Vector) -> Matrix3<f64> {
    matrix(&UnitQuaternion::from_scaled_axis(*v))
}

pub(super) fn rolling_shutter_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (known, eliminated) = shutter_equations(measured)?;
    let (turn, rate) = (vector(root, 0)?, vector(root, 3)?);
    let products = turn.iter().flat_map(|v| rate.iter().map(move |w| v * w));
    let monomials = products.chain(turn.iter().copied()).chain(rate.iter().copied()).chain([1.0]);
    let right = -known * DVector::from_vec(monomials.collect());
    let rest = least_squares(eliminated, &right)?;
    let (centre, velocity) = (vector(rest.as_slice(), 0)?, vector(rest.as_slice(), 3)?);
    let shutter = Shutter { turn, rate, centre, velocity };
    let (rays, points) = correspondences(measured)?;
    let depth = |(ray, point): (&Vector, &Vector)| {
        let turned = point + turn.cross(point);
        (turned + rate.cross(&turned) * ray.y + centre + velocity * ray.y).z
    };
    let depths = rays.iter().zip(&points).map(depth).collect();
    Some(vec![shutter.geometry(of_vector(&turn), depths)])
}

/// Measured: the row whose time is zero, six rows, six image points, six points.
pub(super) fn rolling_shutter_1lin(random: &mut Random) -> Option<Instance> {
    let mut shutter = Shutter::new(random);
    // Cayley: any rotation but by 180 degrees.
    shutter.turn = random.vector(0.5);
    let v = shutter.turn;
    let rotation = cayley(v.as_slice())?;
    let points: Vec<_> = (0..6).map(|_| rotation.transpose() * random.seen()).collect();
    let seen = points.iter().map(|p| shutter.see(rotation * p)).collect::<Option<Vec<_>>>()?;
    let rows: Vec<_> = [0.0].into_iter().chain(seen.iter().map(|p| p.y / p.z)).collect();
    let depths: Vec<_> = seen.iter().map(|p| p.z).collect();
    let near = [flat(&[v, shutter.rate, shutter.centre, shutter.velocity]), depths.clone()].concat();
    let truth = shutter.geometry(rotation, depths);
    Some(Instance::plain([rows, images(&seen), flat(&points)].concat(), near, truth))
}

pub(super) fn rolling_shutter_1lin_recovered(root: &[f64], _: &[f64]) -> Option<Vec<Geometry>> {
    let part = |at| vector(root, at);
    let shutter = Shutter { turn: part(0)?, rate: part(3)?, centre: part(6)?, velocity: part(9)? };
    Some(vec![shutter.geometry(cayley(root)?, root.get(12..)?.to_vec())])
}
