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
use crate::homotopy::program::Path;
use crate::status::TrackStatus;
use nalgebra::Complex;
use std::ffi::c_void;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

type Z = Complex<f64>;

const SOURCE: (&str, &str) = ("homotopy.cu", include_str!("../../kernels/homotopy.cu"));
const WARP: usize = 32;
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

/// The programs of a system as a header of the kernel.
pub(super) fn source(compiled: &Compiled, tiling: Tiling) -> Result<String, GpuError> {
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
        (rounds[0] + rounds[1] + 1) * lanes * 8 + (schedule.slots + vectors) * 16 * warps * (WARP / lanes);
    if bytes > SHARED {
        return Err(too_large());
    }
    let mut text = format!("// {}: made for this system by src/homotopy/gpu.rs.\n", n);
    let numbers = [
        ("N", n),
        ("C", compiled.coefficients),
        ("TERMS", compiled.degree + 1),
        ("LANES", lanes),
        ("WARPS", warps),
        ("PITCH", pitch(n)),
        ("SLOTS", schedule.slots),
        ("CONSTANTS", schedule.constants.len()),
        ("JACOBIAN_ROUNDS", rounds[0]),
        ("TANGENT_ROUNDS", rounds[1]),
    ];
    // Writing to a string does not fail.
    for (name, value) in numbers {
        let _ = writeln!(text, "constexpr int {name} = {value};");
    }
    let constants = schedule.constants.iter().map(|v| format!("{:?}, {:?}", v.re, v.im));
    let _ = writeln!(
        text,
        "__device__ const double NUMBERS[] = {{{}}};",
        constants.collect::<Vec<_>>().join(", ")
    );
    let words = schedule.words.iter().flatten().map(|w| format!("{w:#x}"));
    let words = words.collect::<Vec<_>>().join(",\n");
    let _ = writeln!(text, "__device__ const u64 WORDS[] = {{{words}}};");
    Ok(text)
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
    series: DeviceBuffer<Z>,
    ends: DeviceBuffer<Z>,
    points: DeviceBuffer<Z>,
    results: DeviceBuffer<DeviceEnd>,
    host_series: PinnedBuffer<Z>,
    host_ends: PinnedBuffer<Z>,
    host_points: PinnedBuffer<Z>,
    host_results: PinnedBuffer<DeviceEnd>,
}

impl Room {
    fn new(
        context: &Arc<Context>,
        compiled: &Compiled,
        roots: usize,
        instances: usize,
    ) -> Result<Self, GpuError> {
        let ends = instances * compiled.coefficients;
        let series = ends * (compiled.degree + 1);
        let (results, points) = (instances * roots, instances * roots * compiled.unknowns);
        Ok(Self {
            instances,
            series: DeviceBuffer::new(context, series)?,
            ends: DeviceBuffer::new(context, ends)?,
            points: DeviceBuffer::new(context, points)?,
            results: DeviceBuffer::new(context, results)?,
            host_series: PinnedBuffer::new(context, series)?,
            host_ends: PinnedBuffer::new(context, ends)?,
            host_points: PinnedBuffer::new(context, points)?,
            host_results: PinnedBuffer::new(context, results)?,
        })
    }
}

