//! Bags of every kind are read the same; what is broken is named and costs what is broken.

mod common;

use common::bags::*;
use flashreg::io::bag::{Bag, BagError};
use flashreg::messages::Stamp;
use mcap::{Compression, WriteOptions};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

const TOPICS: [&str; 2] = ["/tf", "/points"];

/// Some 60 messages on two topics of interest and a third, not quite in the order of their times.
fn items() -> Vec<Item> {
    let mut items = Vec::new();
    for i in 0..20 {
        let t = 100.0 + 0.1 * f64::from(i);
        items.push(item("/tf", TF, t, transform("odom", "base_link", t, [t, 0.0, 0.0], false)));
        items.push(item("/points", CLOUD, t - 0.03, cloud(t, 10 + i as usize, [1.0, 2.0, 3.0], i % 2 == 1)));
        items.push(item("/other", "std_msgs/msg/String", t, vec![0, 1, 0, 0, 9, 9, 9, 9]));
    }
    items
}

/// What is to be read of them.
fn expected() -> Vec<Item> {
    let mut items: Vec<Item> =
        items().into_iter().filter(|item| TOPICS.contains(&item.topic.as_str())).collect();
    items.sort_by_key(|item| item.log_time);
    items
}

fn read(path: &Path) -> (Vec<Item>, Vec<String>) {
    read_all(&Bag::open(path).expect("a bag"), &TOPICS)
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("compressed")
}

fn ways() -> Vec<(&'static str, WriteOptions)> {
    vec![
        ("plain", plain()),
        ("lz4", plain().compression(Some(Compression::Lz4))),
        ("zstd", plain().compression(Some(Compression::Zstd))),
        ("no chunks", plain().use_chunks(false)),
        ("one chunk", plain().chunk_size(None)),
        ("no statistics", plain().emit_statistics(false)),
        ("no summary", plain().emit_summary_records(false).emit_summary_offsets(false)),
        (
            "no index at all",
            plain().emit_message_indexes(false).emit_chunk_indexes(false).emit_summary_records(false),
        ),
        ("no sums of check", plain().calculate_chunk_crcs(false)),
    ]
}

#[test]
fn mcap_files_of_every_kind_are_read_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bag.mcap");
    for (name, options) in ways() {
        write_mcap(&path, options, &items());
        let bag = Bag::open(&path).expect("a bag");
        let counts: Vec<_> = bag.topics().iter().map(|t| (t.name.as_str(), t.count)).collect();
        assert_eq!(counts, [("/other", 20), ("/points", 20), ("/tf", 20)], "{name}");
        assert_eq!(bag.span(), Some((Stamp::default().plus(99.97), Stamp::default().plus(101.9))), "{name}");
        let (read, losses) = read_all(&bag, &TOPICS);
        assert!(read == expected(), "{name}");
        assert_eq!(losses, [""; 0], "{name}");
    }
}

#[test]
fn folders_split_files_and_compressed_ones_are_read_as_one() {
    let all = items();
    let (first, second) = all.split_at(25);
    for (mode, extension) in [
        ("", "mcap"),
        ("", "db3"),
        ("FILE", "mcap"),
        ("FILE", "db3"),
        ("MESSAGE", "mcap"),
        ("MESSAGE", "db3"),
    ] {
        for metadata in [true, false] {
            if mode == "MESSAGE" && !metadata {
                continue;
            }
            let folder = tempfile::tempdir().expect("a folder");
            let mut names = Vec::new();
            // The later half has the smaller name as text.
            for (number, part) in [(2, first), (10, second)] {
                let mut part = part.to_vec();
                if mode == "MESSAGE" {
                    part.iter_mut().for_each(|item| item.data = zstd(&item.data));
                }
                let mut name = format!("bag_{number}.{extension}");
                let path = folder.path().join(&name);
                match extension {
                    "mcap" => write_mcap(&path, plain(), &part),
                    _ => write_db3(&path, &part),
                }
                if mode == "FILE" {
                    let packed = zstd(&fs::read(&path).expect("read"));
                    fs::remove_file(&path).expect("removed");
                    name.push_str(".zstd");
                    fs::write(folder.path().join(&name), packed).expect("written");
                }
                names.push(name);
            }
            if metadata {
                write_metadata(folder.path(), &names.iter().map(String::as_str).collect::<Vec<_>>(), mode);
            }
            let (read, losses) = read(folder.path());
            assert!(read == expected(), "{mode} {extension} {metadata}");
            let told: Vec<_> = losses.iter().map(|loss| loss.split(':').next().unwrap_or_default()).collect();
            assert_eq!(told, if metadata { vec![] } else { vec!["no_metadata"] });
        }
    }
}

