//! Every layout of a point cloud that a robot may send is read, and every broken one is refused
//! by name.

mod common;

use common::{encode_transforms, honest_rows, Cloud, Field, SIX};
use flashreg::geometry::Point;
use flashreg::messages::cdr::CdrReader;
use flashreg::messages::correspondences::CorrespondenceView;
use flashreg::messages::point_cloud::PointCloudView;
use flashreg::messages::transforms::TransformsView;
use flashreg::messages::{Dropped, MessageError, Stamp};
use flashreg::registration::{Correspondence, Problem};
use flashreg::status::{Counter, Status};

fn read(cloud: &Cloud) -> Result<(Vec<Correspondence>, Dropped), MessageError> {
    let cdr = cloud.encode();
    let view = CorrespondenceView::parse(&cdr, false)?;
    let mut problem = Problem::default();
    let dropped = view.fill(&mut problem);
    Ok((problem.rows().collect(), dropped))
}

fn rows_of(cloud: &Cloud) -> Vec<Correspondence> {
    let (rows, dropped) = read(cloud).expect("readable");
    assert_eq!(dropped, Dropped::default());
    rows
}

/// The rows are those that were written, to the precision of the type.
fn assert_rows(got: &[Correspondence], want: &[Vec<f64>], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        let source = Point::new(want[0], want[1], want[2]);
        let target = Point::new(want[3], want[4], want[5]);
        assert!((got.source - source).amax() <= tolerance, "{} is not {source}", got.source);
        assert!((got.target - target).amax() <= tolerance, "{} is not {target}", got.target);
    }
}

fn refusal(cloud: &Cloud) -> MessageError {
    read(cloud).expect_err("to be refused")
}

#[test]
fn header_and_sizes_are_read() {
    let mut cloud = Cloud::with_layout(&SIX, &honest_rows(12, [0.0; 3]), 0, 3, 8, false);
    cloud.stamp = Stamp::new(1_700_000_000, 123_456_789);
    let cdr = cloud.encode();
    let view = PointCloudView::parse(&cdr).expect("readable");
    assert_eq!((view.stamp, view.frame), (cloud.stamp, "lidar"));
    assert_eq!((view.height, view.width, view.len()), (3, 4, 12));
    assert_eq!((view.point_step, view.row_step), (24, 24 * 4 + 8));
    assert_eq!(view.fields().map(|f| f.name.to_owned()).collect::<Vec<_>>(), SIX.map(|f| f.0));
    assert_eq!(view.points().count(), 12);
    assert!(view.points().all(|point| point.len() == 24));
}

#[test]
fn rows_come_out_as_they_went_in_whatever_the_byte_orders_are() {
    let rows = honest_rows(20, [100.0, -20.0, 3.0]);
    for big_endian_data in [false, true] {
        for big_endian_cdr in [false, true] {
            let mut cloud = Cloud::with_layout(&SIX, &rows, 0, 1, 0, big_endian_data);
            cloud.cdr_big_endian = big_endian_cdr;
            assert_rows(&rows_of(&cloud), &rows, 1e-5);
        }
    }
}

#[test]
fn any_order_of_fields_any_padding_and_unknown_fields_are_read() {
    let rows = honest_rows(24, [4.0, 5.0, 6.0]);
    let fields = [("tz", 7), ("ring", 4), ("y", 8), ("tx", 7), ("x", 7), ("time", 8), ("ty", 8), ("z", 7)];
    let shuffled: Vec<Vec<f64>> =
        rows.iter().map(|r| vec![r[5], 9.0, r[1], r[3], r[0], 1e9, r[4], r[2]]).collect();
    for point_padding in [0, 1, 3] {
        for (height, row_padding) in [(1, 0), (1, 16), (4, 0), (4, 5)] {
            for big_endian in [false, true] {
                let cloud =
                    Cloud::with_layout(&fields, &shuffled, point_padding, height, row_padding, big_endian);
                assert_rows(&rows_of(&cloud), &rows, 1e-5);
            }
        }
    }
}

#[test]
fn every_type_of_point_field_is_converted() {
    let rows: Vec<Vec<f64>> =
        (0..9).map(|i| (0..6).map(|k| f64::from((i * 7 + k * 11) % 100 + 1)).collect()).collect();
    for datatype in 1..=8 {
        let fields = SIX.map(|(name, _)| (name, datatype));
        for big_endian in [false, true] {
            let cloud = Cloud::with_layout(&fields, &rows, 1, 1, 0, big_endian);
            assert_rows(&rows_of(&cloud), &rows, 0.0);
        }
    }
}

