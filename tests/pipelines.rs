//! Folders of fine-tuned models in the pipelines of Hugging Face's package: the same labels, the same scores.

use std::fs;
use std::path::Path;

use segue_skip::peer_python;
use segue_tests::{SHARED, Workplace, alone, fail, peers_each, sentences, succeed};
use serde_json::{Value, json};

/// Texts of a split.
const TEXTS: usize = 200;
/// Scores are sums over a few hundred products in single precision, in another order.
const LIMIT: f64 = 1e-5;

/// Kinds of tokenizers that can be trained for such a model, with how a corpus is built of them.
const KINDS: [(&str, &[&str]); 6] = [
    ("bpe", &["--tokenizer-kind", "bpe", "--vocab-size", "400", "--special", "<cls>,<sep>,<pad>"]),
    ("bpe-without-symbols", &["--tokenizer-kind", "bpe", "--vocab-size", "400"]),
    ("unigram", &["--tokenizer-kind", "unigram", "--vocab-size", "400", "--special", "<cls>,<sep>"]),
    ("word", &["--tokenizer-kind", "word", "--special", "<cls>,<sep>"]),
    ("word-without-symbols", &["--tokenizer-kind", "word"]),
    ("char", &["--tokenizer-kind", "char", "--special", "<cls>,<sep>,<pad>"]),
];

/// XLNet's SentencePiece model with its own steps around it and without, where it is there.
fn sentence_piece(place: &Workplace) -> Vec<(&'static str, String)> {
    let model = Path::new(SHARED).join("data/xlnet_spiece/spiece.model");
    if !model.is_file() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("no {}", model.display()));
        return Vec::new();
    }
    let both = [("pieces-of-xlnet", &["--xlnet"][..]), ("pieces", &[])].map(|(name, options)| {
        let (model, output) = (model.display().to_string(), place.text(name));
        succeed(alone(&[&["tokenizer", "import", &model, "--output", &output][..], options].concat()));
        (name, output)
    });
    both.into()
}

/// An untrained XLNet over a vocabulary of this kind; its run.
fn encoder(place: &Workplace, name: &str, options: &[&str]) -> String {
    let (corpus, run) = (format!("corpus-{name}"), format!("encoder-{name}"));
    place.build(&corpus, &[&["--preset", "documents"], options].concat());
    let corpus = format!("data.corpus={}", place.text(&corpus));
    // One way to read, without memory to begin with: what a corpus of plain text is good for.
    let plain = [
        "train.steps=1",
        "data.order=stream",
        "objective.kind=lm",
        "model.attn_type=uni",
        "model.reuse_len=0",
    ];
    let mut all: Vec<&str> = plain.to_vec();
    all.push(&corpus);
    succeed(alone(&place.pretrain_xlnet(&run, &all)));
    place.text(&run)
}

/// Fine-tunes `encoder` on `task` for a few steps; the run's own answers to its files.
fn tuned(place: &Workplace, run: &str, encoder: &str, task: &str, data: &str) -> Value {
    let data = place.text(data);
    let dir = format!("run.dir={}", place.text(run));
    let settings = [
        "train.lanes=8",
        "train.micro_batch=4",
        "train.segment=32",
        "train.steps=6",
        "optim.lr=1e-2",
        "task.epochs=0",
        "model.attn_type=bi",
    ];
    let args = ["finetune", "--json", "--task", task, "--model", encoder, "--data", &data, &dir];
    succeed(alone(&[&args[..], &settings].concat()))
}

/// What the public pipeline answers with the best models of runs, each asked its texts: the answers of each run.
fn theirs(python: &str, place: &Workplace, pipeline: &str, asked: &[(&str, &Value)]) -> Vec<Vec<Value>> {
    let arguments = asked.iter().map(|(run, texts)| {
        let path = place.text(&format!("{run}.json"));
        fs::write(&path, texts.to_string()).unwrap();
        vec![place.text(&format!("{run}/best")), pipeline.to_string(), path]
    });
    let found = peers_each(python, "pipeline_answers.py", &arguments.collect::<Vec<_>>());
    let answers = asked.iter().zip(found).map(|((run, _), (code, stdout, stderr))| {
        assert_eq!(code, 0, "{run}: {stderr}");
        let found: Value = serde_json::from_str(stdout.lines().last().expect("a line")).unwrap();
        assert_eq!((&found["missing"], &found["unexpected"]), (&json!([]), &json!([])), "{run}");
        found["answers"].as_array().unwrap().clone()
    });
    answers.collect()
}

/// Second column of a table of answers.
fn answered(place: &Workplace, path: &str) -> Vec<String> {
    let text = fs::read_to_string(place.path(path)).unwrap();
    text.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap().to_string()).collect()
}

/// Writes `train.tsv` and `dev.tsv` of a folder.
fn table(place: &Workplace, folder: &str, header: &str, row: impl Fn(usize) -> String) {
    fs::create_dir(place.path(folder)).unwrap();
    let rows: String = (0..TEXTS).map(row).collect();
    for name in ["train.tsv", "dev.tsv"] {
        fs::write(place.path(folder).join(name), format!("{header}\n{rows}")).unwrap();
    }
}

