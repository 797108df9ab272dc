//! State of the localizer between messages, and the way of a message through it.

use super::cameras::Cameras;
use super::channel::Channels;
use super::covariance;
use super::found::Found;
use super::frame::{is_finite, Frame, Pose, RelativePose, TfOut};
use super::initial_pose::{InitialPoseError, PoseSample, Prior};
use super::scans::At;
use super::transforms::{TransformBuffer, TransformError};
use super::Input;
use crate::estimation::{AbsoluteProblem, RelativeProblem};
use crate::features::{self, Body, Filters, RawCloud, Timing};
use crate::geometry::{Point, Rigid, Vector};
use crate::messages::correspondences::CorrespondenceView;
use crate::messages::point_cloud::PointCloudView;
use crate::messages::sights::{AbsoluteView, RelativeView, Thresholds};
use crate::messages::{MessageError, Stamp};
use crate::params::{Gravity, Params, StampZero, TfMode};
use crate::registration::Problem;
use crate::status::{Counter, Counters, Status};
use nalgebra::Matrix6;
use std::fmt::{self, Display, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A clock or stamp that goes back by more than this has jumped, seconds.
const JUMP_SEC: f64 = 1.0;
/// Longest sweep of a sensor, s.
const MAX_SWEEP: f64 = 1.5;
/// Time between poses within a sweep, s.
const PART: f64 = 0.01;

/// All but what computes, so that a result can be borrowed from it while this changes.
pub(super) struct State {
    pub(super) params: Params,
    pub(super) transforms: Arc<Mutex<TransformBuffer>>,
    cameras: Cameras,
    names: Names,
    pub(super) problems: Problems,
    /// Poses of the sensor during a sweep.
    path: Vec<(f64, Rigid)>,
    /// Seconds from the stamp of the last sweep to its end.
    sweep_end: f64,
    pub(super) frame: Frame,
    pub(super) channels: Channels,
    /// What is counted beside the inputs.
    counters: Counters,
    pub(super) generation: u64,
    active: bool,
    clock: Option<Stamp>,
    last_accepted: Option<Accepted>,
    pub(super) prior: Option<Prior>,
}

/// What is to be solved, by input. The memory is reused.
pub(super) struct Problems {
    pub points: Problem,
    pub sights: AbsoluteProblem,
    pub pairs: RelativeProblem,
    pub cloud: RawCloud,
}

/// The newest accepted pose in the map.
struct Accepted {
    /// When it was measured.
    stamp: Stamp,
    /// What of it still holds when the robot has moved on: map -> odom.
    tf: Option<TfOut>,
}

/// Frame names that go out with every transform.
struct Names {
    map: Arc<str>,
    odom: Arc<str>,
    base: Arc<str>,
    reference: Arc<str>,
}

/// Where the sensor was when the message was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mount {
    base_t_sensor: Rigid,
    /// Always there if the transform of the parameters or gravity needs it.
    odom_t_base: Option<Rigid>,
}

impl Mount {
    /// What raw clouds need of it.
    pub(super) fn at(&self, stamp: Stamp) -> At {
        At { stamp, base_t_sensor: self.base_t_sensor, odom_t_base: self.odom_t_base }
    }
}

impl State {
    pub(super) fn new(params: &Params) -> Self {
        let names = Names {
            map: params.frames.map.as_str().into(),
            odom: params.frames.odom.as_str().into(),
            base: params.frames.base.as_str().into(),
            reference: params.camera.reference_frame.as_str().into(),
        };
        let rows = |max: i64| max.max(0) as usize;
        let (points, sights) = (params.registration.max_correspondences, params.camera.max_correspondences);
        Self {
            transforms: Arc::new(Mutex::new(TransformBuffer::new(params.tf.buffer_sec))),
            cameras: Cameras::new(params.camera.rectified),
            names,
            problems: Problems {
                points: Problem::with_capacity(rows(points)),
                sights: AbsoluteProblem::with_capacity(rows(sights)),
                pairs: RelativeProblem::with_capacity(rows(sights)),
                cloud: RawCloud::default(),
            },
            path: Vec::new(),
            sweep_end: 0.0,
            frame: Frame::default(),
            channels: Channels::default(),
            counters: Counters::default(),
            generation: 0,
            active: true,
            clock: None,
            last_accepted: None,
            prior: None,
            params: params.clone(),
        }
    }

