//! Points and poses of cameras of which more than the pose is unknown, against known truth.
//!
//! `FLASHREG_KINDS_SCENES=N` draws N scenes in place of a few, and prints tables with `--nocapture`.

use flashreg::estimation::{Sight, TriangulationProblem, Triangulator};
use flashreg::geometry::{Pose, Vector};
use flashreg::homotopy::problems::Random;
use flashreg::homotopy::Backend;
use flashreg::params::CameraSolver;
use flashreg::status::PointStatus;
use nalgebra::Matrix2x3;
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
