//! Bad input: one message that says what, where and what to do, and the documented exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use segue_tests::{
    ROOT, Workplace, alone, ended_with, fail, fail_reading, finish, mpirun, stderr, succeed, text,
};
use serde_json::{Value, json};

/// A corpus that batch jobs name: it may be on the cluster.
const CORPUS: &str = "data.corpus=none";

#[test]
fn missing_files_are_66() {
    let place = Workplace::new();
    let recipe = place.text("no.toml");
    fail(alone(&["pretrain", "--config", &recipe]), 66, &["no.toml"]);
    let corpus = format!("data.corpus={}", place.text("nowhere"));
    fail(alone(&place.pretrain("run", &[&corpus])), 66, &["nowhere"]);
    let from = format!("train.init_from={}", place.text("nothing"));
    fail(alone(&place.pretrain("run", &[&from])), 66, &["nothing"]);
    let (input, output) = (place.text("no.txt"), place.text("out"));
    let build = [
        "data",
        "build",
        "--preset",
        "documents",
        "--tokenizer-kind",
        "byte",
        "--train",
        &input,
        "--output",
        &output,
    ];
    fail(alone(&build), 66, &["no.txt"]);
    fail(alone(&["generate", "--model", &place.text("none"), "--prompt", "x"]), 66, &["none"]);
}

/// In the queue a slip would cost hours. Data that are not here may be on the cluster.
#[test]
fn a_fine_tuning_that_would_be_refused_is_not_queued() {
    let place = Workplace::new();
    let job = place.text("job.sh");
    let batch = |more: &[&str]| {
        let words = ["batch", "slurm", "--force", "--output", &job].map(String::from);
        alone(&[words.to_vec(), place.finetune("run", more)].concat())
    };
    for (more, words) in [
        (&["task.name=sst22"][..], &["unknown task `sst22`", "did you mean sst2?"][..]),
        (&["task.freeze_layers=9"], &["task.freeze_layers", "the model has"]),
        (&["task.class_weights=[1.0, 2.0, 3.0]"], &["task.class_weights", "has 2 labels"]),
        (&["task.class_weights=balanced"], &["task.balance_classes=true does that"]),
        (&["task.patience=3"], &["counts evaluations", "add eval.every=STEPS"]),
        (&["load_best_model_at_end=true"], &["always keeps its best model"]),
        (&["eval.patience=3"], &["task.patience"]),
    ] {
        let output = finish(batch(more));
        let said = stderr(&output);
        assert!(!output.status.success() && words.iter().all(|word| said.contains(word)), "{more:?}: {said}");
        assert!(!place.path("job.sh").exists(), "{more:?}");
    }
    let output = finish(batch(&["task.data=nowhere"]));
    assert!(
        output.status.success() && stderr(&output).contains("nowhere is not there"),
        "{}",
        stderr(&output)
    );
}

/// Its ids would mean other tokens: of as many, nothing else would tell.
#[test]
fn weights_of_another_tokenizer_are_no_beginning() {
    let place = Workplace::new();
    let kind = ["--preset", "documents", "--tokenizer-kind", "bpe", "--vocab-size"];
    for (name, size) in [("pieces", "300"), ("others", "300"), ("more", "310")] {
        place.build(name, &[&kind[..], &[size]].concat());
        // The next is trained on a text with other pieces.
        fs::write(place.path("train.txt"), text(60_000, 9).replace('e', "z")).unwrap();
    }
    let on = |name: &str| format!("data.corpus={}", place.text(name));
    succeed(alone(&place.pretrain("first", &[&on("pieces"), "train.steps=1"])));
    let from = format!("train.init_from={}", place.text("first"));
    let begin = |run: &str, corpus: &str| alone(&place.pretrain(run, &[&on(corpus), &from, "train.steps=1"]));
    let words = ["was trained with another tokenizer", "others", "hint: build the corpus with --tokenizer"];
    fail(begin("second", "others"), 78, &words);
    fail(begin("third", "more"), 78, &["another tokenizer (300 tokens", "more", "(310 tokens"]);
    succeed(begin("fourth", "pieces"));
}

