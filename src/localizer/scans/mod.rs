//! Localization by raw clouds in a map that is held here.
//!
//! ```text
//! lost -> places (features, registration, alignment) -> confirming (evidence of several scans) -> tracking -> suspicious -> lost
//! ```

mod times;

pub use times::StageTimes;

use super::found::Found;
use super::map::Map;
use crate::status::Status;
use nalgebra::Matrix6;
use std::fmt;
use std::sync::Arc;

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

/// Localizes raw clouds in a map.
pub(super) struct Scans {
    map: Option<Arc<Map>>,
    mode: Mode,
    covariance: Matrix6<f64>,
}

impl Scans {
    pub fn new() -> Self {
        Self { map: None, mode: Mode::Lost, covariance: Matrix6::zeros() }
    }

    /// Takes a map in place of the one before; what was known of the place is forgotten.
    pub fn set_map(&mut self, map: Arc<Map>) {
        self.map = Some(map);
        self.reset();
    }

    pub fn map(&self) -> Option<&Arc<Map>> {
        self.map.as_ref()
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn localize(&mut self) -> Found<'_> {
        Found {
            status: Status::Unconfirmed,
            reason: &"",
            target_t_source: None,
            covariance: &self.covariance,
            others: &[],
            inliers: 0,
            independent_inliers: 0,
            inlier_mask: &[],
            log10_false_alarms: 0.0,
            spread: [0.0; 3],
            margin: 0.0,
            stages: StageTimes::default().into(),
        }
    }

    /// Forgets the place.
    pub fn reset(&mut self) {
        self.mode = Mode::Lost;
    }
}
