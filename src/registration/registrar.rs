//! Chooses the backend and runs registrations.

use super::cpu::Cpu;
use super::{Problem, Registration};
use crate::params::{BackendChoice, Params};

/// Something that registers: the same numbers out of every one.
pub(super) trait Backend: Send {
    /// Its name in results and diagnostics.
    fn name(&self) -> &'static str;
    /// Threads of the CPU that compute.
    fn threads(&self) -> usize;
    /// Registers one problem into `result`, reusing its buffers.
    fn register(&mut self, problem: &Problem, params: &Params, result: &mut Registration);
}

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
    backend: Box<dyn Backend>,
    why: String,
    result: Registration,
}

impl Registrar {
    /// Chooses the backend (`backend.kind`) and makes its memory.
    pub fn new(params: &Params) -> Result<Self, BackendError> {
        const NO_KERNELS: &str = "this version has no CUDA kernels for the registration";
        let why = match params.backend.kind {
            BackendChoice::Cuda => return Err(BackendError::NoCuda(NO_KERNELS.to_owned())),
            BackendChoice::Cpu => "backend.kind is cpu",
            BackendChoice::Auto => NO_KERNELS,
        };
        Ok(Self {
            backend: Box::new(Cpu::new(params)?),
            why: why.to_owned(),
            result: Registration::default(),
        })
    }

    /// Registers one problem. Live parameters are taken as given; those read at start are as they
    /// were in [`Registrar::new`].
    pub fn register(&mut self, problem: &Problem, params: &Params) -> &Registration {
        self.backend.register(problem, params, &mut self.result);
        &self.result
    }

    /// `cpu` or `cuda`.
    pub fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// Threads of the CPU that compute.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Why this backend was chosen, for the log and `/diagnostics`.
    pub fn why(&self) -> &str {
        &self.why
    }
}
