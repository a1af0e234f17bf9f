//! Schedules and averages that count the updates of their network.

use super::*;

/// Nine steps in rounds of two turns of the critic and one of the generator. Gives the weights of both networks after each.
fn nine_steps(engine: &mut Engine<Players>) -> Vec<[Vec<f32>; 2]> {
    let mut after = Vec::new();
    for step in 1..=9 {
        engine.step(step, &batch(step)).unwrap();
        after.push([GENERATOR, CRITIC].map(|n| weights(&engine.learner, n).concat()));
    }
    after
}

#[test]
fn a_schedule_counts_the_updates_of_its_network_where_it_is_told_to() {
    let keys = [
        "schedule.kind=linear",
        "schedule.end=last_step",
        "schedule.warmup=2",
        "schedule.steps=8",
        "schedule.critic.of=network",
    ];
    let config = config(Path::new("unused"), &[&ONE_MICRO_STEP[..], &keys].concat());
    let mut engine = engine(&config, 2);
    let rates: Vec<f64> = (1..=9).map(|step| engine.step(step, &batch(step)).unwrap().lr).collect();
    // The critic's peak is 0.02, and its updates 1 to 6 rise to it in two and fall from it in six. The generator's is 0.01, and its turns are
    // steps 3, 6 and 9 of a schedule that ends with step 8.
    let (critic, generator) =
        ([0.5, 1.0, 5.0 / 6.0, 4.0 / 6.0, 3.0 / 6.0, 2.0 / 6.0], [5.0 / 6.0, 2.0 / 6.0, 0.0]);
    let [c, g] = [critic.map(|share| 0.02 * share).to_vec(), generator.map(|share| 0.01 * share).to_vec()];
    let expected = [c[0], c[1], g[0], c[2], c[3], g[1], c[4], c[5], g[2]];
    assert!(rates.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-15), "{rates:?}");
}

#[test]
fn an_average_of_a_network_is_over_its_own_updates() {
    let keys = ["average.of=network", "average.start=2"];
    let config = config(Path::new("unused"), &[&ONE_MICRO_STEP[..], &keys].concat());
    let mut engine = engine(&config, 2);
    let after = nine_steps(&mut engine);
    // What comes after their second updates: of the generator step 9, of the critic steps 4, 5, 7 and 8.
    for (n, steps) in [(GENERATOR, &[9][..]), (CRITIC, &[4, 5, 7, 8])] {
        let averaging = &engine.networks[n].averaging;
        assert_eq!(averaging.candidates()[0].length, steps.len() as u64);
        let found =
            averaging.chosen().unwrap().iter().flat_map(|t| Vec::<f32>::try_from(t.reshape([-1])).unwrap());
        for (i, found) in found.enumerate() {
            let sum: f64 = steps.iter().map(|step: &usize| f64::from(after[step - 1][n][i])).sum();
            // Three additions in single precision of values near 1.
            assert!((f64::from(found) - sum / steps.len() as f64).abs() < 1e-6, "network {n}");
        }
    }
    // An evaluation does not take them for averages that have lost each other.
    engine.evaluate(9, true, |_| Ok(Some(measures(1.0)))).unwrap();
    let lengths = [GENERATOR, CRITIC].map(|n| engine.networks[n].averaging.candidates()[0].length);
    assert_eq!(lengths, [1, 4]);
}

#[test]
fn what_counts_updates_has_the_same_bytes_at_any_number_of_ranks_and_after_any_stop() {
    let keys = ["average.of=network", "average.start=3", "schedule.of=network", "schedule.warmup=5"];
    let files = assert_exact(&keys, 2);
    // Of 14 steps the generator makes four, and its average begins with the last.
    for (file, begun) in [("training_weights", true), ("critic.training_weights", true)] {
        let name = format!("checkpoints/step-00000014/{file}.safetensors");
        assert_eq!(files.contains_key(&name), begun, "{name}");
    }
    assert!(!files.contains_key("checkpoints/step-00000009/training_weights.safetensors"));
    assert!(files.contains_key("checkpoints/step-00000009/critic.training_weights.safetensors"));
    for keys in
        [&["average.kind=exponential", "average.start=0"][..], &["average.every=2", "average.repeat_every=3"]]
    {
        assert_exact(&[keys, &["average.of=network"]].concat(), 2);
    }
}
