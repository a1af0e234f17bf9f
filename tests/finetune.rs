//! Fine-tuning as its users meet it: the real binary on files as they are published.

use std::fs;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::Command;

use segue_skip::peer_python;
use segue_tests::{ROOT, Workplace, alone, fail, finish, mpirun, stderr, succeed};
use serde_json::{Value, json};

fn write(place: &Workplace, path: &str, text: &str) {
    let path = place.path(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn json_at(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Arguments of a run on another task than the workplace's own.
fn on_task(place: &Workplace, run: &str, task: &str, data: &str, more: &[&str]) -> Vec<String> {
    let mut args = place.finetune(run, more);
    args[3] = task.into();
    let place_of_data = args.iter().position(|arg| arg == "--data").unwrap() + 1;
    args[place_of_data] = place.text(data);
    args
}

/// How often a file is opened while it is watched.
struct Opened {
    events: fs::File,
}

impl Opened {
    fn watch(path: &Path) -> Self {
        let name = std::ffi::CString::new(path.display().to_string()).unwrap();
        // SAFETY: plain system calls; the name lives through its call, and the descriptor has one owner.
        let events = unsafe {
            let events = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            assert!(events >= 0 && libc::inotify_add_watch(events, name.as_ptr(), Self::EVENTS) >= 0);
            fs::File::from_raw_fd(events)
        };
        Self { events }
    }

    /// Events that are alike and follow each other are told once: closing keeps openings apart.
    const EVENTS: u32 = libc::IN_OPEN | libc::IN_CLOSE_NOWRITE;

    fn count(mut self) -> usize {
        let mut bytes = vec![0; 1 << 16];
        // Four numbers an event: the watch, what happened, a cookie, and the length of a name, of which a file has none.
        let length = self.events.read(&mut bytes).unwrap_or(0);
        let happened = bytes[..length].chunks_exact(16).map(|e| u32::from_ne_bytes([e[4], e[5], e[6], e[7]]));
        happened.filter(|what| what & libc::IN_OPEN != 0).count()
    }
}

/// A checkpoint may be as large as memory: it is hashed once, whole, and the weights are read once besides. That of a run, which training may go on from, is mapped
/// once more, to look for values that are not finite.
#[test]
fn the_model_that_training_or_answers_begin_with_is_opened_once() {
    let place = Workplace::new();
    let train = place.finetune("run", &["task.epochs=0.5"]);
    let watch = |run: &str| {
        let folder = fs::canonicalize(place.path(run)).unwrap();
        ["optimizer.safetensors", "model.safetensors"].map(|file| Opened::watch(&folder.join(file)))
    };
    let watched = watch("encoder/checkpoints/latest");
    succeed(alone(&train));
    let [moments, weights] = watched.map(Opened::count);
    assert_eq!((moments, weights), (2, 3));
    let watched = watch("run/checkpoints/latest");
    let (data, model) = (place.text("sst2"), place.text("run/checkpoints/latest"));
    let output = place.text("answers");
    let args =
        ["finetune", "--predict", "--task", "sst2", "--data", &data, "--model", &model, "--output", &output];
    succeed(alone(&args));
    let [moments, weights] = watched.map(Opened::count);
    assert_eq!((moments, weights), (1, 2));
}

/// The first step is that of a run, before its update.
#[test]
fn a_range_test_of_a_task_begins_as_a_run_and_leaves_none() {
    let place = Workplace::new();
    let run = succeed(alone(&place.finetune("run", &["train.steps=1"])));
    let (model, data) = (place.text("encoder"), format!("task.data={}", place.text("sst2")));
    let test = ["bench", "lr", "--json", "--model", &model, "--steps", "6", "task.name=sst2", &data];
    let sizes = ["train.lanes=8", "train.micro_batch=2", "train.segment=32"];
    let before = fs::read_dir(place.path(".")).unwrap().count();
    let found = succeed(alone(&[&test[..], &sizes].concat()));
    assert_eq!((found["points"].as_array().unwrap().len(), &found["points"][0]["lr"]), (6, &json!(1e-7)));
    assert_eq!(found["points"][0]["loss"], run["loss"]);
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), before);
}

/// Row X22.
#[test]
fn a_task_is_learnt_answered_and_published() {
    let place = Workplace::new();
    let result = succeed(mpirun(2, &place.finetune("run", &["task.epochs=6", "eval.every=20"])));
    assert!(result["best"].as_f64().unwrap() > 0.95, "{result}");
    let best = place.path("run/best");
    let config = json_at(&best.join("config.json"));
    assert_eq!(config["architectures"], json!(["XLNetForSequenceClassification"]));
    assert_eq!(config["id2label"], json!({ "0": "0", "1": "1" }));
    let card = fs::read_to_string(best.join("README.md")).unwrap();
    for word in [
        "sst2",
        "accuracy",
        "2 ranks",
        "160 training examples",
        "seed: 1",
        "pipeline_tag: text-classification",
        "datasets: [\"nyu-mll/glue\"]\nmodel-index: [{\"name\":\"xlnet fine-tuned on sst2\",\"results\":",
    ] {
        assert!(card.contains(word), "`{word}` is not in\n{card}");
    }
    let average = ["average", "--run", &place.text("run"), "--last", "1", "--output", &place.text("mean")];
    fail(alone(&average), 78, &["was fine-tuned", "--predict"]);
    // Nothing of the machine it was made on.
    assert!(!card.contains("/tmp") && !card.contains("run.dir"), "{card}");
    let predictions = fs::read_to_string(place.path("run/predictions/sst2-dev.tsv")).unwrap();
    let lines: Vec<&str> = predictions.lines().collect();
    assert_eq!((lines[0], lines.len()), ("index\tprediction", 61));
    // The best model alone, on other ranks, answers the same.
    let dev = place.text("sst2");
    let predict = |models: &[&str], output: &str| {
        let mut args: Vec<String> =
            ["finetune", "--predict", "--json", "--task", "sst2", "--data", &dev].map(String::from).to_vec();
        for model in models {
            args.extend(["--model".to_string(), place.text(model)]);
        }
        args.extend(["--output".to_string(), place.text(output)]);
        args
    };
    let again = succeed(alone(&predict(&["run"], "again")));
    assert_eq!(again["scores"], result["scores"]);
    assert_eq!(fs::read_to_string(place.path("again/sst2-dev.tsv")).unwrap(), predictions);
    fail(alone(&predict(&["run"], "again")), 73, &["again: it is not empty", "--force"]);
    // Every checkpoint of the run, and the mean of two models.
    let mut all = predict(&["run"], "all");
    all.push("--all-checkpoints".into());
    let all = succeed(mpirun(2, &all));
    assert_eq!(all["checkpoints"].as_array().unwrap().len(), 1);
    let both = succeed(alone(&predict(&["run", "run/checkpoints/latest"], "both")));
    assert!(both["scores"][0]["metrics"][0]["value"].as_f64().unwrap() > 0.9);
}

/// `segue predict` on the model in `run`.
fn predict(place: &Workplace, run: &str, input: &str, more: &[&str]) -> Command {
    let (run, input) = (place.text(run), if input == "-" { "-".into() } else { place.text(input) });
    alone(&[&["predict", &run, "--input", &input], more].concat())
}

/// The rows of a CSV file without quotes, from the second column on. The first has the line.
fn answers(csv: &[u8]) -> Vec<Vec<String>> {
    let text = String::from_utf8(csv.to_vec()).unwrap();
    text.lines().skip(1).map(|line| line.split(',').skip(1).map(String::from).collect()).collect()
}

/// Rows of a task's file, lines of their text and objects with it, asked about one by one, have the answers of the task.
#[test]
fn texts_from_anywhere_are_answered_as_those_of_the_task_are() {
    let place = Workplace::new();
    succeed(alone(&place.finetune("run", &["task.epochs=3"])));
    let dev = fs::read_to_string(place.path("sst2/dev.tsv")).unwrap();
    let rows: Vec<(&str, &str)> = dev.lines().skip(1).map(|line| line.split_once('\t').unwrap()).collect();
    let lines: String = rows.iter().map(|(text, _)| format!("{text}\n")).collect();
    let objects: String = rows.iter().map(|(text, _)| format!("{}\n", json!({ "text": text }))).collect();
    write(&place, "lines.txt", &lines);
    write(&place, "objects.jsonl", &objects);
    let csv = place.text("answers.csv");
    let output = finish(predict(&place, "run", "sst2/dev.tsv", &["--csv", &csv]));
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("text from `sentence`; not read: `label`"), "{said}");
    let of_rows = answers(&fs::read(&csv).unwrap());
    fail(predict(&place, "run", "sst2/dev.tsv", &["--csv", &csv]), 73, &["answers.csv", "--force"]);

    // The labels that the run has written down, and the loss that it has measured.
    let predictions = fs::read_to_string(place.path("run/predictions/sst2-dev.tsv")).unwrap();
    let labels: Vec<&str> =
        predictions.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap()).collect();
    assert!(["0", "1"].iter().all(|label| labels.contains(label)), "it answers nothing but {}", labels[0]);
    assert_eq!(of_rows.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), labels);
    let of_gold = |(row, (_, gold)): (&Vec<String>, &(&str, &str))| {
        row[1 + gold.parse::<usize>().unwrap()].parse::<f64>().unwrap()
    };
    let surprise: f64 = of_rows.iter().zip(&rows).map(of_gold).map(|p| -p.ln()).sum();
    let loss = json_at(&place.path("run/predictions/scores.json"))[0]["loss"].as_f64().unwrap();
    // Probabilities are written in single precision.
    assert!((surprise / rows.len() as f64 - loss).abs() < 1e-6, "{surprise} {loss}");

    // The same texts are the same groups, to the last bit.
    let of_lines = finish(predict(&place, "run", "lines.txt", &[]));
    assert_eq!(answers(&of_lines.stdout), of_rows);
    // A model folder without its run says enough.
    fs::create_dir(place.path("model")).unwrap();
    for file in fs::read_dir(place.path("run/best")).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_file() {
            fs::copy(&file, place.path("model").join(file.file_name().unwrap())).unwrap();
        }
    }
    let of_model = finish(predict(&place, "model", "lines.txt", &[]));
    assert!(of_model.status.success(), "{}", stderr(&of_model));
    let labels_of = |rows: &[Vec<String>]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    assert_eq!(labels_of(&answers(&of_model.stdout)), labels_of(&of_rows));
    let mut of_stdin = predict(&place, "run", "-", &["--format", "jsonl"]);
    of_stdin.stdin(fs::File::open(place.path("objects.jsonl")).unwrap());
    assert_eq!(answers(&of_stdin.output().unwrap().stdout), of_rows);
    let found = succeed(predict(&place, "run", "objects.jsonl", &["--json", "--micro-batch", "7"]));
    assert_eq!(
        (&found["task"], &found["labels"], &found["segment"]),
        (&json!("sst2"), &json!(["0", "1"]), &json!(32))
    );
    for (row, answer) in of_rows.iter().zip(found["predictions"].as_array().unwrap()) {
        assert_eq!(answer["label"], row[0].as_str());
        // Groups of another size are other products.
        let p = row[1].parse::<f64>().unwrap();
        assert!((answer["probabilities"]["0"].as_f64().unwrap() - p).abs() < 1e-5, "{answer} {row:?}");
    }
    what_cannot_be_answered_whole_is_told(&place);
}

