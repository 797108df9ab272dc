//! The least-squares problem of an alignment: its sums, its step, its covariance.

use super::align::Row;
use crate::geometry::Vector;
use nalgebra::{Matrix3, Matrix6, SymmetricEigen, Vector6};
use rustc_hash::FxHashMap;

/// Derivative of a point's distance to the surface by the pose: translation, then rotation about the fixed axes of
/// the map at the origin of the sensor.
fn jacobian(lever: &Vector, normal: &Vector) -> Vector6<f64> {
    let turn = lever.cross(normal);
    Vector6::new(normal.x, normal.y, normal.z, turn.x, turn.y, turn.z)
}

/// Sums over rows. Adding them up in a fixed order gives the same bits with any number of threads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    /// `sum w J J^T` with the normals of the map.
    information: Matrix6<f64>,
    /// The same of the rows whose scan point has a normal, and that with one normal of each, `sum w J_scan J_map^T`.
    paired: Matrix6<f64>,
    crossed: Matrix6<f64>,
    /// `sum w J r`.
    gradient: Vector6<f64>,
    /// `sum w`, and of the derivatives of `w r`.
    weight: f64,
    slope: f64,
}

impl Sums {
    /// Adds a row; `scale` is that of Cauchy's weights.
    pub fn add(&mut self, row: &Row, scale: f64) {
        let ratio = row.residual / scale;
        let weight = 1.0 / (1.0 + ratio * ratio);
        let j = jacobian(&row.lever, &row.normal);
        let weighted = j * weight;
        self.information += weighted * j.transpose();
        if row.scan_normal != Vector::zeros() {
            self.paired += weighted * j.transpose();
            self.crossed += weighted * jacobian(&row.lever, &row.scan_normal).transpose();
        }
        self.gradient += weighted * row.residual;
        self.weight += weight;
        self.slope += (1.0 - ratio * ratio) * weight * weight;
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: &Self) {
        self.information += other.information;
        self.paired += other.paired;
        self.crossed += other.crossed;
        self.gradient += other.gradient;
        self.weight += other.weight;
        self.slope += other.slope;
    }
}

/// What a scan tells of the six directions of its pose, in axes in which a rotation is as long as the way of a
/// typical point.
///
/// Normals are noisy, and the sum of their squares is information that is not there: a bare tunnel seems to fix the
/// way along it. The noise of the scan's normals is not that of the map's, so their products have none (they are
/// instruments, in the language of errors in variables): a direction for which those are less than half of the
/// squares is one that the scan does not fix.
pub(super) struct Observed {
    /// Length of a radian, m.
    length: f64,
    eigenvectors: Matrix6<f64>,
    eigenvalues: Vector6<f64>,
    /// From 0, not at all, to 1, fixed.
    shares: Vector6<f64>,
}

impl Observed {
    pub fn new(sums: &Sums, length: f64) -> Option<Self> {
        let unit = unit(length);
        let information = symmetric(&(unit * sums.information * unit));
        if !information.iter().chain(sums.crossed.iter()).all(|v| v.is_finite()) {
            return None;
        }
        let eigen = SymmetricEigen::try_new(information, f64::EPSILON, 1000)?;
        let along = |matrix: &Matrix6<f64>, k: usize| {
            let v = unit * eigen.eigenvectors.column(k);
            (v.transpose() * matrix * v).x
        };
        let largest = eigen.eigenvalues.max();
        let shares = Vector6::from_fn(|k, _| {
            let squares = along(&sums.paired, k);
            match squares > 1e-9 * largest && eigen.eigenvalues[k] > 1e-9 * largest {
                true => ((along(&sums.crossed, k) / squares - 0.25) / 0.5).clamp(0.0, 1.0),
                false => 0.0,
            }
        });
        Some(Self { length, eigenvectors: eigen.eigenvectors, eigenvalues: eigen.eigenvalues, shares })
    }

    /// Number of directions that the scan fixes.
    pub fn count(&self) -> usize {
        self.shares.iter().filter(|share| **share >= 0.5).count()
    }

    fn filter(&self, diagonal: &Vector6<f64>) -> Matrix6<f64> {
        self.eigenvectors * Matrix6::from_diagonal(diagonal) * self.eigenvectors.transpose()
    }