    pub(super) fn set_params(&mut self, params: &Params) {
        let old = std::mem::replace(&mut self.params, params.clone());
        self.cameras.set_rectified(params.camera.rectified);
        self.params.frames = old.frames;
        self.params.tf.mode = old.tf.mode;
        self.params.tf.buffer_sec = old.tf.buffer_sec;
        self.params.registration.max_correspondences = old.registration.max_correspondences;
        self.params.camera.problem = old.camera.problem;
        self.params.camera.solver = old.camera.solver;
        self.params.camera.max_correspondences = old.camera.max_correspondences;
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
        self.channels.reset();
        self.frame.begin(self.generation);
    }

    pub(super) fn set_active(&mut self, active: bool) {
        if self.active != active {
            self.active = active;
            self.channels.forget_answers();
            self.frame.begin(self.generation);
        }
    }

    /// The input that decides what is known of the pose.
    pub(super) fn deciding(&self) -> Input {
        self.channels.deciding(self.params.input.max_age_sec)
    }

    pub(super) fn category(&self, now: Stamp) -> Status {
        let limit = self.params.tf.hold_sec.max(self.params.input.max_age_sec);
        let channel = self.channels.get(self.deciding());
        if !self.active {
            Status::Inactive
        } else if channel.received.is_some_and(|received| now.seconds_since(received) > limit) {
            Status::StaleInput
        } else {
            channel.status.unwrap_or(Status::WaitingInput)
        }
    }

    /// What has been counted, all inputs together.
    pub(super) fn counters(&self) -> Counters {
        let mut all = self.counters.clone();
        self.channels.iter().for_each(|channel| all.add_all(&channel.counters));
        all
    }

