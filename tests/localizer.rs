//! From the bytes of a message to the pose that goes out, with the real registration.

mod common;

use common::{recorded, CameraInfo, Cloud, SIX};
use flashreg::geometry::{Point, Rigid, Vector};
use flashreg::localizer::{Input, Localizer, Missing, PoseSample};
use flashreg::messages::cdr::CdrReader;
use flashreg::messages::transforms::TransformSample;
use flashreg::messages::Stamp;
use flashreg::params::{BackendChoice, Params, TfMode};
use flashreg::status::{Counter, Status};
use nalgebra::{Quaternion, UnitQuaternion};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

fn at(seconds: f64) -> Stamp {
    Stamp::default().plus(seconds)
}

fn base_t_sensor() -> Rigid {
    Rigid::new(Vector::new(0.4, 0.0, 1.2), Vector::new(0.0, 0.1, 1.0))
}

fn odom_t_base(seconds: f64) -> Rigid {
    Rigid::new(Vector::new(seconds - 100.0, 0.0, 0.0), Vector::new(0.0, 0.0, 0.2 * (seconds - 100.0)))
}

fn sample<'a>(parent: &'a str, child: &'a str, seconds: f64, pose: &Rigid) -> TransformSample<'a> {
    let q = pose.rotation.coords;
    let translation = pose.translation.vector.into();
    TransformSample { parent, child, stamp: at(seconds), translation, rotation: [q.x, q.y, q.z, q.w] }
}

fn localizer() -> Localizer {
    let mut params = Params::default();
    params.backend.kind = BackendChoice::Cpu;
    params.registration.max_correspondences = 1024;
    params.registration.tau = 0.05;
    let localizer = Localizer::new(&params).expect("the CPU is always there");
    let transforms = localizer.transforms();
    let mut buffer = transforms.lock().expect("whole");
    buffer.insert(&sample("base_link", "lidar", 0.0, &base_t_sensor()), true).expect("taken");
    for i in 0..=60 {
        let t = 100.0 + 0.1 * f64::from(i);
        buffer.insert(&sample("odom", "base_link", t, &odom_t_base(t)), false).expect("taken");
    }
    drop(buffer);
    localizer
}

/// Correspondences under each of the poses in turn, then wrong ones.
fn message(seconds: f64, poses: &[Rigid], each: usize, wrong: usize) -> Vec<u8> {
    let mut rng = Pcg64::seed_from_u64(7);
    let sensed: Vec<Point> =
        (0..each).map(|_| Point::from(Vector::from_fn(|_, _| rng.random_range(-12.0..12.0)))).collect();
    let right = poses.iter().flat_map(|pose| sensed.iter().map(move |p| (*p, pose * p)));
    let mut pairs: Vec<(Point, Point)> = right.collect();
    pairs.extend((0..wrong).map(|i| {
        let anywhere = Vector::from_fn(|_, _| rng.random_range(-30.0..30.0));
        (sensed[i % each], Point::from(anywhere))
    }));
    let rows: Vec<Vec<f64>> = pairs
        .iter()
        .map(|(source, target)| {
            let noise = Vector::from_fn(|_, _| rng.random_range(-0.01..0.01));
            source.iter().copied().chain((target + noise).iter().copied()).collect()
        })
        .collect();
    let mut cloud = Cloud::new(&SIX, &rows);
    cloud.stamp = at(seconds);
    cloud.encode()
}

fn map_t_base() -> Rigid {
    Rigid::new(Vector::new(15.0, -4.0, 0.3), Vector::new(0.0, 0.0, 2.0))
}

fn assert_near(got: &Rigid, want: &Rigid) {
    let difference = got.inv_mul(want);
    assert!(difference.translation.vector.norm() < 0.02, "{got} is not {want}");
    assert!(difference.rotation.angle() < 0.002, "{got} is not {want}");
}

