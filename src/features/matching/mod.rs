//! Which features of a scan look like which of the map: mutual nearest neighbours of descriptors that are clearly
//! nearer than the second best (Lowe 2004), for many parts of the map at once. The same matches on the CPU and
//! on the GPU, for any number of threads: distances are integers.

mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(test)]
mod tests;

use super::{Descriptor, Features, Match};
use crate::gpu::device::DeviceMemory;
use crate::gpu::fallback::{self, BackendError, Faults, Made, Next};
use crate::gpu::GpuError;
use crate::params::Params;
use crate::registration::{Correspondence, Problem};
use cpu::Cpu;
use std::cmp::Ordering;

#[cfg(feature = "cuda")]
use gpu::Gpu;

/// There is none in this build.
#[cfg(not(feature = "cuda"))]
enum Gpu {}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Made<Gpu>, GpuError> {
    let mut gpu = Gpu::new(crate::gpu::bundle::cache_folder().as_deref())?;
    self_test(&mut gpu)?;
    let what = gpu.what();
    Ok((gpu, what))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Made<Gpu>, GpuError> {
    let why = crate::gpu::device::probe().driver.err();
    Err(GpuError::Absent(why.unwrap_or_default()))
}

/// Sets of descriptors one after another.
#[derive(Debug, Default)]
struct Targets {
    descriptors: Vec<Descriptor>,
    /// Where each set ends.
    ends: Vec<usize>,
}

impl Targets {
    fn take(&mut self, sets: &[&[Descriptor]]) {
        self.descriptors.clear();
        self.ends.clear();
        for set in sets {
            self.descriptors.extend_from_slice(set);
            self.ends.push(self.descriptors.len());
        }
    }

    fn sets(&self) -> impl Iterator<Item = &[Descriptor]> {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).map(|(begin, end)| self.descriptors.get(*begin..*end).unwrap_or_default())
    }
}

enum Chosen {
    Cpu(Cpu),
    Cuda(Box<Gpu>),
    /// Stands where a failed GPU was.
    Gone,
}

/// Matches scans with parts of a map, on the backend chosen at start.
///
/// After an error of the GPU it is made anew. If it cannot be, and after the second error, the CPU takes its
/// place; or, with `backend.on_fault` exit, the GPU stays lost ([`Matcher::lost`]) and every call is an error.
pub struct Matcher {
    chosen: Chosen,
    why: String,
    targets: Targets,
    faults: Faults,
    /// The parameters at start.
    start: Params,
    /// Makes the GPU anew.
    remake: fn() -> Result<Made<Gpu>, GpuError>,
}

impl Matcher {
    /// Chooses the backend (`backend.kind`); there are no targets yet.
    ///
    /// # Errors
    /// The backend that was asked for cannot be had.
    pub fn new(params: &Params) -> Result<Self, BackendError> {
        let (made, why) = fallback::choose(params.backend.kind, cuda)?;
        let chosen = match made {
            Some(gpu) => Chosen::Cuda(Box::new(gpu)),
            None => Chosen::Cpu(cpu(params)?),
        };
        Ok(Self {
            chosen,
            why,
            targets: Targets::default(),
            faults: Faults::default(),
            start: params.clone(),
            remake: cuda,
        })
    }

    /// Takes the descriptors that scans are matched with, those of each part of the map; kept on the GPU where
    /// that computes. Once for a map.
    ///
    /// # Errors
    /// The GPU failed; what takes its place has the targets.
    pub fn set_targets(&mut self, sets: &[&[Descriptor]]) -> Result<(), GpuError> {
        self.targets.take(sets);
        let loaded = self.load();
        self.noted(loaded)
    }

    /// Matches a scan with the parts `targets`: into `out`, for each of them, the pairs that are nearest neighbours
    /// of each other (ties by index) and that pass the ratio test: the distance is below `ratio` times the
    /// distance to the second best target. A ratio of one and more lets all of them pass. The clearest come first:
    /// those of the smallest quotient of both distances, then of the smallest distance, then by index. There
    /// are none with a part that does not exist.
    ///
    /// # Errors
    /// The GPU failed; the next call finds what takes its place.
    pub fn matches(
        &mut self,
        source: &[Descriptor],
        targets: &[usize],
        ratio: f64,
        out: &mut Vec<Vec<Match>>,
    ) -> Result<(), GpuError> {
        out.resize_with(targets.len(), Vec::new);
        out.iter_mut().for_each(Vec::clear);
        let done = match &mut self.chosen {
            Chosen::Cpu(cpu) => {
                cpu.search(source, targets, out);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Chosen::Cuda(gpu) => gpu.search(source, targets, out),
            #[cfg(not(feature = "cuda"))]
            Chosen::Cuda(gpu) => match **gpu {},
            Chosen::Gone => Err(GpuError::Absent("the CUDA backend is gone".to_owned())),
        };
        if done.is_err() {
            out.iter_mut().for_each(Vec::clear);
        }
        for found in out {
            clearest(found, ratio);
        }
        self.noted(done)
    }

    /// Gives the targets to what computes.
    fn load(&mut self) -> Result<(), GpuError> {
        match &mut self.chosen {
            Chosen::Cpu(cpu) => cpu.load(&self.targets),
            #[cfg(feature = "cuda")]
            Chosen::Cuda(gpu) => gpu.load(&self.targets)?,
            #[cfg(not(feature = "cuda"))]
            Chosen::Cuda(gpu) => match **gpu {},
            Chosen::Gone => {}
        }
        Ok(())
    }

    /// After an error of the GPU: the same anew, once, then what `backend.on_fault` says.
    fn noted(&mut self, done: Result<(), GpuError>) -> Result<(), GpuError> {
        let mut failed = done.clone();
        while let Err(error) = failed {
            // What failed has to go before it is made anew.
            self.chosen = Chosen::Gone;
            match self.faults.next(&error, self.start.backend.on_fault, self.remake) {
                Next::Cuda(gpu, why) => (self.chosen, self.why) = (Chosen::Cuda(Box::new(gpu)), why),
                Next::Cpu(why) => match cpu(&self.start) {
                    Ok(cpu) => (self.chosen, self.why) = (Chosen::Cpu(cpu), why),
                    Err(e) => log::error!("{e}"),
                },
                Next::Nothing => {}
            }
            failed = self.load();
        }
        done
    }

    /// `cpu` or `cuda`.
    pub fn backend(&self) -> &'static str {
        match self.chosen {
            Chosen::Cpu(_) => "cpu",
            Chosen::Cuda(_) | Chosen::Gone => "cuda",
        }
    }

