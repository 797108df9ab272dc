//! From the search to the result, the same for every backend: refinement of the best hypotheses,
//! what speaks for the pose and against it, and the search for its rivals.

use super::acceptance::{self, Examiner};
use super::hypotheses::{self, Hypothesis, Scoring, UNIT};
use super::lanes::{Deadline, OverBudget};
use super::layout::{Layout, BLOCK};
use super::refine::{self, Kind, Refiner, CUT};
use super::registrar::Backend;
use super::result::{Reason, Registration, RunnerUp, StageTimes, Truncation};
use super::Problem;
use crate::geometry::{Pose, Vector};
use crate::gpu::GpuError;
use crate::params::{Params, RegistrationParams};
use crate::status::Status;
use nalgebra::Matrix6;
use std::sync::Arc;
use std::time::Instant;

/// Best hypotheses in different places that are refined.
const CANDIDATES: usize = 4;
/// Points by which two hypotheses are told apart.
const PROBES: usize = 32;
/// Poses within this many thresholds of each other are the same answer.
const ELSEWHERE: f64 = 2.0;
/// The runner-up is searched from this share of the pivots.
const RUNNER_UP_SHARE: usize = 4;

/// Why a registration stops before its end.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stop {
    /// The time budget was spent.
    OverBudget,
    /// The GPU failed.
    Fault(GpuError),
}

impl From<OverBudget> for Stop {
    fn from(_: OverBudget) -> Self {
        Self::OverBudget
    }
}

impl From<GpuError> for Stop {
    fn from(error: GpuError) -> Self {
        Self::Fault(error)
    }
}

/// What a search found, in numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Summary {
    /// Edges of the graph.
    pub edges: u64,
    /// Pivots searched.
    pub pivots: usize,
    /// Triples found.
    pub triples: usize,
    /// Hypotheses with an inlier.
    pub usable: usize,
    /// What the capacities of the bounded search cut off.
    pub truncation: Truncation,
}

