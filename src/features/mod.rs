//! From a raw cloud to correspondences with a map.
//!
//! ```text
//! message -> RawCloud (filters) -> deskewed points -> Surface (voxels, normals) -> Features (FPFH) -> matches -> Problem
//! ```
//!
//! All radii derive from one length, the edge of the voxels ([`Lengths`]).

mod cloud;
mod deskew;
mod fpfh;
mod front_end;
pub mod matching;
mod neighbours;
mod normals;
mod voxel;

pub use cloud::{Body, Dropped, Filters, RawCloud, Timing};
pub use deskew::deskew;
pub use front_end::FrontEnd;

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

    /// Those for a place of this size (the edges of the box that holds its points, m): voxels of a hundredth of the
    /// edge of the cube of the same volume, rounded to a step of 1, 1.5, 2, 3, 5, 7, and not below 0.05 m, the noise
    /// of sensors, nor above 0.5 m, the size of things. A room of 5 x 5 x 2.5 m gets 0.05 m, a floor of
    /// 60 x 40 x 3 m 0.2 m, a block of 200 x 200 x 15 m 0.5 m.
    pub fn for_extent(size: Vector) -> Self {
        // An edge below a metre says that little was seen of it.
        let volume = size.iter().map(|edge| edge.abs().max(1.0)).product::<f64>();
        let wanted = libm::cbrt(volume) / 100.0;
        let steps = [0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5];
        // The middle between steps, as a ratio.
        let fits = steps.windows(2).position(|pair| wanted * wanted < pair[0] * pair[1]);
        Self::new(fits.map_or(0.5, |i| steps[i]))
    }
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
