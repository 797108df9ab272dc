//! The folder of a replay: what is in it, that it is the same every time, and what the gates say.

use flashreg::estimation;
use flashreg::geometry::Rigid;
use flashreg::io::trajectory::Trajectory;
use flashreg::localizer::{Input, Stages};
use flashreg::messages::Stamp;
use flashreg::params::Params;
use flashreg::registration::StageTimes;
use flashreg::replay::drive;
use flashreg::replay::files::{write, Drive};
use flashreg::replay::gates::{Gates, MinRecall};
use flashreg::replay::metrics::{Align, Angle, Evaluation, Limit, Options, Step, Truths};
use flashreg::replay::result::ResultFile;
use flashreg::replay::{table, Backend, Estimate, FrameRecord, Run};
use flashreg::status::{Counter, Status};
use nalgebra::{Matrix6, Translation3, UnitQuaternion, Vector3, Vector6};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A drive about a block, 10 Hz, with noise, frames without a pose, and some wrong ones.
struct Made {
    frames: Vec<FrameRecord>,
    truth: Trajectory,
    relative: Option<Trajectory>,
}

fn at(seconds: f64) -> Rigid {
    let angle = 0.02 * seconds;
    let (x, y) = (60.0 * angle.cos() + 4.0 * (0.3 * seconds).sin(), 35.0 * (2.0 * angle).sin());
    let turn = UnitQuaternion::from_euler_angles(0.02 * (0.5 * seconds).sin(), 0.01, angle);
    Rigid::from_parts(Translation3::new(x, y, 0.3 * (0.1 * seconds).sin()), turn)
}

fn made(count: u32) -> Made {
    let begin = Stamp(1_700_000_000_123_456_789);
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let mut noise = move |sigma: f64| sigma * (0..12).map(|_| rng.random_range(-0.5..0.5)).sum::<f64>();
    let frame = |i: u32| {
        let seconds = 0.1 * f64::from(i);
        let status = match i % 600 {
            _ if i < 12 => Status::MissingTf,
            200..230 => Status::LowInliers,
            400..410 => Status::Ambiguous,
            n if n % 97 == 50 => Status::LowInliers,
            _ => Status::Ok,
        };
        let wrong = if i % 1500 == 900 { 8.0 } else { 0.0 };
        let shift = Vector3::new(noise(0.03) + wrong, noise(0.03), noise(0.06));
        let turn = Vector3::new(noise(0.002), noise(0.002), noise(0.004));
        let truth = at(seconds);
        let map_t_base = Rigid::from_parts(
            (truth.translation.vector + shift).into(),
            UnitQuaternion::from_scaled_axis(turn) * truth.rotation,
        );
        let variances = Vector6::new(9e-4, 9e-4, 36e-4, 4e-6, 4e-6, 16e-6);
        let covariance = Matrix6::from_diagonal(&variances);
        let mut time =
            |share: f64| 1e3 * share * (1.0 + noise(0.1).abs() + if i % 211 == 7 { 2.0 } else { 0.0 });
        let stages = StageTimes {
            upload: time(0.3),
            fog: time(6.0),
            sog: time(4.0),
            pivots: time(0.2),
            cliques: time(2.0),
            hypotheses: time(1.5),
            refine: time(0.8),
        };
        let stages = if i < 12 { StageTimes::default() } else { stages };
        FrameRecord {
            input: Input::Points3d3d,
            stamp: begin.plus(seconds),
            arrived: begin.plus(seconds + 0.03),
            answered: begin.plus(seconds + 0.03),
            start: 0,
            status,
            estimate: (status == Status::Ok).then_some(Estimate { map_t_base, covariance }),
            relative: None,
            mode: None,
            correspondences: 1500,
            inliers: if status == Status::Ok { 300 } else { 20 },
            log10_false_alarms: -40.0,
            margin: 0.8,
            parse_us: 100.0,
            total_us: 200.0 + stages.total(),
            stages: Stages::Registration(stages),
        }
    };
    let frames = (0..count).map(frame).collect();
    // The truth of another clock, so that it is interpolated; it ends before the drive does.
    let poses = (0..2 * count - 20).map(|i| 0.05 * f64::from(i) - 0.02).map(|s| (begin.plus(s), at(s)));
    Made { frames, truth: Trajectory::new(poses.collect()).expect("a trajectory"), relative: None }
}

