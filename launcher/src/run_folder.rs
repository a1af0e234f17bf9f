//! The folder of a run: its lock, its logs, and the records of training.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use segue_configs::{LogConfig, SinkKind};
use segue_engine::checkpoint::CHECKPOINTS;
use segue_kernels::TrainError;
use segue_publish::{Claim, Lock, claim, make_own_folder, open_lock, read_regular_text};
use segue_report::{CsvFile, EventFile, GoesOn, MetricRow, MetricsFile, MlflowRun, MlflowStore, Sink};
use segue_watch::DONE_FILE;
use serde_json::Value;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use crate::failure::{CANNOT_CREATE, Failure};
use crate::trace;

/// Sends structured events of this rank to `RUN/logs/rank-00000.jsonl`. `RUST_LOG` chooses which; without it those of rank
/// 0, and the warnings of others, whose files appear with the first: a job of 1,000 ranks does not make 1,000 empty ones. Spans go to the
/// trace where steps are traced.
pub fn start_log(run: &Path, rank: usize, traces: bool) -> Result<(), Failure> {
    let path = run.join("logs").join(format!("rank-{rank:05}.jsonl"));
    let log = LogFile { path, file: None };
    // The run folder is the first thing a job writes to: what is wrong with it shows here.
    let log = if rank == 0 { log.opened()? } else { log };
    let least = if rank == 0 { LevelFilter::INFO } else { LevelFilter::WARN };
    let filter = EnvFilter::builder().with_default_directive(least.into()).from_env_lossy();
    let log = fmt::layer().json().log_internal_errors(true).with_writer(Mutex::new(log)).with_filter(filter);
    registry().with(log).with(traces.then(trace::layer)).init();
    Ok(())
}

/// A file that is appended to, and opened when it is first written to.
struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

impl LogFile {
    fn opened(mut self) -> Result<Self, Failure> {
        let opened = self.open().map(|_| ());
        opened.map_err(|e| Failure::cannot_write(&self.path, &e, "run.dir")).map(|()| self)
    }

    fn open(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                self.path.parent().map_or(Ok(()), make_own_folder)?;
                segue_publish::append_regular(&self.path)?
            }
        };
        Ok(self.file.insert(file))
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// How long a look at a lock takes at most.
const LOOKS: Duration = Duration::from_millis(500);

/// What a job holds while it trains in a run folder. It goes with the process, however that ends.
pub struct RunLock {
    _run: Lock,
    /// Of a folder of checkpoints that is a link. Nobody else takes one that lies in the run: see `owner_of`.
    _checkpoints: Option<Lock>,
}

/// Takes the run folder for this job, and the folder of its checkpoints where that is a link: two jobs in one folder would overwrite each other.
pub fn lock_run(run: &Path) -> Result<RunLock, Failure> {
    let of_run = lock(run)?;
    let checkpoints = run.join(CHECKPOINTS);
    if !checkpoints.is_symlink() {
        return Ok(RunLock { _run: of_run, _checkpoints: None });
    }
    let owner = owner_of(run, &checkpoints);
    if let Some(other) = owner.map_err(|e| Failure::cannot_write(&checkpoints, &e, "run.dir"))? {
        let message = format!(
            "{} is a link to the checkpoints of another run, {}, of which some would be removed\nhint: remove the link; \
             train.init_from begins with the weights of another run",
            checkpoints.display(),
            other.display()
        );
        return Err(Failure::new(CANNOT_CREATE, message));
    }
    Ok(RunLock { _run: of_run, _checkpoints: Some(take(&checkpoints, run)?) })
}

/// The other run whose folder, or whose folder of checkpoints, a link in `run` leads to, if it leads to one.
fn owner_of(run: &Path, checkpoints: &Path) -> io::Result<Option<PathBuf>> {
    let (run, place) = (fs::canonicalize(run)?, fs::canonicalize(checkpoints)?);
    let above = place.parent().filter(|_| place.ends_with(CHECKPOINTS));
    let is_run = |folder: &&Path| {
        ["config.json", "metrics.jsonl"].map(|name| folder.join(name).is_file()).contains(&true)
    };
    let owner = [above, Some(&place)].into_iter().flatten().filter(|folder| *folder != run).find(is_run);
    Ok(owner.map(PathBuf::from))
}

