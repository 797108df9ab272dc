//! Rigid transforms and alignment of point sets.

mod align;

pub use align::{align_three, align_three_about, pose_error, Moments, Pose, Vertical};

/// A rigid transform in double precision.
pub type Rigid = nalgebra::Isometry3<f64>;
/// A point in double precision.
pub type Point = nalgebra::Point3<f64>;
/// A vector in double precision.
pub type Vector = nalgebra::Vector3<f64>;