/// Whoever named it has no such file, whatever the system calls that.
#[test]
fn a_folder_in_the_place_of_a_file_is_66_and_so_the_other_way_round() {
    let place = Workplace::new();
    let (folder, file, out, run) =
        (place.text("corpus"), place.text("train.txt"), place.text("out"), place.text("run"));
    succeed(alone(&place.pretrain("run", &["train.steps=1"])));
    for args in [
        &["tokenizer", "import", &folder, "--output", &out][..],
        &["batch", "slurm", "--template", &folder, "pretrain", CORPUS, "run.dir=x"],
        &["score", "--model", &run, "--ids", &folder, "--output", &out],
        &["parity", "--model", &run, "--cases", &folder],
    ] {
        fail(alone(args), 66, &["cannot read", "corpus", "Is a directory"]);
    }
    for what in ["run", "trace"] {
        fail(alone(&["inspect", what, &file]), 66, &["cannot read", "train.txt", "Not a directory"]);
    }
}

#[test]
fn a_file_that_is_no_text_is_65() {
    let place = Workplace::new();
    let (latin, tokenizer) = (place.text("latin"), place.text("corpus/tokenizer"));
    fs::write(&latin, b"\xe9t\xe9\n").unwrap();
    fail(
        alone(&["batch", "slurm", "--template", &latin, "pretrain", CORPUS, "run.dir=x"]),
        65,
        &["latin", "UTF-8"],
    );
    fail(alone(&["bench", "data", "--tokenizer", &tokenizer, "--input", &latin]), 65, &["latin", "UTF-8"]);
}

/// An option that has to be given is one of the command line, a setting one of the configuration.
#[test]
fn what_is_not_given_is_64_of_options_and_78_of_settings() {
    let place = Workplace::new();
    let out = place.text("out");
    fail(alone(&["finetune", "--task", "sst2"]), 64, &["--model is not given"]);
    fail(alone(&["eval"]), 64, &["--model"]);
    fail(alone(&["inspect", "batches", "--output", &out]), 78, &["data.corpus is not set"]);
    fail(alone(&["inspect", "batch"]), 78, &["data.corpus is not set"]);
    // All that is needed, at once; a family that reads no corpus needs none.
    fail(
        alone(&["pretrain"]),
        78,
        &["run.dir and data.corpus are not set", "run.dir=FOLDER data.corpus=FOLDER"],
    );
    fail(alone(&["pretrain", "--config", "reverse-copy-small"]), 78, &["run.dir is not set"]);
    fail(
        alone(&["plan", "--config", "finetune-small", "model.vocab_size=100"]),
        78,
        &["no task is named", "task.name=TASK"],
    );
    fail(alone(&["pretrain", "--gradient_accumulation_steps", "4"]), 64, &["train.micro_batch"]);
    let print = ["pretrain", "--print-config=changed", "--config", "tiny", "train.steps=7"];
    let output = finish(alone(&print));
    let changed = String::from_utf8(output.stdout).unwrap();
    assert!(changed.contains("steps = 7  # override"), "{changed}");
    assert!(!changed.contains("# default"), "{changed}");
    fail(alone(&["eval", "speed", "model.n_layer=1"]), 78, &["vocabulary size is not set"]);
    let recipe = |name: &str| format!("{ROOT}/configs/recipes/{name}.toml");
    let (words, graph) = (recipe("tiny"), recipe("planetoid-cora"));
    fail(alone(&["bench", "step", "--config", &words]), 78, &["vocabulary size", "data.corpus=FOLDER"]);
    fail(alone(&["bench", "step", "--config", &graph]), 78, &["needs a language model"]);
    fail(alone(&["pretrain", "--dry-run", "--config", &graph]), 78, &["data.corpus=FOLDER of a graph"]);
}

/// A run says by which path it read its text, and that it is asked for where nothing is there any more.
#[test]
fn a_corpus_that_has_moved_is_asked_for() {
    let place = Workplace::new();
    let run = place.text("run");
    succeed(alone(&place.pretrain("run", &["train.steps=1"])));
    fs::rename(place.path("corpus"), place.path("moved")).unwrap();
    fail(alone(&["eval", "--model", &run]), 66, &["corpus.json is missing", "--corpus FOLDER"]);
    succeed(alone(&["eval", "--json", "--model", &run, "--corpus", &place.text("moved")]));
}

#[test]
fn outputs_that_cannot_be_made_are_73() {
    let place = Workplace::new();
    let (corpus, inside, run) =
        (format!("data.corpus={}", place.text("corpus")), place.text("train.txt/x"), place.text("run"));
    succeed(alone(&place.pretrain("run", &["train.steps=1"])));
    for args in [
        &["average", "--run", &run, "--output", &inside][..],
        &["convert", &run, &inside],
        &["inspect", "batches", &corpus, "--output", &inside],
        &["tokenizer", "train", "--kind", "word", "--input", &place.text("train.txt"), "--output", &inside],
        &["batch", "slurm", "--output", &inside, "pretrain", CORPUS, "run.dir=x"],
        &["man", "--output", &inside],
    ] {
        fail(alone(args), 73, &["train.txt"]);
    }
}

