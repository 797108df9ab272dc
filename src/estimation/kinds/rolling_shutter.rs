//! Pose and motion of a camera with a rolling shutter from six points.
//!
//! Two forms of the library: `rolling_shutter` is linear in turn and motion (Albl et al. 2015, 20 tracks), which
//! holds near a turn that is known; `rolling_shutter_1lin` is linear in the motion alone (Albl et al. 2019, 64
//! tracks). The turn that the first needs is that of a camera that stands still, from three of the six points: the
//! one that leaves the least with the others. What either finds is refined with a pose for each row.

use super::homotopy_search::Minimal;
use super::scene::{about, too_close, Beside, Kind, Scene, View};
use crate::estimation::solvers::p3p;
use crate::geometry::{Pose, Vector};
use crate::homotopy::problems::Geometry;
use nalgebra::Matrix3;

/// With turn and motion linear.
#[derive(Debug)]
pub(crate) struct RollingShutter;

/// With the motion linear.
#[derive(Debug)]
pub(crate) struct RollingShutterLinear;

/// Rows of a sample must cover this share of a focal length, or nothing tells the motion.
const ROWS: f64 = 0.05;

fn is_degenerate<K: Kind>(scene: &Scene<K>, sample: &[u32]) -> bool {
    let times = scene.sample(sample).map(|(_, image)| image.pixel.y);
    let range = times.clone().fold(f64::MIN, f64::max) - times.fold(f64::MAX, f64::min);
    too_close(scene.sample(sample).map(|(row, _)| (row.bearing, row.angle))) || !(range > ROWS)
}

impl Kind for RollingShutter {
    const SAMPLE: usize = 6;
    const ROOTS: usize = 20;
    const BESIDE: Beside = Beside::Motion;

    fn is_degenerate(scene: &Scene<Self>, sample: &[u32]) -> bool {
        is_degenerate(scene, sample)
    }
}

impl Kind for RollingShutterLinear {
    const SAMPLE: usize = 6;
    const ROOTS: usize = 64;
    const BESIDE: Beside = Beside::Motion;
    const ROUND: u64 = 16;

    fn is_degenerate(scene: &Scene<Self>, sample: &[u32]) -> bool {
        is_degenerate(scene, sample)
    }
}

/// What points of a sample are relative to.
pub(crate) struct Frame {
    turn: Matrix3<f64>,
    centre: Vector,
    size: f64,
}

/// The pose of a camera that stands still with the least sum of residuals over a sample, from three of its rows.
fn still<K: Kind>(scene: &Scene<K>, sample: &[u32]) -> Option<Pose> {
    let rows: Vec<_> = scene.sample(sample).map(|(row, _)| row).collect();
    let mut best: Option<(f64, Pose)> = None;
    for (i, a) in rows.iter().enumerate() {
        for (j, b) in rows.iter().enumerate().skip(i + 1) {
            for c in rows.iter().skip(j + 1) {
                let mut poses = [Pose::identity(); 4];
                let count = p3p(&[a.bearing, b.bearing, c.bearing], &[a.point, b.point, c.point], &mut poses);
                for pose in poses.iter().take(count) {
                    // By angles: the least of the largest chord.
                    let off =
                        |point: &Vector, bearing: &Vector| (pose.apply(point).normalize() - bearing).norm();
                    let sum: f64 = rows.iter().map(|row| off(&row.point, &row.bearing)).sum();
                    if best.is_none_or(|(least, _)| sum < least) {
                        best = Some((sum, *pose));
                    }
                }
            }
        }
    }
    best.map(|(_, pose)| pose)
}

/// Image points, then points turned, about their centre, in units of their size.
fn six_points<K: Kind>(scene: &Scene<K>, sample: &[u32]) -> Option<(Vec<f64>, Vec<f64>, Frame)> {
    let turn = still(scene, sample)?.rotation;
    let (centre, size) = about(scene.sample(sample).map(|(row, _)| row.point))?;
    let ray = |bearing: &Vector| (bearing.z > 1e-3).then(|| [bearing.x / bearing.z, bearing.y / bearing.z]);
    let images: Option<Vec<_>> = scene.sample(sample).map(|(row, _)| ray(&row.bearing)).collect();
    let points = scene.sample(sample).map(|(row, _)| turn * (row.point - centre) / size);
    let points = points.flat_map(|p| [p.x, p.y, p.z]).collect();
    Some((images?.concat(), points, Frame { turn, centre, size }))
}

fn hypothesis<K: Kind>(scene: &Scene<K>, sample: &[u32], frame: &Frame, geometry: &Geometry) -> Option<View> {
    let Pose { rotation, translation } = *geometry.poses.first()?;
    let [rate, velocity] = geometry.motion?;
    // Row by row (I + s [w]) R p + c + s v; here about the centre of the camera.
    let velocity = (velocity - rate.cross(&translation)) * frame.size;
    let rotation = rotation * frame.turn;
    let pose = Pose { rotation, translation: translation * frame.size - rotation * frame.centre };
    let view = View { motion: [rate, velocity], ..View::of_pose(pose) };
    scene.plausible(view, sample, false)
}

impl Minimal for Scene<RollingShutter> {
    const PROBLEM: &'static str = "rolling_shutter";
    type Frame = Frame;

    fn measured(&self, sample: &[u32]) -> Option<(Vec<f64>, Frame)> {
        let (images, points, frame) = six_points(self, sample)?;
        Some(([images, points].concat(), frame))
    }

    fn hypothesis(&self, sample: &[u32], frame: &Frame, geometry: &Geometry) -> Option<View> {
        hypothesis(self, sample, frame, geometry)
    }
}

impl Minimal for Scene<RollingShutterLinear> {
    const PROBLEM: &'static str = "rolling_shutter_1lin";
    type Frame = Frame;

    fn measured(&self, sample: &[u32]) -> Option<(Vec<f64>, Frame)> {
        let (images, points, frame) = six_points(self, sample)?;
        let rows = [0.0].into_iter().chain(self.sample(sample).map(|(_, image)| image.pixel.y));
        Some((rows.chain(images).chain(points).collect(), frame))
    }

    fn hypothesis(&self, sample: &[u32], frame: &Frame, geometry: &Geometry) -> Option<View> {
        hypothesis(self, sample, frame, geometry)
    }
}
