//! What the roots of a problem say about the scene, and how it is computed.

use super::instance::rotation;
use crate::geometry::{pose_error, Moments, Pose, Vector};
use nalgebra::{DMatrix, DVector, Matrix3, Vector2, Vector3};

/// What a root says about the scene; what a problem does not tell is empty.
///
/// A camera looks along its z axis, x to the right and y down in the image; image points are `x/z` and `y/z`
/// times the focal length. Lengths have the unit of the points that were given; where nothing gives
/// one, the problem says what is one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Geometry {
    /// Poses. Of a problem with known points one, which carries the frame of the points to that of
    /// the camera; of several views those of view 2 and on, each of which carries the frame of the
    /// first view to that of its own.
    pub poses: Vec<Pose>,
    /// Focal length, in the unit of the image points, above zero.
    pub focal: Option<f64>,
    /// Principal points that are not known, of each camera, in the unit of the image points.
    pub principal: Vec<Vector2<f64>>,
    /// Distortion k of the division model: the image point d was at d / (1 + k |d|^2).
    pub distortion: Option<f64>,
    /// Motion of a camera with rolling shutter, per unit of the row in the image: angular rate (rad)
    /// and velocity, both in the frame of the camera.
    pub motion: Option<[Vector; 2]>,
    /// Points in the frame of the problem, of several views in that of the first; where nothing ties the
    /// frames of the views, a point in each of them.
    pub points: Vec<Vector>,
    /// A unit vector: the axis of a pair of receivers, or the normal of a plane.
    pub direction: Option<Vector>,
    /// Depths (z) of the points in each camera that has to see them; view after view.
    pub depths: Vec<f64>,
}

impl Geometry {
    /// All points are in front of the cameras that see them; true if the problem has no depths.
    pub fn is_in_front(&self) -> bool {
        self.depths.iter().all(|depth| *depth > 0.0)
    }

    /// Everything is finite.
    pub fn is_finite(&self) -> bool {
        let vectors = self.points.iter().chain(&self.direction).chain(self.motion.iter().flatten());
        let numbers = [self.focal, self.distortion].into_iter().flatten();
        self.poses.iter().all(Pose::is_finite)
            && vectors.flat_map(|v| v.iter()).chain(&self.depths).all(|v| v.is_finite())
            && self.principal.iter().flat_map(|v| v.iter()).copied().chain(numbers).all(|v| v.is_finite())
    }

    /// The same to `tolerance`: rad, and relative to the size of each vector or number, or to one if
    /// that is larger. Depths follow from the rest.
    pub fn is_close(&self, other: &Self, tolerance: f64) -> bool {
        let vector = |a: &[f64], b: &[f64]| {
            let size = b.iter().map(|v| v * v).sum::<f64>().sqrt();
            let apart = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            a.len() == b.len() && apart < tolerance * (1.0 + size)
        };
        let list = |g: &Self| -> Vec<Vec<f64>> {
            let motion = g.motion.iter().flatten().map(|v| v.as_slice().to_vec());
            let points = g.points.iter().chain(&g.direction).map(|v| v.as_slice().to_vec());
            let numbers = [g.focal, g.distortion].map(|v| v.into_iter().collect());
            let principal = g.principal.iter().map(|v| v.as_slice().to_vec());
            motion.chain(points).chain(principal).chain(numbers).collect()
        };
        let pose = |(a, b): (&Pose, &Pose)| {
            let (angle, shift) = pose_error(&a.to_rigid(), &b.to_rigid());
            angle < tolerance && shift < tolerance * (1.0 + b.translation.norm())
        };
        let (a, b) = (list(self), list(other));
        self.poses.len() == other.poses.len()
            && a.len() == b.len()
            && self.poses.iter().zip(&other.poses).all(pose)
            && a.iter().zip(&b).all(|(a, b)| vector(a, b))
    }

    /// A pose, and the depths of the points that it carries to the camera.
    pub(super) fn of_points(pose: Pose, points: &[Vector]) -> Self {
        let depths = points.iter().map(|p| pose.apply(p).z).collect();
        Self { poses: vec![pose], depths, ..Self::default() }
    }
}

/// Three numbers of a list.
pub(super) fn vector(values: &[f64], at: usize) -> Option<Vector> {
    values.get(at..at + 3).map(Vector3::from_column_slice)
}

/// A list of vectors, three numbers each.
pub(super) fn vectors(values: &[f64]) -> Vec<Vector> {
    values.chunks_exact(3).map(Vector3::from_column_slice).collect()
}

