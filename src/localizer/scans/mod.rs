//! Localization by raw clouds in a map that is held here.
//!
//! ```text
//! lost -> places (features, registration, alignment) -> confirming (evidence of several scans) -> tracking -> suspicious -> lost
//! ```
//!
//! A place is a pose of the odometry frame in the map. Without odometry the robot is taken to move as it did.

mod mode;
mod motion;
mod once;
mod pair;
mod places;
mod race;
mod search;
mod times;
mod track;
mod walls;

pub use mode::Mode;
pub use once::Once;
pub use search::{Engine, PlaceCandidate};
pub use times::StageTimes;

use self::motion::Motion;
use self::race::Race;
use self::search::Vertical;
use self::track::Tracked;
use super::found::Found;
use super::map::Map;
use crate::features::{RawCloud, Surface};
use crate::geometry::{Point, Rigid, Vector};
use crate::messages::Stamp;
use crate::params::{Gravity, Params};
use crate::registration::{BackendError, Registrar, RunnerUp};
use crate::status::Status;
use nalgebra::Matrix6;
use std::sync::Arc;
use std::time::Instant;

/// Points of a scan below which it says nothing.
const MIN_POINTS: usize = 50;

/// Where and when a scan was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub stamp: Stamp,
    pub base_t_sensor: Rigid,
    pub odom_t_base: Option<Rigid>,
}

/// A scan on its way.
#[derive(Debug, Default)]
struct Scan {
    stamp: Stamp,
    /// In the frame of the sensor.
    surface: Surface,
    /// Where odometry puts the sensor.
    odom_t_sensor: Rigid,
    base_t_sensor: Rigid,
    /// Up, as the odometry has it, or the base; taken to be exact if the parameters say so.
    vertical: Vertical,
}

/// What came of a scan.
#[derive(Debug, Default)]
struct Answer {
    status: Option<Status>,
    why: String,
    map_t_sensor: Option<Rigid>,
    covariance: Matrix6<f64>,
    others: Vec<RunnerUp>,
    inliers: usize,
    overlap: f64,
    score: f64,
    margin: f64,
    times: StageTimes,
}

/// Localizes raw clouds in a map.
pub(super) struct Scans {
    engine: Option<Engine>,
    /// Those of registrations of scans.
    params: Params,
    motion: Motion,
    scan: Scan,
    race: Race,
    /// The pose that is known, or was until it became suspicious.
    tracked: Option<Tracked>,
    mode: Mode,
    answer: Answer,
}

impl Scans {
    pub fn new(params: &Params) -> Self {
        Self {
            engine: None,
            params: params.clone(),
            motion: Motion::default(),
            scan: Scan::default(),
            race: Race::default(),
            tracked: None,
            mode: Mode::Lost,
            answer: Answer::default(),
        }
    }

    /// Takes a map in place of the one before; what was known of the place is forgotten.
    pub fn set_map(&mut self, map: Arc<Map>, params: &Params) -> Result<(), BackendError> {
        self.engine = Some(Engine::new(map, params)?);
        self.set_params(params);
        self.reset();
        Ok(())
    }

    pub fn map(&self) -> Option<&Arc<Map>> {
        self.engine.as_ref().map(|engine| &engine.map)
    }

    pub fn set_params(&mut self, params: &Params) {
        self.params = match &self.engine {
            Some(engine) => engine.registration_params(params),
            None => params.clone(),
        };
    }

    /// Why the GPU is lost for good.
    pub fn lost(&self) -> Option<&str> {
        self.engine.as_ref().and_then(Engine::lost)
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Forgets the place.
    pub fn reset(&mut self) {
        self.mode = Mode::Lost;
        self.tracked = None;
        self.race.clear();
        self.motion = Motion::default();
    }

    /// Forgets the place; the first to be tried is this pose of the base, which a person or another program gave.
    pub fn hint(&mut self, map_t_base: &Rigid, covariance: &Matrix6<f64>) {
        self.reset();
        self.race.hint(map_t_base, covariance);
    }

    /// The points of the last scan, one a voxel, in the map; none without a pose.
    pub fn aligned(&self) -> impl Iterator<Item = Point> + '_ {
        let pose = self.answer.map_t_sensor;
        pose.into_iter()
            .flat_map(|map_t_sensor| self.scan.surface.points.iter().map(move |p| map_t_sensor * p))
    }

