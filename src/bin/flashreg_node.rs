//! The ROS 2 node of flashreg.
//!
//! Without the feature `ros` the program is built all the same and says that it cannot run. With
//! `required-features` in Cargo.toml instead, `colcon build` would leave the node out without a
//! word: cargo-ament-build installs such a program only if the features are named on its command
//! line, and takes no notice of the default ones.

use std::process::ExitCode;

#[cfg(not(feature = "ros"))]
fn main() -> ExitCode {
    eprintln!("flashreg_node: built without the feature 'ros'");
    ExitCode::FAILURE
}

#[cfg(feature = "ros")]
fn main() -> ExitCode {
    match node::start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flashreg_node: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(feature = "ros")]
mod node {
    use flashreg::ros::arguments::Arguments;
    use flashreg::ros::node::{run, NodeError};
    use signal_hook::consts::{SIGINT, SIGTERM};
    use std::sync::atomic::AtomicBool;
    use std::sync::Arc;

    pub fn start() -> Result<(), NodeError> {
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
}
