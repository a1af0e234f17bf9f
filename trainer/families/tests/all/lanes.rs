//! What lanes carry in checkpoints: each rank writes and reads its own, and all of them succeed or fail together.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_collectives::local::Local;
use segue_collectives::{Communicator, Watched, simulated};
use segue_configs::Config;
use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_engine::checkpoint::{carry_file, read_tensors};
use segue_engine::{
    Event, Family, FamilyReader, Labels, Learner, Loss, LossAs, Measures, Place, Prepared, Turn, Watch, train,
};
use segue_families::MODELS;
use segue_kernels::noise::Noise;
use segue_kernels::{Carry, Init, ParameterSpec, Parameters, TrainError};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

const LANES: usize = 4096;
const MICRO_BATCH: usize = 512;
/// Values that a lane carries.
const WIDTH: i64 = 512;
const STEPS: u64 = 4;

/// One weight, and lanes that carry much.
struct Wide(Parameters);

/// `[lanes, WIDTH]`.
struct Row(Tensor);

impl Carry for Row {
    fn tables(&self) -> Vec<(String, Tensor)> {
        vec![("row".into(), self.0.shallow_clone())]
    }

    fn of_tables(&self, mut tables: Vec<Tensor>) -> Self {
        Row(tables.remove(0))
    }

    fn forget(&mut self, _: &[bool], fresh: Self) {
        *self = fresh;
    }
}

impl Learner for Wide {
    /// For each of the rank's lanes its number.
    type Batch = Tensor;
    type Carry = Row;

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.0)]
    }

    fn start(&self, lanes: i64) -> Row {
        Row(Tensor::zeros([lanes, WIDTH], (Kind::Float, tch::Device::Cpu)))
    }

    fn loss(&self, _: &Turn, batch: &Tensor, micro_step: usize, carry: &Row, _: &Noise) -> Loss<Row> {
        let each = MICRO_BATCH as i64;
        let lanes = batch.narrow(0, micro_step as i64 * each, each).view([each, 1]);
        let row = &carry.0 + lanes;
        let loss = (&self.0.tensors()[0] * row.mean(Kind::Float) - 1.0).square().sum(Kind::Float);
        Loss::of(loss, each as f64, None, Row(row))
    }
}

struct Nothing;

impl Reader for Nothing {
    type Batch = ();

    fn read(&mut self, _: u64) -> Result<(), DataError> {
        Ok(())
    }
}

struct Carrying;

impl Family for Carrying {
    type Learner = Wide;
    type Cursor = ();

    fn labels(&self) -> Labels {
        let sources = ("source", Vec::new());
        Labels {
            doing: "carry",
            step_of: "lanes",
            per_step: LANES as u64,
            rate_of: "lanes",
            loss_as: LossAs::Loss,
            group: None,
            sources,
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let lanes: Vec<f32> = place.layout.lane_range().map(|lane| lane as f32).collect();
        Ok(Box::new(Nothing.map(move |()| Prepared::of(Tensor::from_slice(&lanes)))))
    }

    fn evaluate(
        &mut self,
        _: &mut Wide,
        _: &dyn Communicator,
        _: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        Ok(None)
    }

    fn model_config(&self, _: &Wide) -> Value {
        json!({})
    }
}

fn config(dir: &Path, overrides: &[&str]) -> Config {
    let base = ["model.vocab_size=2", "schedule.kind=constant", "checkpoint.every=1", "checkpoint.keep=100"];
    let own = [
        format!("run.dir={}", dir.display()),
        format!("train.steps={STEPS}"),
        format!("train.lanes={LANES}"),
        format!("train.micro_batch={MICRO_BATCH}"),
    ];
    let all: Vec<String> = base.iter().chain(overrides).map(|s| s.to_string()).chain(own).collect();
    MODELS.load(None, &all).unwrap().config
}

/// What is heard of a run on one rank: the checkpoint it goes on from, those that were refused, and warnings.
#[derive(Default, Debug)]
struct Heard {
    resumed: Option<String>,
    refused: Vec<String>,
    warnings: Vec<String>,
}

fn run(config: &Config, comm: &dyn Communicator) -> Result<Heard, TrainError> {
    let spec = ParameterSpec { name: "w".into(), shape: vec![1], init: Init::Zeros };
    let wide = Wide(Parameters::initialise(vec![spec], 1, Kind::Float));
    let mut heard = Heard::default();
    train(config, Carrying, wide, comm, &|| false, &mut |event| match event {
        Event::Started(started) => {
            let name = |path: std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_string();
            (heard.resumed, heard.refused) = (started.resumed.map(name), started.refused);
        }
        Event::Warning { what } => heard.warnings.push(what),
        _ => {}
    })?;
    Ok(heard)
}

/// The files of the checkpoint of step `step` but those that name the run's folder and its ranks.
fn files(dir: &Path, step: u64) -> BTreeMap<String, Vec<u8>> {
    let folder = dir.join(format!("checkpoints/step-{step:08}"));
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap()));
    read.filter(|(name, _)| !["MANIFEST.json", "trainer_state.json"].contains(&name.as_str())).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// What would have to go over rank 0 goes nowhere: all that a rank ever hears, at four checkpoints of 8 MiB and when it goes
