//! Matching of descriptors on the GPU against the CPU: the same matches in the same order. Skipped where there
//! is no CUDA device.
#![cfg(feature = "cuda")]

mod common;

use common::cases;
use common::problems::{random, with, Random};
use flashreg::features::matching::Matcher;
use flashreg::features::{Descriptor, Match};
use flashreg::gpu::device;
use flashreg::params::{Params, Value};
use rand::Rng;
use std::time::Instant;

/// The CPU and CUDA, if there is a device.
fn both() -> Option<[Matcher; 2]> {
    if device::probe().first_device().is_none() {
        println!("skipped: no CUDA device");
        return None;
    }
    let made = ["cpu", "cuda"].map(|kind| {
        let params = with(Params::default(), "backend.kind", Value::Text(kind.into()));
        let matcher = Matcher::new(&params).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(matcher.backend(), kind);
        matcher
    });
    println!("{}", made[1].why());
    Some(made)
}

/// What descriptors are made of: anything, few values (ties), the extremes, all the same, some of a few.
fn some(rng: &mut Random, n: usize) -> Vec<Descriptor> {
    let kind = rng.random_range(0..5);
    let mut one = |kind: usize| -> Descriptor {
        std::array::from_fn(|_| match kind {
            0 => rng.random_range(0..=255),
            1 => rng.random_range(0..2),
            2 => 255 * rng.random_range(0..2u8),
            _ => 7,
        })
    };
    let few: [Descriptor; 9] = std::array::from_fn(|_| one(0));
    let mut all: Vec<_> = (0..n).map(|_| one(kind % 4)).collect();
    if kind == 4 {
        all.iter_mut().for_each(|d| *d = few[rng.random_range(0..few.len())]);
    }
    all
}

/// Sizes from nothing to a few blocks or chunks, most at their borders.
fn size(rng: &mut Random, border: usize) -> usize {
    match rng.random_range(0..4) {
        0 => rng.random_range(0..4),
        1 => rng.random_range(0..border),
        _ => {
            (border * rng.random_range(1..4usize)).saturating_add_signed(rng.random_range(-1i32..2) as isize)
        }
    }
}

fn same(matchers: &mut [Matcher; 2], source: &[Descriptor], chosen: &[usize], ratio: f64) -> usize {
    let found = matchers.each_mut().map(|matcher| {
        let mut out: Vec<Vec<Match>> = vec![vec![Match { source: 1, target: 1, distance: 1, second: 1 }]; 2];
        matcher.matches(source, chosen, ratio, &mut out).expect("no fault");
        out
    });
    assert_eq!(found[0].len(), chosen.len());
    assert!(found[0] == found[1], "{} sources, sets {chosen:?}", source.len());
    found[0].iter().map(Vec::len).sum()
}

#[test]
fn random_cases_have_the_same_matches() {
    let Some(mut matchers) = both() else { return };
    let (mut rng, mut total) = (random(1), 0);
    let n = cases::count();
    for _ in 0..n {
        let sets: Vec<_> = (0..rng.random_range(0..6)).map(|_| size(&mut rng, 512)).collect();
        let sets: Vec<_> = sets.into_iter().map(|n| some(&mut rng, n)).collect();
        for matcher in &mut matchers {
            matcher.set_targets(&sets.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("no fault");
        }
        for _ in 0..2 {
            let n = size(&mut rng, 1024);
            let source = some(&mut rng, n);
            let chosen: Vec<_> =
                (0..rng.random_range(0..8)).map(|_| rng.random_range(0..sets.len() + 1)).collect();
            let ratio = rng.random_range(0.5..1.2);
            total += same(&mut matchers, &source, &chosen, ratio);
        }
    }
    println!("{n} cases: {total} matches");
    assert!(total as u64 > 10 * n);
}

/// FPFH-like descriptors: a few big bins, and near copies of the targets among the sources.
fn alike(rng: &mut Random, n: usize) -> Vec<Descriptor> {
    let bin = |rng: &mut Random| (255.0 * rng.random_range(0f64..1.0).powi(3)) as u8;
    (0..n).map(|_| std::array::from_fn(|k| if k < 33 { bin(rng) } else { 0 })).collect()
}

#[test]
fn how_long_matching_takes() {
    let Some(mut matchers) = both() else { return };
    let mut rng = random(2);
    let sets: Vec<_> = (0..25).map(|_| alike(&mut rng, 10_000)).collect();
    let mut source: Vec<Descriptor> = sets.iter().flat_map(|set| set.iter().take(240)).copied().collect();
    source.iter_mut().flatten().for_each(|bin| *bin = bin.saturating_add(rng.random_range(0..9)));
    for matcher in &mut matchers {
        matcher.set_targets(&sets.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("no fault");
    }
    for count in [1, 25] {
        let chosen: Vec<_> = (0..count).collect();
        let matches = same(&mut matchers, &source, &chosen, 0.9);
        for matcher in &mut matchers {
            let (mut out, mut times) = (Vec::new(), Vec::new());
            for _ in 0..if matcher.backend() == "cuda" { 100 } else { 5 } {
                let start = Instant::now();
                matcher.matches(&source, &chosen, 0.9, &mut out).expect("no fault");
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            times.sort_by(f64::total_cmp);
            let (n, ms) = (source.len(), times[times.len() / 2]);
            let rate = (n * 10_000 * count) as f64 / ms * 1e-6;
            let backend = matcher.backend();
            println!(
                "{backend}: {n} with {count} x 10000: {ms:.3} ms, {rate:.2} G pairs/s, {matches} matches"
            );
        }
    }
    if let Some(memory) = matchers[1].memory() {
        println!(
            "{:.1} MB on the device, {:.1} MB pinned",
            memory.device as f64 * 1e-6,
            memory.pinned as f64 * 1e-6
        );
    }
}
