//! Two networks in one run: turns, gradients, bytes, and an optimum that is known.

mod counting;
mod groups;
mod preparation;
mod rules;
mod tables;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_configs::Config;
use segue_dataloader::Reader;
use segue_engine::checkpoint::read_tensors;
use segue_engine::optim::averaging::AveragingEvent;
use segue_engine::{Better, Engine, Event, Learner, Loss, Measures, Outcome, Turn};
use segue_families::MODELS;
use segue_kernels::noise::Noise;
use segue_kernels::{Parameters, libtorch};
use segue_moment_game::{MomentGameConfig, Players, VectorReader};
use segue_random::{Purpose, derive};
use serde_json::Value;
use tch::Tensor;

const GENERATOR: usize = 0;
const CRITIC: usize = 1;

/// The recipe of the game, made to write into `dir`.
fn config(dir: &Path, overrides: &[&str]) -> Config {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/recipes/moment-game.toml");
    let dir = format!("run.dir={}", dir.display());
    let all: Vec<String> = overrides.iter().map(|s| s.to_string()).chain([dir]).collect();
    MODELS.load(Some(&recipe), &all).unwrap().config
}

/// A short run that evaluates and writes checkpoints: the settings that [`play`] needs to be stopped anywhere.
const SHORT: [&str; 5] =
    ["train.steps=14", "eval.every=4", "checkpoint.every=3", "checkpoint.keep=100", "train.bucket_bytes=64"];

/// Averages that it keeps: one that begins by its step, one that evaluations steer.
const AVERAGES: [&str; 2] = ["average.start=5", "average.kind=two_tailed"];

fn short(dir: &Path, average: &str) -> Config {
    config(dir, &[&SHORT[..], &["average.start=0", average]].concat())
}

fn play(config: &Config, critic_steps: u64, comm: &dyn Communicator, stop: bool) -> Outcome {
    libtorch::set_threads(1);
    let mut config = config.clone();
    config.model.get_mut::<MomentGameConfig>().unwrap().critic_steps = critic_steps;
    let job = (segue_family::of(&config.model).open)(&mut config).unwrap();
    job.train(&config, segue_kernels::Compute::CPU, comm, &|| stop, &mut |_| {}).unwrap()
}

/// All files of a folder and of those in it, by name. Of the state of a run, what tells where it ran is left out, and so are
/// lists of hashes, which know that too.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path).into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else if name == "trainer_state.json" {
            let mut state: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            for place in ["attempt", "world_size"] {
                state.as_object_mut().unwrap().remove(place).unwrap();
            }
            state["config"].as_object_mut().unwrap().remove("run").unwrap();
            state["config"]["train"].as_object_mut().unwrap().remove("shard").unwrap();
            found.insert(name, state.to_string().into_bytes());
        } else if entry.file_type().unwrap().is_file() && name != "MANIFEST.json" {
            found.insert(name, std::fs::read(&path).unwrap());
        }
    }
    found
}

fn assert_same(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>, what: &str) {
    assert!(a.keys().eq(b.keys()), "{what}: {:?} against {:?}", a.keys(), b.keys());
    for (name, bytes) in a {
        assert!(b[name] == *bytes, "{what}: {name} differs");
    }
}

/// The error of an average over N steps of stochastic approximation is, to first order, that of the equations it solves,
/// averaged over the same draws (Polyak and Juditsky 1992). Here these say that data and generated vectors have equal
/// moments: of N draws of either, the mean is off by tr Σ / N and the second moments are off by
/// Σ_ij (Σ_ii Σ_jj + Σ_ij²) / N, in squares.
#[test]
fn the_average_reaches_the_optimum_as_closely_as_its_samples_allow() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &["eval.every=100"]);
    libtorch::set_threads(1);
    let mut distances = Vec::new();
    let mut on_event = |event| {
        if let Event::Evaluated { measures, .. } = event {
            distances.push(measures.lead);
        }
    };
    let job = (segue_family::of(&config.model).open)(&mut config.clone()).unwrap();
    let outcome = job.train(&config, segue_kernels::Compute::CPU, &Local, &|| false, &mut on_event).unwrap();

    let squares = |rho: f64| 3.0 + 4.0 * rho.powi(2) + 2.0 * rho.powi(4);
    let (trace, rho) = (3.0, 0.5);
    // Two of three steps are the critic's, from step 1500 on.
    let vectors = 64.0 * 1500.0 * 2.0 / 3.0;
    let expected = ((trace + trace * trace + squares(rho)) * (1.0 + 1.0) / vectors).sqrt();
    let reached = *distances.last().unwrap();
    // The expected length of a random vector: three times that is out of reach of chance.
    assert!(reached < 3.0 * expected, "{reached} against {expected}: {distances:?}");
    assert!(distances[0] > 10.0 * expected, "the start is no test: {distances:?}");
    let best = distances.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(outcome.best.unwrap().1, best);
}

