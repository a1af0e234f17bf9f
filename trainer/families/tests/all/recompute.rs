//! `train.recompute`: layers that are made again in backward give the bits of layers whose activations were kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use segue_collectives::{Communicator, local::Local, simulated};
use segue_configs::{Config, MemoryStart, Precision};
use segue_engine::Engine;
use segue_families::MODELS;
use segue_kernels::libtorch::{self, Autocast, GradHooks, GradReady};
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, Kernels, Parameters};
use segue_language::{Frequencies, build, random_batch};
use segue_transfo_xl::{AttnType, Segment, TransfoXl, TransfoXlConfig};
use segue_xlnet::{AttentionDirection, Sequence, Visibility, Xlnet, XlnetConfig};
use tch::{Device, Kind, Tensor};

const LANES: i64 = 3;
const WORDS: i64 = 41;
const SEED: u64 = 7;
const HERE: Device = Device::Cpu;

/// Words that come often and seldom, `[lanes, length]`.
fn words(length: i64, from: i64) -> Tensor {
    let numbers = Tensor::arange_start(from, from + LANES * length, (Kind::Int64, HERE));
    (&numbers * &numbers + numbers * 7).remainder(WORDS).view([LANES, length])
}

/// How often each leaf was told that its gradient is complete.
struct Calls(Vec<AtomicUsize>);

impl GradReady for Calls {
    fn ready(&self, parameter: usize) {
        self.0[parameter].fetch_add(1, Ordering::Relaxed);
    }
}

/// What `loss` is, and what it leaves in the leaves that get a gradient, which are to be told so once.
fn gradients(
    parameters: &Parameters,
    loss: impl FnOnce(&Parameters) -> Vec<Tensor>,
) -> Vec<(String, Tensor)> {
    libtorch::set_threads(1);
    let calls = Arc::new(Calls(parameters.tensors().iter().map(|_| AtomicUsize::new(0)).collect()));
    let hooks = GradHooks::install(&parameters.tensors().iter().collect::<Vec<_>>(), calls.clone()).unwrap();
    let given = loss(parameters);
    given[0].backward();
    drop(hooks);
    let mut found: Vec<_> = given.into_iter().map(|value| ("a value".to_string(), value.detach())).collect();
    for ((leaf, spec), calls) in parameters.tensors().iter().zip(parameters.specs()).zip(&calls.0) {
        let grad = leaf.grad();
        assert_eq!(calls.load(Ordering::Relaxed), usize::from(grad.defined()), "{}", spec.name);
        if grad.defined() {
            let sparse = grad.is_sparse();
            let grad = if sparse { grad.coalesce().internal_values() } else { grad };
            found.push((format!("{} (sparse: {sparse})", spec.name), grad));
        }
    }
    found
}

fn bytes(tensor: &Tensor) -> Vec<u64> {
    let values = Vec::<f64>::try_from(tensor.to_kind(Kind::Double).reshape([-1])).unwrap();
    values.into_iter().map(f64::to_bits).collect()
}

/// Holds what `loss` gives with recomputation next to what it gives without, bit by bit.
fn assert_same(parameters: &Parameters, loss: impl Fn(&Parameters) -> Vec<Tensor>) {
    // A forward pass in 16 bits too, and backward outside of it, as a run has it.
    let kinds = [Kind::Float, Kind::Double].map(|kind| (kind, Precision::F32));
    let halves = [Precision::Bf16, Precision::Fp16].map(|precision| (Kind::Float, precision));
    for (kind, precision) in kinds.into_iter().chain(halves) {
        for kernels in [Kernels::Fused, Kernels::Plain] {
            let given = |recompute| {
                let values = parameters.tensors().iter().map(|tensor| tensor.detach().copy()).collect();
                let own = Parameters::from_tensors(parameters.specs().to_vec(), values, kind);
                gradients(&own.with_kernels(kernels).with_recompute(recompute), |own| {
                    match Autocast::to(precision, HERE) {
                        Some(casts) => casts.during(|| loss(own)),
                        None => loss(own),
                    }
                })
            };
            let (kept, again) = (given(false), given(true));
            assert!(kept.len() > 20 && kept.len() == again.len(), "{} and {}", kept.len(), again.len());
            for ((name, kept), (other, again)) in kept.iter().zip(&again) {
                assert_eq!(name, other);
                assert!(bytes(kept) == bytes(again), "{kind:?}, {precision:?}, {kernels:?}: {name}");
            }
        }
    }
}

