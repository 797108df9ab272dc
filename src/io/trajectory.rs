//! Poses over time: what a trajectory is, and files of them (TUM, KITTI).

use crate::geometry::{interpolate, Rigid};
use crate::messages::Stamp;
use nalgebra::{Matrix3, Quaternion, Rotation3, Translation3, UnitQuaternion};
use std::io::{self, Write};
use std::path::Path;

/// A quaternion whose norm differs from 1 by more than this is refused; by less, it is normalised.
pub const MAX_NORM_ERROR: f64 = 1e-3;
/// A matrix whose rows are further than this from orthonormal is no rotation. KITTI writes six digits.
const MAX_ROTATION_ERROR: f64 = 1e-3;

/// Poses at ascending stamps, all different, every number finite; at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Trajectory {
    stamps: Vec<Stamp>,
    poses: Vec<Rigid>,
}

/// Why poses are no trajectory.
#[derive(Debug, thiserror::Error)]
pub enum TrajectoryError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line does not hold the numbers that it should.
    #[error("bad_line:{line}: {need} numbers needed")]
    BadLine {
        /// line, from 1
        line: usize,
        /// numbers that it should have
        need: usize,
    },
    /// A number is not finite.
    #[error("not_finite: pose {0}")]
    NotFinite(usize),
    /// The quaternion is not of unit length.
    #[error("not_unit: pose {index} has a quaternion of norm {norm}")]
    NotUnit {
        /// pose, from 0
        index: usize,
        /// length of the quaternion
        norm: f64,
    },
    /// The matrix is no rotation.
    #[error("not_a_rotation: pose {0}")]
    NotRotation(usize),
    /// Two poses have the same stamp.
    #[error("duplicate: two poses at {:.9} s", .0.0 as f64 * 1e-9)]
    Duplicate(Stamp),
    /// There is no pose.
    #[error("empty: no pose")]
    Empty,
    /// Poses and times do not belong together.
    #[error("lengths: {poses} poses, {times} times")]
    Lengths {
        /// poses in the file
        poses: usize,
        /// times given
        times: usize,
    },
}

/// Why there is no pose at a stamp.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoPose {
    /// It is before the first pose.
    #[error("{0:.3} s before the first pose")]
    Before(f64),
    /// It is after the last pose.
    #[error("{0:.3} s after the last pose")]
    After(f64),
    /// The poses about it are too far apart.
    #[error("in a gap of {0:.3} s")]
    Gap(f64),
}

impl Trajectory {
    /// From poses in any order. Refused: none, two at one stamp, a number that is not finite.
    pub fn new(mut poses: Vec<(Stamp, Rigid)>) -> Result<Self, TrajectoryError> {
        if poses.is_empty() {
            return Err(TrajectoryError::Empty);
        }
        if let Some(index) = poses.iter().position(|(_, pose)| !is_finite(pose)) {
            return Err(TrajectoryError::NotFinite(index));
        }
        poses.sort_by_key(|(stamp, _)| *stamp);
        for pair in poses.windows(2) {
            if let [(a, _), (b, _)] = pair {
                if a == b {
                    return Err(TrajectoryError::Duplicate(*a));
                }
            }
        }
        let (stamps, poses) = poses.into_iter().unzip();
        Ok(Self { stamps, poses })
    }

    /// Number of poses.
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Never: a trajectory has a pose.
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// When the poses held, ascending.
    pub fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// The poses, in the order of the stamps.
    pub fn poses(&self) -> &[Rigid] {
        &self.poses
    }

