//! What a run is besides its tensors.

use std::collections::BTreeMap;
use std::path::Path;

use segue_configs::Config;
use segue_kernels::TrainError;
use segue_kernels::cards;
use segue_publish::read_regular;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Device;

use super::best::BestSoFar;
use super::identity::{changes, config_hash, effective, resolved, with_defaults, without};
use crate::checkpoint::{CHECKPOINTS, STATE, list, read_error};
use crate::optim::{Counts, LossScale, NoiseScale};

/// Version of `trainer_state.json` this program writes.
const STATE_VERSION: u32 = 1;
/// Keys that say what a run is: where one differs, so does most of the rest.
const WHICH_RUN: [&str; 2] = ["model.model_type", "task.name"];

/// Loss added up over steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LossSum {
    /// Σ −log P, in nats.
    pub nats: f64,
    /// The same as an adversary makes it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adversarial: Option<f64>,
    /// Targets it is a sum of.
    pub targets: f64,
}

impl LossSum {
    /// Adds the losses of a target of a step of so many. What an adversary makes of it is left out where any of the steps has none: before a resume
    /// that turned `adversarial.always` on or off, or in a checkpoint that did not hold it.
    pub fn add(&mut self, loss: f64, adversarial: Option<f64>, targets: f64) {
        let known = self.targets == 0.0 || self.adversarial.is_some();
        let more = adversarial.filter(|_| known).map(|adversarial| adversarial * targets);
        self.adversarial = more.map(|more| self.adversarial.unwrap_or_default() + more);
        self.nats += loss * targets;
        self.targets += targets;
    }
}

/// The state of an average of weights that has not begun, which is what a checkpoint without one means.
fn no_average() -> Value {
    json!({ "count": null, "losses": [] })
}

/// The stage of a run that fine-tunes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FineTuning {
    /// Rounds begun; 0 until the first.
    pub round: u64,
    /// The step that this round began after.
    pub after: u64,
    /// Whether the last stage has ended, and with it the run.
    pub over: bool,
}

impl FineTuning {
    /// The step after which a round's averages begin, where their first `left_out` steps are not in them.
    pub fn averages_after(&self, left_out: u64) -> Option<u64> {
        (self.round > 0).then_some(self.after + left_out)
    }

    fn has_not_begun(&self) -> bool {
        *self == Self::default()
    }
}

/// The best evaluation of a run that goes back to it, where it diverges or to fine-tune.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// Its loss; none before the first.
    pub best: Option<f64>,
    /// Its step, whose checkpoint stays.
    pub step: u64,
    /// What is left of the learning rate.
    pub rate: f64,
    /// The lowest loss of the trained weights, where an average is reported beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained: Option<f64>,
}

