//! From the search to the result: refinement, covariance, what else could explain the rows, and the verdict.
//!
//! A pose is `ok` only if it has far more support than chance gives, the support fixes every unknown, and no
//! other pose comes near. See also `registration::acceptance`.

use super::consensus::{apart, squared_length, Clock, Consensus, Goal, SAME};
use super::model::{Delta, Model, Search, CUTS, MOST_UNKNOWNS};
use super::refine::{Effort, Refined};
use super::soften::soften;
use super::{profile, Estimation, Reason};
use crate::params::Params;
use crate::registration::acceptance::log10_poisson_tail;
use crate::registration::lanes::{Deadline, Stop};
use crate::registration::RunnerUp;
use crate::status::Status;

/// A rival is not worse than the pose if its squared residuals are larger by less than so many variances,
const LIKELY: f64 = 25.0;
/// of which one row counts for no more than so many.
const ROW: f64 = 9.0;
/// and by less than so many standard deviations of what noise and mismatches do.
const SURE: f64 = 4.0;
/// Two squared residuals of a match differ by no larger a variance, as if they had nothing in common.
const MOST_NOISE: f64 = 4.0;
/// A line or a rotation is named as the reason if fewer than this share of the inliers are beside it.
const COMMON: f64 = 0.2;
/// Two minima so many standard deviations apart are different poses.
const DIFFERENT: f64 = 10.0;
/// Two poses nearer to each other than this share of the standard deviations that are allowed are one pose, of
/// the uncertainty of both.
const MATERIAL: f64 = 0.5;
/// Rivals with `max_runner_up` of the support are missed no more often.
const RIVAL_MISSED: f64 = 0.01;
/// A pose is weak if its standard deviations are above this share of those that are allowed.
const WEAK: f64 = 0.1;
/// Samples of the search for a pose with all points behind.
const BEHIND_SAMPLES: u64 = 512;

/// Judges; the buffers are reused.
pub(crate) struct Judge<H> {
    inliers: Vec<u32>,
    tight: Vec<u32>,
    twins: Vec<H>,
    cells: Vec<[i64; 2]>,
    /// Of the unknowns of the pose.
    covariance: Option<[Delta; MOST_UNKNOWNS]>,
    /// Of a number of the residual of a match.
    variance: f64,
    /// Rows within the threshold by chance.
    mismatches: f64,
}

/// The rows and what may be spent.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    /// The parameters.
    pub params: &'a Params,
    /// When to stop.
    pub deadline: Deadline,
}

/// Two poses compared.
#[derive(Debug, Clone, Copy, Default)]
struct Versus {
    only_pose: usize,
    only_other: usize,
    /// By how many variances the squared residuals of the other are larger.
    gain: f64,
    /// Variance of that, by how much the rows within the threshold of both differ in it (Vuong, "Likelihood ratio
    /// tests for model selection and non-nested hypotheses", 1989).
    noise2: f64,
}

