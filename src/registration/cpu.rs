//! The CPU backend: the reference that every other backend must reproduce.

use super::acceptance::{self, Examiner};
use super::bounded::Bounded;
use super::cliques::{self, Extent, Slots, Triple, MAX_PER_PIVOT};
use super::fog::Graph;
use super::hypotheses::{self, Hypothesis, Scoring, UNIT};
use super::lanes::{Deadline, Lanes, OverBudget};
use super::layout::Layout;
use super::pivots::{self, Lane, Pivot, View};
use super::refine::{self, Kind, Refiner, CUT};
use super::registrar::{Backend, BackendError};
use super::result::{Reason, Registration, RunnerUp, StageTimes, Truncation};
use super::Problem;
use crate::geometry::{Pose, Vector};
use crate::params::{Params, RegistrationParams, Search};
use crate::status::Status;
use nalgebra::Matrix6;
use std::time::Instant;

/// Best hypotheses in different places that are refined.
const CANDIDATES: usize = 8;
/// Points by which two hypotheses are told apart.
const PROBES: usize = 32;
/// Poses within this many thresholds of each other are the same answer.
const ELSEWHERE: f64 = 2.0;
/// The runner-up is searched from this share of the pivots.
const RUNNER_UP_SHARE: usize = 4;

/// What one search leaves behind, best first where ordered.
#[derive(Default)]
struct Found {
    order: Vec<u32>,
    pivots: Vec<Pivot>,
    slots: Slots,
    triples: Vec<Triple>,
    hypotheses: Vec<Hypothesis>,
    ranking: Vec<u32>,
    usable: usize,
}

impl Found {
    /// Room for all that can be found, so that no frame needs more than the first.
    fn reserve(&mut self, n: usize, pivots: usize, per_pivot: usize) {
        let triples = pivots * per_pivot;
        self.order.clear();
        self.order.reserve(n);
        self.triples.clear();
        self.triples.reserve(triples);
        self.hypotheses.clear();
        self.hypotheses.reserve(triples);
        self.ranking.clear();
        self.ranking.reserve(triples);
    }
}

/// Registers on the CPU. All memory is made at start for the largest problem.
pub struct Cpu {
    lanes: Lanes<Lane>,
    capacity: usize,
    layout: Layout,
    fog: Graph,
    /// Made when the bounded search is first asked for.
    bounded: Option<Bounded>,
    found: Found,
    gone: Vec<u64>,
    refiner: Refiner,
    examiner: Examiner,
}

impl Cpu {
    /// Threads and memory for `registration.max_correspondences`.
    pub fn new(params: &Params) -> Result<Self, BackendError> {
        let capacity = params.registration.max_correspondences.max(0) as usize;
        let threads = params.backend.threads.max(0) as usize;
        let lanes = Lanes::new(threads, Lane::default).map_err(|e| BackendError::Threads(e.to_string()))?;
        Ok(Self {
            lanes,
            capacity,
            layout: Layout::with_capacity(capacity),
            fog: Graph::with_capacity(capacity),
            bounded: None,
            found: Found::default(),
            gone: Vec::with_capacity(capacity.div_ceil(64)),
            refiner: Refiner::with_capacity(capacity),
            examiner: Examiner::with_capacity(capacity),
        })
    }

