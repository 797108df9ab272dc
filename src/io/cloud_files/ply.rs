//! PLY files of version 1.0: the element `vertex`, its properties x, y and z.

use super::text::{parse as number, shown, words, Lines, Row};
use super::{datatype, CloudError, CloudFile, Kind, MAX_HEADER};
use crate::messages::point_cloud::Column;

/// How the numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Ascii,
    Binary { big_endian: bool },
}

/// A type of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scalar {
    kind: Kind,
    size: usize,
}

impl Scalar {
    fn parse(word: &[u8]) -> Option<Self> {
        let (kind, size) = match word {
            b"char" | b"int8" => (Kind::Signed, 1),
            b"uchar" | b"uint8" => (Kind::Unsigned, 1),
            b"short" | b"int16" => (Kind::Signed, 2),
            b"ushort" | b"uint16" => (Kind::Unsigned, 2),
            b"int" | b"int32" => (Kind::Signed, 4),
            b"uint" | b"uint32" => (Kind::Unsigned, 4),
            b"float" | b"float32" => (Kind::Float, 4),
            b"double" | b"float64" => (Kind::Float, 8),
            _ => return None,
        };
        Some(Self { kind, size })
    }

    fn column(self, offset: usize, big_endian: bool) -> Option<Column> {
        Column::at(offset, datatype(self.kind, self.size)?, big_endian)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Property<'a> {
    name: &'a [u8],
    /// Type of the number of items; none for a single number.
    length: Option<Scalar>,
    item: Scalar,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Element<'a> {
    name: &'a [u8],
    count: usize,
    properties: Vec<Property<'a>>,
}

impl Element<'_> {
    /// Bytes of a row, if all rows are alike.
    fn step(&self) -> Option<usize> {
        self.properties.iter().map(|p| p.length.is_none().then_some(p.item.size)).sum()
    }
}

/// Reads the bytes of a file.
pub(super) fn parse(bytes: &[u8]) -> Result<CloudFile, CloudError> {
    let mut lines = Lines::new(bytes.get(..MAX_HEADER).unwrap_or(bytes));
    let bad = |line, what: String| CloudError::BadHeader { line, what };
    let mut format = None;
    let mut elements: Vec<Element> = Vec::new();
    let mut is_whole = false;
    while let Some(line) = lines.next() {
        let at = lines.number;
        let all: Vec<&[u8]> = words(line).take(6).collect();
        match all.as_slice() {
            [b"end_header"] => {
                is_whole = true;
                break;
            }
            [] | [b"ply"] | [b"comment" | b"obj_info", ..] => {}
            [b"format", name, version] => {
                if *version != b"1.0" {
                    return Err(CloudError::UnsupportedVersion(shown(version)));
                }
                format = Some(match *name {
                    b"ascii" => Format::Ascii,
                    b"binary_little_endian" => Format::Binary { big_endian: false },
                    b"binary_big_endian" => Format::Binary { big_endian: true },
                    other => return Err(bad(at, format!("format '{}'", shown(other)))),
                });
            }
            [b"element", name, count] => {
                let count = number(count).ok_or_else(|| bad(at, format!("count '{}'", shown(count))))?;
                elements.push(Element { name, count, properties: Vec::new() });
            }
            [b"property", types @ .., name] => {
                let scalar = |word: &[u8]| {
                    Scalar::parse(word).ok_or_else(|| bad(at, format!("'{}' is no type", shown(word))))
                };
                let (length, item) = match types {
                    [b"list", length, item] => (Some(scalar(length)?), scalar(item)?),
                    [item] => (None, scalar(item)?),
                    _ => return Err(bad(at, "no property".into())),
                };
                let element = elements.last_mut();
                let element = element.ok_or_else(|| bad(at, "a property before the first element".into()))?;
                element.properties.push(Property { name, length, item });
            }
            _ => return Err(bad(at, format!("'{}'", shown(line)))),
        }
    }
    let at = lines.number;
    let start = bytes.len().min(MAX_HEADER) - lines.rest().len();
    let body = bytes.get(start..).unwrap_or_default();
    match (is_whole, format) {
        (true, Some(format)) => read(&elements, format, body, at),
        (true, None) => Err(bad(at, "no format".into())),
        (false, _) if bytes.len() > MAX_HEADER => Err(CloudError::HeaderTooLong),
        (false, _) => Err(bad(at, "it ends before end_header".into())),
    }
}

