//! The relative pose of two views of a calibrated camera.
//!
//! A hypothesis is `reference_t_current` with a translation of length one: `d2 b2 = d1 R b1 + t`. The residual is
//! Sampson's: by how many thresholds at least the two features have to move to see one point. Unknowns of a
//! refinement: turn `R' = exp(w) R`, and change of `t` along two directions at right angles to it.

use super::calibration::{self, Doubt};
use super::columns::{gain, single, Columns, LANES};
use super::model::{Delta, Footing, Linear, Model, Residuals, CUTS, MOST_UNKNOWNS};
use super::refine::Refiner;
use super::scene;
use super::solvers::five_point;
use super::unique::Unique;
use super::{rotation, turning, Estimation, Reason, RelativeProblem, Sight};
use crate::geometry::{Pose, Rigid, Vector};
use crate::params::AcceptanceParams;
use crate::status::Status;
use multiversion::multiversion;
use nalgebra::{Matrix2x3, Matrix3, Matrix3x2, Matrix6};

/// Bearings of a sample closer than this many thresholds fix nothing.
const APART: f64 = 2.0;
/// Rows whose hits by chance are counted.
const CHANCE_ROWS: usize = 128;
/// Thresholds between which features beside an epipolar line are counted.
const BAND: [f32; 2] = [2.0, 4.0];
/// Reweightings of the plane near most points.
const PLANES: usize = 5;
/// Bearings this many thresholds beside a great circle are off it.
const OFF_CIRCLE: f64 = 2.0;

/// A feature in double precision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// Unit vector.
    pub bearing: Vector,
    /// See [`super::Sight`].
    pub metric: Matrix2x3<f64>,
    /// Changes of direction of one threshold.
    pub tangents: Matrix3x2<f64>,
    /// The threshold as an angle.
    pub angle: f64,
}

impl View {
    fn new(sight: &Sight) -> Option<Self> {
        let tangents = scene::tangents(&sight.metric)?;
        Some(Self {
            bearing: sight.bearing,
            metric: sight.metric,
            tangents,
            angle: scene::angle(&sight.metric),
        })
    }
}

/// A row in double precision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// In the current view.
    pub current: View,
    /// In the reference view.
    pub reference: View,
    /// Relative trust, the heaviest has 1.
    pub weight: f64,
    /// See [`Model::group`].
    pub group: u64,
}

/// The problem, loaded.
#[derive(Debug, Default)]
pub(crate) struct Relative {
    rows: Vec<Row>,
    columns: Columns<19>,
    unique: Unique,
}

impl Relative {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self {
            rows: Vec::with_capacity(n),
            columns: Columns::with_capacity(n),
            unique: Unique::with_capacity(n),
        }
    }

    /// Takes a problem: duplicates are left out.
    pub fn load(&mut self, problem: &RelativeProblem) {
        let rows = problem.rows();
        self.unique.find(rows.iter().map(|row| {
            let (a, b) = (row.sight.bearing, row.reference.bearing);
            ([a.x, a.y, a.z, b.x, b.y, b.z].map(f64::to_bits), row.id)
        }));
        let heaviest = rows.iter().fold(f32::MIN_POSITIVE, |max, row| max.max(row.weight));
        self.rows.clear();
        self.columns.clear();
        for (i, group) in self.unique.kept() {
            let Some(row) = rows.get(*i) else { continue };
            let weight = f64::from(row.weight) / f64::from(heaviest);
            add(&mut self.rows, &mut self.columns, Row::new([&row.sight, &row.reference], weight, *group));
        }
    }

    /// The same rows by other sights; a row without any is left out.
    pub fn seen_otherwise(&self, sights: impl Fn(usize) -> Option<[Sight; 2]>) -> Self {
        let mut other = Self::with_capacity(self.rows.len());
        for (i, Row { weight, group, .. }) in self.rows.iter().enumerate() {
            if let Some([current, reference]) = sights(i) {
                add(&mut other.rows, &mut other.columns, Row::new([&current, &reference], *weight, *group));
            }
        }
        other
    }

    /// The rows that are kept.
    pub fn kept(&self) -> &[Row] {
        &self.rows
    }

    /// The numbers of the rows in single precision: current bearing, reference bearing, tangents of the current,
    /// of the reference (column by column), sum of the thresholds as angles.
    pub fn columns(&self) -> &Columns<19> {
        &self.columns
    }

    fn of<'a>(&'a self, rows: &'a [u32]) -> impl Iterator<Item = &'a Row> + Clone + 'a {
        rows.iter().filter_map(|i| self.rows.get(*i as usize))
    }

    /// The plane `n . X = 1` of the current view near most points: least squares of inverse depths, reweighted.
    fn plane(&self, h: &Pose, inliers: &[u32]) -> Option<Vector> {
        let mut plane: Option<(Vector, f64)> = None;
        for _ in 0..PLANES {
            let (mut a, mut v) = (Matrix3::zeros(), Vector::zeros());
            let (mut total, mut square) = (0.0, 0.0);
            for row in self.of(inliers) {
                let b1 = row.current.bearing;
                let x = h.rotation * b1;
                let (c, g2) = (row.reference.bearing.dot(&x), row.reference.bearing.dot(&h.translation));
                let depth = c * g2 - x.dot(&h.translation);
                let sine2 = 1.0 - c * c;
                if !(depth > 0.0 && sine2 > 0.0) {
                    continue;
                }
                let inverse = sine2 / depth;
                let w = plane.map_or(1.0, |(n, variance)| {
                    let e = inverse - n.dot(&b1);
                    let g = 1.0 + e * e / variance;
                    (total, square) = (total + 1.0 / g, square + e * e / g);
                    1.0 / (g * g)
                });
                a += b1 * b1.transpose() * w;
                v += b1 * (inverse * w);
            }
            let n = a.cholesky()?.solve(&v);
            // The first scale is that of the inverse depths themselves.
            let variance = if total > 0.0 { 0.5 * square / total } else { 0.1 * n.norm_squared() };
            plane = Some((n, variance.max(f64::MIN_POSITIVE)));
        }
        plane.map(|(n, _)| n)
    }
}