#[test]
fn a_robot_that_recognizes_the_map_is_localized() {
    let mut localizer = localizer();
    let cdr = message(103.0, &[map_t_base() * base_t_sensor()], 80, 120);
    let frame = localizer.handle(Input::Points3d3d, &cdr, at(103.05));
    assert_eq!(frame.status, Status::Ok, "{}", frame.message);
    assert_eq!((frame.stamp, frame.sensor_frame.as_str()), (at(103.0), "lidar"));
    assert_eq!((frame.correspondences, frame.after_filter), (200, 200));
    let accepted = frame.accepted.as_ref().expect("a pose");
    assert_near(&accepted.map_t_base, &map_t_base());
    assert_near(&accepted.map_t_sensor, &(map_t_base() * base_t_sensor()));
    let tf = accepted.tf.as_ref().expect("map -> odom");
    assert_eq!((&*tf.parent, &*tf.child, tf.stamp), ("map", "odom", at(103.1)));
    assert_near(&(tf.transform * odom_t_base(103.0)), &map_t_base());
    // Raised to the smallest standard deviation, up to rounding.
    assert!((0..3).all(|i| accepted.covariance[(i, i)] >= 0.2 * 0.2 * (1.0 - 1e-12)));
    let facts = &frame.facts;
    assert!(
        facts.inliers >= 80 && facts.inlier_mask.iter().filter(|inlier| **inlier).count() == facts.inliers
    );
    assert_eq!(
        (localizer.counters().get(Counter::Accepted), localizer.rejected_in_a_row(Input::Points3d3d)),
        (1, 0)
    );
    assert_eq!(localizer.correspondences().len(), 200);
}

#[test]
fn without_agreement_the_last_transform_is_held_and_nothing_new_goes_out() {
    let mut localizer = localizer();
    let good = message(101.0, &[map_t_base() * base_t_sensor()], 80, 0);
    let sent = localizer.handle(Input::Points3d3d, &good, at(101.0)).accepted.clone().expect("a pose").tf;
    let sent = sent.expect("map -> odom");
    for (seconds, each, held) in [(101.5, 1, true), (102.9, 1, true), (103.5, 1, false)] {
        let wrong = message(seconds, &[], each, 150);
        let frame = localizer.handle(Input::Points3d3d, &wrong, at(seconds));
        assert!(!matches!(frame.status, Status::Ok), "{}", frame.status);
        assert_eq!((frame.accepted.is_none(), frame.hold.is_some()), (true, held));
        assert!(frame.hold.iter().all(|tf| tf.transform == sent.transform && tf.stamp == at(seconds + 0.1)));
    }
    // Too few rows is no reason to let go either.
    localizer.handle(Input::Points3d3d, &message(104.0, &[map_t_base()], 80, 0), at(104.0));
    let frame = localizer.handle(Input::Points3d3d, &message(104.2, &[map_t_base()], 2, 0), at(104.2));
    assert_eq!((frame.status, frame.hold.is_some()), (Status::TooFew, true));
}

#[test]
fn two_places_that_look_alike_are_told_apart_by_an_initial_pose() {
    let here = map_t_base();
    let there = Rigid::new(Vector::new(-20.0, 9.0, 0.3), Vector::new(0.0, 0.0, -0.5));
    let alike = |seconds| message(seconds, &[here * base_t_sensor(), there * base_t_sensor()], 80, 20);
    let mut localizer = localizer();
    let frame = localizer.handle(Input::Points3d3d, &alike(101.0), at(101.0));
    assert_eq!((frame.status, frame.accepted.is_none()), (Status::Ambiguous, true), "{}", frame.message);
    assert_eq!(frame.facts.candidates.len(), 2);
    assert_eq!(localizer.counters().get(Counter::RejectedAmbiguous), 1);

    for place in [here, there] {
        let near = Rigid::translation(0.5, -0.4, 0.0) * place;
        let q = near.rotation.coords;
        let mut covariance = [0.0; 36];
        (covariance[0], covariance[7], covariance[35]) = (0.25, 0.25, 0.07);
        let position = near.translation.vector.into();
        let pose = PoseSample { position, orientation: [q.x, q.y, q.z, q.w], covariance };
        localizer.set_initial_pose("map", at(101.0), &pose, at(101.0)).expect("taken");
        let frame = localizer.handle(Input::Points3d3d, &alike(101.0), at(101.0));
        assert_eq!(frame.status, Status::Ok, "{}", frame.message);
        assert_near(&frame.accepted.as_ref().expect("a pose").map_t_base, &place);
    }
    localizer.reset();
    assert_eq!(localizer.handle(Input::Points3d3d, &alike(101.0), at(101.0)).status, Status::Ambiguous);
}

