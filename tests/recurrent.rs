//! Recurrent language models, from a recipe to text.

use std::process::Command;

use segue_random::{Draws, Purpose};
use segue_tests::chain::{chain, entropy_rate};
use segue_tests::kills::job_to_kill;
use segue_tests::{
    Workplace, alone, assert_scores_are_distributions, ended_with, fail, finish, mpirun, repeats, stderr,
    succeed, text, two_at_a_time,
};
use serde_json::Value;

/// Trains on one rank, and on two, one and four with stops between, to the same bytes; what the first found, and whether the lanes of four ranks
/// come to the end of an epoch. Segments are short where `options` do not say how long they are.
fn same_over_ranks_and_stops(
    place: &Workplace,
    name: &str,
    stops: [u64; 2],
    options: &[&str],
) -> (Value, bool) {
    let pretrain = |run: &str, more: &[&str]| {
        place.pretrain_lstm(&format!("{name}-{run}"), &[&["train.segment=8"], options, more].concat())
    };
    let one = succeed(alone(&pretrain("one", &[])));
    let [first, second] = stops.map(|step| format!("train.stop_at={step}"));
    succeed(mpirun(2, &pretrain("parts", &[&first])));
    succeed(alone(&pretrain("parts", &[&second])));
    let stopped = epochs(place, &format!("{name}-parts"));
    let four = succeed(mpirun(4, &pretrain("parts", &[])));
    assert_eq!(four["evaluation"], one["evaluation"], "{name}");
    place.assert_same(&format!("{name}-one"), &format!("{name}-parts"));
    let all = epochs(place, &format!("{name}-parts"));
    (one, all.iter().zip(&stopped).all(|(end, stop)| end > stop))
}

/// The epoch that each lane of `run` is in.
fn epochs(place: &Workplace, run: &str) -> Vec<u64> {
    let state = trainer_state(place, run);
    let lanes = state["lanes"].as_array().expect("lanes");
    lanes.iter().map(|lane| lane["epoch"].as_u64().expect("a number")).collect()
}

/// Stacks of layers with widths of their own, and dropout of AWD-LSTM.
const STACK: [&str; 14] = [
    "model.wiring=stack",
    "model.n_layer=3",
    "model.d_embed=24",
    "model.d_last=24",
    "model.init=uniform",
    "model.forget_bias=one",
    "model.mogrifier_rounds=0",
    "model.cell_output_dropout=0",
    "model.state_dropout=0",
    "model.weight_dropout=0.3",
    "model.embedding_dropout=0.1",
    "model.locked_dropout=true",
    "model.inter_layer_dropout=0.1",
    "optim.lr=1e-2",
];

/// The state of lanes goes where they go: over ranks, and over stops in the middle of a run.
#[test]
fn recurrent_models_train_to_the_same_bytes_over_ranks_and_stops() {
    let place = Workplace::new();
    let variants: [(&str, &[&str]); 11] = [
        ("rewired", &[]),
        // Row M3: what stands in the place of a mogrifier.
        (
            "factors",
            &[
                "model.cell=mlstm",
                "model.mogrifier_rounds=0",
                "model.scale_vectors=true",
                "model.gate_rank=3",
                "model.gate_norm=layer",
            ],
        ),
        (
            "mixed",
            &[
                "model.cell=lstm",
                "model.wiring=skip",
                "model.mixture=2",
                "model.inter_layer_dropout=0.1",
                "model.cell_output_dropout=0",
            ],
        ),
        (
            "narrow",
            &[
                "model.cell=mlstm",
                "model.wiring=skip",
                "model.cell_output_dropout=0",
                "model.input_embedding_ratio=0.5",
                "model.n_layer=3",
            ],
        ),
        ("bf16", &["train.precision=bf16"]),
        // Row S25: margins, in one softmax and in a split one.
        (
            "sampled",
            &[
                "objective.samples=2",
                "objective.loss_over=lanes",
                "objective.cosine_penalty=0.1",
                "objective.input_noise=0.1",
                "adversarial.scale=0.05",
            ],
        ),
        (
            "split",
            &[
                "model.cell=lstm",
                "model.cutoffs=[30]",
                "optim.lr=1e-2",
                "adversarial.scale=0.05",
                "adversarial.gradient=full",
                "adversarial.clusters=true",
                // Row S2: a scale that rises and falls.
                "adversarial.warmup=4",
                "adversarial.fall=linear",
            ],
        ),
        (
            "others",
            &[
                "model.cell=gru",
                "model.tie_word_embeddings=false",
                "model.mogrifier_rounds=1",
                "model.state_dropout=0",
                "model.forget_bias=one",
            ],
        ),
        // Row S14: layers of widths of their own, with all that AWD-LSTM drops and is trained for.
        (
            "awd",
            &[
                &STACK[..],
                &[
                    "model.cell=lstm",
                    "model.input_gate=plain",
                    "model.two_biases=true",
                    "objective.activation_penalty=2",
                    "objective.slowness_penalty=1",
                    "train.varlen=true",
                    "average.start=12",
                ],
            ]
            .concat(),
        ),
        ("qrnn", &[&STACK[..], &["model.cell=qrnn", "objective.samples=2", "model.cutoffs=[30]"]].concat()),
        (
            "projected",
            &[&STACK[..], &["model.cell=qrnn", "model.d_last=20", "model.window=3", "train.precision=bf16"]]
                .concat(),
        ),
    ];
    for (name, options) in variants {
        let short = [&["train.steps=16", "optim.lr=1e-2"], options].concat();
        let (one, _) = same_over_ranks_and_stops(&place, name, [5, 13], &short);
        let (first, last) = (5.0, one["loss"].as_f64().unwrap());
        assert!(last < first, "{name}: {last} nats after training");
    }
}