/// Adds a row, in double and in single precision.
fn add(rows: &mut Vec<Row>, columns: &mut Columns<19>, row: Row) {
    let Row { current, reference, .. } = &row;
    let (b1, b2, t1, t2) = (current.bearing, reference.bearing, current.tangents, reference.tangents);
    let mut numbers = [0.0; 19];
    let all = b1.iter().chain(b2.iter()).chain(t1.iter()).chain(t2.iter());
    numbers.iter_mut().zip(all).for_each(|(number, value)| *number = *value);
    numbers[18] = current.angle + reference.angle;
    columns.push(numbers);
    rows.push(row);
}

/// Two directions at right angles to a unit vector.
fn basis(t: &Vector) -> [Vector; 2] {
    let axis = Vector::ith(t.iamin(), 1.0);
    let a = axis.cross(t);
    let a = a / a.norm();
    [a, t.cross(&a)]
}

/// What the residual is made of.
struct Epipolar {
    x: Vector,
    m: Vector,
    e: f64,
    /// Gradient by the two features, in thresholds, and the norm of it.
    g: [f64; 4],
    norm: f64,
}

impl Row {
    /// By its sights in the current and in the reference view. A feature without directions to move in (never of a
    /// camera) explains nothing.
    pub fn new(sights: [&Sight; 2], weight: f64, group: u64) -> Self {
        let still = |sight: &Sight| View {
            bearing: sight.bearing,
            metric: Matrix2x3::zeros(),
            tangents: Matrix3x2::zeros(),
            angle: 0.0,
        };
        let [current, reference] = sights.map(|sight| View::new(sight).unwrap_or_else(|| still(sight)));
        Self { current, reference, weight, group }
    }

    /// See [`Residuals::residual2`].
    pub fn residual2(&self, h: &Pose) -> f64 {
        self.residual(h).map_or(f64::INFINITY, |r| r * r)
    }

    /// The residual; `None` where it is infinite.
    pub fn residual(&self, h: &Pose) -> Option<f64> {
        self.epipolar(h).map(|found| found.e / found.norm)
    }

    /// See [`Residuals::linear`].
    pub fn linear(&self, h: &Pose) -> Option<Linear> {
        let Epipolar { x, m, e, g, norm } = self.epipolar(h)?;
        let (b2, t) = (self.reference.bearing, h.translation);
        // Derivatives by turn and translation: of e, and of the four numbers of the gradient.
        let mut turn = x.cross(&m) / norm;
        let mut shift = x.cross(&b2) / norm;
        let share = e / (norm * norm * norm);
        for k in 0..2 {
            let a = self.reference.tangents.column(k).into_owned();
            turn -= x.cross(&a.cross(&t)) * (g[k] * share);
            shift -= x.cross(&a) * (g[k] * share);
            let y = h.rotation * self.current.tangents.column(k);
            turn -= y.cross(&m) * (g[2 + k] * share);
            shift -= y.cross(&b2) * (g[2 + k] * share);
        }
        let along = basis(&t).map(|direction| direction.dot(&shift));
        let mut j = [0.0; MOST_UNKNOWNS];
        j[..5].copy_from_slice(&[turn.x, turn.y, turn.z, along[0], along[1]]);
        Some(Linear { r: [e / norm, 0.0], j: [j, [0.0; MOST_UNKNOWNS]] })
    }

