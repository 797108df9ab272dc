//! The table of refusals, row by row: each has its status, its counter and its words, and gives
//! no pose.

mod common;

use common::{encode_transforms, honest_rows, Cloud, SIX};
use flashreg::localizer::transforms::TransformError;
use flashreg::localizer::{InitialPoseError, Input, Localizer, Missing, PoseSample};
use flashreg::messages::transforms::TransformsView;
use flashreg::messages::Stamp;
use flashreg::params::{Params, StampZero};
use flashreg::status::{Counter, Status};

const NOW: f64 = 100.05;
const UPRIGHT: [f64; 4] = [0.0, 0.0, 0.0, 1.0];

fn at(seconds: f64) -> Stamp {
    Stamp::default().plus(seconds)
}

fn params(change: impl FnOnce(&mut Params)) -> Params {
    let mut params = Params::default();
    params.backend.kind = flashreg::params::BackendChoice::Cpu;
    params.registration.max_correspondences = 256;
    change(&mut params);
    params
}

fn hear_odometry(localizer: &Localizer, from: f64, until: f64) {
    let transforms = localizer.transforms();
    let mut buffer = transforms.lock().expect("whole");
    for t in [from, until] {
        let cdr = encode_transforms(&[("odom", "base_link", at(t), [t, 0.0, 0.0], UPRIGHT)], false);
        for sample in TransformsView::parse(&cdr).expect("readable") {
            buffer.insert(&sample, false).expect("taken");
        }
    }
}

/// A localizer that knows its transforms from 99 s to 101 s.
fn localizer(change: impl FnOnce(&mut Params)) -> Localizer {
    let localizer = Localizer::new(&params(change)).expect("the CPU is always there");
    let cdr = encode_transforms(&[("base_link", "lidar", at(0.0), [0.5, 0.0, 1.0], UPRIGHT)], false);
    for sample in TransformsView::parse(&cdr).expect("readable") {
        localizer.transforms().lock().expect("whole").insert(&sample, true).expect("taken");
    }
    hear_odometry(&localizer, 99.0, 101.0);
    localizer
}

fn cloud() -> Cloud {
    Cloud::new(&SIX, &honest_rows(60, [10.0, 20.0, 1.0]))
}

/// Status, first word of the message, counter.
fn assert_refused(localizer: &mut Localizer, cdr: &[u8], status: Status, words: &str, counter: Counter) {
    let before = localizer.counters().get(counter);
    let in_a_row = localizer.rejected_in_a_row(Input::Points3d3d);
    let frame = localizer.handle(Input::Points3d3d, cdr, at(NOW));
    assert_eq!(frame.status, status, "{}", frame.message);
    assert!(frame.message.starts_with(words), "'{}' does not begin with '{words}'", frame.message);
    assert!(frame.accepted.is_none() && frame.hold.is_none() && !frame.registered);
    assert_eq!(localizer.counters().get(counter), before + 1, "{counter}");
    assert_eq!(localizer.rejected_in_a_row(Input::Points3d3d), in_a_row + 1);
    assert_eq!(localizer.category(at(NOW)), status);
}

fn refused(change: impl FnOnce(&mut Cloud), status: Status, words: &str, counter: Counter) {
    let mut cloud = cloud();
    change(&mut cloud);
    assert_refused(&mut localizer(|_| {}), &cloud.encode(), status, words, counter);
}

#[test]
fn a_required_field_is_missing() {
    let (status, counter) = (Status::BadInput, Counter::RefusedMissingField);
    refused(|c| c.fields[3].name = "intensity".into(), status, "missing_field:tx", counter);
    refused(|c| c.fields.clear(), status, "missing_field:x", counter);
}

#[test]
fn a_field_has_an_unusable_type() {
    let (status, counter) = (Status::BadInput, Counter::RefusedBadDatatype);
    for datatype in [9, 10, 11] {
        refused(|c| c.fields[0].datatype = datatype, status, &format!("bad_datatype:x={datatype}"), counter);
    }
    refused(|c| c.fields[0].count = 2, status, "bad_count:x=2", counter);
}

#[test]
fn sizes_contradict_each_other() {
    let (status, counter) = (Status::BadInput, Counter::RefusedLayout);
    refused(|c| c.point_step = 20, status, "bad_point_step: 20 bytes, 24 needed", counter);
    refused(|c| c.row_step = 100, status, "data_too_short: 100 bytes, 1440 needed", counter);
    refused(|c| c.data.truncate(1000), status, "data_too_short: 1000 bytes, 1440 needed", counter);
}

