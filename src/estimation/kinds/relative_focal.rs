//! The relative pose of two views of a camera whose focal length is unknown, the same in both, from six points, by
//! the problem `six_point_focal` of the library.
//!
//! The rows are those of the calibrated problem, their features seen with the focal length of a hypothesis. Nothing
//! tells the focal length where the optical axes meet at equal distances or are parallel (Sturm 2001), or all points
//! lie in a plane: its standard deviation says so.

use super::homotopy_search::Minimal;
use crate::estimation::model::{Delta, Footing, Linear, Model, Residuals, CUTS};
use crate::estimation::refine::Refiner;
use crate::estimation::relative::{Relative, Row};
use crate::estimation::{Estimation, Reason, RelativeProblem, Sight};
use crate::geometry::{Pose, Rigid, Vector};
use crate::homotopy::problems::Geometry;
use crate::params::AcceptanceParams;
use crate::status::Status;
use nalgebra::{Matrix2x3, Vector2};

/// Focal lengths beyond this many nominal ones, or below one over it, are none.
const FOCAL: f64 = 30.0;
/// Step of the derivative by the focal length, relative.
const STEP: f64 = 1e-5;

/// Two views.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// `reference_t_current`, translation of length one.
    pose: Pose,
    /// In nominal ones.
    focal: f64,
}

/// The problem, loaded.
#[derive(Debug, Default)]
pub(crate) struct RelativeFocal {
    /// With the nominal focal length.
    base: Relative,
    /// Features in both views from the principal point, in nominal focal lengths.
    images: Vec<[Vector2<f64>; 2]>,
    /// Nominal focal length, px.
    unit: f64,
    /// Inlier threshold, in nominal focal lengths.
    threshold: f64,
}

impl RelativeFocal {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self { base: Relative::with_capacity(n), images: Vec::with_capacity(n), unit: 1.0, threshold: 1.0 }
    }

    /// Takes a problem and the inlier threshold in px.
    ///
    /// # Errors
    /// It lacks pixels or intrinsics.
    pub fn load(&mut self, problem: &RelativeProblem, threshold: f64) -> Result<(), Reason> {
        self.base.load(problem);
        self.images.clear();
        let known =
            problem.intrinsics().filter(|known| known.focal.iter().all(|f| *f > 0.0 && f.is_finite()));
        let known = known.ok_or(Reason::NoPixels)?;
        self.unit = known.focal[0];
        self.threshold = threshold / self.unit;
        for (row, place) in problem.rows().iter().zip(self.base.places()) {
            if *place as usize != self.images.len() {
                continue;
            }
            let image = |sight: &Sight| {
                let pixel = sight.pixel.ok_or(Reason::NoPixels)?;
                let [u, v] = [0, 1].map(|k| (pixel[k] - known.centre[k]) / known.focal[k]);
                Ok(Vector2::new(u, v))
            };
            self.images.push([image(&row.sight)?, image(&row.reference)?]);
        }
        Ok(())
    }

    /// A feature seen with a focal length.
    fn sight(&self, image: &Vector2<f64>, focal: f64) -> Sight {
        let ray = Vector::new(image.x / focal, image.y / focal, 1.0);
        let (bearing, size) = (ray.normalize(), ray.norm());
        let metric = Matrix2x3::new(1.0, 0.0, -ray.x, 0.0, 1.0, -ray.y) * (size * focal / self.threshold);
        Sight { bearing, metric, pixel: None }
    }

    fn sights(&self, row: usize, focal: f64) -> Option<[Sight; 2]> {
        self.images.get(row).map(|images| images.each_ref().map(|image| self.sight(image, focal)))
    }

    /// The calibrated problem of a focal length.
    fn with(&self, focal: f64) -> Relative {
        self.base.seen_otherwise(|i| self.sights(i, focal))
    }

    /// The same of one row.
    fn row(&self, row: usize, focal: f64) -> Option<Row> {
        let [current, reference] = self.sights(row, focal)?;
        Some(Row::new([&current, &reference], self.base.weight(row), self.base.group(row)))
    }
}

impl Residuals for RelativeFocal {
    type Hypothesis = View;
    const UNKNOWNS: usize = 6;
    const NUMBERS: usize = 1;

    fn rows(&self) -> usize {
        self.images.len()
    }

    fn weight(&self, row: usize) -> f64 {
        self.base.weight(row)
    }

