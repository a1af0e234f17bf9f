//! Runs that fine-tune in stages.

use std::cell::Cell;
use std::path::Path;

use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_engine::checkpoint::read_tensors;
use segue_engine::{Event, Outcome, train};
use serde_json::{Value, json};

use super::guard::damage;
use super::walk::{LANES, STEPS, Walk, config, folder, scale, state, tensors, walk};

/// The loss of each step. By the rule of one evaluation the mean begins after step 4. It stagnates at 8, where 7 is the best; the first round
/// at 12, where 10 is; and the second at 16, where 13 is, whose weights are no mean yet.
const LOSSES: [f64; 16] =
    [3.0, 2.0, 2.5, 2.4, 1.6, 1.5, 1.45, 1.8, 1.6, 1.3, 1.4, 1.35, 1.2, 1.25, 1.3, 1.28];
const KEYS: [&str; 6] = [
    "average.start=0",
    "average.patience=1",
    "average.fine_tuning=2",
    "average.fine_tuning_rate=1.25",
    "eval.every=1",
    "checkpoint.every=1",
];
/// The step that the run ends after.
const END: u64 = LOSSES.len() as u64;

/// Goes on from step `made`, as `more` keys say.
fn go(
    dir: &Path,
    made: u64,
    more: &[&str],
    comm: &dyn Communicator,
    on_event: &mut dyn FnMut(Event),
) -> Outcome {
    let evaluated = Cell::new(made as usize);
    let lead = |_| {
        evaluated.set(evaluated.get() + 1);
        LOSSES[evaluated.get() - 1]
    };
    let config = config(dir, &[&KEYS[..], more].concat());
    train(&config, Walk { poisoned: &[], lead: &lead, keeps_best: None }, scale(), comm, &|| false, on_event)
        .unwrap()
}

/// The one number of a file.
fn number(dir: &Path, file: &str) -> f32 {
    read_tensors(&dir.join(file)).unwrap().tensors["w"].double_value(&[0]) as f32
}

fn model(dir: &Path, step: u64) -> f32 {
    number(dir, &format!("checkpoints/step-{step:08}/model.safetensors"))
}

fn trained(dir: &Path, step: u64) -> f32 {
    let averaged = format!("checkpoints/step-{step:08}/training_weights.safetensors");
    if dir.join(&averaged).is_file() { number(dir, &averaged) } else { model(dir, step) }
}

/// The mean of two, as a running mean rounds it.
fn mean(a: f32, b: f32) -> f32 {
    a + (b - a) / 2.0
}

/// Rows A8 and S13: by one law the means that a trigger begins, and those of rounds, leave their first step out, or none does.
/// Rows S13, A8.
#[test]
fn the_first_step_is_in_the_mean_of_no_stage_or_of_every_one() {
    let run = folder();
    go(run.path(), 0, &["average.takes_first=true"], &Local, &mut |_| {});
    let dir = run.path();
    // From the trigger after step 4 on, then 5 and 6; in the round after step 8 likewise.
    assert_eq!((model(dir, 5), model(dir, 6)), (trained(dir, 5), mean(trained(dir, 5), trained(dir, 6))));
    assert_eq!(state(dir, 8)["fine_tuning"], json!({ "round": 1, "after": 8, "over": false }));
    assert_eq!((model(dir, 9), model(dir, 10)), (trained(dir, 9), mean(trained(dir, 9), trained(dir, 10))));
    // A checkpoint between the trigger and the first step of the mean goes on like a run without.
    let (whole, parts) = (folder(), folder());
    go(whole.path(), 0, &["train.stop_at=7"], &Local, &mut |_| {});
    for (made, stop) in [(0, "train.stop_at=4"), (4, "train.stop_at=5"), (5, "train.stop_at=7")] {
        go(parts.path(), made, &[stop], &Local, &mut |_| {});
    }
    assert!(tensors(whole.path(), 7) == tensors(parts.path(), 7));
    assert_eq!(state(parts.path(), 5)["average"], json!({ "count": 0, "after": 5, "losses": [] }));
}

