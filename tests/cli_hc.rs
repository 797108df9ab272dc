//! `flashreg hc`: its JSON objects, files, and refusals.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn hc(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashreg"));
    command.current_dir(folder).arg("hc").args(args.split_whitespace()).output().expect("it runs")
}

fn json(folder: &Path, args: &str) -> Value {
    let output = hc(folder, args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args}: {e}"))
}

fn error(folder: &Path, args: &str) -> String {
    let output = hc(folder, args);
    assert_eq!(output.status.code(), Some(2), "{args}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const CIRCLE: &str = "unknowns: [x, y]\nparameters: [r]\nequations: [x^2 + y^2 = r^2, x = 2*y]\n";

#[test]
fn a_form_of_ones_own_is_solved_with_one_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    std::fs::write(path.join("own.yaml"), CIRCLE).expect("written");
    std::fs::write(path.join("target.txt"), "5\n").expect("written");
    let answer = json(path, "solve own.yaml --target target.txt --json");
    let roots = answer["roots"].as_array().expect("roots");
    assert_eq!((roots.len(), &answer["counts"]["ok"]), (2, &2.into()));
    assert!(answer["ms"].as_f64().is_some_and(|ms| ms > 0.0));
    for root in roots {
        let number = |i: usize, part: usize| root["root"][i][part].as_f64().expect("a number");
        assert!((number(0, 0).powi(2) + number(1, 0).powi(2) - 25.0).abs() < 1e-9);
        assert!((number(0, 0) - 2.0 * number(1, 0)).abs() < 1e-10 && number(0, 1).abs() < 1e-10);
        assert_eq!(root["status"], "ok");
        assert!(root["residual"].as_f64().is_some_and(|r| r < 1e-10));
    }
    // Made ahead, and given as numbers.
    let made = hc(path, "start own.yaml --out own.start");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said(&made).contains("2 roots up to symmetry"), "{}", said(&made));
    // With values to have an idea of the parameters, the start set is moved to where tracks are short.
    std::fs::write(path.join("valued.yaml"), CIRCLE.to_owned() + "values: {r: 5}\n").expect("written");
    let moved = hc(path, "start valued.yaml --from own.start --candidates 20 --out valued.start");
    assert!(moved.status.success() && said(&moved).contains("on 128 instances: steps"), "{}", said(&moved));
    let from_there = json(path, "solve valued.yaml --start valued.start --json");
    assert_eq!(from_there["counts"]["ok"], 2);
    // Loops do not connect the roots of this form, whose radius is a square; those of the next they do.
    let loops = hc(path, "start own.yaml --by monodromy --out own.m");
    assert!(said(&loops).contains("complete by the trace test: 1 roots"), "{}", said(&loops));
    std::fs::write(path.join("other.yaml"), CIRCLE.replace("r^2", "r")).expect("written");
    let loops = hc(path, "start other.yaml --by monodromy --out other.start");
    assert!(said(&loops).contains("complete by the trace test: 2 roots"), "{}", said(&loops));
    let again = json(path, "solve own.yaml --target target.txt --start own.start --json");
    assert_eq!(again["counts"]["ok"], 2);
    std::fs::write(path.join("p.txt"), "1 0\n").expect("written");
    std::fs::write(path.join("x.txt"), "0.894427190999916 0\n0.447213595499958 0\n").expect("written");
    let one = json(path, "solve own.yaml --target target.txt --start-params p.txt --start-sols x.txt --json");
    assert_eq!(one["counts"]["ok"], 1);
    // A form with symmetries gives the images too.
    let with = format!("{CIRCLE}symmetries: [{{x: -x, y: -y}}]\nvalues: {{r: 5}}\n");
    std::fs::write(path.join("own.yaml"), with).expect("written");
    let made = hc(path, "start own.yaml --out own.start --no-trace");
    assert!(said(&made).contains("1 roots up to symmetry"), "{}", said(&made));
    let images = json(path, "solve own.yaml --start own.start --json");
    assert_eq!((images["roots"].as_array().map(Vec::len), &images["tracks"]), (Some(2), &1.into()));
}

