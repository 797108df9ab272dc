//! Tracks on the GPU: `kernels/homotopy.cu`, compiled for one system.

use super::program::Compiled;
use super::schedule::{pitch, Schedule};
use super::solver::Root;
use super::start::StartSet;
use super::track::Settings;
use crate::gpu::buffers::{DeviceBuffer, PinnedBuffer, Plain};
use crate::gpu::bundle::{Bundle, Program};
use crate::gpu::context::{Context, Event, Kernel, Shape, Start, Stream};
use crate::gpu::GpuError;
use crate::homotopy::lu::gpu::HEADERS;
use crate::homotopy::lu::MAX_SIZE;
use crate::status::TrackStatus;
use nalgebra::Complex;
use std::ffi::c_void;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

type Z = Complex<f64>;

const SOURCE: (&str, &str) = ("homotopy.cu", include_str!("../../kernels/homotopy.cu"));
const WARP: usize = 32;
/// Threads that compute the coefficients of an instance.
const PREPARE_LANES: usize = 256;
/// Shared memory of a block, at most.
const SHARED: usize = 48 << 10;

/// How tracks are spread over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Lanes of a track: a power of two, no fewer than there are unknowns.
    pub lanes: usize,
    /// Warps of a block.
    pub warps: usize,
}

/// The programs of a system as a header of the kernel, and slots of that for the coefficients.
pub(super) fn source(compiled: &Compiled, tiling: Tiling) -> Result<(String, usize), GpuError> {
    let Tiling { lanes, warps } = tiling;
    let n = compiled.unknowns;
    let too_large =
        || GpuError::Absent(format!("a system of {n} unknowns and its programs do not fit a block"));
    let allowed = (1..=MAX_SIZE).contains(&n) && n <= lanes && lanes <= WARP && lanes.is_power_of_two();
    let schedule = Some(compiled)
        .filter(|_| allowed)
        .and_then(|c| Schedule::of_steps(c, lanes))
        .ok_or_else(too_large)?;
    let rounds = [schedule.rounds(0), schedule.rounds(1)];
    let vectors = 2 * (n + 1) + 6 * n;
    let bytes =
        (rounds[0] + rounds[1] + 2) * lanes * 8 + (schedule.slots + vectors) * 16 * warps * (WARP / lanes);
    if bytes > SHARED {
        return Err(too_large());
    }
    let prepare = Schedule::of_coefficients(compiled, PREPARE_LANES).ok_or_else(too_large)?;
    let mut text = format!("// {n} unknowns: made for this system by src/homotopy/gpu.rs.\n");
    let numbers = [
        ("N", n),
        ("C", compiled.coefficients),
        ("TERMS", terms(compiled)),
        ("LANES", lanes),
        ("WARPS", warps),
        ("PITCH", pitch(n)),
        ("SLOTS", schedule.slots),
        ("FIRST_CONSTANT", schedule.first_constant),
        ("CONSTANTS", schedule.constants.len()),
        ("JACOBIAN_ROUNDS", rounds[0]),
        ("TANGENT_ROUNDS", rounds[1]),
        ("PARAMETERS", compiled.parameters),
        ("PREPARE_LANES", PREPARE_LANES),
        ("PREPARE_SLOTS", prepare.slots),
        ("PREPARE_CONSTANTS", prepare.constants.len()),
        ("PREPARE_ROUNDS", prepare.rounds(0)),
    ];
    // Writing to a string does not fail.
    for (name, value) in numbers {
        let _ = writeln!(text, "constexpr int {name} = {value};");
    }
    for (name, schedule) in [("", &schedule), ("PREPARE_", &prepare)] {
        let constants = schedule.constants.iter().map(|v| format!("{:?}, {:?}", v.re, v.im));
        let constants = constants.collect::<Vec<_>>().join(", ");
        let words = schedule.words.iter().flatten().map(|w| format!("{w:#x}"));
        // Never empty.
        let words = words.chain(["0".to_owned()]).collect::<Vec<_>>().join(",\n");
        let _ = writeln!(text, "__device__ const double {name}NUMBERS[] = {{{constants}}};");
        let _ = writeln!(text, "__device__ const u64 {name}WORDS[] = {{{words}}};");
    }
    Ok((text, prepare.slots))
}

fn sources(system: &str) -> [(&str, &str); 4] {
    [SOURCE, ("system.cuh", system), HEADERS[0], HEADERS[1]]
}