/// The same drive with a camera that answers just before the LiDAR: a pose in the map and, from the sixth frame
/// on, a relative one; it stands during the frames 100 to 119.
fn with_camera(made: &Made) -> Made {
    let stands = |i: usize| (100..120).contains(&i);
    let mut relative = Vec::new();
    let mut frames = Vec::new();
    for (i, lidar) in made.frames.iter().enumerate() {
        let stages = Stages::Estimation(estimation::StageTimes { search: 900.0, ..Default::default() });
        let arrived = lidar.arrived.plus(-0.01);
        let camera = FrameRecord { arrived, stages, total_us: 1100.0, ..*lidar };
        frames.push(FrameRecord { input: Input::Sights2d3d, ..camera });
        if i > 5 {
            let x = if stands(i) { 0.0 } else { 0.5 };
            relative.push((lidar.stamp, Rigid::translation(x, 0.0, 0.0)));
            let (sin, cos) = (0.01 * (i % 4) as f64).sin_cos();
            let (status, found) = match stands(i) {
                true => (Status::Degenerate, None),
                false => (Status::Ok, Some(Rigid::translation(cos, sin, 0.0))),
            };
            let input = Input::Sights2d2d;
            frames.push(FrameRecord { input, status, estimate: None, relative: found, ..camera });
        }
        frames.push(*lidar);
    }
    let relative = Some(Trajectory::new(relative).expect("a trajectory"));
    Made { frames, truth: made.truth.clone(), relative }
}

fn run(frames: &[FrameRecord]) -> Run {
    let params = Params::specs().iter().map(|spec| (spec.name.to_owned(), Value::from("..."))).collect();
    let mut counters: BTreeMap<_, _> = Counter::ALL.iter().map(|c| (c.name().to_owned(), 0)).collect();
    counters.insert(Counter::Received.name().to_owned(), frames.len() as u64);
    counters.insert(Counter::RefusedMissingTf.name().to_owned(), 12);
    counters.insert(Counter::Overwritten.name().to_owned(), 3);
    let why = "no CUDA: there is no driver <libcuda.so.1>".to_owned();
    Run {
        bag: "drives/about_the_block & back.mcap".to_owned(),
        truth: Some("/ground_truth/odom".to_owned()),
        truth_relative: None,
        drive: drive::Options { realtime: true, ..drive::Options::default() },
        complete: false,
        losses: vec!["chunk 17 is damaged: 31 messages of /points lost".to_owned()],
        notes: Vec::new(),
        wall_s: 12.5,
        backend: Backend { kind: "cpu".to_owned(), why, gpu: None, cuda: None },
        counters,
        params,
    }
}

fn written(
    folder: &Path,
    made: &Made,
    options: Options,
    gates: Gates,
    before: Option<&ResultFile>,
) -> ResultFile {
    let truths = Truths { absolute: Some(&made.truth), relative: made.relative.as_ref() };
    let evaluation = Evaluation::new(&made.frames, truths, &options);
    let run = run(&made.frames);
    let drive =
        Drive { run, frames: &made.frames, evaluation: &evaluation, options, gates, baseline: before };
    write(folder, drive).expect("written")
}

/// Where the tests of tools find folders to look at.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay").join(name)
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect(name)
}

