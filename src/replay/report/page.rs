//! The text and the tables of the report.

use super::charts::short;
use crate::latency::Percentiles;
use crate::replay::metrics::{Start, Statistics, Still, EXPECTED};
use crate::replay::result::ResultFile;
use crate::status::{Counter, Status};
use std::fmt::Display;

/// The figures, as `svg` elements.
pub struct Figures {
    pub plan: String,
    pub errors: Option<String>,
    pub relative: Option<String>,
    pub timeline: String,
    pub latency: String,
    pub stages: String,
}

/// The page.
pub fn page(result: &ResultFile, figures: &Figures) -> String {
    let style = include_str!("style.css");
    let title = escape(&result.run.bag);
    let figure = |svg: &str| format!("<figure>{svg}</figure>\n");
    let pair = |left: String, right: String| {
        format!("<div class=\"pair\"><div>{left}</div><div>{right}</div></div>\n")
    };
    let body = [
        head(result),
        tiles(result),
        verdicts(result),
        comparison(result),
        figure(&figures.plan),
        figures.errors.as_deref().map(figure).unwrap_or_default(),
        figures.relative.as_deref().map(figure).unwrap_or_default(),
        figure(&figures.timeline),
        pair(statuses(result), recall(result)),
        pair(accuracy(result), consistency(result)),
        starts(result),
        kidnaps(result),
        pair(relative_angles(result), relative_recall(result)),
        inputs(result),
        pair(figure(&figures.latency), figure(&figures.stages)),
        latency(result),
        counters(result),
        settings(result),
    ];
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title} - replay</title>\n<style>\n{style}</style>\n\
         </head>\n<body>\n{}</body>\n</html>\n",
        body.concat()
    )
}

fn escape(text: &str) -> String {
    let pairs = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;")];
    pairs.iter().fold(text.to_owned(), |text, (sign, name)| text.replace(*sign, name))
}

fn heading(text: &str) -> String {
    format!("<h2>{text}</h2>\n")
}

/// A table: the first column is text, the others are numbers. Cells are HTML.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let row = |tag: &str, cells: Vec<String>| -> String {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = row("th", head.iter().map(|cell| (*cell).to_owned()).collect());
    let rows: String = rows.into_iter().map(|cells| row("td", cells)).collect();
    format!("<div class=\"scroll\"><table>\n{head}{rows}</table></div>\n")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn number(value: Option<f64>) -> String {
    value.map_or("unknown".to_owned(), |value| format!("{value:.4}"))
}

fn verdict(passed: bool, good: &str, bad: &str) -> String {
    match passed {
        true => format!("<span class=\"good\">{good}</span>"),
        false => format!("<span class=\"bad\">{bad}</span>"),
    }
}

fn head(result: &ResultFile) -> String {
    let (run, summary) = (&result.run, &result.summary);
    let revision = result.program.revision.as_ref().map_or(String::new(), |r| format!(" ({r})"));
    let how = if run.drive.realtime { "in real time, with dropped frames" } else { "frame by frame" };
    let mut text = format!("<h1>{}</h1>\n", escape(&run.bag));
    let mut line = |line: String| text.push_str(&format!("<p class=\"faded\">{}</p>\n", escape(&line)));
    line(format!(
        "{:.1} s, {} frames, replayed {how} in {:.1} s by flashreg {}{revision}",
        summary.duration_s, summary.frames, run.wall_s, result.program.version
    ));
    let gpu = run.backend.gpu.as_ref().map_or(String::new(), |gpu| format!(", {gpu}"));
    let cuda = run.backend.cuda.as_ref().map_or(String::new(), |cuda| format!(", driver for CUDA {cuda}"));
    line(format!("Backend {}{gpu}{cuda}: {}", run.backend.kind, run.backend.why));
    let aligned = if result.map_t_truth.is_some() { ", laid onto the estimate" } else { "" };
    line(match &run.truth {
        Some(truth) => format!("Truth: {truth}{aligned}, known at {} frames", summary.with_truth),
        None => "No truth: nothing is said of errors.".to_owned(),
    });
    let mut notes: Vec<String> = Vec::new();
    if !run.complete {
        notes.push("Interrupted: this is the part until then.".to_owned());
    }
    notes.extend(run.losses.iter().map(|loss| format!("Not read: {loss}")));
    notes.extend(run.notes.iter().cloned());
    text + &notes.iter().map(|note| format!("<p class=\"note\">{}</p>\n", escape(note))).collect::<String>()
}

