//! Known points seen by a camera of which more than the pose may be unknown: one model for all kinds.
//!
//! A point `X = R p + t` of the optical frame is at `exp(s w) X + s v` when its row of the image is read, `s` rows
//! after that of the principal point (`w`, `v` zero without a rolling shutter). Residuals are those of
//! [`crate::estimation::Sight`], or, where the focal length is sought, differences of pixels in thresholds: `d - pixel` with
//! `d / (1 + k |d|^2) = f (x/z, y/z)` from the principal point. Pixels, rows and focal lengths are in units of the
//! nominal focal length here.

use crate::estimation::absolute::{Absolute, Row};
use crate::estimation::model::{Delta, Footing, Linear, Model, Residuals, CUTS, MOST_UNKNOWNS};
use crate::estimation::refine::{inverse, Refiner};
use crate::estimation::{rotation, scene, AbsoluteProblem, Estimation, Intrinsics, Reason};
use crate::geometry::{Pose, Rigid, Vector};
use crate::status::Status;
use nalgebra::{Matrix2, Matrix2x3, Matrix3, Vector2};
use std::marker::PhantomData;

/// Points whose hits by chance are counted.
const CHANCE_POINTS: usize = 32;
/// The inliers lie in a plane if they are within this share of their extent from it.
const PLANAR: f64 = 0.05;
/// Reweightings of the plane through most points.
const PLANES: usize = 6;
/// Noise of a residual, in thresholds, where it is asked what points of a plane tell.
const NOISE: f64 = 0.25;
/// A focal length with a larger relative standard deviation is open.
const OPEN: f64 = 0.02;
/// Focal lengths beyond this many nominal ones, or below one over it, are none.
const FOCAL: f64 = 30.0;

/// What is unknown beside the pose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    Focal,
    FocalRadial,
    Motion,
}

/// A problem with a minimal solver of its own.
pub(crate) trait Kind: Sized + Send + Sync + 'static {
    /// Rows of a minimal sample.
    const SAMPLE: usize;
    /// Most real solutions of one.
    const ROOTS: usize;
    /// What is unknown beside the pose.
    const BESIDE: Beside;
    /// Up is known.
    const UPRIGHT: bool = false;
    /// Samples of the first round.
    const ROUND: u64 = 64;

    /// The sample fixes nothing.
    fn is_degenerate(scene: &Scene<Self>, sample: &[u32]) -> bool;
    /// The solutions of a sample, if there is a closed form.
    fn solve(_: &Scene<Self>, _: &[u32], _: &mut Vec<View>) {}
}

/// How a camera sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// Carries points about their centre to the optical frame.
    pub pose: Pose,
    /// In nominal ones.
    pub focal: f64,
    /// Of the division model.
    pub distortion: f64,
    /// Turn of what is seen per row, and its shift.
    pub motion: [Vector; 2],
}

impl View {
    /// Of a calibrated camera that stands still.
    pub fn of_pose(pose: Pose) -> Self {
        Self { pose, focal: 1.0, distortion: 0.0, motion: [Vector::zeros(); 2] }
    }

    fn is_usable(&self) -> bool {
        let numbers = self.motion.iter().flat_map(|v| v.iter()).chain([&self.distortion]);
        self.pose.is_finite()
            && numbers.copied().all(f64::is_finite)
            && self.focal > 1.0 / FOCAL
            && self.focal < FOCAL
    }
}

/// A feature in the image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    /// From the principal point, in nominal focal lengths.
    pub pixel: Vector2<f64>,
}

/// The problem, loaded.
#[derive(Debug)]
pub(crate) struct Scene<K> {
    base: Absolute,
    /// Of the rows that `base` keeps; of bearings without pixels all are zero.
    images: Vec<Image>,
    /// Nominal focal lengths, px.
    unit: [f64; 2],
    /// Inlier threshold, in nominal focal lengths.
    threshold: f64,
    /// Up in the optical frame and in that of the points.
    pub up: [Vector; 2],
    kind: PhantomData<K>,
}

/// A residual, its derivative by the point, and those by focal length and distortion.
type Projected = (Vector2<f64>, Matrix2x3<f64>, [Vector2<f64>; 2]);

/// A point where a camera sees it.
struct Seen {
    residual: Vector2<f64>,
    /// Derivative of the residual by the point.
    by_point: Matrix2x3<f64>,
    /// The point when the principal row is read, and when its own is.
    still: Vector,
    moved: Vector,
    turn: Matrix3<f64>,
    /// Derivatives of the residual by focal length and distortion.
    by_camera: [Vector2<f64>; 2],
}

