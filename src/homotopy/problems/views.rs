//! Three views: instances, and what their roots say.

use super::absolute::{flat, images};
use super::geometry::{carried, cayley, least_squares, null_space, vector, vectors, Geometry};
use super::instance::{matrix, quaternion, rotation, to_cayley, Instance, Random};
use crate::geometry::{Pose, Vector};
use nalgebra::{DMatrix, DVector, Matrix3, UnitQuaternion, Vector2, Vector3};

/// Points in three views, in units of the depth of the first point in the first view, and the poses of the
/// second and third.
struct Views {
    turns: [UnitQuaternion<f64>; 2],
    poses: [Pose; 2],
    points: [Vec<Vector>; 3],
}

impl Views {
    fn new(random: &mut Random, count: usize) -> Option<Self> {
        let first: Vec<_> = (0..count).map(|_| random.seen()).collect();
        let scale = 1.0 / first.first()?.z;
        let first: Vec<_> = first.into_iter().map(|p| p * scale).collect();
        let turns = [random.turn(0.5), random.turn(0.5)];
        let poses = turns.map(|q| Pose { rotation: matrix(&q), translation: random.vector(scale) });
        let [second, third] = poses.map(|pose| first.iter().map(|p| pose.apply(p)).collect::<Vec<_>>());
        let points = [first, second, third];
        let useful = points.iter().flatten().all(|p| p.z > 0.5 * scale);
        useful.then_some(Self { turns, poses, points })
    }

    fn depths(&self) -> Vec<f64> {
        self.points.iter().flatten().map(|p| p.z).collect()
    }

    fn geometry(&self) -> Geometry {
        Geometry { poses: self.poses.to_vec(), depths: self.depths(), ..Geometry::default() }
    }
}

/// Three views of four points and a focal length. Measured: per view the u of all points, then the v.
struct Focal {
    views: Views,
    f: f64,
}

impl Focal {
    fn new(random: &mut Random) -> Option<Self> {
        let f = random.between(0.8, 2.0);
        Some(Self { views: Views::new(random, 4)?, f })
    }

    fn instance(&self, near: Vec<f64>) -> Instance {
        let image =
            |view: &Vec<Vector>, k: usize| view.iter().map(|p| self.f * p[k] / p.z).collect::<Vec<_>>();
        let measured = self.views.points.iter().flat_map(|view| [image(view, 0), image(view, 1)].concat());
        let truth = Geometry { focal: Some(self.f), ..self.views.geometry() };
        Instance::plain(measured.collect(), near, truth)
    }

    /// Unknowns of the forms with poses: `1/f`, depths in the first so many views, rotations, translations. Lengths
    /// are in units of z of the second view's translation, and times the scale of a view's rotation.
    fn with_poses(
        &self,
        views: usize,
        rotation: impl Fn(&UnitQuaternion<f64>) -> (Vec<f64>, f64),
    ) -> Option<Instance> {
        let turns = self.views.turns.each_ref().map(rotation);
        let unit = self.views.poses[0].translation.z * turns[0].1;
        let scales = [1.0, turns[0].1, turns[1].1].map(|scale| scale / unit);
        let moves = [0, 1].map(|k| self.views.poses[k].translation * scales[k + 1]);
        let depths = self.views.depths();
        let depths = depths.iter().enumerate().map(|(k, d)| d * scales[k / 4]).take(4 * views).collect();
        let rotations = turns.iter().flat_map(|(numbers, _)| numbers.clone()).collect();
        let near = [vec![1.0 / self.f], depths, rotations, vec![moves[0].x, moves[0].y], flat(&moves[1..])];
        let useful = self.views.turns.iter().all(|q| q.w.abs() > 0.1) && moves[0].norm() < 20.0;
        useful.then(|| self.instance(near.concat()))
    }
}

/// By how much the matrix of a Cayley rotation without its denominator is longer: `1 + |v|^2`.
fn cayley_scale(v: &[f64]) -> f64 {
    1.0 + v.iter().map(|v| v * v).sum::<f64>()
}

/// The same of a rotation.
fn scale(q: &UnitQuaternion<f64>) -> f64 {
    1.0 / (q.w * q.w)
}

/// Rays of a view of a camera with this focal length.
fn focal_rays(measured: &[f64], view: usize, f: f64) -> Vec<Vector> {
    let Some(image) = measured.get(8 * view..8 * view + 8) else { return Vec::new() };
    (0..4).map(|p| Vector3::new(image[p] / f, image[4 + p] / f, 1.0)).collect()
}

pub(super) fn trifocal_focal(random: &mut Random) -> Option<Instance> {
    let focal = Focal::new(random)?;
    Some(focal.instance([&[focal.f * focal.f], &focal.views.depths()[1..]].concat()))
}

/// The unit of length is the depth of the first point in the first view.
pub(super) fn trifocal_focal_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let f = root.first().filter(|s| **s > 0.0)?.sqrt();
    let depths = [&[1.0], root.get(1..12)?].concat();
    let view = |v: usize| -> Vec<Vector> {
        focal_rays(measured, v, f).iter().zip(&depths[4 * v..]).map(|(ray, depth)| ray * *depth).collect()
    };
    let poses = vec![carried(&view(0), &view(1))?, carried(&view(0), &view(2))?];
    Some(vec![Geometry { poses, focal: Some(f), depths, ..Geometry::default() }])
}