    /// Stamps and poses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Stamp, &Rigid)> + Clone + '_ {
        self.stamps.iter().copied().zip(&self.poses)
    }

    /// The pose at a stamp: the one that is there, or between the two about it if they are at most
    /// `max_gap` seconds apart.
    pub fn at(&self, stamp: Stamp, max_gap: f64) -> Result<Rigid, NoPose> {
        let next = self.stamps.partition_point(|s| *s < stamp);
        let get = |i: usize| Some((*self.stamps.get(i)?, self.poses.get(i)?));
        match (next.checked_sub(1).and_then(get), get(next)) {
            (_, Some((later, pose))) if later == stamp => Ok(*pose),
            (Some((earlier, a)), Some((later, b))) => {
                let gap = later.seconds_since(earlier);
                match gap <= max_gap {
                    true => Ok(interpolate(a, b, stamp.seconds_since(earlier) / gap)),
                    false => Err(NoPose::Gap(gap)),
                }
            }
            (None, Some((first, _))) => Err(NoPose::Before(first.seconds_since(stamp))),
            (Some((last, _)), None) => Err(NoPose::After(stamp.seconds_since(last))),
            (None, None) => Err(NoPose::Gap(f64::INFINITY)),
        }
    }

    /// Reads a TUM file: `stamp x y z qx qy qz qw` a line, seconds and metres; `#` begins a comment.
    pub fn read_tum(path: &Path) -> Result<Self, TrajectoryError> {
        let text = std::fs::read_to_string(path)?;
        let mut poses = Vec::new();
        for (line, words) in lines(&text) {
            let bad = TrajectoryError::BadLine { line, need: 8 };
            let (stamp, rest) = match words.split_first() {
                Some((stamp, rest)) => (parse_stamp(stamp), numbers::<7>(rest)),
                None => (None, None),
            };
            let (Some(stamp), Some([x, y, z, qx, qy, qz, qw])) = (stamp, rest) else { return Err(bad) };
            poses.push((stamp, pose([x, y, z], [qx, qy, qz, qw], poses.len())?));
        }
        Self::new(poses)
    }

    /// Reads a KITTI file: the upper three rows of a pose's matrix a line, row by row. The poses
    /// have no times of their own: `times` are those of the lines.
    pub fn read_kitti(path: &Path, times: &[Stamp]) -> Result<Self, TrajectoryError> {
        let text = std::fs::read_to_string(path)?;
        let mut poses = Vec::new();
        for (line, words) in lines(&text) {
            let m = numbers::<12>(&words).ok_or(TrajectoryError::BadLine { line, need: 12 })?;
            poses.push(matrix_pose(&m, poses.len())?);
        }
        if poses.len() != times.len() {
            return Err(TrajectoryError::Lengths { poses: poses.len(), times: times.len() });
        }
        Self::new(times.iter().copied().zip(poses).collect())
    }

    /// Writes a TUM file: nanoseconds, and nine digits after the point.
    pub fn write_tum(&self, mut out: impl Write) -> io::Result<()> {
        for (stamp, pose) in self.iter() {
            write_tum_line(&mut out, stamp, pose)?;
        }
        out.flush()
    }
}

/// Writes one line of a TUM file.
pub fn write_tum_line(mut out: impl Write, stamp: Stamp, pose: &Rigid) -> io::Result<()> {
    let (sec, nanosec) = (stamp.0.div_euclid(1_000_000_000), stamp.0.rem_euclid(1_000_000_000));
    let (t, q) = (pose.translation.vector, pose.rotation.coords);
    write!(out, "{sec}.{nanosec:09}")?;
    for value in t.iter().chain(q.iter()) {
        write!(out, " {value:.9}")?;
    }
    writeln!(out)
}

/// Reads the times of a KITTI file: seconds, one a line.
pub fn read_times(path: &Path) -> Result<Vec<Stamp>, TrajectoryError> {
    let text = std::fs::read_to_string(path)?;
    let time = |(line, words): (usize, Vec<&str>)| match words.as_slice() {
        [word] => parse_stamp(word).ok_or(TrajectoryError::BadLine { line, need: 1 }),
        _ => Err(TrajectoryError::BadLine { line, need: 1 }),
    };
    lines(&text).map(time).collect()
}

/// A pose of numbers that were read: position in metres, quaternion x y z w. `index` is for the error.
pub fn pose(position: [f64; 3], quaternion: [f64; 4], index: usize) -> Result<Rigid, TrajectoryError> {
    if !position.iter().chain(&quaternion).all(|v| v.is_finite()) {
        return Err(TrajectoryError::NotFinite(index));
    }
    let rotation = Quaternion::from(quaternion);
    let norm = rotation.norm();
    if (norm - 1.0).abs() > MAX_NORM_ERROR {
        return Err(TrajectoryError::NotUnit { index, norm });
    }
    Ok(Rigid::from_parts(Translation3::from(position), UnitQuaternion::from_quaternion(rotation)))
}

