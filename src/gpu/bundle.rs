//! The kernels for the device at hand: made ahead, else from a cache on disk, else compiled now.
//!
//! A file of kernels carries what it was made from: sources, options, architecture. One that does
//! not match, or is damaged, is not used.

pub mod ahead;
mod file;

use super::context::{Context, Doing, Kernel};
use super::error::GpuError;
use super::nvrtc::Nvrtc;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUmodule};
use file::{hash, File};
use std::ffi::{c_void, CString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAIN: &str = "all.cu";
/// The sources; the first is compiled and includes the others.
const SOURCES: [(&str, &str); 21] = [
    (MAIN, include_str!("../../kernels/all.cu")),
    ("common.cuh", include_str!("../../kernels/common.cuh")),
    ("fog.cu", include_str!("../../kernels/fog.cu")),
    ("sog.cu", include_str!("../../kernels/sog.cu")),
    ("bound.cu", include_str!("../../kernels/bound.cu")),
    ("cliques.cu", include_str!("../../kernels/cliques.cu")),
    ("hypotheses.cu", include_str!("../../kernels/hypotheses.cu")),
    ("sums.cuh", include_str!("../../kernels/sums.cuh")),
    ("choose.cu", include_str!("../../kernels/choose.cu")),
    ("refine.cu", include_str!("../../kernels/refine.cu")),
    ("examine.cu", include_str!("../../kernels/examine.cu")),
    ("frame.cu", include_str!("../../kernels/frame.cu")),
    ("triad.cuh", include_str!("../../kernels/triad.cuh")),
    ("sights.cuh", include_str!("../../kernels/sights.cuh")),
    ("p3p.cuh", include_str!("../../kernels/p3p.cuh")),
    ("polynomial.cuh", include_str!("../../kernels/polynomial.cuh")),
    ("five_point.cuh", include_str!("../../kernels/five_point.cuh")),
    ("absolute.cuh", include_str!("../../kernels/absolute.cuh")),
    ("relative.cuh", include_str!("../../kernels/relative.cuh")),
    ("estimate.cu", include_str!("../../kernels/estimate.cu")),
    ("matching.cu", include_str!("../../kernels/matching.cu")),
];
const REGISTRATION: Program = Program { sources: &SOURCES, options: &[] };
/// Header of all kernels.
pub const COMMON: (&str, &str) = SOURCES[1];
/// Options of NVRTC and nvcc alike. Rounding as on the CPU: no contraction, exact division and square
/// root, subnormal numbers kept.
const OPTIONS: &str = include_str!("../../kernels/options.txt");

/// Kernels that are compiled together.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Names and texts; the first is compiled and includes the others.
    pub sources: &'a [(&'a str, &'a str)],
    /// Options besides those of all kernels.
    pub options: &'a [&'a str],
}

impl Program<'_> {
    /// Machine code for one architecture, such as 87 for `sm_87`.
    pub fn machine_code(&self, nvrtc: &Nvrtc, architecture: i32) -> Result<Vec<u8>, GpuError> {
        compile(nvrtc, &Target::exactly(architecture), self)
    }
}

/// The loaded kernels.
pub struct Bundle {
    module: CUmodule,
    context: Arc<Context>,
    origin: Origin,
}

// SAFETY: modules of the driver may be used from any thread that binds the context.
unsafe impl Send for Bundle {}
// SAFETY: as above; the fields do not change.
unsafe impl Sync for Bundle {}

/// Where the kernels came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file made ahead.
    Ahead(PathBuf),
    /// A file of the cache.
    Cache(PathBuf),
    /// Compiled now, for this architecture.
    Compiled(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead(file) => write!(f, "made ahead, {}", file.display()),
            Self::Cache(_) => f.write_str("from the cache"),
            Self::Compiled(target) => write!(f, "compiled for {target}"),
        }
    }
}

impl Bundle {
    /// Loads the kernels for the device of `context`: those made ahead for its architecture (see
    /// [`ahead::folders`]), else those in the folder `cache`, else NVRTC compiles them and they are
    /// put there. Without a folder they are compiled.
    pub fn load(context: &Arc<Context>, cache: Option<&Path>) -> Result<Self, GpuError> {
        context.bind()?;
        let [major, minor] = context.device().compute_capability;
        let load = |image: &[u8]| load(context, image);
        let (module, origin) = find(10 * major + minor, &ahead::folders(), cache, Nvrtc::get, load)?;
        Ok(Self { module, context: Arc::clone(context), origin })
    }

