//! Gradients that overflow under the scale of their loss.

use std::cell::RefCell;

use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_engine::Event;
use serde_json::json;

use super::walk::{STEPS, config, end, folder, state, walk};

/// 2^200 overflows in single precision, and 2^50 does not: the first step is left out, and after three others the next one.
const SCALED: [&str; 5] = [
    "loss_scale.kind=dynamic",
    "loss_scale.init=1.6069380442589903e60",
    "loss_scale.backoff=7.006492321624085e-46",
    "loss_scale.growth=1.42724769270596e45",
    "loss_scale.interval=3",
];
const LEFT_OUT: [u64; 5] = [1, 5, 9, 13, 17];

#[test]
fn an_overflow_leaves_the_update_out_and_the_scale_follows() {
    let run = folder();
    let config = config(run.path(), &SCALED);
    let (mut left_out, mut scales) = (Vec::new(), Vec::new());
    walk(&config, &[], &Local, &|| false, &mut |event| match event {
        Event::Overflowed { step, scale } => left_out.push((step, scale)),
        Event::Step { report, .. } => scales.push(report.scaled.unwrap()),
        Event::Warning { what } => panic!("{what}"),
        _ => {}
    })
    .unwrap();
    let [large, small] = [200.0, 50.0].map(f64::exp2);
    assert_eq!(left_out, LEFT_OUT.map(|step| (step, large)));
    for (scaled, step) in scales.iter().zip(1..) {
        let overflows = LEFT_OUT.contains(&step);
        assert_eq!(
            (scaled.scale, scaled.overflowed),
            (if overflows { large } else { small }, overflows),
            "step {step}"
        );
    }
    let state = state(run.path(), STEPS);
    assert_eq!(state["loss_scale"], json!({ "scale": large, "steps": 0, "skipped": 5 }));
    assert_eq!(state["networks"]["model"]["updates"], json!(STEPS - 5));
    // That is no failure: nothing was recovered from, no batch was left out.
    assert_eq!((&state["recoveries"], &state["left_out"]), (&json!(0), &json!(null)));
    assert_eq!(state["tokens"], json!(4 * STEPS));
}

#[test]
fn a_run_that_overflows_ends_with_the_same_bytes_however_it_was_stopped_and_divided() {
    let expected = end(folder().path(), &SCALED, &[], 1);
    assert!(end(folder().path(), &[], &[], 1) != expected);
    for ranks in [2, 4] {
        for shard in ["none", "optimizer", "gradients"] {
            let shard = format!("train.shard={shard}");
            let keys = [&SCALED[..], &[&shard]].concat();
            assert!(end(folder().path(), &keys, &[], ranks) == expected, "{ranks} ranks, {shard}");
        }
    }
    for at in 1..STEPS {
        let run = folder();
        let stop = format!("train.stop_at={at}");
        let part = config(run.path(), &[&SCALED[..], &[&stop]].concat());
        walk(&part, &[], &Local, &|| false, &mut |_| {}).unwrap();
        assert!(end(run.path(), &SCALED, &[], 2) == expected, "{at}");
        assert_eq!(state(run.path(), STEPS)["loss_scale"]["skipped"], json!(5), "{at}");
    }
}

#[test]
fn lamb_leaves_the_same_updates_out() {
    let keys = [&SCALED[..], &["optim.kind=lamb"]].concat();
    let run = folder();
    let expected = end(run.path(), &keys, &[], 1);
    assert_eq!(state(run.path(), STEPS)["networks"]["model"]["updates"], json!(STEPS - 5));
    assert!(end(folder().path(), &keys, &[], 4) == expected);
}

#[test]
fn an_overflow_under_the_smallest_scale_is_a_failure() {
    let floor = SCALED[1].replace("init", "floor");
    let keys = [&SCALED[..], &[floor.as_str()]].concat();
    for ranks in [1, 2] {
        let run = folder();
        let config = config(run.path(), &keys);
        let errors =
            simulated::run(ranks, |comm| walk(&config, &[], comm, &|| false, &mut |_| {}).unwrap_err());
        assert!(errors.iter().all(|error| error.exit_code() == 80), "{errors:?}");
    }
    // What `[recovery]` says then holds for each of them.
    let (run, warnings) = (folder(), RefCell::new(0));
    let config =
        config(run.path(), &[&keys[..], &["recovery.non_finite=skip", "recovery.at_most=100"]].concat());
    walk(&config, &[], &Local, &|| false, &mut |event| match event {
        Event::Warning { .. } => *warnings.borrow_mut() += 1,
        Event::Overflowed { step, .. } => panic!("step {step}"),
        _ => {}
    })
    .unwrap();
    assert_eq!((warnings.into_inner(), &state(run.path(), STEPS)["left_out"]), (STEPS, &json!([[1, STEPS]])));
}

#[test]
fn a_loss_that_is_no_number_is_not_blamed_on_the_scale() {
    let run = folder();
    let keys = ["loss_scale.kind=dynamic", "recovery.non_finite=skip"];
    let unscaled = end(folder().path(), &keys[1..], &[7], 1);
    // Nor does a scale that never overflows change anything.
    assert!(end(run.path(), &keys, &[7], 2) == unscaled);
    let state = state(run.path(), STEPS);
    assert_eq!((&state["left_out"], &state["loss_scale"]["skipped"]), (&json!([[7, 7]]), &json!(0)));
}
