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

/// A set of correspondences to register, column by column: a backend goes through millions of them a
/// second. The buffers are reused from frame to frame.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    /// Source x y z, target x y z, m.
    coordinates: [Vec<f64>; 6],
    weights: Vec<f32>,
    /// Source, target.
    ids: [Vec<Option<u32>>; 2],
    /// Some correspondence has an identity.
    has_ids: bool,
    up: Option<[Vector; 2]>,
    order: Vec<u32>,
}

impl Problem {
    /// Room for `n` correspondences.
    pub fn with_capacity(n: usize) -> Self {
        Self {
            coordinates: std::array::from_fn(|_| Vec::with_capacity(n)),
            weights: Vec::with_capacity(n),
            ids: std::array::from_fn(|_| Vec::with_capacity(n)),
            ..Self::default()
        }
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
        self.has_ids = false;
        self.up = None;
    }

    fn truncate(&mut self, n: usize) {
        self.coordinates.iter_mut().for_each(|column| column.truncate(n));
        self.weights.truncate(n);
        self.ids.iter_mut().for_each(|column| column.truncate(n));
    }

    /// Adds a correspondence. `false`: refused, a coordinate is not finite or the weight is not
    /// above zero.
    pub fn push(&mut self, row: Correspondence) -> bool {
        let usable = row.is_finite() && row.weight.is_finite() && row.weight > 0.0;
        if usable {
            let values = row.source.iter().chain(row.target.iter());
            self.coordinates.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
            self.weights.push(row.weight);
            let ids = [row.source_id, row.target_id];
            self.ids.iter_mut().zip(ids).for_each(|(column, id)| column.push(id));
            self.has_ids |= row.source_id.is_some() || row.target_id.is_some();
        }
        usable
    }

    /// The correspondences in their order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Correspondence> + Clone + '_ {
        let [sx, sy, sz, tx, ty, tz] = &self.coordinates;
        let [source_ids, target_ids] = &self.ids;
        let points = sx.iter().zip(sy).zip(sz).zip(tx).zip(ty).zip(tz);
        points.zip(&self.weights).zip(source_ids).zip(target_ids).map(
            |((((((((sx, sy), sz), tx), ty), tz), weight), source_id), target_id)| Correspondence {
                source: Point::new(*sx, *sy, *sz),
                target: Point::new(*tx, *ty, *tz),
                weight: *weight,
                source_id: *source_id,
                target_id: *target_id,
            },
        )
    }

    /// Source x y z, target x y z, m.
    pub(super) fn coordinates(&self) -> &[Vec<f64>; 6] {
        &self.coordinates
    }

    /// Relative trust of each.
    pub(super) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Identities of the sources and of the targets, if there are any.
    pub(super) fn ids(&self) -> Option<&[Vec<Option<u32>>; 2]> {
        self.has_ids.then_some(&self.ids)
    }

    /// Number of correspondences.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
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
        let n = self.len();
        if n <= max {
            return 0;
        }
        let weights = &self.weights;
        self.order.clear();
        self.order.extend(0..n as u32);
        let heavier = |a: &u32, b: &u32| {
            let weight = |i: &u32| weights.get(*i as usize).copied().unwrap_or_default();
            weight(b).total_cmp(&weight(a)).then(a.cmp(b))
        };
        if max > 0 {
            self.order.select_nth_unstable_by(max - 1, heavier);
        }
        self.order.truncate(max);
        self.order.sort_unstable();
        // The kept indices ascend, so a row only ever moves towards the front.
        for (to, from) in self.order.iter().enumerate() {
            let from = *from as usize;
            self.coordinates.iter_mut().for_each(|column| column.swap(to, from));
            self.weights.swap(to, from);
            self.ids.iter_mut().for_each(|column| column.swap(to, from));
        }
        self.truncate(max);
        n - max
    }
}
