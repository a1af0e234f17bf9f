//! The step engine over simulated ranks in one process.

mod averages;
mod divided;
mod growing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use segue_collectives::local::Local;
use segue_collectives::simulated::{self, Faults};
use segue_collectives::{Communicator, Watched};
use segue_configs::Config;
use segue_engine::{Engine, Learner, Loss, StepReport, Turn};
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, Init, ParameterSpec, Parameters, TrainError, libtorch};
use segue_language as objective;
use segue_language::{Batch, Frequencies, Objective, random_batch};
use tch::{Device, Kind, Tensor};

fn load(base: &[&str], overrides: &[&str]) -> Config {
    let all: Vec<String> = base.iter().chain(overrides).map(|s| s.to_string()).collect();
    segue_families::MODELS.load(None, &all).unwrap().config
}

fn config(overrides: &[&str]) -> Config {
    let base = [
        "model.vocab_size=50",
        "model.d_model=16",
        "model.n_head=2",
        "model.d_inner=24",
        "model.n_layer=2",
        "model.mem_len=6",
        "model.dropout=0.2",
        "train.lanes=8",
        "train.micro_batch=1",
        "train.segment=5",
        "train.bucket_bytes=2048",
        "optim.lr=0.01",
        "schedule.kind=constant",
    ];
    load(&base, overrides)
}

fn batch(config: &Config, step: u64, micro_step: usize) -> Batch {
    random_batch(&config.train, &config.model, &config.own, Frequencies::Uniform, micro_step, step)
}

/// A language model in training.
type Running<'a> = Engine<'a, Box<dyn Objective>>;

fn start<'a>(config: &'a Config, comm: &'a dyn Communicator) -> Running<'a> {
    libtorch::set_threads(1);
    Engine::new(config, objective::build(config, Compute::CPU).unwrap(), comm).unwrap()
}

/// What the rank of `engine` trains on in a step.
fn batches(config: &Config, engine: &Running, step: u64) -> Vec<Batch> {
    engine.layout.micro_steps.clone().map(|number| batch(config, step, number)).collect()
}

/// Bits of all weights and of the last loss after `steps` steps.
fn train(config: &Config, comm: &dyn Communicator, steps: u64) -> Result<(Vec<u32>, u64), TrainError> {
    libtorch::set_threads(1);
    let mut engine = Engine::new(config, objective::build(config, Compute::CPU)?, comm)?;
    let mut last: Option<StepReport> = None;
    for step in 1..=steps {
        last = Some(engine.step(step, &batches(config, &engine, step))?);
    }
    let bits = engine.learner.parameters().tensors().iter().flat_map(bits_of).collect();
    Ok((bits, last.unwrap().loss.to_bits()))
}

