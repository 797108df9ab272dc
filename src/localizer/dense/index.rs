//! The surface of the map, ready for nearest-point queries and rays.

use crate::features::Surface;
use crate::geometry::{Point, Vector};
use rustc_hash::FxHashMap;

/// Cells of a block along each axis, and in all.
const SIDE: i64 = 4;
const CELLS: usize = (SIDE * SIDE * SIDE) as usize;
/// Grids of an index, each with twice the edge of the one before.
const LEVELS: usize = 5;

type Key = [i64; 3];

/// A point of the map's surface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Surfel {
    /// Where, m.
    pub point: Point,
    /// Unit normal of either sense; zero where there is none.
    pub normal: Vector,
}

/// Points in cells, 4 x 4 x 4 cells a block. Blocks are found by a hash map, which is never iterated.
#[derive(Debug, Clone, Default)]
struct Grid {
    edge: f64,
    blocks: FxHashMap<Key, u32>,
    /// For each block, where the points of its cells begin, and where those of the last one end.
    starts: Vec<u32>,
    /// By block, then cell, x fastest.
    surfels: Vec<Surfel>,
}

impl Grid {
    /// With `thin` one point a cell is kept, the one nearest to their mean.
    fn new(surfels: impl Iterator<Item = Surfel>, edge: f64, thin: bool) -> Self {
        let place = |surfel: Surfel| {
            let cell = cell_of(&surfel.point, edge);
            (cell.map(|c| c.div_euclid(SIDE)), number(cell), surfel)
        };
        let mut placed: Vec<(Key, u8, Surfel)> = surfels.map(place).collect();
        // Stable: within a cell the order of the input stays.
        placed.sort_by_key(|(block, cell, _)| (*block, *cell));
        let mut grid = Self { edge, ..Self::default() };
        grid.surfels.reserve(placed.len());
        for block in placed.chunk_by(|a, b| a.0 == b.0) {
            let Some((key, ..)) = block.first() else { continue };
            grid.blocks.insert(*key, (grid.starts.len() / (CELLS + 1)) as u32);
            let mut next = 0;
            for cell in block.chunk_by(|a, b| a.1 == b.1) {
                let number = cell.first().map_or(0, |(_, number, _)| usize::from(*number));
                let start = grid.surfels.len() as u32;
                grid.starts.extend((next..=number).map(|_| start));
                next = number + 1;
                match thin {
                    true => grid.surfels.extend(typical(cell)),
                    false => grid.surfels.extend(cell.iter().map(|(_, _, surfel)| *surfel)),
                }
            }
            let end = grid.surfels.len() as u32;
            grid.starts.extend((next..=CELLS).map(|_| end));
        }
        grid
    }

    /// Where the points of each cell of a block begin.
    fn block(&self, key: &Key) -> Option<&[u32]> {
        let at = *self.blocks.get(key)? as usize * (CELLS + 1);
        self.starts.get(at..at + CELLS + 1)
    }

    /// The points of cells `from..=to` of a row along x.
    fn row(&self, starts: &[u32], from: usize, to: usize) -> &[Surfel] {
        let range = starts.get(from).zip(starts.get(to + 1));
        range.and_then(|(a, b)| self.surfels.get(*a as usize..*b as usize)).unwrap_or(&[])
    }

    /// The nearest point within `reach`, which is at most the edge.
    fn nearest(&self, p: &Point, reach: f64) -> Option<&Surfel> {
        let low = cell_of(&(p - Vector::repeat(reach)), self.edge);
        let high = cell_of(&(p + Vector::repeat(reach)), self.edge);
        let [first, last] = [low, high].map(|cell| cell.map(|c| c.div_euclid(SIDE)));
        let mut best = None;
        let mut least = reach * reach;
        for bz in first[2]..=last[2] {
            for by in first[1]..=last[1] {
                for bx in first[0]..=last[0] {
                    let block = [bx, by, bz];
                    let Some(starts) = self.block(&block) else { continue };
                    // The part of the block that is within reach, in cells of the block.
                    let from: [usize; 3] =
                        std::array::from_fn(|i| (low[i] - block[i] * SIDE).clamp(0, SIDE - 1) as usize);
                    let to: [usize; 3] =
                        std::array::from_fn(|i| (high[i] - block[i] * SIDE).clamp(0, SIDE - 1) as usize);
                    let side = SIDE as usize;
                    for z in from[2]..=to[2] {
                        for y in from[1]..=to[1] {
                            let row = (z * side + y) * side;
                            for surfel in self.row(starts, row + from[0], row + to[0]) {
                                let d = (surfel.point - p).norm_squared();
                                if d < least {
                                    least = d;
                                    best = Some(surfel);
                                }
                            }
                        }
                    }
                }
            }
        }
        best
    }
}

/// The cell of a point: far away they saturate.
pub(super) fn cell_of(p: &Point, edge: f64) -> Key {
    std::array::from_fn(|i| {
        let value = p[i] / edge;
        // Without a call: not every processor has an instruction for `floor`.
        let toward_zero = value as i64;
        toward_zero.saturating_sub(i64::from(toward_zero as f64 > value))
    })
}

/// The number of a cell in its block.
fn number(cell: Key) -> u8 {
    let [x, y, z] = cell.map(|c| c.rem_euclid(SIDE));
    ((z * SIDE + y) * SIDE + x) as u8
}

