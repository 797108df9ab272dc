//! Files: correspondences, tables of numbers, trajectories, bags.

pub mod bag;
pub mod correspondence_file;
pub mod table;
pub mod trajectory;
