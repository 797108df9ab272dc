//! Relative pose of two views: instances, and what their roots say.

use super::absolute::{images, upright};
use super::geometry::{null_space, of_essential, rays, two_views, vector, Geometry};
use super::instance::{matrix, quaternion, rotation, Instance, Random};
use crate::geometry::{Pose, Vector};
use nalgebra::{DMatrix, Matrix3, UnitQuaternion, Vector3};

/// Two views of points.
struct Pair {
    rotation: UnitQuaternion<f64>,
    translation: Vector,
    first: Vec<Vector>,
    second: Vec<Vector>,
}

fn pair(random: &mut Random, count: usize) -> Option<Pair> {
    let (rotation, translation) = (random.turn(0.5), random.vector(1.0));
    let first: Vec<_> = (0..count).map(|_| random.seen()).collect();
    let second: Vec<_> = first.iter().map(|p| rotation * p + translation).collect();
    let useful = translation.z.abs() > 0.1 && second.iter().all(|p| p.z > 0.3);
    useful.then_some(Pair { rotation, translation, first, second })
}

impl Pair {
    /// Measured: per point its image in the first and in the second view.
    fn images(&self) -> Vec<f64> {
        images(self.first.iter().zip(&self.second).flat_map(|(p, q)| [p, q]))
    }

    /// With a translation of length one.
    fn geometry(&self) -> Geometry {
        let rotation = matrix(&self.rotation);
        let poses = vec![Pose { rotation, translation: self.translation.normalize() }];
        Geometry { poses, ..Geometry::default() }
    }
}

/// The rays of both views.
fn sides(measured: &[f64]) -> [Vec<Vector>; 2] {
    let all = rays(measured);
    [0, 1].map(|side| all.iter().skip(side).step_by(2).copied().collect())
}

pub(super) fn five_point(random: &mut Random) -> Option<Instance> {
    let pair = pair(random, 5)?;
    let t = pair.translation / pair.translation.z;
    let near = [&t.as_slice()[..2], &quaternion(&pair.rotation)].concat();
    Some(Instance::plain(pair.images(), near, pair.geometry()))
}

/// Of `tx, ty, q`: of both rotations of the essential matrix the one of the root.
pub(super) fn five_point_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let translation = Vector3::new(*root.first()?, *root.get(1)?, 1.0);
    let [x, y] = sides(measured);
    Some(two_views(rotation(root.get(2..6)?)?, translation, &x, &y))
}

pub(super) fn five_point_depths(random: &mut Random) -> Option<Instance> {
    let pair = pair(random, 5)?;
    let z = pair.translation.z;
    let t = pair.translation / z;
    let depths = pair.first.iter().chain(&pair.second).map(|p| p.z / z).collect::<Vec<_>>();
    let near = [&depths[..], &t.as_slice()[..2], &quaternion(&pair.rotation)].concat();
    Some(Instance::plain(pair.images(), near, pair.geometry()))
}

pub(super) fn five_point_depths_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    five_point_recovered(root.get(10..)?, measured)
}

/// The matrices that span all which meet the epipolar constraints, one after another, row by row.
pub(super) fn five_point_nullspace_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    epipolar(measured.get(..20)?)
}

/// Orthonormal matrices that span all with `y' E x = 0` for up to eight pairs of rays.
fn epipolar(measured: &[f64]) -> Option<Vec<f64>> {
    let [x, y] = sides(measured);
    let mut linear = DMatrix::zeros(x.len(), 9);
    for (i, (x, y)) in x.iter().zip(&y).enumerate() {
        let products = y * x.transpose();
        (0..9).for_each(|k| linear[(i, k)] = products[(k / 3, k % 3)]);
    }
    Some(null_space(&linear, 9 - x.len())?.as_slice().to_vec())
}

pub(super) fn five_point_nullspace(random: &mut Random) -> Option<Instance> {
    let pair = pair(random, 5)?;
    let measured = pair.images();
    let basis = five_point_nullspace_reduced(&measured)?;
    let essential = pair.translation.cross_matrix() * matrix(&pair.rotation);
    let share = |j: usize| (0..9).map(|k| basis[9 * j + k] * essential[(k / 3, k % 3)]).sum::<f64>();
    let last = share(3);
    let near: Vec<f64> = (0..3).map(|j| share(j) / last).collect();
    let useful = near.iter().all(|v| v.abs() < 20.0);
    useful.then(|| Instance::reduced(measured, basis, near, pair.geometry()))
}

pub(super) fn five_point_nullspace_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let basis = five_point_nullspace_reduced(measured)?;
    let [a, b, c] = *root.first_chunk()?;
    let entry = |k: usize| a * basis[k] + b * basis[9 + k] + c * basis[18 + k] + basis[27 + k];
    let (rotations, direction) = of_essential(Matrix3::from_fn(|i, j| entry(3 * i + j)))?;
    let [x, y] = sides(measured);
    Some(rotations.into_iter().flat_map(|rotation| two_views(rotation, direction, &x, &y)).collect())
}

