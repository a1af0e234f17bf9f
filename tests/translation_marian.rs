//! Marian models of Hugging Face's package: folders that it has made, and folders made of runs, give the same translations there and here.

use std::fs;
use std::path::Path;

use segue_skip::peer_python;
use segue_tests::{Workplace, alone, fail, finish, peers_each, stderr, succeed};
use serde_json::{Value, json};

/// Syllables of the language that is translated; of its translation they are spelt backwards.
const SYLLABLES: [&str; 12] =
    ["ka", "lo", "mir", "tan", "seb", "ufo", "dra", "pel", "win", "gos", "hut", "jar"];

/// Sentences of one to four words of one or two syllables, and their translations, word by word.
fn sentences(count: usize, seed: u64) -> [Vec<String>; 2] {
    let mut state = seed;
    let mut draw = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut word = || (0..=draw(2)).map(|_| SYLLABLES[draw(SYLLABLES.len())]).collect::<String>();
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    let mut length = 0;
    for _ in 0..count {
        length = length % 4 + 1;
        let words: Vec<String> = (0..length).map(|_| word()).collect();
        let backwards = words.iter().map(|word| word.chars().rev().collect::<String>());
        targets.push(backwards.collect::<Vec<_>>().join(" ") + "!");
        sources.push(words.join(" ") + ".");
    }
    [sources, targets]
}

/// The 200 sentences that are translated: some with the code of a language, some with characters that no vocabulary has, with white space and quotation marks.
fn to_translate() -> Vec<String> {
    let [sources, _] = sentences(200, 3);
    let changed = sources.into_iter().enumerate().map(|(number, source)| match number % 10 {
        0 => format!(">>de<< {source}"),
        3 => source.replacen('a', "☃ é", 1),
        5 => format!("  “{}” ", source.replace(' ', "  ")),
        7 => format!(">>xx<<{source}"),
        _ => source,
    });
    changed.collect()
}

fn write_lines(path: &Path, lines: &[String]) -> String {
    fs::write(path, lines.join("\n") + "\n").unwrap();
    path.display().to_string()
}

/// Runs `tests/peers/marian_folders.py`; what it printed last.
fn peer(python: &str, arguments: &[&str]) -> Value {
    let arguments = vec![arguments.iter().map(|argument| argument.to_string()).collect()];
    let (code, stdout, stderr) = peers_each(python, "marian_folders.py", &arguments).remove(0);
    assert_eq!(code, 0, "{stderr}");
    stdout.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
}

/// A workplace with the folder `theirs` of a model with random weights, that the package has made.
fn theirs(python: &str) -> Workplace {
    let place = Workplace::new();
    let [sources, targets] = sentences(1500, 1);
    let source = write_lines(&place.path("source"), &sources);
    let target = write_lines(&place.path("target"), &targets);
    peer(python, &["make", &source, &target, &place.text("theirs")]);
    place
}

/// Translations of the lines of a file: text and score of each. `finish`: when a search ends.
fn translations(model: &str, input: &str, finish: &str) -> Vec<(String, f64)> {
    let search = ["--length-form", "length", "--length-penalty", "1", "--beams", "4", "--finish", finish];
    let asked = [&["translate", "--json", "--model", model, "--input", input][..], &search].concat();
    let found = succeed(alone(&asked));
    assert_eq!(found["failed"], json!([]), "{found}");
    let sentences = found["sentences"].as_array().unwrap().iter();
    let best = |sentence: &Value| sentence["translations"][0].clone();
    let pair = |best: Value| (best["text"].as_str().unwrap().to_string(), best["score"].as_f64().unwrap());
    sentences.map(best).map(pair).collect()
}

/// Asserts that the package translates `lines` with `folder` as Segue does with `model`; gives the translations.
fn assert_translates_alike(
    python: &str,
    place: &Workplace,
    lines: &[String],
    folder: &str,
    model: &str,
) -> Vec<String> {
    let input = write_lines(&place.path("in"), lines);
    let theirs = peer(python, &["translate", folder, &input]);
    assert_eq!(theirs[0], "MarianTokenizer");
    let theirs = theirs[1].as_array().unwrap();
    let [ranked, worst] = ["ranked", "worst"].map(|finish| translations(model, &input, finish));
    assert_eq!((ranked.len(), worst.len(), theirs.len()), (200, 200, 200));
    let mut cut = 0;
    for ((line, ours), theirs) in lines.iter().zip(ranked.iter().zip(&worst)).zip(theirs) {
        let (text, score) = (theirs[0].as_str().unwrap(), theirs[1].as_f64().unwrap());
        let is_same = |(own, other): &(String, f64)| own == text && (score - other).abs() < 1e-4;
        assert!(is_same(ours.0), "{line}: {ours:?} and {theirs}");
        // By default a text that does not end by itself is no translation where another one does.
        cut += usize::from(theirs[2] == true);
        assert!(theirs[2] == true || is_same(ours.1), "{line}: {ours:?} and {theirs}");
    }
    assert!(cut < 10, "{cut} of 200 do not end by themselves");
    ranked.into_iter().map(|(text, _)| text).collect()
}