    /// Why this one was chosen; of the GPU also which.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Memory of the device that is taken.
    pub fn memory(&self) -> Option<DeviceMemory> {
        match &self.chosen {
            #[cfg(feature = "cuda")]
            Chosen::Cuda(gpu) => gpu.memory().ok(),
            _ => None,
        }
    }

    /// Why the GPU is lost for good, with `backend.on_fault` exit: the program should end.
    pub fn lost(&self) -> Option<&str> {
        self.faults.lost()
    }

    /// Errors of the GPU so far.
    pub fn faults(&self) -> u64 {
        self.faults.count()
    }
}

fn cpu(params: &Params) -> Result<Cpu, BackendError> {
    let threads = params.backend.threads.max(0) as usize;
    Cpu::new(threads).map_err(|e| BackendError::Threads(e.to_string()))
}

/// Keeps the pairs that pass the ratio test, the clearest first.
fn clearest(found: &mut Vec<Match>, ratio: f64) {
    if ratio < 1.0 {
        found.retain(|m| f64::from(m.distance) < ratio * ratio * f64::from(m.second));
    }
    found.sort_unstable_by(order);
}

/// A total order: quotient of both distances, distance, indices.
fn order(a: &Match, b: &Match) -> Ordering {
    // Two targets as near as nearest can be are as unclear as any other two of equal distance.
    let quotient = |m: &Match| if m.second == 0 { [1, 1] } else { [m.distance, m.second].map(u64::from) };
    let ([a1, a2], [b1, b2]) = (quotient(a), quotient(b));
    let rest = |m: &Match| (m.distance, m.source, m.target, m.second);
    (a1 * b2).cmp(&(b1 * a2)).then_with(|| rest(a).cmp(&rest(b)))
}

/// Adds the first `max` matches to a problem, each with weight one. A source and a target that are mutual nearest
/// neighbours are in no other match, so that no identities are needed.
pub fn correspondences(
    matches: &[Match],
    source: &Features,
    target: &Features,
    max: usize,
    problem: &mut Problem,
) {
    for m in matches.iter().take(max) {
        let ends = (source.points.get(m.source as usize), target.points.get(m.target as usize));
        if let (Some(source), Some(target)) = ends {
            problem.push(Correspondence::new(*source, *target));
        }
    }
}

/// Matches fixed descriptors on the GPU and on the CPU and compares all that comes back.
#[cfg(feature = "cuda")]
fn self_test(gpu: &mut Gpu) -> Result<(), GpuError> {
    /// Sizes of the sets, more than one chunk and less than a warp, and of the source.
    const SETS: [usize; 3] = [1300, 0, 7];
    const SOURCE: usize = 1100;
    // A linear congruential generator (Knuth's MMIX), upper bits; small numbers, so that there are ties.
    let mut state = 5u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below) as u8
    };
    let mut some = |n: usize| -> Vec<Descriptor> {
        (0..n).map(|i| std::array::from_fn(|_| next(if i % 2 == 0 { 256 } else { 2 }))).collect()
    };
    let (source, sets) = (some(SOURCE), SETS.map(&mut some));
    let mut targets = Targets::default();
    targets.take(&sets.each_ref().map(Vec::as_slice));
    let mut cpu = Cpu::new(1).map_err(|e| GpuError::SelfTest(e.to_string()))?;
    cpu.load(&targets);
    gpu.load(&targets)?;
    let [mut expected, mut found] = [(); 2].map(|()| vec![Vec::new(); SETS.len()]);
    cpu.search(&source, &[2, 1, 0], &mut expected);
    gpu.search(&source, &[2, 1, 0], &mut found)?;
    found.iter_mut().for_each(|found| found.sort_unstable_by_key(|m| m.source));
    if expected != found {
        return Err(GpuError::SelfTest("with descriptors, CPU and GPU find different matches".to_owned()));
    }
    Ok(())
}
