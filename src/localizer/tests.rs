//! What is made of a registration, whatever it says. Registrations are written by hand here:
//! most of these cannot be had from honest input.

use super::covariance;
use super::found::Found;
use super::state::State;
use super::{Input, PoseSample, TfOut};
use crate::estimation::Estimation;
use crate::geometry::{Rigid, Vector};
use crate::messages::transforms::TransformSample;
use crate::messages::Stamp;
use crate::params::{CovarianceParams, Gravity, Params, TfMode};
use crate::registration::{Reason, Registration, RunnerUp};
use crate::status::{Counter, Status};
use nalgebra::{Matrix6, SymmetricEigen, Vector6};

fn at(seconds: f64) -> Stamp {
    Stamp::default().plus(seconds)
}

fn pose(x: f64, y: f64, z: f64, roll: f64, yaw: f64) -> Rigid {
    Rigid::new(Vector::new(x, y, z), Vector::zeros())
        * Rigid::rotation(Vector::z() * yaw)
        * Rigid::rotation(Vector::x() * roll)
}

fn base_t_sensor() -> Rigid {
    pose(0.8, -0.1, 1.5, 0.2, 2.0)
}

fn odom_t_base(seconds: f64) -> Rigid {
    pose(seconds - 100.0, 3.0, 0.0, 0.0, 0.1 * (seconds - 100.0))
}

fn insert(state: &State, parent: &str, child: &str, seconds: f64, pose: &Rigid, is_static: bool) {
    let q = pose.rotation.coords;
    let sample = TransformSample {
        parent,
        child,
        stamp: at(seconds),
        translation: pose.translation.vector.into(),
        rotation: [q.x, q.y, q.z, q.w],
    };
    state.transforms.lock().unwrap().insert(&sample, is_static).unwrap();
}

/// A robot with a sensor, odometry from 100 s to 109 s.
fn state(change: impl FnOnce(&mut Params)) -> State {
    let mut params = Params::default();
    change(&mut params);
    let state = State::new(&params);
    insert(&state, "base_link", "lidar", 0.0, &base_t_sensor(), true);
    for i in 0..=90 {
        let t = 100.0 + f64::from(i) * 0.1;
        insert(&state, "odom", "base_link", t, &odom_t_base(t), false);
    }
    state
}

fn found(status: Status, map_t_sensor: Rigid) -> Registration {
    Registration {
        status,
        reason: Reason::None,
        target_t_source: Some(map_t_sensor),
        inliers: 50,
        independent_inliers: 40,
        log10_false_alarms: -30.0,
        covariance: Matrix6::identity() * 1e-4,
        inlier_mask: vec![true; 100],
        ..Registration::default()
    }
}

/// The way of a message from where its pose has been found.
fn answer(state: &mut State, input: Input, seconds: f64, found: &Found) {
    state.frame.input = input;
    state.frame.begin(state.generation);
    state.frame.stamp = at(seconds);
    state.frame.after_filter = 100;
    let mount = state.mount(input, "lidar", at(seconds)).unwrap();
    state.conclude(found, &mount);
    let channel = state.channels.get_mut(input);
    channel.measured = channel.measured.max(Some(at(seconds)));
    state.channels.answered(input, state.frame.status);
}

fn conclude(state: &mut State, seconds: f64, found: &Registration) {
    answer(state, Input::Points3d3d, seconds, &found.into());
}

fn map_t_sensor() -> Rigid {
    pose(40.0, -7.0, 2.0, 0.1, -1.0)
}

fn assert_same(got: &Rigid, want: &Rigid) {
    let difference = got.inv_mul(want);
    assert!(difference.translation.vector.norm() < 1e-9, "{got} is not {want}");
    assert!(difference.rotation.angle() < 1e-7, "{got} is not {want}");
}

