//! Random problems with random parameters, one in five of them meant to break something.

use super::problems::*;
use flashreg::geometry::{Point, Rigid, Vector};
use flashreg::params::{Metric, Params, Value};
use flashreg::registration::{Correspondence, Problem};
use nalgebra::UnitQuaternion;
use rand::Rng;

/// No problem has more correspondences; `registration.max_correspondences` of every case.
pub const MOST: usize = 4000;
/// Sizes of problems that are dense by design: the plain formulas take their cube.
const DENSE: usize = 500;

/// A problem and how to register it, on the CPU unless changed. Tau, least length, K, T, metric,
/// threshold and the capacities of the bounded search are set; the search is the exact one.
pub struct Case {
    /// What it is, with its seed.
    pub what: String,
    pub problem: Problem,
    pub params: Params,
}

fn from_environment(name: &str, default: u64) -> u64 {
    let value = |text: String| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is needed"));
    std::env::var(name).map_or(default, value)
}

/// The number of cases: `FLASHREG_CASES`, or 300.
pub fn count() -> u64 {
    from_environment("FLASHREG_CASES", 300)
}

/// Checks the cases from the seed `FLASHREG_FIRST_CASE` (0) on. A failure names its case.
pub fn for_each_case(mut check: impl FnMut(&Case)) {
    let first = from_environment("FLASHREG_FIRST_CASE", 0);
    for seed in first..first + count() {
        let _seed = Named(seed);
        check(&random_case(seed));
    }
}

/// Says at a panic which case it was.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("again with FLASHREG_FIRST_CASE={} FLASHREG_CASES=1", self.0);
        }
    }
}

/// The same for the same seed.
pub fn random_case(seed: u64) -> Case {
    let mut draft = Draft::new(random(seed));
    let kind = seed.is_multiple_of(5).then(|| ADVERSE[(seed / 5) as usize % ADVERSE.len()]);
    let kind = match kind {
        Some((name, spoil)) => {
            spoil(&mut draft);
            name
        }
        None => {
            draft.decorate();
            "planted"
        }
    };
    draft.finish(&format!("case {seed}, {kind}"))
}

/// A case in the making.
struct Draft {
    rng: Random,
    pose: Rigid,
    rows: Vec<Correspondence>,
    up: Option<[Vector; 2]>,
    tau: f64,
    min_length: f64,
    pivots: i64,
    per_pivot: i64,
    threshold: f64,
    /// Rows that must be refused are offered too.
    offer_unusable: bool,
}

/// From 1 to `most`, each order of magnitude as likely as another.
fn log_uniform(rng: &mut Random, most: usize) -> usize {
    rng.random_range(0.0..((most + 1) as f64).ln()).exp() as usize
}

impl Draft {
    fn new(mut rng: Random) -> Self {
        let n = log_uniform(&mut rng, MOST + 1) - 1;
        let pose = random_pose(&mut rng, 30.0);
        let mut draft = Self {
            pose,
            rows: Vec::new(),
            up: None,
            tau: 10f64.powf(rng.random_range(-3.0..0.0)),
            min_length: if rng.random_bool(0.2) { 0.0 } else { rng.random_range(0.0..0.5) },
            pivots: log_uniform(&mut rng, 2000) as i64,
            per_pivot: rng.random_range(1..=16),
            threshold: rng.random_range(0.01..0.4),
            offer_unusable: false,
            rng,
        };
        draft.plant(n);
        draft
    }

    /// `n` rows of a room or a street, some of them right. The graphs of large problems are kept
    /// sparse: the plain formulas have to work through them too.
    fn plant(&mut self, n: usize) {
        let rng = &mut self.rng;
        self.tau = self.tau.min(4e4 / (n.max(1) as f64).powf(1.5));
        let share = rng.random_range(0.0..0.4);
        let inliers = ((n as f64 * share) as usize).min(800);
        let size = if rng.random_bool(0.5) { ROOM } else { STREET };
        let radius = self.tau * rng.random_range(0.0..1.0);
        self.rows = planted(rng, n, inliers, size, radius, &self.pose);
    }

