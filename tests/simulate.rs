//! The simulator: a function of its options, true to its ground truth, and readable by others.

use flashreg::geometry::Rigid;
use flashreg::messages::cdr::CdrReader;
use flashreg::messages::correspondences::CorrespondenceView;
use flashreg::messages::transforms::TransformsView;
use flashreg::messages::Stamp;
use flashreg::registration::Problem;
use flashreg::simulate::levels::Levels;
use flashreg::simulate::matching::Origin;
use flashreg::simulate::scene::{Layout, Place, Scene};
use flashreg::simulate::{write, Options, Simulation};
use nalgebra::{Quaternion, Translation3, UnitQuaternion};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::OnceLock;

/// A short drive, and a map from few sweeps: what takes long is the map.
fn short(seed: u64) -> Options {
    let mut levels = Levels::default();
    levels.places.building.mapping_step = 2.0;
    Options { seed, duration: 1.0, rate: 5.0, correspondences: 400, levels, ..Options::default() }
}

fn simulation() -> &'static Simulation {
    static MADE: OnceLock<Simulation> = OnceLock::new();
    MADE.get_or_init(|| {
        Simulation::new(Options { duration: 20.0, rate: 2.0, correspondences: 2000, ..Options::default() })
            .expect("a building")
    })
}

fn bytes(simulation: &Simulation) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    write::mcap(simulation, &mut out, |_| ()).expect("written");
    out.into_inner()
}

#[test]
fn the_same_seed_gives_the_same_bytes_whatever_the_number_of_threads() {
    let with_threads = |threads, seed| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| bytes(&Simulation::new(short(seed)).expect("a building")))
    };
    let first = with_threads(1, 7);
    assert!(first == with_threads(3, 7));
    assert!(first != with_threads(1, 8));
}

#[test]
fn every_seed_gives_every_place_with_a_free_tour() {
    for (place, seeds, least) in [
        (Place::Building, 40, 40.0),
        (Place::Warehouse, 4, 150.0),
        (Place::Outdoor, 4, 250.0),
        (Place::Tunnel, 4, 250.0),
    ] {
        for seed in 0..seeds {
            let scene =
                Scene::new(place, seed, Layout::default()).unwrap_or_else(|| panic!("{place:?} {seed}"));
            assert!(scene.route.length() > least, "{place:?} {seed}: {} m", scene.route.length());
            assert!(scene.walkways.len() > 8, "{place:?} {seed}: {} ways", scene.walkways.len());
            for [x, y] in scene.route.samples() {
                assert!(scene.world.clearance(*x, *y, 1.9) > 0.25, "{place:?} {seed}: {x:.2} {y:.2}");
            }
        }
    }
}

#[test]
fn right_matches_agree_with_the_truth_and_wrong_ones_do_not() {
    let simulation = simulation();
    let voxel = simulation.options().levels.places.building.voxel;
    let (mut right, mut wrong, mut total) = (Vec::new(), Vec::new(), 0);
    for index in 0..simulation.frames() {
        let frame = simulation.frame(index);
        total += frame.matches.len();
        for m in &frame.matches {
            let residual = (frame.map_t_lidar * m.source - m.target).norm();
            match m.origin {
                Origin::Right => right.push(residual),
                Origin::LookAlike | Origin::Alias => wrong.push(residual),
                Origin::NearMiss => assert!(residual < 20.0 * voxel, "{residual}"),
            }
        }
    }
    assert!(total > 1500 * simulation.frames(), "{total}");
    let rate = right.len() as f64 / total as f64;
    assert!((0.07..0.13).contains(&rate), "{rate}");
    right.sort_by(f64::total_cmp);
    let median = right[right.len() / 2];
    let high = right[right.len() * 98 / 100];
    // Displaced by up to two voxels, then drawn to the next feature.
    assert!(median > 0.2 * voxel && median < 2.0 * voxel, "{median}");
    assert!(high < 3.5 * voxel, "{high}");
    let far = wrong.iter().filter(|r| **r > 6.0 * voxel).count() as f64 / wrong.len() as f64;
    assert!(far > 0.9, "{far}");
}

#[test]
fn wrong_matches_are_many_to_one_as_those_of_descriptors() {
    let simulation = simulation();
    let frame = simulation.frame(3);
    let mut targets: BTreeMap<u32, usize> = BTreeMap::new();
    for m in &frame.matches {
        *targets.entry(m.target_id).or_default() += 1;
    }
    let share = targets.len() as f64 / frame.matches.len() as f64;
    let most = targets.values().max().copied().unwrap_or(0);
    assert!((0.15..0.65).contains(&share), "{share}");
    assert!((8..200).contains(&most), "{most}");
}

