//! The localizer of the node, driven from a bag.
//!
//! The time of the bag is the clock. What the threads of the node do at a time is done here in the
//! order of the bag, by one: transforms go into the buffer, messages into slots, one an input, that hold
//! the newest only, and the worker takes from them when it is free, waits for transforms up to
//! `tf.wait_sec` and answers. So a drive is a function of the bag and the parameters; with
//! [`Options::realtime`], of the speed of this machine too.

use super::{Estimate, FrameRecord};
use crate::io::bag::{Bag, BagError, Loss};
use crate::localizer::transforms::TransformBuffer;
use crate::localizer::{Frame, Input, Localizer, Pending, PoseSample, Queue, Stages};
use crate::messages::poses::{PoseType, PoseView};
use crate::messages::Stamp;
use crate::params::Params;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Topic of an input unless another is asked for.
pub fn default_topic(input: Input) -> String {
    format!("/{}", input.name())
}

/// Topic of the calibration of cameras unless another is asked for.
pub const CAMERA_INFO: &str = "/camera_info";
/// Type of all correspondences, and of raw clouds.
pub const INPUT_TYPE: &str = "sensor_msgs/msg/PointCloud2";
const CAMERA_INFO_TYPE: &str = "sensor_msgs/msg/CameraInfo";
/// Type of the transforms.
pub const TF_TYPE: &str = "tf2_msgs/msg/TFMessage";
const TF: &str = "/tf";
const TF_STATIC: &str = "/tf_static";
const INITIAL_POSE: &str = "/initialpose";

/// What of a bag is driven, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Topic of 3D-3D correspondences. Of the topics of correspondences those are driven that the bag has: at
    /// least one, and all whose name is not the usual one. Empty: not driven.
    pub topic: String,
    /// Topic of 2D-3D correspondences.
    pub topic_2d3d: String,
    /// Topic of 2D-2D correspondences.
    pub topic_2d2d: String,
    /// Topic of raw clouds. The usual one is driven only in a localizer that has a map.
    pub topic_points: String,
    /// Topic of the calibration of cameras.
    pub camera_info: String,
    /// An answer takes as long as it takes on this machine; what comes meanwhile waits, and of that
    /// only the newest. Otherwise an answer takes no time.
    pub realtime: bool,
    /// Seconds of the bag before the first message that is answered. Transforms are heard from the
    /// beginning.
    pub start: f64,
    /// Seconds after that; none: to the end.
    pub duration: Option<f64>,
    /// The bag is played so many times as fast: with `realtime`, there is so much less time.
    pub rate: f64,
    /// The pose is forgotten again and again after so many seconds: as many unknown starts. What was heard of
    /// transforms stays.
    pub restart_every: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            topic: default_topic(Input::Points3d3d),
            topic_2d3d: default_topic(Input::Sights2d3d),
            topic_2d2d: default_topic(Input::Sights2d2d),
            topic_points: default_topic(Input::Points),
            camera_info: CAMERA_INFO.to_owned(),
            realtime: false,
            start: 0.0,
            duration: None,
            rate: 1.0,
            restart_every: None,
        }
    }
}

impl Options {
    /// Topic of an input.
    pub fn topic_of(&self, input: Input) -> &str {
        match input {
            Input::Points3d3d => &self.topic,
            Input::Sights2d3d => &self.topic_2d3d,
            Input::Sights2d2d => &self.topic_2d2d,
            Input::Points => &self.topic_points,
        }
    }
}

/// What is known of a drive beside its frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// It came to its end.
    pub complete: bool,
    /// Time of the bag from which messages were answered, and of the last message that was heard.
    pub span: (Stamp, Stamp),
    /// What of the bag could not be read.
    pub losses: Vec<Loss>,
    /// What else should be said, in words.
    pub notes: Vec<String>,
    /// Why the GPU was lost, which ended the drive.
    pub lost: Option<String>,
}

