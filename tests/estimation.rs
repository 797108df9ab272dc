//! What an estimation says of camera problems whose answer is known. Each name is a sentence.
//! `FLASHREG_CASES` runs of every degenerate kind, 100 without it.

#[path = "common/cameras.rs"]
#[allow(dead_code)]
mod cameras;

use cameras::*;
use flashreg::estimation::{AbsoluteRow, Estimation, Estimator, Reason, RelativeRow, Sight};
use flashreg::geometry::{Point, Rigid, Vector};
use flashreg::params::{BackendChoice, Params, Sampling};
use flashreg::status::Status;
use nalgebra::{Matrix6, UnitQuaternion, Vector6};
use rand::Rng;

fn params() -> Params {
    let mut params = Params::default();
    params.backend.kind = BackendChoice::Cpu;
    params.backend.threads = 2;
    params
}

fn cases() -> u64 {
    std::env::var("FLASHREG_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// An estimator that is used again and again, as in a node.
struct Bench {
    params: Params,
    estimator: Estimator,
}

impl Bench {
    fn new() -> Self {
        let params = params();
        Self { estimator: Estimator::new(&params).expect("the CPU"), params }
    }

    fn absolute(&mut self, rows: &[AbsoluteRow]) -> Estimation {
        self.estimator.absolute(&absolute_problem(rows), &self.params).clone()
    }

    fn relative(&mut self, rows: &[RelativeRow]) -> Estimation {
        self.estimator.relative(&relative_problem(rows), &self.params).clone()
    }
}

/// A trusted pose that is off by more than its own uncertainty allows is the one thing that must not be.
fn is_wrong(e: &Estimation, truth: &Rigid) -> bool {
    let Some(pose) = e.target_t_source else { return e.status == Status::Ok };
    e.status == Status::Ok && mahalanobis2(e, &pose, truth) > 60.0 && {
        let (rotation, translation) = errors(&pose, truth);
        rotation > 0.01 || translation > 0.05
    }
}

/// Squared error of a pose in the measure of its covariance.
fn mahalanobis2(e: &Estimation, pose: &Rigid, truth: &Rigid) -> f64 {
    let shift = truth.translation.vector - pose.translation.vector;
    let turn = (truth.rotation * pose.rotation.inverse()).scaled_axis();
    let error = Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z);
    let inverse = e.covariance.try_inverse().unwrap_or_else(|| Matrix6::identity() * f64::INFINITY);
    error.dot(&(inverse * error))
}

#[test]
fn an_absolute_pose_is_found_among_outliers() {
    let mut bench = Bench::new();
    let mut rng = random(1);
    for (n, outliers) in
        [(20, 0.0), (20, 0.4), (50, 0.5), (200, 0.5), (200, 0.8), (1000, 0.0), (1000, 0.5), (1000, 0.9)]
    {
        for _ in 0..5 {
            let (rows, truth) = absolute_rows(&mut rng, &CAMERA, n, outliers, 1.0, Shape::Deep);
            let e = bench.absolute(&rows);
            assert_eq!(e.status, Status::Ok, "{n} {outliers}: {}", e.reason);
            let (rotation, translation) = errors(&e.target_t_source.expect("a pose"), &truth);
            let root = ((n as f64) * (1.0 - outliers)).sqrt();
            assert!(
                rotation < 0.03 / root && translation < 0.15 / root,
                "{n} {outliers}: {rotation} {translation}"
            );
            assert_eq!(e.inlier_mask.iter().filter(|inlier| **inlier).count(), e.inliers);
            assert!(e.missed <= 1e-4 && e.log10_false_alarms < -8.0 && e.samples >= 64);
        }
    }
}

#[test]
fn a_relative_pose_is_found_among_outliers() {
    let mut bench = Bench::new();
    let mut rng = random(2);
    for (n, outliers) in [(50, 0.0), (100, 0.3), (200, 0.5), (1000, 0.0), (1000, 0.5), (1000, 0.7)] {
        for _ in 0..3 {
            let (rows, truth) = relative_rows(&mut rng, &CAMERA, n, outliers, 0.5, Shape::Deep, 1.0);
            let e = bench.relative(&rows);
            assert_eq!(e.status, Status::Ok, "{n} {outliers}: {}", e.reason);
            let pose = e.target_t_source.expect("a pose");
            let (rotation, direction) = errors(&pose, &truth);
            assert!((pose.translation.vector.norm() - 1.0).abs() < 1e-12);
            let root = ((n as f64) * (1.0 - outliers)).sqrt();
            assert!(
                rotation < 0.05 / root && direction < 0.3 / root,
                "{n} {outliers}: {rotation} {direction}"
            );
        }
    }
}

#[test]
fn exact_rows_give_an_exact_pose() {
    let mut bench = Bench::new();
    let mut rng = random(3);
    for _ in 0..10 {
        let (rows, truth) = absolute_rows(&mut rng, &CAMERA, 100, 0.3, 0.0, Shape::Deep);
        let e = bench.absolute(&rows);
        assert_eq!(e.status, Status::Ok, "{}", e.reason);
        let (rotation, translation) = errors(&e.target_t_source.expect("a pose"), &truth);
        assert!(rotation < 1e-7 && translation < 1e-7, "{rotation} {translation}");
        // A mismatch near its epipolar line by chance cannot be told, and pulls.
        let (rows, truth) = relative_rows(&mut rng, &CAMERA, 100, 0.0, 0.0, Shape::Deep, 2.0);
        let e = bench.relative(&rows);
        assert_eq!(e.status, Status::Ok, "{}", e.reason);
        let (rotation, direction) = errors(&e.target_t_source.expect("a pose"), &truth);
        assert!(rotation < 1e-6 && direction < 1e-6, "{rotation} {direction}");
    }
}

#[test]
fn the_covariance_is_that_of_the_errors() {
    let mut bench = Bench::new();
    let mut rng = random(4);
    let runs = 200;
    let (mut absolute, mut relative) = (0.0, 0.0);
    for _ in 0..runs {
        let (rows, truth) = absolute_rows(&mut rng, &CAMERA, 60, 0.2, 1.0, Shape::Deep);
        let e = bench.absolute(&rows);
        assert_eq!(e.status, Status::Ok, "{}", e.reason);
        absolute += mahalanobis2(&e, &e.target_t_source.expect("a pose"), &truth) / f64::from(runs);
        let (rows, truth) = relative_rows(&mut rng, &CAMERA, 150, 0.2, 1.0, Shape::Deep, 2.0);
        let e = bench.relative(&rows);
        assert_eq!(e.status, Status::Ok, "{}", e.reason);
        relative += mahalanobis2(&e, &e.target_t_source.expect("a pose"), &truth) / f64::from(runs);
    }
    println!("mean squared error in the measure of the covariance: {absolute:.2} of 6, {relative:.2} of 5");
    // The mean of 200 chi-squared numbers of 6 (5) degrees has a standard deviation of 0.25 (0.22); a variance
    // known from few rows and the cut at the threshold add to it.
    assert!((5.0..7.5).contains(&absolute), "{absolute}");
    assert!((4.0..6.5).contains(&relative), "{relative}");
}

/// Runs a kind of problem and counts the statuses; none may be trusted and wrong.
fn absolute_kind(
    name: &str,
    seed: u64,
    mut make: impl FnMut(&mut Random) -> (Vec<AbsoluteRow>, Rigid),
    expected: impl Fn(&Estimation) -> bool,
    share: f64,
) {
    let mut bench = Bench::new();
    kind(
        name,
        seed,
        |rng| {
            let (rows, truth) = make(rng);
            (bench.absolute(&rows), truth)
        },
        expected,
        share,
    );
}

fn relative_kind(
    name: &str,
    seed: u64,
    mut make: impl FnMut(&mut Random) -> (Vec<RelativeRow>, Rigid),
    expected: impl Fn(&Estimation) -> bool,
    share: f64,
) {
    let mut bench = Bench::new();
    kind(
        name,
        seed,
        |rng| {
            let (rows, truth) = make(rng);
            (bench.relative(&rows), truth)
        },
        expected,
        share,
    );
}

fn kind(
    name: &str,
    seed: u64,
    mut run: impl FnMut(&mut Random) -> (Estimation, Rigid),
    expected: impl Fn(&Estimation) -> bool,
    share: f64,
) {
    let mut rng = random(seed);
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    let (mut as_expected, mut wrong) = (0, 0);
    for _ in 0..cases() {
        let (e, truth) = run(&mut rng);
        let reason = e.reason.to_string();
        *counts.entry(format!("{} {}", e.status, reason.split(':').next().unwrap_or(""))).or_default() += 1;
        as_expected += u64::from(expected(&e));
        wrong += usize::from(is_wrong(&e, &truth));
    }
    println!("{name}: {counts:?}, {as_expected} of {} as expected, {wrong} wrong", cases());
    assert_eq!(wrong, 0, "{name}: {counts:?}");
    assert!(as_expected as f64 >= share * cases() as f64, "{name}: {counts:?}");
}

fn noise_and_outliers(rng: &mut Random) -> (f64, f64) {
    (rng.random_range(0.2..1.0), rng.random_range(0.0..0.4))
}

#[test]
fn random_rows_are_never_trusted() {
    let never = |e: &Estimation| e.status != Status::Ok;
    absolute_kind(
        "random absolute",
        10,
        |rng| {
            let n = rng.random_range(3..100);
            absolute_rows(rng, &CAMERA, n, 1.0, 1.0, Shape::Deep)
        },
        never,
        1.0,
    );
    relative_kind(
        "random relative",
        11,
        |rng| {
            let n = rng.random_range(5..30);
            relative_rows(rng, &CAMERA, n, 1.0, 1.0, Shape::Deep, 1.0)
        },
        never,
        1.0,
    );
}

#[test]
fn too_few_rows_are_told() {
    absolute_kind(
        "two points",
        12,
        |rng| absolute_rows(rng, &CAMERA, 2, 0.0, 1.0, Shape::Deep),
        |e| e.status == Status::TooFew && e.reason == Reason::TooFew { got: 2, need: 3 },
        1.0,
    );
    absolute_kind(
        "seven points",
        13,
        |rng| absolute_rows(rng, &CAMERA, 7, 0.0, 1.0, Shape::Deep),
        |e| e.status == Status::LowInliers,
        1.0,
    );
    relative_kind(
        "four features",
        14,
        |rng| relative_rows(rng, &CAMERA, 4, 0.0, 1.0, Shape::Deep, 1.0),
        |e| e.status == Status::TooFew && e.reason == Reason::TooFew { got: 4, need: 5 },
        1.0,
    );
}

#[test]
fn duplicates_count_once() {
    // Five different rows, many times each.
    let repeat = |rows: Vec<AbsoluteRow>| rows.iter().cycle().take(200).copied().collect::<Vec<_>>();
    absolute_kind(
        "five rows, forty times",
        15,
        |rng| {
            let (rows, truth) = absolute_rows(rng, &CAMERA, 5, 0.0, 0.5, Shape::Deep);
            (repeat(rows), truth)
        },
        |e| e.status == Status::LowInliers && e.inliers <= 5,
        1.0,
    );
    absolute_kind(
        "two rows, a hundred times",
        16,
        |rng| {
            let (rows, truth) = absolute_rows(rng, &CAMERA, 2, 0.0, 0.5, Shape::Deep);
            (repeat(rows), truth)
        },
        |e| e.reason == Reason::TooFew { got: 2, need: 3 },
        1.0,
    );
    relative_kind(
        "six rows, forty times",
        17,
        |rng| {
            let (rows, truth) = relative_rows(rng, &CAMERA, 6, 0.0, 0.5, Shape::Deep, 1.0);
            (rows.iter().cycle().take(240).copied().collect(), truth)
        },
        |e| e.status == Status::LowInliers && e.inliers <= 6,
        1.0,
    );
    // Duplicates among honest rows change nothing.
    let mut bench = Bench::new();
    let mut rng = random(18);
    let (rows, _) = absolute_rows(&mut rng, &CAMERA, 100, 0.3, 0.5, Shape::Deep);
    let once = bench.absolute(&rows);
    let twice = bench.absolute(&[rows.clone(), rows].concat());
    assert_eq!((once.status, twice.status), (Status::Ok, Status::Ok));
    assert_eq!((once.target_t_source, once.covariance), (twice.target_t_source, twice.covariance));
    assert_eq!(
        (once.inliers, 2 * once.inliers),
        (twice.inliers, twice.inlier_mask.iter().filter(|m| **m).count())
    );
}

#[test]
fn points_on_a_line_are_told() {
    absolute_kind(
        "line",
        20,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            absolute_rows(rng, &CAMERA, 100, outliers, noise, Shape::Line)
        },
        |e| (e.status, e.reason) == (Status::Degenerate, Reason::Collinear),
        0.95,
    );
    relative_kind(
        "line, two views",
        21,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            relative_rows(rng, &CAMERA, 100, outliers, noise, Shape::Line, 1.0)
        },
        |e| e.status != Status::Ok,
        1.0,
    );
}

