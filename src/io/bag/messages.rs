//! The messages of a bag, merged by time.

use super::loss::Losses;
use super::{db3, Bag, Damage, Loss, Store, Topic};
use crate::messages::Stamp;
use std::collections::{BTreeMap, VecDeque};

/// A message of a bag. It borrows its bytes until the next one is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Place of its topic among those asked for.
    pub topic: usize,
    /// When it was recorded.
    pub log_time: Stamp,
    /// When it was published; as recorded where the bag does not know.
    pub publish_time: Stamp,
    /// CDR bytes.
    pub data: &'a [u8],
}

/// The messages of some topics, the earliest first.
pub struct Messages<'a> {
    bag: &'a Bag,
    /// Per store: what is wanted of it.
    wanted: Vec<Wanted>,
    /// What has not been opened yet, the earliest first.
    later: VecDeque<Part>,
    open: Vec<Open>,
    /// Memory of chunks that have been read.
    spare: Vec<Arena>,
    losses: Losses,
    last: Stamp,
}

enum Wanted {
    /// By channel: place of the topic.
    Channels(BTreeMap<u16, usize>),
    /// By number of the topic: its place.
    Topics(BTreeMap<i64, usize>),
}

/// Something that begins at a time: a piece of an MCAP file, or all rows of a sqlite3 file.
struct Part {
    first: Stamp,
    store: usize,
    piece: usize,
}

struct Open {
    order: (usize, usize),
    source: Source,
}

enum Source {
    Arena(Arena),
    Rows(db3::Rows),
}

impl<'a> Messages<'a> {
    pub(super) fn new(bag: &'a Bag, topics: &[&str]) -> Self {
        let topics: Vec<Option<&Topic>> = topics.iter().map(|name| bag.topic(name)).collect();
        let mut later = Vec::new();
        let mut wanted = Vec::new();
        for (store, of) in bag.stores.iter().enumerate() {
            wanted.push(match of {
                Store::Mcap(file) => {
                    let channels = file.wanted(&topics);
                    for (piece, it) in file.pieces.iter().enumerate() {
                        if file.is_wanted(it, &channels) {
                            later.push(Part { first: super::stamp(it.first), store, piece });
                        }
                    }
                    Wanted::Channels(channels)
                }
                Store::Db3(file) => {
                    if let Some(first) = file.begins() {
                        later.push(Part { first, store, piece: 0 });
                    }
                    Wanted::Topics(file.wanted(&topics))
                }
            });
        }
        later.sort_by_key(|part| (part.first, part.store, part.piece));
        Self {
            bag,
            wanted,
            later: later.into(),
            open: Vec::new(),
            spare: Vec::new(),
            losses: bag.losses.clone(),
            last: Stamp(i64::MIN),
        }
    }

    /// What could not be read until now, that of [`Bag::losses`] included.
    pub fn losses(&self) -> &[Loss] {
        self.losses.all()
    }

    /// The next message; none at the end.
    #[allow(clippy::should_implement_trait)] // It lends.
    pub fn next(&mut self) -> Option<Message<'_>> {
        self.close_spent();
        let index = loop {
            let heads =
                self.open.iter().enumerate().filter_map(|(i, o)| Some((o.source.head()?, o.order, i)));
            let earliest = heads.min();
            match (self.later.front(), earliest) {
                (Some(part), head) if head.is_none_or(|(time, _, _)| part.first <= time) => self.open_next(),
                (_, Some((time, _, index))) => {
                    if time < self.last {
                        self.out_of_order(index);
                    }
                    self.last = self.last.max(time);
                    break index;
                }
                (_, None) => {
                    self.close_spent();
                    return None;
                }
            }
        };
        self.open.get_mut(index)?.source.pop()
    }

    fn out_of_order(&mut self, index: usize) {
        if let Some(store) = self.open.get(index).and_then(|o| self.bag.stores.get(o.order.0)) {
            self.losses.add(store.path(), Damage::OutOfOrder);
        }
    }

    fn open_next(&mut self) {
        let Some(part) = self.later.pop_front() else { return };
        let (store, wanted) = (self.bag.stores.get(part.store), self.wanted.get(part.store));
        let source = match (store, wanted) {
            (Some(Store::Mcap(file)), Some(Wanted::Channels(channels))) => {
                let mut arena = self.spare.pop().unwrap_or_default();
                if let Some(piece) = file.pieces.get(part.piece) {
                    file.load(piece, channels, self.bag.inflate, &mut arena, &mut self.losses);
                }
                Source::Arena(arena)
            }
            (Some(Store::Db3(file)), Some(Wanted::Topics(topics))) => {
                Source::Rows(file.rows(topics, self.bag.inflate))
            }
            _ => return,
        };
        self.open.push(Open { order: (part.store, part.piece), source });
    }

    /// Lets go of what has been read to its end.
    fn close_spent(&mut self) {
        let mut i = 0;
        while let Some(open) = self.open.get_mut(i) {
            if let (Source::Rows(rows), Some(store)) = (&mut open.source, self.bag.stores.get(open.order.0)) {
                for damage in rows.damages() {
                    self.losses.add(store.path(), damage);
                }
            }
            if open.source.head().is_some() {
                i += 1;
            } else if let Source::Arena(arena) = self.open.swap_remove(i).source {
                self.spare.push(arena);
            }
        }
    }
}

impl Source {
    /// Time of its next message.
    fn head(&self) -> Option<Stamp> {
        match self {
            Source::Arena(arena) => arena.head(),
            Source::Rows(rows) => rows.head(),
        }
    }

    fn pop(&mut self) -> Option<Message<'_>> {
        match self {
            Source::Arena(arena) => arena.pop(),
            Source::Rows(rows) => rows.pop(),
        }
    }
}

/// The messages of a piece of an MCAP file.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    log_time: Stamp,
    publish_time: Stamp,
    topic: usize,
    at: usize,
    len: usize,
}

impl Arena {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.next = 0;
    }

    pub fn push(&mut self, topic: usize, log_time: Stamp, publish_time: Stamp, data: &[u8]) {
        self.entries.push(Entry { log_time, publish_time, topic, at: self.bytes.len(), len: data.len() });
        self.bytes.extend_from_slice(data);
    }

    /// By time, those of the same time as they came.
    pub fn sort(&mut self) {
        self.entries.sort_by_key(|entry| entry.log_time);
    }

    fn head(&self) -> Option<Stamp> {
        self.entries.get(self.next).map(|entry| entry.log_time)
    }

    fn pop(&mut self) -> Option<Message<'_>> {
        let Entry { log_time, publish_time, topic, at, len } = *self.entries.get(self.next)?;
        self.next += 1;
        let data = self.bytes.get(at..at + len)?;
        Some(Message { topic, log_time, publish_time, data })
    }
}
