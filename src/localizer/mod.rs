//! From a message to a pose that can be trusted: the one object that the node and the replay
//! drive.
//!
//! ```text
//! bytes -> view (messages) -> stamp -> tf -> problem -> registration -> acceptance -> Frame
//! ```
//!
//! The first step that cannot go on names the status and counts it. A failure never gives a pose,
//! an identity, or a stamp of the present.

mod covariance;
mod frame;
mod initial_pose;
mod input;
mod stages;
mod state;
#[cfg(test)]
mod tests;
pub mod transforms;

pub use frame::{Candidate, Facts, Frame, Pose, TfOut};
pub use initial_pose::{InitialPoseError, PoseSample, Prior};
pub use input::Input;
pub use stages::Stages;

use self::state::State;
use self::transforms::{TransformBuffer, TransformError};
use crate::messages::Stamp;
use crate::params::Params;
use crate::registration::{BackendError, Correspondence, Registrar};
use crate::status::{Counters, Status};
use std::sync::{Arc, Mutex};

/// Turns messages into trusted poses.
pub struct Localizer {
    registrar: Registrar,
    state: State,
}

impl Localizer {
    /// Chooses the backend and makes the memory for `registration.max_correspondences`.
    pub fn new(params: &Params) -> Result<Self, BackendError> {
        Ok(Self { registrar: Registrar::new(params)?, state: State::new(params) })
    }

    /// Takes new values of the live parameters. Those read at start keep their values, whatever
    /// is given here.
    pub fn set_params(&mut self, params: &Params) {
        self.state.set_params(params);
    }

    /// The transforms, to be filled by whoever hears `/tf` and `/tf_static`. Lock it for one
    /// message at a time: the localizer waits for it.
    pub fn transforms(&self) -> Arc<Mutex<TransformBuffer>> {
        Arc::clone(&self.state.transforms)
    }

    /// Tells the time. Back by more than a second: all that moves in tf, the last accepted pose
    /// and the initial pose are forgotten, the generation goes up. True if that happened.
    pub fn clock(&mut self, now: Stamp) -> bool {
        self.state.clock(now)
    }

    /// Whether the transforms that a message of `correspondences_3d3d` needs are known: the caller
    /// may wait up to `tf.wait_sec` for them. Cheap. A message that will be refused for another
    /// reason needs nothing.
    pub fn needs(&self, cdr: &[u8], now: Stamp) -> Result<(), TransformError> {
        self.state.needs(cdr, now)
    }

    /// Localizes by one message of `correspondences_3d3d` (CDR bytes); `now` is the time of the
    /// ROS clock.
    pub fn handle_correspondences(&mut self, cdr: &[u8], now: Stamp) -> &Frame {
        let state = &mut self.state;
        if let Some(mount) = state.prepare(cdr, now) {
            let found = self.registrar.register(&state.problem, &state.params);
            state.conclude(found, &mount);
        }
        &state.frame
    }

    /// The answer to the last message.
    pub fn frame(&self) -> &Frame {
        &self.state.frame
    }

    /// The rows of the last message that were registered, to go with [`Facts::inlier_mask`].
    pub fn correspondences(&self) -> impl ExactSizeIterator<Item = Correspondence> + Clone + '_ {
        self.state.problem.rows()
    }

    /// Takes a pose of `/initialpose`: base in map. A stamp of zero means now. Accepted: the
    /// generation goes up, the last accepted pose is forgotten, and the pose settles which
    /// candidate of an ambiguous registration is right. Nothing is published from it.
    pub fn set_initial_pose(
        &mut self,
        frame: &str,
        stamp: Stamp,
        pose: &PoseSample,
        now: Stamp,
    ) -> Result<(), InitialPoseError> {
        self.state.set_initial_pose(frame, stamp, pose, now)
    }

    /// The initial pose, carried along by odometry and by accepted poses.
    pub fn prior(&self) -> Option<&Prior> {
        self.state.prior.as_ref()
    }

    /// Forgets the last accepted pose and the initial pose (`reinitialize_global_localization`).
    pub fn reset(&mut self) {
        self.state.reset();
    }

    /// Switches it on or off (`set_active`). Off: messages are counted and nothing else.
    pub fn set_active(&mut self, active: bool) {
        self.state.set_active(active);
    }

    /// The current status: that of the last message, or `stale_input` if nothing has come for
    /// longer than `tf.hold_sec` and `input.max_age_sec`.
    pub fn category(&self, now: Stamp) -> Status {
        self.state.category(now)
    }

    /// Seconds since the newest usable message was measured.
    pub fn input_age(&self, now: Stamp) -> Option<f64> {
        self.state.measured.map(|stamp| now.seconds_since(stamp))
    }

    /// What has been counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// For counts that arise outside, such as overwritten messages.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.state.counters
    }

    /// Messages without a trusted pose since the last one.
    pub fn rejected_in_a_row(&self) -> u64 {
        self.state.rejected_in_a_row
    }

    /// See [`Frame::generation`].
    pub fn generation(&self) -> u64 {
        self.state.generation
    }

    /// `cpu` or `cuda`.
    pub fn backend(&self) -> &'static str {
        self.registrar.backend()
    }

    /// Why this backend was chosen.
    pub fn why(&self) -> &str {
        self.registrar.why()
    }

    /// Why the GPU is lost for good: the node should end. See [`Registrar::lost`].
    pub fn lost(&self) -> Option<&str> {
        self.registrar.lost()
    }
}
