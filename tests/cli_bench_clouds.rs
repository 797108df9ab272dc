//! `flashreg bench clouds` and `flashreg localize --pair`: rooms of boxes, each seen from two positions in frames of any
//! kind, and the real pairs where they are.

use flashreg::geometry::{pose_error, Point, Rigid, Vector};
use nalgebra::{Matrix4, Translation3, UnitQuaternion};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{json, Value};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn flashreg(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashreg")).args(args).output().expect("it runs")
}

fn bench(folder: &Path, more: &[&str]) -> Value {
    let folder = folder.to_str().expect("UTF-8");
    let output = flashreg(&[&["bench", "clouds", folder, "--backend", "cpu", "--json", "-"], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A box: its pose, and half of its edges.
type Solid = (Rigid, Vector);

/// Boxes of all sizes that stand about in a room, on the floor and on each other.
fn room(rng: &mut Pcg64Mcg) -> Vec<Solid> {
    let size = Vector::new(rng.random_range(5.0..7.0), rng.random_range(4.0..5.0), 2.6);
    let mut solids = vec![(Rigid::translation(0.0, 0.0, size.z / 2.0), size / 2.0)];
    for _ in 0..40 {
        let half = Vector::from_fn(|_, _| rng.random_range(0.05..0.45));
        let place = |rng: &mut Pcg64Mcg, width: f64| rng.random_range(-0.5 * width..0.5 * width);
        let (x, y) = (place(rng, size.x), place(rng, size.y));
        if x.hypot(y) < 1.3 {
            continue;
        }
        let turn = UnitQuaternion::from_euler_angles(0.0, 0.0, rng.random_range(0.0..3.0));
        let z = half.z + rng.random_range(0.0..1.2);
        solids.push((Rigid::from_parts(Translation3::new(x, y, z), turn), half));
    }
    solids
}

/// How far along a ray a box is met: from outside, or the room from inside.
fn hit((pose, half): &Solid, origin: &Point, direction: &Vector, inside: bool) -> Option<f64> {
    let (o, d) = (pose.inverse_transform_point(origin), pose.inverse_transform_vector(direction));
    let (mut near, mut far) = (f64::NEG_INFINITY, f64::INFINITY);
    for i in 0..3 {
        let [a, b] = [(-half[i] - o[i]) / d[i], (half[i] - o[i]) / d[i]];
        near = near.max(a.min(b));
        far = far.min(a.max(b));
    }
    if near > far {
        return None;
    }
    Some(if inside { far } else { near }).filter(|range| *range > 0.05)
}

/// What is seen of a room in all directions, in the frame of the sensor, with 5 mm of noise.
fn seen(solids: &[Solid], room_t_sensor: &Rigid, rng: &mut Pcg64Mcg) -> Vec<Point> {
    let origin = Point::from(room_t_sensor.translation.vector);
    let mut points = Vec::new();
    for _ in 0..60_000 {
        let direction = Vector::from_fn(|_, _| rng.random_range(-1.0..1.0));
        let Some(direction) = direction.try_normalize(0.1) else { continue };
        let ranges =
            solids.iter().enumerate().filter_map(|(i, solid)| hit(solid, &origin, &direction, i == 0));
        if let Some(range) = ranges.min_by(f64::total_cmp) {
            let point = origin + direction * (range + rng.random_range(-0.005..0.005));
            points.push(room_t_sensor.inverse_transform_point(&point));
        }
    }
    points
}

fn write_ply(path: &Path, points: &[Point]) {
    let mut text = format!("ply\nformat ascii 1.0\nelement vertex {}\nproperty float x\n", points.len());
    text += "property float y\nproperty float z\nend_header\n";
    for p in points {
        writeln!(text, "{:.4} {:.4} {:.4}", p.x, p.y, p.z).expect("to a string");
    }
    std::fs::write(path, text).expect("written");
}

/// Three rooms, a pair of clouds of each.
fn rooms(folder: &Path) {
    let mut truth = serde_json::Map::new();
    for seed in 1..=3 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let solids = room(&mut rng);
        let mut sensor = |x: f64| {
            let turn = UnitQuaternion::from_scaled_axis(Vector::from_fn(|_, _| rng.random_range(-1.5..1.5)));
            Rigid::from_parts(Translation3::new(x, 0.2 * x, 1.4), turn)
        };
        let (source, target) = (sensor(-0.5), sensor(0.4));
        let name = format!("room_{seed}/pair");
        let at = folder.join(&name);
        std::fs::create_dir_all(&at).expect("a folder");
        write_ply(&at.join("src.ply"), &seen(&solids, &source, &mut rng));
        write_ply(&at.join("dst.ply"), &seen(&solids, &target, &mut rng));
        let rows = target.inv_mul(&source).to_homogeneous().transpose();
        let numbers: Vec<String> = rows.iter().map(f64::to_string).collect();
        std::fs::write(at.join("gt.txt"), numbers.join(" ")).expect("written");
        truth.insert(name, json!({"outdoor": false, "clouds": true}));
    }
    std::fs::write(folder.join("truth.json"), Value::Object(truth).to_string()).expect("written");
}

#[test]
fn pairs_are_right_and_clouds_of_different_rooms_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    rooms(folder.path());
    let report = bench(folder.path(), &["--strangers", "--check"]);
    let totals = &report["totals"];
    let counts = ["pairs", "right", "accepted", "wrong", "strangers", "strangers_accepted"];
    let counts = counts.map(|name| totals[name].as_u64().unwrap_or(99));
    assert_eq!(counts, [3, 3, 3, 0, 6, 0], "{report}");
    for pair in report["pairs"].as_array().expect("a list") {
        assert!(pair["matches"].as_u64() > Some(20) && pair["ms"].as_f64() > Some(0.0), "{pair}");
        assert_eq!(pair["re_deg"].is_null(), pair["strangers"] == true, "{pair}");
    }

    // Rooms of one place are no strangers.
    let report = bench(folder.path(), &["--strangers", "--one-place", "room_1,room_2,room_3"]);
    assert_eq!(report["totals"]["strangers"], 0);

    // The same by hand; nothing is kept beside the target.
    let pair = folder.path().join("room_2/pair");
    let [source, target] = ["src.ply", "dst.ply"].map(|name| pair.join(name).display().to_string());
    let options = ["--pair", "--json", "--set", "map.cache=false", "--set", "backend.kind=cpu"];
    let output = flashreg(&[&["localize", &source, &target], &options[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let numbers = |text: &str| -> Vec<f64> {
        text.split([' ', ',', '[', ']', '\n']).filter_map(|word| word.parse().ok()).collect()
    };
    let found = pose(&numbers(&answer["target_t_source"].to_string()));
    let truth = pose(&numbers(&std::fs::read_to_string(pair.join("gt.txt")).expect("readable")));
    let (angle, distance) = pose_error(&found, &truth);
    assert!(angle < 0.01 && distance < 0.03, "{angle} {distance}");
    let found = flashreg(&["localize", &source, &target, "--pair", "--up", "0,0,1"]);
    assert_eq!(found.status.code(), Some(2));
}

fn pose(numbers: &[f64]) -> Rigid {
    nalgebra::try_convert(Matrix4::from_row_slice(numbers)).expect("a pose")
}

#[test]
fn folders_without_clouds_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = |folder: &Path| {
        let output = flashreg(&["bench", "clouds", folder.to_str().expect("UTF-8")]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(error(folder.path()).contains("truth.json"));
    std::fs::write(folder.path().join("truth.json"), "{}").expect("written");
    assert!(error(folder.path()).contains("no pairs with clouds"));
}

/// All but the one whose clouds share least.
#[test]
fn real_pairs_are_right_and_strangers_are_refused() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/registration");
    let folder = std::env::var_os("FLASHREG_DATA").map_or_else(beside, PathBuf::from);
    if !folder.join("truth.json").is_file() {
        println!("skipped: no data");
        return;
    }
    let kitchen = "geotransformer_demo,predator_redkitchen,regtr_redkitchen,teaser_redkitchen";
    let report = bench(&folder, &["--strangers", "--one-place", kitchen, "--check"]);
    let totals = &report["totals"];
    assert_eq!((&totals["wrong"], &totals["strangers_accepted"]), (&json!(0), &json!(0)), "{totals}");
    assert!(totals["accepted"].as_u64() >= totals["pairs"].as_u64().map(|n| n - 1), "{totals}");
}
