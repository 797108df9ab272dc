//! The kernels: compiled for the device at hand by NVRTC at start, kept in a cache on disk.
//!
//! A file of the cache carries what it was made from: sources, options, architecture, version of
//! the compiler. One that does not match, or is damaged, is ignored and replaced.

use super::context::{Context, Doing, Kernel};
use super::device;
use super::error::GpuError;
use cudarc::driver::result;
use cudarc::driver::sys::CUmodule;
use cudarc::nvrtc::sys as nvrtc;
use std::ffi::{c_char, c_int, c_void, CString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAIN: &str = "all.cu";
/// The sources; the first is compiled and includes the others.
const SOURCES: [(&str, &str); 10] = [
    (MAIN, include_str!("../../kernels/all.cu")),
    ("common.cuh", include_str!("../../kernels/common.cuh")),
    ("fog.cu", include_str!("../../kernels/fog.cu")),
    ("sog.cu", include_str!("../../kernels/sog.cu")),
    ("cliques.cu", include_str!("../../kernels/cliques.cu")),
    ("hypotheses.cu", include_str!("../../kernels/hypotheses.cu")),
    ("sums.cuh", include_str!("../../kernels/sums.cuh")),
    ("refine.cu", include_str!("../../kernels/refine.cu")),
    ("examine.cu", include_str!("../../kernels/examine.cu")),
    ("frame.cu", include_str!("../../kernels/frame.cu")),
];
/// Rounding as on the CPU: no contraction, exact division and square root, subnormal numbers kept.
const OPTIONS: [&str; 5] =
    ["--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"];
/// First bytes of a file of the cache.
const MAGIC: &[u8] = b"flashreg kernels 1\n";

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
    /// A file of the cache.
    Cache(PathBuf),
    /// Compiled now, for this architecture.
    Compiled(String),
}

impl Bundle {
    /// Loads the kernels for the device of `context`: from the folder `cache` if they are there,
    /// else compiled and put there. Without a folder they are compiled.
    pub fn load(context: &Arc<Context>, cache: Option<&Path>) -> Result<Self, GpuError> {
        context.bind()?;
        let version = device::probe().nvrtc.map_err(GpuError::Absent)?;
        let target = Target::of(context.device().compute_capability, version)?;
        let key = target.key(version);
        let file = cache.map(|folder| folder.join(format!("{}-{:016x}.kernels", target.name(), hash(&key))));
        if let Some(file) = &file {
            if let Some(image) = read(file, &key) {
                // An image that the driver refuses is as good as none.
                if let Ok(bundle) = Self::from_image(context, &image, Origin::Cache(file.clone())) {
                    return Ok(bundle);
                }
            }
        }
        let image = compile(&target)?;
        let bundle = Self::from_image(context, &image, Origin::Compiled(target.name()))?;
        if let Some(file) = &file {
            if let Err(e) = write(file, &key, &image) {
                log::warn!("the compiled kernels cannot be kept in {}: {e}", file.display());
            }
        }
        Ok(bundle)
    }

    fn from_image(context: &Arc<Context>, image: &[u8], origin: Origin) -> Result<Self, GpuError> {
        // The driver reads a text (PTX) up to its zero.
        let mut image = image.to_vec();
        image.push(0);
        // SAFETY: a cubin or PTX, followed by a zero.
        let module = unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) }
            .doing("loading the kernels")?;
        Ok(Self { module, context: Arc::clone(context), origin })
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
            // SAFETY: loaded in `from_image`. An error leaves nothing to be done.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
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
    fn of([major, minor]: [i32; 2], version: [i32; 2]) -> Result<Self, GpuError> {
        if version < [11, 2] {
            let [a, b] = version;
            return Err(GpuError::Absent(format!("NVRTC {a}.{b} is too old: 11.2 or newer is needed")));
        }
        Self::among(10 * major + minor, &supported()?)
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

    /// Everything that the compiled kernels depend on.
    fn key(&self, [major, minor]: [i32; 2]) -> String {
        let sources: String = SOURCES.iter().map(|(name, text)| format!("{name}\n{text}\n")).collect();
        format!("{} nvrtc {major}.{minor} {OPTIONS:?} {:016x}", self.name(), hash(&sources))
    }
}

/// FNV-1a, 64 bits.
fn hash(text: impl AsRef<[u8]>) -> u64 {
    text.as_ref()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Layout of a file: magic, key and a line feed, hash of the image as 8 bytes, image.
fn read(file: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(key.as_bytes())?.strip_prefix(b"\n")?;
    let (sum, image) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == hash(image) && !image.is_empty()).then(|| image.to_vec())
}

