//! Instances to roots: tracks shared out to threads, jumps found and followed again.

use super::check::Newton;
use super::distinct::{Distinct, SAME};
use super::follow::follow;
use super::program::{Compiled, Path};
use super::roots::{Outcome, Root, Roots, Solution};
use super::start::StartSet;
use super::system::{distance, System};
use super::track::Settings;
use crate::gpu::GpuError;
use crate::status::TrackStatus;
use nalgebra::Complex;
use rayon::prelude::*;
use std::sync::OnceLock;
use std::time::Instant;

/// A GPU that is so many times slower in double precision follows tracks in single precision.
#[cfg(feature = "cuda")]
const MUCH_SLOWER: u32 = 8;
/// It takes about so long to get a GPU ready: its context, and kernels for the system.
const READY_S: f64 = 1.0;
/// How much more carefully tracks are followed that met or ended in a multiple root.
const TIGHTER: f64 = 20.0;
/// Most tracks take a twentieth of the most steps. One that takes more than this part of them is hardly
/// known any more; followed in another way, its root is found by another track.
const AT_FIRST: u32 = 4;
/// Ways aside from the straight one: see [`Settings::bow`]. Larger ones are longer.
const BOWS: [f64; 2] = [0.5, -0.5];
/// Rounding may move a root of a larger condition by more than it should: the condition does not know of
/// terms that cancel in the derivatives too.
const BLURRED: f64 = 1e4;
/// Sharpening moves a root by less.
const FAR: f64 = 1e-3;

/// Another way may find what this track did not.
fn is_unresolved(status: TrackStatus) -> bool {
    matches!(status, TrackStatus::MinStep | TrackStatus::Budget | TrackStatus::Duplicate)
}

/// The same for a track that may also have come to where it does not belong.
fn is_doubtful(status: TrackStatus) -> bool {
    is_unresolved(status) || status == TrackStatus::Singular
}

/// Tracks in whose places other roots can come.
fn wanting(roots: &Roots) -> Vec<usize> {
    let outcomes = roots.outcomes().iter().enumerate();
    outcomes.filter(|(_, o)| is_doubtful(o.status)).map(|(k, _)| k).collect()
}

/// Where tracks are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// On the GPU if there is one, the system fits it, and there is enough to do; else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU.
    Cuda,
}

/// Numbers in which tracks are followed; roots are polished in double precision in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arithmetic {
    /// Single precision on GPUs that are much slower in double precision.
    #[default]
    Auto,
    /// Double precision.
    Double,
    /// Single precision, on the GPU; what is doubtful is followed again in double precision, on the CPU,
    /// where roots are polished too.
    Single,
}

/// Finds all roots of instances of a system.
#[derive(Clone)]
pub struct Solver {
    system: System,
    compiled: Compiled,
    start: StartSet,
    settings: Settings,
    has_real_equations: bool,
    newton: OnceLock<Newton>,
    #[cfg(feature = "cuda")]
    gpu: Option<std::sync::Arc<std::sync::Mutex<Gpu>>>,
    /// Why it is not on the GPU, if it might have been.
    why_cpu: Option<String>,
}

/// What the GPU does.
#[cfg(feature = "cuda")]
enum Gpu {
    /// All of it.
    Whole(super::gpu::GpuTracker),
    /// The straight ways at first, in double precision.
    Double(super::gpu::Follower<Complex<f64>>),
    /// The same in single precision.
    Single(super::gpu::Follower<Complex<f32>>),
}

#[cfg(feature = "cuda")]
impl Gpu {
    fn begin(&mut self) {
        match self {
            Self::Whole(tracker) => tracker.begin(),
            Self::Double(tracker) => tracker.begin(),
            Self::Single(tracker) => tracker.begin(),
        }
    }

    fn kernel_ms(&self) -> f64 {
        match self {
            Self::Whole(tracker) => tracker.kernel_ms(),
            Self::Double(tracker) => tracker.kernel_ms(),
            Self::Single(tracker) => tracker.kernel_ms(),
        }
    }

    fn bundle(&self) -> &crate::gpu::bundle::Bundle {
        match self {
            Self::Whole(tracker) => tracker.bundle(),
            Self::Double(tracker) => tracker.bundle(),
            Self::Single(tracker) => tracker.bundle(),
        }
    }
}

