//! Instances to roots: tracks shared out to threads, jumps found and followed again.

use super::pack::WIDTH;
use super::program::{Compiled, Path};
use super::start::StartSet;
use super::system::{distance, System};
use super::track::{Assignment, End, Settings, Tracker};
use crate::gpu::GpuError;
use crate::status::TrackStatus;
use nalgebra::Complex;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

/// Roots closer than this are the same, relative to their coordinates.
pub const SAME: f64 = 1e-6;
/// A root is polished when its equations are this small relative to their terms.
const RESIDUAL: f64 = 1e-10;
/// A root is known to this.
const ERROR: f64 = 1e-7;
/// So many slow corrections in a row, from a point beside it, are those of a multiple root.
const SLOW: u32 = 4;
/// Polishing that moves a root further than this has left it.
const MOVED: f64 = 1e-3;
/// Relative errors of the equations may grow so much in a regular root.
const CONDITION: f64 = 1e12;
/// How often tracks are followed again, each time more carefully.
const RETRIES: i32 = 2;
/// How often all tracks of an instance are followed on another way.
const DETOURS: u32 = 2;

/// What a track came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Root {
    /// How it ended.
    pub status: TrackStatus,
    /// The root, if the status is ok; else the last point.
    pub point: Vec<Complex<f64>>,
    /// The largest equation relative to the size of its terms; infinite unless ok.
    pub residual: f64,
    /// How much relative errors of the equations may grow in the root; infinite unless ok.
    pub condition: f64,
    /// Steps, all attempts together.
    pub steps: u32,
}

impl Root {
    fn failed(status: TrackStatus, point: Vec<Complex<f64>>, steps: u32) -> Self {
        Self { status, point, residual: f64::INFINITY, condition: f64::INFINITY, steps }
    }

    /// A regular root was found.
    pub fn ok(&self) -> bool {
        self.status == TrackStatus::Ok
    }
}

/// The roots of an instance, one for each of the start set, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The roots.
    pub roots: Vec<Root>,
}

impl Solution {
    /// How many tracks ended with a status.
    pub fn count(&self, status: TrackStatus) -> usize {
        self.roots.iter().filter(|r| r.status == status).count()
    }

    /// The roots that were found.
    pub fn found(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(|r| r.ok())
    }

    fn unresolved(&self) -> bool {
        self.roots.iter().any(|r| is_unresolved(r.status))
    }
}

/// Another way may find what this track did not.
fn is_unresolved(status: TrackStatus) -> bool {
    matches!(status, TrackStatus::MinStep | TrackStatus::Budget | TrackStatus::Duplicate)
}

/// Where tracks are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// On the GPU if there is one and the system fits it, else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU.
    Cuda,
}

/// Finds all roots of instances of a system.
#[derive(Clone)]
pub struct Solver {
    system: System,
    compiled: Compiled,
    start: StartSet,
    settings: Settings,
    #[cfg(feature = "cuda")]
    gpu: Option<std::sync::Arc<std::sync::Mutex<super::gpu::GpuTracker>>>,
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

    /// The same solver, following on a backend.
    ///
    /// # Errors
    /// Why the GPU cannot be used, if it was asked for.
    pub fn on(self, backend: Backend) -> Result<Self, GpuError> {
        #[cfg(feature = "cuda")]
        {
            let mut solver = Self { gpu: None, ..self };
            if backend != Backend::Cpu {
                match solver.tracker() {
                    Ok(tracker) => solver.gpu = Some(std::sync::Arc::new(std::sync::Mutex::new(tracker))),
                    Err(why) if backend == Backend::Cuda => return Err(why),
                    Err(why) => log::info!("tracks are followed on the CPU: {why}"),
                }
            }
            Ok(solver)
        }
        #[cfg(not(feature = "cuda"))]
        match backend {
            Backend::Cuda => Err(GpuError::Absent("built without CUDA (feature `cuda`)".to_owned())),
            _ => Ok(self),
        }
    }

