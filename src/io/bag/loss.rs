//! What of a bag could not be read.

use std::path::{Path, PathBuf};

/// Losses that are told one by one.
const MAX_TOLD: usize = 100;

/// Something that is not there, or that cannot be believed. The text begins with a fixed word that
/// scripts may rely on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends within a record.
    #[error("truncated: the file ends within a record that begins at byte {at}")]
    Truncated {
        /// where the record begins
        at: u64,
    },
    /// The file ends before its end was written: the recorder was stopped hard.
    #[error("not_closed: the file has no end; what was written before is used")]
    NotClosed,
    /// Bytes that are no record.
    #[error("corrupt_record: no record at byte {at}; {}", match resumed { Some(to) => format!("read on at byte {to}"), None => "the rest of the file is lost".to_owned() })]
    CorruptRecord {
        /// where it should be
        at: u64,
        /// the next chunk after it that the summary of the file knows
        resumed: Option<u64>,
    },
    /// A chunk whose sum of check does not fit, or that cannot be unpacked: nothing after the fault
    /// is used.
    #[error("corrupt_chunk: at byte {at}: {why}")]
    CorruptChunk {
        /// where the chunk begins
        at: u64,
        /// what is wrong
        why: String,
    },
    /// Chunks in a compression that is not known.
    #[error("unknown_compression: '{0}'; none, lz4 and zstd can be read")]
    UnknownCompression(String),
    /// A message that cannot be read.
    #[error("bad_message: {0}")]
    BadMessage(String),
    /// Messages of a channel that is described nowhere.
    #[error("unknown_channel: messages of channel {0}, which the file does not describe")]
    UnknownChannel(u16),
    /// Two descriptions of the same channel.
    #[error("channel_conflict: channel {0} is described in two ways, the first is used")]
    ChannelConflict(u16),
    /// Two types on the same topic.
    #[error("two_types: topic '{topic}' has the types {used} (used) and {ignored} (ignored)")]
    TwoTypes {
        /// the topic
        topic: String,
        /// type that is used
        used: String,
        /// type that is not
        ignored: String,
    },
    /// Messages that are not in CDR.
    #[error("encoding: topic '{topic}' is encoded in '{encoding}', only cdr is read")]
    Encoding {
        /// the topic
        topic: String,
        /// its encoding
        encoding: String,
    },
    /// Times in the file contradict its index.
    #[error("out_of_order: messages are older than the index of the file says; they come late")]
    OutOfOrder,
    /// A sqlite3 file is broken: rows are lost from there on, or those at its end hold zeros.
    #[error("sqlite: {0}; what cannot be read is lost")]
    Sqlite(String),
    /// A compressed file cannot be unpacked to its end.
    #[error("truncated_zstd: unpacked {bytes} bytes, then: {why}")]
    TruncatedZstd {
        /// bytes before the fault
        bytes: u64,
        /// what is wrong
        why: String,
    },
    /// The folder does not say which files belong to it.
    #[error("no_metadata: {0}; all bag files of the folder are used, in the order of their numbers")]
    NoMetadata(String),
    /// A file of a folder is not there.
    #[error("missing_file: metadata.yaml names it")]
    MissingFile,
    /// A file of a folder cannot be used at all.
    #[error("unreadable: {0}")]
    Unreadable(String),
    /// More was lost than is told.
    #[error("more: further losses, {0} in all")]
    More(u64),
}

/// What could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", file.display())]
pub struct Loss {
    /// The file.
    pub file: PathBuf,
    /// What is lost.
    pub what: Damage,
}

/// All losses of a bag, each once, and not without end.
#[derive(Debug, Clone, Default)]
pub(super) struct Losses(Vec<Loss>);

impl Losses {
    pub(super) fn add(&mut self, file: &Path, what: Damage) {
        let loss = Loss { file: file.to_owned(), what };
        if self.0.contains(&loss) {
            return;
        }
        if self.0.len() < MAX_TOLD {
            self.0.push(loss);
        } else if let Some(Loss { what: Damage::More(n), .. }) = self.0.last_mut() {
            *n += 1;
        } else {
            self.0.push(Loss { what: Damage::More(MAX_TOLD as u64 + 1), ..loss });
        }
    }

    pub(super) fn all(&self) -> &[Loss] {
        &self.0
    }
}
