//! The search on the GPU: consecutive kernels on one stream, from the upload of the
//! correspondences to the download of the ranked hypotheses, with no round trip between.
//!
//! The same bits as the CPU: graph, scores, pivots, triples, poses and their scores.

use super::cliques::MAX_PER_PIVOT;
use super::finish::{scoring, Clock, Pipeline, SearchEngine, Stop, Summary};
use super::fog::candidate_factors;
use super::gpu_memory::{copy_arrays, DeviceScoring, FoundMemory, GraphMemory, List, Rule, Verticals};
use super::hypotheses::{Hypothesis, Scoring};
use super::lanes::Deadline;
use super::layout::{Layout, BLOCK};
use super::pivots::Pivot;
use super::result::{StageTimes, Truncation};
use crate::geometry::{Pose, Vector};
use crate::gpu::bundle::{Bundle, Origin};
use crate::gpu::context::{Context, Event, Kernel, Shape, Stream};
use crate::gpu::GpuError;
use crate::params::{Metric, Params, RegistrationParams};
use nalgebra::Matrix3;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

pub use super::gpu_memory::Totals;

/// Hypotheses of a block of the kernel `score`, and correspondences.
const POSES: u32 = 8;
const STRETCH: u32 = 512;
/// Threads of a warp.
const WARP: u32 = 32;

/// Queues a kernel: kernel, blocks, threads, arguments.
macro_rules! launch {
    ($stream:expr, $kernel:expr, $grid:expr, $block:expr, $($argument:expr),+ $(,)?) => {
        // SAFETY: the arguments are those of the kernel in its file, in order; the buffers were
        // made for the sizes that are passed.
        unsafe {
            $stream.launch(
                $kernel,
                Shape { grid: $grid, block: $block },
                &mut [$(std::ptr::from_ref(&$argument).cast_mut().cast::<c_void>()),+],
            )
        }
    };
}

struct Kernels {
    fog: Kernel,
    prune: Kernel,
    sog_list: Kernel,
    sog_scores: Kernel,
    sog_above: Kernel,
    sog_at: Kernel,
    pivot_order: Kernel,
    cliques: Kernel,
    poses: Kernel,
    score: Kernel,
    rank: Kernel,
}

impl Kernels {
    fn of(bundle: &Bundle) -> Result<Self, GpuError> {
        Ok(Self {
            fog: bundle.kernel("fog")?,
            prune: bundle.kernel("prune")?,
            sog_list: bundle.kernel("sog_list")?,
            sog_scores: bundle.kernel("sog_scores")?,
            sog_above: bundle.kernel("sog_above")?,
            sog_at: bundle.kernel("sog_at")?,
            pivot_order: bundle.kernel("pivot_order")?,
            cliques: bundle.kernel("cliques")?,
            poses: bundle.kernel("poses")?,
            score: bundle.kernel("score")?,
            rank: bundle.kernel("rank")?,
        })
    }
}

/// Moments of a search, in order.
const UPLOADED: usize = 1;
const GRAPH: usize = 2;
const SCORED: usize = 3;
const PIVOTS: usize = 4;
const CLIQUES: usize = 5;
const RANKED: usize = 6;

/// Searches on the GPU.
pub struct GpuSearch {
    /// Number of correspondences of the graph.
    n: usize,
    usable: usize,
    graph: GraphMemory,
    found: FoundMemory,
    moments: [Event; 7],
    kernels: Kernels,
    capacity: usize,
    // Dropped last: what is above may be in use until the stream is done.
    stream: Stream,
    bundle: Bundle,
}

impl GpuSearch {
    /// Takes the first device, loads the kernels (see [`Bundle::load`]) and makes memory for
    /// `capacity` correspondences; that for `pivots` and `per_pivot` grows when more are asked for.
    pub fn new(
        capacity: usize,
        pivots: usize,
        per_pivot: usize,
        cache: Option<&Path>,
    ) -> Result<Self, GpuError> {
        let context = Context::first()?;
        let bundle = Bundle::load(&context, cache)?;
        let stream = Stream::new(&context)?;
        let event = || Event::new(&context);
        Ok(Self {
            n: 0,
            usable: 0,
            graph: GraphMemory::new(&context, capacity)?,
            found: FoundMemory::new(&context, pivots, pivots * per_pivot.clamp(1, MAX_PER_PIVOT))?,
            moments: [event()?, event()?, event()?, event()?, event()?, event()?, event()?],
            kernels: Kernels::of(&bundle)?,
            capacity,
            stream,
            bundle,
        })
    }

