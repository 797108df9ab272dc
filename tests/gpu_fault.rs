//! A GPU that really fails: a kernel that writes where there is no memory spoils the context of the
//! backend. Skipped where there is no CUDA device.
#![cfg(feature = "cuda")]

mod common;

use common::problems::*;
use cudarc::driver::{result, sys};
use flashreg::gpu::device;
use flashreg::params::{Params, Value};
use flashreg::registration::{Problem, Reason, Registrar, Registration};
use flashreg::status::Status;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Writes to address 16.
const WRITES_NOWHERE: &std::ffi::CStr = c"
.version 6.4
.target sm_75
.address_size 64
.visible .entry writes_nowhere() {
  .reg .b64 %place;
  .reg .b32 %value;
  mov.u64 %place, 16;
  mov.u32 %value, 1;
  st.global.u32 [%place], %value;
  ret;
}
";

/// All backends of a process share the context that a test spoils: one test at a time.
fn device_alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    if device::probe().first_device().is_none() {
        println!("skipped: no CUDA device");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Spoils the context: from now on every call of CUDA fails in it.
fn spoil() {
    // SAFETY: calls of the driver with what it returned itself; the kernel has no arguments. The
    // context is let go again, so that whoever has it can end it.
    let error = unsafe {
        let device = result::device::get(0).expect("a device");
        let context = result::primary_ctx::retain(device).expect("its context");
        result::ctx::set_current(context).expect("current");
        let module = result::module::load_data(WRITES_NOWHERE.as_ptr().cast()).expect("a module");
        let kernel = result::module::get_function(module, c"writes_nowhere".into()).expect("a kernel");
        let one = (1, 1, 1);
        result::launch_kernel(kernel, one, one, 0, std::ptr::null_mut(), &mut []).expect("launched");
        let error = result::ctx::synchronize().expect_err("nothing lies at address 16");
        result::primary_ctx::release(device).expect("let go");
        error
    };
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

fn params(on_fault: &str) -> Params {
    let params = with(preset(false), "backend.kind", Value::Text("cuda".into()));
    with(params, "backend.on_fault", Value::Text(on_fault.into()))
}

fn registrar(params: &Params) -> Registrar {
    Registrar::new(params).unwrap_or_else(|e| panic!("{e}"))
}

fn some_problem(seed: u64) -> Problem {
    let mut rng = random(seed);
    let pose = random_pose(&mut rng, 10.0);
    problem(&planted(&mut rng, 1500, 200, ROOM, 0.004, &pose))
}

fn assert_fault(r: &Registration) {
    let code = sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as i32;
    assert_eq!((r.status, r.reason, r.backend), (Status::GpuFault, Reason::GpuFault(code), "cuda"));
    assert_eq!((r.target_t_source, r.inliers), (None, 0));
    assert!(!r.inlier_mask.contains(&true));
}

fn assert_good(r: &Registration, backend: &str, digits: &str) {
    assert_eq!((r.status, r.backend), (Status::Ok, backend), "{}", r.reason);
    assert_eq!(every_digit(r), digits);
}

#[test]
fn a_fault_costs_a_frame_and_the_second_one_brings_the_cpu() {
    let Some(_alone) = device_alone() else { return };
    let (params, problem) = (params("cpu"), some_problem(1));
    let mut registrar = registrar(&params);
    let digits = every_digit(registrar.register(&problem, &params));
    assert_good(registrar.register(&problem, &params), "cuda", &digits);
    for (faults, next) in [(1, "cuda"), (2, "cpu")] {
        spoil();
        assert_fault(registrar.register(&problem, &params));
        println!("{}", registrar.why());
        assert_eq!((registrar.faults(), registrar.backend()), (faults, next), "{}", registrar.why());
        for _ in 0..3 {
            assert_good(registrar.register(&problem, &params), next, &digits);
        }
    }
    assert_eq!(registrar.lost(), None);
}

#[test]
fn with_exit_the_second_fault_loses_the_gpu_for_good() {
    let Some(_alone) = device_alone() else { return };
    let (params, problem) = (params("exit"), some_problem(2));
    let mut registrar = registrar(&params);
    let digits = every_digit(registrar.register(&problem, &params));
    spoil();
    assert_fault(registrar.register(&problem, &params));
    assert_eq!(registrar.lost(), None);
    assert_good(registrar.register(&problem, &params), "cuda", &digits);
    spoil();
    assert_fault(registrar.register(&problem, &params));
    let why = registrar.lost().unwrap_or_default();
    assert!(why.contains("failed 2 times") && why.contains("ILLEGAL_ADDRESS"), "{why}");
    let r = registrar.register(&problem, &params);
    assert_eq!((r.status, r.target_t_source), (Status::GpuFault, None));
    assert_eq!(registrar.faults(), 2);
}

#[test]
fn a_batch_under_a_fault_has_no_pose_and_the_next_one_has_all() {
    let Some(_alone) = device_alone() else { return };
    let (params, problems) = (params("cpu"), (10..30).map(some_problem).collect::<Vec<_>>());
    let mut registrar = registrar(&params);
    let digits: Vec<_> = registrar.register_batch(&problems, &params).iter().map(every_digit).collect();
    spoil();
    registrar.register_batch(&problems, &params).iter().for_each(assert_fault);
    assert_eq!((registrar.faults(), registrar.backend()), (1, "cuda"), "{}", registrar.why());
    let again = registrar.register_batch(&problems, &params);
    assert_eq!(again.len(), digits.len());
    again.iter().zip(&digits).for_each(|(r, digits)| assert_good(r, "cuda", digits));
}