/// `trainer_state.json`: what a run is besides its tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainState {
    /// Version of this file's layout.
    pub version: u32,
    /// Updates made.
    pub step: u64,
    /// Times the run has been started, from 1.
    pub attempt: u64,
    /// Targets trained on.
    pub tokens: u64,
    /// Seconds of its steps, where they are limited: a run without a limit writes nothing of a clock.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seconds: f64,
    /// Loss since the last report, so that reports do not tell where a run was interrupted.
    pub unreported: LossSum,
    /// The last step that was evaluated.
    pub evaluated: u64,
    /// Whether that evaluation came to no finite number.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unmeasured: bool,
    /// The averages of weights of the first network.
    #[serde(default = "no_average")]
    pub average: Value,
    /// Those of the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub averages: BTreeMap<String, Value>,
    /// How the evaluations have gone, where the best model is kept.
    #[serde(default)]
    pub task: BestSoFar,
    /// Updates of each network. Not in checkpoints of before there were several: every step was an update then.
    #[serde(default)]
    pub networks: BTreeMap<String, Counts>,
    /// The noise in the gradient of each network, where it is measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub noise: BTreeMap<String, NoiseScale>,
    /// What losses are multiplied by before backward, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// What the learner has made of its statistics.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub learner: Value,
    /// Steps that made no update, as first and last of a range.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<[u64; 2]>,
    /// Times that a loss or a gradient was not finite and the run went on.
    #[serde(default)]
    pub recoveries: u64,
    /// What the run goes back to, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// The stage of a run that fine-tunes.
    #[serde(default, skip_serializing_if = "FineTuning::has_not_begun")]
    pub fine_tuning: FineTuning,
    /// Keys that were changed on the way, as `recovery.allow_change` allows, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Place of every lane of the job.
    pub lanes: Vec<Value>,
    /// Fingerprint of the data.
    pub corpus: String,
    /// BLAKE3 of the parts of the configuration that decide the result.
    pub config_hash: String,
    /// The configuration.
    pub config: Value,
    /// The program that wrote it.
    pub segue: String,
    /// Ranks it ran on; any other number may go on.
    pub world_size: usize,
    /// What it was computed on: `cpu`, or `cuda: NAME` of a card. Each rounds in its own way: with `train.exact` only the same may go on.
    #[serde(default = "on_processors", skip_serializing_if = "is_on_processors")]
    pub device: String,
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What checkpoints are computed on that do not say so.
fn on_processors() -> String {
    "cpu".into()
}

fn is_on_processors(device: &String) -> bool {
    *device == on_processors()
}

impl TrainState {
    /// The state before the first step.
    pub fn start(config: &Config, data: &str, lanes: Vec<Value>, world_size: usize, device: Device) -> Self {
        Self {
            version: STATE_VERSION,
            step: 0,
            attempt: 1,
            tokens: 0,
            seconds: 0.0,
            unreported: LossSum::default(),
            evaluated: 0,
            unmeasured: false,
            average: no_average(),
            averages: BTreeMap::new(),
            task: BestSoFar::default(),
            networks: BTreeMap::new(),
            noise: BTreeMap::new(),
            loss_scale: None,
            learner: Value::Null,
            left_out: Vec::new(),
            recoveries: 0,
            guard: None,
            fine_tuning: FineTuning::default(),
            changed: Vec::new(),
            lanes,
            corpus: data.into(),
            config_hash: config_hash(config),
            config: resolved(config),
            segue: env!("CARGO_PKG_VERSION").into(),
            world_size,
            device: name_of(device),
        }
    }

    /// Takes over where `stored` stopped, as one more attempt; `changed` are the keys that are other ones from here on.
    pub fn go_on_from(&mut self, stored: TrainState, changed: &[String]) {
        self.attempt = stored.attempt + 1;
        self.task = stored.task.clone();
        (self.left_out, self.recoveries) = (stored.left_out.clone(), stored.recoveries);
        self.seconds = stored.seconds;
        let told = changed.iter().map(|line| format!("after step {}: {line}", stored.step));
        self.changed = stored.changed.iter().cloned().chain(told).collect();
        self.go_back_to(stored);
    }

    /// Stands where `stored` did, in the same attempt, knowing what has gone wrong since and which model is kept.
    pub fn go_back_to(&mut self, stored: TrainState) {
        self.step = stored.step;
        self.tokens = stored.tokens;
        self.unreported = stored.unreported;
        (self.evaluated, self.unmeasured) = (stored.evaluated, stored.unmeasured);
        self.task.go_back_to(stored.task);
        self.average = stored.average;
        self.averages = stored.averages;
        self.networks = stored.networks;
        self.noise = stored.noise;
        self.loss_scale = stored.loss_scale;
        self.learner = stored.learner;
        // Of what has been found since, the checkpoints are no part of the run any more.
        (self.guard, self.fine_tuning) = (stored.guard, stored.fine_tuning);
        self.lanes = stored.lanes;
    }

