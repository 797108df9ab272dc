//! Points and poses of cameras of which more than the pose is unknown, against known truth.
//!
//! `FLASHREG_KINDS_SCENES=N` draws N scenes in place of a few, and prints tables with `--nocapture`.

use flashreg::estimation::{
    AbsoluteProblem, AbsoluteRow, Estimation, Estimator, Intrinsics, Reason, RelativeProblem, RelativeRow,
    Sight, TriangulationProblem, Triangulator,
};
use flashreg::geometry::{pose_error, Pose, Vector};
use flashreg::homotopy::problems::Random;
use flashreg::homotopy::Backend;
use flashreg::params::{CameraProblem, CameraSolver, Params};
use flashreg::status::{PointStatus, Status};
use nalgebra::{Matrix2x3, Rotation3, Vector2};
use std::time::Instant;

/// Focal length and inlier threshold, px.
const FOCAL: f64 = 600.0;
const THRESHOLD: f64 = 4.0;
/// One pixel, in thresholds.
const NOISE: f64 = 1.0 / THRESHOLD;

fn scenes(few: usize) -> usize {
    std::env::var("FLASHREG_KINDS_SCENES").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// The sight of a pixel, from the principal point, of a camera without distortion.
fn sight(u: f64, v: f64) -> Sight {
    let ray = Vector::new(u / FOCAL, v / FOCAL, 1.0);
    let (bearing, size) = (ray.normalize(), ray.norm());
    let metric = Matrix2x3::new(1.0, 0.0, -ray.x, 0.0, 1.0, -ray.y) * (size * FOCAL / THRESHOLD);
    Sight { bearing, metric, pixel: Some([u, v]) }
}

/// Where a camera sees a point, with noise in px.
fn seen(point: &Vector, noise: f64, random: &mut Random) -> Sight {
    let at = |k: usize| FOCAL * point[k] / point.z;
    sight(at(0) + random.normal(noise), at(1) + random.normal(noise))
}

fn triangulator(solver: CameraSolver) -> Triangulator {
    Triangulator::new(solver, Backend::Cpu, 1000).expect("a triangulator")
}

/// Views around the points of `Random::seen`, in the frame of the first.
fn views(count: usize, random: &mut Random) -> Vec<Pose> {
    let mut view = |k: usize| {
        let turn = if k == 0 { 0.0 } else { 0.3 };
        let rotation = random.turn(turn).to_rotation_matrix().into_inner();
        Pose { rotation, translation: random.vector(2.0 * turn) }
    };
    (0..count).map(&mut view).collect()
}

#[test]
fn both_triangulations_find_the_same_optimum_and_its_covariance_tells_the_error() {
    let (closed, homotopy) = (triangulator(CameraSolver::ClosedForm), triangulator(CameraSolver::Homotopy));
    println!("| views | noise, px | points | ok | closed worse | homotopy worse | closed, us | homotopy, us | error^2 / variance |");
    for (count, noise) in [(2, 1.0), (2, 3.0), (3, 1.0), (3, 3.0), (4, 1.0), (4, 3.0)] {
        let mut random = Random::new(count as u64);
        let points = scenes(match count {
            2 => 400,
            3 => 100,
            _ => 10,
        });
        let (mut worse, mut lost, mut ok, mut total, mut squares) = (0, 0, 0, 0, 0.0);
        let mut times = [0.0; 2];
        for _ in 0..points.div_ceil(10) {
            let views = views(count, &mut random);
            let mut problem = TriangulationProblem::new(views.clone());
            let mut truth = Vec::new();
            while truth.len() < 10 {
                let point = random.seen();
                let seen_by: Vec<Vector> = views.iter().map(|view| view.apply(&point)).collect();
                if seen_by.iter().all(|p| p.z > 0.5) {
                    let sights = seen_by.iter().map(|p| seen(p, noise, &mut random)).enumerate();
                    assert!(problem.push(&sights.collect::<Vec<_>>()));
                    truth.push(point);
                }
            }
            let noise = noise / THRESHOLD;
            let start = Instant::now();
            let local = closed.solve(&problem, noise);
            times[0] += start.elapsed().as_secs_f64();
            let start = Instant::now();
            let global = homotopy.solve(&problem, noise);
            times[1] += start.elapsed().as_secs_f64();
            for ((a, b), truth) in local.iter().zip(&global).zip(&truth) {
                total += 1;
                worse += usize::from(a.cost > b.cost + 1e-6 * (1.0 + b.cost));
                lost += usize::from(b.cost > a.cost + 1e-6 * (1.0 + a.cost));
                if a.status == PointStatus::Ok {
                    ok += 1;
                    let off = a.point.coords - truth;
                    let inverse = a.covariance.try_inverse().expect("a covariance");
                    squares += off.dot(&(inverse * off)) / 3.0;
                }
            }
        }
        let [first, second] = times.map(|t| 1e6 * t / total as f64);
        let ratio = squares / f64::from(ok);
        println!("| {count} | {noise} | {total} | {ok} | {worse} | {lost} | {first:.1} | {second:.0} | {ratio:.2} |");
        // Only two views are tied by all constraints that there are.
        assert!(count > 2 || lost == 0, "{lost} of {total}");
        assert!(worse * 100 <= total, "{worse} of {total}");
        // The threshold is at 4 px.
        assert!(noise > 1.0 || ok * 100 >= total as i32 * 95, "{ok} of {total}");
        // The mean of a chi squared variable over its degrees, with what is not linear.
        assert!(noise > 1.0 || (0.7..1.4).contains(&ratio), "{ratio}");
    }
}

#[test]
fn points_that_cannot_be_told_are_named() {
    let mut random = Random::new(7);
    let aside = Pose { translation: Vector::new(-0.5, 0.0, 0.0), ..Pose::identity() };
    let point = Vector::new(0.3, -0.2, 4.0);
    let sights = |views: &[Pose; 2], points: [Vector; 2], random: &mut Random| {
        [0, 1].map(|k| (k, seen(&views[k].apply(&points[k]), 0.0, random)))
    };
    for solver in [CameraSolver::ClosedForm, CameraSolver::Homotopy] {
        let triangulator = triangulator(solver);
        let mut one = |views: [Pose; 2], points: [Vector; 2]| {
            let mut problem = TriangulationProblem::new(views.to_vec());
            assert!(problem.push(&sights(&views, points, &mut random)));
            triangulator.solve(&problem, NOISE)[0]
        };
        let pair = [Pose::identity(), aside];
        let good = one(pair, [point; 2]);
        assert_eq!(good.status, PointStatus::Ok);
        assert!((good.point.coords - point).norm() < 1e-9, "{}", good.point);
        assert_eq!(one(pair, [point * 1e4; 2]).status, PointStatus::Far);
        assert_eq!(one(pair, [point, point + Vector::y()]).status, PointStatus::Outlier);
        // Rays that meet behind: what the second camera saw has moved towards the first.
        let shifted = one(pair, [point, point + Vector::new(1.0, 0.0, 0.0)]);
        assert_eq!(shifted.status, PointStatus::Behind);
        let same = one([Pose::identity(); 2], [point; 2]);
        assert_eq!(same.status, PointStatus::Singular);
    }
    let mut problem = TriangulationProblem::new(vec![Pose::identity(), aside]);
    let sight = sight(10.0, 20.0);
    assert!(!problem.push(&[(0, sight)]));
    assert!(!problem.push(&[(0, sight), (0, sight)]));
    assert!(!problem.push(&[(0, sight), (2, sight)]));
    assert!(problem.is_empty());
}

/// A camera and how it moves.
#[derive(Clone, Copy)]
struct Truth {
    camera_t_map: Pose,
    focal: f64,
    /// Of the division model, per square of focal lengths.
    distortion: f64,
    /// Angular rate and velocity of the camera per focal length of rows.
    motion: [Vector; 2],
}

impl Truth {
    fn new(problem: CameraProblem, random: &mut Random) -> Self {
        let rotation = random.rotation().to_rotation_matrix().into_inner();
        let moves = matches!(problem, CameraProblem::RollingShutter | CameraProblem::RollingShutterLinear);
        let size = if moves { 1.0 } else { 0.0 };
        Self {
            camera_t_map: Pose { rotation, translation: random.vector(3.0) },
            focal: FOCAL,
            distortion: if problem == CameraProblem::FocalRadial { -0.2 } else { 0.0 },
            motion: [random.vector(0.04 * size), random.vector(0.1 * size)],
        }
    }

    /// The pixel of a point of the map, from the principal point.
    fn see(&self, point: &Vector) -> Option<Vector2<f64>> {
        let still = self.camera_t_map.apply(point);
        let mut image = still.xy() / still.z;
        for _ in 0..50 {
            // The camera turns and moves, what it sees the other way.
            let turn = Rotation3::new(-self.motion[0] * image.y);
            let seen = turn * still - self.motion[1] * image.y;
            let ideal = seen.xy() / seen.z;
            let root = (1.0 - 4.0 * self.distortion * ideal.norm_squared()).sqrt();
            image = ideal * (2.0 / (1.0 + root));
        }
        (still.z > 0.5 && image.x.abs() < 0.6 && image.y.abs() < 0.45).then_some(image * self.focal)
    }

    /// A point that it sees.
    fn point(&self, random: &mut Random) -> Vector {
        let back = self.camera_t_map.rotation.transpose();
        back * (random.seen() - self.camera_t_map.translation)
    }
}

/// Rows of a camera, a share of them wrong, noise in px; intrinsics with a focal length that is only a guess.
fn problem(
    truth: &Truth,
    n: usize,
    outliers: f64,
    noise: f64,
    guess: f64,
    random: &mut Random,
    mut point: impl FnMut(&mut Random) -> Vector,
) -> AbsoluteProblem {
    let mut problem = AbsoluteProblem::with_capacity(n);
    let wrong = (n as f64 * outliers).round() as usize;
    let mut tries = 0;
    while problem.rows().len() < n && tries < 100 * n {
        tries += 1;
        let at = point(random);
        let seen_at = if problem.rows().len() < wrong { truth.point(random) } else { at };
        let (Some(_), Some(mut pixel)) = (truth.see(&at), truth.see(&seen_at)) else { continue };
        pixel += Vector2::new(random.normal(noise), random.normal(noise));
        let ray = Vector::new(pixel.x / guess, pixel.y / guess, 1.0);
        let (bearing, size) = (ray.normalize(), ray.norm());
        let metric = Matrix2x3::new(1.0, 0.0, -ray.x, 0.0, 1.0, -ray.y) * (size * guess / THRESHOLD);
        let sight = Sight { bearing, metric, pixel: Some([pixel.x + 320.0, pixel.y + 240.0]) };
        problem.push(AbsoluteRow { sight, point: at.into(), weight: 1.0, id: None });
    }
    problem.set_intrinsics(Intrinsics { focal: [guess; 2], centre: [320.0, 240.0] });
    problem
}

fn params(problem: CameraProblem) -> Params {
    let mut params = Params::default();
    params.camera.problem = problem;
    params.camera.inlier_threshold_px = THRESHOLD;
    params
}

fn estimator(params: &Params) -> Estimator {
    Estimator::new(params).expect("an estimator")
}

/// Rotation, rad; place, m; focal length, relative; motion, of its size in rows of a focal length.
fn errors(found: &Estimation, truth: &Truth) -> [f64; 4] {
    let Some(pose) = found.target_t_source else { return [f64::INFINITY; 4] };
    let (turn, place) = pose_error(&pose, &truth.camera_t_map.to_rigid().inverse());
    let focal = found.focal.map_or(0.0, |f| (f / truth.focal - 1.0).abs());
    let motion = found.motion.map_or(0.0, |motion| {
        (motion[0] * truth.focal - truth.motion[0]).norm()
            + (motion[1] * truth.focal - truth.motion[1]).norm()
    });
    [turn, place, focal, motion]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The kinds, with the outlier shares at which a CPU is fast enough for a test.
const KINDS: [(CameraProblem, bool, &[f64]); 6] = [
    (CameraProblem::Calibrated, true, &[0.0, 0.5, 0.8]),
    (CameraProblem::Pnp, false, &[0.0]),
    (CameraProblem::Focal, false, &[0.0, 0.3, 0.5]),
    (CameraProblem::FocalRadial, false, &[0.0, 0.3, 0.5]),
    (CameraProblem::RollingShutter, false, &[0.0, 0.3]),
    (CameraProblem::RollingShutterLinear, false, &[0.0]),
];

#[test]
fn every_kind_finds_the_pose_among_outliers_and_is_never_wrong() {
    println!("| problem | outliers, % | ok | wrong | rotation, mrad | place, mm | focal, % | motion | samples | ms |");
    for (kind, upright, shares) in KINDS {
        let params = params(kind);
        let mut estimator = estimator(&params);
        for outliers in shares.iter().copied() {
            let count = scenes(2);
            let (mut ok, mut wrong, mut samples) = (0, 0, 0);
            let (mut all, mut times) = ([vec![], vec![], vec![], vec![]], Vec::new());
            let mut random = Random::new(5);
            for _ in 0..count {
                let truth = Truth::new(kind, &mut random);
                let guess = if kind == CameraProblem::Focal { 0.8 * FOCAL } else { FOCAL };
                let mut input = problem(&truth, 200, outliers, 1.0, guess, &mut random, |r| truth.point(r));
                if upright {
                    let up = Vector::new(0.1, -0.9, 0.3).normalize();
                    input.set_up(up, truth.camera_t_map.rotation.transpose() * up);
                }
                let start = Instant::now();
                let found = estimator.absolute(&input, &params);
                times.push(start.elapsed().as_secs_f64() * 1e3);
                let errors = errors(found, &truth);
                let right = errors[0] < 0.02 && errors[1] < 0.2 && errors[2] < 0.05;
                ok += usize::from(found.status == Status::Ok && right);
                wrong += usize::from(found.status == Status::Ok && !right);
                samples += found.samples;
                if found.status != Status::Ok || !right {
                    println!(
                        "{kind:?} {outliers}: {} {} {errors:?} {}",
                        found.status, found.reason, found.inliers
                    );
                }
                all.iter_mut().zip(errors).for_each(|(all, error)| all.push(error));
            }
            let [turn, place, focal, motion] = all.map(median);
            println!(
                "| {kind:?} | {:.0} | {ok} of {count} | {wrong} | {:.2} | {:.1} | {:.2} | {motion:.4} | {} | {:.1} |",
                100.0 * outliers,
                1e3 * turn,
                1e3 * place,
                100.0 * focal,
                samples / count as u64,
                median(times),
            );
            assert_eq!(wrong, 0, "{kind:?}, {outliers}");
            assert!(ok * 100 >= count * 95, "{kind:?}, {outliers}: {ok} of {count}");
        }
    }
}

#[test]
fn what_does_not_fix_a_kind_is_named() {
    let mut random = Random::new(9);
    let truth = Truth::new(CameraProblem::Focal, &mut random);
    let back = |p: Vector| truth.camera_t_map.rotation.transpose() * (p - truth.camera_t_map.translation);
    for kind in [CameraProblem::Focal, CameraProblem::FocalRadial] {
        let params = params(kind);
        let mut estimator = estimator(&params);
        // A wall that the camera looks at straight: farther away and a longer focal length look the same.
        let wall = problem(&truth, 100, 0.0, 0.5, FOCAL, &mut random, |r| {
            back(Vector::new(r.between(-2.0, 2.0), r.between(-1.5, 1.5), 4.0))
        });
        let found = estimator.absolute(&wall, &params);
        assert_eq!((found.status, found.reason), (Status::Degenerate, Reason::Planar), "{kind:?}");
        let line = problem(&truth, 100, 0.0, 0.5, FOCAL, &mut random, |r| {
            back(Vector::new(0.0, 0.0, 4.0) + Vector::new(1.0, 0.4, 0.5) * r.between(-1.0, 1.0))
        });
        let found = estimator.absolute(&line, &params);
        assert_eq!(found.status, Status::Degenerate, "{kind:?}: {}", found.reason);
    }
    // The same wall, and wrong rows before and behind it.
    for kind in [CameraProblem::Focal, CameraProblem::FocalRadial] {
        let params = params(kind);
        let mut estimator = estimator(&params);
        for _ in 0..scenes(2) {
            let mut drawn = 0;
            let input = problem(&truth, 100, 0.2, 0.5, FOCAL, &mut random, |r| {
                drawn += 1;
                let wall = back(Vector::new(r.between(-2.0, 2.0), r.between(-1.5, 1.5), 4.0));
                if drawn > 40 {
                    wall
                } else {
                    truth.point(r)
                }
            });
            let found = estimator.absolute(&input, &params);
            let [turn, place, focal, _] = errors(found, &truth);
            let right = turn < 0.02 && place < 0.2 && focal < 0.05;
            assert!(found.status != Status::Ok || right, "{kind:?}: {turn} {place} {focal}");
        }
    }
    let mut bare = problem(&truth, 20, 0.0, 0.5, FOCAL, &mut random, |r| truth.point(r));
    let rows = bare.rows().to_vec();
    bare.clear();
    rows.iter().for_each(|row| assert!(bare.push(*row)));
    for kind in [CameraProblem::Focal, CameraProblem::RollingShutter] {
        let params = params(kind);
        let found = estimator(&params).absolute(&bare, &params).clone();
        assert_eq!((found.status, found.reason), (Status::BadInput, Reason::NoPixels), "{kind:?}");
    }
}

#[test]
fn pnp_of_all_rows_is_what_sampling_refines_to() {
    let [sampled, whole] = [CameraProblem::Calibrated, CameraProblem::Pnp].map(params);
    let mut estimators = [estimator(&sampled), estimator(&whole)];
    let mut random = Random::new(11);
    for n in [12, 30, 200] {
        let truth = Truth::new(CameraProblem::Pnp, &mut random);
        let input = problem(&truth, n, 0.0, 0.7, FOCAL, &mut random, |r| truth.point(r));
        let a = estimators[0].absolute(&input, &sampled).clone();
        let b = estimators[1].absolute(&input, &whole).clone();
        let (Some(p), Some(q)) = (a.target_t_source, b.target_t_source) else { panic!("{n}: no pose") };
        let (turn, place) = pose_error(&p, &q);
        assert!(turn < 1e-6 && place < 1e-5, "{n}: {turn} {place}");
        assert_eq!((a.status, b.status), (Status::Ok, Status::Ok), "{n}: {} {}", a.reason, b.reason);
    }
}

/// Two views of points by a camera with a focal length that is only guessed, a share of the rows wrong.
fn two_views(second: &Pose, outliers: f64, guess: f64, random: &mut Random) -> RelativeProblem {
    const ROWS: usize = 200;
    let mut problem = RelativeProblem::with_capacity(ROWS);
    problem.set_intrinsics(Intrinsics { focal: [guess; 2], centre: [320.0, 240.0] });
    let look = |p: &Vector, random: &mut Random| {
        let at = p.xy() / p.z;
        let pixel = at * FOCAL + Vector2::new(random.normal(1.0), random.normal(1.0));
        let ray = Vector::new(pixel.x / guess, pixel.y / guess, 1.0);
        let metric = Matrix2x3::new(1.0, 0.0, -ray.x, 0.0, 1.0, -ray.y) * (ray.norm() * guess / THRESHOLD);
        let sight =
            Sight { bearing: ray.normalize(), metric, pixel: Some([pixel.x + 320.0, pixel.y + 240.0]) };
        (p.z > 0.5 && at.norm() < 0.8).then_some(sight)
    };
    while problem.rows().len() < ROWS {
        let wrong = (problem.rows().len() as f64) < outliers * ROWS as f64;
        let first = random.seen();
        let other = if wrong { random.seen() } else { first };
        let sights = (look(&first, random), look(&second.apply(&other), random));
        if let (Some(sight), Some(reference)) = sights {
            problem.push(RelativeRow { sight, reference, weight: 1.0, id: None });
        }
    }
    problem
}

#[test]
fn two_views_tell_the_focal_length_unless_their_axes_are_parallel() {
    let params = params(CameraProblem::Focal);
    let mut estimator = estimator(&params);
    let mut random = Random::new(3);
    println!("| two views, outliers, % | ok | wrong | rotation, mrad | direction, mrad | focal, % | ms |");
    for outliers in [0.0, 0.3] {
        let count = scenes(2);
        let (mut ok, mut wrong, mut all, mut times) = (0, 0, [vec![], vec![], vec![]], Vec::new());
        for _ in 0..count {
            let rotation = random.turn(0.4).to_rotation_matrix().into_inner();
            let second = Pose { rotation, translation: random.vector(1.0).normalize() };
            let input = two_views(&second, outliers, 0.8 * FOCAL, &mut random);
            let start = Instant::now();
            let found = estimator.relative(&input, &params);
            times.push(start.elapsed().as_secs_f64() * 1e3);
            let Some(pose) = found.target_t_source else { continue };
            let (turn, _) = pose_error(&pose, &second.to_rigid());
            let direction = (pose.translation.vector - second.translation).norm();
            let focal = (found.focal.unwrap_or(0.0) / FOCAL - 1.0).abs();
            let right = turn < 0.05 && direction < 0.1 && focal < 0.1;
            ok += usize::from(found.status == Status::Ok && right);
            wrong += usize::from(found.status == Status::Ok && !right);
            if found.status != Status::Ok || !right {
                println!("{} {} {turn} {direction} {focal} {}", found.status, found.reason, found.inliers);
            }
            all.iter_mut().zip([turn, direction, focal]).for_each(|(all, error)| all.push(error));
        }
        let [turn, direction, focal] = all.map(median);
        println!(
            "| {:.0} | {ok} of {count} | {wrong} | {:.2} | {:.2} | {:.2} | {:.0} |",
            100.0 * outliers,
            1e3 * turn,
            1e3 * direction,
            100.0 * focal,
            median(times),
        );
        assert_eq!(wrong, 0, "{outliers}");
        assert!(ok * 2 >= count, "{outliers}: {ok} of {count}");
    }
    let aside = Pose { translation: Vector::new(0.8, 0.1, 0.0).normalize(), ..Pose::identity() };
    let input = two_views(&aside, 0.0, FOCAL, &mut random);
    let found = estimator.relative(&input, &params);
    assert_ne!(found.status, Status::Ok, "{} {:?}", found.reason, found.focal);
}
