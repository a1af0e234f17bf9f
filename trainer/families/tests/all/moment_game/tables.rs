//! The direction of power iteration, a table of the learner.

use super::*;

const LAST: &str = "checkpoints/step-00000014";

#[test]
fn tables_have_the_same_bytes_at_any_number_of_ranks_and_after_any_stop() {
    for critic_steps in [0, 2] {
        let files =
            assert_exact(&["model.spectral_bound=0.01", "train.check_replicas_every=1"], critic_steps);
        let [first, last] = ["checkpoints/step-00000003", LAST].map(|step| {
            let tables = stored(&files, &format!("{step}/tables.safetensors"));
            assert_eq!(tables.keys().collect::<Vec<_>>(), ["critic.direction"]);
            tables["critic.direction"].shallow_clone()
        });
        // They are no constants, and belong to the model.
        assert!(!first.equal(&last));
        assert!(files.contains_key("best/tables.safetensors"));
    }
}

#[test]
fn a_run_without_tables_has_no_file_of_them() {
    let dir = tempfile::tempdir().unwrap();
    play(&short(dir.path(), AVERAGES[0]), 2, &Local, false);
    let files = files(dir.path());
    assert!(files.keys().all(|name| !name.contains("tables")), "{:?}", files.keys());
}

#[test]
fn a_checkpoint_with_other_tables_than_the_models_is_refused() {
    let allow = r#"recovery.allow_change=["model.spectral_bound"]"#;
    for (then, now, says) in [
        ("0", "0.5", "it has no tables.safetensors, and the model keeps a table `critic.direction`"),
        ("0.5", "0", "the model keeps no table `critic.direction`"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let load = |bound: &str, steps: &str| {
            let bound = format!("model.spectral_bound={bound}");
            config(dir.path(), &[&SHORT[..], &["average.start=0", &bound, steps, allow]].concat())
        };
        play(&load(then, "train.steps=3"), 2, &Local, false);
        let config = load(now, "train.steps=4");
        let job = (segue_family::of(&config.model).open)(&mut config.clone()).unwrap();
        let trained = job.train(&config, segue_kernels::Compute::CPU, &Local, &|| false, &mut |_| {});
        let error = trained.unwrap_err();
        assert!(error.to_string().contains(says) && error.exit_code() == 78, "{error}");
    }
}

/// What begins with another run's weights begins with its tables.
#[test]
fn tables_go_with_weights_that_a_run_begins_with() {
    let [first, second] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let bound = "model.spectral_bound=0.01";
    play(&config(first.path(), &[&SHORT[..], &["average.start=0", bound]].concat()), 2, &Local, false);
    let from = format!("train.init_from={}", first.path().join("checkpoints/latest").display());
    // A turn of the generator alone would leave the direction, and a rate next to nothing leaves V: the direction makes one more step.
    let keys = [
        "optim.generator.lr=1e-30",
        "optim.critic.lr=1e-30",
        "average.start=0",
        "train.steps=1",
        bound,
        &from,
    ];
    play(&config(second.path(), &[&SHORT[..], &keys].concat()), 2, &Local, false);
    let (first, second) = (files(first.path()), files(second.path()));
    let direction = |files, step: &str| {
        stored(files, &format!("checkpoints/{step}/tables.safetensors"))["critic.direction"]
            .to_kind(tch::Kind::Double)
    };
    let quadratic = stored(&first, "checkpoints/step-00000014/critic.safetensors")["critic.quadratic"]
        .to_kind(tch::Kind::Double);
    let turned = quadratic.tr().mv(&quadratic.mv(&direction(&first, "step-00000014")));
    let expected = &turned / turned.norm();
    let off = (expected - direction(&second, "step-00000001")).abs().max().double_value(&[]);
    // Single precision, of values of size 1.
    assert!(off < 1e-6, "{off}");
}