/// Takes the folder `run` for this process.
pub fn lock(run: &Path) -> Result<Lock, Failure> {
    refuse_model(run)?;
    fs::create_dir_all(run).map_err(|e| Failure::cannot_write(run, &e, "run.dir"))?;
    take(run, run)
}

/// Takes the folder `folder` of a run for this process: that of its supervisor is another one than its own.
pub fn lock_in(folder: &Path, run: &Path) -> Result<Lock, Failure> {
    refuse_model(run)?;
    make_own_folder(folder).map_err(|e| Failure::cannot_write(folder, &e, "run.dir"))?;
    take(folder, run)
}

/// Refuses a folder with a `config.json` that is not a run's: the run's own would take the place of what says which model lies there.
fn refuse_model(run: &Path) -> Result<(), Failure> {
    let path = run.join("config.json");
    let text = read_regular_text(&path).unwrap_or_default();
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    if text.trim().is_empty() || config["train"].is_object() {
        return Ok(());
    }
    let message = format!(
        "{} belongs to no run, and would be overwritten\nhint: choose another run.dir",
        path.display()
    );
    Err(Failure::new(CANNOT_CREATE, message))
}

/// Takes the lock in `folder` for a job that trains in `run`.
fn take(folder: &Path, run: &Path) -> Result<Lock, Failure> {
    let path = folder.join("lock");
    let open = || {
        let file = open_lock(&path)?;
        // It may be a link to where there are locks.
        let place = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        Ok((claim(&file, &place)?, file))
    };
    let begun = Instant::now();
    loop {
        match open().map_err(|e| Failure::cannot_write(&path, &e, "run.dir"))? {
            // Without locks: go on as everyone else does there. `main` says so.
            (Claim::Ours | Claim::Unknown, file) => return Ok(file.into()),
            // Whoever only looks whether a job is there holds it for a moment. Or somebody has removed it.
            (Claim::Taken | Claim::Gone, _) if begun.elapsed() < LOOKS => std::thread::sleep(LOOKS / 10),
            (Claim::Taken, _) => {
                let message = format!(
                    "another job is training in {}\nhint: wait for it, or choose another run.dir",
                    if folder.is_symlink() { folder } else { run }.display()
                );
                return Err(Failure::new(CANNOT_CREATE, message));
            }
            (Claim::Gone, _) => {
                let message = format!("{} is removed again and again", path.display());
                return Err(Failure::new(CANNOT_CREATE, format!("{message}\nhint: choose another run.dir")));
            }
        }
    }
}

/// `metrics.jsonl`, TensorBoard events, other sinks, `config.json` and `done` of a run.
pub struct Record {
    run: PathBuf,
    /// Where the run says that it is done.
    done: PathBuf,
    metrics: MetricsFile,
    events: Option<EventFile>,
    sinks: Vec<Box<dyn Sink>>,
    /// Why a sink takes no rows any more.
    lost: Vec<TrainError>,
}

impl Record {
    /// Opens the files of the run in the folder `run` that goes on after `step`, of whose steps `evaluated` is the last that was evaluated, and
    /// writes down its `settings`, the whole configuration as JSON.
    pub fn open(
        run: &Path,
        log: &LogConfig,
        settings: &Value,
        step: u64,
        evaluated: u64,
    ) -> Result<Self, Failure> {
        let done = run.join(DONE_FILE);
        remove(&done).map_err(|e| Failure::cannot_write(&done, &e, "run.dir"))?;
        let metrics = MetricsFile::open(run, step, evaluated).map_err(Failure::of_run)?;
        let events = match log.tensorboard {
            true => Some(
                open_events(run, GoesOn { step, evaluated }, metrics.of_step()).map_err(Failure::of_run)?,
            ),
            false => None,
        };
        let record = format!("{settings:#}\n");
        let path = run.join("config.json");
        segue_publish::write_file(&path, record.as_bytes())
            .map_err(|e| Failure::cannot_write(&path, &e.source, "run.dir"))?;
        let (sinks, lost) = open_sinks(run, log, settings, GoesOn { step, evaluated });
        Ok(Self { run: run.into(), done, metrics, events, sinks, lost })
    }

    /// Whether `metrics.jsonl` has had the row, but for its attempt, since before it was opened: that of an evaluation which a run that had ended
    /// makes once more.
    pub fn has(&self, row: &Value) -> bool {
        let without_attempt = |row: &Value| {
            let mut row = row.clone();
            row["attempt"].take();
            row
        };
        // What is read may differ from what was written in the last bit of a number.
        let read: Value = serde_json::from_str(&row.to_string()).unwrap_or_default();
        let wanted = without_attempt(&read);
        self.metrics.of_step().iter().any(|known| without_attempt(known) == wanted)
    }