    /// Graph, pivots, triples, hypotheses of what the graph holds now.
    fn search(
        &mut self,
        r: &RegistrationParams,
        pivot_count: usize,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<Truncation, OverBudget> {
        let per_pivot = (r.triples_per_pivot.max(1) as usize).min(MAX_PER_PIVOT);
        let found = &mut self.found;
        found.reserve(self.capacity, pivot_count, per_pivot);
        let mut cut = Truncation::default();
        let view = match r.search {
            Search::Exact => View { voters: &self.fog, fog: &self.fog, edges: &self.fog },
            Search::Bounded => {
                let bounded = self.bounded.get_or_insert_with(|| Bounded::with_capacity(self.fog.count()));
                cut = bounded.build(
                    &self.fog,
                    r.bounded_row_capacity.max(1) as usize,
                    &mut self.lanes,
                    deadline,
                )?;
                View { voters: &bounded.voters, fog: &self.fog, edges: &bounded.edges }
            }
        };
        match r.search {
            Search::Exact => {
                pivots::select(view, pivot_count, &mut self.lanes, &mut found.order, deadline)?;
            }
            Search::Bounded => {
                let m = r.bounded_pool_size.max(1) as usize;
                cut.pool = pivots::select_bounded(view, pivot_count, m, &mut self.lanes, deadline)?;
            }
        }
        clock.lap(|s| &mut s.sog);
        pivots::merge(&mut self.lanes, pivot_count, &mut found.pivots);
        clock.lap(|s| &mut s.pivots);
        cliques::search(
            view,
            &found.pivots,
            Extent { pivots: pivot_count, per_pivot, complete: r.search == Search::Exact },
            &mut self.lanes,
            &mut found.slots,
            &mut found.triples,
            deadline,
        )?;
        clock.lap(|s| &mut s.cliques);
        // A triangle flatter than the tolerance of its sides has no direction of its own.
        found.usable = hypotheses::evaluate(
            &self.layout,
            &found.triples,
            scoring(r),
            r.tau,
            &mut self.lanes,
            &mut found.hypotheses,
            deadline,
        )?;
        found.ranking.clear();
        found.ranking.extend(0..found.hypotheses.len() as u32);
        let hypotheses = &found.hypotheses;
        found.ranking.sort_unstable_by_key(|i| (std::cmp::Reverse(hypotheses[*i as usize].rank()), *i));
        clock.lap(|s| &mut s.hypotheses);
        Ok(cut)
    }

    /// Refines the best hypotheses that lie apart; the best of the results first.
    fn refine_best(&mut self, r: &RegistrationParams, most: usize) -> Candidates {
        let mut starts = Candidates::default();
        let ranking = self.found.ranking.iter().map(|i| self.found.hypotheses[*i as usize]);
        for hypothesis in ranking.filter(|h| h.inliers > 0) {
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
    ) -> Result<(), OverBudget> {
        let r = &params.registration;
        let theta = r.inlier_threshold;
        self.layout.load(problem);
        clock.lap(|s| &mut s.upload);
        self.fog.build(&self.layout, r.tau as f32, r.min_length as f32, &mut self.lanes, deadline)?;
        result.edges = self.fog.edges();
        clock.lap(|s| &mut s.fog);
        let pivot_count = r.pivots.max(1) as usize;
        result.truncation = self.search(r, pivot_count, deadline, clock)?;
        result.pivots = self.found.pivots.len();
        result.triples = self.found.triples.len();

        let candidates = self.refine_best(r, CANDIDATES);
        let best = candidates
            .get(0)
            .and_then(|best| self.refiner.refine(&self.layout, &best.pose, theta, Kind::Proper))
            .map(|pose| self.scored(pose, r));
        let Some(best) = best else {
            (result.status, result.reason) = self.no_pose(theta);
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
    ) -> Result<(), OverBudget> {
        let cut2 = (CUT * r.inlier_threshold).powi(2) as f32;
        self.gone.clear();
        self.gone.resize(self.fog.words(), 0);
        for i in hypotheses::within(&self.layout, &best.pose, cut2) {
            self.gone[i / 64] |= 1 << (i % 64);
        }
        self.fog.remove(&self.gone, &mut self.lanes, deadline)?;
        clock.lap(|s| &mut s.refine);
        let pivots = (r.pivots.max(1) as usize).div_ceil(RUNNER_UP_SHARE);
        self.search(r, pivots, deadline, clock)?;
        Ok(())
    }

    /// Why there is no hypothesis: a line, or nothing that agrees.
    fn no_pose(&self, theta: f64) -> (Status, Reason) {
        let n = self.layout.count();
        let source = (0..n).map(|i| self.layout.source_at(i));
        let target = (0..n).map(|i| self.layout.target_at(i));
        let all_flat = !self.found.triples.is_empty() && self.found.usable == 0;
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

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn threads(&self) -> usize {
        self.lanes.pool().current_num_threads()
    }

    fn register(&mut self, problem: &Problem, params: &Params, result: &mut Registration) {
        let start = Instant::now();
        result.reset(self.name(), problem.len());
        let n = problem.len();
        if n < 3 {
            (result.status, result.reason) = (Status::TooFew, Reason::TooFew(n));
            return;
        }
        if n > self.capacity {
            (result.status, result.reason) =
                (Status::BadInput, Reason::TooMany { got: n, max: self.capacity });
            return;
        }
        let deadline = Deadline::after_ms(start, params.registration.time_budget_ms);
        let mut clock = Clock { last: start, stages: StageTimes::default() };
        let pool = self.lanes.pool();
        let done = pool.install(|| self.run(problem, params, deadline, &mut clock, result));
        if done.is_err() || deadline.passed() {
            result.reset(self.name(), n);
            let ms = start.elapsed().as_secs_f64() * 1e3;
            (result.status, result.reason) = (Status::OverBudget, Reason::OverBudget(ms));
        }
        result.stages = clock.stages;
    }
}

fn scoring(r: &RegistrationParams) -> Scoring {
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
struct Clock {
    last: Instant,
    stages: StageTimes,
}

impl Clock {
    /// Adds the time since the last lap to a stage.
    fn lap(&mut self, stage: impl Fn(&mut StageTimes) -> &mut f64) {
        let now = Instant::now();
        *stage(&mut self.stages) += (now - self.last).as_secs_f64() * 1e6;
        self.last = now;
    }
}