fn bits_of(tensor: &Tensor) -> Vec<u32> {
    let values = Vec::<f32>::try_from(tensor.detach().reshape([-1])).unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn weights_and_losses_have_the_same_bits_at_any_number_of_ranks() {
    for overrides in [&[][..], &["model.cutoffs=[10,30]", "model.div_val=2"][..]] {
        let config = config(overrides);
        let alone = train(&config, &Local, 4).unwrap();
        for ranks in [1, 2, 4, 8] {
            for result in simulated::run(ranks, |comm| train(&config, comm, 4).unwrap()) {
                assert!(result == alone, "{ranks} ranks");
            }
        }
    }
}

/// With LAMB, a length is of a whole parameter: however gradients are cut into buckets, and on whatever rank.
#[test]
fn lamb_gives_the_same_bits_at_any_number_of_ranks_and_bucket_size() {
    let keys =
        ["optim.kind=lamb", "optim.trust_limit=10.0", "optim.weight_decay=0.01", "model.cutoffs=[10,30]"];
    let alone = train(&config(&keys), &Local, 4).unwrap();
    let adam = train(&config(&keys[2..]), &Local, 4).unwrap();
    assert!(adam != alone);
    for bucket_bytes in ["train.bucket_bytes=1", "train.bucket_bytes=1000000"] {
        let config = config(&[&keys[..], &[bucket_bytes]].concat());
        for ranks in [2, 4, 8] {
            for result in simulated::run(ranks, |comm| train(&config, comm, 4).unwrap()) {
                assert!(result == alone, "{ranks} ranks, {bucket_bytes}");
            }
        }
    }
}

/// The rules of recurrent models, with their penalty in the gradient that is clipped.
/// Row M10.
#[test]
fn other_rules_give_the_same_bits_at_any_number_of_ranks_and_division() {
    for kind in ["sgd", "rmsprop", "radam"] {
        let rule = format!("optim.kind={kind}");
        let keys = [rule.as_str(), "optim.l2=0.01", "optim.clip=0.05", "optim.weight_decay=0.1"];
        let alone = train(&config(&keys), &Local, 7).unwrap();
        assert!(train(&config(&keys[..1]), &Local, 7).unwrap() != alone);
        for shard in ["train.shard=none", "train.shard=optimizer"] {
            let config = config(&[&keys[..], &[shard]].concat());
            for ranks in [2, 8] {
                for result in simulated::run(ranks, |comm| train(&config, comm, 7).unwrap()) {
                    assert!(result == alone, "{kind}, {ranks} ranks, {shard}");
                }
            }
        }
    }
}

/// With a rate this small, w ← w − η · clip(g + λ w): a strength so large that g is nothing beside it leaves the direction of the weights.
/// Row M10.
#[test]
fn the_penalty_is_of_all_weights_and_clipped_with_the_gradient() {
    libtorch::set_threads(1);
    let (strength, clip) = (1e6, 10.0);
    let keys = ["optim.kind=sgd", "optim.lr=0.01", "optim.clip=10", "optim.l2=1e6", "model.dropout=0"];
    let config = config(&keys);
    let mut engine = start(&config, &Local);
    let values = |engine: &Running| -> Vec<Tensor> {
        engine.learner.parameters().tensors().iter().map(|t| t.detach().copy()).collect()
    };
    let before = values(&engine);
    let length = before.iter().map(|t| t.norm().double_value(&[]).powi(2)).sum::<f64>().sqrt();
    let report = engine.step(1, &batches(&config, &engine, 1)).unwrap();
    assert!((report.grad_norm / (strength * length) - 1.0).abs() < 1e-4, "{}", report.grad_norm);
    for (before, after) in before.iter().zip(values(&engine)) {
        let expected = before * (1.0 - 0.01 * clip / length);
        let off = (after - expected).abs().max().double_value(&[]);
        assert!(off < 1e-6, "{off}");
    }
}

#[test]
fn three_ranks_give_the_bits_of_one_where_blocks_are_subtrees() {
    let config = config(&["train.lanes=6"]);
    let alone = train(&config, &Local, 3).unwrap();
    for result in simulated::run(3, |comm| train(&config, comm, 3).unwrap()) {
        assert!(result == alone);
    }
}

/// A margin is reckoned from what a rank has: ranks speak as often as without one, and train what one rank trains. With plain gradient
/// descent, equal weights after a step are equal gradients of states and words.
/// Row S25.
#[test]
fn a_margin_adds_no_call_between_ranks() {
    let base = [
        "model.model_type=lstm",
        "model.vocab_size=50",
        "model.d_model=16",
        "model.n_layer=1",
        "model.cell=lstm",
        "train.lanes=8",
        "train.micro_batch=1",
        "train.segment=5",
        "train.bucket_bytes=2048",
        "optim.kind=sgd",
        "optim.lr=0.5",
        "schedule.kind=constant",
    ];
    // What is trained, and how often each call was made on a rank.
    let watched = |config: &Config, ranks: usize| {
        simulated::run(ranks, |comm| {
            let calls = Arc::new(Mutex::new(BTreeMap::<_, usize>::new()));
            let counts = calls.clone();
            let count = move |call, _| *counts.lock().unwrap().entry(call).or_default() += 1;
            let trained = train(config, &Watched::over(comm, count).unwrap(), 2).unwrap();
            let calls = calls.lock().unwrap().clone();
            (trained, calls)
        })
    };
    let local = Local;
    for softmax in [&[][..], &["model.cutoffs=[30]"]] {
        let plain = load(&base, softmax);
        for gradient in ["scalar", "delta", "full"] {
            let gradient = format!("adversarial.gradient={gradient}");
            let moved = load(&base, &[softmax, &["adversarial.scale=0.05", &gradient]].concat());
            let alone = train(&moved, &local, 2).unwrap();
            assert!(alone != train(&plain, &local, 2).unwrap(), "{gradient}");
            for ranks in [2, 4] {
                let pairs = watched(&moved, ranks).into_iter().zip(watched(&plain, ranks));
                for ((trained, calls), (_, without)) in pairs {
                    assert!(trained == alone, "{ranks} ranks, {gradient}");
                    assert_eq!(calls, without, "{ranks} ranks, {gradient}");
                    assert!(calls["exchange"] > 0, "{calls:?}");
                }
            }
        }
    }
}

#[test]
fn any_order_is_close_and_need_not_be_equal() {
    let exact = train(&config(&[]), &Local, 3).unwrap();
    let config = config(&["train.exact=false"]);
    for (bits, _) in simulated::run(4, |comm| train(&config, comm, 3).unwrap()) {
        for (a, b) in bits.iter().zip(&exact.0) {
            assert!((f32::from_bits(*a) - f32::from_bits(*b)).abs() < 1e-3);
        }
    }
}

#[test]
fn rank_that_dies_in_a_step_ends_the_others_with_69() {
    let config = config(&[]);
    // Early, in the middle of a step's reductions, late.
    for config in [config.clone(), self::config(&["train.shard=gradients"])] {
        for call in [2, 9, 40] {
            let mut faults = vec![Faults::default(); 4];
            faults[2].dies_at_call = Some(call);
            for result in simulated::run_with(faults, |comm| train(&config, comm, 50)) {
                assert_eq!(result.unwrap_err().exit_code(), 69, "call {call}");
            }
        }
    }
}

#[test]
fn loss_that_is_no_number_stops_before_the_update() {
    let config = config(&["optim.lr=1e30", "optim.clip=0"]);
    let error = train(&config, &Local, 5).unwrap_err();
    assert_eq!(error.exit_code(), 80);
}

/// Three parameters, each a bucket of its own, used from the last to the first: backward is through with the first one first. A batch says which
/// micro-steps have an example.
struct Backwards(Parameters);

impl Learner for Backwards {
    type Batch = Vec<bool>;
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.0)]
    }

    fn start(&self, _: i64) {}

    fn loss(&self, _: &Turn, batch: &Vec<bool>, micro_step: usize, (): &(), _: &Noise) -> Loss<()> {
        if !batch[micro_step] {
            return Loss::nothing(1, Device::Cpu, ());
        }
        let used = self.0.tensors().iter().rev().map(|tensor| tensor.sin().sum(Kind::Float));
        Loss::of(used.reduce(|sum, next| sum.cos() + next).unwrap(), 1.0, None, ())
    }
}

