//! Recipes that come with the program, by name: `demo`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::names::nearest_name;

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

/// The file of a recipe that is called `named`: a file, or one that came with the program by its name.
pub fn find(named: &OsStr) -> PathBuf {
    find_in(named, Path::new(""), folder().as_deref())
}

/// The same in a file of the folder `beside`, where relative paths begin.
pub fn find_beside(named: &Path, beside: &Path) -> PathBuf {
    find_in(named.as_os_str(), beside, folder().as_deref())
}

fn find_in(named: &OsStr, beside: &Path, folder: Option<&Path>) -> PathBuf {
    let path = beside.join(named);
    // What is written as a path is one, there or not.
    let is_name = Path::new(named).file_name() == Some(named) && path.extension().is_none();
    if !is_name || path.is_file() {
        return path;
    }
    let shipped = folder.map(|folder| folder.join(named).with_extension(EXTENSION));
    shipped.filter(|shipped| shipped.is_file()).unwrap_or(path)
}

/// What to do where the recipe at `path` is not there and one that came with the program is called so, or nearly so.
pub(crate) fn hint(path: &Path) -> Option<String> {
    hint_in(path, &folder()?)
}

fn hint_in(path: &Path, folder: &Path) -> Option<String> {
    let is_recipe = path.extension().is_none_or(|found| found == EXTENSION);
    let stem = path.file_stem().and_then(OsStr::to_str).filter(|_| is_recipe)?;
    let files = files(folder).ok()?;
    let names: Vec<&str> = files.iter().filter_map(|file| file.file_stem()?.to_str()).collect();
    if names.contains(&stem) {
        return Some(format!("{stem} is a recipe that comes with the program, and goes by its name: {stem}"));
    }
    // A file that lies elsewhere is one of the user's.
    let above = path.parent().and_then(Path::file_name);
    above.is_none_or(|above| above == "recipes").then_some(())?;
    let meant = nearest_name(stem, names.into_iter())?;
    Some(format!("did you mean {meant}? It is a recipe that comes with the program, and goes by its name"))
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
        let find = |named: &str| find_in(named.as_ref(), Path::new(""), Some(&of_program));
        assert_eq!(find("demo"), folder.join("demo.toml"));
        for path in ["demo.toml", "./demo", "demo/", "missing/recipe.toml", "demoo", ""] {
            assert_eq!(find(path), PathBuf::from(path));
        }
        assert_eq!(find_in("demo".as_ref(), Path::new(""), None), PathBuf::from("demo"));
        // Beside a sweep its own files come first.
        let beside = |named: &str| find_in(named.as_ref(), place.path(), Some(&of_program));
        assert_eq!(beside("demo"), folder.join("demo.toml"));
        assert_eq!(beside("../r.toml"), place.path().join("../r.toml"));
        std::fs::write(place.path().join("demo"), "").unwrap();
        assert_eq!(beside("demo"), place.path().join("demo"));
    }

    #[test]
    fn a_recipe_that_is_not_there_is_told_by_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
        let hint = |path: &str| hint_in(path.as_ref(), &folder);
        for path in ["configs/recipes/demo.toml", "demo.toml", "elsewhere/demo.toml"] {
            let told = hint(path).unwrap();
            assert_eq!(told, "demo is a recipe that comes with the program, and goes by its name: demo");
        }
        for path in ["dmeo", "dmeo.toml", "configs/recipes/dmeo.toml"] {
            assert!(hint(path).unwrap().starts_with("did you mean demo?"), "{path}");
        }
        for path in ["elsewhere/dmeo.toml", "no.toml", "xyz", "run/demo.json"] {
            assert_eq!(hint(path), None, "{path}");
        }
    }
}
