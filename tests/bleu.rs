//! Scores of translations and means of translators, by the real binary. The language is that of `segue_tests::translation`.

use std::fs;

use segue_engine::checkpoint::read_tensors;
use segue_skip::peer_python;
use segue_tests::translation::{place, train};
use segue_tests::{ROOT, Workplace, alone, fail, mpirun, peers_each, stderr, succeed};
use serde_json::{Value, json};
use tch::Kind;

/// References, and translations of most of them.
const REFERENCE: &str = "The rich-text editor costs 3.5 %.\nHe reads the paper every day.\nA dog runs.\nTwo men talk, don't they?\n";
const OTHER: &str =
    "A rich-text editor is 3.5 %.\nHe reads it daily.\nThe dog is running.\nTwo men are talking.\n";
const TRANSLATION: &str =
    "the rich-text editor cost 3.5 %.\nHe reads the paper today.\nA dog runs.\nTwo men talk about it.\n";

/// A workplace with `ref`, `other` and `out`.
fn texts() -> Workplace {
    let place = Workplace::new();
    for (name, text) in [("ref", REFERENCE), ("other", OTHER), ("out", TRANSLATION)] {
        fs::write(place.path(name), text).unwrap();
    }
    place
}

/// Scores `out`.
fn score(place: &Workplace, more: &[&str]) -> Value {
    let (reference, out) = (place.text("ref"), place.text("out"));
    let command = ["eval", "bleu", "--json", "--reference", &reference, "--input", &out];
    succeed(alone(&[&command[..], more].concat()))
}

/// Options of the command, and the same metric and settings for sacrebleu.
fn cases() -> Vec<(Vec<&'static str>, Value)> {
    let bleu = |settings: Value| json!({ "metric": "BLEU", "settings": settings });
    vec![
        (vec!["--measure", "bleu"], bleu(json!({}))),
        (
            vec!["--measure", "bleu", "--tokenize", "intl", "--lower-case"],
            bleu(json!({ "tokenize": "intl", "lowercase": true })),
        ),
        (
            vec!["--measure", "bleu", "--tokenize", "none", "--smooth", "floor", "--smooth-value", "0.2"],
            bleu(json!({ "tokenize": "none", "smooth_method": "floor", "smooth_value": 0.2 })),
        ),
        (vec!["--measure", "bleu", "--smooth", "add-k"], bleu(json!({ "smooth_method": "add-k" }))),
        (vec!["--measure", "bleu", "--smooth", "none"], bleu(json!({ "smooth_method": "none" }))),
        (vec!["--measure", "chrf"], json!({ "metric": "CHRF", "settings": {} })),
        (
            vec!["--measure", "chrf++", "--lower-case"],
            json!({ "metric": "CHRF", "settings": { "word_order": 2, "lowercase": true } }),
        ),
        (vec!["--measure", "ter"], json!({ "metric": "TER", "settings": {} })),
    ]
}

/// Row S24: scores and signatures are sacrebleu's, of one reference and of two.
#[test]
fn scores_of_files_are_those_of_sacrebleu() {
    let Some(python) = peer_python("base") else { return };
    let place = texts();
    let lines = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
    let (reference, other, out) = (lines(REFERENCE), lines(OTHER), lines(TRANSLATION));
    let two: Vec<_> = reference.iter().zip(&other).map(|(a, b)| vec![a, b]).collect();
    let one: Vec<_> = reference.iter().map(|a| vec![a]).collect();
    let corpora = json!([{ "hypotheses": out, "references": one }, { "hypotheses": out, "references": two }]);
    let evaluation = |corpus: usize, case: &Value| json!({ "corpus": corpus, "metric": case["metric"], "settings": case["settings"] });
    let cases = cases();
    let all: Vec<Value> =
        (0..2).flat_map(|corpus| cases.iter().map(move |(_, case)| evaluation(corpus, case))).collect();
    let asked = json!({ "corpora": corpora, "evaluations": all, "lines": [], "tokenizers": [] });
    fs::write(place.path("cases.json"), asked.to_string()).unwrap();
    let (code, stdout, said) =
        peers_each(&python, "sacrebleu_scores.py", &[vec![place.text("cases.json")]]).remove(0);
    assert_eq!(code, 0, "{said}");
    let theirs: Value = serde_json::from_str(&stdout).unwrap();
    let second = place.text("other");
    for (number, theirs) in theirs["outcomes"].as_array().unwrap().iter().enumerate() {
        let more: &[&str] = if number < cases.len() { &[] } else { &["--reference", &second] };
        let options = &cases[number % cases.len()].0;
        let ours = &score(&place, &[options, more].concat())["scores"][0];
        let close = ours["score"].as_f64().unwrap() - theirs["score"].as_f64().unwrap();
        assert!(close.abs() < 1e-9, "{options:?}: {ours}\n{theirs}");
        let signature = ours["signature"].as_str().unwrap();
        assert!(theirs["line"].as_str().unwrap().contains(signature), "{signature}\n{theirs}");
    }
}

