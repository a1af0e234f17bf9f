use super::*;

const SIZES: [&str; 6] = [
    "model.image=[1, 3, 4]",
    "model.classes=5",
    "model.hidden=[9, 7, 6]",
    "model.generator_hidden=[8, 5]",
    "model.noise_size=4",
    "train.lanes=12",
];

fn players(more: &[&str]) -> Players {
    let keys = ["model.model_type=complement-gan", "train.micro_batch=12"].iter().chain(&SIZES).chain(more);
    let keys: Vec<String> = keys.map(|key| key.to_string()).collect();
    let config = segue_testing::models::<ComplementGanConfig>().load(None, &keys).unwrap().config;
    let objective = config.own.get::<ObjectiveConfig>().into_owned();
    Players::new(&config.train, config.model.get().unwrap(), &objective)
}

/// Values in [0, 1] that repeat nowhere.
fn images(seed: u64) -> Tensor {
    Noise::new(seed).uniform(&[1, 12, 12])
}

fn batch() -> ImageBatch {
    let labels: Vec<i64> = (0..12).map(|image| image % 5).collect();
    ImageBatch {
        labelled: Some((images(1), Tensor::from_slice(&labels).view([1, 12]))),
        unlabelled: images(2),
        fakes: None,
    }
}

fn largest(x: &Tensor) -> f64 {
    x.abs().max().double_value(&[])
}

#[test]
fn networks_take_turns_and_count_their_own_batches() {
    let turns = |players: &mut Players| -> Vec<(usize, u64)> {
        (1..=4).map(|step| players.turn(step)).map(|turn| (turn.source, turn.nth)).collect()
    };
    assert_eq!(turns(&mut players(&[])), [(0, 1), (1, 1), (0, 2), (1, 2)]);
    assert_eq!(turns(&mut players(&["objective.fakes=none"])), [(0, 1), (0, 2), (0, 3), (0, 4)]);
}

/// Row B6: what each layer gives before its activation has the mean 0 and the deviation 1 on the batch that it was set by, with its noise.
#[test]
fn layers_are_set_one_after_the_other_by_the_first_batch() {
    let mut players = players(&[]);
    let (batch, noise) = (batch(), || Noise::new(7));
    let _no_graph = tch::no_grad_guard();
    let mut rounds = 0;
    while players.preparation(rounds).is_some() {
        let tally = players.look(rounds, &batch, 0, &noise());
        let sums = Vec::<f64>::try_from(&tally.statistics[0]).unwrap();
        players.prepare(rounds, &sums, tally.weight);
        rounds += 1;
    }
    assert_eq!(rounds, 4);
    for layer in 0..4 {
        let given = players.discriminator().before_activation(layer, &batch.unlabelled.get(0), &noise());
        assert!(largest(&given.mean_dim(0, false, None::<Kind>)) < 1e-5, "layer {layer}");
        let deviation = given.std_dim(0, false, false);
        assert!(largest(&(deviation - 1.0)) < 1e-4, "layer {layer}");
    }
}

/// Row B3: the generator's turn has no objective of the discriminator, and the other way round.
#[test]
fn a_turn_reaches_its_own_network_alone() {
    for (step, own, other) in [(1, "discriminator", "generator"), (2, "generator", "discriminator")] {
        let mut players = players(&["objective.pull_away=0.5", "objective.entropy=0.1"]);
        let turn = players.turn(step);
        let of = |name: &str| {
            let networks = players.networks();
            let tensors = networks.into_iter().find(|network| network.0 == name).unwrap().1.tensors();
            tensors.iter().map(Tensor::shallow_clone).collect::<Vec<_>>()
        };
        of(own).iter().for_each(|leaf| _ = leaf.set_requires_grad(true));
        // What the generator's loss goes through is kept from gradients by the engine; the discriminator's never reaches the generator.
        of(other).iter().for_each(|leaf| _ = leaf.set_requires_grad(own == "discriminator"));
        let loss = players.loss(&turn, &batch(), 0, &(), &Noise::new(3));
        assert_eq!((loss.objectives.len(), loss.weight), (1, 12.0));
        loss.objectives[0].backward();
        let reached =
            of(own).iter().filter(|leaf| leaf.grad().defined() && largest(&leaf.grad()) > 0.0).count();
        assert_eq!(reached, of(own).len(), "{own}");
        assert!(of(other).iter().all(|leaf| !leaf.grad().defined()), "{other}");
    }
}

/// The entropy is trained and not reported.
#[test]
fn what_is_reported_has_no_entropy() {
    let reported = |entropy: &str| {
        let mut players = players(&["objective.fakes=none", entropy]);
        let turn = players.turn(1);
        let loss = players.loss(&turn, &batch(), 0, &(), &Noise::new(3));
        (loss.reported.double_value(&[]), loss.objectives[0].double_value(&[]))
    };
    let (without, with) = (reported("objective.entropy=0"), reported("objective.entropy=0.5"));
    assert_eq!(without.0, without.1);
    assert_eq!(without.0, with.0);
    assert!(with.1 > with.0);
}

/// Two groups are two generators' batches and two distances.
#[test]
fn groups_stand_by_themselves() {
    let quiet = ["model.input_noise=0", "model.noise=0"];
    let halves = players(&[&quiet[..], &["train.group=6"]].concat());
    let turn = Turn { networks: vec![GENERATOR], source: GENERATOR, nth: 1 };
    let loss = halves.loss(&turn, &batch(), 0, &(), &Noise::new(3));
    assert_eq!(loss.statistics.len(), 4);
    let z = Noise::new(3).uniform(&[12, 4]);
    let real = batch().unlabelled.get(0);
    let of_half = |half: i64| {
        let own = |x: &Tensor| x.narrow(0, 6 * half, 6);
        let made = halves.generator().make(&own(&z).unsqueeze(0), None).images.squeeze_dim(0);
        let features = |x: &Tensor| halves.discriminator().features(x, None).unsqueeze(0);
        let distance = losses::FeatureDistance::MeanSquare;
        losses::feature_matching(&features(&made), &features(&own(&real)), distance).double_value(&[])
    };
    let (expected, found) = (of_half(0) + of_half(1), loss.reported.double_value(&[]));
    assert!((found / expected - 1.0).abs() < 1e-5, "{found} and {expected}");
}

#[test]
fn running_moments_follow_those_of_batches() {
    let mut players = players(&[]);
    let turn = players.turn(2);
    let loss = players.loss(&turn, &batch(), 0, &(), &Noise::new(3));
    let statistics: Vec<f64> =
        loss.statistics.iter().flat_map(|sums| Vec::<f64>::try_from(sums).unwrap()).collect();
    let before: Vec<Tensor> = players.tables().iter().map(|(_, table)| table.copy()).collect();
    players.updated(&turn, &statistics, loss.weight);
    let tables = players.tables();
    let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[3..5], ["generator.layers.0.norm.running_mean", "generator.layers.0.norm.running_var"]);
    // By hand: what the first layer gives for the numbers that were drawn.
    let z = Noise::new(3).uniform(&[12, 4]);
    let mapped = z.matmul(&players.networks()[1].1.get("generator.layers.0.weight").tr());
    let mean = mapped.mean_dim(0, false, None::<Kind>) * 0.1;
    let variance = mapped.var_dim(0, true, false) * 0.1 + 0.9;
    assert!(largest(&(&tables[3].1 - mean)) < 1e-6 && largest(&(&tables[4].1 - variance)) < 1e-6);
    // Lengths of the discriminator stay.
    assert!(before.iter().zip(&tables).take(3).all(|(before, (_, after))| before == after));
}
