//! How far a pose is open along its weakest direction, beyond what the curvature at its place says: two solutions
//! that nearly meet (points and camera on a cylinder, points of three directions) leave a valley that is flatter than a
//! parabola, or has a second floor.
//!
//! The pose is held away from the best place and everything else is fitted: the profile of the likelihood (Venzon,
//! Moolgavkar, "A method for computing profile-likelihood-based confidence intervals", 1988).

use super::model::{Delta, Linear, Residuals, MOST_UNKNOWNS};
use super::refine::{Effort, Refined, Refiner};

/// Where the pose is held, in standard deviations.
const AT: [f64; 3] = [3.0, 6.0, 12.0];
/// Thresholds that one standard deviation away from there costs.
const STIFF: f64 = 3.0;
/// Multiplications that turn a vector to the weakest direction.
const TURNS: usize = 40;
/// One row counts for no more than so many variances.
const ROW: f64 = 9.0;

/// The same rows, and one that holds the hypothesis.
struct Held<'a, M: Residuals> {
    rows: &'a M,
    from: M::Hypothesis,
    /// Standard deviations along the direction, of a change of the unknowns.
    measure: Delta,
    at: f64,
}

impl<M: Residuals> Held<'_, M> {
    fn hold(&self, h: &M::Hypothesis) -> f64 {
        let delta = self.rows.difference(&self.from, h);
        let along: f64 = self.measure.iter().zip(delta).map(|(m, d)| m * d).sum();
        STIFF * (along - self.at)
    }
}

impl<M: Residuals> Residuals for Held<'_, M> {
    type Hypothesis = M::Hypothesis;
    const UNKNOWNS: usize = M::UNKNOWNS;
    const NUMBERS: usize = M::NUMBERS;

    fn rows(&self) -> usize {
        self.rows.rows() + 1
    }

    fn weight(&self, row: usize) -> f64 {
        if row < self.rows.rows() {
            self.rows.weight(row)
        } else {
            1.0
        }
    }

    fn residual2(&self, h: &M::Hypothesis, row: usize) -> f64 {
        if row < self.rows.rows() {
            return self.rows.residual2(h, row);
        }
        let r = self.hold(h);
        r * r
    }

    fn linear(&self, h: &M::Hypothesis, row: usize) -> Option<Linear> {
        if row < self.rows.rows() {
            return self.rows.linear(h, row);
        }
        Some(Linear { r: [self.hold(h), 0.0], j: [self.measure.map(|m| STIFF * m), [0.0; MOST_UNKNOWNS]] })
    }

    fn step(&self, h: &M::Hypothesis, delta: &Delta) -> M::Hypothesis {
        self.rows.step(h, delta)
    }

    fn difference(&self, from: &M::Hypothesis, to: &M::Hypothesis) -> Delta {
        self.rows.difference(from, to)
    }
}

/// Widens the covariance along its weakest direction to what the rows allow for. `variance` is that of a number of
/// the residual of a match.
pub(crate) fn widen<M: Residuals>(
    rows: &M,
    best: &Refined<M::Hypothesis>,
    variance: f64,
    covariance: &mut [Delta; MOST_UNKNOWNS],
    refiner: &mut Refiner,
) {
    let n = M::UNKNOWNS;
    let h = best.hypothesis;
    // In units in which every unknown by itself moves the features alike.
    let unit: Delta = std::array::from_fn(|k| best.information[k][k].max(0.0).sqrt());
    let mut w: Delta = std::array::from_fn(|k| if k < n { 1.0 + 0.1 * k as f64 } else { 0.0 });
    for _ in 0..TURNS {
        let turned: Delta =
            std::array::from_fn(|a| (0..n).map(|b| unit[a] * covariance[a][b] * unit[b] * w[b]).sum());
        let length = turned.iter().fold(0.0, |sum, v| sum + v * v).sqrt();
        if !(length > 0.0 && length.is_finite()) {
            return;
        }
        w = turned.map(|v| v / length);
    }
    let along: Delta = std::array::from_fn(|k| w[k] * unit[k]);
    let reach: Delta = std::array::from_fn(|a| (0..n).map(|b| covariance[a][b] * along[b]).sum());
    let deviation = along.iter().zip(reach).map(|(a, b)| a * b).sum::<f64>().sqrt();
    if !(deviation > 0.0) {
        return;
    }
    let (measure, reach) = (along.map(|v| v / deviation), reach.map(|v| v / deviation));
    // By how much the standard deviation is larger than it seems.
    let mut factor: f64 = 1.0;
    for at in AT.iter().flat_map(|at| [*at, -at]) {
        let start = rows.step(&h, &reach.map(|v| v * at));
        let held = Held { rows, from: h, measure, at };
        let Some(found) = refiner.refine(&held, &start, Effort::Local) else { continue };
        let cost = |i: usize| {
            let (a, b) = (rows.residual2(&h, i).min(1.0), rows.residual2(&found.hypothesis, i).min(1.0));
            ((b - a) / variance).clamp(-ROW, ROW)
        };
        let cost: f64 = (0..rows.rows()).map(cost).sum();
        factor = factor.max(at.abs() / cost.max(1.0).sqrt());
    }
    let more = factor * factor - 1.0;
    for (row, a) in covariance.iter_mut().zip(reach) {
        row.iter_mut().zip(reach).for_each(|(entry, b)| *entry += more * a * b);
    }
}
