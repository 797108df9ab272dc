//! Relative poses of three views of a camera whose focal length is unknown, the same in all, from four points seen in
//! all of them, by the problem `trifocal_focal` of the library: 668 tracks for a sample, so that few samples are
//! what there is time for, and few rows may be wrong.
//!
//! A hypothesis is scored by triangulating all rows; what it scores best with is refined over the rows that it
//! explains, with every point at its best place for the views (variable projection).

use super::model::{Delta, MOST_UNKNOWNS};
use super::refine::solve;
use super::solvers::Homotopy;
use super::{rotation, Intrinsics, Sight, Triangulated, TriangulationProblem, Triangulator};
use crate::geometry::{Pose, Vector};
use crate::homotopy::problems::{self, Geometry, Random};
use crate::homotopy::Backend;
use crate::params::CameraSolver;
use nalgebra::{Matrix2x3, Vector2};

/// Rows of a sample.
const SAMPLE: usize = 4;
/// Three views have 12 unknowns and a row 3 constraints: four rows fit by themselves, as many again speak for them.
const FEWEST: usize = 2 * SAMPLE;
/// Hypotheses that are refined.
const REFINED: usize = 3;
/// Steps of a refinement.
const STEPS: usize = 10;
/// Step of derivatives.
const DIFFERENCE: f64 = 1e-4;

/// Estimates; holds what the homotopy needs, made once.
pub struct Trifocal {
    homotopy: Homotopy,
    triangulator: Triangulator,
}

/// What three views tell.
#[derive(Debug, Clone)]
pub struct ThreeViews {
    /// What carries the frame of the first view to that of the second and the third; the translation of the second
    /// has length one.
    pub poses: [Pose; 2],
    /// Focal length along columns, px.
    pub focal: f64,
    /// Per row: within the threshold in all views, in front of them.
    pub inlier_mask: Vec<bool>,
    /// How many.
    pub inliers: usize,
}

/// Views that are tried.
#[derive(Debug, Clone, Copy)]
struct State {
    poses: [Pose; 2],
    /// In nominal ones.
    focal: f64,
}

/// The rows in nominal focal lengths from the principal point.
struct Rows<'a> {
    images: Vec<[Vector2<f64>; 3]>,
    threshold: f64,
    triangulator: &'a Triangulator,
}

impl Trifocal {
    /// On a backend, for about so many samples at once.
    ///
    /// # Errors
    /// The backend that was asked for cannot be had.
    pub fn new(backend: Backend, samples: usize) -> Result<Self, problems::Error> {
        const NAME: &str = "trifocal_focal";
        let problem = problems::find(NAME).ok_or(problems::Error::Unknown(NAME))?;
        let homotopy = Homotopy::new(problem, backend, samples)?;
        Ok(Self { homotopy, triangulator: Triangulator::new(CameraSolver::ClosedForm, Backend::Cpu, 0)? })
    }

    /// The views of rows of pixels, view after view, from so many samples drawn with a seed; `threshold` in px. Of
    /// `intrinsics` the focal length is only a unit. `None`: fewer than eight rows agree.
    pub fn estimate(
        &self,
        pixels: &[[[f64; 2]; 3]],
        intrinsics: &Intrinsics,
        threshold: f64,
        samples: usize,
        seed: u64,
    ) -> Option<ThreeViews> {
        let Intrinsics { focal, centre } = *intrinsics;
        let image = |pixel: &[f64; 2]| {
            Vector2::new((pixel[0] - centre[0]) / focal[0], (pixel[1] - centre[1]) / focal[1])
        };
        let images: Vec<_> = pixels.iter().map(|row| row.each_ref().map(image)).collect();
        if images.len() < FEWEST || !images.iter().flatten().all(|p| p.iter().all(|v| v.is_finite())) {
            return None;
        }
        let drawn = draw(images.len(), samples, seed);
        let measured: Vec<Vec<f64>> = drawn
            .iter()
            .map(|sample| {
                let views = (0..3).flat_map(|view| (0..2).map(move |k| (view, k)));
                views
                    .flat_map(|(view, k)| sample.iter().map(move |row| (*row, view, k)))
                    .filter_map(|(row, view, k)| images.get(row).map(|images| images[view][k]))
                    .collect()
            })
            .collect();
        let rows = Rows { images, threshold: threshold / focal[0], triangulator: &self.triangulator };
        let mut found = Vec::new();
        self.homotopy.solve(&measured, None, &mut found);
        let mut states: Vec<(f64, State)> = found
            .iter()
            .filter_map(|(_, geometry)| State::new(geometry))
            .map(|state| (rows.score(&state), state))
            .collect();
        states.sort_by(|a, b| b.0.total_cmp(&a.0));
        let refined = states.iter().take(REFINED).filter_map(|(_, state)| {
            let wide = rows.refined(*state, 16.0)?;
            let state = rows.refined(wide, 1.0)?;
            Some((rows.score(&state), state))
        });
        let (_, best) = refined.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let inlier_mask: Vec<bool> = rows
            .points(&best)
            .iter()
            .map(|point| point.residual <= 1.0 && rows.in_front(&best, point))
            .collect();
        let inliers = inlier_mask.iter().filter(|inlier| **inlier).count();
        let three = ThreeViews { poses: best.poses, focal: best.focal * focal[0], inlier_mask, inliers };
        (inliers >= FEWEST).then_some(three)
    }
}