/// The matrices that span all which meet the epipolar constraints, as [`five_point_nullspace_reduced`] has them.
pub(super) fn six_point_focal_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    epipolar(measured.get(..24)?)
}

/// Measured: per point its image in the first and in the second view, both with the same focal length.
pub(super) fn six_point_focal(random: &mut Random) -> Option<Instance> {
    let pair = pair(random, 6)?;
    let f = random.between(0.5, 2.0);
    let measured: Vec<f64> = pair.images().into_iter().map(|v| v * f).collect();
    let basis = six_point_focal_reduced(&measured)?;
    let ray = Matrix3::from_diagonal(&Vector3::new(1.0 / f, 1.0 / f, 1.0));
    let fundamental = ray * pair.translation.cross_matrix() * matrix(&pair.rotation) * ray;
    let share = |j: usize| (0..9).map(|k| basis[9 * j + k] * fundamental[(k / 3, k % 3)]).sum::<f64>();
    let near = vec![share(0) / share(2), share(1) / share(2), 1.0 / (f * f)];
    let truth = Geometry { focal: Some(f), ..pair.geometry() };
    let useful = near.iter().all(|v| v.abs() < 20.0);
    useful.then(|| Instance::reduced(measured, basis, near, truth))
}

pub(super) fn six_point_focal_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let basis = six_point_focal_reduced(measured)?;
    let [a, b, w] = *root.first_chunk()?;
    let f = (w > 0.0).then(|| 1.0 / w.sqrt())?;
    let entry = |k: usize| a * basis[k] + b * basis[9 + k] + basis[18 + k];
    let camera = Matrix3::from_diagonal(&Vector3::new(f, f, 1.0));
    let (rotations, direction) = of_essential(camera * Matrix3::from_fn(|i, j| entry(3 * i + j)) * camera)?;
    let rays: Vec<f64> = measured.iter().map(|v| v / f).collect();
    let [x, y] = sides(rays.get(..24)?);
    let all = rotations.into_iter().flat_map(|rotation| two_views(rotation, direction, &x, &y));
    Some(all.map(|one| Geometry { focal: Some(f), ..one }).collect())
}

/// Measured: all x of three unit rays of the first view, all y, all z; then of the second view.
pub(super) fn homography_3pt(random: &mut Random) -> Option<Instance> {
    let angle = random.between(-1.0, 1.0);
    let (s, c) = (libm::sin(angle), libm::cos(angle));
    let first: Vec<Vector> = (0..3).map(|_| random.seen()).collect();
    let t = random.vector(1.0);
    let second: Vec<Vector> = first.iter().map(|p| upright(c, s) * p + t).collect();
    let useful = t.z.abs() > 0.1 && second.iter().all(|p| p.z > 0.3);
    let plane = Matrix3::from_rows(&[first[0].transpose(), first[1].transpose(), first[2].transpose()]);
    // n X = h for points of the plane; lengths in units of h.
    let n = plane.try_inverse()? * Vector3::repeat(1.0);
    let (h, n) = (1.0 / n.norm(), n.normalize());
    let t = t / h;
    let (first, second) = (first.iter().map(|p| p / h), second.iter().map(|p| p / h));
    let (first, second): (Vec<_>, Vec<_>) = (first.collect(), second.collect());
    let coordinate = |list: &[Vector], k: usize| list.iter().map(|p| p.normalize()[k]).collect::<Vec<_>>();
    let lists = [&first, &second].into_iter().flat_map(|list| (0..3).flat_map(|k| coordinate(list, k)));
    let measured = lists.collect::<Vec<_>>();
    let near = vec![n.x, n.y, n.z, c, s, -t.z, t.x / t.z, t.y / t.z];
    let poses = vec![Pose { rotation: upright(c, s), translation: t }];
    let truth = Geometry { poses, direction: Some(n), ..Geometry::default() };
    useful.then(|| Instance::plain(measured, near, truth))
}

/// The unit of length is the distance of the first camera from the plane.
pub(super) fn homography_3pt_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (n, d) = (vector(root, 0)?, *root.get(5)?);
    let translation = Vector3::new(*root.get(6)?, *root.get(7)?, 1.0) * -d;
    let pose = Pose { rotation: upright(*root.get(3)?, *root.get(4)?), translation };
    let ray = |at: usize| Vector3::new(measured[at], measured[at + 3], measured[at + 6]);
    let first = (measured.len() == 18).then(|| (0..3).map(ray).map(|x| x / n.dot(&x)).collect::<Vec<_>>())?;
    let second = first.iter().map(|x| pose.apply(x)).collect::<Vec<_>>();
    // Along the ray: a camera whose z axis is not ahead of a point may see it all the same.
    let along = |(k, p): (usize, &Vector)| p.dot(&ray(k + if k < 3 { 0 } else { 6 }));
    let depths = first.iter().chain(&second).enumerate().map(along).collect();
    Some(vec![Geometry { poses: vec![pose], direction: Some(n), depths, ..Geometry::default() }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_a_seed_are_the_same_and_of_two_seeds_are_not() {
        let draw = |seed| five_point(&mut Random::new(seed)).map(|i| i.parameters);
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