fn tiles(result: &ResultFile) -> String {
    let summary = &result.summary;
    let classed = |class: &str, value: String, meaning: String| {
        format!("<div class=\"tile\"><b class=\"{class}\">{value}</b><span>{meaning}</span></div>\n")
    };
    let tile = |value: String, meaning: String| classed("", value, meaning);
    let mut tiles = Vec::new();
    if let Some(share) = summary.accepted_share() {
        tiles.push(tile(
            percent(share),
            format!("accepted, {} of {} frames", summary.accepted, summary.frames),
        ));
    }
    if let Some(recall) = summary.recall.first() {
        tiles.push(tile(percent(recall.share), format!("recall within {}", recall.limit)));
    }
    if let Some(wrong) = summary.wrong {
        let class = if wrong.accepted == 0 { "good" } else { "bad" };
        let meaning = format!("accepted and wrong, beyond {}", wrong.limit);
        tiles.push(classed(class, wrong.accepted.to_string(), meaning));
    }
    if let Some(ate) = summary.ate {
        let (m, deg) = (ate.translation_m.median, ate.rotation_deg.median);
        tiles.push(tile(format!("{m:.3} m"), format!("median error, and {deg:.3} deg")));
    }
    if let Some((wrong, direction)) = summary.relative.as_ref().and_then(|r| r.wrong.zip(r.direction_deg)) {
        let class = if wrong.accepted == 0 { "good" } else { "bad" };
        let meaning = format!("relative poses accepted and wrong, beyond {}", wrong.limit);
        tiles.push(classed(class, wrong.accepted.to_string(), meaning));
        let meaning = "median error of relative directions".to_owned();
        tiles.push(tile(format!("{} deg", short(direction.p50)), meaning));
    }
    if let Some(seconds) = summary.first_fix.accepted_s {
        let right = match summary.first_fix.right_s {
            Some(right) if right > seconds => format!("; first right one after {right:.1} s"),
            _ => String::new(),
        };
        tiles.push(tile(format!("{seconds:.1} s"), format!("to the first pose{right}")));
    }
    if let Some(ms) = summary.total_ms() {
        tiles.push(tile(
            format!("{} ms", short(ms.p99)),
            format!("p99 to an answer; median {} ms", short(ms.p50)),
        ));
    }
    format!("<div class=\"tiles\">\n{}</div>\n", tiles.concat())
}

fn verdicts(result: &ResultFile) -> String {
    if result.verdicts.is_empty() {
        return String::new();
    }
    let rows = result.verdicts.iter().map(|v| {
        vec![escape(&v.gate), number(v.value), number(Some(v.bound)), verdict(v.passed, "passed", "failed")]
    });
    heading("Gates") + &table(&["gate", "this drive", "bound", ""], rows)
}

fn comparison(result: &ResultFile) -> String {
    if result.comparison.is_empty() {
        return String::new();
    }
    let rows = result.comparison.iter().map(|c| {
        let judged = c.bound.map_or(String::new(), |_| verdict(c.passed, "ok", "worse"));
        let bound = c.bound.map_or(String::new(), |bound| number(Some(bound)));
        vec![escape(&c.metric), number(c.value), number(c.baseline), bound, judged]
    });
    heading("Beside the baseline") + &table(&["", "this drive", "baseline", "bound", ""], rows)
}

fn statuses(result: &ResultFile) -> String {
    let summary = &result.summary;
    let share = |n: u64| percent(n as f64 / summary.frames.max(1) as f64);
    let count = |status: &Status| summary.statuses.get(status.name()).copied().filter(|n| *n > 0);
    let rows = Status::ALL.iter().filter_map(|status| Some((status, count(status)?)));
    let rows = rows.map(|(status, n)| {
        vec![
            format!("{status}<br><span class=\"faded\">{}</span>", status.meaning().trim()),
            n.to_string(),
            share(n),
        ]
    });
    heading("Status") + &table(&["status", "frames", "share"], rows)
}

fn recall(result: &ResultFile) -> String {
    let summary = &result.summary;
    if summary.recall.is_empty() {
        return String::new();
    }
    let rows =
        summary.recall.iter().map(|r| vec![r.limit.to_string(), r.right.to_string(), percent(r.share)]);
    let of = format!("<p class=\"faded\">Of the {} frames that have a truth.</p>\n", summary.with_truth);
    heading("Recall") + &table(&["accepted and within", "frames", "recall"], rows) + &of
}

