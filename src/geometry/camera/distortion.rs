//! What a lens does to a ray.

use super::positive::{positive_until, Polynomial, SIZE};
use crate::geometry::Vector;
use nalgebra::{Matrix2, Matrix2x3, Vector2, Vector3};
use std::f64::consts::PI;

/// A model of distortion, as ROS names them; coefficients as OpenCV defines and orders them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distortion {
    /// None: a pinhole.
    None,
    /// `plumb_bob` (Brown, Conrady): k1 k2 p1 p2 k3.
    PlumbBob([f64; 5]),
    /// `rational_polynomial`: k1 k2 p1 p2 k3 k4 k5 k6.
    RationalPolynomial([f64; 8]),
    /// `equidistant` (Kannala, Brandt): k1 k2 k3 k4; for fisheye lenses.
    Equidistant([f64; 4]),
}

impl Distortion {
    /// The coefficients in their order.
    pub fn coefficients(&self) -> &[f64] {
        match self {
            Self::None => &[],
            Self::PlumbBob(d) => d,
            Self::RationalPolynomial(d) => d,
            Self::Equidistant(d) => d,
        }
    }
}

/// A lens of focal length one, and the range of its rays: it maps those one to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lens {
    /// Bends the point where a ray meets the plane z = 1.
    Plane { bending: Bending, max_radius: f64 },
    /// Bends the angle between the ray and the axis.
    Angle { k: [f64; 4], max_angle: f64 },
}

/// Rays farther from the axis (89.994 degrees) have no pixel in a plane.
const MAX_RADIUS: f64 = 1e4;
/// Opposite to the axis every direction sideways is the same.
const MAX_ANGLE: f64 = 0.999_999 * PI;
/// How well a ray has to explain a pixel, per focal length.
const TOLERANCE: f64 = 1e-13;
/// What an iteration cannot improve on.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

impl Lens {
    pub fn new(distortion: &Distortion) -> Self {
        let plane = |k: [f64; 3], l: [f64; 3], p: [f64; 2]| {
            let bending = Bending { k, l, p };
            Self::Plane { bending, max_radius: bending.max_radius().min(MAX_RADIUS) }
        };
        match *distortion {
            Distortion::None => plane([0.0; 3], [0.0; 3], [0.0; 2]),
            Distortion::PlumbBob([k1, k2, p1, p2, k3]) => plane([k1, k2, k3], [0.0; 3], [p1, p2]),
            Distortion::RationalPolynomial([k1, k2, p1, p2, k3, k4, k5, k6]) => {
                plane([k1, k2, k3], [k4, k5, k6], [p1, p2])
            }
            Distortion::Equidistant(k) => {
                let [k1, k2, k3, k4] = k;
                let slope = [1.0, 0.0, 3.0 * k1, 0.0, 5.0 * k2, 0.0, 7.0 * k3, 0.0, 9.0 * k4];
                let slope: Polynomial = std::array::from_fn(|i| slope.get(i).copied().unwrap_or(0.0));
                Self::Angle { k, max_angle: positive_until(&slope).min(MAX_ANGLE) }
            }
        }
    }

    /// Largest angle between the axis and a ray that has an image, rad.
    pub fn max_angle(&self) -> f64 {
        match self {
            Self::Plane { max_radius, .. } => libm::atan(*max_radius),
            Self::Angle { max_angle, .. } => *max_angle,
        }
    }

    /// The image of a ray of any length, in focal lengths from the principal point, and its derivative.
    pub fn bend(&self, ray: &Vector) -> Option<(Vector2<f64>, Matrix2x3<f64>)> {
        match self {
            Self::Plane { bending, max_radius } => {
                let straight = ray.xy() / ray.z;
                if !(ray.z > 0.0 && straight.norm() < *max_radius) {
                    return None;
                }
                let (bent, jacobian) = bending.bend(&straight);
                let (right, down) = (Vector2::x() / ray.z, Vector2::y() / ray.z);
                let plane_by_ray = Matrix2x3::from_columns(&[right, down, -straight / ray.z]);
                Some((bent, jacobian * plane_by_ray))
            }
            Self::Angle { k, max_angle } => bend_angle(k, *max_angle, ray),
        }
    }

