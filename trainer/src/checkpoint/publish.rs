//! How checkpoint folders appear, are found, and go.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{read_error, swap_link, sync_folder, write_error};
use super::manifest::{MANIFEST, Manifest};
use crate::TrainError;

const LATEST: &str = "latest";

/// Fills a fresh folder beside its final place, then makes it appear whole: manifest last, everything on
/// the disk, renamed, `latest` swapped, old ones removed.
pub(super) fn publish(
    folder: &Path,
    name: &str,
    keep: usize,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<PathBuf, TrainError> {
    fs::create_dir_all(folder).map_err(write_error(folder))?;
    let (fresh, target) = (folder.join(format!(".{name}.part")), folder.join(name));
    remove_parts(folder)?;
    fs::create_dir(&fresh).map_err(write_error(&fresh))?;
    let written = fill(&fresh).and_then(|()| Manifest::write(&fresh)).and_then(|()| sync_folder(&fresh));
    if let Err(error) = written {
        // What is there of the part is worthless, and its space may be what is lacking.
        let _ = fs::remove_dir_all(&fresh);
        return Err(error);
    }
    // There already is one of this step only where it did not verify.
    remove_folder(&target)?;
    fs::rename(&fresh, &target).map_err(write_error(&target))?;
    sync_folder(folder)?;
    swap_link(folder, LATEST, name)?;
    for (_, old) in list(folder)?.into_iter().rev().skip(keep) {
        remove_folder(&old)?;
    }
    Ok(target)
}

/// Fills a fresh folder and puts it in the place of the one at `path`, if there is one. It appears whole or not at all.
pub fn replace(path: &Path, fill: impl FnOnce(&Path) -> Result<(), TrainError>) -> Result<(), TrainError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(write_error(path)(std::io::ErrorKind::InvalidInput.into()));
    };
    let (fresh, old) = (parent.join(format!(".{name}.part")), parent.join(format!(".{name}.old")));
    remove_folder(&fresh)?;
    remove_folder(&old)?;
    fs::create_dir_all(&fresh).map_err(write_error(&fresh))?;
    fill(&fresh)?;
    Manifest::write(&fresh)?;
    sync_folder(&fresh)?;
    if path.exists() {
        fs::rename(path, &old).map_err(write_error(path))?;
    }
    fs::rename(&fresh, path).map_err(write_error(path))?;
    sync_folder(parent)?;
    remove_folder(&old)
}

/// Removes what writers that were killed have left. One job at a time writes to a run folder.
fn remove_parts(folder: &Path) -> Result<(), TrainError> {
    for entry in fs::read_dir(folder).map_err(read_error(folder))? {
        let path = entry.map_err(read_error(folder))?.path();
        if path
            .file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.starts_with(".step-") && n.ends_with(".part"))
        {
            remove_folder(&path)?;
        }
    }
    Ok(())
}

/// Removes a folder, its manifest first: half removed, it does not count as a checkpoint.
fn remove_folder(path: &Path) -> Result<(), TrainError> {
    let remove = || -> std::io::Result<()> {
        match fs::remove_file(path.join(MANIFEST)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    };
    remove().map_err(write_error(path))
}

/// Checkpoints in `folder` by rising step, whole or not.
pub fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, TrainError> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(read_error(folder)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(read_error(folder))?;
        let name = entry.file_name();
        if let Some(step) = name.to_str().and_then(|n| n.strip_prefix("step-")).and_then(|n| n.parse().ok()) {
            found.push((step, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// The newest checkpoint in `folder` that verifies, and what was wrong with newer ones. `None` where
/// there is no checkpoint at all; an error where none verifies.
pub fn find(folder: &Path) -> Result<Option<(PathBuf, Vec<String>)>, TrainError> {
    let found = search(folder)?;
    Ok(found.map(|(path, refused)| (path, refused.into_iter().map(|(_, why)| why).collect())))
}

/// Like [`find`], for the job that owns the folder: renames those that do not verify to `damaged-step-..`, so
/// that they do not count among the checkpoints to keep.
pub fn find_and_set_aside(folder: &Path) -> Result<Option<(PathBuf, Vec<String>)>, TrainError> {
    let Some((path, refused)) = search(folder)? else { return Ok(None) };
    for (damaged, _) in &refused {
        if let Some(name) = damaged.file_name().and_then(|n| n.to_str()) {
            let aside = folder.join(format!("damaged-{name}"));
            remove_folder(&aside)?;
            fs::rename(damaged, &aside).map_err(write_error(&aside))?;
        }
    }
    Ok(Some((path, refused.into_iter().map(|(_, why)| why).collect())))
}

/// A whole checkpoint, and newer ones with what is wrong with them.
type Search = (PathBuf, Vec<(PathBuf, String)>);

fn search(folder: &Path) -> Result<Option<Search>, TrainError> {
    let mut refused = Vec::new();
    for (_, path) in list(folder)?.into_iter().rev() {
        match Manifest::verify(&path) {
            Ok(_) => return Ok(Some((path, refused))),
            Err(error) => refused.push((path, error.to_string())),
        }
    }
    if refused.is_empty() {
        return Ok(None);
    }
    let reasons: Vec<String> = refused.into_iter().map(|(_, why)| why).collect();
    let what = format!("no checkpoint verifies:\n  {}", reasons.join("\n  "));
    Err(TrainError::Damaged { path: folder.into(), what })
}

#[cfg(test)]
mod tests {
    use super::super::files::write_durably;
    use super::*;

    fn touch(dir: &Path) -> Result<(), TrainError> {
        write_durably(&dir.join("f"), b"x")
    }

    #[test]
    fn only_the_newest_are_kept_and_latest_points_at_the_last() {
        let dir = tempfile::tempdir().unwrap();
        for step in 1..=4 {
            publish(dir.path(), &format!("step-{step:08}"), 2, touch).unwrap();
        }
        let steps: Vec<u64> = list(dir.path()).unwrap().into_iter().map(|(s, _)| s).collect();
        assert_eq!(steps, [3, 4]);
        assert_eq!(fs::read_link(dir.path().join(LATEST)).unwrap(), Path::new("step-00000004"));
    }

    #[test]
    fn failed_write_leaves_the_previous_checkpoint_and_no_part() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), "step-00000001", 2, touch).unwrap();
        let fails = |_: &Path| Err(TrainError::Layout("no".into()));
        assert!(publish(dir.path(), "step-00000002", 2, fails).is_err());
        let (found, refused) = find(dir.path()).unwrap().unwrap();
        assert!(found.ends_with("step-00000001") && refused.is_empty());
        assert!(!dir.path().join(".step-00000002.part").exists());
    }

    #[test]
    fn damaged_checkpoint_gives_way_to_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        for step in [1, 2] {
            publish(dir.path(), &format!("step-{step:08}"), 2, touch).unwrap();
        }
        let newest = dir.path().join("step-00000002");
        fs::write(newest.join("f"), "y").unwrap();
        let (found, refused) = find(dir.path()).unwrap().unwrap();
        assert!(found.ends_with("step-00000001"));
        assert!(refused[0].contains("BLAKE3"), "{refused:?}");
        fs::remove_file(newest.join("f")).unwrap();
        assert!(find(dir.path()).unwrap().unwrap().1[0].contains("step-00000002"));
    }
}
