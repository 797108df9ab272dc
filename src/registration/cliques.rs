//! Third vertices: the best 3-cliques of each pivot (FlashReg Eqs. 8 and 9, Algorithm 1).
//!
//! For a pivot `(u, v)` every `w > v` joined to both gives the triple `u < v < w` with the sum of
//! the three edge scores; the best T are kept, ties by `w`.

use super::lanes::{Deadline, Lanes, OverBudget, Shared};
use super::pivots::{Pivot, View};

/// Most triples kept per pivot.
pub const MAX_PER_PIVOT: usize = 16;

/// Three mutually compatible correspondences, in ascending order, and their score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Triple {
    /// Indices `u < v < w`.
    pub corners: [u32; 3],
    /// Sum of the scores of the three edges.
    pub score: u32,
}

/// The best triples of one pivot, best first.
#[derive(Debug, Clone, Copy, Default)]
struct Best {
    triples: [Triple; MAX_PER_PIVOT],
    len: usize,
}

impl Best {
    /// Inserts a triple in order: higher scores first, then lower third vertices.
    fn insert(&mut self, triple: Triple, most: usize) {
        let place = self.triples[..self.len].iter().take_while(|t| !t.is_worse_than(&triple)).count();
        if place >= most {
            return;
        }
        self.len = (self.len + 1).min(most);
        self.triples[place..self.len].rotate_right(1);
        self.triples[place] = triple;
    }

    /// A triple could still enter.
    fn admits(&self, triple: &Triple, most: usize) -> bool {
        self.len < most || self.triples[most - 1].is_worse_than(triple)
    }
}

impl Triple {
    /// The other comes first among the triples of a pivot.
    fn is_worse_than(&self, other: &Triple) -> bool {
        (other.score, self.corners[2]) > (self.score, other.corners[2])
    }
}

/// Pivots that one task searches.
const PIVOTS: usize = 8;

/// Room for the triples of every pivot, with gaps where a pivot has fewer than T, and the table of
/// the pivots.
#[derive(Debug, Default)]
pub struct Slots {
    triples: Vec<Triple>,
    counts: Vec<u32>,
    table: Table,
}

/// The pivots by their ends. The pivots are the best edges, so an edge that is not among them has
/// at most the score of the worst.
#[derive(Debug, Default)]
struct Table {
    by_ends: Vec<Pivot>,
    others: u32,
}

impl Table {
    /// `complete`: no edge outside has a higher score than the worst pivot (exact search); the
    /// pivots are then all edges of positive score if there are fewer than `k`.
    fn fill(&mut self, pivots: &[Pivot], k: usize, complete: bool) {
        self.by_ends.clear();
        self.others = match pivots.last() {
            _ if !complete => u32::MAX,
            Some(worst) if pivots.len() >= k => worst.score(),
            _ => 0,
        };
        if complete {
            self.by_ends.extend_from_slice(pivots);
            self.by_ends.sort_unstable_by_key(|p| (p.u(), p.v()));
        }
    }

    /// The pivots from `u` to ends above `v`, ascending.
    fn from(&self, u: usize, v: usize) -> &[Pivot] {
        let start = self.by_ends.partition_point(|p| (p.u(), p.v()) <= (u, v));
        let len = self.by_ends[start..].partition_point(|p| p.u() == u);
        &self.by_ends[start..start + len]
    }
}

/// Pivots of one vertex, walked along with ascending other ends.
struct Walk<'a>(&'a [Pivot]);

impl Walk<'_> {
    /// The score of the pivot that ends in `w`; `w` must not descend between calls.
    fn score(&mut self, w: usize) -> Option<u32> {
        while let [first, rest @ ..] = self.0 {
            if first.v() >= w {
                return (first.v() == w).then(|| first.score());
            }
            self.0 = rest;
        }
        None
    }
}

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Pivots asked for (K); fewer mean that there are no other positive edges.
    pub pivots: usize,
    /// Triples kept per pivot (T).
    pub per_pivot: usize,
    /// The pivots are the best edges of all (exact search), not of pools.
    pub complete: bool,
}

/// Searches the triples of all pivots into `triples`, in the order of the pivots.
pub fn search<L: Send>(
    view: View,
    pivots: &[Pivot],
    extent: Extent,
    lanes: &mut Lanes<L>,
    slots: &mut Slots,
    triples: &mut Vec<Triple>,
    deadline: Deadline,
) -> Result<(), OverBudget> {
    let most = extent.per_pivot.clamp(1, MAX_PER_PIVOT);
    slots.table.fill(pivots, extent.pivots, extent.complete);
    slots.triples.clear();
    slots.triples.resize(pivots.len() * most, Triple::default());
    slots.counts.clear();
    slots.counts.resize(pivots.len(), 0);
    {
        let table = &slots.table;
        let (found, counts) = (Shared::new(&mut slots.triples), Shared::new(&mut slots.counts));
        lanes.run(pivots.len().div_ceil(PIVOTS), deadline, |_, task| {
            let first = task * PIVOTS;
            for (k, pivot) in pivots.iter().enumerate().skip(first).take(PIVOTS) {
                let best = best_of(view, *pivot, table, most);
                // SAFETY: each pivot belongs to one task.
                unsafe {
                    found.part(k * most, best.len).copy_from_slice(&best.triples[..best.len]);
                    counts.write(k, best.len as u32);
                }
            }
        })?;
    }
    triples.clear();
    for (found, count) in slots.triples.chunks_exact(most).zip(&slots.counts) {
        triples.extend_from_slice(&found[..*count as usize]);
    }
    Ok(())
}

fn best_of(view: View, pivot: Pivot, table: &Table, most: usize) -> Best {
    let (u, v) = (pivot.u(), pivot.v());
    let (of_u, of_v) = (table.from(u, v), table.from(v, v));
    let triple = |w: usize, score: u32| Triple { corners: [u as u32, v as u32, w as u32], score };
    let mut best = Best::default();
    // Triangles of three pivots need no counting, and mostly they are the best.
    let mut walk = Walk(of_v);
    for first in of_u {
        if let Some(second) = walk.score(first.v()) {
            best.insert(triple(first.v(), pivot.score() + first.score() + second), most);
        }
    }
    let (mut walk_u, mut walk_v) = (Walk(of_u), Walk(of_v));
    for w in view.edges.common_above(u, v) {
        let known = (walk_u.score(w), walk_v.score(w));
        if let (Some(_), Some(_)) = known {
            continue;
        }
        let bound = |known: Option<u32>, from: usize| {
            known.unwrap_or_else(|| table.others.min(view.score_bound(from, w)))
        };
        let rest = pivot.score() + bound(known.1, v);
        if !best.admits(&triple(w, rest + bound(known.0, u)), most) {
            continue;
        }
        // Counted one after the other: half of the candidates are out after the first.
        let score = |known: Option<u32>, from: usize| known.unwrap_or_else(|| view.score(from, w));
        let first = score(known.0, u);
        if best.admits(&triple(w, rest + first), most) {
            best.insert(triple(w, pivot.score() + first + score(known.1, v)), most);
        }
    }
    best
}
