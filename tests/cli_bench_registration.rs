//! `flashreg bench registration`: the layouts of folders, recall and errors, and what it refuses.

use flashreg::geometry::Rigid;
use flashreg::registration::Correspondence;
use flashreg::simulate::planted::{planted, random_pose, ROOM};
use nalgebra::{Translation3, Vector3};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn bench(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashreg"));
    command.args(["bench", "registration"]).arg(folder);
    command.args(["--backend", "cpu"]).args(args.split_whitespace()).output().expect("it runs")
}

fn json(folder: &Path, args: &str) -> Value {
    let output = bench(folder, &format!("--json - {args}"));
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn write(path: PathBuf, text: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

fn matrix(pose: &Rigid) -> String {
    let rows = pose.to_homogeneous();
    let row = |i: usize| (0..4).map(|j| rows[(i, j)].to_string()).collect::<Vec<_>>().join("\t");
    (0..4).map(|i| row(i) + "\n").collect()
}

/// Rows of a pose of their own, 60 of 150 right, and the pose.
fn rows(seed: u64) -> (String, Rigid) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let pose = random_pose(&mut rng, 3.0);
    let line = |r: &Correspondence| {
        let (s, t) = (r.source, r.target);
        format!("{} {} {} {} {} {}\n", s.x, s.y, s.z, t.x, t.y, t.z)
    };
    (planted(&mut rng, 150, 60, ROOM, 0.004, &pose).iter().map(line).collect(), pose)
}

/// Two scenes as 3DMatch has them. The truth of the pair 0 2 of the second is 0.5 m off, and the rows of
/// 1 2 follow nothing.
fn logs(folder: &Path) {
    for (scene, names) in [("kitchen", "cloud_bin_{i}+cloud_bin_{j}@corr.txt"), ("hotel", "corr_{i}_{j}.csv")]
    {
        let mut log = String::new();
        for (k, (i, j)) in [(0, 1), (0, 2), (1, 2)].into_iter().enumerate() {
            let (text, mut pose) = rows(10 * k as u64 + scene.len() as u64);
            let text = match (scene, k) {
                ("hotel", 1) => {
                    pose = Translation3::from(Vector3::new(0.5, 0.0, 0.0)) * pose;
                    text
                }
                ("hotel", 2) => text
                    .lines()
                    .map(|line| {
                        let mut numbers: Vec<f64> =
                            line.split(' ').map(|v| v.parse().expect("a number")).collect();
                        // Each by another distance, far apart.
                        numbers[5] += 7.0 * (numbers[0] * 1e3).fract();
                        numbers[4] += 9.0 * (numbers[1] * 1e3).fract();
                        numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ") + "\n"
                    })
                    .collect(),
                _ => text,
            };
            let text = if scene == "hotel" { text.replace(' ', ",") } else { text };
            let name = names.replace("{i}", &i.to_string()).replace("{j}", &j.to_string());
            write(folder.join(scene).join(name), text);
            log += &format!("{i}\t{j}\t3\n{}", matrix(&pose));
        }
        write(folder.join(scene).join("gt.log"), log);
    }
}

fn line<'a>(report: &'a Value, set: &str) -> &'a Value {
    let lines = report["lines"].as_array().expect("lines");
    lines.iter().find(|l| l["set"].as_str().is_some_and(|s| s.starts_with(set))).expect("a line")
}

#[test]
fn logs_of_3dmatch_give_recall_and_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    logs(folder.path());
    let csv = folder.path().join("pairs.csv");
    let report = json(folder.path(), &format!("--csv {}", csv.display()));
    let told = |set: &str, key: &str| line(&report, set)[key].as_f64().expect("a number");
    assert_eq!(["kitchen", "hotel", "all"].map(|set| told(set, "pairs")), [3.0, 3.0, 6.0]);
    assert_eq!(told("kitchen", "recall"), 1.0);
    assert_eq!(told("hotel", "recall"), 1.0 / 3.0);
    assert_eq!(told("all", "recall"), 4.0 / 6.0);
    assert!(line(&report, "all")["set"].as_str().is_some_and(|s| s.contains("mean of the sets 66.67 %")));
    assert_eq!((told("kitchen", "trusted"), told("kitchen", "wrong")), (1.0, 0.0));
    // The pair with a false truth looks wrong; of the one without a pose nothing is trusted.
    assert_eq!(told("hotel", "wrong"), 1.0);
    let errors = told("kitchen", "re_deg");
    assert!(errors > 0.0 && errors < 0.3 && told("kitchen", "te_m") < 0.005, "{errors}");
    let pairs = report["pairs"].as_array().expect("pairs");
    let off = pairs.iter().find(|p| p["set"] == "hotel" && p["pair"] == "0 2").expect("the pair");
    assert!((off["te_m"].as_f64().expect("a number") - 0.5).abs() < 0.01, "{off}");

    let rows: Vec<String> = std::fs::read_to_string(csv).expect("CSV").lines().map(str::to_owned).collect();
    assert_eq!((rows.len(), rows[0].as_str()), (7, "set,pair,n,status,re_deg,te_m,ms"));
    assert!(rows[1].starts_with("hotel,0 1,150,ok,"), "{}", rows[1]);
    // A wider limit makes it right; the matrix the other way round makes all wrong.
    let wide = json(folder.path(), "--limit 15,0.6");
    assert_eq!(line(&wide, "hotel")["recall"].as_f64(), Some(2.0 / 3.0));
    let forward = json(folder.path(), "--forward");
    assert_eq!(line(&forward, "kitchen")["recall"].as_f64(), Some(0.0));
    // The same whether side by side or one by one, but for the times.
    let errors = |report: &Value| -> Vec<Value> {
        report["pairs"].as_array().expect("pairs").iter().map(|p| p["re_deg"].clone()).collect()
    };
    assert_eq!(errors(&report), errors(&json(folder.path(), "--jobs 1 --repeat 2")));
    assert_eq!(errors(&report), errors(&json(folder.path(), "--jobs 4")));
}

