//! Whether a scan that was aligned is where it seems to be.

use super::align::{match_point, place, Aligner};
use super::index::{cell_of, SurfaceIndex};
use crate::features::Surface;
use crate::geometry::{Point, Pose, Rigid};
use rustc_hash::FxHashMap;

/// Largest distance from its plane at which a point lies on the map, voxels.
pub(super) const ON: f64 = 0.5;
/// A point farther from the map is one that the map does not know, voxels.
pub(super) const EXPLAINED: f64 = 8.0;
/// Edge of a patch, voxels. Points of one patch are one piece of evidence: they lie on the map or not together.
const PATCH: f64 = 4.0;
/// A ray ends so far before its point, voxels, and begins so far from the sensor.
const BEFORE: f64 = 4.0;
/// Rays that are followed at most.
const RAYS: usize = 400;
/// Probability that a point lies on the map at the right pose, where people walk and things were moved, and at a
/// wrong one, aligned as well as it can be, which shares floors and the directions of walls.
const RIGHT: f64 = 0.8;
const WRONG: f64 = 0.55;
/// The same of a ray that goes through a surface.
const RIGHT_THROUGH: f64 = 0.02;
const WRONG_THROUGH: f64 = 0.15;

/// How well a scan lies on the map at a pose.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Share of the patches on the map: near a surface that faces the same way.
    pub on: f64,
    /// Share of the rays that went through a surface of the map well before their end.
    pub through: f64,
    /// Share of the patches far off everything that the map knows.
    pub unknown: f64,
    /// Log-likelihood ratio of the pose to a wrong one.
    pub score: f64,
}

/// Points of a patch: all, on the map, far off the map, followed, gone through a surface.
type Counts = [f64; 5];

/// Reused.
#[derive(Debug, Default)]
pub(super) struct Memory {
    numbers: FxHashMap<[i64; 3], u32>,
    patches: Vec<Counts>,
}

impl Memory {
    fn clear(&mut self) {
        self.numbers.clear();
        self.patches.clear();
    }

    fn patch(&mut self, cell: [i64; 3]) -> Option<&mut Counts> {
        let next = self.patches.len() as u32;
        let number = *self.numbers.entry(cell).or_insert(next);
        if number == next {
            self.patches.push(Counts::default());
        }
        self.patches.get_mut(number as usize)
    }
}

impl Aligner {
    /// How well a scan lies on the map at a pose, which should come from [`Aligner::align`].
    pub fn verify(&mut self, map: &SurfaceIndex, scan: &Surface, map_t_sensor: &Rigid) -> Evidence {
        let pose = Pose::from(map_t_sensor);
        let (voxel, memory) = (map.voxel(), &mut self.verification);
        memory.clear();
        let stride = scan.points.len().div_ceil(RAYS).max(1);
        for (number, (point, normal)) in scan.points.iter().zip(&scan.normals).enumerate() {
            let on = match_point(map, &pose, point, normal, 2.0 * voxel)
                .is_some_and(|(row, _)| row.residual.abs() <= ON * voxel);
            let followed = number % stride == 0;
            let through = followed && !on && passes(map, &pose, point);
            let unknown = !on && map.nearest(&place(&pose, point), EXPLAINED * voxel).is_none();
            let said = [true, on, unknown, followed, through];
            if let Some(counts) = memory.patch(cell_of(point, PATCH * voxel)) {
                counts.iter_mut().zip(said).for_each(|(count, said)| *count += f64::from(u8::from(said)));
            }
        }
        evidence(&memory.patches)
    }
}

/// The ray of a point goes through a surface of the map.
fn passes(map: &SurfaceIndex, pose: &Pose, point: &Point) -> bool {
    let (origin, end) = (Point::from(pose.translation), place(pose, point));
    let (ray, length) = (end - origin, point.coords.norm());
    let margin = BEFORE * map.voxel();
    length > 2.0 * margin && map.cast(&origin, &(ray / length), margin, length - margin).is_some()
}

fn evidence(patches: &[Counts]) -> Evidence {
    let mut out = Evidence::default();
    let mut followed = 0.0;
    for [n, on, unknown, rays, through] in patches {
        out.on += on / n;
        out.unknown += unknown / n;
        if *rays > 0.0 {
            followed += 1.0;
            out.through += through / rays;
        }
    }
    let n = patches.len().max(1) as f64;
    let gone = out.through;
    let off = n - out.on;
    let ratio = |right: f64, wrong: f64| libm::log(right / wrong);
    out.score = out.on * ratio(RIGHT, WRONG)
        + off * ratio(1.0 - RIGHT, 1.0 - WRONG)
        + gone * ratio(RIGHT_THROUGH, WRONG_THROUGH)
        + (followed - gone) * ratio(1.0 - RIGHT_THROUGH, 1.0 - WRONG_THROUGH);
    out.on /= n;
    out.unknown /= n;
    out.through /= followed.max(1.0);
    out
}
