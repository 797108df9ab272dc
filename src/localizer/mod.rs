//! From a message to a pose that can be trusted: the one object that the node and the replay
//! drive.
//!
//! ```text
//! bytes -> view (messages) -> stamp -> tf -> problem -> registration or estimation -> acceptance -> Frame
//! ```
//!
//! There are several inputs ([`Input`]) and one pose in the map: the freshest that is trusted. A pose measured
//! before the last one is not broadcast, and what one input cannot answer takes nothing from what another has
//! answered.
//!
//! The first step that cannot go on names the status and counts it. A failure never gives a pose,
//! an identity, or a stamp of the present.

mod cameras;
mod channel;
mod covariance;
pub mod dense;
mod found;
mod frame;
mod initial_pose;
mod input;
pub mod map;
mod per_input;
mod queue;
mod scans;
mod stages;
mod state;
#[cfg(test)]
mod tests;
pub mod transforms;

pub use frame::{Candidate, Facts, Frame, Pose, RelativePose, TfOut};
pub use initial_pose::{InitialPoseError, PoseSample, Prior};
pub use input::Input;
pub use per_input::PerInput;
pub use queue::{Pending, Queue};
pub use scans::{Engine, Mode, Once, PlaceCandidate, StageTimes as ScanTimes};
pub use stages::Stages;
pub use state::Missing;

use self::found::Found;
use self::map::Map;
use self::scans::Scans;
use self::state::State;
use self::transforms::TransformBuffer;
use crate::estimation::Estimator;
use crate::geometry::Point;
use crate::messages::{MessageError, Stamp};
use crate::params::Params;
use crate::registration::{BackendError, Correspondence, Registrar};
use crate::status::{Counter, Counters, Status};
use std::sync::{Arc, Mutex};

/// Turns messages into trusted poses.
pub struct Localizer {
    registrar: Registrar,
    estimator: Estimator,
    scans: Scans,
    state: State,
}

impl Localizer {
    /// Chooses the backends and makes the memory for `registration.max_correspondences` and
    /// `camera.max_correspondences`.
    pub fn new(params: &Params) -> Result<Self, BackendError> {
        let (registrar, estimator) = (Registrar::new(params)?, Estimator::new(params)?);
        Ok(Self { registrar, estimator, scans: Scans::new(params), state: State::new(params) })
    }

    /// Takes new values of the live parameters. Those read at start keep their values, whatever
    /// is given here.
    pub fn set_params(&mut self, params: &Params) {
        self.state.set_params(params);
        self.scans.set_params(&self.state.params);
    }

    /// The transforms, to be filled by whoever hears `/tf` and `/tf_static`. Lock it for one
    /// message at a time: the localizer waits for it.
    pub fn transforms(&self) -> Arc<Mutex<TransformBuffer>> {
        Arc::clone(&self.state.transforms)
    }

    /// Tells the time. Back by more than a second: all that moves in tf, the last accepted pose
    /// and the initial pose are forgotten, the generation goes up. True if that happened.
    pub fn clock(&mut self, now: Stamp) -> bool {
        let jumped = self.state.clock(now);
        if jumped {
            self.scans.reset();
        }
        jumped
    }

    /// Whether the transforms that a message needs, and the calibration of its camera, are known: the caller may
    /// wait up to `tf.wait_sec` for them. Cheap. A message that will be refused for another reason needs nothing.
    pub fn needs(&self, input: Input, cdr: &[u8], now: Stamp) -> Result<(), Missing> {
        self.state.needs(input, cdr, now)
    }

    /// Takes the map that raw clouds are localized in, in place of the one before. What was known of the pose is
    /// forgotten, the generation goes up.
    ///
    /// # Errors
    /// What works on a map could not be started; the map before stays.
    pub fn set_map(&mut self, map: Arc<Map>) -> Result<(), BackendError> {
        self.scans.set_map(map, &self.state.params)?;
        self.state.reset();
        Ok(())
    }

    /// The map that raw clouds are localized in.
    pub fn map(&self) -> Option<&Arc<Map>> {
        self.scans.map()
    }

    /// What raw clouds have told of the place.
    pub fn mode(&self) -> Mode {
        self.scans.mode()
    }

    /// Localizes by one message (CDR bytes); `now` is the time of the ROS clock.
    pub fn handle(&mut self, input: Input, cdr: &[u8], now: Stamp) -> &Frame {
        let state = &mut self.state;
        let (generation, has_map) = (state.generation, self.scans.map().is_some());
        let prepared = state.prepare(input, cdr, now, has_map);
        if state.generation != generation {
            // The clock has jumped.
            self.scans.reset();
        }
        if let Some(mount) = prepared {
            let (problems, params) = (&state.problems, &state.params);
            let found: Found = match input {
                Input::Points3d3d => self.registrar.register(&problems.points, params).into(),
                Input::Sights2d3d => self.estimator.absolute(&problems.sights, params).into(),
                Input::Sights2d2d => self.estimator.relative(&problems.pairs, params).into(),
                Input::Points => {
                    self.scans.localize(&problems.cloud, &mount.at(state.frame.stamp), &mut self.registrar)
                }
            };
            state.conclude(&found, &mount);
        }
        if input == Input::Points {
            state.frame.mode = Some(self.scans.mode());
        }
        state.channels.answered(input, state.frame.status);
        &state.frame
    }

