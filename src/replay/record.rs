//! What is kept of one message of a drive.

use crate::geometry::Rigid;
use crate::localizer::{Input, Mode, Stages};
use crate::messages::Stamp;
use crate::status::Status;
use nalgebra::Matrix6;

/// A pose that the localizer trusted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Pose of the robot's base in the map.
    pub map_t_base: Rigid,
    /// Covariance of `map_t_base`: x y z (m), rotation about the fixed axes of the map (rad).
    pub covariance: Matrix6<f64>,
}

/// What the localizer answered to one message, and how long it took. Of a fixed size: a long drive
/// needs some hundred bytes a frame and nothing else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameRecord {
    /// What the message was.
    pub input: Input,
    /// When it was measured; that of the bag's record where the message cannot be read.
    pub stamp: Stamp,
    /// When the bag recorded it: the time of the replay.
    pub arrived: Stamp,
    /// When the answer was there, in the time of the replay. Unless it is one in real time, an answer takes no time.
    pub answered: Stamp,
    /// How often the pose was forgotten before, by [`Options::restart_every`](super::drive::Options::restart_every).
    pub start: u32,
    /// The outcome.
    pub status: Status,
    /// The pose in the map, if one was accepted.
    pub estimate: Option<Estimate>,
    /// The pose of the camera in its reference view, if one was accepted; its translation has a length of one.
    pub relative: Option<Rigid>,
    /// What was known of the place, of raw clouds.
    pub mode: Option<Mode>,
    /// Rows of the message.
    pub correspondences: u32,
    /// Inliers of the best pose, accepted or not.
    pub inliers: u32,
    /// Base-10 logarithm of the number of poses this good to be expected by chance.
    pub log10_false_alarms: f64,
    /// 1 - score of the runner-up / score of the best pose.
    pub margin: f64,
    /// Time to read the message, microseconds.
    pub parse_us: f64,
    /// Time of each stage, microseconds.
    pub stages: Stages,
    /// Time of the whole answer on this machine, microseconds.
    pub total_us: f64,
}

impl FrameRecord {
    /// A pose was accepted, in the map or relative.
    pub fn is_accepted(&self) -> bool {
        self.estimate.is_some() || self.relative.is_some()
    }
}
