//! Refinement of a pose by all correspondences, and its covariance.
//!
//! Minimises the Geman-McClure cost `sum w r^2 / (theta^2 + r^2)` by reweighting: residuals up to
//! the inlier threshold theta count nearly fully, larger ones fade, beyond 3 theta they are
//! ignored. Against a hard cut at theta (appendix A10 of the design) this keeps the true
//! correspondences whose noise is larger than theta.

use super::hypotheses::within;
use super::layout::Layout;
use crate::geometry::{Moments, Pose, Vector};
use nalgebra::{Matrix3, Matrix4, Matrix6, SymmetricEigen};

/// Residuals beyond this many thresholds have no influence.
pub const CUT: f64 = 3.0;
/// Correspondences within this many thresholds of the start are looked at.
const REACH: f64 = 6.0;
/// Most reweightings.
const ITERATIONS: usize = 30;
/// A step below this (rotation matrix, and translation in thresholds) ends the refinement.
const FINE: f64 = 1e-9;
/// The same where a pose is only to be ranked.
const COARSE: f64 = 1e-3;

/// A correspondence near the pose that is refined.
#[derive(Debug, Clone, Copy)]
struct Near {
    source: Vector,
    target: Vector,
    weight: f64,
}

/// Refines poses; the buffer is reused.
#[derive(Debug, Default)]
pub struct Refiner {
    near: Vec<Near>,
}

/// Weight of a squared residual relative to the squared threshold.
fn influence(r2: f64) -> f64 {
    match r2 < CUT * CUT {
        true => 1.0 / ((1.0 + r2) * (1.0 + r2)),
        false => 0.0,
    }
}

fn residual2(layout: &Layout, pose: &Pose, i: usize, theta: f64) -> f64 {
    (pose.apply(&layout.source_at(i)) - layout.target_at(i)).norm_squared() / (theta * theta)
}

/// What is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rotation and a translation.
    Proper,
    /// A reflection and a translation.
    Reflection,
}

impl Refiner {
    /// Room for `max` correspondences.
    pub fn with_capacity(max: usize) -> Self {
        Self { near: Vec::with_capacity(max) }
    }

    /// A pose near `start`, good enough to be ranked.
    pub fn approach(&mut self, layout: &Layout, start: &Pose, theta: f64) -> Option<Pose> {
        self.run(layout, start, theta, Kind::Proper, COARSE, true)
    }

    /// The same if all correspondences had the same weight.
    pub fn approach_unweighted(&mut self, layout: &Layout, start: &Pose, theta: f64) -> Option<Pose> {
        self.run(layout, start, theta, Kind::Proper, COARSE, false)
    }

    /// The best pose near `start`; `None` if fewer correspondences than fix one are near.
    pub fn refine(&mut self, layout: &Layout, start: &Pose, theta: f64, kind: Kind) -> Option<Pose> {
        self.run(layout, start, theta, kind, FINE, true)
    }

    fn run(
        &mut self,
        layout: &Layout,
        start: &Pose,
        theta: f64,
        kind: Kind,
        step: f64,
        weighted: bool,
    ) -> Option<Pose> {
        let reach2 = (REACH * theta).powi(2) as f32;
        self.near.clear();
        self.near.extend(within(layout, start, reach2).map(|i| Near {
            source: layout.source_at(i),
            target: layout.target_at(i),
            weight: if weighted { f64::from(layout.weight[i]) } else { 1.0 },
        }));
        let mut pose = *start;
        for _ in 0..ITERATIONS {
            let mut moments = Moments::default();
            for near in &self.near {
                let r2 = (pose.apply(&near.source) - near.target).norm_squared() / (theta * theta);
                let weight = influence(r2) * near.weight;
                if weight > 0.0 {
                    moments.add(&near.source, &near.target, weight);
                }
            }
            let next = match (kind, layout.up) {
                (Kind::Reflection, _) => moments.reflection(),
                (Kind::Proper, None) => moments.pose(),
                (Kind::Proper, Some([source_up, target_up])) => moments.pose_about(&source_up, &target_up),
            }?;
            let turned = (next.rotation - pose.rotation).norm();
            let moved = (next.translation - pose.translation).norm();
            pose = next;
            if turned < step && moved < step * theta {
                break;
            }
        }
        pose.is_finite().then_some(pose)
    }
}

/// How uncertain a refined pose is.
#[derive(Debug, Clone, Copy)]
pub struct Uncertainty {
    /// Order x y z (m), rotation about the fixed axes of the target frame at the origin of the
    /// source frame (rad).
    pub covariance: Matrix6<f64>,
    /// Standard deviations in the weakest direction: translation m, rotation rad. The translation
    /// is that of the source's origin or, where this lies outside all correspondences, of the
    /// point nearest to it in the ball around them: an origin far away, as that of a map, makes
    /// no pose worse.
    pub weakest: [f64; 2],
}

