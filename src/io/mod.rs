//! Files: clouds of points, correspondences, tables of numbers, trajectories, bags.

pub mod bag;
pub mod cloud_files;
pub mod correspondence_file;
pub mod table;
pub mod trajectory;
