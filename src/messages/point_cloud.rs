//! View of a `sensor_msgs/PointCloud2`.

use super::cdr::CdrReader;
use super::{MessageError, Stamp};

/// A point cloud whose sizes fit each other. Fields are checked when a [`Column`] is asked for,
/// so that unknown fields do no harm, whatever they are.
#[derive(Debug, Clone)]
pub struct PointCloudView<'a> {
    /// When it was measured.
    pub stamp: Stamp,
    /// Frame of the points.
    pub frame: &'a str,
    /// Number of rows.
    pub height: u32,
    /// Points in a row.
    pub width: u32,
    /// Byte order of the numbers in `data`; that of the message itself is another matter.
    pub is_bigendian: bool,
    /// Bytes from point to point.
    pub point_step: u32,
    /// Bytes from row to row.
    pub row_step: u32,
    /// The points.
    pub data: &'a [u8],
    /// The sender says that no point is invalid. Nothing here believes it.
    pub is_dense: bool,
    fields: Fields<'a>,
}

impl<'a> PointCloudView<'a> {
    /// Reads a message. Refused: broken CDR, a point of no bytes, rows or data shorter than width
    /// and height say. The padding of the last row may be absent. A cloud without points is read.
    pub fn parse(cdr: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = CdrReader::new(cdr)?;
        let (stamp, frame) = reader.header()?;
        let (height, width) = (reader.u32()?, reader.u32()?);
        let left = reader.sequence(Field::MIN_BYTES)?;
        let fields = Fields { reader: reader.clone(), left };
        for _ in 0..left {
            Field::read(&mut reader)?;
        }
        let is_bigendian = reader.bool()?;
        let (point_step, row_step) = (reader.u32()?, reader.u32()?);
        let data = reader.octets()?;
        let is_dense = reader.bool()?;
        let view =
            Self { stamp, frame, height, width, is_bigendian, point_step, row_step, data, is_dense, fields };
        view.check_sizes()?;
        Ok(view)
    }

    fn check_sizes(&self) -> Result<(), MessageError> {
        if self.is_empty() {
            return Ok(());
        }
        if self.point_step == 0 {
            return Err(MessageError::BadPointStep { got: 0, need: 1 });
        }
        let row_bytes = u64::from(self.width) * u64::from(self.point_step);
        if u64::from(self.row_step) < row_bytes {
            return Err(MessageError::DataTooShort { got: u64::from(self.row_step), need: row_bytes });
        }
        // row_bytes <= row_step: the sum stays below 2^64.
        let need = u64::from(self.height - 1) * u64::from(self.row_step) + row_bytes;
        let got = self.data.len() as u64;
        if got < need {
            return Err(MessageError::DataTooShort { got, need });
        }
        Ok(())
    }

    /// There are no points.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        // Each point has a byte of its own in the data, so this fits.
        self.width as usize * self.height as usize
    }

    /// The fields in their order.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> {
        self.fields.clone()
    }

    /// The first field of this name as a column of numbers in the byte order of the message.
    /// Refused: not one of PointField's types 1 to 8, several numbers in it, or it ends beyond
    /// `point_step`. A count of 0 is read as 1: some drivers leave it out.
    pub fn column(&self, name: &'static str) -> Result<Option<Column>, MessageError> {
        let Some(field) = self.fields().find(|f| f.name == name) else {
            return Ok(None);
        };
        let scalar = Scalar::from_datatype(field.datatype)
            .ok_or(MessageError::BadDatatype { field: name, datatype: field.datatype })?;
        if field.count > 1 {
            return Err(MessageError::BadCount { field: name, count: field.count });
        }
        let (got, need) = (u64::from(self.point_step), u64::from(field.offset) + scalar.size() as u64);
        if got < need {
            return Err(MessageError::BadPointStep { got, need });
        }
        Ok(Some(Column { offset: field.offset as usize, scalar, big_endian: self.is_bigendian }))
    }

    /// The bytes of each point, row by row.
    pub fn points(&self) -> impl Iterator<Item = &'a [u8]> {
        let (width, point_step) = (self.width as usize, self.point_step.max(1) as usize);
        self.data
            .chunks(self.row_step.max(1) as usize)
            .take(if self.is_empty() { 0 } else { self.height as usize })
            .flat_map(move |row| row.chunks_exact(point_step).take(width))
    }
}