/// The fault is in the rename that makes a file visible.
#[test]
fn a_full_disk_is_74_and_a_read_only_one_73() {
    let place = Workplace::new();
    let (pages, script) = (place.text("pages"), place.text("job.sh"));
    for (fault, code, advice) in
        [("no-space", 74, "free some space, or choose another"), ("read-only", 73, "choose a writable")]
    {
        for args in [
            &["man", "--output", &pages][..],
            &["batch", "slurm", "--output", &script, "pretrain", CORPUS, "run.dir=x"],
        ] {
            let mut command = alone(args);
            command.env("SEGUE_FAULTS", format!("{fault}@file.rename"));
            fail(command, code, &["cannot write", advice]);
        }
    }
}

#[test]
fn a_manual_page_that_is_there_is_replaced_with_force_alone() {
    let place = Workplace::new();
    let (folder, page) = (place.text("man1"), place.path("man1/segue-man.1"));
    fs::create_dir(place.path("man1")).unwrap();
    fs::write(place.path("man1/tar.1"), "another's").unwrap();
    fs::write(&page, "mine").unwrap();
    fail(alone(&["man", "--output", &folder]), 73, &["segue-man.1: it is there", "--force"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    assert_eq!(fs::read_to_string(&page).unwrap(), "mine");
    succeed(alone(&["man", "--output", &folder, "--force", "--json"]));
    assert!(fs::read_to_string(&page).unwrap().contains("SEGUE"));
    assert_eq!(fs::read_to_string(place.path("man1/tar.1")).unwrap(), "another's");
}

#[test]
fn a_prompt_that_is_not_utf_8_is_65() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &["train.steps=1"])));
    let generate = || alone(&["generate", "--model", &place.text("run"), "--tokens", "1"]);
    fs::write(place.path("prompt.txt"), b"caf\xe9 au lait").unwrap();
    let prompt = fs::File::open(place.path("prompt.txt")).unwrap();
    fail_reading(prompt, generate(), 65, &["stdin", "not UTF-8", "byte 3", "iconv"]);
    let folder = fs::File::open(place.dir.path()).unwrap();
    fail_reading(folder, generate(), 66, &["stdin"]);
}

#[test]
fn empty_corpus_is_65() {
    let place = Workplace::new();
    let (input, output) = (place.text("empty.txt"), place.text("out"));
    fs::write(&input, "").unwrap();
    let build = [
        "data",
        "build",
        "--preset",
        "documents",
        "--tokenizer-kind",
        "byte",
        "--train",
        &input,
        "--output",
        &output,
    ];
    fail(alone(&build), 65, &["no text", "train"]);
}

#[test]
fn corpus_that_does_not_fit_the_vocabulary_is_78() {
    let place = Workplace::new();
    fail(alone(&place.pretrain("run", &["model.vocab_size=100"])), 78, &["model.vocab_size", "100", "256"]);
}

#[test]
fn lane_too_short_for_a_segment_is_65() {
    let place = Workplace::new();
    let options = ["train.segment=40000"];
    fail(alone(&place.pretrain("run", &options)), 65, &["segment", "lanes"]);
}

#[test]
fn lanes_that_ranks_do_not_divide_are_78() {
    let place = Workplace::new();
    fail(mpirun(3, &place.pretrain("run", &[])), 78, &["3 ranks", "train.lanes"]);
}

#[test]
fn micro_steps_that_are_no_subtree_are_78_where_exactness_is_asked() {
    let place = Workplace::new();
    let lanes = ["train.lanes=12", "train.steps=2"];
    fail(mpirun(2, &place.pretrain("run", &lanes)), 78, &["train.exact"]);
    succeed(mpirun(2, &place.pretrain("run", &[&lanes[..], &["train.exact=false"]].concat())));
}

#[test]
fn unknown_key_is_78_and_names_the_nearest() {
    let place = Workplace::new();
    fail(alone(&place.pretrain("run", &["train.step=5"])), 78, &["train.step", "did you mean `train.steps`"]);
}

