//! State of the localizer between messages, and the way of a message through it.

use super::covariance;
use super::frame::{is_finite, Frame, Pose, TfOut};
use super::initial_pose::{InitialPoseError, PoseSample, Prior};
use super::transforms::{TransformBuffer, TransformError};
use crate::geometry::{Rigid, Vector};
use crate::messages::correspondences::CorrespondenceView;
use crate::messages::point_cloud::PointCloudView;
use crate::messages::{MessageError, Stamp};
use crate::params::{Gravity, Params, StampZero, TfMode};
use crate::registration::{Problem, Registration};
use crate::status::{Counter, Counters, Status};
use nalgebra::Matrix6;
use std::fmt::{self, Display, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A clock or stamp that goes back by more than this has jumped, seconds.
const JUMP_SEC: f64 = 1.0;

/// All but the registrar, so that a registration can be borrowed from it while this changes.
pub(super) struct State {
    pub(super) params: Params,
    pub(super) transforms: Arc<Mutex<TransformBuffer>>,
    names: Names,
    pub(super) problem: Problem,
    pub(super) frame: Frame,
    pub(super) counters: Counters,
    pub(super) generation: u64,
    active: bool,
    pub(super) rejected_in_a_row: u64,
    clock: Option<Stamp>,
    /// When the newest message came, and when it was measured.
    received: Option<Stamp>,
    pub(super) measured: Option<Stamp>,
    /// When it was measured, and map -> odom.
    last_accepted: Option<(Stamp, TfOut)>,
    pub(super) prior: Option<Prior>,
}

/// Frame names that go out with every transform.
struct Names {
    map: Arc<str>,
    odom: Arc<str>,
    base: Arc<str>,
}

/// Where the sensor was when the message was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mount {
    base_t_sensor: Rigid,
    /// Always there if the transform of the parameters or gravity needs it.
    odom_t_base: Option<Rigid>,
}

impl State {
    pub(super) fn new(params: &Params) -> Self {
        let names = Names {
            map: params.frames.map.as_str().into(),
            odom: params.frames.odom.as_str().into(),
            base: params.frames.base.as_str().into(),
        };
        Self {
            transforms: Arc::new(Mutex::new(TransformBuffer::new(params.tf.buffer_sec))),
            names,
            problem: Problem::with_capacity(params.registration.max_correspondences.max(0) as usize),
            frame: Frame::default(),
            counters: Counters::default(),
            generation: 0,
            active: true,
            rejected_in_a_row: 0,
            clock: None,
            received: None,
            measured: None,
            last_accepted: None,
            prior: None,
            params: params.clone(),
        }
    }

    pub(super) fn set_params(&mut self, params: &Params) {
        let old = std::mem::replace(&mut self.params, params.clone());
        self.params.frames = old.frames;
        self.params.tf.mode = old.tf.mode;
        self.params.tf.buffer_sec = old.tf.buffer_sec;
        self.params.registration.max_correspondences = old.registration.max_correspondences;
    }

    pub(super) fn clock(&mut self, now: Stamp) -> bool {
        let jumped = self.clock.is_some_and(|before| before.seconds_since(now) > JUMP_SEC);
        self.clock = Some(now);
        if jumped {
            self.jump();
        }
        jumped
    }

    /// Time went back: what is tied to the old time is of no use.
    fn jump(&mut self) {
        lock(&self.transforms).clear();
        self.counters.count(Counter::ClockJumps);
        self.reset();
    }

    pub(super) fn reset(&mut self) {
        self.generation += 1;
        self.last_accepted = None;
        self.prior = None;
        self.received = None;
        self.measured = None;
        self.frame.begin(self.generation);
    }

    pub(super) fn set_active(&mut self, active: bool) {
        if self.active != active {
            self.active = active;
            self.received = None;
            self.frame.begin(self.generation);
        }
    }

    pub(super) fn category(&self, now: Stamp) -> Status {
        let limit = self.params.tf.hold_sec.max(self.params.input.max_age_sec);
        if !self.active {
            Status::Inactive
        } else if self.received.is_some_and(|received| now.seconds_since(received) > limit) {
            Status::StaleInput
        } else {
            self.frame.status
        }
    }

