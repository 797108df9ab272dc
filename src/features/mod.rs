//! From a raw cloud to correspondences with a map.
//!
//! ```text
//! message -> RawCloud (filters) -> deskewed points -> Surface (voxels, normals) -> Features (FPFH) -> matches -> Problem
//! ```
//!
//! All radii derive from one length, the edge of the voxels ([`Lengths`]).

pub mod matching;

use crate::geometry::{Point, Vector};

/// The lengths of the front end, m.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Edge of the voxels.
    pub voxel: f64,
    /// Radius of the neighbours that a normal comes from.
    pub normal_radius: f64,
    /// Radius of the neighbours that a descriptor comes from.
    pub feature_radius: f64,
}

impl Lengths {
    /// All of them from the edge of the voxels.
    pub fn new(voxel: f64) -> Self {
        Self { voxel, normal_radius: 3.0 * voxel, feature_radius: 5.0 * voxel }
    }
}

/// The usable returns of a sensor, in its frame. The memory is reused.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawCloud {
    /// Where they are, m.
    pub points: Vec<Point>,
    /// When each was measured, seconds after the stamp of the message; empty where the message does not say.
    pub times: Vec<f64>,
}

/// A cloud sampled with voxels: one point for each that is occupied. The memory is reused.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surface {
    /// Mean of the points of a voxel, m.
    pub points: Vec<Point>,
    /// Unit normal at each point, towards the sensor; zero where the neighbours give none.
    pub normals: Vec<Vector>,
}

/// Numbers of a descriptor in use: three histograms of eleven bins.
pub const BINS: usize = 33;

/// What the surface looks like around a point (FPFH; Rusu et al. 2009), each bin the root of its share, times 255:
/// squared distances are those of Hellinger, and integers, so that every machine finds the same matches. The
/// bins after the [`BINS`]-th are zero.
pub type Descriptor = [u8; 36];

/// Points with descriptors. The memory is reused.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Features {
    /// Where they are, m.
    pub points: Vec<Point>,
    /// The descriptor of each.
    pub descriptors: Vec<Descriptor>,
}

/// A source feature and the target feature that looks most like it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Index of the source.
    pub source: u32,
    /// Index of the target.
    pub target: u32,
    /// Squared distance of the descriptors.
    pub distance: u32,
    /// That to the second best target.
    pub second: u32,
}
