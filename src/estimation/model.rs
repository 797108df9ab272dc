//! What the robust loop asks of a problem.

use super::calibration::Doubt;
use super::refine::Refiner;
use super::{Estimation, Reason};
use crate::geometry::Rigid;
use crate::params::AcceptanceParams;
use crate::registration::acceptance::CLUTTER;
use crate::registration::lanes::{Deadline, Stop};
use crate::status::Status;

/// Most unknowns of a problem.
pub(crate) const MOST_UNKNOWNS: usize = 12;
/// Slots that a sample has for its hypotheses.
pub(crate) const SLOTS: u32 = 64;
/// Shares of the squared threshold at which chance is measured: an accurate camera proves more with a tighter
/// one.
pub(crate) const CUTS: [f64; 3] = [1.0, 0.25, 0.0625];

/// A change of the unknowns; those beyond [`Residuals::UNKNOWNS`] are zero.
pub(crate) type Delta = [f64; MOST_UNKNOWNS];

/// The residual of a row, in thresholds, and its derivative by the unknowns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    /// The residual; the second number is zero where a residual has only one.
    pub r: [f64; 2],
    /// Its derivative by a [`Delta`].
    pub j: [Delta; 2],
}

impl Linear {
    /// Squared length of the residual.
    pub fn r2(&self) -> f64 {
        self.r[0] * self.r[0] + self.r[1] * self.r[1]
    }
}

/// What a least-squares refinement needs.
pub(crate) trait Residuals: Sync {
    /// What is sought.
    type Hypothesis: Copy + Send + Sync;
    /// Unknowns, at most [`MOST_UNKNOWNS`].
    const UNKNOWNS: usize;
    /// Numbers of a residual: 1 or 2.
    const NUMBERS: usize;

    /// Rows that are not duplicates of others.
    fn rows(&self) -> usize;
    /// Relative trust of a row: the heaviest has 1.
    fn weight(&self, row: usize) -> f64;
    /// Squared residual; infinite if the row lies behind.
    fn residual2(&self, h: &Self::Hypothesis, row: usize) -> f64;
    /// Residual and derivative; `None` where `residual2` is infinite.
    fn linear(&self, h: &Self::Hypothesis, row: usize) -> Option<Linear>;
    /// The hypothesis changed.
    fn step(&self, h: &Self::Hypothesis, delta: &Delta) -> Self::Hypothesis;
    /// The change that leads from one to the other, to first order at least.
    fn difference(&self, from: &Self::Hypothesis, to: &Self::Hypothesis) -> Delta;
}

/// A problem of the robust loop, loaded.
pub(crate) trait Model: Residuals {
    /// Rows of a minimal sample.
    const SAMPLE: usize;
    /// Most solutions of a minimal sample, at most [`SLOTS`].
    const ROOTS: usize;
    /// Real mismatches go to features that look alike, so they hit by chance more often than rows with partners
    /// drawn from all would: allowed for by this factor.
    const CLUTTER: f64 = CLUTTER;

    /// Samples of the first round; each next one has as many as were drawn, up to a limit.
    const ROUND: u64 = 64;

    /// Of every row of the caller, the row that stands for it: duplicates count once.
    fn places(&self) -> &[u32];
    /// Rows that share this exclude each other in a sample.
    fn group(&self, row: usize) -> u64;
    /// The sample fixes nothing; it is not solved and does not count.
    fn is_degenerate(&self, sample: &[u32]) -> bool;
    /// Hypotheses of a sample, in a fixed order, at most [`SLOTS`]. Those that are not finite or put a row of
    /// the sample behind are left out.
    fn solve(&self, sample: &[u32], out: &mut Vec<Self::Hypothesis>);
    /// Sum over all rows of `floor(65536 * max(0, 1 - |r|^2))` in single precision; anything not above
    /// `more_than` if it cannot be above it.
    fn score(&self, h: &Self::Hypothesis, more_than: u32) -> u32;

