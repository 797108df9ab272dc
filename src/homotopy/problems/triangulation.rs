//! Instances of triangulation.

use super::instance::{Instance, Random};
use nalgebra::{Vector2, Vector3};

/// Noise of image points, in units of the focal length.
const NOISE: f64 = 1e-3;

/// Cameras in a chain: translations and rotations from one to the next (by rows), and the point in
/// each of them.
fn chain(random: &mut Random, views: usize) -> Option<(Vec<f64>, Vec<Vector3<f64>>)> {
    let mut points = vec![random.seen()];
    let mut parameters = Vec::new();
    for _ in 1..views {
        let (r, t) = (random.turn(0.5), random.vector(0.7));
        let next = r * points.last()? + t;
        points.push(next);
        parameters.extend(t.iter());
        parameters.extend(r.to_rotation_matrix().matrix().transpose().iter());
    }
    points.iter().all(|p| p.z > 0.5 && p.xy().norm() < 1.5 * p.z).then_some((parameters, points))
}

fn chained(random: &mut Random, views: usize) -> Option<Instance> {
    let (mut parameters, points) = chain(random, views)?;
    let mut near = Vec::new();
    for point in &points {
        let image = point.xy() / point.z;
        near.extend(image.iter());
        parameters.extend([image.x + random.normal(NOISE), image.y + random.normal(NOISE)]);
    }
    near.extend(std::iter::repeat_n(0.0, views - 1));
    Some(Instance::real(parameters, near, None))
}

pub(super) fn two_views(random: &mut Random) -> Option<Instance> {
    chained(random, 2)
}

pub(super) fn three_views(random: &mut Random) -> Option<Instance> {
    chained(random, 3)
}

pub(super) fn four_views(random: &mut Random) -> Option<Instance> {
    chained(random, 4)
}

/// Where the division model with `k` puts an image point.
fn distort(image: Vector2<f64>, k: f64) -> Vector2<f64> {
    // r = u (1 + k r^2), the smaller root.
    let u = image.norm();
    let r = 2.0 * u / (1.0 + (1.0 - 4.0 * k * u * u).sqrt());
    image * (r / u)
}

pub(super) fn distorted(random: &mut Random) -> Option<Instance> {
    let (mut parameters, points) = chain(random, 2)?;
    let k = [random.between(-0.4, -0.05), random.between(-0.4, -0.05)];
    let mut near = Vec::new();
    for (point, k) in points.iter().zip(k) {
        let image = distort(point.xy() / point.z, k);
        near.extend(image.iter());
        parameters.extend([image.x + random.normal(NOISE), image.y + random.normal(NOISE)]);
    }
    near.push(0.0);
    parameters.extend(k);
    Some(Instance::real(parameters, near, None))
}