#[test]
fn a_plane_gives_an_absolute_pose_or_is_ambiguous() {
    absolute_kind(
        "tilted plane",
        22,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            absolute_rows(rng, &CAMERA, 200, outliers, noise, Shape::Plane(0.6))
        },
        |e| e.status == Status::Ok,
        0.95,
    );
    // A plane seen small: its tilt may be to either side.
    absolute_kind(
        "small plane",
        23,
        |rng| {
            let camera = Pinhole { focal: 60_000.0, ..CAMERA };
            let (rows, truth) = absolute_rows(rng, &camera, 60, 0.2, 1.0, Shape::Plane(0.3));
            (rows, truth)
        },
        |e| e.status != Status::Ok,
        0.5,
    );
}

#[test]
fn a_plane_in_two_views_is_trusted_only_if_one_pose_is_left() {
    relative_kind(
        "plane, two views",
        24,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            relative_rows(rng, &CAMERA, 200, outliers, noise, Shape::Plane(0.4), 1.0)
        },
        |e| e.status == Status::Ok || (e.status, e.reason) == (Status::Ambiguous, Reason::Planar),
        0.9,
    );
}

#[test]
fn a_pure_rotation_is_told() {
    relative_kind(
        "pure rotation",
        25,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            relative_rows(rng, &CAMERA, 200, outliers, noise, Shape::Deep, 0.0)
        },
        |e| matches!((e.status, e.reason), (Status::Degenerate, Reason::PureRotation(_))),
        0.95,
    );
}

