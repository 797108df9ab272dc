//! Simulated input: a building, a robot in it, and what its sensors would report.