    pub(super) fn set_initial_pose(
        &mut self,
        frame: &str,
        stamp: Stamp,
        pose: &PoseSample,
        now: Stamp,
    ) -> Result<(), InitialPoseError> {
        self.clock(now);
        let slashless = |name: &str| name.trim_start_matches('/').to_owned();
        let (got, want) = (slashless(frame), slashless(&self.names.map));
        let checked = match got == want {
            true => pose.check(),
            false => Err(InitialPoseError::Frame { got, want }),
        };
        let (map_t_base, covariance) =
            checked.inspect_err(|_| self.counters.count(Counter::RefusedInitialpose))?;
        self.generation += 1;
        self.last_accepted = None;
        let stamp = if stamp == Stamp::default() { now } else { stamp };
        self.prior = Some(Prior { map_t_base, covariance, stamp, odom_t_base: None });
        Ok(())
    }

    pub(super) fn needs(&self, cdr: &[u8], now: Stamp) -> Result<(), TransformError> {
        let Ok(cloud) = PointCloudView::parse(cdr) else { return Ok(()) };
        match self.stamp_of(&cloud, now) {
            Ok(stamp) if self.active => self.mount(cloud.frame, stamp).map(drop),
            _ => Ok(()),
        }
    }

    /// Everything before the registration. None: refused, and the frame says why.
    pub(super) fn prepare(&mut self, cdr: &[u8], now: Stamp) -> Option<Mount> {
        let started = Instant::now();
        self.counters.count(Counter::Received);
        self.clock(now);
        self.frame.begin(self.generation);
        if !self.active {
            self.frame.status = Status::Inactive;
            return None;
        }
        self.received = Some(now);
        let cloud = match PointCloudView::parse(cdr) {
            Ok(cloud) => cloud,
            Err(error) => return self.refuse_message(&error),
        };
        let stamp = match self.stamp_of(&cloud, now) {
            Ok(stamp) => stamp,
            Err(error) => return self.refuse(Status::StaleInput, Counter::RefusedStamp, &error),
        };
        if self.measured.is_some_and(|before| before.seconds_since(stamp) > JUMP_SEC) {
            self.jump();
            self.received = Some(now);
        }
        self.measured = self.measured.max(Some(stamp));
        self.frame.stamp = stamp;
        self.frame.sensor_frame.push_str(cloud.frame);
        self.frame.correspondences = cloud.len();
        let mount = match self.mount(cloud.frame, stamp) {
            Ok(mount) => mount,
            Err(error) => return self.refuse(Status::MissingTf, Counter::RefusedMissingTf, &error),
        };
        if let Err(error) = self.fill(cloud) {
            self.hold();
            return self.refuse_message(&error);
        }
        self.set_up(&mount);
        self.frame.facts.parse_us = started.elapsed().as_secs_f64() * 1e6;
        Some(mount)
    }

    /// The stamp that counts for a message.
    fn stamp_of(&self, cloud: &PointCloudView, now: Stamp) -> Result<Stamp, StampError> {
        let input = &self.params.input;
        if cloud.stamp == Stamp::default() {
            return match input.stamp_zero {
                StampZero::Now => Ok(now),
                StampZero::Refuse => Err(StampError::Zero),
            };
        }
        let age = now.seconds_since(cloud.stamp);
        if -age > input.max_future_sec {
            return Err(StampError::Future { by: -age, max: input.max_future_sec });
        }
        if age > input.max_age_sec {
            return Err(StampError::Old { age, max: input.max_age_sec });
        }
        Ok(cloud.stamp)
    }

    /// Where the sensor was. An error: a transform that is needed is not known at the stamp.
    pub(super) fn mount(&self, sensor: &str, stamp: Stamp) -> Result<Mount, TransformError> {
        let params = &self.params;
        let needs_odom = params.tf.mode == TfMode::MapOdom || params.registration.gravity == Gravity::Odom;
        let transforms = lock(&self.transforms);
        let base_t_sensor = transforms.lookup(&self.names.base, sensor, stamp)?;
        let odom_t_base = || transforms.lookup(&self.names.odom, &self.names.base, stamp);
        let odom_t_base = match needs_odom {
            true => Some(odom_t_base()?),
            // An initial pose is carried along where there is odometry.
            false => self.prior.as_ref().and_then(|_| odom_t_base().ok()),
        };
        Ok(Mount { base_t_sensor, odom_t_base })
    }

