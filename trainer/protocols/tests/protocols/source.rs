//! Texts of known sources, and models that are trained on them here.

use std::fs;

use segue_configs::Config;
use segue_dataloader::sections::SegmentConfig;
use segue_dataloader::{BuildOptions, Corpus, Preset, Split, TokenStream, TokenizerChoice, build};
use segue_engine::optim::{Adam, Optimizer, Schedule, Update};
use segue_families::MODELS;
use segue_kernels::noise::Noise;
use segue_kernels::{Parameters, libtorch};
use segue_language::{Batch, NextToken, Objective};
use segue_lstm::{CellKind, ForgetBias, LanguageModel, LstmConfig, Wiring, specs};
use segue_protocols::Walk;
use segue_random::{Purpose, Stream};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use tch::{Kind, Tensor};

/// Ids of the byte tokenizer.
const WORDS: usize = 256;
/// Symbols of the sources: 'a', 'b', ..
pub const SYMBOLS: usize = 8;

/// A corpus of these bytes; each is a token.
pub fn stream(folder: &tempfile::TempDir, name: &str, text: &[u8]) -> TokenStream {
    libtorch::set_threads(1);
    let (input, output) = (folder.path().join(name), folder.path().join(format!("{name}-corpus")));
    fs::write(&input, text).unwrap();
    let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Byte));
    let options =
        BuildOptions { tokenizer, ..BuildOptions::new(Preset::Documents, vec![input], output.clone()) };
    build(&options, &()).unwrap();
    Corpus::open(&output).unwrap().tokens(Split::Train).unwrap()
}

/// Symbols of a source of order 2: P(a | b, c) ∝ exp(2 sin(1.3a + 2.1b + 3.7c)), b before a and c before b. Its entropy is 1.513412798 nats.
pub fn symbols(length: usize, seed: u64) -> Vec<usize> {
    let draws = Stream::new(seed, Purpose::Synthetic, &[]);
    let (mut b, mut c) = (0, 0);
    let draw = |i: u64, b: usize, c: usize| {
        let weight = |a: usize| (2.0 * (1.3 * a as f64 + 2.1 * b as f64 + 3.7 * c as f64).sin()).exp();
        let mut left = draws.uniform(i) * (0..SYMBOLS).map(weight).sum::<f64>();
        let symbol = (0..SYMBOLS).find(|&a| {
            left -= weight(a);
            left < 0.0
        });
        symbol.unwrap_or(SYMBOLS - 1)
    };
    (0..length as u64)
        .map(|i| {
            let a = draw(i, b, c);
            (b, c) = (a, b);
            a
        })
        .collect()
}

/// The same as text, each symbol a replaced by (3a + 1) mod 8 where `relabelled` says so of its place.
pub fn text(symbols: &[usize], relabelled: impl Fn(usize) -> bool) -> Vec<u8> {
    let letter =
        |(place, &a): (usize, &usize)| b'a' + if relabelled(place) { (3 * a + 1) % SYMBOLS } else { a } as u8;
    symbols.iter().enumerate().map(letter).collect()
}

/// The networks of chapter 4 (Melis 2023): two residual layers of 32 over the symbols alone, biases by Chrono.
pub fn networks() -> [(&'static str, LstmConfig); 4] {
    let plain = LstmConfig {
        vocab_size: SYMBOLS,
        d_model: 32,
        wiring: Wiring::Residual,
        forget_bias: ForgetBias::Chrono,
        t_max: 32.0,
        ..Default::default()
    };
    let mogrified =
        |config: &LstmConfig| LstmConfig { mogrifier_rounds: 5, mogrifier_rank: 4, ..config.clone() };
    let rewired = LstmConfig { cell: CellKind::Rewired, ..plain.clone() };
    let both = mogrified(&rewired);
    [("LSTM", plain.clone()), ("Mogrifier", mogrified(&plain)), ("rewired", rewired), ("both", both)]
}

pub fn small() -> LstmConfig {
    LstmConfig { vocab_size: WORDS, d_model: 32, ..Default::default() }
}

pub fn fresh(config: &LstmConfig, kind: Kind) -> LanguageModel {
    LanguageModel::from_parameters(config, Parameters::initialise(specs(config), 5, kind))
}

/// A configuration with these keys besides those of a constant rate, or of another `schedule` that they name.
pub fn config(schedule: &str, keys: &[String]) -> Config {
    let own = [format!("schedule.kind={schedule}"), "train.micro_batch=1".into()];
    MODELS.load(None, &[&own[..], keys].concat()).unwrap().config
}

/// Trains on 16 lanes of a text that begin at even distances, without dropout, by Adam.
pub fn train(model: &LanguageModel, text: &TokenStream, steps: u64, lr: f64) {
    let keys = [
        format!("optim.lr={lr}"),
        format!("train.steps={steps}"),
        "train.lanes=16".into(),
        "train.segment=35".into(),
    ];
    train_by(&config("constant", &keys), model, text, |_| {});
}

/// The same as a configuration has it, by any rule of Adam's kind; `made` hears of every step, from 1.
pub fn train_by(config: &Config, model: &LanguageModel, text: &TokenStream, mut made: impl FnMut(u64)) {
    let (lanes, segment) = (config.train.lanes as u64, config.own.get::<SegmentConfig>().segment);
    let parameters = NextToken::parameters(model);
    let mut optimizer = Adam::new(&config.optim, parameters);
    let schedule = Schedule::new(&config.schedule, config.peak_lr(), config.schedule_steps(), None);
    let lane = (text.len() - 1) / lanes;
    let per_lane = lane / segment as u64;
    let mut memory = NextToken::memory_start(model, lanes as i64);
    for step in 1..=config.train.steps {
        let mut ids = Vec::new();
        for i in 0..lanes {
            let mut row = vec![0; segment + 1];
            text.read(i * lane + (step - 1) % per_lane * segment as u64, &mut row).unwrap();
            ids.extend(row);
        }
        let ids = Tensor::from_slice(&ids).view([lanes as i64, -1]);
        let batch = Batch::new(ids.narrow(1, 0, segment as i64), ids.narrow(1, 1, segment as i64));
        let loss = model.loss(&batch, &memory, None::<&Noise>);
        loss.sum.backward();
        memory = loss.memory;
        let grads: Vec<Tensor> = parameters.tensors().iter().map(Tensor::grad).collect();
        let lr = schedule.rate(step);
        let update = Update { grads: &grads, divisor: loss.weight, lr, reached: None };
        optimizer.update(parameters, &update).unwrap();
        parameters.tensors().iter().for_each(|tensor| tensor.shallow_clone().zero_grad());
        made(step);
    }
}

pub fn walk(lanes: usize, group: usize, segment: usize) -> Walk {
    Walk { lanes, group, segment, tokens: u64::MAX }
}

/// What `f` gives on each of 1, 2 and 4 ranks that are threads of this process, all alike: of one.
pub fn on_ranks<T: PartialEq + std::fmt::Debug + Send>(
    f: impl Fn(&dyn segue_collectives::Communicator) -> T + Sync,
) -> T {
    let mut found: Option<T> = None;
    for ranks in [1, 2, 4] {
        for result in segue_collectives::simulated::run(ranks, |comm| f(comm)) {
            match &found {
                Some(first) => assert_eq!(&result, first, "{ranks} ranks"),
                None => found = Some(result),
            }
        }
    }
    found.expect("ranks give something")
}
