//! Calibrations, and features of a camera in point clouds: every layout is read, and what cannot be used is refused
//! by name.

mod common;

use common::{recorded, CameraInfo, Cloud};
use flashreg::estimation::{AbsoluteProblem, AbsoluteRow, RelativeProblem, RelativeRow, Sight};
use flashreg::geometry::{Camera, Distortion, Point, Rigid, Vector};
use flashreg::messages::camera_info::CameraInfoView;
use flashreg::messages::poses::{PoseType, PoseView};
use flashreg::messages::sights::{AbsoluteView, RelativeView, Thresholds};
use flashreg::messages::{Dropped, MessageError, Stamp};
use flashreg::status::{Counter, Status};
use nalgebra::{Matrix2x3, Quaternion, Rotation3, Translation3, UnitQuaternion, Vector3};

const THRESHOLDS: Thresholds = Thresholds { pixel: 4.0, angle: 0.01 };
const PIXEL: [(&str, u8); 5] = [("u", 7), ("v", 7), ("tx", 7), ("ty", 7), ("tz", 7)];
const PIXELS: [(&str, u8); 4] = [("u", 7), ("v", 7), ("tu", 7), ("tv", 7)];
const BEARINGS: [(&str, u8); 6] = common::SIX;

/// As the node takes a CameraInfo.
fn camera_of(info: &CameraInfo, rectified: bool) -> Result<Camera, MessageError> {
    Ok(CameraInfoView::parse(&info.encode())?.camera(rectified)?)
}

fn changed(change: impl FnOnce(&mut CameraInfo)) -> CameraInfo {
    let mut info = CameraInfo::new();
    change(&mut info);
    info
}

fn camera() -> Camera {
    camera_of(&CameraInfo::new(), false).expect("a calibrated camera")
}

fn absolute(cloud: &Cloud, camera: Option<&Camera>) -> Result<(Vec<AbsoluteRow>, Dropped), MessageError> {
    let cdr = cloud.encode();
    let mut problem = AbsoluteProblem::default();
    let dropped = AbsoluteView::parse(&cdr, false)?.fill(&mut problem, camera, &THRESHOLDS)?;
    Ok((problem.rows().to_vec(), dropped))
}

fn relative(cloud: &Cloud, camera: Option<&Camera>) -> Result<(Vec<RelativeRow>, Dropped), MessageError> {
    let cdr = cloud.encode();
    let mut problem = RelativeProblem::default();
    let dropped = RelativeView::parse(&cdr, false)?.fill(&mut problem, camera, &THRESHOLDS)?;
    Ok((problem.rows().to_vec(), dropped))
}

/// Pose of a camera in a map, and points in front of it: `u v tx ty tz`, and the points in the optical frame.
fn view(camera: &Camera, map_t_camera: &Rigid, n: usize) -> (Vec<Vec<f64>>, Vec<Point>) {
    let points: Vec<Point> = (0..n)
        .map(|i| {
            let t = i as f64;
            let z = 4.0 + 2.0 * (1.7 * t).sin();
            Point::new(0.4 * z * (1.3 * t).sin(), 0.3 * z * (0.7 * t + 1.0).cos(), z)
        })
        .collect();
    let row = |p: &Point| {
        let [u, v] = camera.project(p).expect("in sight");
        let q = map_t_camera * p;
        vec![u, v, q.x, q.y, q.z]
    };
    (points.iter().map(row).collect(), points)
}

fn pose() -> Rigid {
    let rotation = UnitQuaternion::from_euler_angles(-1.4, 0.2, 0.7);
    Rigid::from_parts(Translation3::new(12.0, -3.0, 1.5), rotation)
}

fn residual(sight: &Sight, point: &Point) -> f64 {
    (sight.metric * point.coords / sight.bearing.dot(&point.coords)).norm()
}

