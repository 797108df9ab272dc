//! The CUDA device: found, loaded and checked at run time.

pub mod device;
