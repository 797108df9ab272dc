//! The figures of the report.

use super::decimate::{by_columns, by_distance, cut, Line};
use crate::figure::{dots, label, label_at, linear_ticks, log_ticks, text_width, tick_label};
use crate::figure::{Area, Drawn, Figure, BLUE, FADED, GREEN, GRID, INK, ORANGE, RED, SCALE};
use crate::geometry::Rigid;
use crate::latency::Percentiles;
use crate::localizer::Input;
use crate::replay::metrics::{Angle, Evaluation, FrameTruth, Limit, Summary};
use crate::replay::FrameRecord;
use crate::status::Status;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::ops::Range;

/// Frames further apart than so many usual intervals are not joined by a line.
const GAP: f64 = 2.5;
/// Pixels above a chart for its heading, below it for labels, and at its right.
const TOP: f64 = 36.0;
const BOTTOM: f64 = 32.0;
const RIGHT: f64 = 26.0;

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<Axis, Axis>>;
type Error<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;

/// What is along an axis.
struct Scale<'a> {
    range: Range<f64>,
    ticks: Vec<f64>,
    text: &'a dyn Fn(f64) -> String,
}

/// A range of numbers with ticks of ours.
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let length = self.range.end - self.range.start;
        let share = if length == 0.0 { 0.5 } else { (value - self.range.start) / length };
        (f64::from(limit.0) + share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Draws axes with a heading. Words of the legend stand at its right, in the colour of what they name.
fn chart<'a, DB: DrawingBackend>(
    area: &'a Area<DB>,
    heading: &str,
    legend: &[(&str, RGBColor)],
    x: Scale,
    y: Scale,
) -> Result<Chart<'a, DB>, Error<DB>> {
    area.draw(&Text::new(heading.to_owned(), (dots(4.0), dots(6.0)), label(INK)))?;
    let mut right = area.dim_in_pixel().0 as i32 - dots(RIGHT);
    for (word, colour) in legend.iter().rev() {
        let style = label_at(*colour, HPos::Right, VPos::Top);
        area.draw(&Text::new((*word).to_owned(), (right, dots(6.0)), style))?;
        right -= text_width([*word]) + dots(14.0);
    }
    let mut chart = ChartBuilder::on(area)
        .margin_top(dots(TOP))
        .margin_right(dots(RIGHT))
        .x_label_area_size(dots(BOTTOM))
        .y_label_area_size(left(&y))
        .build_cartesian_2d(
            Axis { range: x.range, ticks: x.ticks },
            Axis { range: y.range, ticks: y.ticks },
        )?;
    chart
        .configure_mesh()
        .bold_line_style(GRID.stroke_width(SCALE))
        .light_line_style(TRANSPARENT)
        .axis_style(FADED.stroke_width(SCALE))
        .label_style(label(INK))
        .x_label_formatter(&|value| (x.text)(*value))
        .y_label_formatter(&|value| (y.text)(*value))
        .draw()?;
    Ok(chart)
}

/// Dots at the left of a chart for the labels of its axis.
fn left(y: &Scale) -> i32 {
    let labels: Vec<String> = y.ticks.iter().map(|tick| (y.text)(*tick)).collect();
    text_width(labels.iter().map(String::as_str)) + dots(14.0)
}

/// Dots from the left to the right of a chart.
fn inner_width<DB: DrawingBackend>(area: &Area<DB>, left: i32) -> f64 {
    f64::from((area.dim_in_pixel().0 as i32 - left - dots(RIGHT)).max(1))
}

/// As many labels as have room along an axis.
fn most<DB: DrawingBackend>(area: &Area<DB>) -> usize {
    (area.dim_in_pixel().0 / (SCALE * 80)).clamp(3, 10) as usize
}

/// Seconds since the first frame.
fn times(frames: &[FrameRecord]) -> Vec<f64> {
    let first = frames.first().map(|frame| frame.arrived).unwrap_or_default();
    frames.iter().map(|frame| frame.arrived.seconds_since(first)).collect()
}

/// The usual time from one frame to the next of the same input; of several inputs, the longest.
fn interval(frames: &[FrameRecord]) -> f64 {
    let of = |input: Input| {
        let own = || frames.iter().filter(|frame| frame.input == input).map(|frame| frame.arrived);
        let mut steps: Vec<f64> = own().zip(own().skip(1)).map(|(a, b)| b.seconds_since(a)).collect();
        Percentiles::of(&mut steps).p50
    };
    Input::ALL.into_iter().map(of).fold(0.0, f64::max)
}

