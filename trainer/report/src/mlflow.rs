//! A run in the layout of MLflow's file store, which `mlflow ui --backend-store-uri file:FOLDER` reads.
//!
//! `FOLDER/EXPERIMENT/meta.yaml` and, of each run, `FOLDER/EXPERIMENT/RUN/` with `meta.yaml`, `metrics/NAME` (lines of `TIME VALUE STEP`),
//! `params/NAME` and `tags/NAME` (`mlflow/store/tracking/file_store.py`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use segue_kernels::TrainError;
use segue_publish::{make_own_folder, make_own_folders};
use serde_json::{Value, json};

use super::sink::{GoesOn, MetricRow, Sink, keep_lines, open_to_append};

/// `RunStatus` of MLflow's protocol.
const RUNNING: u64 = 1;
const FINISHED: u64 = 3;
/// `SourceType.LOCAL` of it.
const LOCAL: u64 = 4;
/// Longest value of a parameter that MLflow takes, in characters.
const LONGEST_PARAMETER: usize = 6000;

/// What a run is among those of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct MlflowRun<'a> {
    /// Folder of the store.
    pub store: &'a Path,
    /// Name of the experiment.
    pub experiment: &'a str,
    /// Folder of the run, by which it is known again when it goes on.
    pub run: &'a Path,
    /// Its configuration, as sections of keys.
    pub config: &'a Value,
}

/// The folder of a run in the store.
pub struct MlflowStore {
    folder: PathBuf,
    meta: BTreeMap<&'static str, Value>,
    files: BTreeMap<String, File>,
}

impl MlflowStore {
    /// Opens the folder of a run, makes it and its experiment where they are not there, and takes back what is made again.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or written.
    pub fn open(run: &MlflowRun, goes_on: GoesOn) -> Result<Self, TrainError> {
        let place = fs::canonicalize(run.run).unwrap_or_else(|_| run.run.into());
        let (experiment, id) = (experiment_id(run.experiment), hex(place.as_os_str().as_encoded_bytes()));
        // A store elsewhere is the user's choice, and may be a link.
        match run.store.strip_prefix(run.run) {
            Ok(below) => make_folders(run.run, below)?,
            Err(_) => make_folders(run.store, "")?,
        }
        let store = fs::canonicalize(run.store).unwrap_or_else(|_| run.store.into());
        make_folders(&store, &experiment)?;
        let of_experiment = store.join(&experiment);
        make_experiment(&of_experiment, &experiment, run.experiment)?;
        let folder = of_experiment.join(&id);
        for part in ["metrics", "params", "tags", "artifacts"] {
            make_folders(&of_experiment, Path::new(&id).join(part))?;
        }
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (tag, value) in [
            ("mlflow.runName", name.as_str()),
            ("mlflow.source.name", "segue"),
            ("mlflow.source.type", "LOCAL"),
        ] {
            write(&folder.join("tags").join(tag), value)?;
        }
        for (name, value) in parameters(run.config) {
            write(&folder.join("params").join(safe(&name)), &value)?;
        }
        take_back(&folder.join("metrics"), goes_on)?;
        let began = started(&folder).unwrap_or_else(milliseconds);
        let meta = BTreeMap::from([
            ("artifact_uri", json!(uri(&folder.join("artifacts")))),
            ("end_time", Value::Null),
            ("entry_point_name", json!("")),
            ("experiment_id", json!(experiment)),
            ("lifecycle_stage", json!("active")),
            ("run_id", json!(id)),
            ("run_name", json!(name)),
            ("run_uuid", json!(id)),
            ("source_name", json!("segue")),
            ("source_type", json!(LOCAL)),
            ("source_version", json!("")),
            ("start_time", json!(began)),
            ("status", json!(RUNNING)),
            ("tags", json!([])),
            ("user_id", json!(std::env::var("USER").unwrap_or_default())),
        ]);
        let store = Self { folder, meta, files: BTreeMap::new() };
        store.write_meta()?;
        Ok(store)
    }

    fn write_meta(&self) -> Result<(), TrainError> {
        write_for_good(&self.folder.join("meta.yaml"), &yaml(&self.meta))
    }
}

