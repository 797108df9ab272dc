//! What a backend finds and measures: numbers of fixed arithmetic, the same from every backend.
//! What follows from them (probabilities, covariance, verdict) is computed in one place for all.

use super::hypotheses::Hypothesis;
use super::result::Truncation;

/// What a search found, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// Edges of the graph.
    pub edges: u64,
    /// Pivots searched.
    pub pivots: usize,
    /// Triples found.
    pub triples: usize,
    /// Hypotheses with an inlier.
    pub usable: usize,
    /// What the capacities of the bounded search cut off.
    pub truncation: Truncation,
}

/// The best pose, refined, and what was measured under it.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The pose and its support.
    pub best: Hypothesis,
    /// What was measured under it.
    pub measured: Measured,
}

/// What is measured under the best pose.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    /// Correspondences within the threshold.
    pub inliers: usize,
    /// Inliers in different places, in both frames.
    pub independent: usize,
    /// Inliers that are not on the line through most of them.
    pub off_line: usize,
    /// Source points for which chance hits were counted, and targets that they hit besides their
    /// own.
    pub samples: usize,
    /// See `samples`.
    pub chance_hits: u64,
    /// Eigenvalues of the scatter of the inliers in the source frame, largest first, m^2.
    pub spread: [f64; 3],
    /// The best reflection.
    pub mirror: Option<Mirror>,
    /// What fixes the pose.
    pub information: Information,
}

/// The best reflection, compared with the pose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mirror {
    /// Its inliers.
    pub inliers: usize,
    /// By how much it fits better: sum over the correspondences of the gain in the truncated
    /// quadratic score, and the sum of the squares.
    pub gain: f64,
    /// See `gain`.
    pub noise2: f64,
}

impl Mirror {
    /// By how many standard deviations it fits better.
    pub fn sigmas(&self) -> f64 {
        self.gain / self.noise2.sqrt()
    }
}

/// Sums over the correspondences of influence. Points are source points under the pose.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Information {
    /// Weights.
    pub weight: f64,
    /// Weighted points, m.
    pub point: [f64; 3],
    /// Weighted products xx yy zz xy xz yz, m^2.
    pub product: [f64; 6],
    /// Weighted squared residuals, m^2.
    pub error: f64,
    /// How many.
    pub count: f64,
    /// Largest squared distance of any source point from the origin of the centred frame, m^2.
    pub radius2: f64,
}

/// Another pose compared with the one found.
#[derive(Debug, Clone, Copy)]
pub struct Rival {
    /// The pose and its support.
    pub other: Hypothesis,
    /// Mean squared distance by which the two lay the inliers of either apart, m^2.
    pub apart2: f64,
    /// Inliers of the pose alone.
    pub only_pose: usize,
    /// Inliers of the other alone.
    pub only_other: usize,
}

/// A squared distance of one threshold, in the whole numbers that are summed.
const APART_UNIT: f32 = 1024.0;
/// Squared distances are not counted beyond this many of the squared threshold.
const FARTHEST: f32 = 1e6;

/// Sums over the inliers of two poses: whole numbers, so their order is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Squared distances by which the poses lay the inliers of either apart, in units of the squared
    /// threshold / 1024.
    pub apart: u64,
    /// Inliers of either.
    pub of_either: u32,
    /// Inliers of the pose alone.
    pub only_pose: u32,
    /// Inliers of the other alone.
    pub only_other: u32,
}

impl Comparison {
    /// Adds a squared distance, in units of the squared threshold, of an inlier of either.
    pub fn add(&mut self, apart2: f32) {
        // At most 1.024e9: whole numbers of 32 bits hold it.
        self.apart += u64::from((apart2.min(FARTHEST) * APART_UNIT) as u32);
        self.of_either += 1;
    }

    /// What it says of the other pose; `theta`: the threshold, m.
    pub fn rival(&self, other: Hypothesis, theta: f64) -> Rival {
        let mean = self.apart as f64 / f64::from(self.of_either.max(1));
        Rival {
            other,
            apart2: mean / f64::from(APART_UNIT) * (theta * theta),
            only_pose: self.only_pose as usize,
            only_other: self.only_other as usize,
        }
    }
}

impl Rival {
    /// Root mean square distance (m) by which the two lay the inliers of either apart.
    pub fn separation(&self) -> f64 {
        self.apart2.sqrt()
    }

    /// Inliers of the other alone, relative to the inliers of the pose alone, at most 1. What both
    /// explain speaks for neither.
    pub fn support(&self) -> f64 {
        (self.only_other as f64 / self.only_pose.max(1) as f64).min(1.0)
    }
}
