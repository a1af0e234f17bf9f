//! Faults on purpose at the points that the program names: a run that was ended there goes on to the bytes of one that never was, or ends
//! with the documented exit code.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use segue_tests::kills::job_to_kill;
use segue_tests::{
    Workplace, alone, ended_with, fail, files_of, finish, mpirun, repeats, stderr, succeed, two_at_a_time,
};

const FAULTS: &str = "SEGUE_FAULTS";

/// Six steps, a checkpoint after every second, of which two are kept, and two evaluations.
const SHORT: [&str; 5] =
    ["train.steps=6", "checkpoint.every=2", "checkpoint.keep=2", "eval.every=3", "checkpoint.best=true"];

fn with(mut command: Command, faults: &str) -> Command {
    command.env(FAULTS, faults);
    command
}

/// How often a run that suffers `faults` comes by each point on its rank 0.
fn visits(command: Command, faults: &str) -> BTreeMap<String, usize> {
    let output = finish(with(command, &format!("trace@*:rank=0:hit=1..;{faults}")));
    assert!(output.status.success(), "{}", stderr(&output));
    let mut visits = BTreeMap::new();
    for line in stderr(&output).lines() {
        if let Some((point, _)) = line.strip_prefix("fault point ").and_then(|rest| rest.split_once(' ')) {
            *visits.entry(point.to_string()).or_insert(0) += 1;
        }
    }
    visits
}

/// The last checkpoint is whole, but `latest` points at the one before, or one too many is there: a run without an evaluation writes its
/// last checkpoint no second time.
#[test]
fn killed_after_its_last_checkpoint_a_run_is_put_in_order() {
    let place = Workplace::new();
    let (train, output) = (place.text("train.txt"), place.text("without"));
    let build = [
        "data",
        "build",
        "--preset",
        "documents",
        "--tokenizer-kind",
        "byte",
        "--train",
        &train,
        "--output",
        &output,
    ];
    succeed(alone(&build));
    let corpus = format!("data.corpus={output}");
    let settings = ["train.steps=6", "checkpoint.every=2", "checkpoint.keep=2", &corpus];
    for (number, fault) in
        ["link.rename:hit=3", "link.sync-parent:hit=3", "checkpoint.prune", "checkpoint.pruned-half"]
            .iter()
            .enumerate()
    {
        let run = format!("run-{number}");
        let args = place.pretrain(&run, &settings);
        let killed = finish(with(alone(&args), &format!("kill@{fault}")));
        assert_eq!(killed.status.code(), None, "{fault}: {}", stderr(&killed));
        succeed(alone(&args));
        let folder = place.path(&run).join("checkpoints");
        let names: BTreeSet<_> =
            std::fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["latest", "step-00000004", "step-00000006"].map(Into::into).into(), "{fault}");
        assert_eq!(
            std::fs::read_link(folder.join("latest")).expect("a link").to_str(),
            Some("step-00000006"),
            "{fault}"
        );
    }
}

/// Where publishing changes what is there.
const CHANGES: [&str; 8] = [
    "file.rename",
    "folder.rename",
    "folder.exchange",
    "folder.remove-old",
    "link.make",
    "link.rename",
    "checkpoint.prune",
    "checkpoint.pruned-half",
];

