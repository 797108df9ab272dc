//! Whether rows fit better with another calibration of their camera, and how far the pose could be off by one that
//! they cannot tell: focal length, radial distortion, principal point.
//!
//! The calibration is freed and held by a prior, as if it had been measured. The ratio of the evidence of both
//! models (Laplace's approximation: Kass, Raftery, "Bayes factors", 1995) says which one the rows believe.

use super::model::{Delta, Linear, Residuals, MOST_UNKNOWNS};
use super::refine::{inverse, Effort, Refiner};
use super::Reason;
use crate::geometry::{Pose, Vector};
use crate::status::Status;

/// Numbers of a calibration.
pub(super) const NUMBERS: usize = 4;
/// Standard deviations of what a camera that nobody has looked at is off by.
const PRIOR: [f64; NUMBERS] = [0.1, 0.1, 0.03, 0.03];
/// A fault is told if it is so much more likely than none (natural logarithm),
const EVIDENT: f64 = 8.0;
/// and what it explains better is so many standard deviations of that,
const SIGMAS: f64 = 3.0;
/// of which one row counts for no more than so many variances.
const ROW: f64 = 9.0;
/// How many times as likely as right a calibration is taken to be off before the rows are asked.
const PRESUMED: f64 = 4.0;
/// A number of the calibration that is off by its standard deviation is a residual of so many thresholds, small, so that
/// the prior is never cut off.
const PULL: f64 = 0.02;
/// Fits, each with the noise of the one before.
const PASSES: usize = 2;
/// Residuals are not known to be smaller than this share of the threshold.
const FINEST: f64 = 1e-3;
/// Square of the sine of half of a view of 60 degrees.
const BORDER: f64 = 0.25;
/// A step for derivatives.
const SMALL: f64 = 1e-6;

/// What a calibration is off by: the ray `(x, y, z)` of one camera is the ray
/// `(x + a z, y + b z, (scale + radial q) z)` of the other, `q = (x^2 + y^2) / |(x, y, z)|^2`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Off {
    pub scale: f64,
    pub radial: f64,
    /// `a`, `b`: of the principal point, in focal lengths.
    pub shift: [f64; 2],
}

/// Square of the sine of the angle between a ray and the optical axis.
pub(super) fn off_axis2(x: &Vector) -> f64 {
    (x.x * x.x + x.y * x.y) / x.norm_squared()
}

impl Off {
    /// The calibration is right.
    const NOTHING: Self = Self { scale: 1.0, radial: 0.0, shift: [0.0; 2] };

    /// The ray of the other camera, not of length one.
    pub fn apply(&self, x: &Vector) -> Vector {
        let scale = self.scale + self.radial * off_axis2(x);
        Vector::new(x.x + self.shift[0] * x.z, x.y + self.shift[1] * x.z, x.z * scale)
    }

    /// The derivative of the third coordinate by the ray.
    pub fn third(&self, x: &Vector) -> Vector {
        let (q, per) = (off_axis2(x), self.radial * x.z / x.norm_squared());
        let beside = 2.0 * (1.0 - q) * per;
        Vector::new(beside * x.x, beside * x.y, self.scale + self.radial * q - 2.0 * per * x.z * q)
    }

    /// What is zero if the calibration is right.
    fn numbers(&self) -> [f64; NUMBERS] {
        [self.scale - 1.0, self.radial, self.shift[0], self.shift[1]]
    }

    fn of(numbers: [f64; NUMBERS]) -> Self {
        Self { scale: 1.0 + numbers[0], radial: numbers[1], shift: [numbers[2], numbers[3]] }
    }
}

/// Rows whose camera may be another one.
pub(crate) trait Calibrated: Residuals<Hypothesis = Pose> {
    /// See [`Residuals::residual2`].
    fn residual2_off(&self, pose: &Pose, off: &Off, row: usize) -> f64;
    /// See [`Residuals::linear`]; the derivatives by the calibration follow those by the pose.
    fn linear_off(&self, pose: &Pose, off: &Off, row: usize) -> Option<Linear>;
}