/// on from one, is less than the lanes of a single micro-step.
#[test]
fn no_rank_receives_what_lanes_of_another_carry() {
    let dir = folder();
    for stop in ["train.stop_at=2", "train.stop_at=0"] {
        let config = config(dir.path(), &[stop]);
        let received = simulated::run(4, |comm| {
            let count = Arc::new(AtomicU64::new(0));
            let counter = count.clone();
            let comm =
                Watched::over(comm, move |_, bytes| _ = counter.fetch_add(bytes as u64, Ordering::SeqCst))
                    .unwrap();
            run(&config, &comm).unwrap();
            count.load(Ordering::SeqCst)
        });
        let of_a_micro_step = (MICRO_BATCH as i64 * WIDTH * 4) as u64;
        assert!(received.iter().all(|bytes| *bytes < of_a_micro_step / 8), "{received:?}");
    }
    // All lanes are there, whoever wrote them.
    for first in (0..LANES).step_by(MICRO_BATCH) {
        let file = dir.path().join(format!("checkpoints/step-{STEPS:08}")).join(carry_file(first));
        let row = &read_tensors(&file).unwrap().tensors["row"];
        let lanes: Vec<f32> = (first..first + MICRO_BATCH).map(|lane| (lane as u64 * STEPS) as f32).collect();
        let expected = Tensor::from_slice(&lanes).view([-1, 1]).expand([-1, WIDTH], false);
        assert!(row == &expected, "lanes from {first} on");
    }
}

#[test]
fn checkpoints_have_the_same_bytes_at_any_number_of_ranks() {
    let alone = folder();
    run(&config(alone.path(), &[]), &Local).unwrap();
    let expected = files(alone.path(), STEPS);
    assert_eq!(expected.keys().filter(|name| name.starts_with("carry-")).count(), LANES / MICRO_BATCH);
    for ranks in [1, 2, 4, 8] {
        let dir = folder();
        // And where another number of ranks has begun.
        let half = config(dir.path(), &["train.stop_at=2"]);
        simulated::run(8 / ranks, |comm| run(&half, comm).unwrap());
        let config = config(dir.path(), &[]);
        simulated::run(ranks, |comm| run(&config, comm).unwrap());
        assert!(files(dir.path(), STEPS) == expected, "{ranks} ranks");
    }
}

#[test]
fn a_file_of_all_lanes_is_read_as_earlier_versions_wrote_it() {
    let (dir, undisturbed) = (folder(), folder());
    run(&config(undisturbed.path(), &[]), &Local).unwrap();
    run(&config(dir.path(), &["train.stop_at=2"]), &Local).unwrap();
    let checkpoint = dir.path().join("checkpoints/step-00000002");
    let files_of_lanes = (0..LANES).step_by(MICRO_BATCH).map(|first| checkpoint.join(carry_file(first)));
    let rows = files_of_lanes.map(|file| {
        let row = read_tensors(&file).unwrap().tensors.remove("row").unwrap();
        fs::remove_file(file).unwrap();
        row
    });
    let all = Tensor::cat(&rows.collect::<Vec<_>>(), 0);
    segue_engine::checkpoint::write_tensors(&checkpoint.join("memory.safetensors"), &[("row".into(), all)])
        .unwrap();
    // As a model folder of elsewhere, without hashes: the manifest of before listed other files.
    let records = files_with_hashes(&checkpoint);
    fs::write(checkpoint.join("MANIFEST.json"), records).unwrap();
    fs::remove_dir_all(dir.path().join("checkpoints/step-00000001")).unwrap();
    let config = config(dir.path(), &[]);
    for heard in simulated::run(4, |comm| run(&config, comm).unwrap()) {
        assert_eq!((heard.resumed.as_deref(), heard.refused.len()), (Some("step-00000002"), 0));
    }
    assert!(files(dir.path(), STEPS) == files(undisturbed.path(), STEPS));
}