/// Seconds of the bag that were driven, of all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Driven.
    pub done: f64,
    /// All.
    pub total: f64,
}

/// Drives `localizer`, which should be new, through the bag. `seen` is told of every answer as it
/// comes. When `stop` becomes true the drive ends early.
pub fn drive(
    bag: &Bag,
    localizer: &mut Localizer,
    params: &Params,
    options: &Options,
    stop: &AtomicBool,
    seen: impl FnMut(&FrameRecord, Progress),
) -> Result<Outcome, BagError> {
    let mut notes = Vec::new();
    let has_map = localizer.map().is_some();
    let [points, sights, pairs, clouds] = inputs(bag, options, has_map, &mut notes)?;
    let mut usable = |name, want: &[&str]| usable(bag, name, want, &mut notes);
    let initial_pose = PoseType::PoseWithCovariance;
    let topics = [
        points,
        sights,
        pairs,
        clouds,
        usable(&options.camera_info, &[CAMERA_INFO_TYPE]),
        usable(TF, &[TF_TYPE]),
        usable(TF_STATIC, &[TF_TYPE]),
        usable(INITIAL_POSE, &[initial_pose.name()]),
    ];
    let (first, last) = bag.span().unwrap_or_default();
    let from = first.plus(options.start);
    let until = options.duration.map_or(Stamp(i64::MAX), |duration| from.plus(duration));
    let total = last.min(until).seconds_since(from).max(0.0);
    let mut worker = Worker {
        transforms: localizer.transforms(),
        localizer,
        wait: params.tf.wait_sec,
        pace: if options.realtime { options.rate } else { 0.0 },
        from,
        total,
        start: 0,
        arrived: Queue::default(),
        waiting: Queue::default(),
        initial_pose: None,
        spare: Vec::new(),
        has_news: false,
        free_at: Stamp(i64::MIN),
        seen,
    };
    let mut refused = Refused::default();
    let mut messages = bag.messages(&topics);
    let (mut complete, mut end, mut heard) = (true, from, 0u64);
    while let Some(message) = messages.next() {
        let now = message.log_time;
        if now > until {
            break;
        }
        if stop.load(Ordering::Relaxed) || worker.localizer.lost().is_some() {
            complete = false;
            break;
        }
        end = end.max(now);
        worker.advance(now);
        if let Some(every) = options.restart_every.filter(|every| *every > 0.0) {
            worker.restart((now.seconds_since(from) / every).max(0.0) as u32, now);
        }
        heard += u64::from(message.topic < Input::ALL.len());
        let data = message.data;
        match (Input::ALL.get(message.topic), message.topic) {
            (Some(&input), _) if now >= from => worker.put(input, data, now),
            (None, 4) => refused.note(worker.localizer.handle_camera_info(data).map_err(|e| e.to_string())),
            (None, 5 | 6) => refused.note(worker.insert(data, message.topic == 6)),
            (None, 7) if now >= from => refused.note(worker.put_initial_pose(data, initial_pose)),
            _ => continue,
        }
        worker.wake(now);
    }
    if complete {
        worker.advance(Stamp(i64::MAX));
    }
    if complete && heard == 0 {
        let named = [points, sights, pairs, clouds].into_iter().filter(|topic| !topic.is_empty());
        let named = named.map(|topic| format!("'{topic}'"));
        notes
            .push(format!("no_messages: nothing was read of topic {}", named.collect::<Vec<_>>().join(", ")));
    }
    notes.extend(refused.told());
    let losses = messages.losses().to_vec();
    let lost = localizer.lost().map(str::to_owned);
    Ok(Outcome { complete: complete && lost.is_none(), span: (from, end), losses, notes, lost })
}