#[test]
fn a_text_is_scored_with_its_sentences_and_what_cannot_be_is_refused() {
    let place = texts();
    let (reference, out) = (place.text("ref"), place.text("out"));
    let found = score(&place, &["--measure", "bleu,chrf,ter", "--sentences", "--confidence"]);
    let names: Vec<&str> =
        found["scores"].as_array().unwrap().iter().map(|score| score["name"].as_str().unwrap()).collect();
    assert_eq!((names, &found["lines"]), (vec!["BLEU", "chrF2", "TER"], &json!(4)));
    assert_eq!(found["scores"][2]["sentences"].as_array().unwrap().len(), 4);
    assert!(found["scores"][0]["confidence"]["half_width"].as_f64().unwrap() > 0.0);
    // Hyphens of compounds become tokens.
    let compounds = score(&place, &["--tokenize", "none", "--compounds"]);
    let plain = score(&place, &["--tokenize", "none"]);
    let tokens = |found: &Value| found["scores"][0]["hypothesis_length"].as_u64().unwrap();
    assert_eq!(tokens(&compounds), tokens(&plain) + 2);

    // For people, from stdin: lines on stderr, the table on stdout.
    let mut command = alone(&["eval", "bleu", "--reference", &reference, "--sentences"]);
    command.stdin(fs::File::open(&out).unwrap());
    let ended = command.output().unwrap();
    let said = stderr(&ended);
    assert!(said.contains("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = "), "{said}");
    let table = String::from_utf8(ended.stdout).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!((lines.len(), lines[0]), (5, "line\tBLEU\tchrF2"));
    assert!(lines[3].starts_with("3\t100.0000\t100.0000"), "{}", lines[3]);

    fs::write(place.path("short"), "a\n").unwrap();
    fs::write(place.path("bad"), b"a\nb\n\xff\nc\n").unwrap();
    fs::write(place.path("gap"), "a\nb\n\nc\n").unwrap();
    let refused = |reference: &str, input: &str, more: &[&str], code: i32, words: &[&str]| {
        let (reference, input) = (place.text(reference), place.text(input));
        let command = ["eval", "bleu", "--reference", &reference, "--input", &input];
        fail(alone(&[&command[..], more].concat()), code, words);
    };
    refused("ref", "short", &[], 65, &["short has 1 line, and", "ref 4 lines"]);
    refused("ref", "bad", &[], 65, &["bad, line 3: it is not UTF-8"]);
    refused("gap", "out", &[], 65, &["gap, line 3: it is empty"]);
    refused("none", "out", &[], 66, &["none"]);
    refused("ref", "out", &["--smooth-value", "1"], 64, &["--smooth"]);
    refused("ref", "out", &["--smooth", "exp", "--smooth-value", "1"], 64, &["floor and add-k"]);
    refused("ref", "out", &["--measure", "chrf", "--tokenize", "intl"], 64, &["--tokenize is of BLEU"]);
    refused("ref", "out", &["--measure", "ter", "--lower-case"], 64, &["--lower-case is of BLEU and chrF"]);
    refused("ref", "out", &["--threads", "2"], 64, &["--threads", "cannot be used with"]);
    refused("ref", "out", &["--beams", "2"], 64, &["--beams", "cannot be used with"]);
    refused("ref", "out", &["eval.beams=2"], 64, &["cannot be used with"]);
    let gap = place.text("gap");
    let ended = alone(&["eval", "bleu", "--reference", &reference, "--input", &gap]).output().unwrap();
    assert!(
        ended.status.success() && stderr(&ended).contains("1 translation is empty"),
        "{}",
        stderr(&ended)
    );
}

