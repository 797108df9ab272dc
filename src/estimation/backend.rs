//! Where samples are solved and their poses scored: on the CPU, or on the GPU where it works.

use super::model::{Model, Scored, Search};
use super::search::CpuSearch;
use crate::geometry::Pose;
use crate::gpu::device::DeviceMemory;
use crate::gpu::fallback::{self, BackendError, Faults, Made, Next};
use crate::gpu::GpuError;
use crate::params::Params;
use crate::registration::lanes::{Deadline, Stop};
use std::sync::Arc;

#[cfg(feature = "cuda")]
use super::gpu::GpuSearch as Gpu;

/// There is none in this build.
#[cfg(not(feature = "cuda"))]
pub(super) enum Gpu {}

#[cfg(feature = "cuda")]
fn cuda(params: &Params) -> Result<Made<Gpu>, GpuError> {
    let cache = crate::gpu::bundle::cache_folder();
    let mut gpu = Gpu::new(params, cache.as_deref())?;
    super::self_test::self_test(&mut gpu)?;
    let what = gpu.what();
    Ok((gpu, what))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &Params) -> Result<Made<Gpu>, GpuError> {
    let why = crate::gpu::device::probe().driver.err();
    Err(GpuError::Absent(why.unwrap_or_default()))
}

enum Chosen {
    Cpu,
    Cuda(Box<Gpu>),
    /// Stands where a failed GPU was.
    Gone,
}

/// The backend. After an error of the GPU it gives nothing until [`Backend::settle`].
pub(super) struct Backend {
    chosen: Chosen,
    cpu: CpuSearch<Pose>,
    why: String,
    failed: Option<GpuError>,
    faults: Faults,
    /// The parameters at start.
    start: Params,
    /// Makes the GPU anew.
    remake: fn(&Params) -> Result<Made<Gpu>, GpuError>,
}

impl Backend {
    /// What `backend.kind` asks for; `pool` has the threads of the CPU.
    pub fn new(params: &Params, pool: Arc<rayon::ThreadPool>) -> Result<Self, BackendError> {
        let (made, why) = fallback::choose(params.backend.kind, || cuda(params))?;
        Ok(Self {
            chosen: made.map_or(Chosen::Cpu, |gpu| Chosen::Cuda(Box::new(gpu))),
            cpu: CpuSearch::new(pool),
            why,
            failed: None,
            faults: Faults::default(),
            start: params.clone(),
            remake: cuda,
        })
    }

    /// After an estimation. If the GPU failed: the same anew, once, then what `backend.on_fault` says.
    pub fn settle(&mut self) {
        let Some(error) = self.failed.take() else { return };
        // What failed has to go before it is made anew.
        self.chosen = Chosen::Gone;
        match self.faults.next(&error, self.start.backend.on_fault, || (self.remake)(&self.start)) {
            Next::Cuda(gpu, why) => (self.chosen, self.why) = (Chosen::Cuda(Box::new(gpu)), why),
            Next::Cpu(why) => (self.chosen, self.why) = (Chosen::Cpu, why),
            Next::Nothing => {}
        }
    }

    /// `cpu` or `cuda`.
    pub fn kind(&self) -> &'static str {
        match self.chosen {
            Chosen::Cpu => "cpu",
            Chosen::Cuda(_) | Chosen::Gone => "cuda",
        }
    }

    /// Why this one was chosen; of the GPU also which.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Errors of the GPU so far, and why it is lost for good, with `backend.on_fault` exit.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Memory of the device that is taken.
    pub fn memory(&self) -> Option<DeviceMemory> {
        match &self.chosen {
            #[cfg(feature = "cuda")]
            Chosen::Cuda(gpu) => gpu.memory().ok(),
            _ => None,
        }
    }

    /// Keeps an error of the GPU for [`Backend::settle`].
    fn noted<T>(&mut self, done: Result<T, Stop>) -> Result<T, Stop> {
        if let Err(Stop::Fault(error)) = &done {
            self.failed = Some(error.clone());
        }
        done
    }
}

fn gone<T>() -> Result<T, Stop> {
    Err(Stop::Fault(GpuError::Absent("the CUDA backend is gone".to_owned())))
}

impl<M: Model<Hypothesis = Pose>> Search<M> for Backend
where
    Gpu: Search<M>,
{
    fn name(&self) -> &'static str {
        self.kind()
    }

    fn load(&mut self, model: &M) -> Result<(), Stop> {
        let done = match &mut self.chosen {
            Chosen::Cpu => self.cpu.load(model),
            Chosen::Cuda(gpu) => gpu.load(model),
            Chosen::Gone => gone(),
        };
        self.noted(done)
    }

    fn search(
        &mut self,
        model: &M,
        samples: &[u32],
        keep: usize,
        best: &mut Vec<Scored<Pose>>,
        deadline: Deadline,
    ) -> Result<u64, Stop> {
        let done = match &mut self.chosen {
            Chosen::Cpu => self.cpu.search(model, samples, keep, best, deadline),
            Chosen::Cuda(gpu) => gpu.search(model, samples, keep, best, deadline),
            Chosen::Gone => gone(),
        };
        self.noted(done)
    }
}

#[cfg(not(feature = "cuda"))]
impl<M: Model<Hypothesis = Pose>> Search<M> for Gpu {
    fn name(&self) -> &'static str {
        match *self {}
    }

    fn load(&mut self, _: &M) -> Result<(), Stop> {
        match *self {}
    }

    fn search(
        &mut self,
        _: &M,
        _: &[u32],
        _: usize,
        _: &mut Vec<Scored<Pose>>,
        _: Deadline,
    ) -> Result<u64, Stop> {
        match *self {}
    }
}
