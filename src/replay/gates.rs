//! Gates: what a drive has to reach, by itself and beside an earlier one.

use super::metrics::{AbsoluteError, Angle, Evaluation, Kidnap, Limit, Statistics, Summary};
use super::result::ResultFile;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What is asked of a drive. None: nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Gates {
    /// Largest distance of an accepted pose from the truth, m.
    pub max_te_m: Option<f64>,
    /// Largest angle of an accepted pose to the truth, degrees.
    pub max_re_deg: Option<f64>,
    /// Smallest recall.
    pub min_recall: Option<MinRecall>,
    /// Largest root mean square of the distances of the accepted poses from the truth, m.
    #[serde(default)]
    pub max_rmse_m: Option<f64>,
    /// Largest root mean square of their angles to the truth, degrees.
    #[serde(default)]
    pub max_rmse_deg: Option<f64>,
    /// Most accepted poses that are wrong, beyond [`Options::wrong`](super::metrics::Options::wrong).
    #[serde(default)]
    pub max_wrong: Option<u64>,
    /// Smallest share of unknown starts that are localized in time, 0 .. 1.
    #[serde(default)]
    pub min_localized: Option<f64>,
    /// Smallest and largest share of the errors within two standard deviations, for each of the six coordinates.
    #[serde(default)]
    pub coverage: Option<[f64; 2]>,
    /// Longest time until a robot that was carried away is noticed, s.
    #[serde(default)]
    pub max_notice_s: Option<f64>,
    /// Longest time until its pose is right again, s.
    #[serde(default)]
    pub max_recover_s: Option<f64>,
    /// Largest 99th percentile of the time to an answer, milliseconds.
    pub max_p99_ms: Option<f64>,
    /// Largest angle of the rotation of an accepted relative pose to the truth, degrees.
    #[serde(default)]
    pub max_relative_re_deg: Option<f64>,
    /// Largest angle of the direction of an accepted relative pose to the truth, degrees.
    #[serde(default)]
    pub max_direction_deg: Option<f64>,
    /// Smallest recall of relative poses.
    #[serde(default)]
    pub min_relative_recall: Option<MinRecall<Angle>>,
}

/// A recall at a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MinRecall<L = Limit> {
    /// Of the frames that have a truth, 0 .. 1.
    pub share: f64,
    /// The limit; none: the first of the options, such as
    /// [`Options::recall`](super::metrics::Options::recall).
    pub limit: Option<L>,
}

/// `0.95`, or `0.95@5,2`: at 5 degrees and 2 metres; of relative poses `0.95@5`.
impl<L: FromStr<Err = String>> FromStr for MinRecall<L> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (share, limit) = match text.split_once('@') {
            Some((share, limit)) => (share, Some(limit.parse()?)),
            None => (text, None),
        };
        let share = share.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share));
        let share =
            share.ok_or_else(|| format!("'{text}': a share of 0 to 1 needed, such as 0.95 or 0.95@LIMIT"))?;
        Ok(Self { share, limit })
    }
}

/// A gate and how the drive stands to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What is asked.
    pub gate: String,
    /// The bound.
    pub bound: f64,
    /// What the drive has. None: it cannot be told (no truth, no pose), which does not pass.
    pub value: Option<f64>,
    /// It passes.
    pub passed: bool,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.passed { "passed" } else { "failed" };
        match self.value {
            Some(value) => write!(f, "{word}: {}: {value:.4}, bound {:.4}", self.gate, self.bound),
            None => write!(f, "{word}: {}: unknown, bound {:.4}", self.gate, self.bound),
        }
    }
}

impl Verdict {
    fn at_most(gate: &str, bound: f64, value: Option<f64>) -> Self {
        let passed = value.is_some_and(|value| value <= bound);
        Self { gate: gate.to_owned(), bound, value, passed }
    }

    fn at_least(gate: String, bound: f64, value: Option<f64>) -> Self {
        let passed = value.is_some_and(|value| value >= bound);
        Self { gate, bound, value, passed }
    }
}