#[test]
fn the_bytes_are_no_message() {
    let (status, counter) = (Status::BadInput, Counter::RefusedLayout);
    let cdr = cloud().encode();
    assert_refused(&mut localizer(|_| {}), &cdr[..cdr.len() - 1], status, "cdr_too_short", counter);
    assert_refused(&mut localizer(|_| {}), &[], status, "cdr_too_short:0<4", counter);
    assert_refused(&mut localizer(|_| {}), &[0, 7, 0, 0], status, "cdr_encapsulation:0x0007", counter);
}

#[test]
fn too_few_usable_rows() {
    let (status, counter) = (Status::TooFew, Counter::RefusedTooFew);
    refused(|c| c.width = 0, status, "empty", counter);
    refused(|c| c.width = 2, status, "too_few:2<3", counter);
    let mut rows = honest_rows(5, [0.0; 3]);
    rows.iter_mut().skip(1).for_each(|row| row[2] = f64::NAN);
    let cdr = Cloud::new(&SIX, &rows).encode();
    assert_refused(&mut localizer(|_| {}), &cdr, status, "too_few:1<3", counter);
}

#[test]
fn unusable_rows_are_dropped_and_the_message_used() {
    let mut fields = SIX.to_vec();
    fields.push(("weight", 7));
    let mut rows = honest_rows(30, [0.0; 3]);
    rows.iter_mut().for_each(|row| row.push(1.0));
    rows[3][1] = f64::NAN;
    rows[7][5] = f64::INFINITY;
    rows[9][6] = 0.0;
    rows[10][6] = -1.0;
    rows[11][6] = f64::NAN;
    let mut localizer = localizer(|_| {});
    let frame = localizer.handle(Input::Points3d3d, &Cloud::new(&fields, &rows).encode(), at(NOW));
    assert!(frame.registered);
    assert_eq!((frame.correspondences, frame.after_filter), (30, 25));
    assert_eq!(localizer.counters().get(Counter::DroppedNonFinite), 2);
    assert_eq!(localizer.counters().get(Counter::DroppedWeight), 3);
}

#[test]
fn of_too_many_rows_the_heaviest_are_kept() {
    let mut fields = SIX.to_vec();
    fields.push(("weight", 7));
    let mut rows = honest_rows(40, [0.0; 3]);
    rows.iter_mut().enumerate().for_each(|(i, row)| row.push(1.0 + (i % 4) as f64));
    let mut localizer = localizer(|p| p.registration.max_correspondences = 25);
    let frame = localizer.handle(Input::Points3d3d, &Cloud::new(&fields, &rows).encode(), at(NOW));
    assert_eq!((frame.correspondences, frame.after_filter), (40, 25));
    assert_eq!(localizer.counters().get(Counter::TruncatedRows), 15);
    // Ten rows of weight 4, ten of 3, and the first five of weight 2.
    let weights: Vec<_> = localizer.correspondences().map(|r| r.weight as i32).collect();
    assert_eq!([1, 2, 3, 4].map(|w| weights.iter().filter(|v| **v == w).count()), [0, 5, 10, 10]);
    let first_of_two = localizer.correspondences().filter(|r| r.weight == 2.0);
    let expected = (0..5).map(|i| rows[4 * i + 1][0] as f32);
    assert!(first_of_two.map(|r| r.source.x as f32).eq(expected));
}

#[test]
fn values_are_absurd_under_the_byte_order_claimed() {
    refused(|c| c.is_bigendian = true, Status::BadInput, "bad_endianness:big", Counter::RefusedEndianness);
    let mut wrong = cloud();
    wrong.is_bigendian = true;
    let mut forced = localizer(|p| p.input.force_little_endian = true);
    assert!(forced.handle(Input::Points3d3d, &wrong.encode(), at(NOW)).registered);
    let honest = Cloud::with_layout(&SIX, &honest_rows(60, [0.0; 3]), 0, 1, 0, true);
    assert!(localizer(|_| {}).handle(Input::Points3d3d, &honest.encode(), at(NOW)).registered);
}

#[test]
fn the_stamp_is_zero_old_or_in_the_future() {
    let (status, counter) = (Status::StaleInput, Counter::RefusedStamp);
    refused(|c| c.stamp = at(0.0), status, "stamp is zero", counter);
    refused(|c| c.stamp = at(NOW - 1.2), status, "stamp is 1.200 s old", counter);
    refused(|c| c.stamp = at(NOW + 1.2), status, "stamp is 1.200 s in the future", counter);
    refused(|c| c.stamp = Stamp::new(i32::MIN, u32::MAX), status, "stamp is", counter);
    refused(|c| c.stamp = Stamp::new(i32::MAX, u32::MAX), status, "stamp is", counter);

    let mut zero = cloud();
    zero.stamp = at(0.0);
    let mut taken_as_now = localizer(|p| p.input.stamp_zero = StampZero::Now);
    let frame = taken_as_now.handle(Input::Points3d3d, &zero.encode(), at(NOW));
    assert_eq!((frame.registered, frame.stamp), (true, at(NOW)));
}

