//! `flashreg bench`: its tables, its JSON object, and what it refuses.

use flashreg::registration::StageTimes;
use serde_json::Value;
use std::process::{Command, Output};

fn bench(args: &str) -> Output {
    let args = args.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_flashreg")).arg("bench").args(args).output().expect("it runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn json(args: &str) -> Value {
    let output = bench(args);
    assert!(output.status.success(), "{args}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stdout)))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// 40 right rows in 100.
fn write_rows(path: &std::path::Path) {
    let mut rng: rand_pcg::Pcg64Mcg = rand::SeedableRng::seed_from_u64(1);
    use flashreg::simulate::planted::{planted, random_pose, ROOM};
    let pose = random_pose(&mut rng, 3.0);
    let rows = planted(&mut rng, 100, 40, ROOM, 0.004, &pose);
    let line = |r: &flashreg::registration::Correspondence| {
        let (s, t) = (r.source, r.target);
        format!("{} {} {} {} {} {}\n", s.x, s.y, s.z, t.x, t.y, t.z)
    };
    std::fs::write(path, rows.iter().map(line).collect::<String>()).expect("a file");
}

#[test]
fn the_json_object_has_every_stage_and_its_numbers_fit_together() {
    let report =
        json("--n 300,900 --frames 40 --inlier-rate 0.2 --backend cpu --set backend.threads=1 --json -");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&report["backend"], &report["threads"]), (&"cpu".into(), &1.into()));
    assert!(report["backend_why"].as_str().is_some_and(|why| !why.is_empty()));
    assert_eq!((&report["pivots"], &report["triples_per_pivot"]), (&1000.into(), &2.into()));
    let lines = report["lines"].as_array().expect("lines");
    assert_eq!(lines.iter().map(|l| l["n"].as_u64()).collect::<Vec<_>>(), [Some(300), Some(900)]);
    let mut names = StageTimes::NAMES;
    names.sort_unstable();
    for line in lines {
        let n = number(&line["n"]);
        assert_eq!(line["preset"], "indoor");
        assert_eq!(line["statuses"], serde_json::json!({ "ok": 40 }));
        // A fifth of the rows agree with each other; few others do.
        let density = number(&line["density"]);
        assert!((0.03..0.1).contains(&density), "{density}");
        assert!((number(&line["edges"]) - density * n * (n - 1.0) / 2.0).abs() < 1.0);
        assert_eq!(keys(&line["stages_us"]), names);
        let mut sum = 0.0;
        for series in line["stages_us"].as_object().expect("stages").values().chain([&line["ms"]]) {
            let [p50, p95, p99, max] = ["p50", "p95", "p99", "max"].map(|key| number(&series[key]));
            assert!(0.0 < p50 && p50 <= p95 && p95 <= p99 && p99 <= max, "{series}");
            sum += p50;
        }
        // All but the last are stages, which are parts of the whole.
        let whole = number(&line["ms"]["p50"]);
        let stages = (sum - whole) * 1e-3;
        assert!((0.5 * whole..1.5 * whole).contains(&stages), "stages {stages} ms, whole {whole} ms");
    }
    assert!(number(&lines[1]["ms"]["p50"]) > number(&lines[0]["ms"]["p50"]));
}

#[test]
fn the_inputs_differ_from_frame_to_frame_and_not_from_run_to_run() {
    let edges = |args: &str| {
        let report = json(&format!("--n 200 --backend cpu --json - {args}"));
        number(&report["lines"][0]["edges"])
    };
    let one = edges("--frames 1");
    let sixteen = edges("--frames 16");
    assert_eq!(sixteen, edges("--frames 16"));
    assert_ne!(one, sixteen);
    assert_ne!(one, edges("--frames 1 --seed 2"));
}

#[test]
fn batches_are_measured_beside_one_after_another() {
    let report = json("--n 200,400 --frames 20 --batch 1,5 --backend cpu --set backend.batch=3 --json -");
    assert_eq!((&report["batch"], &report["memory"]), (&3.into(), &Value::Null));
    for line in report["lines"].as_array().expect("lines") {
        let batches = line["batches"].as_array().expect("batches");
        assert_eq!(batches.iter().map(|b| b["problems"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(5)]);
        for batch in batches {
            let [p50, p99, max] = ["p50", "p99", "max"].map(|key| number(&batch["ms"][key]));
            assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{batch}");
            // Twenty submissions of which each takes at most the longest.
            let least = number(&batch["problems"]) / (max * 1e-3);
            assert!(number(&batch["per_second"]) >= least, "{batch}");
        }
        // On the CPU they run one after another.
        let [one, five] = [0, 1].map(|i| number(&batches[i]["ms"]["p50"]));
        assert!((2.0..12.0).contains(&(five / one)), "{one} ms and {five} ms");
        let rate = number(&line["per_second"]) * number(&line["ms"]["p50"]) * 1e-3;
        assert!((0.2..1.5).contains(&rate), "{rate}");
    }
    let output = bench("--n 200 --frames 3 --batch 4 --backend cpu");
    let printed = text(&output.stdout);
    let table: Vec<_> = printed.lines().skip_while(|line| !line.starts_with("batches ")).collect();
    assert_eq!(table.len(), 2, "{printed}");
}

#[test]
fn files_get_a_line_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    write_rows(&place("hall.txt"));
    write_rows(&place("yard.txt"));
    let path = |name: &str| place(name).display().to_string();
    let (hall, yard, report) = (path("hall.txt"), path("yard.txt"), path("report.json"));
    let output = bench(&format!("--file {hall} {yard} --frames 3 --backend cpu --json {report}"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = std::fs::read_to_string(place("report.json")).expect("the report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let lines: Vec<_> = report["lines"].as_array().expect("lines").iter().collect();
    let told = |key: &str| lines.iter().map(|l| l[key].to_string()).collect::<Vec<_>>();
    assert_eq!(told("problem"), [r#""hall""#, r#""yard""#]);
    assert_eq!(told("n"), ["100", "100"]);

    // The tables: one line for each, above its stages.
    let printed = text(&output.stdout);
    for name in ["hall ", "yard "] {
        assert_eq!(printed.lines().filter(|l| l.starts_with(name)).count(), 2, "{printed}");
    }
    let stages = printed.lines().find(|l| l.starts_with("stages")).expect("a table of stages");
    assert!(StageTimes::NAMES.iter().all(|name| stages.contains(name)), "{stages}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    for (args, part) in [
        ("--n 2", "--n 2: from 3 to registration.max_correspondences = 16384"),
        ("--n 20000", "--n 20000: from 3 to registration.max_correspondences = 16384"),
        ("--n 100,x", "'x'"),
        ("--frames 0", "'--frames <FRAMES>'"),
        ("--batch 0", "'--batch <M,...>'"),
        ("--inlier-rate 1.5", "--inlier-rate 1.5: a share from 0 to 1"),
        ("--inlier-rate NaN", "a share from 0 to 1"),
        ("--backend gpu", "auto, cuda, cpu"),
        ("--preset space", "indoor, outdoor"),
        ("--set registration.tau=-1", "registration.tau"),
        ("--file no-such-file.txt", "cannot read no-such-file.txt"),
        ("--n 50 --frames 1 --backend cpu --json no-such-folder/x.json", "no-such-folder/x.json"),
    ] {
        let output = bench(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {error}");
        assert!(error.contains(part) && !error.contains("panicked"), "{args}: {error}");
    }
}
