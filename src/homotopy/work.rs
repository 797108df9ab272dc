//! What is computed at each step of a path, for several tracks side by side and without allocation.

use super::linear::Matrix;
use super::pack::{Pack, Reals, WIDTH};
use super::program::{Compiled, Program};
use super::system::SMALL;
use multiversion::multiversion;
use nalgebra::Complex;

/// How many points of a path the predictor looks back to.
pub const HISTORY: usize = 3;
/// Corrections after the first one, with the same factors. One is enough to judge the step; the
/// predictor multiplies the errors that are left, so that another makes longer steps.
const CORRECTIONS: usize = 2;
/// If less than this is left after the second correction, as it and the first tell, it needs no other.
/// What is left is multiplied by the predictor: where points are badly conditioned more would cost steps.
const EXACT: f64 = 1e-8;

/// Buffers of a thread.
pub(super) struct Work {
    n: usize,
    c: usize,
    terms: usize,
    /// Coefficients as polynomials of `t`.
    series: Vec<Pack>,
    jacobian: Vec<Pack>,
    tangent: Vec<Pack>,
    matrix: Matrix,
    correction: Vec<Pack>,
    rate_error: Vec<Pack>,
    /// Points of the path, the latest first.
    pub points: [Vec<Pack>; HISTORY],
    /// Their rates of change.
    pub rates: [Vec<Pack>; HISTORY],
    /// The corrected point.
    pub point: Vec<Pack>,
    /// Its rate of change.
    pub rate: Vec<Pack>,
}

/// What a step asks for.
#[derive(Clone, Copy, Default)]
pub(super) struct Step {
    /// Where on the path.
    pub t: Pack,
    /// How fast it goes there.
    pub speed: Pack,
    /// How much of each point (but the latest) and of each rate the predicted point has.
    pub point: [[Reals; HISTORY]; 2],
    /// The same for the predicted rate.
    pub rate: [[Reals; HISTORY]; 2],
}

/// What came of a step.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Size of the first correction, relative to the point.
    pub first: Reals,
    /// Size of the second.
    pub second: Reals,
    /// The largest coordinate.
    pub size: Reals,
}

fn slots(program: &Program) -> Vec<Pack> {
    let mut slots = vec![Pack::ZERO; program.slots];
    for (slot, constant) in slots[program.inputs..].iter_mut().zip(&program.constants) {
        *slot = Pack::splat(*constant);
    }
    slots
}

impl Work {
    pub fn new(compiled: &Compiled) -> Self {
        let n = compiled.unknowns;
        let zeros = || vec![Pack::ZERO; n];
        Self {
            n,
            c: compiled.coefficients,
            terms: compiled.degree + 1,
            series: vec![Pack::ZERO; compiled.coefficients * (compiled.degree + 1)],
            jacobian: slots(&compiled.jacobian),
            tangent: slots(&compiled.tangent),
            matrix: Matrix::new(n),
            correction: zeros(),
            rate_error: zeros(),
            points: std::array::from_fn(|_| zeros()),
            rates: std::array::from_fn(|_| zeros()),
            point: zeros(),
            rate: zeros(),
        }
    }

    /// Gives a track its coefficients and its first point.
    pub fn load(&mut self, lane: usize, series: &[Complex<f64>], start: &[Complex<f64>]) {
        for (pack, value) in self.series.iter_mut().zip(series) {
            pack.set(lane, *value);
        }
        for (i, value) in start.iter().enumerate() {
            self.points[0][i].set(lane, *value);
            self.rates[0][i].set(lane, Complex::new(0.0, 0.0));
        }
    }

    /// Makes the corrected point of the tracks that `which` picks the latest of their points.
    pub fn accept(&mut self, which: [bool; WIDTH]) {
        let moved = |to: &mut [Pack], from: &[Pack]| {
            for (a, b) in to.iter_mut().zip(from) {
                for (l, moves) in which.into_iter().enumerate() {
                    if moves {
                        a.re[l] = b.re[l];
                        a.im[l] = b.im[l];
                    }
                }
            }
        };
        for (list, new) in [(&mut self.points, &self.point), (&mut self.rates, &self.rate)] {
            for h in (1..HISTORY).rev() {
                let (newer, older) = list.split_at_mut(h);
                moved(&mut older[0], &newer[h - 1]);
            }
            moved(&mut list[0], new);
        }
    }

