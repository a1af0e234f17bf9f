//! Cards: whether this process can use any, and the library that brings them in.
//!
//! libtorch asks once in a process whether CUDA is there, and keeps the answer: it is "no" for good where anything asks before
//! `libtorch_cuda.so` is loaded; `tch::Cuda` asks, and so do `tch::manual_seed` and `tch::autocast`. So [`load`] comes before any other use of
//! libtorch by what wants a card.

use std::ffi::c_char;
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::text;

unsafe extern "C" {
    fn segue_library_file(text: *mut c_char, capacity: usize);
    fn segue_allow_tf32(allowed: bool);
}

/// The driver's library, which is there wherever a card can be used.
pub const DRIVER: &str = "libcuda.so.1";
/// libtorch's own, beside the rest of it where it was built for cards.
const CUDA: &str = "libtorch_cuda.so";

/// What there is to compute on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cards {
    /// None, and why.
    None(NoCard),
    /// So many, numbered from 0.
    Some(usize),
}

/// Why this process computes on processors alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoCard {
    /// The driver's library cannot be loaded.
    Driver(String),
    /// libtorch in this folder was built without CUDA.
    Build(PathBuf),
    /// libtorch's part for cards cannot be loaded.
    Library(String),
    /// The driver shows no card to this process.
    Hidden,
}

impl fmt::Display for NoCard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Driver(why) => write!(f, "there is no driver for NVIDIA's cards ({why})"),
            Self::Build(folder) => write!(f, "libtorch in {} was built without CUDA", folder.display()),
            Self::Library(why) => write!(f, "libtorch's part for cards cannot be loaded: {why}"),
            Self::Hidden => f.write_str(
                "the driver shows no card to this process, or is too old for the CUDA that libtorch was built with",
            ),
        }
    }
}

static CARDS: OnceLock<Cards> = OnceLock::new();

/// Brings CUDA into the process where there is a driver, and counts cards. A second call gives the answer of the first. The first comes
/// before other threads use libtorch: its registries are read without a lock.
pub fn load() -> &'static Cards {
    CARDS.get_or_init(|| match open(DRIVER).map_err(NoCard::Driver).and_then(|()| load_library()) {
        Ok(()) => match tch::Cuda::device_count() {
            count @ 1.. => Cards::Some(count as usize),
            _ => Cards::None(NoCard::Hidden),
        },
        Err(why) => Cards::None(why),
    })
}

/// What [`load`] has found; `None` where nobody asked for a card.
pub fn loaded() -> Option<&'static Cards> {
    CARDS.get()
}

/// Sets whether products of f32 on cards may round their factors to TF32.
pub fn allow_tf32(allowed: bool) {
    // SAFETY: sets a flag that products read.
    unsafe { segue_allow_tf32(allowed) }
}

/// Brings libtorch's part for cards into the process, whether there is a driver or not.
pub fn load_library() -> Result<(), NoCard> {
    let folder = folder();
    let library = folder.join(CUDA);
    // By its path: another libtorch may lie where the loader looks for a bare name.
    match library.exists() {
        true => open(&library.to_string_lossy()).map_err(NoCard::Library),
        false => Err(NoCard::Build(folder)),
    }
}

/// Loads a library for the rest of the process, with its names for all.
fn open(name: &str) -> Result<(), String> {
    // SAFETY: constructors of both libraries register what they have; nobody reads the registries meanwhile, as `load` promises.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.map_err(|e| e.to_string())?;
    // What it has registered is used to the end.
    std::mem::forget(library);
    Ok(())
}

/// Where NCCL may lie: as the packages of torch bring it, beside libtorch, and where the loader finds it.
pub fn nccl_places() -> Vec<PathBuf> {
    let (folder, file) = (folder(), segue_collectives::nccl::library::FILE);
    let package = folder.join("../../nvidia/nccl/lib").join(file);
    vec![package, folder.join(file), file.into()]
}

/// The folder of the libtorch that this process runs with.
pub fn folder() -> PathBuf {
    let file = text(|text, capacity| {
        // SAFETY: writes a text that ends with 0 into as many bytes as it is given.
        unsafe { segue_library_file(text, capacity) }
    });
    PathBuf::from(file).parent().map(PathBuf::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_that_of_the_library_in_use() {
        assert!(folder().join("libtorch_cpu.so").exists(), "{}", folder().display());
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let why = open("libsegue-has-no-such-library.so").unwrap_err();
        assert!(why.contains("libsegue-has-no-such-library.so"), "{why}");
        if !folder().join(CUDA).exists() {
            assert_eq!(load_library(), Err(NoCard::Build(folder())));
        }
    }
}