impl<K: Kind> Scene<K> {
    const IN_PIXELS: bool = matches!(K::BESIDE, Beside::Focal | Beside::FocalRadial);
    const MOVES: bool = matches!(K::BESIDE, Beside::Motion);

    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self {
            base: Absolute::with_capacity(n),
            images: Vec::with_capacity(n),
            unit: [1.0; 2],
            threshold: 1.0,
            up: [Vector::y(); 2],
            kind: PhantomData,
        }
    }

    /// Takes a problem and the inlier threshold in px.
    ///
    /// # Errors
    /// It lacks pixels, intrinsics, or a direction of up that the kind needs.
    pub fn load(&mut self, problem: &AbsoluteProblem, threshold: f64) -> Result<(), Reason> {
        self.base.load(problem);
        self.images.clear();
        if K::UPRIGHT {
            let directions = problem.up().map(|up| up.map(|v| v.try_normalize(1e-12)));
            let Some([Some(camera), Some(target)]) = directions else { return Err(Reason::NoVertical) };
            self.up = [camera, target];
        }
        let needs_pixels = K::BESIDE != Beside::Nothing;
        let nothing = Intrinsics { focal: [1.0; 2], centre: [0.0; 2] };
        let usable = |known: &Intrinsics| known.focal.iter().all(|f| *f > 0.0 && f.is_finite());
        let known = match problem.intrinsics().filter(usable) {
            None if needs_pixels => return Err(Reason::NoPixels),
            known => known.unwrap_or(nothing),
        };
        self.unit = known.focal;
        self.threshold = threshold / known.focal[0];
        for (row, place) in problem.rows().iter().zip(self.base.places()) {
            // Of rows that are the same the first stands for all.
            if *place as usize != self.images.len() {
                continue;
            }
            let pixel = match row.sight.pixel {
                Some(pixel) => pixel,
                None if needs_pixels => return Err(Reason::NoPixels),
                None => known.centre,
            };
            let [u, v] = [0, 1].map(|k| (pixel[k] - known.centre[k]) / known.focal[k]);
            self.images.push(Image { pixel: Vector2::new(u, v) });
        }
        Ok(())
    }

    /// Rows and images of a sample.
    pub fn sample<'a>(&'a self, sample: &'a [u32]) -> impl Iterator<Item = (&'a Row, &'a Image)> + Clone {
        sample
            .iter()
            .filter_map(|i| Some((self.base.kept().get(*i as usize)?, self.images.get(*i as usize)?)))
    }

    /// A hypothesis, if it is plausible and sees all rows of its sample within the threshold, or wherever, if
    /// the solver is not exact.
    pub fn plausible(&self, view: View, sample: &[u32], exact: bool) -> Option<View> {
        let fits = |i: &u32| {
            let r2 = self.residual2(&view, *i as usize);
            r2.is_finite() && (!exact || r2 < 1.0)
        };
        (view.is_usable() && sample.iter().all(fits)).then_some(view)
    }

    /// A point as seen in a row; `None`: behind, or beyond what the distortion maps.
    fn see(&self, h: &View, point: &Vector, row: &Row, image: &Image) -> Option<Seen> {
        let still = h.pose.apply(point);
        let (turn, moved) = match Self::MOVES {
            true => {
                let rows = image.pixel.y;
                let turn = rotation::exp(&(h.motion[0] * rows));
                (turn, turn * still + h.motion[1] * rows)
            }
            false => (Matrix3::identity(), still),
        };
        let (residual, by_point, by_camera) = match Self::IN_PIXELS {
            true => self.project(h, &moved, image)?,
            false => {
                let depth = row.bearing.dot(&moved);
                (depth > 0.0).then_some(())?;
                let residual = row.metric * moved / depth;
                (residual, (row.metric - residual * row.bearing.transpose()) / depth, [Vector2::zeros(); 2])
            }
        };
        Some(Seen { residual, by_point, still, moved, turn, by_camera })
    }

    /// Residual of a pixel, derivatives by the point, and by focal length and distortion.
    fn project(&self, h: &View, x: &Vector, image: &Image) -> Option<Projected> {
        (x.z > 0.0).then_some(())?;
        let ideal = x.xy() / x.z;
        let u = ideal * h.focal;
        // d = g u with g = 2 / (1 + w), w^2 = 1 - 4 k |u|^2: the smaller root.
        let q = u.norm_squared();
        let w = (1.0 - 4.0 * h.distortion * q).sqrt();
        (w > 0.0).then_some(())?;
        let g = 2.0 / (1.0 + w);
        let by_q = h.distortion * g * g / w;
        let by_u = Matrix2::identity() * g + u * u.transpose() * (2.0 * by_q);
        let by_ideal = Matrix2x3::new(1.0, 0.0, -ideal.x, 0.0, 1.0, -ideal.y) * (h.focal / x.z);
        let scale = 1.0 / self.threshold;
        let by_camera = [by_u * ideal * scale, u * (q * g * g / w * scale)];
        Some(((u * g - image.pixel) * scale, by_u * by_ideal * scale, by_camera))
    }

    /// Squared residual of any point in any row; infinite where it is not seen.
    fn squared(&self, h: &View, point: &Vector, row: usize) -> f64 {
        let (Some(image), Some(row)) = (self.images.get(row), self.base.kept().get(row)) else {
            return f64::INFINITY;
        };
        self.see(h, point, row, image).map_or(f64::INFINITY, |seen| seen.residual.norm_squared())
    }

    /// The change of the pose within a change of all unknowns.
    fn of_pose(&self, delta: &Delta) -> Delta {
        let mut pose = [0.0; MOST_UNKNOWNS];
        pose[..6].copy_from_slice(&delta[..6]);
        if K::UPRIGHT {
            (0..3).for_each(|k| pose[3 + k] = self.up[0][k] * delta[3]);
        }
        pose
    }

    /// How many inliers are beside the plane through most of them, if those in it leave the focal length open: a
    /// wall seen straight.
    fn beside_plane(&self, h: &View, inliers: &[u32]) -> Option<usize> {
        let seen: Vec<(u32, Vector)> = inliers
            .iter()
            .filter_map(|i| Some((*i, h.pose.apply(&self.base.kept().get(*i as usize)?.point))))
            .collect();
        let mut plane = scene::scatter(seen.iter().map(|(_, x)| (1.0, *x)))?;
        let unit = PLANAR * plane.values[0].sqrt();
        let distance =
            |plane: &scene::Scatter, x: &Vector| plane.axes[2].dot(&(x - plane.centroid)).abs() / unit;
        for _ in 0..PLANES {
            // Reweighted, so that a few points off the plane do not tilt it.
            let last = plane;
            plane = scene::scatter(seen.iter().map(|(_, x)| {
                let r = distance(&last, x);
                (1.0 / ((1.0 + r * r) * (1.0 + r * r)), *x)
            }))?;
        }
        let mut information = [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS];
        let mut beside = 0;
        for (i, x) in &seen {
            if distance(&plane, x) > 1.0 {
                beside += 1;
                continue;
            }
            let Some(linear) = self.linear(h, *i as usize) else { continue };
            for j in &linear.j {
                for (row, a) in information.iter_mut().zip(j) {
                    row.iter_mut().zip(j).for_each(|(cell, b)| *cell += a * b);
                }
            }
        }
        let deviation = inverse(Self::UNKNOWNS, &information).map(|c| c[6][6].max(0.0).sqrt() * NOISE);
        deviation.is_none_or(|deviation| !(deviation < OPEN * h.focal)).then_some(beside)
    }

    /// The inliers lie in a plane.
    fn is_planar(&self, h: &View, inliers: &[u32]) -> bool {
        let [first, _, last] = self.base.spread(&h.pose, inliers);
        last <= PLANAR * PLANAR * first
    }
}

