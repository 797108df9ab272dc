//! Roots of polynomial systems: recall on the library, agreement with start sets made elsewhere, and
//! systems that have no regular roots to give.

use flashreg::homotopy::check::{is_root, newton};
use flashreg::homotopy::monodromy::{monodromy, Options};
use flashreg::homotopy::problems::{all, find};
use flashreg::homotopy::recall::{compare, recall};
use flashreg::homotopy::{numbers, Arithmetic, Backend, Distinct, Settings, Solver, StartSet, System};
use flashreg::status::TrackStatus;
use nalgebra::Complex;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Numbers = Vec<Complex<f64>>;

fn real(values: &[f64]) -> Numbers {
    values.iter().map(|v| Complex::new(*v, 0.0)).collect()
}

/// Problems that take long: of these some tracks only.
const LARGE: [&str; 4] = ["trifocal_focal_18", "trifocal_focal_24", "trifocal_focal_26", "trifocal_lines"];

#[test]
fn tracks_of_the_large_problems_come_to_roots() {
    for name in LARGE {
        let problem = find(name).expect("a problem");
        let (system, start) = problem.prepared(1).expect("a start set");
        assert_eq!(start.roots.len(), problem.expected, "{name}");
        let roots = start.roots.into_iter().step_by(problem.expected / 12).collect();
        let start = StartSet { roots, ..start };
        let target = problem.instance(5).expect("an instance").parameters;
        let solver = Solver::new(system, start, Settings::default());
        let solution = solver.solve(std::slice::from_ref(&target), None).remove(0);
        let found = solution.found().count();
        assert!(found + 1 >= solution.roots.len(), "{name}: {found} of {}", solution.roots.len());
        assert!(solution.found().all(|r| is_root(solver.system(), r.point, &target)), "{name}");
    }
}

/// The other way round: the true solution of an instance, followed to the start parameters, is a start root.
#[test]
fn true_solutions_of_the_large_problems_belong_to_their_start_sets() {
    for name in LARGE {
        let problem = find(name).expect("a problem");
        let (system, start) = problem.prepared(1).expect("a start set");
        let mut known = Distinct::new(&system);
        start.roots.iter().for_each(|root| {
            known.insert(root);
        });
        let mut arrived = 0;
        for seed in 0..4 {
            let instance = problem.instance(seed).expect("an instance");
            let truth = newton(&system, instance.near, &instance.parameters).expect("a root");
            let from = StartSet { parameters: instance.parameters, roots: vec![truth], note: String::new() };
            let solver = Solver::new(system.clone(), from, Settings::default());
            let solution = solver.solve(std::slice::from_ref(&start.parameters), None).remove(0);
            arrived += solution.found().count();
            assert!(solution.found().all(|root| known.find(root.point).is_some()), "{name}, {seed}");
        }
        assert!(arrived >= 3, "{name}: {arrived} of 4 arrived");
    }
}

/// Every problem, few instances: `flashreg hc bench` is the long form of it.
#[test]
fn nearly_all_roots_of_the_library_are_found_and_none_is_wrong() {
    let (mut found, mut expected) = (0, 0);
    for problem in all().into_iter().filter(|p| !LARGE.contains(&p.name.as_str())) {
        let instances = if problem.expected > 100 { 1 } else { 10 };
        let row = recall(&problem, instances, 77, (Backend::Cpu, Arithmetic::Auto), 0)
            .unwrap_or_else(|e| panic!("{}: {e}", problem.name));
        assert_eq!((row.wrong, row.silent), (0, 0), "{row:?}");
        assert!(row.found <= row.expected, "more than there are: {row:?}");
        assert!(row.found * 100 >= row.expected * 97, "{row:?}");
        assert!(row.true_found + 1 >= row.truths && row.poses_right + 1 >= row.poses, "{row:?}");
        let tracks: usize = row.counts.values().sum();
        assert_eq!(tracks, row.expected, "every track has a status: {row:?}");
        found += row.found;
        expected += row.expected;
    }
    assert!(found * 1000 >= expected * 995, "{found} of {expected}");
}

fn solver(name: &str) -> Solver {
    let (system, start) = find(name).expect("a problem").prepared(1).expect("a start set");
    Solver::new(system, start, Settings::default())
}

