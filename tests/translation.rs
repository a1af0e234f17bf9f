//! Translation: exactness over ranks, stops and kills, and sentences translated by the real binary. The language is strings of letters, the translation writes
//! them backwards.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use segue_skip::peer_python;
use segue_tests::kills::kill_often;
use segue_tests::translation::{place, strings, train};
use segue_tests::{Workplace, alone, fail, mpirun, repeats, succeed};
use serde_json::{Value, json};

/// Bytes of the tensors of a run's last checkpoint, and rows of its evaluations.
fn outcome(place: &Workplace, run: &str) -> (Vec<(String, Vec<u8>)>, Vec<Value>) {
    let folder = place.path(run).join("checkpoints/latest");
    let files = segue_tests::files_of(&folder).into_iter();
    let tensors: Vec<_> = files.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    assert!(tensors.len() >= 2, "{run}");
    let metrics = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
    let rows = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let evaluations = rows.filter(|row| row["bleu"].is_number());
    let kept = evaluations.map(|row| json!([row["step"], row["loss"], row["bleu"], row["bleu_signature"]]));
    (tensors, kept.collect())
}

#[track_caller]
fn assert_same(place: &Workplace, one: &str, other: &str) {
    let (one, other) = (outcome(place, one), outcome(place, other));
    assert_eq!(one.1, other.1);
    assert!(one.0 == other.0, "tensors differ");
}

/// Row S21.
#[test]
fn a_run_has_the_same_bytes_at_any_number_of_ranks_and_over_stops() {
    let place = place(200, 6);
    let steps = ["train.steps=8", "eval.every=4", "checkpoint.every=2"];
    succeed(alone(&train(&place, "one", &steps)));
    for ranks in [2, 4] {
        succeed(mpirun(ranks, &train(&place, &format!("ranks-{ranks}"), &steps)));
        assert_same(&place, "one", &format!("ranks-{ranks}"));
    }
    succeed(mpirun(2, &train(&place, "stopped", &[&steps[..], &["train.stop_at=5"]].concat())));
    succeed(alone(&train(&place, "stopped", &steps)));
    assert_same(&place, "one", "stopped");
    let (_, evaluations) = outcome(&place, "one");
    assert_eq!(evaluations.len(), 2);
    assert_eq!(evaluations[1][3], "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.6.0");
}

/// Rows S21, S26.
#[test]
fn an_adversary_of_scale_zero_trains_the_same_bytes() {
    let place = place(200, 6);
    succeed(alone(&train(&place, "none", &["train.steps=6"])));
    succeed(alone(&train(&place, "still", &["train.steps=6", "adversarial.always=true"])));
    succeed(alone(&train(&place, "moved", &["train.steps=6", "adversarial.scale=0.05"])));
    let of = |run: &str| fs::read(place.path(run).join("checkpoints/latest/model.safetensors")).unwrap();
    assert!(of("none") == of("still") && of("none") != of("moved"));
}

#[test]
fn a_run_that_is_killed_in_training_or_evaluation_ends_with_the_same_bytes() {
    let place = place(200, 6);
    let more = ["train.steps=40", "eval.every=4", "eval.translated=40", "checkpoint.every=3"];
    let job = |run: &str| train(&place, run, &more);
    kill_often(repeats(3, 60), &job, &|one, other| {
        let (one, other) = (outcome(&place, one), outcome(&place, other));
        assert!(one.0 == other.0, "tensors differ");
        // What was evaluated again after a kill is there twice.
        let mut rows = other.1;
        rows.dedup();
        assert_eq!(one.1.last(), rows.last());
    });
}

/// A process that translates its stdin, by greedy choice.
fn translate(model: &str, more: &[&str]) -> Command {
    alone(&[&["translate", "--model", model, "--beams", "1"], more].concat())
}

