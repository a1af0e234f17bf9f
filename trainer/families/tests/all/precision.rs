//! `train.precision`: what 16 bits change, and what they must not.

use segue_collectives::{Communicator, local::Local, simulated};
use segue_configs::{Config, Precision};
use segue_engine::{Engine, StepReport};
use segue_families::MODELS;
use segue_kernels::libtorch::{self, Autocast};
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, Parameters};
use segue_language::{Batch, Frequencies, Objective, build, random_batch};
use segue_transfo_xl::{TransfoXl, TransfoXlConfig};
use segue_xlnet::{Sequence, Visibility, Xlnet, XlnetConfig};
use tch::{Device, Kind, Tensor};

const SIZES: [&str; 12] = [
    "model.vocab_size=211",
    "model.d_model=32",
    "model.n_head=4",
    "model.d_inner=64",
    "model.n_layer=2",
    "model.mem_len=24",
    "model.dropout=0",
    "model.dropatt=0",
    "train.lanes=8",
    "train.micro_batch=2",
    "train.segment=24",
    "schedule.kind=constant",
];
const PLAIN: [&str; 1] = ["optim.lr=0.01"];
/// Projections that embedding and softmax share: each is used several times in a pass.
const ADAPTIVE: [&str; 4] =
    ["model.cutoffs=[20,80]", "model.div_val=2", "model.proj_share_all_but_first=true", "optim.lr=0.01"];
const XLNET: [&str; 5] = [
    "model.model_type=xlnet",
    "model.reuse_len=12",
    "pairs.num_predict=8",
    "optim.lr=0.003",
    "model.initializer_range=0.05",
];

fn config(keys: &[&str]) -> Config {
    let keys: Vec<String> = SIZES.iter().chain(keys).map(|key| key.to_string()).collect();
    MODELS.load(None, &keys).unwrap().config
}

fn engine<'a>(config: &'a Config, comm: &'a dyn Communicator) -> Engine<'a, Box<dyn Objective>> {
    libtorch::set_threads(1);
    Engine::new(config, build(config, Compute::CPU).unwrap(), comm).unwrap()
}

/// Losses of steps that train on the same two batches in turn.
fn curve(config: &Config, steps: u64) -> Vec<StepReport> {
    let mut engine = engine(config, &Local);
    (1..=steps).map(|step| engine.step(step, &batches(config, &engine, step)).unwrap()).collect()
}

fn batches(config: &Config, engine: &Engine<Box<dyn Objective>>, step: u64) -> Vec<Batch> {
    engine
        .layout
        .micro_steps
        .clone()
        .map(|number| {
            random_batch(
                &config.train,
                &config.model,
                &config.own,
                Frequencies::Uniform,
                number,
                1 + step % 2,
            )
        })
        .collect()
}

/// Weights, moments and counts of updates.
fn state(engine: &Engine<Box<dyn Objective>>) -> (Vec<u64>, u64) {
    let optimizer = &engine.networks[0].optimizer;
    let moments = optimizer.tables().into_iter().flat_map(|(_, tensors)| tensors);
    let all = engine.learner.parameters().tensors().iter().chain(moments);
    (all.flat_map(|tensor| bits(&tensor.detach())).collect(), optimizer.counts().updates())
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    let values = Vec::<f64>::try_from(tensor.to_kind(Kind::Double).reshape([-1])).unwrap();
    values.into_iter().map(f64::to_bits).collect()
}

/// Steps of the curves. Over more of them, on two batches that are learnt by heart, small differences grow.
const STEPS: u64 = 10;

