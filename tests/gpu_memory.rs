//! Memory of the device: how much there is of it, and that it does not depend on the density of the
//! graph. Skipped where there is no CUDA device.
#![cfg(feature = "cuda")]

mod common;

use common::problems::*;
use flashreg::gpu::device;
use flashreg::params::Value;
use flashreg::registration::Registrar;

#[test]
fn a_complete_graph_of_ten_thousand_fits_in_64_megabytes() {
    let n = 10_000;
    let mut params = with(preset(false), "registration.max_correspondences", Value::Int(n as i64));
    let r = &mut params.registration;
    (r.pivots, r.triples_per_pivot) = (1000, 2);
    (r.tau, r.min_length) = (1.0, 0.0);
    let mut rng = random(17);
    let pose = random_pose(&mut rng, 3.0);
    let problem = problem(&planted(&mut rng, n, n, [50.0, 50.0, 50.0], 0.0, &pose));
    let mut cpu = Registrar::new(&params).expect("the CPU");
    let expected = cpu.register(&problem, &params);
    assert_eq!(expected.edges, (n * (n - 1) / 2) as u64);
    assert!(expected.target_t_source.is_some() && expected.inliers == n, "{}", expected.reason);
    if device::probe().first_device().is_none() {
        println!("skipped: no CUDA device");
        return;
    }

    let params = with(params, "backend.kind", Value::Text("cuda".into()));
    let mut cuda = Registrar::new(&params).unwrap_or_else(|e| panic!("{e}"));
    let before = cuda.memory().expect("CUDA tells its memory");
    println!("N = {n}, K = 1000, T = 2: {before}");
    assert!((1_000_000..64_000_000).contains(&before.device), "{before:?}");
    let found = cuda.register(&problem, &params);
    assert_eq!(every_digit(found), every_digit(expected));
    assert_eq!(cuda.faults(), 0);
    let after = cuda.memory().expect("CUDA tells its memory");
    assert_eq!((after.device, after.pinned), (before.device, before.pinned));
}
