//! The drive from a bag: what the node would answer, the same every time.

mod common;

use common::bags::*;
use flashreg::geometry::Rigid;
use flashreg::io::bag::{Bag, BagError};
use flashreg::localizer::Localizer;
use flashreg::messages::Stamp;
use flashreg::params::{BackendChoice, Params, TfMode};
use flashreg::replay::drive::{drive, Options, Outcome};
use flashreg::replay::truth::{Source, Truth};
use flashreg::replay::FrameRecord;
use flashreg::status::{Counter, Status};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

fn params() -> Params {
    let mut params = Params::default();
    params.backend.kind = BackendChoice::Cpu;
    params.registration.max_correspondences = 256;
    params
}

const INPUT: &str = "/correspondences_3d3d";

struct Driven {
    frames: Vec<FrameRecord>,
    outcome: Outcome,
    overwritten: u64,
}

fn run(path: &Path, params: &Params, options: &Options) -> Result<Driven, BagError> {
    let bag = Bag::open(path)?;
    let mut localizer = Localizer::new(params).expect("the CPU");
    let mut frames = Vec::new();
    let stop = AtomicBool::new(false);
    let outcome = drive(&bag, &mut localizer, params, options, &stop, |frame, _| frames.push(*frame))?;
    Ok(Driven { frames, outcome, overwritten: localizer.counters().get(Counter::Overwritten) })
}

/// The robot drives along x at a metre a second, the sensor half a metre above its base; the odometry
/// has its origin where the robot is at 100 s. Clouds come every 0.1 s, 30 ms after their measurement,
/// transforms every 20 ms.
fn scene(seconds: f64, big_endian: bool) -> Vec<Item> {
    let mut items = vec![item(
        "/tf_static",
        TF,
        100.0,
        transform("base_link", "lidar", 100.0, [0.0, 0.0, 0.5], big_endian),
    )];
    for i in 0..(seconds * 50.0) as u32 {
        let t = 100.0 + 0.02 * f64::from(i);
        items.push(item("/tf", TF, t, transform("odom", "base_link", t, [t - 100.0, 0.0, 0.0], big_endian)));
        if i % 5 == 2 {
            let t = t - 0.03;
            let data = cloud(t, 60, [t - 95.0, 2.0, 0.5], big_endian);
            items.push(item(INPUT, CLOUD, t + 0.03, data));
            items.push(item("/truth", POSE, t + 0.03, pose("map", t, [t - 95.0, 2.0, 0.0], None)));
        }
    }
    items
}

fn written(items: &[Item]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bag.mcap");
    write_mcap(&path, plain(), items);
    (folder, path)
}

/// Everything of a frame but times of this machine.
fn facts(frames: &[FrameRecord]) -> String {
    let digits = |pose: &Rigid| format!("{:x?}", pose.to_homogeneous().map(f64::to_bits).as_slice());
    let line = |f: &FrameRecord| {
        let estimate = f.estimate.map(|e| (digits(&e.map_t_base), e.covariance.map(f64::to_bits)));
        format!(
            "{:?} {:?} {} {estimate:?} {} {} {:x} {:x}\n",
            f.stamp,
            f.arrived,
            f.status,
            f.correspondences,
            f.inliers,
            f.log10_false_alarms.to_bits(),
            f.margin.to_bits()
        )
    };
    frames.iter().map(line).collect()
}

#[test]
fn every_answer_is_right_and_the_same_again_with_any_number_of_threads_and_in_any_bag() {
    let items = scene(3.0, false);
    let (folder, path) = written(&items);
    let first = run(&path, &params(), &Options::default()).expect("driven");
    assert_eq!(first.frames.len(), 30);
    assert!(first.outcome.complete && first.outcome.losses.is_empty() && first.outcome.notes.is_empty());
    for frame in &first.frames {
        let x = frame.stamp.seconds_since(Stamp::default()) - 95.0;
        let pose = frame.estimate.expect("accepted").map_t_base;
        let error = (pose.translation.vector - nalgebra::Vector3::new(x, 2.0, 0.0)).norm();
        assert!(error < 1e-5 && pose.rotation.angle() < 1e-6, "{x}: {error}");
        assert_eq!((frame.status, frame.correspondences, frame.inliers), (Status::Ok, 60, 60));
    }

    let want = facts(&first.frames);
    let again = |path: &Path, threads: i64| {
        let mut params = params();
        params.backend.threads = threads;
        facts(&run(path, &params, &Options::default()).expect("driven").frames)
    };
    assert_eq!(again(&path, 0), want);
    assert_eq!(again(&path, 1), want);
    assert_eq!(again(&path, 3), want);
    let other = folder.path().join("bag.db3");
    write_db3(&other, &items);
    assert_eq!(again(&other, 0), want);
    write_mcap(&path, plain().compression(Some(mcap::Compression::Zstd)).chunk_size(None), &items);
    assert_eq!(again(&path, 0), want);
    write_mcap(&path, plain(), &scene(3.0, true));
    assert_eq!(again(&path, 0), want);
}