/// The second rank has no example in the first step, so that its buckets are complete in rising order there: it follows the first rank's.
#[test]
fn buckets_are_added_up_in_the_order_of_the_first_rank() {
    let config = config(&["train.lanes=2", "train.bucket_bytes=1"]);
    let train = |comm: &dyn Communicator| {
        libtorch::set_threads(1);
        let spec = |n: i64| ParameterSpec {
            name: format!("p{n}"),
            shape: vec![n],
            init: Init::Uniform { range: 1.0 },
        };
        let parameters = Parameters::initialise([5, 40, 3].map(spec).into(), 1, Kind::Float);
        let mut engine = Engine::new(&config, Backwards(parameters), comm).unwrap();
        let mut arrived = Vec::new();
        for step in 1..=3 {
            let examples = [true, step > 1][engine.layout.micro_steps.clone()].to_vec();
            engine.step(step, &examples).unwrap();
            arrived.push(engine.networks[0].buckets().arrived());
        }
        let bits: Vec<u32> = engine.learner.0.tensors().iter().flat_map(bits_of).collect();
        (bits, arrived)
    };
    let (alone, _) = train(&Local);
    let found = simulated::run(2, |comm| train(comm));
    assert!(found.iter().all(|(bits, _)| *bits == alone));
    assert_eq!(found[0].1, [[2, 1, 0]; 3]);
    assert_eq!(found[1].1, [[0, 1, 2], [2, 1, 0], [2, 1, 0]]);
}
