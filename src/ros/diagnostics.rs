//! `/diagnostics`: one dominant cause, and all the numbers behind it; the same of each input that is heard.

use super::{clean, lock, time, NodeClock};
use crate::latency::Ring;
use crate::localizer::map::Map;
use crate::localizer::{Frame, Input, Mode, PerInput, Stages};
use crate::status::{Counter, Counters, Status};
use r2r::diagnostic_msgs::msg::{DiagnosticArray, DiagnosticStatus, KeyValue};
use r2r::std_msgs::msg::Header;
use r2r::Publisher;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Series of times that are kept: every stage, then these.
const TOTAL: &str = "total";
const OVERHEAD: &str = "overhead";
const AGE: &str = "age";

const OK: u8 = DiagnosticStatus::OK as u8;
const WARN: u8 = DiagnosticStatus::WARN as u8;
const ERROR: u8 = DiagnosticStatus::ERROR as u8;
const STALE: u8 = DiagnosticStatus::STALE as u8;

/// Names of the stages of a frame: reading the message, the stages in which its pose is found, sending.
fn stage_names(input: Input) -> impl Iterator<Item = &'static str> {
    let stages = Stages::none(input);
    let found: Vec<_> = stages.iter().map(|(name, _)| name).collect();
    ["parse"].into_iter().chain(found).chain(["publish"])
}

/// What one frame adds.
#[derive(Debug, Clone)]
pub struct FrameNumbers {
    /// Rows in the message.
    pub correspondences: usize,
    /// Rows that were used.
    pub after_filter: usize,
    /// Inliers of the pose.
    pub inliers: usize,
    /// Eigenvalues of their scatter.
    pub spread: [f64; 3],
    /// Poses in the map that explain the correspondences.
    pub candidates: usize,
    /// 1 - (support of the runner-up alone) / (support of the pose alone).
    pub margin: f64,
    /// Share of the scan that lies on the map, of raw clouds.
    pub overlap: f64,
    /// Microseconds for reading the message.
    pub parse_us: f64,
    /// Microseconds for finding the pose.
    pub stages: Stages,
    /// Microseconds for sending.
    pub publish_us: f64,
    /// Microseconds from the arrival of the message until everything was sent.
    pub total_us: f64,
    /// Microseconds from the stamp of the message until everything was sent, by the clock of the node.
    pub age_us: f64,
}

impl FrameNumbers {
    /// No frame yet.
    fn none(input: Input) -> Self {
        Self {
            correspondences: 0,
            after_filter: 0,
            inliers: 0,
            spread: [0.0; 3],
            candidates: 0,
            margin: 0.0,
            overlap: 0.0,
            parse_us: 0.0,
            stages: Stages::none(input),
            publish_us: 0.0,
            total_us: 0.0,
            age_us: 0.0,
        }
    }

    /// What a frame says; when it was sent is not known yet.
    pub fn of(frame: &Frame) -> Self {
        let (correspondences, after_filter) = (frame.correspondences, frame.after_filter);
        let none = Self { correspondences, after_filter, ..Self::none(frame.input) };
        let facts = &frame.facts;
        match frame.registered {
            false => none,
            true => Self {
                inliers: facts.inliers,
                spread: facts.spread,
                candidates: facts.candidates.len(),
                margin: facts.margin,
                overlap: facts.overlap,
                parse_us: facts.parse_us,
                stages: facts.stages,
                ..none
            },
        }
    }

    fn times(&self) -> impl Iterator<Item = f64> + '_ {
        let stages = self.stages.iter().map(|(_, time)| time);
        [self.parse_us].into_iter().chain(stages).chain([self.publish_us])
    }
}

/// The state of the node as far as others may see it. The worker writes it after every frame.
#[derive(Debug, Clone)]
pub struct State {
    /// Of each input.
    pub channels: PerInput<Channel>,
    /// The input whose numbers and category are those of the node.
    pub deciding: Input,
    /// Everything counted.
    pub counters: Counters,
    /// Of the map that raw clouds are localized in.
    pub map: MapState,
    /// Grows when the past is forgotten: reset, initial pose, clock jump.
    pub generation: u64,
    /// Input older than this is named as the cause.
    pub silent_after: Duration,
    /// Set once: the worker is gone, and the node with it.
    pub failure: Option<String>,
    sent: Option<Status>,
}

