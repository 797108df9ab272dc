//! The closed forms on the instances of the library.

use super::{five_point, p3p};
use crate::geometry::{Pose, Vector};
use crate::homotopy::check::Newton;
use crate::homotopy::problems::{Error, Geometry, Problem};
use crate::homotopy::recall::{Miss, Recall, RIGHT, SEEDS_APART};
use std::time::Instant;

/// Unit rays of both views, or unit rays and points.
enum Sample {
    Absolute([Vector; 3], [Vector; 3]),
    Relative([Vector; 5], [Vector; 5]),
}

impl Sample {
    /// Of what an instance measured; `None` if the problem has no closed form.
    fn new(problem: &str, measured: &[f64]) -> Option<Self> {
        let vector = |at: usize| measured.get(at..at + 3).map(Vector::from_column_slice);
        let ray = |at: usize| Some(Vector::new(*measured.get(at)?, *measured.get(at + 1)?, 1.0).normalize());
        match problem {
            "p3p" => Some(Self::Absolute(
                [vector(0)?, vector(3)?, vector(6)?],
                [vector(9)?, vector(12)?, vector(15)?],
            )),
            "p3p_pose" => {
                Some(Self::Absolute([ray(0)?, ray(2)?, ray(4)?], [vector(6)?, vector(9)?, vector(12)?]))
            }
            "five_point" | "five_point_depths" | "five_point_nullspace" => Some(Self::Relative(
                [ray(0)?, ray(4)?, ray(8)?, ray(12)?, ray(16)?],
                [ray(2)?, ray(6)?, ray(10)?, ray(14)?, ray(18)?],
            )),
            _ => None,
        }
    }

    fn solve(&self, out: &mut [Pose; five_point::MOST]) -> usize {
        match self {
            Self::Absolute(bearings, points) => {
                let mut found = [Pose::identity(); p3p::MOST];
                let n = p3p(bearings, points, &mut found);
                out[..n].copy_from_slice(&found[..n]);
                n
            }
            Self::Relative(first, second) => five_point(first, second, out),
        }
    }
}

/// How often the closed form of a problem finds the true pose of the instances that
/// [`recall`](crate::homotopy::recall::recall) draws, and how long it takes, the mean of all, ms. `None` if there is no
/// closed form.
///
/// # Errors
/// The equations, by which the condition of what is missed is told, cannot be used.
pub fn recall_of_closed_form(
    problem: &Problem,
    instances: usize,
    seed: u64,
) -> Result<Option<Recall>, Error> {
    let seeds = (0..instances as u64).map(|i| seed.wrapping_add(SEEDS_APART * i));
    let drawn = seeds.filter_map(|seed| {
        let instance = problem.instance(seed)?;
        Some((seed, Sample::new(&problem.name, &instance.measured)?, instance))
    });
    let drawn: Vec<_> = drawn.collect();
    if drawn.is_empty() {
        return Ok(None);
    }
    let mut poses = [Pose::identity(); five_point::MOST];
    let begin = Instant::now();
    let mut found = 0;
    for (_, sample, _) in &drawn {
        found += std::hint::black_box(sample.solve(&mut poses));
    }
    let ms = begin.elapsed().as_secs_f64() * 1e3 / drawn.len() as f64;
    let newton = Newton::new(&problem.system()?);
    let mut misses = Vec::new();
    for (seed, sample, instance) in &drawn {
        let n = sample.solve(&mut poses);
        let is_right = |pose: &Pose| {
            let told = Geometry { poses: vec![*pose], ..Geometry::default() };
            told.is_close(&instance.truth, RIGHT)
        };
        if !poses.iter().take(n).any(is_right) {
            misses.push(Miss::new(&newton, *seed, instance));
        }
    }
    let n = drawn.len();
    Ok(Some(Recall {
        problem: problem.name.clone(),
        instances: n,
        found,
        poses: n,
        poses_right: n - misses.len(),
        misses,
        place: "in closed form on the CPU".to_owned(),
        ms,
        ..Recall::default()
    }))
}
