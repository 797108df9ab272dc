//! Estimations on the GPU against the CPU: every digit of the result is the same. Skipped where there is no CUDA
//! device. (Samples, scores and what is kept of a round: src/estimation/gpu/tests.rs.)
#![cfg(feature = "cuda")]

mod common;

use common::cases;
use common::problems::*;
use flashreg::estimation::{
    AbsoluteProblem, AbsoluteRow, Estimation, Estimator, RelativeProblem, RelativeRow, Sight, StageTimes,
};
use flashreg::geometry::{Point, Rigid, Vector};
use flashreg::gpu::device;
use flashreg::params::{Params, Value};
use flashreg::status::Status;
use nalgebra::UnitQuaternion;
use rand::Rng;
use std::time::Instant;

const MOST: usize = 4096;
/// Threshold of an inlier, rad.
const THRESHOLD: f64 = 0.005;

/// Points of the camera's frame and of another one, `Rigid` between them.
struct Scene {
    what: String,
    pose: Rigid,
    rows: Vec<(Vector, Point)>,
}

/// `n` points before the camera, so many of them right, `noise` in rad.
fn planted(rng: &mut Random, n: usize, right: f64, noise_size: f64) -> Scene {
    let turn = UnitQuaternion::from_scaled_axis(noise(rng, 1.0));
    let pose = Rigid::from_parts(noise(rng, 3.0).into(), turn);
    let seen = |rng: &mut Random| {
        let z = rng.random_range(2.0..12.0);
        Vector::new(rng.random_range(-0.8..0.8) * z, rng.random_range(-0.6..0.6) * z, z)
    };
    let rows = (0..n).map(|_| {
        let (first, other) = (seen(rng), seen(rng));
        let target = pose * Point::from(if rng.random_bool(right) { first } else { other });
        (first + noise(rng, noise_size) * first.z, target)
    });
    let rows = rows.collect();
    Scene { what: format!("n = {n}, {right:.2} right"), pose, rows }
}

/// One in three is meant to break something.
fn random_scene(seed: u64) -> Scene {
    let mut rng = random(seed);
    let n = rng.random_range(3f64.ln()..(MOST as f64 + 1.0).ln()).exp() as usize;
    let (right, size) = (rng.random_range(0.0..1.0), 10f64.powf(rng.random_range(-5.0..-2.0)));
    let mut scene = planted(&mut rng, n, right, size);
    let pose = scene.pose;
    let name = match seed % 15 {
        0 => {
            let line = noise(&mut rng, 1.0);
            let at = |i: usize| Vector::new(0.0, 0.0, 4.0) + line * (i as f64 / n as f64);
            scene.rows.iter_mut().enumerate().for_each(|(i, row)| *row = (at(i), pose * Point::from(at(i))));
            "a line"
        }
        3 => {
            for row in &mut scene.rows {
                row.0 *= 5.0 / row.0.z;
                row.1 = pose * Point::from(row.0);
            }
            "a plane"
        }
        6 => {
            let few: Vec<_> = scene.rows.iter().take(n.div_ceil(8)).copied().collect();
            scene.rows.iter_mut().for_each(|row| *row = few[rng.random_range(0..few.len())]);
            "duplicates"
        }
        9 => {
            let by = noise(&mut rng, 1e6);
            scene.rows.iter_mut().for_each(|row| row.1 += by);
            "far from the origin"
        }
        12 => {
            scene.rows.iter_mut().for_each(|row| row.1 = Point::from(pose.rotation * row.0));
            "no translation"
        }
        _ => "planted",
    };
    scene.what = format!("scene {seed}, {name}, {}", scene.what);
    scene
}

impl Scene {
    fn absolute(&self, rng: &mut Random) -> AbsoluteProblem {
        let mut problem = AbsoluteProblem::with_capacity(self.rows.len());
        for (seen, point) in &self.rows {
            let Some(sight) = Sight::of_bearing(seen, THRESHOLD) else { continue };
            let id = rng.random_bool(0.1).then(|| rng.random_range(0..20));
            problem.push(AbsoluteRow { sight, point: *point, weight: rng.random_range(0.1..1.0), id });
        }
        problem
    }

    fn relative(&self, rng: &mut Random) -> RelativeProblem {
        let mut problem = RelativeProblem::with_capacity(self.rows.len());
        for (seen, point) in &self.rows {
            let sights = (Sight::of_bearing(seen, THRESHOLD), Sight::of_bearing(&point.coords, THRESHOLD));
            let (Some(sight), Some(reference)) = sights else { continue };
            problem.push(RelativeRow { sight, reference, weight: rng.random_range(0.1..1.0), id: None });
        }
        problem
    }
}