    /// Rows of the message -> problem.
    fn fill(&mut self, cloud: PointCloudView) -> Result<(), MessageError> {
        self.problem.clear();
        let view = CorrespondenceView::new(cloud, self.params.input.force_little_endian)?;
        let dropped = view.fill(&mut self.problem);
        let max = self.params.registration.max_correspondences.max(0) as usize;
        let truncated = self.problem.keep_heaviest(max);
        self.counters.add(Counter::DroppedNonFinite, dropped.non_finite as u64);
        self.counters.add(Counter::DroppedWeight, dropped.weight as u64);
        self.counters.add(Counter::TruncatedRows, truncated as u64);
        self.frame.after_filter = self.problem.len();
        match self.problem.len() {
            got @ 0..=2 => Err(MessageError::TooFew { got, need: 3 }),
            _ => Ok(()),
        }
    }

    /// Gravity: the odometry frame is level, and so is the map.
    pub(super) fn set_up(&mut self, mount: &Mount) {
        if let (Gravity::Odom, Some(odom_t_base)) = (self.params.registration.gravity, mount.odom_t_base) {
            let odom_t_sensor = odom_t_base * mount.base_t_sensor;
            let sensor_up = odom_t_sensor.inverse_transform_vector(&Vector::z());
            self.problem.set_up(sensor_up, Vector::z());
        }
    }

    /// What a registration means: a pose to publish, or a rejection.
    pub(super) fn conclude(&mut self, found: &Registration, mount: &Mount) {
        self.settle_prior();
        let frame = &mut self.frame;
        frame.registered = true;
        frame.facts.take(found, self.problem.len(), &mount.base_t_sensor);
        let _ = write!(frame.message, "{}", found.reason);
        let trusted = match found.status {
            Status::Ok => found.target_t_source.map(|map_t_sensor| (map_t_sensor, found.covariance)),
            Status::Ambiguous => self.disambiguate(found, mount),
            _ => None,
        };
        let pose =
            trusted.and_then(|(map_t_sensor, covariance)| self.pose(&map_t_sensor, &covariance, mount));
        match pose {
            Some(pose) => self.accept(pose, mount, found.status),
            None if trusted.is_some() || found.status == Status::Ok => {
                self.reject(Status::Degenerate, Some("the pose or its covariance is not finite"));
            }
            None => self.reject(found.status, None),
        }
    }

    /// The candidate of an ambiguous registration that agrees with the initial pose, if there is
    /// exactly one, and if it could be trusted were it alone.
    fn disambiguate(&self, found: &Registration, mount: &Mount) -> Option<(Rigid, Matrix6<f64>)> {
        let prior = self.prior.as_ref()?;
        let acceptance = &self.params.acceptance;
        let min_inliers = acceptance.min_inliers.max(0) as usize;
        let candidates = &self.frame.facts.candidates;
        let supported = found.independent_inliers >= min_inliers
            && found.log10_false_alarms <= -acceptance.significance
            && candidates.iter().all(|candidate| candidate.inliers >= min_inliers);
        if !supported || candidates.len() < 2 {
            return None;
        }
        let map_t_base = prior.at(self.frame.stamp, mount.odom_t_base, self.params.tf.hold_sec)?;
        let chosen = candidates.get(prior.choose(&map_t_base, candidates, &self.params)?)?.map_t_sensor;
        // The covariance is that of the best pose. The other explains the rows nearly as well; as
        // seen from the sensor its covariance is the same.
        let turn = chosen.rotation * found.target_t_source?.rotation.inverse();
        Some((chosen, covariance::rotate(&found.covariance, turn.to_rotation_matrix().matrix())))
    }

    /// The pose to publish. None: a number is not finite.
    fn pose(&self, map_t_sensor: &Rigid, covariance: &Matrix6<f64>, mount: &Mount) -> Option<Pose> {
        let map_t_base = map_t_sensor * mount.base_t_sensor.inverse();
        let covariance = covariance::sensor_to_base(covariance, map_t_sensor, &map_t_base);
        let covariance = covariance::publishable(&covariance, &self.params.covariance)?;
        let (child, transform) = match self.params.tf.mode {
            TfMode::MapOdom => (Some(&self.names.odom), map_t_base * mount.odom_t_base?.inverse()),
            TfMode::MapBase => (Some(&self.names.base), map_t_base),
            TfMode::None => (None, map_t_base),
        };
        let finite = [map_t_sensor, &map_t_base, &transform].into_iter().all(is_finite);
        let tf = child.map(|child| TfOut {
            parent: Arc::clone(&self.names.map),
            child: Arc::clone(child),
            stamp: self.frame.stamp.plus(self.params.tf.transform_tolerance),
            transform,
        });
        finite.then_some(Pose { map_t_sensor: *map_t_sensor, map_t_base, covariance, tf })
    }