    /// The coefficients of a track, for [`residuals`].
    pub fn load_end(&mut self, lane: usize, coefficients: &[Complex<f64>], point: &[Complex<f64>]) {
        let begin = 2 * self.n;
        for (k, value) in coefficients.iter().enumerate() {
            self.jacobian[begin + k].set(lane, *value);
        }
        for (i, value) in point.iter().enumerate() {
            self.point[i].set(lane, *value);
        }
    }
}

/// The largest coordinate, squared.
#[inline(always)]
fn largest(point: &[Pack]) -> Reals {
    let mut size = [0.0; WIDTH];
    for x in point {
        let norm = x.norm_sqr();
        for l in 0..WIDTH {
            // What is not a number stays.
            size[l] = if norm[l] <= size[l] { size[l] } else { norm[l] };
        }
    }
    size
}

/// The largest of `values`, relative to the coordinates of `point` (as [`super::system::distance`]);
/// `size`: the largest coordinate, squared. What is not a number counts as infinite.
#[inline(always)]
fn relative(values: &[Pack], point: &[Pack], size: Reals) -> Reals {
    let mut floor = [0.0; WIDTH];
    for l in 0..WIDTH {
        floor[l] = (1e-4 * size[l].min(1.0)).max(SMALL * SMALL);
    }
    let mut most = [0.0; WIDTH];
    for (v, x) in values.iter().zip(point) {
        let (v, x) = (v.norm_sqr(), x.norm_sqr());
        for l in 0..WIDTH {
            let ratio = v[l] / if x[l] > floor[l] { x[l] } else { floor[l] };
            most[l] = if ratio <= most[l] { most[l] } else { ratio };
        }
    }
    most.map(|square| if square.is_nan() { f64::INFINITY } else { square.sqrt() })
}

/// Runs the Jacobian program and leaves its matrix factored and H in `correction`.
#[inline(always)]
fn linearise(work: &mut Work, compiled: &Compiled) {
    let n = work.n;
    compiled.jacobian.run(&mut work.jacobian);
    let cells = work.matrix.cells();
    cells.fill(Pack::ZERO);
    for ((row, column), slot) in compiled.entries.iter().zip(&compiled.jacobian.outputs[n..]) {
        cells[*row as usize * n + *column as usize] = work.jacobian[*slot as usize];
    }
    for (to, slot) in work.correction.iter_mut().zip(&compiled.jacobian.outputs) {
        *to = work.jacobian[*slot as usize];
    }
    work.matrix.factor();
}

/// Predicts, and corrects with one factorisation: by Newton at the predicted point, then, with the
/// factors at hand, at the points this gives, where the rate of change is corrected as well.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn attempt(work: &mut Work, compiled: &Compiled, step: &Step) -> Found {
    let (n, c) = (work.n, work.c);
    for i in 0..n {
        let latest = work.points[0][i];
        let mut point = latest + work.rates[0][i].scale(&step.point[1][0]);
        let mut rate = work.rates[0][i].scale(&step.rate[1][0]);
        for h in 1..HISTORY {
            let back = work.points[h][i] - latest;
            let speed = work.rates[h][i];
            point = point + back.scale(&step.point[0][h]) + speed.scale(&step.point[1][h]);
            rate = rate + back.scale(&step.rate[0][h]) + speed.scale(&step.rate[1][h]);
        }
        work.point[i] = point;
        work.rate[i] = rate;
        work.jacobian[i] = point;
    }
    for k in 0..c {
        let series = &work.series[k * work.terms..(k + 1) * work.terms];
        let (mut value, mut rate) = (Pack::ZERO, Pack::ZERO);
        for term in series.iter().rev() {
            rate = rate * step.t + value;
            value = value * step.t + *term;
        }
        work.jacobian[2 * n + k] = value;
        work.tangent[2 * n + k] = value;
        work.tangent[2 * n + c + k] = rate * step.speed;
    }
    linearise(work, compiled);
    work.matrix.solve(&mut work.correction);
    let size = largest(&work.points[0]);
    let first = relative(&work.correction, &work.point, size);
    for (x, correction) in work.point.iter_mut().zip(&work.correction) {
        *x = *x - *correction;
    }
    let mut second = [0.0; WIDTH];
    for i in 0..CORRECTIONS {
        work.tangent[..n].copy_from_slice(&work.point);
        work.tangent[n..2 * n].copy_from_slice(&work.rate);
        compiled.tangent.run(&mut work.tangent);
        for i in 0..n {
            work.correction[i] = work.tangent[compiled.tangent.outputs[i] as usize];
            work.rate_error[i] = work.tangent[compiled.tangent.outputs[n + i] as usize];
        }
        work.matrix.solve(&mut work.correction);
        work.matrix.solve(&mut work.rate_error);
        if i == 0 {
            second = relative(&work.correction, &work.point, size);
        }
        let is_exact: [bool; WIDTH] = std::array::from_fn(|l| second[l] * second[l] < EXACT * first[l]);
        let is_wanted: [bool; WIDTH] = std::array::from_fn(|l| i == 0 || !is_exact[l]);
        for (to, by) in [(&mut work.point, &work.correction), (&mut work.rate, &work.rate_error)] {
            for (x, change) in to.iter_mut().zip(by) {
                for l in (0..WIDTH).filter(|l| is_wanted[*l]) {
                    x.re[l] -= change.re[l];
                    x.im[l] -= change.im[l];
                }
            }
        }
        if is_exact.iter().all(|exact| *exact) {
            break;
        }
    }
    Found { first, second, size: largest(&work.point).map(f64::sqrt) }
}

