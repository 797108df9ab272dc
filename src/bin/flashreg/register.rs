//! `flashreg register`

use super::answer::{describe, finish, milliseconds, named, pose_rows, rows, vector, write_mask};
use super::params::Choice;
use super::say;
use anyhow::{bail, Context};
use clap::Args;
use flashreg::io::correspondence_file::CorrespondenceFile;
use flashreg::registration::{Correspondence, Problem, Registrar, Registration, StageTimes};
use flashreg::status::Status;
use serde_json::{json, Value};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
pub struct Register {
    /// Correspondences, `sx sy sz tx ty tz [weight]` a row: text, CSV or npy
    file: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// Direction of up in the source frame; with --up-target only yaw and translation are sought
    #[arg(long, value_name = "X,Y,Z", requires = "up_target", allow_hyphen_values = true)]
    up_source: Option<String>,
    /// Direction of up in the target frame
    #[arg(long, value_name = "X,Y,Z", requires = "up_source", allow_hyphen_values = true)]
    up_target: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write 1 or 0 for each row of the file: inlier or not
    #[arg(long, value_name = "FILE")]
    mask: Option<PathBuf>,
}

/// A registration with what belongs to the file.
struct Outcome<'a> {
    file: &'a CorrespondenceFile,
    used: usize,
    cut: usize,
    ms: f64,
    backend_why: &'a str,
    result: &'a Registration,
}

impl Register {
    pub fn run(self) -> ExitCode {
        finish(self.try_run().map(|status| status == Status::Ok), self.json)
    }

    fn try_run(&self) -> anyhow::Result<Status> {
        let params = self.choice.params()?;
        let file = CorrespondenceFile::open(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let mut problem = Problem::with_capacity(file.rows.len());
        for row in &file.rows {
            problem.push(*row);
        }
        let capacity = usize::try_from(params.registration.max_correspondences)?;
        let cut = problem.keep_heaviest(capacity);
        if let (Some(source), Some(target)) = (&self.up_source, &self.up_target) {
            if !problem.set_up(vector(source)?, vector(target)?) {
                bail!("--up-source, --up-target: a direction must have a length");
            }
        }

        let mut registrar = Registrar::new(&params)?;
        let backend_why = registrar.why().to_owned();
        let start = Instant::now();
        let result = registrar.register(&problem, &params);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let outcome =
            Outcome { file: &file, used: problem.len(), cut, ms, backend_why: &backend_why, result };

        if let Some(path) = &self.mask {
            write_mask(path, file.total, inliers(&file, problem.rows(), &result.inlier_mask))?;
        }
        let text = if self.json { outcome.json().to_string() } else { outcome.text() };
        say(text.trim_end());
        Ok(result.status)
    }
}

/// The numbers of the rows of the file that are inliers. The rows that were registered are those of the file in the
/// same order, less those that were dropped or cut.
fn inliers(
    file: &CorrespondenceFile,
    used: impl Iterator<Item = Correspondence>,
    mask: &[bool],
) -> Vec<usize> {
    let mut used = used.zip(mask).peekable();
    let numbered = file.rows.iter().zip(&file.numbers);
    let inlier =
        numbered.filter(|(row, _)| used.next_if(|(candidate, _)| candidate == *row).is_some_and(|(_, m)| *m));
    inlier.map(|(_, number)| *number).collect()
}

impl Outcome<'_> {
    fn json(&self) -> Value {
        let r = self.result;
        json!({
            "status": r.status.name(),
            "reason": r.reason.to_string(),
            "target_t_source": r.target_t_source.as_ref().map(pose_rows),
            "inliers": r.inliers,
            "independent_inliers": r.independent_inliers,
            "correspondences": self.used,
            "dropped_rows": {
                "non_finite": self.file.dropped.non_finite,
                "weight": self.file.dropped.weight,
                "truncated": self.cut,
            },
            // Without a pose there is nothing to be sure of: null, not zero.
            "covariance": r.target_t_source.map(|_| rows(&r.covariance)),
            "margin": r.target_t_source.map(|_| r.margin),
            "score": r.score,
            "log10_false_alarms": r.log10_false_alarms,
            "spread": r.spread,
            "runner_up": r.runner_up.map(|other| json!({
                "target_t_source": pose_rows(&other.target_t_source),
                "score": other.score,
                "inliers": other.inliers,
            })),
            "edges": r.edges,
            "pivots": r.pivots,
            "triples": r.triples,
            "truncation": {
                "rows": r.truncation.rows,
                "voters": r.truncation.voters,
                "edges": r.truncation.edges,
                "pool": r.truncation.pool,
            },
            "backend": r.backend,
            "backend_why": self.backend_why,
            "ms": self.ms,
            "stages_us": named(&StageTimes::NAMES, &r.stages.values()),
        })
    }

    fn text(&self) -> String {
        let r = self.result;
        let mut lines = vec![format!("status       {}", r.status)];
        let mut line =
            |name: &str, value: String| lines.push(format!("{name:<12} {value}").trim_end().to_owned());
        let reason = r.reason.to_string();
        if !reason.is_empty() {
            line("reason", reason);
        }
        if let Some(pose) = &r.target_t_source {
            describe(pose, r.status, &r.covariance, &mut line);
        }
        line("inliers", format!("{} of {} ({} independent)", r.inliers, self.used, r.independent_inliers));
        let other =
            r.runner_up.map_or(String::new(), |o| format!(", the next pose has {} inliers", o.inliers));
        if r.target_t_source.is_some() {
            line("margin", format!("{:.3}{other}", r.margin));
        }
        let dropped = self.file.dropped;
        if dropped.non_finite + dropped.weight + self.cut > 0 {
            line(
                "left out",
                format!(
                    "{} rows not finite, {} of no weight, {} beyond max_correspondences",
                    dropped.non_finite, dropped.weight, self.cut
                ),
            );
        }
        let stages = milliseconds(&StageTimes::NAMES, &r.stages.values());
        line("time", format!("{:.2} ms ({stages})", self.ms));
        line("backend", format!("{} ({})", r.backend, self.backend_why));
        lines.join("\n")
    }
}