    /// The step of Gauss and Newton towards the least of `a sum w r^2 + (x - prior)^T prior_information (x - prior)`;
    /// `offset` is from the pose to the prior.
    pub fn step(
        &self,
        sums: &Sums,
        a: f64,
        prior_information: &Matrix6<f64>,
        offset: &Vector6<f64>,
    ) -> Option<Vector6<f64>> {
        let unit = unit(self.length);
        let prior = unit * prior_information * unit;
        let left = self.filter(&self.shares.component_mul(&self.eigenvalues)) * a + prior;
        let gradient = self.filter(&self.shares) * (unit * sums.gradient) * a;
        let right = unit * prior_information * offset - gradient;
        let step = unit * symmetric(&left).cholesky()?.solve(&right);
        step.iter().all(|v| v.is_finite()).then_some(step)
    }

    /// The covariance of the pose, the sandwich `A^-1 B A^-1`: `A` is the curvature, `B` the covariance of the
    /// gradient, of which `scores` is the part of the scan.
    pub fn covariance(
        &self,
        sums: &Sums,
        a: f64,
        scores: &Matrix6<f64>,
        prior_information: &Matrix6<f64>,
    ) -> Option<Matrix6<f64>> {
        let unit = unit(self.length);
        let prior = unit * prior_information * unit;
        let curved = (sums.slope / sums.weight).clamp(0.3, 1.0);
        let left = self.filter(&self.shares.component_mul(&self.eigenvalues)) * (a * curved) + prior;
        let filter = self.filter(&self.shares);
        let middle = filter * (unit * scores * unit) * filter * (a * a) + prior;
        let inverse = symmetric(&left).cholesky()?.inverse();
        let covariance = symmetric(&(unit * inverse * middle * inverse * unit));
        covariance.iter().all(|v| v.is_finite()).then_some(covariance)
    }
}

fn unit(length: f64) -> Matrix6<f64> {
    let turn = 1.0 / length;
    Matrix6::from_diagonal(&Vector6::new(1.0, 1.0, 1.0, turn, turn, turn))
}

/// What is taken of the errors that the points of a group share: of the map, of the beams, of the sampling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared {
    /// Deviation of an offset that is always possible, m.
    pub offset: f64,
    /// How much of what the residuals have in common counts.
    pub residuals: f64,
}

/// A group's sums of `w J r` and `w J`.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    score: Vector6<f64>,
    reach: Vector6<f64>,
}

/// Groups of points that share their errors. The memory is reused.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    /// By axis of the normal, number of the plane, and block.
    numbers: FxHashMap<(usize, i64, [i64; 3]), u32>,
    groups: Vec<Group>,
}

impl Groups {
    pub fn clear(&mut self) {
        self.numbers.clear();
        self.groups.clear();
    }

    /// Adds a row to its group; `scale` is that of Cauchy's weights.
    pub fn add(&mut self, key: (usize, i64, [i64; 3]), row: &Row, scale: f64) {
        let fresh = self.groups.len() as u32;
        let number = *self.numbers.entry(key).or_insert(fresh);
        if number == fresh {
            self.groups.push(Group::default());
        }
        let ratio = row.residual / scale;
        let j = jacobian(&row.lever, &row.normal) / (1.0 + ratio * ratio);
        if let Some(group) = self.groups.get_mut(number as usize) {
            group.score += j * row.residual;
            group.reach += j;
        }
    }

    /// Their part in the covariance of the gradient: what the residuals show, and the offset that is always possible.
    pub fn covariance(&self, shared: &Shared) -> Matrix6<f64> {
        // Six of the groups went into the pose.
        let count = self.groups.len() as f64;
        let residuals = shared.residuals * count / (count - 6.0).max(1.0);
        let variance = shared.offset * shared.offset;
        let of = |group: &Group| {
            group.score * group.score.transpose() * residuals
                + group.reach * group.reach.transpose() * variance
        };
        self.groups.iter().map(of).sum()
    }
}

pub(super) fn symmetric(matrix: &Matrix6<f64>) -> Matrix6<f64> {
    (matrix + matrix.transpose()) * 0.5
}

/// A covariance's inverse; None if it has none.
pub(super) fn information(covariance: &Matrix6<f64>) -> Option<Matrix6<f64>> {
    if !covariance.iter().all(|v| v.is_finite()) {
        return None;
    }
    // In units of its deviations, lest metres and radians differ by too much.
    let scale = covariance.diagonal().map(|v| 1.0 / v.sqrt());
    if !scale.iter().all(|v| v.is_finite()) {
        return None;
    }
    let scale = Matrix6::from_diagonal(&scale);
    let inverse = symmetric(&(scale * covariance * scale)).cholesky()?.inverse();
    Some(scale * symmetric(&inverse) * scale)
}

/// Rotation matrix of a rigid transform, and its translation.
pub(super) fn parts(pose: &crate::geometry::Rigid) -> (Matrix3<f64>, Vector) {
    (*pose.rotation.to_rotation_matrix().matrix(), pose.translation.vector)
}
