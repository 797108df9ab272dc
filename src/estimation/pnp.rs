//! The pose of a calibrated camera from any number of features matched with known points, none of them wrong,
//! by all stationary points of a cost: no start is needed, and none is missed.
//!
//! The cost of a rotation is `sum |metric (R X + t)|^2 / depth^2` with the best translation for it, a quadratic
//! form in the entries of `R`; its stationary points are the roots of `optimal_pnp` of the library (Nakano 2015),
//! 40 tracks whatever the number of points. With all depths one it is a cost in space; with the depths of the best
//! pose of that, the second time, it is the reprojection error to first order.

use super::AbsoluteRow;
use crate::geometry::{Pose, Vector};
use crate::homotopy::{problems, Backend, Settings, Solver};
use nalgebra::{Complex, Matrix3, SMatrix};
use nalgebra::{Quaternion, UnitQuaternion};

/// Fewest rows: three leave more than one pose with no error at all.
pub const FEWEST: usize = 4;

/// Solves; holds what the homotopy needs, made once.
pub struct Pnp {
    solver: Solver,
}

/// A pose and what it leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stationary {
    /// `camera_t_target`.
    pub pose: Pose,
    /// Sum of the squares of the residuals, in thresholds; infinite if a point is behind.
    pub cost: f64,
}

impl Pnp {
    /// On a backend.
    ///
    /// # Errors
    /// The backend that was asked for cannot be had.
    pub fn new(backend: Backend) -> Result<Self, problems::Error> {
        let problem =
            problems::find("optimal_pnp").unwrap_or_else(|| unreachable!("a problem of the library"));
        let (system, start) = problem.prepared(0)?;
        Ok(Self {
            solver: Solver::new(system, start, Settings::default()).on(backend, Default::default(), 1)?,
        })
    }

    /// The poses that have all points in front, of the least cost first. None: there are fewer than
    /// [`FEWEST`] rows, or nothing fixes the pose.
    pub fn poses(&self, rows: &[AbsoluteRow]) -> Vec<Stationary> {
        let mut weights = vec![1.0; rows.len()];
        let mut all: Vec<Stationary> = Vec::new();
        for _ in 0..2 {
            let Some(cost) = Cost::new(rows, &weights).filter(|_| rows.len() >= FEWEST) else { break };
            for solution in self.solver.solve(&[cost.parameters()], None) {
                let poses = solution.found().filter_map(|root| cost.pose(root.point));
                all.extend(poses.map(|pose| Stationary { pose, cost: reprojection(rows, &pose) }));
            }
            all.retain(|one| one.cost.is_finite());
            all.sort_by(|a, b| a.cost.total_cmp(&b.cost));
            let Some(best) = all.first() else { break };
            for (row, weight) in rows.iter().zip(&mut weights) {
                let depth = row.sight.bearing.dot(&best.pose.apply(&row.point.coords));
                *weight = 1.0 / (depth * depth);
            }
        }
        all
    }
}

/// Sum of the squares of the residuals; infinite if a point is behind.
fn reprojection(rows: &[AbsoluteRow], pose: &Pose) -> f64 {
    let one = |row: &AbsoluteRow| {
        let at = pose.apply(&row.point.coords);
        let depth = row.sight.bearing.dot(&at);
        if depth > 0.0 {
            (row.sight.metric * at / depth).norm_squared()
        } else {
            f64::INFINITY
        }
    };
    rows.iter().map(one).sum()
}

/// The quadratic form of the cost, of points about their mean in units of their size.
struct Cost {
    form: SMatrix<f64, 9, 9>,
    /// Gives the best translation.
    shift: SMatrix<f64, 3, 9>,
    centre: Vector,
    size: f64,
}

/// A point as a matrix by which the columns of a rotation are multiplied.
fn by_columns(point: &Vector) -> SMatrix<f64, 3, 9> {
    SMatrix::from_fn(|row, k| if k % 3 == row { point[k / 3] } else { 0.0 })
}

impl Cost {
    /// Of rows of so much weight each; `None` if nothing fixes the translation.
    fn new(rows: &[AbsoluteRow], weights: &[f64]) -> Option<Self> {
        let n = rows.len() as f64;
        let centre = rows.iter().map(|row| row.point.coords).sum::<Vector>() / n;
        let size =
            (rows.iter().map(|row| (row.point.coords - centre).norm_squared()).sum::<f64>() / n).sqrt();
        let terms: Vec<(SMatrix<f64, 3, 9>, Matrix3<f64>)> = rows
            .iter()
            .zip(weights)
            .map(|(row, weight)| {
                let point = (row.point.coords - centre) / size;
                (
                    by_columns(&point),
                    row.sight.metric.transpose() * row.sight.metric * (weight * f64::from(row.weight)),
                )
            })
            .collect();
        let sum = terms.iter().fold(Matrix3::zeros(), |sum, (_, metric)| sum + metric);
        let first = terms.iter().fold(SMatrix::zeros(), |sum, (point, metric)| sum + metric * point);
        let shift = -sum.try_inverse()? * first;
        let form = terms.iter().fold(SMatrix::<f64, 9, 9>::zeros(), |form, (point, metric)| {
            let linear = point + shift;
            form + linear.transpose() * metric * linear
        });
        let usable = size > 0.0 && form.norm() > 0.0 && form.iter().all(|v| v.is_finite());
        usable.then(|| Self { form: form / form.norm(), shift, centre, size })
    }

    /// The upper triangle, row by row.
    fn parameters(&self) -> Vec<Complex<f64>> {
        let cells = (0..9).flat_map(|i| (i..9).map(move |j| (i, j)));
        cells.map(|cell| Complex::new(self.form[cell], 0.0)).collect()
    }

    /// The pose of a root `x, y, z, w`, if it is real.
    fn pose(&self, root: &[Complex<f64>]) -> Option<Pose> {
        let [x, y, z, w] = *root.first_chunk()?;
        if [x, y, z, w].iter().any(|v| v.im.abs() > 1e-6) {
            return None;
        }
        let q = UnitQuaternion::try_new(Quaternion::new(w.re, x.re, y.re, z.re), 1e-6)?;
        let rotation = q.to_rotation_matrix().into_inner();
        let shift = self.shift * SMatrix::<f64, 9, 1>::from_column_slice(rotation.as_slice());
        Some(Pose { rotation, translation: shift * self.size - rotation * self.centre })
    }
}
