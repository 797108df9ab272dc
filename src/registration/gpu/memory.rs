//! What the kernels read and write: the structures of `kernels/common.cuh` and the memory.

use crate::gpu::buffers::{DeviceBuffer, PinnedBuffer, Plain};
use crate::gpu::context::Context;
use crate::gpu::GpuError;
use crate::params::{RegistrationParams, Search};
use crate::registration::candidates::CANDIDATES;
use crate::registration::finish;
use crate::registration::layout::{Layout, STRIDE};
use crate::registration::refine::Numbers;
use crate::registration::Truncation;
use std::sync::Arc;

/// Rivals that a frame reports: candidates, the unweighted pose, candidates of the second search.
const RIVALS: usize = 2 * CANDIDATES[0] + 1;
/// Blocks that gather correspondences near a pose at the same time: candidates and three jobs.
const GATHERERS: usize = CANDIDATES[0] + 3;
/// Edges whose scores are kept between the passes; with more of them they are counted again.
const MOST_LISTED: usize = 1 << 21;
/// Edges as good as the last pivot for which there is room.
const MOST_TIES: usize = 2048;

/// Known verticals, see `Vertical` of the kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verticals {
    pub up: [[f64; 3]; 2],
    pub rotation: [[f64; 3]; 3],
}

/// One problem and its parameters.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub n: u32,
    pub padded: u32,
    pub words: u32,
    pub pivots: [u32; 2],
    pub per_pivot: u32,
    pub has_heights: u32,
    pub has_ids: u32,
    pub has_vertical: u32,
    pub has_weights: u32,
    pub bytes: u32,
    pub metric: u32,
    pub tau: f32,
    pub min_length: f32,
    pub per_sum: f32,
    pub per_square: f32,
    pub theta2: f32,
    pub per_theta2: f32,
    pub cut2: f32,
    pub reach2: f32,
    pub samples: u32,
    pub row_capacity: u32,
    pub pool_size: u32,
    pub reserved: u32,
    pub theta: f64,
    pub min_height: f64,
    pub vertical: Verticals,
    pub probe_mean: [f32; 3],
    pub probe_square: [f32; 6],
    pub table: u32,
}

/// Facts of one search.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    ends: u64,
    /// Score of the worst pivot; zero if all edges of positive score are pivots.
    pub threshold: u32,
    /// Edges at it that are pivots, if there was no room for all at it.
    pub ties: u32,
    /// Pivots.
    pub pivots: u32,
    /// Triples found.
    pub triples: u32,
    /// Hypotheses with an inlier.
    pub usable: u32,
    placed: u32,
    tied: u32,
    /// Edges that the list would hold.
    pub listed: u32,
    best: u32,
    cut: [u32; 4],
    reserved: u32,
}

impl Totals {
    /// Edges of the graph.
    pub fn edges(&self) -> u64 {
        self.ends / 2
    }

    /// What the capacities of the bounded search cut off.
    pub fn truncation(&self) -> Truncation {
        let [rows, voters, edges, pool] = self.cut.map(u64::from);
        Truncation { rows, voters, edges, pool }
    }
}

/// A pose with its support.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scored {
    pub pose: Numbers,
    pub score: u32,
    pub inliers: u32,
    pub valid: u32,
    reserved: u32,
}

/// Another pose compared with the best.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceRival {
    pub other: Scored,
    pub apart: u64,
    pub of_either: u32,
    pub only_pose: u32,
    pub only_other: u32,
    reserved: u32,
}

/// Stages of which the beginnings are noted, in order; the last one is the end.
pub(super) const STAGES: usize = 7;

/// Counters of blocks, see `Counter` of the kernels.
const COUNTERS: usize = 2;

/// What a frame finds.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceFindings {
    pub totals: [Totals; 2],
    pub best: Scored,
    pub rivals: [DeviceRival; RIVALS],
    pub information: [f64; 12],
    pub radius2: f64,
    pub spread: [f64; 3],
    pub gain: f64,
    pub noise2: f64,
    weight: f64,
    pub mirror_inliers: u32,
    pub has_mirror: u32,
    pub inliers: u32,
    pub off_line: u32,
    pub cells: [u32; 2],
    pub chance_hits: u32,
    reserved: u32,
    pub stamps: [[u64; STAGES]; 2],
}

// The same figures stand in kernels/common.cuh.
const _: () = assert!(std::mem::size_of::<Frame>() == 272);
const _: () = assert!(std::mem::size_of::<DeviceFindings>() == 1760);
const _: () = assert!(std::mem::size_of::<Arguments>() == 248);

// SAFETY: numbers without gaps, laid out as C does.
unsafe impl Plain for Frame {}
// SAFETY: as above.
unsafe impl Plain for Scored {}
// SAFETY: as above.
unsafe impl Plain for DeviceFindings {}

