//! The node: makes everything, spins, stops.

use super::arguments::{Arguments, UnexpectedArgument};
use super::diagnostics::{Reporter, State};
use super::logger::Logger;
use super::maps::{Loader, MAP};
use super::parameters::{from_overrides, Parameters};
use super::publish::Outputs;
use super::streams::Inbox;
use super::worker::{Announcer, Worker};
use super::{lock, NodeClock};
use crate::localizer::transforms::TransformBuffer;
use crate::localizer::{Input, Localizer, PerInput};
use crate::messages::Stamp;
use crate::params::{InputQos, ParamError, Params};
use crate::registration::BackendError;
use futures::{Stream, StreamExt};
use r2r::geometry_msgs::msg::PoseWithCovarianceStamped;
use r2r::qos::ReliabilityPolicy;
use r2r::std_srvs::srv::{Empty, SetBool, Trigger};
use r2r::{Context, Node, QosProfile};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// Topic of the calibration of cameras.
pub const CAMERA_INFO: &str = "camera_info";
/// Type of all correspondences.
const INPUT_TYPE: &str = "sensor_msgs/msg/PointCloud2";
const NOBODY: &str = "nobody publishes there";
/// Longest time without a look at the stop flag.
const SPIN: Duration = Duration::from_millis(50);
/// Time that the worker has to finish its message when the node stops.
const STOP: Duration = Duration::from_secs(4);

