//! From a sweep and a map to the correspondences that descriptors would give: few right, most
//! wrong, and wrong in the ways of real descriptors.

use super::levels::Levels;
use super::random::{splitmix, Random};
use super::sensors::Return;
use super::world::{Form, Kind, Solid, World};
use crate::geometry::{Point, Rigid, Vector};
use std::collections::HashMap;

/// A voxel, by its indices.
type Voxel = [i32; 3];

fn voxel_of(p: &Point, edge: f64) -> Voxel {
    std::array::from_fn(|i| (p[i] / edge).floor() as i32)
}

/// What a surface looks like within the reach of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Look {
    /// A level face seen from above or below.
    Level,
    /// An upright face.
    Upright,
    /// A round upright face: a pillar, a person.
    Round,
    /// A level edge.
    LevelEdge,
    /// An upright edge.
    UprightEdge,
    /// A corner.
    Corner,
}

impl Look {
    const COUNT: usize = 6;

    /// 0 for a face, 1 for an edge, 2 for a corner.
    fn order(self) -> usize {
        match self {
            Look::Level | Look::Upright | Look::Round => 0,
            Look::LevelEdge | Look::UprightEdge => 1,
            Look::Corner => 2,
        }
    }

    /// The look of a point in the axes of its solid; `reach` is how far an edge is noticed.
    fn of(form: &Form, local: &Vector, normal: &Vector, reach: f64) -> Self {
        let upright_face = normal.z.abs() < 0.5;
        match form {
            Form::Column { half_height, .. } => match (upright_face, half_height - local.z.abs() < reach) {
                (true, false) => Look::Round,
                (true, true) => Look::LevelEdge,
                (false, _) => Look::Level,
            },
            Form::Block(half) => {
                // The axis of the face is the one on whose boundary the point lies.
                let gap = Vector::from_fn(|i, _| (half[i] - local[i].abs()).abs());
                let face = gap.imin();
                let near = |i: usize| i != face && gap[i] < reach;
                match (0..3).filter(|i| near(*i)).count() {
                    0 if upright_face => Look::Upright,
                    0 => Look::Level,
                    1 if upright_face && !near(2) => Look::UprightEdge,
                    1 => Look::LevelEdge,
                    _ => Look::Corner,
                }
            }
        }
    }
}

/// A feature of the map.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Feature {
    position: Point,
    look: Look,
}

/// The map: one feature per voxel, made from sweeps of an earlier drive without people.
#[derive(Debug, Clone)]
pub struct FeatureMap {
    edge: f64,
    features: Vec<Feature>,
    by_voxel: HashMap<Voxel, u32>,
    by_look: [Vec<u32>; Look::COUNT],
    /// Solids that look alike, by kind and part.
    alike: HashMap<(Kind, u8), Vec<Solid>>,
}

fn look_of(world: &World, r: &Return, reach: f64) -> Look {
    match r.hit.solid.and_then(|s| world.solid(s)) {
        Some(solid) => Look::of(&solid.form, &solid.to_local(&r.surface), &r.hit.normal, reach),
        None => Look::Round,
    }
}

impl FeatureMap {
    /// Samples the sweeps, given in the map frame, with voxels: a feature is the mean of the
    /// points in its voxel.
    pub(super) fn new(
        world: &World,
        sweeps: impl Iterator<Item = (Rigid, Vec<Return>)>,
        edge: f64,
        seed: u64,
    ) -> Self {
        let mut sums: HashMap<Voxel, (Vector, u32, Look)> = HashMap::new();
        for (map_t_lidar, returns) in sweeps {
            for r in &returns {
                let p = map_t_lidar * r.measured;
                let look = || look_of(world, r, 2.0 * edge);
                let entry = sums.entry(voxel_of(&p, edge)).or_insert_with(|| (Vector::zeros(), 0, look()));
                entry.0 += p.coords;
                entry.1 += 1;
            }
        }
        let mut voxels: Vec<_> = sums.into_iter().collect();
        voxels.sort_unstable_by_key(|(voxel, _)| *voxel);
        let mut map = Self {
            edge,
            features: Vec::with_capacity(voxels.len()),
            by_voxel: HashMap::with_capacity(voxels.len()),
            by_look: Default::default(),
            alike: HashMap::new(),
        };
        for (index, (voxel, (sum, count, look))) in (0u32..).zip(voxels) {
            map.features.push(Feature { position: Point::from(sum / f64::from(count)), look });
            map.by_voxel.insert(voxel, index);
            map.by_look[look as usize].push(index);
        }
        // In an order of their own, so that the first of a look can serve as its hubs.
        for list in &mut map.by_look {
            list.sort_unstable_by_key(|i| splitmix(seed ^ splitmix(u64::from(*i))));
        }
        for solid in world.solids() {
            map.alike.entry((solid.kind, solid.part)).or_default().push(*solid);
        }
        map
    }

