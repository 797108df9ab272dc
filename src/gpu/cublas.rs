//! cuBLAS' batched LU, to compare ours with. The library is loaded when it is first needed.

use super::buffers::{DeviceBuffer, Plain};
use super::context::Stream;
use super::error::GpuError;
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys::{self, cublasHandle_t, cublasOperation_t, cublasStatus_t};
use nalgebra::Complex;
use std::ffi::c_int;

/// Numbers that cuBLAS solves systems of.
pub trait BlasNumber: Plain {
    /// Their type in cuBLAS.
    type Raw;
    /// Factorises a batch.
    ///
    /// # Safety
    /// As cublas?getrfBatched asks.
    unsafe fn factorise(
        handle: cublasHandle_t,
        size: c_int,
        a: *const *mut Self::Raw,
        pivots: *mut c_int,
        info: *mut c_int,
        count: c_int,
    ) -> cublasStatus_t;
    /// Solves a batch with one right side each.
    ///
    /// # Safety
    /// As cublas?getrsBatched asks.
    unsafe fn substitute(
        handle: cublasHandle_t,
        size: c_int,
        a: *const *const Self::Raw,
        pivots: *const c_int,
        b: *const *mut Self::Raw,
        count: c_int,
    ) -> cublasStatus_t;
}

macro_rules! blas_numbers {
    ($($number:ty as $raw:ty: $getrf:ident, $getrs:ident;)+) => { $(
        impl BlasNumber for $number {
            type Raw = $raw;

            unsafe fn factorise(
                handle: cublasHandle_t,
                size: c_int,
                a: *const *mut $raw,
                pivots: *mut c_int,
                info: *mut c_int,
                count: c_int,
            ) -> cublasStatus_t {
                // SAFETY: as the caller promises.
                unsafe { sys::$getrf(handle, size, a, size, pivots, info, count) }
            }

            unsafe fn substitute(
                handle: cublasHandle_t,
                size: c_int,
                a: *const *const $raw,
                pivots: *const c_int,
                b: *const *mut $raw,
                count: c_int,
            ) -> cublasStatus_t {
                let mut info = 0;
                // SAFETY: as the caller promises.
                unsafe {
                    let op = cublasOperation_t::CUBLAS_OP_N;
                    sys::$getrs(handle, op, size, 1, a, size, pivots, b, size, &mut info, count)
                }
            }
        }
    )+ };
}
blas_numbers! {
    f32 as f32: cublasSgetrfBatched, cublasSgetrsBatched;
    f64 as f64: cublasDgetrfBatched, cublasDgetrsBatched;
    Complex<f32> as sys::cuComplex: cublasCgetrfBatched, cublasCgetrsBatched;
    Complex<f64> as sys::cuDoubleComplex: cublasZgetrfBatched, cublasZgetrsBatched;
}

/// A loaded cuBLAS that works in one stream.
pub struct Cublas {
    handle: cublasHandle_t,
    stream: Stream,
}

impl Cublas {
    /// Loads it.
    pub fn new(stream: Stream) -> Result<Self, GpuError> {
        stream.context().bind()?;
        // SAFETY: loads the library and drops it again. Asked first because every call below panics
        // where the library is absent.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::Absent("cuBLAS (libcublas) is not installed".to_owned()));
        }
        let handle = result::create_handle().map_err(|e| error("making a handle of cuBLAS", e))?;
        let made = Self { handle, stream };
        // SAFETY: both live as long as `made`.
        unsafe { result::set_stream(made.handle, made.stream.raw().cast()) }
            .map_err(|e| error("setting the stream of cuBLAS", e))?;
        Ok(made)
    }

    /// Its stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        if self.stream.context().bind().is_ok() {
            // SAFETY: made in `new`. An error leaves nothing to be done.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

/// A batch of systems A x = b.
pub struct Batch<T> {
    a: DeviceBuffer<T>,
    b: DeviceBuffer<T>,
    info: DeviceBuffer<u32>,
    a_each: DeviceBuffer<u64>,
    b_each: DeviceBuffer<u64>,
    pivots: DeviceBuffer<u32>,
    size: usize,
    count: usize,
}

impl<T: BlasNumber> Batch<T> {
    /// Room for `count` systems of `size` unknowns.
    pub fn new(size: usize, count: usize, stream: &Stream) -> Result<Self, GpuError> {
        let context = stream.context();
        let numbers = size.saturating_mul(count);
        let a = DeviceBuffer::new(context, numbers.saturating_mul(size))?;
        let b = DeviceBuffer::new(context, numbers)?;
        let each = |start: u64, numbers: usize| {
            let step = (numbers * std::mem::size_of::<T>()) as u64;
            let addresses: Vec<u64> = (0..count as u64).map(|i| start + i * step).collect();
            DeviceBuffer::holding(&addresses, stream)
        };
        let (a_each, b_each) = (each(a.address(), size * size)?, each(b.address(), size)?);
        let (pivots, info) = (DeviceBuffer::new(context, numbers)?, DeviceBuffer::new(context, count)?);
        Ok(Self { a, b, info, a_each, b_each, pivots, size, count })
    }

    /// Queues copies of matrices, column by column, and right sides: the numbers of `from` from these
    /// places on.
    pub fn load(
        &mut self,
        from: &DeviceBuffer<T>,
        [a, b]: [usize; 2],
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.a.copy_from(from, a, stream)?;
        self.b.copy_from(from, b, stream)
    }

    /// The unknowns after `solve`.
    pub fn unknowns(&self) -> &DeviceBuffer<T> {
        &self.b
    }

    /// Per system after `solve`: zero, or the step (from 1) whose pivot is zero.
    pub fn info(&self) -> &DeviceBuffer<u32> {
        &self.info
    }

    /// Queues factorisation and solution, which replace what was loaded.
    pub fn solve(&mut self, cublas: &Cublas) -> Result<(), GpuError> {
        cublas.stream.context().bind()?;
        let (size, count) = (self.size as c_int, self.count as c_int);
        let (a, b) = (self.a_each.address(), self.b_each.address());
        let pivots = self.pivots.address() as *mut c_int;
        // SAFETY: arrays of the device with `count` matrices and right sides, and the addresses of each;
        // they live until the stream is done, as their owner waits before it drops them.
        unsafe {
            T::factorise(cublas.handle, size, a as _, pivots, self.info.address() as _, count)
                .result()
                .map_err(|e| error("factorising with cuBLAS", e))?;
            T::substitute(cublas.handle, size, a as _, pivots, b as _, count)
                .result()
                .map_err(|e| error("solving with cuBLAS", e))
        }
    }
}

fn error(doing: &'static str, error: CublasError) -> GpuError {
    GpuError::Cuda { doing, code: error.0 as i32, name: format!("{:?}", error.0) }
}
