//! The command line.

mod answer;
mod bag;
mod bench;
mod bench_camera;
mod bench_clouds;
mod bench_localization;
mod bench_pairs;
mod bench_registration;
mod doctor;
mod figure;
mod hc;
#[cfg(feature = "cuda")]
mod hc_lu;
mod hc_start;
#[cfg(feature = "cuda")]
mod kernels;
mod localize;
mod map;
mod params;
mod pose;
mod register;
mod replay;
mod scenarios;
mod simulate;

use anyhow::Context;
use clap::{Parser, Subcommand};
use serde::Serialize;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::Path;
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
    /// Register the correspondences in a file: exit code 0 only if the pose can be trusted.
    Register(register::Register),
    /// Estimate the pose of a camera, or points, from features in a file: exit code 0 only if it can be trusted.
    Pose(pose::EstimatePose),
    /// Write a simulated drive, and its map, as an MCAP file of ROS 2 messages.
    Simulate(simulate::Simulate),
    /// Localize along a recorded drive and say how good and how fast it was: exit code 2 if a gate failed.
    Replay(Box<replay::Replay>),
    /// Say where in a map one scan was made: exit code 0 only if that can be trusted.
    Localize(localize::Localize),
    /// Say what a map file holds, and whether it is fit: exit code 2 if it is not.
    Map(map::MapCommand),
    /// Say what is in a bag: topics, times, and what cannot be read.
    Bag(bag::ShowBag),
    /// Measure how long a registration takes, as a whole and stage by stage.
    Bench(bench::Bench),
    /// Find all roots of systems of polynomial equations.
    Hc(hc::Hc),
    /// Compile the CUDA kernels ahead, for robots without a compiler.
    ///
    /// NVRTC makes one file for each architecture. The node takes them from $FLASHREG_KERNELS, or
    /// from share/flashreg/kernels of its installation.
    #[cfg(feature = "cuda")]
    Kernels(kernels::Kernels),
    /// Print every parameter with its default, unit, range and meaning.
    Params(params::PrintParams),
    /// Say what is there, what is missing, and what to do: exit code 0 if the node can run.
    Doctor(doctor::Doctor),
}

fn main() -> ExitCode {
    env_logger::init();
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let mut args = std::env::args().skip(1);
        let command = args.next().filter(|_| error.use_stderr());
        if matches!(command.as_deref(), Some("register" | "pose" | "localize")) && args.any(|a| a == "--json")
        {
            say(answer::bad_input(error.render().to_string().trim()));
        }
        if command.as_deref() == Some("replay") {
            // 2 would say that a gate has failed.
            eprint!("{}", error.render());
            std::process::exit(1);
        }
        error.exit()
    });
    match cli.command {
        Command::Register(args) => args.run(),
        Command::Pose(args) => args.run(),
        Command::Simulate(args) => report(args.run()),
        Command::Replay(args) => args.run(),
        Command::Localize(args) => args.run(),
        Command::Map(args) => args.run(),
        Command::Bag(args) => report(args.run()),
        Command::Bench(args) => report(args.run()),
        Command::Hc(args) => report(args.run()),
        #[cfg(feature = "cuda")]
        Command::Kernels(args) => args.run(),
        Command::Params(args) => {
            args.run();
            ExitCode::SUCCESS
        }
        Command::Doctor(args) => args.run(),
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

/// Writes a JSON object into a file, or prints it if that is `-`.
fn write_json(path: &Path, object: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(object)?;
    if path == Path::new("-") {
        say(text);
        return Ok(());
    }
    std::fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

/// Prints a line. A reader that has gone (`| head`) is no error.
fn say(text: impl Display) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => eprintln!("error: cannot print: {e}"),
        _ => {}
    }
}
