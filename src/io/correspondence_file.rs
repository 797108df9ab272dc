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
use crate::messages::Dropped;
use crate::registration::Correspondence;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// More rows than this are refused: it is no file of correspondences.
pub const MAX_ROWS: usize = 10_000_000;
/// Longer lines are refused, bytes.
const MAX_LINE: u64 = 65536;

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

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file holds no row.
    #[error("no correspondences in it")]
    Empty,
    /// Something in a line makes no sense.
    #[error("line {line}, column {column}: {what}")]
    Text {
        /// line, from 1
        line: usize,
        /// byte of the line, from 1
        column: usize,
        /// what is wrong
        what: String,
    },
    /// The npy file cannot be used.
    #[error("npy: {0}")]
    Npy(String),
    /// Too many rows.
    #[error("more than {MAX_ROWS} rows")]
    TooLarge,
}

impl CorrespondenceFile {
    /// Reads a file; the format is seen from its content.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::read(BufReader::with_capacity(1 << 16, File::open(path)?))
    }

    /// Reads from anything; the format is seen from the first byte.
    pub fn read(mut input: impl BufRead) -> Result<Self, FileError> {
        let mut file = Self::default();
        match input.fill_buf()?.first() {
            Some(0x93) => file.read_npy(input)?,
            _ => file.read_text(input)?,
        }
        match file.total {
            0 => Err(FileError::Empty),
            _ => Ok(file),
        }
    }

    fn push(&mut self, row: Correspondence) -> Result<(), FileError> {
        if self.total == MAX_ROWS {
            return Err(FileError::TooLarge);
        }
        if !row.is_finite() {
            self.dropped.non_finite += 1;
        } else if !(row.weight.is_finite() && row.weight > 0.0) {
            self.dropped.weight += 1;
        } else {
            self.rows.push(row);
            self.numbers.push(self.total);
        }
        self.total += 1;
        Ok(())
    }

    fn read_text(&mut self, mut input: impl BufRead) -> Result<(), FileError> {
        let mut buffer = Vec::new();
        let mut layout: Option<Layout> = None;
        for line in 1.. {
            buffer.clear();
            if input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut buffer)? == 0 {
                break;
            }
            let error = |column: usize, what: String| FileError::Text { line, column, what };
            if buffer.len() as u64 > MAX_LINE {
                return Err(error(1, format!("longer than {MAX_LINE} bytes: this is not text")));
            }
            let text = std::str::from_utf8(&buffer)
                .map_err(|e| error(e.valid_up_to() + 1, "not UTF-8: this is not text".into()))?;
            let text = text.strip_prefix('\u{feff}').filter(|_| line == 1).unwrap_or(text);
            let content = text.split('#').next().unwrap_or_default();
            if content.trim().is_empty() {
                continue;
            }
            let layout = match &mut layout {
                Some(layout) => layout,
                none => {
                    let (first, is_header) = Layout::new(content).map_err(|e| e.at(line))?;
                    let first = none.insert(first);
                    if is_header {
                        continue;
                    }
                    first
                }
            };
            self.push(layout.row(content).map_err(|e| e.at(line))?)?;
        }
        Ok(())
    }

    fn read_npy(&mut self, input: impl Read) -> Result<(), FileError> {
        let refuse = |what: String| FileError::Npy(what);
        let npy = npyz::NpyFile::new(input).map_err(|e| refuse(e.to_string()))?;
        let (rows, columns) = match npy.shape() {
            [rows, columns @ (6 | 7)] => (*rows, *columns as usize),
            other => return Err(refuse(format!("shape {other:?}, (N, 6) or (N, 7) needed"))),
        };
        let rows = usize::try_from(rows).ok().filter(|n| *n <= MAX_ROWS).ok_or(FileError::TooLarge)?;
        let (count, order) = (rows * columns, npy.order());
        let values = match npy.try_data::<f64>() {
            Ok(data) => take(data, count),
            Err(npy) => match npy.try_data::<f32>() {
                Ok(data) => take(data.map(|v| v.map(f64::from)), count),
                Err(npy) => {
                    return Err(refuse(format!("type {}, float32 or float64 needed", npy.dtype().descr())))
                }
            },
        }
        .map_err(|e| refuse(e.to_string()))?;
        for row in 0..rows {
            let value = |column: usize| {
                let at = match order {
                    npyz::Order::C => row * columns + column,
                    npyz::Order::Fortran => column * rows + row,
                };
                values.get(at).copied()
            };
            let get = |column| value(column).unwrap_or(f64::NAN);
            self.push(correspondence(get, if columns == 7 { get(6) } else { 1.0 }))?;
        }
        Ok(())
    }
}

