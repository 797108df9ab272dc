//! The CUDA device: found, loaded and checked at run time. Nothing of NVIDIA is needed to build,
//! and nothing to start on a machine without a GPU.

#[cfg(feature = "cuda")]
pub mod buffers;
#[cfg(feature = "cuda")]
pub mod bundle;
#[cfg(feature = "cuda")]
pub mod context;
#[cfg(feature = "cuda")]
pub mod cublas;
pub mod device;
mod error;
pub mod fallback;
#[cfg(all(test, feature = "cuda"))]
pub(crate) mod host;
#[cfg(feature = "cuda")]
pub mod nvrtc;

pub use error::GpuError;
