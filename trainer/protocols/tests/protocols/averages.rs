//! Averages of the weights of a small language model. At a constant rate: the two-tailed one, whose length nobody sets, beside all tails and
//! exponential averages of a grid (Melis 2022, §3.6).

use std::fs;

use segue_collectives::local::Local;
use segue_configs::{Config, TwoTailedVariant};
use segue_dataloader::{BuildOptions, Preset, Split, TokenStream, TokenizerChoice, build};
use segue_engine::optim::averaging::{Averaging, CandidateLoss, Exponential, StandIn, Tail, TwoTailed};
use segue_engine::{Event, Watch};
use segue_families::MODELS;
use segue_family::Job;
use segue_kernels::{Compute, Parameters, libtorch};
use segue_language::{Batch, NextToken, Objective, Sources, Validation};
use segue_lstm::{LanguageModel, LstmConfig};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use serde_json::json;
use tch::{Kind, Tensor};

use super::source::{SYMBOLS, config, fresh, stream, symbols, text, train_by};

const STEPS: u64 = 2000;
const PERIOD: u64 = 50;
/// After a tenth of the steps.
const EARLY: u64 = STEPS / 10;
/// High for segments of 20 in one lane: the trained weights wander far.
const RATE: f64 = 0.032;
/// Where a rate that drops does so.
const DROP: u64 = STEPS / 2;
/// Evaluations at the end whose mean the trained weights are judged by.
const LAST: usize = 10;
const STARTS: [u64; 9] = [200, 400, 700, 1000, 1200, 1400, 1600, 1800, 1900];
const DECAYS: [f64; 7] = [0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999];

/// Symbols that no model has seen, as one batch of 80 lanes.
fn validation(length: usize) -> Batch {
    let ids: Vec<i64> = symbols(length, 8).into_iter().map(|symbol| symbol as i64).collect();
    let lanes = Tensor::from_slice(&ids).view([80, -1]);
    let segment = lanes.size()[1] - 1;
    Batch::new(lanes.narrow(1, 0, segment), lanes.narrow(1, 1, segment))
}

/// Nats a symbol.
fn loss(model: &LanguageModel, valid: &Batch) -> f64 {
    let memory = NextToken::memory_start(model, valid.inputs.size()[0]);
    model.score(valid, &memory).nll.mean(Kind::Double).double_value(&[])
}

/// The same of each weight set that an averaging offers.
fn losses(
    model: &LanguageModel,
    parameters: &Parameters,
    valid: &Batch,
    averaging: &dyn Averaging,
) -> Vec<f64> {
    let of = |candidate: &segue_engine::optim::averaging::Candidate| {
        let _stand_in = StandIn::new(candidate.weights, parameters, parameters);
        loss(model, valid)
    };
    averaging.candidates().iter().map(of).collect()
}

fn least(losses: &[f64]) -> (usize, f64) {
    let place = (0..losses.len()).min_by(|a, b| losses[*a].total_cmp(&losses[*b])).unwrap();
    (place, losses[place])
}

/// What a run comes to, in nats a symbol.
struct Found {
    /// The two-tailed average, after a tenth of the steps and at the end.
    two_tailed: [f64; 2],
    /// The trained weights, after a tenth of the steps and as the mean of the last evaluations: a single one is chance.
    trained: [f64; 2],
    /// All tails, at the end.
    tails: Vec<f64>,
    /// All exponential averages, after a tenth of the steps and at the end.
    exponential: [Vec<f64>; 2],
    /// The mean of the last evaluations of trained weights whose rate has dropped, without an average.
    dropped: f64,
}

/// Rectified Adam without a first moment, as the thesis' chapter 4 trains, in one lane.
fn radam(schedule: &str, more: &[String]) -> Config {
    let own = [format!("optim.lr={RATE}"), format!("train.steps={STEPS}")];
    let rest = ["optim.kind=radam", "optim.beta1=0", "train.lanes=1", "train.segment=20"].map(String::from);
    config(schedule, &[&own[..], &rest, more].concat())
}

fn model() -> LanguageModel {
    fresh(&LstmConfig { vocab_size: SYMBOLS, d_model: 32, ..Default::default() }, Kind::Float)
}

