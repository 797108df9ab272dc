//! Problems in which more than the pose of a calibrated camera is unknown, or less: a file per kind.
//!
//! | kind | sample | unknown beside the pose | solver |
//! |---|---|---|---|
//! | [`Focal`] | 4 points | focal length | homotopy |
//! | [`FocalRadial`] | 4 points | focal length, distortion | homotopy |
//! | [`RollingShutter`] | 6 points | angular rate, velocity | homotopy |
//! | [`RollingShutterLinear`] | 6 points | angular rate, velocity | homotopy |
//! | [`RelativeFocal`] | 6 points in two views | focal length | homotopy |
//! | [`Upright`] | 2 points | none; up is known | closed form |
//! | [`PnpSearch`] | all points | none | homotopy |

mod focal;
mod focal_radial;
mod homotopy_search;
mod relative_focal;
mod rolling_shutter;
mod scene;
mod upright;

pub(crate) use homotopy_search::library;

use super::absolute::Absolute;
use super::consensus::{Clock, Consensus};
use super::estimator::run;
use super::judge::Judge;
use super::model::{Model, Search};
use super::pnp::PnpSearch;
use super::search::CpuSearch;
use super::{AbsoluteProblem, Estimation, RelativeProblem};
use crate::homotopy::Backend;
use crate::params::{BackendChoice, CameraProblem, Params};
use crate::registration::BackendError;
use crate::status::Status;
use focal::Focal;
use focal_radial::FocalRadial;
use homotopy_search::HomotopySearch;
use relative_focal::RelativeFocal;
use rolling_shutter::{RollingShutter, RollingShutterLinear};
use scene::{Kind, Scene, View};
use std::sync::Arc;
use upright::Upright;

/// The loop with a model and what solves its samples.
pub(crate) struct Robust<M: Model, S> {
    model: M,
    search: S,
    consensus: Consensus<M::Hypothesis>,
    judge: Judge<M::Hypothesis>,
}

impl<M: Model, S: Search<M>> Robust<M, S> {
    fn new(model: M, search: S, capacity: usize) -> Self {
        let (consensus, judge) = (Consensus::with_capacity(capacity), Judge::with_capacity(capacity));
        Self { model, search, consensus, judge }
    }

    /// The model is loaded.
    fn run(&mut self, params: &Params, clock: &mut Clock, out: &mut Estimation) {
        clock.lap(|s| &mut s.sample);
        run(&mut self.model, &mut self.search, &mut self.consensus, &mut self.judge, params, clock, out);
    }
}

impl<K: Kind, S: Search<Scene<K>>> Robust<Scene<K>, S> {
    fn estimate(
        &mut self,
        problem: &AbsoluteProblem,
        params: &Params,
        clock: &mut Clock,
        out: &mut Estimation,
    ) {
        match self.model.load(problem, params.camera.inlier_threshold_px) {
            Ok(()) => self.run(params, clock, out),
            Err(reason) => (out.status, out.reason) = (Status::BadInput, reason),
        }
    }
}

type ByHomotopy<K> = Box<Robust<Scene<K>, HomotopySearch<Scene<K>>>>;

/// The problems that are not calibrated with three points in one view or five in two: one of them, by
/// `camera.problem`.
pub(crate) enum Kinds {
    /// Calibrated, if up is known.
    Upright(Box<Robust<Scene<Upright>, CpuSearch<View>>>),
    Pnp(Box<Robust<Absolute, PnpSearch>>),
    /// Of one view, and of two.
    Focal(ByHomotopy<Focal>, Box<Robust<RelativeFocal, HomotopySearch<RelativeFocal>>>),
    FocalRadial(ByHomotopy<FocalRadial>),
    RollingShutter(ByHomotopy<RollingShutter>),
    RollingShutterLinear(ByHomotopy<RollingShutterLinear>),
}

impl Kinds {
    /// Makes the memory for `capacity` rows, and what the solver needs.
    ///
    /// # Errors
    /// The backend that was asked for cannot be had.
    pub fn new(
        params: &Params,
        capacity: usize,
        pool: &Arc<rayon::ThreadPool>,
    ) -> Result<Self, BackendError> {
        let backend = match params.backend.kind {
            BackendChoice::Auto => Backend::Auto,
            BackendChoice::Cpu => Backend::Cpu,
            BackendChoice::Cuda => Backend::Cuda,
        };
        fn by_homotopy<K: Kind>(
            capacity: usize,
            pool: &Arc<rayon::ThreadPool>,
            backend: Backend,
        ) -> Result<ByHomotopy<K>, BackendError>
        where
            Scene<K>: homotopy_search::Minimal<Hypothesis = View>,
        {
            let search = HomotopySearch::new(pool.clone(), backend).map_err(refused)?;
            Ok(Box::new(Robust::new(Scene::with_capacity(capacity), search, capacity)))
        }
        Ok(match params.camera.problem {
            CameraProblem::Calibrated => {
                let (scene, search) = (Scene::with_capacity(capacity), CpuSearch::new(pool.clone()));
                Self::Upright(Box::new(Robust::new(scene, search, capacity)))
            }
            CameraProblem::Pnp => {
                let search = PnpSearch::new(pool.clone(), backend).map_err(refused)?;
                Self::Pnp(Box::new(Robust::new(Absolute::with_capacity(capacity), search, capacity)))
            }
            CameraProblem::Focal => {
                let search = HomotopySearch::new(pool.clone(), backend).map_err(refused)?;
                let relative = Robust::new(RelativeFocal::with_capacity(capacity), search, capacity);
                Self::Focal(by_homotopy(capacity, pool, backend)?, Box::new(relative))
            }
            CameraProblem::FocalRadial => Self::FocalRadial(by_homotopy(capacity, pool, backend)?),
            CameraProblem::RollingShutter => Self::RollingShutter(by_homotopy(capacity, pool, backend)?),
            CameraProblem::RollingShutterLinear => {
                Self::RollingShutterLinear(by_homotopy(capacity, pool, backend)?)
            }
        })
    }

    /// Estimates, or gives false: the problem is the calibrated one without a vertical.
    pub fn absolute(
        &mut self,
        problem: &AbsoluteProblem,
        params: &Params,
        clock: &mut Clock,
        out: &mut Estimation,
    ) -> bool {
        match self {
            Self::Upright(_) if problem.up().is_none() => return false,
            Self::Upright(robust) => robust.estimate(problem, params, clock, out),
            Self::Pnp(robust) => {
                robust.model.load(problem);
                robust.run(params, clock, out);
            }
            Self::Focal(robust, _) => robust.estimate(problem, params, clock, out),
            Self::FocalRadial(robust) => robust.estimate(problem, params, clock, out),
            Self::RollingShutter(robust) => robust.estimate(problem, params, clock, out),
            Self::RollingShutterLinear(robust) => robust.estimate(problem, params, clock, out),
        }
        if !matches!(self, Self::Upright(_)) {
            out.solver = "homotopy";
        }
        true
    }

    /// The same of a relative problem.
    pub fn relative(
        &mut self,
        problem: &RelativeProblem,
        params: &Params,
        clock: &mut Clock,
        out: &mut Estimation,
    ) -> bool {
        let Self::Focal(_, robust) = self else { return false };
        match robust.model.load(problem, params.camera.inlier_threshold_px) {
            Ok(()) => robust.run(params, clock, out),
            Err(reason) => (out.status, out.reason) = (Status::BadInput, reason),
        }
        out.solver = "homotopy";
        true
    }
}

fn refused(error: crate::homotopy::problems::Error) -> BackendError {
    BackendError::NoCuda(error.to_string())
}
