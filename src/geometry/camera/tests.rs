use super::*;
use proptest::prelude::*;
use std::f64::consts::{FRAC_PI_2, PI};

const SIZE: [u32; 2] = [640, 480];
const FOCAL: [f64; 2] = [612.5, 608.75];
const CENTER: [f64; 2] = [331.25, 247.5];
const PLUMB_BOB: Distortion = Distortion::PlumbBob([-0.28, 0.09, 0.0012, -0.0007, -0.015]);
const RATIONAL: Distortion = Distortion::RationalPolynomial([1.9, 0.8, 0.0004, -0.0003, 0.05, 2.2, 1.4, 0.2]);
const EQUIDISTANT: Distortion = Distortion::Equidistant([-0.012, 0.021, -0.017, 0.004]);

fn camera(distortion: Distortion) -> Camera {
    Camera::new(SIZE, FOCAL, CENTER, &distortion).expect("a camera")
}

fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    (Vector2::from(a) - Vector2::from(b)).norm()
}

/// OpenCV 5.0.0 (opencv-python-headless on PyPI) with
/// `K = [[612.5, 0, 331.25], [0, 608.75, 247.5], [0, 0, 1]]` and the coefficients above:
/// `cv2.projectPoints(rays, zeros, zeros, K, D)`, `cv2.fisheye.projectPoints` for the last. Its
/// `undistortPoints` gives the rays back to 1e-15, that of `fisheye` to 1e-11.
#[test]
fn pixels_and_rays_are_those_of_opencv() {
    let rays = [[0.0, 0.0, 1.0], [0.3, -0.2, 1.0], [-0.6, 0.45, 1.0], [0.1, 0.7, 1.5], [-2.0, -1.1, 4.0]];
    let wide = [[0.0, 0.0, 1.0], [0.3, -0.2, 1.0], [-2.5, 1.4, 1.0], [0.1, 3.0, 0.5], [-2.0, -1.1, 0.01]];
    let plumb_bob = [
        [331.25, 247.5],
        [508.36381576875, 130.20507052124998],
        [11.200447973632777, 486.2986834954834],
        [369.66399698216736, 515.5768591632373],
        [50.0065912892685, 94.07735472718929],
    ];
    let rational = [
        [331.25, 247.5],
        [507.97520991771114, 130.4203482756118],
        [15.514186692415706, 482.911976502809],
        [369.4928088427798, 513.8988788220697],
        [52.15587800778087, 95.05003632519399],
    ];
    let equidistant = [
        [331.25, 247.5],
        [507.40085915340967, 130.78507699631223],
        [-323.39132430904965, 611.8546570725796],
        [359.5933137550021, 1092.5934978787368],
        [-501.7187129819365, -207.82789749430952],
    ];
    let models = [(PLUMB_BOB, rays, plumb_bob), (RATIONAL, rays, rational), (EQUIDISTANT, wide, equidistant)];
    for (distortion, rays, pixels) in models {
        let camera = camera(distortion);
        for (ray, pixel) in rays.into_iter().zip(pixels) {
            let ours = camera.project(&Point::from(ray)).expect("a pixel");
            assert!(distance(ours, pixel) < 1e-11, "{distortion:?} {ray:?}: {ours:?} is not {pixel:?}");
            let bearing = camera.bearing(pixel).expect("a ray");
            assert!(
                (bearing - Vector::from(ray).normalize()).norm() < 1e-13,
                "{distortion:?} {ray:?}: {bearing}"
            );
        }
    }
}

#[test]
fn a_pinhole_is_similar_triangles() {
    let camera = camera(Distortion::None);
    let pixel = camera.project(&Point::new(0.2, -0.4, 2.0)).expect("a pixel");
    assert!(distance(pixel, [331.25 + 61.25, 247.5 - 121.75]) < 1e-12);
    assert_eq!(camera.project(&Point::new(0.2, -0.4, 0.0)), None);
    assert_eq!(camera.project(&Point::new(0.2, -0.4, -2.0)), None);
    assert!(camera.contains([-0.5, 479.5]) && camera.contains([639.5, 0.0]));
    assert!(
        !camera.contains([-0.51, 3.0]) && !camera.contains([3.0, 479.51]) && !camera.contains([f64::NAN; 2])
    );
    assert_eq!((camera.size(), camera.focal(), camera.center()), (SIZE, FOCAL, CENTER));
}