/// Trains at a constant rate, and anew at one that drops.
fn compare() -> Found {
    let folder = tempfile::tempdir().unwrap();
    // Bytes are ids.
    let train: Vec<u8> = symbols(80_000, 7).into_iter().map(|symbol| symbol as u8).collect();
    let train = stream(&folder, "train", &train);
    let valid = validation(8_000);
    let model = model();
    let parameters = NextToken::parameters(&model);
    let mut two_tailed = TwoTailed::new(TwoTailedVariant::Extended, 3, PERIOD);
    let mut tails: Vec<Tail> = STARTS.iter().map(|start| Tail::new(*start, 0, PERIOD)).collect();
    let mut exponential: Vec<Exponential> =
        DECAYS.iter().map(|decay| Exponential::new(*decay, false, parameters)).collect();
    let of_all = |averages: &[Exponential]| -> Vec<f64> {
        averages.iter().map(|average| losses(&model, parameters, &valid, average)[0]).collect()
    };
    let (mut reported, mut raw, mut early) = (Vec::new(), Vec::new(), Vec::new());
    train_by(&radam("constant", &[]), &model, &train, |step| {
        two_tailed.fold(step, parameters);
        tails.iter_mut().for_each(|tail| tail.fold(step, parameters));
        exponential.iter_mut().for_each(|average| average.fold(step, parameters));
        if step.is_multiple_of(PERIOD) {
            let found: Vec<CandidateLoss> =
                losses(&model, parameters, &valid, &two_tailed).into_iter().map(Into::into).collect();
            reported.push(two_tailed.observe(step, &found, parameters).loss);
            raw.push(loss(&model, &valid));
        }
        if step == EARLY {
            early = of_all(&exponential);
        }
    });
    let tenth = (EARLY / PERIOD) as usize - 1;
    let last = &raw[raw.len() - LAST..];
    Found {
        two_tailed: [reported[tenth], reported[reported.len() - 1]],
        trained: [raw[tenth], last.iter().sum::<f64>() / LAST as f64],
        tails: tails.iter().map(|tail| losses(&model, parameters, &valid, tail)[0]).collect(),
        exponential: [early, of_all(&exponential)],
        dropped: dropped(&train, &valid),
    }
}

fn dropped(train: &TokenStream, valid: &Batch) -> f64 {
    let (model, mut last) = (model(), Vec::new());
    let config = radam("stepped", &[format!("schedule.drop_after=[{DROP}]")]);
    train_by(&config, &model, train, |step| {
        if step > STEPS - LAST as u64 * PERIOD && step.is_multiple_of(PERIOD) {
            last.push(loss(&model, valid));
        }
    });
    last.iter().sum::<f64>() / LAST as f64
}

/// Row A14: at the end as good as the best of either grid, which had to be tried, and better than the trained weights by 0.03 nats; early on better than the
/// exponential average that ends best, which still remembers the start. Trained weights are found 0.05 nats behind. That it is below these early on too is
/// not found here: while their loss falls fast no average is, and they are what is reported, 2.0312 nats. Row A8: a rate that drops, where somebody knew
/// when, comes to no less than the average comes to without (Melis 2022, §3.6: 3.93 and 3.92 nats a word): found are 1.5354 and 1.5326 nats.
/// Rows A8, A14.
#[test]
fn the_two_tailed_average_is_as_good_as_the_best_of_a_grid_and_so_at_any_time() {
    let Found { two_tailed: [early, end], trained: [early_raw, raw], tails, exponential, dropped } =
        compare();
    let ((start, tail), (decay, average)) = (least(&tails), least(&exponential[1]));
    println!(
        "nats a symbol: two-tailed {end:.4}, trained {raw:.4}, best tail {tail:.4} (from {}), best exponential {average:.4} ({}), \
         dropped rate {dropped:.4}; after {EARLY} steps two-tailed {early:.4}, trained {early_raw:.4}, exponential {:.4}",
        STARTS[start], DECAYS[decay], exponential[0][decay]
    );
    assert!(end <= tail.min(average) + 0.01, "{end}, {tail}, {average}");
    assert!(end <= raw - 0.03, "{end}, {raw}");
    assert!(early < exponential[0][decay], "{early}, {}", exponential[0][decay]);
    assert!(end <= dropped + 0.01, "{end}, {dropped}");
}

