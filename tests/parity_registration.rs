//! The search against a plain dense restatement of the formulas: the same edges, scores, pivots
//! and triples, exactly, whatever the number of threads.

mod common;

use common::cases::{self, all_magnitudes, for_each_case, Case};
use common::problems::*;
use flashreg::geometry::Vector;
use flashreg::params::{Params, Search, Value};
use flashreg::registration::bounded::Bounded;
use flashreg::registration::cliques::{self, Extent, Slots, Triple};
use flashreg::registration::fog::Graph;
use flashreg::registration::lanes::{Deadline, Lanes};
use flashreg::registration::layout::Layout;
use flashreg::registration::pivots::{self, Lane, Pivot, View};
use flashreg::registration::{Correspondence, Problem, Registrar, Truncation};
use flashreg::status::Status;
use rand::Rng;
use std::time::Instant;

/// What both sides produce.
#[derive(Debug, PartialEq)]
struct Answer {
    edges: Vec<Vec<bool>>,
    /// Every edge of the search with a positive score.
    scores: Vec<(usize, usize, u32)>,
    pivots: Vec<(usize, usize, u32)>,
    triples: Vec<([usize; 3], u32)>,
    truncation: Truncation,
}

struct Settings {
    tau: f32,
    r: f32,
    k: usize,
    t: usize,
    /// L and m of the bounded search.
    bounds: Option<(usize, usize)>,
}

/// Who is joined with whom, by the formula.
fn joined(layout: &Layout, rows: &[Correspondence], s: &Settings) -> Vec<Vec<bool>> {
    let n = layout.count();
    let length = |points: &[&[f32]; 3], i: usize, j: usize| {
        let d = [0, 1, 2].map(|k| points[k][i] - points[k][j]);
        ((d[0] * d[0] + d[1] * d[1]) + d[2] * d[2]).sqrt()
    };
    let mut m = vec![vec![false; n]; n];
    for i in 0..n {
        for j in 0..n {
            let (ls, lt) = (length(&layout.source(), i, j), length(&layout.target(), i, j));
            m[i][j] = (ls - lt).abs() < s.tau && ls + lt > s.r;
            if layout.up.is_some() {
                let h = |k: usize| layout.height[k][i] - layout.height[k][j];
                m[i][j] &= (h(0) - h(1)).abs() < s.tau;
            }
            let shares = |id: &dyn Fn(&Correspondence) -> Option<u32>| {
                id(&rows[i]).is_some() && id(&rows[i]) == id(&rows[j])
            };
            m[i][j] &= !shares(&|r| r.source_id) && !shares(&|r| r.target_id);
        }
    }
    m
}

/// The formulas, nothing clever: dense matrices, one loop after another.
fn dense(m: Vec<Vec<bool>>, s: &Settings) -> Answer {
    let n = m.len();
    let (capacity, pool) = s.bounds.unwrap_or((usize::MAX, usize::MAX));
    let neighbours: Vec<Vec<usize>> = (0..n).map(|i| (0..n).filter(|j| m[i][*j]).collect()).collect();
    let mut truncation = Truncation::default();
    // score[i][j], j > i: voters are the first L neighbours of i (all of them if exact).
    let mut score = vec![vec![0u32; n]; n];
    for i in 0..n {
        let over = neighbours[i].len().saturating_sub(capacity);
        truncation.rows += u64::from(over > 0);
        truncation.voters += over as u64;
        let voters = &neighbours[i][..neighbours[i].len() - over];
        let mut kept = 0;
        for j in neighbours[i].iter().copied().filter(|j| *j > i) {
            // m is symmetric.
            let votes = voters.iter().filter(|k| m[j][**k]).count() as u32;
            if votes > 0 && kept < capacity {
                score[i][j] = votes;
                kept += 1;
            } else if votes > 0 {
                truncation.edges += 1;
            }
        }
    }
    let (mut scores, mut pivots) = (Vec::new(), Vec::new());
    for (i, row) in score.iter().enumerate() {
        let mut positive: Vec<_> = (i + 1..n).filter(|j| row[*j] > 0).map(|j| (i, j, row[j])).collect();
        scores.extend_from_slice(&positive);
        positive.sort_by_key(|(_, j, s)| (std::cmp::Reverse(*s), *j));
        truncation.pool += positive.len().saturating_sub(pool) as u64;
        pivots.extend(positive.into_iter().take(pool));
    }
    if s.bounds.is_none() {
        truncation = Truncation::default();
    }
    pivots.sort_by_key(|(i, j, s)| (std::cmp::Reverse(*s), *i, *j));
    pivots.truncate(s.k);
    let mut triples = Vec::new();
    for (u, v, suv) in &pivots {
        let mut found: Vec<_> = (v + 1..n)
            .filter(|w| score[*u][*w] > 0 && score[*v][*w] > 0)
            .map(|w| ([*u, *v, w], suv + score[*u][w] + score[*v][w]))
            .collect();
        found.sort_by_key(|(corners, s)| (std::cmp::Reverse(*s), corners[2]));
        triples.extend(found.into_iter().take(s.t));
    }
    Answer { edges: m, scores, pivots, triples, truncation }
}

