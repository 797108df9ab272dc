//! Every root of a polynomial system, by following paths from a system whose roots are known.

pub mod lu;
