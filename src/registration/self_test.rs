//! The self-test at start: a small problem must give the same bits on the GPU as on the CPU.

use super::cpu::Cpu;
use super::registrar::Backend;
use super::{Correspondence, Problem, Registration};
use crate::geometry::{Point, Rigid, Vector};
use crate::gpu::GpuError;
use crate::params::{Metric, Params};
use nalgebra::UnitQuaternion;

/// Correspondences of the problem, and those of them that agree.
const ROWS: usize = 500;
const AGREE: usize = 90;

/// Registers fixed problems on `gpu` and on the CPU and compares all that they say.
pub fn self_test(gpu: &mut dyn Backend, params: &Params) -> Result<(), GpuError> {
    let mut params = params.clone();
    let r = &mut params.registration;
    let rows = ROWS.min(r.max_correspondences.max(0) as usize);
    r.max_correspondences = rows as i64;
    r.time_budget_ms = 0.0;
    (r.tau, r.min_length, r.inlier_threshold) = (0.02, 0.15, 0.1);
    (r.pivots, r.triples_per_pivot) = (r.pivots.min(200), 2);
    params.backend.threads = 1;
    let fault = |why: String| GpuError::SelfTest(why);
    let mut cpu = Cpu::start(&params).map_err(|e| fault(e.to_string()))?;
    let [mut expected, mut found] = [Registration::default(), Registration::default()];
    for metric in [Metric::Inliers, Metric::Linear, Metric::Quadratic] {
        params.registration.metric = metric;
        let problem = problem(rows, metric == Metric::Linear);
        cpu.register(&problem, &params, &mut expected)?;
        gpu.register(&problem, &params, &mut found)?;
        let (expected, found) = (comparable(&expected), comparable(&found));
        if expected != found {
            return Err(fault(format!("with metric {}, CPU and GPU differ", metric.word())));
        }
    }
    Ok(())
}

/// Everything but the times and the name of the backend, every digit of every number.
fn comparable(result: &Registration) -> String {
    let mut result = result.clone();
    result.stages = Default::default();
    result.backend = "";
    format!("{result:?}")
}

/// The same problem every time.
fn problem(rows: usize, upright: bool) -> Problem {
    // Numbers of a linear congruential generator (Knuth's MMIX), upper bits.
    let mut state = 7u64;
    let mut next = |size: f64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64 * size
    };
    let turn = UnitQuaternion::from_scaled_axis(Vector::new(0.0, 0.0, 0.8));
    let pose = Rigid::from_parts(Vector::new(1.0, -2.0, 0.5).into(), turn);
    let mut problem = Problem::with_capacity(rows);
    for i in 0..rows {
        let mut point = || Point::new(next(6.0), next(5.0), next(3.0));
        let (source, other, noise) = (point(), point(), point().coords * 0.002);
        let target = if i < AGREE { pose * source + noise } else { other };
        let weight = 0.5 + next(0.5) as f32;
        let source_id = (i % 7 == 0).then_some((i / 14) as u32);
        problem.push(Correspondence { weight, source_id, ..Correspondence::new(source, target) });
    }
    if upright {
        problem.set_up(Vector::z(), Vector::z());
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    /// The CPU, with one thing changed in its answer.
    struct Wrong(Cpu);

    impl Backend for Wrong {
        fn name(&self) -> &'static str {
            "cuda"
        }
        fn threads(&self) -> usize {
            1
        }
        fn begin(&mut self, _: &Problem, _: &Params) {}
        fn finish(&mut self, p: &Problem, params: &Params, out: &mut Registration) -> Result<(), GpuError> {
            self.0.register(p, params, out)?;
            out.triples += 1;
            Ok(())
        }
    }

    #[test]
    fn the_problem_has_a_pose_and_a_backend_that_differs_fails() {
        let params = Params::default();
        let mut cpu = Cpu::start(&params).expect("threads");
        assert_eq!(self_test(&mut cpu, &params), Ok(()));
        let mut result = Registration::default();
        for upright in [false, true] {
            let mut params = params.clone();
            params.registration.tau = 0.02;
            cpu.register(&problem(ROWS, upright), &params, &mut result).expect("the CPU has no faults");
            assert_eq!(result.status, Status::Ok, "{}", result.reason);
            assert!(result.inliers >= AGREE && result.triples > 100);
        }
        assert!(matches!(self_test(&mut Wrong(cpu), &params), Err(GpuError::SelfTest(_))));
    }

    #[test]
    fn small_memory_is_enough() {
        let mut params = Params::default();
        params.registration.max_correspondences = 3;
        let mut cpu = Cpu::start(&params).expect("threads");
        assert_eq!(self_test(&mut cpu, &params), Ok(()));
    }
}
