//! Where the submaps are: square tiles, all of one size, that overlap.
//!
//! A scan sees some hundred voxels far, most of it near the sensor. Tiles of 500 voxels that share a fifth with each
//! neighbour hold most of what is seen from any place in at least one of them, and a kilometre outdoors (voxels of
//! 0.5 m) takes 5 x 5. A map up to a fifth wider than a tile is one tile.

use super::Submap;
use crate::features::{Features, Lengths};
use crate::geometry::Point;
use std::collections::BTreeMap;

/// Edge of a tile, voxels.
const EDGE: f64 = 500.0;
/// Share of its edge that a tile has in common with its neighbour.
const SHARED: f64 = 0.2;
/// A map that is wider than a tile by this factor at most is one tile.
const ALONE: f64 = 1.2;
/// A tile whose core has fewer surface points leaves them to the neighbours, if there are some.
const MIN_POINTS: usize = 50;

/// The tiles of a map that hold something.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiles {
    tiles: Vec<Tile>,
}

/// A tile: which points of the surface are in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tile {
    center: [f64; 2],
    members: Vec<u32>,
}

/// The tiles along one axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Where the core of tile 0 begins.
    start: f64,
    /// From tile to tile.
    step: f64,
    /// Half of the edge of a tile.
    half: f64,
}

impl Axis {
    /// For points within `low .. high`, tiles of edge `edge`.
    fn new(low: f64, high: f64, edge: f64) -> Self {
        if high - low <= ALONE * edge {
            // Wider than what it holds, so that rounding puts nothing outside.
            let width = (high - low) * 1.001 + 1e-3;
            return Self { start: (low + high - width) / 2.0, step: width, half: width / 2.0 };
        }
        let step = edge * (1.0 - SHARED);
        // As many as needed, centred: what they exceed the map by is shared by both ends.
        let count = ((high - low) / step).ceil();
        Self { start: (low + high - count * step) / 2.0, step, half: edge / 2.0 }
    }

    fn center(&self, index: i64) -> f64 {
        self.start + (index as f64 + 0.5) * self.step
    }

    /// The tiles that a coordinate is within.
    fn around(&self, v: f64) -> impl Iterator<Item = i64> {
        let reach = self.half - self.step / 2.0;
        let at = |v: f64| ((v - self.start) / self.step).floor() as i64;
        at(v - reach)..=at(v + reach)
    }

    fn core(&self, v: f64) -> i64 {
        ((v - self.start) / self.step).floor() as i64
    }
}

impl Tiles {
    /// For the points of a surface; `edge` (m) 0 derives it.
    pub fn new(points: &[Point], lengths: &Lengths, edge: f64) -> Self {
        let edge = if edge > 0.0 { edge.max(20.0 * lengths.voxel) } else { EDGE * lengths.voxel };
        let [low, high] = super::bounds(points);
        let (x, y) = (Axis::new(low.x, high.x, edge), Axis::new(low.y, high.y, edge));
        let mut cores: BTreeMap<[i64; 2], usize> = BTreeMap::new();
        for point in points {
            *cores.entry([x.core(point.x), y.core(point.y)]).or_default() += 1;
        }
        if cores.values().any(|count| *count >= MIN_POINTS) {
            cores.retain(|_, count| *count >= MIN_POINTS);
        }
        let mut members: BTreeMap<[i64; 2], Vec<u32>> =
            cores.keys().map(|core| (*core, Vec::new())).collect();
        for (index, point) in (0u32..).zip(points) {
            for i in x.around(point.x) {
                for j in y.around(point.y) {
                    if let Some(tile) = members.get_mut(&[i, j]) {
                        tile.push(index);
                    }
                }
            }
        }
        let tile =
            |([i, j], members): ([i64; 2], Vec<u32>)| Tile { center: [x.center(i), y.center(j)], members };
        Self { tiles: members.into_iter().map(tile).collect() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.tiles.len()
    }

    /// There are none: the surface has no points.
    pub fn is_empty(&self) -> bool {
        self.tiles.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tile> {
        self.tiles.iter()
    }
}

impl Tile {
    /// Which points of the surface are in it.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().map(|index| *index as usize)
    }

    /// With these features of its points.
    pub fn submap(&self, features: Features) -> Submap {
        let [cx, cy] = self.center;
        let points = &features.points;
        let heights = points
            .iter()
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], p| [low.min(p.z), high.max(p.z)]);
        let radius = points.iter().map(|p| {
            let (dx, dy) = (p.x - cx, p.y - cy);
            (dx * dx + dy * dy).sqrt()
        });
        Submap {
            center: Point::new(cx, cy, (heights[0] + heights[1]) / 2.0),
            radius: radius.fold(0.0, f64::max),
            features,
        }
    }
}
