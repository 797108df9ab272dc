//! A building made from a seed: a corridor with rooms on both sides, doors, pillars, furniture,
//! and a tour through it that a robot can drive.

use super::random::Random;
use super::route::{Route, Spot};
use super::scene::{block, column, Area, Scene};
use super::world::{Kind, Solid, World};
use crate::geometry::Vector;
use std::ops::Range;

/// Room kept free of furniture on each side of the path, m.
const FURNITURE_CLEARANCE: f64 = 0.6;
/// Thickness of an inner wall, m.
const WALL: f64 = 0.15;
/// Height of a door, m.
const DOOR_HEIGHT: f64 = 2.05;
/// The rooms that are the same where twins are asked for, by their order from the west in the
/// northern row. Both have a partner in the west and a blank wall in the east.
const TWINS: [usize; 2] = [1, 3];

pub(super) struct Plan {
    random: Random,
    twins: bool,
    size: [f64; 3],
    solids: Vec<Solid>,
    rooms: Vec<Area>,
    /// The solids that stand in each room.
    furniture: Vec<Range<usize>>,
    corridor: Area,
    doors: Vec<Spot>,
    tour: Vec<Spot>,
}

#[derive(Clone, Copy)]
struct Opening {
    at: f64,
    width: f64,
}

impl Plan {
    pub(super) fn draw(mut random: Random, twins: bool) -> Self {
        let size = [random.between(34.0, 46.0), random.between(20.0, 27.0), random.between(2.7, 3.3)];
        let south = size[1] * random.between(0.38, 0.52);
        let corridor = [0.0, size[0], south, south + random.between(2.3, 3.0)];
        let mut plan = Self {
            random,
            twins,
            size,
            solids: Vec::new(),
            rooms: Vec::new(),
            furniture: Vec::new(),
            corridor,
            doors: Vec::new(),
            tour: Vec::new(),
        };
        plan.rows_of_rooms();
        plan.outer_walls();
        plan
    }

    pub(super) fn finish(mut self) -> Option<Scene> {
        let route = Route::through(&self.tour);
        let copied = if self.twins { Some(TWINS) } else { None };
        for (index, room) in self.rooms.clone().into_iter().enumerate() {
            let mark = self.solids.len();
            match copied {
                Some([first, second]) if index == second => self.copy_furniture(first, second),
                _ => self.furnish(room, &route),
            }
            self.furniture.push(mark..self.solids.len());
        }
        self.dress_corridor(&route);
        let [length, width, height] = self.size;
        let world = World::new([length, width], Some(height), self.solids);
        let areas: Vec<Area> = self.rooms.iter().copied().chain([self.corridor; 4]).collect();
        let twins =
            copied.and_then(|[first, second]| Some([*self.rooms.get(first)?, *self.rooms.get(second)?]));
        Some(Scene { twins, ..Scene::checked(world, route, &areas, &mut self.random)? })
    }

    /// The furniture of one room in another one. What the tour touches there is noticed later.
    fn copy_furniture(&mut self, from: usize, to: usize) {
        let shift = self.rooms[to][0] - self.rooms[from][0];
        let copies: Vec<Solid> = self.solids[self.furniture[from].clone()]
            .iter()
            .map(|s| Solid { center: s.center + Vector::new(shift, 0.0, 0.0), ..*s })
            .collect();
        self.solids.extend(copies);
    }

    /// Rooms on both sides of the corridor, walls between them, doors, and the tour through them:
    /// eastwards through the northern rooms, two by two, and back through the southern ones.
    fn rows_of_rooms(&mut self) {
        let [length, width, _] = self.size;
        let [_, _, south, north] = self.corridor;
        let middle = (south + north) / 2.0;
        for (northern, wall) in [(true, north), (false, south)] {
            let count = self.random.below(3) + 5;
            let mut shares: Vec<f64> = (0..count).map(|_| self.random.between(0.7, 1.5)).collect();
            let twins = self.twins && northern;
            if twins {
                shares[TWINS[1]] = shares[TWINS[0]];
            }
            let total: f64 = shares.iter().sum();
            let mut edges = vec![0.0];
            for share in &shares {
                edges.push(edges.last().copied().unwrap_or(0.0) + share / total * length);
            }
            let depth = if northern { width - wall } else { wall };
            let mut corridor_doors: Vec<Opening> = Vec::new();
            // Of the doors between two rooms, by the room in the east.
            let mut inner_doors: Vec<Option<Opening>> = Vec::new();
            let mut pairs = Vec::new();
            for (i, edge) in edges.windows(2).enumerate() {
                let (from, to) = (edge[0], edge[1]);
                self.rooms.push(if northern { [from, to, wall, width] } else { [from, to, 0.0, wall] });
                // In the half that faces away from the partner room, so that a visit crosses it.
                let share = if i % 2 == 0 { (0.2, 0.4) } else { (0.6, 0.8) };
                let at = from + (to - from) * self.random.between(share.0, share.1);
                let mut door = Opening { at, width: self.random.between(0.95, 1.2) };
                let first = TWINS[0];
                let copied = twins && i == TWINS[1];
                if copied {
                    let shift = from - edges[first];
                    door = Opening { at: corridor_doors[first].at + shift, ..corridor_doors[first] };
                }
                corridor_doors.push(door);
                inner_doors.push(None);
                if i > 0 {
                    let drawn =
                        wall + if northern { 1.0 } else { -1.0 } * depth * self.random.between(0.35, 0.7);
                    let paired = i % 2 == 1;
                    if paired {
                        let door = Opening { at: drawn, width: self.random.between(0.95, 1.2) };
                        inner_doors[i] = if copied { inner_doors[first] } else { Some(door) };
                    }
                    let openings: Vec<Opening> = inner_doors[i].into_iter().collect();
                    let (low, high) = if northern { (wall, width) } else { (0.0, wall) };
                    self.wall([from, low], [from, high], WALL, &openings);
                    if let Some(inner) = inner_doors[i] {
                        pairs.push((corridor_doors[i - 1].at, from, inner.at, door.at));
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
        self.solids.push(block(kind, part, center, size, yaw));
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
                    self.solids.push(column(Kind::Pillar, 0, [x, y], radius, [0.0, self.size[2]]));
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
