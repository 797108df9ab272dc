//! Clouds of points in files: PCD (ascii, binary, binary_compressed) and PLY (ascii, binary of either byte order).
//!
//! The format is seen from the first bytes. Only x, y and z are read, of any numeric type, as `f64`: large
//! coordinates (UTM) keep every digit that the file has. Points with a coordinate that is not finite are dropped and
//! counted. What a header claims is believed as far as there are bytes for it: a broken file is refused by name, and
//! never makes this allocate more than a small multiple of its own size (compressed files: 100 times).

mod lzf;
mod pcd;
mod ply;
mod text;

pub use pcd::write as write_pcd;

use crate::geometry::Point;
use crate::messages::point_cloud::Column;
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// Longest header, bytes.
const MAX_HEADER: usize = 1 << 16;

/// The usable points of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CloudFile {
    /// Where they are, in the order of the file.
    pub points: Vec<Point>,
    /// Points in the file.
    pub total: u64,
    /// Points with a coordinate that is not finite.
    pub non_finite: u64,
}

/// Why a file gives no points. The text begins with a fixed word that scripts may rely on.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The file cannot be opened or read.
    #[error("unreadable: {0}")]
    Io(#[from] std::io::Error),
    /// It begins neither as PCD nor as PLY.
    #[error("not_a_cloud: neither a PCD nor a PLY file")]
    NotACloud,
    /// The header has no end.
    #[error("header_too_long: no data after {MAX_HEADER} bytes")]
    HeaderTooLong,
    /// A line of the header makes no sense.
    #[error("bad_header: line {line}: {what}")]
    BadHeader {
        /// line, from 1
        line: usize,
        /// what is wrong
        what: String,
    },
    /// A version that is not read.
    #[error("unsupported_version: {0}")]
    UnsupportedVersion(String),
    /// x, y or z is absent.
    #[error("missing_field:{0}")]
    MissingField(&'static str),
    /// x, y or z is no single number of a type that is exact in double precision.
    #[error("bad_field:{field}: {what}")]
    BadField {
        /// the field
        field: &'static str,
        /// what is wrong
        what: String,
    },
    /// The data end before the last point.
    #[error("truncated: {got} of {need} {unit}")]
    Truncated {
        /// there
        got: u64,
        /// claimed
        need: u64,
        /// of what
        unit: &'static str,
    },
    /// A row of a text file makes no sense.
    #[error("bad_row: line {line}: {what}")]
    BadRow {
        /// line of the file, from 1
        line: usize,
        /// what is wrong
        what: String,
    },
    /// The compressed data cannot be unpacked.
    #[error("bad_compression: {0}")]
    BadCompression(String),
    /// There are no points, or none is finite.
    #[error("empty: no usable point of {total}")]
    Empty {
        /// points in the file
        total: u64,
    },
}

/// Reads a file.
///
/// # Errors
/// See [`CloudError`]; a cloud without a usable point is one.
pub fn read(path: &Path) -> Result<CloudFile, CloudError> {
    parse(&bytes(path)?)
}

/// The bytes of a file, to be [parsed](parse).
///
/// # Errors
/// It cannot be read, or is empty.
pub fn bytes(path: &Path) -> Result<Mmap, CloudError> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Err(CloudError::NotACloud);
    }
    // SAFETY: the map is read only. As with every map of a file, nobody may shorten it meanwhile.
    Ok(unsafe { Mmap::map(&file)? })
}

/// Reads the bytes of a file.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8]) -> Result<CloudFile, CloudError> {
    if bytes.starts_with(b"ply\n") || bytes.starts_with(b"ply\r") {
        return ply::parse(bytes);
    }
    // A PCD file begins with a comment, or with an entry of the header at once.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if matches!(first, Some(b'#' | b'V' | b'F' | b'C')) {
        return pcd::parse(bytes);
    }
    Err(CloudError::NotACloud)
}

/// Where x, y and z of a point are.
type Columns = [Column; 3];

/// The types of numbers by kind and bytes, as `sensor_msgs/PointField` numbers them.
fn datatype(kind: Kind, bytes: usize) -> Option<u8> {
    Some(match (kind, bytes) {
        (Kind::Signed, 1) => 1,
        (Kind::Unsigned, 1) => 2,
        (Kind::Signed, 2) => 3,
        (Kind::Unsigned, 2) => 4,
        (Kind::Signed, 4) => 5,
        (Kind::Unsigned, 4) => 6,
        (Kind::Float, 4) => 7,
        (Kind::Float, 8) => 8,
        _ => return None,
    })
}

/// Kind of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Signed,
    Unsigned,
    Float,
}

impl CloudFile {
    /// Room for so many points.
    fn with_capacity(points: usize) -> Self {
        Self { points: Vec::with_capacity(points), ..Self::default() }
    }

    #[inline]
    fn push(&mut self, x: f64, y: f64, z: f64) {
        self.total += 1;
        if x.is_finite() && y.is_finite() && z.is_finite() {
            self.points.push(Point::new(x, y, z));
        } else {
            self.non_finite += 1;
        }
    }

    /// Points of equal size, one after another.
    fn from_rows(data: &[u8], step: usize, count: usize, [x, y, z]: Columns) -> Result<Self, CloudError> {
        let got = data.len().checked_div(step).unwrap_or(0);
        if got < count {
            return Err(CloudError::Truncated { got: got as u64, need: count as u64, unit: "points" });
        }
        let mut cloud = Self::with_capacity(count);
        for point in data.chunks_exact(step.max(1)).take(count) {
            cloud.push(x.read(point), y.read(point), z.read(point));
        }
        cloud.checked()
    }

    fn checked(self) -> Result<Self, CloudError> {
        match self.points.is_empty() {
            true => Err(CloudError::Empty { total: self.total }),
            false => Ok(self),
        }
    }
}
