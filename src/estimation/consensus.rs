//! The robust loop: samples, hypotheses, local optimisation, until a better pose is not to be expected.
//!
//! Local optimisation after Chum, Matas, Kittler, "Locally Optimized RANSAC", DAGM 2003: the best hypotheses of a
//! round are refined over all rows.

use super::model::{Delta, Model, Scored, Search};
use super::refine::{Effort, Refined, Refiner};
use super::result::StageTimes;
use super::sampler::Sampler;
use crate::params::{CameraParams, Sampling};
use crate::registration::lanes::{Deadline, Stop};
use std::time::Instant;

/// Most samples of a round.
const LARGEST_ROUND: u64 = 4096;
/// Hypotheses of a round that are looked at, and most of them that are refined.
const KEEP: usize = 8;
const LOCAL: usize = 3;
/// Refined poses that are remembered.
const CANDIDATES: usize = 6;
/// A hypothesis with a smaller share of the best score so far is not refined.
const WORTH: f64 = 0.5;
/// Poses that differ by less than so many thresholds at the inliers (root mean square) are the same.
pub(crate) const SAME: f64 = 2.0;
/// With PROSAC: the prefix that the stopping test looks at has at least so many rows per row of a sample, so
/// that its inliers are not chance.
const PREFIX: usize = 10;

/// What a search costs and says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Effortful {
    /// Samples drawn.
    pub samples: u64,
    /// Those that were not degenerate.
    pub solved: u64,
    /// Hypotheses scored.
    pub hypotheses: u64,
    /// Probability that a better pose was missed, at most.
    pub missed: f64,
}

/// When a search ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// Probability to miss what is sought, at most.
    pub missed: f64,
    /// Most samples.
    pub samples: u64,
    /// Inliers of what is sought among the rows; `None`: as many as the best pose so far has,
    pub inliers: Option<usize>,
    /// but at least so many.
    pub least: usize,
}

/// Measures stages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    last: Instant,
    /// The times so far.
    pub stages: StageTimes,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        let now = Instant::now();
        Self { start: now, last: now, stages: StageTimes::default() }
    }

    /// When it was started.
    pub fn since(&self) -> Instant {
        self.start
    }

    /// Adds the time since the last lap to a stage.
    pub fn lap(&mut self, stage: impl Fn(&mut StageTimes) -> &mut f64) {
        let now = Instant::now();
        *stage(&mut self.stages) += (now - self.last).as_secs_f64() * 1e6;
        self.last = now;
    }
}

/// The loop; the buffers are reused.
pub(crate) struct Consensus<H> {
    sampler: Sampler,
    samples: Vec<u32>,
    best: Vec<Scored<H>>,
    /// Refined poses that lie apart, best first.
    pub candidates: Vec<Refined<H>>,
    /// Refines.
    pub refiner: Refiner,
}

