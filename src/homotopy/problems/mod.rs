//! The library: problems with their equations, their start sets, instances with a known solution, and
//! what roots say about the scene.

mod absolute;
mod benchmarks;
mod geometry;
mod instance;
mod relative;
mod triangulation;
mod uncalibrated;
mod views;

pub use geometry::Geometry;
pub use instance::{Instance, Random};

use super::start::{StartError, StartSet};
use super::system::{System, SystemError};
use crate::gpu::GpuError;
use nalgebra::Complex;
use std::borrow::Cow;

/// Draws an instance; `None` if the scene came out useless and another has to be drawn.
type Generator = fn(&mut Random) -> Option<Instance>;
/// What a root says, given what was measured; `None` if it stands for nothing.
type Recovery = fn(&[f64], &[f64]) -> Option<Vec<Geometry>>;
/// The parameters of what was measured.
type Reduction = fn(&[f64]) -> Option<Vec<f64>>;

/// A problem of the library.
#[derive(Clone)]
pub struct Problem {
    /// What it is called.
    pub name: String,
    /// Its equations, as [`System::from_yaml`] reads them.
    pub form: Cow<'static, str>,
    /// Its start set, as [`StartSet::from_bytes`] reads it; by the degrees if there is none.
    pub start: Option<&'static [u8]>,
    /// Solutions up to symmetry, on the family of the generator.
    pub expected: usize,
    /// How that number is known.
    pub counted: Counted,
    scene: Option<Scene>,
}

/// How the number of solutions of a problem is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Monodromy finds so many with two seeds, and the trace test misses none.
    Trace,
    /// Monodromy finds so many with two seeds, and so do all paths that the degrees of the equations
    /// allow, but for roots that are no solutions of the problem.
    Paths,
    /// Monodromy finds so many with two seeds, as many as those of another form of the problem.
    Form(&'static str),
    /// Monodromy finds so many with two seeds, and the source of the problem has the number.
    Source,
    /// A benchmark whose number is known.
    Literature,
    /// Nobody counted.
    Unknown,
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trace => f.pad("2 seeds, trace test"),
            Self::Paths => f.pad("2 seeds, all paths"),
            Self::Form(name) => f.pad(&format!("2 seeds, {name}")),
            Self::Source => f.pad("2 seeds, its source"),
            Self::Literature => f.pad("literature"),
            Self::Unknown => f.pad("-"),
        }
    }
}

/// What is behind the equations of a problem of computer vision.
#[derive(Clone, Copy)]
struct Scene {
    generator: Generator,
    recovery: Recovery,
    /// The parameters are what is measured if there is none.
    reduction: Option<Reduction>,
}

/// A form, its start set and its functions.
macro_rules! vision {
    ($($name:literal $expected:literal $counted:expr, $generator:path, $recovery:path $(, $reduction:path)?;)+) => {
        /// The problems of computer vision.
        fn vision() -> Vec<Problem> {
            vec![$(Problem {
                name: $name.into(),
                form: include_str!(concat!($name, ".yaml")).into(),
                start: Some(include_bytes!(concat!($name, ".start"))),
                expected: $expected,
                counted: $counted,
                scene: Some(Scene {
                    generator: $generator,
                    recovery: $recovery,
                    reduction: ([$($reduction as Reduction)?] as [Reduction; _]).first().copied(),
                }),
            }),+]
        }
    };
}

