//! The folder of a run, read again and again into one [`RunView`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use segue_publish::{open_regular, read_regular};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::flatten::{LONGEST_NAME, MOST_NUMBERS, numbers};
use crate::tail::LONGEST_LINE;
use crate::{
    AttemptView, LiveRanks, RANKS_FILE, RankState, RanksFrom, RanksView, RunState, RunView, SampleView, now,
};
use crate::{Tail, WaitState, WatchError};

/// An empty file in the folder of a run that has ended as asked, which may be before its last step; it goes when the run goes on.
pub const DONE_FILE: &str = "done";
/// Folders of runs of several seeds, in that of all of them.
const SEEDS: &str = "seed-";
/// How long a file of ranks may stay as it is until its supervisor is taken for gone: it is written about once a second, and file systems take their time.
const FRESH: Duration = Duration::from_secs(30);
/// Largest file other than `metrics.jsonl` that is read; those of `segue` are far smaller.
const LARGEST: u64 = 64 << 20;

/// Most curves of a run. Those of runs are a hundred or so.
const MOST_CURVES: usize = 4096;

/// A run that is looked at. It opens files when it looks, and holds none.
#[derive(Debug)]
struct Run {
    folder: PathBuf,
    /// Where the supervisor writes: in the folder of all seeds, where the run is one of them.
    launch: PathBuf,
    metrics: Tail,
    superseded: Tail,
    config: Watched<Value>,
    samples: Watched<Samples>,
    reports: BTreeMap<String, Watched<Report>>,
    ranks: Watched<LiveRanks>,
    /// When ranks were written that are there, and since when they are seen; without the latter where they were old when they were first seen.
    heard: Option<(f64, Option<Instant>)>,
    /// Numbers of rows that are in no curve.
    left_out: usize,
    /// Rows that were longer than any that is kept.
    too_long: usize,
    view: RunView,
}

/// The runs in the folders that were named: each is one, or has one for each seed, of which further ones may begin meanwhile.
#[derive(Debug)]
pub struct Runs {
    folders: Vec<PathBuf>,
    /// In the order in which they were found, so that each keeps its number.
    runs: Vec<Run>,
}

impl Runs {
    /// Finds the runs that are there.
    ///
    /// # Errors
    ///
    /// A folder without a run.
    pub fn open(folders: &[PathBuf]) -> Result<Self, WatchError> {
        if let Some(path) = folders.iter().find(|folder| runs_in(folder).is_empty()) {
            return Err(WatchError::NoRun { path: path.clone() });
        }
        let mut runs = Self { folders: folders.into(), runs: Vec::new() };
        runs.discover();
        Ok(runs)
    }

    /// Looks at each run, and at those that have begun since.
    pub fn look(&mut self) -> impl Iterator<Item = &RunView> {
        self.discover();
        self.runs.iter_mut().map(Run::look)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// Adds the runs that are not known yet, behind those that are.
    fn discover(&mut self) {
        let known = self.runs.len();
        let mut mistook = false;
        for folder in &self.folders {
            for path in runs_in(folder) {
                if self.runs.iter().any(|run| run.folder == path) {
                    continue;
                }
                let run = Run::new(path);
                // A folder with nothing but a lock or a supervisor passed for a run until its seeds began.
                match self.runs.iter_mut().find(|run| run.folder == *folder) {
                    Some(mistaken) => (*mistaken, mistook) = (run, true),
                    None => self.runs.push(run),
                }
            }
        }
        if mistook || self.runs.len() > known {
            let names = names(&self.runs.iter().map(|run| run.folder.as_path()).collect::<Vec<_>>());
            self.runs.iter_mut().zip(names).for_each(|(run, name)| run.view.name = name);
        }
    }
}

/// The folders of runs that a folder stands for.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    if is_run(folder) { vec![folder.into()] } else { seeds(folder) }
}

/// Whether a folder is that of a run, of one too that has only just begun. Seeds have a lock and a supervisor in common.
fn is_run(folder: &Path) -> bool {
    let has = |name: &&str| folder.join(name).exists();
    ["metrics.jsonl", "config.json", "checkpoints"].iter().any(has)
        || ["lock", "launch"].iter().any(has) && seeds(folder).is_empty()
}

/// The runs of several seeds in the folder of all of them.
fn seeds(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut seeds: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| is_seed(path) && is_run(path)).collect();
    seeds.sort();
    seeds
}

fn is_seed(run: &Path) -> bool {
    run.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SEEDS))
}

/// Where the supervisor of a run writes.
fn launch_of(run: &Path) -> PathBuf {
    let own = run.join("launch");
    match run.parent() {
        Some(all) if is_seed(run) && !own.exists() => all.join("launch"),
        _ => own,
    }
}

