//! `flashreg register`: every format, every exit code, and the JSON object that scripts read.

use flashreg::geometry::{Point, Rigid, Vector};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// The one JSON object on stdout.
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

fn register(args: &[&str]) -> Run {
    let output =
        Command::new(env!("CARGO_BIN_EXE_flashreg")).arg("register").args(args).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// 120 right correspondences under a pose, with 2 mm of noise, and 280 wrong ones, in turn.
fn problem() -> (Vec<[f64; 6]>, Rigid) {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let truth = Rigid::new(Vector::new(1.0, -2.0, 0.5), Vector::new(0.1, -0.2, 1.3));
    let mut point = || {
        Point::new(
            random.random_range(-5.0..5.0),
            random.random_range(-4.0..4.0),
            random.random_range(0.0..3.0),
        )
    };
    let mut rows = Vec::new();
    for i in 0..400 {
        let (source, other, noise) = (point(), point(), point().coords * 4e-4);
        let target = if i % 10 < 3 { truth * source + noise } else { truth * other };
        rows.push([source.x, source.y, source.z, target.x, target.y, target.z]);
    }
    (rows, truth)
}

fn lines(rows: &[[f64; 6]], separator: &str) -> String {
    rows.iter().map(|r| r.map(|v| v.to_string()).join(separator) + "\n").collect()
}

fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("a file");
    let path = path.to_str().expect("UTF-8").to_owned();
    (folder, path)
}

fn matrix(value: &Value) -> Vec<f64> {
    let rows = value.as_array().expect("rows");
    rows.iter()
        .flat_map(|r| r.as_array().expect("a row").iter().map(|v| v.as_f64().expect("a number")))
        .collect()
}

#[test]
fn text_csv_and_npy_give_the_pose_and_exit_code_0() {
    let (rows, truth) = problem();
    let mut npy = b"\x93NUMPY\x01\x00".to_vec();
    let header = format!(
        "{:<117}\n",
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}, 6), }}", rows.len())
    );
    npy.extend((header.len() as u16).to_le_bytes());
    npy.extend(header.as_bytes());
    npy.extend(rows.iter().flatten().flat_map(|v| v.to_le_bytes()));
    for (name, content) in [
        ("a.txt", lines(&rows, " ").into_bytes()),
        ("a.tsv", lines(&rows, "\t").into_bytes()),
        ("a.csv", format!("sx,sy,sz,tx,ty,tz\n{}", lines(&rows, ",")).into_bytes()),
        ("b.csv", lines(&rows, ";").into_bytes()),
        ("a.npy", npy),
    ] {
        let (_folder, path) = file(name, content);
        let run = register(&[&path, "--json"]);
        let json = run.json();
        assert_eq!((run.code, &json["status"]), (Some(0), &"ok".into()), "{name}: {json}");
        assert_eq!((run.stdout.trim().lines().count(), run.stderr.as_str()), (1, ""));
        let found = matrix(&json["target_t_source"]);
        for (i, value) in found.iter().enumerate() {
            assert!((value - truth.to_homogeneous()[(i / 4, i % 4)]).abs() < 5e-3, "{name}: entry {i}");
        }
        assert_eq!((found.len(), matrix(&json["covariance"]).len()), (16, 36));
        let inliers = json["inliers"].as_u64().expect("a number");
        assert!((118..=135).contains(&inliers), "{inliers}");
        assert_eq!(json["correspondences"], 400);
        assert!(json["margin"].as_f64().is_some_and(|m| m > 0.5));
        assert!(json["ms"].as_f64().is_some_and(|ms| ms > 0.0));
        assert!(json["log10_false_alarms"].as_f64().is_some_and(|v| v < -6.0));
        assert!(["cpu", "cuda"].contains(&json["backend"].as_str().expect("a name")));
        for key in [
            "reason",
            "dropped_rows",
            "score",
            "spread",
            "runner_up",
            "stages_us",
            "truncation",
            "edges",
            "pivots",
            "triples",
            "backend_why",
            "independent_inliers",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
    }
}

