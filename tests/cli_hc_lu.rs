//! `flashreg hc lu`: what it refuses, and that it says what is missing.
#![cfg(feature = "cuda")]

use std::process::Command;

fn error_of(args: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_flashreg"))
        .args(["hc", "lu"])
        .args(args.split_whitespace())
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args}: {error}");
    assert!(!error.contains("panicked"), "{args}: {error}");
    error
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, part) in [
        ("--n 0", "from 1 to 32 unknowns"),
        ("--n 4..33", "from 1 to 32 unknowns"),
        ("--n 9..8", "from 1 to 32 unknowns"),
        ("--n 4..x", "x: invalid digit"),
        ("--batch 0", "--batch"),
        ("--numbers c32", "c64"),
        ("--repeats 0", "--repeats"),
    ] {
        let error = error_of(args);
        assert!(error.contains(part), "{args}: {error}");
    }
}

#[test]
fn without_a_gpu_it_says_so() {
    if flashreg::gpu::device::probe().first_device().is_none() {
        let error = error_of("--n 4 --batch 10");
        assert!(error.starts_with("error: ") && error.lines().count() == 1, "{error}");
    }
}
