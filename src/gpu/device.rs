//! What CUDA there is on this machine. Nothing of NVIDIA needs to be installed to ask.

use serde::Serialize;
use std::fmt;

/// What CUDA there is; every failure is a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaProbe {
    /// The driver and its devices.
    pub driver: Result<Driver, String>,
    /// Version of the run-time compiler (NVRTC): major, minor.
    pub nvrtc: Result<[i32; 2], String>,
}

/// The CUDA driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// The newest CUDA that it supports: major, minor.
    pub cuda: [i32; 2],
    /// The devices, in the order of CUDA.
    pub devices: Vec<Result<Device, String>>,
}

/// A CUDA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Compute capability: major, minor.
    pub compute_capability: [i32; 2],
    /// Its memory, bytes.
    pub memory: usize,
    /// It shares the memory of the host (Jetson).
    pub integrated: bool,
    /// Kernels whose blocks wait for each other can be launched.
    pub cooperative_launch: bool,
}

/// Memory that a CUDA backend takes to register one problem at a time, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// On the device: what a registration reads and writes.
    pub device: usize,
    /// On the host: pinned, read and written by the device itself.
    pub pinned: usize,
    /// On the device: kernels, and what allocations are rounded up by.
    pub kernels: usize,
    /// On the device before that: the context, the driver, and every other program.
    pub context: usize,
}

impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [device, pinned, kernels, context] =
            [self.device, self.pinned, self.kernels, self.context].map(|bytes| bytes as f64 * 1e-6);
        write!(
            f,
            "{device:.1} MB on the device, {pinned:.1} MB pinned on the host; kernels {kernels:.1} MB, \
             context, driver and other programs {context:.1} MB"
        )
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor] = self.compute_capability;
        write!(f, "{}, compute capability {major}.{minor}", self.name)
    }
}

impl CudaProbe {
    /// The first device that answers.
    pub fn first_device(&self) -> Option<&Device> {
        self.driver.as_ref().ok()?.devices.iter().find_map(|d| d.as_ref().ok())
    }
}

/// Looks for the driver, its devices and the run-time compiler.
pub fn probe() -> CudaProbe {
    CudaProbe { driver: imp::driver(), nvrtc: imp::nvrtc() }
}

#[cfg(not(feature = "cuda"))]
mod imp {
    const NOT_BUILT: &str = "this program was built without CUDA (feature `cuda`)";

    pub fn driver() -> Result<super::Driver, String> {
        Err(NOT_BUILT.to_owned())
    }

    pub fn nvrtc() -> Result<[i32; 2], String> {
        Err(NOT_BUILT.to_owned())
    }
}

#[cfg(feature = "cuda")]
mod imp {
    use super::{Device, Driver};
    use cudarc::driver::sys::CUdevice_attribute as Attribute;
    use cudarc::driver::{result, sys, DriverError};

    pub fn driver() -> Result<Driver, String> {
        // SAFETY: loads the library and drops it again; the driver has no load-time conditions.
        // Asked first because every call below panics where the library is absent.
        if !unsafe { sys::is_culib_present() } {
            return Err(
                "the NVIDIA driver (libcuda.so.1) is not installed or not in this container".to_owned()
            );
        }
        result::init().map_err(|e| format!("the NVIDIA driver does not start: {}", reason(e)))?;
        let mut version = 0;
        // SAFETY: writes one integer.
        unsafe { sys::cuDriverGetVersion(&mut version) }
            .result()
            .map_err(|e| format!("the NVIDIA driver tells no version: {}", reason(e)))?;
        let count = result::device::get_count()
            .map_err(|e| format!("the NVIDIA driver tells no devices: {}", reason(e)))?;
        let devices = (0..count)
            .map(|n| device(n).map_err(|e| format!("device {n} does not answer: {}", reason(e))))
            .collect();
        Ok(Driver { cuda: [version / 1000, version % 1000 / 10], devices })
    }

    fn device(ordinal: i32) -> Result<Device, DriverError> {
        let device = result::device::get(ordinal)?;
        // SAFETY: `device` was returned by `get`.
        let attribute = |which| unsafe { result::device::get_attribute(device, which) };
        Ok(Device {
            name: result::device::get_name(device)?,
            compute_capability: [
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ],
            // SAFETY: `device` was returned by `get`.
            memory: unsafe { result::device::total_mem(device) }?,
            integrated: attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
            cooperative_launch: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
        })
    }

    fn reason(error: DriverError) -> String {
        match error.error_string() {
            Ok(text) => format!("{} ({:?})", text.to_string_lossy(), error.0),
            Err(_) => format!("{:?}", error.0),
        }
    }

    pub fn nvrtc() -> Result<[i32; 2], String> {
        crate::gpu::nvrtc::Nvrtc::get().map(|nvrtc| nvrtc.version())
    }
}