/// A field as the message describes it (`sensor_msgs/PointField`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// Bytes from the start of the point.
    pub offset: u32,
    /// Type of its numbers, 1 to 8.
    pub datatype: u8,
    /// How many numbers.
    pub count: u32,
}

impl<'a> Field<'a> {
    /// Bytes that a field takes at least: an empty name, offset, type and count.
    const MIN_BYTES: usize = 13;

    fn read(reader: &mut CdrReader<'a>) -> Result<Self, MessageError> {
        Ok(Self { name: reader.str()?, offset: reader.u32()?, datatype: reader.u8()?, count: reader.u32()? })
    }
}

/// Reads the fields anew each time: no memory, and no limit on how many there are but the
/// length of the message.
#[derive(Debug, Clone)]
struct Fields<'a> {
    reader: CdrReader<'a>,
    left: u32,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Field::read(&mut self.reader).ok()
    }
}

/// Types of numbers in a point, as `sensor_msgs/PointField` numbers them from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    Int8,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Float32,
    Float64,
}

impl Scalar {
    /// None: no type of PointField; PCL's own 9 to 11 among them.
    fn from_datatype(datatype: u8) -> Option<Self> {
        Some(match datatype {
            1 => Self::Int8,
            2 => Self::Uint8,
            3 => Self::Int16,
            4 => Self::Uint16,
            5 => Self::Int32,
            6 => Self::Uint32,
            7 => Self::Float32,
            8 => Self::Float64,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Float64 => 8,
        }
    }
}

/// Where one number of each point lies and how it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    offset: usize,
    scalar: Scalar,
    big_endian: bool,
}

impl Column {
    /// A number so many bytes from the start of a point; `datatype` is that of `sensor_msgs/PointField`. None: it is
    /// not 1 to 8.
    pub fn at(offset: usize, datatype: u8, big_endian: bool) -> Option<Self> {
        Some(Self { offset, scalar: Scalar::from_datatype(datatype)?, big_endian })
    }

    /// Bytes from the start of a point.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The same number, at the start of its bytes.
    pub fn at_start(self) -> Self {
        Self { offset: 0, ..self }
    }

    /// The same column, read in this byte order.
    pub fn with_big_endian(self, big_endian: bool) -> Self {
        Self { big_endian, ..self }
    }

    /// Its number in a point. Every type converts to f64 without loss. NaN if the point is too
    /// short, which a point of the view that gave the column never is.
    #[inline]
    pub fn read(&self, point: &[u8]) -> f64 {
        match self.scalar {
            Scalar::Int8 => self.bytes(point).map(|b| f64::from(i8::from_le_bytes(b))),
            Scalar::Uint8 => self.bytes(point).map(|b| f64::from(u8::from_le_bytes(b))),
            Scalar::Int16 => self.bytes(point).map(|b| f64::from(i16::from_le_bytes(b))),
            Scalar::Uint16 => self.bytes(point).map(|b| f64::from(u16::from_le_bytes(b))),
            Scalar::Int32 => self.bytes(point).map(|b| f64::from(i32::from_le_bytes(b))),
            Scalar::Uint32 => self.bytes(point).map(|b| f64::from(u32::from_le_bytes(b))),
            Scalar::Float32 => self.bytes(point).map(|b| f64::from(f32::from_le_bytes(b))),
            Scalar::Float64 => self.bytes(point).map(f64::from_le_bytes),
        }
        .unwrap_or(f64::NAN)
    }

    /// The bytes of the number, in little-endian order.
    #[inline]
    fn bytes<const N: usize>(&self, point: &[u8]) -> Option<[u8; N]> {
        let mut bytes = *point.get(self.offset..)?.first_chunk::<N>()?;
        if self.big_endian {
            bytes.reverse();
        }
        Some(bytes)
    }
}