/// Samples of different rows.
fn draw(rows: usize, samples: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut random = Random::new(seed);
    (0..samples)
        .map(|_| {
            let mut sample = Vec::with_capacity(SAMPLE);
            while sample.len() < SAMPLE {
                let row = (random.between(0.0, rows as f64) as usize).min(rows - 1);
                if !sample.contains(&row) {
                    sample.push(row);
                }
            }
            sample
        })
        .collect()
}

impl State {
    /// Of a solution, in units of the translation of the second view.
    fn new(geometry: &Geometry) -> Option<Self> {
        let [second, third] = *geometry.poses.first_chunk()?;
        Self { poses: [second, third], focal: geometry.focal? }.scaled()
    }

    fn scaled(mut self) -> Option<Self> {
        let unit = self.poses[0].translation.norm();
        self.poses.iter_mut().for_each(|pose| pose.translation /= unit);
        let usable = unit > 1e-9 && self.focal > 0.03 && self.focal < 30.0;
        (usable && self.poses.iter().all(Pose::is_finite)).then_some(self)
    }

    /// Turns and translations of both views and the focal length, changed; the length of the first translation is
    /// one and does not change.
    fn moved(&self, delta: &Delta) -> Option<Self> {
        let turn = |k: usize| rotation::exp(&Vector::new(delta[k], delta[k + 1], delta[k + 2]));
        let [second, third] = self.poses;
        let axis = Vector::ith(second.translation.iamin(), 1.0);
        let right = axis.cross(&second.translation).try_normalize(1e-12)?;
        let down = second.translation.cross(&right);
        let shifted = [
            second.translation + right * delta[6] + down * delta[7],
            third.translation + Vector::new(delta[8], delta[9], delta[10]),
        ];
        let poses = [
            Pose { rotation: turn(0) * second.rotation, translation: shifted[0] },
            Pose { rotation: turn(3) * third.rotation, translation: shifted[1] },
        ];
        let mut state = Self { poses, focal: self.focal * (1.0 + delta[11]) };
        state.poses[0].translation = state.poses[0].translation.try_normalize(1e-12)?;
        (state.focal > 0.0).then_some(state)
    }
}

