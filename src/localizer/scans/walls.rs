//! Places by walls: the walls of a scan, turned about the vertical and shifted over the plan of the map.
//!
//! Indoors a few beams see stripes of walls, whose descriptors tell no place from another; all of them together do.
//! The search is the branch and bound of Hess et al. (2016, Cartographer): plans of coarser and coarser cells bound
//! what any place within a cell can have, and what cannot be among the best is not looked at. It finds what a
//! search of all places on the grid would find, as far as its budget goes.

use crate::features::Surface;
use crate::geometry::{Point, Rigid, Vector};
use nalgebra::{Translation3, UnitQuaternion};
use rustc_hash::{FxHashMap, FxHashSet};

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
/// A place is looked for if it explains this share of what the best one does, and this share of all.
const AMONG_THE_BEST: f64 = 0.75;
const LEAST: f64 = 0.35;
/// Cells of the largest plan.
const LARGEST: i64 = 1 << 28;
/// Nodes that are looked at, at most.
const BUDGET: usize = 400_000;
/// Edge of the cells in which heights of floors are kept, cells of the plan.
const FLOOR_CELL: i32 = 8;
/// What a wall of the scan has in a cell of the plan beside one with a wall, and in one with a wall.
const BESIDE: u8 = 1;
const IN: u8 = 2;
/// Cells around the plan, without walls: as far as walls of a scan reach from a sensor over the plan, with a coarsest
/// cell on either side. So a wall of the scan is never outside.
const PAD: i32 = REACH as i32 + (2 << COARSEST);

/// The walls of a map from above.
#[derive(Debug, Clone, Default)]
pub struct Walls {
    cell: f64,
    /// The corner of the first cell that is not padding, in cells.
    origin: [i32; 2],
    /// Without the padding.
    size: [i32; 2],
    /// What the walls have at most within `2^level` cells from each cell on, rows of the padded plan.
    levels: Vec<Vec<u8>>,
    /// Height of the floor, by its cell.
    floors: FxHashMap<[i32; 2], f64>,
}

/// A part of the places: a heading and a square of shifts. The shift is in cells from the origin of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    bound: u16,
    heading: u16,
    shift: [i32; 2],
    level: u8,
}

/// Nodes by their bound, the best first, and of equal ones the newest, which is the deepest. No node is added whose
/// bound is above that of the last one taken.
struct Queue {
    by_bound: Vec<Vec<Node>>,
}

impl Queue {
    /// For bounds up to this one.
    fn new(highest: usize) -> Self {
        Self { by_bound: vec![Vec::new(); highest + 1] }
    }

    fn push(&mut self, node: Node) {
        if let Some(nodes) = self.by_bound.get_mut(usize::from(node.bound)) {
            nodes.push(node);
        }
    }

    fn pop(&mut self) -> Option<Node> {
        while let Some(nodes) = self.by_bound.last_mut() {
            if let Some(node) = nodes.pop() {
                return Some(node);
            }
            self.by_bound.pop();
        }
        None
    }
}

