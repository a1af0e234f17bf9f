use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::{DataError, without_mark};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::settings::RecordSettings;

const CORPUS_INFO: &str = "corpus_info.json";
/// Folder of the records beside [`CORPUS_INFO`].
const RECORDS: &str = "tfrecords";
const PREFIX: &str = "record_info-";
/// Names shown of files that do not fit.
const SHOWN: usize = 3;

/// A folder that the reference's `data_utils.py` has written: settings, and records of any number of tasks and passes.
#[derive(Clone, Debug)]
pub struct RecordFolder {
    /// The folder of the record files.
    pub path: PathBuf,
    /// What they were made with.
    pub settings: RecordSettings,
    /// What is there with these settings, by split, pass and task.
    pub infos: Vec<RecordInfo>,
}

/// A `record_info-*.json`: the records of one task's text in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// `train`, `dev` or `test`.
    pub split: String,
    /// Number of the pass: the same text with other pairs and other targets.
    pub pass: u64,
    /// Number of the task: which part of the input files.
    pub task: u64,
    /// The TFRecord files, where they lie now.
    pub files: Vec<PathBuf>,
    /// Steps in all of them.
    pub steps: u64,
}

/// What stands in a `record_info-*.json`.
#[derive(Deserialize)]
struct Listed {
    filenames: Vec<String>,
    num_batch: u64,
}

impl RecordFolder {
    /// Opens what the reference calls `save_dir`, or the `tfrecords` folder in it.
    pub fn open(folder: &Path) -> Result<RecordFolder, DataError> {
        let inner = folder.join(RECORDS);
        let path = if inner.is_dir() { inner } else { folder.to_path_buf() };
        let beside = [folder.join(CORPUS_INFO), folder.join("..").join(CORPUS_INFO)];
        let Some(info) = beside.iter().find(|path| path.is_file()) else {
            let why = "it states the order of the rows in the records\nhint: restore it: task 0 of \
                data_utils.py writes it beside the tfrecords folder";
            return Err(DataError::Missing { path: beside[0].clone(), why: why.into() });
        };
        let settings: RecordSettings = read_json(info)?;
        settings.check().map_err(|why| DataError::foreign(info, why))?;
        let infos = read_infos(&path, &settings, info)?;
        Ok(RecordFolder { path, settings, infos })
    }
}

/// The infos whose names carry the settings of `corpus_info.json`.
fn read_infos(
    folder: &Path,
    settings: &RecordSettings,
    corpus_info: &Path,
) -> Result<Vec<RecordInfo>, DataError> {
    let mut infos = Vec::new();
    let mut others = Vec::new();
    let expected = settings.name();
    for path in json_files(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let parts =
            rest.split_once('.').and_then(|(head, middle)| Some((head, middle.strip_suffix(".json")?)));
        match parts {
            Some((head, middle)) if middle == expected => infos.push(read_info(&path, head)?),
            _ => others.push(name),
        }
    }
    if infos.is_empty() {
        let found = match others.as_slice() {
            [] => format!("it holds no {PREFIX}*.json at all"),
            others => format!("it holds {}", others[..others.len().min(SHOWN)].join(", ")),
        };
        let why = format!(
            "{} says {PREFIX}SPLIT-TASK-PASS.{expected}.json, and {found}\nhint: restore the \
             corpus_info.json of these records",
            corpus_info.display()
        );
        return Err(DataError::foreign(folder, why));
    }
    infos.sort_by(|a, b| (&a.split, a.pass, a.task).cmp(&(&b.split, b.pass, b.task)));
    Ok(infos)
}

/// One info; `head` is the part of its name with split, task and pass.
fn read_info(path: &Path, head: &str) -> Result<RecordInfo, DataError> {
    let mut fields = head.rsplitn(3, '-');
    let (pass, task, split) = (fields.next(), fields.next(), fields.next());
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
    let (Some(pass), Some(task), Some(split)) = (number(pass), number(task), split) else {
        let why = format!("its name says `{head}` where SPLIT-TASK-PASS is expected, as in train-0-0");
        return Err(DataError::foreign(path, why));
    };
    let listed: Listed = read_json(path)?;
    let files = listed.filenames.iter().map(|name| found_again(path, name)).collect::<Result<Vec<_>, _>>()?;
    Ok(RecordInfo { split: split.into(), pass, task, files, steps: listed.num_batch })
}

/// A file by the name it had where it was written: it lies beside its info now.
fn found_again(info: &Path, listed: &str) -> Result<PathBuf, DataError> {
    let name = listed.rsplit('/').next().unwrap_or_default();
    let path = info.with_file_name(name);
    match path.is_file() && !name.is_empty() {
        true => Ok(path),
        false => {
            let why = format!("{} lists it\nhint: copy it beside that file", info.display());
            Err(DataError::Missing { path, why })
        }
    }
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let unreadable = |e| DataError::read(folder, e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    Ok(paths)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, DataError> {
    let text = segue_publish::read_regular(path).map_err(|e| DataError::read(path, e))?;
    serde_json::from_slice(without_mark(&text)).map_err(|e| DataError::foreign(path, e.to_string()))
}
