//! Instances of problems, and what they are drawn with.

use crate::geometry::Pose;
use nalgebra::{Complex, Matrix3, Quaternion, UnitQuaternion, Vector3};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Parameters with a known solution.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The parameters.
    pub parameters: Vec<Complex<f64>>,
    /// The true solution, or a point from which Newton's method goes to it.
    pub near: Vec<Complex<f64>>,
    /// The true pose, where the problem is to find one and its roots tell it.
    pub pose: Option<Pose>,
}

impl Instance {
    /// From real numbers.
    pub(super) fn real(parameters: Vec<f64>, near: Vec<f64>, pose: Option<Pose>) -> Self {
        let complex = |v: Vec<f64>| v.into_iter().map(|v| Complex::new(v, 0.0)).collect();
        Self { parameters: complex(parameters), near: complex(near), pose }
    }
}

/// A stream of random numbers, the same on every machine.
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Uniform between two bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random::<f64>()
    }

    /// Normal with mean 0.
    pub fn normal(&mut self, sigma: f64) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.0.random::<f64>())).sqrt();
        sigma * radius * libm::cos(std::f64::consts::TAU * self.0.random::<f64>())
    }

    /// Normal in each coordinate.
    pub fn vector(&mut self, sigma: f64) -> Vector3<f64> {
        Vector3::new(self.normal(sigma), self.normal(sigma), self.normal(sigma))
    }

    /// Any rotation.
    pub fn rotation(&mut self) -> UnitQuaternion<f64> {
        let v = self.vector(1.0);
        UnitQuaternion::from_quaternion(Quaternion::new(self.normal(1.0), v.x, v.y, v.z))
    }

    /// A rotation by up to `angle` (rad) about each axis.
    pub fn turn(&mut self, angle: f64) -> UnitQuaternion<f64> {
        let mut some = || self.between(-angle, angle);
        UnitQuaternion::from_euler_angles(some(), some(), some())
    }

    /// A point in view of a camera: depth 2 to 8, 62 degrees to all sides.
    pub fn seen(&mut self) -> Vector3<f64> {
        let depth = self.between(2.0, 8.0);
        Vector3::new(self.between(-0.6, 0.6) * depth, self.between(-0.6, 0.6) * depth, depth)
    }
}

/// `x, y, z, w`
pub(super) fn quaternion(q: &UnitQuaternion<f64>) -> [f64; 4] {
    [q.i, q.j, q.k, q.w]
}

/// The rotation of `x, y, z, w`.
pub(super) fn rotation(q: &[f64]) -> Option<Matrix3<f64>> {
    let [x, y, z, w] = *q.first_chunk()?;
    let q = UnitQuaternion::try_new(Quaternion::new(w, x, y, z), 1e-12)?;
    Some(q.to_rotation_matrix().into_inner())
}

/// Three numbers of a list.
pub(super) fn vector(values: &[f64], at: usize) -> Option<Vector3<f64>> {
    values.get(at..at + 3).map(Vector3::from_column_slice)
}