impl Solver {
    /// A solver for a system with a start set of it.
    pub fn new(system: System, start: StartSet, settings: Settings) -> Self {
        let compiled = Compiled::new(&system);
        Self {
            has_real_equations: system.is_real(),
            system,
            compiled,
            start,
            settings,
            newton: OnceLock::new(),
            #[cfg(feature = "cuda")]
            gpu: None,
            why_cpu: None,
        }
    }

    /// The same solver with another start set, on the CPU.
    pub fn starting_at(&self, start: StartSet) -> Self {
        Self {
            start,
            #[cfg(feature = "cuda")]
            gpu: None,
            ..self.clone()
        }
    }

    /// The same solver, following on a backend in numbers of `arithmetic`; so many `instances` will have to
    /// be solved.
    ///
    /// # Errors
    /// Why the GPU cannot be used, if it was asked for.
    pub fn on(self, backend: Backend, arithmetic: Arithmetic, instances: usize) -> Result<Self, GpuError> {
        let is_single = arithmetic == Arithmetic::Single;
        let mut solver = Self { why_cpu: None, ..self };
        #[cfg(feature = "cuda")]
        {
            solver.gpu = None;
        }
        if backend == Backend::Cpu {
            let useless = || GpuError::Absent("single precision is for the GPU".to_owned());
            return if is_single { Err(useless()) } else { Ok(solver) };
        }
        let is_little = solver.cpu_seconds(instances) < READY_S;
        if backend == Backend::Auto && !is_single && is_little {
            solver.why_cpu = Some("it is done before a GPU would be ready".to_owned());
            return Ok(solver);
        }
        match solver.take_gpu(arithmetic) {
            Err(why) if is_single || backend == Backend::Cuda => return Err(why),
            Err(why) => solver.why_cpu = Some(why.to_string()),
            Ok(()) => {}
        }
        Ok(solver)
    }

    /// About how long the CPU takes for so many instances.
    fn cpu_seconds(&self, instances: usize) -> f64 {
        /// Steps of a track; operations of a thread in a second.
        const STEPS: f64 = 60.0;
        const PER_SECOND: f64 = 1e9;
        let tracks = instances as f64 * self.start.roots.len() as f64;
        let operations = tracks * STEPS * self.compiled.operations().step as f64;
        operations / (PER_SECOND * rayon::current_num_threads() as f64)
    }

    #[cfg(not(feature = "cuda"))]
    fn take_gpu(&mut self, _: Arithmetic) -> Result<(), GpuError> {
        Err(GpuError::Absent("built without CUDA (feature `cuda`)".to_owned()))
    }

    #[cfg(feature = "cuda")]
    fn take_gpu(&mut self, arithmetic: Arithmetic) -> Result<(), GpuError> {
        use super::gpu::{Follower, GpuTracker};
        let context = crate::gpu::context::Context::first()?;
        let cache = crate::gpu::bundle::cache_folder();
        let (compiled, start, cache) = (&self.compiled, &self.start, cache.as_deref());
        let is_single = match arithmetic {
            Arithmetic::Auto => context.single_to_double()? > MUCH_SLOWER,
            known => known == Arithmetic::Single,
        };
        let gpu = match (is_single, crate::gpu::nvrtc::Nvrtc::get()) {
            (true, _) => Gpu::Single(Follower::new(&context, compiled, start, cache)?),
            (false, Ok(_)) => Gpu::Whole(GpuTracker::new(&context, &self.system, compiled, start, cache)?),
            (false, Err(_)) => Gpu::Double(Follower::new(&context, compiled, start, cache)?),
        };
        self.gpu = Some(std::sync::Arc::new(std::sync::Mutex::new(gpu)));
        Ok(())
    }

    /// Where and how tracks are followed, in words.
    pub fn place(&self) -> String {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu.as_ref().and_then(|gpu| gpu.lock().ok()) {
            let precision = if let Gpu::Single(_) = *gpu { "single" } else { "double" };
            return format!("on the GPU in {precision} precision, kernels {}", gpu.bundle().origin());
        }
        let why = self.why_cpu.as_ref().map_or(String::new(), |why| format!(": {why}"));
        format!("on the CPU{why}")
    }