impl<K: Kind> Residuals for Scene<K> {
    type Hypothesis = View;
    const UNKNOWNS: usize = match K::BESIDE {
        Beside::Nothing if K::UPRIGHT => 4,
        Beside::Nothing => 6,
        Beside::Focal => 7,
        Beside::FocalRadial => 8,
        Beside::Motion => 12,
    };
    const NUMBERS: usize = 2;

    fn rows(&self) -> usize {
        self.images.len()
    }

    fn weight(&self, row: usize) -> f64 {
        self.base.weight(row)
    }

    fn residual2(&self, h: &View, row: usize) -> f64 {
        self.base.kept().get(row).map_or(f64::INFINITY, |r| self.squared(h, &r.point, row))
    }

    fn linear(&self, h: &View, row: usize) -> Option<Linear> {
        let (image, row) = (self.images.get(row)?, self.base.kept().get(row)?);
        let seen = self.see(h, &row.point, row, image)?;
        let mut j = [[0.0; MOST_UNKNOWNS]; 2];
        for (k, j) in j.iter_mut().enumerate() {
            // By the point when its row is read, and when the principal row is.
            let own = seen.by_point.row(k).transpose();
            let principal = seen.turn.transpose() * own;
            // X' = exp(-w) (X - d)
            let turn = principal.cross(&seen.still);
            (0..3).for_each(|i| (j[i], j[3 + i]) = (-principal[i], turn[i]));
            if K::UPRIGHT {
                j[3] = turn.dot(&self.up[0]);
                (j[4], j[5]) = (0.0, 0.0);
            }
            match K::BESIDE {
                Beside::Nothing => {}
                Beside::Focal => j[6] = seen.by_camera[0][k],
                Beside::FocalRadial => (j[6], j[7]) = (seen.by_camera[0][k], seen.by_camera[1][k]),
                Beside::Motion => {
                    // To first order in the turn between the rows.
                    let turned = seen.moved - h.motion[1] * image.pixel.y;
                    let by_rate = turned.cross(&own) * image.pixel.y;
                    let by_velocity = own * image.pixel.y;
                    (0..3).for_each(|i| (j[6 + i], j[9 + i]) = (by_rate[i], by_velocity[i]));
                }
            }
        }
        Some(Linear { r: [seen.residual.x, seen.residual.y], j })
    }

