//! Normals of a surface from the points around each of its points.

use super::neighbours::Grid;
use crate::geometry::{Point, Vector};
use nalgebra::Matrix3;

/// Neighbours, itself among them, that a normal needs at least.
const MIN_NEIGHBOURS: usize = 5;

/// Largest share of the smallest spread (variance) of the neighbours in the middle one: more is no surface.
const MAX_FLATNESS: f64 = 0.5;

/// Least share of the middle spread in the largest one: less is a line, round which any normal would do.
const MIN_WIDTH: f64 = 0.01;

/// The normal at point `center` of the grid: the direction in which its neighbours spread least, turned towards
/// `viewpoint`, and with a largest component that is positive where there is none. Zero where the neighbours are too
/// few, or lie along a line or all around.
pub(super) fn normal(grid: &Grid, center: usize, viewpoint: Option<&Point>) -> Vector {
    let (mut count, mut sum) = (0, Vector::zeros());
    let (mut xx, mut xy, mut xz, mut yy, mut yz, mut zz) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    grid.visit(center, |_, d, _| {
        count += 1;
        sum += d;
        xx += d.x * d.x;
        xy += d.x * d.y;
        xz += d.x * d.z;
        yy += d.y * d.y;
        yz += d.y * d.z;
        zz += d.z * d.z;
    });
    if count < MIN_NEIGHBOURS {
        return Vector::zeros();
    }
    let n = count as f64;
    let mean = sum / n;
    let covariance = Matrix3::new(xx, xy, xz, xy, yy, yz, xz, yz, zz) / n - mean * mean.transpose();
    let Some(normal) = least_direction(&covariance) else { return Vector::zeros() };
    let towards = match (viewpoint, grid.points().get(center)) {
        (Some(viewpoint), Some(point)) => (viewpoint - point).dot(&normal),
        _ => normal[normal.iamax()],
    };
    if towards < 0.0 {
        -normal
    } else {
        normal
    }
}

/// The unit eigenvector of the smallest eigenvalue of a covariance; none where the points lie along a line or
/// all around.
fn least_direction(m: &Matrix3<f64>) -> Option<Vector> {
    let trace = m.trace();
    if !(trace > 0.0 && trace.is_finite()) {
        return None;
    }
    // With trace 1: l^3 - l^2 + minors * l - determinant = 0.
    let m = m / trace;
    let minors =
        m.m11 * m.m22 - m.m12 * m.m12 + m.m11 * m.m33 - m.m13 * m.m13 + m.m22 * m.m33 - m.m23 * m.m23;
    let determinant = m.determinant();
    // Newton's method from below: the cubic is concave there, so it comes ever nearer and never goes beyond.
    let mut least = 0.0;
    for _ in 0..NEWTON_STEPS {
        let value = ((least - 1.0) * least + minors) * least - determinant;
        let slope = (3.0 * least - 2.0) * least + minors;
        if value >= 0.0 || slope <= 0.0 {
            break;
        }
        let step = value / slope;
        least -= step;
        if -step < 1e-12 {
            break;
        }
    }
    // The other two: their sum and their product (minors = least * sum + product).
    let sum = 1.0 - least;
    let product = minors - least * sum;
    let root = (0.25 * sum * sum - product).max(0.0).sqrt();
    let (middle, largest) = (0.5 * sum - root, 0.5 * sum + root);
    if !(middle > MIN_WIDTH * largest && least <= MAX_FLATNESS * middle) {
        return None;
    }
    // Rows of m - least are at right angles to it; of their products the longest is the most exact.
    let rows = m - Matrix3::identity() * least;
    let [a, b, c] = [0, 1, 2].map(|i| Vector::from(rows.row(i).transpose()));
    let crosses = [a.cross(&b), b.cross(&c), c.cross(&a)];
    let lengths = crosses.map(|v| v.norm_squared());
    let longest = (0..3).fold(0, |best, i| if lengths[i] > lengths[best] { i } else { best });
    let norm = lengths[longest].sqrt();
    (norm > 0.0).then(|| crosses[longest] / norm)
}

/// More than it ever takes but at a double root, where the last digits do not matter.
const NEWTON_STEPS: usize = 50;