#[test]
fn a_batch_gives_what_its_instances_give_alone_in_their_order_on_any_number_of_threads() {
    let solver = solver("five_point");
    let problem = find("five_point").expect("a problem");
    let mut targets: Vec<Numbers> =
        (0..9).map(|seed| problem.instance(seed).expect("an instance").parameters).collect();
    targets[4][7] = Complex::new(f64::NAN, 0.0);
    let together = solver.solve(&targets, None);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
    for (i, (target, solution)) in targets.iter().zip(&together).enumerate() {
        let alone = pool.install(|| solver.solve(std::slice::from_ref(target), None).remove(0));
        if i == 4 {
            assert_eq!(solution.count(TrackStatus::Invalid), 10);
        } else {
            assert_eq!(solution, &alone, "instance {i}");
            assert!(solution.found().all(|r| is_root(solver.system(), r.point, target)));
        }
    }
}

#[test]
fn a_root_that_is_none_is_not_taken_for_one() {
    let solver = solver("p3p");
    let target = find("p3p").expect("a problem").instance(3).expect("an instance").parameters;
    let mut root = solver.solve(std::slice::from_ref(&target), None)[0].roots.at(0).point.to_vec();
    assert!(is_root(solver.system(), &root, &target));
    root[1] += 1e-4;
    assert!(!is_root(solver.system(), &root, &target));
}

/// All statuses of a form without parameters, by the degrees of its equations.
fn by_degrees(yaml: &str) -> (Solver, Vec<TrackStatus>) {
    let system = System::from_yaml(yaml).expect("a system");
    let (blend, start) = StartSet::total_degree(&system, &[], 3).expect("a start set");
    let target = blend.values.clone().expect("the end");
    let solver = Solver::new(blend, start, Settings::default());
    let begin = Instant::now();
    let solution = solver.solve(&[target], None).remove(0);
    assert!(begin.elapsed() < Duration::from_secs(20), "{yaml}: {:?}", begin.elapsed());
    let statuses = solution.roots.iter().map(|r| r.status).collect();
    (solver, statuses)
}

#[test]
fn systems_without_regular_roots_end_with_a_status() {
    for (what, equations, ok) in [
        ("inconsistent", "[x + y - 1, x + y - 2]", 0),
        ("parallel lines and a circle", "[x^2 + y^2 - 1, (x + y)^2 - 9*(x + y) + 20 - y + y]", 4),
        ("a curve of roots", "[x*(x + y), x*(x - y + 1)]", 1),
        ("the same twice", "[x^2 + y^2 - 1, 2*x^2 + 2*y^2 - 2]", 0),
        ("a double root", "[(x - 1)^2, y - x]", 0),
        ("a triple and a single root", "[(x - 1)^3*(x + 2), y^2 - x - 3]", 2),
        ("everything", "[x - x + y*0*x + (x + y)^2 - x^2 - 2*x*y - y^2 + x, y]", 1),
        ("fewer at finite places", "[x*y - 1, x*y + x - 3]", 1),
        ("small numbers", "[1e-6*x^2 - 1e-6*y, 1e-6*y^2 - 3e-6]", 4),
        ("large and small numbers", "[1e6*x^2 - 1e-6*y, y - 4e6]", 2),
        ("large roots", "[x^2 - 1e12, y - 1e-6*x]", 2),
        ("very large roots", "[x^2 - 1e30, y^2 - 1e-6]", 4),
        ("roots of very different sizes", "[x^2 + 1e8*x + 1, y - 1]", 2),
        ("coordinates 1e20 apart", "[x^2 + 1e10*x + 1, y^2 - x*y - 1]", 4),
        ("a root at 1e10 beside two at infinity", "[x^2 - 3e10*x + 2e10, y - 1e-10*x*x + 1]", 2),
    ] {
        let (_, statuses) = by_degrees(&format!("unknowns: [x, y]\nequations: {equations}\n"));
        let found = statuses.iter().filter(|s| **s == TrackStatus::Ok).count();
        assert_eq!(found, ok, "{what}: {statuses:?}");
    }
}

/// Followed from `a = 1` to targets: how the only track of the start set ends.
fn single(yaml: &str, root: &[f64], targets: &[Complex<f64>]) -> Vec<TrackStatus> {
    let system = System::from_yaml(yaml).expect("a system");
    let start = StartSet { parameters: real(&[1.0]), roots: vec![real(root)], note: String::new() };
    let start = start.checked(&system).expect("a root");
    let targets: Vec<Numbers> = targets.iter().map(|a| vec![*a]).collect();
    let solutions = Solver::new(system, start, Settings::default()).solve(&targets, None);
    solutions.iter().map(|s| s.roots.at(0).status).collect()
}