vision! {
    "p3p" 4 Counted::Trace, absolute::p3p, absolute::p3p_recovered;
    "p3p_pose" 8 Counted::Trace, absolute::p3p_pose, absolute::p3p_pose_recovered;
    "optimal_pnp" 40 Counted::Trace, absolute::optimal_pnp, absolute::optimal_pnp_recovered, absolute::optimal_pnp_reduced;
    "pnp_cubics" 41 Counted::Paths, absolute::pnp_cubics, absolute::pnp_cubics_recovered, absolute::pnp_cubics_reduced;
    "optimal_p4p" 20 Counted::Trace, absolute::optimal_p4p, absolute::optimal_p4p_recovered;
    "pnp_principal_point" 20 Counted::Trace, uncalibrated::pnp_principal_point, uncalibrated::pnp_principal_point_recovered;
    "joint_2view" 8 Counted::Trace, uncalibrated::joint_2view, uncalibrated::joint_2view_recovered;
    "p4p_focal_radial" 12 Counted::Trace, uncalibrated::p4p_focal_radial, uncalibrated::p4p_focal_radial_recovered,
        uncalibrated::p4p_focal_radial_reduced;
    "p4p_focal" 8 Counted::Trace, uncalibrated::p4p_focal, uncalibrated::p4p_focal_recovered,
        uncalibrated::p4p_focal_reduced;
    "rolling_shutter" 20 Counted::Trace, absolute::rolling_shutter, absolute::rolling_shutter_recovered,
        absolute::rolling_shutter_reduced;
    "rolling_shutter_1lin" 64 Counted::Source, absolute::rolling_shutter_1lin, absolute::rolling_shutter_1lin_recovered;
    "five_point" 10 Counted::Trace, relative::five_point, relative::five_point_recovered;
    "five_point_depths" 20 Counted::Trace, relative::five_point_depths, relative::five_point_depths_recovered;
    "five_point_nullspace" 10 Counted::Trace, relative::five_point_nullspace, relative::five_point_nullspace_recovered,
        relative::five_point_nullspace_reduced;
    "relative_pose_focal" 10 Counted::Trace, uncalibrated::relative_pose_focal, uncalibrated::relative_pose_focal_recovered,
        uncalibrated::relative_pose_focal_reduced;
    "six_point_focal" 15 Counted::Trace, relative::six_point_focal, relative::six_point_focal_recovered,
        relative::six_point_focal_reduced;
    "homography_3pt" 4 Counted::Trace, relative::homography_3pt, relative::homography_3pt_recovered;
    "tdoa_5" 24 Counted::Trace, absolute::tdoa_5, absolute::tdoa_5_recovered;
    "triangulation_2" 6 Counted::Trace, triangulation::two_views, triangulation::recovered;
    "triangulation_3" 27 Counted::Trace, triangulation::three_views, triangulation::recovered;
    "triangulation_3_pairs" 47 Counted::Paths, triangulation::three_views_pairs, triangulation::recovered;
    "triangulation_4" 120 Counted::Paths, triangulation::four_views, triangulation::recovered;
    "triangulation_4_pairs" 296 Counted::Paths, triangulation::four_views_pairs, triangulation::recovered;
    "triangulation_2_distorted" 20 Counted::Trace, triangulation::distorted, triangulation::distorted_recovered;
    "trifocal_focal" 668 Counted::Source, views::trifocal_focal, views::trifocal_focal_recovered;
    "trifocal_focal_18" 668 Counted::Form("trifocal_focal"), views::trifocal_focal_18, views::trifocal_focal_18_recovered;
    "trifocal_focal_24" 668 Counted::Form("trifocal_focal"), views::trifocal_focal_24, views::trifocal_focal_24_recovered;
    "trifocal_focal_26" 668 Counted::Form("trifocal_focal"), views::trifocal_focal_26, views::trifocal_focal_26_recovered;
    "trifocal_lines" 312 Counted::Source, views::trifocal_lines, views::trifocal_lines_recovered;
    "generalized_3view" 584 Counted::Paths, views::generalized_3view, views::generalized_3view_recovered;
    "generalized_3view_lines" 600 Counted::Paths, views::generalized_3view_lines, views::generalized_3view_lines_recovered,
        views::generalized_3view_lines_reduced;
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
        let generator = self.scene?.generator;
        let mut random = Random::new(seed);
        // A scene is seldom useless.
        (0..1000).find_map(|_| generator(&mut random))
    }

    /// The parameters of what is measured, in the order in which the instances of the problem have it;
    /// `None` if it does not determine them, or the problem is a benchmark.
    pub fn parameters(&self, measured: &[f64]) -> Option<Vec<Complex<f64>>> {
        if !measured.iter().all(|v| v.is_finite()) {
            return None;
        }
        match self.scene?.reduction {
            Some(reduction) => reduction(measured).map(|p| instance::complex(&p)),
            None => Some(instance::complex(measured)),
        }
    }

    /// All that a root and its images under the symmetries say about the scene, whether the points
    /// are in front of the cameras or not ([`Geometry::is_in_front`]); nothing of complex ones.
    pub fn geometry(&self, system: &System, root: &[Complex<f64>], measured: &[f64]) -> Vec<Geometry> {
        let Some(scene) = self.scene.filter(|_| measured.iter().all(|v| v.is_finite())) else {
            return Vec::new();
        };
        let is_real = |root: &Vec<Complex<f64>>| root.iter().all(|v| v.im.abs() <= 1e-6 * (1.0 + v.re.abs()));
        let mut all: Vec<Geometry> = Vec::new();
        for image in system.orbit(root).iter().filter(|root| is_real(root)) {
            let real: Vec<f64> = image.iter().map(|v| v.re).collect();
            for one in (scene.recovery)(&real, measured).unwrap_or_default() {
                if one.is_finite() && !all.iter().any(|other| other.is_close(&one, 1e-9)) {
                    all.push(one);
                }
            }
        }
        all
    }
}

