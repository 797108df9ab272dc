//! Times of the last frames, and how they are distributed.

/// Microseconds of the last [`Ring::LENGTH`] frames.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    values: Vec<f32>,
    next: usize,
}

/// A distribution in four numbers, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Percentiles {
    /// Median.
    pub p50: f32,
    /// 95 of 100 are not above it.
    pub p95: f32,
    /// 99 of 100 are not above it.
    pub p99: f32,
    /// The largest.
    pub max: f32,
}

impl Ring {
    /// How many frames are remembered.
    pub const LENGTH: usize = 512;

    /// An empty ring that never allocates again.
    pub fn new() -> Self {
        Self { values: Vec::with_capacity(Self::LENGTH), next: 0 }
    }

    /// Remembers one time; forgets the oldest when full.
    pub fn push(&mut self, microseconds: f64) {
        let value = microseconds as f32;
        match self.values.get_mut(self.next) {
            Some(slot) => *slot = value,
            None => self.values.push(value),
        }
        self.next = (self.next + 1) % Self::LENGTH;
    }

    /// The distribution; zeros while nothing is known. Reorders the ring.
    pub fn percentiles(&mut self) -> Percentiles {
        self.values.sort_unstable_by(f32::total_cmp);
        let at = |share: f64| {
            let rank = (share * self.values.len() as f64).ceil() as usize;
            self.values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Percentiles { p50: at(0.50), p95: at(0.95), p99: at(0.99), max: at(1.0) }
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
        ring.push(1e6);
        for _ in 0..Ring::LENGTH {
            ring.push(5.0);
        }
        let expected = Percentiles { p50: 5.0, p95: 5.0, p99: 5.0, max: 5.0 };
        assert_eq!(ring.percentiles(), expected);
    }
}