#[test]
fn a_folder_of_kitti_has_two_limits_and_one_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let scale = |text: String| -> String {
        // Ten times as large: a street.
        let line = |line: &str| {
            let of = |v: &str| (10.0 * v.parse::<f64>().expect("a number")).to_string();
            line.split(' ').map(of).collect::<Vec<_>>().join(" ") + "\n"
        };
        text.lines().map(line).collect()
    };
    let (text, mut pose) = rows(5);
    pose.translation.vector = pose.translation.vector * 10.0 + Vector3::new(0.0, 1.0, 0.0);
    write(folder.path().join("8_19.txt"), scale(text));
    write(folder.path().join("gt.log"), format!("8 19\n{}", matrix(&pose)));
    let report = json(folder.path(), "--preset outdoor");
    let lines = report["lines"].as_array().expect("lines");
    let told: Vec<_> = lines.iter().map(|l| (l["limit"]["metres"].as_f64(), l["recall"].as_f64())).collect();
    assert_eq!(told, [(Some(0.6), Some(0.0)), (Some(2.0), Some(1.0))]);
    let printed = bench(folder.path(), "--preset outdoor");
    let printed = String::from_utf8_lossy(&printed.stdout);
    assert!(printed.contains("5 deg 0.6 m") && printed.contains("5 deg 2 m"), "{printed}");
}

#[test]
fn a_folder_with_truth_json_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (text, pose) = rows(1);
    write(folder.path().join("hall/3_7/corr_plain.txt"), text);
    write(folder.path().join("hall/3_7/gt.txt"), matrix(&pose));
    let truth =
        r#"{"hall/3_7": {"outdoor": false, "max_rotation_deg": 15, "correspondences": {"plain": {}}}}"#;
    write(folder.path().join("truth.json"), truth);
    let report = json(folder.path(), "");
    assert_eq!(report["pairs"][0]["pair"], "hall/3_7 plain");
    assert_eq!(
        (&report["pairs"][0]["status"], line(&report, "hall")["recall"].as_f64()),
        (&"ok".into(), Some(1.0))
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |name: &str, args: &str, part: &str| {
        let output = bench(&folder.path().join(name), args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        assert!(error.contains(part) && !error.contains("panicked"), "{name}: {error}");
    };
    let (text, pose) = rows(1);
    let good = matrix(&pose);
    for (name, log, file, part) in [
        ("empty", "", "0_1.txt", "no pairs in it"),
        ("nothing", "0 1 2\n", "0_1.txt", "not 0 numbers"),
        ("word", "zero one\n", "0_1.txt", "gt.log, pair 1: 'zero one' names no pair"),
        ("missing", format!("0 1\n{good}").as_str(), "0_2.txt", "0 files with the numbers 0 and 1"),
        ("scaled", "0 1\n2 0 0 0\n0 2 0 0\n0 0 2 0\n0 0 0 1\n", "0_1.txt", "holds no rotation"),
        ("mirror", "0 1\n1 0 0 0\n0 1 0 0\n0 0 -1 0\n0 0 0 1\n", "0_1.txt", "holds no rotation"),
        ("nan", "0 1\n1 0 0 NaN\n0 1 0 0\n0 0 1 0\n0 0 0 1\n", "0_1.txt", "4 x 4 finite numbers"),
    ] {
        write(folder.path().join(name).join("gt.log"), log);
        write(folder.path().join(name).join(file), &text);
        refused(name, "", part);
    }
    write(folder.path().join("two/gt.log"), format!("0 1\n{good}"));
    write(folder.path().join("two/0_1.txt"), &text);
    write(folder.path().join("two/0_1.csv"), &text);
    refused("two", "", "2 files with the numbers 0 and 1");
    refused("no-such-folder", "", "no-such-folder");
    refused("two", "--limit 5", "two numbers above zero");
    write(folder.path().join("bare/readme.txt"), "nothing");
    refused("bare", "", "neither truth.json nor gt.log");
    write(folder.path().join("broken/gt.log"), format!("0 1\n{good}"));
    write(folder.path().join("broken/0_1.txt"), "a b\nc d\n");
    refused("broken", "--jobs 2", "broken/0_1.txt");
}