fn fast(layout: &Layout, s: &Settings, threads: usize) -> Answer {
    let mut lanes = Lanes::new(threads, Lane::default).expect("threads");
    let deadline = Deadline::after_ms(Instant::now(), 0.0);
    let n = layout.count();
    // Small on purpose: the graph must grow by itself.
    let mut fog = Graph::with_capacity(3);
    let mut bounded = Bounded::with_capacity(3);
    let (mut order, mut kept, mut slots, mut triples) = (vec![], vec![], Slots::default(), vec![]);
    fog.build(layout, s.tau, s.r, &mut lanes, deadline).expect("no deadline");
    let mut truncation = Truncation::default();
    let mut view = View { voters: &fog, fog: &fog, edges: &fog };
    match s.bounds {
        None => pivots::select(view, s.k, &mut lanes, &mut order, deadline).expect("no deadline"),
        Some((capacity, pool)) => {
            truncation = bounded.build(&fog, capacity, &mut lanes, deadline).expect("no deadline");
            view = View { voters: &bounded.voters, fog: &fog, edges: &bounded.edges };
            truncation.pool =
                pivots::select_bounded(view, s.k, pool, &mut lanes, deadline).expect("no deadline");
        }
    }
    pivots::merge(&mut lanes, s.k, &mut kept);
    let extent = Extent { pivots: s.k, per_pivot: s.t, complete: s.bounds.is_none() };
    cliques::search(view, &kept, extent, &mut lanes, &mut slots, &mut triples, deadline)
        .expect("no deadline");
    let scored = |i| view.edges.neighbours_above(i).map(move |j| (i, j, view.score(i, j)));
    Answer {
        scores: (0..n).flat_map(scored).filter(|(_, _, score)| *score > 0).collect(),
        edges: (0..n).map(|i| (0..n).map(|j| fog.has_edge(i, j)).collect()).collect(),
        pivots: kept.iter().map(|p: &Pivot| (p.u(), p.v(), p.score())).collect(),
        triples: triples.iter().map(|t: &Triple| (t.corners.map(|c| c as usize), t.score)).collect(),
        truncation,
    }
}

fn layout_of(problem: &Problem) -> Layout {
    let mut layout = Layout::with_capacity(problem.len());
    layout.load(problem);
    layout
}

fn compare(what: &str, rows: &[Correspondence], up: Option<[Vector; 2]>, s: &Settings) -> Answer {
    let mut problem = problem(rows);
    if let Some([source, target]) = up {
        assert!(problem.set_up(source, target));
    }
    let layout = layout_of(&problem);
    let expected = dense(joined(&layout, rows, s), s);
    compare_with(what, &layout, &expected, s, &[1, 2, 5]);
    expected
}

fn compare_with(what: &str, layout: &Layout, expected: &Answer, s: &Settings, threads: &[usize]) {
    for threads in threads {
        let got = fast(layout, s, *threads);
        assert!(got.edges == expected.edges, "{what}: edges differ with {threads} threads");
        assert!(got.scores == expected.scores, "{what}: scores differ with {threads} threads");
        assert_eq!(got.pivots, expected.pivots, "{what}: pivots, {threads} threads");
        assert_eq!(got.triples, expected.triples, "{what}: triples, {threads} threads");
        assert_eq!(got.truncation, expected.truncation, "{what}: truncation, {threads} threads");
    }
}

const INDOOR: Settings = Settings { tau: 0.012, r: 0.15, k: 200, t: 2, bounds: None };

#[test]
fn sparse_graphs_of_every_size_around_a_word() {
    for n in [3, 4, 31, 63, 64, 65, 127, 128, 129, 300, 700] {
        let mut rng = random(n as u64);
        let pose = random_pose(&mut rng, 3.0);
        let rows = planted(&mut rng, n, n / 4 + 2, ROOM, 0.004, &pose);
        let answer = compare(&format!("n = {n}"), &rows, None, &INDOOR);
        assert!(n < 31 || !answer.triples.is_empty(), "n = {n}: the test compares nothing");
    }
}

