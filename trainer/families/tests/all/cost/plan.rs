//! Plans on described machines.

use segue_configs::{Machine, Products, Shard};
use segue_cost::*;

use super::config;

const KEYS: [&str; 8] = [
    "model.vocab_size=32000",
    "model.n_layer=12",
    "model.d_model=512",
    "model.n_head=8",
    "model.d_inner=2048",
    "train.lanes=256",
    "train.micro_batch=8",
    "train.steps=100000",
];

fn plan(machine: &Machine, ranks: usize, choices: &Choices) -> Plan {
    let config = config(&KEYS);
    let work = segue_family::work(&config).unwrap();
    Plan::new(config, &work, machine, ranks, choices).unwrap()
}

fn a100() -> Machine {
    Machine::load("dgx-a100").unwrap()
}

fn bf16() -> Choices {
    Choices::of(Products::BF16)
}

#[test]
fn one_rank_has_no_communication() {
    let alone = plan(&a100(), 1, &bf16());
    assert_eq!((alone.parts.communication, alone.parts.communication_total), (0.0, 0.0));
    assert_eq!((alone.nodes, alone.micro_steps), (1, 32));
    assert_eq!(alone.efficiency_against(&alone), 1.0);
    let sum: f64 = alone.parts.parts().iter().map(|(_, seconds)| seconds).sum();
    assert_eq!(alone.step_s, sum);
}

#[test]
fn more_ranks_share_the_work_and_pay_for_it_in_communication() {
    let (one, eight, two_nodes) =
        (plan(&a100(), 1, &bf16()), plan(&a100(), 8, &bf16()), plan(&a100(), 16, &bf16()));
    assert!((eight.parts.products - one.parts.products / 8.0).abs() < 1e-12);
    assert!(eight.parts.communication <= eight.parts.communication_total);
    assert!(two_nodes.parts.communication_total > eight.parts.communication_total);
    assert!(two_nodes.efficiency_against(&one) < eight.efficiency_against(&one));
    assert_eq!((two_nodes.nodes, two_nodes.price > 0.0), (2, true));
}

#[test]
fn more_of_anything_is_never_slower() {
    let base = plan(&a100(), 16, &bf16());
    type Change = fn(&mut Machine);
    let changes: [Change; 6] = [
        |m| m.bandwidth.inside *= 2.0,
        |m| m.bandwidth.between *= 2.0,
        |m| m.bandwidth.memory *= 2.0,
        |m| m.bandwidth.host *= 2.0,
        |m| m.bandwidth.disk *= 2.0,
        |m| m.peak.bf16 = m.peak.bf16.map(|peak| peak * 2.0),
    ];
    for (nth, change) in changes.iter().enumerate() {
        let mut machine = a100();
        change(&mut machine);
        let better = plan(&machine, 16, &bf16());
        assert!(better.step_s <= base.step_s, "{nth}");
        assert!(better.best.expected <= base.best.expected, "{nth}");
    }
}

#[test]
fn checkpoints_by_the_clock_count_as_those_of_the_step() {
    let steps = |more: &[&str]| {
        let config = config(&[&KEYS[..], more].concat());
        steps_between_checkpoints(config.train.steps, &config.checkpoint, 2.0)
    };
    assert_eq!(steps(&["checkpoint.every=0"]), 100_000.0);
    assert_eq!(steps(&["checkpoint.every=0", "checkpoint.minutes=10"]), 300.0);
    assert_eq!(steps(&["checkpoint.every=200", "checkpoint.minutes=10"]), 200.0);
    assert_eq!(steps(&["checkpoint.minutes=0.01"]), 1.0);
}

#[test]
fn a_processor_hides_no_communication() {
    let host = Machine::load("two-core-xeon").unwrap();
    let two = plan(&host, 2, &Choices::default());
    assert_eq!(two.parts.communication, two.parts.communication_total);
    assert!(two.parts.communication > 0.0);
}

#[test]
fn recomputation_takes_a_forward_pass_more_and_sharding_updates_a_part() {
    let plain = plan(&a100(), 8, &bf16());
    let again = plan(&a100(), 8, &Choices { recompute: true, ..bf16() });
    assert!((again.parts.products / plain.parts.products - 4.0 / 3.0).abs() < 1e-9);
    assert_eq!(again.parts.softmax, plain.parts.softmax);
    assert_eq!(again.mfu < plain.mfu, again.step_s > plain.step_s);
    // Attention's matrices in memory take longer, of all parts that of attention alone.
    let stored = plan(&a100(), 8, &Choices { one_pass: false, ..bf16() });
    assert!(stored.parts.attention > 1.5 * plain.parts.attention);
    assert_eq!(stored.parts.products, plain.parts.products);
    let shared = plan(&a100(), 8, &Choices { shard: Shard::Optimizer, ..bf16() });
    assert!((shared.parts.update - plain.parts.update / 8.0).abs() < 1e-12);
    // Sums as without, and weights that come back beside the forward pass, which is as long as they take many times over.
    let ratio = shared.parts.communication_total / plain.parts.communication_total;
    assert!((1.4..1.6).contains(&ratio), "{ratio}");
    assert!(shared.parts.communication >= plain.parts.communication);
    let weights = shared.parts.communication_total - plain.parts.communication_total;
    assert!(shared.parts.communication - plain.parts.communication < 0.5 * weights);
    // Half of a sum and half of it again.
    let divided = plan(&a100(), 8, &Choices { shard: Shard::Gradients, ..bf16() });
    let ratio = divided.parts.communication_total / plain.parts.communication_total;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn what_cannot_be_is_refused_with_advice() {
    let config = config(&KEYS);
    let work = segue_family::work(&config).unwrap();
    let refused = |machine: &str, ranks, choices: &Choices| {
        let machine = Machine::load(machine).unwrap();
        let error = Plan::new(config.clone(), &work, &machine, ranks, choices).unwrap_err();
        assert_eq!(error.exit_code(), 78);
        format!("{error} {}", error.hint().unwrap_or_default())
    };
    let message = refused("dgx-1", 8, &bf16());
    assert!(message.contains("have no bf16") && message.contains("f32, fp16"), "{message}");
    assert!(refused("dgx-a100", 64, &bf16()).contains("64 ranks do not divide"));
    assert!(refused("dgx-a100", 9, &bf16()).contains("do not fill 2 nodes"));
}

#[test]
fn small_models_wait_for_their_operations_to_start() {
    let keys = ["model.vocab_size=100", "model.d_model=16", "train.lanes=8", "train.micro_batch=1"];
    let config = config(&keys);
    let work = segue_family::work(&config).unwrap();
    let plan = Plan::new(config, &work, &a100(), 8, &bf16()).unwrap();
    assert!(plan.parts.starts > 0.8 * plan.step_s, "{:?}", plan.parts);
}