/// Why a problem cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none of this name.
    #[error("no problem is called {0}")]
    Unknown(&'static str),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homotopy::check::Newton;

    #[test]
    fn true_roots_tell_the_true_geometry_and_points_are_in_front() {
        for problem in vision() {
            let system = problem.system().expect("a system");
            let newton = Newton::new(&system);
            for seed in 0..10 {
                let Some(instance) = problem.instance(seed) else { panic!("{}", problem.name) };
                let Instance { measured, parameters, near, truth } = &instance;
                assert_eq!(problem.parameters(measured).as_ref(), Some(parameters), "{}", problem.name);
                let root = newton.run(near.clone(), parameters).expect("a root");
                let all = problem.geometry(&system, &root, measured);
                let right = all.iter().find(|one| one.is_close(truth, 1e-6));
                let right = right.unwrap_or_else(|| panic!("{}, {seed}: {truth:?}, {all:?}", problem.name));
                assert!(right.is_in_front(), "{}, {seed}: {right:?}", problem.name);
            }
        }
    }

    #[test]
    fn what_is_too_short_or_no_number_says_nothing() {
        for problem in vision() {
            let system = problem.system().expect("a system");
            let instance = problem.instance(1).expect("an instance");
            for measured in [vec![], vec![0.5], vec![0.0; instance.measured.len()], vec![f64::NAN; 25]] {
                let said = problem.geometry(&system, &instance.near, &measured);
                assert!(said.iter().all(Geometry::is_finite), "{}: {said:?}", problem.name);
                // A family may take any numbers; none may be made of what is no number.
                let made = problem.parameters(&measured);
                assert!(made.iter().flatten().all(|v| v.re.is_finite()), "{}", problem.name);
            }
        }
    }

    #[test]
    fn another_form_of_a_problem_has_as_many_roots() {
        for problem in all() {
            let other = match problem.counted {
                Counted::Form(name) => find(name).expect("a problem").expected,
                _ => problem.expected,
            };
            assert!(problem.expected == other && problem.expected > 0, "{}", problem.name);
        }
    }

    #[test]
    fn geometry_that_differs_anywhere_is_not_close() {
        let truth = find("trifocal_focal").and_then(|p| p.instance(3)).expect("an instance").truth;
        assert!(truth.is_close(&truth, 1e-9) && truth.is_in_front());
        let changed = |change: fn(&mut Geometry)| {
            let mut other = truth.clone();
            change(&mut other);
            !other.is_close(&truth, 1e-6)
        };
        assert!(changed(|g| g.focal = g.focal.map(|f| f + 1e-3)));
        assert!(changed(|g| g.focal = None));
        assert!(changed(|g| g.poses[1].translation.x += 1e-3));
        assert!(changed(|g| g.poses.truncate(1)));
        assert!(changed(|g| g.points.push(nalgebra::Vector3::zeros())));
    }
}
