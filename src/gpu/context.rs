//! Context, stream, events and launches: the driver's calls, each one checked.

use super::device;
use super::error::GpuError;
use cudarc::driver::sys::{CUcontext, CUdevice_attribute as Attribute, CUevent, CUfunction, CUstream};
use cudarc::driver::{result, sys, DriverError};
use std::ffi::c_void;
use std::sync::Arc;

/// Adds to an error of the driver what was attempted.
pub(super) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, GpuError>;
}

impl<T> Doing<T> for Result<T, DriverError> {
    fn doing(self, what: &'static str) -> Result<T, GpuError> {
        self.map_err(|e| {
            let text = |s: Result<&std::ffi::CStr, DriverError>| s.map(|s| s.to_string_lossy().into_owned());
            let name = text(e.error_name()).unwrap_or_else(|_| "unknown".to_owned());
            let name = text(e.error_string()).map_or(name.clone(), |meaning| format!("{name}: {meaning}"));
            GpuError::Cuda { doing: what, code: e.0 as i32, name }
        })
    }
}

/// First architecture (which devices before it cannot run) and first driver with [`Start::Early`],
/// in graphs too.
const EARLY_ARCHITECTURE: i32 = 90;
const EARLY_DRIVER: [i32; 2] = [12, 3];

/// The device's primary context, held while this lives.
pub struct Context {
    device: sys::CUdevice,
    raw: CUcontext,
    facts: device::Device,
    processors: u32,
    /// CUDA that the driver supports.
    driver: [i32; 2],
    /// Bytes of the device in use when it was made.
    in_use: usize,
}

// SAFETY: contexts of the driver may be used from any thread that makes them current.
unsafe impl Send for Context {}
// SAFETY: as above; the fields do not change.
unsafe impl Sync for Context {}

impl Context {
    /// The context of the first device that answers.
    pub fn first() -> Result<Arc<Self>, GpuError> {
        // The library is there if this succeeds; without it the calls below would panic.
        let driver = device::probe().driver.map_err(GpuError::Absent)?;
        let cuda = driver.cuda;
        let Some((ordinal, facts)) =
            driver.devices.iter().enumerate().find_map(|(n, d)| d.as_ref().ok().map(|d| (n, d)))
        else {
            let why = driver.devices.into_iter().find_map(Result::err);
            return Err(GpuError::Absent(why.unwrap_or_else(|| "there is no CUDA device".to_owned())));
        };
        let device = result::device::get(ordinal as i32).doing("opening the device")?;
        let count = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: `device` was returned by `get`.
        let processors = unsafe { result::device::get_attribute(device, count) }
            .doing("asking for the number of multiprocessors")?;
        // SAFETY: `device` was returned by `get`.
        let raw = unsafe { result::primary_ctx::retain(device) }.doing("making a context")?;
        let (facts, processors) = (facts.clone(), processors.max(1).unsigned_abs());
        let mut context = Self { device, raw, facts, processors, driver: cuda, in_use: 0 };
        context.in_use = context.in_use()?;
        Ok(Arc::new(context))
    }

    /// Makes it the context of the calling thread.
    pub fn bind(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(self.raw) }.doing("binding the context")
    }

    /// Bytes of the device in use by all programs, this one included.
    pub fn in_use(&self) -> Result<usize, GpuError> {
        self.bind()?;
        let (free, total) = result::mem_get_info().doing("asking for the free memory")?;
        Ok(total.saturating_sub(free))
    }

    /// The same as it was right after the context was made.
    pub fn in_use_at_start(&self) -> usize {
        self.in_use
    }

    /// The device.
    pub fn device(&self) -> &device::Device {
        &self.facts
    }

    /// Its multiprocessors.
    pub fn processors(&self) -> u32 {
        self.processors
    }

    /// How many times as fast it is in single precision as in double precision.
    pub fn single_to_double(&self) -> Result<u32, GpuError> {
        let ratio = Attribute::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO;
        // SAFETY: `device` was returned by `get`.
        let ratio = unsafe { result::device::get_attribute(self.device, ratio) }
            .doing("asking how fast double precision is")?;
        Ok(ratio.max(1).unsigned_abs())
    }

    /// The kernel can be started while the one before is at work ([`Start::Early`]), alone and in a
    /// graph.
    pub fn starts_early(&self, kernel: Kernel) -> Result<bool, GpuError> {
        self.bind()?;
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        let mut compiled_for = 0;
        // SAFETY: the kernel is loaded; writes one integer.
        unsafe { sys::cuFuncGetAttribute(&mut compiled_for, which, kernel.raw) }
            .result()
            .doing("asking what a kernel was compiled for")?;
        Ok(compiled_for >= EARLY_ARCHITECTURE && self.driver >= EARLY_DRIVER)
    }

    /// Blocks of `block` threads and `shared` bytes more of a kernel that a multiprocessor holds at once.
    pub fn resident_blocks(&self, kernel: Kernel, block: u32, shared: u32) -> Result<u32, GpuError> {
        self.bind()?;
        let (mut blocks, shared) = (0, shared as usize);
        // SAFETY: the kernel is loaded; writes one integer.
        unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, kernel.raw, block as i32, shared)
        }
        .result()
        .doing("asking for the occupancy of a kernel")?;
        Ok(blocks.max(0).unsigned_abs())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `first`. An error leaves nothing to be done.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// An ordered queue of work for the device.
