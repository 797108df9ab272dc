//! Matching on the GPU: the targets stay there, a source goes in, mutual nearest neighbours come out.

use super::Targets;
use crate::features::{Descriptor, Match};
use crate::gpu::buffers::{DeviceBuffer, PinnedBuffer, Plain};
use crate::gpu::bundle::Bundle;
use crate::gpu::context::{Context, Kernel, Shape, Start, Stream};
use crate::gpu::device::DeviceMemory;
use crate::gpu::GpuError;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

/// Threads of a block, sources of a block, targets of a chunk, as in `kernels/matching.cu`.
const THREADS: usize = 256;
const BLOCK: usize = 1024;
const CHUNK: usize = 512;

/// The argument of the kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Matching {
    sources: u32,
    chunks: u32,
    sets: u32,
    reserved: u32,
    source: u64,
    targets: u64,
    chunk: u64,
    set: u64,
    nearest: u64,
    nearest_sources: u64,
    counts: u64,
    found: u64,
}

// The same figures stand in kernels/matching.cu.
const _: () = assert!(std::mem::size_of::<Matching>() == 80);

/// Memory of a search, which grows with the largest.
struct Memory {
    /// Descriptors of the source, chunks, sets: bytes.
    letter: PinnedBuffer<u8>,
    device: DeviceBuffer<u8>,
    nearest: DeviceBuffer<[u32; 2]>,
    nearest_sources: DeviceBuffer<u32>,
    counts: DeviceBuffer<u32>,
    counted: PinnedBuffer<u32>,
    /// Source, target, distance, second of each pair.
    found: PinnedBuffer<[u32; 4]>,
}

/// Matches on the GPU.
pub(super) struct Gpu {
    memory: Memory,
    targets: DeviceBuffer<Descriptor>,
    /// Of each set, its first descriptor and how many.
    sets: Vec<[u32; 2]>,
    kernels: [Kernel; 2],
    // Dropped after the memory that it may be writing: it waits.
    stream: Stream,
    context: Arc<Context>,
    // Keeps the kernels loaded.
    bundle: Bundle,
}

impl Gpu {
    /// Takes the first device and loads the kernels (see [`Bundle::load`]).
    pub fn new(cache: Option<&Path>) -> Result<Self, GpuError> {
        let context = Context::first()?;
        let bundle = Bundle::load(&context, cache)?;
        let memory = Memory {
            letter: PinnedBuffer::new(&context, 0)?,
            device: DeviceBuffer::new(&context, 0)?,
            nearest: DeviceBuffer::new(&context, 0)?,
            nearest_sources: DeviceBuffer::new(&context, 0)?,
            counts: DeviceBuffer::new(&context, 0)?,
            counted: PinnedBuffer::new(&context, 0)?,
            found: PinnedBuffer::new(&context, 0)?,
        };
        Ok(Self {
            memory,
            targets: DeviceBuffer::new(&context, 0)?,
            sets: Vec::new(),
            kernels: [bundle.kernel("match_chunks")?, bundle.kernel("match_mutual")?],
            stream: Stream::new(&context)?,
            context,
            bundle,
        })
    }

    /// Device and kernels, for the log.
    pub fn what(&self) -> String {
        format!("{}; kernels {}", self.context.device(), self.bundle.origin())
    }

    /// All that it takes. What else in this process shares the context counts as kernels.
    pub fn memory(&self) -> Result<DeviceMemory, GpuError> {
        let m = &self.memory;
        let own = m.device.bytes() + m.nearest.bytes() + m.nearest_sources.bytes() + m.counts.bytes();
        let device = own + self.targets.bytes();
        let pinned = m.letter.bytes() + m.counted.bytes() + m.found.bytes();
        let context = self.context.in_use_at_start();
        let kernels = self.context.in_use()?.saturating_sub(context).saturating_sub(device);
        Ok(DeviceMemory { device, pinned, kernels, context })
    }

    /// Takes the targets.
    pub fn load(&mut self, targets: &Targets) -> Result<(), GpuError> {
        self.context.bind()?;
        self.sets.clear();
        self.stream.wait()?;
        let all = &targets.descriptors;
        // A number of a target is one of 32 bits.
        u32::try_from(all.len()).map_err(|_| too_many())?;
        self.targets = DeviceBuffer::holding(all, &self.stream)?;
        let mut first = 0;
        self.sets.extend(targets.ends.iter().map(|end| {
            let set = [first, *end as u32 - first];
            first = *end as u32;
            set
        }));
        Ok(())
    }