/// Terms of a coefficient as a polynomial on the path.
fn terms(compiled: &Compiled) -> usize {
    compiled.degree.max(1) + 1
}

/// `Settings` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeviceSettings {
    tolerance: f64,
    contraction: f64,
    min_step: f64,
    infinity: f64,
    end_zone: f64,
    max_steps: u64,
}

/// `End` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeviceEnd {
    residual: f64,
    condition: f64,
    status: u32,
    steps: u32,
}

// SAFETY: numbers only, without padding.
unsafe impl Plain for DeviceEnd {}

/// Memory for so many instances.
struct Room {
    instances: usize,
    /// Blocks that compute coefficients.
    blocks: usize,
    slots: DeviceBuffer<Z>,
    targets: DeviceBuffer<Z>,
    series: DeviceBuffer<Z>,
    ends: DeviceBuffer<Z>,
    points: DeviceBuffer<Z>,
    results: DeviceBuffer<DeviceEnd>,
    host_targets: PinnedBuffer<Z>,
    host_points: PinnedBuffer<Z>,
    host_results: PinnedBuffer<DeviceEnd>,
}

impl Room {
    fn new(
        context: &Arc<Context>,
        compiled: &Compiled,
        slots: usize,
        roots: usize,
        instances: usize,
    ) -> Result<Self, GpuError> {
        let blocks = instances.min(8 * context.processors() as usize);
        let (ends, targets) = (instances * compiled.coefficients, instances * compiled.parameters);
        let (results, points) = (instances * roots, instances * roots * compiled.unknowns);
        Ok(Self {
            instances,
            blocks,
            slots: DeviceBuffer::new(context, blocks * slots * terms(compiled))?,
            targets: DeviceBuffer::new(context, targets)?,
            series: DeviceBuffer::new(context, ends * terms(compiled))?,
            ends: DeviceBuffer::new(context, ends)?,
            points: DeviceBuffer::new(context, points)?,
            results: DeviceBuffer::new(context, results)?,
            host_targets: PinnedBuffer::new(context, targets)?,
            host_points: PinnedBuffer::new(context, points)?,
            host_results: PinnedBuffer::new(context, results)?,
        })
    }
}

/// Follows all roots of a start set on the device.
pub struct GpuTracker {
    // Keeps the kernel loaded.
    bundle: Bundle,
    prepare: Kernel,
    track: Kernel,
    context: Arc<Context>,
    stream: Stream,
    events: [Event; 2],
    tiling: Tiling,
    /// Tracks get ready while coefficients are computed, if they can.
    way: Start,
    /// Blocks that the device holds at once.
    blocks: usize,
    roots: usize,
    starts: DeviceBuffer<Z>,
    /// Parameters of the start.
    start: DeviceBuffer<Z>,
    /// Slots of the program for the coefficients.
    slots: usize,
    next: DeviceBuffer<u32>,
    room: Room,
    kernel_ms: f64,
}

impl GpuTracker {
    /// A tracker for a system and its start set; the compiled kernel is kept in the folder `cache`.
    pub fn new(
        context: &Arc<Context>,
        compiled: &Compiled,
        start: &StartSet,
        cache: Option<&std::path::Path>,
    ) -> Result<Self, GpuError> {
        let tiling = Tiling { lanes: WARP, warps: 1 };
        let (system, slots) = source(compiled, tiling)?;
        let bundle = Bundle::of(&Program { sources: &sources(&system), options: &[] }, context, cache)?;
        let (prepare, track) = (bundle.kernel("prepare")?, bundle.kernel("track")?);
        let stream = Stream::new(context)?;
        let resident = context.resident_blocks(track, (tiling.warps * WARP) as u32)?;
        let flat: Vec<Z> = start.roots.iter().flatten().copied().collect();
        Ok(Self {
            bundle,
            prepare,
            track,
            context: Arc::clone(context),
            events: [Event::timed(context)?, Event::timed(context)?],
            tiling,
            way: if context.starts_early(track)? { Start::Early } else { Start::After },
            blocks: (resident.max(1) * context.processors()) as usize,
            roots: start.roots.len(),
            starts: DeviceBuffer::holding(&flat, &stream)?,
            start: DeviceBuffer::holding(&start.parameters, &stream)?,
            slots,
            next: DeviceBuffer::new(context, 1)?,
            room: Room::new(context, compiled, slots, start.roots.len(), 1)?,
            stream,
            kernel_ms: 0.0,
        })
    }

