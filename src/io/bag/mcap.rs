//! MCAP files.
//!
//! A file is walked once, from record to record, to learn where its chunks are and what is in them;
//! neither a summary nor statistics nor an end is needed. Chunks are read by the `mcap` crate.

use super::loss::{Damage, Losses};
use super::messages::Arena;
use super::{inflate, place, stamp, BagError, Topic, MAX_BYTES};
use crate::messages::Stamp;
use ::mcap::records::{op, Record};
use ::mcap::sans_io::summary_reader::{SummaryReadEvent, SummaryReader, SummaryReaderOptions};
use ::mcap::sans_io::{LinearReadEvent, LinearReader, LinearReaderOptions};
use ::mcap::{parse_record, McapError, MAGIC};
use memmap2::MmapOptions;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Opcode and length of a record.
const HEAD: u64 = 9;
/// Messages outside of chunks are read so many bytes at a time.
const RUN_BYTES: u64 = 1 << 22;
/// Largest description of a channel or a type.
const MAX_DESCRIPTION: u64 = 1 << 24;

/// A piece of the file that is read at once: a chunk, or messages outside of chunks.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    at: u64,
    len: u64,
    /// Log times of its messages.
    pub first: u64,
    last: u64,
    /// False: the file ends within it.
    whole: bool,
    holds: Holds,
}

/// What is in a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holds {
    /// A chunk, and the file does not say.
    Unknown,
    /// A chunk with messages of these channels.
    Channels(Box<[u16]>),
    /// Messages outside of chunks.
    Run,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Channel {
    topic: String,
    schema: u16,
    encoding: String,
}

/// What the file says of its channels and of their types.
#[derive(Debug, Default)]
struct Described {
    channels: BTreeMap<u16, Channel>,
    schemas: BTreeMap<u16, String>,
}

impl Described {
    /// Takes the description of a channel or a type.
    fn take(&mut self, opcode: u8, data: &[u8]) -> Result<(), Damage> {
        match parse_record(opcode, data) {
            Ok(Record::Schema { header, .. }) => {
                self.schemas.entry(header.id).or_insert(header.name);
                Ok(())
            }
            Ok(Record::Channel(found)) => {
                let channel =
                    Channel { topic: found.topic, schema: found.schema_id, encoding: found.message_encoding };
                match *self.channels.entry(found.id).or_insert_with(|| channel.clone()) == channel {
                    true => Ok(()),
                    false => Err(Damage::ChannelConflict(found.id)),
                }
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Damage::BadMessage(format!("a description: {}", said(&error)))),
        }
    }
}

/// An MCAP file, looked through.
pub(super) struct Mcap {
    path: PathBuf,
    file: File,
    pub pieces: Vec<Piece>,
    described: Described,
    counts: BTreeMap<u16, u64>,
    _unpacked: Option<NamedTempFile>,
}

