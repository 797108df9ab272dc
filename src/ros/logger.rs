//! The log of the node: stderr, the log file of ROS, and `/rosout`.

use super::{clean, time, NodeClock};
use log::Level;
use r2r::rcl_interfaces::msg::Log;
use r2r::{Node, Publisher, QosProfile};
use std::time::Duration;

/// Writes the messages of the node.
#[derive(Clone)]
pub struct Logger {
    name: String,
    level: log::LevelFilter,
    clock: NodeClock,
    /// Since Jazzy rcl leaves `/rosout` to the client library, and r2r does not serve it.
    rosout: Option<Publisher<Log>>,
}

impl Logger {
    /// For a node; `level` is that of `--log-level`.
    pub fn new(node: &mut Node, level: log::LevelFilter) -> r2r::Result<Self> {
        let (name, full) = (clean(node.logger()), node.fully_qualified_name()?);
        let publishers = node.get_publishers_info_by_topic("/rosout", false)?;
        let is_served = publishers
            .iter()
            .any(|p| format!("{}/{}", p.node_namespace.trim_end_matches('/'), p.node_name) == full);
        let qos = QosProfile::default()
            .keep_last(1000)
            .reliable()
            .transient_local()
            .lifespan(Duration::from_secs(10));
        let rosout = if is_served { None } else { Some(node.create_publisher("/rosout", qos)?) };
        Ok(Self { name, level, clock: NodeClock::of(node), rosout })
    }

    /// Something that people like to know.
    pub fn info(&self, text: &str) {
        self.write(Level::Info, text);
    }

    /// Something that is not as it should be.
    pub fn warn(&self, text: &str) {
        self.write(Level::Warn, text);
    }

    /// Something that does not work.
    pub fn error(&self, text: &str) {
        self.write(Level::Error, text);
    }

    fn write(&self, level: Level, text: &str) {
        let text = clean(text);
        // rcutils knows the levels of each logger itself.
        let number = match level {
            Level::Error => {
                r2r::log_error!(&self.name, "{text}");
                Log::ERROR as u8
            }
            Level::Warn => {
                r2r::log_warn!(&self.name, "{text}");
                Log::WARN as u8
            }
            _ => {
                r2r::log_info!(&self.name, "{text}");
                Log::INFO as u8
            }
        };
        if let Some(rosout) = self.rosout.as_ref().filter(|_| level <= self.level) {
            let stamp = time(self.clock.now());
            let log = Log { stamp, level: number, name: self.name.clone(), msg: text, ..Default::default() };
            if let Err(error) = rosout.publish(&log) {
                log::warn!("cannot publish on /rosout: {error}");
            }
        }
    }
}
