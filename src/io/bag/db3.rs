//! sqlite3 files of rosbag2.
//!
//! A thread of its own streams the rows in the order of their times, a few ahead of who reads them.

use super::loss::{Damage, Losses};
use super::messages::Message;
use super::{inflate, place, BagError, Topic};
use crate::messages::Stamp;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use tempfile::NamedTempFile;

/// Rows that are read ahead.
const AHEAD: usize = 16;

/// A sqlite3 file, looked through.
pub(super) struct Db3 {
    path: PathBuf,
    unpacked: Option<NamedTempFile>,
    topics: BTreeMap<i64, Topic>,
    span: Option<(Stamp, Stamp)>,
    is_broken: bool,
}

impl Db3 {
    /// Looks through the file at `path`, or at where it was unpacked.
    pub fn open(path: &Path, unpacked: Option<NamedTempFile>, losses: &mut Losses) -> Result<Self, BagError> {
        let path_of = path.to_owned();
        let mut file =
            Self { path: path_of, unpacked, topics: BTreeMap::new(), span: None, is_broken: false };
        let refused =
            |error: rusqlite::Error| BagError::Sqlite { path: path.to_owned(), why: error.to_string() };
        if let Some(damage) = cut(file.place()) {
            losses.add(path, damage);
        }
        let connection = connect(file.place()).map_err(refused)?;
        file.read_topics(&connection).map_err(refused)?;
        // What follows fails where the file is broken further on; rows may be there all the same.
        if let Err(error) = file.read_counts(&connection) {
            losses.add(path, Damage::Sqlite(error.to_string()));
            file.is_broken = true;
        }
        Ok(file)
    }

    fn place(&self) -> &Path {
        self.unpacked.as_ref().map_or(&self.path, |file| file.path())
    }

    fn read_topics(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut query = connection.prepare("SELECT id, name, type, serialization_format FROM topics")?;
        let topics = query.query_map([], |row| {
            let topic = Topic { name: row.get(1)?, type_name: row.get(2)?, encoding: row.get(3)?, count: 0 };
            Ok((row.get(0)?, topic))
        })?;
        self.topics = topics.collect::<rusqlite::Result<_>>()?;
        Ok(())
    }

    fn read_counts(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // Two queries: each is answered by the index of times.
        let first: Option<i64> =
            connection.query_row("SELECT min(timestamp) FROM messages", [], |row| row.get(0))?;
        let last: Option<i64> =
            connection.query_row("SELECT max(timestamp) FROM messages", [], |row| row.get(0))?;
        self.span = first.zip(last).map(|(first, last)| (Stamp(first), Stamp(last)));
        let mut query = connection.prepare("SELECT topic_id, count(*) FROM messages GROUP BY topic_id")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(topic) = self.topics.get_mut(&row.get(0)?) {
                topic.count = row.get::<_, i64>(1)?.max(0) as u64;
            }
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn topics(&self) -> Vec<Topic> {
        self.topics.values().cloned().collect()
    }

    pub fn span(&self) -> Option<(Stamp, Stamp)> {
        self.span
    }

    /// When its rows begin, as far as that is known; none if there are none.
    pub fn begins(&self) -> Option<Stamp> {
        let unknown = self.is_broken.then_some(Stamp(i64::MIN));
        self.span.map(|(first, _)| first).or(unknown)
    }

    /// The numbers of these topics, and the place of the topic among them.
    pub fn wanted(&self, topics: &[Option<&Topic>]) -> BTreeMap<i64, usize> {
        let places = self
            .topics
            .iter()
            .map(|(id, mine)| (*id, place(topics, &mine.name, &mine.type_name, &mine.encoding)));
        places.filter_map(|(id, place)| Some((id, place?))).collect()
    }

    /// Begins to read the rows of these topics.
    pub fn rows(&self, topics: &BTreeMap<i64, usize>, by_message: bool) -> Rows {
        let (sender, receiver) = sync_channel(AHEAD);
        let (file, topics) = (self.place().to_owned(), topics.clone());
        std::thread::spawn(move || {
            if let Err(error) = stream(&file, &topics, by_message, &sender) {
                // Nobody listens any more: nobody needs to know.
                let _ = sender.send(Err(Damage::Sqlite(error.to_string())));
            }
        });
        let mut rows = Rows { receiver, current: Row::default(), next: None, damages: Vec::new() };
        rows.advance();
        rows
    }
}

/// Whether the file has all the pages that its header tells of. sqlite reads zeros where it ends within one.
fn cut(path: &Path) -> Option<Damage> {
    let mut header = [0; 32];
    let mut file = File::open(path).ok()?;
    file.read_exact(&mut header).ok()?;
    let [.., size_high, size_low, _, _, _, _, _, _, _, _, _, _, a, b, c, d] = header;
    let page = match u16::from_be_bytes([size_high, size_low]) {
        1 => 65536,
        size => u64::from(size),
    };
    let (there, needed) = (file.metadata().ok()?.len(), page * u64::from(u32::from_be_bytes([a, b, c, d])));
    (there < needed).then(|| Damage::Sqlite(format!("the file has {there} of {needed} bytes")))
}

/// Read only. A file that nobody writes is opened without locks, so that it may lie where nothing can be
/// written; one with a log of writes beside it is read together with that.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let connection = if Path::new(&wal).exists() {
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?
    } else {
        let escaped: String = path.to_string_lossy().chars().map(escape).collect();
        let uri = format!("file:{escaped}?immutable=1");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(uri, flags)?
    };
    if cut(path).is_some() {
        // Otherwise sqlite refuses the whole file; so it reads the pages that are there.
        connection.execute_batch("PRAGMA writable_schema = ON")?;
    }
    Ok(connection)
}

