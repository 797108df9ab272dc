//! The localizer in simulated places, a few drives of each kind, as `flashreg bench localization` makes them.
//! `FLASHREG_STARTS` asks for more unknown starts, `FLASHREG_SECONDS` for longer drives.

use serde_json::Value;
use std::process::{Command, Output};

fn asked(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn bench(tables: &[&str], starts: &str, more: &[&str]) -> Output {
    let tables = tables.iter().flat_map(|table| ["--table", table]);
    let (starts, seconds) = (asked("FLASHREG_STARTS", starts), asked("FLASHREG_SECONDS", "5"));
    let counts = ["--starts", &starts, "--seconds", &seconds];
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashreg"));
    command.args(["bench", "localization"]).args(tables).args(counts).args(more);
    command.output().expect("it runs")
}

fn rows(tables: &[&str], starts: &str, part: &str) -> Vec<Value> {
    let output = bench(tables, starts, &["--part", part, "--json", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["rows"].as_array().expect("rows").clone()
}

fn count(row: &Value, pointer: &str) -> u64 {
    row.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {row}"))
}

#[test]
fn unknown_starts_are_localized_and_never_wrong() {
    for row in rows(&["starts"], "3", "1/1") {
        assert_eq!(count(&row, "/starts/wrong"), 0, "{row}");
        assert!(count(&row, "/starts/count") >= 3, "{row}");
        assert_eq!(row["passed"], true, "{row}");
    }
}

#[test]
fn what_cannot_be_localized_is_refused() {
    // Of one start a line: those of another place and of mirrored maps.
    let rows = rows(&["refusals"], "1", "1/3");
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(count(&row, "/starts/count") >= 1, "{row}");
        assert_eq!(count(&row, "/starts/count"), count(&row, "/starts/never"), "{row}");
    }
}

#[test]
fn the_commands_of_a_case_are_told() {
    let output = bench(&["twins"], "20", &["--commands"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len() % 2, 0, "{text}");
    assert!(lines
        .first()
        .is_some_and(|line| line.starts_with("flashreg simulate --scene building --seed 1")));
    assert!(lines.iter().skip(1).step_by(2).all(|line| line.contains("--restart-every 1.5")), "{text}");
}