    /// How many rows would be inliers by chance, if every row had a partner drawn from all, for each of [`CUTS`]:
    /// hits, and in how many such sets of rows. Best counted beside where partners are expected: there they are
    /// by more than chance, under the right pose.
    fn chance(&self, h: &Self::Hypothesis) -> ([u64; CUTS.len()], u64);
    /// Inliers that are independent evidence.
    fn independent(&self, inliers: &[u32], work: &mut Vec<[i64; 2]>) -> usize;
    /// What the weakest parts of the pose stand on.
    fn footings(&self, h: &Self::Hypothesis, inliers: &[u32], refiner: &mut Refiner) -> [Option<Footing>; 2];
    /// Starts for poses that could explain the inliers as well.
    fn twins(&self, h: &Self::Hypothesis, inliers: &[u32], out: &mut Vec<Self::Hypothesis>);
    /// Writes what was found, in the frames of the caller: pose, and covariance from that of the unknowns, row
    /// by row. Returns the standard deviations of the weakest direction: translation m, rotation rad.
    fn report(&self, h: &Self::Hypothesis, covariance: &[Delta], out: &mut Estimation) -> [f64; 2];
    /// The pose in the frames of the caller.
    fn pose(&self, h: &Self::Hypothesis) -> Rigid;
    /// What the rows say of the calibration of their camera; `variance` is that of a number of the residual of a match,
    /// `others` where poses are that another calibration could make the better ones.
    fn doubt(
        &self,
        h: &Self::Hypothesis,
        others: &[Self::Hypothesis],
        variance: f64,
        refiner: &mut Refiner,
    ) -> Option<Doubt> {
        let _ = (h, others, variance, refiner);
        None
    }
    /// Turns all bearings round, to look for a pose with its points behind the camera; a second time turns them
    /// back. `false`: not made for it.
    fn turn_round(&mut self) -> bool {
        false
    }
    /// Eigenvalues of the scatter of the inliers in the optical frame, largest first; see [`Estimation::spread`].
    fn spread(&self, h: &Self::Hypothesis, inliers: &[u32]) -> [f64; 3];
    /// Largest standard deviations of a pose that is trusted: translation, rotation.
    fn limits(&self, params: &AcceptanceParams) -> [f64; 2] {
        [params.max_translation_std, params.max_rotation_std]
    }
    /// Why a pose whose standard deviations are too large is not fixed.
    fn unconstrained(&self, h: &Self::Hypothesis, inliers: &[u32], weakest: [f64; 2]) -> Reason {
        let _ = (h, inliers);
        Reason::Unconstrained { translation: weakest[0], rotation: weakest[1] }
    }
    /// What no pose at all means after so many samples that were not degenerate.
    fn nothing(&self, solved: u64) -> (Status, Reason);
    /// What two poses mean that explain the same rows equally well.
    fn twofold(&self, share: f64) -> (Status, Reason) {
        (Status::Ambiguous, Reason::RunnerUp(share))
    }
}

/// What the weakest part of a pose stands on: the turn about the line through most points, or the direction of
/// the translation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footing {
    /// Inliers that fix it.
    pub rows: usize,
    /// Rows that suffice to fit it, whatever they are.
    pub fitted: usize,
    /// What it means if these are not more than chance.
    pub lacking: (Status, Reason),
}

/// A hypothesis of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scored<H> {
    /// The hypothesis.
    pub hypothesis: H,
    /// Its score over all rows.
    pub score: u32,
    /// Number of its sample in the round * [`SLOTS`] + number of the solution.
    pub slot: u32,
}

impl<H> Scored<H> {
    /// The smaller the better.
    pub fn rank(&self) -> (std::cmp::Reverse<u32>, u32) {
        (std::cmp::Reverse(self.score), self.slot)
    }
}

/// Solves samples and scores their hypotheses. Every one gives the same bits.
pub(crate) trait Search<M: Model> {
    /// `cpu` or `cuda`.
    fn name(&self) -> &'static str;
    /// The model has new rows.
    fn load(&mut self, model: &M) -> Result<(), Stop>;
    /// Solves samples of [`Model::SAMPLE`] rows each; `best` becomes the `keep` hypotheses of the highest
    /// score, which is above zero, best first, ties by slot. Returns how many hypotheses there were.
    fn search(
        &mut self,
        model: &M,
        samples: &[u32],
        keep: usize,
        best: &mut Vec<Scored<M::Hypothesis>>,
        deadline: Deadline,
    ) -> Result<u64, Stop>;
}
