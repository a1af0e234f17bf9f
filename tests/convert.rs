//! `segue convert` and `segue inspect` as users call them.

use std::fs;
use std::process::Command;

use segue_skip::peer_python;
use segue_tests::{ROOT, SHARED, Workplace, alone, fail, finish, mpirun, stderr, succeed};

fn fixture(name: &str) -> String {
    format!("{ROOT}/tests/fixtures/foreign/{name}")
}

#[test]
fn a_pickled_model_is_converted_checked_and_evaluated() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (model, cases) = (at("model"), fixture("kimiyoung/cases.safetensors"));
    let result = succeed(alone(&["convert", &fixture("kimiyoung"), &model, "--check", &cases, "--json"]));
    assert_eq!(
        (&result["check"]["holds"], &result["report"]["counts"]["reversed"]),
        (&true.into(), &2.into())
    );
    assert_eq!(result["report"]["vocabulary"]["entries"], 40);
    let again = at("again");
    let text = ["--check", "w0é w7é w14é"];
    let result = succeed(alone(&[&["convert", &model, &again, "--json"][..], &text].concat()));
    assert_eq!(result["check_text"]["loss"], result["check_text"]["before"]);
    assert_eq!(result["check_text"]["holds"], true);
    let output = succeed(alone(&["convert", "--to", "tf", &again, &at("tf"), "--json"]));
    assert!(output["report"]["notes"][0].as_str().unwrap().contains("--n_layer=2"));
    let listing = succeed(alone(&["inspect", "checkpoint", &at("tf"), "--json"]));
    assert_eq!(
        (&listing["kind"], listing["variables"].as_array().unwrap().len()),
        (&"tensorflow".into(), 36)
    );
}

#[test]
fn numbers_that_differ_end_with_1() {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model").display().to_string();
    let cases = fixture("nvidia/cases.safetensors");
    fail(alone(&["convert", &fixture("kimiyoung"), &model, "--check", &cases]), 1, &["FAILS"]);
}

/// The pickled and the TensorFlow models, whose programs nobody has to run.
#[test]
fn sources_of_every_kind_are_run_beside_what_became_of_them() {
    let place = tempfile::tempdir().unwrap();
    let text = place.path().join("text");
    fs::write(&text, "w0é w7é w14é w3é w9é ".repeat(60)).unwrap();
    let text = text.display().to_string();
    let vocabulary = fixture("hugging_face/vocab.bin");
    for source in ["hugging_face", "kimiyoung/shaw.pt", "nvidia", "tensorflow/wt103", "tensorflow/lm1b"] {
        let target = place.path().join(source.replace('/', "-")).display().to_string();
        let source = fixture(source);
        let command = ["convert", &source, &target, "--vocab", &vocabulary, "--check", &text, "--json"];
        let result = succeed(alone(&command));
        let checked = &result["check_text"];
        assert!(checked["holds"] == true && checked["targets"].as_u64() > Some(250), "{source}: {checked}");
        assert!(checked["layers"].as_array().unwrap().len() >= 3, "{source}");
        // A module says all, an old configuration most, a checkpoint of TensorFlow sizes alone.
        let guesses = result["report"]["guesses"].as_array().unwrap();
        let keys: Vec<&str> = guesses.iter().filter_map(|guess| guess["key"].as_str()).collect();
        let expected: &[&str] = match source.rsplit("foreign/").next() {
            Some("hugging_face") => &["model.layer_norm_epsilon"],
            Some("tensorflow/wt103" | "tensorflow/lm1b") => {
                &["model.mem_len", "model.clamp_len", "model.same_length", "model.dropout", "model.dropatt"]
            }
            _ => &[],
        };
        assert_eq!(keys, expected, "{source}");
    }
}

#[test]
fn checkpoints_of_others_are_read_back_with_what_they_trained_with() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let source = fixture("tensorflow/wt103");
    succeed(alone(&["convert", "--optimizer", &source, &at("here")]));
    succeed(alone(&["convert", "--optimizer", "--to", "tf", &at("here"), &at("back")]));
    let list = |path: &str| succeed(alone(&["inspect", "checkpoint", path, "--json"]))["variables"].clone();
    assert_eq!(list(&source), list(&at("back")));
    let marked = list(&at("here")).as_array().unwrap().iter().filter(|v| v["optimizer"] == true).count();
    assert!(marked > 0);
    fail(alone(&["convert", "--head", "race", &source, &at("no")]), 64, &["--to tf"]);
    fail(alone(&["convert", "--head", "rice", "--to", "tf", &source, &at("no")]), 64, &["regression:TASK"]);
}

