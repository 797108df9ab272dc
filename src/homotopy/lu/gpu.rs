//! Batches of small systems on the GPU: `kernels/lu.cu`, compiled for one kind of number, size and
//! tile when it is asked for.

use super::{Number, MAX_SIZE};
use crate::gpu::buffers::{DeviceBuffer, Plain};
use crate::gpu::bundle::{Bundle, Program, COMMON};
use crate::gpu::context::{Context, Kernel, Shape, Start, Stream};
use crate::gpu::GpuError;
use nalgebra::Complex;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// Headers of kernels that solve small systems.
pub const HEADERS: [(&str, &str); 2] = [("lu.cuh", include_str!("../../../kernels/lu.cuh")), COMMON];
const SOURCE: (&str, &str) = ("lu.cu", include_str!("../../../kernels/lu.cu"));
const WARP: u32 = 32;
/// Warps of a block, at most.
pub const MAX_WARPS: u32 = 4;
/// Registers of a thread that may hold its rows: with more, others are spilled.
const REGISTERS: usize = 168;

/// Numbers that the kernel knows.
pub trait DeviceNumber: Number + Plain {
    /// Their type there.
    const NAME: &'static str;
}

impl DeviceNumber for f32 {
    const NAME: &'static str = "float";
}
impl DeviceNumber for f64 {
    const NAME: &'static str = "double";
}
impl DeviceNumber for Complex<f32> {
    const NAME: &'static str = "Complex<float>";
}
impl DeviceNumber for Complex<f64> {
    const NAME: &'static str = "Complex<double>";
}

/// How a batch is spread over threads; the numbers do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Lanes of a warp for each system, 1 ..= 32.
    pub lanes: u32,
    /// Warps of a block, 1 ..= [`MAX_WARPS`].
    pub warps: u32,
}

impl Tiling {
    /// Numbers of lanes that make sense for systems of `size` unknowns: each lane has as many rows as
    /// another, but for the last, and they fit its registers.
    pub fn lanes<T: Number>(size: usize) -> Vec<u32> {
        let words = std::mem::size_of::<T>() / 4;
        let fits = |rows: &usize| *rows == 1 || rows * (size + 1) * words <= REGISTERS;
        let mut lanes: Vec<u32> =
            (1..=size).filter(fits).map(|rows| size.div_ceil(rows) as u32).filter(|l| *l <= WARP).collect();
        lanes.dedup();
        lanes
    }

    /// For batches of about `count` systems of `size` unknowns on a device with so many
    /// multiprocessors.
    pub fn choose<T: Number>(size: usize, count: usize, processors: u32) -> Self {
        let lanes = Self::lanes::<T>(size);
        let widest = lanes.first().copied().unwrap_or(1);
        // Too few to fill the device: each is solved as fast as can be.
        let warps = count / (WARP / widest) as usize;
        if warps <= 8 * processors as usize {
            return Self { lanes: widest, warps: 1 };
        }
        // A warp's time grows with the rows of a lane, from a constant that is worth a row.
        let cost = |lanes: &u32| (1 + (size as u32).div_ceil(*lanes)) * 1000 / (WARP / lanes);
        Self { lanes: lanes.into_iter().min_by_key(cost).unwrap_or(1), warps: 2 }
    }
}

/// Solves batches of systems of one size.
pub struct BatchedLu<T> {
    // Keeps the kernel loaded.
    bundle: Bundle,
    kernel: Kernel,
    size: usize,
    tiling: Tiling,
    number: PhantomData<fn(T)>,
}

impl<T: DeviceNumber> BatchedLu<T> {
    /// For systems of `size` unknowns, 1 ..= [`MAX_SIZE`]; the compiled kernel is kept in the folder
    /// `cache`.
    pub fn new(
        context: &Arc<Context>,
        size: usize,
        tiling: Tiling,
        cache: Option<&Path>,
    ) -> Result<Self, GpuError> {
        let Tiling { lanes, warps } = tiling;
        if !(1..=MAX_SIZE).contains(&size)
            || !(1..=WARP).contains(&lanes)
            || !(1..=MAX_WARPS).contains(&warps)
        {
            return Err(GpuError::Absent(format!(
                "there is no kernel for systems of {size} unknowns, {lanes} lanes each, in blocks of {warps} warps"
            )));
        }
        let options = options::<T>(size, tiling);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let program = Program { sources: &sources(), options: &options };
        let bundle = Bundle::of(&program, context, cache)?;
        let kernel = bundle.kernel("lu_solve")?;
        Ok(Self { bundle, kernel, size, tiling, number: PhantomData })
    }

