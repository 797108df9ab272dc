//! Minimal samples, drawn from a hash of (seed, number of the sample, draw): the same on every machine and for
//! every backend.
//!
//! PROSAC: Chum, Matas, "Matching with PROSAC - Progressive Sample Consensus", CVPR 2005: samples are drawn from
//! a prefix of the rows in the order of their weights that grows to all of them.

use super::model::Model;

/// Draws for one sample before it is given up.
const DRAWS: u64 = 64;
/// Samples after which PROSAC draws from all rows, at most.
const GROWTH: f64 = 20_000.0;

/// Draws samples.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    seed: u64,
    /// Rows that are drawn from, heaviest first with PROSAC.
    order: Vec<u32>,
    /// With PROSAC: the number of samples after which the prefix of `SAMPLE + i` rows has been drawn from.
    growth: Vec<u64>,
    /// Samples drawn.
    drawn: u64,
}

/// Sebastiano Vigna's splitmix64, its output function.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Sampler {
    /// Draws from these rows from now on; `weight` orders them for PROSAC.
    pub fn load<M: Model>(
        &mut self,
        model: &M,
        seed: u64,
        rows: impl Iterator<Item = u32>,
        prosac: bool,
        max_samples: u64,
    ) {
        (self.seed, self.drawn) = (seed, 0);
        self.order.clear();
        self.order.extend(rows);
        self.growth.clear();
        let n = self.order.len();
        if !prosac || n < M::SAMPLE {
            return;
        }
        self.order.sort_unstable_by(|a, b| {
            model.weight(*b as usize).total_cmp(&model.weight(*a as usize)).then(a.cmp(b))
        });
        // Samples among the first `k` of n rows, if GROWTH were drawn from all.
        let all = GROWTH.min(max_samples as f64);
        let within = |k: usize| {
            (0..M::SAMPLE).fold(all, |share, i| share * (k.saturating_sub(i) as f64 / (n - i) as f64))
        };
        let mut until = 1;
        self.growth.push(until);
        for k in M::SAMPLE + 1..=n {
            until += (within(k) - within(k - 1)).ceil().max(0.0) as u64;
            self.growth.push(until);
        }
    }

    /// Samples drawn so far.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// The rows in the order of drawing, and for a prefix of `n` of them the number of the first samples that
    /// were drawn within it.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// How many of the first samples were drawn within the first `n` rows of the order.
    pub fn within<M: Model>(&self, n: usize) -> u64 {
        if n >= self.order.len() {
            return self.drawn;
        }
        n.checked_sub(M::SAMPLE).and_then(|i| self.growth.get(i)).map_or(0, |until| self.drawn.min(*until))
    }

    /// Draws the next sample and appends it; `false`: no such rows were found.
    pub fn draw<M: Model>(&mut self, model: &M, out: &mut Vec<u32>) -> bool {
        let index = self.drawn;
        self.drawn += 1;
        let start = out.len();
        // With PROSAC the last row of the prefix is taken for certain, until the prefix is all rows.
        let prefix = self.growth.partition_point(|until| *until <= index) + M::SAMPLE;
        let grows = !self.growth.is_empty() && prefix < self.order.len();
        let rows = if grows { prefix - 1 } else { self.order.len() };
        if grows {
            out.extend(self.order.get(rows));
        }
        let key = mix(mix(self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ index);
        for draw in 0..DRAWS {
            if out.len() - start == M::SAMPLE {
                return true;
            }
            let random = mix(key.wrapping_add((draw + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 32;
            let Some(row) = self.order.get(((random * rows as u64) >> 32) as usize) else {
                break;
            };
            let group = model.group(*row as usize);
            if out[start..].iter().all(|other| other != row && model.group(*other as usize) != group) {
                out.push(*row);
            }
        }
        let complete = out.len() - start == M::SAMPLE;
        if !complete {
            out.truncate(start);
        }
        complete
    }
}