/// A topic if the bag has it, of one of these types; else an empty name.
fn usable<'a>(bag: &Bag, name: &'a str, want: &[&str], notes: &mut Vec<String>) -> &'a str {
    match bag.require(name, want) {
        Ok(_) => name,
        Err(BagError::NoTopic { .. }) => "",
        Err(error) => {
            notes.push(format!("{error}: ignored"));
            ""
        }
    }
}

/// The topics of the inputs that are driven; empty names for the others.
fn inputs<'a>(
    bag: &Bag,
    options: &'a Options,
    has_map: bool,
    notes: &mut Vec<String>,
) -> Result<[&'a str; Input::ALL.len()], BagError> {
    let asked = Input::ALL.map(|input| (input, options.topic_of(input)));
    for (_, topic) in
        asked.iter().filter(|(input, topic)| !topic.is_empty() && *topic != default_topic(*input))
    {
        bag.require(topic, &[INPUT_TYPE])?;
    }
    let found = asked.map(|(input, topic)| match topic {
        "" => "",
        // What can only be refused is not driven unless it is asked for.
        _ if input == Input::Points && !has_map && topic == default_topic(input) => "",
        _ => usable(bag, topic, &[INPUT_TYPE], notes),
    });
    if found.iter().all(|topic| topic.is_empty()) {
        bag.require(&options.topic, &[INPUT_TYPE])?;
    }
    Ok(found)
}

/// Messages other than correspondences that were not taken.
#[derive(Default)]
struct Refused {
    times: u64,
    first: String,
}

impl Refused {
    fn note(&mut self, result: Result<(), String>) {
        if let Err(why) = result {
            self.times += 1;
            if self.times == 1 {
                self.first = why;
            }
        }
    }

    fn told(self) -> Option<String> {
        (self.times > 0).then(|| format!("refused: {} messages, the first: {}", self.times, self.first))
    }
}

/// The worker of the node, in the time of the bag.
struct Worker<'a, F> {
    localizer: &'a mut Localizer,
    transforms: Arc<Mutex<TransformBuffer>>,
    /// `tf.wait_sec`
    wait: f64,
    /// Seconds of the bag that a second of work takes.
    pace: f64,
    from: Stamp,
    total: f64,
    /// Times that the pose was forgotten.
    start: u32,
    /// Messages that were not yet taken.
    arrived: Queue<Stamp>,
    /// Messages that wait for transforms or for their turn.
    waiting: Queue<Stamp>,
    initial_pose: Option<(String, Stamp, PoseSample)>,
    spare: Vec<Vec<u8>>,
    /// Something came while it was busy.
    has_news: bool,
    free_at: Stamp,
    seen: F,
}

