//! `flashreg params`, and parameters from files and options.

use anyhow::Context;
use clap::{Args, ValueEnum};
use flashreg::params::{Params, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Name of the node: its sections of a parameter file apply.
pub const NODE: &str = "flashreg";

#[derive(Args)]
pub struct PrintParams {
    /// Print the table of the README instead of YAML
    #[arg(long)]
    markdown: bool,
}

impl PrintParams {
    pub fn run(self) {
        let params = Params::default();
        let text = if self.markdown { params.to_markdown() } else { params.to_yaml() };
        super::say(text.trim_end());
    }
}

/// Applies parameter files in their order.
pub fn apply_files(params: &mut Params, files: &[PathBuf]) -> anyhow::Result<()> {
    for path in files {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        params.apply_yaml(&text, NODE).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Parameter files that are built in.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    Indoor,
    Outdoor,
}

impl Preset {
    fn yaml(self) -> &'static str {
        match self {
            Preset::Indoor => include_str!("../../../config/indoor.yaml"),
            Preset::Outdoor => include_str!("../../../config/outdoor.yaml"),
        }
    }
}

/// The options of a command that registers.
#[derive(Args)]
pub struct Choice {
    /// Lengths for points some 5 cm (indoor) or some decimetres (outdoor) apart
    #[arg(long, value_enum, default_value = "indoor")]
    pub preset: Preset,
    /// Parameter file, applied after the preset; may be given again
    #[arg(long, visible_alias = "config", value_name = "YAML")]
    params: Vec<PathBuf>,
    /// One parameter, e.g. registration.tau=0.02, applied last; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

impl Choice {
    /// The parameters that were chosen.
    pub fn params(&self) -> anyhow::Result<Params> {
        self.params_with(self.preset)
    }

    /// The same with another preset.
    pub fn params_with(&self, preset: Preset) -> anyhow::Result<Params> {
        let mut params = Params::default();
        params.apply_yaml(preset.yaml(), NODE)?;
        apply_files(&mut params, &self.params)?;
        apply_settings(&mut params, &self.set)?;
        Ok(params)
    }

    /// The same on a backend, if one is named.
    pub fn params_on(&self, backend: Option<&str>, preset: Preset) -> anyhow::Result<Params> {
        let mut params = self.params_with(preset)?;
        if let Some(kind) = backend {
            params.set("backend.kind", &Value::Text(kind.to_owned()))?;
        }
        Ok(params)
    }
}

/// Applies `name=value` settings, all together so that their order does not matter.
fn apply_settings(params: &mut Params, settings: &[String]) -> anyhow::Result<()> {
    let mut values: BTreeMap<&str, serde_yaml::Value> = BTreeMap::new();
    for setting in settings {
        let (name, value) =
            setting.split_once('=').with_context(|| format!("--set {setting}: name=value needed"))?;
        let value = serde_yaml::from_str(value).with_context(|| format!("--set {setting}"))?;
        values.insert(name.trim(), value);
    }
    params.apply_yaml(&serde_yaml::to_string(&values)?, NODE).context("--set")
}
