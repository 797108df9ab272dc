//! Every level of the simulation, read from `config/simulation.yaml`, where each has its source.

use super::scene::Place;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The file that is compiled in.
pub const YAML: &str = include_str!("../../config/simulation.yaml");

/// The beam pattern and the errors of a spinning LiDAR.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LidarLevels {
    /// Number of beams.
    pub beams: usize,
    /// Elevation of the lowest beam, degrees.
    pub lowest_deg: f64,
    /// Angle between two beams, degrees.
    pub step_deg: f64,
    /// Angle between two firings, degrees.
    pub azimuth_deg: f64,
    /// Shortest range, m.
    pub min_range: f64,
    /// Longest range, m.
    pub max_range: f64,
    /// Standard deviation of the range, new for each return, m.
    pub range_noise: f64,
    /// Standard deviation of the range offset of a beam, the same for the whole drive, m.
    pub beam_bias: f64,
}

/// What differs from place to place.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceLevels {
    /// Edge of the voxels that keypoints and map features are sampled with, m.
    pub voxel: f64,
    /// Distance between two sweeps of the drive that made the map, m.
    pub mapping_step: f64,
    /// Mean speed of the robot, m/s; it varies by a fifth.
    pub speed: f64,
}

/// [`PlaceLevels`] of every [`Place`].
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Places {
    pub building: PlaceLevels,
    pub warehouse: PlaceLevels,
    pub outdoor: PlaceLevels,
    pub tunnel: PlaceLevels,
}

/// The IMU.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImuLevels {
    /// Samples a second, Hz.
    pub rate: f64,
    /// Mount on the robot: x y z in m, roll pitch yaw in rad.
    pub mount: [f64; 6],
    /// Gravity, m/s^2.
    pub gravity: f64,
    /// Noise density of the gyro, rad/s/sqrt(Hz).
    pub gyro_noise: f64,
    /// Standard deviation of the bias of each axis of the gyro, rad/s.
    pub gyro_bias: f64,
    /// Noise density of the accelerometer, m/s^2/sqrt(Hz).
    pub accel_noise: f64,
    /// Standard deviation of the bias of each axis of the accelerometer, m/s^2.
    pub accel_bias: f64,
}

/// A fisheye camera.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FisheyeLevels {
    /// Width and height, pixels.
    pub size: [u32; 2],
    /// Focal lengths, pixels.
    pub focal: [f64; 2],
    /// Principal point, pixels.
    pub center: [f64; 2],
    /// `equidistant`: k1 k2 k3 k4.
    pub distortion: [f64; 4],
    /// Largest angle from the axis that is seen, degrees.
    pub max_angle_deg: f64,
}

/// A camera that gives directions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BearingLevels {
    /// Largest angle from the axis that is seen, degrees.
    pub max_angle_deg: f64,
    /// Standard deviation of a direction, each way, rad.
    pub noise: f64,
}

/// The camera and its features.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CameraLevels {
    /// Width and height, pixels.
    pub size: [u32; 2],
    /// Focal lengths, pixels.
    pub focal: [f64; 2],
    /// Principal point, pixels.
    pub center: [f64; 2],
    /// `plumb_bob`: k1 k2 p1 p2 k3.
    pub distortion: [f64; 5],
    /// Mount on the robot, x forward: x y z in m, roll pitch yaw in rad.
    pub mount: [f64; 6],
    /// Shortest and longest distance of a landmark that is seen, m.
    pub range: [f64; 2],
    /// Share of the edges and corners of the map that are landmarks.
    pub landmarks: f64,
    /// Matches of a view, at most.
    pub features: usize,
    /// Standard deviation of a pixel coordinate.
    pub pixel_noise: f64,
    /// Share of right matches.
    pub inlier_rate: f64,
    /// The fisheye camera in place of the size, the intrinsics and the distortion above.
    pub fisheye: FisheyeLevels,
    /// The camera without pixels.
    pub bearings: BearingLevels,
    /// From the first row of the image to the last with a rolling shutter, s.
    pub readout: f64,
    /// Age of the view that 2D-2D matches refer to, s.
    pub reference_age: f64,
    /// From the exposure to the matches, s.
    pub latency: f64,
}