/// The first two steps are the critic's: the second finds the generator no better than the first.
#[test]
fn a_game_ends_when_nothing_better_comes() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["train.steps=14", "eval.every=1", "average.start=0", "eval.patience=1"];
    let outcome = play(&config(dir.path(), &keys), 2, &Local, false);
    assert_eq!((outcome.step, outcome.stopped_early.is_some()), (2, true));
}

#[test]
fn checkpoints_have_the_same_bytes_at_1_2_and_4_ranks() {
    for (critic_steps, average) in [(0, AVERAGES[0]), (2, AVERAGES[0]), (2, AVERAGES[1])] {
        let run = |ranks| {
            let folder = tempfile::tempdir().unwrap();
            let config = short(folder.path(), average);
            simulated::run(ranks, |comm| play(&config, critic_steps, comm, false));
            files(folder.path())
        };
        let alone = run(1);
        for file in ["model", "critic", "training_weights", "critic.training_weights", "critic.optimizer"] {
            let name = format!("checkpoints/step-00000014/{file}.safetensors");
            assert!(alone.contains_key(&name), "{name} among {:?}", alone.keys());
        }
        let averages = alone.contains_key("checkpoints/step-00000014/averages.safetensors");
        assert_eq!(averages, average == AVERAGES[1]);
        for ranks in [2, 4] {
            let what = format!("{ranks} ranks, {critic_steps} steps of the critic, {average}");
            assert_same(&alone, &run(ranks), &what);
        }
    }
}

#[test]
fn a_run_stopped_at_every_step_ends_with_the_same_bytes() {
    let variants = [0, 2, 5].map(|critic_steps| (critic_steps, AVERAGES[0]));
    for (critic_steps, average) in variants.into_iter().chain([(0, AVERAGES[1]), (2, AVERAGES[1])]) {
        let [whole, parts] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        simulated::run(1, |comm| play(&short(whole.path(), average), critic_steps, comm, false));
        let config = short(parts.path(), average);
        let mut ranks = [1, 2, 4].into_iter().cycle();
        let mut attempts = 0;
        while simulated::run(ranks.next().unwrap(), |comm| play(&config, critic_steps, comm, true))[0]
            .preempted
        {
            attempts += 1;
        }
        assert_eq!(attempts, 13);
        for folder in ["checkpoints/step-00000014", "best"] {
            let [whole, parts] = [&whole, &parts].map(|run| files(&run.path().join(folder)));
            assert_same(&whole, &parts, &format!("{folder}, {critic_steps} steps of the critic, {average}"));
        }
    }
}

/// Holds that runs of the settings of [`SHORT`] and these end with the same bytes at 1, 2 and 4 ranks, however ranks divide them, and stopped at every
/// step. Gives the files of the run.
fn assert_exact(keys: &[&str], critic_steps: u64) -> BTreeMap<String, Vec<u8>> {
    let load =
        |dir: &Path, more: &[&str]| config(dir, &[&SHORT[..], &["average.start=5"], keys, more].concat());
    let run = |ranks, shard: &str| {
        let folder = tempfile::tempdir().unwrap();
        let config = load(folder.path(), &[shard]);
        simulated::run(ranks, |comm| play(&config, critic_steps, comm, false));
        files(folder.path())
    };
    let alone = run(1, "train.shard=none");
    for (ranks, shard) in [(2, "none"), (4, "none"), (2, "gradients"), (4, "optimizer")] {
        let what = format!("{keys:?}, {ranks} ranks, train.shard = {shard}");
        assert_same(&alone, &run(ranks, &format!("train.shard={shard}")), &what);
    }
    let parts = tempfile::tempdir().unwrap();
    let mut ranks = [1, 2, 4].into_iter().cycle();
    let config = load(parts.path(), &[]);
    while simulated::run(ranks.next().unwrap(), |comm| play(&config, critic_steps, comm, true))[0].preempted {
    }
    for folder in ["checkpoints/step-00000014/", "best/"] {
        let of = |files: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
            files
                .iter()
                .filter(|(name, _)| name.starts_with(folder))
                .map(|(n, b)| (n.clone(), b.clone()))
                .collect()
        };
        assert_same(
            &of(&alone),
            &of(&files(parts.path())),
            &format!("{keys:?}, stopped at every step, {folder}"),
        );
    }
    alone
}

