//! Every parameter of the program: name, type, unit, range, default and meaning, in one place.
//!
//! The `params!` table below is the only list. From it come the [`Params`] struct, the ROS
//! parameters of the node, `config/localizer.yaml` ([`Params::to_yaml`]) and the README table
//! ([`Params::to_markdown`]); `tests/params.rs` holds them together.

mod spec;
mod text;

use spec::{check_range, words, ParamType};
pub use spec::{ParamError, Range, Spec, Value};
pub use text::is_ros_own;

words!(
    /// Which backend computes.
    BackendChoice {
        /// CUDA where it works, else the CPU, with the reason said.
        Auto = "auto",
        /// CUDA or an error.
        Cuda = "cuda",
        /// The CPU.
        Cpu = "cpu",
    }
);
words!(
    /// How the GPU scores edges and selects pivots.
    Launch {
        /// Cooperative where the device can, else consecutive.
        Auto = "auto",
        /// One kernel whose blocks wait for each other.
        Cooperative = "cooperative",
        /// Two kernels, one after another.
        Consecutive = "consecutive",
    }
);
words!(
    /// What follows when the GPU is lost.
    OnFault {
        /// The CPU takes over.
        Cpu = "cpu",
        /// The node ends, for a supervisor to start it again.
        Exit = "exit",
    }
);
words!(
    /// Which transform the node broadcasts.
    TfMode {
        /// map -> odom (REP-105)
        MapOdom = "map_odom",
        /// map -> base, for robots without odometry
        MapBase = "map_base",
        /// none: the pose topic only
        None = "none",
    }
);
words!(
    /// What to do with a message whose stamp is zero.
    StampZero {
        /// Refuse it.
        Refuse = "refuse",
        /// Take it as measured now.
        Now = "now",
    }
);
words!(
    /// Reliability asked of the publishers of input.
    InputQos {
        /// The `sensor_data` profile, keep_last 1.
        BestEffort = "best_effort",
        /// Reliable, keep_last 1.
        Reliable = "reliable",
    }
);
words!(
    /// How the graph is searched.
    Search {
        /// Nothing truncated.
        Exact = "exact",
        /// The paper's capacities L and m; what they cut is counted.
        Bounded = "bounded",
    }
);
words!(
    /// How a hypothesis is scored over all correspondences (appendix A9 of the design).
    Metric {
        /// Number of inliers.
        Inliers = "inliers",
        /// Sum of max(0, 1 - r / theta).
        Linear = "linear",
        /// Sum of max(0, 1 - r^2 / theta^2).
        Quadratic = "quadratic",
    }
);
words!(
    /// Where the direction of gravity comes from.
    Gravity {
        /// Not used: 6 degrees of freedom.
        Off = "off",
        /// The odometry frame is level: 4 degrees of freedom.
        Odom = "odom",
    }
);

words!(
    /// What of a camera is not known beside its pose.
    CameraProblem {
        /// Nothing: three points fix the pose.
        Calibrated = "calibrated",
        /// Nothing, and no row is wrong: all of them together fix the pose.
        Pnp = "pnp",
        /// The focal length.
        Focal = "focal",
        /// The focal length and the distortion.
        FocalRadial = "focal_radial",
        /// The motion while the rows of the image are read.
        RollingShutter = "rolling_shutter",
        /// The same where the turn of the camera is far from that of one that stands still.
        RollingShutterLinear = "rolling_shutter_1lin",
    }
);
words!(
    /// What solves minimal samples.
    CameraSolver {
        /// The faster one, as measured.
        Auto = "auto",
        /// A solver made for the problem, where there is one.
        ClosedForm = "closed_form",
        /// Homotopy continuation.
        Homotopy = "homotopy",
    }
);
words!(
    /// How samples are drawn.
    Sampling {
        /// Every row alike.
        Uniform = "uniform",
        /// From the heaviest rows first (PROSAC).
        Prosac = "prosac",
    }
);

