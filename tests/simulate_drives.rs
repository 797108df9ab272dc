//! Whole drives of the simulator: clouds, IMU, camera, odometry, faults, places, levels.

use flashreg::geometry::{Point, Rigid, Vector};
use flashreg::messages::cdr::CdrReader;
use flashreg::messages::point_cloud::PointCloudView;
use flashreg::messages::Stamp;
use flashreg::simulate::camera::Sight;
use flashreg::simulate::faults::Fault;
use flashreg::simulate::levels::{Levels, YAML};
use flashreg::simulate::motion::Departure;
use flashreg::simulate::scene::{Layout, Place, Scene};
use flashreg::simulate::write::MapChange;
use flashreg::simulate::{write, Options, Simulation, Topics};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::OnceLock;

const ALL: Topics = Topics { correspondences: true, clouds: true, odometry: true, imu: true, camera: true };

/// Short, and a map from few sweeps: what takes long is the map.
fn options(place: Place, seed: u64) -> Options {
    let mut levels = Levels::default();
    let places = &mut levels.places;
    for place in [&mut places.building, &mut places.warehouse, &mut places.outdoor, &mut places.tunnel] {
        place.mapping_step *= 4.0;
    }
    Options { seed, place, duration: 3.0, rate: 5.0, correspondences: 300, levels, ..Options::default() }
}

fn with_faults(faults: &[&str]) -> Simulation {
    let faults = faults.iter().map(|f| f.parse().expect("a fault")).collect();
    Simulation::new(Options { faults, topics: ALL, ..options(Place::Building, 4) }).expect("a building")
}

/// With everything recorded and nothing wrong.
fn simulation() -> &'static Simulation {
    static MADE: OnceLock<Simulation> = OnceLock::new();
    MADE.get_or_init(|| with_faults(&[]))
}

fn bag(simulation: &Simulation) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    write::mcap(simulation, &mut out, |_| ()).expect("written");
    out.into_inner()
}

struct Message {
    topic: String,
    arrival: u64,
    data: Vec<u8>,
}

impl Message {
    fn stamp(&self) -> Stamp {
        let mut reader = CdrReader::new(&self.data).expect("CDR");
        if self.topic.starts_with("/tf") {
            assert!(reader.u32().expect("a length") > 0);
        }
        reader.header().expect("a header").0
    }
}

fn messages(file: &[u8]) -> Vec<Message> {
    let stream = mcap::MessageStream::new(file).expect("MCAP");
    stream
        .map(|m| m.expect("a message"))
        .map(|m| Message { topic: m.channel.topic.clone(), arrival: m.log_time, data: m.data.to_vec() })
        .collect()
}