/// The folders for `tests/tools/test_replay_*.py`: long, with a baseline and gates; and one that is
/// aligned, with relative errors over metres.
#[test]
fn a_long_drive_is_written_soon_and_small() {
    let made = made(6000);
    let gates = Gates {
        max_te_m: Some(5.0),
        min_recall: Some(MinRecall { share: 0.9, limit: None }),
        max_p99_ms: Some(50.0),
        ..Gates::default()
    };
    let begin = std::time::Instant::now();
    let folder = kept("drive");
    let mut before = written(&folder, &made, Options::default(), gates.clone(), None);
    // Some 0.3 s; the bound is for a machine that does other things too.
    assert!(begin.elapsed().as_secs_f64() < 10.0, "{:?}", begin.elapsed());
    if let Some(ate) = &mut before.summary.ate {
        ate.translation_m.rmse *= 0.5;
    }
    let result = written(&folder, &made, Options::default(), gates, Some(&before));
    let page = read(&folder, "report.html");
    assert!(page.len() < 700_000, "{} bytes", page.len());
    assert!(
        !page.contains("http://")
            || page.matches("http://").all(|_| page.contains("http://www.w3.org/2000/svg"))
    );
    assert!(!page.contains("https://") && !page.contains("<script") && !page.contains("url("));
    assert!(page.contains("about_the_block &amp; back") && page.contains("&lt;libcuda.so.1&gt;"));
    // The wrong ones break a gate, and half the error of the baseline is a regression.
    let failures = result.failures().join("\n");
    assert_eq!(result.failures().len(), 2, "{failures}");
    assert!(failures.contains("failed: max_te_m") && failures.contains("regression: ATE, m"), "{failures}");
    let text = table::summary(&result);
    for word in ["recall", "RPE, 1 frame", "NEES", "overwritten 3", "chunk 17", "interrupted", "REGRESSION"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    for name in ["trajectory.png", "errors.png", "status.png", "latency.png", "stages.png"] {
        let file = std::fs::read(folder.join(name)).expect(name);
        assert!(file.starts_with(b"\x89PNG") && file.len() < 300_000, "{name}: {} bytes", file.len());
    }
    let metres = Options { align: Align::Se3, rpe: Step::Metres(10.0), ..Options::default() };
    written(&kept("aligned"), &made, metres, Gates::default(), None);
    let seconds = Options { rpe: Step::Frames(7), ..Options::default() };
    written(&kept("frames"), &made, seconds, Gates::default(), None);
    written(&kept("camera"), &with_camera(&made), Options::default(), Gates::default(), None);
    let left: Vec<_> =
        std::fs::read_dir(&folder).expect("a folder").flatten().map(|f| f.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".partial")), "{left:?}");
}

#[test]
fn poses_are_the_same_bytes_every_time() {
    let made = made(300);
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    for folder in &folders {
        written(folder.path(), &made, Options::default(), Gates::default(), None);
    }
    for name in ["estimate.tum", "groundtruth.tum", "frames.csv", "report.html", "result.json"] {
        let [a, b] = folders.each_ref().map(|folder| read(folder.path(), name));
        assert_eq!(a, b, "{name}");
    }
    let estimate = read(folders[0].path(), "estimate.tum");
    let line = estimate.lines().nth(1).expect("a pose");
    // Frame 12 is the first with a pose, and keeps its nanoseconds.
    assert!(line.starts_with("1700000001.323456789 "), "{line}");
    assert!(
        line.split(' ').skip(1).all(|word| word.split('.').nth(1).is_some_and(|d| d.len() == 9)),
        "{line}"
    );
    let accepted = made.frames.iter().filter(|frame| frame.estimate.is_some()).count();
    assert_eq!(estimate.lines().count(), 1 + accepted);
}

#[test]
fn every_frame_has_a_row_and_each_column_a_name() {
    let made = made(300);
    let folder = tempfile::tempdir().expect("a folder");
    written(folder.path(), &made, Options::default(), Gates::default(), None);
    let csv = read(folder.path(), "frames.csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 301);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let column = |name: &str| rows[0].iter().position(|head| *head == name).expect("a column");
    for name in StageTimes::NAMES {
        column(&format!("{name}_us"));
    }
    let statuses: Vec<_> = rows.iter().skip(1).map(|row| row[column("status")]).collect();
    assert!(statuses.iter().zip(&made.frames).all(|(name, frame)| *name == frame.status.name()));
    // No pose: empty, not zero.
    assert_eq!((rows[1][column("te_m")], rows[1][column("x")]), ("", ""));
    assert!(rows[20][column("te_m")].parse::<f64>().expect("a number") < 0.5);
}

/// The names in `result.json`, `[]` for any element of a list.
fn paths(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| paths(value, &format!("{at}.{key}"), into)),
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter().take(1).for_each(|value| paths(value, &format!("{at}[]"), into));
        }
        _ => into.push(at.trim_start_matches('.').to_owned()),
    }
}

