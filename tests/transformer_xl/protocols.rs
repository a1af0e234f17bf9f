//! Evaluation protocols on small corpora, against naive second ways.

use std::fs;

use segue_collectives::local::Local;
use segue_configs::MemoryStart;
use segue_dataloader::{BuildOptions, Corpus, Preset, Split, TokenStream, TokenizerChoice, build};
use segue_decode::Sampling;
use segue_engine::{Engine, Watch};
use segue_kernels::{Parameters, libtorch};
use segue_language::{Batch, EvalOptions, Objective, evaluate};
use segue_protocols::{
    DynamicOptions, GradientOf, LossGroup, MeanOver, Rule, SampleOptions, SlidingOptions, StatisticsOptions,
    agreement, banded_losses, draw_samples, dynamic_evaluation, fit_line, gradient_statistics,
    recurrent_losses, sliding, truncated_losses,
};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use segue_transfo_xl::{LanguageModel, TransfoXlConfig};
use tch::{Kind, Tensor};

/// Symbols of the byte corpora here: 'a', 'b', ..
const SYMBOLS: u8 = 16;

fn stream(folder: &tempfile::TempDir, text: &[u8]) -> TokenStream {
    libtorch::set_threads(1);
    let (input, output) = (folder.path().join("text"), folder.path().join("corpus"));
    fs::write(&input, text).unwrap();
    let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Byte));
    let options =
        BuildOptions { tokenizer, ..BuildOptions::new(Preset::Documents, vec![input], output.clone()) };
    build(&options, &()).unwrap();
    Corpus::open(&output).unwrap().tokens(Split::Train).unwrap()
}

fn noise_text(length: u32) -> Vec<u8> {
    (0..length).map(|i| b'a' + (i.wrapping_mul(2_654_435_761) >> 24) as u8 % SYMBOLS).collect()
}

fn config() -> TransfoXlConfig {
    TransfoXlConfig {
        vocab_size: 256,
        d_model: 16,
        n_head: 2,
        d_inner: 24,
        n_layer: 2,
        mem_len: 8,
        dropout: 0.0,
        init_std: 0.3,
        memory_start: MemoryStart::Empty,
        ..Default::default()
    }
}

fn language_model(config: TransfoXlConfig) -> LanguageModel {
    LanguageModel::new(&config, 5, Kind::Double)
}

fn ids(stream: &TokenStream, start: u64, length: usize) -> Vec<i64> {
    let mut ids = vec![0; length];
    stream.read(start, &mut ids).unwrap();
    ids
}

/// −log P of `ids`' last token, by a pass over all the others and the whole vocabulary's probabilities.
fn naive_loss(model: &mut LanguageModel, ids: &[i64]) -> f64 {
    (model.model.context.mem_len, model.model.context.same_length) = (0, None);
    let (last, context) = ids.split_last().unwrap();
    let input = Tensor::from_slice(context).unsqueeze(0);
    let out = tch::no_grad(|| model.model.forward(&input, &model.memory_start(1), None));
    let log_probs = tch::no_grad(|| model.model.log_probs(&out.hidden));
    model.look(None);
    -log_probs.double_value(&[0, context.len() as i64 - 1, *last])
}

fn close(found: &[f64], expected: &[f64], limit: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() < limit, "{i}: {a} {b}");
    }
}

/// Row T20.
#[test]
fn sliding_losses_equal_a_full_recomputation() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder, &noise_text(60));
    let mut model = language_model(config());
    let before = model.model.context;
    let options = SlidingOptions { attention: 7, positions: 0, batch: 4 };
    let result = sliding(&mut model, &stream, options, |_, _| {}).unwrap();
    assert_eq!((result.targets, model.model.context), (stream.len() - 1, before));
    let naive: f64 = (1..stream.len())
        .map(|t| naive_loss(&mut model, &ids(&stream, t.saturating_sub(7), t.min(7) as usize + 1)))
        .sum();
    assert!((result.nats - naive).abs() < 1e-10, "{} {naive}", result.nats);
    // A few positions have whole windows only.
    let few = sliding(&mut model, &stream, SlidingOptions { positions: 5, ..options }, |_, _| {}).unwrap();
    let places = segue_protocols::spread_positions(7..stream.len(), 5);
    let naive: f64 = places.iter().map(|&t| naive_loss(&mut model, &ids(&stream, t - 7, 8))).sum();
    assert!((few.nats - naive).abs() < 1e-10);
}

/// Row T22.
#[test]
fn truncated_context_is_exact_also_for_models_that_attend_to_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder, &noise_text(60));
    let targets = [20, 31, 59];
    let losses = |memory_start, same_length| {
        let mut model = language_model(TransfoXlConfig { memory_start, same_length, ..config() });
        truncated_losses(&mut model, &stream, &targets, 12, 2, |_| {}).unwrap()
    };
    let exact = losses(MemoryStart::Empty, false);
    close(&losses(MemoryStart::Zeros, true), &exact, 1e-12);
    let mut model = language_model(config());
    let naive: Vec<f64> = targets.iter().map(|t| naive_loss(&mut model, &ids(&stream, t - 12, 13))).collect();
    close(&exact, &naive, 1e-10);
    let error = truncated_losses(&mut model, &stream, &[5], 6, 1, |_| {}).unwrap_err();
    assert_eq!(error.exit_code(), 64);
}

