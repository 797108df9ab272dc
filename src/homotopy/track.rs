//! Follows roots along a path of parameters, from `t = 0` to `t = 1`, straight or in a bow through
//! complex `t`: another bow may come to another root.
//!
//! A step predicts by the polynomial through the last three points and their rates of change
//! (degree 5, error of order 6), corrects three times with one factorisation of the Jacobian, and is
//! accepted if the prediction was good to `tolerance` and the second correction is much smaller
//! than the first. The size of the first correction is the error of the prediction; it decides the
//! length of the next step. Tracks do not influence each other: what comes out of one is the same
//! whichever go beside it.

use super::pack::{Reals, WIDTH};
use super::program::{Compiled, Path};
use super::system::SMALL;
use super::work::{attempt, newton, Found, Step, Work, HISTORY};
use crate::status::TrackStatus;
use nalgebra::Complex;
use std::time::Instant;

/// How carefully paths are followed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Error of a prediction that is aimed at, relative to the point.
    pub tolerance: f64,
    /// The second correction may be so large relative to the first.
    pub contraction: f64,
    /// Attempted steps after which a track is given up.
    pub max_steps: u32,
    /// Length of a step in `t` below which a track is given up.
    pub min_step: f64,
    /// A coordinate larger than this is at infinity; many that are smaller come back.
    pub infinity: f64,
    /// Closer to the end than this, a track that cannot step there ends in a singular root.
    pub end_zone: f64,
    /// A root that is reached by a shorter step may be a multiple one.
    pub brief: f64,
    /// Halfway, `t` is a quarter of this times `i` beside the straight way.
    pub bow: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tolerance: 2e-2,
            contraction: 0.04,
            max_steps: 2000,
            min_step: 1e-14,
            infinity: 1e30,
            end_zone: 1e-12,
            brief: 1e-6,
            bow: 0.0,
        }
    }
}

impl Settings {
    /// More careful by a factor; every root is taken for one that may be multiple.
    pub fn tighter(&self, factor: f64) -> Self {
        let settings = *self;
        Self {
            tolerance: settings.tolerance / factor,
            contraction: settings.contraction / factor.sqrt(),
            max_steps: settings.max_steps * 2,
            brief: 2.0,
            ..settings
        }
    }
}

/// A root to follow.
#[derive(Debug, Clone, Copy)]
pub struct Assignment<'a> {
    /// Names it in what comes back.
    pub id: usize,
    /// Where the coefficients go.
    pub path: &'a Path,
    /// The root at `t = 0`.
    pub start: &'a [Complex<f64>],
}

/// Where a track ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// Of the assignment.
    pub id: usize,
    /// `Ok` if it came to `t = 1`.
    pub status: TrackStatus,
    /// The last point.
    pub point: Vec<Complex<f64>>,
    /// Steps that were attempted.
    pub steps: u32,
    /// How far it came.
    pub t: f64,
    /// Length of the last step that was made.
    pub step: f64,
}

/// A root that was polished at the end of its path.
#[derive(Debug, Clone, PartialEq)]
pub struct Polished {
    /// The root.
    pub point: Vec<Complex<f64>>,
    /// The largest equation relative to the size of its terms.
    pub residual: f64,
    /// Size of the last Newton correction, relative to the root: an estimate of its error.
    pub error: f64,
    /// How much relative errors of the equations may grow in the root.
    pub condition: f64,
    /// How far polishing moved it.
    pub moved: f64,
    /// Corrections that were smaller than the one before, but not much; near a multiple root all are.
    pub slow: u32,
    /// Corrections that were made, all together.
    pub corrections: u32,
}

/// What is known of a track that is under way.
#[derive(Clone, Copy, Default)]
struct Lane {
    id: usize,
    busy: bool,
    /// Parameters of the last points, the latest first.
    times: [f64; HISTORY],
    /// How many of them there are.
    known: usize,
    /// Length of the next step.
    step: f64,
    /// Where the next step goes.
    target: f64,
    steps: u32,
    /// Since when it grows towards the end as a path to infinity does: what was left then, or zero, and
    /// how fast it grew.
    growing: (f64, f64),
    /// A correction of this size may be rounding errors.
    rounding: f64,
    /// The first correction of an attempt that failed just before, and the longest of these attempts.
    failed: Option<(f64, f64)>,
}

