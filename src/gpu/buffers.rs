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
// SAFETY: a shared reference only reads it.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

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

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated in `new`. An error leaves nothing to be done.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}

/// Rows of the same length at two places.
pub struct Rows {
    /// Rows.
    pub count: usize,
    /// Items of a row that are copied.
    pub len: usize,
    /// Items from the beginning of a row to that of the next, on the host and on the device.
    pub pitch: [usize; 2],
}

/// Copies rows of the host to an array on the device, when the stream comes to it; at once from
/// memory that is not pinned.
///
/// # Safety
/// `address` is that of an array that holds the rows, and `from` lives until it is copied. What is
/// written to it before is copied, or not.
pub unsafe fn send_rows<T: Plain>(
    from: &[T],
    address: u64,
    rows: &Rows,
    stream: &Stream,
) -> Result<(), GpuError> {
    let [host, device] = rows.pitch;
    let needed = rows.count.saturating_sub(1) * host + rows.len;
    if needed > from.len() || rows.len > host || rows.len > device {
        return Err(too_long());
    }
    let size = std::mem::size_of::<T>();
    let copy = sys::CUDA_MEMCPY2D {
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: from.as_ptr().cast(),
        srcPitch: host * size,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: address,
        dstPitch: device * size,
        WidthInBytes: rows.len * size,
        Height: rows.count,
        srcXInBytes: 0,
        srcY: 0,
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        dstXInBytes: 0,
        dstY: 0,
        dstHost: std::ptr::null_mut(),
        dstArray: std::ptr::null_mut(),
    };
    // SAFETY: the rows lie within this memory, and within the device's as the caller promises.
    unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.raw()) }.result().doing("copying to the device")
}

fn too_long() -> GpuError {
    GpuError::Cuda {
        doing: "copying more than the memory holds",
        code: sys::CUresult::CUDA_ERROR_INVALID_VALUE as i32,
        name: "CUDA_ERROR_INVALID_VALUE".to_owned(),
    }
}
