//! Correspondences laid out for the kernels: one array per coordinate, single precision, centred.

use super::fog::prefetch;
use super::hypotheses::Single;
use super::Problem;
use crate::geometry::{Point, Vector, Vertical};

/// Rows are padded to a multiple of this, so that kernels work on whole words of bits.
pub const BLOCK: usize = 64;

/// Rows of which the median is taken as origin.
const ORIGIN_ROWS: usize = 31;
/// Rows of the probe.
const PROBE_ROWS: usize = 32;

/// Some source points, summed up to tell poses apart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Probe {
    /// Their mean, m.
    pub mean: [f32; 3],
    /// Means of the products xx yy zz xy xz yz of their coordinates, m^2.
    pub square: [f32; 6],
}

impl Probe {
    /// Mean squared distance (m^2) by which two poses lay the points apart. Single precision is
    /// enough: what is small is a difference of poses that are alike. The arithmetic is that of
    /// `kernels/choose.cu`.
    pub fn apart2(&self, a: &Single, b: &Single) -> f32 {
        let (m, p) = (&self.mean, &self.square);
        let mut sum = 0.0;
        for (a, b) in a.iter().zip(b) {
            let d: [f32; 4] = std::array::from_fn(|k| a[k] - b[k]);
            let squares = (d[0] * d[0] * p[0] + d[1] * d[1] * p[1]) + d[2] * d[2] * p[2];
            let products = (d[0] * d[1] * p[3] + d[0] * d[2] * p[4]) + d[1] * d[2] * p[5];
            let along = (d[0] * m[0] + d[1] * m[1]) + d[2] * m[2];
            sum += ((squares + 2.0 * products) + (2.0 * d[3]) * along) + d[3] * d[3];
        }
        sum
    }
}

/// Memory of the host for the numbers of a layout; a backend may want memory of its own kind.
pub trait HostMemory: Send + Sync {
    /// All of it.
    fn all(&self) -> &[f32];
    /// All of it.
    fn all_mut(&mut self) -> &mut [f32];
}

impl HostMemory for Vec<f32> {
    fn all(&self) -> &[f32] {
        self
    }

    fn all_mut(&mut self) -> &mut [f32] {
        self
    }
}

/// Arrays of numbers: source x y z, target x y z, weight.
const ARRAYS: usize = 7;
/// Each array is a multiple of this long and defined that far, so that a device can work on it.
const STRIDE: usize = 128;

/// The correspondences of a problem as structure of arrays. Coordinates are centred per frame (so
/// that single precision is not spent on a map's offset) and padded with NaN, which is compatible
/// with nothing.
pub struct Layout {
    n: usize,
    numbers: Box<dyn HostMemory>,
    stride: usize,
    /// Heights along the vertical, source and target; empty if no vertical is known.
    pub height: [Vec<f32>; 2],
    /// Identities, source and target; empty if no correspondence has any. A correspondence
    /// without one has an identity of its own.
    pub ids: [Vec<u64>; 2],
    /// Verticals (unit vectors), source and target.
    pub up: Option<[Vector; 2]>,
    /// The same with a rotation from one to the other.
    pub vertical: Option<Vertical>,
    /// What was subtracted from the source coordinates, m.
    pub source_origin: Vector,
    /// What was subtracted from the target coordinates, m.
    pub target_origin: Vector,
    /// Some of the source points.
    pub probe: Probe,
    weighted: bool,
    scratch: Vec<f64>,
}

impl Layout {
    /// Room for `max` correspondences.
    pub fn with_capacity(max: usize) -> Self {
        Self::within(Box::new(vec![0.0; Self::len(max)]))
    }

    /// Numbers in the arrays for `max` correspondences.
    pub fn len(max: usize) -> usize {
        ARRAYS * max.max(1).next_multiple_of(STRIDE)
    }

    /// In memory of [`Layout::len`] numbers.
    pub fn within(numbers: Box<dyn HostMemory>) -> Self {
        let stride = numbers.all().len() / ARRAYS / STRIDE * STRIDE;
        Self {
            n: 0,
            numbers,
            stride,
            height: Default::default(),
            ids: Default::default(),
            up: None,
            vertical: None,
            source_origin: Vector::zeros(),
            target_origin: Vector::zeros(),
            probe: Probe::default(),
            weighted: false,
            scratch: Vec::with_capacity(ORIGIN_ROWS),
        }
    }

    /// All arrays, [`Layout::stride`] apart, each defined up to the next multiple of 128 rows.
    pub fn numbers(&self) -> &[f32] {
        self.numbers.all()
    }

    /// From the beginning of an array to that of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    #[inline(always)]
    fn array(&self, k: usize) -> &[f32] {
        &self.numbers.all()[k * self.stride..][..self.padded()]
    }

    /// Source coordinates x, y, z relative to `source_origin`, m.
    #[inline(always)]
    pub fn source(&self) -> [&[f32]; 3] {
        [0, 1, 2].map(|k| self.array(k))
    }

    /// Target coordinates x, y, z relative to `target_origin`, m.
    #[inline(always)]
    pub fn target(&self) -> [&[f32]; 3] {
        [3, 4, 5].map(|k| self.array(k))
    }

    /// Weights relative to the heaviest, in (0, 1]; zero in the padding.
    #[inline(always)]
    pub fn weight(&self) -> &[f32] {
        self.array(6)
    }

    /// Number of correspondences, without padding.
    pub fn count(&self) -> usize {
        self.n
    }

    /// Number of rows with padding.
    pub fn padded(&self) -> usize {
        self.n.next_multiple_of(BLOCK)
    }