/// Follows all roots of a start set on the device.
pub struct GpuTracker {
    // Keeps the kernel loaded.
    bundle: Bundle,
    kernel: Kernel,
    context: Arc<Context>,
    stream: Stream,
    events: [Event; 2],
    tiling: Tiling,
    /// Blocks that the device holds at once.
    blocks: usize,
    roots: usize,
    starts: DeviceBuffer<Z>,
    next: [DeviceBuffer<u32>; 2],
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
        let system = source(compiled, tiling)?;
        let sources = [SOURCE, ("system.cuh", system.as_str()), HEADERS[0], HEADERS[1]];
        let bundle = Bundle::of(&Program { sources: &sources, options: &[] }, context, cache)?;
        let kernel = bundle.kernel("track")?;
        let stream = Stream::new(context)?;
        let resident = context.resident_blocks(kernel, (tiling.warps * WARP) as u32)?;
        let blocks = (resident.max(1) * context.processors()) as usize;
        let flat: Vec<Z> = start.roots.iter().flatten().copied().collect();
        Ok(Self {
            bundle,
            kernel,
            context: Arc::clone(context),
            events: [Event::timed(context)?, Event::timed(context)?],
            tiling,
            blocks,
            roots: start.roots.len(),
            starts: DeviceBuffer::holding(&flat, &stream)?,
            next: [DeviceBuffer::holding(&[0], &stream)?, DeviceBuffer::holding(&[0], &stream)?],
            room: Room::new(context, compiled, start.roots.len(), 1)?,
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

    /// Follows every root along every path and polishes it, path after path; what is not done when the
    /// time is over has the status budget.
    pub(super) fn follow(
        &mut self,
        compiled: &Compiled,
        settings: Settings,
        paths: &[Path],
        budget: Option<Duration>,
    ) -> Result<Vec<Root>, GpuError> {
        let (n, jobs) = (compiled.unknowns, paths.len() * self.roots);
        let Ok(count) = u32::try_from(jobs) else {
            return Err(GpuError::Absent(format!("{jobs} tracks are too many at once")));
        };
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.room.instances < paths.len() {
            self.room = Room::new(&self.context, compiled, self.roots, paths.len())?;
        }
        let room = &mut self.room;
        let (c, terms) = (compiled.coefficients, compiled.degree + 1);
        for (i, path) in paths.iter().enumerate() {
            room.host_series.items_mut()[i * c * terms..][..c * terms].copy_from_slice(&path.series);
            room.host_ends.items_mut()[i * c..][..c].copy_from_slice(&path.end);
        }
        room.series.upload(&room.host_series, paths.len() * c * terms, &self.stream)?;
        room.ends.upload(&room.host_ends, paths.len() * c, &self.stream)?;
        let [next, zero] = &mut self.next;
        next.copy_from(zero, 0, &self.stream)?;
        let tiles = self.tiling.warps * WARP / self.tiling.lanes;
        let shape = Shape {
            grid: jobs.div_ceil(tiles).min(self.blocks) as u32,
            block: (self.tiling.warps * WARP) as u32,
            start: Start::After,
        };
        let mut addresses = [
            room.series.address(),
            room.ends.address(),
            self.starts.address(),
            next.address(),
            room.points.address(),
            room.results.address(),
        ];
        let [series, ends, starts, next, points, results] =
            addresses.each_mut().map(|address| std::ptr::from_mut(address).cast::<c_void>());
        let (mut roots, mut jobs_left) = (self.roots as u32, count);
        let mut device_settings = DeviceSettings {
            tolerance: settings.tolerance,
            contraction: settings.contraction,
            min_step: settings.min_step,
            infinity: settings.infinity,
            end_zone: settings.end_zone,
            max_steps: u64::from(settings.max_steps),
        };
        // Zero is no limit.
        let mut budget = budget.map_or(0, |time| time.as_nanos().clamp(1, u128::from(u64::MAX)) as u64);
        let mut arguments = [
            series,
            ends,
            starts,
            std::ptr::from_mut(&mut roots).cast(),
            std::ptr::from_mut(&mut jobs_left).cast(),
            std::ptr::from_mut(&mut device_settings).cast(),
            std::ptr::from_mut(&mut budget).cast(),
            next,
            points,
            results,
        ];
        self.events[0].record(&self.stream)?;
        // SAFETY: the arguments of `track`; the arrays are as long as `Room` makes them for so many
        // instances.
        unsafe { self.stream.launch(self.kernel, shape, &mut arguments) }?;
        self.events[1].record(&self.stream)?;
        room.points.download(&mut room.host_points, jobs * n, &self.stream)?;
        room.results.download(&mut room.host_results, jobs, &self.stream)?;
        self.stream.wait()?;
        self.kernel_ms = self.events[1].us_since(&self.events[0])? * 1e-3;
        let points = room.host_points.items().chunks_exact(n);
        Ok(room
            .host_results
            .items()
            .iter()
            .zip(points)
            .take(jobs)
            .map(|(end, point)| root(end, point))
            .collect())
    }
}

fn root(end: &DeviceEnd, point: &[Z]) -> Root {
    let status = TrackStatus::ALL.get(end.status as usize).copied().unwrap_or(TrackStatus::Budget);
    let DeviceEnd { residual, condition, steps, .. } = *end;
    Root { status, point: point.to_vec(), residual, condition, steps }
}

#[cfg(test)]
mod host;
