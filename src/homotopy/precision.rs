//! How exact roots are: histograms of the logarithms of residuals and errors.

use serde::Serialize;

/// How many numbers fell between which powers of ten.
#[derive(Debug, Clone, Serialize)]
pub struct Histogram {
    /// Numbers from `10^(LOWEST + i STEP)` to the next; the first has all that are smaller, zero too,
    /// the last all that are larger.
    pub counts: Vec<usize>,
    /// The largest number.
    pub largest: f64,
}

impl Histogram {
    /// Logarithm where the first bin begins.
    pub const LOWEST: f64 = -20.0;
    /// Width of a bin.
    pub const STEP: f64 = 0.5;
    /// How many bins there are.
    pub const BINS: usize = 32;

    /// Counts a number; what is none counts as infinite.
    pub fn add(&mut self, value: f64) {
        let value = if value.is_nan() { f64::INFINITY } else { value.abs() };
        let place = ((libm::log10(value) - Self::LOWEST) / Self::STEP).clamp(0.0, (Self::BINS - 1) as f64);
        self.counts[place as usize] += 1;
        self.largest = self.largest.max(value);
    }

    /// How many numbers there are.
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The upper bound of the bin in which the median lies, as a logarithm; NaN of nothing.
    pub fn median(&self) -> f64 {
        let mut left = self.total().div_ceil(2);
        for (i, count) in self.counts.iter().enumerate() {
            if left > 0 && *count >= left {
                return Self::LOWEST + (i + 1) as f64 * Self::STEP;
            }
            left -= count;
        }
        f64::NAN
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; Self::BINS], largest: 0.0 }
    }
}

/// Of the roots that were found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Precision {
    /// The largest equation of each, relative to the size of its terms.
    pub residuals: Histogram,
    /// Estimated errors: Newton corrections relative to the root, by the evaluator that checks.
    pub errors: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fall_into_their_bins() {
        let mut histogram = Histogram::default();
        assert!(histogram.median().is_nan());
        [0.0, 1e-30, 2e-20, 0.9e-19, 5e-16, 1.0, f64::NAN].iter().for_each(|v| histogram.add(*v));
        assert_eq!(histogram.total(), 7);
        assert_eq!((histogram.counts[0], histogram.counts[1], histogram.counts[9]), (3, 1, 1));
        assert_eq!(histogram.counts[Histogram::BINS - 1], 2);
        assert_eq!((histogram.median(), histogram.largest), (-19.0, f64::INFINITY));
    }
}