#[test]
fn a_fisheye_sees_what_is_behind_it() {
    let plain =
        Camera::new([2000; 2], [300.0; 2], [1000.0; 2], &Distortion::Equidistant([0.0; 4])).expect("one");
    assert!(plain.max_angle() > 0.999 * PI);
    for angle in [0.3, FRAC_PI_2, 2.0, 3.0] {
        let ray = Point::new(0.6 * f64::sin(angle), 0.8 * f64::sin(angle), f64::cos(angle));
        let pixel = plain.project(&(ray * 7.0)).expect("a pixel");
        assert!(
            distance(pixel, [1000.0 + 180.0 * angle, 1000.0 + 240.0 * angle]) < 1e-9,
            "{angle}: {pixel:?}"
        );
        assert!((plain.bearing(pixel).expect("a ray") - ray.coords).norm() < 1e-13);
    }
    // Beyond the ray that points straight back there is nothing.
    assert_eq!(plain.bearing([1000.0 + 300.0 * PI + 1.0, 1000.0]), None);
    assert_eq!(plain.project(&Point::new(0.0, 0.0, -1.0)), None);
}

/// r - r^3 / 2 turns back at r = sqrt(2/3), where it is 0.5443.
#[test]
fn where_the_distortion_turns_back_there_are_no_pixels_and_no_rays() {
    let camera =
        Camera::new([2000; 2], [500.0; 2], [1000.0; 2], &Distortion::PlumbBob([-0.5, 0.0, 0.0, 0.0, 0.0]))
            .expect("a camera");
    let edge = f64::sqrt(2.0 / 3.0);
    assert!((camera.max_angle() - edge.atan()).abs() < 1e-11);
    let image_edge = 500.0 * (edge - 0.5 * edge.powi(3));
    assert!(camera.project(&Point::new(0.999_999 * edge, 0.0, 1.0)).is_some());
    // This one would come to a pixel well within.
    assert_eq!(camera.project(&Point::new(1.3 * edge, 0.0, 1.0)), None);
    for turn in 0..100 {
        let (sin, cos) = f64::from(turn).sin_cos();
        let at = |radius: f64| camera.bearing([1000.0 + radius * cos, 1000.0 + radius * sin]);
        let ray = at(image_edge - 1e-6).expect("a ray");
        assert!(ray.xy().norm() / ray.z < edge && ray.z > 0.0);
        assert_eq!(at(image_edge + 1e-6), None);
        assert_eq!(at(3.0 * image_edge), None);
    }
    // The same of a fisheye: angle - angle^3 / 3 turns back at 1 rad.
    let fisheye = Camera::new(
        [2000; 2],
        [500.0; 2],
        [1000.0; 2],
        &Distortion::Equidistant([-1.0 / 3.0, 0.0, 0.0, 0.0]),
    )
    .expect("a camera");
    assert!((fisheye.max_angle() - 1.0).abs() < 1e-11);
    assert!(fisheye.bearing([1000.0, 1000.0 + 500.0 * 2.0 / 3.0 - 1e-6]).is_some());
    assert_eq!(fisheye.bearing([1000.0, 1000.0 + 500.0 * 2.0 / 3.0 + 1e-6]), None);
    assert_eq!(fisheye.project(&Point::new(f64::sin(1.001), 0.0, f64::cos(1.001))), None);
}

/// With p1 and p2 the Jacobian is positive definite on the whole disc, and at its edge it just stops being so.
#[test]
fn the_disc_of_a_decentred_lens_is_as_large_as_can_be() {
    for d in [[-0.3, 0.02, 0.02, -0.01, 0.0], [0.1, -0.05, -0.005, 0.03, -0.01], [0.0, 0.0, 0.05, 0.05, 0.0]]
    {
        let camera = camera(Distortion::PlumbBob(d));
        let radius = camera.max_angle().tan();
        let smallest = |share: f64| {
            let eigenvalue = |turn: i32| {
                let (sin, cos) = (f64::from(turn) * PI / 1800.0).sin_cos();
                let ray = Vector::new(share * radius * cos, share * radius * sin, 1.0);
                let by_ray = camera.derivative(&ray).expect("in the disc");
                let [a, b] = [by_ray[(0, 0)] / FOCAL[0], by_ray[(0, 1)] / FOCAL[0]];
                let [c, d] = [by_ray[(1, 0)] / FOCAL[1], by_ray[(1, 1)] / FOCAL[1]];
                assert!((b - c).abs() < 1e-12);
                0.5 * (a + d - ((a - d) * (a - d) + 4.0 * b * c).sqrt())
            };
            (0..3600).map(eigenvalue).fold(f64::INFINITY, f64::min)
        };
        assert!(smallest(0.5) > 0.1 && smallest(0.99) > 0.0, "{d:?}");
        assert!(smallest(1.0 - 1e-9).abs() < 1e-3, "{d:?}: {}", smallest(1.0 - 1e-9));
    }
}

