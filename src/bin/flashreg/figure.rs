//! Small figures as PNG files: bars and text, a few colours, not compressed.

use flashreg::homotopy::precision::{Histogram, Precision};

/// White, black, grey, and two colours for bars.
const PALETTE: [[u8; 3]; 5] = [[255, 255, 255], [0, 0, 0], [205, 205, 205], [31, 103, 178], [226, 118, 32]];
const BLACK: u8 = 1;
const GREY: u8 = 2;
const BLUE: u8 = 3;
const ORANGE: u8 = 4;

/// Characters that have dots; others are blank.
const CHARACTERS: &str = "0123456789-_.,:%+abcdefghijklmnopqrstuvwxyz";
/// Three by five dots each, row by row from the top.
const DOTS: [u16; 43] = [
    0o75557, 0o26227, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71122, 0o75757, 0o75717, 0o00700,
    0o00007, 0o00002, 0o00024, 0o02020, 0o51245, 0o02720, 0o25755, 0o65656, 0o34443, 0o65556, 0o74647,
    0o74644, 0o34553, 0o55755, 0o72227, 0o11152, 0o55655, 0o44447, 0o57755, 0o65555, 0o25552, 0o65644,
    0o25563, 0o65655, 0o34216, 0o72222, 0o55557, 0o55552, 0o55775, 0o55255, 0o55222, 0o71247,
];
/// Pixels of a dot of a character.
const DOT: usize = 2;
/// Pixels from one character to the next.
const ADVANCE: usize = 4 * DOT;

/// Dots of the colours of the palette.
pub struct Figure {
    width: usize,
    height: usize,
    dots: Vec<u8>,
}

impl Figure {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, dots: vec![0; width * height] }
    }

    /// Fills what is inside the figure of a rectangle.
    fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, colour: u8) {
        let (begin, end) = (x.min(self.width), (x + width).min(self.width));
        for row in self.dots.chunks_exact_mut(self.width).skip(y).take(height) {
            row[begin..end].fill(colour);
        }
    }

    fn text(&mut self, x: usize, y: usize, text: &str, colour: u8) {
        for (i, character) in text.chars().enumerate() {
            let place = CHARACTERS.find(character);
            let glyph = place.and_then(|place| DOTS.get(place)).copied().unwrap_or(0);
            for dot in (0..15).filter(|dot| glyph >> (14 - dot) & 1 == 1) {
                self.fill(x + i * ADVANCE + dot % 3 * DOT, y + dot / 3 * DOT, DOT, DOT, colour);
            }
        }
    }

    /// As a PNG file.
    pub fn png(&self) -> Vec<u8> {
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut chunk = |name: &[u8; 4], data: &[u8]| {
            file.extend((data.len() as u32).to_be_bytes());
            let named = [name.as_slice(), data].concat();
            file.extend(&named);
            file.extend(crc(&named).to_be_bytes());
        };
        let size = [(self.width as u32).to_be_bytes(), (self.height as u32).to_be_bytes()].concat();
        // Eight bits a dot, numbers of a palette.
        chunk(b"IHDR", &[&size[..], &[8, 3, 0, 0, 0]].concat());
        chunk(b"PLTE", PALETTE.as_flattened());
        let rows: Vec<u8> = self.dots.chunks(self.width).flat_map(|row| [&[0], row].concat()).collect();
        let mut stream = vec![0x78, 0x01];
        let blocks = rows.chunks(0xffff);
        let last = blocks.len() - 1;
        for (i, block) in blocks.enumerate() {
            let length = block.len() as u16;
            stream.push(u8::from(i == last));
            stream.extend(length.to_le_bytes());
            stream.extend((!length).to_le_bytes());
            stream.extend(block);
        }
        stream.extend(adler(&rows).to_be_bytes());
        chunk(b"IDAT", &stream);
        chunk(b"IEND", &[]);
        file
    }
}

/// The check sum of a chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}

/// The check sum of a stream.
fn adler(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}

/// For each problem the residuals and the errors of its roots, by their logarithms.
pub fn histograms(rows: &[(&str, &Precision)]) -> Figure {
    const LEFT: usize = 230;
    const BIN: usize = 26;
    const ROW: usize = 44;
    const BAR: usize = 34;
    const TOP: usize = 34;
    let width = Histogram::BINS * BIN;
    let mut figure = Figure::new(LEFT + width + 20, TOP + rows.len() * ROW + 40);
    figure.text(LEFT, 12, "residuals", BLUE);
    figure.text(LEFT + 11 * ADVANCE, 12, "errors", ORANGE);
    figure.text(LEFT + 19 * ADVANCE, 12, "of the roots, relative, logarithm to base 10", BLACK);
    let bottom = TOP + rows.len() * ROW;
    let per_unit = (1.0 / Histogram::STEP) as usize;
    for bin in (0..=Histogram::BINS).step_by(2 * per_unit) {
        figure.fill(LEFT + bin * BIN, TOP, 1, bottom - TOP + 6, GREY);
        let label = format!("{:.0}", Histogram::LOWEST + bin as f64 * Histogram::STEP);
        figure.text(LEFT + bin * BIN - label.len() * ADVANCE / 2, bottom + 12, &label, BLACK);
    }
    for (i, (name, precision)) in rows.iter().enumerate() {
        let base = TOP + (i + 1) * ROW;
        figure.fill(LEFT, base, width, 1, BLACK);
        figure.text(8, base - 24, name, BLACK);
        for (shift, histogram, colour) in [(2, &precision.residuals, BLUE), (13, &precision.errors, ORANGE)] {
            let most = histogram.counts.iter().copied().max().unwrap_or(0).max(1);
            for (bin, count) in histogram.counts.iter().enumerate() {
                let height = (count * BAR).div_ceil(most);
                figure.fill(LEFT + bin * BIN + shift, base - height, 11, height, colour);
            }
        }
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_sums_are_those_of_the_formats() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn what_is_drawn_is_in_the_file() {
        let mut precision = Precision::default();
        precision.residuals.add(1e-16);
        let figure = histograms(&[("p3p", &precision)]);
        for colour in [BLACK, GREY, BLUE, ORANGE] {
            assert!(figure.dots.contains(&colour), "{colour}");
        }
        let file = figure.png();
        let at = |i: usize| u32::from_be_bytes([file[i], file[i + 1], file[i + 2], file[i + 3]]) as usize;
        assert_eq!((at(16), at(20)), (figure.width, figure.height));
        assert!(file.len() > figure.dots.len() && file.ends_with(&crc(b"IEND").to_be_bytes()));
    }
}