/// The CPU and CUDA, if there is a device.
fn both(params: &Params) -> Option<[Estimator; 2]> {
    if device::probe().first_device().is_none() {
        println!("skipped: no CUDA device");
        return None;
    }
    let made = ["cpu", "cuda"].map(|kind| {
        let params = with(params.clone(), "backend.kind", Value::Text(kind.into()));
        let estimator = Estimator::new(&params).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(estimator.backend(), kind);
        estimator
    });
    println!("{}", made[1].why());
    Some(made)
}

/// Every digit but the times and the name of the backend.
fn digits(result: &Estimation) -> String {
    format!("{:?}", Estimation { stages: StageTimes::default(), backend: "", ..result.clone() })
}

#[test]
fn random_scenes_have_the_same_bits() {
    let Some([mut cpu, mut cuda]) = both(&Params::default()) else { return };
    let (mut ok, cases) = ([0, 0], cases::count() / 3);
    for seed in 0..cases {
        let scene = random_scene(seed);
        let mut rng = random(seed + 1_000_000);
        let mut params = Params::default();
        params.camera.max_samples = 5000;
        params.camera.seed = seed as i64;
        if seed % 4 == 1 {
            params = with(params, "camera.sampling", Value::Text("prosac".into()));
        }
        let problem = scene.absolute(&mut rng);
        let expected = cpu.absolute(&problem, &params);
        let found = cuda.absolute(&problem, &params);
        assert_eq!((expected.backend, found.backend), ("cpu", "cuda"));
        assert_eq!(digits(found), digits(expected), "absolute, {}", scene.what);
        ok[0] += u64::from(found.status == Status::Ok);
        let problem = scene.relative(&mut rng);
        let expected = cpu.relative(&problem, &params);
        let found = cuda.relative(&problem, &params);
        assert_eq!(digits(found), digits(expected), "relative, {}", scene.what);
        ok[1] += u64::from(found.status == Status::Ok);
    }
    println!("{cases} cases: {ok:?} absolute and relative ones ok");
    assert!(cases < 50 || ok.iter().all(|n| *n > cases / 10), "the test compares failures");
}

#[test]
fn the_same_bits_every_time() {
    let Some([_, mut cuda]) = both(&Params::default()) else { return };
    let params = Params::default();
    let mut rng = random(3);
    let (one, other) = (planted(&mut rng, 1000, 0.3, 0.001), planted(&mut rng, 300, 0.5, 0.001));
    let (one_absolute, other_relative) = (one.absolute(&mut rng), other.relative(&mut rng));
    let first = digits(cuda.absolute(&one_absolute, &params));
    let second = digits(cuda.relative(&other_relative, &params));
    for _ in 0..200 {
        assert_eq!(digits(cuda.relative(&other_relative, &params)), second);
        assert_eq!(digits(cuda.absolute(&one_absolute, &params)), first);
    }
}

/// Not a test of anything but that it ends: the times are for `tools/gpu-check`.
#[test]
fn how_long_estimations_take() {
    let Some(mut both) = both(&Params::default()) else { return };
    let params = Params::default();
    println!("n = 1000, milliseconds of whole calls");
    println!("problem   right  backend      p50      p99  samples   sample  search  optimise  refine (us)");
    for (relative, right) in
        [0.5, 0.25, 0.2, 0.1].map(|r| (false, r)).into_iter().chain([(true, 0.5), (true, 0.25)])
    {
        let scenes: Vec<Scene> = (0..10).map(|seed| planted(&mut random(seed), 1000, right, 0.001)).collect();
        for estimator in &mut both {
            let (mut times, mut samples, mut stages) = (Vec::new(), 0, [0.0; 4]);
            for round in 0..cases::count().clamp(2, 20) {
                for scene in &scenes {
                    let mut rng = random(9);
                    let (a, r) = (scene.absolute(&mut rng), scene.relative(&mut rng));
                    let start = Instant::now();
                    let result = match relative {
                        false => estimator.absolute(&a, &params),
                        true => estimator.relative(&r, &params),
                    };
                    let ms = start.elapsed().as_secs_f64() * 1e3;
                    if round > 0 {
                        times.push(ms);
                        samples += result.samples;
                        stages.iter_mut().zip(result.stages.values()).for_each(|(sum, us)| *sum += us);
                    }
                }
            }
            times.sort_by(f64::total_cmp);
            let rank = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
            let n = times.len() as f64;
            let [sample, search, optimise, refine] = stages.map(|us| us / n);
            let (p50, p99, backend) = (rank(0.5), rank(0.99), estimator.backend());
            let name = if relative { "relative" } else { "absolute" };
            println!(
                "{name:9} {right:5.2}  {backend:7} {p50:8.3} {p99:8.3} {:8.0} {sample:8.1} {search:7.1} {optimise:9.1} {refine:7.1}",
                samples as f64 / n
            );
        }
    }
}