fn transformer_xl() -> TransfoXlConfig {
    TransfoXlConfig {
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
        dropatt: 0.1,
        init_std: 0.3,
        memory_start: MemoryStart::Masked,
        ..Default::default()
    }
}

/// Two segments with memory and marks of documents between them.
fn of_transformer_xl(config: &TransfoXlConfig, parameters: &Parameters) -> Vec<Tensor> {
    let mut model = TransfoXl::new(config, parameters);
    model.keeps_marks = true;
    let (first, second) = (words(9, 3), words(9, 50));
    let documents = Tensor::arange(9, (Kind::Int64, HERE)).floor_divide_scalar(4).unsqueeze(0);
    let documents = documents.repeat([LANES, 1]);
    let segment = |ids| Segment { documents: Some(&documents), ..Segment::from(ids) };
    let noise = Noise::new(11);
    let one = model.forward(segment(&first), &model.memory_start(LANES), Some(&noise));
    let two = model.forward(segment(&second), &one.memory, Some(&noise));
    let loss = model.nll(&two.hidden, &first).sum(None::<Kind>);
    [loss, one.hidden, two.hidden].into_iter().chain(two.memory.layers).collect()
}

#[test]
fn gradients_of_transformer_xl_are_those_of_kept_activations() {
    let config = transformer_xl();
    for config in [
        TransfoXlConfig { untie_r: true, ..config.clone() },
        TransfoXlConfig { untie_r: false, same_length: true, ..config.clone() },
        TransfoXlConfig { untie_r: false, pre_lnorm: true, variational: true, ..config.clone() },
        TransfoXlConfig { attn_type: AttnType::Absolute, ..config.clone() },
        TransfoXlConfig { attn_type: AttnType::Learned, max_klen: 15, ..config.clone() },
        TransfoXlConfig { attn_type: AttnType::Shaw, max_klen: 15, ..config },
    ] {
        let parameters = Parameters::initialise(TransfoXl::specs(&config), SEED, Kind::Float);
        assert_same(&parameters, |parameters| of_transformer_xl(&config, parameters));
    }
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
        dropatt: 0.1,
        initializer_range: 0.3,
        memory_start: MemoryStart::Masked,
        ..Default::default()
    }
}

/// Sequences of pairs: two streams over memory with unwritten places, orders in halves, segments, a lane that reads backwards.
fn of_xlnet(config: &XlnetConfig, content: bool, parameters: &Parameters) -> Vec<Tensor> {
    let model = Xlnet::new(config, parameters);
    let (first, second, ranks) = (words(8, 3), words(8, 90), words(8, 17));
    let segments = Tensor::arange(8, (Kind::Int64, HERE)).ge(5).to_kind(Kind::Int64).unsqueeze(0);
    let segments = segments.repeat([LANES, 1]);
    let targets = Tensor::from_slice(&[1i64, 4, 6]).unsqueeze(0).repeat([LANES, 1]);
    let sequence = |ids, content| Sequence {
        segments: Some(&segments),
        visibility: Visibility::Ranks { ranks: &ranks, halves_at: 4 },
        targets: Some(&targets),
        reversed: 1,
        content,
        ..Sequence::new(ids)
    };
    let noise = Noise::new(13);
    let one = model.forward(sequence(&first, true), &model.memory_start(LANES), Some(&noise));
    let two = model.forward(sequence(&second, content), &one.memory, Some(&noise));
    let predictions = two.predictions.unwrap();
    let mut loss = model.nll(&predictions, &second.gather(1, &targets, false)).sum(None::<Kind>);
    if let Some(content) = &two.content {
        loss += content.square().sum(None::<Kind>);
    }
    [loss, one.predictions.unwrap(), predictions].into_iter().chain(two.memory.layers).collect()
}

