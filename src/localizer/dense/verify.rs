//! Whether a scan that was aligned is where it seems to be.

use super::align::{match_point, place, Aligner};
use super::index::{cell_of, SurfaceIndex};
use crate::estimation::rotation;
use crate::features::Surface;
use crate::geometry::{Point, Pose, Rigid, Vector};
use nalgebra::{Matrix2, SymmetricEigen};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// Largest distance from its plane at which a point lies on the map, voxels.
pub(super) const ON: f64 = 0.5;
/// A point farther from the map is one that the map does not know, voxels.
pub(super) const EXPLAINED: f64 = 8.0;
/// Edge of a patch, voxels. Points of one patch are one piece of evidence: they lie on the map or not together.
pub(super) const PATCH: f64 = 4.0;
/// A ray ends so far before its point, voxels, and begins so far from the sensor.
const BEFORE: f64 = 4.0;
/// Points that are looked at, about.
pub(super) const SAMPLE: usize = 1000;
/// Cosine of the largest slope of a floor, and patches of floors that say nothing.
const LEVEL: f64 = 0.9;
const FEW: f64 = 5.0;
/// Points that one task of a thread handles.
pub(super) const CHUNK: usize = 64;
/// How far the pose is shifted to see what a point tells, voxels.
const SHIFTS: [f64; 4] = [-24.0, -8.0, 8.0, 24.0];
/// Kinds of wrong poses: shifted along the way that the normals fix least, across it, turned by a quarter, by a half.
const RIVALS: usize = 4;
/// Of the points that a wrong pose, aligned as well as it can be, would have off the map, the share on it nevertheless.
const CHANCE: f64 = 0.4;
/// Of the points that a wrong pose has off the map, the share that the right one has off it too: people, things that
/// were moved.
const CHANGED: f64 = 0.4;
/// Probability that a ray goes through a surface at the right pose, and at a wrong one.
const THROUGH: [f64; 2] = [0.06, 0.2];

/// How well a scan lies on the map at a pose.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Share of the patches on the map: near a surface that faces the same way.
    pub on: f64,
    /// Share of the patches whose rays went through a surface of the map well before their end.
    pub through: f64,
    /// Share of the patches far off everything that the map knows.
    pub unknown: f64,
    /// Of the patches of floors and ceilings that the map could explain, the share on the map; 1 where there are few. Walls
    /// alone leave the height open.
    pub level: f64,
    /// Log-likelihood ratio of the pose to the most likely kind of wrong one. Scans from places some voxels apart
    /// are different evidence, and their scores add up; those from one place are the same evidence again.
    pub score: f64,
    /// The score that the pose would have if the whole scan lay on the map: next to nothing on bare ground and in a
    /// bare corridor.
    pub reach: f64,
}

/// What a point says; shares, so that those of a patch can be added up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said {
    points: f64,
    on: f64,
    unknown: f64,
    through: f64,
    level: f64,
    level_on: f64,
    scores: [f64; RIVALS],
    reaches: [f64; RIVALS],
}

/// Reused.
#[derive(Debug, Default)]
pub(super) struct Memory {
    said: Vec<Said>,
    numbers: FxHashMap<[i64; 3], u32>,
    patches: Vec<Said>,
}

impl Aligner {
    /// How well a scan lies on the map at a pose, which should come from [`Aligner::align`].
    ///
    /// A point tells as much as it would lie elsewhere at another pose. That is tried: with the pose shifted along
    /// and across, and turned. Floors lie on the map at all of them and tell nothing, nor do the walls of a
    /// corridor of where along it one is. The axis z of the map is taken to be vertical.
    pub fn verify(&mut self, map: &SurfaceIndex, scan: &Surface, map_t_sensor: &Rigid) -> Evidence {
        let pose = Pose::from(map_t_sensor);
        if !pose.is_finite() {
            return Evidence::default();
        }
        let stride = scan.points.len().div_ceil(SAMPLE).max(1);
        let rivals = rivals(scan, &pose, map.voxel());
        let Memory { said, numbers, patches } = &mut self.verification;
        said.clear();
        said.resize(scan.points.len().div_ceil(stride), Said::default());
        self.pool.install(|| {
            said.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, said)| {
                let points =
                    scan.points.iter().zip(&scan.normals).skip(chunk * CHUNK * stride).step_by(stride);
                for (said, (point, normal)) in said.iter_mut().zip(points) {
                    *said = listen(map, &pose, &rivals, point, normal);
                }
            });
        });
        numbers.clear();
        patches.clear();
        for (point, said) in scan.points.iter().step_by(stride).zip(said.iter()) {
            let next = patches.len() as u32;
            let number = *numbers.entry(cell_of(point, PATCH * map.voxel())).or_insert(next);
            if number == next {
                patches.push(Said::default());
            }
            if let Some(patch) = patches.get_mut(number as usize) {
                patch.add(said, 1.0);
            }
        }
        conclude(patches)
    }
}

