//! The pose of a calibrated camera from features matched with known points.
//!
//! A hypothesis is `camera_t_target` for points about their centre, `X = R p + t`. Unknowns of a refinement: shift
//! of the centre of the camera, turn of the camera, both in the optical frame: `X' = exp(-w) (X - d)`.

use super::calibration::{self, off_axis2, Calibrated, Doubt, Off};
use super::columns::{gain, single, Columns, LANES};
use super::model::{Delta, Footing, Linear, Model, Residuals, CUTS, MOST_UNKNOWNS};
use super::refine::Refiner;
use super::scene;
use super::solvers::p3p;
use super::unique::Unique;
use super::{rotation, AbsoluteProblem, Estimation, Reason};
use crate::geometry::{Pose, Rigid, Vector};
use crate::status::Status;
use multiversion::multiversion;
use nalgebra::{Matrix2x3, Matrix3, Matrix6};

/// Bearings of a sample closer than this many thresholds fix nothing.
const APART: f64 = 2.0;
/// Sine of an angle of a triangle below which its corners lie on a line.
const FLAT: f64 = 1e-3;
/// Points whose hits by chance are counted.
const CHANCE_POINTS: usize = 128;
/// Squared thresholds between which features beside a point are counted.
const RING: [f32; 2] = [4.0, 16.0];
/// A translation that is open by no more than this share of the distance is so because all is far away.
const FAR: f64 = 0.05;
/// Points this many thresholds beside a line, as seen by the camera, are off it.
const OFF_LINE: f64 = 2.0;

/// A row in double precision, its point about the centre.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The point about the centre, m.
    pub point: Vector,
    /// Unit vector.
    pub bearing: Vector,
    /// See [`super::Sight`].
    pub metric: Matrix2x3<f64>,
    /// Relative trust, the heaviest has 1.
    pub weight: f64,
    /// See [`Model::group`].
    pub group: u64,
    /// The threshold as an angle.
    pub angle: f64,
}

/// The problem, loaded.
#[derive(Debug, Default)]
pub(crate) struct Absolute {
    rows: Vec<Row>,
    columns: Columns<12>,
    centre: Vector,
    unique: Unique,
    sorted: Vec<f64>,
}

impl Absolute {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self {
            rows: Vec::with_capacity(n),
            columns: Columns::with_capacity(n),
            unique: Unique::with_capacity(n),
            sorted: Vec::with_capacity(n),
            centre: Vector::zeros(),
        }
    }

    /// Takes a problem: duplicates are left out, points are taken about their median.
    pub fn load(&mut self, problem: &AbsoluteProblem) {
        let rows = problem.rows();
        self.unique.find(rows.iter().map(|row| {
            let (p, b) = (row.point, row.sight.bearing);
            ([p.x, p.y, p.z, b.x, b.y, b.z].map(f64::to_bits), row.id)
        }));
        for axis in 0..3 {
            self.sorted.clear();
            self.sorted.extend(rows.iter().map(|row| row.point[axis]));
            let middle = self.sorted.len() / 2;
            let median = match self.sorted.is_empty() {
                true => 0.0,
                false => *self.sorted.select_nth_unstable_by(middle, f64::total_cmp).1,
            };
            self.centre[axis] = median;
        }
        let heaviest = rows.iter().fold(f32::MIN_POSITIVE, |max, row| max.max(row.weight));
        self.rows.clear();
        for (i, group) in self.unique.kept() {
            let Some(row) = rows.get(*i) else { continue };
            self.rows.push(Row {
                point: row.point.coords - self.centre,
                bearing: row.sight.bearing,
                metric: row.sight.metric,
                weight: f64::from(row.weight) / f64::from(heaviest),
                group: *group,
                angle: scene::angle(&row.sight.metric),
            });
        }
        self.fill();
    }

    fn fill(&mut self) {
        self.columns.clear();
        for Row { point: p, bearing: b, metric: m, .. } in &self.rows {
            let m = [m[(0, 0)], m[(0, 1)], m[(0, 2)], m[(1, 0)], m[(1, 1)], m[(1, 2)]];
            self.columns.push([p.x, p.y, p.z, b.x, b.y, b.z, m[0], m[1], m[2], m[3], m[4], m[5]]);
        }
    }

    /// The rows that are kept.
    pub fn kept(&self) -> &[Row] {
        &self.rows
    }

    /// The numbers of the rows in single precision: point, bearing, metric row by row.
    pub fn columns(&self) -> &Columns<12> {
        &self.columns
    }

    /// The rows of some numbers.
    fn of<'a>(&'a self, rows: &'a [u32]) -> impl Iterator<Item = &'a Row> + Clone + 'a {
        rows.iter().filter_map(|i| self.rows.get(*i as usize))
    }
}

