//! Tracking: each scan is aligned to the map where odometry puts it.

use super::places::{judge_expected, jumped, predicted};
use super::search::{Engine, PlaceCandidate};
use super::{Answer, Scan};
use crate::geometry::{pose_error, Rigid};
use crate::localizer::dense::{Alignment, Evidence};
use crate::messages::Stamp;
use crate::params::Params;
use crate::status::Status;
use nalgebra::Matrix6;

/// How far a prediction may be off, voxels.
const OFF: f64 = 3.0;
/// Scans in a row of which next to nothing lies on the map: the robot was carried away.
const PLAIN: u32 = 3;
/// What is next to nothing: a share of the smallest overlap.
const NOTHING: f64 = 0.5;

/// A pose that is known, and how surely.
#[derive(Debug, Clone)]
pub struct Tracked {
    pub map_t_odom: Rigid,
    /// Of the pose of the sensor in the map.
    covariance: Matrix6<f64>,
    /// Where odometry had the sensor, and when, at the last scan that fitted.
    odom_t_sensor: Rigid,
    stamp: Stamp,
    /// Scans in a row that are plainly elsewhere.
    elsewhere: u32,
}

impl Tracked {
    pub(super) fn new(alignment: &Alignment, scan: &Scan) -> Self {
        Self {
            map_t_odom: alignment.map_t_sensor * scan.odom_t_sensor.inverse(),
            covariance: alignment.covariance,
            odom_t_sensor: scan.odom_t_sensor,
            stamp: scan.stamp,
            elsewhere: 0,
        }
    }

    /// Pose of the sensor at the last scan that fitted.
    pub fn map_t_sensor(&self) -> Rigid {
        self.map_t_odom * self.odom_t_sensor
    }

    /// The frame of the odometry is another one; the robot is taken not to have moved meanwhile.
    pub fn rebase(&mut self, odom_t_sensor: &Rigid) {
        self.map_t_odom = self.map_t_sensor() * odom_t_sensor.inverse();
        self.odom_t_sensor = *odom_t_sensor;
    }

    /// It has not fitted for too long, or plainly not.
    pub fn is_lost(&self, now: Stamp, params: &Params) -> bool {
        self.elsewhere >= PLAIN || now.seconds_since(self.stamp) > params.localization.lost_sec
    }

    /// Aligns a scan; true if it fits.
    pub(super) fn step(
        &mut self,
        engine: &mut Engine,
        scan: &Scan,
        params: &Params,
        answer: &mut Answer,
    ) -> bool {
        let started = std::time::Instant::now();
        let voxel = engine.index.voxel();
        let guess = self.map_t_odom * scan.odom_t_sensor;
        let moved = pose_error(&self.odom_t_sensor, &scan.odom_t_sensor);
        let prior = predicted(&self.covariance, moved, voxel);
        let PlaceCandidate { alignment, evidence } =
            engine.lay(&scan.surface, &guess, Some(&prior), OFF * voxel);
        let mut status = judge_expected(&alignment, &evidence, params, &mut answer.why);
        if status == Status::Ok && jumped(&guess, &alignment.map_t_sensor, &(prior + alignment.covariance)) {
            answer.why.push_str("the scan fits, but not where odometry puts it");
            status = Status::LowOverlap;
        }
        answer.status = Some(status);
        answer.take(&alignment, &evidence);
        answer.margin = 1.0;
        if status == Status::Ok {
            *self = Self::new(&alignment, scan);
        } else if evidence.on < NOTHING * params.localization.min_overlap {
            self.elsewhere += 1;
        } else {
            self.elsewhere = 0;
        }
        answer.times.track = started.elapsed().as_secs_f64() * 1e6;
        status == Status::Ok
    }
}

impl Answer {
    /// The pose of an alignment.
    pub(super) fn take(&mut self, alignment: &Alignment, evidence: &Evidence) {
        self.map_t_sensor = Some(alignment.map_t_sensor);
        self.covariance = alignment.covariance;
        self.inliers = alignment.inliers;
        self.overlap = evidence.on;
        self.score = evidence.score;
    }
}