    #[cfg(feature = "cuda")]
    fn tracker(&self) -> Result<super::gpu::GpuTracker, GpuError> {
        let context = crate::gpu::context::Context::first()?;
        let cache = crate::gpu::bundle::cache_folder();
        super::gpu::GpuTracker::new(&context, &self.compiled, &self.start, cache.as_deref())
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
        return self.gpu.as_ref().and_then(|gpu| gpu.lock().ok().map(|tracker| tracker.kernel_ms()));
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
        let count = self.start.roots.len();
        let finite =
            |p: &[Complex<f64>]| p.len() == self.compiled.parameters && p.iter().all(|v| v.is_finite());
        let valid: Vec<usize> = (0..targets.len()).filter(|&i| finite(&targets[i])).collect();
        let given: Vec<&[Complex<f64>]> = valid.iter().map(|&i| targets[i].as_slice()).collect();
        let mut roots = self.follow_all(&given, deadline).into_iter();
        let mut solutions: Vec<Solution> =
            given.iter().map(|_| Solution { roots: roots.by_ref().take(count).collect() }).collect();
        self.retry(&given, &mut solutions, deadline);
        for (solution, &i) in solutions.iter_mut().zip(&valid) {
            for detour in 0..DETOURS {
                if solution.unresolved() && deadline.is_none_or(|end| Instant::now() < end) {
                    self.detour(&targets[i], detour, solution, deadline);
                }
            }
        }
        let mut done = solutions.into_iter();
        let invalid = || Root::failed(TrackStatus::Invalid, vec![NAN; self.compiled.unknowns], 0);
        let all = targets.iter().map(|target| match finite(target) {
            true => done.next().unwrap_or(Solution { roots: Vec::new() }),
            false => Solution { roots: (0..count).map(|_| invalid()).collect() },
        });
        all.collect()
    }

    /// Every root to every target, target after target, on the backend.
    fn follow_all(&self, targets: &[&[Complex<f64>]], deadline: Option<Instant>) -> Vec<Root> {
        #[cfg(feature = "cuda")]
        if let Some(mut tracker) = self.gpu.as_ref().and_then(|gpu| gpu.lock().ok()) {
            let budget = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            match tracker.follow(&self.compiled, self.settings, targets, budget) {
                Ok(roots) => return roots,
                Err(why) => log::error!("the GPU failed, tracks are followed on the CPU: {why}"),
            }
        }
        let paths: Vec<Path> = match targets {
            [target] => vec![self.path(target)],
            _ => targets.par_iter().map(|target| self.path(target)).collect(),
        };
        let count = self.start.roots.len();
        let job = |k: usize| (&paths[k / count], self.start.roots[k % count].as_slice());
        follow(&self.compiled, self.settings, paths.len() * count, job, deadline)
    }

    fn path(&self, target: &[Complex<f64>]) -> Path {
        self.compiled.path(&self.start.parameters, target)
    }

