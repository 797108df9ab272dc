//! The search on the GPU against the search on the CPU, stage by stage and as a whole: the same
//! bits. Skipped where there is no CUDA device.
#![cfg(feature = "cuda")]

mod common;

use common::cases;
use common::problems::*;
use flashreg::geometry::{Rigid, Vector};
use flashreg::gpu::device;
use flashreg::params::{Metric, Params, RegistrationParams, Search, Value};
use flashreg::registration::bounded::Bounded;
use flashreg::registration::cliques::{self, Extent, Slots};
use flashreg::registration::fog::Graph;
use flashreg::registration::gpu::{GpuEngine, Totals};
use flashreg::registration::hypotheses::{self, Hypothesis, Scoring};
use flashreg::registration::lanes::{Deadline, Lanes};
use flashreg::registration::layout::Layout;
use flashreg::registration::pivots::{self, Lane, View};
use flashreg::registration::{Correspondence, Problem, Registrar, Truncation};
use flashreg::status::Status;
use rand::Rng;
use std::time::Instant;

/// The GPU with memory for `capacity` correspondences and few pivots, so that it must grow; once
/// with cooperative and once with consecutive kernels.
fn gpus(capacity: usize) -> Option<[GpuEngine; 2]> {
    if let Some(device) = device::probe().first_device() {
        let cache = tempfile::tempdir().expect("a folder");
        let mut params = with(preset(false), "registration.max_correspondences", Value::Int(capacity as i64));
        (params.registration.pivots, params.registration.triples_per_pivot) = (10, 1);
        return Some(["cooperative", "consecutive"].map(|launch| {
            let params = with(params.clone(), "backend.launch", Value::Text(launch.into()));
            // Not made by a test that expects it to work: a device that cannot be used is a failure.
            let made = GpuEngine::new(&params, Some(cache.path()));
            made.unwrap_or_else(|e| panic!("{} cannot be used: {e}", device.name))
        }));
    }
    println!("skipped: no CUDA device");
    None
}

#[derive(Clone, Copy)]
struct Settings {
    tau: f32,
    r: f32,
    k: usize,
    t: usize,
    scoring: Scoring,
    /// L and m of the bounded search.
    bounds: Option<(usize, usize)>,
}

impl Settings {
    fn of(params: &Params) -> Self {
        let r = &params.registration;
        let scoring = Scoring { metric: r.metric, threshold: r.inlier_threshold as f32 };
        let (k, t) = (r.pivots as usize, r.triples_per_pivot as usize);
        let bounds = (r.bounded_row_capacity as usize, r.bounded_pool_size as usize);
        let bounds = (r.search == Search::Bounded).then_some(bounds);
        Self { tau: r.tau as f32, r: r.min_length as f32, k, t, scoring, bounds }
    }

    fn registration(&self) -> RegistrationParams {
        let mut r = preset(false).registration;
        (r.tau, r.min_length) = (f64::from(self.tau), f64::from(self.r));
        (r.pivots, r.triples_per_pivot) = (self.k as i64, self.t as i64);
        (r.metric, r.inlier_threshold) = (self.scoring.metric, f64::from(self.scoring.threshold));
        if let Some((capacity, pool)) = self.bounds {
            r.search = Search::Bounded;
            (r.bounded_row_capacity, r.bounded_pool_size) = (capacity as i64, pool as i64);
        }
        r
    }
}

const INDOOR: Settings = Settings {
    tau: 0.012,
    r: 0.15,
    k: 200,
    t: 2,
    scoring: Scoring { metric: Metric::Quadratic, threshold: 0.1 },
    bounds: None,
};

/// What a search leaves behind.
#[derive(Debug, PartialEq)]
struct Answer {
    pivots: Vec<(usize, usize, u32)>,
    triples: Vec<[u32; 4]>,
    truncation: Truncation,
    /// Bits of the pose, score, inliers; best first.
    ranked: Vec<([u64; 12], u64, u32)>,
}

fn bits(h: &Hypothesis) -> ([u64; 12], u64, u32) {
    let mut pose = [0; 12];
    for i in 0..3 {
        for j in 0..3 {
            pose[3 * i + j] = h.pose.rotation[(i, j)].to_bits();
        }
        pose[9 + i] = h.pose.translation[i].to_bits();
    }
    (pose, h.score, h.inliers)
}

struct Cpu {
    lanes: Lanes<Lane>,
    fog: Graph,
}