#[test]
fn sentences_are_translated_line_by_line() {
    let place = place(200, 6);
    succeed(alone(&train(&place, "run", &["train.steps=4", "model.max_position_embeddings=12"])));
    let model = place.text("run");
    // A line is answered before the next one is there.
    let mut child = translate(&model, &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut lines) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut answers = Vec::new();
    for line in ["a b c", "", "d e"] {
        writeln!(stdin, "{line}").unwrap();
        answers.push(lines.next().unwrap().unwrap());
    }
    drop(stdin);
    assert!(child.wait().unwrap().success() && lines.next().is_none());
    assert_eq!(answers[1], "");

    // The same of a file, with what cannot be translated between.
    fs::write(place.path("in"), b"a b c\n\nd e\n\xff\n a a a a a a a a a a a a a\nd e").unwrap();
    let input = place.text("in");
    let output = place.text("out");
    let ended = translate(&model, &["--input", &input, "--output", &output]).output().unwrap();
    let said = segue_tests::stderr(&ended);
    assert_eq!(ended.status.code(), Some(65), "{said}");
    assert!(said.contains("in, line 4") && said.contains("line 5: it has 14 tokens"), "{said}");
    let written = fs::read_to_string(&output).unwrap();
    let expected = [&answers[0], "", &answers[2], "", "", &answers[2]];
    assert_eq!(written.lines().collect::<Vec<_>>(), expected);
    fail(translate(&model, &["--input", &input, "--output", &output]), 73, &["out", "--force"]);

    // Several translations of each, with scores; for programs with pieces.
    let best = ["--beams", "3", "--n-best", "2", "--input", &input, "--scores"];
    let ended = alone(&[&["translate", "--model", &model][..], &best].concat()).output().unwrap();
    let text = String::from_utf8(ended.stdout).unwrap();
    let first: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    assert_eq!((first.len(), first[0]), (4, "1"));
    let asked = ["--json", "--beams", "3", "--n-best", "2", "--alignments", "--input", &input];
    let ended = alone(&[&["translate", "--model", &model][..], &asked].concat()).output().unwrap();
    let result: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(
        (&result["lines"], &result["empty"], &result["failed"]),
        (&json!(6), &json!(1), &json!([4, 5]))
    );
    let found = &result["sentences"][0]["translations"][0];
    assert_eq!(found["pieces"].as_array().unwrap().len(), found["alignments"].as_array().unwrap().len());
    fail(translate(&model, &["--n-best", "2"]), 64, &["--n-best 2", "--beams 2"]);
}

/// Lines one by one through a pipe, side by side from a file, on threads and over ranks: the same bytes, scores and attention among them.
/// Row S23.
#[test]
fn a_sentence_is_translated_alike_alone_and_beside_others() {
    let place = place(200, 6);
    succeed(alone(&train(&place, "run", &["train.steps=20"])));
    // Several windows of lines; some are empty, too long or no text.
    let [sources, _] = strings(300, 12, 5);
    let mut lines: Vec<&[u8]> = sources.lines().map(str::as_bytes).collect();
    for (at, line) in [(7, &b""[..]), (130, b"\xff\xfe"), (299, b" ")] {
        lines[at] = line;
    }
    fs::write(place.path("in"), lines.join(&b'\n')).unwrap();
    let (model, input) = (place.text("run"), place.text("in"));
    let asked = ["translate", "--model", &model, "--beams", "3", "--scores", "--alignments"];

    let mut child =
        alone(&asked).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut stdin, mut answers) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut one_by_one = String::new();
    for line in &lines {
        stdin.write_all(&[*line, b"\n"].concat()).unwrap();
        answers.read_line(&mut one_by_one).unwrap();
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(65));

    let output = place.text("out");
    let written = |asked: &[&str], ranks: usize, threads: &str| {
        let files = ["--threads", threads, "--input", &input, "--output", &output, "--force"];
        let job = [asked, &files].concat();
        let ended = if ranks == 0 { alone(&job) } else { mpirun(ranks, &job) }.output().unwrap();
        assert_eq!(ended.status.code(), Some(65), "{ranks} ranks: {}", segue_tests::stderr(&ended));
        fs::read_to_string(&output).unwrap()
    };
    for (ranks, threads) in [(0, "1"), (0, "2"), (1, "1"), (2, "1"), (4, "1")] {
        assert!(written(&asked, ranks, threads) == one_by_one, "{ranks} ranks, {threads} threads");
    }
    // Drawn ones depend on the seed too.
    let sample = ["translate", "--model", &model, "--sample", "--n-best", "2", "--scores"];
    let drawn = written(&sample, 0, "2");
    assert!(written(&sample, 2, "1") == drawn);
    assert!(written(&[&sample[..], &["--seed", "2"]].concat(), 0, "2") != drawn);
    fail(translate(&model, &["--sample"]), 64, &["--sample", "--beams"]);
    fail(alone(&["translate", "--model", &model, "--seed", "2"]), 64, &["--sample"]);
    fail(alone(&["translate", "--model", &model, "--sample", "--top-p", "0"]), 64, &["--top-p 0", "(0, 1]"]);
    fail(mpirun(2, &["translate", "--model", &model]), 64, &["--input", "without mpirun"]);
}

