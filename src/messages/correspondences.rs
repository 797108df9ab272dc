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

use super::columns::{read, read_id, Dropped, Rows};
use super::point_cloud::{Column, PointCloudView};
use super::MessageError;
use crate::registration::{Correspondence, Problem};

/// Correspondences in a message, all required fields present and usable.
#[derive(Debug, Clone)]
pub struct CorrespondenceView<'a> {
    rows: Rows<'a>,
    source: [Column; 3],
    target: [Column; 3],
    source_id: Option<Column>,
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
        let rows = Rows::new(cloud, force_little_endian)?;
        let either = |name, alias| match rows.optional(name)? {
            Some(column) => Ok(column),
            None => rows.optional(alias)?.ok_or(MessageError::MissingField(name)),
        };
        let source = [either("x", "sx")?, either("y", "sy")?, either("z", "sz")?];
        let target = [rows.required("tx")?, rows.required("ty")?, rows.required("tz")?];
        rows.check_byte_order(source.iter().chain(&target))?;
        Ok(Self { source, target, source_id: rows.optional("sid")?, rows })
    }

    /// The message: the header tells when and in which frame the source points were measured.
    pub fn cloud(&self) -> &PointCloudView<'a> {
        &self.rows.cloud
    }

    /// Replaces the correspondences of `problem` by the usable rows, in their order.
    pub fn fill(&self, problem: &mut Problem) -> Dropped {
        problem.clear();
        let mut dropped = Dropped::default();
        for point in self.rows.cloud.points() {
            let row = Correspondence {
                source: read(&self.source, point).into(),
                target: read(&self.target, point).into(),
                weight: self.rows.weight(point),
                source_id: read_id(self.source_id, point),
                target_id: self.rows.id(point),
            };
            if !problem.push(row) {
                let cause = if row.is_finite() { &mut dropped.weight } else { &mut dropped.non_finite };
                *cause += 1;
            }
        }
        dropped
    }
}
