//! What the kernels of the search read and write: the structures and the memory.

use super::layout::BLOCK;
use crate::gpu::buffers::{DeviceBuffer, PinnedBuffer, Plain};
use crate::gpu::context::{Context, Stream};
use crate::gpu::GpuError;
use std::sync::Arc;

/// Facts of one search; the layout of `Totals` in `kernels/common.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Edges of the graph.
    pub edges: u64,
    /// Score of the worst pivot; zero if all edges of positive score are pivots.
    pub threshold: u32,
    /// Edges above it.
    pub above: u32,
    /// Edges at it that are pivots.
    pub ties: u32,
    /// Pivots.
    pub pivots: u32,
    /// Triples found.
    pub triples: u32,
    /// Triples that gave a pose.
    pub posed: u32,
    /// Hypotheses with an inlier.
    pub usable: u32,
    placed: u32,
    cut: u32,
    done: [u32; 3],
    listed: u32,
    reserved: u32,
}

/// A scored pose; the layout of `Ranked` in `kernels/hypotheses.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked {
    pub pose: [f64; 12],
    pub score: u32,
    pub inliers: u32,
    pub slot: u32,
    pub reserved: u32,
}

/// The verticals; the layout of `Vertical` in `kernels/hypotheses.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Verticals {
    pub known: u32,
    pub reserved: u32,
    pub up: [[f64; 3]; 2],
    pub rotation: [[f64; 3]; 3],
}

/// Argument of the kernel `fog`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub tau: f32,
    pub min_length: f32,
    pub per_sum: f32,
    pub per_square: f32,
}

/// Argument of the kernel `score`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceScoring {
    pub metric: u32,
    pub theta2: f32,
    pub per_theta2: f32,
}

/// Argument of the kernels of the scores.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub edges: u64,
    pub scores: u64,
    pub room: u32,
    pub reserved: u32,
}

// SAFETY: numbers without gaps, laid out as C does.
unsafe impl Plain for Totals {}
// SAFETY: as above.
unsafe impl Plain for Ranked {}
// SAFETY: as above.
unsafe impl Plain for Verticals {}

/// A buffer of the host and its copy on the device.
pub(super) struct Both<T> {
    pub host: PinnedBuffer<T>,
    pub device: DeviceBuffer<T>,
}

impl<T: Plain> Both<T> {
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Self, GpuError> {
        Ok(Self { host: PinnedBuffer::new(context, len)?, device: DeviceBuffer::new(context, len)? })
    }

    /// What is downloaded without having been written is zero.
    pub fn zeroed(context: &Arc<Context>, len: usize) -> Result<Self, GpuError> {
        let mut both = Self::new(context, len)?;
        both.device.clear()?;
        Ok(both)
    }

    pub fn upload(&mut self, len: usize, stream: &Stream) -> Result<(), GpuError> {
        self.device.upload(&self.host, len, stream)
    }

    pub fn download(&mut self, len: usize, stream: &Stream) -> Result<(), GpuError> {
        self.device.download(&mut self.host, len, stream)
    }
}

/// Edges whose scores are kept between the passes; with more of them they are counted again.
const MOST_LISTED: usize = 1 << 21;

/// What goes in and the graph, for the largest number of correspondences.
pub(super) struct GraphMemory {
    /// Source x y z, target x y z, weights.
    pub numbers: Both<f32>,
    pub heights: Both<f32>,
    pub ids: Both<u64>,
    pub verticals: Both<Verticals>,
    pub gone: Both<u64>,
    pub rows: DeviceBuffer<u64>,
    pub degrees: DeviceBuffer<u32>,
    pub histogram: DeviceBuffer<u32>,
    /// Per row: best score, edges at the threshold.
    pub best: DeviceBuffer<u32>,
    pub at: DeviceBuffer<u32>,
    /// Edges of the row where the pivots run out.
    pub cut: DeviceBuffer<u64>,
    /// Edges and their scores, as many as there is room for.
    pub edges: DeviceBuffer<u32>,
    pub scores: DeviceBuffer<u16>,
    pub totals: Both<Totals>,
}

impl GraphMemory {
    pub fn new(context: &Arc<Context>, capacity: usize) -> Result<Self, GpuError> {
        let padded = capacity.next_multiple_of(BLOCK);
        let listed = (padded * padded / 2).min(MOST_LISTED);
        Ok(Self {
            numbers: Both::new(context, 7 * padded)?,
            heights: Both::new(context, 2 * padded)?,
            ids: Both::new(context, 2 * padded)?,
            verticals: Both::new(context, 1)?,
            gone: Both::new(context, padded / BLOCK)?,
            rows: DeviceBuffer::new(context, padded * (padded / BLOCK))?,
            degrees: DeviceBuffer::new(context, padded)?,
            histogram: DeviceBuffer::new(context, padded)?,
            best: DeviceBuffer::new(context, padded)?,
            at: DeviceBuffer::new(context, padded + 1)?,
            cut: DeviceBuffer::new(context, padded / BLOCK)?,
            edges: DeviceBuffer::new(context, listed)?,
            scores: DeviceBuffer::new(context, listed)?,
            totals: Both::new(context, 1)?,
        })
    }

    pub fn bytes(&self) -> usize {
        let numbers = self.numbers.device.bytes() + self.heights.device.bytes() + self.ids.device.bytes();
        let rows = [&self.degrees, &self.histogram, &self.best, &self.at];
        let lists = self.edges.bytes() + self.scores.bytes();
        numbers + lists + self.rows.bytes() + rows.iter().map(|b| b.bytes()).sum::<usize>()
    }
}

/// What comes out, for as many pivots and triples as were asked for so far.
pub(super) struct FoundMemory {
    pub pivots: usize,
    pub slots: usize,
    pub keys: DeviceBuffer<u64>,
    pub ordered: DeviceBuffer<u64>,
    pub triples: DeviceBuffer<[u32; 4]>,
    pub poses: DeviceBuffer<[f64; 12]>,
    pub single: DeviceBuffer<[f32; 12]>,
    pub list: DeviceBuffer<u32>,
    pub support: DeviceBuffer<[u32; 2]>,
    pub ranked: Both<Ranked>,
}

impl FoundMemory {
    pub fn new(context: &Arc<Context>, pivots: usize, slots: usize) -> Result<Self, GpuError> {
        Ok(Self {
            pivots,
            slots,
            keys: DeviceBuffer::new(context, pivots)?,
            ordered: DeviceBuffer::new(context, pivots)?,
            triples: DeviceBuffer::new(context, slots)?,
            poses: DeviceBuffer::new(context, slots)?,
            single: DeviceBuffer::new(context, slots)?,
            list: DeviceBuffer::new(context, slots)?,
            support: DeviceBuffer::new(context, slots)?,
            ranked: Both::zeroed(context, slots)?,
        })
    }

    pub fn bytes(&self) -> usize {
        let pivots = self.keys.bytes() + self.ordered.bytes();
        let slots = self.triples.bytes() + self.poses.bytes() + self.single.bytes();
        pivots + slots + self.list.bytes() + self.support.bytes() + self.ranked.device.bytes()
    }
}

/// One array after another.
pub(super) fn copy_arrays<T: Plain>(into: &mut PinnedBuffer<T>, arrays: &[&[T]]) {
    let mut rest = into.items_mut();
    for array in arrays {
        let (part, left) = std::mem::take(&mut rest).split_at_mut(array.len());
        part.copy_from_slice(array);
        rest = left;
    }
}
