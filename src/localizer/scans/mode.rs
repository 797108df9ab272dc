//! What is known of the place.

use std::fmt;

/// What is known of the place of the robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing: every scan is matched with the whole map.
    Lost,
    /// There are places that explain the scans; which is the right one is not yet sure.
    Confirming,
    /// The pose is known; each scan is aligned to the map near it.
    Tracking,
    /// The last scans do not fit the pose that was known.
    Suspicious,
}

impl Mode {
    /// Its name in reports and diagnostics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Confirming => "confirming",
            Self::Tracking => "tracking",
            Self::Suspicious => "suspicious",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
