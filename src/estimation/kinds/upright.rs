//! Pose of a calibrated camera whose vertical is known, from two points.
//!
//! With both frames turned upright the camera is turned by an angle about the vertical alone. The difference of the
//! two points, `l2 b2 - l1 b1 = R D`, keeps its vertical part and the length of its horizontal part: a line and a
//! circle for the depths `l1`, `l2`, so up to two solutions (Kukelova, Bujnak and Pajdla 2010 solve the same
//! problem by the half angle). Points above each other, or on one bearing, fix nothing.

use super::scene::{too_close, Beside, Kind, Scene, View};
use crate::geometry::{Pose, Vector};
use nalgebra::{Matrix3, Vector2};

/// The kind.
#[derive(Debug)]
pub(crate) struct Upright;

/// A horizontal distance below this share of the whole leaves the angle open.
const ABOVE: f64 = 1e-3;

impl Kind for Upright {
    const SAMPLE: usize = 2;
    const ROOTS: usize = 2;
    const BESIDE: Beside = Beside::Nothing;
    const UPRIGHT: bool = true;

    fn is_degenerate(scene: &Scene<Self>, sample: &[u32]) -> bool {
        let mut points = scene.sample(sample).map(|(row, _)| row.point);
        let (Some(a), Some(b)) = (points.next(), points.next()) else { return true };
        let apart = b - a;
        too_close(scene.sample(sample).map(|(row, _)| (row.bearing, row.angle)))
            || !(apart.cross(&scene.up[1]).norm() > ABOVE * apart.norm())
    }

    fn solve(scene: &Scene<Self>, sample: &[u32], out: &mut Vec<View>) {
        let mut rows = scene.sample(sample);
        let (Some((a, _)), Some((b, _))) = (rows.next(), rows.next()) else { return };
        let [Some(camera), Some(target)] = [axes(&scene.up[0]), axes(&scene.up[1])] else { return };
        let bearings = [camera * a.bearing, camera * b.bearing];
        let points = [target * a.point, target * b.point];
        for (rotation, translation) in two_points(&bearings, &points).into_iter().flatten() {
            let pose = Pose {
                rotation: camera.transpose() * rotation * target,
                translation: camera.transpose() * translation,
            };
            out.extend(scene.plausible(View::of_pose(pose), sample, true));
        }
    }
}

/// A rotation that turns a unit vector to the z axis.
fn axes(up: &Vector) -> Option<Matrix3<f64>> {
    let x = Vector::ith(up.iamin(), 1.0).cross(up).try_normalize(1e-12)?;
    Some(Matrix3::from_rows(&[x.transpose(), up.cross(&x).transpose(), up.transpose()]))
}

/// Rotations about the z axis and translations with which two points are on their bearings, in front.
fn two_points(bearings: &[Vector; 2], points: &[Vector; 2]) -> [Option<(Matrix3<f64>, Vector)>; 2] {
    let [a, b] = bearings;
    let apart = points[1] - points[0];
    let (horizontal, vertical) = (apart.xy(), apart.z);
    // Depths l = (l1, l2) on the line n l = vertical: its point nearest to zero, and its direction.
    let normal = Vector2::new(-a.z, b.z);
    let square = normal.norm_squared();
    let along = Vector2::new(normal.y, -normal.x);
    let both = |l: &Vector2<f64>| b.xy() * l.y - a.xy() * l.x;
    if !(square > 0.0) {
        return [None, None];
    }
    let nearest = normal * (vertical / square);
    let (begin, step) = (both(&nearest), both(&along));
    // |begin + s step|^2 = |horizontal|^2
    let (p, q, r) = (step.norm_squared(), begin.dot(&step), begin.norm_squared() - horizontal.norm_squared());
    let root = (q * q - p * r).max(0.0).sqrt();
    if !(p > 0.0) || q * q - p * r < -1e-9 * (q * q + (p * r).abs()) {
        return [None, None];
    }
    // The larger in size first, the other by their product: nothing cancels.
    let first = -(q + root * if q < 0.0 { -1.0 } else { 1.0 });
    let roots = [first / p, if first == 0.0 { 0.0 } else { r / first }];
    roots.map(|s| {
        let depths = nearest + along * s;
        (depths.x > 0.0 && depths.y > 0.0).then_some(())?;
        let turned = both(&depths);
        let size = horizontal.norm_squared();
        let (c, s) = (horizontal.dot(&turned) / size, horizontal.perp(&turned) / size);
        let length = (c * c + s * s).sqrt();
        let (c, s) = (c / length, s / length);
        let rotation = Matrix3::new(c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0);
        // Both points say where the camera is; they agree but for rounding.
        let translation = (a * depths.x - rotation * points[0] + b * depths.y - rotation * points[1]) * 0.5;
        Some((rotation, translation))
    })
}
