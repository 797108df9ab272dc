//! The library: problems with their equations, their start sets, and instances with a known
//! solution.

mod absolute;
mod benchmarks;
mod instance;
mod relative;
mod triangulation;

pub use instance::{Instance, Random};

use super::start::{StartError, StartSet};
use super::system::{System, SystemError};
use crate::geometry::Pose;
use crate::gpu::GpuError;
use nalgebra::Complex;
use std::borrow::Cow;

/// Draws an instance; `None` if the scene came out useless and another has to be drawn.
type Generator = fn(&mut Random) -> Option<Instance>;
/// The pose that a root stands for, given the parameters.
type Recovery = fn(&[f64], &[f64]) -> Option<Pose>;

/// A problem of the library.
#[derive(Clone)]
pub struct Problem {
    /// What it is called.
    pub name: String,
    /// Its equations, as [`System::from_yaml`] reads them.
    pub form: Cow<'static, str>,
    /// Its start set, as [`StartSet::from_bytes`] reads it; by the degrees if there is none.
    pub start: Option<&'static [u8]>,
    /// Solutions up to symmetry: what monodromy finds on the family of the generator with two seeds,
    /// for a benchmark what is known of it.
    pub expected: usize,
    generator: Option<Generator>,
    recovery: Option<Recovery>,
}

/// A form, its start set and its functions.
macro_rules! vision {
    ($($name:literal $expected:literal $generator:path, $recovery:expr;)+) => {
        /// The problems of computer vision.
        fn vision() -> Vec<Problem> {
            vec![$(Problem {
                name: $name.into(),
                form: include_str!(concat!($name, ".yaml")).into(),
                start: Some(include_bytes!(concat!($name, ".start"))),
                expected: $expected,
                generator: Some($generator),
                recovery: $recovery,
            }),+]
        }
    };
}

vision! {
    "p3p" 4 absolute::p3p, Some(absolute::p3p_recovered);
    "p3p_pose" 8 absolute::p3p_pose, Some(absolute::p3p_pose_recovered);
    "optimal_pnp" 40 absolute::optimal_pnp, None;
    "optimal_p4p" 20 absolute::optimal_p4p, Some(absolute::optimal_p4p_recovered);
    "p4p_focal_radial" 12 absolute::p4p_focal_radial, None;
    "rolling_shutter" 20 absolute::rolling_shutter, None;
    "rolling_shutter_1lin" 64 absolute::rolling_shutter_1lin, None;
    "five_point" 10 relative::five_point, Some(relative::five_point_recovered);
    "five_point_depths" 20 relative::five_point_depths, Some(relative::five_point_depths_recovered);
    "five_point_nullspace" 10 relative::five_point_nullspace, None;
    "relative_pose_focal" 20 relative::relative_pose_focal, None;
    "homography_3pt" 4 relative::homography_3pt, None;
    "tdoa_5" 24 relative::tdoa_5, None;
    "triangulation_2" 6 triangulation::two_views, None;
    "triangulation_3" 27 triangulation::three_views, None;
    "triangulation_4" 120 triangulation::four_views, None;
    "triangulation_2_distorted" 20 triangulation::distorted, None;
    "trifocal_focal" 668 relative::trifocal_focal, None;
    "generalized_3view" 584 relative::generalized_3view, None;
}

/// All problems; of the families among the benchmarks those of the literature.
pub fn all() -> Vec<Problem> {
    let mut all = vision();
    all.extend(["alea6", "cyclic7", "katsura10", "eco12"].iter().filter_map(|name| benchmarks::named(name)));
    all
}

/// The problem of a name; any size of `cyclicN`, `katsuraN` and `ecoN`.
pub fn find(name: &str) -> Option<Problem> {
    vision().into_iter().find(|p| p.name == name).or_else(|| benchmarks::named(name))
}

impl Problem {
    /// The system: for a benchmark the family with free coefficients if that is what its start set
    /// is of.
    pub fn system(&self) -> Result<System, SystemError> {
        let system = System::from_yaml(&self.form)?;
        let family = if self.start.is_some() { system.free_coefficients() } else { None };
        Ok(family.unwrap_or(system))
    }

    /// The system and its start set. Without a start set of its own the system is blended with the
    /// simple one of its degrees.
    pub fn prepared(&self, seed: u64) -> Result<(System, StartSet), Error> {
        let system = self.system()?;
        match self.start {
            Some(bytes) => {
                let start = StartSet::from_bytes(bytes, &system)?;
                Ok((system, start))
            }
            None => Ok(StartSet::total_degree(&system, &[], seed)?),
        }
    }

    /// The instance of a seed, or `None` for a benchmark.
    pub fn instance(&self, seed: u64) -> Option<Instance> {
        let generator = self.generator?;
        let mut random = Random::new(seed);
        // A scene is seldom useless.
        (0..1000).find_map(|_| generator(&mut random))
    }

    /// The pose that a real root stands for; `None` if the problem has none, or the root is complex.
    pub fn pose(&self, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> Option<Pose> {
        let real = |v: &[Complex<f64>]| v.iter().map(|v| v.re).collect::<Vec<f64>>();
        let complex = root.iter().any(|v| v.im.abs() > 1e-6 * (1.0 + v.re.abs()));
        if complex {
            None
        } else {
            self.recovery?(&real(root), &real(parameters))
        }
    }
}

/// Why a problem cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its equations.
    #[error(transparent)]
    System(#[from] SystemError),
    /// Its start set.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
