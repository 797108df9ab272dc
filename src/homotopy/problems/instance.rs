//! Instances of problems, and what they are drawn with.

use super::geometry::Geometry;
use nalgebra::{Complex, Matrix3, Quaternion, UnitQuaternion, Vector3};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Parameters with a known solution.
#[derive(Debug, Clone)]
pub struct Instance {
    /// What was measured: what [`super::Problem::parameters`] makes the parameters of.
    pub measured: Vec<f64>,
    /// The parameters.
    pub parameters: Vec<Complex<f64>>,
    /// The true solution, or a point from which Newton's method goes to it.
    pub near: Vec<Complex<f64>>,
    /// What the true solution says about the scene.
    pub truth: Geometry,
}

impl Instance {
    /// Of a problem whose parameters are what is measured.
    pub(super) fn plain(measured: Vec<f64>, near: Vec<f64>, truth: Geometry) -> Self {
        Self::reduced(measured.clone(), measured, near, truth)
    }

    /// Of a problem whose parameters follow from what is measured.
    pub(super) fn reduced(measured: Vec<f64>, parameters: Vec<f64>, near: Vec<f64>, truth: Geometry) -> Self {
        Self { measured, parameters: complex(&parameters), near: complex(&near), truth }
    }
}

/// Real numbers as complex ones.
pub(super) fn complex(values: &[f64]) -> Vec<Complex<f64>> {
    values.iter().map(|v| Complex::new(*v, 0.0)).collect()
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

/// The vector `x, y, z` with which `1, x, y, z` is a quaternion of the rotation (Cayley).
pub(super) fn to_cayley(q: &UnitQuaternion<f64>) -> [f64; 3] {
    [q.i / q.w, q.j / q.w, q.k / q.w]
}

/// The rotation of `x, y, z, w`.
pub(super) fn rotation(q: &[f64]) -> Option<Matrix3<f64>> {
    let [x, y, z, w] = *q.first_chunk()?;
    let q = UnitQuaternion::try_new(Quaternion::new(w, x, y, z), 1e-12)?;
    Some(q.to_rotation_matrix().into_inner())
}

/// A rotation as a matrix.
pub(super) fn matrix(q: &UnitQuaternion<f64>) -> Matrix3<f64> {
    q.to_rotation_matrix().into_inner()
}
