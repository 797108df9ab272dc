//! The command line, as far as r2r does not tell what it read from it.

use log::LevelFilter;

/// What the node takes from its command line itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments {
    /// Level of the log of the library, from `--log-level`.
    pub log_level: LevelFilter,
    /// Remap rules, left and right of `:=`.
    remaps: Vec<(String, String)>,
}

/// An argument that is neither the node's nor after `--ros-args`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("unexpected argument '{0}': the node takes ROS arguments only, after --ros-args")]
pub struct UnexpectedArgument(pub String);

impl Arguments {
    /// Reads the arguments, without the name of the program.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, UnexpectedArgument> {
        let mut out = Self { log_level: LevelFilter::Info, remaps: Vec::new() };
        let mut args = args.into_iter();
        let mut ros = false;
        while let Some(arg) = args.next() {
            match (ros, arg.as_str()) {
                (_, "--ros-args") => ros = true,
                (true, "--") => ros = false,
                (true, "-r" | "--remap") => {
                    if let Some((from, to)) = args.next().as_deref().and_then(|r| r.split_once(":=")) {
                        out.remaps.push((from.to_owned(), to.to_owned()));
                    }
                }
                (true, "--log-level") => {
                    let wish = args.next().unwrap_or_default();
                    let level = wish.rsplit_once(":=").map_or(wish.as_str(), |(_, level)| level);
                    out.log_level = match level.to_ascii_lowercase().as_str() {
                        "debug" => LevelFilter::Debug,
                        "warn" => LevelFilter::Warn,
                        "error" | "fatal" => LevelFilter::Error,
                        _ => LevelFilter::Info,
                    };
                }
                (true, _) => {}
                (false, _) => return Err(UnexpectedArgument(arg)),
            }
        }
        Ok(out)
    }

    /// The name under which a relative topic of the node is found in the graph: the first remap
    /// rule that fits, then the namespace. r2r resolves names in the same way and does not tell.
    pub fn resolve(&self, topic: &str, node: &str, namespace: &str) -> String {
        let full = |name: &str| match name.strip_prefix("~/") {
            Some(rest) => format!("{}/{node}/{rest}", namespace.trim_end_matches('/')),
            None if name.starts_with('/') => name.to_owned(),
            None => format!("{}/{name}", namespace.trim_end_matches('/')),
        };
        let wanted = full(topic);
        let rule = self.remaps.iter().find(|(from, _)| {
            let from = match from.split_once(':') {
                Some((prefix, rest)) if prefix == node => rest,
                Some(_) => return false,
                None => from,
            };
            !from.starts_with("__") && full(from) == wanted
        });
        rule.map_or(wanted.clone(), |(_, to)| full(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, UnexpectedArgument> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn topics_resolve_as_ros_resolves_them() -> Result<(), UnexpectedArgument> {
        let none = parse("")?;
        assert_eq!(none.resolve("points", "n", "/"), "/points");
        assert_eq!(none.resolve("points", "n", "/robot"), "/robot/points");
        assert_eq!(none.resolve("~/points", "n", "/robot"), "/robot/n/points");
        let some = parse("--ros-args -r __ns:=/robot -r points:=lidar --remap n:clock:=/sim -- ")?;
        assert_eq!(some.resolve("points", "n", "/robot"), "/robot/lidar");
        assert_eq!(some.resolve("clock", "n", "/"), "/sim");
        assert_eq!(some.resolve("clock", "other", "/"), "/clock");
        let absolute = parse("--ros-args -r /robot/points:=/lidar")?;
        assert_eq!(absolute.resolve("points", "n", "/robot"), "/lidar");
        assert_eq!(absolute.resolve("points", "n", "/"), "/points");
        Ok(())
    }

    #[test]
    fn log_levels_are_understood() -> Result<(), UnexpectedArgument> {
        assert_eq!(parse("")?.log_level, LevelFilter::Info);
        assert_eq!(parse("--ros-args --log-level DEBUG")?.log_level, LevelFilter::Debug);
        assert_eq!(parse("--ros-args --log-level flashreg:=warn")?.log_level, LevelFilter::Warn);
        Ok(())
    }

    #[test]
    fn arguments_outside_ros_args_are_refused() {
        assert!(parse("--ros-args -p a:=1 -- --ros-args -r a:=b").is_ok());
        assert_eq!(parse("--params-file x"), Err(UnexpectedArgument("--params-file".into())));
    }
}
