//! Which backend computes: chosen at start, and again after an error of the GPU.

use super::GpuError;
use crate::params::{BackendChoice, OnFault};

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

/// A CUDA backend, tested, and what was taken.
pub(crate) type Made<T> = (T, String);

/// What `backend.kind` asks for: what `cuda` makes, or nothing where the CPU is to compute; and why.
pub(crate) fn choose<T>(
    choice: BackendChoice,
    cuda: impl FnOnce() -> Result<Made<T>, GpuError>,
) -> Result<(Option<T>, String), BackendError> {
    let some = |(made, what)| (Some(made), what);
    match choice {
        BackendChoice::Cpu => Ok((None, "backend.kind is cpu".to_owned())),
        BackendChoice::Cuda => cuda().map(some).map_err(|e| BackendError::NoCuda(e.to_string())),
        BackendChoice::Auto => Ok(cuda().map_or_else(|e| (None, e.to_string()), some)),
    }
}

/// Errors of the GPU so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    count: u64,
    lost: Option<String>,
}

/// What computes after an error of the GPU, and why.
#[derive(Debug, PartialEq)]
pub(crate) enum Next<T> {
    /// The GPU, made anew.
    Cuda(T, String),
    /// The CPU.
    Cpu(String),
    /// Nothing: the GPU is lost.
    Nothing,
}

impl Faults {
    /// After an error: the GPU as `remake` makes it, once, then what `backend.on_fault` says. What failed has
    /// to be dropped before.
    pub fn next<T>(
        &mut self,
        error: &GpuError,
        on_fault: OnFault,
        remake: impl FnOnce() -> Result<Made<T>, GpuError>,
    ) -> Next<T> {
        if self.lost.is_some() {
            return Next::Nothing;
        }
        self.count += 1;
        log::error!("the CUDA backend failed: {error}");
        let why = match self.count {
            1 => match remake() {
                Ok((made, what)) => {
                    log::warn!("the CUDA backend was made anew");
                    return Next::Cuda(made, format!("{what}; made anew after: {error}"));
                }
                Err(e) => format!("CUDA failed ({error}) and then: {e}"),
            },
            _ => format!("CUDA failed {} times, last: {error}", self.count),
        };
        match on_fault {
            OnFault::Exit => {
                log::error!("the GPU is lost: {why}");
                self.lost = Some(why);
                Next::Nothing
            }
            OnFault::Cpu => {
                log::error!("the CPU takes over: {why}");
                Next::Cpu(why)
            }
        }
    }

    /// Errors so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Why the GPU is lost for good, with `backend.on_fault` exit.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }
}