    fn epipolar(&self, h: &Pose) -> Option<Epipolar> {
        let (b2, t) = (self.reference.bearing, h.translation);
        let x = h.rotation * self.current.bearing;
        let (c, g2, g1) = (b2.dot(&x), b2.dot(&t), x.dot(&t));
        // Depths times the squared sine of the parallax. One that is not above zero may be far away.
        let slack = -(self.current.angle + self.reference.angle);
        if !(c * g2 - g1 > slack && g2 - c * g1 > slack) {
            return None;
        }
        let l2 = t.cross(&x);
        let m = b2.cross(&t);
        let l1 = h.rotation.transpose() * m;
        let (p, q) = (self.reference.tangents.tr_mul(&l2), self.current.tangents.tr_mul(&l1));
        let g = [p.x, p.y, q.x, q.y];
        let norm = g.iter().fold(0.0, |sum, g| sum + g * g).sqrt();
        (norm > 0.0).then_some(Epipolar { x, m, e: b2.dot(&l2), g, norm })
    }
}

impl Residuals for Relative {
    type Hypothesis = Pose;
    const UNKNOWNS: usize = 5;
    const NUMBERS: usize = 1;

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn weight(&self, row: usize) -> f64 {
        self.rows.get(row).map_or(0.0, |row| row.weight)
    }

    fn residual2(&self, h: &Pose, row: usize) -> f64 {
        self.rows.get(row).map_or(f64::INFINITY, |row| row.residual2(h))
    }

    fn linear(&self, h: &Pose, row: usize) -> Option<Linear> {
        self.rows.get(row)?.linear(h)
    }

    fn step(&self, h: &Pose, delta: &Delta) -> Pose {
        let [a, b] = basis(&h.translation);
        let t = h.translation + a * delta[3] + b * delta[4];
        Pose {
            rotation: rotation::exp(&Vector::new(delta[0], delta[1], delta[2])) * h.rotation,
            translation: t / t.norm(),
        }
    }

    fn difference(&self, from: &Pose, to: &Pose) -> Delta {
        let w = rotation::log(&(to.rotation * from.rotation.transpose()));
        // The arc from one direction to the other.
        let (t, u) = (from.translation, to.translation);
        let beside = u - t * t.dot(&u);
        let angle = libm::atan2(beside.norm(), t.dot(&u));
        let arc = match beside.try_normalize(1e-12) {
            Some(beside) => beside * angle,
            None => basis(&t)[0] * angle,
        };
        let [a, b] = basis(&t).map(|direction| direction.dot(&arc));
        let mut out = [0.0; MOST_UNKNOWNS];
        out[..5].copy_from_slice(&[w.x, w.y, w.z, a, b]);
        out
    }
}

impl Model for Relative {
    const SAMPLE: usize = 5;
    const ROOTS: usize = 10;
    /// An epipolar line crosses the whole image: mismatches that look alike are near it little more often.
    const CLUTTER: f64 = 1.5;

    fn places(&self) -> &[u32] {
        self.unique.places()
    }

    fn group(&self, row: usize) -> u64 {
        self.rows.get(row).map_or(0, |row| row.group)
    }

    fn is_degenerate(&self, sample: &[u32]) -> bool {
        let close = |a: &View, b: &View| {
            let least = APART * a.angle.max(b.angle);
            !((a.bearing - b.bearing).norm_squared() > least * least)
        };
        let rows = self.of(sample);
        rows.clone().enumerate().any(|(i, a)| {
            let mut others = rows.clone().skip(i + 1);
            others.any(|b| close(&a.current, &b.current) || close(&a.reference, &b.reference))
        })
    }

    fn solve(&self, sample: &[u32], out: &mut Vec<Pose>) {
        let (mut a, mut b) = ([Vector::zeros(); 5], [Vector::zeros(); 5]);
        for (k, row) in self.of(sample).take(5).enumerate() {
            (a[k], b[k]) = (row.current.bearing, row.reference.bearing);
        }
        let mut poses = [Pose::identity(); 10];
        let count = five_point(&a, &b, &mut poses);
        out.extend(poses.iter().take(count));
    }

