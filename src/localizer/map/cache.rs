//! What was made of a map file, kept beside it.
//!
//! Layout: magic, key and a line feed, 8 bytes of length and 8 of hash of the body, body (little endian).
//!
//! The key holds the size and a hash of the whole content of the map file: times of files lie (copies, containers,
//! version control), and reading 60 MB costs some 10 ms where making the map costs seconds. It also holds the
//! settings and the version of the program, so that another front end makes its own.

use super::{CacheUse, Map, Settings, Submap};
use crate::features::{Features, Lengths, Surface};
use crate::geometry::{Point, Vector};
use memmap2::Mmap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// First bytes of a file. The number goes up with every change of this layout or of what the front end computes.
const MAGIC: &[u8] = b"flashreg map 2\n";

/// Why the file beside a map is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("there is none")]
    Absent,
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("damaged, or of another version")]
    Damaged,
    #[error("made from another map file, with other settings, or by another version")]
    Stale,
}

/// `NAME.flashreg` beside a map file.
pub(super) fn path(map: &Path) -> PathBuf {
    let mut name = map.as_os_str().to_owned();
    name.push(".flashreg");
    name.into()
}

/// What a map is made from, and how; one line.
pub(super) fn key(file: &[u8], settings: &Settings) -> String {
    // The number of threads changes nothing.
    let Settings { voxel, submap, max_features, threads: _, cache: _, viewpoint } = settings;
    let viewpoint = viewpoint.map_or_else(String::new, |p| format!(" viewpoint {} {} {}", p.x, p.y, p.z));
    format!(
        "{} {:016x} voxel {voxel} submap {submap} features {max_features}{viewpoint} flashreg {}",
        file.len(),
        hash(file),
        env!("CARGO_PKG_VERSION")
    )
}

/// A hash of 64 bits that any change of a single word changes: four lanes, each step of which (exclusive or, odd
/// product, shifted exclusive or) can be undone. It protects from accidents, not from malice.
fn hash(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |state: u64, word: u64| {
        let mixed = (state ^ word).wrapping_mul(ODD);
        mixed ^ (mixed >> 29)
    };
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let mut lanes = [1u64, 2, 3, 4];
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for (lane, bytes) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            *lane = step(*lane, word(bytes));
        }
    }
    let mut last = [0; 32];
    last.iter_mut().zip(blocks.remainder()).for_each(|(to, from)| *to = *from);
    let rest = last.chunks_exact(8).map(word);
    lanes.into_iter().chain(rest).fold(bytes.len() as u64, step)
}

/// Reads what was made with this key.
pub(super) fn read(path: &Path, key: &str) -> Result<Map, Unusable> {
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Unusable::Absent,
        _ => Unusable::Unreadable(error),
    })?;
    if file.metadata().map_err(Unusable::Unreadable)?.len() == 0 {
        return Err(Unusable::Damaged);
    }
    // SAFETY: the map is read only and lives in this function only. As with every map of a file, nobody may shorten
    // it meanwhile; it is only ever replaced as a whole.
    let bytes = unsafe { Mmap::map(&file) }.map_err(Unusable::Unreadable)?;
    parse(&bytes, key)
}

fn parse(bytes: &[u8], key: &str) -> Result<Map, Unusable> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Unusable::Damaged)?;
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or(Unusable::Damaged)?;
    if rest.get(..end) != Some(key.as_bytes()) {
        return Err(Unusable::Stale);
    }
    let mut reader = Reader(rest.get(end + 1..).unwrap_or_default());
    let (length, sum) = (reader.count(1), reader.u64());
    match (length, sum) {
        (Some(length), Some(sum)) if length == reader.0.len() && sum == hash(reader.0) => {}
        _ => return Err(Unusable::Damaged),
    }
    let map = reader.map().ok_or(Unusable::Damaged)?;
    match reader.0.is_empty() {
        true => Ok(map),
        false => Err(Unusable::Damaged),
    }
}

/// Written beside and renamed, so that no reader sees half a file.
pub(super) fn write(path: &Path, key: &str, map: &Map) -> std::io::Result<()> {
    let mut body = Body(Vec::with_capacity(map.bytes() + (1 << 12)));
    body.map(map);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".flashreg").tempfile_in(folder)?;
    #[cfg(unix)]
    {
        // As any file that is made here, not for this user only.
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    file.write_all(MAGIC)?;
    file.write_all(key.as_bytes())?;
    file.write_all(b"\n")?;
    file.write_all(&(body.0.len() as u64).to_le_bytes())?;
    file.write_all(&hash(&body.0).to_le_bytes())?;
    file.write_all(&body.0)?;
    file.persist(path)?;
    Ok(())
}

struct Body(Vec<u8>);

impl Body {
    fn u64(&mut self, value: usize) {
        self.0.extend((value as u64).to_le_bytes());
    }

