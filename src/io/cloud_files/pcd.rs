//! PCD files of versions 0.5 to 0.7.
//!
//! VIEWPOINT is not applied: as in PCL, it says from where a cloud was seen, and its points are where they say.
//! Where the entries SIZE, TYPE or COUNT are absent (old files), fields are single numbers of float32. What follows
//! the last point is not looked at.

use super::text::{parse as number, shown, words, Lines, Row};
use super::{datatype, lzf, CloudError, CloudFile, Columns, Kind, MAX_HEADER};
use crate::geometry::Point;
use crate::messages::point_cloud::Column;
use std::io::Write;

const AXES: [&str; 3] = ["x", "y", "z"];

/// Magnitude from which the step of float32 is a quarter of a millimetre and more, m.
const FLOAT32_BELOW: f64 = 4096.0;

/// A field, and the bytes and numbers of a point before it.
type Place<'h, 'a> = (&'h Field<'a>, usize, usize);

/// A field of a point.
#[derive(Debug, Clone)]
struct Field<'a> {
    name: &'a [u8],
    size: usize,
    kind: Kind,
    count: usize,
}

/// How the points are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    Ascii,
    Binary,
    Compressed,
}

/// What the header says, as far as it was read.
#[derive(Debug, Default)]
struct Header<'a> {
    fields: Vec<Field<'a>>,
    width: Option<usize>,
    height: Option<usize>,
    points: Option<usize>,
}

/// Reads the bytes of a file.
pub(super) fn parse(bytes: &[u8]) -> Result<CloudFile, CloudError> {
    let mut lines = Lines::new(bytes.get(..MAX_HEADER).unwrap_or(bytes));
    let mut header = Header::default();
    while let Some(line) = lines.next() {
        if let Some(data) = header.take(line, lines.number)? {
            let start = bytes.len().min(MAX_HEADER) - lines.rest().len();
            let body = bytes.get(start..).unwrap_or_default();
            return header.read(data, body, lines.number);
        }
    }
    match bytes.len() > MAX_HEADER {
        true => Err(CloudError::HeaderTooLong),
        false => Err(CloudError::BadHeader { line: lines.number, what: "it ends before DATA".into() }),
    }
}

impl<'a> Header<'a> {
    /// Takes a line of the header; the last one says how the points are written.
    fn take(&mut self, line: &'a [u8], at: usize) -> Result<Option<Data>, CloudError> {
        let bad = |what: String| CloudError::BadHeader { line: at, what };
        let line: Vec<&[u8]> = words(line).collect();
        let Some((entry, values)) = line.split_first().filter(|(entry, _)| !entry.starts_with(b"#")) else {
            return Ok(None);
        };
        let first = values.first().copied().unwrap_or_default();
        let size = || number(first).ok_or_else(|| bad(format!("{} '{}'", shown(entry), shown(first))));
        match *entry {
            b"VERSION" => {
                if !matches!(first, b".5" | b"0.5" | b".6" | b"0.6" | b".7" | b"0.7") {
                    return Err(CloudError::UnsupportedVersion(shown(first)));
                }
            }
            b"FIELDS" | b"COLUMNS" => {
                let field = |name: &&'a [u8]| Field { name, size: 4, kind: Kind::Float, count: 1 };
                self.fields = values.iter().map(field).collect();
            }
            b"SIZE" => self.each(values, at, |field, word| {
                field.size = number(word).filter(|size| [1, 2, 4, 8].contains(size))?;
                Some(())
            })?,
            b"TYPE" => self.each(values, at, |field, word| {
                field.kind = match word {
                    b"I" => Kind::Signed,
                    b"U" => Kind::Unsigned,
                    b"F" => Kind::Float,
                    _ => return None,
                };
                Some(())
            })?,
            b"COUNT" => self.each(values, at, |field, word| {
                field.count = number(word)?;
                Some(())
            })?,
            b"WIDTH" => self.width = Some(size()?),
            b"HEIGHT" => self.height = Some(size()?),
            b"POINTS" => self.points = Some(size()?),
            b"VIEWPOINT" => {}
            b"DATA" => {
                return Ok(Some(match first {
                    b"ascii" => Data::Ascii,
                    b"binary" => Data::Binary,
                    b"binary_compressed" => Data::Compressed,
                    _ => return Err(bad(format!("DATA '{}'", shown(first)))),
                }))
            }
            _ => return Err(bad(format!("'{}' is no entry of a PCD header", shown(entry)))),
        }
        Ok(None)
    }

