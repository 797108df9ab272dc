//! Fast point feature histograms (Rusu, Blodow, Beetz: Fast Point Feature Histograms (FPFH) for 3D Registration,
//! ICRA 2009), with two changes that were measured to find more right matches: a value is shared between the two
//! bins next to it, and the neighbours of a point weigh the same, whatever their distance.

use super::neighbours::Grid;
use super::{Descriptor, BINS};
use crate::geometry::Vector;
use multiversion::multiversion;

/// Bins of one of the three histograms: of the angle theta, and of the cosines alpha and phi.
const PER_HISTOGRAM: usize = BINS / 3;

/// The three histograms of a point, one after the other, each of sum 1; zeros where there are no pairs. Beyond
/// [`BINS`] zeros, which let the sums run in whole vectors.
pub(super) type Histogram = [f32; 36];

/// Pairs that a histogram needs at least.
const MIN_PAIRS: f32 = 5.0;

/// Pairs that are computed together, in whole vectors.
const TOGETHER: usize = 64;

/// Bins of a histogram and one more on either side, for what is shared with a bin beyond its ends.
const WIDE: usize = PER_HISTOGRAM + 2;

/// Neighbours of a point: directions to them and their normals.
#[derive(Clone, Copy)]
struct Neighbours {
    offset: [[f32; TOGETHER]; 3],
    normal: [[f32; TOGETHER]; 3],
}

/// The numbers of pairs, theta, alpha and phi: the lower of the two bins of each, and the share of the upper.
struct Numbers {
    bins: [[u32; TOGETHER]; 3],
    shares: [[f32; TOGETHER]; 3],
    /// 0 where the normal lies along the line between the points.
    weights: [f32; TOGETHER],
}

/// The simplified histogram of point `center` of the grid: of the pairs that it makes with its neighbours.
/// `normals`: unit vectors in the order of the grid.
pub(super) fn simplified(grid: &Grid, normals: &[Vector], center: usize) -> Histogram {
    let Some(normal) = normals.get(center) else { return [0.0; 36] };
    let mut neighbours = Neighbours { offset: [[1.0; TOGETHER]; 3], normal: [[1.0; TOGETHER]; 3] };
    let mut wide = [[0.0f32; WIDE]; 3];
    let (mut count, mut pairs) = (0, 0.0);
    grid.visit(center, |place, offset, squared| {
        let Some(other) = normals.get(place).filter(|_| squared > 0.0) else { return };
        for axis in 0..3 {
            neighbours.offset[axis][count] = offset[axis] as f32;
            neighbours.normal[axis][count] = other[axis] as f32;
        }
        count += 1;
        if count == TOGETHER {
            pairs += add(&mut wide, normal, &neighbours, count);
            count = 0;
        }
    });
    pairs += add(&mut wide, normal, &neighbours, count);
    let scale = if pairs >= MIN_PAIRS { 1.0 / pairs } else { 0.0 };
    let mut out = [0.0; 36];
    for (k, (out, wide)) in out.chunks_exact_mut(PER_HISTOGRAM).zip(&wide).enumerate() {
        let [below, middle @ .., above] = wide;
        out.copy_from_slice(middle);
        // The first, theta, runs round; the others end.
        let [first, .., last] = out else { continue };
        let [to_first, to_last] = if k == 0 { [above, below] } else { [below, above] };
        *first += to_first;
        *last += to_last;
        out.iter_mut().for_each(|sum| *sum *= scale);
    }
    out
}

/// Adds the first `count` pairs to the histograms; how many of them had numbers.
fn add(wide: &mut [[f32; WIDE]; 3], normal: &Vector, neighbours: &Neighbours, count: usize) -> f32 {
    let numbers = numbers(normal.map(|v| v as f32).into(), neighbours);
    for (wide, (bins, shares)) in wide.iter_mut().zip(numbers.bins.iter().zip(&numbers.shares)) {
        for ((bin, share), weight) in bins.iter().zip(shares).zip(&numbers.weights).take(count) {
            let at = (*bin as usize).min(WIDE - 2);
            wide[at] += weight - share;
            wide[at + 1] += share;
        }
    }
    numbers.weights.iter().take(count).sum()
}