    /// Adds a row to `metrics.jsonl`, to the sinks and, where it is one of training, to TensorBoard. A sink that fails takes no further rows, and
    /// costs nothing else: see [`lost`](Self::lost).
    pub fn row(&mut self, row: &Value) -> Result<(), Failure> {
        self.metrics.append(row).map_err(Failure::of_run)?;
        // A row of our own has no more numbers, nor longer names, than are taken.
        let values = segue_watch::numbers(row).values;
        let number = |key: &str| row[key].as_u64().unwrap_or(0);
        let kind = row["kind"].as_str().unwrap_or_default();
        let (step, attempt) = (number("step"), number("attempt"));
        let of_sinks = MetricRow { kind, step, attempt, time: segue_watch::now(), values: &values };
        self.each_sink(|sink| sink.row(&of_sinks));
        if kind == "train" { self.scalars(step, &scalars_of(row)) } else { Ok(()) }
    }

    /// Lets the rows of `metrics.jsonl` outlast a power cut.
    pub fn sync(&self) -> Result<(), Failure> {
        self.metrics.sync().map_err(Failure::of_run)
    }

    /// Why a sink takes no rows any more; each is told of once.
    pub fn lost(&mut self) -> Result<(), Failure> {
        self.lost.pop().map_or(Ok(()), |error| Err(of_sink(error, &self.run)))
    }

    fn each_sink(&mut self, mut work: impl FnMut(&mut dyn Sink) -> Result<(), TrainError>) {
        let lost = &mut self.lost;
        self.sinks.retain_mut(|sink| work(sink.as_mut()).map_err(|error| lost.push(error)).is_ok());
    }

    /// Says that no rows follow, and whether the run is done.
    pub fn finish(&mut self, done: bool) -> Result<(), Failure> {
        if done {
            self.each_sink(|sink| sink.done());
            segue_publish::write_file(&self.done, &[])
                .map_err(|e| Failure::cannot_write(&self.done, &e.source, "run.dir"))?;
        }
        self.lost()
    }

    /// Adds values to TensorBoard.
    pub fn scalars(&mut self, step: u64, values: &[(String, f64)]) -> Result<(), Failure> {
        self.events.as_mut().map_or(Ok(()), |file| file.scalars(step, values)).map_err(Failure::of_run)
    }
}

/// Begins the TensorBoard events of a run. An evaluation of its step that no checkpoint knows of is made again: it is void with all of that
/// step, whose training is told once more.
fn open_events(run: &Path, goes_on: GoesOn, of_step: &[Value]) -> Result<EventFile, TrainError> {
    let GoesOn { step, evaluated } = goes_on;
    let is_repeated = evaluated < step;
    let mut events = EventFile::create(&run.join("tensorboard"), step + u64::from(!is_repeated))?;
    if is_repeated {
        for row in of_step.iter().filter(|row| row["kind"] == "train") {
            events.scalars(step, &scalars_of(row))?;
        }
    }
    Ok(events)
}

/// A failure of a sink: its file is in the folder of the run, or in a store elsewhere.
fn of_sink(error: TrainError, run: &Path) -> Failure {
    match &error {
        TrainError::Write { path, source } if !path.starts_with(run) => {
            Failure::cannot_write(path, source, "log.mlflow_dir")
        }
        _ => Failure::of_run(error),
    }
}

/// Numbers of a row of training that TensorBoard gets under their own names.
const SCALARS: [&str; 10] = [
    "loss",
    "ppl",
    "bpc",
    "adversarial_loss",
    "lr",
    "noise_scale",
    "noise_gradient",
    "noise_trace",
    "loss_scale",
    "skipped",
];