#[test]
fn ties_are_broken_by_index_in_a_complete_graph() {
    // Every edge has the same score, every triple too.
    let mut rng = random(7);
    let pose = random_pose(&mut rng, 3.0);
    let rows = planted(&mut rng, 200, 200, [50.0, 50.0, 50.0], 0.0, &pose);
    let settings = Settings { tau: 1.0, r: 0.0, k: 150, t: 3, bounds: None };
    let answer = compare("complete", &rows, None, &settings);
    assert_eq!(answer.edges.iter().flatten().filter(|e| **e).count(), 200 * 199, "not complete");
    assert_eq!(answer.pivots.first(), Some(&(0, 1, 198)));
    assert_eq!(answer.triples.first(), Some(&([0, 1, 2], 3 * 198)));
}

#[test]
fn dense_graphs_and_more_pivots_than_edges() {
    let mut rng = random(8);
    for (tau, k) in [(0.3, 500), (1.0, 100), (0.012, 100_000)] {
        let pose = random_pose(&mut rng, 3.0);
        let rows = planted(&mut rng, 260, 60, ROOM, 0.01, &pose);
        compare(&format!("tau = {tau}"), &rows, None, &Settings { tau, k, t: 4, ..INDOOR });
    }
}

#[test]
fn duplicates_and_rows_at_the_thresholds() {
    // On a grid of 1/8 m every length is rounded alike and many equal tau and r exactly.
    let mut rng = random(9);
    let mut grid = || Vector::from_fn(|_, _| f64::from(rng.random_range(0..5)) * 0.125);
    let rows: Vec<_> = (0..220).map(|_| Correspondence::new(grid().into(), grid().into())).collect();
    for (tau, r) in [(0.125, 0.25), (0.25, 0.0), (0.125, 0.125)] {
        compare("grid", &rows, None, &Settings { tau, r, k: 300, t: 3, bounds: None });
    }
}

#[test]
fn identities_and_a_vertical_remove_edges() {
    let mut rng = random(10);
    let yaw = nalgebra::UnitQuaternion::from_scaled_axis(Vector::z() * 0.7);
    let pose = flashreg::geometry::Rigid::from_parts(Vector::new(1.0, 2.0, 0.5).into(), yaw);
    let mut rows = planted(&mut rng, 300, 90, ROOM, 0.004, &pose);
    let up = [Vector::z(), Vector::z()];
    let free = compare("free", &rows, None, &INDOOR);
    let level = compare("level", &rows, Some(up), &INDOOR);
    for row in &mut rows {
        row.target_id = Some(rng.random_range(0..60));
        row.source_id = rng.random_bool(0.5).then(|| rng.random_range(0..60));
    }
    let exclusive = compare("exclusive", &rows, Some(up), &INDOOR);
    let count = |a: &Answer| a.edges.iter().flatten().filter(|e| **e).count();
    assert!(count(&free) > count(&level) && count(&level) > count(&exclusive));
}

#[test]
fn the_bounded_search_truncates_as_the_paper_says_and_counts_it() {
    let mut rng = random(11);
    let pose = random_pose(&mut rng, 3.0);
    let rows = planted(&mut rng, 400, 120, ROOM, 0.004, &pose);
    let mut total = Vec::new();
    for bounds in [(16, 4), (40, 2), (64, 32), (1, 1)] {
        let answer =
            compare(&format!("L, m = {bounds:?}"), &rows, None, &Settings { bounds: Some(bounds), ..INDOOR });
        total.push(answer.truncation);
    }
    let counts: [fn(&Truncation) -> u64; 4] = [|t| t.rows, |t| t.voters, |t| t.edges, |t| t.pool];
    for count in counts {
        assert!(total.iter().any(|t| count(t) > 0), "a count that stays zero is not tested");
    }
    // With room for everything it is the exact search.
    let exact = compare("exact", &rows, None, &INDOOR);
    let roomy = compare("roomy", &rows, None, &Settings { bounds: Some((4096, 4096)), ..INDOOR });
    assert_eq!(roomy, exact);
}

