//! Instances to roots: tracks shared out to threads, jumps found and followed again.

use super::distinct::Distinct;
use super::follow::follow;
use super::program::{Compiled, Path};
use super::roots::{Root, Roots, Solution};
use super::start::StartSet;
use super::system::System;
use super::track::Settings;
use crate::gpu::GpuError;
use crate::status::TrackStatus;
use nalgebra::Complex;
use rayon::prelude::*;
use std::time::Instant;

/// A GPU that is so many times slower in double precision follows tracks in single precision.
#[cfg(feature = "cuda")]
const MUCH_SLOWER: u32 = 8;
/// It takes about so long to get a GPU ready: its context, and kernels for the system.
const READY_S: f64 = 1.0;
/// How much more carefully tracks are followed that met or found nothing.
const TIGHTER: f64 = 20.0;
/// Most tracks take a tenth of the most steps: one that takes more than this part of them is followed in
/// another way first.
const AT_FIRST: u32 = 2;
/// Ways around the straight one: how far aside they are in the middle, relative to its length.
const SIDES: [f64; 2] = [0.6, -0.9];

/// Another way may find what this track did not.
fn is_unresolved(status: TrackStatus) -> bool {
    is_given_up(status) || status == TrackStatus::Duplicate
}

/// With more care this track may come to an end.
fn is_given_up(status: TrackStatus) -> bool {
    matches!(status, TrackStatus::MinStep | TrackStatus::Budget)
}

