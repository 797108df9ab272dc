use super::*;
use crate::localizer::{Input, Stages};
use crate::messages::Stamp;
use crate::registration::StageTimes;
use crate::replay::Estimate;
use nalgebra::{Matrix6, Translation3, UnitQuaternion, Vector3, Vector6};

const DEGREE: f64 = std::f64::consts::PI / 180.0;

fn pose(x: f64, y: f64, yaw_deg: f64) -> Rigid {
    let turn = UnitQuaternion::from_scaled_axis(Vector3::z() * yaw_deg * DEGREE);
    Rigid::from_parts(Translation3::new(x, y, 0.0), turn)
}

fn stamp(seconds: f64) -> Stamp {
    Stamp::default().plus(seconds)
}

/// A frame each 0.1 s; without a pose where there is none.
fn frame(index: usize, map_t_base: Option<Rigid>) -> FrameRecord {
    let variances = Vector6::new(0.01, 0.01, 0.04, 1e-4, 1e-4, 1e-4);
    let estimate =
        map_t_base.map(|map_t_base| Estimate { map_t_base, covariance: Matrix6::from_diagonal(&variances) });
    FrameRecord {
        input: Input::Points3d3d,
        stamp: stamp(10.0 + 0.1 * index as f64),
        arrived: stamp(10.05 + 0.1 * index as f64),
        answered: stamp(10.05 + 0.1 * index as f64),
        start: 0,
        status: if estimate.is_some() { Status::Ok } else { Status::LowInliers },
        estimate,
        relative: None,
        mode: None,
        correspondences: 100,
        inliers: 50,
        log10_false_alarms: -20.0,
        margin: 0.5,
        parse_us: 100.0,
        stages: Stages::Registration(StageTimes { fog: 1000.0 * index as f64, ..StageTimes::default() }),
        total_us: 1000.0 * (index + 1) as f64,
    }
}

/// Truth along x at 1 m/s.
fn truth() -> Trajectory {
    Trajectory::new(
        (0..200).map(|i| (stamp(0.1 * f64::from(i)), pose(0.1 * f64::from(i), 0.0, 0.0))).collect(),
    )
    .expect("a trajectory")
}

fn in_map(truth: &Trajectory) -> Truths<'_> {
    Truths { absolute: Some(truth), relative: None }
}