    /// Takes note that the steps from `first` to `last` make no update. Ranges stay rising and apart, in whatever order they are told and however
    /// they overlap.
    pub fn leave_out(&mut self, first: u64, last: u64) {
        self.left_out.push([first, last]);
        self.left_out.sort_unstable();
        self.left_out.dedup_by(|[next, end], [_, before]| {
            let joins = *next <= before.saturating_add(1);
            *before = if joins { *end.max(before) } else { *before };
            joins
        });
    }

    /// Whether step `step` is known to make no update.
    pub fn leaves_out(&self, step: u64) -> bool {
        self.left_out.iter().any(|[first, last]| (*first..=*last).contains(&step))
    }

    /// Whether none of the last `steps` steps made an update.
    pub fn stood_still(&self, steps: u64) -> bool {
        (self.step.saturating_sub(steps) + 1..=self.step).rev().all(|step| self.leaves_out(step))
    }

    /// Updates of a network so far.
    pub fn counts(&self, network: &str) -> Counts {
        self.networks.get(network).cloned().unwrap_or_else(|| Counts::all(self.step))
    }

    /// Reads the state of the checkpoint `path`, and refuses that of another configuration or of other data, given by the key
    /// of the configuration that names it and its fingerprint. Gives a line for each key that is another one and, by `may_change`, may be.
    pub fn read(
        path: &Path,
        config: &Config,
        may_change: &[String],
        (data_key, data): (&str, &str),
        device: Device,
    ) -> Result<(Self, Vec<String>), TrainError> {
        let state = Self::stored(path)?;
        let (mut differing, changed) = state.compare(config, may_change);
        if state.corpus != data && differing.is_empty() {
            state.refuse_changed_data(config, data_key)?;
        }
        if state.corpus != data {
            differing.push_str(&format!("  {data_key}: fingerprint {} then, {data} now\n", state.corpus));
        }
        let now = name_of(device);
        if config.train.exact && !rounds_alike(&state.device, &now) {
            let what =
                format!("  train.device: {} then, {now} now, and train.exact wants the same\n", state.device);
            differing.push_str(&what);
        }
        refuse_other_run(path, differing).map(|()| (state, changed))
    }

    /// Refuses data that lie where the run had others.
    fn refuse_changed_data(&self, config: &Config, data_key: &str) -> Result<(), TrainError> {
        let place = format!("/{}", data_key.replace('.', "/"));
        let now = config.to_json();
        let folder = now.pointer(&place).and_then(Value::as_str).filter(|folder| !folder.is_empty());
        let Some(folder) = folder.filter(|folder| self.config.pointer(&place) == Some(&json!(folder))) else {
            return Ok(());
        };
        let what = match data_key {
            "data.corpus" => format!("{folder} holds another corpus than the run began with"),
            _ => format!("{data_key} = {folder} holds other data than the run began with"),
        };
        Err(TrainError::Layout(format!("{what}\nhint: restore it, or begin in a new run.dir")))
    }

    /// The state of the checkpoint `path` as it is.
    fn stored(path: &Path) -> Result<Self, TrainError> {
        let file = path.join(STATE);
        let text = read_regular(&file).map_err(read_error(&file))?;
        let state: TrainState = serde_json::from_slice(&text)
            .map_err(|e| TrainError::Damaged { path: file.clone(), what: e.to_string() })?;
        if state.version != STATE_VERSION {
            let what =
                format!("it is of version {}, and this program reads version {STATE_VERSION}", state.version);
            return Err(TrainError::Damaged { path: file, what });
        }
        Ok(state)
    }

    /// A line for each key by which `config` is that of another run, and a line for each that is another one and may be: those in
    /// `may_change`, and those of whole sections there.
    fn compare(&self, config: &Config, may_change: &[String]) -> (String, Vec<String>) {
        let (then, settings) = (with_defaults(&self.config, config.models()), effective(config));
        let allowed: Vec<String> =
            may_change.iter().map(|key| format!("/{}", key.replace('.', "/"))).collect();
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        let differing = changes(&without(&then, &allowed), &without(&settings, &allowed));
        let all = changes(&then, &settings);
        let changed = all
            .lines()
            .filter(|line| !differing.lines().any(|other| other == *line))
            .map(|line| line.trim().into());
        let changed = changed.collect();
        (differing, changed)
    }
}

