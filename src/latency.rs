//! How times are distributed.

use serde::{Deserialize, Serialize};

/// A distribution in four numbers, in the unit of what it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95 of 100 are not above it.
    pub p95: f64,
    /// 99 of 100 are not above it.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Percentiles {
    /// The distribution of some values, zeros if there are none. Sorts them.
    pub fn of(values: &mut [f64]) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { p50: at(0.50), p95: at(0.95), p99: at(0.99), max: at(1.0) }
    }
}

/// Microseconds of the last [`Ring::LENGTH`] frames.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    values: Vec<f64>,
    next: usize,
    sorted: Vec<f64>,
}

impl Ring {
    /// How many frames are remembered.
    pub const LENGTH: usize = 512;

    /// An empty ring that never allocates again.
    pub fn new() -> Self {
        let room = || Vec::with_capacity(Self::LENGTH);
        Self { values: room(), next: 0, sorted: room() }
    }

    /// Remembers one time; forgets the oldest when full.
    pub fn push(&mut self, microseconds: f64) {
        match self.values.get_mut(self.next) {
            Some(slot) => *slot = microseconds,
            None => self.values.push(microseconds),
        }
        self.next = (self.next + 1) % Self::LENGTH;
    }

    /// The distribution; zeros while nothing is known.
    pub fn percentiles(&mut self) -> Percentiles {
        self.sorted.clone_from(&self.values);
        Percentiles::of(&mut self.sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let mut ring = Ring::new();
        assert_eq!(ring.percentiles(), Percentiles::default());
        for value in 1..=100 {
            ring.push(f64::from(value));
        }
        let expected = Percentiles { p50: 50.0, p95: 95.0, p99: 99.0, max: 100.0 };
        assert_eq!(ring.clone().percentiles(), expected);
    }

    #[test]
    fn old_times_are_forgotten() {
        let mut ring = Ring::new();
        for _ in 0..Ring::LENGTH {
            ring.push(1.0);
        }
        for _ in 0..Ring::LENGTH {
            ring.push(5.0);
            // Asking changes nothing.
            ring.percentiles();
        }
        let expected = Percentiles { p50: 5.0, p95: 5.0, p99: 5.0, max: 5.0 };
        assert_eq!(ring.percentiles(), expected);
    }
}