/// Before each rename, link and removal that publishing a checkpoint or a best model consists of, and before the first, a middle and the last of
/// all else, such as flushes; on file systems that can exchange two folders, and on those that cannot. By default before the last of each alone.
#[test]
fn killed_before_every_change_of_publishing_a_run_ends_with_the_same_bytes() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &SHORT)));
    let (mut cases, mut seen) = (Vec::new(), BTreeSet::new());
    for (mode, faults) in ["", "unsupported@folder.exchange:hit=1.."].into_iter().enumerate() {
        let found = visits(alone(&place.pretrain(&format!("traced-{mode}"), &SHORT)), faults);
        let wanted = [
            "folder.exchange",
            "folder.rename",
            "folder.sync-file",
            "file.rename",
            "link.rename",
            "checkpoint.prune",
        ];
        for expected in wanted.iter().chain((mode == 1).then_some(&"folder.retire")) {
            assert!(found.contains_key(*expected), "no run comes by {expected}: {found:?}");
        }
        seen.extend(found.keys().cloned());
        for (point, count) in found {
            let kinds = ["file.", "folder.", "link.", "checkpoint.", "tensors.write"];
            let hits: BTreeSet<usize> = match (mode, point.as_str()) {
                (0, name) if CHANGES.contains(&name) => (1..=count).collect(),
                (0, name) if kinds.iter().any(|kind| name.starts_with(kind)) => {
                    [1, count.div_ceil(2), count].into()
                }
                // What is done otherwise where folders take two steps to trade places.
                (1, "folder.retire" | "folder.rename" | "folder.remove-old") => (1..=count).collect(),
                _ => BTreeSet::new(),
            };
            let some = hits.len().saturating_sub(repeats(1, usize::MAX));
            cases.extend(hits.into_iter().skip(some).map(|hit| (faults, point.clone(), hit)));
        }
    }
    assert!(CHANGES.iter().all(|change| seen.contains(*change)), "{CHANGES:?}: {seen:?}");
    two_at_a_time(cases.len(), &|i| {
        let (faults, point, hit) = &cases[i];
        let run = format!("run-{i}");
        let args = place.pretrain(&run, &SHORT);
        let killed = finish(with(alone(&args), &format!("{faults};kill@{point}:hit={hit}")));
        assert_eq!(killed.status.code(), None, "{faults} {point} {hit}: {}", stderr(&killed));
        let reached = newest(&place, &run);
        let result = finish(with(alone(&args), faults));
        assert!(result.status.success(), "{faults} {point} {hit}: {}", stderr(&result));
        // Whatever was whole, under its name or on the way to it, is gone on from.
        let from = stderr(&result)
            .split_once("from step ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        assert!(from >= Some(reached), "{faults} {point} {hit}: from {from:?}, and {reached} was there");
        place.assert_same("whole", &run);
        assert_same_best(&place, "whole", &run);
        std::fs::remove_dir_all(place.path(&run)).expect("the run is ours");
    });
    println!("{} kills", cases.len());
}

/// The highest step of a checkpoint that lies there whole, under its name or the one that it is replaced under.
fn newest(place: &Workplace, run: &str) -> u64 {
    let entries = std::fs::read_dir(place.path(run).join("checkpoints")).into_iter().flatten().flatten();
    let whole = entries.filter(|entry| entry.path().join("MANIFEST.json").is_file());
    let step = |name: String| {
        name.trim_start_matches('.').trim_end_matches(".old").strip_prefix("step-")?.parse().ok()
    };
    whole.filter_map(|entry| step(entry.file_name().to_string_lossy().into_owned())).max().unwrap_or(0)
}

/// The best model is the same one, and its folder has no hidden neighbours.
fn assert_same_best(place: &Workplace, run: &str, other: &str) {
    let best =
        |run: &str| std::fs::read(place.path(run).join("best/model.safetensors")).expect("a best model");
    assert!(best(run) == best(other), "the best model of {run} and {other} differ");
    for folder in ["", "checkpoints"] {
        let names = std::fs::read_dir(place.path(other).join(folder)).expect("a folder").flatten();
        let hidden: Vec<_> = names
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().starts_with('.'))
            .collect();
        assert!(hidden.is_empty(), "{other}/{folder} keeps {hidden:?}");
    }
}