pub(super) fn trifocal_focal_18(random: &mut Random) -> Option<Instance> {
    Focal::new(random)?.with_poses(1, |q| (quaternion(q).to_vec(), 1.0))
}

pub(super) fn trifocal_focal_24(random: &mut Random) -> Option<Instance> {
    Focal::new(random)?.with_poses(3, |q| (to_cayley(q).to_vec(), scale(q)))
}

pub(super) fn trifocal_focal_26(random: &mut Random) -> Option<Instance> {
    Focal::new(random)?.with_poses(3, |q| (quaternion(q).to_vec(), 1.0))
}

pub(super) fn trifocal_focal_18_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    with_poses(root, measured, [rotation(root.get(5..9)?)?, rotation(root.get(9..13)?)?], [1.0; 2], 13)
}

pub(super) fn trifocal_focal_24_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (first, second) = (root.get(13..16)?, root.get(16..19)?);
    let scales = [cayley_scale(first), cayley_scale(second)];
    with_poses(root, measured, [cayley(first)?, cayley(second)?], scales, 19)
}

pub(super) fn trifocal_focal_26_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    with_poses(root, measured, [rotation(root.get(13..17)?)?, rotation(root.get(17..21)?)?], [1.0; 2], 21)
}

/// What the forms with poses say, in the unit of [`trifocal_focal_recovered`]; lengths of views 2 and 3 are
/// times `scales`, translations begin at `at`.
fn with_poses(
    root: &[f64],
    measured: &[f64],
    turns: [Matrix3<f64>; 2],
    scales: [f64; 2],
    at: usize,
) -> Option<Vec<Geometry>> {
    // Cameras turned by half a turn have the focal length with the other sign.
    let f = 1.0 / *root.first().filter(|w| **w > 0.0)?;
    let unit = *root.get(1)?;
    let translations = [Vector3::new(*root.get(at)?, *root.get(at + 1)?, 1.0), vector(root, at + 2)?];
    let pose = |k: usize| Pose { rotation: turns[k], translation: translations[k] / (unit * scales[k]) };
    let poses = vec![pose(0), pose(1)];
    let depths = root.get(1..5)?.iter().map(|a| a / unit);
    let first: Vec<_> = focal_rays(measured, 0, f).iter().zip(depths).map(|(ray, a)| ray * a).collect();
    let all = [Pose::identity(), pose(0), pose(1)];
    let depths = all.iter().flat_map(|pose| first.iter().map(|p| pose.apply(p).z)).collect();
    Some(vec![Geometry { poses, focal: Some(f), depths, ..Geometry::default() }])
}

/// Measured: image points `(u, v)` of three points, view after view, then the images `(x, y)` of the
/// directions of lines through the first two.
pub(super) fn trifocal_lines(random: &mut Random) -> Option<Instance> {
    let views = Views::new(random, 3)?;
    let lines = [random.vector(1.0), random.vector(1.0)].map(|d| d / d.z);
    let [second, third] = views.poses.map(|pose| lines.map(|d| pose.rotation * d));
    let lines = [lines, second, third];
    let (mut across, mut speeds) = (Vec::new(), Vec::new());
    for (view, lines) in views.points.iter().zip(&lines) {
        for (p, d) in view.iter().zip(lines) {
            // d = g (u, v, 1) + speed (x, y, 0)
            let image: Vector2<f64> = d.xy() - p.xy() * (d.z / p.z);
            across.extend(image.normalize().iter());
            speeds.push(image.norm());
        }
    }
    let measured = [images(views.points.iter().flatten()), across].concat();
    let scales = [1.0, scale(&views.turns[0]), scale(&views.turns[1])];
    let along =
        lines.iter().zip(scales).skip(1).flat_map(|(lines, scale)| lines.map(|d| d.z * scale)).collect();
    let moves = [0, 1].map(|k| views.poses[k].translation * scales[k + 1]);
    let depths = views.depths().iter().enumerate().skip(1).map(|(k, d)| d * scales[k / 3]).collect();
    let turns = views.turns.iter().flat_map(to_cayley).collect();
    let useful = lines[0].iter().all(|d| d.norm() < 5.0) && speeds.iter().all(|s| *s > 0.05);
    speeds.iter_mut().enumerate().for_each(|(k, speed)| *speed *= scales[k / 2]);
    let near = [depths, along, speeds, flat(&moves), turns].concat();
    useful.then(|| Instance::plain(measured, near, views.geometry()))
}