fn count(all: &[Message]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for m in all {
        *counts.entry(m.topic.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn everything_is_recorded_at_its_rate_and_in_the_order_of_arrival() {
    let all = messages(&bag(simulation()));
    assert!(all.windows(2).all(|m| m[0].arrival <= m[1].arrival));
    let expected = [
        ("/tf_static", 1),
        ("/tf", 151),
        ("/odom", 151),
        ("/imu", 601),
        ("/correspondences_3d3d", 15),
        ("/points", 15),
        ("/ground_truth", 15),
        ("/camera_info", 15),
        ("/correspondences_2d3d", 15),
        // Not before there is an earlier view.
        ("/correspondences_2d2d", 12),
        ("/ground_truth_2d2d", 12),
    ];
    assert_eq!(count(&all), expected.into());
    // Nothing arrives before it was measured, nor a second later.
    assert!(all.iter().all(|m| (0..1_000_000_000).contains(&(m.arrival as i64 - m.stamp().0))));
}

#[test]
fn a_cloud_is_taken_while_the_robot_moves() {
    let simulation = simulation();
    let cloud = simulation.cloud(7);
    let start = 7.0 / 5.0;
    let base_t_lidar = simulation.base_t_lidar();
    let (mut moved, mut frozen) = (0.0, 0.0);
    for r in &cloud.returns {
        let seconds = start + simulation.firing_time(r.firing.into());
        let then = simulation.motion().pose(seconds) * base_t_lidar * r.measured;
        let at_stamp = simulation.motion().pose(start) * base_t_lidar * r.measured;
        moved += (then - r.surface).norm();
        frozen += (at_stamp - r.surface).norm();
    }
    let n = cloud.returns.len() as f64;
    assert!(n > 15_000.0, "{n}");
    // Two centimetres of noise, against the 20 cm that the robot drives during a turn.
    assert!(moved / n < 0.03, "{}", moved / n);
    assert!(frozen / n > 2.0 * moved / n, "{} against {}", frozen / n, moved / n);

    // The message says the same, in the layout of the Velodyne driver.
    let all = messages(&bag(simulation));
    let message = all.iter().filter(|m| m.topic == "/points").nth(7).expect("a cloud");
    let view = PointCloudView::parse(&message.data).expect("a cloud");
    assert_eq!((view.frame, view.stamp), ("lidar", cloud.stamp));
    let data = view.data;
    assert_eq!(data.len(), 22 * cloud.returns.len());
    let f32_at =
        |row: usize, at: usize| f32::from_le_bytes(data[row * 22 + at..][..4].try_into().expect("four"));
    for (row, r) in cloud.returns.iter().enumerate() {
        assert_eq!([0, 4, 8].map(|at| f32_at(row, at)), [0, 1, 2].map(|i| r.measured[i] as f32));
        assert!((0.0..=100.0).contains(&f32_at(row, 12)));
        assert_eq!(u16::from_le_bytes([data[row * 22 + 16], data[row * 22 + 17]]), r.beam);
        assert_eq!(f32_at(row, 18), simulation.firing_time(r.firing.into()) as f32);
    }
    let last = cloud.returns.last().expect("returns");
    assert!(simulation.firing_time(last.firing.into()) > 0.19);
}

#[test]
fn the_imu_feels_gravity_and_its_turns_add_up() {
    let simulation = simulation();
    let mut quiet = simulation.options().clone();
    (quiet.levels.imu.gyro_bias, quiet.levels.imu.accel_bias) = (0.0, 0.0);
    let quiet = Simulation::new(quiet).expect("a building");
    let rate = quiet.options().levels.imu.rate;
    let yaw = |seconds: f64| quiet.motion().pose(seconds).rotation.euler_angles().2;
    let (mut turned, mut force) = (0.0, Vector::zeros());
    let samples: Vec<_> = quiet.imu().take_while(|s| s.seconds < 20.0).collect();
    for s in &samples {
        turned += s.gyro.z / rate;
        force += s.accel / samples.len() as f64;
    }
    let (truth, half) = (yaw(20.0) - yaw(0.0), std::f64::consts::PI);
    let error = (turned - truth + half).rem_euclid(2.0 * half) - half;
    assert!(error.abs() < 0.05, "turned {turned}, truth {truth}");
    assert!((force.z - 9.80665).abs() < 0.05, "{force}");
    // Not straight on all the time.
    assert!(samples.iter().any(|s| s.gyro.z.abs() > 0.3));
    // The noise of a sample: density times the root of the rate.
    let jumps: Vec<f64> = samples.windows(2).map(|s| s[1].gyro.x - s[0].gyro.x).collect();
    let sigma = (jumps.iter().map(|j| j * j).sum::<f64>() / jumps.len() as f64 / 2.0).sqrt();
    let expected = quiet.options().levels.imu.gyro_noise * rate.sqrt();
    assert!((sigma / expected - 1.0).abs() < 0.15, "{sigma} against {expected}");
    // With its bias it is off by as much all the time.
    let off: f64 =
        simulation.imu().take(600).zip(&samples).map(|(b, q)| b.gyro.z - q.gyro.z).sum::<f64>() / 600.0;
    let first = simulation.imu().next().expect("a sample").gyro.z - samples[0].gyro.z;
    assert!(off != 0.0 && (off - first).abs() < 1e-12, "{off} {first}");
}

fn pixel(sight: Sight) -> [f64; 2] {
    match sight {
        Sight::Pixel(pixel) => pixel,
        Sight::Bearing(_) => panic!("this camera has an image"),
    }
}

#[test]
fn right_pixels_are_where_the_camera_sees_their_landmark() {
    let simulation = simulation();
    let camera = simulation.camera().expect("a camera");
    let (mut right, mut total, mut errors, mut pairs) = (0, 0, Vec::new(), 0);
    for index in 0..simulation.frames() {
        let view = simulation.view(index).expect("a view");
        total += view.landmarks.len();
        for m in view.landmarks.iter().filter(|m| m.right) {
            right += 1;
            let local = view.map_t_camera.inverse() * m.landmark;
            assert!(local.z > 0.0, "behind the camera");
            let [u, v] = pixel(camera.project(&local).expect("in the image"));
            let [x, y] = pixel(m.sight);
            errors.push((u - x).powi(2) + (v - y).powi(2));
        }
        if let Some((reference_t_camera, matches)) = &view.reference {
            let moved = reference_t_camera.translation.vector;
            assert!(moved.norm() > 0.1 && moved.z > 0.05, "forward is z: {moved}");
            pairs += matches.len();
        }
    }
    assert!(total > 100 * simulation.frames() && pairs > 500, "{total} {pairs}");
    let rate = right as f64 / total as f64;
    assert!((0.45..0.55).contains(&rate), "{rate}");
    let rms = (errors.iter().sum::<f64>() / errors.len() as f64).sqrt();
    let expected = 0.8 * 2f64.sqrt();
    assert!((rms / expected - 1.0).abs() < 0.1, "{rms} against {expected}");
}

#[test]
fn matches_of_two_views_meet_the_epipolar_constraint() {
    let mut options = simulation().options().clone();
    options.levels.camera.distortion = [0.0; 5];
    let simulation = Simulation::new(options).expect("a building");
    let levels = simulation.options().levels.camera;
    let (mut near, mut far, mut right) = (0, 0, 0);
    for index in 5..simulation.frames() {
        let (pose, matches) = simulation.view(index).and_then(|v| v.reference).expect("a reference");
        let ray = |p: [f64; 2]| {
            let [x, y] = std::array::from_fn(|i| (p[i] - levels.center[i]) / levels.focal[i]);
            Vector::new(x, y, 1.0)
        };
        for m in &matches {
            // The ray of the reference lies in the plane of the other ray and the baseline.
            let plane = pose.translation.vector.cross(&(pose.rotation * ray(pixel(m.sight))));
            let off = (ray(pixel(m.reference)).dot(&plane) / plane.xy().norm()).abs() * levels.focal[0];
            right += usize::from(m.right);
            match m.right {
                true => assert!(off < 12.0, "{off} pixels"),
                false if off < 8.0 => near += 1,
                false => far += 1,
            }
        }
    }
    assert!(right > 300 && far > 3 * near, "{right} right, wrong: {near} near, {far} far");
}

#[test]
fn the_clock_jumps_and_stamps_follow_while_messages_keep_their_order() {
    let all = messages(&bag(&with_faults(&["clock-jump@1.0,1.0"])));
    assert!(all.windows(2).all(|m| m[0].arrival <= m[1].arrival));
    let start = Options::default().start.0;
    for m in all.iter().filter(|m| ["/tf", "/imu", "/ground_truth", "/points"].contains(&m.topic.as_str())) {
        let late = m.arrival as i64 - m.stamp().0;
        // Long ago, or since the clock was set back by five seconds.
        let back = late > 4_000_000_000;
        let measured = m.stamp().0 - start + if back { 5_000_000_000 } else { 0 };
        assert_eq!(back, (1_000_000_000..2_000_000_000).contains(&measured), "{} {measured}", m.topic);
    }
    assert!(all.iter().any(|m| m.stamp().0 < start));
}

#[test]
fn streams_fall_silent_for_as_long_as_ordered() {
    let whole = messages(&bag(simulation()));
    let silent =
        messages(&bag(&with_faults(&["no-lidar@1,0.9", "no-odometry@1,1", "no-imu@2,0.5", "no-camera@0,3"])));
    let (whole, silent) = (count(&whole), count(&silent));
    let missing = |topic: &str| whole[topic] - silent.get(topic).copied().unwrap_or(0);
    assert_eq!(["/points", "/correspondences_3d3d"].map(missing), [5, 5]);
    assert_eq!(["/tf", "/odom", "/imu", "/ground_truth"].map(missing), [50, 50, 100, 0]);
    assert_eq!(["/camera_info", "/correspondences_2d3d", "/correspondences_2d2d"].map(missing), [15, 15, 12]);
}

#[test]
fn a_burst_takes_the_numbers_from_some_points() {
    let all = messages(&bag(&with_faults(&["nan@1.0,1.0"])));
    for topic in ["/points", "/correspondences_3d3d"] {
        for (index, m) in all.iter().filter(|m| m.topic == topic).enumerate() {
            let view = PointCloudView::parse(&m.data).expect("a cloud");
            let step = view.data.len() / view.len();
            let x = |row: &[u8]| f32::from_le_bytes([row[0], row[1], row[2], row[3]]);
            let lost = view.data.chunks(step).filter(|row| x(row).is_nan()).count();
            let share = lost as f64 / view.len() as f64;
            match (5..10).contains(&index) {
                true => assert!((0.2..0.4).contains(&share), "{topic} {index}: {share}"),
                false => assert_eq!(lost, 0, "{topic} {index}"),
            }
        }
    }
}

#[test]
fn a_kidnapped_robot_is_elsewhere_and_its_odometry_does_not_know() {
    let simulation = with_faults(&["kidnap@1.5"]);
    let at = |index| simulation.frame(index).map_t_base.translation.vector;
    assert!((at(8) - at(7)).norm() > 3.0, "{}", (at(8) - at(7)).norm());
    assert!((at(7) - at(6)).norm() < 0.4 && (at(9) - at(8)).norm() < 0.4);
    let ticks: Vec<_> = simulation.odometry().take(150).collect();
    for pair in ticks.windows(2) {
        let step = pair[0].odom_t_base.inverse() * pair[1].odom_t_base;
        assert!(step.translation.vector.norm() < 0.04, "{}", pair[1].seconds);
    }
    assert!(simulation.imu().take(600).all(|s| s.accel.norm() < 20.0));
}

/// Ranges seen from a point, every five degrees.
fn ranges(scene: &Scene, from: Point) -> Vec<f64> {
    let directions = (0..72).map(|k| {
        let (sin, cos) = (f64::from(k) * 5.0).to_radians().sin_cos();
        Vector::new(cos, sin, 0.1).normalize()
    });
    directions.map(|d| scene.world.cast(&from, &d, 50.0).map_or(50.0, |hit| hit.range)).collect()
}

#[test]
fn identical_rooms_look_the_same_and_others_do_not() {
    let look_alikes = |twins: bool| {
        let found = (0..6).filter(|seed| {
            let scene = Scene::new(Place::Building, *seed, Layout { twins, ..Layout::default() })
                .expect("a building");
            // A spot of the tour, and one so far east of it that it cannot be the same room.
            scene.route.samples().iter().step_by(150).any(|[x, y]| {
                let here = ranges(&scene, Point::new(*x, *y, 0.6));
                // The corridor looks much the same all along.
                let in_a_room = here[18] + here[54] > 4.0;
                let shifts = (100..500).map(|k| f64::from(k) * 0.04).take_while(|d| x + d < 45.0);
                in_a_room
                    && shifts.into_iter().any(|d| {
                        let there = ranges(&scene, Point::new(x + d, *y, 0.6));
                        here.iter().zip(&there).filter(|(a, b)| (*a - *b).abs() < 0.1).count() >= 58
                    })
            })
        });
        found.count()
    };
    let (twins, others) = (look_alikes(true), look_alikes(false));
    assert!(twins >= 4 && others <= 1, "{twins} of 6 with, {others} without");
}

#[test]
fn a_changed_map_moves_things_and_leaves_walls() {
    let changed = with_faults(&["changed-map"]);
    let (before, after) = (simulation().world(), changed.world());
    let stays = |kind: fn(&flashreg::simulate::world::Solid) -> bool| {
        let all: Vec<_> = before.things().iter().filter(|s| kind(s)).collect();
        let kept = all.iter().filter(|s| after.things().contains(s)).count();
        kept as f64 / all.len() as f64
    };
    assert_eq!(stays(|s| !s.kind.movable()), 1.0);
    let share = stays(|s| s.kind.movable());
    assert!((0.5..0.9).contains(&share), "{share}");
    // The map is the old one.
    assert_eq!(changed.map().len(), simulation().map().len());
    for [x, y] in changed.scene().route.samples() {
        assert!(after.clearance(*x, *y, 1.9) > 0.25);
    }
}

#[test]
fn faults_are_read_and_refused_by_name() {
    let read = |text: &str| text.parse::<Fault>().map(|f| (f.at, f.duration)).map_err(|e| e.to_string());
    assert_eq!(read("nan@2.5,1"), Ok((Some(2.5), Some(1.0))));
    assert_eq!(read("kidnap"), Ok((None, None)));
    for (text, part) in [
        ("nap@1", "no fault 'nap'; known are clock-jump"),
        ("nan@x", "'x': a time in seconds"),
        ("nan@-1", "'-1'"),
        ("nan@1,inf", "'inf'"),
        ("nan@1,2,3", "nan takes a time and a duration"),
        ("kidnap@1,2", "kidnap takes a time, no duration"),
        ("changed-map@1", "changed-map takes no time"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
    let rooms =
        Options { faults: vec!["identical-rooms".parse().expect("a fault")], ..options(Place::Tunnel, 1) };
    assert!(Simulation::new(rooms).err().is_some_and(|e| e.to_string().contains("only a building")));
}

#[test]
fn every_place_can_be_registered_in() {
    for place in [Place::Warehouse, Place::Outdoor, Place::Tunnel] {
        let simulation = Simulation::new(options(place, 2)).expect("a place");
        let frame = simulation.frame(3);
        let rate = frame.right() as f64 / frame.matches.len() as f64;
        assert!((270..=300).contains(&frame.matches.len()), "{place:?}: {}", frame.matches.len());
        assert!((0.02..0.25).contains(&rate), "{place:?}: {rate}");
        let speed = simulation.options().levels.place(place).speed;
        let poses = [0.0, 1.0].map(|t| simulation.motion().pose(t));
        let driven = (poses[0].inverse() * poses[1]).translation.vector.norm();
        assert!((0.6 * speed..1.3 * speed).contains(&driven), "{place:?}: {driven}");
        // It goes around again.
        let round = simulation.scene().route.length();
        let [a, b] = [10.0, 10.0 + round].map(|along| simulation.scene().route.spot(along));
        assert!((a[0] - b[0]).abs() + (a[1] - b[1]).abs() < 1e-9);
    }
}

#[test]
fn the_map_is_written_as_pcd() {
    let mut file = Vec::new();
    write::pcd(simulation(), MapChange::default(), &mut file).expect("written");
    let end = b"DATA binary\n";
    let at = file.windows(end.len()).position(|w| w == end).expect("a header") + end.len();
    let header = std::str::from_utf8(&file[..at]).expect("text");
    let points = simulation().map().len();
    assert!(
        header.contains(&format!("\nPOINTS {points}\n")) && header.contains("\nFIELDS x y z\n"),
        "{header}"
    );
    assert_eq!(file.len() - at, 12 * points);
    let first = f32::from_le_bytes(file[at..at + 4].try_into().expect("four"));
    assert_eq!(Some(first), simulation().map().points().next().map(|p| p.x as f32));
}

#[test]
fn every_level_is_commented_and_used() {
    let mut commented = false;
    for line in YAML.lines() {
        let text = line.trim();
        let is_group = text.ends_with(':');
        if text.starts_with('#') || text.is_empty() {
            commented = text.starts_with('#');
        } else if !is_group {
            assert!(commented || text.contains("  # "), "no comment: {line}");
        }
    }
    // Every field of the levels is read somewhere else in the simulator.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulate");
    let files = std::fs::read_dir(folder).expect("sources").map(|f| f.expect("a file").path());
    let sources = files.filter(|f| f.extension().is_some_and(|e| e == "rs") && !f.ends_with("levels.rs"));
    let code: String = sources.map(|f| std::fs::read_to_string(f).expect("text")).collect();
    let names = std::fs::read_to_string(format!("{folder}/levels.rs")).expect("text");
    let fields =
        names.lines().filter_map(|l| l.trim().strip_prefix("pub ")).filter_map(|l| l.split_once(": "));
    let mut number = 0;
    for (field, _) in fields.filter(|(name, _)| name.chars().all(|c| c.is_lowercase() || c == '_')) {
        let read_here = ["lidars", "places", "building", "warehouse", "outdoor", "tunnel"].contains(&field);
        assert!(read_here || code.contains(&format!(".{field}")), "{field} is not used");
        assert!(YAML.contains(&format!("{field}:")), "{field} is not in the file");
        number += 1;
    }
    assert!(number > 60, "{number}");
}

#[test]
fn a_file_of_levels_must_be_complete() {
    let error = |text: String| Levels::parse(&text).err().map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(Levels::parse(YAML).expect("complete"), Levels::default());
    assert!(error(YAML.replace("dropout: 0.02", "")).contains("dropout"));
    assert!(error(YAML.replace("dropout: 0.02", "dropout: 0.02\ndropuot: 1")).contains("dropuot"));
    assert!(error(YAML.replace("dropout: 0.02", "dropout: [1]")).contains("dropout"));
    let none = Levels::default().lidar("hdl64").err().map(|e| e.to_string()).unwrap_or_default();
    assert!(none.contains("'hdl64'; known are os1-64, os1-64-2048, vlp16, xt32"), "{none}");
}

#[test]
fn a_camera_looks_ahead() {
    let camera = simulation().camera().expect("a camera");
    let ahead = camera.base_t_camera() * Vector::z();
    assert!(ahead.x > 0.99, "{ahead}");
    let down = camera.base_t_camera() * Vector::y();
    assert!(down.z < -0.99, "{down}");
    let off = Rigid::translation(0.0, 0.0, 2.0) * Point::origin();
    let [u, v] = pixel(camera.project(&off).expect("in the image"));
    assert!((u - 367.215).abs() < 1e-9 && (v - 248.375).abs() < 1e-9);
}

/// With few points in its map.
fn departing(departure: Departure, faults: &[&str]) -> Simulation {
    let faults = faults.iter().map(|f| f.parse().expect("a fault")).collect();
    let options = Options { departure, faults, ..options(Place::Building, 4) };
    Simulation::new(options).expect("a building")
}

#[test]
fn a_drive_begins_where_it_is_told_and_goes_the_other_way() {
    let begin = |share: f64, reverse| Departure { begin: Some(share), reverse, stand: 0.0 };
    let forth = departing(begin(0.25, false), &[]);
    let back = departing(begin(0.25, true), &[]);
    let route = &forth.scene().route;
    let [x, y] = route.spot(0.25 * route.length());
    for simulation in [&forth, &back] {
        let at = simulation.motion().pose(0.0).translation.vector;
        assert!((at.x - x).abs() < 1e-6 && (at.y - y).abs() < 1e-6, "{at} {x} {y}");
    }
    let ahead = |simulation: &Simulation| simulation.motion().pose(0.0).rotation * Vector::x();
    assert!(ahead(&forth).dot(&ahead(&back)) < -0.999);
    let driven = |s: &Simulation| s.motion().pose(0.0).inverse() * s.motion().pose(0.3);
    assert!(driven(&back).translation.x > 0.2);
}

#[test]
fn a_robot_that_stands_first_drives_afterwards() {
    let simulation = departing(Departure { stand: 2.0, ..Departure::default() }, &[]);
    let motion = simulation.motion();
    assert_eq!(motion.pose(0.0), motion.pose(2.0));
    let gone = motion.pose(0.0).inverse() * motion.pose(3.0);
    assert!((0.3..1.5).contains(&gone.translation.vector.norm()), "{gone}");
}

#[test]
fn twin_rooms_are_named_and_the_route_enters_both() {
    let simulation = departing(Departure::default(), &["identical-rooms"]);
    let scene = simulation.scene();
    let twins = scene.twins.expect("two rooms");
    let along = twins.map(|room| scene.route.deepest_in(room).expect("a way into it"));
    for (room, along) in twins.iter().zip(along) {
        let [x, y] = scene.route.spot(along);
        let [x0, x1, y0, y1] = *room;
        assert!((x0..x1).contains(&x) && (y0..y1).contains(&y), "{room:?} {x} {y}");
    }
    assert!((twins[0][1] - twins[0][0] - twins[1][1] + twins[1][0]).abs() < 1e-9);
}

#[test]
fn clouds_can_be_empty_or_show_nothing_but_ground() {
    let simulation = departing(Departure::default(), &["empty@0,0.5", "only-ground@1,0.5"]);
    assert!(simulation.cloud(0).returns.is_empty());
    let ground = simulation.cloud(5).returns;
    assert!(ground.len() > 1000 && ground.iter().all(|r| r.surface.z.abs() < 1e-9));
    assert!(simulation.cloud(10).returns.iter().any(|r| r.surface.z > 1.0));
}

#[test]
fn an_outdoor_place_can_have_more_streets() {
    let scene =
        Scene::new(Place::Outdoor, 3, Layout { blocks: [3, 2], ..Layout::default() }).expect("a place");
    let small = Scene::new(Place::Outdoor, 3, Layout::default()).expect("a place");
    assert!(scene.route.length() > 2.5 * small.route.length());
    assert!(scene.route.samples().iter().all(|[x, y]| scene.world.clearance(*x, *y, 1.9) > 0.3));
}

#[test]
fn a_wrong_map_is_mirrored_or_of_another_size() {
    let points = |change: MapChange| {
        let mut file = Vec::new();
        write::pcd(simulation(), change, &mut file).expect("written");
        let data = b"DATA binary\n";
        let at = file.windows(data.len()).position(|w| w == data).expect("a header") + data.len();
        let number =
            |k: usize| f32::from_le_bytes(file[at + 4 * k..at + 4 * k + 4].try_into().expect("four"));
        [0, 1, 2].map(|k| f64::from(number(k)))
    };
    let right = points(MapChange::default());
    let changed = points(MapChange { scale: 1.1, mirror: true });
    let expected = [-1.1 * right[0], 1.1 * right[1], 1.1 * right[2]];
    assert!(changed.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{changed:?} {expected:?}");
}