impl Row {
    /// Projection by the metric and derivative of the residual by the point in the optical frame; `None`: behind.
    fn project(&self, x: &Vector) -> Option<([f64; 2], Matrix2x3<f64>)> {
        let depth = self.bearing.dot(x);
        if !(depth > 0.0) {
            return None;
        }
        let u = self.metric * x / depth;
        Some(([u.x, u.y], (self.metric - u * self.bearing.transpose()) / depth))
    }

    /// Squared residual of a point in the optical frame; infinite behind.
    fn residual2(&self, x: &Vector) -> f64 {
        let depth = self.bearing.dot(x);
        let u = self.metric * x;
        if depth > 0.0 {
            u.norm_squared() / (depth * depth)
        } else {
            f64::INFINITY
        }
    }
}

/// Derivative of a number by the unknowns of the pose, from its derivative by the point.
fn by_pose(a: &Vector, x: &Vector) -> [f64; 6] {
    let turn = a.cross(x);
    [-a.x, -a.y, -a.z, turn.x, turn.y, turn.z]
}

fn moved(pose: &Pose, delta: &Delta) -> Pose {
    let turn = rotation::exp(&Vector::new(-delta[3], -delta[4], -delta[5]));
    Pose {
        rotation: turn * pose.rotation,
        translation: turn * (pose.translation - Vector::new(delta[0], delta[1], delta[2])),
    }
}

fn between(from: &Pose, to: &Pose) -> [f64; 6] {
    let turn = to.rotation * from.rotation.transpose();
    let w = -rotation::log(&turn);
    let d = from.translation - turn.transpose() * to.translation;
    [d.x, d.y, d.z, w.x, w.y, w.z]
}

fn padded<const N: usize>(values: [f64; N]) -> Delta {
    let mut out = [0.0; MOST_UNKNOWNS];
    out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
    out
}

impl Residuals for Absolute {
    type Hypothesis = Pose;
    const UNKNOWNS: usize = 6;
    const NUMBERS: usize = 2;

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn weight(&self, row: usize) -> f64 {
        self.rows.get(row).map_or(0.0, |row| row.weight)
    }

    fn residual2(&self, h: &Pose, row: usize) -> f64 {
        self.rows.get(row).map_or(f64::INFINITY, |row| row.residual2(&h.apply(&row.point)))
    }

    fn linear(&self, h: &Pose, row: usize) -> Option<Linear> {
        let row = self.rows.get(row)?;
        let x = h.apply(&row.point);
        let (r, by_point) = row.project(&x)?;
        let j = [0, 1].map(|k| padded(by_pose(&by_point.row(k).transpose(), &x)));
        Some(Linear { r, j })
    }

    fn step(&self, h: &Pose, delta: &Delta) -> Pose {
        moved(h, delta)
    }

    fn difference(&self, from: &Pose, to: &Pose) -> Delta {
        padded(between(from, to))
    }
}

impl Calibrated for Absolute {
    const MATERIAL: [f64; calibration::NUMBERS] = [0.015, 0.08, 0.02, 0.02];
    const TO_TRUTH: bool = false;
    /// Where depths hardly differ a wrong focal length looks like another distance: such a pose rests on the calibration
    /// and is trusted with it.
    const ALLOWS: bool = false;

    fn residual2_off(&self, pose: &Pose, off: &Off, row: usize) -> f64 {
        let row = self.rows.get(row);
        row.map_or(f64::INFINITY, |row| row.residual2(&off.apply(&pose.apply(&row.point))))
    }

    fn linear_off(&self, pose: &Pose, off: &Off, row: usize) -> Option<Linear> {
        let row = self.rows.get(row)?;
        let x = pose.apply(&row.point);
        let (r, by_point) = row.project(&off.apply(&x))?;
        let j = [0, 1].map(|k| {
            let a = by_point.row(k);
            let along = a[0] * off.shift[0] + a[1] * off.shift[1];
            let by_x = Vector::new(a[0], a[1], along) + off.third(&x) * a[2];
            let [d0, d1, d2, w0, w1, w2] = by_pose(&by_x, &x);
            let by_scale = a[2] * x.z;
            padded([d0, d1, d2, w0, w1, w2, by_scale, by_scale * off_axis2(&x), a[0] * x.z, a[1] * x.z])
        });
        Some(Linear { r, j })
    }
}