    /// The ray, of unit length, that has this image.
    pub fn unbend(&self, bent: &Vector2<f64>) -> Option<Vector> {
        match self {
            Self::Plane { bending, max_radius } => {
                let straight = bending.unbend(bent, *max_radius)?;
                Some(Vector3::new(straight.x, straight.y, 1.0).normalize())
            }
            Self::Angle { k, max_angle } => {
                let radius = bent.norm();
                let angle = invert(|angle| angle_to_radius(k, angle), radius, *max_angle)?;
                let sideways = if radius > 0.0 { bent * (libm::sin(angle) / radius) } else { *bent };
                Some(Vector3::new(sideways.x, sideways.y, libm::cos(angle)))
            }
        }
    }
}

/// The radius at which a ray of some angle is seen through an equidistant lens, and its derivative.
fn angle_to_radius([k1, k2, k3, k4]: &[f64; 4], angle: f64) -> (f64, f64) {
    let s = angle * angle;
    let factor = 1.0 + s * (k1 + s * (k2 + s * (k3 + s * k4)));
    let slope = 1.0 + s * (3.0 * k1 + s * (5.0 * k2 + s * (7.0 * k3 + s * (9.0 * k4))));
    (angle * factor, slope)
}

fn bend_angle(k: &[f64; 4], max_angle: f64, ray: &Vector) -> Option<(Vector2<f64>, Matrix2x3<f64>)> {
    let (length, sideways) = (ray.norm(), ray.xy().norm());
    let angle = libm::atan2(sideways, ray.z);
    if !(length > 0.0 && length.is_finite() && angle < max_angle) {
        return None;
    }
    let (radius, slope) = angle_to_radius(k, angle);
    // On the axis any direction will do for `outward`, and what goes sideways goes as far as what goes outward.
    let (outward, across) = match sideways > 0.0 {
        true => (ray.xy() / sideways, radius / sideways),
        false => (Vector2::x(), slope / length),
    };
    let around = Vector2::new(-outward.y, outward.x);
    // The angle changes with what is at right angles to the ray, in the plane of the ray and the axis.
    let (cos, sin) = (ray.z / length, sideways / length);
    let by_angle = Vector3::new(cos * outward.x, cos * outward.y, -sin) / length;
    let by_turn = Vector3::new(around.x, around.y, 0.0) * across;
    Some((radius * outward, outward * slope * by_angle.transpose() + around * by_turn.transpose()))
}

/// Distortion in the plane z = 1: with `s = x^2 + y^2`, `g = (1 + k1 s + k2 s^2 + k3 s^3) / (1 + l1 s + l2 s^2 + l3
/// s^3)` the point `(x, y)` goes to `(x g + 2 p1 x y + p2 (s + 2 x^2), y g + p1 (s + 2 y^2) + 2 p2 x y)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bending {
    k: [f64; 3],
    l: [f64; 3],
    p: [f64; 2],
}

impl Bending {
    /// Radius of the largest disc known to be mapped one to one.
    ///
    /// The Jacobian is symmetric: the map is the gradient of a function, which is convex where the Jacobian is
    /// positive definite, and the gradient of a convex function on a disc maps it one to one. In the directions
    /// outward and around, with `h = d(r g)/dr` and a share `c` and `s` of `p` outward and around, it is
    /// `[h + 6 c r, 2 s r; 2 s r, g + 2 c r]`. It is positive definite all around a circle if `h > 6 |p| r` and
    /// `3 g > 10 |p| r`: then its determinant is smallest at `c = -|p|`, where it is `(h - 6 |p| r)(g - 2 |p| r)`.
    fn max_radius(&self) -> f64 {
        let even = |[a, b, c]: [f64; 3]| [1.0, 0.0, a, 0.0, b, 0.0, c];
        let slope = |[a, b, c]: [f64; 3]| [0.0, 0.0, 2.0 * a, 0.0, 4.0 * b, 0.0, 6.0 * c];
        let (n, d) = (even(self.k), even(self.l));
        let p = Vector2::from(self.p).norm();
        // All times the denominator d, or its square.
        let (mut radial, squares) = (times(&n, &d), times(&d, &d));
        let (up, down) = (times(&slope(self.k), &d), times(&n, &slope(self.l)));
        for (i, value) in radial.iter_mut().enumerate() {
            let tangential = i.checked_sub(1).map_or(0.0, |i| 6.0 * p * squares[i]);
            *value += up[i] - down[i] - tangential;
        }
        let at = |polynomial: &[f64], i: usize| polynomial.get(i).copied().unwrap_or(0.0);
        let denominator: Polynomial = std::array::from_fn(|i| at(&d, i));
        let around =
            std::array::from_fn(|i| 3.0 * at(&n, i) - i.checked_sub(1).map_or(0.0, |i| 10.0 * p * at(&d, i)));
        [radial, around, denominator].iter().map(positive_until).fold(f64::INFINITY, f64::min)
    }

