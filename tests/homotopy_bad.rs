//! Systems and numbers that nobody should give, but somebody will: everything ends in time, with a
//! status for each track or an error that says why.

use flashreg::homotopy::check::is_root;
use flashreg::homotopy::monodromy::{monodromy, trace_test, Options};
use flashreg::homotopy::problems::{find, Geometry};
use flashreg::homotopy::tune;
use flashreg::homotopy::{Settings, Solution, Solver, StartError, StartSet, System};
use flashreg::status::TrackStatus;
use nalgebra::{Complex, Rotation3, Vector3};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

type Numbers = Vec<Complex<f64>>;

/// Nothing here is large.
const PATIENCE: Duration = Duration::from_secs(20);

fn c(re: f64, im: f64) -> Complex<f64> {
    Complex::new(re, im)
}

fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = work();
    assert!(begin.elapsed() < PATIENCE, "{what}: {:?}", begin.elapsed());
    result
}

/// Every track has a status, and what is called a root is one.
fn judge(what: &str, solver: &Solver, target: &Numbers, solution: &Solution) -> usize {
    assert_eq!(solution.roots.len(), solver.start().roots.len(), "{what}");
    for root in solution.roots.iter() {
        assert!(root.residual.is_finite() || !root.ok(), "{what}: {root:?}");
        assert!(!root.ok() || is_root(solver.system(), root.point, target), "{what}: {root:?}");
    }
    solution.count(TrackStatus::Ok)
}

/// How many regular roots a form without parameters has, by the degrees of its equations.
fn by_degrees(what: &str, yaml: &str) -> usize {
    let system = System::from_yaml(yaml).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (blend, start) = StartSet::total_degree(&system, &[], 3).expect("a start set");
    let target = blend.values.clone().expect("the end");
    let solver = Solver::new(blend, start, Settings::default());
    let solution = in_time(what, || solver.solve(std::slice::from_ref(&target), None).remove(0));
    judge(what, &solver, &target, &solution)
}

#[test]
fn singular_inconsistent_and_positive_dimensional_systems_end_with_a_status() {
    for (what, unknowns, equations, ok) in [
        ("inconsistent, linear", "x, y", "x + y - 1, x + y - 2", 0),
        ("inconsistent, nearly", "x, y", "x + y - 1, x + (1 + 1e-15)*y - 2", 0),
        ("inconsistent, curved", "x, y", "x^2 + y^2 - 1, x^2 + y^2 - 4", 0),
        ("inconsistent, three", "x, y, z", "x*y - 1, x*y - 2, z^2 - x", 0),
        ("a line of roots", "x, y", "x + y - 1, 2*x + 2*y - 2", 0),
        ("a curve of roots and a point", "x, y", "x*(x + y), x*(x - y + 1)", 1),
        ("a plane, a line and points", "x, y, z", "x*(y - 1), x*(z^2 - 2), x*(y + z + x - 3)", 2),
        (
            "two surfaces that share a curve",
            "x, y, z",
            "(x - y)*(x + z), (x - y)*(z - 2), x^2 + y^2 + z^2 - 9",
            2,
        ),
        ("one multiple root", "x, y", "x^2, y^3", 0),
        ("a root of multiplicity nine", "x", "(x - 0.3)^9", 0),
        ("a cusp and a line", "x, y", "y^2 - x^3, y - x", 1),
        ("nearly double", "x, y", "(x - 1)*(x - 1 - 1e-9), y - x", 0),
        ("close, but two", "x, y", "(x - 1)*(x - 1 - 1e-4), y - x", 2),
        ("all at infinity", "x, y", "x*y - 1, x*y + x^2*y^2 + 3", 0),
        ("Wilkinson's", "x", "(x-1)*(x-2)*(x-3)*(x-4)*(x-5)*(x-6)*(x-7)*(x-8)*(x-9)*(x-10)", 10),
    ] {
        let found = by_degrees(
            what,
            &format!("unknowns: [{unknowns}]\nequations: ['{}']\n", equations.replace(", ", "', '")),
        );
        assert_eq!(found, ok, "{what}");
    }
}