/// Recurrent models of PyTorch programs with the words of their corpora, held against PyTorch's numbers and on a text, there and back.
#[test]
fn recurrent_models_come_and_go() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (words, text) = (fixture("recurrent/corpus.pt"), "aer w7é w14é nobody");
    for (name, kind, program) in [
        ("word_language_model/lstm", "word_language_model", "word-lm"),
        ("awd_lstm_lm/split", "awd_lstm_lm", "awd-lstm"),
        ("mos/mixture", "mos", "mos"),
    ] {
        let source = fixture(&format!("recurrent/{name}.pt"));
        let cases = fixture(&format!("recurrent/{name}.cases.safetensors"));
        let (here, back) = (at(kind), at(&format!("{program}-again")));
        let checks = ["--check", &cases, "--check-text", text, "--json"];
        let result = succeed(alone(&[&["convert", &source, &here, "--vocab", &words][..], &checks].concat()));
        assert_eq!((&result["check"]["holds"], &result["check_text"]["holds"]), (&true.into(), &true.into()));
        assert_eq!(result["report"]["source_kind"], kind);
        assert_eq!(result["report"]["vocabulary"]["entries"], 23);
        let result = succeed(alone(&["convert", "--to", program, &here, &back, "--check", text, "--json"]));
        assert_eq!(
            (&result["check_text"]["holds"], &result["report"]["target"]),
            (&true.into(), &kind.into())
        );
        let notes = result["report"]["notes"].to_string();
        assert!(notes.contains("ntoken=23 ninp=6 nhid=9"), "{notes}");
        let listing = succeed(alone(&["inspect", "checkpoint", &format!("{back}/model.pt"), "--json"]));
        assert_eq!(listing["kind"], kind);
        fail(alone(&["convert", "--to", program, &here, &at("no"), "--check", &cases]), 64, &["--to hf"]);
    }
    fail(alone(&["convert", "--to", "mos", &at("awd_lstm_lm"), &at("no")]), 78, &["mos", "model.mixture"]);
    fail(alone(&["convert", "--to", "mos", &fixture("kimiyoung"), &at("no")]), 78, &["transfo-xl"]);
    assert!(!place.path().join("no").exists());
}

