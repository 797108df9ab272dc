//! The ROS 2 node of flashreg.

use flashreg::ros::arguments::Arguments;
use flashreg::ros::node::{run, NodeError};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flashreg_node: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn start() -> Result<(), NodeError> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    env_logger::Builder::new().filter_level(arguments.log_level).parse_default_env().init();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    run(&arguments, &stop)
}
