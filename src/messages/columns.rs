//! What clouds of correspondences have in common: how columns are found, their byte order, weights and
//! identities.

use super::point_cloud::{Column, PointCloudView};
use super::MessageError;

/// Rows that were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// A coordinate is not finite, or a bearing is zero.
    pub non_finite: usize,
    /// The weight is zero, negative, or not a finite number.
    pub weight: usize,
    /// A pixel is outside the image, or no ray of the camera has it.
    pub pixel: usize,
}

/// A cloud with at least one row.
#[derive(Debug, Clone)]
pub(super) struct Rows<'a> {
    pub cloud: PointCloudView<'a>,
    big_endian: bool,
    weight: Option<Column>,
    id: Option<Column>,
}

impl<'a> Rows<'a> {
    /// Refused: no points, or `weight` or `id` unusable. With `force_little_endian` the message's `is_bigendian` is
    /// not believed.
    pub fn new(cloud: PointCloudView<'a>, force_little_endian: bool) -> Result<Self, MessageError> {
        if cloud.is_empty() {
            return Err(MessageError::Empty);
        }
        let big_endian = cloud.is_bigendian && !force_little_endian;
        let rows = Self { cloud, big_endian, weight: None, id: None };
        Ok(Self { weight: rows.optional("weight")?, id: rows.optional("id")?, ..rows })
    }

    /// A column, if it is there. Refused: it is unusable.
    pub fn optional(&self, name: &'static str) -> Result<Option<Column>, MessageError> {
        Ok(self.cloud.column(name)?.map(|column| column.with_big_endian(self.big_endian)))
    }

    /// A column that must be there.
    pub fn required(&self, name: &'static str) -> Result<Column, MessageError> {
        self.optional(name)?.ok_or(MessageError::MissingField(name))
    }

    /// The relative trust in a row; 1 where there is no column.
    pub fn weight(&self, point: &[u8]) -> f32 {
        self.weight.map_or(1.0, |column| column.read(point) as f32)
    }

    /// The identity of the target in a row.
    pub fn id(&self, point: &[u8]) -> Option<u32> {
        read_id(self.id, point)
    }

    /// Refused: values that are absurd in the byte order in which they are read and plausible in the other one.
    pub fn check_byte_order<'b>(
        &self,
        columns: impl Iterator<Item = &'b Column> + Clone,
    ) -> Result<(), MessageError> {
        check_byte_order(&self.cloud, self.big_endian, columns)
    }
}

/// Judges the coordinates of at most [`JUDGED_ROWS`] rows, spread over the message. The bytes
/// of a number read in the wrong order give a magnitude anywhere between 1e-38 and 1e38, of
/// which few are [`plausible`]; those of an honest message are plausible but for odd ones.
/// Zeros say nothing, and neither do values that are no number in the other order.
pub(crate) fn check_byte_order<'b>(
    cloud: &PointCloudView<'_>,
    big_endian: bool,
    columns: impl Iterator<Item = &'b Column> + Clone,
) -> Result<(), MessageError> {
    let (mut values, mut as_read, mut swapped) = (0u32, 0u32, 0u32);
    let stride = cloud.len().div_ceil(JUDGED_ROWS).max(1);
    for point in cloud.points().step_by(stride) {
        for column in columns.clone() {
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

/// Rows that are looked at to judge the byte order.
const JUDGED_ROWS: usize = 64;

/// A coordinate in metres that a robot can meet, a micrometre to 100,000 km, which leaves room
/// for UTM and geocentric coordinates; and any pixel or bearing.
fn plausible(value: f64) -> bool {
    (1e-6..=1e8).contains(&value.abs())
}

/// The numbers of some columns in a row.
pub(super) fn read<const N: usize>(columns: &[Column; N], point: &[u8]) -> [f64; N] {
    columns.map(|column| column.read(point))
}

/// None where there is no column, and for a number that is no identity: negative, too large.
pub(super) fn read_id(column: Option<Column>, point: &[u8]) -> Option<u32> {
    let id = column?.read(point);
    (0.0..=f64::from(u32::MAX)).contains(&id).then_some(id as u32)
}
