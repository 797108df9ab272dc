//! The self-test at start: samples of small problems must give the same bits on the GPU as on the CPU.

use super::absolute::Absolute;
use super::model::{Model, Scored, Search};
use super::relative::Relative;
use super::search::CpuSearch;
use super::{AbsoluteProblem, AbsoluteRow, RelativeProblem, RelativeRow, Sight};
use crate::geometry::{Point, Pose, Rigid, Vector};
use crate::gpu::GpuError;
use crate::registration::lanes::{Deadline, Stop};
use nalgebra::UnitQuaternion;
use std::sync::Arc;
use std::time::Instant;

/// Rows of the problems, those of them that agree, samples, and hypotheses that are kept.
const ROWS: usize = 300;
const AGREE: usize = 120;
const SAMPLES: usize = 500;
const KEEP: usize = 16;
/// Threshold of an inlier, rad.
const THRESHOLD: f64 = 0.008;

/// Searches fixed problems on `gpu` and on the CPU and compares all that comes back.
pub(super) fn self_test(gpu: &mut (impl Search<Absolute> + Search<Relative>)) -> Result<(), GpuError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let pool = pool.map_err(|e| GpuError::SelfTest(e.to_string()))?;
    let mut cpu = CpuSearch::new(Arc::new(pool));
    let mut next = numbers();
    let (mut absolute, mut relative) = (Absolute::with_capacity(ROWS), Relative::with_capacity(ROWS));
    absolute.load(&absolute_problem(&mut next));
    relative.load(&relative_problem(&mut next));
    compare(&absolute, gpu, &mut cpu, &mut next)?;
    compare(&relative, gpu, &mut cpu, &mut next)
}

fn compare<M: Model<Hypothesis = Pose>>(
    model: &M,
    gpu: &mut impl Search<M>,
    cpu: &mut CpuSearch<Pose>,
    next: &mut impl FnMut() -> f64,
) -> Result<(), GpuError> {
    let samples: Vec<u32> = (0..SAMPLES * M::SAMPLE).map(|_| (next() * model.rows() as f64) as u32).collect();
    let deadline = Deadline::after_ms(Instant::now(), 0.0);
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    let in_time = |stop: Stop| match stop {
        Stop::Fault(error) => error,
        Stop::OverBudget => GpuError::SelfTest("no end".to_owned()),
    };
    let on_cpu = cpu.search(model, &samples, KEEP, &mut expected, deadline).map_err(in_time)?;
    gpu.load(model).map_err(in_time)?;
    let on_gpu = gpu.search(model, &samples, KEEP, &mut found, deadline).map_err(in_time)?;
    let bits = |all: &[Scored<Pose>]| all.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>();
    if on_cpu != on_gpu || bits(&expected) != bits(&found) {
        let what = if M::SAMPLE == 3 { "three points" } else { "five points" };
        return Err(GpuError::SelfTest(format!("with samples of {what}, CPU and GPU differ")));
    }
    Ok(())
}

/// Numbers in [0, 1) of a linear congruential generator (Knuth's MMIX), upper bits.
fn numbers() -> impl FnMut() -> f64 {
    let mut state = 11u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A point before the camera, and where the other frame has it.
fn point(next: &mut impl FnMut() -> f64, agrees: bool) -> (Vector, Point) {
    let turn = UnitQuaternion::from_scaled_axis(Vector::new(0.1, -0.2, 0.3));
    let pose = Rigid::from_parts(Vector::new(0.5, -0.2, 0.3).into(), turn);
    let mut seen = || Vector::new(next() * 6.0 - 3.0, next() * 4.0 - 2.0, next() * 5.0 + 3.0);
    let (first, other) = (seen(), seen());
    let noise = Vector::new(next(), next(), next()) * 0.01;
    (first + noise, pose * Point::from(if agrees { first } else { other }))
}

fn absolute_problem(next: &mut impl FnMut() -> f64) -> AbsoluteProblem {
    let mut problem = AbsoluteProblem::with_capacity(ROWS);
    for i in 0..ROWS {
        let (seen, point) = point(next, i < AGREE);
        if let Some(sight) = Sight::of_bearing(&seen, THRESHOLD) {
            problem.push(AbsoluteRow { sight, point, weight: 1.0, id: None });
        }
    }
    problem
}

fn relative_problem(next: &mut impl FnMut() -> f64) -> RelativeProblem {
    let mut problem = RelativeProblem::with_capacity(ROWS);
    for i in 0..ROWS {
        let (seen, other) = point(next, i < AGREE);
        let sights = (Sight::of_bearing(&seen, THRESHOLD), Sight::of_bearing(&other.coords, THRESHOLD));
        if let (Some(sight), Some(reference)) = sights {
            problem.push(RelativeRow { sight, reference, weight: 1.0, id: None });
        }
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CPU, with one thing changed in its answer, or not.
    struct Other {
        cpu: CpuSearch<Pose>,
        wrong: usize,
    }

    impl<M: Model<Hypothesis = Pose>> Search<M> for Other {
        fn name(&self) -> &'static str {
            "cuda"
        }
        fn load(&mut self, _: &M) -> Result<(), Stop> {
            Ok(())
        }
        fn search(
            &mut self,
            model: &M,
            samples: &[u32],
            keep: usize,
            best: &mut Vec<Scored<Pose>>,
            deadline: Deadline,
        ) -> Result<u64, Stop> {
            let n = self.cpu.search(model, samples, keep, best, deadline)?;
            assert!(n > 200 && best.len() == KEEP && best[0].score > 1 << 20, "{n}, {best:?}");
            if self.wrong == M::SAMPLE {
                best[KEEP - 1].hypothesis.translation.x *= 1.0 + f64::EPSILON;
            }
            Ok(n)
        }
    }

    #[test]
    fn the_problems_have_poses_and_a_backend_that_differs_fails() {
        for wrong in [0, 3, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
            let tested = self_test(&mut Other { cpu: CpuSearch::new(Arc::new(pool)), wrong });
            assert_eq!(tested.is_ok(), wrong == 0, "{tested:?}");
        }
    }
}