/// Texts of 12 to some 60 characters, some with words that a vocabulary lacks.
fn texts() -> Vec<String> {
    let all = sentences(TEXTS, 5);
    let text = |line: &str| line.split('\t').next().unwrap().trim().to_string();
    let odd = |i: usize| ["", " Zebra!", " caf\u{e9} 2,000", " THE PAST"][i % 4];
    all.lines().skip(1).enumerate().map(|(i, line)| format!("{}{}", text(line), odd(i))).collect()
}

fn card(place: &Workplace, run: &str) -> String {
    fs::read_to_string(place.path(run).join("best/README.md")).unwrap()
}

#[test]
fn classes_of_every_kind_of_tokenizer_are_those_of_the_public_pipeline() {
    let Some(python) = peer_python("base") else { return };
    let place = Workplace::new();
    let texts = texts();
    let labels = ["bad: \"no\"", "fair", "good"];
    table(&place, "classes", "text\tlabel", |i| format!("{}\t{}\n", texts[i], labels[i % 3]));
    let pieces = sentence_piece(&place);
    let pieces: Vec<_> =
        pieces.iter().map(|(name, folder)| (*name, ["--tokenizer", folder.as_str()])).collect();
    let all = KINDS.into_iter().chain(pieces.iter().map(|(name, options)| (*name, &options[..])));
    let runs: Vec<(&str, String, Value)> = all
        .map(|(kind, options)| {
            let (encoder, run) = (encoder(&place, kind, options), format!("classes-{kind}"));
            let result = tuned(&place, &run, &encoder, "text", "classes");
            (kind, run, result)
        })
        .collect();
    let texts = json!(texts);
    let asked: Vec<_> = runs.iter().map(|(_, run, _)| (run.as_str(), &texts)).collect();
    let answers = theirs(&python, &place, "text-classification", &asked);
    for ((kind, run, result), found) in runs.iter().zip(answers) {
        let ours = answered(&place, &format!("{run}/predictions/text-dev.tsv"));
        assert_eq!((found.len(), ours.len()), (TEXTS, TEXTS));
        let mut loss = 0.0;
        for (i, (scores, own)) in found.iter().zip(&ours).enumerate() {
            let scores = scores.as_object().unwrap();
            let score = |label: &str| scores[label].as_f64().unwrap();
            assert!(
                labels.iter().all(|label| score(label) <= score(own) + LIMIT),
                "{kind} {i}: {own} of {scores:?}"
            );
            loss -= score(labels[i % 3]).ln() / TEXTS as f64;
        }
        // The mean loss takes every score of a right answer into account.
        let own = result["scores"][0]["loss"].as_f64().unwrap();
        println!("{kind}: loss {own:.7} here, {loss:.7} there");
        assert!((own - loss).abs() < LIMIT, "{kind}: {own} and {loss}");
        assert!(card(&place, run).contains("pipeline_tag: text-classification\n"));
    }
}

#[test]
fn numbers_and_pairs_are_those_of_the_public_pipeline() {
    let Some(python) = peer_python("base") else { return };
    let place = Workplace::new();
    let texts = texts();
    let encoder = encoder(&place, KINDS[0].0, KINDS[0].1);
    table(&place, "numbers", "text\tlabel", |i| format!("{}\t{}\n", texts[i], (i % 7) as f64 / 2.0));
    tuned(&place, "numbers-run", &encoder, "text-regression", "numbers");
    // Pairs that fit, so that none of them is cut.
    let short = |i: usize| texts[i].chars().take(12).collect::<String>();
    table(&place, "pairs-of-texts", "sentence1\tsentence2\tlabel", |i| {
        format!("{}\t{}\t{}\n", short(i), short(TEXTS - 1 - i), (i % 5) as f64 / 2.0)
    });
    tuned(&place, "pairs-run", &encoder, "text-regression", "pairs-of-texts");
    let pairs: Vec<[String; 2]> = (0..TEXTS).map(|i| [short(i), short(TEXTS - 1 - i)]).collect();
    let (texts, pairs) = (json!(texts), json!(pairs));
    let asked = [("numbers-run", &texts), ("pairs-run", &pairs)];
    for ((run, _), found) in asked.iter().zip(theirs(&python, &place, "text-classification", &asked)) {
        let ours = answered(&place, &format!("{run}/predictions/text-regression-dev.tsv"));
        let mut worst = 0f64;
        for (scores, own) in found.iter().zip(&ours) {
            let [number] = scores.as_object().unwrap().values().collect::<Vec<_>>()[..] else {
                panic!("{scores}")
            };
            worst = worst.max((number.as_f64().unwrap() - own.parse::<f64>().unwrap()).abs());
        }
        println!("{run}: {} numbers, largest difference {worst:.1e}", ours.len());
        assert!(ours.len() == TEXTS && worst < LIMIT, "{run}: {worst}");
    }
}

