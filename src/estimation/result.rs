//! The result of an estimation.

use crate::geometry::{Rigid, Vector};
use crate::registration::RunnerUp;
use crate::status::Status;
use nalgebra::Matrix6;

/// What an estimation found. The buffers are reused from frame to frame.
#[derive(Debug, Clone)]
pub struct Estimation {
    /// Whether to trust the pose; only [`Status::Ok`] means yes.
    pub status: Status,
    /// Why the status is what it is, with the numbers that decided.
    pub reason: Reason,
    /// Best pose: `map_t_camera` of an absolute problem, `reference_t_camera` with a translation of length one
    /// of a relative one. Present whenever one was computed, also if it is not trusted.
    pub target_t_source: Option<Rigid>,
    /// Focal length in pixels, if it was sought.
    pub focal: Option<f64>,
    /// Distortion of the division model, per square of pixels from the principal point, if it was sought.
    pub distortion: Option<f64>,
    /// Angular rate (rad) and velocity (m) per row of the image, in the optical frame, of a camera with a rolling
    /// shutter, if they were sought.
    pub motion: Option<[Vector; 2]>,
    /// Per row: lies within the inlier threshold under the pose.
    pub inlier_mask: Vec<bool>,
    /// Number of inliers; rows that are the same count once.
    pub inliers: usize,
    /// Inliers that are independent evidence: far enough apart in the image, and of different points.
    pub independent_inliers: usize,
    /// Score of the pose: sum over all rows of `max(0, 1 - |r|^2)`.
    pub score: f64,
    /// Root of the mean square of the residuals of inliers, in thresholds.
    pub residual: f64,
    /// Base-10 logarithm of the number of poses this good to be expected among random rows; the lower, the
    /// surer.
    pub log10_false_alarms: f64,
    /// Covariance of the pose: x y z (m, or of the direction of length one), rotation about the fixed x y z axes
    /// of the target frame at the centre of the camera (rad). Zero where no pose was computed.
    pub covariance: Matrix6<f64>,
    /// The best pose that is elsewhere.
    pub runner_up: Option<RunnerUp>,
    /// 1 - (support of the runner-up alone) / (support of the pose alone); 1 where there is no runner-up.
    pub margin: f64,
    /// Eigenvalues of the scatter of the inliers in the optical frame, largest first: points in m^2 of an absolute
    /// problem, bearings of a relative one.
    pub spread: [f64; 3],
    /// Samples drawn.
    pub samples: u64,
    /// Hypotheses scored.
    pub hypotheses: u64,
    /// Probability that a better pose was missed because no good sample was drawn, at most.
    pub missed: f64,
    /// What solved the samples: `closed_form` or `homotopy`.
    pub solver: &'static str,
    /// Time spent in each stage.
    pub stages: StageTimes,
    /// Where samples were solved and scored: `cpu` or `cuda`.
    pub backend: &'static str,
}

impl Estimation {
    /// Back to nothing found among `n` rows; keeps the memory.
    pub(super) fn reset(&mut self, n: usize) {
        let mut inlier_mask = std::mem::take(&mut self.inlier_mask);
        inlier_mask.clear();
        inlier_mask.resize(n, false);
        *self = Self { inlier_mask, ..Self::default() };
    }
}