#[test]
fn a_message_waits_for_its_transform_as_long_as_the_parameters_say() {
    // The transform of 100.2 s comes 60 ms after the cloud of that time.
    let stationary =
        |t: f64, log: f64| item("/tf", TF, log, transform("odom", "base_link", t, [0.0; 3], false));
    let mut items = vec![
        item("/tf_static", TF, 100.0, transform("base_link", "lidar", 100.0, [0.0; 3], false)),
        stationary(100.0, 100.0),
        item(INPUT, CLOUD, 100.21, cloud(100.2, 60, [1.0, 2.0, 3.0], false)),
        stationary(100.1, 100.25),
        stationary(100.3, 100.27),
    ];
    let status = |items: &[Item], wait: f64| {
        let (_folder, path) = written(items);
        let mut params = params();
        params.tf.wait_sec = wait;
        let driven = run(&path, &params, &Options::default()).expect("driven");
        let statuses: Vec<Status> = driven.frames.iter().map(|frame| frame.status).collect();
        (statuses, driven.overwritten)
    };
    assert_eq!(status(&items, 0.1), (vec![Status::Ok], 0));
    assert_eq!(status(&items, 0.05), (vec![Status::MissingTf], 0));
    // To the end of the bag and beyond.
    assert_eq!(status(&items[..3], 0.1), (vec![Status::MissingTf], 0));
    // A newer message takes the place of the one that waits.
    items.insert(3, item(INPUT, CLOUD, 100.24, cloud(100.23, 60, [1.0, 2.0, 3.0], false)));
    assert_eq!(status(&items, 0.1), (vec![Status::Ok], 1));
}

#[test]
fn in_real_time_frames_are_dropped_and_counted() {
    let (_folder, path) = written(&scene(3.0, false));
    let options = Options { realtime: true, rate: 1e5, ..Options::default() };
    let driven = run(&path, &params(), &options).expect("driven");
    // Each answer takes longer than the whole bag lasts: the first, and after it the newest, whose age is
    // no longer taken.
    assert_eq!((driven.frames.len(), driven.overwritten), (2, 28));
    assert_eq!(driven.frames[1].status, Status::StaleInput);
    let slow =
        run(&path, &params(), &Options { realtime: true, rate: 1e-3, ..Options::default() }).expect("driven");
    assert_eq!((slow.frames.len(), slow.overwritten), (30, 0));
}

#[test]
fn a_part_of_the_bag_is_driven_with_the_transforms_before_it() {
    let (_folder, path) = written(&scene(3.0, false));
    let options = Options { start: 1.0, duration: Some(1.0), ..Options::default() };
    let driven = run(&path, &params(), &options).expect("driven");
    assert_eq!(driven.frames.len(), 10);
    assert!(driven.frames.iter().all(|frame| frame.status == Status::Ok));
    let from = Stamp::default().plus(101.0);
    assert!(driven.frames.iter().all(|frame| frame.arrived >= from && frame.arrived <= from.plus(1.0)));
}

#[test]
fn an_initial_pose_reaches_the_localizer_and_one_that_is_wrong_does_not() {
    let mut items = scene(1.0, false);
    items.push(item("/initialpose", POSE_COVARIANCE, 100.5, pose("map", 100.5, [5.0, 2.0, 0.0], Some(0.1))));
    items.push(item("/initialpose", POSE_COVARIANCE, 100.7, pose("elsewhere", 100.7, [0.0; 3], Some(0.1))));
    let (_folder, path) = written(&items);
    let bag = Bag::open(&path).expect("a bag");
    let mut localizer = Localizer::new(&params()).expect("the CPU");
    let stop = AtomicBool::new(false);
    drive(&bag, &mut localizer, &params(), &Options::default(), &stop, |_, _| ()).expect("driven");
    assert_eq!(localizer.generation(), 1);
    assert_eq!(localizer.counters().get(Counter::RefusedInitialpose), 1);
    assert!(localizer.prior().is_some());
}

#[test]
fn who_stops_the_drive_has_the_part_until_then() {
    let (_folder, path) = written(&scene(3.0, false));
    let bag = Bag::open(&path).expect("a bag");
    let mut localizer = Localizer::new(&params()).expect("the CPU");
    let stop = AtomicBool::new(false);
    let mut frames = 0;
    let outcome = drive(&bag, &mut localizer, &params(), &Options::default(), &stop, |_, progress| {
        frames += 1;
        assert!(progress.done <= progress.total);
        stop.store(frames == 7, Ordering::Relaxed);
    });
    assert_eq!((frames, outcome.expect("driven").complete), (7, false));
}

