//! Tracks on the GPU: `kernels/homotopy.cu`, compiled for one system.

use self::header::{terms, Fitted};
use self::launch::{pointer, Arrays, Jobs, Track};
use super::program::Compiled;
use super::roots::{Outcome, Roots, Solution};
use super::start::StartSet;
use super::system::System;
use super::track::Settings;
use crate::gpu::buffers::{DeviceBuffer, PinnedBuffer, Plain};
use crate::gpu::bundle::{Bundle, Program};
use crate::gpu::context::{Context, Event, Kernel, Shape, Start, Stream};
use crate::gpu::GpuError;
use crate::homotopy::lu::gpu::HEADERS;
use crate::status::TrackStatus;
use nalgebra::Complex;
use rayon::prelude::*;
use std::sync::Arc;
use std::time::Duration;

type Z = Complex<f64>;

const SOURCE: (&str, &str) = ("homotopy.cu", include_str!("../../kernels/homotopy.cu"));
/// What it includes of its own.
const NUMBERS: (&str, &str) = ("approximate.cuh", include_str!("../../kernels/approximate.cuh"));
/// What it includes where coefficients are computed and roots are told apart on the device.
const PARTS: [(&str, &str); 2] = [
    ("prepare.cuh", include_str!("../../kernels/prepare.cuh")),
    ("distinct.cuh", include_str!("../../kernels/distinct.cuh")),
];
const WARP: usize = 32;
/// Threads that compute the coefficients of an instance.
const PREPARE_LANES: usize = 256;
/// Threads that tell the roots of an instance apart: a power of two.
const MEET_LANES: std::ops::RangeInclusive<usize> = 64..=1024;
/// Points of so many numbers are copied to the host before it is known whether they are the last.
const FEW: usize = 1 << 14;

/// How tracks are spread over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Lanes of a track: a power of two, no fewer than there are unknowns.
    pub lanes: usize,
    /// Warps of a block.
    pub warps: usize,
}

/// A warp for each track.
const WHOLE_WARP: Tiling = Tiling { lanes: WARP, warps: 1 };

/// Numbers that tracks are followed in.
pub trait Number: Plain {
    /// They are single.
    const SINGLE: bool;
    /// The nearest.
    fn of(value: Z) -> Self;
    /// The same in double precision.
    fn z(self) -> Z;
}

impl Number for Complex<f64> {
    const SINGLE: bool = false;
    fn of(value: Z) -> Self {
        value
    }
    fn z(self) -> Z {
        self
    }
}

impl Number for Complex<f32> {
    const SINGLE: bool = true;
    fn of(value: Z) -> Self {
        Self::new(value.re as f32, value.im as f32)
    }
    fn z(self) -> Z {
        Z::new(self.re.into(), self.im.into())
    }
}

/// All of a system as a header of the kernels, and slots of the program for the coefficients.
pub(super) fn source(compiled: &Compiled, tiling: Tiling) -> Result<(String, usize), GpuError> {
    let fitted = Fitted::new(compiled, tiling, std::mem::size_of::<Z>())?;
    let (preparation, slots) = header::preparation(compiled)?;
    Ok((fitted.header() + &preparation, slots))
}

fn sources<'a>(system: &'a str, symmetries: &'a str) -> Vec<(&'a str, &'a str)> {
    [&track_sources(system)[..], &PARTS, &[("symmetries.cuh", symmetries)]].concat()
}

/// What tracks alone need.
fn track_sources(system: &str) -> [(&str, &str); 5] {
    [SOURCE, ("system.cuh", system), NUMBERS, HEADERS[0], HEADERS[1]]
}

/// `Settings` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeviceSettings {
    tolerance: f32,
    contraction: f32,
    min_step: f32,
    infinity: f32,
    end_zone: f32,
    brief: f32,
    bow: f32,
    max_steps: u32,
}

