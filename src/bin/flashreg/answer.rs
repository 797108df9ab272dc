//! What `register` and `pose` read and print in the same way.

use super::say;
use anyhow::{bail, Context};
use flashreg::geometry::{Rigid, Vector};
use flashreg::status::Status;
use nalgebra::{Matrix6, SMatrix};
use serde_json::{json, Map, Value};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

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

/// Exit code of a command that finds a pose: 0 if it can be trusted, 1 if not; 2 after an error, which goes to stderr,
/// and to stdout as an object where `json` was asked for.
pub fn finish(trusted: anyhow::Result<bool>, json: bool) -> ExitCode {
    match trusted {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            if json {
                say(bad_input(&format!("{e:#}")));
            }
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Three numbers with commas between them.
pub fn vector(text: &str) -> anyhow::Result<Vector> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(|v| v.trim().parse()).collect();
    match numbers.as_deref() {
        Ok([x, y, z]) => Ok(Vector::new(*x, *y, *z)),
        _ => bail!("'{text}': three numbers x,y,z needed"),
    }
}

/// A line per row of a file of so many rows: 1 for the inliers.
pub fn write_mask(path: &Path, rows: usize, inliers: Vec<usize>) -> anyhow::Result<()> {
    let mut mask = vec![0; rows];
    inliers.into_iter().for_each(|number| mask.get_mut(number).into_iter().for_each(|entry| *entry = 1));
    let write = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        for inlier in mask {
            writeln!(out, "{inlier}")?;
        }
        out.flush()
    };
    write().with_context(|| path.display().to_string())
}

/// A matrix as a list of rows.
pub fn rows<const R: usize, const C: usize>(m: &SMatrix<f64, R, C>) -> Value {
    (0..R).map(|i| (0..C).map(|j| json!(m[(i, j)])).collect::<Value>()).collect()
}

/// A pose as the rows of its matrix.
pub fn pose_rows(pose: &Rigid) -> Value {
    rows(&pose.to_homogeneous())
}

/// Numbers by name.
pub fn named(names: &[&str], values: &[f64]) -> Value {
    let all: Map<String, Value> = names.iter().zip(values).map(|(n, v)| ((*n).into(), json!(v))).collect();
    Value::Object(all)
}

/// Microseconds by name, as text in milliseconds.
pub fn milliseconds(names: &[&str], values: &[f64]) -> String {
    let all = names.iter().zip(values).map(|(name, us)| format!("{name} {:.2}", us * 1e-3));
    all.collect::<Vec<_>>().join(", ")
}

/// The lines of a pose.
pub fn describe(
    pose: &Rigid,
    status: Status,
    covariance: &Matrix6<f64>,
    line: &mut impl FnMut(&str, String),
) {
    let name = match status {
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
    let std = covariance.diagonal().map(f64::sqrt);
    let degrees = [std[3], std[4], std[5]].map(f64::to_degrees);
    line(
        "std dev",
        format!(
            "{:.4} {:.4} {:.4} m, {:.3} {:.3} {:.3} deg",
            std[0], std[1], std[2], degrees[0], degrees[1], degrees[2]
        ),
    );
}