/// The values that TensorBoard gets of a row of training, by their tags. What is null, such as the norm of gradients that overflow, is none.
fn scalars_of(row: &Value) -> Vec<(String, f64)> {
    let tag = |key: &str| match key {
        "grad_norm" => Some("train/gradient_norm".into()),
        key if key.ends_with("_per_s") => Some(format!("speed/{key}")),
        key => SCALARS.contains(&key).then(|| format!("train/{key}")),
    };
    let values = row.as_object().into_iter().flatten();
    values.filter_map(|(key, value)| Some((tag(key)?, value.as_f64()?))).collect()
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open_sinks(
    run: &Path,
    log: &LogConfig,
    settings: &Value,
    goes_on: GoesOn,
) -> (Vec<Box<dyn Sink>>, Vec<TrainError>) {
    let own = run.join("mlruns");
    let store = Some(log.mlflow_dir.as_str()).filter(|dir| !dir.is_empty()).map_or(own.as_path(), Path::new);
    let open = |kind: &SinkKind| -> Result<Box<dyn Sink>, TrainError> {
        let experiment = &log.mlflow_experiment;
        Ok(match kind {
            SinkKind::Csv => Box::new(CsvFile::open(run, goes_on)?),
            SinkKind::Mlflow => {
                let place = MlflowRun { store, experiment, run, config: settings };
                Box::new(MlflowStore::open(&place, goes_on)?)
            }
        })
    };
    let (mut sinks, mut lost) = (Vec::new(), Vec::new());
    for (place, kind) in log.sinks.iter().enumerate() {
        // Named twice, it is one: two would write into each other's file.
        if log.sinks[..place].contains(kind) {
            continue;
        }
        match open(kind) {
            Ok(sink) => sinks.push(sink),
            Err(error) => lost.push(error),
        }
    }
    (sinks, lost)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use segue_configs::Config;

    use super::*;

    /// The record of a run of `config`.
    fn open(config: &Config, step: u64, evaluated: u64) -> Record {
        Record::open(config.run.dir.as_ref(), &config.log, &config.to_json(), step, evaluated).unwrap()
    }

    #[test]
    fn a_run_that_goes_on_is_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let overrides = [format!("run.dir={}", dir.path().display()), "log.tensorboard=false".into()];
        let config = segue_families::MODELS.load(None, &overrides).unwrap().config;
        let done = dir.path().join(DONE_FILE);
        let mut record = open(&config, 0, 0);
        record.finish(false).unwrap();
        assert!(!done.exists());
        record.finish(true).unwrap();
        assert!(done.exists());
        open(&config, 4, 4);
        assert!(!done.exists());
    }

    #[test]
    fn hints_of_sinks_name_the_setting_that_places_them() {
        let hint = |path: &str| {
            let source = io::ErrorKind::PermissionDenied.into();
            of_sink(TrainError::Write { path: path.into(), source }, Path::new("runs/a")).hint.unwrap()
        };
        assert_eq!(hint("runs/a/metrics.csv"), "choose a writable run.dir");
        assert_eq!(hint("store/0/meta.yaml"), "choose a writable log.mlflow_dir");
    }

    #[test]
    fn a_row_is_known_by_all_but_its_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let overrides = [format!("run.dir={}", dir.path().display())];
        let config = segue_families::MODELS.load(None, &overrides).unwrap().config;
        let row =
            |attempt: u32, loss: f64| json!({ "kind": "eval", "step": 4, "attempt": attempt, "loss": loss });
        let mut record = open(&config, 0, 0);
        record.row(&row(1, 0.1 + 0.2)).unwrap();
        let knows = |evaluated, row: &Value| open(&config, 4, evaluated).has(row);
        assert!(knows(4, &row(2, 0.1 + 0.2)));
        assert!(!knows(4, &row(2, 0.4)));
        assert!(!knows(4, &json!({ "kind": "eval", "step": 4, "attempt": 2 })));
        // Void, as no checkpoint knows of it.
        assert!(!knows(0, &row(2, 0.1 + 0.2)));
    }

    #[test]
    fn an_evaluation_that_is_made_again_is_shown_once() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            segue_families::MODELS.load(None, &[format!("run.dir={}", dir.path().display())]).unwrap().config;
        let row = json!({ "kind": "train", "step": 4, "loss": 2.5, "lr": 0.1, "grad_norm": null, "tokens_per_s": 9.0, "step_s": 1.0 });
        let scalars = [("train/loss", 2.5), ("train/lr", 0.1), ("speed/tokens_per_s", 9.0)]
            .map(|(tag, v)| (tag.to_string(), v));
        let mut found = scalars_of(&row);
        found.sort_by(|a, b| b.0.cmp(&a.0));
        let mut expected = scalars.to_vec();
        expected.sort_by(|a, b| b.0.cmp(&a.0));
        assert_eq!(found, expected);
        open(&config, 0, 0).row(&row).unwrap();
        // What TensorBoard does with such files is in `tests/reports.rs`.
        let told_again = |evaluated| {
            let before = fs::read_dir(dir.path().join("tensorboard")).unwrap().count();
            open(&config, 4, evaluated);
            let files = fs::read_dir(dir.path().join("tensorboard")).unwrap().map(|e| e.unwrap().path());
            let newest = files.max_by_key(|path| (path.to_string_lossy().len(), path.clone())).unwrap();
            assert_eq!(fs::read_dir(dir.path().join("tensorboard")).unwrap().count(), before + 1);
            String::from_utf8_lossy(&fs::read(newest).unwrap()).contains("train/loss")
        };
        assert!(told_again(0));
        assert!(!told_again(4));
    }

    #[test]
    fn a_log_appears_with_its_first_line_and_is_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/rank-00001.jsonl");
        let log = || LogFile { path: path.clone(), file: None };
        log().flush().unwrap();
        assert!(!path.exists());
        for line in ["a\n", "b\n"] {
            log().write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        log().opened().unwrap();
    }

    #[test]
    fn a_run_folder_changes_no_file_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (run, other) = (dir.path().join("run"), dir.path().join("other"));
        fs::create_dir_all(run.join("logs")).unwrap();
        fs::create_dir_all(&other).unwrap();
        let mine = other.join("rank-00000.jsonl");
        fs::write(&mine, "mine").unwrap();
        let link = |to: &Path, from: &str| std::os::unix::fs::symlink(to, run.join(from)).unwrap();
        link(&mine, "lock");
        link(&mine, "logs/rank-00000.jsonl");
        lock(&run).unwrap();
        let log =
            |folder: &str| LogFile { path: run.join(folder).join("rank-00000.jsonl"), file: None }.opened();
        let refused = log("logs").err().unwrap();
        assert!(
            refused.message.ends_with("logs/rank-00000.jsonl: it is a symbolic link"),
            "{}",
            refused.message
        );
        assert_eq!(refused.code, CANNOT_CREATE);
        link(&other, "linked");
        log("linked").err().unwrap();
        lock_in(&run.join("linked"), &run).unwrap_err();
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    }

    #[test]
    fn checkpoints_behind_a_link_are_locked_and_never_those_of_another_run() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        let link = |to: &Path, run: &str| {
            fs::create_dir_all(place(run)).unwrap();
            std::os::unix::fs::symlink(to, place(run).join(CHECKPOINTS)).unwrap();
        };
        fs::create_dir_all(place("disk")).unwrap();
        link(&place("disk"), "one");
        link(&place("disk"), "two");
        let one = lock_run(&place("one")).unwrap();
        let refused = lock_run(&place("two")).err().unwrap();
        assert!(refused.message.starts_with("another job is training in"), "{}", refused.message);
        drop(one);
        lock_run(&place("two")).unwrap();

        fs::create_dir_all(place("other").join(CHECKPOINTS)).unwrap();
        fs::write(place("other/config.json"), r#"{"train": {}}"#).unwrap();
        link(&place("other").join(CHECKPOINTS), "three");
        let refused = lock_run(&place("three")).err().unwrap();
        assert!(
            refused.message.contains("is a link to the checkpoints of another run"),
            "{}",
            refused.message
        );
        assert_eq!(refused.code, CANNOT_CREATE);
        assert!(!place("other").join(CHECKPOINTS).join("lock").exists());
        // A link to the whole run is another name for it.
        std::os::unix::fs::symlink(place("other"), place("same")).unwrap();
        lock_run(&place("same")).unwrap();
    }

    #[test]
    fn a_lock_may_be_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (run, place) = (dir.path().join("run"), dir.path().join("elsewhere"));
        fs::create_dir(&run).unwrap();
        std::os::unix::fs::symlink(&place, run.join("lock")).unwrap();
        let refused = lock(&run).unwrap_err();
        assert!(refused.message.ends_with("it is a symbolic link to nothing"), "{}", refused.message);
        assert_eq!(refused.hint.as_deref(), Some("make the file that it leads to"));
        assert!(!place.exists());
        fs::write(&place, "").unwrap();
        let first = lock(&run).unwrap();
        let refused = lock(&run).unwrap_err();
        assert!(refused.message.starts_with("another job is training"), "{}", refused.message);
        drop(first);
        lock(&run).unwrap();
    }
}