#[test]
fn advice_is_a_field_of_the_json_and_a_line_of_its_own() {
    let place = Workplace::new();
    let output = finish(alone(&place.pretrain("run", &["train.step=5"])));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["hint"], &result["exit_code"]), (&json!("did you mean `train.steps`?"), &json!(78)));
    let message = result["error"].as_str().unwrap();
    assert!(
        stderr(&output).ends_with(&format!("segue: error: {message}\nhint: did you mean `train.steps`?\n"))
    );
    assert!(!message.contains("did you mean"), "{message}");
}

#[test]
fn wrong_type_is_78_and_names_key_and_origin() {
    let place = Workplace::new();
    fail(alone(&place.pretrain("run", &["train.steps=many"])), 78, &["train.steps", "override"]);
    fail(alone(&place.pretrain("run", &["optim.lr=nan"])), 78, &["optim.lr", "nan"]);
    fs::write(place.path("latin.toml"), b"# \xe9t\xe9\n").unwrap();
    fail(alone(&["pretrain", "--config", &place.text("latin.toml")]), 78, &["latin.toml", "UTF-8"]);
}

/// Before the kernel looks for what to kill. What the host has is no part of the message that is kept.
#[test]
fn a_model_that_the_memory_of_the_host_cannot_hold_is_78() {
    let place = Workplace::new();
    let sizes = ["model.d_model=1000000", "model.d_inner=10000000"];
    let from_scratch = [&sizes[..], &["task.from_scratch=true"]].concat();
    for arguments in [place.pretrain("run", &sizes), place.finetune("tuned", &from_scratch)] {
        let refused = finish(mpirun(2, &arguments));
        let said = stderr(&refused);
        assert!(ended_with(&refused, 78), "{said}");
        assert!(
            said.contains("GiB on each of 2 ranks here") && said.contains("hint: make the model smaller"),
            "{said}"
        );
    }
    assert!(!place.path("tuned").exists());
}

#[test]
fn loss_that_is_no_number_is_80_and_keeps_the_last_good_step() {
    let place = Workplace::new();
    let options = ["optim.lr=1e30", "optim.clip=0", "schedule.warmup=0", "checkpoint.every=1"];
    fail(mpirun(2, &place.pretrain("run", &options)), 80, &["step", "optim.lr"]);
}

#[test]
fn checkpoint_of_another_model_is_78_and_names_the_key() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &["train.steps=2"])));
    fail(mpirun(2, &place.pretrain("run", &["model.d_inner=32"])), 78, &["model.d_inner", "64 then, 32 now"]);
}

#[test]
fn corpus_of_another_text_is_78() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &["train.steps=2"])));
    fs::write(place.path("train.txt"), segue_tests::text(50_000, 9)).unwrap();
    place.build("other", &["--preset", "documents", "--tokenizer-kind", "byte"]);
    let other = format!("data.corpus={}", place.text("other"));
    fail(alone(&place.pretrain("run", &[&other])), 78, &["data.corpus"]);
}

#[test]
fn two_jobs_in_one_run_folder_are_refused() {
    let place = Workplace::new();
    fs::create_dir(place.path("run")).unwrap();
    let lock = fs::File::create(place.path("run/lock")).unwrap();
    lock.lock().unwrap();
    fail(alone(&place.pretrain("run", &[])), 73, &["another job"]);
}

#[test]
fn bad_command_line_is_64() {
    fail(alone(&["pretrain", "--no-such-option"]), 64, &["--no-such-option"]);
    fail(alone(&["no-such-command"]), 64, &["no-such-command"]);
    fail(alone(&["eval", "--model", "m", "--clamp-len", "-7"]), 64, &["--clamp-len", "-1 for no limit"]);
    fail(
        alone(&["batch", "slurm", "--array", "foo", "--", "pretrain", CORPUS, "run.dir=x-{index}"]),
        64,
        &["--array", "1-8"],
    );
    fail(alone(&["batch", "slurm", "--time", "01:30", "--", "segue"]), 64, &["--time", "HH:MM:SS"]);
}

