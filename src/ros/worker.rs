//! The one thread that owns the localizer.

use super::diagnostics::{FrameNumbers, Reporter};
use super::logger::Logger;
use super::publish::Outputs;
use super::streams::{Inbox, Message, WakeOn, Work};
use super::{clean, lock, NodeClock};
use crate::localizer::{Frame, Localizer, PoseSample};
use crate::messages::Stamp;
use crate::params::Params;
use crate::status::{Counter, Status};
use r2r::geometry_msgs::msg::PoseWithCovarianceStamped;
use r2r::std_srvs::srv::Trigger;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often an unchanged refusal is said again.
const REPEAT: Duration = Duration::from_secs(10);
/// How often anything is said at most.
const BRIEF: Duration = Duration::from_secs(1);
/// How often the clock is looked at while the first `/clock` is awaited.
const CLOCK_POLL: Duration = Duration::from_millis(50);

/// Takes the newest message from the inbox, localizes, publishes.
pub(super) struct Worker {
    pub(super) localizer: Localizer,
    pub(super) inbox: Arc<Inbox>,
    pub(super) outputs: Outputs,
    pub(super) reporter: Reporter,
    pub(super) clock: NodeClock,
    pub(super) log: Announcer,
    pub(super) params: Params,
    pub(super) active: bool,
}

impl Worker {
    /// Works until the inbox says stop, or the GPU is lost; the error says why.
    pub(super) fn run(mut self) -> Result<(), String> {
        // The message that waits for transforms or the clock, and until when; then the last one.
        let mut waiting: Option<(Message, Instant)> = None;
        let mut last: Option<Message> = None;
        loop {
            let on = if waiting.is_some() { WakeOn::InputOrTransforms } else { WakeOn::Input };
            let mut work = self.inbox.take(on, waiting.as_ref().map(|(_, until)| *until));
            if work.stop {
                return Ok(());
            }
            self.count_overwritten(work.overwritten);
            self.obey(&mut work);
            if let Some(message) = work.message.take() {
                let until = message.arrived + Duration::from_secs_f64(self.params.tf.wait_sec);
                if waiting.replace((message, until)).is_some() {
                    self.count_overwritten(1);
                }
            }
            if let Some(request) = work.trigger.take() {
                let newest = waiting.take().map(|(message, _)| message).or(last.take());
                let response = self.register_now(newest.as_ref());
                last = newest;
                if let Err(error) = request.respond(response) {
                    log::warn!("a trigger request could not be answered: {error}");
                }
            }
            if let Some((message, until)) = waiting.take() {
                match self.ready(&message, until) {
                    Ok(now) => {
                        self.localize(&message, now);
                        last = Some(message);
                    }
                    Err(until) => waiting = Some((message, until)),
                }
            }
            if let Some(why) = self.localizer.lost() {
                return Err(why.to_owned());
            }
        }
    }

    fn count_overwritten(&mut self, n: u64) {
        let counters = self.localizer.counters_mut();
        counters.add(Counter::Received, n);
        counters.add(Counter::Overwritten, n);
    }

    /// The time, if the message can be worked on now; else until when to wait.
    fn ready(&mut self, message: &Message, until: Instant) -> Result<Stamp, Instant> {
        let now = self.clock.now();
        if now == Stamp::default() {
            let mut state = lock(&self.reporter.state);
            state.status = Status::WaitingInput;
            "use_sim_time is set and no /clock has arrived".clone_into(&mut state.message);
            return Err(Instant::now() + CLOCK_POLL);
        }
        // Before looking for transforms: a jump of the clock clears them.
        self.localizer.clock(now);
        if Instant::now() < until && self.localizer.needs(&message.cdr, now).is_err() {
            return Err(until);
        }
        Ok(now)
    }

    /// Carries out what was asked for, other than messages.
    fn obey(&mut self, work: &mut Work) {
        let mut changed = work.clock;
        if work.clock {
            self.localizer.clock(self.clock.now());
        }
        if let Some(params) = work.params.take() {
            self.localizer.set_params(&params);
            self.params = params;
            changed = true;
        }
        if let Some(active) = work.active.take() {
            self.active = active;
            self.localizer.set_active(active);
            self.log.logger.info(if active { "switched on" } else { "switched off" });
            changed = true;
        }
        if std::mem::take(&mut work.reset) {
            self.localizer.reset();
            self.log.logger.info("reset: the last pose is forgotten");
            changed = true;
        }
        if let Some(pose) = work.initial_pose.take() {
            self.take_initial_pose(&pose);
            changed = true;
        }
        if changed {
            self.report(None);
        }
    }

    fn take_initial_pose(&mut self, message: &PoseWithCovarianceStamped) {
        let (p, q) = (&message.pose.pose.position, &message.pose.pose.orientation);
        let mut sample = PoseSample {
            position: [p.x, p.y, p.z],
            orientation: [q.x, q.y, q.z, q.w],
            covariance: [f64::NAN; 36],
        };
        for (to, from) in sample.covariance.iter_mut().zip(&message.pose.covariance) {
            *to = *from;
        }
        let stamp = Stamp::new(message.header.stamp.sec, message.header.stamp.nanosec);
        let frame = message.header.frame_id.as_str();
        match self.localizer.set_initial_pose(frame, stamp, &sample, self.clock.now()) {
            Ok(()) => self.log.logger.info(&format!("initial pose taken: {:?}", sample.position)),
            Err(error) => self.log.refused_initial_pose(&error),
        }
    }

