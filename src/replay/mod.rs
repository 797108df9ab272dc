//! Replay of a bag: the localizer of the node, driven from a file instead of from topics, and what
//! came of it measured against the truth.
//!
//! ```text
//! bag -> drive -> FrameRecord ... -> metrics -> estimate.tum, frames.csv, result.json, report.html
//! ```

pub mod drive;
pub mod files;
pub mod gates;
pub mod metrics;
pub mod record;
mod report;
pub mod result;
mod run;
pub mod table;
pub mod truth;

pub use record::{Estimate, FrameRecord};
pub use run::{Backend, Run};