/// Follows tracks with buffers of its own, several side by side.
pub struct Tracker<'a> {
    compiled: &'a Compiled,
    settings: Settings,
    work: Work,
    lanes: [Lane; WIDTH],
}

impl<'a> Tracker<'a> {
    /// A tracker for a system.
    pub fn new(compiled: &'a Compiled, settings: Settings) -> Self {
        Self { compiled, settings, work: Work::new(compiled), lanes: Default::default() }
    }

    /// Follows what `next` gives until there is no more; `deadline` ends all of it.
    pub fn run<'p>(
        &mut self,
        deadline: Option<Instant>,
        mut next: impl FnMut() -> Option<Assignment<'p>>,
        mut done: impl FnMut(End),
    ) {
        self.lanes = Default::default();
        let mut more = true;
        let mut late = false;
        loop {
            for l in 0..WIDTH {
                if more && !self.lanes[l].busy {
                    match next() {
                        Some(assignment) => self.begin(l, &assignment),
                        None => more = false,
                    }
                }
            }
            if self.lanes.iter().all(|lane| !lane.busy) {
                return;
            }
            late = late || deadline.is_some_and(|end| Instant::now() >= end);
            if late {
                for l in 0..WIDTH {
                    if self.lanes[l].busy {
                        done(self.end(l, TrackStatus::Budget));
                    }
                }
                continue;
            }
            let step = self.plan();
            let found = attempt(&mut self.work, self.compiled, &step);
            let good: [bool; WIDTH] = std::array::from_fn(|l| self.lanes[l].busy && self.is_good(l, &found));
            self.work.accept(good);
            for (l, good) in good.into_iter().enumerate() {
                if !self.lanes[l].busy {
                    continue;
                }
                if let Some(status) = self.judge(l, good, &found) {
                    done(self.end(l, status));
                }
            }
        }
    }

    fn begin(&mut self, l: usize, assignment: &Assignment) {
        self.work.load(l, &assignment.path.series, assignment.start);
        self.lanes[l] = Lane { id: assignment.id, busy: true, rounding: ROUNDING, ..Lane::default() };
    }

    fn end(&mut self, l: usize, status: TrackStatus) -> End {
        self.lanes[l].busy = false;
        let Lane { id, times, steps, .. } = self.lanes[l];
        let point = self.work.points[0].iter().map(|x| x.get(l)).collect();
        End { id, status, point, steps, t: times[0], step: times[0] - times[1] }
    }

    /// Where each track goes next, and the weights of its prediction.
    fn plan(&mut self) -> Step {
        let mut step = Step::default();
        for (l, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.busy) {
            let t = lane.times[0];
            // Not a tiny step at the end.
            let reaches = t + 1.01 * lane.step >= 1.0;
            lane.target = if lane.known == 0 {
                0.0
            } else if reaches {
                1.0
            } else {
                t + lane.step
            };
            let (s, bow) = (lane.target, self.settings.bow);
            step.t.set(l, Complex::new(s, bow * s * (1.0 - s)));
            step.speed.set(l, Complex::new(1.0, bow * (1.0 - 2.0 * s)));
            hermite(&lane.times[..lane.known], lane.target, |h, weights| {
                let [point, speed, change, acceleration] = weights;
                step.point[0][h][l] = point;
                step.point[1][h][l] = speed;
                step.rate[0][h][l] = change;
                step.rate[1][h][l] = acceleration;
            });
        }
        step
    }

    /// Error of the step, 1 being what is aimed at.
    fn error(&self, l: usize, found: &Found) -> f64 {
        let (first, second) = (found.first[l], found.second[l]);
        let ratio = if second <= self.lanes[l].rounding { 0.0 } else { second / first };
        (first / self.settings.tolerance).max(ratio / (0.25 * self.settings.contraction))
    }

    fn is_good(&self, l: usize, found: &Found) -> bool {
        let (first, second) = (found.first[l], found.second[l]);
        let contracts = second <= self.settings.contraction * first || second <= self.lanes[l].rounding;
        let limit = if self.lanes[l].known == 0 { 1e-3 } else { 8.0 * self.settings.tolerance };
        first <= limit && contracts && found.size[l] < f64::INFINITY
    }

    /// Takes note of a step; the status if it was the last one.
    fn judge(&mut self, l: usize, good: bool, found: &Found) -> Option<TrackStatus> {
        let settings = self.settings;
        let error = self.error(l, found);
        let growth = self.growth(l);
        let lane = &mut self.lanes[l];
        lane.steps += 1;
        if lane.known == 0 {
            if !good {
                return Some(TrackStatus::Singular);
            }
            lane.known = 1;
            lane.step = FIRST_STEP;
            return None;
        }
        let made = lane.target - lane.times[0];
        if !good {
            if lane.steps >= settings.max_steps {
                return Some(TrackStatus::Budget);
            }
            let (first, second) = (found.first[l], found.second[l]);
            let longest = lane.failed.map_or(made, |(_, longest)| longest);
            // A shorter step that predicts no better: what is left is rounding, unless the end is singular.
            let rounding = (4.0 * first.max(second)).min(MOST_ROUNDING);
            let near = 1.0 - lane.times[0] < NEAR_END;
            let still = !near && lane.failed.is_some_and(|(before, _)| first > 0.3 * before);
            if still && first < MOST_ROUNDING && rounding > lane.rounding {
                lane.rounding = rounding;
                lane.failed = None;
                lane.step = 0.5 * longest;
                return None;
            }
            lane.failed = Some((first, longest));
            let wanted = if error.is_finite() { lane.length(error, made) } else { 0.0 };
            lane.step = bounded(wanted, 0.1 * made, 0.5 * made);
            if lane.step < settings.min_step {
                return Some(if near { TrackStatus::Singular } else { TrackStatus::MinStep });
            }
            return None;
        }
        lane.failed = None;
        let left = 1.0 - lane.target;
        let wanted = lane.length(error, made);
        let full = lane.known == HISTORY;
        lane.times.rotate_right(1);
        lane.times[0] = lane.target;
        lane.known = (lane.known + 1).min(HISTORY);
        if left <= 0.0 {
            return Some(TrackStatus::Ok);
        }
        // The order goes up while the history fills; what the error will be is not known then.
        lane.step =
            if full { bounded(wanted, 0.1 * made, 2.0 * made) } else { bounded(wanted, made, 4.0 * made) };
        if found.size[l] > settings.infinity {
            return Some(TrackStatus::Diverged);
        }
        let grows = left < 1e3 * settings.end_zone && growth > GROWTH && found.size[l] > 1e4;
        let (since, grew) = lane.growing;
        if !grows {
            lane.growing = (0.0, 0.0);
        } else if since == 0.0 || left < since / FAR {
            // A path to a large root grows ever more slowly.
            if since > 0.0 && growth > STEADY * grew {
                return Some(TrackStatus::Diverged);
            }
            lane.growing = (left, growth);
        }
        if left < settings.end_zone && lane.step < left {
            return Some(if growth > GROWTH { TrackStatus::Diverged } else { TrackStatus::Singular });
        }
        if lane.steps >= settings.max_steps {
            return Some(TrackStatus::Budget);
        }
        None
    }

    /// For the largest coordinate `x`: how fast it grows, as the exponent `g` of `(1 - t)^-g`.
    fn growth(&self, l: usize) -> f64 {
        let (mut size, mut growth) = (0.0, 0.0);
        for (x, v) in self.work.points[0].iter().zip(&self.work.rates[0]) {
            let (x, v) = (x.get(l), v.get(l));
            if x.norm_sqr() > size {
                size = x.norm_sqr();
                growth = (v * x.conj()).re / size;
            }
        }
        growth * (1.0 - self.lanes[l].target)
    }

    /// Polishes up to four roots, as many as go side by side, at the ends of their paths.
    pub fn polish(&mut self, roots: &[(&Path, &[Complex<f64>])]) -> Vec<Polished> {
        const MOST: u32 = 8;
        for l in 0..WIDTH {
            // Idle lanes repeat the first.
            if let Some((path, point)) = roots.get(l).or(roots.first()) {
                self.work.load_end(l, &path.end, point);
            }
        }
        let mut error: Reals = [f64::INFINITY; WIDTH];
        let mut moved: Reals = [0.0; WIDTH];
        let (mut slow, mut slowest) = ([0; WIDTH], [0; WIDTH]);
        let mut best: Vec<Option<Polished>> = vec![None; roots.len()];
        let mut open: Vec<bool> = vec![true; roots.len()];
        for corrections in 1..=MOST {
            if !open.contains(&true) {
                break;
            }
            let before: Vec<Vec<Complex<f64>>> = (0..roots.len()).map(|l| self.point(l)).collect();
            let quality = newton(&mut self.work, self.compiled);
            for (l, before) in before.into_iter().enumerate() {
                if !open[l] {
                    continue;
                }
                // While corrections get smaller the point gets better. They are never NaN.
                open[l] = quality.correction[l] < error[l] && quality.correction[l] > STILL;
                if quality.correction[l] >= error[l] {
                    best[l].iter_mut().for_each(|best| best.corrections = corrections);
                    continue;
                }
                let point = if quality.correction[l] > STILL { self.point(l) } else { before };
                let crawls = quality.correction[l] > (0.3 * error[l]).max(STILL) && error[l] < f64::INFINITY;
                slow[l] = if crawls { slow[l] + 1 } else { 0 };
                slowest[l] = slow[l].max(slowest[l]);
                error[l] = quality.correction[l];
                moved[l] += quality.correction[l];
                let (residual, condition) = (quality.residual[l], quality.condition[l]);
                best[l] = Some(Polished {
                    point,
                    residual,
                    error: error[l],
                    condition,
                    moved: moved[l],
                    slow: slowest[l],
                    corrections,
                });
            }
        }
        let failed = |l: usize| Polished {
            point: roots[l].1.to_vec(),
            residual: f64::INFINITY,
            error: f64::INFINITY,
            condition: f64::INFINITY,
            moved: f64::INFINITY,
            slow: u32::MAX,
            corrections: 1,
        };
        best.into_iter().enumerate().map(|(l, b)| b.unwrap_or_else(|| failed(l))).collect()
    }

    /// The polished end of a path is a root, known well, and no multiple one. Corrections that this takes
    /// are counted.
    pub fn is_regular(&mut self, path: &Path, end: &End, root: &mut Polished) -> bool {
        let crawled = root.slow >= SLOW && root.error > 16.0 * f64::EPSILON * root.condition;
        root.residual < RESIDUAL
            && root.error < ERROR
            && root.moved < MOVED
            && root.condition < CONDITION
            && !crawled
            && ((root.condition < DOUBTFUL && end.step > self.settings.brief)
                || !self.is_multiple(path, root))
    }

    /// Newton's method comes back to the point from a little beside it, but slowly.
    fn is_multiple(&mut self, path: &Path, root: &mut Polished) -> bool {
        let size = root.point.iter().map(|x| x.norm_sqr()).fold(0.0, f64::max).sqrt();
        let floor = (0.01 * size.min(1.0)).max(SMALL);
        let beside: Vec<_> = root
            .point
            .iter()
            .zip(1..)
            .map(|(x, i)| x + x.norm_sqr().sqrt().max(floor) * BESIDE / f64::from(i))
            .collect();
        let back = self.polish(&[(path, &beside)]);
        root.corrections += back.iter().map(|p| p.corrections).sum::<u32>();
        back.iter().all(|p| p.slow >= SLOW)
    }

    fn point(&self, l: usize) -> Vec<Complex<f64>> {
        self.work.point.iter().map(|x| x.get(l)).collect()
    }
}