#[test]
fn directions_to_landmarks_localize_as_points_do() {
    let mut localizer = localizer();
    // The same numbers, taken as directions of any length.
    let cdr = message(103.0, &[map_t_base() * base_t_sensor()], 80, 120);
    let frame = localizer.handle(Input::Sights2d3d, &cdr, at(103.05));
    assert_eq!((frame.input, frame.status), (Input::Sights2d3d, Status::Ok), "{}", frame.message);
    assert_near(&frame.accepted.as_ref().expect("a pose").map_t_base, &map_t_base());
    assert!((75..95).contains(&frame.facts.inliers), "{}", frame.facts.inliers);
    assert_eq!(localizer.inliers().count(), localizer.frame().facts.inliers);
    assert_eq!(localizer.counters_of(Input::Sights2d3d).get(Counter::Accepted), 1);
    assert_eq!(localizer.deciding(), Input::Sights2d3d);
    // A LiDAR message measured earlier is right too, and comes too late for tf.
    let cdr = message(102.9, &[map_t_base() * base_t_sensor()], 80, 120);
    let frame = localizer.handle(Input::Points3d3d, &cdr, at(103.05));
    assert_eq!((frame.status, frame.message.as_str()), (Status::Ok, "older than the last pose"));
    assert!(frame.accepted.as_ref().is_some_and(|pose| pose.tf.is_none()));
}

#[test]
fn directions_in_two_views_give_the_pose_between_them() {
    let mut localizer = localizer();
    let reference_t_camera = Rigid::new(Vector::new(2.0, -0.5, 1.0), Vector::new(0.1, -0.2, 0.3));
    let cdr = message(900.0, &[reference_t_camera], 80, 40);
    let frame = localizer.handle(Input::Sights2d2d, &cdr, at(900.0));
    assert_eq!(frame.status, Status::Ok, "{}", frame.message);
    let relative = frame.relative.as_ref().expect("a relative pose");
    let translation = relative.reference_t_camera.translation.vector;
    assert_eq!(&*relative.frame, "camera_reference");
    assert!((translation.norm() - 1.0).abs() < 1e-12);
    assert!(translation.angle(&reference_t_camera.translation.vector) < 0.02);
    assert!(relative.reference_t_camera.rotation.angle_to(&reference_t_camera.rotation) < 0.002);
    assert_eq!((&frame.accepted, &frame.hold), (&None, &None));
    assert_eq!(localizer.inliers().count(), 0, "there are no points of the map");
}

