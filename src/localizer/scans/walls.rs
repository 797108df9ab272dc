//! Places by walls: the walls of a scan, turned about the vertical and shifted over the plan of the map.
//!
//! Indoors a few beams see stripes of walls, whose descriptors tell no place from another; all of them together do.
//! The search is the branch and bound of Hess et al. (2016, Cartographer): plans of coarser and coarser cells bound
//! what any place within a cell can have, and what cannot be among the best is not looked at. It finds what a
//! search of all places on the grid would find, as far as its budget goes.

use crate::features::Surface;
use crate::geometry::{Point, Rigid, Vector};
use nalgebra::{Translation3, UnitQuaternion};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Edge of the cells of the plan, voxels.
const CELL: f64 = 2.0;
/// Sine of the largest slope of a wall's normal, and cosine of that of a floor's.
const WALL: f64 = 0.3;
const FLOOR: f64 = 0.9;
/// Coarsest plan: cells of 2 to the power of this.
const COARSEST: usize = 5;
/// Walls of a scan that are laid upon the plan, cells of it, and within which distance, cells.
const POINTS: usize = 160;
const REACH: f64 = 100.0;
/// A place is looked for if it explains this share of what the best one does.
const AMONG_THE_BEST: f64 = 0.75;
/// Nodes that are looked at, at most.
const BUDGET: usize = 400_000;
/// Edge of the cells in which heights of floors are kept, cells of the plan.
const FLOOR_CELL: i64 = 8;
/// Share of the walls within a cell of the plan that has a wall beside it.
const BESIDE: u8 = 1;
const IN: u8 = 2;

/// The walls of a map from above.
#[derive(Debug, Clone, Default)]
pub struct Walls {
    cell: f64,
    /// The corner of the first cell, in cells.
    origin: [i64; 2],
    size: [i64; 2],
    /// What the walls have at most within `2^level` cells from each cell on.
    levels: Vec<Vec<u8>>,
    /// Height of the floor, by its cell.
    floors: FxHashMap<[i64; 2], f64>,
}

