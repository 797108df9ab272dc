//! How the robot moves, and what its wheels and its IMU make of it.

use super::faults::Faults;
use super::levels::{ImuLevels, Levels};
use super::random::{Purpose, Random};
use super::route::Route;
use super::{mount, planar};
use crate::geometry::{Rigid, Vector};

/// How a drive begins.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Departure {
    /// How far along the route, as a share of its length; none: anywhere, by the seed.
    pub begin: Option<f64>,
    /// The route is driven the other way.
    pub reverse: bool,
    /// The robot stands so long first, s.
    pub stand: f64,
}

/// How the robot moves along its route, around it again and again.
#[derive(Debug, Clone)]
pub struct Motion {
    route: Route,
    start: f64,
    speed: f64,
    /// When the robot is carried away, s, and how far along the route, m.
    kidnaps: Vec<(f64, f64)>,
    /// When it stops and drives on, s, and how long it brakes and starts.
    stops: Vec<(f64, f64, f64)>,
}

/// How much later a robot is where it would have been without a stop, s: its speed falls and rises evenly.
fn delay(seconds: f64, (from, to, braking): (f64, f64, f64)) -> f64 {
    // A short stop is all braking.
    let ramp = braking.min(0.5 * (to - from)).max(1e-9);
    let (t, whole) = ((seconds - from).clamp(0.0, to - from), to - from);
    let braked = |t: f64| {
        let t = t.clamp(0.0, ramp);
        0.5 * t * t / ramp
    };
    let stood = (t.min(whole - ramp) - ramp).max(0.0);
    let start = (t - (whole - ramp)).max(0.0);
    braked(t) + stood + start - braked(start)
}

impl Motion {
    pub(super) fn new(route: &Route, speed: f64, departure: &Departure, faults: &Faults, seed: u64) -> Self {
        let length = route.length();
        let along = match departure.begin {
            Some(share) => share * length,
            None => Random::new(seed, Purpose::Route, 0).between(0.0, length),
        };
        let (route, start) = match departure.reverse {
            true => (route.reversed(), length - along),
            false => (route.clone(), along),
        };
        let kidnaps = faults.kidnaps().map(|(at, share)| (at, share * length)).collect();
        // It has come to a stand when the drive begins.
        let braking = faults.braking();
        let stand = (departure.stand > 0.0).then_some((-braking, departure.stand + braking, braking));
        Self { route, start, speed, kidnaps, stops: stand.into_iter().chain(faults.stops()).collect() }
    }

    /// How far it has been carried so far, m.
    fn carried(&self, seconds: f64) -> f64 {
        self.kidnaps.iter().filter(|(at, _)| *at <= seconds).map(|(_, far)| far).sum()
    }

    /// The pose at a time, had it been carried so far. The speed varies by a fifth, with a period of
    /// 8 s.
    fn pose_after(&self, seconds: f64, carried: f64) -> Rigid {
        let rate = std::f64::consts::TAU / 8.0;
        let seconds = seconds - self.stops.iter().map(|stop| delay(seconds, *stop)).sum::<f64>();
        let driven = self.speed * (seconds + 0.2 / rate * (1.0 - libm::cos(rate * seconds)));
        let along = self.start + driven + carried;
        let [x, y] = self.route.spot(along);
        planar(x, y, self.route.heading(along))
    }

    /// `map_t_base` at a time.
    pub fn pose(&self, seconds: f64) -> Rigid {
        self.pose_after(seconds, self.carried(seconds))
    }

    /// How it drove from one time to another, as seen from the earlier pose. Being carried is not
    /// driving.
    fn driven(&self, from: f64, to: f64) -> Rigid {
        let carried = self.carried(to);
        self.pose_after(from, carried).inverse() * self.pose_after(to, carried)
    }
}

/// A tick of the odometry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tick {
    /// Its time, s.
    pub seconds: f64,
    /// Pose of the robot in the odometry frame, which drifts.
    pub odom_t_base: Rigid,
    /// Speed forward, m/s.
    pub forward: f64,
    /// Turn to the left, rad/s.
    pub turn: f64,
}

/// Ticks of the odometry, without end: the first at the identity, then drifting.
pub(super) struct Odometry<'a> {
    motion: &'a Motion,
    levels: &'a Levels,
    random: Random,
    scale: f64,
    bias: f64,
    tick: u64,
    pose: [f64; 3],
}

