//! A building made from a seed: a corridor with rooms on both sides, doors, pillars, furniture,
//! and a tour through it that a robot can drive.

use super::random::{Purpose, Random};
use super::route::{Route, Spot};
use super::world::{Form, Kind, Solid, World};
use crate::geometry::{Point, Vector};

/// Room the robot needs on each side of its path, m.
const ROBOT_CLEARANCE: f64 = 0.3;
/// Room kept free of furniture on each side of the path, m.
const FURNITURE_CLEARANCE: f64 = 0.6;
/// Thickness of an inner wall, m.
const WALL: f64 = 0.15;
/// What hangs higher than this is in nobody's way, m.
const HEADROOM: f64 = 1.9;
/// Height of a door, m.
const DOOR_HEIGHT: f64 = 2.05;

/// A building and the ways through it.
#[derive(Debug, Clone)]
pub struct Building {
    /// Its surfaces.
    pub world: World,
    /// The tour of the robot.
    pub route: Route,
    /// Straight ways on which people walk to and fro.
    pub walkways: Vec<[Spot; 2]>,
}

impl Building {
    /// The building of a seed. Plans whose tour would touch something are drawn again; `None` if
    /// none of a hundred is good.
    pub fn new(seed: u64) -> Option<Self> {
        (0..100).find_map(|attempt| Plan::draw(Random::new(seed, Purpose::Building, attempt)).finish())
    }
}

/// A rectangle of floor: x from, x to, y from, y to.
type Area = [f64; 4];

struct Plan {
    random: Random,
    size: [f64; 3],
    solids: Vec<Solid>,
    rooms: Vec<Area>,
    corridor: Area,
    doors: Vec<Spot>,
    tour: Vec<Spot>,
}

struct Opening {
    at: f64,
    width: f64,
}

impl Plan {
    fn draw(mut random: Random) -> Self {
        let size = [random.between(34.0, 46.0), random.between(20.0, 27.0), random.between(2.7, 3.3)];
        let south = size[1] * random.between(0.38, 0.52);
        let corridor = [0.0, size[0], south, south + random.between(2.3, 3.0)];
        let mut plan = Self {
            random,
            size,
            solids: Vec::new(),
            rooms: Vec::new(),
            corridor,
            doors: Vec::new(),
            tour: Vec::new(),
        };
        plan.rows_of_rooms();
        plan.outer_walls();
        plan
    }

    fn finish(mut self) -> Option<Building> {
        let route = Route::through(&self.tour);
        for room in self.rooms.clone() {
            self.furnish(room, &route);
        }
        self.dress_corridor(&route);
        let world = World::new(self.size[0], self.size[1], self.size[2], self.solids);
        let free = route.samples().iter().all(|[x, y]| world.clearance(*x, *y, HEADROOM) > ROBOT_CLEARANCE);
        if !free {
            return None;
        }
        let mut walkways = Vec::new();
        let areas: Vec<Area> = self.rooms.iter().copied().chain([self.corridor; 4]).collect();
        for _ in 0..2000 {
            let [x0, x1, y0, y1] = areas[self.random.below(areas.len())];
            let mut spot = || [self.random.between(x0, x1), self.random.between(y0, y1)];
            let way = [spot(), spot()];
            let at = |w: f64, i: usize| way[0][i] + w * (way[1][i] - way[0][i]);
            let length = ((at(1.0, 0) - at(0.0, 0)).powi(2) + (at(1.0, 1) - at(0.0, 1)).powi(2)).sqrt();
            let free = (0..=20).map(|k| f64::from(k) / 20.0);
            if length > 2.0 && free.into_iter().all(|w| world.clearance(at(w, 0), at(w, 1), HEADROOM) > 0.3) {
                walkways.push(way);
            }
            if walkways.len() == 64 {
                break;
            }
        }
        Some(Building { world, route, walkways })
    }