#[test]
fn the_inlier_rate_the_number_and_the_weights_follow_the_options() {
    for (inlier_rate, weights) in [(0.03, false), (0.3, true)] {
        let options = Options { inlier_rate, weights, lidar: Levels::default().lidars["xt32"], ..short(3) };
        let simulation = Simulation::new(options).expect("a building");
        let frames: Vec<_> = (0..simulation.frames()).map(|i| simulation.frame(i)).collect();
        let (right, total) = frames.iter().fold((0, 0), |(r, n), f| (r + f.right(), n + f.matches.len()));
        assert_eq!(total, 400 * frames.len());
        let rate = right as f64 / total as f64;
        assert!(rate > 0.5 * inlier_rate && rate < 1.6 * inlier_rate, "{rate}");
        let mut all = frames.iter().flat_map(|f| &f.matches);
        assert!(all.all(|m| m.weight > 0.0 && m.weight <= 1.0 && (weights || m.weight == 1.0)));
    }
}

#[test]
fn odometry_starts_at_the_identity_and_drifts_slowly() {
    let simulation = simulation();
    let odometry: Vec<_> = simulation.odometry().take_while(|tick| tick.seconds <= 20.0).collect();
    assert_eq!(odometry[0].odom_t_base, Rigid::identity());
    let map_t_odom = |index: usize| {
        let frame = simulation.frame(index);
        let tick = odometry
            .iter()
            .find(|t| simulation.stamp(t.seconds) == frame.stamp)
            .expect("a tick at the stamp");
        frame.map_t_base * tick.odom_t_base.inverse()
    };
    let (first, last) = (map_t_odom(0), map_t_odom(simulation.frames() - 1));
    let drift = first.inverse() * last;
    let moved = drift.translation.vector.norm();
    assert!(moved > 0.005 && moved < 3.0, "{moved}");
    assert!(drift.rotation.angle() < 0.1, "{}", drift.rotation.angle());
}

#[test]
fn the_drive_is_smooth_and_level() {
    let simulation = Simulation::new(Options { rate: 50.0, ..short(11) }).expect("a building");
    let poses: Vec<Rigid> = (0..simulation.frames()).map(|i| simulation.frame(i).map_t_base).collect();
    for pair in poses.windows(2) {
        let step = pair[0].inverse() * pair[1];
        let speed = step.translation.vector.norm() * 50.0;
        assert!(speed > 0.5 && speed < 1.5, "{speed}");
        assert!(step.rotation.angle() * 50.0 < 3.0, "{}", step.rotation.angle() * 50.0);
        assert_eq!(pair[1].translation.z, 0.0);
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let refused =
        |options: Options| Simulation::new(options).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(refused(Options { duration: f64::NAN, ..short(1) }).starts_with("duration"));
    assert!(refused(Options { rate: 0.0, ..short(1) }).starts_with("rate"));
    assert!(refused(Options { inlier_rate: 1.5, ..short(1) }).starts_with("inlier rate"));
    let mut levels = Levels::default();
    levels.places.building.mapping_step = 0.0;
    assert!(refused(Options { levels, ..short(1) }).starts_with("mapping step"));
    assert!(refused(Options { correspondences: 2, ..short(1) }).starts_with("correspondences"));
}

#[test]
fn the_mcap_file_reads_back_as_what_was_simulated() {
    let options = Options { duration: 2.0, rate: 7.0, ..short(5) };
    let simulation = Simulation::new(options).expect("a building");
    let file = bytes(&simulation);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut log_time, mut last_tick, mut clouds, mut truths) = (0, None, 0, 0);
    for message in mcap::MessageStream::new(&file).expect("MCAP") {
        let message = message.expect("a message");
        assert!(message.log_time >= log_time, "out of order");
        log_time = message.log_time;
        let topic = message.channel.topic.as_str();
        *counts.entry(topic.to_owned()).or_default() += 1;
        assert_eq!(message.channel.message_encoding, "cdr");
        let schema = message.channel.schema.as_ref().expect("a schema");
        assert_eq!(schema.encoding, "ros2msg");
        let durability = if topic == "/tf_static" { "durability: 1" } else { "durability: 2" };
        assert!(message.channel.metadata["offered_qos_profiles"].contains(durability));
        match topic {
            "/correspondences_3d3d" => {
                assert_eq!(schema.name, "sensor_msgs/msg/PointCloud2");
                let frame = simulation.frame(clouds);
                clouds += 1;
                let view = CorrespondenceView::parse(&message.data, false).expect("correspondences");
                assert_eq!((view.cloud().frame, view.cloud().stamp), ("lidar", frame.stamp));
                assert!(last_tick.is_some_and(|tick| tick >= frame.stamp), "odometry comes first");
                let mut problem = Problem::default();
                view.fill(&mut problem);
                assert_eq!(problem.len(), frame.matches.len());
                for (row, m) in problem.rows().zip(&frame.matches) {
                    assert_eq!(row.source, m.source.map(|v| f64::from(v as f32)));
                    assert_eq!(row.target, m.target.map(|v| f64::from(v as f32)));
                    assert_eq!((row.weight, row.target_id), (m.weight, Some(m.target_id)));
                }
            }
            "/tf" | "/tf_static" => {
                assert_eq!(schema.name, "tf2_msgs/msg/TFMessage");
                let transforms: Vec<_> = TransformsView::parse(&message.data).expect("transforms").collect();
                assert_eq!(transforms.len(), 1);
                let frames = (transforms[0].parent, transforms[0].child);
                if topic == "/tf" {
                    assert_eq!(frames, ("odom", "base_link"));
                    last_tick = Some(transforms[0].stamp);
                } else {
                    assert_eq!(frames, ("base_link", "lidar"));
                    let pose = rigid(transforms[0].translation, transforms[0].rotation);
                    assert!((pose.inverse() * simulation.base_t_lidar()).translation.vector.norm() < 1e-12);
                    assert!(pose.rotation.angle_to(&simulation.base_t_lidar().rotation) < 1e-7);
                }
            }
            "/ground_truth" => {
                assert_eq!(schema.name, "geometry_msgs/msg/PoseStamped");
                let frame = simulation.frame(truths);
                truths += 1;
                let mut reader = CdrReader::new(&message.data).expect("CDR");
                assert_eq!(reader.header().expect("a header"), (frame.stamp, "map"));
                let pose = rigid(reader.f64s().expect("a position"), reader.f64s().expect("a rotation"));
                assert!((pose.translation.vector - frame.map_t_base.translation.vector).norm() < 1e-12);
                assert!(pose.rotation.angle_to(&frame.map_t_base.rotation) < 1e-7);
            }
            other => panic!("topic {other}"),
        }
    }
    // 2 s at 7 Hz, and odometry at 50 Hz with both ends.
    let expected = [("/correspondences_3d3d", 14), ("/ground_truth", 14), ("/tf", 101), ("/tf_static", 1)];
    assert_eq!(counts, expected.map(|(topic, n)| (topic.to_owned(), n)).into());
}

