//! Instances of relative pose, and poses from their roots.

use super::absolute::null_space;
use super::instance::{quaternion, rotation, Instance, Random};
use crate::geometry::Pose;
use nalgebra::{DMatrix, Matrix3, Quaternion, UnitQuaternion, Vector3};

/// Two views of points: the pose of the second camera to the first, scaled to a translation
/// (x, y, 1), and the points in both, in that scale.
struct Pair {
    rotation: UnitQuaternion<f64>,
    translation: Vector3<f64>,
    first: Vec<Vector3<f64>>,
    second: Vec<Vector3<f64>>,
}

fn pair(random: &mut Random, count: usize) -> Option<Pair> {
    let (rotation, translation) = (random.turn(0.5), random.vector(1.0));
    let first: Vec<_> = (0..count).map(|_| random.seen()).collect();
    let second: Vec<_> = first.iter().map(|p| rotation * p + translation).collect();
    let useful = translation.z.abs() > 0.1 && second.iter().all(|p| p.z > 0.3);
    let scale = 1.0 / translation.z;
    let scaled = |list: Vec<Vector3<f64>>| list.into_iter().map(|p| p * scale).collect();
    useful.then(|| Pair {
        rotation,
        translation: translation * scale,
        first: scaled(first),
        second: scaled(second),
    })
}

impl Pair {
    fn images(&self) -> Vec<f64> {
        let both = self.first.iter().zip(&self.second);
        both.flat_map(|(p, q)| [p.x / p.z, p.y / p.z, q.x / q.z, q.y / q.z]).collect()
    }

    fn pose(&self) -> Pose {
        Pose { rotation: self.rotation.to_rotation_matrix().into_inner(), translation: self.translation }
    }
}

pub(super) fn five_point(random: &mut Random) -> Option<Instance> {
    let pair = pair(random, 5)?;
    let near = [&pair.translation.as_slice()[..2], &quaternion(&pair.rotation)].concat();
    Some(Instance::real(pair.images(), near, Some(pair.pose())))
}

/// The pose of `tx, ty, q`; of both rotations of the essential matrix the one of the root.
pub(super) fn five_point_recovered(root: &[f64], _: &[f64]) -> Option<Pose> {
    let translation = Vector3::new(*root.first()?, *root.get(1)?, 1.0);
    Some(Pose { rotation: rotation(root.get(2..6)?)?, translation })
}

pub(super) fn five_point_depths(random: &mut Random) -> Option<Instance> {
    let pair = pair(random, 5)?;
    let depths = pair.first.iter().chain(&pair.second).map(|p| p.z).collect::<Vec<_>>();
    let near = [&depths[..], &pair.translation.as_slice()[..2], &quaternion(&pair.rotation)].concat();
    Some(Instance::real(pair.images(), near, Some(pair.pose())))
}

pub(super) fn five_point_depths_recovered(root: &[f64], parameters: &[f64]) -> Option<Pose> {
    five_point_recovered(root.get(10..)?, parameters)
}

pub(super) fn five_point_nullspace(random: &mut Random) -> Option<Instance> {
    let pair = pair(random, 5)?;
    let mut linear = DMatrix::zeros(5, 9);
    for (i, (p, q)) in pair.first.iter().zip(&pair.second).enumerate() {
        let products = (q / q.z) * (p / p.z).transpose();
        (0..9).for_each(|k| linear[(i, k)] = products[(k / 3, k % 3)]);
    }
    let basis = null_space(&linear, 4)?;
    let essential = pair.translation.cross_matrix() * pair.rotation.to_rotation_matrix().matrix();
    let share = |j: usize| (0..9).map(|k| basis[(k, j)] * essential[(k / 3, k % 3)]).sum::<f64>();
    let last = share(3);
    let near: Vec<f64> = (0..3).map(|j| share(j) / last).collect();
    (near.iter().all(|v| v.abs() < 20.0)).then(|| Instance::real(basis.as_slice().to_vec(), near, None))
}

pub(super) fn relative_pose_focal(random: &mut Random) -> Option<Instance> {
    let (b, c, d) = (random.normal(0.5), random.normal(0.5), random.normal(0.5));
    let w = random.between(0.5, 2.0);
    let q = Quaternion::new(1.0, b, c, d);
    let r = UnitQuaternion::from_quaternion(q).to_rotation_matrix().into_inner() * q.norm_squared();
    let kr = Matrix3::from_diagonal(&Vector3::new(1.0, 1.0, w)) * r;
    let mut rows = Vec::new();
    for _ in 0..4 {
        let row = Matrix3::from_fn(|_, _| random.normal(1.0));
        rows.push(row - kr * (row.dot(&kr) / kr.norm_squared()));
    }
    let parameters = (0..9).flat_map(|k| rows.iter().map(move |row| row.as_slice()[k])).collect();
    Some(Instance::real(parameters, vec![b, c, d, w], None))
}

