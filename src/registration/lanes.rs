//! Work shared out to threads without allocation: each thread has a lane with buffers of its own
//! and takes the next task until none is left.

use crate::gpu::GpuError;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// A moment after which work stops.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// `budget_ms` from now; zero sets no limit.
    pub fn after_ms(start: Instant, budget_ms: f64) -> Self {
        let limited = budget_ms.is_finite() && budget_ms > 0.0;
        Self(limited.then(|| start + std::time::Duration::from_secs_f64(budget_ms * 1e-3)))
    }

    /// The moment, if there is one.
    pub fn at(&self) -> Option<Instant> {
        self.0
    }

    /// The moment has passed.
    pub fn passed(&self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// The time budget was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget;

/// Why a registration or an estimation stops before its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    /// The time budget was spent.
    OverBudget,
    /// The GPU failed.
    Fault(GpuError),
}

impl From<OverBudget> for Stop {
    fn from(_: OverBudget) -> Self {
        Self::OverBudget
    }
}

impl From<GpuError> for Stop {
    fn from(error: GpuError) -> Self {
        Self::Fault(error)
    }
}

/// The threads that compute, one lane each.
pub struct Lanes<L> {
    pool: Arc<rayon::ThreadPool>,
    lanes: Vec<L>,
}

impl<L: Send> Lanes<L> {
    /// `threads` threads (0: one per core), each with a lane made by `lane`.
    pub fn new(threads: usize, lane: impl FnMut() -> L) -> Result<Self, rayon::ThreadPoolBuildError> {
        let name = |i| format!("flashreg-{i}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build()?;
        Ok(Self::on(Arc::new(pool), lane))
    }

    /// The threads of a pool, each with a lane made by `lane`.
    pub fn on(pool: Arc<rayon::ThreadPool>, mut lane: impl FnMut() -> L) -> Self {
        let lanes = (0..pool.current_num_threads()).map(|_| lane()).collect();
        Self { pool, lanes }
    }

    /// The threads. Work that calls [`Lanes::run`] many times is best installed in them as a whole:
    /// handing a job to the pool from outside is what costs.
    pub fn pool(&self) -> Arc<rayon::ThreadPool> {
        self.pool.clone()
    }

    /// The lanes, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.lanes.iter_mut()
    }

    /// Runs tasks `0..tasks`; any lane may get any task.
    pub fn run(
        &mut self,
        tasks: usize,
        deadline: Deadline,
        work: impl Fn(&mut L, usize) + Sync,
    ) -> Result<(), OverBudget> {
        let next = AtomicUsize::new(0);
        let late = AtomicBool::new(false);
        self.pool.install(|| {
            self.lanes.par_iter_mut().with_max_len(1).for_each(|lane| loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks || late.load(Ordering::Relaxed) {
                    break;
                }
                if deadline.passed() {
                    late.store(true, Ordering::Relaxed);
                    break;
                }
                work(lane, task);
            });
        });
        match late.into_inner() {
            true => Err(OverBudget),
            false => Ok(()),
        }
    }
}

/// A slice of which several tasks write disjoint parts.
pub struct Shared<'a, T> {
    data: *mut T,
    len: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: the slice is only reached through `part`, whose callers promise disjoint ranges.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Shares a slice for its lifetime.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { data: slice.as_mut_ptr(), len: slice.len(), lifetime: std::marker::PhantomData }
    }

    /// The elements `start..start + len`.
    ///
    /// # Safety
    /// No two parts that live at the same time may overlap.
    ///
    /// # Panics
    /// If the range is not within the slice.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len), "part outside the slice");
        // SAFETY: within the slice by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }

    /// The element at `i` becomes `value`.
    ///
    /// # Safety
    /// No other thread reads or writes the element at the same time.
    ///
    /// # Panics
    /// If the element is not within the slice.
    pub unsafe fn write(&self, i: usize, value: T) {
        assert!(i < self.len, "element outside the slice");
        // SAFETY: within the slice by the assertion, not shared by the caller's promise.
        unsafe { self.data.add(i).write(value) };
    }
}