#[test]
fn the_derivative_is_that_of_the_pixel() {
    let turn = nalgebra::Rotation3::from_euler_angles(0.1, -0.2, 0.3);
    let cameras = [Distortion::None, PLUMB_BOB, RATIONAL, EQUIDISTANT].map(camera);
    let turned = cameras.map(|camera| camera.turned(turn.matrix()));
    let behind = [Vector::new(1.0, 2.0, -0.5), Vector::new(-0.5, 0.1, -0.3), Vector::new(0.0, 3.0, 0.0)];
    let front = [Vector::new(0.0, 0.0, 2.0), Vector::new(0.3, -0.2, 1.0), Vector::new(-1.2, -0.8, 3.0)];
    for (i, camera) in cameras.iter().chain(&turned).enumerate() {
        let fisheye = i % 4 == 3;
        for ray in front.iter().chain(behind.iter().filter(|_| fisheye)) {
            let derivative = camera.derivative(ray).expect("in sight");
            assert!((derivative * ray).norm() < 1e-9);
            for axis in 0..3 {
                let step = 1e-6 * Vector::ith(axis, 1.0);
                let at = |ray: Vector| Vector2::from(camera.project(&Point::from(ray)).expect("in sight"));
                let numeric = (at(ray + step) - at(ray - step)) / 2e-6;
                let column = derivative.column(axis);
                assert!(
                    (numeric - column).norm() < 1e-5 * (1.0 + column.norm()),
                    "{i} {ray} {axis}: {numeric} {column}"
                );
            }
        }
    }
}

#[test]
fn a_turned_camera_sees_the_same_in_other_axes() {
    let turn = nalgebra::Rotation3::from_euler_angles(0.02, -0.01, 0.5);
    let (camera, turned) = (camera(PLUMB_BOB), camera(PLUMB_BOB).turned(turn.matrix()));
    let point = Point::new(0.4, -0.3, 2.0);
    let pixel = camera.project(&point).expect("a pixel");
    assert!(distance(turned.project(&(turn * point)).expect("a pixel"), pixel) < 1e-11);
    let ray = turn * camera.bearing(pixel).expect("a ray");
    assert!((turned.bearing(pixel).expect("a ray") - ray).norm() < 1e-15);
}

#[test]
fn what_is_no_camera_is_refused() {
    let new = |size, focal, center, distortion| Camera::new(size, focal, center, &distortion).unwrap_err();
    assert_eq!(new([0, 480], FOCAL, CENTER, PLUMB_BOB), CameraError::Size(0, 480));
    assert_eq!(new(SIZE, [-1.0, 1.0], CENTER, PLUMB_BOB), CameraError::Focal(-1.0));
    assert_eq!(new(SIZE, [1.0, 0.0], CENTER, PLUMB_BOB).to_string(), "the focal length is 0");
    let not_finite = [
        new(SIZE, [f64::NAN, 1.0], CENTER, PLUMB_BOB),
        new(SIZE, FOCAL, [0.0, f64::INFINITY], PLUMB_BOB),
        new(SIZE, FOCAL, CENTER, Distortion::Equidistant([0.0, f64::NAN, 0.0, 0.0])),
    ];
    assert_eq!(not_finite.map(|e| e.to_string()).join(", ").matches("is not finite").count(), 3);
}

#[test]
fn what_is_no_number_has_neither_pixel_nor_ray() {
    for camera in [Distortion::None, PLUMB_BOB, RATIONAL, EQUIDISTANT].map(camera) {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for i in 0..3 {
                let mut point = Point::new(0.1, 0.1, 1.0);
                point[i] = bad;
                assert_eq!(camera.project(&point), None);
                assert_eq!(camera.derivative(&point.coords), None);
            }
            assert_eq!(camera.bearing([bad, 3.0]), None);
            assert_eq!(camera.bearing([3.0, bad]), None);
        }
        assert_eq!(camera.project(&Point::origin()), None);
        assert_eq!(camera.bearing([1e300, 1e300]), None);
    }
}