/// The three numbers of two points with normals each as a share, 0 to 1, of the range that it can have. They start
/// from the point whose normal `u` makes the smaller angle with the direction `d` from it to the other, whose normal
/// is `n`, so that the order of the points does not matter: with `v = d x u`, `w = u x v` of length one, they are the
/// angle of `n` in the plane of `w` and `u`, and the cosines `v.n` and `u.d`.
#[multiversion(targets("x86_64+avx2"))]
fn numbers(normal: [f32; 3], neighbours: &Neighbours) -> Numbers {
    let [ax, ay, az] = normal;
    let mut out =
        Numbers { bins: [[0; TOGETHER]; 3], shares: [[0.0; TOGETHER]; 3], weights: [0.0; TOGETHER] };
    for i in 0..TOGETHER {
        let [x, y, z] = [neighbours.offset[0][i], neighbours.offset[1][i], neighbours.offset[2][i]];
        let [bx, by, bz] = [neighbours.normal[0][i], neighbours.normal[1][i], neighbours.normal[2][i]];
        let scale = 1.0 / (x * x + y * y + z * z).sqrt();
        let (x, y, z) = (x * scale, y * scale, z * scale);
        let (along_a, along_b) = (ax * x + ay * y + az * z, bx * x + by * y + bz * z);
        let is_second = along_a.abs() < along_b.abs();
        let (phi, across) = if is_second { (-along_b, -along_a) } else { (along_a, along_b) };
        let alike = ax * bx + ay * by + az * bz;
        // Both numbers below hold whichever point comes first.
        let triple = x * (ay * bz - az * by) + y * (az * bx - ax * bz) + z * (ax * by - ay * bx);
        let squared = 1.0 - phi * phi;
        let weight = if squared > 1e-5 { 1.0 } else { 0.0 };
        let shorter = 1.0 / squared.max(1e-5).sqrt();
        let theta = turn((across - phi * alike) * shorter, alike);
        let share = |cosine: f32| (0.5 * (cosine + 1.0)).clamp(0.0, 1.0);
        let values = [theta, share(triple * shorter), share(phi)];
        for (k, value) in values.into_iter().enumerate() {
            // From the middle of the bin before the first.
            let along = value * PER_HISTOGRAM as f32 + 0.5;
            let bin = along.floor();
            out.bins[k][i] = bin as u32;
            out.shares[k][i] = (along - bin) * weight;
        }
        out.weights[i] = weight;
    }
    out
}

/// (atan2(y, x) + pi) / 2 pi within 1e-6, which is far less than a bin: the polynomial for the arc tangent of
/// Hastings (Approximations for Digital Computers, 1955), without branches.
#[inline(always)]
fn turn(y: f32, x: f32) -> f32 {
    let (ax, ay) = (x.abs(), y.abs());
    let (less, more) = if ax < ay { (ax, ay) } else { (ay, ax) };
    let t = less / more.max(1e-30);
    let s = t * t;
    let poly = 0.999_977_26
        + s * (-0.332_623_47
            + s * (0.193_543_46 + s * (-0.116_432_87 + s * (0.052_653_32 - s * 0.011_721_2))));
    let eighth = t * poly * (0.5 * std::f32::consts::FRAC_1_PI);
    let quarter = if ax < ay { 0.25 - eighth } else { eighth };
    let half = if x < 0.0 { 0.5 - quarter } else { quarter };
    if y < 0.0 {
        0.5 - half
    } else {
        0.5 + half
    }
}

/// The descriptor of point `center`: half its own histogram, half the mean of those of its neighbours. None where
/// there are none.
pub(super) fn descriptor(grid: &Grid, simplified: &[Histogram], center: usize) -> Option<Descriptor> {
    let own = simplified.get(center)?;
    let weight = |histogram: &Histogram| histogram.iter().take(PER_HISTOGRAM).sum::<f32>();
    if weight(own) <= 0.0 {
        return None;
    }
    let mut sums = sum_around(grid, simplified, center);
    // Itself is no neighbour.
    sums.iter_mut().zip(own).for_each(|(sum, own)| *sum -= own);
    // Of neighbours whose own neighbours are too few, nothing was added.
    let total = weight(&sums);
    let scale = if total > 0.0 { 0.5 / total } else { return None };
    let mut out = [0; 36];
    for ((sum, own), out) in sums.iter().zip(own).zip(&mut out) {
        *out = (255.0 * (sum * scale + 0.5 * own).sqrt() + 0.5) as u8;
    }
    Some(out)
}

/// The histograms of the points around, itself among them.
#[multiversion(targets("x86_64+avx2"))]
fn sum_around(grid: &Grid, simplified: &[Histogram], center: usize) -> Histogram {
    let mut sums = [0.0f32; 36];
    grid.visit(center, |place, _, _| {
        if let Some(histogram) = simplified.get(place) {
            sums.iter_mut().zip(histogram).for_each(|(sum, share)| *sum += share);
        }
    });
    sums
}

/// How much of a descriptor is what a plane has: 0 to 3 * 255^2.
pub(super) fn plainness(descriptor: &Descriptor) -> u32 {
    let middles = descriptor.iter().skip(PER_HISTOGRAM / 2).step_by(PER_HISTOGRAM).take(3);
    middles.map(|&root| u32::from(root) * u32::from(root)).sum()
}