#[test]
fn the_schema_of_the_result_is_the_documented_one() {
    let made = with_camera(&made(300));
    let folder = tempfile::tempdir().expect("a folder");
    let gates = Gates {
        max_te_m: Some(1.0),
        max_re_deg: Some(1.0),
        min_recall: Some(MinRecall { share: 0.5, limit: Some(Limit { re_deg: 5.0, te_m: 2.0 }) }),
        max_p99_ms: Some(1.0),
        max_relative_re_deg: Some(1.0),
        max_direction_deg: Some(1.0),
        min_relative_recall: Some(MinRecall { share: 0.5, limit: Some(Angle { deg: 5.0 }) }),
    };
    let options = Options { align: Align::Se3, ..Options::default() };
    let before = written(folder.path(), &made, options.clone(), gates.clone(), None);
    let result = written(folder.path(), &made, options, gates, Some(&before));
    // What is read is what was written, but for the last digit of some numbers.
    let again = ResultFile::read(&folder.path().join("result.json")).expect("a result");
    assert_eq!((&again.run, &again.options, &again.gates), (&result.run, &result.options, &result.gates));
    assert_eq!((&again.summary.statuses, again.failures()), (&result.summary.statuses, result.failures()));
    let json: Value = serde_json::from_str(&read(folder.path(), "result.json")).expect("JSON");
    let mut names = Vec::new();
    paths(&json, "", &mut names);
    let named = |name: &String| {
        let by_name = ["run.params.", "run.counters.", "summary.statuses.", "summary.inputs[].statuses."];
        !by_name.iter().any(|group| name.starts_with(group))
    };
    names.retain(named);
    let expected: Vec<&str> = include_str!("support/result_schema.txt").lines().collect();
    names.sort();
    assert_eq!(names, expected, "a change of names needs another SCHEMA");
    assert_eq!(json["schema"], 1);
    let keys = |pointer: &str| json.pointer(pointer).and_then(Value::as_object).expect("a map").len();
    assert_eq!(keys("/run/counters"), Counter::ALL.len());
    assert_eq!(keys("/summary/statuses"), Status::ALL.len());
    assert_eq!(keys("/run/params"), Params::specs().len());
}

#[test]
fn what_is_no_result_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let refused = |text: &str| {
        std::fs::write(&path, text).expect("written");
        ResultFile::read(&path).expect_err("refused").to_string()
    };
    assert!(refused("{}").contains("no result.json of flashreg: missing field `schema`"));
    assert!(refused("{\"schema\": 99}").contains("schema 99"));
    assert!(refused("{\"schema\": 1}").contains("missing field"));
    assert!(refused("x").contains("no result.json"));
    std::fs::remove_file(&path).expect("removed");
    assert!(ResultFile::read(&path).is_err());
}

#[test]
fn a_gate_that_cannot_be_told_fails() {
    let made = made(100);
    let options = Options::default();
    let evaluation = Evaluation::new(&made.frames, Truths::default(), &options);
    let gates = Gates {
        max_te_m: Some(100.0),
        min_recall: Some(MinRecall { share: 0.0, limit: None }),
        max_p99_ms: Some(1000.0),
        ..Gates::default()
    };
    let passed: Vec<_> = gates.check(&evaluation).iter().map(|verdict| verdict.passed).collect();
    assert_eq!(passed, [false, false, true]);
    assert_eq!(
        "0.95@5,2".parse(),
        Ok(MinRecall { share: 0.95, limit: Some(Limit { re_deg: 5.0, te_m: 2.0 }) })
    );
    assert_eq!("1".parse(), Ok(MinRecall::<Limit> { share: 1.0, limit: None }));
    assert_eq!("0.9@5".parse(), Ok(MinRecall { share: 0.9, limit: Some(Angle { deg: 5.0 }) }));
    for text in ["1.5", "-0.1", "x", "0.9@", "0.9@5", "nan"] {
        assert!(text.parse::<MinRecall>().is_err(), "{text}");
    }
}

