//! How uncertain a refined pose is.

use super::findings::Information;
use super::refine::inertia;
use crate::geometry::{Pose, Vector};
use nalgebra::{Matrix3, Matrix6, SymmetricEigen};

/// How uncertain a refined pose is.
#[derive(Debug, Clone, Copy)]
pub struct Uncertainty {
    /// Order x y z (m), rotation about the fixed axes of the target frame at the origin of the
    /// source frame (rad).
    pub covariance: Matrix6<f64>,
    /// Standard deviations in the weakest direction: translation m, rotation rad. The translation
    /// is that of the source's origin or, where this lies outside all correspondences, of the
    /// point nearest to it in the ball around them: an origin far away, as that of a map, makes
    /// no pose worse.
    pub weakest: [f64; 2],
}

/// Uncertainty of a refined pose: `sigma^2 (J^T W J)^-1` over the correspondences of influence,
/// sigma from their residuals. `source_origin`: of the centred source frame; `up`: the vertical of
/// the target frame, if it is known. `None` if a direction is not fixed at all.
pub fn uncertainty(
    sums: &Information,
    pose: &Pose,
    source_origin: &Vector,
    up: Option<Vector>,
) -> Option<Uncertainty> {
    // Effective number of residual coordinates above the six (four) unknowns.
    let unknowns = if up.is_some() { 4.0 } else { 6.0 };
    let freedom = (3.0 * sums.count - unknowns) / (3.0 * sums.count);
    if sums.count < 3.0 || freedom <= 0.0 || sums.weight <= 0.0 {
        return None;
    }
    let variance = sums.error / (3.0 * sums.weight) / freedom;
    // About the centroid translation and rotation do not mix, and no digits cancel however far
    // away the origin is.
    let centre = Vector::from(sums.point) / sums.weight;
    let [xx, yy, zz, xy, xz, yz] = inertia(&centre.into(), &sums.point, &sums.product);
    let inertia = Matrix3::new(xx, xy, xz, xy, yy, yz, xz, yz, zz);
    let of_turn = match up {
        None => inertia.cholesky()?.inverse(),
        Some(up) => {
            let about = up.dot(&(inertia * up));
            if about.is_nan() || about <= 0.0 {
                return None;
            }
            up * up.transpose() / about
        }
    };
    // Correspondences of less influence carry less information, but their errors are as large:
    // the sandwich of an M-estimator, to first order.
    let mut about_centre = Matrix6::zeros();
    about_centre.fixed_view_mut::<3, 3>(0, 0).copy_from(&(Matrix3::identity() * (variance / sums.weight)));
    about_centre.fixed_view_mut::<3, 3>(3, 3).copy_from(&(of_turn * variance));
    let about = |p: &Vector| moved(&about_centre, &(pose.apply(p) - centre));
    let origin = -source_origin;
    let covariance = about(&origin);
    let radius = sums.radius2.sqrt();
    let judged = match origin.norm() > radius {
        true => about(&(origin * (radius / origin.norm()))),
        false => covariance,
    };
    let largest = |k: usize| {
        let block: Matrix3<f64> = judged.fixed_view::<3, 3>(k, k).into_owned();
        // Bounded: the iteration of `symmetric_eigenvalues` has no end of its own.
        let eigen = SymmetricEigen::try_new(block, f64::EPSILON, 200)?;
        Some(eigen.eigenvalues.max().max(0.0).sqrt())
    };
    let weakest = [largest(0)?, largest(3)?];
    covariance.iter().all(|v| v.is_finite()).then_some(Uncertainty { covariance, weakest })
}

/// The covariance of the same motion with the translation taken at a point `by` away.
fn moved(covariance: &Matrix6<f64>, by: &Vector) -> Matrix6<f64> {
    let mut change = Matrix6::identity();
    change.fixed_view_mut::<3, 3>(0, 3).copy_from(&-by.cross_matrix());
    let moved = change * covariance * change.transpose();
    (moved + moved.transpose()) * 0.5
}
