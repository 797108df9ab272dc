//! Chooses the backend and runs registrations.

use super::cpu::Cpu;
use super::{Problem, Reason, Registration};
use crate::gpu::device::DeviceMemory;
pub use crate::gpu::fallback::BackendError;
use crate::gpu::fallback::{self, Faults, Next};
use crate::gpu::GpuError;
use crate::params::Params;
use crate::status::Status;

/// Something that registers: the same numbers out of every one.
pub(super) trait Backend: Send {
    /// Its name in results and diagnostics.
    fn name(&self) -> &'static str;
    /// Threads of the CPU that compute.
    fn threads(&self) -> usize;
    /// Another one that works at the same time as this; `None`: there is nothing to be gained.
    fn twin(&self) -> Option<Result<Box<dyn Backend>, GpuError>> {
        None
    }
    /// Memory of a device that it takes.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
    /// Takes a problem over; it may be worked on from now on.
    fn begin(&mut self, problem: &Problem, params: &Params);
    /// The result of the problem that was begun (the same is given again), into `result`, reusing
    /// its buffers. After an error the result is undefined and the backend must be replaced.
    fn finish(
        &mut self,
        problem: &Problem,
        params: &Params,
        result: &mut Registration,
    ) -> Result<(), GpuError>;
    /// Registers one problem.
    fn register(
        &mut self,
        problem: &Problem,
        params: &Params,
        result: &mut Registration,
    ) -> Result<(), GpuError> {
        self.begin(problem, params);
        self.finish(problem, params, result)
    }
}

/// A CUDA backend.
type Made = fallback::Made<Box<dyn Backend>>;

#[cfg(feature = "cuda")]
fn cuda(params: &Params) -> Result<Made, GpuError> {
    let cache = crate::gpu::bundle::cache_folder();
    let (mut gpu, what) = super::gpu::Gpu::start(params, cache.as_deref())?;
    super::self_test::self_test(&mut gpu, params)?;
    Ok((Box::new(gpu), what))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &Params) -> Result<Made, GpuError> {
    let why = crate::gpu::device::probe().driver.err();
    Err(GpuError::Absent(why.unwrap_or_default()))
}

/// Runs registrations on the backend chosen at start. Memory is made for
/// `registration.max_correspondences` and reused.
///
/// A CUDA error during a registration gives [`Status::GpuFault`] for that frame. The backend is
/// then made anew. If it cannot be, and after the second error, the CPU takes its place; or, with
/// `backend.on_fault` exit, the GPU stays lost ([`Registrar::lost`]) and every frame is a fault.
pub struct Registrar {
    backend: Box<dyn Backend>,
    why: String,
    result: Registration,
    /// Others like the backend, for batches; made by the first one.
    twins: Vec<Box<dyn Backend>>,
    results: Vec<Registration>,
    /// The parameters at start.
    start: Params,
    /// Makes the CUDA backend anew.
    remake: fn(&Params) -> Result<Made, GpuError>,
    faults: Faults,
}

impl Registrar {
    /// Chooses the backend (`backend.kind`) and makes its memory.
    pub fn new(params: &Params) -> Result<Self, BackendError> {
        let (made, why) = fallback::choose(params.backend.kind, || cuda(params))?;
        let backend = match made {
            Some(made) => made,
            None => Box::new(Cpu::start(params)?),
        };
        Ok(Self {
            backend,
            why,
            result: Registration::default(),
            twins: Vec::new(),
            results: Vec::new(),
            start: params.clone(),
            remake: cuda,
            faults: Faults::default(),
        })
    }

    /// Registers one problem. Live parameters are taken as given; those read at start are as they
    /// were in [`Registrar::new`].
    pub fn register(&mut self, problem: &Problem, params: &Params) -> &Registration {
        if let Err(error) = self.backend.register(problem, params, &mut self.result) {
            self.result.reset(self.backend.name(), problem.len());
            (self.result.status, self.result.reason) = (Status::GpuFault, Reason::GpuFault(error.code()));
            self.replace(&error);
        }
        &self.result
    }

