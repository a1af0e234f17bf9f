//! Averages of the weights of a small language model.

use std::fs;

use segue_collectives::local::Local;
use segue_dataloader::{BuildOptions, Preset, Split, TokenizerChoice, build};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use segue_trainer::engine::{Event, Watch};
use segue_trainer::families::language_model::{self, Batch, Objective, Sources, Validation};
use segue_trainer::families::{Job, MODELS};
use segue_trainer::{Compute, libtorch};
use tch::{Kind, Tensor};

use super::source::{symbols, text};

/// Row A9: the text that decides is as many tokens of the training split as there are to validate on, from its beginning, with the loss of a
/// naive pass over them; a run tells it of each set of weights.
#[test]
fn a09_the_beginning_of_the_training_split_decides_where_it_is_told_to() {
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
    let sources = Sources::open(&config).unwrap();
    let tokenizer = sources.tokenizer();
    config.model.fit_vocabulary(tokenizer.vocab_size(), tokenizer.eos_id()).unwrap();
    let mut model = language_model::build(&config, Compute::CPU).unwrap();
    let evaluate = |found: Option<Validation>, model: &mut Box<dyn Objective>| {
        let evaluation =
            found.unwrap().evaluate(model.as_mut(), &config, &Local, &mut Watch::new(&mut |_, _| {}));
        let evaluation = evaluation.unwrap();
        (evaluation.loss, evaluation.targets)
    };
    let (loss, targets) = evaluate(Validation::of_training(&config, &sources).unwrap(), &mut model);
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
    let (other, _) = evaluate(Validation::open(&config, &sources).unwrap(), &mut model);
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
    for row in &rows {
        assert_eq!(names(row, "decided_by"), names(row, "losses"));
        assert_ne!(row["decided_by"], row["losses"]);
    }
    assert_eq!(names(&rows[1], "losses"), ["long", "short"]);
    let decides = &rows[1]["decided_by"];
    let switched = decides["short"].as_f64() <= decides["long"].as_f64();
    assert_eq!(rows[1]["events"].as_array().unwrap().len(), usize::from(switched));
}
