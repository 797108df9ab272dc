//! What a spinning LiDAR would report, and the people it sees.

use super::levels::{Levels, LidarLevels};
use super::random::{Purpose, Random};
use super::route::Spot;
use super::world::{Form, Hit, Kind, Solid, World};
use crate::geometry::{Point, Rigid, Vector};

/// One return of the LiDAR.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Return {
    /// Where the sensor says it is, in the sensor frame.
    pub measured: Point,
    /// Where the surface is, in the map frame.
    pub surface: Point,
    /// What was hit, with the normal in the map frame.
    pub hit: Hit,
    /// The beam, from the lowest.
    pub beam: u16,
    /// The firing of the turn.
    pub firing: u16,
    /// Cosine of the angle between ray and normal.
    pub incidence: f32,
}

/// A spinning LiDAR, clockwise as seen from above.
#[derive(Debug, Clone)]
pub struct Lidar {
    levels: LidarLevels,
    dropout: f64,
    grazing: f64,
    /// Sine and cosine of the elevation, and range offset, of each beam.
    beams: Vec<[f64; 3]>,
}

impl Lidar {
    /// A sensor; the seed decides the offsets of its beams.
    pub fn new(lidar: LidarLevels, levels: &Levels, seed: u64) -> Self {
        let mut random = Random::new(seed, Purpose::Beams, 0);
        let beams = (0..lidar.beams)
            .map(|beam| {
                let (sin, cos) = libm::sincos((lidar.lowest_deg + lidar.step_deg * beam as f64).to_radians());
                [sin, cos, random.normal(lidar.beam_bias)]
            })
            .collect();
        Self { levels: lidar, dropout: levels.dropout, grazing: levels.grazing, beams }
    }

    /// Firings of a turn.
    pub fn firings(&self) -> usize {
        (360.0 / self.levels.azimuth_deg).round() as usize
    }

    /// One turn at one instant, of which every `stride`-th firing is kept.
    pub(super) fn sweep(
        &self,
        world: &World,
        people: &[Solid],
        map_t_lidar: &Rigid,
        stride: usize,
        random: &mut Random,
    ) -> Vec<Return> {
        let mut returns = Vec::with_capacity(self.firings() / stride.max(1) * self.beams.len());
        for firing in (0..self.firings()).step_by(stride.max(1)) {
            self.fire(world, people, map_t_lidar, firing, random, &mut returns);
        }
        returns
    }

    /// One firing of all beams from a pose.
    pub(super) fn fire(
        &self,
        world: &World,
        people: &[Solid],
        map_t_lidar: &Rigid,
        firing: usize,
        random: &mut Random,
        returns: &mut Vec<Return>,
    ) {
        let origin = Point::from(map_t_lidar.translation.vector);
        let (sin_a, cos_a) = libm::sincos((self.levels.azimuth_deg * firing as f64).to_radians());
        for (beam, [sin_e, cos_e, bias]) in self.beams.iter().enumerate() {
            let ray = Vector::new(cos_e * cos_a, -cos_e * sin_a, *sin_e);
            let direction = map_t_lidar.rotation * ray;
            // The same draws for every ray, so that a lost return does not move the others.
            let noise = random.normal(self.levels.range_noise);
            let lost = random.chance(self.dropout);
            let Some(hit) = first_hit(world, people, &origin, &direction, self.levels.max_range) else {
                continue;
            };
            let incidence = -hit.normal.dot(&direction);
            if hit.range >= self.levels.min_range && incidence >= self.grazing && !lost {
                returns.push(Return {
                    measured: Point::from(ray * (hit.range + bias + noise)),
                    surface: origin + direction * hit.range,
                    hit,
                    beam: beam as u16,
                    firing: firing as u16,
                    incidence: incidence as f32,
                });
            }
        }
    }
}

/// The first thing that a ray meets, people included.
pub(super) fn first_hit(
    world: &World,
    people: &[Solid],
    origin: &Point,
    direction: &Vector,
    max: f64,
) -> Option<Hit> {
    let mut hit = world.cast(origin, direction, max);
    for person in people {
        let limit = hit.map_or(max, |h| h.range);
        if let Some((range, normal)) = person.cast(origin, direction, limit) {
            hit = Some(Hit { range, normal, solid: None });
        }
    }
    hit
}

/// People who walk to and fro on straight ways.
#[derive(Debug, Clone)]
pub struct People {
    /// The way, the speed in m/s and the distance already walked at time 0.
    walks: Vec<([Spot; 2], f64, f64)>,
    person: [f64; 2],
    gap: f64,
}

impl People {
    pub(super) fn new(count: usize, walkways: &[[Spot; 2]], levels: &Levels, seed: u64) -> Self {
        let walks = walkways
            .iter()
            .take(count)
            .enumerate()
            .map(|(index, way)| {
                let mut random = Random::new(seed, Purpose::People, index as u64);
                let speed = random.between(levels.walking[0], levels.walking[1]);
                (*way, speed, random.between(0.0, 60.0))
            })
            .collect();
        Self { walks, person: levels.person, gap: levels.person_gap }
    }

    /// Where they are. Who is in the way of the robot steps aside, out of sight.
    pub fn at(&self, seconds: f64, robot: Spot) -> Vec<Solid> {
        let [radius, height] = self.person;
        let between = |a: Spot, b: Spot| ((a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2)).sqrt();
        self.walks
            .iter()
            .map(|([from, to], speed, walked)| {
                let length = between(*from, *to);
                let along = (walked + speed * seconds).rem_euclid(2.0 * length);
                let w = along.min(2.0 * length - along) / length;
                [from[0] + w * (to[0] - from[0]), from[1] + w * (to[1] - from[1])]
            })
            .filter(|spot| between(*spot, robot) > self.gap)
            .map(|[x, y]| Solid {
                kind: Kind::Person,
                part: 0,
                center: Point::new(x, y, height / 2.0),
                turn: [1.0, 0.0],
                form: Form::Column { radius, half_height: height / 2.0 },
            })
            .collect()
    }
}