#[test]
fn a_calibration_comes_out_as_it_went_in_whatever_the_byte_order() {
    for cdr_big_endian in [false, true] {
        let info = changed(|info| {
            info.cdr_big_endian = cdr_big_endian;
            (info.binning, info.roi) = ([1, 2], [3, 4, 5, 6]);
        });
        let cdr = info.encode();
        let view = CameraInfoView::parse(&cdr).expect("readable");
        assert_eq!((view.stamp, view.frame), (Stamp::new(100, 0), "camera_optical"));
        assert_eq!((view.height, view.width, view.distortion_model), (480, 640, "plumb_bob"));
        assert_eq!((&view.d[..5], view.d_len), (&info.d[..], 5));
        assert_eq!((view.k, view.r, view.p), (info.k, info.r, info.p));
        assert_eq!((view.binning, view.roi), (info.binning, info.roi));
        for cut in 0..cdr.len() {
            assert!(CameraInfoView::parse(&cdr[..cut]).is_err(), "{cut}");
        }
    }
}

#[test]
fn the_camera_is_that_of_the_message() {
    let (focal, center) = ([612.5, 608.75], [331.25, 247.5]);
    let expect = |distortion| Camera::new([640, 480], focal, center, &distortion).expect("a camera");
    let plumb_bob = Distortion::PlumbBob([-0.28, 0.09, 0.0012, -0.0007, -0.015]);
    let rational = [0.1, 0.2, 0.001, 0.002, 0.3, 0.4, 0.5, 0.6];
    let fisheye = [0.01, -0.02, 0.003, -0.004];
    let longer = |n: usize| rational.into_iter().chain([0.0; 6]).take(n).collect::<Vec<_>>();
    let cases: Vec<(&str, Vec<f64>, Distortion)> = vec![
        ("plumb_bob", vec![-0.28, 0.09, 0.0012, -0.0007, -0.015], plumb_bob),
        ("plumb_bob", vec![0.1, 0.2, 0.001, 0.002], Distortion::PlumbBob([0.1, 0.2, 0.001, 0.002, 0.0])),
        ("plumb_bob", vec![], Distortion::None),
        ("", vec![], Distortion::None),
        ("rational_polynomial", longer(8), Distortion::RationalPolynomial(rational)),
        ("rational_polynomial", longer(12), Distortion::RationalPolynomial(rational)),
        ("rational_polynomial", longer(14), Distortion::RationalPolynomial(rational)),
        ("equidistant", fisheye.to_vec(), Distortion::Equidistant(fisheye)),
    ];
    for (model, d, distortion) in cases {
        let info = changed(|info| (info.model, info.d) = (model.to_owned(), d));
        assert_eq!(camera_of(&info, false), Ok(expect(distortion)), "{info:?}");
    }
    // What is usual beside zeros.
    let same: [fn(&mut CameraInfo); 3] =
        [|info| info.binning = [1, 1], |info| info.roi = [0, 0, 480, 640], |info| info.r = [0.0; 9]];
    for change in same {
        assert_eq!(camera_of(&changed(change), false), Ok(expect(plumb_bob)));
    }
}

#[test]
fn the_rectified_image_has_p_and_no_distortion() {
    let expect = Camera::new([640, 480], [500.0, 510.0], [320.0, 240.0], &Distortion::None);
    // Of the second camera of a stereo pair, with K and D that say nothing.
    let info = changed(|info| {
        info.p[3] = -60.0;
        (info.k, info.model) = ([0.0; 9], "of its own".to_owned());
    });
    assert_eq!(camera_of(&info, true), Ok(expect.expect("a camera")));
    let info = changed(|info| info.p = [0.0; 12]);
    let error = camera_of(&info, true).unwrap_err();
    assert_eq!(error.to_string(), "camera_info: P[0] is 0: the image is not rectified");
}

/// The ray of a raw pixel and that of the rectified pixel of the same point are the same.
#[test]
fn raw_and_rectified_pixels_of_a_stereo_camera_have_the_same_rays() {
    let turn: Rotation3<f64> = Rotation3::from_euler_angles(0.01, -0.02, 0.005);
    let rows = turn.matrix().transpose();
    let info = changed(|info| {
        // As in a file of calibration.
        for (value, exact) in info.r.iter_mut().zip(rows.iter()) {
            *value = (exact * 1e6).round() / 1e6;
        }
    });
    let (raw, rectified) = (camera_of(&info, false).expect("one"), camera_of(&info, true).expect("one"));
    let in_raw_axes = Point::new(0.3, -0.2, 2.0);
    let in_frame = turn * in_raw_axes;
    let pixel = camera().project(&in_raw_axes).expect("in sight");
    let seen = raw.project(&in_frame).expect("in sight");
    assert!((pixel[0] - seen[0]).abs() + (pixel[1] - seen[1]).abs() < 2e-3);
    let rays = [raw.bearing(pixel), rectified.bearing(rectified.project(&in_frame).expect("in sight"))];
    for ray in rays {
        assert!((ray.expect("a ray") - in_frame.coords.normalize()).norm() < 2e-6);
    }
}

