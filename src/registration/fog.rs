//! FOG, the first-order compatibility graph (FlashReg Eqs. 1-3): two correspondences are joined
//! when the distance between their sources equals the distance between their targets.
//!
//! `ls = |s_i - s_j|`, `lt = |t_i - t_j|`; edge when `|ls - lt| < tau` and `ls + lt > r`.
//! Single precision, squares summed as `(x + y) + z`, rounded after every operation, square roots
//! rounded to nearest: the same bits on every machine and on the GPU.
//!
//! With a known vertical the difference of the heights must agree within tau too. Correspondences
//! that share an identity are never joined.

use super::lanes::{Deadline, Lanes, OverBudget, Shared};
use super::layout::{Layout, BLOCK};
use multiversion::multiversion;

/// An undirected graph over correspondences, one row of bits each.
#[derive(Debug)]
pub struct Graph {
    n: usize,
    words: usize,
    rows: Vec<u64>,
    degrees: Vec<u32>,
}

impl Graph {
    /// Room for `max` correspondences: `max^2 / 8` bytes.
    pub fn with_capacity(max: usize) -> Self {
        let padded = max.next_multiple_of(BLOCK);
        Self { n: 0, words: 0, rows: vec![0; padded * (padded / BLOCK)], degrees: vec![0; padded] }
    }

    /// Number of correspondences.
    pub fn count(&self) -> usize {
        self.n
    }

    /// Words of 64 bits in a row.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Neighbours of `i` as bits; the index must be below the padded number of correspondences.
    pub fn row(&self, i: usize) -> &[u64] {
        &self.rows[i * self.words..(i + 1) * self.words]
    }

    /// Number of neighbours of `i`.
    pub fn degree(&self, i: usize) -> u32 {
        self.degrees[i]
    }

    /// `i` and `j` are joined.
    pub fn has_edge(&self, i: usize, j: usize) -> bool {
        self.row(i)[j / 64] >> (j % 64) & 1 == 1
    }

    /// Neighbours of `i` above `i`, ascending.
    #[inline]
    pub fn neighbours_above(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        self.common_above(i, i)
    }

