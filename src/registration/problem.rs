//! The input of a registration.

use crate::geometry::{Point, Vector};

/// One correspondence: the same feature seen in two frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correspondence {
    /// Position in the source frame (sensor), metres.
    pub source: Point,
    /// Position in the target frame (map), metres.
    pub target: Point,
    /// Relative trust, above zero and finite.
    pub weight: f32,
    /// Identity of the source feature: correspondences that share it exclude each other.
    pub source_id: Option<u32>,
    /// Identity of the target feature: correspondences that share it exclude each other.
    pub target_id: Option<u32>,
}

impl Correspondence {
    /// A correspondence of weight 1 without identities.
    pub fn new(source: Point, target: Point) -> Self {
        Self { source, target, weight: 1.0, source_id: None, target_id: None }
    }

    /// Every number is finite.
    pub fn is_finite(&self) -> bool {
        self.source.iter().chain(self.target.iter()).all(|v| v.is_finite())
    }
}

/// A set of correspondences to register. The buffers are reused from frame to frame.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    rows: Vec<Correspondence>,
    up: Option<[Vector; 2]>,
    order: Vec<u32>,
}

impl Problem {
    /// Room for `n` correspondences.
    pub fn with_capacity(n: usize) -> Self {
        Self { rows: Vec::with_capacity(n), up: None, order: Vec::new() }
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.up = None;
    }

    /// Adds a correspondence. `false`: refused, a coordinate is not finite or the weight is not
    /// above zero.
    pub fn push(&mut self, row: Correspondence) -> bool {
        let usable = row.is_finite() && row.weight.is_finite() && row.weight > 0.0;
        if usable {
            self.rows.push(row);
        }
        usable
    }

    /// The correspondences in their order.
    pub fn rows(&self) -> &[Correspondence] {
        &self.rows
    }

    /// Number of correspondences.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The verticals in the source and the target frame, if known (unit vectors).
    pub fn up(&self) -> Option<[Vector; 2]> {
        self.up
    }

    /// Says which way is up in both frames: only the rotation about it (yaw) and the translation
    /// are unknown then. `false`: refused, a vector is not finite or of no length.
    pub fn set_up(&mut self, source_up: Vector, target_up: Vector) -> bool {
        let (s, t) = (source_up.try_normalize(1e-9), target_up.try_normalize(1e-9));
        match (s, t) {
            (Some(s), Some(t)) if s.iter().chain(t.iter()).all(|v| v.is_finite()) => {
                self.up = Some([s, t]);
                true
            }
            _ => false,
        }
    }

    /// Keeps the `max` heaviest correspondences, ties by index, in their order. Returns how many
    /// were cut.
    pub fn keep_heaviest(&mut self, max: usize) -> usize {
        let n = self.rows.len();
        if n <= max {
            return 0;
        }
        let rows = &self.rows;
        self.order.clear();
        self.order.extend(0..n as u32);
        let heavier = |a: &u32, b: &u32| {
            let weight = |i: &u32| rows.get(*i as usize).map_or(0.0, |r| r.weight);
            weight(b).total_cmp(&weight(a)).then(a.cmp(b))
        };
        if max > 0 {
            self.order.select_nth_unstable_by(max - 1, heavier);
        }
        self.order.truncate(max);
        self.order.sort_unstable();
        // The kept indices ascend, so a row only ever moves towards the front.
        for (to, from) in self.order.iter().enumerate() {
            self.rows.swap(to, *from as usize);
        }
        self.rows.truncate(max);
        n - max
    }
}
