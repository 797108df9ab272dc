//! The transforms of `/tf` and `/tf_static`, kept for a while: where a frame was at a time.
//!
//! Each child frame has one parent. Between two samples the translation is interpolated linearly
//! and the rotation along the great arc; before the first and after the last there is no answer,
//! only an error that says by how much. Memory is bounded whatever arrives.

use crate::geometry::{interpolate, Rigid, Vector};
use crate::messages::transforms::{TransformSample, TransformsView};
use crate::messages::Stamp;
use nalgebra::{Quaternion, UnitQuaternion};
use std::collections::{HashMap, VecDeque};

/// Child frames that are kept at most.
pub const MAX_FRAMES: usize = 1024;
/// Samples of all frames together that are kept at most, about 70 MB.
pub const MAX_SAMPLES: usize = 1 << 20;
/// Longest name of a frame, bytes.
pub const MAX_NAME: usize = 256;
/// A quaternion whose norm differs from 1 by more than this is refused; by less, it is normalised.
pub const MAX_NORM_ERROR: f64 = 1e-3;

/// Why a transform was not taken, or cannot be told.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TransformError {
    /// No transform names this frame.
    #[error("frame '{0}' is unknown to tf")]
    UnknownFrame(String),
    /// Both frames are known, but no chain of transforms joins them.
    #[error("frames '{target}' and '{source_frame}' are not connected in tf")]
    NotConnected {
        /// frame asked for
        target: String,
        /// frame to be expressed in it
        source_frame: String,
    },
    /// The time is before the oldest sample.
    #[error("transform '{parent}' -> '{child}' is known only from {by:.3} s after the stamp")]
    Past {
        /// parent frame
        parent: String,
        /// child frame
        child: String,
        /// seconds missing
        by: f64,
    },
    /// The time is after the newest sample.
    #[error("transform '{parent}' -> '{child}' is known only until {by:.3} s before the stamp")]
    Future {
        /// parent frame
        parent: String,
        /// child frame
        child: String,
        /// seconds missing
        by: f64,
    },
    /// A name is empty or too long.
    #[error("a frame of the transform has a name of {0} bytes, 1 to {MAX_NAME} are allowed")]
    BadName(usize),
    /// Parent and child are the same frame.
    #[error("frame '{0}' is its own parent")]
    SelfParent(String),
    /// A number is not finite.
    #[error("transform '{parent}' -> '{child}' has a number that is not finite")]
    NotFinite {
        /// parent frame
        parent: String,
        /// child frame
        child: String,
    },
    /// The quaternion is not of unit length.
    #[error("transform '{parent}' -> '{child}' has a quaternion of norm {norm}")]
    NotUnit {
        /// parent frame
        parent: String,
        /// child frame
        child: String,
        /// length of the quaternion
        norm: f64,
    },
    /// The parent is below the child already.
    #[error("transform '{parent}' -> '{child}' closes a loop")]
    Loop {
        /// parent frame
        parent: String,
        /// child frame
        child: String,
    },
    /// Older than the history that is kept.
    #[error("transform '{parent}' -> '{child}' is {by:.3} s older than the newest, the history is shorter")]
    TooOld {
        /// parent frame
        parent: String,
        /// child frame
        child: String,
        /// seconds before the newest sample
        by: f64,
    },
    /// The memory for frames is used up.
    #[error("no room for frame '{0}': {MAX_FRAMES} frames, {MAX_SAMPLES} samples are kept at most")]
    Full(String),
}

/// How a child hangs below its parent.
#[derive(Debug, Clone)]
struct Link {
    parent: String,
    motion: Motion,
}

#[derive(Debug, Clone)]
enum Motion {
    Static(Rigid),
    /// Never empty; stamps ascend.
    Dynamic(VecDeque<(Stamp, Rigid)>),
}

/// The history of all transforms.
#[derive(Debug, Clone)]
pub struct TransformBuffer {
    /// By child frame.
    links: HashMap<String, Link>,
    samples: usize,
    history: f64,
    reparented: u64,
}

impl TransformBuffer {
    /// An empty buffer that keeps `history` seconds of each transform.
    pub fn new(history: f64) -> Self {
        Self { links: HashMap::new(), samples: 0, history, reparented: 0 }
    }