/// Rows M8 and S12: what lanes read does not depend on ranks and stops, over ends of epochs too.
#[test]
fn every_order_of_reading_trains_to_the_same_bytes_over_ranks_and_stops() {
    let place = Workplace::new();
    // So short that an epoch of lines and of columns ends where four ranks read; episodes are drawn without one.
    std::fs::write(place.path("train.txt"), text(20_000, 1)).unwrap();
    place.build("lines", &["--preset", "sentences", "--tokenizer-kind", "word"]);
    let corpus = format!("data.corpus={}", place.text("lines"));
    let info = succeed(alone(&["data", "info", "--json", &place.text("lines")]));
    let tokens = &info["splits"]["valid"]["tokens"];
    let variants: [(&str, u64, &[&str]); 3] = [
        (
            "lines",
            0,
            &[
                "data.order=lines",
                "data.line_jitter=3",
                "train.segment=40",
                "train.drop_state=0.05",
                "objective.samples=2",
            ],
        ),
        (
            "columns",
            1,
            &[
                "train.segment=48",
                "train.segment_half=0.2",
                "train.segment_spread=5",
                "train.segment_rest=true",
                "train.roll=true",
            ],
        ),
        ("episodes", 0, &["data.order=episodes", "train.segment=12"]),
    ];
    for (name, left_out, options) in variants {
        let options = [&[corpus.as_str(), "train.steps=24", "optim.lr=1e-2"], options].concat();
        let (one, ends) = same_over_ranks_and_stops(&place, name, [5, 11], &options);
        assert!(ends || name == "episodes", "{name}: four ranks do not come to the end of an epoch");
        let evaluation = &one["evaluation"];
        assert_eq!(evaluation["targets"].as_u64().unwrap(), tokens.as_u64().unwrap() - left_out, "{name}");
        let loss = one["loss"].as_f64().unwrap();
        // Below a uniform guess of 32 words.
        assert!(loss < 3.4, "{name}: {loss} nats after training");
    }
}

/// Where a rank is killed. Each is visited by either rank within two intervals of checkpoints.
const PLACES: [&str; 6] =
    ["step.begin", "step.backward", "step.update", "evaluation.part", "checkpoint.stage", "reduce.bucket"];
/// Twice a gradient is not a number, before and after averages have begun, and the run goes back to its best weights.
const SPOILED: &str = "nan@gradient:step=9;nan@gradient:step=21";
const RESETS: [&str; 4] =
    ["train.steps=40", "checkpoint.every=4", "eval.every=4", "recovery.non_finite=restore_best"];

/// What the last checkpoint of `run` says about its way.
fn trainer_state(place: &Workplace, run: &str) -> Value {
    let path = place.path(run).join("checkpoints/latest/trainer_state.json");
    serde_json::from_slice(&std::fs::read(path).expect("a state")).expect("JSON")
}