impl Gates {
    /// Every gate that was asked for, in their order.
    pub fn check(&self, evaluation: &Evaluation) -> Vec<Verdict> {
        let summary = &evaluation.summary;
        let ate = summary.ate.as_ref();
        let te = |bound| Verdict::at_most("max_te_m", bound, ate.map(|ate| ate.translation_m.max));
        let re = |bound| Verdict::at_most("max_re_deg", bound, ate.map(|ate| ate.rotation_deg.max));
        let recall = |min: MinRecall| {
            let limit = min.limit.or_else(|| summary.recall.first().map(|recall| recall.limit));
            let recall = limit.and_then(|limit| evaluation.recall(limit));
            let at = limit.map_or(String::new(), |limit| format!(" at {limit}"));
            Verdict::at_least(format!("min_recall{at}"), min.share, recall.map(|recall| recall.share))
        };
        let rmse = |of: fn(&AbsoluteError) -> Statistics| ate.map(|ate| of(ate).rmse);
        // Without an accepted pose none is wrong, where there is a truth to say so.
        let accepted_wrong = || match &summary.wrong {
            Some(wrong) => Some(wrong.accepted as f64),
            None => (summary.with_truth > 0).then_some(0.0),
        };
        let wrong = |bound: u64| Verdict::at_most("max_wrong", bound as f64, accepted_wrong());
        let localized = |bound| {
            let starts = summary.starts.as_ref();
            let within = starts.map_or(String::new(), |starts| format!(" within {} s", starts.within_s));
            Verdict::at_least(format!("min_localized{within}"), bound, starts.map(|starts| starts.share))
        };
        let coverage =
            || summary.consistency.iter().flat_map(|c| c.coordinates.iter().map(|[_, two, _]| *two));
        let longest = |of| longest(summary, of);
        let p99 = |bound| Verdict::at_most("max_p99_ms", bound, p99_ms(summary));
        let relative = summary.relative.as_ref();
        let turn = |bound| {
            Verdict::at_most("max_relative_re_deg", bound, relative.and_then(|s| Some(s.rotation_deg?.max)))
        };
        let direction = |bound| {
            Verdict::at_most("max_direction_deg", bound, relative.and_then(|s| Some(s.direction_deg?.max)))
        };
        let relative_recall = |min: MinRecall<Angle>| {
            let first = || relative.and_then(|relative| Some(relative.recall.first()?.limit));
            let limit = min.limit.or_else(first);
            let recall = limit.and_then(|limit| evaluation.relative_recall(limit));
            let at = limit.map_or(String::new(), |limit| format!(" at {limit}"));
            let gate = format!("min_relative_recall{at}");
            Verdict::at_least(gate, min.share, recall.map(|recall| recall.share))
        };
        let verdicts = [
            self.max_te_m.map(te),
            self.max_re_deg.map(re),
            self.min_recall.map(recall),
            self.max_rmse_m.map(|bound| Verdict::at_most("max_rmse_m", bound, rmse(|ate| ate.translation_m))),
            self.max_rmse_deg
                .map(|bound| Verdict::at_most("max_rmse_deg", bound, rmse(|ate| ate.rotation_deg))),
            self.max_wrong.map(wrong),
            self.min_localized.map(localized),
            self.coverage.map(|[low, _]| {
                let least = coverage().reduce(f64::min);
                Verdict::at_least("min_coverage at 2 sigma".to_owned(), low, least)
            }),
            self.coverage.map(|[_, high]| {
                Verdict::at_most("max_coverage at 2 sigma", high, coverage().reduce(f64::max))
            }),
            self.max_notice_s.map(|bound| Verdict::at_most("max_notice_s", bound, longest(|k| k.noticed_s))),
            self.max_recover_s
                .map(|bound| Verdict::at_most("max_recover_s", bound, longest(|k| k.recovered_s))),
            self.max_p99_ms.map(p99),
            self.max_relative_re_deg.map(turn),
            self.max_direction_deg.map(direction),
            self.min_relative_recall.map(relative_recall),
        ];
        verdicts.into_iter().flatten().collect()
    }
}

/// 99th percentile of the time to an answer. None: there was no frame.
fn p99_ms(summary: &Summary) -> Option<f64> {
    summary.total_ms().filter(|_| summary.frames > 0).map(|ms| ms.p99)
}

/// The longest of the kidnaps. None: there was none, or one that it never came to.
fn longest(summary: &Summary, of: fn(&Kidnap) -> Option<f64>) -> Option<f64> {
    let all: Option<Vec<f64>> = summary.kidnaps.iter().map(of).collect();
    all?.into_iter().reduce(f64::max)
}

fn relative_wrong(summary: &Summary) -> Option<f64> {
    Some(summary.relative.as_ref()?.wrong?.share)
}

fn relative_turn(summary: &Summary) -> Option<f64> {
    Some(summary.relative.as_ref()?.rotation_deg?.p50)
}

fn relative_direction(summary: &Summary) -> Option<f64> {
    Some(summary.relative.as_ref()?.direction_deg?.p50)
}

/// A number of this drive beside that of an earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What it is, with its unit.
    pub metric: String,
    /// The earlier drive.
    pub baseline: Option<f64>,
    /// This drive.
    pub value: Option<f64>,
    /// The worst value that is no regression. None: this number is shown and not judged.
    pub bound: Option<f64>,
    /// It is no regression.
    pub passed: bool,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.4}"));
        let word = if self.passed { "no regression" } else { "regression" };
        write!(f, "{word}: {}: {} after {}", self.metric, number(self.value), number(self.baseline))?;
        self.bound.map_or(Ok(()), |bound| write!(f, ", bound {bound:.4}"))
    }
}

/// Which change of a number is worse than none.
#[derive(Clone, Copy)]
enum Tolerance {
    /// Shares may fall by so much.
    Fall(f64),
    /// Shares may rise by so much.
    Rise(f64),
    /// Errors and times may grow by this share of them, and by this much however small they are.
    Grow(f64, f64),
    /// Not judged.
    Any,
}

