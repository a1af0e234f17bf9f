//! Bytes do not depend on kills, stops or the number of ranks.

use std::time::Duration;

use segue_tests::kills::{kill_often, kill_rank, spawn};
use segue_tests::{ROOT, Workplace, alone, fail, mpirun, repeats, succeed};
use serde_json::Value;

#[test]
fn ranks_1_2_and_4_give_the_same_bytes() {
    let place = Workplace::new();
    // As runs evaluate that say nothing of it.
    let pretrain = |run: &str| place.pretrain(run, &["eval.lanes=4", "eval.group=0"]);
    let one = succeed(alone(&pretrain("one")));
    for (ranks, run) in [(2, "two"), (4, "four")] {
        let result = succeed(mpirun(ranks, &pretrain(run)));
        place.assert_same("one", run);
        assert_eq!(result["evaluation"], one["evaluation"], "{ranks} ranks");
        assert_eq!(result["loss"], one["loss"], "{ranks} ranks");
    }
}

/// Sums inside a kernel are split over threads: another number of them is another run, and the same number the same one, on any number
/// of ranks.
#[test]
fn two_threads_a_rank_give_the_same_bytes_on_1_and_2_ranks_and_over_stops() {
    let place = Workplace::new();
    let threads = "train.threads=2";
    // Long enough for loops that are shared out.
    let pretrain = |run: &str, more: &[&str]| {
        place.pretrain(
            run,
            &[&[threads, "train.segment=64", "model.d_inner=256", "train.steps=12"], more].concat(),
        )
    };
    succeed(alone(&pretrain("one", &[])));
    succeed(mpirun(2, &pretrain("two", &[])));
    place.assert_same("one", "two");
    succeed(mpirun(2, &pretrain("parts", &["train.stop_at=5"])));
    succeed(alone(&pretrain("parts", &[])));
    place.assert_same("one", "parts");
}

/// Large products are made by other routines than small ones; by which, depends on the processor.
#[test]
fn wide_layers_give_the_same_bytes_over_ranks_stops_and_layers_made_again() {
    let place = Workplace::new();
    let wide = ["model.d_model=256", "model.d_inner=1024", "train.segment=64", "train.steps=6"];
    let pretrain = |run: &str, more: &[&str]| place.pretrain(run, &[&wide, more].concat());
    succeed(alone(&pretrain("one", &[])));
    succeed(mpirun(4, &pretrain("four", &["train.recompute=true"])));
    place.assert_same("one", "four");
    succeed(mpirun(2, &pretrain("parts", &["train.stop_at=3"])));
    succeed(alone(&pretrain("parts", &[])));
    place.assert_same("one", "parts");
    succeed(alone(&pretrain("threads-one", &["train.threads=2"])));
    succeed(mpirun(2, &pretrain("threads-two", &["train.threads=2"])));
    place.assert_same("threads-one", "threads-two");
}

/// Peaks of the process, holes of the heap included: a quarter on AMD's Zen 4, 36 to 41 % on an Intel Xeon with tiles of matrices, more on both where tensors lie
/// as libtorch has them.
#[test]
fn layers_made_again_take_at_most_half_of_the_memory() {
    let peak = |more: &[&str]| {
        let step = ["bench", "step", "--json", "--layers", "12", "--vocab-size", "256"];
        let steps = ["--steps", "2", "--warmup", "1"];
        succeed(alone(&[&step[..], &steps, more].concat()))["peak_above_state_mb"].as_f64().unwrap()
    };
    let (kept, again) = (peak(&[]), peak(&["--recompute"]));
    assert!(again < kept / 2.0, "{again} of {kept} MB");
}

/// Dense gradients, sparse ones, and those of several networks that take turns.
#[test]
fn micro_steps_made_twice_change_no_bit() {
    let place = Workplace::new();
    let twice = "train.check_repeats_every=1";
    let short = "train.steps=6";
    succeed(mpirun(2, &place.pretrain("once", &[short])));
    succeed(mpirun(2, &place.pretrain("twice", &[short, twice])));
    place.assert_same("once", "twice");
    succeed(mpirun(2, &place.pretrain_xlnet("xlnet-once", &[short])));
    succeed(mpirun(2, &place.pretrain_xlnet("xlnet-twice", &[short, twice])));
    place.assert_same("xlnet-once", "xlnet-twice");
    let game = |run: &str, more: &[&str]| {
        let mut args = vec!["pretrain".to_string(), "--json".into(), "--config".into()];
        args.extend([
            format!("{ROOT}/configs/recipes/moment-game.toml"),
            format!("run.dir={}", place.path(run).display()),
        ]);
        args.extend(
            ["train.steps=40", "checkpoint.every=40"].iter().chain(more).map(|word| word.to_string()),
        );
        succeed(mpirun(2, &args));
        ["model", "optimizer"].map(|name| {
            let file = place.path(run).join(format!("checkpoints/latest/{name}.safetensors"));
            std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
        })
    };
    assert!(game("game-once", &[]) == game("game-twice", &[twice]));
}

