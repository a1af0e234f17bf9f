//! Evaluation protocols of the real binary, on a model of a few steps.

use segue_tests::{Workplace, alone, fail, succeed};
use serde_json::Value;

/// A corpus and two short runs on it.
fn trained() -> Workplace {
    let place = Workplace::new();
    for (run, memory) in [("xl", "model.mem_len=16"), ("short", "model.mem_len=0")] {
        succeed(alone(&place.pretrain(run, &["train.steps=20", memory])));
    }
    place
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn every_protocol_runs_and_leaves_its_files() {
    let place = trained();
    let [xl, short, corpus] = ["xl", "short", "corpus"].map(|name| place.text(name));
    let out = |name: &str| place.text(name);
    let json = |args: &[&str]| succeed(alone(&[&["--json"], args].concat()));
    let has = |folder: &str, names: &[&str]| {
        for name in names {
            assert!(place.path(folder).join(name).is_file(), "{folder}/{name}");
        }
    };

    let sliding = json(&["eval", "sliding", "--model", &xl, "--attention", "16", "--positions", "50"]);
    assert_eq!(sliding["sliding"]["targets"], 50);

    let shape = ["model.vocab_size=50", "model.n_layer=2", "model.d_model=16", "model.n_head=2"];
    let output = out("speed");
    let flags = ["--lengths", "16,32", "--repeats", "1", "--seconds", "0", "--output", &output];
    let speed = json(&[&["eval", "speed"], &flags[..], &shape[..]].concat());
    assert_eq!(speed["agreement"]["holds"], true);
    has("speed", &["speed.json", "speed.csv", "speed.svg"]);

    let output = out("recl");
    let group = ["eval", "recl", "--models", &xl, &short, "--corpus", &corpus, "--output", &output];
    let contexts = ["--positions", "20", "--c0", "4", "--delta", "8", "--max", "20", "--r", "0.5", "1"];
    let recl = json(&[&group[..], &contexts[..]].concat());
    assert_eq!(recl["contexts"].as_array().map(Vec::len), Some(3));
    assert_eq!(recl["models"][1]["label"], "short");
    let files = ["recl.json", "recl.csv", "gains.csv", "perplexity.csv", "perplexity.svg", "gains-r0.5.svg"];
    has("recl", &files);
    // The second time, all losses are read.
    assert_eq!(json(&[&group[..], &contexts[..]].concat()), recl);

    let weights = place.final_bytes("xl");
    for (rule, lr) in [("sgd", "0.001"), ("rms", "0.0001")] {
        let rates = ["--lr", lr, "--statistics-batches", "20", "--epsilon", "0.001"];
        let dynamic = json(&[&["eval", "dynamic", "--model", &xl, "--rule", rule], &rates[..]].concat());
        assert!(number(&dynamic["dynamic"]["ppl"]) < number(&dynamic["fixed"]["ppl"]), "{rule}: {dynamic}");
    }
    assert!(place.final_bytes("xl") == weights);

    let output = out("mean");
    json(&["average", "--run", &xl, "--last", "2", "--output", &output]);
    json(&["eval", "--model", &output, "--corpus", &corpus]);

    let output = out("samples");
    let lengths = ["--samples", "2", "--seed-tokens", "30", "--tokens", "20", "--output", &output];
    let samples = json(&[&["generate", "samples", "--model", &xl], &lengths[..]].concat());
    assert_eq!(samples["samples"][1]["sample_tokens"].as_array().map(Vec::len), Some(20));
    has("samples", &["samples.json", "samples.md"]);

    // Wrong uses of the same commands.
    fail(alone(&["eval"]), 64, &["--model"]);
    fail(alone(&["eval", "speed"]), 64, &["--model", "--config"]);
    fail(alone(&[&group[..], &["--labels", "one"]].concat()), 64, &["--labels"]);
    fail(alone(&["average", &xl, "--output", &out("mean")]), 74, &["mean"]);
    let other = ["eval", "recl", "--models", &xl, "--corpus", "nowhere", "--output"];
    fail(alone(&[&other[..], &[out("recl").as_str()]].concat()), 66, &["nowhere"]);
}
