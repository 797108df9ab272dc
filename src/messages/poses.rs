//! View of the messages that hold one pose: `nav_msgs/Odometry`, `geometry_msgs/PoseStamped`,
//! `geometry_msgs/PoseWithCovarianceStamped`.

use super::cdr::CdrReader;
use super::{MessageError, Stamp};

/// Which message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoseType {
    /// `geometry_msgs/msg/PoseStamped`
    Pose,
    /// `geometry_msgs/msg/PoseWithCovarianceStamped`
    PoseWithCovariance,
    /// `nav_msgs/msg/Odometry`
    Odometry,
}

impl PoseType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pose, Self::PoseWithCovariance, Self::Odometry];

    /// Name of the message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pose => "geometry_msgs/msg/PoseStamped",
            Self::PoseWithCovariance => "geometry_msgs/msg/PoseWithCovarianceStamped",
            Self::Odometry => "nav_msgs/msg/Odometry",
        }
    }
}

/// A pose as a message has it, not yet checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoseView<'a> {
    /// When it held.
    pub stamp: Stamp,
    /// Frame in which the pose is given.
    pub frame: &'a str,
    /// Frame whose pose it is, where the message says that.
    pub child: Option<&'a str>,
    /// Position, m.
    pub position: [f64; 3],
    /// Orientation: quaternion x y z w.
    pub orientation: [f64; 4],
    /// Covariance, row-major: x y z (m), rotation about the fixed x y z axes (rad).
    pub covariance: Option<[f64; 36]>,
}

impl<'a> PoseView<'a> {
    /// Reads a message. Refused: broken CDR. The twist of an odometry is not looked at.
    pub fn parse(kind: PoseType, cdr: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = CdrReader::new(cdr)?;
        let (stamp, frame) = reader.header()?;
        let child = if kind == PoseType::Odometry { Some(reader.str()?) } else { None };
        let (position, orientation) = (reader.f64s()?, reader.f64s()?);
        let covariance = if kind == PoseType::Pose { None } else { Some(reader.f64s()?) };
        Ok(Self { stamp, frame, child, position, orientation, covariance })
    }
}