/// Rows S21, S24: of the weights that a run ends with, loss and BLEU of the validation split are what the run has found; at any number of ranks.
#[test]
fn a_model_is_scored_as_its_run_validates() {
    let place = place(200, 6);
    let keys = ["train.steps=120", "eval.every=120", "eval.translated=60", "eval.tokenize=none"];
    succeed(alone(&train(&place, "run", &keys)));
    let metrics = fs::read_to_string(place.path("run/metrics.jsonl")).unwrap();
    let rows = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let validation = rows.rev().find(|row| row["bleu"].is_number()).unwrap();
    assert_eq!(validation["bleu_signature"], "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0");

    let (run, out) = (place.text("run"), place.text("out"));
    let scored = |more: &[&str]| -> Vec<String> {
        let words = [&["eval", "bleu", "--json", "--model", &run][..], more].concat();
        words.into_iter().map(String::from).collect()
    };
    let found = succeed(alone(&scored(&["--output", &out])));
    assert_eq!(found["loss"], validation["loss"]);
    assert_eq!(found["scores"][0]["score"], validation["bleu"]);
    assert!(validation["bleu"].as_f64().unwrap() > 0.0, "{validation}");
    assert_eq!(found["scores"][0]["signature"], validation["bleu_signature"]);
    assert_eq!(
        (&found["split"], &found["pairs"], &found["translated"]),
        (&json!("valid"), &json!(60), &json!(60))
    );
    assert_eq!(found["search"]["beams"], 2);
    let mut shared = succeed(mpirun(2, &scored(&[])));
    shared["output"] = found["output"].clone();
    assert_eq!(shared, found);
    fail(alone(&scored(&["--output", &out])), 73, &["out", "--force"]);

    // The translations against the file that the corpus was built from.
    let reference = place.text("val.back");
    let files = ["eval", "bleu", "--json", "--reference", &reference, "--input", &out];
    let files = succeed(alone(&[&files[..], &["--lower-case", "--tokenize", "none"]].concat()));
    assert_eq!(files["scores"], found["scores"]);

    let test =
        succeed(alone(&scored(&["--split", "test", "--pairs", "10", "--beams", "3", "--measure", "ter"])));
    assert_eq!((&test["pairs"], &test["translated"]), (&json!(30), &json!(10)));
    assert_eq!((&test["search"]["beams"], &test["scores"][0]["name"]), (&json!(3), &json!("TER")));
    let bytes = place.text("corpus");
    fail(alone(&scored(&["--corpus", &bytes])), 78, &["its tokenizer is another one"]);
    fail(alone(&scored(&["--corpus", "nowhere"])), 66, &["nowhere"]);
    fail(alone(&["eval", "--model", &run]), 78, &["language model", "run `segue eval bleu`"]);
}