impl Cpu {
    fn search(&mut self, layout: &Layout, s: &Settings) -> Answer {
        let deadline = Deadline::after_ms(Instant::now(), 0.0);
        let mut view = View { voters: &self.fog, fog: &self.fog, edges: &self.fog };
        let (mut bounded, mut truncation) = (Bounded::with_capacity(0), Truncation::default());
        let (mut order, mut kept, mut slots, mut triples, mut found) =
            (vec![], vec![], Slots::default(), vec![], vec![]);
        match s.bounds {
            None => pivots::select(view, s.k, &mut self.lanes, &mut order, deadline).expect("no deadline"),
            Some((capacity, pool)) => {
                truncation =
                    bounded.build(&self.fog, capacity, &mut self.lanes, deadline).expect("no deadline");
                view = View { voters: &bounded.voters, edges: &bounded.edges, ..view };
                truncation.pool =
                    pivots::select_bounded(view, s.k, pool, &mut self.lanes, deadline).expect("no deadline");
            }
        }
        pivots::merge(&mut self.lanes, s.k, &mut kept);
        let extent = Extent { pivots: s.k, per_pivot: s.t, complete: s.bounds.is_none() };
        cliques::search(view, &kept, extent, &mut self.lanes, &mut slots, &mut triples, deadline)
            .expect("no deadline");
        let height = f64::from(s.tau);
        hypotheses::evaluate(layout, &triples, s.scoring, height, &mut self.lanes, &mut found, deadline)
            .expect("no deadline");
        let mut ranking: Vec<usize> = (0..found.len()).filter(|i| found[*i].inliers > 0).collect();
        ranking.sort_by_key(|i| (std::cmp::Reverse(found[*i].rank()), *i));
        Answer {
            pivots: kept.iter().map(|p| (p.u(), p.v(), p.score())).collect(),
            triples: triples.iter().map(|t| [t.corners[0], t.corners[1], t.corners[2], t.score]).collect(),
            truncation,
            ranked: ranking.iter().map(|i| bits(&found[*i])).collect(),
        }
    }
}

/// The first search, or (with `gone`) the second, which has a quarter of the pivots.
fn gpu_search(gpu: &mut GpuEngine, s: &Settings, gone: Option<&[u64]>) -> (Answer, Totals) {
    let totals = gpu.search_alone(u32::from(gone.is_some()), gone.unwrap_or(&[])).expect("no fault");
    let pivots = gpu.read_pivots(&totals).expect("no fault");
    let found = gpu.read_triples(s.k * s.t).expect("no fault");
    let mut ranked: Vec<_> = found.iter().map(|(_, h)| *h).filter(|h| h.inliers > 0).collect();
    // Stable: equal ones keep the order of the triples.
    ranked.sort_by_key(|h| std::cmp::Reverse(h.rank()));
    let answer = Answer {
        pivots: pivots.iter().map(|p| (p.u(), p.v(), p.score())).collect(),
        triples: found.iter().map(|(triple, _)| *triple).collect(),
        truncation: totals.truncation(),
        ranked: ranked.iter().map(bits).collect(),
    };
    assert_eq!(answer.triples.len(), totals.triples as usize);
    (answer, totals)
}

fn same(what: &str, got: &Answer, expected: &Answer) {
    assert_eq!(got.pivots, expected.pivots, "{what}: pivots");
    assert_eq!(got.triples, expected.triples, "{what}: triples");
    assert_eq!(got.truncation, expected.truncation, "{what}: truncation");
    assert_eq!(got.ranked.len(), expected.ranked.len(), "{what}: hypotheses");
    for (k, (got, expected)) in got.ranked.iter().zip(&expected.ranked).enumerate() {
        assert_eq!(got, expected, "{what}: hypothesis {k}");
    }
}