pub struct Stream {
    raw: CUstream,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Stream {}

/// How a kernel starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// When what was queued before has ended.
    After,
    /// The same, and all its blocks at once: they wait for each other.
    Together,
    /// While the kernel queued before is still at work: it waits for the end of that itself, before
    /// it looks at any memory. Needs [`Context::starts_early`].
    Early,
}

/// Blocks and threads of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Blocks.
    pub grid: u32,
    /// Threads of a block.
    pub block: u32,
    /// Bytes of shared memory of a block, besides what the kernel has itself.
    pub shared: u32,
    /// When they start.
    pub start: Start,
}

impl Stream {
    /// A new queue.
    pub fn new(context: &Arc<Context>) -> Result<Self, GpuError> {
        context.bind()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking).doing("making a stream")?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until all of it is done.
    pub fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: the stream lives.
        unsafe { result::stream::synchronize(self.raw) }.doing("waiting for the device")
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// What is queued later waits for the event.
    pub fn wait_for(&self, event: &Event) -> Result<(), GpuError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both live.
        unsafe { result::stream::wait_event(self.raw, event.raw, flags) }.doing("waiting for an event")
    }

    /// From now on work is not queued but gathered, also that of streams that wait for this one.
    pub fn begin_capture(&self) -> Result<(), GpuError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        unsafe { result::stream::begin_capture(self.raw, mode) }.doing("beginning a graph")
    }

    /// Ends the gathering.
    pub fn end_capture(&self) -> Result<Graph, GpuError> {
        // SAFETY: the stream lives.
        let graph = unsafe { result::stream::end_capture(self.raw) }.doing("ending a graph")?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a graph that was just made; writes one handle.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, graph, 0) }.result();
        // SAFETY: not needed any more, whether it was instantiated or not.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        made.doing("instantiating a graph")?;
        Ok(Graph { raw, context: Arc::clone(&self.context) })
    }

    /// Launches a kernel; `arguments` point to its arguments in order.
    ///
    /// # Safety
    /// Number and types of the arguments are the kernel's, and the memory that they name holds
    /// what the kernel reads and writes. A kernel that starts early waits as `arrive` of
    /// `kernels/common.cuh` does.
    pub unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &mut [*mut c_void],
    ) -> Result<(), GpuError> {
        let (grid, block, shared) = ((shape.grid, 1, 1), (shape.block, 1, 1), shape.shared);
        // SAFETY: as the caller promises.
        match shape.start {
            Start::After => unsafe {
                result::launch_kernel(kernel.raw, grid, block, shared, self.raw, arguments)
            },
            Start::Together => unsafe {
                result::launch_cooperative_kernel(kernel.raw, grid, block, shared, self.raw, arguments)
            },
            Start::Early => {
                let mut early = sys::CUlaunchAttribute {
                    id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                    pad: [0; 4],
                    value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
                };
                let config = sys::CUlaunchConfig {
                    gridDimX: shape.grid,
                    gridDimY: 1,
                    gridDimZ: 1,
                    blockDimX: shape.block,
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: shared,
                    hStream: self.raw,
                    attrs: &mut early,
                    numAttrs: 1,
                };
                let (arguments, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
                unsafe { sys::cuLaunchKernelEx(&config, kernel.raw, arguments, none) }.result()
            }
        }
        .doing("launching a kernel")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made in `new`. An error leaves nothing to be done.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

/// Work gathered once and launched as a whole.
pub struct Graph {
    raw: sys::CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Graph {}

impl Graph {
    /// Queues all of it.
    pub fn launch(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: both live.
        unsafe { sys::cuGraphLaunch(self.raw, stream.raw) }.result().doing("launching a graph")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made in `end_capture`. An error leaves nothing to be done.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

/// A kernel of a loaded module; must not outlive it.
#[derive(Clone, Copy)]
pub struct Kernel {
    pub(super) raw: CUfunction,
}

// SAFETY: as for `Context`.
unsafe impl Send for Kernel {}

/// A moment in a stream.
pub struct Event {
    raw: CUevent,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Event {}

impl Event {
    /// A new event.
    pub fn new(context: &Arc<Context>) -> Result<Self, GpuError> {
        context.bind()?;
        let raw =
            result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).doing("making an event")?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// A new event that notes its time.
    pub fn timed(context: &Arc<Context>) -> Result<Self, GpuError> {
        context.bind()?;
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).doing("making an event")?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Microseconds from another event to this one, both timed, recorded and waited for.
    pub fn us_since(&self, earlier: &Self) -> Result<f64, GpuError> {
        // SAFETY: both live; the driver checks what state they are in.
        let ms = unsafe { result::event::elapsed(earlier.raw, self.raw) }.doing("measuring a time")?;
        Ok(f64::from(ms) * 1e3)
    }

    /// Marks the end of what was queued so far.
    pub fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: both live.
        unsafe { result::event::record(self.raw, stream.raw) }.doing("recording an event")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made in `new`. An error leaves nothing to be done.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}