#[test]
fn a_folder_of_the_package_translates_as_the_package_does() {
    let Some(python) = peer_python("base") else { return };
    let place = theirs(&python);
    let folder = place.text("theirs");
    let lines = to_translate();
    let found = assert_translates_alike(&python, &place, &lines, &folder, &folder);
    let mut different = found.clone();
    different.sort();
    different.dedup();
    assert!(different.len() > 50, "{} translations", different.len());

    // Made a folder of this program's, and read from a pickle of earlier versions, it is the same model.
    succeed(alone(&["convert", &folder, &place.text("ours")]));
    let ours = assert_translates_alike(&python, &place, &lines, &place.text("ours"), &place.text("ours"));
    assert_eq!(ours, found);
    peer(&python, &["old", &folder, &place.text("old")]);
    let old = place.text("old");
    let input = place.text("in");
    fail(
        alone(&["translate", "--model", &old, "--input", &input]),
        66,
        &["pytorch_model.bin", "segue convert"],
    );
    succeed(alone(&["convert", &old, &place.text("new")]));
    let new: Vec<String> =
        translations(&place.text("new"), &input, "ranked").into_iter().map(|(text, _)| text).collect();
    assert_eq!(new, found);
    let search = fs::read(place.path("new").join("generation_config.json")).unwrap();
    let search: Value = serde_json::from_slice(&search).unwrap();
    assert_eq!((&search["num_beams"], &search["max_length"]), (&json!(6), &json!(77)));
    for name in ["model.safetensors", "vocab.json", "source.spm", "target.spm", "tokenizer_config.json"] {
        let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
        assert!(read("new") == read("ours"), "{name}");
    }
}

/// Arguments that train a small model in the run folder `run`.
fn train(place: &Workplace, run: &str, more: &[&str]) -> Vec<String> {
    let (run, corpus) =
        (format!("run.dir={}", place.text(run)), format!("data.corpus={}", place.text("sentences")));
    let own = [
        "pretrain",
        "--json",
        &run,
        &corpus,
        "model.model_type=marian",
        "model.d_model=32",
        "model.encoder_layers=1",
        "model.decoder_layers=2",
        "model.encoder_attention_heads=4",
        "model.decoder_attention_heads=2",
        "model.encoder_ffn_dim=64",
        "model.decoder_ffn_dim=48",
        "model.dropout=0",
        "data.batch_tokens=500",
        "train.lanes=1",
        "train.steps=400",
        "optim.lr=4e-3",
        "schedule.kind=constant",
        "log.every=50",
    ];
    [&own[..], more].concat().into_iter().map(String::from).collect()
}

/// Builds the corpus `sentences` with the tokenizer in a folder.
fn build(place: &Workplace, tokenizer: &str) {
    for (name, count, seed) in [("train", 1500, 1), ("val", 50, 2)] {
        let [sources, targets] = sentences(count, seed);
        write_lines(&place.path(&format!("{name}.s")), &sources);
        write_lines(&place.path(&format!("{name}.t")), &targets);
    }
    let [train, valid, output] = ["train", "val", "sentences"].map(|name| place.text(name));
    let command = ["data", "build", "--preset", "pairs", "--source", "s", "--target", "t"];
    let places = ["--train", &train, "--valid", &valid, "--output", &output, "--tokenizer", tokenizer];
    succeed(alone(&[&command[..], &places].concat()));
}