    /// Takes the calibration of a camera (`camera_info`, CDR bytes) in place of the one before of the same frame.
    /// One that cannot be used takes its place too: what needs it is refused then.
    ///
    /// # Errors
    /// Why it cannot be used; it is counted.
    pub fn handle_camera_info(&mut self, cdr: &[u8]) -> Result<(), MessageError> {
        self.state.take_camera_info(cdr)
    }

    /// The answer to the last message.
    pub fn frame(&self) -> &Frame {
        &self.state.frame
    }

    /// The 3D-3D correspondences of the last message that had some, as far as they were used.
    pub fn correspondences(&self) -> impl ExactSizeIterator<Item = Correspondence> + Clone + '_ {
        self.state.problems.points.rows()
    }

    /// The inliers of the last message as points of the map; none of 2D-2D correspondences and of raw clouds.
    pub fn inliers(&self) -> impl Iterator<Item = Point> + '_ {
        let (frame, problems) = (self.frame(), &self.state.problems);
        let of = |input| (frame.registered && frame.input == input).then_some(problems).into_iter();
        let points = of(Input::Points3d3d).flat_map(|p| p.points.rows().map(|row| row.target));
        let sights = of(Input::Sights2d3d).flat_map(|p| p.sights.rows().iter().map(|row| row.point));
        points
            .chain(sights)
            .zip(&frame.facts.inlier_mask)
            .filter_map(|(point, inlier)| inlier.then_some(point))
    }

    /// The points of the last raw cloud, one a voxel, where the pose that was accepted puts them in the map; none if
    /// the last message was no raw cloud or gave no pose.
    pub fn aligned(&self) -> impl Iterator<Item = Point> + '_ {
        let frame = self.frame();
        let is_accepted = frame.input == Input::Points && frame.accepted.is_some();
        is_accepted.then(|| self.scans.aligned()).into_iter().flatten()
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
        self.state.set_initial_pose(frame, stamp, pose, now)?;
        if let Some(prior) = &self.state.prior {
            self.scans.hint(&prior.map_t_base, &prior.covariance);
        }
        Ok(())
    }

    /// The initial pose, carried along by odometry and by accepted poses.
    pub fn prior(&self) -> Option<&Prior> {
        self.state.prior.as_ref()
    }

    /// Forgets the last accepted pose and the initial pose (`reinitialize_global_localization`).
    pub fn reset(&mut self) {
        self.scans.reset();
        self.state.reset();
    }

    /// Switches it on or off (`set_active`). Off: messages are counted and nothing else.
    pub fn set_active(&mut self, active: bool) {
        self.state.set_active(active);
    }

    /// The input that decides what is known of the pose in the map: that whose last message gave the newest
    /// trusted pose, while that is younger than `input.max_age_sec`; else that of the last message. 2D-2D
    /// correspondences do not count where others are heard.
    pub fn deciding(&self) -> Input {
        self.state.deciding()
    }

    /// The current status: that of the last message of the input that decides, or `stale_input` if nothing has
    /// come there for longer than `tf.hold_sec` and `input.max_age_sec`.
    pub fn category(&self, now: Stamp) -> Status {
        self.state.category(now)
    }

    /// The status of the last message of an input.
    pub fn status_of(&self, input: Input) -> Status {
        self.state.channels.get(input).status.unwrap_or(Status::WaitingInput)
    }

    /// Seconds since the newest usable message of the input that decides was measured.
    pub fn input_age(&self, now: Stamp) -> Option<f64> {
        self.state.channels.get(self.deciding()).measured.map(|stamp| now.seconds_since(stamp))
    }

    /// What has been counted since the start, all inputs together.
    pub fn counters(&self) -> Counters {
        self.state.counters()
    }

    /// What has been counted of an input.
    pub fn counters_of(&self, input: Input) -> &Counters {
        &self.state.channels.get(input).counters
    }

    /// For messages that were replaced by a newer one before they came here.
    pub fn count_overwritten(&mut self, input: Input, n: u64) {
        let counters = &mut self.state.channels.get_mut(input).counters;
        counters.add(Counter::Received, n);
        counters.add(Counter::Overwritten, n);
    }

    /// For a map that could not be used; the one before stays.
    pub fn count_refused_map(&mut self) {
        self.state.count_refused_map();
    }

    /// Messages of an input without a trusted pose since the last one.
    pub fn rejected_in_a_row(&self, input: Input) -> u64 {
        self.state.channels.get(input).rejected_in_a_row
    }

    /// See [`Frame::generation`].
    pub fn generation(&self) -> u64 {
        self.state.generation
    }

    /// What computes the poses of an input: `cpu` or `cuda`.
    pub fn backend(&self, input: Input) -> &'static str {
        match input {
            Input::Points3d3d | Input::Points => self.registrar.backend(),
            Input::Sights2d3d | Input::Sights2d2d => self.estimator.backend(),
        }
    }

    /// Why this backend was chosen.
    pub fn why(&self, input: Input) -> &str {
        match input {
            Input::Points3d3d | Input::Points => self.registrar.why(),
            Input::Sights2d3d | Input::Sights2d2d => self.estimator.why(),
        }
    }

    /// Why the GPU is lost for good: the node should end. See [`Registrar::lost`].
    pub fn lost(&self) -> Option<&str> {
        self.registrar.lost().or(self.estimator.lost()).or(self.scans.lost())
    }
}