#[test]
fn scales_from_a_millionth_to_a_million_lose_nothing() {
    // x = s u, y = r v in u^2 + v^2 = 5, u v + u = 4 with the four regular roots of these.
    for s in [1e-6, 1.0, 1e6] {
        for r in [1e-6, 1.0, 1e6] {
            for [e, f] in [[1e-6, 1e6], [1.0, 1.0], [1e6, 1e-6]] {
                let yaml = format!(
                    "unknowns: [x, y]\nequations:\n  - {e:e}*((x/{s:e})^2 + (y/{r:e})^2 - 5)\n  - {f:e}*(x*y/{:e} + x/{s:e} - 4)\n",
                    s * r
                );
                assert_eq!(by_degrees(&yaml, &yaml), 4, "{yaml}");
            }
        }
    }
}

#[test]
fn parameters_of_any_size_end_with_a_status() {
    let yaml = "unknowns: [x, y]\nparameters: [a, b, d]\nequations: [x^2 + a*y - b, x*y + d*x - a]\n";
    let system = System::from_yaml(yaml).expect("a system");
    let start = monodromy(&system, &Options::default(), |_| {}).expect("a start set");
    assert_eq!(start.roots.len(), 3);
    let solver = Solver::new(system, start, Settings::default());
    let count = |target: [f64; 3]| {
        let (what, target) = (format!("{target:?}"), target.map(|v| c(v, 0.0)).to_vec());
        let solution = in_time(&what, || solver.solve(std::slice::from_ref(&target), None).remove(0));
        judge(&what, &solver, &target, &solution)
    };
    for a in [1e-6, -1.0, 1e6] {
        for b in [1e-6, 2.0, -1e6] {
            for d in [-1e-6, 3.0, 1e6] {
                assert_eq!(count([a, b, d]), 3, "{a} {b} {d}");
            }
        }
    }
    // Two roots and one at infinity; a line of roots.
    assert_eq!(count([0.0, 1.0, 1.0]), 2);
    assert_eq!(count([0.0, 0.0, 1.0]), 0);
    for extreme in [1e300, -1e160, f64::MAX, f64::MIN_POSITIVE, 1e-310] {
        count([extreme, 1.0, extreme]);
        count([1.0, extreme, 0.0]);
    }
}

/// A scene for a problem of the library: whether a root is the true one, how many are ok, how many singular.
fn scene(name: &str, what: &str, measured: &[f64], truth: impl Fn(&[f64], &Geometry) -> bool) -> [usize; 3] {
    let problem = find(name).expect("a problem");
    let (system, start) = problem.prepared(1).expect("a start set");
    let solver = Solver::new(system, start, Settings::default());
    let target = problem.parameters(measured).expect("parameters");
    let solution = in_time(what, || solver.solve(std::slice::from_ref(&target), None).remove(0));
    let ok = judge(what, &solver, &target, &solution);
    let is_true = |root: &[Complex<f64>]| {
        let real: Vec<f64> = root.iter().map(|v| v.re).collect();
        problem.geometry(solver.system(), root, measured).iter().any(|g| truth(&real, g))
    };
    let right = solution.found().filter(|r| is_true(r.point)).count();
    [right, ok, solution.count(TrackStatus::Singular)]
}