/// Graph, search, removal of a part, search again: every number is the same.
fn compare(what: &str, gpus: &mut [GpuEngine; 2], problem: &Problem, s: &Settings) -> Answer {
    let mut layout = Layout::with_capacity(problem.len());
    layout.load(problem);
    let deadline = Deadline::after_ms(Instant::now(), 0.0);
    let lanes = Lanes::new(0, Lane::default).expect("threads");
    let mut cpu = Cpu { lanes, fog: Graph::with_capacity(problem.len()) };
    let mut whole_graph = Graph::with_capacity(problem.len());
    for graph in [&mut cpu.fog, &mut whole_graph] {
        graph.build(&layout, s.tau, s.r, &mut cpu.lanes, deadline).expect("no deadline");
    }
    let expected = cpu.search(&layout, s);
    // Every third correspondence, and all of one word.
    let mut gone = vec![0u64; cpu.fog.words()];
    (0..problem.len()).filter(|i| i % 3 == 1 || i / 64 == 1).for_each(|i| gone[i / 64] |= 1 << (i % 64));
    cpu.fog.remove(&gone, &mut cpu.lanes, deadline).expect("no deadline");
    let fewer = Settings { k: s.k.div_ceil(4), ..*s };
    let expected_after = cpu.search(&layout, &fewer);
    gone.resize(problem.len().div_ceil(128) * 2, 0);

    for (gpu, way) in gpus.iter_mut().zip(["cooperative", "consecutive"]) {
        let what = format!("{what}, {way}");
        gpu.stage(&layout, &s.registration()).expect("no fault");
        let (got, totals) = gpu_search(gpu, s, None);
        same_graph(&what, gpu, &whole_graph, problem.len());
        assert_eq!(totals.edges(), whole_graph.edges(), "{what}: edges");
        same(&what, &got, &expected);

        let what = format!("{what}, after the removal");
        let (got, totals) = gpu_search(gpu, &fewer, Some(&gone));
        same_graph(&what, gpu, &cpu.fog, problem.len());
        assert_eq!(totals.edges(), cpu.fog.edges(), "{what}: edges");
        same(&what, &got, &expected_after);
    }
    expected
}

fn same_graph(what: &str, gpu: &GpuEngine, fog: &Graph, n: usize) {
    let (words, rows, degrees) = gpu.read_graph(n).expect("no fault");
    for i in 0..n.div_ceil(128) * 128 {
        let row = &rows[i * words..(i + 1) * words];
        let expected = if i < n { fog.row(i) } else { &[] };
        assert_eq!(&row[..expected.len()], expected, "{what}: row {i}");
        assert!(row[expected.len()..].iter().all(|word| *word == 0), "{what}: padding of row {i}");
        assert_eq!(degrees[i], if i < n { fog.degree(i) } else { 0 }, "{what}: degree {i}");
    }
}

#[test]
fn sizes_around_tiles_and_words() {
    let Some(mut gpus) = gpus(5000) else { return };
    for n in [3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 513, 1000, 2047, 2049, 4999] {
        let mut rng = random(n as u64);
        let pose = random_pose(&mut rng, 3.0);
        let rows = planted(&mut rng, n, n / 6 + 2, ROOM, 0.006, &pose);
        for metric in [Metric::Inliers, Metric::Linear, Metric::Quadratic] {
            let settings = Settings { scoring: Scoring { metric, threshold: 0.1 }, ..INDOOR };
            let answer = compare(&format!("n = {n}"), &mut gpus, &problem(&rows), &settings);
            assert!(n < 31 || !answer.ranked.is_empty(), "n = {n}: the test compares nothing");
        }
    }
}

#[test]
fn random_sizes_lengths_and_numbers_of_pivots() {
    let Some(mut gpus) = gpus(4000) else { return };
    for seed in 0..120 {
        let mut rng = random(1000 + seed);
        let n = rng.random_range(1.1f64..8.29).exp() as usize;
        let pose = random_pose(&mut rng, 30.0);
        let share = rng.random_range(0.0..0.4);
        let rows = planted(&mut rng, n, (n as f64 * share) as usize, ROOM, 0.01, &pose);
        let settings = Settings {
            tau: 10f32.powf(rng.random_range(-3.0..0.0)),
            r: rng.random_range(0.0..0.5),
            k: rng.random_range(0.0f64..7.6).exp() as usize,
            t: rng.random_range(1..=16),
            scoring: Scoring { metric: Metric::Linear, threshold: rng.random_range(0.01..0.4) },
            bounds: None,
        };
        compare(&format!("seed {seed}, n = {n}"), &mut gpus, &problem(&rows), &settings);
    }
}

