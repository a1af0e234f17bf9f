//! Recipes that come with the program, by name: `--config demo`.

use std::io;
use std::path::{Path, PathBuf};

/// Where they lie below an installation, and below a clone.
const FOLDERS: [&str; 2] = ["share/segue/recipes", "configs/recipes"];

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
pub fn find(named: &str) -> Result<PathBuf, String> {
    find_in(named, folder().as_deref())
}

fn find_in(named: &str, folder: Option<&Path>) -> Result<PathBuf, String> {
    let path = Path::new(named);
    // What is written as a path is one, there or not.
    let is_name = path.components().count() == 1 && path.extension().is_none() && !named.is_empty();
    if !is_name || path.exists() {
        return Ok(path.into());
    }
    let Some(folder) = folder else {
        return Err("there is no such file, and no recipes lie beside this program".into());
    };
    let shipped = folder.join(named).with_extension(EXTENSION);
    if shipped.is_file() {
        return Ok(shipped);
    }
    let known = files(folder).unwrap_or_default();
    let name = |path: &PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let like = known.iter().filter_map(name).map(|name| (strsim::jaro_winkler(named, &name), name));
    let nearest = like.filter(|(similar, _)| *similar > 0.8).max_by(|a, b| a.0.total_cmp(&b.0));
    let nearest = nearest.map(|(_, name)| format!("; did you mean `{name}`?")).unwrap_or_default();
    Err(format!("there is no such file and no recipe of that name{nearest} `segue recipes` lists them"))
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
        let find = |named: &str| find_in(named, Some(&of_program));
        assert_eq!(find("demo"), Ok(folder.join("demo.toml")));
        for path in ["demo.toml", "./demo", "missing/recipe.toml", ""] {
            assert_eq!(find(path), Ok(PathBuf::from(path)));
        }
        let error = find("demoo").unwrap_err();
        assert!(error.contains("did you mean `demo`?") && error.contains("segue recipes"), "{error}");
        assert!(find_in("demo", None).is_err());
    }
}
