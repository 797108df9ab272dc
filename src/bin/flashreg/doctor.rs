//! `flashreg doctor`: what is there, what is missing, what to do.

use super::params::{apply_files, NODE};
use super::say;
use clap::Args;
use flashreg::gpu::device::{probe, CudaProbe};
use flashreg::params::Params;
use flashreg::registration::Registrar;
use serde::Serialize;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Parameter file to check; may be given again, they are applied in their order
    #[arg(long, value_name = "YAML")]
    config: Vec<PathBuf>,
}

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// The node runs, though not as well as it could.
    Note,
    /// The node cannot run.
    Problem,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    /// What to do; empty if nothing.
    advice: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), advice: String::new() }
    }

    fn note(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: State::Note, found: found.into(), advice: advice.into() }
    }

    fn problem(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: State::Problem, found: found.into(), advice: advice.into() }
    }
}

#[derive(Serialize)]
struct Report {
    /// The node can run.
    ok: bool,
    checks: Vec<Check>,
}

impl Doctor {
    pub fn run(self) -> ExitCode {
        let mut checks = Vec::new();
        ros(&mut checks);
        cuda(&mut checks, &probe());
        processor(&mut checks);
        config(&mut checks, &self.config);
        network(&mut checks);
        let ok = checks.iter().all(|c| c.state != State::Problem);
        let report = Report { ok, checks };
        if self.json {
            say(serde_json::json!(report));
        } else {
            print(&report);
        }
        if ok {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        }
    }
}

fn print(report: &Report) {
    for check in &report.checks {
        let mark = match check.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Problem => "PROBLEM",
        };
        say(format_args!("{mark:<8} {:<18} {}", check.name, check.found));
        if !check.advice.is_empty() {
            say(format_args!("{:<27} -> {}", "", check.advice));
        }
    }
    say(if report.ok { "The node can run." } else { "The node cannot run: see PROBLEM above." });
}

const SOURCE_ROS: &str =
    "source the set-up file of a ROS 2 installation, e.g. `. /opt/ros/jazzy/setup.sh`, or `. .ros/env.sh` after tools/setup";

fn ros(checks: &mut Vec<Check>) {
    let variable = |name| env::var(name).ok().filter(|v| !v.trim().is_empty());
    checks.push(match variable("ROS_DISTRO") {
        Some(distro) => Check::ok("ROS distribution", distro),
        None => Check::note("ROS distribution", "ROS_DISTRO is not set", SOURCE_ROS),
    });
    let prefixes = paths("AMENT_PREFIX_PATH");
    let missing: Vec<String> =
        prefixes.iter().filter(|p| !p.is_dir()).map(|p| p.display().to_string()).collect();
    checks.push(if prefixes.is_empty() {
        Check::note("ROS prefixes", "AMENT_PREFIX_PATH is not set", SOURCE_ROS)
    } else if missing.is_empty() {
        Check::ok("ROS prefixes", env::var("AMENT_PREFIX_PATH").unwrap_or_default())
    } else {
        let found = format!("AMENT_PREFIX_PATH names folders that do not exist: {}", missing.join(", "));
        Check::note("ROS prefixes", found, SOURCE_ROS)
    });

    let mut folders = paths("LD_LIBRARY_PATH");
    folders.extend(prefixes.iter().map(|p| p.join("lib")));
    checks.push(match library(&folders, "librcl.so") {
        Some(path) => Check::ok("ROS client library", path.display().to_string()),
        None => Check::problem(
            "ROS client library",
            "librcl.so is neither in LD_LIBRARY_PATH nor in a ROS prefix",
            SOURCE_ROS,
        ),
    });
    match variable("RMW_IMPLEMENTATION") {
        Some(name) => match library(&folders, &format!("lib{name}.so")) {
            Some(path) => checks.push(Check::ok("ROS middleware", path.display().to_string())),
            None => checks.push(Check::problem(
                "ROS middleware",
                format!("RMW_IMPLEMENTATION is {name}, but lib{name}.so is not there"),
                "install it or unset RMW_IMPLEMENTATION",
            )),
        },
        None => checks.push(Check::ok("ROS middleware", "the default of the installation")),
    }
    if let Some(domain) = variable("ROS_DOMAIN_ID") {
        checks.push(match domain.trim().parse::<u32>() {
            Ok(0..=232) => Check::ok("ROS domain", domain),
            _ => Check::problem(
                "ROS domain",
                format!("ROS_DOMAIN_ID is '{domain}'"),
                "a whole number from 0 to 101 works everywhere",
            ),
        });
    }
    let log = variable("ROS_LOG_DIR").or_else(|| variable("ROS_HOME")).or_else(|| variable("HOME"));
    checks.push(match log {
        Some(folder) => Check::ok("ROS log folder", format!("below {folder}")),
        None => Check::problem(
            "ROS log folder",
            "none of ROS_LOG_DIR, ROS_HOME and HOME is set; ROS 2 does not start without one",
            "set ROS_LOG_DIR to a folder that can be written",
        ),
    });
}