    /// Loads other kernels for the device of `context`: those in the folder `cache`, else NVRTC
    /// compiles them and they are put there. Without a folder they are compiled.
    pub fn of(program: &Program, context: &Arc<Context>, cache: Option<&Path>) -> Result<Self, GpuError> {
        context.bind()?;
        let [major, minor] = context.device().compute_capability;
        let load = |image: &[u8]| load(context, image);
        let nvrtc = Nvrtc::get().map_err(GpuError::Absent)?;
        let (module, origin) = compiled(program, 10 * major + minor, cache, nvrtc, load)?;
        Ok(Self { module, context: Arc::clone(context), origin })
    }

    /// Loads other kernels made ahead for the device of `context`, see [`ahead::make`]; `why` there is no
    /// compiler is said if there are none.
    pub fn ahead(
        (name, program): (&str, Program),
        context: &Arc<Context>,
        why: &str,
    ) -> Result<Self, GpuError> {
        context.bind()?;
        let [major, minor] = context.device().compute_capability;
        let target = Target::exactly(10 * major + minor);
        let load = |image: &[u8]| load(context, image);
        let found = made_ahead(&target, name, &target.key_of(&program), &ahead::folders(), load);
        let (module, origin) = found.ok_or_else(|| none_ahead(&target, why))?;
        Ok(Self { module, context: Arc::clone(context), origin })
    }

    /// Fills an array of the module, which has room for all of `items`, with them.
    pub fn fill(&self, name: &str, items: &[u64]) -> Result<(), GpuError> {
        let name = CString::new(name).map_err(|_| GpuError::Absent("an array without a name".to_owned()))?;
        self.context.bind()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module is loaded; writes an address and a length.
        unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut bytes, self.module, name.as_ptr()) }
            .result()
            .doing("looking up an array of the kernels")?;
        if bytes < std::mem::size_of_val(items) {
            return Err(GpuError::Absent(format!("an array of the kernels has {bytes} bytes only")));
        }
        // SAFETY: there is room for the items.
        unsafe { result::memcpy_htod_sync(address, items) }.doing("filling an array of the kernels")
    }

    /// A kernel by its name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, GpuError> {
        let name = CString::new(name).map_err(|_| GpuError::Absent("a kernel without a name".to_owned()))?;
        // SAFETY: the module is loaded.
        let raw = unsafe { result::module::get_function(self.module, name) }.doing("looking up a kernel")?;
        Ok(Kernel { raw })
    }

    /// Where they came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: loaded in `Bundle::load`. An error leaves nothing to be done.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

fn load(context: &Context, image: &[u8]) -> Result<CUmodule, GpuError> {
    context.bind()?;
    // The driver reads a text (PTX) up to its zero.
    let image = [image, &[0]].concat();
    // SAFETY: a cubin or PTX, followed by a zero.
    unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) }.doing("loading the kernels")
}

/// The first kernels for the architecture `device` that `load` takes. The compiler is asked for only
/// if none were made ahead.
fn find<T>(
    device: i32,
    ahead: &[PathBuf],
    cache: Option<&Path>,
    nvrtc: impl FnOnce() -> Result<&'static Nvrtc, String>,
    load: impl Fn(&[u8]) -> Result<T, GpuError>,
) -> Result<(T, Origin), GpuError> {
    let exact = Target::exactly(device);
    if let Some(found) = made_ahead(&exact, ahead::REGISTRATION, &exact.key(), ahead, &load) {
        return Ok(found);
    }
    let nvrtc = nvrtc().map_err(|why| none_ahead(&exact, &why))?;
    compiled(&REGISTRATION, device, cache, nvrtc, load)
}

/// The first kernels made ahead that `load` takes.
fn made_ahead<T>(
    target: &Target,
    name: &str,
    key: &str,
    folders: &[PathBuf],
    load: impl Fn(&[u8]) -> Result<T, GpuError>,
) -> Option<(T, Origin)> {
    for path in folders.iter().map(|folder| ahead::path(folder, target, name)) {
        let why = match File::read_made_from(&path, key) {
            Ok(file) => match load(&file.image) {
                Ok(loaded) => return Some((loaded, Origin::Ahead(path))),
                Err(e) => e.to_string(),
            },
            Err(why) => why.to_string(),
        };
        log::warn!("kernels made ahead, {}: not used: {why}", path.display());
    }
    None
}

fn none_ahead(target: &Target, no_compiler: &str) -> GpuError {
    let name = target.name();
    GpuError::Absent(format!(
        "there are no kernels made ahead for {name} (`flashreg kernels`, {}), and {no_compiler}",
        ahead::VARIABLE
    ))
}