    /// It follows on the GPU.
    pub fn is_on_gpu(&self) -> bool {
        #[cfg(feature = "cuda")]
        return self.gpu.is_some();
        #[cfg(not(feature = "cuda"))]
        false
    }

    /// How long the kernels of the last call took, ms; `None` on the CPU.
    pub fn kernel_ms(&self) -> Option<f64> {
        #[cfg(feature = "cuda")]
        return self.gpu.as_ref().and_then(|gpu| gpu.lock().ok().map(|gpu| gpu.kernel_ms()));
        #[cfg(not(feature = "cuda"))]
        None
    }

    /// The system.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Its programs.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// What checks its roots.
    pub fn newton(&self) -> &Newton {
        self.newton.get_or_init(|| Newton::new(&self.system))
    }

    /// Where tracks start.
    pub fn start(&self) -> &StartSet {
        &self.start
    }

    /// The roots for each of `targets`, in their order; what is not done at `deadline` has the
    /// status `budget`.
    pub fn solve(&self, targets: &[Vec<Complex<f64>>], deadline: Option<Instant>) -> Vec<Solution> {
        let finite =
            |p: &[Complex<f64>]| p.len() == self.compiled.parameters && p.iter().all(|v| v.is_finite());
        let given: Vec<&[Complex<f64>]> =
            targets.iter().map(Vec::as_slice).filter(|target| finite(target)).collect();
        #[cfg(feature = "cuda")]
        if let Some(mut gpu) = self.gpu.as_ref().and_then(|gpu| gpu.lock().ok()) {
            gpu.begin();
        }
        let mut solutions = self.straight(&given, deadline);
        self.detours(&given, &mut solutions, deadline);
        if given.len() == targets.len() {
            return solutions;
        }
        let (unknowns, count) = (self.compiled.unknowns, self.start.roots.len());
        let mut done = solutions.into_iter();
        let invalid = || Solution { roots: Roots::lost(unknowns, count, TrackStatus::Invalid) };
        let all = targets.iter().map(|target| finite(target).then(|| done.next()).flatten());
        all.map(|solution| solution.unwrap_or_else(invalid)).collect()
    }

    /// The roots by the straight ways to the targets: tracks that met or ended in a multiple root are
    /// followed again; what still met has the status duplicate, but for the first of it.
    fn straight(&self, targets: &[&[Complex<f64>]], deadline: Option<Instant>) -> Vec<Solution> {
        let mut solutions = self.once(targets, self.at_first(), Some(self.careful()), deadline);
        let both = solutions.par_iter_mut().zip(targets);
        both.for_each(|(solution, target)| {
            if self.sharpen(&mut solution.roots, target) {
                self.settle(solution, self.is_real(target));
            }
        });
        solutions
    }

    /// Follows all roots to all targets, and again where that is asked for.
    fn once(
        &self,
        targets: &[&[Complex<f64>]],
        settings: Settings,
        careful: Option<Settings>,
        deadline: Option<Instant>,
    ) -> Vec<Solution> {
        let count = self.start.roots.len();
        if count == 0 {
            let none = || Solution { roots: Roots::lost(self.compiled.unknowns, 0, TrackStatus::Budget) };
            return targets.iter().map(|_| none()).collect();
        }
        #[cfg(feature = "cuda")]
        if let Some(mut gpu) = self.gpu.as_ref().and_then(|gpu| gpu.lock().ok()) {
            if let Gpu::Whole(tracker) = &mut *gpu {
                let real = targets.iter().all(|target| self.is_real(target));
                match tracker.follow(settings, careful, targets, real, left(deadline)) {
                    Ok(solutions) => return solutions,
                    Err(why) => log::error!("the GPU failed, tracks are followed on the CPU: {why}"),
                }
            }
        }
        let path = |target: &[Complex<f64>]| self.compiled.path(&self.start.parameters, target);
        let paths: Vec<Path> = match targets {
            [target] => vec![path(target)],
            _ => targets.par_iter().map(|target| path(target)).collect(),
        };
        let mut solutions = self.first(&paths, settings, deadline).instances(count);
        let both = solutions.par_iter_mut().zip(targets);
        let lists: Vec<Vec<usize>> =
            both.map(|(solution, target)| self.settle(solution, self.is_real(target))).collect();
        let again: Vec<(usize, usize)> =
            lists.iter().enumerate().flat_map(|(i, list)| list.iter().map(move |k| (i, *k))).collect();
        let Some(careful) = careful.filter(|_| !again.is_empty()) else { return solutions };
        let job = |k: usize| (&paths[again[k].0], self.start.roots[again[k].1].as_slice());
        let ends = follow(&self.compiled, careful, again.len(), job, deadline);
        for (root, &(i, k)) in ends.iter().zip(&again) {
            solutions[i].roots.improve(k, root);
        }
        solutions.par_iter_mut().zip(targets).zip(&lists).filter(|(_, list)| !list.is_empty()).for_each(
            |((solution, target), _)| {
                self.settle(solution, self.is_real(target));
            },
        );
        solutions
    }