impl<H: Copy + Send + Sync> Consensus<H> {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self {
            sampler: Sampler::default(),
            samples: Vec::new(),
            best: Vec::with_capacity(KEEP),
            candidates: Vec::with_capacity(CANDIDATES),
            refiner: Refiner::with_capacity(n),
        }
    }

    /// Searches with samples of some rows for poses of all rows; `candidates` is what was found.
    #[allow(clippy::too_many_arguments)]
    pub fn explore<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        search: &mut impl Search<M>,
        rows: impl Iterator<Item = u32>,
        goal: Goal,
        params: &CameraParams,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<Effortful, Stop> {
        let prosac = params.sampling == Sampling::Prosac;
        self.sampler.load(model, params.seed.unsigned_abs(), rows, prosac, goal.samples);
        self.candidates.clear();
        let mut done = Effortful { missed: 1.0, ..Effortful::default() };
        let mut top = 0;
        let mut wanted = M::ROUND;
        while self.sampler.drawn() < goal.samples {
            if deadline.passed() {
                return Err(Stop::OverBudget);
            }
            self.samples.clear();
            let round = wanted.clamp(M::ROUND, LARGEST_ROUND) as usize * M::SAMPLE;
            while self.samples.len() < round && self.sampler.drawn() < goal.samples {
                let start = self.samples.len();
                if self.sampler.draw(model, &mut self.samples) && model.is_degenerate(&self.samples[start..])
                {
                    self.samples.truncate(start);
                }
            }
            clock.lap(|s| &mut s.sample);
            done.solved += (self.samples.len() / M::SAMPLE) as u64;
            done.hypotheses += search.search(model, &self.samples, KEEP, &mut self.best, deadline)?;
            clock.lap(|s| &mut s.search);
            self.optimise(model, &mut top);
            clock.lap(|s| &mut s.optimise);

            done.samples = self.sampler.drawn();
            let (need, missed) = self.outlook(model, goal, done.solved);
            done.missed = missed;
            if missed <= goal.missed {
                break;
            }
            // No more than what the test still asks for.
            wanted = done.samples.min((need as u64).saturating_sub(done.samples));
        }
        Ok(done)
    }

    /// Refines the best hypotheses of a round that are elsewhere than what is refined already.
    fn optimise<M: Model<Hypothesis = H>>(&mut self, model: &M, top: &mut u32) {
        *top = self.best.first().map_or(*top, |best| best.score.max(*top));
        let mut refined = 0;
        for scored in &self.best {
            if refined == LOCAL || f64::from(scored.score) < WORTH * f64::from(*top) {
                break;
            }
            let known = |other: &Refined<H>| apart(model, other, &scored.hypothesis) < SAME;
            if self.candidates.iter().any(known) {
                continue;
            }
            refined += 1;
            if let Some(found) = self.refiner.refine(model, &scored.hypothesis, Effort::Local) {
                add(model, &mut self.candidates, found);
            }
        }
    }

    /// Samples that are needed in all, and the probability that what is sought was missed so far.
    fn outlook<M: Model<Hypothesis = H>>(&self, model: &M, goal: Goal, solved: u64) -> (f64, f64) {
        let n = self.sampler.order().len();
        let after = |inliers: usize, rows: usize, samples: u64| {
            let good = all_inliers(inliers, rows, M::SAMPLE);
            // ln(1 - good), whose digits a small `good` would take.
            let each = libm::log1p(-good.min(1.0 - 1e-12));
            (libm::log(goal.missed) / each, libm::exp(each * samples as f64))
        };
        let best = self.candidates.first();
        let inliers = best.map_or(0, |best| best.inliers).max(goal.least);
        let whole = after(goal.inliers.unwrap_or(inliers), n, solved);
        let Some(best) = best.filter(|_| goal.inliers.is_none() && self.sampler.is_growing()) else {
            return whole;
        };
        // PROSAC: the best prefix counts. Of the samples drawn within it as many were degenerate as of all.
        let share = solved as f64 / self.sampler.drawn().max(1) as f64;
        let mut inliers = 0;
        let mut outlook = whole;
        for (i, row) in self.sampler.order().iter().enumerate() {
            inliers += usize::from(model.residual2(&best.hypothesis, *row as usize) < 1.0);
            if i + 1 >= PREFIX * M::SAMPLE && 2 * inliers >= PREFIX * M::SAMPLE {
                let samples = (self.sampler.within::<M>(i + 1) as f64 * share) as u64;
                let found = after(inliers, i + 1, samples);
                if found.1 < outlook.1 {
                    outlook = found;
                }
            }
        }
        outlook
    }
}

/// Probability that all rows of a sample are inliers.
fn all_inliers(inliers: usize, rows: usize, sample: usize) -> f64 {
    (0..sample).fold(1.0, |p, i| p * inliers.saturating_sub(i) as f64 / rows.saturating_sub(i).max(1) as f64)
}

/// Squared length of a change of the unknowns in the measure of the information: thresholds at the inliers.
pub(crate) fn squared_length<M: Model>(of: &Refined<M::Hypothesis>, delta: &Delta) -> f64 {
    let row = |a: usize| (0..M::UNKNOWNS).map(|b| of.information[a][b] * delta[b]).sum::<f64>();
    (0..M::UNKNOWNS).map(|a| delta[a] * row(a)).sum()
}

/// By how many thresholds (root mean square at the inliers) two poses differ, to first order.
pub(crate) fn apart<M: Model>(model: &M, of: &Refined<M::Hypothesis>, other: &M::Hypothesis) -> f64 {
    let delta = model.difference(&of.hypothesis, other);
    (squared_length::<M>(of, &delta) / of.inliers.max(1) as f64).sqrt()
}

/// Adds a refined pose to those that lie apart, best first.
fn add<M: Model>(model: &M, all: &mut Vec<Refined<M::Hypothesis>>, found: Refined<M::Hypothesis>) {
    if let Some(same) = all.iter_mut().find(|other| apart(model, other, &found.hypothesis) < SAME) {
        if found.support > same.support {
            *same = found;
        }
    } else if all.len() < CANDIDATES {
        all.push(found);
    } else if let Some(last) = all.last_mut().filter(|last| last.support < found.support) {
        *last = found;
    }
    // Stable: among equals the first found stays first.
    all.sort_by(|a, b| b.support.total_cmp(&a.support));
}