/// What the last digits of a ray make of its pixel: nothing, but for coefficients without sense.
fn rounding(camera: &Camera, ray: &Vector) -> f64 {
    4.0 * f64::EPSILON * camera.derivative(ray).map_or(0.0, |derivative| derivative.norm())
}

/// Lenses as calibrations give them, and coefficients without sense.
fn any_distortion() -> impl Strategy<Value = Distortion> {
    let wild = || prop_oneof![-3.0..3.0f64, Just(0.0), -1e9..1e9f64];
    prop_oneof![
        (prop::array::uniform3(-0.6..0.6f64), prop::array::uniform2(-0.02..0.02f64))
            .prop_map(|([k1, k2, k3], [p1, p2])| Distortion::PlumbBob([k1, k2, p1, p2, k3])),
        (prop::array::uniform6(-1.0..2.0f64), prop::array::uniform2(-0.01..0.01f64)).prop_map(
            |([a, b, c, d, e, f], [p1, p2])| Distortion::RationalPolynomial([a, b, p1, p2, c, d, e, f])
        ),
        prop::array::uniform4(-0.2..0.2f64).prop_map(Distortion::Equidistant),
        prop::array::uniform5(wild()).prop_map(Distortion::PlumbBob),
        prop::array::uniform8(wild()).prop_map(Distortion::RationalPolynomial),
        prop::array::uniform4(wild()).prop_map(Distortion::Equidistant),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_coefficients_do_harm(
        all in prop::array::uniform8(prop_oneof![prop::num::f64::NORMAL, -1.0..1.0f64, Just(0.0)]),
        pixel in prop::array::uniform2(prop_oneof![prop::num::f64::ANY, 0.0..640.0f64]),
        point in prop::array::uniform3(prop_oneof![prop::num::f64::ANY, -1.0..1.0f64]),
    ) {
        let [a, b, c, d, e, ..] = all;
        for distortion in [
            Distortion::PlumbBob([a, b, c, d, e]),
            Distortion::RationalPolynomial(all),
            Distortion::Equidistant([a, b, c, d]),
        ] {
            let camera = camera(distortion);
            if let Some(ray) = camera.bearing(pixel) {
                prop_assert!((ray.norm() - 1.0).abs() < 1e-15);
            }
            let _ = camera.derivative(&Vector::from(point));
            if let Some(pixel) = camera.project(&Point::from(point)) {
                prop_assert!(pixel.iter().all(|v| v.is_finite()));
            }
        }
    }

    /// A pixel that has a ray is the pixel of that ray; a ray that has a pixel is found again, or one of the same
    /// pixel right at the edge.
    #[test]
    fn there_and_back(
        distortion in any_distortion(),
        pixels in prop::collection::vec((-200.0..840.0f64, -200.0..680.0f64), 10),
        shares in prop::collection::vec((0.0..1.0f64, 0.0..6.3f64), 10),
    ) {
        let camera = camera(distortion);
        for (u, v) in pixels {
            if let Some(ray) = camera.bearing([u, v]) {
                prop_assert!((ray.norm() - 1.0).abs() < 1e-15);
                let back = camera.project(&Point::from(ray)).expect("a ray of a pixel has a pixel");
                let slack = rounding(&camera, &ray);
                prop_assert!(distance(back, [u, v]) < 1e-9 + slack, "{:?} and {:?}", back, [u, v]);
            }
        }
        for (share, turn) in shares {
            let (angle, (sin, cos)) = (share * camera.max_angle(), turn.sin_cos());
            let ray = Vector::new(angle.sin() * cos, angle.sin() * sin, angle.cos());
            let Some(pixel) = camera.project(&Point::from(ray)) else {
                prop_assert!(share > 1.0 - 1e-9 || camera.max_angle() < 1e-6, "{share}");
                continue;
            };
            if distance(pixel, CENTER) > 1e5 {
                continue; // Nearly at right angles to the axis of a pinhole.
            }
            let Some(found) = camera.bearing(pixel) else {
                prop_assert!(share > 1.0 - 1e-6, "no ray for {pixel:?} of {ray}");
                continue;
            };
            let back = camera.project(&Point::from(found)).expect("a pixel");
            prop_assert!(distance(back, pixel) < 1e-9 + 1e-12 * distance(pixel, CENTER) + rounding(&camera, &found));
            if share < 0.98 {
                // As far as the pixel fixes it.
                let least = camera.derivative(&ray).expect("in sight").singular_values().min();
                prop_assert!((found - ray).norm() * least.min(1.0) < 1e-7, "{} is not {} at {}", found, ray, least);
            }
        }
    }
}
