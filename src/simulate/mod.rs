//! Simulated input: a place, a robot in it, and what its sensors would report.
//!
//! [`Simulation`] is a function of its [`Options`]: the same options give the same bytes on every
//! machine. [`scene`] and [`world`] make the surroundings, [`motion`], [`sensors`] and [`camera`] what
//! is measured in them, [`matching`] the correspondences, [`mod@write`] the files; [`faults`] go wrong
//! on order. Every noise and error level stands in `config/simulation.yaml` with its source and is
//! read by [`levels`]. [`planted`] and [`sights`] make plain problems for measuring, without a place.

mod building;
pub mod camera;
pub mod faults;
pub mod levels;
pub mod matching;
mod message;
pub mod motion;
mod outdoor;
pub mod planted;
mod random;
pub mod route;
pub mod scene;
pub mod sensors;
pub mod sights;
mod tunnel;
mod warehouse;
pub mod world;
pub mod write;

use crate::geometry::{CameraError, Point, Rigid};
use crate::messages::Stamp;
use camera::{Camera, CameraModel, CameraOptions, Scenery, View};
use faults::{Fault, FaultKind, Faults};
use levels::{Levels, LidarLevels};
use matching::{FeatureMap, Match, Wanted};
use motion::{Departure, Imu, ImuSample, Motion, Odometry, Tick};
use nalgebra::{Quaternion, Translation3, UnitQuaternion};
use random::{Purpose, Random};
use rayon::prelude::*;
use scene::{Layout, Place, Scene};
use sensors::{Lidar, People, Return};
use world::World;

/// What is recorded, besides tf and the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topics {
    /// `/correspondences_3d3d`
    pub correspondences: bool,
    /// `/points`
    pub clouds: bool,
    /// `/odom`
    pub odometry: bool,
    /// `/imu`
    pub imu: bool,
    /// `/camera_info`, `/correspondences_2d3d`, `/correspondences_2d2d` and its truth
    pub camera: bool,
}

impl Default for Topics {
    fn default() -> Self {
        Self { correspondences: true, clouds: false, odometry: false, imu: false, camera: false }
    }
}

/// What to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Decides everything that is random.
    pub seed: u64,
    /// Where.
    pub place: Place,
    /// Blocks of houses of an outdoor place: columns, rows.
    pub blocks: [usize; 2],
    /// How the drive begins.
    pub departure: Departure,
    /// Length of the drive, s; when the route is done, it goes around again.
    pub duration: f64,
    /// Sweeps per second, Hz.
    pub rate: f64,
    /// Correspondences per sweep (fewer where the sweep has fewer keypoints).
    pub correspondences: usize,
    /// Share of right matches, on average.
    pub inlier_rate: f64,
    /// People who walk about.
    pub people: usize,
    /// Give right matches somewhat more weight than wrong ones; otherwise all weigh 1, and those of the camera
    /// have none.
    pub weights: bool,
    /// The sensor.
    pub lidar: LidarLevels,
    /// How the camera works, if it is recorded.
    pub camera: CameraOptions,
    /// What is recorded.
    pub topics: Topics,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Stamp of the start of the drive.
    pub start: Stamp,
    /// Everything else.
    pub levels: Levels,
}

