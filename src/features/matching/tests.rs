//! The CPU against a search pair by pair; faults; rows of a problem. (The GPU: tests/parity_features.rs, and the
//! kernels without one below.)

use super::*;
use crate::geometry::Point;
use crate::params::{BackendChoice, OnFault};
use rand::{Rng, SeedableRng};

type Random = rand_pcg::Pcg64Mcg;

/// The nearest of `among` and both smallest squared distances, pair by pair.
fn nearest(of: &Descriptor, among: &[Descriptor]) -> Option<(u32, u32, u32)> {
    let square = |(a, b): (&u8, &u8)| u32::from(a.abs_diff(*b)).pow(2);
    let distances = among.iter().map(|other| of.iter().zip(other).map(square).sum::<u32>());
    let mut all: Vec<(u32, u32)> = distances.zip(0..).collect();
    all.sort_unstable();
    let second = all.get(1).map_or(u32::MAX, |(distance, _)| *distance);
    all.first().map(|(distance, index)| (*index, *distance, second))
}

fn expected(source: &[Descriptor], target: &[Descriptor], ratio: f64) -> Vec<Match> {
    let mut found = Vec::new();
    for (i, descriptor) in source.iter().enumerate() {
        let Some((j, distance, second)) = nearest(descriptor, target) else { continue };
        let (back, ..) = nearest(&target[j as usize], source).expect("a source");
        if back as usize == i && (ratio >= 1.0 || f64::from(distance) < ratio.powi(2) * f64::from(second)) {
            found.push(Match { source: i as u32, target: j, distance, second });
        }
    }
    found.sort_by(order);
    found
}

/// What descriptors are made of: anything, few values (ties), the extremes, all the same.
fn some(rng: &mut Random, n: usize, kind: usize) -> Vec<Descriptor> {
    let mut bin = |kind: usize| match kind {
        0 => rng.random_range(0..=255),
        1 => rng.random_range(0..2),
        2 => 255 * rng.random_range(0..2u8),
        _ => 7,
    };
    (0..n).map(|_| std::array::from_fn(|_| bin(kind))).collect()
}

fn params(threads: i64) -> Params {
    let mut params = Params::default();
    params.backend.kind = BackendChoice::Cpu;
    params.backend.threads = threads;
    params
}

#[test]
fn the_matches_are_those_of_a_search_pair_by_pair_with_any_number_of_threads() {
    let mut rng = Random::seed_from_u64(1);
    let sizes = [(0, 5), (5, 0), (1, 1), (3, 1), (1, 9), (37, 511), (60, 513), (1030, 40), (1024, 8)];
    let mut matchers = [1, 3].map(|threads| Matcher::new(&params(threads)).expect("the CPU"));
    let (mut total, mut out) = (0, Vec::new());
    for ((n, m), kind) in sizes.into_iter().flat_map(|size| (0..4).map(move |kind| (size, kind))) {
        let source = some(&mut rng, n, kind);
        let sets = [some(&mut rng, m, kind), some(&mut rng, 20, kind), Vec::new()];
        for ratio in [0.9, 1.0] {
            let [a, b] = [1, 0].map(|k: usize| expected(&source, &sets[k], ratio));
            let expected = [a, b.clone(), Vec::new(), Vec::new(), b];
            for matcher in &mut matchers {
                matcher.set_targets(&sets.each_ref().map(Vec::as_slice)).expect("no GPU");
                matcher.matches(&source, &[1, 0, 2, 7, 0], ratio, &mut out).expect("no GPU");
                assert_eq!(out, expected, "{n} x {m}, kind {kind}");
                total += out.iter().map(Vec::len).sum::<usize>();
            }
        }
    }
    assert!(total > 1000, "{total}");
}

#[test]
fn the_portable_search_finds_what_that_of_the_processor_finds() {
    let mut rng = Random::seed_from_u64(2);
    for kind in 0..4 {
        let (source, target) = (some(&mut rng, 300, kind), some(&mut rng, 77, kind));
        let [a, b] = cpu::both_ways(&source, &target);
        assert_eq!(a, b);
    }
}

#[test]
fn the_order_is_total() {
    let mut all = Vec::new();
    for (distance, second) in [(0, 0), (0, 4), (2, 4), (3, 6), (5, 5), (0, u32::MAX), (9, u32::MAX)] {
        all.extend((0..2).map(|source| Match { source, target: 1 - source, distance, second }));
    }
    for (a, b, c) in
        all.iter().flat_map(|a| all.iter().flat_map(|b| all.iter().map(|c| (*a, *b, *c))).collect::<Vec<_>>())
    {
        assert_eq!(order(&a, &b), order(&b, &a).reverse());
        assert_eq!(order(&a, &b) == Ordering::Equal, a == b);
        assert!(
            order(&a, &b) != Ordering::Less
                || order(&b, &c) != Ordering::Less
                || order(&a, &c) == Ordering::Less
        );
    }
}

#[test]
fn a_problem_gets_the_first_matches_with_weight_one() {
    let at = |n: usize| Features {
        points: (0..n).map(|i| Point::new(i as f64, n as f64, 0.0)).collect(),
        descriptors: vec![[0; 36]; n],
    };
    let (source, target) = (at(3), at(4));
    let pair = |source, target| Match { source, target, distance: 1, second: 2 };
    let mut problem = Problem::with_capacity(4);
    correspondences(&[pair(2, 0), pair(0, 3), pair(9, 1), pair(1, 2)], &source, &target, 3, &mut problem);
    let rows: Vec<_> = problem.rows().map(|row| (row.source.x, row.target.x, row.weight)).collect();
    assert_eq!(rows, [(2.0, 0.0, 1.0), (0.0, 3.0, 1.0)]);
}

#[test]
fn after_a_fault_the_cpu_has_the_targets() {
    let absent = || Err(GpuError::Absent("there is no CUDA device".to_owned()));
    let source = some(&mut Random::seed_from_u64(3), 9, 0);
    for on_fault in [OnFault::Cpu, OnFault::Exit] {
        let mut params = params(1);
        params.backend.on_fault = on_fault;
        let made = Matcher::new(&params).expect("the CPU");
        let mut matcher = Matcher { chosen: Chosen::Gone, remake: absent, ..made };
        let mut out = Vec::new();
        matcher.targets.take(&[&source]);
        assert!(matcher.matches(&source, &[0], 1.0, &mut out).is_err());
        assert_eq!((out.len(), out[0].len(), matcher.faults()), (1, 0, 1));
        let good = matcher.matches(&source, &[0], 1.0, &mut out).is_ok();
        let (backend, lost) = (matcher.backend(), matcher.lost().is_some());
        match on_fault {
            OnFault::Cpu => assert_eq!((good, out[0].len(), backend, lost), (true, 9, "cpu", false)),
            OnFault::Exit => assert_eq!((good, out[0].len(), backend, lost), (false, 0, "cuda", true)),
        }
    }
}