#[test]
fn an_accepted_pose_is_composed_to_map_odom_at_the_scan_stamp() {
    let mut state = state(|p| p.tf.transform_tolerance = 0.25);
    conclude(&mut state, 103.33, &found(Status::Ok, map_t_sensor()));
    let frame = &state.frame;
    assert_eq!((frame.status, frame.message.as_str(), frame.hold.is_none()), (Status::Ok, "", true));
    let accepted = frame.accepted.as_ref().unwrap();
    assert_same(&accepted.map_t_sensor, &map_t_sensor());
    assert_same(&(accepted.map_t_base * base_t_sensor()), &map_t_sensor());
    let tf = accepted.tf.as_ref().unwrap();
    assert_eq!((&*tf.parent, &*tf.child, tf.stamp), ("map", "odom", at(103.58)));
    let odom_t_sensor = odom_t_base(103.33) * base_t_sensor();
    // Interpolated odometry: exact in the translation here, to the rounding in the rotation.
    assert_same(&(tf.transform * odom_t_sensor), &map_t_sensor());
    assert_eq!((frame.facts.inliers, frame.facts.inlier_ratio), (50, 0.5));
    assert_eq!(frame.facts.inlier_mask.len(), 100);
    assert_same(&frame.facts.candidates[0].map_t_base, &accepted.map_t_base);
    assert_eq!(
        (state.counters().get(Counter::Accepted), state.channels.get(Input::Points3d3d).rejected_in_a_row),
        (1, 0)
    );
}

#[test]
fn the_mode_says_what_is_broadcast() {
    let mut map_base = state(|p| p.tf.mode = TfMode::MapBase);
    conclude(&mut map_base, 101.0, &found(Status::Ok, map_t_sensor()));
    let accepted = map_base.frame.accepted.clone().unwrap();
    let tf = accepted.tf.unwrap();
    assert_eq!((&*tf.parent, &*tf.child, tf.stamp), ("map", "base_link", at(101.1)));
    assert_same(&tf.transform, &accepted.map_t_base);
    // The robot has moved since: its old place is not sent again.
    conclude(&mut map_base, 101.5, &found(Status::LowInliers, map_t_sensor()));
    assert_eq!(map_base.frame.hold, None);

    let mut none = state(|p| p.tf.mode = TfMode::None);
    conclude(&mut none, 101.0, &found(Status::Ok, map_t_sensor()));
    assert_eq!(none.frame.accepted.clone().unwrap().tf, None);
    // Without odometry, as in map_base, the sensor's place on the base is all that is needed.
    none.transforms.lock().unwrap().clear();
    conclude(&mut none, 102.0, &found(Status::Ok, map_t_sensor()));
    assert_eq!(none.frame.status, Status::Ok);
}

#[test]
fn the_last_accepted_transform_is_held_for_a_while_and_then_stops() {
    let mut state = state(|p| p.tf.hold_sec = 2.0);
    let rejected = found(Status::LowInliers, pose(1.0, 1.0, 1.0, 0.0, 0.0));
    conclude(&mut state, 100.5, &rejected);
    assert_eq!(state.frame.hold, None, "nothing before the first accepted pose");
    conclude(&mut state, 101.0, &found(Status::Ok, map_t_sensor()));
    let sent = state.frame.accepted.clone().unwrap().tf.unwrap();
    for t in [101.0, 101.5, 103.0] {
        conclude(&mut state, t, &rejected);
        let expected = TfOut { stamp: at(t + 0.1), ..sent.clone() };
        assert_eq!((state.frame.hold.as_ref(), state.frame.accepted.as_ref()), (Some(&expected), None));
    }
    conclude(&mut state, 103.1, &rejected);
    assert_eq!(
        (state.frame.hold.as_ref(), state.channels.get(Input::Points3d3d).rejected_in_a_row),
        (None, 4)
    );
    conclude(&mut state, 104.0, &found(Status::Ok, map_t_sensor()));
    conclude(&mut state, 104.1, &found(Status::GpuFault, map_t_sensor()));
    assert_eq!(state.frame.hold, None, "a fault of the machine sends nothing");
    state.reset();
    conclude(&mut state, 104.2, &rejected);
    assert_eq!(state.frame.hold, None, "forgotten by the reset");
}