impl Rows<'_> {
    fn sight(&self, image: &Vector2<f64>, focal: f64) -> Sight {
        let ray = Vector::new(image.x / focal, image.y / focal, 1.0);
        let size = ray.norm();
        let metric = Matrix2x3::new(1.0, 0.0, -ray.x, 0.0, 1.0, -ray.y) * (size * focal / self.threshold);
        Sight { bearing: ray / size, metric, pixel: None }
    }

    /// Every row at its best place.
    fn points(&self, state: &State) -> Vec<Triangulated> {
        let [second, third] = state.poses;
        let mut problem = TriangulationProblem::new(vec![Pose::identity(), second, third]);
        for images in &self.images {
            let sights = [0, 1, 2].map(|view| (view, self.sight(&images[view], state.focal)));
            problem.push(&sights);
        }
        self.triangulator.solve(&problem, 1.0)
    }

    fn in_front(&self, state: &State, point: &Triangulated) -> bool {
        let at = point.point.coords;
        at.z > 0.0 && state.poses.iter().all(|pose| pose.apply(&at).z > 0.0)
    }

    /// Sum of `max(0, 1 - r^2)` with the longest residual `r` of each row.
    fn score(&self, state: &State) -> f64 {
        let points = self.points(state);
        let good = points.iter().filter(|point| point.residual < 1.0 && self.in_front(state, point));
        good.map(|point| 1.0 - point.residual * point.residual).sum()
    }

    /// Residuals of all rows, view after view; `None` where a point is at infinity or behind.
    fn residuals(&self, state: &State) -> Vec<Option<[f64; 6]>> {
        let poses = [Pose::identity(), state.poses[0], state.poses[1]];
        let points = self.points(state);
        let one = |(images, point): (&[Vector2<f64>; 3], &Triangulated)| {
            let mut all = [0.0; 6];
            for (view, pose) in poses.iter().enumerate() {
                let sight = self.sight(&images[view], state.focal);
                let at = pose.apply(&point.point.coords);
                let depth = sight.bearing.dot(&at);
                let r = sight.metric * at / depth;
                (all[2 * view], all[2 * view + 1]) = (r.x, r.y);
                (depth > 0.0 && r.iter().all(|v| v.is_finite())).then_some(())?;
            }
            Some(all)
        };
        self.images.iter().zip(&points).map(one).collect()
    }

    /// Sum of squares, at most `cut` a row.
    fn cost(residuals: &[Option<[f64; 6]>], cut: f64) -> f64 {
        residuals.iter().map(|r| r.map_or(cut, |r| square(&r).min(cut))).sum()
    }

    /// Levenberg and Marquardt's method over the rows with a sum of squares below `cut`; `None`: too few.
    fn refined(&self, mut state: State, cut: f64) -> Option<State> {
        let mut residuals = self.residuals(&state);
        let mut cost = Self::cost(&residuals, cut);
        let mut damping = 1e-4;
        for _ in 0..STEPS {
            let near: Vec<usize> = residuals
                .iter()
                .enumerate()
                .filter_map(|(i, r)| r.filter(|r| square(r) < cut).map(|_| i))
                .collect();
            if near.len() < FEWEST {
                return None;
            }
            let mut sides = Vec::with_capacity(2 * MOST_UNKNOWNS);
            for k in 0..MOST_UNKNOWNS {
                for step in [DIFFERENCE, -DIFFERENCE] {
                    let mut delta = [0.0; MOST_UNKNOWNS];
                    delta[k] = step;
                    sides.push(self.residuals(&state.moved(&delta)?));
                }
            }
            let (mut gradient, mut information) =
                ([0.0; MOST_UNKNOWNS], [[0.0; MOST_UNKNOWNS]; MOST_UNKNOWNS]);
            for i in near {
                let Some(r) = residuals[i] else { continue };
                let column = |k: usize| {
                    let (above, below) = (sides[2 * k][i]?, sides[2 * k + 1][i]?);
                    Some(std::array::from_fn::<f64, 6, _>(|c| (above[c] - below[c]) / (2.0 * DIFFERENCE)))
                };
                let columns: Option<Vec<[f64; 6]>> = (0..MOST_UNKNOWNS).map(column).collect();
                let Some(columns) = columns else { continue };
                let dot = |a: &[f64; 6], b: &[f64; 6]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                for (a, column) in columns.iter().enumerate() {
                    gradient[a] += dot(column, &r);
                    for (b, other) in columns.iter().enumerate() {
                        information[a][b] += dot(column, other);
                    }
                }
            }
            let step = solve(MOST_UNKNOWNS, &information, &gradient, damping);
            let trial = step.and_then(|delta| state.moved(&delta)).map(|next| {
                let residuals = self.residuals(&next);
                (next, Self::cost(&residuals, cut), residuals)
            });
            match trial {
                Some((next, less, r)) if less < cost => {
                    let done = cost - less < 1e-6 * cost;
                    (state, cost, residuals) = (next, less, r);
                    damping *= 0.1;
                    if done {
                        break;
                    }
                }
                _ if damping > 1e4 => break,
                _ => damping *= 10.0,
            }
        }
        Some(state)
    }
}

fn square(r: &[f64; 6]) -> f64 {
    r.iter().map(|v| v * v).sum()
}
