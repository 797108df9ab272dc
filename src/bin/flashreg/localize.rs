//! `flashreg localize`

use super::answer::{describe, finish, milliseconds, named, pose_rows, rows, vector};
use super::params::Choice;
use super::say;
use anyhow::Context;
use clap::Args;
use flashreg::geometry::Point;
use flashreg::io::cloud_files;
use flashreg::localizer::map::{Map, Settings};
use flashreg::localizer::{Engine, Once, ScanTimes};
use flashreg::registration::Registrar;
use flashreg::status::Status;
use serde_json::{json, Value};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

#[derive(Args)]
pub struct Localize {
    /// PCD or PLY file of one scan, in the frame of the sensor
    scan: PathBuf,
    /// PCD or PLY file of the map
    map: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// About the vertical in the frame of the sensor
    #[arg(long, value_name = "X,Y,Z", default_value = "0,0,1", allow_hyphen_values = true)]
    up: String,
    /// Both are clouds in frames of their own, seen from near its origin: which way is up is not known, and they may
    /// share no more than a part
    #[arg(long, conflicts_with = "up")]
    pair: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Localize {
    pub fn run(self) -> ExitCode {
        finish(self.try_run().map(|status| status == Status::Ok), self.json)
    }

    fn try_run(&self) -> anyhow::Result<Status> {
        let params = self.choice.params()?;
        let up = vector(&self.up)?.try_normalize(1e-9).context("--up: a direction must have a length")?;
        let scan = cloud_files::read(&self.scan).with_context(|| self.scan.display().to_string())?;
        let viewpoint = self.pair.then(Point::origin);
        let settings = Settings { viewpoint, ..Settings::from(&params) };
        let map = Arc::new(Map::load(&self.map, &settings, |_| ())?);
        let mut registrar = Registrar::new(&params)?;
        let mut engine = Engine::new(map, &params)?;
        let start = Instant::now();
        let once = match self.pair {
            true => engine.register_pair(&scan.points, &mut registrar, &params),
            false => engine.localize(&scan.points, &up, &mut registrar, &params),
        };
        let ms = start.elapsed().as_secs_f64() * 1e3;
        match self.json {
            true => say(object(&once, ms, registrar.backend())),
            false => print(&once, ms, scan.points.len()),
        }
        Ok(once.status)
    }
}

fn object(once: &Once, ms: f64, backend: &str) -> Value {
    let best = once.candidates.first();
    let candidates = once.candidates.iter().map(|candidate| {
        json!({
            "target_t_source": pose_rows(&candidate.alignment.map_t_sensor),
            "overlap": candidate.evidence.on,
            "score": candidate.evidence.score,
            "through": candidate.evidence.through,
            "unknown": candidate.evidence.unknown,
        })
    });
    json!({
        "status": once.status.name(),
        "reason": once.why,
        "target_t_source": best.map(|best| pose_rows(&best.alignment.map_t_sensor)),
        "covariance": best.map(|best| rows(&best.alignment.covariance)),
        "inliers": best.map_or(0, |best| best.alignment.inliers),
        "candidates": candidates.collect::<Vec<_>>(),
        "stages_us": named(&ScanTimes::NAMES, &once.times.values()),
        "backend": backend,
        "ms": ms,
    })
}

fn print(once: &Once, ms: f64, points: usize) {
    let mut line = |name: &str, text: String| say(format_args!("{name:<16} {text}").to_string().trim_end());
    line("status", format!("{}  {}", once.status, once.why));
    line("points", points.to_string());
    if let Some(best) = once.candidates.first() {
        describe(&best.alignment.map_t_sensor, once.status, &best.alignment.covariance, &mut line);
    }
    for candidate in &once.candidates {
        let (t, evidence) = (candidate.alignment.map_t_sensor.translation.vector, &candidate.evidence);
        let (x, y, z) = (t.x, t.y, t.z);
        line(
            "candidate",
            format!("{x:.2} {y:.2} {z:.2} m, overlap {:.2}, score {:.1}", evidence.on, evidence.score),
        );
    }
    line("time", format!("{ms:.1} ms: {}", milliseconds(&ScanTimes::NAMES, &once.times.values())));
}
