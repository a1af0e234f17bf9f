//! Runs that meet what ends runs: numbers that are not finite, a full disk, a signal in an evaluation, other keys.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_configs::Config;
use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_trainer::engine::{
    Better, Carry, Event, Family, FamilyReader, Folder, Labels, Layout, Learner, Loss, LossAs, Measures,
    Outcome, Place, Prepared, Share, Turn, Watch, train,
};
use segue_trainer::families::MODELS;
use segue_trainer::noise::Noise;
use segue_trainer::{Init, ParameterSpec, Parameters, TrainError};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

const STEPS: u64 = 20;
const LANES: usize = 4;

/// One number, y = w · (sum of the lane so far), that is to be 1.
struct Scale(Parameters);

/// The sum of what a lane has read, `[lanes]`.
struct Sum(Tensor);

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
}

/// What a lane reads: a function of its place, which its cursor tells. Nobody else knows which step it is.
struct Places {
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

struct Walk<'a> {
    poisoned: &'a [u64],
    /// What the lead of an evaluation is.
    lead: &'a dyn Fn(f64) -> f64,
}

impl Family for Walk<'_> {
    type Learner = Scale;
    type Raw = (Vec<f32>, Vec<u64>);
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
            work: None,
            loss_as: LossAs::Loss,
            sources: ("source", Vec::new()),
        }
    }

    fn reader(&self, place: Place<u64>) -> Result<FamilyReader<Self>, TrainError> {
        let (lanes, poisoned) = (place.layout.lane_range(), self.poisoned.to_vec());
        Ok(Box::new(Places { lanes, cursors: place.cursors, poisoned }))
    }

    fn prepare(&self, (values, cursors): (Vec<f32>, Vec<u64>), layout: &Layout) -> Prepared<Tensor, u64> {
        let shape = [layout.micro_steps.len() as i64, layout.micro_batch as i64];
        Prepared { batch: Tensor::from_slice(&values).view(shape), restarts: Vec::new(), cursors }
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
        Ok(Some(Measures { lead, better: Better::Lower, tie: None, row, scalars: Vec::new(), lines }))
    }

    fn folder(&self, _: &Scale) -> Folder {
        Folder { config: json!({}), tokenizer: None }
    }
}

fn config(dir: &Path, overrides: &[&str]) -> Config {
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

fn scale() -> Scale {
    let spec = ParameterSpec { name: "w".into(), shape: vec![1], init: Init::Zeros };
    Scale(Parameters::initialise(vec![spec], 1, Kind::Float))
}

fn walk(
    config: &Config,
    poisoned: &[u64],
    comm: &dyn Communicator,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Outcome, TrainError> {
    train(config, Walk { poisoned, lead: &|w| (w - 1.0).abs() }, scale(), comm, stop, on_event)
}

/// Runs to the end on `ranks` ranks, and gives the tensor files of the last checkpoint.
fn end(dir: &Path, overrides: &[&str], poisoned: &[u64], ranks: usize) -> BTreeMap<String, Vec<u8>> {
    let config = config(dir, overrides);
    simulated::run(ranks, |comm| walk(&config, poisoned, comm, &|| false, &mut |_| {}).unwrap());
    let last = dir.join(format!("checkpoints/step-{STEPS:08}"));
    let entries = std::fs::read_dir(last).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()));
    let tensors: BTreeMap<_, _> = files.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    // The model, the weights behind their mean, the optimizer, and a file for each micro-step's lanes.
    assert_eq!(tensors.len(), 3 + LANES);
    tensors
}