/// Texts that are blank or too long keep their lines, and what is no text for the model in `run` is refused.
fn what_cannot_be_answered_whole_is_told(place: &Workplace) {
    write(place, "lines.txt", &format!("past memory\n\n{}\n", "the past is carried on ".repeat(9)));
    let output = finish(predict(place, "run", "lines.txt", &["--top-k", "1"]));
    let rows = answers(&output.stdout);
    assert_eq!((rows.len(), rows[0].len(), &rows[1]), (3, 2, &vec![String::new(); 2]));
    for part in [
        "blank, and not answered: 1 of 3 texts (line 2)",
        "longer than 32 tokens (--segment): 1 of 3 texts (line 3)",
    ] {
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    let found = succeed(predict(place, "run", "lines.txt", &["--json", "--segment", "200"]));
    assert_eq!((&found["blank"], &found["cut"]), (&json!([2]), &json!([])));
    assert_eq!(found["predictions"][1], json!({ "line": 2, "label": null }));
    let refused = |run: &str, more: &[&str], code, words: &[&str]| {
        fail(predict(place, run, "lines.txt", more), code, words);
    };
    refused("encoder", &[], 78, &["names no task", "segue finetune"]);
    refused("run", &["--task", "rte"], 64, &["no head for `rte`", "sst2"]);
    refused("run", &["--nodes", "n.txt"], 64, &["--nodes is of planetoid models", "holds a xlnet model"]);
    refused("run", &["--format", "xml"], 64, &["unknown format `xml`", "jsonl"]);
    fail(predict(place, "run", "nothing.txt", &[]), 66, &["nothing.txt is missing"]);
    fail(alone(&["predict", &place.text("run")]), 64, &["no text to answer", "--input -"]);
}

/// Of a Transformer-XL, which reads from left to right.
#[test]
fn numbers_of_texts_and_labels_of_words_are_those_of_the_task() {
    let place = Workplace::new();
    let _ = place.finetune("unused", &[]);
    let pairs = format!("data.corpus={}", place.text("pairs"));
    succeed(alone(&place.pretrain("memory", &["train.steps=1", "eval.every=0", &pairs])));
    let rows: String = (0..16).map(|i| format!("past {} model\t{}\n", "on ".repeat(i % 5), i % 4)).collect();
    let words: String = (0..12).map(|i| format!("memory B-X\nreads{} O\n\n", i % 3)).collect();
    for (path, text) in [("numbers/train.tsv", &rows), ("numbers/dev.tsv", &rows)] {
        write(&place, path, &format!("text\tscore\n{text}"));
    }
    for name in ["words/train.txt", "words/dev.txt"] {
        write(&place, name, &words);
    }
    let on = |run: &str, task: &str, data: &str| {
        let mut args = on_task(&place, run, task, data, &["task.epochs=1"]);
        args[5] = place.text("memory");
        succeed(alone(&args));
    };
    on("numbers-run", "text-regression", "numbers");
    let written = fs::read_to_string(place.path("numbers-run/predictions/text-regression-dev.tsv")).unwrap();
    let written =
        written.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap().parse::<f64>().unwrap());
    let found = answers(&finish(predict(&place, "numbers-run", "numbers/dev.tsv", &[])).stdout);
    let found = found.iter().map(|row| f64::from(row[0].parse::<f32>().unwrap()));
    assert!(found.eq(written), "numbers differ");

    on("words-run", "conll", "words");
    let written = fs::read_to_string(place.path("words-run/predictions/conll-dev.tsv")).unwrap();
    let lines: String = (0..12).map(|i| format!("memory reads{}\n", i % 3)).collect();
    write(&place, "words.txt", &lines);
    let found = answers(&finish(predict(&place, "words-run", "words.txt", &[])).stdout);
    let found: Vec<[&str; 2]> = found.iter().map(|row| [row[1].as_str(), &row[2]]).collect();
    let cells =
        written.lines().filter(|line| !line.is_empty()).map(|line| line.split(' ').collect::<Vec<_>>());
    assert_eq!(found, cells.map(|cells| [cells[0], cells[2]]).collect::<Vec<_>>());
}