#[test]
fn far_points_are_told() {
    absolute_kind(
        "far points",
        26,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            absolute_rows(rng, &CAMERA, 100, outliers, noise, Shape::Far(20_000.0))
        },
        |e| matches!((e.status, e.reason), (Status::Degenerate, Reason::FarPoints(_))),
        0.95,
    );
}

#[test]
fn points_behind_the_camera_are_told() {
    absolute_kind(
        "behind",
        27,
        |rng| {
            let (rows, truth) = absolute_rows(rng, &CAMERA, 100, 0.2, 0.5, Shape::Deep);
            // The same pixels from points that are mirrored at the centre of the camera.
            let centre = truth.translation.vector;
            let mirror = |row: &AbsoluteRow| AbsoluteRow {
                point: Point::from(centre * 2.0 - row.point.coords),
                ..*row
            };
            (rows.iter().map(mirror).collect(), truth)
        },
        |e| matches!((e.status, e.reason), (Status::Degenerate, Reason::Behind(_))),
        0.95,
    );
}

#[test]
fn a_wrong_focal_length_is_told() {
    absolute_kind(
        "focal length off by 5 to 30 %",
        28,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            let off = rng.random_range(1.05..1.3);
            let off = if rng.random() { off } else { 1.0 / off };
            let (mut rows, truth) = absolute_rows(rng, &CAMERA, 200, outliers, noise, Shape::Deep);
            let wrong = Pinhole { focal: CAMERA.focal * off, ..CAMERA };
            for row in &mut rows {
                row.sight = wrong.sight(row.sight.pixel.expect("a pixel"));
            }
            (rows, truth)
        },
        |e| matches!((e.status, e.reason), (Status::BadInput, Reason::Intrinsics(_))),
        0.95,
    );
    // A right one is not found fault with.
    absolute_kind(
        "right focal length",
        29,
        |rng| {
            let (noise, outliers) = noise_and_outliers(rng);
            absolute_rows(rng, &CAMERA, 200, outliers, noise, Shape::Deep)
        },
        |e| e.status == Status::Ok,
        0.99,
    );
}

