//! Simulated cameras: what each model sees, when its rows are read, and what stands in its messages.

use flashreg::estimation::{AbsoluteProblem, RelativeProblem};
use flashreg::geometry::{Point, Rigid};
use flashreg::messages::camera_info::CameraInfoView;
use flashreg::messages::cdr::CdrReader;
use flashreg::messages::sights::{AbsoluteView, RelativeView, Thresholds};
use flashreg::messages::Stamp;
use flashreg::simulate::camera::{CameraModel, CameraOptions, Sight, View};
use flashreg::simulate::levels::Levels;
use flashreg::simulate::{write, Options, Simulation, Topics};
use std::io::Cursor;

const MODELS: [CameraModel; 3] = [CameraModel::Pinhole, CameraModel::Fisheye, CameraModel::Bearings];

/// A short drive with a camera alone, and a map from few sweeps: what takes long is the map.
fn options(camera: CameraOptions) -> Options {
    let mut levels = Levels::default();
    levels.places.building.mapping_step = 4.0;
    let topics = Topics { correspondences: false, camera: true, ..Topics::default() };
    Options { seed: 4, duration: 3.0, rate: 5.0, topics, levels, camera, ..Options::default() }
}

fn of_model(model: CameraModel) -> CameraOptions {
    CameraOptions { model, ..CameraOptions::default() }
}

fn made(options: Options) -> Simulation {
    Simulation::new(options).expect("a building")
}

fn views(simulation: &Simulation) -> Vec<View> {
    (0..simulation.views()).map(|i| simulation.view(i).expect("a view")).collect()
}

/// Topic, arrival, stamp, bytes.
type Message = (String, u64, Stamp, Vec<u8>);

fn messages(simulation: &Simulation) -> Vec<Message> {
    let mut out = Cursor::new(Vec::new());
    let written = write::mcap(simulation, &mut out, |_| ()).expect("written");
    assert_eq!(written.views, simulation.views());
    assert!(written.landmarks > 50 * written.views && written.right_landmarks < written.landmarks);
    let file = out.into_inner();
    let all = mcap::MessageStream::new(&file).expect("MCAP").map(|m| m.expect("a message"));
    let stamped = |m: mcap::Message| {
        let mut reader = CdrReader::new(&m.data).expect("CDR");
        if m.channel.topic.starts_with("/tf") {
            reader.u32().expect("a length");
        }
        let stamp = reader.header().expect("a header").0;
        (m.channel.topic.clone(), m.log_time, stamp, m.data.to_vec())
    };
    all.map(stamped).collect()
}

fn on<'a>(messages: &'a [Message], topic: &str) -> Vec<&'a Message> {
    messages.iter().filter(|m| m.0 == topic).collect()
}

/// The distance of two sights, pixels or rad.
fn distance(a: Sight, b: Sight) -> f64 {
    match (a, b) {
        (Sight::Pixel(a), Sight::Pixel(b)) => (a[0] - b[0]).hypot(a[1] - b[1]),
        (Sight::Bearing(a), Sight::Bearing(b)) => a.cross(&b).norm().atan2(a.dot(&b)),
        _ => panic!("sights of two kinds"),
    }
}

#[test]
fn each_model_sees_landmarks_where_they_are_as_far_aside_as_it_can() {
    for model in MODELS {
        let simulation = made(options(of_model(model)));
        let camera = simulation.camera().expect("a camera");
        let levels = camera.levels();
        let (noise, widest) = match model {
            CameraModel::Pinhole => (levels.pixel_noise, 55.0),
            CameraModel::Fisheye => (levels.pixel_noise, levels.fisheye.max_angle_deg),
            CameraModel::Bearings => (levels.bearings.noise, levels.bearings.max_angle_deg),
        };
        let (mut squares, mut right, mut all, mut angle) = (0.0, 0, 0, 0.0f64);
        for view in views(&simulation) {
            all += view.landmarks.len();
            for m in view.landmarks.iter().filter(|m| m.right) {
                let local = view.map_t_camera.inverse() * m.landmark;
                squares += distance(camera.project(&local).expect("seen"), m.sight).powi(2);
                right += 1;
                angle = angle.max(local.coords.xy().norm().atan2(local.z).to_degrees());
            }
        }
        let rate = right as f64 / all as f64;
        assert!(all > 100 * simulation.views() && (0.45..0.55).contains(&rate), "{model:?}: {rate} of {all}");
        let rms = (squares / right as f64 / 2.0).sqrt();
        assert!((rms / noise - 1.0).abs() < 0.1, "{model:?}: {rms} against {noise}");
        // The corners of the image, or nearly all that the lens lets in.
        assert!(angle <= widest && angle > widest - 12.0, "{model:?}: {angle} of {widest} degrees");
    }
}