#[test]
fn curves_in_16_bits_are_those_of_single_precision() {
    for (name, keys) in [("plain softmax", &PLAIN[..]), ("adaptive softmax", &ADAPTIVE), ("XLNet", &XLNET)] {
        for drop in ["0", "0.1"] {
            let drop = [format!("model.dropout={drop}"), format!("model.dropatt={drop}")];
            let in_precision = |precision: &str| {
                let precision = format!("train.precision={precision}");
                curve(&config(&[keys, &[&drop[0], &drop[1], &precision]].concat()), STEPS)
            };
            let exact = in_precision("f32");
            let (first, last) = (exact[0].loss, exact[STEPS as usize - 1].loss);
            assert!(last < 0.95 * first, "{name} learns nothing: {first} to {last}");
            for (precision, limit) in [("bf16", 0.005), ("fp16", 0.005)] {
                let found = in_precision(precision);
                let apart =
                    found.iter().zip(&exact).map(|(found, exact)| (found.loss / exact.loss - 1.0).abs());
                let most = apart.fold(0.0, f64::max);
                assert!(most < limit, "{name}, {drop:?}, {precision}: losses are {most} apart");
                // Other bits, so that something was computed in another precision.
                assert!(
                    found
                        .iter()
                        .zip(&exact)
                        .any(|(found, exact)| found.loss.to_bits() != exact.loss.to_bits())
                );
                assert!(found.iter().all(|report| report.scaled.is_some() == (precision == "fp16")));
            }
        }
    }
}

#[test]
fn a_power_of_two_before_backward_changes_no_bit_of_single_precision() {
    for keys in [
        &["optim.kind=adam"][..],
        &["optim.kind=adamw", "optim.weight_decay=0.1", "train.shard=gradients"],
        &["optim.kind=adam", "train.shard=optimizer"],
        &["optim.kind=lamb", "optim.weight_decay=0.1"],
    ] {
        let run = |more: &[&str], ranks: usize| {
            let keys =
                [&ADAPTIVE, keys, &["optim.clip=0.1", "log.noise_scale_every=1", "model.dropout=0.1"], more];
            let config = config(&keys.concat());
            simulated::run(ranks, |comm| {
                let mut engine = engine(&config, comm);
                let told: Vec<_> = (1..=4)
                    .map(|step| {
                        let report = engine.step(step, &batches(&config, &engine, step)).unwrap();
                        let noise = report.noise.unwrap();
                        let told = [report.loss, report.grad_norm, report.lr, noise.square, noise.trace];
                        (told.map(f64::to_bits), report.scaled.is_some())
                    })
                    .collect();
                let weights = engine.learner.parameters().tensors().iter();
                let weights: Vec<u64> = weights.flat_map(|tensor| bits(&tensor.detach())).collect();
                (told, weights)
            })
            .swap_remove(0)
        };
        let (told, weights) = run(&[], 1);
        assert!(told.iter().all(|(_, scaled)| !scaled));
        for (init, ranks) in [(65536.0, 1), (0.0078125, 2), (16777216.0, 2)] {
            let init = format!("loss_scale.init={init}");
            let (other, same) = run(&["loss_scale.kind=dynamic", "loss_scale.floor=0.0078125", &init], ranks);
            assert!(other.iter().all(|(_, scaled)| *scaled));
            let numbers = |told: &[([u64; 5], bool)]| told.iter().map(|(told, _)| *told).collect::<Vec<_>>();
            assert_eq!(numbers(&other), numbers(&told), "{keys:?}, {init}");
            assert!(same == weights, "{keys:?}, {init}");
        }
    }
}

/// 2^40 over 128 is far beyond what 16 bits hold.
const TOO_LARGE: [&str; 5] = [
    "train.precision=fp16",
    "loss_scale.init=1099511627776",
    "loss_scale.backoff=1.52587890625e-05",
    "loss_scale.interval=3",
    "model.dropout=0.1",
];

