//! A folder with the data of the runs, made anew each time, and the runs in it.
//!
//! Everything is named relative to that folder: a checkpoint written here tells nothing of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use segue_engine::checkpoint::{first_lane, read_tensors, write_tensors};
use segue_tests::{ROOT, alone, mpirun, succeed};
use serde_json::Value;
use tch::Tensor;
use tempfile::TempDir;

use crate::data::{DataSet, fingerprint};
use crate::kernels::{Kernels, Machine};
use crate::record::Record;
use crate::runs::{Kind, OldCheckpoint, Run, TINY_XLNET};

/// The folder, and the kernels that everything in it runs with.
pub struct Scene<'a> {
    dir: TempDir,
    kernels: &'a Kernels,
    data: &'a DataSet,
}

/// Folders of a run whose tensors are compared: the last checkpoint, the best model, and that of a stage of training.
const COMPARED: [&str; 3] = [LATEST, "best", "stage-1"];
const LATEST: &str = "checkpoints/latest";

impl<'a> Scene<'a> {
    /// Makes the data.
    pub fn new(kernels: &'a Kernels, data: &'a DataSet) -> Self {
        let scene = Self { dir: tempfile::tempdir().expect("a temporary folder"), kernels, data };
        (data.make)(&scene);
        scene
    }