    /// Follows again, more carefully, tracks that met and tracks that were given up.
    fn retry(&self, targets: &[&[Complex<f64>]], solutions: &mut [Solution], deadline: Option<Instant>) {
        // Few instances need their paths here.
        let paths: Vec<OnceLock<Path>> = targets.iter().map(|_| OnceLock::new()).collect();
        let path = |i: usize| paths[i].get_or_init(|| self.path(targets[i]));
        for level in 1..=RETRIES {
            let doubtful = |solution: &Solution| {
                let mut doubtful = self.duplicates(&solution.roots, true);
                let given_up = |r: &Root| matches!(r.status, TrackStatus::MinStep | TrackStatus::Budget);
                doubtful.extend((0..solution.roots.len()).filter(|&k| given_up(&solution.roots[k])));
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
            let settings = self.settings.tighter(20f64.powi(level));
            let job = |k: usize| (path(again[k].0), self.start.roots[again[k].1].as_slice());
            let roots = follow(&self.compiled, settings, again.len(), job, deadline);
            for (mut root, &(i, k)) in roots.into_iter().zip(&again) {
                root.steps += solutions[i].roots[k].steps;
                solutions[i].roots[k] = root;
            }
        }
        let judge = |(i, solution): (usize, &mut Solution)| {
            for k in self.duplicates(&solution.roots, true) {
                if self.is_multiple(path(i), &solution.roots[k].point) {
                    solution.roots[k].status = TrackStatus::Singular;
                }
            }
            for k in self.duplicates(&solution.roots, false) {
                solution.roots[k].status = TrackStatus::Duplicate;
            }
        };
        solutions.par_iter_mut().enumerate().for_each(judge);
    }

    /// Newton's method comes back to the point from a little beside it, but slowly.
    fn is_multiple(&self, path: &Path, root: &[Complex<f64>]) -> bool {
        let beside: Vec<_> =
            root.iter().zip(1..).map(|(x, i)| x + (x.re.abs() + 0.01) * 1e-5 / f64::from(i)).collect();
        let polished = Tracker::new(&self.compiled, self.settings).polish(&[(path, &beside)]);
        polished.iter().all(|p| p.slow >= SLOW)
    }

    /// Follows all tracks around the straight way, and puts roots that were missing in the place of
    /// tracks that found none.
    fn detour(&self, target: &[Complex<f64>], turn: u32, solution: &mut Solution, deadline: Option<Instant>) {
        let sign = if turn % 2 == 0 { 1.0 } else { -1.0 };
        let by = Complex::new(0.5, sign * (0.6 + 0.3 * f64::from(turn)));
        let middle: Vec<_> =
            self.start.parameters.iter().zip(target).map(|(a, b)| a + (b - a) * by).collect();
        let settings = self.settings.tighter(20.0);
        let first = self.compiled.path(&self.start.parameters, &middle);
        let second = self.compiled.path(&middle, target);
        let job = |k: usize| (&first, self.start.roots[k].as_slice());
        let half = follow(&self.compiled, settings, self.start.roots.len(), job, deadline);
        let half: Vec<&Root> = half.iter().filter(|r| r.ok()).collect();
        let job = |k: usize| (&second, half[k].point.as_slice());
        let ends = follow(&self.compiled, settings, half.len(), job, deadline);
        let mut known = Distinct::new(&self.system);
        solution.found().for_each(|r| {
            known.insert(&r.point);
        });
        let mut new = ends.into_iter().filter(|r| r.ok() && known.insert(&r.point));
        for root in solution.roots.iter_mut().filter(|r| is_unresolved(r.status)) {
            match new.next() {
                Some(found) => *root = Root { steps: root.steps + found.steps, ..found },
                None => break,
            }
        }
    }

    /// Tracks that came to a root which an earlier one has; with `both` the earlier one as well.
    fn duplicates(&self, roots: &[Root], both: bool) -> Vec<usize> {
        let mut known = Distinct::new(&self.system);
        let mut owners = Vec::new();
        let mut found = Vec::new();
        for (k, root) in roots.iter().enumerate().filter(|(_, r)| r.ok()) {
            match known.find(&root.point) {
                Some(i) => {
                    found.push(k);
                    if both {
                        found.push(owners[i]);
                    }
                }
                None => {
                    known.insert(&root.point);
                    owners.push(k);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

const NAN: Complex<f64> = Complex::new(f64::NAN, f64::NAN);

/// Roots of which no two are the same or images of each other.
pub struct Distinct<'a> {
    system: &'a System,
    /// A key of each image and its root, by key.
    keys: std::collections::BTreeMap<(u64, usize), usize>,
    images: Vec<Vec<Complex<f64>>>,
    /// How many roots there are.
    count: usize,
}

impl<'a> Distinct<'a> {
    /// None yet.
    pub fn new(system: &'a System) -> Self {
        Self { system, keys: Default::default(), images: Vec::new(), count: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A number that is nearly the same for roots that are, and how much "nearly" is.
    fn key(point: &[Complex<f64>]) -> (f64, f64) {
        let (mut key, mut size, mut weight) = (0.0, 1e-300, 0.618);
        for x in point {
            key += x.re * weight + x.im * (1.1 - weight);
            size += x.re.abs() + x.im.abs();
            weight = (weight + 0.618) % 1.0;
        }
        (key, 2.0 * SAME * (size + 0.01 * size.min(1.0)))
    }

    /// Bits in the order of the numbers.
    fn ordered(key: f64) -> u64 {
        let bits = key.to_bits();
        if bits >> 63 == 1 {
            !bits
        } else {
            bits | 1 << 63
        }
    }

    /// Which root it is, in the order in which they were inserted.
    pub fn find(&self, point: &[Complex<f64>]) -> Option<usize> {
        let (key, width) = Self::key(point);
        let range = (Self::ordered(key - width), 0)..(Self::ordered(key + width), usize::MAX);
        let mut near = self.keys.range(range).filter(|((_, i), _)| distance(&self.images[*i], point) < SAME);
        near.next().map(|(_, root)| *root)
    }

    /// Inserts a root unless it is there; true if it was not.
    pub fn insert(&mut self, point: &[Complex<f64>]) -> bool {
        if self.find(point).is_some() {
            return false;
        }
        for image in self.system.orbit(point) {
            self.keys.insert((Self::ordered(Self::key(&image).0), self.images.len()), self.count);
            self.images.push(image);
        }
        self.count += 1;
        true
    }
}

/// Follows `count` tracks on all threads and polishes what comes to the end; in the order of the jobs.
pub fn follow<'p>(
    compiled: &Compiled,
    settings: Settings,
    count: usize,
    job: impl Fn(usize) -> (&'p Path, &'p [Complex<f64>]) + Sync,
    deadline: Option<Instant>,
) -> Vec<Root> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut tracker = Tracker::new(compiled, settings);
        let mut ends: Vec<End> = Vec::new();
        let take = || {
            let id = next.fetch_add(1, Ordering::Relaxed);
            (id < count).then(|| {
                let (path, start) = job(id);
                Assignment { id, path, start }
            })
        };
        tracker.run(deadline, take, |end| ends.push(end));
        finish(&mut tracker, &job, ends)
    };
    let threads = if count <= WIDTH { 1 } else { rayon::current_num_threads().min(count.div_ceil(WIDTH)) };
    let mut all: Vec<Option<Root>> = vec![None; count];
    let mut place = |list: Vec<(usize, Root)>| list.into_iter().for_each(|(id, root)| all[id] = Some(root));
    if threads == 1 {
        place(worker());
    } else {
        let lists = rayon::broadcast(|_| worker());
        lists.into_iter().for_each(place);
    }
    // Every job was taken by a worker, and a worker ends all that it takes.
    let missing = || Root::failed(TrackStatus::Budget, vec![NAN; compiled.unknowns], 0);
    all.into_iter().map(|root| root.unwrap_or_else(missing)).collect()
}

/// Polishes the tracks that came to the end.
fn finish<'p>(
    tracker: &mut Tracker,
    job: &impl Fn(usize) -> (&'p Path, &'p [Complex<f64>]),
    ends: Vec<End>,
) -> Vec<(usize, Root)> {
    let (arrived, lost): (Vec<End>, Vec<End>) = ends.into_iter().partition(|e| e.status == TrackStatus::Ok);
    let mut roots: Vec<(usize, Root)> =
        lost.into_iter().map(|e| (e.id, Root::failed(e.status, e.point, e.steps))).collect();
    for group in arrived.chunks(WIDTH) {
        let points: Vec<_> = group.iter().map(|e| (job(e.id).0, e.point.as_slice())).collect();
        for (end, polished) in group.iter().zip(tracker.polish(&points)) {
            let regular = polished.residual < RESIDUAL
                && polished.error < ERROR
                && polished.moved < MOVED
                && polished.condition < CONDITION;
            roots.push(match regular {
                true => {
                    let (residual, condition) = (polished.residual, polished.condition);
                    let status = TrackStatus::Ok;
                    (end.id, Root { status, point: polished.point, residual, condition, steps: end.steps })
                }
                false => (end.id, Root::failed(TrackStatus::Singular, end.point.clone(), end.steps)),
            });
        }
    }
    roots
}