#[test]
fn for_people_it_prints_pose_status_and_time() {
    let (rows, _) = problem();
    let (_folder, path) = file("a.txt", lines(&rows, " "));
    let run = register(&[&path]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for part in [
        "status       ok",
        "target_t_source\n",
        "translation",
        "quaternion",
        "roll pitch yaw",
        "std dev",
        "inliers",
        "margin",
        "fog",
        "backend",
    ] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
}

#[test]
fn rows_that_are_not_usable_are_dropped_and_counted() {
    let (rows, _) = problem();
    let text = format!("nan 0 0 0 0 0\n{}0 0 inf 0 0 0\n", lines(&rows, " "));
    let (_folder, path) = file("a.txt", text);
    let run = register(&[&path, "--json"]);
    assert_eq!((run.code, &run.json()["dropped_rows"]["non_finite"]), (Some(0), &2.into()));
    let weighted: String =
        rows.iter().enumerate().map(|(i, r)| format!("{} {}\n", lines(&[*r], " ").trim(), i % 2)).collect();
    let (_folder, path) = file("b.txt", weighted);
    let json = register(&[&path, "--json"]).json();
    assert_eq!((&json["dropped_rows"]["weight"], &json["correspondences"]), (&200.into(), &200.into()));
}

#[test]
fn no_pose_to_trust_is_exit_code_1_with_a_reason() {
    let (rows, _) = problem();
    let mut shuffled = rows.clone();
    for (i, row) in shuffled.iter_mut().enumerate() {
        row[3..].copy_from_slice(&rows[(i * 7 + 101) % rows.len()][3..]);
    }
    let line: Vec<[f64; 6]> =
        (0..60).map(|i| f64::from(i) * 0.2).map(|x| [x, 0.0, 0.0, x, 1.0, 0.0]).collect();
    for (name, rows, expected) in [
        ("shuffled", &shuffled[..], &["low_inliers", "degenerate", "ambiguous"][..]),
        ("line", &line[..], &["degenerate"][..]),
        ("two", &rows[..2], &["too_few"][..]),
        ("same", &[rows[0]; 50][..], &["degenerate"][..]),
    ] {
        let (_folder, path) = file("a.txt", lines(rows, " "));
        let run = register(&[&path, "--json"]);
        let json = run.json();
        assert_eq!(run.code, Some(1), "{name}: {json}");
        assert!(expected.contains(&json["status"].as_str().expect("a word")), "{name}: {json}");
        assert!(!json["reason"].as_str().expect("a text").is_empty(), "{name}: {json}");
    }
    let (_folder, path) = file("a.txt", lines(&rows[..2], " "));
    let json = register(&[&path, "--json"]).json();
    assert_eq!((&json["target_t_source"], &json["reason"]), (&Value::Null, &"too_few:2<3".into()));
    let run = register(&[&path]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.starts_with("status       too_few\nreason       too_few:2<3\n"), "{}", run.stdout);
}

#[test]
fn all_rows_dropped_is_too_few_and_not_an_error() {
    let (_folder, path) = file("a.txt", "nan 0 0 0 0 0\n");
    let run = register(&[&path, "--json"]);
    assert_eq!((run.code, &run.json()["status"]), (Some(1), &"too_few".into()));
}

#[test]
fn what_cannot_be_read_is_exit_code_2_and_bad_input() {
    let (rows, _) = problem();
    let (folder, good) = file("a.txt", lines(&rows, " "));
    let put = |name: &str, content: &[u8]| -> String {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, content).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let folder_itself = folder.path().to_str().expect("UTF-8").to_owned();
    let binary: Vec<u8> = (0..2000u32).map(|i| (i * 37 % 251) as u8).collect();
    for (args, part) in [
        (vec![put("empty.txt", b"")], "no correspondences"),
        (vec![put("comment.txt", b"# nothing\n")], "no correspondences"),
        (vec![put("short.txt", b"1 2 3 4 5\n")], "5 columns"),
        (vec![put("word.txt", b"1 2 3 4 5 6\n1 2 3 4 5 six\n")], "line 2, column 11"),
        (vec![put("binary.bin", &binary)], "line 1"),
        (vec![put("cut.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr'")], "npy"),
        (vec![folder_itself], "cannot read"),
        (vec!["/no/such/file.txt".into()], "/no/such/file.txt"),
        (vec![good.clone(), "--set".into(), "registration.tao=1".into()], "did you mean 'registration.tau'"),
        (vec![good.clone(), "--set".into(), "registration.tau".into()], "name=value"),
        (vec![good.clone(), "--set".into(), "registration.tau=-1".into()], "out of range"),
        (vec![good.clone(), "--set".into(), "registration.tau=wide".into()], "must be of type number"),
        (vec![good.clone(), "--params".into(), "/no/such.yaml".into()], "/no/such.yaml"),
        (vec![good.clone(), "--params".into(), put("bad.yaml", b"registration: [1, 2]\n")], "bad.yaml"),
        (vec![good.clone(), "--up-source=0,0,0".into(), "--up-target=0,0,1".into()], "length"),
        (vec![good.clone(), "--up-source=0,0".into(), "--up-target=0,0,1".into()], "three numbers"),
        (vec![good.clone(), "--up-source=0,0,1".into()], "--up-target"),
        (vec![good.clone(), "--preset".into(), "underwater".into()], "underwater"),
        (vec![good.clone(), "--mask".into(), "/no/such/folder/mask".into()], "/no/such/folder/mask"),
        (vec![good.clone(), "--frobnicate".into()], "--frobnicate"),
        (vec![], "<FILE>"),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--json"]).collect();
        let run = register(&args);
        assert_eq!(run.code, Some(2), "{args:?}: {} {}", run.stdout, run.stderr);
        let json = run.json();
        assert_eq!(
            (&json["status"], &json["target_t_source"]),
            (&"bad_input".into(), &Value::Null),
            "{args:?}"
        );
        assert!(json["reason"].as_str().expect("a text").contains(part), "{args:?}: {json}");
        assert!(run.stderr.contains(part) && !run.stderr.contains("panicked"), "{args:?}: {}", run.stderr);
        let plain = register(&args[..args.len() - 1]);
        assert_eq!((plain.code, plain.stdout.as_str()), (Some(2), ""), "{args:?}");
    }
}

#[test]
fn settings_are_applied_after_files_and_files_after_the_preset() {
    let (rows, _) = problem();
    let (folder, path) = file("a.txt", lines(&rows, " "));
    let yaml = folder.path().join("p.yaml");
    std::fs::write(&yaml, "/**:\n  ros__parameters:\n    registration:\n      max_correspondences: 50\n")
        .expect("a file");
    let yaml = yaml.to_str().expect("UTF-8");
    let truncated = |args: &[&str]| {
        register(&[&[path.as_str(), "--json"], args].concat()).json()["dropped_rows"]["truncated"].clone()
    };
    assert_eq!(truncated(&[]), 0);
    assert_eq!(truncated(&["--params", yaml]), 350);
    assert_eq!(truncated(&["--params", yaml, "--set", "registration.max_correspondences=390"]), 10);
    // Two settings that are only valid together.
    let together =
        ["--set", "registration.triples_per_pivot=6", "--set", "registration.bounded_thread_candidates=8"];
    assert_eq!(truncated(&together), 0);
    let edges = |preset: &str| register(&[&path, "--json", "--preset", preset]).json()["edges"].as_u64();
    assert!(edges("outdoor") > edges("indoor"), "a wider tolerance connects more");
}

#[test]
fn the_mask_has_a_line_for_each_row_of_the_file() {
    let (rows, truth) = problem();
    let text = format!("nan 0 0 0 0 0\n{}", lines(&rows, " "));
    let (folder, path) = file("a.txt", text);
    let mask = folder.path().join("mask.txt");
    let read = |args: &[&str]| -> Vec<bool> {
        let run = register(&[&[path.as_str(), "--mask", mask.to_str().expect("UTF-8")], args].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let text = std::fs::read_to_string(Path::new(&mask)).expect("a mask");
        text.lines().map(|l| l == "1").collect()
    };
    let full = read(&[]);
    assert_eq!((full.len(), full[0]), (401, false));
    for (inlier, row) in full[1..].iter().zip(&rows) {
        let residual =
            (truth * Point::new(row[0], row[1], row[2]) - Point::new(row[3], row[4], row[5])).norm();
        assert!(*inlier || residual > 0.08, "{residual}");
        assert!(!*inlier || residual < 0.12, "{residual}");
    }
    // Of equal weights the first rows are kept.
    let cut = read(&["--set", "registration.max_correspondences=200"]);
    assert_eq!(cut.len(), 401);
    assert!(cut[201..].iter().all(|inlier| !inlier) && cut[..201].iter().any(|inlier| *inlier));
}

#[test]
fn the_direction_of_up_is_taken() {
    let (rows, truth) = problem();
    let (_folder, path) = file("a.txt", lines(&rows, " "));
    let up = truth.inverse_transform_vector(&Vector::z());
    let up = format!("--up-source={},{},{}", up.x, up.y, up.z);
    let run = register(&[&path, "--json", &up, "--up-target=0,0,1"]);
    assert_eq!((run.code, &run.json()["status"]), (Some(0), &"ok".into()), "{}", run.stdout);
}
