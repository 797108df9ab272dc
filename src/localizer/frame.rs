//! What the localizer says about one message.

use super::found::Found;
use super::{Input, Mode, Stages};
use crate::geometry::Rigid;
use crate::messages::Stamp;
use crate::status::Status;
use nalgebra::Matrix6;
use std::sync::Arc;

/// The answer to one message. It is reused from message to message.
#[derive(Debug, Clone)]
pub struct Frame {
    /// What the message was.
    pub input: Input,
    /// Outcome; only [`Status::Ok`] comes with a pose, in the map or relative.
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
    /// Rows that were used, after the unusable and the superfluous ones were dropped. Of raw clouds: points that
    /// passed the filters.
    pub after_filter: usize,
    /// What was found; of no meaning unless `registered`.
    pub facts: Facts,
    /// The message got as far as the registration, or the estimation.
    pub registered: bool,
    /// The pose in the map that is trusted.
    pub accepted: Option<Pose>,
    /// The pose relative to another view that is trusted.
    pub relative: Option<RelativePose>,
    /// What is known of the place, of raw clouds; none of the other inputs, which take each message by itself.
    pub mode: Option<Mode>,
    /// No pose, but stamp and transforms of the message are good: the last accepted map -> odom,
    /// stamped for this measurement. Ends `tf.hold_sec` after the last acceptance. None in the
    /// other modes of `tf.mode`, on a fault of the GPU, and while another input gives poses.
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
    /// The transform to broadcast; none if `tf.mode` is none, or if a pose was accepted before that was measured
    /// later.
    pub tf: Option<TfOut>,
}

/// A trusted pose of a camera in another view. It is never broadcast: its translation has no scale.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativePose {
    /// Frame of the other view (`camera.reference_frame`).
    pub frame: Arc<str>,
    /// Pose of the camera in the other view; its translation has a length of one.
    pub reference_t_camera: Rigid,
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

/// A pose in the map that was found, trusted or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Pose of the sensor in the map.
    pub map_t_sensor: Rigid,
    /// Pose of the robot's base in the map.
    pub map_t_base: Rigid,
    /// Its inliers.
    pub inliers: usize,
}

/// What a registration or an estimation found.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Inliers of the best pose.
    pub inliers: usize,
    /// Inliers that are independent evidence.
    pub independent_inliers: usize,
    /// Inliers per row that was used, 0 to 1.
    pub inlier_ratio: f64,
    /// Per row that was used, in the order of the message: an inlier of the best pose.
    pub inlier_mask: Vec<bool>,
    /// Base-10 logarithm of the number of poses this good to be expected by chance.
    pub log10_false_alarms: f64,
    /// Eigenvalues of the scatter of the inliers in the sensor frame, largest first: points, m^2; bearings where
    /// the input is 2D-2D.
    pub spread: [f64; 3],
    /// 1 - (support of the runner-up alone) / (support of the best pose alone).
    pub margin: f64,
    /// The best pose in the map and its rivals, best first, as far as they exist.
    pub candidates: Vec<Candidate>,
    /// Share of a scan that lies on the map, 0 to 1; 0 of correspondences.
    pub overlap: f64,
    /// Time to read the message, microseconds.
    pub parse_us: f64,
    /// Time of each stage.
    pub stages: Stages,
}

impl Facts {
    /// Copies what was found among `rows` rows. Candidates are poses in the map, so that there are none without
    /// `base_t_sensor`.
    pub(super) fn take(&mut self, found: &Found, rows: usize, base_t_sensor: Option<&Rigid>) {
        self.inliers = found.inliers;
        self.independent_inliers = found.independent_inliers;
        self.inlier_ratio = found.inliers as f64 / rows.max(1) as f64;
        self.inlier_mask.clear();
        self.inlier_mask.extend_from_slice(found.inlier_mask);
        self.overlap = found.overlap;
        self.log10_false_alarms = found.log10_false_alarms;
        self.spread = found.spread;
        self.margin = found.margin;
        self.stages = found.stages;
        self.candidates.clear();
        let Some(base_t_sensor) = base_t_sensor else { return };
        let best = found.target_t_source.map(|pose| (pose, found.inliers));
        let others = found.others.iter().map(|other| (other.target_t_source, other.inliers));
        let finite = best.into_iter().chain(others).filter(|(pose, _)| is_finite(pose));
        self.candidates.extend(finite.map(|(map_t_sensor, inliers)| Candidate {
            map_t_sensor,
            map_t_base: map_t_sensor * base_t_sensor.inverse(),
            inliers,
        }));
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            inliers: 0,
            independent_inliers: 0,
            inlier_ratio: 0.0,
            inlier_mask: Vec::new(),
            log10_false_alarms: 0.0,
            spread: [0.0; 3],
            margin: 0.0,
            candidates: Vec::new(),
            overlap: 0.0,
            parse_us: 0.0,
            stages: Stages::none(Input::Points3d3d),
        }
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            input: Input::Points3d3d,
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
            relative: None,
            mode: None,
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
        self.relative = None;
        self.mode = None;
        self.hold = None;
    }
}

/// Every number of a pose is finite.
pub(super) fn is_finite(pose: &Rigid) -> bool {
    pose.translation.vector.iter().chain(pose.rotation.coords.iter()).all(|v| v.is_finite())
}
