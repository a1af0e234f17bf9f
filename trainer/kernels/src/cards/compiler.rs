//! NVIDIA's compiler at run time, NVRTC: CUDA to what a card executes.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use super::library::{functions, open};
use crate::libtorch::device;

/// Its files of CUDA 13 and 12, with where pip installs the packages nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12, from the folder of libtorch.
const FILES: [(&str, &str); 2] =
    [("libnvrtc.so.13", "../../nvidia/cu13/lib"), ("libnvrtc.so.12", "../../nvidia/cuda_nvrtc/lib")];

/// What it reads by a bare name, which the loader does not find in a folder of pip's: NVRTC 13.0, which torch 2.11.0 asks for.
const BUILTINS: &str = "libnvrtc-builtins.so";

functions! {
    /// What is used of NVRTC. Each function gives 0, or the number of an error.
    pub struct Compiler {
        create: b"nvrtcCreateProgram\0" fn(*mut *mut c_void, *const c_char, *const c_char, c_int, *const c_void, *const c_void);
        destroy: b"nvrtcDestroyProgram\0" fn(*mut *mut c_void);
        compile: b"nvrtcCompileProgram\0" fn(*mut c_void, c_int, *const *const c_char);
        log_size: b"nvrtcGetProgramLogSize\0" fn(*mut c_void, *mut usize);
        log: b"nvrtcGetProgramLog\0" fn(*mut c_void, *mut c_char);
        code_size: b"nvrtcGetCUBINSize\0" fn(*mut c_void, *mut usize);
        code: b"nvrtcGetCUBIN\0" fn(*mut c_void, *mut c_char);
        text_size: b"nvrtcGetPTXSize\0" fn(*mut c_void, *mut usize);
        text: b"nvrtcGetPTX\0" fn(*mut c_void, *mut c_char);
        count: b"nvrtcGetNumSupportedArchs\0" fn(*mut c_int);
        known: b"nvrtcGetSupportedArchs\0" fn(*mut c_int);
    }
}

type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Fill = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;

impl Compiler {
    /// That of this process; the first call loads it. Otherwise why there is none.
    pub fn get() -> Result<&'static Self, &'static str> {
        static FOUND: OnceLock<Result<Compiler, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let folder = device::folder();
            let beside = FILES.map(|(file, package)| [folder.join(file), folder.join(package).join(file)]);
            let anywhere = FILES.map(|(file, _)| PathBuf::from(file));
            Self::open(&[&beside.concat()[..], &anywhere].concat())
        });
        found.as_ref().map_err(String::as_str)
    }

    /// The first of these files that is there.
    pub fn open(files: &[PathBuf]) -> Result<Self, String> {
        // SAFETY: the types are those of nvrtc.h of CUDA 12 and 13; handles are pointers.
        unsafe { Self::of(open(files, Some(BUILTINS))?) }
    }

    /// What a card of this compute capability, such as 90 for 9.0, loads of `source`; otherwise what the compiler says. For a card that it does
    /// not know, the text of the newest that it knows, which the driver translates.
    pub fn compiled(&self, name: &str, source: &str, capability: i32) -> Result<Vec<u8>, String> {
        let text = |text: &str| CString::new(text).map_err(|error| error.to_string());
        let (name, source) = (text(name)?, text(source)?);
        let known = self.known();
        let newest = known.iter().copied().filter(|known| *known <= capability).max();
        let newest = newest.ok_or_else(|| format!("capability {capability} is none of {known:?}"))?;
        let kind = if newest == capability { "sm" } else { "compute" };
        // Some instructions are those of one capability alone.
        let own = if kind == "sm" && newest == 90 { "a" } else { "" };
        let options = [text(&format!("--gpu-architecture={kind}_{newest}{own}"))?, text("--std=c++17")?];
        let options = options.each_ref().map(|option| option.as_ptr());
        let mut program = ptr::null_mut();
        // SAFETY: two texts that end with 0, and no headers.
        let made = unsafe {
            (self.create)(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
        };
        if made != 0 {
            return Err(format!("NVRTC's error {made}"));
        }
        // SAFETY: a program that was made above, and as many options as are said.
        let failed = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let (size, fill): (Size, Fill) = match (failed, kind) {
            (0, "sm") => (self.code_size, self.code),
            (0, _) => (self.text_size, self.text),
            _ => (self.log_size, self.log),
        };
        let mut length = 0;
        // SAFETY: a live program; the second call writes as many bytes as the first says.
        let bytes = unsafe {
            let sized = size(program, &mut length);
            let mut bytes = vec![0u8; length];
            let filled = if sized == 0 { fill(program, bytes.as_mut_ptr().cast()) } else { sized };
            (self.destroy)(&mut program);
            if filled == 0 { Ok(bytes) } else { Err(format!("NVRTC's error {filled}")) }
        }?;
        match failed {
            0 => Ok(bytes),
            _ => {
                Err(CStr::from_bytes_until_nul(&bytes)
                    .map_or(String::new(), |log| log.to_string_lossy().into()))
            }
        }
    }

    /// Compute capabilities that it compiles for.
    fn known(&self) -> Vec<i32> {
        let mut count = 0;
        // SAFETY: writes one number, then as many as it has said.
        unsafe {
            if (self.count)(&mut count) != 0 {
                return Vec::new();
            }
            let mut known = vec![0; count.max(0) as usize];
            if (self.known)(known.as_mut_ptr()) == 0 { known } else { Vec::new() }
        }
    }
}
