//! `flashreg pose`

use super::answer::{describe, finish, milliseconds, named, pose_rows, rows, vector, write_mask};
use super::params::Choice;
use super::say;
use anyhow::{bail, Context};
use clap::{Args, ValueEnum};
use flashreg::estimation::{
    AbsoluteProblem, AbsoluteRow, Estimation, Estimator, RelativeProblem, RelativeRow, Sight, StageTimes,
    TriangulationProblem, Triangulator,
};
use flashreg::geometry::{Camera, Point, Pose, Vector};
use flashreg::homotopy::Backend;
use flashreg::io::table::{self, identity, Columns};
use flashreg::io::trajectory::Trajectory;
use flashreg::messages::camera_info::CameraInfoView;
use flashreg::messages::{Dropped, Stamp};
use flashreg::params::{BackendChoice, CameraProblem, CameraSolver, Params, Value as Parameter};
use flashreg::status::{PointStatus, Status};
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// What is sought.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Wanted {
    /// Pose of a calibrated camera
    P3p,
    /// The same with up known (--up-source, --up-target)
    Vertical,
    /// The same from all rows, none of which is wrong
    Pnp,
    /// Pose and focal length
    #[value(name = "p4p_focal")]
    P4pFocal,
    /// Pose, focal length and distortion (division model)
    #[value(name = "p4p_focal_radial")]
    P4pFocalRadial,
    /// Pose and motion of a camera with a rolling shutter
    RollingShutter,
    /// The same, whatever the turn between sensor and map
    #[value(name = "rolling_shutter_1lin")]
    RollingShutter1lin,
    /// Pose of the reference view relative to the current one
    FivePoint,
    /// The same, and the focal length
    #[value(name = "six_point_focal")]
    SixPointFocal,
    /// Points from views whose poses are known (--views)
    Triangulate,
}

#[derive(Args)]
pub struct EstimatePose {
    /// What is sought
    problem: Wanted,
    /// Features, a row each: text, CSV or npy
    file: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// Calibration of pixels: fx,fy,cx,cy, or a file of camera_calibration (camera_info as YAML)
    #[arg(long, value_name = "FX,FY,CX,CY|YAML")]
    camera: Option<String>,
    /// Distortion of --camera fx,fy,cx,cy: plumb_bob, rational_polynomial or equidistant, and its coefficients
    #[arg(long, value_name = "MODEL:K1,...", requires = "camera")]
    distortion: Option<String>,
    /// Rows are bearings x y z in place of pixels u v
    #[arg(long, conflicts_with = "camera")]
    bearings: bool,
    /// What solves samples: auto, closed_form, homotopy
    #[arg(long)]
    solver: Option<String>,
    /// Direction of up in the optical frame, for `vertical`
    #[arg(long, value_name = "X,Y,Z", requires = "up_target", allow_hyphen_values = true)]
    up_source: Option<String>,
    /// Direction of up in the frame of the points
    #[arg(long, value_name = "X,Y,Z", requires = "up_source", allow_hyphen_values = true)]
    up_target: Option<String>,
    /// Poses of the views of `triangulate` (TUM: number of the view, x y z qx qy qz qw), camera in map
    #[arg(long, value_name = "FILE")]
    views: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write 1 or 0 for each row of the file: inlier or not
    #[arg(long, value_name = "FILE")]
    mask: Option<PathBuf>,
}

const WEIGHT_ID: &[&str] = &["weight", "id"];
const POINTS: Columns = Columns { needed: &["u", "v", "tx", "ty", "tz"], optional: WEIGHT_ID, aliases: &[] };
const RAYS: Columns =
    Columns { needed: &["x", "y", "z", "tx", "ty", "tz"], optional: WEIGHT_ID, aliases: &[] };
const PAIRS: Columns = Columns { needed: &["u", "v", "tu", "tv"], optional: WEIGHT_ID, aliases: &[] };
const TRACKS: Columns = Columns { needed: &["id", "view", "u", "v"], optional: &["weight"], aliases: &[] };
const RAY_TRACKS: Columns =
    Columns { needed: &["id", "view", "x", "y", "z"], optional: &["weight"], aliases: &[] };

/// What makes a sight of the first numbers of a row.
enum Sensor {
    Pixels(Box<Camera>, f64),
    Bearings(f64),
}