/// The same for a track that may also have come to where it does not belong.
fn is_doubtful(status: TrackStatus) -> bool {
    is_given_up(status) || status == TrackStatus::Singular
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
            system,
            compiled,
            start,
            settings,
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

    /// The roots by the straight ways to the targets: tracks that met or were given up are followed
    /// again; what still met has the status duplicate, but for the first of it.
    fn straight(&self, targets: &[&[Complex<f64>]], deadline: Option<Instant>) -> Vec<Solution> {
        let count = self.start.roots.len();
        if count == 0 {
            let none = || Solution { roots: Roots::lost(self.compiled.unknowns, 0, TrackStatus::Budget) };
            return targets.iter().map(|_| none()).collect();
        }
        #[cfg(feature = "cuda")]
        if let Some(mut gpu) = self.gpu.as_ref().and_then(|gpu| gpu.lock().ok()) {
            if let Gpu::Whole(tracker) = &mut *gpu {
                match tracker.straight(self.at_first(), self.careful(), targets, left(deadline)) {
                    Ok(solutions) => return solutions,
                    Err(why) => log::error!("the GPU failed, tracks are followed on the CPU: {why}"),
                }
            }
        }
        let paths: Vec<Path> = match targets {
            [target] => vec![self.path(&self.start.parameters, target)],
            _ => targets.par_iter().map(|target| self.path(&self.start.parameters, target)).collect(),
        };
        let mut solutions = self.first(&paths, deadline).instances(count);
        self.retry(&paths, &mut solutions, deadline);
        solutions
    }

    /// Every root along every path, for the first time.
    fn first(&self, paths: &[Path], deadline: Option<Instant>) -> Roots {
        let (count, settings) = (self.start.roots.len(), self.at_first());
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

    fn path(&self, from: &[Complex<f64>], to: &[Complex<f64>]) -> Path {
        self.compiled.path(from, to)
    }

    /// How carefully tracks are followed at first.
    fn at_first(&self) -> Settings {
        Settings { max_steps: self.settings.max_steps.div_ceil(AT_FIRST), ..self.settings }
    }

    /// How carefully they are followed after that.
    fn careful(&self) -> Settings {
        Settings { max_steps: self.settings.max_steps, ..self.settings.tighter(TIGHTER) }
    }

    /// Follows again, more carefully, tracks that met and tracks that found nothing.
    fn retry(&self, paths: &[Path], solutions: &mut [Solution], deadline: Option<Instant>) {
        let doubtful = |solution: &Solution| {
            let mut doubtful = self.meetings(&solution.roots, true);
            let outcomes = solution.roots.outcomes().iter().enumerate();
            doubtful.extend(outcomes.filter(|(_, o)| is_doubtful(o.status)).map(|(k, _)| k));
            doubtful
        };
        let doubtful: Vec<Vec<usize>> = match &*solutions {
            [solution] => vec![doubtful(solution)],
            all => all.par_iter().map(doubtful).collect(),
        };
        let again: Vec<(usize, usize)> =
            doubtful.iter().enumerate().flat_map(|(i, list)| list.iter().map(move |k| (i, *k))).collect();
        if again.is_empty() {
            return;
        }
        let job = |k: usize| (&paths[again[k].0], self.start.roots[again[k].1].as_slice());
        let roots = follow(&self.compiled, self.careful(), again.len(), job, deadline);
        for (root, &(i, k)) in roots.iter().zip(&again) {
            solutions[i].roots.improve(k, root);
        }
        solutions.par_iter_mut().for_each(|solution| {
            for k in self.meetings(&solution.roots, false) {
                solution.roots.set_status(k, TrackStatus::Duplicate);
            }
        });
    }

    /// Follows tracks around the straight way, first those that found nothing on it, then all of their
    /// instance; roots that were missing take the place of tracks that found none.
    fn detours(&self, targets: &[&[Complex<f64>]], solutions: &mut [Solution], deadline: Option<Instant>) {
        for (whole, sides) in [(false, &SIDES[..]), (true, &SIDES[..1])] {
            let unresolved = |s: &Solution| s.roots.outcomes().iter().any(|o| is_unresolved(o.status));
            let mut wanting: Vec<(&[Complex<f64>], &mut Solution)> =
                targets.iter().copied().zip(&mut *solutions).filter(|(_, s)| unresolved(s)).collect();
            if wanting.is_empty() || deadline.is_some_and(|end| Instant::now() >= end) {
                return;
            }
            let start = &self.start.parameters;
            let (mut ways, mut jobs, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
            for (target, solution) in &wanting {
                let first = jobs.len();
                for side in sides {
                    let by = Complex::new(0.5, *side);
                    let middle = start.iter().zip(*target).map(|(a, b)| a + (b - a) * by).collect();
                    let outcomes = solution.roots.outcomes().iter().enumerate();
                    let tracks = outcomes.filter(|(_, o)| whole || is_unresolved(o.status));
                    jobs.extend(tracks.map(|(k, _)| (ways.len(), k)));
                    ways.push(Bent { middle, target });
                }
                ranges.push(first..jobs.len());
            }
            let ends = self.around(&ways, &jobs, deadline);
            let fill = |((_, solution), range): (&mut (_, &mut Solution), &std::ops::Range<usize>)| {
                self.fill(solution, range.clone().map(|k| ends.at(k)));
            };
            wanting.par_iter_mut().zip(&ranges).for_each(fill);
        }
    }

    /// Follows tracks, each given by its way and its number in the start set, by the middle to the
    /// target.
    fn around(&self, ways: &[Bent], jobs: &[(usize, usize)], deadline: Option<Instant>) -> Roots {
        let settings = self.careful();
        #[cfg(feature = "cuda")]
        if let Some(mut gpu) = self.gpu.as_ref().and_then(|gpu| gpu.lock().ok()) {
            if let Gpu::Whole(tracker) = &mut *gpu {
                match tracker.around(settings, ways, jobs, left(deadline)) {
                    Ok(roots) => return roots,
                    Err(why) => log::error!("the GPU failed, tracks are followed on the CPU: {why}"),
                }
            }
        }
        let first: Vec<Path> =
            ways.par_iter().map(|way| self.path(&self.start.parameters, &way.middle)).collect();
        let job = |k: usize| (&first[jobs[k].0], self.start.roots[jobs[k].1].as_slice());
        let mut roots = follow(&self.compiled, settings, jobs.len(), job, deadline);
        let second: Vec<Path> = ways.par_iter().map(|way| self.path(&way.middle, way.target)).collect();
        let there: Vec<usize> = (0..jobs.len()).filter(|&k| roots.at(k).ok()).collect();
        let job = |k: usize| (&second[jobs[there[k]].0], roots.at(there[k]).point);
        let ends = follow(&self.compiled, settings, there.len(), job, deadline);
        for (end, k) in ends.iter().zip(there) {
            roots.replace(k, end);
        }
        roots
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

    /// Tracks that came to a root which an earlier one has; with `both` the earlier one as well.
    fn meetings(&self, roots: &Roots, both: bool) -> Vec<usize> {
        let mut known = Distinct::new(&self.system);
        let mut owners = Vec::new();
        let mut found = Vec::new();
        for (k, root) in roots.iter().enumerate().filter(|(_, r)| r.ok()) {
            match known.find(root.point) {
                Some(i) => {
                    found.push(k);
                    if both {
                        found.push(owners[i]);
                    }
                }
                None => {
                    known.insert(root.point);
                    owners.push(k);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// A way by a middle to a target.
pub(super) struct Bent<'a> {
    /// Parameters in the middle.
    pub middle: Vec<Complex<f64>>,
    /// Parameters at the end.
    pub target: &'a [Complex<f64>],
}

/// The time that is left.
#[cfg(feature = "cuda")]
fn left(deadline: Option<Instant>) -> Option<std::time::Duration> {
    deadline.map(|end| end.saturating_duration_since(Instant::now()))
}