/// Row S20: Hugging Face's package computes the same with the weights of a run.
#[test]
fn hugging_faces_package_opens_a_run_and_agrees() {
    let Some(python) = peer_python("base") else { return };
    let place = place(200, 6);
    let more = ["train.steps=60", "model.activation_function=swish", "model.encoder_layers=2"];
    succeed(alone(&train(&place, "run", &more)));
    let [sources, _] = strings(20, 6, 7);
    fs::write(place.path("in"), &sources).unwrap();
    let (model, input) = (place.text("run"), place.text("in"));
    let asked = ["translate", "--json", "--model", &model, "--input", &input, "--alignments"];
    let result = succeed(alone(&asked));
    let folder = place.path("run").join("checkpoints/latest");
    let vocabulary = fs::read_to_string(folder.join("vocab.txt")).unwrap();
    let words: Vec<&str> = vocabulary.lines().collect();
    let ids = |pieces: &Value| -> Vec<usize> {
        let pieces = pieces.as_array().unwrap().iter().map(|piece| piece.as_str().unwrap());
        pieces.map(|piece| words.iter().position(|word| *word == piece).unwrap()).collect()
    };
    let sentences = result["sentences"].as_array().unwrap();
    let best = |sentence: &Value| sentence["translations"][0].clone();
    let pairs: Vec<Value> = sentences
        .iter()
        .map(|sentence| {
            let mut source = ids(&best(sentence)["source_pieces"]);
            source.pop();
            json!([source, ids(&best(sentence)["pieces"])])
        })
        .collect();
    let arguments = vec![vec![folder.display().to_string(), Value::from(pairs).to_string()]];
    let (code, stdout, stderr) = segue_tests::peers_each(&python, "marian_scores.py", &arguments).remove(0);
    assert_eq!(code, 0, "{stderr}");
    let theirs: Vec<f64> = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(theirs.len(), 20);
    assert!(sentences.iter().any(|sentence| best(sentence)["text"] != ""), "nothing is translated");
    for (sentence, theirs) in sentences.iter().zip(theirs) {
        let ours = best(sentence)["log_prob"].as_f64().unwrap();
        assert!((ours - theirs).abs() < 1e-4, "{ours} and {theirs}");
    }
}

/// Row S21: strings of up to eight of ten letters, two layers of width 64: nearly all are written backwards within minutes, with an adversary too. Run by
/// `make test-long`.
#[test]
#[ignore = "takes minutes"]
fn a_small_model_learns_to_write_backwards() {
    let place = place(20_000, 8);
    let larger = [
        "model.d_model=64",
        "model.encoder_layers=2",
        "model.encoder_ffn_dim=128",
        "model.decoder_ffn_dim=128",
        "model.attention_dropout=0",
        "model.dropout=0.0",
        "data.batch_tokens=2000",
        "train.lanes=1",
        "train.steps=1500",
        "optim.lr=2e-3",
        "log.every=100",
    ];
    for (run, scale) in [("plain", "adversarial.scale=0"), ("moved", "adversarial.scale=0.005")] {
        succeed(alone(&train(&place, run, &[&larger[..], &[scale]].concat())));
        let [sources, expected] = strings(200, 8, 9);
        fs::write(place.path("in"), sources).unwrap();
        let (input, output) = (place.text("in"), place.text(&format!("out-{run}")));
        succeed(translate(&place.text(run), &["--json", "--input", &input, "--output", &output]));
        let written = fs::read_to_string(&output).unwrap();
        let right = written.lines().zip(expected.lines()).filter(|(a, b)| a == b).count();
        println!("{run}: {right} of 200 strings");
        assert!(right >= 190, "{run}: {right} of 200");
    }
}
