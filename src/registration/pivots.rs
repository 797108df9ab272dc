//! SOG scores and the pivots chosen by them (FlashReg Eqs. 4 and 7).
//!
//! The score of an edge is the number of common neighbours of its ends. Pivots are the K edges
//! `u < v` with the highest positive scores, ties by `(u, v)`. Scores are not stored: each is
//! counted where it is needed, and an edge whose degrees show that it cannot be among the K is
//! passed over.

use super::fog::{count_common, prefetch, Graph};
use super::lanes::{Deadline, Lanes, OverBudget};
use std::sync::atomic::{AtomicU64, Ordering};

/// An edge and its score; compares so that the better pivot is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pivot(u64);

impl Pivot {
    /// Edge `u < v` with its score.
    pub fn new(u: usize, v: usize, score: u32) -> Self {
        // Higher scores first, then lower u, then lower v. 16 bits hold any index: at most
        // 32,768 correspondences are accepted.
        Self(u64::from(score) << 32 | (0xffff - u as u64) << 16 | (0xffff - v as u64))
    }

    /// From the number by which pivots compare.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// First end.
    pub fn u(self) -> usize {
        0xffff - (self.0 >> 16 & 0xffff) as usize
    }

    /// Second end, above the first.
    pub fn v(self) -> usize {
        0xffff - (self.0 & 0xffff) as usize
    }

    /// Number of common neighbours.
    pub fn score(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The best `capacity` pivots seen so far, unordered, with at most as many again in waiting.
#[derive(Debug, Default)]
struct Pool {
    kept: Vec<Pivot>,
    capacity: usize,
    /// No pivot at or below this can still be among the best.
    floor: u64,
}

impl Pool {
    /// Empties it.
    fn reset(&mut self, capacity: usize) {
        self.kept.clear();
        self.kept.reserve(2 * capacity);
        self.capacity = capacity;
        self.floor = 0;
    }

    /// Adds a pivot; returns whether the floor rose.
    fn add(&mut self, pivot: Pivot) -> bool {
        self.kept.push(pivot);
        if self.kept.len() < 2 * self.capacity {
            return false;
        }
        self.shrink();
        true
    }

    /// Keeps the best and raises the floor to the worst of them.
    fn shrink(&mut self) {
        if self.kept.len() >= self.capacity {
            let (_, worst, _) = self.kept.select_nth_unstable_by(self.capacity - 1, |a, b| b.cmp(a));
            self.floor = self.floor.max(worst.0);
            self.kept.truncate(self.capacity);
        }
    }
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub struct Lane {
    pool: Pool,
    row: Vec<Pivot>,
}

impl Lane {
    /// Empties the buffers and makes room for `k` pivots and a row of `n`.
    fn reset(&mut self, k: usize, n: usize) {
        self.pool.reset(k);
        self.row.clear();
        self.row.reserve(n);
    }
}

/// The graph as the search sees it. In exact mode all three are the FOG. In bounded mode `voters`
/// holds the neighbours of a row that may vote and `edges` the scored edges that were kept.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Neighbours that vote.
    pub voters: &'a Graph,
    /// Whom they vote for.
    pub fog: &'a Graph,
    /// Edges that exist for the search.
    pub edges: &'a Graph,
}

impl View<'_> {
    /// Score of an edge `i < j`.
    pub fn score(&self, i: usize, j: usize) -> u32 {
        count_common(self.voters.row(i), self.fog.row(j))
    }

    /// No score of `(i, j)` is above this: an end votes neither for itself nor for its own edge.
    pub fn score_bound(&self, i: usize, j: usize) -> u32 {
        let others = self.fog.degree(i).min(self.fog.degree(j)).saturating_sub(1);
        others.min(self.voters.degree(i))
    }
}

/// Rows that one task scores.
const ROWS: usize = 16;

/// Exact selection: afterwards the best `k` are among those of the threads. `order` is scratch.
pub fn select(
    view: View,
    k: usize,
    lanes: &mut Lanes<Lane>,
    order: &mut Vec<u32>,
    deadline: Deadline,
) -> Result<(), OverBudget> {
    let n = view.fog.count();
    lanes.iter_mut().for_each(|lane| lane.reset(k, n));
    // Rows of high degree first: the floor is near its final height after a few of them.
    order.clear();
    order.extend((0..n as u32).filter(|i| view.fog.degree(*i as usize) > 1));
    order.sort_unstable_by_key(|i| (std::cmp::Reverse(view.fog.degree(*i as usize)), *i));
    let floor = AtomicU64::new(0);
    let order = &*order;
    lanes.run(order.len().div_ceil(ROWS), deadline, |lane, task| {
        let Lane { pool, row } = lane;
        for i in &order[task * ROWS..((task + 1) * ROWS).min(order.len())] {
            let i = *i as usize;
            // The bound holds whichever end it is taken from, so each edge is met at its lower end.
            pool.floor = pool.floor.max(floor.load(Ordering::Relaxed));
            if Pivot::new(0, 0, view.fog.degree(i).saturating_sub(1)).0 <= pool.floor {
                continue;
            }
            row.clear();
            let floor_now = pool.floor;
            view.edges.neighbours_above(i).for_each(|j| {
                let bound = Pivot::new(i, j, view.score_bound(i, j));
                if bound.0 > floor_now {
                    row.push(bound);
                }
            });
            for (k, bound) in row.iter().enumerate() {
                // The next row comes into the cache while this one is counted.
                if let Some(next) = row.get(k + 1) {
                    prefetch(view.fog.row(next.v()));
                }
                if bound.0 <= pool.floor {
                    continue;
                }
                let score = view.score(i, bound.v());
                let pivot = Pivot::new(i, bound.v(), score);
                if score > 0 && pivot.0 > pool.floor && pool.add(pivot) {
                    floor.fetch_max(pool.floor, Ordering::Relaxed);
                }
            }
        }
    })
}

/// The best `k` of all threads, best first.
pub fn merge(lanes: &mut Lanes<Lane>, k: usize, pivots: &mut Vec<Pivot>) {
    pivots.clear();
    pivots.reserve(2 * k * lanes.iter_mut().count());
    for lane in lanes.iter_mut() {
        pivots.append(&mut lane.pool.kept);
    }
    pivots.sort_unstable_by(|a, b| b.cmp(a));
    pivots.truncate(k);
}

/// Bounded selection (the paper's): each row offers its best `m` edges, ties by index. Returns
/// how many positive edges were not offered.
pub fn select_bounded(
    view: View,
    k: usize,
    m: usize,
    lanes: &mut Lanes<Lane>,
    deadline: Deadline,
) -> Result<u64, OverBudget> {
    let n = view.fog.count();
    lanes.iter_mut().for_each(|lane| lane.reset(k, n));
    let withheld = AtomicU64::new(0);
    lanes.run(n.div_ceil(ROWS), deadline, |lane, task| {
        let Lane { pool, row } = lane;
        for i in task * ROWS..((task + 1) * ROWS).min(n) {
            row.clear();
            row.extend(view.edges.neighbours_above(i).map(|j| Pivot::new(i, j, view.score(i, j))));
            row.sort_unstable_by(|a, b| b.cmp(a));
            withheld.fetch_add(row.len().saturating_sub(m) as u64, Ordering::Relaxed);
            for pivot in row.iter().take(m) {
                pool.add(*pivot);
            }
        }
    })?;
    Ok(withheld.into_inner())
}
