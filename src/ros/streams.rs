//! What has arrived and is not yet worked on.
//!
//! r2r's streams hold ten messages and drop the newest when full, so every stream is drained at
//! once, into the [`Inbox`]: one latest-value slot per kind of input. The worker takes from it.
//! Nothing here can grow.

use crate::localizer::map::Map;
use crate::localizer::{Input, Pending, PerInput, Queue};
use crate::params::Params;
use r2r::geometry_msgs::msg::PoseWithCovarianceStamped;
use r2r::std_srvs::srv::Trigger;
use r2r::ServiceRequest;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Holds the newest value only.
#[derive(Debug)]
pub struct LatestSlot<T>(Option<T>);

impl<T> Default for LatestSlot<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> LatestSlot<T> {
    /// Stores a value; returns the one that it replaced and that nobody took.
    pub fn put(&mut self, value: T) -> Option<T> {
        self.0.replace(value)
    }

    /// Takes the value out.
    pub fn take(&mut self) -> Option<T> {
        self.0.take()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// A message of an input as it came from the wire, and when.
pub type Message = Pending<Instant>;

/// Calibrations of cameras that wait at most; then the oldest is dropped.
const CAMERA_INFOS: usize = 64;

/// Everything the worker has to look at.
#[derive(Default)]
pub struct Work {
    /// Newest message of each input.
    pub messages: Queue<Instant>,
    /// Messages that were replaced by a newer one since the last look.
    pub overwritten: PerInput<u64>,
    /// Calibrations of cameras (CDR), oldest first.
    pub camera_infos: VecDeque<Vec<u8>>,
    /// Newest initial pose.
    pub initial_pose: LatestSlot<PoseWithCovarianceStamped>,
    /// Newest map.
    pub map: LatestSlot<Arc<Map>>,
    /// Maps that could not be used since the last look.
    pub refused_maps: u64,
    /// Newest parameters.
    pub params: LatestSlot<Params>,
    /// Newest wish of `set_active`.
    pub active: LatestSlot<bool>,
    /// Somebody asked to forget the pose.
    pub reset: bool,
    /// Somebody asks to register the last message now.
    pub trigger: LatestSlot<ServiceRequest<Trigger::Service>>,
    /// The clock jumped or started.
    pub clock: bool,
    /// Transforms have arrived.
    pub transforms: bool,
    /// The node stops.
    pub stop: bool,
}

impl Work {
    /// Something other than transforms has arrived.
    fn is_urgent(&self) -> bool {
        !self.messages.is_empty()
            || !self.camera_infos.is_empty()
            || !self.initial_pose.is_empty()
            || !self.map.is_empty()
            || self.refused_maps > 0
            || !self.params.is_empty()
            || !self.active.is_empty()
            || self.reset
            || !self.trigger.is_empty()
            || self.clock
            || self.stop
    }
}

/// Why the worker wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeOn {
    /// Messages and commands.
    Input,
    /// The same, and transforms.
    InputOrTransforms,
}

/// The slots between the thread that spins and the worker.
#[derive(Default)]
pub struct Inbox {
    work: Mutex<Work>,
    wake: Condvar,
}

impl Inbox {
    /// An empty one, to be shared by both threads.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a message of an input.
    pub fn put_message(&self, input: Input, cdr: Vec<u8>) {
        let now = Instant::now();
        self.post(|work| {
            if work.messages.put(Message::new(input, cdr, now, now)).is_some() {
                *work.overwritten.get_mut(input) += 1;
            }
        });
    }

    /// Stores the calibration of a camera: there may be several of them on one topic.
    pub fn put_camera_info(&self, cdr: Vec<u8>) {
        self.post(|work| {
            work.camera_infos.push_back(cdr);
            if work.camera_infos.len() > CAMERA_INFOS {
                work.camera_infos.pop_front();
            }
        });
    }

    /// Changes what is waiting and wakes the worker.
    pub fn post(&self, change: impl FnOnce(&mut Work)) {
        change(&mut self.lock());
        self.wake.notify_one();
    }

    /// Says that transforms have arrived. Wakes the worker once until it looks.
    pub fn mark_transforms(&self) {
        let known = std::mem::replace(&mut self.lock().transforms, true);
        if !known {
            self.wake.notify_one();
        }
    }

    /// Takes everything that is waiting; waits for it until `deadline`, without end if there is
    /// none.
    pub fn take(&self, on: WakeOn, deadline: Option<Instant>) -> Work {
        let mut work = self.lock();
        loop {
            let wanted = work.is_urgent() || (on == WakeOn::InputOrTransforms && work.transforms);
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if wanted || left == Some(Duration::ZERO) {
                return std::mem::take(&mut *work);
            }
            work = match left {
                Some(left) => self.wake.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(work).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_replaces_older_ones_and_they_are_counted() {
        let inbox = Inbox::new();
        for byte in 0..5u8 {
            inbox.put_message(Input::Points3d3d, vec![byte]);
        }
        inbox.put_message(Input::Sights2d3d, vec![9]);
        let mut work = inbox.take(WakeOn::Input, None);
        assert_eq!(work.overwritten.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [4, 0, 0, 0]);
        let left: Vec<_> = work.messages.drain().map(|m| (m.input, m.cdr)).collect();
        assert_eq!(left, [(Input::Points3d3d, vec![4]), (Input::Sights2d3d, vec![9])]);
    }

    #[test]
    fn transforms_wake_only_who_waits_for_them() {
        let inbox = Inbox::new();
        inbox.mark_transforms();
        let soon = Some(Instant::now() + Duration::from_millis(20));
        let start = Instant::now();
        // Not wanted: sleeps until the deadline, and takes the mark with it.
        assert!(inbox.take(WakeOn::Input, soon).transforms);
        assert!(start.elapsed() >= Duration::from_millis(19));
        inbox.mark_transforms();
        assert!(inbox.take(WakeOn::InputOrTransforms, None).transforms);
    }

    #[test]
    fn a_waiting_worker_is_woken() {
        let inbox = Inbox::new();
        let other = Arc::clone(&inbox);
        let poster = std::thread::spawn(move || other.post(|w| w.stop = true));
        assert!(inbox.take(WakeOn::Input, None).stop);
        assert!(poster.join().is_ok());
    }
}