/// Row X27.
#[test]
fn several_seeds_and_several_tasks() {
    let place = Workplace::new();
    let mut args = place.finetune("seeds", &[]);
    args.extend(["--seeds", "1,2,3"].map(String::from));
    let result = succeed(alone(&args));
    let metric = &result["metrics"][0];
    assert_eq!((&metric["metric"], metric["values"].as_array().unwrap().len()), (&json!("accuracy"), 3));
    assert_eq!(json_at(&place.path("seeds/summary.json"))["metrics"], result["metrics"]);
    assert!(place.path("seeds/seed-3/best/model.safetensors").exists());
    // All checkpoints of all seeds, each with its seed; a model is one of them.
    let (seeds, data, scored) = (place.text("seeds"), place.text("sst2"), place.text("scored"));
    let args = ["finetune", "--predict", "--json", "--task", "sst2", "--model", &seeds, "--data", &data];
    let args = [&args[..], &["--output", &scored]].concat();
    let output = finish(alone(&[&args[..], &["--all-checkpoints"]].concat()));
    assert!(output.status.success() && stderr(&output).contains("seed 3, step"), "{}", stderr(&output));
    let all = json_at(&place.path("scored/scores.json"));
    let of = |row: &Value| (row["seed"].as_u64().unwrap(), row["step"].as_u64().unwrap());
    let rows: Vec<(u64, u64)> = all["checkpoints"].as_array().unwrap().iter().map(of).collect();
    assert_eq!(
        rows.iter().map(|(seed, _)| *seed).collect::<std::collections::BTreeSet<_>>().len(),
        3,
        "{all}"
    );
    for (seed, step) in rows {
        assert!(place.path(&format!("scored/seed-{seed}/step-{step:08}/sst2-dev.tsv")).is_file());
    }
    assert!(all["best_seed"].is_u64(), "{all}");
    fail(alone(&args), 64, &["seed-1, seed-2, seed-3", "--model"]);
    // Of several weight sets, the scores beside the best model are its own.
    let two_tailed = ["average.kind=two_tailed", "eval.every=5"];
    let result = succeed(alone(&place.finetune("averaged", &two_tailed)));
    let metrics = json_at(&place.path("averaged/best/metrics.json"));
    assert_eq!(metrics["value"], metrics["scores"][0]["metrics"][0]["value"]);
    assert_eq!(metrics["scores"], result["scores"]);
    // Two tasks on one encoder, then one of them alone from there.
    fs::create_dir_all(place.path("glue/SST-2")).unwrap();
    for name in ["train.tsv", "dev.tsv"] {
        fs::copy(place.path("sst2").join(name), place.path("glue/SST-2").join(name)).unwrap();
    }
    let rows: String = (0..40).map(|i| format!("source\t{}\t\tpast memory reads {i}\n", i % 2)).collect();
    write(&place, "glue/CoLA/train.tsv", &rows);
    write(&place, "glue/CoLA/dev.tsv", &rows);
    let both = succeed(mpirun(2, &on_task(&place, "both", "sst2,cola", "glue", &["task.epochs=1"])));
    let card = fs::read_to_string(place.path("both/best/README.md")).unwrap();
    assert!(card.contains("library_name: segue\n") && !card.contains("pipeline_tag"), "{card}");
    let tasks: Vec<&Value> = both["scores"].as_array().unwrap().iter().map(|split| &split["task"]).collect();
    assert_eq!(tasks, [&json!("sst2"), &json!("cola")]);
    let mut alone_after = on_task(&place, "after", "sst2", "glue", &["task.epochs=1"]);
    alone_after[5] = place.text("both");
    let output = finish(alone(&alone_after));
    assert!(output.status.success() && !stderr(&output).contains("fresh weights"), "{}", stderr(&output));
}

