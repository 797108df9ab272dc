//! Checked, borrowed views of ROS messages, shared by the node and the replay.

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
}
