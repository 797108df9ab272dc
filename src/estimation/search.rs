//! Samples solved and hypotheses scored on the CPU: the reference that every other backend must reproduce.

use super::model::{Model, Scored, Search, SLOTS};
use crate::registration::lanes::{Deadline, Lanes, Stop};
use std::sync::Arc;

/// Samples that a thread takes at a time.
const CHUNK: usize = 16;

/// Searches on the CPU.
pub(crate) struct CpuSearch<H> {
    lanes: Lanes<Lane<H>>,
}

/// The buffers of a thread.
struct Lane<H> {
    solutions: Vec<H>,
    best: Vec<Scored<H>>,
    hypotheses: u64,
}

impl<H> Lane<H> {
    fn new() -> Self {
        Self { solutions: Vec::with_capacity(SLOTS as usize), best: Vec::new(), hypotheses: 0 }
    }

    /// Scores a hypothesis and keeps it if it is among the best so far.
    fn consider<M: Model<Hypothesis = H>>(&mut self, model: &M, hypothesis: H, slot: u32, keep: usize) {
        self.hypotheses += 1;
        // One that ties with the worst kept may have the lower slot, so it must be scored to its end.
        let worst = if self.best.len() < keep { 0 } else { self.best.last().map_or(0, |b| b.score) };
        let score = model.score(&hypothesis, worst.saturating_sub(1));
        let scored = Scored { hypothesis, score, slot };
        let place = self.best.partition_point(|other| other.rank() < scored.rank());
        if score > 0 && place < keep {
            self.best.truncate(keep - 1);
            self.best.insert(place, scored);
        }
    }
}

impl<H: Copy + Send + Sync> CpuSearch<H> {
    /// With a lane for each thread of a pool.
    pub fn new(pool: Arc<rayon::ThreadPool>) -> Self {
        Self { lanes: Lanes::on(pool, Lane::new) }
    }

    /// Scores hypotheses that were solved elsewhere, given with their slots; see [`Search::search`].
    pub fn rank<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        solved: &[(u32, H)],
        keep: usize,
        best: &mut Vec<Scored<H>>,
        deadline: Deadline,
    ) -> Result<u64, Stop> {
        self.begin();
        self.lanes.run(solved.len().div_ceil(CHUNK), deadline, |lane, task| {
            for (slot, hypothesis) in solved.iter().skip(task * CHUNK).take(CHUNK) {
                lane.consider(model, *hypothesis, *slot, keep);
            }
        })?;
        Ok(self.merge(keep, best))
    }

    fn begin(&mut self) {
        for lane in self.lanes.iter_mut() {
            lane.best.clear();
            lane.hypotheses = 0;
        }
    }

    /// The best of all lanes; the order of the ranks does not depend on who found what.
    fn merge(&mut self, keep: usize, best: &mut Vec<Scored<H>>) -> u64 {
        best.clear();
        let mut hypotheses = 0;
        for lane in self.lanes.iter_mut() {
            best.extend_from_slice(&lane.best);
            hypotheses += lane.hypotheses;
        }
        best.sort_unstable_by_key(Scored::rank);
        best.truncate(keep);
        hypotheses
    }
}

impl<M: Model> Search<M> for CpuSearch<M::Hypothesis> {
    fn name(&self) -> &'static str {
        "cpu"
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
        self.begin();
        let tasks = samples.len().div_ceil(M::SAMPLE * CHUNK);
        self.lanes.run(tasks, deadline, |lane, task| {
            let chunk = samples.chunks_exact(M::SAMPLE).enumerate().skip(task * CHUNK).take(CHUNK);
            for (k, sample) in chunk {
                let mut solutions = std::mem::take(&mut lane.solutions);
                solutions.clear();
                model.solve(sample, &mut solutions);
                for (root, hypothesis) in solutions.iter().enumerate() {
                    lane.consider(model, *hypothesis, k as u32 * SLOTS + root as u32, keep);
                }
                lane.solutions = solutions;
            }
        })?;
        Ok(self.merge(keep, best))
    }
}