/// A part of the places: a heading and a square of shifts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    bound: u32,
    level: usize,
    heading: usize,
    shift: [i64; 2],
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |node: &Self| (node.bound, std::cmp::Reverse((node.level, node.heading, node.shift)));
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Walls {
    /// The walls of a map whose vertical is z. `voxel`: the edge of its voxels.
    pub fn new(map: &Surface, voxel: f64) -> Self {
        let cell = CELL * voxel;
        let cell_of = |p: &Point| [p.x, p.y].map(|v| (v / cell).floor() as i64);
        let is_wall = |normal: &Vector| *normal != Vector::zeros() && normal.z.abs() < WALL;
        let pairs = || map.points.iter().zip(&map.normals);
        let walls: Vec<[i64; 2]> = pairs().filter(|(_, n)| is_wall(n)).map(|(p, _)| cell_of(p)).collect();
        let Some(first) = walls.first() else { return Self::default() };
        let low = walls.iter().fold(*first, |a, b| [a[0].min(b[0]), a[1].min(b[1])]);
        let high = walls.iter().fold(*first, |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
        // A cell more on either side for what is beside a wall.
        let origin = low.map(|v| v - 1);
        let size = [high[0] - low[0] + 3, high[1] - low[1] + 3];
        if size[0].saturating_mul(size[1]) > 1 << 28 {
            return Self::default();
        }
        let mut plan = vec![0u8; (size[0] * size[1]) as usize];
        for [x, y] in walls {
            for (dx, dy) in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)] {
                let at = (y + dy - origin[1]) * size[0] + x + dx - origin[0];
                if let Some(value) = plan.get_mut(at as usize) {
                    *value = (*value).max(if (dx, dy) == (0, 0) { IN } else { BESIDE });
                }
            }
        }
        let mut levels = vec![plan];
        for level in 0..COARSEST {
            let finer = levels.last().map_or(&[] as &[u8], Vec::as_slice);
            levels.push(coarser(finer, size, 1 << level));
        }
        Self { cell, origin, size, levels, floors: floors(pairs(), cell) }
    }

    /// Poses of the sensor at which the walls of the scan lie on those of the map, the best first, of so many places
    /// at most. `sensor_up`: the vertical.
    pub fn search(&self, scan: &Surface, sensor_up: &Vector, places: usize) -> Vec<Rigid> {
        let Some(level) = UnitQuaternion::rotation_between(sensor_up, &Vector::z()) else {
            return Vec::new();
        };
        let (points, floor) = self.walls_of(scan, &level);
        let Some(reach) = points.iter().map(|p| p[0].hypot(p[1])).max_by(f64::total_cmp) else {
            return Vec::new();
        };
        // The farthest wall moves by a cell from one heading to the next.
        let headings = (std::f64::consts::TAU * reach.max(4.0)).ceil() as usize;
        let turned: Vec<Vec<[i64; 2]>> =
            (0..headings).map(|heading| turn(&points, angle(heading, headings))).collect();
        let found = self.branch_and_bound(&turned, places);
        let pose = |node: &Node| {
            let heading = UnitQuaternion::from_axis_angle(&Vector::z_axis(), angle(node.heading, headings));
            let [x, y] = [0, 1].map(|i| node.shift[i] as f64 * self.cell);
            let z = self.floor_at(node.shift).unwrap_or(0.0) - floor;
            Rigid::from_parts(Translation3::new(x, y, z), heading * level)
        };
        found.iter().map(pose).collect()
    }

    /// The walls of a scan in cells of the plan, one a cell, spread over all of them, in a frame that is level; and the
    /// height of its floor there.
    fn walls_of(&self, scan: &Surface, level: &UnitQuaternion<f64>) -> (Vec<[f64; 2]>, f64) {
        let mut seen = FxHashMap::default();
        let mut points = Vec::new();
        let mut floors = Vec::new();
        for (point, normal) in scan.points.iter().zip(&scan.normals) {
            let (p, n) = (level * point, level * normal);
            if n.z.abs() > FLOOR && p.z < 0.0 {
                floors.push(p.z);
            }
            if *normal == Vector::zeros() || n.z.abs() >= WALL {
                continue;
            }
            let at = [p.x / self.cell, p.y / self.cell];
            let is_new = seen.insert(at.map(|v| v.floor() as i64), ()).is_none();
            if is_new && at[0].hypot(at[1]) < REACH {
                points.push(at);
            }
        }
        let step = points.len().div_ceil(POINTS).max(1);
        (points.into_iter().step_by(step).collect(), typical(&mut floors).unwrap_or(0.0))
    }

    fn branch_and_bound(&self, turned: &[Vec<[i64; 2]>], places: usize) -> Vec<Node> {
        let top = self.levels.len().saturating_sub(1);
        let step = 1i64 << top;
        let mut heap = BinaryHeap::new();
        for heading in 0..turned.len() {
            // The sensor is over the plan.
            for y in 0..=self.size[1] / step {
                for x in 0..=self.size[0] / step {
                    let shift = [x * step + self.origin[0], y * step + self.origin[1]];
                    heap.push(self.node(turned, top, heading, shift));
                }
            }
        }
        let (mut found, mut looked): (Vec<Node>, usize) = (Vec::new(), 0);
        let mut taken = FxHashMap::default();
        while let Some(node) = heap.pop() {
            let least = found.first().map_or(0.0, |best| AMONG_THE_BEST * f64::from(best.bound));
            if f64::from(node.bound) < least.max(1.0) || found.len() >= places || looked > BUDGET {
                break;
            }
            // One of each place: a square of the coarsest cells with a sixteenth of a turn, as far as they go.
            let sector = 16 * node.heading / turned.len().max(1);
            let square = node.shift.map(|v| v.div_euclid(8));
            if node.level <= 3 && taken.contains_key(&(square, sector)) {
                continue;
            }
            if node.level == 0 {
                for (dx, dy) in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)] {
                    for ds in [0, 1, 15] {
                        taken.insert(([square[0] + dx, square[1] + dy], (sector + ds) % 16), ());
                    }
                }
                found.push(node);
                continue;
            }
            let half = 1i64 << (node.level - 1);
            for (dx, dy) in [(0, 0), (half, 0), (0, half), (half, half)] {
                looked += 1;
                let shift = [node.shift[0] + dx, node.shift[1] + dy];
                let child = self.node(turned, node.level - 1, node.heading, shift);
                if f64::from(child.bound) >= least {
                    heap.push(child);
                }
            }
        }
        found
    }

    fn node(&self, turned: &[Vec<[i64; 2]>], level: usize, heading: usize, shift: [i64; 2]) -> Node {
        let points = turned.get(heading).map_or(&[] as &[_], Vec::as_slice);
        let plan = self.levels.get(level).map_or(&[] as &[u8], Vec::as_slice);
        let margin = (1i64 << level) - 1;
        let [dx, dy] = [shift[0] - self.origin[0], shift[1] - self.origin[1]];
        let value = |p: &[i64; 2]| {
            // Before the first cell the window still reaches into the plan.
            let (x, y) = (p[0] + dx + margin, p[1] + dy + margin);
            let [width, height] = self.size.map(|v| v + margin);
            match (0..width).contains(&x) && (0..height).contains(&y) {
                true => plan.get((y * width + x) as usize).map_or(0, |v| u32::from(*v)),
                false => 0,
            }
        };
        Node { bound: points.iter().map(value).sum(), level, heading, shift }
    }

    /// Height of the floor at a cell of the plan, or near it.
    fn floor_at(&self, cell: [i64; 2]) -> Option<f64> {
        let [x, y] = cell.map(|v| v.div_euclid(FLOOR_CELL));
        let around = (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dx, dy)));
        let here = self.floors.get(&[x, y]).copied();
        here.or_else(|| {
            around.filter_map(|(dx, dy)| self.floors.get(&[x + dx, y + dy]).copied()).min_by(f64::total_cmp)
        })
    }
}

