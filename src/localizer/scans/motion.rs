//! How the sensor moves between scans: by odometry, or without it as it did before.

use crate::geometry::Rigid;
use crate::messages::Stamp;
use nalgebra::{Translation3, UnitQuaternion, Vector3};

/// Longest time over which a motion is taken to go on, s.
const LONGEST: f64 = 0.5;

/// Where the sensor is in a frame that does not jump.
#[derive(Debug, Default)]
pub struct Motion {
    /// Odometry is there, since the last scan.
    by_odometry: Option<bool>,
    /// Without odometry: the last pose that was measured or foretold.
    last: Option<(Stamp, Rigid)>,
    /// Without odometry: m/s and rad/s in the axes of the sensor.
    velocity: Option<[Vector3<f64>; 2]>,
    /// The last measured pose in the map.
    measured: Option<(Stamp, Rigid)>,
}

impl Motion {
    /// Whether odometry has come or gone since the last scan.
    pub fn has_changed(&mut self, by_odometry: bool) -> bool {
        let before = self.by_odometry.replace(by_odometry);
        before.is_some_and(|before| before != by_odometry)
    }

    /// Pose of the sensor in the frame of the odometry, or in the one that takes its place.
    pub fn at(&mut self, stamp: Stamp, odom_t_sensor: Option<Rigid>) -> Rigid {
        if let Some(odom_t_sensor) = odom_t_sensor {
            return odom_t_sensor;
        }
        let pose = match (self.last, self.velocity) {
            (Some((then, pose)), Some([linear, angular])) => {
                let seconds = stamp.seconds_since(then).clamp(-LONGEST, LONGEST);
                let turn = UnitQuaternion::from_scaled_axis(angular * seconds);
                pose * Rigid::from_parts(Translation3::from(linear * seconds), turn)
            }
            (Some((_, pose)), None) => pose,
            (None, _) => Rigid::identity(),
        };
        self.last = Some((stamp, pose));
        pose
    }

    /// A pose in the map was measured.
    pub fn moved(&mut self, stamp: Stamp, map_t_sensor: Rigid) {
        if let Some((then, pose)) = self.measured.replace((stamp, map_t_sensor)) {
            let seconds = stamp.seconds_since(then);
            if seconds > 0.0 && seconds <= LONGEST {
                let step = pose.inv_mul(&map_t_sensor);
                self.velocity =
                    Some([step.translation.vector / seconds, step.rotation.scaled_axis() / seconds]);
            } else {
                self.velocity = None;
            }
        }
    }

    /// Nothing is known of the motion any more.
    pub fn stop(&mut self) {
        self.velocity = None;
        self.measured = None;
    }
}
