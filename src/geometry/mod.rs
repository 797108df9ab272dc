//! Rigid transforms, alignment of point sets, cameras.

mod align;
mod camera;

pub use align::{align_three, align_three_about, pose_error, Moments, Pose, Vertical};
pub use camera::{Camera, CameraError, Distortion};

/// A rigid transform in double precision.
pub type Rigid = nalgebra::Isometry3<f64>;
/// A point in double precision.
pub type Point = nalgebra::Point3<f64>;
/// A vector in double precision.
pub type Vector = nalgebra::Vector3<f64>;

/// Linear in the translation, along the great arc in the rotation; `share` 0 gives `a`, 1 gives `b`.
pub fn interpolate(a: &Rigid, b: &Rigid, share: f64) -> Rigid {
    let translation = a.translation.vector.lerp(&b.translation.vector, share);
    // Of no use only where both rotations are equal but for rounding.
    let rotation = a.rotation.try_slerp(&b.rotation, share, 1e-12).unwrap_or(a.rotation);
    Rigid::from_parts(translation.into(), rotation)
}
