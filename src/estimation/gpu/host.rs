//! The kernels without a GPU (`tests/support/lanes/estimate.cpp`) against the CPU: the same bits.

use super::*;
use crate::estimation::solvers::{five_point, p3p};
use crate::geometry::{Pose, Vector};
use crate::gpu::host::{compile, run};
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::sync::OnceLock;

type Random = rand_pcg::Pcg64Mcg;

/// What a round left behind.
struct Round {
    counts: Vec<u32>,
    poses: Vec<[u64; 12]>,
    scores: Vec<u32>,
    found: u32,
    kept: Vec<Kept>,
}

/// The kernels, compiled once; `None` without a compiler.
fn program() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let made = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let program = compile(folder.path(), "estimate.cpp", &[], &[])?;
        Some((folder, program))
    });
    made.as_ref().map(|(_, program)| program)
}

/// A round of the kernels.
fn round(
    program: &PathBuf,
    kind: &Kind,
    exact: &[[f64; EXACT]],
    blocks: &[f32],
    samples: &[u32],
    keep: usize,
) -> Round {
    let count = samples.len() / kind.sample;
    let sizes = [usize::from(*kind == Kind::RELATIVE), exact.len(), count, keep].map(|v| v as u32);
    let mut input: Vec<u8> = sizes.iter().flat_map(|v| v.to_le_bytes()).collect();
    input.extend(exact.iter().flatten().flat_map(|v| v.to_le_bytes()));
    input.extend(blocks.iter().flat_map(|v| v.to_le_bytes()));
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
    let [found, kept] = [word(take(4)), word(take(4))];
    let one = |b: &[u8]| Kept {
        pose: pose(b).map(f64::from_bits),
        score: word(&b[96..100]),
        slot: word(&b[100..]),
    };
    let all: Vec<Kept> = take(104 * MOST_KEPT).chunks(104).map(one).collect();
    Round { counts, poses, scores, found, kept: all[..kept as usize].to_vec() }
}

fn vector(v: &[f64]) -> Vector {
    Vector::new(v[0], v[1], v[2])
}

/// Poses of a sample on the CPU.
fn solved(kind: &Kind, rows: &[[f64; EXACT]]) -> Vec<[u64; 12]> {
    let none = Pose { rotation: nalgebra::Matrix3::zeros(), translation: Vector::zeros() };
    let (first, second) = (|i: usize| vector(&rows[i][..3]), |i: usize| vector(&rows[i][3..]));
    let poses = if *kind == Kind::ABSOLUTE {
        let mut poses = [none; 4];
        let n = p3p(&std::array::from_fn(second), &std::array::from_fn(first), &mut poses);
        poses[..n].to_vec()
    } else {
        let mut poses = [none; 10];
        let n = five_point(&std::array::from_fn(first), &std::array::from_fn(second), &mut poses);
        poses[..n].to_vec()
    };
    poses.iter().map(|pose| numbers(pose).map(f64::to_bits)).collect()
}

fn numbers(pose: &Pose) -> [f64; 12] {
    std::array::from_fn(|k| if k < 9 { pose.rotation[(k / 3, k % 3)] } else { pose.translation[k - 9] })
}

/// Rows of a pose, some of them spoilt.
fn rows(rng: &mut Random, kind: &Kind, n: usize) -> Vec<[f64; EXACT]> {
    let mut noise = |size: f64| Vector::from_fn(|_, _| rng.random_range(-size..size));
    let turn = nalgebra::Rotation3::from_scaled_axis(noise(1.5));
    let shift = noise(2.0);
    let mut all: Vec<[f64; EXACT]> = (0..n)
        .map(|_| {
            let seen = noise(3.0) + Vector::z() * 4.0;
            let other = turn * (seen - shift);
            let (a, b) = if *kind == Kind::ABSOLUTE {
                (other, seen.normalize())
            } else {
                (other.normalize(), seen.normalize())
            };
            [a.x, a.y, a.z, b.x, b.y, b.z]
        })
        .collect();
    for i in 1..n {
        let before = all[i - 1];
        match rng.random_range(0..40) {
            0 => all[i] = before,
            1 => all[i][..3].copy_from_slice(&before[..3]),
            2 => all[i][3..].copy_from_slice(&before[3..]),
            3 => all[i][..3].iter_mut().zip(&before).for_each(|(v, b)| *v = b * 2.0),
            4 => all[i][..3].iter_mut().for_each(|v| *v *= 1e6),
            5 => all[i][..3].iter_mut().for_each(|v| *v *= 1e-6),
            6 => all[i] = [0.0; EXACT],
            7 => all[i][..3].iter_mut().for_each(|v| *v *= 1e300),
            8 => all[i][rng.random_range(0..6)] = f64::INFINITY,
            _ => {}
        }
    }
    all
}

#[test]
fn samples_are_solved_as_on_the_cpu() {
    let Some(program) = program() else { return };
    let mut rng = Random::seed_from_u64(5);
    for kind in Kind::ALL {
        let exact = rows(&mut rng, kind, 400);
        let samples: Vec<u32> = (0..kind.sample * 600).map(|_| rng.random_range(0..400)).collect();
        let blocks = vec![0.0; exact.len().next_multiple_of(16) * kind.columns];
        let got = round(program, kind, &exact, &blocks, &samples, 16);
        let mut found = 0;
        for (i, sample) in samples.chunks(kind.sample).enumerate() {
            let drawn: Vec<[f64; EXACT]> = sample.iter().map(|row| exact[*row as usize]).collect();
            let expected = solved(kind, &drawn);
            let at = i * kind.roots;
            assert_eq!(got.counts[i] as usize, expected.len(), "{kind:?}, sample {i}");
            assert_eq!(got.poses[at..at + expected.len()], expected, "{kind:?}, sample {i}");
            found += expected.len();
        }
        println!("{kind:?}: {found} poses");
        assert!(found > 600);
        assert_eq!((got.found as usize, got.kept.len()), (found, 0));
        assert!(got.scores.iter().all(|score| [0, 77].contains(score)));
    }
}
