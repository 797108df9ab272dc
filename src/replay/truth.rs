//! The true poses of a drive: from a topic, from tf, or from a file.

use crate::io::bag::{Bag, BagError};
use crate::io::trajectory::{self, Trajectory, TrajectoryError};
use crate::localizer::transforms::{TransformBuffer, TransformError};
use crate::messages::point_cloud::PointCloudView;
use crate::messages::poses::{PoseType, PoseView};
use crate::messages::transforms::TransformsView;
use crate::messages::Stamp;
use crate::params::Params;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A chain of transforms is known at a time when its latest link has come; so long is waited for
/// that, seconds.
const HISTORY: f64 = 30.0;

/// Topic of the true relative poses of simulated drives.
pub const RELATIVE: &str = "/ground_truth_2d2d";

/// Where the truth is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Messages of a topic: Odometry, PoseStamped or PoseWithCovarianceStamped.
    Topic(String),
    /// The transform of tf from the second frame to the first.
    Tf(String, String),
    /// A TUM file.
    Tum(PathBuf),
    /// A KITTI file.
    Kitti(PathBuf),
}

/// `tf:PARENT:CHILD`, a file whose name ends in `.kitti`, another file, or a topic.
impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = Path::new(text);
        let is = |extension: &str| path.extension().is_some_and(|it| it.eq_ignore_ascii_case(extension));
        Ok(match text.strip_prefix("tf:").and_then(|frames| frames.split_once(':')) {
            Some((parent, child)) => Self::Tf(parent.to_owned(), child.to_owned()),
            None if is("kitti") => Self::Kitti(path.to_owned()),
            None if path.is_file() || is("tum") || is("txt") => Self::Tum(path.to_owned()),
            None => Self::Topic(text.to_owned()),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => f.write_str(name),
            Self::Tf(parent, child) => write!(f, "tf:{parent}:{child}"),
            Self::Tum(path) | Self::Kitti(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Why there is no truth.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// The bag does not have it.
    #[error(transparent)]
    Bag(#[from] BagError),
    /// It is no trajectory.
    #[error("{from}: {why}")]
    Trajectory {
        /// the source
        from: String,
        /// what is wrong
        why: TrajectoryError,
    },
    /// The chain of transforms is never known.
    #[error("tf:{parent}:{child}: no transform; the last word of tf: {why}")]
    Tf {
        /// frame in which the other is given
        parent: String,
        /// frame whose pose is asked for
        child: String,
        /// why
        why: String,
    },
}

/// True poses, and what should be said of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// The poses of the base in the map.
    pub trajectory: Trajectory,
    /// Poses that were left out, frames that are not those of the parameters.
    pub notes: Vec<String>,
}

impl Truth {
    /// Reads the truth. `times` is the file of times of a KITTI file; without one its lines belong to
    /// the messages of `topic`, one to one.
    pub fn read(
        source: &Source,
        bag: &Bag,
        params: &Params,
        topic: &str,
        times: Option<&Path>,
    ) -> Result<Self, TruthError> {
        let wrong = |why| TruthError::Trajectory { from: source.to_string(), why };
        let from_file = |trajectory: Result<Trajectory, TrajectoryError>| {
            trajectory.map(|trajectory| Self { trajectory, notes: Vec::new() }).map_err(wrong)
        };
        match source {
            Source::Tum(path) => from_file(Trajectory::read_tum(path)),
            Source::Kitti(path) => {
                let times = match times {
                    Some(times) => trajectory::read_times(times).map_err(wrong)?,
                    None => stamps(bag, topic),
                };
                from_file(Trajectory::read_kitti(path, &times))
            }
            Source::Topic(name) => {
                let mut found = Found::default();
                let frames = [params.frames.map.as_str(), params.frames.base.as_str()].map(Some);
                from_topic(bag, name, frames, &mut found)?;
                found.end().map_err(wrong)
            }
            Source::Tf(parent, child) => {
                let mut found = Found::default();
                let why = from_tf(bag, parent, child, &mut found);
                if found.poses.is_empty() {
                    let (parent, child) = (parent.clone(), child.clone());
                    return Err(TruthError::Tf { parent, child, why });
                }
                found.end().map_err(wrong)
            }
        }
    }

    /// Reads the true poses of the camera in its reference view from a topic.
    pub fn read_relative(name: &str, bag: &Bag, params: &Params) -> Result<Self, TruthError> {
        let mut found = Found::default();
        from_topic(bag, name, [Some(params.camera.reference_frame.as_str()), None], &mut found)?;
        found.end().map_err(|why| TruthError::Trajectory { from: name.to_owned(), why })
    }
}

/// The topic of true relative poses: the one that was asked for, or [`RELATIVE`] if the bag has it.
pub fn relative_topic(bag: &Bag, asked: Option<&str>) -> Option<String> {
    let is_there = || bag.require(RELATIVE, &PoseType::ALL.map(PoseType::name)).is_ok();
    asked.map(str::to_owned).or_else(|| is_there().then(|| RELATIVE.to_owned()))
}

/// Poses by stamp, as far as they can be used.
#[derive(Default)]
struct Found {
    poses: BTreeMap<Stamp, crate::geometry::Rigid>,
    /// Why poses were left out: how often, and the first reason.
    refused: BTreeMap<&'static str, (u64, String)>,
    frames: BTreeSet<String>,
}

impl Found {
    fn refuse(&mut self, what: &'static str, why: impl fmt::Display) {
        let entry = self.refused.entry(what).or_insert_with(|| (0, why.to_string()));
        entry.0 += 1;
    }

    fn add(&mut self, stamp: Stamp, pose: Result<crate::geometry::Rigid, TrajectoryError>) {
        match pose {
            Err(error) => self.refuse("unusable", error),
            // The same pose again says nothing new.
            Ok(pose) if self.poses.get(&stamp).is_some_and(|known| *known != pose) => {
                self.refuse("duplicate", TrajectoryError::Duplicate(stamp));
            }
            Ok(pose) => {
                self.poses.insert(stamp, pose);
            }
        }
    }

    fn end(self) -> Result<Truth, TrajectoryError> {
        let refused = self.refused.into_iter();
        let mut notes: Vec<String> = refused
            .map(|(what, (times, why))| {
                format!("{times} poses of the truth left out as {what}, the first: {why}")
            })
            .collect();
        notes.extend(self.frames);
        let trajectory = Trajectory::new(self.poses.into_iter().collect())?;
        Ok(Truth { trajectory, notes })
    }
}

/// `frames`: in which the poses should be and whose they should be, where that is known.
fn from_topic(bag: &Bag, name: &str, frames: [Option<&str>; 2], found: &mut Found) -> Result<(), BagError> {
    let topic = bag.require(name, &PoseType::ALL.map(PoseType::name))?;
    let kind = PoseType::ALL.into_iter().find(|kind| bag.require(&topic.name, &[kind.name()]).is_ok());
    let kind = kind.unwrap_or(PoseType::Pose);
    let mut messages = bag.messages(&[name]);
    let slashless = |frame: &str| frame.trim_start_matches('/').to_owned();
    while let Some(message) = messages.next() {
        let view = match PoseView::parse(kind, message.data) {
            Ok(view) => view,
            Err(error) => {
                found.refuse("unreadable", error);
                continue;
            }
        };
        let index = found.poses.len();
        found.add(view.stamp, trajectory::pose(view.position, view.orientation, index));
        let expected = [Some(view.frame), view.child].into_iter().zip(frames);
        for (got, want) in expected {
            let got = got.map(slashless).zip(want).filter(|(got, want)| got != want);
            if let Some((got, want)) = got {
                let note = format!("the truth names frame '{got}' where '{want}' is meant: taken as that");
                found.frames.insert(note);
            }
        }
    }
    Ok(())
}

/// The chain at every stamp of one of its moving links, as soon as all of them are known there.
/// Returns the last error.
fn from_tf(bag: &Bag, parent: &str, child: &str, found: &mut Found) -> String {
    let mut buffer = TransformBuffer::new(HISTORY);
    let mut open: BTreeSet<Stamp> = BTreeSet::new();
    let mut why = "no message on /tf".to_owned();
    let mut messages = bag.messages(&["/tf", "/tf_static"]);
    while let Some(message) = messages.next() {
        let view = match TransformsView::parse(message.data) {
            Ok(view) => view,
            Err(error) => {
                found.refuse("unreadable", error);
                continue;
            }
        };
        let is_static = message.topic == 1;
        for sample in view.clone() {
            match buffer.insert(&sample, is_static) {
                Err(error) => found.refuse("unusable", error),
                Ok(()) if !is_static => {
                    open.insert(sample.stamp);
                }
                Ok(()) => {}
            }
        }
        // What is not yet known at a stamp is not known later either.
        while let Some(stamp) = open.first().copied() {
            match buffer.lookup(parent, child, stamp) {
                Ok(pose) => found.add(stamp, Ok(pose)),
                Err(error) => {
                    why = error.to_string();
                    let is_hopeless = matches!(error, TransformError::Past { .. });
                    let newest = open.last().copied().unwrap_or_default();
                    if !is_hopeless && newest.seconds_since(stamp) <= HISTORY {
                        break;
                    }
                }
            }
            open.pop_first();
        }
    }
    why
}

/// When the clouds of a topic were measured.
fn stamps(bag: &Bag, topic: &str) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    let mut messages = bag.messages(&[topic]);
    while let Some(message) = messages.next() {
        stamps.extend(PointCloudView::parse(message.data).map(|cloud| cloud.stamp));
    }
    stamps
}