/// Why an estimation has its status.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Reason {
    /// Nothing to add.
    #[error("")]
    None,
    /// Fewer rows than a sample needs.
    #[error("too_few:{got}<{need}")]
    TooFew {
        /// rows given
        got: usize,
        /// rows needed
        need: usize,
    },
    /// More rows than memory was made for.
    #[error("too_many:{got}>{max}")]
    TooMany {
        /// rows given
        got: usize,
        /// capacity
        max: usize,
    },
    /// A row has no pixel, or the camera no principal point, and the problem needs them.
    #[error("no_pixels: the problem needs pixels and the principal point, bearings were given")]
    NoPixels,
    /// The problem needs the direction of up in both frames.
    #[error("no_vertical: the problem needs the direction of up in both frames")]
    NoVertical,
    /// No sample had a solution.
    #[error("no_solution: no sample has a pose with its points in front of the camera")]
    NoSolution,
    /// The inliers lie on a line or in a point.
    #[error("collinear: the inliers lie on a line or in a point")]
    Collinear,
    /// The inliers lie in a plane, which leaves what is sought open.
    #[error("planar: the inliers lie in a plane")]
    Planar,
    /// The points are behind the camera: seen the other way round they have a pose.
    #[error("behind: {0} points have a pose with all of them behind the camera")]
    Behind(usize),
    /// A rotation without translation explains the two views: the direction of translation is open.
    #[error("pure_rotation: a rotation alone explains {0:.2} of the inliers")]
    PureRotation(f64),
    /// The points are so far away that the translation is open.
    #[error("far_points: standard deviation {0:.3} m of the translation")]
    FarPoints(f64),
    /// The calibration is wrong: another focal length explains the rows better.
    #[error("intrinsics: the rows fit better with {0:.3} of the focal length")]
    Intrinsics(f64),
    /// The calibration is wrong: another principal point explains the rows better.
    #[error("principal_point: the rows fit better with one {0:.3} focal lengths away")]
    PrincipalPoint(f64),
    /// A coordinate or an angle is not fixed by the inliers.
    #[error(
        "unconstrained: standard deviation {translation:.3} m, {rotation:.4} rad in the weakest direction"
    )]
    Unconstrained {
        /// weakest translation, m
        translation: f64,
        /// weakest rotation, rad
        rotation: f64,
    },
    /// Another pose is nearly as good.
    #[error("runner_up: another pose has {0:.2} of the support")]
    RunnerUp(f64),
    /// Not enough independent inliers.
    #[error("inliers: {got} independent inliers, {need} needed")]
    Inliers {
        /// independent inliers
        got: usize,
        /// needed
        need: usize,
    },
    /// So many inliers arise by chance.
    #[error("chance: 10^{0:.1} such poses expected among random rows")]
    Chance(f64),
    /// The samples ran out before the confidence was reached.
    #[error("samples: {0} samples drawn, not enough for the confidence")]
    Samples(u64),
    /// The time budget was spent.
    #[error("over_budget: {0:.1} ms")]
    OverBudget(f64),
    /// The GPU failed.
    #[error("gpu_fault: CUDA error {0}")]
    GpuFault(i32),
}

/// Microseconds spent in each stage of one estimation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageTimes {
    /// Drawing samples.
    pub sample: f64,
    /// Solving them and scoring their poses over all rows.
    pub search: f64,
    /// Local optimisation.
    pub optimise: f64,
    /// Refinement, runner-up and acceptance.
    pub refine: f64,
}

impl StageTimes {
    /// Names in the order of [`StageTimes::values`]: keys of diagnostics and columns of reports.
    pub const NAMES: [&'static str; 4] = ["sample", "search", "optimise", "refine"];

    /// The times in the order of the names, microseconds.
    pub fn values(&self) -> [f64; 4] {
        [self.sample, self.search, self.optimise, self.refine]
    }

    /// Microseconds in all stages.
    pub fn total(&self) -> f64 {
        self.values().iter().sum()
    }
}

impl Default for Estimation {
    fn default() -> Self {
        Self {
            status: Status::TooFew,
            reason: Reason::TooFew { got: 0, need: 0 },
            target_t_source: None,
            focal: None,
            distortion: None,
            motion: None,
            inlier_mask: Vec::new(),
            inliers: 0,
            independent_inliers: 0,
            score: 0.0,
            residual: 0.0,
            log10_false_alarms: 0.0,
            covariance: Matrix6::zeros(),
            runner_up: None,
            margin: 1.0,
            spread: [0.0; 3],
            samples: 0,
            hypotheses: 0,
            missed: 1.0,
            solver: "closed_form",
            stages: StageTimes::default(),
            backend: "cpu",
        }
    }
}
