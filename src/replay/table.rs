//! The numbers of a drive as lines of text.

use super::gates::Comparison;
use super::metrics::{
    Consistency, InputSummary, Kidnap, ModeLatency, RelativeSummary, StageLatency, Starts, Statistics,
    EXPECTED,
};
use super::result::ResultFile;
use std::fmt::{self, Write};

/// The table that is printed after a replay.
pub fn summary(result: &ResultFile) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, result);
    text
}

fn write_all(out: &mut String, result: &ResultFile) -> fmt::Result {
    let (summary, run) = (&result.summary, &result.run);
    let part = if run.complete { "" } else { ", interrupted" };
    writeln!(
        out,
        "{}: {:.1} s{part}, on {} ({})",
        run.bag, summary.duration_s, run.backend.kind, run.backend.why
    )?;
    writeln!(out, "frames      {}: {}", summary.frames, counts(&summary.statuses))?;
    let others = run.counters.iter().filter(|(name, _)| !matches!(name.as_str(), "received" | "accepted"));
    let others = counts(others);
    if !others.is_empty() {
        writeln!(out, "counted     {others}")?;
    }
    for loss in &run.losses {
        writeln!(out, "not read    {loss}")?;
    }
    for note in &run.notes {
        writeln!(out, "note        {note}")?;
    }
    let fix = |seconds: Option<f64>| seconds.map_or("none".to_owned(), |s| format!("after {s:.1} s"));
    write!(out, "first fix   {}", fix(summary.first_fix.accepted_s))?;
    match &run.truth {
        Some(truth) => {
            writeln!(out, ", first right one {}", fix(summary.first_fix.right_s))?;
            writeln!(out, "truth       {truth}: at {} frames", summary.with_truth)?;
        }
        None => writeln!(out, "\ntruth       none")?,
    }
    for recall in &summary.recall {
        let (share, right) = (100.0 * recall.share, recall.right);
        writeln!(out, "recall      {share:6.2} % ({right}) within {}", recall.limit)?;
    }
    if let Some(wrong) = &summary.wrong {
        writeln!(out, "wrong       {} accepted beyond {}", wrong.accepted, wrong.limit)?;
    }
    if let Some(all) = &summary.starts {
        starts(out, all)?;
    }
    summary.kidnaps.iter().try_for_each(|kidnap| kidnapped(out, kidnap))?;
    if let Some(ate) = &summary.ate {
        errors(out, "ATE", &ate.translation_m, &ate.rotation_deg)?;
    }
    if let Some(rpe) = &summary.rpe {
        errors(out, &format!("RPE, {}", rpe.step), &rpe.translation_m, &rpe.rotation_deg)?;
    }
    if let Some(c) = &summary.consistency {
        let [low, high] = c.nees_expected;
        let (mean, median) = (c.nees_mean, c.nees_median);
        writeln!(
            out,
            "NEES        mean {mean:.3} (right: {low:.3} .. {high:.3}), median {median:.3} (5.348)"
        )?;
        for (name, shares) in [("x y z", c.translation), ("rotation", c.rotation), ("pose", c.pose)] {
            let percent = |shares: [f64; 3]| shares.map(|share| format!("{:.1}", 100.0 * share)).join(" ");
            let (got, right) = (percent(shares), percent(EXPECTED));
            writeln!(out, "{name:11} {got} % within 1 2 3 sigma (right: {right})")?;
        }
        coordinates(out, c)?;
    }
    if let Some(r) = &summary.relative {
        relative(out, r)?;
    }
    match summary.inputs.as_slice() {
        inputs @ [_, _, ..] => inputs.iter().try_for_each(|one| input(out, one))?,
        _ => latency(out, "ms", &summary.latency)?,
    }
    if summary.modes.len() > 1 {
        summary.modes.iter().try_for_each(|mode| by_mode(out, mode))?;
    }
    for Comparison { metric, baseline, value, bound, passed } in &result.comparison {
        let word = if *passed { "" } else { " REGRESSION" };
        let bound = bound.map_or(String::new(), |bound| format!(" (bound {bound:.4})"));
        let number = |value: &Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.4}"));
        writeln!(out, "{metric}: {}, before {}{bound}{word}", number(value), number(baseline))?;
    }
    for verdict in &result.verdicts {
        writeln!(out, "gate {verdict}")?;
    }
    Ok(())
}

fn starts(out: &mut String, s: &Starts) -> fmt::Result {
    let (count, localized, share) = (s.count, s.localized, 100.0 * s.share);
    writeln!(out, "starts      {count}: {share:.2} % ({localized}) right within {} s", s.within_s)?;
    writeln!(
        out,
        "            {} with a wrong pose beyond {}, {} without a pose",
        s.wrong, s.limit, s.never
    )?;
    s.first_s.map_or(Ok(()), |p| {
        let (p50, p95, p99, max) = (p.p50, p.p95, p.p99, p.max);
        writeln!(out, "first pose  s   p50 {p50:.2}, p95 {p95:.2}, p99 {p99:.2}, max {max:.2}")
    })
}

