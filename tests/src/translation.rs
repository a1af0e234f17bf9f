//! A language to translate from: strings of letters, whose translation writes them backwards. A model of it trains in seconds.

use std::fs;
use std::path::Path;

use crate::{Workplace, alone, succeed};

/// Lines of one to `longest` of ten letters, and the same backwards.
pub fn strings(count: usize, longest: u64, seed: u64) -> [String; 2] {
    let mut state = seed;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut forwards, mut backwards) = (String::new(), String::new());
    for _ in 0..count {
        let letters: Vec<String> =
            (0..=draw(longest)).map(|_| char::from(b'a' + draw(10) as u8).to_string()).collect();
        forwards += &(letters.join(" ") + "\n");
        backwards += &(letters.iter().rev().cloned().collect::<Vec<_>>().join(" ") + "\n");
    }
    [forwards, backwards]
}

/// Writes `NAME.forth` and `NAME.back`.
pub fn write_pairs(folder: &Path, name: &str, count: usize, longest: u64, seed: u64) {
    let [forwards, backwards] = strings(count, longest, seed);
    fs::write(folder.join(format!("{name}.forth")), forwards).expect("a file");
    fs::write(folder.join(format!("{name}.back")), backwards).expect("a file");
}

/// A workplace with a corpus of strings, named `strings`.
pub fn place(train: usize, longest: u64) -> Workplace {
    let place = Workplace::new();
    write_pairs(place.dir.path(), "train", train, longest, 1);
    write_pairs(place.dir.path(), "val", 60, longest, 2);
    write_pairs(place.dir.path(), "test", 30, longest, 3);
    let [train, valid, test, output] = ["train", "val", "test", "strings"].map(|name| place.text(name));
    let command = ["data", "build", "--preset", "pairs", "--source", "forth", "--target", "back"];
    let places = ["--train", &train, "--valid", &valid, "--test", &test, "--output", &output];
    succeed(alone(&[&command[..], &places, &["--tokenizer-kind", "word"]].concat()));
    place
}

/// The settings of a tiny model.
const TINY: [&str; 17] = [
    "model.model_type=marian",
    "model.d_model=16",
    "model.encoder_layers=1",
    "model.decoder_layers=2",
    "model.encoder_attention_heads=2",
    "model.decoder_attention_heads=2",
    "model.encoder_ffn_dim=24",
    "model.decoder_ffn_dim=24",
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "data.batch_tokens=60",
    "train.lanes=4",
    "optim.lr=3e-3",
    "schedule.kind=constant",
    "log.every=1",
    "eval.beams=2",
    "eval.lower_case=true",
];

/// Arguments that train a tiny model in the run folder `run`.
pub fn train(place: &Workplace, run: &str, more: &[&str]) -> Vec<String> {
    let (run, corpus) =
        (format!("run.dir={}", place.text(run)), format!("data.corpus={}", place.text("strings")));
    let own = ["pretrain", "--json", &run, &corpus];
    [&own[..], &TINY, &["eval.translated=20"], more].concat().into_iter().map(String::from).collect()
}
