//! Whole models, forward and backward, with dropout, memory and all that masks are made of.

use segue_collectives::local::Local;
use segue_configs::{MemoryStart, Precision};
use segue_engine::Engine;
use segue_families::MODELS;
use segue_kernels::libtorch::Autocast;
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, Kernels, Parameters};
use segue_language::{Frequencies, build, random_batch};
use segue_lstm::{CellKind, InitKind, LstmConfig, Wiring};
use segue_transfo_xl::{AttnType, Segment, TransfoXl, TransfoXlConfig};
use segue_xlnet::{Sequence, Visibility, Xlnet, XlnetConfig};
use tch::{Device, Kind, Tensor};

use crate::{assert_close, compute, device};

const LANES: i64 = 3;
const WORDS: i64 = 41;
const SEED: u64 = 7;
/// In single precision, of the largest value; in double.
const LIMITS: [(Kind, f64); 2] = [(Kind::Float, 1e-4), (Kind::Double, 1e-9)];

/// Words that come often and seldom, `[lanes, length]`.
fn words(length: i64, from: i64, device: Device) -> Tensor {
    let numbers = Tensor::arange_start(from, from + LANES * length, (Kind::Int64, device));
    (&numbers * &numbers + numbers * 7).remainder(WORDS).view([LANES, length])
}

/// A small model with clusters.
pub fn transformer_xl() -> (Parameters, TransfoXlConfig) {
    let config = TransfoXlConfig {
        vocab_size: WORDS as usize,
        cutoffs: vec![8, 20],
        div_val: 2,
        d_model: 24,
        d_embed: 24,
        n_head: 3,
        d_inner: 32,
        n_layer: 3,
        mem_len: 11,
        dropout: 0.1,
        dropatt: 0.0,
        init_std: 0.3,
        memory_start: MemoryStart::Masked,
        ..Default::default()
    };
    (Parameters::initialise(TransfoXl::specs(&config), SEED, Kind::Float), config)
}

/// States of two segments with memory between them, the loss, and all gradients.
fn transformer_xl_gives(config: &TransfoXlConfig, parameters: &Parameters) -> Vec<(String, Tensor)> {
    let (mut model, at) = (TransfoXl::new(config, parameters), parameters.options().1);
    model.keeps_marks = true;
    let (first, second) = (words(9, 3, at), words(9, 50, at));
    let documents =
        Tensor::arange(9, (Kind::Int64, at)).floor_divide_scalar(4).unsqueeze(0).repeat([LANES, 1]);
    let segment = |ids| Segment { documents: Some(&documents), ..Segment::from(ids) };
    let noise = Noise::new(11);
    let one = model.forward(segment(&first), &model.memory_start(LANES), Some(&noise));
    let two = model.forward(segment(&second), &one.memory, Some(&noise));
    let loss = (model.nll(&one.hidden, &second) + model.nll(&two.hidden, &first)).sum(None::<Kind>);
    loss.backward();
    let mut found = vec![
        ("states".into(), one.hidden),
        ("states after memory".into(), two.hidden),
        ("loss".into(), loss),
    ];
    found.push(("log-probabilities".into(), tch::no_grad(|| model.log_probs(&found[1].1))));
    found.extend(gradients(parameters));
    found
}

/// Of a loss whose backward has run, by the names of parameters.
pub fn gradients(parameters: &Parameters) -> Vec<(String, Tensor)> {
    let pairs = parameters.specs().iter().zip(parameters.tensors());
    pairs
        .map(|(spec, leaf)| {
            let grad = leaf.grad();
            let grad = match grad.defined() {
                true if grad.is_sparse() => grad.to_dense(None, false),
                true => grad,
                false => leaf.detach().zeros_like(),
            };
            (format!("the gradient of {}", spec.name), grad)
        })
        .collect()
}

/// The same parameters once more.
fn copied(parameters: &Parameters, kind: Kind, device: Device) -> Parameters {
    let values = parameters.tensors().iter().map(|tensor| tensor.detach().copy()).collect();
    Parameters::from_tensors(parameters.specs().to_vec(), values, kind).to(device)
}