/// What is known of the map that raw clouds are localized in.
#[derive(Debug, Clone, Default)]
pub struct MapState {
    /// Points after voxels; 0: there is no map.
    points: usize,
    /// Parts that a scan is matched with.
    submaps: usize,
    /// Where it comes from, or why there is none.
    note: String,
    /// How far the one is that is being read.
    progress: Option<String>,
}

impl MapState {
    /// There is none, and why.
    pub fn none(why: String) -> Self {
        Self { note: why, ..Self::default() }
    }

    /// One is being read, and how far it is.
    pub fn load(&mut self, progress: String) {
        self.progress = Some(progress);
    }

    /// One has been read.
    pub fn take(&mut self, map: &Map, note: String) {
        *self = Self { points: map.surface.points.len(), submaps: map.submaps.len(), note, progress: None };
    }

    /// One cannot be used, and why; the one before stays.
    pub fn refuse(&mut self, why: String) {
        self.progress = None;
        if self.points == 0 {
            self.note = why;
        }
    }

    /// The first one is being read.
    fn is_awaited(&self) -> bool {
        self.points == 0 && self.progress.is_some()
    }

    fn text(&self) -> &str {
        self.progress.as_ref().unwrap_or(&self.note)
    }
}

/// What is known of an input.
#[derive(Debug, Clone)]
pub struct Channel {
    input: Input,
    /// Status of its last frame, or why there is none.
    status: Status,
    /// Text that belongs to it.
    message: String,
    /// What was counted of it.
    pub counters: Counters,
    /// Its last frame.
    frame: FrameNumbers,
    /// Its frames rejected since the last accepted one.
    pub rejected_in_a_row: u64,
    /// What is known of the place, of raw clouds.
    pub mode: Option<Mode>,
    /// `cpu` or `cuda`.
    backend: String,
    /// Why this backend.
    backend_why: String,
    /// Device that computes.
    device: String,
    latency: Vec<Ring>,
    arrivals: [Option<Instant>; 64],
    arrived: usize,
}

impl State {
    /// Nothing has happened yet.
    pub fn new(silent_after: Duration) -> Self {
        Self {
            channels: PerInput::new(Channel::new),
            deciding: Input::Points3d3d,
            counters: Counters::default(),
            map: MapState::default(),
            generation: 0,
            silent_after,
            failure: None,
            sent: None,
        }
    }

    /// Nothing can be answered yet, and why.
    pub fn wait(&mut self, why: &str) {
        for (_, channel) in self.channels.iter_mut() {
            channel.status = Status::WaitingInput;
            why.clone_into(&mut channel.message);
        }
    }

    /// Takes over what a frame says; its times only if a pose was sought.
    pub fn record(&mut self, frame: &Frame, numbers: &FrameNumbers) {
        self.channels.get_mut(frame.input).record(frame, numbers);
    }

    /// The category is another one than was sent last.
    pub fn has_changed(&self, now: Instant) -> bool {
        self.sent != Some(self.category(now))
    }

    /// The dominant cause, silence of the input included.
    pub fn category(&self, now: Instant) -> Status {
        self.channels.get(self.deciding).category(now, self.silent_after, &self.map)
    }

    /// That of the node, then that of each input that has been heard.
    fn statuses(&mut self, name: &str, now: Instant) -> Vec<DiagnosticStatus> {
        let (silent_after, map) = (self.silent_after, &self.map);
        let mut out = Vec::with_capacity(1 + Input::ALL.len());
        let general = [
            ("input", self.deciding.name().to_owned()),
            ("map", self.map.text().to_owned()),
            ("map_points", self.map.points.to_string()),
            ("submaps", self.map.submaps.to_string()),
            ("generation", self.generation.to_string()),
        ];
        let deciding = self.channels.get_mut(self.deciding);
        let mut overall =
            deciding.status(format!("{name}: localization"), &self.counters, silent_after, map, now);
        overall.values.extend(general.map(|(key, value)| KeyValue { key: key.to_owned(), value }));
        if let Some(failure) = &self.failure {
            (overall.level, overall.message) = (ERROR, clean(failure));
        }
        out.push(overall);
        for (input, channel) in self.channels.iter_mut().filter(|(_, channel)| channel.arrived > 0) {
            let counters = channel.counters.clone();
            out.push(channel.status(format!("{name}: {input}"), &counters, silent_after, map, now));
        }
        out
    }
}

