//! Random numbers that are the same on every machine: PCG and the functions of `libm`, never the
//! platform's.

use rand::{Rng as _, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What a stream of random numbers is for. Each purpose has its own, so that more people or more
/// noise leave the place as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Scene = 1,
    People = 2,
    Sights = 100,
    Mapping = 3,
    Beams = 4,
    Sweep = 5,
    Matching = 6,
    Odometry = 7,
    Route = 8,
    Change = 9,
    Imu = 10,
    Camera = 11,
    Cloud = 12,
    Fault = 13,
    Weights = 14,
}

/// A stream of random numbers.
pub(super) struct Random(Pcg64Mcg);

impl Random {
    /// The stream of a seed, a purpose and an index (a frame, say).
    pub fn new(seed: u64, purpose: Purpose, index: u64) -> Self {
        let mut bytes = [0u8; 16];
        let mixed = splitmix(splitmix(splitmix(seed) ^ purpose as u64) ^ index);
        bytes[..8].copy_from_slice(&mixed.to_le_bytes());
        bytes[8..].copy_from_slice(&splitmix(mixed).to_le_bytes());
        Self(Pcg64Mcg::from_seed(bytes))
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// Uniform between two bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A whole number below `n`; 0 for `n` = 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f64) as usize).min(n.saturating_sub(1))
    }

    /// Normal with mean 0 (Box and Muller).
    pub fn normal(&mut self, sigma: f64) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        sigma * radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// A direction in space, all equally likely.
    pub fn direction(&mut self) -> crate::geometry::Vector {
        let z = self.between(-1.0, 1.0);
        let (sin, cos) = libm::sincos(self.between(0.0, std::f64::consts::TAU));
        let r = (1.0 - z * z).max(0.0).sqrt();
        crate::geometry::Vector::new(r * cos, r * sin, z)
    }

    /// Moves `k` elements chosen at random to the front, in random order.
    pub fn shuffle_front<T>(&mut self, items: &mut [T], k: usize) {
        for i in 0..k.min(items.len()) {
            items.swap(i, i + self.below(items.len() - i));
        }
    }
}

/// Mixes the bits of a number (Steele, Lea and Flood 2014).
pub(super) fn splitmix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
