//! Registration on the GPU: a frame goes in, its findings come out, and nothing goes back and forth
//! between. The same bits as the CPU: graph, scores, pivots, triples, poses, measurements.

mod launch;
mod memory;

use super::candidates::CANDIDATES;
use super::examine::SAMPLES;
use super::findings::{Comparison, Found, Information, Measured, Mirror, Rival, Summary};
use super::finish::{self, scoring, Clock, Engine, Pipeline, Task};
use super::fog::candidate_factors;
use super::hypotheses::Hypothesis;
use super::lanes::Stop;
use super::layout::{Layout, STRIDE};
use super::pivots::Pivot;
use super::refine::{cut2, pose_of, reach2};
use super::result::StageTimes;
use crate::gpu::buffers::PinnedBuffer;
use crate::gpu::bundle::{Bundle, Origin};
use crate::gpu::context::Context;
use crate::gpu::device::DeviceMemory;
use crate::gpu::GpuError;
use crate::params::{Metric, Params, RegistrationParams};
pub use launch::Way;
use launch::{Launcher, Round};
pub use memory::Totals;
use memory::{places, row_capacity, DeviceFindings, DeviceRival, Frame, Memory, Needs, Scored, Verticals};
use std::path::Path;
use std::sync::Arc;

/// Stages of the kernels, see `Stage` in `kernels/common.cuh`.
const FOG: usize = 0;
const SOG: usize = 1;
const PIVOTS: usize = 2;
const CLIQUES: usize = 3;
const HYPOTHESES: usize = 4;
const REFINE: usize = 5;
const END: usize = 6;

/// The bits of each byte, lowest first.
const BITS: [[bool; 8]; 256] = {
    let mut bits = [[false; 8]; 256];
    let mut k = 0;
    while k < 8 * 256 {
        bits[k / 8][k % 8] = (k / 8) >> (k % 8) & 1 == 1;
        k += 1;
    }
    bits
};

/// Registers on the GPU.
pub struct GpuEngine {
    memory: Memory,
    capacity: usize,
    findings: DeviceFindings,
    /// A frame was submitted and not waited for.
    under_way: bool,
    // Dropped after the memory that it may be writing: it waits.
    launcher: Launcher,
    context: Arc<Context>,
    bundle: Arc<Bundle>,
    params: Params,
}

impl GpuEngine {
    /// Takes the first device, loads the kernels (see [`Bundle::load`]) and makes memory for
    /// `registration.max_correspondences`; that for the search grows when more is
    /// asked for.
    pub fn new(params: &Params, cache: Option<&Path>) -> Result<Self, GpuError> {
        let context = Context::first()?;
        let bundle = Arc::new(Bundle::load(&context, cache)?);
        Self::with(context, bundle, params.clone())
    }

    fn with(context: Arc<Context>, bundle: Arc<Bundle>, params: Params) -> Result<Self, GpuError> {
        let launcher = Launcher::new(&context, &bundle, &params.backend)?;
        let r = &params.registration;
        let capacity = r.max_correspondences.max(0) as usize;
        let memory = Memory::new(&context, capacity, Needs::of(r))?;
        let (findings, under_way) = (DeviceFindings::default(), false);
        Ok(Self { memory, capacity, findings, under_way, launcher, context, bundle, params })
    }

    /// Name and compute capability of the device, for the log.
    pub fn device(&self) -> String {
        self.context.device().to_string()
    }

    /// Where the kernels came from.
    pub fn origin(&self) -> &Origin {
        self.bundle.origin()
    }

    /// How the kernels are launched.
    pub fn way(&self) -> &Way {
        self.launcher.way()
    }

    /// Bytes on the device, without the context and the kernels.
    pub fn device_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// All that it takes. Other engines of this process that share the context count as kernels.
    fn memory_taken(&self) -> Result<DeviceMemory, GpuError> {
        let (device, context) = (self.memory.bytes(), self.context.in_use_at_start());
        let kernels = self.context.in_use()?.saturating_sub(context).saturating_sub(device);
        Ok(DeviceMemory { device, pinned: self.memory.pinned_bytes(), kernels, context })
    }