#[test]
fn what_got_no_worse_is_no_regression() {
    let made = made(300);
    let folder = tempfile::tempdir().expect("a folder");
    let before = written(folder.path(), &made, Options::default(), Gates::default(), None);
    let again = written(folder.path(), &made, Options::default(), Gates::default(), Some(&before));
    assert_eq!(again.failures(), [] as [String; 0]);
    // Without truth the same numbers are unknown: worse.
    let evaluation = Evaluation::new(&made.frames, Truths::default(), &Options::default());
    let unknown = flashreg::replay::gates::compare(&before, &evaluation);
    assert!(unknown.iter().any(|row| row.metric == "ATE, m" && !row.passed));
    let later = |change: &dyn Fn(&mut ResultFile)| {
        let mut other = before.clone();
        change(&mut other);
        let again = written(folder.path(), &made, Options::default(), Gates::default(), Some(&other));
        again.comparison.iter().filter(|row| !row.passed).map(|row| row.metric.clone()).collect::<Vec<_>>()
    };
    let p99 = |factor: f64| {
        move |other: &mut ResultFile| {
            other.summary.latency.iter_mut().for_each(|stage| stage.ms.p99 *= factor)
        }
    };
    assert_eq!(later(&p99(0.5)), ["p99, ms"]);
    assert_eq!(later(&p99(0.9)), [] as [String; 0]);
    assert_eq!(later(&|other| other.summary.recall[0].share = 1.0), ["recall at 5 deg, 2 m"]);
    assert_eq!(later(&|other| other.summary.accepted = 300), ["accepted poses, share"]);
}

#[test]
fn a_drive_with_a_camera_is_told_by_input_and_relative_poses_by_themselves() {
    let made = with_camera(&made(300));
    let folder = tempfile::tempdir().expect("a folder");
    let gates = Gates {
        max_relative_re_deg: Some(0.1),
        max_direction_deg: Some(1.0),
        min_relative_recall: Some(MinRecall { share: 0.9, limit: None }),
        ..Gates::default()
    };
    let result = written(folder.path(), &made, Options::default(), gates, None);
    let inputs: Vec<_> = result.summary.inputs.iter().map(|i| (i.input.as_str(), i.frames)).collect();
    assert_eq!(
        inputs,
        [("correspondences_3d3d", 300), ("correspondences_2d3d", 300), ("correspondences_2d2d", 294)]
    );
    // The same poses at the same times: the trajectory has each once.
    let accepted =
        made.frames.iter().filter(|f| f.input == Input::Points3d3d && f.estimate.is_some()).count();
    assert_eq!(read(folder.path(), "estimate.tum").lines().count(), 1 + accepted);
    assert_eq!(
        result.summary.ate.expect("a truth").pairs,
        2 * result.summary.inputs[0].ate.expect("too").pairs
    );
    let relative = result.summary.relative.as_ref().expect("relative poses");
    assert_eq!((relative.frames, relative.accepted, relative.with_truth), (294, 274, 274));
    let still = relative.still;
    assert_eq!((still.frames, still.degenerate, still.accepted), (20, 20, 0));
    assert_eq!(relative.accepted_share(), Some(1.0));
    let passed: Vec<_> = result.verdicts.iter().map(|verdict| verdict.passed).collect();
    // Up to 0.03 rad, which is 1.7 degrees.
    assert_eq!(passed, [true, false, true]);
    let text = table::summary(&result);
    for word in
        ["standing  20 more", "correspondences_2d2d: 294 frames: degenerate 20, ok 274", "  direction deg"]
    {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    let page = read(folder.path(), "report.html");
    for word in ["<h2>Inputs</h2>", "Recall of relative poses", "20 refused as degenerate, 0 accepted"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(std::fs::read(folder.path().join("relative.png")).expect("a figure").starts_with(b"\x89PNG"));
    let csv = read(folder.path(), "frames.csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|head| *head == name).expect("a column");
    let row = rows.iter().find(|row| row[column("input")] == "correspondences_2d2d").expect("a row");
    // The sixth: 0.02 rad off.
    assert_eq!(
        [row[column("direction_deg")], row[column("fog_us")], row[column("te_m")]],
        ["1.145915590", "", ""]
    );
    // A fall of recall and larger angles are regressions.
    let mut before = result;
    if let Some(relative) = &mut before.summary.relative {
        relative.recall.iter_mut().for_each(|recall| recall.share = 1.1);
        relative.direction_deg.iter_mut().for_each(|angles| angles.p50 *= 0.5);
    }
    let again = written(folder.path(), &made, Options::default(), Gates::default(), Some(&before));
    let worse: Vec<_> =
        again.comparison.iter().filter(|row| !row.passed).map(|row| row.metric.as_str()).collect();
    assert_eq!(worse.len(), 5, "{worse:?}");
    assert!(worse.contains(&"relative direction p50, degrees"), "{worse:?}");
}
