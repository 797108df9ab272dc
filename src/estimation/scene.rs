//! How features and points lie.

use crate::geometry::Vector;
use crate::registration::sums::{symmetric_eigen, AXES, SWEEPS};
use nalgebra::{Matrix2x3, Matrix3, Matrix3x2};

/// Inliers in one cell of this many thresholds are one piece of evidence.
const CELL: f64 = 2.0;
/// Reweightings of the line through most points.
const LINES: usize = 6;

/// The threshold of a feature as an angle, rad.
pub(crate) fn angle(metric: &Matrix2x3<f64>) -> f64 {
    (2.0 / metric.norm_squared()).sqrt()
}

/// The changes of direction of one threshold: `metric * tangents` is one, `bearing . tangents` zero. `None`:
/// the metric has no such directions.
pub(crate) fn tangents(metric: &Matrix2x3<f64>) -> Option<Matrix3x2<f64>> {
    let [a, b, d] =
        [metric.row(0).norm_squared(), metric.row(0).dot(&metric.row(1)), metric.row(1).norm_squared()];
    let det = a * d - b * b;
    let inverse = nalgebra::Matrix2::new(d, -b, -b, a) / det;
    let t = metric.transpose() * inverse;
    t.iter().all(|v| v.is_finite()).then_some(t)
}

/// The cell of a direction, for a threshold as an angle: cells of a cube around the camera.
pub(crate) fn cell(bearing: &Vector, angle: f64) -> [i64; 2] {
    let face = bearing.iamax();
    let size = bearing[face];
    let at = |k: usize| (bearing[(face + k) % 3] / (size.abs() * CELL * angle)).floor() as i64;
    let face = (face as i64) * 2 + i64::from(size < 0.0);
    [(face << 48) + at(1), at(2)]
}

/// How many are different.
pub(crate) fn count_distinct(cells: impl Iterator<Item = [i64; 2]>, work: &mut Vec<[i64; 2]>) -> usize {
    work.clear();
    work.extend(cells);
    work.sort_unstable();
    work.dedup();
    work.len()
}

/// Centroid, eigenvalues of the scatter (variances), largest first, and their axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scatter {
    pub centroid: Vector,
    pub values: [f64; 3],
    pub axes: [Vector; 3],
}

/// Scatter of weighted points; `None` without weight.
pub(crate) fn scatter(points: impl Iterator<Item = (f64, Vector)> + Clone) -> Option<Scatter> {
    let (total, sum) = points.clone().fold((0.0, Vector::zeros()), |(w, s), (v, p)| (w + v, s + p * v));
    if !(total > 0.0) {
        return None;
    }
    let centroid = sum / total;
    let mut m = [0.0; 6];
    for (w, p) in points {
        let d = p - centroid;
        let products = [d.x * d.x, d.y * d.y, d.z * d.z, d.x * d.y, d.x * d.z, d.y * d.z];
        m.iter_mut().zip(products).for_each(|(m, product)| *m += w * product);
    }
    let m = m.map(|m| m / total);
    if !m.iter().all(|v| v.is_finite()) {
        return None;
    }
    let (values, axes) = symmetric_eigen(&m, AXES, SWEEPS);
    Some(Scatter { centroid, values: values.map(|v| v.max(0.0)), axes: axes.map(Vector::from) })
}

/// Counts the points that are not on the line through most of them. A point comes with the length that counts
/// as one threshold at its place.
pub(crate) fn off_line(points: impl Iterator<Item = (Vector, f64)> + Clone) -> usize {
    let beside = |line: &Scatter, p: &Vector, unit: f64| {
        let d = p - line.centroid;
        (d - line.axes[0] * line.axes[0].dot(&d)).norm() / unit
    };
    let mut line = scatter(points.clone().map(|(p, _)| (1.0, p)));
    for _ in 0..LINES {
        let Some(last) = line else { return 0 };
        // Reweighted, so that a few points off a line do not hide it.
        let weighted = points.clone().map(|(p, unit)| {
            let r = beside(&last, &p, unit);
            (1.0 / ((1.0 + r * r) * (1.0 + r * r)), p)
        });
        line = scatter(weighted);
    }
    line.map_or(0, |line| points.filter(|(p, unit)| beside(&line, p, *unit) > 1.0).count())
}

/// Root of the largest eigenvalue of a symmetric matrix; infinite if it is not finite.
pub(crate) fn largest_deviation(m: &Matrix3<f64>) -> f64 {
    let entries = [m[(0, 0)], m[(1, 1)], m[(2, 2)], m[(0, 1)], m[(0, 2)], m[(1, 2)]];
    match entries.iter().all(|v| v.is_finite()) {
        true => symmetric_eigen(&entries, AXES, SWEEPS).0[0].max(0.0).sqrt(),
        false => f64::INFINITY,
    }
}

/// Counts the directions that are not on the great circle through most of them: a line of the image. A direction
/// comes with the angle that counts as one threshold.
pub(crate) fn off_circle(bearings: impl Iterator<Item = (Vector, f64)> + Clone) -> usize {
    let mut pole: Option<Vector> = None;
    for _ in 0..LINES {
        let weighted = bearings.clone().flat_map(|(b, unit)| {
            let r = pole.map_or(0.0, |pole| pole.dot(&b) / unit);
            let w = 1.0 / ((1.0 + r * r) * (1.0 + r * r));
            // Both ends of the axis, so that the centroid is the origin.
            [(w, b), (w, -b)]
        });
        match scatter(weighted) {
            Some(found) => pole = Some(found.axes[2]),
            None => return 0,
        }
    }
    pole.map_or(0, |pole| bearings.filter(|(b, unit)| pole.dot(b).abs() > *unit).count())
}
