use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;

use super::shard_suffix;

/// Checkpoints that a message names.
const SHOWN: usize = 8;

/// The index that a path leads to: the prefix of a checkpoint, its `.index`, one of its data shards, or a folder
/// with a `checkpoint` file or a single index.
pub(super) fn find_index(path: &Path) -> Result<PathBuf, DataError> {
    if path.is_dir() {
        return index_of_folder(path);
    }
    let with_index = append(path, ".index");
    if with_index.is_file() {
        return Ok(with_index);
    }
    if path.extension().is_some_and(|extension| extension == "index") && path.is_file() {
        return Ok(path.into());
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let prefix = name.split_once(".data-").map(|(prefix, _)| path.with_file_name(format!("{prefix}.index")));
    match prefix {
        Some(index) if index.is_file() => Ok(index),
        _ if path.is_file() => index_of_folder(path.parent().unwrap_or(Path::new("."))),
        _ => {
            let why =
                "\nhint: give the prefix of a checkpoint (PREFIX.index must exist), or its folder".into();
            Err(DataError::Missing { path: path.into(), why })
        }
    }
}

fn index_of_folder(folder: &Path) -> Result<PathBuf, DataError> {
    let pointer = folder.join("checkpoint");
    if let Ok(text) = fs::read_to_string(&pointer)
        && let Some(name) = text.lines().find_map(|line| line.trim().strip_prefix("model_checkpoint_path:"))
    {
        // It may name the folder the checkpoint was written in long ago.
        let name = name.trim().trim_matches('"');
        let name = Path::new(name).file_name().unwrap_or_default();
        let index = append(&folder.join(name), ".index");
        if index.is_file() {
            return Ok(index);
        }
    }
    let mut found = files(folder)?;
    found.retain(|path| path.extension().is_some_and(|ending| ending == "index"));
    match &found[..] {
        [index] => Ok(index.clone()),
        [] => Err(DataError::Missing {
            path: folder.join("*.index"),
            why: "it lists the variables of a checkpoint".into(),
        }),
        several => {
            let prefixes = several.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy()));
            let shown: Vec<_> = prefixes.take(SHOWN).collect();
            let more = if several.len() > SHOWN { ", .." } else { "" };
            let what = format!("{} holds several checkpoints: {}{more}", folder.display(), shown.join(", "));
            Err(DataError::Usage(format!("{what}\nhint: give the prefix of one")))
        }
    }
}

/// The data shard of an index with one shard, also where somebody has renamed it.
pub(super) fn find_shard(index: &Path, shard: u32, shards: u32, given: &Path) -> Result<PathBuf, DataError> {
    let expected = index.with_extension("");
    let expected = append(&expected, &shard_suffix(shard, shards));
    if expected.is_file() || shards > 1 {
        return Ok(expected);
    }
    let is_index = given.extension().is_some_and(|extension| extension == "index");
    if given.is_file() && !is_index {
        return Ok(given.into());
    }
    let folder = index.parent().unwrap_or(Path::new("."));
    let mut found = files(folder)?.into_iter().filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains("data-00000-of-00001"))
    });
    match (found.next(), found.next()) {
        (Some(data), None) => Ok(data),
        _ => {
            let why = "it holds the values of the checkpoint\nhint: give its path if it was renamed".into();
            Err(DataError::Missing { path: expected, why })
        }
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let unreadable = |e| DataError::read(folder, e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn append(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