/// Five frames: right, none, 0.3 m off, 10 degrees off, right.
fn drive() -> Vec<FrameRecord> {
    vec![
        frame(0, Some(pose(1.0 + 9.0, 0.0, 0.0))),
        frame(1, None),
        frame(2, Some(pose(10.2, 0.3, 0.0))),
        frame(3, Some(pose(10.3, 0.0, 10.0))),
        frame(4, Some(pose(10.4, 0.0, -1.0))),
    ]
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn recall_counts_frames_without_a_pose_as_missed() {
    let evaluation = Evaluation::new(&drive(), in_map(&truth()), &Options::default());
    let summary = &evaluation.summary;
    assert_eq!((summary.frames, summary.accepted, summary.with_truth), (5, 4, 5));
    let right: Vec<_> = summary.recall.iter().map(|recall| recall.right).collect();
    // (5, 2): all but the missing one and the turned one; (5, 0.6) the same; (2, 0.2): without the
    // one 0.3 m off; (1, 0.1): the last one is at the bound of 1 degree, give or take a rounding.
    assert_eq!(right[..3], [3, 3, 2]);
    assert!(near(summary.recall[0].share, 0.6));
    let wrong = summary.wrong.expect("truth");
    assert_eq!((wrong.accepted, wrong.share), (1, 0.25));
    let counts = |name: &str| summary.statuses.get(name).copied();
    assert_eq!((counts("ok"), counts("low_inliers"), counts("gpu_fault")), (Some(4), Some(1), Some(0)));
    assert!(near(summary.duration_s, 0.4));
}

#[test]
fn absolute_errors_are_those_by_hand() {
    let summary = Evaluation::new(&drive(), in_map(&truth()), &Options::default()).summary;
    let ate = summary.ate.expect("poses");
    assert_eq!(ate.pairs, 4);
    // 0, 0.3, 0, 0 m; 0, 0, 10, 1 degrees
    let (t, r) = (ate.translation_m, ate.rotation_deg);
    assert!(near(t.rmse, 0.15) && near(t.mean, 0.075) && near(t.median, 0.0) && near(t.max, 0.3), "{t:?}");
    assert!(near(r.rmse, (101.0f64 / 4.0).sqrt()) && near(r.mean, 2.75), "{r:?}");
    assert!(near(r.median, 0.5) && near(r.max, 10.0) && near(r.min, 0.0), "{r:?}");
}

#[test]
fn relative_errors_are_those_by_hand() {
    let options = |rpe| Options { rpe, ..Options::default() };
    let rpe =
        |step| Evaluation::new(&drive(), in_map(&truth()), &options(step)).summary.rpe.expect("motions");
    let frames = rpe(Step::Frames(1));
    // Motions between the four poses: (0.2, 0.3), (0.1, -0.3) turned by 10, and from there turned by
    // -11 seen from a pose that is turned by 10: true ones 0.2, 0.1, 0.1 along x.
    assert_eq!(frames.pairs, 3);
    let third = 2.0 * 0.1 * (5.0 * DEGREE).sin();
    let rmse = ((0.09 + 0.09 + third * third) / 3.0f64).sqrt();
    assert!(near(frames.translation_m.rmse, rmse), "{frames:?}");
    assert!(near(frames.rotation_deg.max, 11.0) && near(frames.rotation_deg.median, 10.0), "{frames:?}");
    // 0 -> 2 (0.2 s), 2 -> 4
    assert_eq!(rpe(Step::Seconds(0.2)).pairs, 2);
    // The estimate goes 0.36, 0.32, 0.1 m: one step of two motions, or two of one.
    assert_eq!(rpe(Step::Metres(0.5)).pairs, 1);
    assert_eq!(rpe(Step::Metres(0.3)).pairs, 2);
    assert_eq!(rpe(Step::Frames(2)).pairs, 1);
}

#[test]
fn errors_in_units_of_the_covariance() {
    let truth_at = pose(3.0, 1.0, 40.0);
    let estimate = |map_t_base, covariance| Estimate { map_t_base, covariance };
    let variances = Vector6::new(0.01, 0.01, 0.04, 1e-4, 1e-4, 4e-4);
    // One deviation along x, one about z.
    let off = pose(3.1, 1.0, 40.0 + 0.02 / DEGREE);
    let error = PoseError::new(&estimate(off, Matrix6::from_diagonal(&variances)), &truth_at);
    assert!(near(error.nees.expect("positive definite"), 2.0), "{error:?}");
    // The rotation's axes are those of the map: about its x, whatever the base's yaw is.
    let turn = UnitQuaternion::from_scaled_axis(Vector3::new(0.03, 0.0, 0.0));
    let off = Rigid::from_parts(truth_at.translation, turn * truth_at.rotation);
    let variances = Vector6::new(1.0, 1.0, 1.0, 1e-4, 1e-6, 1e-6);
    let error = PoseError::new(&estimate(off, Matrix6::from_diagonal(&variances)), &truth_at);
    assert!(near(error.nees.expect("positive definite"), 9.0), "{error:?}");
    let flat = PoseError::new(&estimate(off, Matrix6::zeros()), &truth_at);
    assert_eq!(flat.nees, None);
}

#[test]
fn right_covariances_are_found_consistent_and_small_ones_not() {
    use rand::SeedableRng;
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(3);
    let sigmas = [0.1, 0.1, 0.2, 0.01, 0.01, 0.01];
    let truth = truth();
    let frames: Vec<FrameRecord> = (0..2000)
        .map(|i| {
            let mut one = frame(0, None);
            one.stamp = stamp(0.005 * f64::from(i));
            let e: Vec<f64> = sigmas.iter().map(|sigma| sigma * normal(&mut rng)).collect();
            let at = truth.at(one.stamp, 1.0).expect("within");
            let turn = UnitQuaternion::from_scaled_axis(Vector3::new(e[3], e[4], e[5]));
            let place = at.translation.vector + Vector3::new(e[0], e[1], e[2]);
            let map_t_base = Rigid::from_parts(place.into(), turn * at.rotation);
            FrameRecord { estimate: frame(0, Some(map_t_base)).estimate, ..one }
        })
        .collect();
    let consistency = |frames: &[FrameRecord]| {
        Evaluation::new(frames, in_map(&truth), &Options::default()).summary.consistency.expect("poses")
    };
    let c = consistency(&frames);
    let [low, high] = c.nees_expected;
    assert!(c.frames == 2000 && low < c.nees_mean && c.nees_mean < high, "{c:?}");
    assert!((c.nees_median - 5.348).abs() < 0.3, "{c:?}");
    for group in [c.translation, c.rotation, c.pose] {
        for (share, expected) in group.iter().zip(EXPECTED) {
            assert!((share - expected).abs() < 0.04, "{c:?}");
        }
    }
    let mut sure = frames;
    for frame in &mut sure {
        if let Some(estimate) = &mut frame.estimate {
            estimate.covariance *= 0.25;
        }
    }
    let c = consistency(&sure);
    assert!(near(c.nees_mean / 4.0, consistency(&sure).nees_mean / 4.0) && c.nees_mean > 2.0 * high, "{c:?}");
    assert!(c.pose[0] < 0.2, "{c:?}");
}

/// Box and Muller.
fn normal(rng: &mut impl rand::Rng) -> f64 {
    let (a, b): (f64, f64) = (rng.random_range(f64::EPSILON..1.0), rng.random());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

#[test]
fn an_alignment_takes_out_another_frame_and_nothing_else() {
    let other_t_map = Rigid::from_parts(
        Translation3::new(500.0, -300.0, 20.0),
        UnitQuaternion::from_scaled_axis(Vector3::new(0.1, -0.2, 2.0)),
    );
    let curve = |t: f64| pose(5.0 * t.cos(), 3.0 * t.sin(), 30.0 * t);
    let moved = (0..200).map(|i| (stamp(0.1 * f64::from(i)), other_t_map * curve(0.1 * f64::from(i))));
    let truth = Trajectory::new(moved.collect()).expect("a trajectory");
    let frames: Vec<_> = (0..50).map(|i| frame(i, Some(curve(10.0 + 0.1 * i as f64)))).collect();
    let ate = |align| Evaluation::new(&frames, in_map(&truth), &Options { align, ..Options::default() });
    assert!(ate(Align::None).summary.ate.expect("poses").translation_m.rmse > 100.0);
    let aligned = ate(Align::Se3);
    let errors = aligned.summary.ate.expect("poses");
    assert!(errors.translation_m.max < 1e-9 && errors.rotation_deg.max < 1e-9, "{errors:?}");
    let map_t_truth = aligned.map_t_truth.expect("aligned");
    assert!((map_t_truth * other_t_map).translation.vector.norm() < 1e-9);
}

#[test]
fn the_first_fix_is_the_first_pose_and_the_first_right_one() {
    let frames =
        [frame(0, None), frame(1, Some(pose(500.0, 0.0, 0.0))), frame(2, None), drive()[3], drive()[4]];
    let summary = Evaluation::new(&frames, in_map(&truth()), &Options::default()).summary;
    assert!(near(summary.first_fix.accepted_s.expect("a pose"), 0.1));
    assert!(near(summary.first_fix.right_s.expect("a right pose"), 0.4));
}

#[test]
fn latency_is_that_of_the_frames_that_came_so_far() {
    let summary = Evaluation::new(&drive(), Truths::default(), &Options::default()).summary;
    let stage =
        |name: &str| summary.latency.iter().find(|stage| stage.stage == name).expect("a stage").clone();
    assert_eq!((stage("parse").frames, stage("parse").ms.p99), (5, 0.1));
    // The first frame was not registered.
    assert_eq!((stage("fog").frames, stage("fog").ms.p50, stage("fog").ms.max), (4, 2.0, 4.0));
    assert_eq!((stage("total").frames, stage("total").ms.max), (5, 5.0));
    let names: Vec<_> = summary.latency.iter().map(|stage| stage.stage.as_str()).collect();
    assert_eq!((names.first(), names.last(), names.len()), (Some(&"parse"), Some(&"total"), 9));
}

#[test]
fn without_truth_or_frames_nothing_is_said() {
    let summary = Evaluation::new(&drive(), Truths::default(), &Options::default()).summary;
    assert_eq!((summary.with_truth, summary.recall.len()), (0, 0));
    assert!(summary.ate.is_none() && summary.rpe.is_none() && summary.wrong.is_none());
    assert!(summary.consistency.is_none() && summary.first_fix.right_s.is_none());
    let nothing =
        Evaluation::new(&[], in_map(&truth()), &Options { align: Align::Se3, ..Options::default() });
    assert_eq!((nothing.summary.frames, nothing.map_t_truth), (0, None));
    assert_eq!(nothing.summary.total_ms(), Some(Percentiles::default()));
}

#[test]
fn options_are_read_as_they_are_written() {
    assert_eq!("5,2".parse(), Ok(Limit { re_deg: 5.0, te_m: 2.0 }));
    for text in ["5", "5,-1", "a,b", "5,nan", ""] {
        assert!(text.parse::<Limit>().is_err(), "{text}");
    }
    let steps: Vec<_> = ["10", "0.5s", "20m"].iter().map(|text| text.parse()).collect();
    assert_eq!(steps, [Ok(Step::Frames(10)), Ok(Step::Seconds(0.5)), Ok(Step::Metres(20.0))]);
    for text in ["0", "-1m", "1.5", "infs", "km"] {
        assert!(text.parse::<Step>().is_err(), "{text}");
    }
}

#[test]
fn relative_poses_are_measured_by_their_angles_and_a_standing_camera_by_neither_right_nor_wrong() {
    let turned = |degrees: f64| UnitQuaternion::from_scaled_axis(Vector3::y() * degrees * DEGREE);
    // Half a metre along z; the third and the fourth time the camera has not moved.
    let truth_at = |i: u32| {
        let moved = if i == 2 || i == 3 { 0.0 } else { 0.5 };
        (frame(i as usize, None).stamp, Rigid::from_parts(Translation3::new(0.0, 0.0, moved), turned(3.0)))
    };
    let truth = Trajectory::new((0..6).map(truth_at).collect()).expect("a trajectory");
    let answer = |index: usize, status: Status, relative: Option<(f64, f64)>| FrameRecord {
        input: Input::Sights2d2d,
        status,
        relative: relative.map(|(turn, direction)| {
            let (sin, cos) = (direction * DEGREE).sin_cos();
            Rigid::from_parts(Translation3::new(sin, 0.0, cos), turned(3.0 + turn))
        }),
        ..frame(index, None)
    };
    let ok = Status::Ok;
    let frames = [
        answer(0, ok, Some((0.5, 3.0))),
        // Backwards.
        answer(1, ok, Some((0.0, 180.0))),
        answer(2, Status::Degenerate, None),
        answer(3, ok, Some((1.5, 90.0))),
        answer(4, Status::LowInliers, None),
        answer(5, ok, Some((-4.0, 0.0))),
        // No truth.
        answer(9, ok, Some((-4.0, 0.0))),
        // Of another input.
        frame(0, Some(pose(10.0, 0.0, 0.0))),
    ];
    let absolute = self::truth();
    let truths = Truths { absolute: Some(&absolute), relative: Some(&truth) };
    let evaluation = Evaluation::new(&frames, truths, &Options::default());
    let summary = &evaluation.summary;
    assert_eq!((summary.frames, summary.accepted, summary.with_truth), (8, 6, 1));
    let relative = summary.relative.as_ref().expect("relative poses");
    assert_eq!((relative.frames, relative.accepted, relative.with_truth), (7, 5, 4));
    assert_eq!(relative.still, Still { frames: 2, degenerate: 1, accepted: 1 });
    let (turns, directions) = (relative.rotation_deg.expect("some"), relative.direction_deg.expect("some"));
    assert!(near(turns.max, 4.0) && near(turns.p50, 0.5), "{turns:?}");
    assert!(near(directions.max, 180.0) && near(directions.p50, 3.0), "{directions:?}");
    // Within 10, 5, 2, 1 degrees, of four that have a truth and moved.
    let right: Vec<_> = relative.recall.iter().map(|recall| recall.right).collect();
    assert_eq!((right, relative.recall[0].share), (vec![2, 2, 0, 0], 0.5));
    assert_eq!(evaluation.relative_recall(Angle { deg: 3.5 }).expect("a truth").right, 1);
    // The direction of a camera that stood is not wrong: the one that points backwards is.
    let wrong = relative.wrong.expect("a truth");
    assert_eq!((wrong.accepted, wrong.share), (1, 0.25));
    assert_eq!(summary.inputs.len(), 2);
    assert_eq!((summary.inputs[1].frames, summary.inputs[1].ate), (7, None));
    let nothing = Evaluation::new(&frames[7..], Truths::default(), &Options::default());
    assert_eq!(nothing.summary.relative, None);
}
