//! How far a pose is open along its weakest direction, beyond what the curvature at its place says: where two
//! solutions nearly meet (points and camera on a cylinder, points of three directions) a valley bends, is flatter than a
//! parabola, or has a second floor.
//!
//! The pose is held away from the best place and everything else is fitted: the profile of the likelihood (Venzon,
//! Moolgavkar, "A method for computing profile-likelihood-based confidence intervals", 1988). The covariance is
//! widened to what lies along it.

use super::model::{Delta, Linear, Residuals, MOST_UNKNOWNS};
use super::refine::{Effort, Refined, Refiner};

/// Where the pose is held, in standard deviations to both sides, and the length that each stands for.
const AT: [(f64, f64); 6] = [(1.0, 1.0), (2.0, 1.0), (3.0, 1.5), (5.0, 2.5), (8.0, 3.5), (12.0, 2.0)];
/// Where the bend of the valley is measured: so far from the best place as the covariance is to hold good.
const BENT: f64 = 3.0;
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
        STIFF * (dot(&self.measure, &self.rows.difference(&self.from, h)) - self.at)
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
        let j = [self.measure.map(|m| STIFF * m), [0.0; MOST_UNKNOWNS]];
        Some(Linear { r: [self.hold(h), 0.0], j })
    }

    fn step(&self, h: &M::Hypothesis, delta: &Delta) -> M::Hypothesis {
        self.rows.step(h, delta)
    }

    fn difference(&self, from: &M::Hypothesis, to: &M::Hypothesis) -> Delta {
        self.rows.difference(from, to)
    }
}

fn dot(a: &Delta, b: &Delta) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn times(m: &[Delta; MOST_UNKNOWNS], v: &Delta) -> Delta {
    m.each_ref().map(|row| dot(row, v))
}

/// The weakest direction where every unknown by itself moves the features alike: what tells the place along it in
/// standard deviations, and the change of the unknowns by one of them.
fn weakest(
    information: &[Delta; MOST_UNKNOWNS],
    covariance: &[Delta; MOST_UNKNOWNS],
    unknowns: usize,
) -> Option<(Delta, Delta)> {
    let unit: Delta = std::array::from_fn(|k| information[k][k].max(0.0).sqrt());
    let scaled = |w: &Delta| -> Delta { std::array::from_fn(|k| unit[k] * w[k]) };
    let mut w: Delta = std::array::from_fn(|k| if k < unknowns { 1.0 + 0.1 * k as f64 } else { 0.0 });
    for _ in 0..TURNS {
        let turned = scaled(&times(covariance, &scaled(&w)));
        let length = dot(&turned, &turned).sqrt();
        if !(length > 0.0 && length.is_finite()) {
            return None;
        }
        w = turned.map(|v| v / length);
    }
    let along = scaled(&w);
    let reach = times(covariance, &along);
    let deviation = dot(&along, &reach).sqrt();
    (deviation > 0.0).then(|| (along.map(|v| v / deviation), reach.map(|v| v / deviation)))
}

/// Widens a covariance to what the profile along its weakest direction says: to the second moment along it, and to where
/// it bends. `variance` is that of a number of the residual of a match.
pub(crate) fn widen<M: Residuals>(
    rows: &M,
    best: &Refined<M::Hypothesis>,
    variance: f64,
    covariance: &mut [Delta; MOST_UNKNOWNS],
    refiner: &mut Refiner,
) {
    let h = best.hypothesis;
    let Some((measure, reach)) = weakest(&best.information, covariance, M::UNKNOWNS) else { return };
    let (mut total, mut along2) = (1.0, 0.0);
    let mut bend = [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS];
    for (at, length) in AT.iter().flat_map(|(at, length)| [(*at, *length), (-*at, *length)]) {
        let start = rows.step(&h, &reach.map(|v| v * at));
        let held = Held { rows, from: h, measure, at };
        let Some(found) = refiner.refine(&held, &start, Effort::Local) else { continue };
        let cost = |i: usize| {
            let (a, b) = (rows.residual2(&h, i).min(1.0), rows.residual2(&found.hypothesis, i).min(1.0));
            ((b - a) / variance).clamp(-ROW, ROW)
        };
        let cost: f64 = (0..rows.rows()).map(cost).sum();
        let likely = length * libm::exp(-0.5 * cost.max(0.0));
        total += likely;
        along2 += likely * at * at;
        if at.abs() == BENT {
            let delta = rows.difference(&h, &found.hypothesis);
            let along = dot(&measure, &delta);
            let beside: Delta = std::array::from_fn(|k| (delta[k] - along * reach[k]) / BENT);
            add(&mut bend, &beside, 1.0);
        }
    }
    // A valley that is narrower than the curvature says is left as wide.
    add(covariance, &reach, (along2 / total - 1.0).max(0.0));
    covariance.iter_mut().flatten().zip(bend.iter().flatten()).for_each(|(entry, more)| *entry += more);
}

fn add(to: &mut [Delta; MOST_UNKNOWNS], v: &Delta, share: f64) {
    for (row, a) in to.iter_mut().zip(v) {
        row.iter_mut().zip(v).for_each(|(entry, b)| *entry += share * a * b);
    }
}
