//! Rotations by vectors, with the same bits on every machine.

use crate::geometry::Vector;
use nalgebra::Matrix3;

/// The rotation by a vector (Rodrigues' formula).
pub(crate) fn exp(w: &Vector) -> Matrix3<f64> {
    let angle2 = w.norm_squared();
    let angle = angle2.sqrt();
    let (a, b) = match angle < 1e-4 {
        true => (1.0 - angle2 / 6.0, 0.5 - angle2 / 24.0),
        false => (libm::sin(angle) / angle, (1.0 - libm::cos(angle)) / angle2),
    };
    let k = w.cross_matrix();
    orthonormal(&(Matrix3::identity() + k * a + k * k * b))
}

/// The vector of a rotation, shorter than or as long as pi.
pub(crate) fn log(r: &Matrix3<f64>) -> Vector {
    let twice_sine = Vector::new(r[(2, 1)] - r[(1, 2)], r[(0, 2)] - r[(2, 0)], r[(1, 0)] - r[(0, 1)]);
    let (sine, cosine) = (twice_sine.norm() * 0.5, (r.trace() - 1.0) * 0.5);
    let angle = libm::atan2(sine, cosine);
    if sine > 1e-6 {
        return twice_sine * (angle / (2.0 * sine));
    }
    if cosine > 0.0 {
        return twice_sine * 0.5;
    }
    // Half a turn: the axis is the column of R + 1 that is longest.
    let m = r + Matrix3::identity();
    let longest = (0..3).map(|i| m.column(i).into_owned()).fold(Vector::zeros(), |a, b| {
        if b.norm_squared() > a.norm_squared() {
            b
        } else {
            a
        }
    });
    longest.try_normalize(1e-12).unwrap_or_else(Vector::x) * angle
}

/// Against what rounding adds up to over many steps.
fn orthonormal(r: &Matrix3<f64>) -> Matrix3<f64> {
    // One step of Newton's method for the nearest rotation.
    r * (Matrix3::identity() * 1.5 - r.transpose() * r * 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_gives_back_the_vector() {
        for angle in [0.0, 1e-12, 1e-7, 1e-4, 0.3, 2.0, 3.1, std::f64::consts::PI - 1e-9] {
            for axis in [Vector::x(), -Vector::y(), Vector::new(0.6, -0.48, 0.64)] {
                let w = axis * angle;
                let r = exp(&w);
                assert!((r.transpose() * r - Matrix3::identity()).norm() < 1e-14);
                let back = log(&r);
                // Near half a turn both directions of the axis are the same rotation.
                let error = (back - w).norm().min((back + w).norm() + (std::f64::consts::PI - angle));
                assert!(error < 1e-8, "{w} {back}");
            }
        }
    }
}
