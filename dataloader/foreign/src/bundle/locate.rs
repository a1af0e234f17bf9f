use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_publish::read_regular_text;

use super::shard_suffix;

/// Checkpoints that a message names.
const SHOWN: usize = 8;
/// The file in which TensorFlow names the newest checkpoint of a folder.
const POINTER: &str = "checkpoint";

/// The index that a path leads to: the prefix of a checkpoint, with or without the number of its step, its `.index`, one of its data shards,
/// or a folder with a `checkpoint` file or a single index.
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
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match prefix {
        Some(index) if index.is_file() => return Ok(index),
        _ if name == POINTER && path.is_file() => return index_of_folder(folder),
        _ if path.is_file() => return index_of_renamed(path, folder),
        _ => {}
    }
    let is_step = |path: &PathBuf| {
        let rest = path.file_name().and_then(|other| other.to_str()?.strip_prefix(&name)?.strip_prefix('-'));
        let step = rest.and_then(|rest| rest.strip_suffix(".index"));
        step.is_some_and(|step| !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut steps = if folder.is_dir() { files(folder)? } else { Vec::new() };
    steps.retain(is_step);
    only(steps, path)?.ok_or_else(|| {
        let why = "\nhint: give the prefix of a checkpoint (PREFIX.index must exist), or its folder".into();
        DataError::Missing { path: path.into(), why }
    })
}

/// The index in `folder` that the file at `path` holds the values of: the only one, if its values are under no name of its own. Any other file has
/// nothing to do with the checkpoints beside it.
fn index_of_renamed(path: &Path, folder: &Path) -> Result<PathBuf, DataError> {
    let mut indices = files(folder)?;
    indices.retain(|path| path.extension().is_some_and(|ending| ending == "index"));
    match &indices[..] {
        [index] if !append(&index.with_extension(""), &shard_suffix(0, 1)).is_file() => Ok(index.clone()),
        _ => Err(DataError::Missing { path: path.into(), why: "it is of no TensorFlow checkpoint".into() }),
    }
}

/// The one of these indices of checkpoints in or called after `path`; an error where there are several.
fn only(found: Vec<PathBuf>, path: &Path) -> Result<Option<PathBuf>, DataError> {
    if found.len() < 2 {
        return Ok(found.into_iter().next());
    }
    let prefixes = found.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy()));
    let shown: Vec<_> = prefixes.take(SHOWN).collect();
    let more = if found.len() > SHOWN { ", .." } else { "" };
    let holds = if path.is_dir() { "holds" } else { "leads to" };
    let what = format!("{} {holds} several checkpoints: {}{more}", path.display(), shown.join(", "));
    Err(DataError::Usage(format!("{what}\nhint: give the prefix of one")))
}

fn index_of_folder(folder: &Path) -> Result<PathBuf, DataError> {
    let pointer = folder.join(POINTER);
    if let Ok(text) = read_regular_text(&pointer)
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
    only(found, folder)?.ok_or_else(|| DataError::Missing {
        path: folder.join("*.index"),
        why: "it lists the variables of a checkpoint".into(),
    })
}

/// The data shard of an index with one shard, also where somebody has renamed it: the file that was given, one whose name says it, or the
/// only one that is as long, `length` bytes.
pub(super) fn find_shard(
    index: &Path,
    (shard, shards): (u32, u32),
    length: u64,
    given: &Path,
) -> Result<PathBuf, DataError> {
    let expected = index.with_extension("");
    let expected = append(&expected, &shard_suffix(shard, shards));
    if expected.is_file() || shards > 1 {
        return Ok(expected);
    }
    let is_index = |path: &Path| path.extension().is_some_and(|extension| extension == "index");
    if given.is_file() && !is_index(given) {
        return Ok(given.into());
    }
    let files = files(index.parent().unwrap_or(Path::new(".")))?;
    let is_called_so = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains("data-00000-of-00001"))
    };
    let is_as_long = |path: &&PathBuf| {
        !is_index(path) && fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == length)
    };
    let named: Vec<&PathBuf> = files.iter().filter(is_called_so).collect();
    let found = if named.is_empty() { files.iter().filter(is_as_long).collect() } else { named };
    match found[..] {
        [data] => Ok(data.clone()),
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
