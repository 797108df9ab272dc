//! Figures that are drawn once and come out as SVG for a page and as PNG for a folder.
//!
//! Sizes are pixels of a page; all is drawn with [`SCALE`] dots for each, so that coordinates, which
//! are whole dots, look smooth.

mod ticks;

pub use ticks::{linear_ticks, log_ticks, tick_label};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{register_font, FontStyle};

/// Dots for each pixel of a page.
pub const SCALE: u32 = 2;
/// A subset of Roboto (Copyright 2015 Google Inc., Apache License 2.0): Latin letters, digits and
/// some signs, without hinting.
const ROBOTO: &[u8] = include_bytes!("roboto.ttf");
const FONT: &str = "sans-serif";
/// Height of a line of text, in pixels of a page.
const LINE: f64 = 17.0;

/// Background.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Text.
pub const INK: RGBColor = RGBColor(31, 41, 51);
/// What explains, and what is compared with.
pub const FADED: RGBColor = RGBColor(107, 119, 133);
/// Lines behind the data.
pub const GRID: RGBColor = RGBColor(217, 222, 228);
/// The first colour of data.
pub const BLUE: RGBColor = RGBColor(31, 103, 178);
/// The second colour of data.
pub const ORANGE: RGBColor = RGBColor(217, 115, 26);
/// What is wrong.
pub const RED: RGBColor = RGBColor(198, 47, 59);
/// What is right.
pub const GREEN: RGBColor = RGBColor(46, 139, 87);

/// The colours by the names of a style sheet's variables.
pub const NAMES: [(&str, RGBColor); 8] = [
    ("paper", PAPER),
    ("ink", INK),
    ("faded", FADED),
    ("grid", GRID),
    ("blue", BLUE),
    ("orange", ORANGE),
    ("red", RED),
    ("green", GREEN),
];

/// Where a figure is drawn.
pub type Area<DB> = DrawingArea<DB, Shift>;
/// Whether it could be.
pub type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// A figure could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("figure: {0}")]
pub struct FigureError(String);

/// Something that can be drawn.
pub trait Figure {
    /// Draws it over the whole area, whose background is there.
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB>;
}

/// An `svg` element. Its colours are variables of the style sheet around it (`--ink`, see [`NAMES`]);
/// its background is that of the page.
pub fn svg(figure: &impl Figure, (width, height): (u32, u32)) -> Result<String, FigureError> {
    use_font()?;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (SCALE * width, SCALE * height)).into_drawing_area();
        figure.draw(&area).and_then(|()| area.present()).map_err(failed)?;
    }
    for (name, RGBColor(r, g, b)) in NAMES {
        text = text.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), &format!("\"var(--{name})\""));
    }
    Ok(text)
}

/// A PNG file.
pub fn png(figure: &impl Figure, (width, height): (u32, u32)) -> Result<Vec<u8>, FigureError> {
    use_font()?;
    let (width, height) = (SCALE * width, SCALE * height);
    let mut dots = vec![0; 3 * width as usize * height as usize];
    {
        let area = BitMapBackend::with_buffer(&mut dots, (width, height)).into_drawing_area();
        let drawn = area.fill(&PAPER).and_then(|()| figure.draw(&area)).and_then(|()| area.present());
        drawn.map_err(failed)?;
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&dots).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

fn failed(error: impl std::fmt::Display) -> FigureError {
    FigureError(error.to_string())
}

fn use_font() -> Result<(), FigureError> {
    register_font(FONT, FontStyle::Normal, ROBOTO).map_err(|_| failed("the font cannot be used"))
}

/// Pixels of a page as dots.
pub fn dots(pixels: f64) -> i32 {
    (pixels * f64::from(SCALE)).round() as i32
}

/// Text of the size of labels.
pub fn label(colour: RGBColor) -> TextStyle<'static> {
    (FONT, dots(LINE)).into_font().color(&colour)
}

/// The same, held at another point than its upper left corner.
pub fn label_at(colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    label(colour).pos(Pos::new(h, v))
}

/// Widest of some texts, in dots.
pub fn text_width<'a>(texts: impl IntoIterator<Item = &'a str>) -> i32 {
    let style = (FONT, dots(LINE)).into_font();
    let width = |text| style.box_size(text).map_or(0, |(width, _)| width as i32);
    texts.into_iter().map(width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cross;

    impl Figure for Cross {
        fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
            area.draw(&PathElement::new([(0, 0), (40, 20)], RED.stroke_width(2)))?;
            area.draw(&Text::new("a < b", (2, 2), label(INK)))
        }
    }

    #[test]
    fn the_colours_of_an_svg_are_those_of_the_page() {
        let text = svg(&Cross, (20, 10)).expect("drawn");
        assert!(text.contains("viewBox=\"0 0 40 20\"") && text.trim_end().ends_with("</svg>"), "{text}");
        assert!(text.contains("var(--red)") && text.contains("var(--ink)") && !text.contains('#'), "{text}");
        assert!(text.contains("a &lt; b"), "{text}");
    }

    #[test]
    fn a_png_holds_the_dots() {
        let file = png(&Cross, (20, 10)).expect("drawn");
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG");
        let mut dots = vec![0; 3 * 40 * 20];
        reader.next_frame(&mut dots).expect("dots");
        assert_eq!((reader.info().width, reader.info().height), (40, 20));
        let has = |RGBColor(r, g, b): RGBColor| dots.chunks_exact(3).any(|dot| dot == [r, g, b]);
        assert!(has(PAPER) && has(RED));
    }
}
