//! Start parameters from which tracks are short.
//!
//! How many steps a track takes depends on how far the start parameters are from those of instances,
//! and on the singular systems in between. So the roots of a start set are moved to other parameters,
//! and the steps from there to instances are counted. Tried are first instances times `i`, a little
//! disturbed: as large as those they lead to, with the same structure, and a quarter turn away from
//! all that are real, among which the singular ones lie close. Half of the trials then vary the best.

use super::monodromy::normal;
use super::solver::Solver;
use super::start::StartSet;
use nalgebra::Complex;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Instant;

type Numbers = Vec<Complex<f64>>;

/// How far parameters are disturbed, relative to the sizes that instances have.
const DISTURBED: [f64; 3] = [0.2, 0.1, 0.05];
/// A first look that costs so much more than that of the best decides.
const WORSE: f64 = 1.05;

/// How start parameters are chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides everything that is random.
    pub seed: u64,
    /// So many are tried.
    pub candidates: usize,
    /// It stops then.
    pub deadline: Option<Instant>,
}

/// What it costs to follow the roots of a start set to instances, repeated tracks included.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Steps of a track, the mean.
    pub steps: f64,
    /// Steps of the longest track of an instance, the mean over instances.
    pub longest: f64,
    /// How many of the roots were found, as a fraction.
    pub found: f64,
}

impl Cost {
    /// Work and latency together; roots that are lost cost most.
    fn total(&self) -> f64 {
        (self.steps * self.longest).sqrt() * (1.0 + 20.0 * (1.0 - self.found))
    }
}

/// Follows the roots of the solver's start set to `targets`; what is not done at `deadline` counts as
/// lost.
pub fn cost(solver: &Solver, targets: &[Numbers], deadline: Option<Instant>) -> Cost {
    let mut sum = Cost::default();
    for solution in solver.solve(targets, deadline) {
        let count = solution.roots.len().max(1) as f64;
        sum.steps += solution.steps() / count;
        sum.longest += f64::from(solution.longest());
        sum.found += solution.distinct(solver.system()).count() as f64 / count;
    }
    let count = targets.len().max(1) as f64;
    Cost { steps: sum.steps / count, longest: sum.longest / count, found: sum.found / count }
}

/// Root mean square of each parameter, at least a hundredth of the largest.
pub fn scales(targets: &[Numbers]) -> Vec<f64> {
    let Some(first) = targets.first() else { return Vec::new() };
    let square = |k: usize| targets.iter().map(|p| p[k].norm_sqr()).sum::<f64>() / targets.len() as f64;
    let sizes: Vec<f64> = (0..first.len()).map(|k| square(k).sqrt()).collect();
    let most = sizes.iter().copied().fold(0.0, f64::max);
    sizes.into_iter().map(|s| s.max(0.01 * most)).collect()
}

