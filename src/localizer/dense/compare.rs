//! What two clouds say of each other, of which each may know only a part of what the other does.

use super::align::{match_point, place, Aligner};
use super::index::{cell_of, SurfaceIndex};
use super::verify::{passes, CHUNK, EXPLAINED, ON, PATCH, SAMPLE};
use crate::features::Surface;
use crate::geometry::{Point, Pose, Rigid, Vector};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// How well a cloud lies on another one at a pose; shares of patches, each of which is one observation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Common {
    /// Of the patches that the other cloud could explain, the share on it: near a surface that was seen from the same side.
    pub on: f64,
    /// Share of all patches whose rays went through a surface of the other cloud well before their end.
    pub through: f64,
    /// Share of all patches far off everything that the other cloud knows.
    pub unknown: f64,
}

/// What a point says: lies on the other, its ray goes through it, is far off it.
type Said = [f64; 3];

impl Aligner {
    /// How well a cloud, seen from its origin, lies on another one at a pose that should come from [`Aligner::align`].
    /// Normals of both point to where they were seen from.
    ///
    /// What lies far off the other cloud says nothing: clouds from different positions share a part. But what one saw
    /// the other must not have seen through.
    pub fn compare(&mut self, other: &SurfaceIndex, cloud: &Surface, other_t_cloud: &Rigid) -> Common {
        let pose = Pose::from(other_t_cloud);
        if !pose.is_finite() {
            return Common::default();
        }
        let stride = cloud.points.len().div_ceil(SAMPLE).max(1);
        let sample: Vec<(&Point, &Vector)> =
            cloud.points.iter().zip(&cloud.normals).step_by(stride).collect();
        let said: Vec<Said> = self.pool.install(|| {
            let each = sample.par_iter().with_min_len(CHUNK);
            each.map(|(point, normal)| listen(other, &pose, point, normal)).collect()
        });
        let mut patches: FxHashMap<[i64; 3], (Said, f64)> = FxHashMap::default();
        // Sums of small integers: exact in any order.
        for ((point, _), said) in sample.iter().zip(&said) {
            let (sums, count) = patches.entry(cell_of(point, PATCH * other.voxel())).or_default();
            sums.iter_mut().zip(said).for_each(|(sum, one)| *sum += one);
            *count += 1.0;
        }
        // In a fixed order, so that the sums do not depend on that of the hash map.
        let mut patches: Vec<_> = patches.into_iter().collect();
        patches.sort_unstable_by_key(|(cell, _)| *cell);
        let mut total = [0.0; 3];
        for (_, (sums, count)) in &patches {
            total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum / count);
        }
        let [on, through, unknown] = total.map(|sum| sum / patches.len().max(1) as f64);
        Common { on: if unknown < 1.0 { on / (1.0 - unknown) } else { 0.0 }, through, unknown }
    }
}

fn listen(other: &SurfaceIndex, pose: &Pose, point: &Point, normal: &Vector) -> Said {
    let matched = match_point(other, pose, point, normal, 2.0 * other.voxel());
    let on = matched.is_some_and(|(row, surfel)| {
        row.residual.abs() <= ON * other.voxel() && (pose.rotation * normal).dot(&surfel.normal) >= 0.0
    });
    let through = !on && passes(other, pose, point);
    let far = || other.nearest(&place(pose, point), EXPLAINED * other.voxel()).is_none();
    let unknown = !on && !through && far();
    [on, through, unknown].map(|said| f64::from(u8::from(said)))
}