#[test]
fn scenes_that_are_nearly_degenerate_keep_the_true_solution_or_say_that_it_is_singular() {
    let check = |what: String, off: f64, [right, ok, singular]: [usize; 3]| {
        println!("{what} {off:e}: {right} right of {ok}, {singular} singular");
        assert!(right > 0 || (off < 1e-4 && singular > 0), "{what}, off by {off}");
    };
    // In the frame of the camera.
    let [a, b] = [Vector3::new(-1.0, 0.2, 4.0), Vector3::new(1.2, -0.3, 5.0)];
    let aside = Vector3::new(0.3, 0.5, 0.2);
    // Between the last two, double precision leaves some roots of `five_point` that are called ok less exact
    // than `is_root` asks: two points 1e-9 apart make conditions of 7e11.
    for off in [1e-2, 1e-4, 1e-6, 0.0] {
        for (what, third) in [
            ("three points on a line", (a + b) / 2.0),
            ("a point twice", a),
            ("a camera in the plane of the points", a * 0.4 + b * 0.3),
        ] {
            let points = [a, b, third + aside * off];
            let rays = points.iter().flat_map(|p| p.normalize().as_slice().to_vec());
            let measured: Vec<f64> = rays.chain(points.iter().flat_map(|p| p.as_slice().to_vec())).collect();
            let depths = |root: &[f64]| root.iter().zip(&points).all(|(r, p)| (r - p.norm()).abs() < 1e-5);
            check(what.into(), off, scene("p3p", what, &measured, |root, _| depths(root)));
        }
        let turn = Rotation3::from_euler_angles(0.1, 0.2, -0.1);
        let points =
            [[-1.0, 0.2, 4.0], [1.2, -0.3, 5.0], [0.3, 0.9, 6.0], [-0.8, -0.7, 5.5], [0.6, 0.4, 4.5]];
        let points = points.map(Vector3::from);
        let moved = |change: &dyn Fn(usize, Vector3<f64>) -> Vector3<f64>| {
            let list = points.iter().enumerate().map(|(i, p)| change(i, *p));
            list.collect::<Vec<_>>()
        };
        let far = Vector3::new(0.5, 0.1, 0.4);
        let line = |i: usize| points[0] + aside * (i as f64 * 0.7);
        for (what, points, shift) in [
            ("a plane", moved(&|_, p| Vector3::new(p.x, p.y, 5.0 + 0.1 * p.x + off * (p.z - 5.0))), far),
            ("two points close", moved(&|i, p| if i == 1 { points[0] + aside * off } else { p }), far),
            ("a line", moved(&|i, p| line(i) + (p - line(i)) * off), far),
            ("a short baseline", points.to_vec(), far * off),
        ] {
            let image = |p: Vector3<f64>| [p.x / p.z, p.y / p.z];
            let measured: Vec<f64> =
                points.iter().flat_map(|p| [image(*p), image(turn * p + shift)]).flatten().collect();
            let truth = |g: &Geometry| {
                let pose = &g.poses[0];
                (pose.rotation - turn.matrix()).norm() < 1e-6
                    && pose.translation.cross(&shift.normalize()).norm() < 1e-6
            };
            check(what.into(), off, scene("five_point", what, &measured, |_, g| truth(g)));
        }
    }
}

#[test]
fn numbers_that_are_none_are_invalid_and_leave_their_neighbours_alone() {
    for name in ["p3p", "triangulation_2", "katsura4"] {
        let problem = find(name).expect("a problem");
        let (system, start) = problem.prepared(1).expect("a start set");
        let good =
            problem.instance(5).map(|i| i.parameters).or_else(|| system.values.clone()).expect("a target");
        let solver = Solver::new(system, start, Settings::default());
        let mut targets = vec![good.clone()];
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for number in [c(bad, 0.0), c(0.0, bad), c(bad, bad)] {
                let mut target = good.clone();
                target[1] = number;
                targets.push(target);
            }
        }
        targets.extend([Vec::new(), good[1..].to_vec(), good.clone()]);
        let solutions = in_time(name, || solver.solve(&targets, None));
        let count = solver.start().roots.len();
        for (solution, target) in solutions.iter().zip(&targets) {
            let expected = if *target == good { TrackStatus::Ok } else { TrackStatus::Invalid };
            assert_eq!(solution.count(expected), count, "{name}: {target:?}");
        }
        assert_eq!(solutions.first(), solutions.last());
    }
}

