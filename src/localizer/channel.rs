//! What is remembered of the inputs between their messages, and which of them has the say.

use super::{Input, PerInput};
use crate::messages::Stamp;
use crate::status::{Counters, Status};

/// Counts and the last answer of an input.
#[derive(Debug, Clone, Default)]
pub(super) struct Channel {
    pub counters: Counters,
    /// Messages without a trusted pose since the last one.
    pub rejected_in_a_row: u64,
    /// When the newest message came, and when the newest was measured.
    pub received: Option<Stamp>,
    pub measured: Option<Stamp>,
    /// The answer to the last message.
    pub status: Option<Status>,
    /// When the pose was measured that the last message gave; none if that was not trusted.
    pub trusted: Option<Stamp>,
}

impl Channel {
    /// Forgets the last answer.
    pub fn forget_answer(&mut self) {
        (self.received, self.status, self.trusted) = (None, None, None);
    }
}

/// All inputs.
#[derive(Debug, Default)]
pub(super) struct Channels {
    of: PerInput<Channel>,
    /// The input of the last message that could have given a pose in the map.
    last: Option<Input>,
}

impl Channels {
    pub fn get(&self, input: Input) -> &Channel {
        self.of.get(input)
    }

    pub fn get_mut(&mut self, input: Input) -> &mut Channel {
        self.of.get_mut(input)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.of.iter().map(|(_, channel)| channel)
    }

    /// Forgets the last answers.
    pub fn forget_answers(&mut self) {
        self.last = None;
        self.of.iter_mut().for_each(|(_, channel)| channel.forget_answer());
    }

    /// Forgets all that is tied to time.
    pub fn reset(&mut self) {
        self.forget_answers();
        self.of.iter_mut().for_each(|(_, channel)| channel.measured = None);
    }

    /// A message has been answered.
    pub fn answered(&mut self, input: Input, status: Status) {
        self.get_mut(input).status = Some(status);
        if input.is_absolute() {
            self.last = Some(input);
        }
    }

    /// The input whose last message gave the newest pose in the map, measured at most `max_age` seconds before
    /// `stamp`.
    pub fn leading(&self, stamp: Stamp, max_age: f64) -> Option<Input> {
        let absolute = self.of.iter().filter(|(input, _)| input.is_absolute());
        let trusted = absolute.filter_map(|(input, channel)| Some((input, channel.trusted?)));
        let fresh = trusted.filter(|(_, measured)| stamp.seconds_since(*measured) <= max_age);
        fresh.max_by_key(|(_, measured)| *measured).map(|(input, _)| input)
    }

    /// The input that decides what is known of the pose in the map: the leading one; else that of the last
    /// message; that of relative poses if no other has been heard.
    pub fn deciding(&self, max_age: f64) -> Input {
        let absolute = self.of.iter().filter(|(input, _)| input.is_absolute());
        let newest = absolute.filter_map(|(_, channel)| channel.measured).max();
        let leading = newest.and_then(|newest| self.leading(newest, max_age));
        let heard = || self.of.iter().find(|(_, channel)| channel.status.is_some()).map(|(input, _)| input);
        leading.or(self.last).or_else(heard).unwrap_or(Input::Points3d3d)
    }
}
