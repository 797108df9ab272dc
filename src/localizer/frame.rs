//! What the localizer says about one message.

use crate::geometry::Rigid;
use crate::messages::Stamp;
use crate::registration::{Registration, StageTimes};
use crate::status::Status;
use nalgebra::Matrix6;
use std::sync::Arc;

/// The answer to one message. It is reused from message to message.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Outcome; only [`Status::Ok`] comes with a pose.
    pub status: Status,
    /// Why, in words for people; empty where there is nothing to add.
    pub message: String,
    /// When the message was measured.
    pub stamp: Stamp,
    /// Goes up by one with each reset, initial pose and jump of the clock: results of an older
    /// generation are not to be used.
    pub generation: u64,
    /// Frame of the measurement (`header.frame_id`).
    pub sensor_frame: String,
    /// Rows in the message.
    pub correspondences: usize,
    /// Rows that were registered, after the unusable and the superfluous ones were dropped.
    pub after_filter: usize,
    /// What the registration found; of no meaning unless `registered`.
    pub facts: Facts,
    /// The message got as far as the registration.
    pub registered: bool,
    /// The pose that is trusted.
    pub accepted: Option<Pose>,
    /// No pose, but stamp and transforms of the message are good: the last accepted map -> odom,
    /// stamped for this measurement. Ends `tf.hold_sec` after the last acceptance. None in the
    /// other modes of `tf.mode`, and on a fault of the GPU.
    pub hold: Option<TfOut>,
}

/// A trusted pose.
#[derive(Debug, Clone, PartialEq)]
pub struct Pose {
    /// Pose of the sensor in the map.
    pub map_t_sensor: Rigid,
    /// Pose of the robot's base in the map.
    pub map_t_base: Rigid,
    /// Covariance of `map_t_base`: x y z (m), rotation about the fixed x y z axes of the map
    /// (rad). Symmetric, positive definite, finite.
    pub covariance: Matrix6<f64>,
    /// The transform to broadcast; none if `tf.mode` is none.
    pub tf: Option<TfOut>,
}

/// A transform to broadcast.
#[derive(Debug, Clone, PartialEq)]
pub struct TfOut {
    /// `header.frame_id`
    pub parent: Arc<str>,
    /// `child_frame_id`
    pub child: Arc<str>,
    /// Stamp of the measurement plus `tf.transform_tolerance`.
    pub stamp: Stamp,
    /// `parent_t_child`
    pub transform: Rigid,
}

/// A pose that the registration found, trusted or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Pose of the sensor in the map.
    pub map_t_sensor: Rigid,
    /// Pose of the robot's base in the map.
    pub map_t_base: Rigid,
    /// Its inliers.
    pub inliers: usize,
}

/// What the registration found.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Inliers of the best pose.
    pub inliers: usize,
    /// Inliers that are independent evidence.
    pub independent_inliers: usize,
    /// Inliers per registered row, 0 to 1.
    pub inlier_ratio: f64,
    /// Per registered row: an inlier of the best pose. In the order of
    /// [`super::Localizer::correspondences`].
    pub inlier_mask: Vec<bool>,
    /// Base-10 logarithm of the number of poses this good to be expected by chance.
    pub log10_false_alarms: f64,
    /// Eigenvalues of the scatter of the inliers in the sensor frame, largest first, m^2.
    pub spread: [f64; 3],
    /// 1 - score of the runner-up / score of the best pose.
    pub margin: f64,
    /// The best pose and the runner-up, as far as they exist.
    pub candidates: Vec<Candidate>,
    /// Time to read the message, microseconds.
    pub parse_us: f64,
    /// Time of each stage of the registration.
    pub stages: StageTimes,
}

impl Facts {
    /// Copies what a registration of `rows` rows found.
    pub(super) fn take(&mut self, found: &Registration, rows: usize, base_t_sensor: &Rigid) {
        self.inliers = found.inliers;
        self.independent_inliers = found.independent_inliers;
        self.inlier_ratio = found.inliers as f64 / rows.max(1) as f64;
        self.inlier_mask.clone_from(&found.inlier_mask);
        self.log10_false_alarms = found.log10_false_alarms;
        self.spread = found.spread;
        self.margin = found.margin;
        self.stages = found.stages;
        let best = found.target_t_source.map(|pose| (pose, found.inliers));
        let second = found.runner_up.map(|other| (other.target_t_source, other.inliers));
        self.candidates.clear();
        let finite = best.into_iter().chain(second).filter(|(pose, _)| is_finite(pose));
        self.candidates.extend(finite.map(|(map_t_sensor, inliers)| Candidate {
            map_t_sensor,
            map_t_base: map_t_sensor * base_t_sensor.inverse(),
            inliers,
        }));
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            status: Status::WaitingInput,
            message: String::new(),
            stamp: Stamp::default(),
            generation: 0,
            sensor_frame: String::new(),
            correspondences: 0,
            after_filter: 0,
            facts: Facts::default(),
            registered: false,
            accepted: None,
            hold: None,
        }
    }
}

impl Frame {
    /// Begins the answer to a new message; keeps the memory.
    pub(super) fn begin(&mut self, generation: u64) {
        self.status = Status::WaitingInput;
        self.message.clear();
        self.stamp = Stamp::default();
        self.generation = generation;
        self.sensor_frame.clear();
        self.correspondences = 0;
        self.after_filter = 0;
        self.registered = false;
        self.accepted = None;
        self.hold = None;
    }
}

/// Every number of a pose is finite.
pub(super) fn is_finite(pose: &Rigid) -> bool {
    pose.translation.vector.iter().chain(pose.rotation.coords.iter()).all(|v| v.is_finite())
}
