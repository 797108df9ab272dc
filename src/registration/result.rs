//! The result of a registration.

use crate::geometry::Rigid;
use crate::status::Status;
use nalgebra::Matrix6;

/// What a registration found. The buffers are reused from frame to frame.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Whether to trust the pose; only [`Status::Ok`] means yes.
    pub status: Status,
    /// Why the status is what it is, with the numbers that decided.
    pub reason: Reason,
    /// Best pose, `p_target = target_t_source * p_source`. Present whenever one was computed, also
    /// if it is not trusted.
    pub target_t_source: Option<Rigid>,
    /// Per correspondence: lies within the inlier threshold under the pose.
    pub inlier_mask: Vec<bool>,
    /// Number of inliers.
    pub inliers: usize,
    /// Inliers that are independent evidence: far enough apart in both frames.
    pub independent_inliers: usize,
    /// Score of the pose over all correspondences (the metric of the parameters).
    pub score: f64,
    /// Base-10 logarithm of the number of poses this good to be expected among random
    /// correspondences; the lower, the surer.
    pub log10_false_alarms: f64,
    /// The same for the turn about the line through most of the inliers alone.
    pub log10_false_alarms_off_line: f64,
    /// Covariance of the pose: x y z (m), rotation about the fixed x y z axes of the target frame
    /// at the source origin (rad). Zero where no pose was computed.
    pub covariance: Matrix6<f64>,
    /// The best pose that is elsewhere.
    pub runner_up: Option<RunnerUp>,
    /// 1 - (inliers of the runner-up alone) / (inliers of the pose alone); 1 where there is no
    /// runner-up. What both explain is left out.
    pub margin: f64,
    /// Eigenvalues of the scatter of the inliers in the source frame, largest first, m^2.
    pub spread: [f64; 3],
    /// Edges of the compatibility graph.
    pub edges: u64,
    /// Pivots searched.
    pub pivots: usize,
    /// Triples (3-cliques) found.
    pub triples: usize,
    /// What the bounded search cut off; all zero in exact mode.
    pub truncation: Truncation,
    /// Time spent in each stage.
    pub stages: StageTimes,
    /// Which backend computed it: `cpu` or `cuda`.
    pub backend: &'static str,
}

impl Registration {
    /// Back to nothing found among `n` correspondences; keeps the memory.
    pub(super) fn reset(&mut self, backend: &'static str, n: usize) {
        let mut inlier_mask = std::mem::take(&mut self.inlier_mask);
        inlier_mask.clear();
        inlier_mask.resize(n, false);
        *self = Self { inlier_mask, backend, ..Self::default() };
    }
}

/// Why a registration has its status.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Reason {
    /// Nothing to add.
    #[error("")]
    None,
    /// Fewer than three correspondences.
    #[error("too_few:{0}<3")]
    TooFew(usize),
    /// More correspondences than memory was made for.
    #[error("too_many:{got}>{max}")]
    TooMany {
        /// correspondences given
        got: usize,
        /// capacity
        max: usize,
    },
    /// No three correspondences agree with each other.
    #[error("no_triple: no three correspondences agree")]
    NoTriple,
    /// All agreeing triples are close to a line or a point.
    #[error("collinear: the agreeing correspondences lie on a line or in a point")]
    Collinear,
    /// A reflection explains the correspondences better than any rotation.
    #[error("mirrored: a reflection fits better; it has {mirrored} inliers, the best rotation {proper}")]
    Mirrored {
        /// inliers of the reflection
        mirrored: usize,
        /// inliers of the pose
        proper: usize,
    },
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
    #[error("chance: 10^{0:.1} such poses expected among random correspondences")]
    Chance(f64),
    /// The time budget was spent.
    #[error("over_budget: {0:.1} ms")]
    OverBudget(f64),
    /// The GPU failed.
    #[error("gpu_fault: CUDA error {0}")]
    GpuFault(i32),
}

/// The best pose that is elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunnerUp {
    /// The pose.
    pub target_t_source: Rigid,
    /// Its score over all correspondences.
    pub score: f64,
    /// Its inliers.
    pub inliers: usize,
}

/// What the capacities of the bounded search cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Truncation {
    /// Rows with more neighbours than L.
    pub rows: u64,
    /// Neighbours that had no vote because of L.
    pub voters: u64,
    /// Scored edges dropped because of L.
    pub edges: u64,
    /// Scored edges not offered as pivots because of m.
    pub pool: u64,
}

/// Microseconds spent in each stage of one registration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageTimes {
    /// Centring and layout of the input.
    pub upload: f64,
    /// Compatibility graph.
    pub fog: f64,
    /// Scores of the edges and the pivots selected by them.
    pub sog: f64,
    /// Merge and order of the pivots.
    pub pivots: f64,
    /// Search for triples.
    pub cliques: f64,
    /// Poses of the triples and their scores.
    pub hypotheses: f64,
    /// Refinement, runner-up and acceptance.
    pub refine: f64,
}

impl StageTimes {
    /// Names in the order of [`StageTimes::values`]: keys of diagnostics and columns of reports.
    pub const NAMES: [&'static str; 7] =
        ["upload", "fog", "sog", "pivots", "cliques", "hypotheses", "refine"];

    /// The times in the order of the names, microseconds.
    pub fn values(&self) -> [f64; 7] {
        [self.upload, self.fog, self.sog, self.pivots, self.cliques, self.hypotheses, self.refine]
    }

    /// Microseconds in all stages.
    pub fn total(&self) -> f64 {
        self.values().iter().sum()
    }
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            status: Status::TooFew,
            reason: Reason::TooFew(0),
            target_t_source: None,
            inlier_mask: Vec::new(),
            inliers: 0,
            independent_inliers: 0,
            score: 0.0,
            log10_false_alarms: 0.0,
            log10_false_alarms_off_line: 0.0,
            covariance: Matrix6::zeros(),
            runner_up: None,
            margin: 1.0,
            spread: [0.0; 3],
            edges: 0,
            pivots: 0,
            triples: 0,
            truncation: Truncation::default(),
            stages: StageTimes::default(),
            backend: "cpu",
        }
    }
}