fn kidnapped(out: &mut String, kidnap: &Kidnap) -> fmt::Result {
    let after = |seconds: Option<f64>| seconds.map_or("never".to_owned(), |s| format!("after {s:.2} s"));
    let Kidnap { at_s, far_m, wrong, .. } = kidnap;
    let (noticed, recovered) = (after(kidnap.noticed_s), after(kidnap.recovered_s));
    writeln!(
        out,
        "kidnapped   at {at_s:.1} s, {far_m:.1} m: noticed {noticed}, right {recovered}, {wrong} wrong accepted"
    )
}

/// Shares within 2 sigma.
fn coordinates(out: &mut String, c: &Consistency) -> fmt::Result {
    let [x, y, z, rx, ry, rz] = c.coordinates.map(|[_, two, _]| 100.0 * two);
    writeln!(out, "2 sigma, %  x {x:.1}, y {y:.1}, z {z:.1}, rotation x {rx:.1}, y {ry:.1}, z {rz:.1}")
}

fn by_mode(out: &mut String, ModeLatency { mode, frames, ms }: &ModeLatency) -> fmt::Result {
    let (p50, p95, p99, max) = (ms.p50, ms.p95, ms.p99, ms.max);
    writeln!(out, "{mode:11} {p50:9.3} {p95:9.3} {p99:9.3} {max:9.3}  ({frames} frames)")
}

fn relative(out: &mut String, r: &RelativeSummary) -> fmt::Result {
    writeln!(out, "relative    {} frames, {} accepted; truth at {}", r.frames, r.accepted, r.with_truth)?;
    if r.still.frames > 0 {
        let (n, degenerate, accepted) = (r.still.frames, r.still.degenerate, r.still.accepted);
        writeln!(out, "  standing  {n} more with a truth: {degenerate} degenerate, {accepted} accepted")?;
    }
    for recall in &r.recall {
        let (share, right) = (100.0 * recall.share, recall.right);
        writeln!(out, "  recall    {share:6.2} % ({right}) within {}", recall.limit)?;
    }
    if let Some(wrong) = &r.wrong {
        writeln!(out, "  wrong     {} accepted beyond {}", wrong.accepted, wrong.limit)?;
    }
    for (name, degrees) in [("rotation", r.rotation_deg), ("direction", r.direction_deg)] {
        if let Some(p) = degrees {
            let (p50, p95, p99, max) = (p.p50, p.p95, p.p99, p.max);
            writeln!(out, "  {name:9} deg p50 {p50:.4}, p95 {p95:.4}, p99 {p99:.4}, max {max:.4}")?;
        }
    }
    Ok(())
}

/// One of several inputs.
fn input(out: &mut String, one: &InputSummary) -> fmt::Result {
    writeln!(out, "{}: {} frames: {}", one.input, one.frames, counts(&one.statuses))?;
    if let Some(wrong) = &one.wrong {
        writeln!(out, "  wrong     {} accepted beyond {}", wrong.accepted, wrong.limit)?;
    }
    if let Some(ate) = &one.ate {
        errors(out, "  ATE", &ate.translation_m, &ate.rotation_deg)?;
    }
    if let Some(c) = &one.consistency {
        writeln!(out, "  NEES      mean {:.3}, median {:.3} (5.348)", c.nees_mean, c.nees_median)?;
    }
    latency(out, "  ms", &one.latency)
}

fn latency(out: &mut String, heading: &str, stages: &[StageLatency]) -> fmt::Result {
    writeln!(out, "{heading:11} {:>9} {:>9} {:>9} {:>9}", "p50", "p95", "p99", "max")?;
    for StageLatency { stage, ms, .. } in stages {
        let indent = if heading.starts_with(' ') { "  " } else { "" };
        let name = format!("{indent}{stage}");
        writeln!(out, "{name:11} {:9.3} {:9.3} {:9.3} {:9.3}", ms.p50, ms.p95, ms.p99, ms.max)?;
    }
    Ok(())
}

fn errors(out: &mut String, name: &str, metres: &Statistics, degrees: &Statistics) -> fmt::Result {
    for (unit, s) in [("m", metres), ("deg", degrees)] {
        let (rmse, mean, median, max) = (s.rmse, s.mean, s.median, s.max);
        writeln!(out, "{name:11} {unit:3} rmse {rmse:.4}, mean {mean:.4}, median {median:.4}, max {max:.4}")?;
    }
    Ok(())
}

/// Those that are not zero: `ok 12, low_inliers 3`.
fn counts<'a>(counts: impl IntoIterator<Item = (&'a String, &'a u64)>) -> String {
    let counts = counts.into_iter().filter(|(_, n)| **n > 0);
    counts.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}