    /// Source point `i`, centred; the index must be below [`Layout::padded`].
    pub fn source_at(&self, i: usize) -> Vector {
        Vector::from_fn(|k, _| f64::from(self.array(k)[i]))
    }

    /// Target point `i`, centred; the index must be below [`Layout::padded`].
    pub fn target_at(&self, i: usize) -> Vector {
        Vector::from_fn(|k, _| f64::from(self.array(3 + k)[i]))
    }

    /// The weights are not all the same.
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }

    fn probe_now(&self) -> Probe {
        let rows = PROBE_ROWS.min(self.n);
        let mut sums = [0.0; 9];
        for k in 0..rows {
            let p = self.source_at(k * self.n / rows);
            let terms = [p.x, p.y, p.z, p.x * p.x, p.y * p.y, p.z * p.z, p.x * p.y, p.x * p.z, p.y * p.z];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        let [x, y, z, square @ ..] = sums.map(|sum| (sum / rows.max(1) as f64) as f32);
        Probe { mean: [x, y, z], square }
    }

    /// Takes over a problem.
    pub fn load(&mut self, problem: &Problem) {
        let rows = problem.rows();
        self.n = rows.len();
        let (padded, defined) = (self.padded(), self.n.next_multiple_of(STRIDE));
        if defined > self.stride {
            self.numbers = Box::new(vec![0.0; Self::len(self.n)]);
            self.stride = defined;
        }
        self.source_origin = median(&mut self.scratch, rows.len(), |i| &rows[i].source);
        self.target_origin = median(&mut self.scratch, rows.len(), |i| &rows[i].target);
        let mut columns = self.numbers.all_mut().chunks_mut(self.stride).map(|column| &mut column[..defined]);
        let mut columns: [&mut [f32]; ARRAYS] = std::array::from_fn(|_| columns.next().unwrap_or_default());
        let (s, t) = (self.source_origin, self.target_origin);
        let (mut heaviest, mut lightest, mut with_ids) = (0.0f32, f32::INFINITY, false);
        // One pass, the rows are long; by parts of equal length, which need no check of each index.
        let mut parts = columns.each_mut().map(|column| column.chunks_mut(BLOCK));
        let ahead = rows.chunks(BLOCK).skip(1).map(Some).chain([None]);
        for (rows, ahead) in rows.chunks(BLOCK).zip(ahead) {
            prefetch(ahead.unwrap_or_default());
            let [Some(sx), Some(sy), Some(sz), Some(tx), Some(ty), Some(tz), Some(w)] =
                parts.each_mut().map(Iterator::next)
            else {
                break;
            };
            let numbers = sx.iter_mut().zip(sy).zip(sz).zip(tx).zip(ty).zip(tz).zip(w);
            for (row, ((((((sx, sy), sz), tx), ty), tz), w)) in rows.iter().zip(numbers) {
                *sx = (row.source.x - s.x) as f32;
                *sy = (row.source.y - s.y) as f32;
                *sz = (row.source.z - s.z) as f32;
                *tx = (row.target.x - t.x) as f32;
                *ty = (row.target.y - t.y) as f32;
                *tz = (row.target.z - t.z) as f32;
                *w = row.weight;
                heaviest = if row.weight > heaviest { row.weight } else { heaviest };
                lightest = if row.weight < lightest { row.weight } else { lightest };
                with_ids |= row.source_id.is_some() | row.target_id.is_some();
            }
        }
        let n = self.n;
        let [coordinates @ .., weight] = columns;
        for column in coordinates {
            column.iter_mut().skip(n).for_each(|place| *place = f32::NAN);
        }
        if heaviest != 1.0 {
            weight.iter_mut().take(n).for_each(|weight| *weight /= heaviest);
        }
        weight.iter_mut().skip(n).for_each(|weight| *weight = 0.0);
        self.weighted = lightest < heaviest;
        self.probe = self.probe_now();

        self.up = problem.up();
        self.vertical = self.up.and_then(|[source, target]| Vertical::new(&source, &target));
        self.height.iter_mut().for_each(Vec::clear);
        if let Some(up) = self.up {
            let origins = [self.source_origin, self.target_origin];
            for (k, height) in self.height.iter_mut().enumerate() {
                let along = |p: &Point| (p.coords - origins[k]).dot(&up[k]) as f32;
                let values = rows.iter().map(|r| along(if k == 0 { &r.source } else { &r.target }));
                refill(height, padded, f32::NAN, values);
            }
        }

        self.ids.iter_mut().for_each(Vec::clear);
        if with_ids {
            let key = |id: Option<u32>, i: usize| id.map_or(i as u64, |id| 1 << 32 | u64::from(id));
            let values = rows.iter().enumerate();
            refill(&mut self.ids[0], padded, u64::MAX, values.clone().map(|(i, r)| key(r.source_id, i)));
            refill(&mut self.ids[1], padded, u64::MAX, values.map(|(i, r)| key(r.target_id, i)));
        }
    }
}

fn refill<T: Copy>(into: &mut Vec<T>, padded: usize, padding: T, values: impl Iterator<Item = T>) {
    into.clear();
    into.extend(values);
    into.resize(padded, padding);
}

/// Median of each coordinate of some rows: unlike the mean it is not moved by a few absurd rows.
fn median<'a>(scratch: &mut Vec<f64>, n: usize, point: impl Fn(usize) -> &'a Point) -> Vector {
    let rows = ORIGIN_ROWS.min(n);
    Vector::from_fn(|k, _| {
        scratch.clear();
        scratch.extend((0..rows).map(|r| point(r * n / rows)[k]));
        match scratch.is_empty() {
            true => 0.0,
            false => *scratch.select_nth_unstable_by(rows / 2, f64::total_cmp).1,
        }
    })
}
