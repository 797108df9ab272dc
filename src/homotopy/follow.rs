//! Tracks shared out to threads of the CPU; what comes to the end is polished and judged.

use super::pack::WIDTH;
use super::program::{Compiled, Path};
#[cfg(feature = "cuda")]
use super::roots::Root;
use super::roots::{Outcome, Roots};
use super::track::{Assignment, End, Polished, Settings, Tracker};
use crate::status::TrackStatus;
use nalgebra::Complex;
#[cfg(feature = "cuda")]
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Follows `count` tracks on all threads and polishes what comes to the end; in the order of the jobs.
pub fn follow<'p>(
    compiled: &Compiled,
    settings: Settings,
    count: usize,
    job: impl Fn(usize) -> (&'p Path, &'p [Complex<f64>]) + Sync,
    deadline: Option<Instant>,
) -> Roots {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut tracker = Tracker::new(compiled, settings);
        let mut ends: Vec<End> = Vec::new();
        let take = || {
            let id = next.fetch_add(1, Ordering::Relaxed);
            (id < count).then(|| {
                let (path, start) = job(id);
                Assignment { id, path, start }
            })
        };
        tracker.run(deadline, take, |end| ends.push(end));
        finish(&mut tracker, &job, ends)
    };
    let threads = if count <= WIDTH { 1 } else { rayon::current_num_threads().min(count.div_ceil(WIDTH)) };
    // Every job is taken by a worker, and a worker ends all that it takes.
    let mut all = Roots::lost(compiled.unknowns, count, TrackStatus::Budget);
    let mut place =
        |list: Vec<Ended>| list.into_iter().for_each(|(id, outcome, point)| all.put(id, outcome, &point));
    if threads == 1 {
        place(worker());
    } else {
        rayon::broadcast(|_| worker()).into_iter().for_each(place);
    }
    all
}

/// Polishes what came to the end in single precision.
#[cfg(feature = "cuda")]
pub fn polish<'p>(
    compiled: &Compiled,
    settings: Settings,
    roots: &mut Roots,
    job: impl Fn(usize) -> (&'p Path, &'p [Complex<f64>]) + Sync,
) {
    /// Roots that are worth asking another thread.
    const GROUP: usize = 8 * WIDTH;
    // No step is so short there that a multiple root must be feared because of it.
    let end = |(id, root): (usize, Root)| {
        let point = root.point.to_vec();
        End { id, status: TrackStatus::Ok, point, steps: 0, t: 1.0, step: f64::INFINITY }
    };
    let ends: Vec<End> = roots.iter().enumerate().filter(|(_, root)| root.ok()).map(end).collect();
    let finish = |ends: &[End]| finish(&mut Tracker::new(compiled, settings), &job, ends.to_vec());
    let done: Vec<Vec<Ended>> = match ends.len() <= GROUP {
        true => vec![finish(&ends)],
        false => ends.par_chunks(GROUP).map(finish).collect(),
    };
    done.into_iter().flatten().for_each(|(id, outcome, point)| roots.follow_up(id, outcome, &point));
}

/// Number of the job, how it ended, where.
type Ended = (usize, Outcome, Vec<Complex<f64>>);

/// Polishes the tracks that came to the end.
fn finish<'p>(
    tracker: &mut Tracker,
    job: &impl Fn(usize) -> (&'p Path, &'p [Complex<f64>]),
    ends: Vec<End>,
) -> Vec<Ended> {
    let (arrived, lost): (Vec<End>, Vec<End>) = ends.into_iter().partition(|e| e.status == TrackStatus::Ok);
    let mut done: Vec<Ended> =
        lost.into_iter().map(|e| (e.id, Outcome::failed(e.status, e.steps), e.point)).collect();
    for group in arrived.chunks(WIDTH) {
        let points: Vec<_> = group.iter().map(|e| (job(e.id).0, e.point.as_slice())).collect();
        for (end, mut polished) in group.iter().zip(tracker.polish(&points)) {
            let is_regular = tracker.is_regular(job(end.id).0, end, &mut polished);
            let Polished { point, residual, condition, corrections, .. } = polished;
            let status = if is_regular { TrackStatus::Ok } else { TrackStatus::Singular };
            let failed = Outcome { corrections, ..Outcome::failed(status, end.steps) };
            done.push(match is_regular {
                true => (end.id, Outcome { residual, condition, ..failed }, point),
                false => (end.id, failed, end.point.clone()),
            });
        }
    }
    done
}