#[test]
fn bags_that_lack_something_are_driven_as_far_as_they_go() {
    let with = |items: &[Item], params: &Params| {
        let (_folder, path) = written(items);
        run(&path, params, &Options::default())
    };
    let mut items = scene(1.0, false);
    items.iter_mut().filter(|item| item.topic == INPUT).for_each(|item| item.type_name = POSE.into());
    let error = with(&items, &params()).err().expect("refused").to_string();
    assert!(error.starts_with("wrong_type:"), "{error}");

    let mut items = scene(1.0, false);
    items.iter_mut().filter(|item| item.topic == "/tf").for_each(|item| item.type_name = POSE.into());
    let driven = with(&items, &params()).expect("driven");
    assert!(driven.outcome.notes[0].starts_with("wrong_type: '/tf'"), "{:?}", driven.outcome.notes);
    assert!(driven.frames.iter().all(|frame| frame.status == Status::MissingTf));

    items.retain(|item| item.topic != INPUT);
    let error = with(&items, &params()).err().expect("refused").to_string();
    assert!(error.starts_with("no_topic:"), "{error}");

    // Broken messages are answered with their status; without tf where none is needed.
    let mut params = params();
    params.tf.mode = TfMode::None;
    params.frames.base = "lidar".into();
    let clouds = [
        item(INPUT, CLOUD, 100.0, cloud(100.0, 60, [1.0; 3], false)),
        item(INPUT, CLOUD, 100.1, vec![0, 1, 0]),
        item(INPUT, CLOUD, 100.2, cloud(90.0, 60, [1.0; 3], false)),
        item("/tf", TF, 100.2, vec![9, 9]),
    ];
    let driven = with(&clouds, &params).expect("driven");
    let statuses: Vec<Status> = driven.frames.iter().map(|frame| frame.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::BadInput, Status::StaleInput]);
    assert_eq!(driven.frames[1].stamp, driven.frames[1].arrived);
    assert!(driven.outcome.notes[0].starts_with("refused: 1 messages"), "{:?}", driven.outcome.notes);
}

#[test]
fn a_topic_without_messages_gives_no_frames_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bag.db3");
    write_db3(&path, &[item(INPUT, CLOUD, 1.0, vec![])]);
    rusqlite::Connection::open(&path).expect("opened").execute("DELETE FROM messages", []).expect("deleted");
    let driven = run(&path, &params(), &Options::default()).expect("driven");
    assert!(driven.frames.is_empty());
    assert!(driven.outcome.notes[0].starts_with("no_messages:"), "{:?}", driven.outcome.notes);
}

#[test]
fn of_a_bag_that_was_cut_the_beginning_is_driven() {
    let (_folder, path) = written(&scene(3.0, false));
    let bytes = std::fs::read(&path).expect("read");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("written");
    let driven = run(&path, &params(), &Options::default()).expect("driven");
    assert!((8..30).contains(&driven.frames.len()), "{}", driven.frames.len());
    let losses: Vec<String> = driven.outcome.losses.iter().map(|loss| loss.what.to_string()).collect();
    assert!(losses.iter().any(|loss| loss.starts_with("truncated:")), "{losses:?}");
}

