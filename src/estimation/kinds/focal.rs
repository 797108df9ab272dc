//! Pose and focal length from four points that are not in a plane, by the problem `p4p_focal` of the library.
//!
//! Four points give eight equations for seven unknowns: with noise no camera meets all of them, and the solver
//! leaves one out. What it finds is refined.

use super::focal_radial::{four_points, pose_in, Frame};
use super::homotopy_search::Minimal;
use super::scene::{are_planar, too_close, Beside, Kind, Scene, View};
use crate::homotopy::problems::Geometry;

/// The kind.
#[derive(Debug)]
pub(crate) struct Focal;

impl Kind for Focal {
    const SAMPLE: usize = 4;
    const ROOTS: usize = 8;
    const BESIDE: Beside = Beside::Focal;

    fn is_degenerate(scene: &Scene<Self>, sample: &[u32]) -> bool {
        let rows = scene.sample(sample);
        too_close(rows.clone().map(|(row, _)| (row.bearing, row.angle)))
            || are_planar(rows.map(|(row, _)| row.point))
    }
}

impl Minimal for Scene<Focal> {
    const PROBLEM: &'static str = "p4p_focal";
    type Frame = Frame;

    fn measured(&self, sample: &[u32]) -> Option<(Vec<f64>, Frame)> {
        four_points(self, sample)
    }

    fn hypothesis(&self, sample: &[u32], frame: &Frame, geometry: &Geometry) -> Option<View> {
        let view = View { focal: geometry.focal?, ..View::of_pose(pose_in(geometry, frame)?) };
        self.plausible(view, sample, false)
    }
}