/// Tensors of a file of a run, by name.
fn stored(files: &BTreeMap<String, Vec<u8>>, name: &str) -> BTreeMap<String, Tensor> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tensors");
    std::fs::write(&path, &files[name]).unwrap();
    read_tensors(&path).unwrap().tensors
}

/// Two optimizers, each divided among all ranks, of which some own nothing of the smaller network.
#[test]
fn checkpoints_have_the_same_bytes_whatever_ranks_divide() {
    for (critic_steps, average) in [(0, AVERAGES[0]), (2, AVERAGES[1])] {
        let run = |ranks, shard: &str| {
            let folder = tempfile::tempdir().unwrap();
            let config = config(folder.path(), &[&SHORT[..], &["average.start=0", average, shard]].concat());
            simulated::run(ranks, |comm| play(&config, critic_steps, comm, false));
            files(folder.path())
        };
        let alone = run(1, "train.shard=none");
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            for ranks in [1, 2, 4] {
                let what = format!("{ranks} ranks, {critic_steps} steps of the critic, {average}, {shard}");
                assert_same(&alone, &run(ranks, shard), &what);
            }
        }
    }
}

#[test]
fn a_run_divided_otherwise_at_every_start_ends_with_the_same_bytes() {
    let [whole, parts] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    simulated::run(1, |comm| play(&short(whole.path(), AVERAGES[1]), 2, comm, false));
    let mut ways = ["gradients", "none", "optimizer", "gradients", "optimizer"].into_iter().cycle();
    let mut ranks = [4, 2, 1, 2, 4, 4, 1].into_iter().cycle();
    loop {
        let shard = format!("train.shard={}", ways.next().unwrap());
        let more = ["average.start=0", AVERAGES[1], &shard];
        let config = config(parts.path(), &[&SHORT[..], &more].concat());
        if !simulated::run(ranks.next().unwrap(), |comm| play(&config, 2, comm, true))[0].preempted {
            break;
        }
    }
    for folder in ["checkpoints/step-00000014", "best"] {
        let [whole, parts] = [&whole, &parts].map(|run| files(&run.path().join(folder)));
        assert_same(&whole, &parts, folder);
    }
}

/// An engine over the game, with one micro-step of four vectors.
fn engine(config: &Config, critic_steps: u64) -> Engine<'_, Players> {
    libtorch::set_threads(1);
    let game = MomentGameConfig { critic_steps, ..Default::default() };
    Engine::new(config, Players::new(&config.train, &game), &Local).unwrap()
}

const ONE_MICRO_STEP: [&str; 2] = ["train.lanes=4", "train.micro_batch=4"];

fn batch(nth: u64) -> Tensor {
    let config = MomentGameConfig::default();
    let mut reader = VectorReader { config, seed: 3, source: 0, lanes: 0..4 };
    Tensor::from_slice(&reader.read(nth).unwrap()).view([1, 4, 3])
}

fn weights(players: &Players, network: usize) -> Vec<Vec<f32>> {
    let (_, parameters) = players.networks()[network];
    parameters.tensors().iter().map(|t| Vec::try_from(t.detach().reshape([-1])).unwrap()).collect()
}

#[test]
fn a_turn_leaves_the_other_network_and_its_optimizer_as_they_are() {
    // Weight decay moves what is updated, gradient or not.
    let config = config(Path::new("unused"), &[&ONE_MICRO_STEP[..], &["optim.weight_decay=0.1"]].concat());
    let mut engine = engine(&config, 1);
    for step in 1..=6 {
        let (own, other) = if step % 2 == 1 { (CRITIC, GENERATOR) } else { (GENERATOR, CRITIC) };
        let before = [0, 1].map(|n| weights(&engine.learner, n));
        engine.step(step, &batch(step)).unwrap();
        let after = [0, 1].map(|n| weights(&engine.learner, n));
        assert!(before[own] != after[own], "step {step}");
        assert!(before[other] == after[other], "step {step}");
        let (_, parameters) = engine.learner.networks()[other];
        assert!(parameters.tensors().iter().all(|leaf| !leaf.grad().defined()), "step {step}");
        let updates = [GENERATOR, CRITIC].map(|n| engine.networks[n].optimizer.counts().updates());
        assert_eq!(updates, [step / 2, step.div_ceil(2)]);
    }
}

