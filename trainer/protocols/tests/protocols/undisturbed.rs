//! Row A4: evaluations of averages leave no trace in training. Whole runs of language models that drop, carry a state and forget it now and then,
//! with and without evaluations: the same bits in the loss and the gradient of every step, and in what is left at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use segue_collectives::simulated;
use segue_dataloader::{BuildOptions, Preset, TokenizerChoice, build};
use segue_engine::Event;
use segue_engine::checkpoint::read_tensors;
use segue_families::MODELS;
use segue_family::Job;
use segue_kernels::{Compute, libtorch};
use segue_language::Sources;
use segue_tokenizer::{TokenizerKind, TrainOptions};
use tch::Tensor;

use super::source::{symbols, text};

const STEPS: usize = 50;

pub const COMMON: [&str; 9] = [
    "train.lanes=4",
    "train.micro_batch=2",
    "train.segment=9",
    "train.steps=50",
    "optim.lr=0.01",
    "checkpoint.every=50",
    "eval.lanes=2",
    "eval.segment=16",
    "log.tensorboard=false",
];
pub const LSTM: [&str; 8] = [
    "model.model_type=lstm",
    "model.d_model=8",
    "model.mogrifier_rounds=2",
    "model.input_dropout=0.3",
    "model.inter_layer_dropout=0.1",
    "model.state_dropout=0.3",
    "model.output_dropout=0.3",
    "train.drop_state=0.05",
];
const TRANSFORMER: [&str; 6] = [
    "model.d_model=8",
    "model.n_head=2",
    "model.d_inner=12",
    "model.mem_len=10",
    "model.dropout=0.3",
    // Evaluations see farther than training does.
    "eval.mem_len=20",
];

/// What a run is: loss and norm of the gradient of every step, and its tensors after the last one.
struct Trained {
    steps: Vec<[u64; 2]>,
    /// Bits of the tables: a model has other names for some of them than training, and some twice.
    weights: BTreeSet<Vec<u32>>,
    files: BTreeMap<String, Vec<u8>>,
}

/// A corpus of a known source, as a key of a run.
pub fn corpus(folder: &Path) -> String {
    let path = |name: &str| folder.join(name);
    for (name, length, seed) in [("train", 1500, 7), ("valid", 120, 8)] {
        fs::write(path(name), text(&symbols(length, seed), |_| false)).unwrap();
    }
    let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Byte));
    let valid = vec![path("valid")];
    let train = vec![path("train")];
    let options =
        BuildOptions { tokenizer, valid, ..BuildOptions::new(Preset::Documents, train, path("corpus")) };
    build(&options, &()).unwrap();
    format!("data.corpus={}", path("corpus").display())
}

/// Trains in the folder `run` as the keys say. Gives loss and norm of the gradient of every step, and how many sets of weights were evaluated.
pub fn train_in(run: &Path, corpus: &str, keys: &[&str], ranks: usize) -> (Vec<[u64; 2]>, usize) {
    let own = [corpus.to_string(), format!("run.dir={}", run.display())];
    let keys: Vec<String> = COMMON.iter().chain(keys).map(|key| key.to_string()).chain(own).collect();
    let mut config = MODELS.load(None, &keys).unwrap().config;
    let sources = Sources::open(&config.train, &config.model, &config.own).unwrap();
    let tokenizer = sources.tokenizer();
    config.model.fit_vocabulary(tokenizer.vocab_size(), tokenizer.eos_id()).unwrap();
    let told = simulated::run(ranks, |comm| {
        libtorch::set_threads(1);
        let (mut steps, mut evaluated) = (Vec::new(), 0);
        let mut on_event = |event: Event| match event {
            Event::Step { report, .. } => steps.push([report.loss.to_bits(), report.grad_norm.to_bits()]),
            Event::Evaluated { measures, .. } => {
                evaluated += measures.row["average"]["losses"].as_object().map_or(1, |losses| losses.len());
            }
            _ => {}
        };
        let sources = Sources::open(&config.train, &config.model, &config.own).unwrap();
        sources.train(&config, Compute::CPU, comm, &|| false, &mut on_event).unwrap();
        (steps, evaluated)
    });
    assert!(told.iter().all(|other| *other == told[0]));
    told.into_iter().next().unwrap()
}