    fn step(&self, h: &View, delta: &Delta) -> View {
        let mut view = View { pose: self.base.step(&h.pose, &self.of_pose(delta)), ..*h };
        match K::BESIDE {
            Beside::Nothing => {}
            Beside::Focal => view.focal += delta[6],
            Beside::FocalRadial => {
                view.focal += delta[6];
                view.distortion += delta[7];
            }
            Beside::Motion => {
                view.motion[0] += Vector::new(delta[6], delta[7], delta[8]);
                view.motion[1] += Vector::new(delta[9], delta[10], delta[11]);
            }
        }
        view
    }

    fn difference(&self, from: &View, to: &View) -> Delta {
        let mut delta = self.base.difference(&from.pose, &to.pose);
        if K::UPRIGHT {
            delta[3] = self.up[0].dot(&Vector::new(delta[3], delta[4], delta[5]));
            (delta[4], delta[5]) = (0.0, 0.0);
        }
        match K::BESIDE {
            Beside::Nothing => {}
            Beside::Focal | Beside::FocalRadial => {
                delta[6] = to.focal - from.focal;
                delta[7] = to.distortion - from.distortion;
            }
            Beside::Motion => {
                for k in 0..3 {
                    delta[6 + k] = to.motion[0][k] - from.motion[0][k];
                    delta[9 + k] = to.motion[1][k] - from.motion[1][k];
                }
            }
        }
        delta
    }
}

impl<K: Kind> Model for Scene<K> {
    const SAMPLE: usize = K::SAMPLE;
    const ROOTS: usize = K::ROOTS;
    const ROUND: u64 = K::ROUND;

    fn places(&self) -> &[u32] {
        self.base.places()
    }

    fn pose(&self, h: &View) -> Rigid {
        self.base.pose(&h.pose)
    }

    fn group(&self, row: usize) -> u64 {
        self.base.group(row)
    }

    fn is_degenerate(&self, sample: &[u32]) -> bool {
        K::is_degenerate(self, sample)
    }

    fn solve(&self, sample: &[u32], out: &mut Vec<View>) {
        K::solve(self, sample, out);
    }

    fn score(&self, h: &View, more_than: u32) -> u32 {
        /// What a row adds at most.
        const MOST: u32 = 65536;
        let mut score = 0;
        for row in 0..self.rows() {
            let left = (self.rows() - row) as u32;
            if score + left * MOST <= more_than {
                return 0;
            }
            let r2 = self.residual2(h, row);
            if r2 < 1.0 {
                score += (f64::from(MOST) * (1.0 - r2)) as u32;
            }
        }
        score
    }

    fn chance(&self, h: &View) -> ([u64; CUTS.len()], u64) {
        let n = self.rows();
        let points = CHANCE_POINTS.min(n);
        let mut hits = [0; CUTS.len()];
        for i in (0..points).map(|k| k * n / points) {
            let Some(point) = self.base.kept().get(i).map(|row| row.point) else { continue };
            for row in (0..n).filter(|row| *row != i) {
                let r2 = self.squared(h, &point, row);
                hits.iter_mut().zip(CUTS).for_each(|(hits, cut)| *hits += u64::from(r2 < cut));
            }
        }
        (hits, points as u64)
    }

