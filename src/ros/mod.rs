//! The ROS 2 node: the only place that names r2r.
//!
//! One thread spins and drains every stream into the [`streams::Inbox`]; one worker owns the
//! localizer, takes the newest message, and publishes. No message waits behind an older one.

pub mod arguments;
pub mod diagnostics;
pub mod logger;
pub mod maps;
pub mod node;
pub mod parameters;
pub mod publish;
pub mod streams;
mod worker;

use crate::messages::Stamp;
use r2r::builtin_interfaces::msg::Time;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The clock of the node: system time, or `/clock` where `use_sim_time` is set.
#[derive(Clone)]
pub struct NodeClock(Arc<Mutex<r2r::Clock>>);

impl NodeClock {
    /// The clock of a node.
    pub fn of(node: &r2r::Node) -> Self {
        Self(node.get_ros_clock())
    }

    /// The time; zero while `/clock` is awaited.
    pub fn now(&self) -> Stamp {
        match lock(&self.0).get_now() {
            Ok(now) => Stamp(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)),
            Err(_) => Stamp(0),
        }
    }
}

/// Locks even if another thread died while it held the lock: it only ever guards plain values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stamp as ROS writes it.
fn time(stamp: Stamp) -> Time {
    let (sec, nanosec) = (stamp.0.div_euclid(1_000_000_000), stamp.0.rem_euclid(1_000_000_000));
    Time { sec: sec.clamp(i32::MIN.into(), i32::MAX.into()) as i32, nanosec: nanosec as u32 }
}

/// Text without NUL, which r2r cannot send: names from messages may hold anything.
fn clean(text: &str) -> String {
    text.replace('\0', "?")
}