#[test]
fn calibrations_that_cannot_be_used_are_refused_by_name() {
    type Change = fn(&mut CameraInfo);
    let table: [(Change, &str); 25] = [
        (|i| i.k = [0.0; 9], "K[0] is 0: the camera is not calibrated"),
        (|i| i.k[0] = -0.0, "K[0] is 0: the camera is not calibrated"),
        (|i| i.k[0] = -612.5, "the focal length is -612.5"),
        (|i| i.k[4] = 0.0, "the focal length is 0"),
        (|i| i.k[4] = f64::NAN, "K is not finite"),
        (|i| i.k[2] = f64::INFINITY, "K is not finite"),
        (|i| i.k[1] = 0.5, "K is not [fx 0 cx; 0 fy cy; 0 0 1]"),
        (|i| i.k[8] = 0.0, "K is not [fx 0 cx; 0 fy cy; 0 0 1]"),
        (|i| i.d[1] = f64::NAN, "the distortion is not finite"),
        (|i| i.r[3] = f64::NAN, "R is not finite"),
        (|i| i.r[0] = 0.9, "R is not a rotation"),
        (|i| i.r[8] = -1.0, "R is not a rotation"),
        (|i| i.r = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "R is not a rotation"),
        (|i| i.width = 0, "the image size is 0 x 480"),
        (|i| i.height = 0, "the image size is 640 x 0"),
        (|i| i.binning = [2, 2], "binning 2 x 2 is not supported"),
        (
            |i| i.roi = [10, 20, 100, 200],
            "roi of 200 x 100 at (10, 20) is not supported, only the whole image",
        ),
        (
            |i| i.model = "double_sphere".to_owned(),
            "distortion model 'double_sphere' is not plumb_bob, rational_polynomial or equidistant",
        ),
        (
            |i| i.model = String::new(),
            "distortion model '' is not plumb_bob, rational_polynomial or equidistant",
        ),
        (|i| i.d = vec![0.0; 3], "3 coefficients in D, plumb_bob has 4 or 5"),
        (|i| i.d = vec![0.0; 100], "100 coefficients in D, plumb_bob has 4 or 5"),
        (|i| i.model = "equidistant".to_owned(), "5 coefficients in D, equidistant has 4"),
        (|i| i.model = "rational_polynomial".to_owned(), "5 coefficients in D, rational_polynomial has 8"),
        (
            |i| (i.model, i.d) = ("rational_polynomial".to_owned(), vec![0.01; 12]),
            "rational_polynomial with a thin prism or tilt, D[8..], is not supported",
        ),
        (
            |i| (i.model, i.d) = ("rational_polynomial".to_owned(), vec![0.01; 14]),
            "rational_polynomial with a thin prism or tilt, D[8..], is not supported",
        ),
    ];
    for (change, words) in table {
        let error = camera_of(&changed(change), false).expect_err(words);
        assert_eq!(error.to_string(), format!("camera_info: {words}"));
        assert_eq!((error.status(), error.counter()), (Status::BadInput, Counter::RefusedCameraInfo));
    }
    let rectified: [(Change, &str); 5] = [
        (|i| i.p[0] = -500.0, "the focal length is -500"),
        (|i| i.p[1] = 1.0, "P is not [fx 0 cx; 0 fy cy; 0 0 1]"),
        (|i| i.p[6] = f64::NAN, "P is not finite"),
        (|i| i.binning = [0, 4], "binning 0 x 4 is not supported"),
        (|i| i.width = 0, "the image size is 0 x 480"),
    ];
    for (change, words) in rectified {
        let error = camera_of(&changed(change), true).expect_err(words);
        assert_eq!(error.to_string(), format!("camera_info: {words}"));
    }
}

