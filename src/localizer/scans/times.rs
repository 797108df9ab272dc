//! Times of the stages of a scan.

/// Time of each stage of a scan, microseconds; zero where it was not entered.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageTimes {
    /// Motion during the sweep undone.
    pub deskew: f64,
    /// Voxels and normals.
    pub surface: f64,
    /// Alignment to the map at the places that are known.
    pub track: f64,
    /// Descriptors.
    pub features: f64,
    /// Matches of the descriptors with those of the map.
    pub matching: f64,
    /// Poses from the matches.
    pub register: f64,
    /// Alignment and verification of the poses, and the choice among the places.
    pub places: f64,
}

impl StageTimes {
    /// Names in the order of [`StageTimes::values`]: keys of diagnostics and columns of reports.
    pub const NAMES: [&'static str; 7] =
        ["deskew", "surface", "track", "features", "matching", "register", "places"];

    /// The times in the order of the names, microseconds.
    pub fn values(&self) -> [f64; 7] {
        [self.deskew, self.surface, self.track, self.features, self.matching, self.register, self.places]
    }

    /// Microseconds in all stages.
    pub fn total(&self) -> f64 {
        self.values().iter().sum()
    }
}
