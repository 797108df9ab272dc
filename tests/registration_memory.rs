//! Memory of a registration: what one allocates after warm-up, and how much is held at most.
//! One test only: the counts are of the whole process.

mod common;

use common::problems::*;
use flashreg::geometry::Point;
use flashreg::params::Value;
use flashreg::registration::{Correspondence, Registrar};
use flashreg::status::Status;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counts allocations and bytes held.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size() as u64, Relaxed);
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations and bytes of `frames` registrations with a status after warm-up.
fn steady(registrar: &mut Registrar, rows: &[Correspondence], status: Status, frames: usize) -> (u64, u64) {
    let (problem, params) = (problem(rows), preset(false));
    for _ in 0..3 {
        assert_eq!(registrar.register(&problem, &params).status, status);
    }
    let before = (ALLOCATIONS.load(Relaxed), BYTES.load(Relaxed));
    for _ in 0..frames {
        registrar.register(&problem, &params);
    }
    (ALLOCATIONS.load(Relaxed) - before.0, BYTES.load(Relaxed) - before.1)
}

#[test]
fn a_warm_registration_allocates_nothing_and_a_large_one_fits() {
    let mut rng = random(1);
    let truth = random_pose(&mut rng, 5.0);

    println!("allocations of 126 registrations after warm-up");
    let mut registrar = Registrar::new(&preset(false)).expect("the CPU");
    let mut counts = Vec::new();
    for n in [500, 1000, 2000, 4000, 8000] {
        let rows = planted(&mut rng, n, n / 10, ROOM, 0.02, &truth);
        let (count, bytes) = steady(&mut registrar, &rows, Status::Ok, 126);
        println!("  N = {n:5}: {count} allocations, {bytes} bytes");
        counts.push((count, bytes));
    }
    // Rows of which no two agree: why there is no pose is found without memory too.
    let mut rows = planted(&mut rng, 500, 0, ROOM, 0.02, &truth);
    for (i, row) in rows.iter_mut().enumerate() {
        let i = i as f64;
        row.target = Point::new(100.0 * i * i, 10.0 * i * i * i, 0.0);
    }
    counts.push(steady(&mut registrar, &rows, Status::LowInliers, 126));
    // What is left is the queue of the thread pool: one block of slots every 63 jobs handed in,
    // and a registration is one job.
    assert!(counts.iter().all(|(count, _)| *count <= 3), "more than the queue's blocks: {counts:?}");

    println!("peak heap of a registration, with the registrar made for it");
    for (n, dense) in [
        (1000, false),
        (2000, false),
        (4000, false),
        (8000, false),
        (10_000, false),
        (10_000, true),
        (16_384, false),
    ] {
        let rows = planted(
            &mut rng,
            n,
            if dense { n } else { n / 20 },
            ROOM,
            if dense { 0.0 } else { 0.02 },
            &truth,
        );
        let mut params = with(preset(false), "registration.max_correspondences", Value::Int(n as i64));
        if dense {
            // Every pair is joined: exact correspondences, no least length.
            params = with(params, "registration.min_length", Value::Float(0.0));
        }
        let problem = problem(&rows);
        let before = HELD.load(Relaxed);
        PEAK.store(before, Relaxed);
        let mut registrar = Registrar::new(&params).expect("the CPU");
        let r = registrar.register(&problem, &params);
        assert_eq!(r.status, Status::Ok, "{}", r.reason);
        let density = r.edges as f64 / (n as f64 * (n as f64 - 1.0) / 2.0);
        let peak = (PEAK.load(Relaxed) - before) as f64 / 1e6;
        println!(
            "  N = {n:5}, density {:5.1} %: {peak:5.1} MB, {:.0} ms",
            density * 100.0,
            r.stages.total() / 1e3
        );
        assert!(n > 10_000 || peak < 64.0, "N = {n}: {peak} MB");
        assert!(!dense || density == 1.0, "not dense: {density}");
    }
}