fn typical(cell: &[(Key, u8, Surfel)]) -> Option<Surfel> {
    // Relative to one of them, lest digits cancel.
    let origin = cell.first()?.2.point;
    let sum: Vector = cell.iter().map(|(_, _, s)| s.point - origin).sum();
    let mean = origin + sum / cell.len() as f64;
    let distance = |s: &Surfel| (s.point - mean).norm_squared();
    let mut best = cell.first()?.2;
    for (_, _, surfel) in cell {
        if distance(surfel) < distance(&best) {
            best = *surfel;
        }
    }
    Some(best)
}

/// The surface of the map, in grids from fine to coarse: the nearest point within any distance is found in the
/// 27 cells around it, of the grid whose cells are that large. Made once; nothing is copied for a part of it.
#[derive(Debug, Clone)]
pub struct SurfaceIndex {
    voxel: f64,
    levels: Vec<Grid>,
}

impl SurfaceIndex {
    /// From the points of a surface, of which there is about one a voxel of this edge (m). Points that are not
    /// finite are left out, those without normal too: they tell nothing about where a surface is.
    pub fn new(surface: &Surface, voxel: f64) -> Self {
        let voxel = if voxel > 0.0 && voxel.is_finite() { voxel } else { 1.0 };
        let surfels = surface.points.iter().zip(&surface.normals);
        let usable = surfels.map(|(point, normal)| Surfel { point: *point, normal: *normal }).filter(|s| {
            s.point.iter().all(|v| v.is_finite()) && (s.normal.norm_squared() - 1.0).abs() < 0.01
        });
        let mut levels: Vec<Grid> = Vec::with_capacity(LEVELS);
        levels.push(Grid::new(usable, voxel, false));
        for level in 1..LEVELS {
            let edge = voxel * f64::from(1u32 << level);
            let finer = levels.last().map(|grid| grid.surfels.as_slice()).unwrap_or_default();
            levels.push(Grid::new(finer.iter().copied(), edge, true));
        }
        Self { voxel, levels }
    }

    /// Edge of the voxels, m.
    pub fn voxel(&self) -> f64 {
        self.voxel
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.levels.first().map_or(0, |grid| grid.surfels.len())
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest distance at which points are found, m.
    pub fn reach(&self) -> f64 {
        self.levels.last().map_or(0.0, |grid| grid.edge)
    }

    /// How many times the voxels were doubled for queries within this distance.
    pub(super) fn level(&self, distance: f64) -> usize {
        let level = self.levels.iter().position(|grid| distance <= grid.edge);
        level.unwrap_or(self.levels.len().saturating_sub(1))
    }

    /// The nearest point within a distance (m). Beyond a voxel it is the nearest of a sample, which gets coarser
    /// with the distance; beyond [`SurfaceIndex::reach`] nothing is found.
    pub fn nearest(&self, p: &Point, distance: f64) -> Option<&Surfel> {
        let grid = self.levels.get(self.level(distance))?;
        grid.nearest(p, distance.min(grid.edge))
    }

    /// How far along a ray the surface is first crossed, between two distances (m). `direction` has length 1.
    /// Surfaces that are only grazed do not count: where they are crossed is too uncertain.
    pub fn cast(&self, origin: &Point, direction: &Vector, from: f64, to: f64) -> Option<f64> {
        let grid = self.levels.first()?;
        let start = origin + direction * from;
        // No ray is so long, no map so far away: neither may take for ever.
        let to = to.min(from + FARTHEST * grid.edge);
        let sane = start.iter().chain(direction.iter()).all(|v| v.abs() < FAR_AWAY * grid.edge);
        if !sane || !to.is_finite() || from >= to {
            return None;
        }
        // Cell by cell along the ray (Amanatides and Woo 1987).
        let mut cell = cell_of(&start, grid.edge);
        let mut next = [f64::INFINITY; 3];
        let mut delta = [f64::INFINITY; 3];
        for i in 0..3 {
            if direction[i] != 0.0 {
                let edge = cell[i].saturating_add(i64::from(direction[i] > 0.0)) as f64 * grid.edge;
                next[i] = from + (edge - start[i]) / direction[i];
                delta[i] = grid.edge / direction[i].abs();
            }
        }
        let mut key = cell.map(|c| c.div_euclid(SIDE));
        let mut block = grid.block(&key);
        loop {
            if let Some(starts) = block {
                let number = usize::from(number(cell));
                let crossed = grid.row(starts, number, number).iter().find_map(|surfel| {
                    let steep = surfel.normal.dot(direction);
                    let range = surfel.normal.dot(&(surfel.point - origin)) / steep;
                    let beside = (origin + direction * range - surfel.point).norm();
                    let met = steep.abs() > GRAZING && range > from && range < to && beside < self.voxel;
                    met.then_some(range)
                });
                if crossed.is_some() {
                    return crossed;
                }
            }
            let axis = (0..3).fold(0, |least, i| if next[i] < next[least] { i } else { least });
            if next[axis] >= to {
                return None;
            }
            cell[axis] = cell[axis].saturating_add(if direction[axis] > 0.0 { 1 } else { -1 });
            next[axis] += delta[axis];
            let now = cell.map(|c| c.div_euclid(SIDE));
            if now != key {
                key = now;
                block = grid.block(&key);
            }
        }
    }
}

/// Cells that a ray goes through at most, and how far from the origin it may begin, cells.
const FARTHEST: f64 = 1e5;
const FAR_AWAY: f64 = 1e12;
/// Cosine of the incidence below which a ray only grazes a surface, 78 degrees.
const GRAZING: f64 = 0.2;
