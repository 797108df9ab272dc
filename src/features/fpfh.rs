//! Fast point feature histograms (Rusu, Blodow, Beetz: Fast Point Feature Histograms (FPFH) for 3D Registration,
//! ICRA 2009).

use super::neighbours::Grid;
use super::{Descriptor, BINS};
use crate::geometry::Vector;

/// Bins of one of the three histograms.
const PER_HISTOGRAM: usize = BINS / 3;

/// The three histograms of a point, one after the other, each of sum 1 or 0.
pub(super) type Histogram = [f32; BINS];

/// The simplified histogram of point `center` of the grid: of the pairs that it makes with its neighbours.
/// `normals` in the order of the grid; a point without one makes no pair.
pub(super) fn simplified(grid: &Grid, normals: &[Vector], center: usize) -> Histogram {
    let mut counts = [0u32; BINS];
    let mut pairs = 0;
    let Some(normal) = normals.get(center).filter(|normal| has_direction(normal)) else { return [0.0; BINS] };
    grid.visit(center, |place, offset, squared| {
        let Some(other) = normals.get(place).filter(|normal| has_direction(normal)) else { return };
        if squared > 0.0 {
            if let Some(bins) = pair(normal, other, &(offset / squared.sqrt())) {
                pairs += 1;
                for (bin, first) in bins.into_iter().zip([0, PER_HISTOGRAM, 2 * PER_HISTOGRAM]) {
                    if let Some(count) = counts.get_mut(first + bin) {
                        *count += 1;
                    }
                }
            }
        }
    });
    let scale = if pairs > 0 { 1.0 / pairs as f32 } else { 0.0 };
    counts.map(|count| count as f32 * scale)
}

/// The descriptor of point `center`: its histogram and those of its neighbours, the nearer the heavier. None where
/// no pairs are.
pub(super) fn descriptor(grid: &Grid, simplified: &[Histogram], center: usize) -> Option<Descriptor> {
    let mut sum = [0.0f32; BINS];
    grid.visit(center, |place, _, squared| {
        if squared > 0.0 {
            if let Some(histogram) = simplified.get(place) {
                let weight = (1.0 / squared) as f32;
                sum.iter_mut().zip(histogram).for_each(|(sum, share)| *sum += weight * share);
            }
        }
    });
    let mut out = [0; 36];
    for ((sum, own), out) in sum
        .chunks_exact(PER_HISTOGRAM)
        .zip(simplified.get(center)?.chunks_exact(PER_HISTOGRAM))
        .zip(out.chunks_exact_mut(PER_HISTOGRAM))
    {
        let total = sum.iter().sum::<f32>();
        if !(total > 0.0 && own.iter().sum::<f32>() > 0.0) {
            return None;
        }
        for ((sum, own), out) in sum.iter().zip(own).zip(out) {
            *out = (255.0 * (0.5 * (sum / total + own)).sqrt() + 0.5) as u8;
        }
    }
    Some(out)
}

fn has_direction(normal: &Vector) -> bool {
    normal.norm_squared() > 0.5
}

/// The bins of the three angles between two points with normals (`direction` from the first to the second, of
/// length 1). They start from the point whose normal makes the smaller angle with the line between them, so that
/// the order of the two does not matter. None where that normal lies along the line.
fn pair(first: &Vector, second: &Vector, direction: &Vector) -> Option<[usize; 3]> {
    let (along_first, along_second) = (first.dot(direction), second.dot(direction));
    let (u, other, direction, phi) = if along_first.abs() < along_second.abs() {
        (second, first, -direction, -along_second)
    } else {
        (first, second, *direction, along_first)
    };
    let v = direction.cross(u);
    let length = v.norm();
    if !(length > 1e-9) {
        return None;
    }
    let v = v / length;
    let w = u.cross(&v);
    Some([turn_bin(w.dot(other), u.dot(other)), cosine_bin(v.dot(other)), cosine_bin(phi)])
}

/// The bin of a cosine.
fn cosine_bin(cosine: f64) -> usize {
    ((0.5 * (cosine + 1.0) * PER_HISTOGRAM as f64) as usize).min(PER_HISTOGRAM - 1)
}

/// The bin of atan2(y, x) in a full turn from -pi: the limits, at odd multiples of pi / 11 on either side of the x
/// axis, that the direction lies beyond.
fn turn_bin(y: f64, x: f64) -> usize {
    let beyond = LIMITS.iter().filter(|(sin, cos)| cos * y.abs() >= sin * x).count();
    if y < 0.0 {
        PER_HISTOGRAM / 2 - beyond
    } else {
        PER_HISTOGRAM / 2 + beyond
    }
}

/// Sine and cosine of 1, 3, 5, 7 and 9 times pi / 11.
const LIMITS: [(f64, f64); 5] = [
    (0.281_732_556_841_429_67, 0.959_492_973_614_497_4),
    (0.755_749_574_354_258_3, 0.654_860_733_945_285_1),
    (0.989_821_441_880_932_7, 0.142_314_838_273_285_14),
    (0.909_631_995_354_518_4, -0.415_415_013_001_886_44),
    (0.540_640_817_455_597_6, -0.841_253_532_831_181_2),
];
