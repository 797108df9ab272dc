//! The map that raw clouds are localized in: read and prepared beside the worker, and shown to who listens.

use super::diagnostics::{MapState, Reporter};
use super::lock;
use super::logger::Logger;
use super::node::NodeError;
use super::publish::{cloud, is_heard};
use super::streams::{Inbox, LatestSlot};
use crate::features::{Filters, RawCloud};
use crate::localizer::map::{CacheUse, Map, MapError, Progress, Settings};
use crate::messages::point_cloud::PointCloudView;
use crate::messages::MessageError;
use crate::params::Params;
use r2r::sensor_msgs::msg::PointCloud2;
use r2r::std_msgs::msg::Header;
use r2r::{Node, Publisher, QosProfile};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Topic of maps.
pub const MAP: &str = "map";
const NO_MAP: &str = "map.path is empty, and no message has come on the topic map";
/// How often somebody who wants to see the map is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Why a map that came as a message is not used.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("frame '{got}' is not '{want}' (frames.map)")]
    Frame { got: String, want: String },
    #[error(transparent)]
    Map(#[from] MapError),
}

/// The newest map that has come as a message (CDR) and that nobody has read yet.
#[derive(Default)]
pub struct Arrivals {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

#[derive(Default)]
struct Waiting {
    message: LatestSlot<Vec<u8>>,
    stop: bool,
}

impl Arrivals {
    /// Stores a message in place of one that waits.
    pub fn put(&self, cdr: Vec<u8>) {
        let _ = lock(&self.waiting).message.put(cdr);
        self.wake.notify_one();
    }

    /// The node stops.
    pub fn stop(&self) {
        lock(&self.waiting).stop = true;
        self.wake.notify_one();
    }

    fn stopped(&self) -> bool {
        lock(&self.waiting).stop
    }