fn accuracy(result: &ResultFile) -> String {
    let row = |name: String, digits: usize, s: &Statistics| {
        let values = [s.rmse, s.mean, s.median, s.max].map(|value| format!("{value:.digits$}"));
        [vec![name], values.to_vec()].concat()
    };
    let mut rows = Vec::new();
    if let Some(ate) = &result.summary.ate {
        rows.push(row("absolute, m".to_owned(), 4, &ate.translation_m));
        rows.push(row("absolute, deg".to_owned(), 4, &ate.rotation_deg));
    }
    if let Some(rpe) = &result.summary.rpe {
        rows.push(row(format!("over {}, m", rpe.step), 4, &rpe.translation_m));
        rows.push(row(format!("over {}, deg", rpe.step), 4, &rpe.rotation_deg));
    }
    match rows.is_empty() {
        true => String::new(),
        false => heading("Trajectory errors") + &table(&["", "rmse", "mean", "median", "max"], rows),
    }
}

fn consistency(result: &ResultFile) -> String {
    let Some(c) = &result.summary.consistency else { return String::new() };
    let row = |name: &str, shares: [f64; 3]| [vec![name.to_owned()], shares.map(percent).to_vec()].concat();
    let axes = ["x", "y", "z", "rotation about x", "rotation about y", "rotation about z"];
    let mut rows = vec![row("x y z", c.translation), row("rotation", c.rotation), row("all six", c.pose)];
    rows.extend(axes.iter().zip(c.coordinates).map(|(name, shares)| row(name, shares)));
    rows.push(row("to be expected", EXPECTED));
    let [low, high] = c.nees_expected;
    let word = if c.nees_mean > high {
        "errors are larger than the covariances say"
    } else if c.nees_mean < low {
        "errors are smaller than the covariances say"
    } else {
        "the covariances are right"
    };
    heading("Covariance")
        + &table(&["errors within", "1 sigma", "2 sigma", "3 sigma"], rows)
        + &format!(
            "<p>Squared error in units of the covariance (NEES): mean {}, expected {low:.2} to {high:.2}; \
             median {}, expected 5.35: {word}.</p>\n",
            short(c.nees_mean),
            short(c.nees_median)
        )
}

/// The most starts that are listed: those that failed come first.
const LISTED: usize = 100;

fn starts(result: &ResultFile) -> String {
    let Some(starts) = &result.summary.starts else { return String::new() };
    let (n, within, never) = (starts.count, starts.within_s, starts.never);
    let wrong = verdict(starts.wrong == 0, "none", &starts.wrong.to_string());
    let first = starts.first_s.map_or(String::new(), |p| {
        format!(
            " First pose after {} s (p50), {} s (p95), {} s at most.",
            short(p.p50),
            short(p.p95),
            short(p.max)
        )
    });
    let text = format!(
        "<p>Of {n} starts {} ({}) had a right first pose within {within} s; {never} had none; with a wrong one, \
         beyond {}: {wrong}.{first}</p>\n",
        starts.localized,
        percent(starts.share),
        starts.limit
    );
    let failed = |start: &Start| start.right != Some(true) || start.accepted_s.is_none_or(|s| s > within);
    let (bad, good): (Vec<&Start>, Vec<&Start>) = starts.each.iter().partition(|start| failed(start));
    let rows = bad.into_iter().chain(good).take(LISTED).map(|start| {
        let value = |value: Option<f64>| value.map(short).unwrap_or_default();
        let right = start.right.map_or(String::new(), |right| verdict(right, "right", "wrong"));
        let refused = start.refused_as.as_deref().map(escape).unwrap_or_default();
        let (at, pose) = (format!("{:.1} s", start.at_s), value(start.accepted_s));
        vec![at, pose, right, value(start.te_m), value(start.re_deg), start.wrong.to_string(), refused]
    });
    let head = ["start at", "pose after, s", "", "error, m", "error, deg", "wrong poses", "refused as"];
    heading("Unknown starts") + &text + &table(&head, rows)
}

fn kidnaps(result: &ResultFile) -> String {
    let kidnaps = &result.summary.kidnaps;
    if kidnaps.is_empty() {
        return String::new();
    }
    let rows = kidnaps.iter().map(|kidnap| {
        let value = |value: Option<f64>| value.map_or("never".to_owned(), short);
        let wrong = verdict(kidnap.wrong == 0, "none", &kidnap.wrong.to_string());
        let (at, far) = (format!("{:.1} s", kidnap.at_s), short(kidnap.far_m));
        vec![at, far, value(kidnap.noticed_s), value(kidnap.recovered_s), wrong]
    });
    heading("Carried away")
        + &table(&["at", "how far, m", "noticed after, s", "right again after, s", "wrong poses"], rows)
}