impl<H: Copy + Send + Sync> Judge<H> {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self {
            inliers: Vec::with_capacity(n),
            tight: Vec::with_capacity(n),
            twins: Vec::with_capacity(4),
            cells: Vec::with_capacity(n),
            covariance: None,
            variance: 1.0,
            mismatches: 0.0,
        }
    }

    /// Estimates with a model that is loaded; `places` says which of its rows stands for each of the caller.
    pub fn estimate<M: Model<Hypothesis = H>>(
        &mut self,
        model: &mut M,
        search: &mut impl Search<M>,
        consensus: &mut Consensus<H>,
        task: Task,
        clock: &mut Clock,
        out: &mut Estimation,
    ) -> Result<(), Stop> {
        let n = model.rows();
        if n < M::SAMPLE {
            (out.status, out.reason) = (Status::TooFew, Reason::TooFew { got: n, need: M::SAMPLE });
            return Ok(());
        }
        let camera = &task.params.camera;
        let most = camera.max_samples.max(1) as u64;
        // A pose with fewer inliers is not trusted anyway.
        let least = task.params.acceptance.min_inliers.max(0) as usize;
        let goal = Goal { missed: 1.0 - camera.confidence, samples: most, inliers: None, least };
        search.load(model)?;
        let spent = consensus.explore(model, search, 0..n as u32, goal, camera, task.deadline, clock)?;
        (out.samples, out.hypotheses, out.missed) = (spent.samples, spent.hypotheses, spent.missed);
        let mut best = self.finish(model, consensus);
        let verdict = match &mut best {
            None => self.nothing(model, spent.solved),
            Some(best) => self.examine(model, best, consensus, task, out),
        };
        if best.is_some() {
            for (inlier, place) in out.inlier_mask.iter_mut().zip(model.places()) {
                *inlier = self.inliers.binary_search(place).is_ok();
            }
        }
        (out.status, out.reason) = verdict;
        match &best {
            Some(best) if out.status == Status::Ok => {
                self.gather(model, consensus, best, task);
                let doubted = self.doubt(model, best, consensus, task, out);
                self.rivals(model, search, consensus, best, task, clock, out)?;
                if out.status == Status::Ok {
                    (out.status, out.reason) = doubted;
                }
            }
            _ => self.explain(model, search, consensus, best.as_ref(), task, clock, out)?,
        }
        if matches!(out.reason, Reason::Chance(_)) && spent.samples >= most && spent.missed > goal.missed {
            out.reason = Reason::Samples(spent.samples);
        }
        clock.lap(|s| &mut s.refine);
        Ok(())
    }

    /// What no pose at all means.
    fn nothing<M: Model<Hypothesis = H>>(&mut self, model: &M, solved: u64) -> (Status, Reason) {
        let groups = (0..model.rows()).map(|i| [model.group(i) as i64, 0]);
        match super::scene::count_distinct(groups, &mut self.cells) {
            got if got < M::SAMPLE => (Status::TooFew, Reason::TooFew { got, need: M::SAMPLE }),
            _ => model.nothing(solved),
        }
    }

    /// The best candidate refined to the end.
    fn finish<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        consensus: &mut Consensus<H>,
    ) -> Option<Refined<H>> {
        let mut best: Option<Refined<H>> = None;
        for candidate in &consensus.candidates {
            // The refinement to the end adds a little to what the local one has found.
            if best.is_some_and(|best| candidate.support < 0.9 * best.support) {
                break;
            }
            let found = consensus.refiner.refine(model, &candidate.hypothesis, Effort::Final);
            let found = found.unwrap_or(*candidate);
            if best.is_none_or(|best| found.support > best.support) {
                best = Some(found);
            }
        }
        best
    }

    /// Measures under the pose, fills the result, and judges it by itself.
    fn examine<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        best: &mut Refined<H>,
        consensus: &mut Consensus<H>,
        task: Task,
        out: &mut Estimation,
    ) -> (Status, Reason) {
        let n = model.rows();
        self.collect(model, &best.hypothesis);
        // Mismatches within the threshold; the estimate of what they are allowed to be is above that.
        let (hits, sets) = model.chance(&best.hypothesis);
        let mismatches = hits[0] as f64 / sets.max(1) as f64;
        self.mismatches = mismatches;
        let softened = soften(model, &best.hypothesis, &self.inliers, mismatches);
        self.covariance = None;
        if let Some(found) = softened {
            if apart(model, best, &found.hypothesis) < 1.0 {
                (best.hypothesis, best.information) = (found.hypothesis, found.information);
                (self.covariance, self.variance) = (Some(found.covariance), found.variance);
            }
        }
        let (support, square, counts) = self.collect(model, &best.hypothesis);
        best.inliers = self.inliers.len();
        let h = &best.hypothesis;
        (out.inliers, out.score) = (self.inliers.len(), support);
        out.residual = (square / self.inliers.len().max(1) as f64).sqrt();
        out.spread = model.spread(h, &self.inliers);
        out.independent_inliers = model.independent(&self.inliers, &mut self.cells);

        // The number of false alarms, at the threshold that proves most.
        let mean = hits.map(|hits| (M::CLUTTER * hits as f64 + 1.0) / sets.max(1) as f64);
        let trials = log10_choose(n, M::SAMPLE) + libm::log10((M::ROOTS * CUTS.len()) as f64);
        let alarms = |cut: usize| {
            let independent = counts[cut].min(out.independent_inliers);
            trials + log10_poisson_tail(independent as f64 - M::SAMPLE as f64, mean[cut])
        };
        let (cut, log10) = (0..CUTS.len()).map(|cut| (cut, alarms(cut))).fold((0, f64::INFINITY), |a, b| {
            if b.1 < a.1 {
                b
            } else {
                a
            }
        });
        out.log10_false_alarms = log10;

        let weakest = model.report(h, self.covariance.as_ref().map_or(&[], |c| &c[..]), out);

        let acceptance = &task.params.acceptance;
        let need = (acceptance.min_inliers.max(0) as usize).max(M::SAMPLE);
        self.tight.clear();
        let limit = CUTS[cut];
        let tight = self.inliers.iter().filter(|i| model.residual2(h, **i as usize) < limit);
        self.tight.extend(tight);
        let footings = model.footings(h, &self.tight, &mut consensus.refiner);
        // What most inliers have in common is the reason, also where it leaves a pose that is no more than chance.
        let common = footings.into_iter().flatten().find(|footing| {
            self.tight.len() >= need && (footing.rows as f64) < COMMON * self.tight.len() as f64
        });
        if log10 > -acceptance.significance {
            return common.map_or((Status::LowInliers, Reason::Chance(log10)), |footing| footing.lacking);
        }
        if out.independent_inliers < need {
            return (Status::LowInliers, Reason::Inliers { got: out.independent_inliers, need });
        }
        for footing in footings.into_iter().flatten() {
            let alone = footing.rows as f64 - footing.fitted as f64;
            let alarms = log10_choose(n, footing.fitted) + log10_poisson_tail(alone, mean[cut]);
            if alarms > -acceptance.significance {
                return footing.lacking;
            }
        }
        let limits = model.limits(acceptance);
        let mut weakest = if self.covariance.is_some() { weakest } else { [f64::INFINITY; 2] };
        if let Some(covariance) = self.covariance.as_mut().filter(|_| weak(weakest, limits) != Weak::No) {
            profile::widen(model, best, self.variance, covariance, &mut consensus.refiner);
            weakest = model.report(&best.hypothesis, &covariance[..], out);
        }
        match weak(weakest, limits) {
            Weak::Much => (Status::Degenerate, model.unconstrained(&best.hypothesis, &self.inliers, weakest)),
            _ => (Status::Ok, Reason::None),
        }
    }

    /// Collects the inliers; their support, the sum of their squared residuals, and how many are within each of
    /// [`CUTS`].
    fn collect<M: Model<Hypothesis = H>>(&mut self, model: &M, h: &H) -> (f64, f64, [usize; CUTS.len()]) {
        let (mut support, mut square, mut counts) = (0.0, 0.0, [0; CUTS.len()]);
        self.inliers.clear();
        for i in 0..model.rows() {
            let r2 = model.residual2(h, i);
            if r2 < 1.0 {
                self.inliers.push(i as u32);
                support += 1.0 - r2;
                square += r2;
                counts.iter_mut().zip(CUTS).for_each(|(count, cut)| *count += usize::from(r2 < cut));
            }
        }
        (support, square, counts)
    }

    /// Judges the calibration under which the pose was found; the covariance allows for what cannot be told of it.
    fn doubt<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        best: &Refined<H>,
        consensus: &mut Consensus<H>,
        task: Task,
        out: &mut Estimation,
    ) -> (Status, Reason) {
        let (h, others) = (&best.hypothesis, &self.twins);
        let doubt = model.doubt(h, others, self.variance, &mut consensus.refiner);
        let (Some(doubt), Some(covariance)) = (doubt, &mut self.covariance) else {
            return (Status::Ok, Reason::None);
        };
        if let Some(fault) = doubt.fault {
            return fault;
        }
        let Some(moment) = doubt.moment else { return (Status::Ok, Reason::None) };
        let mut widened = *covariance;
        let entries = widened.iter_mut().flatten().zip(moment.iter().flatten());
        entries.for_each(|(entry, moment)| *entry += doubt.probability * moment);
        if !widened.iter().flatten().all(|entry| entry.is_finite()) {
            let open = model.unconstrained(h, &self.inliers, [f64::INFINITY; 2]);
            return (Status::Degenerate, open);
        }
        let weakest = model.report(h, &widened[..], out);
        match weak(weakest, model.limits(&task.params.acceptance)) {
            // What a calibration can do is nothing much.
            Weak::No => {
                model.report(h, &covariance[..], out);
                (Status::Ok, Reason::None)
            }
            Weak::Little => {
                *covariance = widened;
                (Status::Ok, Reason::None)
            }
            Weak::Much => (Status::Degenerate, model.unconstrained(h, &self.inliers, weakest)),
        }
    }

    /// Where poses are that could be as good.
    fn gather<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        consensus: &Consensus<H>,
        best: &Refined<H>,
        task: Task,
    ) {
        let share = task.params.acceptance.max_runner_up * best.support;
        self.twins.clear();
        model.twins(&best.hypothesis, &self.inliers, &mut self.twins);
        self.twins.extend(strong(&consensus.candidates, share));
    }

    /// Looks for poses elsewhere that explain the rows nearly as well.
    #[allow(clippy::too_many_arguments)]
    fn rivals<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        search: &mut impl Search<M>,
        consensus: &mut Consensus<H>,
        best: &Refined<H>,
        task: Task,
        clock: &mut Clock,
        out: &mut Estimation,
    ) -> Result<(), Stop> {
        let variance = self.variance;
        let share = task.params.acceptance.max_runner_up;
        self.meet_all(model, consensus, (best, variance), 0, task, out);
        // Among the rows that the pose does not explain.
        let rest = model.rows() - self.inliers.len();
        let sought = (share * self.inliers.len() as f64).ceil() as usize;
        if out.status == Status::Ok && sought <= rest && sought >= M::SAMPLE {
            clock.lap(|s| &mut s.refine);
            let samples = task.params.camera.max_samples.max(1) as u64;
            let goal = Goal { missed: RIVAL_MISSED, samples, inliers: Some(sought), least: 0 };
            let h = best.hypothesis;
            let rows = (0..model.rows() as u32).filter(|i| model.residual2(&h, *i as usize) >= 1.0);
            let camera = &task.params.camera;
            let spent = consensus.explore(model, search, rows, goal, camera, task.deadline, clock)?;
            out.samples += spent.samples;
            out.hypotheses += spent.hypotheses;
            let known = self.twins.len();
            self.twins.extend(strong(&consensus.candidates, share * best.support));
            self.meet_all(model, consensus, (best, variance), known, task, out);
        }
        let Some(covariance) = &self.covariance else { return Ok(()) };
        let weakest = model.report(&best.hypothesis, covariance, out);
        let [translation, rotation] = model.limits(&task.params.acceptance);
        if out.status == Status::Ok && (weakest[0] > translation || weakest[1] > rotation) {
            (out.status, out.reason) = model.twofold(1.0);
        }
        Ok(())
    }

    /// Meets the twins from a number on.
    fn meet_all<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        consensus: &mut Consensus<H>,
        best: (&Refined<H>, f64),
        from: usize,
        task: Task,
        out: &mut Estimation,
    ) {
        let starts = std::mem::take(&mut self.twins);
        for start in starts.iter().skip(from) {
            self.meet(model, consensus, best, start, task, out);
        }
        self.twins = starts;
    }

    /// Compares the pose with one that starts elsewhere.
    fn meet<M: Model<Hypothesis = H>>(
        &mut self,
        model: &M,
        consensus: &mut Consensus<H>,
        (best, variance): (&Refined<H>, f64),
        start: &H,
        task: Task,
        out: &mut Estimation,
    ) {
        let acceptance = &task.params.acceptance;
        let Some(other) = consensus.refiner.refine(model, start, Effort::Final) else { return };
        let delta = model.difference(&best.hypothesis, &other.hypothesis);
        if squared_length::<M>(best, &delta) <= DIFFERENT * DIFFERENT * variance {
            return;
        }
        let versus = Versus::new(model, &best.hypothesis, &other.hypothesis, variance);
        // Most inliers are those of both: which pose is right is told by how well it fits.
        let shares = 2 * versus.only_pose < self.inliers.len();
        // What noise could say for the pose were the other one right: that of the rows of both, and mismatches that
        // lie within the threshold of one of them by chance.
        let noise = (versus.noise2 + ROW * ROW * 2.0 * self.mismatches).sqrt();
        let likely = versus.gain < LIKELY.max(SURE * noise);
        let (pose, rival) = (model.pose(&best.hypothesis), model.pose(&other.hypothesis));
        if likely && shares {
            let [translation, rotation] = model.limits(acceptance);
            let shift = (pose.translation.vector - rival.translation.vector).norm();
            let turn = pose.rotation.angle_to(&rival.rotation);
            if shift < MATERIAL * translation && turn < MATERIAL * rotation {
                self.widen(M::UNKNOWNS, &delta);
                return;
            }
        }
        let elsewhere = apart(model, best, &other.hypothesis) > SAME;
        let alone = (versus.only_other as f64 / versus.only_pose.max(1) as f64).min(1.0);
        let support = match (likely, elsewhere && versus.only_other >= M::SAMPLE) {
            (true, _) => 1.0,
            (false, true) => alone,
            (false, false) => return,
        };
        if out.runner_up.is_none() || support > 1.0 - out.margin {
            out.margin = 1.0 - support;
            out.runner_up =
                Some(RunnerUp { target_t_source: rival, score: other.support, inliers: other.inliers });
        }
        if support > acceptance.max_runner_up {
            (out.status, out.reason) = match likely && shares {
                true => model.twofold(support),
                false => (Status::Ambiguous, Reason::RunnerUp(support)),
            };
        }
    }

    /// Another pose near by is as likely: the second moment of both about the one.
    fn widen(&mut self, unknowns: usize, delta: &Delta) {
        let Some(covariance) = &mut self.covariance else { return };
        for a in 0..unknowns {
            for b in 0..unknowns {
                covariance[a][b] += 0.5 * delta[a] * delta[b];
            }
        }
    }

    /// A pose that is not trusted, or none: looks for the reason.
    #[allow(clippy::too_many_arguments)]
    fn explain<M: Model<Hypothesis = H>>(
        &mut self,
        model: &mut M,
        search: &mut impl Search<M>,
        consensus: &mut Consensus<H>,
        best: Option<&Refined<H>>,
        task: Task,
        clock: &mut Clock,
        out: &mut Estimation,
    ) -> Result<(), Stop> {
        if out.status != Status::LowInliers {
            return Ok(());
        }
        let variance = self.variance;
        let doubt =
            best.and_then(|best| model.doubt(&best.hypothesis, &[], variance, &mut consensus.refiner));
        if let Some(fault) = doubt.and_then(|doubt| doubt.fault) {
            (out.status, out.reason) = fault;
            return Ok(());
        }
        if !model.turn_round() {
            return Ok(());
        }
        let goal = Goal { missed: 0.01, samples: BEHIND_SAMPLES, inliers: None, least: 0 };
        search.load(model)?;
        let rows = 0..model.rows() as u32;
        consensus.explore(model, search, rows, goal, &task.params.camera, task.deadline, clock)?;
        if let Some(mut turned) = self.finish(model, consensus) {
            let mut seen = Estimation::default();
            let (status, reason) = self.examine(model, &mut turned, consensus, task, &mut seen);
            if !matches!(reason, Reason::Chance(_) | Reason::Inliers { .. }) {
                let _ = status;
                (out.status, out.reason) = (Status::Degenerate, Reason::Behind(seen.inliers));
            }
        }
        model.turn_round();
        Ok(())
    }
}