#[test]
fn every_rejection_has_its_counter_and_gives_no_pose() {
    for (status, counter) in [
        (Status::TooFew, Counter::RefusedTooFew),
        (Status::Degenerate, Counter::RejectedDegenerate),
        (Status::Ambiguous, Counter::RejectedAmbiguous),
        (Status::LowInliers, Counter::RejectedLowInliers),
        (Status::OverBudget, Counter::RejectedOverBudget),
        (Status::GpuFault, Counter::GpuFaults),
    ] {
        let mut state = state(|_| {});
        let mut registration = found(status, map_t_sensor());
        registration.reason = Reason::Inliers { got: 4, need: 8 };
        conclude(&mut state, 101.0, &registration);
        assert_eq!((state.frame.status, state.frame.accepted.is_none()), (status, true));
        assert_eq!(state.frame.message, registration.reason.to_string());
        for other in Counter::ALL {
            assert_eq!(state.counters().get(*other), u64::from(*other == counter), "{other} for {status}");
        }
        assert_eq!(state.channels.get(Input::Points3d3d).rejected_in_a_row, 1);
    }
}

#[test]
fn numbers_that_are_not_finite_never_leave() {
    let nan_pose = Rigid::translation(f64::NAN, 0.0, 0.0);
    let mut nan_covariance = found(Status::Ok, map_t_sensor());
    nan_covariance.covariance[(2, 4)] = f64::NAN;
    let mut infinite_covariance = found(Status::Ok, map_t_sensor());
    infinite_covariance.covariance[(0, 0)] = f64::INFINITY;
    let mut no_pose = found(Status::Ok, map_t_sensor());
    no_pose.target_t_source = None;
    for bad in [found(Status::Ok, nan_pose), nan_covariance, infinite_covariance, no_pose] {
        let mut state = state(|_| {});
        conclude(&mut state, 101.0, &bad);
        assert_eq!((state.frame.status, state.frame.accepted.is_none()), (Status::Degenerate, true));
        assert_eq!(state.counters().get(Counter::RejectedDegenerate), 1);
        assert_eq!(state.counters().get(Counter::Accepted), 0);
    }
}

/// Base in map, with the covariance of a pose clicked in a plane.
fn clicked(map_t_base: &Rigid) -> PoseSample {
    let q = map_t_base.rotation.coords;
    let mut covariance = [0.0; 36];
    (covariance[0], covariance[7], covariance[35]) = (0.25, 0.25, 0.07);
    PoseSample {
        position: map_t_base.translation.vector.into(),
        orientation: [q.x, q.y, q.z, q.w],
        covariance,
    }
}

fn ambiguous(best: Rigid, other: Rigid) -> Registration {
    Registration {
        runner_up: Some(RunnerUp { target_t_source: other, score: 45.0, inliers: 45 }),
        ..found(Status::Ambiguous, best)
    }
}

#[test]
fn an_initial_pose_settles_which_candidate_is_right() {
    let here = pose(40.0, -7.0, 0.0, 0.0, 0.5);
    let there = pose(10.0, 20.0, 0.0, 0.0, 0.5 + std::f64::consts::PI);
    for (best, other) in [(here, there), (there, here)] {
        let mut state = state(|_| {});
        let near = pose(40.4, -7.3, 0.6, 0.0, 0.7);
        state.set_initial_pose("/map", at(100.5), &clicked(&near), at(100.5)).unwrap();
        assert_eq!(state.generation, 1);
        // The robot has driven on since: both candidates have moved with it.
        let moved = odom_t_base(100.5).inv_mul(&odom_t_base(108.0));
        let registration = ambiguous(best * moved * base_t_sensor(), other * moved * base_t_sensor());
        conclude(&mut state, 108.0, &registration);
        assert_eq!(state.frame.status, Status::Ok, "{}", state.frame.message);
        assert_same(&state.frame.accepted.as_ref().unwrap().map_t_base, &(here * moved));
        assert_eq!(state.counters().get(Counter::RejectedAmbiguous), 0);
        // It goes on from the accepted pose, not from the click.
        assert_same(&state.prior.as_ref().unwrap().map_t_base, &(here * moved));
    }
}