    /// Mutual nearest neighbours with each of the sets, in no order.
    pub fn search(
        &mut self,
        source: &[Descriptor],
        sets: &[usize],
        found: &mut [Vec<Match>],
    ) -> Result<(), GpuError> {
        found.iter_mut().for_each(Vec::clear);
        self.context.bind()?;
        // The search before may have ended with an error.
        self.stream.wait()?;
        let ranges = sets.iter().map(|set| self.sets.get(*set).copied().unwrap_or_default());
        let chunks: usize = ranges.clone().map(|[_, count]| (count as usize).div_ceil(CHUNK)).sum();
        let blocks = source.len().div_ceil(BLOCK);
        let pairs = sets.len().checked_mul(source.len()).ok_or_else(too_many)?;
        let grids = [chunks.checked_mul(blocks).ok_or_else(too_many)?, pairs.div_ceil(THREADS)];
        if grids[0] == 0 || grids[1] == 0 {
            return Ok(());
        }
        let grids = grids.map(|grid| i32::try_from(grid).map(i32::unsigned_abs));
        let m = &mut self.memory;
        let at_chunks = std::mem::size_of_val(source).next_multiple_of(16);
        let at_sets = at_chunks + 8 * chunks;
        let end = at_sets + 8 * sets.len();
        fit_pinned(&mut m.letter, end, &self.context)?;
        fit(&mut m.device, end, &self.context)?;
        fit(&mut m.nearest, chunks * source.len(), &self.context)?;
        fit(&mut m.nearest_sources, chunks * blocks * CHUNK, &self.context)?;
        fit(&mut m.counts, sets.len(), &self.context)?;
        fit_pinned(&mut m.counted, sets.len(), &self.context)?;
        fit_pinned(&mut m.found, pairs, &self.context)?;
        m.letter.put(0, source);
        let mut chunk = 0;
        for (s, [first, count]) in ranges.enumerate() {
            let begun = chunk;
            for at in (0..count).step_by(CHUNK) {
                m.letter.put(at_chunks + 8 * chunk, &[first + at, (count - at).min(CHUNK as u32)]);
                chunk += 1;
            }
            m.letter.put(at_sets + 8 * s, &[begun as u32, (chunk - begun) as u32]);
        }
        m.device.upload(&m.letter, end, &self.stream)?;
        let matching = Matching {
            sources: source.len() as u32,
            chunks: chunks as u32,
            sets: sets.len() as u32,
            reserved: 0,
            source: m.device.address(),
            targets: self.targets.address(),
            chunk: m.device.address() + at_chunks as u64,
            set: m.device.address() + at_sets as u64,
            nearest: m.nearest.address(),
            nearest_sources: m.nearest_sources.address(),
            counts: m.counts.address(),
            found: m.found.device_address()?,
        };
        for (kernel, grid) in self.kernels.into_iter().zip(grids) {
            let grid = grid.map_err(|_| too_many())?;
            let shape = Shape { grid, block: THREADS as u32, shared: 0, start: Start::After };
            let mut arguments: [*mut c_void; 1] = [std::ptr::from_ref(&matching).cast_mut().cast()];
            // SAFETY: the argument of both kernels; the memory was made for so many sources, chunks and sets.
            unsafe { self.stream.launch(kernel, shape, &mut arguments) }?;
        }
        m.counts.download(&mut m.counted, sets.len(), &self.stream)?;
        self.stream.wait()?;
        let pairs = m.found.items().chunks(source.len());
        for ((found, pairs), count) in found.iter_mut().zip(pairs).zip(m.counted.items()) {
            let pairs = pairs.iter().take(*count as usize);
            found.extend(pairs.map(|[source, target, distance, second]| Match {
                source: *source,
                target: *target,
                distance: *distance,
                second: *second,
            }));
        }
        Ok(())
    }
}

/// Room for so many items.
fn fit<T: Plain>(buffer: &mut DeviceBuffer<T>, len: usize, context: &Arc<Context>) -> Result<(), GpuError> {
    if buffer.len() < len {
        *buffer = DeviceBuffer::new(context, len)?;
    }
    Ok(())
}

fn fit_pinned<T: Plain>(
    buffer: &mut PinnedBuffer<T>,
    len: usize,
    context: &Arc<Context>,
) -> Result<(), GpuError> {
    if buffer.items().len() < len {
        *buffer = PinnedBuffer::new(context, len)?;
    }
    Ok(())
}

fn too_many() -> GpuError {
    GpuError::Absent("too many descriptors for a search of the GPU".to_owned())
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The device may still write to memory that is freed next.
        if self.context.bind().is_ok() {
            let _ = self.stream.wait();
        }
    }
}
