//! Whether rows fit better with another calibration of their camera, and how far the pose could be off by one that
//! they cannot tell: focal length, radial distortion, principal point.
//!
//! The calibration is freed and held by a prior, as if it had been measured. The ratio of the evidence of both
//! models (Laplace's approximation: Kass, Raftery, "Bayes factors", 1995) says which one the rows believe.

use super::model::{Delta, Linear, Residuals, MOST_UNKNOWNS};
use super::refine::{inverse, Effort, Refiner};
use super::relative::{Relative, Row, View};
use super::Reason;
use crate::geometry::{Pose, Vector};
use crate::status::Status;

/// Numbers of a calibration.
pub(crate) const NUMBERS: usize = 4;
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
/// A threshold so many times as wide is the first where another pose may be found.
const WIDE: f64 = 4.0;
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
pub(crate) fn off_axis2(x: &Vector) -> f64 {
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

    /// Squared length in standard deviations of the prior.
    fn unlikely(&self) -> f64 {
        self.numbers().iter().zip(PRIOR).map(|(number, deviation)| (number / deviation).powi(2)).sum()
    }

    fn of(numbers: [f64; NUMBERS]) -> Self {
        Self { scale: 1.0 + numbers[0], radial: numbers[1], shift: [numbers[2], numbers[3]] }
    }

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

/// Rows whose camera may be another one.
pub(crate) trait Calibrated: Residuals<Hypothesis = Pose> {
    /// A calibration that is off by less is no fault: scale, distortion, principal point.
    const MATERIAL: [f64; NUMBERS];
    /// [`Off`] leads from the rays that are believed to the true ones; else back.
    const TO_TRUTH: bool;
    /// The covariance of the pose allows for a calibration that the rows cannot tell.
    const ALLOWS: bool;

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
    /// Residuals are taken as so many times as small.
    wide: f64,
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
            let unit = self.unit / (self.wide * PULL);
            unit * unit
        }
    }

    fn residual2(&self, (pose, off): &(Pose, Off), row: usize) -> f64 {
        match row.checked_sub(self.rows.rows()) {
            None => self.rows.residual2_off(pose, off, row) / (self.wide * self.wide),
            Some(k) => {
                let r = PULL * off.numbers()[k] / PRIOR[k];
                r * r
            }
        }
    }

    fn linear(&self, (pose, off): &(Pose, Off), row: usize) -> Option<Linear> {
        let Some(k) = row.checked_sub(self.rows.rows()) else {
            let Linear { r, j } = self.rows.linear_off(pose, off, row)?;
            return Some(Linear { r: r.map(|v| v / self.wide), j: j.map(|j| j.map(|v| v / self.wide)) });
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
    pub fault: Option<(Status, Reason)>,
    /// Probability that it is off.
    pub probability: f64,
    /// If it is off: second moment about the pose that trusts it, of its unknowns. `None`: the pose is trusted with its
    /// calibration.
    pub moment: Option<[Delta; MOST_UNKNOWNS]>,
}

/// What each row gains by another hypothesis, in variances.
#[derive(Debug, Clone, Copy, Default)]
struct Gain {
    sum: f64,
    square: f64,
}

/// What rows say of the calibration under which a pose was found with this variance of a number of the residual of a
/// match. `others`: where poses are that another calibration could make the better ones.
pub(crate) fn doubt<M: Calibrated>(
    rows: &M,
    pose: &Pose,
    others: &[Pose],
    known: f64,
    refiner: &mut Refiner,
) -> Doubt {
    let nothing = Doubt {
        fault: None,
        probability: 1.0,
        moment: M::ALLOWS.then_some([[f64::INFINITY; MOST_UNKNOWNS]; MOST_UNKNOWNS]),
    };
    let gain = |(freed, off): &(Pose, Off), variance: f64| {
        (0..rows.rows()).fold(Gain::default(), |Gain { sum, square }, i| {
            let trusted = rows.residual2(pose, i).min(1.0);
            let better = (trusted - rows.residual2_off(freed, off, i).min(1.0)) / variance;
            let better = better.clamp(-ROW, ROW);
            Gain { sum: sum + better, square: square + better * better }
        })
    };
    // Where to start: where most is gained. A wide threshold has rows that another calibration moves far.
    let starts = std::iter::once((pose, WIDE)).chain(std::iter::once(pose).chain(others).map(|h| (h, 1.0)));
    let mut best: Option<((Pose, Off), f64)> = None;
    for (start, wide) in starts {
        let model = Calibrating { rows, unit: known.sqrt(), wide };
        let Some(found) = refiner.refine(&model, &(*start, Off::NOTHING), Effort::Local) else { continue };
        let gained = gain(&found.hypothesis, known).sum - found.hypothesis.1.unlikely();
        if best.is_none_or(|(_, most)| gained > most) {
            best = Some((found.hypothesis, gained));
        }
    }
    let Some((mut hypothesis, _)) = best else { return nothing };
    let mean = |square: &dyn Fn(usize) -> f64| {
        let within = (0..rows.rows()).map(square).filter(|r2| *r2 < 1.0);
        let (sum, count) = within.fold((0.0, 0.0), |(sum, count), r2| (sum + r2, count + 1.0));
        sum / f64::max(count, 1.0)
    };
    let before = mean(&|i| rows.residual2(pose, i)).max(f64::MIN_POSITIVE);
    // The noise is smaller if it was the calibration that kept the rows apart, and the prior weighs less then.
    let (mut variance, mut information) = (known, None);
    for _ in 0..PASSES {
        let model = Calibrating { rows, unit: variance.sqrt(), wide: 1.0 };
        let Some(found) = refiner.refine(&model, &hypothesis, Effort::Final) else { return nothing };
        (hypothesis, information) = (found.hypothesis, Some(found.information));
        let after = mean(&|i| rows.residual2_off(&hypothesis.0, &hypothesis.1, i));
        variance = (known * (after / before).min(1.0)).max(FINEST * FINEST);
    }
    let covariance = information.and_then(|information| inverse(M::UNKNOWNS + NUMBERS, &information));
    let Some(mut covariance) = covariance else { return nothing };
    covariance.iter_mut().flatten().for_each(|entry| *entry *= variance);
    let Gain { sum, square } = gain(&hypothesis, variance);
    let off = hypothesis.1;
    let own = nalgebra::Matrix4::from_fn(|i, j| covariance[M::UNKNOWNS + i][M::UNKNOWNS + j]);
    let prior: f64 = PRIOR.iter().map(|deviation| deviation * deviation).product();
    // Natural logarithm of the ratio of the evidence for a calibration that is off and for the one that is believed.
    let evidence = 0.5 * (sum - off.unlikely() + libm::log((own.determinant() / prior).clamp(1e-300, 1.0)));
    let matters = off.numbers().iter().zip(M::MATERIAL).any(|(number, least)| number.abs() > least);
    let is_fault = evidence > EVIDENT && sum > SIGMAS * square.sqrt() && matters;
    Doubt {
        fault: is_fault.then(|| off.verdict(M::TO_TRUTH)),
        probability: PRESUMED / (PRESUMED + libm::exp(-evidence.min(EVIDENT))),
        moment: M::ALLOWS.then(|| moment(rows, pose, &hypothesis.0, &covariance)),
    }
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
    /// A view of the other camera.
    fn view(&self, view: &View) -> View {
        let bearing = self.apply(&view.bearing);
        let length = bearing.norm();
        // The derivative of the factor itself is left out: it changes how rows are weighed, by a little.
        let factor = self.scale + self.radial * off_axis2(&view.bearing);
        let mut tangents = view.tangents;
        for k in 0..2 {
            let t = view.tangents.column(k);
            let moved = Vector::new(t.x + self.shift[0] * t.z, t.y + self.shift[1] * t.z, t.z * factor);
            tangents.set_column(k, &(moved / length));
        }
        View { bearing: bearing / length, tangents, ..*view }
    }

    fn row(&self, row: &Row) -> Row {
        Row { current: self.view(&row.current), reference: self.view(&row.reference), ..*row }
    }
}

impl Calibrated for Relative {
    const MATERIAL: [f64; NUMBERS] = [0.05, 0.08, 0.03, 0.03];
    const TO_TRUTH: bool = true;
    const ALLOWS: bool = true;

    fn residual2_off(&self, pose: &Pose, off: &Off, row: usize) -> f64 {
        self.kept().get(row).map_or(f64::INFINITY, |row| off.row(row).residual2(pose))
    }

    fn linear_off(&self, pose: &Pose, off: &Off, row: usize) -> Option<Linear> {
        let row = self.kept().get(row)?;
        let changed = off.row(row);
        let mut linear = changed.linear(pose)?;
        let (r, t) = (&pose.rotation, &pose.translation);
        let (b1, b2) = (changed.current.bearing, changed.reference.bearing);
        let x = r * b1;
        let (l2, m) = (t.cross(&x), b2.cross(t));
        let l1 = r.transpose() * m;
        let (t1, t2) = (&changed.current.tangents, &changed.reference.tangents);
        let (p, q) = (t2.tr_mul(&l2), t1.tr_mul(&l1));
        let norm = (p.norm_squared() + q.norm_squared()).sqrt();
        let share = b2.dot(&l2) / (norm * norm * norm);
        // A number of the calibration adds an axis times the third coordinate. The residual does not depend on the
        // lengths of the bearings, so these are taken as fixed.
        let third = |view: &View| {
            let length = off.apply(&view.bearing).norm();
            (view.bearing.z / length, view.tangents.row(2).transpose() / length)
        };
        let ((z1, s1), (z2, s2)) = (third(&row.current), third(&row.reference));
        let by_axis = [Vector::x(), Vector::y(), Vector::z()].map(|axis| {
            let turned = r * axis;
            let dl2 = t.cross(&turned);
            let dl1 = r.transpose() * axis.cross(t);
            let current = z1 * turned.dot(&m) / norm
                - share * (p.dot(&t2.tr_mul(&dl2)) * z1 + q.dot(&s1) * l1.dot(&axis));
            let reference = z2 * l2.dot(&axis) / norm
                - share * (q.dot(&t1.tr_mul(&dl1)) * z2 + p.dot(&s2) * l2.dot(&axis));
            [current, reference]
        });
        let [by_x, by_y, [current, reference]] = by_axis;
        let radial =
            current * off_axis2(&row.current.bearing) + reference * off_axis2(&row.reference.bearing);
        let by_off = [current + reference, radial, by_x[0] + by_x[1], by_y[0] + by_y[1]];
        linear.j[0][Self::UNKNOWNS..][..NUMBERS].copy_from_slice(&by_off);
        Some(linear)
    }
}
