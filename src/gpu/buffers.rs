//! Memory of the device and memory of the host that the device reads directly.

use super::context::{Context, Doing, Stream};
use super::error::GpuError;
use cudarc::driver::{result, sys};
use std::marker::PhantomData;
use std::sync::Arc;

/// Numbers and structures of numbers that may be copied as bytes between host and device.
///
/// # Safety
/// Any bytes must be a valid value, and the layout must be the device's.
pub unsafe trait Plain: Copy + Send + 'static {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: a number, the same on both sides.
        unsafe impl Plain for $t {}
    )* };
}
plain!(u8, u16, u32, u64, f32, f64);
// SAFETY: two numbers one after the other, `repr(C)`.
unsafe impl<T: Plain> Plain for nalgebra::Complex<T> {}
// SAFETY: numbers one after another.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// An array on the device.
pub struct DeviceBuffer<T> {
    address: sys::CUdeviceptr,
    len: usize,
    context: Arc<Context>,
    item: PhantomData<T>,
}

// SAFETY: an address of the device, used only through calls that are checked there.
unsafe impl<T: Send> Send for DeviceBuffer<T> {}

impl<T: Plain> DeviceBuffer<T> {
    /// Room for `len` items, at least one; their values are undefined.
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Self, GpuError> {
        context.bind()?;
        let bytes = len.max(1).saturating_mul(std::mem::size_of::<T>());
        // SAFETY: the memory is written before it is read (by copies and kernels).
        let address = unsafe { result::malloc_sync(bytes) }.doing("allocating memory of the device")?;
        Ok(Self { address, len, context: Arc::clone(context), item: PhantomData })
    }

    /// Makes all bytes zero, at once. Not in the stream that waits for all others, which must not be
    /// used while another thread gathers a graph.
    pub fn clear(&mut self) -> Result<(), GpuError> {
        let stream = Stream::new(&self.context)?;
        // SAFETY: the memory is this long; zero bytes are a value of a plain type.
        unsafe { result::memset_d8_async(self.address, 0, self.bytes(), stream.raw()) }
            .doing("clearing memory")?;
        stream.wait()
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.len * std::mem::size_of::<T>()
    }

    /// How many items it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address, as an argument of kernels.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies the first `len` items of `from` here, when the stream comes to it. The host must not
    /// write to `from` before.
    pub fn upload(&mut self, from: &PinnedBuffer<T>, len: usize, stream: &Stream) -> Result<(), GpuError> {
        let Some(part) = from.items().get(..len).filter(|_| len <= self.len) else {
            return Err(too_long());
        };
        // SAFETY: both sides hold `len` items; pinned memory lives until the stream is done,
        // because its owner waits before it is dropped or written.
        unsafe { result::memcpy_htod_async(self.address, part, stream.raw()) }.doing("copying to the device")
    }

    /// Copies the first `len` items into `into`, when the stream comes to it.
    pub fn download(&self, into: &mut PinnedBuffer<T>, len: usize, stream: &Stream) -> Result<(), GpuError> {
        let mine = self.len;
        let Some(part) = into.items_mut().get_mut(..len).filter(|_| len <= mine) else {
            return Err(too_long());
        };
        // SAFETY: as in `upload`.
        unsafe { result::memcpy_dtoh_async(part, self.address, stream.raw()) }
            .doing("copying from the device")
    }

    /// Copies the items of `from` from number `first` on here, as many as there is room for, when the
    /// stream comes to it.
    pub fn copy_from(&mut self, from: &Self, first: usize, stream: &Stream) -> Result<(), GpuError> {
        if first.checked_add(self.len).is_none_or(|end| end > from.len) {
            return Err(too_long());
        }
        let source = from.address + (first * std::mem::size_of::<T>()) as u64;
        // SAFETY: both sides hold the items; they live until the stream is done, as in `upload`.
        unsafe { result::memcpy_dtod_async(self.address, source, self.bytes(), stream.raw()) }
            .doing("copying on the device")
    }

    /// A copy of `items`, there when this returns: for tests and tools.
    pub fn holding(items: &[T], stream: &Stream) -> Result<Self, GpuError> {
        let mut pinned = PinnedBuffer::new(stream.context(), items.len())?;
        pinned.items_mut()[..items.len()].copy_from_slice(items);
        let mut made = Self::new(stream.context(), items.len())?;
        made.upload(&pinned, items.len(), stream)?;
        stream.wait()?;
        Ok(made)
    }

    /// The first `len` items, waited for: for tests and tools.
    pub fn read(&self, len: usize, stream: &Stream) -> Result<Vec<T>, GpuError> {
        if len > self.len {
            return Err(too_long());
        }
        let mut pinned = PinnedBuffer::new(&self.context, len)?;
        self.download(&mut pinned, len, stream)?;
        stream.wait()?;
        Ok(pinned.items()[..len].to_vec())
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated in `new`. An error leaves nothing to be done.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// An array of the host in memory that is never paged out.
pub struct PinnedBuffer<T> {
    start: *mut T,
    len: usize,
    context: Arc<Context>,
}

// SAFETY: owned memory.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}

impl<T: Plain> PinnedBuffer<T> {
    /// Room for `len` items, at least one, all zero bytes.
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Self, GpuError> {
        context.bind()?;
        let len = len.max(1);
        let bytes = len.saturating_mul(std::mem::size_of::<T>());
        // SAFETY: filled below before anything reads it; aligned to pages.
        let start = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP) }
            .doing("allocating pinned memory")?
            .cast::<T>();
        // SAFETY: `bytes` were allocated; zero bytes are a value of a plain type.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { start, len, context: Arc::clone(context) })
    }

    /// Bytes on the host.
    pub fn bytes(&self) -> usize {
        self.len * std::mem::size_of::<T>()
    }

    /// Where the device finds it.
    pub fn device_address(&self) -> Result<u64, GpuError> {
        let mut address = 0;
        // SAFETY: allocated in `new` so that the device can reach it; writes one address.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, self.start.cast(), 0) }
            .result()
            .doing("mapping memory of the host")?;
        Ok(address)
    }

    /// The items.
    pub fn items(&self) -> &[T] {
        // SAFETY: allocated and initialised in `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The items.
    pub fn items_mut(&mut self) -> &mut [T] {
        // SAFETY: allocated and initialised in `new`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl PinnedBuffer<u8> {
    /// Writes items from byte `at` on; nothing if they do not fit.
    pub fn put<T: Plain>(&mut self, at: usize, items: &[T]) {
        // SAFETY: plain items are bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts(items.as_ptr().cast::<u8>(), std::mem::size_of_val(items)) };
        if let Some(place) = self.items_mut().get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated in `new`. An error leaves nothing to be done.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}

fn too_long() -> GpuError {
    GpuError::Cuda {
        doing: "copying more than the memory holds",
        code: sys::CUresult::CUDA_ERROR_INVALID_VALUE as i32,
        name: "CUDA_ERROR_INVALID_VALUE".to_owned(),
    }
}