#[test]
fn gradients_of_16_bits_that_overflow_leave_weights_moments_and_counts_alone() {
    for (keys, optimizer) in [&PLAIN[..], &ADAPTIVE, &XLNET].into_iter().zip(["adam", "adamw", "lamb"]) {
        let optimizer = format!("optim.kind={optimizer}");
        let config = config(&[keys, &TOO_LARGE, &[&optimizer]].concat());
        let mut engine = engine(&config, &Local);
        let fresh = state(&engine);
        let carried = |engine: &Engine<Box<dyn Objective>>| -> f64 {
            let tables = engine.carry_tables();
            let tables = tables.iter().flat_map(|(_, tables)| tables);
            tables.map(|(_, table)| table.abs().sum(Kind::Double).double_value(&[])).sum()
        };
        assert_eq!(carried(&engine), 0.0);
        let report = engine.step(1, &batches(&config, &engine, 1)).unwrap();
        let scaled = report.scaled.unwrap();
        assert!(scaled.overflowed && scaled.scale == 40f64.exp2() && scaled.skipped == 1, "{scaled:?}");
        assert!(!report.grad_norm.is_finite() && report.loss.is_finite() && report.lr > 0.0);
        assert!(state(&engine) == fresh && engine.loss_scale.state().unwrap().scale == 24f64.exp2());
        // The forward pass was as it should be.
        assert!(carried(&engine) > 0.0);
        // It goes on at a scale that fits, and finds it again after growing past it.
        let later: Vec<_> =
            (2..=12).map(|step| engine.step(step, &batches(&config, &engine, step)).unwrap()).collect();
        let made = later.iter().filter(|report| !report.scaled.unwrap().overflowed);
        assert!(made.clone().count() >= 6 && made.clone().all(|report| report.grad_norm.is_finite()));
        assert_eq!(state(&engine).1, made.count() as u64);
        let first = state(&engine);
        assert!(first.0 != fresh.0);
    }
}

#[test]
fn sixteen_bits_give_the_same_bytes_at_any_number_of_ranks() {
    for (keys, precision) in
        [(&ADAPTIVE[..], &TOO_LARGE[..]), (&XLNET, &["train.precision=bf16", "model.dropout=0.1"])]
    {
        let run = |ranks: usize, more: &[&str]| {
            let config = config(&[keys, precision, more].concat());
            simulated::run(ranks, |comm| {
                let mut engine = engine(&config, comm);
                let losses: Vec<u64> = (1..=6)
                    .map(|step| engine.step(step, &batches(&config, &engine, step)).unwrap().loss.to_bits())
                    .collect();
                let weights = engine.learner.parameters().tensors().iter();
                let weights: Vec<u64> = weights.flat_map(|tensor| bits(&tensor.detach())).collect();
                (losses, weights, engine.loss_scale.state())
            })
        };
        let alone = run(1, &[]).swap_remove(0);
        for (ranks, shard) in [(1, "gradients"), (2, "none"), (4, "none"), (4, "optimizer"), (2, "gradients")]
        {
            for found in run(ranks, &[&format!("train.shard={shard}")]) {
                assert!(found == alone, "{ranks} ranks, {shard}");
            }
        }
    }
}

/// The memory, and all that a checkpoint holds, is in single precision; nothing of the casts is left on the thread.
#[test]
fn what_a_step_leaves_behind_is_in_single_precision() {
    for (keys, precision) in
        [&PLAIN[..], &ADAPTIVE, &XLNET].into_iter().flat_map(|keys| ["bf16", "fp16"].map(|p| (keys, p)))
    {
        let config = config(&[keys, &[&format!("train.precision={precision}")]].concat());
        let mut engine = engine(&config, &Local);
        engine.step(1, &batches(&config, &engine, 1)).unwrap();
        let tables = engine.carry_tables().into_iter().flat_map(|(_, tables)| tables);
        let tensors = tables.map(|(_, table)| table).chain(engine.networks[0].gradients());
        assert!(tensors.into_iter().all(|tensor| tensor.kind() == Kind::Float));
        assert!(!Autocast::is_on_cpu());
    }
}