    /// Neighbours that `u` and `v` have in common above `v`, ascending.
    #[inline]
    pub fn common_above(&self, u: usize, v: usize) -> impl Iterator<Item = usize> + '_ {
        let first = v / BLOCK;
        let (a, b) = (&self.row(u)[first..], &self.row(v)[first..]);
        let above = (!0u64 << (v % BLOCK)) & !(1 << (v % BLOCK));
        let words = a.iter().zip(b).enumerate();
        bits(words.map(move |(k, (a, b))| if k == 0 { a & b & above } else { a & b }))
            .map(move |w| first * BLOCK + w)
    }

    /// Number of edges.
    pub fn edges(&self) -> u64 {
        self.degrees[..self.n].iter().map(|d| u64::from(*d)).sum::<u64>() / 2
    }

    /// Empties it and makes room for `n` correspondences, the rows undefined.
    pub fn reset(&mut self, n: usize) {
        self.n = n;
        let padded = n.next_multiple_of(BLOCK);
        self.words = padded / BLOCK;
        let needed = padded * self.words;
        if self.rows.len() < needed {
            self.rows.resize(needed, 0);
            self.degrees.resize(padded, 0);
        }
    }

    /// Builds the graph of the correspondences.
    pub fn build<L: Send>(
        &mut self,
        layout: &Layout,
        tau: f32,
        min_length: f32,
        lanes: &mut Lanes<L>,
        deadline: Deadline,
    ) -> Result<(), OverBudget> {
        self.reset(layout.count());
        let words = self.words;
        let rule = Rule { tau, min_length };
        let rows = Shared::new(&mut self.rows);
        // A task is a band of 64 rows: its tiles from the diagonal to the right.
        lanes.run(words, deadline, |_, band| {
            // SAFETY: each band belongs to one task.
            let rows = unsafe { rows.part(band * BLOCK * words, BLOCK * words) };
            for column in band..words {
                let mut tile = [0u64; BLOCK];
                fill_tile(layout, rule, band * BLOCK, column * BLOCK, &mut tile);
                for (row, bits) in rows.chunks_exact_mut(words).zip(tile) {
                    row[column] = bits;
                }
            }
        })?;
        self.mirror(lanes, deadline)?;
        self.count_degrees(lanes, deadline)
    }

    /// Fills in the tiles below the diagonal as the transposes of those above.
    fn mirror<L: Send>(&mut self, lanes: &mut Lanes<L>, deadline: Deadline) -> Result<(), OverBudget> {
        let words = self.words;
        let tasks = words.div_ceil(LINE);
        let rows = Shared::new(&mut self.rows);
        // A task is as many columns of tiles as share a cache line: read together, written by one
        // thread. The last one has the most to do and comes first.
        lanes.run(tasks, deadline, |_, task| {
            let first = (tasks - 1 - task) * LINE;
            let columns = first..(first + LINE).min(words);
            for band in 0..columns.end {
                let mut tiles = [[0u64; BLOCK]; LINE];
                for a in 0..BLOCK {
                    // SAFETY: these columns belong to this task.
                    let line = unsafe { rows.part((band * BLOCK + a) * words + first, columns.len()) };
                    for (tile, bits) in tiles.iter_mut().zip(line) {
                        tile[a] = *bits;
                    }
                }
                for (column, tile) in columns.clone().zip(&mut tiles).filter(|(column, _)| *column > band) {
                    transpose(tile);
                    for (b, bits) in tile.iter().enumerate() {
                        // SAFETY: word `band` of these rows lies in a column of this task or, left of all its
                        // columns, below the diagonal, where no other task reads or writes it.
                        unsafe { rows.write((column * BLOCK + b) * words + band, *bits) };
                    }
                }
            }
        })
    }

    /// Removes all edges of the correspondences that are set in `gone` (bits, one row long).
    pub fn remove<L: Send>(
        &mut self,
        gone: &[u64],
        lanes: &mut Lanes<L>,
        deadline: Deadline,
    ) -> Result<(), OverBudget> {
        let words = self.words;
        let rows = Shared::new(&mut self.rows);
        lanes.run(words, deadline, |_, band| {
            for i in band * BLOCK..(band + 1) * BLOCK {
                // SAFETY: each row belongs to one task.
                let row = unsafe { rows.part(i * words, words) };
                match gone[i / 64] >> (i % 64) & 1 {
                    1 => row.fill(0),
                    _ => row.iter_mut().zip(gone).for_each(|(bits, gone)| *bits &= !gone),
                }
            }
        })?;
        self.count_degrees(lanes, deadline)
    }

    fn count_degrees<L: Send>(&mut self, lanes: &mut Lanes<L>, deadline: Deadline) -> Result<(), OverBudget> {
        let (words, rows) = (self.words, &self.rows);
        let degrees = Shared::new(&mut self.degrees);
        lanes.run(words, deadline, |_, band| {
            // SAFETY: each band belongs to one task.
            let degrees = unsafe { degrees.part(band * BLOCK, BLOCK) };
            for (a, degree) in degrees.iter_mut().enumerate() {
                let start = (band * BLOCK + a) * words;
                *degree = count_common(&rows[start..start + words], &rows[start..start + words]);
            }
        })
    }

    /// Sets every row by `fill`, which gets the index of the row and its words, all zero.
    pub fn fill<L: Send>(
        &mut self,
        n: usize,
        lanes: &mut Lanes<L>,
        deadline: Deadline,
        fill: impl Fn(usize, &mut [u64]) + Sync,
    ) -> Result<(), OverBudget> {
        self.reset(n);
        let words = self.words;
        let rows = Shared::new(&mut self.rows);
        lanes.run(words, deadline, |_, band| {
            for i in band * BLOCK..(band + 1) * BLOCK {
                // SAFETY: each row belongs to one task.
                let row = unsafe { rows.part(i * words, words) };
                row.fill(0);
                if i < n {
                    fill(i, row);
                }
            }
        })?;
        self.count_degrees(lanes, deadline)
    }
}

/// Number of bits set in both rows.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512vpopcntdq+popcnt", "x86_64+avx2+popcnt"))]
pub fn count_common(a: &[u64], b: &[u64]) -> u32 {
    // Summed in words as wide as the counts are made, which spares the vector unit a conversion.
    a.iter().zip(b).map(|(a, b)| u64::from((a & b).count_ones())).sum::<u64>() as u32
}

/// Fetches items into the cache while others are worked on.
#[inline]
pub fn prefetch<T>(items: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..std::mem::size_of_val(items)).step_by(8 * LINE) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a hint; it cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().cast::<i8>().wrapping_add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = items;
}

/// Indices of the bits set, ascending.
pub fn bits(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(k, word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                k * 64 + bit
            })
        })
    })
}