#[test]
fn two_scenes_that_disagree_are_ambiguous() {
    absolute_kind(
        "two scenes",
        30,
        |rng| {
            let (mut rows, truth) = absolute_rows(rng, &CAMERA, 100, 0.0, 0.5, Shape::Deep);
            let (other, _) = absolute_rows(rng, &CAMERA, 95, 0.0, 0.5, Shape::Deep);
            rows.extend(other);
            shuffle(rng, &mut rows);
            (rows, truth)
        },
        |e| matches!((e.status, e.reason), (Status::Ambiguous, Reason::RunnerUp(_))),
        0.99,
    );
}

fn every_digit(e: &Estimation) -> String {
    format!("{:?}", Estimation { stages: Default::default(), ..e.clone() })
}

#[test]
fn the_answer_is_the_same_with_one_thread_and_two() {
    let mut rng = random(40);
    let two = params();
    let mut one = params();
    one.backend.threads = 1;
    let (mut of_one, mut of_two) =
        (Estimator::new(&one).expect("the CPU"), Estimator::new(&two).expect("the CPU"));
    for (n, outliers, sampling) in
        [(30, 0.3, Sampling::Uniform), (300, 0.8, Sampling::Uniform), (200, 0.5, Sampling::Prosac)]
    {
        let (a, b) = (
            Params {
                camera: flashreg::params::CameraParams { sampling, ..one.camera.clone() },
                ..one.clone()
            },
            Params {
                camera: flashreg::params::CameraParams { sampling, ..two.camera.clone() },
                ..two.clone()
            },
        );
        let (rows, _) = absolute_rows(&mut rng, &CAMERA, n, outliers, 1.0, Shape::Deep);
        let problem = absolute_problem(&rows);
        let first = every_digit(of_one.absolute(&problem, &a));
        assert_eq!(first, every_digit(of_two.absolute(&problem, &b)));
        assert_eq!(first, every_digit(of_two.absolute(&problem, &b)), "the second time");
        let (rows, _) = relative_rows(&mut rng, &CAMERA, n, outliers / 2.0, 1.0, Shape::Deep, 1.0);
        let problem = relative_problem(&rows);
        assert_eq!(every_digit(of_one.relative(&problem, &a)), every_digit(of_two.relative(&problem, &b)));
    }
}