#[test]
fn a_run_with_a_sentencepiece_model_is_written_as_the_package_reads_it() {
    let Some(python) = peer_python("base") else { return };
    let place = Workplace::new();
    let [sources, targets] = sentences(1500, 1);
    let both = write_lines(&place.path("both"), &[sources, targets].concat());
    let (model, tokenizer) = (place.text("own.model"), place.text("tokenizer"));
    peer(&python, &["pieces", &both, "140", &model]);
    succeed(alone(&["tokenizer", "import", &model, "--output", &tokenizer]));
    build(&place, &tokenizer);
    succeed(alone(&train(&place, "run", &["model.output_bias=true"])));
    let made = place.text("made");
    succeed(alone(&["convert", &place.text("run"), &made]));
    let generation: Value =
        serde_json::from_slice(&fs::read(place.path("made").join("generation_config.json")).unwrap())
            .unwrap();
    let padding = &generation["pad_token_id"];
    assert_eq!(generation["bad_words_ids"], json!([[padding]]));
    assert_eq!((&generation["decoder_start_token_id"], &generation["num_beams"]), (padding, &json!(4)));
    let config: Value =
        serde_json::from_slice(&fs::read(place.path("made").join("config.json")).unwrap()).unwrap();
    assert_eq!((&config["pad_token_id"], &config["eos_token_id"]), (padding, &json!(2)));
    assert_eq!(config["vocab_size"].as_u64().unwrap(), padding.as_u64().unwrap() + 1);
    // A run's own tokenizer knows no codes of languages.
    let lines: Vec<String> = to_translate().into_iter().map(|line| line.replace(['>', '<'], "")).collect();
    let found = assert_translates_alike(&python, &place, &lines, &made, &made);
    assert!(found.iter().filter(|text| !text.is_empty()).count() > 100, "nothing is learnt");
}

/// A model is trained on with the tokenizer that it came with.
#[test]
fn a_folder_of_the_package_is_trained_on_and_written_back() {
    let Some(python) = peer_python("base") else { return };
    let place = theirs(&python);
    let folder = place.text("theirs");
    build(&place, &folder);
    let init = format!("train.init_from={folder}");
    let sizes = [
        &init,
        "model.encoder_layers=2",
        "model.encoder_ffn_dim=48",
        "model.decoder_ffn_dim=40",
        "model.activation_function=swish",
        "model.scale_embedding=false",
        "model.output_bias=true",
        "model.max_position_embeddings=256",
        "train.steps=40",
    ];
    succeed(alone(&train(&place, "run", &sizes)));
    succeed(alone(&["convert", &place.text("run"), &place.text("made")]));
    assert_translates_alike(&python, &place, &to_translate(), &place.text("made"), &place.text("run"));
}

/// Copies the folder `theirs`, with another value of a key in one of its JSON files.
fn with(place: &Workplace, file: &str, key: &str, value: Value) -> String {
    let name = format!("{file}-{key}");
    let copy = copied(place, &name);
    let path = Path::new(&copy).join(file);
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    json[key] = value;
    fs::write(&path, json.to_string()).unwrap();
    copy
}

fn copied(place: &Workplace, name: &str) -> String {
    let (from, to) = (place.path("theirs"), place.path(name));
    fs::create_dir(&to).unwrap();
    for (name, content) in segue_tests::files_of(&from) {
        fs::write(to.join(name), content).unwrap();
    }
    to.display().to_string()
}

#[test]
fn a_folder_that_no_model_here_computes_is_refused() {
    let Some(python) = peer_python("base") else { return };
    let place = theirs(&python);
    let input = write_lines(&place.path("in"), &["ka lo.".into()]);
    let refused = |model: &str, code: i32, said: &[&str]| {
        fail(alone(&["translate", "--model", model, "--input", &input]), code, said);
    };
    for (key, value, said) in [
        ("share_encoder_decoder_embeddings", json!(false), "share one table"),
        ("tie_word_embeddings", json!(false), "share one table"),
        ("normalize_before", json!(true), "norms before sublayers"),
        ("decoder_vocab_size", json!(7), "share one vocabulary"),
        ("decoder_start_token_id", json!(0), "a target begins with padding"),
    ] {
        let model = with(&place, "config.json", key, value);
        refused(&model, 78, &[key, said]);
        let output = finish(alone(&["convert", &model, &format!("{model}-converted")]));
        assert_eq!(output.status.code(), Some(78), "{key}: {}", stderr(&output));
    }
    let model = with(&place, "vocab.json", "one more", json!(0));
    refused(&model, 65, &["vocab.json", "both have the id 0"]);
    let missing = copied(&place, "missing");
    fs::remove_file(Path::new(&missing).join("source.spm")).unwrap();
    refused(&missing, 65, &["it has no source.spm"]);
    let size = json!(
        fs::read(place.path("theirs/config.json"))
            .map(|text| serde_json::from_slice::<Value>(&text).unwrap())
            .unwrap()["vocab_size"]
    );
    let model = with(&place, "vocab.json", "another", size);
    refused(&model, 78, &["its tokenizer has", "tokens, and the model"]);
}