/// What has a meaning in a URI.
fn escape(c: char) -> String {
    match c {
        '%' | '?' | '#' => format!("%{:02x}", u32::from(c)),
        _ => c.to_string(),
    }
}

#[derive(Debug, Default)]
struct Row {
    topic: usize,
    time: Stamp,
    data: Vec<u8>,
}

type Item = Result<Row, Damage>;

fn stream(
    path: &Path,
    topics: &BTreeMap<i64, usize>,
    by_message: bool,
    out: &SyncSender<Item>,
) -> rusqlite::Result<()> {
    let connection = connect(path)?;
    let ids: Vec<String> = topics.keys().map(i64::to_string).collect();
    let mut query = connection.prepare(&format!(
        "SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({}) ORDER BY timestamp, id",
        ids.join(",")
    ))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (id, time): (i64, i64) = (row.get(0)?, row.get(1)?);
        let Some(topic) = topics.get(&id) else { continue };
        let item = match row.get_ref(2)?.as_blob() {
            Ok(data) if by_message => inflate(data),
            Ok(data) => Ok(data.to_vec()),
            Err(error) => Err(Damage::BadMessage(error.to_string())),
        };
        if out.send(item.map(|data| Row { topic: *topic, time: Stamp(time), data })).is_err() {
            break;
        }
    }
    Ok(())
}

/// Rows in the order of their times.
pub(super) struct Rows {
    receiver: Receiver<Item>,
    current: Row,
    next: Option<Row>,
    damages: Vec<Damage>,
}

impl Rows {
    fn advance(&mut self) {
        loop {
            match self.receiver.recv() {
                Ok(Ok(row)) => {
                    self.next = Some(row);
                    return;
                }
                Ok(Err(damage)) => {
                    if !self.damages.contains(&damage) {
                        self.damages.push(damage);
                    }
                }
                Err(_) => {
                    self.next = None;
                    return;
                }
            }
        }
    }

    pub fn head(&self) -> Option<Stamp> {
        self.next.as_ref().map(|row| row.time)
    }

    pub fn pop(&mut self) -> Option<Message<'_>> {
        self.current = self.next.take()?;
        self.advance();
        let Row { topic, time, data } = &self.current;
        Some(Message { topic: *topic, log_time: *time, publish_time: *time, data })
    }

    /// What could not be read since the last call.
    pub fn damages(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damages)
    }
}