fn state(dir: &Path, step: u64) -> Value {
    let file = dir.join(format!("checkpoints/step-{step:08}/trainer_state.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_run_that_stops_leaves_its_last_good_state_and_goes_on_without_the_step() {
    let (without, stopped) = (folder(), folder());
    let expected = end(without.path(), &[r#"recovery.skip_steps=["7"]"#], &[7], 1);
    for ranks in [1, 2] {
        let config = config(stopped.path(), &[]);
        let codes = simulated::run(ranks, |comm| {
            walk(&config, &[7], comm, &|| false, &mut |_| {}).unwrap_err().exit_code()
        });
        assert!(codes.iter().all(|code| *code == 80), "{codes:?}");
        assert!(stopped.path().join("checkpoints/step-00000006").is_dir());
    }
    assert!(end(stopped.path(), &[r#"recovery.skip_steps=["7"]"#], &[7], 2) == expected);
    assert_eq!(state(stopped.path(), STEPS)["left_out"], json!([[7, 7]]));
    // The step made a difference.
    let all = folder();
    assert!(end(all.path(), &[], &[], 1) != expected);
}

#[test]
fn steps_are_left_out_or_taken_back_alike_at_any_number_of_ranks() {
    let policies = [
        ("recovery.non_finite=skip", r#"recovery.skip_steps=["7", "13"]"#, json!([[7, 7], [13, 13]])),
        (
            "recovery.non_finite=roll_back",
            r#"recovery.skip_steps=["6-7", "11-13"]"#,
            json!([[6, 7], [11, 13]]),
        ),
    ];
    for (policy, by_hand, left_out) in policies {
        let by_hand = end(folder().path(), &[by_hand], &[], 1);
        for ranks in [1, 2, 4] {
            let run = folder();
            assert!(end(run.path(), &[policy], &[7, 13], ranks) == by_hand, "{policy}, {ranks} ranks");
            let state = state(run.path(), STEPS);
            assert_eq!((&state["left_out"], &state["recoveries"]), (&left_out, &json!(2)), "{policy}");
        }
        // The one number of this model is one rank's, and the others update nothing.
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            assert!(end(folder().path(), &[policy, shard], &[7, 13], 4) == by_hand, "{policy}, {shard}");
        }
    }
}

#[test]
fn a_run_stopped_after_a_way_back_ends_as_one_that_was_not() {
    let undisturbed = end(folder().path(), &["recovery.non_finite=roll_back"], &[7], 1);
    // Before the first checkpoint that is due, on the way back, and thrice, with as few checkpoints as there may be.
    let stops = (1..STEPS).map(|at| vec![at]).chain((1..STEPS - 2).map(|at| vec![at, at + 1, at + 2]));
    for stops in stops {
        let run = folder();
        let keys = ["recovery.non_finite=roll_back", "checkpoint.keep=2"];
        for at in &stops {
            let part = config(run.path(), &[&keys[..], &[&format!("train.stop_at={at}")]].concat());
            walk(&part, &[7], &Local, &|| false, &mut |_| {}).unwrap();
        }
        assert!(end(run.path(), &keys, &[7], 2) == undisturbed, "{stops:?}");
    }
    // Where nothing is due before the step, it alone is left out, however often the run was stopped.
    let keys = ["recovery.non_finite=roll_back", "checkpoint.every=10"];
    let alone = end(folder().path(), &keys, &[7], 1);
    let run = folder();
    let part = config(run.path(), &[&keys[..], &["train.stop_at=5"]].concat());
    walk(&part, &[7], &Local, &|| false, &mut |_| {}).unwrap();
    assert!(end(run.path(), &keys, &[7], 1) == alone);
}

#[test]
fn a_first_step_that_fails_leaves_nothing_to_go_on_from() {
    let run = folder();
    let error = walk(&config(run.path(), &[]), &[1], &Local, &|| false, &mut |_| {}).unwrap_err();
    assert_eq!(error.exit_code(), 80);
    // With other keys it begins anew.
    walk(&config(run.path(), &["optim.lr=0.05"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
}

#[test]
fn a_run_whose_keys_were_changed_goes_back_all_the_same() {
    let run = folder();
    walk(&config(run.path(), &["train.stop_at=11"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    let allowed = ["optim.lr=0.05", r#"recovery.allow_change=["optim.lr"]"#, "train.stop_at=12"];
    walk(&config(run.path(), &allowed), &[], &Local, &|| false, &mut |_| {}).unwrap();
    let back = ["optim.lr=0.05", "recovery.non_finite=roll_back"];
    walk(&config(run.path(), &back), &[14], &Local, &|| false, &mut |_| {}).unwrap();
    let state = state(run.path(), STEPS);
    assert_eq!(state["left_out"], json!([[11, 14]]));
    assert_eq!(state["changed"], json!(["after step 11: optim.lr: 0.1 then, 0.05 now"]));
    assert!(run.path().join("checkpoints/abandoned-step-00000012").is_dir());
}

#[test]
fn a_run_recovers_so_often_and_no_more() {
    let run = folder();
    let config = config(run.path(), &["recovery.non_finite=skip", "recovery.at_most=2"]);
    let mut skipped = Vec::new();
    let error = walk(&config, &[4, 8, 9, 10], &Local, &|| false, &mut |event| {
        if let Event::Skipped { step } = event {
            skipped.push(step);
        }
    });
    assert_eq!((error.unwrap_err().exit_code(), skipped), (80, vec![4, 8]));
    // What it has done is not forgotten where the run is started again.
    assert_eq!(state(run.path(), 8)["recoveries"], 2);
}

#[test]
fn a_signal_in_an_evaluation_is_answered_in_it_and_nothing_is_lost() {
    let keys = ["eval.every=4"];
    let undisturbed = end(folder().path(), &keys, &[], 1);
    for (ranks, stopped_in) in [(1, 8), (2, 8), (4, STEPS)] {
        let run = folder();
        let config = config(run.path(), &keys);
        let outcomes = simulated::run(ranks, |comm| {
            let (step, units) = (Cell::new(0), Cell::new(0));
            // Rank 0 alone gets the signal, in the middle of its share.
            let stop = || comm.rank() == 0 && step.get() == stopped_in && units.get() >= 6;
            let mut on_event = |event: Event| match event {
                Event::Step { report, .. } => {
                    step.set(report.step);
                    units.set(0);
                }
                Event::Evaluating { done, .. } => units.set(done),
                _ => {}
            };
            let outcome = walk(&config, &[], comm, &stop, &mut on_event).unwrap();
            (outcome.preempted, outcome.step, units.get())
        });
        assert!(
            outcomes.iter().all(|(preempted, step, units)| *preempted && *step == stopped_in && *units <= 8)
        );
        assert!(state(run.path(), stopped_in)["evaluated"] != stopped_in);
        // The evaluation is made up for.
        let evaluated = RefCell::new(Vec::new());
        walk(&config, &[], &Local, &|| false, &mut |event| {
            if let Event::Evaluated { step, .. } = event {
                evaluated.borrow_mut().push(step);
            }
        })
        .unwrap();
        let expected: Vec<u64> = (stopped_in..=STEPS).step_by(4).collect();
        assert_eq!(evaluated.into_inner(), expected);
        assert!(end(run.path(), &keys, &[], 1) == undisturbed);
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_ends_no_run() {
    let run = folder();
    let config = config(run.path(), &[]);
    let checkpoints = run.path().join("checkpoints");
    let mut warnings = Vec::new();
    let outcome = walk(&config, &[], &Local, &|| false, &mut |event| match event {
        // A file where the folder should be, until the first checkpoint fails on it.
        Event::Step { report, .. } if report.step == 1 => std::fs::write(&checkpoints, "").unwrap(),
        Event::Warning { what } => {
            std::fs::remove_file(&checkpoints).unwrap();
            warnings.push(what);
        }
        _ => {}
    });
    assert_eq!(outcome.unwrap().step, STEPS);
    assert!(warnings.len() == 1 && warnings[0].contains("training goes on"), "{warnings:?}");
    assert!(checkpoints.join(format!("step-{STEPS:08}")).is_dir());
    // Of the last one there is no other try: the run fails, and loses nothing but that.
    let run = folder();
    let config = config_of_last(run.path());
    let checkpoints = run.path().join("checkpoints");
    let error = walk(&config, &[], &Local, &|| false, &mut |event| {
        if let Event::Step { report, .. } = event
            && report.step == 1
        {
            std::fs::write(&checkpoints, "").unwrap();
        }
    });
    assert!(matches!(error, Err(TrainError::Write { .. })), "{error:?}");
}

fn config_of_last(dir: &Path) -> Config {
    config(dir, &["checkpoint.every=0"])
}

#[test]
fn keys_may_change_where_the_run_says_so_and_it_is_written_down() {
    let run = folder();
    walk(&config(run.path(), &["train.stop_at=6"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
    let other = config(run.path(), &["optim.lr=0.05"]);
    let refused = walk(&other, &[], &Local, &|| false, &mut |_| {}).unwrap_err();
    assert!(
        refused.exit_code() == 78 && refused.hint().unwrap().contains("recovery.allow_change"),
        "{refused}"
    );
    let mut told = Vec::new();
    let allowed = config(run.path(), &["optim.lr=0.05", r#"recovery.allow_change=["optim.lr"]"#]);
    walk(&allowed, &[], &Local, &|| false, &mut |event| {
        if let Event::Started(started) = event {
            told = started.changed;
        }
    })
    .unwrap();
    assert_eq!(told, ["optim.lr: 0.1 then, 0.05 now"]);
    assert_eq!(state(run.path(), STEPS)["changed"], json!(["after step 6: optim.lr: 0.1 then, 0.05 now"]));
    // From there on it is the configuration of the run.
    walk(&config(run.path(), &["optim.lr=0.05"]), &[], &Local, &|| false, &mut |_| {}).unwrap();
}
