//! T8: a lag longer than the training segment, and what a longer memory makes of it.

use segue_collectives::local::Local;
use segue_configs::Config;
use segue_dataloader::sections::TextEvalConfig;
use segue_engine::Engine;
use segue_kernels::{Parameters, libtorch};
use segue_language as objective;
use segue_language::{Batch, Objective};
use segue_random::{Purpose, Stream};
use segue_transfo_xl::LanguageModel;
use tch::{Kind, Tensor};

/// Tokens of a training segment, and positions of memory while training.
const SEGMENT: usize = 16;
/// How far back a token is copied from: beyond the segment, and in sight of three quarters of its queries while training.
const LAG: usize = 20;
const WORDS: u64 = 8;
/// Share of tokens that are drawn anew.
const FRESH: f64 = 0.1;
const LANES: usize = 32;

/// Lanes of text in which nearly every token is the one [`LAG`] before.
struct Texts {
    lanes: Vec<(Stream, Vec<i64>)>,
}

impl Texts {
    fn new(seed: u64) -> Self {
        let lane = |lane| (Stream::new(seed, Purpose::Bench, &[lane]), Vec::new());
        Self { lanes: (0..LANES as u64).map(lane).collect() }
    }

    /// Tokens `start..start + SEGMENT` of each lane and the token after each.
    fn batch(&mut self, start: usize) -> Batch {
        let shape = [LANES as i64, SEGMENT as i64];
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for (draws, tokens) in &mut self.lanes {
            while tokens.len() <= start + SEGMENT {
                let at = tokens.len() as u64;
                let copied = tokens.len().checked_sub(LAG).map(|before| tokens[before]);
                let fresh = (draws.bits(2 * at) % WORDS) as i64;
                tokens.push(copied.filter(|_| draws.uniform(2 * at + 1) > FRESH).unwrap_or(fresh));
            }
            inputs.extend_from_slice(&tokens[start..start + SEGMENT]);
            targets.extend_from_slice(&tokens[start + 1..start + SEGMENT + 1]);
        }
        Batch::new(Tensor::from_slice(&inputs).view(shape), Tensor::from_slice(&targets).view(shape))
    }
}

/// A model of two layers after `steps` steps.
fn trained(encoding: &[&str], seed: u64, steps: u64) -> (Config, LanguageModel) {
    let seed_key = format!("train.seed={seed}");
    let steps_key = format!("train.steps={steps}");
    let base = [
        "model.vocab_size=8",
        "model.d_model=32",
        "model.n_head=2",
        "model.d_inner=64",
        "model.n_layer=2",
        "model.mem_len=16",
        "model.dropout=0.0",
        "model.init_std=0.1",
        "model.memory_start=empty",
        "train.lanes=32",
        "train.micro_batch=32",
        "train.segment=16",
        "optim.lr=3e-3",
        "schedule.kind=cosine",
        "schedule.warmup=20",
        &seed_key,
        &steps_key,
    ];
    let overrides: Vec<String> = base.iter().chain(encoding).map(|s| s.to_string()).collect();
    let config = segue_families::MODELS.load(None, &overrides).unwrap().config;
    let mut engine =
        Engine::new(&config, objective::build(&config, segue_kernels::Compute::CPU).unwrap(), &Local)
            .unwrap();
    let mut texts = Texts::new(seed);
    for step in 1..=steps {
        engine.step(step, &vec![texts.batch((step as usize - 1) * SEGMENT)]).unwrap();
    }
    let own = engine.learner.parameters();
    let values = own.tensors().iter().map(|t| t.detach().copy()).collect();
    let parameters = Parameters::from_tensors(own.specs().to_vec(), values, Kind::Float);
    let model = LanguageModel::from_parameters(config.model.get().unwrap(), parameters);
    (config.clone(), model)
}

/// Perplexity of other text, with so much memory.
fn perplexity(config: &Config, model: &mut LanguageModel, mem_len: usize) -> f64 {
    model.look(Some(&TextEvalConfig {
        mem_len: mem_len as i64,
        ..config.own.get::<TextEvalConfig>().into_owned()
    }));
    let mut texts = Texts::new(1000);
    let mut memory = model.memory_start(LANES as i64);
    let (skipped, measured) = (10, 10);
    let mut sum = 0.0;
    for step in 0..skipped + measured {
        let scores = model.score(&texts.batch(step * SEGMENT), &memory);
        memory = scores.memory;
        if step >= skipped {
            sum += scores.nll.mean(Kind::Double).double_value(&[]);
        }
    }
    (sum / measured as f64).exp()
}

/// Memories of the evaluation: below the lag, at it, and beyond it.
const MEMORIES: [usize; 5] = [8, 16, LAG, 32, 48];

/// Perplexities at [`MEMORIES`] for each of three seeds.
fn table(encoding: &[&str]) -> Vec<[f64; MEMORIES.len()]> {
    libtorch::set_threads(1);
    let row = |seed| {
        let (config, mut model) = trained(encoding, seed, 700);
        let row = MEMORIES.map(|mem_len| perplexity(&config, &mut model, mem_len));
        println!("{encoding:?}, seed {seed}, memory {MEMORIES:?}: {row:.3?}");
        row
    };
    [1, 2, 3].map(row).to_vec()
}

/// A quarter of the queries does not see the lag while training; with a longer memory all do, and all copy.
/// Row T8.
#[test]
fn relative_positions_gain_once_the_memory_is_longer_than_the_lag() {
    for [short, training, lag, more, most] in table(&["model.attn_type=relative"]) {
        assert!(training < short && lag < 0.8 * training && more < 0.8 * training && most < 0.9 * training);
    }
}

/// A model that has learnt something of the lag from the three quarters of the queries that see it, and does so with the memory it was trained with;
/// a longer one only costs. Guessing has a perplexity of 8.
fn gains_nothing(encoding: &[&str]) {
    for [short, training, longer @ ..] in table(encoding) {
        assert!(training < 7.0 && training < 0.9 * short, "it has learnt nothing: {short}, {training}");
        assert!(longer.iter().all(|perplexity| *perplexity > training), "{longer:?} after {training}");
    }
}

/// The table is as long as the training segment: all that lies beyond looks alike.
/// Row T8.
#[test]
fn shaws_table_gains_nothing_beyond_its_end() {
    gains_nothing(&["model.attn_type=shaw", "model.max_klen=16"]);
}

/// Row T8.
#[test]
fn absolute_positions_gain_nothing() {
    gains_nothing(&["model.attn_type=absolute"]);
}

/// Row T8.
#[test]
fn learned_positions_gain_nothing() {
    gains_nothing(&["model.attn_type=learned"]);
}