/// Rows X24, X25.
#[test]
fn options_and_spans_go_from_files_to_files() {
    let place = Workplace::new();
    let articles: Vec<Value> = (0..12)
        .map(|i| {
            let answer = if i % 2 == 0 { "memory" } else { "model" };
            json!([["the past is carried on in every segment"],
                   [{ "question": "what reads", "choice": ["memory", "model", "lane"], "answer": answer }], format!("{i}")])
        })
        .collect();
    for name in ["train.json", "dev.json", "test.json"] {
        write(&place, &format!("dream/{name}"), &json!(articles).to_string());
    }
    let result = succeed(mpirun(2, &on_task(&place, "dream-run", "dream", "dream", &["train.segment=48"])));
    assert_eq!(result["scores"][0]["count"], 12);
    let answers = fs::read_to_string(place.path("dream-run/predictions/dream-test.tsv")).unwrap();
    assert_eq!(answers.lines().count(), 13);
    let questions = |count: usize| {
        let paragraph = |i: usize| {
            let context =
                format!("In every segment the model reads {} of the past.", ["one", "a lane", "two"][i % 3]);
            let answer = ["one", "a lane", "two"][i % 3];
            let start = context.find(answer).unwrap();
            json!({ "context": context, "qas": [
                { "id": format!("q{i}"), "question": "What does the model read?", "is_impossible": false,
                  "answers": [{ "text": answer, "answer_start": start }] },
                { "id": format!("n{i}"), "question": "Who carried it?", "is_impossible": true, "answers": [] },
            ]})
        };
        let paragraphs: Vec<Value> = (0..count).map(paragraph).collect();
        json!({ "version": "v2.0", "data": [{ "title": "t", "paragraphs": paragraphs }] }).to_string()
    };
    write(&place, "squad/train-v2.0.json", &questions(30));
    write(&place, "squad/dev-v2.0.json", &questions(9));
    let options = ["train.segment=64", "task.epochs=10", "task.stride=8", "task.max_question=12"];
    let result = succeed(mpirun(2, &on_task(&place, "squad-run", "squad2", "squad", &options)));
    let metrics = &result["scores"][0]["metrics"];
    assert_eq!((&metrics[0]["name"], &result["scores"][0]["count"]), (&json!("best_f1"), &json!(18)));
    assert!(metrics[0]["value"].as_f64().unwrap() > 60.0, "{metrics}");
    let folder = place.path("squad-run/predictions/squad2-dev");
    for name in ["predictions.json", "nbest_predictions.json", "null_odds.json"] {
        assert_eq!(json_at(&folder.join(name)).as_object().unwrap().len(), 18, "{name}");
    }
    // The same questions outside any file of SQuAD.
    let dev: Value = serde_json::from_str(&questions(9)).unwrap();
    let paragraphs = dev["data"][0]["paragraphs"].as_array().unwrap();
    let asked = |paragraph: &Value| {
        let of =
            |question: &Value| json!({ "question": question["question"], "context": paragraph["context"] });
        paragraph["qas"]
            .as_array()
            .unwrap()
            .iter()
            .map(|question| format!("{}\n", of(question)))
            .collect::<String>()
    };
    write(&place, "asked.jsonl", &paragraphs.iter().map(asked).collect::<String>());
    let found = succeed(predict(&place, "squad-run", "asked.jsonl", &["--json", "--top-k", "2"]));
    let ids = paragraphs
        .iter()
        .flat_map(|paragraph| paragraph["qas"].as_array().unwrap())
        .map(|asked| &asked["id"]);
    let [written, odds] = ["predictions.json", "null_odds.json"].map(|name| json_at(&folder.join(name)));
    for (answer, id) in found["predictions"].as_array().unwrap().iter().zip(ids) {
        let id = id.as_str().unwrap();
        assert_eq!((&answer["answer"], &answer["null_odds"]), (&written[id], &odds[id]), "{id}");
        assert_eq!(answer["top"][0]["answer"], written[id]);
    }
    fail(predict(&place, "squad-run", "train.txt", &[]), 64, &["single texts", "`question` and `context`"]);
    fail(
        predict(&place, "dream-run", "asked.jsonl", &[]),
        78,
        &["chooses among options", "--predict --task dream"],
    );
}