    /// Name and compute capability of the device, for the log.
    pub fn device(&self) -> String {
        let device = self.stream.context().device();
        let [major, minor] = device.compute_capability;
        format!("{}, compute capability {major}.{minor}", device.name)
    }

    /// Where the kernels came from.
    pub fn origin(&self) -> &Origin {
        self.bundle.origin()
    }

    /// Bytes on the device, without the context and the kernels.
    pub fn device_bytes(&self) -> usize {
        self.graph.bytes() + self.found.bytes()
    }

    fn mark(&self, moment: usize) -> Result<(), GpuError> {
        self.moments.get(moment).map_or(Ok(()), |event| event.record(&self.stream))
    }

    fn between(&self, from: usize, to: usize) -> Result<f64, GpuError> {
        match (self.moments.get(from), self.moments.get(to)) {
            (Some(from), Some(to)) => to.since(from),
            _ => Ok(0.0),
        }
    }

    fn words(&self) -> usize {
        self.n.div_ceil(BLOCK)
    }

    /// Queues upload, graph and degrees.
    pub fn build(&mut self, layout: &Layout, tau: f32, min_length: f32) -> Result<(), GpuError> {
        if layout.count() > self.capacity {
            return Err(GpuError::Absent(format!("memory for {} correspondences only", self.capacity)));
        }
        self.stream.context().bind()?;
        // An earlier run may have been given up before its end.
        self.stream.wait()?;
        self.n = layout.count();
        self.usable = 0;
        let padded = layout.padded();
        self.mark(0)?;
        let memory = &mut self.graph;
        let [sx, sy, sz] = &layout.source;
        let [tx, ty, tz] = &layout.target;
        copy_arrays(&mut memory.numbers.host, &[sx, sy, sz, tx, ty, tz, &layout.weight]);
        memory.numbers.upload(7 * padded, &self.stream)?;
        let (with_heights, with_ids) = (layout.up.is_some(), layout.ids.iter().any(|ids| !ids.is_empty()));
        if with_heights {
            let [source, target] = &layout.height;
            copy_arrays(&mut memory.heights.host, &[source, target]);
            memory.heights.upload(2 * padded, &self.stream)?;
        }
        if with_ids {
            let [source, target] = &layout.ids;
            copy_arrays(&mut memory.ids.host, &[source, target]);
            memory.ids.upload(2 * padded, &self.stream)?;
        }
        if let Some(place) = memory.verticals.host.items_mut().first_mut() {
            *place = match &layout.vertical {
                Some(v) => Verticals { known: 1, reserved: 0, up: v.up, rotation: v.rotation },
                None => Verticals { known: 0, reserved: 0, up: [[0.0; 3]; 2], rotation: [[0.0; 3]; 3] },
            };
        }
        memory.verticals.upload(1, &self.stream)?;
        self.mark(UPLOADED)?;

        let (per_sum, per_square) = candidate_factors(tau);
        let rule = Rule { tau, min_length, per_sum, per_square };
        let address = |there: bool, address: u64| if there { address } else { 0 };
        let tiles = (padded / 32) as u32;
        let memory = &self.graph;
        launch!(
            self.stream,
            self.kernels.fog,
            (tiles.div_ceil(8), tiles),
            8 * WARP,
            memory.numbers.device.address(),
            address(with_heights, memory.heights.device.address()),
            address(with_ids, memory.ids.device.address()),
            padded as u32,
            rule,
            memory.rows.address(),
        )?;
        self.prune(false)
    }

    /// Queues the removal of all edges of the correspondences set in `gone`.
    pub fn remove(&mut self, gone: &[u64]) -> Result<(), GpuError> {
        self.stream.context().bind()?;
        // The host's copy may still be read by the last removal.
        self.stream.wait()?;
        self.mark(0)?;
        copy_arrays(&mut self.graph.gone.host, &[gone]);
        let words = self.words();
        self.graph.gone.upload(words, &self.stream)?;
        self.mark(UPLOADED)?;
        self.prune(true)
    }

    /// Queues the count of the degrees, after a removal if there is one.
    fn prune(&mut self, removal: bool) -> Result<(), GpuError> {
        let memory = &self.graph;
        let padded = (self.words() * BLOCK) as u32;
        launch!(
            self.stream,
            self.kernels.prune,
            (padded.div_ceil(8), 1),
            8 * WARP,
            memory.rows.address(),
            if removal { memory.gone.device.address() } else { 0 },
            padded,
            memory.degrees.address(),
            memory.histogram.address(),
            memory.best.address(),
            memory.at.address(),
            memory.cut.address(),
            memory.totals.device.address(),
        )?;
        self.mark(GRAPH)
    }

