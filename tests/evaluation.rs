//! Evaluation protocols of the real binary, on a model of a few steps.

use std::path::Path;

use segue_tests::{
    SHARED, Workplace, alone, assert_scores_are_distributions, fail, finish, ids_file, mpirun, stderr,
    succeed,
};
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
    fail(alone(&["average", &xl, "--output", &out("mean")]), 73, &["mean"]);
    let other = ["eval", "recl", "--models", &xl, "--corpus", "nowhere", "--output"];
    fail(alone(&[&other[..], &[out("recl").as_str()]].concat()), 66, &["nowhere"]);
}

/// What a folder from elsewhere has of a run: the model, without a word of how it was trained.
fn bare_folder(place: &Workplace, run: &str, name: &str, change: impl Fn(&mut Value)) -> String {
    let (from, to) = (place.path(run).join("checkpoints/latest"), place.path(name));
    std::fs::create_dir(&to).unwrap();
    for file in std::fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().file_name()) {
        let name = file.to_string_lossy();
        if !["config.json", "MANIFEST.json", "trainer_state.json"].contains(&&*name) {
            std::fs::copy(from.join(&file), to.join(&file)).unwrap();
        }
    }
    let mut config =
        serde_json::from_str(&std::fs::read_to_string(from.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    place.text(name)
}

/// What a run says at its end, its commands say too: of one model there is one perplexity, and a result names what it was made with.
#[test]
fn commands_evaluate_as_the_run_itself_does() {
    let place = Workplace::new();
    let keys = [
        "train.steps=6",
        "eval.lanes=3",
        "eval.group=2",
        "eval.segment=24",
        "eval.mem_len=40",
        "eval.clamp_len=30",
        "eval.same_length=true",
        "eval.ext_len=5",
        "train.at_document_end=reset",
    ];
    let output = finish(alone(&place.pretrain("xl", &keys)));
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("3 lanes, segments of 24, memory of 40, 5 read again"),
        "{said}"
    );
    let lstm = finish(alone(&place.pretrain_lstm("lstm", &["train.steps=6", "eval.lanes=5"])));
    assert!(lstm.status.success());
    for name in ["xl", "lstm"] {
        let run = place.text(name);
        let rows = std::fs::read_to_string(place.path(name).join("metrics.jsonl")).unwrap();
        let row = rows.lines().rfind(|row| row.contains("\"bits_per_token\"")).unwrap();
        let row: Value = serde_json::from_str(row).unwrap();
        let found = succeed(alone(&["--json", "eval", "--model", &run]));
        for key in ["nats", "targets", "loss", "ppl"] {
            assert_eq!(found["evaluation"][key], row[key], "{name}: {key}");
        }
        // Sums of the same cut in another order, and a model that adapts beside what it was.
        let tuned = succeed(alone(&["--json", "eval", "temperature", "--tokens", "40", "--model", &run]));
        if name == "lstm" {
            assert!((number(&tuned["plain"]["loss"]) - number(&row["loss"])).abs() < 1e-5, "{tuned} {row}");
        }
        let dynamic = ["eval", "dynamic", "--rule", "sgd", "--segment", "24", "--model", &run];
        let fixed = succeed(alone(&[&["--json"], &dynamic[..]].concat()))["fixed"].clone();
        let alike = ["--json", "eval", "--lanes", "1", "--segment", "24", "--model", &run];
        let alike = match name {
            "xl" => [&alike[..], &["--ext-len", "0", "--at-document-end", "carry"]].concat(),
            _ => alike.to_vec(),
        };
        let plain = succeed(alone(&alike));
        assert!(
            (number(&fixed["loss"]) - number(&plain["evaluation"]["loss"])).abs() < 1e-6,
            "{fixed} {plain}"
        );
        // Another text, by a key as by the option.
        if !place.path("valid").exists() {
            std::fs::write(place.path("more.txt"), "the other text\n".repeat(9)).unwrap();
            let (tokenizer, more) = (place.text("corpus/tokenizer"), place.text("more.txt"));
            let args =
                ["data", "build", "--preset", "documents", "--tokenizer", &tokenizer, "--train", &more];
            succeed(alone(&[&args[..], &["--valid", &more, "--output", &place.text("valid")]].concat()));
        }
        let valid = place.text("valid");
        let by_key = succeed(alone(&["--json", "eval", "--model", &run, &format!("data.valid={valid}")]));
        let by_option = succeed(alone(&["--json", "eval", "--model", &run, "--corpus", &valid]));
        assert_eq!(by_key["evaluation"], by_option["evaluation"]);
        assert!(by_key["evaluation"] != found["evaluation"]);
        let line = finish(alone(&dynamic));
        let said = stderr(&line);
        assert!(said.contains("(1 lane, segments of 24, ") && said.contains("weights of "), "{said}");
    }
    // A run that validates on another text is evaluated there by its protocols too.
    let valid = format!("data.valid={}", place.text("valid"));
    succeed(alone(&place.pretrain_lstm("elsewhere", &["train.steps=2", &valid])));
    let run = place.text("elsewhere");
    let plain = succeed(alone(&["--json", "eval", "--model", &run]));
    let tuned = succeed(alone(&["--json", "eval", "temperature", "--tokens", "40", "--model", &run]));
    let [plain, tuned] = [&plain["evaluation"]["loss"], &tuned["plain"]["loss"]].map(number);
    assert!((plain - tuned).abs() < 1e-5, "{plain} {tuned}");
}