/// What waits in a queue for hours is looked at before.
#[test]
fn a_batch_job_is_checked_before_it_waits() {
    let batch = |words: &[&str]| alone(&[&["--json", "batch"], words].concat());
    fail(batch(&["slurm", "pretrian", "run.dir=x"]), 64, &["pretrian", "launch one of pretrain"]);
    fail(batch(&["slurm", "--threads", "2", "--", "--restrts", "3", "pretrain"]), 64, &["--restrts"]);
    let array = ["slurm", "--array", "1-2", "pretrain", "run.dir=x", "train.seed={index}"];
    fail(batch(&array), 64, &["one run folder", "{index}"]);
    succeed(batch(&["slurm", "--array", "1-2", "--", "--json", "pretrain", CORPUS, "run.dir=x-{index}"]));
    let script = |words: &[&str]| {
        let result = succeed(batch(words));
        result["script"].as_str().unwrap().to_string()
    };
    let threads = |words: &[&str]| script(words).matches("train.threads=").count();
    assert_eq!(threads(&["slurm", "pretrain", CORPUS, "run.dir=x"]), 0);
    assert!(
        script(&["slurm", "--threads", "8", "pretrain", CORPUS, "run.dir=x"]).contains("train.threads=8")
    );
    assert_eq!(threads(&["slurm", "--threads", "8", "pretrain", CORPUS, "run.dir=x", "train.threads=4"]), 1);
    let on_cards =
        ["slurm", "--gpus-per-node", "2", "--ranks-per-node", "2", "pretrain", CORPUS, "run.dir=x"];
    assert!(script(&on_cards).contains("train.device=cuda"));
    let named = [&on_cards[..], &["train.device=auto"]].concat();
    assert!(!script(&named).contains("train.device=cuda"));
    let output = finish(batch(&["pbs", "pretrain", "--config", "none.toml", "run.dir=x"]));
    for word in ["none.toml is not there", "THIS_FILE"] {
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}

/// Its configuration, by the command itself, and that its ranks can share a step.
#[test]
fn a_batch_job_that_would_be_refused_is_not_written() {
    let place = Workplace::new();
    let script = place.text("job.sh");
    let batch = |options: &[&str], words: &[&str]| {
        let whole = [&["--json", "batch", "slurm", "--output", &script], options, &["pretrain"], words];
        alone(&whole.concat())
    };
    fail(batch(&[], &["run.dir=x", "train.lane=3"]), 78, &["train.lane", "train.lanes"]);
    fail(batch(&[], &["train.lanes=8"]), 78, &["run.dir is not set"]);
    fail(batch(&[], &["run.dir=x"]), 78, &["data.corpus is not set"]);
    // A run that is here, and keys of another one.
    succeed(alone(&place.pretrain("run", &["train.steps=1"])));
    let job = place.pretrain("run", &["train.steps=1", "optim.lr=0.5"]);
    let job: Vec<&str> =
        job.iter().map(String::as_str).filter(|word| !["--json", "pretrain"].contains(word)).collect();
    fail(batch(&[], &job), 78, &["optim.lr"]);
    let sizes = ["run.dir=x", CORPUS, "train.lanes=8", "train.micro_batch=4"];
    fail(
        batch(&["--nodes", "2", "--ranks-per-node", "2"], &sizes),
        78,
        &["4 ranks do not divide", "train.lanes"],
    );
    let each = ["run.dir=x-{index}", CORPUS, "train.seed={index}", "model.n_layer={index}"];
    fail(batch(&["--array", "0-2"], &each), 78, &["model.n_layer"]);
    assert!(!place.path("job.sh").exists());
    succeed(batch(&["--nodes", "2"], &sizes));
    // As many as the launch is told, which has to have room for them.
    let whole = ["batch", "slurm", "--nodes", "2", "--", "-n", "4", "pretrain"];
    fail(alone(&[&whole[..], &sizes].concat()), 78, &["4 ranks do not fit", "2"]);
    // A model that another job is to make.
    let tuned = ["batch", "slurm", "finetune", "--model", "no-such-model", "run.dir=x"];
    let output = finish(alone(&tuned));
    assert!(output.status.success() && stderr(&output).contains("no-such-model is not there"));
    succeed(batch(&["--force", "--array", "1-2"], &each));
}

/// What the system would read otherwise than it is meant, hours later.
#[test]
fn a_batch_script_has_one_word_for_each_setting() {
    let batch = |options: &[&str], run: &str| {
        alone(&[&["--json", "batch"], options, &["pretrain", CORPUS, run]].concat())
    };
    for system in ["slurm", "pbs", "lsf"] {
        fail(batch(&[system, "--log", "/shared/my logs/%j.out"], "run.dir=x"), 78, &["its log", "holds ' '"]);
        fail(batch(&[system, "--memory", "64 G"], "run.dir=x"), 78, &["its memory", "holds ' '"]);
    }
    fail(batch(&["lsf", "--name", "a[1-3]"], "run.dir=x"), 78, &["its name", "holds '['"]);
    fail(
        batch(&["slurm"], "run.dir=x-{index}"),
        64,
        &["{index} is the number of a job in its array", "--array"],
    );
    let array = succeed(batch(&["slurm", "--array", "1-3"], "run.dir=r/it's-$x-{index}"));
    let script = array["script"].as_str().unwrap();
    let command = script.lines().find_map(|line| line.strip_suffix(" &")).unwrap();
    // What its shell makes of it, with the program left out.
    let (_, words) = command.split_once(" launch ").unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("printf '%s\\n' {words}")]).env("SLURM_ARRAY_TASK_ID", "2");
    let printed = shell.output().unwrap().stdout;
    assert!(
        String::from_utf8_lossy(&printed).ends_with("pretrain\ndata.corpus=none\nrun.dir=r/it's-$x-2\n"),
        "{script}"
    );
}