/// The same in a folder of its own.
fn train(corpus: &str, keys: &[&str], ranks: usize) -> (Trained, usize) {
    let run = tempfile::tempdir().unwrap();
    let (steps, evaluated) = train_in(run.path(), corpus, keys, ranks);
    assert_eq!(steps.len(), STEPS);
    let last = run.path().join(format!("checkpoints/step-{STEPS:08}"));
    let beside = last.join("training_weights.safetensors");
    let trained = if beside.is_file() { beside } else { last.join("model.safetensors") };
    let bits = |tensor: Tensor| -> Vec<u32> {
        Vec::<f32>::try_from(tensor.reshape([-1])).unwrap().into_iter().map(f32::to_bits).collect()
    };
    let weights = read_tensors(&trained).unwrap().tensors.into_values().map(bits).collect();
    let entries = fs::read_dir(&last).unwrap().map(|entry| entry.unwrap());
    let of_training = |name: &str| name.starts_with("carry") || name.starts_with("optimizer");
    let files = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let files =
        files.filter(|(name, _)| of_training(name)).map(|(name, path)| (name, fs::read(path).unwrap()));
    (Trained { steps, weights, files: files.collect() }, evaluated)
}

/// Row A4.
#[test]
fn runs_have_the_same_bits_with_and_without_evaluations_of_averages() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    // With keys of averages and of ranks, and as many evaluations at least.
    let evaluated: [(&[&str], usize, usize); 5] = [
        (&["average.kind=two_tailed", "eval.every=5"], 1, 20),
        (&["average.kind=two_tailed", "eval.every=5", "average.decide_by=training"], 1, 20),
        (&["average.kind=two_tailed", "average.variant=core", "eval.every=3"], 2, 20),
        (&["average.start=7", "average.beside_trained=true", "eval.every=5"], 1, 19),
        (&["average.kind=exponential", "average.beta=0.9", "eval.every=2", "checkpoint.best=true"], 1, 25),
    ];
    for (model, attends) in [(&LSTM[..], false), (&TRANSFORMER, true)] {
        let (undisturbed, once) = train(&corpus, model, 1);
        assert_eq!(once, 1, "a run is evaluated at its end");
        // There is something to disturb: masks that fall otherwise make another run.
        let (other, _) = train(&corpus, &[model, &["train.seed=2"]].concat(), 1);
        assert!(other.steps[STEPS - 1] != undisturbed.steps[STEPS - 1]);
        assert!(undisturbed.files.keys().any(|name| name.starts_with("carry")));
        // On a Transformer-XL two of them will do: one that reads the training split too, and one that keeps the best weights.
        let chosen = |keys: &[&str]| {
            !attends
                || keys.iter().any(|key| ["average.decide_by=training", "checkpoint.best=true"].contains(key))
        };
        for (keys, ranks, at_least) in evaluated.into_iter().filter(|(keys, ..)| chosen(keys)) {
            let (found, evaluations) = train(&corpus, &[model, keys].concat(), ranks);
            assert!(evaluations >= at_least, "{keys:?}: {evaluations}");
            assert!(found.steps == undisturbed.steps, "{model:?}, {keys:?}");
            assert!(found.weights.is_subset(&undisturbed.weights), "{model:?}, {keys:?}");
            // The folder of a Transformer-XL also has the frequencies of its sinusoids.
            let beside = undisturbed.weights.difference(&found.weights).count();
            assert_eq!(beside, usize::from(attends), "{model:?}, {keys:?}");
            assert!(found.files == undisturbed.files, "{model:?}, {keys:?}");
        }
    }
}