impl Sensor {
    fn sight(&self, numbers: &[f64]) -> Result<Sight, Unusable> {
        let finite = numbers.iter().all(|v| v.is_finite()).then_some(()).ok_or(Unusable::NonFinite);
        match (self, numbers) {
            (Self::Pixels(camera, threshold), [u, v]) => {
                finite.and_then(|()| Sight::of_pixel([*u, *v], camera, *threshold).ok_or(Unusable::Pixel))
            }
            (Self::Bearings(threshold), [x, y, z]) => finite.and_then(|()| {
                Sight::of_bearing(&Vector::new(*x, *y, *z), *threshold).ok_or(Unusable::NonFinite)
            }),
            _ => Err(Unusable::NonFinite),
        }
    }

    /// Numbers of a feature.
    fn width(&self) -> usize {
        match self {
            Self::Pixels(..) => 2,
            Self::Bearings(_) => 3,
        }
    }
}

/// Why a row is not used.
#[derive(Clone, Copy)]
enum Unusable {
    NonFinite,
    Weight,
    Pixel,
}

/// Which rows of the file are used.
#[derive(Default)]
struct Rows {
    numbers: Vec<usize>,
    total: usize,
    dropped: Dropped,
}

impl Rows {
    fn count(&mut self, outcome: Result<(), Unusable>) {
        match outcome {
            Ok(()) => self.numbers.push(self.total),
            Err(Unusable::NonFinite) => self.dropped.non_finite += 1,
            Err(Unusable::Weight) => self.dropped.weight += 1,
            Err(Unusable::Pixel) => self.dropped.pixel += 1,
        }
        self.total += 1;
    }
}

impl EstimatePose {
    pub fn run(self) -> ExitCode {
        finish(self.try_run(), self.json)
    }

    fn try_run(&self) -> anyhow::Result<bool> {
        let params = self.params()?;
        let sensor = self.sensor(&params)?;
        match self.problem {
            Wanted::Triangulate => self.triangulate(&sensor, &params),
            Wanted::FivePoint | Wanted::SixPointFocal => self.relative(&sensor, &params),
            _ => self.absolute(&sensor, &params),
        }
    }

    fn params(&self) -> anyhow::Result<Params> {
        let mut params = self.choice.params()?;
        let problem = match self.problem {
            Wanted::Pnp => CameraProblem::Pnp,
            Wanted::P4pFocal | Wanted::SixPointFocal => CameraProblem::Focal,
            Wanted::P4pFocalRadial => CameraProblem::FocalRadial,
            Wanted::RollingShutter => CameraProblem::RollingShutter,
            Wanted::RollingShutter1lin => CameraProblem::RollingShutterLinear,
            Wanted::P3p | Wanted::Vertical | Wanted::FivePoint | Wanted::Triangulate => {
                CameraProblem::Calibrated
            }
        };
        params.camera.problem = problem;
        if let Some(solver) = &self.solver {
            params.set("camera.solver", &Parameter::Text(solver.clone()))?;
        }
        Ok(params)
    }

    fn sensor(&self, params: &Params) -> anyhow::Result<Sensor> {
        if self.bearings {
            return Ok(Sensor::Bearings(params.camera.inlier_threshold_rad));
        }
        let Some(text) = &self.camera else { bail!("--camera for pixels, or --bearings, is needed") };
        let camera = match numbers(text) {
            Some(numbers) => by_numbers(&numbers, self.distortion.as_deref())?,
            None if self.distortion.is_some() => bail!("--distortion: the calibration file has its own"),
            None => by_file(Path::new(text), params.camera.rectified)
                .with_context(|| format!("--camera {text}"))?,
        };
        Ok(Sensor::Pixels(Box::new(camera), params.camera.inlier_threshold_px))
    }

    fn read(
        &self,
        columns: Columns,
        mut row: impl FnMut(&[f64]) -> Result<(), Unusable>,
    ) -> anyhow::Result<Rows> {
        let mut rows = Rows::default();
        let mut read = || -> Result<(), table::FileError> {
            table::read(BufReader::new(File::open(&self.file)?), columns, |values| rows.count(row(values)))
        };
        read().with_context(|| format!("cannot read {}", self.file.display()))?;
        Ok(rows)
    }