#[test]
fn gradients_of_xlnet_are_those_of_kept_activations() {
    let config = xlnet();
    for config in [
        config.clone(),
        XlnetConfig { clamp_len: 4, ..config.clone() },
        XlnetConfig { attn_type: AttentionDirection::Uni, ..config.clone() },
        // Both streams of all layers add to the same three biases.
        XlnetConfig { untie_r: false, ..config },
    ] {
        let parameters = Parameters::initialise(Xlnet::specs(&config), SEED, Kind::Float);
        for content in [true, false] {
            assert_same(&parameters, |parameters| of_xlnet(&config, content, parameters));
        }
    }
}

/// As fine-tuning reads it: whole sequences, of which the last place alone is asked for.
#[test]
fn gradients_of_the_last_states_are_those_of_kept_activations() {
    let config = xlnet();
    let parameters = Parameters::initialise(Xlnet::encoder_specs(&config), SEED, Kind::Float);
    assert_same(&parameters, |parameters| {
        let model = Xlnet::new(&config, parameters);
        let (ids, last) = (words(8, 3), Tensor::full([LANES, 1], 7, (Kind::Int64, HERE)));
        let states = model.content_at(Sequence::new(&ids), &last, Some(&Noise::new(13)));
        vec![states.square().sum(None::<Kind>), states]
    });
}

fn config(model: &str, settings: &[&str]) -> Config {
    let own: &[&str] = match model {
        "xlnet" => &["model.reuse_len=6", "pairs.num_predict=4", "pairs.bidirectional=true"],
        _ => &["model.cutoffs=[8, 20]", "model.div_val=2"],
    };
    let sizes = [
        "model.vocab_size=41",
        "model.d_model=24",
        "model.n_head=3",
        "model.d_inner=32",
        "model.n_layer=3",
        "model.mem_len=10",
        "model.dropout=0.1",
        "model.dropatt=0.1",
        "model.untie_r=false",
        "train.segment=12",
        "train.lanes=8",
        "train.micro_batch=2",
        // Less than one bucket a layer: some leave while layers are still made again.
        "train.bucket_bytes=4096",
        "optim.lr=1e-3",
    ];
    let overrides: Vec<String> = [format!("model.model_type={model}")]
        .into_iter()
        .chain(own.iter().chain(&sizes).chain(settings).map(|word| word.to_string()))
        .collect();
    MODELS.load(None, &overrides).unwrap().config
}

/// Bits of losses and weights of three steps.
fn steps(config: &Config, comm: &dyn Communicator) -> Vec<u64> {
    libtorch::set_threads(1);
    let mut engine = Engine::new(config, build(config, Compute::CPU).unwrap(), comm).unwrap();
    let mut found = Vec::new();
    for step in 1..=3 {
        let batch = |number: usize| {
            random_batch(&config.train, &config.model, &config.own, Frequencies::Uniform, number, step)
        };
        let report = engine.step(step, &engine.layout.micro_steps.clone().map(batch).collect()).unwrap();
        found.push(report.loss.to_bits());
        found.push(report.grad_norm.to_bits());
    }
    found.extend(engine.learner.parameters().tensors().iter().flat_map(|tensor| bytes(&tensor.detach())));
    found
}

#[test]
fn runs_have_the_same_bits_with_buckets_of_several_micro_steps_and_ranks() {
    let models = ["transfo-xl", "xlnet"].into_iter();
    for (model, precision) in models.flat_map(|model| ["f32", "bf16", "fp16"].map(|name| (model, name))) {
        let precision = format!("train.precision={precision}");
        let expected = steps(&config(model, &[&precision]), &Local);
        // Every micro-step's turn to be made twice comes by.
        let again = config(model, &["train.recompute=true", "train.check_repeats_every=1", &precision]);
        assert!(steps(&again, &Local) == expected, "{model}, {precision}");
        for found in simulated::run(2, |comm| steps(&again, comm)) {
            assert!(found == expected, "{model} on two ranks, {precision}");
        }
    }
}