/// A root is polished when its equations are this small relative to their terms.
const RESIDUAL: f64 = 1e-10;
/// A root is known to this.
const ERROR: f64 = 1e-7;
/// Polishing that moves a root further than this has left it.
const MOVED: f64 = 1e-3;
/// Relative errors of the equations may grow so much in a regular root.
pub(super) const CONDITION: f64 = 1e12;
/// Beyond this a root may be a multiple one: known to 1e-7, that has such a condition.
const DOUBTFUL: f64 = 1e7;
/// How far beside a root Newton's method is tried, relative to its coordinates: as far as different
/// roots are apart.
const BESIDE: f64 = 1e-6;
/// So many slow corrections in a row are those of a multiple root.
const SLOW: u32 = 4;
/// A correction of this size may be rounding errors, which do not contract.
const ROUNDING: f64 = 1e-8;
/// The most that they are taken to be where they are measured: paths come through places where the
/// equations lose ten digits.
const MOST_ROUNDING: f64 = 1e-5;
/// A track that is stopped closer to the end than this is stopped by the end.
const NEAR_END: f64 = 1e-4;
/// A polished root moves by less.
const STILL: f64 = 1e-13;
/// A coordinate that grows as `(1 - t)` to the power of minus this, or faster, goes to infinity.
const GROWTH: f64 = 0.05;
/// It grows no more slowly than by this factor when what is left has become smaller by the next one.
const STEADY: f64 = 0.9;
/// See `STEADY`.
const FAR: f64 = 30.0;
/// Length of the first step.
const FIRST_STEP: f64 = 1e-2;