    fn absolute(&self, sensor: &Sensor, params: &Params) -> anyhow::Result<bool> {
        let mut problem = AbsoluteProblem::default();
        let at = sensor.width();
        let file = self.read(if at == 2 { POINTS } else { RAYS }, |values| {
            let (feature, rest) = values.split_at(at);
            let [tx, ty, tz, weight, id] = *rest else { return Err(Unusable::NonFinite) };
            let (point, weight, id) = (Point::new(tx, ty, tz), weight as f32, identity(id));
            let row = AbsoluteRow { sight: sensor.sight(feature)?, point, weight, id };
            match problem.push(row) {
                true => Ok(()),
                false if point.iter().all(|v| v.is_finite()) => Err(Unusable::Weight),
                false => Err(Unusable::NonFinite),
            }
        })?;
        if let Sensor::Pixels(camera, _) = sensor {
            problem.set_intrinsics((&**camera).into());
        }
        let up = self.up_source.as_ref().zip(self.up_target.as_ref());
        match (self.problem, up) {
            (Wanted::Vertical, Some((source, target))) => problem.set_up(vector(source)?, vector(target)?),
            (Wanted::Vertical, None) => bail!("vertical needs --up-source and --up-target"),
            (_, Some(_)) => bail!("--up-source, --up-target: only for vertical"),
            (_, None) => {}
        }
        let params = capacious(params, problem.rows().len());
        let mut estimator = Estimator::new(&params)?;
        let start = Instant::now();
        let result = estimator.absolute(&problem, &params);
        self.answer(&file, result, start.elapsed().as_secs_f64() * 1e3)
    }

    fn relative(&self, sensor: &Sensor, params: &Params) -> anyhow::Result<bool> {
        let mut problem = RelativeProblem::default();
        let at = sensor.width();
        let file = self.read(if at == 2 { PAIRS } else { RAYS }, |values| {
            let (features, rest) = values.split_at(2 * at);
            let (current, reference) = features.split_at(at);
            let [weight, id] = *rest else { return Err(Unusable::NonFinite) };
            let (sight, reference) = (sensor.sight(current)?, sensor.sight(reference)?);
            let row = RelativeRow { sight, reference, weight: weight as f32, id: identity(id) };
            problem.push(row).then_some(()).ok_or(Unusable::Weight)
        })?;
        if let Sensor::Pixels(camera, _) = sensor {
            problem.set_intrinsics((&**camera).into());
        }
        let params = capacious(params, problem.rows().len());
        let mut estimator = Estimator::new(&params)?;
        let start = Instant::now();
        let result = estimator.relative(&problem, &params);
        self.answer(&file, result, start.elapsed().as_secs_f64() * 1e3)
    }

    fn answer(&self, file: &Rows, result: &Estimation, ms: f64) -> anyhow::Result<bool> {
        if let Some(path) = &self.mask {
            let marked = file.numbers.iter().zip(&result.inlier_mask).filter(|(_, inlier)| **inlier);
            write_mask(path, file.total, marked.map(|(number, _)| *number).collect())?;
        }
        let answer = Answer { file, result, ms };
        let text = if self.json { answer.json().to_string() } else { answer.text() };
        say(text.trim_end());
        Ok(result.status == Status::Ok)
    }

