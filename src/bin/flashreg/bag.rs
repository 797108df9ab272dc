//! `flashreg bag`

use super::say;
use anyhow::Context;
use clap::Args;
use flashreg::io::bag::{Bag, Message, Topic};
use flashreg::messages::point_cloud::PointCloudView;
use flashreg::messages::poses::{PoseType, PoseView};
use flashreg::messages::transforms::TransformsView;
use flashreg::messages::{MessageError, Stamp};
use serde_json::{json, Value};
use std::path::PathBuf;

#[derive(Args)]
pub struct ShowBag {
    /// MCAP file, sqlite3 file of rosbag2, or folder of them
    bag: PathBuf,
    /// Print the messages of this topic, a JSON object a line: times in nanoseconds, and poses,
    /// transforms and the header of point clouds in full
    #[arg(long, value_name = "TOPIC")]
    echo: Option<String>,
    /// With --echo: the bytes of each message too, in hexadecimal digits
    #[arg(long, requires = "echo")]
    cdr: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "echo")]
    json: bool,
}

impl ShowBag {
    pub fn run(self) -> anyhow::Result<()> {
        let bag = Bag::open(&self.bag).context("cannot read the bag")?;
        match &self.echo {
            Some(topic) => self.echo(&bag, topic),
            None if self.json => {
                say(overview(&bag));
                Ok(())
            }
            None => {
                print(&bag);
                Ok(())
            }
        }
    }

    fn echo(&self, bag: &Bag, name: &str) -> anyhow::Result<()> {
        let any = bag.topic(name).map(|topic| topic.type_name.clone()).unwrap_or_default();
        let topic = bag.require(name, &[&any])?;
        let mut messages = bag.messages(&[name]);
        while let Some(message) = messages.next() {
            let Message { log_time, publish_time, data, .. } = message;
            let mut line = json!({
                "log_time": log_time.0,
                "publish_time": publish_time.0,
                "bytes": data.len(),
                "message": content(topic, data).unwrap_or_else(|error| json!({ "error": error.to_string() })),
            });
            if self.cdr {
                let digits: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
                line["cdr"] = digits.into();
            }
            say(line);
        }
        for loss in messages.losses() {
            eprintln!("not read: {loss}");
        }
        Ok(())
    }
}

fn overview(bag: &Bag) -> Value {
    let losses: Vec<String> = bag.losses().iter().map(ToString::to_string).collect();
    json!({
        "span": bag.span().map(|(first, last)| [first.0, last.0]),
        "topics": bag.topics(),
        "losses": losses,
    })
}

fn print(bag: &Bag) {
    if let Some((first, last)) = bag.span() {
        say(format_args!(
            "{:.3} s from {:.3}",
            last.seconds_since(first),
            first.seconds_since(Stamp::default())
        ));
    }
    let width = bag.topics().iter().map(|topic| topic.name.len()).max().unwrap_or(0);
    for Topic { name, type_name, encoding, count } in bag.topics() {
        let encoding = if encoding == "cdr" { "" } else { encoding };
        say(format!("{count:>9}  {name:width$}  {type_name} {encoding}").trim_end());
    }
    for loss in bag.losses() {
        say(format_args!("not read: {loss}"));
    }
}

/// What is in a message; null for types that are not known here.
fn content(topic: &Topic, data: &[u8]) -> Result<Value, MessageError> {
    let short = topic.type_name.replace("/msg/", "/");
    let is = |name: &str| name.replace("/msg/", "/") == short;
    if let Some(kind) = PoseType::ALL.into_iter().find(|kind| is(kind.name())) {
        let view = PoseView::parse(kind, data)?;
        return Ok(json!({
            "stamp": view.stamp.0,
            "frame_id": view.frame,
            "child_frame_id": view.child,
            "position": view.position,
            "orientation": view.orientation,
            "covariance": view.covariance.map(|covariance| covariance.to_vec()),
        }));
    }
    match short.as_str() {
        "tf2_msgs/TFMessage" => {
            let transform = |sample: flashreg::messages::transforms::TransformSample| {
                json!({
                    "stamp": sample.stamp.0,
                    "frame_id": sample.parent,
                    "child_frame_id": sample.child,
                    "translation": sample.translation,
                    "rotation": sample.rotation,
                })
            };
            Ok(TransformsView::parse(data)?.map(transform).collect())
        }
        "sensor_msgs/PointCloud2" => {
            let view = PointCloudView::parse(data)?;
            Ok(json!({
                "stamp": view.stamp.0,
                "frame_id": view.frame,
                "height": view.height,
                "width": view.width,
                "is_bigendian": view.is_bigendian,
                "point_step": view.point_step,
                "row_step": view.row_step,
                "data_bytes": view.data.len(),
                "is_dense": view.is_dense,
            }))
        }
        _ => Ok(Value::Null),
    }
}