fn matrix_pose(m: &[f64; 12], index: usize) -> Result<Rigid, TrajectoryError> {
    if !m.iter().all(|v| v.is_finite()) {
        return Err(TrajectoryError::NotFinite(index));
    }
    let [a, b, c, x, d, e, f, y, g, h, i, z] = *m;
    let rotation = Matrix3::new(a, b, c, d, e, f, g, h, i);
    let error = (rotation * rotation.transpose() - Matrix3::identity()).amax();
    if error > MAX_ROTATION_ERROR || rotation.determinant() < 0.0 {
        return Err(TrajectoryError::NotRotation(index));
    }
    let rotation = UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(rotation));
    Ok(Rigid::from_parts(Translation3::new(x, y, z), UnitQuaternion::from_quaternion(*rotation)))
}

/// The lines that hold something, numbered from 1, as words.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    fn words(line: &str) -> Vec<&str> {
        let line = line.split('#').next().unwrap_or_default();
        line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()).collect()
    }
    text.lines().enumerate().map(|(i, line)| (i + 1, words(line))).filter(|(_, words)| !words.is_empty())
}

fn numbers<const N: usize>(words: &[&str]) -> Option<[f64; N]> {
    let numbers: Option<Vec<f64>> = words.iter().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Seconds as text, exact to the nanosecond: present times have more digits than an `f64`.
fn parse_stamp(word: &str) -> Option<Stamp> {
    let (digits, sign) = match word.strip_prefix('-') {
        Some(rest) => (rest, -1),
        None => (word, 1),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(part) || (whole.is_empty() && part.is_empty()) {
        // An exponent.
        let seconds: f64 = word.parse().ok()?;
        return (seconds.abs() < 9e9).then(|| Stamp((seconds * 1e9).round() as i64));
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanos = part.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |n, digit| 10 * n + i64::from(digit - b'0'));
    Some(Stamp(sign * whole.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

fn is_finite(pose: &Rigid) -> bool {
    pose.translation.vector.iter().chain(pose.rotation.coords.iter()).all(|v| v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_x(sec: f64, x: f64) -> (Stamp, Rigid) {
        (Stamp::default().plus(sec), Rigid::translation(x, 0.0, 0.0))
    }

    #[test]
    fn stamps_are_exact() {
        for (text, nanos) in [
            ("1700000000.123456789", 1_700_000_000_123_456_789),
            ("-1.5", -1_500_000_000),
            ("7", 7_000_000_000),
            (".25", 250_000_000),
            ("1.7e1", 17_000_000_000),
            ("0.1234567891", 123_456_789),
        ] {
            assert_eq!(parse_stamp(text), Some(Stamp(nanos)), "{text}");
        }
        for text in ["", ".", "x", "nan", "1e30", "99999999999999999999", "1.2.3"] {
            assert_eq!(parse_stamp(text), None, "{text}");
        }
    }

    #[test]
    fn between_poses_within_the_gap_and_nowhere_else() {
        let trajectory =
            Trajectory::new(vec![at_x(2.0, 4.0), at_x(1.0, 2.0), at_x(9.0, 0.0)]).expect("poses");
        let x = |sec: f64| trajectory.at(Stamp::default().plus(sec), 1.5).map(|pose| pose.translation.x);
        assert_eq!(x(1.0), Ok(2.0));
        assert_eq!(x(1.25), Ok(2.5));
        assert_eq!(x(9.0), Ok(0.0));
        assert_eq!(x(0.5), Err(NoPose::Before(0.5)));
        assert_eq!(x(9.5), Err(NoPose::After(0.5)));
        assert_eq!(x(5.0), Err(NoPose::Gap(7.0)));
    }

    #[test]
    fn duplicates_and_numbers_that_are_none_are_refused() {
        let refused = |poses| Trajectory::new(poses).expect_err("refused").to_string();
        assert!(refused(vec![at_x(1.0, 0.0), at_x(1.0, 0.0)]).starts_with("duplicate:"));
        assert!(refused(vec![at_x(1.0, f64::NAN)]).starts_with("not_finite:"));
        assert!(refused(vec![]).starts_with("empty:"));
    }
}
