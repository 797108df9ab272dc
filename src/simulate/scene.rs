//! A place to drive through: its surfaces, a tour for the robot, ways for people.

use super::building::Plan;
use super::random::{Purpose, Random};
use super::route::{Route, Spot};
use super::world::{Form, Kind, Solid, World};
use super::{outdoor, tunnel, warehouse};
use crate::geometry::{Point, Vector};

/// What hangs higher than this is in nobody's way, m.
pub(super) const HEADROOM: f64 = 1.9;
/// Room the robot needs on each side of its path, m.
const ROBOT_CLEARANCE: f64 = 0.3;

/// Where a drive takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A floor of offices: a corridor, rooms, furniture.
    Building,
    /// A hall with rows of pallet racks.
    Warehouse,
    /// Streets around blocks of houses, under the open sky.
    Outdoor,
    /// A road tunnel, driven to and fro.
    Tunnel,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Building, Self::Warehouse, Self::Outdoor, Self::Tunnel];
}

/// A place of a seed.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Its surfaces.
    pub world: World,
    /// The tour of the robot.
    pub route: Route,
    /// Straight ways on which people walk to and fro.
    pub walkways: Vec<[Spot; 2]>,
    /// The two rooms that are the same in all they hold, if there are such.
    pub twins: Option<[Area; 2]>,
}

/// What is asked of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// A building with two rooms that are the same in all they hold.
    pub twins: bool,
    /// Blocks of houses of an outdoor place: columns, rows.
    pub blocks: [usize; 2],
}

impl Default for Layout {
    fn default() -> Self {
        Self { twins: false, blocks: [2, 1] }
    }
}

impl Scene {
    /// The place of a seed. Plans whose tour would touch something are drawn again; `None` if none of a hundred is
    /// good.
    pub fn new(place: Place, seed: u64, layout: Layout) -> Option<Self> {
        (0..100).find_map(|attempt| {
            let random = Random::new(seed, Purpose::Scene, attempt);
            match place {
                Place::Building => Plan::draw(random, layout.twins).finish(),
                Place::Warehouse => warehouse::draw(random),
                Place::Outdoor => outdoor::draw(random, layout.blocks),
                Place::Tunnel => tunnel::draw(random),
            }
        })
    }

    /// Draws walkways within the areas, and looks whether the tour is free.
    pub(super) fn checked(world: World, route: Route, areas: &[Area], random: &mut Random) -> Option<Self> {
        let free = route.samples().iter().all(|[x, y]| world.is_clear(*x, *y, HEADROOM, ROBOT_CLEARANCE));
        if !free {
            return None;
        }
        let mut walkways = Vec::new();
        for _ in 0..2000 {
            let [x0, x1, y0, y1] = *areas.get(random.below(areas.len()))?;
            let mut spot = || [random.between(x0, x1), random.between(y0, y1)];
            let way = [spot(), spot()];
            let at = |w: f64, i: usize| way[0][i] + w * (way[1][i] - way[0][i]);
            let length = ((at(1.0, 0) - at(0.0, 0)).powi(2) + (at(1.0, 1) - at(0.0, 1)).powi(2)).sqrt();
            let mut free = (0..=20).map(|k| f64::from(k) / 20.0);
            if length > 2.0 && free.all(|w| world.is_clear(at(w, 0), at(w, 1), HEADROOM, 0.3)) {
                walkways.push(way);
            }
            if walkways.len() == 64 {
                break;
            }
        }
        Some(Self { world, route, walkways, twins: None })
    }

    /// The place after somebody has moved a share of its movable things by `by` (least, most), or
    /// taken away those for which there is no room.
    pub(super) fn changed(&self, share: f64, by: [f64; 2], seed: u64) -> World {
        let mut random = Random::new(seed, Purpose::Change, 0);
        let mut solids = Vec::new();
        let all = self.world.things();
        let mut from = 0;
        while let Some(first) = all.get(from) {
            // A thing is its part 0 and the parts that follow it.
            let parts = all[from + 1..].iter().take_while(|s| s.kind == first.kind && s.part > 0).count();
            let thing = &all[from..=from + parts];
            from += thing.len();
            if !first.kind.movable() || !random.chance(share) {
                solids.extend_from_slice(thing);
                continue;
            }
            let moved = (0..20).find_map(|_| {
                let (sin, cos) = libm::sincos(random.between(0.0, std::f64::consts::TAU));
                let far = random.between(by[0], by[1]);
                let shift = Vector::new(cos * far, sin * far, 0.0);
                let moved: Vec<Solid> =
                    thing.iter().map(|s| Solid { center: s.center + shift, ..*s }).collect();
                let apart = |s: &Solid, [x, y]: Spot| s.distance(x, y) > 2.0 * ROBOT_CLEARANCE;
                let on_route = |s: &Solid| !self.route.samples().iter().step_by(5).all(|p| apart(s, *p));
                let within = |s: &Solid| {
                    let own = |o: &Solid| thing.contains(o);
                    all.iter().any(|o| !own(o) && o.meets(s))
                };
                (!moved.iter().any(|s| on_route(s) || within(s))).then_some(moved)
            });
            solids.extend(moved.unwrap_or_default());
        }
        self.world.with(solids)
    }
}

/// A rectangle of floor: x from, x to, y from, y to, m.
pub type Area = [f64; 4];

/// A block of this size, its centre given, turned about the vertical.
pub(super) fn block(kind: Kind, part: u8, center: [f64; 3], size: [f64; 3], yaw: f64) -> Solid {
    let (sin, cos) = libm::sincos(yaw);
    let form = Form::Block(Vector::from(size) / 2.0);
    Solid { kind, part, center: Point::from(center), turn: [cos, sin], form }
}

/// A block over an area, from one height to another.
pub(super) fn slab(kind: Kind, part: u8, [x0, x1, y0, y1]: Area, [z0, z1]: [f64; 2]) -> Solid {
    let center = [(x0 + x1) / 2.0, (y0 + y1) / 2.0, (z0 + z1) / 2.0];
    block(kind, part, center, [x1 - x0, y1 - y0, z1 - z0], 0.0)
}

/// An upright column from one height to another.
pub(super) fn column(kind: Kind, part: u8, [x, y]: Spot, radius: f64, [z0, z1]: [f64; 2]) -> Solid {
    let form = Form::Column { radius, half_height: (z1 - z0) / 2.0 };
    Solid { kind, part, center: Point::new(x, y, (z0 + z1) / 2.0), turn: [1.0, 0.0], form }
}
