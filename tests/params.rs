//! One table of parameters, one of statuses, one of counters: the structs, `config/*.yaml` and the
//! README say the same.

use flashreg::params::{BackendChoice, OnFault, ParamError, Params, Range, StampZero, Value};
use flashreg::status::{Counter, Status};
use std::path::{Path, PathBuf};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> std::io::Result<String> {
    std::fs::read_to_string(root().join(path))
}

/// The text of the README between `<!-- name:begin -->` and `<!-- name:end -->`.
fn readme_section(name: &str) -> Result<String, Box<dyn std::error::Error>> {
    let readme = read("README.md")?;
    let (_, rest) = readme.split_once(&format!("<!-- {name}:begin -->\n")).ok_or("no begin marker")?;
    let (section, _) = rest.split_once(&format!("<!-- {name}:end -->")).ok_or("no end marker")?;
    Ok(section.to_owned())
}

fn assert_readme(name: &str, wanted: &str) -> Outcome {
    let found = readme_section(name)?;
    assert!(found == wanted, "README.md, section '{name}', must read:\n{wanted}");
    Ok(())
}

#[test]
fn localizer_yaml_is_the_table() -> Outcome {
    let wanted = Params::default().to_yaml();
    assert!(read("config/localizer.yaml")? == wanted, "config/localizer.yaml must read:\n{wanted}");
    Ok(())
}

#[test]
fn readme_holds_every_parameter() -> Outcome {
    assert_readme("parameters", &Params::default().to_markdown())
}

#[test]
fn readme_holds_every_status() -> Outcome {
    let mut statuses = String::from("| category | meaning |\n|---|---|\n");
    for status in Status::ALL {
        statuses += &format!("| `{status}` |{} |\n", status.meaning());
    }
    assert_readme("statuses", &statuses)
}

#[test]
fn readme_holds_every_counter() -> Outcome {
    let mut counters = String::from("| counter | meaning |\n|---|---|\n");
    for counter in Counter::ALL {
        counters += &format!("| `{counter}` |{} |\n", counter.meaning());
    }
    assert_readme("counters", &counters)
}

#[test]
fn yaml_and_back_changes_nothing() -> Outcome {
    let mut changed = Params::default();
    changed.set("registration.tau", &Value::Float(0.25))?;
    changed.set("frames.map", &Value::Text("the \"old\" town\\1".into()))?;
    changed.set("registration.pivots", &Value::Int(77))?;
    changed.set("input.stamp_zero", &Value::Text("now".into()))?;
    let mut read_back = Params::default();
    read_back.apply_yaml(&changed.to_yaml(), "flashreg")?;
    assert_eq!(read_back, changed);
    assert_eq!(read_back.input.stamp_zero, StampZero::Now);
    Ok(())
}

#[test]
fn every_preset_loads_after_localizer_yaml() -> Outcome {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("config"))? {
        let path = entry?.path();
        // The levels of the simulation are no parameters.
        if path.extension().is_some_and(|e| e == "yaml") && !path.ends_with("simulation.yaml") {
            let mut params = Params::default();
            params.apply_yaml(&read("config/localizer.yaml")?, "flashreg")?;
            assert_eq!(params, Params::default());
            load(&mut params, &path)?;
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} files in config/");
    Ok(())
}

fn load(params: &mut Params, path: &Path) -> Outcome {
    let text = std::fs::read_to_string(path)?;
    params.apply_yaml(&text, "flashreg").map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(())
}

#[test]
fn presets_say_what_they_are_for() -> Outcome {
    let mut indoor = Params::default();
    load(&mut indoor, &root().join("config/indoor.yaml"))?;
    let r = &indoor.registration;
    assert_eq!((r.tau, r.min_length, r.inlier_threshold), (0.012, 0.15, 0.1));
    let mut outdoor = Params::default();
    load(&mut outdoor, &root().join("config/outdoor.yaml"))?;
    let r = &outdoor.registration;
    assert_eq!((r.tau, r.min_length, r.inlier_threshold), (0.1, 0.15, 0.4));
    // Nothing else is tuned.
    outdoor.registration = Params::default().registration;
    assert_eq!(outdoor, Params::default());
    let mut jetson = Params::default();
    load(&mut jetson, &root().join("config/jetson.yaml"))?;
    let (r, b) = (&jetson.registration, &jetson.backend);
    assert_eq!((r.max_correspondences, r.time_budget_ms, b.threads), (8192, 50.0, 4));
    // The lengths are left to the place: both are loaded, in either order.
    assert_eq!((b.kind, b.on_fault), (BackendChoice::Auto, OnFault::Cpu));
    assert_eq!(r.tau, Params::default().registration.tau);
    Ok(())
}

#[test]
fn a_misspelt_name_is_refused_with_the_nearest_one() {
    for (wrong, nearest) in [
        ("registration.tua", "registration.tau"),
        ("tau", "registration.tau"),
        ("tf.holdsec", "tf.hold_sec"),
        ("frame.map", "frames.map"),
        ("acceptance.min_inlier", "acceptance.min_inliers"),
        ("backend", "backend.kind"),
    ] {
        let mut params = Params::default();
        match params.set(wrong, &Value::Float(1.0)) {
            Err(ParamError::Unknown { name, nearest: said }) => {
                assert_eq!(name, wrong);
                // `backend` is a group: any of its members will do.
                assert!(said == nearest || said.starts_with(wrong), "{wrong}: {said}");
            }
            other => panic!("{wrong}: {other:?}"),
        }
        assert_eq!(params, Params::default());
    }
}