#[test]
fn labels_of_words_are_those_of_the_public_pipeline() {
    let Some(python) = peer_python("base") else { return };
    let place = Workplace::new();
    // Sentences that fit, so that none is cut: this pipeline takes no length.
    let texts: Vec<String> =
        texts().iter().map(|text| text.split(' ').take(4).collect::<Vec<_>>().join(" ")).collect();
    let tag = |word: &str| ["O", "B-PER", "I-PER"][word.len() % 3];
    let sentence = |text: &String| -> String {
        let words: String = text.split(' ').map(|word| format!("{word} {}\n", tag(word))).collect();
        words + "\n"
    };
    fs::create_dir(place.path("tags")).unwrap();
    for name in ["train.txt", "dev.txt"] {
        fs::write(place.path("tags").join(name), texts.iter().map(sentence).collect::<String>()).unwrap();
    }
    let runs = [KINDS[0], KINDS[2], KINDS[3]].map(|(kind, options)| {
        let (encoder, run) = (encoder(&place, kind, options), format!("tags-{kind}"));
        tuned(&place, &run, &encoder, "conll", "tags");
        run
    });
    let texts = json!(texts);
    let asked = runs.each_ref().map(|run| (run.as_str(), &texts));
    for (run, found) in runs.iter().zip(theirs(&python, &place, "token-classification", &asked)) {
        let ours = fs::read_to_string(place.path(&format!("{run}/predictions/conll-dev.tsv"))).unwrap();
        let ours: Vec<Vec<&str>> = ours
            .trim_end()
            .split("\n\n")
            .map(|sentence| sentence.lines().map(|line| line.rsplit(' ').next().unwrap()).collect())
            .collect();
        let theirs: Vec<Vec<&str>> = found
            .iter()
            .map(|labels| {
                labels.as_array().unwrap().iter().map(|label| label.as_str().unwrap_or("none")).collect()
            })
            .collect();
        assert_eq!(ours, theirs, "{run}");
        assert!(card(&place, run).contains("pipeline_tag: token-classification\n"));
    }
}

#[test]
fn one_task_of_several_is_a_folder_that_answers_as_the_whole() {
    let place = Workplace::new();
    place.finetune("unused", &[]);
    fs::create_dir_all(place.path("glue/SST-2")).unwrap();
    fs::create_dir_all(place.path("glue/CoLA")).unwrap();
    let rows: String = (0..40).map(|i| format!("source\t{}\t\tpast memory reads {i}\n", i % 2)).collect();
    for name in ["train.tsv", "dev.tsv"] {
        fs::copy(place.path("sst2").join(name), place.path("glue/SST-2").join(name)).unwrap();
        fs::write(place.path("glue/CoLA").join(name), &rows).unwrap();
    }
    tuned(&place, "both", &place.text("encoder"), "sst2,cola", "glue");
    let result =
        succeed(alone(&["convert", "--json", "--task", "cola", &place.text("both"), &place.text("cola")]));
    assert_eq!((&result["task"], &result["labels"]), (&json!("cola"), &json!(["0", "1"])));
    let config: Value = serde_json::from_slice(&fs::read(place.path("cola/config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"], json!(["XLNetForSequenceClassification"]));
    assert_eq!((&config["finetuning_task"], &config["id2label"]["1"]), (&json!("cola"), &json!("1")));
    let card = fs::read_to_string(place.path("cola/README.md")).unwrap();
    for word in
        ["pipeline_tag: text-classification\n", "library_name: transformers\n", "sst2, cola", "matthews"]
    {
        assert!(card.contains(word), "`{word}` is not in\n{card}");
    }
    assert!(!card.contains(" sst2 | ") && !card.contains("/tmp"), "{card}");
    let predict = |model: &str, output: &str| {
        let (model, data, output) = (place.text(model), place.text("glue/CoLA"), place.text(output));
        let args = ["finetune", "--predict", "--json", "--task", "cola", "--model", &model, "--data", &data];
        succeed(alone(
            &[&args[..], &["--output", &output, "train.segment=32", "train.micro_batch=4"]].concat(),
        ))
    };
    let (whole, one) = (predict("both", "of-both"), predict("cola", "of-cola"));
    assert_eq!(whole["scores"], one["scores"]);
    assert_eq!(answered(&place, "of-both/cola-dev.tsv"), answered(&place, "of-cola/cola-dev.tsv"));
    let (both, there) = (place.text("both"), place.text("cola"));
    fail(alone(&["convert", "--task", "rte", &both, &place.text("rte")]), 78, &["sst2, cola", "rte"]);
    fail(alone(&["convert", "--task", "cola", &both, &there]), 73, &["cola", "empty"]);
    // A head of the public package that none here is: named, where a task is asked for.
    let mut other = config.clone();
    other.as_object_mut().unwrap().remove("segue_heads");
    other["architectures"] = json!(["XLNetForQuestionAnsweringSimple"]);
    fs::write(place.path("cola/config.json"), other.to_string()).unwrap();
    fs::remove_file(place.path("cola/MANIFEST.json")).unwrap();
    let data = place.text("glue/CoLA");
    let args =
        ["finetune", "--predict", "--task", "cola", "--model", &there, "--data", &data, "--output", &both];
    fail(alone(&args), 78, &["XLNetForQuestionAnsweringSimple", "segue finetune"]);
    assert!(!place.path("rte").exists());
}