/// Candidates that could come to have a share of a support.
fn strong<H: Copy>(candidates: &[Refined<H>], share: f64) -> impl Iterator<Item = H> + use<'_, H> {
    // Refined to the end, one may have twice as much.
    candidates.iter().filter(move |other| other.support > 0.5 * share).map(|other| other.hypothesis)
}

/// How large standard deviations are against those that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weak {
    No,
    Little,
    Much,
}

fn weak(deviations: [f64; 2], limits: [f64; 2]) -> Weak {
    let within = |share: f64| deviations.iter().zip(limits).all(|(v, limit)| *v <= share * limit);
    match (within(WEAK), within(1.0)) {
        (true, _) => Weak::No,
        (_, true) => Weak::Little,
        _ => Weak::Much,
    }
}

impl Versus {
    fn new<M: Model>(model: &M, pose: &M::Hypothesis, other: &M::Hypothesis, variance: f64) -> Self {
        let mut v = Self::default();
        let (mut both, mut sum, mut square) = (0.0, 0.0, 0.0);
        for i in 0..model.rows() {
            let (a, b) = (model.residual2(pose, i).min(1.0), model.residual2(other, i).min(1.0));
            let better = ((b - a) / variance).clamp(-ROW, ROW);
            v.gain += better;
            match (a < 1.0, b < 1.0) {
                (true, true) => (both, sum, square) = (both + 1.0, sum + better, square + better * better),
                (true, false) => v.only_pose += 1,
                (false, true) => v.only_other += 1,
                (false, false) => (),
            }
        }
        v.noise2 = (square - sum * sum / f64::max(both, 1.0)).min(MOST_NOISE * both);
        v
    }
}

/// Base-10 logarithm of the number of ways to choose `k` of `n`.
fn log10_choose(n: usize, k: usize) -> f64 {
    (0..k).map(|i| libm::log10(n.saturating_sub(i).max(1) as f64 / (i + 1) as f64)).sum()
}