impl Mcap {
    /// Looks through the file at `path`, or at where it was unpacked.
    pub fn open(path: &Path, unpacked: Option<NamedTempFile>, losses: &mut Losses) -> Result<Self, BagError> {
        let io = |source| BagError::Io { path: path.to_owned(), source };
        let file = File::open(unpacked.as_ref().map_or(path, |file| file.path())).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let reader = BufReader::with_capacity(1 << 14, file.try_clone().map_err(io)?);
        let mut mcap = Self {
            path: path.to_owned(),
            file,
            pieces: Vec::new(),
            described: Described::default(),
            counts: BTreeMap::new(),
            _unpacked: unpacked,
        };
        Walk { reader, at: MAGIC.len() as u64, size, after_chunk: false, losses }
            .walk(&mut mcap)
            .map_err(io)?;
        mcap.look_into_chunks(losses);
        Ok(mcap)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn topics(&self) -> Vec<Topic> {
        let topic = |(id, channel): (&u16, &Channel)| Topic {
            name: channel.topic.clone(),
            type_name: self.described.schemas.get(&channel.schema).cloned().unwrap_or_default(),
            encoding: channel.encoding.clone(),
            count: self.counts.get(id).copied().unwrap_or(0),
        };
        self.described.channels.iter().map(topic).collect()
    }

    pub fn span(&self) -> Option<(Stamp, Stamp)> {
        let filled = || self.pieces.iter().filter(|piece| piece.last > 0);
        Some((
            stamp(filled().map(|piece| piece.first).min()?),
            stamp(filled().map(|piece| piece.last).max()?),
        ))
    }

    /// The channels of these topics, and the place of the topic among them.
    pub fn wanted(&self, topics: &[Option<&Topic>]) -> BTreeMap<u16, usize> {
        let mine = self.described.channels.iter().map(|(id, channel)| {
            let schema = self.described.schemas.get(&channel.schema).map_or("", String::as_str);
            (*id, place(topics, &channel.topic, schema, &channel.encoding))
        });
        mine.filter_map(|(id, place)| Some((id, place?))).collect()
    }

    /// Chunks without an index, or with channels that are described within: there is no other way
    /// to know what is in them.
    fn look_into_chunks(&mut self, losses: &mut Losses) {
        let pieces = std::mem::take(&mut self.pieces);
        for piece in &pieces {
            match &piece.holds {
                Holds::Run => continue,
                Holds::Channels(ids) if ids.iter().all(|id| self.described.channels.contains_key(id)) => {
                    continue
                }
                _ => {}
            }
            let mut counts = BTreeMap::new();
            let described = &mut self.described;
            let outcome = each_record(&self.file, piece, |opcode, data| {
                match opcode {
                    op::SCHEMA | op::CHANNEL => {
                        if let Err(damage) = described.take(opcode, data) {
                            losses.add(&self.path, damage);
                        }
                    }
                    op::MESSAGE => {
                        if let Ok(Record::Message { header, .. }) = parse_record(opcode, data) {
                            *counts.entry(header.channel_id).or_default() += 1;
                        }
                    }
                    _ => {}
                };
            });
            if let Err(damage) = outcome {
                losses.add(&self.path, damage);
            }
            if piece.holds == Holds::Unknown {
                self.count(counts);
            }
        }
        self.pieces = pieces;
        let unknown = self.counts.keys().filter(|id| !self.described.channels.contains_key(id));
        for id in unknown {
            losses.add(&self.path, Damage::UnknownChannel(*id));
        }
    }

    fn count(&mut self, counts: BTreeMap<u16, u64>) {
        for (id, n) in counts {
            let count = self.counts.entry(id).or_default();
            *count = count.saturating_add(n);
        }
    }

    /// Whether a piece can hold messages of these channels.
    pub fn is_wanted(&self, piece: &Piece, wanted: &BTreeMap<u16, usize>) -> bool {
        match &piece.holds {
            Holds::Channels(ids) => ids.iter().any(|id| wanted.contains_key(id)),
            Holds::Unknown | Holds::Run => !wanted.is_empty(),
        }
    }

    /// Reads the messages of a piece. Whatever comes before a fault is there.
    pub fn load(
        &self,
        piece: &Piece,
        wanted: &BTreeMap<u16, usize>,
        by_message: bool,
        arena: &mut Arena,
        losses: &mut Losses,
    ) {
        arena.clear();
        let outcome = each_record(&self.file, piece, |opcode, data| {
            if opcode != op::MESSAGE {
                return;
            }
            let (header, data) = match parse_record(opcode, data) {
                Ok(Record::Message { header, data }) => (header, data),
                Ok(_) => return,
                Err(error) => return losses.add(&self.path, Damage::BadMessage(said(&error))),
            };
            let Some(topic) = wanted.get(&header.channel_id) else { return };
            let (log_time, publish_time) = (stamp(header.log_time), stamp(header.publish_time));
            match by_message.then(|| inflate(&data)) {
                None => arena.push(*topic, log_time, publish_time, &data),
                Some(Ok(data)) => arena.push(*topic, log_time, publish_time, &data),
                Some(Err(damage)) => losses.add(&self.path, damage),
            }
        });
        if let Err(damage) = outcome {
            losses.add(&self.path, damage);
        }
        arena.sort();
    }
}

/// The way through a file, from record to record.
struct Walk<'a> {
    reader: BufReader<File>,
    at: u64,
    size: u64,
    /// The record before was a chunk, or told what is in it.
    after_chunk: bool,
    losses: &'a mut Losses,
}