#[test]
fn every_range_is_kept_at_both_ends() {
    for spec in Params::specs() {
        let mut params = Params::default();
        let default = params.get(spec.name);
        let refused = |params: &mut Params, value: Value| match params.set(spec.name, &value) {
            Err(ParamError::Range { name, .. } | ParamError::Type { name, .. }) => {
                assert_eq!(name, spec.name)
            }
            other => panic!("{} = {value}: {other:?}", spec.name),
        };
        if let Range::Within(low, high) = spec.range {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, low - 1.0, high + 1.0] {
                refused(&mut params, Value::Float(bad));
            }
            refused(&mut params, Value::Int(i64::MAX));
            refused(&mut params, Value::Int(i64::MIN));
        }
        if let Range::OneOf(_) = spec.range {
            refused(&mut params, Value::Text("no such word".into()));
            refused(&mut params, Value::Int(1));
            refused(&mut params, Value::Bool(true));
        }
        if spec.range == Range::NonEmpty {
            refused(&mut params, Value::Text("  ".into()));
        }
        // No parameter takes both text and numbers.
        let wrong = match default {
            Some(Value::Text(_)) => Value::Float(0.5),
            _ => Value::Text("1".into()),
        };
        refused(&mut params, wrong);
        assert_eq!(params, Params::default(), "{} changed by a refused value", spec.name);
        // The default is within its own range.
        if let Some(value) = default {
            assert_eq!(params.set(spec.name, &value), Ok(()));
        }
    }
}

#[test]
fn whole_numbers_are_real_numbers_but_not_the_reverse() {
    let mut params = Params::default();
    assert_eq!(params.set("registration.tau", &Value::Int(1)), Ok(()));
    assert_eq!(params.registration.tau, 1.0);
    assert!(matches!(
        params.set("registration.pivots", &Value::Float(10.0)),
        Err(ParamError::Type { expected: "integer", .. })
    ));
}

#[test]
fn parameters_read_at_start_cannot_be_changed_later() {
    for spec in Params::specs().iter().filter(|s| !s.live) {
        let mut params = Params::default();
        let other = match params.get(spec.name) {
            Some(Value::Text(_)) => match spec.range {
                Range::OneOf(words) => Value::Text(words.last().copied().unwrap_or_default().into()),
                _ => Value::Text("another".into()),
            },
            Some(Value::Int(v)) => Value::Int(v + 1),
            Some(Value::Float(v)) => Value::Float(if v == 0.0 { 1.0 } else { v * 1.5 }),
            Some(Value::Bool(v)) => Value::Bool(!v),
            None => panic!("{} has no value", spec.name),
        };
        assert_eq!(params.set_live(spec.name, &other), Err(ParamError::StartOnly(spec.name)));
        assert_eq!(params, Params::default());
        assert_eq!(params.set(spec.name, &other), Ok(()), "{}", spec.name);
        // Writing what it already has is harmless.
        assert_eq!(params.set_live(spec.name, &other), Ok(()));
    }
}

#[test]
fn values_that_belong_together_are_set_together_or_not_at_all() {
    let (triples, candidates) = ("registration.triples_per_pivot", "registration.bounded_thread_candidates");
    let mut params = Params::default();
    assert!(matches!(params.set(triples, &Value::Int(8)), Err(ParamError::Conflict { .. })));
    let both = [(triples, Value::Int(8)), (candidates, Value::Int(8))];
    assert_eq!(params.set_live_all(both.iter().map(|(n, v)| (*n, v))), Ok(()));
    assert_eq!(
        (params.registration.triples_per_pivot, params.registration.bounded_thread_candidates),
        (8, 8)
    );
    let before = params.clone();
    let half = [("registration.tau", Value::Float(0.5)), ("frames.map", Value::Text("world".into()))];
    assert!(params.set_live_all(half.iter().map(|(n, v)| (*n, v))).is_err());
    assert_eq!(params, before);
    let frames = [("frames.map", Value::Text("odom".into()))];
    assert!(matches!(params.set_all(frames.iter().map(|(n, v)| (*n, v))), Err(ParamError::Conflict { .. })));
}

#[test]
fn sections_of_other_nodes_and_names_of_ros_are_skipped() -> Outcome {
    let mut params = Params::default();
    params.apply_yaml(
        "flashreg:\n  ros__parameters:\n    use_sim_time: true\n    qos_overrides./tf.depth: 5\n    registration.tau: 0.5\n\
         /**:\n  ros__parameters:\n    registration: {tau: 0.2, pivots: 10}\n\
         other:\n  ros__parameters:\n    registration: {pivots: 20}\n    anything: [1, 2]\n",
        "flashreg",
    )?;
    assert_eq!((params.registration.tau, params.registration.pivots), (0.5, 10));
    for bad in ["registration: {tau: [1, 2]}", "registration: {tau: }", "- 1", "registration: {tua: 1}", "{"]
    {
        assert!(params.apply_yaml(bad, "flashreg").is_err(), "{bad}");
    }
    Ok(())
}