/// What was converted can be told from a damaged copy of it, by whoever begins with it; who changes it on purpose says so.
#[test]
fn a_damaged_copy_of_a_converted_folder_is_refused() {
    let place = Workplace::new();
    let (made, back) = (place.text("made"), place.text("back"));
    let output = finish(alone(&["convert", &fixture("tensorflow/wt103"), &made]));
    assert!(stderr(&output).contains("  guess: model.mem_len = 384: "), "{}", stderr(&output));
    succeed(alone(&["convert", "--to", "tf", &made, &back]));
    for (again, folder, file) in
        [("made again", &made, "model.safetensors"), ("back again", &back, "checkpoint")]
    {
        let file = std::path::Path::new(folder).join(file);
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&file, &flipped).unwrap();
        fail(alone(&["convert", folder, &place.text("no")]), 65, &["BLAKE3"]);
        fs::write(&file, whole).unwrap();
        succeed(alone(&["convert", folder, &place.text(again)]));
    }
    let config = place.path("made/config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replacen('{', "{ ", 1)).unwrap();
    let begin = place.pretrain("run", &[&format!("train.init_from={made}"), "train.steps=1"]);
    fail(alone(&begin), 65, &["config.json", "MANIFEST.json"]);
    fs::remove_file(place.path("made/MANIFEST.json")).unwrap();
    succeed(alone(&["inspect", "checkpoint", &made]));
}

/// Folders of the public package, whole and in pieces and pickled, with each of its heads: all give the same folder, which
/// the package opens, also after a detour over TensorFlow.
#[test]
fn the_public_package_opens_what_came_from_it() {
    let Some(python) = peer_python("base") else { return };
    let place = tempfile::tempdir().unwrap();
    let run = |mode: &str| {
        let mut command = std::process::Command::new(&python);
        command.arg(format!("{ROOT}/tests/peers/xlnet_folders.py")).arg(mode).arg(place.path());
        let output = finish(command);
        println!("{}", String::from_utf8_lossy(&output.stdout).trim());
        assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    };
    run("write");
    for (class, head) in [
        ("AutoModelForCausalLM", Some("")),
        ("AutoModelForSequenceClassification", Some("classification:mnli")),
        ("AutoModelForMultipleChoice", Some("")),
        ("XLNetForQuestionAnswering", Some("")),
        ("AutoModelForTokenClassification", None),
        ("XLNetForQuestionAnsweringSimple", None),
    ] {
        let at = |name: &str| place.path().join(class).join(name).display().to_string();
        succeed(alone(&["convert", &at("single"), &at("made")]));
        for kind in ["pieces", "pickle", "old", "pickles"] {
            let target = at(&format!("{kind}-here"));
            succeed(alone(&["convert", &at(kind), &target]));
            for name in ["model.safetensors", "config.json"] {
                let read = |folder: &str| fs::read(format!("{folder}/{name}")).unwrap();
                assert!(read(&target) == read(&at("made")), "{class} {kind} {name}");
            }
        }
        let Some(head) = head else { continue };
        let named = ["--head", head];
        let named = if head.is_empty() { &[][..] } else { &named[..] };
        succeed(alone(&[&["convert", "--to", "tf", &at("made"), &at("tf")][..], named].concat()));
        succeed(alone(&["convert", &at("tf"), &at("made-over-tf")]));
    }
    run("open");
}

/// Two checkpoints that a third program has trained.
#[test]
fn checkpoints_of_a_third_program_come_back_as_they_were() {
    let folder = std::path::Path::new(SHARED).join("data/xlnet_tiny_keras");
    if !folder.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("no reference files at {}", folder.display()));
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    for entry in fs::read_dir(&folder).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        let (source, name) = (entry.path().display().to_string(), entry.file_name().into_string().unwrap());
        let (here, back) = (at(&name), at(&format!("{name}-back")));
        succeed(alone(&["convert", &source, &here]));
        succeed(alone(&["convert", "--to", "tf", &here, &back]));
        let bundles = [&source, &back].map(|path| segue_foreign::Bundle::open(path.as_ref()).unwrap());
        let mut compared = 0;
        for entry in bundles[0].entries() {
            let same = bundles[1].entries().iter().find(|other| other.name == entry.name);
            let Some(same) = same else {
                assert!(!entry.name.starts_with("model/transformer"), "{}", entry.name);
                continue;
            };
            let [old, new] = [bundles[0].tensor(entry), bundles[1].tensor(same)].map(Result::unwrap);
            assert_eq!((old.shape(), old.to_bytes()), (new.shape(), new.to_bytes()), "{}", entry.name);
            compared += 1;
        }
        assert!(compared > 20, "{name}: {compared}");
    }
}

