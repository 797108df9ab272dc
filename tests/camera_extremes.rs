//! Estimations of camera poses from input at the edge of what numbers can hold: nothing panics, no number of a result
//! is not finite, and what is trusted is right.

use flashreg::estimation::{
    AbsoluteProblem, AbsoluteRow, Estimation, Estimator, RelativeProblem, RelativeRow, Sight,
};
use flashreg::geometry::{pose_error, Point, Rigid, Vector};
use flashreg::params::{Params, Value};
use flashreg::simulate::sights::{absolute, relative};
use flashreg::status::Status;

/// Of each kind; more by FLASHREG_CASES.
fn cases() -> u64 {
    std::env::var("FLASHREG_CASES").map_or(3, |text| text.parse().expect("a number"))
}

fn params(changes: &[(&str, Value)]) -> Params {
    let mut params = Params::default();
    params.set("backend.kind", &Value::Text("cpu".to_owned())).expect("a parameter");
    params.set("camera.max_samples", &Value::Int(2000)).expect("a parameter");
    changes.iter().for_each(|(name, value)| params.set(name, value).expect("a parameter"));
    params
}

/// What holds of every result.
fn sound(what: &str, result: &Estimation, rows: usize) {
    assert_eq!(result.inlier_mask.len(), rows, "{what}");
    assert_eq!(result.inlier_mask.iter().filter(|m| **m).count(), result.inliers, "{what}");
    assert!(result.independent_inliers <= result.inliers, "{what}");
    if let Some(pose) = &result.target_t_source {
        let numbers = pose.translation.vector.iter().chain(pose.rotation.coords.iter());
        assert!(numbers.chain(result.covariance.iter()).all(|v| v.is_finite()), "{what}: {result:?}");
    }
    assert!(result.covariance.diagonal().iter().all(|v| *v >= 0.0), "{what}");
    assert!(result.status != Status::Ok || result.target_t_source.is_some(), "{what}");
    let told = [result.score, result.residual, result.margin, result.missed];
    assert!(told.iter().all(|v| v.is_finite()) && !result.log10_false_alarms.is_nan(), "{what}: {result:?}");
}

/// Trusted means right, up to so many metres.
fn right_if_trusted(what: &str, result: &Estimation, truth: &Rigid, metres: f64) -> bool {
    let trusted = result.status == Status::Ok;
    if let (true, Some(pose)) = (trusted, &result.target_t_source) {
        let (turn, shift) = pose_error(truth, pose);
        assert!(turn < 0.035 && shift < metres, "{what}: {turn} rad {shift} m, {result:?}");
    }
    trusted
}

/// Rows of an instance with 40 % wrong matches, changed.
fn rows(
    index: u64,
    n: usize,
    change: impl Fn(usize, AbsoluteRow) -> AbsoluteRow,
) -> (AbsoluteProblem, Rigid) {
    let sights = absolute::planted(7, 2 * index, n, 0.4);
    let mut problem = AbsoluteProblem::with_capacity(n);
    for (i, row) in sights.problem(4.0).rows().iter().enumerate() {
        problem.push(change(i, *row));
    }
    (problem, sights.truth.expect("a truth"))
}

#[test]
fn weights_and_coordinates_of_any_size_are_no_danger() {
    let params = params(&[]);
    let mut estimator = Estimator::new(&params).expect("a CPU");
    for index in 0..cases() {
        for weight in [1e-30, 1.0, 1e30] {
            let (problem, truth) = rows(index, 200, |i, row| {
                let weight = if i % 3 == 0 { weight } else { 1.0 };
                AbsoluteRow { weight, ..row }
            });
            let what = format!("weights {weight}, {index}");
            let result = estimator.absolute(&problem, &params);
            sound(&what, result, 200);
            assert!(right_if_trusted(&what, result, &truth, 0.1), "{what}: {:?}", result.reason);
        }
        for scale in [1e-300, 1e-30, 1e-9, 1e-3, 1e3, 1e9, 1e30, 1e150, 1e300] {
            let (problem, mut truth) =
                rows(index, 100, |_, row| AbsoluteRow { point: row.point * scale, ..row });
            truth.translation.vector *= scale;
            let what = format!("a map times {scale}, {index}");
            let result = estimator.absolute(&problem, &params);
            sound(&what, result, 100);
            right_if_trusted(&what, result, &truth, 4.0f64.min(0.1 * scale));
        }
        for away in [1e3, 1e6, 1e9, 1e12, 1e15, 1e200] {
            let shift = Vector::new(away, -0.3 * away, 0.1 * away);
            let (problem, mut truth) =
                rows(index, 100, |_, row| AbsoluteRow { point: row.point + shift, ..row });
            truth.translation.vector += shift;
            let what = format!("a map {away} m away, {index}");
            let result = estimator.absolute(&problem, &params);
            sound(&what, result, 100);
            let trusted = right_if_trusted(&what, result, &truth, 0.1);
            assert!(trusted || away > 1e7, "{what}: {:?}", result.reason);
        }
    }
}

