//! Triangulation: instances, and what their roots say.
//!
//! Image points are the best ones of the parameters by construction: the observed ones differ from them by
//! multiples of the gradients of the constraints.

use super::absolute::images;
use super::geometry::{meeting, rays, vector, Geometry};
use super::instance::{matrix, Instance, Random};
use crate::geometry::{Pose, Vector};
use nalgebra::{Matrix3, Vector2, Vector3};

/// Noise of image points, in units of the focal length.
const NOISE: f64 = 1e-3;

/// Cameras in a chain: the poses from one to the next, and the point in each of them.
fn chain(random: &mut Random, views: usize) -> Option<(Vec<Pose>, Vec<Vector>)> {
    let mut points = vec![random.seen()];
    let mut poses = Vec::new();
    for _ in 1..views {
        let pose = Pose { rotation: matrix(&random.turn(0.5)), translation: random.vector(0.7) };
        points.push(pose.apply(points.last()?));
        poses.push(pose);
    }
    points.iter().all(|p| p.z > 0.5 && p.xy().norm() < 1.5 * p.z).then_some((poses, points))
}

/// Translations and rotations (by rows), pose after pose.
fn numbers(poses: &[Pose]) -> Vec<f64> {
    let one = |pose: &Pose| [pose.translation.as_slice(), pose.rotation.transpose().as_slice()].concat();
    poses.iter().flat_map(one).collect()
}

/// `[t]x R`
fn essential(pose: &Pose) -> Matrix3<f64> {
    pose.translation.cross_matrix() * pose.rotation
}

/// An instance with constraints between pairs of views `(a, b)`, whose multipliers are drawn. Measured: the
/// `poses`, translation and rotation by rows of each, and the image points observed.
fn constrained(
    random: &mut Random,
    poses: &[Pose],
    pairs: &[(usize, usize, Matrix3<f64>)],
    best: Vec<f64>,
    truth: Vector,
) -> Instance {
    let x = rays(&best);
    let mut observed = best.clone();
    let mut multipliers = Vec::new();
    for (a, b, matrix) in pairs {
        let (at_a, at_b) = ((matrix.transpose() * x[*b]).xy(), (matrix * x[*a]).xy());
        let l = random.normal(NOISE) / (at_a.norm_squared() + at_b.norm_squared()).sqrt();
        for (view, gradient) in [(a, at_a), (b, at_b)] {
            (0..2).for_each(|k| observed[2 * view + k] += l * gradient[k]);
        }
        multipliers.push(l);
    }
    let truth = Geometry { points: vec![truth], ..Geometry::default() };
    Instance::plain([numbers(poses), observed].concat(), [best, multipliers].concat(), truth)
}

/// With the constraints between neighbours only. From view 3 on points need not be images of the
/// point: they lie somewhere on the epipolar lines of those before.
fn chained(random: &mut Random, views: usize) -> Option<Instance> {
    let (poses, points) = chain(random, views)?;
    let mut best = images(&points);
    for v in 2..views {
        let x = rays(&best);
        let line = essential(&poses[v - 1]) * x[v - 1];
        // Back onto the line of the point before, which has moved itself, and along it.
        let (off, line) = (line.dot(&x[v]) / line.xy().norm_squared(), line.xy());
        let along = random.normal(NOISE) / line.norm();
        best[2 * v] += -line.x * off - line.y * along;
        best[2 * v + 1] += -line.y * off + line.x * along;
    }
    let pairs: Vec<_> = poses.iter().enumerate().map(|(k, pose)| (k, k + 1, essential(pose))).collect();
    Some(constrained(random, &poses, &pairs, best, points[0]))
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

pub(super) fn three_views_pairs(random: &mut Random) -> Option<Instance> {
    let (poses, points) = chain(random, 3)?;
    let rotation = poses[1].rotation * poses[0].rotation;
    let translation = poses[1].apply(&poses[0].translation);
    let around = essential(&Pose { rotation, translation });
    let pairs = [(0, 1, essential(&poses[0])), (1, 2, essential(&poses[1])), (0, 2, around)];
    Some(constrained(random, &poses, &pairs, images(&points), points[0]))
}

/// Pairs of views, each with a pose that is off by some degrees and still sees the point at its images.
pub(super) fn four_views_pairs(random: &mut Random) -> Option<Instance> {
    const OFF: f64 = 0.1;
    let (poses, points) = chain(random, 4)?;
    let mut to = vec![Pose::identity()];
    for pose in &poses {
        let last = to.last()?;
        let (rotation, translation) = (pose.rotation * last.rotation, pose.apply(&last.translation));
        to.push(Pose { rotation, translation });
    }
    let mut calibrated = Vec::new();
    let mut pairs = Vec::new();
    for (a, b) in [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)] {
        // The first pair, which tells the point, is right.
        let turn = if (a, b) == (0, 1) { Matrix3::identity() } else { matrix(&random.turn(OFF)) };
        let rotation = turn * to[b].rotation * to[a].rotation.transpose();
        // What carries the point, at its depth in view a, to where it is in view b.
        let pose = Pose { rotation, translation: points[b] - rotation * points[a] };
        pairs.push((a, b, essential(&pose)));
        calibrated.push(pose);
    }
    Some(constrained(random, &calibrated, &pairs, images(&points), points[0]))
}