/// The argument of every kernel: addresses, `Memory` of the kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments {
    frame: u64,
    room: u32,
    tie_room: u32,
    rows: u64,
    degrees: u64,
    gone: u64,
    starts: u64,
    edges: u64,
    scores: u64,
    kept: u64,
    kept_scores: u64,
    offered: u64,
    histogram: u64,
    at: u64,
    keys: u64,
    ties: u64,
    pivots: u64,
    triples: u64,
    poses: u64,
    singles: u64,
    support: u64,
    barrier: u64,
    refined: u64,
    done: u64,
    near: u64,
    gathered: u64,
    cells: u64,
    mask: u64,
    findings: u64,
    inbox: u64,
    outbox: u64,
    outbox_mask: u64,
}

impl Arguments {
    /// The device takes what comes in from the host's memory itself.
    pub fn is_shared(&self) -> bool {
        self.inbox != 0
    }

    /// The graph of the bounded search: only the edges that are kept, all with their scores.
    pub fn kept_alone(&self) -> Self {
        Self { rows: self.kept, scores: self.kept_scores, ..*self }
    }
}

/// Bytes before the numbers in a letter.
const HEAD: usize = 512;
const _: () = assert!(std::mem::size_of::<Frame>() <= HEAD);

/// Memory of the host that the device reads and writes itself.
pub(super) struct HostSide {
    /// What a frame brings, all in one piece: `Frame`, numbers (7 arrays), heights and identities (2
    /// arrays each, if there are any).
    pub letter: PinnedBuffer<u8>,
    written: usize,
    pub findings: PinnedBuffer<DeviceFindings>,
    pub mask: PinnedBuffer<u64>,
}

impl HostSide {
    /// Writes the letter. What fits it was made sure of by the number of correspondences.
    pub fn write(&mut self, frame: Frame, layout: &Layout) {
        let mut at = HEAD;
        self.letter.put(at, layout.numbers());
        at += std::mem::size_of_val(layout.numbers());
        for height in &layout.height {
            self.letter.put(at, height);
            at += std::mem::size_of_val(height.as_slice());
        }
        for ids in &layout.ids {
            self.letter.put(at, ids);
            at += std::mem::size_of_val(ids.as_slice());
        }
        self.letter.put(0, &[Frame { bytes: at as u32, ..frame }]);
        self.written = at;
    }

    /// Bytes of the letter.
    pub fn written(&self) -> usize {
        self.written
    }
}

/// Bytes of the longest letter for `stride` rows.
fn longest_letter(stride: usize) -> usize {
    HEAD + stride * (7 * 4 + 2 * 4 + 2 * 8)
}

/// Memory of the device that tests read back; the rest is only written and read by kernels.
pub(super) struct DeviceSide {
    pub letter: DeviceBuffer<u8>,
    pub findings: DeviceBuffer<DeviceFindings>,
    pub rows: DeviceBuffer<u64>,
    pub degrees: DeviceBuffer<u32>,
    pub gone: DeviceBuffer<u64>,
    pub pivots: DeviceBuffer<u64>,
    pub triples: DeviceBuffer<[u32; 4]>,
    pub poses: DeviceBuffer<Numbers>,
    pub support: DeviceBuffer<[u32; 2]>,
}

/// What a search needs memory for besides the correspondences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Needs {
    pivots: usize,
    /// Triples.
    slots: usize,
    /// Edges kept per row; zero in the exact search.
    row_capacity: usize,
}

impl Needs {
    pub fn of(r: &RegistrationParams) -> Self {
        let [pivots, _] = finish::pivots(r);
        Self { pivots, slots: pivots * finish::per_pivot(r), row_capacity: row_capacity(r) }
    }

    /// What both need.
    fn and(&self, other: &Self) -> Self {
        Self {
            pivots: self.pivots.max(other.pivots),
            slots: self.slots.max(other.slots),
            row_capacity: self.row_capacity.max(other.row_capacity),
        }
    }
}

/// Voters and edges that a row keeps (L); zero in the exact search.
pub(super) fn row_capacity(r: &RegistrationParams) -> usize {
    match r.search {
        Search::Exact => 0,
        Search::Bounded => r.bounded_row_capacity.max(1) as usize,
    }
}

/// All memory, for the largest problem and the most that searches have needed so far.
pub(super) struct Memory {
    needs: Needs,
    pub host: HostSide,
    pub device: DeviceSide,
    pub arguments: Arguments,
    bytes: usize,
    /// Held for the addresses in `arguments`.
    _bytes: Vec<DeviceBuffer<u8>>,
}

