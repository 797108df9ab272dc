//! Problems with a planted pose: some correspondences follow it, the others follow nothing.
//!
//! Plainer than a drive through a building: any number of correspondences, any share of right
//! ones, no structure that could help or mislead. For benchmarks and tests.

use super::turn;
use crate::geometry::{Point, Rigid, Vector};
use crate::registration::Correspondence;
use nalgebra::Translation3;
use rand::seq::SliceRandom;
use rand::Rng;

/// The size of a room, m.
pub const ROOM: [f64; 3] = [5.0, 4.0, 2.5];
/// The size of a street with its houses, m.
pub const STREET: [f64; 3] = [80.0, 60.0, 8.0];

/// A point within a box at the origin, m.
pub fn in_box(rng: &mut impl Rng, size: [f64; 3]) -> Point {
    Point::from(Vector::from_fn(|k, _| rng.random_range(0.0..=size[k])))
}

/// Any rotation, and a translation of up to `reach` metres a coordinate.
pub fn random_pose(rng: &mut impl Rng, reach: f64) -> Rigid {
    let axis = Vector::from_fn(|_, _| rng.random_range(-1.0..1.0)).normalize();
    let translation = Vector::from_fn(|_, _| rng.random_range(-reach..=reach));
    Rigid::from_parts(Translation3::from(translation), turn(axis.into(), rng.random_range(-3.1..3.1)))
}

/// Uniform in a ball of this radius, m.
pub fn noise(rng: &mut impl Rng, radius: f64) -> Vector {
    loop {
        let v = Vector::from_fn(|_, _| rng.random_range(-1.0..1.0));
        if v.norm_squared() <= 1.0 {
            return v * radius;
        }
    }
}

/// `inliers` of `n` rows follow `pose` up to `radius` m, the targets of the others lie anywhere
/// within the box; rows in random order.
pub fn planted(
    rng: &mut impl Rng,
    n: usize,
    inliers: usize,
    size: [f64; 3],
    radius: f64,
    pose: &Rigid,
) -> Vec<Correspondence> {
    let mut rows: Vec<_> = (0..n)
        .map(|i| {
            let source = in_box(rng, size);
            let target = match i < inliers {
                true => pose * source + noise(rng, radius),
                false => pose * in_box(rng, size),
            };
            Correspondence::new(source, target)
        })
        .collect();
    rows.shuffle(rng);
    rows
}