/// A system refuses others when the job is submitted, or runs other jobs than are meant.
#[test]
fn an_array_is_one_that_its_system_takes() {
    let batch = |system: &str, array: &str| {
        alone(&["--json", "batch", system, "--array", array, "pretrain", CORPUS, "run.dir=x-{index}"])
    };
    for (system, array, shown) in [
        ("slurm", "8-1", "1-8"),
        ("slurm", "1-3,", "1,3,5-9"),
        ("slurm", "1-3%0", "1-100%4"),
        ("slurm", "0-99999999999999999999", "4000000"),
        ("pbs", "1,3,5", "one range"),
        ("pbs", "3-3", "one range"),
        ("lsf", "0-3", "from 1"),
    ] {
        fail(batch(system, array), 64, &[&format!("--array {array}"), shown]);
    }
    let script = succeed(batch("lsf", "1,3-5%2"))["script"].to_string();
    assert!(script.contains("#BSUB -J segue[1,3-5]%2\\n"), "{script}");
}

/// `{index}` in what all jobs of an array share, and a log that they share.
#[test]
fn a_batch_script_has_the_number_of_a_job_where_it_can_be() {
    let batch = |options: &[&str]| {
        alone(&[&["--json", "batch", "pbs"], options, &["pretrain", CORPUS, "run.dir=x-{index}"]].concat())
    };
    fail(batch(&["--array", "1-4", "--name", "n-{index}"]), 78, &["its name", "{index}", "--log"]);
    for option in ["--name", "--log", "--setup"] {
        let one = alone(&["--json", "batch", "pbs", option, "a-{index}", "pretrain", CORPUS, "run.dir=x"]);
        fail(one, 64, &["{index} is the number of a job in its array", "--array"]);
    }
    succeed(alone(&["batch", "pbs", "--setup", "echo ${index}", "pretrain", CORPUS, "run.dir=x"]));
    for (log, is_shared) in [("/l/{index}.out", false), ("/l/all.out", true), ("/l/", false)] {
        let said = finish(batch(&["--array", "1-4", "--log", log]));
        assert!(said.status.success(), "{}", stderr(&said));
        assert_eq!(stderr(&said).contains("all jobs of the array write to the log"), is_shared, "{log}");
    }
}

/// The script is there, and the same command would be refused for it.
#[test]
fn a_submission_that_fails_says_how_to_submit_the_script() {
    let place = Workplace::new();
    let script = place.text("job.sh");
    for (system, by) in [("slurm", "sbatch --parsable"), ("pbs", "qsub"), ("lsf", "bsub <")] {
        let options =
            ["batch", system, "--force", "--submit", "--output", &script, "pretrain", CORPUS, "run.dir=x"];
        let mut command = alone(&options);
        command.env("PATH", "/nonexistent");
        fail(
            command,
            69,
            &[&format!("the script is written to {script}"), &format!("`{by} {script}`"), "--force"],
        );
    }
    // The second job of a chain.
    let qsub = place.path("qsub");
    fs::write(&qsub, "#!/bin/sh\n[ $# -gt 1 ] || exec echo 1.fake\necho no >&2\nexit 1\n").unwrap();
    fs::set_permissions(&qsub, fs::Permissions::from_mode(0o755)).unwrap();
    let options =
        ["--force", "--submit", "--chain", "3", "--output", &script, "pretrain", CORPUS, "run.dir=x"];
    let mut command = alone(&[&["batch", "pbs"], &options[..]].concat());
    command.env("PATH", format!("{}:/bin", place.dir.path().display()));
    fail(command, 69, &["qsub refused the job: no", "submitted as 1.fake", "depend=afterany:1.fake"]);
}