    /// Makes the run on so many ranks, with these changes; what it computed.
    pub fn record(&self, run: &Run, ranks: usize, changes: &[&str]) -> Record {
        let folder = [&[run.name, &ranks.to_string()], changes].concat().join("-");
        let model = match &run.resumes {
            Some(old) => self.place_old(old, &folder),
            None => self.encoder(run.kind),
        };
        self.train(run, ranks, &folder, &model, changes);
        let rows = self.rows(&folder);
        let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).cloned().collect::<Vec<_>>();
        let loss = |row: Value| row["loss"].as_f64().expect("a step has a loss");
        let mut evaluations = of("eval");
        for row in evaluations.iter_mut().filter_map(Value::as_object_mut) {
            row.remove("attempt");
        }
        Record {
            kernels: self.kernels.name.into(),
            machine: Machine::here(),
            data: self.data.names.iter().map(|name| (name.to_string(), fingerprint(self, name))).collect(),
            losses: of("train").into_iter().map(loss).collect(),
            evaluations,
            blake3: self.hashes(&folder),
        }
    }

    /// Makes the checkpoint that the run goes on from, and puts it among the golden files.
    pub fn write_checkpoint(&self, run: &Run, old: &OldCheckpoint) {
        let stop = format!("train.stop_at={}", old.step);
        let model = self.encoder(run.kind);
        self.train(run, 1, "written", &model, &[&stop]);
        let target = old_folder(old);
        if target.exists() {
            fs::remove_dir_all(&target).expect("the old checkpoint goes");
        }
        copy_folder(&self.path("written/checkpoints").join(step_folder(old)), &target);
    }

    /// Copies an old checkpoint into a run folder; its path, which also serves as the model that a task begins with.
    fn place_old(&self, old: &OldCheckpoint, run: &str) -> String {
        let place = format!("{run}/checkpoints/{}", step_folder(old));
        copy_folder(&old_folder(old), &self.path(&place));
        place
    }

    /// Trains an XLNet for two steps, for tasks to begin with; its folder. Nothing for pre-training.
    fn encoder(&self, kind: Kind) -> String {
        let Kind::Tasks { sizes, .. } = kind else { return String::new() };
        let run = Run { name: "encoder", settings: sizes, ..TINY_XLNET };
        if !self.path("encoder").exists() {
            self.train(&run, 1, "encoder", "", &["train.steps=2"]);
        }
        "encoder".into()
    }

    fn train(&self, run: &Run, ranks: usize, folder: &str, model: &str, changes: &[&str]) {
        let own: Vec<String> = match run.kind {
            Kind::Pretraining { recipe, corpus, .. } => {
                let recipe = format!("{ROOT}/configs/recipes/{recipe}.toml");
                let corpus = corpus.map(|folder| format!("data.corpus={folder}"));
                ["pretrain".into(), "--config".into(), recipe].into_iter().chain(corpus).collect()
            }
            Kind::Tasks { names, .. } => {
                let data = if names.contains(',') { "tasks" } else { "sst2" };
                ["finetune", "--task", names, "--model", model, "--data", data].map(String::from).into()
            }
        };
        let shared = ["--json", "log.every=1", "log.tensorboard=false", &format!("run.dir={folder}")]
            .map(String::from);
        let settings = run.settings.concat().into_iter().chain(changes.iter().copied()).map(String::from);
        let args: Vec<String> = own.into_iter().chain(shared).chain(settings).collect();
        self.run(if ranks == 1 { alone(&args) } else { mpirun(ranks, &args) });
    }

    /// Builds a corpus of the two texts under `name`.
    pub fn build(&self, name: &str, options: &[&str]) {
        let args = ["data", "build", "--train", "train.txt", "--valid", "valid.txt", "--output", name];
        self.segue(&[&args, options].concat());
    }

    /// Runs the binary in the folder; what it prints.
    pub fn segue(&self, args: &[&str]) -> Value {
        self.run(alone(args))
    }

    fn run(&self, mut command: Command) -> Value {
        command.current_dir(self.dir.path()).envs(self.kernels.environment);
        succeed(command)
    }

    /// Rows of a run's metrics.
    fn rows(&self, run: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(run).join("metrics.jsonl")).expect("a run has metrics");
        text.lines().map(|line| serde_json::from_str(line).expect("metrics are JSON")).collect()
    }

    /// BLAKE3 of the tensors of the last checkpoint and of what else `COMPARED` names, and of the answers of a task. What lanes carry
    /// lies in several files; its hash is that of one file with all lanes.
    fn hashes(&self, run: &str) -> BTreeMap<String, String> {
        let latest = self.path(run).join(LATEST);
        assert!(latest.is_dir(), "{run} has no last checkpoint");
        let mut paths: Vec<String> = COMPARED.iter().flat_map(|folder| self.tensors(run, folder)).collect();
        let answers = "predictions/scores.json";
        paths.extend(self.path(run).join(answers).exists().then(|| answers.to_string()));
        let hash = |path: String| {
            let bytes = fs::read(self.path(run).join(&path)).expect("a file that was just listed");
            let hash = blake3::hash(&bytes).to_hex().to_string();
            (path, hash)
        };
        let memory = self.memory_of_all_lanes(&latest).map(|bytes| {
            let hash = blake3::hash(&bytes).to_hex().to_string();
            (format!("{LATEST}/memory.safetensors"), hash)
        });
        paths.into_iter().map(hash).chain(memory).collect()
    }

    /// Files of tensors in a folder of the run, if it is there, but those of what lanes carry.
    fn tensors(&self, run: &str, folder: &str) -> Vec<String> {
        let files = fs::read_dir(self.path(run).join(folder)).into_iter().flatten();
        let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
        let tensors = names.filter(|name| name.ends_with(".safetensors") && first_lane(name).is_none());
        tensors.map(|name| format!("{folder}/{name}")).collect()
    }

    /// One file of what all lanes carry, in their order; nothing where they carry nothing.
    fn memory_of_all_lanes(&self, checkpoint: &Path) -> Option<Vec<u8>> {
        let mut files: BTreeMap<usize, PathBuf> = BTreeMap::new();
        for file in fs::read_dir(checkpoint).expect("a run has a last checkpoint") {
            let path = file.expect("a file").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            files.extend(first_lane(&name).map(|lane| (lane, path)));
        }
        let mut tables: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
        for path in files.values() {
            for (name, table) in read_tensors(path).expect("a file of tensors").tensors {
                tables.entry(name).or_default().push(table);
            }
        }
        if tables.is_empty() {
            return None;
        }
        let joined = tables.into_iter().map(|(name, parts)| (name, Tensor::cat(&parts, 0)));
        let whole = self.path("memory.safetensors");
        write_tensors(&whole, &joined.collect::<Vec<_>>()).expect("a file is written");
        Some(fs::read(whole).expect("a file that was just written"))
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file into the folder.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
}

fn step_folder(old: &OldCheckpoint) -> String {
    format!("step-{:08}", old.step)
}

fn old_folder(old: &OldCheckpoint) -> PathBuf {
    Path::new(ROOT).join("tests/golden/checkpoints").join(old.name)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for file in fs::read_dir(from).unwrap_or_else(|e| panic!("{}: {e}", from.display())) {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}
