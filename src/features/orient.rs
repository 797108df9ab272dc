//! Which side of a surface was seen, where no viewpoint is known.
//!
//! The descriptors of a scan, whose normals point to the sensor, match those of a map only if its normals point to
//! where sensors were. Robots go over floors: walls face the side on which there is floor, floors face up, and what
//! has a floor at some storey's height beneath it is a ceiling and faces down.

use super::voxel::key;
use crate::geometry::{Point, Vector};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// Cosine to the vertical of the normal of a floor, at least.
const FLOOR: f64 = 0.9;

/// Cosine to the vertical below which a surface is a wall.
const WALL: f64 = 0.5;

/// Height of a ceiling above the floor, m.
const STOREY: std::ops::RangeInclusive<f64> = 1.8..=6.0;

/// Columns on each side of a wall that are looked at.
const COLUMNS: usize = 6;

/// Turns the normals of a map (z up) to the side that can have been seen.
pub(super) fn towards_free_space(points: &[Point], normals: &mut [Vector], voxel: f64) {
    // Two voxels wide: a column over a floor then holds some of it.
    let edge = 2.0 * voxel;
    let column = |p: &Point| {
        let [x, y, _] = key(p, edge);
        [x, y]
    };
    let mut lowest: FxHashMap<[i64; 2], f64> = FxHashMap::default();
    for (point, normal) in points.iter().zip(&*normals) {
        if normal.z.abs() >= FLOOR {
            let low = lowest.entry(column(point)).or_insert(point.z);
            *low = low.min(point.z);
        }
    }
    points.par_iter().zip(normals).with_min_len(64).for_each(|(point, normal)| {
        let up = if normal.z.abs() < WALL {
            let across = Vector::new(normal.x, normal.y, 0.0).normalize() * edge;
            // The nearer a column, the more it says.
            let floor = |side: f64, step: usize| {
                let there = point + across * (side * step as f64);
                let low = lowest.get(&column(&there)).is_some_and(|low| *low <= point.z + voxel);
                if low {
                    side / step as f64
                } else {
                    0.0
                }
            };
            (1..=COLUMNS).map(|step| floor(1.0, step) + floor(-1.0, step)).sum::<f64>() >= 0.0
        } else {
            let below = lowest.get(&column(point)).map(|low| point.z - low);
            (normal.z > 0.0) != below.is_some_and(|height| STOREY.contains(&height))
        };
        if !up {
            *normal = -*normal;
        }
    });
}
