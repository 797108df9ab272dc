//! `/diagnostics`: one dominant cause, and all the numbers behind it.

use super::{clean, lock, time, NodeClock};
use crate::latency::Ring;
use crate::localizer::Localizer;
use crate::registration::StageTimes;
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

/// Names of the stages of a frame: reading the message, the stages of the registration, sending.
pub fn stage_names() -> impl Iterator<Item = &'static str> {
    ["parse"].into_iter().chain(StageTimes::NAMES).chain(["publish"])
}

/// What one frame adds.
#[derive(Debug, Clone, Default)]
pub struct FrameNumbers {
    /// Rows in the message.
    pub correspondences: usize,
    /// Rows that were registered.
    pub after_filter: usize,
    /// Inliers of the pose.
    pub inliers: usize,
    /// Eigenvalues of their scatter, m^2.
    pub spread: [f64; 3],
    /// Poses that explain the correspondences.
    pub candidates: usize,
    /// 1 - (score of the runner-up) / (score of the pose).
    pub margin: f64,
    /// Microseconds for reading the message.
    pub parse_us: f64,
    /// Microseconds of the registration.
    pub stages: StageTimes,
    /// Microseconds for sending.
    pub publish_us: f64,
    /// Microseconds from the arrival of the message until everything was sent.
    pub total_us: f64,
    /// Microseconds from the stamp of the message until everything was sent, by the clock of the node.
    pub age_us: f64,
}

impl FrameNumbers {
    fn times(&self) -> impl Iterator<Item = f64> {
        [self.parse_us].into_iter().chain(self.stages.values()).chain([self.publish_us])
    }
}

/// The state of the node as far as others may see it. The worker writes it after every frame.
#[derive(Debug, Clone)]
pub struct State {
    /// Status of the last frame, or why there is none.
    pub status: Status,
    /// Text that belongs to it.
    pub message: String,
    /// Everything counted.
    pub counters: Counters,
    /// The last frame.
    pub frame: FrameNumbers,
    /// Points of the map; 0 where the map is on the other side of the correspondences.
    pub map_points: usize,
    /// Frames rejected since the last accepted one.
    pub rejected_in_a_row: u64,
    /// Grows when the past is forgotten: reset, initial pose, clock jump.
    pub generation: u64,
    /// Input older than this is named as the cause.
    pub silent_after: Duration,
    /// Set once: the worker is gone, and the node with it.
    pub failure: Option<String>,
    /// `cpu` or `cuda`.
    pub backend: String,
    /// Why this backend.
    pub backend_why: String,
    /// Device that computes.
    pub device: String,
    latency: Vec<Ring>,
    arrivals: [Option<Instant>; 64],
    arrived: usize,
    sent: Option<Status>,
}

impl State {
    /// Nothing has happened yet.
    pub fn new(silent_after: Duration) -> Self {
        Self {
            status: Status::WaitingInput,
            message: "no message has arrived yet".to_owned(),
            silent_after,
            sent: None,
            counters: Counters::default(),
            frame: FrameNumbers::default(),
            map_points: 0,
            rejected_in_a_row: 0,
            generation: 0,
            failure: None,
            backend: String::new(),
            backend_why: String::new(),
            device: String::new(),
            latency: series().map(|_| Ring::new()).collect(),
            arrivals: [None; 64],
            arrived: 0,
        }
    }

