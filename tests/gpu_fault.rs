//! A GPU that really fails: a kernel that writes where there is no memory spoils the context of the
//! backend. Skipped where there is no CUDA device.
#![cfg(feature = "cuda")]

mod common;

use common::problems::*;
use cudarc::driver::{result, sys};
use flashreg::estimation::{self, AbsoluteProblem, AbsoluteRow, Estimation, Estimator, Sight, StageTimes};
use flashreg::geometry::{Point, Vector};
use flashreg::gpu::device;
use flashreg::params::{Params, Value};
use flashreg::registration::{Problem, Reason, Registrar, Registration};
use flashreg::status::Status;
use std::process::Command;

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

/// What takes over after the first fault: CUDA again if the driver lets a process make another
/// context after one was spoilt; many do not, and then the CPU.
fn after_first_fault(registrar: &Registrar) -> &'static str {
    let next = registrar.backend();
    println!("after a fault, {next}: {}", registrar.why());
    let why = if next == "cuda" { "made anew after" } else { "and then: CUDA error" };
    assert!(registrar.why().contains(why), "{}", registrar.why());
    next
}

fn assert_good(r: &Registration, backend: &str, digits: &str) {
    assert_eq!((r.status, r.backend), (Status::Ok, backend), "{}", r.reason);
    assert_eq!(every_digit(r), digits);
}

#[test]
#[ignore = "spoils its process: run by each_fault_has_a_process_of_its_own"]
fn a_fault_costs_a_frame_and_the_second_one_brings_the_cpu() {
    let (params, problem) = (params("cpu"), some_problem(1));
    let mut registrar = registrar(&params);
    let digits = every_digit(registrar.register(&problem, &params));
    assert_good(registrar.register(&problem, &params), "cuda", &digits);
    for faults in 1.. {
        spoil();
        assert_fault(registrar.register(&problem, &params));
        assert_eq!(registrar.faults(), faults);
        let next = if faults == 1 { after_first_fault(&registrar) } else { "cpu" };
        assert_eq!(registrar.backend(), next, "{}", registrar.why());
        for _ in 0..3 {
            assert_good(registrar.register(&problem, &params), next, &digits);
        }
        if next == "cpu" {
            break;
        }
    }
    assert_eq!(registrar.lost(), None);
}

#[test]
#[ignore = "spoils its process: run by each_fault_has_a_process_of_its_own"]
fn with_exit_a_gpu_that_does_not_come_back_is_lost_for_good() {
    let (params, problem) = (params("exit"), some_problem(2));
    let mut registrar = registrar(&params);
    let digits = every_digit(registrar.register(&problem, &params));
    spoil();
    assert_fault(registrar.register(&problem, &params));
    if registrar.lost().is_none() {
        assert_good(registrar.register(&problem, &params), "cuda", &digits);
        spoil();
        assert_fault(registrar.register(&problem, &params));
    }
    let why = registrar.lost().unwrap_or_default();
    println!("lost: {why}");
    assert!(why.contains("ILLEGAL_ADDRESS"), "{why}");
    let faults = registrar.faults();
    let r = registrar.register(&problem, &params);
    assert_eq!((r.status, r.target_t_source), (Status::GpuFault, None));
    assert_eq!(registrar.faults(), faults);
}

#[test]
#[ignore = "spoils its process: run by each_fault_has_a_process_of_its_own"]
fn a_batch_under_a_fault_has_no_pose_and_the_next_one_has_all() {
    let (params, problems) = (params("cpu"), (10..30).map(some_problem).collect::<Vec<_>>());
    let mut registrar = registrar(&params);
    let digits: Vec<_> = registrar.register_batch(&problems, &params).iter().map(every_digit).collect();
    spoil();
    registrar.register_batch(&problems, &params).iter().for_each(assert_fault);
    assert_eq!(registrar.faults(), 1);
    let next = after_first_fault(&registrar);
    let again = registrar.register_batch(&problems, &params);
    assert_eq!(again.len(), digits.len());
    again.iter().zip(&digits).for_each(|(r, digits)| assert_good(r, next, digits));
}

/// Points before a camera, half of them right.
fn camera_problem() -> AbsoluteProblem {
    let mut rng = random(4);
    let pose = random_pose(&mut rng, 3.0);
    let mut problem = AbsoluteProblem::with_capacity(400);
    for i in 0..400 {
        let [seen, other] = [(); 2].map(|()| noise(&mut rng, 2.0) + Vector::z() * 5.0);
        let point = pose * Point::from(if i % 2 == 0 { seen } else { other });
        let sight = Sight::of_bearing(&seen, 0.005).expect("before the camera");
        assert!(problem.push(AbsoluteRow { sight, point, weight: 1.0, id: None }));
    }
    problem
}

#[test]
#[ignore = "spoils its process: run by each_fault_has_a_process_of_its_own"]
fn an_estimation_under_a_fault_has_no_pose_and_the_next_one_has_all() {
    let (params, problem) = (params("cpu"), camera_problem());
    let mut estimator = Estimator::new(&params).unwrap_or_else(|e| panic!("{e}"));
    let digits = |result: &Estimation| {
        format!("{:?}", Estimation { stages: StageTimes::default(), backend: "", ..result.clone() })
    };
    let good = estimator.absolute(&problem, &params).clone();
    assert_eq!((good.status, good.backend), (Status::Ok, "cuda"), "{}", good.reason);
    for faults in 1.. {
        spoil();
        let r = estimator.absolute(&problem, &params);
        let code = sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as i32;
        assert_eq!((r.status, r.reason), (Status::GpuFault, estimation::Reason::GpuFault(code)));
        assert_eq!((r.target_t_source, r.inliers, r.inlier_mask.len()), (None, 0, problem.rows().len()));
        assert_eq!((estimator.faults(), estimator.lost()), (faults, None));
        let next = estimator.backend();
        println!("after a fault, {next}: {}", estimator.why());
        assert!(faults == 1 || next == "cpu");
        let again = estimator.absolute(&problem, &params);
        assert_eq!((digits(again), again.backend), (digits(&good), next));
        if next == "cpu" {
            break;
        }
    }
}

#[test]
fn each_fault_has_a_process_of_its_own() {
    if device::probe().first_device().is_none() {
        println!("skipped: no CUDA device");
        return;
    }
    for name in [
        "a_fault_costs_a_frame_and_the_second_one_brings_the_cpu",
        "with_exit_a_gpu_that_does_not_come_back_is_lost_for_good",
        "a_batch_under_a_fault_has_no_pose_and_the_next_one_has_all",
        "an_estimation_under_a_fault_has_no_pose_and_the_next_one_has_all",
    ] {
        let this = std::env::current_exe().expect("a path");
        let done = Command::new(this).args([name, "--exact", "--ignored", "--nocapture"]).output();
        let done = done.expect("started");
        let said = String::from_utf8_lossy(&done.stdout);
        println!("{said}");
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(said.contains("1 passed"), "{name} was not run");
    }
}
