//! Bags: MCAP files, sqlite3 files of rosbag2, and folders of them, as ROS 2 records them. No ROS is
//! needed to read them.
//!
//! ```text
//! path -> files (folder) -> what is in them (mcap, db3) -> Bag: topics -> Messages, by time
//! ```
//!
//! What is broken costs what is broken: the rest is read, and a [`Loss`] says what was not. Memory
//! does not grow with the bag: a chunk is mapped while it is read, rows are streamed.

mod db3;
mod folder;
mod loss;
mod mcap;
mod messages;

pub use loss::{Damage, Loss};
pub use messages::{Message, Messages};

use self::loss::Losses;
use crate::messages::Stamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Largest message, chunk or record that is read, bytes.
const MAX_BYTES: usize = 1 << 29;
/// The encoding of ROS 2.
const CDR: &str = "cdr";

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum BagError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// the file
        path: PathBuf,
        /// why
        source: io::Error,
    },
    /// It is neither MCAP nor sqlite3, nor one of them compressed.
    #[error("not_a_bag: {} is neither an MCAP file nor a sqlite3 file of rosbag2", .0.display())]
    NotABag(PathBuf),
    /// A folder without bag files.
    #[error("no_files: {} has no .mcap or .db3 files", .0.display())]
    NoFiles(PathBuf),
    /// The sqlite3 file cannot be opened, or has not the tables of rosbag2.
    #[error("sqlite: {}: {why}", path.display())]
    Sqlite {
        /// the file
        path: PathBuf,
        /// what sqlite says
        why: String,
    },
    /// The topic is not in the bag.
    #[error("no_topic: '{topic}' is not in the bag; it has {}", if there.is_empty() { "no topics" } else { there })]
    NoTopic {
        /// asked for
        topic: String,
        /// topics in the bag
        there: String,
    },
    /// The topic has another type.
    #[error("wrong_type: '{topic}' has the type {got}, {want} is needed")]
    WrongType {
        /// the topic
        topic: String,
        /// its type
        got: String,
        /// what is needed
        want: String,
    },
}

/// A topic of a bag.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Topic {
    /// Name, with its leading slash.
    pub name: String,
    /// Type, such as `sensor_msgs/msg/PointCloud2`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Encoding of the messages; only `cdr` is read.
    pub encoding: String,
    /// Messages that the files say they hold.
    pub count: u64,
}

/// A file of a bag, looked through.
enum Store {
    Mcap(mcap::Mcap),
    Db3(db3::Db3),
}

/// A bag that was opened.
pub struct Bag {
    stores: Vec<Store>,
    topics: Vec<Topic>,
    losses: Losses,
    /// Each message is compressed by itself.
    inflate: bool,
}

impl Bag {
    /// Opens an MCAP file, a sqlite3 file, either compressed with zstd, or a folder of them. A
    /// compressed file is unpacked into the folder for temporary files first.
    pub fn open(path: &Path) -> Result<Self, BagError> {
        let mut losses = Losses::default();
        let listing = folder::list(path, &mut losses)?;
        let mut bag = Self { stores: Vec::new(), topics: Vec::new(), losses, inflate: listing.inflate };
        let several = listing.files.len() > 1;
        for file in listing.files {
            match folder::open(&file, &mut bag.losses) {
                Ok(store) => bag.stores.push(store),
                // Of several files the others are still of use.
                Err(error) if several => bag.losses.add(&file, Damage::Unreadable(error.to_string())),
                Err(error) => return Err(error),
            }
        }
        if bag.stores.is_empty() {
            return Err(BagError::NoFiles(path.to_owned()));
        }
        bag.collect_topics();
        Ok(bag)
    }

    /// Unites the topics of all files. A topic has the type under which it came first.
    fn collect_topics(&mut self) {
        let mut topics: BTreeMap<String, Topic> = BTreeMap::new();
        for store in &self.stores {
            let path = store.path();
            for topic in store.topics() {
                match topics.get_mut(&topic.name) {
                    None => {
                        if topic.encoding != CDR {
                            let encoding = topic.encoding.clone();
                            self.losses.add(path, Damage::Encoding { topic: topic.name.clone(), encoding });
                        }
                        topics.insert(topic.name.clone(), topic);
                    }
                    Some(known) if known.type_name == topic.type_name => known.count += topic.count,
                    Some(known) => {
                        let damage = Damage::TwoTypes {
                            topic: topic.name,
                            used: known.type_name.clone(),
                            ignored: topic.type_name,
                        };
                        self.losses.add(path, damage);
                    }
                }
            }
        }
        self.topics = topics.into_values().collect();
    }

    /// The topics, by name.
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// What could not be read so far. Reading messages may add to it: see [`Messages::losses`].
    pub fn losses(&self) -> &[Loss] {
        self.losses.all()
    }

    /// Time of the first and of the last message of all topics; none if there is no message.
    pub fn span(&self) -> Option<(Stamp, Stamp)> {
        let spans = || self.stores.iter().filter_map(Store::span);
        Some((spans().map(|(first, _)| first).min()?, spans().map(|(_, last)| last).max()?))
    }

    /// The topic, if it is there.
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.iter().find(|topic| topic.name == name)
    }

    /// The topic, which must be of one of these types.
    pub fn require(&self, name: &str, types: &[&str]) -> Result<&Topic, BagError> {
        let Some(topic) = self.topic(name) else {
            let there: Vec<&str> = self.topics.iter().map(|topic| topic.name.as_str()).collect();
            return Err(BagError::NoTopic { topic: name.to_owned(), there: there.join(", ") });
        };
        // ROS 1 has no `msg` in its names; converted bags may keep that.
        let short = |name: &str| name.replace("/msg/", "/");
        match types.iter().any(|want| short(want) == short(&topic.type_name)) {
            true => Ok(topic),
            false => Err(BagError::WrongType {
                topic: name.to_owned(),
                got: topic.type_name.clone(),
                want: types.join(" or "),
            }),
        }
    }

    /// The messages of these topics in the order in which they were recorded: by log time, then by
    /// file and place. Topics that are not there have none.
    pub fn messages(&self, topics: &[&str]) -> Messages<'_> {
        Messages::new(self, topics)
    }
}

impl Store {
    fn path(&self) -> &Path {
        match self {
            Store::Mcap(file) => file.path(),
            Store::Db3(file) => file.path(),
        }
    }

    fn topics(&self) -> Vec<Topic> {
        match self {
            Store::Mcap(file) => file.topics(),
            Store::Db3(file) => file.topics(),
        }
    }

    fn span(&self) -> Option<(Stamp, Stamp)> {
        match self {
            Store::Mcap(file) => file.span(),
            Store::Db3(file) => file.span(),
        }
    }
}

/// The place of a topic among those asked for: name, type and encoding must be right.
fn place(asked: &[Option<&Topic>], name: &str, type_name: &str, encoding: &str) -> Option<usize> {
    asked.iter().position(|topic| {
        topic.is_some_and(|topic| {
            topic.name == name && topic.type_name == type_name && topic.encoding == CDR && encoding == CDR
        })
    })
}

/// Unpacks a message that was compressed by itself.
fn inflate(data: &[u8]) -> Result<Vec<u8>, Damage> {
    use std::io::Read;
    let mut out = Vec::new();
    zstd::Decoder::new(data)
        .and_then(|decoder| decoder.take(MAX_BYTES as u64).read_to_end(&mut out))
        .map_err(|error| Damage::BadMessage(format!("zstd: {error}")))?;
    Ok(out)
}

/// A time of a bag, nanoseconds.
fn stamp(nanoseconds: u64) -> Stamp {
    Stamp(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
}
