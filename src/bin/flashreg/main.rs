//! The command line.

mod simulate;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tells a robot where it is: registers feature correspondences and says whether to trust the pose.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a simulated drive through a building as an MCAP file that ROS 2 and Foxglove play.
    Simulate(simulate::Simulate),
}

fn main() -> ExitCode {
    env_logger::init();
    match Cli::parse().command {
        Command::Simulate(args) => report(args.run()),
    }
}

/// 0, or the error on stderr and 2.
fn report(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}
