//! What the robot's sensors would report: a spinning LiDAR and wheel odometry with a gyro.

use super::levels::{Levels, LidarLevels};
use super::planar;
use super::random::{Purpose, Random};
use super::route::{Route, Spot};
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
}

/// A spinning LiDAR. A sweep is taken as if at one instant: drivers undo the robot's motion.
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

    /// One turn, of which every `stride`-th firing is kept.
    pub(super) fn sweep(
        &self,
        world: &World,
        people: &[Solid],
        map_t_lidar: &Rigid,
        stride: usize,
        random: &mut Random,
    ) -> Vec<Return> {
        let origin = Point::from(map_t_lidar.translation.vector);
        let firings = (360.0 / self.levels.azimuth_deg) as usize;
        let mut returns = Vec::with_capacity(firings / stride.max(1) * self.beams.len());
        for firing in (0..firings).step_by(stride.max(1)) {
            let (sin_a, cos_a) = libm::sincos((self.levels.azimuth_deg * firing as f64).to_radians());
            for [sin_e, cos_e, bias] in &self.beams {
                let ray = Vector::new(cos_e * cos_a, -cos_e * sin_a, *sin_e);
                let direction = map_t_lidar.rotation * ray;
                // The same draws for every ray, so that a lost return does not move the others.
                let noise = random.normal(self.levels.range_noise);
                let lost = random.chance(self.dropout);
                let mut hit = world.cast(&origin, &direction, self.levels.max_range);
                for person in people {
                    let limit = hit.map_or(self.levels.max_range, |h| h.range);
                    if let Some((range, normal)) = person.cast(&origin, &direction, limit) {
                        hit = Some(Hit { range, normal, solid: None });
                    }
                }
                let Some(hit) = hit else { continue };
                let seen = hit.range >= self.levels.min_range && -hit.normal.dot(&direction) >= self.grazing;
                if seen && !lost {
                    returns.push(Return {
                        measured: Point::from(ray * (hit.range + bias + noise)),
                        surface: origin + direction * hit.range,
                        hit,
                    });
                }
            }
        }
        returns
    }
}

/// People who walk to and fro on straight ways.
#[derive(Debug, Clone)]
pub struct People {
    /// The way, the speed in m/s and the distance already walked at time 0.
    walks: Vec<([Spot; 2], f64, f64)>,
    levels: Levels,
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
        Self { walks, levels: *levels }
    }

    /// Where they are. Who is in the way of the robot steps aside, out of sight.
    pub fn at(&self, seconds: f64, robot: Spot) -> Vec<Solid> {
        let [radius, height] = self.levels.person;
        let between = |a: Spot, b: Spot| ((a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2)).sqrt();
        self.walks
            .iter()
            .map(|([from, to], speed, walked)| {
                let length = between(*from, *to);
                let along = (walked + speed * seconds).rem_euclid(2.0 * length);
                let w = along.min(2.0 * length - along) / length;
                [from[0] + w * (to[0] - from[0]), from[1] + w * (to[1] - from[1])]
            })
            .filter(|spot| between(*spot, robot) > self.levels.person_gap)
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

/// How the robot moves along its route.
#[derive(Debug, Clone)]
pub struct Motion {
    route: Route,
    start: f64,
    speed: f64,
}

impl Motion {
    pub(super) fn new(route: Route, levels: &Levels, seed: u64) -> Self {
        let start = Random::new(seed, Purpose::Route, 0).between(0.0, route.length());
        Self { route, start, speed: levels.speed }
    }

    /// Distance driven: the speed varies by a fifth, with a period of 8 s.
    fn along(&self, seconds: f64) -> f64 {
        let rate = std::f64::consts::TAU / 8.0;
        self.start + self.speed * (seconds + 0.2 / rate * (1.0 - libm::cos(rate * seconds)))
    }

    /// `map_t_base` at a time.
    pub fn pose(&self, seconds: f64) -> Rigid {
        let along = self.along(seconds);
        let [x, y] = self.route.spot(along);
        planar(x, y, self.route.heading(along))
    }
}

/// `odom_t_base` at each tick of the odometry: it starts at the identity and drifts.
pub(super) fn odometry(motion: &Motion, levels: &Levels, seed: u64, ticks: usize) -> Vec<Rigid> {
    let mut random = Random::new(seed, Purpose::Odometry, 0);
    let scale = 1.0 + random.normal(levels.wheel_scale);
    let bias = random.normal(levels.gyro_bias);
    let step = 1.0 / levels.odometry_rate;
    let (mut x, mut y, mut yaw) = (0.0, 0.0, 0.0);
    let mut last = motion.pose(0.0);
    let mut poses = Vec::with_capacity(ticks);
    for tick in 0..ticks {
        let pose = motion.pose(tick as f64 * step);
        let moved = last.inverse() * pose;
        let distance = moved.translation.vector.norm();
        let turned = 2.0 * libm::atan2(moved.rotation.k, moved.rotation.w);
        let slip = random.normal(levels.wheel_slip) * distance.sqrt();
        let gyro = if tick > 0 { bias * step + random.normal(levels.gyro_noise) * step.sqrt() } else { 0.0 };
        let forward = distance * scale + slip;
        let (sin, cos) = libm::sincos(yaw + turned / 2.0);
        x += forward * cos;
        y += forward * sin;
        yaw += turned + gyro;
        poses.push(planar(x, y, yaw));
        last = pose;
    }
    poses
}
