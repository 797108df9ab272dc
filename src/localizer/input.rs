//! What the localizer takes.

use std::fmt;

/// A kind of input. The names are those of the default topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// Points of a sensor matched with points of the map.
    Points3d3d,
    /// Features of a camera matched with points of the map.
    Sights2d3d,
    /// Features of a camera matched with those of another view. The pose is relative to that view.
    Sights2d2d,
    /// Raw clouds of a sensor, localized in a map that is held here.
    Points,
}

impl Input {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Points3d3d, Self::Sights2d3d, Self::Sights2d2d, Self::Points];

    /// Its default topic.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Points3d3d => "correspondences_3d3d",
            Self::Sights2d3d => "correspondences_2d3d",
            Self::Sights2d2d => "correspondences_2d2d",
            Self::Points => "points",
        }
    }

    /// Its pose is one in the map, not relative to another view.
    pub const fn is_absolute(self) -> bool {
        !matches!(self, Self::Sights2d2d)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
