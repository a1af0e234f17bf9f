//! What a run is besides its tensors, and which configurations are those of one run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use segue_configs::{Config, Models, ScheduleKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Device;

use super::contents::STATE;
use super::files::read_error;
use crate::TrainError;
use crate::cards;
use crate::optim::{Counts, LossScale, NoiseScale};

/// Version of `trainer_state.json` this program writes.
const STATE_VERSION: u32 = 1;

/// Keys of a configuration that may differ between the parts of one run: they change when it stops and
/// what it shows, not what it computes.
const FREE_KEYS: [&str; 24] = [
    "/run",
    "/data/corpus",
    "/data/corpora",
    "/data/valid",
    "/data/tokenizer",
    "/log",
    "/eval",
    "/checkpoint",
    "/recovery",
    "/average/beside_trained",
    "/published",
    "/task/data",
    "/train/steps",
    "/train/init_from",
    "/train/stop_at",
    "/train/time_limit",
    "/train/bucket_bytes",
    "/train/collectives",
    "/train/recompute",
    "/train/check_replicas_every",
    "/train/check_repeats_every",
    "/train/device",
    "/train/shard",
    "/train/deadline",
];

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
    /// Adds the losses of a target of a step of so many. What an adversary makes of it is left out where it was left out of steps before, as in
    /// checkpoints that did not hold it.
    pub fn add(&mut self, loss: f64, adversarial: Option<f64>, targets: f64) {
        let known = self.targets == 0.0 || self.adversarial.is_some();
        if let Some(adversarial) = adversarial.filter(|_| known) {
            *self.adversarial.get_or_insert_default() += adversarial * targets;
        }
        self.nats += loss * targets;
        self.targets += targets;
    }
}

/// The state of an average of weights that has not begun, which is what a checkpoint without one means.
fn no_average() -> Value {
    json!({ "count": null, "losses": [] })
}

/// An evaluation, as models are chosen by it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rating {
    /// The measure that checkpoints are chosen by.
    pub value: f64,
    /// What decides between it and one as good, where there is such a thing: lower is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tie: Option<f64>,
    /// The step it was made after.
    pub step: u64,
}

impl Rating {
    /// What is not finite is never the best, and of equals the one with the lower `tie` is.
    fn beats(&self, other: Option<Self>, is_better: impl Fn(f64, f64) -> bool) -> bool {
        let Some(other) = other else { return self.value.is_finite() };
        let wins_tie = self.value == other.value
            && matches!((self.tie, other.tie), (Some(own), Some(best)) if own < best);
        self.value.is_finite() && is_better(self.value, other.value) || wins_tie
    }
}

/// How the evaluations of a run that keeps its best model have gone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BestSoFar {
    /// The best value of the measure that checkpoints are chosen by, of the evaluations that count.
    pub best: Option<f64>,
    /// What decides between it and one as good, where there is such a thing: lower is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tie: Option<f64>,
    /// The step it was found after.
    pub best_step: u64,
    /// Evaluations since the last one with a better value.
    pub since_best: u64,
    /// The evaluation of the model that is kept, where it is a better one that does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Rating>,
}

impl BestSoFar {
    /// The evaluation of the model that is kept: the best that was seen, whether it counts or not.
    pub fn kept(&self) -> Option<Rating> {
        self.aside.or(self.counted())
    }

    fn counted(&self) -> Option<Rating> {
        self.best.map(|value| Rating { value, tie: self.tie, step: self.best_step })
    }

    /// Takes note of an evaluation; true where its model is the one to keep. One that wins by its `tie` alone is no reason for more
    /// patience. One that does not count (`counts`) changes nothing of what others are measured by.
    pub fn observe(&mut self, found: Rating, counts: bool, is_better: impl Fn(f64, f64) -> bool) -> bool {
        let keep = found.beats(self.kept(), &is_better);
        if !counts {
            self.aside = if keep { Some(found) } else { self.aside };
            return keep;
        }
        let better = found.value.is_finite() && self.best.is_none_or(|best| is_better(found.value, best));
        self.since_best = if better { 0 } else { self.since_best + 1 };
        if found.beats(self.counted(), &is_better) {
            (self.best, self.tie, self.best_step) = (Some(found.value), found.tie, found.step);
        }
        self.aside = if keep { None } else { self.aside };
        keep
    }