/// What a model gives on the device next to what it gives on the CPU in double precision by libtorch's operations alone.
fn assert_alike(parameters: &Parameters, gives: impl Fn(&Parameters) -> Vec<(String, Tensor)>) {
    let of_kind = |kind, device| copied(parameters, kind, device);
    let expected = gives(&of_kind(Kind::Double, Device::Cpu).with_kernels(Kernels::Plain));
    for ((kind, limit), recompute) in LIMITS.iter().flat_map(|limit| [(limit, false), (limit, true)]) {
        let found = gives(&of_kind(*kind, device()).with_recompute(recompute));
        assert_eq!(found.len(), expected.len());
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            let what = format!("{kind:?}, recomputed: {recompute}: {name}");
            assert_close(&what, found, expected, *limit);
        }
    }
}

/// Off by what factors of 16 bits cost, and no more: attention in one pass too, whose kernels are for these alone.
fn assert_near(parameters: &Parameters, gives: impl Fn(&Parameters) -> Vec<(String, Tensor)>) {
    const LIMIT: f64 = 0.1;
    let of_kind = |kind, device| copied(parameters, kind, device);
    let expected = gives(&of_kind(Kind::Double, Device::Cpu).with_kernels(Kernels::Plain));
    for (precision, limit) in [(Precision::Bf16, LIMIT), (Precision::Fp16, LIMIT / 4.0)] {
        for recompute in [false, true] {
            let own = of_kind(Kind::Float, device()).with_recompute(recompute);
            // Backward goes on under what forward has recorded.
            let found = Autocast::to(precision, device()).expect("casts").during(|| gives(&own));
            for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                assert_close(
                    &format!("{precision:?}, recomputed: {recompute}: {name}"),
                    found,
                    expected,
                    limit,
                );
            }
        }
    }
}

#[test]
fn models_in_16_bits_are_near_those_of_the_cpu() {
    let (_, config) = transformer_xl();
    let config = TransfoXlConfig { dropatt: 0.2, init_std: 0.1, ..config };
    let parameters = Parameters::initialise(TransfoXl::specs(&config), SEED, Kind::Float);
    assert_near(&parameters, |parameters| transformer_xl_gives(&config, parameters));
    let config = XlnetConfig { dropatt: 0.2, initializer_range: 0.1, ..xlnet() };
    let parameters = Parameters::initialise(Xlnet::specs(&config), SEED, Kind::Float);
    assert_near(&parameters, |parameters| xlnet_gives(&config, parameters));
}

/// Where attention drops weights, the same ones.
#[test]
fn attention_drops_what_the_cpu_drops() {
    let (_, config) = transformer_xl();
    let config = TransfoXlConfig { dropatt: 0.2, ..config };
    let parameters = Parameters::initialise(TransfoXl::specs(&config), SEED, Kind::Float);
    assert_alike(&parameters, |parameters| transformer_xl_gives(&config, parameters));
}

#[test]
fn transformer_xl_is_that_of_the_cpu() {
    let (parameters, config) = transformer_xl();
    assert_alike(&parameters, |parameters| transformer_xl_gives(&config, parameters));
}

#[test]
fn other_encodings_and_contexts_are_those_of_the_cpu() {
    let (_, config) = transformer_xl();
    for other in [
        TransfoXlConfig { same_length: true, clamp_len: 5, ..config.clone() },
        TransfoXlConfig { pre_lnorm: true, variational: true, ..config.clone() },
        TransfoXlConfig { attn_type: AttnType::Absolute, ..config.clone() },
        TransfoXlConfig { attn_type: AttnType::Learned, max_klen: 15, ..config.clone() },
        TransfoXlConfig { attn_type: AttnType::Shaw, max_klen: 15, ..config },
    ] {
        let parameters = Parameters::initialise(TransfoXl::specs(&other), SEED, Kind::Float);
        assert_alike(&parameters, |parameters| transformer_xl_gives(&other, parameters));
    }
}

