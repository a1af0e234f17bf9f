//! A folder with the data of the runs, made anew each time, and the runs in it.
//!
//! Everything is named relative to that folder: a checkpoint written here tells nothing of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use segue_tests::{ROOT, alone, mpirun, sentences, succeed, text};
use segue_trainer::checkpoint::{first_lane, read_tensors, write_tensors};
use serde_json::Value;
use tch::Tensor;
use tempfile::TempDir;

use crate::kernels::{Kernels, Machine};
use crate::record::Record;
use crate::runs::{Kind, OldCheckpoint, Run};

/// The folder, and the kernels that everything in it runs with.
pub struct Scene<'a> {
    dir: TempDir,
    kernels: &'a Kernels,
}

/// Corpora, by name in the folder.
const CORPORA: [&str; 2] = ["corpus", "pairs"];

impl<'a> Scene<'a> {
    /// Makes texts, corpora and tasks.
    pub fn new(kernels: &'a Kernels) -> Self {
        let scene = Self { dir: tempfile::tempdir().expect("a temporary folder"), kernels };
        scene.write("train.txt", &text(60_000, 1));
        scene.write("valid.txt", &text(6_000, 2));
        scene.build("corpus", &["--preset", "documents", "--tokenizer-kind", "byte"]);
        let pieces = ["--preset", "xlnet", "--tokenizer-kind", "bpe", "--vocab-size", "400"];
        scene.build("pairs", &[&pieces[..], &["--special", "<cls>,<sep>,<mask>,<eod>"]].concat());
        for folder in ["sst2", "tasks/SST-2"] {
            scene.write(&format!("{folder}/train.tsv"), &sentences(160, 1));
            scene.write(&format!("{folder}/dev.tsv"), &sentences(60, 2));
        }
        let judged: String =
            (0..80).map(|i| format!("source\t{}\t\tpast memory reads {i}\n", i % 2)).collect();
        scene.write("tasks/CoLA/train.tsv", &judged);
        scene.write("tasks/CoLA/dev.tsv", &judged);
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
            data: CORPORA.map(|name| (name.to_string(), self.fingerprint(name))).into(),
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
        let run = Run { name: "encoder", kind: Kind::TinyXlnet, settings: sizes, resumes: None };
        if !self.path("encoder").exists() {
            self.train(&run, 1, "encoder", "", &["train.steps=2"]);
        }
        "encoder".into()
    }

    fn train(&self, run: &Run, ranks: usize, folder: &str, model: &str, changes: &[&str]) {
        let recipe = |name: &str| format!("{ROOT}/configs/recipes/{name}.toml");
        let own: Vec<String> = match run.kind {
            Kind::Tiny => {
                vec!["pretrain".into(), "--config".into(), recipe("tiny"), "data.corpus=corpus".into()]
            }
            Kind::TinyXlnet => {
                vec!["pretrain".into(), "--config".into(), recipe("tiny-xlnet"), "data.corpus=pairs".into()]
            }
            Kind::Tasks { names, .. } => {
                let data = if names.contains(',') { "tasks" } else { "sst2" };
                ["finetune", "--task", names, "--model", model, "--data", data].map(String::from).into()
            }
        };
        let shared = ["--json", "log.every=1", "log.tensorboard=false", &format!("run.dir={folder}")]
            .map(String::from);
        let settings = run.settings.iter().chain(changes).map(|s| s.to_string());
        let args: Vec<String> = own.into_iter().chain(shared).chain(settings).collect();
        self.run(if ranks == 1 { alone(&args) } else { mpirun(ranks, &args) });
    }

    fn build(&self, name: &str, options: &[&str]) {
        let args = ["data", "build", "--train", "train.txt", "--valid", "valid.txt", "--output", name];
        self.run(alone(&[&args, options].concat()));
    }

    fn run(&self, mut command: Command) {
        command.current_dir(self.dir.path()).envs(self.kernels.environment);
        succeed(command);
    }

    /// Rows of a run's metrics.
    fn rows(&self, run: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(run).join("metrics.jsonl")).expect("a run has metrics");
        text.lines().map(|line| serde_json::from_str(line).expect("metrics are JSON")).collect()
    }

    fn fingerprint(&self, corpus: &str) -> String {
        let text =
            fs::read_to_string(self.path(corpus).join("corpus.json")).expect("a corpus describes itself");
        let info: Value = serde_json::from_str(&text).expect("a corpus describes itself in JSON");
        info["fingerprint"].as_str().expect("a corpus has a fingerprint").into()
    }

    /// BLAKE3 of the tensors of the last checkpoint, and of the best model and the answers of a task. What lanes carry lies in
    /// several files; its hash is that of one file with all lanes.
    fn hashes(&self, run: &str) -> BTreeMap<String, String> {
        let latest = self.path(run).join("checkpoints/latest");
        let files = fs::read_dir(&latest).expect("a run has a last checkpoint");
        let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
        let tensors = names.filter(|name| name.ends_with(".safetensors") && first_lane(name).is_none());
        let mut paths: Vec<String> = tensors.map(|name| format!("checkpoints/latest/{name}")).collect();
        for path in ["best/model.safetensors", "predictions/scores.json"] {
            paths.extend(self.path(run).join(path).exists().then(|| path.to_string()));
        }
        let hash = |path: String| {
            let bytes = fs::read(self.path(run).join(&path)).expect("a file that was just listed");
            let hash = blake3::hash(&bytes).to_hex().to_string();
            (path, hash)
        };
        let memory = self.memory_of_all_lanes(&latest).map(|bytes| {
            let hash = blake3::hash(&bytes).to_hex().to_string();
            ("checkpoints/latest/memory.safetensors".to_string(), hash)
        });
        paths.into_iter().map(hash).chain(memory).collect()
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
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
