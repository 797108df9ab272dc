//! What the kernels read and write: the structures of `kernels/estimate.cu` and the memory.

use super::super::columns::{Columns, LANES};
use super::Kind;
use crate::gpu::buffers::{DeviceBuffer, PinnedBuffer, Plain};
use crate::gpu::context::{Context, Stream};
use crate::gpu::GpuError;
use std::sync::Arc;

/// Most samples of a round.
pub(super) const MOST_SAMPLES: usize = 4096;
/// Most poses that are kept of a round.
pub(super) const MOST_KEPT: usize = 16;
/// Numbers of a row that samples are solved from.
pub(super) const EXACT: usize = 6;

/// A pose that is kept of a round.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Kept {
    /// Rotation row by row, translation.
    pub pose: [f64; 12],
    /// Sum over the rows, in units of 1/65536.
    pub score: u32,
    /// Number of the sample in the round times 64, plus the number of the solution.
    pub slot: u32,
}

/// What a round finds.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Finds {
    pub poses: u32,
    pub count: u32,
    pub kept: [Kept; MOST_KEPT],
}

/// The argument of every kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub rows: u32,
    pub samples: u32,
    pub keep: u32,
    pub reserved: u32,
    pub exact: u64,
    pub blocks: u64,
    pub drawn: u64,
    pub counts: u64,
    pub poses: u64,
    pub scores: u64,
    pub outbox: u64,
}

// The same figures stand in kernels/estimate.cu.
const _: () = assert!(std::mem::size_of::<Kept>() == 104);
const _: () = assert!(std::mem::size_of::<Finds>() == 1672);
const _: () = assert!(std::mem::size_of::<Round>() == 72);
const _: () = assert!(LANES == 16);

// SAFETY: numbers without gaps, laid out as C does.
unsafe impl Plain for Finds {}

/// All memory, for problems of any kind.
pub(super) struct Memory {
    /// What a problem brings: exact rows, then blocks of columns.
    letter: PinnedBuffer<u8>,
    pub drawn: PinnedBuffer<u32>,
    pub outbox: PinnedBuffer<Finds>,
    device: DeviceBuffer<u8>,
    pub counts: DeviceBuffer<u32>,
    pub poses: DeviceBuffer<[f64; 12]>,
    pub scores: DeviceBuffer<u32>,
}

impl Memory {
    /// For `capacity` rows.
    pub fn new(context: &Arc<Context>, capacity: usize) -> Result<Self, GpuError> {
        let capacity = capacity.max(1).next_multiple_of(LANES);
        let most = |of: fn(&Kind) -> usize| Kind::ALL.iter().map(|kind| of(kind)).max().unwrap_or(0);
        let slots = MOST_SAMPLES * most(|kind| kind.roots);
        let letter = capacity * (8 * EXACT + 4 * most(|kind| kind.columns));
        Ok(Self {
            letter: PinnedBuffer::new(context, letter)?,
            drawn: PinnedBuffer::new(context, MOST_SAMPLES * most(|kind| kind.sample))?,
            outbox: PinnedBuffer::new(context, 1)?,
            device: DeviceBuffer::new(context, letter)?,
            counts: DeviceBuffer::new(context, MOST_SAMPLES)?,
            poses: DeviceBuffer::new(context, slots)?,
            scores: DeviceBuffer::new(context, slots)?,
        })
    }

    /// Writes a problem, queues its way to the device, and tells what the kernels have to know of it. `None`:
    /// there is no room for it.
    pub fn load<const C: usize>(
        &mut self,
        exact: impl ExactSizeIterator<Item = [f64; EXACT]>,
        columns: &Columns<C>,
        stream: &Stream,
    ) -> Result<Option<Round>, GpuError> {
        let (rows, blocks) = (exact.len(), columns.blocks());
        let first = 8 * EXACT * rows.next_multiple_of(LANES);
        let end = first + std::mem::size_of_val(blocks);
        if columns.rows() != rows || end > self.letter.items().len() {
            return Ok(None);
        }
        for (i, row) in exact.enumerate() {
            self.letter.put(8 * EXACT * i, &row);
        }
        self.letter.put(first, blocks);
        self.device.upload(&self.letter, end.max(1), stream)?;
        Ok(Some(Round {
            rows: rows as u32,
            samples: 0,
            keep: 0,
            reserved: 0,
            exact: self.device.address(),
            blocks: self.device.address() + first as u64,
            drawn: self.drawn.device_address()?,
            counts: self.counts.address(),
            poses: self.poses.address(),
            scores: self.scores.address(),
            outbox: self.outbox.device_address()?,
        }))
    }

    /// Bytes on the device and bytes pinned on the host.
    pub fn bytes(&self) -> [usize; 2] {
        let device = self.device.bytes() + self.counts.bytes() + self.poses.bytes() + self.scores.bytes();
        [device, self.letter.bytes() + self.drawn.bytes() + self.outbox.bytes()]
    }
}