/// Every place of a step, an evaluation and a checkpoint, on either of two ranks.
#[test]
fn killed_at_any_place_of_a_step_on_any_rank_a_run_ends_with_the_same_bytes() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &SHORT)));
    // All of these are visited by both ranks, but for the last three.
    let points = [
        "step.begin",
        "step.forward",
        "step.backward",
        "reduce.bucket",
        "step.sum",
        "step.update",
        "evaluation.part",
        "checkpoint.stage",
        "checkpoint.begin",
        "checkpoint.contribute",
        "checkpoint.publish",
    ];
    // One rank of each, in turn, or both.
    let ranks = |number: usize| (0..2).filter(move |rank| repeats(usize::from(number % 2 == *rank), 1) == 1);
    let cases: Vec<(&str, usize)> = points
        .into_iter()
        .enumerate()
        .flat_map(|(number, point)| ranks(number).map(move |rank| (point, rank)))
        .collect();
    two_at_a_time(cases.len(), &|i| {
        let (point, rank) = cases[i];
        let run = format!("{point}-{rank}");
        let args = place.pretrain(&run, &SHORT);
        // The second visit in its step, where a step has several: not the first thing that happens in it.
        let hit = match point {
            "step.forward" | "step.backward" => ":step=5:hit=2",
            "reduce.bucket" => ":step=5",
            _ => ":hit=2",
        };
        let killed = finish(with(job_to_kill(i, &args), &format!("kill@{point}:rank={rank}{hit}")));
        // Rank 0 does not contribute to a checkpoint, rank 1 neither begins nor publishes one.
        let visited = match point {
            "checkpoint.contribute" => rank == 1,
            "checkpoint.begin" | "checkpoint.publish" => rank == 0,
            _ => true,
        };
        let code = if visited { 137 } else { 0 };
        assert!(ended_with(&killed, code), "{point} on rank {rank}: {:?} {}", killed.status, stderr(&killed));
        succeed(alone(&args));
        place.assert_same("whole", &run);
    });
}

/// A job ends whichever way a rank does, with a code that says how.
#[test]
fn a_rank_that_ends_in_any_way_ends_the_job() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &SHORT)));
    let kinds = [("panic", 70), ("exit=3", 3), ("segv", 139), ("kill", 137)];
    for (number, (kind, code)) in kinds.into_iter().enumerate() {
        let run = kind.replace('=', "-");
        let args = place.pretrain(&run, &SHORT);
        let ended = finish(with(job_to_kill(number, &args), &format!("{kind}@step.backward:rank=1:step=4")));
        assert!(ended_with(&ended, code), "{kind}: {:?} {}", ended.status, stderr(&ended));
        succeed(mpirun(2, &args));
        place.assert_same("whole", &run);
    }
}

#[test]
fn a_signal_before_the_time_limit_leaves_a_checkpoint_wherever_it_comes() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &SHORT)));
    for point in ["step.forward", "evaluation.part", "checkpoint.publish"] {
        let args = place.pretrain(point, &SHORT);
        let stopped = finish(with(mpirun(2, &args), &format!("term@{point}:rank=0")));
        assert_eq!(stopped.status.code(), Some(75), "{point}: {}", stderr(&stopped));
        let printed = String::from_utf8_lossy(&stopped.stdout).into_owned();
        let result: serde_json::Value =
            serde_json::from_str(printed.lines().last().expect("a result")).expect("JSON");
        assert_eq!(result["step"].as_u64(), Some(newest(&place, point)), "{point}");
        succeed(mpirun(2, &args));
        place.assert_same("whole", point);
    }
}

/// Broken memory or a broken core on one rank.
#[test]
fn a_flipped_bit_in_a_weight_ends_the_job_with_81_and_names_the_parameter() {
    let place = Workplace::new();
    let args = place.pretrain("run", &[&SHORT[..], &["train.check_replicas_every=2"]].concat());
    let flipped = with(mpirun(2, &args), "flip@weights:rank=1:step=3");
    fail(flipped, 81, &["word_emb", "step 4"]);
    // The checkpoint from before the flip is whole, and the run goes on from there.
    succeed(mpirun(2, &args));
    succeed(alone(&place.pretrain("whole", &SHORT)));
    place.assert_same("whole", "run");
}

