//! How many of the roots that are there are found.

use super::check::{Newton, CORRECTION};
use super::distinct::Distinct;
use super::operations::Operations;
use super::precision::Precision;
use super::problems::{Error, Instance, Problem};
use super::roots::Solution;
use super::solver::{Arithmetic, Backend, Solver};
use super::system::System;
use super::track::Settings;
use crate::status::TrackStatus;
use nalgebra::Complex;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// What was found for a number of instances of a problem.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Recall {
    /// The problem.
    pub problem: String,
    /// How many instances.
    pub instances: usize,
    /// Roots up to symmetry that all of them have together.
    pub expected: usize,
    /// Distinct roots that were found.
    pub found: usize,
    /// Instances with a known solution.
    pub truths: usize,
    /// Of these, how many were found.
    pub true_found: usize,
    /// Instances whose geometry is known: poses, and what else the problem tells.
    pub poses: usize,
    /// Of these, how many times a root tells the true one to 1e-6 rad and 1e-6 of the scene.
    pub poses_right: usize,
    /// The others.
    pub misses: Vec<Miss>,
    /// Roots with status ok that are none.
    pub wrong: usize,
    /// Tracks without a status.
    pub silent: usize,
    /// How many tracks ended with which status.
    pub counts: BTreeMap<&'static str, usize>,
    /// Steps of a track, the mean.
    pub steps: f64,
    /// Steps of the longest track of an instance, the mean over instances.
    pub longest: f64,
    /// Where and how tracks were followed.
    pub place: String,
    /// Tracks that were doubtful in single precision and were followed again in double precision.
    pub again: usize,
    /// What a step costs.
    pub operations: Operations,
    /// Operations in double precision of a track, the mean: steps, and corrections of the CPU where roots
    /// are polished.
    pub double: f64,
    /// How exact the roots are.
    pub precision: Precision,
    /// Time per instance when each of the first thousand is solved by itself, median, ms.
    pub ms: f64,
    /// Of that, the kernels on the GPU.
    pub kernel_ms: Option<f64>,
    /// All instances of a batch solved in one call.
    pub batch: Option<Batch>,
}

/// An instance whose true geometry no root tells.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Miss {
    /// Its seed.
    pub seed: u64,
    /// The condition of the true root ([`Newton::condition`]); none if Newton's method does not come to it.
    pub condition: Option<f64>,
}

impl Miss {
    /// Of the instance of a seed.
    pub fn new(newton: &Newton, seed: u64, instance: &Instance) -> Self {
        let root = newton.run(instance.near.clone(), &instance.parameters);
        let condition = root.map(|root| newton.condition(&root, &instance.parameters));
        Self { seed, condition: condition.filter(|c| c.is_finite()) }
    }
}

/// Times of a call with many instances, the better of two calls.
#[derive(Debug, Clone, Serialize)]
pub struct Batch {
    /// How many.
    pub instances: usize,
    /// The call, ms.
    pub ms: f64,
    /// Of that, the kernels on the GPU.
    pub kernel_ms: Option<f64>,
    /// Instances per second.
    pub per_second: f64,
}

/// From the seed of one instance to that of the next.
pub const SEEDS_APART: u64 = 1000;

/// So many instances are solved by themselves and measured; the rest in calls with [`TOGETHER`].
const ALONE: usize = 1000;
/// Instances that are solved in one call and checked at the same time.
const TOGETHER: usize = 500;
/// A root is the true one to so much: rad, and relative.
pub const RIGHT: f64 = 1e-6;

/// What there is to say about an instance.
struct Checked {
    found: usize,
    /// Residual and error of roots that are called so.
    roots: Vec<(f64, f64)>,
    /// The true root is there, and what its geometry is missed by, if it is.
    truth: Option<(bool, Option<Miss>)>,
}

fn check(
    problem: &Problem,
    solver: &Solver,
    solution: &Solution,
    target: &[Complex<f64>],
    drawn: Option<&(u64, Instance)>,
) -> Checked {
    let (system, newton) = (solver.system(), solver.newton());
    let distinct = solution.distinct(system);
    let error = |point: &[Complex<f64>]| newton.correction(point, target);
    let roots = solution.found().map(|root| (root.residual, error(root.point))).collect();
    let truth = drawn.map(|(seed, instance)| {
        let root = newton.run(instance.near.clone(), target);
        let mut told = solution.found().flat_map(|r| problem.geometry(system, r.point, &instance.measured));
        let is_right = told.any(|one| one.is_close(&instance.truth, RIGHT));
        let miss = (!is_right).then(|| Miss::new(newton, *seed, instance));
        (root.is_some_and(|root| distinct.find(&root).is_some()), miss)
    });
    Checked { found: distinct.count(), roots, truth }
}