    fn independent(&self, inliers: &[u32], work: &mut Vec<[i64; 2]>) -> usize {
        self.base.independent(inliers, work)
    }

    fn footings(&self, h: &View, inliers: &[u32], refiner: &mut Refiner) -> [Option<Footing>; 2] {
        // Up keeps points on a line from turning about it, unless that is upright too.
        if K::UPRIGHT {
            return [None, None];
        }
        let [line, _] = self.base.footings(&h.pose, inliers, refiner);
        let beside = if Self::IN_PIXELS { self.beside_plane(h, inliers) } else { None };
        let lacking = (Status::Degenerate, Reason::Planar);
        // Focal length and distortion can be made to fit as many rows as they are.
        let plane = beside.map(|rows| Footing { rows, fitted: Self::UNKNOWNS - 6, lacking });
        [line, plane]
    }

    fn twins(&self, h: &View, inliers: &[u32], out: &mut Vec<View>) {
        if K::UPRIGHT {
            return;
        }
        let mut poses = Vec::new();
        self.base.twins(&h.pose, inliers, &mut poses);
        out.extend(poses.into_iter().map(|pose| View { pose, ..*h }));
    }

    fn report(&self, h: &View, covariance: &[Delta], out: &mut Estimation) -> [f64; 2] {
        match K::BESIDE {
            Beside::Nothing => {}
            Beside::Focal => out.focal = Some(h.focal * self.unit[0]),
            Beside::FocalRadial => {
                out.focal = Some(h.focal * self.unit[0]);
                out.distortion = Some(h.distortion / (self.unit[0] * self.unit[0]));
            }
            // What is seen moves the other way.
            Beside::Motion => out.motion = Some(h.motion.map(|v| -v / self.unit[1])),
        }
        if !K::UPRIGHT {
            let [translation, rotation] = self.base.report(&h.pose, covariance, out);
            // A focal length that is open leaves angles open.
            let focal =
                covariance.get(6).filter(|_| Self::IN_PIXELS).map_or(0.0, |row| row[6].max(0.0).sqrt());
            return [translation, rotation.max(focal / h.focal)];
        }
        // From place and turn about up to place and turn.
        let lift = |columns: &[Delta]| -> Vec<Delta> { columns.iter().map(|c| self.of_pose(c)).collect() };
        let transposed = |m: &[Delta]| -> Vec<Delta> {
            (0..MOST_UNKNOWNS).map(|i| std::array::from_fn(|j| m.get(j).map_or(0.0, |row| row[i]))).collect()
        };
        let half = lift(covariance);
        self.base.report(&h.pose, &lift(&transposed(&half)), out)
    }

    fn unconstrained(&self, h: &View, inliers: &[u32], weakest: [f64; 2]) -> Reason {
        if Self::IN_PIXELS && self.is_planar(h, inliers) {
            return Reason::Planar;
        }
        self.base.unconstrained(&h.pose, inliers, weakest)
    }

    fn spread(&self, h: &View, inliers: &[u32]) -> [f64; 3] {
        self.base.spread(&h.pose, inliers)
    }

    fn nothing(&self, solved: u64) -> (Status, Reason) {
        match solved {
            0 if Self::IN_PIXELS => (Status::Degenerate, Reason::Planar),
            _ => self.base.nothing(solved),
        }
    }
}

/// Two features of a sample are closer than what fixes anything.
pub(crate) fn too_close(rows: impl Iterator<Item = (Vector, f64)> + Clone) -> bool {
    /// In thresholds.
    const APART: f64 = 2.0;
    rows.clone().enumerate().any(|(i, (a, angle))| {
        rows.clone().take(i).any(|(b, other)| (a - b).norm() < APART * angle.max(other))
    })
}

/// The centroid of points and their root mean square distance from it; `None` if they are all in one place.
pub(crate) fn about(points: impl Iterator<Item = Vector> + Clone) -> Option<(Vector, f64)> {
    let found = scene::scatter(points.map(|p| (1.0, p)))?;
    let size = found.values.iter().sum::<f64>().sqrt();
    (size > 0.0 && size.is_finite()).then_some((found.centroid, size))
}

/// The points lie in a plane, by their scatter.
pub(crate) fn are_planar(points: impl Iterator<Item = Vector> + Clone) -> bool {
    /// Of the extent.
    const FLAT: f64 = 1e-3;
    scene::scatter(points.map(|p| (1.0, p)))
        .is_none_or(|found| found.values[2] <= FLAT * FLAT * found.values[0])
}
