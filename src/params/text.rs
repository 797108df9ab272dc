//! Parameters as text: YAML in and out, and the table of the README.

use super::spec::{ParamError, Value};
use super::{Params, GROUPS, SPECS};
use std::fmt::Write as _;

impl Params {
    /// Reads YAML: nested groups or dotted names, bare or below `<node>: ros__parameters:`.
    /// Sections for `/**` are applied first, then those for `node`; other nodes' are skipped.
    pub fn apply_yaml(&mut self, text: &str, node: &str) -> Result<(), ParamError> {
        let root: serde_yaml::Value =
            serde_yaml::from_str(text).map_err(|e| ParamError::Yaml(e.to_string()))?;
        let mut values = Vec::new();
        match &root {
            serde_yaml::Value::Null => {}
            serde_yaml::Value::Mapping(map) => {
                let is_ros = map.values().any(|v| v.get("ros__parameters").is_some());
                if !is_ros {
                    flatten("", &root, &mut values)?;
                }
                for wanted in ["/**", node] {
                    for (key, section) in map.iter().filter(|_| is_ros) {
                        let key = key.as_str().unwrap_or_default();
                        if key == wanted || (wanted != "/**" && key.trim_start_matches('/') == wanted) {
                            let body = section.get("ros__parameters").ok_or_else(|| {
                                ParamError::Yaml(format!("section '{key}' has no 'ros__parameters'"))
                            })?;
                            flatten("", body, &mut values)?;
                        }
                    }
                }
            }
            _ => return Err(ParamError::Yaml("expected a mapping of parameters".into())),
        }
        self.set_all(values.iter().map(|(n, v)| (n.as_str(), v)))
    }

    /// The commented parameter file, in the form that ROS reads.
    pub fn to_yaml(&self) -> String {
        let mut out = String::from(
            "# Every parameter with its default. Written by `flashreg params`; a test holds it to src/params.rs.\n\
             # [start]: read at start only; the others may be changed while the node runs.\n\
             /**:\n  ros__parameters:\n",
        );
        for (group, doc) in GROUPS {
            let _ = writeln!(out, "    {group}:  #{doc}");
            for spec in SPECS.iter().filter(|s| s.name.split('.').next() == Some(group)) {
                let unit = if spec.unit.is_empty() { String::new() } else { format!("{}; ", spec.unit) };
                let start = if spec.live { "" } else { " [start]" };
                let _ = writeln!(out, "      #{} ({unit}{}){start}", spec.doc, spec.range);
                let field = spec.name.split('.').nth(1).unwrap_or_default();
                let value = self.get(spec.name).map(|v| yaml_text(&v)).unwrap_or_default();
                let _ = writeln!(out, "      {field}: {value}");
            }
        }
        out
    }

    /// The table of the README.
    pub fn to_markdown(&self) -> String {
        let mut out = String::from(
            "| parameter | default | unit | range | live | meaning |\n|---|---|---|---|---|---|\n",
        );
        for s in SPECS {
            let value = self.get(s.name).map(|v| v.to_string()).unwrap_or_default();
            let live = if s.live { "yes" } else { "start" };
            let _ =
                writeln!(out, "| `{}` | `{value}` | {} | {} | {live} |{} |", s.name, s.unit, s.range, s.doc);
        }
        out
    }
}

/// A word such as `off` or `true` must be quoted to stay a word.
fn yaml_text(value: &Value) -> String {
    match value {
        Value::Text(t) => format!("\"{}\"", t.replace('\\', "\\\\").replace('"', "\\\"")),
        other => other.to_string(),
    }
}

fn flatten(
    prefix: &str,
    value: &serde_yaml::Value,
    out: &mut Vec<(String, Value)>,
) -> Result<(), ParamError> {
    use serde_yaml::Value as Y;
    let leaf = match value {
        Y::Mapping(map) => {
            for (key, inner) in map {
                let key = key
                    .as_str()
                    .ok_or_else(|| ParamError::Yaml(format!("a key below '{prefix}' is not text")))?;
                let name = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
                flatten(&name, inner, out)?;
            }
            return Ok(());
        }
        Y::Bool(v) => Value::Bool(*v),
        Y::Number(n) => match n.as_i64() {
            Some(v) => Value::Int(v),
            None => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Y::String(v) => Value::Text(v.clone()),
        Y::Null | Y::Sequence(_) | Y::Tagged(_) => {
            return Err(ParamError::Yaml(format!("'{prefix}' must be a single value")));
        }
    };
    if !is_ros_own(prefix) {
        out.push((prefix.to_owned(), leaf));
    }
    Ok(())
}

/// Names that ROS itself gives a meaning to in every node, and that launch files set.
pub fn is_ros_own(name: &str) -> bool {
    matches!(name, "use_sim_time" | "start_type_description_service") || name.starts_with("qos_overrides.")
}