#[test]
fn what_the_messages_say_is_what_was_seen() {
    for model in MODELS {
        let simulation = made(options(of_model(model)));
        let camera = simulation.camera().expect("a camera");
        let all = messages(&simulation);
        let infos = on(&all, "/camera_info");
        let lens = infos.first().map(|info| {
            let view = CameraInfoView::parse(&info.3).expect("CameraInfo");
            assert_eq!((view.frame, view.stamp), ("camera_optical", info.2));
            view.camera(false).expect("calibrated")
        });
        assert_eq!(lens.as_ref(), camera.intrinsics().map(|(lens, _)| lens));
        assert_eq!(infos.len(), if model == CameraModel::Bearings { 0 } else { simulation.views() });
        let thresholds = Thresholds { pixel: 4.0, angle: 0.02 };
        let (points, pairs) = (on(&all, "/correspondences_2d3d"), on(&all, "/correspondences_2d2d"));
        assert_eq!(points.len(), simulation.views());
        let (mut absolute, mut relative) = (AbsoluteProblem::default(), RelativeProblem::default());
        let mut pairs = pairs.into_iter();
        for (view, message) in views(&simulation).iter().zip(points) {
            let cloud = AbsoluteView::parse(&message.3, false).expect("2D-3D");
            assert_eq!(cloud.needs_camera_info(), lens.is_some());
            let dropped = cloud.fill(&mut absolute, lens.as_ref(), &thresholds).expect("rows");
            assert_eq!((dropped.non_finite, dropped.weight), (0, 0));
            // Noise takes few pixels at the edge of the lens beyond what it maps.
            assert!(dropped.pixel * 50 <= view.landmarks.len(), "{model:?}: {dropped:?}");
            if dropped.pixel > 0 {
                continue;
            }
            // Under the true pose, right rows are within the threshold, which is five deviations.
            let camera_t_map = view.map_t_camera.inverse();
            for (row, m) in absolute.rows().iter().zip(&view.landmarks).filter(|(_, m)| m.right) {
                let local = camera_t_map * row.point;
                let residual = row.sight.metric * local.coords / row.sight.bearing.dot(&local.coords);
                assert!(residual.norm() < 1.3, "{model:?}: {} of {m:?}", residual.norm());
                assert_eq!((row.id, row.weight), (Some(m.id), 1.0));
            }
            let Some((reference_t_camera, matches)) = &view.reference else { continue };
            let message = pairs.next().expect("a pair for each");
            let cloud = RelativeView::parse(&message.3, false).expect("2D-2D");
            let dropped = cloud.fill(&mut relative, lens.as_ref(), &thresholds).expect("rows");
            if dropped.pixel > 0 {
                continue;
            }
            // The bearings of a right row and the baseline lie in a plane.
            for (row, m) in relative.rows().iter().zip(matches).filter(|(_, m)| m.right) {
                let across = reference_t_camera.translation.vector.cross(&row.reference.bearing);
                let turned = reference_t_camera.rotation * row.sight.bearing;
                let off = turned.dot(&across) / across.norm().max(1e-9);
                assert!(off.abs() < 0.1, "{model:?}: {off} of {m:?}");
            }
        }
    }
}

#[test]
fn rows_of_a_rolling_shutter_are_read_while_the_robot_moves() {
    for model in [CameraModel::Pinhole, CameraModel::Fisheye] {
        let mut options = options(CameraOptions { model, rolling_shutter: true, rate: None });
        options.levels.camera.pixel_noise = 0.0;
        let simulation = made(options);
        let camera = simulation.camera().expect("a camera");
        let [width, height] = camera.intrinsics().expect("an image").0.size().map(f64::from);
        let base_t_camera = camera.base_t_camera();
        let (mut worst, mut frozen, mut n) = (0.0f64, 0.0, 0.0);
        for view in views(&simulation) {
            let at_stamp = simulation.motion().pose(view.seconds) * base_t_camera;
            assert_eq!(view.map_t_camera, at_stamp);
            for m in view.landmarks.iter().filter(|m| m.right) {
                let Sight::Pixel([column, row]) = m.sight else { panic!("an image") };
                // A detector finds nothing beyond the centres of the last pixels.
                if column >= width - 1.0 || row >= height - 1.0 {
                    continue;
                }
                let then = view.seconds + camera.levels().readout * row / height;
                let see = |pose: Rigid| camera.project(&(pose.inverse() * m.landmark));
                let seen = see(simulation.motion().pose(then) * base_t_camera).expect("seen");
                worst = worst.max(distance(seen, m.sight));
                // At the time of the first row it may be beyond the edge.
                if let Some(seen) = see(at_stamp) {
                    (frozen, n) = (frozen + distance(seen, m.sight), n + 1.0);
                }
            }
        }
        // The robot drives some centimetres and turns while the image is read.
        assert!(worst < 1e-6 && frozen / n > 0.5, "{model:?}: {worst}, {}", frozen / n);
    }
    let bearings = CameraOptions { rolling_shutter: true, ..of_model(CameraModel::Bearings) };
    let error = Simulation::new(options(bearings)).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("bearings have none"), "{error}");
}