fn rigid(t: [f64; 3], [x, y, z, w]: [f64; 4]) -> Rigid {
    Rigid::from_parts(Translation3::from(t), UnitQuaternion::from_quaternion(Quaternion::new(w, x, y, z)))
}

#[test]
fn every_schema_defines_all_types_that_it_uses() {
    let file = bytes(&Simulation::new(short(1)).expect("a building"));
    let summary = mcap::Summary::read(&file).expect("MCAP").expect("a summary");
    assert_eq!(summary.schemas.len(), 3);
    for schema in summary.schemas.values() {
        let text = String::from_utf8(schema.data.to_vec()).expect("text");
        let defined: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("MSG: ")).collect();
        for line in text.lines().filter(|l| !l.starts_with('=') && !l.starts_with("MSG:") && !l.is_empty()) {
            let used = line.split([' ', '[']).next().unwrap_or_default();
            let primitive = used.starts_with(|c: char| c.is_lowercase()) && !used.contains('/');
            let known = defined.iter().any(|d| *d == used || d.ends_with(&format!("/{used}")));
            assert!(primitive || known, "{}: {line}", schema.name);
        }
    }
}

#[test]
fn a_frame_as_text_reads_back() {
    let simulation = simulation();
    let frame = simulation.frame(2);
    let (mut text, mut truth) = (Vec::new(), Vec::new());
    write::pair(&frame, &mut text).expect("written");
    write::truth(&frame, &mut truth).expect("written");
    let file = flashreg::io::correspondence_file::CorrespondenceFile::read(&text[..]).expect("rows");
    assert_eq!(file.rows.len(), frame.matches.len());
    assert!((file.rows[0].source - frame.matches[0].source).norm() < 2e-6);
    let numbers: Vec<f64> =
        String::from_utf8_lossy(&truth).split_whitespace().map(|v| v.parse().expect("a number")).collect();
    assert_eq!(numbers.len(), 16);
    assert!((numbers[3] - frame.map_t_lidar.translation.x).abs() < 1e-8);
}

#[test]
fn stamps_start_where_asked() {
    let simulation = Simulation::new(Options { start: Stamp::new(42, 5), ..short(2) }).expect("a building");
    assert_eq!(simulation.frame(0).stamp, Stamp::new(42, 5));
    assert_eq!(simulation.frame(1).stamp, Stamp::new(42, 200_000_005));
    let second = simulation.odometry().nth(1).map(|tick| simulation.stamp(tick.seconds));
    assert_eq!(second, Some(Stamp::new(42, 20_000_005)));
}