    /// Registers many problems, on the GPU `backend.batch` at the same time: one scan against many
    /// submaps, or the scans of many robots. The results are those of [`Registrar::register`], in
    /// the order of the problems.
    pub fn register_batch(&mut self, problems: &[Problem], params: &Params) -> &[Registration] {
        let mut results = std::mem::take(&mut self.results);
        results.resize_with(problems.len(), Registration::default);
        if self.backend.name() != "cuda" {
            for (problem, result) in problems.iter().zip(&mut results) {
                result.clone_from(self.register(problem, params));
            }
        } else if let Err(error) = self.at_the_same_time(problems, params, &mut results) {
            self.replace(&error);
        }
        self.results = results;
        &self.results
    }

    /// Gives the first error; the problems that were then on their way have it as their result.
    fn at_the_same_time(
        &mut self,
        problems: &[Problem],
        params: &Params,
        results: &mut [Registration],
    ) -> Result<(), GpuError> {
        while self.twins.len() + 1 < self.start.backend.batch.max(1) as usize {
            match self.backend.twin() {
                Some(Ok(twin)) => self.twins.push(twin),
                Some(Err(e)) => {
                    log::warn!("only {} problems of a batch at the same time: {e}", self.twins.len() + 1);
                    break;
                }
                None => break,
            }
        }
        let mut done = Ok(());
        let mut lanes: Vec<_> = std::iter::once(&mut self.backend).chain(&mut self.twins).collect();
        let width = lanes.len();
        for (lane, problem) in lanes.iter_mut().zip(problems) {
            lane.begin(problem, params);
        }
        for (i, (problem, result)) in problems.iter().zip(results).enumerate() {
            let Some(lane) = lanes.get_mut(i % width) else { break };
            if let Err(error) = lane.finish(problem, params, result) {
                result.reset(lane.name(), problem.len());
                (result.status, result.reason) = (Status::GpuFault, Reason::GpuFault(error.code()));
                done = done.and(Err(error));
            }
            if let Some(next) = problems.get(i + width) {
                lane.begin(next, params);
            }
        }
        done
    }

    /// After an error of the backend: the same anew, once, then what `backend.on_fault` says.
    fn replace(&mut self, error: &GpuError) {
        // The failed context, which the twins hold too, has to go before a new one is made.
        self.twins.clear();
        self.backend = Box::new(Gone);
        match self.faults.next(error, self.start.backend.on_fault, || (self.remake)(&self.start)) {
            Next::Cuda(backend, why) => (self.backend, self.why) = (backend, why),
            Next::Cpu(why) => match Cpu::start(&self.start) {
                Ok(cpu) => (self.backend, self.why) = (Box::new(cpu), why),
                Err(e) => log::error!("{e}"),
            },
            Next::Nothing => {}
        }
    }

    /// `cpu` or `cuda`.
    pub fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// Threads of the CPU that compute.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Memory of the device that the CUDA backend takes; none with the CPU.
    pub fn memory(&self) -> Option<DeviceMemory> {
        self.backend.memory()
    }

    /// Why this backend was chosen, for the log and `/diagnostics`; for CUDA also the device.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Why the GPU is lost for good, with `backend.on_fault` exit: the program should end.
    pub fn lost(&self) -> Option<&str> {
        self.faults.lost()
    }

    /// Errors of the GPU so far.
    pub fn faults(&self) -> u64 {
        self.faults.count()
    }
}

/// Stands where a failed backend was.
struct Gone;

impl Backend for Gone {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn threads(&self) -> usize {
        1
    }

    fn begin(&mut self, _: &Problem, _: &Params) {}

