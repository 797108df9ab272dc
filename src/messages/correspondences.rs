//! View of a point cloud that holds 3D-3D correspondences: topic `correspondences_3d3d`.
//!
//! | field | meaning |
//! |---|---|
//! | `x y z` (or `sx sy sz`) | the point in the frame of the header, m |
//! | `tx ty tz` | the same point in the map, m |
//! | `weight` | optional, relative trust; 1 where absent; a row of zero, negative or NaN is dropped |
//! | `id`, `sid` | optional, identity of the target and of the source feature; negative for none |
//!
//! Any order of the fields, any type of PointField, any padding; other fields are ignored.

use super::point_cloud::{Column, PointCloudView};
use super::{MessageError, Stamp};
use crate::geometry::Point;
use crate::registration::{Correspondence, Problem};

/// Correspondences in a message, all required fields present and usable.
#[derive(Debug, Clone)]
pub struct CorrespondenceView<'a> {
    cloud: PointCloudView<'a>,
    source: [Column; 3],
    target: [Column; 3],
    weight: Option<Column>,
    target_id: Option<Column>,
    source_id: Option<Column>,
}

/// Rows that were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// A coordinate is not finite.
    pub non_finite: usize,
    /// The weight is zero, negative, or not a finite number.
    pub weight: usize,
}

impl<'a> CorrespondenceView<'a> {
    /// Reads a message; see [`PointCloudView::parse`] and [`CorrespondenceView::new`].
    pub fn parse(cdr: &'a [u8], force_little_endian: bool) -> Result<Self, MessageError> {
        Self::new(PointCloudView::parse(cdr)?, force_little_endian)
    }

    /// Finds the columns. Refused: no points, a required field absent, a field of ours unusable,
    /// or values that are absurd in the byte order in which they are read and plausible in the
    /// other one. With `force_little_endian` the message's `is_bigendian` is not believed.
    pub fn new(cloud: PointCloudView<'a>, force_little_endian: bool) -> Result<Self, MessageError> {
        if cloud.is_empty() {
            return Err(MessageError::Empty);
        }
        let big_endian = cloud.is_bigendian && !force_little_endian;
        let optional =
            |name| Ok(cloud.column(name)?.map(|column: Column| column.with_big_endian(big_endian)));
        let required = |name, alias| match optional(name)? {
            Some(column) => Ok(column),
            None => optional(alias)?.ok_or(MessageError::MissingField(name)),
        };
        let view = Self {
            source: [required("x", "sx")?, required("y", "sy")?, required("z", "sz")?],
            target: [required("tx", "tx")?, required("ty", "ty")?, required("tz", "tz")?],
            weight: optional("weight")?,
            target_id: optional("id")?,
            source_id: optional("sid")?,
            cloud,
        };
        view.check_byte_order(big_endian)?;
        Ok(view)
    }

    /// When the source points were measured.
    pub fn stamp(&self) -> Stamp {
        self.cloud.stamp
    }

    /// Frame of the source points.
    pub fn frame(&self) -> &'a str {
        self.cloud.frame
    }

    /// Number of rows in the message.
    pub fn len(&self) -> usize {
        self.cloud.len()
    }

    /// Never: a message without rows is refused.
    pub fn is_empty(&self) -> bool {
        self.cloud.is_empty()
    }

    /// Replaces the correspondences of `problem` by the usable rows, in their order.
    pub fn fill(&self, problem: &mut Problem) -> Dropped {
        problem.clear();
        let mut dropped = Dropped::default();
        for point in self.cloud.points() {
            let row = Correspondence {
                source: read_point(&self.source, point),
                target: read_point(&self.target, point),
                weight: self.weight.map_or(1.0, |column| column.read(point) as f32),
                source_id: read_id(self.source_id, point),
                target_id: read_id(self.target_id, point),
            };
            if !problem.push(row) {
                let cause = if row.is_finite() { &mut dropped.weight } else { &mut dropped.non_finite };
                *cause += 1;
            }
        }
        dropped
    }

    /// Judges the coordinates of at most [`JUDGED_ROWS`] rows, spread over the message. The bytes
    /// of a number read in the wrong order give a magnitude anywhere between 1e-38 and 1e38, of
    /// which few are [`plausible`]; those of an honest message are plausible but for odd ones.
    /// Zeros say nothing, and neither do values that are no number in the other order.
    fn check_byte_order(&self, big_endian: bool) -> Result<(), MessageError> {
        let (mut values, mut as_read, mut swapped) = (0u32, 0u32, 0u32);
        let stride = self.len().div_ceil(JUDGED_ROWS);
        for point in self.cloud.points().step_by(stride) {
            for column in self.source.iter().chain(&self.target) {
                let other = column.with_big_endian(!big_endian).read(point);
                if other != 0.0 && other.is_finite() {
                    values += 1;
                    as_read += u32::from(plausible(column.read(point)));
                    swapped += u32::from(plausible(other));
                }
            }
        }
        // Absurd for more than half as read, and for less than one in twenty in the other order.
        if 2 * as_read < values && 20 * swapped > 19 * values {
            return Err(MessageError::BadEndianness { big_endian });
        }
        Ok(())
    }
}

/// Rows that are looked at to judge the byte order.
const JUDGED_ROWS: usize = 64;

/// A coordinate in metres that a robot can meet: a micrometre to 100,000 km, which leaves room
/// for UTM and geocentric coordinates.
fn plausible(value: f64) -> bool {
    (1e-6..=1e8).contains(&value.abs())
}

fn read_point(columns: &[Column; 3], point: &[u8]) -> Point {
    let [x, y, z] = columns;
    Point::new(x.read(point), y.read(point), z.read(point))
}

/// None where there is no column, and for a number that is no identity: negative, too large.
fn read_id(column: Option<Column>, point: &[u8]) -> Option<u32> {
    let id = column?.read(point);
    (0.0..=f64::from(u32::MAX)).contains(&id).then_some(id as u32)
}
