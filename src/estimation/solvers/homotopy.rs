//! Minimal samples of any problem of the library, by following all roots.

use crate::homotopy::problems::{Error, Geometry, Problem};
use crate::homotopy::{Arithmetic, Backend, Settings, Solver};
use rayon::prelude::*;
use std::time::Instant;

/// Solves batches of samples of a problem. Made once at start: on the GPU its kernels are compiled and its memory
/// is made for a batch then, and used again with every call.
pub struct Homotopy {
    problem: Problem,
    solver: Solver,
}

impl Homotopy {
    /// For a problem of the library whose roots say something about a scene; `batch` samples will be solved in one
    /// call.
    ///
    /// # Errors
    /// The problem cannot be used, or the GPU cannot and was asked for.
    pub fn new(problem: Problem, backend: Backend, batch: usize) -> Result<Self, Error> {
        const SEED: u64 = 1;
        let (system, start) = problem.prepared(SEED)?;
        let solver = Solver::new(system, start, Settings::default()).on(backend, Arithmetic::Auto, batch)?;
        if let Some(instance) = problem.instance(SEED).filter(|_| solver.is_on_gpu()) {
            solver.solve(&vec![instance.parameters; batch.max(1)], None);
        }
        Ok(Self { problem, solver })
    }

    /// What all real roots of each sample say about the scene, with all points in front of the cameras that see
    /// them: the index of the sample, by which they are in order, and the geometry. A sample is what was measured, in
    /// the order in which the instances of the problem have it; one that is too short, is not finite, or does not
    /// determine the parameters says nothing, and neither do tracks that are not done at `deadline`.
    pub fn solve(&self, samples: &[Vec<f64>], deadline: Option<Instant>, found: &mut Vec<(usize, Geometry)>) {
        found.clear();
        let prepared: Vec<_> = samples.par_iter().map(|measured| self.problem.parameters(measured)).collect();
        let (given, targets): (Vec<usize>, Vec<_>) =
            prepared.into_iter().enumerate().filter_map(|(i, target)| target.map(|t| (i, t))).unzip();
        let solutions = self.solver.solve(&targets, deadline);
        let said: Vec<Vec<Geometry>> = solutions
            .par_iter()
            .zip(&given)
            .map(|(solution, i)| {
                let told = |point| self.problem.geometry(self.solver.system(), point, &samples[*i]);
                let all = solution.found().flat_map(|root| told(root.point));
                all.filter(Geometry::is_in_front).collect()
            })
            .collect();
        found.extend(given.iter().zip(said).flat_map(|(i, all)| all.into_iter().map(|one| (*i, one))));
    }

    /// What it solves.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// It follows on the GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.solver.is_on_gpu()
    }

    /// Where and how roots are followed, in words.
    pub fn place(&self) -> String {
        self.solver.place()
    }
}