/// Within bounds; what is not a number is the lower one.
fn bounded(value: f64, low: f64, high: f64) -> f64 {
    if value > low {
        value.min(high)
    } else {
        low
    }
}

impl Lane {
    /// The length at which the error would be 0.5 if a step of length `made` had `error`. The error
    /// goes with the square of the product of the distances to all points, and that, for lengths
    /// near this one, with a power of the length.
    fn length(&self, error: f64, made: f64) -> f64 {
        let distances = self.times[..self.known].iter().map(|t| made + self.times[0] - t);
        let power: f64 = distances.map(|d| made / d).sum();
        made * libm::pow(0.5 / error.max(1e-9), 0.5 / power)
    }
}

/// Weights of Hermite's interpolation at `s`: for each point its weight, that of its rate, and those
/// of both in the rate at `s`.
fn hermite(times: &[f64], s: f64, mut give: impl FnMut(usize, [f64; 4])) {
    for (i, ti) in times.iter().enumerate() {
        // Lagrange's polynomial of this point: value and slope at `s`, slope at the point.
        let (mut value, mut slope, mut own) = (1.0, 0.0, 0.0);
        for (_, tj) in times.iter().enumerate().filter(|(j, _)| *j != i) {
            let width = 1.0 / (ti - tj);
            slope = (slope * (s - tj) + value) * width;
            value *= (s - tj) * width;
            own += width;
        }
        let from = s - ti;
        let (square, change) = (value * value, 2.0 * value * slope);
        let bend = 1.0 - 2.0 * from * own;
        give(i, [bend * square, from * square, bend * change - 2.0 * own * square, square + from * change]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homotopy::system::System;

    fn c(re: f64, im: f64) -> Complex<f64> {
        Complex::new(re, im)
    }

    #[test]
    fn the_predictor_is_exact_for_polynomials_of_degree_five() {
        let f = |t: f64| ((3.0 * t - 1.0) * t * t + 0.5) * t * t - t;
        let d = |t: f64| 15.0 * t.powi(4) - 4.0 * t.powi(3) + t - 1.0;
        let times = [0.4, 0.33, 0.1];
        let (mut value, mut rate) = (0.0, 0.0);
        hermite(&times, 0.7, |i, [a, b, c, e]| {
            value += a * f(times[i]) + b * d(times[i]);
            rate += c * f(times[i]) + e * d(times[i]);
        });
        assert!((value - f(0.7)).abs() < 1e-10 && (rate - d(0.7)).abs() < 1e-9, "{value} {rate}");
    }

    fn follow(
        yaml: &str,
        from: &[Complex<f64>],
        to: &[Complex<f64>],
        starts: &[&[Complex<f64>]],
    ) -> Vec<End> {
        let compiled = Compiled::new(&System::from_yaml(yaml).expect("a system"));
        let path = compiled.path(from, to);
        let mut jobs = starts.iter().enumerate().map(|(id, start)| Assignment { id, path: &path, start });
        let mut ends = Vec::new();
        Tracker::new(&compiled, Settings::default()).run(None, || jobs.next(), |end| ends.push(end));
        ends.sort_by_key(|e| e.id);
        ends
    }

    const SQUARE: &str = "unknowns: [x]\nparameters: [a]\nequations: [x^2 - a]\n";

    #[test]
    fn roots_are_followed_to_the_end() {
        let ends = follow(SQUARE, &[c(1.0, 0.0)], &[c(-4.0, 0.1)], &[&[c(1.0, 0.0)], &[c(-1.0, 0.0)]]);
        for (end, sign) in ends.iter().zip([1.0, -1.0]) {
            assert_eq!(end.status, TrackStatus::Ok, "{end:?}");
            let root = c(-4.0, 0.1).sqrt() * sign;
            assert!((end.point[0] - root).norm() < 1e-6, "{end:?}");
            assert!(end.steps < 80, "{end:?}");
        }
    }

    #[test]
    fn double_roots_infinity_and_wrong_starts_have_their_status() {
        let one: &[Complex<f64>] = &[c(1.0, 0.0)];
        assert_eq!(follow(SQUARE, &[c(1.0, 0.0)], &[c(0.0, 0.0)], &[one])[0].status, TrackStatus::Singular);
        let pole = "unknowns: [x]\nparameters: [a]\nequations: [a*x - 1]\n";
        assert_eq!(follow(pole, &[c(1.0, 0.0)], &[c(0.0, 0.0)], &[one])[0].status, TrackStatus::Diverged);
        let slow = "unknowns: [x]\nparameters: [a]\nequations: [a*x^3 - 1]\n";
        assert_eq!(follow(slow, &[c(1.0, 0.0)], &[c(0.0, 0.0)], &[one])[0].status, TrackStatus::Diverged);
        assert_eq!(follow(SQUARE, &[c(2.0, 0.0)], &[c(1.0, 0.0)], &[one])[0].status, TrackStatus::Singular);
        // Through a double root in the middle of the path.
        let end = &follow(SQUARE, &[c(1.0, 0.0)], &[c(-1.0, 0.0)], &[one])[0];
        assert_eq!(end.status, TrackStatus::MinStep, "{end:?}");
        let nan = &follow(SQUARE, &[c(1.0, 0.0)], &[c(f64::NAN, 0.0)], &[one])[0];
        assert_ne!(nan.status, TrackStatus::Ok, "{nan:?}");
    }

    #[test]
    fn equations_that_lose_ten_digits_do_not_stop_a_track() {
        let yaml = "unknowns: [x, y]\nparameters: [a, b]\n\
            equations: [x^2 + y - a, x^2 + (1 + 1e-10)*y - a - 1e-10*b]\n";
        let root = [c(2.0, 0.0).sqrt(), c(1.0, 0.0)];
        let end = &follow(yaml, &[c(3.0, 0.0), c(1.0, 0.0)], &[c(-1.0, 4.0), c(2.0, 1.0)], &[&root])[0];
        assert!(end.status == TrackStatus::Ok && end.steps < 60, "{end:?}");
        assert!((end.point[1] - c(2.0, 1.0)).norm() < 1e-3, "{end:?}");
    }

    #[test]
    fn a_track_does_not_depend_on_those_beside_it() {
        let starts: Vec<Vec<Complex<f64>>> = (0..7)
            .map(|k| vec![Complex::from_polar(1.0, std::f64::consts::TAU * f64::from(k) / 7.0)])
            .collect();
        let starts: Vec<&[Complex<f64>]> = starts.iter().map(Vec::as_slice).collect();
        let yaml = "unknowns: [x]\nparameters: [a, b]\nequations: [x^7 - a + b*x^3]\n";
        let (from, to) = ([c(1.0, 0.0), c(0.0, 0.0)], [c(0.3, -2.0), c(1.5, 0.5)]);
        let together = follow(yaml, &from, &to, &starts);
        for (k, start) in starts.iter().enumerate() {
            let alone = &follow(yaml, &from, &to, &[start])[0];
            assert_eq!((&alone.point, alone.steps), (&together[k].point, together[k].steps));
        }
    }
}