    /// Rooms on both sides of the corridor, walls between them, doors, and the tour through them:
    /// eastwards through the northern rooms, two by two, and back through the southern ones.
    fn rows_of_rooms(&mut self) {
        let [length, width, _] = self.size;
        let [_, _, south, north] = self.corridor;
        let middle = (south + north) / 2.0;
        for (northern, wall) in [(true, north), (false, south)] {
            let count = self.random.below(3) + 5;
            let shares: Vec<f64> = (0..count).map(|_| self.random.between(0.7, 1.5)).collect();
            let total: f64 = shares.iter().sum();
            let mut edges = vec![0.0];
            for share in &shares {
                edges.push(edges.last().copied().unwrap_or(0.0) + share / total * length);
            }
            let depth = if northern { width - wall } else { wall };
            let mut corridor_doors = Vec::new();
            let mut pairs = Vec::new();
            for (i, edge) in edges.windows(2).enumerate() {
                let (from, to) = (edge[0], edge[1]);
                self.rooms.push(if northern { [from, to, wall, width] } else { [from, to, 0.0, wall] });
                // In the half that faces away from the partner room, so that a visit crosses it.
                let share = if i % 2 == 0 { (0.2, 0.4) } else { (0.6, 0.8) };
                let at = from + (to - from) * self.random.between(share.0, share.1);
                corridor_doors.push(Opening { at, width: self.random.between(0.95, 1.2) });
                if i > 0 {
                    let inner =
                        wall + if northern { 1.0 } else { -1.0 } * depth * self.random.between(0.35, 0.7);
                    let paired = i % 2 == 1;
                    let openings: Vec<Opening> = if paired {
                        vec![Opening { at: inner, width: self.random.between(0.95, 1.2) }]
                    } else {
                        Vec::new()
                    };
                    let (low, high) = if northern { (wall, width) } else { (0.0, wall) };
                    self.wall([from, low], [from, high], WALL, &openings);
                    if paired {
                        pairs.push((corridor_doors[i - 1].at, from, inner, at));
                    }
                }
            }
            self.wall([0.0, wall], [length, wall], WALL, &corridor_doors);
            if !northern {
                pairs.reverse();
            }
            let away = if northern { 1.0 } else { -1.0 };
            for (west, between, inner, east) in pairs {
                // Eastwards in the north, westwards in the south.
                let (enter, leave) = if northern { (west, east) } else { (east, west) };
                let clamp = |x: f64| x.clamp(1.0, length - 1.0);
                self.tour.extend([
                    [clamp(enter - away * 1.3), middle],
                    [enter, wall - away * 0.5],
                    [enter, wall + away * 0.6],
                    [enter + away * 0.3, inner - away * 0.3],
                    [between - away * 0.7, inner],
                    [between + away * 0.6, inner],
                    [leave - away * 0.3, inner - away * 0.3],
                    [leave, wall + away * 0.6],
                    [leave, wall - away * 0.5],
                    [clamp(leave + away * 1.3), middle],
                ]);
            }
        }
    }

    fn outer_walls(&mut self) {
        let [length, width, _] = self.size;
        for (from, to) in [
            ([0.0, 0.0], [length, 0.0]),
            ([0.0, width], [length, width]),
            ([0.0, 0.0], [0.0, width]),
            ([length, 0.0], [length, width]),
        ] {
            self.wall(from, to, 2.0 * WALL, &[]);
        }
    }

    fn block(&mut self, kind: Kind, part: u8, center: [f64; 3], size: [f64; 3], yaw: f64) {
        let (sin, cos) = libm::sincos(yaw);
        self.solids.push(Solid {
            kind,
            part,
            center: Point::from(center),
            turn: [cos, sin],
            form: Form::Block(Vector::from(size) / 2.0),
        });
    }

