//! Files: correspondences, trajectories, bags.

pub mod correspondence_file;