impl Walls {
    /// The walls of a map whose vertical is z. `voxel`: the edge of its voxels.
    pub fn new(map: &Surface, voxel: f64) -> Self {
        let cell = CELL * voxel;
        // Far away they saturate.
        let cell_of = |p: &Point| [p.x, p.y].map(|v| (v / cell).floor() as i32);
        let is_wall = |normal: &Vector| *normal != Vector::zeros() && normal.z.abs() < WALL;
        let pairs = || map.points.iter().zip(&map.normals);
        let walls: Vec<[i32; 2]> = pairs().filter(|(_, n)| is_wall(n)).map(|(p, _)| cell_of(p)).collect();
        let Some(first) = walls.first() else { return Self::default() };
        let low = walls.iter().fold(*first, |a, b| [a[0].min(b[0]), a[1].min(b[1])]);
        let high = walls.iter().fold(*first, |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
        let sizes = [0, 1].map(|i| i64::from(high[i]) - i64::from(low[i]) + 1);
        let padded = sizes.map(|v| v.saturating_add(2 * i64::from(PAD)));
        let is_far = low.iter().chain(&high).any(|v| v.unsigned_abs() > 1 << 30);
        if is_far || padded[0].saturating_mul(padded[1]) > LARGEST {
            return Self::default();
        }
        let size = sizes.map(|v| v as i32);
        let width = padded[0] as usize;
        let mut plan = vec![0u8; width * padded[1] as usize];
        for [x, y] in walls {
            for (dx, dy) in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)] {
                let [column, row] = [x - low[0] + dx + PAD, y - low[1] + dy + PAD].map(|v| v as usize);
                if let Some(value) = plan.get_mut(row * width + column) {
                    *value = (*value).max(if (dx, dy) == (0, 0) { IN } else { BESIDE });
                }
            }
        }
        let mut levels = vec![plan];
        for level in 0..COARSEST {
            let finer = levels.last().map_or(&[] as &[u8], Vec::as_slice);
            levels.push(coarser(finer, width, 1 << level));
        }
        Self { cell, origin: low, size, levels, floors: floors(pairs(), cell) }
    }

    /// Cells of a row of the padded plan.
    fn width(&self) -> i32 {
        self.size[0] + 2 * PAD
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
        let turned: Vec<i32> =
            (0..headings).flat_map(|heading| self.turn(&points, angle(heading, headings))).collect();
        let found = self.branch_and_bound(&turned, points.len(), places);
        let pose = |node: &Node| {
            let heading = UnitQuaternion::from_axis_angle(
                &Vector::z_axis(),
                angle(usize::from(node.heading), headings),
            );
            let cell = [0, 1].map(|i| node.shift[i] + self.origin[i]);
            let [x, y] = cell.map(|v| f64::from(v) * self.cell);
            let z = self.floor_at(cell).unwrap_or(0.0) - floor;
            Rigid::from_parts(Translation3::new(x, y, z), heading * level)
        };
        found.iter().map(pose).collect()
    }

    /// Where the walls lie at a heading, as offsets in the padded plan.
    fn turn<'a>(&'a self, points: &'a [[f64; 2]], angle: f64) -> impl Iterator<Item = i32> + 'a {
        let (sin, cos) = libm::sincos(angle);
        let turned = move |[x, y]: &[f64; 2]| {
            let [x, y] = [cos * x - sin * y, sin * x + cos * y].map(|v| v.floor() as i32);
            y * self.width() + x
        };
        points.iter().map(turned)
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

    /// `turned`: for each heading the offsets of the `count` walls.
    fn branch_and_bound(&self, turned: &[i32], count: usize, places: usize) -> Vec<Node> {
        let top = self.levels.len().saturating_sub(1) as u8;
        let headings = turned.len() / count.max(1);
        let step = 1i32 << top;
        let plausible = LEAST * f64::from(IN) * count as f64;
        let mut queue = Queue::new(usize::from(IN) * count);
        for (walls, heading) in turned.chunks_exact(count.max(1)).zip(0..) {
            // The sensor is over the plan.
            for y in 0..=self.size[1] / step {
                for x in 0..=self.size[0] / step {
                    let node = self.node(walls, top, heading, [x * step, y * step]);
                    if f64::from(node.bound) >= plausible {
                        queue.push(node);
                    }
                }
            }
        }
        let (mut found, mut looked): (Vec<Node>, usize) = (Vec::new(), 0);
        let mut taken = FxHashSet::default();
        while let Some(node) = queue.pop() {
            let best = found.first().map_or(0.0, |best| AMONG_THE_BEST * f64::from(best.bound));
            let least = best.max(plausible);
            if f64::from(node.bound) < least || found.len() >= places || looked > BUDGET {
                break;
            }
            // One of each place: a square of the coarsest cells with a sixteenth of a turn, as far as they go.
            let sector = 16 * usize::from(node.heading) / headings.max(1);
            let square = node.shift.map(|v| v.div_euclid(8));
            if node.level <= 3 && taken.contains(&(square, sector)) {
                continue;
            }
            if node.level == 0 {
                for (dx, dy) in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)] {
                    for ds in [0, 1, 15] {
                        taken.insert(([square[0] + dx, square[1] + dy], (sector + ds) % 16));
                    }
                }
                found.push(node);
                continue;
            }
            let first = usize::from(node.heading) * count;
            let walls = turned.get(first..first + count).unwrap_or_default();
            let half = 1i32 << (node.level - 1);
            for (dx, dy) in [(0, 0), (half, 0), (0, half), (half, half)] {
                looked += 1;
                let shift = [node.shift[0] + dx, node.shift[1] + dy];
                let child = self.node(walls, node.level - 1, node.heading, shift);
                if f64::from(child.bound) >= least {
                    queue.push(child);
                }
            }
        }
        found
    }

    fn node(&self, walls: &[i32], level: u8, heading: u16, shift: [i32; 2]) -> Node {
        let plan = self.levels.get(usize::from(level)).map_or(&[] as &[u8], Vec::as_slice);
        let here = (shift[1] + PAD) * self.width() + shift[0] + PAD;
        let value = |wall: &i32| plan.get((here + wall) as usize).map_or(0, |v| u16::from(*v));
        Node { bound: walls.iter().map(value).sum(), heading, shift, level }
    }

    /// Height of the floor at a cell of the plan, or near it.
    fn floor_at(&self, cell: [i32; 2]) -> Option<f64> {
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

/// What `2 step` cells have at most, from what `step` have; rows of `width` cells.
fn coarser(finer: &[u8], width: usize, step: usize) -> Vec<u8> {
    let mut out = finer.to_vec();
    for away in [step, step * width, step * width + step] {
        let others = finer.get(away..).unwrap_or_default();
        out.iter_mut().zip(others).for_each(|(value, other)| *value = (*value).max(*other));
    }
    out
}

/// Height of the floor in each cell: that of the lower tenth of what is level.
fn floors<'a>(pairs: impl Iterator<Item = (&'a Point, &'a Vector)>, cell: f64) -> FxHashMap<[i32; 2], f64> {
    let edge = f64::from(FLOOR_CELL) * cell;
    let mut heights: FxHashMap<[i32; 2], Vec<f64>> = FxHashMap::default();
    for (point, _) in pairs.filter(|(_, normal)| normal.z.abs() > FLOOR) {
        heights.entry([point.x, point.y].map(|v| (v / edge).floor() as i32)).or_default().push(point.z);
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
        let width = walls.width();
        let points: Vec<i32> = (-20..20).map(|i| (i * 7) % 11 * width + i).collect();
        for level in 1..walls.levels.len() as u8 {
            for (x, y) in [(0, 0), (5, 3), (17, 9), (31, 2), (31, 15)] {
                let bound = walls.node(&points, level, 0, [x, y]).bound;
                let inside = (0..1 << level).flat_map(|dy| (0..1 << level).map(move |dx| [x + dx, y + dy]));
                let best = inside.map(|shift| walls.node(&points, 0, 0, shift).bound).max();
                assert!(best.is_some_and(|best| best <= bound), "level {level} at {x} {y}");
            }
        }
    }
}