/// The point where the rays of the first two views meet, in the frame of the first.
pub(super) fn recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let x = rays(root.get(..4)?);
    point(measured, x[0], x[1])
}

fn point(measured: &[f64], x: Vector, y: Vector) -> Option<Vec<Geometry>> {
    let translation = vector(measured, 0)?;
    let rotation = Matrix3::from_row_slice(measured.get(3..12)?);
    let depths = meeting(&Pose { rotation, translation }, &x, &y)?;
    let points = vec![x * depths[0]];
    let depths = vec![depths[0] * x.z, depths[1] * y.z];
    Some(vec![Geometry { points, depths, ..Geometry::default() }])
}

/// Where the division model with `k` puts an image point.
fn distort(image: Vector2<f64>, k: f64) -> Vector2<f64> {
    // r = u (1 + k r^2), the smaller root.
    let u = image.norm();
    let r = 2.0 * u / (1.0 + (1.0 - 4.0 * k * u * u).sqrt());
    image * (r / u)
}

/// Measured: the pose, the image points observed, and both distortions.
pub(super) fn distorted(random: &mut Random) -> Option<Instance> {
    let (poses, points) = chain(random, 2)?;
    let k = [random.between(-0.4, -0.05), random.between(-0.4, -0.05)];
    let x = [0, 1].map(|v| distort(points[v].xy() / points[v].z, k[v]));
    let rays = [0, 1].map(|v| undistorted(x[v], k[v]));
    let matrix = essential(&poses[0]);
    // Gradients by an image point: of x and y, and of the last coordinate.
    let lines = [matrix.transpose() * rays[1], matrix * rays[0]];
    let gradients = [0, 1].map(|v| lines[v].xy() + x[v] * (2.0 * k[v] * lines[v].z));
    let l = random.normal(NOISE) / (gradients[0].norm_squared() + gradients[1].norm_squared()).sqrt();
    let observed = [0, 1].map(|v| x[v] + gradients[v] * l);
    let near = x.iter().flat_map(|x| [x.x, x.y]).chain([l]).collect();
    let observed = observed.iter().flat_map(|x| [x.x, x.y]);
    let measured = numbers(&poses).into_iter().chain(observed).chain(k).collect();
    let truth = Geometry { points: vec![points[0]], ..Geometry::default() };
    Some(Instance::plain(measured, near, truth))
}

/// The ray of a distorted image point, with the factor of the division model as its depth.
fn undistorted(image: Vector2<f64>, k: f64) -> Vector {
    Vector3::new(image.x, image.y, 1.0 + k * image.norm_squared())
}

pub(super) fn distorted_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let [x1, y1, x2, y2] = *root.first_chunk()?;
    let (k1, k2) = (*measured.get(16)?, *measured.get(17)?);
    let rays = [(x1, y1, k1), (x2, y2, k2)].map(|(x, y, k)| undistorted(Vector2::new(x, y), k));
    point(measured, rays[0], rays[1])
}