/// The same rows with the calibration among the unknowns, and its prior as further rows.
struct Calibrating<'a, M> {
    rows: &'a M,
    /// Standard deviation of a number of a residual.
    unit: f64,
}

impl<M: Calibrated> Residuals for Calibrating<'_, M> {
    type Hypothesis = (Pose, Off);
    const UNKNOWNS: usize = M::UNKNOWNS + NUMBERS;
    const NUMBERS: usize = M::NUMBERS;

    fn rows(&self) -> usize {
        self.rows.rows() + NUMBERS
    }

    fn weight(&self, row: usize) -> f64 {
        if row < self.rows.rows() {
            self.rows.weight(row)
        } else {
            self.unit * self.unit / (PULL * PULL)
        }
    }

    fn residual2(&self, (pose, off): &(Pose, Off), row: usize) -> f64 {
        match row.checked_sub(self.rows.rows()) {
            None => self.rows.residual2_off(pose, off, row),
            Some(k) => {
                let r = PULL * off.numbers()[k] / PRIOR[k];
                r * r
            }
        }
    }

    fn linear(&self, (pose, off): &(Pose, Off), row: usize) -> Option<Linear> {
        let Some(k) = row.checked_sub(self.rows.rows()) else {
            return self.rows.linear_off(pose, off, row);
        };
        let mut j = [[0.0; MOST_UNKNOWNS]; 2];
        j[0][M::UNKNOWNS + k] = PULL / PRIOR[k];
        Some(Linear { r: [PULL * off.numbers()[k] / PRIOR[k], 0.0], j })
    }

    fn step(&self, (pose, off): &(Pose, Off), delta: &Delta) -> (Pose, Off) {
        let mut numbers = off.numbers();
        numbers.iter_mut().zip(&delta[M::UNKNOWNS..]).for_each(|(number, change)| *number += change);
        (self.rows.step(pose, delta), Off::of(numbers))
    }

    fn difference(&self, from: &(Pose, Off), to: &(Pose, Off)) -> Delta {
        let mut delta = self.rows.difference(&from.0, &to.0);
        let (a, b) = (from.1.numbers(), to.1.numbers());
        (0..NUMBERS).for_each(|k| delta[M::UNKNOWNS + k] = b[k] - a[k]);
        delta
    }
}

/// What the rows say of the calibration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doubt {
    /// It is off beyond doubt, and by enough to matter.
    pub fault: Option<Off>,
    /// Probability that it is off.
    pub probability: f64,
    /// If it is off: second moment about the pose that trusts it, of its unknowns.
    pub moment: [Delta; MOST_UNKNOWNS],
}