#[test]
fn the_order_of_the_rows_does_not_decide() {
    let mut bench = Bench::new();
    let mut rng = random(41);
    for outliers in [0.2, 0.6, 0.8] {
        let (mut rows, truth) = absolute_rows(&mut rng, &CAMERA, 200, outliers, 1.0, Shape::Deep);
        let first = bench.absolute(&rows);
        for _ in 0..5 {
            shuffle(&mut rng, &mut rows);
            let e = bench.absolute(&rows);
            assert_eq!((e.status, first.status), (Status::Ok, Status::Ok), "{}", e.reason);
            let pose = e.target_t_source.expect("a pose");
            let (rotation, translation) = errors(&pose, &first.target_t_source.expect("a pose"));
            assert!(rotation < 1e-4 && translation < 1e-3, "{rotation} {translation}");
            assert!(!is_wrong(&e, &truth));
        }
    }
}

#[test]
fn map_coordinates_of_a_whole_country_lose_nothing() {
    let mut bench = Bench::new();
    let mut rng = random(42);
    let utm = Vector::new(512_345.678, 5_403_210.987, 431.25);
    for _ in 0..5 {
        let (mut rows, truth) = absolute_rows(&mut rng, &CAMERA, 300, 0.5, 0.5, Shape::Deep);
        let near = bench.absolute(&rows);
        rows.iter_mut().for_each(|row| row.point += utm);
        let e = bench.absolute(&rows);
        assert_eq!((near.status, e.status), (Status::Ok, Status::Ok), "{}", e.reason);
        let (a, b) = (near.target_t_source.expect("a pose"), e.target_t_source.expect("a pose"));
        let moved = Rigid::from_parts((a.translation.vector + utm).into(), a.rotation);
        let (rotation, translation) = errors(&moved, &b);
        assert!(rotation < 1e-8 && translation < 1e-7, "{rotation} {translation}");
        assert!((near.covariance - e.covariance).norm() < 1e-6 * near.covariance.norm());
        let truth = Rigid::from_parts((truth.translation.vector + utm).into(), truth.rotation);
        assert!(!is_wrong(&e, &truth));
    }
}

