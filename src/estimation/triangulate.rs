//! Points from their sights in two or more views whose poses are known, thousands at a time.
//!
//! Least is the sum of squares of the residuals of [`Sight`] over the views of a point, which is the squared
//! reprojection error in thresholds. A point is sought as direction and inverse depth in its first view, so that
//! points at infinity are points like others: `Y = R d + rho t` in each view, residual `metric Y / (bearing Y)`.
//!
//! - `closed_form`: linear start (the least right singular vector of the equations `metric Y = 0`, weighted again
//!   by the depths that it gives), then Levenberg and Marquardt's method. It may end in a local minimum.
//! - `homotopy`: all stationary points of the sum of squares under the epipolar constraints between neighbouring
//!   views (`triangulation_2`, `_3`, `_4`; Hartley and Sturm 1997, Kukelova et al. 2013), each a start for the
//!   same refinement. For two views these are all there are, so the best is the global optimum; three and four
//!   views are tied only to their neighbours by these constraints, and the best is the best of many starts.

use super::kinds::library;
use super::Sight;
use crate::geometry::{Point, Pose, Vector};
use crate::homotopy::{problems, Backend, Solver};
use crate::params::CameraSolver;
use crate::status::PointStatus;
use nalgebra::{Complex, Matrix2x3, Matrix3, Matrix4, Vector2, Vector4};
use rayon::prelude::*;

/// Most views of a point that homotopies take; more go to the closed form.
const MOST_VIEWS: usize = 4;
/// An inverse depth of fewer standard deviations is not told from zero.
const SIGMAS: f64 = 3.0;
/// Steps of the refinement; it takes three to six.
const STEPS: usize = 30;

/// Sights of points in views whose poses are known. The buffers are reused.
#[derive(Debug, Clone, Default)]
pub struct TriangulationProblem {
    views: Vec<Pose>,
    sights: Vec<(usize, Sight)>,
    /// Where the sights of each point end.
    ends: Vec<usize>,
}

impl TriangulationProblem {
    /// Of views by `camera_t_target`, the poses that carry the frame of the points to that of each camera.
    pub fn new(views: Vec<Pose>) -> Self {
        Self { views, ..Self::default() }
    }

    /// Forgets the points, keeps the views and the memory.
    pub fn clear(&mut self) {
        self.sights.clear();
        self.ends.clear();
    }

    /// Adds a point by its sights, each with the number of its view. `false`: refused, there are fewer than two,
    /// a view is not known, or one comes twice.
    pub fn push(&mut self, sights: &[(usize, Sight)]) -> bool {
        let twice = |k: usize| sights[..k].iter().any(|(view, _)| *view == sights[k].0);
        let usable = sights.len() >= 2
            && sights.iter().all(|(view, _)| *view < self.views.len())
            && !(0..sights.len()).any(twice);
        if usable {
            self.sights.extend_from_slice(sights);
            self.ends.push(self.sights.len());
        }
        usable
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Views and sights of a point.
    fn tracks(&self) -> impl Iterator<Item = Track<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .filter_map(|(start, end)| Track::new(&self.views, self.sights.get(start..*end)?))
    }
}

/// What became of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Triangulated {
    /// Whether to trust it; only [`PointStatus::Ok`] means yes.
    pub status: PointStatus,
    /// The point in the target frame; not finite if it is at infinity or nothing was found.
    pub point: Point,
    /// Its covariance, `noise^2 (J^T J)^-1`; zero where there is none.
    pub covariance: Matrix3<f64>,
    /// Sum of the squares of the residuals, in thresholds.
    pub cost: f64,
    /// Length of the longest residual, in thresholds.
    pub residual: f64,
    /// Inverse depth in the first view over its standard deviation: how surely the point is not at infinity.
    pub significance: f64,
}

impl Triangulated {
    /// Nothing was found.
    fn nothing() -> Self {
        Self {
            status: PointStatus::Singular,
            point: Point::from(Vector::repeat(f64::NAN)),
            covariance: Matrix3::zeros(),
            cost: f64::INFINITY,
            residual: f64::INFINITY,
            significance: 0.0,
        }
    }
}

/// Triangulates; holds what the homotopies need, made once.
pub struct Triangulator {
    /// For two, three and four views; none for the closed form.
    homotopies: Vec<(problems::Problem, Solver)>,
}