/// Uncertainty of a refined pose: `sigma^2 (J^T W J)^-1` over the correspondences of influence,
/// sigma from their residuals. `None` if a direction is not fixed at all.
pub fn uncertainty(layout: &Layout, pose: &Pose, theta: f64) -> Option<Uncertainty> {
    let influential = || {
        (0..layout.count()).filter_map(|i| {
            let r2 = residual2(layout, pose, i, theta);
            let weight = influence(r2) * f64::from(layout.weight[i]);
            (weight > 0.0).then(|| (layout.source_at(i), r2, weight))
        })
    };
    let (mut centre, mut weight_sum, mut error_sum, mut count) = (Vector::zeros(), 0.0, 0.0, 0usize);
    for (source, r2, weight) in influential() {
        centre += source * weight;
        weight_sum += weight;
        error_sum += weight * r2 * theta * theta;
        count += 1;
    }
    // Effective number of residual coordinates above the six (four) unknowns.
    let unknowns = if layout.up.is_some() { 4.0 } else { 6.0 };
    let freedom = (3.0 * count as f64 - unknowns) / (3.0 * count as f64);
    if count < 3 || freedom <= 0.0 {
        return None;
    }
    centre /= weight_sum;
    let variance = error_sum / (3.0 * weight_sum) / freedom;

    // About the centre, where no digits cancel however far away the origin is.
    let mut information = Matrix6::zeros();
    for (source, _, weight) in influential() {
        let q = pose.rotation * (source - centre);
        // Residual of a small motion (d, w): d + w x q.
        let cross = -q.cross_matrix();
        let mut block = information.fixed_view_mut::<3, 3>(0, 0);
        block += Matrix3::identity() * weight;
        let mut block = information.fixed_view_mut::<3, 3>(0, 3);
        block += cross * weight;
        let mut block = information.fixed_view_mut::<3, 3>(3, 3);
        block += cross.transpose() * cross * weight;
    }
    let lower = information.fixed_view::<3, 3>(0, 3).transpose();
    information.fixed_view_mut::<3, 3>(3, 0).copy_from(&lower);
    let inverse = match layout.up {
        None => information.cholesky()?.inverse(),
        Some([_, up]) => {
            let embed = embedding(&up);
            let reduced: Matrix4<f64> = embed.transpose() * information * embed;
            embed * reduced.cholesky()?.inverse() * embed.transpose()
        }
    };
    // Correspondences of less influence carry less information, but their errors are as large:
    // the sandwich of an M-estimator, to first order.
    let about_centre = inverse * variance;
    let about = |p: &Vector| moved(&about_centre, &(pose.rotation * (p - centre)));
    let origin = -layout.source_origin;
    let covariance = about(&origin);
    let radius = (0..layout.count()).fold(0.0, |most: f64, i| most.max(layout.source_at(i).norm()));
    let judged = match origin.norm() > radius {
        true => about(&(origin * (radius / origin.norm()))),
        false => covariance,
    };
    let largest = |k: usize| {
        let block: Matrix3<f64> = judged.fixed_view::<3, 3>(k, k).into_owned();
        // Bounded: the iteration of `symmetric_eigenvalues` has no end of its own.
        let eigen = SymmetricEigen::try_new(block, f64::EPSILON, 200)?;
        Some(eigen.eigenvalues.max().max(0.0).sqrt())
    };
    let weakest = [largest(0)?, largest(3)?];
    covariance.iter().all(|v| v.is_finite()).then_some(Uncertainty { covariance, weakest })
}

/// The covariance of the same motion with the translation taken at a point `by` away.
fn moved(covariance: &Matrix6<f64>, by: &Vector) -> Matrix6<f64> {
    let mut change = Matrix6::identity();
    change.fixed_view_mut::<3, 3>(0, 3).copy_from(&-by.cross_matrix());
    let moved = change * covariance * change.transpose();
    (moved + moved.transpose()) * 0.5
}

/// From (translation, yaw) to (translation, rotation vector).
fn embedding(up: &Vector) -> nalgebra::Matrix6x4<f64> {
    let mut embed = nalgebra::Matrix6x4::zeros();
    embed.fixed_view_mut::<3, 3>(0, 0).copy_from(&Matrix3::identity());
    embed.fixed_view_mut::<3, 1>(3, 3).copy_from(up);
    embed
}