impl Default for Options {
    fn default() -> Self {
        let levels = Levels::default();
        Self {
            seed: 1,
            place: Place::Building,
            blocks: Layout::default().blocks,
            departure: Departure::default(),
            duration: 20.0,
            rate: 10.0,
            correspondences: 1500,
            inlier_rate: 0.1,
            people: 8,
            weights: false,
            lidar: levels.lidars["vlp16"],
            camera: CameraOptions::default(),
            topics: Topics::default(),
            faults: Vec::new(),
            start: Stamp::new(1_700_000_000, 0),
            levels,
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
    /// No place could be made.
    #[error("seed {0} gives no place that the robot can drive through; try another")]
    Place(u64),
    /// The fault is one of buildings.
    #[error("identical-rooms: only a building has rooms")]
    NoRooms,
    /// What has no image has no rows.
    #[error("a rolling shutter needs rows: bearings have none")]
    NoRows,
    /// The levels make no camera.
    #[error("camera: {0}")]
    Camera(#[from] CameraError),
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

/// The returns of a turn that takes its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Cloud {
    /// Time of the first firing.
    pub stamp: Stamp,
    /// The returns, each in the sensor frame of its own time.
    pub returns: Vec<Return>,
}

/// A drive through a place.
pub struct Simulation {
    options: Options,
    scene: Scene,
    /// What it looks like during the drive, where that is not what was mapped.
    changed: Option<World>,
    faults: Faults,
    lidar: Lidar,
    people: People,
    motion: Motion,
    map: FeatureMap,
    camera: Option<Camera>,
    base_t_lidar: Rigid,
}

impl Simulation {
    /// Makes the place and its map.
    pub fn new(options: Options) -> Result<Self, SimulateError> {
        check(&options)?;
        let (seed, levels) = (options.seed, &options.levels);
        let faults = Faults::new(&options.faults, options.duration, &levels.faults);
        let twins = faults.has(FaultKind::IdenticalRooms);
        if twins && options.place != Place::Building {
            return Err(SimulateError::NoRooms);
        }
        let layout = Layout { twins, blocks: options.blocks };
        let scene = Scene::new(options.place, seed, layout).ok_or(SimulateError::Place(seed))?;
        let lidar = Lidar::new(options.lidar, levels, seed);
        let base_t_lidar = mount(&levels.mount);
        let map = survey(&scene, &lidar, &base_t_lidar, &options);
        let changed = faults
            .has(FaultKind::ChangedMap)
            .then(|| scene.changed(levels.faults.changed_share, levels.faults.changed_by, seed));
        let camera = match options.topics.camera {
            true => {
                let landmarks = map.distinctive(levels.camera.landmarks, seed);
                Some(Camera::new(levels, &options.camera, options.weights, landmarks)?)
            }
            false => None,
        };
        Ok(Self {
            people: People::new(options.people, &scene.walkways, levels, seed),
            motion: Motion::new(
                &scene.route,
                levels.place(options.place).speed,
                &options.departure,
                &faults,
                seed,
            ),
            options,
            scene,
            changed,
            faults,
            lidar,
            map,
            camera,
            base_t_lidar,
        })
    }

    /// The options it was made from.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The place as it was mapped.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The place as it is during the drive.
    pub fn world(&self) -> &World {
        self.changed.as_ref().unwrap_or(&self.scene.world)
    }

    /// How the robot moves.
    pub fn motion(&self) -> &Motion {
        &self.motion
    }

    /// The camera, if it is recorded.
    pub fn camera(&self) -> Option<&Camera> {
        self.camera.as_ref()
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

    /// Time of a sweep, s from the start.
    fn seconds(&self, index: usize) -> f64 {
        index as f64 / self.options.rate
    }

    fn people_at(&self, seconds: f64, map_t_base: &Rigid) -> Vec<world::Solid> {
        let at = map_t_base.translation.vector;
        self.people.at(seconds, [at.x, at.y])
    }

    /// The truth of a sweep, without its correspondences.
    fn truth(&self, index: usize) -> Frame {
        let map_t_base = self.motion.pose(self.seconds(index));
        Frame {
            stamp: self.stamp(self.seconds(index)),
            map_t_base,
            map_t_lidar: map_t_base * self.base_t_lidar,
            matches: Vec::new(),
        }
    }

    /// A sweep by its number, taken at one instant, as drivers give that undo the robot's motion, and
    /// its correspondences. It depends on nothing but the options and the number.
    pub fn frame(&self, index: usize) -> Frame {
        let mut frame = self.truth(index);
        let people = self.people_at(self.seconds(index), &frame.map_t_base);
        let mut random = Random::new(self.options.seed, Purpose::Sweep, index as u64);
        let sweep = self.lidar.sweep(self.world(), &people, &frame.map_t_lidar, 1, &mut random);
        let wanted = Wanted {
            correspondences: self.options.correspondences,
            inlier_rate: self.options.inlier_rate,
            weights: self.options.weights,
        };
        let mut random = Random::new(self.options.seed, Purpose::Matching, index as u64);
        let levels = &self.options.levels;
        frame.matches =
            matching::correspondences(self.world(), &self.map, &sweep, &wanted, levels, &mut random);
        frame
    }

    /// The same sweep as it is before that: robot and people move while the sensor turns.
    pub fn cloud(&self, index: usize) -> Cloud {
        let mut random = Random::new(self.options.seed, Purpose::Cloud, index as u64);
        let start = self.seconds(index);
        let failing = |kind| self.faults.active(kind, start);
        let mut returns = Vec::new();
        if failing(FaultKind::Empty) {
            return Cloud { stamp: self.stamp(start), returns };
        }
        let field = failing(FaultKind::OnlyGround).then(World::open_field);
        let world = field.as_ref().unwrap_or(self.world());
        let mut people = Vec::new();
        for firing in 0..self.lidar.firings() {
            let seconds = start + self.firing_time(firing);
            let map_t_base = self.motion.pose(seconds);
            // Every hundredth of a turn they have gone a millimetre.
            if field.is_none() && firing % (self.lidar.firings() / 100).max(1) == 0 {
                people = self.people_at(seconds, &map_t_base);
            }
            let map_t_lidar = map_t_base * self.base_t_lidar;
            self.lidar.fire(world, &people, &map_t_lidar, firing, &mut random, &mut returns);
        }
        Cloud { stamp: self.stamp(start), returns }
    }

    /// Time of a firing after the start of its turn, s.
    pub fn firing_time(&self, firing: usize) -> f64 {
        firing as f64 / self.lidar.firings() as f64 / self.options.rate
    }

    /// Views of the camera per second, Hz.
    fn camera_rate(&self) -> f64 {
        self.options.camera.rate.unwrap_or(self.options.rate)
    }

    /// Number of views of the camera, if it is recorded.
    pub fn views(&self) -> usize {
        match self.camera {
            Some(_) => (self.options.duration * self.camera_rate() + 1e-9).floor() as usize,
            None => 0,
        }
    }

    /// The views between a sweep and the next, and after the last one.
    fn views_after(&self, index: usize) -> std::ops::Range<usize> {
        let first = |index: usize| match index < self.frames() {
            true => (self.seconds(index) * self.camera_rate() - 1e-9).ceil() as usize,
            false => self.views(),
        };
        first(index).min(self.views())..first(index + 1).min(self.views())
    }

    /// What the camera reports, if it is recorded.
    pub fn view(&self, index: usize) -> Option<View> {
        let camera = self.camera.as_ref()?;
        let seconds = index as f64 / self.camera_rate();
        let people = self.people_at(seconds, &self.motion.pose(seconds));
        let scenery = Scenery { world: self.world(), people: &people, motion: &self.motion };
        let [mut random, mut weighing] = [Purpose::Camera, Purpose::Weights]
            .map(|purpose| Random::new(self.options.seed, purpose, index as u64));
        Some(camera.view(&scenery, seconds, &mut random, &mut weighing))
    }

    /// The odometry, from the start and without end.
    pub fn odometry(&self) -> impl Iterator<Item = Tick> + '_ {
        Odometry::new(&self.motion, &self.options.levels, self.options.seed)
    }

    /// The IMU, from the start and without end.
    pub fn imu(&self) -> impl Iterator<Item = ImuSample> + '_ {
        Imu::new(&self.motion, &self.options.levels.imu, self.options.seed)
    }

    /// What the clock of the sensors shows, seconds after the start.
    pub fn stamp(&self, seconds: f64) -> Stamp {
        Stamp(self.arrival(seconds).0 - nanoseconds(self.faults.behind(seconds)))
    }

    /// What a clock shows that runs on.
    fn arrival(&self, seconds: f64) -> Stamp {
        Stamp(self.options.start.0 + nanoseconds(seconds))
    }
}

fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

fn check(options: &Options) -> Result<(), SimulateError> {
    let within = |name, value: f64, low: f64, high: f64, range| match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(SimulateError::Option { name, value, range }),
    };
    within("duration", options.duration, 0.1, 86_400.0, "0.1 .. 86400 s")?;
    within("rate", options.rate, 0.1, 50.0, "0.1 .. 50 Hz")?;
    within("correspondences", options.correspondences as f64, 3.0, 32768.0, "3 .. 32768")?;
    within("inlier rate", options.inlier_rate, 0.0, 1.0, "0 .. 1")?;
    for blocks in options.blocks {
        within("blocks", blocks as f64, 1.0, 12.0, "1 .. 12")?;
    }
    let Departure { begin, stand, .. } = options.departure;
    within("begin", begin.unwrap_or(0.0), 0.0, 1.0, "0 .. 1")?;
    within("stand", stand, 0.0, 86_400.0, "0 .. 86400 s")?;
    within("people", options.people as f64, 0.0, 64.0, "0 .. 64")?;
    // The levels that decide how much work it is.
    let (levels, lidar) = (&options.levels, &options.lidar);
    let place = levels.place(options.place);
    within("voxel", place.voxel, 0.01, 1.0, "0.01 .. 1 m")?;
    within("mapping step", place.mapping_step, 0.05, 10.0, "0.05 .. 10 m")?;
    within("speed", place.speed, 0.0, 50.0, "0 .. 50 m/s")?;
    within("IMU rate", levels.imu.rate, 1.0, 2000.0, "1 .. 2000 Hz")?;
    within("odometry rate", levels.odometry_rate, 1.0, 1000.0, "1 .. 1000 Hz")?;
    within("beams", lidar.beams as f64, 1.0, 256.0, "1 .. 256")?;
    within("azimuth step", lidar.azimuth_deg, 0.01, 10.0, "0.01 .. 10 degrees")?;
    let camera = &options.camera;
    within("camera rate", camera.rate.unwrap_or(options.rate), 0.1, 100.0, "0.1 .. 100 Hz")?;
    within("readout", levels.camera.readout, 0.0, 1.0, "0 .. 1 s")?;
    match camera.rolling_shutter && camera.model == CameraModel::Bearings {
        true => Err(SimulateError::NoRows),
        false => Ok(()),
    }
}

/// Mapping sweeps made at once, on all cores.
const MAPPED_AT_ONCE: usize = 16;

/// The map: sweeps along the whole route, without people, each with a small error of its pose.
fn survey(scene: &Scene, lidar: &Lidar, base_t_lidar: &Rigid, options: &Options) -> FeatureMap {
    let place = options.levels.place(options.place);
    let count = (scene.route.length() / place.mapping_step).ceil() as usize;
    let sweep = |index: usize| {
        let mut random = Random::new(options.seed, Purpose::Mapping, index as u64);
        let along = index as f64 * place.mapping_step;
        let [x, y] = scene.route.spot(along);
        let map_t_lidar = planar(x, y, scene.route.heading(along)) * base_t_lidar;
        let returns = lidar.sweep(&scene.world, &[], &map_t_lidar, 2, &mut random);
        let error = random.direction() * random.normal(options.levels.mapping_error);
        (Translation3::from(error) * map_t_lidar, returns)
    };
    // A few at a time: all of them would take a gigabyte.
    let sweeps = (0..count).step_by(MAPPED_AT_ONCE).flat_map(|first| {
        let some = first..count.min(first + MAPPED_AT_ONCE);
        some.into_par_iter().map(sweep).collect::<Vec<_>>()
    });
    FeatureMap::new(&scene.world, sweeps, place.voxel, options.seed)
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