    /// `g` and `d(r g)/dr` at `s = r^2`, and the derivative of `g` by `s`.
    fn radial(&self, s: f64) -> [f64; 3] {
        let [[k1, k2, k3], [l1, l2, l3]] = [self.k, self.l];
        let denominator = 1.0 + s * (l1 + s * (l2 + s * l3));
        let g = (1.0 + s * (k1 + s * (k2 + s * k3))) / denominator;
        let up = k1 + s * (2.0 * k2 + s * (3.0 * k3));
        let down = l1 + s * (2.0 * l2 + s * (3.0 * l3));
        let slope = (up - g * down) / denominator;
        [g, g + 2.0 * s * slope, slope]
    }

    /// Where a point goes, and the derivative.
    fn bend(&self, straight: &Vector2<f64>) -> (Vector2<f64>, Matrix2<f64>) {
        let (x, y) = (straight.x, straight.y);
        let [p1, p2] = self.p;
        let s = x * x + y * y;
        let [g, _, slope] = self.radial(s);
        let bent = Vector2::new(
            x * g + 2.0 * p1 * x * y + p2 * (s + 2.0 * x * x),
            y * g + p1 * (s + 2.0 * y * y) + 2.0 * p2 * x * y,
        );
        let mixed = 2.0 * x * y * slope + 2.0 * p1 * x + 2.0 * p2 * y;
        let jacobian = Matrix2::new(
            g + 2.0 * x * x * slope + 2.0 * p1 * y + 6.0 * p2 * x,
            mixed,
            mixed,
            g + 2.0 * y * y * slope + 6.0 * p1 * y + 2.0 * p2 * x,
        );
        (bent, jacobian)
    }

    /// The point of the disc that goes to `bent`, if there is one: it is the minimum of a convex function, which
    /// Newton's method finds as long as no step is taken that leaves the disc or makes the error larger.
    fn unbend(&self, bent: &Vector2<f64>, max_radius: f64) -> Option<Vector2<f64>> {
        let target = bent.norm();
        let radial = |r: f64| {
            let [g, h, _] = self.radial(r * r);
            (r * g, h)
        };
        let farthest = radial(max_radius).0 + 3.0 * Vector2::from(self.p).norm() * max_radius * max_radius;
        let within = target < farthest;
        if !within {
            return None;
        }
        // Without p1 and p2 this is the answer.
        let radius = invert(radial, target, max_radius).unwrap_or(0.99 * max_radius);
        let mut straight = if target > 0.0 { bent * (radius / target) } else { *bent };
        let (mut image, mut jacobian) = self.bend(&straight);
        let mut error = (image - bent).norm();
        for _ in 0..MAX_STEPS {
            if error <= ROUNDING * (1.0 + target) {
                break;
            }
            let mut step = jacobian.try_inverse()? * (bent - image);
            let better = (0..MAX_STEPS).find_map(|_| {
                let there = straight + step;
                step *= 0.5;
                let (image, jacobian) = self.bend(&there);
                let left = (image - bent).norm();
                (there.norm() < max_radius && left < error).then_some((there, image, jacobian, left))
            });
            let Some(better) = better else { break };
            (straight, image, jacobian, error) = better;
        }
        (error <= TOLERANCE * (1.0 + target) && straight.norm() < max_radius).then_some(straight)
    }
}

/// Steps of an iteration, and halvings of a step: some five are enough for usual lenses.
const MAX_STEPS: usize = 30;

/// The argument in `[0, max)` at which a rising function, zero at zero, has this value. `function` gives value and
/// slope.
fn invert(function: impl Fn(f64) -> (f64, f64), value: f64, max: f64) -> Option<f64> {
    let within = value < function(max).0;
    if !within {
        return None;
    }
    let (mut low, mut high) = (0.0, max);
    let mut at = value.min(0.5 * max);
    for _ in 0..4 * MAX_STEPS {
        let (there, slope) = function(at);
        if (there - value).abs() <= ROUNDING * value {
            return Some(at);
        }
        match there < value {
            true => low = at,
            false => high = at,
        }
        let newton = at - (there - value) / slope;
        at = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
    }
    ((function(at).0 - value).abs() <= TOLERANCE * (1.0 + value)).then_some(at)
}

/// Product of two polynomials.
fn times(a: &[f64; 7], b: &[f64; 7]) -> Polynomial {
    let mut product = [0.0; SIZE];
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            product[i + j] += a * b;
        }
    }
    product
}