    fn residual2(&self, h: &View, row: usize) -> f64 {
        self.row(row, h.focal).map_or(f64::INFINITY, |row| row.residual2(&h.pose))
    }

    fn linear(&self, h: &View, row: usize) -> Option<Linear> {
        let mut linear = self.row(row, h.focal)?.linear(&h.pose)?;
        let step = STEP * h.focal;
        let at = |focal: f64| self.row(row, focal)?.residual(&h.pose);
        linear.j[0][5] = match (at(h.focal + step), at(h.focal - step)) {
            (Some(above), Some(below)) => (above - below) / (2.0 * step),
            _ => 0.0,
        };
        Some(linear)
    }

    fn step(&self, h: &View, delta: &Delta) -> View {
        View { pose: self.base.step(&h.pose, delta), focal: (h.focal + delta[5]).clamp(1.0 / FOCAL, FOCAL) }
    }

    fn difference(&self, from: &View, to: &View) -> Delta {
        let mut delta = self.base.difference(&from.pose, &to.pose);
        delta[5] = to.focal - from.focal;
        delta
    }
}

impl Model for RelativeFocal {
    const SAMPLE: usize = 6;
    const ROOTS: usize = 15;
    const CLUTTER: f64 = Relative::CLUTTER;

    fn places(&self) -> &[u32] {
        self.base.places()
    }

    fn group(&self, row: usize) -> u64 {
        self.base.group(row)
    }

    fn is_degenerate(&self, sample: &[u32]) -> bool {
        self.base.is_degenerate(sample)
    }

    /// By [`Minimal`] alone.
    fn solve(&self, _: &[u32], _: &mut Vec<View>) {}

    fn score(&self, h: &View, more_than: u32) -> u32 {
        self.with(h.focal).score(&h.pose, more_than)
    }

    fn chance(&self, h: &View) -> ([u64; CUTS.len()], u64) {
        self.with(h.focal).chance(&h.pose)
    }

    fn independent(&self, inliers: &[u32], work: &mut Vec<[i64; 2]>) -> usize {
        self.base.independent(inliers, work)
    }

    fn footings(&self, h: &View, inliers: &[u32], refiner: &mut Refiner) -> [Option<Footing>; 2] {
        self.with(h.focal).footings(&h.pose, inliers, refiner)
    }

    fn twins(&self, h: &View, inliers: &[u32], out: &mut Vec<View>) {
        let mut poses = Vec::new();
        self.with(h.focal).twins(&h.pose, inliers, &mut poses);
        out.extend(poses.into_iter().map(|pose| View { pose, ..*h }));
    }

    fn report(&self, h: &View, covariance: &[Delta], out: &mut Estimation) -> [f64; 2] {
        out.focal = Some(h.focal * self.unit);
        let [translation, rotation] = self.base.report(&h.pose, covariance, out);
        // A focal length that is open leaves angles open.
        let focal = covariance.get(5).map_or(0.0, |row| row[5].max(0.0).sqrt() / h.focal);
        [translation, rotation.max(focal)]
    }

    fn pose(&self, h: &View) -> Rigid {
        self.base.pose(&h.pose)
    }

    fn limits(&self, params: &AcceptanceParams) -> [f64; 2] {
        self.base.limits(params)
    }

    fn twofold(&self, share: f64) -> (Status, Reason) {
        self.base.twofold(share)
    }

    fn nothing(&self, solved: u64) -> (Status, Reason) {
        self.base.nothing(solved)
    }

    fn spread(&self, h: &View, inliers: &[u32]) -> [f64; 3] {
        self.with(h.focal).spread(&h.pose, inliers)
    }
}

impl Minimal for RelativeFocal {
    const PROBLEM: &'static str = "six_point_focal";
    type Frame = ();

    fn measured(&self, sample: &[u32]) -> Option<(Vec<f64>, ())> {
        let images = sample.iter().map(|row| self.images.get(*row as usize));
        let all: Option<Vec<_>> = images.map(|pair| pair.map(|[a, b]| [a.x, a.y, b.x, b.y])).collect();
        Some((all?.concat(), ()))
    }

    fn hypothesis(&self, _: &[u32], (): &(), geometry: &Geometry) -> Option<View> {
        let (pose, focal) = (*geometry.poses.first()?, geometry.focal?);
        let usable = geometry.is_in_front() && pose.is_finite() && focal > 1.0 / FOCAL && focal < FOCAL;
        usable.then_some(View { pose, focal })
    }
}
