//! Writes a simulation: an MCAP file of ROS 2 messages, one frame as text, the map as PCD.

use super::camera::Camera;
use super::faults::FaultKind;
use super::message::{self, Schema};
use super::random::{splitmix, Purpose, Random};
use super::sensors::Return;
use super::{Frame, Simulation};
use crate::geometry::Point;
use crate::io::cloud_files;
use crate::messages::Stamp;
use cdr_encoding::to_vec;
use mcap::records::{MessageHeader, Metadata};
use mcap::{WriteOptions, Writer};
use rayon::prelude::*;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Seek, Write};

/// Frame of the map.
pub const MAP: &str = "map";
/// Frame of the odometry.
pub const ODOM: &str = "odom";
/// Frame of the robot.
pub const BASE: &str = "base_link";
/// Frame of the LiDAR.
pub const LIDAR: &str = "lidar";
/// Frame of the IMU.
pub const IMU: &str = "imu";
/// Frame of the camera, z forward.
pub const CAMERA: &str = "camera_optical";
/// Frame of the view that 2D-2D matches refer to. It is not on tf.
pub const REFERENCE: &str = "camera_reference";

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
    /// Points of clouds.
    pub points: usize,
    /// Correspondences in the sweeps.
    pub correspondences: usize,
    /// The right ones among them.
    pub right: usize,
    /// Views of the camera.
    pub views: usize,
    /// Landmarks matched in them.
    pub landmarks: usize,
    /// The right ones among them.
    pub right_landmarks: usize,
}

/// A message in CDR, little endian, with its encapsulation header.
fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WriteError> {
    let mut bytes = vec![0, 1, 0, 0];
    bytes.extend(to_vec::<T, byteorder::LittleEndian>(message)?);
    Ok(bytes)
}

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

/// The channels of a bag: topic, type, depth, latched.
const CHANNELS: [(&str, Schema, u32, bool); 11] = [
    ("/tf_static", message::TF_MESSAGE, 1, true),
    ("/tf", message::TF_MESSAGE, 100, false),
    ("/correspondences_3d3d", message::POINT_CLOUD_2, 5, false),
    ("/ground_truth", message::POSE_STAMPED, 10, false),
    ("/points", message::POINT_CLOUD_2, 5, false),
    ("/odom", message::ODOMETRY, 10, false),
    ("/imu", message::IMU_SAMPLE, 100, false),
    ("/camera_info", message::CAMERA_INFO, 5, false),
    ("/correspondences_2d3d", message::POINT_CLOUD_2, 5, false),
    ("/correspondences_2d2d", message::POINT_CLOUD_2, 5, false),
    ("/ground_truth_2d2d", message::POSE_STAMPED, 10, false),
];

/// An index into [`CHANNELS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Channel {
    TfStatic,
    Tf,
    Matches3d3d,
    Truth,
    Points,
    Odometry,
    Imu,
    CameraInfo,
    Matches2d3d,
    Matches2d2d,
    Truth2d2d,
}

/// A message on its way, ordered by its arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Outgoing {
    arrival: Stamp,
    /// In the order of making, for those that arrive at the same time.
    order: u64,
    channel: Channel,
    data: Vec<u8>,
}

/// The MCAP file while it grows. What is made early waits here for what arrives before it.
struct Bag<W: Write + Seek> {
    writer: Writer<W>,
    /// By [`Channel`]: the number in the file, and the messages so far. Made with the first message.
    channels: [Option<(u16, u32)>; CHANNELS.len()],
    waiting: BinaryHeap<Reverse<Outgoing>>,
    made: u64,
}

impl<W: Write + Seek> Bag<W> {
    fn put(&mut self, channel: Channel, arrival: Stamp, data: Vec<u8>) {
        self.made += 1;
        self.waiting.push(Reverse(Outgoing { arrival, order: self.made, channel, data }));
    }

    /// Writes what arrives before a time.
    fn write_before(&mut self, end: Stamp) -> Result<(), WriteError> {
        while self.waiting.peek().is_some_and(|next| next.0.arrival < end) {
            let Some(Reverse(message)) = self.waiting.pop() else { break };
            let (channel_id, sequence) = self.channel(message.channel)?;
            let time = message.arrival.0.max(0) as u64;
            let header = MessageHeader { channel_id, sequence, log_time: time, publish_time: time };
            self.writer.write_to_known_channel(&header, &message.data)?;
        }
        Ok(())
    }

