//! The transform buffer answers with the truth or with an error, and stays within its memory.

use flashreg::geometry::{Point, Rigid, Vector};
use flashreg::localizer::transforms::{TransformBuffer, TransformError, MAX_FRAMES};
use flashreg::messages::transforms::TransformSample;
use flashreg::messages::Stamp;
use nalgebra::UnitQuaternion;
use std::f64::consts::{FRAC_PI_2, PI};

fn at(seconds: f64) -> Stamp {
    Stamp::default().plus(seconds)
}

fn sample<'a>(parent: &'a str, child: &'a str, seconds: f64, pose: &Rigid) -> TransformSample<'a> {
    let q = pose.rotation.coords;
    TransformSample {
        parent,
        child,
        stamp: at(seconds),
        translation: pose.translation.vector.into(),
        rotation: [q.x, q.y, q.z, q.w],
    }
}

fn pose(x: f64, y: f64, yaw: f64) -> Rigid {
    Rigid::new(Vector::new(x, y, 0.0), Vector::new(0.0, 0.0, yaw))
}

fn assert_same(got: &Rigid, want: &Rigid) {
    let difference = got.inv_mul(want);
    assert!(difference.translation.vector.norm() < 1e-9, "{got} is not {want}");
    assert!(difference.rotation.angle() < 1e-7, "{got} is not {want}");
}

/// odom -> base moves along a circle, base -> lidar is fixed.
fn robot() -> TransformBuffer {
    let mut buffer = TransformBuffer::new(10.0);
    for i in 0..=20 {
        let t = f64::from(i) * 0.1;
        buffer.insert(&sample("odom", "base", t, &pose(t, 0.0, t)), false).expect("taken");
    }
    buffer.insert(&sample("base", "lidar", 0.0, &pose(0.5, 0.0, FRAC_PI_2)), true).expect("taken");
    buffer
}

#[test]
fn between_samples_it_agrees_with_the_closed_form() {
    let buffer = robot();
    for t in [0.0, 0.03, 0.1, 0.777, 1.99, 2.0] {
        let odom_t_base = buffer.lookup("odom", "base", at(t)).expect("known");
        assert_same(&odom_t_base, &pose(t, 0.0, t));
        let odom_t_lidar = buffer.lookup("odom", "lidar", at(t)).expect("known");
        assert_same(&odom_t_lidar, &(pose(t, 0.0, t) * pose(0.5, 0.0, FRAC_PI_2)));
        let lidar_t_odom = buffer.lookup("lidar", "odom", at(t)).expect("known");
        assert_same(&lidar_t_odom, &odom_t_lidar.inverse());
    }
}

#[test]
fn rotation_goes_the_short_way_about_one_axis() {
    let axis = nalgebra::Unit::new_normalize(Vector::new(1.0, 2.0, -0.5));
    let mut buffer = TransformBuffer::new(10.0);
    let turned =
        |angle| Rigid::from_parts(Vector::zeros().into(), UnitQuaternion::from_axis_angle(&axis, angle));
    buffer.insert(&sample("a", "b", 0.0, &turned(0.0)), false).expect("taken");
    // The same rotation with the quaternion of the other sign.
    let mut end = sample("a", "b", 1.0, &turned(PI * 0.99));
    end.rotation = end.rotation.map(|v| -v);
    buffer.insert(&end, false).expect("taken");
    for share in [0.1, 0.25, 0.5, 0.9] {
        assert_same(&buffer.lookup("a", "b", at(share)).expect("known"), &turned(PI * 0.99 * share));
    }
}

#[test]
fn frames_on_two_branches_are_joined_at_their_common_ancestor() {
    let mut buffer = robot();
    buffer.insert(&sample("base", "camera", 0.0, &pose(0.2, 0.1, -0.3)), true).expect("taken");
    let want = pose(0.5, 0.0, FRAC_PI_2).inv_mul(&pose(0.2, 0.1, -0.3));
    // Above the ancestor nothing is asked: long after the odometry has ended.
    assert_same(&buffer.lookup("lidar", "camera", at(1e6)).expect("static"), &want);
}

#[test]
fn nothing_is_extrapolated() {
    let buffer = robot();
    match buffer.lookup("odom", "lidar", at(2.25)) {
        Err(TransformError::Future { parent, child, by }) => {
            assert_eq!((parent.as_str(), child.as_str()), ("odom", "base"));
            assert!((by - 0.25).abs() < 1e-9);
        }
        other => panic!("{other:?}"),
    }
    match buffer.lookup("odom", "base", at(-1.5)) {
        Err(TransformError::Past { by, .. }) => assert!((by - 1.5).abs() < 1e-9),
        other => panic!("{other:?}"),
    }
    let mut single = TransformBuffer::new(10.0);
    single.insert(&sample("a", "b", 1.0, &pose(1.0, 0.0, 0.0)), false).expect("taken");
    assert_same(&single.lookup("a", "b", at(1.0)).expect("exact"), &pose(1.0, 0.0, 0.0));
    single.lookup("a", "b", Stamp(at(1.0).0 + 1)).expect_err("a nanosecond late");
}

