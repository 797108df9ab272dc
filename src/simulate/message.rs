//! The ROS 2 messages that are written, and their definitions.

use super::camera::{Camera, LandmarkMatch, SightMatch};
use super::motion::{ImuSample, Tick};
use super::sensors::Return;
use super::write::{BASE, CAMERA, IMU, LIDAR, ODOM};
use super::{levels, Frame};
use crate::geometry::Rigid;
use crate::geometry::{self, Distortion};
use crate::messages::Stamp;
use serde::{Serialize, Serializer};

/// Name of a type and its definition.
pub(super) type Schema = (&'static str, &'static str);

pub(super) const POINT_CLOUD_2: Schema =
    ("sensor_msgs/msg/PointCloud2", include_str!("schemas/sensor_msgs_PointCloud2.msg"));
pub(super) const TF_MESSAGE: Schema =
    ("tf2_msgs/msg/TFMessage", include_str!("schemas/tf2_msgs_TFMessage.msg"));
pub(super) const POSE_STAMPED: Schema =
    ("geometry_msgs/msg/PoseStamped", include_str!("schemas/geometry_msgs_PoseStamped.msg"));
pub(super) const ODOMETRY: Schema = ("nav_msgs/msg/Odometry", include_str!("schemas/nav_msgs_Odometry.msg"));
pub(super) const IMU_SAMPLE: Schema = ("sensor_msgs/msg/Imu", include_str!("schemas/sensor_msgs_Imu.msg"));
pub(super) const CAMERA_INFO: Schema =
    ("sensor_msgs/msg/CameraInfo", include_str!("schemas/sensor_msgs_CameraInfo.msg"));

#[derive(Serialize)]
struct Time {
    sec: i32,
    nanosec: u32,
}

#[derive(Serialize)]
struct Header {
    stamp: Time,
    frame_id: &'static str,
}

impl Header {
    fn new(stamp: Stamp, frame_id: &'static str) -> Self {
        let nanosec = stamp.0.rem_euclid(1_000_000_000) as u32;
        Self { stamp: Time { sec: stamp.0.div_euclid(1_000_000_000) as i32, nanosec }, frame_id }
    }
}

/// Position and orientation: the layout of both Pose and Transform.
#[derive(Serialize)]
struct Pose {
    position: [f64; 3],
    orientation: [f64; 4],
}

impl From<&Rigid> for Pose {
    fn from(pose: &Rigid) -> Self {
        Self { position: pose.translation.vector.into(), orientation: pose.rotation.coords.into() }
    }
}

#[derive(Serialize)]
struct PoseStamped {
    header: Header,
    pose: Pose,
}

/// A pose in a frame: geometry_msgs/PoseStamped.
pub(super) fn pose(stamp: Stamp, frame: &'static str, pose: &Rigid) -> impl Serialize {
    PoseStamped { header: Header::new(stamp, frame), pose: pose.into() }
}

#[derive(Serialize)]
struct TransformStamped {
    header: Header,
    child_frame_id: &'static str,
    transform: Pose,
}

/// A tf2_msgs/TFMessage of `(parent, child, parent_t_child)`.
pub(super) fn transforms(
    stamp: Stamp,
    all: impl IntoIterator<Item = (&'static str, &'static str, Rigid)>,
) -> impl Serialize {
    let one = |(parent, child, pose): (_, _, Rigid)| TransformStamped {
        header: Header::new(stamp, parent),
        child_frame_id: child,
        transform: (&pose).into(),
    };
    all.into_iter().map(one).collect::<Vec<_>>()
}

/// A matrix of fixed size, row by row, as CDR has it: serde takes arrays only up to 32.
struct Fixed<const N: usize>([f64; N]);

impl<const N: usize> Serialize for Fixed<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(N)?;
        self.0.iter().try_for_each(|v| tuple.serialize_element(v))?;
        tuple.end()
    }
}

#[derive(Serialize)]
struct Odometry {
    header: Header,
    child_frame_id: &'static str,
    pose: Pose,
    pose_covariance: Fixed<36>,
    linear: [f64; 3],
    angular: [f64; 3],
    twist_covariance: Fixed<36>,
}

