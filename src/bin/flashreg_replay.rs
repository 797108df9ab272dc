//! Sends the correspondences of a file to the node, and tells what came back and when.
//!
//! The same trick as for the node: built without the feature `ros` too, so that `colcon build`
//! installs it.

use std::process::ExitCode;

#[cfg(not(feature = "ros"))]
fn main() -> ExitCode {
    eprintln!("flashreg_replay: built without the feature 'ros'");
    ExitCode::FAILURE
}

#[cfg(feature = "ros")]
fn main() -> ExitCode {
    match replay::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("flashreg_replay: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[cfg(feature = "ros")]
mod replay {
    use anyhow::{ensure, Context as _};
    use clap::Parser;
    use flashreg::io::correspondence_file::CorrespondenceFile;
    use flashreg::latency::Percentiles;
    use flashreg::localizer::Input;
    use flashreg::messages::Stamp;
    use flashreg::registration::Correspondence;
    use flashreg::simulate::write::{BASE, LIDAR, MAP, ODOM};
    use futures::{FutureExt, Stream, StreamExt};
    use r2r::builtin_interfaces::msg::Time;
    use r2r::diagnostic_msgs::msg::{DiagnosticArray, KeyValue};
    use r2r::geometry_msgs::msg::{Quaternion, Transform, TransformStamped};
    use r2r::sensor_msgs::msg::{PointCloud2, PointField};
    use r2r::std_msgs::msg::Header;
    use r2r::tf2_msgs::msg::TFMessage;
    use r2r::{Context, Node, Publisher, QosProfile};
    use serde::Serialize;
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    /// How long the node may take to appear, and to tell its numbers.
    const PATIENCE: Duration = Duration::from_secs(15);
    /// How long an answer may take.
    const ANSWER: Duration = Duration::from_secs(1);

    /// Sends the correspondences of a file to flashreg_node again and again, as a robot that stands still
    /// would, and tells what came back and how long it took: exit code 0 if every message was answered
    /// on /tf.
    ///
    /// It broadcasts odom -> base_link and base_link -> lidar, identities. ROS arguments follow
    /// --ros-args.
    #[derive(Parser)]
    #[command(version)]
    struct Cli {
        /// File of correspondences, as `flashreg register` takes it
        file: PathBuf,
        /// Messages
        #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        /// Messages a second at most: each waits for the answer to the one before
        #[arg(long, default_value_t = 20.0)]
        rate: f64,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    }

    #[derive(Serialize)]
    struct Report {
        file: PathBuf,
        rows: usize,
        sent: u32,
        /// Messages after which a transform came.
        answered: u32,
        /// Milliseconds from before a message is sent until its transform has arrived here.
        round_trip_ms: Percentiles,
        /// What the node says on /diagnostics.
        node: BTreeMap<String, String>,
    }

    /// True if all was answered.
    pub fn run() -> anyhow::Result<bool> {
        let cli = Cli::parse_from(std::env::args_os().take_while(|arg| arg != "--ros-args"));
        ensure!(cli.rate.is_finite() && cli.rate > 0.0, "--rate {}: above zero is needed", cli.rate);
        let shown = || format!("cannot read {}", cli.file.display());
        let rows = CorrespondenceFile::open(&cli.file).with_context(shown)?.rows;
        let mut robot = Robot::new()?;
        robot.meet()?;
        let mut cloud = cloud(&rows);
        let mut round_trips = Vec::with_capacity(cli.count as usize);
        let mut next = Instant::now();
        for _ in 0..cli.count {
            robot.spin_until(next);
            next = (next + Duration::from_secs_f64(1.0 / cli.rate)).max(Instant::now());
            round_trips.extend(robot.ask(&mut cloud)?.map(|time| time.as_secs_f64() * 1e3));
        }
        let report = Report {
            file: cli.file,
            rows: rows.len(),
            sent: cli.count,
            answered: round_trips.len() as u32,
            round_trip_ms: Percentiles::of(&mut round_trips),
            node: robot.numbers()?,
        };
        match cli.json {
            true => println!("{}", serde_json::to_string(&report)?),
            false => report.print(),
        }
        Ok(report.answered == report.sent)
    }

    impl Report {
        fn print(&self) {
            let of = |key: &str| self.node.get(key).map_or("?", String::as_str);
            println!(
                "{}: {} rows; {} sent, {} answered; node: {} accepted, {} overwritten, {} ({})",
                self.file.display(),
                self.rows,
                self.sent,
                self.answered,
                of("accepted"),
                of("overwritten"),
                of("backend"),
                of("backend_why"),
            );
            println!("{:36} {:>9} {:>9} {:>9} {:>9}", "milliseconds", "p50", "p95", "p99", "max");
            let line = |what: &str, [p50, p95, p99, max]: [f64; 4]| {
                println!("{what:36} {p50:9.3} {p95:9.3} {p99:9.3} {max:9.3}");
            };
            for (what, name) in
                [("node: arrival to tf and pose sent", "total"), ("node: stamp to tf and pose sent", "age")]
            {
                let us = |rank| of(&format!("latency_us.{name}.{rank}")).parse().unwrap_or(f64::NAN);
                line(what, ["p50", "p95", "p99", "max"].map(|rank| us(rank) * 1e-3));
            }
            let Percentiles { p50, p95, p99, max } = self.round_trip_ms;
            line("round trip, seen here", [p50, p95, p99, max]);
        }
    }

    /// The other side of the node: a sensor's publisher, and a listener on /tf and /diagnostics.
    struct Robot {
        node: Node,
        clouds: Publisher<PointCloud2>,
        still: Publisher<TFMessage>,
        transforms: Messages<TFMessage>,
        diagnostics: Messages<DiagnosticArray>,
    }

    type Messages<T> = Box<dyn Stream<Item = T> + Unpin>;

    impl Robot {
        fn new() -> r2r::Result<Self> {
            let mut node = Node::create(Context::create()?, "flashreg_replay", "")?;
            let (one, many) = (QosProfile::default().keep_last(1), QosProfile::default().keep_last(100));
            Ok(Self {
                clouds: node.create_publisher(Input::Points3d3d.name(), one.clone())?,
                still: node.create_publisher("/tf_static", one.transient_local())?,
                transforms: Box::new(node.subscribe("/tf", many.clone())?),
                diagnostics: Box::new(node.subscribe("/diagnostics", many)?),
                node,
            })
        }

        /// Waits for the node, and tells it where the sensor is.
        fn meet(&mut self) -> anyhow::Result<()> {
            let transform = |parent: &str, child: &str| TransformStamped {
                header: Header { stamp: time(now()), frame_id: parent.to_owned() },
                child_frame_id: child.to_owned(),
                transform: Transform {
                    rotation: Quaternion { w: 1.0, ..Quaternion::default() },
                    ..Transform::default()
                },
            };
            let transforms = vec![transform(ODOM, BASE), transform(BASE, LIDAR)];
            self.still.publish(&TFMessage { transforms })?;
            // Its diagnostics arrive: then its transforms will too.
            self.numbers().context("no node answers")?;
            let end = Instant::now() + PATIENCE;
            let mut heard = 0;
            while heard == 0 && Instant::now() < end {
                self.spin_until(Instant::now() + Duration::from_millis(20));
                heard = self.clouds.get_inter_process_subscription_count()?;
            }
            ensure!(heard > 0, "nobody listens to {}", Input::Points3d3d.name());
            // The rest of the discovery.
            self.spin_until(Instant::now() + Duration::from_millis(300));
            Ok(())
        }

        fn spin_until(&mut self, end: Instant) {
            loop {
                let left = end.saturating_duration_since(Instant::now());
                self.node.spin_once(left.min(Duration::from_millis(20)));
                // r2r drops the newest message of a stream that nobody empties.
                while arrived(&mut self.transforms).is_some() || arrived(&mut self.diagnostics).is_some() {}
                if left.is_zero() {
                    return;
                }
            }
        }

        /// Sends the message, stamped now; the time until its transform came.
        fn ask(&mut self, cloud: &mut PointCloud2) -> r2r::Result<Option<Duration>> {
            let (stamp, sent) = (now(), Instant::now());
            cloud.header.stamp = time(stamp);
            self.clouds.publish(cloud)?;
            while sent.elapsed() < ANSWER {
                self.node.spin_once(Duration::from_millis(20));
                while let Some(message) = arrived(&mut self.transforms) {
                    let answers = message.transforms.iter().any(|tf| {
                        let Time { sec, nanosec } = tf.header.stamp;
                        tf.header.frame_id == MAP && Stamp::new(sec, nanosec) >= stamp
                    });
                    if answers {
                        return Ok(Some(sent.elapsed()));
                    }
                }
                while arrived(&mut self.diagnostics).is_some() {}
            }
            Ok(None)
        }

        /// What the node says of itself from now on.
        fn numbers(&mut self) -> anyhow::Result<BTreeMap<String, String>> {
            let (asked, end) = (now(), Instant::now() + PATIENCE);
            while Instant::now() < end {
                self.node.spin_once(Duration::from_millis(20));
                while let Some(message) = arrived(&mut self.diagnostics) {
                    let Time { sec, nanosec } = message.header.stamp;
                    let mut statuses = message.status.into_iter();
                    let ours = statuses.find(|status| status.name.ends_with(": localization"));
                    if let Some(status) = ours.filter(|_| Stamp::new(sec, nanosec) > asked) {
                        let pair = |KeyValue { key, value }| (key, value);
                        return Ok(status.values.into_iter().map(pair).collect());
                    }
                }
                while arrived(&mut self.transforms).is_some() {}
            }
            anyhow::bail!("no diagnostics of a node within {PATIENCE:?}")
        }
    }

    /// The oldest message that has arrived and was not looked at.
    fn arrived<T>(messages: &mut Messages<T>) -> Option<T> {
        messages.next().now_or_never().flatten()
    }

    fn now() -> Stamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    fn time(stamp: Stamp) -> Time {
        let (sec, nanosec) = stamp.to_ros();
        Time { sec, nanosec }
    }

    fn cloud(rows: &[Correspondence]) -> PointCloud2 {
        let is_weighted = rows.iter().any(|row| row.weight != 1.0);
        let names = ["x", "y", "z", "tx", "ty", "tz"].into_iter().chain(is_weighted.then_some("weight"));
        let field = |(i, name): (usize, &str)| PointField {
            name: name.to_owned(),
            offset: 4 * i as u32,
            datatype: PointField::FLOAT32 as u8,
            count: 1,
        };
        let fields: Vec<_> = names.enumerate().map(field).collect();
        let numbers = |row: &Correspondence| {
            let (s, t) = (row.source, row.target);
            let places = [s.x, s.y, s.z, t.x, t.y, t.z].map(|metres| metres as f32);
            places.into_iter().chain(is_weighted.then_some(row.weight))
        };
        let data = rows.iter().flat_map(numbers).flat_map(f32::to_le_bytes).collect();
        let point_step = 4 * fields.len() as u32;
        PointCloud2 {
            header: Header { stamp: Time::default(), frame_id: LIDAR.to_owned() },
            height: 1,
            width: rows.len() as u32,
            fields,
            is_bigendian: false,
            point_step,
            row_step: point_step * rows.len() as u32,
            data,
            is_dense: true,
        }
    }
}
