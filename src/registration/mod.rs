//! FlashReg: the pose from 3D-3D correspondences by the search for 3-cliques in a compatibility
//! graph.
//!
//! [`Problem`] (input) -> [`Registrar`] -> [`Registration`] (result with a status).

mod problem;
mod registrar;
mod result;

pub use problem::{Correspondence, Problem};
pub use registrar::{BackendError, Registrar};
pub use result::{Reason, Registration, RunnerUp, StageTimes, Truncation};