#[test]
fn an_initial_pose_does_not_settle_what_it_cannot() {
    let here = pose(40.0, -7.0, 0.0, 0.0, 0.5);
    let close = pose(0.5, 0.0, 0.0, 0.0, 0.0) * here;
    let there = pose(10.0, 20.0, 0.0, 0.0, 3.0);
    let rejects = |prior: &Rigid, registration: &Registration| {
        let mut state = state(|_| {});
        state.set_initial_pose("map", at(100.5), &clicked(prior), at(100.5)).unwrap();
        conclude(&mut state, 100.5, registration);
        assert_eq!((state.frame.status, state.frame.accepted.is_none()), (Status::Ambiguous, true));
        assert_eq!(state.frame.facts.candidates.len(), 2);
    };
    let sensor = base_t_sensor();
    rejects(&here, &ambiguous(here * sensor, close * sensor)); // both agree
    rejects(&there, &ambiguous(here * sensor, close * sensor)); // none does
    let mut unsupported = ambiguous(here * sensor, there * sensor);
    unsupported.log10_false_alarms = -1.0;
    rejects(&here, &unsupported); // no better than chance: named after ambiguous
    let mut thin = ambiguous(here * sensor, there * sensor);
    thin.independent_inliers = 5;
    rejects(&here, &thin);
}

#[test]
fn without_odometry_an_initial_pose_soon_says_nothing() {
    let here = pose(40.0, -7.0, 0.0, 0.0, 0.5);
    let there = pose(10.0, 20.0, 0.0, 0.0, 3.0);
    let registration = ambiguous(here * base_t_sensor(), there * base_t_sensor());
    for (seconds, status) in [(101.0, Status::Ok), (103.0, Status::Ambiguous)] {
        let mut state = state(|p| p.tf.mode = TfMode::MapBase);
        state.transforms.lock().unwrap().clear();
        state.set_initial_pose("map", at(100.5), &clicked(&here), at(100.5)).unwrap();
        conclude(&mut state, seconds, &registration);
        assert_eq!(state.frame.status, status);
    }
}

#[test]
fn gravity_is_the_odometry_s_z_as_the_sensor_sees_it() {
    let mut state = state(|p| p.registration.gravity = Gravity::Odom);
    let mount = state.mount(Input::Points3d3d, "lidar", at(104.0)).unwrap();
    state.set_up(&mount);
    let [sensor_up, map_up] = state.problems.points.up().unwrap();
    let odom_t_sensor = odom_t_base(104.0) * base_t_sensor();
    assert!((odom_t_sensor.rotation * sensor_up - Vector::z()).norm() < 1e-12);
    assert_eq!(map_up, Vector::z());
    state.frame.input = Input::Sights2d3d;
    state.set_up(&mount);
    assert_eq!(state.problems.sights.up(), Some([sensor_up, map_up]));
}

/// What an estimation found: 2D-3D, or 2D-2D with a translation of length one.
fn estimated(status: Status, target_t_source: Rigid) -> Estimation {
    Estimation {
        status,
        reason: crate::estimation::Reason::None,
        target_t_source: Some(target_t_source),
        inliers: 60,
        independent_inliers: 50,
        log10_false_alarms: -30.0,
        covariance: Matrix6::identity() * 1e-4,
        inlier_mask: vec![true; 100],
        ..Estimation::default()
    }
}

fn camera(state: &mut State, seconds: f64, status: Status) {
    answer(state, Input::Sights2d3d, seconds, &(&estimated(status, map_t_sensor())).into());
}

fn lidar(state: &mut State, seconds: f64, status: Status) {
    conclude(state, seconds, &found(status, map_t_sensor()));
}

#[test]
fn camera_poses_go_the_way_of_all_poses_in_the_map() {
    let mut state = state(|_| {});
    camera(&mut state, 103.33, Status::Ok);
    let accepted = state.frame.accepted.clone().unwrap();
    assert_same(&(accepted.map_t_base * base_t_sensor()), &map_t_sensor());
    let odom_t_sensor = odom_t_base(103.33) * base_t_sensor();
    assert_same(&(accepted.tf.unwrap().transform * odom_t_sensor), &map_t_sensor());
    assert_eq!((state.frame.facts.inliers, state.frame.facts.candidates.len()), (60, 1));
    assert_eq!(state.frame.facts.stages.get("search"), Some(0.0));
    assert_eq!(state.channels.get(Input::Sights2d3d).counters.get(Counter::Accepted), 1);
    assert_eq!(state.channels.get(Input::Points3d3d).counters, Default::default());
    assert_eq!((state.counters().get(Counter::Accepted), state.deciding()), (1, Input::Sights2d3d));
}