/// A nav_msgs/Odometry. The covariance of the pose is left at zero, "unknown": it grows without end.
pub(super) fn odometry(stamp: Stamp, tick: &Tick, levels: &levels::Levels) -> impl Serialize {
    let mut twist = [0.0; 36];
    let distance = tick.forward.abs() / levels.odometry_rate;
    let slip = levels.wheel_slip * distance.sqrt() * levels.odometry_rate;
    twist[0] = slip * slip + (levels.wheel_scale * tick.forward).powi(2);
    twist[35] =
        levels.gyro_noise * levels.gyro_noise * levels.odometry_rate + levels.gyro_bias * levels.gyro_bias;
    Odometry {
        header: Header::new(stamp, ODOM),
        child_frame_id: BASE,
        pose: (&tick.odom_t_base).into(),
        pose_covariance: Fixed([0.0; 36]),
        linear: [tick.forward, 0.0, 0.0],
        angular: [0.0, 0.0, tick.turn],
        twist_covariance: Fixed(twist),
    }
}

#[derive(Serialize)]
struct Imu {
    header: Header,
    orientation: [f64; 4],
    orientation_covariance: [f64; 9],
    angular_velocity: [f64; 3],
    angular_velocity_covariance: [f64; 9],
    linear_acceleration: [f64; 3],
    linear_acceleration_covariance: [f64; 9],
}

/// A sensor_msgs/Imu without an orientation, which -1 in its covariance says.
pub(super) fn imu(stamp: Stamp, sample: &ImuSample, levels: &levels::ImuLevels) -> impl Serialize {
    let diagonal = |v: f64| [v, 0.0, 0.0, 0.0, v, 0.0, 0.0, 0.0, v];
    let variance = |density: f64| density * density * levels.rate;
    let mut unknown = [0.0; 9];
    unknown[0] = -1.0;
    Imu {
        header: Header::new(stamp, IMU),
        orientation: [0.0, 0.0, 0.0, 1.0],
        orientation_covariance: unknown,
        angular_velocity: sample.gyro.into(),
        angular_velocity_covariance: diagonal(variance(levels.gyro_noise)),
        linear_acceleration: sample.accel.into(),
        linear_acceleration_covariance: diagonal(variance(levels.accel_noise)),
    }
}

#[derive(Serialize)]
struct CameraInfo {
    header: Header,
    height: u32,
    width: u32,
    distortion_model: &'static str,
    d: Vec<f64>,
    k: [f64; 9],
    r: [f64; 9],
    p: [f64; 12],
    binning_x: u32,
    binning_y: u32,
    /// Offset, height and width of the region of interest: all zero is the whole image.
    roi: [u32; 4],
    do_rectify: bool,
}

