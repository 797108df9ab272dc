//! The pose that a person or another program gives (`/initialpose`): checked by the rules of
//! nav2, but negative cross terms of the covariance are taken as long as it stays a covariance.
//!
//! Nothing is published from it. It settles registrations that are ambiguous.

use super::covariance;
use super::frame::Candidate;
use crate::geometry::{Rigid, Vector};
use crate::messages::Stamp;
use crate::params::Params;
use nalgebra::{Cholesky, Matrix6, Quaternion, SymmetricEigen, UnitQuaternion, Vector6};

/// A quaternion whose norm differs from 1 by more than this is refused, as nav2 does.
const MAX_NORM_ERROR: f64 = 1e-4;
/// A correlation may be wrong by this much.
const MAX_ROUNDING: f64 = 1e-6;
/// Mahalanobis distance within which a candidate agrees with the prior.
const MAX_DISTANCE: f64 = 3.0;

/// Why an initial pose was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InitialPoseError {
    /// It is not given in the frame of the map.
    #[error("initialpose: frame '{got}' is not the map frame '{want}'")]
    Frame {
        /// frame given
        got: String,
        /// `frames.map`
        want: String,
    },
    /// A number is not finite.
    #[error("initialpose: {0} has a number that is not finite")]
    NotFinite(&'static str),
    /// The quaternion is not of unit length.
    #[error("initialpose: quaternion of norm {0}, it must be 1 within {MAX_NORM_ERROR}")]
    NotUnit(f64),
    /// The covariance is not symmetric.
    #[error("initialpose: covariance is not symmetric")]
    NotSymmetric,
    /// The covariance has a negative variance, or its correlations a negative eigenvalue.
    #[error("initialpose: covariance is not positive semi-definite ({0})")]
    NotPositive(f64),
}

/// A pose as a message has it, not yet checked: base in map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoseSample {
    /// Position, m.
    pub position: [f64; 3],
    /// Orientation: quaternion x y z w.
    pub orientation: [f64; 4],
    /// Covariance, row-major: x y z (m), rotation about the fixed x y z axes (rad).
    pub covariance: [f64; 36],
}

impl PoseSample {
    /// `map_t_base` and its covariance, if they make sense.
    pub(super) fn check(&self) -> Result<(Rigid, Matrix6<f64>), InitialPoseError> {
        let finite = |what, values: &[f64]| match values.iter().all(|v| v.is_finite()) {
            true => Ok(()),
            false => Err(InitialPoseError::NotFinite(what)),
        };
        finite("the position", &self.position)?;
        finite("the quaternion", &self.orientation)?;
        finite("the covariance", &self.covariance)?;
        let rotation = Quaternion::from(self.orientation);
        let norm = rotation.norm();
        if (norm - 1.0).abs() > MAX_NORM_ERROR {
            return Err(InitialPoseError::NotUnit(norm));
        }
        let covariance = Matrix6::from_row_slice(&self.covariance);
        check_covariance(&covariance)?;
        let position = Vector::from(self.position);
        Ok((Rigid::from_parts(position.into(), UnitQuaternion::from_quaternion(rotation)), covariance))
    }
}

/// Judged on the correlations, so that metres, radians and sizes of variances do not matter; with
/// room for the rounding of a sender that computes in single precision.
fn check_covariance(covariance: &Matrix6<f64>) -> Result<(), InitialPoseError> {
    let variances = covariance.diagonal();
    if variances.min() < 0.0 {
        return Err(InitialPoseError::NotPositive(variances.min()));
    }
    let scale = variances.map(|variance| if variance > 0.0 { variance.sqrt().recip() } else { 1.0 });
    let scale = Matrix6::from_diagonal(&scale);
    let correlation = scale * covariance * scale;
    if (correlation - correlation.transpose()).amax() > MAX_ROUNDING {
        return Err(InitialPoseError::NotSymmetric);
    }
    match SymmetricEigen::try_new(correlation, f64::EPSILON, 1000).map(|eigen| eigen.eigenvalues.min()) {
        Some(smallest) if smallest >= -MAX_ROUNDING => Ok(()),
        other => Err(InitialPoseError::NotPositive(other.unwrap_or(f64::NAN))),
    }
}

/// An initial pose that was taken, carried along by odometry and by accepted poses.
#[derive(Debug, Clone, PartialEq)]
pub struct Prior {
    /// Pose of the base in the map at `stamp`.
    pub map_t_base: Rigid,
    /// Its covariance as given.
    pub covariance: Matrix6<f64>,
    /// When it held.
    pub stamp: Stamp,
    /// Pose of the base in the odometry frame at `stamp`, once known.
    pub odom_t_base: Option<Rigid>,
}

impl Prior {
    /// `map_t_base` at the time of a message. Without odometry the robot is taken to stand still
    /// for `tf.hold_sec`; after that there is no answer.
    pub(super) fn at(&self, stamp: Stamp, odom_t_base: Option<Rigid>, hold_sec: f64) -> Option<Rigid> {
        match (self.odom_t_base, odom_t_base) {
            (Some(then), Some(now)) => Some(self.map_t_base * then.inv_mul(&now)),
            _ => (stamp.seconds_since(self.stamp).abs() <= hold_sec).then_some(self.map_t_base),
        }
    }

    /// Index of the one candidate that agrees with the prior, moved to `map_t_base`; none if
    /// several do or none does.
    pub(super) fn choose(
        &self,
        map_t_base: &Rigid,
        candidates: &[Candidate],
        params: &Params,
    ) -> Option<usize> {
        let mut agreeing =
            candidates.iter().enumerate().filter(|(_, c)| self.agrees(map_t_base, &c.map_t_base, params));
        let (index, _) = agreeing.next()?;
        agreeing.next().is_none().then_some(index)
    }

    /// Within three sigma. A coordinate of variance zero was not stated (a pose clicked in a plane
    /// says nothing of z, roll and pitch) and is not judged.
    fn agrees(&self, map_t_base: &Rigid, candidate: &Rigid, params: &Params) -> bool {
        let turn = candidate.rotation * map_t_base.rotation.inverse();
        let shift = candidate.translation.vector - map_t_base.translation.vector;
        let turn = turn.scaled_axis();
        let mut error = Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z);
        let mut covariance = self.covariance;
        for (i, stated) in self.covariance.diagonal().iter().map(|variance| *variance > 0.0).enumerate() {
            if !stated {
                error.row_mut(i).fill(0.0);
                covariance.row_mut(i).fill(0.0);
                covariance.column_mut(i).fill(0.0);
            }
        }
        let floor = &params.covariance;
        let distance = covariance::raise(&covariance, floor.min_translation_std, floor.min_rotation_std)
            .and_then(Cholesky::new)
            .map(|c| error.dot(&c.solve(&error)).sqrt());
        distance.is_some_and(|d| d <= MAX_DISTANCE)
    }
}