#[test]
fn bad_input_names_file_and_line_and_can_be_skipped() {
    let place = Workplace::new();
    place.finetune("unused", &[]);
    let good = fs::read_to_string(place.path("sst2/train.tsv")).unwrap();
    let dev = fs::read_to_string(place.path("sst2/dev.tsv")).unwrap();
    let cases: [(&str, Vec<u8>, &[&str]); 4] = [
        ("columns", b"only one column\n".to_vec(), &["train.tsv", "162", "column"]),
        ("label", b"a past model\tmaybe\n".to_vec(), &["train.tsv", "162", "maybe"]),
        ("utf8", b"a \xff\xfe model\t1\n".to_vec(), &["train.tsv", "162", "UTF-8"]),
        ("empty", b"\t1\n".to_vec(), &["train.tsv", "162", "empty"]),
    ];
    for (name, line, words) in cases {
        let folder = place.path(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("train.tsv"), [good.as_bytes(), &line, b"a model\t0\n"].concat()).unwrap();
        fs::write(folder.join("dev.tsv"), &dev).unwrap();
        let options = ["train.stop_at=1"];
        fail(alone(&on_task(&place, &format!("{name}-run"), "sst2", name, &options)), 65, words);
        let mut skipping = on_task(&place, &format!("{name}-run"), "sst2", name, &options);
        skipping.push("--skip-bad".into());
        let output = finish(alone(&skipping));
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains("skipped 1"), "{}", stderr(&output));
    }
    let windows: String = good.lines().map(|line| format!("{line}\r\n")).collect();
    write(&place, "windows/train.tsv", &windows);
    write(&place, "windows/dev.tsv", &dev.replace('\n', "\r\n"));
    succeed(alone(&on_task(&place, "windows-run", "sst2", "windows", &["train.stop_at=1"])));
}

/// Without learning and dropout the mean loss of a pass is one number, however the pass is cut.
#[test]
fn a_small_set_is_seen_whole_in_every_pass() {
    let place = Workplace::new();
    let still = ["optim.lr=1e-30", "model.dropout=0", "model.dropatt=0", "log.every=1", "task.epochs=3"];
    let mean_of_passes = |lanes: &str, batches: usize| {
        let options = [&still[..], &[lanes, "train.micro_batch=2"]].concat();
        let run = format!("{lanes}-{batches}");
        let mut args = place.finetune(&run, &options);
        let data = args.iter().position(|arg| arg == "--data").unwrap() + 1;
        args[data] = place.text("small");
        succeed(alone(&args));
        let rows = fs::read_to_string(place.path(&run).join("metrics.jsonl")).unwrap();
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
        let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
        let rows: Vec<Value> = rows.filter(|row| row["kind"] == "train").collect();
        let before = [0.0].into_iter().chain(rows.iter().map(|row| number(row, "tokens")));
        let of = |(row, before)| (number(row, "loss"), number(row, "tokens") - before);
        let steps: Vec<(f64, f64)> = rows.iter().zip(before).map(of).collect();
        assert_eq!(steps.len(), 3 * batches, "{lanes}");
        let sums = steps.chunks(batches).map(|pass| {
            assert_eq!(pass.iter().map(|(_, targets)| targets).sum::<f64>(), 20.0);
            pass.iter().map(|(loss, targets)| loss * targets).sum::<f64>() / 20.0
        });
        sums.collect::<Vec<f64>>()
    };
    place.finetune("none", &[]);
    let rows = fs::read_to_string(place.path("sst2/train.tsv")).unwrap();
    let few: String = rows.lines().take(21).map(|line| format!("{line}\n")).collect();
    write(&place, "small/train.tsv", &few);
    write(&place, "small/dev.tsv", &few);
    let means = [
        mean_of_passes("train.lanes=32", 1),
        mean_of_passes("train.lanes=6", 4),
        mean_of_passes("train.lanes=4", 5),
    ];
    for mean in means.concat() {
        assert!((mean - means[0][0]).abs() < 1e-6, "{means:?}");
    }
    // A batch that does not fill its lanes is the same on ranks that have nothing of it.
    let options = [&still[3..], &["train.lanes=16", "train.micro_batch=4"]].concat();
    let run = |name: &str| {
        let mut args = place.finetune(name, &options);
        let data = args.iter().position(|arg| arg == "--data").unwrap() + 1;
        args[data] = place.text("small");
        args
    };
    succeed(alone(&run("one")));
    succeed(mpirun(2, &run("two")));
    assert_eq!(place.final_bytes("one"), place.final_bytes("two"));
}

#[test]
fn keys_that_are_given_win_over_what_defaults_reckon() {
    let place = Workplace::new();
    let twice = place.finetune("run", &["train.steps=3", "task.epochs=3"]);
    fail(alone(&twice), 78, &["task.epochs", "train.steps", "override `train.steps=3`"]);
    // The workplace gives passes before.
    assert_eq!(succeed(alone(&place.finetune("run", &["train.steps=3"])))["step"], 3);
    // 160 examples in batches of 8, twice: known once they are read.
    let cycles = ["schedule.kind=cyclical", "schedule.cycle=41"];
    fail(alone(&place.finetune("cycles", &cycles)), 78, &["`schedule.cycle` = 41", "train.steps = 40"]);
}

#[test]
fn columns_are_told_and_files_of_other_tasks_refused() {
    let place = Workplace::new();
    let rows = |label: &dyn Fn(usize) -> usize| -> String {
        (0..24).map(|i| format!("{i}\tpast memory {i}\tthe model reads\t{}\n", label(i))).collect()
    };
    let header = "idx\tsentence1\tsentence2\tlabel\n";
    for name in ["train.tsv", "dev.tsv"] {
        write(&place, &format!("couples/{name}"), &format!("{header}{}", rows(&|i| i % 2)));
        write(&place, &format!("one-class/{name}"), &format!("{header}{}", rows(&|_| 1)));
        write(&place, &format!("cola/{name}"), "gj04\t1\t\tthe model reads\ngj04\t0\t\treads model the\n");
    }
    let stop = ["train.stop_at=1"];
    let output = finish(alone(&on_task(&place, "couples-run", "text", "couples", &stop)));
    let said = "text from `sentence1`; second text from `sentence2`; label from `label`; not read: `idx`";
    assert!(output.status.success() && stderr(&output).contains(said), "{}", stderr(&output));
    let one = on_task(&place, "one-run", "text", "one-class", &stop);
    fail(alone(&one), 65, &["train.tsv", "every label is `1`", "task.label"]);
    let other = on_task(&place, "other-run", "sst2", "cola", &stop);
    fail(alone(&other), 65, &["train.tsv", "4 columns", "`sst2`"]);
}

