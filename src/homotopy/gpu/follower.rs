//! Tracks from the start to their ends and nothing else: what comes of them is judged by the host.

use super::any::{options, Any};
use super::header::{terms, Fitted};
use super::launch::{Arrays, Jobs, Track};
use super::{owned, track_sources, DeviceEnd, DeviceSettings, Number, Queue, WHOLE_WARP, Z};
use crate::gpu::buffers::{DeviceBuffer, PinnedBuffer};
use crate::gpu::bundle::{Bundle, Program};
use crate::gpu::context::{Context, Event, Stream};
use crate::gpu::nvrtc::Nvrtc;
use crate::gpu::GpuError;
use crate::homotopy::program::{Compiled, Path};
use crate::homotopy::roots::Roots;
use crate::homotopy::start::StartSet;
use crate::homotopy::track::Settings;
use std::sync::Arc;
use std::time::Duration;

/// Memory for so many instances.
struct Room<T: Number> {
    instances: usize,
    series: DeviceBuffer<T>,
    ends: DeviceBuffer<T>,
    points: DeviceBuffer<T>,
    results: DeviceBuffer<DeviceEnd>,
    host_series: PinnedBuffer<T>,
    host_ends: PinnedBuffer<T>,
    host_points: PinnedBuffer<T>,
    host_results: PinnedBuffer<DeviceEnd>,
}

/// Follows all roots of a start set on the device, in numbers `T`. What is double is polished there.
pub struct Follower<T: Number> {
    // Keeps the kernel loaded.
    bundle: Bundle,
    track: Track,
    // Read by kernels for any system.
    _tables: Option<(DeviceBuffer<u64>, DeviceBuffer<T>)>,
    context: Arc<Context>,
    stream: Stream,
    events: [Event; 2],
    /// Unknowns of the system and of the kernels.
    unknowns: [usize; 2],
    coefficients: usize,
    terms: usize,
    roots: usize,
    starts: DeviceBuffer<T>,
    queue: DeviceBuffer<Queue>,
    host_queue: PinnedBuffer<Queue>,
    room: Room<T>,
    kernel_ms: f64,
}

impl<T: Number> Follower<T> {
    /// For a system and its start set: a kernel compiled for it, or without a compiler one made ahead for
    /// any system.
    pub fn new(
        context: &Arc<Context>,
        compiled: &Compiled,
        start: &StartSet,
        cache: Option<&std::path::Path>,
    ) -> Result<Self, GpuError> {
        let stream = Stream::new(context)?;
        let (n, roots) = (compiled.unknowns, start.roots.len());
        let (bundle, tables, wide, shared) = match Nvrtc::get() {
            Ok(_) => {
                let header = Fitted::new(compiled, WHOLE_WARP, std::mem::size_of::<T>())?.header();
                let program = Program { sources: &track_sources(&header), options: options(T::SINGLE) };
                (Bundle::of(&program, context, cache)?, None, n, 0)
            }
            Err(why) => {
                let any = Any::of::<T>(compiled)?;
                let bundle = Bundle::ahead(any.program, context, &why)?;
                let tables = any.fill::<T>(&bundle, &stream)?;
                (bundle, Some(tables), any.unknowns, any.fitted.shared as u32)
            }
        };
        let zero = Z::new(0.0, 0.0);
        let filled = |root: &Vec<Z>| {
            root.iter().copied().chain(std::iter::repeat(zero)).take(wide).collect::<Vec<_>>()
        };
        let starts: Vec<T> = start.roots.iter().flat_map(filled).map(T::of).collect();
        let mut follower = Self {
            track: Track::new(context, &bundle, WHOLE_WARP, shared, roots)?,
            bundle,
            _tables: tables,
            context: Arc::clone(context),
            events: [Event::timed(context)?, Event::timed(context)?],
            unknowns: [n, wide],
            coefficients: compiled.coefficients,
            terms: terms(compiled),
            roots,
            starts: DeviceBuffer::holding(&starts, &stream)?,
            queue: DeviceBuffer::new(context, 1)?,
            host_queue: PinnedBuffer::new(context, 1)?,
            room: Room::new(context, [0; 3], 0)?,
            stream,
            kernel_ms: 0.0,
        };
        follower.make_room(1)?;
        Ok(follower)
    }