/// How good a point is as a root of the system at the end of its path.
#[derive(Clone, Copy)]
pub(super) struct Quality {
    /// Size of the Newton correction that was made, relative to the point.
    pub correction: Reals,
    /// The largest equation, relative to the size of its terms, before the correction.
    pub residual: Reals,
    /// How much relative errors of the equations may grow in the root: an estimate.
    pub condition: Reals,
}

/// One Newton correction of `work.point` with the coefficients of [`Work::load_end`].
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn newton(work: &mut Work, compiled: &Compiled) -> Quality {
    let n = work.n;
    work.jacobian[..n].copy_from_slice(&work.point);
    // Size of the terms of each equation: the sum of |dH/dx| |x|, never less than a little.
    compiled.jacobian.run(&mut work.jacobian);
    let size = largest(&work.point);
    let mut floor = [0.0; WIDTH];
    for l in 0..WIDTH {
        floor[l] = (0.01 * size[l].sqrt().min(1.0)).max(SMALL);
    }
    for scale in &mut work.rate_error {
        *scale = Pack::ZERO;
    }
    for ((row, column), slot) in compiled.entries.iter().zip(&compiled.jacobian.outputs[n..]) {
        let (a, x) = (work.jacobian[*slot as usize].norm(), work.point[*column as usize].norm());
        let scale = &mut work.rate_error[*row as usize];
        for l in 0..WIDTH {
            scale.re[l] += a[l] * x[l].max(floor[l]);
        }
    }
    linearise(work, compiled);
    let mut residual = [0.0; WIDTH];
    for (h, scale) in work.correction.iter().zip(&work.rate_error) {
        let h = h.norm();
        for l in 0..WIDTH {
            let ratio = if h[l] == 0.0 { 0.0 } else { h[l] / scale.re[l] };
            residual[l] = if ratio <= residual[l] { residual[l] } else { ratio };
        }
    }
    work.matrix.solve(&mut work.correction);
    // Two sign patterns; the larger answer counts.
    let mut condition = [0.0f64; WIDTH];
    for pattern in [0x5a5a_5a5a_5a5a_5a5au64, 0x3c69_f00f_9696_c33c] {
        for (i, (b, scale)) in work.rate.iter_mut().zip(&work.rate_error).enumerate() {
            let sign = if pattern >> (i % 64) & 1 == 1 { 1.0 } else { -1.0 };
            *b = scale.scale(&[sign; WIDTH]);
        }
        work.matrix.solve(&mut work.rate);
        let growth = relative(&work.rate, &work.point, size);
        for l in 0..WIDTH {
            condition[l] = condition[l].max(growth[l]);
        }
    }
    let correction = relative(&work.correction, &work.point, size);
    for i in 0..n {
        work.point[i] = work.point[i] - work.correction[i];
    }
    Quality { correction, residual, condition }
}
