//! Simulated input: a building, a robot in it, and what its sensors would report.
//!
//! [`Simulation`] is a function of its [`Options`]: the same options give the same bytes on every
//! machine. [`building`] and [`world`] make the surroundings, [`sensors`] what is measured in
//! them, [`matching`] the correspondences, [`mod@write`] the files; every noise and error level
//! stands in [`levels`] with its source. [`planted`] makes plain problems for measuring, without a
//! building.

pub mod building;
pub mod levels;
pub mod matching;
pub mod planted;
mod random;
pub mod route;
pub mod sensors;
pub mod world;
pub mod write;

use crate::geometry::{Point, Rigid};
use crate::messages::Stamp;
use building::Building;
use levels::{Levels, LidarLevels};
use matching::{FeatureMap, Match, Wanted};
use nalgebra::{Quaternion, Translation3, UnitQuaternion};
use random::{Purpose, Random};
use rayon::prelude::*;
use sensors::{Lidar, Motion, People};

/// What to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Decides everything that is random.
    pub seed: u64,
    /// Length of the drive, s.
    pub duration: f64,
    /// Sweeps per second, Hz.
    pub rate: f64,
    /// Correspondences per sweep (fewer where the sweep has fewer keypoints).
    pub correspondences: usize,
    /// Share of right matches, on average.
    pub inlier_rate: f64,
    /// People who walk about.
    pub people: usize,
    /// Give right matches somewhat more weight than wrong ones; otherwise all weigh 1.
    pub weights: bool,
    /// The sensor.
    pub lidar: LidarLevels,
    /// Stamp of the start of the drive.
    pub start: Stamp,
    /// Everything else.
    pub levels: Levels,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            duration: 20.0,
            rate: 10.0,
            correspondences: 1500,
            inlier_rate: 0.1,
            people: 8,
            weights: false,
            lidar: LidarLevels::VLP16,
            start: Stamp::new(1_700_000_000, 0),
            levels: Levels::default(),
        }
    }
}

/// Why a simulation cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// An option is out of range.
    #[error("{name} = {value} is out of range: {range}")]
    Option {
        /// the option
        name: &'static str,
        /// its value
        value: f64,
        /// what is allowed
        range: &'static str,
    },
    /// No building could be made.
    #[error("seed {0} gives no building that the robot can drive through; try another")]
    Building(u64),
}

/// One sweep and its correspondences.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Time of the measurement.
    pub stamp: Stamp,
    /// True pose of the robot.
    pub map_t_base: Rigid,
    /// True pose of the sensor: the answer to the registration.
    pub map_t_lidar: Rigid,
    /// The correspondences.
    pub matches: Vec<Match>,
}

impl Frame {
    /// Number of right matches.
    pub fn right(&self) -> usize {
        self.matches.iter().filter(|m| m.origin == matching::Origin::Right).count()
    }
}

/// A tick of the odometry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OdometryTick {
    /// Its time.
    pub stamp: Stamp,
    /// Pose of the robot in the odometry frame, which drifts.
    pub odom_t_base: Rigid,
}

/// A drive through a building.
pub struct Simulation {
    options: Options,
    building: Building,
    lidar: Lidar,
    people: People,
    motion: Motion,
    map: FeatureMap,
    base_t_lidar: Rigid,
}

impl Simulation {
    /// Makes the building and its map.
    pub fn new(options: Options) -> Result<Self, SimulateError> {
        check(&options)?;
        let (seed, levels) = (options.seed, options.levels);
        let building = Building::new(seed).ok_or(SimulateError::Building(seed))?;
        let lidar = Lidar::new(options.lidar, &levels, seed);
        let base_t_lidar = mount(&levels.mount);
        let map = survey(&building, &lidar, &base_t_lidar, &levels, seed);
        Ok(Self {
            people: People::new(options.people, &building.walkways, &levels, seed),
            motion: Motion::new(building.route.clone(), &levels, seed),
            options,
            building,
            lidar,
            map,
            base_t_lidar,
        })
    }

    /// The options it was made from.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The building.
    pub fn building(&self) -> &Building {
        &self.building
    }

    /// The features of the map.
    pub fn map(&self) -> &FeatureMap {
        &self.map
    }

    /// Where the sensor sits on the robot.
    pub fn base_t_lidar(&self) -> Rigid {
        self.base_t_lidar
    }

    /// Number of sweeps.
    pub fn frames(&self) -> usize {
        (self.options.duration * self.options.rate + 1e-9).floor() as usize
    }

