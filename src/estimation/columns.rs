//! Rows in single precision, as scores are computed: blocks of lanes side by side, so that one instruction works
//! on many rows.

/// Rows in a block.
pub(crate) const LANES: usize = 16;

/// `C` numbers per row. Rows beyond the last are zero, which scores nothing.
#[derive(Debug, Default)]
pub(crate) struct Columns<const C: usize> {
    blocks: Vec<[[f32; LANES]; C]>,
    rows: usize,
}

impl<const C: usize> Columns<C> {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self { blocks: Vec::with_capacity(n.div_ceil(LANES)), rows: 0 }
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.rows = 0;
    }

    /// Adds a row.
    pub fn push(&mut self, row: [f64; C]) {
        let lane = self.rows % LANES;
        if lane == 0 {
            self.blocks.push([[0.0; LANES]; C]);
        }
        if let Some(block) = self.blocks.last_mut() {
            block.iter_mut().zip(row).for_each(|(column, value)| column[lane] = value as f32);
        }
        self.rows += 1;
    }

    /// The blocks in order.
    pub fn blocks(&self) -> &[[[f32; LANES]; C]] {
        &self.blocks
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// One number of one row; zero beyond the last.
    pub fn at(&self, row: usize, column: usize) -> f32 {
        self.blocks.get(row / LANES).map_or(0.0, |block| block[column][row % LANES])
    }
}

/// What a row adds to the score: `floor(65536 (1 - e / q))` where it counts.
#[inline(always)]
pub(crate) fn gain(counts: bool, e: f32, q: f32) -> u32 {
    let gain = if counts { 65536.0 * (1.0 - e / q) } else { 0.0 };
    // SAFETY: a row counts only if 0 <= e < q, so the number is finite and within 0..=65536.
    unsafe { gain.to_int_unchecked::<i32>() as u32 }
}

/// A pose in single precision: rotation row by row, translation.
#[inline(always)]
pub(crate) fn single(pose: &crate::geometry::Pose) -> ([[f32; 3]; 3], [f32; 3]) {
    let (r, t) = (&pose.rotation, &pose.translation);
    let rotation = [0, 1, 2].map(|i| [0, 1, 2].map(|j| r[(i, j)] as f32));
    (rotation, [t.x as f32, t.y as f32, t.z as f32])
}