/// The search: from the correspondences to scored hypotheses. The same numbers out of every one.
pub(super) trait SearchEngine: Send {
    /// Its name in results and diagnostics.
    fn name(&self) -> &'static str;
    /// Threads of the CPU in which the whole registration runs; `None`: the caller's.
    fn pool(&self) -> Option<Arc<rayon::ThreadPool>>;
    /// Builds the graph of the correspondences.
    fn graph(
        &mut self,
        layout: &Layout,
        r: &RegistrationParams,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<(), Stop>;
    /// Removes all edges of the correspondences that are set in `gone` (bits).
    fn remove(&mut self, gone: &[u64], deadline: Deadline) -> Result<(), Stop>;
    /// Searches the graph as it is now.
    fn search(
        &mut self,
        layout: &Layout,
        r: &RegistrationParams,
        pivots: usize,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<Summary, Stop>;
    /// The hypotheses of the last search that have inliers, best first.
    fn ranked(&self) -> impl Iterator<Item = Hypothesis>;
}

/// A backend: a search engine and what follows the search. All memory is made at start for the
/// largest problem.
pub(super) struct Pipeline<E> {
    engine: E,
    capacity: usize,
    layout: Layout,
    gone: Vec<u64>,
    refiner: Refiner,
    examiner: Examiner,
}

impl<E: SearchEngine> Pipeline<E> {
    /// Memory for `capacity` correspondences.
    pub fn new(engine: E, capacity: usize) -> Self {
        Self {
            engine,
            capacity,
            layout: Layout::with_capacity(capacity),
            gone: Vec::with_capacity(capacity.div_ceil(BLOCK)),
            refiner: Refiner::with_capacity(capacity),
            examiner: Examiner::with_capacity(capacity),
        }
    }

    /// Refines the best hypotheses that lie apart; the best of the results first.
    fn refine_best(&mut self, r: &RegistrationParams, most: usize) -> Candidates {
        let mut starts = Candidates::default();
        for hypothesis in self.engine.ranked() {
            if starts.len == most {
                break;
            }
            // Poses with less than half the support of the best are not refined to beat it.
            if starts.get(0).is_some_and(|best| hypothesis.score * 2 < best.score) {
                break;
            }
            if starts.iter().all(|other| self.apart(&other.pose, &hypothesis.pose) > r.inlier_threshold) {
                starts.push(hypothesis);
            }
        }
        let mut refined = Candidates::default();
        for start in starts.iter() {
            if let Some(pose) = self.refiner.approach(&self.layout, &start.pose, r.inlier_threshold) {
                refined.push(self.scored(pose, r));
            }
        }
        refined.sort();
        refined
    }

    fn scored(&self, pose: Pose, r: &RegistrationParams) -> Hypothesis {
        let (score, inliers) = hypotheses::score(&self.layout, &pose, scoring(r));
        Hypothesis { pose, score, inliers }
    }

    /// Keeps the strongest rival of `best` among `others`, with its support.
    fn consider(
        &self,
        others: &Candidates,
        best: &Hypothesis,
        theta: f64,
        mask: &[bool],
        strongest: &mut Option<(Hypothesis, f64)>,
    ) {
        for other in others.iter() {
            let rival = acceptance::rivalry(&self.layout, &best.pose, mask, &other.pose, theta);
            let stronger = strongest.is_none_or(|(_, support)| rival.support > support);
            if rival.separation > ELSEWHERE * theta && stronger {
                *strongest = Some((*other, rival.support));
            }
        }
    }

    /// Root mean square distance by which two poses lay some source points apart.
    fn apart(&self, a: &Pose, b: &Pose) -> f64 {
        let n = self.layout.count();
        let probes = PROBES.min(n);
        let sum: f64 = (0..probes)
            .map(|k| self.layout.source_at(k * n / probes))
            .map(|p| (a.apply(&p) - b.apply(&p)).norm_squared())
            .sum();
        (sum / probes.max(1) as f64).sqrt()
    }

    fn run(
        &mut self,
        problem: &Problem,
        params: &Params,
        deadline: Deadline,
        clock: &mut Clock,
        result: &mut Registration,
    ) -> Result<(), Stop> {
        let r = &params.registration;
        let theta = r.inlier_threshold;
        self.layout.load(problem);
        clock.lap(|s| &mut s.upload);
        self.engine.graph(&self.layout, r, deadline, clock)?;
        let pivots = r.pivots.max(1) as usize;
        let found = self.engine.search(&self.layout, r, pivots, deadline, clock)?;
        result.edges = found.edges;
        result.truncation = found.truncation;
        result.pivots = found.pivots;
        result.triples = found.triples;

        let candidates = self.refine_best(r, CANDIDATES);
        let best = candidates
            .get(0)
            .and_then(|best| self.refiner.refine(&self.layout, &best.pose, theta, Kind::Proper))
            .map(|pose| self.scored(pose, r));
        let Some(best) = best else {
            (result.status, result.reason) = self.no_pose(&found, theta);
            clock.lap(|s| &mut s.refine);
            return Ok(());
        };
        let theta2 = scoring(r).threshold * scoring(r).threshold;
        for i in hypotheses::within(&self.layout, &best.pose, theta2) {
            result.inlier_mask[i] = true;
        }
        let mut evidence =
            self.examiner.examine(&self.layout, &best.pose, theta, &result.inlier_mask, &mut self.refiner);
        let uncertainty = refine::uncertainty(&self.layout, &best.pose, theta);
        evidence.weakest = uncertainty.map(|u| u.weakest);
        let mut runner_up = None;
        self.consider(&candidates, &best, theta, &result.inlier_mask, &mut runner_up);
        clock.lap(|s| &mut s.refine);

        // Only a pose that would be trusted is worth the search for what could rival it.
        if acceptance::judge(&evidence, &params.acceptance).0 == Status::Ok {
            if self.layout.is_weighted() {
                // Support is counted, not weighed: where few heavy correspondences have pulled the
                // pose away from many light ones, these speak for another.
                let mut unweighted = Candidates::default();
                if let Some(pose) = self.refiner.approach_unweighted(&self.layout, &best.pose, theta) {
                    unweighted.push(self.scored(pose, r));
                }
                self.consider(&unweighted, &best, theta, &result.inlier_mask, &mut runner_up);
            }
            self.search_rivals(r, &best, deadline, clock)?;
            let others = self.refine_best(r, 2);
            self.consider(&others, &best, theta, &result.inlier_mask, &mut runner_up);
        }

        evidence.runner_up = runner_up.map_or(0.0, |(_, support)| support);
        (result.status, result.reason) = acceptance::judge(&evidence, &params.acceptance);
        result.target_t_source = Some(self.uncentre(&best.pose).to_rigid());
        result.inliers = evidence.inliers;
        result.independent_inliers = evidence.independent;
        result.score = best.score as f64 / UNIT;
        result.log10_false_alarms = evidence.log10_false_alarms;
        result.log10_false_alarms_off_line = evidence.log10_false_alarms_off_line;
        result.covariance = uncertainty.map_or_else(Matrix6::zeros, |u| u.covariance);
        result.spread = evidence.spread;
        result.margin = 1.0 - evidence.runner_up;
        result.runner_up = runner_up.map(|(other, _)| RunnerUp {
            target_t_source: self.uncentre(&other.pose).to_rigid(),
            score: other.score as f64 / UNIT,
            inliers: other.inliers as usize,
        });
        clock.lap(|s| &mut s.refine);
        Ok(())
    }

    /// Searches what the correspondences that do not support `best` would give.
    fn search_rivals(
        &mut self,
        r: &RegistrationParams,
        best: &Hypothesis,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<(), Stop> {
        let cut2 = (CUT * r.inlier_threshold).powi(2) as f32;
        self.gone.clear();
        self.gone.resize(self.layout.padded() / BLOCK, 0);
        for i in hypotheses::within(&self.layout, &best.pose, cut2) {
            self.gone[i / 64] |= 1 << (i % 64);
        }
        self.engine.remove(&self.gone, deadline)?;
        clock.lap(|s| &mut s.refine);
        let pivots = (r.pivots.max(1) as usize).div_ceil(RUNNER_UP_SHARE);
        self.engine.search(&self.layout, r, pivots, deadline, clock)?;
        Ok(())
    }

    /// Why there is no hypothesis: a line, or nothing that agrees.
    fn no_pose(&self, found: &Summary, theta: f64) -> (Status, Reason) {
        let n = self.layout.count();
        let source = (0..n).map(|i| self.layout.source_at(i));
        let target = (0..n).map(|i| self.layout.target_at(i));
        let all_flat = found.triples > 0 && found.usable == 0;
        match all_flat || acceptance::is_line(source, theta) || acceptance::is_line(target, theta) {
            true => (Status::Degenerate, Reason::Collinear),
            false => (Status::LowInliers, Reason::NoTriple),
        }
    }

    /// From the centred frames to the caller's.
    fn uncentre(&self, pose: &Pose) -> Pose {
        let shift: Vector = self.layout.target_origin - pose.rotation * self.layout.source_origin;
        Pose { rotation: pose.rotation, translation: pose.translation + shift }
    }
}

impl<E: SearchEngine> Backend for Pipeline<E> {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn threads(&self) -> usize {
        self.engine.pool().map_or(1, |pool| pool.current_num_threads())
    }

    fn register(
        &mut self,
        problem: &Problem,
        params: &Params,
        result: &mut Registration,
    ) -> Result<(), GpuError> {
        let start = Instant::now();
        result.reset(self.name(), problem.len());
        let n = problem.len();
        if n < 3 {
            (result.status, result.reason) = (Status::TooFew, Reason::TooFew(n));
            return Ok(());
        }
        if n > self.capacity {
            (result.status, result.reason) =
                (Status::BadInput, Reason::TooMany { got: n, max: self.capacity });
            return Ok(());
        }
        let deadline = Deadline::after_ms(start, params.registration.time_budget_ms);
        let mut clock = Clock::start(start);
        let done = match self.engine.pool() {
            Some(pool) => pool.install(|| self.run(problem, params, deadline, &mut clock, result)),
            None => self.run(problem, params, deadline, &mut clock, result),
        };
        if let Err(Stop::Fault(error)) = done {
            return Err(error);
        }
        if done.is_err() || deadline.passed() {
            result.reset(self.name(), n);
            let ms = start.elapsed().as_secs_f64() * 1e3;
            (result.status, result.reason) = (Status::OverBudget, Reason::OverBudget(ms));
        }
        result.stages = clock.stages;
        Ok(())
    }
}

/// How hypotheses are scored.
pub(super) fn scoring(r: &RegistrationParams) -> Scoring {
    Scoring { metric: r.metric, threshold: r.inlier_threshold as f32 }
}

/// A few hypotheses without allocation.
#[derive(Clone, Copy)]
struct Candidates {
    items: [Hypothesis; CANDIDATES],
    len: usize,
}

impl Default for Candidates {
    fn default() -> Self {
        Self { items: [Hypothesis::none(); CANDIDATES], len: 0 }
    }
}

impl Candidates {
    fn push(&mut self, item: Hypothesis) {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = item;
            self.len += 1;
        }
    }

    fn get(&self, i: usize) -> Option<Hypothesis> {
        self.items[..self.len].get(i).copied()
    }

    fn iter(&self) -> impl Iterator<Item = &Hypothesis> {
        self.items[..self.len].iter()
    }

    /// Best first; equal ones keep their order.
    fn sort(&mut self) {
        self.items[..self.len].sort_by_key(|h| std::cmp::Reverse(h.rank()));
    }
}

/// Measures stages.
pub(super) struct Clock {
    last: Instant,
    stages: StageTimes,
}

impl Clock {
    fn start(now: Instant) -> Self {
        Self { last: now, stages: StageTimes::default() }
    }

    /// Adds the time since the last lap to a stage.
    pub fn lap(&mut self, stage: impl Fn(&mut StageTimes) -> &mut f64) {
        let now = Instant::now();
        *stage(&mut self.stages) += (now - self.last).as_secs_f64() * 1e6;
        self.last = now;
    }

    /// Adds times measured elsewhere for what was done since the last lap.
    #[cfg(feature = "cuda")]
    pub fn measured(&mut self, t: StageTimes) {
        let s = &mut self.stages;
        s.upload += t.upload;
        s.fog += t.fog;
        s.sog += t.sog;
        s.pivots += t.pivots;
        s.cliques += t.cliques;
        s.hypotheses += t.hypotheses;
        s.refine += t.refine;
        self.last = Instant::now();
    }
}
