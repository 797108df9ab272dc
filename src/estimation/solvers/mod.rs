//! Minimal solvers: all poses that a smallest sample of rows has.
//!
//! Any problem of [`crate::homotopy::problems`] by [`Homotopy`], three of known points and five of two views in closed
//! form. The closed forms are straight code of + - * / and square roots on arrays of fixed size, every loop
//! bounded, so that a GPU runs the same operations in the same order and gives the same bits.

#![allow(clippy::needless_range_loop, reason = "indices as in the kernels")]

mod closed_form;
mod five_point;
mod homotopy;
mod p3p;
mod polynomial;
mod vector;

pub use closed_form::recall_of_closed_form;
pub use five_point::five_point;
pub use homotopy::Homotopy;
pub use p3p::p3p;
