//! Fast point feature histograms (Rusu, Blodow, Beetz: Fast Point Feature Histograms (FPFH) for 3D Registration,
//! ICRA 2009), with two changes that were measured to find more right matches: a value is shared between the two
//! bins next to it, and the neighbours of a point weigh the same, whatever their distance.

use super::neighbours::Grid;
use super::{Descriptor, BINS};
use crate::geometry::Vector;

/// Bins of one of the three histograms: of the angle theta, and of the cosines alpha and phi.
const PER_HISTOGRAM: usize = BINS / 3;

/// The three histograms of a point, one after the other, each of sum 1; zeros where there are no pairs. Beyond
/// [`BINS`] zeros, which let the sums run in whole vectors.
pub(super) type Histogram = [f32; 36];

/// Pairs that a histogram needs at least.
const MIN_PAIRS: usize = 5;

/// The simplified histogram of point `center` of the grid: of the pairs that it makes with its neighbours.
/// `normals`: unit vectors in the order of the grid.
pub(super) fn simplified(grid: &Grid, normals: &[Vector], center: usize) -> Histogram {
    let mut sums = [0.0; 36];
    let mut pairs = 0;
    let Some(normal) = normals.get(center) else { return sums };
    grid.visit(center, |place, offset, squared| {
        let Some(other) = normals.get(place).filter(|_| squared > 0.0) else { return };
        let Some([theta, alpha, phi]) = pair(normal, other, &(offset / squared.sqrt())) else { return };
        pairs += 1;
        for (k, value) in [theta, alpha, phi].into_iter().enumerate() {
            // From the middle of the first bin; theta, the first, runs round.
            let along = value * PER_HISTOGRAM as f64 + 0.5;
            let upper = (along as usize).min(PER_HISTOGRAM);
            let share = (along - upper as f64) as f32;
            let last = PER_HISTOGRAM - 1;
            let (below, above) = match (upper, k) {
                (0, 0) | (PER_HISTOGRAM, 0) => (last, 0),
                (0, _) => (0, 0),
                (PER_HISTOGRAM, _) => (last, last),
                _ => (upper - 1, upper),
            };
            add(&mut sums, k * PER_HISTOGRAM + below, 1.0 - share);
            add(&mut sums, k * PER_HISTOGRAM + above, share);
        }
    });
    let scale = if pairs >= MIN_PAIRS { 1.0 / pairs as f32 } else { 0.0 };
    sums.map(|sum| sum * scale)
}

#[inline]
fn add(sums: &mut Histogram, bin: usize, share: f32) {
    if let Some(sum) = sums.get_mut(bin) {
        *sum += share;
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
    let mut sums = [0.0f32; 36];
    grid.visit(center, |place, _, squared| {
        if let Some(histogram) = simplified.get(place).filter(|_| squared > 0.0) {
            sums.iter_mut().zip(histogram).for_each(|(sum, share)| *sum += share);
        }
    });
    // Of neighbours whose own neighbours are too few, nothing was added.
    let total = weight(&sums);
    let scale = if total > 0.0 { 0.5 / total } else { return None };
    let mut out = [0; 36];
    for ((sum, own), out) in sums.iter().zip(own).zip(&mut out) {
        *out = (255.0 * (sum * scale + 0.5 * own).sqrt() + 0.5) as u8;
    }
    Some(out)
}

/// How much of a descriptor is what a plane has: 0 to 3 * 255^2.
pub(super) fn plainness(descriptor: &Descriptor) -> u32 {
    let middles = descriptor.iter().skip(PER_HISTOGRAM / 2).step_by(PER_HISTOGRAM).take(3);
    middles.map(|&root| u32::from(root) * u32::from(root)).sum()
}

/// The three numbers of two points with normals (`direction` from the first to the second, of length 1), each as a
/// share, 0 to 1, of the range that it can have. They start from the point whose normal makes the smaller angle with
/// the line between the points, so that their order does not matter. None where that normal lies along the line.
#[inline]
fn pair(first: &Vector, second: &Vector, direction: &Vector) -> Option<[f64; 3]> {
    let (along_first, along_second) = (first.dot(direction), second.dot(direction));
    let (u, other, direction, phi) = if along_first.abs() < along_second.abs() {
        (second, first, -direction, -along_second)
    } else {
        (first, second, *direction, along_first)
    };
    let v = direction.cross(u);
    let squared = v.norm_squared();
    if squared.is_nan() || squared <= 1e-12 {
        return None;
    }
    let v = v / squared.sqrt();
    let w = u.cross(&v);
    let share = |cosine: f64| (0.5 * (cosine + 1.0)).clamp(0.0, 1.0);
    Some([turn(w.dot(other), u.dot(other)), share(v.dot(other)), share(phi)])
}

/// (atan2(y, x) + pi) / 2 pi within 1e-6, which is far less than a bin: the polynomial for the arc tangent of
/// Hastings (Approximations for Digital Computers, 1955), faster than an exact one.
#[inline]
fn turn(y: f64, x: f64) -> f64 {
    let (ax, ay) = (x.abs(), y.abs());
    let (less, more) = if ax < ay { (ax, ay) } else { (ay, ax) };
    if more.is_nan() || more <= 0.0 {
        return 0.5;
    }
    let t = less / more;
    let s = t * t;
    let poly = 0.999_977_26
        + s * (-0.332_623_47
            + s * (0.193_543_46 + s * (-0.116_432_87 + s * (0.052_653_32 - s * 0.011_721_2))));
    let eighth = t * poly * std::f64::consts::FRAC_1_PI * 0.5;
    let quarter = if ax < ay { 0.25 - eighth } else { eighth };
    let half = if x < 0.0 { 0.5 - quarter } else { quarter };
    if y < 0.0 {
        0.5 - half
    } else {
        0.5 + half
    }
}