/// Without exactness the library adds as it likes, on numbers of ranks that have no tree too. Losses then differ by roundings alone.
#[test]
fn without_exactness_any_number_of_ranks_trains_alike() {
    let place = Workplace::new();
    let pretrain = |run: &str, exact: &str| {
        place.pretrain(run, &["train.lanes=12", "train.micro_batch=2", "train.steps=20", exact])
    };
    let loss = |found: &serde_json::Value| found["loss"].as_f64().expect("a loss");
    let exact = loss(&succeed(alone(&pretrain("exact", "train.exact=true"))));
    for ranks in [2, 3, 6] {
        let run = format!("on-{ranks}");
        let found = loss(&succeed(mpirun(ranks, &pretrain(&run, "train.exact=false"))));
        println!("{ranks} ranks: {found} instead of {exact}");
        assert!((found - exact).abs() < 1e-5 * exact, "{ranks} ranks: {found} instead of {exact}");
    }
    fail(mpirun(2, &pretrain("refused", "train.exact=true")), 78, &["power of two"]);
}

#[test]
fn small_buckets_and_adaptive_softmax_keep_the_bytes() {
    let place = Workplace::new();
    let options =
        ["model.cutoffs=[100,120]", "model.div_val=2", "train.bucket_bytes=4096", "model.untie_r=false"];
    succeed(alone(&place.pretrain("one", &options)));
    succeed(mpirun(4, &place.pretrain("four", &options)));
    place.assert_same("one", "four");
}

/// Every way of reading and forgetting, over ranks and stops.
#[test]
fn any_order_of_data_and_any_memory_keeps_the_bytes() {
    let place = Workplace::new();
    place.build("sentences", &["--preset", "sentences", "--tokenizer-kind", "word"]);
    let sentences = format!("data.corpus={}", place.text("sentences"));
    let variants: [(&str, &[&str]); 5] = [
        ("mask", &["train.at_document_end=mask", "train.roll=true", "model.memory_start=masked"]),
        ("reset", &["train.at_document_end=reset", "train.varlen=true", "model.memory_start=empty"]),
        ("context", &["train.ext_len=8", "train.loss=half", "model.attn_type=shaw", "eval.ext_len=8"]),
        ("sentences", &["data.order=sentences", &sentences, "model.variational=true"]),
        ("learned", &["model.attn_type=learned", "model.mem_len=0", "train.varlen=true"]),
    ];
    for (name, options) in variants {
        // Documents that end now and then: those of the corpus are too long for that.
        let corpus = place.documents();
        let with = |more: &[&str]| {
            let own = [format!("data.corpus={corpus}")];
            let all =
                own.iter().map(String::as_str).chain(options.iter().copied()).chain(more.iter().copied());
            all.map(str::to_string).collect::<Vec<_>>()
        };
        let pretrain = |run: &str, more: &[&str]| {
            let all = with(more);
            place.pretrain(&format!("{name}-{run}"), &all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        succeed(alone(&pretrain("whole", &[])));
        succeed(mpirun(2, &pretrain("parts", &["train.stop_at=13"])));
        succeed(mpirun(4, &pretrain("parts", &["train.stop_at=31"])));
        succeed(alone(&pretrain("parts", &[])));
        place.assert_same(&format!("{name}-whole"), &format!("{name}-parts"));
    }
}

/// Two stages of sixteen steps, in rounds of four and two; stops fall inside of rounds. What is measured of the noise goes on where
/// it stood.
#[test]
fn lamb_over_a_batch_that_grows_keeps_the_bytes_over_ranks_and_stops() {
    let place = Workplace::new();
    let options = [
        "optim.kind=lamb",
        "optim.weight_decay=0.01",
        "optim.trust_limit=10.0",
        "train.micro_batch=1",
        "train.batch_warmup=32",
        "train.batch_warmup_from=4",
        "train.roll=true",
        "log.noise_scale_every=3",
    ];
    let pretrain = |run: &str, more: &[&str]| place.pretrain(run, &[&options[..], more].concat());
    let xlnet = |run: &str, more: &[&str]| {
        let options = [
            "train.steps=20",
            "train.batch_warmup=8",
            "train.batch_warmup_from=2",
            "log.noise_scale_every=3",
        ];
        place.pretrain_xlnet(run, &[&options[..], more].concat())
    };
    succeed(alone(&pretrain("whole", &[])));
    succeed(mpirun(2, &pretrain("parts", &["train.stop_at=14"])));
    succeed(alone(&pretrain("parts", &["train.stop_at=19"])));
    succeed(mpirun(2, &pretrain("parts", &[])));
    place.assert_same("whole", "parts");
    let noise = |run: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["kind"] == "train").map(|row| row["noise_trace"].clone()).collect()
    };
    assert!(noise("whole").iter().any(Value::is_number), "{:?}", noise("whole"));
    assert_eq!(noise("whole"), noise("parts"));
    succeed(alone(&xlnet("xlnet-whole", &[])));
    succeed(mpirun(2, &xlnet("xlnet-parts", &["train.stop_at=5"])));
    succeed(alone(&xlnet("xlnet-parts", &[])));
    place.assert_same("xlnet-whole", "xlnet-parts");
}