#[test]
fn unknown_and_unconnected_frames_are_named() {
    let mut buffer = robot();
    let unknown = |frame: &str| Err(TransformError::UnknownFrame(frame.to_owned()));
    assert_eq!(buffer.lookup("base", "radar", at(1.0)), unknown("radar"));
    assert_eq!(buffer.lookup("map", "base", at(1.0)), unknown("map"));
    assert_eq!(buffer.lookup("base", "", at(1.0)), unknown(""));
    buffer.insert(&sample("world", "tower", 0.0, &pose(0.0, 0.0, 0.0)), true).expect("taken");
    let error = buffer.lookup("odom", "tower", at(1.0)).expect_err("not connected");
    assert_eq!(error.to_string(), "frames 'odom' and 'tower' are not connected in tf");
    assert_eq!(buffer.lookup("nowhere", "nowhere", at(0.0)), Ok(Rigid::identity()));
}

#[test]
fn a_leading_slash_makes_no_difference() {
    let mut buffer = TransformBuffer::new(10.0);
    buffer.insert(&sample("/a", "b", 1.0, &pose(1.0, 2.0, 0.3)), false).expect("taken");
    assert_same(&buffer.lookup("a", "/b", at(1.0)).expect("known"), &pose(1.0, 2.0, 0.3));
}

#[test]
fn order_of_arrival_makes_no_difference_and_the_last_duplicate_counts() {
    let mut buffer = TransformBuffer::new(10.0);
    for t in [3.0, 1.0, 2.0, 2.0, 0.0] {
        buffer.insert(&sample("a", "b", t, &pose(t * 2.0, 0.0, 0.0)), false).expect("taken");
    }
    assert_eq!(buffer.len(), 4);
    assert_same(&buffer.lookup("a", "b", at(1.5)).expect("known"), &pose(3.0, 0.0, 0.0));
    buffer.insert(&sample("a", "b", 2.0, &pose(9.0, 0.0, 0.0)), false).expect("taken");
    assert_eq!(buffer.len(), 4);
    assert_same(&buffer.lookup("a", "b", at(2.0)).expect("known"), &pose(9.0, 0.0, 0.0));
}

#[test]
fn samples_that_make_no_sense_are_refused() {
    let mut buffer = robot();
    let good = sample("base", "x", 1.0, &pose(1.0, 0.0, 0.0));
    let mut refused = |sample: TransformSample| buffer.insert(&sample, false).expect_err("refused");
    for value in [f64::NAN, f64::INFINITY] {
        let error = refused(TransformSample { translation: [0.0, value, 0.0], ..good });
        assert!(matches!(error, TransformError::NotFinite { .. }));
        let error = refused(TransformSample { rotation: [0.0, 0.0, value, 1.0], ..good });
        assert!(matches!(error, TransformError::NotFinite { .. }));
    }
    for rotation in [[0.0; 4], [0.0, 0.0, 0.0, 1.002], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1e200]] {
        assert!(matches!(refused(TransformSample { rotation, ..good }), TransformError::NotUnit { .. }));
    }
    assert_eq!(
        refused(TransformSample { child: "/base", ..good }),
        TransformError::SelfParent("base".into())
    );
    assert_eq!(refused(TransformSample { child: "", ..good }), TransformError::BadName(0));
    assert_eq!(refused(TransformSample { parent: &"x".repeat(300), ..good }), TransformError::BadName(300));
    let error = refused(TransformSample { parent: "lidar", child: "odom", ..good });
    assert_eq!(error.to_string(), "transform 'lidar' -> 'odom' closes a loop");
    // Nothing of this was kept.
    assert!(buffer.lookup("base", "x", at(1.0)).is_err());
    assert_same(&buffer.lookup("odom", "base", at(1.0)).expect("known"), &pose(1.0, 0.0, 1.0));
}

#[test]
fn a_quaternion_a_little_off_is_normalised() {
    let mut buffer = TransformBuffer::new(10.0);
    let mut off = sample("a", "b", 1.0, &pose(0.0, 0.0, 0.5));
    off.rotation = off.rotation.map(|v| v * 1.0005);
    buffer.insert(&off, true).expect("taken");
    let rotation = buffer.lookup("a", "b", at(0.0)).expect("known").rotation;
    assert!((rotation.coords.norm() - 1.0).abs() < 1e-12);
}