/// Averages that begin, and begin anew where weights go back to the best ones, over ranks that die.
#[test]
fn killed_at_drawn_places_runs_with_averages_and_resets_end_with_the_same_bytes() {
    let place = Workplace::new();
    let averages: [(&str, &[&str]); 2] =
        [("tail", &["average.start=12", "average.patience=2"]), ("two-tailed", &["average.kind=two_tailed"])];
    two_at_a_time(averages.len(), &|number| {
        let (name, average) = averages[number];
        let mut draws = Draws::new(1, Purpose::Bench, &[2, number as u64]);
        let args = |run: &str| place.pretrain_lstm(&format!("{name}-{run}"), &[&RESETS, average].concat());
        let suffering = |mut command: Command, faults: &str| {
            command.env("SEGUE_FAULTS", faults);
            command
        };
        succeed(suffering(alone(&args("whole")), SPOILED));
        let whole = format!("{name}-whole");
        let state = trainer_state(&place, &whole);
        assert_eq!(state["recoveries"], 2, "{state}");
        let averaged = place.final_bytes(&whole).contains_key("training_weights.safetensors");
        assert!(averaged || name == "two-tailed", "{}", state["average"]);
        let (mut kills, wanted) = (0, repeats(3, 10));
        for run in 0.. {
            let run = format!("killed-{run}");
            // A run that comes to its end before it is killed is compared, and another one begins.
            while kills < wanted {
                let place = PLACES[draws.below(PLACES.len() as u64) as usize];
                let kill = format!("kill@{place}:rank={}:hit={}", draws.below(2), 1 + draws.below(8));
                let job = job_to_kill(kills, &args(&run));
                let killed = finish(suffering(job, &format!("{SPOILED};{kill}")));
                if killed.status.success() {
                    break;
                }
                assert!(ended_with(&killed, 137), "{kill}: {:?} {}", killed.status, stderr(&killed));
                kills += 1;
            }
            succeed(suffering(mpirun(2, &args(&run)), SPOILED));
            let run = format!("{name}-{run}");
            place.assert_same(&whole, &run);
            assert_eq!(trainer_state(&place, &run)["average"], state["average"]);
            if kills == wanted {
                break;
            }
        }
    });
}

/// Rows S13 and S27: a run that descends, averages and fine-tunes, over ranks and stops; and what its stages came to.
/// Rows S13, S27.
#[test]
fn a_run_in_stages_has_the_same_bytes_and_tells_the_score_of_each() {
    let place = Workplace::new();
    let options = [
        "train.steps=60",
        "optim.lr=1",
        "eval.every=2",
        "average.start=4",
        "average.patience=1",
        "average.fine_tuning=1",
    ];
    same_over_ranks_and_stops(&place, "stages", [7, 13], &options);
    let run = place.text("stages-one");
    let record = succeed(alone(&["inspect", "run", "--json", &run]));
    let stages = record["stages"][0].as_array().expect("stages");
    let names: Vec<&str> = stages.iter().filter_map(|stage| stage["name"].as_str()).collect();
    assert_eq!(names, ["averaging", "fine_tuning"], "{record}");
    let corpus = place.text("corpus");
    for (stage, folder) in stages.iter().zip(["stage-1", "best"]) {
        let model = format!("{run}/{folder}");
        let eval = ["eval", "--json", "--lanes", "32", "--model", &model, "--corpus", &corpus];
        let found = succeed(alone(&eval));
        let [found, told] = [&found["evaluation"]["loss"], &stage["loss"]].map(|loss| loss.as_f64().unwrap());
        // As runs evaluate: in other groups of lanes, whose sums round differently.
        assert!((found - told).abs() < 1e-5, "{folder}: {found} instead of {told}");
    }
    assert!(stages[1]["loss"].as_f64() <= stages[0]["loss"].as_f64(), "{stages:?}");
}