/// The residual of the true pose is the reprojection error over the threshold.
#[test]
fn sights_of_pixels_fit_the_true_pose() {
    let (camera, pose) = (camera(), pose());
    let (mut rows, points) = view(&camera, &pose, 60);
    // Every other pixel is off by 2, half the threshold.
    rows.iter_mut().skip(1).step_by(2).for_each(|row| row[0] += 2.0);
    let fields = PIXEL.map(|(name, _)| (name, 8));
    let (read, dropped) = absolute(&Cloud::new(&fields, &rows), Some(&camera)).expect("readable");
    assert_eq!((read.len(), dropped), (60, Dropped::default()));
    for (i, (row, point)) in read.iter().zip(&points).enumerate() {
        assert_eq!(row.sight.pixel, Some([rows[i][0], rows[i][1]]));
        assert!((row.point - pose * point).norm() < 1e-12);
        assert!(
            (row.sight.bearing.norm() - 1.0).abs() < 1e-15
                && (row.sight.metric * row.sight.bearing).norm() < 1e-9
        );
        let expected = if i % 2 == 1 { 0.5 } else { 0.0 };
        let found = residual(&row.sight, &(pose.inverse() * row.point));
        assert!((found - expected).abs() < 0.01 * expected + 1e-9, "{i}: {found} is not {expected}");
    }
}

/// Of bearings it is the tangent of the angle over the threshold.
#[test]
fn sights_of_bearings_fit_the_true_pose() {
    let pose = pose();
    let rows: Vec<Vec<f64>> = (0..40)
        .map(|i| {
            let t = f64::from(i);
            let p = Point::new((1.3 * t).sin(), (0.7 * t).cos(), (2.1 * t).sin()) * (2.0 + t);
            let off = Rotation3::from_axis_angle(&Vector3::y_axis(), if i % 2 == 1 { 0.01 } else { 0.0 });
            let (ray, q) = (off * p.coords * 10f64.powi(i % 7 - 3), pose * p);
            vec![ray.x, ray.y, ray.z, q.x, q.y, q.z]
        })
        .collect();
    let fields = BEARINGS.map(|(name, _)| (name, 8));
    let (read, dropped) = absolute(&Cloud::new(&fields, &rows), None).expect("readable");
    assert_eq!((read.len(), dropped), (40, Dropped::default()));
    for (i, row) in read.iter().enumerate() {
        let p = pose.inverse() * row.point;
        let angle = row.sight.bearing.angle(&p.coords);
        assert!(row.sight.pixel.is_none() && (i % 2 == 1) == (angle > 1e-3));
        assert!((residual(&row.sight, &p) - angle.tan() / 0.01).abs() < 1e-6, "{i}");
    }
}