fn time_scale<DB: DrawingBackend>(area: &Area<DB>, end: f64) -> Scale<'static> {
    let range = 0.0..end.max(1e-3);
    Scale {
        ticks: linear_ticks(&range, most(area)),
        range,
        text: &|seconds| format!("{} s", tick_label(seconds)),
    }
}

/// The drive seen from above.
pub struct Plan {
    truth: Vec<Line>,
    estimate: Vec<Line>,
    wrong: Line,
}

impl Plan {
    pub fn new(frames: &[FrameRecord], evaluation: &Evaluation, wrong: Limit) -> Self {
        let times = times(frames);
        let gap = GAP * interval(frames);
        let place = |pose: &Rigid| (pose.translation.x, pose.translation.y);
        let is_wrong = |beside: &FrameTruth| beside.error.is_some_and(|error| !error.is_within(wrong));
        let lines = |points: Vec<(f64, (f64, f64))>| -> Vec<Line> {
            let places = |line: Vec<(f64, (f64, f64))>| line.into_iter().map(|(_, place)| place).collect();
            cut(points, gap).into_iter().map(places).collect()
        };
        let truth = times.iter().zip(&evaluation.frames);
        let truth = truth.filter_map(|(time, beside)| Some((*time, place(&beside.truth?)))).collect();
        let (mut right, mut off) = (Vec::new(), Vec::new());
        for ((time, frame), beside) in times.iter().zip(frames).zip(&evaluation.frames) {
            if let Some(estimate) = frame.estimate {
                let place = place(&estimate.map_t_base);
                match is_wrong(beside) {
                    true => off.push(place),
                    false => right.push((*time, place)),
                }
            }
        }
        Self { truth: lines(truth), estimate: lines(right), wrong: off }
    }

    /// What is shown, in metres: the truth and what is right, or where there is neither, all.
    fn bounds(&self) -> [Range<f64>; 2] {
        let trusted = || self.truth.iter().chain(&self.estimate).flatten();
        let of = |pick: fn(&(f64, f64)) -> f64| {
            let values: Vec<f64> = match trusted().next() {
                Some(_) => trusted().map(pick).collect(),
                None => self.wrong.iter().map(pick).collect(),
            };
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if low <= high {
                low..high
            } else {
                0.0..0.0
            }
        };
        [of(|place| place.0), of(|place| place.1)]
    }
}

impl Figure for Plan {
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let [x, y] = self.bounds();
        let middle = |range: &Range<f64>| 0.5 * (range.start + range.end);
        let (width, height) = area.dim_in_pixel();
        let room = (
            f64::from(width) - f64::from(dots(RIGHT + 60.0)),
            f64::from(height) - f64::from(dots(TOP + BOTTOM)),
        );
        // Metres a dot, the same both ways, and some room about it.
        let metres = (1.1 * (x.end - x.start) / room.0).max(1.1 * (y.end - y.start) / room.1).max(1e-3);
        let about = |range: &Range<f64>, room: f64| {
            middle(range) - 0.5 * room * metres..middle(range) + 0.5 * room * metres
        };
        let range = about(&y, room.1);
        let many = most(area);
        let y_scale = Scale {
            ticks: linear_ticks(&range, (many * height as usize / width as usize).max(3)),
            range: range.clone(),
            text: &tick_label,
        };
        let across = inner_width(area, left(&y_scale));
        let x_range = about(&x, across);
        let x_scale =
            Scale { ticks: linear_ticks(&x_range, many), range: x_range.clone(), text: &tick_label };
        let beyond = self
            .wrong
            .iter()
            .filter(|place| !x_range.contains(&place.0) || !range.contains(&place.1))
            .count();
        let wrong = match beyond {
            0 => "wrong".to_owned(),
            n => format!("wrong ({n} beyond the edge)"),
        };
        let mut legend = vec![("truth", FADED), ("estimate", BLUE), (wrong.as_str(), RED)];
        let is_there = [!self.truth.is_empty(), !self.estimate.is_empty(), !self.wrong.is_empty()];
        let mut there = is_there.iter();
        legend.retain(|_| there.next().copied().unwrap_or(false));
        let mut chart = chart(area, "from above, m", &legend, x_scale, y_scale)?;
        let thin = |line: &Line| by_distance(line, metres * f64::from(SCALE) * 0.5);
        chart.draw_series(
            self.truth
                .iter()
                .map(|line| PathElement::new(thin(line), FADED.mix(0.5).stroke_width(5 * SCALE))),
        )?;
        chart.draw_series(
            self.estimate.iter().map(|line| PathElement::new(thin(line), BLUE.stroke_width(3 * SCALE / 2))),
        )?;
        let alone = self.estimate.iter().filter(|line| line.len() == 1).flatten();
        chart.draw_series(alone.map(|place| Circle::new(*place, SCALE, BLUE.filled())))?;
        let clamp = |value: f64, range: &Range<f64>| value.clamp(range.start, range.end);
        let wrong: Line =
            self.wrong.iter().map(|place| (clamp(place.0, &x_range), clamp(place.1, &range))).collect();
        chart.draw_series(
            by_distance(&wrong, metres * f64::from(SCALE))
                .into_iter()
                .map(|place| Circle::new(place, 3 * SCALE, RED.filled())),
        )?;
        let start = self.truth.iter().chain(&self.estimate).flatten().next();
        chart.draw_series(start.map(|place| {
            EmptyElement::at(*place)
                + Circle::new((0, 0), 5 * SCALE, GREEN.filled())
                + Text::new("start", (dots(9.0), dots(-7.0)), label(GREEN))
        }))?;
        Ok(())
    }
}

