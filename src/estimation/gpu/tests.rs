//! Rounds of the kernels against the CPU: the same bits. Without a GPU (`tests/support/lanes/estimate.cpp`), and
//! on the device where there is one.

use super::*;
use crate::estimation::model::{Model, Residuals};
use crate::estimation::search::CpuSearch;
use crate::estimation::{AbsoluteProblem, AbsoluteRow, RelativeProblem, RelativeRow, Sight};
use crate::geometry::Point;
use crate::gpu::host::{compile, run};
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::time::Instant;

type Random = rand_pcg::Pcg64Mcg;

/// Threshold of an inlier, rad.
const THRESHOLD: f64 = 0.01;

/// What a round left behind.
struct Found {
    counts: Vec<u32>,
    poses: Vec<[u64; 12]>,
    scores: Vec<u32>,
    hypotheses: u64,
    kept: Vec<Kept>,
}

/// A model as the kernels get it.
trait OnDevice: Model<Hypothesis = Pose> {
    const KIND: Kind;
    fn exact_rows(&self) -> Vec<[f64; EXACT]>;
    fn columns_of(&self) -> Vec<f32>;
    fn load_on(&self, gpu: &mut GpuSearch) -> Result<(), Stop>;
}

impl OnDevice for Absolute {
    const KIND: Kind = Kind::ABSOLUTE;
    fn exact_rows(&self) -> Vec<[f64; EXACT]> {
        self.kept().iter().map(|row| exact(&row.point, &row.bearing)).collect()
    }
    fn columns_of(&self) -> Vec<f32> {
        self.columns().blocks().as_flattened().as_flattened().to_vec()
    }
    fn load_on(&self, gpu: &mut GpuSearch) -> Result<(), Stop> {
        Search::<Self>::load(gpu, self)
    }
}

impl OnDevice for Relative {
    const KIND: Kind = Kind::RELATIVE;
    fn exact_rows(&self) -> Vec<[f64; EXACT]> {
        self.kept().iter().map(|row| exact(&row.current.bearing, &row.reference.bearing)).collect()
    }
    fn columns_of(&self) -> Vec<f32> {
        self.columns().blocks().as_flattened().as_flattened().to_vec()
    }
    fn load_on(&self, gpu: &mut GpuSearch) -> Result<(), Stop> {
        Search::<Self>::load(gpu, self)
    }
}

/// Where rounds are made.
enum Place {
    /// The kernels as a program of the host.
    Host(PathBuf),
    Device(Box<GpuSearch>),
}

fn round<M: OnDevice>(place: &mut Place, model: &M, samples: &[u32], keep: usize) -> Found {
    match place {
        Place::Host(program) => on_host(program, model, samples, keep),
        Place::Device(gpu) => {
            model.load_on(gpu).expect("no fault");
            let (hypotheses, kept) = gpu.round(samples, keep).expect("no fault");
            let kept = kept.to_vec();
            let count = samples.len() / M::KIND.sample;
            let slots = count * M::KIND.roots;
            let (m, stream) = (&gpu.memory, &gpu.stream);
            let poses = m.poses.read(slots, stream).expect("no fault");
            Found {
                counts: m.counts.read(count, stream).expect("no fault"),
                poses: poses.iter().map(|pose| pose.map(f64::to_bits)).collect(),
                scores: m.scores.read(slots, stream).expect("no fault"),
                hypotheses,
                kept,
            }
        }
    }
}