/// A manifest made by hand.
fn files_with_hashes(folder: &Path) -> String {
    let mut records = serde_json::Map::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name != "MANIFEST.json" {
            let bytes = fs::read(entry.path()).unwrap();
            let hash = blake3::hash(&bytes).to_hex().to_string();
            records.insert(name, json!({ "bytes": bytes.len(), "blake3": hash }));
        }
    }
    json!({ "version": 1, "files": records }).to_string()
}

#[test]
fn a_checkpoint_that_one_rank_cannot_write_ends_no_run_and_the_next_is_whole() {
    let (dir, undisturbed) = (folder(), folder());
    run(&config(undisturbed.path(), &[]), &Local).unwrap();
    let config = config(dir.path(), &[]);
    let part = dir.path().join("checkpoints/.step-00000002.part");
    let heard = simulated::run(2, |comm| {
        let (rank, part) = (comm.rank(), part.clone());
        // A folder where rank 1 is about to write its first file.
        let comm = Watched::over(comm, move |_, _| {
            if rank == 1 && part.is_dir() {
                _ = fs::create_dir(part.join(carry_file(LANES / 2)));
            }
        })
        .unwrap();
        run(&config, &comm).unwrap()
    });
    for (rank, heard) in heard.iter().enumerate() {
        let [warning] = &heard.warnings[..] else { panic!("rank {rank}: {heard:?}") };
        assert!(
            warning.contains(&carry_file(LANES / 2)) && warning.contains("training goes on"),
            "{warning}"
        );
        assert_eq!(warning.contains("on rank 1"), rank == 0, "{warning}");
    }
    let checkpoints = fs::read_dir(dir.path().join("checkpoints")).unwrap();
    let mut names: Vec<String> =
        checkpoints.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["latest", "step-00000001", "step-00000003", "step-00000004"]);
    assert!(files(dir.path(), STEPS) == files(undisturbed.path(), STEPS));
}

#[test]
fn lanes_that_one_rank_finds_damaged_send_all_ranks_to_the_checkpoint_before() {
    for lane in [0, LANES - MICRO_BATCH] {
        let dir = folder();
        run(&config(dir.path(), &[]), &Local).unwrap();
        let expected = files(dir.path(), STEPS);
        let damaged = dir.path().join(format!("checkpoints/step-{STEPS:08}")).join(carry_file(lane));
        let mut bytes = fs::read(&damaged).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&damaged, bytes).unwrap();
        let config = config(dir.path(), &[]);
        for (rank, heard) in simulated::run(4, |comm| run(&config, comm).unwrap()).iter().enumerate() {
            assert_eq!(heard.resumed.as_deref(), Some("step-00000003"), "rank {rank}");
            let told = heard.refused.iter().any(|why| why.contains(&carry_file(lane)));
            assert_eq!(told, rank == 0, "{heard:?}");
        }
        assert!(dir.path().join(format!("checkpoints/damaged-step-{STEPS:08}")).is_dir());
        assert!(files(dir.path(), STEPS) == expected);
    }
}

/// A folder in the place of a file can be named, and not read: nobody knows whether its bytes are wrong.
#[test]
fn lanes_that_one_rank_cannot_read_set_no_checkpoint_aside() {
    let dir = folder();
    run(&config(dir.path(), &[]), &Local).unwrap();
    let checkpoint = dir.path().join(format!("checkpoints/step-{STEPS:08}"));
    let file = checkpoint.join(carry_file(LANES - MICRO_BATCH));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let length = fs::metadata(&file).unwrap().len();
    let manifest = checkpoint.join("MANIFEST.json");
    let mut records: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    records["files"][carry_file(LANES - MICRO_BATCH)]["bytes"] = json!(length);
    fs::write(&manifest, records.to_string()).unwrap();
    let config = config(dir.path(), &[]);
    let errors = simulated::run(4, |comm| run(&config, comm).unwrap_err());
    assert!(errors[0].exit_code() == 74 && errors[0].to_string().contains("rank 3"), "{}", errors[0]);
    assert!(checkpoint.is_dir());
}
