//! The input of an estimation.

use crate::geometry::{Camera, Point, Vector};
use nalgebra::Matrix2x3;

/// A feature as a camera saw it.
///
/// A point `X` of the optical frame has the residual `metric * X / (bearing . X)`, two numbers in units of the
/// inlier threshold, and lies in front if `bearing . X > 0`. To first order in the residual this is the
/// reprojection error in the raw image over the threshold in pixels, whatever the model of the camera: `metric`
/// is the derivative of the pixel by the direction, at the bearing, over the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sight {
    /// Unit vector from the centre of the camera to the feature, in the optical frame.
    pub bearing: Vector,
    /// See above; `metric * bearing` is zero.
    pub metric: Matrix2x3<f64>,
    /// Pixel in the raw image, where there is one: column, row. Problems whose camera is not wholly known
    /// (focal length, rolling shutter) need it.
    pub pixel: Option<[f64; 2]>,
}

impl Sight {
    /// Of a pixel of the raw image; the threshold is in pixels. `None`: no ray of the camera has it.
    pub fn of_pixel(pixel: [f64; 2], camera: &Camera, threshold: f64) -> Option<Self> {
        let bearing = camera.bearing(pixel)?;
        let metric = camera.derivative(&bearing)? / threshold;
        Some(Self { bearing, metric, pixel: Some(pixel) })
    }

    /// Of a bearing (any length above zero) whose threshold is an angle, rad. `None`: not finite, or zero.
    pub fn of_bearing(bearing: &Vector, threshold: f64) -> Option<Self> {
        // First to a size whose square is a number.
        let bearing = (bearing / bearing.amax()).normalize();
        if !bearing.iter().all(|v| v.is_finite()) {
            return None;
        }
        // Two directions at right angles to it: from the axis that is farthest from it.
        let axis = Vector::ith(bearing.iamin(), 1.0);
        let right = axis.cross(&bearing).try_normalize(1e-12)?;
        let down = bearing.cross(&right);
        let metric = Matrix2x3::from_rows(&[right.transpose(), down.transpose()]) / threshold;
        Some(Self { bearing, metric, pixel: None })
    }
}

/// A feature matched with a known point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AbsoluteRow {
    /// The feature.
    pub sight: Sight,
    /// The point in the target frame (map), m.
    pub point: Point,
    /// Relative trust, above zero and finite.
    pub weight: f32,
    /// Identity of the point: rows that share it exclude each other.
    pub id: Option<u32>,
}

/// A feature matched with one of another view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelativeRow {
    /// In the current view (source).
    pub sight: Sight,
    /// In the reference view (target).
    pub reference: Sight,
    /// Relative trust, above zero and finite.
    pub weight: f32,
    /// Identity of the feature of the reference view: rows that share it exclude each other.
    pub id: Option<u32>,
}

/// What is known of a camera for problems that seek the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intrinsics {
    /// Focal length along columns and rows, px; where it is sought only their ratio counts.
    pub focal: [f64; 2],
    /// Principal point, px: column, row.
    pub centre: [f64; 2],
}

impl From<&Camera> for Intrinsics {
    fn from(camera: &Camera) -> Self {
        Self { focal: camera.focal(), centre: camera.center() }
    }
}

/// Features of one view matched with known points. The buffer is reused from frame to frame.
#[derive(Debug, Clone, Default)]
pub struct AbsoluteProblem {
    rows: Vec<AbsoluteRow>,
    up: Option<[Vector; 2]>,
    intrinsics: Option<Intrinsics>,
}

/// Features of one view matched with those of another. The buffer is reused from frame to frame.
#[derive(Debug, Clone, Default)]
pub struct RelativeProblem {
    rows: Vec<RelativeRow>,
    intrinsics: Option<Intrinsics>,
}

/// The heaviest `max` of some rows, ties by their order, in their order; how many were dropped.
fn keep_heaviest<T>(rows: &mut Vec<T>, max: usize, weight: impl Fn(&T) -> f32) -> usize {
    let superfluous = rows.len().saturating_sub(max);
    if superfluous > 0 {
        let mut order: Vec<(f32, usize)> = rows.iter().map(&weight).zip(0..).collect();
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut keep = vec![false; rows.len()];
        order.iter().take(max).for_each(|(_, i)| keep[*i] = true);
        let mut keep = keep.into_iter();
        rows.retain(|_| keep.next().unwrap_or(false));
    }
    superfluous
}

impl AbsoluteProblem {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self { rows: Vec::with_capacity(n), ..Self::default() }
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.up = None;
        self.intrinsics = None;
    }

    /// Adds a row. `false`: refused, a coordinate of the point is not finite or the weight is not above zero.
    pub fn push(&mut self, row: AbsoluteRow) -> bool {
        let usable = row.point.iter().all(|v| v.is_finite()) && row.weight.is_finite() && row.weight > 0.0;
        if usable {
            self.rows.push(row);
        }
        usable
    }

    /// Keeps the heaviest `max`, ties by their order; returns how many were dropped.
    pub fn keep_heaviest(&mut self, max: usize) -> usize {
        keep_heaviest(&mut self.rows, max, |row| row.weight)
    }

    /// The direction of up in the optical frame and in the target frame, both known.
    pub fn set_up(&mut self, camera: Vector, target: Vector) {
        self.up = Some([camera, target]);
    }

    /// See [`AbsoluteProblem::set_up`].
    pub fn up(&self) -> Option<[Vector; 2]> {
        self.up
    }

    /// What is known of the camera: problems that do not know all of it need it beside the pixels.
    pub fn set_intrinsics(&mut self, intrinsics: Intrinsics) {
        self.intrinsics = Some(intrinsics);
    }

    /// See [`AbsoluteProblem::set_intrinsics`].
    pub fn intrinsics(&self) -> Option<Intrinsics> {
        self.intrinsics
    }

    /// The rows in their order.
    pub fn rows(&self) -> &[AbsoluteRow] {
        &self.rows
    }
}

impl RelativeProblem {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self { rows: Vec::with_capacity(n), ..Self::default() }
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.intrinsics = None;
    }

    /// Adds a row. `false`: refused, the weight is not above zero.
    pub fn push(&mut self, row: RelativeRow) -> bool {
        let usable = row.weight.is_finite() && row.weight > 0.0;
        if usable {
            self.rows.push(row);
        }
        usable
    }

    /// Keeps the heaviest `max`, ties by their order; returns how many were dropped.
    pub fn keep_heaviest(&mut self, max: usize) -> usize {
        keep_heaviest(&mut self.rows, max, |row| row.weight)
    }

    /// What is known of the camera of both views: problems that do not know all of it need it beside the pixels.
    pub fn set_intrinsics(&mut self, intrinsics: Intrinsics) {
        self.intrinsics = Some(intrinsics);
    }

    /// See [`RelativeProblem::set_intrinsics`].
    pub fn intrinsics(&self) -> Option<Intrinsics> {
        self.intrinsics
    }

    /// The rows in their order.
    pub fn rows(&self) -> &[RelativeRow] {
        &self.rows
    }
}