/// Words in a cache line.
const LINE: usize = 8;

/// Factors of the condition that is necessary for an edge, see `Rule::may_join`.
#[inline(always)]
pub fn candidate_factors(tau: f32) -> (f32, f32) {
    (2.14 * tau * tau, 1.0 / (1u64 << 38) as f32)
}

#[derive(Clone, Copy)]
struct Rule {
    tau: f32,
    min_length: f32,
}

impl Rule {
    /// Necessary for an edge, without square roots, from the squared lengths `a` and `b`.
    ///
    /// With `S = a + b`, `|sqrt(a) - sqrt(b)| < tau` implies `(a - b)^2 < 2 S tau^2`. The slack
    /// covers the rounding of the exact rule: 7 % on tau^2, and 2^-38 S for lengths so large that
    /// their own rounding is not small beside tau.
    #[inline(always)]
    fn may_join(self, a: f32, b: f32) -> bool {
        let (per_sum, per_square) = candidate_factors(self.tau);
        let (difference, sum) = (a - b, a + b);
        difference * difference < sum * (per_sum + per_square * sum)
    }

    /// The rule of Eqs. 1 and 2 from the squared lengths.
    #[inline(always)]
    fn joins(self, a: f32, b: f32) -> bool {
        let (ls, lt) = (a.sqrt(), b.sqrt());
        (ls - lt).abs() < self.tau && ls + lt > self.min_length
    }
}

/// The edges between 64 rows from `i0` and 64 columns from `j0`.
fn fill_tile(layout: &Layout, rule: Rule, i0: usize, j0: usize, tile: &mut [u64; BLOCK]) {
    let points = [layout.source(), layout.target()];
    let restricted = layout.up.is_some() || !layout.ids[0].is_empty();
    let mut columns: Columns = [[[f32::NAN; BLOCK]; 3]; 2];
    for k in 0..2 {
        for c in 0..3 {
            columns[k][c].copy_from_slice(&points[k][c][j0..j0 + BLOCK]);
        }
    }
    #[cfg(target_arch = "x86_64")]
    let avx2 = std::arch::is_x86_feature_detected!("avx2");
    for (a, word) in tile.iter_mut().enumerate() {
        let i = i0 + a;
        let mut row: Row = [[0.0; 3]; 2];
        for k in 0..2 {
            for c in 0..3 {
                row[k][c] = points[k][c][i];
            }
        }
        #[cfg(target_arch = "x86_64")]
        if avx2 {
            // SAFETY: the processor has AVX2.
            *word = unsafe { avx2::row(rule, &row, &columns) };
        } else {
            *word = row_plain(rule, &row, &columns);
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            *word = row_plain(rule, &row, &columns);
        }
        if restricted && *word != 0 {
            *word &= allowed(layout, rule, i, j0);
        }
    }
    // The rule leaves out the diagonal by itself: 0 + 0 > r is never true for r >= 0.
    debug_assert!(i0 != j0 || tile.iter().enumerate().all(|(a, word)| word >> a & 1 == 0));
}

/// Source and target, each x, y, z.
type Row = [[f32; 3]; 2];
/// 64 of them.
type Columns = [[[f32; BLOCK]; 3]; 2];