/// Solves so many instances of a problem, drawn from `seed`, and counts; then `batch` of them in one
/// call, unless that is zero.
pub fn recall(
    problem: &Problem,
    instances: usize,
    seed: u64,
    (backend, arithmetic): (Backend, Arithmetic),
    batch: usize,
) -> Result<Recall, Error> {
    let (system, start) = problem.prepared(seed)?;
    let fixed = problem.instance(seed).is_none();
    let instances = if fixed { 1 } else { instances };
    let all = instances.saturating_add(batch);
    let solver = Solver::new(system, start, Settings::default()).on(backend, arithmetic, all)?;
    let values = || solver.system().values.clone().unwrap_or_default();
    let mut recall = Recall {
        problem: problem.name.clone(),
        instances,
        expected: problem.expected * instances,
        place: solver.place(),
        operations: solver.compiled().operations(),
        ..Recall::default()
    };
    let (mut times, mut kernel_times) = (Vec::new(), Vec::new());
    // On the GPU, what happens once is not measured, and a single instance is measured more than once.
    let mut repeats = 1;
    if solver.is_on_gpu() {
        solver.solve(&[problem.instance(seed).map_or_else(values, |i| i.parameters)], None);
        repeats = if fixed { 10 } else { 1 };
    }
    for first in (0..instances).step_by(TOGETHER) {
        let seeds = (first..instances.min(first + TOGETHER)).into_par_iter();
        let seeds = seeds.map(|i| seed.wrapping_add(SEEDS_APART * i as u64));
        let drawn: Vec<Option<(u64, Instance)>> =
            seeds.map(|seed| Some((seed, problem.instance(seed)?))).collect();
        let target = |drawn: &Option<(u64, Instance)>| {
            drawn.as_ref().map_or_else(values, |(_, instance)| instance.parameters.clone())
        };
        let targets: Vec<_> = drawn.iter().map(target).collect();
        let mut alone = |target: &Vec<_>| {
            let mut once = || {
                let begin = Instant::now();
                let solution = solver.solve(std::slice::from_ref(target), None).remove(0);
                times.push(begin.elapsed().as_secs_f64() * 1e3);
                kernel_times.extend(solver.kernel_ms());
                solution
            };
            (1..repeats).for_each(|_| {
                once();
            });
            once()
        };
        let solutions: Vec<Solution> = match first < ALONE {
            true => targets.iter().map(&mut alone).collect(),
            false => solver.solve(&targets, None),
        };
        let all = solutions.par_iter().zip(&targets).zip(&drawn);
        let checked: Vec<Checked> = all
            .map(|((solution, target), drawn)| check(problem, &solver, solution, target, drawn.as_ref()))
            .collect();
        for (solution, checked) in solutions.iter().zip(checked) {
            recall.add(&solver, solution, checked);
        }
    }
    recall.ms = median(&mut times).unwrap_or(0.0);
    recall.kernel_ms = median(&mut kernel_times);
    if batch > 0 {
        let target =
            |i: usize| problem.instance(seed.wrapping_add(i as u64)).map_or_else(values, |i| i.parameters);
        let targets: Vec<_> = (0..batch).map(target).collect();
        for _ in 0..2 {
            let begin = Instant::now();
            solver.solve(&targets, None);
            let ms = begin.elapsed().as_secs_f64() * 1e3;
            let per_second = 1e3 * batch as f64 / ms;
            let new = Batch { instances: batch, ms, kernel_ms: solver.kernel_ms(), per_second };
            recall.batch = recall.batch.filter(|best| best.ms < ms).or(Some(new));
        }
    }
    let tracks = (instances * solver.start().roots.len()).max(1) as f64;
    recall.steps /= tracks;
    recall.double /= tracks;
    recall.longest /= instances.max(1) as f64;
    Ok(recall)
}

impl Recall {
    fn add(&mut self, solver: &Solver, solution: &Solution, checked: Checked) {
        for (residual, error) in checked.roots {
            self.wrong += usize::from(error.is_nan() || error >= CORRECTION);
            self.precision.residuals.add(residual);
            self.precision.errors.add(error);
        }
        self.found += checked.found;
        self.silent += solver.start().roots.len() - solution.roots.len();
        for status in TrackStatus::ALL {
            *self.counts.entry(status.name()).or_default() += solution.count(*status);
        }
        self.steps += solution.steps();
        self.longest += f64::from(solution.longest());
        for outcome in solution.roots.outcomes() {
            self.again += usize::from(outcome.is_followed_again());
            let (steps, corrections) = (outcome.steps.saturating_sub(outcome.single), outcome.corrections);
            let Operations { step, correction, .. } = self.operations;
            self.double += f64::from(steps) * step as f64 + f64::from(corrections) * correction as f64;
        }
        if let Some((is_found, miss)) = checked.truth {
            self.truths += 1;
            self.true_found += usize::from(is_found);
            self.poses += 1;
            self.poses_right += usize::from(miss.is_none());
            self.misses.extend(miss);
        }
    }
}

fn median(times: &mut [f64]) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Both solutions have the same roots up to symmetry; the number they share, and of each alone.
pub fn compare(system: &System, a: &Solution, b: &Solution) -> (usize, usize, usize) {
    let [first, second] = [a, b].map(|solution| solution.distinct(system));
    let shared = |list: &Solution, other: &Distinct| {
        let mut seen = Distinct::new(system);
        list.found().filter(|r| seen.insert(r.point) && other.find(r.point).is_some()).count()
    };
    let both = shared(a, &second);
    (both, first.count() - both, second.count() - both)
}