/// Vaswani et al. 2017, §6.1: the mean of a translator's last checkpoints is a model like any other.
#[test]
fn the_last_checkpoints_of_a_translator_are_averaged() {
    let place = place(200, 6);
    let keys =
        ["train.steps=8", "eval.every=4", "checkpoint.every=2", "checkpoint.keep=4", "eval.translated=0"];
    succeed(alone(&train(&place, "run", &keys)));
    let (run, mean) = (place.text("run"), place.text("mean"));
    succeed(alone(&["average", &run, "--last", "3", "--output", &mean]));
    let tensors = |folder: &str| read_tensors(&place.path(folder).join("model.safetensors")).unwrap().tensors;
    let sources = ["04", "06", "08"].map(|step| tensors(&format!("run/checkpoints/step-000000{step}")));
    let found = tensors("mean");
    assert_eq!(found.len(), sources[0].len());
    for (name, mean) in &found {
        let summed = sources.iter().map(|source| source[name].to_kind(Kind::Double));
        let sum = summed.reduce(|sum, tensor| sum + tensor).unwrap();
        assert_eq!(mean, &(sum / 3.0).to_kind(Kind::Float), "{name}");
    }
    // It is translated with, scored and trained on.
    let scored = |model: &str| succeed(alone(&["eval", "bleu", "--json", "--model", model]));
    let (of_mean, of_run) = (scored(&mean), scored(&run));
    assert!(of_mean["loss"].is_number() && of_mean["loss"] != of_run["loss"]);
    assert_eq!((&of_mean["corpus"], &of_mean["search"]), (&of_run["corpus"], &of_run["search"]));
    // By another search than the run's, which translates nothing while it trains.
    let searched =
        succeed(alone(&["eval", "bleu", "--json", "--model", &mean, "--beams", "3", "--pairs", "7"]));
    assert_eq!((&searched["search"]["beams"], &searched["translated"]), (&json!(3), &json!(7)));
    let input = place.text("test.forth");
    let translated = succeed(alone(&["translate", "--json", "--model", &mean, "--input", &input]));
    assert_eq!(translated["lines"], 30);
    let begin = format!("train.init_from={mean}");
    succeed(alone(&train(&place, "further", &["train.steps=1", &begin, "eval.translated=0"])));
    let further = place.text("further");
    fail(alone(&["average", &run, &further, "--output", &mean]), 73, &["mean"]);
}

/// Weights of a critic go with those of its generator; a table does not.
#[test]
fn further_networks_are_averaged_and_tables_are_refused() {
    let place = Workplace::new();
    let game = |run: &str, more: &[&str]| {
        let recipe = format!("{ROOT}/configs/recipes/moment-game.toml");
        let run = format!("run.dir={}", place.text(run));
        let keys = ["train.steps=4", "eval.every=0", "checkpoint.every=2"];
        succeed(alone(&[&["pretrain", "--json", "--config", &recipe, &run][..], &keys, more].concat()));
    };
    game("plain", &[]);
    succeed(alone(&["average", &place.text("plain"), "--output", &place.text("mean")]));
    let names = |folder: &str| {
        let files = segue_tests::files_of(&place.path(folder)).into_keys();
        files.filter(|name| name.ends_with(".safetensors")).collect::<Vec<_>>()
    };
    assert_eq!(names("mean").len(), 2, "{:?}", names("mean"));
    game("bound", &["model.spectral_bound=1"]);
    let average = ["average", &place.text("bound"), "--output", &place.text("none")];
    fail(alone(&average), 78, &["cannot be averaged", "tables.safetensors", "average.start"]);
    assert!(!place.path("none").exists());
}

/// Whatever is trained, and before anything is: a dry run looks too.
#[test]
fn corpora_of_another_kind_are_refused() {
    let place = place(20, 6);
    let (pairs, text) = (place.text("strings"), place.text("corpus"));
    let language = |key: &str, more: &[&str]| {
        let recipe = format!("{ROOT}/configs/recipes/tiny.toml");
        let (run, key) = (format!("run.dir={}", place.text("run")), format!("{key}={pairs}"));
        let words = ["it holds sentences with their translations", "train a model that translates"];
        let command = ["pretrain", "--config", &recipe, &run, &format!("data.corpus={text}"), &key];
        fail(alone(&[&command[..], more].concat()), 65, &words);
    };
    for more in [&[][..], &["--dry-run"], &["--dry-run", "model.vocab_size=256"]] {
        language("data.corpus", more);
        language("data.valid", more);
    }
    let corpus = format!("data.corpus={text}");
    for more in [&["--dry-run"][..], &["--dry-run", "model.vocab_size=300", "model.pad_token_id=299"], &[]] {
        let more = [&[corpus.as_str()], more].concat();
        fail(alone(&train(&place, "run", &more)), 65, &["it holds no pairs of sentences"]);
    }
    let side = place.text("train.forth");
    let build =
        ["data", "build", "--preset", "pairs", "--source", "forth", "--target", "back", "--train", &side];
    let rest = ["--tokenizer-kind", "word", "--output", &place.text("none")];
    fail(
        alone(&[&build[..], &rest].concat()),
        64,
        &["train.forth is one side of the pairs", "up to the dot"],
    );
}
