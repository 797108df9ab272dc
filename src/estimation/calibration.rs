//! Whether two views fit better with another calibration of their camera: focal length and radial distortion.

use super::model::{Delta, Linear, Residuals};
use super::refine::{inverse, Effort, Refiner};
use super::relative::{Relative, Row, View};
use super::Reason;
use crate::geometry::{Pose, Vector};

/// A focal length that fits better is told if it differs by more than this share,
const FOCAL_OFF: f64 = 0.05;
/// a distortion if it moves the border of a view of 60 degrees by this share of its angle,
pub(super) const RADIAL_OFF: f64 = 0.02;
/// Square of the sine of half of that view.
pub(super) const BORDER: f64 = 0.25;
/// and both by so many standard deviations.
const SIGMAS: f64 = 5.0;
/// Residuals are not known to be smaller than this share of the threshold.
const FINEST: f64 = 1e-3;

/// A bearing `(x, y, z)` is `(x, y, z (scale + radial (x^2 + y^2)))` instead.
#[derive(Debug, Clone, Copy)]
struct Off {
    scale: f64,
    radial: f64,
}

/// Two views with the calibration of both among the unknowns, after the five of the pose.
struct Calibrating<'a>(&'a Relative);

fn off_axis2(b: &Vector) -> f64 {
    b.x * b.x + b.y * b.y
}

impl Off {
    /// The bearing changed, not of length one.
    fn bearing(&self, b: &Vector) -> Vector {
        Vector::new(b.x, b.y, b.z * (self.scale + self.radial * off_axis2(b)))
    }

    fn view(&self, view: &View) -> View {
        let bearing = self.bearing(&view.bearing);
        let length = bearing.norm();
        let mut changed = *view;
        changed.bearing = bearing / length;
        // The derivative of the factor itself is left out: it changes how rows are weighed, by a little.
        changed.tangents.row_mut(2).scale_mut(self.scale + self.radial * off_axis2(&view.bearing));
        changed.tangents /= length;
        changed
    }

    fn row(&self, row: &Row) -> Row {
        Row { current: self.view(&row.current), reference: self.view(&row.reference), ..*row }
    }
}

impl Residuals for Calibrating<'_> {
    type Hypothesis = (Pose, Off);
    const UNKNOWNS: usize = 7;
    const NUMBERS: usize = 1;

    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn weight(&self, row: usize) -> f64 {
        self.0.weight(row)
    }

    fn residual2(&self, (pose, off): &(Pose, Off), row: usize) -> f64 {
        self.0.kept().get(row).map_or(f64::INFINITY, |row| off.row(row).residual2(pose))
    }

    fn linear(&self, (pose, off): &(Pose, Off), row: usize) -> Option<Linear> {
        let row = self.0.kept().get(row)?;
        let changed = off.row(row);
        let mut linear = changed.linear(pose)?;
        // By the depths of both bearings along the optical axis.
        let (r, t) = (&pose.rotation, &pose.translation);
        let (b1, b2) = (changed.current.bearing, changed.reference.bearing);
        let x = r * b1;
        let (l2, m) = (t.cross(&x), b2.cross(t));
        let l1 = r.transpose() * m;
        let (t1, t2) = (&changed.current.tangents, &changed.reference.tangents);
        let (p, q) = (t2.tr_mul(&l2), t1.tr_mul(&l1));
        let norm = (p.norm_squared() + q.norm_squared()).sqrt();
        let share = b2.dot(&l2) / (norm * norm * norm);
        let axis = Vector::z();
        // The current view, then the reference.
        let dx = r * axis;
        let dl2 = t.cross(&dx);
        // The residual does not depend on the lengths of the bearings, so these are taken as fixed.
        let third = |view: &View| {
            let length = off.bearing(&view.bearing).norm();
            (view.bearing.z / length, view.tangents.row(2).transpose() / length)
        };
        let ((z1, s1), (z2, s2)) = (third(&row.current), third(&row.reference));
        let dm = axis.cross(t);
        let dl1 = r.transpose() * dm;
        let by_current = z1 * dx.dot(&m) / norm - share * (p.dot(&t2.tr_mul(&dl2)) * z1 + q.dot(&s1) * l1.z);
        let by_reference = z2 * l2.z / norm - share * (q.dot(&t1.tr_mul(&dl1)) * z2 + p.dot(&s2) * l2.z);
        let (radial1, radial2) = (off_axis2(&row.current.bearing), off_axis2(&row.reference.bearing));
        linear.j[0][5] = by_current + by_reference;
        linear.j[0][6] = by_current * radial1 + by_reference * radial2;
        Some(linear)
    }

    fn step(&self, (pose, off): &(Pose, Off), delta: &Delta) -> (Pose, Off) {
        let off = Off { scale: off.scale + delta[5], radial: off.radial + delta[6] };
        (self.0.step(pose, delta), off)
    }

    fn difference(&self, from: &(Pose, Off), to: &(Pose, Off)) -> Delta {
        let mut delta = self.0.difference(&from.0, &to.0);
        (delta[5], delta[6]) = (to.1.scale - from.1.scale, to.1.radial - from.1.radial);
        delta
    }
}

/// What the calibration of two views is off by, if the rows say so beyond doubt.
pub(crate) fn fault(relative: &Relative, best: &Pose, refiner: &mut Refiner) -> Option<Reason> {
    let model = Calibrating(relative);
    let found = refiner.refine(&model, &(*best, Off { scale: 1.0, radial: 0.0 }), Effort::Final)?;
    let (mut square, mut gain, mut noise2) = (0.0, 0.0, 0.0);
    for i in 0..model.rows() {
        let (a, b) = (relative.residual2(best, i), model.residual2(&found.hypothesis, i));
        square += if b < 1.0 { b } else { 0.0 };
        let better = a.min(1.0) - b.min(1.0);
        (gain, noise2) = (gain + better, noise2 + better * better);
    }
    let freedom = found.inliers.checked_sub(7).filter(|freedom| *freedom > 0)?;
    let variance = (square / freedom as f64).max(FINEST * FINEST);
    let inverse = inverse(7, &found.information)?;
    let off = found.hypothesis.1;
    let sure = |value: f64, k: usize| value.abs() > SIGMAS * (inverse[k][k] * variance).sqrt();
    let focal = (off.scale - 1.0).abs() > FOCAL_OFF && sure(off.scale - 1.0, 5);
    let radial = (off.radial * BORDER).abs() > RADIAL_OFF && sure(off.radial, 6);
    let better = gain > SIGMAS * noise2.sqrt();
    // A longer focal length has nearer depths.
    (better && (focal || radial)).then(|| Reason::Intrinsics(1.0 / (off.scale + off.radial * BORDER)))
}