/// Thirty steps of XLNet with dropout, half of the lanes read backwards: the same bytes on any number of ranks, and
/// whatever stops on the way.
#[test]
fn xlnet_gives_the_same_bytes_on_1_2_and_4_ranks_and_over_stops() {
    let place = Workplace::new();
    let steps = "train.steps=30";
    let pretrain = |run: &str, more: &[&str]| place.pretrain_xlnet(run, &[&[steps], more].concat());
    let one = succeed(alone(&pretrain("one", &[])));
    assert!(one["evaluation"]["accuracy"].as_f64().unwrap() > 0.0);
    for (ranks, run) in [(2, "two"), (4, "four")] {
        let result = succeed(mpirun(ranks, &pretrain(run, &[])));
        place.assert_same("one", run);
        assert_eq!(result["evaluation"], one["evaluation"], "{ranks} ranks");
        assert_eq!(result["loss"], one["loss"], "{ranks} ranks");
    }
    succeed(mpirun(2, &pretrain("parts", &["train.stop_at=7"])));
    succeed(mpirun(4, &pretrain("parts", &["train.stop_at=19"])));
    succeed(alone(&pretrain("parts", &[])));
    place.assert_same("one", "parts");
}

/// Every objective and way of drawing.
#[test]
fn xlnet_keeps_the_bytes_whatever_it_is_trained_to_do() {
    let place = Workplace::new();
    let variants: [(&str, &[&str]); 4] = [
        ("denoising", &["objective.kind=denoising", "pairs.spans=words"]),
        ("sentences", &["objective.next_sentence=0.5", "pairs.draws=same", "pairs.bidirectional=false"]),
        ("windows", &["pairs.perm_size=8", "pairs.spans=single", "model.memory_start=empty"]),
        ("left", &["objective.kind=lm", "data.order=stream", "model.attn_type=uni", "model.reuse_len=0"]),
    ];
    for (name, options) in variants {
        let pretrain = |run: &str, more: &[&str]| {
            let all = [&["train.steps=20"], options, more].concat();
            place.pretrain_xlnet(&format!("{name}-{run}"), &all)
        };
        succeed(alone(&pretrain("whole", &[])));
        succeed(mpirun(4, &pretrain("parts", &["train.stop_at=9"])));
        succeed(mpirun(2, &pretrain("parts", &[])));
        place.assert_same(&format!("{name}-whole"), &format!("{name}-parts"));
    }
}

#[test]
fn stopping_and_changing_the_number_of_ranks_leaves_no_trace() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &[])));
    succeed(mpirun(2, &place.pretrain("parts", &["train.stop_at=25"])));
    succeed(mpirun(4, &place.pretrain("parts", &["train.stop_at=38"])));
    succeed(alone(&place.pretrain("parts", &[])));
    place.assert_same("whole", "parts");
}

/// A model whose word table is more than a quarter of it.
const ONE_LAYER: [&str; 3] = ["model.n_layer=1", "model.d_inner=32", "train.steps=24"];