/// What rows say of the calibration under which a pose was found with this variance of a number of the residual of a
/// match. `material` is what each of its numbers may be off
/// by. `None`: with the calibration free nothing fixes the pose.
pub(crate) fn doubt<M: Calibrated>(
    rows: &M,
    pose: &Pose,
    known: f64,
    material: &[f64; NUMBERS],
    refiner: &mut Refiner,
) -> Option<Doubt> {
    let trusting = (*pose, Off::NOTHING);
    let mean = |square: &dyn Fn(usize) -> f64| {
        let within = (0..rows.rows()).map(square).filter(|r2| *r2 < 1.0);
        let (sum, count) = within.fold((0.0, 0.0), |(sum, count), r2| (sum + r2, count + 1.0));
        sum / f64::max(count, 1.0)
    };
    let before = mean(&|i| rows.residual2(pose, i)).max(f64::MIN_POSITIVE);
    // The noise is smaller if it was the calibration that kept the rows apart, and the prior weighs less then.
    let (mut variance, mut hypothesis) = (known, trusting);
    let mut information = None;
    for _ in 0..PASSES {
        let model = Calibrating { rows, unit: variance.sqrt() };
        let found = refiner.refine(&model, &hypothesis, Effort::Final)?;
        (hypothesis, information) = (found.hypothesis, Some(found.information));
        let after = mean(&|i| rows.residual2_off(&hypothesis.0, &hypothesis.1, i));
        variance = (known * (after / before).min(1.0)).max(FINEST * FINEST);
    }
    let mut covariance = inverse(M::UNKNOWNS + NUMBERS, &information?)?;
    covariance.iter_mut().flatten().for_each(|entry| *entry *= variance);
    let (mut gain, mut square) = (0.0, 0.0);
    for i in 0..rows.rows() {
        let trusted = rows.residual2(pose, i).min(1.0);
        let freed = rows.residual2_off(&hypothesis.0, &hypothesis.1, i).min(1.0);
        let better = ((trusted - freed) / variance).clamp(-ROW, ROW);
        (gain, square) = (gain + better, square + better * better);
    }
    let off = hypothesis.1;
    let own = nalgebra::Matrix4::from_fn(|i, j| covariance[M::UNKNOWNS + i][M::UNKNOWNS + j]);
    let numbers = off.numbers();
    let (mut prior, mut unlikely) = (1.0, 0.0);
    for (number, deviation) in numbers.iter().zip(PRIOR) {
        prior *= deviation * deviation;
        unlikely += number * number / (deviation * deviation);
    }
    // Natural logarithm of the ratio of the evidence for a calibration that is off and for the one that is believed.
    let evidence = 0.5 * (gain - unlikely + libm::log((own.determinant() / prior).clamp(1e-300, 1.0)));
    let matters = numbers.iter().zip(material).any(|(number, least)| number.abs() > *least);
    let is_fault = evidence > EVIDENT && gain > SIGMAS * square.sqrt() && matters;
    Some(Doubt {
        fault: is_fault.then_some(off),
        probability: PRESUMED / (PRESUMED + libm::exp(-evidence.min(EVIDENT))),
        moment: moment(rows, pose, &hypothesis.0, &covariance),
    })
}

/// Second moment about a pose of another one with its covariance, in the unknowns of the first.
fn moment<M: Calibrated>(
    rows: &M,
    pose: &Pose,
    other: &Pose,
    covariance: &[Delta; MOST_UNKNOWNS],
) -> [Delta; MOST_UNKNOWNS] {
    let delta = rows.difference(pose, other);
    // How the unknowns at the other pose change those at the first.
    let mut by = [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS];
    for (k, by) in by.iter_mut().enumerate().take(M::UNKNOWNS) {
        let mut small = [0.0; MOST_UNKNOWNS];
        small[k] = SMALL;
        let moved = rows.difference(pose, &rows.step(other, &small));
        by.iter_mut().zip(moved.iter().zip(&delta)).for_each(|(by, (a, b))| *by = (a - b) / SMALL);
    }
    let mut out = [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS];
    for a in 0..M::UNKNOWNS {
        for b in 0..M::UNKNOWNS {
            let turned =
                |i: usize| (0..M::UNKNOWNS).map(|j| by[i][a] * covariance[i][j] * by[j][b]).sum::<f64>();
            out[a][b] = (0..M::UNKNOWNS).map(turned).sum::<f64>() + delta[a] * delta[b];
        }
    }
    out
}

impl Off {
    /// The status of rows whose calibration is off: another focal length, or another principal point, whichever moves
    /// the border of the view more. `to_truth`: it leads from the rays that are believed to the true ones.
    pub fn verdict(&self, to_truth: bool) -> (Status, Reason) {
        let scale = self.scale + self.radial * BORDER;
        let shift = (self.shift[0] * self.shift[0] + self.shift[1] * self.shift[1]).sqrt();
        let reason = match (scale - 1.0).abs() * BORDER.sqrt() < shift {
            true => Reason::PrincipalPoint(shift),
            // Rays nearer to the axis are those of a longer focal length.
            false => Reason::Intrinsics(if to_truth { scale } else { 1.0 / scale }),
        };
        (Status::BadInput, reason)
    }
}