#[test]
fn a_multiple_root_is_not_ok_even_if_one_track_alone_comes_to_it() {
    for power in [2, 3, 4] {
        // Apart, and with both equations mixed; the track comes to u = 0, which is there `power` times.
        let apart = format!("[(x - 1)^{power} - a, y - x]");
        let (u, v) = ("(2*x + y - 1)", "(x - 3*y + x*y)");
        let mixed = format!("[{u}^{power} - a + {v}, 3*{u}^{power} - 3*a - 2*{v}]");
        // u = 1 and v = 0 at the start.
        let y = (33f64.sqrt() - 5.0) / 2.0;
        let mut targets = vec![Complex::new(0.0, 0.0)];
        for size in [1e-40, 1e-30, 1e-26, 1e-24, 1e-22] {
            targets.extend((0..8).map(|k| Complex::from_polar(size, f64::from(k))));
        }
        let close = |a: &Complex<f64>| a.norm().powf(1.0 / f64::from(power)) < 1e-8;
        let targets: Vec<_> = targets.into_iter().filter(close).collect();
        for (form, root) in [(&apart, [2.0, 2.0]), (&mixed, [(2.0 - y) / 2.0, y])] {
            let statuses =
                single(&format!("unknowns: [x, y]\nparameters: [a]\nequations: {form}\n"), &root, &targets);
            assert!(statuses.iter().all(|s| *s != TrackStatus::Ok), "{form}: {statuses:?}");
            // Close to each other, but regular.
            let apart: Vec<_> =
                (0..8).map(|k| Complex::from_polar(1e-2f64.powi(power), f64::from(k))).collect();
            let statuses =
                single(&format!("unknowns: [x, y]\nparameters: [a]\nequations: {form}\n"), &root, &apart);
            assert!(statuses.iter().all(|s| *s == TrackStatus::Ok), "{form}: {statuses:?}");
        }
    }
}

#[test]
fn a_regular_root_of_equations_that_are_nearly_the_same_is_ok() {
    let form =
        "unknowns: [x, y]\nparameters: [a]\nequations: [x^2 + y - 3*a, x^2 + (1 + 1e-7)*y - 3*a - 1e-7*a]\n";
    let targets: Vec<_> = (0..8).map(|k| Complex::from_polar(2.0, f64::from(k))).collect();
    let statuses = single(form, &[2f64.sqrt(), 1.0], &targets);
    assert!(statuses.iter().all(|s| *s == TrackStatus::Ok), "{statuses:?}");
}

#[test]
fn a_time_budget_is_obeyed_and_tracks_say_so() {
    let solver = solver("cyclic7");
    let target = solver.system().values.clone().expect("numbers");
    let begin = Instant::now();
    let solution = solver.solve(&[target], Some(begin + Duration::from_millis(5))).remove(0);
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    assert!(solution.count(TrackStatus::Budget) > 100);
    assert_eq!(solution.roots.len(), 924);
    // None at all.
    let none = solver.solve(&[vec![]], Some(begin)).remove(0);
    assert_eq!(none.count(TrackStatus::Invalid), 924);
    assert!(solver.solve(&[], None).is_empty());
    let nothing =
        StartSet { parameters: solver.start().parameters.clone(), roots: Vec::new(), note: String::new() };
    let nothing = Solver::new(solver.system().clone(), nothing, Settings::default());
    let target = solver.system().values.clone().expect("numbers");
    let empty = nothing.solve(&[target.clone(), target], None);
    assert!(empty.len() == 2 && empty.iter().all(|s| s.roots.is_empty()));
}

#[test]
fn start_sets_of_other_equations_and_of_no_roots_are_refused() {
    let problem = find("p3p").expect("a problem");
    let (system, start) = problem.prepared(1).expect("a start set");
    let bytes = start.to_bytes(&system);
    let (other, _) = find("tdoa_5").expect("a problem").prepared(1).expect("a start set");
    let refused = |bytes: &[u8], system: &System| match StartSet::from_bytes(bytes, system) {
        Ok(_) => panic!("taken"),
        Err(e) => e.to_string(),
    };
    assert!(refused(&bytes, &other).contains("other equations"));
    assert!(refused(&bytes[..bytes.len() - 1], &system).contains("not a start set"));
    assert!(refused(&bytes[..10], &system).contains("not a start set"));
    assert!(refused(b"something else", &system).contains("not a start set"));
    let mut wrong = start.clone();
    wrong.roots[2][0] += 0.5;
    let error = wrong.checked(&system).expect_err("no root").to_string();
    assert!(error.contains("1 of 4 start roots"), "{error}");
    let mut short = start;
    short.parameters.pop();
    assert!(short.checked(&system).expect_err("too few").to_string().contains("17 parameters, needed: 18"));
}

