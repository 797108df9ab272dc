//! Faults that can be ordered.

use super::levels::FaultLevels;
use std::str::FromStr;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// All stamps fall back, while messages keep their order of arrival: a clock that is set.
    ClockJump,
    /// No sweeps arrive, and no correspondences of them.
    NoLidar,
    /// No odometry arrives, on tf neither.
    NoOdometry,
    /// No samples of the IMU arrive.
    NoImu,
    /// No views of the camera arrive.
    NoCamera,
    /// Many points of sweeps and correspondences are not a number.
    Nan,
    /// Sweeps have no points.
    Empty,
    /// Sweeps show level ground and nothing else, as on an open field.
    OnlyGround,
    /// The robot stands still: nothing tells the direction to an earlier view.
    Stop,
    /// The robot is carried to another place on its route.
    Kidnap,
    /// Two rooms of the building are the same.
    IdenticalRooms,
    /// Things have been moved since the map was made.
    ChangedMap,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::ClockJump,
        Self::NoLidar,
        Self::NoOdometry,
        Self::NoImu,
        Self::NoCamera,
        Self::Nan,
        Self::Empty,
        Self::OnlyGround,
        Self::Stop,
        Self::Kidnap,
        Self::IdenticalRooms,
        Self::ChangedMap,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClockJump => "clock-jump",
            Self::NoLidar => "no-lidar",
            Self::NoOdometry => "no-odometry",
            Self::NoImu => "no-imu",
            Self::NoCamera => "no-camera",
            Self::Nan => "nan",
            Self::Empty => "empty",
            Self::OnlyGround => "only-ground",
            Self::Stop => "stop",
            Self::Kidnap => "kidnap",
            Self::IdenticalRooms => "identical-rooms",
            Self::ChangedMap => "changed-map",
        }
    }

    /// Numbers that it takes: a time, and a duration.
    fn numbers(self) -> usize {
        match self {
            Self::IdenticalRooms | Self::ChangedMap => 0,
            Self::Kidnap => 1,
            _ => 2,
        }
    }
}

/// A fault that is ordered: `KIND[@T[,DURATION]]`, seconds from the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// When it begins, s; half way if not given.
    pub at: Option<f64>,
    /// How long it lasts, s; as the levels say if not given. A clock jump stays unless it is given.
    pub duration: Option<f64>,
}

/// Why an order cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// No such fault.
    #[error("no fault '{0}'; known are clock-jump, no-lidar, no-odometry, no-imu, no-camera, nan, empty, only-ground, stop, kidnap, identical-rooms, changed-map")]
    Kind(String),
    /// Not a number, or negative.
    #[error("'{0}': a time in seconds, zero or more, is needed")]
    Number(String),
    /// More numbers than the fault takes.
    #[error("{name} takes {takes}")]
    TooMany {
        /// the fault
        name: &'static str,
        /// what it takes
        takes: &'static str,
    },
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (name, times) = text.split_once('@').map_or((text, None), |(name, times)| (name, Some(times)));
        let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| FaultError::Kind(name.to_owned()))?;
        let number = |text: &str| {
            let value = text.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
            value.ok_or_else(|| FaultError::Number(text.to_owned()))
        };
        let numbers: Vec<f64> =
            times.into_iter().flat_map(|t| t.split(',')).map(number).collect::<Result<_, _>>()?;
        if numbers.len() > kind.numbers() {
            let takes = ["no time", "a time, no duration", "a time and a duration"][kind.numbers()];
            return Err(FaultError::TooMany { name: kind.name(), takes });
        }
        Ok(Self { kind, at: numbers.first().copied(), duration: numbers.get(1).copied() })
    }
}

/// The faults of a drive, with their times.
#[derive(Debug, Clone)]
pub(super) struct Faults {
    /// Kind, begin and end, s.
    ordered: Vec<(FaultKind, f64, f64)>,
    levels: FaultLevels,
}

impl Faults {
    pub fn new(ordered: &[Fault], duration: f64, levels: &FaultLevels) -> Self {
        let time = |fault: &Fault| {
            let at = fault.at.unwrap_or(duration / 2.0);
            let lasts = match fault.kind {
                FaultKind::ClockJump => f64::INFINITY,
                _ => levels.duration,
            };
            (fault.kind, at, at + fault.duration.unwrap_or(lasts))
        };
        Self { ordered: ordered.iter().map(time).collect(), levels: *levels }
    }

    /// The place or the map has this fault.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.ordered.iter().any(|(k, _, _)| *k == kind)
    }

    /// It lasts at this time.
    pub fn active(&self, kind: FaultKind, seconds: f64) -> bool {
        self.ordered.iter().any(|(k, from, to)| *k == kind && (*from..*to).contains(&seconds))
    }

    /// How far the clock is behind, s.
    pub fn behind(&self, seconds: f64) -> f64 {
        let jumps = self
            .ordered
            .iter()
            .filter(|(k, from, to)| *k == FaultKind::ClockJump && (*from..*to).contains(&seconds));
        jumps.count() as f64 * self.levels.clock_jump
    }

    /// How long the robot brakes before it stands, s.
    pub fn braking(&self) -> f64 {
        self.levels.braking
    }

    /// When the robot stops and drives on, s, and how long it brakes.
    pub fn stops(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let stops = self.ordered.iter().filter(|(kind, _, _)| *kind == FaultKind::Stop);
        stops.map(|(_, from, to)| (*from, *to, self.levels.braking))
    }

    /// When the robot is carried, s, and how far, as a share of the route.
    pub fn kidnaps(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let kidnaps = self.ordered.iter().filter(|(kind, _, _)| *kind == FaultKind::Kidnap);
        kidnaps.map(|(_, at, _)| (*at, self.levels.kidnap))
    }
}
