//! Kernels made ahead: a folder with one file of machine code for each architecture.
//!
//! The robot needs no compiler then. Which compiler made a file does not matter, only from what.

use super::file::{File, Unusable};
use super::{compile, compiler, Program, Target};
use crate::gpu::nvrtc::Nvrtc;
use crate::gpu::GpuError;
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Environment variable with a folder of kernels; it is looked into first.
pub const VARIABLE: &str = "FLASHREG_KERNELS";
/// Architectures that kernels are made for unless others are named: of each generation from Turing
/// to Blackwell those of cards, robots (87: Jetson Orin) and data centres.
pub const ARCHITECTURES: [i32; 8] = [75, 80, 86, 87, 89, 90, 100, 120];
/// Name of the kernels of the registration.
pub(super) const REGISTRATION: &str = "";
/// Below the prefix of an installation.
const SHARE: &str = "share/flashreg/kernels";

/// Where kernels made ahead may lie: `$FLASHREG_KERNELS`, then `share/flashreg/kernels` of the
/// installation that the program belongs to, if it is there.
pub fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let own = std::env::current_exe().ok().and_then(|program| beside(&program));
    named.into_iter().chain(own).collect()
}

/// The folder that belongs to `PREFIX/bin/PROGRAM` or `PREFIX/lib/flashreg/PROGRAM`.
fn beside(program: &Path) -> Option<PathBuf> {
    program.ancestors().skip(2).take(2).map(|prefix| prefix.join(SHARE)).find(|folder| folder.is_dir())
}

/// The file of an architecture, with the name of its kernels.
pub(super) fn path(folder: &Path, target: &Target, name: &str) -> PathBuf {
    let dot = if name.is_empty() { "" } else { "." };
    folder.join(format!("{}{dot}{name}.{EXTENSION}", target.name()))
}

const EXTENSION: &str = "kernels";

/// Compiles the kernels of the registration, and `others` by their names, for an architecture, such as
/// 87 for `sm_87`, into `folder`. Gives each file and its bytes of machine code.
pub fn make(
    nvrtc: &Nvrtc,
    architecture: i32,
    folder: &Path,
    others: &[(&str, Program)],
) -> Result<Vec<(PathBuf, usize)>, GpuError> {
    let target = Target::exactly(architecture);
    let one = |(name, program): (&str, &Program)| {
        let (key, compiler) = (target.key_of(program), compiler(nvrtc));
        let file = File { key, compiler, image: compile(nvrtc, &target, program)? };
        let path = path(folder, &target, name);
        file.write(&path).map_err(|e| GpuError::Absent(format!("cannot write {}: {e}", path.display())))?;
        Ok((path, file.image.len()))
    };
    let all: Vec<_> = all(others).collect();
    all.into_par_iter().map(one).collect()
}

/// Kernels of the registration, and others, by their names.
fn all<'a>(others: &'a [(&str, Program<'a>)]) -> impl Iterator<Item = (&'a str, &'a Program<'a>)> {
    std::iter::once((REGISTRATION, &super::REGISTRATION)).chain(others.iter().map(|(name, p)| (*name, p)))
}

/// A file of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Bytes of machine code and the compiler that made them, or why it cannot be used.
    pub content: Result<(usize, String), String>,
}

/// What a folder holds, by name; `others` as for [`make`].
pub fn list(folder: &Path, others: &[(&str, Program)]) -> std::io::Result<Vec<Listed>> {
    let paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    paths.sort();
    let listed = paths.iter().map(|path| {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let content = content(path, &text(path.file_stem()), others)
            .map(|file| (file.image.len(), file.compiler))
            .map_err(|why| why.to_string());
        Listed { name: text(path.file_name()), content }
    });
    Ok(listed.collect())
}

fn content(path: &Path, stem: &str, others: &[(&str, Program)]) -> Result<File, Unusable> {
    let (target, name) = stem.split_once('.').unwrap_or((stem, REGISTRATION));
    let architecture = target.strip_prefix("sm_").and_then(|number| number.parse().ok());
    let program = all(others).find(|(known, _)| *known == name);
    match architecture.zip(program) {
        Some((architecture, (_, program))) => {
            File::read_made_from(path, &Target::exactly(architecture).key_of(program))
        }
        None => File::read(path).and(Err(Unusable::Stale)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_has_its_folder() {
        let prefix = tempfile::tempdir().expect("a folder");
        let share = prefix.path().join(SHARE);
        let programs = ["bin/flashreg", "lib/flashreg/flashreg_node"].map(|p| prefix.path().join(p));
        assert!(programs.iter().all(|program| beside(program).is_none()));
        std::fs::create_dir_all(&share).expect("made");
        assert!(programs.iter().all(|program| beside(program).as_ref() == Some(&share)));
        assert_eq!(beside(&prefix.path().join("a/b/c/flashreg")), None);
        assert_eq!(beside(Path::new("flashreg")), None);
    }

    #[test]
    fn a_list_says_what_cannot_be_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |key: String| File { key, compiler: "by hand".into(), image: vec![1, 2, 3] };
        let at = |name: &str| folder.path().join(name);
        let others = [("other", Program { sources: &[("other.cu", "")], options: &[] })];
        file(Target::exactly(87).key()).write(&at("sm_87.kernels")).expect("written");
        file(Target::exactly(87).key_of(&others[0].1)).write(&at("sm_87.other.kernels")).expect("written");
        file(Target::exactly(87).key()).write(&at("sm_89.other.kernels")).expect("written");
        file(Target::exactly(87).key()).write(&at("sm_90.kernels")).expect("written");
        file(Target::exactly(87).key()).write(&at("other.kernels")).expect("written");
        std::fs::write(at("sm_75.kernels"), "nothing").expect("written");
        std::fs::write(at("README"), "not looked at").expect("written");
        let said: Vec<_> = list(folder.path(), &others)
            .expect("readable")
            .into_iter()
            .map(|l| (l.name, l.content))
            .collect();
        let (stale, damaged) = (Unusable::Stale.to_string(), Unusable::Damaged.to_string());
        let wanted = [
            ("other.kernels", Err(stale.clone())),
            ("sm_75.kernels", Err(damaged)),
            ("sm_87.kernels", Ok((3, "by hand".to_owned()))),
            ("sm_87.other.kernels", Ok((3, "by hand".to_owned()))),
            ("sm_89.other.kernels", Err(stale.clone())),
            ("sm_90.kernels", Err(stale)),
        ];
        assert_eq!(said, wanted.map(|(name, content)| (name.to_owned(), content)));
        assert!(list(&at("nowhere"), &others).is_err());
    }
}
