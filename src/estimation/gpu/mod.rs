//! The search of an estimation on the GPU: samples go in, the best of their poses come out. The same bits as
//! the CPU: poses, scores, the order of those that are kept.

#[cfg(test)]
mod host;
mod memory;

use super::columns::Columns;
use crate::gpu::bundle::{Bundle, Origin};
use crate::gpu::context::{Context, Kernel, Shape, Start, Stream};
use crate::gpu::device::DeviceMemory;
use crate::gpu::GpuError;
use crate::params::Params;
pub use memory::{Kept, EXACT, MOST_KEPT, MOST_SAMPLES};
use memory::{Memory, Search};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

/// Threads of a block of each kernel, as in `kernels/estimate.cu`.
const THREADS: [u32; 3] = [32, 128, 512];
/// Blocks per multiprocessor that solve and that score.
const SOLVE_BLOCKS: u32 = 10;
const SCORE_BLOCKS: u32 = 8;

/// Numbers of slots that each sample has, see [`Kept::slot`].
const SLOTS_OF_SAMPLE: usize = 64;

/// A kind of problem, as the kernels know it.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Rows of a sample.
    pub sample: usize,
    /// Most solutions of a sample.
    pub roots: usize,
    /// Numbers of a row that poses are scored with.
    pub columns: usize,
    /// Lanes that solve a sample.
    tile: u32,
    kernels: [&'static str; 3],
}

impl Kind {
    /// Points and bearings.
    pub const ABSOLUTE: Self = Self {
        sample: 3,
        roots: 4,
        columns: 12,
        tile: 1,
        kernels: ["absolute_solve", "absolute_score", "absolute_keep"],
    };
    /// Bearings in two views.
    pub const RELATIVE: Self = Self {
        sample: 5,
        roots: 10,
        columns: 19,
        tile: 16,
        kernels: ["relative_solve", "relative_score", "relative_keep"],
    };
    const ALL: [&'static Self; 2] = [&Self::ABSOLUTE, &Self::RELATIVE];
}

/// Searches on the GPU.
pub struct GpuSearch {
    memory: Memory,
    kernels: Vec<[Kernel; 3]>,
    /// The problem that was loaded, and its kernels.
    loaded: Option<(Search, &'static Kind, [Kernel; 3])>,
    start: Start,
    multiprocessors: u32,
    // Dropped after the memory that it may be writing: it waits.
    stream: Stream,
    context: Arc<Context>,
    // Keeps the kernels loaded.
    bundle: Bundle,
}

impl GpuSearch {
    /// Takes the first device, loads the kernels (see [`Bundle::load`]) and makes memory for
    /// `camera.max_correspondences`.
    ///
    /// # Errors
    /// There is no device, or it fails.
    pub fn new(params: &Params, cache: Option<&Path>) -> Result<Self, GpuError> {
        let context = Context::first()?;
        let bundle = Bundle::load(&context, cache)?;
        let kernels = Kind::ALL.iter().map(|kind| -> Result<[Kernel; 3], GpuError> {
            let [solve, score, keep] = kind.kernels;
            Ok([bundle.kernel(solve)?, bundle.kernel(score)?, bundle.kernel(keep)?])
        });
        let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
        let early = match kernels.first() {
            Some([first, ..]) => context.starts_early(*first)?,
            None => false,
        };
        let multiprocessors = match params.backend.multiprocessors.max(0) as u32 {
            0 => context.processors(),
            some => some.min(context.processors()),
        };
        Ok(Self {
            memory: Memory::new(&context, params.camera.max_correspondences.max(0) as usize)?,
            kernels,
            loaded: None,
            start: if early { Start::Early } else { Start::After },
            multiprocessors,
            stream: Stream::new(&context)?,
            context,
            bundle,
        })
    }

    /// Device, kernels and way to launch, for the log.
    pub fn what(&self) -> String {
        let device = self.context.device();
        let [major, minor] = device.compute_capability;
        let (name, origin) = (&device.name, self.bundle.origin());
        format!("{name}, compute capability {major}.{minor}; kernels {origin}")
    }

    /// Where the kernels came from.
    pub fn origin(&self) -> &Origin {
        self.bundle.origin()
    }

    /// All that it takes. What else in this process shares the context counts as kernels.
    ///
    /// # Errors
    /// The device fails.
    pub fn memory(&self) -> Result<DeviceMemory, GpuError> {
        let ([device, pinned], context) = (self.memory.bytes(), self.context.in_use_at_start());
        let kernels = self.context.in_use()?.saturating_sub(context).saturating_sub(device);
        Ok(DeviceMemory { device, pinned, kernels, context })
    }

