//! The kernel without a GPU: compiled by the C++ compiler of the host, its lanes run one after the
//! other (`tests/support/lanes/lanes.h`), against the tracker of the CPU.

use super::*;
use crate::homotopy::distinct::Distinct;
use crate::homotopy::follow::follow;
use crate::homotopy::problems::find;
use crate::homotopy::program::Path;
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

fn compile(folder: &std::path::Path, system: &str, symmetries: &str) -> Option<std::path::PathBuf> {
    let Some(compiler) = compiler() else {
        println!("skipped: no C++ compiler");
        return None;
    };
    std::fs::write(folder.join("system.cuh"), system).expect("written");
    std::fs::write(folder.join("symmetries.cuh"), symmetries).expect("written");
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

/// What the kernels wrote.
struct Output<'a> {
    unknowns: usize,
    left: &'a [u8],
}

impl Output<'_> {
    fn take(&mut self, bytes: usize) -> &[u8] {
        let (taken, left) = self.left.split_at(bytes);
        self.left = left;
        taken
    }

    fn counts(&mut self) -> Vec<u32> {
        self.take(4 * LEVELS).chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4"))).collect()
    }

    fn points(&mut self, jobs: usize) -> Vec<Z> {
        let double = |b: &[u8]| f64::from_le_bytes(b.try_into().expect("8 bytes"));
        let bytes = self.take(jobs * self.unknowns * 16);
        bytes.chunks_exact(16).map(|b| Z::new(double(&b[..8]), double(&b[8..]))).collect()
    }

    fn outcomes(&mut self, jobs: usize) -> Vec<Outcome> {
        let double = |b: &[u8]| f64::from_le_bytes(b.try_into().expect("8 bytes"));
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("4 bytes"));
        let end = |r: &[u8]| {
            let (status, steps) = (word(&r[16..20]), word(&r[20..]));
            Outcome::from(&DeviceEnd {
                residual: double(&r[..8]),
                condition: double(&r[8..16]),
                status,
                steps,
            })
        };
        self.take(jobs * 24).chunks_exact(24).map(end).collect()
    }

    fn roots(&mut self, jobs: usize) -> Roots {
        let points = self.points(jobs);
        Roots::new(self.unknowns, points, self.outcomes(jobs))
    }
}

/// Follows all roots of a problem to two instances with the kernels and on the CPU, and tells those of
/// the kernels apart; see `tests/support/lanes/homotopy.cpp`.
fn compare(name: &str, tiling: Tiling) {
    let problem = find(name).expect("a problem");
    let (system, start) = problem.prepared(1).expect("a start set");
    let compiled = Compiled::new(&system);
    let folder = tempfile::tempdir().expect("a folder");
    let (symmetries, images) = symmetries::header(&system, *MEET_LANES.start());
    let (source, _) = source(&compiled, tiling).expect("it fits");
    let Some(program) = compile(folder.path(), &source, &symmetries) else { return };
    let target = |seed| match problem.instance(seed) {
        Some(instance) => instance.parameters,
        None => system.values.clone().expect("values"),
    };
    let targets: Vec<Vec<Z>> = (1..3).map(target).collect();
    let paths: Vec<Path> = targets.iter().map(|t| compiled.path(&start.parameters, t)).collect();
    let settings = Settings::default();
    let mut input: Vec<u8> =
        [start.roots.len(), paths.len()].iter().flat_map(|v| (*v as u32).to_le_bytes()).collect();
    let Settings { tolerance, contraction, min_step, infinity, end_zone, brief, bow, .. } = settings;
    let reals = [tolerance, contraction, min_step, infinity, end_zone, brief, bow];
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
    let mut output = Output { unknowns: compiled.unknowns, left: &output.stdout };
    let (count, jobs) = (start.roots.len(), start.roots.len() * paths.len());
    let job = |k: usize| (&paths[k / count], start.roots[k % count].as_slice());
    let ours = output.roots(jobs);
    agree(name, tiling, &ours, &follow(&compiled, settings, jobs, job, None));

    // Half of the roots was lost and found again, but for those that repeated others.
    let half = count - count / 2;
    let counts = output.counts();
    let again = output.roots(jobs);
    let lost = (0..jobs).filter(|k| k % count >= count / 2);
    assert!(counts[1] as usize >= half * paths.len(), "{name}: {counts:?}, {images} images");
    for k in 0..jobs {
        let (a, b) = (ours.at(k), again.at(k));
        assert_eq!((a.status, a.point, a.residual), (b.status, b.point, b.residual), "{name}, track {k}");
    }
    assert!(lost.clone().all(|k| again.at(k).steps > ours.at(k).steps), "{name}");

    let named = output.outcomes(jobs);
    let duplicate = |k: &usize| named[*k].status == TrackStatus::Duplicate;
    assert!((0..jobs).filter(duplicate).eq((0..paths.len()).map(|i| i * count + 1)), "{name}: {named:?}");

    // Roots of real parameters come in pairs.
    let lost = output.outcomes(jobs);
    let lost: Vec<usize> = (0..jobs).filter(|k| lost[*k].status == TrackStatus::Budget).collect();
    let paired = output.roots(jobs);
    assert!(count < 8 || !lost.is_empty(), "{name}");
    for (i, before) in ours.clone().instances(count).iter().enumerate() {
        let mut known = before.distinct(&system);
        assert!((0..count).all(|k| !known.insert(paired.at(i * count + k).point)), "{name}");
        let mut distinct = Distinct::new(&system);
        let all = (0..count).filter(|k| distinct.insert(paired.at(i * count + k).point)).count();
        assert_eq!(all, before.distinct(&system).count(), "{name}");
    }
    assert!((0..jobs).all(|k| paired.at(k).status == ours.at(k).status), "{name}");

    let aside = Settings { bow: 0.5, ..settings };
    agree(name, tiling, &output.roots(jobs), &follow(&compiled, aside, jobs, job, None));
    assert!(output.left.is_empty());
}

fn agree(name: &str, tiling: Tiling, ours: &Roots, theirs: &Roots) {
    assert_eq!(ours.len(), theirs.len());
    for (k, (a, b)) in ours.iter().zip(theirs.iter()).enumerate() {
        let what = format!("{name}, {tiling:?}, track {k}: {a:?} {b:?}");
        assert_eq!(a.status, b.status, "{what}");
        // Decisions are made on sizes that are known to some digits.
        assert!(a.steps.abs_diff(b.steps) <= 4 + b.steps / 20, "{what}");
        assert!(!a.ok() || crate::homotopy::distance(a.point, b.point) < 1e-8, "{what}");
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
    for (name, lanes) in [("p3p", 4), ("five_point", 8), ("rolling_shutter_1lin", 32)] {
        let uncompiled = find(name).expect("a problem").system().expect("a system");
        let compiled = Compiled::new(&uncompiled);
        let (system, _) = source(&compiled, Tiling { lanes, warps: 1 }).expect("it fits");
        let (symmetries, _) = symmetries::header(&uncompiled, *MEET_LANES.end());
        let image = Program { sources: &sources(&system, &symmetries), options: &[] }.machine_code(nvrtc, 87);
        assert!(image.expect("compiles").starts_with(b"\x7fELF"), "{name}");
    }
}
