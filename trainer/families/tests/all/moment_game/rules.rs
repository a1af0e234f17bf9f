//! Networks with update rules of their own.

use super::*;

/// Gradients of the one objective of a turn, as one backward pass of the same micro-step gives them.
fn gradients(engine: &Engine<Players>, config: &Config, step: u64, network: usize) -> Vec<f64> {
    let turn = Turn { networks: vec![network], source: network, nth: 1 };
    let noise = Noise::new(derive(config.train.seed, Purpose::Dropout, &[step, 0]));
    let objective = engine.learner.loss(&turn, &batch(step), 0, &(), &noise).objectives.remove(0);
    let leaves = engine.learner.networks()[network].1.tensors();
    leaves.iter().for_each(|leaf| _ = leaf.set_requires_grad(true));
    let gradients = Tensor::run_backward(&[objective], leaves, false, false);
    gradients
        .iter()
        .flat_map(|t| Vec::<f64>::try_from(t.reshape([-1]).to_kind(tch::Kind::Double)).unwrap())
        .collect()
}

/// Plain descent moves a weight by rate times gradient, whatever came before; Adam's first update by the rate.
#[test]
fn each_network_is_updated_by_the_rule_of_its_own_section() {
    let keys = ["optim.critic.kind=sgd", "optim.beta1=0.9"];
    let config = config(Path::new("unused"), &[&ONE_MICRO_STEP[..], &keys].concat());
    let mut engine = engine(&config, 2);
    for step in 1..=2 {
        let expected = gradients(&engine, &config, step, CRITIC);
        let before = weights(&engine.learner, CRITIC).concat();
        engine.step(step, &batch(step)).unwrap();
        let after = weights(&engine.learner, CRITIC).concat();
        assert!(expected.iter().any(|gradient| gradient.abs() > 0.1), "{expected:?}");
        for ((before, after), gradient) in before.iter().zip(after).zip(expected) {
            // Four vectors. Single precision, of values below 1.
            let moved = f64::from(after) - f64::from(*before);
            assert!((moved + 0.02 * gradient / 4.0).abs() < 1e-6, "step {step}: {moved}, {gradient}");
        }
    }
    let before = weights(&engine.learner, GENERATOR).concat();
    engine.step(3, &batch(3)).unwrap();
    let after = weights(&engine.learner, GENERATOR).concat();
    assert!(before.iter().zip(&after).all(|(a, b)| ((a - b).abs() - 0.01).abs() < 1e-6));
    let tables = [GENERATOR, CRITIC].map(|n| engine.networks[n].optimizer.tables().len());
    assert_eq!(tables, [2, 0]);
}

#[test]
fn rules_that_differ_have_the_same_bytes_at_any_number_of_ranks_and_after_any_stop() {
    let files = assert_exact(
        &["optim.critic.kind=sgd", "optim.generator.kind=rmsprop", "optim.generator.beta1=0"],
        2,
    );
    let moments = |file: &str| stored(&files, &format!("checkpoints/step-00000014/{file}")).len();
    assert_eq!((moments("optimizer.safetensors"), moments("critic.optimizer.safetensors")), (4, 0));
}