/// `u, v` as the ray `(u, v, 1)`; a list of them.
pub(super) fn rays(images: &[f64]) -> Vec<Vector> {
    images.chunks_exact(2).map(|i| Vector3::new(i[0], i[1], 1.0)).collect()
}

/// The rotation of `1, x, y, z` as a quaternion that is not normalised (Cayley).
pub(super) fn cayley(v: &[f64]) -> Option<Matrix3<f64>> {
    let [x, y, z] = *v.first_chunk()?;
    rotation(&[x, y, z, 1.0])
}

/// The pose that carries points onto others; `None` if no proper rotation does.
pub(super) fn carried(from: &[Vector], to: &[Vector]) -> Option<Pose> {
    let mut moments = Moments::default();
    from.iter().zip(to).for_each(|(a, b)| moments.add(a, b, 1.0));
    let pose = moments.pose()?;
    let size = to.iter().map(|p| p.norm()).fold(0.0, f64::max);
    let apart = from.iter().zip(to).map(|(a, b)| (pose.apply(a) - b).norm()).fold(0.0, f64::max);
    (apart < 1e-4 * size).then_some(pose)
}

/// The depths at which two rays meet best, `b y = a R x + t`.
pub(super) fn meeting(pose: &Pose, x: &Vector, y: &Vector) -> Option<[f64; 2]> {
    let turned = pose.rotation * x;
    let (xx, xy, yy) = (turned.norm_squared(), turned.dot(y), y.norm_squared());
    let (xt, yt) = (turned.dot(&pose.translation), y.dot(&pose.translation));
    let determinant = xx * yy - xy * xy;
    (determinant > 0.0).then(|| [(xy * yt - yy * xt) / determinant, (xx * yt - xy * xt) / determinant])
}

/// The relative poses of a rotation and a direction of translation, which has two signs, of length one.
pub(super) fn two_views(
    rotation: Matrix3<f64>,
    direction: Vector,
    x: &[Vector],
    y: &[Vector],
) -> Vec<Geometry> {
    let one = |sign: f64| {
        let pose = Pose { rotation, translation: direction.normalize() * sign };
        let met: Option<Vec<_>> = x.iter().zip(y).map(|(x, y)| meeting(&pose, x, y)).collect();
        let depths = met?.into_iter().zip(x.iter().zip(y)).flat_map(|([a, b], (x, y))| [a * x.z, b * y.z]);
        Some(Geometry { poses: vec![pose], depths: depths.collect(), ..Geometry::default() })
    };
    [1.0, -1.0].into_iter().filter_map(one).collect()
}

/// Both rotations and the direction of translation of an essential matrix `[t]x R`.
pub(super) fn of_essential(essential: Matrix3<f64>) -> Option<([Matrix3<f64>; 2], Vector)> {
    let svd = essential.svd(true, true);
    let (u, v) = (svd.u?, svd.v_t?);
    let quarter = Matrix3::new(0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0);
    let turned = |w: Matrix3<f64>| {
        let r = u * w * v;
        r * r.determinant().signum()
    };
    Some(([turned(quarter), turned(quarter.transpose())], u.column(2).into_owned()))
}

/// Orthonormal vectors whose products with all rows of `matrix` vanish, `count` of them, as columns.
pub(super) fn null_space(matrix: &DMatrix<f64>, count: usize) -> Option<DMatrix<f64>> {
    let columns = matrix.ncols();
    let mut square = DMatrix::zeros(matrix.nrows().max(columns), columns);
    square.rows_mut(0, matrix.nrows()).copy_from(matrix);
    let v = square.svd(false, true).v_t?;
    Some(v.rows(columns - count, count).transpose())
}

/// The solution of linear equations with the least squared error.
pub(super) fn least_squares(matrix: DMatrix<f64>, right: &DVector<f64>) -> Option<DVector<f64>> {
    matrix.svd(true, true).solve(right, 1e-13).ok()
}

/// Where the sum of squares of `residual` is least, near `x`: Gauss and Newton's method.
pub(super) fn refined(
    mut x: DVector<f64>,
    residual: impl Fn(&DVector<f64>) -> DVector<f64>,
) -> Option<DVector<f64>> {
    const STEP: f64 = 1e-5;
    for _ in 0..60 {
        let columns: Vec<_> = (0..x.len())
            .map(|k| {
                let (mut above, mut below) = (x.clone(), x.clone());
                above[k] += STEP;
                below[k] -= STEP;
                (residual(&above) - residual(&below)) / (2.0 * STEP)
            })
            .collect();
        let step = least_squares(DMatrix::from_columns(&columns), &residual(&x))?;
        x -= &step;
        if step.norm() < 1e-12 * (1.0 + x.norm()) {
            return Some(x);
        }
    }
    None
}