    /// Takes the transforms of a message (CDR bytes), as far as they can be taken; the text of the first
    /// that was refused.
    pub fn insert_message(&mut self, cdr: &[u8], is_static: bool) -> Result<(), String> {
        let view = TransformsView::parse(cdr).map_err(|e| e.to_string())?;
        let mut refused = Ok(());
        for sample in view {
            let taken = self.insert(&sample, is_static);
            if refused.is_ok() {
                refused = taken.map_err(|e| e.to_string());
            }
        }
        refused
    }

    /// Takes a transform of `/tf`, or of `/tf_static` if `is_static`: a static one holds at all
    /// times. Samples may come in any order; a second one of the same stamp replaces the first. A
    /// new parent, or a change between static and moving, begins the child's history anew.
    pub fn insert(&mut self, sample: &TransformSample, is_static: bool) -> Result<(), TransformError> {
        let (parent, child) = (normalised(sample.parent), normalised(sample.child));
        let parent_t_child = checked(parent, child, sample)?;
        let known = self.links.get(child).is_some_and(|link| link.parent == parent);
        if !known {
            self.attach(parent, child)?;
        }
        let history = self.history;
        let full = self.samples >= MAX_SAMPLES;
        let Some(link) = self.links.get_mut(child) else {
            return Err(TransformError::Full(child.to_owned()));
        };
        if is_static {
            self.samples -= link.motion.len();
            link.motion = Motion::Static(parent_t_child);
            return Ok(());
        }
        let Motion::Dynamic(samples) = &mut link.motion else {
            link.motion = Motion::Dynamic(VecDeque::from([(sample.stamp, parent_t_child)]));
            self.samples += 1;
            return Ok(());
        };
        let before = samples.len();
        let newest = samples.back().map_or(sample.stamp, |s| s.0);
        let age = newest.seconds_since(sample.stamp);
        if age > history {
            return Err(TransformError::TooOld {
                parent: parent.to_owned(),
                child: child.to_owned(),
                by: age,
            });
        }
        let at = samples.partition_point(|s| s.0 < sample.stamp);
        match samples.get_mut(at) {
            Some(same) if same.0 == sample.stamp => same.1 = parent_t_child,
            _ => {
                // With no room left, a frame may only replace its own oldest sample.
                if full && samples.pop_front().is_none() {
                    return Err(TransformError::Full(child.to_owned()));
                }
                let at = if full { at.saturating_sub(1) } else { at };
                samples.insert(at, (sample.stamp, parent_t_child));
            }
        }
        let newest = samples.back().map_or(sample.stamp, |s| s.0);
        while samples.front().is_some_and(|s| newest.seconds_since(s.0) > history) {
            samples.pop_front();
        }
        self.samples = (self.samples + samples.len()).saturating_sub(before);
        Ok(())
    }

    /// Hangs a child below a parent, with an empty history.
    fn attach(&mut self, parent: &str, child: &str) -> Result<(), TransformError> {
        // No loop exists, so the walk ends.
        let mut above = Some(parent);
        while let Some(frame) = above {
            if frame == child {
                return Err(TransformError::Loop { parent: parent.to_owned(), child: child.to_owned() });
            }
            above = self.parent(frame);
        }
        let link = Link { parent: parent.to_owned(), motion: Motion::Dynamic(VecDeque::new()) };
        match self.links.get_mut(child) {
            Some(old) => {
                self.samples -= old.motion.len();
                self.reparented += 1;
                *old = link;
            }
            None => {
                if self.links.len() >= MAX_FRAMES {
                    return Err(TransformError::Full(child.to_owned()));
                }
                self.links.insert(child.to_owned(), link);
            }
        }
        Ok(())
    }

    fn parent(&self, frame: &str) -> Option<&str> {
        self.links.get(frame).map(|link| link.parent.as_str())
    }

    /// Forgets all that moves and keeps what is static: the clock has jumped.
    pub fn clear(&mut self) {
        self.links.retain(|_, link| matches!(link.motion, Motion::Static(_)));
        self.samples = 0;
    }

    /// Samples kept of moving frames.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Nothing is known, neither static nor moving.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// How often a child changed its parent. More than a few: two nodes publish the same frame.
    pub fn reparented(&self) -> u64 {
        self.reparented
    }

