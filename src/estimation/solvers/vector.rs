//! Products of vectors and matrices of three, written out in the order in which they are rounded.

use crate::geometry::Vector;

pub(super) type Vector3 = [f64; 3];
/// Rows.
pub(super) type Matrix3 = [[f64; 3]; 3];

pub(super) fn array(v: &Vector) -> Vector3 {
    [v.x, v.y, v.z]
}

pub(super) fn dot(a: &Vector3, b: &Vector3) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(super) fn cross(a: &Vector3, b: &Vector3) -> Vector3 {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

pub(super) fn scaled(a: &Vector3, s: f64) -> Vector3 {
    [a[0] * s, a[1] * s, a[2] * s]
}

pub(super) fn minus(a: &Vector3, b: &Vector3) -> Vector3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// Of length one; `None` if the length is zero or no number.
pub(super) fn unit(a: &Vector3) -> Option<Vector3> {
    let length = dot(a, a).sqrt();
    (length > 0.0).then(|| scaled(a, 1.0 / length))
}

/// The longest of three vectors.
pub(super) fn longest(a: [Vector3; 3]) -> Vector3 {
    let squares = [dot(&a[0], &a[0]), dot(&a[1], &a[1]), dot(&a[2], &a[2])];
    let [first, second, third] = a;
    if squares[0] >= squares[1] && squares[0] >= squares[2] {
        first
    } else if squares[1] >= squares[2] {
        second
    } else {
        third
    }
}

pub(super) fn times(m: &Matrix3, v: &Vector3) -> Vector3 {
    [dot(&m[0], v), dot(&m[1], v), dot(&m[2], v)]
}