    /// Waits for a message, so long at most if a time is given. None: the time is over, or the node stops.
    fn take(&self, patience: Option<Duration>) -> Option<Vec<u8>> {
        let end = patience.map(|patience| Instant::now() + patience);
        let mut waiting = lock(&self.waiting);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if waiting.stop || left == Some(Duration::ZERO) {
                return None;
            }
            if let Some(message) = waiting.message.take() {
                return Some(message);
            }
            waiting = match left {
                Some(left) => self.wake.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Reads the file of `map.path`, or the maps that come as messages, and gives them to the worker.
pub struct Loader {
    arrivals: Arc<Arrivals>,
    inbox: Arc<Inbox>,
    reporter: Reporter,
    logger: Logger,
    map_points: Publisher<PointCloud2>,
    path: Option<PathBuf>,
    frame: String,
    force_little_endian: bool,
    settings: Settings,
    /// Of the last message that gave a map.
    taken: Option<u64>,
    /// The map that nobody has been shown yet.
    unseen: Option<Arc<Map>>,
}

impl Loader {
    /// For the node.
    pub fn new(
        node: &mut Node,
        params: &Params,
        inbox: &Arc<Inbox>,
        reporter: &Reporter,
        logger: &Logger,
    ) -> r2r::Result<Self> {
        let latched = QosProfile::default().keep_last(1).reliable().transient_local();
        let path = Some(&params.map.path).filter(|path| !path.is_empty()).map(PathBuf::from);
        match &path {
            Some(path) => lock(&reporter.state).map.load(format!("loading {}", path.display())),
            None => lock(&reporter.state).map = MapState::none(NO_MAP.to_owned()),
        }
        Ok(Self {
            arrivals: Arc::default(),
            inbox: inbox.clone(),
            reporter: reporter.clone(),
            logger: logger.clone(),
            map_points: node.create_publisher("map_points", latched)?,
            path,
            frame: params.frames.map.clone(),
            force_little_endian: params.input.force_little_endian,
            settings: Settings::from(params),
            taken: None,
            unseen: None,
        })
    }

    /// Where maps that come as messages are put; none if the map is a file.
    pub fn arrivals(&self) -> &Arc<Arrivals> {
        &self.arrivals
    }

    /// The map comes from a file and not as a message.
    pub fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Works until the node stops. An error: the file of `map.path` cannot be used.
    pub fn run(mut self) -> Result<(), NodeError> {
        if let Some(path) = self.path.take() {
            let name = path.display().to_string();
            let started = Instant::now();
            let map = Map::load(&path, &self.settings, self.progress(&name));
            match map {
                _ if self.arrivals.stopped() => return Ok(()),
                Ok(map) => self.hand_over(map, &name, started),
                Err(error @ MapError::File { .. }) => return Err(NodeError::Map(error.to_string())),
                Err(error) => return Err(NodeError::Map(format!("{name}: {error}"))),
            }
        }
        while !self.arrivals.stopped() {
            let patience = self.unseen.is_some().then_some(LOOK);
            if let Some(cdr) = self.arrivals.take(patience) {
                self.receive(&cdr);
            }
            self.show();
        }
        Ok(())
    }

    fn receive(&mut self, cdr: &[u8]) {
        const NAME: &str = "the message on the topic map";
        let started = Instant::now();
        // Some publishers repeat their map: what is known of the pose is not to be forgotten for that.
        let digest = PointCloudView::parse(cdr).ok().map(|view| digest(&view));
        if digest.is_some() && digest == self.taken {
            return;
        }
        match self.read(cdr, self.progress(NAME)) {
            _ if self.arrivals.stopped() => {}
            Ok(map) => {
                self.taken = digest;
                self.hand_over(map, NAME, started);
            }
            Err(error) => {
                let why = format!("{NAME} is refused: {error}");
                self.logger.warn(&why);
                lock(&self.reporter.state).map.refuse(why);
                self.inbox.post(|work| work.refused_maps += 1);
            }
        }
    }

    fn read(&self, cdr: &[u8], progress: impl FnMut(Progress)) -> Result<Map, Refusal> {
        let view = PointCloudView::parse(cdr)?;
        let slashless = |name: &str| name.trim_start_matches('/').to_owned();
        let (got, want) = (slashless(view.frame), slashless(&self.frame));
        if got != want {
            return Err(Refusal::Frame { got, want });
        }
        let everything = Filters { min_range: 0.0, max_range: f64::INFINITY, body: None };
        let mut cloud = RawCloud::default();
        RawCloud::read(&view, &everything, self.force_little_endian, &mut cloud)?;
        Ok(Map::from_points(&cloud.points, &self.settings, progress)?)
    }

    /// Tells how far a map has come.
    fn progress(&self, name: &str) -> impl FnMut(Progress) + use<> {
        let (state, name) = (self.reporter.state.clone(), name.to_owned());
        move |Progress { stage, done, total }| {
            let percent = 100 * done / total.max(1);
            lock(&state).map.load(format!("loading {name}: {stage}, {percent} %"));
        }
    }

    fn hand_over(&mut self, map: Map, name: &str, started: Instant) {
        let note = format!(
            "{name}: {} points, {} after voxels of {:.2} m, {} submaps; ready after {:.1} s{}",
            map.raw_points,
            map.surface.points.len(),
            map.lengths.voxel,
            map.submaps.len(),
            started.elapsed().as_secs_f64(),
            if map.cache == CacheUse::Read { ", kept from the start before" } else { "" }
        );
        self.logger.info(&note);
        lock(&self.reporter.state).map.take(&map, note);
        let map = Arc::new(map);
        self.unseen = Some(map.clone());
        self.inbox.post(|work| _ = work.map.put(map));
    }

    /// Sends the surface of the map as soon as somebody listens; who comes later gets it too.
    fn show(&mut self) {
        if !is_heard(&self.map_points) {
            return;
        }
        let Some(map) = self.unseen.take() else { return };
        let header = Header { frame_id: self.frame.clone(), ..Header::default() };
        if let Err(error) = self.map_points.publish(&cloud(header, map.surface.points.iter().copied())) {
            log::warn!("cannot publish the map: {error}");
        }
    }
}

/// The same of two messages that hold the same points in the same frame.
fn digest(view: &PointCloudView) -> u64 {
    let mut hasher = DefaultHasher::new();
    (view.frame, view.height, view.width, view.point_step, view.row_step).hash(&mut hasher);
    view.is_bigendian.hash(&mut hasher);
    for field in view.fields() {
        (field.name, field.offset, field.datatype, field.count).hash(&mut hasher);
    }
    view.data.hash(&mut hasher);
    hasher.finish()
}
