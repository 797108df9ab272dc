//! Telling roots apart.

use super::graph::{Graph, Id};
use super::system::{distance, orbit, System};
use nalgebra::Complex;

/// Roots closer than this are the same, relative to their coordinates.
pub const SAME: f64 = 1e-6;

/// Roots of which no two are the same or images of each other.
pub struct Distinct {
    graph: Graph,
    symmetries: Vec<Vec<Id>>,
    /// A key of each image and its root, by key.
    keys: std::collections::BTreeMap<(u64, usize), usize>,
    images: Vec<Vec<Complex<f64>>>,
    /// How many roots there are.
    count: usize,
}

impl Distinct {
    /// None yet.
    pub fn new(system: &System) -> Self {
        let (graph, symmetries) = system.part_of_symmetries();
        Self { graph, symmetries, keys: Default::default(), images: Vec::new(), count: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A number that is nearly the same for roots that are, and how much "nearly" is.
    fn key(point: &[Complex<f64>]) -> (f64, f64) {
        let (mut key, mut size, mut weight) = (0.0, 1e-300, 0.618);
        for x in point {
            key += x.re * weight + x.im * (1.1 - weight);
            size += x.re.abs() + x.im.abs();
            weight = (weight + 0.618) % 1.0;
        }
        (key, 2.0 * SAME * (size + 0.01 * size.min(1.0)))
    }

    /// Bits in the order of the numbers.
    fn ordered(key: f64) -> u64 {
        let bits = key.to_bits();
        if bits >> 63 == 1 {
            !bits
        } else {
            bits | 1 << 63
        }
    }

    /// Which root it is, in the order in which they were inserted.
    pub fn find(&self, point: &[Complex<f64>]) -> Option<usize> {
        let (key, width) = Self::key(point);
        let range = (Self::ordered(key - width), 0)..(Self::ordered(key + width), usize::MAX);
        let mut near = self.keys.range(range).filter(|((_, i), _)| distance(&self.images[*i], point) < SAME);
        near.next().map(|(_, root)| *root)
    }

    /// Inserts a root unless it is there; true if it was not.
    pub fn insert(&mut self, point: &[Complex<f64>]) -> bool {
        if self.find(point).is_some() {
            return false;
        }
        for image in orbit(&self.graph, &self.symmetries, point) {
            self.keys.insert((Self::ordered(Self::key(&image).0), self.images.len()), self.count);
            self.images.push(image);
        }
        self.count += 1;
        true
    }
}