/// Refuses the checkpoint `path` where lines say that it is of another run.
fn refuse_other_run(path: &Path, mut differing: String) -> Result<(), TrainError> {
    let names_run = |line: &&str| WHICH_RUN.iter().any(|key| line.starts_with(&format!("  {key}: ")));
    if let Some(line) = differing.lines().find(names_run) {
        differing = format!("{line}\n");
    }
    match differing.is_empty() {
        true => Ok(()),
        false => Err(TrainError::OtherRun { path: path.into(), differences: differing }),
    }
}

/// Refuses a configuration with which the run in its folder could not go on, by the newest checkpoint there that can be read; takes it where there is none. Data,
/// device and what a checkpoint holds beside its configuration are not looked at. Sizes that are those of the data have to be known.
pub fn check_same_run(config: &Config) -> Result<(), TrainError> {
    let all = list(&Path::new(&config.run.dir).join(CHECKPOINTS))?;
    let newest = all.iter().rev().find_map(|(_, path)| Some((path, TrainState::stored(path).ok()?)));
    newest.map_or(Ok(()), |(path, state)| {
        refuse_other_run(path, state.compare(config, &config.recovery.allow_change).0)
    })
}

/// What cards are called whose names are not known, as in states that do not tell them, and what the others begin with.
const CARD: &str = "cuda";

/// A device as states and ranks call it.
fn name_of(device: Device) -> String {
    match device {
        Device::Cuda(index) => cards::describe(index).map_or(CARD.into(), |card| format!("{CARD}: {card}")),
        _ => on_processors(),
    }
}

/// Whether devices of these names give the same bits, as far as the names tell.
fn rounds_alike(then: &str, now: &str) -> bool {
    let both_cards = kind_of(then) == CARD && kind_of(now) == CARD;
    then == now || (both_cards && [then, now].contains(&CARD))
}