    fn score(&self, h: &Pose, more_than: u32) -> u32 {
        score(self.columns.blocks(), self.columns.rows(), h, more_than)
    }

    fn chance(&self, h: &Pose) -> ([u64; CUTS.len()], u64) {
        let n = self.rows.len();
        let rows = CHANCE_ROWS.min(n);
        let mut hits = 0;
        for k in 0..rows {
            let own = std::array::from_fn(|c| self.columns.at(k * n / rows, c));
            hits += u64::from(beside(self.columns.blocks(), h, &own));
        }
        // In quarters of the width within a threshold; one more than counted.
        let width = (BAND[1] - BAND[0]) as u64 * 4 * rows as u64;
        (CUTS.map(|cut| (4.0 * cut.sqrt()) as u64 * (hits + 1)), width)
    }

    fn independent(&self, inliers: &[u32], work: &mut Vec<[i64; 2]>) -> usize {
        let mut cells = |view: fn(&Row) -> &View| {
            let seen = self.of(inliers).map(view).map(|view| scene::cell(&view.bearing, view.angle));
            scene::count_distinct(seen, work)
        };
        cells(|row| &row.current).min(cells(|row| &row.reference))
    }

    fn footings(&self, h: &Pose, inliers: &[u32], refiner: &mut Refiner) -> [Option<Footing>; 2] {
        let beside = turning::beside(self, &h.rotation, inliers, refiner);
        let share = 1.0 - beside as f64 / inliers.len().max(1) as f64;
        let views = |view: fn(&Row) -> &View| {
            let seen = self.of(inliers).map(view);
            scene::off_circle(seen.map(|view| (view.bearing, OFF_CIRCLE * view.angle)))
        };
        let off_line = views(|row| &row.current).min(views(|row| &row.reference));
        [
            Some(Footing {
                rows: beside,
                fitted: 2,
                lacking: (Status::Degenerate, Reason::PureRotation(share)),
            }),
            Some(Footing { rows: off_line, fitted: 3, lacking: (Status::Degenerate, Reason::Collinear) }),
        ]
    }

    /// The other pose that sees a plane move in the same way. The homography of a plane `n . X = 1` is
    /// `H = R (1 + s n^T)`, `s = R^T t`, so that `H^T H = 1 + m n^T + n m^T` with `m = s + |s|^2 n / 2`: the same
    /// with `m` and `n` exchanged.
    fn twins(&self, h: &Pose, inliers: &[u32], out: &mut Vec<Pose>) {
        let s = h.rotation.transpose() * h.translation;
        let Some(n) = self.plane(h, inliers) else { return };
        let m = s + n * (0.5 * s.norm_squared());
        let (mm, nm) = (m.norm_squared(), 1.0 + n.dot(&m));
        let root = nm * nm - mm * n.norm_squared();
        if !(root > 0.0 && mm > 0.0) {
            return;
        }
        // Half the squared length of the other translation.
        let half = (nm - root.sqrt()) / mm;
        let other = n - m * half;
        let stretch = Matrix3::identity() - other * m.transpose() / (1.0 + m.dot(&other));
        let rotation = (h.rotation + h.translation * n.transpose()) * stretch;
        // The rotation is one but for rounding. Which way the translation goes is told by what is in front.
        let rotation = rotation * (Matrix3::identity() * 1.5 - rotation.transpose() * rotation * 0.5);
        if let Some(translation) = (rotation * other).try_normalize(1e-12) {
            out.extend([translation, -translation].map(|translation| Pose { rotation, translation }));
        }
    }

    fn doubt(&self, h: &Pose, others: &[Pose], variance: f64, refiner: &mut Refiner) -> Option<Doubt> {
        Some(calibration::doubt(self, h, others, variance, refiner))
    }

    fn pose(&self, h: &Pose) -> Rigid {
        h.to_rigid()
    }

    fn twofold(&self, _: f64) -> (Status, Reason) {
        (Status::Ambiguous, Reason::Planar)
    }