impl<'a> Odometry<'a> {
    pub fn new(motion: &'a Motion, levels: &'a Levels, seed: u64) -> Self {
        let mut random = Random::new(seed, Purpose::Odometry, 0);
        let scale = 1.0 + random.normal(levels.wheel_scale);
        let bias = random.normal(levels.gyro_bias);
        Self { motion, levels, random, scale, bias, tick: 0, pose: [0.0; 3] }
    }
}

impl Iterator for Odometry<'_> {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        let step = 1.0 / self.levels.odometry_rate;
        let time = |tick: u64| tick as f64 / self.levels.odometry_rate;
        let (before, seconds) = (time(self.tick.saturating_sub(1)), time(self.tick));
        let moved = self.motion.driven(before, seconds);
        let distance = moved.translation.vector.norm();
        let turned = 2.0 * libm::atan2(moved.rotation.k, moved.rotation.w);
        let slip = self.random.normal(self.levels.wheel_slip) * distance.sqrt();
        let gyro = match self.tick {
            0 => 0.0,
            _ => self.bias * step + self.random.normal(self.levels.gyro_noise) * step.sqrt(),
        };
        let forward = distance * self.scale + slip;
        let [x, y, yaw] = &mut self.pose;
        let (sin, cos) = libm::sincos(*yaw + turned / 2.0);
        *x += forward * cos;
        *y += forward * sin;
        *yaw += turned + gyro;
        let odom_t_base = planar(*x, *y, *yaw);
        self.tick += 1;
        Some(Tick { seconds, odom_t_base, forward: forward / step, turn: (turned + gyro) / step })
    }
}

/// A sample of the IMU, in its own axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImuSample {
    /// Its time, s.
    pub seconds: f64,
    /// Angular velocity, rad/s.
    pub gyro: Vector,
    /// Acceleration less gravity, m/s^2: upwards when it stands still.
    pub accel: Vector,
}

/// Half the time over which accelerations are taken, s: what is shorter is the route's, not the
/// robot's.
const REACH: f64 = 0.1;

/// Samples of the IMU, without end.
pub(super) struct Imu<'a> {
    motion: &'a Motion,
    levels: &'a ImuLevels,
    random: Random,
    base_t_imu: Rigid,
    gyro_bias: Vector,
    accel_bias: Vector,
    sample: u64,
}

impl<'a> Imu<'a> {
    pub fn new(motion: &'a Motion, levels: &'a ImuLevels, seed: u64) -> Self {
        let mut random = Random::new(seed, Purpose::Imu, 0);
        let gyro_bias = noise(&mut random, levels.gyro_bias);
        let accel_bias = noise(&mut random, levels.accel_bias);
        let base_t_imu = mount(&levels.mount);
        Self { motion, levels, random, base_t_imu, gyro_bias, accel_bias, sample: 0 }
    }
}

fn noise(random: &mut Random, sigma: f64) -> Vector {
    Vector::from_fn(|_, _| random.normal(sigma))
}

impl Iterator for Imu<'_> {
    type Item = ImuSample;

    fn next(&mut self) -> Option<ImuSample> {
        let seconds = self.sample as f64 / self.levels.rate;
        self.sample += 1;
        let carried = self.motion.carried(seconds);
        let [before, now, after] = [-REACH, 0.0, REACH]
            .map(|offset| self.motion.pose_after(seconds + offset, carried) * self.base_t_imu);
        let at = |pose: &Rigid| pose.translation.vector;
        let acceleration = (at(&before) + at(&after) - 2.0 * at(&now)) / (REACH * REACH);
        let force = acceleration + Vector::new(0.0, 0.0, self.levels.gravity);
        // A turn about the vertical, whose half sine and cosine are those of the poses.
        let turned = after.rotation * before.rotation.inverse();
        let rate = 2.0 * libm::atan2(turned.k * turned.w.signum(), turned.w.abs()) / (2.0 * REACH);
        let to_imu = now.rotation.inverse();
        let spread = self.levels.rate.sqrt();
        let gyro_noise = noise(&mut self.random, self.levels.gyro_noise * spread);
        let accel_noise = noise(&mut self.random, self.levels.accel_noise * spread);
        Some(ImuSample {
            seconds,
            gyro: to_imu * Vector::new(0.0, 0.0, rate) + self.gyro_bias + gyro_noise,
            accel: to_imu * force + self.accel_bias + accel_noise,
        })
    }
}