/// The first update of Adam moves each weight that has a gradient by the learning rate, whatever the gradient is.
#[test]
fn each_network_learns_at_the_rate_of_its_own_section() {
    let config = config(Path::new("unused"), &ONE_MICRO_STEP);
    let mut engine = engine(&config, 1);
    for (step, network, rate) in [(1, CRITIC, 0.02), (2, GENERATOR, 0.01)] {
        let before = weights(&engine.learner, network).concat();
        let report = engine.step(step, &batch(step)).unwrap();
        let after = weights(&engine.learner, network).concat();
        assert_eq!(report.lr, rate);
        // Weights are of size 1 and f32, whose rounding is below 1e-7 of that.
        assert!(
            before.iter().zip(&after).all(|(a, b)| ((a - b).abs() - rate as f32).abs() < 1e-6),
            "step {step}"
        );
    }
}

#[test]
fn trained_at_once_each_network_gets_the_gradient_of_its_own_objective() {
    let config = config(Path::new("unused"), &ONE_MICRO_STEP);
    let mut engine = engine(&config, 0);
    for step in 1..=3 {
        engine.step(step, &batch(step)).unwrap();
    }
    let turn = engine.learner.turn(4);
    assert_eq!(turn.networks, [GENERATOR, CRITIC]);
    // The same micro-step, by as many forward and backward passes as there are gradients.
    let gradients = |of: &dyn Fn(Loss<()>) -> Tensor, network: usize| {
        let noise = Noise::new(derive(config.train.seed, Purpose::Dropout, &[4, 0]));
        let objective = of(engine.learner.loss(&turn, &batch(4), 0, &(), &noise));
        Tensor::run_backward(&[objective], engine.learner.networks()[network].1.tensors(), false, false)
    };
    let own = [0, 1].map(|n| gradients(&|loss| loss.objectives[n].shallow_clone(), n));
    let of_sum = [0, 1].map(|n| gradients(&|loss| &loss.objectives[0] + &loss.objectives[1], n));
    engine.step(4, &batch(4)).unwrap();
    for n in [GENERATOR, CRITIC] {
        // The step divides the sum by its weight, the four vectors, in place: a power of two, which loses nothing.
        let got: Vec<_> = engine.networks[n].buckets().gradients().iter().map(|t| t * 4.0).collect();
        assert_eq!(got, own[n], "network {n}");
        assert_ne!(got, of_sum[n], "network {n}");
    }
}

/// Of the short average alone the generator's part holds what is no number. Those of both networks are one model.
#[test]
fn an_average_that_one_network_has_broken_is_dropped_of_all() {
    let config = config(
        Path::new("unused"),
        &[&ONE_MICRO_STEP[..], &["average.start=0", "average.kind=two_tailed", "eval.every=1"]].concat(),
    );
    let mut engine =
        Engine::new(&config, Players::new(&config.train, &MomentGameConfig::default()), &Local).unwrap();
    let lengths = |engine: &Engine<Players>| {
        let of = |n: usize| engine.networks[n].averaging.state();
        [GENERATOR, CRITIC].map(|n| [&of(n)["short"]["count"], &of(n)["long"]["count"]].map(|c| c.as_u64()))
    };
    for step in 1..=4 {
        engine.step(step, &batch(step)).unwrap();
        if step == 3 {
            let (_, generator) = engine.learner.networks()[GENERATOR];
            let tables = engine.networks[GENERATOR].averaging.named_tables(generator);
            let short = tables.iter().filter(|(name, _)| name.starts_with("short."));
            short.for_each(|(_, table)| _ = tch::no_grad(|| table.shallow_clone().fill_(f64::NAN)));
        }
        // The short average is worse than the long one, which comes after it.
        let mut next = 10.0;
        let work = |players: &mut Players| {
            next -= 1.0;
            let sum = players.networks()[GENERATOR].1.tensors()[0].sum(None).double_value(&[]);
            Ok(Some(measures(if sum.is_finite() { next } else { f64::NAN })))
        };
        let chosen = engine.evaluate(step, true, work).unwrap().unwrap();
        let [generator, critic] = lengths(&engine);
        assert_eq!(generator, critic, "step {step}: {:?}", chosen.choice.events);
        assert_eq!(chosen.choice.events.contains(&AveragingEvent::Dropped), step == 3);
    }
}