/// Damage of a folder that has no hashes cannot be found.
#[test]
fn a_model_without_a_manifest_is_not_called_verified() {
    let place = trained();
    let model = bare_folder(&place, "xl", "bare", |_| {});
    let said = |folder: &str| {
        let output = finish(alone(&["eval", "--model", folder, "--corpus", &place.text("corpus")]));
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output).contains("not verified")
    };
    assert!(said(&model));
    assert!(!said(&place.text("xl")));
}

/// A script that asks for a loss does not go on without one.
#[test]
fn the_loss_of_a_damaged_model_is_refused() {
    let place = trained();
    let model = bare_folder(&place, "xl", "damaged", |_| {});
    let path = place.path("damaged/model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    // As a number of 32 bits: none.
    bytes[header..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let (corpus, output) = (place.text("corpus"), place.text("recl"));
    let protocols: [&[&str]; 7] = [
        &["--model", &model],
        &["sliding", "--positions", "20", "--attention", "8", "--model", &model],
        &["temperature", "--model", &model],
        &["monte-carlo", "--passes", "2", "--model", &model],
        &["recovery", "--models", &model],
        &["dynamic", "--rule", "sgd", "--model", &model],
        &[
            "recl",
            "--positions",
            "20",
            "--max",
            "20",
            "--delta",
            "8",
            "--output",
            &output,
            "--models",
            &model,
        ],
    ];
    for protocol in protocols {
        let command = [&["eval"], protocol, &["--corpus", &corpus]].concat();
        fail(alone(&command), 80, &["model.safetensors", "damaged", "not finite"]);
    }
    for command in [&["generate", "--prompt", "a", "--model", &model][..], &["inspect", "embeddings", &model]]
    {
        fail(alone(command), 80, &["damaged", "not finite"]);
    }
}

/// With the corpus and the settings of the run, as the run itself.
#[test]
fn an_average_is_evaluated_as_its_run_is() {
    let place = Workplace::new();
    let keys =
        ["train.steps=3", "checkpoint.every=1", "checkpoint.keep=3", "eval.lanes=3", "eval.segment=16"];
    succeed(alone(&place.pretrain("run", &keys)));
    let (run, averaged) = (place.text("run"), place.text("averaged"));
    succeed(alone(&["average", &run, "--last", "2", "--output", &averaged]));
    let cut = |model: &str| succeed(alone(&["eval", "--json", "--model", model]))["cut"].clone();
    assert_eq!(cut(&averaged), cut(&run));
    assert_eq!(cut(&run)["lanes"], 3);
}

#[test]
fn what_no_split_can_give_is_refused() {
    let place = trained();
    let run = place.text("xl");
    fail(
        alone(&["eval", "--model", &run, "--lanes", "100000"]),
        64,
        &["--lanes 100000", "tokens of the split"],
    );
    let dynamic = ["eval", "dynamic", "--rule", "sgd", "--lr", "1e30", "--model", &run];
    fail(alone(&dynamic), 80, &["diverged", "lower --lr"]);
}

#[test]
fn an_xlnet_is_evaluated_as_its_own_training_does_it() {
    let place = Workplace::new();
    let trained = succeed(alone(&place.pretrain_xlnet("x", &["train.steps=10"])));
    let (run, corpus) = (place.text("x"), place.text("pairs"));
    let json = |args: &[&str]| succeed(alone(&[&["--json", "eval", "--model"], args].concat()));
    let own = &trained["evaluation"];
    assert!(number(&own["accuracy"]) >= 0.0);
    assert_eq!(&json(&[&run])["evaluation"], own);
    let checkpoint = place.text("x/checkpoints/latest");
    assert_eq!(&json(&[&checkpoint])["evaluation"], own);
    let two = succeed(mpirun(2, &["--json", "eval", "--model", &run]));
    assert_eq!(&two["evaluation"], own);
    // What a folder from elsewhere does not say is said on the command line.
    let bare = bare_folder(&place, "x", "bare", |config| {
        for key in ["mem_len", "reuse_len"] {
            config.as_object_mut().unwrap().remove(key);
        }
    });
    fail(alone(&["eval", "--model", &bare]), 64, &["--corpus"]);
    let keys =
        ["model.mem_len=20", "model.reuse_len=16", "train.segment=32", "train.micro_batch=2", "eval.lanes=2"];
    let there = [&[bare.as_str(), "--corpus", &corpus], &keys[..]].concat();
    assert_eq!(&json(&there)["evaluation"], own);
    // Other splits, objectives and lengths of memory.
    let differs = |args: &[&str]| {
        let result = json(&[&[run.as_str()], args].concat());
        assert_ne!(&result["evaluation"], own, "{args:?}");
        result
    };
    assert!(number(&differs(&["--split", "train"])["evaluation"]["targets"]) > number(&own["targets"]));
    assert_eq!(differs(&["--objective", "denoising"])["objective"], "denoising");
    let short = differs(&["--mem-len", "0"]);
    assert_eq!(short["evaluation"]["loss"], own["without_memory"]["loss"]);
    differs(&["pairs.num_predict=6"]);
    // What tells whether B continues A comes along.
    let told =
        succeed(alone(&place.pretrain_xlnet("told", &["train.steps=2", "objective.next_sentence=1.0"])));
    assert!(number(&told["evaluation"]["follows_accuracy"]) >= 0.0);
    assert_eq!(json(&[&place.text("told")])["evaluation"], told["evaluation"]);
    // Wrong uses.
    fail(alone(&["eval", "--model", &run, "--segment", "16"]), 64, &["--segment", "train.segment"]);
    fail(alone(&["eval", "--model", &run, "--split", "test"]), 64, &["test", "--corpus"]);
    fail(alone(&["eval", "--model", &run, "pairs.number=6"]), 78, &["pairs.number"]);
    // Protocols that read from left to right take it too.
    for protocol in ["sliding", "dynamic"] {
        let result = succeed(alone(&["eval", protocol, "--json", "--model", &run]));
        assert!(result.to_string().contains("\"ppl\""), "{result}");
    }
}

#[test]
fn an_xlnet_trained_left_to_right_is_evaluated_on_the_stream() {
    let place = Workplace::new();
    let keys = [
        "model.attn_type=uni",
        "objective.kind=lm",
        "data.order=stream",
        "model.reuse_len=0",
        "train.steps=10",
    ];
    let trained = succeed(alone(&place.pretrain_xlnet("uni", &[&keys[..], &["eval.lanes=4"]].concat())));
    let run = place.text("uni");
    let own = succeed(alone(&["--json", "eval", "--model", &run]));
    assert_eq!(own["evaluation"], trained["evaluation"]);
    let eval = ["--json", "eval", "--model", &run, "--lanes", "4", "--segment", "32", "--group", "4"];
    let result = succeed(alone(&eval));
    // Lanes go in other groups here: the same sums in another order.
    let [own, found] = [&trained["evaluation"], &result["evaluation"]];
    assert_eq!(own["targets"], found["targets"]);
    assert!((number(&own["loss"]) - number(&found["loss"])).abs() < 1e-6, "{own} {found}");
    // A folder without a run says no more than the direction, and what else it says does not count.
    for (name, reuse_len) in [("silent", Value::Null), ("none", 0.into()), ("some", 5.into())] {
        let folder = bare_folder(&place, "uni", name, |config| config["reuse_len"] = reuse_len.clone());
        let corpus = place.text("pairs");
        let eval =
            ["--json", "eval", "--model", &folder, "--corpus", &corpus, "--segment", "32", "--group", "4"];
        assert_eq!(succeed(alone(&eval))["evaluation"], result["evaluation"], "{name}");
    }
    fail(alone(&["eval", "--model", &run, "--ext-len", "4"]), 64, &["--ext-len"]);
    fail(alone(&["eval", "--model", &run, "--lines"]), 64, &["--lines", "recurrent"]);
    fail(alone(&["eval", "--model", &run, "--objective", "denoising"]), 64, &["--objective"]);
    let text = ["--json", "generate", "--model", &run, "--prompt", "the memory", "--tokens", "12"];
    assert_eq!(succeed(alone(&text))["tokens"].as_array().unwrap().len(), 12);
}

/// A table may be padded, and may have rows that no file names: text is drawn from tokens alone, and every command says so.
#[test]
fn rows_without_a_token_are_told_of_and_never_drawn() {
    let place = Workplace::new();
    place.build("pieces", &["--preset", "documents", "--tokenizer-kind", "bpe", "--vocab-size", "300"]);
    let corpus = format!("data.corpus={}", place.text("pieces"));
    for (rows, word) in [(304, "padded to a multiple of 8"), (303, "ids 300 to 302 have no name in any file")]
    {
        let run = format!("run-{rows}");
        let size = format!("model.vocab_size={rows}");
        let train = place.pretrain(&run, &[&size, &corpus, "train.steps=1", "eval.every=0"]);
        let run = place.text(&run);
        let text =
            ["generate", "--json", "--model", &run, "--prompt", "a", "--tokens", "300", "--top-k", "0"];
        let ids = place.text("ids.safetensors");
        std::fs::write(&ids, ids_file(256)).unwrap();
        let score = ["score", "--model", &run, "--ids", &ids, "--output", &place.text("scores"), "--force"]
            .map(String::from);
        let eval = ["eval", "--model", &run].map(String::from);
        for args in [&train[..], &text.map(String::from), &score, &eval] {
            let output = finish(alone(args));
            let said = stderr(&output);
            assert!(output.status.success() && said.contains(word), "{args:?}: {said}");
        }
        let drawn = succeed(alone(&text));
        let drawn = drawn["tokens"].as_array().unwrap();
        assert!(drawn.len() == 300 && drawn.iter().all(|id| id.as_u64().unwrap() < 300), "{drawn:?}");
    }
}

/// What a run that reads episodes is judged by, of any split.
#[test]
fn lines_are_evaluated_as_a_run_of_episodes_validates() {
    let place = Workplace::new();
    place.build("lines", &["--preset", "sentences", "--tokenizer-kind", "word"]);
    let corpus = format!("data.corpus={}", place.text("lines"));
    let keys = [&corpus, "data.order=episodes", "train.segment=12", "train.steps=20", "eval.lanes=4"];
    let trained = succeed(alone(&place.pretrain_lstm("run", &keys)));
    let run = place.text("run");
    let eval = ["--json", "eval", "--model", &run, "--lines"];
    let by_lines = succeed(alone(&eval));
    let found = &by_lines["evaluation"];
    assert_eq!(&trained["evaluation"], found);
    assert_eq!(succeed(alone(&eval[..4])), by_lines);
    let one = succeed(mpirun(2, &[&eval[..], &["--group", "2"]].concat()));
    assert_eq!(one, succeed(alone(&[&eval[..], &["--group", "2"]].concat())));
    let stream = succeed(alone(&[&eval[..4], &["data.order=stream"]].concat()))["evaluation"].clone();
    assert!(stream["loss"] != found["loss"] && stream["targets"] != found["targets"]);
    fail(alone(&["eval", "--model", &run, "--lines", "--by-rows"]), 64, &["--lines", "--by-rows"]);
}

/// The same tokens in another window are another text to it.
#[test]
fn absolute_positions_are_timed_without_comparing_losses() {
    let shape =
        ["model.vocab_size=40", "model.d_model=16", "model.n_head=2", "model.n_layer=2", "model.d_inner=16"];
    let time = |attn_type: &str| {
        let attn_type = format!("model.attn_type={attn_type}");
        let args = ["eval", "speed", "--json", "--lengths", "4", "--repeats", "1", "--seconds", "0.01"];
        succeed(alone(&[&args[..], &shape, &[&attn_type, "model.max_klen=64"]].concat()))
    };
    for attn_type in ["absolute", "learned"] {
        assert_eq!(time(attn_type)["agreement"], Value::Null);
    }
    assert_eq!(time("relative")["agreement"]["holds"], true);
}

#[test]
fn an_xlnet_writes_and_scores() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain_xlnet("x", &["train.steps=10"])));
    let run = place.text("x");
    let write = |model: &str, more: &[&str]| {
        let args =
            ["--json", "generate", "--model", model, "--prompt", "the memory of a lane", "--tokens", "30"];
        succeed(alone(&[&args[..], more].concat()))
    };
    let text = write(&run, &["--seed", "3"]);
    assert_eq!(text, write(&run, &["--seed", "3"]));
    assert_ne!(text["text"], write(&run, &["--seed", "4"])["text"]);
    // A model that says nothing of its memory writes with 512 positions.
    let bare = bare_folder(&place, "x", "bare", |config| {
        for (key, value) in [("mem_len", 0.into()), ("memory_start", "empty".into())] {
            config[key] = value;
        }
    });
    let flat = ["--top-k", "0", "--temperature", "3"];
    let with = |mem_len| write(&bare, &[&flat[..], &["--mem-len", mem_len]].concat())["tokens"].clone();
    assert_eq!(write(&bare, &flat)["tokens"], with("512"));
    assert_ne!(with("512"), with("0"));
    let output = place.text("samples");
    let lengths = ["--samples", "2", "--seed-tokens", "30", "--tokens", "20", "--output", &output];
    let samples =
        succeed(alone(&[&["--json", "generate", "samples", "--model", &run], &lengths[..]].concat()));
    assert_eq!(samples["samples"][1]["sample_tokens"].as_array().map(Vec::len), Some(20));
    assert_scores_are_distributions(&place, &run, 256);
}