    fn triangulate(&self, sensor: &Sensor, params: &Params) -> anyhow::Result<bool> {
        let Some(path) = &self.views else { bail!("triangulate needs --views") };
        let views = Trajectory::read_tum(path).with_context(|| format!("cannot read {}", path.display()))?;
        let numbers: BTreeMap<Stamp, usize> = views.stamps().iter().copied().zip(0..).collect();
        let poses = views.poses().iter().map(|map_t_camera| Pose::from(&map_t_camera.inverse())).collect();
        // Points by their identity, in its order.
        let mut tracks: BTreeMap<u32, Vec<(usize, Sight)>> = BTreeMap::new();
        let mut unknown = None;
        let columns = if sensor.width() == 2 { TRACKS } else { RAY_TRACKS };
        let file = self.read(columns, |values| {
            let (id, view) = (values.first().copied(), values.get(1).copied());
            let id = id.and_then(identity).ok_or(Unusable::NonFinite)?;
            let number = view.and_then(identity).ok_or(Unusable::NonFinite)?;
            let known = numbers.get(&Stamp(i64::from(number) * 1_000_000_000)).copied();
            unknown = unknown.or(known.is_none().then_some(number));
            let sight = sensor.sight(values.get(2..2 + sensor.width()).unwrap_or(&[]))?;
            tracks.entry(id).or_default().extend(known.map(|view| (view, sight)));
            Ok(())
        })?;
        if let Some(view) = unknown {
            bail!("{}: no view {view}", path.display());
        }
        let mut problem = TriangulationProblem::new(poses);
        let ids: Vec<u32> =
            tracks.iter().filter(|(_, sights)| problem.push(sights)).map(|(id, _)| *id).collect();
        let solver = if params.camera.solver == CameraSolver::Homotopy {
            CameraSolver::Homotopy
        } else {
            CameraSolver::ClosedForm
        };
        let backend = match params.backend.kind {
            BackendChoice::Auto => Backend::Auto,
            BackendChoice::Cpu => Backend::Cpu,
            BackendChoice::Cuda => Backend::Cuda,
        };
        let triangulator = Triangulator::new(solver, backend, problem.len())?;
        let start = Instant::now();
        let points = triangulator.solve(&problem, NOISE);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let ok = points.iter().filter(|point| point.status == PointStatus::Ok).count();
        let left_out = tracks.len() - ids.len();
        if self.json {
            let points: Value = ids
                .iter()
                .zip(&points)
                .map(|(id, p)| {
                    let found = p.point.iter().all(|v| v.is_finite());
                    json!({
                        "id": id,
                        "status": p.status.name(),
                        "point": found.then(|| [p.point.x, p.point.y, p.point.z]),
                        "covariance": found.then(|| rows(&p.covariance)),
                        "residual": p.residual.is_finite().then_some(p.residual),
                        "significance": p.significance.is_finite().then_some(p.significance),
                    })
                })
                .collect();
            say(json!({
                "status": if ok > 0 { "ok" } else { "degenerate" },
                "points": points,
                "ok": ok,
                "single_views": left_out,
                "dropped_rows": dropped(&file.dropped),
                "solver": triangulator.solver(),
                "ms": ms,
            }));
        } else {
            say("# id status x y z sx sy sz residual");
            for (id, p) in ids.iter().zip(&points) {
                let std = p.covariance.diagonal().map(f64::sqrt);
                let numbers = [p.point.x, p.point.y, p.point.z, std.x, std.y, std.z, p.residual];
                let numbers: Vec<String> = numbers.iter().map(|v| format!("{v:.6}")).collect();
                say(format!("{id} {} {}", p.status, numbers.join(" ")));
            }
            say(format!("# {ok} of {} points, {ms:.2} ms, {}", points.len(), triangulator.solver()));
        }
        Ok(ok > 0)
    }
}

/// Standard deviation of a coordinate of a residual of a triangulated point, in thresholds: the threshold is at
/// four of them, as the defaults have it for a noise of one pixel.
const NOISE: f64 = 0.25;

/// The same parameters with room for all rows of a file.
fn capacious(params: &Params, rows: usize) -> Params {
    let mut params = params.clone();
    params.camera.max_correspondences = params.camera.max_correspondences.max(rows as i64);
    params
}

fn numbers(text: &str) -> Option<Vec<f64>> {
    text.split(',').map(|v| v.trim().parse().ok()).collect()
}

fn dropped(d: &Dropped) -> Value {
    json!({ "non_finite": d.non_finite, "weight": d.weight, "pixel": d.pixel })
}

/// The camera of a message with the size that its principal point suggests.
fn by_numbers(numbers: &[f64], distortion: Option<&str>) -> anyhow::Result<Camera> {
    let [fx, fy, cx, cy] = *numbers else { bail!("--camera: four numbers fx,fy,cx,cy needed") };
    let (model, coefficients) = match distortion {
        None => ("", Vec::new()),
        Some(text) => {
            let (model, list) = text.split_once(':').context("--distortion: MODEL:K1,K2,... needed")?;
            (model, self::numbers(list).with_context(|| format!("--distortion {text}: no numbers"))?)
        }
    };
    let size = |c: f64| (2.0 * c + 1.0).clamp(1.0, f64::from(u32::MAX)) as u32;
    let k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0];
    camera([size(cx), size(cy)], model, &coefficients, k, [0.0; 9], [0.0; 12], false)
}

/// A calibration as camera_calibration and camera_info_manager write it.
#[derive(Deserialize)]
struct Calibration {
    image_width: u32,
    image_height: u32,
    camera_matrix: Matrix,
    #[serde(default)]
    distortion_model: String,
    #[serde(default)]
    distortion_coefficients: Matrix,
    #[serde(default)]
    rectification_matrix: Matrix,
    #[serde(default)]
    projection_matrix: Matrix,
}

#[derive(Deserialize, Default)]
struct Matrix {
    data: Vec<f64>,
}

