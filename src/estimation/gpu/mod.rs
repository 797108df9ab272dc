//! The search of an estimation on the GPU: samples go in, the best of their poses come out. The same bits as
//! the CPU: poses, scores, the order of those that are kept.

mod memory;
#[cfg(test)]
mod tests;

use super::absolute::Absolute;
use super::columns::Columns;
use super::model::{Scored, Search, SLOTS};
use super::relative::Relative;
use crate::geometry::{Pose, Vector};
use crate::gpu::bundle::Bundle;
use crate::gpu::context::{Context, Kernel, Shape, Start, Stream};
use crate::gpu::device::DeviceMemory;
use crate::gpu::GpuError;
use crate::params::Params;
use crate::registration::lanes::{Deadline, Stop};
use memory::{Kept, Memory, Round, EXACT, MOST_KEPT, MOST_SAMPLES};
use nalgebra::Matrix3;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

/// Threads of a block of each kernel, as in `kernels/estimate.cu`.
const THREADS: [u32; 3] = [32, 128, 512];
/// Blocks per multiprocessor that solve and that score.
const SOLVE_BLOCKS: u32 = 10;
const SCORE_BLOCKS: u32 = 8;

// The kernels number slots in the same way.
const _: () = assert!(SLOTS == 64);

/// A kind of problem, as the kernels know it.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    /// Rows of a sample.
    sample: usize,
    /// Most solutions of a sample.
    roots: usize,
    /// Numbers of a row that poses are scored with.
    columns: usize,
    /// Lanes that solve a sample.
    tile: u32,
    kernels: [&'static str; 3],
}

impl Kind {
    /// Points and bearings.
    const ABSOLUTE: Self = Self {
        sample: 3,
        roots: 4,
        columns: 12,
        tile: 1,
        kernels: ["absolute_solve", "absolute_score", "absolute_keep"],
    };
    /// Bearings in two views.
    const RELATIVE: Self = Self {
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
    loaded: Option<(Round, &'static Kind, [Kernel; 3])>,
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
        format!("{}; kernels {}", self.context.device(), self.bundle.origin())
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
    fn take<const C: usize>(
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

    /// Solves samples (row indices, one sample after another) of the problem that was taken and scores their
    /// poses; gives the number of poses, and the `keep` best of those that a row speaks for: score, then
    /// order of the samples.
    fn round(&mut self, samples: &[u32], keep: usize) -> Result<(u64, &[Kept]), GpuError> {
        self.context.bind()?;
        let wrong = || GpuError::Absent("these samples cannot be searched".to_owned());
        let (search, kind, kernels) = self.loaded.ok_or_else(wrong)?;
        let count = samples.len() / kind.sample;
        let drawn = self.memory.drawn.items_mut().get_mut(..samples.len()).filter(|_| count <= MOST_SAMPLES);
        let drawn = drawn.filter(|_| samples.iter().all(|row| *row < search.rows)).ok_or_else(wrong)?;
        drawn.copy_from_slice(samples);
        let search = Round { samples: count as u32, keep: keep.min(MOST_KEPT) as u32, ..search };
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

    fn best(&mut self, samples: &[u32], keep: usize, best: &mut Vec<Scored<Pose>>) -> Result<u64, Stop> {
        let (poses, kept) = self.round(samples, keep)?;
        let scored = |k: &Kept| Scored { hypothesis: pose_of(&k.pose), score: k.score, slot: k.slot };
        best.clear();
        best.extend(kept.iter().map(scored));
        Ok(poses)
    }
}

fn pose_of(numbers: &[f64; 12]) -> Pose {
    let [r @ .., x, y, z] = numbers;
    Pose { rotation: Matrix3::from_row_slice(r), translation: Vector::new(*x, *y, *z) }
}

impl Search<Absolute> for GpuSearch {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn load(&mut self, model: &Absolute) -> Result<(), Stop> {
        let rows = model.kept().iter().map(|row| exact(&row.point, &row.bearing));
        Ok(self.take(&Kind::ABSOLUTE, rows, model.columns())?)
    }

    fn search(
        &mut self,
        _: &Absolute,
        samples: &[u32],
        keep: usize,
        best: &mut Vec<Scored<Pose>>,
        _: Deadline,
    ) -> Result<u64, Stop> {
        self.best(samples, keep, best)
    }
}

impl Search<Relative> for GpuSearch {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn load(&mut self, model: &Relative) -> Result<(), Stop> {
        let rows = model.kept().iter().map(|row| exact(&row.current.bearing, &row.reference.bearing));
        Ok(self.take(&Kind::RELATIVE, rows, model.columns())?)
    }

    fn search(
        &mut self,
        _: &Relative,
        samples: &[u32],
        keep: usize,
        best: &mut Vec<Scored<Pose>>,
        _: Deadline,
    ) -> Result<u64, Stop> {
        self.best(samples, keep, best)
    }
}

fn exact(a: &Vector, b: &Vector) -> [f64; EXACT] {
    [a.x, a.y, a.z, b.x, b.y, b.z]
}

impl Drop for GpuSearch {
    fn drop(&mut self) {
        // The device may still write to memory that is freed next.
        if self.context.bind().is_ok() {
            let _ = self.stream.wait();
        }
    }
}
