//! Chooses the solver and the backend and runs estimations.

use super::absolute::Absolute;
use super::backend::Backend;
use super::consensus::{Clock, Consensus};
use super::judge::{Judge, Task};
use super::kinds::Kinds;
use super::model::{Model, Search};
use super::relative::Relative;
use super::{AbsoluteProblem, Estimation, Reason, RelativeProblem};
use crate::geometry::Pose;
use crate::gpu::device::DeviceMemory;
use crate::params::Params;
use crate::registration::lanes::{Deadline, Stop};
use crate::registration::BackendError;
use crate::status::Status;
use std::sync::Arc;

/// Runs estimations. Memory is made for `camera.max_correspondences` and reused.
///
/// A CUDA error during an estimation gives [`Status::GpuFault`] for that frame. The backend is then made anew.
/// If it cannot be, and after the second error, the CPU takes its place; or, with `backend.on_fault` exit, the
/// GPU stays lost ([`Estimator::lost`]) and every frame is a fault.
pub struct Estimator {
    pool: Arc<rayon::ThreadPool>,
    capacity: usize,
    absolute: Absolute,
    relative: Relative,
    search: Backend,
    consensus: Consensus<Pose>,
    judge: Judge<Pose>,
    kinds: Kinds,
    result: Estimation,
}

impl Estimator {
    /// Chooses solver (`camera.solver`) and backend (`backend.kind`) and makes the memory.
    ///
    /// # Errors
    /// The backend that was asked for cannot be had.
    pub fn new(params: &Params) -> Result<Self, BackendError> {
        let capacity = params.camera.max_correspondences.max(0) as usize;
        let threads = params.backend.threads.max(0) as usize;
        let name = |i| format!("flashreg-camera-{i}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build();
        let pool = Arc::new(pool.map_err(|e| BackendError::Threads(e.to_string()))?);
        Ok(Self {
            capacity,
            absolute: Absolute::with_capacity(capacity),
            relative: Relative::with_capacity(capacity),
            search: Backend::new(params, pool.clone())?,
            kinds: Kinds::new(params, capacity, &pool)?,
            pool,
            consensus: Consensus::with_capacity(capacity),
            judge: Judge::with_capacity(capacity),
            result: Estimation::default(),
        })
    }

    /// Estimates `map_t_camera`. Live parameters are taken as given; those read at start are as they were in
    /// [`Estimator::new`].
    pub fn absolute(&mut self, problem: &AbsoluteProblem, params: &Params) -> &Estimation {
        let mut clock = Clock::start();
        let n = problem.rows().len();
        self.result.reset(n);
        if n <= self.capacity {
            let Self { pool, absolute, search, consensus, judge, kinds, result, .. } = self;
            pool.install(|| {
                if kinds.absolute(problem, params, &mut clock, result) {
                    return;
                }
                absolute.load(problem);
                clock.lap(|s| &mut s.sample);
                run(absolute, search, consensus, judge, params, &mut clock, result);
            });
            search.settle();
        } else {
            self.refuse(n);
        }
        &self.result
    }

    /// Estimates `reference_t_camera`.
    pub fn relative(&mut self, problem: &RelativeProblem, params: &Params) -> &Estimation {
        let mut clock = Clock::start();
        let n = problem.rows().len();
        self.result.reset(n);
        if n <= self.capacity {
            let Self { pool, relative, search, consensus, judge, kinds, result, .. } = self;
            pool.install(|| {
                if kinds.relative(problem, params, &mut clock, result) {
                    return;
                }
                relative.load(problem);
                clock.lap(|s| &mut s.sample);
                run(relative, search, consensus, judge, params, &mut clock, result);
            });
            search.settle();
        } else {
            self.refuse(n);
        }
        &self.result
    }

    fn refuse(&mut self, n: usize) {
        let reason = Reason::TooMany { got: n, max: self.capacity };
        (self.result.status, self.result.reason) = (Status::BadInput, reason);
    }

    /// `cpu` or `cuda`.
    pub fn backend(&self) -> &'static str {
        self.search.kind()
    }

    /// Why this backend was chosen, for the log and `/diagnostics`; for CUDA also the device.
    pub fn why(&self) -> &str {
        self.search.why()
    }

    /// Memory of the device that the CUDA backend takes; none with the CPU.
    pub fn memory(&self) -> Option<DeviceMemory> {
        self.search.memory()
    }

    /// Why the GPU is lost for good, with `backend.on_fault` exit: the program should end.
    pub fn lost(&self) -> Option<&str> {
        self.search.faults().lost()
    }

    /// Errors of the GPU so far.
    pub fn faults(&self) -> u64 {
        self.search.faults().count()
    }
}

/// Runs the loop on a model that is loaded.
pub(super) fn run<M: Model>(
    model: &mut M,
    search: &mut impl Search<M>,
    consensus: &mut Consensus<M::Hypothesis>,
    judge: &mut Judge<M::Hypothesis>,
    params: &Params,
    clock: &mut Clock,
    out: &mut Estimation,
) {
    let deadline = Deadline::after_ms(clock.since(), params.camera.time_budget_ms);
    let done = judge.estimate(model, search, consensus, Task { params, deadline }, clock, out);
    let late = match &done {
        Ok(()) => deadline.passed(),
        Err(stop) => *stop == Stop::OverBudget,
    };
    if late {
        out.reset(out.inlier_mask.len());
        let ms = clock.since().elapsed().as_secs_f64() * 1e3;
        (out.status, out.reason) = (Status::OverBudget, Reason::OverBudget(ms));
    } else if let Err(Stop::Fault(error)) = &done {
        out.reset(out.inlier_mask.len());
        (out.status, out.reason) = (Status::GpuFault, Reason::GpuFault(error.code()));
    }
    (out.stages, out.backend) = (clock.stages, search.name());
}