impl Sink for MlflowStore {
    fn row(&mut self, row: &MetricRow) -> Result<(), TrainError> {
        let time = (row.time * 1e3) as u64;
        for (name, value) in row.values {
            let name = safe(&format!("{}/{name}", row.kind));
            let in_folder = Path::new("metrics").join(&name);
            let path = self.folder.join(&in_folder);
            if !self.files.contains_key(&name) {
                self.files.insert(name.clone(), open_to_append(&self.folder, in_folder)?);
            }
            let Some(file) = self.files.get_mut(&name) else { continue };
            let line = format!("{time} {value} {}\n", row.step);
            file.write_all(line.as_bytes()).map_err(|source| TrainError::Write { path, source })?;
        }
        Ok(())
    }

    fn done(&mut self) -> Result<(), TrainError> {
        self.meta.insert("end_time", json!(milliseconds()));
        self.meta.insert("status", json!(FINISHED));
        self.write_meta()
    }
}

/// A name as a path of MLflow's letters, in which no part leads elsewhere.
fn safe(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || "_-. ".contains(c) { c } else { '_' };
    let part = |part: &str| match part {
        "" | "." | ".." => "_".to_string(),
        part => part.chars().map(letter).collect(),
    };
    name.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The number of an experiment, the same for the same name: MLflow's own have 18 digits too.
fn experiment_id(name: &str) -> String {
    let bytes = blake3::hash(name.as_bytes());
    let number = bytes.as_bytes()[..8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{:018}", number % 1_000_000_000_000_000_000)
}

/// 32 digits of a hash: the form of MLflow's ids of runs.
fn hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_string()
}

fn make_experiment(folder: &Path, id: &str, name: &str) -> Result<(), TrainError> {
    let meta = folder.join("meta.yaml");
    // One that is empty was lost in a power cut, and would close the whole store to MLflow.
    if fs::metadata(&meta).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    let now = milliseconds();
    let fields = BTreeMap::from([
        ("artifact_location", json!(uri(folder))),
        ("creation_time", json!(now)),
        ("experiment_id", json!(id)),
        ("last_update_time", json!(now)),
        ("lifecycle_stage", json!("active")),
        ("name", json!(name)),
    ]);
    write_for_good(&meta, &yaml(&fields))
}

/// YAML of one level: JSON's scalars are its own.
fn yaml(fields: &BTreeMap<&'static str, Value>) -> String {
    fields.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

/// When the run began, in milliseconds, as its folder tells.
fn started(folder: &Path) -> Option<u64> {
    let meta = segue_publish::read_regular_text(folder.join("meta.yaml")).ok()?;
    meta.lines().find_map(|line| line.strip_prefix("start_time: ")?.parse().ok())
}

/// Removes the lines of steps that are made again from all files of metrics below `folder`.
fn take_back(folder: &Path, goes_on: GoesOn) -> Result<(), TrainError> {
    for kind in ["train", "eval"] {
        let last = goes_on.last(kind);
        let stays = |line: &str| {
            line.rsplit(' ').next().and_then(|step| step.parse::<u64>().ok()).is_some_and(|step| step <= last)
        };
        let mut open = vec![folder.join(kind)];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                // Files behind a link are not this run's.
                make_own_folder(&path).map_err(|source| TrainError::Write { path: path.clone(), source })?;
                open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            } else {
                keep_lines(&path, stays)?;
                // MLflow takes a file of a metric without a value for damage.
                if fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
                    fs::remove_file(&path)
                        .map_err(|source| TrainError::Write { path: path.clone(), source })?;
                }
            }
        }
    }
    Ok(())
}

/// The keys of a configuration by their full names, with their values as text.
fn parameters(config: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), config)];
    while let Some((name, value)) = open.pop() {
        match value {
            Value::Object(inner) => {
                let full = |key: &String| if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                open.extend(inner.iter().map(|(key, value)| (full(key), value)));
            }
            Value::String(text) => found.push((name, text.chars().take(LONGEST_PARAMETER).collect())),
            value => found.push((name, value.to_string().chars().take(LONGEST_PARAMETER).collect())),
        }
    }
    found
}

fn uri(path: &Path) -> String {
    let encoded = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    format!("file://{}", path.as_os_str().as_encoded_bytes().iter().map(encoded).collect::<String>())
}

fn milliseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Makes the folders `below` in `root`, which alone may be a link.
fn make_folders(root: &Path, below: impl AsRef<Path>) -> Result<(), TrainError> {
    let path = root.join(&below);
    make_own_folders(root, below).map_err(|source| TrainError::Write { path, source })
}

