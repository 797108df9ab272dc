//! The map: what dense alignment and global localization need of it, made once and kept beside the file.

use crate::features::{Features, Lengths, Surface};
use crate::geometry::Point;

/// A map that is ready for use.
#[derive(Debug, Clone)]
pub struct Map {
    /// Lengths that surface and features were made with.
    pub lengths: Lengths,
    /// Sampled points with normals.
    pub surface: Surface,
    /// Smallest and largest coordinates.
    pub bounds: [Point; 2],
    /// Points of the file.
    pub raw_points: u64,
    /// Parts that a scan is matched with, which overlap.
    pub submaps: Vec<Submap>,
}

/// A part of the map.
#[derive(Debug, Clone)]
pub struct Submap {
    /// Its centre.
    pub center: Point,
    /// All of its features are within this horizontal distance of the centre, m.
    pub radius: f64,
    /// Its features.
    pub features: Features,
}