    /// Localizes a scan, whose motion has been undone.
    pub fn localize(&mut self, cloud: &RawCloud, at: &At, registrar: &mut Registrar) -> Found<'_> {
        self.answer.begin();
        if let Some(mut engine) = self.engine.take() {
            self.take_scan(&mut engine, cloud, at);
            self.step(&mut engine, registrar);
            self.engine = Some(engine);
        }
        self.answer.found()
    }

    fn take_scan(&mut self, engine: &mut Engine, cloud: &RawCloud, at: &At) {
        let started = Instant::now();
        let Self { scan, motion, .. } = self;
        let voxel = engine.map.lengths.voxel;
        engine.front.surface(&cloud.points, voxel, Some(Point::origin()), &mut scan.surface);
        scan.stamp = at.stamp;
        scan.base_t_sensor = at.base_t_sensor;
        let odom_t_sensor = at.odom_t_base.map(|odom_t_base| odom_t_base * at.base_t_sensor);
        let is_level = self.params.registration.gravity == Gravity::Odom;
        let level_t_sensor = odom_t_sensor.unwrap_or(at.base_t_sensor);
        let up = level_t_sensor.inverse_transform_vector(&Vector::z());
        scan.vertical = Vertical { up, is_known: is_level && odom_t_sensor.is_some() };
        if motion.has_changed(odom_t_sensor.is_some()) {
            // The frame of the odometry is another one: the pose is taken over, what was accumulated is not.
            self.race.clear();
            scan.odom_t_sensor = motion.at(at.stamp, odom_t_sensor);
            if let Some(tracked) = &mut self.tracked {
                tracked.rebase(&scan.odom_t_sensor);
            }
        } else {
            scan.odom_t_sensor = motion.at(at.stamp, odom_t_sensor);
        }
        self.answer.times.surface = started.elapsed().as_secs_f64() * 1e6;
    }

    fn step(&mut self, engine: &mut Engine, registrar: &mut Registrar) {
        let Self { scan, params, answer, .. } = self;
        if scan.surface.points.len() < MIN_POINTS {
            answer.decline(Status::TooFew, format_args!("{} voxels are occupied", scan.surface.points.len()));
        } else {
            let is_found = match (&mut self.tracked, self.mode) {
                (Some(tracked), Mode::Tracking | Mode::Suspicious) => {
                    tracked.step(engine, scan, params, answer)
                }
                _ => match self.race.step(engine, scan, registrar, params, answer) {
                    Some(tracked) => {
                        self.tracked = Some(tracked);
                        self.race.clear();
                        true
                    }
                    None => false,
                },
            };
            if is_found {
                if let Some(tracked) = &self.tracked {
                    self.motion.moved(scan.stamp, tracked.map_t_sensor());
                }
            }
        }
        self.mode = self.next_mode();
    }

    fn next_mode(&mut self) -> Mode {
        let is_ok = self.answer.status == Some(Status::Ok);
        match (&self.tracked, self.mode) {
            (Some(_), _) if is_ok => Mode::Tracking,
            (Some(tracked), _) if tracked.is_lost(self.scan.stamp, &self.params) => {
                self.race.clear();
                self.race.remember(tracked);
                self.tracked = None;
                self.motion.stop();
                Mode::Lost
            }
            (Some(_), _) => Mode::Suspicious,
            (None, _) if self.race.is_empty() => Mode::Lost,
            (None, _) => Mode::Confirming,
        }
    }
}

impl Answer {
    fn begin(&mut self) {
        self.status = None;
        self.why.clear();
        self.map_t_sensor = None;
        self.covariance = Matrix6::zeros();
        self.others.clear();
        (self.inliers, self.overlap, self.score, self.margin) = (0, 0.0, 0.0, 0.0);
        self.times = StageTimes::default();
    }

    fn decline(&mut self, status: Status, why: std::fmt::Arguments<'_>) {
        use std::fmt::Write as _;
        self.status = Some(status);
        self.why.clear();
        let _ = self.why.write_fmt(why);
    }

    fn found(&self) -> Found<'_> {
        Found {
            status: self.status.unwrap_or(Status::MissingMap),
            reason: &self.why,
            target_t_source: self.map_t_sensor,
            covariance: &self.covariance,
            others: &self.others,
            inliers: self.inliers,
            overlap: self.overlap,
            independent_inliers: self.inliers,
            inlier_mask: &[],
            log10_false_alarms: -self.score * std::f64::consts::LOG10_E,
            spread: [0.0; 3],
            margin: self.margin,
            stages: self.times.into(),
        }
    }
}
