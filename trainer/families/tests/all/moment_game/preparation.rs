//! What a run does before its first step.

use super::*;

/// Next to no learning.
const STILL: [&str; 2] = ["optim.generator.lr=1e-30", "optim.critic.lr=1e-30"];

#[test]
fn a_prepared_run_has_the_same_bytes_at_any_number_of_ranks_and_after_any_stop() {
    for critic_steps in [0, 2] {
        assert_exact(&["model.prepared=true"], critic_steps);
    }
}

/// Mean and standard deviation of each coordinate, by two passes over the vectors in double precision.
fn moments_of_first_batch(lanes: usize, seed: u64) -> Vec<(f64, f64)> {
    let mut reader =
        VectorReader { config: MomentGameConfig::default(), seed, source: GENERATOR, lanes: 0..lanes };
    let batch = reader.read(1).unwrap();
    let of = |i: usize| {
        let values = || batch.iter().skip(i).step_by(3).map(|x| f64::from(*x));
        let mean = values().sum::<f64>() / lanes as f64;
        (mean, (values().map(|x| (x - mean).powi(2)).sum::<f64>() / lanes as f64).sqrt())
    };
    (0..3).map(of).collect()
}

#[test]
fn the_generator_begins_with_the_moments_of_the_first_batch() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["model.prepared=true", "average.start=0", "train.steps=1"];
    let config = config(dir.path(), &[&SHORT[..], &STILL, &keys].concat());
    play(&config, 2, &Local, false);
    let weights = stored(&files(dir.path()), "checkpoints/step-00000001/model.safetensors");
    let (bias, weight) = (&weights["generator.bias"], &weights["generator.weight"]);
    for (i, (mean, spread)) in
        moments_of_first_batch(config.train.lanes, config.train.seed).into_iter().enumerate()
    {
        let i = i as i64;
        // Rounded to single precision at the end.
        assert!((bias.double_value(&[i]) - mean).abs() < 1e-7, "{mean}");
        for j in 0..3 {
            let expected = if i == j { spread } else { 0.0 };
            assert!((weight.double_value(&[i, j]) - expected).abs() < 1e-7, "{spread}");
        }
    }
}

#[test]
fn weights_of_another_run_are_not_prepared_anew() {
    let [first, second] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let prepared = ["average.start=0", "model.prepared=true"];
    play(&config(first.path(), &[&SHORT[..], &prepared].concat()), 2, &Local, false);
    let from = format!("train.init_from={}", first.path().join("checkpoints/latest").display());
    play(
        &config(second.path(), &[&SHORT[..], &STILL, &prepared, &["train.steps=1", &from]].concat()),
        2,
        &Local,
        false,
    );
    let model = |run: &Path| std::fs::read(run.join("checkpoints/latest/model.safetensors")).unwrap();
    assert!(model(first.path()) == model(second.path()));
}