/// Text of known entropy is learnt to within 0.02 nats a symbol, by every cell with all that belongs to it.
/// Row M18.
#[test]
fn the_whole_stack_reaches_the_entropy_of_a_chain() {
    let place = Workplace::new();
    for (file, length, seed) in [("chain", 200_000, 1), ("chain-valid", 20_000, 2)] {
        std::fs::write(place.path(file), chain(length, seed)).unwrap();
    }
    let [train, valid, corpus] = ["chain", "chain-valid", "chains"].map(|name| place.text(name));
    let build =
        ["data", "build", "--preset", "text8", "--train", &train, "--valid", &valid, "--output", &corpus];
    succeed(alone(&build));
    let cells = [("rewired", 5), ("lstm", 0), ("lstm", 5), ("rewired", 0)];
    for (cell, rounds) in cells.into_iter().take(repeats(1, 4)) {
        let mut args = vec!["pretrain".to_string(), "--json".into()];
        args.push(format!("run.dir={}", place.text(&format!("{cell}-{rounds}"))));
        args.push(format!("data.corpus={corpus}"));
        args.push(format!("model.cell={cell}"));
        args.push(format!("model.mogrifier_rounds={rounds}"));
        args.extend((rounds > 0).then(|| "model.mogrifier_rank=4".into()));
        let settings = [
            "model.model_type=lstm",
            "model.d_model=32",
            "model.n_layer=2",
            "model.wiring=residual",
            "model.forget_bias=chrono",
            "model.t_max=32",
            "train.steps=500",
            "train.lanes=32",
            "train.micro_batch=32",
            "train.segment=35",
            "optim.kind=radam",
            "optim.beta1=0",
            "optim.lr=0.01",
            "optim.clip=10",
            "objective.loss_over=lanes",
            "schedule.kind=cosine",
            "eval.lanes=32",
            "eval.group=32",
            "log.tensorboard=false",
        ];
        args.extend(settings.map(String::from));
        let trained = succeed(alone(&args));
        let loss = trained["evaluation"]["loss"].as_f64().unwrap();
        let limit = entropy_rate() + 0.02;
        println!("{cell} with {rounds} rounds: {loss:.4} nats, of {:.4}", entropy_rate());
        assert!(loss < limit, "{cell} with {rounds} rounds: {loss} nats, at most {limit}");
    }
}

/// What is there for language models is there for these: evaluation, text, word vectors, scores, lengths of context.
#[test]
fn a_trained_recurrent_model_is_evaluated_and_writes() {
    let place = Workplace::new();
    let trained = succeed(alone(&place.pretrain_lstm("run", &["train.steps=30"])));
    let (run, corpus) = (place.text("run"), place.text("corpus"));
    let evaluated =
        succeed(alone(&["eval", "--json", "--lanes", "32", "--model", &run, "--corpus", &corpus]));
    let (found, reported) = (&evaluated["evaluation"]["loss"], &trained["evaluation"]["loss"]);
    let difference = (found.as_f64().unwrap() - reported.as_f64().unwrap()).abs();
    assert!(difference < 1e-5, "{found} instead of {reported}");
    let write = |seed: &str| {
        succeed(alone(&[
            "generate",
            "--model",
            &run,
            "--json",
            "--prompt",
            "the memory",
            "--tokens",
            "20",
            "--seed",
            seed,
        ]))
    };
    assert_eq!(write("1"), write("1"));
    let [early, late] = [10, 30].map(|step| place.text(&format!("run/checkpoints/step-{step:08}")));
    let inspect = ["inspect", "embeddings", "--json", &late, &early, "--labels"];
    let vectors = succeed(alone(&[&inspect[..], &["late", "early"]].concat()));
    for (table, (label, model)) in [("late", &late), ("early", &early)].into_iter().enumerate() {
        let table = &vectors["tables"][table];
        assert!(table["label"] == label && table["model"] == model.as_str(), "{vectors}");
    }
    let folder = place.text("vectors");
    let options = ["--state-length=3", "--scale=0.2", "--hull=4", "--output", &folder];
    let moved = succeed(alone(&[&inspect[..4], &options].concat()));
    // Row S4: what words can come to in the mean and at least, and those that stand out of all others by more than they move.
    let energy = &moved["tables"][0]["energy"];
    assert!(energy["states"]["length"] == 3.0 && energy["states"]["scale"] == 0.2, "{energy}");
    let [least, mean] = ["bound_least", "bound_mean"].map(|key| energy[key].as_f64().unwrap());
    assert!(0.0 < least && least <= mean && mean < 1.0, "{energy}");
    let hull = &moved["tables"][0]["hull"];
    assert!(hull["recognisable"].as_u64().unwrap() + hull["within"].as_u64().unwrap() <= 4, "{hull}");
    for file in ["energy.svg", "nearest.svg", "singular.svg"] {
        assert!(
            std::fs::read_to_string(place.path("vectors").join(file)).unwrap().contains("<svg"),
            "{file}"
        );
    }
    fail(alone(&[&inspect[..4], &["--state-length=-1"]].concat()), 64, &["--state-length", "at least 0"]);
    let why = ["1 --labels for 2 models", "they name models, in their order"];
    fail(alone(&[&inspect[..], &["late"]].concat()), 64, &why);
    let dry = succeed(alone(&place.pretrain_lstm("dry", &["--dry-run"])));
    assert!(dry["cost"].is_object(), "{dry}");
    assert_scores_are_distributions(&place, &run, 40);
    let lengths = place.text("lengths");
    let contexts = ["--positions", "20", "--delta", "8", "--max", "24", "--r", "1"];
    let group = ["--json", "eval", "recl", "--models", &early, &late, "--labels", "early", "late"];
    let found = [&group[..], &contexts, &["--corpus", &corpus, "--output", &lengths]].concat();
    let found = succeed(alone(&found));
    assert_eq!(found["contexts"].as_array().map(Vec::len), Some(3), "{found}");
    let perplexity = |model: usize| found["models"][model]["perplexity"][2].as_f64().unwrap();
    assert!(perplexity(1) < perplexity(0), "{found}");
}