/// Numbers that no machine has: of arguments, of the environment, of files.
#[test]
fn numbers_out_of_all_bounds_are_refused() {
    let launch = |options: &[&str]| alone(&[&["launch"], options, &["pretrain", "run.dir=x"]].concat());
    let huge = u64::MAX.to_string();
    fail(launch(&["--silence", &huge]), 64, &["--silence"]);
    fail(launch(&["--ranks", &huge]), 64, &["--ranks", "at most"]);
    fail(launch(&["--back-off=-1"]), 64, &["--back-off"]);
    let place = Workplace::new();
    let job = place.pretrain("run", &[]);
    let job: Vec<&str> = job.iter().map(String::as_str).collect();
    let hosts = format!("localhost:{huge},localhost:1");
    fail(alone(&[&["launch", "--hosts", &hosts], &job[..]].concat()), 64, &["--hosts", "number of ranks"]);
    let hostfile = place.text("hosts");
    fs::write(&hostfile, format!("localhost\nlocalhost slots={huge}\n")).unwrap();
    fail(alone(&[&["launch", "--hostfile", &hostfile], &job[..]].concat()), 65, &["hosts, line 2"]);
    for (list, tasks, named) in [
        ("n1", "1(x1000000000000000000)", "SLURM_TASKS_PER_NODE"),
        ("n[1-99999]x[1-99999]", "1", "SLURM_JOB_NODELIST"),
    ] {
        let mut command = alone(&[&["launch"], &job[..]].concat());
        command.env("SLURM_JOB_NODELIST", list).env("SLURM_TASKS_PER_NODE", tasks);
        fail(command, 78, &[named]);
    }
    let batch = ["batch", "slurm", "--nodes", &huge, "--ranks-per-node", &huge];
    fail(alone(&[&batch, &job[..]].concat()), 78, &["do not divide"]);
    let long = ["batch", "slurm", "--time", "99999999999999-00:00:00", "--warning", "8000000000000000000"];
    succeed(alone(&[&long, &job[..]].concat()));
}

/// A program that starts jobs reads why one did not begin.
#[test]
fn a_launch_says_in_json_why_its_command_was_refused() {
    let output = finish(alone(&["--json", "launch", "pretrain", "--config", "none.toml", "run.dir=x"]));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &said["exit_code"]), (Some(66), &json!(66)));
    assert!(said["error"].as_str().unwrap().contains("none.toml"), "{said}");
}

#[test]
fn what_is_there_is_not_written_over() {
    let place = Workplace::new();
    let (text, words, run, mean) =
        (place.text("train.txt"), place.text("words"), place.text("run"), place.text("mean"));
    let train = ["tokenizer", "train", "--kind", "word", "--input", &text, "--output", &words];
    succeed(alone(&train));
    fail(alone(&train), 73, &["not empty", "a new folder"]);
    succeed(alone(&place.pretrain("run", &["train.steps=4", "checkpoint.every=2"])));
    let average = ["average", "--run", &run, "--last", "2", "--output", &mean];
    succeed(alone(&average));
    fail(alone(&average), 73, &["mean", "choose another output"]);
}

