//! Recipes that come with the program, by name: `--config demo`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};

/// Where they lie below an installation, below the packages of a Python, and below a clone.
const FOLDERS: [&str; 3] = ["share/segue/recipes", "segue/recipes", "configs/recipes"];

/// What their files end in.
const EXTENSION: &str = "toml";

/// The folder with the recipes that came with this program: that of the first folder above it that has one.
pub fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok()?;
    folder_above(&program)
}

fn folder_above(program: &Path) -> Option<PathBuf> {
    program.ancestors().flat_map(|above| FOLDERS.map(|below| above.join(below))).find(|path| path.is_dir())
}

/// Files of the recipes in a folder, in the order of their names.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<PathBuf>> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut files: Vec<PathBuf> = entries?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|found| found == EXTENSION))
        .collect();
    files.sort();
    Ok(files)
}

/// The file of the recipe that `--config` names: a file, or one that came with the program by its name.
pub fn find(named: &OsStr) -> PathBuf {
    find_in(named, folder().as_deref())
}

/// Parses `--config`.
pub fn parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(|named| find(&named))
}

fn find_in(named: &OsStr, folder: Option<&Path>) -> PathBuf {
    let path = Path::new(named);
    // What is written as a path is one, there or not.
    let is_name = path.file_name() == Some(named) && path.extension().is_none();
    if !is_name || path.is_file() {
        return path.into();
    }
    let shipped = folder.map(|folder| folder.join(named).with_extension(EXTENSION));
    shipped.filter(|shipped| shipped.is_file()).unwrap_or_else(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_found_by_its_name_and_a_file_by_its_path() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("share/segue/recipes");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("demo.toml"), "").unwrap();
        let of_program = folder_above(&place.path().join("libexec/segue")).unwrap();
        assert_eq!(of_program, folder);
        let find = |named: &str| find_in(named.as_ref(), Some(&of_program));
        assert_eq!(find("demo"), folder.join("demo.toml"));
        for path in ["demo.toml", "./demo", "demo/", "missing/recipe.toml", "demoo", ""] {
            assert_eq!(find(path), PathBuf::from(path));
        }
        assert_eq!(find_in("demo".as_ref(), None), PathBuf::from("demo"));
    }
}