    /// Unknowns of a system.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How it is spread over threads.
    pub fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// The module of the kernel.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Queues the solution of `count` systems: `a` holds the matrices, column by column, `b` the right
    /// sides, `x` gets the unknowns and `failed` a number for [`super::Failure::from_code`]; `x` is zero
    /// where there is a failure. Nothing is allocated or waited for.
    pub fn solve(
        &self,
        count: usize,
        [a, b]: [&DeviceBuffer<T>; 2],
        x: &mut DeviceBuffer<T>,
        failed: &mut DeviceBuffer<u32>,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let numbers = self.size.saturating_mul(count);
        let enough = a.len() >= self.size.saturating_mul(numbers)
            && b.len() >= numbers
            && x.len() >= numbers
            && failed.len() >= count;
        let Some(mut count) = u32::try_from(count).ok().filter(|_| enough) else {
            return Err(GpuError::Absent(format!("the memory holds fewer than {count} systems")));
        };
        if count == 0 {
            return Ok(());
        }
        let Tiling { lanes, warps } = self.tiling;
        let shape = Shape {
            grid: count.div_ceil(WARP / lanes).div_ceil(warps),
            block: warps * WARP,
            shared: 0,
            start: Start::After,
        };
        let mut addresses = [a.address(), b.address(), x.address(), failed.address()];
        let [a, b, x, failed] =
            addresses.each_mut().map(|address| std::ptr::from_mut(address).cast::<c_void>());
        let mut arguments = [a, b, x, failed, std::ptr::from_mut(&mut count).cast()];
        // SAFETY: the arguments of `lu_solve`; the arrays are as long as checked above, and
        // `x` and `failed` are borrowed for writing.
        unsafe { stream.launch(self.kernel, shape, &mut arguments) }
    }
}

fn sources() -> [(&'static str, &'static str); 3] {
    [SOURCE, HEADERS[0], HEADERS[1]]
}

fn options<T: DeviceNumber>(size: usize, tiling: Tiling) -> [String; 4] {
    [
        format!("-DLU_NUMBER={}", T::NAME),
        format!("-DLU_SIZE={size}"),
        format!("-DLU_LANES={}", tiling.lanes),
        format!("-DLU_WARPS={}", tiling.warps),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::nvrtc::Nvrtc;

    #[test]
    fn tilings_are_possible() {
        for size in 1..=MAX_SIZE {
            let lanes = Tiling::lanes::<Complex<f64>>(size);
            assert_eq!(lanes.first(), Some(&(size as u32)));
            assert!(lanes.is_sorted_by(|one, two| one > two), "{lanes:?}");
            for count in [1, 1000, 100_000] {
                let Tiling { lanes: chosen, warps } = Tiling::choose::<Complex<f64>>(size, count, 132);
                assert!(lanes.contains(&chosen) && (1..=MAX_WARPS).contains(&warps));
            }
        }
        // Two rows a lane, so that three matrices share a warp.
        assert_eq!(Tiling::choose::<Complex<f64>>(20, 100_000, 132).lanes, 10);
    }

    fn compiles<T: DeviceNumber>(nvrtc: &Nvrtc, size: usize) {
        let lanes = Tiling::choose::<T>(size, 100_000, 132).lanes;
        let options = options::<T>(size, Tiling { lanes, warps: 2 });
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let image = Program { sources: &sources(), options: &options }.machine_code(nvrtc, 87);
        assert!(image.expect("compiles").starts_with(b"\x7fELF"), "{} {size}", T::NAME);
    }

    #[test]
    fn the_kernel_compiles_for_every_kind_of_number() {
        match Nvrtc::get() {
            Ok(nvrtc) => {
                compiles::<f32>(nvrtc, 8);
                compiles::<f64>(nvrtc, 1);
                compiles::<Complex<f32>>(nvrtc, 7);
                compiles::<Complex<f64>>(nvrtc, 4);
            }
            Err(why) => {
                assert!(std::env::var_os(crate::gpu::nvrtc::VARIABLE).is_none(), "{why}");
                println!("skipped: {why}");
            }
        }
    }
}
