//! Files: correspondences, trajectories, bags.

pub mod bag;
pub mod correspondence_file;
pub mod trajectory;