/// Rows M14, M15, M22: what ranks share of an evaluation has the same bytes however many they are.
/// Rows M14, M15, M22.
#[test]
fn protocols_of_evaluation_give_the_same_bytes_over_ranks() {
    let place = Workplace::new();
    let layers = [
        "model.cell=lstm",
        "model.wiring=skip",
        "model.inter_layer_dropout=0.1",
        "model.cell_output_dropout=0",
    ];
    succeed(alone(&place.pretrain_lstm("run", &[&["train.steps=30"], &layers[..]].concat())));
    succeed(alone(&place.pretrain_lstm("other", &["train.steps=10"])));
    let weights = place.final_bytes("run");
    // What ranks share are passes, points of a grid, lanes and rows, however long these are.
    build_few(&place, 500);
    let (run, other) = (place.text("run"), place.text("other"));
    let [corpus, few] = ["corpus", "few"].map(|name| place.text(name));
    let model = ["--model", run.as_str(), "--corpus", &few];
    let both = ["--models", run.as_str(), &other, "--corpus", &few];
    let passes = ["--passes", "5", "--rates", "0.8", "--lanes", "3"];
    let statistics = ["--statistics-batches", "5", "--statistics-lanes", "3", "--epsilon", "0.001"];
    let grid = ["--grid", "lr=1e-4,1e-3", "decay=1e-3", "segment=16,32"];
    let krause = ["--mean", "tensors", "--older-scaling", "--temperature", "0.96"];
    let dropped = ["--passes", "3", "--rates", "0.6,1"];
    let searched = ["--rates", "0.6,1", "--exponent", "2", "--tokens", "300"];
    // What is shared is the same whichever the mean: commands that differ in that alone go by one number of ranks each.
    let commands: [(&[usize], &[&[&str]]); 9] = [
        (&[2, 4], &[&["--group", "1", "--temperature", "0.9", "--by-rows"], &model]),
        (&[2, 4], &[&["temperature", "--tokens", "500"], &model]),
        (&[4], &[&["monte-carlo"], &passes, &model]),
        (&[2], &[&["monte-carlo", "--mean", "geometric"], &passes, &model]),
        (&[2], &[&["monte-carlo", "--mean", "power"], &passes[..2], &searched, &model]),
        (&[2, 4], &[&["dynamic", "--gradient", "sum"], &statistics, &grid, &model]),
        (&[2], &[&["dynamic"], &krause, &dropped, &statistics, &model]),
        (&[2, 4], &[&["recovery", "--fraction", "0.2"], &both]),
        (&[2, 4], &[&["gates"], &model]),
    ];
    for (numbers, words) in commands {
        let words = [&["--json", "eval"], &words.concat()[..]].concat();
        let one = finish(alone(&words));
        assert!(one.status.success(), "{words:?}: {}", stderr(&one));
        for &ranks in numbers {
            let shared = finish(mpirun(ranks, &words));
            assert!(shared.status.success(), "{words:?}: {}", stderr(&shared));
            assert_eq!(
                String::from_utf8_lossy(&shared.stdout),
                String::from_utf8_lossy(&one.stdout),
                "{words:?} on {ranks} ranks"
            );
        }
    }
    assert!(place.final_bytes("run") == weights);
    searches_take_the_best_of_their_grids(&model);
    let model = ["--model", run.as_str(), "--corpus", &corpus];
    let both = ["--models", run.as_str(), &other, "--corpus", &corpus];
    let refused = |words: &[&str], says: &[&str]| fail(alone(&[&["eval"], words, &model].concat()), 64, says);
    refused(&["monte-carlo", "--rates", "1.5"], &["--rates 1.5", "hint"]);
    refused(&["monte-carlo", "--mean", "power", "--exponent", "0"], &["--exponent", "geometric"]);
    refused(&["monte-carlo", "--exponent", "2"], &["--exponent", "--mean power"]);
    refused(&["monte-carlo", "--tokens", "300"], &["--tokens", "--rates"]);
    refused(&["dynamic", "--passes", "2", "--rates", "0.5,1.5"], &["--rates 1.5", "hint"]);
    refused(&["dynamic", "--passes", "0", "--rates", "0.6,1"], &["--rates", "--passes"]);
    refused(&["dynamic", "--older-scaling"], &["--older-scaling", "--mean tensors"]);
    refused(&["dynamic", "--grid", "lr=fast"], &["lr=fast", "`fast`", "hint"]);
    refused(&["dynamic", "--rule", "sgd", "--grid", "epsilon=1"], &["epsilon", "rms"]);
    fail(alone(&[&["eval", "recovery", "--fraction", "0"], &both[..]].concat()), 64, &["--fraction"]);
}

