//! The messages that wait to be worked on: of each input the newest.

use super::{Input, PerInput};

/// A message that waits. `T` is a time: of the machine in the node, of the bag in a replay.
#[derive(Debug, Clone)]
pub struct Pending<T> {
    /// What it is.
    pub input: Input,
    /// Its bytes.
    pub cdr: Vec<u8>,
    /// When it came.
    pub arrived: T,
    /// Until when it waits for what it needs.
    pub until: T,
    /// Since when its input has had no turn: the arrival of the first of the messages that it replaced.
    since: T,
}

impl<T: Copy + Ord> Pending<T> {
    /// A message that has just come and may wait.
    pub fn new(input: Input, cdr: Vec<u8>, arrived: T, until: T) -> Self {
        Self { input, cdr, arrived, until, since: arrived }
    }
}

/// One slot for each input.
#[derive(Debug)]
pub struct Queue<T>(PerInput<Option<Pending<T>>>);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self(PerInput::new(|_| None))
    }
}

impl<T: Copy + Ord> Queue<T> {
    /// Stores a message; returns the older one of its input that it replaces, which keeps its turn.
    pub fn put(&mut self, mut message: Pending<T>) -> Option<Pending<T>> {
        let slot = self.0.get_mut(message.input);
        if let Some(old) = slot {
            message.since = old.since;
        }
        slot.replace(message)
    }

    /// Takes the message whose input has waited longest, of those that are ready. So a message waits neither
    /// behind an older one of its input, nor for what another one needs, and every input has its turn.
    pub fn take(&mut self, mut ready: impl FnMut(&Pending<T>) -> bool) -> Option<Pending<T>> {
        let mut slots = self.0.each_mut();
        slots.sort_by_key(|slot| slot.as_ref().map(|message| message.since));
        slots.into_iter().find(|slot| slot.as_ref().is_some_and(&mut ready))?.take()
    }

    /// Takes the message that came last.
    pub fn take_newest(&mut self) -> Option<Pending<T>> {
        self.0.each_mut().into_iter().max_by_key(|slot| slot.as_ref().map(|message| message.arrived))?.take()
    }

    /// Takes all messages, in the order of the inputs.
    pub fn drain(&mut self) -> impl Iterator<Item = Pending<T>> + '_ {
        self.0.iter_mut().filter_map(|(_, slot)| slot.take())
    }

    /// When the first of them has waited long enough.
    pub fn until(&self) -> Option<T> {
        self.0.iter().filter_map(|(_, slot)| Some(slot.as_ref()?.until)).min()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, slot)| slot.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Input::{Points3d3d as Lidar, Sights2d2d as Pair, Sights2d3d as Camera};

    fn put(queue: &mut Queue<u32>, input: Input, arrived: u32) -> Option<u32> {
        queue.put(Pending::new(input, Vec::new(), arrived, arrived + 10)).map(|old| old.arrived)
    }

    fn take(queue: &mut Queue<u32>) -> Option<(Input, u32)> {
        queue.take(|_| true).map(|message| (message.input, message.arrived))
    }

    #[test]
    fn the_newest_of_each_input_waits_and_no_input_starves() {
        let mut queue = Queue::default();
        assert!(queue.is_empty() && take(&mut queue).is_none());
        assert_eq!(put(&mut queue, Lidar, 1), None);
        assert_eq!(put(&mut queue, Camera, 2), None);
        assert_eq!(take(&mut queue), Some((Lidar, 1)));
        // Both come anew, the lidar first each time: they take turns all the same.
        for round in 1..10 {
            let at = 10 * round;
            put(&mut queue, Lidar, at);
            put(&mut queue, Camera, at + 1);
            put(&mut queue, Lidar, at + 2);
            let turn = if round % 2 == 1 { (Camera, at + 1) } else { (Lidar, at + 2) };
            assert_eq!(take(&mut queue), Some(turn));
        }
    }

    #[test]
    fn who_is_not_ready_holds_nobody_up() {
        let mut queue = Queue::default();
        for (i, input) in [Pair, Camera, Lidar].into_iter().enumerate() {
            put(&mut queue, input, i as u32);
        }
        assert_eq!(put(&mut queue, Pair, 5), Some(0));
        let mut asked = Vec::new();
        let taken = queue.take(|message| {
            asked.push(message.input);
            message.input == Lidar
        });
        assert_eq!((taken.map(|message| message.input), asked), (Some(Lidar), vec![Pair, Camera, Lidar]));
        assert!(queue.take(|_| false).is_none());
        assert_eq!(queue.until(), Some(11));
        assert_eq!(queue.take_newest().map(|message| message.arrived), Some(5));
        assert_eq!(queue.drain().map(|message| message.input).collect::<Vec<_>>(), [Camera]);
        assert!(queue.is_empty() && queue.until().is_none());
    }
}