    /// Gives each field its value.
    fn each(
        &mut self,
        values: &[&[u8]],
        line: usize,
        set: impl Fn(&mut Field<'a>, &[u8]) -> Option<()>,
    ) -> Result<(), CloudError> {
        let bad = |what: String| CloudError::BadHeader { line, what };
        if values.len() != self.fields.len() {
            return Err(bad(format!("{} values for {} fields", values.len(), self.fields.len())));
        }
        for (field, word) in self.fields.iter_mut().zip(values) {
            set(field, word).ok_or_else(|| bad(format!("'{}'", shown(word))))?;
        }
        Ok(())
    }

    /// Number of points.
    fn count(&self, line: usize) -> Result<usize, CloudError> {
        let bad = |what: String| CloudError::BadHeader { line, what };
        let absurd = || bad("WIDTH x HEIGHT is absurd".into());
        let product = self.width.map(|width| width.checked_mul(self.height.unwrap_or(1)).ok_or_else(absurd));
        let product = product.transpose()?;
        match (self.points, product) {
            (Some(points), Some(product)) if points != product => {
                Err(bad(format!("POINTS {points}, but WIDTH x HEIGHT is {product}")))
            }
            (Some(count), _) | (None, Some(count)) => Ok(count),
            (None, None) => Err(bad("neither POINTS nor WIDTH".into())),
        }
    }

    /// Bytes of a point, and for each axis its field and the bytes and numbers before it.
    fn layout(&self, line: usize) -> Result<(usize, [Place<'_, 'a>; 3]), CloudError> {
        let absurd = || CloudError::BadHeader { line, what: "the size of a point is absurd".into() };
        let (mut bytes, mut numbers) = (0usize, 0usize);
        let mut found: [Option<Place>; 3] = [None; 3];
        for field in &self.fields {
            for (slot, _) in found.iter_mut().zip(AXES).filter(|(_, axis)| field.name == axis.as_bytes()) {
                slot.get_or_insert((field, bytes, numbers));
            }
            let size = field.size.checked_mul(field.count).ok_or_else(absurd)?;
            bytes = bytes.checked_add(size).filter(|bytes| *bytes <= 1 << 20).ok_or_else(absurd)?;
            numbers += field.count;
        }
        let [x, y, z] = found;
        let need = |slot: Option<_>, axis| slot.ok_or(CloudError::MissingField(axis));
        let axes = [need(x, "x")?, need(y, "y")?, need(z, "z")?];
        for ((field, ..), axis) in axes.iter().zip(AXES) {
            let bad = |what: String| CloudError::BadField { field: axis, what };
            if field.count != 1 {
                return Err(bad(format!("COUNT {}", field.count)));
            }
            if datatype(field.kind, field.size).is_none() {
                return Err(bad(format!("{} bytes of {:?}", field.size, field.kind)));
            }
        }
        Ok((bytes, axes))
    }

    fn read(&self, data: Data, body: &[u8], line: usize) -> Result<CloudFile, CloudError> {
        let count = self.count(line)?;
        let (step, axes) = self.layout(line)?;
        if count == 0 {
            return Err(CloudError::Empty { total: 0 });
        }
        let column = |(field, offset, _): (&Field, usize, usize), axis: &'static str| {
            let bad = || CloudError::BadField { field: axis, what: "type".into() };
            datatype(field.kind, field.size).and_then(|t| Column::at(offset, t, false)).ok_or_else(bad)
        };
        let [x, y, z] = axes;
        let columns = [column(x, "x")?, column(y, "y")?, column(z, "z")?];
        match data {
            Data::Ascii => {
                let width = self.fields.iter().map(|field| field.count).sum();
                ascii(body, count, &Row { width, columns: axes.map(|(.., before)| before) }, line)
            }
            Data::Binary => CloudFile::from_rows(body, step, count, columns),
            Data::Compressed => compressed(body, step, count, axes.map(|(field, ..)| field.size), columns),
        }
    }
}

