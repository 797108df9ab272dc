//! Covariance of a pose: moved from the sensor to the base, and made fit for consumers.

use super::Input;
use crate::geometry::{Rigid, Vector};
use crate::params::CovarianceParams;
use nalgebra::{Matrix3, Matrix6, SymmetricEigen, Vector6};

/// Smallest and largest variance that is published, m^2 and rad^2.
const VARIANCE: std::ops::RangeInclusive<f64> = 1e-9..=1e6;

/// The covariance of `map_t_base` from that of `map_t_sensor`.
///
/// Both: translation of the origin, then rotation about the fixed axes of the map. The base is
/// carried along by the sensor: with the lever from sensor to base in the axes of the map,
/// `d_base = d_sensor + d_angle x lever`, so `C_base = A C_sensor A^T`, `A = [I, -[lever]x; 0, I]`.
pub fn sensor_to_base(covariance: &Matrix6<f64>, map_t_sensor: &Rigid, map_t_base: &Rigid) -> Matrix6<f64> {
    let lever: Vector = map_t_base.translation.vector - map_t_sensor.translation.vector;
    let mut transport = Matrix6::identity();
    transport.fixed_view_mut::<3, 3>(0, 3).copy_from(&-lever.cross_matrix());
    transport * covariance * transport.transpose()
}

/// The covariance in other fixed axes, `new_r_old` being the rotation between them.
pub fn rotate(covariance: &Matrix6<f64>, new_r_old: &Matrix3<f64>) -> Matrix6<f64> {
    let mut turn = Matrix6::zeros();
    turn.fixed_view_mut::<3, 3>(0, 0).copy_from(new_r_old);
    turn.fixed_view_mut::<3, 3>(3, 3).copy_from(new_r_old);
    turn * covariance * turn.transpose()
}

/// Raises a covariance to the smallest standard deviations of the parameters for an input, in every direction
/// and never lowering any, and bounds its diagonal to 1e-9 .. 1e6. Symmetric and positive
/// definite. None: not finite.
pub fn publishable(
    covariance: &Matrix6<f64>,
    input: Input,
    params: &CovarianceParams,
) -> Option<Matrix6<f64>> {
    let [translation_std, rotation_std] = match input {
        Input::Points => [params.scan_translation_std, params.scan_rotation_std],
        _ => [params.min_translation_std, params.min_rotation_std],
    };
    let mut out = raise(covariance, translation_std, rotation_std)?;
    // A congruence with a diagonal matrix bounds the variances and keeps it positive definite.
    // A little below the bound, so that rounding does not pass it.
    let largest = VARIANCE.end() * (1.0 - 1e-9);
    let scale = out.diagonal().map(|variance| (largest / variance).sqrt().min(1.0));
    let scale = Matrix6::from_diagonal(&scale);
    out = scale * out * scale;
    if params.diagonal_only {
        out = Matrix6::from_diagonal(&out.diagonal());
    }
    let bounded = out.diagonal().iter().all(|variance| VARIANCE.contains(variance));
    (bounded && is_finite(&out)).then_some(symmetric(&out))
}

/// At least these standard deviations in every direction: in units of them, eigenvalues below 1
/// become 1. None: not finite.
pub fn raise(covariance: &Matrix6<f64>, translation_std: f64, rotation_std: f64) -> Option<Matrix6<f64>> {
    if !is_finite(covariance) {
        return None;
    }
    let (t, r) = (translation_std, rotation_std);
    let unit = Matrix6::from_diagonal(&Vector6::new(t, t, t, r, r, r));
    let whiten = Matrix6::from_diagonal(&Vector6::new(t, t, t, r, r, r).map(f64::recip));
    let white = symmetric(&(whiten * covariance * whiten));
    let eigen = SymmetricEigen::try_new(white, f64::EPSILON, 1000)?;
    // Adding what is missing, not rebuilding all, leaves alone what is large enough.
    let missing = Matrix6::from_diagonal(&eigen.eigenvalues.map(|value| (1.0 - value).max(0.0)));
    let raised = white + eigen.eigenvectors * missing * eigen.eigenvectors.transpose();
    let out = symmetric(&(unit * raised * unit));
    is_finite(&out).then_some(out)
}

/// Every number is finite.
pub fn is_finite(matrix: &Matrix6<f64>) -> bool {
    matrix.iter().all(|v| v.is_finite())
}

fn symmetric(matrix: &Matrix6<f64>) -> Matrix6<f64> {
    (matrix + matrix.transpose()) * 0.5
}
