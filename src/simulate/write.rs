//! Writes a simulation: an MCAP file that ROS 2 and Foxglove play, or one frame as text.

use super::{Frame, OdometryTick, Simulation};
use crate::geometry::Rigid;
use crate::messages::Stamp;
use cdr_encoding::to_vec;
use mcap::records::{MessageHeader, Metadata};
use mcap::{WriteOptions, Writer};
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::io::{self, Seek, Write};

/// Frame of the map.
pub const MAP: &str = "map";
/// Frame of the odometry.
pub const ODOM: &str = "odom";
/// Frame of the robot.
pub const BASE: &str = "base_link";
/// Frame of the sensor.
pub const LIDAR: &str = "lidar";

/// Frames made at once, on all cores.
const BATCH: usize = 16;

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk or the pipe refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The MCAP writer refused.
    #[error(transparent)]
    Mcap(#[from] mcap::McapError),
    /// A message cannot be encoded.
    #[error(transparent)]
    Cdr(#[from] cdr_encoding::Error),
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Sweeps.
    pub frames: usize,
    /// Correspondences in them.
    pub correspondences: usize,
    /// The right ones among them.
    pub right: usize,
}

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

#[derive(Serialize)]
struct TransformStamped {
    header: Header,
    child_frame_id: &'static str,
    transform: Pose,
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

const FLOAT32: u8 = 7;
const UINT32: u8 = 6;
/// Columns of the correspondences, four bytes each.
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
const POINT_STEP: u32 = 4 * COLUMNS.len() as u32;

fn cloud(frame: &Frame) -> PointCloud2 {
    let mut data = Vec::with_capacity(frame.matches.len() * POINT_STEP as usize);
    for m in &frame.matches {
        for v in m.source.iter().chain(m.target.iter()) {
            data.extend_from_slice(&(*v as f32).to_le_bytes());
        }
        data.extend_from_slice(&m.weight.to_le_bytes());
        data.extend_from_slice(&m.target_id.to_le_bytes());
    }
    let offsets = (0u32..).step_by(4);
    let fields = COLUMNS
        .iter()
        .zip(offsets)
        .map(|((name, datatype), offset)| PointField { name, offset, datatype: *datatype, count: 1 })
        .collect();
    PointCloud2 {
        header: Header::new(frame.stamp, LIDAR),
        height: 1,
        width: frame.matches.len() as u32,
        fields,
        is_bigendian: false,
        point_step: POINT_STEP,
        row_step: data.len() as u32,
        data: Bytes(data),
        is_dense: true,
    }
}

fn transform(stamp: Stamp, parent: &'static str, child: &'static str, pose: &Rigid) -> Vec<TransformStamped> {
    let header = Header::new(stamp, parent);
    vec![TransformStamped { header, child_frame_id: child, transform: pose.into() }]
}

/// A message in CDR, little endian, with its encapsulation header.
fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WriteError> {
    let mut bytes = vec![0, 1, 0, 0];
    bytes.extend(to_vec::<T, byteorder::LittleEndian>(message)?);
    Ok(bytes)
}

const POINT_CLOUD_2: (&str, &str) =
    ("sensor_msgs/msg/PointCloud2", include_str!("schemas/sensor_msgs_PointCloud2.msg"));
const TF_MESSAGE: (&str, &str) = ("tf2_msgs/msg/TFMessage", include_str!("schemas/tf2_msgs_TFMessage.msg"));
const POSE_STAMPED: (&str, &str) =
    ("geometry_msgs/msg/PoseStamped", include_str!("schemas/geometry_msgs_PoseStamped.msg"));

/// Quality of service in the form of rosbag2 up to metadata version 8: the player publishes with
/// it. Durability 1 is transient_local, 2 volatile; history 1 keep_last, reliability 1 reliable.
fn offered_qos(depth: u32, durability: u32) -> String {
    let forever = "\n    sec: 9223372036\n    nsec: 854775807";
    format!(
        "- history: 1\n  depth: {depth}\n  reliability: 1\n  durability: {durability}\n  \
         deadline:{forever}\n  lifespan:{forever}\n  liveliness: 1\n  liveliness_lease_duration:{forever}\n  \
         avoid_ros_namespace_conventions: false"
    )
}

/// The MCAP file while it grows.
struct Bag<W: Write + Seek> {
    writer: Writer<W>,
    sequence: BTreeMap<u16, u32>,
}

impl<W: Write + Seek> Bag<W> {
    fn channel(
        &mut self,
        topic: &str,
        schema: (&str, &str),
        depth: u32,
        latched: bool,
    ) -> Result<u16, WriteError> {
        let id = self.writer.add_schema(schema.0, "ros2msg", schema.1.as_bytes())?;
        let qos = offered_qos(depth, if latched { 1 } else { 2 });
        let metadata = BTreeMap::from([("offered_qos_profiles".to_owned(), qos)]);
        Ok(self.writer.add_channel(id, topic, "cdr", &metadata)?)
    }

    fn put<T: Serialize>(&mut self, channel_id: u16, at: Stamp, message: &T) -> Result<(), WriteError> {
        let sequence = self.sequence.entry(channel_id).or_default();
        let time = at.0.max(0) as u64;
        let header = MessageHeader { channel_id, sequence: *sequence, log_time: time, publish_time: time };
        *sequence += 1;
        self.writer.write_to_known_channel(&header, &encode(message)?)?;
        Ok(())
    }
}

/// Writes the whole drive as MCAP: `/correspondences_3d3d`, `/tf` (odom -> base_link),
/// `/tf_static` (base_link -> lidar) and `/ground_truth` (map -> base_link), in the order in which
/// a robot would publish them. `progress` is told the number of frames written so far.
pub fn mcap(
    simulation: &Simulation,
    out: impl Write + Seek,
    mut progress: impl FnMut(usize),
) -> Result<Written, WriteError> {
    // One thread compresses: the bytes must not depend on the number of cores.
    let options = WriteOptions::new()
        .profile("ros2")
        .library(concat!("flashreg ", env!("CARGO_PKG_VERSION")))
        .compression_threads(0);
    let mut bag = Bag { writer: options.create(out)?, sequence: BTreeMap::new() };
    // Without this record rosbag2 takes the quality of service for its newer form.
    let distro = BTreeMap::from([("ROS_DISTRO".to_owned(), "humble".to_owned())]);
    bag.writer.write_metadata(&Metadata { name: "rosbag2".to_owned(), metadata: distro })?;
    let tf_static = bag.channel("/tf_static", TF_MESSAGE, 1, true)?;
    let tf = bag.channel("/tf", TF_MESSAGE, 100, false)?;
    let clouds = bag.channel("/correspondences_3d3d", POINT_CLOUD_2, 5, false)?;
    let truth = bag.channel("/ground_truth", POSE_STAMPED, 10, false)?;

    let start = simulation.options().start;
    let latency = (simulation.options().levels.latency * 1e9) as i64;
    bag.put(tf_static, start, &transform(start, BASE, LIDAR, &simulation.base_t_lidar()))?;
    let mut odometry = simulation.odometry().into_iter().peekable();
    let put_odometry = |bag: &mut Bag<_>, tick: &OdometryTick| {
        bag.put(tf, tick.stamp, &transform(tick.stamp, ODOM, BASE, &tick.odom_t_base))
    };
    let mut written = Written::default();
    let total = simulation.frames();
    for first in (0..total).step_by(BATCH) {
        let batch: Vec<Frame> =
            (first..total.min(first + BATCH)).into_par_iter().map(|index| simulation.frame(index)).collect();
        for frame in &batch {
            let published = Stamp(frame.stamp.0 + latency);
            while let Some(tick) = odometry.next_if(|tick| tick.stamp <= published) {
                put_odometry(&mut bag, &tick)?;
            }
            bag.put(clouds, published, &cloud(frame))?;
            let pose =
                PoseStamped { header: Header::new(frame.stamp, MAP), pose: (&frame.map_t_base).into() };
            bag.put(truth, published, &pose)?;
            written.frames += 1;
            written.correspondences += frame.matches.len();
            written.right += frame.right();
            progress(written.frames);
        }
    }
    for tick in odometry {
        put_odometry(&mut bag, &tick)?;
    }
    bag.writer.finish()?;
    Ok(written)
}

/// Writes the correspondences of a frame as text, `sx sy sz tx ty tz weight` a row.
pub fn pair(frame: &Frame, mut out: impl Write) -> Result<(), WriteError> {
    writeln!(out, "# sx sy sz tx ty tz weight")?;
    for m in &frame.matches {
        for v in m.source.iter().chain(m.target.iter()) {
            write!(out, "{v:.6} ")?;
        }
        writeln!(out, "{}", m.weight)?;
    }
    out.flush()?;
    Ok(())
}

/// Writes the true pose of the sensor, `map_t_lidar`, as a matrix of four rows.
pub fn truth(frame: &Frame, mut out: impl Write) -> Result<(), WriteError> {
    for row in frame.map_t_lidar.to_homogeneous().row_iter() {
        let row: Vec<String> = row.iter().map(|v| format!("{v:.9}")).collect();
        writeln!(out, "{}", row.join(" "))?;
    }
    out.flush()?;
    Ok(())
}
