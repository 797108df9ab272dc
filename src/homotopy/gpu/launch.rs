//! The kernel that follows tracks, and its arguments.

use super::{DeviceSettings, Tiling, WARP};
use crate::gpu::bundle::Bundle;
use crate::gpu::context::{Context, Kernel, Shape, Start, Stream};
use crate::gpu::GpuError;
use std::ffi::c_void;
use std::time::Duration;

/// What tracks read and write, by addresses.
#[derive(Clone, Copy)]
pub struct Arrays {
    pub series: u64,
    pub ends: u64,
    pub starts: u64,
    pub points: u64,
    pub results: u64,
    pub queue: u64,
}

/// Which tracks.
#[derive(Clone, Copy)]
pub struct Jobs {
    /// How many, zero if the queue tells: those that are followed again.
    pub count: usize,
    /// Where their list is, zero if they are all tracks.
    pub list: u64,
}

/// The kernel `track` of a bundle.
pub struct Track {
    kernel: Kernel,
    tiling: Tiling,
    /// Bytes of shared memory that are asked for at each start.
    shared: u32,
    /// Tracks get ready while coefficients are computed, if they can.
    way: Start,
    /// Blocks that the device holds at once.
    blocks: usize,
    /// Roots of the start set.
    roots: u32,
}

impl Track {
    pub fn new(
        context: &Context,
        bundle: &Bundle,
        tiling: Tiling,
        shared: u32,
        roots: usize,
    ) -> Result<Self, GpuError> {
        let kernel = bundle.kernel("track")?;
        let resident = context.resident_blocks(kernel, (tiling.warps * WARP) as u32, shared)?;
        let way = if context.starts_early(kernel)? { Start::Early } else { Start::After };
        let blocks = (resident.max(1) * context.processors()) as usize;
        Ok(Self { kernel, tiling, shared, way, blocks, roots: roots as u32 })
    }

    /// Queues tracks.
    ///
    /// # Safety
    /// The arrays are on the device, as long as the kernel has them for all tracks that the list names.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        settings: DeviceSettings,
        jobs: Jobs,
        arrays: Arrays,
        budget: Option<Duration>,
    ) -> Result<(), GpuError> {
        // Zero is no limit.
        let budget = budget.map_or(0, |time| time.as_nanos().clamp(1, u128::from(u64::MAX)) as u64);
        let tiles = self.tiling.warps * WARP / self.tiling.lanes;
        // What is followed again was listed by the kernel just before.
        let (most, start, level) = match jobs.count {
            0 => (self.blocks, Start::After, 1u32),
            count => (count.div_ceil(tiles).min(self.blocks), self.way, 0),
        };
        let block = (self.tiling.warps * WARP) as u32;
        let shape = Shape { grid: most as u32, block, shared: self.shared, start };
        let count = jobs.count as u32;
        let Arrays { series, ends, starts, points, results, queue } = arrays;
        let mut arguments = [
            pointer(&series),
            pointer(&ends),
            pointer(&starts),
            pointer(&self.roots),
            pointer(&count),
            pointer(&jobs.list),
            pointer(&settings),
            pointer(&budget),
            pointer(&queue),
            pointer(&level),
            pointer(&points),
            pointer(&results),
        ];
        // SAFETY: the arguments of `track`; the arrays as the caller promises.
        unsafe { stream.launch(self.kernel, shape, &mut arguments) }
    }
}

/// An argument of a kernel, which is only read.
pub fn pointer<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}