impl DeviceSettings {
    fn of<T: Number>(settings: Settings) -> Self {
        let double = Self {
            tolerance: settings.tolerance as f32,
            contraction: settings.contraction as f32,
            min_step: settings.min_step as f32,
            infinity: settings.infinity as f32,
            end_zone: settings.end_zone as f32,
            brief: settings.brief as f32,
            bow: settings.bow as f32,
            max_steps: settings.max_steps,
        };
        match T::SINGLE {
            false => double,
            // As far as seven digits go.
            true => Self {
                min_step: double.min_step.max(1e-6),
                infinity: double.infinity.min(1e15),
                end_zone: double.end_zone.max(1e-7),
                ..double
            },
        }
    }
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

impl From<&DeviceEnd> for Outcome {
    fn from(end: &DeviceEnd) -> Self {
        let status = TrackStatus::ALL.get(end.status as usize).copied().unwrap_or(TrackStatus::Budget);
        let DeviceEnd { residual, condition, steps, .. } = *end;
        Self { residual, condition, ..Self::failed(status, steps) }
    }
}

/// `Queue` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Queue {
    begin: u64,
    next: [u32; LEVELS],
    count: [u32; LEVELS],
}

// SAFETY: numbers only, without padding.
unsafe impl Plain for Queue {}

/// Rounds of a call.
const LEVELS: usize = 2;

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
    keys: DeviceBuffer<[f64; 2]>,
    marks: DeviceBuffer<u32>,
    list: DeviceBuffer<u32>,
    host_targets: PinnedBuffer<Z>,
    host_points: PinnedBuffer<Z>,
    host_results: PinnedBuffer<DeviceEnd>,
}

/// What room for an instance depends on.
#[derive(Clone, Copy)]
struct Sizes {
    unknowns: usize,
    parameters: usize,
    coefficients: usize,
    terms: usize,
    /// Slots of the program for the coefficients.
    slots: usize,
    roots: usize,
    images: usize,
}

impl Room {
    fn new(context: &Arc<Context>, sizes: Sizes, instances: usize) -> Result<Self, GpuError> {
        let blocks = instances.min(8 * context.processors() as usize);
        let (ends, targets) = (instances * sizes.coefficients, instances * sizes.parameters);
        let tracks = instances * sizes.roots;
        Ok(Self {
            instances,
            blocks,
            slots: DeviceBuffer::new(context, blocks * sizes.slots * sizes.terms)?,
            targets: DeviceBuffer::new(context, targets)?,
            series: DeviceBuffer::new(context, ends * sizes.terms)?,
            ends: DeviceBuffer::new(context, ends)?,
            points: DeviceBuffer::new(context, tracks * sizes.unknowns)?,
            results: DeviceBuffer::new(context, tracks)?,
            keys: DeviceBuffer::new(context, tracks * sizes.images)?,
            marks: DeviceBuffer::new(context, tracks)?,
            list: DeviceBuffer::new(context, tracks)?,
            host_targets: PinnedBuffer::new(context, targets)?,
            host_points: PinnedBuffer::new(context, tracks * sizes.unknowns)?,
            host_results: PinnedBuffer::new(context, tracks)?,
        })
    }

    /// Queues copies of what came of the first `jobs`.
    fn download(&mut self, jobs: usize, unknowns: usize, stream: &Stream) -> Result<(), GpuError> {
        self.points.download(&mut self.host_points, jobs * unknowns, stream)?;
        self.results.download(&mut self.host_results, jobs, stream)
    }

    /// The copies of what came of the first `jobs`.
    fn downloaded(&self, jobs: usize, unknowns: usize) -> (&[Z], &[DeviceEnd]) {
        (&self.host_points.items()[..jobs * unknowns], &self.host_results.items()[..jobs])
    }
}

fn owned(unknowns: usize, points: &[Z], ends: &[DeviceEnd]) -> Roots {
    Roots::new(unknowns, points.to_vec(), ends.iter().map(Outcome::from).collect())
}