/// States of two segments with memory between them, and losses; more queries than a tile has rows.
fn passes(kind: Kind, precision: Precision, seed: u64) -> Vec<(&'static str, Tensor)> {
    let (words, here) = (41, Device::Cpu);
    let ids = |from: i64| {
        let numbers = Tensor::arange_start(from, from + 2 * 70, (Kind::Int64, here));
        (&numbers * &numbers + numbers * 7).remainder(words).view([2, 70])
    };
    let noise = Noise::new(seed);
    let transformer_xl = || {
        let config = TransfoXlConfig {
            vocab_size: words as usize,
            cutoffs: vec![8, 20],
            div_val: 2,
            d_model: 24,
            d_embed: 24,
            n_head: 3,
            d_inner: 32,
            n_layer: 3,
            mem_len: 50,
            dropout: 0.2,
            dropatt: 0.3,
            init_std: 0.2,
            ..Default::default()
        };
        let parameters = Parameters::initialise(TransfoXl::specs(&config), 7, kind);
        let model = TransfoXl::new(&config, &parameters);
        let first = model.forward(&ids(3), &model.memory_start(2), Some(&noise));
        let second = model.forward(&ids(9), &first.memory, Some(&noise));
        let nll = model.nll(&second.hidden, &ids(5));
        assert_eq!(nll.kind(), kind);
        [("states of a Transformer-XL", second.hidden), ("losses of a Transformer-XL", nll)]
    };
    let xlnet = || {
        let config = XlnetConfig {
            vocab_size: words as usize,
            d_model: 24,
            n_head: 3,
            d_inner: 32,
            n_layer: 3,
            mem_len: 30,
            reuse_len: 30,
            dropout: 0.2,
            dropatt: 0.3,
            initializer_range: 0.2,
            ..Default::default()
        };
        let parameters = Parameters::initialise(Xlnet::specs(&config), 7, kind);
        let model = Xlnet::new(&config, &parameters);
        let targets = Tensor::arange_start_step(1, 70, 2, (Kind::Int64, here)).unsqueeze(0).repeat([2, 1]);
        let ranks = ids(17);
        let sequence = |ids| Sequence {
            visibility: Visibility::Ranks { ranks: &ranks, halves_at: 30 },
            targets: Some(&targets),
            ..Sequence::new(ids)
        };
        let (one, two) = (ids(3), ids(9));
        let first = model.forward(sequence(&one), &model.memory_start(2), Some(&noise));
        let second = model.forward(sequence(&two), &first.memory, Some(&noise));
        let predictions = second.predictions.unwrap();
        let nll = model.nll(&predictions, &ids(5).gather(1, &targets, false));
        assert_eq!(nll.kind(), kind);
        let content = second.content.unwrap();
        [
            ("content of an XLNet", content),
            ("predictions of an XLNet", predictions),
            ("losses of an XLNet", nll),
        ]
    };
    let all = || transformer_xl().into_iter().chain(xlnet()).collect();
    match Autocast::to(precision, here) {
        Some(casts) => casts.during(all),
        None => all(),
    }
}

/// Root of the mean square of the difference, to that of the second.
fn distance(found: &Tensor, exact: &Tensor) -> f64 {
    let square = |x: &Tensor| x.to_kind(Kind::Double).square().mean(Kind::Double).double_value(&[]);
    (square(&(found.to_kind(Kind::Double) - exact)) / square(exact)).sqrt()
}

/// In double precision attention goes through tensors, in single precision through tiles. States of other masks are far apart.
#[test]
fn dropout_leaves_the_same_values_out_in_every_precision() {
    libtorch::set_threads(1);
    let exact = passes(Kind::Double, Precision::F32, 17);
    let others = passes(Kind::Double, Precision::F32, 18);
    for (kind, precision, limit) in [
        (Kind::Float, Precision::F32, 1e-6),
        (Kind::Float, Precision::Fp16, 0.002),
        (Kind::Float, Precision::Bf16, 0.016),
    ] {
        for ((name, found), (_, exact)) in passes(kind, precision, 17).iter().zip(&exact) {
            let apart = distance(found, exact);
            assert!(apart < limit, "{name}, {precision:?}: {apart}");
        }
    }
    for ((name, other), (_, exact)) in
        others.iter().zip(&exact).filter(|((name, _), _)| !name.starts_with("losses"))
    {
        assert!(distance(other, exact) > 0.2, "{name}");
    }
}