#[test]
fn what_is_no_bag_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |path: &Path| Bag::open(path).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(open(folder.path()).starts_with("no_files:"));
    assert!(open(&folder.path().join("absent")).contains("absent"));
    let path = folder.path().join("x.mcap");
    for bytes in [&b""[..], b"hello, this is no bag", &[0x28, 0xb5, 0x2f, 0xfd]] {
        fs::write(&path, bytes).expect("written");
        assert!(open(&path).starts_with("not_a_bag:"), "{bytes:?}");
    }
    fs::write(&path, [b"SQLite format 3\0".as_slice(), &[7; 200]].concat()).expect("written");
    assert!(open(&path).starts_with("sqlite:"));
}

#[test]
fn topics_that_are_absent_wrong_or_empty_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bag.mcap");
    write_mcap(&path, plain(), &items());
    let bag = Bag::open(&path).expect("a bag");
    let absent = bag.require("/scan", &[CLOUD]).expect_err("absent").to_string();
    assert!(absent.starts_with("no_topic: '/scan'") && absent.contains("/points"), "{absent}");
    assert!(matches!(bag.require("/tf", &[CLOUD]), Err(BagError::WrongType { .. })));
    assert!(bag.require("/tf", &[CLOUD, "tf2_msgs/TFMessage"]).is_ok());
    assert_eq!(read_all(&bag, &["/scan"]).0, []);
    write_mcap(&path, plain(), &[]);
    let bag = Bag::open(&path).expect("a bag");
    assert_eq!((bag.span(), bag.topics()), (None, &[][..]));
}

#[test]
fn missing_files_and_unknown_compressions_are_named_and_the_rest_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    write_mcap(&folder.path().join("b.mcap"), plain(), &items());
    write_metadata(folder.path(), &["a.mcap", "b.mcap"], "");
    let (found, losses) = read(folder.path());
    assert!(found == expected());
    assert!(losses[0].starts_with("missing_file:"), "{losses:?}");

    let path = folder.path().join("c.mcap");
    write_mcap(&path, plain().compression(Some(Compression::Lz4)), &items());
    let bytes = fs::read(&path).expect("read");
    let with_other: Vec<u8> = replace(&bytes, b"\x03\0\0\0lz4", b"\x03\0\0\0xz9");
    fs::write(&path, with_other).expect("written");
    let (found, losses) = read(&path);
    assert_eq!(found, []);
    assert!(losses.iter().any(|loss| loss.starts_with("unknown_compression: 'xz9'")), "{losses:?}");
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for at in 0..bytes.len().saturating_sub(from.len()) {
        if bytes[at..].starts_with(from) {
            out[at..at + to.len()].copy_from_slice(to);
        }
    }
    out
}

/// A file of each kind, as bytes.
fn samples() -> &'static [(String, Vec<u8>)] {
    static MADE: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bag");
        let mut samples = Vec::new();
        for (name, options) in ways() {
            write_mcap(&path, options, &items());
            samples.push((name.to_owned(), fs::read(&path).expect("read")));
        }
        let zipped = zstd(&samples[0].1);
        samples.push(("zstd of mcap".to_owned(), zipped));
        let path = folder.path().join("bag.db3");
        write_db3(&path, &items());
        let db3 = fs::read(&path).expect("read");
        samples.push(("zstd of db3".to_owned(), zstd(&db3)));
        samples.push(("db3".to_owned(), db3));
        samples
    })
}