    fn finish(&mut self, _: &Problem, _: &Params, _: &mut Registration) -> Result<(), GpuError> {
        Err(GpuError::Absent("the CUDA backend is gone".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Point;
    use crate::params::{BackendChoice, OnFault};
    use crate::registration::Correspondence;

    fn lost() -> GpuError {
        GpuError::Cuda { doing: "waiting for the device", code: 700, name: "CUDA_ERROR".to_owned() }
    }

    /// The CPU under another name; fails when it is told to.
    struct Fake {
        cpu: Cpu,
        good_frames: usize,
    }

    impl Backend for Fake {
        fn name(&self) -> &'static str {
            "cuda"
        }
        fn threads(&self) -> usize {
            1
        }
        fn begin(&mut self, _: &Problem, _: &Params) {}
        fn finish(&mut self, p: &Problem, params: &Params, out: &mut Registration) -> Result<(), GpuError> {
            if self.good_frames == 0 {
                // What a search that broke off may leave behind.
                out.status = Status::Ok;
                return Err(lost());
            }
            self.good_frames -= 1;
            self.cpu.register(p, params, out)?;
            out.backend = "cuda";
            Ok(())
        }
    }

    fn fake(params: &Params) -> Result<Made, GpuError> {
        let cpu = Cpu::start(params).map_err(|e| GpuError::Absent(e.to_string()))?;
        Ok((Box::new(Fake { cpu, good_frames: 1 }), "a fake".to_owned()))
    }

    fn small() -> Params {
        let mut params = Params::default();
        params.registration.max_correspondences = 100;
        params.backend.kind = BackendChoice::Cpu;
        params
    }

    fn registrar(remake: fn(&Params) -> Result<Made, GpuError>) -> Registrar {
        registrar_with(&small(), remake)
    }

    fn registrar_with(params: &Params, remake: fn(&Params) -> Result<Made, GpuError>) -> Registrar {
        let (backend, why) = fake(params).expect("a fake");
        Registrar { backend, why, remake, ..Registrar::new(params).expect("the CPU") }
    }

    fn problem() -> Problem {
        let mut problem = Problem::with_capacity(4);
        for p in [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] {
            problem.push(Correspondence::new(Point::from(p), Point::from(p)));
        }
        problem
    }

    #[test]
    fn a_fault_costs_a_frame_and_the_second_one_brings_the_cpu() {
        let (mut registrar, params, problem) = (registrar(fake), small(), problem());
        let mut seen = Vec::new();
        for _ in 0..6 {
            let r = registrar.register(&problem, &params);
            assert!(r.status != Status::Ok && (r.triples > 0) == (r.status != Status::GpuFault));
            seen.push((r.status == Status::GpuFault, r.backend));
        }
        let good = |backend| (false, backend);
        let fault = (true, "cuda");
        assert_eq!(seen, [good("cuda"), fault, good("cuda"), fault, good("cpu"), good("cpu")]);
        assert_eq!((registrar.faults(), registrar.backend()), (2, "cpu"));
        assert!(registrar.why().contains("700"), "{}", registrar.why());
        assert_eq!(registrar.lost(), None);
    }

    #[test]
    fn with_exit_the_second_fault_loses_the_gpu_for_good() {
        let (mut params, problem) = (small(), problem());
        params.backend.on_fault = OnFault::Exit;
        let mut registrar = registrar_with(&params, fake);
        let mut seen = Vec::new();
        for _ in 0..6 {
            let fault = registrar.register(&problem, &params).status == Status::GpuFault;
            seen.push((fault, registrar.lost().is_some()));
        }
        let (good, fault, lost) = ((false, false), (true, false), (true, true));
        assert_eq!(seen, [good, fault, good, lost, lost, lost]);
        assert_eq!((registrar.faults(), registrar.backend()), (2, "cuda"));
        let why = registrar.lost().unwrap_or_default();
        assert!(why.contains("failed 2 times") && why.contains("700"), "{why}");
    }

    #[test]
    fn with_exit_a_gpu_that_does_not_come_back_is_lost_at_once() {
        let (mut params, problem) = (small(), problem());
        params.backend.on_fault = OnFault::Exit;
        let gone = |_: &Params| Err(GpuError::Absent("there is no CUDA device".to_owned()));
        let mut registrar = registrar_with(&params, gone);
        registrar.register(&problem, &params);
        assert_eq!(registrar.lost(), None);
        let r = registrar.register(&problem, &params);
        assert_eq!((r.status, r.reason, r.backend), (Status::GpuFault, Reason::GpuFault(700), "cuda"));
        let why = registrar.lost().unwrap_or_default();
        assert!(why.contains("700") && why.contains("there is no CUDA device"), "{why}");
    }

    #[test]
    fn a_gpu_that_does_not_come_back_is_replaced_at_once() {
        let mut registrar = registrar(|_| Err(GpuError::Absent("there is no CUDA device".to_owned())));
        let (params, problem) = (small(), problem());
        registrar.register(&problem, &params);
        let r = registrar.register(&problem, &params);
        assert_eq!((r.status, r.reason), (Status::GpuFault, Reason::GpuFault(700)));
        assert_eq!((r.target_t_source, r.inlier_mask.len()), (None, 4));
        assert_eq!(registrar.register(&problem, &params).backend, "cpu");
        assert!(registrar.why().contains("there is no CUDA device"), "{}", registrar.why());
    }
}