    /// Registers a message at once, also while switched off.
    fn register_now(&mut self, message: Option<&Message>) -> Trigger::Response {
        let now = self.clock.now();
        let Some(message) = message else {
            let message = "no message has arrived yet".to_owned();
            return Trigger::Response { success: false, message };
        };
        self.localizer.set_active(true);
        self.localize(message, now);
        let frame = self.localizer.frame();
        let success = frame.status == Status::Ok;
        let message = clean(&format!("{}: {}", frame.status, frame.message));
        self.localizer.set_active(self.active);
        self.report(None);
        Trigger::Response { success, message }
    }

    fn localize(&mut self, message: &Message, now: Stamp) {
        let frame = self.localizer.handle_correspondences(&message.cdr, now);
        let publishing = Instant::now();
        let mut sent = self.outputs.send(frame);
        let publish_us = publishing.elapsed().as_secs_f64() * 1e6;
        let total_us = message.arrived.elapsed().as_secs_f64() * 1e6;
        let age_us = self.clock.now().seconds_since(frame.stamp) * 1e6;
        let numbers = FrameNumbers { publish_us, total_us, age_us, ..numbers(frame) };
        let frame = self.localizer.frame();
        sent = sent.and(self.outputs.explain(frame, self.localizer.correspondences()));
        self.log.frame(frame);
        if let Err(error) = sent {
            log::warn!("cannot publish: {error}");
        }
        self.report(Some(&numbers));
    }

    /// Brings the shared state up to date, and sends it if the category has changed.
    fn report(&self, numbers: Option<&FrameNumbers>) {
        let localizer = &self.localizer;
        let changed = {
            let mut state = lock(&self.reporter.state);
            let frame = localizer.frame();
            state.set_backend(localizer);
            state.status = if self.active { frame.status } else { Status::Inactive };
            state.message.clone_from(&frame.message);
            if state.status == Status::WaitingInput {
                state.message.push_str("no message yet");
            }
            state.counters.clone_from(localizer.counters());
            state.rejected_in_a_row = localizer.rejected_in_a_row();
            state.generation = localizer.generation();
            let limit = self.params.tf.hold_sec.max(self.params.input.max_age_sec);
            state.silent_after = Duration::from_secs_f64(limit);
            if let Some(numbers) = numbers {
                state.record(numbers, frame.registered);
            }
            state.has_changed(Instant::now())
        };
        if changed {
            self.reporter.publish();
        }
    }
}

fn numbers(frame: &Frame) -> FrameNumbers {
    let mut out = FrameNumbers {
        correspondences: frame.correspondences,
        after_filter: frame.after_filter,
        ..FrameNumbers::default()
    };
    if frame.registered {
        let facts = &frame.facts;
        out.inliers = facts.inliers;
        out.spread = facts.spread;
        out.candidates = facts.candidates.len();
        out.margin = facts.margin;
        out.parse_us = facts.parse_us;
        out.stages = facts.stages;
    }
    out
}

/// Writes the log of the node: a status when it changes, and every ten seconds how often it came
/// again. A status that comes and goes is said once a second.
pub(super) struct Announcer {
    logger: Logger,
    status: Option<Status>,
    /// Per status: when it was last said, and how often it has come since.
    said: [(Option<Instant>, u64); Status::ALL.len()],
    initial_pose: Option<Instant>,
}

impl Announcer {
    /// For the logger of the node.
    pub(super) fn new(logger: Logger) -> Self {
        let said = [(None, 0); Status::ALL.len()];
        Self { logger, status: None, said, initial_pose: None }
    }

    fn frame(&mut self, frame: &Frame) {
        let status = frame.status;
        let changed = self.status.replace(status) != Some(status);
        let Some((said, count)) = self.said.get_mut(status as usize) else { return };
        *count += 1;
        let is_due = |pause| said.is_none_or(|said| said.elapsed() >= pause);
        if !(changed && is_due(BRIEF)) && (status == Status::Ok || !is_due(REPEAT)) {
            return;
        }
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        (*said, *count) = (Some(Instant::now()), 0);
        let colon = if frame.message.is_empty() { "" } else { ": " };
        let text = format!("{status}{times}{colon}{}", frame.message);
        match status {
            Status::Ok | Status::Inactive => self.logger.info(&text),
            _ => self.logger.warn(&text),
        }
    }

    fn refused_initial_pose(&mut self, error: &dyn std::error::Error) {
        if self.initial_pose.is_none_or(|said| said.elapsed() > BRIEF) {
            self.initial_pose = Some(Instant::now());
            self.logger.warn(&error.to_string());
        }
    }
}