impl Channel {
    fn new(input: Input) -> Self {
        Self {
            input,
            status: Status::WaitingInput,
            message: "no message has arrived yet".to_owned(),
            counters: Counters::default(),
            frame: FrameNumbers::none(input),
            rejected_in_a_row: 0,
            mode: (input == Input::Points).then_some(Mode::Lost),
            backend: String::new(),
            backend_why: String::new(),
            device: String::new(),
            latency: series(input).map(|_| Ring::new()).collect(),
            arrivals: [None; 64],
            arrived: 0,
        }
    }

    /// Takes over what computes; only a GPU that fails changes it.
    pub fn set_backend(&mut self, backend: &str, why: &str) {
        if (self.backend.as_str(), self.backend_why.as_str()) != (backend, why) {
            self.backend = backend.to_owned();
            self.backend_why = why.to_owned();
            self.device = match backend {
                "cuda" => why.to_owned(),
                _ => format!("CPU, {} cores", std::thread::available_parallelism().map_or(1, |n| n.get())),
            };
        }
    }

    /// Takes over a status; its text follows with the frame, if it is that of one.
    pub fn set_status(&mut self, status: Status) {
        if std::mem::replace(&mut self.status, status) != status {
            self.message = if status == Status::WaitingInput { "no message yet" } else { "" }.to_owned();
        }
    }

    /// Remembers that a message arrived.
    pub fn message_arrived(&mut self, now: Instant) {
        if let Some(slot) = self.arrivals.get_mut(self.arrived % 64) {
            *slot = Some(now);
        }
        self.arrived = self.arrived.wrapping_add(1);
    }

    /// Time since the last message; `None` before the first.
    pub fn input_age(&self, now: Instant) -> Option<Duration> {
        self.arrivals.iter().flatten().max().map(|last| now.saturating_duration_since(*last))
    }