#[test]
fn negative_numbers_of_the_signed_types_keep_their_sign() {
    let rows = vec![vec![-1.0, -2.0, -3.0, -100.0, -101.0, -102.0]; 3];
    for datatype in [1, 3, 5, 7, 8] {
        let cloud = Cloud::new(&SIX.map(|(name, _)| (name, datatype)), &rows);
        assert_rows(&rows_of(&cloud), &rows, 0.0);
    }
}

#[test]
fn double_precision_coordinates_keep_it() {
    // UTM: single precision would lose a quarter of a metre.
    let rows = honest_rows(50, [431_234.123_456_789, 5_812_345.987_654_321, 34.5]);
    let fields = SIX.map(|(name, _)| (name, 8));
    assert_rows(&rows_of(&Cloud::new(&fields, &rows)), &rows, 0.0);
}

#[test]
fn a_count_of_zero_is_one_number() {
    let rows = honest_rows(5, [1.0; 3]);
    let mut cloud = Cloud::new(&SIX, &rows);
    cloud.fields.iter_mut().for_each(|f| f.count = 0);
    assert_rows(&rows_of(&cloud), &rows, 1e-5);
    cloud.fields[4].count = 3;
    assert_eq!(refusal(&cloud), MessageError::BadCount { field: "ty", count: 3 });
    assert_eq!(refusal(&cloud).to_string(), "bad_count:ty=3");
}

#[test]
fn sx_sy_sz_are_another_name_of_x_y_z() {
    let rows = honest_rows(5, [1.0; 3]);
    let mut cloud = Cloud::new(&SIX, &rows);
    for (field, name) in cloud.fields.iter_mut().zip(["sx", "sy", "sz"]) {
        field.name = name.to_owned();
    }
    assert_rows(&rows_of(&cloud), &rows, 1e-5);
}

#[test]
fn weights_and_identities_are_read() {
    let mut fields = SIX.to_vec();
    fields.extend([("weight", 7), ("id", 6), ("sid", 5)]);
    let rows: Vec<Vec<f64>> = honest_rows(3, [0.0; 3])
        .into_iter()
        .zip([[0.5, 7.0, 1.0], [2.0, 4_294_967_295.0, -1.0], [1.0, 0.0, 3.0]])
        .map(|(mut row, extra)| {
            row.extend(extra);
            row
        })
        .collect();
    let got = rows_of(&Cloud::new(&fields, &rows));
    assert_eq!(got.iter().map(|r| r.weight).collect::<Vec<_>>(), [0.5, 2.0, 1.0]);
    assert_eq!(got.iter().map(|r| r.target_id).collect::<Vec<_>>(), [Some(7), Some(u32::MAX), Some(0)]);
    assert_eq!(got.iter().map(|r| r.source_id).collect::<Vec<_>>(), [Some(1), None, Some(3)]);
    let without = rows_of(&Cloud::new(&SIX, &honest_rows(3, [0.0; 3])));
    assert!(without.iter().all(|r| r.weight == 1.0 && r.source_id.is_none() && r.target_id.is_none()));
}

