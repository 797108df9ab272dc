//! From what a backend finds to the result: the same for every backend.

use super::acceptance::{self, Evidence};
use super::cliques::MAX_PER_PIVOT;
use super::examine;
use super::findings::{Found, Rival, Summary};
use super::hypotheses::{Scoring, UNIT};
use super::lanes::{Deadline, Stop};
use super::layout::Layout;
use super::registrar::Backend;
use super::result::{Reason, Registration, RunnerUp, StageTimes};
use super::uncertainty::uncertainty;
use super::Problem;
use crate::geometry::{Pose, Vector};
use crate::gpu::device::DeviceMemory;
use crate::gpu::GpuError;
use crate::params::{Params, RegistrationParams};
use crate::status::Status;
use nalgebra::Matrix6;
use std::sync::Arc;
use std::time::Instant;

/// Poses within this many thresholds of each other are the same answer.
const ELSEWHERE: f64 = 2.0;
/// The rivals are searched from this share of the pivots.
const RIVALS_SHARE: usize = 4;

/// A problem on its way.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub layout: &'a Layout,
    pub r: &'a RegistrationParams,
    pub deadline: Deadline,
}

/// What finds and measures. The same numbers out of every one.
pub(super) trait Engine: Send + 'static {
    /// Its name in results and diagnostics.
    fn name(&self) -> &'static str;
    /// Threads of the CPU in which the whole registration runs; `None`: the caller's.
    fn pool(&self) -> Option<Arc<rayon::ThreadPool>>;
    /// Another one that works at the same time as this; `None`: there is nothing to be gained.
    fn twin(&self) -> Option<Result<Self, GpuError>>
    where
        Self: Sized;
    /// Memory of a device that it takes.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
    /// Hands over a problem; it may work on it from now on.
    fn begin(&mut self, task: Task) -> Result<(), Stop>;
    /// The best pose with its measurements, `None` if no three correspondences give one. Sets the
    /// inliers in `mask`, which is as long as the problem.
    fn find(
        &mut self,
        task: Task,
        mask: &mut [bool],
        clock: &mut Clock,
    ) -> Result<(Summary, Option<Found>), Stop>;
    /// Shows to `see` what could be elsewhere: the other candidates of the last `find`, and those
    /// of a search among the correspondences that do not support its pose.
    fn rivals(
        &mut self,
        task: Task,
        found: &Found,
        mask: &[bool],
        clock: &mut Clock,
        see: &mut dyn FnMut(Rival),
    ) -> Result<(), Stop>;
}

/// A backend: an engine and what follows. All memory is made at start for the largest problem.
pub(super) struct Pipeline<E> {
    engine: E,
    capacity: usize,
    layout: Layout,
    /// What was begun: since when, until when, and how far it came.
    clock: Clock,
    deadline: Deadline,
    begun: Result<(), Stop>,
}

impl<E: Engine> Pipeline<E> {
    /// Memory for `capacity` correspondences.
    pub fn new(engine: E, capacity: usize) -> Self {
        let now = Instant::now();
        Self {
            engine,
            capacity,
            layout: Layout::with_capacity(capacity),
            clock: Clock::start(now),
            deadline: Deadline::after_ms(now, 0.0),
            begun: Ok(()),
        }
    }

    /// Problems that are searched; others have their verdict already.
    fn is_searched(&self, problem: &Problem) -> bool {
        (3..=self.capacity).contains(&problem.len())
    }

    fn run(&mut self, params: &Params, result: &mut Registration) -> Result<(), Stop> {
        let clock = &mut self.clock;
        let task = Task { layout: &self.layout, r: &params.registration, deadline: self.deadline };
        let (summary, found) = self.engine.find(task, &mut result.inlier_mask, clock)?;
        result.edges = summary.edges;
        result.truncation = summary.truncation;
        result.pivots = summary.pivots;
        result.triples = summary.triples;
        let theta = params.registration.inlier_threshold;
        let Some(found) = found else {
            (result.status, result.reason) = no_pose(&self.layout, &summary, theta);
            clock.lap(|s| &mut s.refine);
            return Ok(());
        };
        let measured = &found.measured;
        let up = self.layout.up.map(|[_, up]| up);
        let uncertainty =
            uncertainty(&measured.information, &found.best.pose, &self.layout.source_origin, up);
        let mut evidence = Evidence::new(self.layout.count(), measured, uncertainty.map(|u| u.weakest));
        clock.lap(|s| &mut s.refine);

        // Only a pose that would be trusted is worth the search for what could rival it.
        let mut runner_up: Option<Rival> = None;
        if acceptance::judge(&evidence, &params.acceptance).0 == Status::Ok {
            let mut see = |rival: Rival| {
                let stronger = runner_up.is_none_or(|strongest| rival.support() > strongest.support());
                if rival.separation() > ELSEWHERE * theta && stronger {
                    runner_up = Some(rival);
                }
            };
            self.engine.rivals(task, &found, &result.inlier_mask, clock, &mut see)?;
        }
        evidence.runner_up = runner_up.map_or(0.0, |rival| rival.support());
        (result.status, result.reason) = acceptance::judge(&evidence, &params.acceptance);
        result.target_t_source = Some(uncentre(&self.layout, &found.best.pose).to_rigid());
        result.inliers = evidence.inliers;
        result.independent_inliers = evidence.independent;
        result.score = found.best.score as f64 / UNIT;
        result.log10_false_alarms = evidence.log10_false_alarms;
        result.log10_false_alarms_off_line = evidence.log10_false_alarms_off_line;
        result.covariance = uncertainty.map_or_else(Matrix6::zeros, |u| u.covariance);
        result.spread = measured.spread;
        result.margin = 1.0 - evidence.runner_up;
        result.runner_up = runner_up.map(|Rival { other, .. }| RunnerUp {
            target_t_source: uncentre(&self.layout, &other.pose).to_rigid(),
            score: other.score as f64 / UNIT,
            inliers: other.inliers as usize,
        });
        clock.lap(|s| &mut s.refine);
        Ok(())
    }
}

