//! NVRTC, the run-time compiler of CUDA: looked for and loaded when it is first needed.
//!
//! Toolkits and JetPack install it where the loader of the system finds it, with or without the
//! plain name `libnvrtc.so`; the Python wheels put it where nobody looks. [`VARIABLE`] names it then.

use super::error::GpuError;
use libloading::Library;
use std::error::Error;
use std::ffi::{c_char, c_int, c_void, CStr, CString, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Environment variable with the path of the library; if it is set no other is taken.
pub const VARIABLE: &str = "FLASHREG_NVRTC";
/// Names that it has: the toolkit's own choice, then by version.
const NAMES: [&str; 4] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];
/// Where it lies if the loader was not told: nowhere else, and in the toolkit's usual folder.
const FOLDERS: [&str; 2] = ["", "/usr/local/cuda/lib64"];
/// The oldest that can list its architectures.
const OLDEST: [i32; 2] = [11, 2];

type Handle = *mut c_void;

/// Declares the functions of the library that are used, and looks them up.
macro_rules! functions {
    ($($field:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)+) => {
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> $result,)+ }

        impl Functions {
            /// # Safety
            /// The library is NVRTC, and lives as long as this.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: these are the signatures of nvrtc.h since CUDA 11.2.
                Ok(Self { $($field: unsafe { *library.get($symbol)? },)+ })
            }
        }
    };
}

functions! {
    version = "nvrtcVersion"(*mut c_int, *mut c_int) -> c_int;
    error_text = "nvrtcGetErrorString"(c_int) -> *const c_char;
    count_architectures = "nvrtcGetNumSupportedArchs"(*mut c_int) -> c_int;
    architectures = "nvrtcGetSupportedArchs"(*mut c_int) -> c_int;
    create = "nvrtcCreateProgram"(
        *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    ) -> c_int;
    destroy = "nvrtcDestroyProgram"(*mut Handle) -> c_int;
    compile = "nvrtcCompileProgram"(Handle, c_int, *const *const c_char) -> c_int;
    log_size = "nvrtcGetProgramLogSize"(Handle, *mut usize) -> c_int;
    log = "nvrtcGetProgramLog"(Handle, *mut c_char) -> c_int;
    ptx_size = "nvrtcGetPTXSize"(Handle, *mut usize) -> c_int;
    ptx = "nvrtcGetPTX"(Handle, *mut c_char) -> c_int;
    cubin_size = "nvrtcGetCUBINSize"(Handle, *mut usize) -> c_int;
    cubin = "nvrtcGetCUBIN"(Handle, *mut c_char) -> c_int;
}

/// The loaded compiler.
pub struct Nvrtc {
    functions: Functions,
    version: [i32; 2],
    // Keep the functions where they are.
    _library: Library,
    _builtins: Vec<Library>,
}

impl Nvrtc {
    /// The compiler of this machine; if there is none, a sentence says why.
    pub fn get() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        LOADED.get_or_init(|| Self::load(std::env::var_os(VARIABLE))).as_ref().map_err(String::clone)
    }

    fn load(named: Option<OsString>) -> Result<Self, String> {
        if let Some(path) = named.filter(|path| !path.is_empty()).map(PathBuf::from) {
            let said = format!("{VARIABLE}={}", path.display());
            let library = open(&path).map_err(|e| format!("{said} cannot be loaded: {}", reason(&e)))?;
            return Self::of(library, &path).map_err(|why| format!("{said}: {why}"));
        }
        let paths = FOLDERS.iter().flat_map(|folder| NAMES.map(|name| Path::new(folder).join(name)));
        match paths.into_iter().find_map(|path| Some((open(&path).ok()?, path))) {
            Some((library, path)) => Self::of(library, &path),
            None => Err(format!(
                "the CUDA run-time compiler (libnvrtc) is not installed, or {VARIABLE} has to say where"
            )),
        }
    }

    fn of(library: Library, path: &Path) -> Result<Self, String> {
        // SAFETY: the library has NVRTC's name or the user says that it is NVRTC; it is kept.
        let functions = unsafe { Functions::of(&library) };
        let functions =
            functions.map_err(|e| format!("this is no NVRTC of CUDA 11.2 or newer: {}", reason(&e)))?;
        let mut nvrtc = Self { functions, version: [0; 2], _library: library, _builtins: builtins(path) };
        let [mut major, mut minor] = [0; 2];
        // SAFETY: writes two integers.
        let code = unsafe { (nvrtc.functions.version)(&mut major, &mut minor) };
        nvrtc.checked("asking for its version", code).map_err(|e| e.to_string())?;
        nvrtc.version = [major, minor];
        match nvrtc.version < OLDEST {
            true => Err(format!("NVRTC {major}.{minor} is too old: 11.2 or newer is needed")),
            false => Ok(nvrtc),
        }
    }

    /// Its version: major, minor.
    pub fn version(&self) -> [i32; 2] {
        self.version
    }

    /// Architectures that it compiles for, such as 87 for `sm_87`.
    pub fn architectures(&self) -> Result<Vec<i32>, GpuError> {
        let mut count: c_int = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.functions.count_architectures)(&mut count) };
        self.checked("counting architectures", code)?;
        let mut list = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: as many integers as it said.
        let code = unsafe { (self.functions.architectures)(list.as_mut_ptr()) };
        self.checked("listing architectures", code)?;
        Ok(list)
    }

    /// Compiles the first of `sources` (name, text), which includes the others by their names; gives
    /// machine code, or PTX.
    pub fn compile(
        &self,
        sources: &[(&str, &str)],
        options: &[&str],
        machine_code: bool,
    ) -> Result<Vec<u8>, GpuError> {
        let [main, headers @ ..] = sources else { return Ok(Vec::new()) };
        let (name, text) = (c_text(main.0)?, c_text(main.1)?);
        let header_names = CTexts::of(headers.iter().map(|(name, _)| *name))?;
        let header_texts = CTexts::of(headers.iter().map(|(_, text)| *text))?;
        let options = CTexts::of(options.iter().copied())?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: texts that end in zero and outlive the program.
        let code = unsafe {
            (self.functions.create)(
                &mut handle,
                text.as_ptr(),
                name.as_ptr(),
                header_texts.len(),
                header_texts.pointers.as_ptr(),
                header_names.pointers.as_ptr(),
            )
        };
        self.checked("reading the sources", code)?;
        let program = Program { handle, nvrtc: self };
        let f = &self.functions;
        // SAFETY: texts that end in zero.
        if unsafe { (f.compile)(handle, options.len(), options.pointers.as_ptr()) } != 0 {
            let log = program.read("reading the log", f.log_size, f.log)?;
            let log = String::from_utf8_lossy(&log).trim_matches('\0').trim().to_owned();
            return Err(GpuError::Compile(log));
        }
        match machine_code {
            true => program.read("reading the machine code", f.cubin_size, f.cubin),
            false => program.read("reading the PTX", f.ptx_size, f.ptx),
        }
    }

    fn checked(&self, doing: &str, code: c_int) -> Result<(), GpuError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: gives a text that is never freed, whatever the code.
        let text = unsafe { (self.functions.error_text)(code) };
        let text = match text.is_null() {
            true => format!("error {code}"),
            // SAFETY: ends in zero.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(GpuError::Compile(format!("NVRTC, {doing}: {text}")))
    }
}

fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: loading NVRTC or its second library has no conditions.
    unsafe { Library::new(path) }
}

/// What the loader of the system says.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// NVRTC asks the loader for its second library only by name, which finds it in a folder that the
/// loader does not know only if it is already loaded.
fn builtins(nvrtc: &Path) -> Vec<Library> {
    let Some(folder) = nvrtc.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned())) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so."))
        .filter_map(|entry| open(&entry.path()).ok())
        .collect()
}

fn c_text(text: &str) -> Result<CString, GpuError> {
    CString::new(text).map_err(|_| GpuError::Compile("a zero in the sources".to_owned()))
}

/// Texts that end in zero, and their addresses.
struct CTexts {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CTexts {
    fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Self, GpuError> {
        let texts = texts.map(c_text).collect::<Result<Vec<_>, _>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Self { _texts: texts, pointers })
    }

    fn len(&self) -> c_int {
        self.pointers.len() as c_int
    }
}

/// A program of NVRTC.
struct Program<'a> {
    handle: Handle,
    nvrtc: &'a Nvrtc,
}

impl Program<'_> {
    /// Reads a text or an image: its size, then its bytes.
    fn read(
        &self,
        doing: &str,
        size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        bytes: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, GpuError> {
        let mut len = 0usize;
        // SAFETY: writes one size.
        self.nvrtc.checked(doing, unsafe { size(self.handle, &mut len) })?;
        let mut out = vec![0u8; len];
        // SAFETY: writes as many bytes as it said.
        self.nvrtc.checked(doing, unsafe { bytes(self.handle, out.as_mut_ptr().cast()) })?;
        Ok(out)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: made by nvrtcCreateProgram. An error leaves nothing to be done.
        let _ = unsafe { (self.nvrtc.functions.destroy)(&mut self.handle) };
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// For tests that need it: without NVRTC they are skipped, unless it was named.
    pub fn nvrtc() -> Option<&'static Nvrtc> {
        let found = Nvrtc::get();
        if let Err(why) = &found {
            assert!(std::env::var_os(VARIABLE).is_none(), "{why}");
            println!("skipped: {why}");
        }
        found.ok()
    }

    fn refused(path: &str) -> String {
        Nvrtc::load(Some(path.into())).err().unwrap_or_default()
    }

    #[test]
    fn a_library_that_is_named_is_the_only_one_tried() {
        let why = refused("/no/such/libnvrtc.so");
        assert!(why.contains("FLASHREG_NVRTC=/no/such/libnvrtc.so cannot be loaded"), "{why}");
        let why = refused("libc.so.6");
        assert!(why.contains("no NVRTC of CUDA 11.2 or newer") && why.contains("nvrtcVersion"), "{why}");
    }

    #[test]
    fn errors_of_the_sources_are_told() {
        let Some(nvrtc) = nvrtc() else { return };
        let compile = |text: &str, option: &str| nvrtc.compile(&[("a.cu", text)], &[option], false);
        let ptx = compile("extern \"C\" __global__ void named() {}", "--std=c++17").expect("compiles");
        assert!(String::from_utf8_lossy(&ptx).contains(".entry named"));
        let why = compile("#include \"other.cuh\"", "--std=c++17").expect_err("no such file").to_string();
        assert!(why.contains("other.cuh"), "{why}");
        let why = compile("", "--no-such-option").expect_err("no such option").to_string();
        assert!(why.contains("no-such-option"), "{why}");
        assert!(matches!(compile("a\0b", "--std=c++17"), Err(GpuError::Compile(_))));
    }
}