    /// A wall along x or y from the floor to the ceiling, with doors in it and frames in the doors.
    fn wall(&mut self, from: Spot, to: Spot, thickness: f64, openings: &[Opening]) {
        let axis = usize::from(to[0] == from[0]);
        let across = from[1 - axis];
        let height = self.size[2];
        let put = |plan: &mut Self, kind, part, span: [f64; 2], z: [f64; 2], thick: f64| {
            let mut center = [across, across, (z[0] + z[1]) / 2.0];
            center[axis] = (span[0] + span[1]) / 2.0;
            let mut size = [thick, thick, z[1] - z[0]];
            size[axis] = span[1] - span[0];
            if size.iter().all(|s| *s > 0.0) {
                plan.block(kind, part, center, size, 0.0);
            }
        };
        let mut start = from[axis];
        for Opening { at, width } in openings {
            let (low, high) = (at - width / 2.0, at + width / 2.0);
            put(self, Kind::Wall, 0, [start, low], [0.0, height], thickness);
            put(self, Kind::Wall, 1, [low, high], [DOOR_HEIGHT, height], thickness);
            let frame = thickness + 0.06;
            put(self, Kind::DoorFrame, 0, [low, low + 0.06], [0.0, DOOR_HEIGHT], frame);
            put(self, Kind::DoorFrame, 1, [high - 0.06, high], [0.0, DOOR_HEIGHT], frame);
            put(self, Kind::DoorFrame, 2, [low, high], [DOOR_HEIGHT - 0.06, DOOR_HEIGHT], frame);
            let mut door = [across, across];
            door[axis] = *at;
            self.doors.push(door);
            start = high;
        }
        put(self, Kind::Wall, 0, [start, to[axis]], [0.0, height], thickness);
    }

    /// Keeps what was placed since `mark` if it is clear of the tour, the doors and the rest.
    fn keep_if_free(&mut self, mark: usize, route: &Route) {
        let (old, new) = self.solids.split_at(mark);
        let reach = |s: &Solid| (s.half().x * s.half().x + s.half().y * s.half().y).sqrt();
        let blocked = new.iter().any(|s| {
            route.samples().iter().step_by(5).any(|[x, y]| s.distance(*x, *y) < FURNITURE_CLEARANCE)
                || self.doors.iter().any(|[x, y]| s.distance(*x, *y) < 1.0)
                || old.iter().any(|o| {
                    // Walls are touched on purpose; other things keep apart.
                    !matches!(o.kind, Kind::Wall | Kind::DoorFrame)
                        && o.distance(s.center.x, s.center.y) < reach(s) + 0.05
                })
        });
        if blocked {
            self.solids.truncate(mark);
        }
    }

    fn furnish(&mut self, room: Area, route: &Route) {
        let [x0, x1, y0, y1] = room;
        let area = (x1 - x0) * (y1 - y0);
        for _ in 0..(area / 4.0) as usize {
            let mark = self.solids.len();
            match self.random.below(8) {
                0..=2 => self.against_wall(room),
                3 | 4 => {
                    let spot = self.spot_in(room, 1.3);
                    self.table(spot);
                }
                5 => {
                    let spot = self.spot_in(room, 0.8);
                    self.chair(spot);
                }
                6 if area > 45.0 => {
                    let [x, y] = self.spot_in(room, 1.5);
                    let radius = self.random.between(0.15, 0.28);
                    self.solids.push(Solid {
                        kind: Kind::Pillar,
                        part: 0,
                        center: Point::new(x, y, self.size[2] / 2.0),
                        turn: [1.0, 0.0],
                        form: Form::Column { radius, half_height: self.size[2] / 2.0 },
                    });
                }
                _ => {
                    let [x, y] = self.spot_in(room, 0.7);
                    let yaw = self.random.between(0.0, 3.0);
                    let size = std::array::from_fn(|_| self.random.between(0.3, 0.9));
                    self.block(Kind::Crate, 0, [x, y, size[2] / 2.0], size, yaw);
                }
            }
            self.keep_if_free(mark, route);
        }
    }

    fn spot_in(&mut self, [x0, x1, y0, y1]: Area, margin: f64) -> Spot {
        [
            self.random.between(x0 + margin, (x1 - margin).max(x0 + margin)),
            self.random.between(y0 + margin, (y1 - margin).max(y0 + margin)),
        ]
    }