    /// Runs the search in the graph as it is and waits for the answer; once after each `build` and
    /// each `remove`.
    pub fn run(
        &mut self,
        pivots: usize,
        per_pivot: usize,
        scoring: Scoring,
        min_height: f64,
    ) -> Result<Totals, GpuError> {
        let per_pivot = per_pivot.clamp(1, MAX_PER_PIVOT);
        let slots = pivots * per_pivot;
        self.stream.context().bind()?;
        if pivots > self.found.pivots || slots > self.found.slots {
            self.stream.wait()?;
            let (pivots, slots) = (pivots.max(self.found.pivots), slots.max(self.found.slots));
            self.found = FoundMemory::new(self.stream.context(), pivots, slots)?;
        }
        self.queue_pivots(pivots as u32)?;
        self.queue_hypotheses(pivots as u32, per_pivot as u32, scoring, min_height)?;
        self.graph.totals.download(1, &self.stream)?;
        self.found.ranked.download(slots, &self.stream)?;
        self.mark(RANKED)?;
        self.stream.wait()?;
        let totals = self.graph.totals.host.items().first().copied().unwrap_or_default();
        self.usable = totals.usable as usize;
        Ok(totals)
    }

    fn queue_pivots(&mut self, k: u32) -> Result<(), GpuError> {
        let (stream, kernels, g, f) = (&self.stream, &self.kernels, &self.graph, &self.found);
        let (n, words) = (self.n as u32, self.words() as u32);
        let (rows, degrees, totals) = (g.rows.address(), g.degrees.address(), g.totals.device.address());
        // As many blocks as can be resident: each takes tasks until none is left.
        let grid = (stream.context().processors() * 8, 1);
        let threads = 8 * WARP;
        let (best, at, keys) = (g.best.address(), g.at.address(), f.keys.address());
        let (histogram, cut) = (g.histogram.address(), g.cut.address());
        let room = g.edges.len() as u32;
        let list = List { edges: g.edges.address(), scores: g.scores.address(), room, reserved: 0 };
        let all_rows = (n.div_ceil(8), 1);
        launch!(stream, kernels.sog_list, all_rows, threads, rows, degrees, n, words, list, totals)?;
        launch!(
            stream,
            kernels.sog_scores,
            grid,
            threads,
            rows,
            degrees,
            n,
            words,
            k,
            list,
            histogram,
            best,
            totals
        )?;
        launch!(
            stream,
            kernels.sog_above,
            grid,
            threads,
            rows,
            degrees,
            n,
            words,
            list,
            best,
            at,
            keys,
            totals
        )?;
        launch!(stream, kernels.sog_at, grid, threads, rows, degrees, n, words, list, at, cut, keys, totals)?;
        self.mark(SCORED)?;
        launch!(
            stream,
            kernels.pivot_order,
            (k.div_ceil(8), 1),
            8 * WARP,
            f.keys.address(),
            f.ordered.address(),
            totals,
        )?;
        self.mark(PIVOTS)
    }

    fn queue_hypotheses(
        &mut self,
        k: u32,
        per_pivot: u32,
        scoring: Scoring,
        min_height: f64,
    ) -> Result<(), GpuError> {
        let (stream, kernels, g, f) = (&self.stream, &self.kernels, &self.graph, &self.found);
        let (words, padded, slots) = (self.words() as u32, (self.words() * BLOCK) as u32, k * per_pivot);
        let (totals, numbers) = (g.totals.device.address(), g.numbers.device.address());
        launch!(
            stream,
            kernels.cliques,
            (k, 1),
            8 * WARP,
            g.rows.address(),
            words,
            f.ordered.address(),
            per_pivot,
            f.triples.address(),
            totals,
        )?;
        self.mark(CLIQUES)?;
        launch!(
            stream,
            kernels.poses,
            (slots.div_ceil(64), 1),
            64,
            numbers,
            padded,
            f.triples.address(),
            slots,
            min_height,
            g.verticals.device.address(),
            f.poses.address(),
            f.single.address(),
            f.list.address(),
            f.support.address(),
            totals,
        )?;
        let theta2 = scoring.threshold * scoring.threshold;
        let metric = match scoring.metric {
            Metric::Inliers => 0,
            Metric::Linear => 1,
            Metric::Quadratic => 2,
        };
        let weights = numbers + 6 * 4 * u64::from(padded);
        launch!(
            stream,
            kernels.score,
            (slots.div_ceil(POSES), padded.div_ceil(STRETCH)),
            128,
            numbers,
            weights,
            padded,
            DeviceScoring { metric, theta2, per_theta2: 1.0 / theta2 },
            f.single.address(),
            f.list.address(),
            f.support.address(),
            totals,
        )?;
        launch!(
            stream,
            kernels.rank,
            (slots.div_ceil(8), 1),
            8 * WARP,
            f.support.address(),
            f.list.address(),
            f.poses.address(),
            f.ranked.device.address(),
            totals,
        )
    }