    /// Number of features.
    pub fn len(&self) -> usize {
        self.features.len()
    }

    /// Where the features are, in the map frame.
    pub fn points(&self) -> impl ExactSizeIterator<Item = Point> + '_ {
        self.features.iter().map(|f| f.position)
    }

    /// A share of the edges and corners, by their index.
    pub(super) fn distinctive(&self, share: f64, seed: u64) -> Vec<(u32, Point)> {
        let limit = (share * u64::MAX as f64) as u64;
        let kept = (0u32..).zip(&self.features).filter(|(index, feature)| {
            feature.look.order() > 0 && splitmix(seed ^ splitmix(!u64::from(*index))) < limit
        });
        kept.map(|(index, feature)| (index, feature.position)).collect()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// The nearest feature to a point, within `reach` voxels (looked for in the voxels around).
    fn nearest(&self, p: &Point, reach: i32) -> Option<u32> {
        let [x, y, z] = voxel_of(p, self.edge);
        let around = -reach..=reach;
        let mut best: Option<(f64, u32)> = None;
        for dx in around.clone() {
            for dy in around.clone() {
                for dz in around.clone() {
                    let Some(index) = self.by_voxel.get(&[x + dx, y + dy, z + dz]) else { continue };
                    let d = (self.position(*index)? - p).norm_squared();
                    if best.is_none_or(|(least, _)| d < least) {
                        best = Some((d, *index));
                    }
                }
            }
        }
        best.map(|(_, index)| index)
    }

    fn position(&self, index: u32) -> Option<Point> {
        self.features.get(index as usize).map(|f| f.position)
    }
}

/// What became of a keypoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Matched to the place it was seen at, or next to it.
    Right,
    /// Matched a few voxels off.
    NearMiss,
    /// Matched to the same spot of another thing of its kind.
    Alias,
    /// Matched to a place that looks alike.
    LookAlike,
}

/// One correspondence, and what it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// Keypoint in the sensor frame, m.
    pub source: Point,
    /// Feature in the map frame, m.
    pub target: Point,
    /// Trust, above zero.
    pub weight: f32,
    /// Index of the feature in the map.
    pub target_id: u32,
    /// Whether it is right, and if not, how it is wrong.
    pub origin: Origin,
}

/// How many matches, and of what kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wanted {
    pub correspondences: usize,
    pub inlier_rate: f64,
    pub weights: bool,
}

struct Keypoint {
    position: Point,
    first: Return,
    look: Look,
}

/// Keypoints of a sweep: the mean of the points in each voxel, in the order of the sweep.
fn keypoints(world: &World, sweep: &[Return], edge: f64) -> Vec<Keypoint> {
    let mut slots: HashMap<Voxel, usize> = HashMap::with_capacity(sweep.len());
    let mut sums: Vec<(Vector, u32, Return)> = Vec::new();
    for r in sweep {
        let slot = *slots.entry(voxel_of(&r.measured, edge)).or_insert(sums.len());
        match sums.get_mut(slot) {
            Some(sum) => {
                sum.0 += r.measured.coords;
                sum.1 += 1;
            }
            None => sums.push((r.measured.coords, 1, *r)),
        }
    }
    sums.into_iter()
        .map(|(sum, count, first)| Keypoint {
            position: Point::from(sum / f64::from(count)),
            look: look_of(world, &first, 2.0 * edge),
            first,
        })
        .collect()
}

