//! Networks that take turns.

use segue_cost::*;
use segue_family::cost;

use super::config;

const GAME: [&str; 5] = [
    "model.model_type=moment-game",
    "model.size=3",
    "train.lanes=16",
    "train.micro_batch=4",
    "train.steps=10",
];

fn game(keys: &[&str]) -> Cost {
    cost(&config(&[&GAME[..], keys].concat()), 1).unwrap()
}

/// A has 9 values and b 3, V 9 and u 3. Of two turns of the critic and one of the generator, ten steps have seven of the critic and three of the other.
#[test]
fn each_network_has_its_parameters_its_optimizer_and_its_updates() {
    let found = game(&["model.critic_steps=2", "optim.critic.kind=sgd"]);
    let network = |name, optimizer, updates| NetworkCost { name, parameters: 12, optimizer, updates };
    assert_eq!(found.networks, [network("generator", 2 * 12 * 4, 3), network("critic", 0, 7)]);
    assert_eq!(found.parameters, 24);
    let memory = found.memory_per_rank;
    // Four micro-steps: sums of 1, 2 and 4, of both networks.
    assert_eq!((memory.weights, memory.gradients, memory.optimizer), (96, 3 * 96, 96));
    assert_eq!(found.checkpoint.disk, 96 + 96);
    let at_once = game(&["model.critic_steps=0"]);
    assert_eq!(at_once.networks.iter().map(|network| network.updates).collect::<Vec<_>>(), [10, 10]);
    assert_eq!(at_once.memory_per_rank.optimizer, 2 * 96);
    // One network has nothing apart.
    assert!(cost(&config(&["model.vocab_size=100"]), 1).unwrap().networks.is_empty());
}

/// Three products of 2 · 9 operations a vector: one with A and two with V. Training takes three times as many, but for the product with A in the
/// critic's turn, which takes one.
#[test]
fn operations_are_those_of_the_turns_of_a_cycle() {
    let (generators, critics) = (3.0 * 54.0, 3.0 * 36.0 + 18.0);
    for (critic_steps, expected) in
        [(0, generators), (1, (generators + critics) / 2.0), (5, (generators + 5.0 * critics) / 6.0)]
    {
        let found = game(&[&format!("model.critic_steps={critic_steps}")]);
        let training = found.training_flops_per_token;
        assert!((training.least - expected).abs() < 1e-9 && training.least == training.most, "{training:?}");
        assert_eq!(found.forward_flops_per_token.least, 54.0);
    }
}

/// A step of a turn moves, adds up and updates what that turn trains, and no more: here half of all.
#[test]
fn a_plan_adds_up_the_turns() {
    let plan = |critic_steps: &str| {
        let config = config(&[&GAME[..], &[critic_steps]].concat());
        let machine = segue_configs::Machine::load("dgx-a100").unwrap();
        let work = segue_family::work(&config).unwrap();
        Plan::new(config, &work, &machine, 2, &Choices::default()).unwrap()
    };
    let (at_once, turns, more) =
        (plan("model.critic_steps=0"), plan("model.critic_steps=2"), plan("model.critic_steps=20"));
    assert!((at_once.parts.update - 2.0 * turns.parts.update).abs() < 1e-9 * at_once.parts.update);
    assert!(turns.parts.communication_total < at_once.parts.communication_total);
    // The critic's turns leave out what the generator's backward would take.
    assert!(more.parts.products < turns.parts.products && turns.parts.products < at_once.parts.products);
    assert_eq!((turns.memory.weights, turns.memory.moments), (96.0, 192.0));
    let sum: f64 = turns.parts.parts().iter().map(|(_, seconds)| seconds).sum();
    assert_eq!(turns.step_s, sum);
}
