//! Pose, focal length and radial distortion (division model) from four points that are not in a plane, by the
//! problem `p4p_focal_radial` of the library (Larsson et al. 2017).
//!
//! Four points give eight equations for eight unknowns. Points in a plane leave a family of cameras: such samples
//! are not solved.

use super::homotopy_search::Minimal;
use super::scene::{about, are_planar, too_close, Beside, Kind, Scene, View};
use crate::geometry::{Pose, Vector};
use crate::homotopy::problems::Geometry;

/// The kind.
#[derive(Debug)]
pub(crate) struct FocalRadial;

impl Kind for FocalRadial {
    const SAMPLE: usize = 4;
    const ROOTS: usize = 12;
    const BESIDE: Beside = Beside::FocalRadial;

    fn is_degenerate(scene: &Scene<Self>, sample: &[u32]) -> bool {
        let rows = scene.sample(sample);
        too_close(rows.clone().map(|(row, _)| (row.bearing, row.angle)))
            || are_planar(rows.map(|(row, _)| row.point))
    }
}

/// The centre and size of the points of a sample.
pub(crate) type Frame = (Vector, f64);

/// Image points, then points about their centre in units of their size.
pub(super) fn four_points<K: Kind>(scene: &Scene<K>, sample: &[u32]) -> Option<(Vec<f64>, Frame)> {
    let (centre, size) = about(scene.sample(sample).map(|(row, _)| row.point))?;
    let images = scene.sample(sample).flat_map(|(_, image)| [image.pixel.x, image.pixel.y]);
    let points = scene.sample(sample).map(|(row, _)| (row.point - centre) / size);
    let measured = images.chain(points.flat_map(|p| [p.x, p.y, p.z])).collect();
    Some((measured, (centre, size)))
}

/// The pose for points in metres about the centre of all.
pub(super) fn pose_in(geometry: &Geometry, (centre, size): &Frame) -> Option<Pose> {
    let Pose { rotation, translation } = *geometry.poses.first()?;
    Some(Pose { rotation, translation: translation * *size - rotation * centre })
}

impl Minimal for Scene<FocalRadial> {
    const PROBLEM: &'static str = "p4p_focal_radial";
    type Frame = Frame;

    fn measured(&self, sample: &[u32]) -> Option<(Vec<f64>, Frame)> {
        four_points(self, sample)
    }

    fn hypothesis(&self, sample: &[u32], frame: &Frame, geometry: &Geometry) -> Option<View> {
        let (focal, distortion) = (geometry.focal?, geometry.distortion?);
        let view = View { focal, distortion, ..View::of_pose(pose_in(geometry, frame)?) };
        self.plausible(view, sample, true)
    }
}
