//! The search on the CPU: the reference that every other backend must reproduce.

use super::bounded::Bounded;
use super::cliques::{self, Extent, Slots, Triple, MAX_PER_PIVOT};
use super::finish::{scoring, Clock, Pipeline, SearchEngine, Stop, Summary};
use super::fog::Graph;
use super::hypotheses::{self, Hypothesis};
use super::lanes::{Deadline, Lanes};
use super::layout::Layout;
use super::pivots::{self, Lane, Pivot, View};
use super::registrar::BackendError;
use super::result::Truncation;
use crate::params::{Params, RegistrationParams, Search};
use std::sync::Arc;

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

/// Searches on the CPU.
pub(super) struct CpuSearch {
    lanes: Lanes<Lane>,
    capacity: usize,
    fog: Graph,
    /// Made when the bounded search is first asked for.
    bounded: Option<Bounded>,
    found: Found,
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
            found: Found::default(),
        };
        Ok(Self::new(engine, capacity))
    }
}

impl SearchEngine for CpuSearch {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn pool(&self) -> Option<Arc<rayon::ThreadPool>> {
        Some(self.lanes.pool())
    }

    fn graph(
        &mut self,
        layout: &Layout,
        r: &RegistrationParams,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<(), Stop> {
        self.fog.build(layout, r.tau as f32, r.min_length as f32, &mut self.lanes, deadline)?;
        clock.lap(|s| &mut s.fog);
        Ok(())
    }

    fn remove(&mut self, gone: &[u64], deadline: Deadline) -> Result<(), Stop> {
        Ok(self.fog.remove(gone, &mut self.lanes, deadline)?)
    }

    fn search(
        &mut self,
        layout: &Layout,
        r: &RegistrationParams,
        pivot_count: usize,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<Summary, Stop> {
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

    fn ranked(&self) -> impl Iterator<Item = Hypothesis> {
        let found = &self.found;
        let best = found.ranking.iter().filter_map(|i| found.hypotheses.get(*i as usize));
        best.filter(|h| h.inliers > 0).copied()
    }
}
