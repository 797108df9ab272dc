//! Kernels without a GPU: compiled by the C++ compiler of the host, their lanes run one after the other
//! (`tests/support/lanes/lanes.h`).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn compiler() -> Option<&'static str> {
    ["c++", "g++", "clang++"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Compiles a program of `tests/support/lanes` with some headers into a folder; `None` without a compiler.
pub(crate) fn compile(
    folder: &Path,
    program: &str,
    headers: &[(&str, &str)],
    options: &[&str],
) -> Option<PathBuf> {
    let Some(compiler) = compiler() else {
        println!("skipped: no C++ compiler");
        return None;
    };
    for (name, text) in headers {
        std::fs::write(folder.join(name), text).expect("written");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("tests/support/lanes").join(program);
    let program = folder.join("program");
    let output = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-w"])
        .args(if cfg!(target_arch = "x86_64") { &["-mfma"][..] } else { &[] })
        .arg("-I")
        .arg(folder)
        .arg("-I")
        .arg(root.join("kernels"))
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// What a program makes of an input.
pub(crate) fn run(program: &Path, input: &[u8]) -> Vec<u8> {
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("an input").write_all(input).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    output.stdout
}
