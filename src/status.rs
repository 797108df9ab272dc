//! Every status and counter name: the categories of `/diagnostics`, the columns of reports and
//! the tables of the README come from here; `tests/params.rs` holds them together.

use std::fmt;

/// Declares an enumeration with a snake_case name and a meaning for each variant.
macro_rules! named {
    ($(#[$m:meta])* $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[doc = $doc])+ $variant),+ }
        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The name in diagnostics, reports and the README.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
            /// What it means.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+)),+ }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.name()) }
        }
    };
}

named!(
    /// The outcome of a frame, and the failure category of the node. The order is the order in
    /// which causes are named when several hold.
    Status {
        /// The pose is trusted and published.
        Ok = "ok",
        /// No map has been loaded.
        MissingMap = "missing_map",
        /// No message has arrived yet.
        WaitingInput = "waiting_input",
        /// A transform that is needed is not known at the stamp of the message.
        MissingTf = "missing_tf",
        /// The message cannot be read or makes no sense.
        BadInput = "bad_input",
        /// The message is too old, from the future, or has no stamp; or none has come for a while.
        StaleInput = "stale_input",
        /// Fewer than three usable correspondences.
        TooFew = "too_few",
        /// The correspondences do not fix a pose: collinear, coincident, or mirrored.
        Degenerate = "degenerate",
        /// Another pose explains the correspondences, or the scans, nearly as well.
        Ambiguous = "ambiguous",
        /// No pose has more support than chance would give.
        LowInliers = "low_inliers",
        /// Too little of the scan lies on the map, or the map contradicts it.
        LowOverlap = "low_overlap",
        /// A place explains the scans so far; more of them have to agree before it is trusted.
        Unconfirmed = "unconfirmed",
        /// The time budget was spent before the answer.
        OverBudget = "over_budget",
        /// The GPU failed; nothing of it was used.
        GpuFault = "gpu_fault",
        /// The node was switched off by `set_active`.
        Inactive = "inactive",
    }
);

named!(
    /// What is counted since the start.
    Counter {
        /// Messages received.
        Received = "received",
        /// Messages replaced by a newer one before they were looked at.
        Overwritten = "overwritten",
        /// Poses accepted.
        Accepted = "accepted",
        /// Of these, not broadcast: one measured later had been accepted before.
        Superseded = "superseded",
        /// Refused: a required field is absent.
        RefusedMissingField = "refused.missing_field",
        /// Refused: a field has an unusable type.
        RefusedBadDatatype = "refused.bad_datatype",
        /// Refused: sizes in the message contradict each other.
        RefusedLayout = "refused.layout",
        /// Refused: fewer than three usable rows.
        RefusedTooFew = "refused.too_few",
        /// Refused: all values are absurd under the byte order that the message claims.
        RefusedEndianness = "refused.endianness",
        /// Refused: stamp zero, too old, or in the future.
        RefusedStamp = "refused.stamp",
        /// Refused: there is no map.
        RefusedMissingMap = "refused.missing_map",
        /// Refused: a map that cannot be used.
        RefusedMap = "refused.map",
        /// Refused: a transform is unknown at the stamp.
        RefusedMissingTf = "refused.missing_tf",
        /// Refused: an initial pose that cannot be used.
        RefusedInitialpose = "refused.initialpose",
        /// Refused: camera calibration that cannot be used.
        RefusedCameraInfo = "refused.camera_info",
        /// Rejected: degenerate.
        RejectedDegenerate = "rejected.degenerate",
        /// Rejected: ambiguous.
        RejectedAmbiguous = "rejected.ambiguous",
        /// Rejected: not more inliers than chance.
        RejectedLowInliers = "rejected.low_inliers",
        /// Rejected: the scan does not lie well enough on the map.
        RejectedLowOverlap = "rejected.low_overlap",
        /// Rejected: not yet confirmed by enough scans.
        RejectedUnconfirmed = "rejected.unconfirmed",
        /// Rejected: time budget spent.
        RejectedOverBudget = "rejected.over_budget",
        /// Rows dropped because a number is not finite.
        DroppedNonFinite = "dropped_rows.non_finite",
        /// Rows dropped because the weight is zero, negative or not a number.
        DroppedWeight = "dropped_rows.weight",
        /// Rows dropped because a pixel is outside the image, or no ray of the camera has it.
        DroppedPixel = "dropped_rows.pixel",
        /// Rows beyond max_correspondences.
        TruncatedRows = "truncated_rows",
        /// Times that the clock or the stamps jumped back.
        ClockJumps = "clock_jumps",
        /// Errors of the GPU.
        GpuFaults = "gpu_faults",
    }
);

named!(
    /// How the track of a root of a polynomial system ended.
    TrackStatus {
        /// A regular root, polished.
        Ok = "ok",
        /// It went to infinity.
        Diverged = "diverged",
        /// It ended in a multiple root, on a curve of roots, or began where no regular root is.
        Singular = "singular",
        /// It could not be followed with steps of a sensible length.
        MinStep = "min_step",
        /// Steps or time ran out.
        Budget = "budget",
        /// It came, even when followed with care, to a root that another track has.
        Duplicate = "duplicate",
        /// The parameters are not finite.
        Invalid = "invalid",
    }
);

named!(
    /// What became of a point that was triangulated.
    PointStatus {
        /// The point can be trusted.
        Ok = "ok",
        /// Its views share a centre, or nothing fixes it.
        Singular = "singular",
        /// No point is within the threshold of all its sights.
        Outlier = "outlier",
        /// Its depth is not told from infinity: there is too little parallax.
        Far = "far",
        /// It is behind a camera that sees it.
        Behind = "behind",
    }
);

/// One number per [`Counter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; Counter::ALL.len()])
    }
}

impl Counters {
    /// Adds one.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `n`.
    pub fn add(&mut self, counter: Counter, n: u64) {
        if let Some(value) = self.0.get_mut(counter as usize) {
            *value = value.saturating_add(n);
        }
    }

    /// Adds the numbers of others.
    pub fn add_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(&others.0).for_each(|(to, n)| *to = to.saturating_add(*n));
    }

    /// The number so far.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
    }
}
