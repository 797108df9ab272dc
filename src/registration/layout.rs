//! Correspondences laid out for the kernels: one array per coordinate, single precision, centred.

use super::hypotheses::Single;
use super::Problem;
use crate::geometry::{Point, Vector, Vertical};
use multiversion::multiversion;

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

/// Arrays of numbers: source x y z, target x y z, weight.
const ARRAYS: usize = 7;
/// Each array is a multiple of this long, so that rows of bits are aligned to 16 bytes on a device.
pub const STRIDE: usize = 128;

/// The correspondences of a problem as structure of arrays. Coordinates are centred per frame (so
/// that single precision is not spent on a map's offset) and padded with NaN, which is compatible
/// with nothing.
pub struct Layout {
    n: usize,
    /// Arrays one after the other.
    numbers: Vec<f32>,
    /// Heights along the vertical, source and target; empty if no vertical is known. As long as the
    /// arrays of the numbers.
    pub height: [Vec<f32>; 2],
    /// Identities, source and target; empty if no correspondence has any. A correspondence
    /// without one has an identity of its own. As long as the arrays of the numbers.
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
        Self {
            n: 0,
            numbers: Vec::with_capacity(ARRAYS * max.next_multiple_of(STRIDE)),
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

    /// Source x y z, target x y z and weight, [`Layout::stride`] apart.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// Length of an array, with padding.
    pub fn stride(&self) -> usize {
        self.n.next_multiple_of(STRIDE)
    }

    #[inline(always)]
    fn array(&self, k: usize) -> &[f32] {
        &self.numbers[k * self.stride()..][..self.padded()]
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
        let (coordinates, weights) = (problem.coordinates(), problem.weights());
        self.n = weights.len();
        let stride = self.stride();
        let [sx, sy, sz, tx, ty, tz] = coordinates.each_ref().map(|column| median(&mut self.scratch, column));
        (self.source_origin, self.target_origin) = (Vector::new(sx, sy, sz), Vector::new(tx, ty, tz));
        self.numbers.resize(ARRAYS * stride, 0.0);
        let (points, array) = self.numbers.split_at_mut((ARRAYS - 1) * stride);
        let arrays = points.chunks_mut(stride.max(1));
        for ((array, column), origin) in arrays.zip(coordinates).zip([sx, sy, sz, tx, ty, tz]) {
            let (values, padding) = array.split_at_mut(column.len().min(stride));
            centre(values, column, origin);
            padding.fill(f32::NAN);
        }
        let [lightest, heaviest] = extremes(weights);
        let (values, padding) = array.split_at_mut(weights.len().min(stride));
        values.iter_mut().zip(weights).for_each(|(to, weight)| *to = weight / heaviest);
        padding.fill(0.0);
        self.weighted = lightest < heaviest;
        self.probe = self.probe_now();

        self.up = problem.up();
        self.vertical = self.up.and_then(|[source, target]| Vertical::new(&source, &target));
        self.height.iter_mut().for_each(Vec::clear);
        if let Some(up) = self.up {
            let origins = [self.source_origin, self.target_origin];
            for (k, height) in self.height.iter_mut().enumerate() {
                let along = |p: &Point| (p.coords - origins[k]).dot(&up[k]) as f32;
                let values = problem.rows().map(|r| along(if k == 0 { &r.source } else { &r.target }));
                refill(height, stride, f32::NAN, values);
            }
        }

        self.ids.iter_mut().for_each(Vec::clear);
        if let Some(ids) = problem.ids() {
            let key = |(i, id): (usize, &Option<u32>)| id.map_or(i as u64, |id| 1 << 32 | u64::from(id));
            for (keys, ids) in self.ids.iter_mut().zip(ids) {
                refill(keys, stride, u64::MAX, ids.iter().enumerate().map(key));
            }
        }
    }
}

/// Values relative to an origin, in single precision.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
fn centre(into: &mut [f32], values: &[f64], origin: f64) {
    into.iter_mut().zip(values).for_each(|(to, value)| *to = (value - origin) as f32);
}

/// Least and greatest of positive values.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
fn extremes(values: &[f32]) -> [f32; 2] {
    // Side by side: one after another would each wait for the one before.
    const ABREAST: usize = 64;
    let (mut least, mut greatest) = ([f32::INFINITY; ABREAST], [0.0f32; ABREAST]);
    for chunk in values.chunks(ABREAST) {
        for ((least, greatest), value) in least.iter_mut().zip(&mut greatest).zip(chunk) {
            *least = if *value < *least { *value } else { *least };
            *greatest = if *value > *greatest { *value } else { *greatest };
        }
    }
    [least.into_iter().fold(f32::INFINITY, f32::min), greatest.into_iter().fold(0.0, f32::max)]
}

fn refill<T: Copy>(into: &mut Vec<T>, len: usize, padding: T, values: impl Iterator<Item = T>) {
    into.clear();
    into.extend(values);
    into.resize(len, padding);
}

/// Median of some of the values: unlike the mean it is not moved by a few absurd ones.
fn median(scratch: &mut Vec<f64>, values: &[f64]) -> f64 {
    let (n, some) = (values.len(), ORIGIN_ROWS.min(values.len()));
    scratch.clear();
    scratch.extend((0..some).map(|k| values[k * n / some]));
    match scratch.is_empty() {
        true => 0.0,
        false => *scratch.select_nth_unstable_by(some / 2, f64::total_cmp).1,
    }
}
