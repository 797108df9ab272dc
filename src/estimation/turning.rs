//! Two views explained by a rotation alone: what is beside it fixes the direction of the translation.

use super::model::{Delta, Linear, Residuals, MOST_UNKNOWNS};
use super::refine::{Effort, Refiner};
use super::relative::{Relative, Row};
use super::rotation;
use super::sampler::mix;
use crate::geometry::Vector;
use nalgebra::Matrix3;

/// Pairs of rows from which a rotation alone is sought.
const ROTATIONS: u64 = 32;

/// How many of some rows the rotation that explains most rows without a translation does not explain. `start`: where
/// it is sought besides.
pub(super) fn beside(
    views: &Relative,
    start: &Matrix3<f64>,
    inliers: &[u32],
    refiner: &mut Refiner,
) -> usize {
    let model = Turning(views);
    let mut best = refiner.refine(&model, start, Effort::Local);
    let n = inliers.len() as u64;
    for k in 0..ROTATIONS {
        let pick = |draw: u64| {
            let i = ((mix(2 * k + draw) >> 32) * n) >> 32;
            inliers.get(i as usize).and_then(|row| views.kept().get(*row as usize))
        };
        let (Some(a), Some(b)) = (pick(0), pick(1)) else { continue };
        let Some(start) = turn_of(a, b) else { continue };
        let support: f64 = (0..model.rows()).map(|i| (1.0 - model.residual2(&start, i)).max(0.0)).sum();
        if best.as_ref().is_none_or(|best| support > 0.5 * best.support) {
            let found = refiner.refine(&model, &start, Effort::Local);
            best = match (best, found) {
                (Some(best), Some(found)) if found.support > best.support => Some(found),
                (None, found) => found,
                (best, _) => best,
            };
        }
    }
    let beside =
        |turn: &Matrix3<f64>| inliers.iter().filter(|i| model.residual2(turn, **i as usize) >= 1.0).count();
    best.map_or(inliers.len(), |best| beside(&best.hypothesis))
}

/// The rotation that brings two features of one view onto those of the other.
fn turn_of(a: &Row, b: &Row) -> Option<Matrix3<f64>> {
    let triad = |p: &Vector, q: &Vector| {
        let z = p.cross(q).try_normalize(1e-9)?;
        let x = (p + q).try_normalize(1e-9)?;
        Some(Matrix3::from_columns(&[x, z.cross(&x), z]))
    };
    let from = triad(&a.current.bearing, &b.current.bearing)?;
    let to = triad(&a.reference.bearing, &b.reference.bearing)?;
    Some(to * from.transpose())
}

/// The same rows explained by a rotation alone. Both features are noisy, the residual is taken in the reference.
struct Turning<'a>(&'a Relative);

impl Residuals for Turning<'_> {
    type Hypothesis = Matrix3<f64>;
    const UNKNOWNS: usize = 3;
    const NUMBERS: usize = 2;

    fn rows(&self) -> usize {
        self.0.kept().len()
    }

    fn weight(&self, row: usize) -> f64 {
        self.0.weight(row)
    }

    fn residual2(&self, h: &Matrix3<f64>, row: usize) -> f64 {
        self.linear(h, row).map_or(f64::INFINITY, |linear| linear.r2())
    }

    fn linear(&self, h: &Matrix3<f64>, row: usize) -> Option<Linear> {
        let row = self.0.kept().get(row)?;
        let (b, x) = (row.reference.bearing, h * row.current.bearing);
        let depth = b.dot(&x);
        if !(depth > 0.0) {
            return None;
        }
        let metric = row.reference.metric * std::f64::consts::FRAC_1_SQRT_2;
        let u = metric * x / depth;
        let by_x = (metric - u * b.transpose()) / depth;
        let j = [0, 1].map(|k| {
            let turn = x.cross(&by_x.row(k).transpose());
            let mut j = [0.0; MOST_UNKNOWNS];
            j[..3].copy_from_slice(&[turn.x, turn.y, turn.z]);
            j
        });
        Some(Linear { r: [u.x, u.y], j })
    }

    fn step(&self, h: &Matrix3<f64>, delta: &Delta) -> Matrix3<f64> {
        rotation::exp(&Vector::new(delta[0], delta[1], delta[2])) * h
    }

    fn difference(&self, from: &Matrix3<f64>, to: &Matrix3<f64>) -> Delta {
        let w = rotation::log(&(to * from.transpose()));
        let mut out = [0.0; MOST_UNKNOWNS];
        out[..3].copy_from_slice(&[w.x, w.y, w.z]);
        out
    }
}