#[test]
fn the_truth_is_the_same_from_a_topic_from_tf_and_from_files() {
    let mut items = scene(2.0, false);
    for item in items.clone().iter().filter(|item| item.topic == "/truth") {
        let t = Stamp(item.log_time).seconds_since(Stamp::default()) - 0.03;
        // map -> anchor is static, anchor -> robot moves.
        items.push(common::bags::item(
            "/tf",
            TF,
            t + 0.03,
            transform("anchor", "robot", t, [t - 96.0, 2.0, 0.0], false),
        ));
    }
    items.push(item("/tf_static", TF, 100.0, transform("map", "anchor", 100.0, [1.0, 0.0, 0.0], false)));
    let (folder, path) = written(&items);
    let bag = Bag::open(&path).expect("a bag");
    let read = |source: &str, times: Option<&Path>| {
        let source: Source = source.parse().expect("a source");
        Truth::read(&source, &bag, &params(), INPUT, times)
    };
    let topic = read("/truth", None).expect("poses");
    assert_eq!((topic.trajectory.len(), topic.notes.len()), (20, 0));
    for (stamp, pose) in topic.trajectory.iter() {
        assert!((pose.translation.x - stamp.seconds_since(Stamp::default()) + 95.0).abs() < 1e-9);
    }
    let near = |other: &Truth| {
        for (stamp, pose) in topic.trajectory.iter() {
            let there = other.trajectory.at(stamp, 1.0).expect("a pose");
            assert!((there.translation.vector - pose.translation.vector).norm() < 1e-6);
        }
    };
    near(&read("tf:map:robot", None).expect("poses"));
    let file = folder.path().join("truth.tum");
    topic.trajectory.write_tum(std::fs::File::create(&file).expect("a file")).expect("written");
    near(&read(&file.to_string_lossy(), None).expect("poses"));
    let rows: String = topic
        .trajectory
        .poses()
        .iter()
        .map(|pose| {
            let t = pose.translation;
            format!("1 0 0 {} 0 1 0 {} 0 0 1 {}\n", t.x, t.y, t.z)
        })
        .collect();
    let file = folder.path().join("truth.kitti");
    std::fs::write(&file, rows).expect("written");
    near(&read(&file.to_string_lossy(), None).expect("poses"));
    let times: String =
        topic.trajectory.stamps().iter().map(|stamp| format!("{:.9}\n", stamp.0 as f64 * 1e-9)).collect();
    let beside = folder.path().join("times.txt");
    std::fs::write(&beside, times).expect("written");
    near(&read(&file.to_string_lossy(), Some(&beside)).expect("poses"));
    std::fs::write(&beside, "1\n2\n").expect("written");
    for (source, times, word) in [
        ("/absent", None, "no_topic:"),
        ("/tf", None, "wrong_type:"),
        ("tf:map:nowhere", None, "nowhere"),
        ("tf:map:base_link", None, "not connected"),
        (&file.to_string_lossy(), Some(beside.as_path()), "lengths:"),
        ("absent.tum", None, "absent.tum"),
    ] {
        let error = read(source, times).expect_err("refused").to_string();
        assert!(error.contains(word), "{source}: {error}");
    }
}

/// Runs `flashreg replay` with these arguments: exit code, standard output, standard error.
fn flashreg(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flashreg"));
    command.arg("replay").args(arguments).args(["--set", "backend.kind=cpu"]);
    let done = command.output().expect("started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn the_command_writes_the_same_files_again_and_its_exit_code_tells_errors_from_gates() {
    let (folder, path) = written(&scene(3.0, false));
    let bag = path.to_string_lossy();
    let out = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (one, many) = (out("one"), out("many"));
    for (out, threads) in [(&one, "backend.threads=1"), (&many, "backend.threads=3")] {
        let (code, text, error) = flashreg(&[&bag, "--gt", "/truth", "--out", out, "--set", threads]);
        assert_eq!((code, error.as_str()), (Some(0), ""));
        assert!(text.contains("30"), "{text}");
    }
    let read = |folder: &str, file: &str| std::fs::read(Path::new(folder).join(file)).expect(file);
    for file in ["estimate.tum", "groundtruth.tum"] {
        let bytes = read(&one, file);
        assert!(bytes == read(&many, file), "{file}");
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 31, "{file}");
    }
    assert!(read(&one, "report.html").len() > 1000);

    let baseline = Path::new(&one).join("result.json");
    let json = ["--gt", "/truth", "--json", "--baseline", &baseline.to_string_lossy(), "--max-te", "0.01"];
    let (code, text, _) = flashreg(&[&[&*bag][..], &json[..]].concat());
    let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["summary"]["accepted"], 30);
    // The times of this machine are not those of a while ago; the rest is.
    let failed: Vec<_> =
        result["comparison"].as_array().into_iter().flatten().filter(|c| c["passed"] == false).collect();
    assert!(failed.iter().all(|c| c["metric"] == "p99, ms"), "{failed:?}");
    assert_eq!(code, Some(if failed.is_empty() { 0 } else { 2 }));

    for (arguments, want, word) in [
        (vec![&*bag, "--gt", "/truth", "--max-te", "0.0000000001"], 2, "failed: max_te_m"),
        (vec![&*bag, "--max-p99-ms", "0"], 2, "failed: max_p99_ms"),
        (vec![&*bag, "--max-te", "1"], 1, "--gt"),
        (vec![&*bag, "--start=-1"], 1, "--start"),
        (vec![&*bag, "--map", "map.pcd"], 1, "map.pcd: unreadable"),
        (vec![&*bag, "--topic", "/absent"], 1, "no_topic: '/absent'"),
        (vec![&*bag, "--gt", "/absent"], 1, "no_topic: '/absent'"),
        (vec!["absent.mcap"], 1, "absent.mcap"),
        (vec![], 1, "BAG"),
    ] {
        let (code, _, error) = flashreg(&arguments);
        assert_eq!(code, Some(want), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}