fn angle(heading: usize, headings: usize) -> f64 {
    std::f64::consts::TAU * heading as f64 / headings.max(1) as f64
}

fn turn(points: &[[f64; 2]], angle: f64) -> Vec<[i64; 2]> {
    let (sin, cos) = libm::sincos(angle);
    points.iter().map(|[x, y]| [cos * x - sin * y, sin * x + cos * y].map(|v| v.floor() as i64)).collect()
}

/// What `2^(level + 1)` cells have at most, from what `step = 2^level` have. A plan of level k begins `2^k - 1` cells
/// before the first cell.
fn coarser(finer: &[u8], size: [i64; 2], step: i64) -> Vec<u8> {
    let [width, height] = size.map(|v| v + step - 1);
    let at = |x: i64, y: i64| match (0..width).contains(&x) && (0..height).contains(&y) {
        true => finer.get((y * width + x) as usize).copied().unwrap_or(0),
        false => 0,
    };
    let [out_width, out_height] = size.map(|v| v + 2 * step - 1);
    let mut out = Vec::with_capacity((out_width * out_height) as usize);
    for y in 0..out_height {
        for x in 0..out_width {
            // In the coordinates of the finer plan.
            let (x, y) = (x - step, y - step);
            out.push(at(x, y).max(at(x + step, y)).max(at(x, y + step)).max(at(x + step, y + step)));
        }
    }
    out
}