#[test]
fn weights_tell_something_and_change_nothing_else() {
    let plain = made(options(of_model(CameraModel::Fisheye)));
    let weighted = made(Options { weights: true, ..plain.options().clone() });
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for (a, b) in views(&plain).iter().zip(views(&weighted)) {
        assert!(a.landmarks.iter().zip(&b.landmarks).all(|(a, b)| (a.sight, a.id) == (b.sight, b.id)));
        assert!(a.landmarks.iter().all(|m| m.weight == 1.0));
        let pairs = b.reference.iter().flat_map(|(_, matches)| matches).map(|m| (m.right, m.weight));
        for (right, weight) in b.landmarks.iter().map(|m| (m.right, m.weight)).chain(pairs) {
            sums[usize::from(right)] += f64::from(weight);
            counts[usize::from(right)] += 1.0;
        }
    }
    let [wrong, right] = [0, 1].map(|i| sums[i] / counts[i]);
    let [of_right, of_wrong, _] = weighted.options().levels.weights;
    assert!((right - of_right).abs() < 0.02 && (wrong - of_wrong).abs() < 0.02, "{right} {wrong}");
    let all = messages(&weighted);
    let (first, view) = (on(&all, "/correspondences_2d3d")[0], weighted.view(0).expect("a view"));
    let mut problem = AbsoluteProblem::default();
    let lens = weighted.camera().and_then(|camera| camera.intrinsics()).map(|(lens, _)| lens);
    let cloud = AbsoluteView::parse(&first.3, false).expect("2D-3D");
    cloud.fill(&mut problem, lens, &Thresholds { pixel: 4.0, angle: 0.02 }).expect("rows");
    let weights = |n: usize| problem.rows().iter().take(n).map(|row| row.weight).collect::<Vec<_>>();
    let expected: Vec<f32> = view.landmarks.iter().map(|m| m.weight).collect();
    assert_eq!(weights(expected.len()), expected);
}

#[test]
fn a_camera_has_a_rate_of_its_own_and_a_truth_at_each_view() {
    let camera = CameraOptions { rate: Some(12.0), ..CameraOptions::default() };
    let all = messages(&made(options(camera)));
    assert!(all.windows(2).all(|m| m[0].1 <= m[1].1));
    let seconds = |m: &&Message| m.2.seconds_since(Options::default().start);
    let views: Vec<f64> = on(&all, "/correspondences_2d3d").iter().map(seconds).collect();
    assert_eq!(views.len(), 36);
    assert!(views.iter().enumerate().all(|(i, s)| (s - i as f64 / 12.0).abs() < 1e-8), "{views:?}");
    // Those of the 15 sweeps and of the views, of which each second has one in common.
    let truths: Vec<f64> = on(&all, "/ground_truth").iter().map(seconds).collect();
    assert_eq!(truths.len(), 15 + 36 - 3);
    assert!(views.iter().all(|view| truths.contains(view)));
    // None of its own: that of the sweeps.
    let plain = made(options(CameraOptions::default()));
    assert_eq!((plain.views(), plain.frames()), (15, 15));
}

#[test]
fn a_robot_that_stops_brakes_stands_and_drives_on() {
    let fault = "stop@1.0,1.5".parse().expect("a fault");
    let mut ordered = options(CameraOptions::default());
    ordered.faults = vec![fault];
    let simulation = made(ordered);
    let at = |t: f64| simulation.motion().pose(t).translation.vector;
    let speed = |t: f64| (at(t + 1e-4) - at(t - 1e-4)).norm() / 2e-4;
    assert_eq!(at(1.5), at(2.0));
    let free = made(options(CameraOptions::default()));
    let undisturbed = |t: f64| free.motion().pose(t).translation.vector;
    assert_eq!(at(0.7), undisturbed(0.7));
    // It has lost the time of the stand and half that of braking and starting.
    assert!((at(2.8) - undisturbed(1.8)).norm() < 1e-9);
    assert!(speed(1.25) < 0.7 * speed(0.99) && speed(1.25) > 0.3 * speed(0.99), "{}", speed(1.25));
    assert!(speed(2.49) > 0.9 * speed(2.51), "{} {}", speed(2.49), speed(2.51));
    // The view of 2 s has one of 1.5 s as its reference, where it stood too.
    let (reference_t_camera, matches) = simulation.view(10).and_then(|v| v.reference).expect("a reference");
    assert!(reference_t_camera.translation.vector.norm() < 1e-12 && matches.len() > 50);
}

#[test]
fn a_fisheye_sees_behind_the_plane_of_its_lens_and_not_beyond_its_circle() {
    let simulation = made(options(of_model(CameraModel::Fisheye)));
    let camera = simulation.camera().expect("a camera");
    // Towards a corner of the image, so many degrees from the axis.
    let at = |degrees: f64| {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let diagonal = sin * std::f64::consts::FRAC_1_SQRT_2;
        camera.project(&Point::new(3.0 * diagonal, 3.0 * diagonal, 3.0 * cos))
    };
    assert!(at(95.0).is_some() && at(98.0).is_none() && at(179.0).is_none());
}