#[test]
fn splits_without_labels_are_answered_and_not_scored() {
    let place = Workplace::new();
    let rows = |labels: &[i32]| -> String {
        let row = |(i, label): (usize, &i32)| {
            format!("{}\n", json!({ "sentence": format!("past memory {i}"), "label": label, "idx": i }))
        };
        labels.iter().enumerate().map(row).collect()
    };
    let labelled = rows(&[0, 1].repeat(8));
    for folder in ["scored", "unscored"] {
        write(&place, &format!("{folder}/train.jsonl"), &labelled);
        write(&place, &format!("{folder}/test.jsonl"), &rows(&[-1; 5]));
    }
    write(&place, "scored/dev.jsonl", &labelled);
    for (folder, scored) in [("scored", json!("dev")), ("unscored", Value::Null)] {
        let run = format!("{folder}-run");
        let output = finish(alone(&on_task(&place, &run, "text", folder, &["task.epochs=1"])));
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains("answered and not scored: 5 rows"), "{}", stderr(&output));
        let scores = json_at(&place.path(&run).join("predictions/scores.json"));
        assert_eq!(
            (&scores[0]["split"], scores.as_array().unwrap().len()),
            (&scored, scored.is_string() as usize)
        );
        let answers = fs::read_to_string(place.path(&run).join("predictions/text-test.tsv")).unwrap();
        let answers: Vec<&str> = answers.lines().skip(1).filter_map(|line| line.split('\t').nth(1)).collect();
        assert!(
            answers.len() == 5 && answers.iter().all(|answer| ["0", "1"].contains(answer)),
            "{answers:?}"
        );
    }
}

#[test]
fn the_best_model_of_a_run_is_the_run() {
    let place = Workplace::new();
    let result = succeed(alone(&place.finetune("run", &["task.epochs=4", "eval.every=10", "optim.lr=0.05"])));
    // The last checkpoint is another model than the best.
    assert_ne!(result["best_step"], result["step"]);
    let best = fs::read(place.path("run/best/model.safetensors")).unwrap();
    assert_ne!(best, fs::read(place.path("run/checkpoints/latest/model.safetensors")).unwrap());
    let convert =
        |from: &str, to: &str| ["convert", &place.text(from), &place.text(to)].map(String::from).to_vec();
    let output = finish(alone(&convert("run", "of-run")));
    assert!(stderr(&output).contains("run/best"), "{}", stderr(&output));
    succeed(alone(&[&["--json".to_string()], &convert("run/best", "of-best")[..]].concat()));
    let weights = |folder: &str| fs::read(place.path(folder).join("model.safetensors")).unwrap();
    assert!(weights("of-run") == weights("of-best"));
    // Nothing to answer is an error.
    let mut ax: Vec<String> = ["finetune", "--predict", "--task", "ax", "--model"].map(String::from).to_vec();
    ax.extend([place.text("run"), "--data".into(), place.text("sst2"), "--output".into(), place.text("out")]);
    fail(alone(&ax), 66, &["nothing to answer", "ax"]);
}

#[test]
fn what_is_missing_is_said_before_anything_starts() {
    let place = Workplace::new();
    let args = place.finetune("run", &[]);
    let without = |option: &str| {
        let at = args.iter().position(|arg| arg == option).unwrap();
        let mut args = args.clone();
        args.drain(at..at + 2);
        args
    };
    fail(alone(&without("--model")), 64, &["--model"]);
    fail(alone(&without("--data")), 78, &["--data"]);
    fail(alone(&without("--task")), 78, &["--task"]);
    fail(alone(&on_task(&place, "run", "sst3", "sst2", &[])), 64, &["sst3", "sst2"]);
    fail(alone(&on_task(&place, "run", "rte", "nowhere", &[])), 66, &["nowhere"]);
    fail(alone(&place.pretrain("run", &["task.name=sst2"])), 78, &["segue finetune"]);
    let mut predict = place.finetune("run", &[]);
    predict.extend(["--predict".to_string(), "--output".into(), place.text("out")]);
    fail(alone(&predict), 78, &["segue finetune"]);
}