#[test]
fn ties_are_broken_by_index_in_a_complete_graph() {
    let Some(mut gpus) = gpus(3000) else { return };
    for n in [200, 1000, 3000] {
        let mut rng = random(7);
        let pose = random_pose(&mut rng, 3.0);
        let rows = planted(&mut rng, n, n, [50.0, 50.0, 50.0], 0.0, &pose);
        for k in [1, 150, 3500] {
            let s = Settings { tau: 1.0, r: 0.0, k, t: 3, ..INDOOR };
            let answer = compare(&format!("complete, n = {n}"), &mut gpus, &problem(&rows), &s);
            assert_eq!(answer.pivots.first(), Some(&(0, 1, n as u32 - 2)));
            // All voters vote for an end, but none for itself.
            for bounds in [(512, 32), (16, 2), (4096, 4096)] {
                let s = Settings { bounds: Some(bounds), ..s };
                let answer =
                    compare(&format!("complete, n = {n}, {bounds:?}"), &mut gpus, &problem(&rows), &s);
                let voters = bounds.0.min(n - 1) as u32;
                assert!(answer.pivots.iter().all(|(_, _, score)| [voters - 1, voters].contains(score)));
            }
        }
    }
}

#[test]
fn more_pivots_than_edges() {
    let Some(mut gpus) = gpus(300) else { return };
    let mut rng = random(8);
    for (tau, k) in [(0.3, 500), (1.0, 20_000), (0.012, 50_000)] {
        let pose = random_pose(&mut rng, 3.0);
        let rows = planted(&mut rng, 260, 60, ROOM, 0.01, &pose);
        let problem = problem(&rows);
        // With room for all, every edge that is kept is a pivot: all scores are compared.
        for bounds in [None, Some((40, 4096)), Some((7, 4)), Some((1, 1))] {
            let settings = Settings { tau, k, t: 4, bounds, ..INDOOR };
            compare(&format!("tau = {tau}, {bounds:?}"), &mut gpus, &problem, &settings);
        }
    }
}

#[test]
fn duplicates_and_rows_at_the_thresholds() {
    let Some(mut gpus) = gpus(300) else { return };
    let mut rng = random(9);
    let mut grid = || Vector::from_fn(|_, _| f64::from(rng.random_range(0..5)) * 0.125);
    let rows: Vec<_> = (0..220).map(|_| Correspondence::new(grid().into(), grid().into())).collect();
    for (tau, r) in [(0.125, 0.25), (0.25, 0.0), (0.125, 0.125)] {
        let s = Settings { tau, r, k: 300, t: 3, ..INDOOR };
        compare("grid", &mut gpus, &problem(&rows), &s);
    }
    let point = flashreg::geometry::Point::new(1.0, 2.0, 3.0);
    let rows = vec![Correspondence::new(point, point); 100];
    compare("one point", &mut gpus, &problem(&rows), &INDOOR);
    let line: Vec<_> = (0..100)
        .map(|i| flashreg::geometry::Point::new(f64::from(i) * 0.3, 0.0, 0.0))
        .map(|p| Correspondence::new(p, p))
        .collect();
    compare("a line", &mut gpus, &problem(&line), &INDOOR);
}

#[test]
fn identities_weights_and_a_vertical() {
    let Some(mut gpus) = gpus(900) else { return };
    let mut rng = random(10);
    for n in [50, 300, 900] {
        let yaw = nalgebra::UnitQuaternion::from_scaled_axis(Vector::z() * 0.7);
        let pose = Rigid::from_parts(Vector::new(1.0, 2.0, 0.5).into(), yaw);
        let mut rows = planted(&mut rng, n, n / 3, ROOM, 0.004, &pose);
        for row in &mut rows {
            row.weight = rng.random_range(0.01..5.0);
        }
        for (source_up, target_up) in [
            (Vector::z(), Vector::z()),
            (Vector::new(0.02, -0.01, 1.0), Vector::new(0.01, 0.03, 1.0)),
            (Vector::x(), -Vector::x()),
        ] {
            let mut upright = problem(&rows);
            assert!(upright.set_up(source_up, target_up));
            compare("upright", &mut gpus, &upright, &INDOOR);
        }
        for row in &mut rows {
            row.target_id = Some(rng.random_range(0..60));
            row.source_id = rng.random_bool(0.5).then(|| rng.random_range(0..60));
        }
        let mut exclusive = problem(&rows);
        compare("exclusive", &mut gpus, &exclusive, &INDOOR);
        assert!(exclusive.set_up(Vector::z(), Vector::z()));
        compare("exclusive and upright", &mut gpus, &exclusive, &INDOOR);
    }
}

#[test]
fn lengths_of_all_magnitudes() {
    let Some(mut gpus) = gpus(400) else { return };
    let mut rng = random(12);
    for tau in [1e-4f32, 0.012, 0.1, 5.0] {
        let rows = cases::all_magnitudes(&mut rng, 320, f64::from(tau));
        compare("magnitudes", &mut gpus, &problem(&rows), &Settings { tau, r: 0.0, ..INDOOR });
    }
}