#[test]
fn a_new_parent_begins_the_history_anew() {
    let mut buffer = robot();
    buffer.insert(&sample("odom2", "base", 1.0, &pose(7.0, 0.0, 0.0)), false).expect("taken");
    assert_eq!(buffer.reparented(), 1);
    assert_same(&buffer.lookup("odom2", "base", at(1.0)).expect("known"), &pose(7.0, 0.0, 0.0));
    assert!(matches!(buffer.lookup("odom", "base", at(1.0)), Err(TransformError::UnknownFrame(_))));
    assert_eq!(buffer.len(), 1);
}

#[test]
fn static_and_moving_may_take_turns() {
    let mut buffer = robot();
    buffer.insert(&sample("odom", "base", 0.0, &pose(4.0, 0.0, 0.0)), true).expect("taken");
    assert_eq!(buffer.len(), 0);
    assert_same(&buffer.lookup("odom", "base", at(99.0)).expect("static"), &pose(4.0, 0.0, 0.0));
    buffer.insert(&sample("odom", "base", 5.0, &pose(5.0, 0.0, 0.0)), false).expect("taken");
    assert!(buffer.lookup("odom", "base", at(99.0)).is_err());
    assert_eq!(buffer.len(), 1);
}

#[test]
fn a_jump_of_the_clock_clears_what_moves() {
    let mut buffer = robot();
    buffer.clear();
    assert_eq!(buffer.len(), 0);
    assert!(buffer.lookup("odom", "base", at(1.0)).is_err());
    assert_same(&buffer.lookup("base", "lidar", at(1.0)).expect("static"), &pose(0.5, 0.0, FRAC_PI_2));
    buffer.insert(&sample("odom", "base", -50.0, &pose(1.0, 0.0, 0.0)), false).expect("an earlier time");
}

#[test]
fn history_has_the_length_asked_for() {
    let mut buffer = TransformBuffer::new(2.0);
    for i in 0..100 {
        buffer.insert(&sample("a", "b", f64::from(i), &pose(0.0, 0.0, 0.0)), false).expect("taken");
    }
    assert_eq!(buffer.len(), 3);
    let error = buffer.insert(&sample("a", "b", 50.0, &pose(0.0, 0.0, 0.0)), false).expect_err("old");
    assert!(matches!(error, TransformError::TooOld { by, .. } if (by - 49.0).abs() < 1e-9));
}

#[test]
fn a_million_insertions_stay_bounded_and_correct() {
    let mut buffer = TransformBuffer::new(10.0);
    for i in 0..1_000_000 {
        let t = f64::from(i) * 1e-3;
        buffer.insert(&sample("odom", "base", t, &pose(t, 0.0, 0.0)), false).expect("taken");
    }
    assert!(buffer.len() <= 10_002, "{} samples", buffer.len());
    let got = buffer.lookup("odom", "base", at(995.0005)).expect("known");
    assert!((got.transform_point(&Point::origin()).x - 995.0005).abs() < 1e-9);
}

#[test]
fn frames_without_end_stay_bounded() {
    let mut buffer = TransformBuffer::new(10.0);
    let mut refused = 0;
    for i in 0..200_000 {
        let child = format!("frame_{i}");
        let result = buffer.insert(&sample("odom", &child, 1.0, &pose(0.0, 0.0, 0.0)), i % 2 == 0);
        match result {
            Ok(()) => {}
            Err(TransformError::Full(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 200_000 - MAX_FRAMES);
    // Known frames go on being updated.
    buffer.insert(&sample("odom", "frame_1", 1.5, &pose(0.0, 0.0, 0.0)), false).expect("taken");
}

#[test]
fn a_long_chain_is_climbed() {
    let mut buffer = TransformBuffer::new(10.0);
    let names: Vec<String> = (0..=MAX_FRAMES).map(|i| format!("f{i}")).collect();
    for pair in names.windows(2) {
        buffer.insert(&sample(&pair[0], &pair[1], 0.0, &pose(1.0, 0.0, 0.0)), true).expect("taken");
    }
    let first_t_last = buffer.lookup(&names[0], &names[MAX_FRAMES], at(0.0)).expect("known");
    assert_same(&first_t_last, &pose(MAX_FRAMES as f64, 0.0, 0.0));
    let error = buffer.insert(&sample(&names[MAX_FRAMES], &names[0], 0.0, &pose(1.0, 0.0, 0.0)), true);
    assert!(matches!(error, Err(TransformError::Loop { .. })));
}
