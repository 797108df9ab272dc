//! The search on the CPU: the reference that every other backend must reproduce.

use super::bounded::Bounded;
use super::candidates::{Candidates, CANDIDATES};
use super::cliques::{self, Extent, Slots, Triple};
use super::examine::{self, Examiner};
use super::findings::{Found, Rival, Summary};
use super::finish::{self, scoring, Clock, Engine, Pipeline, Task};
use super::fog::Graph;
use super::hypotheses::{self, Hypothesis};
use super::lanes::{Lanes, Stop};
use super::layout::BLOCK;
use super::pivots::{self, Lane, Pivot, View};
use super::refine::{self, Aim, Refiner};
use super::registrar::BackendError;
use super::result::Truncation;
use crate::geometry::Pose;
use crate::gpu::GpuError;
use crate::params::{Params, Search};
use std::sync::Arc;

/// What one search leaves behind, best first where ordered.
#[derive(Default)]
struct Trail {
    order: Vec<u32>,
    pivots: Vec<Pivot>,
    slots: Slots,
    triples: Vec<Triple>,
    hypotheses: Vec<Hypothesis>,
    ranking: Vec<u32>,
    usable: usize,
}

impl Trail {
    /// The hypotheses that have inliers, best first.
    fn ranked(&self) -> impl Iterator<Item = Hypothesis> + '_ {
        let best = self.ranking.iter().filter_map(|i| self.hypotheses.get(*i as usize));
        best.filter(|h| h.inliers > 0).copied()
    }

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

/// Searches on the CPU.
pub(super) struct CpuSearch {
    lanes: Lanes<Lane>,
    capacity: usize,
    fog: Graph,
    /// Made when the bounded search is first asked for.
    bounded: Option<Bounded>,
    trail: Trail,
    /// What the last `find` refined, best first.
    candidates: Candidates,
    /// The hypothesis that the best of them was refined from.
    start: Pose,
    gone: Vec<u64>,
    refiner: Refiner,
    examiner: Examiner,
}

/// Registers on the CPU.
pub(super) type Cpu = Pipeline<CpuSearch>;

impl Cpu {
    /// Threads and memory for `registration.max_correspondences`.
    pub fn start(params: &Params) -> Result<Self, BackendError> {
        let capacity = params.registration.max_correspondences.max(0) as usize;
        let threads = params.backend.threads.max(0) as usize;
        let lanes = Lanes::new(threads, Lane::default).map_err(|e| BackendError::Threads(e.to_string()))?;
        let engine = CpuSearch {
            lanes,
            capacity,
            fog: Graph::with_capacity(capacity),
            bounded: None,
            trail: Trail::default(),
            candidates: Candidates::default(),
            start: Pose::identity(),
            gone: Vec::with_capacity(capacity.div_ceil(BLOCK)),
            refiner: Refiner::with_capacity(capacity),
            examiner: Examiner::with_capacity(capacity),
        };
        Ok(Self::new(engine, capacity))
    }
}

impl Engine for CpuSearch {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn pool(&self) -> Option<Arc<rayon::ThreadPool>> {
        Some(self.lanes.pool())
    }

    fn twin(&self) -> Option<Result<Self, GpuError>> {
        None
    }

    fn begin(&mut self, _: Task) -> Result<(), Stop> {
        Ok(())
    }

