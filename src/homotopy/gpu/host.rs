//! The kernel without a GPU: compiled by the C++ compiler of the host, its lanes run one after the
//! other (`tests/support/lanes/lanes.h`), against the tracker of the CPU.

use super::*;
use crate::homotopy::problems::find;
use crate::homotopy::program::Path;
use crate::homotopy::solver::follow;
use std::io::Write as _;
use std::process::{Command, Stdio};

fn bytes_of(numbers: &[Z]) -> Vec<u8> {
    numbers.iter().flat_map(|z| [z.re.to_le_bytes(), z.im.to_le_bytes()].concat()).collect()
}

fn compiler() -> Option<&'static str> {
    ["c++", "g++", "clang++"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

fn compile(folder: &std::path::Path, system: &str) -> Option<std::path::PathBuf> {
    let Some(compiler) = compiler() else {
        println!("skipped: no C++ compiler");
        return None;
    };
    std::fs::write(folder.join("system.cuh"), system).expect("written");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("homotopy");
    let output = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-w"])
        .args(if cfg!(target_arch = "x86_64") { &["-mfma"][..] } else { &[] })
        .arg("-I")
        .arg(folder)
        .arg("-I")
        .arg(root.join("kernels"))
        .arg(root.join("tests/support/lanes/homotopy.cpp"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Follows all roots of a problem to instances: the roots of the kernel and of the CPU.
fn both(name: &str, tiling: Tiling, seeds: std::ops::Range<u64>) -> Option<[Vec<Root>; 2]> {
    let problem = find(name).expect("a problem");
    let (system, start) = problem.prepared(1).expect("a start set");
    let compiled = Compiled::new(&system);
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(folder.path(), &source(&compiled, tiling).expect("it fits").0)?;
    let target = |seed| match problem.instance(seed) {
        Some(instance) => instance.parameters,
        None => system.values.clone().expect("values"),
    };
    let targets: Vec<Vec<Z>> = seeds.map(target).collect();
    let paths: Vec<Path> = targets.iter().map(|t| compiled.path(&start.parameters, t)).collect();
    let settings = Settings::default();
    let mut input: Vec<u8> =
        [start.roots.len(), paths.len()].iter().flat_map(|v| (*v as u32).to_le_bytes()).collect();
    let reals =
        [settings.tolerance, settings.contraction, settings.min_step, settings.infinity, settings.end_zone];
    input.extend(reals.iter().flat_map(|v| v.to_le_bytes()));
    input.extend(u64::from(settings.max_steps).to_le_bytes());
    input.extend(bytes_of(&start.parameters));
    targets.iter().for_each(|p| input.extend(bytes_of(p)));
    start.roots.iter().for_each(|r| input.extend(bytes_of(r)));
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("an input").write_all(&input).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let (n, jobs) = (compiled.unknowns, start.roots.len() * paths.len());
    let (points, results) = output.stdout.split_at(jobs * n * 16);
    let double = |b: &[u8]| f64::from_le_bytes(b.try_into().expect("8 bytes"));
    let point =
        |b: &[u8]| b.chunks_exact(16).map(|b| Z::new(double(&b[..8]), double(&b[8..]))).collect::<Vec<_>>();
    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("4 bytes"));
    let ends = results.chunks_exact(24).zip(points.chunks_exact(16 * n)).map(|(r, p)| {
        let (status, steps) = (word(&r[16..20]), word(&r[20..]));
        root(&DeviceEnd { residual: double(&r[..8]), condition: double(&r[8..16]), status, steps }, &point(p))
    });
    let ends: Vec<Root> = ends.collect();
    let job = |k: usize| (&paths[k / start.roots.len()], start.roots[k % start.roots.len()].as_slice());
    let cpu = follow(&compiled, settings, jobs, job, None);
    Some([ends, cpu])
}

fn compare(name: &str, tiling: Tiling) {
    let Some([ours, theirs]) = both(name, tiling, 1..3) else { return };
    assert_eq!(ours.len(), theirs.len());
    for (k, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        let what = format!("{name}, {tiling:?}, track {k}: {a:?} {b:?}");
        assert_eq!(a.status, b.status, "{what}");
        // Decisions are made on sizes that are known to some digits.
        assert!(a.steps.abs_diff(b.steps) <= 2 + b.steps / 20, "{what}");
        assert!(!a.ok() || crate::homotopy::distance(&a.point, &b.point) < 1e-8, "{what}");
        assert!(!a.ok() || (a.residual < 1e-12 && a.condition < 2.0 * b.condition), "{what}");
    }
}

#[test]
fn the_kernel_follows_tracks_as_the_cpu_does() {
    for (name, lanes, warps) in [("p3p", 4, 1), ("p3p", 32, 2), ("five_point_nullspace", 16, 1)] {
        compare(name, Tiling { lanes, warps });
    }
}

#[test]
fn problems_of_the_library_fit_a_block() {
    for problem in crate::homotopy::problems::all() {
        let compiled = Compiled::new(&problem.system().expect("a system"));
        let made = source(&compiled, Tiling { lanes: WARP, warps: 1 });
        assert!(made.is_ok(), "{}: {:?}", problem.name, made.err());
    }
}

#[test]
fn the_kernel_compiles_for_systems_of_any_size() {
    let nvrtc = match crate::gpu::nvrtc::Nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(why) => {
            assert!(std::env::var_os(crate::gpu::nvrtc::VARIABLE).is_none(), "{why}");
            println!("skipped: {why}");
            return;
        }
    };
    for (name, lanes) in [("p3p", 4), ("rolling_shutter_1lin", 32)] {
        let compiled = Compiled::new(&find(name).expect("a problem").system().expect("a system"));
        let (system, _) = source(&compiled, Tiling { lanes, warps: 1 }).expect("it fits");
        let image = Program { sources: &sources(&system), options: &[] }.machine_code(nvrtc, 87);
        assert!(image.expect("compiles").starts_with(b"\x7fELF"), "{name}");
    }
}