    /// Where the kernel came from, and what it is.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// A call begins.
    pub fn begin(&mut self) {
        self.kernel_ms = 0.0;
    }

    /// How long the kernel took since then, ms.
    pub fn kernel_ms(&self) -> f64 {
        self.kernel_ms
    }

    fn make_room(&mut self, instances: usize) -> Result<(), GpuError> {
        let tracks = instances.saturating_mul(self.roots);
        if u32::try_from(tracks).is_err() {
            return Err(GpuError::Absent(format!("{tracks} tracks are too many at once")));
        }
        if self.room.instances < instances {
            let sizes = [self.coefficients * self.terms, self.coefficients, self.roots];
            self.room = Room::new(&self.context, sizes.map(|size| size * instances), self.unknowns[1])?;
            self.room.instances = instances;
        }
        Ok(())
    }

    /// Follows every root along every one of `paths`. Roots in single precision are ok if they came to
    /// the end; what is not done when the time is over has the status budget.
    pub fn follow(
        &mut self,
        settings: Settings,
        paths: &[Path],
        budget: Option<Duration>,
    ) -> Result<Roots, GpuError> {
        self.make_room(paths.len())?;
        let (jobs, [n, wide]) = (paths.len() * self.roots, self.unknowns);
        let (c, stream, room) = (self.coefficients, &self.stream, &mut self.room);
        // The kernel wants two terms at least.
        let given = paths.first().map_or(1, |path| (path.series.len() / c.max(1)).max(1));
        let zeros = vec![Z::new(0.0, 0.0); self.terms - given];
        let terms = paths.iter().flat_map(|path| path.series.chunks(given));
        copy(&mut room.host_series, terms.flat_map(|terms| terms.iter().chain(&zeros)));
        copy(&mut room.host_ends, paths.iter().flat_map(|path| &path.end));
        room.series.upload(&room.host_series, paths.len() * c * self.terms, stream)?;
        room.ends.upload(&room.host_ends, paths.len() * c, stream)?;
        self.host_queue.items_mut()[0] = Queue::default();
        self.queue.upload(&self.host_queue, 1, stream)?;
        let arrays = Arrays {
            series: room.series.address(),
            ends: room.ends.address(),
            starts: self.starts.address(),
            points: room.points.address(),
            results: room.results.address(),
            queue: self.queue.address(),
        };
        let all = Jobs { count: jobs, list: 0 };
        self.events[0].record(stream)?;
        // SAFETY: the room is for all tracks of so many instances.
        unsafe { self.track.launch(stream, DeviceSettings::of::<T>(settings), all, arrays, budget)? };
        self.events[1].record(stream)?;
        room.points.download(&mut room.host_points, jobs * wide, stream)?;
        room.results.download(&mut room.host_results, jobs, stream)?;
        stream.wait()?;
        self.kernel_ms += self.events[1].us_since(&self.events[0])? * 1e-3;
        let numbers = &room.host_points.items()[..jobs * wide];
        let points: Vec<Z> = numbers.chunks(wide).flat_map(|x| &x[..n]).map(|x| x.z()).collect();
        let mut roots = owned(n, &points, &room.host_results.items()[..jobs]);
        if T::SINGLE {
            roots.set_single();
        }
        Ok(roots)
    }
}

impl<T: Number> Room<T> {
    /// For so many numbers of series, coefficients and tracks of so many unknowns.
    fn new(
        context: &Arc<Context>,
        [series, ends, tracks]: [usize; 3],
        unknowns: usize,
    ) -> Result<Self, GpuError> {
        Ok(Self {
            instances: 0,
            series: DeviceBuffer::new(context, series)?,
            ends: DeviceBuffer::new(context, ends)?,
            points: DeviceBuffer::new(context, tracks * unknowns)?,
            results: DeviceBuffer::new(context, tracks)?,
            host_series: PinnedBuffer::new(context, series)?,
            host_ends: PinnedBuffer::new(context, ends)?,
            host_points: PinnedBuffer::new(context, tracks * unknowns)?,
            host_results: PinnedBuffer::new(context, tracks)?,
        })
    }
}

fn copy<'a, T: Number>(to: &mut PinnedBuffer<T>, from: impl Iterator<Item = &'a Z>) {
    to.items_mut().iter_mut().zip(from).for_each(|(to, from)| *to = T::of(*from));
}