#[test]
fn the_largest_problems() {
    let Some(mut gpus) = gpus(32_768) else { return };
    println!("{:.1} MB on the device for N = 32,768", gpus[0].device_bytes() as f64 / 1e6);
    let mut rng = random(14);
    let pose = random_pose(&mut rng, 20.0);
    let street = Settings { tau: 0.1, k: 1000, ..INDOOR };
    for n in [10_000, 16_384, 32_768] {
        let rows = planted(&mut rng, n, n / 50, STREET, 0.05, &pose);
        compare(&format!("n = {n}"), &mut gpus, &problem(&rows), &street);
    }
    let rows = planted(&mut rng, 6000, 6000, STREET, 0.0, &pose);
    let dense = problem(&rows);
    let street = Settings { r: 0.0, ..street };
    compare("dense", &mut gpus, &dense, &street);
    let bounded = Settings { bounds: Some((512, 32)), ..street };
    compare("dense, bounded", &mut gpus, &dense, &bounded);
    let rows = planted(&mut rng, 32_768, 600, STREET, 0.05, &pose);
    let answer = compare("n = 32768, bounded", &mut gpus, &problem(&rows), &bounded);
    assert!(answer.truncation.pool > 0, "nothing is cut");
    println!("{:.1} MB on the device with the bounded search", gpus[0].device_bytes() as f64 / 1e6);
}

/// Every digit of a result but its times and the name of the backend.
fn whole(registrar: &mut Registrar, problem: &Problem, params: &Params) -> String {
    every_digit(registrar.register(problem, params))
}

const WAYS: [(&str, bool); 4] =
    [("cooperative", true), ("cooperative", false), ("consecutive", true), ("consecutive", false)];

/// The CPU, and CUDA in every way to launch.
fn all(params: &Params) -> Option<(Registrar, Vec<Registrar>)> {
    if device::probe().first_device().is_none() {
        println!("skipped: no CUDA device");
        return None;
    }
    let kind = |kind: &str| with(params.clone(), "backend.kind", Value::Text(kind.into()));
    let cuda = WAYS.map(|(launch, graph)| {
        let params = with(kind("cuda"), "backend.launch", Value::Text(launch.into()));
        let params = with(params, "backend.graph", Value::Bool(graph));
        let cuda = Registrar::new(&params).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(cuda.backend(), "cuda");
        println!("{}", cuda.why());
        cuda
    });
    Some((Registrar::new(&kind("cpu")).expect("the CPU"), cuda.into()))
}

fn same_everywhere(
    what: &str,
    cpu: &mut Registrar,
    cuda: &mut [Registrar],
    problem: &Problem,
    params: &Params,
) {
    let expected = whole(cpu, problem, params);
    for (cuda, way) in cuda.iter_mut().zip(WAYS) {
        assert_eq!(whole(cuda, problem, params), expected, "{what}, {way:?}");
    }
}

#[test]
fn whole_registrations_have_the_same_bits() {
    let Some((mut cpu, mut cuda)) = all(&preset(false)) else { return };
    for seed in 0..60 {
        let mut rng = random(2000 + seed);
        let outdoor = seed % 2 == 1;
        let n = rng.random_range(1.1f64..8.6).exp() as usize;
        let pose = random_pose(&mut rng, 100.0);
        let (size, radius) = if outdoor { (STREET, 0.2) } else { (ROOM, 0.03) };
        let share = [0.0, 0.03, 0.1, 0.5][seed as usize / 2 % 4];
        let mut rows = planted(&mut rng, n, (n as f64 * share) as usize, size, radius, &pose);
        if seed % 5 == 0 {
            rows.iter_mut().for_each(|row| row.target_id = Some(rng.random_range(0..n as u32)));
        }
        let metric = Metric::WORDS[seed as usize % 3];
        let params = with(preset(outdoor), "registration.metric", Value::Text(metric.into()));
        let what = format!("seed {seed}, n = {n}");
        same_everywhere(&what, &mut cpu, &mut cuda, &problem(&rows), &params);
    }
}

