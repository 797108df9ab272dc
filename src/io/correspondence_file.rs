//! Reads 3D-3D correspondences from a file: text, CSV or npy.
//!
//! Rows are `sx sy sz tx ty tz` or `sx sy sz tx ty tz weight`, in metres: the point in the source
//! frame, the same point in the target frame, and how far to trust the row (1 where absent).
//!
//! - text: columns separated by spaces or tabs; CSV: by commas or semicolons. `#` starts a comment.
//!   A first line without numbers names the columns, in any order: `sx sy sz` or `x y z`, `tx ty
//!   tz`, and optionally `weight`, `id`, `sid` (identity of the target and of the source feature);
//!   others are ignored.
//! - npy: float32 or float64 of shape (N, 6) or (N, 7), C or Fortran order.
//!
//! Rows with a number that is not finite or with a weight that is not above zero are dropped and
//! counted.

use crate::geometry::Point;
use crate::io::table::{self, identity, Columns, FileError};
use crate::messages::Dropped;
use crate::registration::Correspondence;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

const COLUMNS: Columns = Columns {
    needed: &["sx", "sy", "sz", "tx", "ty", "tz"],
    optional: &["weight", "id", "sid"],
    aliases: &[("x", "sx"), ("y", "sy"), ("z", "sz")],
};

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CorrespondenceFile {
    /// The usable rows, in their order.
    pub rows: Vec<Correspondence>,
    /// For each usable row its number among the rows of the file, from 0.
    pub numbers: Vec<usize>,
    /// Rows in the file.
    pub total: usize,
    /// Rows that are not usable.
    pub dropped: Dropped,
}

impl CorrespondenceFile {
    /// Reads a file; the format is seen from its content.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::read(BufReader::with_capacity(1 << 16, File::open(path)?))
    }

    /// Reads from anything; the format is seen from the first byte.
    pub fn read(input: impl BufRead) -> Result<Self, FileError> {
        let mut file = Self::default();
        table::read(input, COLUMNS, |values| {
            if let [sx, sy, sz, tx, ty, tz, weight, id, sid] = *values {
                let mut row = Correspondence::new(Point::new(sx, sy, sz), Point::new(tx, ty, tz));
                row.weight = weight as f32;
                (row.target_id, row.source_id) = (identity(id), identity(sid));
                file.push(row);
            }
        })?;
        Ok(file)
    }

    fn push(&mut self, row: Correspondence) {
        if !row.is_finite() {
            self.dropped.non_finite += 1;
        } else if !(row.weight.is_finite() && row.weight > 0.0) {
            self.dropped.weight += 1;
        } else {
            self.rows.push(row);
            self.numbers.push(self.total);
        }
        self.total += 1;
    }
}
