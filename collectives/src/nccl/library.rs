//! NCCL's library, found and loaded at run time.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

/// The name that programs link with, of all versions whose functions are these.
pub const FILE: &str = "libnccl.so.2";

/// `ncclResult_t`: 0 is success.
pub(super) type Code = c_int;
/// `ncclComm_t`.
pub(super) type Comm = *mut c_void;
/// `cudaStream_t`.
pub(super) type Stream = *mut c_void;

pub(super) const SUCCESS: Code = 0;
/// `ncclInProgress`: no error yet.
pub(super) const IN_PROGRESS: Code = 7;
/// `ncclFloat32` of `ncclDataType_t`.
pub(super) const FLOAT: c_int = 7;
/// `ncclSum` of `ncclRedOp_t`.
pub(super) const SUM: c_int = 0;

/// What tells the ranks of a communicator from all others; it is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub [u8; 128]);

/// `ncclConfig_t` as `nccl.h` of 2.14 has it. Later versions have more behind, which they take from their own defaults where this size and this
/// version are given.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

impl Config {
    /// No call of the communicator waits for another rank.
    pub const WITHOUT_WAITING: Self =
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21400, blocking: 0 };
}

/// The functions that are called here, as `nccl.h` of 2.28 declares them; all are in every version from 2.14 on.
pub(super) struct Functions {
    pub get_version: unsafe extern "C" fn(*mut c_int) -> Code,
    pub get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Code,
    pub comm_init_rank_config: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int, *const Config) -> Code,
    pub comm_abort: unsafe extern "C" fn(Comm) -> Code,
    pub comm_get_async_error: unsafe extern "C" fn(Comm, *mut Code) -> Code,
    pub get_error_string: unsafe extern "C" fn(Code) -> *const c_char,
    pub group_start: unsafe extern "C" fn() -> Code,
    pub group_end: unsafe extern "C" fn() -> Code,
    pub send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Comm, Stream) -> Code,
    pub recv: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Comm, Stream) -> Code,
    pub all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Code,
}

/// The library, in this process to its end. Copies are the same one.
#[derive(Clone)]
pub struct Library {
    pub(super) functions: Arc<Functions>,
    pub(super) place: PathBuf,
    pub(super) version: c_int,
}

/// Why NCCL cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoLibrary {
    /// It is in none of these places; what the loader says of the last, or of the first where there is a file.
    Missing {
        /// Where it was looked for.
        places: Vec<PathBuf>,
        /// What the loader says.
        why: String,
    },
    /// The library there is another one, or refuses to tell its version.
    Other {
        /// The file.
        place: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for NoLibrary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Missing { places, why } => {
                let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
                write!(f, "NCCL is not there, looked for as {} ({why})", places.join(", "))
            }
            Self::Other { place, why } => {
                write!(f, "{} is not NCCL of 2.14 or newer: {why}", place.display())
            }
        }
    }
}

impl Library {
    /// The first of `places` that is there: files, or [`FILE`] for the loader to find.
    pub fn load(places: &[PathBuf]) -> Result<Self, NoLibrary> {
        let (mut damaged, mut why) = (None, "no place was given".to_string());
        for place in places {
            let is_there = place.components().count() > 1 && place.exists();
            // SAFETY: NCCL's constructors touch nothing of ours; a file of that name that is something else could do anything, as any library of this
            // process could.
            match unsafe { Handle::open(Some(place), RTLD_NOW | RTLD_LOCAL) } {
                Ok(handle) => return Self::of(handle, place),
                Err(error) if is_there => _ = damaged.get_or_insert(error.to_string()),
                Err(error) => why = error.to_string(),
            }
        }
        Err(NoLibrary::Missing { places: places.to_vec(), why: damaged.unwrap_or(why) })
    }

    fn of(handle: Handle, place: &Path) -> Result<Self, NoLibrary> {
        let other = |why: String| NoLibrary::Other { place: place.to_path_buf(), why };
        let functions = functions(&handle).map_err(|error| other(error.to_string()))?;
        // Its functions are called to the end.
        std::mem::forget(handle);
        let mut version = 0;
        // SAFETY: writes one number.
        match unsafe { (functions.get_version)(&mut version) } {
            SUCCESS => Ok(Self { functions: Arc::new(functions), place: place.to_path_buf(), version }),
            code => Err(other(format!("it does not tell its version (code {code})"))),
        }
    }

    /// The file it was loaded from, or [`FILE`].
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Its version, such as `2.28.9`.
    pub fn version(&self) -> String {
        // From 2.9 on the middle number has two digits.
        let (major, minor) = match self.version {
            v if v >= 10_000 => (v / 10_000, v / 100 % 100),
            v => (v / 1000, v / 100 % 10),
        };
        format!("{major}.{minor}.{}", self.version % 100)
    }