/// Why there is no hypothesis: a line, or nothing that agrees.
fn no_pose(layout: &Layout, summary: &Summary, theta: f64) -> (Status, Reason) {
    let all_flat = summary.triples > 0 && summary.usable == 0;
    let n = layout.count();
    let line = || {
        examine::is_line((0..n).map(|i| layout.source_at(i).into()), theta)
            || examine::is_line((0..n).map(|i| layout.target_at(i).into()), theta)
    };
    match all_flat || line() {
        true => (Status::Degenerate, Reason::Collinear),
        false => (Status::LowInliers, Reason::NoTriple),
    }
}

/// From the centred frames to the caller's.
fn uncentre(layout: &Layout, pose: &Pose) -> Pose {
    let shift: Vector = layout.target_origin - pose.rotation * layout.source_origin;
    Pose { rotation: pose.rotation, translation: pose.translation + shift }
}

impl<E: Engine> Backend for Pipeline<E> {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn threads(&self) -> usize {
        self.engine.pool().map_or(1, |pool| pool.current_num_threads())
    }

    fn twin(&self) -> Option<Result<Box<dyn Backend>, GpuError>> {
        let twin = self.engine.twin()?;
        Some(twin.map(|engine| Box::new(Self::new(engine, self.capacity)) as Box<dyn Backend>))
    }

    fn memory(&self) -> Option<DeviceMemory> {
        self.engine.memory()
    }

    fn begin(&mut self, problem: &Problem, params: &Params) {
        let start = Instant::now();
        self.clock = Clock::start(start);
        self.deadline = Deadline::after_ms(start, params.registration.time_budget_ms);
        self.begun = Ok(());
        if self.is_searched(problem) {
            self.layout.load(problem);
            let task = Task { layout: &self.layout, r: &params.registration, deadline: self.deadline };
            self.begun = self.engine.begin(task);
            self.clock.lap(|s| &mut s.upload);
        }
    }

    fn finish(
        &mut self,
        problem: &Problem,
        params: &Params,
        result: &mut Registration,
    ) -> Result<(), GpuError> {
        let n = problem.len();
        result.reset(self.name(), n);
        if n < 3 {
            (result.status, result.reason) = (Status::TooFew, Reason::TooFew(n));
            return Ok(());
        }
        if !self.is_searched(problem) {
            (result.status, result.reason) =
                (Status::BadInput, Reason::TooMany { got: n, max: self.capacity });
            return Ok(());
        }
        let begun = std::mem::replace(&mut self.begun, Ok(()));
        let done = begun.and_then(|()| match self.engine.pool() {
            Some(pool) => pool.install(|| self.run(params, result)),
            None => self.run(params, result),
        });
        if let Err(Stop::Fault(error)) = done {
            return Err(error);
        }
        if done.is_err() || self.deadline.passed() {
            result.reset(self.name(), n);
            let ms = self.clock.since_start();
            (result.status, result.reason) = (Status::OverBudget, Reason::OverBudget(ms));
        }
        result.stages = self.clock.stages;
        Ok(())
    }
}

/// How hypotheses are scored.
pub(super) fn scoring(r: &RegistrationParams) -> Scoring {
    Scoring { metric: r.metric, threshold: r.inlier_threshold as f32 }
}

/// Pivots of the first search and of that of the rivals.
pub(super) fn pivots(r: &RegistrationParams) -> [usize; 2] {
    let pivots = r.pivots.max(1) as usize;
    [pivots, pivots.div_ceil(RIVALS_SHARE)]
}

/// Triples kept per pivot.
pub(super) fn per_pivot(r: &RegistrationParams) -> usize {
    (r.triples_per_pivot.max(1) as usize).min(MAX_PER_PIVOT)
}

/// Measures stages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    last: Instant,
    stages: StageTimes,
}

impl Clock {
    fn start(now: Instant) -> Self {
        Self { start: now, last: now, stages: StageTimes::default() }
    }

    /// Milliseconds since the start.
    fn since_start(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1e3
    }

    /// Adds the time since the last lap to a stage.
    pub fn lap(&mut self, stage: impl Fn(&mut StageTimes) -> &mut f64) {
        let now = Instant::now();
        *stage(&mut self.stages) += (now - self.last).as_secs_f64() * 1e6;
        self.last = now;
    }

    /// Adds times measured elsewhere for what was done since the last lap.
    #[cfg(feature = "cuda")]
    pub fn measured(&mut self, t: StageTimes) {
        let s = &mut self.stages;
        s.upload += t.upload;
        s.fog += t.fog;
        s.sog += t.sog;
        s.pivots += t.pivots;
        s.cliques += t.cliques;
        s.hypotheses += t.hypotheses;
        s.refine += t.refine;
        self.last = Instant::now();
    }
}