fn on_host<M: OnDevice>(program: &Path, model: &M, samples: &[u32], keep: usize) -> Found {
    let (kind, exact) = (M::KIND, model.exact_rows());
    let count = samples.len() / kind.sample;
    let sizes = [usize::from(kind == Kind::RELATIVE), exact.len(), count, keep].map(|v| v as u32);
    let mut input: Vec<u8> = sizes.iter().flat_map(|v| v.to_le_bytes()).collect();
    input.extend(exact.iter().flatten().flat_map(|v| v.to_le_bytes()));
    input.extend(model.columns_of().iter().flat_map(|v| v.to_le_bytes()));
    input.extend(samples.iter().flat_map(|v| v.to_le_bytes()));
    let output = run(program, &input);
    let mut left = output.as_slice();
    let mut take = |bytes: usize| {
        let (taken, rest) = left.split_at(bytes);
        left = rest;
        taken
    };
    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("4 bytes"));
    let bits = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("8 bytes"));
    let pose = |b: &[u8]| std::array::from_fn(|k| bits(&b[8 * k..8 * k + 8]));
    let counts = take(4 * count).chunks(4).map(word).collect();
    let poses = take(96 * count * kind.roots).chunks(96).map(pose).collect();
    let scores = take(4 * count * kind.roots).chunks(4).map(word).collect();
    let [hypotheses, n] = [word(take(4)), word(take(4))];
    let one = |b: &[u8]| Kept {
        pose: pose(b).map(f64::from_bits),
        score: word(&b[96..100]),
        slot: word(&b[100..]),
    };
    let kept = take(104 * MOST_KEPT).chunks(104).map(one).take(n as usize).collect();
    assert!(left.is_empty());
    Found { counts, poses, scores, hypotheses: u64::from(hypotheses), kept }
}

fn bits_of(pose: &Pose) -> [u64; 12] {
    std::array::from_fn(|k| match k {
        0..9 => pose.rotation[(k / 3, k % 3)].to_bits(),
        _ => pose.translation[k - 9].to_bits(),
    })
}