impl Walk<'_> {
    fn walk(mut self, mcap: &mut Mcap) -> io::Result<()> {
        loop {
            let left = self.size.saturating_sub(self.at);
            if left < HEAD {
                let damage = if left == 0 { Damage::NotClosed } else { Damage::Truncated { at: self.at } };
                self.losses.add(&mcap.path, damage);
                return Ok(());
            }
            let mut head = [0; HEAD as usize];
            self.read(0, &mut head)?;
            let [opcode, len @ ..] = head;
            let end = self.at.saturating_add(HEAD).saturating_add(u64::from_le_bytes(len));
            if opcode == 0 || end > self.size {
                if opcode != 0 && !self.is_closed()? {
                    self.losses.add(&mcap.path, Damage::Truncated { at: self.at });
                    return self.last_piece(opcode, mcap);
                }
                let resumed = self.chunk_after();
                self.losses.add(&mcap.path, Damage::CorruptRecord { at: self.at, resumed });
                let Some(to) = resumed else { return Ok(()) };
                (self.at, self.after_chunk) = (to, false);
                continue;
            }
            if opcode == op::FOOTER {
                return Ok(());
            }
            self.record(opcode, end, mcap)?;
            self.after_chunk = matches!(opcode, op::CHUNK | op::MESSAGE_INDEX);
            self.at = end;
        }
    }

    /// The file has an end.
    fn is_closed(&mut self) -> io::Result<bool> {
        let mut end = [0; MAGIC.len()];
        self.reader.seek(SeekFrom::Start(self.size - MAGIC.len() as u64))?;
        self.reader.read_exact(&mut end)?;
        Ok(end == MAGIC)
    }

    /// The next chunk that the summary of the file knows, if it has one.
    fn chunk_after(&mut self) -> Option<u64> {
        let options = SummaryReaderOptions::default().with_file_size(self.size);
        let mut reader = SummaryReader::new_with_options(options.with_record_length_limit(MAX_BYTES));
        while let Some(event) = reader.next_event() {
            match event.ok()? {
                SummaryReadEvent::ReadRequest(n) => {
                    let read = self.reader.read(reader.insert(n)).ok()?;
                    reader.notify_read(read);
                }
                SummaryReadEvent::SeekRequest(to) => {
                    let to = self.reader.seek(to).ok()?;
                    reader.notify_seeked(to);
                }
            }
        }
        let starts = reader.finish()?.chunk_indexes.into_iter().map(|index| index.chunk_start_offset);
        starts.filter(|start| *start > self.at && *start < self.size).min()
    }

    /// Reads bytes of the record, `offset` bytes after its begin.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let here = self.reader.stream_position()?;
        let to = (self.at + offset) as i64 - here as i64;
        self.reader.seek_relative(to)?;
        self.reader.read_exact(bytes)
    }

    fn body<const N: usize>(&mut self, end: u64) -> io::Result<Option<[u8; N]>> {
        if end - self.at < HEAD + N as u64 {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.read(HEAD, &mut bytes)?;
        Ok(Some(bytes))
    }

    fn record(&mut self, opcode: u8, end: u64, mcap: &mut Mcap) -> io::Result<()> {
        match opcode {
            op::SCHEMA | op::CHANNEL if end - self.at <= MAX_DESCRIPTION => {
                let mut data = vec![0; (end - self.at - HEAD) as usize];
                self.read(HEAD, &mut data)?;
                if let Err(damage) = mcap.described.take(opcode, &data) {
                    self.losses.add(&mcap.path, damage);
                }
            }
            op::CHUNK => {
                if let Some(times) = self.body::<16>(end)? {
                    mcap.pieces.push(self.chunk(times, end, true));
                }
            }
            op::MESSAGE => {
                if let Some(header) = self.body::<22>(end)? {
                    self.message(header, end, mcap);
                }
            }
            op::MESSAGE_INDEX if self.after_chunk => {
                let header = self.body::<6>(end)?;
                if let (Some([a, b, c, d, e, f]), Some(piece)) = (header, mcap.pieces.last_mut()) {
                    let (id, bytes) = (u16::from_le_bytes([a, b]), u32::from_le_bytes([c, d, e, f]));
                    piece.holds = Holds::Channels(match &piece.holds {
                        Holds::Channels(ids) => ids.iter().copied().chain([id]).collect(),
                        _ => [id].into(),
                    });
                    mcap.count([(id, u64::from(bytes / 16))].into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn chunk(&self, times: [u8; 16], end: u64, whole: bool) -> Piece {
        let [first, last] = [0, 8].map(|at| le_u64(&times, at));
        Piece { at: self.at, len: end - self.at, first, last, whole, holds: Holds::Unknown }
    }

    /// A message outside of a chunk.
    fn message(&mut self, header: [u8; 22], end: u64, mcap: &mut Mcap) {
        let [low, high, ..] = header;
        let (id, time) = (u16::from_le_bytes([low, high]), le_u64(&header, 6));
        mcap.count([(id, 1)].into());
        let at = self.at;
        match mcap.pieces.last_mut() {
            // Other records in between do no harm.
            Some(run) if run.holds == Holds::Run && end - run.at <= RUN_BYTES => {
                (run.first, run.last) = (run.first.min(time), run.last.max(time));
                run.len = end - run.at;
            }
            _ => mcap.pieces.push(Piece {
                at,
                len: end - at,
                first: time,
                last: time,
                whole: true,
                holds: Holds::Run,
            }),
        }
    }

    /// A chunk that the file ends within.
    fn last_piece(&mut self, opcode: u8, mcap: &mut Mcap) -> io::Result<()> {
        if opcode == op::CHUNK {
            if let Some(times) = self.body::<16>(self.size)? {
                mcap.pieces.push(self.chunk(times, self.size, false));
            }
        }
        Ok(())
    }
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Goes through the records of a piece. An error: the rest of it cannot be read.
fn each_record(file: &File, piece: &Piece, mut see: impl FnMut(u8, &[u8])) -> Result<(), Damage> {
    let corrupt = |why: String| Damage::CorruptChunk { at: piece.at, why };
    let len = usize::try_from(piece.len).ok().filter(|len| *len <= MAX_BYTES);
    let len = len.ok_or_else(|| corrupt(format!("{} bytes, at most {MAX_BYTES} are read", piece.len)))?;
    // SAFETY: the map is read only and lives in this function only. As with every map of a file, nobody may
    // cut the file meanwhile; a recorder only appends to it.
    let map = unsafe { MmapOptions::new().offset(piece.at).len(len).map(file) };
    let map = map.map_err(|error| corrupt(error.to_string()))?;
    let options = LinearReaderOptions::default()
        .with_skip_start_magic(true)
        .with_skip_end_magic(true)
        .with_prevalidate_chunk_crcs(piece.whole)
        .with_record_length_limit(MAX_BYTES);
    let mut reader = LinearReader::new_with_options(options);
    // All at once, then nothing more.
    let mut rest: &[u8] = &map;
    while let Some(event) = reader.next_event() {
        match event {
            Ok(LinearReadEvent::ReadRequest(_)) => {
                reader.insert(rest.len()).copy_from_slice(rest);
                reader.notify_read(rest.len());
                rest = &[];
            }
            Ok(LinearReadEvent::Record { data, opcode }) => see(opcode, data),
            // The walk has said so already.
            Err(_) if !piece.whole => return Ok(()),
            Err(McapError::UnsupportedCompression(name)) => return Err(Damage::UnknownCompression(name)),
            Err(error) => return Err(corrupt(said(&error))),
        }
    }
    Ok(())
}

/// An error with its causes.
fn said(error: &McapError) -> String {
    match error {
        McapError::Io(cause) => cause.to_string(),
        other => other.to_string(),
    }
}
