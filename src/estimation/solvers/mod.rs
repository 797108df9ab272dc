//! Minimal solvers: all poses that a smallest sample of rows has.
//!
//! The closed forms are straight code of + - * / and square roots on arrays of fixed size, every loop
//! bounded, so that a GPU runs the same operations in the same order and gives the same bits.

#![allow(clippy::needless_range_loop, reason = "indices as in the kernels")]

mod five_point;
mod p3p;
mod polynomial;
mod vector;

pub use five_point::five_point;
pub use p3p::p3p;