impl Model for Absolute {
    const SAMPLE: usize = 3;
    const ROOTS: usize = 4;

    fn places(&self) -> &[u32] {
        self.unique.places()
    }

    fn group(&self, row: usize) -> u64 {
        self.rows.get(row).map_or(0, |row| row.group)
    }

    fn is_degenerate(&self, sample: &[u32]) -> bool {
        let mut rows = self.of(sample);
        let (Some(a), Some(b), Some(c)) = (rows.next(), rows.next(), rows.next()) else {
            return true;
        };
        let close = |a: &Row, b: &Row| {
            let least = APART * a.angle.max(b.angle);
            (a.bearing - b.bearing).norm_squared() < least * least
        };
        let (p, q) = (b.point - a.point, c.point - a.point);
        let longest = p.norm_squared().max(q.norm_squared()).max((p - q).norm_squared());
        let area = p.cross(&q).norm_squared();
        close(a, b) || close(b, c) || close(c, a) || !(area > FLAT * FLAT * longest * longest)
    }

    fn solve(&self, sample: &[u32], out: &mut Vec<Pose>) {
        let mut rows = self.of(sample);
        let (Some(a), Some(b), Some(c)) = (rows.next(), rows.next(), rows.next()) else {
            return;
        };
        let mut poses = [Pose::identity(); 4];
        let count = p3p(&[a.bearing, b.bearing, c.bearing], &[a.point, b.point, c.point], &mut poses);
        out.extend(poses.iter().take(count));
    }

    fn score(&self, h: &Pose, more_than: u32) -> u32 {
        score(self.columns.blocks(), self.columns.rows(), h, more_than)
    }

    fn chance(&self, h: &Pose) -> ([u64; CUTS.len()], u64) {
        let n = self.rows.len();
        let points = CHANCE_POINTS.min(n);
        let mut hits = 0;
        for k in 0..points {
            let Some(row) = self.rows.get(k * n / points) else { continue };
            let x = h.apply(&row.point);
            hits += u64::from(beside(self.columns.blocks(), [x.x as f32, x.y as f32, x.z as f32]));
        }
        // In sixteenths of the area within a threshold; one more than counted.
        let area = (RING[1] - RING[0]) as u64 * 16 * points as u64;
        (CUTS.map(|cut| (16.0 * cut) as u64 * (hits + 1)), area)
    }

    fn independent(&self, inliers: &[u32], work: &mut Vec<[i64; 2]>) -> usize {
        let seen = self.of(inliers).map(|row| scene::cell(&row.bearing, row.angle));
        let cells = scene::count_distinct(seen, work);
        // Identities, and where there is none the places of the points.
        let points = self.of(inliers).map(|row| {
            let place = row.point.iter().fold(0, |hash, v| super::sampler::mix(hash ^ v.to_bits()));
            [place as i64, 0]
        });
        cells.min(scene::count_distinct(points, work))
    }

    fn footings(&self, h: &Pose, inliers: &[u32], _: &mut Refiner) -> [Option<Footing>; 2] {
        // What one threshold is at the point: depth times the angle.
        let points = self.of(inliers).map(|row| {
            let x = h.apply(&row.point);
            (x, OFF_LINE * row.angle * row.bearing.dot(&x).max(0.0))
        });
        let lacking = (Status::Degenerate, Reason::Collinear);
        [Some(Footing { rows: scene::off_line(points), fitted: 1, lacking }), None]
    }

    /// A plane seen from afar looks the same when it is tilted to the other side: the reflection in depth of one
    /// in the plane is a turn about the centroid.
    fn twins(&self, h: &Pose, inliers: &[u32], out: &mut Vec<Pose>) {
        let points = self.of(inliers).map(|row| (1.0, h.apply(&row.point)));
        let Some(seen) = scene::scatter(points) else { return };
        let Some(line) = seen.centroid.try_normalize(1e-12) else { return };
        let mirror = |n: &Vector| Matrix3::identity() - n * n.transpose() * 2.0;
        let turn = mirror(&line) * mirror(&seen.axes[2]);
        out.push(Pose {
            rotation: turn * h.rotation,
            translation: seen.centroid + turn * (h.translation - seen.centroid),
        });
    }

