//! The pose of a calibrated camera from any number of features matched with known points, none of them wrong,
//! by all stationary points of a cost: no start is needed, and none is missed.
//!
//! The cost of a rotation is `sum |metric (R X + t)|^2 / depth^2` with the best translation for it, a quadratic
//! form in the entries of `R`; its stationary points are the roots of `optimal_pnp` of the library (Nakano 2015),
//! 40 tracks whatever the number of points. With all depths one it is a cost in space; with the depths of the best
//! pose of that, the second time, it is the reprojection error to first order.

use super::absolute::{Absolute, Row};
use super::kinds::library;
use super::model::{Residuals, Scored, Search};
use super::search::CpuSearch;
use crate::geometry::{Pose, Vector};
use crate::homotopy::{problems, Backend, Solver};
use crate::registration::lanes::{Deadline, Stop};
use nalgebra::{Complex, Matrix3, Quaternion, SMatrix, UnitQuaternion};
use std::sync::Arc;

/// Fewest rows: three leave more than one pose with no error at all.
const FEWEST: usize = 4;

/// In place of samples all rows are solved, once for each load.
pub(crate) struct PnpSearch {
    solver: Solver,
    scores: CpuSearch<Pose>,
    /// Poses not yet given.
    poses: Vec<(u32, Pose)>,
}

impl PnpSearch {
    /// On the threads of a pool, tracks on `backend`.
    ///
    /// # Errors
    /// As [`library`].
    pub fn new(pool: Arc<rayon::ThreadPool>, backend: Backend) -> Result<Self, problems::Error> {
        let (_, solver) = library("optimal_pnp", backend, 1)?;
        Ok(Self { solver, scores: CpuSearch::new(pool), poses: Vec::new() })
    }

    /// All stationary poses that have all points in front, of the least reprojection error first.
    fn poses(&self, model: &Absolute) -> Vec<(f64, Pose)> {
        let rows = model.kept();
        let mut weights = vec![1.0; rows.len()];
        let mut all: Vec<(f64, Pose)> = Vec::new();
        for _ in 0..2 {
            let Some(cost) = Cost::new(rows, &weights).filter(|_| rows.len() >= FEWEST) else { break };
            for solution in self.solver.solve(&[cost.parameters()], None) {
                all.extend(solution.found().filter_map(|root| {
                    let pose = cost.pose(root.point)?;
                    let sum =
                        (0..rows.len()).map(|i| model.weight(i) * model.residual2(&pose, i)).sum::<f64>();
                    sum.is_finite().then_some((sum, pose))
                }));
            }
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, best)) = all.first() else { break };
            for (row, weight) in rows.iter().zip(&mut weights) {
                let depth = row.bearing.dot(&best.apply(&row.point));
                *weight = 1.0 / (depth * depth);
            }
        }
        all
    }
}

impl Search<Absolute> for PnpSearch {
    /// Where the tracks are followed.
    fn name(&self) -> &'static str {
        if self.solver.is_on_gpu() {
            "cuda"
        } else {
            "cpu"
        }
    }

    fn load(&mut self, model: &Absolute) -> Result<(), Stop> {
        let poses = self.poses(model);
        self.poses.clear();
        self.poses.extend((0..).zip(poses).map(|(slot, (_, pose))| (slot, pose)));
        Ok(())
    }

    fn search(
        &mut self,
        model: &Absolute,
        _: &[u32],
        keep: usize,
        best: &mut Vec<Scored<Pose>>,
        deadline: Deadline,
    ) -> Result<u64, Stop> {
        let found = self.scores.rank(model, &self.poses, keep, best, deadline);
        self.poses.clear();
        found
    }
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
    fn new(rows: &[Row], weights: &[f64]) -> Option<Self> {
        let n = rows.len() as f64;
        let centre = rows.iter().map(|row| row.point).sum::<Vector>() / n;
        let size = (rows.iter().map(|row| (row.point - centre).norm_squared()).sum::<f64>() / n).sqrt();
        let terms: Vec<(SMatrix<f64, 3, 9>, Matrix3<f64>)> = rows
            .iter()
            .zip(weights)
            .map(|(row, weight)| {
                let point = (row.point - centre) / size;
                (by_columns(&point), row.metric.transpose() * row.metric * (weight * row.weight))
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
