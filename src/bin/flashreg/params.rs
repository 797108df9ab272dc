//! `flashreg params`, and parameters from files and options.

use anyhow::Context;
use clap::Args;
use flashreg::params::Params;
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

/// Applies `name=value` settings, all together so that their order does not matter.
pub fn apply_settings(params: &mut Params, settings: &[String]) -> anyhow::Result<()> {
    let mut values: BTreeMap<&str, serde_yaml::Value> = BTreeMap::new();
    for setting in settings {
        let (name, value) =
            setting.split_once('=').with_context(|| format!("--set {setting}: name=value needed"))?;
        let value = serde_yaml::from_str(value).with_context(|| format!("--set {setting}"))?;
        values.insert(name.trim(), value);
    }
    params.apply_yaml(&serde_yaml::to_string(&values)?, NODE).context("--set")
}
