//! Nonlinear least squares on the score itself: Levenberg-Marquardt on `sum of w min(cut, |r|^2)`, in double
//! precision, over the rows near a start.

use super::model::{Delta, Residuals, MOST_UNKNOWNS};

/// Rows within this many thresholds of the start take part.
const REACH2: f64 = 36.0;
/// Steps with a wider threshold come first: a pose from a minimal sample is off by some pixels.
const WIDE2: f64 = 9.0;
const WIDE_STEPS: usize = 2;
/// A step that lowers the cost by a smaller share ends the refinement.
const CONVERGED: f64 = 1e-12;

/// A refined hypothesis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refined<H> {
    /// The hypothesis.
    pub hypothesis: H,
    /// Sum of `w max(0, 1 - |r|^2)` over the rows within the threshold.
    pub support: f64,
    /// Rows within the threshold.
    pub inliers: usize,
    /// J^T W J of these.
    pub information: [Delta; MOST_UNKNOWNS],
}

/// How thoroughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A few steps: which pose is the best.
    Local,
    /// To the end.
    Final,
}

/// Refines; the buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct Refiner {
    near: Vec<u32>,
}

/// Sums over the rows near the start.
#[derive(Clone, Copy)]
struct Sums {
    cost: f64,
    support: f64,
    inliers: usize,
    gradient: Delta,
    information: [Delta; MOST_UNKNOWNS],
}

impl Refiner {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self { near: Vec::with_capacity(n) }
    }

    /// Refines a hypothesis. `None`: it has fewer rows than unknowns need, or nothing fixes it.
    pub fn refine<M: Residuals>(
        &mut self,
        model: &M,
        start: &M::Hypothesis,
        effort: Effort,
    ) -> Option<Refined<M::Hypothesis>> {
        let (passes, steps) = match effort {
            Effort::Local => (1, 6),
            Effort::Final => (2, 20),
        };
        let mut h = *start;
        let mut sums = None;
        for pass in 0..passes {
            self.near.clear();
            let near = (0..model.rows()).filter(|i| model.residual2(&h, *i) < REACH2);
            self.near.extend(near.map(|i| i as u32));
            if pass == 0 {
                h = self.descend(model, h, WIDE2, WIDE_STEPS)?.0;
            }
            let (better, found) = self.descend(model, h, 1.0, steps)?;
            (h, sums) = (better, Some(found));
        }
        let Sums { support, inliers, information, .. } = sums?;
        Some(Refined { hypothesis: h, support, inliers, information })
    }

    /// At most so many steps down the cost with a squared threshold.
    fn descend<M: Residuals>(
        &self,
        model: &M,
        start: M::Hypothesis,
        cut: f64,
        steps: usize,
    ) -> Option<(M::Hypothesis, Sums)> {
        let mut h = start;
        let mut at = self.sums(model, &h, cut);
        let mut damping = 1e-6;
        for _ in 0..steps {
            if at.inliers * M::NUMBERS < M::UNKNOWNS {
                return None;
            }
            let trial = solve(M::UNKNOWNS, &at.information, &at.gradient, damping).map(|delta| {
                let h = model.step(&h, &delta);
                (h, self.sums(model, &h, cut))
            });
            match trial {
                Some((next, sums)) if sums.cost < at.cost => {
                    let gain = at.cost - sums.cost;
                    (h, at) = (next, sums);
                    damping = (damping * 0.1).max(1e-9);
                    if gain < CONVERGED * at.cost {
                        break;
                    }
                }
                // At the bottom rounding alone decides: a tiny gain that fails is the end.
                Some((_, sums)) if sums.cost - at.cost <= CONVERGED * at.cost => break,
                _ if damping > 1e3 => break,
                _ => damping = (damping * 10.0).max(1e-4),
            }
        }
        (at.inliers * M::NUMBERS >= M::UNKNOWNS).then_some((h, at))
    }

    fn sums<M: Residuals>(&self, model: &M, h: &M::Hypothesis, cut: f64) -> Sums {
        let mut s = Sums {
            cost: 0.0,
            support: 0.0,
            inliers: 0,
            gradient: [0.0; MOST_UNKNOWNS],
            information: [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS],
        };
        for row in &self.near {
            let row = *row as usize;
            let w = model.weight(row);
            let linear = model.linear(h, row).filter(|linear| linear.r2() < cut);
            let Some(linear) = linear else {
                s.cost += w * cut;
                continue;
            };
            let r2 = linear.r2();
            s.cost += w * r2;
            s.support += w * (1.0 - r2).max(0.0);
            s.inliers += 1;
            for number in 0..M::NUMBERS {
                let (r, j) = (linear.r[number], &linear.j[number]);
                for a in 0..M::UNKNOWNS {
                    let wj = w * j[a];
                    s.gradient[a] += wj * r;
                    let row = s.information[a].iter_mut().zip(j).take(a + 1);
                    row.for_each(|(sum, j)| *sum += wj * j);
                }
            }
        }
        for a in 0..M::UNKNOWNS {
            for b in 0..a {
                s.information[b][a] = s.information[a][b];
            }
        }
        s
    }
}

/// `-(A + damping diag(A))^-1 g` by Cholesky's method; `None` if that is not positive definite.
pub(crate) fn solve(n: usize, a: &[Delta; MOST_UNKNOWNS], g: &Delta, damping: f64) -> Option<Delta> {
    let l = cholesky(n, a, damping)?;
    let mut x = [0.0; MOST_UNKNOWNS];
    for i in 0..n {
        let sum = (0..i).fold(-g[i], |sum, k| sum - l[i][k] * x[k]);
        x[i] = sum / l[i][i];
    }
    for i in (0..n).rev() {
        let sum = (i + 1..n).fold(x[i], |sum, k| sum - l[k][i] * x[k]);
        x[i] = sum / l[i][i];
    }
    x.iter().all(|v| v.is_finite()).then_some(x)
}

/// The inverse; `None` if the matrix is not positive definite.
pub(crate) fn inverse(n: usize, a: &[Delta; MOST_UNKNOWNS]) -> Option<[Delta; MOST_UNKNOWNS]> {
    let mut out = [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS];
    for (k, row) in out.iter_mut().enumerate().take(n) {
        let mut unit = [0.0; MOST_UNKNOWNS];
        unit[k] = -1.0;
        *row = solve(n, a, &unit, 0.0)?;
    }
    Some(out)
}

fn cholesky(n: usize, a: &[Delta; MOST_UNKNOWNS], damping: f64) -> Option<[Delta; MOST_UNKNOWNS]> {
    let mut l = [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS];
    for i in 0..n {
        for j in 0..=i {
            let entry = if i == j { a[i][i] * (1.0 + damping) } else { a[i][j] };
            let rest = (0..j).fold(entry, |rest, k| rest - l[i][k] * l[j][k]);
            if i == j {
                // What is left of the entry must be more than rounding.
                if !(rest > 1e-14 * a[i][i]) {
                    return None;
                }
                l[i][i] = rest.sqrt();
            } else {
                l[i][j] = rest / l[j][j];
            }
        }
    }
    Some(l)
}
