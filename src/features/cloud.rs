//! Reading a `sensor_msgs/PointCloud2` of a LiDAR or a depth camera.
//!
//! The fields `x y z` must be there, of any type of PointField, at any offset, in either byte order. A field `t`,
//! `time`, `timestamp`, `time_stamp`, `offset_time` or `stamp` tells when each point was measured. Drivers differ in
//! its unit and its origin (seconds as floats after the stamp or since the epoch, nanoseconds as integers after the
//! stamp): both are found from the values, see [`Timing`].

use crate::geometry::{Point, Rigid};
use crate::messages::point_cloud::{Column, PointCloudView};
use crate::messages::{check_byte_order, MessageError, Stamp};

/// Which returns are of use.
#[derive(Debug, Clone, PartialEq)]
pub struct Filters {
    /// Returns nearer to the sensor are dropped, m.
    pub min_range: f64,
    /// Returns farther from the sensor are dropped, m.
    pub max_range: f64,
    /// The robot, whose own returns are dropped.
    pub body: Option<Body>,
}

/// The space that the robot itself takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    /// Where the sensor is on the robot: `p_base = base_t_sensor * p_sensor`.
    pub base_t_sensor: Rigid,
    /// Smallest coordinates of the box, m in the base frame.
    pub min: Point,
    /// Largest coordinates of the box, m in the base frame.
    pub max: Point,
}

/// Returns that were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// A coordinate is not finite.
    pub non_finite: usize,
    /// Nearer than the minimum range; those of range zero, by which drivers mean "no return", always.
    pub near: usize,
    /// Beyond the maximum range.
    pub far: usize,
    /// On the robot itself.
    pub body: usize,
    /// The coordinates of a point before it.
    pub duplicate: usize,
}

/// What a message says about when its points were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// Nothing: there is no usable field for it.
    #[default]
    None,
    /// All at the same time.
    Same,
    /// Each at its own time.
    PerPoint,
    /// The field fits no sweep: in none of the units s, ms, us, ns do its values span between 5 ms and 1.5 s and lie
    /// within 1.5 s of the stamp. Nothing is guessed.
    Unclear,
}

/// The usable returns of a sensor, in its frame. The memory is reused.
#[derive(Debug, Clone, Default)]
pub struct RawCloud {
    /// Where they are, m.
    pub points: Vec<Point>,
    /// When each was measured, seconds after the stamp of the message (negative: before it); empty unless the message
    /// has [`Timing::PerPoint`].
    pub times: Vec<f64>,
    /// What the message says about times.
    pub timing: Timing,
    seen: Seen,
}

impl PartialEq for RawCloud {
    fn eq(&self, other: &Self) -> bool {
        self.points == other.points && self.times == other.times && self.timing == other.timing
    }
}

impl RawCloud {
    /// Forgets the points and keeps the memory.
    pub fn clear(&mut self) {
        self.points.clear();
        self.times.clear();
        self.timing = Timing::None;
    }

    /// Replaces `out` by the usable points of a message, in their order. Refused: no points; no `x`, `y` or `z`, or
    /// one that is unusable; coordinates that are absurd in the byte order in which they are read and plausible in
    /// the other one. With `force_little_endian` the message's `is_bigendian` is not believed.
    pub fn read(
        view: &PointCloudView<'_>,
        filters: &Filters,
        force_little_endian: bool,
        out: &mut RawCloud,
    ) -> Result<Dropped, MessageError> {
        out.clear();
        if view.is_empty() {
            return Err(MessageError::Empty);
        }
        let big_endian = view.is_bigendian && !force_little_endian;
        let column = |name| -> Result<Column, MessageError> {
            let column = view.column(name)?.ok_or(MessageError::MissingField(name))?;
            Ok(column.with_big_endian(big_endian))
        };
        let columns = [column("x")?, column("y")?, column("z")?];
        check_byte_order(view, big_endian, columns.iter())?;
        // A field of that name that cannot be read is no reason to refuse the points.
        let time = TIME_FIELDS.iter().find_map(|name| view.column(name).ok().flatten());
        let time = time.map(|column| column.with_big_endian(big_endian));

        let mut dropped = Dropped::default();
        out.seen.reset(view.len());
        let (near, far) = (filters.min_range * filters.min_range, filters.max_range * filters.max_range);
        for row in view.points() {
            let point = Point::from(columns.map(|column| column.read(row)));
            let range = point.coords.norm_squared();
            // Squares that overflow are those of numbers which are no coordinates.
            if !range.is_finite() {
                dropped.non_finite += 1;
            } else if range == 0.0 || range < near {
                dropped.near += 1;
            } else if range > far {
                dropped.far += 1;
            } else if filters.body.as_ref().is_some_and(|body| body.holds(&point)) {
                dropped.body += 1;
            } else if !out.seen.insert(&point, &out.points) {
                dropped.duplicate += 1;
            } else {
                out.points.push(point);
                out.times.extend(time.map(|column| column.read(row)));
            }
        }
        out.timing = seconds_after(view.stamp, &mut out.times);
        if out.timing != Timing::PerPoint {
            out.times.clear();
        }
        Ok(dropped)
    }
}