fn ascii(body: &[u8], count: usize, row: &Row, header: usize) -> Result<CloudFile, CloudError> {
    // A number takes two bytes with what separates it.
    let mut cloud = CloudFile::with_capacity(count.min(body.len() / 2 / row.width.max(1) + 1));
    let mut lines = Lines::new(body);
    while cloud.total < count as u64 {
        let Some(line) = lines.next() else {
            return Err(CloudError::Truncated { got: cloud.total, need: count as u64, unit: "points" });
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let [x, y, z] = row.read(line, header + lines.number)?;
        cloud.push(x, y, z);
    }
    cloud.checked()
}

/// Sizes packed and unpacked, then the packed bytes: all values of the first field, all of the second, and so on.
fn compressed(
    body: &[u8],
    step: usize,
    count: usize,
    sizes: [usize; 3],
    columns: Columns,
) -> Result<CloudFile, CloudError> {
    let short = |got: usize, need: usize| CloudError::Truncated {
        got: got as u64,
        need: need as u64,
        unit: "bytes of compressed data",
    };
    let (packed, rest) = body.split_first_chunk().ok_or_else(|| short(body.len(), 8))?;
    let (unpacked, rest) = rest.split_first_chunk().ok_or_else(|| short(body.len(), 8))?;
    let [packed, unpacked] = [packed, unpacked].map(|bytes| u32::from_le_bytes(*bytes) as usize);
    if step.checked_mul(count) != Some(unpacked) {
        return Err(CloudError::BadCompression(format!("{unpacked} bytes for {count} points of {step}")));
    }
    let packed = rest.get(..packed).ok_or_else(|| short(rest.len(), packed))?;
    let data = lzf::unpack(packed, unpacked)?;
    // The values of a field begin after those of the fields before it, and are as far apart as it is long.
    let values = |axis: usize| {
        let (column, size) = (columns.get(axis)?, *sizes.get(axis)?);
        let values = data.get(column.offset() * count..)?.chunks_exact(size);
        Some(values.map(move |value| column.at_start().read(value)))
    };
    let (Some(x), Some(y), Some(z)) = (values(0), values(1), values(2)) else {
        return Err(short(data.len(), unpacked));
    };
    let mut cloud = CloudFile::with_capacity(count);
    x.zip(y).zip(z).take(count).for_each(|((x, y), z)| cloud.push(x, y, z));
    cloud.checked()
}

/// Writes points as a binary file of version 0.7: float32, or float64 where a coordinate is 4,096 m or more from
/// zero, so that none is off by more than an eighth of a millimetre.
///
/// # Errors
/// Those of `out`.
pub fn write(mut out: impl Write, points: &[Point]) -> std::io::Result<()> {
    let is_far = points.iter().any(|p| p.iter().any(|v| v.abs() >= FLOAT32_BELOW));
    let (size, count) = (if is_far { 8 } else { 4 }, points.len());
    write!(
        out,
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS x y z\nSIZE {size} {size} {size}\n\
         TYPE F F F\nCOUNT 1 1 1\nWIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\nDATA binary\n"
    )?;
    for v in points.iter().flat_map(|point| point.iter()) {
        match is_far {
            true => out.write_all(&v.to_le_bytes())?,
            false => out.write_all(&(*v as f32).to_le_bytes())?,
        }
    }
    out.flush()
}