/// Answers are averaged place by place, of examples that are read for the first model.
#[test]
fn models_that_answer_otherwise_are_refused() {
    let place = Workplace::new();
    for (run, labels) in [("own", "task.labels=[]"), ("turned", r#"task.labels=["1","0"]"#)] {
        succeed(alone(&place.finetune(run, &["task.epochs=0.2", labels])));
    }
    let header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore";
    write(&place, "stsb/dev.tsv", &format!("{header}\n0\tg\tf\ty\t0\ts\ts\tgood film\tbad film\t1.5\n"));
    let [own, turned, data, stsb, output] =
        ["own", "turned", "sst2", "stsb", "answers"].map(|name| place.text(name));
    let answer = |task: &str, data: &str, models: &[&str]| {
        let mut args =
            ["finetune", "--predict", "--force", "--task", task, "--data", data, "--output", &output]
                .to_vec();
        models.iter().for_each(|model| args.extend(["--model", *model]));
        alone(&args)
    };
    fail(answer("sst2", &data, &[&own, &turned]), 78, &["turned answers with `1, 0`", "`0, 1`"]);
    fail(answer("stsb", &stsb, &[&own]), 78, &["classification", "regression"]);
    fail(answer("sst2,stsb", &data, &[&own]), 64, &["answers one task"]);
    assert!(!place.path("answers").exists());
    succeed(answer("sst2", &data, &[&own, &own]));
    // The length of sequences is that of the training, in whatever way the model is named.
    let scores = || json_at(&place.path("answers/scores.json"));
    let of_run = scores();
    succeed(answer("sst2", &data, &[&format!("{own}/best")]));
    assert_eq!(scores(), of_run);
}

/// Before anything is trained that nothing would be chosen of.
#[test]
fn what_a_run_cannot_be_judged_by_is_refused() {
    let place = Workplace::new();
    fail(alone(&place.finetune("run", &["task.metric=rmse"])), 78, &["task.metric", "accuracy"]);
    fail(alone(&on_task(&place, "run", "sst2,sst2", ".", &[])), 78, &["task.name", "twice"]);
    assert!(!place.path("run/checkpoints").exists());
}

/// A run that goes on reads the same texts; the model that its command names may have another tokenizer by then.
#[test]
fn a_run_does_not_go_on_with_another_tokenizer() {
    let place = Workplace::new();
    let mut args = place.finetune("run", &["task.epochs=0.2"]);
    succeed(alone(&args));
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(place.path("encoder/checkpoints/latest").join(file), other.join(file)).unwrap();
    }
    let mut tokenizer = json_at(&place.path("run/best/tokenizer.json"));
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let [q, z] = ["q", "z"].map(|letter| vocabulary[letter].clone());
    (vocabulary["q"], vocabulary["z"]) = (z, q);
    fs::write(other.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let model = args.iter().position(|arg| arg == "--model").unwrap() + 1;
    args[model] = place.text("other");
    let before = fs::read_link(place.path("run/checkpoints/latest")).unwrap();
    fail(alone(&args), 78, &["tokenizer: fingerprint", "now"]);
    assert_eq!(fs::read_link(place.path("run/checkpoints/latest")).unwrap(), before);
}

/// Sequences of a task are no sequences of pairs: how they were cut says nothing of how to read text.
#[test]
fn a_model_that_was_trained_on_a_task_still_predicts_text() {
    let place = Workplace::new();
    succeed(alone(&place.finetune("run", &["task.epochs=0.2", "train.segment=16"])));
    let (run, corpus) = (place.text("run"), place.text("pairs"));
    let eval = ["--json", "eval", "--model", &run, "--corpus", &corpus, "--lanes", "2", "train.segment=32"];
    let sizes = ["model.reuse_len=16", "train.micro_batch=2"];
    let found = succeed(alone(&[&eval[..], &sizes].concat()));
    assert!(found["evaluation"]["loss"].as_f64().unwrap() > 0.0, "{found}");
    fail(alone(&[&eval[..8], &["train.segment=16", "model.reuse_len=16"]].concat()), 78, &["must hold"]);
    // Without a corpus there is nothing that it would be evaluated on.
    for protocol in [&[][..], &["dynamic"]] {
        let command = [&["eval"], protocol, &["--model", &run]].concat();
        fail(alone(&command), 64, &["was fine-tuned on", "segue finetune --predict", "segue predict"]);
    }
}

/// What is shown is what stands in the file, and what a run takes.
#[test]
fn the_batch_of_a_task_is_shown_as_its_run_reads_it() {
    let place = Workplace::new();
    succeed(alone(&place.finetune("run", &["train.steps=2"])));
    let run = place.text("run");
    let show =
        |more: &[&str]| succeed(alone(&[&["inspect", "batch", "--json", "--run", &run], more].concat()));
    let lines = fs::read_to_string(place.path("sst2/train.tsv")).unwrap();
    let lines: Vec<&str> = lines.lines().skip(1).collect();
    let mut seen = Vec::new();
    for step in ["1", "2"] {
        let found = show(&["--step", step, "--examples", "8"]);
        let examples = found["examples"].as_array().unwrap();
        assert_eq!((found["task"].as_str(), examples.len()), (Some("sst2"), 8));
        for (lane, example) in examples.iter().enumerate() {
            let number = example["example"].as_u64().unwrap();
            assert_eq!((&example["lane"], &found["batch"][lane]), (&json!(lane), &json!(number)));
            let (text, label) = lines[number as usize].split_once('\t').unwrap();
            assert_eq!(example["target"]["label"], label);
            let pieces = example["sequences"][0]["pieces"].as_array().unwrap();
            let read: String = pieces.iter().map(|piece| piece.as_str().unwrap()).collect();
            // A long text is cut at its end.
            let read = read.strip_suffix("<sep><cls>").unwrap().replace('Ġ', " ");
            assert!(text.trim().starts_with(read.trim()) && read.len() > 8, "{read}: {text}");
            seen.push(number);
        }
        // Two lanes a micro-batch: the longer of them has no padding.
        let padding = |lane: usize| examples[lane]["sequences"][0]["padding"].as_u64().unwrap();
        assert!((0..4).all(|micro_step| padding(2 * micro_step).min(padding(2 * micro_step + 1)) == 0));
    }
    // A pass takes no example twice.
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 16);
    // A recipe says the same before there is a run.
    let recipe = format!("{ROOT}/configs/recipes/finetune-small.toml");
    let keys = ["task.name=sst2", "train.lanes=8", "train.micro_batch=2", "train.segment=32"];
    let (model, data) =
        (format!("train.init_from={}", place.text("encoder")), format!("task.data={}", place.text("sst2")));
    let planned = ["inspect", "batch", "--json", "--config", &recipe, &model, &data];
    assert_eq!(succeed(alone(&[&planned[..], &keys].concat())), show(&[]));
    fail(alone(&["inspect", "batch", "--run", &run, "--svg", &place.text("m.svg")]), 64, &["--svg", "task"]);
    fail(alone(&["inspect", "batch", "--run", &run, "--lane", "8"]), 64, &["lane 8", "train.lanes"]);
}