/// Declares the parameter groups: structs, defaults, specs, and access by name.
macro_rules! params {
    ($($(#[doc = $gdoc:literal])+ $group:ident : $gty:ident {
        $($(#[doc = $doc:literal])+ $field:ident : $ty:ty = $default:expr, $unit:literal, $range:expr, $live:literal;)+
    })+) => {
        $(
            $(#[doc = $gdoc])+
            #[derive(Debug, Clone, PartialEq)]
            pub struct $gty { $($(#[doc = $doc])+ pub $field: $ty,)+ }
            impl Default for $gty {
                fn default() -> Self { Self { $($field: $default,)+ } }
            }
        )+
        /// All parameters, by group.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct Params { $($(#[doc = $gdoc])+ pub $group: $gty,)+ }

        const SPECS: &[Spec] = &[$($(Spec {
            name: concat!(stringify!($group), ".", stringify!($field)),
            doc: concat!($($doc),+),
            unit: $unit,
            range: $range,
            live: $live,
        },)+)+];

        const GROUPS: &[(&str, &str)] = &[$((stringify!($group), concat!($($gdoc),+)),)+];

        impl Params {
            /// The value of a parameter, if it exists.
            pub fn get(&self, name: &str) -> Option<Value> {
                match name {
                    $($(concat!(stringify!($group), ".", stringify!($field)) => Some(self.$group.$field.to_value()),)+)+
                    _ => None,
                }
            }

            /// Writes a value whose type fits; `false` if it does not.
            fn put(&mut self, name: &str, value: &Value) -> Result<bool, &'static str> {
                match name {
                    $($(concat!(stringify!($group), ".", stringify!($field)) => match <$ty>::from_value(value) {
                        Some(v) => { self.$group.$field = v; Ok(true) }
                        None => Err(<$ty as ParamType>::KIND),
                    },)+)+
                    _ => Ok(false),
                }
            }
        }
    };
}

params! {
    /// Backend that computes.
    backend: BackendParams {
        /// Which backend computes; an explicit cuda that cannot be had is an error.
        kind: BackendChoice = BackendChoice::Auto, "", Range::OneOf(BackendChoice::WORDS), false;
        /// What a GPU that fails twice, or does not come back, leads to: the CPU takes over, or the node ends with exit code 1.
        on_fault: OnFault = OnFault::Cpu, "", Range::OneOf(OnFault::WORDS), false;
        /// Threads of the CPU backend; 0 takes all cores.
        threads: i64 = 0, "", Range::Within(0.0, 1024.0), false;
        /// How the CUDA backend scores edges and selects pivots.
        launch: Launch = Launch::Auto, "", Range::OneOf(Launch::WORDS), false;
        /// The CUDA backend launches a frame as one graph instead of kernel by kernel.
        graph: bool = true, "", Range::Any, false;
        /// Multiprocessors that the CUDA backend has blocks for; 0 takes all.
        multiprocessors: i64 = 0, "", Range::Within(0.0, 1024.0), false;
        /// Problems of a batch that the CUDA backend works on at the same time.
        batch: i64 = 8, "", Range::Within(1.0, 64.0), false;
    }
    /// Names of the coordinate frames (REP-105).
    frames: FrameParams {
        /// Fixed frame of the map; parent of the published transform.
        map: String = "map".to_owned(), "", Range::NonEmpty, false;
        /// Odometry frame: continuous, drifting.
        odom: String = "odom".to_owned(), "", Range::NonEmpty, false;
        /// Frame of the robot's body.
        base: String = "base_link".to_owned(), "", Range::NonEmpty, false;
    }
    /// What is broadcast on /tf.
    tf: TfParams {
        /// Transform that is broadcast: map->odom, map->base, or none.
        mode: TfMode = TfMode::MapOdom, "", Range::OneOf(TfMode::WORDS), false;
        /// Added to the stamp of the measurement, so that a look-up at the present time succeeds.
        transform_tolerance: f64 = 0.1, "s", Range::Within(0.0, 10.0), true;
        /// How long the last accepted transform is sent again while new input is rejected; then it stops.
        hold_sec: f64 = 2.0, "s", Range::Within(0.0, 3600.0), true;
        /// How long a message waits for the transforms at its stamp.
        wait_sec: f64 = 0.1, "s", Range::Within(0.0, 10.0), true;
        /// Length of the transform history that is kept.
        buffer_sec: f64 = 10.0, "s", Range::Within(0.5, 600.0), false;
    }
    /// Messages that come in.
    input: InputParams {
        /// Reliability asked of publishers; a best_effort subscriber hears both kinds.
        qos: InputQos = InputQos::BestEffort, "", Range::OneOf(InputQos::WORDS), false;
        /// A message measured longer ago than this is refused.
        max_age_sec: f64 = 1.0, "s", Range::Within(0.01, 3600.0), true;
        /// A message stamped later than this in the future is refused.
        max_future_sec: f64 = 1.0, "s", Range::Within(0.0, 60.0), true;
        /// What to do with a message whose stamp is zero.
        stamp_zero: StampZero = StampZero::Refuse, "", Range::OneOf(StampZero::WORDS), true;
        /// Read the numbers as little-endian whatever is_bigendian says (some drivers set it wrongly).
        force_little_endian: bool = false, "", Range::Any, true;
    }
    /// FlashReg, the registration of 3D-3D correspondences.
    registration: RegistrationParams {
        /// Largest difference of two lengths that are called equal (FOG, Eq. 2).
        tau: f64 = 0.012, "m", Range::Within(1e-6, 100.0), true;
        /// Two correspondences closer than this (sum of both lengths) are not compared (FOG, Eq. 2: r).
        min_length: f64 = 0.15, "m", Range::Within(0.0, 1000.0), true;
        /// Largest residual of an inlier (theta).
        inlier_threshold: f64 = 0.1, "m", Range::Within(1e-6, 100.0), true;
        /// Edges of the graph that start the clique search (Eq. 7: K).
        pivots: i64 = 1000, "", Range::Within(1.0, 100000.0), true;
        /// Triples kept per pivot (T).
        triples_per_pivot: i64 = 2, "", Range::Within(1.0, 16.0), true;
        /// Score of a hypothesis.
        metric: Metric = Metric::Quadratic, "", Range::OneOf(Metric::WORDS), true;
        /// More correspondences than this are cut to the heaviest; memory is sized for it at start.
        max_correspondences: i64 = 16384, "", Range::Within(3.0, 32768.0), false;
        /// exact: nothing truncated; bounded: the paper's capacities.
        search: Search = Search::Exact, "", Range::OneOf(Search::WORDS), true;
        /// bounded: voters and scored edges kept per row (L).
        bounded_row_capacity: i64 = 512, "", Range::Within(1.0, 4096.0), true;
        /// bounded: edges per row offered to the pivot selection (m).
        bounded_pool_size: i64 = 32, "", Range::Within(1.0, 4096.0), true;
        /// bounded: triples a thread keeps while it searches (kappa, at least triples_per_pivot).
        bounded_thread_candidates: i64 = 4, "", Range::Within(1.0, 64.0), true;
        /// Known direction of gravity: off (6 degrees of freedom) or odom (4: yaw and translation; the odometry frame must be level).
        gravity: Gravity = Gravity::Off, "", Range::OneOf(Gravity::WORDS), true;
        /// A registration that takes longer is given up; 0 sets no limit.
        time_budget_ms: f64 = 0.0, "ms", Range::Within(0.0, 60000.0), true;
    }
    /// Poses of a camera from 2D-3D and 2D-2D correspondences.
    camera: CameraParams {
        /// What of the camera is not known beside its pose.
        problem: CameraProblem = CameraProblem::Calibrated, "", Range::OneOf(CameraProblem::WORDS), false;
        /// What solves minimal samples.
        solver: CameraSolver = CameraSolver::Auto, "", Range::OneOf(CameraSolver::WORDS), false;
        /// The pixels are of the rectified image: P of CameraInfo counts, and no distortion.
        rectified: bool = false, "", Range::Any, true;
        /// Largest reprojection error of an inlier, where pixels are given.
        inlier_threshold_px: f64 = 4.0, "px", Range::Within(0.01, 1000.0), true;
        /// Largest angle between an inlier and its ray, where bearings are given.
        inlier_threshold_rad: f64 = 0.008, "rad", Range::Within(1e-6, 0.5), true;
        /// How samples are drawn; prosac is for weights that tell good rows.
        sampling: Sampling = Sampling::Uniform, "", Range::OneOf(Sampling::WORDS), true;
        /// Samples are drawn until a better pose has been missed with no more than one minus this probability.
        confidence: f64 = 0.9999, "", Range::Within(0.5, 0.999999), true;
        /// Most samples.
        max_samples: i64 = 100000, "", Range::Within(1.0, 10000000.0), true;
        /// Start of the random numbers; the same one gives the same answer.
        seed: i64 = 0, "", Range::Within(0.0, 2147483647.0), true;
        /// An estimation that takes longer is given up; 0 sets no limit.
        time_budget_ms: f64 = 0.0, "ms", Range::Within(0.0, 60000.0), true;
        /// More correspondences than this are cut to the heaviest; memory is sized for it at start.
        max_correspondences: i64 = 4096, "", Range::Within(3.0, 32768.0), false;
        /// Frame of the view that 2D-2D correspondences refer to; relative poses are published in it.
        reference_frame: String = "camera_reference".to_owned(), "", Range::NonEmpty, false;
    }
    /// Raw clouds of a sensor, on their way to points with normals and descriptors.
    scan: ScanParams {
        /// Edge of the voxels that map and scans are sampled with; 0 chooses it from the extent of the map.
        voxel_size: f64 = 0.0, "m", Range::Within(0.0, 10.0), false;
        /// Returns closer to the sensor than this are dropped.
        min_range: f64 = 0.5, "m", Range::Within(0.0, 100.0), true;
        /// Returns further from the sensor than this are dropped.
        max_range: f64 = 120.0, "m", Range::Within(1.0, 10000.0), true;
        /// Returns within this distance of the vertical axis of the base are the robot's own body and dropped; 0 keeps them.
        body_radius: f64 = 0.0, "m", Range::Within(0.0, 100.0), true;
        /// Undo the motion during a sweep, where the points have times and tf has odometry.
        deskew: bool = true, "", Range::Any, true;
        /// Features of a scan that are matched with the map at most.
        max_features: i64 = 4000, "", Range::Within(100.0, 32768.0), true;
        /// A match counts if its squared distance is at most this share of that of the second best; 1 keeps all.
        match_ratio: f64 = 1.0, "", Range::Within(0.1, 1.0), true;
    }
    /// The map that raw clouds are localized in.
    map: MapParams {
        /// PCD or PLY file; empty: the latched topic `map`.
        path: String = String::new(), "", Range::Any, false;
        /// Keep what is computed of the map beside its file, for the next start.
        cache: bool = true, "", Range::Any, false;
        /// Edge of the parts that a scan is matched with; 0 derives it.
        submap_size: f64 = 0.0, "m", Range::Within(0.0, 10000.0), false;
    }
    /// When a place found by raw clouds is trusted, and when it is given up.
    localization: LocalizationParams {
        /// Smallest share of a scan that must lie on the map, of what the map could explain.
        min_overlap: f64 = 0.5, "", Range::Within(0.05, 1.0), true;
        /// Scans that must agree on a place before it is trusted.
        min_scans: i64 = 3, "", Range::Within(1.0, 100.0), true;
        /// Places that are kept in mind at the same time while the robot is lost.
        max_places: i64 = 12, "", Range::Within(2.0, 100.0), true;
        /// Time without a scan that fits after which a tracked pose is given up.
        lost_sec: f64 = 1.0, "s", Range::Within(0.0, 60.0), true;
    }
    /// When a pose is trusted.
    acceptance: AcceptanceParams {
        /// Fewer independent inliers than this are never trusted.
        min_inliers: i64 = 10, "", Range::Within(3.0, 100000.0), true;
        /// Expected number of poses this good among random correspondences must be below 10 to the minus this.
        significance: f64 = 8.0, "", Range::Within(0.0, 300.0), true;
        /// A different pose with more than this share of the support makes the answer ambiguous.
        max_runner_up: f64 = 0.7, "", Range::Within(0.0, 1.0), true;
        /// Largest standard deviation of the translation along its weakest direction.
        max_translation_std: f64 = 1.0, "m", Range::Within(1e-6, 1000.0), true;
        /// Largest standard deviation of the rotation about its weakest axis.
        max_rotation_std: f64 = 0.1, "rad", Range::Within(1e-6, 3.2), true;
    }
    /// Covariance of the published pose.
    covariance: CovarianceParams {
        /// Smallest standard deviation of each coordinate that is published; of raw clouds it is scan_translation_std.
        min_translation_std: f64 = 0.2, "m", Range::Within(1e-4, 100.0), true;
        /// Smallest standard deviation of each angle that is published; of raw clouds it is scan_rotation_std.
        min_rotation_std: f64 = 0.035, "rad", Range::Within(1e-4, 3.2), true;
        /// The same of raw clouds, whose covariances are calibrated.
        scan_translation_std: f64 = 0.001, "m", Range::Within(1e-4, 100.0), true;
        /// The same of raw clouds.
        scan_rotation_std: f64 = 0.0001, "rad", Range::Within(1e-4, 3.2), true;
        /// Zero off the diagonal, for consumers that refuse negative cross terms (nav2).
        diagonal_only: bool = false, "", Range::Any, true;
    }
    /// What the node reports.
    diagnostics: DiagnosticsParams {
        /// Period of /diagnostics; a change of status is sent at once.
        period_sec: f64 = 1.0, "s", Range::Within(0.05, 60.0), false;
        /// A warning is logged after this time without input.
        silence_sec: f64 = 5.0, "s", Range::Within(0.1, 3600.0), false;
    }
}

impl Params {
    /// What is known of every parameter, in the order of the table.
    pub fn specs() -> &'static [Spec] {
        SPECS
    }

    /// The spec of a name, or the error that names the nearest valid one.
    pub fn spec(name: &str) -> Result<&'static Spec, ParamError> {
        SPECS
            .iter()
            .find(|s| s.name == name)
            .ok_or_else(|| ParamError::Unknown { name: name.to_owned(), nearest: nearest_name(name) })
    }

    /// Sets one parameter. Refused: unknown name, wrong type, value out of range, contradiction
    /// with another parameter; the parameters are unchanged then.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), ParamError> {
        let mut changed = self.clone();
        changed.set_unchecked(name, value)?;
        changed.check_together()?;
        *self = changed;
        Ok(())
    }

    /// As [`Params::set`], refusing parameters that are read at start only.
    pub fn set_live(&mut self, name: &str, value: &Value) -> Result<(), ParamError> {
        self.set_live_all([(name, value)])
    }

    /// As [`Params::set_all`], refusing parameters that are read at start only.
    pub fn set_live_all<'a>(
        &mut self,
        values: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<(), ParamError> {
        let mut changed = self.clone();
        for (name, value) in values {
            let spec = Self::spec(name)?;
            changed.set_unchecked(name, value)?;
            // Writing the value it already has is harmless, and parameter clients do it.
            if !spec.live && changed.get(name) != self.get(name) {
                return Err(ParamError::StartOnly(spec.name));
            }
        }
        changed.check_together()?;
        *self = changed;
        Ok(())
    }

    /// Checks one value but not the parameters against each other.
    fn set_unchecked(&mut self, name: &str, value: &Value) -> Result<(), ParamError> {
        let spec = Self::spec(name)?;
        if let Err(expected) = check_range(spec.range, value) {
            return Err(match expected {
                true => ParamError::Range { name: spec.name, value: value.to_string(), range: spec.range },
                false => self.type_error(spec, value),
            });
        }
        match self.put(name, value) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.type_error(spec, value)),
        }
    }

    fn type_error(&self, spec: &'static Spec, value: &Value) -> ParamError {
        let expected = self.clone().put(spec.name, value).err().unwrap_or("number");
        ParamError::Type { name: spec.name, expected, got: format!("{} {value}", value.kind()) }
    }

    /// Sets many parameters at once: all or none, so that their order does not matter.
    pub fn set_all<'a>(
        &mut self,
        values: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<(), ParamError> {
        let mut changed = self.clone();
        for (name, value) in values {
            changed.set_unchecked(name, value)?;
        }
        changed.check_together()?;
        *self = changed;
        Ok(())
    }

    fn check_together(&self) -> Result<(), ParamError> {
        let r = &self.registration;
        if r.bounded_thread_candidates < r.triples_per_pivot {
            return Err(ParamError::Conflict {
                name: "registration.bounded_thread_candidates",
                why: format!(
                    "{} is less than registration.triples_per_pivot = {}: a thread could drop a triple that belongs to the best",
                    r.bounded_thread_candidates, r.triples_per_pivot
                ),
            });
        }
        let f = &self.frames;
        if f.map == f.odom || f.map == f.base || f.odom == f.base {
            return Err(ParamError::Conflict {
                name: "frames.map",
                why: format!(
                    "map '{}', odom '{}' and base '{}' must be three different frames",
                    f.map, f.odom, f.base
                ),
            });
        }
        Ok(())
    }
}

/// The valid name with the fewest edits to `name`.
fn nearest_name(name: &str) -> &'static str {
    let best = SPECS.iter().min_by_key(|s| {
        let last = s.name.rsplit('.').next().unwrap_or(s.name);
        edit_distance(name, s.name).min(edit_distance(name, last))
    });
    best.map_or("", |s| s.name)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