impl Body {
    fn holds(&self, point: &Point) -> bool {
        let p = self.base_t_sensor * point;
        (0..3).all(|axis| (self.min[axis]..=self.max[axis]).contains(&p[axis]))
    }
}

/// Names of the field with the time of a point.
const TIME_FIELDS: [&str; 6] = ["t", "time", "timestamp", "time_stamp", "offset_time", "stamp"];

/// Units that times are given in, s. A sweep lasts between 10 ms and 1 s, so that of units a thousand apart only one
/// can be meant.
const UNITS: [f64; 4] = [1.0, 1e-3, 1e-6, 1e-9];

/// What a sweep lasts, s, with room for one that is cut.
const SWEEP: std::ops::RangeInclusive<f64> = 0.005..=1.5;

/// Turns the times of a message into seconds after its stamp.
fn seconds_after(stamp: Stamp, times: &mut [f64]) -> Timing {
    let Some(&first) = times.first() else { return Timing::None };
    let (min, max) = times.iter().fold((first, first), |(min, max), &t| (min.min(t), max.max(t)));
    // A NaN passes through no minimum.
    if times.iter().any(|t| !t.is_finite()) {
        return Timing::Unclear;
    }
    if min == max {
        return Timing::Same;
    }
    let Some(unit) = UNITS.into_iter().find(|unit| SWEEP.contains(&((max - min) * unit))) else {
        return Timing::Unclear;
    };
    // After the stamp, or since the epoch like the stamp: whichever has the stamp nearer to the sweep.
    let since_epoch = stamp.0 as f64 * (1e-9 / unit);
    let away = |origin: f64| (min - origin).max(origin - max).max(0.0) * unit;
    let origin = if away(since_epoch) < away(0.0) { since_epoch } else { 0.0 };
    if ((min - origin) * unit).abs().max(((max - origin) * unit).abs()) > *SWEEP.end() {
        return Timing::Unclear;
    }
    times.iter_mut().for_each(|t| *t = (*t - origin) * unit);
    Timing::PerPoint
}

/// The points met so far, as a hash table of their indices with open addressing; 0 is a free place.
#[derive(Debug, Clone, Default)]
struct Seen {
    places: Vec<u32>,
}

impl Seen {
    fn reset(&mut self, points: usize) {
        self.places.clear();
        self.places.resize((2 * points).next_power_of_two().max(2), 0);
    }

    /// Whether `point`, which becomes the next of `points`, is none of them.
    fn insert(&mut self, point: &Point, points: &[Point]) -> bool {
        let mask = self.places.len() - 1;
        // Adding zero makes equal what is equal: the two zeros.
        let mix = |hash: u64, x: f64| {
            (hash.rotate_left(23) ^ (x + 0.0).to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let hash = point.iter().fold(0, |hash, &x| mix(hash, x));
        let mut place = (hash ^ (hash >> 32)) as usize & mask;
        // At most half of the places are taken, so this ends.
        while let Some(entry) = self.places.get_mut(place) {
            match entry.checked_sub(1) {
                None => {
                    *entry = points.len() as u32 + 1;
                    return true;
                }
                Some(index) if points.get(index as usize) == Some(point) => return false,
                Some(_) => place = (place + 1) & mask,
            }
        }
        true
    }
}