#[test]
fn the_library_is_listed_solved_and_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let listed = hc(folder.path(), "list");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        ["p3p", "five_point", "katsura10"].iter().all(|n| text.lines().any(|l| l.starts_with(n))),
        "{text}"
    );
    // The table of the README has the same problems, unknowns and roots.
    let readme = include_str!("../README.md");
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
    let row = |words: &Vec<&str>| format!("| `{}` | {} | {} |", words[0], words[1], words[3]);
    let table: Vec<String> = rows.iter().map(row).collect();
    let written = readme.lines().skip_while(|l| !l.starts_with("| problem | unknowns | roots |")).skip(2);
    let written: Vec<&str> = written.take_while(|l| l.starts_with('|')).collect();
    assert_eq!(written.len(), table.len());
    for (written, row) in written.iter().zip(&table) {
        assert!(written.starts_with(row.as_str()), "{written} is not {row}");
    }
    // Nothing is cut where no sentence ends.
    assert!(!text.lines().any(|l| l.ends_with("et al")), "{text}");
    let answer = json(folder.path(), "solve katsura3 --json");
    assert_eq!((&answer["counts"]["ok"], answer["roots"].as_array().map(Vec::len)), (&8.into(), Some(8)));
    let roots = |seed: u32| json(folder.path(), &format!("solve p3p --seed {seed} --json"))["roots"].clone();
    assert_eq!(roots(4), roots(4));
    assert_ne!(roots(4), roots(5));
    let focal = |answer: Value| {
        let all = answer["geometry"].as_array().expect("geometry").clone();
        all.iter().filter(|g| g["in_front"] == true).filter_map(|g| g["focal"].as_f64()).collect::<Vec<_>>()
    };
    let drawn = focal(json(folder.path(), "solve p4p_focal_radial --seed 4 --json"));
    let instance = flashreg::homotopy::problems::find("p4p_focal_radial").and_then(|p| p.instance(4));
    let instance = instance.expect("an instance");
    let truth = instance.truth.focal.expect("a focal length");
    assert!(drawn.iter().any(|f| (f - truth).abs() < 1e-6), "{drawn:?} {truth}");
    let text: String = instance.measured.iter().map(|v| format!("{v:e}\n")).collect();
    std::fs::write(folder.path().join("measured.txt"), text).expect("written");
    let given = json(folder.path(), "solve p4p_focal_radial --measured measured.txt --json");
    assert_eq!(focal(given).len(), drawn.len());
    assert!(error(folder.path(), "solve optimal_pnp --measured none.txt").contains("none.txt"));
    std::fs::write(folder.path().join("measured.txt"), "1\n2\n").expect("written");
    let refused = error(folder.path(), "solve optimal_pnp --measured measured.txt");
    assert!(refused.contains("measured"), "{refused}");
    let bench =
        json(folder.path(), "bench p3p triangulation_2 --instances 5 --json --residuals precision.png");
    let rows = bench["problems"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0]["problem"], &rows[0]["expected"]), (2, &"p3p".into(), &20.into()));
    assert_eq!(
        (&rows[0]["found"], &rows[0]["wrong"], &rows[0]["silent"]),
        (&20.into(), &0.into(), &0.into())
    );
    let number = |row: usize, path: &str| rows[row].pointer(path).and_then(Value::as_f64).expect("a number");
    for (row, roots) in [(0, 20), (1, 30)] {
        let counts = |what: &str| rows[row]["precision"][what]["counts"].as_array().expect("counts").clone();
        let total = |what: &str| counts(what).iter().filter_map(Value::as_u64).sum::<u64>();
        assert_eq!((total("residuals"), total("errors")), (roots, roots));
        assert!(number(row, "/precision/residuals/largest") < 1e-10);
        assert!(number(row, "/longest") >= number(row, "/steps"));
        assert!(number(row, "/operations/step") > number(row, "/operations/factorisation"));
    }
    let figure = std::fs::read(folder.path().join("precision.png")).expect("a figure");
    assert!(figure.starts_with(b"\x89PNG") && figure.ends_with(b"IEND\xae\x42\x60\x82"));
    // The instances are those that were solved.
    let drawn = hc(folder.path(), "instances p3p --instances 2 --seed 4");
    let lines: Vec<Value> =
        drawn.stdout.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect();
    let instance =
        flashreg::homotopy::problems::find("p3p").and_then(|p| p.instance(1004)).expect("an instance");
    let printed = lines[1]["parameters"].as_array().expect("parameters").iter().filter_map(Value::as_f64);
    let same = printed.zip(&instance.parameters).filter(|(a, b)| (a - b.re).abs() < 1e-14).count();
    assert_eq!((lines.len(), same), (2, 18));
}

#[test]
fn refusals_name_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    std::fs::write(path.join("own.yaml"), CIRCLE).expect("written");
    std::fs::write(path.join("wrong.yaml"), CIRCLE.replace("2*y", "2*z")).expect("written");
    std::fs::write(path.join("text.txt"), "1 2 3\n").expect("written");
    std::fs::write(path.join("two.txt"), "1\n2\n").expect("written");
    for (args, what) in [
        ("solve nothing", "neither a file nor a problem"),
        ("solve own.yaml", "no target"),
        ("solve wrong.yaml", "line 3, column 36 (equation 2): unknown symbol `z`"),
        ("solve own.yaml --target text.txt", "line 1: expected `re im`"),
        ("solve own.yaml --target two.txt", "2 parameters in the target, the system has 1"),
        ("solve own.yaml --target absent.txt", "cannot read absent.txt"),
        ("solve p3p --start own.yaml", "not a start set"),
        ("bench nothing", "no problem `nothing`"),
    ] {
        let said = error(path, args);
        assert!(said.contains(what), "{args}: {said}");
    }
}

#[test]
fn it_says_where_tracks_are_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    // One instance is done before a GPU would be ready, if there is one.
    let answer = json(folder.path(), "solve p3p --json");
    assert!(answer["place"].as_str().is_some_and(|p| p.starts_with("on the CPU: ")), "{answer}");
    assert_eq!((&answer["again"], &answer["kernel_ms"]), (&0.into(), &Value::Null));
    let refused = error(folder.path(), "solve p3p --backend cpu --precision f32");
    assert!(refused.contains("single precision is for the GPU"), "{refused}");
}
