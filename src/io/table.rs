//! Tables of numbers in a file: text, CSV or npy.
//!
//! - text: columns separated by spaces or tabs; CSV: by commas or semicolons. `#` starts a comment.
//!   A first line without numbers names the columns, in any order; others than those of the table are ignored.
//! - npy: float32 or float64 of shape (N, columns), C or Fortran order.
//!
//! The last of the columns that are needed may be followed by a weight, which is 1 where absent.

use std::io::{self, BufRead, Read};

/// More rows than this are refused: it is no file of correspondences.
pub const MAX_ROWS: usize = 10_000_000;
/// Longer lines are refused, bytes.
const MAX_LINE: u64 = 65536;
/// Most columns of a table.
const MAX_COLUMNS: usize = 12;

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

/// The columns of a table.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// Those that every row has.
    pub needed: &'static [&'static str],
    /// Those that a row may have, by name; the first, `weight`, also without.
    pub optional: &'static [&'static str],
    /// Other names: what is written, what is meant.
    pub aliases: &'static [(&'static str, &'static str)],
}

impl Columns {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.needed.iter().chain(self.optional).copied()
    }

    /// `6 or 7`
    fn widths(&self) -> String {
        format!("{} or {}", self.needed.len(), self.needed.len() + 1)
    }

    fn is_width(&self, width: usize) -> bool {
        width == self.needed.len() || width == self.needed.len() + 1
    }

    /// Absent numbers are no numbers, but for the weight.
    fn absent(&self) -> [f64; MAX_COLUMNS] {
        let mut values = [f64::NAN; MAX_COLUMNS];
        if let Some(weight) = values.get_mut(self.needed.len()) {
            *weight = 1.0;
        }
        values
    }
}

/// Reads the rows of a table; the format is seen from the first byte. Each row is given as numbers in the order of
/// the columns, those needed first; what is absent is NaN.
///
/// # Errors
/// See [`FileError`]; no row at all is one.
pub fn read(mut input: impl BufRead, columns: Columns, row: impl FnMut(&[f64])) -> Result<(), FileError> {
    let mut reader = Reader { columns, row, total: 0 };
    match input.fill_buf()?.first() {
        Some(0x93) => reader.npy(input)?,
        _ => reader.text(input)?,
    }
    match reader.total {
        0 => Err(FileError::Empty),
        _ => Ok(()),
    }
}

struct Reader<F> {
    columns: Columns,
    row: F,
    total: usize,
}

impl<F: FnMut(&[f64])> Reader<F> {
    fn push(&mut self, values: &[f64; MAX_COLUMNS]) -> Result<(), FileError> {
        if self.total == MAX_ROWS {
            return Err(FileError::TooLarge);
        }
        self.total += 1;
        (self.row)(&values[..self.columns.needed.len() + self.columns.optional.len()]);
        Ok(())
    }

    fn text(&mut self, mut input: impl BufRead) -> Result<(), FileError> {
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
                    let (first, is_header) = Layout::new(content, self.columns).map_err(|e| e.at(line))?;
                    let first = none.insert(first);
                    if is_header {
                        continue;
                    }
                    first
                }
            };
            let row = layout.row(content).map_err(|e| e.at(line))?;
            self.push(&row)?;
        }
        Ok(())
    }

    fn npy(&mut self, input: impl Read) -> Result<(), FileError> {
        let refuse = |what: String| FileError::Npy(what);
        let npy = npyz::NpyFile::new(input).map_err(|e| refuse(e.to_string()))?;
        let (rows, columns) = match npy.shape() {
            [rows, columns] if self.columns.is_width(*columns as usize) => (*rows, *columns as usize),
            other => {
                let [least, most] = [0, 1].map(|k| self.columns.needed.len() + k);
                return Err(refuse(format!("shape {other:?}, (N, {least}) or (N, {most}) needed")));
            }
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
            let mut numbers = self.columns.absent();
            for (column, number) in numbers.iter_mut().enumerate().take(columns) {
                *number = value(column).unwrap_or(f64::NAN);
            }
            self.push(&numbers)?;
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

/// What is wrong in a line, at which byte (from 1).
struct Wrong(usize, String);

impl Wrong {
    fn at(self, line: usize) -> FileError {
        FileError::Text { line, column: self.0, what: self.1 }
    }
}

/// How the lines of a text file are cut into columns.
struct Layout {
    separator: Option<char>,
    /// Number of columns of a line.
    width: usize,
    /// Where each of the columns of the table stands.
    places: [Option<usize>; MAX_COLUMNS],
    columns: Columns,
}

impl Layout {
    /// From the first line with content, and whether that line is a header.
    fn new(line: &str, columns: Columns) -> Result<(Self, bool), Wrong> {
        let separator = [';', ','].into_iter().find(|c| line.contains(*c));
        let fields: Vec<(usize, &str)> = fields(line, separator).collect();
        let width = fields.len();
        if fields.iter().any(|(_, field)| field.parse::<f64>().is_ok()) {
            if !columns.is_width(width) {
                let names = columns.needed.join(" ");
                let what = format!("{width} columns, {} needed: {names} [weight]", columns.widths());
                return Err(Wrong(1, what));
            }
            let places = std::array::from_fn(|i| (i < width).then_some(i));
            return Ok((Self { separator, width, places, columns }, false));
        }
        let mut places = [None; MAX_COLUMNS];
        for (index, (at, field)) in fields.iter().enumerate() {
            let name = field.trim_matches(['"', '\'']).to_lowercase();
            let alias = columns.aliases.iter().find(|(written, _)| *written == name);
            let name = alias.map_or(name.as_str(), |(_, meant)| meant);
            if let Some(column) = columns.names().position(|n| n == name) {
                if places[column].replace(index).is_some() {
                    return Err(Wrong(*at, format!("column '{name}' twice")));
                }
            }
        }
        match columns.needed.iter().zip(&places).find(|(_, place)| place.is_none()) {
            Some((missing, _)) => Err(Wrong(1, format!("no numbers and no column named '{missing}'"))),
            None => Ok((Self { separator, width, places, columns }, true)),
        }
    }

    fn row(&self, line: &str) -> Result<[f64; MAX_COLUMNS], Wrong> {
        let mut values = self.columns.absent();
        let mut width = 0;
        for (index, (at, field)) in fields(line, self.separator).enumerate() {
            width += 1;
            let Some(column) = self.places.iter().position(|c| *c == Some(index)) else { continue };
            values[column] = field.parse().map_err(|_| Wrong(at, format!("'{field}' is not a number")))?;
        }
        if width != self.width {
            return Err(Wrong(1, format!("{width} columns, {} as in the first line needed", self.width)));
        }
        Ok(values)
    }
}

/// An identity; anything but a whole number that fits is none.
pub fn identity(value: f64) -> Option<u32> {
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
