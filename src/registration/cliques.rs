//! Third vertices: the best 3-cliques of each pivot (FlashReg Eqs. 8 and 9, Algorithm 1).
//!
//! For a pivot `(u, v)` every `w > v` joined to both gives the triple `u < v < w` with the sum of
//! the three edge scores; the best T are kept, ties by `w`.

use super::fog::{bits, Graph};
use super::lanes::{Deadline, Lanes, OverBudget, Shared};
use super::pivots::{above, Pivot, View};

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
    /// Inserts below those of equal score: third vertices come in ascending order.
    fn insert(&mut self, triple: Triple, most: usize) {
        let place = self.triples[..self.len].iter().take_while(|t| t.score >= triple.score).count();
        if place >= most {
            return;
        }
        self.len = (self.len + 1).min(most);
        self.triples[place..self.len].rotate_right(1);
        self.triples[place] = triple;
    }

    /// A score that is too low to enter.
    fn floor(&self, most: usize) -> Option<u32> {
        (self.len == most).then(|| self.triples[most - 1].score)
    }
}

/// Pivots that one task searches.
const PIVOTS: usize = 8;

/// Room for the triples of every pivot, with gaps where a pivot has fewer than T.
#[derive(Debug, Default)]
pub struct Slots {
    triples: Vec<Triple>,
    counts: Vec<u32>,
}

/// Searches the triples of all pivots into `triples`, in the order of the pivots.
pub fn search<L: Send>(
    view: View,
    pivots: &[Pivot],
    per_pivot: usize,
    lanes: &mut Lanes<L>,
    slots: &mut Slots,
    triples: &mut Vec<Triple>,
    deadline: Deadline,
) -> Result<(), OverBudget> {
    let most = per_pivot.clamp(1, MAX_PER_PIVOT);
    slots.triples.clear();
    slots.triples.resize(pivots.len() * most, Triple::default());
    slots.counts.clear();
    slots.counts.resize(pivots.len(), 0);
    {
        let (found, counts) = (Shared::new(&mut slots.triples), Shared::new(&mut slots.counts));
        lanes.run(pivots.len().div_ceil(PIVOTS), deadline, |_, task| {
            let first = task * PIVOTS;
            for (k, pivot) in pivots.iter().enumerate().skip(first).take(PIVOTS) {
                let best = best_of(view, *pivot, most);
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

fn best_of(view: View, pivot: Pivot, most: usize) -> Best {
    let (u, v) = (pivot.u(), pivot.v());
    let mut best = Best::default();
    for w in common_above(view.edges, u, v) {
        if let Some(floor) = best.floor(most) {
            let bound = pivot.score() + view.score_bound(u, w) + view.score_bound(v, w);
            if bound <= floor {
                continue;
            }
        }
        let score = pivot.score() + view.score(u, w) + view.score(v, w);
        best.insert(Triple { corners: [u as u32, v as u32, w as u32], score }, most);
    }
    best
}

/// Vertices above `v` joined to both.
fn common_above(edges: &Graph, u: usize, v: usize) -> impl Iterator<Item = usize> + '_ {
    let first = v / 64;
    let (a, b) = (&edges.row(u)[first..], &edges.row(v)[first..]);
    let words = a.iter().zip(b).enumerate().map(move |(k, (a, b))| match k {
        0 => a & b & above(v),
        _ => a & b,
    });
    bits(words).map(move |w| first * 64 + w)
}