    /// Messages a second in the last five seconds.
    fn input_rate(&self, now: Instant) -> f64 {
        let recent = |t: &&Instant| now.saturating_duration_since(**t) < Duration::from_secs(5);
        let times = || self.arrivals.iter().flatten().filter(recent);
        match (times().min(), times().max()) {
            (Some(first), Some(last)) if last > first => {
                (times().count() - 1) as f64 / (*last - *first).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    fn record(&mut self, frame: &Frame, numbers: &FrameNumbers) {
        self.message.clone_from(&frame.message);
        if frame.registered {
            let overhead = numbers.total_us - numbers.stages.total();
            let values = numbers.times().chain([numbers.total_us, overhead, numbers.age_us]);
            for (ring, value) in self.latency.iter_mut().zip(values) {
                ring.push(value);
            }
        }
        self.frame.clone_from(numbers);
    }

    /// The status, or that nothing has come for a while.
    fn category(&self, now: Instant, silent_after: Duration, map: &MapState) -> Status {
        // These do not depend on input.
        let told = matches!(self.status, Status::Inactive | Status::WaitingInput);
        match self.input_age(now) {
            Some(age) if age > silent_after && !told => Status::StaleInput,
            // What will be missing when input comes.
            _ if self.status == Status::WaitingInput && map.is_awaited() => Status::MissingMap,
            _ => self.status,
        }
    }

    fn text(&self, now: Instant, category: Status, map: &MapState) -> String {
        if category == Status::MissingMap {
            return map.text().to_owned();
        }
        match self.input_age(now) {
            Some(age) if category != self.status => {
                format!("no message for {:.0} s; before that: {}", age.as_secs_f64(), self.status)
            }
            _ => self.message.clone(),
        }
    }

    fn status(
        &mut self,
        name: String,
        counters: &Counters,
        silent_after: Duration,
        map: &MapState,
        now: Instant,
    ) -> DiagnosticStatus {
        let category = self.category(now, silent_after, map);
        let message = self.text(now, category, map);
        DiagnosticStatus {
            level: self.level(category),
            name,
            message: clean(if message.is_empty() { category.name() } else { &message }),
            hardware_id: clean(&self.device),
            values: self.values(now, category, &message, counters),
        }
    }

    fn level(&self, category: Status) -> u8 {
        match category {
            Status::StaleInput if self.status != Status::StaleInput => STALE,
            Status::Ok => OK,
            Status::MissingMap | Status::BadInput | Status::GpuFault => ERROR,
            Status::WaitingInput => STALE,
            Status::MissingTf
            | Status::StaleInput
            | Status::TooFew
            | Status::Degenerate
            | Status::Ambiguous
            | Status::LowInliers
            | Status::LowOverlap
            | Status::Unconfirmed
            | Status::OverBudget
            | Status::Inactive => WARN,
        }
    }

    /// All keys and values, in a fixed order.
    fn values(
        &mut self,
        now: Instant,
        category: Status,
        message: &str,
        counters: &Counters,
    ) -> Vec<KeyValue> {
        let mut out = Vec::with_capacity(96);
        let mut put = |key: &str, value: &dyn Display| {
            out.push(KeyValue { key: key.to_owned(), value: clean(&value.to_string()) });
        };
        let frame = &self.frame;
        put("category", &category);
        put("message", &message);
        put("device", &self.device);
        put("backend", &self.backend);
        put("backend_why", &self.backend_why);
        match self.input_age(now) {
            Some(age) => put("input_age_ms", &age.as_millis()),
            None => put("input_age_ms", &"never"),
        }
        put("input_rate_hz", &format_args!("{:.2}", self.input_rate(now)));
        for counter in Counter::ALL {
            put(counter.name(), &counters.get(*counter));
        }
        put("correspondences", &frame.correspondences);
        put("after_filter", &frame.after_filter);
        put("inliers", &frame.inliers);
        let ratio = frame.inliers as f64 / frame.after_filter.max(1) as f64;
        put("inlier_ratio", &format_args!("{ratio:.4}"));
        let [a, b, c] = frame.spread;
        put("spread_eigenvalues", &format_args!("{a:.4} {b:.4} {c:.4}"));
        put("candidates", &frame.candidates);
        put("margin", &format_args!("{:.4}", frame.margin));
        if let Some(mode) = self.mode {
            put("mode", &mode);
            put("overlap", &format_args!("{:.4}", frame.overlap));
        }
        put("rejected_in_a_row", &self.rejected_in_a_row);
        for (name, value) in stage_names(self.input).zip(frame.times()) {
            put(&format!("stage_us.{name}"), &format_args!("{value:.1}"));
        }
        for (name, ring) in series(self.input).zip(&mut self.latency) {
            let p = ring.percentiles();
            for (rank, value) in [("p50", p.p50), ("p95", p.p95), ("p99", p.p99), ("max", p.max)] {
                put(&format!("latency_us.{name}.{rank}"), &format_args!("{value:.1}"));
            }
        }
        out
    }
}

fn series(input: Input) -> impl Iterator<Item = &'static str> {
    stage_names(input).chain([TOTAL, OVERHEAD, AGE])
}

/// Sends `/diagnostics` from whichever thread holds it.
#[derive(Clone)]
pub struct Reporter {
    /// Shared by the thread that spins and the worker.
    pub state: Arc<Mutex<State>>,
    publisher: Publisher<DiagnosticArray>,
    clock: NodeClock,
    name: String,
}

impl Reporter {
    /// For the node of this name.
    pub fn new(state: State, publisher: Publisher<DiagnosticArray>, clock: NodeClock, node: &str) -> Self {
        Self { state: Arc::new(Mutex::new(state)), publisher, clock, name: node.to_owned() }
    }

    /// Sends the state as it is now.
    pub fn publish(&self) {
        let now = Instant::now();
        // A copy, so that the other thread never waits for the text to be made.
        let mut state = {
            let mut state = lock(&self.state);
            state.sent = Some(state.category(now));
            state.clone()
        };
        let array = DiagnosticArray {
            header: Header { stamp: time(self.clock.now()), frame_id: String::new() },
            status: state.statuses(&self.name, now),
        };
        if let Err(error) = self.publisher.publish(&array) {
            log::warn!("cannot publish diagnostics: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(state: &mut State, input: Input, status: Status, at: Instant) {
        let channel = state.channels.get_mut(input);
        channel.message_arrived(at);
        channel.set_status(status);
    }

    fn value<'a>(status: &'a DiagnosticStatus, key: &str) -> &'a str {
        status.values.iter().find(|kv| kv.key == key).map_or("", |kv| &kv.value)
    }

    #[test]
    fn silence_is_a_category_of_its_own() {
        let mut state = State::new(Duration::from_secs(5));
        let start = Instant::now();
        assert_eq!(state.category(start), Status::WaitingInput);
        heard(&mut state, Input::Points3d3d, Status::Ok, start);
        assert_eq!(state.category(start + Duration::from_secs(4)), Status::Ok);
        let later = start + Duration::from_secs(6);
        assert_eq!(state.category(later), Status::StaleInput);
        for status in state.statuses("n", later) {
            let said = (status.message.as_str(), status.level);
            assert_eq!(said, ("no message for 6 s; before that: ok", STALE), "{}", status.name);
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut channel = Channel::new(Input::Points3d3d);
        let start = Instant::now();
        for i in 0..200 {
            channel.message_arrived(start + Duration::from_millis(100 * i));
        }
        let now = start + Duration::from_millis(100 * 199);
        assert!((channel.input_rate(now) - 10.0).abs() < 0.3);
        assert_eq!(channel.input_rate(now + Duration::from_secs(6)), 0.0);
    }

    #[test]
    fn the_node_speaks_for_the_input_that_decides_and_each_input_for_itself() {
        let mut state = State::new(Duration::from_secs(5));
        let now = Instant::now();
        let names =
            |state: &mut State| state.statuses("n", now).into_iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names(&mut state), ["n: localization"], "nothing has been heard");
        heard(&mut state, Input::Points3d3d, Status::Ok, now);
        heard(&mut state, Input::Sights2d3d, Status::BadInput, now);
        state.channels.get_mut(Input::Sights2d3d).counters.count(Counter::RefusedLayout);
        state.counters.count(Counter::RefusedLayout);
        let all = state.statuses("n", now);
        let [node, points, sights] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!([&points.name, &sights.name], ["n: correspondences_3d3d", "n: correspondences_2d3d"]);
        assert_eq!([node.level, points.level, sights.level], [OK, OK, ERROR]);
        assert_eq!((value(node, "category"), value(node, "input")), ("ok", "correspondences_3d3d"));
        let refused = [node, points, sights].map(|status| value(status, "refused.layout"));
        assert_eq!(refused, ["1", "0", "1"]);
        assert!(!value(points, "stage_us.fog").is_empty() && !value(sights, "stage_us.search").is_empty());
        state.deciding = Input::Sights2d3d;
        assert_eq!(state.category(now), Status::BadInput);
    }

    #[test]
    fn keys_are_unique_and_hold_every_counter() {
        let mut state = State::new(Duration::from_secs(5));
        let readme = include_str!("../../README.md");
        for input in Input::ALL {
            state.deciding = input;
            let status = state.statuses("n", Instant::now()).remove(0);
            let keys: std::collections::HashSet<_> = status.values.iter().map(|kv| kv.key.as_str()).collect();
            assert_eq!(keys.len(), status.values.len());
            assert!(Counter::ALL.iter().all(|c| keys.contains(c.name())));
            assert!(keys.contains("stage_us.publish") && keys.contains("latency_us.total.p99"));
            for key in keys.iter().filter(|key| !key.starts_with("latency_us.")) {
                let name = key.strip_prefix("stage_us.").unwrap_or(key);
                assert!(readme.contains(&format!("`{name}`")), "README.md does not explain {key}");
            }
        }
    }
}