/// The kind of a device of this name.
pub(super) fn kind_of(device: &str) -> &str {
    device.split_once(':').map_or(device, |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use segue_testing::MODELS;

    use super::super::best::Rating;
    use super::*;

    #[test]
    fn exact_runs_go_on_on_the_same_card() {
        let (h100, a100) = ("cuda: NVIDIA H100 80GB HBM3", "cuda: NVIDIA A100-SXM4-80GB");
        for (then, now, alike) in [
            ("cpu", "cpu", true),
            (h100, h100, true),
            (h100, a100, false),
            (h100, "cuda: NVIDIA H100 80GB HBM3, without Segue's kernels", false),
            ("cpu", h100, false),
            ("cuda", "cpu", false),
            // States of before cards had names.
            ("cuda", a100, true),
        ] {
            assert_eq!(rounds_alike(then, now), alike, "{then}, {now}");
        }
        assert_eq!((name_of(Device::Cpu).as_str(), kind_of(a100), kind_of("cpu")), ("cpu", "cuda", "cpu"));
    }

    #[test]
    fn a_state_that_was_made_on_another_device_is_refused_where_every_bit_counts() {
        let load = |o: &str| MODELS.load(None, &[o.to_string()]).unwrap().config;
        let folder = tempfile::tempdir().unwrap();
        for (exact, device, says) in [
            (true, "cuda: NVIDIA A100", Some("train.device: cuda: NVIDIA A100 then, cpu now")),
            (false, "cuda: NVIDIA A100", None),
            (true, "cpu", None),
        ] {
            let config = load(&format!("train.exact={exact}"));
            let mut state = TrainState::start(&config, "text", Vec::new(), 1, Device::Cpu);
            state.device = device.into();
            fs::write(folder.path().join(STATE), serde_json::to_vec(&state).unwrap()).unwrap();
            let read = TrainState::read(folder.path(), &config, &[], ("data.corpus", "text"), Device::Cpu);
            match says {
                None => assert!(read.is_ok(), "{device}"),
                Some(says) => assert!(read.unwrap_err().to_string().contains(says)),
            }
        }
    }

    #[test]
    fn a_run_that_goes_back_is_measured_as_it_was_and_keeps_the_best_model_it_saw() {
        let config = MODELS.load(None, &[]).unwrap().config;
        let mut state = TrainState::start(&config, "text", Vec::new(), 1, Device::Cpu);
        let see = |state: &mut TrainState, step, value| {
            let found = Rating { value, tie: None, step };
            state.task.observe(found, true, 0.0, |a, b| a < b)
        };
        see(&mut state, 5, 3.0);
        see(&mut state, 10, 4.0);
        let stored = TrainState { step: 10, ..state.clone() };
        see(&mut state, 15, 1.0);
        state.go_back_to(stored.clone());
        let kept = Rating { value: 1.0, tie: None, step: 15 };
        assert_eq!(state.task, BestSoFar { aside: Some(kept), ..stored.task.clone() });
        // Again, and started again.
        state.go_back_to(stored.clone());
        assert_eq!(state.task.kept(), Some(kept));
        let mut other = TrainState::start(&config, "text", Vec::new(), 1, Device::Cpu);
        other.go_on_from(state.clone(), &[]);
        assert_eq!(other.task, state.task);
    }

    #[test]
    fn a_sum_with_a_step_that_no_adversary_saw_has_none_of_it() {
        let sum = |steps: &[Option<f64>]| {
            let mut sum = LossSum::default();
            steps.iter().for_each(|adversarial| sum.add(1.0, *adversarial, 2.0));
            (sum.nats, sum.adversarial, sum.targets)
        };
        assert_eq!(sum(&[Some(1.5), Some(2.0)]), (4.0, Some(7.0), 4.0));
        for steps in
            [[None, Some(2.0), Some(2.0)], [Some(2.0), None, Some(2.0)], [Some(2.0), Some(2.0), None]]
        {
            assert_eq!(sum(&steps), (6.0, None, 6.0), "{steps:?}");
        }
    }

    /// A run that goes back again and again tells of the same steps each time.
    #[test]
    fn ranges_that_are_left_out_are_joined_in_whatever_order_they_are_told() {
        let config = MODELS.load(None, &[]).unwrap().config;
        for (told, expected) in [
            (&[[5, 8], [5, 12], [5, 9]][..], &[[5, 12]][..]),
            (&[[5, 8], [3, 6], [13, 14], [9, 10]], &[[3, 10], [13, 14]]),
            (&[[7, 7], [1, 1], [4, 4], [2, 3], [5, 6]], &[[1, 7]]),
            (&[[4, u64::MAX], [9, 9], [1, 2]], &[[1, 2], [4, u64::MAX]]),
        ] {
            let mut state = TrainState::start(&config, "text", Vec::new(), 1, Device::Cpu);
            told.iter().for_each(|[first, last]| state.leave_out(*first, *last));
            assert_eq!(state.left_out, expected, "{told:?}");
        }
    }

    #[test]
    fn a_run_stands_still_over_steps_that_are_left_out() {
        let config = MODELS.load(None, &[]).unwrap().config;
        let mut state = TrainState::start(&config, "text", Vec::new(), 1, Device::Cpu);
        [[4, 4], [4, 6], [7, 9]].iter().for_each(|[first, last]| state.leave_out(*first, *last));
        for (step, steps, stood) in [(9, 6, true), (9, 7, false), (6, 3, true), (10, 1, false), (3, 1, false)]
        {
            assert_eq!(TrainState { step, ..state.clone() }.stood_still(steps), stood, "{step}, {steps}");
        }
    }
}