    /// Stands where `stored` did. The model that is kept stays the best that was seen, of steps too that are no part of the run any more.
    fn go_back_to(&mut self, stored: Self) {
        let kept = self.kept();
        *self = stored;
        if kept != self.kept() {
            self.aside = kept;
        }
    }
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
    /// The step after which a round's averages begin: like the published optimizer's, they leave the first iterate out.
    pub fn averages_after(&self) -> Option<u64> {
        (self.round > 0).then_some(self.after + 1)
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
        self.evaluated = stored.evaluated;
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

    /// Takes note that the steps from `first` to `last` make no update.
    pub fn leave_out(&mut self, first: u64, last: u64) {
        let known = |[a, b]: &[u64; 2]| *a <= first && last <= *b;
        if self.left_out.iter().any(known) {
            return;
        }
        match self.left_out.last_mut() {
            Some([_, end]) if *end + 1 == first => *end = last,
            _ => self.left_out.push([first, last]),
        }
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

    /// Reads the state of the checkpoint `path`, and refuses that of another configuration or of other data, which
    /// `data_key` of the configuration names. Gives a line for each key that is another one and may be.
    pub fn read(
        path: &Path,
        config: &Config,
        data: &str,
        data_key: &str,
        device: Device,
    ) -> Result<(Self, Vec<String>), TrainError> {
        let file = path.join(STATE);
        let text = fs::read(&file).map_err(read_error(&file))?;
        let state: TrainState = serde_json::from_slice(&text)
            .map_err(|e| TrainError::Damaged { path: file.clone(), what: e.to_string() })?;
        if state.version != STATE_VERSION {
            let what =
                format!("it is of version {}, and this program reads version {STATE_VERSION}", state.version);
            return Err(TrainError::Damaged { path: file, what });
        }
        let (then, now) = (with_defaults(&state.config, config.models()), resolved(config));
        let allowed: Vec<String> =
            config.recovery.allow_change.iter().map(|key| format!("/{}", key.replace('.', "/"))).collect();
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        let mut differing = changes(&without(&then, &allowed), &without(&now, &allowed));
        let all = changes(&then, &now);
        let changed = all
            .lines()
            .filter(|line| !differing.lines().any(|other| other == *line))
            .map(|line| line.trim().into());
        let changed: Vec<String> = changed.collect();
        if state.corpus != data {
            differing.push_str(&format!("  {data_key}: fingerprint {} then, {data} now\n", state.corpus));
        }
        let now = name_of(device);
        if config.train.exact && !rounds_alike(&state.device, &now) {
            let what =
                format!("  train.device: {} then, {now} now, and train.exact wants the same\n", state.device);
            differing.push_str(&what);
        }
        match differing.is_empty() {
            true => Ok((state, changed)),
            false => Err(TrainError::OtherRun { path: path.into(), differences: differing }),
        }
    }
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
pub(crate) fn kind_of(device: &str) -> &str {
    device.split_once(':').map_or(device, |(kind, _)| kind)
}

/// The configuration with the lengths of schedules that follow `train.steps` spelled out: a run made longer must not
/// silently get other learning rates, nor other noise.
fn resolved(config: &Config) -> Value {
    let mut json = config.to_json();
    let follows =
        |config: &Config| matches!(config.schedule.kind, ScheduleKind::Cosine | ScheduleKind::Linear);
    if follows(config) || config.input_noise_falls() {
        json["schedule"]["steps"] = json!(config.schedule_steps());
    }
    for network in config.networks_of("schedule") {
        let own = config.of_network(network);
        if follows(&own) {
            json["schedule"][network]["steps"] = json!(own.schedule_steps());
        }
    }
    json
}

/// The configuration without its free keys. `[eval]` is none where an average of the weights decides by losses: those of
/// another protocol are no measure of what was found so far.
fn identity(config: &Value) -> Value {
    let average = &config["average"];
    let decides = average["kind"] == "two_tailed" || average["patience"].as_u64().is_some_and(|n| n > 0);
    let free: Vec<&str> = FREE_KEYS.into_iter().filter(|key| !(decides && *key == "/eval")).collect();
    without(config, &free)
}

/// A configuration without some sections and keys, `/section` or `/section/key`.
pub(crate) fn without(config: &Value, keys: &[&str]) -> Value {
    let mut left = config.clone();
    for key in keys {
        if let Some((parent, name)) = key.rsplit_once('/')
            && let Some(Value::Object(fields)) = left.pointer_mut(parent)
        {
            fields.remove(name);
        }
    }
    left
}

fn config_hash(config: &Config) -> String {
    blake3::hash(identity(&resolved(config)).to_string().as_bytes()).to_hex().to_string()
}

/// A stored configuration with the keys that have come since at their defaults, which is what they were then, but for one.
fn with_defaults(stored: &Value, models: &'static Models) -> Value {
    let mut stored = stored.clone();
    let micro_batch = stored["train"]["micro_batch"].clone();
    if let Some(eval) = stored["eval"].as_object_mut() {
        // It decided before there was a key.
        eval.entry("group").or_insert(micro_batch);
    }
    models.from_json(&stored, "the checkpoint").map_or_else(|_| stored.clone(), |config| resolved(&config))
}

/// One line for each key that makes it another run.
fn changes(then: &Value, now: &Value) -> String {
    let mut lines = differences(&identity(then), &identity(now), ["then", "now"]);
    // So does the best evaluation that a run goes back to; one that is given the policy now has none yet.
    let restores = |config: &Value| config["recovery"]["non_finite"] == "restore_best";
    if restores(then) && restores(now) {
        let eval = |config: &Value| serde_json::json!({ "eval": config["eval"] });
        let more = differences(&eval(then), &eval(now), ["then", "now"]);
        lines.extend(
            more.lines()
                .filter(|line| !lines.contains(*line))
                .map(|line| format!("{line}\n"))
                .collect::<Vec<_>>(),
        );
    }
    lines
}

/// One line for each key in which two configurations differ. `whose`: what is said after the value of either.
pub(crate) fn differences(then: &Value, now: &Value, whose: [&str; 2]) -> String {
    let mut lines = String::new();
    let empty = serde_json::Map::new();
    let sections = now.as_object().unwrap_or(&empty);
    for (section, fields) in sections {
        let fields = fields.as_object().unwrap_or(&empty);
        // Sections of single networks are there only where they are set.
        let gone =
            then[section].as_object().unwrap_or(&empty).keys().filter(|key| !fields.contains_key(*key));
        let nothing = gone.map(|key| (key, &Value::Null));
        for (name, value) in fields.iter().chain(nothing) {
            let before = &then[section][name];
            if before != value {
                lines.push_str(&format!("  {section}.{name}: {before} {}, {value} {}\n", whose[0], whose[1]));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::MODELS;

    #[test]
    fn configurations_differ_only_in_keys_that_decide_the_result() {
        let load = |o: &[&str]| {
            MODELS.load(None, &o.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap().config
        };
        let (a, b, c) = (load(&[]), load(&["train.stop_at=7", "run.dir=x"]), load(&["optim.lr=0.5"]));
        assert_eq!(config_hash(&a), config_hash(&b));
        let longer = load(&["train.steps=2000"]);
        assert!(changes(&resolved(&a), &resolved(&longer)).contains("schedule.steps: 1000 then, 2000 now"));
        let constant = |steps: &str| load(&["schedule.kind=constant", steps]);
        assert_eq!(config_hash(&constant("train.steps=5")), config_hash(&constant("train.steps=6")));
        // A network's own schedule has a length too, where it ends.
        let critic = |kind: &'static str, steps: &'static str| {
            load(&["model.model_type=moment-game", "schedule.kind=constant", kind, steps])
        };
        let linear = |steps| resolved(&critic("schedule.critic.kind=linear", steps));
        assert!(changes(&linear("train.steps=5"), &linear("train.steps=6")).contains("schedule.critic"));
        let constant = |steps| config_hash(&critic("schedule.critic.warmup=2", steps));
        assert_eq!(constant("train.steps=5"), constant("train.steps=6"));
        assert_ne!(config_hash(&a), config_hash(&c));
        assert_eq!(changes(&a.to_json(), &b.to_json()), "");
        assert!(changes(&a.to_json(), &c.to_json()).contains("optim.lr: 0.00025 then, 0.5 now"));
    }

    #[test]
    fn of_equal_evaluations_the_one_with_the_lower_tie_is_best() {
        let mut best = BestSoFar::default();
        let seen = [(0.0, 0.7), (0.0, 0.8), (0.0, 0.6), (f64::NAN, 0.1), (-0.5, 0.0), (0.5, 0.9)];
        let is: Vec<bool> = (1..)
            .zip(seen)
            .map(|(step, (value, tie))| {
                best.observe(Rating { value, tie: Some(tie), step }, true, |a, b| a > b)
            })
            .collect();
        assert_eq!(is, [true, false, true, false, false, true]);
        assert_eq!((best.best_step, best.best, best.tie, best.since_best), (6, Some(0.5), Some(0.9), 0));
        assert!(!best.observe(Rating { value: 0.5, tie: None, step: 7 }, true, |a, b| a > b));
    }

    #[test]
    fn an_evaluation_that_does_not_count_keeps_its_model_and_sets_no_bar() {
        let mut best = BestSoFar::default();
        let mut see = |step, value, counts| {
            let keep = best.observe(Rating { value, tie: None, step }, counts, |a, b| a < b);
            (keep, best.best_step, best.since_best, best.kept().map(|kept| kept.step))
        };
        assert_eq!(see(5, 3.0, true), (true, 5, 0, Some(5)));
        assert_eq!(see(7, 4.0, false), (false, 5, 0, Some(5)));
        assert_eq!(see(8, 1.0, false), (true, 5, 0, Some(8)));
        // Better than those that count, and not than the model that is kept.
        assert_eq!(see(10, 2.0, true), (false, 10, 0, Some(8)));
        assert_eq!(see(15, 2.5, true), (false, 10, 1, Some(8)));
        assert_eq!(see(20, 0.5, true), (true, 20, 0, Some(20)));
        assert!(!serde_json::to_string(&best).unwrap().contains("aside"));
    }

    #[test]
    fn an_average_that_decides_by_losses_keeps_to_one_evaluation() {
        let hash = |o: &[&str]| {
            let o: Vec<String> = o.iter().map(|s| s.to_string()).collect();
            config_hash(&MODELS.load(None, &o).unwrap().config)
        };
        for (average, kept) in
            [("average.start=3", false), ("average.patience=3", true), ("average.kind=two_tailed", true)]
        {
            let [before, after] =
                ["eval.segment=32", "eval.segment=16"].map(|e| hash(&["eval.every=10", average, e]));
            assert_eq!(before != after, kept, "{average}");
        }
    }

    #[test]
    fn keys_that_a_checkpoint_does_not_know_yet_had_their_defaults() {
        let load = |o: &[String]| MODELS.load(None, o).unwrap().config;
        let now = resolved(&load(&[]));
        let mut then = now.clone();
        for (section, key) in [("train", "ext_len"), ("model", "variational"), ("data", "order")] {
            then[section].as_object_mut().unwrap().remove(key).unwrap();
        }
        then.as_object_mut().unwrap().remove("average").unwrap();
        assert_eq!(changes(&with_defaults(&then, &MODELS), &now), "");
        let half = resolved(&load(&["train.loss=half".into()]));
        assert!(changes(&with_defaults(&then, &MODELS), &half).contains("train.loss"));
    }

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
            let read = TrainState::read(folder.path(), &config, "text", "data.corpus", Device::Cpu);
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
            state.task.observe(found, true, |a, b| a < b)
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
    fn a_run_stands_still_over_steps_that_are_left_out() {
        let config = MODELS.load(None, &[]).unwrap().config;
        let mut state = TrainState::start(&config, "text", Vec::new(), 1, Device::Cpu);
        [[4, 4], [4, 6], [7, 9]].iter().for_each(|[first, last]| state.leave_out(*first, *last));
        for (step, steps, stood) in [(9, 6, true), (9, 7, false), (6, 3, true), (10, 1, false), (3, 1, false)]
        {
            assert_eq!(TrainState { step, ..state.clone() }.stood_still(steps), stood, "{step}, {steps}");
        }
    }

    #[test]
    fn model_type_is_part_of_the_identity() {
        let json = MODELS.load(None, &[]).unwrap().config.to_json();
        assert!(identity(&json)["model"]["model_type"].is_string());
    }
}
