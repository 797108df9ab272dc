//! Camera poses from features: minimal solvers inside a robust loop.
//!
//! ```text
//! problem -> samples -> minimal solver -> hypotheses -> score over all rows -> local optimisation
//!         -> refinement, covariance, runner-up -> acceptance -> Estimation (result with a status)
//! ```
//!
//! Conventions: the optical frame looks along +z, x to the right and y down in the image. `target_t_source` of an
//! absolute problem is `map_t_camera`; of a relative one `reference_t_camera`, its translation of length one.
//! A residual is a vector of two numbers in units of the inlier threshold, so that an inlier has a length of at
//! most one whatever the camera: see [`Sight`].

mod absolute;
mod calibration;
mod columns;
mod consensus;
mod estimator;
mod judge;
mod model;
mod problem;
mod refine;
mod relative;
mod result;
mod rotation;
mod sampler;
mod scene;
mod search;
mod soften;
pub mod solvers;
mod unique;

pub use estimator::Estimator;
pub use problem::{AbsoluteProblem, AbsoluteRow, RelativeProblem, RelativeRow, Sight};
pub use result::{Estimation, Reason, StageTimes};