fn paths(variable: &str) -> Vec<PathBuf> {
    let value = env::var_os(variable).unwrap_or_default();
    env::split_paths(&value).filter(|p| !p.as_os_str().is_empty()).collect()
}

fn library(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path| path.exists())
}

fn cuda(checks: &mut Vec<Check>, cuda: &CudaProbe) {
    const CPU: &str = "nothing to do if the CPU shall compute; else install the NVIDIA driver, and in a \
                       container the NVIDIA container toolkit";
    match &cuda.driver {
        Ok(driver) => {
            let [major, minor] = driver.cuda;
            checks.push(Check::ok("NVIDIA driver", format!("supports CUDA {major}.{minor}")));
            if driver.devices.is_empty() {
                checks.push(Check::note("CUDA device", "none", CPU));
            }
            for device in &driver.devices {
                checks.push(match device {
                    Ok(d) => Check::ok(
                        "CUDA device",
                        format!(
                            "{d}, {:.1} GiB, cooperative launch: {}",
                            d.memory as f64 / f64::from(1 << 30),
                            if d.cooperative_launch { "yes" } else { "no" }
                        ),
                    ),
                    Err(why) => Check::note("CUDA device", why, CPU),
                });
            }
        }
        Err(why) => checks.push(Check::note("NVIDIA driver", why, CPU)),
    }
    checks.push(match (&cuda.nvrtc, cuda.first_device()) {
        (Ok([major, minor]), _) => Check::ok("CUDA compiler", format!("NVRTC {major}.{minor}")),
        (Err(why), Some(_)) => Check::note(
            "CUDA compiler",
            why,
            "not needed with kernels made ahead for this device (see backend below); else install libnvrtc \
             of the CUDA toolkit, or set FLASHREG_NVRTC to its path",
        ),
        (Err(why), None) => Check::note("CUDA compiler", why, "not needed without a CUDA device"),
    });
}

fn processor(checks: &mut Vec<Check>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let found = format!("{} cores, {}", cores, env::consts::ARCH);
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = std::arch::is_x86_feature_detected!("avx2");
        let popcnt = std::arch::is_x86_feature_detected!("popcnt");
        let yes = |has| if has { "yes" } else { "no" };
        let found = format!("{found}, AVX2: {}, POPCNT: {}", yes(avx2), yes(popcnt));
        checks.push(match avx2 && popcnt {
            true => Check::ok("processor", found),
            false => Check::note("processor", found, "the CPU backend is slower without them"),
        });
    }
    #[cfg(not(target_arch = "x86_64"))]
    checks.push(Check::ok("processor", found));
}

fn config(checks: &mut Vec<Check>, files: &[PathBuf]) {
    let mut params = Params::default();
    for path in files {
        checks.push(match apply_files(&mut params, std::slice::from_ref(path)) {
            Ok(()) => Check::ok("parameter file", path.display().to_string()),
            Err(e) => Check::problem(
                "parameter file",
                format!("{e:#}"),
                format!(
                    "correct it; `flashreg params` prints every parameter (sections /** and {NODE} apply)"
                ),
            ),
        });
    }
    match Registrar::new(&params) {
        Ok(registrar) => {
            checks.push(Check::ok("backend", format!("{} ({})", registrar.backend(), registrar.why())));
            let memory = registrar.memory().map(|memory| Check::ok("device memory", memory.to_string()));
            checks.extend(memory);
        }
        Err(e) => checks.push(Check::problem("backend", e.to_string(), "set backend.kind to cpu")),
    }
}

/// The largest message is 16,384 rows of 32 bytes: half a megabyte. A buffer holds eight.
const BUFFER: u64 = 4 << 20;
/// What the kernel may keep of incomplete datagrams.
const FRAGMENTS: u64 = 16 << 20;

fn network(checks: &mut Vec<Check>) {
    for (name, least, wanted) in [
        ("net/core/rmem_max", BUFFER, 2_147_483_647u64),
        ("net/core/rmem_default", BUFFER, BUFFER),
        ("net/ipv4/ipfrag_high_thresh", FRAGMENTS, 134_217_728),
    ] {
        let value = std::fs::read_to_string(Path::new("/proc/sys").join(name));
        let value = value.ok().and_then(|v| v.trim().parse::<u64>().ok());
        let dotted = name.replace('/', ".");
        checks.push(match value {
            Some(v) if v >= least => Check::ok("network", format!("{dotted} = {v}")),
            Some(v) => Check::note(
                "network",
                format!("{dotted} = {v}: messages over 64 kB from other machines may be lost"),
                format!("sudo sysctl -w {dotted}={wanted}"),
            ),
            None => Check::note("network", format!("{dotted} cannot be read here"), "look on the host"),
        });
    }
}