/// Opens the bytes as a bag and reads all. None: refused.
fn read_bytes(bytes: &[u8]) -> Option<(Vec<Item>, Vec<String>)> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file.flush().expect("written");
    let bag = Bag::open(file.path()).ok()?;
    Some(read_all(&bag, &TOPICS))
}

#[test]
fn of_a_file_that_was_cut_the_beginning_is_read_and_the_loss_is_said() {
    let all: BTreeSet<Vec<u8>> = expected().into_iter().map(|item| item.data).collect();
    for (name, bytes) in samples() {
        let mut least = 0;
        for cut in (0..bytes.len()).step_by(bytes.len() / 150 + 1).chain([bytes.len() - 1]) {
            let Some((read, losses)) = read_bytes(&bytes[..cut]) else { continue };
            assert!(!losses.is_empty() || read == expected(), "{name}, {cut} of {} bytes", bytes.len());
            let is_sound = name.contains("db3") || read.iter().all(|item| all.contains(&item.data));
            assert!(is_sound, "{name}, cut at {cut}");
            // The more there is, the more is read.
            if !name.contains("db3") {
                assert!(read.len() >= least, "{name}, cut at {cut}: {} after {least}", read.len());
                least = read.len();
            }
        }
        // A block of zstd is whole or lost, and these are small.
        if !name.contains("db3") && !["one chunk", "zstd of mcap"].contains(&name.as_str()) {
            assert!(least >= 38, "{name}: {least} of 40 messages of the longest piece");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_panic_and_what_a_sum_guards_is_right_or_absent(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let (name, bytes) = which.get(samples());
        let mut broken = bytes.clone();
        for (at, change) in edits {
            *at.get_mut(&mut broken) ^= change;
        }
        if let Some((read, losses)) = read_bytes(&broken) {
            let guarded = ["lz4", "zstd", "plain", "no statistics", "no summary", "one chunk"];
            if guarded.contains(&name.as_str()) {
                let all: BTreeSet<Vec<u8>> = expected().into_iter().map(|item| item.data).collect();
                for item in &read {
                    prop_assert!(all.contains(&item.data), "{}", name);
                }
            }
            prop_assert!(losses.len() <= 101);
        }
    }

    #[test]
    fn no_bytes_panic(start in 0usize..3, bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let magic: [&[u8]; 3] = [mcap::MAGIC, b"SQLite format 3\0", &[0x28, 0xb5, 0x2f, 0xfd]];
        let _ = read_bytes(&[magic[start], &bytes].concat());
    }
}

#[test]
fn a_corrupt_chunk_costs_that_chunk() {
    let (_, bytes) = samples().iter().find(|(name, _)| name == "zstd").expect("there");
    let mut broken = bytes.clone();
    let middle = broken.len() / 2;
    broken[middle] ^= 0xff;
    let (read, losses) = read_bytes(&broken).expect("a bag");
    assert!(read.len() >= 20 && read.len() < 40, "{}", read.len());
    assert!(losses[0].starts_with("corrupt_"), "{losses:?}");
}

/// The length of a record in the middle is wrong: the summary knows where the next chunk is.
#[test]
fn behind_a_corrupt_record_the_next_chunk_is_found() {
    let (_, bytes) = samples().iter().find(|(name, _)| name == "plain").expect("there");
    // The second chunk.
    let mut at = 0;
    let mut chunks = 0;
    let mut position = mcap::MAGIC.len();
    while position + 9 < bytes.len() {
        let len = u64::from_le_bytes(bytes[position + 1..position + 9].try_into().expect("eight"));
        if bytes[position] == 6 {
            chunks += 1;
            if chunks == 2 {
                at = position;
            }
        }
        position += 9 + len as usize;
    }
    assert!(chunks > 3);
    let mut broken = bytes.clone();
    broken[at + 7] = 0x7f;
    let (read, losses) = read_bytes(&broken).expect("a bag");
    assert!(read.len() >= 20 && read.len() < 40, "{}", read.len());
    assert!(losses[0].starts_with("corrupt_record:") && losses[0].contains("read on"), "{losses:?}");
}