/// What runs go by: the end of their paths that tells them apart.
fn names(folders: &[&Path]) -> Vec<String> {
    let end = |folder: &Path, parts: usize| {
        let all: Vec<_> = folder.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        all[all.len().saturating_sub(parts)..].join("/")
    };
    let longest = folders.iter().map(|folder| folder.components().count()).max().unwrap_or(1);
    let tells_apart = |parts: &usize| {
        let mut all: Vec<String> = folders.iter().map(|folder| end(folder, *parts)).collect();
        all.sort();
        all.dedup();
        all.len() == folders.len()
    };
    let parts = (1..=longest).find(tells_apart).unwrap_or(longest);
    folders.iter().map(|folder| end(folder, parts)).collect()
}

impl Run {
    fn new(folder: PathBuf) -> Self {
        let launch = launch_of(&folder);
        Self {
            metrics: Tail::new(&folder.join("metrics.jsonl")),
            superseded: Tail::new(&folder.join("metrics.superseded.jsonl")),
            config: Watched::new(folder.join("config.json")),
            samples: Watched::new(folder.join("samples/samples.json")),
            ranks: Watched::new(launch.join(RANKS_FILE)),
            reports: BTreeMap::new(),
            heard: None,
            left_out: 0,
            too_long: 0,
            view: RunView::default(),
            folder,
            launch,
        }
    }

    /// Reads what has changed. What cannot be read is one of the view's problems, and stays as it was.
    fn look(&mut self) -> &RunView {
        self.view.problems.clear();
        self.look_at_metrics();
        if let Some(config) = self.config.look(&mut self.view.problems) {
            self.view.steps = config["train"]["steps"].as_u64().unwrap_or(0);
            let task = config["task"]["name"].as_str().filter(|name| !name.is_empty());
            self.view.model = task.or(config["model"]["model_type"].as_str()).unwrap_or_default().into();
        }
        if let Some(samples) = self.samples.look(&mut self.view.problems) {
            self.view.samples = samples.samples.clone();
        }
        self.view.checkpoints = checkpoints(&self.folder);
        self.look_at_attempts();
        self.look_at_ranks();
        self.view.state = match (is_held(&self.folder), self.is_done()) {
            (true, _) => RunState::Training,
            (false, true) => RunState::Done,
            (false, false) => RunState::Stopped,
        };
        &self.view
    }

    fn is_done(&self) -> bool {
        let RunView { step, steps, checkpoints, .. } = &self.view;
        let reached = checkpoints.last().max(Some(step));
        self.folder.join(DONE_FILE).exists() || *steps > 0 && reached >= Some(steps)
    }

    fn look_at_metrics(&mut self) {
        match self.metrics.read() {
            Ok(news) => {
                if news.fresh {
                    let view = &mut self.view;
                    (view.series, view.restarts, view.step, view.attempt) = Default::default();
                    (self.left_out, self.too_long) = (0, 0);
                }
                self.too_long += news.too_long;
                news.lines
                    .iter()
                    .filter_map(|line| serde_json::from_str(line).ok())
                    .for_each(|row| self.take(&row));
            }
            Err(error) => self.view.problems.push(format!("metrics.jsonl: {error}")),
        }
        if self.left_out > 0 {
            self.view.problems.push(format!(
                "metrics.jsonl: numbers left out: {}; names have up to {LONGEST_NAME} bytes, rows {MOST_NUMBERS} numbers and runs {MOST_CURVES} curves",
                self.left_out
            ));
        }
        if self.too_long > 0 {
            self.view.problems.push(format!(
                "metrics.jsonl: rows left out: {}; rows have up to {LONGEST_LINE} bytes",
                self.too_long
            ));
        }
        if let Ok(news) = self.superseded.read() {
            let rows = news.lines.len() + news.too_long;
            self.view.superseded = if news.fresh { 0 } else { self.view.superseded } + rows as u64;
        }
        let written = fs::metadata(self.folder.join("metrics.jsonl")).and_then(|file| file.modified()).ok();
        self.view.updated =
            written.and_then(|at: SystemTime| Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs_f64()));
    }

    fn take(&mut self, row: &Value) {
        let (Some(kind), Some(step)) = (row["kind"].as_str(), row["step"].as_u64()) else { return };
        let attempt = row["attempt"].as_u64().unwrap_or(self.view.attempt);
        if attempt != std::mem::replace(&mut self.view.attempt, attempt) && self.view.step > 0 {
            self.view.restarts.push(self.view.step);
        }
        self.view.step = self.view.step.max(step);
        let found = numbers(row);
        self.left_out += found.left_out;
        for (name, value) in found.values {
            let series = &mut self.view.series;
            let name = format!("{kind}/{name}");
            let has_room = series.len() < MOST_CURVES || series.contains_key(&name);
            match has_room && name.len() <= LONGEST_NAME {
                true => series.entry(name).or_default().push((step, value)),
                false => self.left_out += 1,
            }
        }
    }

    fn look_at_attempts(&mut self) {
        let entries = fs::read_dir(&self.launch).into_iter().flatten().flatten();
        let is_report = |name: &String| name.starts_with("attempt-") && name.ends_with(".json");
        for name in entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_report) {
            let path = self.launch.join(&name);
            self.reports.entry(name).or_insert_with(|| Watched::new(path)).look(&mut self.view.problems);
        }
        self.reports.retain(|_, report| report.path.exists());
        self.view.attempts =
            self.reports.values().filter_map(|report| Some(report.value.as_ref()?.attempt.clone())).collect();
        self.view.attempts.sort_by_key(|attempt| attempt.attempt);
    }

    /// Ranks as the supervisor hears them; where there is none any more, as it heard them last.
    fn look_at_ranks(&mut self) {
        self.ranks.look(&mut self.view.problems);
        let reported = || {
            let last = self
                .reports
                .values()
                .filter_map(|report| report.value.as_ref())
                .max_by_key(|r| r.attempt.attempt)?;
            Some(RanksView { from: RanksFrom::Report, seen: last.ranks() })
        };
        let held = is_held(&self.launch);
        let live = self.ranks.value.as_ref().filter(|seen| is_live(seen, &mut self.heard) || held);
        self.view.ranks = match live {
            Some(seen) => RanksView { from: RanksFrom::Live, seen: seen.clone() },
            None => reported().unwrap_or_default(),
        };
    }
}