/// The unit of length is the depth of the first point in the first view.
pub(super) fn trifocal_lines_recovered(root: &[f64], _: &[f64]) -> Option<Vec<Geometry>> {
    let turn = |k: usize| root.get(24 + 3 * k..27 + 3 * k);
    let scales = [1.0, cayley_scale(turn(0)?), cayley_scale(turn(1)?)];
    let pose = |k: usize| {
        Some(Pose { rotation: cayley(turn(k)?)?, translation: vector(root, 18 + 3 * k)? / scales[k + 1] })
    };
    let depths = [&[1.0], root.get(..8)?].concat();
    let depths = depths.iter().enumerate().map(|(k, d)| d / scales[k / 3]).collect();
    Some(vec![Geometry { poses: vec![pose(0)?, pose(1)?], depths, ..Geometry::default() }])
}

/// Three views by a rig: the poses of its second and third place, and points in all.
fn rig(random: &mut Random) -> ([UnitQuaternion<f64>; 3], [Pose; 3]) {
    let turns = [UnitQuaternion::identity(), random.rotation(), random.rotation()];
    let mut at = |k: usize| if k == 0 { Vector::zeros() } else { random.vector(1.0) };
    let moves = [at(0), at(1), at(2)];
    (turns, [0, 1, 2].map(|k| Pose { rotation: matrix(&turns[k]), translation: moves[k] }))
}

/// Measured: unit rays of four points, view after view, then the places of the cameras that see them.
pub(super) fn generalized_3view(random: &mut Random) -> Option<Instance> {
    let points: Vec<_> = (0..4).map(|_| random.seen()).collect();
    let (_, poses) = rig(random);
    let (mut rays, mut offsets, mut depths) = (Vec::new(), Vec::new(), Vec::new());
    for pose in &poses {
        for point in &points {
            let offset = random.vector(0.5);
            let ray = pose.apply(point) - offset;
            rays.extend(ray.normalize().iter());
            offsets.extend(offset.iter());
            depths.push(ray.norm());
        }
    }
    let truth = Geometry { poses: poses[1..].to_vec(), depths: depths.clone(), ..Geometry::default() };
    Some(Instance::plain([rays, offsets].concat(), depths, truth))
}

/// Poses of the rig; depths are along the rays.
pub(super) fn generalized_3view_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let (rays, offsets) = (vectors(measured.get(..36)?), vectors(measured.get(36..72)?));
    let points: Vec<Vector> = rays.iter().zip(&offsets).zip(root).map(|((r, o), d)| o + r * *d).collect();
    let first = points.get(..4)?;
    let poses = vec![carried(first, points.get(4..8)?)?, carried(first, points.get(8..12)?)?];
    Some(vec![Geometry { poses, depths: root.to_vec(), ..Geometry::default() }])
}

/// Measured: unit normals of the planes through six lines and the cameras that see them, view after view,
/// then the distances `n X` of these planes, both in the frame of the rig.
pub(super) fn generalized_3view_lines(random: &mut Random) -> Option<Instance> {
    let lines: Vec<_> = (0..6).map(|_| (random.seen(), random.vector(1.0))).collect();
    let (turns, poses) = rig(random);
    let (mut normals, mut distances) = (Vec::new(), Vec::new());
    for pose in &poses {
        for (point, direction) in &lines {
            let camera = random.vector(0.5);
            let normal = (pose.apply(point) - camera).cross(&(pose.rotation * direction)).normalize();
            normals.extend(normal.iter());
            distances.push(normal.dot(&camera));
        }
    }
    let near: Vec<f64> = turns[1..].iter().flat_map(to_cayley).collect();
    let truth = Geometry { poses: poses[1..].to_vec(), ..Geometry::default() };
    let useful = near.iter().all(|v| v.abs() < 10.0);
    let measured = [normals.clone(), distances].concat();
    useful.then(|| Instance::reduced(measured, normals, near, truth))
}

/// The normals alone.
pub(super) fn generalized_3view_lines_reduced(measured: &[f64]) -> Option<Vec<f64>> {
    Some(measured.get(..54)?.to_vec())
}

/// Poses of the rig.
pub(super) fn generalized_3view_lines_recovered(root: &[f64], measured: &[f64]) -> Option<Vec<Geometry>> {
    let turns = [cayley(root.get(..3)?)?, cayley(root.get(3..6)?)?];
    let (normals, distances) = (vectors(measured.get(..54)?), measured.get(54..72)?);
    let mut linear = DMatrix::zeros(6, 6);
    let mut right = DVector::zeros(6);
    for i in 0..6 {
        let n = [normals[i], normals[6 + i], normals[12 + i]];
        let in_first = [n[0], turns[0].transpose() * n[1], turns[1].transpose() * n[2]];
        // Planes of which a combination vanishes share a line if it does with their distances as well.
        let share = null_space(
            &DMatrix::from_columns(&in_first.map(|n| DVector::from_column_slice(n.as_slice()))),
            1,
        )?;
        for k in 0..3 {
            linear[(i, k)] = share[1] * n[1][k];
            linear[(i, 3 + k)] = share[2] * n[2][k];
        }
        right[i] = (0..3).map(|k| share[k] * distances[6 * k + i]).sum();
    }
    let moves = least_squares(linear, &right)?;
    let pose = |k: usize| Some(Pose { rotation: turns[k], translation: vector(moves.as_slice(), 3 * k)? });
    Some(vec![Geometry { poses: vec![pose(0)?, pose(1)?], ..Geometry::default() }])
}