    /// `target_t_source` at a time. A frame in itself is the identity, known to tf or not.
    pub fn lookup(&self, target: &str, source: &str, stamp: Stamp) -> Result<Rigid, TransformError> {
        let (target, source) = (normalised(target), normalised(source));
        if target == source {
            return Ok(Rigid::identity());
        }
        let ((target_root, mut target_depth), (source_root, mut source_depth)) =
            (self.root(target), self.root(source));
        if target_root != source_root {
            return Err(self.why_not_connected(target, source));
        }
        // Climb from the deeper frame until both have met.
        let (mut at_target, mut at_source) = (target, source);
        let (mut ancestor_t_target, mut ancestor_t_source) = (Rigid::identity(), Rigid::identity());
        while at_target != at_source {
            let (frame, depth, ancestor_t_frame) = if source_depth >= target_depth {
                (&mut at_source, &mut source_depth, &mut ancestor_t_source)
            } else {
                (&mut at_target, &mut target_depth, &mut ancestor_t_target)
            };
            let Some(link) = self.links.get(*frame) else {
                return Err(self.why_not_connected(target, source));
            };
            *ancestor_t_frame = link.at(frame, stamp)? * *ancestor_t_frame;
            *frame = &link.parent;
            *depth = depth.saturating_sub(1);
        }
        Ok(ancestor_t_target.inv_mul(&ancestor_t_source))
    }

    /// The topmost frame above, and how many links it is away.
    fn root<'a>(&'a self, frame: &'a str) -> (&'a str, usize) {
        let (mut root, mut depth) = (frame, 0);
        while let Some(parent) = self.parent(root) {
            (root, depth) = (parent, depth + 1);
        }
        (root, depth)
    }

    fn why_not_connected(&self, target: &str, source: &str) -> TransformError {
        let known = |frame: &str| {
            self.links.contains_key(frame) || self.links.values().any(|link| link.parent == frame)
        };
        match [source, target].into_iter().find(|frame| !known(frame)) {
            Some(unknown) => TransformError::UnknownFrame(unknown.to_owned()),
            None => {
                TransformError::NotConnected { target: target.to_owned(), source_frame: source.to_owned() }
            }
        }
    }
}

impl Motion {
    /// Samples kept.
    fn len(&self) -> usize {
        match self {
            Motion::Static(_) => 0,
            Motion::Dynamic(samples) => samples.len(),
        }
    }
}

impl Link {
    /// `parent_t_child` at a time.
    fn at(&self, child: &str, stamp: Stamp) -> Result<Rigid, TransformError> {
        let samples = match &self.motion {
            Motion::Static(parent_t_child) => return Ok(*parent_t_child),
            Motion::Dynamic(samples) => samples,
        };
        let names = || (self.parent.clone(), child.to_owned());
        let next = samples.partition_point(|s| s.0 < stamp);
        let later = samples.get(next);
        let earlier = next.checked_sub(1).and_then(|i| samples.get(i));
        match (earlier, later) {
            (_, Some(exact)) if exact.0 == stamp => Ok(exact.1),
            (Some(earlier), Some(later)) => {
                let share = stamp.seconds_since(earlier.0) / later.0.seconds_since(earlier.0);
                Ok(interpolate(&earlier.1, &later.1, share))
            }
            (None, Some(first)) => {
                let (parent, child) = names();
                Err(TransformError::Past { parent, child, by: first.0.seconds_since(stamp) })
            }
            (Some(last), None) => {
                let (parent, child) = names();
                Err(TransformError::Future { parent, child, by: stamp.seconds_since(last.0) })
            }
            (None, None) => Err(TransformError::UnknownFrame(child.to_owned())),
        }
    }
}

/// tf2 names have no leading slash; some publishers write one all the same.
pub(super) fn normalised(frame: &str) -> &str {
    frame.strip_prefix('/').unwrap_or(frame)
}

/// `parent_t_child`, if the sample makes sense.
fn checked(parent: &str, child: &str, sample: &TransformSample) -> Result<Rigid, TransformError> {
    for name in [parent, child] {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(TransformError::BadName(name.len()));
        }
    }
    if parent == child {
        return Err(TransformError::SelfParent(child.to_owned()));
    }
    if !sample.translation.iter().chain(&sample.rotation).all(|v| v.is_finite()) {
        return Err(TransformError::NotFinite { parent: parent.to_owned(), child: child.to_owned() });
    }
    let rotation = Quaternion::from(sample.rotation);
    let norm = rotation.norm();
    if (norm - 1.0).abs() > MAX_NORM_ERROR {
        return Err(TransformError::NotUnit { parent: parent.to_owned(), child: child.to_owned(), norm });
    }
    let translation = Vector::from(sample.translation);
    Ok(Rigid::from_parts(translation.into(), UnitQuaternion::from_quaternion(rotation)))
}
