//! Every level of the simulation: how large, how noisy, how wrong, and where the figure comes
//! from. Nothing here is derived from the parameters of the registration.

/// The beam pattern and the errors of a spinning LiDAR.
#[derive(Debug, Clone, Copy, PartialEq)]
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

impl LidarLevels {
    /// Velodyne VLP-16 (Puck) data sheet: 16 channels over +15 to -15 degrees, 2 degrees apart;
    /// 0.1 to 0.4 degrees in azimuth at 5 to 20 Hz (0.2 at 10 Hz); up to 100 m; typical range
    /// accuracy +-3 cm, read here as two standard deviations of noise and beam offset together
    /// (2 * sqrt(0.011^2 + 0.010^2) = 0.030). The manual gives 0.5 m as the usual shortest range.
    pub const VLP16: Self = Self {
        beams: 16,
        lowest_deg: -15.0,
        step_deg: 2.0,
        azimuth_deg: 0.2,
        min_range: 0.5,
        max_range: 100.0,
        range_noise: 0.011,
        beam_bias: 0.010,
    };
    /// Hesai PandarXT-32 data sheet: 32 channels over -16 to +15 degrees, 1 degree apart; 0.18
    /// degrees in azimuth at 10 Hz; 0.05 to 120 m; accuracy +-1 cm (typical), precision 0.5 cm
    /// (one standard deviation). The accuracy is read as two standard deviations of the offset.
    pub const XT32: Self = Self {
        beams: 32,
        lowest_deg: -16.0,
        step_deg: 1.0,
        azimuth_deg: 0.18,
        min_range: 0.05,
        max_range: 120.0,
        range_noise: 0.005,
        beam_bias: 0.005,
    };
}

/// Everything else. "Assumed" marks a figure that no source stands behind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// Share of the returns that are lost at random. Assumed: dark and glossy surfaces; the
    /// data sheets give detection ranges at 10 % reflectivity but no rate indoors.
    pub dropout: f64,
    /// Cosine of the incidence below which nothing comes back. Assumed (about 86 degrees).
    pub grazing: f64,
    /// Mount of the sensor on the robot: x y z in m, roll pitch yaw in rad. Assumed: a mast
    /// ahead of the axle, slightly tilted and turned as brackets are.
    pub mount: [f64; 6],
    /// Edge of the voxels that keypoints and map features are sampled with, m. The 3DMatch
    /// benchmark and the FPFH pipelines built on it use 0.05.
    pub voxel: f64,
    /// Distance between two sweeps of the drive that made the map, m. Assumed.
    pub mapping_step: f64,
    /// Standard deviation of the position error of a mapping sweep, m. Published indoor LiDAR
    /// SLAM is within one to a few centimetres after loop closure.
    pub mapping_error: f64,
    /// A right match lies this many voxels off at most, every distance equally often. Measured
    /// on five public 3DMatch pairs with FPFH at 0.05 m: the histogram of the residuals under
    /// the ground truth is flat from 0.6 to 2 voxels.
    pub match_reach: f64,
    /// Share of the wrong matches that fall close by, 2 to 10 voxels off. Measured on the same
    /// pairs: 3 to 11 % of all matches lie 4 to 10 voxels off.
    pub near_miss: f64,
    /// Share of the wrong matches that go to the same spot of another thing of the same kind
    /// (table leg to table leg). Assumed.
    pub alias: f64,
    /// Different map features among the wrong matches of a frame, as a share of their number
    /// (hubs: many to one). Measured on the same pairs: 0.15 to 0.36 of the matches have a target
    /// of their own, the commonest target has 25 to 112.
    pub hub_share: f64,
    /// Relative standard deviation of the share of right matches from frame to frame. Measured
    /// between the frames of a drive it is larger (1.7 to 2.6 % on five outdoor pairs).
    pub inlier_rate_spread: f64,
    /// How much likelier than on a plain face a right match is on an edge, on a corner. Assumed:
    /// descriptors tell corners better than walls.
    pub distinctive: [f64; 3],
    /// Mean weight of right and of wrong matches, and the standard deviation of both, when
    /// weights are asked for. Assumed: descriptor distances tell them apart poorly.
    pub weights: [f64; 3],
    /// Mean speed of the robot, m/s; it varies by a fifth. Usual for indoor service robots.
    pub speed: f64,
    /// Rate of the odometry, Hz. Usual for wheel odometry (20 to 50).
    pub odometry_rate: f64,
    /// Standard deviation of the scale error of the wheels. Borenstein and Feng, "Measurement
    /// and correction of systematic odometry errors" (1996): about 1 % after calibration.
    pub wheel_scale: f64,
    /// Slip: standard deviation of the distance after one metre, m. Assumed.
    pub wheel_slip: f64,
    /// Standard deviation of the gyro bias that calibration leaves, rad/s. Assumed: 0.03 deg/s
    /// (the BMI088 data sheet gives 1 deg/s before calibration).
    pub gyro_bias: f64,
    /// Noise density of the gyro, rad/s/sqrt(Hz). BMI088 data sheet: 0.014 deg/s/sqrt(Hz).
    pub gyro_noise: f64,
    /// From the measurement to the correspondences, s. Assumed: features and matching at 10 Hz.
    pub latency: f64,
    /// Walking speed of people, m/s: lowest, highest. Bohannon, "Comfortable and maximum walking
    /// speed of adults" (1997): 1.27 to 1.46 at a comfortable pace; slower indoors is assumed.
    pub walking: [f64; 2],
    /// Radius and height of a person, m. Shoulder breadth of adults is about 0.45.
    pub person: [f64; 2],
    /// A person lets the robot pass at this distance, m. Assumed.
    pub person_gap: f64,
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            dropout: 0.02,
            grazing: 0.07,
            mount: [0.21, 0.02, 0.62, 0.01, 0.05, 0.35],
            voxel: 0.05,
            mapping_step: 0.5,
            mapping_error: 0.01,
            match_reach: 2.0,
            near_miss: 0.08,
            alias: 0.2,
            hub_share: 0.35,
            inlier_rate_spread: 0.25,
            distinctive: [1.0, 2.0, 4.0],
            weights: [0.6, 0.45, 0.15],
            speed: 1.0,
            odometry_rate: 50.0,
            wheel_scale: 0.01,
            wheel_slip: 0.005,
            gyro_bias: 0.0005,
            gyro_noise: 0.00025,
            latency: 0.04,
            walking: [0.8, 1.4],
            person: [0.23, 1.7],
            person_gap: 0.7,
        }
    }
}
