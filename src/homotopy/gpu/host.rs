//! The kernel without a GPU: compiled by the C++ compiler of the host, its lanes run one after the
//! other (`tests/support/lanes/lanes.h`), against the tracker of the CPU.

use super::*;
use crate::gpu::host::{compile, run};
use crate::homotopy::distinct::Distinct;
use crate::homotopy::follow::follow;
use crate::homotopy::problems::find;
use crate::homotopy::program;

fn bytes_of(numbers: &[Z]) -> Vec<u8> {
    numbers.iter().flat_map(|z| [z.re.to_le_bytes(), z.im.to_le_bytes()].concat()).collect()
}

fn bytes_as<T: Number>(numbers: &[Z]) -> Vec<u8> {
    let single = |z: &Z| [(z.re as f32).to_le_bytes(), (z.im as f32).to_le_bytes()].concat();
    match T::SINGLE {
        true => numbers.iter().flat_map(single).collect(),
        false => bytes_of(numbers),
    }
}

fn bytes_of_settings(settings: DeviceSettings) -> Vec<u8> {
    let DeviceSettings { tolerance, contraction, min_step, infinity, end_zone, brief, bow, max_steps } =
        settings;
    let reals = [tolerance, contraction, min_step, infinity, end_zone, brief, bow];
    reals.iter().flat_map(|v| v.to_le_bytes()).chain(max_steps.to_le_bytes()).collect()
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

    fn singles(&mut self, jobs: usize) -> Vec<Z> {
        let single = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().expect("4 bytes")));
        let bytes = self.take(jobs * self.unknowns * 8);
        bytes.chunks_exact(8).map(|b| Z::new(single(&b[..4]), single(&b[4..]))).collect()
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
    let headers = [("system.cuh", source.as_str()), ("symmetries.cuh", &symmetries)];
    let Some(program) = compile(folder.path(), "homotopy.cpp", &headers, &[]) else { return };
    let target = |seed| match problem.instance(seed) {
        Some(instance) => instance.parameters,
        None => system.values.clone().expect("values"),
    };
    let targets: Vec<Vec<Z>> = (1..3).map(target).collect();
    let paths: Vec<program::Path> = targets.iter().map(|t| compiled.path(&start.parameters, t)).collect();
    let settings = Settings::default();
    let mut input: Vec<u8> =
        [start.roots.len(), paths.len()].iter().flat_map(|v| (*v as u32).to_le_bytes()).collect();
    input.extend(bytes_of_settings(DeviceSettings::of::<Z>(settings)));
    input.extend(bytes_of(&start.parameters));
    targets.iter().for_each(|p| input.extend(bytes_of(p)));
    start.roots.iter().for_each(|r| input.extend(bytes_of(r)));
    let output = run(&program, &input);
    let mut output = Output { unknowns: compiled.unknowns, left: &output };
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

/// What `track` alone makes of all roots on the way to two instances, in numbers `T`, with a kernel for
/// the system or for any; and what the CPU makes of them.
fn tracks<T: Number>(name: &str, any: bool) -> Option<[Roots; 2]> {
    let problem = find(name).expect("a problem");
    let (system, start) = problem.prepared(1).expect("a start set");
    let compiled = Compiled::new(&system);
    let folder = tempfile::tempdir().expect("a folder");
    let target = |seed| problem.instance(seed).expect("an instance").parameters;
    let paths: Vec<_> = (1..3).map(|seed| compiled.path(&start.parameters, &target(seed))).collect();
    let (count, jobs, n) = (start.roots.len(), start.roots.len() * paths.len(), compiled.unknowns);
    let (fitted, header, wide) = match any {
        true => {
            let any = any::Any::of::<T>(&compiled).expect("it fits");
            (any.fitted, header::header_of_any(any.unknowns, WHOLE_WARP), any.unknowns)
        }
        false => {
            let fitted = Fitted::new(&compiled, WHOLE_WARP, std::mem::size_of::<T>()).expect("it fits");
            let header = fitted.header();
            (fitted, header, n)
        }
    };
    let headers = [("system.cuh", header.as_str())];
    let program = compile(folder.path(), "tracks.cpp", &headers, any::options(T::SINGLE))?;
    let mut input: Vec<u8> = [count, paths.len()].iter().flat_map(|v| (*v as u32).to_le_bytes()).collect();
    let settings = Settings::default();
    input.extend(bytes_of_settings(DeviceSettings::of::<T>(settings)));
    if any {
        let words: Vec<u64> = fitted.schedule.words.iter().flatten().copied().collect();
        let sizes = [words.len() as u64, fitted.schedule.constants.len() as u64];
        input.extend(sizes.into_iter().chain(fitted.sizes()).chain(words).flat_map(u64::to_le_bytes));
        input.extend(bytes_as::<T>(&fitted.schedule.constants));
    }
    paths.iter().for_each(|path| input.extend(bytes_as::<T>(&path.series)));
    paths.iter().for_each(|path| input.extend(bytes_as::<T>(&path.end)));
    for root in &start.roots {
        let filled: Vec<Z> = root.iter().copied().chain(vec![Z::new(0.0, 0.0); wide - n]).collect();
        input.extend(bytes_as::<T>(&filled));
    }
    let output = run(&program, &input);
    let mut output = Output { unknowns: wide, left: &output };
    let points = if T::SINGLE { output.singles(jobs) } else { output.points(jobs) };
    let points = points.chunks(wide).flat_map(|x| x[..n].to_vec()).collect();
    let mut ours = Roots::new(n, points, output.outcomes(jobs));
    let job = |k: usize| (&paths[k / count], start.roots[k % count].as_slice());
    if T::SINGLE {
        ours.set_single();
        crate::homotopy::follow::polish(&compiled, settings, &mut ours, job);
    }
    Some([ours, follow(&compiled, settings, jobs, job, None)])
}

#[test]
fn the_kernel_for_any_system_does_what_that_for_one_does() {
    for name in ["p3p", "five_point"] {
        let Some([ours, theirs]) = tracks::<Z>(name, true) else { return };
        agree(name, WHOLE_WARP, &ours, &theirs);
    }
}

#[test]
fn tracks_in_single_precision_come_to_the_same_roots() {
    for (name, any) in [("p3p", false), ("five_point", false), ("five_point_nullspace", true)] {
        let Some([ours, theirs]) = tracks::<Complex<f32>>(name, any) else { return };
        let mut same = 0;
        for (a, b) in ours.iter().zip(theirs.iter()) {
            // What is called a root is one, to the last digits.
            assert!(!a.ok() || (a.residual < 1e-12 && a.corrections > 0), "{name}: {a:?}");
            same += usize::from(a.ok() && b.ok() && crate::homotopy::distance(a.point, b.point) < 1e-8);
        }
        assert!(ours.outcomes().iter().all(|o| o.single > 0 && o.single == o.steps), "{name}");
        assert!(10 * same >= 9 * ours.len(), "{name}: {same} of {}", ours.len());
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
        let (whole, single) = (sources(&system, &symmetries), track_sources(&system));
        for (sources, single) in [(&whole[..], false), (&single, true)] {
            let program = Program { sources, options: any::options(single) };
            let image = program.machine_code(nvrtc, 87);
            assert!(image.expect("compiles").starts_with(b"\x7fELF"), "{name}");
        }
    }
}
