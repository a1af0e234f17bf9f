//! Functions of a library that is found at run time.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Loads the first of these files that is there, for the rest of the process; a bare name is looked for by the loader. Files beside it whose
/// names begin with `first` are loaded before it: what it needs itself it may look for by name alone, and finds what is loaded.
///
/// # Errors
///
/// What is wrong with the first that is there, else with the last that the loader looked for.
pub fn open(candidates: &[PathBuf], first: Option<&str>) -> Result<&'static Library, String> {
    let (mut damaged, mut why) = (None, String::from("no file to look for"));
    for file in candidates {
        let bare = file.parent() == Some(Path::new(""));
        if !bare && !file.exists() {
            continue;
        }
        if let (false, Some(first), Some(folder)) = (bare, first, file.parent()) {
            for beside in beside(folder, first) {
                // What cannot be loaded is missed by who needs it, and named by that.
                let _ = load(&beside);
            }
        }
        match load(file) {
            Ok(library) => return Ok(library),
            Err(error) if bare => why = error,
            Err(error) => _ = damaged.get_or_insert(error),
        }
    }
    Err(damaged.unwrap_or(why))
}

/// Files of a folder whose names begin so.
fn beside(folder: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(beginning));
    named.map(|entry| entry.path()).collect()
}

fn load(file: &Path) -> Result<&'static Library, String> {
    // SAFETY: libraries of NVIDIA's, whose constructors set up what they have for themselves.
    let library =
        unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| error.to_string())?;
    // Its functions are used to the end.
    Ok(Box::leak(Box::new(library)))
}

/// A struct of functions by their names in a library, and how to find all of them.
macro_rules! functions {
    ($(#[$doc:meta])* pub struct $name:ident { $($field:ident: $symbol:literal fn($($argument:ty),*);)* }) => {
        $(#[$doc])*
        pub struct $name {
            $($field: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
        }

        impl $name {
            /// # Safety
            ///
            /// Functions of these names are of these types in `library`.
            unsafe fn of(library: &'static libloading::os::unix::Library) -> Result<Self, String> {
                // SAFETY: the caller's.
                unsafe {
                    Ok(Self { $($field: *library.get($symbol).map_err(|error| error.to_string())?,)* })
                }
            }
        }
    };
}
pub(super) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let files = ["/nowhere/libnvrtc.so.13", "libsegue-has-no-such-library.so"].map(PathBuf::from);
        let why = open(&files, Some("libnvrtc-builtins.so")).expect_err("neither is there");
        assert!(why.contains("libsegue-has-no-such-library.so"), "{why}");
        assert!(open(&files[..1], None).err().is_some_and(|why| why == "no file to look for"));
    }

    #[test]
    fn of_a_library_that_is_there_it_is_told_why_it_does_not_load() {
        let folder = tempfile::tempdir().unwrap();
        let damaged = folder.path().join("libnvrtc.so.13");
        std::fs::write(&damaged, "cut off").unwrap();
        let why = open(&[damaged, "libsegue-has-no-such-library.so".into()], None).expect_err("it is a text");
        assert!(why.contains("libnvrtc.so.13") && !why.contains("libsegue"), "{why}");
    }
}