impl<F: FnMut(&FrameRecord, Progress)> Worker<'_, F> {
    /// Does what is due until a time.
    fn advance(&mut self, to: Stamp) {
        while let Some(at) = self.next_look().filter(|at| *at <= to) {
            self.look(at);
        }
    }

    /// When it looks at its work next if nothing comes.
    fn next_look(&self) -> Option<Stamp> {
        match self.has_news {
            true => Some(self.free_at),
            false => self.waiting.until(),
        }
    }

    /// Begins an unknown start unless it has begun: with nothing that waits, and with no work that goes on.
    fn restart(&mut self, start: u32, now: Stamp) {
        if start <= self.start {
            return;
        }
        self.start = start;
        let old: Vec<_> = self.arrived.drain().chain(self.waiting.drain()).collect();
        old.into_iter().for_each(|old| self.overwritten(old));
        self.initial_pose = None;
        self.has_news = false;
        self.free_at = now;
        self.localizer.reset();
    }

    /// Something has come.
    fn wake(&mut self, now: Stamp) {
        match now >= self.free_at {
            true => self.look(now),
            false => self.has_news = true,
        }
    }

    /// A message has come.
    fn put(&mut self, input: Input, data: &[u8], now: Stamp) {
        let mut cdr = self.spare.pop().unwrap_or_default();
        cdr.clear();
        cdr.extend_from_slice(data);
        let old = self.arrived.put(Pending::new(input, cdr, now, now.plus(self.wait)));
        old.into_iter().for_each(|old| self.overwritten(old));
    }

    fn overwritten(&mut self, old: Pending<Stamp>) {
        self.localizer.count_overwritten(old.input, 1);
        self.spare.push(old.cdr);
    }

    /// Transforms have come; the first that was refused.
    fn insert(&mut self, cdr: &[u8], is_static: bool) -> Result<(), String> {
        let mut buffer = self.transforms.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.insert_message(cdr, is_static)
    }

    fn put_initial_pose(&mut self, cdr: &[u8], kind: PoseType) -> Result<(), String> {
        let view = PoseView::parse(kind, cdr).map_err(|e| e.to_string())?;
        let PoseView { stamp, frame, position, orientation, covariance, .. } = view;
        let covariance = covariance.unwrap_or([f64::NAN; 36]);
        let sample = PoseSample { position, orientation, covariance };
        self.initial_pose = Some((frame.to_owned(), stamp, sample));
        Ok(())
    }

    /// Looks at all that is there, as the worker of the node does.
    fn look(&mut self, now: Stamp) {
        self.has_news = false;
        if let Some((frame, stamp, sample)) = self.initial_pose.take() {
            // A refusal is counted by the localizer.
            let _ = self.localizer.set_initial_pose(&frame, stamp, &sample, now);
        }
        let (arrived, waiting) = (&mut self.arrived, &mut self.waiting);
        let replaced: Vec<_> = arrived.drain().filter_map(|message| waiting.put(message)).collect();
        replaced.into_iter().for_each(|old| self.overwritten(old));
        // Before looking for transforms: a jump of the clock clears them.
        self.localizer.clock(now);
        let localizer = &self.localizer;
        let ready = |message: &Pending<Stamp>| {
            now >= message.until || localizer.needs(message.input, &message.cdr, now).is_ok()
        };
        if let Some(message) = self.waiting.take(ready) {
            self.answer(message, now);
            // The others have not been looked at.
            self.has_news = !self.waiting.is_empty();
        }
    }

    fn answer(&mut self, message: Pending<Stamp>, now: Stamp) {
        let started = Instant::now();
        let frame = self.localizer.handle(message.input, &message.cdr, now);
        let seconds = started.elapsed().as_secs_f64();
        self.free_at = now.plus(seconds * self.pace);
        let record = FrameRecord {
            answered: self.free_at,
            start: self.start,
            ..record(frame, message.arrived, seconds * 1e6)
        };
        let done = now.seconds_since(self.from).clamp(0.0, self.total);
        (self.seen)(&record, Progress { done, total: self.total });
        self.spare.push(message.cdr);
    }
}

/// What is kept of an answer.
fn record(frame: &Frame, arrived: Stamp, total_us: f64) -> FrameRecord {
    let facts = frame.registered.then_some(&frame.facts);
    let estimate = frame.accepted.as_ref();
    FrameRecord {
        input: frame.input,
        stamp: if frame.stamp == Stamp::default() { arrived } else { frame.stamp },
        arrived,
        answered: arrived,
        start: 0,
        status: frame.status,
        estimate: estimate.map(|pose| Estimate { map_t_base: pose.map_t_base, covariance: pose.covariance }),
        relative: frame.relative.as_ref().map(|pose| pose.reference_t_camera),
        mode: frame.mode,
        correspondences: frame.correspondences as u32,
        inliers: facts.map_or(0, |facts| facts.inliers as u32),
        log10_false_alarms: facts.map_or(0.0, |facts| facts.log10_false_alarms),
        margin: facts.map_or(0.0, |facts| facts.margin),
        parse_us: facts.map_or(0.0, |facts| facts.parse_us),
        stages: facts.map_or_else(|| Stages::none(frame.input), |facts| facts.stages),
        total_us,
    }
}
