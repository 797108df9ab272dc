//! What tracks came to, all of an instance in two arrays.

use super::distinct::Distinct;
use super::system::System;
use crate::status::TrackStatus;
use nalgebra::Complex;

/// What a track came to, besides its point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub status: TrackStatus,
    /// The largest equation relative to the size of its terms; infinite unless ok.
    pub residual: f64,
    /// How much relative errors of the equations may grow in the root; infinite unless ok.
    pub condition: f64,
    /// Steps, all attempts together.
    pub steps: u32,
    /// Of these, how many were in single precision; in double precision there are others if what came of
    /// them was doubtful.
    pub single: u32,
    /// Newton corrections where the CPU polished it; the GPU does not count its own.
    pub corrections: u32,
}

impl Outcome {
    /// No root was found.
    pub fn failed(status: TrackStatus, steps: u32) -> Self {
        let unknown = f64::INFINITY;
        Self { status, residual: unknown, condition: unknown, steps, single: 0, corrections: 0 }
    }

    /// It was followed in single precision and then again in double precision.
    pub fn is_followed_again(&self) -> bool {
        self.single > 0 && self.steps > self.single
    }

    /// The same after what `before` says.
    fn after(self, before: &Self) -> Self {
        Self {
            steps: before.steps.saturating_add(self.steps),
            single: before.single.saturating_add(self.single),
            corrections: before.corrections.saturating_add(self.corrections),
            ..self
        }
    }
}

/// What a track came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Root<'a> {
    /// How it ended.
    pub status: TrackStatus,
    /// The root, if the status is ok; else the last point.
    pub point: &'a [Complex<f64>],
    /// See [`Outcome`].
    pub residual: f64,
    /// See [`Outcome`].
    pub condition: f64,
    /// See [`Outcome`].
    pub steps: u32,
    /// See [`Outcome`].
    pub single: u32,
    /// See [`Outcome`].
    pub corrections: u32,
}

impl Root<'_> {
    /// A regular root was found.
    pub fn ok(&self) -> bool {
        self.status == TrackStatus::Ok
    }
}

/// What tracks came to, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Roots {
    unknowns: usize,
    points: Vec<Complex<f64>>,
    outcomes: Vec<Outcome>,
}

impl Roots {
    /// `points` has `unknowns` numbers for each of `outcomes`.
    pub(super) fn new(unknowns: usize, points: Vec<Complex<f64>>, outcomes: Vec<Outcome>) -> Self {
        debug_assert_eq!(points.len(), unknowns * outcomes.len());
        Self { unknowns, points, outcomes }
    }

    /// `count` tracks that have no point.
    pub(super) fn lost(unknowns: usize, count: usize, status: TrackStatus) -> Self {
        let nan = Complex::new(f64::NAN, f64::NAN);
        Self::new(unknowns, vec![nan; count * unknowns], vec![Outcome::failed(status, 0); count])
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Number `k`.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn at(&self, k: usize) -> Root<'_> {
        let Outcome { status, residual, condition, steps, single, corrections } = self.outcomes[k];
        let point = &self.points[k * self.unknowns..][..self.unknowns];
        Root { status, point, residual, condition, steps, single, corrections }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Root<'_>> {
        (0..self.len()).map(|k| self.at(k))
    }

    /// How all of them ended.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Replaces number `k`; the steps of both count.
    pub(super) fn replace(&mut self, k: usize, by: Root) {
        let Root { status, residual, condition, steps, single, corrections, .. } = by;
        let outcome = Outcome { status, residual, condition, steps, single, corrections };
        self.follow_up(k, outcome, by.point);
    }

    /// Replaces number `k` unless that found a root which `by` did not and which is no multiple one; the
    /// steps of both count.
    pub(super) fn improve(&mut self, k: usize, by: Root) {
        if matches!(by.status, TrackStatus::Ok | TrackStatus::Singular) || !self.at(k).ok() {
            self.replace(k, by);
        } else {
            let Root { single, corrections, .. } = by;
            let lost = Outcome { single, corrections, ..Outcome::failed(by.status, by.steps) };
            let Outcome { steps, single, corrections, .. } = lost.after(&self.outcomes[k]);
            self.outcomes[k] = Outcome { steps, single, corrections, ..self.outcomes[k] };
        }
    }

    /// What came of number `k` after what came of it before.
    pub(super) fn follow_up(&mut self, k: usize, outcome: Outcome, point: &[Complex<f64>]) {
        self.put(k, outcome.after(&self.outcomes[k]), point);
    }

    pub(super) fn put(&mut self, k: usize, outcome: Outcome, point: &[Complex<f64>]) {
        self.outcomes[k] = outcome;
        self.place(k, point);
    }

    /// Number `k` is moved.
    pub(super) fn place(&mut self, k: usize, point: &[Complex<f64>]) {
        self.points[k * self.unknowns..][..self.unknowns].copy_from_slice(point);
    }

    /// All of it was in single precision.
    #[cfg(feature = "cuda")]
    pub(super) fn set_single(&mut self) {
        self.outcomes.iter_mut().for_each(|outcome| outcome.single = outcome.steps);
    }

    /// Number `k` is no root after all.
    pub(super) fn lose(&mut self, k: usize, status: TrackStatus) {
        let Outcome { steps, single, corrections, .. } = self.outcomes[k];
        self.outcomes[k] = Outcome { single, corrections, ..Outcome::failed(status, steps) };
    }

    /// So many tracks after each other, as the roots of an instance.
    pub(super) fn instances(self, count: usize) -> Vec<Solution> {
        let unknowns = self.unknowns;
        if self.len() == count {
            return vec![Solution { roots: self }];
        }
        let points = self.points.chunks(count * unknowns);
        let both = points.zip(self.outcomes.chunks(count));
        both.map(|(p, o)| Solution { roots: Self::new(unknowns, p.to_vec(), o.to_vec()) }).collect()
    }
}

/// The roots of an instance, one for each of the start set, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The roots.
    pub roots: Roots,
}

impl Solution {
    /// How many tracks ended with a status.
    pub fn count(&self, status: TrackStatus) -> usize {
        self.roots.outcomes.iter().filter(|o| o.status == status).count()
    }

    /// The roots that were found.
    pub fn found(&self) -> impl Iterator<Item = Root<'_>> {
        self.roots.iter().filter(Root::ok)
    }

    /// Those of them that are neither the same nor images of each other.
    pub fn distinct(&self, system: &System) -> Distinct {
        let mut distinct = Distinct::new(system);
        self.found().for_each(|root| {
            distinct.insert(root.point);
        });
        distinct
    }

    /// Steps of all tracks together.
    pub fn steps(&self) -> f64 {
        self.roots.iter().map(|root| f64::from(root.steps)).sum()
    }

    /// Steps of the longest track.
    pub fn longest(&self) -> u32 {
        self.roots.iter().map(|root| root.steps).max().unwrap_or(0)
    }
}