/// Before anything is trained: 160 examples in batches of 8 are 20 steps a pass.
#[test]
fn a_dry_run_of_a_task_counts_what_its_run_does() {
    let place = Workplace::new();
    let run = place.finetune("run", &["train.threads=1"]);
    let dry: Vec<String> = run.iter().filter(|arg| !arg.starts_with("run.dir=")).cloned().collect();
    let dry = [&dry[..], &["--dry-run".to_string(), "--ranks".into(), "2".into()]].concat();
    let found = succeed(alone(&dry));
    let trained = succeed(alone(&run));
    assert_eq!((&found["task"]["steps"], &trained["steps"]), (&json!(40), &json!(40)));
    assert_eq!((&found["task"]["pass"]["examples"], &found["task"]["passes"]), (&json!(160), &json!(2.0)));
    assert_eq!(
        (&found["cost"]["micro_steps_per_rank"], &found["cost"]["targets_per_step"]),
        (&json!(2), &json!(8))
    );
    let stored =
        succeed(alone(&["inspect", "checkpoint", "--json", &place.text("run/best/model.safetensors")]));
    assert_eq!(found["cost"]["parameters"], stored["values"], "{stored:#}");
    assert_eq!(
        stored["dtypes"]["f32"].as_u64().unwrap() as usize,
        stored["variables"].as_array().unwrap().len()
    );
    // A plan is of the same steps.
    let recipe = format!("{ROOT}/configs/recipes/finetune-small.toml");
    let (model, data) =
        (format!("train.init_from={}", place.text("encoder")), format!("task.data={}", place.text("sst2")));
    let keys =
        ["task.name=sst2", "task.epochs=2", "train.lanes=8", "train.micro_batch=2", "train.segment=32"];
    let plan = [
        "plan",
        "--json",
        "--machine",
        "two-core-xeon",
        "--ranks",
        "1,2",
        "--config",
        &recipe,
        &model,
        &data,
    ];
    let plan = succeed(alone(&[&plan[..], &keys].concat()));
    let plans = plan["plans"].as_array().unwrap();
    assert!(plans.iter().all(|plan| plan["steps"] == 40 && plan["lanes"] == 8), "{plan:#}");
    let speed = plans[0]["examples_per_s"].as_f64().unwrap() * plans[0]["step_s"].as_f64().unwrap();
    assert!((speed - 8.0).abs() < 1e-9, "{plan:#}");
    assert!(plans[1]["step_s"].as_f64().unwrap() < plans[0]["step_s"].as_f64().unwrap());
}

/// What lies in a folder stays: a mistyped run.dir may name that of a model.
#[test]
fn a_model_is_not_written_over_by_a_run() {
    let place = Workplace::new();
    let finetune = place.finetune("model", &[]);
    let pretrain = place.pretrain("model", &["train.steps=1"]);
    let launch = [&["launch".to_string(), "-n".into(), "1".into()], &pretrain[..]].concat();
    let config = place.path("model/config.json");
    write(&place, "model/config.json", r#"{"model_type": "xlnet"}"#);
    for args in [finetune, pretrain, launch] {
        fail(alone(&args), 73, &["model/config.json", "run.dir"]);
    }
    assert_eq!(fs::read_to_string(config).unwrap(), r#"{"model_type": "xlnet"}"#);
    assert_eq!(fs::read_dir(place.path("model")).unwrap().count(), 1);
}

/// A path goes into the configuration as text.
#[test]
fn a_path_that_is_no_text_is_refused_as_it_is() {
    use std::os::unix::ffi::OsStrExt;
    let place = Workplace::new();
    let args = place.finetune("run", &[]);
    let strange = place.path("").join(std::ffi::OsStr::from_bytes(b"data-\xff"));
    fs::rename(place.path("sst2"), &strange).unwrap();
    let mut command = alone(&args[..args.iter().position(|arg| arg == "--data").unwrap()]);
    command.arg("--data").arg(&strange);
    fail(command, 64, &["data-\\xFF", "not UTF-8"]);
}

/// The public package's pipeline on the folder of the best model.
#[test]
fn the_public_package_opens_the_best_model() {
    let Some(python) = peer_python("base") else { return };
    let spiece = Path::new(segue_tests::SHARED).join("data/xlnet_spiece/spiece.model");
    if !spiece.is_file() {
        return segue_skip::skip(segue_skip::Need::Fixtures, format!("no {}", spiece.display()));
    }
    let place = Workplace::new();
    let (spiece, tokenizer) = (spiece.display().to_string(), place.text("tokenizer"));
    succeed(alone(&["tokenizer", "import", &spiece, "--xlnet", "--output", &tokenizer]));
    let (train, output) = (place.text("train.txt"), place.text("pieces"));
    let build = [
        "data",
        "build",
        "--preset",
        "xlnet",
        "--tokenizer",
        &tokenizer,
        "--train",
        &train,
        "--output",
        &output,
    ];
    succeed(alone(&build));
    let corpus = format!("data.corpus={output}");
    let sizes = ["model.vocab_size=32000", "model.d_model=16", "train.steps=2", "model.n_head=2", &corpus];
    succeed(alone(&place.pretrain_xlnet("encoder", &sizes)));
    // The workplace makes its data beside an encoder of its own; this one is there already.
    write(
        &place,
        "sst2/train.tsv",
        "sentence\tlabel\nthe past\t1\na model\t0\nmemory reads\t1\nevery lane\t0\n",
    );
    write(&place, "sst2/dev.tsv", "sentence\tlabel\nthe model\t1\nmemory carried on\t0\n");
    let options = ["train.lanes=2", "train.micro_batch=2", "task.epochs=2", "model.dropout=0"];
    succeed(alone(&place.finetune("run", &options)));
    let script = format!("{ROOT}/tests/peers/pipeline_answers.py");
    fs::write(place.path("texts.json"), r#"["the model", "memory carried on"]"#).unwrap();
    let mut command = Command::new(python);
    command.args([&script, &place.text("run/best"), "text-classification", &place.text("texts.json")]);
    let theirs = succeed(command);
    let predictions = fs::read_to_string(place.path("run/predictions/sst2-dev.tsv")).unwrap();
    let ours: Vec<&str> = predictions.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap()).collect();
    let best = |scores: &Value| {
        let scores = scores.as_object().unwrap().iter();
        let best = scores.max_by(|a, b| a.1.as_f64().unwrap().total_cmp(&b.1.as_f64().unwrap()));
        best.unwrap().0.clone()
    };
    let labels: Vec<String> = theirs["answers"].as_array().unwrap().iter().map(best).collect();
    assert_eq!(labels, ours);
    assert_eq!((&theirs["missing"], &theirs["unexpected"]), (&json!([]), &json!([])));
}