/// Written beside and renamed, so that no reader sees half a file.
fn write(file: &Path, key: &str, image: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let bytes = [MAGIC, key.as_bytes(), b"\n", &hash(image).to_le_bytes(), image].concat();
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let beside = file.with_extension(format!("{}.{count}.new", std::process::id()));
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn checked(doing: &str, code: nvrtc::nvrtcResult) -> Result<(), GpuError> {
    match code {
        nvrtc::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        code => Err(GpuError::Compile(format!("NVRTC, {doing}: {code:?}"))),
    }
}

/// Architectures that the compiler knows. NVRTC must be there.
fn supported() -> Result<Vec<i32>, GpuError> {
    let mut count: c_int = 0;
    // SAFETY: writes one integer.
    checked("counting architectures", unsafe { nvrtc::nvrtcGetNumSupportedArchs(&mut count) })?;
    let mut list = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: as many integers as it said.
    checked("listing architectures", unsafe { nvrtc::nvrtcGetSupportedArchs(list.as_mut_ptr()) })?;
    Ok(list)
}

/// A program of NVRTC.
struct Program(nvrtc::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by nvrtcCreateProgram. An error leaves nothing to be done.
        let _ = unsafe { nvrtc::nvrtcDestroyProgram(&mut self.0) };
    }
}

impl Program {
    /// Reads a text or an image: its size, then its bytes.
    fn get(
        &self,
        doing: &str,
        size: unsafe fn(nvrtc::nvrtcProgram, *mut usize) -> nvrtc::nvrtcResult,
        bytes: unsafe fn(nvrtc::nvrtcProgram, *mut c_char) -> nvrtc::nvrtcResult,
    ) -> Result<Vec<u8>, GpuError> {
        let mut len = 0usize;
        // SAFETY: writes one size.
        checked(doing, unsafe { size(self.0, &mut len) })?;
        let mut out = vec![0u8; len];
        // SAFETY: writes as many bytes as it said.
        checked(doing, unsafe { bytes(self.0, out.as_mut_ptr().cast()) })?;
        Ok(out)
    }
}

fn compile(target: &Target) -> Result<Vec<u8>, GpuError> {
    let text = |s: &str| CString::new(s).map_err(|_| GpuError::Compile("a zero in the sources".to_owned()));
    let sources = SOURCES.iter().map(|(_, source)| text(source)).collect::<Result<Vec<_>, _>>()?;
    let names = SOURCES.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
    let mut options = OPTIONS.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?;
    options.push(text(&format!("--gpu-architecture={}", target.name()))?);
    let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
    let (source_list, name_list, option_list) = (pointers(&sources), pointers(&names), pointers(&options));
    let [main, headers @ ..] = source_list.as_slice() else { return Ok(Vec::new()) };
    let [main_name, header_names @ ..] = name_list.as_slice() else { return Ok(Vec::new()) };
    let mut raw: nvrtc::nvrtcProgram = std::ptr::null_mut();
    // SAFETY: texts that end in zero and outlive the program.
    checked("reading the sources", unsafe {
        nvrtc::nvrtcCreateProgram(
            &mut raw,
            *main,
            *main_name,
            headers.len() as c_int,
            headers.as_ptr(),
            header_names.as_ptr(),
        )
    })?;
    let program = Program(raw);
    // SAFETY: texts that end in zero.
    let code =
        unsafe { nvrtc::nvrtcCompileProgram(program.0, option_list.len() as c_int, option_list.as_ptr()) };
    if code != nvrtc::nvrtcResult::NVRTC_SUCCESS {
        let log = program.get("log", nvrtc::nvrtcGetProgramLogSize, nvrtc::nvrtcGetProgramLog)?;
        return Err(GpuError::Compile(String::from_utf8_lossy(&log).trim_matches('\0').trim().to_owned()));
    }
    match target.machine_code {
        true => program.get("machine code", nvrtc::nvrtcGetCUBINSize, nvrtc::nvrtcGetCUBIN),
        false => program.get("PTX", nvrtc::nvrtcGetPTXSize, nvrtc::nvrtcGetPTX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn only_a_whole_file_of_the_same_key_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("made").join("a.kernels");
        assert_eq!(read(&file, "key"), None);
        write(&file, "key", b"image").expect("written");
        assert_eq!(read(&file, "key").as_deref(), Some(b"image".as_slice()));
        assert_eq!(read(&file, "other"), None);
        let good = std::fs::read(&file).expect("readable");
        for end in 0..good.len() {
            std::fs::write(&file, &good[..end]).expect("written");
            assert_eq!(read(&file, "key"), None, "cut at {end}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&file, &bad).expect("written");
            assert_eq!(read(&file, "key"), None, "changed at {at}");
        }
        write(&file, "key", b"image").expect("replaced");
        assert!(read(&file, "key").is_some());
        assert_eq!(std::fs::read_dir(file.parent().expect("a folder")).expect("readable").count(), 1);
    }

    #[test]
    fn the_key_names_all_that_matters() {
        let target = Target { architecture: 87, machine_code: true };
        let key = target.key([12, 6]);
        assert_ne!(key, target.key([12, 7]));
        assert_ne!(key, Target { machine_code: false, ..target }.key([12, 6]));
        assert!(key.contains("--fmad=false"), "{key}");
    }

    #[test]
    fn the_kernels_compile_for_every_architecture() {
        if device::probe().nvrtc.is_err() {
            println!("skipped: no NVRTC");
            return;
        }
        let known = supported().expect("a list");
        for architecture in known.into_iter().filter(|a| *a >= 75) {
            let image = compile(&Target { architecture, machine_code: true }).expect("compiles");
            assert!(image.starts_with(b"\x7fELF"), "sm_{architecture}");
            println!("sm_{architecture}: {} bytes", image.len());
        }
    }
}