    fn report(&self, h: &Pose, covariance: &[Delta], out: &mut Estimation) -> [f64; 2] {
        out.target_t_source = Some(h.to_rigid());
        // From (turn, two directions) to (translation, turn).
        let [a, b] = basis(&h.translation);
        let mut to = nalgebra::SMatrix::<f64, 6, 5>::zeros();
        to.fixed_view_mut::<3, 3>(3, 0).copy_from(&Matrix3::identity());
        to.fixed_view_mut::<3, 1>(0, 3).copy_from(&a);
        to.fixed_view_mut::<3, 1>(0, 4).copy_from(&b);
        let own = nalgebra::SMatrix::<f64, 5, 5>::from_fn(|i, j| covariance.get(i).map_or(0.0, |row| row[j]));
        let full: Matrix6<f64> = to * own * to.transpose();
        out.covariance = (full + full.transpose()) * 0.5;
        let weakest =
            [0, 3].map(|k| scene::largest_deviation(&out.covariance.fixed_view::<3, 3>(k, k).into_owned()));
        // A length of one is exact; consumers want a matrix that can be inverted.
        let mean = 0.5 * (own[(3, 3)] + own[(4, 4)]);
        let along = h.translation * h.translation.transpose() * mean;
        let raised = out.covariance.fixed_view::<3, 3>(0, 0) + along;
        out.covariance.fixed_view_mut::<3, 3>(0, 0).copy_from(&raised);
        weakest
    }

    /// A translation of length one is uncertain by an angle.
    fn limits(&self, params: &AcceptanceParams) -> [f64; 2] {
        [params.max_rotation_std; 2]
    }

    fn nothing(&self, solved: u64) -> (Status, Reason) {
        match solved {
            0 => (Status::Degenerate, Reason::Collinear),
            _ => (Status::LowInliers, Reason::NoSolution),
        }
    }

    fn spread(&self, _: &Pose, inliers: &[u32]) -> [f64; 3] {
        let bearings = self.of(inliers).map(|row| (1.0, row.current.bearing));
        scene::scatter(bearings).map_or([0.0; 3], |found| found.values)
    }
}

/// Blocks after which a score is given up if it cannot suffice.
const STRIDE: usize = 16;

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn score(blocks: &[[[f32; LANES]; 19]], rows: usize, pose: &Pose, more_than: u32) -> u32 {
    let (r, t) = single(pose);
    let mut sum = 0u32;
    let mut left = rows as u32;
    for part in blocks.chunks(STRIDE) {
        let mut lanes = [0u32; LANES];
        for c in part {
            for l in 0..LANES {
                let row: [f32; 19] = std::array::from_fn(|k| c[k][l]);
                let (counts, e, q) = sampson(&r, &t, &row);
                lanes[l] += gain(counts & (e < q), e, q);
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

/// Whether the point is in front of both cameras or far away; numerator and denominator of the squared residual.
#[inline(always)]
fn sampson(r: &[[f32; 3]; 3], t: &[f32; 3], row: &[f32; 19]) -> (bool, f32, f32) {
    let dot = |a: &[f32; 3], b: &[f32; 3]| (a[0] * b[0] + a[1] * b[1]) + a[2] * b[2];
    let cross = |a: &[f32; 3], b: &[f32; 3]| {
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    };
    let at = |k: usize| [row[k], row[k + 1], row[k + 2]];
    let (b1, b2) = (at(0), at(3));
    let x = [dot(&r[0], &b1), dot(&r[1], &b1), dot(&r[2], &b1)];
    let l2 = cross(t, &x);
    let e = dot(&b2, &l2);
    let m = cross(&b2, t);
    let l1 = [0, 1, 2].map(|j| (r[0][j] * m[0] + r[1][j] * m[1]) + r[2][j] * m[2]);
    let (p, q) = (dot(&at(12), &l2), dot(&at(15), &l2));
    let (u, v) = (dot(&at(6), &l1), dot(&at(9), &l1));
    let q2 = (p * p + q * q) + (u * u + v * v);
    let (c, g2, g1) = (dot(&b2, &x), dot(&b2, t), dot(&x, t));
    let front = (c * g2 - g1 > -row[18]) & (g2 - c * g1 > -row[18]);
    (front, e * e, q2)
}

/// How many features of the reference view are in the bands beside the epipolar line of a feature of the current
/// one.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn beside(blocks: &[[[f32; LANES]; 19]], pose: &Pose, own: &[f32; 19]) -> u32 {
    let (r, t) = single(pose);
    let [inner, outer] = BAND.map(|width| width * width);
    let mut counts = [0u32; LANES];
    for c in blocks {
        for l in 0..LANES {
            // The current view is the one given, the reference that of the row.
            let of_reference = |k: usize| matches!(k, 3..=5 | 12..=18);
            let row: [f32; 19] = std::array::from_fn(|k| if of_reference(k) { c[k][l] } else { own[k] });
            let (front, e, q) = sampson(&r, &t, &row);
            counts[l] += u32::from(front & (e >= q * inner) & (e < q * outer));
        }
    }
    counts.iter().sum()
}