    /// A sweep by its number. It depends on nothing but the options and the number.
    pub fn frame(&self, index: usize) -> Frame {
        let levels = &self.options.levels;
        let seconds = index as f64 / self.options.rate;
        let map_t_base = self.motion.pose(seconds);
        let map_t_lidar = map_t_base * self.base_t_lidar;
        let at = map_t_base.translation.vector;
        let people = self.people.at(seconds, [at.x, at.y]);
        let mut random = Random::new(self.options.seed, Purpose::Sweep, index as u64);
        let sweep = self.lidar.sweep(&self.building.world, &people, &map_t_lidar, 1, &mut random);
        let wanted = Wanted {
            correspondences: self.options.correspondences,
            inlier_rate: self.options.inlier_rate,
            weights: self.options.weights,
        };
        let mut random = Random::new(self.options.seed, Purpose::Matching, index as u64);
        let matches =
            matching::correspondences(&self.building.world, &self.map, &sweep, &wanted, levels, &mut random);
        Frame { stamp: self.stamp(seconds), map_t_base, map_t_lidar, matches }
    }

    /// The odometry, from the start to just after the last sweep.
    pub fn odometry(&self) -> Vec<OdometryTick> {
        let rate = self.options.levels.odometry_rate;
        let ticks = (self.options.duration * rate).ceil() as usize + 1;
        let poses = sensors::odometry(&self.motion, &self.options.levels, self.options.seed, ticks);
        let stamped = poses.into_iter().enumerate();
        stamped
            .map(|(tick, odom_t_base)| OdometryTick { stamp: self.stamp(tick as f64 / rate), odom_t_base })
            .collect()
    }

    fn stamp(&self, seconds: f64) -> Stamp {
        Stamp(self.options.start.0 + (seconds * 1e9).round() as i64)
    }
}

fn check(options: &Options) -> Result<(), SimulateError> {
    let within = |name, value: f64, low: f64, high: f64, range| match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(SimulateError::Option { name, value, range }),
    };
    within("duration", options.duration, 0.1, 3600.0, "0.1 .. 3600 s")?;
    within("rate", options.rate, 0.1, 50.0, "0.1 .. 50 Hz")?;
    within("correspondences", options.correspondences as f64, 3.0, 32768.0, "3 .. 32768")?;
    within("inlier rate", options.inlier_rate, 0.0, 1.0, "0 .. 1")?;
    within("people", options.people as f64, 0.0, 64.0, "0 .. 64")?;
    // The levels that decide how much work it is.
    let (levels, lidar) = (&options.levels, &options.lidar);
    within("voxel", levels.voxel, 0.01, 1.0, "0.01 .. 1 m")?;
    within("mapping step", levels.mapping_step, 0.05, 10.0, "0.05 .. 10 m")?;
    within("odometry rate", levels.odometry_rate, 1.0, 1000.0, "1 .. 1000 Hz")?;
    within("beams", lidar.beams as f64, 1.0, 256.0, "1 .. 256")?;
    within("azimuth step", lidar.azimuth_deg, 0.01, 10.0, "0.01 .. 10 degrees")
}

/// The map: sweeps along the whole route, without people, each with a small error of its pose.
fn survey(
    building: &Building,
    lidar: &Lidar,
    base_t_lidar: &Rigid,
    levels: &Levels,
    seed: u64,
) -> FeatureMap {
    let count = (building.route.length() / levels.mapping_step).ceil() as usize;
    let sweeps: Vec<_> = (0..count)
        .into_par_iter()
        .map(|index| {
            let mut random = Random::new(seed, Purpose::Mapping, index as u64);
            let along = index as f64 * levels.mapping_step;
            let [x, y] = building.route.spot(along);
            let map_t_lidar = planar(x, y, building.route.heading(along)) * base_t_lidar;
            let returns = lidar.sweep(&building.world, &[], &map_t_lidar, 2, &mut random);
            let error = random.direction() * random.normal(levels.mapping_error);
            (Translation3::from(error) * map_t_lidar, returns)
        })
        .collect();
    FeatureMap::new(&building.world, &sweeps, levels, seed)
}

/// A pose on the floor.
fn planar(x: f64, y: f64, yaw: f64) -> Rigid {
    Rigid::from_parts(Translation3::new(x, y, 0.0), turn([0.0, 0.0, 1.0], yaw))
}

/// A rotation about an axis of length 1, by the functions of `libm`.
fn turn(axis: [f64; 3], angle: f64) -> UnitQuaternion<f64> {
    let (sin, cos) = libm::sincos(angle / 2.0);
    UnitQuaternion::from_quaternion(Quaternion::new(cos, sin * axis[0], sin * axis[1], sin * axis[2]))
}

/// `base_t_lidar` of a mount: x y z, roll pitch yaw about the fixed axes.
fn mount([x, y, z, roll, pitch, yaw]: &[f64; 6]) -> Rigid {
    let rotation = turn([0.0, 0.0, 1.0], *yaw) * turn([0.0, 1.0, 0.0], *pitch) * turn([1.0, 0.0, 0.0], *roll);
    Rigid::from_parts(Point::new(*x, *y, *z).into(), rotation)
}