/// Whether a supervisor still writes `ranks`, for where its lock does not tell. Its clock may be another one than that of this host: it counts for the first look alone, and from then
/// on how long they stay as they are.
fn is_live(ranks: &LiveRanks, heard: &mut Option<(f64, Option<Instant>)>) -> bool {
    let known = heard.filter(|(written, _)| *written == ranks.written);
    let (_, since) = known.unwrap_or_else(|| {
        let is_new = heard.is_some() || now() - ranks.written < FRESH.as_secs_f64();
        *heard.insert((ranks.written, is_new.then(Instant::now)))
    });
    since.is_some_and(|since| since.elapsed() < FRESH)
}

/// Whether a job trains in the run folder, as far as its lock tells.
pub fn is_held(run: &Path) -> bool {
    let lock = open_regular(run.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

/// Steps of the checkpoints of a run, in their order.
fn checkpoints(run: &Path) -> Vec<u64> {
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    let step = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok();
    let mut steps: Vec<u64> = entries.filter_map(step).collect();
    steps.sort_unstable();
    steps
}

/// A file of JSON that is read anew when it is another one.
#[derive(Debug)]
struct Watched<T> {
    path: PathBuf,
    /// When it was written, and how long it was.
    stamp: Option<(SystemTime, u64)>,
    value: Option<T>,
    /// Why it could not be read, where that is so.
    problem: Option<String>,
}

impl<T: DeserializeOwned> Watched<T> {
    fn new(path: PathBuf) -> Self {
        Self { path, stamp: None, value: None, problem: None }
    }

    /// The value, where it is another one than before. What cannot be read stays what it was, and is a problem.
    fn look(&mut self, problems: &mut Vec<String>) -> Option<&T> {
        let metadata = fs::metadata(&self.path).ok();
        let stamp = metadata.and_then(|file| Some((file.modified().ok()?, file.len())));
        let changed = std::mem::replace(&mut self.stamp, stamp) != stamp;
        if changed {
            self.problem = None;
            match stamp.map(|(_, length)| self.read(length)) {
                Some(Ok(value)) => self.value = Some(value),
                Some(Err(why)) => self.problem = Some(why),
                None => self.value = None,
            }
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        problems.extend(self.problem.iter().map(|why| format!("{name}: {why}")));
        self.value.as_ref().filter(|_| changed)
    }

    fn read(&self, length: u64) -> Result<T, String> {
        if length > LARGEST {
            return Err(format!("{length} bytes, more than any of this program's"));
        }
        let text = read_regular(&self.path).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Samples {
    samples: Vec<SampleView>,
}

/// What is read of `launch/attempt-NNNN.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    #[serde(flatten)]
    attempt: AttemptView,
    ranks: Vec<RankSeen>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RankSeen {
    rank: usize,
    host: String,
    last: Beat,
    silent_s: f64,
    left: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Beat {
    step: u64,
    resident: u64,
    waits: Option<WaitState>,
    leaving: Option<u8>,
}

impl Report {
    fn ranks(&self) -> LiveRanks {
        let state = |seen: &RankSeen| RankState {
            rank: seen.rank,
            host: seen.host.clone(),
            step: seen.last.step,
            resident: seen.last.resident,
            waits: seen.last.waits.clone(),
            age_s: seen.silent_s,
            left: seen.left || seen.last.leaving.is_some(),
        };
        let AttemptView { attempt, began, seconds, world_size, .. } = self.attempt;
        let ranks = self.ranks.iter().map(state).collect();
        LiveRanks { attempt, world_size, written: began as f64 + seconds, ranks }
    }
}

#[cfg(test)]
mod tests;
