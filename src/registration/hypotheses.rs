//! Poses of the triples and their scores over all correspondences (appendix A8 and A9 of the
//! design).
//!
//! Residuals are computed in single precision on centred coordinates, rounded after every
//! operation. A correspondence contributes a whole number of 1/65536 of its weight, so the sum is
//! exact and does not depend on its order: the same score on every machine and on the GPU.

use super::cliques::Triple;
use super::lanes::{Deadline, Lanes, OverBudget, Shared};
use super::layout::Layout;
use crate::geometry::{align_three, align_three_about, Pose};
use crate::params::Metric;
use multiversion::multiversion;

/// One inlier of full weight and no residual counts this much.
pub const UNIT: f64 = 65536.0;

/// A pose with its support.
#[derive(Debug, Clone, Copy)]
pub struct Hypothesis {
    /// The pose, between the centred frames.
    pub pose: Pose,
    /// Score in units of 1 / [`UNIT`].
    pub score: u64,
    /// Correspondences within the threshold.
    pub inliers: u32,
}

impl Hypothesis {
    /// A pose that nothing supports.
    pub fn none() -> Self {
        Self { pose: Pose::identity(), score: 0, inliers: 0 }
    }

    /// Better first: score, then inliers.
    pub fn rank(&self) -> (u64, u32) {
        (self.score, self.inliers)
    }
}

/// How hypotheses are scored.
#[derive(Debug, Clone, Copy)]
pub struct Scoring {
    /// What an inlier contributes.
    pub metric: Metric,
    /// Largest residual of an inlier, m.
    pub threshold: f32,
}

impl Scoring {
    /// Squared residuals of inliers are below this, m^2.
    pub fn theta2(&self) -> f32 {
        self.threshold * self.threshold
    }
}

/// Triples that one task aligns and scores.
const TRIPLES: usize = 16;

/// Aligns and scores every triple. A triple within `min_height` (m) of a line gives a hypothesis
/// without support; the number of the others is returned.
pub fn evaluate<L: Send>(
    layout: &Layout,
    triples: &[Triple],
    scoring: Scoring,
    min_height: f64,
    lanes: &mut Lanes<L>,
    hypotheses: &mut Vec<Hypothesis>,
    deadline: Deadline,
) -> Result<usize, OverBudget> {
    hypotheses.clear();
    hypotheses.resize(triples.len(), Hypothesis::none());
    let out = Shared::new(hypotheses);
    lanes.run(triples.len().div_ceil(TRIPLES), deadline, |_, task| {
        let start = task * TRIPLES;
        let triples = &triples[start..(start + TRIPLES).min(triples.len())];
        // SAFETY: each triple belongs to one task.
        let out = unsafe { out.part(start, triples.len()) };
        for (triple, out) in triples.iter().zip(out) {
            if let Some(pose) = pose_of(layout, triple, min_height) {
                let (score, inliers) = score(layout, &pose, scoring);
                *out = Hypothesis { pose, score, inliers };
            }
        }
    })?;
    Ok(hypotheses.iter().filter(|h| h.inliers > 0).count())
}

fn pose_of(layout: &Layout, triple: &Triple, min_height: f64) -> Option<Pose> {
    let source = triple.corners.map(|i| layout.source_at(i as usize));
    let target = triple.corners.map(|i| layout.target_at(i as usize));
    let aligned = match &layout.vertical {
        None => align_three(&source, &target),
        Some(vertical) => align_three_about(&source, &target, vertical),
    };
    aligned.filter(|(_, extent)| *extent > min_height).map(|(pose, _)| pose)
}

/// Score (units of 1 / [`UNIT`]) and inliers of a pose over all correspondences.
pub fn score(layout: &Layout, pose: &Pose, scoring: Scoring) -> (u64, u32) {
    score_rows(layout, &single(pose), scoring, None)
}

/// The same over those whose squared residual under the pose `start` is below `limit2` (m^2).
pub fn score_near(
    layout: &Layout,
    pose: &Pose,
    scoring: Scoring,
    (start, limit2): (&Pose, f32),
) -> (u64, u32) {
    score_rows(layout, &single(pose), scoring, Some((single(start), limit2)))
}