/// A mean of weights follows from them, and is the model all the same.
#[test]
fn a_flipped_bit_in_an_average_ends_the_job_with_81_and_names_it() {
    let place = Workplace::new();
    for (number, kind) in [&["average.start=1"][..], &["average.kind=exponential"]].iter().enumerate() {
        let averaged = [&SHORT[..], &["train.check_replicas_every=2"], kind].concat();
        let args = place.pretrain(&format!("run-{number}"), &averaged);
        fail(
            with(mpirun(2, &args), "flip@average:rank=1:step=3"),
            81,
            &["average.transformer.word_emb", "step 4"],
        );
    }
}

/// A core that computes wrongly now and then, before anything is compared between ranks.
#[test]
fn a_micro_step_that_comes_out_otherwise_the_second_time_ends_the_job_with_81() {
    let place = Workplace::new();
    let args = place.pretrain("run", &[&SHORT[..], &["train.check_repeats_every=2"]].concat());
    // Without the check nobody sees it: all ranks are given the sum that it is in.
    let unseen = place.pretrain("unseen", &SHORT);
    succeed(with(mpirun(2, &unseen), "flip@micro-step:rank=1:step=4"));
    let flipped = with(mpirun(2, &args), "flip@micro-step:rank=1:step=4");
    fail(flipped, 81, &["step 4: rank 1", "twice", "gradient of `", "segue doctor"]);
    succeed(mpirun(2, &args));
    succeed(alone(&place.pretrain("whole", &SHORT)));
    place.assert_same("whole", "run");
    assert!(place.final_bytes("whole") != place.final_bytes("unseen"));
}

#[test]
fn a_gradient_that_is_not_a_number_stops_the_run_and_the_run_goes_on_without_it() {
    let place = Workplace::new();
    let args = place.pretrain("run", &SHORT);
    // A gradient that is read wrongly by one rank alone, and one that was summed up wrongly for all.
    fail(with(mpirun(2, &args), "nan@gradient:rank=1:step=3"), 81, &["step 3", "NaN on rank 1"]);
    fail(with(mpirun(2, &args), "nan@gradient:step=5"), 80, &["step 5", "gradient norm"]);
    succeed(mpirun(2, &args));
    succeed(alone(&place.pretrain("whole", &SHORT)));
    place.assert_same("whole", "run");
}