    /// Every root along every path; what is doubtful in single precision also in double precision.
    fn first(&self, paths: &[Path], settings: Settings, deadline: Option<Instant>) -> Roots {
        let count = self.start.roots.len();
        let job = |k: usize| (&paths[k / count], self.start.roots[k % count].as_slice());
        #[cfg(feature = "cuda")]
        if let Some(mut gpu) = self.gpu.as_ref().and_then(|gpu| gpu.lock().ok()) {
            let found = match &mut *gpu {
                Gpu::Single(tracker) => tracker.follow(settings, paths, left(deadline)).map(|mut roots| {
                    let arrived = roots.iter().filter(Root::ok).count();
                    super::follow::polish(&self.compiled, settings, &mut roots, job);
                    let (all, good) = (roots.len(), roots.iter().filter(Root::ok).count());
                    log::debug!("single precision: {all} tracks, {arrived} arrived, {good} are roots");
                    let lost: Vec<usize> = (0..roots.len()).filter(|&k| !roots.at(k).ok()).collect();
                    let again = |k: usize| job(lost[k]);
                    let ends = follow(&self.compiled, settings, lost.len(), again, deadline);
                    ends.iter().zip(&lost).for_each(|(end, k)| roots.replace(*k, end));
                    Some(roots)
                }),
                Gpu::Double(tracker) => tracker.follow(settings, paths, left(deadline)).map(Some),
                Gpu::Whole(_) => Ok(None),
            };
            match found {
                Ok(Some(roots)) => return roots,
                Ok(None) => {}
                Err(why) => log::error!("the GPU failed, tracks are followed on the CPU: {why}"),
            }
        }
        follow(&self.compiled, settings, paths.len() * count, job, deadline)
    }

    /// With these parameters the conjugate of a root is a root.
    fn is_real(&self, target: &[Complex<f64>]) -> bool {
        self.has_real_equations && target.iter().all(|v| v.im == 0.0)
    }

    /// How carefully tracks are followed at first.
    fn at_first(&self) -> Settings {
        Settings { max_steps: self.settings.max_steps.div_ceil(AT_FIRST), ..self.settings }
    }

    /// How carefully they are followed after that.
    fn careful(&self) -> Settings {
        Settings { max_steps: self.settings.max_steps, ..self.settings.tighter(TIGHTER) }
    }

    /// Names tracks that came to a root which an earlier one has; if equations are `real`, conjugates of
    /// roots that are not there yet take their places and those of others that found nothing. Gives the
    /// tracks that may find more if they are followed more carefully.
    fn settle(&self, solution: &mut Solution, real: bool) -> Vec<usize> {
        let roots = &mut solution.roots;
        let meetings = self.meetings(roots);
        meetings.iter().for_each(|(k, _)| roots.lose(*k, TrackStatus::Duplicate));
        if real {
            self.mirror(solution);
        }
        let mut list = wanting(&solution.roots);
        list.retain(|k| {
            matches!(solution.roots.at(*k).status, TrackStatus::Singular | TrackStatus::Duplicate)
        });
        if !list.is_empty() {
            list.extend(meetings.iter().map(|(_, first)| first));
            list.sort_unstable();
            list.dedup();
        }
        list
    }