/// Matches a sweep with the map.
pub(super) fn correspondences(
    world: &World,
    map: &FeatureMap,
    sweep: &[Return],
    wanted: &Wanted,
    levels: &Levels,
    random: &mut Random,
) -> Vec<Match> {
    let mut points = keypoints(world, sweep, map.edge);
    let all = points.len();
    let n = wanted.correspondences.min(all);
    random.shuffle_front(&mut points, all);
    let rate = wanted.inlier_rate * (1.0 + random.normal(levels.inlier_rate_spread));
    let right = (n as f64 * rate.clamp(0.0, 1.0)).round() as usize;

    // Right matches: drawn by how distinctive the look is (Efraimidis and Spirakis 2006).
    let mut order: Vec<(f64, usize)> = points
        .iter()
        .enumerate()
        .map(|(i, k)| (-libm::log(1.0 - random.unit()) / levels.distinctive[k.look.order()], i))
        .collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut matches = Vec::with_capacity(n);
    let mut used = vec![false; points.len()];
    for (_, i) in order {
        if matches.len() == right {
            break;
        }
        let Some(target_id) = right_target(map, &points[i], levels, random) else { continue };
        used[i] = true;
        matches.push((i, target_id, Origin::Right));
    }

    let wrong: Vec<usize> = (0..all).filter(|i| !used[*i]).take(n - matches.len()).collect();
    let mut hubs = [0.0; Look::COUNT];
    for i in &wrong {
        hubs[points[*i].look as usize] += levels.hub_share;
    }
    for i in wrong {
        let (target, origin) = wrong_target(world, map, &points[i], &hubs, levels, random);
        if let Some(target_id) = target {
            matches.push((i, target_id, origin));
        }
    }
    let n = matches.len();
    random.shuffle_front(&mut matches, n);
    matches
        .into_iter()
        .filter_map(|(i, target_id, origin)| {
            let [right, wrong, spread] = levels.weights;
            let mean = if origin == Origin::Right { right } else { wrong };
            let weight = (mean + random.normal(spread)).clamp(0.05, 1.0) as f32;
            Some(Match {
                source: points[i].position,
                target: map.position(target_id)?,
                weight: if wanted.weights { weight } else { 1.0 },
                target_id,
                origin,
            })
        })
        .collect()
}

/// The feature at the keypoint, or up to a few voxels beside it. None on what moves, and where
/// the map has nothing.
fn right_target(map: &FeatureMap, point: &Keypoint, levels: &Levels, random: &mut Random) -> Option<u32> {
    let far = random.unit() * levels.match_reach;
    let beside = beside(map, point, far, random);
    point.first.hit.solid?;
    map.nearest(&beside, 1)
}

/// A point on the surface around the keypoint, this many voxels off.
fn beside(map: &FeatureMap, point: &Keypoint, voxels: f64, random: &mut Random) -> Point {
    let across = random.direction();
    let normal = point.first.hit.normal;
    let along = (across - normal * normal.dot(&across)).try_normalize(1e-6).unwrap_or(across);
    point.first.surface + along * (voxels * map.edge)
}

fn wrong_target(
    world: &World,
    map: &FeatureMap,
    point: &Keypoint,
    hubs: &[f64; Look::COUNT],
    levels: &Levels,
    random: &mut Random,
) -> (Option<u32>, Origin) {
    let kind = random.unit();
    let solid = point.first.hit.solid.and_then(|s| world.solid(s));
    if let Some(solid) = solid {
        if kind < levels.near_miss {
            let far = random.between(2.0, 10.0);
            let target = map.nearest(&beside(map, point, far, random), 1);
            if target.is_some() {
                return (target, Origin::NearMiss);
            }
        } else if kind < levels.near_miss + levels.alias {
            let others = map.alike.get(&(solid.kind, solid.part)).map_or(&[][..], Vec::as_slice);
            let other = others.get(random.below(others.len())).filter(|o| *o != solid);
            let target = other.and_then(|other| {
                // The same distance from the nearest edges, on the other thing.
                let (local, half, size) = (solid.to_local(&point.first.surface), solid.half(), other.half());
                let same = Vector::from_fn(|i, _| local[i] + (size[i] - half[i]).copysign(local[i]));
                map.nearest(&other.to_world(&same), 1)
            });
            if target.is_some() {
                return (target, Origin::Alias);
            }
        }
    }
    // A place that looks alike: among the hubs of the look, the first ones more often.
    let list = &map.by_look[point.look as usize];
    let pool = list.len().min(hubs[point.look as usize].ceil() as usize);
    let pick = random.unit();
    let target = list.get((pick * pick * pool as f64) as usize).copied();
    (target, Origin::LookAlike)
}
