//! The last step of a refinement: inliers are a mixture of matches with normal errors and of mismatches that lie
//! within the threshold by chance, spread evenly. How many those are is measured, not fitted.
//!
//! Every inlier counts by the probability that it is a match (expectation maximisation); the covariance is that of
//! an M-estimator (Huber, "Robust Statistics"), whose weights take information away.

use super::model::{Delta, Residuals, MOST_UNKNOWNS};
use super::refine::{inverse, solve};
use std::f64::consts::{PI, TAU};

/// Steps at most.
const STEPS: usize = 20;
/// The variance changes by less than this share of it at the end.
const SETTLED: f64 = 1e-3;
/// At least this share of the inliers are matches.
const MATCHES: f64 = 0.1;
/// Residuals are not known to be smaller than this share of the threshold.
const FINEST: f64 = 1e-3;
/// Information that the weights leave, at least.
const LEFT: f64 = 0.2;

/// A hypothesis refined with the mixture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Softened<H> {
    /// The hypothesis.
    pub hypothesis: H,
    /// J^T W J.
    pub information: [Delta; MOST_UNKNOWNS],
    /// Of the unknowns.
    pub covariance: [Delta; MOST_UNKNOWNS],
    /// Variance of a number of the residual of a match.
    pub variance: f64,
}

/// Sums over the inliers.
struct Sums {
    gradient: Delta,
    information: [Delta; MOST_UNKNOWNS],
    /// J^T W^2 J
    squared: [Delta; MOST_UNKNOWNS],
    weight: f64,
    weighted: f64,
    /// Sums of w^2 and w^2 r^2.
    weight2: f64,
    weighted2: f64,
    left: f64,
}

/// Refines a hypothesis over its inliers, of which `chance` are mismatches. `None`: nothing fixes it.
pub(crate) fn soften<M: Residuals>(
    model: &M,
    start: &M::Hypothesis,
    inliers: &[u32],
    chance: f64,
) -> Option<Softened<M::Hypothesis>> {
    let (n, numbers) = (inliers.len() as f64, M::NUMBERS as f64);
    let matches = (n - chance).max(MATCHES * n);
    // Per unit of the residual: a length of two, or the disc of radius one.
    let even = chance.min(n) / if M::NUMBERS == 1 { 2.0 } else { PI };
    let mut h = *start;
    let square: f64 = inliers.iter().map(|i| model.residual2(&h, *i as usize).min(1.0)).sum();
    let mut variance = (square / (numbers * n)).max(FINEST * FINEST);
    for _ in 0..STEPS {
        let sums = sums(model, &h, inliers, variance, matches, even);
        h = model.step(&h, &solve(M::UNKNOWNS, &sums.information, &sums.gradient, 0.0)?);
        let last = variance;
        variance = (sums.weighted / (numbers * sums.weight)).max(FINEST * FINEST);
        if (variance - last).abs() < SETTLED * last {
            break;
        }
    }
    let s = sums(model, &h, inliers, variance, matches, even);
    let count = numbers * s.weight;
    let freedom = count - M::UNKNOWNS as f64;
    if !(freedom > 0.0) {
        return None;
    }
    let of_match = (s.weighted2 / (numbers * s.weight2) * count / freedom).max(FINEST * FINEST);
    let left = (s.left / s.weight).clamp(LEFT, 1.0);
    let a = inverse(M::UNKNOWNS, &s.information)?;
    let mut covariance = product(M::UNKNOWNS, &product(M::UNKNOWNS, &a, &s.squared), &a);
    covariance.iter_mut().flatten().for_each(|v| *v *= of_match / (left * left));
    let finite = covariance.iter().flatten().all(|v| v.is_finite());
    finite.then_some(Softened { hypothesis: h, information: s.information, covariance, variance: of_match })
}

fn sums<M: Residuals>(
    model: &M,
    h: &M::Hypothesis,
    inliers: &[u32],
    variance: f64,
    matches: f64,
    even: f64,
) -> Sums {
    let mut s = Sums {
        gradient: [0.0; MOST_UNKNOWNS],
        information: [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS],
        squared: [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS],
        weight: 0.0,
        weighted: 0.0,
        weight2: 0.0,
        weighted2: 0.0,
        left: 0.0,
    };
    let peak = matches / if M::NUMBERS == 1 { (TAU * variance).sqrt() } else { TAU * variance };
    for row in inliers {
        let row = *row as usize;
        let Some(linear) = model.linear(h, row) else { continue };
        let r2 = linear.r2();
        let normal = peak * libm::exp(-0.5 * r2 / variance);
        let w = if even > 0.0 { normal / (normal + even) } else { 1.0 };
        s.weight += w;
        s.weighted += w * r2;
        s.weight2 += w * w;
        s.weighted2 += w * w * r2;
        // Derivative of w r by r, the mean over the directions.
        s.left += w * (1.0 - (1.0 - w) * r2 / (M::NUMBERS as f64 * variance));
        let w = w * model.weight(row);
        for number in 0..M::NUMBERS {
            let (r, j) = (linear.r[number], &linear.j[number]);
            for a in 0..M::UNKNOWNS {
                let wj = w * j[a];
                s.gradient[a] += wj * r;
                let rows = s.information[a].iter_mut().zip(&mut s.squared[a]);
                for ((sum, squared), j) in rows.zip(j).take(M::UNKNOWNS) {
                    *sum += wj * j;
                    *squared += w * wj * j;
                }
            }
        }
    }
    s
}

fn product(n: usize, x: &[Delta; MOST_UNKNOWNS], y: &[Delta; MOST_UNKNOWNS]) -> [Delta; MOST_UNKNOWNS] {
    let mut out = [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS];
    for p in 0..n {
        for q in 0..n {
            out[p][q] = (0..n).map(|k| x[p][k] * y[k][q]).sum();
        }
    }
    out
}