impl Matrix {
    /// Its numbers; zeros if there are none.
    fn numbers<const N: usize>(&self, name: &str) -> anyhow::Result<[f64; N]> {
        match self.data.len() {
            0 => Ok([0.0; N]),
            n => self.data.as_slice().try_into().with_context(|| format!("{name}: {n} numbers, {N} needed")),
        }
    }
}

fn by_file(path: &Path, rectified: bool) -> anyhow::Result<Camera> {
    let text = std::fs::read_to_string(path)?;
    let c: Calibration = serde_yaml::from_str(&text)?;
    let k = c.camera_matrix.numbers("camera_matrix")?;
    let (r, p) = (
        c.rectification_matrix.numbers("rectification_matrix")?,
        c.projection_matrix.numbers("projection_matrix")?,
    );
    let size = [c.image_width, c.image_height];
    camera(size, &c.distortion_model, &c.distortion_coefficients.data, k, r, p, rectified)
}

fn camera(
    [width, height]: [u32; 2],
    distortion_model: &str,
    coefficients: &[f64],
    k: [f64; 9],
    r: [f64; 9],
    p: [f64; 12],
    rectified: bool,
) -> anyhow::Result<Camera> {
    let view = CameraInfoView {
        stamp: Stamp(0),
        frame: "",
        height,
        width,
        distortion_model,
        d: std::array::from_fn(|i| coefficients.get(i).copied().unwrap_or(0.0)),
        d_len: coefficients.len() as u32,
        k,
        r,
        p,
        binning: [0; 2],
        roi: [0; 4],
    };
    Ok(view.camera(rectified)?)
}

/// An estimation with what belongs to the file.
struct Answer<'a> {
    file: &'a Rows,
    result: &'a Estimation,
    ms: f64,
}

impl Answer<'_> {
    fn json(&self) -> Value {
        let r = self.result;
        let list = |v: &Vector| [v.x, v.y, v.z];
        json!({
            "status": r.status.name(),
            "reason": r.reason.to_string(),
            "target_t_source": r.target_t_source.as_ref().map(pose_rows),
            "focal": r.focal,
            "distortion": r.distortion,
            "rate": r.motion.map(|[rate, _]| list(&rate)),
            "velocity": r.motion.map(|[_, velocity]| list(&velocity)),
            "inliers": r.inliers,
            "independent_inliers": r.independent_inliers,
            "correspondences": self.file.numbers.len(),
            "dropped_rows": dropped(&self.file.dropped),
            "covariance": r.target_t_source.map(|_| rows(&r.covariance)),
            "margin": r.target_t_source.map(|_| r.margin),
            "score": r.score,
            "residual": r.residual,
            "log10_false_alarms": r.log10_false_alarms,
            "spread": r.spread,
            "runner_up": r.runner_up.map(|other| json!({
                "target_t_source": pose_rows(&other.target_t_source),
                "score": other.score,
                "inliers": other.inliers,
            })),
            "samples": r.samples,
            "hypotheses": r.hypotheses,
            "missed": r.missed,
            "solver": r.solver,
            "backend": r.backend,
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
        if let Some(focal) = r.focal {
            line("focal", format!("{focal:.3} px"));
        }
        if let Some(k) = r.distortion {
            line("distortion", format!("{k:.6e} per px^2 (division model)"));
        }
        if let Some([w, v]) = r.motion {
            line("rate", format!("{:.3e} {:.3e} {:.3e} rad per row", w.x, w.y, w.z));
            line("velocity", format!("{:.3e} {:.3e} {:.3e} m per row", v.x, v.y, v.z));
        }
        let used = self.file.numbers.len();
        line("inliers", format!("{} of {used} ({} independent)", r.inliers, r.independent_inliers));
        if r.target_t_source.is_some() {
            line("margin", format!("{:.3}", r.margin));
        }
        let d = self.file.dropped;
        if d.non_finite + d.weight + d.pixel > 0 {
            let what = format!(
                "{} rows not finite, {} of no weight, {} outside what the lens shows",
                d.non_finite, d.weight, d.pixel
            );
            line("left out", what);
        }
        line("samples", format!("{} ({} hypotheses, {})", r.samples, r.hypotheses, r.solver));
        let stages = milliseconds(&StageTimes::NAMES, &r.stages.values());
        line("time", format!("{:.2} ms ({stages}), {}", self.ms, r.backend));
        lines.join("\n")
    }
}