#[test]
fn bearings_all_around_give_a_pose() {
    let mut bench = Bench::new();
    let mut rng = random(43);
    for _ in 0..10 {
        let truth = any_pose(&mut rng, 10.0);
        let angle = 0.008;
        let seen = |rng: &mut Random, wrong: bool| {
            let x = direction(rng) * rng.random_range(2.0..10.0);
            let noise = direction(rng) * (0.002 * normal(rng));
            let b = if wrong { direction(rng) } else { x.normalize() + noise };
            (x, Sight::of_bearing(&b, angle).expect("a bearing"))
        };
        let rows: Vec<AbsoluteRow> = (0..150)
            .map(|i| {
                let (x, sight) = seen(&mut rng, i % 3 == 0);
                AbsoluteRow { sight, point: truth * Point::from(x), weight: 1.0, id: None }
            })
            .collect();
        let e = bench.absolute(&rows);
        assert_eq!(e.status, Status::Ok, "{}", e.reason);
        let (rotation, translation) = errors(&e.target_t_source.expect("a pose"), &truth);
        assert!(rotation < 0.002 && translation < 0.01, "{rotation} {translation}");
        let turn = UnitQuaternion::from_scaled_axis(direction(&mut rng) * 0.5);
        let truth = Rigid::from_parts(direction(&mut rng).into(), turn);
        let rows: Vec<RelativeRow> = (0..150)
            .map(|i| {
                let (x, sight) = seen(&mut rng, i % 3 == 0);
                let y = (truth * Point::from(x)).coords + direction(&mut rng) * (0.002 * normal(&mut rng));
                let reference = Sight::of_bearing(&y, angle).expect("a bearing");
                RelativeRow { sight, reference, weight: 1.0, id: None }
            })
            .collect();
        let e = bench.relative(&rows);
        assert_eq!(e.status, Status::Ok, "{}", e.reason);
        let (rotation, direction) = errors(&e.target_t_source.expect("a pose"), &truth);
        assert!(rotation < 0.004 && direction < 0.02, "{rotation} {direction}");
    }
}

#[test]
fn rows_of_one_point_exclude_each_other_in_a_sample() {
    let mut bench = Bench::new();
    let mut rng = random(44);
    // Each point has three features, one of them right.
    let (rows, truth) = absolute_rows(&mut rng, &CAMERA, 80, 0.0, 0.5, Shape::Deep);
    let mut all = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let id = Some(i as u32);
        all.push(AbsoluteRow { id, ..*row });
        for _ in 0..2 {
            let sight = CAMERA.sight(CAMERA.anywhere(&mut rng));
            all.push(AbsoluteRow { sight, id, ..*row });
        }
    }
    let e = bench.absolute(&all);
    assert_eq!(e.status, Status::Ok, "{}", e.reason);
    assert!(!is_wrong(&e, &truth));
    // Two points have no sample.
    let two: Vec<_> = all.iter().filter(|row| row.id < Some(2)).copied().collect();
    assert_ne!(bench.absolute(&two).status, Status::Ok);
}

#[test]
fn weights_that_tell_good_rows_save_samples() {
    let mut bench = Bench::new();
    bench.params.camera.sampling = Sampling::Prosac;
    let mut rng = random(45);
    let (mut rows, truth) = absolute_rows(&mut rng, &CAMERA, 1000, 0.9, 0.5, Shape::Deep);
    let good = |row: &AbsoluteRow| {
        let x = truth.inverse() * row.point;
        let [u, v] = CAMERA.project(&x.coords);
        row.sight.pixel.is_some_and(|[a, b]| x.z > 0.0 && (a - u).hypot(b - v) < 4.0)
    };
    for row in &mut rows {
        row.weight = if good(row) { rng.random_range(0.5..1.0) } else { rng.random_range(0.0..0.8) + 1e-3 };
    }
    let prosac = bench.absolute(&rows);
    bench.params.camera.sampling = Sampling::Uniform;
    let uniform = bench.absolute(&rows);
    for e in [&prosac, &uniform] {
        assert_eq!(e.status, Status::Ok, "{}", e.reason);
        assert!(!is_wrong(e, &truth));
    }
    assert!(prosac.samples < uniform.samples, "{} {}", prosac.samples, uniform.samples);
}

#[test]
fn a_budget_that_is_spent_is_told() {
    let mut bench = Bench::new();
    bench.params.camera.time_budget_ms = 1e-3;
    let mut rng = random(46);
    let (rows, _) = absolute_rows(&mut rng, &CAMERA, 1000, 0.5, 1.0, Shape::Deep);
    let e = bench.absolute(&rows);
    assert_eq!((e.status, e.target_t_source, e.inlier_mask.len()), (Status::OverBudget, None, 1000));
    let mut small = params();
    small.camera.max_correspondences = 100;
    let mut estimator = Estimator::new(&small).expect("the CPU");
    let e = estimator.absolute(&absolute_problem(&rows), &small);
    assert_eq!((e.status, e.reason), (Status::BadInput, Reason::TooMany { got: 1000, max: 100 }));
}