    /// A new id, which one rank makes and all others get.
    pub fn unique_id(&self) -> Result<[u8; 128], String> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: writes the id.
        let code = unsafe { (self.functions.get_unique_id)(&mut id) };
        self.check(code).map(|()| id.0)
    }

    /// What a code says.
    pub(super) fn check(&self, code: Code) -> Result<(), String> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: gives a text that lives as long as the library, for any code.
        let text = unsafe { CStr::from_ptr((self.functions.get_error_string)(code)) };
        Err(text.to_string_lossy().into_owned())
    }
}

fn functions(handle: &Handle) -> Result<Functions, libloading::Error> {
    // SAFETY: each is declared as `nccl.h` declares the function of that name.
    unsafe {
        Ok(Functions {
            get_version: *handle.get(b"ncclGetVersion\0")?,
            get_unique_id: *handle.get(b"ncclGetUniqueId\0")?,
            comm_init_rank_config: *handle.get(b"ncclCommInitRankConfig\0")?,
            comm_abort: *handle.get(b"ncclCommAbort\0")?,
            comm_get_async_error: *handle.get(b"ncclCommGetAsyncError\0")?,
            get_error_string: *handle.get(b"ncclGetErrorString\0")?,
            group_start: *handle.get(b"ncclGroupStart\0")?,
            group_end: *handle.get(b"ncclGroupEnd\0")?,
            send: *handle.get(b"ncclSend\0")?,
            recv: *handle.get(b"ncclRecv\0")?,
            all_reduce: *handle.get(b"ncclAllReduce\0")?,
        })
    }
}

/// The number of a card in all of the world, by its number in this process: two ranks that find the same share one.
///
/// # Errors
///
/// What the driver says, or that there is none.
pub fn card_identity(card: usize) -> Result<[u8; 16], String> {
    type Init = unsafe extern "C" fn(u32) -> c_int;
    type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
    type Identify = unsafe extern "C" fn(*mut u8, c_int) -> c_int;
    static DRIVER: OnceLock<Result<(Init, Get, Identify), String>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        // SAFETY: the driver's library, and its functions as `cuda.h` declares them.
        let found = unsafe {
            Handle::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL).and_then(|driver| {
                // The second version tells parts of one card apart.
                let identify =
                    driver.get(b"cuDeviceGetUuid_v2\0").or_else(|_| driver.get(b"cuDeviceGetUuid\0"))?;
                let functions = (*driver.get(b"cuInit\0")?, *driver.get(b"cuDeviceGet\0")?, *identify);
                std::mem::forget(driver);
                Ok(functions)
            })
        };
        found.map_err(|error| error.to_string())
    });
    let (init, get, identify) = driver.as_ref().map_err(String::clone)?;
    let (mut device, mut identity) = (0, [0; 16]);
    // SAFETY: each writes what its last argument but one has room for.
    let code = unsafe {
        match (init(0), get(&mut device, card as c_int)) {
            (0, 0) => identify(identity.as_mut_ptr(), device),
            (0, code) | (code, _) => code,
        }
    };
    if code == 0 {
        Ok(identity)
    } else {
        Err(format!("the driver does not tell card {card}'s number (code {code})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 bytes, three numbers of 4, and 4 to fill up, as a C compiler lays out the struct of 2.14.
    #[test]
    fn the_configuration_is_laid_out_as_the_header_has_it() {
        let Config { size, magic, version, blocking } = Config::WITHOUT_WAITING;
        assert_eq!((size, magic, version, blocking), (24, 3_405_692_655, 2 * 10_000 + 14 * 100, 0));
        let offsets = [
            std::mem::offset_of!(Config, size),
            std::mem::offset_of!(Config, magic),
            std::mem::offset_of!(Config, version),
            std::mem::offset_of!(Config, blocking),
        ];
        assert_eq!(offsets, [0, 8, 12, 16]);
    }

    #[test]
    fn a_library_that_is_not_there_or_another_one_is_named() {
        let places = ["/no-such-folder/libnccl.so.2", "libsegue-has-no-such-library.so"].map(PathBuf::from);
        let error = Library::load(&places).err().unwrap();
        assert!(error.to_string().contains("/no-such-folder/libnccl.so.2, libsegue-has-no-such"), "{error}");
        // The C library is there everywhere, and has no such functions.
        let error = Library::load(&["libc.so.6".into()]).err().unwrap();
        assert!(matches!(&error, NoLibrary::Other { why, .. } if why.contains("ncclGetVersion")), "{error}");
    }

    #[test]
    fn of_a_library_that_is_there_it_is_told_why_it_does_not_load() {
        // A text, which every Linux has.
        let damaged = "/proc/version";
        let error = Library::load(&[damaged.into(), "libsegue-has-no-such-library.so".into()]).err().unwrap();
        let NoLibrary::Missing { why, .. } = error else { panic!("{error}") };
        assert!(why.contains(damaged), "{why}");
    }
}
