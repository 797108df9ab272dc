//! The figure of `flashreg hc bench --residuals`.

use flashreg::figure::{dots, label, label_at, tick_label, Area, Drawn, Figure};
use flashreg::figure::{BLUE, FADED, GRID, INK, ORANGE};
use flashreg::homotopy::precision::{Histogram, Precision};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

const LEFT: f64 = 170.0;
const BIN: f64 = 18.0;
const ROW: f64 = 34.0;
const BAR: f64 = 26.0;
const TOP: f64 = 36.0;

/// For each problem the residuals and the errors of its roots, by their logarithms.
pub struct Histograms<'a>(pub Vec<(&'a str, &'a Precision)>);

impl Histograms<'_> {
    /// Width and height in pixels of a page.
    pub fn size(&self) -> (u32, u32) {
        let width = LEFT + Histogram::BINS as f64 * BIN + 24.0;
        (width as u32, (self.bottom() + 32.0) as u32)
    }

    fn bottom(&self) -> f64 {
        TOP + self.0.len() as f64 * ROW
    }
}

impl Figure for Histograms<'_> {
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let at = |x: f64, y: f64| (dots(x), dots(y));
        area.draw(&Text::new("residuals", at(LEFT, 8.0), label(BLUE)))?;
        area.draw(&Text::new("errors", at(LEFT + 72.0, 8.0), label(ORANGE)))?;
        area.draw(&Text::new("of the roots, relative, power of ten", at(LEFT + 122.0, 8.0), label(INK)))?;
        let bottom = self.bottom();
        let per_unit = (1.0 / Histogram::STEP) as usize;
        for bin in (0..=Histogram::BINS).step_by(2 * per_unit) {
            let x = LEFT + bin as f64 * BIN;
            area.draw(&PathElement::new([at(x, TOP), at(x, bottom + 4.0)], GRID.stroke_width(2)))?;
            let text = tick_label(Histogram::LOWEST + bin as f64 * Histogram::STEP);
            area.draw(&Text::new(text, at(x, bottom + 8.0), label_at(INK, HPos::Center, VPos::Top)))?;
        }
        for (i, (name, precision)) in self.0.iter().enumerate() {
            let base = TOP + (i + 1) as f64 * ROW;
            let right = LEFT + Histogram::BINS as f64 * BIN;
            area.draw(&PathElement::new([at(LEFT, base), at(right, base)], FADED.stroke_width(2)))?;
            area.draw(&Text::new(*name, at(LEFT - 8.0, base), label_at(INK, HPos::Right, VPos::Bottom)))?;
            for (shift, histogram, colour) in
                [(1.0, &precision.residuals, BLUE), (9.0, &precision.errors, ORANGE)]
            {
                let most = histogram.counts.iter().copied().max().unwrap_or(0).max(1) as f64;
                for (bin, count) in histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    let x = LEFT + bin as f64 * BIN + shift;
                    // One root among many is seen.
                    let height = (*count as f64 * BAR / most).max(1.0);
                    let corners = [at(x, base - height), at(x + 8.0, base)];
                    area.draw(&Rectangle::new(corners, colour.filled()))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_root_has_a_bar() {
        let mut precision = Precision::default();
        precision.residuals.add(1e-16);
        precision.residuals.add(1e-12);
        let figure = Histograms(vec![("p3p", &precision)]);
        let text = flashreg::figure::svg(&figure, figure.size()).expect("drawn");
        assert_eq!(text.matches("<rect").count(), 2, "{text}");
        assert!(text.contains("p3p"), "{text}");
    }
}