    /// Makes a problem ready for the device.
    pub fn stage(&mut self, layout: &Layout, r: &RegistrationParams) -> Result<(), GpuError> {
        if layout.count() > self.capacity {
            return Err(GpuError::Absent(format!("memory for {} correspondences only", self.capacity)));
        }
        self.context.bind()?;
        if let Some(needs) = self.memory.lacks(r) {
            self.launcher.stream().wait()?;
            self.memory = Memory::new(&self.context, self.capacity, needs)?;
            self.launcher.forget();
        }
        self.launcher.set_search(r.search);
        let padded = layout.stride();
        let scoring = scoring(r);
        let theta2 = scoring.theta2();
        let (per_sum, per_square) = candidate_factors(r.tau as f32);
        let frame = Frame {
            n: layout.count() as u32,
            padded: padded as u32,
            words: (padded / 64) as u32,
            pivots: finish::pivots(r).map(|k| k as u32),
            per_pivot: finish::per_pivot(r) as u32,
            has_heights: u32::from(layout.up.is_some()),
            has_ids: u32::from(layout.ids.iter().any(|ids| !ids.is_empty())),
            has_vertical: u32::from(layout.vertical.is_some()),
            has_weights: u32::from(layout.is_weighted()),
            bytes: 0,
            reserved: 0,
            table: places(padded) as u32,
            metric: match scoring.metric {
                Metric::Inliers => 0,
                Metric::Linear => 1,
                Metric::Quadratic => 2,
            },
            tau: r.tau as f32,
            min_length: r.min_length as f32,
            per_sum,
            per_square,
            theta2,
            per_theta2: 1.0 / theta2,
            cut2: cut2(r.inlier_threshold),
            reach2: reach2(r.inlier_threshold),
            samples: SAMPLES.min(layout.count()) as u32,
            row_capacity: row_capacity(r) as u32,
            pool_size: r.bounded_pool_size.max(1) as u32,
            theta: r.inlier_threshold,
            min_height: r.tau,
            probe_mean: layout.probe.mean,
            probe_square: layout.probe.square,
            vertical: layout
                .vertical
                .as_ref()
                .map_or(Verticals::default(), |v| Verticals { up: v.up, rotation: v.rotation }),
        };
        self.memory.host.write(frame, layout);
        if self.memory.arguments.is_shared() {
            return Ok(());
        }
        let (letter, len) = (&self.memory.host.letter, self.memory.host.written());
        self.memory.device.letter.upload(letter, len, self.launcher.stream())
    }

    /// Queues the frame that was staged.
    pub fn submit(&mut self) -> Result<(), GpuError> {
        self.context.bind()?;
        self.under_way = true;
        self.launcher.frame(&self.memory.arguments)
    }

    /// Waits for the frame that was submitted.
    fn wait(&mut self) -> Result<(), GpuError> {
        self.context.bind()?;
        self.launcher.stream().wait()?;
        self.under_way = false;
        self.findings = self.memory.host.findings.items().first().copied().unwrap_or_default();
        Ok(())
    }

    /// For tests: runs a search alone on what was staged. The second one is in the graph of the
    /// first without the rows that are set in `gone` (bits).
    pub fn search_alone(&mut self, round: Round, gone: &[u64]) -> Result<Totals, GpuError> {
        self.context.bind()?;
        let stream = self.launcher.stream();
        if round == 0 {
            self.launcher.graph_of(&self.memory.arguments)?;
        } else {
            let mut pinned = PinnedBuffer::new(&self.context, gone.len())?;
            pinned.items_mut().get_mut(..gone.len()).unwrap_or_default().copy_from_slice(gone);
            self.memory.device.gone.upload(&pinned, gone.len(), stream)?;
            stream.wait()?;
        }
        self.launcher.search(&self.memory.arguments, round)?;
        let findings = self.memory.device.findings.read(1, stream)?;
        let totals = findings.first().and_then(|f| f.totals.get(round as usize));
        Ok(totals.copied().unwrap_or_default())
    }

    /// For tests: words of a row, rows and degrees of the graph as it is now.
    pub fn read_graph(&self, n: usize) -> Result<(usize, Vec<u64>, Vec<u32>), GpuError> {
        let padded = n.next_multiple_of(STRIDE);
        let (words, stream) = (padded / 64, self.launcher.stream());
        let rows = self.memory.device.rows.read(padded * words, stream)?;
        Ok((words, rows, self.memory.device.degrees.read(padded, stream)?))
    }

    /// For tests: pivots of the last search, best first.
    pub fn read_pivots(&self, totals: &Totals) -> Result<Vec<Pivot>, GpuError> {
        let keys = self.memory.device.pivots.read(totals.pivots as usize, self.launcher.stream())?;
        Ok(keys.into_iter().map(Pivot::from_bits).collect())
    }

    /// For tests: triples of the last search in the order of the pivots, (u, v, w) and score, each
    /// with its hypothesis.
    pub fn read_triples(&self, slots: usize) -> Result<Vec<([u32; 4], Hypothesis)>, GpuError> {
        let (device, stream) = (&self.memory.device, self.launcher.stream());
        let (triples, poses) = (device.triples.read(slots, stream)?, device.poses.read(slots, stream)?);
        let all = triples.into_iter().zip(poses).zip(device.support.read(slots, stream)?);
        let all = all.filter(|((triple, _), _)| triple[3] > 0);
        Ok(all
            .map(|((triple, pose), [score, inliers])| {
                let score = u64::from(score);
                (triple, Hypothesis { pose: pose_of(&pose), score, inliers })
            })
            .collect())
    }

