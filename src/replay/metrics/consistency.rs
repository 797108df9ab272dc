//! Whether covariances say how large the errors are.

use super::errors::rotation_vector;
use super::Pair;
use crate::geometry::{Rigid, Vector};
use crate::replay::Estimate;
use nalgebra::{DimName, OMatrix, OVector, Vector6};
use serde::{Deserialize, Serialize};

/// Shares of a normal distribution within 1, 2 and 3 standard deviations.
pub const EXPECTED: [f64; 3] = [0.682_689_492_137, 0.954_499_736_104, 0.997_300_203_937];
/// Squared radii of the ellipsoids that hold these shares, in 3 and in 6 dimensions: quantiles of
/// the chi-squared distribution.
const RADII_3: [f64; 3] = [3.526_740_380_262, 8.024_881_760_266, 14.156_413_609_127];
const RADII_6: [f64; 3] = [7.038_400_923_737, 12.848_834_791_793, 20.062_086_165_714];
/// 97.5 % of a normal distribution lie below so many standard deviations.
const TWO_SIDED_95: f64 = 1.959_963_984_540;

/// Errors in units of their covariance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Consistency {
    /// Poses with a truth and a positive definite covariance.
    pub frames: usize,
    /// Mean of the squared errors in units of the covariance (NEES). 6 is right; more: errors are
    /// larger than the covariances say; less: smaller.
    pub nees_mean: f64,
    /// Their median; 5.35 is right. Poses that are wrong altogether do not move it.
    pub nees_median: f64,
    /// Where the mean lies in 95 of 100 drives with right covariances and independent frames.
    pub nees_expected: [f64; 2],
    /// Shares of x y z errors within 1, 2, 3 standard deviations.
    pub translation: Coverage,
    /// Shares of rotation errors.
    pub rotation: Coverage,
    /// Shares of errors in all six.
    pub pose: Coverage,
    /// Shares of the errors in each coordinate, x y z and the rotation about the x y z axes of the map, within 1, 2, 3
    /// standard deviations: [`EXPECTED`] of them too.
    #[serde(default)]
    pub coordinates: [Coverage; 6],
}

/// Shares of the errors within the ellipsoids that should hold [`EXPECTED`] of them.
pub type Coverage = [f64; 3];

impl Consistency {
    pub(super) fn new<'a>(pairs: impl Iterator<Item = &'a Pair<'a>>) -> Option<Self> {
        let both = pairs
            .filter_map(|p| Some((distances(&p.estimate, &p.truth)?, deviations(&p.estimate, &p.truth))));
        let (distances, deviations): (Vec<[f64; 3]>, Vec<[f64; 6]>) = both.unzip();
        let nees = super::Statistics::of(distances.iter().map(|d| d[2]))?;
        let n = distances.len() as f64;
        let coverage = |group: usize, radii: [f64; 3]| {
            radii.map(|radius| distances.iter().filter(|d| d[group] <= radius).count() as f64 / n)
        };
        Some(Self {
            frames: distances.len(),
            nees_mean: nees.mean,
            nees_median: nees.median,
            nees_expected: expected_mean(6.0, n),
            translation: coverage(0, RADII_3),
            rotation: coverage(1, RADII_3),
            pose: coverage(2, RADII_6),
            coordinates: std::array::from_fn(|k| {
                [1.0, 2.0, 3.0].map(|sigma| {
                    deviations.iter().filter(|d| d.get(k).is_some_and(|d| *d <= sigma)).count() as f64 / n
                })
            }),
        })
    }
}

/// Squared error of a pose in units of its covariance.
pub(super) fn nees(estimate: &Estimate, truth: &Rigid) -> Option<f64> {
    distances(estimate, truth).map(|[_, _, pose]| pose)
}

/// The error: x y z, rotation vector about the axes of the map, as the covariance has it.
fn error(estimate: &Estimate, truth: &Rigid) -> (Vector, Vector) {
    let pose = &estimate.map_t_base;
    let shift = pose.translation.vector - truth.translation.vector;
    // About the axes of the map, as the covariance is.
    (shift, rotation_vector(&(pose.rotation * truth.rotation.inverse())))
}

/// Errors of the coordinates, each in units of its standard deviation.
fn deviations(estimate: &Estimate, truth: &Rigid) -> [f64; 6] {
    let (shift, turn) = error(estimate, truth);
    let variances = estimate.covariance.diagonal();
    let mut all = shift.iter().chain(turn.iter()).zip(variances.iter());
    std::array::from_fn(|_| {
        all.next().map_or(f64::INFINITY, |(error, variance)| error.abs() / variance.sqrt())
    })
}

/// Squared errors of translation, rotation and both, each in units of its covariance.
fn distances(estimate: &Estimate, truth: &Rigid) -> Option<[f64; 3]> {
    let (shift, turn) = error(estimate, truth);
    let error = Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z);
    let covariance = &estimate.covariance;
    let distances = [
        distance(covariance.fixed_view::<3, 3>(0, 0).into_owned(), &shift)?,
        distance(covariance.fixed_view::<3, 3>(3, 3).into_owned(), &turn)?,
        distance(*covariance, &error)?,
    ];
    distances.iter().all(|d| d.is_finite()).then_some(distances)
}

fn distance<D: DimName>(covariance: OMatrix<f64, D, D>, error: &OVector<f64, D>) -> Option<f64>
where
    nalgebra::DefaultAllocator: nalgebra::allocator::Allocator<D, D> + nalgebra::allocator::Allocator<D>,
{
    Some(error.dot(&covariance.cholesky()?.solve(error)))
}

/// Where the mean of `n` chi-squared values lies in 95 of 100 cases (Wilson and Hilferty's cube).
fn expected_mean(dimensions: f64, n: f64) -> [f64; 2] {
    let k = dimensions * n;
    let spread = 2.0 / (9.0 * k);
    [-TWO_SIDED_95, TWO_SIDED_95].map(|z| dimensions * (1.0 - spread + z * spread.sqrt()).powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_range_of_the_mean_is_that_of_the_chi_squared_distribution() {
        // Quantiles by scipy.stats.chi2.ppf([.025, .975], 6 n) / n.
        for (n, expected) in
            [(1.0, [1.237_344, 14.449_375]), (10.0, [4.048_175, 8.329_765]), (1000.0, [5.787_197, 6.216_591])]
        {
            let got = expected_mean(6.0, n);
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 0.05 / n, "{n}: {got} {expected}");
            }
        }
    }
}
