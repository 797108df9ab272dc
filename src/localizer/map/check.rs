//! Whether a map is fit to be localized in.

use super::Map;
use crate::geometry::Point;
use std::fmt;

/// Occupied voxels below which a place is too small.
const MIN_SURFACE: usize = 2000;
/// Share of the surface without a normal from which it is too sparse.
const MAX_BARE: f64 = 0.3;
/// Share of the surface that is not level below which there is no structure.
const MIN_STRUCTURE: f64 = 0.05;
/// Vertical part of the normal of a level surface (20 degrees).
const LEVEL: f64 = 0.94;
/// Share of points that are not finite, or there twice, that is said.
const MAX_SHARE: f64 = 0.01;
/// Largest coordinate of any system of coordinates of the earth, m.
const MAX_COORDINATE: f64 = 1e8;

/// What is wrong with a map. The text begins with a fixed word that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finding {
    /// Points that are not finite, of all.
    NonFinite(u64, u64),
    /// Points that are there already, of all.
    Duplicates(u64, u64),
    /// Share of the surface whose neighbours give no normal.
    TooSparse(f64),
    /// Occupied voxels.
    TooSmall(usize),
    /// Share of the surface that is not level: ground alone does not say where one is.
    NoStructure(f64),
    /// Largest coordinate, m.
    AbsurdCoordinates(f64),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonFinite(count, all) => write!(f, "non_finite: {count} of {all} points have no position"),
            Self::Duplicates(count, all) => {
                write!(f, "duplicates: {count} of {all} points are there already")
            }
            Self::TooSparse(share) => {
                write!(
                    f,
                    "too_sparse: {:.0} % of the surface have too few neighbours for a normal",
                    share * 100.0
                )
            }
            Self::TooSmall(count) => {
                write!(
                    f,
                    "too_small: {count} occupied voxels, {MIN_SURFACE} are a place; a smaller voxel may help"
                )
            }
            Self::NoStructure(share) => {
                write!(f, "no_structure: only {:.1} % of the surface are not level", share * 100.0)
            }
            Self::AbsurdCoordinates(v) => write!(f, "absurd_coordinates: {v:e} m"),
        }
    }
}

/// What is wrong with a map that was made of these points; nothing, if it is fit.
pub fn findings(map: &Map, points: &[Point]) -> Vec<Finding> {
    let mut found = Vec::new();
    let total = map.raw_points + map.non_finite;
    if map.non_finite as f64 > MAX_SHARE * total as f64 {
        found.push(Finding::NonFinite(map.non_finite, total));
    }
    let duplicates = duplicates(points);
    if duplicates as f64 > MAX_SHARE * total as f64 {
        found.push(Finding::Duplicates(duplicates, total));
    }
    let normals = &map.surface.normals;
    let all = normals.len().max(1) as f64;
    let bare = normals.iter().filter(|normal| normal.norm_squared() == 0.0).count();
    if bare as f64 > MAX_BARE * all {
        found.push(Finding::TooSparse(bare as f64 / all));
    }
    if normals.len() < MIN_SURFACE {
        found.push(Finding::TooSmall(normals.len()));
    }
    let shaped = normals.iter().filter(|n| n.norm_squared() > 0.0 && n.z.abs() < LEVEL).count();
    if (shaped as f64) < MIN_STRUCTURE * all {
        found.push(Finding::NoStructure(shaped as f64 / all));
    }
    let largest = points.iter().flat_map(|p| p.iter()).fold(0.0, |most: f64, v| most.max(v.abs()));
    if largest > MAX_COORDINATE {
        found.push(Finding::AbsurdCoordinates(largest));
    }
    found
}

/// Points that are exactly where another one is.
fn duplicates(points: &[Point]) -> u64 {
    // Zero has two signs and one place.
    let mut bits: Vec<[u64; 3]> =
        points.iter().map(|p| [p.x, p.y, p.z].map(|v| (v + 0.0).to_bits())).collect();
    bits.sort_unstable();
    bits.windows(2).filter(|pair| pair.first() == pair.last()).count() as u64
}