/// Faults that can be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultLevels {
    /// Duration where none is given, s.
    pub duration: f64,
    /// How far stamps fall back, s.
    pub clock_jump: f64,
    /// Share of rows without numbers in a burst.
    pub nan_share: f64,
    /// How long the robot brakes before it stands, and starts afterwards, s.
    pub braking: f64,
    /// How far along the route the robot is put down, as a share of its length.
    pub kidnap: f64,
    /// Share of the movable things that were moved.
    pub changed_share: f64,
    /// How far they were moved, m: least, most.
    pub changed_by: [f64; 2],
}

/// All levels.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    /// The LiDARs that are known, by name.
    pub lidars: BTreeMap<String, LidarLevels>,
    /// By place.
    pub places: Places,
    /// Share of the returns that are lost at random.
    pub dropout: f64,
    /// Cosine of the incidence below which nothing comes back.
    pub grazing: f64,
    /// Mount of the LiDAR on the robot: x y z in m, roll pitch yaw in rad.
    pub mount: [f64; 6],
    /// Reflectivity of surfaces, %: lowest, highest.
    pub reflectivity: [f64; 2],
    /// From the last return of a sweep to its cloud, s.
    pub driver_latency: f64,
    /// Standard deviation of the position error of a mapping sweep, m.
    pub mapping_error: f64,
    /// A right match lies this many voxels off at most, every distance equally often.
    pub match_reach: f64,
    /// Share of the wrong matches that fall close by, 2 to 10 voxels off.
    pub near_miss: f64,
    /// Share of the wrong matches that go to the same spot of another thing of the same kind
    /// (table leg to table leg).
    pub alias: f64,
    /// Different map features among the wrong matches of a frame, as a share of their number
    /// (hubs: many to one).
    pub hub_share: f64,
    /// Relative standard deviation of the share of right matches from frame to frame.
    pub inlier_rate_spread: f64,
    /// How much likelier than on a plain face a right match is on a face, an edge, a corner.
    pub distinctive: [f64; 3],
    /// Mean weight of right and of wrong matches, and the standard deviation of both, when
    /// weights are asked for.
    pub weights: [f64; 3],
    /// From the measurement to the correspondences, s.
    pub latency: f64,
    /// Rate of the odometry, Hz.
    pub odometry_rate: f64,
    /// Standard deviation of the scale error of the wheels.
    pub wheel_scale: f64,
    /// Slip: standard deviation of the distance after one metre, m.
    pub wheel_slip: f64,
    /// Standard deviation of the bias that calibration leaves to the odometry's gyro, rad/s.
    pub gyro_bias: f64,
    /// Noise density of the odometry's gyro, rad/s/sqrt(Hz).
    pub gyro_noise: f64,
    /// The IMU.
    pub imu: ImuLevels,
    /// The camera.
    pub camera: CameraLevels,
    /// Walking speed of people, m/s: lowest, highest.
    pub walking: [f64; 2],
    /// Radius and height of a person, m.
    pub person: [f64; 2],
    /// A person lets the robot pass at this distance, m.
    pub person_gap: f64,
    /// The faults.
    pub faults: FaultLevels,
}

/// Why a file of levels cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LevelsError {
    /// Not YAML, or a value is missing, unknown or of the wrong type.
    #[error(transparent)]
    Yaml(#[from] serde_yaml::Error),
    /// The LiDAR is not in the file.
    #[error("no LiDAR '{name}'; known are {known}")]
    NoLidar {
        /// what was asked for
        name: String,
        /// what there is
        known: String,
    },
}

impl Levels {
    /// Reads the levels from text in the form of [`YAML`]. Every value must be there, and no other.
    pub fn parse(text: &str) -> Result<Self, LevelsError> {
        Ok(serde_yaml::from_str(text)?)
    }

    /// The levels of a place.
    pub fn place(&self, place: Place) -> &PlaceLevels {
        match place {
            Place::Building => &self.places.building,
            Place::Warehouse => &self.places.warehouse,
            Place::Outdoor => &self.places.outdoor,
            Place::Tunnel => &self.places.tunnel,
        }
    }

    /// A LiDAR by its name.
    pub fn lidar(&self, name: &str) -> Result<LidarLevels, LevelsError> {
        self.lidars.get(name).copied().ok_or_else(|| LevelsError::NoLidar {
            name: name.to_owned(),
            known: self.lidars.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }
}

impl Default for Levels {
    /// Those that are compiled in.
    fn default() -> Self {
        static PARSED: OnceLock<Levels> = OnceLock::new();
        PARSED.get_or_init(|| Self::parse(YAML).expect("a test reads this file")).clone()
    }
}
