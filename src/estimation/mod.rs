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
// `!(x > y)` is meant: what is no number belongs to the side that is refused.
#![allow(clippy::neg_cmp_op_on_partial_ord)]

mod absolute;
mod backend;
mod calibration;
mod columns;
mod consensus;
mod estimator;
#[cfg(feature = "cuda")]
mod gpu;
mod judge;
mod kinds;
mod model;
mod pnp;
mod problem;
mod profile;
mod refine;
mod relative;
mod result;
pub(crate) mod rotation;
mod sampler;
mod scene;
mod search;
#[cfg(feature = "cuda")]
mod self_test;
mod soften;
pub mod solvers;
mod triangulate;
mod trifocal;
mod turning;
mod unique;

pub use estimator::Estimator;
pub use problem::{AbsoluteProblem, AbsoluteRow, Intrinsics, RelativeProblem, RelativeRow, Sight};
pub use result::{Estimation, Reason, StageTimes};
pub use triangulate::{Triangulated, TriangulationProblem, Triangulator};
pub use trifocal::{ThreeViews, Trifocal};