/// A corpus `few` of short splits, to test on `length` bytes.
fn build_few(place: &Workplace, length: usize) {
    std::fs::write(place.path("valid.txt"), text(600, 2)).unwrap();
    std::fs::write(place.path("test.txt"), text(length, 3)).unwrap();
    let test = place.text("test.txt");
    place.build("few", &["--preset", "documents", "--tokenizer-kind", "byte", "--test", &test]);
}

/// Row M14: of the grid of temperatures, and of the rates and exponents that are given, the least loss on the valid split decides, and a split
/// is evaluated by it as if it had been given alone.
fn searches_take_the_best_of_their_grids(model: &[&str]) {
    let eval = |words: &[&str]| succeed(alone(&[&["--json", "eval"], words, model].concat()));
    let least = |tried: &Value| {
        let losses: Vec<f64> =
            tried.as_array().unwrap().iter().map(|point| point["loss"].as_f64().unwrap()).collect();
        let place = (0..losses.len()).min_by(|a, b| losses[*a].total_cmp(&losses[*b])).unwrap();
        (losses.len(), tried[place].clone())
    };
    let found = eval(&["temperature", "--tokens", "300"]);
    let (points, best) = least(&found["tried"]);
    assert_eq!((points, &found["temperature"]), (14, &best["temperature"]));
    // A search that stops early tries the beginning of the grid.
    let few = eval(&["temperature", "--tokens", "300", "--stop-early"]);
    let [whole, few] = [&found, &few].map(|found| found["tried"].as_array().unwrap());
    assert!(few.len() > 2 && whole.starts_with(few), "{few:?}");
    let passes = ["monte-carlo", "--passes", "2", "--mean", "power"];
    let several = ["--split", "test", "--tokens", "0", "--rates", "0.6,1", "--exponent", "0.5,2"];
    let found = eval(&[&passes[..], &several].concat());
    let (points, best) = least(&found["tried"]);
    assert_eq!(points, 4);
    assert_eq!([&found["rates"], &found["exponent"]], [&best["rates"], &best["exponent"]]);
    let [rates, exponent] = ["rates", "exponent"].map(|key| best[key].to_string());
    let single = |split: &str| {
        eval(&[&passes[..], &["--split", split, "--rates", &rates, "--exponent", &exponent]].concat())
    };
    let [valid, test] = ["valid", "test"].map(single);
    assert_eq!((&valid["passes"][1]["loss"], &test["passes"]), (&best["loss"], &found["passes"]));
    assert_ne!(valid["passes"], test["passes"]);
    assert!(test.get("tried").is_none(), "{test}");
}