#[test]
fn every_type_either_byte_order_and_any_layout_is_read() {
    let camera = camera();
    let rows: Vec<Vec<f64>> =
        (0..9).map(|i| (0..6).map(|k| f64::from((i * 7 + k * 11) % 100 + 1)).collect()).collect();
    for datatype in 1..=8 {
        for big_endian in [false, true] {
            let fields = |names: &[(&'static str, u8)]| {
                names.iter().map(|(name, _)| (*name, datatype)).collect::<Vec<_>>()
            };
            let cloud = |names: &[(&'static str, u8)], padding: u32| {
                let mut cloud = Cloud::with_layout(&fields(names), &rows, padding, 3, padding, big_endian);
                cloud.cdr_big_endian = padding == 1;
                cloud
            };
            for padding in [0, 1] {
                let (read, _) = absolute(&cloud(&PIXEL, padding), Some(&camera)).expect("readable");
                assert_eq!(read.len(), 9);
                for (row, want) in read.iter().zip(&rows) {
                    assert_eq!(row.sight.pixel, Some([want[0], want[1]]));
                    assert_eq!(row.point, Point::new(want[2], want[3], want[4]));
                    assert_eq!((row.weight, row.id), (1.0, None));
                }
                let (read, _) = relative(&cloud(&PIXELS, padding), Some(&camera)).expect("readable");
                assert_eq!(read.len(), 9);
                for (row, want) in read.iter().zip(&rows) {
                    assert_eq!(row.sight.pixel, Some([want[0], want[1]]));
                    assert_eq!(row.reference.pixel, Some([want[2], want[3]]));
                }
                let (read, _) = relative(&cloud(&BEARINGS, padding), None).expect("readable");
                assert_eq!(read.len(), 9);
                for (row, want) in read.iter().zip(&rows) {
                    let ray = |at: usize| Vector::new(want[at], want[at + 1], want[at + 2]).normalize();
                    assert!(
                        (row.sight.bearing - ray(0)).norm() + (row.reference.bearing - ray(3)).norm() < 1e-14
                    );
                }
            }
        }
    }
}

#[test]
fn weight_and_identity_are_read() {
    let camera = camera();
    let fields =
        [("id", 6), ("v", 7), ("tz", 7), ("weight", 7), ("u", 4), ("ty", 8), ("tx", 7), ("intensity", 7)];
    let rows = vec![vec![7.0, 20.0, 3.0, 0.25, 10.0, 2.0, 1.0, 99.0]; 4];
    let (read, _) = absolute(&Cloud::new(&fields, &rows), Some(&camera)).expect("readable");
    assert_eq!((read[0].weight, read[0].id, read[0].sight.pixel), (0.25, Some(7), Some([10.0, 20.0])));
    assert_eq!(read[0].point, Point::new(1.0, 2.0, 3.0));
    let fields = [("u", 7), ("v", 7), ("tu", 7), ("tv", 7), ("weight", 7), ("id", 5)];
    let rows = vec![vec![10.0, 20.0, 30.0, 40.0, 0.5, -1.0], vec![10.0, 20.0, 30.0, 40.0, 0.5, 3.0]];
    let (read, _) = relative(&Cloud::new(&fields, &rows), Some(&camera)).expect("readable");
    assert_eq!((read[0].weight, read[0].id, read[1].id), (0.5, None, Some(3)));
}

#[test]
fn of_pixels_and_bearings_pixels_count_if_the_camera_is_known() {
    let camera = camera();
    let rows = vec![vec![100.0, 120.0, 0.0, 0.0, 2.0, 1.0, 2.0, 3.0]; 3];
    let both = [("u", 7), ("v", 7), ("x", 7), ("y", 7), ("z", 7), ("tx", 7), ("ty", 7), ("tz", 7)];
    let needs = |fields: &[(&str, u8)]| {
        let cdr = Cloud::new(fields, &rows).encode();
        AbsoluteView::parse(&cdr, false).expect("readable").needs_camera_info()
    };
    assert_eq!((needs(&both), needs(&both[2..]), needs(&PIXEL)), (false, false, true));
    let cloud = Cloud::new(&both, &rows);
    let (with, _) = absolute(&cloud, Some(&camera)).expect("readable");
    assert_eq!(with[0].sight.pixel, Some([100.0, 120.0]));
    assert!((with[0].sight.bearing - camera.bearing([100.0, 120.0]).expect("a ray")).norm() < 1e-15);
    let (without, _) = absolute(&cloud, None).expect("readable");
    assert_eq!((without[0].sight.pixel, without[0].sight.bearing), (None, Vector::z()));
    let error = absolute(&Cloud::new(&PIXEL, &rows), None).expect_err("no camera");
    assert_eq!(error.to_string(), "no_camera_info:lidar");
    assert_eq!((error.status(), error.counter()), (Status::BadInput, Counter::RefusedCameraInfo));
    assert_eq!(relative(&Cloud::new(&PIXELS, &rows), None), Err(error));
}

#[test]
fn unusable_rows_are_dropped_and_counted() {
    // Its distortion turns back in the image: the corners have no rays.
    let info = changed(|info| info.d = vec![-0.9, 0.0, 0.0, 0.0, 0.0]);
    let camera = camera_of(&info, false).expect("a camera");
    let fields = [("u", 8), ("v", 8), ("tx", 8), ("ty", 8), ("tz", 8), ("weight", 8)];
    let good = vec![320.0, 240.0, 1.0, 2.0, 3.0, 1.0];
    let mut rows = vec![good; 14];
    (rows[0][0], rows[1][1], rows[2][4]) = (f64::NAN, f64::INFINITY, f64::NAN);
    (rows[3][5], rows[4][5], rows[5][5]) = (0.0, -1.0, f64::NAN);
    (rows[6][0], rows[7][1], rows[8][0]) = (-0.6, 479.6, 1e300);
    (rows[9][0], rows[9][1]) = (0.0, 0.0);
    let (read, dropped) = absolute(&Cloud::new(&fields, &rows), Some(&camera)).expect("most are good");
    assert_eq!((read.len(), dropped), (4, Dropped { non_finite: 3, weight: 3, pixel: 4 }));

    let fields = [("u", 8), ("v", 8), ("tu", 8), ("tv", 8), ("weight", 8)];
    let mut rows = vec![vec![320.0, 240.0, 330.0, 250.0, 1.0]; 8];
    (rows[0][3], rows[1][2], rows[2][2], rows[2][3], rows[3][4]) = (f64::NAN, 640.0, 0.0, 0.0, 0.0);
    let (read, dropped) = relative(&Cloud::new(&fields, &rows), Some(&camera)).expect("most are good");
    assert_eq!((read.len(), dropped), (4, Dropped { non_finite: 1, weight: 1, pixel: 2 }));

    let fields = BEARINGS.map(|(name, _)| (name, 8));
    let mut rows = vec![vec![0.1, 0.2, 1.0, 1.0, 2.0, 3.0]; 6];
    rows[0][..3].fill(0.0);
    (rows[1][0], rows[2][2]) = (f64::NAN, f64::INFINITY);
    rows[3][3..].fill(0.0);
    // Very long and very short is fine.
    rows[4][..3].copy_from_slice(&[1e200, 2e200, 3e200]);
    rows[5][..3].copy_from_slice(&[1e-200, 2e-200, 3e-200]);
    let (read, dropped) = absolute(&Cloud::new(&fields, &rows), None).expect("readable");
    assert_eq!((read.len(), dropped), (3, Dropped { non_finite: 3, weight: 0, pixel: 0 }));
    assert!(
        (read[1].sight.bearing - read[2].sight.bearing).norm() < 1e-15 && read[1].sight.bearing.norm() > 0.9
    );
    let (read, dropped) = relative(&Cloud::new(&fields, &rows), None).expect("readable");
    assert_eq!((read.len(), dropped.non_finite), (2, 4));
}

#[test]
fn an_image_that_most_pixels_are_outside_of_is_the_wrong_one() {
    let camera = camera();
    let rows = |outside: usize| {
        let row = |i| vec![if i < outside { 900.0 } else { 300.0 }, 200.0, 310.0, 210.0, 1.0];
        (0..10).map(row).collect::<Vec<_>>()
    };
    let (read, dropped) =
        absolute(&Cloud::new(&PIXEL, &rows(5)), Some(&camera)).expect("half is in the image");
    assert_eq!((read.len(), dropped.pixel), (5, 5));
    let words = "camera_info: wrong image size: 6 of 10 pixels are outside the 640 x 480 image";
    let error = absolute(&Cloud::new(&PIXEL, &rows(6)), Some(&camera)).expect_err("refused");
    assert_eq!(error.to_string(), words);
    assert_eq!((error.status(), error.counter()), (Status::BadInput, Counter::RefusedCameraInfo));
    let cdr = Cloud::new(&PIXELS, &rows(6)).encode();
    let mut problem = RelativeProblem::default();
    let view = RelativeView::parse(&cdr, false).expect("readable");
    assert_eq!(view.fill(&mut problem, Some(&camera), &THRESHOLDS), Err(error));
    assert!(problem.rows().is_empty());
}

#[test]
fn a_field_that_is_missing_is_named() {
    let rows = vec![vec![1.0; 8]; 5];
    let missing = |fields: &[&'static str], relative: bool| {
        let fields: Vec<_> = fields.iter().map(|name| (*name, 7)).collect();
        let cdr = Cloud::new(&fields, &rows).encode();
        let error = match relative {
            true => RelativeView::parse(&cdr, false).map(drop),
            false => AbsoluteView::parse(&cdr, false).map(drop),
        };
        error.expect_err("refused").to_string()
    };
    assert_eq!(missing(&["u", "v", "ty", "tz"], false), "missing_field:tx");
    assert_eq!(missing(&["tx", "ty", "tz"], false), "missing_field:u");
    assert_eq!(missing(&["u", "tx", "ty", "tz"], false), "missing_field:v");
    assert_eq!(missing(&["x", "y", "tx", "ty", "tz"], false), "missing_field:z");
    assert_eq!(missing(&["u", "v", "tu"], true), "missing_field:tv");
    assert_eq!(missing(&["x", "y", "z", "tx", "tz"], true), "missing_field:ty");
    assert_eq!(missing(&["intensity"], true), "missing_field:u");
}

#[test]
fn broken_clouds_are_refused_as_those_of_points_are() {
    let rows = vec![vec![10.0, 20.0, 30.0, 40.0, 50.0]; 30];
    let refused = |change: fn(&mut Cloud)| {
        let mut cloud = Cloud::new(&PIXEL, &rows);
        change(&mut cloud);
        absolute(&cloud, Some(&camera())).expect_err("refused")
    };
    assert_eq!(refused(|c| c.width = 0), MessageError::Empty);
    assert_eq!(refused(|c| c.fields[0].datatype = 9).to_string(), "bad_datatype:u=9");
    assert_eq!(refused(|c| c.fields[1].count = 2).to_string(), "bad_count:v=2");
    assert_eq!(refused(|c| c.point_step = 19), MessageError::BadPointStep { got: 19, need: 20 });
    assert_eq!(refused(|c| c.is_bigendian = true), MessageError::BadEndianness { big_endian: true });
    let mut lying = Cloud::new(&PIXEL, &rows);
    lying.is_bigendian = true;
    let cdr = lying.encode();
    let mut problem = AbsoluteProblem::default();
    let view = AbsoluteView::parse(&cdr, true).expect("not believed");
    view.fill(&mut problem, Some(&camera()), &THRESHOLDS).expect("readable");
    assert_eq!(problem.rows()[0].sight.pixel, Some([10.0, 20.0]));
    let too_few = MessageError::TooFew { got: 4, need: 5 };
    assert_eq!((too_few.to_string().as_str(), too_few.status()), ("too_few:4<5", Status::TooFew));
}

/// A recorded drive whose share of right matches falls from 0.9 to 0.18: so many fit the true pose.
#[test]
fn recorded_features_fit_the_true_pose() {
    let bag = "correspondences_demo/correspondences_demo.mcap";
    let Some(infos) = recorded(bag, "sensor_msgs/msg/CameraInfo") else { return };
    let clouds = recorded(bag, "sensor_msgs/msg/PointCloud2").expect("as above");
    let poses = recorded(bag, PoseType::Pose.name()).expect("as above");
    let camera = CameraInfoView::parse(&infos[0].1).expect("readable").camera(false).expect("calibrated");
    let of = |topic: &'static str| move |(name, cdr): (String, Vec<u8>)| (name == topic).then_some(cdr);
    let truth: Vec<Vec<u8>> = poses.into_iter().filter_map(of("/ground_truth/camera")).collect();
    let landmarks = clouds.iter().cloned().filter_map(of("/correspondences_2d3d"));
    let (mut absolute, mut relative) = (AbsoluteProblem::default(), RelativeProblem::default());
    let mut shares = Vec::new();
    for (cdr, truth) in landmarks.zip(&truth) {
        let view = AbsoluteView::parse(&cdr, false).expect("readable");
        let truth = PoseView::parse(PoseType::Pose, truth).expect("readable");
        assert_eq!(view.cloud().stamp, truth.stamp);
        view.fill(&mut absolute, Some(&camera), &THRESHOLDS).expect("in the image");
        let [x, y, z, w] = truth.orientation;
        let rotation = UnitQuaternion::from_quaternion(Quaternion::new(w, x, y, z));
        let camera_t_map = Rigid::from_parts(Translation3::from(truth.position), rotation).inverse();
        let fits = |row: &&AbsoluteRow| residual(&row.sight, &(camera_t_map * row.point)) <= 1.0;
        shares.push(absolute.rows().iter().filter(fits).count() as f64 / view.cloud().len() as f64);
    }
    println!("rows within 4 px of the true pose: {shares:.3?}");
    assert!(shares.len() == 10 && shares[0] > 0.89 && shares[9] > 0.16 && shares.is_sorted_by(|a, b| a > b));
    for cdr in clouds.iter().cloned().filter_map(of("/correspondences_2d2d")) {
        let view = RelativeView::parse(&cdr, false).expect("readable");
        let dropped = view.fill(&mut relative, Some(&camera), &THRESHOLDS).expect("in the image");
        assert_eq!(relative.rows().len() + dropped.pixel, 1500);
        assert!(relative.rows().iter().all(|row| row.sight.metric != Matrix2x3::zeros()));
    }
}
