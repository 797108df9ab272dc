//! `flashreg register`

use super::params::Choice;
use super::say;
use anyhow::{bail, Context};
use clap::Args;
use flashreg::geometry::Vector;
use flashreg::io::correspondence_file::CorrespondenceFile;
use flashreg::registration::{Correspondence, Problem, Registrar, Registration, StageTimes};
use flashreg::status::Status;
use serde_json::{json, Map, Value};
use std::io::Write as _;
use std::path::{Path, PathBuf};
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
        match self.try_run() {
            Ok(Status::Ok) => ExitCode::SUCCESS,
            Ok(_) => ExitCode::from(1),
            Err(e) => {
                if self.json {
                    say(bad_input(&format!("{e:#}")));
                }
                eprintln!("error: {e:#}");
                ExitCode::from(2)
            }
        }
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
            write_mask(path, &file, problem.rows(), &result.inlier_mask)
                .with_context(|| path.display().to_string())?;
        }
        let text = if self.json { outcome.json().to_string() } else { outcome.text() };
        say(text.trim_end());
        Ok(result.status)
    }
}

/// The object that `--json` prints when there is nothing to register.
pub fn bad_input(reason: &str) -> Value {
    json!({
        "status": Status::BadInput.name(),
        "reason": reason,
        "target_t_source": null,
        "inliers": 0,
        "covariance": null,
        "margin": null,
        "backend": null,
        "ms": null,
    })
}

fn vector(text: &str) -> anyhow::Result<Vector> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(|v| v.trim().parse()).collect();
    match numbers.as_deref() {
        Ok([x, y, z]) => Ok(Vector::new(*x, *y, *z)),
        _ => bail!("'{text}': three numbers x,y,z needed"),
    }
}

/// One line per row of the file. The rows that were registered are those of the file in the same
/// order, less those that were dropped or cut.
fn write_mask(
    path: &Path,
    file: &CorrespondenceFile,
    used: impl Iterator<Item = Correspondence>,
    inliers: &[bool],
) -> std::io::Result<()> {
    let mut mask = vec![false; file.total];
    let mut used = used.zip(inliers).peekable();
    for (row, number) in file.rows.iter().zip(&file.numbers) {
        if let Some((_, inlier)) = used.next_if(|(candidate, _)| candidate == row) {
            if let Some(entry) = mask.get_mut(*number) {
                *entry = *inlier;
            }
        }
    }
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    for inlier in mask {
        writeln!(out, "{}", u8::from(inlier))?;
    }
    out.flush()
}

impl Outcome<'_> {
    fn json(&self) -> Value {
        let r = self.result;
        let rows = |m: &dyn Fn(usize, usize) -> f64, n: usize| -> Value {
            (0..n).map(|i| (0..n).map(|j| json!(m(i, j))).collect::<Value>()).collect()
        };
        let matrix = |pose: &flashreg::geometry::Rigid| {
            let m = pose.to_homogeneous();
            rows(&|i, j| m[(i, j)], 4)
        };
        let stages: Map<String, Value> =
            StageTimes::NAMES.iter().zip(r.stages.values()).map(|(n, v)| ((*n).into(), json!(v))).collect();
        json!({
            "status": r.status.name(),
            "reason": r.reason.to_string(),
            "target_t_source": r.target_t_source.as_ref().map(matrix),
            "inliers": r.inliers,
            "independent_inliers": r.independent_inliers,
            "correspondences": self.used,
            "dropped_rows": {
                "non_finite": self.file.dropped.non_finite,
                "weight": self.file.dropped.weight,
                "truncated": self.cut,
            },
            // Without a pose there is nothing to be sure of: null, not zero.
            "covariance": r.target_t_source.map(|_| rows(&|i, j| r.covariance[(i, j)], 6)),
            "margin": r.target_t_source.map(|_| r.margin),
            "score": r.score,
            "log10_false_alarms": r.log10_false_alarms,
            "spread": r.spread,
            "runner_up": r.runner_up.map(|other| json!({
                "target_t_source": matrix(&other.target_t_source),
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
            "stages_us": stages,
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
            let name = match r.status {
                Status::Ok => "target_t_source",
                _ => "target_t_source, not to be trusted",
            };
            line(name, String::new());
            for row in pose.to_homogeneous().row_iter() {
                let row: Vec<String> = row.iter().map(|v| format!("{v:12.6}")).collect();
                line("", row.join(" "));
            }
            let (t, q) = (pose.translation.vector, pose.rotation.coords);
            let (roll, pitch, yaw) = pose.rotation.euler_angles();
            line("translation", format!("{:.4} {:.4} {:.4} m", t.x, t.y, t.z));
            line("quaternion", format!("{:.6} {:.6} {:.6} {:.6} (x y z w)", q.x, q.y, q.z, q.w));
            let [roll, pitch, yaw] = [roll, pitch, yaw].map(f64::to_degrees);
            line("roll pitch yaw", format!("{roll:.3} {pitch:.3} {yaw:.3} deg"));
            let std = r.covariance.diagonal().map(f64::sqrt);
            let degrees = [std[3], std[4], std[5]].map(f64::to_degrees);
            line(
                "std dev",
                format!(
                    "{:.4} {:.4} {:.4} m, {:.3} {:.3} {:.3} deg",
                    std[0], std[1], std[2], degrees[0], degrees[1], degrees[2]
                ),
            );
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
        let stages: Vec<String> = StageTimes::NAMES
            .iter()
            .zip(r.stages.values())
            .map(|(name, us)| format!("{name} {:.2}", us * 1e-3))
            .collect();
        line("time", format!("{:.2} ms ({})", self.ms, stages.join(", ")));
        line("backend", format!("{} ({})", r.backend, self.backend_why));
        lines.join("\n")
    }
}
