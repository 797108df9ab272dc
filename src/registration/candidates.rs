//! The best hypotheses in different places, which are worth refining.

use super::hypotheses::{single, Hypothesis};
use super::layout::Probe;

/// Hypotheses refined after the first search, and after that of the rivals.
pub const CANDIDATES: [usize; 2] = [4, 2];

/// A few hypotheses without allocation.
#[derive(Debug, Clone, Copy)]
pub struct Candidates {
    items: [Hypothesis; CANDIDATES[0]],
    len: usize,
}

impl Default for Candidates {
    fn default() -> Self {
        Self { items: [Hypothesis::none(); CANDIDATES[0]], len: 0 }
    }
}

impl Candidates {
    /// The first `most` of `ranked` (best first) whose mean squared distance over the probe is above
    /// `theta2` (m^2) from those before them. Hypotheses with less than half the support of the
    /// best are not refined to beat it.
    pub fn choose(ranked: impl Iterator<Item = Hypothesis>, most: usize, probe: &Probe, theta2: f32) -> Self {
        let mut chosen = Self::default();
        for hypothesis in ranked {
            if chosen.len == most || chosen.first().is_some_and(|best| hypothesis.score * 2 < best.score) {
                break;
            }
            let pose = single(&hypothesis.pose);
            if chosen.iter().all(|other| probe.apart2(&single(&other.pose), &pose) > theta2) {
                chosen.push(hypothesis);
            }
        }
        chosen
    }

    /// Adds one; nothing happens where there is no room.
    pub fn push(&mut self, item: Hypothesis) {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = item;
            self.len += 1;
        }
    }

    /// The first.
    pub fn first(&self) -> Option<Hypothesis> {
        self.iter().next().copied()
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &Hypothesis> {
        self.items.iter().take(self.len)
    }

    /// Best first; equal ones keep their order.
    pub fn sort(&mut self) {
        if let Some(items) = self.items.get_mut(..self.len) {
            items.sort_by_key(|h| std::cmp::Reverse(h.rank()));
        }
    }
}