#[test]
fn a_transform_is_unknown_at_the_stamp() {
    let (status, counter) = (Status::MissingTf, Counter::RefusedMissingTf);
    refused(|c| c.frame = "radar".into(), status, "frame 'radar' is unknown to tf", counter);
    refused(|c| c.frame = String::new(), status, "frame '' is unknown to tf", counter);

    let mut late = localizer(|_| {});
    late.transforms().lock().expect("whole").clear();
    hear_odometry(&late, 99.0, 99.9);
    let cdr = cloud().encode();
    assert!(
        matches!(late.needs(Input::Points3d3d, &cdr, at(NOW)), Err(Missing::Transform(TransformError::Future { by, .. })) if (by - 0.1).abs() < 1e-9)
    );
    let words = "transform 'odom' -> 'base_link' is known only until 0.100 s before the stamp";
    assert_refused(&mut late, &cdr, status, words, counter);
    // It is tried again with each message.
    hear_odometry(&late, 100.0, 100.1);
    assert_eq!(late.needs(Input::Points3d3d, &cdr, at(NOW)), Ok(()));
    assert!(late.handle(Input::Points3d3d, &cdr, at(NOW)).registered);
}

#[test]
fn a_message_that_is_refused_anyway_waits_for_no_transform() {
    let localizer = localizer(|_| {});
    let mut stale = cloud();
    stale.frame = "radar".into();
    assert!(localizer.needs(Input::Points3d3d, &stale.encode(), at(NOW)).is_err());
    stale.stamp = at(50.0);
    assert_eq!(localizer.needs(Input::Points3d3d, &stale.encode(), at(NOW)), Ok(()));
    assert_eq!(localizer.needs(Input::Points3d3d, &[1, 2, 3], at(NOW)), Ok(()));
}

#[test]
fn a_clock_that_goes_back_clears_the_buffers() {
    let mut localizer = localizer(|_| {});
    let cdr = cloud().encode();
    localizer.handle(Input::Points3d3d, &cdr, at(NOW));
    assert!(!localizer.clock(at(NOW - 0.9)), "a second is no jump");
    assert!(!localizer.clock(at(NOW)));
    assert!(localizer.clock(at(20.0)));
    assert_eq!((localizer.generation(), localizer.counters().get(Counter::ClockJumps)), (1, 1));
    assert_eq!(localizer.category(at(20.0)), Status::WaitingInput);
    localizer.clock(at(NOW));
    assert!(matches!(
        localizer.needs(Input::Points3d3d, &cdr, at(NOW)),
        Err(Missing::Transform(TransformError::UnknownFrame(_)))
    ));
    // The clock as a message brings it counts as well.
    localizer.handle(Input::Points3d3d, &cdr, at(NOW - 5.0));
    assert_eq!((localizer.generation(), localizer.counters().get(Counter::ClockJumps)), (2, 2));
}

#[test]
fn a_stamp_that_goes_back_clears_the_buffers() {
    let mut localizer = localizer(|p| p.input.max_age_sec = 10.0);
    let (mut first, mut second) = (cloud(), cloud());
    first.stamp = at(100.0);
    second.stamp = at(98.9);
    assert!(localizer.handle(Input::Points3d3d, &first.encode(), at(NOW)).registered);
    let frame = localizer.handle(Input::Points3d3d, &second.encode(), at(NOW));
    assert_eq!((frame.status, frame.generation), (Status::MissingTf, 1));
    assert_eq!(localizer.counters().get(Counter::ClockJumps), 1);
    // What is static is kept, the rest comes anew.
    hear_odometry(&localizer, 98.0, 99.0);
    assert!(localizer.handle(Input::Points3d3d, &second.encode(), at(NOW)).registered);
    assert_eq!(localizer.counters().get(Counter::ClockJumps), 1);
}

fn initial_pose() -> PoseSample {
    let mut covariance = [0.0; 36];
    (0..6).for_each(|i| covariance[7 * i] = 0.1);
    PoseSample { position: [1.0, 2.0, 0.0], orientation: [0.0, 0.0, 0.6, 0.8], covariance }
}

