//! The run that these tests disturb: one number that is trained over lanes with a carry.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use segue_collectives::{Communicator, simulated};
use segue_configs::Config;
use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_engine::checkpoint::{MANIFEST, replace};
use segue_engine::{
    Better, Event, Family, FamilyReader, KeepBest, Labels, Learner, Loss, LossAs, Measures, Outcome, Place,
    Prepared, Share, Turn, Watch, train,
};
use segue_families::MODELS;
use segue_kernels::noise::Noise;
use segue_kernels::{Carry, Init, ParameterSpec, Parameters, TrainError};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

/// Steps of a run.
pub const STEPS: u64 = 20;
/// Its lanes.
pub const LANES: usize = 4;

/// One number, y = w · (sum of the lane so far), that is to be 1; the steps whose update makes a NaN of it; and a running mean of it, which is a table.
pub struct Scale(pub Parameters, pub Vec<u64>, pub Tensor);

/// The sum of what a lane has read, `[lanes]`.
pub struct Sum(Tensor);

impl Carry for Sum {
    fn tables(&self) -> Vec<(String, Tensor)> {
        vec![("sum".into(), self.0.shallow_clone())]
    }

    fn of_tables(&self, mut tables: Vec<Tensor>) -> Self {
        Sum(tables.remove(0))
    }

    fn forget(&mut self, _: &[bool], fresh: Self) {
        *self = fresh;
    }
}

impl Learner for Scale {
    /// `[micro_steps, micro_batch]`.
    type Batch = Tensor;
    type Carry = Sum;

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.0)]
    }

    fn start(&self, lanes: i64) -> Sum {
        Sum(Tensor::zeros([lanes], (Kind::Float, tch::Device::Cpu)))
    }

    fn loss(&self, _: &Turn, batch: &Tensor, micro_step: usize, carry: &Sum, _: &Noise) -> Loss<Sum> {
        let sum = &carry.0 + batch.get(micro_step as i64);
        let loss = (&sum * &self.0.tensors()[0] - 1.0).square().sum(Kind::Float);
        Loss::of(loss, batch.size()[1] as f64, None, Sum(sum))
    }

    fn tables(&self) -> Vec<(String, Tensor)> {
        vec![("mean".into(), self.2.shallow_clone())]
    }

    fn updated(&mut self, turn: &Turn, _: &[f64], _: f64) {
        let mean = &self.2 * 0.9 + self.0.tensors()[0].detach() * 0.1;
        self.2.copy_(&mean);
        if self.1.contains(&turn.nth) {
            let _ = tch::no_grad(|| self.0.tensors()[0].detach().fill_(f64::NAN));
        }
    }
}

/// What a lane reads: a function of its place, which its cursor tells. Nobody else knows which step it is.
pub struct Places {
    lanes: Range<usize>,
    cursors: Vec<u64>,
    poisoned: Vec<u64>,
}

impl Reader for Places {
    type Batch = (Vec<f32>, Vec<u64>);

    fn read(&mut self, _: u64) -> Result<Self::Batch, DataError> {
        let value = |(lane, cursor): (usize, &u64)| match self.poisoned.contains(&(cursor + 1)) && lane == 2 {
            true => f32::NAN,
            false => 0.01 * ((cursor * 7 + lane as u64 * 3) % 11) as f32,
        };
        let values = self.lanes.clone().zip(&self.cursors).map(value).collect();
        self.cursors.iter_mut().for_each(|cursor| *cursor += 1);
        Ok((values, self.cursors.clone()))
    }
}

pub struct Walk<'a> {
    pub poisoned: &'a [u64],
    /// What the lead of an evaluation is.
    pub lead: &'a dyn Fn(f64) -> f64,
    pub keeps_best: Option<KeepBest>,
}