#[test]
fn random_cases_have_the_same_bits() {
    let most = with(preset(false), "registration.max_correspondences", Value::Int(cases::MOST as i64));
    let Some((mut cpu, mut cuda)) = all(&most) else { return };
    let mut gpus = gpus(cases::MOST).expect("there is a device");
    let mut found = [0; 4];
    cases::for_each_case(|case| {
        for search in Search::WORDS {
            let params = with(case.params.clone(), "registration.search", Value::Text((*search).into()));
            let what = format!("{}, {search}", case.what);
            if case.problem.len() >= 3 {
                let answer = compare(&what, &mut gpus, &case.problem, &Settings::of(&params));
                found[0] += usize::from(!answer.triples.is_empty());
                found[1] += usize::from(answer.truncation != Truncation::default());
            }
            same_everywhere(&what, &mut cpu, &mut cuda, &case.problem, &params);
            let result = cpu.register(&case.problem, &params);
            found[2] += usize::from(result.status == Status::Ok);
            found[3] += usize::from(result.runner_up.is_some());
        }
    });
    println!("{} cases: {found:?} with triples, truncated, ok, with a runner-up", cases::count());
    assert!(found.iter().all(|n| *n > 0), "the test compares nothing");
}

#[test]
fn real_pairs_have_the_same_bits() {
    let Some((mut cpu, mut cuda)) = all(&preset(false)) else { return };
    let Some(pairs) = real_pairs() else { return };
    let mut gpus = gpus(16_384).expect("there is a device");
    let mut truncated = 0;
    for pair in &pairs {
        let (mut params, problem) = (preset(pair.outdoor), problem(&pair.rows));
        for bounds in [None, Some((512, 32)), Some((16, 2))] {
            if let Some((capacity, pool)) = bounds {
                let r = &mut params.registration;
                (r.search, r.bounded_row_capacity, r.bounded_pool_size) = (Search::Bounded, capacity, pool);
            }
            let what = format!("{}, {bounds:?}", pair.name);
            let answer = compare(&what, &mut gpus, &problem, &Settings::of(&params));
            truncated += usize::from(answer.truncation != Truncation::default());
            same_everywhere(&what, &mut cpu, &mut cuda, &problem, &params);
        }
    }
    assert!(truncated >= pairs.len(), "the bounded search cuts nothing");
    println!("{} real pairs", pairs.len());
}

#[test]
fn the_same_bits_every_time() {
    let Some((_, cuda)) = all(&preset(false)) else { return };
    let mut rng = random(13);
    let pose = random_pose(&mut rng, 10.0);
    let rows = planted(&mut rng, 3000, 300, ROOM, 0.02, &pose);
    let other = planted(&mut rng, 700, 100, ROOM, 0.02, &pose);
    let params = preset(false);
    for mut cuda in cuda {
        let first = whole(&mut cuda, &problem(&rows), &params);
        for _ in 0..1000 {
            // Another problem between, so that nothing is left over from the same one.
            whole(&mut cuda, &problem(&other), &params);
            assert_eq!(whole(&mut cuda, &problem(&rows), &params), first);
        }
    }
}

#[test]
fn a_batch_gives_what_one_after_another_gives() {
    let Some((_, cuda)) = all(&preset(false)) else { return };
    let mut rng = random(15);
    let params = preset(false);
    let problems: Vec<_> = (0..40)
        .map(|i| {
            let pose = random_pose(&mut rng, 10.0);
            let n = [0, 2, 40, 300, 900, 2500][i % 6];
            problem(&planted(&mut rng, n, n / 8, ROOM, 0.02, &pose))
        })
        .collect();
    for mut cuda in cuda {
        for search in Search::WORDS {
            let params = with(params.clone(), "registration.search", Value::Text((*search).into()));
            let one_by_one: Vec<_> = problems.iter().map(|p| whole(&mut cuda, p, &params)).collect();
            for _ in 0..3 {
                let batch = cuda.register_batch(&problems, &params);
                assert_eq!(batch.len(), problems.len());
                for (got, expected) in batch.iter().zip(&one_by_one) {
                    assert_eq!(&every_digit(got), expected);
                }
            }
        }
        assert!(cuda.register_batch(&[], &params).is_empty());
    }
}

#[test]
fn a_cuda_backend_that_cannot_be_had_is_an_error_and_under_auto_the_cpu() {
    if device::probe().first_device().is_some() {
        println!("skipped: there is a CUDA device");
        return;
    }
    let kind = |kind: &str| with(preset(false), "backend.kind", Value::Text(kind.into()));
    let error = Registrar::new(&kind("cuda")).err().expect("no device, no backend");
    assert!(error.to_string().starts_with("backend.kind is cuda, but "), "{error}");
    let auto = Registrar::new(&kind("auto")).expect("the CPU");
    assert_eq!(auto.backend(), "cpu");
    assert!(auto.why().len() > 10, "{}", auto.why());
}