#[test]
fn thresholds_and_numbers_of_rows_of_any_size_are_no_danger() {
    let params = params(&[]);
    let mut estimator = Estimator::new(&params).expect("a CPU");
    for index in 0..cases() {
        for threshold in [1e-12, 1e-3, 0.5, 50.0, 1e4, 1e12] {
            let sights = absolute::planted(8, index, 100, 0.3);
            let what = format!("threshold {threshold} px, {index}");
            let result = estimator.absolute(&sights.problem(threshold), &params);
            sound(&what, result, 100);
            right_if_trusted(&what, result, &sights.truth.expect("a truth"), 0.1 * sights.depth);
            let sights = relative::planted(8, index, 100, 0.3);
            sound(&what, estimator.relative(&sights.problem(threshold), &params), 100);
        }
        for n in 0..16 {
            let sights = absolute::planted(9, index, n, 0.0);
            let what = format!("{n} rows, {index}");
            let result = estimator.absolute(&sights.problem(4.0), &params);
            sound(&what, result, n);
            right_if_trusted(&what, result, &sights.truth.expect("a truth"), 0.1 * sights.depth);
            assert!(n >= 3 || result.status == Status::TooFew, "{what}: {}", result.status);
            let sights = relative::planted(9, index, n, 0.0);
            let result = estimator.relative(&sights.problem(4.0), &params);
            sound(&what, result, n);
            assert!(n >= 5 || result.status == Status::TooFew, "{what}: {}", result.status);
        }
    }
}

#[test]
fn bearings_all_around_and_rows_that_are_all_alike_are_no_danger() {
    let params = params(&[]);
    let mut estimator = Estimator::new(&params).expect("a CPU");
    for index in 0..cases() {
        // Some look back: a bearing has no image.
        let (problem, truth) = rows(index, 100, |i, row| {
            let back = if i % 2 == 0 { -1.0 } else { 1.0 };
            let bearing = Vector::new(row.sight.bearing.x, row.sight.bearing.y, back * row.sight.bearing.z);
            let sight = Sight::of_bearing(&bearing, 0.008).expect("a bearing");
            AbsoluteRow { sight, ..row }
        });
        sound("bearings that follow nothing", estimator.absolute(&problem, &params), 100);
        let camera_t_map = truth.inverse();
        let around = rows(index, 100, |i, row| {
            // The point on the other side of the camera, seen there.
            let p = camera_t_map * row.point;
            let p = if i % 2 == 0 { Point::from(-p.coords) } else { p };
            let sight = Sight::of_bearing(&p.coords, 0.008).expect("a bearing");
            AbsoluteRow { sight, point: truth * p, ..row }
        });
        let result = estimator.absolute(&around.0, &params);
        sound("bearings all around", result, 100);
        assert!(right_if_trusted("bearings all around", result, &truth, 0.01), "{:?}", result.reason);

        let (alike, truth) = rows(index, 100, |_, row| row);
        let first = alike.rows()[0];
        let (same, _) = rows(index, 100, |_, _| first);
        let result = estimator.absolute(&same, &params);
        sound("the same row", result, 100);
        assert_ne!(result.status, Status::Ok);
        let (center, _) =
            rows(index, 100, |_, row| AbsoluteRow { point: truth.translation.vector.into(), ..row });
        let result = estimator.absolute(&center, &params);
        sound("points in the centre of the camera", result, 100);
        assert_ne!(result.status, Status::Ok);

        let sights = relative::planted(10, index, 100, 0.0);
        let mut problem = RelativeProblem::with_capacity(100);
        for row in sights.problem(4.0).rows() {
            let sight = Sight::of_bearing(&-row.sight.bearing, 0.008).expect("a bearing");
            problem.push(RelativeRow { sight, ..*row });
        }
        sound("one view looks back", estimator.relative(&problem, &params), 100);
    }
}

#[test]
fn parameters_at_their_limits_are_no_danger() {
    for (name, value) in [
        ("camera.max_samples", Value::Int(1)),
        ("camera.confidence", Value::Float(0.5)),
        ("camera.confidence", Value::Float(0.999_999)),
        ("camera.time_budget_ms", Value::Float(1e-6)),
        ("camera.max_correspondences", Value::Int(3)),
        ("acceptance.min_inliers", Value::Int(100_000)),
        ("acceptance.max_runner_up", Value::Float(0.0)),
        ("acceptance.max_translation_std", Value::Float(1e-6)),
        ("acceptance.max_rotation_std", Value::Float(1e-6)),
        ("acceptance.significance", Value::Float(300.0)),
        ("camera.sampling", Value::Text("prosac".to_owned())),
    ] {
        let params = params(&[(name, value.clone())]);
        let mut estimator = Estimator::new(&params).expect("a CPU");
        let what = format!("{name} = {value:?}");
        for index in 0..cases() {
            for (n, wrong) in [(4, 0.0), (60, 0.2), (200, 0.9)] {
                let sights = absolute::planted(11, index, n, wrong);
                let result = estimator.absolute(&sights.problem(4.0), &params);
                sound(&what, result, n);
                right_if_trusted(&what, result, &sights.truth.expect("a truth"), 0.1 * sights.depth);
                let sights = relative::planted(11, index, n, wrong);
                sound(&what, estimator.relative(&sights.problem(4.0), &params), n);
            }
        }
    }
}