/// Row A8: repeated averages, with the bytes of a run that ranks divide and stops interrupt.
/// Row A8.
#[test]
fn training_goes_on_from_repeated_averages() {
    let with = |dir: &Path, more: &[&str], comm: &dyn Communicator| {
        let keys = ["average.start=3", "eval.every=5", "checkpoint.every=1"];
        let config = config(dir, &[&keys[..], more].concat());
        walk(&config, &[], comm, &|| false, &mut |_| {}).unwrap();
    };
    let (once, repeated) = (folder(), folder());
    with(once.path(), &[], &Local);
    let keys = ["average.repeat_every=4"];
    with(repeated.path(), &keys, &Local);
    let (once, dir) = (once.path(), repeated.path());
    for step in 4..=6 {
        assert_eq!((model(dir, step), trained(dir, step)), (model(once, step), trained(once, step)));
    }
    // The mean of steps 4 to 7 is the model and what is trained; of the next step alone the next mean is.
    assert_ne!(model(once, 7), trained(once, 7));
    assert_eq!((model(dir, 7), trained(dir, 7)), (model(once, 7), model(once, 7)));
    assert_eq!(model(dir, 8), trained(dir, 8));
    assert_eq!(model(dir, 9), mean(trained(dir, 8), trained(dir, 9)));
    let moved = |dir: &Path| trained(dir, 8) - trained(dir, 7);
    assert!(moved(dir) != 0.0 && trained(dir, 8) != trained(once, 8));
    assert_eq!(state(dir, 11)["average"], json!({ "count": 0, "after": 11, "losses": [] }));
    let expected = tensors(dir, STEPS);
    for (ranks, shard) in [(2, "none"), (4, "optimizer")] {
        let run = folder();
        let shard = format!("train.shard={shard}");
        simulated::run(ranks, |comm| with(run.path(), &[keys[0], &shard], comm));
        assert!(tensors(run.path(), STEPS) == expected, "{ranks} ranks, {shard}");
    }
    for at in 3..STEPS {
        let run = folder();
        with(run.path(), &[keys[0], &format!("train.stop_at={at}")], &Local);
        with(run.path(), &keys, &Local);
        assert!(tensors(run.path(), STEPS) == expected, "stopped after {at}");
    }
}

/// Row S13.
#[test]
fn a_stage_ends_where_its_average_stagnates_and_the_best_average_is_fine_tuned() {
    let run = folder();
    let (mut rates, mut rows) = (vec![0.0; STEPS as usize + 1], Vec::<Value>::new());
    let outcome = go(run.path(), 0, &[], &Local, &mut |event| match event {
        Event::Step { report, .. } => rates[report.step as usize] = report.lr,
        Event::Evaluated { measures, .. } => rows.push(measures.row),
        _ => {}
    });
    assert!(outcome.stopped_early.is_some() && outcome.step == END, "{outcome:?}");
    let dir = run.path();
    // The mean of steps 6 and 7 by hand, which leaves step 5 out, and which the first round begins from; that of step 10 alone, which leaves
    // step 9 out; that of 10 and 11.
    assert_eq!((model(dir, 5), model(dir, 6)), (trained(dir, 5), trained(dir, 6)));
    assert_eq!(model(dir, 7), mean(trained(dir, 6), trained(dir, 7)));
    assert_ne!(model(dir, 7), trained(dir, 7));
    assert_eq!((trained(dir, 8), model(dir, 8)), (model(dir, 7), model(dir, 7)));
    assert_eq!((model(dir, 9), model(dir, 10)), (trained(dir, 9), trained(dir, 10)));
    assert_eq!(model(dir, 11), mean(trained(dir, 10), trained(dir, 11)));
    assert_eq!(trained(dir, 12), model(dir, 10));
    // What a stage came to stays, whatever becomes of its checkpoint.
    let stage = |n: u64| number(dir, &format!("stage-{n}/model.safetensors"));
    assert_eq!((stage(1), stage(2)), (model(dir, 7), model(dir, 10)));
    assert!(!dir.join("stage-3").exists());
    // Lanes are where the data stands, and carry nothing.
    let at = state(dir, 8);
    assert!(at["lanes"].as_array().unwrap().iter().all(|cursor| *cursor == 8));
    for lane in 0..LANES {
        let carry = dir.join(format!("checkpoints/step-00000008/carry-{lane:05}.safetensors"));
        assert!(read_tensors(&carry).unwrap().tensors["sum"].double_value(&[0]) == 0.0);
    }
    assert_eq!(at["fine_tuning"], json!({ "round": 1, "after": 8, "over": false }));
    assert_eq!(state(dir, END)["fine_tuning"], json!({ "round": 2, "after": 12, "over": true }));
    assert!(rates[1..=8].iter().all(|lr| *lr == 0.1) && rates[9..=16].iter().all(|lr| *lr == 0.1 * 1.25));
    // Row S27: each evaluation says which stage it is of, and the last of a stage what that came to.
    let named = |row: &Value| (row["stage"]["name"].clone(), row["stage"]["round"].clone());
    for (steps, name, round) in [
        (1..=5, "descent", 0),
        (6..=8, "averaging", 0),
        (9..=12, "fine_tuning", 1),
        (13..=16, "fine_tuning", 2),
    ] {
        for step in steps {
            assert_eq!(named(&rows[step - 1]), (json!(name), json!(round)), "step {step}");
        }
    }
    let ends: Vec<Value> = rows
        .iter()
        .filter(|row| row["stage"]["ended"] == true)
        .map(|row| row["stage"]["best"].clone())
        .collect();
    assert_eq!(ends, [json!(1.45), json!(1.3), json!(1.2)]);
}