impl Triangulator {
    /// With a solver (`auto` is the closed form: see the README) on a backend, for about so many points at once.
    ///
    /// # Errors
    /// The backend that was asked for cannot be had.
    pub fn new(solver: CameraSolver, backend: Backend, points: usize) -> Result<Self, problems::Error> {
        let mut homotopies = Vec::new();
        if solver == CameraSolver::Homotopy {
            for name in ["triangulation_2", "triangulation_3", "triangulation_4"] {
                homotopies.push(library(name, backend, points)?);
            }
        }
        Ok(Self { homotopies })
    }

    /// `closed_form` or `homotopy`.
    pub fn solver(&self) -> &'static str {
        if self.homotopies.is_empty() {
            "closed_form"
        } else {
            "homotopy"
        }
    }

    /// The points in their order. `noise` is the standard deviation of a coordinate of a residual, in thresholds.
    pub fn solve(&self, problem: &TriangulationProblem, noise: f64) -> Vec<Triangulated> {
        let tracks: Vec<Track> = problem.tracks().collect();
        let mut best: Vec<Option<Found>> = tracks.par_iter().map(Track::local).collect();
        for (k, (known, solver)) in self.homotopies.iter().enumerate() {
            self.improve(&tracks, &mut best, k + 2, (known, solver));
        }
        let both = tracks.par_iter().zip(&best);
        both.map(|(track, found)| {
            found.as_ref().map_or_else(Triangulated::nothing, |f| track.judged(f, noise))
        })
        .collect()
    }

    /// Replaces what the local method found for points of so many `views` by what homotopies find, where they
    /// find anything.
    fn improve(
        &self,
        tracks: &[Track],
        best: &mut [Option<Found>],
        views: usize,
        (problem, solver): (&problems::Problem, &Solver),
    ) {
        debug_assert!(views <= MOST_VIEWS);
        let chosen: Vec<_> = tracks
            .iter()
            .enumerate()
            .filter(|(_, track)| track.rows.len() == views)
            .filter_map(|(i, track)| {
                let charts = track.charts()?;
                let parameters = problem.parameters(&track.measured(&charts)?)?;
                Some((i, track, charts, parameters))
            })
            .collect();
        let targets: Vec<_> = chosen.iter().map(|(_, _, _, parameters)| parameters.clone()).collect();
        let solutions = solver.solve(&targets, None);
        let found: Vec<Option<Found>> = chosen
            .par_iter()
            .zip(&solutions)
            .map(|((_, track, charts, _), solution)| {
                let is_real = |p: &&[Complex<f64>]| p.iter().all(|v| v.im.abs() <= 1e-6 * (1.0 + v.re.abs()));
                let roots = solution.found().map(|root| root.point).filter(is_real);
                let refined =
                    roots.filter_map(|root| track.refined(track.linear(|i| charts[i].ray(root, i))?));
                refined.min_by(Found::order)
            })
            .collect();
        for ((i, ..), found) in chosen.iter().zip(found) {
            if let (Some(entry), Some(found)) = (best.get_mut(*i), found) {
                *entry = Some(found);
            }
        }
    }
}

/// A view of a point: what carries the frame of its first view to its own, lengths in units of `Track::unit`.
struct Row {
    rotation: Matrix3<f64>,
    translation: Vector,
    sight: Sight,
}

/// A point to be found.
struct Track<'a> {
    first: &'a Pose,
    rows: Vec<Row>,
    /// Largest distance of a camera from the first, m.
    unit: f64,
}

/// A point: direction in the first view (unit), inverse depth along it in units of `Track::unit`.
#[derive(Clone, Copy)]
struct State {
    direction: Vector,
    inverse: f64,
}

/// A minimum.
struct Found {
    state: State,
    cost: f64,
    /// J^T J by two directions at right angles to `direction` and by `inverse`.
    information: Matrix3<f64>,
}

impl Found {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.cost.total_cmp(&other.cost)
    }
}

/// Coordinates of a view in which the bearing is the z axis and the residual is the distance from it at depth
/// one: `chart = A X` with `A = [metric; bearing]`, but for a scale that all views of the track share.
struct Chart {
    to: Matrix3<f64>,
    back: Matrix3<f64>,
}

impl Chart {
    /// The ray at the image point of view `i` of a root.
    fn ray(&self, root: &[Complex<f64>], i: usize) -> Option<Vector> {
        let (x, y) = (root.get(2 * i)?, root.get(2 * i + 1)?);
        Some(self.back * Vector::new(x.re, y.re, 1.0))
    }
}