    fn turn_round(&mut self) -> bool {
        self.rows.iter_mut().for_each(|row| row.bearing = -row.bearing);
        self.fill();
        true
    }

    fn doubt(&self, h: &Pose, others: &[Pose], variance: f64, refiner: &mut Refiner) -> Option<Doubt> {
        Some(calibration::doubt(self, h, others, variance, refiner))
    }

    fn pose(&self, h: &Pose) -> Rigid {
        let back = h.rotation.transpose();
        Pose { rotation: back, translation: self.centre - back * h.translation }.to_rigid()
    }

    fn report(&self, h: &Pose, covariance: &[Delta], out: &mut Estimation) -> [f64; 2] {
        let back = h.rotation.transpose();
        out.target_t_source = Some(self.pose(h));
        let in_camera = Matrix6::from_fn(|i, j| covariance.get(i).map_or(0.0, |row| row[j]));
        let mut turn = Matrix6::zeros();
        turn.fixed_view_mut::<3, 3>(0, 0).copy_from(&back);
        turn.fixed_view_mut::<3, 3>(3, 3).copy_from(&back);
        let turned = turn * in_camera * turn.transpose();
        out.covariance = (turned + turned.transpose()) * 0.5;
        [0, 3].map(|k| scene::largest_deviation(&out.covariance.fixed_view::<3, 3>(k, k).into_owned()))
    }

    fn unconstrained(&self, h: &Pose, inliers: &[u32], [translation, rotation]: [f64; 2]) -> Reason {
        let depths = self.of(inliers).map(|row| row.bearing.dot(&h.apply(&row.point)));
        let distance = depths.sum::<f64>() / inliers.len().max(1) as f64;
        match translation < FAR * distance {
            true => Reason::FarPoints(translation),
            false => Reason::Unconstrained { translation, rotation },
        }
    }

    fn spread(&self, h: &Pose, inliers: &[u32]) -> [f64; 3] {
        let points = self.of(inliers).map(|row| (1.0, h.apply(&row.point)));
        scene::scatter(points).map_or([0.0; 3], |found| found.values)
    }

    fn nothing(&self, solved: u64) -> (Status, Reason) {
        match solved {
            0 => (Status::Degenerate, Reason::Collinear),
            _ => (Status::LowInliers, Reason::NoSolution),
        }
    }
}

/// Blocks after which a score is given up if it cannot suffice.
const STRIDE: usize = 16;

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn score(blocks: &[[[f32; LANES]; 12]], rows: usize, pose: &Pose, more_than: u32) -> u32 {
    let (r, t) = single(pose);
    let mut sum = 0u32;
    let mut left = rows as u32;
    for part in blocks.chunks(STRIDE) {
        let mut lanes = [0u32; LANES];
        for [x, y, z, bx, by, bz, m00, m01, m02, m10, m11, m12] in part {
            for l in 0..LANES {
                let p = [0, 1, 2].map(|i| ((r[i][0] * x[l] + r[i][1] * y[l]) + r[i][2] * z[l]) + t[i]);
                let d = (bx[l] * p[0] + by[l] * p[1]) + bz[l] * p[2];
                let u = (m00[l] * p[0] + m01[l] * p[1]) + m02[l] * p[2];
                let v = (m10[l] * p[0] + m11[l] * p[1]) + m12[l] * p[2];
                let (e, q) = (u * u + v * v, d * d);
                lanes[l] += gain((d > 0.0) & (e < q), e, q);
            }
        }
        sum += lanes.iter().sum::<u32>();
        left = left.saturating_sub((part.len() * LANES) as u32);
        if sum + (left << 16) <= more_than {
            break;
        }
    }
    sum
}

/// How many features are in a ring around a point of the optical frame.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn beside(blocks: &[[[f32; LANES]; 12]], p: [f32; 3]) -> u32 {
    let mut counts = [0u32; LANES];
    for [_, _, _, bx, by, bz, m00, m01, m02, m10, m11, m12] in blocks {
        for l in 0..LANES {
            let d = (bx[l] * p[0] + by[l] * p[1]) + bz[l] * p[2];
            let u = (m00[l] * p[0] + m01[l] * p[1]) + m02[l] * p[2];
            let v = (m10[l] * p[0] + m11[l] * p[1]) + m12[l] * p[2];
            let (e, q) = (u * u + v * v, d * d);
            counts[l] += u32::from((d > 0.0) & (e >= q * RING[0]) & (e < q * RING[1]));
        }
    }
    counts.iter().sum()
}
