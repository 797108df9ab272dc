//! `report.html`: a drive on one page that needs nothing from elsewhere; and its figures as PNG.

mod charts;
mod decimate;
mod page;

use self::charts::{Errors, Histogram, Plan, Stages, Timeline};
use super::metrics::Evaluation;
use super::result::ResultFile;
use super::FrameRecord;
use crate::figure::{png, svg, Figure, FigureError};

/// Width and height of a figure on a wide page and on a narrow one.
type Sizes = [(u32, u32); 2];

const PLAN: Sizes = [(1040, 620), (360, 380)];
const ERRORS: Sizes = [(1040, 420), (360, 340)];
const TIMES: Sizes = [(510, 320), (360, 280)];
const WIDE: u32 = 1040;
const NARROW: u32 = 360;

/// A drive, made ready to be drawn.
pub struct Report<'a> {
    result: &'a ResultFile,
    plan: Plan,
    errors: Option<Errors>,
    relative: Option<Errors>,
    timeline: Timeline,
    latency: Histogram,
    stages: Stages,
}

impl<'a> Report<'a> {
    pub fn new(result: &'a ResultFile, frames: &[FrameRecord], evaluation: &Evaluation) -> Self {
        let wrong = result.options.wrong;
        Self {
            result,
            plan: Plan::new(frames, evaluation, wrong),
            errors: Errors::of_poses(frames, evaluation, wrong),
            relative: Errors::of_relative(frames, evaluation, result.options.relative.wrong),
            timeline: Timeline::new(frames),
            latency: Histogram::new(frames, &result.summary),
            stages: Stages::new(&result.summary),
        }
    }

    /// The figures, by the names of their files.
    pub fn figures(&self) -> Result<Vec<(&'static str, Vec<u8>)>, FigureError> {
        let [plan, errors, times] = [PLAN, ERRORS, TIMES].map(|[wide, _]| wide);
        let mut files = vec![("trajectory.png", png(&self.plan, plan)?)];
        if let Some(figure) = &self.errors {
            files.push(("errors.png", png(figure, errors)?));
        }
        if let Some(figure) = &self.relative {
            files.push(("relative.png", png(figure, errors)?));
        }
        files.push(("status.png", png(&self.timeline, (WIDE, self.timeline.height()))?));
        files.push(("latency.png", png(&self.latency, times)?));
        files.push(("stages.png", png(&self.stages, times)?));
        Ok(files)
    }

    /// The page.
    pub fn html(&self) -> Result<String, FigureError> {
        let height = self.timeline.height();
        let figures = page::Figures {
            plan: both(&self.plan, PLAN, "trajectory from above")?,
            errors: match &self.errors {
                Some(errors) => Some(both(errors, ERRORS, "errors over time")?),
                None => None,
            },
            relative: match &self.relative {
                Some(errors) => Some(both(errors, ERRORS, "errors of relative poses over time")?),
                None => None,
            },
            timeline: both(&self.timeline, [(WIDE, height), (NARROW, height)], "status over time")?,
            latency: both(&self.latency, TIMES, "how long answers took")?,
            stages: both(&self.stages, TIMES, "how long each stage took")?,
        };
        Ok(page::page(self.result, &figures))
    }
}

/// A figure for wide and for narrow pages: the style sheet shows one of them.
fn both(figure: &impl Figure, [wide, narrow]: Sizes, title: &str) -> Result<String, FigureError> {
    let named = |class: &str, size| -> Result<String, FigureError> {
        let head = format!("<svg class=\"{class}\" role=\"img\" aria-label=\"{title}\"");
        Ok(svg(figure, size)?.replacen("<svg", &head, 1))
    };
    Ok(named("wide", wide)? + &named("narrow", narrow)?)
}