#[test]
fn an_initial_pose_that_cannot_be_used() {
    let good = initial_pose();
    let mut localizer = localizer(|_| {});
    let mut count = 0;
    let mut refused = |frame: &str, pose: PoseSample| {
        let error = localizer.set_initial_pose(frame, at(NOW), &pose, at(NOW)).expect_err("refused");
        count += 1;
        assert_eq!(localizer.counters().get(Counter::RefusedInitialpose), count);
        assert_eq!((localizer.generation(), localizer.prior()), (0, None));
        error
    };
    let error = refused("odom", good);
    assert_eq!(error.to_string(), "initialpose: frame 'odom' is not the map frame 'map'");
    refused("", good);
    for value in [f64::NAN, f64::INFINITY] {
        let not_finite = InitialPoseError::NotFinite;
        assert_eq!(
            refused("map", PoseSample { position: [value, 0.0, 0.0], ..good }),
            not_finite("the position")
        );
        let orientation = [0.0, value, 0.0, 1.0];
        assert_eq!(refused("map", PoseSample { orientation, ..good }), not_finite("the quaternion"));
        let mut covariance = good.covariance;
        covariance[9] = value;
        assert_eq!(refused("map", PoseSample { covariance, ..good }), not_finite("the covariance"));
    }
    for orientation in [[0.0; 4], [0.0, 0.0, 0.0, 1.0002], [0.0, 0.0, 1.0, 1.0]] {
        assert!(matches!(refused("map", PoseSample { orientation, ..good }), InitialPoseError::NotUnit(_)));
    }
    let mut covariance = good.covariance;
    covariance[1] = 0.01;
    assert_eq!(refused("map", PoseSample { covariance, ..good }), InitialPoseError::NotSymmetric);
    (covariance[1], covariance[6]) = (0.2, 0.2);
    assert!(matches!(refused("map", PoseSample { covariance, ..good }), InitialPoseError::NotPositive(_)));
    let mut covariance = good.covariance;
    covariance[14] = -0.1;
    assert!(matches!(refused("map", PoseSample { covariance, ..good }), InitialPoseError::NotPositive(_)));
}

#[test]
fn an_initial_pose_with_negative_cross_terms_is_taken() {
    let mut localizer = localizer(|_| {});
    let mut pose = initial_pose();
    (pose.covariance[1], pose.covariance[6]) = (-0.05, -0.05);
    localizer.set_initial_pose("/map", at(0.0), &pose, at(NOW)).expect("a covariance");
    assert_eq!(localizer.generation(), 1);
    assert_eq!(localizer.prior().map(|p| p.stamp), Some(at(NOW)), "a stamp of zero means now");
    pose.covariance = [0.0; 36];
    pose.orientation = pose.orientation.map(|v| v * 1.00005);
    localizer.set_initial_pose("map", at(NOW), &pose, at(NOW)).expect("within the tolerance");
    assert_eq!(localizer.generation(), 2);
    localizer.reset();
    assert_eq!((localizer.generation(), localizer.prior()), (3, None));
}

#[test]
fn switched_off_it_does_nothing() {
    let mut localizer = localizer(|_| {});
    assert_eq!(localizer.category(at(NOW)), Status::WaitingInput);
    localizer.set_active(false);
    assert_eq!(localizer.category(at(NOW)), Status::Inactive);
    let frame = localizer.handle(Input::Points3d3d, &cloud().encode(), at(NOW));
    assert_eq!((frame.status, frame.registered, frame.accepted.is_none()), (Status::Inactive, false, true));
    assert_eq!(localizer.rejected_in_a_row(Input::Points3d3d), 0);
    assert_eq!(localizer.counters().get(Counter::Received), 1);
    localizer.set_active(true);
    assert_eq!(localizer.category(at(NOW)), Status::WaitingInput);
    assert!(localizer.handle(Input::Points3d3d, &cloud().encode(), at(NOW)).registered);
}

#[test]
fn silence_is_stale_input_after_a_while() {
    let mut localizer = localizer(|p| p.tf.hold_sec = 2.0);
    assert_eq!(
        (localizer.input_age(at(NOW)), localizer.category(at(NOW + 50.0))),
        (None, Status::WaitingInput)
    );
    localizer.handle(Input::Points3d3d, &cloud().encode(), at(NOW));
    let last = localizer.frame().status;
    assert_eq!(localizer.category(at(NOW + 1.9)), last);
    assert_eq!(localizer.category(at(NOW + 2.1)), Status::StaleInput);
    assert!((localizer.input_age(at(NOW + 2.0)).expect("heard") - 2.05).abs() < 1e-9);
}

#[test]
fn parameters_read_at_start_keep_their_values() {
    let mut localizer = localizer(|p| p.registration.max_correspondences = 25);
    localizer.set_params(&params(|p| {
        p.registration.max_correspondences = 3;
        p.frames.base = "other".into();
        p.input.max_age_sec = 1000.0;
    }));
    let mut old = cloud();
    old.stamp = at(99.0);
    let frame = localizer.handle(Input::Points3d3d, &old.encode(), at(500.0));
    assert!(frame.registered, "{}", frame.message);
    assert_eq!(frame.after_filter, 25);
}
