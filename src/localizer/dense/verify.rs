//! Whether a scan that was aligned is where it seems to be.

use super::align::{match_point, place, Aligner};
use super::index::SurfaceIndex;
use crate::features::Surface;
use crate::geometry::{Pose, Rigid};

/// Largest distance from its plane at which a point lies on the map, voxels.
pub(super) const ON: f64 = 0.5;
/// A point farther from the map is one that the map does not know, voxels.
pub(super) const EXPLAINED: f64 = 8.0;

/// How well a scan lies on the map at a pose.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Share of the points on the map: near a surface that faces the same way.
    pub on: f64,
    /// Share of the points whose ray went through a surface of the map well before its end.
    pub through: f64,
    /// Share of the points off the map with nothing of the map behind: it does not know the place.
    pub unknown: f64,
    /// Log-likelihood ratio of the pose to a wrong one.
    pub score: f64,
}

/// Reused.
#[derive(Debug, Default)]
pub(super) struct Memory {}

impl Aligner {
    /// How well a scan lies on the map at a pose, which should come from [`Aligner::align`].
    pub fn verify(&mut self, map: &SurfaceIndex, scan: &Surface, map_t_sensor: &Rigid) -> Evidence {
        let pose = Pose::from(map_t_sensor);
        let mut out = Evidence::default();
        let voxel = map.voxel();
        for (point, normal) in scan.points.iter().zip(&scan.normals) {
            let on = match_point(map, &pose, point, normal, 2.0 * voxel);
            if on.is_some_and(|(row, _)| row.residual.abs() <= ON * voxel) {
                out.on += 1.0;
                continue;
            }
            if map.nearest(&place(&pose, point), EXPLAINED * voxel).is_none() {
                out.unknown += 1.0;
            }
        }
        let n = scan.points.len().max(1) as f64;
        out.on /= n;
        out.unknown /= n;
        out
    }
}