impl Family for Walk<'_> {
    type Learner = Scale;
    type Cursor = u64;

    fn cursors(&self) -> Vec<u64> {
        vec![0; LANES]
    }

    fn labels(&self) -> Labels {
        Labels {
            doing: "walk",
            step_of: "numbers",
            per_step: LANES as u64,
            rate_of: "numbers",
            loss_as: LossAs::Loss,
            group: None,
            sources: ("source", Vec::new()),
        }
    }

    fn reader(&self, place: Place<u64>) -> Result<FamilyReader<Self>, TrainError> {
        let (layout, poisoned) = (&place.layout, self.poisoned.to_vec());
        let shape = [layout.micro_steps.len() as i64, layout.micro_batch as i64];
        let reader = Places { lanes: layout.lane_range(), cursors: place.cursors, poisoned };
        let prepared = move |(values, cursors): (Vec<f32>, Vec<u64>)| Prepared {
            cursors,
            ..Prepared::of(Tensor::from_slice(&values).view(shape))
        };
        Ok(Box::new(reader.map(prepared)))
    }

    fn evaluate(
        &mut self,
        scale: &mut Scale,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let share = Share::new(comm, 6);
        let parts = share.each(8, watch, |_, done| (0..8).try_for_each(|_| done()).map(|()| [1.0]))?;
        assert_eq!(share.sum(&parts)?, [6.0]);
        let lead = (self.lead)(scale.0.tensors()[0].double_value(&[0]));
        let (row, lines) = (json!({ "lead": lead }), Vec::new());
        Ok(Some(Measures {
            lead,
            better: Better::Lower,
            decide: None,
            tie: None,
            row,
            scalars: Vec::new(),
            lines,
        }))
    }

    fn keeps_best(&self) -> Option<KeepBest> {
        self.keeps_best
    }

    fn model_config(&self, _: &Scale) -> Value {
        json!({})
    }
}

pub fn config(dir: &Path, overrides: &[&str]) -> Config {
    let base = [
        "model.vocab_size=2",
        "train.lanes=4",
        "train.micro_batch=1",
        "optim.lr=0.1",
        "schedule.kind=constant",
        "checkpoint.every=5",
        "checkpoint.keep=100",
        "average.start=3",
        "log.every=1",
    ];
    let own = [format!("run.dir={}", dir.display()), format!("train.steps={STEPS}")];
    let all: Vec<String> = base.iter().chain(overrides).map(|s| s.to_string()).chain(own).collect();
    MODELS.load(None, &all).unwrap().config
}

pub fn scale() -> Scale {
    let spec = ParameterSpec { name: "w".into(), shape: vec![1], init: Init::Zeros };
    let mean = Tensor::zeros([1], (Kind::Float, tch::Device::Cpu));
    Scale(Parameters::initialise(vec![spec], 1, Kind::Float), Vec::new(), mean)
}

pub fn walk(
    config: &Config,
    poisoned: &[u64],
    comm: &dyn Communicator,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Outcome, TrainError> {
    let family = Walk { poisoned, lead: &|w| (w - 1.0).abs(), keeps_best: None };
    train(config, family, scale(), comm, stop, on_event)
}

/// Runs to the end on `ranks` ranks, and gives the tensor files of the last checkpoint.
pub fn end(dir: &Path, overrides: &[&str], poisoned: &[u64], ranks: usize) -> BTreeMap<String, Vec<u8>> {
    let config = config(dir, overrides);
    simulated::run(ranks, |comm| walk(&config, poisoned, comm, &|| false, &mut |_| {}).unwrap());
    tensors(dir, STEPS)
}

/// The tensor files of the checkpoint of step `step`, which has averages.
pub fn tensors(dir: &Path, step: u64) -> BTreeMap<String, Vec<u8>> {
    let last = dir.join(format!("checkpoints/step-{step:08}"));
    let entries = std::fs::read_dir(last).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()));
    let tensors: BTreeMap<_, _> = files.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    // The model, the weights behind their mean, the optimizer, the table, and a file for each micro-step's lanes.
    assert_eq!(tensors.len(), 4 + LANES);
    tensors
}

pub fn state(dir: &Path, step: u64) -> Value {
    let file = dir.join(format!("checkpoints/step-{step:08}/trainer_state.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Changes files of the checkpoint of step `step`, whose manifest fits what they are then.
pub fn rewrite(dir: &Path, step: u64, change: impl FnOnce(&Path)) {
    let checkpoint = dir.join(format!("checkpoints/step-{step:08}"));
    let entries = std::fs::read_dir(&checkpoint).unwrap().map(|entry| entry.unwrap());
    let files: Vec<_> =
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect();
    replace(&checkpoint, |folder| {
        let files = files.iter().filter(|(name, _)| name != MANIFEST);
        files.for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes).unwrap());
        change(folder);
        Ok(())
    })
    .unwrap();
}

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