    /// Takes a problem: of each row what samples are solved from, and the columns that poses are scored with.
    fn load<const C: usize>(
        &mut self,
        kind: &'static Kind,
        exact: impl ExactSizeIterator<Item = [f64; EXACT]>,
        columns: &Columns<C>,
    ) -> Result<(), GpuError> {
        self.context.bind()?;
        // The problem before may still be on its way.
        self.stream.wait()?;
        let search = self.memory.load(exact, columns, &self.stream)?;
        let kernels = Kind::ALL.iter().zip(&self.kernels).find(|(known, _)| **known == kind);
        self.loaded = search.zip(kernels).map(|(search, (_, kernels))| (search, kind, *kernels));
        match self.loaded {
            Some(_) => Ok(()),
            None => Err(GpuError::Absent("memory for fewer correspondences only".to_owned())),
        }
    }

    /// Solves samples (row indices, one sample after another) of the problem that was loaded and scores their
    /// poses; gives the number of poses, and the `keep` best of those that a row speaks for: score, then
    /// order of the samples.
    ///
    /// # Errors
    /// The samples are more than [`MOST_SAMPLES`] or name rows that are not there, nothing was loaded, or the
    /// device fails.
    pub fn search(&mut self, samples: &[u32], keep: usize) -> Result<(u64, &[Kept]), GpuError> {
        self.context.bind()?;
        let wrong = || GpuError::Absent("these samples cannot be searched".to_owned());
        let (search, kind, kernels) = self.loaded.ok_or_else(wrong)?;
        let count = samples.len() / kind.sample;
        let drawn = self.memory.drawn.items_mut().get_mut(..samples.len()).filter(|_| count <= MOST_SAMPLES);
        let drawn = drawn.filter(|_| samples.iter().all(|row| *row < search.rows)).ok_or_else(wrong)?;
        drawn.copy_from_slice(samples);
        let search = Search { samples: count as u32, keep: keep.min(MOST_KEPT) as u32, ..search };
        let blocks = [
            (count as u32).div_ceil(THREADS[0] / kind.tile).min(SOLVE_BLOCKS * self.multiprocessors),
            (count as u32).min(SCORE_BLOCKS * self.multiprocessors),
            1,
        ];
        // The first one is behind a copy or another round, which it waits for.
        let starts = [Start::After, self.start, self.start];
        for (((kernel, grid), block), start) in kernels.into_iter().zip(blocks).zip(THREADS).zip(starts) {
            let shape = Shape { grid: grid.max(1), block, shared: 0, start };
            let mut arguments: [*mut c_void; 1] = [std::ptr::from_ref(&search).cast_mut().cast()];
            // SAFETY: the argument of every kernel, which begins with `arrive`; the memory was made for so many
            // samples, and their rows are there.
            unsafe { self.stream.launch(kernel, shape, &mut arguments) }?;
        }
        self.stream.wait()?;
        let found = self.memory.outbox.items().first().ok_or_else(wrong)?;
        Ok((u64::from(found.poses), found.kept.get(..found.count as usize).unwrap_or_default()))
    }

    /// For tests: the poses of the last round, each with its slot and score.
    ///
    /// # Errors
    /// The device fails.
    pub fn read_poses(&self, samples: usize) -> Result<Vec<Kept>, GpuError> {
        let roots = self.loaded.map_or(0, |(_, kind, _)| kind.roots);
        let (m, stream) = (&self.memory, &self.stream);
        let counts = m.counts.read(samples, stream)?;
        let (poses, scores) =
            (m.poses.read(samples * roots, stream)?, m.scores.read(samples * roots, stream)?);
        let slots = counts.iter().enumerate().flat_map(|(i, n)| (0..*n as usize).map(move |k| (i, k)));
        let kept = |(i, k)| {
            let (at, slot) = (i * roots + k, (i * SLOTS_OF_SAMPLE + k) as u32);
            Kept { pose: poses[at], score: scores[at], slot }
        };
        Ok(slots.map(kept).collect())
    }
}

impl Drop for GpuSearch {
    fn drop(&mut self) {
        // The device may still write to memory that is freed next.
        if self.context.bind().is_ok() {
            let _ = self.stream.wait();
        }
    }
}