/// Bytes of each tensor of a safetensors file.
fn sizes_of(path: &std::path::Path) -> Vec<usize> {
    let bytes =
        segue_foreign::SharedBytes::of_file(std::fs::File::open(path).expect("a file")).expect("a map");
    let file = segue_foreign::SafetensorsFile::from_bytes(&bytes).expect("safetensors");
    file.entries().iter().map(|entry| entry.bytes()).collect()
}

/// Bytes of optimizer state that each of four ranks has told of at the start of `run`.
fn optimizer_bytes(place: &Workplace, run: &str) -> Vec<u64> {
    let told = |rank: usize| {
        let path = place.path(run).join(format!("logs/rank-{rank:05}.jsonl"));
        let log = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let mut bytes = lines.filter_map(|line| line["fields"]["optimizer_bytes"].as_u64());
        bytes.next().unwrap_or_else(|| panic!("rank {rank} tells nothing"))
    };
    (0..4).map(told).collect()
}

#[test]
fn each_of_four_ranks_holds_a_quarter_of_the_moments_and_no_bit_changes() {
    let place = Workplace::new();
    let pretrain = |run: &str, more: &[&str]| place.pretrain(run, &[&ONE_LAYER, more].concat());
    let one = succeed(alone(&pretrain("one", &[])));
    let moments: Vec<usize> = sizes_of(&place.path("one").join("checkpoints/latest/optimizer.safetensors"));
    let whole = moments.iter().sum::<usize>() as u64;
    // Of the two moments each.
    assert!(moments.iter().max().is_some_and(|largest| 2 * 4 * *largest as u64 > whole), "{moments:?}");
    for (run, shard) in [("none", "none"), ("optimizer", "optimizer"), ("gradients", "gradients")] {
        let mut command = mpirun(4, &pretrain(run, &[&format!("train.shard={shard}")]));
        command.env("RUST_LOG", "info");
        let result = succeed(command);
        place.assert_same("one", run);
        assert_eq!(result["loss"], one["loss"], "{shard}");
        let held = optimizer_bytes(&place, run);
        println!("train.shard={shard}: {held:?} of {whole} bytes");
        if shard == "none" {
            assert_eq!(held, [whole; 4]);
            continue;
        }
        assert_eq!(held.iter().sum::<u64>(), whole);
        let quarter = whole as f64 / 4.0;
        assert!(held.iter().all(|bytes| (*bytes as f64 - quarter).abs() < 0.01 * quarter), "{held:?}");
    }
}

/// Stops, kills, other numbers of ranks and other divisions on the way.
#[test]
fn a_run_divided_otherwise_after_stops_and_kills_ends_with_the_same_bytes() {
    let place = Workplace::new();
    let long = ["train.steps=400", "checkpoint.every=20", "eval.every=100"];
    succeed(alone(&place.pretrain("whole", &long)));
    let part = |shard: &str, stop_at: &str| {
        let keys = [format!("train.shard={shard}"), format!("train.stop_at={stop_at}")];
        place.pretrain("parts", &[&long[..], &[&keys[0], &keys[1]]].concat())
    };
    succeed(mpirun(4, &part("gradients", "50")));
    succeed(mpirun(2, &part("none", "90")));
    for (number, shard) in ["optimizer", "gradients", "optimizer", "gradients"].into_iter().enumerate() {
        let moment = Duration::from_millis(700 + 130 * number as u64);
        kill_rank(&mut spawn(mpirun(2, &part(shard, "0"))), number % 2, moment);
    }
    succeed(mpirun(4, &part("optimizer", "390")));
    succeed(alone(&part("gradients", "0")));
    place.assert_same("whole", "parts");
}