    fn find(
        &mut self,
        task: Task,
        mask: &mut [bool],
        clock: &mut Clock,
    ) -> Result<(Summary, Option<Found>), Stop> {
        let Task { layout, r, deadline } = task;
        let theta = r.inlier_threshold;
        self.fog.build(layout, r.tau as f32, r.min_length as f32, &mut self.lanes, deadline)?;
        clock.lap(|s| &mut s.fog);
        let [pivots, _] = finish::pivots(r);
        let summary = self.search(task, pivots, clock)?;
        self.candidates = self.refine_best(task, CANDIDATES[0]);
        self.candidates.sort();
        let best = self.candidates.first();
        let best =
            best.and_then(|best| self.refiner.go_on(layout, &self.start, &best.pose, theta, Aim::Best));
        let Some(pose) = best else {
            return Ok((summary, None));
        };
        let (score, inliers) = hypotheses::score(layout, &pose, scoring(r));
        let best = Hypothesis { pose, score, inliers };
        for i in hypotheses::within(layout, &best.pose, scoring(r).theta2()) {
            mask[i] = true;
        }
        let measured = self.examiner.examine(layout, &best.pose, theta, mask, &mut self.refiner);
        Ok((summary, Some(Found { best, measured })))
    }

    fn rivals(
        &mut self,
        task: Task,
        found: &Found,
        mask: &[bool],
        clock: &mut Clock,
        see: &mut dyn FnMut(Rival),
    ) -> Result<(), Stop> {
        let Task { layout, r, deadline } = task;
        let (pose, theta) = (&found.best.pose, r.inlier_threshold);
        let compare = |other: &Pose| examine::rival(layout, pose, mask, other, theta, scoring(r));
        self.candidates.iter().for_each(|other| see(compare(&other.pose)));
        if layout.is_weighted() {
            // Support is counted, not weighed: where few heavy correspondences have pulled the
            // pose away from many light ones, these speak for another.
            if let Some(other) = self.refiner.refine(layout, pose, theta, Aim::RankUnweighted) {
                see(compare(&other));
            }
        }
        self.gone.clear();
        self.gone.resize(layout.padded() / BLOCK, 0);
        for i in hypotheses::within(layout, pose, refine::cut2(theta)) {
            self.gone[i / BLOCK] |= 1 << (i % BLOCK);
        }
        self.fog.remove(&self.gone, &mut self.lanes, deadline)?;
        clock.lap(|s| &mut s.refine);
        let [_, pivots] = finish::pivots(r);
        self.search(task, pivots, clock)?;
        let mut others = [None; CANDIDATES[1]];
        let refined = self.refine_best(task, CANDIDATES[1]);
        others.iter_mut().zip(refined.iter()).for_each(|(place, other)| *place = Some(compare(&other.pose)));
        others.sort_by_key(|other| std::cmp::Reverse(other.map(|other| other.other.rank())));
        others.into_iter().flatten().for_each(see);
        Ok(())
    }
}

impl CpuSearch {
    /// Refines the best hypotheses that lie apart, each with its support among the correspondences
    /// that are near its start. `start` is that of the best.
    fn refine_best(&mut self, task: Task, most: usize) -> Candidates {
        let (layout, theta, scoring) = (task.layout, task.r.inlier_threshold, scoring(task.r));
        let starts = Candidates::choose(self.trail.ranked(), most, &layout.probe, scoring.theta2());
        let mut refined = Candidates::default();
        for start in starts.iter() {
            if let Some(pose) = self.refiner.refine(layout, &start.pose, theta, Aim::Rank) {
                let near = (&start.pose, refine::reach2(theta));
                let (score, inliers) = hypotheses::score_near(layout, &pose, scoring, near);
                let scored = Hypothesis { pose, score, inliers };
                if refined.iter().all(|other| other.rank() < scored.rank()) {
                    self.start = start.pose;
                }
                refined.push(scored);
            }
        }
        refined
    }

    /// Searches the graph as it is now.
    fn search(&mut self, task: Task, pivot_count: usize, clock: &mut Clock) -> Result<Summary, Stop> {
        let Task { layout, r, deadline } = task;
        let per_pivot = finish::per_pivot(r);
        let found = &mut self.trail;
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
            layout,
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
        Ok(Summary {
            edges: self.fog.edges(),
            pivots: found.pivots.len(),
            triples: found.triples.len(),
            usable: found.usable,
            truncation: cut,
        })
    }
}
