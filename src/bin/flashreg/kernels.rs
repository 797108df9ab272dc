//! `flashreg kernels`: the CUDA kernels, compiled ahead.

use super::say;
use anyhow::Context;
use clap::Args;
use flashreg::gpu::bundle::ahead::{self, ARCHITECTURES};
use flashreg::gpu::nvrtc::Nvrtc;
use flashreg::homotopy::gpu::any;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct Kernels {
    /// Folder of the files
    folder: PathBuf,
    /// Architectures, such as 87 for sm_87, separated by commas; unless given those of 75, 80, 86, 87,
    /// 89, 90, 100 and 120 that the compiler knows
    #[arg(long, value_delimiter = ',', value_name = "NUMBER")]
    arch: Vec<i32>,
    /// Compile nothing, say what the folder holds: exit code 0 if all of it can be used
    #[arg(long, conflicts_with = "arch")]
    list: bool,
}

impl Kernels {
    pub fn run(self) -> ExitCode {
        let done = if self.list { self.list() } else { self.make().map(|()| true) };
        match done {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(e) => super::report(Err(e)),
        }
    }

    fn make(&self) -> anyhow::Result<()> {
        let nvrtc = Nvrtc::get().map_err(anyhow::Error::msg)?;
        let known = nvrtc.architectures()?;
        let [major, minor] = nvrtc.version();
        let wanted = match self.arch.as_slice() {
            [] => ARCHITECTURES.into_iter().filter(|architecture| known.contains(architecture)).collect(),
            named => named.to_vec(),
        };
        // Nothing is made if not all can be.
        for architecture in &wanted {
            let usable = *architecture >= 75 && known.contains(architecture);
            anyhow::ensure!(
                usable,
                "NVRTC {major}.{minor} cannot make kernels for sm_{architecture}; it knows {known:?}, and \
                 75 is the least that the kernels need"
            );
        }
        for architecture in wanted {
            let name = format!("sm_{architecture}");
            for (path, bytes) in ahead::make(nvrtc, architecture, &self.folder, &any::programs())? {
                say(format_args!("{name:<8} {bytes:>8} bytes  NVRTC {major}.{minor}  {}", path.display()));
            }
        }
        Ok(())
    }

    /// True if every file can be used.
    fn list(&self) -> anyhow::Result<bool> {
        let files =
            ahead::list(&self.folder, &any::programs()).with_context(|| self.folder.display().to_string())?;
        for file in &files {
            match &file.content {
                Ok((bytes, compiler)) => say(format_args!("{:<31} {bytes:>8} bytes  {compiler}", file.name)),
                Err(why) => say(format_args!("{:<31} cannot be used: {why}", file.name)),
            }
        }
        Ok(!files.is_empty() && files.iter().all(|file| file.content.is_ok()))
    }
}