/// All poses, all scores and those that are kept, against the CPU; how many poses, and the best score.
fn compare<M: OnDevice>(place: &mut Place, model: &M, samples: &[u32], keep: usize) -> (u64, u32) {
    let (kind, found) = (M::KIND, round(place, model, samples, keep));
    let mut solutions = Vec::new();
    for (i, sample) in samples.chunks(kind.sample).enumerate() {
        solutions.clear();
        model.solve(sample, &mut solutions);
        let at = i * kind.roots;
        assert_eq!(found.counts[i] as usize, solutions.len(), "{kind:?}, sample {i}");
        for (k, pose) in solutions.iter().enumerate() {
            assert_eq!(found.poses[at + k], bits_of(pose), "{kind:?}, sample {i}, pose {k}");
            assert_eq!(found.scores[at + k], model.score(pose, 0), "{kind:?}, sample {i}, score {k}");
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    let (mut cpu, mut best) = (CpuSearch::new(Arc::new(pool)), Vec::new());
    let deadline = Deadline::after_ms(Instant::now(), 0.0);
    let hypotheses = cpu.search(model, samples, keep, &mut best, deadline).expect("no deadline");
    assert_eq!((found.hypotheses, found.kept.len()), (hypotheses, best.len()), "{kind:?}");
    for (got, expected) in found.kept.iter().zip(&best) {
        assert_eq!((got.score, got.slot), (expected.score, expected.slot), "{kind:?}");
        assert_eq!(bits_of(&pose_of(&got.pose)), bits_of(&expected.hypothesis), "{kind:?}");
    }
    (hypotheses, best.first().map_or(0, |b| b.score))
}

/// Features of two frames, a part of which agrees, some of them spoilt: repeated, far away, near, nowhere.
fn features(rng: &mut Random, n: usize) -> Vec<[Vector; 2]> {
    let noise = |rng: &mut Random, size: f64| Vector::from_fn(|_, _| rng.random_range(-size..size));
    let turn = nalgebra::Rotation3::from_scaled_axis(noise(rng, 1.5));
    let shift = noise(rng, 2.0);
    let mut all: Vec<[Vector; 2]> = Vec::with_capacity(n);
    for i in 0..n {
        let seen = noise(rng, 3.0) + Vector::z() * 4.0;
        let mut other = turn * (seen - shift);
        if rng.random_bool(0.3) {
            other = noise(rng, 5.0);
        }
        let before = all.get(i.wrapping_sub(1)).copied().unwrap_or([seen, other]);
        all.push(match rng.random_range(0..30) {
            0 => before,
            1 => [before[0], other],
            2 => [seen, before[1]],
            3 => [seen, before[1] * 2.0],
            4 => [seen, other * 1e6],
            5 => [seen, other * 1e-6],
            6 => [seen, other * 1e150],
            7 => [seen, Vector::zeros()],
            _ => [seen + noise(rng, 0.01), other],
        });
    }
    all
}

fn absolute(rng: &mut Random, n: usize) -> Absolute {
    let mut problem = AbsoluteProblem::with_capacity(n);
    for [seen, other] in features(rng, n) {
        let Some(sight) = Sight::of_bearing(&seen, THRESHOLD) else { continue };
        problem.push(AbsoluteRow { sight, point: Point::from(other), weight: 1.0, id: None });
    }
    let mut model = Absolute::with_capacity(n);
    model.load(&problem);
    model
}

fn relative(rng: &mut Random, n: usize) -> Relative {
    let mut problem = RelativeProblem::with_capacity(n);
    for [seen, other] in features(rng, n) {
        let sights = (Sight::of_bearing(&seen, THRESHOLD), Sight::of_bearing(&other, THRESHOLD));
        let (Some(sight), Some(reference)) = sights else { continue };
        problem.push(RelativeRow { sight, reference, weight: 1.0, id: None });
    }
    let mut model = Relative::with_capacity(n);
    model.load(&problem);
    model
}

/// Samples; one in ten may name a row twice, which fixes nothing.
fn samples(rng: &mut Random, rows: usize, size: usize, count: usize) -> Vec<u32> {
    let mut all = Vec::with_capacity(size * count);
    for sample in 0..count {
        let start = all.len();
        while all.len() < start + size {
            let row = rng.random_range(0..rows as u32);
            if sample % 10 == 0 || rows < size || !all[start..].contains(&row) {
                all.push(row);
            }
        }
    }
    all
}

/// Models and samples of both kinds; poses and best score of each.
fn compare_both(place: &mut Place, rng: &mut Random, n: usize, count: usize, keep: usize) -> [(u64, u32); 2] {
    let (a, r) = (absolute(rng, n), relative(rng, n));
    let (of_three, of_five) = (samples(rng, a.rows(), 3, count), samples(rng, r.rows(), 5, count));
    [compare(place, &a, &of_three, keep), compare(place, &r, &of_five, keep)]
}

#[test]
fn rounds_on_the_host_are_those_of_the_cpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compile(folder.path(), "estimate.cpp", &[], &[]) else { return };
    let (mut rng, mut place) = (Random::seed_from_u64(5), Place::Host(program));
    // Sizes around blocks of rows and of threads; more samples than lanes at once.
    for (n, count, keep) in [(7, 20, 8), (16, 33, 1), (129, 150, 16), (350, 70, 8), (20, 0, 8)] {
        let [a, r] = compare_both(&mut place, &mut rng, n, count, keep);
        println!("{n} rows, {count} samples: poses and best score {a:?}, {r:?}");
        assert!(n < 100 || a.0.min(2 * r.0) > count as u64 / 2, "hardly anything to compare");
        assert!(n < 100 || (a.1 > 1 << 20 && r.1 > 1 << 20), "no pose is good");
    }
}

#[test]
fn rounds_on_the_device_are_those_of_the_cpu() {
    if crate::gpu::device::probe().first_device().is_none() {
        println!("skipped: no CUDA device");
        return;
    }
    let gpu = GpuSearch::new(&Params::default(), None).expect("the device works");
    println!("{}", gpu.what());
    let mut place = Place::Device(Box::new(gpu));
    let cases = std::env::var("FLASHREG_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut all = [0, 0];
    for case in 0..cases {
        let mut rng = Random::seed_from_u64(100 + case);
        let mut size = |least: f64, most: f64| rng.random_range(least.ln()..most.ln()).exp() as usize;
        let (n, count) = match case {
            0 => (4096, MOST_SAMPLES),
            1 => (5, 1),
            _ => (size(5.0, 4097.0), size(1.0, 2000.0)),
        };
        let keep = rng.random_range(1..=MOST_KEPT);
        println!("case {case}: {n} rows, {count} samples, {keep} kept");
        let found = compare_both(&mut place, &mut rng, n, count, keep);
        all = [all[0] + found[0].0, all[1] + found[1].0];
    }
    println!("{cases} cases: {all:?} poses of three and of five points");
}
