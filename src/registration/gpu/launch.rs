//! The kernels of a frame and the ways to launch them. Every way launches the same work:
//!
//! - scores and pivots in one cooperative kernel, whose blocks wait for each other, or in two
//!   kernels one after another, as always in the bounded search;
//! - kernel by kernel, or all of a frame as one graph.

use super::memory::Arguments;
use crate::gpu::bundle::Bundle;
use crate::gpu::context::{Context, Event, Graph, Kernel, Shape, Start, Stream};
use crate::gpu::GpuError;
use crate::params::{BackendParams, Launch, Search};
use crate::registration::candidates::CANDIDATES;
use std::ffi::c_void;
use std::sync::Arc;

/// Threads of a block of the kernels, as in their files.
const THREADS: u32 = 256;
const CLIQUE_THREADS: u32 = 64;
const SCORE_THREADS: u32 = 128;
/// Blocks per multiprocessor: of the kernels that share out their tasks, as many as fit.
const FOG_BLOCKS: u32 = 5;
const PRUNE_BLOCKS: u32 = 8;
const SOG_BLOCKS: u32 = 3;
const BOUND_BLOCKS: u32 = 4;
const CLIQUE_BLOCKS: u32 = 8;
const SCORE_BLOCKS: u32 = 7;
/// Blocks of `examine` with a job of their own, and most of those that count.
const JOBS: u32 = 4 + CANDIDATES[0] as u32;
const COUNTERS: u32 = 24;

/// The search a kernel belongs to: the first, or that of the rivals.
pub(super) type Round = u32;

struct Kernels {
    receive: Kernel,
    fog: Kernel,
    prune: Kernel,
    sog: Kernel,
    sog_scores: Kernel,
    sog_count: Kernel,
    bound: Kernel,
    cliques: Kernel,
    score: Kernel,
    approach: Kernel,
    examine: Kernel,
}

impl Kernels {
    fn of(bundle: &Bundle) -> Result<Self, GpuError> {
        Ok(Self {
            receive: bundle.kernel("receive")?,
            fog: bundle.kernel("fog")?,
            prune: bundle.kernel("prune")?,
            sog: bundle.kernel("sog")?,
            sog_scores: bundle.kernel("sog_scores")?,
            sog_count: bundle.kernel("sog_count")?,
            bound: bundle.kernel("bound")?,
            cliques: bundle.kernel("cliques")?,
            score: bundle.kernel("score")?,
            approach: bundle.kernel("approach")?,
            examine: bundle.kernel("examine")?,
        })
    }
}

/// How frames are launched, and why so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Scores and pivots of the exact search in one cooperative kernel.
    pub cooperative: bool,
    /// The frame as one graph.
    pub graph: bool,
    /// A kernel is brought to the multiprocessors while the one before is at work.
    pub early: bool,
    /// Multiprocessors for which there are blocks.
    pub multiprocessors: u32,
    /// Why, in words.
    pub why: String,
}

impl Way {
    /// By the parameters, else by what the device can do.
    fn choose(context: &Context, kernels: &Kernels, params: &BackendParams) -> Result<(Self, u32), GpuError> {
        let all = context.processors();
        let multiprocessors = match params.multiprocessors.max(0) as u32 {
            0 => all,
            some => some.min(all),
        };
        let resident = context.resident_blocks(kernels.sog, THREADS, 0)?;
        let able = context.device().cooperative_launch && resident > 0;
        let early = context.starts_early(kernels.receive)?;
        let (cooperative, why) = match params.launch {
            Launch::Consecutive => (false, "backend.launch is consecutive"),
            Launch::Cooperative if able => (true, "backend.launch is cooperative"),
            Launch::Cooperative => {
                let device = &context.device().name;
                return Err(GpuError::Absent(format!("{device} has no cooperative launch")));
            }
            // Kernels that start early leave little to be gained by waiting within one.
            Launch::Auto if early => (false, "kernels start early on this device"),
            Launch::Auto if able => (true, "the device has cooperative launch"),
            Launch::Auto => (false, "the device has no cooperative launch"),
        };
        let way = Self { cooperative, graph: params.graph, early, multiprocessors, why: why.to_owned() };
        Ok((way, resident.clamp(1, SOG_BLOCKS)))
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let how = if self.cooperative { "cooperative" } else { "consecutive" };
        let graph = if self.graph { ", as a graph" } else { "" };
        write!(f, "{how} kernels{graph} on {} multiprocessors ({})", self.multiprocessors, self.why)
    }
}

/// Launches frames.
pub(super) struct Launcher {
    way: Way,
    /// Blocks of the cooperative kernel that are resident on a multiprocessor.
    resident: u32,
    kernels: Kernels,
    search: Search,
    graph: Option<Graph>,
    /// From here the measurements run beside the search of the rivals, to there.
    fork: Event,
    join: Event,
    side: Stream,
    /// Dropped last: what is above may be in use until the stream is done.
    main: Stream,
}

impl Launcher {
    pub fn new(context: &Arc<Context>, bundle: &Bundle, params: &BackendParams) -> Result<Self, GpuError> {
        let kernels = Kernels::of(bundle)?;
        let (way, resident) = Way::choose(context, &kernels, params)?;
        Ok(Self {
            way,
            resident,
            kernels,
            search: Search::Exact,
            graph: None,
            fork: Event::new(context)?,
            join: Event::new(context)?,
            side: Stream::new(context)?,
            main: Stream::new(context)?,
        })
    }

    pub fn way(&self) -> &Way {
        &self.way
    }

    pub fn stream(&self) -> &Stream {
        &self.main
    }

    /// The memory has changed: what was captured is void.
    pub fn forget(&mut self) {
        self.graph = None;
    }