/// Errors over time.
pub struct Errors {
    end: f64,
    panels: [Panel; 2],
}

struct Panel {
    heading: &'static str,
    unit: &'static str,
    limit: f64,
    lines: Vec<Line>,
}

/// Errors below this are drawn as this: the axis is logarithmic.
const LEAST_ERROR: f64 = 1e-5;

impl Errors {
    /// Of poses in the map, which two inputs may tell in turn. None: no pose has a truth.
    pub fn of_poses(frames: &[FrameRecord], evaluation: &Evaluation, wrong: Limit) -> Option<Self> {
        let panels =
            [("translation error, m", "m", wrong.te_m), ("rotation error, deg", "deg", wrong.re_deg)];
        let errors = |beside: &FrameTruth| beside.error.map(|e| [Some(e.te_m), Some(e.re_deg)]);
        Self::new(frames, evaluation, panels, errors)
    }

    /// Of relative poses. None: none has a truth.
    pub fn of_relative(frames: &[FrameRecord], evaluation: &Evaluation, wrong: Angle) -> Option<Self> {
        let panels = [
            ("error of the direction of a relative pose, deg", "deg", wrong.deg),
            ("error of its rotation, deg", "deg", wrong.deg),
        ];
        let errors = |beside: &FrameTruth| beside.relative?.error.map(|e| [e.direction_deg, Some(e.re_deg)]);
        Self::new(frames, evaluation, panels, errors)
    }

    fn new(
        frames: &[FrameRecord],
        evaluation: &Evaluation,
        panels: [(&'static str, &'static str, f64); 2],
        errors: impl Fn(&FrameTruth) -> Option<[Option<f64>; 2]>,
    ) -> Option<Self> {
        evaluation.frames.iter().find_map(&errors)?;
        let times = times(frames);
        let of_own = times.iter().zip(frames).zip(&evaluation.frames);
        let own: Vec<(f64, [Option<f64>; 2])> =
            of_own.filter_map(|((time, _), beside)| Some((*time, errors(beside)?))).collect();
        let gap = GAP * interval(frames);
        let lines = |pick: fn([Option<f64>; 2]) -> Option<f64>| {
            cut(own.iter().filter_map(|(time, both)| Some((*time, pick(*both)?.max(LEAST_ERROR)))), gap)
        };
        let picked = [lines(|[first, _]| first), lines(|[_, second]| second)];
        let mut picked = picked.into_iter();
        let panels = panels.map(|(heading, unit, limit)| Panel {
            heading,
            unit,
            limit,
            lines: picked.next().unwrap_or_default(),
        });
        Some(Self { end: times.last().copied().unwrap_or(0.0), panels })
    }
}