/// Height of the floor in each cell: that of the lower tenth of what is level.
fn floors<'a>(pairs: impl Iterator<Item = (&'a Point, &'a Vector)>, cell: f64) -> FxHashMap<[i64; 2], f64> {
    let edge = FLOOR_CELL as f64 * cell;
    let mut heights: FxHashMap<[i64; 2], Vec<f64>> = FxHashMap::default();
    for (point, _) in pairs.filter(|(_, normal)| normal.z.abs() > FLOOR) {
        heights.entry([point.x, point.y].map(|v| (v / edge).floor() as i64)).or_default().push(point.z);
    }
    heights.into_iter().filter_map(|(cell, mut heights)| Some((cell, typical(&mut heights)?))).collect()
}

/// The lower tenth.
fn typical(heights: &mut [f64]) -> Option<f64> {
    heights.sort_unstable_by(f64::total_cmp);
    heights.get(heights.len() / 10).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walls along a closed line, with a floor.
    fn room(corners: &[[f64; 2]], voxel: f64) -> Surface {
        let mut out = Surface::default();
        for (a, b) in corners.iter().zip(corners.iter().cycle().skip(1)) {
            let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
            let length = dx.hypot(dy);
            let normal = Vector::new(-dy / length, dx / length, 0.0);
            for i in 0..(length / voxel) as usize {
                let along = i as f64 * voxel / length;
                for j in 0..4 {
                    let z = 0.5 + 0.5 * f64::from(j);
                    out.points.push(Point::new(a[0] + along * dx, a[1] + along * dy, z));
                    out.normals.push(normal);
                }
            }
        }
        for i in 0..20 {
            for j in 0..20 {
                out.points.push(Point::new(f64::from(i), f64::from(j), -0.25));
                out.normals.push(Vector::z());
            }
        }
        out
    }

    #[test]
    fn the_place_is_found_and_so_is_its_like() {
        let shape = [[0.0, 0.0], [9.0, 0.0], [9.0, 4.0], [5.0, 4.0], [5.0, 7.0], [0.0, 7.0]];
        let map = room(&shape, 0.1);
        let truth = Rigid::from_parts(
            Translation3::new(3.0, 2.5, 1.0),
            UnitQuaternion::from_euler_angles(0.02, -0.03, 2.1),
        );
        let inverse = truth.inverse();
        let scan = Surface {
            points: map.points.iter().map(|p| inverse * p).collect(),
            normals: map.normals.iter().map(|n| inverse * n).collect(),
        };
        let up = inverse * Vector::z();
        let found = Walls::new(&map, 0.1).search(&scan, &up, 4);
        let best = found.first().expect("a place");
        let (angle, distance) = crate::geometry::pose_error(best, &truth);
        assert!(angle < 0.03 && distance < 0.35, "{angle} {distance}");
        assert!(found.len() <= 4);
    }

    #[test]
    fn bounds_are_bounds() {
        let map = room(&[[0.0, 0.0], [6.3, 0.0], [6.3, 3.1], [0.0, 3.1]], 0.1);
        let walls = Walls::new(&map, 0.1);
        let points = vec![(-20..20).map(|i| [i, (i * 7) % 11]).collect::<Vec<_>>()];
        for level in 1..walls.levels.len() {
            for (x, y) in [(-9, -40), (0, 0), (5, 3), (17, 9), (31, -2)] {
                let bound = walls.node(&points, level, 0, [x, y]).bound;
                let inside = (0..1 << level).flat_map(|dy| (0..1 << level).map(move |dx| [x + dx, y + dy]));
                let best = inside.map(|shift| walls.node(&points, 0, 0, shift).bound).max();
                assert_eq!(Some(bound.max(best.unwrap_or(0))), Some(bound), "level {level} at {x} {y}");
            }
        }
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let map = room(&[[0.0, 0.0], [5.0, 0.0], [5.0, 3.0], [0.0, 3.0]], 0.1);
        let empty = Surface::default();
        assert!(Walls::new(&empty, 0.1).search(&map, &Vector::z(), 3).is_empty());
        assert!(Walls::new(&map, 0.1).search(&empty, &Vector::z(), 3).is_empty());
    }
}