    /// The hypotheses of the last search that have inliers, best first.
    pub fn hypotheses(&self) -> impl Iterator<Item = Hypothesis> + '_ {
        self.found.ranked.host.items().iter().take(self.usable).map(|ranked| {
            let p = &ranked.pose;
            let rotation = Matrix3::new(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]);
            let pose = Pose { rotation, translation: Vector::new(p[9], p[10], p[11]) };
            Hypothesis { pose, score: u64::from(ranked.score), inliers: ranked.inliers }
        })
    }

    /// Rows and degrees of the graph, read back: for tests.
    pub fn read_graph(&self) -> Result<(Vec<u64>, Vec<u32>), GpuError> {
        let padded = self.words() * BLOCK;
        let rows = self.graph.rows.read(padded * self.words(), &self.stream)?;
        Ok((rows, self.graph.degrees.read(padded, &self.stream)?))
    }

    /// Pivots of the last search, read back, best first: for tests.
    pub fn read_pivots(&self, totals: &Totals) -> Result<Vec<Pivot>, GpuError> {
        let keys = self.found.ordered.read(totals.pivots as usize, &self.stream)?;
        Ok(keys.into_iter().map(Pivot::from_bits).collect())
    }

    /// Triples of the last search, read back, in the order of the pivots, (u, v, w) and score: for
    /// tests.
    pub fn read_triples(&self, slots: usize) -> Result<Vec<[u32; 4]>, GpuError> {
        let mut triples = self.found.triples.read(slots, &self.stream)?;
        triples.retain(|t| t[3] > 0);
        Ok(triples)
    }
}

impl Drop for GpuSearch {
    fn drop(&mut self) {
        // The device may still write to memory that is freed next.
        if self.stream.context().bind().is_ok() {
            let _ = self.stream.wait();
        }
    }
}

impl SearchEngine for GpuSearch {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn pool(&self) -> Option<Arc<rayon::ThreadPool>> {
        None
    }

    fn graph(
        &mut self,
        layout: &Layout,
        r: &RegistrationParams,
        _: Deadline,
        _: &mut Clock,
    ) -> Result<(), Stop> {
        Ok(self.build(layout, r.tau as f32, r.min_length as f32)?)
    }

    fn remove(&mut self, gone: &[u64], _: Deadline) -> Result<(), Stop> {
        Ok(GpuSearch::remove(self, gone)?)
    }

    fn search(
        &mut self,
        _: &Layout,
        r: &RegistrationParams,
        pivots: usize,
        deadline: Deadline,
        clock: &mut Clock,
    ) -> Result<Summary, Stop> {
        let totals = self.run(pivots, r.triples_per_pivot.max(1) as usize, scoring(r), r.tau)?;
        let mut spent = StageTimes::default();
        let parts = [
            (&mut spent.upload, 0, UPLOADED),
            (&mut spent.fog, UPLOADED, GRAPH),
            (&mut spent.sog, GRAPH, SCORED),
            (&mut spent.pivots, SCORED, PIVOTS),
            (&mut spent.cliques, PIVOTS, CLIQUES),
            (&mut spent.hypotheses, CLIQUES, RANKED),
        ];
        for (stage, from, to) in parts {
            *stage = self.between(from, to)?;
        }
        clock.measured(spent);
        if deadline.passed() {
            return Err(Stop::OverBudget);
        }
        Ok(Summary {
            edges: totals.edges,
            pivots: totals.pivots as usize,
            triples: totals.triples as usize,
            usable: totals.usable as usize,
            truncation: Truncation::default(),
        })
    }

    fn ranked(&self) -> impl Iterator<Item = Hypothesis> {
        self.hypotheses()
    }
}

/// Registers on the GPU, the search there and the rest on the host.
pub(super) type Gpu = Pipeline<GpuSearch>;

impl Gpu {
    /// Device, kernels and memory for `registration.max_correspondences`; also what was taken, for
    /// the log.
    pub fn start(params: &Params, cache: Option<&Path>) -> Result<(Self, String), GpuError> {
        let r = &params.registration;
        let capacity = r.max_correspondences.max(0) as usize;
        let (pivots, per_pivot) = (r.pivots.max(1) as usize, r.triples_per_pivot.max(1) as usize);
        let engine = GpuSearch::new(capacity, pivots, per_pivot, cache)?;
        let what = format!("{}; kernels {}", engine.device(), engine.origin());
        Ok((Self::new(engine, capacity), what))
    }
}