    fn against_wall(&mut self, [x0, x1, y0, y1]: Area) {
        let tall = self.random.chance(0.5);
        let (kind, height) = if tall {
            (Kind::Shelf, self.random.between(1.5, 2.3))
        } else {
            (Kind::Cabinet, self.random.between(0.7, 1.2))
        };
        let depth = self.random.between(0.3, 0.6);
        let long = self.random.between(0.7, 2.2);
        let gap = depth / 2.0 + WALL + 0.02;
        let side = self.random.below(4);
        let x =
            self.random.between(x0 + long / 2.0 + 0.3, (x1 - long / 2.0 - 0.3).max(x0 + long / 2.0 + 0.3));
        let y =
            self.random.between(y0 + long / 2.0 + 0.3, (y1 - long / 2.0 - 0.3).max(y0 + long / 2.0 + 0.3));
        let (center, size) = match side {
            0 => ([x, y0 + gap], [long, depth]),
            1 => ([x, y1 - gap], [long, depth]),
            2 => ([x0 + gap, y], [depth, long]),
            _ => ([x1 - gap, y], [depth, long]),
        };
        self.block(kind, 0, [center[0], center[1], height / 2.0], [size[0], size[1], height], 0.0);
    }

    /// A block at an offset in the axes of a thing that is turned by `yaw`.
    fn part_of(&mut self, kind: Kind, part: u8, (spot, yaw): (Spot, f64), offset: [f64; 3], size: [f64; 3]) {
        let (sin, cos) = libm::sincos(yaw);
        let x = spot[0] + cos * offset[0] - sin * offset[1];
        let y = spot[1] + sin * offset[0] + cos * offset[1];
        self.block(kind, part, [x, y, offset[2]], size, yaw);
    }

    fn table(&mut self, spot: Spot) {
        let size = [self.random.between(1.0, 1.9), self.random.between(0.6, 0.9)];
        let height = self.random.between(0.70, 0.76);
        let pose = (spot, self.random.between(0.0, 3.1));
        self.part_of(Kind::Table, 0, pose, [0.0, 0.0, height - 0.015], [size[0], size[1], 0.03]);
        for (part, (sx, sy)) in [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)].into_iter().enumerate() {
            let offset = [sx * (size[0] / 2.0 - 0.05), sy * (size[1] / 2.0 - 0.05), (height - 0.03) / 2.0];
            self.part_of(Kind::Table, 1 + part as u8, pose, offset, [0.05, 0.05, height - 0.03]);
        }
    }

    fn chair(&mut self, spot: Spot) {
        let pose = (spot, self.random.between(0.0, 6.2));
        self.part_of(Kind::Chair, 0, pose, [0.0, 0.0, 0.44], [0.45, 0.45, 0.05]);
        self.part_of(Kind::Chair, 1, pose, [-0.21, 0.0, 0.68], [0.03, 0.42, 0.42]);
        for (part, (sx, sy)) in [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)].into_iter().enumerate() {
            self.part_of(Kind::Chair, 2 + part as u8, pose, [sx * 0.2, sy * 0.2, 0.21], [0.03, 0.03, 0.42]);
        }
    }

    fn dress_corridor(&mut self, route: &Route) {
        let [_, length, south, north] = self.corridor;
        for (wall, inward) in [(south, 1.0), (north, -1.0)] {
            let mut x = self.random.between(0.8, 3.0);
            while x < length - 0.8 {
                let mark = self.solids.len();
                let (kind, size) = match self.random.below(3) {
                    0 => (Kind::Pilaster, [self.random.between(0.25, 0.5), 0.12, self.size[2]]),
                    1 => (
                        Kind::Cabinet,
                        [
                            self.random.between(0.5, 1.4),
                            self.random.between(0.2, 0.35),
                            self.random.between(0.5, 1.1),
                        ],
                    ),
                    _ => (Kind::Pilaster, [self.random.between(0.1, 0.2), 0.1, self.size[2]]),
                };
                let y = wall + inward * (WALL / 2.0 + size[1] / 2.0);
                self.block(kind, 0, [x, y, size[2] / 2.0], size, 0.0);
                self.keep_if_free(mark, route);
                x += self.random.between(0.9, 4.5);
            }
        }
    }
}