/// Shares of frames may fall (recall, accepted poses) by this much.
pub const SHARE: f64 = 0.01;
/// The share of wrong poses among the accepted ones may rise by this much.
pub const WRONG: f64 = 0.001;
/// Errors may grow by this share of them.
pub const ERROR: f64 = 0.10;
/// Times may grow by this share of them.
pub const TIME: f64 = 0.25;

impl Tolerance {
    fn bound(self, baseline: f64) -> Option<f64> {
        match self {
            Tolerance::Fall(by) => Some(baseline - by),
            Tolerance::Rise(by) => Some(baseline + by),
            Tolerance::Grow(share, by) => Some((baseline * (1.0 + share)).max(baseline + by)),
            Tolerance::Any => None,
        }
    }
}

/// This drive beside an earlier one, which is expected to be of the same bag.
pub fn compare(baseline: &ResultFile, now: &Evaluation) -> Vec<Comparison> {
    let (before, after) = (&baseline.summary, &now.summary);
    let of = |metric: &str, value: fn(&Summary) -> Option<f64>, tolerance: Tolerance| {
        Comparison::new(metric.to_owned(), value(before), value(after), tolerance)
    };
    let mut rows = vec![of("accepted poses, share", Summary::accepted_share, Tolerance::Fall(SHARE))];
    // At the limits of the baseline, whatever this drive was asked for.
    rows.extend(before.recall.iter().map(|recall| {
        let value = now.recall(recall.limit).map(|recall| recall.share);
        let metric = format!("recall at {}", recall.limit);
        Comparison::new(metric, Some(recall.share), value, Tolerance::Fall(SHARE))
    }));
    rows.extend([
        of("wrong among accepted, share", |s| Some(s.wrong?.share), Tolerance::Rise(WRONG)),
        of("ATE, m", |s| Some(s.ate?.translation_m.rmse), Tolerance::Grow(ERROR, 0.001)),
        of("ATE, degrees", |s| Some(s.ate?.rotation_deg.rmse), Tolerance::Grow(ERROR, 0.01)),
        of("RPE, m", |s| Some(s.rpe?.translation_m.rmse), Tolerance::Any),
        of("RPE, degrees", |s| Some(s.rpe?.rotation_deg.rmse), Tolerance::Any),
        of("NEES, mean", |s| Some(s.consistency?.nees_mean), Tolerance::Any),
        of("first fix, s", |s| s.first_fix.accepted_s, Tolerance::Grow(0.0, 1.0)),
        of("p50, ms", |s| Some(s.total_ms()?.p50), Tolerance::Any),
        of("p99, ms", p99_ms, Tolerance::Grow(TIME, 0.5)),
    ]);
    if before.starts.is_some() {
        rows.extend([
            of("localized starts, share", |s| Some(s.starts.as_ref()?.share), Tolerance::Fall(SHARE)),
            of("wrong starts", |s| Some(s.starts.as_ref()?.wrong as f64), Tolerance::Rise(0.0)),
            of(
                "start to first pose p50, s",
                |s| Some(s.starts.as_ref()?.first_s?.p50),
                Tolerance::Grow(TIME, 0.1),
            ),
        ]);
    }
    if !before.kidnaps.is_empty() {
        let mut row = |metric: &str, kidnap: fn(&Kidnap) -> Option<f64>| {
            let [before, after] = [before, after].map(|summary| longest(summary, kidnap));
            rows.push(Comparison::new(metric.to_owned(), before, after, Tolerance::Grow(0.0, 0.5)));
        };
        row("kidnapped to noticed, s", |kidnap| kidnap.noticed_s);
        row("kidnapped to recovered, s", |kidnap| kidnap.recovered_s);
    }
    if let Some(relative) = &before.relative {
        rows.extend(relative.recall.iter().map(|recall| {
            let value = now.relative_recall(recall.limit).map(|recall| recall.share);
            let metric = format!("relative recall at {}", recall.limit);
            Comparison::new(metric, Some(recall.share), value, Tolerance::Fall(SHARE))
        }));
        rows.extend([
            of("relative wrong among accepted, share", relative_wrong, Tolerance::Rise(WRONG)),
            of("relative rotation p50, degrees", relative_turn, Tolerance::Grow(ERROR, 0.01)),
            of("relative direction p50, degrees", relative_direction, Tolerance::Grow(ERROR, 0.1)),
        ]);
    }
    rows
}

impl Comparison {
    fn new(metric: String, baseline: Option<f64>, value: Option<f64>, tolerance: Tolerance) -> Self {
        let bound = baseline.and_then(|baseline| tolerance.bound(baseline));
        let passed = match (bound, value) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(bound), Some(value)) if matches!(tolerance, Tolerance::Fall(_)) => value >= bound,
            (Some(bound), Some(value)) => value <= bound,
        };
        Self { metric, baseline, value, bound, passed }
    }
}
