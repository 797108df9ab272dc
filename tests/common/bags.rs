//! Bags for the tests.

use super::{encode_transforms, honest_rows, CdrWriter, Cloud, SIX};
use flashreg::io::bag::{Bag, Message};
use flashreg::messages::Stamp;
use mcap::records::MessageHeader;
use mcap::{WriteOptions, Writer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

pub const CLOUD: &str = "sensor_msgs/msg/PointCloud2";
pub const TF: &str = "tf2_msgs/msg/TFMessage";
pub const POSE: &str = "geometry_msgs/msg/PoseStamped";
pub const POSE_COVARIANCE: &str = "geometry_msgs/msg/PoseWithCovarianceStamped";

/// A message to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub topic: String,
    pub type_name: String,
    pub log_time: i64,
    pub data: Vec<u8>,
}

pub fn item(topic: &str, type_name: &str, seconds: f64, data: Vec<u8>) -> Item {
    let log_time = Stamp::default().plus(seconds).0;
    Item { topic: topic.into(), type_name: type_name.into(), log_time, data }
}

/// Options that name no threads of their own.
pub fn plain() -> WriteOptions {
    WriteOptions::new().compression(None).compression_threads(0).chunk_size(Some(4096))
}

/// Writes an MCAP file; the items in this order.
pub fn write_mcap(path: &Path, options: WriteOptions, items: &[Item]) {
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut writer = options.profile("ros2").create(file).expect("a writer");
    let mut channels: BTreeMap<String, u16> = BTreeMap::new();
    for Item { topic, type_name, log_time, data } in items {
        let channel_id = *channels.entry(topic.clone()).or_insert_with(|| {
            let schema = writer.add_schema(type_name, "ros2msg", b"").expect("a schema");
            writer.add_channel(schema, topic, "cdr", &BTreeMap::new()).expect("a channel")
        });
        let time = *log_time as u64;
        let header = MessageHeader { channel_id, sequence: 0, log_time: time, publish_time: time };
        writer.write_to_known_channel(&header, data).expect("written");
    }
    writer.finish().expect("finished");
}

/// Writes a sqlite3 file of rosbag2; the items in this order.
pub fn write_db3(path: &Path, items: &[Item]) {
    let db = rusqlite::Connection::open(path).expect("a file");
    db.execute_batch(
        "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
           serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);
         CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
           data BLOB NOT NULL);
         CREATE INDEX timestamp_idx ON messages (timestamp ASC); BEGIN;",
    )
    .expect("tables");
    let mut topics: BTreeMap<&str, i64> = BTreeMap::new();
    for Item { topic, type_name, log_time, data } in items {
        let next = topics.len() as i64 + 1;
        let id = *topics.entry(topic).or_insert_with(|| {
            db.execute("INSERT INTO topics VALUES (?, ?, ?, 'cdr', '')", (next, topic, type_name))
                .expect("a topic");
            next
        });
        let row = (id, log_time, data);
        db.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)", row).expect("a row");
    }
    db.execute_batch("COMMIT").expect("written");
}

pub fn write_metadata(folder: &Path, files: &[&str], mode: &str) {
    let paths: String = files.iter().map(|file| format!("  - {file}\n")).collect();
    let text = format!(
        "rosbag2_bagfile_information:\n  version: 5\n  compression_mode: '{mode}'\n  relative_file_paths:\n{paths}"
    );
    std::fs::write(folder.join("metadata.yaml"), text).expect("written");
}

/// Everything on some topics, as it is read; and what was lost.
pub fn read_all(bag: &Bag, topics: &[&str]) -> (Vec<Item>, Vec<String>) {
    let mut items = Vec::new();
    let mut messages = bag.messages(topics);
    while let Some(Message { topic, log_time, data, .. }) = messages.next() {
        let topic = topics[topic];
        let type_name = bag.topic(topic).map_or("", |topic| &topic.type_name);
        items.push(Item {
            topic: topic.into(),
            type_name: type_name.into(),
            log_time: log_time.0,
            data: data.to_vec(),
        });
    }
    let losses = messages.losses().iter().map(|loss| loss.what.to_string()).collect();
    (items, losses)
}

/// A cloud of honest correspondences: the sensor stands at `at` in the map, and is not turned.
pub fn cloud(seconds: f64, rows: usize, at: [f64; 3], big_endian: bool) -> Vec<u8> {
    let mut cloud = Cloud::with_layout(&SIX, &honest_rows(rows, at), 0, 1, 0, big_endian);
    cloud.stamp = Stamp::default().plus(seconds);
    cloud.cdr_big_endian = big_endian;
    cloud.encode()
}

/// `parent_t_child`: a translation.
pub fn transform(parent: &str, child: &str, seconds: f64, at: [f64; 3], big_endian: bool) -> Vec<u8> {
    let stamp = Stamp::default().plus(seconds);
    encode_transforms(&[(parent, child, stamp, at, [0.0, 0.0, 0.0, 1.0])], big_endian)
}

/// A `PoseStamped`, or with a covariance of so much a `PoseWithCovarianceStamped`.
pub fn pose(frame: &str, seconds: f64, at: [f64; 3], variance: Option<f64>) -> Vec<u8> {
    let mut w = CdrWriter::new(false);
    w.header(Stamp::default().plus(seconds), frame);
    for v in at.into_iter().chain([0.0, 0.0, 0.0, 1.0]) {
        w.f64(v);
    }
    for i in 0..variance.map_or(0, |_| 36) {
        w.f64(if i % 7 == 0 { variance.unwrap_or(0.0) } else { 0.0 });
    }
    w.finish()
}