    /// Counts for the input of the message.
    fn count(&mut self, counter: Counter, n: usize) {
        self.channels.get_mut(self.frame.input).counters.add(counter, n as u64);
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

    pub(super) fn needs(&self, input: Input, cdr: &[u8], now: Stamp) -> Result<(), Missing> {
        let Ok(cloud) = PointCloudView::parse(cdr) else { return Ok(()) };
        let Ok(stamp) = self.stamp_of(&cloud, now) else { return Ok(()) };
        if !self.active {
            return Ok(());
        }
        let mount = self.mount(input, cloud.frame, stamp)?;
        if input == Input::Points && self.params.scan.deskew && mount.odom_t_base.is_some() {
            // The motion until the end of the sweep, which takes as long as the one before.
            self.mount(input, cloud.frame, stamp.plus(self.sweep_end))?;
        }
        if matches!(input, Input::Points3d3d | Input::Points) || self.cameras.get(cloud.frame).is_some() {
            return Ok(());
        }
        let (frame, little) = (cloud.frame, self.params.input.force_little_endian);
        let needs_camera_info = match input.is_absolute() {
            true => AbsoluteView::new(cloud, little).is_ok_and(|view| view.needs_camera_info()),
            false => RelativeView::new(cloud, little).is_ok_and(|view| view.needs_camera_info()),
        };
        match needs_camera_info {
            true => Err(Missing::CameraInfo(frame.to_owned())),
            false => Ok(()),
        }
    }

    /// Everything before the pose is sought. None: refused, and the frame says why.
    pub(super) fn prepare(&mut self, input: Input, cdr: &[u8], now: Stamp, has_map: bool) -> Option<Mount> {
        let started = Instant::now();
        self.frame.input = input;
        self.count(Counter::Received, 1);
        self.clock(now);
        self.frame.begin(self.generation);
        if !self.active {
            self.frame.status = Status::Inactive;
            return None;
        }
        self.channels.get_mut(input).received = Some(now);
        let cloud = match PointCloudView::parse(cdr) {
            Ok(cloud) => cloud,
            Err(error) => return self.refuse_message(&error),
        };
        let stamp = match self.stamp_of(&cloud, now) {
            Ok(stamp) => stamp,
            Err(error) => return self.refuse(Status::StaleInput, Counter::RefusedStamp, &error),
        };
        if self.channels.get(input).measured.is_some_and(|before| before.seconds_since(stamp) > JUMP_SEC) {
            self.jump();
            self.channels.get_mut(input).received = Some(now);
        }
        let channel = self.channels.get_mut(input);
        channel.measured = channel.measured.max(Some(stamp));
        self.frame.stamp = stamp;
        self.frame.sensor_frame.push_str(cloud.frame);
        self.frame.correspondences = cloud.len();
        if input == Input::Points && !has_map {
            return self.refuse(Status::MissingMap, Counter::RefusedMissingMap, "no map has been loaded");
        }
        let mount = match self.mount(input, cloud.frame, stamp) {
            Ok(mount) => mount,
            Err(error) => return self.refuse(Status::MissingTf, Counter::RefusedMissingTf, &error),
        };
        let filled = match input {
            Input::Points => self.read_cloud(&cloud, &mount),
            _ => self.fill(cloud),
        };
        if let Err(error) = filled {
            let refused = self.refuse_message(&error);
            self.hold();
            return refused;
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

    /// Where the sensor was. An error: a transform that is needed is not known at the stamp. A pose relative to
    /// another view needs none.
    pub(super) fn mount(&self, input: Input, sensor: &str, stamp: Stamp) -> Result<Mount, TransformError> {
        if !input.is_absolute() {
            return Ok(Mount { base_t_sensor: Rigid::identity(), odom_t_base: None });
        }
        let params = &self.params;
        let needs_odom = params.tf.mode == TfMode::MapOdom || params.registration.gravity == Gravity::Odom;
        let transforms = lock(&self.transforms);
        let base_t_sensor = transforms.lookup(&self.names.base, sensor, stamp)?;
        let odom_t_base = || transforms.lookup(&self.names.odom, &self.names.base, stamp);
        let odom_t_base = match needs_odom {
            true => Some(odom_t_base()?),
            // Raw clouds are accumulated where there is odometry.
            false if input == Input::Points => odom_t_base().ok(),
            // An initial pose is carried along there.
            false => self.prior.as_ref().and_then(|_| odom_t_base().ok()),
        };
        Ok(Mount { base_t_sensor, odom_t_base })
    }

    /// Rows of the message -> problem.
    fn fill(&mut self, cloud: PointCloudView) -> Result<(), MessageError> {
        let Self { params, problems, cameras, .. } = self;
        let little = params.input.force_little_endian;
        let camera = &params.camera;
        let thresholds = Thresholds { pixel: camera.inlier_threshold_px, angle: camera.inlier_threshold_rad };
        let max = |rows: i64| rows.max(0) as usize;
        let known = cameras.get(cloud.frame);
        // The camera if it can be used; why it cannot where there are no bearings.
        let usable = |needed| match known {
            Some(Err(error)) if needed => Err(MessageError::from(error.clone())),
            known => Ok(known.and_then(Result::ok)),
        };
        let (dropped, truncated, got, need) = match self.frame.input {
            // Read elsewhere.
            Input::Points => return Ok(()),
            Input::Points3d3d => {
                let rows = &mut problems.points;
                let dropped = CorrespondenceView::new(cloud, little)?.fill(rows);
                (dropped, rows.keep_heaviest(max(params.registration.max_correspondences)), rows.len(), 3)
            }
            Input::Sights2d3d => {
                let (view, rows) = (AbsoluteView::new(cloud, little)?, &mut problems.sights);
                let dropped = view.fill(rows, usable(view.needs_camera_info())?, &thresholds)?;
                (dropped, rows.keep_heaviest(max(camera.max_correspondences)), rows.rows().len(), 3)
            }
            Input::Sights2d2d => {
                let (view, rows) = (RelativeView::new(cloud, little)?, &mut problems.pairs);
                let dropped = view.fill(rows, usable(view.needs_camera_info())?, &thresholds)?;
                (dropped, rows.keep_heaviest(max(camera.max_correspondences)), rows.rows().len(), 5)
            }
        };
        self.count(Counter::DroppedNonFinite, dropped.non_finite);
        self.count(Counter::DroppedWeight, dropped.weight);
        self.count(Counter::DroppedPixel, dropped.pixel);
        self.count(Counter::TruncatedRows, truncated);
        self.frame.after_filter = got;
        match got < need {
            true => Err(MessageError::TooFew { got, need }),
            false => Ok(()),
        }
    }

    /// Message -> raw cloud, as if it had been measured at one time.
    fn read_cloud(&mut self, view: &PointCloudView, mount: &Mount) -> Result<(), MessageError> {
        let Self { params, problems, .. } = self;
        let scan = &params.scan;
        let body = (scan.body_radius > 0.0).then(|| Body {
            base_t_sensor: mount.base_t_sensor,
            min: Point::new(-scan.body_radius, -scan.body_radius, f64::NEG_INFINITY),
            max: Point::new(scan.body_radius, scan.body_radius, f64::INFINITY),
        });
        let filters = Filters { min_range: scan.min_range, max_range: scan.max_range, body };
        let little = params.input.force_little_endian;
        let dropped = RawCloud::read(view, &filters, little, &mut problems.cloud)?;
        self.count(Counter::DroppedNonFinite, dropped.non_finite);
        self.frame.after_filter = self.problems.cloud.points.len();
        if self.params.scan.deskew && self.problems.cloud.timing == Timing::PerPoint {
            self.deskew();
        }
        Ok(())
    }

    /// Undoes the motion during the sweep, as far as odometry is known.
    fn deskew(&mut self) {
        let times = &self.problems.cloud.times;
        let (first, last) =
            times.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), t| (a.min(*t), b.max(*t)));
        self.sweep_end = last.clamp(0.0, MAX_SWEEP);
        if (last - first).is_nan() || last - first > MAX_SWEEP {
            return;
        }
        self.path.clear();
        let transforms = lock(&self.transforms);
        let odom_t_sensor = |seconds: f64| {
            transforms.lookup(&self.names.odom, &self.frame.sensor_frame, self.frame.stamp.plus(seconds))
        };
        let Ok(odom_t_stamp) = odom_t_sensor(0.0) else { return };
        let parts = ((last - first) / PART).ceil().max(1.0);
        for i in 0..=parts as usize {
            let seconds = first + (last - first) * (i as f64 / parts);
            // Where tf does not reach, the sensor is taken to stand.
            if let Ok(pose) = odom_t_sensor(seconds) {
                self.path.push((seconds, odom_t_stamp.inv_mul(&pose)));
            }
        }
        drop(transforms);
        features::deskew(&mut self.problems.cloud, &self.path);
    }

    /// Takes the calibration of a camera.
    pub(super) fn take_camera_info(&mut self, cdr: &[u8]) -> Result<(), MessageError> {
        self.cameras.insert(cdr).inspect_err(|_| self.counters.count(Counter::RefusedCameraInfo))
    }

    pub(super) fn count_refused_map(&mut self) {
        self.counters.count(Counter::RefusedMap);
    }

    /// Gravity: the odometry frame is level, and so is the map.
    pub(super) fn set_up(&mut self, mount: &Mount) {
        if let (Gravity::Odom, Some(odom_t_base)) = (self.params.registration.gravity, mount.odom_t_base) {
            let odom_t_sensor = odom_t_base * mount.base_t_sensor;
            let sensor_up = odom_t_sensor.inverse_transform_vector(&Vector::z());
            match self.frame.input {
                Input::Points3d3d => _ = self.problems.points.set_up(sensor_up, Vector::z()),
                Input::Sights2d3d => self.problems.sights.set_up(sensor_up, Vector::z()),
                // Raw clouds look for it themselves.
                Input::Sights2d2d | Input::Points => {}
            }
        }
    }

    /// What a result means: a pose to publish, or a rejection.
    pub(super) fn conclude(&mut self, found: &Found, mount: &Mount) {
        self.settle_prior();
        let absolute = self.frame.input.is_absolute();
        let frame = &mut self.frame;
        frame.registered = true;
        frame.facts.take(found, frame.after_filter, absolute.then_some(&mount.base_t_sensor));
        let _ = write!(frame.message, "{}", found.reason);
        let trusted = match found.status {
            Status::Ok => found.target_t_source.map(|pose| (pose, *found.covariance)),
            Status::Ambiguous if absolute && self.frame.input != Input::Points => {
                self.disambiguate(found, mount)
            }
            _ => None,
        };
        let usable = match trusted {
            Some((map_t_sensor, covariance)) if absolute => {
                self.pose(&map_t_sensor, &covariance, mount).map(|pose| self.place(pose, mount, found.status))
            }
            Some((reference_t_camera, _)) => is_finite(&reference_t_camera).then(|| {
                let frame = Arc::clone(&self.names.reference);
                self.frame.relative = Some(RelativePose { frame, reference_t_camera });
                self.frame.message.clear();
            }),
            None => None,
        };
        match usable {
            Some(()) => self.accept(),
            None if trusted.is_some() || found.status == Status::Ok => {
                self.reject(Status::Degenerate, Some("the pose or its covariance is not finite"));
            }
            None => self.reject(found.status, None),
        }
    }

    /// The candidate of an ambiguous registration that agrees with the initial pose, if there is
    /// exactly one, and if it could be trusted were it alone.
    fn disambiguate(&self, found: &Found, mount: &Mount) -> Option<(Rigid, Matrix6<f64>)> {
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
        Some((chosen, covariance::rotate(found.covariance, turn.to_rotation_matrix().matrix())))
    }

    /// The pose to publish. None: a number is not finite.
    fn pose(&self, map_t_sensor: &Rigid, covariance: &Matrix6<f64>, mount: &Mount) -> Option<Pose> {
        let map_t_base = map_t_sensor * mount.base_t_sensor.inverse();
        let covariance = covariance::sensor_to_base(covariance, map_t_sensor, &map_t_base);
        let covariance = covariance::publishable(&covariance, self.frame.input, &self.params.covariance)?;
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

    /// Takes a pose in the map. One that was measured before the last one is told but not broadcast: what is on
    /// tf is newer.
    fn place(&mut self, mut pose: Pose, mount: &Mount, status: Status) {
        let (stamp, message) = (self.frame.stamp, &mut self.frame.message);
        message.clear();
        if status == Status::Ambiguous {
            message.push_str("ambiguous, settled by the initial pose");
        }
        if self.last_accepted.as_ref().is_some_and(|last| stamp < last.stamp) {
            message.push_str(if message.is_empty() { "" } else { "; " });
            message.push_str("older than the last pose");
            pose.tf = None;
            self.count(Counter::Superseded, 1);
        } else {
            if let Some(prior) = &mut self.prior {
                (prior.map_t_base, prior.stamp, prior.odom_t_base) =
                    (pose.map_t_base, stamp, mount.odom_t_base);
            }
            let tf = pose.tf.clone().filter(|_| self.params.tf.mode == TfMode::MapOdom);
            self.last_accepted = Some(Accepted { stamp, tf });
        }
        self.frame.accepted = Some(pose);
    }

    fn accept(&mut self) {
        self.frame.status = Status::Ok;
        self.count(Counter::Accepted, 1);
        let channel = self.channels.get_mut(self.frame.input);
        channel.rejected_in_a_row = 0;
        channel.trusted = Some(self.frame.stamp);
    }

    /// Gives no pose.
    fn decline(&mut self, status: Status) {
        self.frame.status = status;
        let channel = self.channels.get_mut(self.frame.input);
        channel.rejected_in_a_row += 1;
        channel.trusted = None;
    }

    fn reject(&mut self, status: Status, why: Option<&str>) {
        if let Some(why) = why {
            self.frame.message.clear();
            self.frame.message.push_str(why);
        }
        self.decline(status);
        let counter = match status {
            Status::TooFew => Some(Counter::RefusedTooFew),
            Status::Degenerate => Some(Counter::RejectedDegenerate),
            Status::Ambiguous => Some(Counter::RejectedAmbiguous),
            Status::LowInliers => Some(Counter::RejectedLowInliers),
            Status::LowOverlap => Some(Counter::RejectedLowOverlap),
            Status::Unconfirmed => Some(Counter::RejectedUnconfirmed),
            Status::OverBudget => Some(Counter::RejectedOverBudget),
            Status::GpuFault => Some(Counter::GpuFaults),
            _ => None,
        };
        counter.into_iter().for_each(|counter| self.count(counter, 1));
        // A fault of the machine is not an absent match: nothing goes out.
        if status != Status::GpuFault {
            self.hold();
        }
    }

    /// Sends the last accepted map -> odom again, for a while; not while another input gives poses, which are
    /// newer, and not because two views do not match.
    fn hold(&mut self) {
        let (input, stamp) = (self.frame.input, self.frame.stamp);
        let led = self.channels.leading(stamp, self.params.input.max_age_sec).is_some();
        let last = self.last_accepted.as_ref().filter(|_| input.is_absolute() && !led);
        let Some(Accepted { stamp: accepted, tf: Some(tf) }) = last else { return };
        let since = stamp.seconds_since(*accepted);
        if (0.0..=self.params.tf.hold_sec).contains(&since) {
            let stamp = stamp.plus(self.params.tf.transform_tolerance);
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
        let _ = write!(self.frame.message, "{why}");
        self.decline(status);
        self.count(counter, 1);
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

/// What a message still needs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Missing {
    /// A transform.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// The calibration of the camera of this frame.
    #[error("no_camera_info:{0}")]
    CameraInfo(String),
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