/// Trained on two ranks, and taken out: on its base the public package answers as with the model in which they are added.
#[test]
fn the_public_package_puts_adapters_on_their_base() {
    let place = Workplace::new();
    let keys = ["task.epochs=2", "task.adapter_rank=4", "task.adapter_on=[\"ff\"]", "optim.lr=3e-3"];
    let args = place.finetune("run", &keys);
    succeed(mpirun(2, &args));
    let adapter = place.text("adapter");
    let taken = succeed(alone(&["--json", "convert", "--adapter", &place.text("run"), &adapter]));
    assert!(taken["modules"].as_u64().unwrap() > 0, "{taken}");
    let document = std::fs::read_to_string(place.path("adapter/adapter_config.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let base = document["base_model_name_or_path"].as_str().unwrap_or_default();
    assert!(base.starts_with(&place.text("encoder/checkpoints")), "{document}");
    fail(alone(&["convert", "--adapter", &place.text("run"), &adapter]), 73, &["adapter"]);
    let Some(python) = peer_python("base") else { return };
    let script = format!("{ROOT}/tests/peers/adapter_logits.py");
    let base = place.text("encoder/checkpoints/latest");
    let mut command = Command::new(python);
    command.args([&script, &base, &adapter, &place.text("run/best")]);
    let found = succeed(command);
    let number = |key: &str| found[key].as_f64().unwrap();
    assert!(number("difference") < 1e-5 * number("scale").max(1.0), "{found}");
    assert!(number("changed") > 100.0 * number("difference") && number("changed") > 1e-3, "{found}");
    assert_eq!(found["modules"], taken["modules"]);
}

#[test]
fn a_check_that_cannot_be_made_leaves_no_folder() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (model, cases) = (fixture("kimiyoung"), at("cases.safetensors"));
    fail(alone(&["convert", &model, &at("out"), "--check", &cases]), 66, &["cases.safetensors"]);
    fs::write(&cases, "no tensors").unwrap();
    fail(alone(&["convert", &model, &at("out"), "--check", &cases]), 65, &["cases.safetensors"]);
    let alone_there = at("shaw.pt");
    fs::copy(fixture("kimiyoung/shaw.pt"), &alone_there).unwrap();
    fail(alone(&["convert", &alone_there, &at("out"), "--check", "w0é w7é"]), 78, &["vocabulary", "--vocab"]);
    assert!(!place.path().join("out").exists());
    // One that was made says what it proves.
    let output = finish(alone(&["convert", &model, &at("out"), "--check", "w0é w7é w14é"]));
    let said = stderr(&output);
    assert!(
        said.contains("both by one table of names") && said.contains("--check CASES.safetensors"),
        "{said}"
    );
}

#[test]
fn a_folder_in_pieces_is_refused_with_the_command_that_joins_it() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    succeed(alone(&["convert", &fixture("kimiyoung"), &at("model")]));
    let file = segue_foreign::SafetensorsFile::open(at("model/model.safetensors").as_ref()).unwrap();
    let piece = "model-00001-of-00001.safetensors";
    let map: serde_json::Map<_, _> =
        file.entries().iter().map(|entry| (entry.name.clone(), piece.into())).collect();
    fs::rename(at("model/model.safetensors"), at(&format!("model/{piece}"))).unwrap();
    fs::remove_file(at("model/MANIFEST.json")).unwrap();
    let index = serde_json::json!({ "weight_map": map });
    fs::write(at("model/model.safetensors.index.json"), index.to_string()).unwrap();
    fs::write(at("ids.safetensors"), segue_tests::ids_file(40)).unwrap();
    let score = |model: &str| {
        let (model, ids, scores) = (at(model), at("ids.safetensors"), at("scores"));
        alone(&["score", "--model", &model, "--ids", &ids, "--output", &scores, "--force"])
    };
    fail(score("model"), 66, &["model.safetensors.index.json", "segue convert"]);
    succeed(alone(&["convert", &at("model"), &at("whole")]));
    // What another name of the file leads to stays as it was: the new file takes its place.
    fs::write(at("scores"), "old").unwrap();
    fs::hard_link(at("scores"), at("kept")).unwrap();
    succeed(score("whole"));
    assert_eq!(fs::read(at("kept")).unwrap(), b"old");
    assert!(fs::read(at("scores")).unwrap().len() > 1000);
    let left = fs::read_dir(place.path()).unwrap().flatten();
    assert!(left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().ends_with(".tmp")));
}

#[test]
fn bad_sources_have_their_exit_codes_and_leave_nothing() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    fail(alone(&["convert", &at("nowhere"), &at("out")]), 66, &["nowhere"]);
    let hostile = place.path().join("model.pt");
    let victim = at("owned");
    fs::write(&hostile, format!("cposix\nsystem\n(S'touch {victim}'\ntR.")).unwrap();
    fail(alone(&["convert", &at("model.pt"), &at("out")]), 65, &["model.pt"]);
    let whole = fs::read(fixture("kimiyoung/model.pt")).unwrap();
    fs::write(&hostile, &whole[..whole.len() / 2]).unwrap();
    fail(alone(&["convert", &at("model.pt"), &at("out")]), 65, &["model.pt", "ends inside"]);
    fs::create_dir(at("out")).unwrap();
    fs::write(at("out/mine"), "").unwrap();
    fail(alone(&["convert", &fixture("nvidia"), &at("out")]), 73, &["out", "empty"]);
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
