//! `flashreg hc`: polynomial systems and what they stand on.

use super::hc_lu::BenchLu;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Hc {
    /// Measure the batched solution of small linear systems on the GPU beside cuBLAS.
    ///
    /// Both get the same matrices, fresh for every measurement, column by column, on the device; both
    /// are measured there, in the same stream. cuBLAS is getrfBatched and getrsBatched.
    Lu(BenchLu),
}

impl Hc {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Lu(args) => args.run(),
        }
    }
}