/// Whatever command writes a file, and before it has done anything for it.
#[test]
fn an_output_that_is_there_is_replaced_by_force_alone() {
    let place = Workplace::new();
    fs::create_dir(place.path("folder")).unwrap();
    let [file, inside] = ["mine", "folder/mine"].map(|name| place.path(name));
    for path in [&file, &inside] {
        fs::write(path, "mine").unwrap();
    }
    let (path, folder, corpus) =
        (place.text("mine"), place.text("folder"), format!("data.corpus={}", place.text("corpus")));
    let batch = ["batch", "slurm", "--output", &path, "pretrain", CORPUS, "run.dir=x"];
    let batches = ["inspect", "batches", &corpus, "--output", &path];
    for args in [
        &batch[..],
        &batches,
        &["score", "--model", "m", "--ids", "i", "--output", &path],
        &["predict", "m", "--csv", &path],
        &["predict", "m", "--embeddings", &path],
        &["predict", "m", "--picture", &path],
        &["report", "r", "-o", &path],
        &["inspect", "trace", "r", "--output", &path],
        &["inspect", "batch", "--svg", &path],
        &["bench", "data", "--tokenizer", "t", "--input", "i", "--ids", &path],
        &["plan", "--measure", &path],
        &["data", "graph", "g", "--triples", "--names", &path],
    ] {
        fail(alone(args), 73, &["mine: it is there", "add --force"]);
    }
    for args in [
        &["inspect", "run", "r", "--output", &folder][..],
        &["inspect", "embeddings", "m", "--output", &folder],
        &["eval", "speed", "--model", "m", "--output", &folder],
        &["eval", "recl", "--models", "m", "--output", &folder],
        &["generate", "samples", "--model", "m", "--output", &folder],
    ] {
        fail(alone(args), 73, &["folder: it is not empty", "add --force"]);
    }
    assert_eq!([&file, &inside].map(|path| fs::read_to_string(path).unwrap()), ["mine"; 2]);
    for args in [&batch[..], &batches] {
        succeed(alone(&[&args[..2], &["--force"], &args[2..]].concat()));
        assert_ne!(fs::read(&file).unwrap(), b"mine");
        fs::write(&file, "mine").unwrap();
    }
    fail(
        alone(&["score", "--model", "m", "--ids", "i", "--output", "/dev/null", "--force"]),
        73,
        &["is not a file"],
    );
}

/// A rename cannot take the place of the folder that the command was given in.
#[test]
fn a_tokenizer_goes_into_a_folder_with_a_name() {
    let place = Workplace::new();
    fs::create_dir(place.path("empty")).unwrap();
    let mut import = alone(&["tokenizer", "import", &place.text("train.txt"), "--output", "."]);
    import.current_dir(place.path("empty"));
    fail(import, 73, &["names no folder", "name a new folder"]);
}

/// Before the text is looked for, which is not there.
#[test]
fn special_tokens_that_a_vocabulary_has_already_are_64() {
    let place = Workplace::new();
    let (input, output) = (place.text("no.txt"), place.text("out"));
    let train = |kind: &str, special: &str| {
        let args = ["tokenizer", "train", "--kind", kind, "--special", special];
        alone(&[&args[..], &["--input", &input, "--output", &output]].concat())
    };
    fail(train("bpe", "<cls>,<sep>,<cls>"), 64, &["`<cls>` occurs twice"]);
    fail(train("word", "<unk>"), 64, &["<unk>", "one word other than <eos> and <unk>"]);
    assert!(!place.path("out").exists());
}

#[test]
fn a_file_of_no_known_format_is_65_and_named() {
    let place = Workplace::new();
    let (text, output) = (place.text("train.txt"), place.text("out"));
    fail(alone(&["convert", &text, &output]), 65, &["train.txt", "safetensors"]);
    fail(alone(&["inspect", "checkpoint", &text]), 65, &["train.txt", "safetensors"]);
}

#[test]
fn a_seed_that_is_named_twice_is_64() {
    let place = Workplace::new();
    let seeds = ["--seeds".to_string(), "3,1,3".to_string()];
    fail(alone(&[place.finetune("run", &[]), seeds.to_vec()].concat()), 64, &["`3` occurs twice"]);
    assert!(!place.path("run").exists());
}

#[test]
fn hosts_that_take_no_rank_are_64() {
    let place = Workplace::new();
    let job = place.pretrain("run", &[]);
    let hosts = ["launch", "--hosts", "a:0"].map(String::from).to_vec();
    fail(alone(&[hosts, job].concat()), 64, &["the hosts of --hosts", "node1:4"]);
}

/// A disk that is full where a text goes that a shell has sent there.
#[test]
fn a_text_that_finds_no_room_is_74() {
    let place = Workplace::new();
    for args in [
        place
            .pretrain("run", &["--print-config"])
            .into_iter()
            .filter(|arg| arg != "--json")
            .collect::<Vec<_>>(),
        ["batch", "slurm", "--print-template"].map(String::from).to_vec(),
        ["runs", &place.path("").display().to_string(), "--json"].map(String::from).to_vec(),
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = alone(&args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(74), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("cannot write to stdout"), "{}", stderr(&output));
    }
}

/// Ranks that do the same would write over each other.
#[test]
fn commands_that_ranks_do_not_share_are_refused_under_mpirun() {
    for args in
        [&["eval", "speed"][..], &["generate", "--model", "m"], &["sweep", "s.toml"], &["convert", "a", "b"]]
    {
        fail(mpirun(2, args), 64, &["start it without mpirun"]);
    }
}
