//! What decides by evaluations, in runs that leave steps out: weights that stand still are no sign that nothing better comes.

use std::cell::RefCell;
use std::path::Path;

use segue_collectives::local::Local;
use segue_configs::Config;
use segue_engine::{EarlyEnd, Event, KeepBest, Outcome, train};
use serde_json::json;

use super::walk::{STEPS, Walk, config, folder, scale, state, walk};

const EVERY_STEP: [&str; 4] = ["eval.every=1", "checkpoint.every=10", "average.start=0", "eval.patience=3"];

fn keys(dir: &Path, more: &[&str]) -> Config {
    config(dir, &[&EVERY_STEP[..], more].concat())
}

/// Trains where weights that have not been `seen` are better than all before. Gives the steps that were evaluated.
fn go(config: &Config, poisoned: &[u64], seen: &RefCell<Vec<f64>>) -> (Outcome, Vec<u64>) {
    let mut evaluated = Vec::new();
    let lead = |w: f64| {
        let mut seen = seen.borrow_mut();
        if !seen.contains(&w) {
            seen.push(w);
        }
        -(seen.iter().position(|other| *other == w).unwrap() as f64)
    };
    let family = Walk { poisoned, lead: &lead, keeps_best: Some(KeepBest::of(&config.eval)) };
    let outcome = train(config, family, scale(), &Local, &|| false, &mut |event| {
        if let Event::Evaluated { step, .. } = event {
            evaluated.push(step);
        }
    });
    (outcome.unwrap(), evaluated)
}

/// As of a language model without a validation split.
#[test]
fn a_best_model_is_not_asked_of_a_run_that_keeps_none() {
    for key in ["eval.patience=3", "checkpoint.best=true"] {
        let run = folder();
        let error = walk(&config(run.path(), &[key, "eval.every=5"]), &[], &Local, &|| false, &mut |_| {})
            .unwrap_err();
        assert_eq!(error.exit_code(), 78, "{error}");
        assert!(error.to_string().contains(key.split('=').next().unwrap()), "{error}");
    }
}

/// Each evaluation is better by 1 than the one before.
#[test]
fn improvements_that_are_too_small_use_up_patience_and_are_kept() {
    for (delta, last) in [("0", STEPS), ("1.5", STEPS), ("2.5", STEPS), ("3", 4)] {
        let run = folder();
        let key = format!("eval.min_delta={delta}");
        let (outcome, _) = go(&keys(run.path(), &[&key]), &[], &RefCell::default());
        let end = (last < STEPS).then_some(EarlyEnd::Patience(3));
        assert_eq!((outcome.step, outcome.stopped_early), (last, end), "{delta}");
        assert_eq!(outcome.best.unwrap().0, last, "{delta}");
    }
}

#[test]
fn steps_that_are_left_out_use_up_no_patience() {
    let by_hand = [r#"recovery.skip_steps=["11-19"]"#];
    for (policy, poisoned, last) in [(&["recovery.non_finite=roll_back"], &[19][..], 18), (&by_hand, &[], 10)]
    {
        let run = folder();
        let (outcome, evaluated) = go(&keys(run.path(), policy), poisoned, &RefCell::default());
        assert_eq!((outcome.step, outcome.stopped_early.is_some()), (STEPS, false), "{policy:?}");
        assert_eq!(evaluated, (1..=last).chain([STEPS]).collect::<Vec<_>>(), "{policy:?}");
        assert_eq!(state(run.path(), STEPS)["left_out"], json!([[11, 19]]));
        assert_eq!(state(run.path(), STEPS)["task"]["since_best"], 0);
    }
}

#[test]
fn steps_that_are_left_out_begin_no_average_and_drop_none() {
    for (policy, poisoned) in
        [("recovery.non_finite=roll_back", &[19][..]), (r#"recovery.skip_steps=["11-19"]"#, &[])]
    {
        let run = folder();
        go(
            &keys(run.path(), &[policy, "average.patience=3", "average.trigger=since_best"]),
            poisoned,
            &RefCell::default(),
        );
        assert_eq!(state(run.path(), STEPS)["average"]["count"], json!(null), "{policy}");
        let run = folder();
        go(
            &keys(run.path(), &[policy, "average.kind=two_tailed", "average.stagnation=3"]),
            poisoned,
            &RefCell::default(),
        );
        // All steps but those.
        assert_eq!(state(run.path(), STEPS)["average"]["long"]["count"], 11, "{policy}");
    }
}

/// The weights at its end are those of step 10. The longer run does not look at them again.
#[test]
fn a_run_that_ends_in_steps_that_are_left_out_and_is_made_longer_equals_a_long_one() {
    for average in ["average.patience=2", "average.kind=two_tailed"] {
        let seen = RefCell::default();
        let (long, grown) = (folder(), folder());
        let more = [r#"recovery.skip_steps=["11-18"]"#, average];
        go(&keys(long.path(), &more), &[], &seen);
        let mut config = keys(grown.path(), &more);
        config.train.steps = 15;
        assert_eq!(go(&config, &[], &seen).1, (1..=10).chain([15]).collect::<Vec<_>>());
        go(&keys(grown.path(), &more), &[], &seen);
        for key in ["average", "evaluated", "task"] {
            let [long, grown] = [&long, &grown].map(|run| state(run.path(), STEPS)[key].clone());
            assert_eq!(long, grown, "{average}, {key}");
        }
    }
}