    /// The number of a channel, and of the next message on it.
    fn channel(&mut self, channel: Channel) -> Result<(u16, u32), WriteError> {
        let slot = &mut self.channels[channel as usize];
        let (id, sequence) = match slot {
            Some(known) => *known,
            None => {
                let (topic, schema, depth, latched) = CHANNELS[channel as usize];
                let schema = self.writer.add_schema(schema.0, "ros2msg", schema.1.as_bytes())?;
                let qos = offered_qos(depth, if latched { 1 } else { 2 });
                let metadata = BTreeMap::from([("offered_qos_profiles".to_owned(), qos)]);
                (self.writer.add_channel(schema, topic, "cdr", &metadata)?, 0)
            }
        };
        *slot = Some((id, sequence + 1));
        Ok((id, sequence))
    }
}

/// The messages that come of one sweep, with their arrival.
#[derive(Default)]
struct Made {
    messages: Vec<(Channel, Stamp, Vec<u8>)>,
    written: Written,
}

/// Writes the whole drive as MCAP, in the order in which messages arrive: what the options choose,
/// `/tf` (odom -> base_link), `/tf_static` (base_link -> sensors) and `/ground_truth` (map ->
/// base_link). `progress` is told the number of sweeps written so far. Memory does not grow with
/// the length of the drive, but for the index of the file (some 100 bytes a megabyte).
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
    let mut bag = Bag {
        writer: options.create(out)?,
        channels: Default::default(),
        waiting: BinaryHeap::new(),
        made: 0,
    };
    // Without this record rosbag2 takes the quality of service for its newer form.
    let distro = BTreeMap::from([("ROS_DISTRO".to_owned(), "humble".to_owned())]);
    bag.writer.write_metadata(&Metadata { name: "rosbag2".to_owned(), metadata: distro })?;
    let start = simulation.arrival(0.0);
    bag.put(Channel::TfStatic, start, encode(&mounts(simulation))?);

    let options = simulation.options();
    let mut odometry = simulation.odometry().peekable();
    let mut imu = simulation.imu().peekable();
    let mut written = Written::default();
    let total = simulation.frames();
    for first in (0..total).step_by(BATCH) {
        let next = total.min(first + BATCH);
        let made: Vec<_> = (first..next).into_par_iter().map(|index| sweep(simulation, index)).collect();
        // Nothing made later arrives before the next sweep is taken; the odometry and the IMU end
        // with the drive.
        let until = if next == total { options.duration } else { simulation.seconds(next) };
        while let Some(tick) = odometry.next_if(|tick| tick.seconds <= until) {
            if !simulation.faults.active(FaultKind::NoOdometry, tick.seconds) {
                let (arrival, stamp) = (simulation.arrival(tick.seconds), simulation.stamp(tick.seconds));
                let transform = [(ODOM, BASE, tick.odom_t_base)];
                bag.put(Channel::Tf, arrival, encode(&message::transforms(stamp, transform))?);
                if options.topics.odometry {
                    let message = message::odometry(stamp, &tick, &options.levels);
                    bag.put(Channel::Odometry, arrival, encode(&message)?);
                }
            }
        }
        while let Some(sample) = imu.next_if(|s| options.topics.imu && s.seconds <= until) {
            if !simulation.faults.active(FaultKind::NoImu, sample.seconds) {
                let (arrival, stamp) = (simulation.arrival(sample.seconds), simulation.stamp(sample.seconds));
                let message = message::imu(stamp, &sample, &options.levels.imu);
                bag.put(Channel::Imu, arrival, encode(&message)?);
            }
        }
        for sweep in made {
            let sweep = sweep?;
            sweep.messages.into_iter().for_each(|(channel, arrival, data)| bag.put(channel, arrival, data));
            written.frames += 1;
            written.points += sweep.written.points;
            written.correspondences += sweep.written.correspondences;
            written.right += sweep.written.right;
            written.views += sweep.written.views;
            written.landmarks += sweep.written.landmarks;
            written.right_landmarks += sweep.written.right_landmarks;
        }
        bag.write_before(if next == total { Stamp(i64::MAX) } else { simulation.arrival(until) })?;
        progress(written.frames);
    }
    bag.writer.finish()?;
    Ok(written)
}

/// Where the sensors that are recorded sit on the robot.
fn mounts(simulation: &Simulation) -> impl Serialize {
    let options = simulation.options();
    let imu = options.topics.imu.then(|| (BASE, IMU, super::mount(&options.levels.imu.mount)));
    let camera = simulation.camera().map(|camera| (BASE, CAMERA, camera.base_t_camera()));
    let all = [(BASE, LIDAR, simulation.base_t_lidar())].into_iter().chain(imu).chain(camera);
    message::transforms(simulation.stamp(0.0), all)
}