#[test]
fn lengths_of_all_magnitudes_join_as_the_formula_says() {
    // Clusters from millimetres to thousands of kilometres: the shortcut without square roots
    // must lose no edge.
    let mut rng = random(12);
    for tau in [1e-4f32, 0.012, 0.1, 5.0] {
        let rows = all_magnitudes(&mut rng, 320, f64::from(tau));
        let answer = compare(
            &format!("tau = {tau}"),
            &rows,
            None,
            &Settings { tau, r: 0.0, k: 50, t: 2, bounds: None },
        );
        assert!(answer.edges.iter().flatten().any(|e| *e));
    }
}

#[test]
fn real_graphs() {
    let Some(pairs) = real_pairs() else { return };
    let mut compared = 0;
    for pair in pairs.iter().filter(|p| p.rows.len() < 2800) {
        let lengths = preset(pair.outdoor).registration;
        let settings =
            Settings { tau: lengths.tau as f32, r: lengths.min_length as f32, k: 1000, t: 2, bounds: None };
        compare(&pair.name, &pair.rows, None, &settings);
        compared += 1;
    }
    assert!(compared >= 3, "only {compared} pairs");
}

#[test]
fn random_problems_as_the_formulas_say() {
    let (mut with_triples, mut truncated) = (0, 0);
    for_each_case(|case| {
        let r = &case.params.registration;
        let exact = Settings {
            tau: r.tau as f32,
            r: r.min_length as f32,
            k: r.pivots as usize,
            t: r.triples_per_pivot as usize,
            bounds: None,
        };
        let bounds = Some((r.bounded_row_capacity as usize, r.bounded_pool_size as usize));
        let layout = layout_of(&case.problem);
        let edges = joined(&layout, &case.problem.rows().collect::<Vec<_>>(), &exact);
        for s in [Settings { bounds, ..exact }, exact] {
            let answer = dense(edges.clone(), &s);
            compare_with(&format!("{}, bounds {:?}", case.what, s.bounds), &layout, &answer, &s, &[1, 3]);
            with_triples += u64::from(!answer.triples.is_empty());
            truncated += u64::from(answer.truncation != Truncation::default());
        }
    });
    println!(
        "{} cases, exact and bounded: {with_triples} with triples, {truncated} truncated",
        cases::count()
    );
    assert!(cases::count() < 100 || with_triples.min(2 * truncated) > cases::count() / 2);
}

#[test]
fn random_registrations_are_finite_and_the_same_every_time() {
    let start = |threads| with(cases::random_case(1).params, "backend.threads", Value::Int(threads));
    let [mut one, mut three] = [1, 3].map(|threads| Registrar::new(&start(threads)).expect("the CPU"));
    let mut ok = 0;
    for_each_case(|case| {
        let Case { what, problem, params } = case;
        for search in Search::WORDS {
            let params = with(params.clone(), "registration.search", Value::Text((*search).into()));
            let result = one.register(problem, &params);
            ok += u64::from(result.status == Status::Ok);
            assert_eq!(result.inlier_mask.len(), problem.len(), "{what}");
            assert_eq!(result.inlier_mask.iter().filter(|i| **i).count(), result.inliers, "{what}");
            let first = every_digit(result);
            let mut words = first.split(|c: char| !c.is_alphanumeric());
            assert!(!words.any(|word| ["NaN", "inf"].contains(&word)), "{what}, {search}: {first}");
            assert_eq!(every_digit(one.register(problem, &params)), first, "{what}, {search}: again");
            assert_eq!(every_digit(three.register(problem, &params)), first, "{what}, {search}: 3 threads");
        }
    });
    println!("{} cases, exact and bounded: {ok} ok", cases::count());
    assert!(cases::count() < 100 || ok > cases::count() / 10);
}

#[test]
fn the_result_has_the_same_bits_whatever_the_thread_count() {
    let mut rng = random(13);
    let pose = random_pose(&mut rng, 10.0);
    let rows = planted(&mut rng, 1500, 200, ROOM, 0.02, &pose);
    for search in [Search::Exact, Search::Bounded] {
        let mut answers = Vec::new();
        for threads in [1, 2, 3, 8] {
            let mut params: Params =
                with(preset(false), "registration.search", Value::Text(search.word().into()));
            params = with(params, "backend.threads", Value::Int(threads));
            let mut registrar = Registrar::new(&params).expect("the CPU");
            for _ in 0..2 {
                let r = registrar.register(&problem(&rows), &params);
                assert_eq!(r.status, Status::Ok, "{}", r.reason);
                answers.push(every_digit(r));
            }
        }
        assert!(answers.iter().all(|a| *a == answers[0]));
    }
}
