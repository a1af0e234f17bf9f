//! A loss that is no sum over examples.

use super::*;

const MATCHING: f64 = 0.75;

#[test]
fn a_loss_within_groups_has_the_same_bytes_at_any_number_of_ranks_and_after_any_stop() {
    let matching = format!("model.matching={MATCHING}");
    let ends = ["train.group=0", "train.group=4"].map(|group| {
        let files = assert_exact(&[&matching, group], 0);
        files["checkpoints/step-00000014/model.safetensors"].clone()
    });
    // The size of a group decides.
    assert!(ends[0] != ends[1]);
}

/// ν/2 Σ n |m − m'|², coordinate by coordinate in double precision.
fn mismatch(data: &[Vec<f64>], made: &[Vec<f64>], group: usize) -> f64 {
    let mean = |of: &[Vec<f64>], i: usize| of.iter().map(|x| x[i]).sum::<f64>() / group as f64;
    let groups = data.chunks(group).zip(made.chunks(group));
    let squares =
        groups.flat_map(|(data, made)| (0..3).map(move |i| (mean(data, i) - mean(made, i)).powi(2)));
    MATCHING / 2.0 * group as f64 * squares.sum::<f64>()
}

fn rows(x: &Tensor) -> Vec<Vec<f64>> {
    let rows = x.detach().to_kind(tch::Kind::Double);
    (0..rows.size()[0]).map(|i| Vec::try_from(rows.get(i)).unwrap()).collect()
}

#[test]
fn the_generator_lowers_the_distance_of_means_within_each_group() {
    let config = |group: &str| {
        config(Path::new("unused"), &[&ONE_MICRO_STEP[..], &["model.matching=0.75", group]].concat())
    };
    for group in [1, 2, 4] {
        let config = config(&format!("train.group={group}"));
        let players = Players::new(&config.train, config.model.get::<MomentGameConfig>().unwrap());
        let turn = Turn { networks: vec![GENERATOR], source: GENERATOR, nth: 1 };
        let noise = || Noise::new(derive(1, Purpose::Dropout, &[1, 0]));
        let data = batch(1);
        let loss = players.loss(&turn, &data, 0, &(), &noise());
        let networks = players.networks();
        let (a, b) =
            (networks[GENERATOR].1.get("generator.weight"), networks[GENERATOR].1.get("generator.bias"));
        let made = noise().normal(&[4, 3]).matmul(&a.tr()) + b;
        let expected = mismatch(&rows(&data.get(0)), &rows(&made), group);
        let found = (&loss.objectives[0] - &loss.reported).double_value(&[]);
        // Sums of twelve products in single precision.
        assert!(
            (found - expected).abs() < 1e-5 * expected.max(1.0),
            "groups of {group}: {found}, {expected}"
        );
        assert_eq!(loss.weight, 4.0);
        // The critic has no part in it: with weights of 0 it finds no gap, and has no penalty.
        let turn = Turn { networks: vec![CRITIC], ..turn };
        let critic = players.loss(&turn, &data, 0, &(), &noise());
        assert_eq!(critic.objectives[0].double_value(&[]), 0.0);
    }
}