/// Why the node ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// An argument that nobody reads.
    #[error(transparent)]
    Argument(#[from] UnexpectedArgument),
    /// A parameter that cannot be used.
    #[error(transparent)]
    Parameter(#[from] ParamError),
    /// The arguments after `--ros-args`, or a parameter file, cannot be read.
    #[error("ROS arguments: {0}")]
    RosArguments(String),
    /// No backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The file of `map.path` cannot be used.
    #[error("map.path: {0}")]
    Map(String),
    /// ROS refused something.
    #[error("ROS: {0}")]
    Ros(#[from] r2r::Error),
    /// A thread or a signal handler could not be had.
    #[error("operating system: {0}")]
    System(#[from] std::io::Error),
    /// The GPU failed for good and `backend.on_fault` is exit.
    #[error("the GPU is lost: {0}")]
    GpuLost(String),
    /// A thread died.
    #[error("internal error: {0}")]
    Thread(String),
}

impl NodeError {
    /// Exit code of the program: 2 if it was started wrongly, 1 if it failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Argument(_) | Self::Parameter(_) | Self::RosArguments(_) => 2,
            Self::Backend(_) | Self::Map(_) => 2,
            Self::Ros(_) | Self::System(_) | Self::GpuLost(_) | Self::Thread(_) => 1,
        }
    }
}

/// Runs the node until `stop` is set.
pub fn run(arguments: &Arguments, stop: &Arc<AtomicBool>) -> Result<(), NodeError> {
    let mut node = Node::create(context()?, "flashreg", "")?;
    let (params, sim_time) = from_overrides(&lock(&node.params))?;
    let localizer = Localizer::new(&params)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks = LocalSet::new();
    let (parameters, services) = Parameters::serve(&mut node, params.clone(), sim_time)?;
    for service in services {
        tasks.spawn_local(service);
    }
    if sim_time {
        node.get_time_source().enable_sim_time(&mut node)?;
    }
    let clock = NodeClock::of(&node);
    let logger = Logger::new(&mut node, arguments.log_level)?;
    let reporter = reporter(&mut node, &localizer, &params, &clock)?;
    let inbox = Inbox::new();
    listen(&mut node, &tasks, &params, &inbox, &reporter, &logger, localizer.transforms())?;
    let loader = Loader::new(&mut node, &params, &inbox, &reporter, &logger)?;
    let maps = loader.arrivals().clone();
    if !loader.has_path() {
        let latched = QosProfile::default().keep_last(1).reliable().transient_local();
        let (messages, to) = (node.subscribe_raw(MAP, INPUT_TYPE, latched)?, maps.clone());
        drain(&tasks, messages, move |cdr| to.put(cdr));
    }
    offer(&mut node, &tasks, &inbox)?;
    let mut timer = node.create_wall_timer(Duration::from_secs_f64(params.diagnostics.period_sec))?;
    let periodic = reporter.clone();
    tasks.spawn_local(async move {
        while timer.tick().await.is_ok() {
            periodic.publish();
        }
    });
    let (name, namespace) = (node.name()?, node.namespace()?);
    let topics = PerInput::new(|input| arguments.resolve(input.name(), &name, &namespace));
    let listed = topics.iter().map(|(_, topic)| topic.as_str()).collect::<Vec<_>>().join(", ");
    let mode = params.tf.mode.word();
    logger.info(&format!(
        "flashreg {} listens to {listed}, tf.mode {mode}, backend {} ({})",
        env!("CARGO_PKG_VERSION"),
        localizer.backend(Input::Points3d3d),
        localizer.why(Input::Points3d3d)
    ));
    let worker = Worker {
        localizer,
        inbox: inbox.clone(),
        outputs: Outputs::new(&mut node, &params.frames.map)?,
        reporter: reporter.clone(),
        clock: clock.clone(),
        log: Announcer::new(logger.clone()),
        params: params.clone(),
        active: true,
    };
    let failure = Arc::default();
    let ending = || Ending { stop: stop.clone(), reporter: reporter.clone(), failure: Arc::clone(&failure) };
    let worker = start("localizer", ending(), move || worker.run().map_err(NodeError::GpuLost))?;
    // Never waited for: it touches nothing of the node while it reads a map.
    start("map", ending(), move || loader.run())?;
    let mut silence = Silence::new(topics, &params);
    let mut last_time = Stamp::default();
    let mut uses_sim_time = sim_time;
    tasks.block_on(&runtime, async {
        while !stop.load(Ordering::Relaxed) {
            node.spin_once(SPIN);
            // Everything that the spin has woken runs now, before the next message is taken.
            tokio::task::yield_now().await;
            let now = clock.now();
            if now.seconds_since(last_time) < -1.0 || (last_time == Stamp::default() && now != last_time) {
                inbox.post(|work| work.clock = true);
            }
            last_time = now;
            let mut parameters = parameters.borrow_mut();
            if let Some(params) = parameters.take_changed() {
                inbox.post(|work| _ = work.params.put(params));
            }
            if parameters.sim_time() != uses_sim_time {
                uses_sim_time = parameters.sim_time();
                let source = node.get_time_source();
                if !uses_sim_time {
                    source.disable_sim_time();
                } else if let Err(error) = source.enable_sim_time(&mut node) {
                    logger.error(&format!("use_sim_time: {error}"));
                }
            }
            let (ages, changed) = {
                let (state, now) = (lock(&reporter.state), Instant::now());
                let ages = PerInput::new(|input| state.channels.get(input).input_age(now));
                (ages, state.has_changed(now))
            };
            if changed {
                reporter.publish();
            }
            silence.check(&ages, &node, &logger);
        }
    });
    inbox.post(|work| work.stop = true);
    maps.stop();
    let patience = Instant::now() + STOP;
    while !worker.is_finished() {
        if Instant::now() > patience {
            // Not dropped: that would wait for the publishers, which the worker may be using.
            std::mem::forget(node);
            return Err(NodeError::Thread(format!("the worker does not stop within {STOP:?}")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let failure = lock(&failure).take();
    failure.map_or(Ok(()), Err)
}

/// The ROS context. r2r panics where rcl cannot read the arguments.
fn context() -> Result<Context, NodeError> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let context = catch_unwind(Context::create);
    std::panic::set_hook(hook);
    match context {
        Ok(context) => Ok(context?),
        Err(panic) => Err(NodeError::RosArguments(panic_text(panic.as_ref()))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panic").to_owned()
}

fn reporter(
    node: &mut Node,
    localizer: &Localizer,
    params: &Params,
    clock: &NodeClock,
) -> Result<Reporter, NodeError> {
    let limit = params.tf.hold_sec.max(params.input.max_age_sec);
    let mut state = State::new(Duration::from_secs_f64(limit));
    for (input, channel) in state.channels.iter_mut() {
        channel.set_backend(localizer.backend(input), localizer.why(input));
    }
    let publisher = node.create_publisher("/diagnostics", QosProfile::default())?;
    let name = node.fully_qualified_name()?;
    Ok(Reporter::new(state, publisher, clock.clone(), name.trim_start_matches('/')))
}

/// Subscribes, and drains every stream: each message goes to its slot as soon as it is taken.
fn listen(
    node: &mut Node,
    tasks: &LocalSet,
    params: &Params,
    inbox: &Arc<Inbox>,
    reporter: &Reporter,
    logger: &Logger,
    transforms: Arc<Mutex<TransformBuffer>>,
) -> r2r::Result<()> {
    let qos = match params.input.qos {
        InputQos::BestEffort => QosProfile::sensor_data().keep_last(1),
        InputQos::Reliable => QosProfile::default().keep_last(1),
    };
    for input in Input::ALL {
        let clouds = node.subscribe_raw(input.name(), INPUT_TYPE, qos.clone())?;
        let (to, state) = (inbox.clone(), reporter.state.clone());
        drain(tasks, clouds, move |cdr| {
            lock(&state).channels.get_mut(input).message_arrived(Instant::now());
            to.put_message(input, cdr);
        });
    }
    let infos = node.subscribe_raw(CAMERA_INFO, "sensor_msgs/msg/CameraInfo", QosProfile::sensor_data())?;
    let to = inbox.clone();
    drain(tasks, infos, move |cdr| to.put_camera_info(cdr));
    let poses =
        node.subscribe::<PoseWithCovarianceStamped>("initialpose", QosProfile::default().keep_last(1))?;
    let to = inbox.clone();
    drain(tasks, poses, move |pose| to.post(|work| _ = work.initial_pose.put(pose)));
    let dynamic = QosProfile::default().keep_last(100);
    for (topic, qos, is_static) in
        [("/tf", dynamic.clone(), false), ("/tf_static", dynamic.transient_local(), true)]
    {
        let (to, buffer, logger) = (inbox.clone(), transforms.clone(), logger.clone());
        let mut warned: Option<Instant> = None;
        let messages = node.subscribe_raw(topic, "tf2_msgs/msg/TFMessage", qos)?;
        drain(tasks, messages, move |cdr| {
            let taken = lock(&buffer).insert_message(&cdr, is_static);
            if let Err(error) = taken {
                if warned.is_none_or(|at| at.elapsed() > Duration::from_secs(10)) {
                    warned = Some(Instant::now());
                    logger.warn(&format!("{topic}: {error}"));
                }
            }
            to.mark_transforms();
        });
    }
    Ok(())
}

fn drain<T: 'static>(
    tasks: &LocalSet,
    mut stream: impl Stream<Item = T> + Unpin + 'static,
    mut take: impl FnMut(T) + 'static,
) {
    tasks.spawn_local(async move {
        while let Some(message) = stream.next().await {
            take(message);
        }
    });
}

/// Offers the services.
fn offer(node: &mut Node, tasks: &LocalSet, inbox: &Arc<Inbox>) -> r2r::Result<()> {
    let qos = QosProfile::services_default();
    let requests = node.create_service::<Empty::Service>("reinitialize_global_localization", qos.clone())?;
    let to = inbox.clone();
    drain(tasks, requests, move |request| {
        to.post(|work| work.reset = true);
        warn_unanswered(request.respond(Empty::Response {}));
    });
    let requests = node.create_service::<SetBool::Service>("~/set_active", qos.clone())?;
    let to = inbox.clone();
    drain(tasks, requests, move |request| {
        let active = request.message.data;
        to.post(|work| _ = work.active.put(active));
        let message = if active { "switched on" } else { "switched off" }.to_owned();
        warn_unanswered(request.respond(SetBool::Response { success: true, message }));
    });
    let requests = node.create_service::<Trigger::Service>("~/trigger", qos)?;
    let to = inbox.clone();
    drain(tasks, requests, move |request| {
        let mut replaced = None;
        to.post(|work| replaced = work.trigger.put(request));
        if let Some(older) = replaced {
            let message = "another trigger came before this one was begun".to_owned();
            warn_unanswered(older.respond(Trigger::Response { success: false, message }));
        }
    });
    Ok(())
}

fn warn_unanswered(sent: r2r::Result<()>) {
    if let Err(error) = sent {
        log::warn!("a service request could not be answered: {error}");
    }
}

/// What a thread that fails does to the node.
struct Ending {
    stop: Arc<AtomicBool>,
    reporter: Reporter,
    /// The first of all threads.
    failure: Arc<Mutex<Option<NodeError>>>,
}

/// Starts a thread. If it panics or fails the state says so, the last diagnostics go out, and the node stops.
fn start(
    name: &str,
    ending: Ending,
    work: impl FnOnce() -> Result<(), NodeError> + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let error = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => NodeError::Thread(panic_text(panic.as_ref())),
        };
        lock(&ending.reporter.state).failure = Some(error.to_string());
        ending.reporter.publish();
        lock(&ending.failure).get_or_insert(error);
        ending.stop.store(true, Ordering::Relaxed);
    })
}

/// Warns once in every silence: of all inputs while none has been heard, then of each that has been.
struct Silence {
    topics: PerInput<String>,
    wanted: InputQos,
    after: Duration,
    since: Instant,
    warned: PerInput<bool>,
}

impl Silence {
    fn new(topics: PerInput<String>, params: &Params) -> Self {
        let after = Duration::from_secs_f64(params.diagnostics.silence_sec);
        let (wanted, since) = (params.input.qos, Instant::now());
        Self { topics, wanted, after, since, warned: PerInput::default() }
    }

    /// `ages`: of the last message of each input, if there was one.
    fn check(&mut self, ages: &PerInput<Option<Duration>>, node: &Node, logger: &Logger) {
        let nothing = ages.iter().all(|(_, age)| age.is_none());
        let mut unused = Vec::new();
        for (input, age) in ages.iter() {
            let silent = age.or(nothing.then(|| self.since.elapsed())).unwrap_or_default();
            let warned = self.warned.get_mut(input);
            if silent < self.after {
                *warned = false;
            } else if !std::mem::replace(warned, true) {
                let topic = self.topics.get(input);
                let (seconds, publishers) = (silent.as_secs_f64(), self.publishers(topic, node));
                match publishers {
                    None if nothing => unused.push(topic.as_str()),
                    publishers => {
                        let publishers = publishers.unwrap_or_else(|| NOBODY.to_owned());
                        logger.warn(&format!("no message on {topic} for {seconds:.1} s; {publishers}"));
                    }
                }
            }
        }
        // One line for all that nobody uses, and none if something is used.
        if unused.len() == Input::ALL.len() {
            let (topics, seconds) = (unused.join(", "), self.since.elapsed().as_secs_f64());
            logger.warn(&format!("no message on {topics} for {seconds:.1} s; {NOBODY}"));
        }
    }

    /// Who publishes on the topic, and why that may not be heard.
    fn publishers(&self, topic: &str, node: &Node) -> Option<String> {
        let found = match node.get_publishers_info_by_topic(topic, false) {
            Ok(found) if found.is_empty() => return None,
            Ok(found) => found,
            Err(error) => return Some(format!("publishers unknown: {error}")),
        };
        let texts = found.iter().map(|p| {
            let best_effort = matches!(p.qos_profile.reliability, ReliabilityPolicy::BestEffort);
            let verdict = if p.topic_type != INPUT_TYPE {
                format!("has the type {}, not {INPUT_TYPE}", p.topic_type)
            } else if best_effort && self.wanted == InputQos::Reliable {
                "is best_effort: incompatible with input.qos reliable".to_owned()
            } else {
                let kind = if best_effort { "best_effort" } else { "reliable" };
                format!("is {kind}: compatible")
            };
            format!("{}/{} {verdict}", p.node_namespace.trim_end_matches('/'), p.node_name)
        });
        Some(format!("publishers: {}", texts.collect::<Vec<_>>().join(", ")))
    }
}