/// One row against 64 columns, for any processor.
fn row_plain(rule: Rule, row: &Row, columns: &Columns) -> u64 {
    let mut square = [[0f32; BLOCK]; 2];
    for k in 0..2 {
        for j in 0..BLOCK {
            let (x, y, z) =
                (row[k][0] - columns[k][0][j], row[k][1] - columns[k][1][j], row[k][2] - columns[k][2][j]);
            square[k][j] = (x * x + y * y) + z * z;
        }
    }
    let mut joined = [0u8; BLOCK];
    for j in 0..BLOCK {
        let (a, b) = (square[0][j], square[1][j]);
        joined[j] = u8::from(rule.may_join(a, b) && rule.joins(a, b));
    }
    pack(&joined)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{candidate_factors, Columns, Row, Rule, BLOCK};
    use std::arch::x86_64::*;

    /// As `row_plain`, eight columns at a time, square roots only where an edge is possible.
    /// (No closures within library functions here: those are compiled without AVX2.)
    #[target_feature(enable = "avx2")]
    pub fn row(rule: Rule, row: &Row, columns: &Columns) -> u64 {
        let source = splat(&row[0]);
        let target = splat(&row[1]);
        let (per_sum, per_square) = candidate_factors(rule.tau);
        let (per_sum, per_square) = (_mm256_set1_ps(per_sum), _mm256_set1_ps(per_square));
        let (tau, r) = (_mm256_set1_ps(rule.tau), _mm256_set1_ps(rule.min_length));
        let sign = _mm256_set1_ps(-0.0);
        let mut word = 0u64;
        let mut j = 0;
        while j < BLOCK {
            let a = square(&source, &columns[0], j);
            let b = square(&target, &columns[1], j);
            let (difference, sum) = (_mm256_sub_ps(a, b), _mm256_add_ps(a, b));
            let bound = _mm256_mul_ps(sum, _mm256_add_ps(per_sum, _mm256_mul_ps(per_square, sum)));
            let candidate = _mm256_cmp_ps::<_CMP_LT_OQ>(_mm256_mul_ps(difference, difference), bound);
            if _mm256_movemask_ps(candidate) != 0 {
                let (ls, lt) = (_mm256_sqrt_ps(a), _mm256_sqrt_ps(b));
                let equal = _mm256_cmp_ps::<_CMP_LT_OQ>(_mm256_andnot_ps(sign, _mm256_sub_ps(ls, lt)), tau);
                let long = _mm256_cmp_ps::<_CMP_GT_OQ>(_mm256_add_ps(ls, lt), r);
                let joined = _mm256_and_ps(candidate, _mm256_and_ps(equal, long));
                word |= u64::from(_mm256_movemask_ps(joined) as u32) << j;
            }
            j += 8;
        }
        word
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn splat(p: &[f32; 3]) -> [__m256; 3] {
        [_mm256_set1_ps(p[0]), _mm256_set1_ps(p[1]), _mm256_set1_ps(p[2])]
    }

    /// Squared distances to columns `j..j + 8`.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn square(from: &[__m256; 3], columns: &[[f32; BLOCK]; 3], j: usize) -> __m256 {
        let x = _mm256_sub_ps(from[0], eight(&columns[0], j));
        let y = _mm256_sub_ps(from[1], eight(&columns[1], j));
        let z = _mm256_sub_ps(from[2], eight(&columns[2], j));
        let xy = _mm256_add_ps(_mm256_mul_ps(x, x), _mm256_mul_ps(y, y));
        _mm256_add_ps(xy, _mm256_mul_ps(z, z))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn eight(column: &[f32; BLOCK], j: usize) -> __m256 {
        let part = &column[j..j + 8];
        // SAFETY: eight numbers are there.
        unsafe { _mm256_loadu_ps(part.as_ptr()) }
    }
}

/// What the vertical and the identities allow between row `i` and 64 columns from `j0`.
#[inline(always)]
fn allowed(layout: &Layout, rule: Rule, i: usize, j0: usize) -> u64 {
    let mut joined = [1u8; BLOCK];
    let [hs, ht] = &layout.height;
    if !hs.is_empty() {
        for j in 0..BLOCK {
            let difference = (hs[i] - hs[j0 + j]) - (ht[i] - ht[j0 + j]);
            joined[j] &= u8::from(difference.abs() < rule.tau);
        }
    }
    for ids in layout.ids.iter().filter(|ids| !ids.is_empty()) {
        for j in 0..BLOCK {
            joined[j] &= u8::from(ids[i] != ids[j0 + j]);
        }
    }
    pack(&joined)
}

/// 64 bytes that are 0 or 1 become 64 bits, the first the lowest.
#[inline(always)]
fn pack(bytes: &[u8; BLOCK]) -> u64 {
    let mut word = 0u64;
    for (k, eight) in bytes.chunks_exact(8).enumerate() {
        let mut raw = [0u8; 8];
        raw.copy_from_slice(eight);
        // The product gathers the lowest bit of each byte in the top byte.
        let gathered = u64::from_le_bytes(raw).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word |= gathered << (8 * k);
    }
    word
}

/// Transposes a square of 64 x 64 bits by exchanging ever smaller blocks.
fn transpose(tile: &mut [u64; BLOCK]) {
    let mut size = 32;
    let mut mask = 0x0000_0000_ffff_ffffu64;
    while size > 0 {
        let mut k = 0;
        while k < BLOCK {
            let exchange = (tile[k] >> size ^ tile[k + size]) & mask;
            tile[k] ^= exchange << size;
            tile[k + size] ^= exchange;
            k = (k + size + 1) & !size;
        }
        size >>= 1;
        mask ^= mask << size;
    }
}
