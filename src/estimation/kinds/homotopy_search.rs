//! Samples solved by homotopy continuation, all of a round in one call, and scored on the CPU.

use crate::estimation::model::{Model, Scored, Search, SLOTS};
use crate::estimation::search::CpuSearch;
use crate::estimation::solvers::Homotopy;
use crate::homotopy::problems::{self, Geometry, Problem};
use crate::homotopy::{Arithmetic, Backend, Settings, Solver};
use crate::registration::lanes::{Deadline, Stop};
use rayon::prelude::*;
use std::sync::Arc;

/// A model whose samples a problem of the library solves.
pub(crate) trait Minimal: Model {
    /// The problem.
    const PROBLEM: &'static str;
    /// What `measured` is relative to.
    type Frame: Send + Sync;

    /// What the problem calls measured, of a sample; `None` if it fixes nothing.
    fn measured(&self, sample: &[u32]) -> Option<(Vec<f64>, Self::Frame)>;
    /// The hypothesis of a solution, if it is one.
    fn hypothesis(
        &self,
        sample: &[u32],
        frame: &Self::Frame,
        geometry: &Geometry,
    ) -> Option<Self::Hypothesis>;
}

/// A problem of the library and its solver, for about so many instances at once.
///
/// # Errors
/// There is no such problem, or the backend that was asked for cannot be had.
pub(crate) fn library(
    name: &'static str,
    backend: Backend,
    instances: usize,
) -> Result<(Problem, Solver), problems::Error> {
    let problem = problems::find(name).ok_or(problems::Error::Unknown(name))?;
    let (system, start) = problem.prepared(0)?;
    let solver = Solver::new(system, start, Settings::default()).on(backend, Arithmetic::Auto, instances)?;
    Ok((problem, solver))
}

/// Searches with a problem of the library.
pub(crate) struct HomotopySearch<M: Minimal> {
    homotopy: Homotopy,
    pool: Arc<rayon::ThreadPool>,
    scores: CpuSearch<M::Hypothesis>,
    solved: Vec<(u32, M::Hypothesis)>,
}

impl<M: Minimal> HomotopySearch<M> {
    /// On the threads of a pool, tracks on `backend`.
    ///
    /// # Errors
    /// There is no such problem, or the backend that was asked for cannot be had.
    pub fn new(pool: Arc<rayon::ThreadPool>, backend: Backend) -> Result<Self, problems::Error> {
        /// Samples of a round, when the sampling is under way.
        const SAMPLES: usize = 1024;
        let problem = problems::find(M::PROBLEM).ok_or(problems::Error::Unknown(M::PROBLEM))?;
        let homotopy = Homotopy::new(problem, backend, SAMPLES)?;
        Ok(Self { homotopy, scores: CpuSearch::new(pool.clone()), pool, solved: Vec::new() })
    }
}

impl<M: Minimal> Search<M> for HomotopySearch<M> {
    /// Where the tracks are followed.
    fn name(&self) -> &'static str {
        if self.homotopy.is_on_gpu() {
            "cuda"
        } else {
            "cpu"
        }
    }

    fn load(&mut self, _: &M) -> Result<(), Stop> {
        Ok(())
    }

    fn search(
        &mut self,
        model: &M,
        samples: &[u32],
        keep: usize,
        best: &mut Vec<Scored<M::Hypothesis>>,
        deadline: Deadline,
    ) -> Result<u64, Stop> {
        let (homotopy, solved) = (&self.homotopy, &mut self.solved);
        self.pool.install(|| {
            let all = samples.par_chunks_exact(M::SAMPLE).enumerate();
            let prepared = all.filter_map(|(k, sample)| {
                let (measured, frame) = model.measured(sample)?;
                Some(((k as u32, sample, frame), measured))
            });
            let (origins, measured): (Vec<_>, Vec<_>) = prepared.unzip();
            let mut found = Vec::new();
            homotopy.solve(&measured, deadline.at(), &mut found);
            solved.clear();
            // Of which sample the last one was, and how many of it there were.
            let (mut last, mut count) = (None, 0);
            for (i, geometry) in &found {
                count = if last == Some(*i) { count } else { 0 };
                last = Some(*i);
                let Some((k, sample, frame)) = origins.get(*i) else { continue };
                if let Some(hypothesis) = model.hypothesis(sample, frame, geometry).filter(|_| count < SLOTS)
                {
                    solved.push((k * SLOTS + count, hypothesis));
                    count += 1;
                }
            }
        });
        self.scores.rank(model, &self.solved, keep, best, deadline)
    }
}
