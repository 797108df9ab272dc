//! Lines and numbers of text.

use super::CloudError;

/// Lines of bytes, with the number of the last one, from 1.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    /// Number of the line that was given last.
    pub number: usize,
}

impl<'a> Lines<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, number: 0 }
    }

    /// What comes after the line that was given last.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    /// The next line without its end.
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (self.rest.get(..end)?, self.rest.get(end + 1..)?),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A word as it is shown in an error.
pub(super) fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word.get(..40).unwrap_or(word)).into_owned()
}

/// A word as a number, if it is one.
pub(super) fn parse<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The numbers of a row in some of its columns, which ascend.
pub(super) struct Row {
    /// Numbers in a row.
    pub width: usize,
    /// Columns of x, y and z.
    pub columns: [usize; 3],
}

impl Row {
    /// x, y and z of a line.
    pub fn read(&self, line: &[u8], number: usize) -> Result<[f64; 3], CloudError> {
        let bad = |what: String| CloudError::BadRow { line: number, what };
        let mut found = [f64::NAN; 3];
        let mut width = 0;
        for word in words(line) {
            for (value, _) in found.iter_mut().zip(&self.columns).filter(|(_, column)| **column == width) {
                *value = parse(word).ok_or_else(|| bad(format!("'{}' is no number", shown(word))))?;
            }
            width += 1;
        }
        match width == self.width {
            true => Ok(found),
            false => Err(bad(format!("{width} numbers where the header has {}", self.width))),
        }
    }
}