/// Row A9: the text that decides is as many tokens of the training split as there are to validate on, from its beginning, with the loss of a
/// naive pass over them; a run tells it of each set of weights.
/// Row A9.
#[test]
fn the_beginning_of_the_training_split_decides_where_it_is_told_to() {
    libtorch::set_threads(1);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, length, seed) in [("train", 3000, 7), ("valid", 500, 8)] {
        fs::write(path(name), text(&symbols(length, seed), |_| false)).unwrap();
    }
    let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Byte));
    let options = BuildOptions {
        tokenizer,
        valid: vec![path("valid")],
        ..BuildOptions::new(Preset::Documents, vec![path("train")], path("corpus"))
    };
    build(&options, &()).unwrap();
    let (corpus, run) =
        (format!("data.corpus={}", path("corpus").display()), format!("run.dir={}", path("run").display()));
    let keys = [
        &corpus,
        &run,
        "model.model_type=lstm",
        "model.d_model=8",
        "train.lanes=2",
        "train.micro_batch=2",
        "train.segment=20",
        "train.steps=10",
        "eval.lanes=1",
        "eval.segment=64",
        "eval.every=5",
        "average.kind=two_tailed",
        "average.variant=core",
        "average.decide_by=training",
    ];
    let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
    let mut config = MODELS.load(None, &keys).unwrap().config;
    let sources = Sources::open(&config.train, &config.model, &config.own).unwrap();
    let tokenizer = sources.tokenizer();
    config.model.fit_vocabulary(tokenizer.vocab_size(), tokenizer.eos_id()).unwrap();
    let mut model = segue_language::build(&config, Compute::CPU).unwrap();
    let evaluate = |found: Option<Validation>, model: &mut Box<dyn Objective>| {
        let (found, mut seen) = (found.unwrap(), |_, _| {});
        let mut watch = Watch::new(&mut seen);
        let evaluation = found.evaluate(model.as_mut(), &config.train, &config.own, &Local, &mut watch);
        let evaluation = evaluation.unwrap();
        (evaluation.loss, evaluation.targets)
    };
    let (loss, targets) = evaluate(Validation::of_training(&config.own, &sources).unwrap(), &mut model);
    let corpus = &sources.corpora()[0];
    let naive = |split: Split, count: usize, model: &dyn Objective| {
        let mut ids = vec![0; count];
        corpus.tokens(split).unwrap().read(0, &mut ids).unwrap();
        let ids = Tensor::from_slice(&ids).view([1, -1]);
        let (inputs, targets) = (ids.narrow(1, 0, count as i64 - 1), ids.narrow(1, 1, count as i64 - 1));
        let nll = model.score(&Batch::new(inputs, targets), &model.memory_start(1)).nll;
        nll.mean(Kind::Double).double_value(&[])
    };
    let count = corpus.tokens(Split::Valid).unwrap().len() as usize;
    assert_eq!(targets as usize, count - 1);
    let expected = naive(Split::Train, count, model.as_ref());
    assert!((loss - expected).abs() < 1e-6, "{loss}, expected {expected}");
    // The other text says something else.
    let (other, _) =
        evaluate(Validation::open(&config.train, &config.model, &config.own, &sources).unwrap(), &mut model);
    assert!((other - naive(Split::Valid, count, model.as_ref())).abs() < 1e-6 && (other - loss).abs() > 1e-5);
    let mut rows = Vec::new();
    let mut on_event = |event: Event| {
        if let Event::Evaluated { measures, .. } = event {
            rows.push(measures.row["average"].clone());
        }
    };
    sources.train(&config, Compute::CPU, &Local, &|| false, &mut on_event).unwrap();
    let names = |row: &serde_json::Value, key: &str| -> Vec<String> {
        row[key].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(rows.len(), 2);
    // Row A3: the first evaluation always makes the one average of five steps the long one; what the second decides says how long they are then.
    assert_eq!(rows[0]["lengths"], json!({ "long": 5 }));
    let switches = !rows[1]["events"].as_array().unwrap().is_empty();
    let after = if switches { json!({ "long": 5 }) } else { json!({ "short": 5, "long": 10 }) };
    assert_eq!(rows[1]["lengths"], after);
    for row in &rows {
        assert_eq!(names(row, "decided_by"), names(row, "losses"));
        assert_ne!(row["decided_by"], row["losses"]);
    }
    assert_eq!(names(&rows[1], "losses"), ["long", "short"]);
    let decides = &rows[1]["decided_by"];
    let switched = decides["short"].as_f64() <= decides["long"].as_f64();
    assert_eq!(rows[1]["events"].as_array().unwrap().len(), usize::from(switched));
}
