//! Tracks on the GPU against the CPU: the same roots, the same statuses. Skipped where there is no CUDA
//! device.
#![cfg(feature = "cuda")]

use flashreg::gpu::device;
use flashreg::homotopy::check::is_root;
use flashreg::homotopy::problems::{find, Problem};
use flashreg::homotopy::recall::compare;
use flashreg::homotopy::{Arithmetic, Backend, Distinct, Settings, Solution, Solver};
use flashreg::status::TrackStatus;
use nalgebra::Complex;
use std::time::{Duration, Instant};

type Numbers = Vec<Complex<f64>>;

fn has_gpu() -> bool {
    let there = device::probe().first_device().is_some();
    if !there {
        println!("skipped: no CUDA device");
    }
    there
}

/// A solver on the GPU, one on the CPU.
fn solvers(problem: &Problem, settings: Settings) -> [Solver; 2] {
    let (system, start) = problem.prepared(1).expect("a start set");
    let cpu = Solver::new(system, start, settings);
    [cpu.clone().on(Backend::Cuda, Arithmetic::Double, 1).expect("it fits the GPU"), cpu]
}

fn counts(solutions: &[Solution]) -> Vec<usize> {
    let count = |status: &TrackStatus| solutions.iter().map(|s| s.count(*status)).sum();
    TrackStatus::ALL.iter().map(count).collect()
}

#[test]
fn gpu_and_cpu_find_the_same_roots() {
    if !has_gpu() {
        return;
    }
    let problems = [
        ("p3p", 40),
        ("five_point", 20),
        ("optimal_pnp", 10),
        ("triangulation_3", 10),
        ("homography_3pt", 20),
        ("rolling_shutter_1lin", 2),
        ("tdoa_5", 10),
        ("trifocal_focal", 1),
        ("eco12", 1),
    ];
    for (name, instances) in problems {
        let problem = find(name).expect("a problem");
        let [gpu, cpu] = solvers(&problem, Settings::default());
        let targets: Vec<Numbers> = (0..instances)
            .filter_map(|seed| match problem.instance(seed) {
                Some(instance) => Some(instance.parameters),
                None => gpu.system().values.clone(),
            })
            .collect();
        let [ours, theirs] = [gpu.solve(&targets, None), cpu.solve(&targets, None)];
        assert_eq!(ours.len(), targets.len());
        let (mut both, mut one, mut other) = (0, 0, 0);
        for (a, b) in ours.iter().zip(&theirs) {
            let shared = compare(gpu.system(), a, b);
            (both, one, other) = (both + shared.0, one + shared.1, other + shared.2);
        }
        println!(
            "{name}: {both} roots of both, {one} of the GPU alone, {other} of the CPU alone; {:?} {:?}",
            counts(&ours),
            counts(&theirs)
        );
        // Roots that are nearly multiple are taken for regular or not by rounding.
        assert!(one + other <= both / 500, "{name}: {both} shared, {one} and {other} alone");
        let apart: usize = counts(&ours).iter().zip(counts(&theirs)).map(|(a, b)| a.abs_diff(b)).sum();
        assert!(apart <= both / 250, "{name}: {:?} {:?}", counts(&ours), counts(&theirs));
    }
}

/// With few steps many tracks are given up; with long ones many jump: they are followed again, and on
/// other ways.
#[test]
fn tracks_that_are_followed_again_come_to_the_same_on_both() {
    if !has_gpu() {
        return;
    }
    let settings = Settings::default();
    for (name, settings) in [
        ("five_point", Settings { max_steps: 180, ..settings }),
        ("optimal_pnp", Settings { max_steps: 120, ..settings }),
        ("tdoa_5", Settings { tolerance: 0.1, contraction: 0.2, ..settings }),
        ("triangulation_3", Settings { tolerance: 0.1, contraction: 0.2, ..settings }),
    ] {
        let problem = find(name).expect("a problem");
        let [gpu, cpu] = solvers(&problem, settings);
        let targets: Vec<Numbers> =
            (0..60).map(|seed| problem.instance(seed).expect("an instance").parameters).collect();
        let [ours, theirs] = [gpu.solve(&targets, None), cpu.solve(&targets, None)];
        let [a, b] = [counts(&ours), counts(&theirs)];
        println!("{name}: {a:?} {b:?}");
        let tracks: usize = a.iter().sum();
        assert_eq!(tracks, b.iter().sum::<usize>());
        // Where a track jumps to is decided by rounding.
        let apart: usize = a.iter().zip(&b).map(|(a, b)| a.abs_diff(*b)).sum();
        assert!(apart <= tracks / 50, "{name}: {a:?} {b:?}");
        for (solution, target) in ours.iter().zip(&targets) {
            let mut distinct = Distinct::new(gpu.system());
            assert!(solution.found().all(|r| distinct.insert(r.point)), "{name}: twice the same");
            assert!(solution.found().all(|r| is_root(gpu.system(), r.point, target)), "{name}");
        }
    }
}

#[test]
fn a_batch_gives_what_its_instances_give_alone_in_their_order() {
    if !has_gpu() {
        return;
    }
    let problem = find("five_point").expect("a problem");
    let [gpu, _] = solvers(&problem, Settings::default());
    let mut targets: Vec<Numbers> =
        (0..300).map(|seed| problem.instance(seed).expect("an instance").parameters).collect();
    targets[4][7] = Complex::new(f64::NAN, 0.0);
    let together = gpu.solve(&targets, None);
    assert_eq!(together[4].count(TrackStatus::Invalid), 10);
    for i in [0, 1, 150, 299] {
        assert_eq!(gpu.solve(&targets[i..=i], None)[0], together[i], "instance {i}");
    }
}

#[test]
fn a_time_budget_is_kept() {
    if !has_gpu() {
        return;
    }
    let problem = find("trifocal_focal").expect("a problem");
    let [gpu, _] = solvers(&problem, Settings::default());
    let targets: Vec<Numbers> =
        (0..100).map(|seed| problem.instance(seed).expect("an instance").parameters).collect();
    let begin = Instant::now();
    let solutions = gpu.solve(&targets, Some(Instant::now() + Duration::from_millis(3)));
    let took = begin.elapsed();
    assert!(solutions.iter().map(|s| s.count(TrackStatus::Budget)).sum::<usize>() > 0);
    assert!(took < Duration::from_secs(2), "{took:?}");
}