fn copy<'a, T: Plain>(to: &mut PinnedBuffer<T>, from: impl Iterator<Item = &'a T>) {
    to.items_mut().iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// Follows all roots of a start set on the device.
pub struct GpuTracker {
    // Keeps the kernels loaded.
    bundle: Bundle,
    prepare: Kernel,
    track: Track,
    meet: Kernel,
    context: Arc<Context>,
    stream: Stream,
    events: [Event; 2],
    /// Threads that tell roots apart.
    meet_lanes: usize,
    sizes: Sizes,
    starts: DeviceBuffer<Z>,
    /// Parameters of the start.
    start: DeviceBuffer<Z>,
    queue: DeviceBuffer<Queue>,
    host_queue: PinnedBuffer<Queue>,
    room: Room,
    kernel_ms: f64,
}

impl GpuTracker {
    /// A tracker for a system and its start set; the compiled kernels are kept in the folder `cache`.
    pub(super) fn new(
        context: &Arc<Context>,
        system: &System,
        compiled: &Compiled,
        start: &StartSet,
        cache: Option<&std::path::Path>,
    ) -> Result<Self, GpuError> {
        let (programs, slots) = source(compiled, WHOLE_WARP)?;
        let meet_lanes = start.roots.len().next_power_of_two();
        let meet_lanes = meet_lanes.clamp(*MEET_LANES.start(), *MEET_LANES.end());
        let (symmetries, images) = symmetries::header(system, meet_lanes);
        let program = Program { sources: &sources(&programs, &symmetries), options: &[] };
        let bundle = Bundle::of(&program, context, cache)?;
        let [prepare, meet] = [bundle.kernel("prepare")?, bundle.kernel("meet")?];
        let track = Track::new(context, &bundle, WHOLE_WARP, 0, start.roots.len())?;
        let stream = Stream::new(context)?;
        let flat: Vec<Z> = start.roots.iter().flatten().copied().collect();
        let sizes = Sizes {
            unknowns: compiled.unknowns,
            parameters: compiled.parameters,
            coefficients: compiled.coefficients,
            terms: terms(compiled),
            slots,
            roots: start.roots.len(),
            images,
        };
        Ok(Self {
            bundle,
            prepare,
            track,
            meet,
            context: Arc::clone(context),
            events: [Event::timed(context)?, Event::timed(context)?],
            meet_lanes,
            sizes,
            starts: DeviceBuffer::holding(&flat, &stream)?,
            start: DeviceBuffer::holding(&start.parameters, &stream)?,
            queue: DeviceBuffer::new(context, 1)?,
            host_queue: PinnedBuffer::new(context, 1)?,
            room: Room::new(context, sizes, 1)?,
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

    /// A new call begins.
    pub(super) fn begin(&mut self) {
        self.kernel_ms = 0.0;
    }

    fn make_room(&mut self, instances: usize) -> Result<(), GpuError> {
        let tracks = instances.saturating_mul(self.sizes.roots);
        if u32::try_from(tracks).is_err() {
            return Err(GpuError::Absent(format!("{tracks} tracks are too many at once")));
        }
        if self.room.instances < instances {
            self.room = Room::new(&self.context, self.sizes, instances)?;
        }
        Ok(())
    }

    /// Follows every root to every one of `targets`, which have as many parameters as the system, and
    /// polishes it. Conjugates of roots of `real` equations take the places of tracks that found nothing.
    /// Tracks that meet and tracks that end in a multiple root are followed again as carefully as `again`
    /// says; what still meets has the status duplicate, but for the first of it. What is not done when the
    /// time is over has the status budget.
    pub(super) fn follow(
        &mut self,
        first: Settings,
        again: Option<Settings>,
        targets: &[&[Z]],
        real: bool,
        budget: Option<Duration>,
    ) -> Result<Vec<Solution>, GpuError> {
        let Sizes { unknowns: n, parameters, roots, .. } = self.sizes;
        let jobs = targets.len() * roots;
        if jobs == 0 {
            return Ok(targets.iter().map(|_| Solution { roots: Roots::new(n, vec![], vec![]) }).collect());
        }
        self.make_room(targets.len())?;
        copy(&mut self.room.host_targets, targets.iter().copied().flatten());
        self.room.targets.upload(&self.room.host_targets, targets.len() * parameters, &self.stream)?;
        self.events[0].record(&self.stream)?;
        self.launch_prepare(targets.len())?;
        self.launch_track(first, Jobs { count: jobs, list: 0 }, budget)?;
        self.launch_meet(targets.len(), real, again.is_none())?;
        self.events[1].record(&self.stream)?;
        self.queue.download(&mut self.host_queue, 1, &self.stream)?;
        let few = jobs * n <= FEW;
        if few {
            self.room.download(jobs, n, &self.stream)?;
        }
        self.stream.wait()?;
        self.note_time()?;
        let again = again.filter(|_| self.host_queue.items()[0].count[1] > 0);
        if let Some(again) = again {
            self.events[0].record(&self.stream)?;
            self.launch_track(again, Jobs { count: 0, list: self.room.list.address() }, budget)?;
            self.launch_meet(targets.len(), real, true)?;
            self.events[1].record(&self.stream)?;
        }
        if again.is_some() || !few {
            self.room.download(jobs, n, &self.stream)?;
            self.stream.wait()?;
        }
        if again.is_some() {
            self.note_time()?;
        }
        let (points, ends) = self.room.downloaded(jobs, n);
        let both = (points.par_chunks(roots * n), ends.par_chunks(roots));
        let solution = |(p, e): (&[Z], &[DeviceEnd])| Solution { roots: owned(n, p, e) };
        Ok(match few {
            true => points.chunks(roots * n).zip(ends.chunks(roots)).map(solution).collect(),
            false => both.into_par_iter().map(solution).collect(),
        })
    }

    /// Adds the time between the events.
    fn note_time(&mut self) -> Result<(), GpuError> {
        self.kernel_ms += self.events[1].us_since(&self.events[0])? * 1e-3;
        Ok(())
    }

    /// Queues coefficients of the paths to the targets.
    fn launch_prepare(&self, instances: usize) -> Result<(), GpuError> {
        let Room { blocks, targets, slots, series, ends, .. } = &self.room;
        let count = instances as u32;
        let [start, targets, slots, series, ends, queue] = [
            self.start.address(),
            targets.address(),
            slots.address(),
            series.address(),
            ends.address(),
            self.queue.address(),
        ];
        let grid = instances.min(*blocks) as u32;
        let shape = Shape { grid, block: PREPARE_LANES as u32, shared: 0, start: Start::After };
        let mut arguments = [
            pointer(&start),
            pointer(&targets),
            pointer(&count),
            pointer(&slots),
            pointer(&series),
            pointer(&ends),
            pointer(&queue),
        ];
        // SAFETY: the arguments of `prepare`; the arrays are as long as `Room` makes them for no fewer
        // instances.
        unsafe { self.stream.launch(self.prepare, shape, &mut arguments) }
    }

    /// Queues tracks.
    fn launch_track(&self, settings: Settings, jobs: Jobs, budget: Option<Duration>) -> Result<(), GpuError> {
        let Room { series, ends, points, results, .. } = &self.room;
        let arrays = Arrays {
            series: series.address(),
            ends: ends.address(),
            starts: self.starts.address(),
            points: points.address(),
            results: results.address(),
            queue: self.queue.address(),
        };
        // SAFETY: the arrays are as long as `Room` makes them for all tracks, and lists name only those.
        unsafe { self.track.launch(&self.stream, DeviceSettings::of::<Z>(settings), jobs, arrays, budget) }
    }

    /// Queues the search for roots that are the same; what is to be followed again is listed, or, the
    /// `last` time, statuses are set.
    fn launch_meet(&self, instances: usize, real: bool, last: bool) -> Result<(), GpuError> {
        let Room { points, results, keys, marks, list, .. } = &self.room;
        let (roots, count, level) = (self.sizes.roots as u32, instances as u32, 1u32);
        let (real, last) = (u32::from(real), u32::from(last));
        let [points, results, keys, marks] =
            [points.address(), results.address(), keys.address(), marks.address()];
        let [queue, list] = [self.queue.address(), list.address()];
        let mut arguments = [
            pointer(&points),
            pointer(&results),
            pointer(&roots),
            pointer(&count),
            pointer(&real),
            pointer(&level),
            pointer(&last),
            pointer(&keys),
            pointer(&marks),
            pointer(&queue),
            pointer(&list),
        ];
        let shape = Shape { grid: count, block: self.meet_lanes as u32, shared: 0, start: Start::After };
        // SAFETY: the arguments of `meet`; the arrays are as long as `Room` makes them.
        unsafe { self.stream.launch(self.meet, shape, &mut arguments) }
    }
}

pub mod any;
mod follower;
mod header;
mod launch;
mod symmetries;

pub use follower::Follower;

#[cfg(test)]
mod host;