/// The kernels from the cache if `load` takes them, else compiled now.
fn compiled<T>(
    program: &Program,
    device: i32,
    cache: Option<&Path>,
    nvrtc: &Nvrtc,
    load: impl Fn(&[u8]) -> Result<T, GpuError>,
) -> Result<(T, Origin), GpuError> {
    let target = Target::among(device, &nvrtc.architectures()?)?;
    let (key, compiler) = (target.key_of(program), compiler(nvrtc));
    let cached = cache.map(|folder| {
        let sum = hash(format!("{key} {compiler}"));
        folder.join(format!("{}-{sum:016x}.kernels", target.name()))
    });
    if let Some(path) = &cached {
        match File::read_made_from(path, &key) {
            // An image that the driver refuses is as good as none.
            Ok(file) if file.compiler == compiler => {
                if let Ok(loaded) = load(&file.image) {
                    return Ok((loaded, Origin::Cache(path.clone())));
                }
            }
            _ => {}
        }
    }
    let file = File { image: compile(nvrtc, &target, program)?, key, compiler };
    let loaded = load(&file.image)?;
    if let Some(path) = &cached {
        if let Err(e) = file.write(path) {
            log::warn!("the compiled kernels cannot be kept in {}: {e}", path.display());
        }
    }
    Ok((loaded, Origin::Compiled(target.name())))
}

/// The folder of the cache: `$XDG_CACHE_HOME/flashreg`, else `~/.cache/flashreg`, else none.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("flashreg"))
}

/// What is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    architecture: i32,
    /// Machine code; else a text (PTX) that the driver compiles, for devices newer than the
    /// compiler.
    machine_code: bool,
}

impl Target {
    /// Machine code for one architecture.
    fn exactly(architecture: i32) -> Self {
        Self { architecture, machine_code: true }
    }

    /// The best target for a device among what the compiler knows.
    fn among(device: i32, supported: &[i32]) -> Result<Self, GpuError> {
        if device < 75 {
            return Err(GpuError::Absent(format!(
                "compute capability {}.{} is too old: 7.5 or newer is needed",
                device / 10,
                device % 10
            )));
        }
        match supported.iter().filter(|a| **a <= device).max() {
            Some(nearest) => Ok(Self { architecture: *nearest, machine_code: *nearest == device }),
            None => Err(GpuError::Absent(format!("NVRTC cannot compile for sm_{device}"))),
        }
    }

    fn name(&self) -> String {
        let kind = if self.machine_code { "sm" } else { "compute" };
        format!("{kind}_{}", self.architecture)
    }

    /// Everything that the kernels of the registration depend on, but for the compiler.
    fn key(&self) -> String {
        self.key_of(&REGISTRATION)
    }

    /// Everything that compiled kernels depend on, but for the compiler.
    fn key_of(&self, program: &Program) -> String {
        let sources: String =
            program.sources.iter().map(|(name, text)| format!("{name}\n{text}\n")).collect();
        let options: Vec<&str> = OPTIONS.split_whitespace().chain(program.options.iter().copied()).collect();
        format!("{} {} {:016x}", self.name(), options.join(" "), hash(&sources))
    }
}

/// Name and version of the compiler.
fn compiler(nvrtc: &Nvrtc) -> String {
    let [major, minor] = nvrtc.version();
    format!("NVRTC {major}.{minor}")
}