impl Figure for Errors {
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        for (area, panel) in area.split_evenly((2, 1)).iter().zip(&self.panels) {
            let values = || panel.lines.iter().flatten().map(|point| point.1);
            let low = values().fold(f64::INFINITY, f64::min) / 1.5;
            let high = values().fold(0.0, f64::max) * 1.5;
            let shows_limit = panel.limit < 3.0 * high;
            let high = if shows_limit { high.max(1.5 * panel.limit) } else { high };
            let y = Scale {
                range: low.log10()..high.log10(),
                ticks: log_ticks(&(low..high), 5).into_iter().map(f64::log10).collect(),
                text: &|value| tick_label(10f64.powf(value)),
            };
            let column = self.end.max(1e-3) / inner_width(area, left(&y)) * f64::from(SCALE);
            let beyond = format!("wrong beyond {} {}", panel.limit, panel.unit);
            let legend = [(beyond.as_str(), RED)];
            let legend = if shows_limit { legend.as_slice() } else { &[] };
            let mut chart = chart(area, panel.heading, legend, time_scale(area, self.end), y)?;
            let log = |line: &Line| line.iter().map(|(x, y)| (*x, y.log10())).collect::<Line>();
            let lines: Vec<Line> = by_columns(&panel.lines, column).iter().map(log).collect();
            if shows_limit {
                let limit = panel.limit.log10();
                let line = [(0.0, limit), (self.end, limit)];
                chart.draw_series([PathElement::new(line, RED.stroke_width(SCALE))])?;
            }
            chart.draw_series(
                lines.iter().map(|line| PathElement::new(line.as_slice(), BLUE.stroke_width(SCALE))),
            )?;
            let alone = lines.iter().filter(|line| line.len() == 1).flatten();
            chart.draw_series(alone.map(|point| Circle::new(*point, SCALE, BLUE.filled())))?;
        }
        Ok(())
    }
}

/// Which status the frames had when.
pub struct Timeline {
    end: f64,
    lanes: Vec<(Status, Vec<Range<f64>>)>,
}

impl Timeline {
    pub fn new(frames: &[FrameRecord]) -> Self {
        let times = times(frames);
        let usual = interval(frames);
        let lane = |status: &Status| {
            let mut spans: Vec<Range<f64>> = Vec::new();
            for (i, frame) in frames.iter().enumerate().filter(|(_, frame)| frame.status == *status) {
                let Some(begin) = times.get(i).copied() else { continue };
                let next = times.get(i + 1).copied().unwrap_or(begin + usual);
                let end = next.min(begin + GAP * usual);
                let follows = i > 0 && frames.get(i - 1).is_some_and(|before| before.status == frame.status);
                match spans.last_mut() {
                    Some(span) if follows && span.end >= begin => span.end = end,
                    _ => spans.push(begin..end),
                }
            }
            (*status, spans)
        };
        let lanes = Status::ALL.iter().map(lane).filter(|(_, spans)| !spans.is_empty()).collect();
        Self { end: times.last().copied().unwrap_or(0.0) + usual, lanes }
    }

    /// Pixels of a page.
    pub fn height(&self) -> u32 {
        (TOP + BOTTOM) as u32 + 24 * self.lanes.len().max(1) as u32
    }
}

impl Figure for Timeline {
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let name =
            |value: f64| self.lanes.get(value as usize).map_or(String::new(), |lane| lane.0.to_string());
        let range = self.lanes.len().max(1) as f64..0.0;
        let y = Scale { range, ticks: (0..self.lanes.len()).map(|i| i as f64 + 0.5).collect(), text: &name };
        let column = self.end.max(1e-3) / inner_width(area, left(&y)) * f64::from(SCALE);
        let mut chart = chart(area, "status", &[], time_scale(area, self.end), y)?;
        for (i, (status, spans)) in self.lanes.iter().enumerate() {
            // Spans less than a pixel apart are one, and none is thinner than a pixel.
            let mut wide: Vec<Range<f64>> = Vec::new();
            for span in spans {
                let end = span.end.max(span.start + column);
                match wide.last_mut() {
                    Some(last) if span.start < last.end + column => last.end = end,
                    _ => wide.push(span.start..end),
                }
            }
            let colour = if *status == Status::Ok { GREEN } else { ORANGE };
            let (top, bottom) = (i as f64 + 0.15, i as f64 + 0.85);
            chart.draw_series(
                wide.iter()
                    .map(|span| Rectangle::new([(span.start, top), (span.end, bottom)], colour.filled())),
            )?;
        }
        Ok(())
    }
}

