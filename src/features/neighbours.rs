//! Points within a radius, from a grid whose cells have that radius as their edge.

use super::voxel::key;
use crate::geometry::{Point, Vector};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// A grid over points, sorted by cell. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct Grid {
    radius: f64,
    /// Cell and number of each point, in the order of the grid.
    entries: Vec<([i64; 3], u32)>,
    /// The points in that order.
    points: Vec<Point>,
    /// Of each point, its cell as an index of `near`.
    cells: Vec<u32>,
    /// Of each cell, the points in the cells around it: those of a column (x, y) follow each other.
    near: Vec<[(u32, u32); 9]>,
    keys: Vec<[i64; 3]>,
    /// Of each cell, its first point, and after the last the number of points.
    starts: Vec<u32>,
    /// The cells of each column.
    columns: FxHashMap<[i64; 2], (u32, u32)>,
}

impl Grid {
    /// Sorts points into cells. Call it in the threads that shall do it.
    pub fn build(&mut self, points: &[Point], radius: f64) {
        self.radius = radius;
        self.entries.clear();
        self.entries.extend(points.iter().zip(0..).map(|(point, i)| (key(point, radius), i)));
        self.entries.par_sort_unstable();
        self.points.clear();
        self.points.extend(self.entries.iter().filter_map(|&(_, i)| points.get(i as usize)));

        self.cells.clear();
        self.keys.clear();
        self.starts.clear();
        self.columns.clear();
        for (&(key, _), place) in self.entries.iter().zip(0..) {
            if self.keys.last() != Some(&key) {
                let cell = self.keys.len() as u32;
                self.columns.entry([key[0], key[1]]).or_insert((cell, cell)).1 = cell + 1;
                self.keys.push(key);
                self.starts.push(place);
            }
            self.cells.push(self.keys.len() as u32 - 1);
        }
        self.starts.push(self.points.len() as u32);

        let (keys, starts, columns) = (&self.keys, &self.starts, &self.columns);
        keys.par_iter()
            .with_min_len(64)
            .map(|&[x, y, z]| {
                let mut near = [(0, 0); 9];
                let around = (-1..=1).flat_map(|dx| (-1..=1).map(move |dy| (dx, dy)));
                for (range, (dx, dy)) in near.iter_mut().zip(around) {
                    let column = [x.saturating_add(dx), y.saturating_add(dy)];
                    let Some(&(first, end)) = columns.get(&column) else { continue };
                    let cells = keys.get(first as usize..end as usize).unwrap_or_default();
                    let from = first as usize + cells.partition_point(|key| key[2] < z.saturating_sub(1));
                    let to = first as usize + cells.partition_point(|key| key[2] <= z.saturating_add(1));
                    if let (Some(&from), Some(&to)) = (starts.get(from), starts.get(to)) {
                        *range = (from, to);
                    }
                }
                near
            })
            .collect_into_vec(&mut self.near);
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// The numbers that the points had when the grid was built, in the order of the grid.
    pub fn order(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().map(|&(_, i)| i as usize)
    }

    /// The points in the order of the grid.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Calls `visit` with each point within the radius of point `center` of the grid, itself among them, in the
    /// order of the grid: its place there, the vector to it and its squared length.
    #[inline]
    pub fn visit(&self, center: usize, mut visit: impl FnMut(usize, Vector, f64)) {
        let (Some(point), Some(&cell)) = (self.points.get(center), self.cells.get(center)) else { return };
        let Some(near) = self.near.get(cell as usize) else { return };
        let limit = self.radius * self.radius;
        for &(from, to) in near {
            let others = self.points.get(from as usize..to as usize).unwrap_or_default();
            for (other, place) in others.iter().zip(from as usize..) {
                let offset = other - point;
                let squared = offset.norm_squared();
                if squared <= limit {
                    visit(place, offset, squared);
                }
            }
        }
    }
}