impl Memory {
    /// For `capacity` correspondences.
    pub fn new(context: &Arc<Context>, capacity: usize, needs: Needs) -> Result<Self, GpuError> {
        let Needs { pivots, slots, row_capacity } = needs;
        let stride = capacity.max(1).next_multiple_of(STRIDE);
        let words = stride / 64;
        // A row takes its places by eights when their number is bounded.
        let kept = stride * row_capacity.next_multiple_of(8).min(stride);
        let room = (stride * stride / 2).min(MOST_LISTED).max(kept);
        let kept_rows = if kept > 0 { stride * words } else { 0 };
        let table = places(stride);
        let host = HostSide {
            letter: PinnedBuffer::new(context, longest_letter(stride))?,
            written: 0,
            findings: PinnedBuffer::new(context, 1)?,
            mask: PinnedBuffer::new(context, words)?,
        };
        let mut device = DeviceSide {
            letter: DeviceBuffer::new(context, longest_letter(stride))?,
            findings: DeviceBuffer::new(context, 1)?,
            rows: DeviceBuffer::new(context, stride * words)?,
            degrees: DeviceBuffer::new(context, stride)?,
            gone: DeviceBuffer::new(context, words)?,
            pivots: DeviceBuffer::new(context, pivots)?,
            triples: DeviceBuffer::new(context, slots)?,
            poses: DeviceBuffer::new(context, slots)?,
            support: DeviceBuffer::new(context, slots)?,
        };
        // Those of slots without a triple are never written, but read back by tests.
        device.poses.clear()?;
        device.findings.clear()?;
        let mut more = More { context, made: Vec::new(), bytes: 0 };
        let scores = more.bytes(2 * room)?;
        let arguments = Arguments {
            frame: device.letter.address(),
            room: room as u32,
            tie_room: MOST_TIES as u32,
            rows: device.rows.address(),
            degrees: device.degrees.address(),
            gone: device.gone.address(),
            starts: more.bytes(4 * stride)?,
            edges: more.bytes(4 * room)?,
            scores,
            kept: more.bytes(8 * kept_rows)?,
            kept_scores: more.bytes(2 * kept)?,
            offered: scores,
            histogram: more.bytes(4 * stride)?,
            at: more.bytes(4 * (stride + 1))?,
            keys: more.bytes(8 * pivots)?,
            ties: more.bytes(4 * MOST_TIES)?,
            pivots: device.pivots.address(),
            triples: device.triples.address(),
            poses: device.poses.address(),
            singles: more.bytes(12 * 4 * slots)?,
            support: device.support.address(),
            barrier: more.zeroed(64)?,
            refined: more.bytes(CANDIDATES[0] * std::mem::size_of::<Scored>())?,
            done: more.bytes(4 * COUNTERS)?,
            near: more.bytes(GATHERERS * 8 * 4 * stride)?,
            gathered: more.bytes(4 * CANDIDATES[0])?,
            cells: more.bytes(2 * 4 * table)?,
            mask: more.bytes(8 * words)?,
            findings: device.findings.address(),
            inbox: if context.device().integrated { host.letter.device_address()? } else { 0 },
            outbox: host.findings.device_address()?,
            outbox_mask: host.mask.device_address()?,
        };
        let d = &device;
        let named =
            d.letter.bytes() + d.findings.bytes() + d.rows.bytes() + d.degrees.bytes() + d.gone.bytes();
        let found = d.pivots.bytes() + d.triples.bytes() + d.poses.bytes() + d.support.bytes();
        let bytes = named + found + more.bytes;
        Ok(Self { needs, host, device, arguments, bytes, _bytes: more.made })
    }

    /// What there must be memory for so that it does for a search with `r` too, if there is not.
    pub fn lacks(&self, r: &RegistrationParams) -> Option<Needs> {
        let both = self.needs.and(&Needs::of(r));
        (both != self.needs).then_some(both)
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes pinned on the host.
    pub fn pinned_bytes(&self) -> usize {
        let h = &self.host;
        h.letter.bytes() + h.findings.bytes() + h.mask.bytes()
    }
}

/// Places of a table of cells for `rows` correspondences.
pub(super) fn places(rows: usize) -> usize {
    (2 * rows).next_power_of_two()
}

/// Makes memory that only its address is needed of.
struct More<'a> {
    context: &'a Arc<Context>,
    made: Vec<DeviceBuffer<u8>>,
    bytes: usize,
}

impl More<'_> {
    fn bytes(&mut self, len: usize) -> Result<u64, GpuError> {
        let buffer = DeviceBuffer::new(self.context, len)?;
        let address = buffer.address();
        self.bytes += buffer.bytes();
        self.made.push(buffer);
        Ok(address)
    }

    fn zeroed(&mut self, len: usize) -> Result<u64, GpuError> {
        let address = self.bytes(len)?;
        self.made.last_mut().map_or(Ok(()), DeviceBuffer::clear)?;
        Ok(address)
    }
}