/// How many answers took how long.
pub struct Histogram {
    ms: Vec<f64>,
    percentiles: Percentiles,
}

/// Bars of the histogram.
const BARS: usize = 40;

impl Histogram {
    pub fn new(frames: &[FrameRecord], summary: &Summary) -> Self {
        // The axis is logarithmic.
        let ms = frames.iter().map(|frame| (frame.total_us * 1e-3).max(1e-4)).collect();
        Self { ms, percentiles: summary.total_ms().unwrap_or_default() }
    }
}

impl Figure for Histogram {
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let low = self.ms.iter().copied().fold(f64::INFINITY, f64::min).min(1e6) / 1.1;
        let high = self.ms.iter().copied().fold(low, f64::max) * 1.1;
        let (begin, step) = (low.log10(), (high / low).log10() / BARS as f64);
        let mut counts = [0u32; BARS];
        for ms in &self.ms {
            let bar = ((ms.log10() - begin) / step) as usize;
            if let Some(count) = counts.get_mut(bar.min(BARS - 1)) {
                *count += 1;
            }
        }
        let top = 1.05 * f64::from(counts.iter().copied().max().unwrap_or(0).max(1));
        let x = Scale {
            range: begin..high.log10(),
            ticks: log_ticks(&(low..high), most(area)).into_iter().map(f64::log10).collect(),
            text: &|value| tick_label(10f64.powf(value)),
        };
        let y = Scale { range: 0.0..top, ticks: linear_ticks(&(0.0..top), 5), text: &tick_label };
        let [p50, p99] = [("p50", self.percentiles.p50), ("p99", self.percentiles.p99)]
            .map(|(name, ms)| format!("{name} {}", short(ms)));
        let legend = [(p50.as_str(), INK), (p99.as_str(), ORANGE)];
        let mut chart = chart(area, "time to an answer, ms", &legend, x, y)?;
        let bars = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(i, count)| {
            let x = begin + i as f64 * step;
            Rectangle::new([(x, f64::from(*count)), (x + step, 0.0)], BLUE.filled())
        });
        chart.draw_series(bars)?;
        for (ms, colour) in [(self.percentiles.p50, INK), (self.percentiles.p99, ORANGE)] {
            let x = ms.max(low).log10();
            chart
                .draw_series([PathElement::new([(x, 0.0), (x, top)], colour.stroke_width(3 * SCALE / 2))])?;
        }
        Ok(())
    }
}

/// A number in three digits, and at most three after the point.
pub fn short(value: f64) -> String {
    let digits = (2.0 - value.abs().max(1e-3).log10().floor()).clamp(0.0, 3.0) as usize;
    format!("{value:.digits$}")
}

/// How long each stage took.
pub struct Stages(Vec<(String, Percentiles)>);

impl Stages {
    pub fn new(summary: &Summary) -> Self {
        Self(summary.latency.iter().map(|stage| (stage.stage.clone(), stage.ms)).collect())
    }
}

impl Figure for Stages {
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let longest = self.0.iter().map(|(_, ms)| ms.p99).fold(1e-3, f64::max);
        let range = 0.0..1.05 * longest;
        let name = |value: f64| self.0.get(value as usize).map_or(String::new(), |stage| stage.0.clone());
        let x = Scale { ticks: linear_ticks(&range, most(area)), range, text: &tick_label };
        let rows = self.0.len();
        let y = Scale {
            range: rows.max(1) as f64..0.0,
            ticks: (0..rows).map(|i| i as f64 + 0.5).collect(),
            text: &name,
        };
        let mut chart = chart(area, "stages, ms", &[("p50", BLUE), ("p99", ORANGE)], x, y)?;
        let bar = |i: usize, ms: f64, colour: RGBColor, half: f64| {
            let middle = i as f64 + 0.5;
            Rectangle::new([(0.0, middle - half), (ms, middle + half)], colour.filled())
        };
        chart.draw_series(self.0.iter().enumerate().map(|(i, (_, ms))| bar(i, ms.p99, ORANGE, 0.12)))?;
        chart.draw_series(self.0.iter().enumerate().map(|(i, (_, ms))| bar(i, ms.p50, BLUE, 0.34)))?;
        Ok(())
    }
}
