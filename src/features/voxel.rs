//! One point for each voxel: the mean of those in it.

use crate::geometry::{Point, Vector};
use rustc_hash::FxHashMap;

/// Which cube of edge `edge` holds a point. Integers of 64 bits hold any coordinates, UTM among them.
pub(super) fn key(point: &Point, edge: f64) -> [i64; 3] {
    [point.x, point.y, point.z].map(|x| (x / edge).floor() as i64)
}

/// Sampler with memory that is reused.
#[derive(Debug, Default)]
pub(super) struct Voxels {
    index: FxHashMap<[i64; 3], u32>,
    voxels: Vec<Voxel>,
}

#[derive(Debug, Clone, Copy)]
struct Voxel {
    key: [i64; 3],
    sum: Vector,
    count: u32,
}

impl Voxels {
    /// Replaces `means` by the mean of the points in each voxel of edge `edge`, in the order of the voxels (x, y, z).
    /// Points that are not finite are left out.
    pub fn sample(&mut self, points: &[Point], edge: f64, means: &mut Vec<Point>) {
        self.index.clear();
        self.voxels.clear();
        means.clear();
        for point in points.iter().filter(|point| point.iter().all(|x| x.is_finite())) {
            let key = key(point, edge);
            let new = self.voxels.len() as u32;
            let at = *self.index.entry(key).or_insert(new);
            match self.voxels.get_mut(at as usize) {
                Some(voxel) => {
                    voxel.sum += point.coords;
                    voxel.count += 1;
                }
                None => self.voxels.push(Voxel { key, sum: point.coords, count: 1 }),
            }
        }
        self.voxels.sort_unstable_by_key(|voxel| voxel.key);
        means.extend(self.voxels.iter().map(|voxel| Point::from(voxel.sum / f64::from(voxel.count))));
    }
}