/// Two directions at right angles to a unit vector and each other.
fn across(direction: &Vector) -> [Vector; 2] {
    let axis = Vector::ith(direction.iamin(), 1.0);
    let right = axis.cross(direction);
    let right = right / right.norm();
    [right, direction.cross(&right)]
}

impl<'a> Track<'a> {
    fn new(views: &'a [Pose], sights: &[(usize, Sight)]) -> Option<Self> {
        let first = views.get(sights.first()?.0)?;
        let mut rows = Vec::with_capacity(sights.len());
        for (view, sight) in sights {
            let view = views.get(*view)?;
            let rotation = view.rotation * first.rotation.transpose();
            let translation = view.translation - rotation * first.translation;
            rows.push(Row { rotation, translation, sight: *sight });
        }
        let unit = rows.iter().map(|row| row.translation.norm()).fold(0.0, f64::max);
        let unit = if unit > 0.0 { unit } else { 1.0 };
        rows.iter_mut().for_each(|row| row.translation /= unit);
        Some(Self { first, rows, unit })
    }

    /// The linear start and its refinement.
    fn local(&self) -> Option<Found> {
        self.refined(self.linear(|i| self.rows.get(i).map(|row| row.sight.bearing))?)
    }

    /// Where rays of the views meet, by linear equations: twice, the second time with the depths of the first.
    fn linear(&self, ray: impl Fn(usize) -> Option<Vector>) -> Option<State> {
        let mut weights = vec![1.0; self.rows.len()];
        let mut point = Vector4::zeros();
        for _ in 0..2 {
            let mut sum = Matrix4::zeros();
            for (i, (row, weight)) in self.rows.iter().zip(&weights).enumerate() {
                let ray = ray(i)?;
                // What is off the ray, in thresholds at depth one.
                let metric = row.sight.metric
                    - row.sight.metric * ray * (row.sight.bearing.transpose() / row.sight.bearing.dot(&ray));
                let lines = metric * row.rotation;
                let last = metric * row.translation;
                let rows = [0, 1].map(|k| Vector4::new(lines[(k, 0)], lines[(k, 1)], lines[(k, 2)], last[k]));
                rows.iter().for_each(|r| sum += r * r.transpose() * *weight);
            }
            let eigen = sum.try_symmetric_eigen(f64::EPSILON, 100)?;
            point = eigen.eigenvectors.column(eigen.eigenvalues.imin()).into_owned();
            for (row, weight) in self.rows.iter().zip(&mut weights) {
                let depth = row.sight.bearing.dot(&(row.rotation * point.xyz() + row.translation * point.w));
                // A camera at the point would count for all.
                *weight = 1.0 / (depth * depth).max(1e-6);
            }
        }
        State { direction: point.xyz(), inverse: point.w }.normalised(&self.rows.first()?.sight.bearing)
    }

    /// Sum of squares, and with `derivatives` gradient and J^T J; `None` where a residual is not finite.
    fn evaluate(&self, state: &State, derivatives: bool) -> Option<(f64, Vector, Matrix3<f64>)> {
        let [right, down] = across(&state.direction);
        let (mut cost, mut gradient, mut information) = (0.0, Vector::zeros(), Matrix3::zeros());
        for Row { rotation, translation, sight } in &self.rows {
            let at = rotation * state.direction + translation * state.inverse;
            let depth = sight.bearing.dot(&at);
            let residual: Vector2<f64> = sight.metric * at / depth;
            cost += residual.norm_squared();
            if derivatives {
                let by_point: Matrix2x3<f64> = (sight.metric - residual * sight.bearing.transpose()) / depth;
                let columns =
                    [by_point * (rotation * right), by_point * (rotation * down), by_point * translation];
                let jacobian = Matrix2x3::from_columns(&columns);
                gradient += jacobian.transpose() * residual;
                information += jacobian.transpose() * jacobian;
            }
        }
        cost.is_finite().then_some((cost, gradient, information))
    }

    /// The minimum near a state.
    fn refined(&self, mut state: State) -> Option<Found> {
        let (mut cost, mut gradient, mut information) = self.evaluate(&state, true)?;
        let mut damping = 1e-4;
        for _ in 0..STEPS {
            let mut damped = information;
            (0..3).for_each(|k| damped[(k, k)] *= 1.0 + damping);
            let Some(cholesky) = damped.cholesky() else { break };
            let step = -cholesky.solve(&gradient);
            let [right, down] = across(&state.direction);
            let direction = state.direction + right * step.x + down * step.y;
            let moved = State { direction, inverse: state.inverse + step.z };
            let moved = moved.normalised(&state.direction)?;
            match self.evaluate(&moved, true).filter(|(c, ..)| *c <= cost) {
                Some((less, g, h)) => {
                    // Nothing more to gain: far below a residual's rounding.
                    let done = cost - less <= 1e-12 * cost + 1e-20;
                    (state, cost, gradient, information) = (moved, less, g, h);
                    damping = (damping * 0.1).max(1e-12);
                    if done {
                        break;
                    }
                }
                None if damping > 1e8 => break,
                None => damping *= 10.0,
            }
        }
        Some(Found { state, cost, information })
    }