    /// Conjugates of roots that are not there yet take the places of tracks that found nothing.
    fn mirror(&self, solution: &mut Solution) {
        let wanting = wanting(&solution.roots);
        if wanting.is_empty() {
            return;
        }
        let known = solution.distinct(&self.system);
        let roots = &mut solution.roots;
        let conjugate = |k: usize| -> Vec<_> { roots.at(k).point.iter().map(|v| v.conj()).collect() };
        let new: Vec<(usize, Vec<_>)> = (0..roots.len())
            .filter(|k| roots.at(*k).ok())
            .map(|k| (k, conjugate(k)))
            .filter(|(_, point)| known.find(point).is_none())
            .collect();
        for (to, (from, point)) in wanting.iter().zip(&new) {
            let Outcome { steps, single, corrections, .. } = roots.outcomes()[*to];
            roots.put(*to, Outcome { steps, single, corrections, ..roots.outcomes()[*from] }, point);
        }
    }

    /// Roots so badly conditioned that rounding moves them too far are told by equations of twice the
    /// digits, or not at all; true if some may be the same as others now.
    fn sharpen(&self, roots: &mut Roots, target: &[Complex<f64>]) -> bool {
        let blurred = |k: &usize| roots.at(*k).ok() && roots.at(*k).condition > BLURRED;
        let list: Vec<usize> = (0..roots.len()).filter(blurred).collect();
        let sharp = |k: &usize| self.newton().sharpen(roots.at(*k).point, target, FAR);
        let sharp: Vec<_> = list.par_iter().with_min_len(8).map(sharp).collect();
        let mut moved = false;
        for (k, sharp) in list.into_iter().zip(sharp) {
            match sharp {
                Some(point) => {
                    moved |= distance(roots.at(k).point, &point) > 0.1 * SAME;
                    roots.place(k, &point);
                }
                None => roots.lose(k, TrackStatus::Singular),
            }
        }
        moved
    }

    /// Follows all tracks of instances that lack roots in bows aside from the straight way, where tracks
    /// go to other roots, at last with care: those that were missing take the place of tracks that found none.
    fn detours(&self, targets: &[&[Complex<f64>]], solutions: &mut [Solution], deadline: Option<Instant>) {
        for (bow, settings) in BOWS.into_iter().zip([self.at_first(), self.careful()]) {
            let unresolved = |s: &Solution| s.roots.outcomes().iter().any(|o| is_unresolved(o.status));
            let (targets, wanting): (Vec<&[Complex<f64>]>, Vec<&mut Solution>) =
                targets.iter().copied().zip(&mut *solutions).filter(|(_, s)| unresolved(s)).unzip();
            if wanting.is_empty() || deadline.is_some_and(|end| Instant::now() >= end) {
                return;
            }
            let ends = self.once(&targets, Settings { bow, ..settings }, None, deadline);
            let all = wanting.into_par_iter().zip(ends).zip(targets);
            all.for_each(|((solution, mut ends), target)| {
                self.sharpen(&mut ends.roots, target);
                self.fill(solution, ends.found());
                if self.is_real(target) {
                    self.mirror(solution);
                }
            });
        }
    }

    /// Puts those of `ends` that are new in the place of tracks that found nothing.
    fn fill<'r>(&self, solution: &mut Solution, ends: impl Iterator<Item = Root<'r>>) {
        let mut known = solution.distinct(&self.system);
        let mut new = ends.filter(|r| r.ok() && known.insert(r.point));
        for k in 0..solution.roots.len() {
            if is_unresolved(solution.roots.at(k).status) {
                match new.next() {
                    Some(found) => solution.roots.replace(k, found),
                    None => break,
                }
            }
        }
    }

    /// Tracks that came to a root which an earlier one has, each with that.
    fn meetings(&self, roots: &Roots) -> Vec<(usize, usize)> {
        let mut known = Distinct::new(&self.system);
        let mut owners = Vec::new();
        let mut found = Vec::new();
        for (k, root) in roots.iter().enumerate().filter(|(_, r)| r.ok()) {
            match known.find(root.point) {
                Some(i) => found.push((k, owners[i])),
                None => {
                    known.insert(root.point);
                    owners.push(k);
                }
            }
        }
        found
    }
}

/// The time that is left.
#[cfg(feature = "cuda")]
fn left(deadline: Option<Instant>) -> Option<std::time::Duration> {
    deadline.map(|end| end.saturating_duration_since(Instant::now()))
}