/// The folder of start sets made elsewhere: `FLASHREG_HOMOTOPY_DATA`, or beside the project.
fn elsewhere() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/homotopy");
    let folder = std::env::var_os("FLASHREG_HOMOTOPY_DATA").map_or_else(beside, PathBuf::from);
    if !folder.join("vision").is_dir() {
        println!("skipped: no data");
        return None;
    }
    Some(folder)
}

fn read(path: PathBuf) -> Numbers {
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    numbers::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Their start set, ours, and both followed to their target: the same roots.
fn agree(what: &str, system: &System, theirs: StartSet, ours: StartSet, target: &Numbers) {
    let settings = Settings::default();
    let theirs = theirs.checked(system).unwrap_or_else(|e| panic!("{what}: {e}"));
    let counts = (theirs.roots.len(), ours.roots.len());
    let solve = |start| {
        Solver::new(system.clone(), start, settings).solve(std::slice::from_ref(target), None).remove(0)
    };
    let (a, b) = (solve(theirs), solve(ours));
    let (both, first, second) = compare(system, &a, &b);
    println!(
        "{what}: start roots {counts:?}, found by both {both}, by theirs only {first}, by ours only {second}"
    );
    assert!(both > 0 && first == 0 && second == 0, "{what}: {both} {first} {second}");
}

fn start_of(folder: &Path, n: usize, names: [&str; 2]) -> StartSet {
    let roots = read(folder.join(names[1])).chunks(n).map(<[_]>::to_vec).collect();
    StartSet { parameters: read(folder.join(names[0])), roots, note: String::new() }
}

#[test]
fn start_sets_made_elsewhere_lead_to_the_same_roots() {
    let Some(folder) = elsewhere() else { return };
    let files = ["start_params.txt", "start_sols.txt"];
    for (theirs, ours) in [
        ("P3P", "p3p"),
        ("5pt_rel_pos_alg_form_quat", "five_point"),
        ("5pt_rel_pos_geo_form_quat", "five_point"),
        ("5pt_rel_pos_full_form_quat", "five_point_depths"),
        ("P3P_10x10", "p3p_pose"),
        ("3pt_rel_pos_homog", "homography_3pt"),
        ("rel_pos_quiver", "relative_pose_focal"),
        ("dual_reciever_TDOA_5pt", "tdoa_5"),
    ] {
        let (system, start) = find(ours).expect("a problem").prepared(1).expect("a start set");
        let folder = folder.join("vision").join(theirs);
        let mut given = start_of(&folder, system.size().0, files);
        if ours == "p3p_pose" {
            // The file has quaternion, translation, depths.
            given.roots.iter_mut().for_each(|root| root[..7].rotate_left(4));
        }
        agree(theirs, &system, given, start, &read(folder.join("target_params.txt")));
    }
    // Their parameters are other ones than ours: their forms, with start sets made here.
    for (theirs, form) in [("3view_triangulation", triangulation()), ("optimal_P4P_abs_pos", cones())] {
        let system = System::from_yaml(&form).expect("a system");
        let start = monodromy(&system, &Options::default(), |_| {}).expect("a start set");
        let folder = folder.join("vision").join(theirs);
        let given = start_of(&folder, system.size().0, files);
        agree(theirs, &system, given, start, &read(folder.join("target_params.txt")));
    }
}

/// Three views, chained, with any matrices.
fn triangulation() -> String {
    let row = |m: &str, i: usize, x: usize| format!("({m}{i}1*x{x} + {m}{i}2*y{x} + {m}{i}3)");
    let column = |m: &str, j: usize, x: usize| format!("(x{x}*{m}1{j} + y{x}*{m}2{j} + {m}3{j})");
    let names = |m: &str| format!("{m}11, {m}12, {m}13, {m}21, {m}22, {m}23, {m}31, {m}32, {m}33");
    let mut text = "unknowns: [x1, y1, x2, y2, x3, y3, l, k]\n".to_owned();
    let _ =
        writeln!(text, "parameters: [{}, {}, u1, v1, u2, v2, u3, v3]\nequations:", names("a"), names("b"));
    for (i, z) in ["x", "y"].iter().zip(["u", "v"]).enumerate() {
        let (i, (x, u)) = (i + 1, z);
        let _ = writeln!(text, "  - 2*({x}1 - {u}1) + l*{}", row("a", i, 2));
        let _ = writeln!(text, "  - 2*({x}2 - {u}2) + l*{} + k*{}", column("a", i, 1), row("b", i, 3));
        let _ = writeln!(text, "  - 2*({x}3 - {u}3) + k*{}", column("b", i, 2));
    }
    for (m, x, y) in [("a", 1, 2), ("b", 2, 3)] {
        let _ = writeln!(text, "  - x{x}*{} + y{x}*{} + {}", row(m, 1, y), row(m, 2, y), row(m, 3, y));
    }
    text
}

/// Four points on cones, with any matrices for the cones, and the x axis vertical.
fn cones() -> String {
    let mut text = "unknowns: [x, y, z, c, s]\nparameters: [".to_owned();
    (1..=4).for_each(|i| text += &format!("a{i}, b{i}, d{i}, "));
    (1..=4).for_each(|i| (1..=9).for_each(|k| text += &format!("m{i}{k}, ")));
    let mut text = text.trim_end_matches(", ").to_owned() + "]\nequations:\n";
    for i in 1..=4 {
        let p = [format!("(a{i} + x)"), format!("(c*b{i} - s*d{i} + y)"), format!("(s*b{i} + c*d{i} + z)")];
        let terms = (0..9).map(|k| format!("{}*m{i}{}*{}", p[k / 3], k + 1, p[k % 3]));
        let _ = writeln!(text, "  - {}", terms.collect::<Vec<_>>().join(" + "));
    }
    text + "  - c^2 + s^2 - 1\n"
}

#[test]
fn benchmarks_from_start_sets_made_elsewhere_lead_to_the_same_roots() {
    let Some(folder) = elsewhere() else { return };
    let files = ["start_coefs.txt", "start_sols.txt"];
    // The coefficients in the order in which they occur.
    let form = find("alea6").expect("a problem").form.into_owned();
    let system = System::from_yaml(&coefficients(&form)).expect("a system");
    let folder = folder.join("benchmark").join("alea6");
    let mut given = start_of(&folder, 6, files);
    let all = given.roots.len();
    // Two of their roots are none; see their notes.
    given.roots.retain(|root| is_root(&system, root, &given.parameters));
    println!("alea6: {} of {all} of their start roots are roots", given.roots.len());
    let target = real(&read(folder.join("target_coefs.txt")).iter().map(|v| v.re).collect::<Vec<_>>());
    let (ours, start) = find("alea6").expect("a problem").prepared(1).expect("a start set");
    let ours = Solver::new(ours.clone(), start, Settings::default());
    let numbers = ours.system().values.clone().expect("numbers");
    let b = ours.solve(&[numbers], None).remove(0);
    let a = Solver::new(system.clone(), given.checked(&system).expect("roots"), Settings::default());
    let a = a.solve(std::slice::from_ref(&target), None).remove(0);
    let (both, theirs, ours) = compare(&system, &a, &b);
    println!("alea6: found by both {both}, by theirs only {theirs}, by ours only {ours}");
    assert_eq!(theirs, 0);
    assert!(both >= 380 && both + ours == 387, "{both} {theirs} {ours}");
}

/// The form of alea6 with a parameter for each different coefficient.
fn coefficients(form: &str) -> String {
    let mut order: Vec<String> = Vec::new();
    let mut text = String::from("unknowns: [a, b, c, d, e, f]\nequations:\n");
    for line in form.lines().filter_map(|l| l.strip_prefix("  - ")) {
        let terms = line.split(" + ").map(|term| {
            let (number, rest) = match term.split_once('*') {
                Some((n, rest)) if n.parse::<u32>().is_ok() => (n, rest),
                _ => ("1", term),
            };
            if !order.contains(&number.to_owned()) {
                order.push(number.to_owned());
            }
            format!("k{number}*{rest}")
        });
        let _ = writeln!(text, "  - {}", terms.collect::<Vec<_>>().join(" + "));
    }
    let names: Vec<String> = order.iter().map(|n| format!("k{n}")).collect();
    format!("parameters: [{}]\n{text}", names.join(", "))
}