/// Everything that is measured in one sweep, and in the views until the next.
fn sweep(simulation: &Simulation, index: usize) -> Result<Made, WriteError> {
    let (options, seconds) = (simulation.options(), simulation.seconds(index));
    let levels = &options.levels;
    let failing = |kind| simulation.faults.active(kind, seconds);
    let mut made = Made::default();
    let mut put = |channel, latency: f64, data| {
        made.messages.push((channel, simulation.arrival(seconds + latency), data));
    };
    let spoil = |purpose| {
        let mut random = Random::new(options.seed ^ purpose, Purpose::Fault, index as u64);
        let share = if failing(FaultKind::Nan) { levels.faults.nan_share } else { 0.0 };
        move || share > 0.0 && random.chance(share)
    };
    let mut frame = simulation.truth(index);
    if !failing(FaultKind::NoLidar) {
        if options.topics.correspondences {
            frame = simulation.frame(index);
            made.written.correspondences = frame.matches.len();
            made.written.right = frame.right();
            put(Channel::Matches3d3d, levels.latency, encode(&message::matches_3d3d(&frame, spoil(0)))?);
        }
        if options.topics.clouds {
            let cloud = simulation.cloud(index);
            made.written.points = cloud.returns.len();
            let [low, high] = levels.reflectivity;
            // Every surface has its own.
            let intensity = |r: &Return| {
                let surface = r.hit.solid.map_or(u64::MAX, u64::from);
                let own = splitmix(options.seed ^ splitmix(surface)) as f64 / u64::MAX as f64;
                (low + (high - low) * own) * f64::from(r.incidence)
            };
            let time = |firing| simulation.firing_time(firing);
            let message = message::cloud(cloud.stamp, &cloud.returns, intensity, time, spoil(1));
            put(Channel::Points, 1.0 / options.rate + levels.driver_latency, encode(&message)?);
        }
    }
    put(Channel::Truth, levels.latency, encode(&message::pose(frame.stamp, MAP, &frame.map_t_base))?);
    if let Some(camera) = simulation.camera() {
        for index in simulation.views_after(index) {
            view(simulation, camera, index, seconds, &mut made)?;
        }
    }
    Ok(made)
}

/// A view, and its truth unless a sweep has it already.
fn view(
    simulation: &Simulation,
    camera: &Camera,
    index: usize,
    sweep: f64,
    made: &mut Made,
) -> Result<(), WriteError> {
    let latency = simulation.options().levels.camera.latency;
    let Some(view) = simulation.view(index) else { return Ok(()) };
    let stamp = simulation.stamp(view.seconds);
    let mut put = |channel, latency: f64, data| {
        made.messages.push((channel, simulation.arrival(view.seconds + latency), data));
    };
    if stamp != simulation.stamp(sweep) {
        let message = message::pose(stamp, MAP, &simulation.motion().pose(view.seconds));
        put(Channel::Truth, latency, encode(&message)?);
    }
    if simulation.faults.active(FaultKind::NoCamera, view.seconds) {
        return Ok(());
    }
    made.written.views += 1;
    made.written.landmarks += view.landmarks.len();
    made.written.right_landmarks += view.landmarks.iter().filter(|m| m.right).count();
    if let Some((lens, distortion)) = camera.intrinsics() {
        put(Channel::CameraInfo, 0.0, encode(&message::camera_info(stamp, lens, distortion))?);
    }
    let message = message::matches_2d3d(stamp, &view.landmarks, camera);
    put(Channel::Matches2d3d, latency, encode(&message)?);
    if let Some((reference_t_camera, matches)) = &view.reference {
        put(Channel::Matches2d2d, latency, encode(&message::matches_2d2d(stamp, matches, camera))?);
        put(Channel::Truth2d2d, latency, encode(&message::pose(stamp, REFERENCE, reference_t_camera))?);
    }
    Ok(())
}

/// How a map that is written differs from what was mapped: it is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MapChange {
    /// Factor of all lengths; 1 is right.
    pub scale: f64,
    /// West and east are exchanged.
    pub mirror: bool,
}

impl Default for MapChange {
    fn default() -> Self {
        Self { scale: 1.0, mirror: false }
    }
}

impl MapChange {
    /// A point of the place in the map.
    fn apply(&self, point: Point) -> Point {
        let x = if self.mirror { -point.x } else { point.x };
        Point::new(x, point.y, point.z) * self.scale
    }
}

/// Writes the map as a binary PCD file of x, y and z.
pub fn pcd(simulation: &Simulation, change: MapChange, out: impl Write) -> Result<(), WriteError> {
    let points: Vec<_> = simulation.map().points().map(|point| change.apply(point)).collect();
    Ok(cloud_files::write_pcd(out, &points)?)
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