    fn accept(&mut self, pose: Pose, mount: &Mount, status: Status) {
        self.frame.message.clear();
        if status == Status::Ambiguous {
            self.frame.message.push_str("ambiguous, settled by the initial pose");
        }
        self.frame.status = Status::Ok;
        self.counters.count(Counter::Accepted);
        self.rejected_in_a_row = 0;
        let stamp = self.frame.stamp;
        if let Some(prior) = &mut self.prior {
            (prior.map_t_base, prior.stamp, prior.odom_t_base) = (pose.map_t_base, stamp, mount.odom_t_base);
        }
        // Only map -> odom still holds when the robot has moved on.
        if self.params.tf.mode == TfMode::MapOdom {
            self.last_accepted = pose.tf.clone().map(|tf| (stamp, tf));
        }
        self.frame.accepted = Some(pose);
    }

    fn reject(&mut self, status: Status, why: Option<&str>) {
        if let Some(why) = why {
            self.frame.message.clear();
            self.frame.message.push_str(why);
        }
        self.frame.status = status;
        self.rejected_in_a_row += 1;
        match status {
            Status::TooFew => self.counters.count(Counter::RefusedTooFew),
            Status::Degenerate => self.counters.count(Counter::RejectedDegenerate),
            Status::Ambiguous => self.counters.count(Counter::RejectedAmbiguous),
            Status::LowInliers => self.counters.count(Counter::RejectedLowInliers),
            Status::OverBudget => self.counters.count(Counter::RejectedOverBudget),
            Status::GpuFault => self.counters.count(Counter::GpuFaults),
            _ => {}
        }
        // A fault of the machine is not an absent match: nothing goes out.
        if status != Status::GpuFault {
            self.hold();
        }
    }

    /// Sends the last accepted map -> odom again, for a while.
    fn hold(&mut self) {
        let Some((accepted, tf)) = &self.last_accepted else { return };
        let since = self.frame.stamp.seconds_since(*accepted);
        if (0.0..=self.params.tf.hold_sec).contains(&since) {
            let stamp = self.frame.stamp.plus(self.params.tf.transform_tolerance);
            self.frame.hold = Some(TfOut { stamp, ..tf.clone() });
        }
    }

    fn refuse_message<T>(&mut self, error: &MessageError) -> Option<T> {
        match error.bytes() {
            Some((got, need)) => {
                let why = format_args!("{error}: {got} bytes, {need} needed");
                self.refuse(error.status(), error.counter(), why)
            }
            None => self.refuse(error.status(), error.counter(), error),
        }
    }

    fn refuse<T>(&mut self, status: Status, counter: Counter, why: impl Display) -> Option<T> {
        self.frame.status = status;
        let _ = write!(self.frame.message, "{why}");
        self.counters.count(counter);
        self.rejected_in_a_row += 1;
        None
    }

    /// Finds out where the odometry was when the initial pose held, as soon as tf knows.
    fn settle_prior(&mut self) {
        if let Some(prior @ Prior { odom_t_base: None, .. }) = &mut self.prior {
            let transforms = lock(&self.transforms);
            prior.odom_t_base = transforms.lookup(&self.names.odom, &self.names.base, prior.stamp).ok();
        }
    }
}

/// Why a stamp was refused.
enum StampError {
    Zero,
    Future { by: f64, max: f64 },
    Old { age: f64, max: f64 },
}

impl Display for StampError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => write!(f, "stamp is zero (input.stamp_zero: refuse)"),
            Self::Future { by, max } => {
                write!(f, "stamp is {by:.3} s in the future, at most {max} s are taken")
            }
            Self::Old { age, max } => write!(f, "stamp is {age:.3} s old, at most {max} s are taken"),
        }
    }
}

/// A holder that panicked has left the buffer whole: every insertion checks before it writes.
fn lock(transforms: &Mutex<TransformBuffer>) -> std::sync::MutexGuard<'_, TransformBuffer> {
    transforms.lock().unwrap_or_else(PoisonError::into_inner)
}