    /// At most `most` rows from now on.
    fn at_most(&mut self, most: usize) -> usize {
        self.rows.truncate(most);
        self.rows.len()
    }

    /// Every row is right.
    fn make_right(&mut self) {
        self.rows.iter_mut().for_each(|row| row.target = self.pose * row.source);
    }

    /// Weights, identities and verticals now and then, in any combination.
    fn decorate(&mut self) {
        for decoration in [moderate_weights, identities, verticals] {
            if self.rng.random_bool(0.2) {
                decoration(self);
            }
        }
    }

    fn finish(mut self, what: &str) -> Case {
        let mut problem = Problem::with_capacity(self.rows.len());
        for row in &self.rows {
            if self.offer_unusable {
                let unusable = spoilt(&mut self.rng, *row);
                assert!(!problem.push(unusable), "{what}: taken: {unusable:?}");
            }
            assert!(problem.push(*row), "{what}: refused: {row:?}");
        }
        if let Some([source, target]) = self.up {
            assert!(problem.set_up(source, target), "{what}");
        }
        let rng = &mut self.rng;
        let metric = Metric::WORDS[rng.random_range(0..Metric::WORDS.len())];
        let values = [
            ("max_correspondences", Value::Int(MOST as i64)),
            ("tau", Value::Float(self.tau)),
            ("min_length", Value::Float(self.min_length)),
            ("inlier_threshold", Value::Float(self.threshold)),
            ("pivots", Value::Int(self.pivots)),
            ("triples_per_pivot", Value::Int(self.per_pivot)),
            ("metric", Value::Text(metric.into())),
            ("bounded_row_capacity", Value::Int(log_uniform(rng, 600) as i64)),
            ("bounded_pool_size", Value::Int(log_uniform(rng, 64) as i64)),
            ("bounded_thread_candidates", Value::Int(self.per_pivot)),
        ];
        let upright = if self.up.is_some() { ", upright" } else { "" };
        let what =
            values.iter().fold(format!("{what}, N = {}{upright}", problem.len()), |what, (name, value)| {
                format!("{what}, {name} = {value}")
            });
        let named = values.map(|(name, value)| (format!("registration.{name}"), value));
        let mut params = preset(false);
        params.set_all(named.iter().map(|(name, value)| (name.as_str(), value))).expect("valid parameters");
        Case { what, problem, params }
    }
}

/// Turns a draft into something harder.
type Spoil = fn(&mut Draft);

/// What is meant to break something.
const ADVERSE: [(&str, Spoil); 16] = [
    ("duplicates", duplicates),
    ("a line", line),
    ("one point", one_point),
    ("mirrored", mirrored),
    ("a plane", plane),
    ("all compatible", all_compatible),
    ("none compatible", none_compatible),
    ("unusable rows offered", |draft| draft.offer_unusable = true),
    ("around a word", around_a_word),
    ("as many as there is room for", |draft| draft.plant(MOST)),
    ("a grid at the thresholds", grid),
    ("all magnitudes", |draft| {
        let n = draft.at_most(DENSE);
        draft.rows = all_magnitudes(&mut draft.rng, n, draft.tau);
    }),
    ("far away", far_away),
    ("weights of all sizes", weights_of_all_sizes),
    ("identities", identities),
    ("verticals", verticals),
];

fn duplicates(draft: &mut Draft) {
    let n = draft.rows.len();
    for i in 0..n {
        draft.rows[i] = draft.rows[draft.rng.random_range(0..n.div_ceil(8))];
    }
}

/// All right, or half of them.
fn line(draft: &mut Draft) {
    draft.at_most(DENSE);
    let direction = noise(&mut draft.rng, 1.0);
    let step = draft.rng.random_range(1..=2);
    for (i, row) in draft.rows.iter_mut().enumerate().step_by(step) {
        row.source = Point::from(direction * (i as f64 * 0.3));
        row.target = draft.pose * row.source;
    }
}

fn one_point(draft: &mut Draft) {
    if let Some(first) = draft.rows.first().copied() {
        draft.rows.fill(first);
    }
}

