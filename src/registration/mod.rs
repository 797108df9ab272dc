//! FlashReg: the pose from 3D-3D correspondences by the search for 3-cliques in a compatibility
//! graph.
//!
//! [`Problem`] (input) -> [`Registrar`] -> [`Registration`] (result with a status).

pub(crate) mod acceptance;
pub mod bounded;
mod candidates;
pub mod cliques;
mod cpu;
mod examine;
mod findings;
mod finish;
pub mod fog;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod hypotheses;
pub mod lanes;
pub mod layout;
pub mod pivots;
mod problem;
pub mod refine;
mod registrar;
mod result;
#[cfg(feature = "cuda")]
mod self_test;
pub(crate) mod sums;
mod uncertainty;

pub use problem::{Correspondence, Problem};
pub use registrar::{BackendError, Registrar};
pub use result::{Reason, Registration, RunnerUp, StageTimes, Truncation};
