//! Checked, borrowed views of ROS messages, shared by the node and the replay.
//!
//! A view borrows the CDR bytes of a message, checks every number in it once, and allocates
//! nothing. Whatever the bytes are, the answer is a view or a [`MessageError`], never a panic.

pub mod camera_info;
pub mod cdr;
mod columns;
pub mod correspondences;
mod error;
pub mod point_cloud;
pub mod poses;
pub mod sights;
pub mod transforms;

pub(crate) use columns::check_byte_order;
pub use columns::Dropped;
pub use error::MessageError;

/// A time in nanoseconds: since the epoch, or since the start of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(pub i64);

impl Stamp {
    /// From the seconds and nanoseconds of a ROS message.
    pub fn new(sec: i32, nanosec: u32) -> Self {
        Self(i64::from(sec) * 1_000_000_000 + i64::from(nanosec))
    }

    /// Seconds from `earlier` to `self`; negative if `self` is the earlier one.
    pub fn seconds_since(self, earlier: Stamp) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 * 1e-9
    }

    /// The time `seconds` later.
    pub fn plus(self, seconds: f64) -> Stamp {
        Self(self.0.saturating_add((seconds * 1e9).round() as i64))
    }

    /// Seconds and nanoseconds as ROS messages have them; times that do not fit are clamped.
    pub fn to_ros(self) -> (i32, u32) {
        let sec = self.0.div_euclid(1_000_000_000);
        let nanosec = self.0.rem_euclid(1_000_000_000) as u32;
        (sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32, nanosec)
    }
}