fn compile(nvrtc: &Nvrtc, target: &Target, program: &Program) -> Result<Vec<u8>, GpuError> {
    let architecture = format!("--gpu-architecture={}", target.name());
    let own = program.options.iter().copied().chain([architecture.as_str()]);
    let options: Vec<&str> = OPTIONS.split_whitespace().chain(own).collect();
    nvrtc.compile(program.sources, &options, target.machine_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::nvrtc::tests::nvrtc;
    use rayon::prelude::*;

    #[test]
    fn the_target_is_the_device_or_the_nearest_older_architecture() {
        let known = [75, 80, 86, 87, 89, 90];
        let target = |device| Target::among(device, &known).map(|t| t.name());
        assert_eq!(target(87), Ok("sm_87".to_owned()));
        assert_eq!(target(90), Ok("sm_90".to_owned()));
        assert_eq!(target(120), Ok("compute_90".to_owned()));
        assert_eq!(target(88), Ok("compute_87".to_owned()));
        assert!(target(72).is_err());
        assert!(Target::among(75, &[80, 90]).is_err());
    }

    #[test]
    fn the_key_names_all_that_matters() {
        let target = Target::exactly(87);
        let key = target.key();
        assert_ne!(key, Target { machine_code: false, ..target }.key());
        assert_ne!(key, Target::exactly(86).key());
        assert!(key.contains("--fmad=false") && !key.contains('\n'), "{key}");
    }

    fn no_compiler() -> Result<&'static Nvrtc, String> {
        Err("there is no compiler".to_owned())
    }

    /// Files of kernels as another compiler may have made them, for the architectures.
    fn made_ahead(architectures: &[i32]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().expect("a folder");
        for target in architectures.iter().map(|architecture| Target::exactly(*architecture)) {
            let file = File { key: target.key(), compiler: "another".into(), image: vec![7; 9] };
            file.write(&ahead::path(folder.path(), &target, ahead::REGISTRATION)).expect("written");
        }
        let folders = vec![folder.path().join("nowhere"), folder.path().to_owned()];
        (folder, folders)
    }

    #[test]
    fn kernels_made_ahead_need_no_compiler() {
        let (folder, folders) = made_ahead(&[87, 90]);
        let image = |image: &[u8]| Ok(image.to_vec());
        let found = find(87, &folders, None, no_compiler, image);
        let path = folder.path().join("sm_87.kernels");
        assert_eq!(found, Ok((vec![7; 9], Origin::Ahead(path.clone()))));
        assert!(Origin::Ahead(path).to_string().contains("sm_87.kernels"));
        // Only for the exact architecture.
        let why = find(86, &folders, None, no_compiler, image).expect_err("none for 86").to_string();
        assert!(why.contains("sm_86") && why.contains("there is no compiler"), "{why}");
    }

    #[test]
    fn what_was_made_ahead_and_cannot_be_used_leaves_it_to_the_compiler() {
        let (folder, folders) = made_ahead(&[87]);
        let path = folder.path().join("sm_87.kernels");
        let good = std::fs::read(&path).expect("readable");
        let asked = || find(87, &folders, None, no_compiler, |image| Ok(image.len())).is_err();
        assert!(!asked());
        std::fs::write(&path, &good[..good.len() - 1]).expect("written");
        assert!(asked(), "damaged");
        std::fs::write(&path, "something else").expect("written");
        assert!(asked(), "foreign");
        let stale = File { key: Target::exactly(90).key(), compiler: "another".into(), image: vec![7] };
        stale.write(&path).expect("written");
        assert!(asked(), "made from something else");
        std::fs::write(&path, &good).expect("written");
        let refused = |_: &[u8]| Err::<(), _>(GpuError::Absent("the driver is too old".into()));
        assert!(find(87, &folders, None, no_compiler, refused).is_err(), "refused by the driver");
    }

    #[test]
    fn compiled_kernels_are_kept_in_the_cache() {
        if nvrtc().is_none() {
            return;
        }
        let (_folder, folders) = made_ahead(&[87]);
        let cache = tempfile::tempdir().expect("a folder");
        let load = |image: &[u8]| match image.starts_with(b"\x7fELF") {
            true => Ok(()),
            false => Err(GpuError::Absent("no machine code".into())),
        };
        let origin = || find(87, &folders, Some(cache.path()), Nvrtc::get, load).map(|(_, origin)| origin);
        assert_eq!(origin(), Ok(Origin::Compiled("sm_87".into())));
        let entry =
            std::fs::read_dir(cache.path()).expect("readable").next().expect("a file").expect("a file");
        assert_eq!(origin(), Ok(Origin::Cache(entry.path())));
        let damaged = std::fs::read(entry.path()).expect("readable").split_off(1);
        std::fs::write(entry.path(), damaged).expect("written");
        assert_eq!(origin(), Ok(Origin::Compiled("sm_87".into())));
        assert_eq!(origin(), Ok(Origin::Cache(entry.path())));
    }

    #[test]
    fn the_kernels_compile_for_every_architecture() {
        let Some(nvrtc) = nvrtc() else { return };
        let known = nvrtc.architectures().expect("a list");
        let known: Vec<i32> = ahead::ARCHITECTURES.into_iter().filter(|a| known.contains(a)).collect();
        assert!(known.contains(&87), "{known:?}");
        known.into_par_iter().for_each(|architecture| {
            let image = compile(nvrtc, &Target::exactly(architecture), &REGISTRATION).expect("compiles");
            assert!(image.starts_with(b"\x7fELF"), "sm_{architecture}");
            println!("sm_{architecture}: {} bytes", image.len());
        });
    }
}