fn write_for_good(path: &Path, text: &str) -> Result<(), TrainError> {
    segue_publish::write_file(path, text.as_bytes())
        .map_err(|error| TrainError::Write { path: path.into(), source: error.source })
}

fn write(path: &Path, text: &str) -> Result<(), TrainError> {
    segue_publish::write_passing_file(path, text.as_bytes())
        .map_err(|error| TrainError::Write { path: path.into(), source: error.source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(store: &mut MlflowStore, kind: &str, step: u64) {
        let values = [("loss".to_string(), 0.5)];
        store.row(&MetricRow { kind, step, attempt: 1, time: 2.5, values: &values }).unwrap();
    }

    #[test]
    fn a_run_is_one_folder_however_often_it_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (run, store) = (dir.path().join("one run"), dir.path().join("mlruns"));
        fs::create_dir(&run).unwrap();
        let config = json!({ "train": { "steps": 6, "no": [1, 2] }, "run": { "dir": "a: b" } });
        let of = MlflowRun { store: &store, experiment: "my: \"own\"", run: &run, config: &config };
        let open = |step, evaluated| MlflowStore::open(&of, GoesOn { step, evaluated }).unwrap();
        let mut first = open(0, 0);
        (1..=3).for_each(|step| add(&mut first, "train", step));
        add(&mut first, "eval", 2);
        let mut second = open(2, 2);
        add(&mut second, "train", 3);
        second.done().unwrap();
        let experiments: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(experiments.len(), 1);
        assert!(
            fs::read_to_string(experiments[0].join("meta.yaml"))
                .unwrap()
                .contains("name: \"my: \\\"own\\\"\"\n")
        );
        let read = |name: &str| fs::read_to_string(second.folder.join(name)).unwrap();
        assert_eq!(read("metrics/train/loss"), "2500 0.5 1\n2500 0.5 2\n2500 0.5 3\n");
        assert_eq!(read("metrics/eval/loss"), "2500 0.5 2\n");
        assert_eq!((read("params/train.steps"), read("params/train.no")), ("6".into(), "[1,2]".into()));
        assert_eq!(read("tags/mlflow.runName"), "one run");
        let meta = read("meta.yaml");
        assert!(meta.contains("status: 3\n") && meta.contains("/artifacts\"\n"));
    }

    #[test]
    fn a_store_in_a_run_changes_no_file_outside() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        for folder in ["run", "other/kept"] {
            fs::create_dir_all(place(folder)).unwrap();
        }
        fs::write(place("other/kept/loss"), "").unwrap();
        let config = json!({});
        let open = |store: &Path| {
            let of = MlflowRun { store, experiment: "one", run: &place("run"), config: &config };
            MlflowStore::open(&of, GoesOn { step: 0, evaluated: 0 })
        };
        let link = |from: &Path| std::os::unix::fs::symlink(place("other"), from).unwrap();
        let assert_refused = |opened: Result<MlflowStore, TrainError>| {
            let error = opened.err().unwrap();
            assert!(error.to_string().ends_with("it is a symbolic link"), "{error}");
            assert_eq!(fs::read_dir(place("other")).unwrap().count(), 1);
            assert!(place("other/kept/loss").is_file());
        };
        let store = place("run/mlruns");
        link(&store);
        assert_refused(open(&store));
        fs::remove_file(&store).unwrap();
        let folder = open(&store).unwrap().folder;
        for part in ["metrics/train", "metrics", "params"] {
            let _ = fs::remove_dir_all(folder.join(part));
            link(&folder.join(part));
            assert_refused(open(&store));
            fs::remove_file(folder.join(part)).unwrap();
        }
        let mut open_store = open(&store).unwrap();
        link(&folder.join("metrics/eval"));
        let values = [("loss".to_string(), 0.5)];
        let row = MetricRow { kind: "eval", step: 1, attempt: 1, time: 2.5, values: &values };
        assert_refused(open_store.row(&row).map(|()| open(&store).unwrap()));
        // The user's own choice may be a link.
        link(&place("chosen"));
        open(&place("chosen")).unwrap();
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(safe("eval/../../etc/passwd"), "eval/_/_/etc/passwd");
        assert_eq!(safe("/a b/\u{e9}:1"), "_/a b/__1");
    }
}
