//! How many of the roots that are there are found.

use super::check::CORRECTION;
use super::distinct::Distinct;
use super::operations::Operations;
use super::precision::Precision;
use super::problems::{Error, Problem};
use super::roots::Solution;
use super::solver::{Arithmetic, Backend, Solver};
use super::system::System;
use super::track::Settings;
use crate::status::TrackStatus;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// What was found for a number of instances of a problem.
#[derive(Debug, Clone, Serialize)]
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
    /// Time per instance when each is solved by itself, median, ms.
    pub ms: f64,
    /// Of that, the kernels on the GPU.
    pub kernel_ms: Option<f64>,
    /// All instances of a batch solved in one call.
    pub batch: Option<Batch>,
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
    let system = solver.system();
    let mut recall = Recall {
        problem: problem.name.clone(),
        instances,
        expected: problem.expected * instances,
        found: 0,
        truths: 0,
        true_found: 0,
        poses: 0,
        poses_right: 0,
        wrong: 0,
        silent: 0,
        counts: BTreeMap::new(),
        steps: 0.0,
        longest: 0.0,
        place: solver.place(),
        again: 0,
        operations: solver.compiled().operations(),
        double: 0.0,
        precision: Precision::default(),
        ms: 0.0,
        kernel_ms: None,
        batch: None,
    };
    let (mut times, mut kernel_times) = (Vec::new(), Vec::new());
    // On the GPU, what happens once is not measured, and a single instance is measured more than once.
    let mut repeats = 1;
    if solver.is_on_gpu() {
        let first = problem.instance(seed).map(|i| i.parameters).or_else(|| system.values.clone());
        solver.solve(&[first.unwrap_or_default()], None);
        repeats = if fixed { 10 } else { 1 };
    }
    for i in 0..instances {
        let instance = problem.instance(seed.wrapping_add(SEEDS_APART * i as u64));
        let target = instance.as_ref().map(|i| i.parameters.clone()).or_else(|| system.values.clone());
        let target = target.unwrap_or_default();
        let mut solve = || {
            let begin = Instant::now();
            let solution = solver.solve(std::slice::from_ref(&target), None).remove(0);
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            kernel_times.extend(solver.kernel_ms());
            solution
        };
        let mut solution = solve();
        for _ in 1..repeats {
            solution = solve();
        }
        let distinct = solution.distinct(system);
        for root in solution.found() {
            let error = solver.newton().correction(root.point, &target);
            recall.wrong += usize::from(error.is_nan() || error >= CORRECTION);
            recall.precision.residuals.add(root.residual);
            recall.precision.errors.add(error);
        }
        recall.found += distinct.count();
        recall.silent += solver.start().roots.len() - solution.roots.len();
        for status in TrackStatus::ALL {
            *recall.counts.entry(status.name()).or_default() += solution.count(*status);
        }
        recall.steps += solution.steps();
        for outcome in solution.roots.outcomes() {
            recall.again += usize::from(outcome.is_followed_again());
            let (steps, corrections) = (outcome.steps.saturating_sub(outcome.single), outcome.corrections);
            let Operations { step, correction, .. } = recall.operations;
            recall.double += f64::from(steps) * step as f64 + f64::from(corrections) * correction as f64;
        }
        recall.longest += f64::from(solution.longest());
        let Some(instance) = instance else { continue };
        recall.truths += 1;
        let truth = solver.newton().run(instance.near.clone(), &target);
        recall.true_found += usize::from(truth.is_some_and(|t| distinct.find(&t).is_some()));
        recall.poses += 1;
        let all = solution.found().flat_map(|r| problem.geometry(system, r.point, &instance.measured));
        recall.poses_right += usize::from(all.into_iter().any(|one| one.is_close(&instance.truth, 1e-6)));
    }
    recall.ms = median(&mut times).unwrap_or(0.0);
    recall.kernel_ms = median(&mut kernel_times);
    if batch > 0 {
        let target = |i: usize| {
            let drawn = problem.instance(seed.wrapping_add(i as u64)).map(|i| i.parameters);
            drawn.or_else(|| system.values.clone()).unwrap_or_default()
        };
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