    /// Which search the next frames are for.
    pub fn set_search(&mut self, search: Search) {
        if self.search != search {
            self.forget();
        }
        self.search = search;
    }

    /// Scores and pivots are one cooperative kernel.
    fn is_together(&self) -> bool {
        self.way.cooperative && self.search == Search::Exact
    }

    /// Queues a whole frame.
    pub fn frame(&mut self, memory: &Arguments) -> Result<(), GpuError> {
        if !self.way.graph {
            return self.queue_frame(memory);
        }
        if self.graph.is_none() {
            self.main.begin_capture()?;
            let queued = self.queue_frame(memory);
            // Ended in any case, or the stream could not be used again.
            let graph = self.main.end_capture();
            queued?;
            self.graph = Some(graph?);
        }
        self.graph.as_ref().map_or(Ok(()), |graph| graph.launch(&self.main))
    }

    fn queue_frame(&self, memory: &Arguments) -> Result<(), GpuError> {
        self.graph_of(memory)?;
        self.search(memory, 0)?;
        self.approach(memory, 0)?;
        if self.is_together() {
            // A cooperative kernel waits until there is room for all of it.
            self.pivots(memory, 1)?;
            self.examine_beside(memory)?;
        } else {
            self.examine_beside(memory)?;
            self.pivots(memory, 1)?;
        }
        self.hypotheses(memory, 1)?;
        self.approach(memory, 1)?;
        self.join.record(&self.side)?;
        self.main.wait_for(&self.join)
    }

    /// Queues the measurements under the best pose, beside the search of the rivals.
    fn examine_beside(&self, memory: &Arguments) -> Result<(), GpuError> {
        self.fork.record(&self.main)?;
        self.side.wait_for(&self.fork)?;
        let blocks = JOBS + self.way.multiprocessors.min(COUNTERS);
        self.queue(&self.side, self.kernels.examine, after(blocks), memory, 0)
    }

    /// Queues the graph of the problem, and its arrival before it if it is not there yet.
    pub fn graph_of(&self, memory: &Arguments) -> Result<(), GpuError> {
        let k = &self.kernels;
        if !memory.is_shared() {
            // Behind the copy, where nothing can start early.
            return self.queue(&self.main, k.fog, after(self.blocks(FOG_BLOCKS)), memory, 0);
        }
        self.queue(&self.main, k.receive, after(self.way.multiprocessors), memory, 0)?;
        self.launch(k.fog, self.blocks(FOG_BLOCKS), THREADS, memory, 0)
    }

    /// Queues the search in the graph; before the second one it is made smaller.
    pub fn search(&self, memory: &Arguments, round: Round) -> Result<(), GpuError> {
        self.pivots(memory, round)?;
        self.hypotheses(memory, round)
    }

    fn pivots(&self, memory: &Arguments, round: Round) -> Result<(), GpuError> {
        let k = &self.kernels;
        self.launch(k.prune, self.blocks(PRUNE_BLOCKS), THREADS, memory, round)?;
        if self.is_together() {
            let shape = Shape { start: Start::Together, ..after(self.blocks(self.resident)) };
            return self.queue(&self.main, k.sog, shape, memory, round);
        }
        let (scores, blocks) = match self.search {
            Search::Exact => (k.sog_scores, SOG_BLOCKS),
            Search::Bounded => (k.bound, BOUND_BLOCKS),
        };
        self.launch(scores, self.blocks(blocks), THREADS, memory, round)?;
        self.launch(k.sog_count, self.blocks(SOG_BLOCKS), THREADS, memory, round)
    }

    fn hypotheses(&self, memory: &Arguments, round: Round) -> Result<(), GpuError> {
        let k = &self.kernels;
        let seen = match self.search {
            Search::Exact => *memory,
            Search::Bounded => memory.kept_alone(),
        };
        self.launch(k.cliques, self.blocks(CLIQUE_BLOCKS), CLIQUE_THREADS, &seen, round)?;
        self.launch(k.score, self.blocks(SCORE_BLOCKS), SCORE_THREADS, memory, round)
    }

    /// Queues the refinement of the best hypotheses, a block each.
    fn approach(&self, memory: &Arguments, round: Round) -> Result<(), GpuError> {
        self.launch(self.kernels.approach, CANDIDATES[round as usize] as u32, THREADS, memory, round)
    }

    fn blocks(&self, per_multiprocessor: u32) -> u32 {
        self.way.multiprocessors * per_multiprocessor
    }

    /// Queues a kernel that follows another one directly.
    fn launch(
        &self,
        kernel: Kernel,
        grid: u32,
        block: u32,
        memory: &Arguments,
        round: Round,
    ) -> Result<(), GpuError> {
        let start = if self.way.early { Start::Early } else { Start::After };
        self.queue(&self.main, kernel, Shape { grid, block, shared: 0, start }, memory, round)
    }

    fn queue(
        &self,
        stream: &Stream,
        kernel: Kernel,
        shape: Shape,
        memory: &Arguments,
        round: Round,
    ) -> Result<(), GpuError> {
        // SAFETY: the arguments of every kernel, which begins with `arrive`; the memory was made for
        // all that a frame can say.
        unsafe { stream.launch(kernel, shape, &mut arguments(memory, &round)) }
    }
}

/// Blocks that start when what is before them has ended.
fn after(blocks: u32) -> Shape {
    Shape { grid: blocks, block: THREADS, shared: 0, start: Start::After }
}

fn arguments(memory: &Arguments, round: &Round) -> [*mut c_void; 2] {
    [std::ptr::from_ref(memory).cast_mut().cast(), std::ptr::from_ref(round).cast_mut().cast()]
}
