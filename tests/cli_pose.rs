//! `flashreg pose`: kinds, exit codes, and the JSON object that scripts read.

use flashreg::geometry::{Camera, Distortion, Point, Rigid, Vector};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", self.stdout, self.stderr))
    }
}

fn pose(args: &[&str]) -> Run {
    let output =
        Command::new(env!("CARGO_BIN_EXE_flashreg")).arg("pose").args(args).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn write(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

const NUMBERS: &str = "500,500,320,240";
const COEFFICIENTS: [f64; 5] = [-0.2, 0.05, 0.001, -0.001, 0.0];

fn camera(distortion: &Distortion) -> Camera {
    Camera::new([641, 481], [500.0; 2], [320.0, 240.0], distortion).expect("a camera")
}

/// Points before a camera, on a wavy wall.
fn points() -> impl Iterator<Item = Point> {
    (0..90).map(|i| {
        let (x, y) = (f64::from(i % 10) / 4.5 - 1.0, f64::from(i / 10) / 4.0 - 1.0);
        Point::new(1.5 * x, y, 5.0 + f64::from(i * 7 % 11) * 0.3)
    })
}

fn map_t_camera() -> Rigid {
    Rigid::new(Vector::new(1.0, -2.0, 0.5), Vector::new(0.2, -0.1, 0.7))
}

fn is_right(json: &Value) {
    assert_eq!(json["status"], "ok", "{json}");
    let truth = map_t_camera().to_homogeneous();
    for i in 0..3 {
        for j in 0..4 {
            let off = json["target_t_source"][i][j].as_f64().expect("a number") - truth[(i, j)];
            assert!(off.abs() < 1e-3, "{json}");
        }
    }
}

#[test]
fn pixels_give_the_pose_whatever_file_has_the_calibration() {
    let folder = tempfile::tempdir().expect("a folder");
    let camera = camera(&Distortion::PlumbBob(COEFFICIENTS));
    let mut text = String::from("u v tx ty tz id\n");
    for (i, seen) in points().enumerate() {
        let ([u, v], at) = (camera.project(&seen).expect("a pixel"), map_t_camera() * seen);
        // One in ten is wrong.
        let u = if i % 10 == 0 { 639.0 - u } else { u };
        text += &format!("{u} {v} {} {} {} {i}\n", at.x, at.y, at.z);
    }
    text += "nan 3 1 2 3 200\n";
    let file = write(folder.path(), "rows.txt", &text);
    let mask = folder.path().join("mask.txt");
    let distortion = format!("plumb_bob:{}", COEFFICIENTS.map(|k| k.to_string()).join(","));
    let args =
        ["p3p", file.as_str(), "--camera", NUMBERS, "--distortion", distortion.as_str(), "--json", "--mask"];
    let run = pose(&[&args[..], &[mask.to_str().expect("UTF-8")]].concat());
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    is_right(&run.json());
    assert_eq!(run.json()["dropped_rows"]["non_finite"], 1);
    let mask = std::fs::read_to_string(mask).expect("a mask");
    assert_eq!((mask.lines().count(), mask.lines().filter(|l| *l == "1").count()), (91, 81));

    let yaml = "image_width: 641\nimage_height: 481\ncamera_name: front\ncamera_matrix:\n  rows: 3\n  cols: 3\n  \
        data: [500, 0, 320, 0, 500, 240, 0, 0, 1]\ndistortion_model: plumb_bob\ndistortion_coefficients:\n  rows: \
        1\n  cols: 5\n  data: [-0.2, 0.05, 0.001, -0.001, 0.0]\n";
    let calibration = write(folder.path(), "front.yaml", yaml);
    let run = pose(&["p3p", file.as_str(), "--camera", calibration.as_str()]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.starts_with("status       ok\n"), "{}", run.stdout);

    for (args, what) in [
        (vec!["p3p", file.as_str()], "--camera"),
        (vec!["p3p", file.as_str(), "--camera", "1,2,3"], "four numbers"),
        (vec!["p3p", file.as_str(), "--camera", "0,500,320,240"], "calibrat"),
        (vec!["p3p", file.as_str(), "--camera", NUMBERS, "--distortion", "kannala:1"], "kannala"),
        (vec!["vertical", file.as_str(), "--camera", NUMBERS], "--up-source"),
        (vec!["p3p", calibration.as_str(), "--camera", NUMBERS], "front.yaml"),
        (vec!["homography", file.as_str(), "--camera", NUMBERS], "homography"),
    ] {
        let run = pose(&args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stdout);
        assert!(run.stderr.contains(what), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn bearings_and_an_unknown_focal_length_give_the_pose() {
    let folder = tempfile::tempdir().expect("a folder");
    let camera = camera(&Distortion::None);
    let (mut bearings, mut pixels) = (String::new(), String::from("u,v,tx,ty,tz\n"));
    for seen in points() {
        let ([u, v], at) = (camera.project(&seen).expect("a pixel"), map_t_camera() * seen);
        bearings += &format!("{} {} {} {} {} {}\n", seen.x, seen.y, seen.z, at.x, at.y, at.z);
        pixels += &format!("{u},{v},{},{},{}\n", at.x, at.y, at.z);
    }
    let bearings = write(folder.path(), "bearings.txt", &bearings);
    let pixels = write(folder.path(), "pixels.csv", &pixels);
    let up = map_t_camera() * Vector::new(0.0, -1.0, 0.0);
    let up = format!("{},{},{}", up.x, up.y, up.z);
    is_right(&pose(&["pnp", bearings.as_str(), "--bearings", "--json"]).json());
    let vertical = [
        "vertical",
        bearings.as_str(),
        "--bearings",
        "--json",
        "--up-source",
        "0,-1,0",
        "--up-target",
        up.as_str(),
    ];
    is_right(&pose(&vertical).json());
    let run = pose(&["p4p_focal", pixels.as_str(), "--camera", "400,400,320,240", "--json"]);
    is_right(&run.json());
    let focal = run.json()["focal"].as_f64().expect("a focal length");
    assert!((focal - 500.0).abs() < 0.1, "{focal}");
    // Pixels are needed.
    let run = pose(&["p4p_focal", bearings.as_str(), "--bearings", "--json"]);
    assert_eq!((run.code, run.json()["status"].as_str()), (Some(1), Some("bad_input")));
}

#[test]
fn points_are_triangulated_from_views() {
    let folder = tempfile::tempdir().expect("a folder");
    let camera = camera(&Distortion::None);
    let mut rows = String::from("id view u v\n");
    for (id, at) in points().enumerate() {
        for (view, shift) in [(3, 0.0), (7, 0.6)] {
            let [u, v] = camera.project(&(at - Vector::new(shift, 0.0, 0.0))).expect("a pixel");
            rows += &format!("{id} {view} {u} {v}\n");
        }
    }
    rows += "500 3 10 10\n";
    let file = write(folder.path(), "tracks.txt", &rows);
    let views = write(folder.path(), "views.tum", "3 0 0 0 0 0 0 1\n7 0.6 0 0 0 0 0 1\n");
    for solver in ["closed_form", "homotopy"] {
        let args = [
            "triangulate",
            file.as_str(),
            "--camera",
            NUMBERS,
            "--views",
            views.as_str(),
            "--solver",
            solver,
            "--json",
        ];
        let run = pose(&args);
        let json = run.json();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!((json["ok"].as_u64(), json["single_views"].as_u64()), (Some(90), Some(1)), "{solver}");
        for (point, truth) in json["points"].as_array().expect("points").iter().zip(points()) {
            let off = (0..3).map(|k| point["point"][k].as_f64().expect("a number") - truth[k]);
            assert!(off.map(f64::abs).fold(0.0, f64::max) < 1e-6, "{point}");
        }
    }
    let missing = write(folder.path(), "other.tum", "3 0 0 0 0 0 0 1\n");
    let run = pose(&["triangulate", file.as_str(), "--camera", NUMBERS, "--views", missing.as_str()]);
    assert!(run.code == Some(2) && run.stderr.contains("no view 7"), "{}", run.stderr);
}