/// Row M15: of several rates of passes that adapt the best on the valid split evaluates, as if it had been given alone.
/// Row M15.
#[test]
fn passes_that_adapt_take_the_best_of_several_rates() {
    let place = Workplace::new();
    build_few(&place, 60);
    let dropped = ["train.steps=10", "model.input_dropout=0.5"];
    succeed(alone(&place.pretrain_lstm("run", &dropped)));
    let [run, corpus] = ["run", "few"].map(|name| place.text(name));
    let model = ["--model", run.as_str(), "--corpus", &corpus, "--statistics-batches", "2"];
    let eval = |split: &str, rates: &str, more: &[&str]| {
        let words = ["--json", "eval", "dynamic", "--split", split, "--passes", "2", "--rates", rates];
        succeed(alone(&[&words[..], &model, more].concat()))
    };
    let found = eval("test", "1,0.1", &[]);
    let losses = [0, 1].map(|place| found["tried"][place]["loss"].as_f64().unwrap());
    assert!(losses[1] < losses[0] && found["rates"] == 0.1, "{found}");
    let of_valid = |rates: &str| eval("valid", rates, &[])["passes"][1]["loss"].as_f64().unwrap();
    assert_eq!(["1", "0.1"].map(of_valid), losses);
    // On the valid split itself the passes are those of the search, as numbers.
    let on_valid = eval("valid", "1,0.1", &[]);
    assert_eq!(
        (&on_valid["rates"], &on_valid["passes"]),
        (&found["rates"], &eval("valid", "0.1", &[])["passes"])
    );
    let single = eval("test", "0.1", &[]);
    assert_eq!((&single["passes"], &single["rates"]), (&found["passes"], &found["rates"]));
    assert!(single.get("tried").is_none() && single["passes"][1]["loss"] != losses[1], "{single}");
    // Weights that diverge with each, on a text that is longer than a segment: the first is taken, and what else was found is told.
    let wild = eval("test", "1,0.1", &["--rule", "sgd", "--lr", "1e30"]);
    let tried = wild["tried"].as_array().unwrap();
    assert!(tried.len() == 2 && tried.iter().all(|point| point["loss"].is_null()), "{wild}");
    assert!(wild["rates"] == 1.0 && wild["dynamic"]["loss"].is_f64(), "{wild}");
}

#[test]
fn a_recurrent_model_refuses_what_it_cannot_do() {
    let place = Workplace::new();
    let refused =
        |option: &str, words: &[&str]| fail(alone(&place.pretrain_lstm("run", &[option])), 78, words);
    refused("train.recompute=true", &["train.recompute", "does not read it"]);
    refused("model.input_embedding_ratio=0.5", &["model.input_embedding_ratio", "residual"]);
    refused("model.cell=gru", &["model.state_dropout", "no state beside its output"]);
    refused("data.order=pairs", &["data.order", "streams"]);
    refused("data.line_jitter=5", &["data.line_jitter", "lines"]);
    let run = place.text("run");
    let corpus = place.text("corpus");
    succeed(alone(&place.pretrain_lstm("run", &["train.steps=2"])));
    let asked = |words: &[&str], says: &[&str]| {
        let corpus: &[&str] = if words[0] == "speed" { &[] } else { &["--corpus", &corpus] };
        fail(alone(&[&["eval"], words, &["--model", &run], corpus].concat()), 64, says)
    };
    asked(&["--same-length"], &["attention, which this model has not"]);
    asked(&["speed"], &["attention, which this model has not"]);
    refused("model.cutoffs=[9,9]", &["model.cutoffs", "must rise"]);
    refused("objective.samples=0", &["objective.samples"]);
    refused("adversarial.scale=-1", &["adversarial.scale"]);
    refused("adversarial.warmup=3", &["adversarial.warmup", "needs adversarial.scale above 0"]);
    refused("train.ext_len=8", &["train.ext_len", "cannot go back"]);
    refused("train.at_document_end=mask", &["train.at_document_end", "carry and reset"]);
    refused("eval.same_length=true", &["eval.same_length", "no attention"]);
    refused("model.parameters=100", &["model.parameters", "narrowest"]);
    refused("model.d_last=16", &["model.d_last", "model.wiring = \"stack\""]);
    refused("model.cell=qrnn", &["model.mogrifier_rounds", "sees its state"]);
    refused("objective.slowness_penalty=-1", &["objective.slowness_penalty"]);
}
