//! `flashreg kernels`: what it makes, what it lists, what it refuses.
#![cfg(feature = "cuda")]

use flashreg::gpu::nvrtc;
use std::ffi::OsStr;
use std::process::{Command, Output};

fn kernels(args: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashreg"));
    command.arg("kernels").args(args).env_remove("RUST_LOG");
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_a_compiler_it_says_so() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let made = kernels(&[folder.path().as_os_str()]).env(nvrtc::VARIABLE, "/no/such/libnvrtc.so").output()?;
    assert_eq!(made.status.code(), Some(2));
    assert!(err(&made).contains("FLASHREG_NVRTC=/no/such/libnvrtc.so"), "{}", err(&made));
    let listed = kernels(&["--list".as_ref(), folder.path().as_os_str()]).output()?;
    assert_eq!((listed.status.code(), out(&listed).as_str()), (Some(1), ""));
    let listed = kernels(&["--list".as_ref(), folder.path().join("nowhere").as_os_str()]).output()?;
    assert_eq!(listed.status.code(), Some(2));
    assert!(err(&listed).contains("nowhere"), "{}", err(&listed));
    Ok(())
}

#[test]
fn what_it_makes_can_be_used() -> std::io::Result<()> {
    if let Err(why) = nvrtc::Nvrtc::get() {
        assert!(std::env::var_os(nvrtc::VARIABLE).is_none(), "{why}");
        println!("skipped: {why}");
        return Ok(());
    }
    let parent = tempfile::tempdir()?;
    let folder = parent.path().join("kernels");
    let make = |architectures: &str| {
        kernels(&[folder.as_os_str(), "--arch".as_ref(), architectures.as_ref()]).output()
    };
    for unknown in ["87,777", "87,72"] {
        let refused = make(unknown)?;
        assert_eq!(refused.status.code(), Some(2));
        assert!(err(&refused).contains(&format!("sm_{}", &unknown[3..])), "{}", err(&refused));
        assert!(!folder.exists(), "{unknown}");
    }
    let made = make("87")?;
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let said = out(&made);
    // The registration, and the tracker in two precisions for four sizes.
    assert!(said.lines().all(|line| line.starts_with("sm_87 ")) && said.lines().count() == 9, "{said}");
    let list = || kernels(&["--list".as_ref(), folder.as_os_str()]).output();
    let listed = list()?;
    assert_eq!((listed.status.code(), out(&listed).lines().count()), (Some(0), 9));
    std::fs::copy(folder.join("sm_87.kernels"), folder.join("sm_90.kernels"))?;
    let listed = list()?;
    assert_eq!(listed.status.code(), Some(1));
    let said = out(&listed);
    assert!(
        said.contains("sm_90.kernels                   cannot be used: made from other sources"),
        "{said}"
    );
    Ok(())
}