/// The correspondences whose squared residual under a pose is below `limit2` (m^2), ascending. The
/// arithmetic is that of the scores.
pub fn within<'a>(layout: &'a Layout, pose: &Pose, limit2: f32) -> impl Iterator<Item = usize> + 'a {
    let pose = single(pose);
    (0..layout.padded()).step_by(CHUNK).flat_map(move |start| {
        let mut rest = near_bits(layout, &pose, start, limit2);
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                start + bit
            })
        })
    })
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn near_bits(layout: &Layout, pose: &Single, start: usize, limit2: f32) -> u64 {
    let mut square = [0f32; CHUNK];
    square_residuals(layout, pose, start, &mut square);
    square.iter().enumerate().map(|(k, s)| u64::from(*s < limit2) << k).sum()
}

/// Squared residuals of a chunk, m^2; NaN in the padding.
#[inline(always)]
fn square_residuals(layout: &Layout, pose: &Single, start: usize, square: &mut [f32; CHUNK]) {
    let range = start..start + CHUNK;
    let (s, t) = (layout.source(), layout.target());
    let (sx, sy, sz) = (&s[0][range.clone()], &s[1][range.clone()], &s[2][range.clone()]);
    let (tx, ty, tz) = (&t[0][range.clone()], &t[1][range.clone()], &t[2][range]);
    for i in 0..CHUNK {
        let [x, y, z] = place(pose, [sx[i], sy[i], sz[i]]);
        let (x, y, z) = (x - tx[i], y - ty[i], z - tz[i]);
        square[i] = (x * x + y * y) + z * z;
    }
}

/// A pose in single precision: rows of three of the rotation and one of the translation.
pub type Single = [[f32; 4]; 3];

/// A pose in single precision.
pub fn single(pose: &Pose) -> Single {
    let (r, t) = (&pose.rotation, &pose.translation);
    [0, 1, 2].map(|k| [r[(k, 0)] as f32, r[(k, 1)] as f32, r[(k, 2)] as f32, t[k] as f32])
}

/// Where the pose takes a point.
#[inline(always)]
pub fn place(pose: &Single, p: [f32; 3]) -> [f32; 3] {
    pose.map(|row| ((row[0] * p[0] + row[1] * p[1]) + row[2] * p[2]) + row[3])
}

/// Rows scored in one go; their sum of whole numbers fits 32 bits.
const CHUNK: usize = 64;

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn score_rows(layout: &Layout, pose: &Single, scoring: Scoring, near: Option<(Single, f32)>) -> (u64, u32) {
    let theta2 = scoring.theta2();
    let per_theta2 = 1.0 / theta2;
    let (mut total, mut inliers) = (0u64, 0u32);
    for start in (0..layout.padded()).step_by(CHUNK) {
        let mut square = [0f32; CHUNK];
        square_residuals(layout, pose, start, &mut square);
        if let Some((near, limit2)) = &near {
            let mut under = [0f32; CHUNK];
            square_residuals(layout, near, start, &mut under);
            for (square, under) in square.iter_mut().zip(under) {
                *square = if under < *limit2 { *square } else { f32::NAN };
            }
        }
        // False for the NaN of the padding.
        let count: u32 = square.iter().map(|s| u32::from(*s < theta2)).sum();
        if count > 0 {
            inliers += count;
            let weight = &layout.weight()[start..start + CHUNK];
            total += match scoring.metric {
                Metric::Inliers => gain(&square, weight, theta2, |_| 1.0),
                Metric::Linear => gain(&square, weight, theta2, |s| 1.0 - (s * per_theta2).sqrt()),
                Metric::Quadratic => gain(&square, weight, theta2, |s| 1.0 - s * per_theta2),
            };
        }
    }
    (total, inliers)
}

/// Sum of the shares of the inliers of a chunk, each times its weight, in units of 1 / [`UNIT`].
#[inline(always)]
fn gain(square: &[f32; CHUNK], weight: &[f32], theta2: f32, share: impl Fn(f32) -> f32) -> u64 {
    let mut sum = 0u32;
    for (square, weight) in square.iter().zip(weight) {
        let gain = if *square < theta2 { share(*square) * weight } else { 0.0 };
        // SAFETY: finite and within -1 .. 65536, since share and weight lie within 0 .. 1 but for
        // rounding.
        sum += unsafe { (gain * UNIT as f32).to_int_unchecked::<i32>() }.max(0) as u32;
    }
    u64::from(sum)
}