#[test]
fn pixels_need_the_calibration_of_their_camera() {
    let mut localizer = localizer();
    let rows: Vec<Vec<f64>> =
        (0..20).map(|i| vec![300.0 + f64::from(i), 200.0, f64::from(i), 5.0, 1.0]).collect();
    let mut cloud = Cloud::new(&[("u", 7), ("v", 7), ("tx", 7), ("ty", 7), ("tz", 7)], &rows);
    cloud.stamp = at(103.0);
    let pixels = cloud.encode();
    let now = at(103.0);
    let answer = |localizer: &mut Localizer| {
        let frame = localizer.handle(Input::Sights2d3d, &pixels, now);
        (frame.status, frame.message.clone(), frame.registered)
    };
    let missing = Missing::CameraInfo("lidar".to_owned());
    assert_eq!(localizer.needs(Input::Sights2d3d, &pixels, now), Err(missing));
    assert_eq!(answer(&mut localizer), (Status::BadInput, "no_camera_info:lidar".to_owned(), false));

    let good = CameraInfo { frame: "/lidar".to_owned(), ..CameraInfo::new() };
    let mut bad = good.clone();
    bad.k[0] = 0.0;
    let other = CameraInfo { frame: "another".to_owned(), ..good.clone() };
    assert!(localizer.handle_camera_info(&bad.encode()).is_err());
    assert!(localizer.handle_camera_info(&other.encode()).is_ok());
    assert_eq!(localizer.needs(Input::Sights2d3d, &pixels, now), Ok(()), "there is nothing to wait for");
    let named = "camera_info: K[0] is 0: the camera is not calibrated".to_owned();
    assert_eq!(answer(&mut localizer), (Status::BadInput, named.clone(), false));
    assert!(localizer.handle_camera_info(&good.encode()).is_ok());
    assert!(answer(&mut localizer).2, "a pose was sought");
    // The good one is forgotten.
    assert!(localizer.handle_camera_info(&bad.encode()).is_err());
    assert_eq!(answer(&mut localizer), (Status::BadInput, named, false));
    // Of the rectified image P counts, which is there.
    let mut params = Params::default();
    params.camera.rectified = true;
    localizer.set_params(&params);
    assert!(answer(&mut localizer).2, "a pose was sought");
    let refused = localizer.counters_of(Input::Sights2d3d).get(Counter::RefusedCameraInfo);
    assert_eq!((refused, localizer.counters().get(Counter::RefusedCameraInfo)), (3, 5));
}

#[test]
fn a_recorded_drive_is_localized_wherever_it_says_so() {
    let bag = "correspondences_demo/correspondences_demo.mcap";
    let (Some(clouds), Some(poses)) =
        (recorded(bag, "sensor_msgs/msg/PointCloud2"), recorded(bag, "geometry_msgs/msg/PoseStamped"))
    else {
        return;
    };
    let truth: Vec<(Stamp, Rigid)> = poses
        .iter()
        .filter(|(topic, _)| topic == "/ground_truth/lidar")
        .map(|(_, cdr)| {
            let mut reader = CdrReader::new(cdr).expect("CDR");
            let (stamp, _) = reader.header().expect("a header");
            let position = reader.f64s::<3>().expect("a position");
            let rotation = Quaternion::from(reader.f64s::<4>().expect("a quaternion"));
            let rotation = UnitQuaternion::from_quaternion(rotation);
            (stamp, Rigid::from_parts(Vector::from(position).into(), rotation))
        })
        .collect();
    let mut params = Params::default();
    params.backend.kind = BackendChoice::Cpu;
    params.tf.mode = TfMode::MapBase;
    params.registration.tau = 0.1;
    let (mut ok, mut seen) = (0, 0);
    for (_, cdr) in clouds.iter().filter(|(topic, _)| topic == "/correspondences_3d3d") {
        let (stamp, frame) = CdrReader::new(cdr).and_then(|mut r| r.header()).expect("a header");
        // The bag has no tf: the sensor is the robot.
        params.frames.base = frame.to_owned();
        let mut localizer = Localizer::new(&params).expect("the CPU is always there");
        let answer = localizer.handle(Input::Points3d3d, cdr, stamp);
        let (_, map_t_sensor) = truth.iter().find(|(t, _)| *t == stamp).expect("a truth for each message");
        seen += 1;
        if let Some(pose) = &answer.accepted {
            let error = pose.map_t_sensor.inv_mul(map_t_sensor);
            let (metres, radians) = (error.translation.vector.norm(), error.rotation.angle());
            println!("{:.3} m {:.4} rad, {} inliers", metres, radians, answer.facts.inliers);
            assert!(metres < 0.1 && radians < 0.01, "accepted {metres} m, {radians} rad off");
            ok += 1;
        } else {
            println!("{}: {}", answer.status, answer.message);
        }
    }
    println!("{ok} of {seen} accepted");
    assert!(seen == 10 && ok >= 8);
}