/// Rounded on their way, gradients are others than those of `train.exact`, but the same whenever as many ranks make them, whatever these divide.
#[test]
fn gradients_sent_as_bf16_repeat_over_stops_kills_and_divisions_and_train_as_well() {
    let place = Workplace::new();
    let long = ["train.steps=200", "checkpoint.every=20", "eval.every=100"];
    let pretrain = |run: &str, more: &[&str]| place.pretrain(run, &[&long[..], more].concat());
    let short = |run: &str, more: &[&str]| {
        pretrain(run, &[&["train.exact=false", "train.reduce_precision=bf16"], more].concat())
    };
    let whole = succeed(mpirun(4, &pretrain("f32", &[])));
    let rounded = succeed(mpirun(4, &short("bf16", &[])));
    let weights = |run: &str| {
        std::fs::read(place.path(run).join("checkpoints/latest/model.safetensors")).expect("weights")
    };
    assert!(weights("f32") != weights("bf16"), "nothing was rounded");
    let [whole, rounded] = [whole, rounded].map(|result| result["loss"].as_f64().expect("a loss"));
    println!("loss after 200 steps: {whole} of f32, {rounded} of bf16");
    assert!((rounded - whole).abs() < 0.01 * whole, "{rounded} and {whole}");
    succeed(mpirun(4, &short("parts", &["train.shard=gradients", "train.stop_at=50"])));
    let keys = ["train.shard=optimizer", "train.bucket_bytes=1000"];
    let killed = kill_rank(&mut spawn(mpirun(4, &short("parts", &keys))), 1, Duration::from_millis(900));
    assert!(killed, "the run had ended");
    succeed(mpirun(4, &short("parts", &["train.shard=gradients"])));
    assert!(weights("bf16") == weights("parts"), "other weights after a stop and a kill");
    // A rank alone sends nothing.
    let one = succeed(alone(&short("alone", &["train.steps=3"])));
    assert_eq!(one["loss"], succeed(alone(&pretrain("alone-f32", &["train.steps=3"])))["loss"]);
}

#[test]
fn a_run_made_longer_equals_one_that_was_long_from_the_start() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &[])));
    succeed(alone(&place.pretrain("grown", &["train.steps=25"])));
    succeed(mpirun(2, &place.pretrain("grown", &[])));
    place.assert_same("whole", "grown");
}

/// The steps are many and checkpoints few, so that most kills cost work.
const LONG: [&str; 3] = ["train.steps=400", "checkpoint.every=20", "eval.every=100"];

#[test]
fn killed_at_random_moments_a_run_ends_with_the_same_bytes() {
    let place = Workplace::new();
    kill_often(repeats(5, 20), &|run| place.pretrain(run, &LONG), &|run, other| {
        place.assert_same(run, other)
    });
}

#[test]
fn xlnet_killed_at_random_moments_ends_with_the_same_bytes() {
    let place = Workplace::new();
    let steps = ["train.steps=200", "checkpoint.every=20", "eval.every=100"];
    kill_often(repeats(2, 5), &|run| place.pretrain_xlnet(run, &steps), &|run, other| {
        place.assert_same(run, other)
    });
}

#[test]
fn a_task_gives_the_same_bytes_on_1_2_and_4_ranks_and_over_stops() {
    let place = Workplace::new();
    let finetune = |run: &str, more: &[&str]| place.finetune(run, &[&["eval.every=7"], more].concat());
    let one = succeed(alone(&finetune("one", &[])));
    for (ranks, run) in [(2, "two"), (4, "four")] {
        let result = succeed(mpirun(ranks, &finetune(run, &[])));
        place.assert_same("one", run);
        assert_eq!((&result["scores"], &result["loss"]), (&one["scores"], &one["loss"]), "{ranks} ranks");
        same_answers(&place, "one", run);
    }
    succeed(mpirun(2, &finetune("parts", &["train.stop_at=5"])));
    succeed(mpirun(4, &finetune("parts", &["train.stop_at=17"])));
    succeed(alone(&finetune("parts", &[])));
    place.assert_same("one", "parts");
    same_answers(&place, "one", "parts");
}

/// The best model and what it predicts.
fn same_answers(place: &Workplace, run: &str, other: &str) {
    for file in
        ["best/model.safetensors", "best/metrics.json", "predictions/sst2-dev.tsv", "predictions/scores.json"]
    {
        let read =
            |run: &str| std::fs::read(place.path(run).join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(read(run) == read(other), "{file} of {run} and {other} differ");
    }
}

#[test]
fn a_task_killed_at_random_moments_ends_with_the_same_bytes() {
    let place = Workplace::new();
    let steps = ["task.epochs=8", "checkpoint.every=15", "eval.every=40"];
    kill_often(repeats(2, 5), &|run| place.finetune(run, &steps), &|run, other| {
        place.assert_same(run, other)
    });
    for run in 0..2 {
        let killed = format!("killed-{run}");
        if place.path(&killed).exists() {
            same_answers(&place, "undisturbed", &killed);
        }
    }
}