/// Exactly `count` values, or the error. Memory grows with what is there, not with what the header
/// claims.
fn take(values: impl Iterator<Item = io::Result<f64>>, count: usize) -> io::Result<Vec<f64>> {
    let values = values.take(count).collect::<io::Result<Vec<_>>>()?;
    match values.len() == count {
        true => Ok(values),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn correspondence(value: impl Fn(usize) -> f64, weight: f64) -> Correspondence {
    let mut row = Correspondence::new(
        Point::new(value(0), value(1), value(2)),
        Point::new(value(3), value(4), value(5)),
    );
    row.weight = weight as f32;
    row
}

/// What is wrong in a line, at which byte (from 1).
struct Wrong(usize, String);

impl Wrong {
    fn at(self, line: usize) -> FileError {
        FileError::Text { line, column: self.0, what: self.1 }
    }
}

/// Names of the columns in the order of [`Layout::columns`]; the first six are needed.
const NAMES: [&str; 9] = ["sx", "sy", "sz", "tx", "ty", "tz", "weight", "id", "sid"];
const NEEDED: usize = 6;

/// How the lines of a text file are cut into columns.
struct Layout {
    separator: Option<char>,
    /// Number of columns of a line.
    width: usize,
    /// Where each of [`NAMES`] stands.
    columns: [Option<usize>; NAMES.len()],
}

impl Layout {
    /// From the first line with content, and whether that line is a header.
    fn new(line: &str) -> Result<(Self, bool), Wrong> {
        let separator = [';', ','].into_iter().find(|c| line.contains(*c));
        let fields: Vec<(usize, &str)> = fields(line, separator).collect();
        let width = fields.len();
        if fields.iter().any(|(_, field)| field.parse::<f64>().is_ok()) {
            if width != NEEDED && width != NEEDED + 1 {
                return Err(Wrong(1, format!("{width} columns, 6 or 7 needed: sx sy sz tx ty tz [weight]")));
            }
            let columns = std::array::from_fn(|i| (i < width).then_some(i));
            return Ok((Self { separator, width, columns }, false));
        }
        let mut columns = [None; NAMES.len()];
        for (index, (at, field)) in fields.iter().enumerate() {
            let name = field.trim_matches(['"', '\'']).to_lowercase();
            let name = match name.as_str() {
                "x" => "sx",
                "y" => "sy",
                "z" => "sz",
                other => other,
            };
            if let Some(column) = NAMES.iter().position(|n| *n == name) {
                if columns[column].replace(index).is_some() {
                    return Err(Wrong(*at, format!("column '{name}' twice")));
                }
            }
        }
        match columns.iter().take(NEEDED).position(Option::is_none) {
            Some(missing) => Err(Wrong(1, format!("no numbers and no column named '{}'", NAMES[missing]))),
            None => Ok((Self { separator, width, columns }, true)),
        }
    }

    fn row(&self, line: &str) -> Result<Correspondence, Wrong> {
        let mut values = [f64::NAN; NAMES.len()];
        let mut width = 0;
        for (index, (at, field)) in fields(line, self.separator).enumerate() {
            width += 1;
            let Some(column) = self.columns.iter().position(|c| *c == Some(index)) else { continue };
            values[column] = field.parse().map_err(|_| Wrong(at, format!("'{field}' is not a number")))?;
        }
        if width != self.width {
            return Err(Wrong(1, format!("{width} columns, {} as in the first line needed", self.width)));
        }
        let [.., weight, target, source] = values;
        let present = |column: usize| self.columns[column].is_some();
        let mut row = correspondence(|i| values[i], if present(6) { weight } else { 1.0 });
        row.target_id = identity(target);
        row.source_id = identity(source);
        Ok(row)
    }
}

/// Anything but a whole number that fits is no identity.
fn identity(value: f64) -> Option<u32> {
    (value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0).then_some(value as u32)
}

/// The fields of a line, each with the byte at which it starts, from 1.
fn fields(line: &str, separator: Option<char>) -> impl Iterator<Item = (usize, &str)> {
    let split: Box<dyn Iterator<Item = &str>> = match separator {
        Some(c) => Box::new(line.split(c).map(str::trim)),
        None => Box::new(line.split_whitespace()),
    };
    let start = line.as_ptr() as usize;
    split.map(move |field| (field.as_ptr() as usize - start + 1, field))
}