#[test]
fn unusable_rows_are_dropped_and_counted_by_cause() {
    let mut fields = SIX.to_vec();
    fields.push(("weight", 7));
    let mut rows = honest_rows(12, [0.0; 3]);
    let weights = [1.0, 0.0, -1.0, f64::NAN, f64::INFINITY, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    rows.iter_mut().zip(weights).for_each(|(row, weight)| row.push(weight));
    rows[5][0] = f64::NAN;
    rows[6][4] = f64::INFINITY;
    rows[7][2] = f64::NEG_INFINITY;
    let (kept, dropped) = read(&Cloud::new(&fields, &rows)).expect("readable");
    assert_eq!(dropped, Dropped { non_finite: 3, weight: 4, pixel: 0 });
    let kept_first = rows[0][0] as f32;
    assert_eq!((kept.len(), kept[0].source.x as f32), (5, kept_first));
}

#[test]
fn each_required_field_is_missed_by_name() {
    for (i, name) in ["x", "y", "z", "tx", "ty", "tz"].into_iter().enumerate() {
        let mut cloud = Cloud::new(&SIX, &honest_rows(5, [0.0; 3]));
        cloud.fields[i].name = "other".to_owned();
        let error = refusal(&cloud);
        assert_eq!(error.to_string(), format!("missing_field:{name}"));
        assert_eq!((error.counter(), error.status()), (Counter::RefusedMissingField, Status::BadInput));
    }
}

#[test]
fn types_that_are_none_of_point_field_are_refused_by_number() {
    for datatype in [0, 9, 10, 11, 255] {
        let mut cloud = Cloud::new(&SIX, &honest_rows(5, [0.0; 3]));
        cloud.fields[0].datatype = datatype;
        let error = refusal(&cloud);
        assert_eq!(error.to_string(), format!("bad_datatype:x={datatype}"));
        assert_eq!((error.counter(), error.status()), (Counter::RefusedBadDatatype, Status::BadInput));
    }
    let mut with_weight = SIX.to_vec();
    with_weight.push(("weight", 9));
    let rows: Vec<_> = honest_rows(5, [0.0; 3]).into_iter().map(|r| [r, vec![1.0]].concat()).collect();
    assert_eq!(refusal(&Cloud::new(&with_weight, &rows)).to_string(), "bad_datatype:weight=9");
    with_weight[6].0 = "normal";
    assert_eq!(rows_of(&Cloud::new(&with_weight, &rows)).len(), 5, "an unknown field is ignored");
}

#[test]
fn sizes_that_contradict_each_other_are_refused() {
    let cloud = Cloud::with_layout(&SIX, &honest_rows(12, [0.0; 3]), 0, 3, 8, false);
    let broken = |change: &dyn Fn(&mut Cloud)| {
        let mut cloud = cloud.clone();
        change(&mut cloud);
        let error = refusal(&cloud);
        assert_eq!((error.counter(), error.status()), (Counter::RefusedLayout, Status::BadInput));
        error.to_string()
    };
    assert_eq!(broken(&|c| c.point_step = 0), "bad_point_step");
    assert_eq!(broken(&|c| c.point_step = 23), "bad_point_step");
    assert_eq!(broken(&|c| c.fields[2].offset = 21), "bad_point_step");
    assert_eq!(broken(&|c| c.fields[2].offset = u32::MAX), "bad_point_step");
    assert_eq!(broken(&|c| c.row_step = 95), "data_too_short");
    assert_eq!(broken(&|c| c.row_step = 0), "data_too_short");
    assert_eq!(broken(&|c| c.row_step = u32::MAX), "data_too_short");
    assert_eq!(broken(&|c| c.width = u32::MAX), "data_too_short");
    assert_eq!(broken(&|c| c.height = u32::MAX), "data_too_short");
    assert_eq!(broken(&|c| (c.width, c.height) = (u32::MAX, u32::MAX)), "data_too_short");
    assert_eq!(broken(&|c| c.point_step = u32::MAX), "data_too_short");
    assert_eq!(broken(&|c| c.data.clear()), "data_too_short");
    assert_eq!(broken(&|c| c.data.truncate(3 * 104 - 9)), "data_too_short");
    // The padding after the last row carries nothing.
    let mut cloud = cloud.clone();
    cloud.data.truncate(3 * 104 - 8);
    assert_eq!(rows_of(&cloud).len(), 12);
}

#[test]
fn no_points_are_refused_as_empty() {
    for (width, height) in [(0, 1), (1, 0), (0, 0), (0, u32::MAX)] {
        let mut cloud = Cloud::new(&SIX, &honest_rows(5, [0.0; 3]));
        (cloud.width, cloud.height) = (width, height);
        let error = refusal(&cloud);
        assert_eq!(error.to_string(), "empty");
        assert_eq!((error.counter(), error.status()), (Counter::RefusedTooFew, Status::TooFew));
    }
}

#[test]
fn a_wrong_byte_order_flag_is_found_out() {
    for datatype in [7, 8] {
        let fields = SIX.map(|(name, _)| (name, datatype));
        for truth in [false, true] {
            for n in [3, 10, 5000] {
                let rows = honest_rows(n, [431_234.1, 5_812_345.9, 34.5]);
                let mut cloud = Cloud::with_layout(&fields, &rows, 0, 1, 0, truth);
                cloud.is_bigendian = !truth;
                let error = refusal(&cloud);
                assert_eq!(error, MessageError::BadEndianness { big_endian: !truth });
                assert_eq!((error.counter(), error.status()), (Counter::RefusedEndianness, Status::BadInput));
            }
        }
    }
}

#[test]
fn a_wrong_flag_is_overruled_by_the_parameter() {
    let rows = honest_rows(30, [1.0, 2.0, 3.0]);
    let mut cloud = Cloud::new(&SIX, &rows);
    cloud.is_bigendian = true;
    let cdr = cloud.encode();
    let mut problem = Problem::default();
    CorrespondenceView::parse(&cdr, true).expect("readable").fill(&mut problem);
    assert_rows(&problem.rows().collect::<Vec<_>>(), &rows, 1e-5);
}

#[test]
fn honest_values_are_never_called_absurd() {
    let zero = vec![vec![0.0; 6]; 10];
    let flat: Vec<_> = (0..40).map(|i| vec![f64::from(i), 1e-17, 0.0, f64::from(i), -3e-18, 0.0]).collect();
    let geocentric = honest_rows(40, [4_074_000.0, 931_000.0, 4_801_000.0]);
    let mut mostly_nan = honest_rows(40, [1.0; 3]);
    mostly_nan.iter_mut().skip(4).for_each(|row| row[0] = f64::NAN);
    for rows in [zero, flat, geocentric, mostly_nan] {
        for datatype in [7, 8] {
            for big_endian in [false, true] {
                let fields = SIX.map(|(name, _)| (name, datatype));
                let cloud = Cloud::with_layout(&fields, &rows, 0, 1, 0, big_endian);
                read(&cloud).expect("honest");
            }
        }
    }
}

#[test]
fn the_first_of_two_fields_of_a_name_counts() {
    let rows = honest_rows(4, [0.0; 3]);
    let mut cloud = Cloud::new(&SIX, &rows);
    cloud.fields.push(Field { name: "x".to_owned(), offset: 4000, datatype: 77, count: 9 });
    assert_rows(&rows_of(&cloud), &rows, 1e-5);
}

#[test]
fn broken_cdr_is_refused_by_name() {
    let cdr = Cloud::new(&SIX, &honest_rows(5, [0.0; 3])).encode();
    assert_eq!(PointCloudView::parse(&[]).unwrap_err(), MessageError::CdrTooShort { got: 0, need: 4 });
    let mut parameter_list = cdr.clone();
    parameter_list[1] = 3;
    assert_eq!(PointCloudView::parse(&parameter_list).unwrap_err().to_string(), "cdr_encapsulation:0x0003");
    for len in 0..cdr.len() {
        PointCloudView::parse(&cdr[..len]).expect_err("every cut is noticed");
    }
    let mut not_text = cdr.clone();
    not_text[16] = 0xFF;
    assert_eq!(PointCloudView::parse(&not_text).unwrap_err(), MessageError::CdrString);
    let mut boasting = cdr.clone();
    boasting[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(PointCloudView::parse(&boasting), Err(MessageError::CdrLength { got: u32::MAX, .. })));
}

#[test]
fn alignment_is_counted_from_after_the_header() {
    let bytes = [0, 1, 0, 0, 7, 9, 9, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 5];
    let mut reader = CdrReader::new(&bytes).expect("plain CDR");
    // octet at 0, then 4 aligned to 4, then a double at 8, which is byte 12 of the message
    assert_eq!((reader.u8(), reader.i32()), (Ok(7), Ok(1)));
    assert_eq!((reader.f64(), reader.u8()), (Ok(1.0), Ok(5)));
    assert_eq!(reader.u32(), Err(MessageError::CdrTooShort { got: 0, need: 4 }));
}

#[test]
fn transforms_of_a_tf_message_are_read_in_both_byte_orders() {
    let transforms = [
        ("odom", "base_link", Stamp::new(5, 6), [1.0, 2.0, 3.0], [0.0, 0.0, 0.6, 0.8]),
        ("base_link", "a_longer_name", Stamp::new(0, 0), [-1.0, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]),
    ];
    for big_endian in [false, true] {
        let cdr = encode_transforms(&transforms, big_endian);
        let read: Vec<_> = TransformsView::parse(&cdr).expect("readable").collect();
        assert_eq!(read.len(), 2);
        for (got, want) in read.iter().zip(&transforms) {
            assert_eq!((got.parent, got.child, got.stamp, got.translation, got.rotation), *want);
        }
        for len in 0..cdr.len() {
            TransformsView::parse(&cdr[..len]).expect_err("every cut is noticed");
        }
    }
}