/// Where a row stands for several distances, and the order in which gradients are added up could be any.
#[test]
fn gradients_of_tables_of_positions_have_the_same_bits_each_time() {
    let (_, config) = transformer_xl();
    let config = TransfoXlConfig { max_klen: 15, clamp_len: 2, ..config };
    for attn_type in [AttnType::Learned, AttnType::Shaw] {
        let config =
            TransfoXlConfig { attn_type, shaw_extras: attn_type == AttnType::Shaw, ..config.clone() };
        let parameters = Parameters::initialise(TransfoXl::specs(&config), SEED, Kind::Float);
        let once = || {
            let own = copied(&parameters, Kind::Float, device());
            let found = transformer_xl_gives(&config, &own).into_iter();
            let tables = found.filter(|(name, _)| name.contains("r_emb") || name.contains("r_bias"));
            tables.map(|(name, grad)| (name, grad.to_device(Device::Cpu).copy())).collect::<Vec<_>>()
        };
        let expected = once();
        assert!(!expected.is_empty());
        (0..3).for_each(|_| assert!(once() == expected, "{attn_type:?}"));
    }
}

/// Two streams over memory with unwritten places, an order in halves, segments, and a lane that reads backwards.
fn xlnet_gives(config: &XlnetConfig, parameters: &Parameters) -> Vec<(String, Tensor)> {
    let (model, at) = (Xlnet::new(config, parameters), parameters.options().1);
    let (first, second) = (words(8, 3, at), words(8, 90, at));
    let ranks = words(8, 17, at);
    let segments =
        Tensor::arange(8, (Kind::Int64, at)).ge(5).to_kind(Kind::Int64).unsqueeze(0).repeat([LANES, 1]);
    let targets = Tensor::from_slice(&[1i64, 4, 6]).to_device(at).unsqueeze(0).repeat([LANES, 1]);
    let sequence = |ids, targets, halves_at| Sequence {
        segments: Some(&segments),
        visibility: Visibility::Ranks { ranks: &ranks, halves_at },
        targets,
        reversed: 1,
        content: true,
        ..Sequence::new(ids)
    };
    let noise = Noise::new(13);
    let one = model.forward(sequence(&first, None, 0), &model.memory_start(LANES), Some(&noise));
    let two = model.forward(sequence(&second, Some(&targets), 0), &one.memory, Some(&noise));
    let (Some(content), Some(predictions)) = (two.content, two.predictions) else {
        panic!("both were asked for")
    };
    let labels = second.gather(1, &targets, false);
    let loss = model.nll(&predictions, &labels).sum(None::<Kind>) + content.square().sum(None::<Kind>);
    loss.backward();
    let mut found =
        vec![("content".into(), content), ("predictions".into(), predictions), ("loss".into(), loss)];
    found.extend(gradients(parameters));
    found
}

fn xlnet() -> XlnetConfig {
    XlnetConfig {
        vocab_size: WORDS as usize,
        d_model: 24,
        n_head: 3,
        d_inner: 32,
        n_layer: 3,
        mem_len: 10,
        reuse_len: 6,
        dropout: 0.1,
        dropatt: 0.0,
        initializer_range: 0.3,
        memory_start: MemoryStart::Masked,
        ..Default::default()
    }
}

#[test]
fn xlnet_is_that_of_the_cpu() {
    let config = xlnet();
    for config in [XlnetConfig { clamp_len: 4, ..config.clone() }, XlnetConfig { untie_r: false, ..config }] {
        let parameters = Parameters::initialise(Xlnet::specs(&config), SEED, Kind::Float);
        assert_alike(&parameters, |parameters| xlnet_gives(&config, parameters));
    }
}

/// Two windows with the state between them, by all sites of dropout, and a mixture above.
fn lstm_gives(config: &LstmConfig, parameters: &Parameters) -> Vec<(String, Tensor)> {
    let (mut model, at) = (segue_lstm::Model::new(config, parameters), parameters.options().1);
    model.keeps_marks = true;
    let (first, second) = (words(9, 3, at), words(9, 50, at));
    let noise = Noise::new(17);
    let one = model.forward(&first, &model.memory_start(LANES), Some(&noise));
    let two = model.forward(&second, &one.memory, Some(&noise));
    let nll = |hidden, targets| model.nll(hidden, targets, Some(&noise)).sum(None::<Kind>);
    let loss = nll(&one.hidden, &second) + nll(&two.hidden, &first);
    loss.backward();
    let mut found = vec![("states".into(), two.hidden), ("loss".into(), loss)];
    found.extend(gradients(parameters));
    found
}

