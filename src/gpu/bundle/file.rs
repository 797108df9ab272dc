//! A file of compiled kernels: what they were made from, by what, and the image.
//!
//! Layout: magic, key and a line feed, compiler and a line feed, 8 bytes of hash over key, compiler
//! and image, image.

use std::path::Path;

/// First bytes of a file.
const MAGIC: &[u8] = b"flashreg kernels 2\n";

/// Compiled kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// Target, options and sources; one line.
    pub key: String,
    /// Name and version of the compiler; one line.
    pub compiler: String,
    /// A cubin or PTX.
    pub image: Vec<u8>,
}

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    #[error("damaged, or no file of kernels")]
    Damaged,
    #[error("made from other sources or options")]
    Stale,
}

impl File {
    /// Reads any whole file.
    pub fn read(path: &Path) -> Result<Self, Unusable> {
        Self::parse(&std::fs::read(path)?).ok_or(Unusable::Damaged)
    }

    /// Reads a file that was made from this.
    pub fn read_made_from(path: &Path, key: &str) -> Result<Self, Unusable> {
        Self::read(path).and_then(|file| if file.key == key { Ok(file) } else { Err(Unusable::Stale) })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (key, rest) = line(bytes.strip_prefix(MAGIC)?)?;
        let (compiler, rest) = line(rest)?;
        let (sum, image) = rest.split_first_chunk()?;
        let file = Self { key, compiler, image: image.to_vec() };
        (u64::from_le_bytes(*sum) == file.hash() && !image.is_empty()).then_some(file)
    }

    fn hash(&self) -> u64 {
        let Self { key, compiler, image } = self;
        hash([key.as_bytes(), b"\n", compiler.as_bytes(), b"\n", image].concat())
    }

    /// Written beside and renamed, so that no reader sees half a file.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let Self { key, compiler, image } = self;
        let sum = self.hash().to_le_bytes();
        let bytes = [MAGIC, key.as_bytes(), b"\n", compiler.as_bytes(), b"\n", &sum, image].concat();
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let beside = path.with_extension(format!("{}.{count}.new", std::process::id()));
        let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        written
    }
}

fn line(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at_checked(end)?;
    Some((std::str::from_utf8(line).ok()?.to_owned(), rest.get(1..)?))
}

/// FNV-1a, 64 bits.
pub(super) fn hash(text: impl AsRef<[u8]>) -> u64 {
    text.as_ref()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_file_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("made").join("a.kernels");
        assert!(matches!(File::read(&path), Err(Unusable::Unreadable(_))));
        let file = File { key: "key".into(), compiler: "by hand".into(), image: b"image\n".to_vec() };
        file.write(&path).expect("written");
        assert_eq!(File::read_made_from(&path, "key").ok().as_ref(), Some(&file));
        assert!(matches!(File::read_made_from(&path, "other"), Err(Unusable::Stale)));
        let good = std::fs::read(&path).expect("readable");
        for end in 0..good.len() {
            std::fs::write(&path, &good[..end]).expect("written");
            assert!(matches!(File::read(&path), Err(Unusable::Damaged)), "cut at {end}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).expect("written");
            assert!(matches!(File::read(&path), Err(Unusable::Damaged)), "changed at {at}");
        }
        file.write(&path).expect("replaced");
        assert!(File::read(&path).is_ok());
        assert_eq!(std::fs::read_dir(path.parent().expect("a folder")).expect("readable").count(), 1);
    }
}