    fn numbers<'a>(&mut self, values: impl IntoIterator<Item = &'a f64>) {
        values.into_iter().for_each(|value| self.0.extend(value.to_le_bytes()));
    }

    fn points(&mut self, points: &[Point]) {
        self.u64(points.len());
        self.numbers(points.iter().flat_map(|point| point.iter()));
    }

    fn map(&mut self, map: &Map) {
        let Lengths { voxel, normal_radius, feature_radius } = &map.lengths;
        self.numbers([voxel, normal_radius, feature_radius]);
        self.numbers(map.bounds.iter().flat_map(|corner| corner.iter()));
        self.u64(map.raw_points as usize);
        self.u64(map.non_finite as usize);
        self.points(&map.surface.points);
        self.numbers(map.surface.normals.iter().flat_map(|normal| normal.iter()));
        self.u64(map.submaps.len());
        for Submap { center, radius, features } in &map.submaps {
            self.numbers(center.iter().chain([radius]));
            self.points(&features.points);
            self.0.extend(features.descriptors.as_flattened());
        }
    }
}

/// What is left to read. None: it ends before.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A number of things for which there are bytes.
    fn count(&mut self, bytes_each: usize) -> Option<usize> {
        let count = usize::try_from(self.u64()?).ok()?;
        (count.checked_mul(bytes_each)? <= self.0.len()).then_some(count)
    }

    fn numbers<const N: usize>(&mut self) -> Option<[f64; N]> {
        let mut numbers = [0.0; N];
        for (number, bytes) in numbers.iter_mut().zip(self.take(8 * N)?.chunks_exact(8)) {
            *number = f64::from_le_bytes(*bytes.first_chunk()?);
        }
        Some(numbers)
    }

    fn triples<T>(&mut self, count: usize, make: impl Fn([f64; 3]) -> T) -> Option<Vec<T>> {
        let mut bytes = Reader(self.take(count.checked_mul(24)?)?);
        let mut all = Vec::with_capacity(count);
        while let Some(numbers) = bytes.numbers() {
            all.push(make(numbers));
        }
        Some(all)
    }

    fn map(&mut self) -> Option<Map> {
        let [voxel, normal_radius, feature_radius] = self.numbers()?;
        let bounds = [self.numbers()?, self.numbers()?].map(Point::from);
        let (raw_points, non_finite) = (self.u64()?, self.u64()?);
        let count = self.count(48)?;
        let points = self.triples(count, Point::from)?;
        let normals = self.triples(count, Vector::from)?;
        let submaps = self.count(40)?;
        let submaps = (0..submaps).map(|_| self.submap()).collect::<Option<Vec<Submap>>>()?;
        Some(Map {
            lengths: Lengths { voxel, normal_radius, feature_radius },
            surface: Surface { points, normals },
            bounds,
            raw_points,
            non_finite,
            submaps,
            cache: CacheUse::Read,
        })
    }

    fn submap(&mut self) -> Option<Submap> {
        let [x, y, z, radius] = self.numbers()?;
        let count = self.count(24)?;
        let points = self.triples(count, Point::from)?;
        let (descriptors, _) = self.take(count.checked_mul(36)?)?.as_chunks();
        let features = Features { points, descriptors: descriptors.to_vec() };
        Some(Submap { center: Point::new(x, y, z), radius, features })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Map {
        let points: Vec<Point> = (0..5).map(f64::from).map(|i| Point::new(i, -i, 4.3e6 + 0.1 * i)).collect();
        let features = Features { points: points[..3].to_vec(), descriptors: vec![[7; 36]; 3] };
        Map {
            lengths: Lengths::new(0.1),
            bounds: super::super::bounds(&points),
            surface: Surface { normals: vec![Vector::z(); 5], points },
            raw_points: 50,
            non_finite: 2,
            submaps: vec![Submap { center: Point::origin(), radius: 9.0, features }; 2],
            cache: CacheUse::Read,
        }
    }

    #[test]
    fn only_a_whole_file_of_this_key_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcd.flashreg");
        assert!(matches!(read(&path, "key"), Err(Unusable::Absent)));
        let map = map();
        write(&path, "key", &map).expect("written");
        assert_eq!(format!("{:?}", read(&path, "key").expect("read")), format!("{map:?}"));
        assert!(matches!(read(&path, "other"), Err(Unusable::Stale)));
        let good = std::fs::read(&path).expect("bytes");
        for end in 0..good.len() {
            assert!(parse(&good[..end], "key").is_err(), "cut at {end}");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(parse(&bad, "key").is_err(), "changed at {at}");
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn the_key_tells_files_and_settings_apart() {
        let settings = Settings::default();
        let key_of = |bytes: &[u8], settings: &Settings| key(bytes, settings);
        let bytes = vec![5; 1000];
        let same = key_of(&bytes, &settings);
        assert_eq!(same, key_of(&bytes, &Settings { threads: 3, ..settings }));
        assert_ne!(same, key_of(&bytes[1..], &settings));
        assert_ne!(same, key_of(&bytes, &Settings { voxel: 0.2, ..settings }));
        assert_ne!(same, key_of(&bytes, &Settings { submap: 90.0, ..settings }));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] = 4;
            assert_ne!(same, key_of(&other, &settings), "{at}");
        }
    }
}