pub(super) fn homography_3pt(random: &mut Random) -> Option<Instance> {
    let angle = random.between(-2.0, 2.0);
    let (s, c) = (libm::sin(angle), libm::cos(angle));
    let r = Matrix3::new(c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0);
    let (n, d) = (random.vector(1.0).normalize(), random.between(0.1, 0.7));
    let t = Vector3::new(random.normal(1.0), random.normal(1.0), 1.0);
    let h = r - t * n.transpose() * d;
    let points: Vec<Vector3<f64>> = (0..3).map(|_| random.seen().normalize()).collect();
    let images: Vec<Vector3<f64>> = points.iter().map(|p| (h * p).normalize()).collect();
    // The same coordinate of all points together: a, b, g, p, q, r.
    let coordinate = |list: &[Vector3<f64>], k: usize| list.iter().map(|p| p[k]).collect::<Vec<_>>();
    let lists =
        (0..3).flat_map(|k| coordinate(&points, k)).chain((0..3).flat_map(|k| coordinate(&images, k)));
    Some(Instance::real(lists.collect(), vec![n.x, n.y, n.z, c, s, d, t.x, t.y], None))
}

pub(super) fn tdoa_5(random: &mut Random) -> Option<Instance> {
    let centre = random.vector(1.0);
    let n = Vector3::new(random.normal(0.7), random.normal(0.7), 1.0);
    let sources: Vec<Vector3<f64>> = (0..5).map(|_| random.vector(2.0)).collect();
    let cosines = sources.iter().map(|u| (u - centre).dot(&n) / ((u - centre).norm() * n.norm()));
    let parameters = sources.iter().flat_map(|u| [u.x, u.y, u.z]).chain(cosines).collect();
    Some(Instance::real(parameters, vec![centre.x, centre.y, centre.z, n.x, n.y], None))
}

pub(super) fn trifocal_focal(random: &mut Random) -> Option<Instance> {
    let f = random.between(0.8, 2.0);
    let points: Vec<_> = (0..4).map(|_| random.seen()).collect();
    let mut views = vec![points.clone()];
    for _ in 0..2 {
        let (r, t) = (random.turn(0.5), random.vector(1.0));
        views.push(points.iter().map(|p| r * p + t).collect());
    }
    let useful = views.iter().flatten().all(|p| p.z > 0.5);
    let scale = 1.0 / views[0][0].z;
    let depths: Vec<f64> = views.iter().flatten().map(|p| p.z * scale).collect();
    let near = [&[f * f], &depths[1..]].concat();
    let image = |view: &[Vector3<f64>], k: usize| view.iter().map(|p| f * p[k] / p.z).collect::<Vec<_>>();
    let parameters = views.iter().flat_map(|view| [image(view, 0), image(view, 1)].concat()).collect();
    useful.then(|| Instance::real(parameters, near, None))
}

pub(super) fn generalized_3view(random: &mut Random) -> Option<Instance> {
    let points: Vec<_> = (0..4).map(|_| random.seen()).collect();
    let (mut rays, mut offsets, mut depths) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (r, t) = (random.rotation(), random.vector(1.0));
        for point in &points {
            let offset = random.vector(0.5);
            let ray = r * point + t - offset;
            rays.extend(ray.normalize().iter());
            offsets.extend(offset.iter());
            depths.push(ray.norm());
        }
    }
    Some(Instance::real([rays, offsets].concat(), depths, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::pose_error;
    use crate::homotopy::problems::{vision, Random};

    #[test]
    fn poses_come_back_from_true_roots() {
        for problem in vision() {
            let Some(recovery) = problem.recovery else { continue };
            for seed in 0..20 {
                let Some(instance) = problem.instance(seed) else { panic!("{}", problem.name) };
                let real = |v: &[nalgebra::Complex<f64>]| v.iter().map(|v| v.re).collect::<Vec<_>>();
                let pose = recovery(&real(&instance.near), &real(&instance.parameters)).expect("a pose");
                let truth = instance.pose.expect("a true pose");
                let (angle, shift) = pose_error(&pose.to_rigid(), &truth.to_rigid());
                assert!(angle < 1e-6 && shift < 1e-6, "{}: {angle} {shift}", problem.name);
            }
        }
    }

    #[test]
    fn instances_of_a_seed_are_the_same_and_of_two_seeds_are_not() {
        let draw = |seed| five_point(&mut Random::new(seed)).map(|i| i.parameters);
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