#[test]
fn recurrent_models_are_those_of_the_cpu() {
    let plain = LstmConfig {
        vocab_size: WORDS as usize,
        d_model: 24,
        n_layer: 2,
        input_dropout: 0.1,
        inter_layer_dropout: 0.2,
        state_dropout: 0.2,
        output_dropout: 0.2,
        ..Default::default()
    };
    for config in [
        LstmConfig {
            cell: CellKind::Rewired,
            wiring: Wiring::Residual,
            inter_layer_dropout: 0.0,
            cell_output_dropout: 0.1,
            ..plain.clone()
        },
        LstmConfig { mogrifier_rounds: 5, mogrifier_rank: 3, mixture: 3, ..plain.clone() },
        LstmConfig {
            wiring: Wiring::Stack,
            d_embed: 16,
            d_last: 16,
            two_biases: true,
            weight_dropout: 0.3,
            embedding_dropout: 0.1,
            locked_dropout: true,
            init: InitKind::Uniform,
            ..plain.clone()
        },
        LstmConfig {
            cell: CellKind::Qrnn,
            wiring: Wiring::Stack,
            weight_dropout: 0.3,
            state_dropout: 0.0,
            ..plain.clone()
        },
        plain,
    ] {
        let parameters = Parameters::initialise(segue_lstm::specs(&config), SEED, Kind::Float);
        assert_alike(&parameters, |parameters| lstm_gives(&config, parameters));
    }
}

/// Five steps of training: losses, and the weights after them.
#[test]
fn steps_are_those_of_the_cpu() {
    for (model, settings) in [
        ("transfo-xl", vec!["model.cutoffs=[8, 20]", "model.div_val=2", "model.dropatt=0.0"]),
        // Gradients of one micro-step are in no bucket.
        ("transfo-xl", vec!["optim.kind=lamb", "train.lanes=2", "model.dropatt=0.0"]),
        (
            "xlnet",
            vec!["model.reuse_len=6", "pairs.num_predict=4", "pairs.bidirectional=true", "model.dropatt=0.0"],
        ),
    ] {
        let sizes = [
            "model.vocab_size=41",
            "model.d_model=24",
            "model.n_head=3",
            "model.d_inner=32",
            "model.n_layer=2",
            "model.mem_len=10",
            "train.segment=12",
            "train.lanes=4",
            "train.micro_batch=2",
            "optim.lr=1e-3",
        ];
        let overrides: Vec<String> = [format!("model.model_type={model}")]
            .into_iter()
            .chain(sizes.iter().chain(&settings).map(|word| word.to_string()))
            .collect();
        let config = MODELS.load(None, &overrides).unwrap().config;
        let steps = |compute: Compute| {
            let objective = build(&config, compute).unwrap();
            let mut engine = Engine::new(&config, objective, &Local).unwrap();
            let losses: Vec<f64> = (1..=5)
                .map(|step| {
                    let batch = || {
                        random_batch(&config.train, &config.model, &config.own, Frequencies::Uniform, 0, step)
                            .to(compute.device())
                    };
                    let batches = engine.layout.micro_steps.clone().map(|_| batch()).collect();
                    engine.step(step, &batches).unwrap().loss
                })
                .collect();
            let weights =
                engine.learner.parameters().tensors().iter().map(|t| t.detach().copy()).collect::<Vec<_>>();
            (losses, weights)
        };
        let (expected, found) = (steps(Compute::CPU), steps(compute()));
        for (step, (found, expected)) in found.0.iter().zip(&expected.0).enumerate() {
            assert!(
                (found - expected).abs() < 1e-4 * expected,
                "{model}, step {}: {found}, not {expected}",
                step + 1
            );
        }
        for (found, expected) in found.1.iter().zip(&expected.1) {
            assert_close(model, found, expected, 1e-2);
        }
    }
}
