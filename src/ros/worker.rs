//! The one thread that owns the localizer.

use super::diagnostics::{FrameNumbers, Reporter};
use super::logger::Logger;
use super::publish::Outputs;
use super::streams::{Inbox, Message, WakeOn, Work};
use super::{clean, lock, NodeClock};
use crate::localizer::{Frame, Input, Localizer, PerInput, PoseSample, Queue};
use crate::messages::Stamp;
use crate::params::Params;
use crate::status::Status;
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
        // The messages that wait for transforms, the clock or their turn; then the last one.
        let mut waiting = Queue::default();
        let mut last: Option<Message> = None;
        let mut until = None;
        loop {
            let on = if waiting.is_empty() { WakeOn::Input } else { WakeOn::InputOrTransforms };
            let mut work = self.inbox.take(on, until);
            if work.stop {
                return Ok(());
            }
            for (input, n) in work.overwritten.iter() {
                self.localizer.count_overwritten(input, *n);
            }
            self.obey(&mut work);
            let wait = Duration::from_secs_f64(self.params.tf.wait_sec);
            for mut message in work.messages.drain() {
                message.until = message.arrived + wait;
                if let Some(old) = waiting.put(message) {
                    self.localizer.count_overwritten(old.input, 1);
                }
            }
            if let Some(request) = work.trigger.take() {
                let newest = waiting.take_newest().or(last.take());
                let response = self.register_now(newest.as_ref());
                last = newest;
                if let Err(error) = request.respond(response) {
                    log::warn!("a trigger request could not be answered: {error}");
                }
            }
            until = self.work_on(&mut waiting, &mut last);
            if let Some(why) = self.localizer.lost() {
                return Err(why.to_owned());
            }
        }
    }

    /// Answers the message whose turn it is; when to look again if nothing comes.
    fn work_on(&mut self, waiting: &mut Queue<Instant>, last: &mut Option<Message>) -> Option<Instant> {
        if waiting.is_empty() {
            return None;
        }
        let now = self.clock.now();
        if now == Stamp::default() {
            lock(&self.reporter.state).wait("use_sim_time is set and no /clock has arrived");
            return Some(Instant::now() + CLOCK_POLL);
        }
        // Before looking for transforms: a jump of the clock clears them.
        self.localizer.clock(now);
        let localizer = &self.localizer;
        let ready = |message: &Message| {
            Instant::now() >= message.until || localizer.needs(message.input, &message.cdr, now).is_ok()
        };
        let Some(message) = waiting.take(ready) else { return waiting.until() };
        self.localize(&message, now);
        *last = Some(message);
        // The others have not been looked at.
        (!waiting.is_empty()).then(Instant::now)
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
        if let Some(map) = work.map.take() {
            if let Err(error) = self.localizer.set_map(map) {
                self.log.refused(&error.to_string());
            }
            changed = true;
        }
        for _ in 0..work.refused_maps {
            self.localizer.count_refused_map();
            changed = true;
        }
        for cdr in work.camera_infos.drain(..) {
            if let Err(error) = self.localizer.handle_camera_info(&cdr) {
                self.log.refused(&error.to_string());
                changed = true;
            }
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
            Err(error) => self.log.refused(&error.to_string()),
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
        let frame = self.localizer.handle(message.input, &message.cdr, now);
        let publishing = Instant::now();
        let mut sent = self.outputs.send(frame);
        let publish_us = publishing.elapsed().as_secs_f64() * 1e6;
        let total_us = message.arrived.elapsed().as_secs_f64() * 1e6;
        let age_us = self.clock.now().seconds_since(frame.stamp) * 1e6;
        let numbers = FrameNumbers { publish_us, total_us, age_us, ..FrameNumbers::of(frame) };
        sent = sent.and(self.outputs.explain(&self.localizer));
        self.log.frame(self.localizer.frame());
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
            for (input, channel) in state.channels.iter_mut() {
                channel.set_backend(localizer.backend(input), localizer.why(input));
                channel.set_status(if self.active { localizer.status_of(input) } else { Status::Inactive });
                channel.counters.clone_from(localizer.counters_of(input));
                channel.rejected_in_a_row = localizer.rejected_in_a_row(input);
                channel.mode = (input == Input::Points).then(|| localizer.mode());
            }
            if let Some(numbers) = numbers {
                state.record(localizer.frame(), numbers);
            }
            state.deciding = localizer.deciding();
            state.counters = localizer.counters();
            state.generation = localizer.generation();
            let limit = self.params.tf.hold_sec.max(self.params.input.max_age_sec);
            state.silent_after = Duration::from_secs_f64(limit);
            state.has_changed(Instant::now())
        };
        if changed {
            self.reporter.publish();
        }
    }
}

/// Writes the log of the node: the status of an input when it changes, and every ten seconds how often it came
/// again. A status that comes and goes is said once a second.
pub(super) struct Announcer {
    logger: Logger,
    said: PerInput<Said>,
    /// The last refusal of something else, and when it was said.
    refused: Option<(Instant, String)>,
}

/// What was said of an input.
#[derive(Default)]
struct Said {
    status: Option<Status>,
    /// Per status: when it was last said, and how often it has come since.
    times: [(Option<Instant>, u64); Status::ALL.len()],
}

impl Announcer {
    /// For the logger of the node.
    pub(super) fn new(logger: Logger) -> Self {
        Self { logger, said: PerInput::default(), refused: None }
    }

    fn frame(&mut self, frame: &Frame) {
        let status = frame.status;
        let said = self.said.get_mut(frame.input);
        let changed = said.status.replace(status) != Some(status);
        let Some((said, count)) = said.times.get_mut(status as usize) else { return };
        *count += 1;
        let is_due = |pause| said.is_none_or(|said| said.elapsed() >= pause);
        if !(changed && is_due(BRIEF)) && (status == Status::Ok || !is_due(REPEAT)) {
            return;
        }
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        (*said, *count) = (Some(Instant::now()), 0);
        let colon = if frame.message.is_empty() { "" } else { ": " };
        let text = format!("{}: {status}{times}{colon}{}", frame.input, frame.message);
        match status {
            Status::Ok | Status::Inactive => self.logger.info(&text),
            _ => self.logger.warn(&text),
        }
    }

    fn refused(&mut self, why: &str) {
        let pause = |said: &str| if said == why { REPEAT } else { BRIEF };
        if self.refused.as_ref().is_none_or(|(at, said)| at.elapsed() > pause(said)) {
            self.refused = Some((Instant::now(), why.to_owned()));
            self.logger.warn(why);
        }
    }
}