/// Row T21.
#[test]
fn both_protocols_give_the_same_losses_where_they_see_the_same_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder, &noise_text(60));
    let ids = ids(&stream, 0, 50);
    // One layer: the vanilla protocol itself, a plain causal window of as many tokens as a query sees.
    let mut one = language_model(TransfoXlConfig { n_layer: 1, ..config() });
    let targets: Vec<u64> = (6..50).collect();
    let vanilla = truncated_losses(&mut one, &stream, &targets, 6, 8, |_| {}).unwrap();
    for segment in [1, 4, 6, 9] {
        close(&recurrent_losses(&mut one, &ids, 6, segment)[5..], &vanilla, 1e-10);
    }
    // Three layers: a window over the 3 · 5 + 1 tokens that a recurrent prediction depends on.
    for memory_start in [MemoryStart::Empty, MemoryStart::Zeros] {
        let mut three = language_model(TransfoXlConfig { n_layer: 3, memory_start, ..config() });
        let recurrent = recurrent_losses(&mut three, &ids, 6, 6);
        close(&recurrent[15..], &banded_losses(&mut three, &ids, 6, 16), 1e-10);
        let short = banded_losses(&mut three, &ids, 6, 15);
        assert!(recurrent[14..].iter().zip(&short).any(|(a, b)| (a - b).abs() > 1e-6), "reach is 16 tokens");
        let report = agreement(&mut three, 16, 10);
        assert!(report.window == 46 && report.difference < 1e-10, "{report:?}");
    }
}

/// Counted, not timed: `segue eval speed` is what measures it. A window of `l` tokens is computed for each prediction of the
/// vanilla protocol, a token against a memory of `l` for each of the recurrent one.
/// Row T21.
#[test]
fn the_ratio_of_work_grows_in_proportion_to_attention_length() {
    let work = |segment: usize, mem_len: usize| {
        let overrides = [
            "model.vocab_size=204".to_string(),
            "model.d_model=64".into(),
            "model.n_head=8".into(),
            "model.d_inner=256".into(),
            "model.n_layer=12".into(),
            format!("model.mem_len={mem_len}"),
            format!("train.segment={segment}"),
        ];
        let config = segue_families::MODELS.load(None, &overrides).unwrap().config;
        segue_family::cost(&config, 1).unwrap().forward_flops_per_token.least
    };
    let ratio = |l: usize| l as f64 * work(l, 0) / work(64, l);
    let points: Vec<(f64, f64)> = [64, 128, 256, 512].map(|l| (l as f64, ratio(l))).to_vec();
    let line = fit_line(&points).unwrap();
    assert!(line.r_squared > 0.95 && line.slope > 0.1, "{points:?}: {line:?}");
}

/// De Bruijn's cycle of order 3 over two symbols: what comes next follows from 3 symbols, and fewer say nothing.
const CYCLE: &[u8] = b"aaababbb";

/// Row T23.
#[test]
fn perplexity_falls_at_the_true_lag_and_no_further() {
    let folder = tempfile::tempdir().unwrap();
    let text = CYCLE.repeat(600);
    let stream = stream(&folder, &text);
    let overrides = [
        "model.vocab_size=100",
        "model.d_model=32",
        "model.n_head=2",
        "model.d_inner=64",
        "model.n_layer=2",
        "model.mem_len=0",
        "model.dropout=0",
        "train.lanes=16",
        "train.micro_batch=16",
        "train.segment=6",
        "optim.lr=0.005",
        "schedule.kind=linear",
        "schedule.warmup=20",
        "train.steps=600",
    ];
    let config = segue_families::MODELS.load(None, &overrides.map(String::from)).unwrap().config;
    let mut engine =
        Engine::new(&config, segue_language::build(&config, segue_kernels::Compute::CPU).unwrap(), &Local)
            .unwrap();
    for step in 1..=600 {
        // Each lane begins at another place of the cycle.
        let rows: Vec<i64> = (0..16).flat_map(|lane| ids(&stream, lane * 37 + step, 7)).collect();
        let rows = Tensor::from_slice(&rows).view([16, 7]);
        let (inputs, targets) = (rows.narrow(1, 0, 6).contiguous(), rows.narrow(1, 1, 6).contiguous());
        engine.step(step, &vec![Batch::new(inputs, targets)]).unwrap();
    }
    let weights = engine.learner.parameters().tensors().iter().map(|t| t.detach().copy()).collect();
    let parameters = Parameters::from_tensors(segue_language::specs(&config.model), weights, Kind::Float);
    let mut trained = LanguageModel::from_parameters(config.model.get().unwrap(), parameters);
    let targets: Vec<u64> = (100..164).collect();
    let contexts: Vec<u64> = (1..=6).collect();
    let losses = contexts
        .iter()
        .map(|&c| truncated_losses(&mut trained, &stream, &targets, c as usize, 64, |_| {}).unwrap())
        .collect();
    let group = LossGroup::new(contexts, vec![losses]).unwrap();
    let curve: Vec<f64> = (0..6).map(|c| group.perplexity(0, c)).collect();
    assert!(curve[..2].iter().all(|ppl| (1.9..2.3).contains(ppl)), "{curve:?}");
    assert!(curve[2..].iter().all(|ppl| (1.0..1.2).contains(ppl)), "{curve:?}");
}