    /// Microseconds of the device in each stage of the last frame. The upload is the host's; what was
    /// measured beside the search of the rivals counts where it ends last.
    fn times(&self) -> StageTimes {
        let [first, rivals] = &self.findings.stamps;
        let between = |from: u64, to: u64| to.saturating_sub(from) as f64 * 1e-3;
        let both =
            |from: usize, to: usize| between(first[from], first[to]) + between(rivals[from], rivals[to]);
        StageTimes {
            upload: 0.0,
            fog: between(first[FOG], first[SOG]),
            sog: both(SOG, PIVOTS),
            pivots: both(PIVOTS, CLIQUES),
            cliques: both(CLIQUES, HYPOTHESES),
            hypotheses: both(HYPOTHESES, REFINE),
            refine: between(first[REFINE], rivals[SOG]) + between(rivals[REFINE], first[END]),
        }
    }
}

impl Drop for GpuEngine {
    fn drop(&mut self) {
        // The device may still write to memory that is freed next.
        if self.context.bind().is_ok() {
            let _ = self.launcher.stream().wait();
        }
    }
}

fn hypothesis(s: &Scored) -> Hypothesis {
    Hypothesis { pose: pose_of(&s.pose), score: u64::from(s.score), inliers: s.inliers }
}

impl Engine for GpuEngine {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn pool(&self) -> Option<Arc<rayon::ThreadPool>> {
        None
    }

    fn twin(&self) -> Option<Result<Self, GpuError>> {
        Some(Self::with(Arc::clone(&self.context), Arc::clone(&self.bundle), self.params.clone()))
    }

    fn memory(&self) -> Option<DeviceMemory> {
        self.memory_taken().ok()
    }

    fn begin(&mut self, task: Task) -> Result<(), Stop> {
        self.context.bind()?;
        if self.under_way {
            // It was given up before its end.
            self.launcher.stream().wait()?;
        }
        self.stage(task.layout, task.r)?;
        Ok(self.submit()?)
    }

    fn find(
        &mut self,
        task: Task,
        mask: &mut [bool],
        clock: &mut Clock,
    ) -> Result<(Summary, Option<Found>), Stop> {
        self.wait()?;
        clock.measured(self.times());
        if task.deadline.passed() {
            return Err(Stop::OverBudget);
        }
        let f = &self.findings;
        let totals = &f.totals[0];
        let summary = Summary {
            edges: totals.edges(),
            pivots: totals.pivots as usize,
            triples: totals.triples as usize,
            usable: totals.usable as usize,
            truncation: totals.truncation(),
        };
        if f.best.valid == 0 {
            return Ok((summary, None));
        }
        let words = self.memory.host.mask.items();
        for (chunk, word) in mask.chunks_mut(64).zip(words) {
            for (eight, byte) in chunk.chunks_mut(8).zip(word.to_le_bytes()) {
                eight.copy_from_slice(&BITS[usize::from(byte)][..eight.len()]);
            }
        }
        let s = &f.information;
        let measured = Measured {
            inliers: f.inliers as usize,
            independent: f.cells[0].min(f.cells[1]) as usize,
            off_line: f.off_line as usize,
            samples: SAMPLES.min(task.layout.count()),
            chance_hits: u64::from(f.chance_hits),
            spread: f.spread,
            mirror: (f.has_mirror == 1).then_some(Mirror {
                inliers: f.mirror_inliers as usize,
                gain: f.gain,
                noise2: f.noise2,
            }),
            information: Information {
                weight: s[0],
                point: [s[1], s[2], s[3]],
                product: [s[4], s[5], s[6], s[7], s[8], s[9]],
                error: s[10],
                count: s[11],
                radius2: f.radius2,
            },
        };
        Ok((summary, Some(Found { best: hypothesis(&f.best), measured })))
    }

    fn rivals(
        &mut self,
        task: Task,
        _: &Found,
        _: &[bool],
        _: &mut Clock,
        see: &mut dyn FnMut(Rival),
    ) -> Result<(), Stop> {
        let mut rivals = self.findings.rivals;
        let (_, second) = rivals.split_at_mut(CANDIDATES[0] + 1);
        second.sort_by_key(|r| std::cmp::Reverse((r.other.valid, r.other.score, r.other.inliers)));
        for r in rivals.iter().filter(|r| r.other.valid == 1) {
            let &DeviceRival { apart, of_either, only_pose, only_other, .. } = r;
            let compared = Comparison { apart, of_either, only_pose, only_other };
            see(compared.rival(hypothesis(&r.other), task.r.inlier_threshold));
        }
        Ok(())
    }
}

/// Registers on the GPU.
pub(super) type Gpu = Pipeline<GpuEngine>;

impl Gpu {
    /// Device, kernels and memory for `registration.max_correspondences`; also what was taken, for
    /// the log.
    pub fn start(params: &Params, cache: Option<&Path>) -> Result<(Self, String), GpuError> {
        let engine = GpuEngine::new(params, cache)?;
        let what = format!("{}; kernels {}; {}", engine.device(), engine.origin(), engine.way());
        Ok((Self::new(engine, params.registration.max_correspondences.max(0) as usize), what))
    }
}