#[test]
fn the_freshest_pose_is_broadcast_whichever_input_it_is_from() {
    let mut state = state(|_| {});
    let broadcast = |state: &State| state.frame.accepted.as_ref().map(|pose| pose.tf.is_some());
    lidar(&mut state, 103.0, Status::Ok);
    assert_eq!(broadcast(&state), Some(true));
    camera(&mut state, 102.9, Status::Ok);
    assert_eq!((broadcast(&state), state.frame.status), (Some(false), Status::Ok));
    assert_eq!(state.frame.message, "older than the last pose");
    assert_eq!(state.channels.get(Input::Sights2d3d).counters.get(Counter::Superseded), 1);
    camera(&mut state, 103.1, Status::Ok);
    assert_eq!((broadcast(&state), state.frame.message.as_str()), (Some(true), ""));
    lidar(&mut state, 103.05, Status::Ok);
    assert_eq!(broadcast(&state), Some(false));
    // The same measurement again, asked for by a trigger.
    camera(&mut state, 103.1, Status::Ok);
    assert_eq!(broadcast(&state), Some(true));
    let counters = state.counters();
    assert_eq!((counters.get(Counter::Accepted), counters.get(Counter::Superseded)), (5, 2));
    assert_eq!(state.deciding(), Input::Sights2d3d, "its pose is the newest");
    state.reset();
    lidar(&mut state, 102.0, Status::Ok);
    assert_eq!(broadcast(&state), Some(true), "after a reset there is no newer one");
}

#[test]
fn what_one_input_cannot_answer_takes_nothing_from_the_other() {
    let mut state = state(|p| p.tf.hold_sec = 5.0);
    lidar(&mut state, 103.0, Status::Ok);
    for t in [102.95, 103.1, 103.9] {
        camera(&mut state, t, Status::LowInliers);
        assert_eq!((state.frame.status, &state.frame.hold), (Status::LowInliers, &None));
        assert_eq!((state.deciding(), state.category(at(t))), (Input::Points3d3d, Status::Ok));
    }
    let rejected = |state: &State, input| state.channels.get(input).rejected_in_a_row;
    assert_eq!((rejected(&state, Input::Points3d3d), rejected(&state, Input::Sights2d3d)), (0, 3));
    // The other one has come to an end: what it said holds for a while.
    camera(&mut state, 104.1, Status::LowInliers);
    assert!(state.frame.hold.is_some());
    assert_eq!((state.deciding(), state.category(at(104.1))), (Input::Sights2d3d, Status::LowInliers));
    // Neither has an answer: the last one speaks.
    lidar(&mut state, 104.2, Status::Ok);
    lidar(&mut state, 104.3, Status::Degenerate);
    assert!(state.frame.hold.is_some());
    camera(&mut state, 104.4, Status::Ambiguous);
    assert!(state.frame.hold.is_some());
    assert_eq!(state.category(at(104.4)), Status::Ambiguous);
}

#[test]
fn a_relative_pose_is_told_in_its_frame_and_never_broadcast() {
    let mut state = state(|p| p.camera.reference_frame = "keyframe".to_owned());
    let reference_t_camera = pose(0.6, 0.0, 0.8, 0.1, 0.2);
    let pair = |state: &mut State, t, status, pose| {
        // No transform is known at this time, and none is needed.
        answer(state, Input::Sights2d2d, t, &(&estimated(status, pose)).into());
    };
    pair(&mut state, 500.0, Status::Ok, reference_t_camera);
    let relative = state.frame.relative.clone().unwrap();
    assert_eq!((&*relative.frame, relative.reference_t_camera), ("keyframe", reference_t_camera));
    assert_eq!((state.frame.status, &state.frame.accepted, &state.frame.hold), (Status::Ok, &None, &None));
    assert!(state.frame.facts.candidates.is_empty());
    assert_eq!((state.deciding(), state.category(at(500.0))), (Input::Sights2d2d, Status::Ok));
    state.reset();

    lidar(&mut state, 103.0, Status::LowInliers);
    pair(&mut state, 103.0, Status::Ok, reference_t_camera);
    assert_eq!((state.deciding(), state.category(at(103.0))), (Input::Points3d3d, Status::LowInliers));
    lidar(&mut state, 103.1, Status::Ok);
    pair(&mut state, 105.0, Status::LowInliers, reference_t_camera);
    assert_eq!((&state.frame.relative, &state.frame.hold), (&None, &None));
    for status in [Status::Degenerate, Status::Ambiguous] {
        pair(&mut state, 105.0, status, reference_t_camera);
        assert_eq!((state.frame.status, &state.frame.relative), (status, &None));
    }
    pair(&mut state, 105.0, Status::Ok, Rigid::translation(f64::NAN, 0.0, 0.0));
    assert_eq!((state.frame.status, &state.frame.relative), (Status::Degenerate, &None));
}