fn mirrored(draft: &mut Draft) {
    draft.at_most(DENSE);
    for row in &mut draft.rows {
        row.target = draft.pose * Point::new(row.source.x, row.source.y, -row.source.z);
    }
}

fn plane(draft: &mut Draft) {
    draft.at_most(DENSE);
    draft.rows.iter_mut().for_each(|row| row.source.z = 0.0);
    draft.make_right();
}

fn all_compatible(draft: &mut Draft) {
    draft.at_most(DENSE);
    draft.make_right();
    (draft.tau, draft.min_length) = (1.0, 0.0);
}

fn none_compatible(draft: &mut Draft) {
    draft.rows.iter_mut().for_each(|row| row.target = row.source * 100.0);
    (draft.tau, draft.min_length) = (draft.tau.min(0.4), 0.5);
}

fn around_a_word(draft: &mut Draft) {
    let words = [32, 64][draft.rng.random_range(0..2)] * draft.rng.random_range(1..=20usize);
    let n = words + draft.rng.random_range(0..3) - 1;
    draft.plant(n);
}

/// On a grid of 1/8 m every length is rounded alike and many equal tau and r exactly.
fn grid(draft: &mut Draft) {
    draft.at_most(DENSE);
    let rng = &mut draft.rng;
    let mut point = || Point::from(Vector::from_fn(|_, _| f64::from(rng.random_range(0..5)) * 0.125));
    draft.rows.iter_mut().for_each(|row| *row = Correspondence::new(point(), point()));
    (draft.tau, draft.min_length) = [(0.125, 0.25), (0.25, 0.0), (0.125, 0.125)][rng.random_range(0..3)];
}

/// Clusters from millimetres to thousands of kilometres whose lengths differ by about `tau`.
pub fn all_magnitudes(rng: &mut Random, n: usize, tau: f64) -> Vec<Correspondence> {
    let mut row = || {
        let scale = 10f64.powf(rng.random_range(-3.0..6.5));
        let p = Vector::from_fn(|_, _| rng.random_range(-1.0..1.0) * scale);
        Correspondence::new(p.into(), (p + noise(rng, tau * 0.7)).into())
    };
    (0..n).map(|_| row()).collect()
}

fn far_away(draft: &mut Draft) {
    let shift = noise(&mut draft.rng, 1e7);
    draft.rows.iter_mut().for_each(|row| row.target += shift);
}

fn moderate_weights(draft: &mut Draft) {
    draft.rows.iter_mut().for_each(|row| row.weight = draft.rng.random_range(0.01..5.0));
}

fn weights_of_all_sizes(draft: &mut Draft) {
    draft.rows.iter_mut().for_each(|row| row.weight = 10f32.powf(draft.rng.random_range(-37.0..38.0)));
}

fn identities(draft: &mut Draft) {
    let most = draft.rows.len().div_ceil(5) as u32;
    for row in &mut draft.rows {
        row.target_id = draft.rng.random_bool(0.9).then(|| draft.rng.random_range(0..most));
        row.source_id = draft.rng.random_bool(0.5).then(|| draft.rng.random_range(0..most));
    }
}

/// Right ones, slightly wrong ones, and any.
fn verticals(draft: &mut Draft) {
    let rng = &mut draft.rng;
    let source = Vector::z() + noise(rng, 0.01);
    let target = match rng.random_range(0..3) {
        0 => draft.pose * source,
        1 => draft.pose * source + noise(rng, 0.01),
        _ => UnitQuaternion::from_scaled_axis(noise(rng, 3.0)) * source,
    };
    draft.up = Some([source, target]);
}

/// A row that cannot be used: a number that is not finite, or a weight that is not above zero.
fn spoilt(rng: &mut Random, mut row: Correspondence) -> Correspondence {
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][rng.random_range(0..3)];
    match rng.random_range(0..3) {
        0 => row.source[rng.random_range(0..3)] = bad,
        1 => row.target[rng.random_range(0..3)] = bad,
        _ => row.weight = [bad as f32, 0.0, -1.0][rng.random_range(0..3)],
    }
    row
}
