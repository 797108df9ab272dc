//! The capacities of the paper (Eqs. 5 and 6): a row keeps at most L voters and L scored edges.

use super::fog::{bits, count_common, Graph};
use super::lanes::{Deadline, Lanes, OverBudget};
use super::result::Truncation;
use std::sync::atomic::{AtomicU64, Ordering};

/// The graphs that the bounded search sees instead of the FOG.
#[derive(Debug)]
pub struct Bounded {
    /// The first L neighbours of each row, which vote.
    pub voters: Graph,
    /// The first L edges `j > i` of each row with a positive score.
    pub edges: Graph,
}

impl Bounded {
    /// Room for `max` correspondences.
    pub fn with_capacity(max: usize) -> Self {
        Self { voters: Graph::with_capacity(max), edges: Graph::with_capacity(max) }
    }

    /// Applies the capacity L, the first by index being kept, and counts what it cuts.
    pub fn build<L: Send>(
        &mut self,
        fog: &Graph,
        capacity: usize,
        lanes: &mut Lanes<L>,
        deadline: Deadline,
    ) -> Result<Truncation, OverBudget> {
        let n = fog.count();
        let cut = Truncation {
            rows: (0..n).filter(|i| fog.degree(*i) as usize > capacity).count() as u64,
            voters: (0..n).map(|i| (fog.degree(i) as usize).saturating_sub(capacity) as u64).sum(),
            ..Truncation::default()
        };
        self.voters.fill(n, lanes, deadline, |i, row| {
            bits(fog.row(i).iter().copied()).take(capacity).for_each(|k| row[k / 64] |= 1 << (k % 64));
        })?;
        let (voters, dropped) = (&self.voters, AtomicU64::new(0));
        self.edges.fill(n, lanes, deadline, |i, row| {
            let mut kept = 0;
            for j in fog.neighbours_above(i) {
                if count_common(voters.row(i), fog.row(j)) == 0 {
                    continue;
                }
                if kept == capacity {
                    dropped.fetch_add(1, Ordering::Relaxed);
                } else {
                    row[j / 64] |= 1 << (j % 64);
                    kept += 1;
                }
            }
        })?;
        Ok(Truncation { edges: dropped.into_inner(), ..cut })
    }
}