fn relative_angles(result: &ResultFile) -> String {
    let Some(relative) = &result.summary.relative else { return String::new() };
    let row = |name: &str, degrees: Option<Percentiles>| {
        let p = degrees?;
        Some([vec![name.to_owned()], [p.p50, p.p95, p.p99, p.max].map(short).to_vec()].concat())
    };
    let rows = [row("rotation", relative.rotation_deg), row("direction", relative.direction_deg)];
    let still = match relative.still {
        Still { frames: 0, .. } => String::new(),
        Still { frames, degenerate, accepted } => format!(
            " {frames} more of a camera that stood: {degenerate} refused as degenerate, {accepted} accepted."
        ),
    };
    let (frames, accepted) = (relative.frames, relative.accepted);
    let line = format!(
        "<p class=\"faded\">{frames} frames, {accepted} accepted; {} have a truth.{still}</p>\n",
        relative.with_truth
    );
    heading("Relative poses, degrees")
        + &table(&["error of", "p50", "p95", "p99", "max"], rows.into_iter().flatten())
        + &line
}

fn relative_recall(result: &ResultFile) -> String {
    let Some(relative) = &result.summary.relative else { return String::new() };
    let rows =
        relative.recall.iter().map(|r| vec![r.limit.to_string(), r.right.to_string(), percent(r.share)]);
    let wrong = relative.wrong.map_or(String::new(), |wrong| {
        let count = verdict(wrong.accepted == 0, "none", &wrong.accepted.to_string());
        format!("<p>Accepted and wrong, beyond {}: {count}.</p>\n", wrong.limit)
    });
    match relative.recall.is_empty() {
        true => wrong,
        false => {
            heading("Recall of relative poses")
                + &table(&["accepted and within", "frames", "recall"], rows)
                + &wrong
        }
    }
}

/// Of each of several inputs.
fn inputs(result: &ResultFile) -> String {
    let inputs = &result.summary.inputs;
    if inputs.len() < 2 {
        return String::new();
    }
    let rows = inputs.iter().map(|one| {
        let share = one.accepted as f64 / one.frames.max(1) as f64;
        let error = one.ate.map_or(String::new(), |ate| {
            format!("{:.3} m, {:.3} deg", ate.translation_m.median, ate.rotation_deg.median)
        });
        let wrong = one
            .wrong
            .map_or(String::new(), |wrong| verdict(wrong.accepted == 0, "none", &wrong.accepted.to_string()));
        let total = one.latency.last().map_or(String::new(), |stage| short(stage.ms.p99));
        vec![escape(&one.input), one.frames.to_string(), percent(share), error, wrong, total]
    });
    heading("Inputs") + &table(&["input", "frames", "accepted", "median error", "wrong", "p99, ms"], rows)
}

fn latency(result: &ResultFile) -> String {
    let rows = result.summary.latency.iter().map(|stage| {
        let ms = [stage.ms.p50, stage.ms.p95, stage.ms.p99, stage.ms.max].map(short);
        [vec![stage.stage.clone()], ms.to_vec()].concat()
    });
    let modes = result.summary.modes.iter().map(|mode| {
        let ms = [mode.ms.p50, mode.ms.p95, mode.ms.p99, mode.ms.max].map(short);
        [vec![format!("while {}", mode.mode)], ms.to_vec()].concat()
    });
    let rows = rows.chain(modes);
    heading("Latency, milliseconds") + &table(&["stage", "p50", "p95", "p99", "max"], rows)
}

fn counters(result: &ResultFile) -> String {
    let count = |counter: &Counter| result.run.counters.get(counter.name()).copied().filter(|n| *n > 0);
    let rows = Counter::ALL.iter().filter_map(|counter| Some((counter, count(counter)?)));
    let rows = rows.map(|(counter, n)| {
        vec![format!("{counter}<br><span class=\"faded\">{}</span>", counter.meaning().trim()), n.to_string()]
    });
    heading("Received, lost, refused") + &table(&["counter", "count"], rows)
}

fn settings(result: &ResultFile) -> String {
    let cell = |value: &dyn Display| escape(&value.to_string());
    let rows = result.run.params.iter().map(|(name, value)| vec![cell(name), cell(value)]);
    format!("<details><summary>Parameters</summary>\n{}</details>\n", table(&["parameter", "value"], rows))
}
