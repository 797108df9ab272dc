//! Dense alignment: a scan upon the surface of the map, and how well it lies there.
//!
//! [`Aligner::align`] refines a pose, [`Aligner::verify`] weighs it: a pose that was refined from a wrong guess fits
//! better than it should, so verify after aligning, never before. [`Aligner::compare`] does it for two clouds of which neither
//! is a map.

mod align;
mod compare;
mod index;
mod normal_equations;
#[cfg(test)]
mod tests;
mod verify;

pub use align::{Aligner, Settings};
pub use compare::Common;
pub use index::{SurfaceIndex, Surfel};
pub use verify::Evidence;

use crate::geometry::Rigid;
use nalgebra::Matrix6;

/// A scan laid upon the map.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    /// The pose, `p_map = map_t_sensor * p_sensor`.
    pub map_t_sensor: Rigid,
    /// Covariance: x y z (m), rotation about the fixed axes of the map at the origin of the sensor (rad). Directions
    /// that the scan does not fix have the variance of the prior.
    pub covariance: Matrix6<f64>,
    /// Of the six directions of the pose, those that the scan fixes: three on bare ground, five in a bare tunnel.
    pub observed: usize,
    /// Share of the points of the scan that lie on the map, of those that the map could explain, 0 to 1.
    pub overlap: f64,
    /// Root mean square of the distances to the surface of those that lie on it, m.
    pub rms: f64,
    /// Points that lie on the map.
    pub inliers: usize,
    /// Iterations made.
    pub iterations: usize,
    /// The last iteration moved it by next to nothing.
    pub converged: bool,
}