/// As checkpoints of an earlier version may hold them.
#[test]
fn averages_of_networks_that_are_of_different_steps_begin_anew() {
    let config = config(
        Path::new("unused"),
        &[&ONE_MICRO_STEP[..], &["average.start=0", "average.kind=two_tailed", "eval.every=1"]].concat(),
    );
    let mut engine =
        Engine::new(&config, Players::new(&config.train, &MomentGameConfig::default()), &Local).unwrap();
    for step in 1..=4 {
        engine.step(step, &batch(step)).unwrap();
        if step == 3 {
            let Engine { networks, learner, .. } = &mut engine;
            let stage = Default::default();
            networks[CRITIC].begin_averages_anew(learner.networks()[CRITIC].1, &stage);
        }
        let mut next = 10.0;
        let work = |_: &mut Players| {
            next -= 1.0;
            Ok(Some(measures(next)))
        };
        engine.evaluate(step, true, work).unwrap().unwrap();
    }
    let states = [GENERATOR, CRITIC].map(|n| engine.networks[n].averaging.state());
    assert_eq!((&states[0], &states[0]["long"]["count"]), (&states[1], &Value::from(1)));
}

fn measures(loss: f64) -> Measures {
    Measures {
        lead: loss,
        better: Better::Lower,
        decide: None,
        tie: None,
        row: Value::Null,
        scalars: Vec::new(),
        lines: Vec::new(),
    }
}

/// Lets gradients into the critic, whose turn it may not be.
struct Cheat(Players);

impl Learner for Cheat {
    type Batch = Tensor;
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        self.0.networks()
    }

    fn turn(&mut self, step: u64) -> Turn {
        self.0.turn(step)
    }

    fn start(&self, _: i64) {}

    fn loss(&self, turn: &Turn, batch: &Tensor, micro_step: usize, carry: &(), noise: &Noise) -> Loss<()> {
        let (_, critic) = self.0.networks()[CRITIC];
        critic.tensors().iter().for_each(|leaf| _ = leaf.set_requires_grad(true));
        self.0.loss(turn, batch, micro_step, carry, noise)
    }
}

/// No panic unwinds through libtorch: the process ends, so that it has to be another one.
#[test]
fn a_gradient_outside_its_networks_turn_ends_the_process() {
    const CHEATS: &str = "SEGUE_TEST_CHEATS";
    if std::env::var_os(CHEATS).is_some() {
        let config = config(Path::new("unused"), &ONE_MICRO_STEP);
        let game = MomentGameConfig { critic_steps: 1, ..Default::default() };
        let mut engine = Engine::new(&config, Cheat(Players::new(&config.train, &game)), &Local).unwrap();
        engine.step(1, &batch(1)).unwrap();
        eprintln!("the critic's turn is over");
        let _ = engine.step(2, &batch(2));
        return;
    }
    let test =
        ["--exact", "moment_game::a_gradient_outside_its_networks_turn_ends_the_process", "--nocapture"];
    let child = Command::new(std::env::current_exe().unwrap()).args(test).env(CHEATS, "1").output().unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success(), "{said}");
    let (before, after) = said.split_once("the critic's turn is over").unwrap();
    assert!(!before.contains("panicked") && after.contains("outside its network's turn"), "{said}");
}

#[test]
fn training_begins_with_the_weights_of_a_run_a_checkpoint_or_a_folder() {
    let first = tempfile::tempdir().unwrap();
    play(&short(first.path(), AVERAGES[0]), 2, &Local, false);
    let stored = |run: &Path, file: &str| std::fs::read(run.join("checkpoints/latest").join(file)).unwrap();
    for from in ["", "checkpoints/latest", "best"] {
        let second = tempfile::tempdir().unwrap();
        let from = format!("train.init_from={}", first.path().join(from).display());
        // A rate next to nothing leaves what it began with.
        let rates =
            ["optim.generator.lr=1e-30", "optim.critic.lr=1e-30", "average.start=0", "train.steps=1", &from];
        play(&config(second.path(), &[&SHORT[..], &rates].concat()), 0, &Local, false);
        let files = ["model.safetensors", "critic.safetensors"];
        let expected = match from.ends_with("best") {
            true => files.map(|file| std::fs::read(first.path().join("best").join(file)).unwrap()),
            false => files.map(|file| stored(first.path(), file)),
        };
        assert!(files.map(|file| stored(second.path(), file)) == expected, "{from}");
    }
    let folder = tempfile::tempdir().unwrap();
    let nothing = config(folder.path(), &["train.init_from=nowhere"]);
    let job = (segue_family::of(&nothing.model).open)(&mut nothing.clone()).unwrap();
    let error = job.train(&nothing, segue_kernels::Compute::CPU, &Local, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("nowhere") && error.exit_code() == 66, "{error}");
}