#[test]
fn start_sets_of_no_numbers_are_refused() {
    let problem = find("p3p").expect("a problem");
    let (system, start) = problem.prepared(1).expect("a start set");
    for bad in [f64::NAN, f64::INFINITY, 1e300] {
        let mut wrong = start.clone();
        wrong.parameters[3] = c(bad, 0.0);
        assert!(in_time("parameters", || wrong.checked(&system)).is_err(), "{bad}");
        let mut wrong = start.clone();
        wrong.roots[1][0] = c(0.0, bad);
        assert!(in_time("roots", || wrong.checked(&system)).is_err(), "{bad}");
    }
    let empty = StartSet { roots: Vec::new(), ..start.clone() };
    assert!(matches!(empty.checked(&system), Err(StartError::Bad { .. })));
    // Bytes that were cut or changed: an error or a checked set.
    let bytes = start.to_bytes(&system);
    let without_note = bytes.len() - start.note.len() - 4;
    assert!(!start.note.is_empty() && StartSet::from_bytes(&bytes[..without_note], &system).is_ok());
    for at in (0..bytes.len()).filter(|at| *at != without_note) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        let _ = StartSet::from_bytes(&changed, &system);
        assert!(StartSet::from_bytes(&bytes[..at], &system).is_err(), "cut at {at}");
    }
}

#[test]
fn monodromy_ends_where_there_is_nothing_to_find() {
    for (what, equations, roots) in [
        ("no root ever", "a*x*y - 1, a*x*y - 2 + b - b", None),
        ("a curve of roots and one more", "a*x*(x + b*y), b*x*(x - y + a)", Some(1)),
        ("always double", "(x - a)^2, y - b", None),
        ("parameters that do nothing", "x^2 - 2 + 0*a*x, y - x + 0*b*y", Some(1)),
        ("always singular", "a*(x + y) - b, 2*a*(x + y) - 2*b", None),
        ("small numbers", "1e-6*(a*x^2 - y), 1e-6*(b*y^2 - x + 1)", Some(4)),
        ("large numbers", "1e6*(a*x^2 - y), 1e6*(b*y^2 - x + 1)", Some(4)),
        ("very large numbers", "1e200*(a*x^2 - y), 1e200*(b*y^2 - x + 1)", None),
    ] {
        let equations = equations.replace(", ", "', '");
        let yaml = format!("unknowns: [x, y]\nparameters: [a, b]\nequations: ['{equations}']\n");
        let system = System::from_yaml(&yaml).unwrap_or_else(|e| panic!("{what}: {e}"));
        let made = in_time(what, || monodromy(&system, &Options::default(), |_| {}));
        assert_eq!(made.as_ref().ok().map(|start| start.roots.len()), roots, "{what}: {made:?}");
        let Ok(start) = made else { continue };
        let start = start.checked(&system).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(start.roots.iter().all(|r| is_root(&system, r, &start.parameters)), "{what}");
        in_time(what, || trace_test(&system, &start, &Options::default(), |_| {}));
    }
}

#[test]
fn deadlines_hold() {
    const MOST: Duration = Duration::from_secs(2);
    let problem = find("generalized_3view").expect("a problem");
    let (system, start) = problem.prepared(1).expect("a start set");
    let soon = || Some(Instant::now() + Duration::from_millis(50));
    let begin = Instant::now();
    let known = problem.instance(1).map(|i| (i.near, i.parameters));
    let options = Options { deadline: soon(), known, ..Options::default() };
    let made = monodromy(&system, &options, |_| {});
    assert!(made.is_ok_and(|s| s.roots.len() < 584), "it has not had the time");
    assert!(begin.elapsed() < MOST, "monodromy: {:?}", begin.elapsed());
    let begin = Instant::now();
    let options = Options { deadline: soon(), ..Options::default() };
    assert_eq!(trace_test(&system, &start, &options, |_| {}), None);
    assert!(begin.elapsed() < MOST, "trace test: {:?}", begin.elapsed());
    let begin = Instant::now();
    let targets: Vec<Numbers> =
        (0..3).filter_map(|seed| problem.instance(seed)).map(|i| i.parameters).collect();
    let solver = Solver::new(system, start, Settings::default());
    let solutions = solver.solve(&targets, soon());
    assert!(solutions.iter().all(|s| s.roots.len() == 584 && s.count(TrackStatus::Budget) > 0));
    assert!(begin.elapsed() < MOST, "solving: {:?}", begin.elapsed());
    let begin = Instant::now();
    let options = tune::Options { seed: 1, candidates: 1000, deadline: soon() };
    let (same, _) = tune::tuned(&solver, &targets, &options, |_, _| {});
    assert_eq!(&same, solver.start());
    assert!(begin.elapsed() < MOST, "start parameters: {:?}", begin.elapsed());
}