/// Row S13.
#[test]
fn ranks_and_stops_change_no_byte_of_a_run_in_stages() {
    let run = folder();
    go(run.path(), 0, &[], &Local, &mut |_| {});
    let (expected, ended) = (tensors(run.path(), END), state(run.path(), END));
    let same = |dir: &Path, what: &str| {
        assert!(tensors(dir, END) == expected, "{what}");
        for key in ["average", "fine_tuning", "guard"] {
            assert_eq!(state(dir, END)[key], ended[key], "{what}");
        }
    };
    for (ranks, shard) in [(2, "none"), (4, "none"), (4, "optimizer")] {
        let run = folder();
        let shard = format!("train.shard={shard}");
        simulated::run(ranks, |comm| go(run.path(), 0, &[&shard], comm, &mut |_| {}));
        same(run.path(), &format!("{ranks} ranks, {shard}"));
    }
    // As few checkpoints as there may be: the best one has to stay.
    let few = ["checkpoint.keep=2", "checkpoint.every=4"];
    for at in 1..=END {
        let run = folder();
        let stop = format!("train.stop_at={at}");
        simulated::run(2, |comm| go(run.path(), 0, &[&few[..], &[&stop]].concat(), comm, &mut |_| {}));
        let outcome = go(run.path(), at, &few, &Local, &mut |_| {});
        assert!(outcome.stopped_early.is_some() && outcome.step == END, "{at}: {outcome:?}");
        same(run.path(), &format!("stopped after {at}"));
    }
}

/// Row S13.
#[test]
fn without_the_best_checkpoint_a_round_begins_from_the_average_before() {
    let intact = folder();
    go(intact.path(), 0, &["train.stop_at=12"], &Local, &mut |_| {});
    assert_eq!(trained(intact.path(), 12), model(intact.path(), 10));
    let remove = |dir: &Path, step| {
        std::fs::remove_dir_all(dir.join(format!("checkpoints/step-{step:08}"))).unwrap();
    };
    for (spoil, says) in [
        (&remove as &dyn Fn(&Path, u64), "the checkpoint of step 10 is not there"),
        (&damage, "the checkpoint of step 10 cannot be used"),
    ] {
        let run = folder();
        go(run.path(), 0, &["train.stop_at=11"], &Local, &mut |_| {});
        spoil(run.path(), 10);
        let mut warned = false;
        go(run.path(), 11, &["train.stop_at=12"], &Local, &mut |event| {
            if let Event::Warning { what } = event {
                warned |= what.contains(says);
            }
        });
        assert!(warned && state(run.path(), 12)["fine_tuning"]["round"] == 2, "{says}");
        assert_eq!(trained(run.path(), 12), model(run.path(), 9), "{says}");
    }
}