const STATISTICS: StatisticsOptions = StatisticsOptions {
    segment: 8,
    lanes: 1,
    batches: 4,
    // The memory of the models here.
    context: 8,
    gradient: GradientOf::Mean,
    mean: MeanOver::Values,
};

const DYNAMIC: DynamicOptions =
    DynamicOptions { lr: 0.1, decay: 0.001, epsilon: 1e-3, segment: 8, gradient: GradientOf::Mean };

#[test]
fn dynamic_evaluation_with_rate_zero_is_the_ordinary_one_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder, &noise_text(101));
    let model = LanguageModel::new(&config(), 5, Kind::Float);
    let static_options = EvalOptions { lanes: 1, group: 1, segment: 8, ext_len: 0, documents: None };
    let ordinary =
        evaluate(&model, &stream, static_options, &Local, &mut Watch::new(&mut |_, _| {})).unwrap();
    let options = DynamicOptions { lr: 0.0, decay: 0.1, epsilon: 1e-5, ..DYNAMIC };
    let statistics = gradient_statistics(&model, &stream, &STATISTICS, &Local, |_| {}).unwrap();
    for rule in [Rule::Sgd, Rule::Rms(statistics)] {
        let dynamic = dynamic_evaluation(&model, &stream, &rule, options, |_, _| {}).unwrap();
        assert_eq!(dynamic.nats.to_bits(), ordinary.nats.to_bits());
        assert_eq!(dynamic.targets, ordinary.targets);
    }
}

#[test]
fn dynamic_evaluation_adapts_to_a_repeated_pattern_and_leaves_the_weights_alone() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder, &b"abcaadbe".repeat(60));
    let model = LanguageModel::new(&config(), 5, Kind::Float);
    let bits = |model: &LanguageModel| -> Vec<Vec<f32>> {
        let tensors = model.parameters().tensors().iter();
        tensors.map(|t| Vec::<f32>::try_from(t.detach().reshape([-1])).unwrap()).collect()
    };
    let before = bits(&model);
    let statistics = gradient_statistics(&model, &stream, &STATISTICS, &Local, |_| {}).unwrap();
    let ppl = |rule: &Rule, lr| {
        let options = DynamicOptions { lr, ..DYNAMIC };
        dynamic_evaluation(&model, &stream, rule, options, |_, _| {}).unwrap().ppl
    };
    let rms = Rule::Rms(statistics);
    let ordinary = ppl(&Rule::Sgd, 0.0);
    assert!(ppl(&Rule::Sgd, 0.1) < 0.5 * ordinary);
    assert!(ppl(&rms, 0.002) < 0.5 * ordinary);
    assert_eq!(bits(&model), before);
    let options = DynamicOptions { lr: 1e30, decay: 0.0, ..DYNAMIC };
    let error = dynamic_evaluation(&model, &stream, &Rule::Sgd, options, |_, _| {}).unwrap_err();
    assert!(error.exit_code() == 80 && bits(&model) == before, "{error}");
}

#[test]
fn samples_begin_with_text_of_the_split_and_know_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder, &noise_text(400));
    let model = LanguageModel::new(&config(), 5, Kind::Double);
    let sampling = Sampling {
        top_k: 40,
        top_p: 1.0,
        eta: 0.0,
        temperature: 1.0,
        exclude: None,
        names: usize::MAX,
        seed: 3,
    };
    let options = SampleOptions { samples: 3, seed_tokens: 20, tokens: 15, lanes: 1, segment: 7, sampling };
    let samples = draw_samples(&model, &stream, &options, |_| {}).unwrap();
    for sample in &samples {
        assert_eq!(sample.context, ids(&stream, sample.start, 20));
        assert_eq!(sample.reference, ids(&stream, sample.start + 20, 15));
        assert_eq!(sample.continuation.len(), 15);
    }
    assert_ne!(samples[0], samples[1]);
    // None is discarded: fewer samples are the first of more.
    let two = draw_samples(&model, &stream, &SampleOptions { samples: 2, ..options }, |_| {}).unwrap();
    assert_eq!(two, samples[..2]);
    for lanes in [2, 3, 64] {
        let mut told = Vec::new();
        let options = SampleOptions { lanes, ..options };
        assert_eq!(draw_samples(&model, &stream, &options, |done| told.push(done)).unwrap(), samples);
        assert!(told.is_sorted() && told.last() == Some(&45), "{lanes}: {told:?}");
    }
    let long = SampleOptions { tokens: 400, ..options };
    assert_eq!(draw_samples(&model, &stream, &long, |_| {}).unwrap_err().exit_code(), 64);
}