#[test]
fn covariance_moves_with_the_lever_from_sensor_to_base() {
    let (map_t_sensor, sensor_t_base) = (map_t_sensor(), base_t_sensor().inverse());
    let map_t_base = map_t_sensor * sensor_t_base;
    let step = 1e-6;
    for i in 0..6 {
        let mut direction = Vector6::zeros();
        direction[i] = 1.0;
        direction[(i + 2) % 6] = -0.5;
        // The sensor moves a little: shifted, and turned about its own origin in axes of the map.
        let shift = direction.fixed_rows::<3>(0) * step;
        let turn = nalgebra::UnitQuaternion::from_scaled_axis(direction.fixed_rows::<3>(3) * step);
        let moved_sensor =
            Rigid::from_parts((map_t_sensor.translation.vector + shift).into(), turn * map_t_sensor.rotation);
        let moved_base = moved_sensor * sensor_t_base;
        let base_shift = (moved_base.translation.vector - map_t_base.translation.vector) / step;
        let base_turn = (moved_base.rotation * map_t_base.rotation.inverse()).scaled_axis() / step;
        let mut base_direction = Vector6::zeros();
        base_direction.fixed_rows_mut::<3>(0).copy_from(&base_shift);
        base_direction.fixed_rows_mut::<3>(3).copy_from(&base_turn);
        let got =
            covariance::sensor_to_base(&(direction * direction.transpose()), &map_t_sensor, &map_t_base);
        assert!((got - base_direction * base_direction.transpose()).amax() < 1e-4);
    }
}

#[test]
fn a_published_covariance_is_raised_and_bounded() {
    let params = CovarianceParams::default();
    let floor = Vector6::from_iterator([0.2f64, 0.2, 0.2, 0.035, 0.035, 0.035].map(|s| s * s));
    let zero = covariance::publishable(&Matrix6::zeros(), Input::Points3d3d, &params).unwrap();
    assert!((zero - Matrix6::from_diagonal(&floor)).amax() < 1e-12);

    let of_scans = covariance::publishable(&Matrix6::zeros(), Input::Points, &params).unwrap();
    assert!((of_scans[(0, 0)] - 1e-6).abs() < 1e-12 && (of_scans[(5, 5)] - 1e-8).abs() < 1e-12);

    // Large along one skew direction: that stays, all else is raised.
    let direction = Vector6::new(3.0, -2.0, 1.0, 0.5, -0.4, 0.3);
    let skew = direction * direction.transpose();
    let raised = covariance::publishable(&skew, Input::Points3d3d, &params).unwrap();
    assert_eq!(raised, raised.transpose());
    assert!(SymmetricEigen::new(raised - skew).eigenvalues.min() > -1e-9, "never lower");
    let above = raised - Matrix6::from_diagonal(&floor);
    assert!(SymmetricEigen::new(above).eigenvalues.min() > -1e-9, "at least the floor");

    let huge = covariance::publishable(&(skew * 1e9), Input::Points3d3d, &params).unwrap();
    assert!(huge.diagonal().iter().all(|v| (1e-9..=1e6).contains(v)));
    assert!(SymmetricEigen::new(huge).eigenvalues.min() > -1e-6);

    let diagonal = CovarianceParams { diagonal_only: true, ..params };
    let plain = covariance::publishable(&skew, Input::Points3d3d, &diagonal).unwrap();
    assert_eq!(plain, Matrix6::from_diagonal(&raised.diagonal()));
    assert_eq!(covariance::publishable(&(skew * f64::NAN), Input::Points3d3d, &diagonal), None);

    for scale in [1e300, 1e308, f64::MAX] {
        let beyond = covariance::publishable(&(Matrix6::identity() * scale), Input::Points3d3d, &params);
        assert!(beyond.is_none_or(|c| c.diagonal().iter().all(|v| (1e-9..=1e6).contains(v))));
    }
}