/// The update of a finite loss and gradient leaves a NaN: no checkpoint has it, nor has the model of a run that is done.
#[test]
fn weights_that_are_not_a_number_are_never_written_and_are_said_to_be_at_fault() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &SHORT)));
    let blamed = ["`transformer.word_emb.emb_layers.0.weight` holds a value", "the weights are not finite"];
    // Where a checkpoint is due, and a step before that.
    for (step, last) in [(4, 2), (3, 2), (6, 4)] {
        let (run, fault) = (format!("run-{step}"), format!("nan@weights:step={step}"));
        let args = place.pretrain(&run, &[&SHORT[..], &["train.shard=optimizer"]].concat());
        fail(with(mpirun(2, &args), &fault), 80, &blamed);
        assert_eq!(newest(&place, &run), last);
        succeed(alone(&args));
        place.assert_same("whole", &run);
        assert_same_best(&place, "whole", &run);
    }
    let back = [&SHORT[..], &["recovery.non_finite=roll_back"]].concat();
    let skipped = [&SHORT[..], &[r#"recovery.skip_steps=["3-4"]"#]].concat();
    succeed(alone(&place.pretrain("skipped", &skipped)));
    succeed(with(alone(&place.pretrain("back", &back)), "nan@weights:step=4:rank=0"));
    place.assert_same("skipped", "back");
}

/// Nothing is injected: the settings alone spoil the weights, or leave such as give no number.
#[test]
fn a_run_that_ends_without_a_finite_result_is_not_done() {
    let place = Workplace::new();
    for (number, keys) in [
        &["train.steps=1", "optim.kind=sgd", "optim.lr=3e38", "optim.clip=0"][..],
        &[
            "train.steps=4",
            "optim.kind=sgd",
            "optim.lr=3e38",
            "recovery.non_finite=skip",
            "recovery.at_most=100",
        ],
        &["train.steps=2", "optim.kind=sgd", "optim.lr=1e30", "average.kind=exponential"],
    ]
    .into_iter()
    .enumerate()
    {
        let args = place.pretrain(&format!("run-{number}"), keys);
        for _ in 0..2 {
            fail(alone(&args), 80, &["finite"]);
        }
    }
}

/// Whatever the disk refuses at one checkpoint, training goes on, and the result is the same.
#[test]
fn a_disk_that_refuses_one_checkpoint_changes_nothing() {
    let place = Workplace::new();
    let settings = ["train.steps=8", "checkpoint.every=2", "checkpoint.keep=2"];
    let found = visits(alone(&place.pretrain("whole", &settings)), "");
    let points = [
        "tensors.write",
        "folder.make",
        "folder.sync-file",
        "folder.rename",
        "link.rename",
        "checkpoint.prune",
    ];
    for (i, point) in points.into_iter().enumerate() {
        // Neither the first checkpoint nor the last, which has to be written.
        let hit = found.get(point).unwrap_or_else(|| panic!("{point} is not in {found:?}")).div_ceil(2);
        let (kind, run) = (["no-space", "io-error", "read-only"][i % 3], format!("run-{i}"));
        let args = place.pretrain(&run, &settings);
        let output = finish(with(alone(&args), &format!("{kind}@{point}:hit={hit}")));
        let said = stderr(&output);
        assert!(output.status.success(), "{kind} at {point}: {said}");
        // One that cannot be removed is none that could not be written.
        assert!(
            point == "checkpoint.prune" || said.contains("training goes on"),
            "{kind} at {point}: {said}"
        );
        place.assert_same("whole", &run);
    }
}

/// Files of an old checkpoint that a reader holds on a network file system, say.
#[test]
fn old_checkpoints_that_cannot_be_removed_stay_and_the_new_ones_count() {
    let place = Workplace::new();
    let settings = ["train.steps=8", "checkpoint.every=2", "checkpoint.keep=2"];
    let args = place.pretrain("run", &settings);
    let output = finish(with(alone(&args), "io-error@checkpoint.prune:hit=1.."));
    assert!(output.status.success(), "{}", stderr(&output));
    let folder = place.path("run").join("checkpoints");
    let steps = || [2, 4, 6, 8].map(|step| folder.join(format!("step-{step:08}")).exists());
    assert_eq!(steps(), [true; 4]);
    assert!(std::fs::read_link(folder.join("latest")).unwrap().ends_with("step-00000008"));
    // They go when they can.
    succeed(alone(&args));
    assert_eq!(steps(), [false, false, true, true]);
}

/// Some of its files alone would be taken for another tokenizer.
#[test]
fn a_tokenizer_whose_import_was_killed_is_there_whole_or_not_at_all() {
    let place = Workplace::new();
    let list = place.text("words.txt");
    std::fs::write(&list, "the\ncat\n").expect("a file");
    let import = |name: &str| alone(&["tokenizer", "import", &list, "--output", &place.text(name)]);
    let found = visits(import("whole"), "");
    assert!(found.contains_key("file.rename") && found.contains_key("folder.rename"), "{found:?}");
    let whole = files_of(&place.path("whole"));
    for (point, hit) in found.iter().flat_map(|(point, count)| (1..=*count).map(move |hit| (point, hit))) {
        let name = format!("{point}-{hit}");
        let killed = finish(with(import(&name), &format!("kill@{point}:hit={hit}")));
        assert_eq!(killed.status.code(), None, "{name}: {}", stderr(&killed));
        if !place.path(&name).exists() {
            succeed(import(&name));
        }
        assert!(files_of(&place.path(&name)) == whole, "{name}");
    }
}

#[test]
fn a_plan_of_faults_that_cannot_be_read_is_refused() {
    fail(
        with(alone(&["bench", "products", "--ms", "1"]), "kil@step.begin"),
        78,
        &[FAULTS, "unknown kind `kil`"],
    );
}