    /// The point of a minimum, with its status.
    fn judged(&self, found: &Found, noise: f64) -> Triangulated {
        let Found { state, cost, information } = found;
        // Two unknowns are angles in thresholds, the third is seen by parallax: their scales differ.
        let scale = information.diagonal().map(f64::sqrt);
        let scaled = Matrix3::from_fn(|i, j| information[(i, j)] / (scale[i] * scale[j]));
        let inverse = scaled.cholesky().map(|c| c.inverse()).filter(|m| m.iter().all(|v| v.is_finite()));
        let Some(inverse) = inverse else { return Triangulated::nothing() };
        let covariance = Matrix3::from_fn(|i, j| noise * noise * inverse[(i, j)] / (scale[i] * scale[j]));
        let significance = state.inverse / covariance[(2, 2)].sqrt();

        let [right, down] = across(&state.direction);
        let jacobian = Matrix3::from_columns(&[right, down, -state.direction / state.inverse]);
        let to_target = self.first.rotation.transpose();
        let jacobian = to_target * jacobian * (self.unit / state.inverse);
        let seen = state.direction * (self.unit / state.inverse);
        let mut residual: f64 = 0.0;
        let mut in_front = true;
        for Row { rotation, translation, sight } in &self.rows {
            let at = rotation * state.direction + translation * state.inverse;
            let depth = sight.bearing.dot(&at);
            in_front &= depth * state.inverse > 0.0;
            residual = residual.max((sight.metric * at / depth).norm());
        }
        let status = match () {
            () if !(residual <= 1.0) => PointStatus::Outlier,
            () if !(significance.abs() >= SIGMAS) => PointStatus::Far,
            () if !in_front => PointStatus::Behind,
            () => PointStatus::Ok,
        };
        Triangulated {
            status,
            point: Point::from(to_target * (seen - self.first.translation)),
            covariance: jacobian * covariance * jacobian.transpose(),
            cost: *cost,
            residual,
            significance,
        }
    }

    fn charts(&self) -> Option<Vec<Chart>> {
        let sizes = self.rows.iter().map(|row| row.sight.metric.norm_squared()).sum::<f64>();
        let scale = (0.5 * sizes / self.rows.len() as f64).sqrt();
        let chart = |row: &Row| {
            let lines = row.sight.metric / scale;
            let bearing = row.sight.bearing.transpose();
            let to = Matrix3::from_rows(&[lines.row(0).into_owned(), lines.row(1).into_owned(), bearing]);
            Some(Chart { to, back: to.try_inverse()? })
        };
        self.rows.iter().map(chart).collect()
    }

    /// What the problems of the library measure: what carries each chart to the next, and the bearings, which
    /// are at zero in theirs. `None` if two neighbours share a centre.
    fn measured(&self, charts: &[Chart]) -> Option<Vec<f64>> {
        let mut numbers = Vec::with_capacity(14 * self.rows.len());
        for (rows, charts) in self.rows.windows(2).zip(charts.windows(2)) {
            let [a, b] = rows else { return None };
            let rotation = b.rotation * a.rotation.transpose();
            let translation = charts.last()?.to * (b.translation - rotation * a.translation);
            let matrix = charts.last()?.to * rotation * charts.first()?.back;
            numbers.extend(translation.try_normalize(1e-9)?.iter());
            numbers.extend((matrix / (matrix.norm() / 3f64.sqrt())).transpose().iter());
        }
        numbers.resize(numbers.len() + 2 * self.rows.len(), 0.0);
        Some(numbers)
    }
}

impl State {
    /// With a direction of length one, on the side of `towards`.
    fn normalised(self, towards: &Vector) -> Option<Self> {
        let norm = self.direction.norm();
        let scale = if self.direction.dot(towards) < 0.0 { -norm } else { norm };
        let usable = norm > 1e-12 && self.inverse.is_finite();
        usable.then(|| Self { direction: self.direction / scale, inverse: self.inverse / scale })
    }
}