/// The start set of the solver moved to the best of the parameters that were tried, judged by the
/// cost for `targets`; with the costs of the given one and of this. Only sets to which all roots come
/// are taken. `progress` is told how many were tried, and the cost of the best.
pub fn tuned(
    solver: &Solver,
    targets: &[Numbers],
    options: &Options,
    mut progress: impl FnMut(usize, Cost),
) -> (StartSet, [Cost; 2]) {
    let mut random = Pcg64Mcg::seed_from_u64(options.seed ^ 0x7a11);
    let scales = scales(targets);
    let look = &targets[..targets.len().div_ceil(4)];
    let cost = |solver: &Solver, targets: &[Numbers]| cost(solver, targets, options.deadline);
    let before = cost(solver, targets);
    let (mut best, mut least, mut first) = (solver.clone(), before, cost(solver, look));
    let mut tried = 0;
    let late = || options.deadline.is_some_and(|end| Instant::now() >= end);
    while tried < options.candidates && !targets.is_empty() && !late() {
        progress(tried, least);
        let varies = 2 * tried >= options.candidates;
        let (centre, turn) = match varies {
            true => (&best.start().parameters, Complex::new(1.0, 0.0)),
            false => (&targets[random.random_range(0..targets.len())], Complex::i()),
        };
        let size = DISTURBED[tried % DISTURBED.len()];
        tried += 1;
        let parameters =
            centre.iter().zip(&scales).map(|(c, s)| c * turn + normal(&mut random) * (size * s)).collect();
        let Some(moved) = moved(&best, parameters, options.deadline) else { continue };
        let glance = cost(&moved, look);
        if glance.total() > WORSE * first.total() {
            continue;
        }
        let whole = cost(&moved, targets);
        if late() {
            break;
        }
        if whole.total() < least.total() {
            (best, least, first) = (moved, whole, glance);
        }
    }
    let mut start = best.start().clone();
    if least != before {
        start.note = format!(
            "best of {} start parameters (seed {}) for {} instances: steps {:.1} (drawn: {:.1}), longest track {:.1} ({:.1})",
            tried + 1, options.seed, targets.len(), least.steps, before.steps, least.longest, before.longest
        );
    }
    (start, [before, least])
}

/// The solver with its roots followed to other parameters, as they would be read from a file; `None`
/// unless all arrive.
fn moved(solver: &Solver, parameters: Numbers, deadline: Option<Instant>) -> Option<Solver> {
    let system = solver.system();
    let solution = solver.solve(std::slice::from_ref(&parameters), deadline).pop()?;
    let roots: Vec<_> = solution.found().map(|r| r.point.to_vec()).collect();
    let start = StartSet { parameters, roots, note: String::new() };
    let start = StartSet::from_bytes(&start.to_bytes(system), system).ok()?;
    (start.roots.len() == solution.roots.len()).then(|| solver.starting_at(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homotopy::problems::find;
    use crate::homotopy::Settings;

    #[test]
    fn tracks_from_the_chosen_start_are_shorter_on_other_instances_too_and_none_is_lost() {
        let problem = find("triangulation_2").expect("a problem");
        let (system, _) = problem.prepared(1).expect("a system");
        // As drawn, whatever the library has.
        let options = super::super::monodromy::Options { seed: 3, ..Default::default() };
        let start = super::super::monodromy::monodromy(&system, &options, |_| {}).expect("a start set");
        let solver = Solver::new(system, start, Settings::default());
        let draw = |seeds: std::ops::Range<u64>| -> Vec<Numbers> {
            seeds.filter_map(|seed| problem.instance(seed)).map(|i| i.parameters).collect()
        };
        let options = Options { seed: 1, candidates: 40, deadline: None };
        let mut most = 0;
        let (start, [before, after]) = tuned(&solver, &draw(0..24), &options, |tried, _| most = tried);
        assert!(after.total() < before.total() && most == 39, "{before:?} {after:?}");
        assert!(
            start.note.starts_with("best of 41 start parameters (seed 1) for 24 instances"),
            "{}",
            start.note
        );
        let others = draw(100..160);
        let (old, new) =
            (cost(&solver, &others, None), cost(&solver.starting_at(start.clone()), &others, None));
        assert!(new.total() < 0.95 * old.total() && new.found >= old.found, "{old:?} {new:?}");
        assert_eq!(tuned(&solver, &draw(0..24), &options, |_, _| {}).0, start, "seeds give the same bits");
        let bytes = start.to_bytes(solver.system());
        assert_eq!(StartSet::from_bytes(&bytes, solver.system()).expect("the same").note, start.note);
    }

    #[test]
    fn without_instances_the_start_set_stays() {
        let (system, start) = find("p3p").expect("a problem").prepared(1).expect("a start set");
        let solver = Solver::new(system, start, Settings::default());
        let options = Options { seed: 1, candidates: 5, deadline: None };
        assert_eq!(&tuned(&solver, &[], &options, |_, _| {}).0, solver.start());
    }
}