    /// Where the kernels came from, and what they are.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// How long the kernels of the last call took, ms.
    pub fn kernel_ms(&self) -> f64 {
        self.kernel_ms
    }

    /// Follows every root to every one of `targets`, which have as many parameters as the system, and
    /// polishes it; instance after instance. What is not done when the time is over has the status
    /// budget.
    pub(super) fn follow(
        &mut self,
        compiled: &Compiled,
        settings: Settings,
        targets: &[&[Z]],
        budget: Option<Duration>,
    ) -> Result<Vec<Root>, GpuError> {
        let (n, p, jobs) = (compiled.unknowns, compiled.parameters, targets.len() * self.roots);
        let (Ok(count), Ok(instances)) = (u32::try_from(jobs), u32::try_from(targets.len())) else {
            return Err(GpuError::Absent(format!("{jobs} tracks are too many at once")));
        };
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.room.instances < targets.len() {
            self.room = Room::new(&self.context, compiled, self.slots, self.roots, targets.len())?;
        }
        let room = &mut self.room;
        for (at, value) in room.host_targets.items_mut().iter_mut().zip(targets.iter().copied().flatten()) {
            *at = *value;
        }
        room.targets.upload(&room.host_targets, targets.len() * p, &self.stream)?;
        let device_settings = DeviceSettings {
            tolerance: settings.tolerance,
            contraction: settings.contraction,
            min_step: settings.min_step,
            infinity: settings.infinity,
            end_zone: settings.end_zone,
            max_steps: u64::from(settings.max_steps),
        };
        // Zero is no limit.
        let budget = budget.map_or(0, |time| time.as_nanos().clamp(1, u128::from(u64::MAX)) as u64);
        let tiles = self.tiling.warps * WARP / self.tiling.lanes;
        let [series, ends, next] = [room.series.address(), room.ends.address(), self.next.address()];
        self.events[0].record(&self.stream)?;
        let (start, given, slots) = (self.start.address(), room.targets.address(), room.slots.address());
        let shape = Shape {
            grid: targets.len().min(room.blocks) as u32,
            block: PREPARE_LANES as u32,
            start: Start::After,
        };
        let mut arguments = [
            pointer(&start),
            pointer(&given),
            pointer(&instances),
            pointer(&slots),
            pointer(&series),
            pointer(&ends),
            pointer(&next),
        ];
        // SAFETY: the arguments of `prepare`; the arrays are as long as `Room` makes them for so many
        // instances.
        unsafe { self.stream.launch(self.prepare, shape, &mut arguments) }?;
        let shape = Shape {
            grid: jobs.div_ceil(tiles).min(self.blocks) as u32,
            block: (self.tiling.warps * WARP) as u32,
            start: self.way,
        };
        let (starts, roots) = (self.starts.address(), self.roots as u32);
        let (points, results) = (room.points.address(), room.results.address());
        let mut arguments = [
            pointer(&series),
            pointer(&ends),
            pointer(&starts),
            pointer(&roots),
            pointer(&count),
            pointer(&device_settings),
            pointer(&budget),
            pointer(&next),
            pointer(&points),
            pointer(&results),
        ];
        // SAFETY: the arguments of `track`; as above.
        unsafe { self.stream.launch(self.track, shape, &mut arguments) }?;
        self.events[1].record(&self.stream)?;
        room.points.download(&mut room.host_points, jobs * n, &self.stream)?;
        room.results.download(&mut room.host_results, jobs, &self.stream)?;
        self.stream.wait()?;
        self.kernel_ms = self.events[1].us_since(&self.events[0])? * 1e-3;
        let points = room.host_points.items().chunks_exact(n);
        let ends = room.host_results.items().iter().zip(points).take(jobs);
        Ok(ends.map(|(end, point)| root(end, point)).collect())
    }
}

/// An argument of a kernel, which is only read.
fn pointer<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

fn root(end: &DeviceEnd, point: &[Z]) -> Root {
    let status = TrackStatus::ALL.get(end.status as usize).copied().unwrap_or(TrackStatus::Budget);
    let DeviceEnd { residual, condition, steps, .. } = *end;
    Root { status, point: point.to_vec(), residual, condition, steps }
}

#[cfg(test)]
mod host;
