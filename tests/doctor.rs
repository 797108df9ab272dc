//! `flashreg doctor`: the exit code says whether the node can run, and every lack has advice.

use serde_json::Value;
use std::process::Command;

struct Run {
    code: Option<i32>,
    report: Value,
}

/// Runs the doctor with these variables and no others that speak of ROS.
fn doctor(variables: &[(&str, &str)], args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashreg"));
    command.arg("doctor").arg("--json").args(args);
    for name in [
        "ROS_DISTRO",
        "AMENT_PREFIX_PATH",
        "LD_LIBRARY_PATH",
        "RMW_IMPLEMENTATION",
        "ROS_DOMAIN_ID",
        "ROS_LOG_DIR",
        "ROS_HOME",
    ] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().expect("the doctor starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    Run { code: output.status.code(), report }
}

impl Run {
    fn check(&self, name: &str) -> &Value {
        let checks = self.report["checks"].as_array().expect("a list of checks");
        checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no check '{name}'"))
    }
}

/// A folder that looks like a ROS installation.
fn fake_ros() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("lib")).expect("a folder");
    for name in ["librcl.so", "librmw_fastrtps_cpp.so"] {
        std::fs::write(folder.path().join("lib").join(name), "").expect("a file");
    }
    folder
}

#[test]
fn without_ros_the_node_cannot_run_and_the_advice_is_to_source_it() {
    let run = doctor(&[], &[]);
    assert_eq!((run.code, &run.report["ok"]), (Some(1), &Value::Bool(false)));
    let check = run.check("ROS client library");
    assert_eq!(check["state"], "problem");
    assert!(check["advice"].as_str().unwrap_or_default().contains("setup.sh"), "{check}");
}

#[test]
fn with_ros_the_node_can_run_with_or_without_a_gpu() {
    let ros = fake_ros();
    let prefix = ros.path().to_str().expect("UTF-8");
    let run = doctor(
        &[("AMENT_PREFIX_PATH", prefix), ("ROS_DISTRO", "jazzy"), ("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp")],
        &[],
    );
    assert_eq!((run.code, &run.report["ok"]), (Some(0), &Value::Bool(true)), "{}", run.report);
    assert_eq!(run.check("ROS distribution")["found"], "jazzy");
    for name in ["NVIDIA driver", "CUDA compiler", "backend", "processor", "network"] {
        assert_ne!(run.check(name)["state"], "problem", "{name}");
        assert!(!run.check(name)["found"].as_str().unwrap_or_default().is_empty(), "{name}");
    }
}

#[test]
fn a_middleware_that_is_not_there_and_a_wrong_domain_are_problems() {
    let ros = fake_ros();
    let prefix = ros.path().to_str().expect("UTF-8");
    let run = doctor(
        &[
            ("AMENT_PREFIX_PATH", prefix),
            ("RMW_IMPLEMENTATION", "rmw_cyclonedds_cpp"),
            ("ROS_DOMAIN_ID", "many"),
        ],
        &[],
    );
    assert_eq!(run.code, Some(1));
    assert_eq!(run.check("ROS middleware")["state"], "problem");
    assert_eq!(run.check("ROS domain")["state"], "problem");
}

#[test]
fn a_misspelt_parameter_is_a_problem_and_the_nearest_name_is_told() {
    let ros = fake_ros();
    let prefix = ros.path().to_str().expect("UTF-8");
    let good = ros.path().join("good.yaml");
    let bad = ros.path().join("bad.yaml");
    std::fs::write(&good, "registration:\n  tau: 0.02\n").expect("a file");
    std::fs::write(&bad, "/**:\n  ros__parameters:\n    registration:\n      pivts: 10\n").expect("a file");
    let check = |file: &std::path::Path| {
        doctor(&[("AMENT_PREFIX_PATH", prefix)], &["--config", file.to_str().expect("UTF-8")])
    };
    assert_eq!(check(&good).code, Some(0));
    let run = check(&bad);
    let found = run.check("parameter file")["found"].as_str().unwrap_or_default().to_owned();
    assert_eq!(run.code, Some(1));
    assert!(found.contains("pivts") && found.contains("'registration.pivots'"), "{found}");
    let missing = check(&ros.path().join("none.yaml"));
    assert_eq!((missing.code, &missing.check("parameter file")["state"]), (Some(1), &"problem".into()));
}

#[test]
fn every_lack_comes_with_advice() {
    let run = doctor(&[("RMW_IMPLEMENTATION", "rmw_none"), ("ROS_DOMAIN_ID", "-1")], &[]);
    for check in run.report["checks"].as_array().expect("a list of checks") {
        let advised = !check["advice"].as_str().unwrap_or_default().is_empty();
        assert_eq!(advised, check["state"] != "ok", "{check}");
    }
}
