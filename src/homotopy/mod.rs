//! All roots of systems of polynomial equations, by following them from a system whose roots are
//! known.
//!
//! A [`System`] is read from its text form and compiled to straight-line programs ([`Compiled`]).
//! A [`StartSet`] has parameters and their roots, made by [`monodromy`] or, without parameters, by
//! the degrees of the equations. A [`Solver`] follows them to the parameters of an instance; every
//! track ends with a status, and none is lost without one.

pub mod check;
mod distinct;
mod expression;
mod follow;
#[cfg(feature = "cuda")]
pub mod gpu;
mod graph;
mod linear;
pub mod lu;
pub mod monodromy;
pub mod numbers;
mod operations;
mod pack;
mod polynomial;
pub mod precision;
pub mod problems;
mod program;
pub mod recall;
mod roots;
mod scale;
#[cfg(feature = "cuda")]
mod schedule;
mod solver;
mod start;
mod system;
mod track;
pub mod tune;
mod twice;
mod work;

pub use distinct::Distinct;
pub use operations::Operations;
pub use program::{Compiled, Instruction, Path, Program};
pub use roots::{Outcome, Root, Roots, Solution};
pub use solver::{Arithmetic, Backend, Solver};
pub use start::{StartError, StartSet};
pub use system::{distance, System, SystemError};
pub use track::{Assignment, End, Polished, Settings, Tracker};