#[test]
fn text_of_pieces_goes_on_where_the_prompt_ends() {
    let pieces = Path::new(SHARED).join("data/xlnet_spiece/spiece.model");
    if !pieces.exists() {
        segue_skip::skip(
            segue_skip::Need::Fixtures,
            format!("no published vocabulary at {}", pieces.display()),
        );
        return;
    }
    let place = Workplace::new();
    let [tokenizer, input, corpus, run] =
        ["tokenizer", "lines", "corpus2", "run"].map(|name| place.text(name));
    let lines = segue_tests::text(9_000, 5).lines().map(|line| format!("{line}\n\n")).collect::<String>();
    std::fs::write(&input, lines).unwrap();
    succeed(alone(&[
        "tokenizer",
        "import",
        &pieces.display().to_string(),
        "--xlnet",
        "--output",
        &tokenizer,
    ]));
    let build = ["data", "build", "--preset", "xlnet", "--train", &input, "--tokenizer", &tokenizer];
    succeed(alone(&[&build[..], &["--split", "0.8,0.2,0", "--output", &corpus]].concat()));
    let (dir, data) = (format!("run.dir={run}"), format!("data.corpus={corpus}"));
    let recipe = format!("{}/configs/recipes/tiny-xlnet.toml", segue_tests::ROOT);
    succeed(alone(&["pretrain", "--config", &recipe, &dir, &data, "train.steps=30", "eval.lanes=1"]));
    let args = ["generate", "--model", &run, "--prompt", "every model reads", "--tokens", "8"];
    let printed = finish(alone(&args));
    let text = succeed(alone(&[&["--json"], &args[..]].concat()));
    let whole = format!("every model reads{}\n", text["text"].as_str().unwrap());
    assert_eq!(String::from_utf8_lossy(&printed.stdout), whole);
    assert!(whole.starts_with("every model reads "), "{whole}");
}