fn read(elements: &[Element], format: Format, body: &[u8], header: usize) -> Result<CloudFile, CloudError> {
    let Some(which) = elements.iter().position(|element| element.name == b"vertex") else {
        return Err(CloudError::MissingField("vertex"));
    };
    let (before, vertex) = (elements.get(..which).unwrap_or_default(), elements.get(which));
    let Some(vertex) = vertex else { return Err(CloudError::MissingField("vertex")) };
    let find = |axis: &'static str| {
        let index = vertex.properties.iter().position(|property| property.name == axis.as_bytes());
        let index = index.ok_or(CloudError::MissingField(axis))?;
        let is_list = vertex.properties.get(index).is_none_or(|property| property.length.is_some());
        match is_list {
            true => Err(CloudError::BadField { field: axis, what: "a list".into() }),
            false => Ok(index),
        }
    };
    let columns = [find("x")?, find("y")?, find("z")?];
    if vertex.count == 0 {
        return Err(CloudError::Empty { total: 0 });
    }
    match format {
        Format::Ascii => ascii(before, vertex, columns, body, header),
        Format::Binary { big_endian } => binary(before, vertex, columns, body, big_endian),
    }
}

fn ascii(
    before: &[Element],
    vertex: &Element,
    columns: [usize; 3],
    body: &[u8],
    header: usize,
) -> Result<CloudFile, CloudError> {
    if vertex.properties.iter().any(|property| property.length.is_some()) {
        return Err(CloudError::BadField { field: "vertex", what: "a list in a text file".into() });
    }
    let row = Row { width: vertex.properties.len(), columns };
    let truncated = |got: u64| CloudError::Truncated { got, need: vertex.count as u64, unit: "points" };
    let mut lines = Lines::new(body);
    for element in before {
        if element.count > 0 && lines.nth(element.count - 1).is_none() {
            return Err(truncated(0));
        }
    }
    let mut cloud = CloudFile::with_capacity(vertex.count.min(lines.rest().len() / 2 / row.width + 1));
    while cloud.total < vertex.count as u64 {
        let line = lines.next().ok_or_else(|| truncated(cloud.total))?;
        let [x, y, z] = row.read(line, header + lines.number)?;
        cloud.push(x, y, z);
    }
    cloud.checked()
}

fn binary(
    before: &[Element],
    vertex: &Element,
    columns: [usize; 3],
    body: &[u8],
    big_endian: bool,
) -> Result<CloudFile, CloudError> {
    let truncated =
        |got: usize| CloudError::Truncated { got: got as u64, need: vertex.count as u64, unit: "points" };
    let mut rest = body;
    for element in before {
        rest = match element.step() {
            Some(step) => step.checked_mul(element.count).and_then(|bytes| rest.get(bytes..)),
            None => (0..element.count).try_fold(rest, |rest, _| walk(element, rest, big_endian, |_, _| {})),
        }
        .ok_or_else(|| truncated(0))?;
    }
    let no_type = |axis| CloudError::BadField { field: axis, what: "type".into() };
    if let Some(step) = vertex.step() {
        let column = |index: usize, axis: &'static str| {
            let offset = vertex.properties.iter().take(index).map(|property| property.item.size).sum();
            let property = vertex.properties.get(index);
            property.and_then(|p| p.item.column(offset, big_endian)).ok_or_else(|| no_type(axis))
        };
        let [x, y, z] = columns;
        return CloudFile::from_rows(
            rest,
            step,
            vertex.count,
            [column(x, "x")?, column(y, "y")?, column(z, "z")?],
        );
    }
    // x, y and z of a row that has lists take three bytes at least.
    let mut cloud = CloudFile::with_capacity(vertex.count.min(rest.len() / 3));
    for index in 0..vertex.count {
        let mut point = [f64::NAN; 3];
        let take = |property: usize, value: f64| {
            for (slot, _) in point.iter_mut().zip(columns).filter(|(_, column)| *column == property) {
                *slot = value;
            }
        };
        rest = walk(vertex, rest, big_endian, take).ok_or_else(|| truncated(index))?;
        cloud.push(point[0], point[1], point[2]);
    }
    cloud.checked()
}

/// Goes over a row, tells its single numbers, and returns what comes after it. None: the bytes end before.
fn walk<'a>(
    element: &Element,
    mut rest: &'a [u8],
    big_endian: bool,
    mut take: impl FnMut(usize, f64),
) -> Option<&'a [u8]> {
    for (index, property) in element.properties.iter().enumerate() {
        let first = property.length.unwrap_or(property.item);
        let value = first.column(0, big_endian)?.read(rest.get(..first.size)?);
        rest = rest.get(first.size..)?;
        if property.length.is_some() {
            if !(value >= 0.0 && value <= rest.len() as f64) {
                return None;
            }
            rest = rest.get((value as usize).checked_mul(property.item.size)?..)?;
        } else {
            take(index, value);
        }
    }
    Some(rest)
}