fn hc(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashreg"));
    let output =
        command.current_dir(folder).arg("hc").args(args.split_whitespace()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0..=2)) && !said.contains("panicked"), "{args}: {said}");
    output
}

#[test]
fn the_program_answers_or_says_why_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("written");
    write("good.yaml", "unknowns: [x, y]\nparameters: [a, b]\nequations: [x^2 + a*y - b, x*y - a]\n");
    write("zero.txt", "0\n0\n");
    write("large.txt", "1e300\n1e-300\n");
    for name in ["zero", "large"] {
        let args = format!("solve good.yaml --target {name}.txt --json");
        let output = in_time(name, || hc(path, &args));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("an object");
        let roots = answer["roots"].as_array().expect("roots");
        assert!(roots.len() == 4 && roots.iter().all(|r| r["status"] != "ok"), "{name}: {roots:?}");
    }
    write("nan.txt", "NaN\n1\n");
    write("infinite.txt", "1 0\n1 -inf\n");
    let refused = |name: &str, args: &str, why: &str| {
        let output = in_time(name, || hc(path, args));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{args}: {said}");
    };
    refused("NaN", "solve good.yaml --target nan.txt", "line 1: `NaN` is not finite");
    refused("infinite", "solve good.yaml --target infinite.txt", "line 2: `1 -inf` is not finite");
    for (name, form, why) in [
        ("nan.yaml", "equations: [.nan*x]", "line 2, column 13 (equation 1)"),
        ("large.yaml", "equations: [1e999*x - 1]", "`1e999` is not a finite number"),
        ("product.yaml", "equations: [x^2 - 1e308*1e308]", "equation 1: a number that is not finite"),
        ("zero.yaml", "equations: [x/0 - 1]", "division by zero"),
        ("value.yaml", "parameters: [a]\nequations: [a*x - 1]\nvalues: {a: [.inf, 0]}", "values: a"),
        ("nothing.yaml", "equations: [x - x + 1]", "equation 1 has no unknown in it"),
    ] {
        write(name, &format!("unknowns: [x]\n{form}\n"));
        refused(name, &format!("solve {name}"), why);
        refused(name, &format!("start {name}"), why);
    }
    write("parallel.yaml", "unknowns: [x, y]\nequations: [x + y - 1, x + y - 2]\n");
    write("many.yaml", "unknowns: [x, y]\nequations: [(x+y)^40 - 1, (x-y)^40 - 2]\n");
    for (name, tracks) in [("parallel", 1), ("many", 1600)] {
        let output = in_time(name, || hc(path, &format!("solve {name}.yaml --json --budget-ms 20")));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("an object");
        let count = |status: &str| answer["counts"][status].as_u64().expect("a count");
        assert_eq!(answer["tracks"], tracks, "{name}");
        assert_eq!(count("budget") > 0, tracks > 1, "{name}: {}", answer["counts"]);
        assert!(answer["ms"].as_f64().is_some_and(|ms| ms < 1000.0), "{name}: {}", answer["ms"]);
        in_time(name, || hc(path, &format!("start {name}.yaml --seconds 1")));
    }
}