/// A sensor_msgs/CameraInfo of a raw image.
pub(super) fn camera_info(stamp: Stamp, lens: &geometry::Camera, distortion: &Distortion) -> impl Serialize {
    let ([fx, fy], [cx, cy]) = (lens.focal(), lens.center());
    let [width, height] = lens.size();
    CameraInfo {
        header: Header::new(stamp, CAMERA),
        height,
        width,
        distortion_model: match distortion {
            Distortion::Equidistant(_) => "equidistant",
            Distortion::RationalPolynomial(_) => "rational_polynomial",
            Distortion::None | Distortion::PlumbBob(_) => "plumb_bob",
        },
        d: distortion.coefficients().to_vec(),
        k: [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p: [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
        binning_x: 0,
        binning_y: 0,
        roi: [0; 4],
        do_rectify: false,
    }
}

#[derive(Serialize)]
struct PointField {
    name: &'static str,
    offset: u32,
    datatype: u8,
    count: u32,
}

/// A byte sequence: serde takes a `Vec<u8>` for a sequence of numbers.
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

#[derive(Serialize)]
struct PointCloud2 {
    header: Header,
    height: u32,
    width: u32,
    fields: Vec<PointField>,
    is_bigendian: bool,
    point_step: u32,
    row_step: u32,
    data: Bytes,
    is_dense: bool,
}

const UINT16: u8 = 4;
const UINT32: u8 = 6;
const FLOAT32: u8 = 7;

/// Rows of fixed columns while they are filled.
struct Rows {
    columns: Vec<(&'static str, u8)>,
    data: Vec<u8>,
    dense: bool,
}

impl Rows {
    fn new(columns: impl IntoIterator<Item = (&'static str, u8)>) -> Self {
        Self { columns: columns.into_iter().collect(), data: Vec::new(), dense: true }
    }

    fn f32(&mut self, values: impl IntoIterator<Item = f64>) {
        for v in values {
            self.dense &= v.is_finite();
            self.data.extend_from_slice(&(v as f32).to_le_bytes());
        }
    }

    fn finish(self, stamp: Stamp, frame: &'static str) -> PointCloud2 {
        let mut point_step = 0;
        let field = |(name, datatype): &(&'static str, u8)| {
            let offset = point_step;
            point_step += if *datatype == UINT16 { 2 } else { 4 };
            PointField { name, offset, datatype: *datatype, count: 1 }
        };
        let fields = self.columns.iter().map(field).collect();
        PointCloud2 {
            header: Header::new(stamp, frame),
            height: 1,
            width: self.data.len() as u32 / point_step,
            fields,
            is_bigendian: false,
            point_step,
            row_step: self.data.len() as u32,
            data: Bytes(self.data),
            is_dense: self.dense,
        }
    }
}

/// The 3D-3D correspondences of a frame; `lost` says of each row whether its point has no numbers.
pub(super) fn matches_3d3d(frame: &Frame, mut lost: impl FnMut() -> bool) -> impl Serialize {
    const COLUMNS: [(&str, u8); 8] = [
        ("x", FLOAT32),
        ("y", FLOAT32),
        ("z", FLOAT32),
        ("tx", FLOAT32),
        ("ty", FLOAT32),
        ("tz", FLOAT32),
        ("weight", FLOAT32),
        ("id", UINT32),
    ];
    let mut rows = Rows::new(COLUMNS);
    for m in &frame.matches {
        rows.f32(spoiled(m.source.into(), lost()).into_iter().chain(m.target.iter().copied()));
        rows.data.extend_from_slice(&m.weight.to_le_bytes());
        rows.data.extend_from_slice(&m.target_id.to_le_bytes());
    }
    rows.finish(frame.stamp, LIDAR)
}

/// What is seen and landmarks.
pub(super) fn matches_2d3d(stamp: Stamp, matches: &[LandmarkMatch], camera: &Camera) -> impl Serialize {
    let sight: &[&str] = if camera.intrinsics().is_some() { &["u", "v"] } else { &["x", "y", "z"] };
    let weight: &[&str] = if camera.has_weights() { &["weight"] } else { &[] };
    let floats = [sight, &["tx", "ty", "tz"], weight].concat();
    let columns = floats.into_iter().map(|name| (name, FLOAT32)).chain([("id", UINT32)]);
    let mut rows = Rows::new(columns);
    for m in matches {
        rows.f32(m.sight.numbers().chain(m.landmark.iter().copied()));
        rows.f32(camera.has_weights().then_some(m.weight.into()));
        rows.data.extend_from_slice(&m.id.to_le_bytes());
    }
    rows.finish(stamp, CAMERA)
}

/// What is seen in two views.
pub(super) fn matches_2d2d(stamp: Stamp, matches: &[SightMatch], camera: &Camera) -> impl Serialize {
    let sights: &[&str] = match camera.intrinsics() {
        Some(_) => &["u", "v", "tu", "tv"],
        None => &["x", "y", "z", "tx", "ty", "tz"],
    };
    let weight: &[&str] = if camera.has_weights() { &["weight"] } else { &[] };
    let mut rows = Rows::new([sights, weight].concat().into_iter().map(|name| (name, FLOAT32)));
    for m in matches {
        rows.f32(m.sight.numbers().chain(m.reference.numbers()));
        rows.f32(camera.has_weights().then_some(m.weight.into()));
    }
    rows.finish(stamp, CAMERA)
}

/// A sweep as the Velodyne driver lays it out: `time` in seconds after the stamp. `intensity` says
/// how bright a return is, `time` when a firing was, `lost` whether a point has no numbers.
pub(super) fn cloud(
    stamp: Stamp,
    returns: &[Return],
    intensity: impl Fn(&Return) -> f64,
    time: impl Fn(usize) -> f64,
    mut lost: impl FnMut() -> bool,
) -> impl Serialize {
    const COLUMNS: [(&str, u8); 6] = [
        ("x", FLOAT32),
        ("y", FLOAT32),
        ("z", FLOAT32),
        ("intensity", FLOAT32),
        ("ring", UINT16),
        ("time", FLOAT32),
    ];
    let mut rows = Rows::new(COLUMNS);
    rows.data.reserve_exact(22 * returns.len());
    for r in returns {
        rows.f32(spoiled(r.measured.into(), lost()));
        rows.f32([intensity(r)]);
        rows.data.extend_from_slice(&r.beam.to_le_bytes());
        rows.f32([time(r.firing.into())]);
    }
    rows.finish(stamp, LIDAR)
}

fn spoiled(point: [f64; 3], lost: bool) -> [f64; 3] {
    if lost {
        [f64::NAN; 3]
    } else {
        point
    }
}
