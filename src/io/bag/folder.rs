//! Which files a bag consists of, and what they are.

use super::loss::{Damage, Losses};
use super::{db3, mcap, BagError, Store};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MCAP_MAGIC: &[u8] = ::mcap::MAGIC;
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The files of a bag in their order.
pub(super) struct Listing {
    pub files: Vec<PathBuf>,
    /// Each message is compressed by itself.
    pub inflate: bool,
}

/// What is needed of metadata.yaml.
#[derive(Deserialize)]
struct Metadata {
    rosbag2_bagfile_information: Information,
}

#[derive(Deserialize)]
struct Information {
    #[serde(default)]
    relative_file_paths: Vec<PathBuf>,
    #[serde(default)]
    compression_mode: String,
}

pub(super) fn list(path: &Path, losses: &mut Losses) -> Result<Listing, BagError> {
    if !path.is_dir() {
        // A file of a folder, given by itself: the folder knows how it is compressed.
        let beside = path.parent().map(|folder| folder.join("metadata.yaml"));
        let information = beside.and_then(|beside| read(&beside).ok());
        let known = information.filter(|information| {
            information.relative_file_paths.iter().any(|listed| listed.file_name() == path.file_name())
        });
        let inflate = known.is_some_and(|information| information.is_by_message());
        return Ok(Listing { files: vec![path.to_owned()], inflate });
    }
    let listing = match read(&path.join("metadata.yaml")) {
        Ok(information) => {
            // rosbag2 of old wrote the name of the folder before that of the file.
            let names = information.relative_file_paths.iter().filter_map(|listed| listed.file_name());
            let (files, missing): (Vec<PathBuf>, Vec<PathBuf>) =
                names.map(|name| path.join(name)).partition(|file| file.exists());
            for file in missing {
                losses.add(&file, Damage::MissingFile);
            }
            Listing { files, inflate: information.is_by_message() }
        }
        Err(why) => {
            losses.add(path, Damage::NoMetadata(why));
            Listing { files: by_number(path)?, inflate: false }
        }
    };
    match listing.files.is_empty() {
        true => Err(BagError::NoFiles(path.to_owned())),
        false => Ok(listing),
    }
}

fn read(path: &Path) -> Result<Information, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("metadata.yaml: {error}"))?;
    let metadata: Result<Metadata, _> = serde_yaml::from_str(&text);
    metadata.map(|m| m.rosbag2_bagfile_information).map_err(|error| format!("metadata.yaml: {error}"))
}

impl Information {
    fn is_by_message(&self) -> bool {
        self.compression_mode.eq_ignore_ascii_case("message")
    }
}

/// Bag files of a folder: `bag_2` before `bag_10`.
fn by_number(folder: &Path) -> Result<Vec<PathBuf>, BagError> {
    let io = |source| BagError::Io { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.strip_suffix(".zstd").unwrap_or(name);
        if let Some((stem, "mcap" | "db3")) = stem.rsplit_once('.') {
            let number = stem.rsplit('_').next().and_then(|digits| digits.parse::<u64>().ok());
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Opens a file as what its first bytes say it is.
pub(super) fn open(path: &Path, losses: &mut Losses) -> Result<Store, BagError> {
    let io = |source| BagError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(16).read_to_end(&mut start).map_err(io)?;
    let mut unpacked = None;
    if start.starts_with(ZSTD_MAGIC) {
        let file = unpack(path, losses).map_err(io)?;
        start.clear();
        file.as_file().take(16).read_to_end(&mut start).map_err(io)?;
        unpacked = Some(file);
    }
    if start.starts_with(MCAP_MAGIC) {
        mcap::Mcap::open(path, unpacked, losses).map(Store::Mcap)
    } else if start.starts_with(SQLITE_MAGIC) {
        db3::Db3::open(path, unpacked, losses).map(Store::Db3)
    } else {
        Err(BagError::NotABag(path.to_owned()))
    }
}

/// Unpacks a file into a temporary one, as far as it goes.
fn unpack(path: &Path, losses: &mut Losses) -> io::Result<tempfile::NamedTempFile> {
    let mut unpacked = tempfile::NamedTempFile::new()?;
    let mut decoder = zstd::Decoder::new(File::open(path)?)?;
    let mut out = BufWriter::with_capacity(1 << 20, unpacked.as_file());
    let mut block = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        match decoder.read(&mut block) {
            Ok(0) => break,
            Ok(n) => {
                out.write_all(block.get(..n).unwrap_or_default())?;
                bytes += n as u64;
            }
            Err(error) => {
                losses.add(path, Damage::TruncatedZstd { bytes, why: error.to_string() });
                break;
            }
        }
    }
    out.flush()?;
    drop(out);
    io::Seek::rewind(unpacked.as_file_mut())?;
    Ok(unpacked)
}