    /// Takes over what computes; only a GPU that fails changes it.
    pub fn set_backend(&mut self, localizer: &Localizer) {
        if (self.backend.as_str(), self.backend_why.as_str()) != (localizer.backend(), localizer.why()) {
            self.backend = localizer.backend().to_owned();
            self.backend_why = localizer.why().to_owned();
            self.device = match localizer.backend() {
                "cuda" => localizer.why().to_owned(),
                _ => format!("CPU, {} cores", std::thread::available_parallelism().map_or(1, |n| n.get())),
            };
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

    /// Takes over the numbers of a frame; the times only of one that was registered.
    pub fn record(&mut self, frame: &FrameNumbers, registered: bool) {
        if registered {
            let overhead = frame.total_us - frame.stages.total();
            let values = frame.times().chain([frame.total_us, overhead, frame.age_us]);
            for (ring, value) in self.latency.iter_mut().zip(values) {
                ring.push(value);
            }
        }
        self.frame.clone_from(frame);
    }

    /// The category is another one than was sent last.
    pub fn has_changed(&self, now: Instant) -> bool {
        self.sent != Some(self.category(now))
    }

    /// The dominant cause, silence of the input included.
    pub fn category(&self, now: Instant) -> Status {
        // These do not depend on input.
        let told = matches!(self.status, Status::Inactive | Status::WaitingInput);
        match self.input_age(now) {
            Some(age) if age > self.silent_after && !told => Status::StaleInput,
            _ => self.status,
        }
    }

    fn text(&self, now: Instant, category: Status) -> String {
        match (&self.failure, self.input_age(now)) {
            (Some(failure), _) => failure.clone(),
            (None, Some(age)) if category != self.status => {
                format!("no message for {:.0} s; before that: {}", age.as_secs_f64(), self.status)
            }
            _ => self.message.clone(),
        }
    }

    fn level(&self, category: Status) -> u8 {
        match category {
            _ if self.failure.is_some() => ERROR,
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
            | Status::OverBudget
            | Status::Inactive => WARN,
        }
    }

    /// All keys and values, in a fixed order.
    fn values(&mut self, now: Instant, category: Status, message: &str) -> Vec<KeyValue> {
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
        put("map_points", &self.map_points);
        match self.input_age(now) {
            Some(age) => put("input_age_ms", &age.as_millis()),
            None => put("input_age_ms", &"never"),
        }
        put("input_rate_hz", &format_args!("{:.2}", self.input_rate(now)));
        for counter in Counter::ALL {
            put(counter.name(), &self.counters.get(*counter));
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
        put("rejected_in_a_row", &self.rejected_in_a_row);
        put("generation", &self.generation);
        for (name, value) in stage_names().zip(frame.times()) {
            put(&format!("stage_us.{name}"), &format_args!("{value:.1}"));
        }
        for (name, ring) in series().zip(&mut self.latency) {
            let p = ring.percentiles();
            for (rank, value) in [("p50", p.p50), ("p95", p.p95), ("p99", p.p99), ("max", p.max)] {
                put(&format!("latency_us.{name}.{rank}"), &format_args!("{value:.1}"));
            }
        }
        out
    }
}

fn series() -> impl Iterator<Item = &'static str> {
    stage_names().chain([TOTAL, OVERHEAD, AGE])
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
        let name = format!("{node}: localization");
        Self { state: Arc::new(Mutex::new(state)), publisher, clock, name }
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
        let category = state.category(now);
        let message = state.text(now, category);
        let values = state.values(now, category, &message);
        let array = DiagnosticArray {
            header: Header { stamp: time(self.clock.now()), frame_id: String::new() },
            status: vec![DiagnosticStatus {
                level: state.level(category),
                name: self.name.clone(),
                message: clean(if message.is_empty() { category.name() } else { &message }),
                hardware_id: clean(&state.device),
                values,
            }],
        };
        if let Err(error) = self.publisher.publish(&array) {
            log::warn!("cannot publish diagnostics: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_a_category_of_its_own() {
        let mut state = State::new(Duration::from_secs(5));
        let start = Instant::now();
        assert_eq!(state.category(start), Status::WaitingInput);
        state.message_arrived(start);
        state.status = Status::Ok;
        assert_eq!(state.category(start + Duration::from_secs(4)), Status::Ok);
        let later = start + Duration::from_secs(6);
        let category = state.category(later);
        assert_eq!(category, Status::StaleInput);
        assert_eq!(state.text(later, category), "no message for 6 s; before that: ok");
        assert_eq!(state.level(category), STALE);
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut state = State::new(Duration::from_secs(5));
        let start = Instant::now();
        for i in 0..200 {
            state.message_arrived(start + Duration::from_millis(100 * i));
        }
        let now = start + Duration::from_millis(100 * 199);
        assert!((state.input_rate(now) - 10.0).abs() < 0.3);
        assert_eq!(state.input_rate(now + Duration::from_secs(6)), 0.0);
    }

    #[test]
    fn keys_are_unique_and_hold_every_counter() {
        let mut state = State::new(Duration::from_secs(5));
        let values = state.values(Instant::now(), Status::Ok, "");
        let keys: std::collections::HashSet<_> = values.iter().map(|kv| kv.key.as_str()).collect();
        assert_eq!(keys.len(), values.len());
        assert!(Counter::ALL.iter().all(|c| keys.contains(c.name())));
        assert!(keys.contains("stage_us.publish") && keys.contains("latency_us.total.p99"));
        let readme = include_str!("../../README.md");
        let families = ["stage_us.", "latency_us."];
        for key in keys.iter().filter(|key| !families.iter().any(|f| key.starts_with(f))) {
            assert!(readme.contains(&format!("`{key}`")), "README.md does not explain {key}");
        }
    }
}