impl Said {
    fn add(&mut self, other: &Self, weight: f64) {
        self.points += other.points * weight;
        self.on += other.on * weight;
        self.unknown += other.unknown * weight;
        self.through += other.through * weight;
        self.level += other.level * weight;
        self.level_on += other.level_on * weight;
        self.scores.iter_mut().zip(&other.scores).for_each(|(sum, score)| *sum += score * weight);
        self.reaches.iter_mut().zip(&other.reaches).for_each(|(sum, reach)| *sum += reach * weight);
    }
}

/// A patch is one observation, however many points it has.
fn conclude(patches: &[Said]) -> Evidence {
    let mut total = Said::default();
    for patch in patches.iter().filter(|patch| patch.points > 0.0) {
        total.add(patch, 1.0 / patch.points);
    }
    let count = total.points.max(1.0);
    let kinds = total.scores.iter().copied().zip(total.reaches);
    let (score, reach) = kinds.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    Evidence {
        on: total.on / count,
        through: total.through / count,
        unknown: total.unknown / count,
        level: if total.level < FEW { 1.0 } else { total.level_on / total.level },
        score,
        reach,
    }
}

/// The wrong poses of each kind.
fn rivals(scan: &Surface, pose: &Pose, voxel: f64) -> [Vec<Pose>; RIVALS] {
    let mut spread = Matrix2::zeros();
    for normal in scan.normals.iter().filter(|normal| normal.iter().all(|v| v.is_finite())) {
        let level = (pose.rotation * normal).xy();
        spread += level * level.transpose();
    }
    let eigen = SymmetricEigen::try_new(spread, f64::EPSILON, 100);
    let along = eigen.map_or(Vector::x(), |eigen| {
        let least = eigen.eigenvectors.column(eigen.eigenvalues.imin());
        Vector::new(least[0], least[1], 0.0)
    });
    let shifted = |way: Vector| {
        let to =
            |far: f64| Pose { rotation: pose.rotation, translation: pose.translation + way * (far * voxel) };
        SHIFTS.map(to).to_vec()
    };
    let turned = |turns: &[f64]| {
        let by = |quarters: &f64| {
            let turn = rotation::exp(&Vector::new(0.0, 0.0, quarters * std::f64::consts::FRAC_PI_2));
            Pose { rotation: turn * pose.rotation, translation: pose.translation }
        };
        turns.iter().map(by).collect()
    };
    [shifted(along), shifted(Vector::z().cross(&along)), turned(&[1.0, -1.0]), turned(&[2.0])]
}

fn listen(
    map: &SurfaceIndex,
    pose: &Pose,
    rivals: &[Vec<Pose>; RIVALS],
    point: &Point,
    normal: &Vector,
) -> Said {
    if !point.iter().all(|v| v.is_finite()) {
        return Said::default();
    }
    let lies_on = |pose: &Pose| {
        let matched = match_point(map, pose, point, normal, 2.0 * map.voxel());
        matched.is_some_and(|(row, _)| row.residual.abs() <= ON * map.voxel())
    };
    let on = lies_on(pose);
    let through = !on && passes(map, pose, point);
    let unknown = !on && !through && map.nearest(&place(pose, point), EXPLAINED * map.voxel()).is_none();
    let one = |said: bool| f64::from(u8::from(said));
    let is_level = (pose.rotation * normal).z.abs() > LEVEL && !unknown;
    let [right, wrong] = match through {
        true => THROUGH,
        false => THROUGH.map(|share| 1.0 - share),
    };
    let ray = libm::log(right / wrong);
    let clear = libm::log((1.0 - THROUGH[0]) / (1.0 - THROUGH[1]));
    let told: [[f64; 2]; RIVALS] = std::array::from_fn(|kind| {
        let there = rivals[kind].iter().filter(|rival| lies_on(rival)).count() as f64;
        // Never quite certain.
        let elsewhere = 0.98 * there / rivals[kind].len() as f64;
        let wrong = CHANCE + (1.0 - CHANCE) * elsewhere;
        let right = 1.0 - CHANGED * (1.0 - wrong);
        let lies = libm::log(right / wrong) + clear * (1.0 - elsewhere);
        [if on { lies } else { libm::log(CHANGED) + ray }, lies]
    });
    let [scores, reaches] = [0, 1].map(|k| told.map(|kind| kind[k]));
    let (level, level_on) = (one(is_level), one(is_level && on));
    Said {
        points: 1.0,
        on: one(on),
        unknown: one(unknown),
        through: one(through),
        level,
        level_on,
        scores,
        reaches,
    }
}

/// The ray of a point goes through a surface of the map.
pub(super) fn passes(map: &SurfaceIndex, pose: &Pose, point: &Point) -> bool {
    let (origin, end) = (Point::from(pose.translation), place(pose, point));
    let (ray, length) = (end - origin, point.coords.norm());
    let margin = BEFORE * map.voxel();
    length > 2.0 * margin && map.cast(&origin, &(ray / length), margin, length - margin).is_some()
}
