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
        let groups = Moments::OfGroups(12);
        let given = players.discriminator().mapped(layer, &batch.unlabelled.get(0), Some(&noise()), groups);
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
    for fakes in ["objective.fakes=none", "objective.fakes=generator"] {
        check_reported(fakes);
    }
}

fn check_reported(fakes: &str) {
    let reported = |entropy: &str| {
        let mut players = players(&[fakes, entropy]);
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
        let made = halves.make(&own(&z), 6).states;
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

/// Sizes of convolutional networks.
const CONVOLUTIONAL: [&str; 7] = [
    "model.network=convolutional",
    "model.image=[3, 16, 16]",
    "model.classes=5",
    "model.filters=[4, 6]",
    "model.generator_filters=[6, 5, 4]",
    "model.noise_size=4",
    "train.lanes=12",
];

fn convolutional(more: &[&str]) -> Players {
    let keys = ["model.model_type=complement-gan", "train.micro_batch=12"].iter();
    let keys: Vec<String> = keys.chain(&CONVOLUTIONAL).chain(more).map(|key| key.to_string()).collect();
    let config = segue_testing::models::<ComplementGanConfig>().load(None, &keys).unwrap().config;
    let objective = config.own.get::<ObjectiveConfig>().into_owned();
    Players::new(&config.train, config.model.get().unwrap(), &objective)
}

/// Rows B5, B6 and B9: nine convolutions and scores are set in turn, then what ends the generator and the encoder, the ends to a deviation of a tenth; the encoder learns in the
/// generator's turn.
#[test]
fn convolutional_networks_start_by_data_and_learn() {
    let mut players = convolutional(&["objective.input_entropy=0.01", "objective.pull_away=0.1"]);
    let batch = ImageBatch { labelled: None, unlabelled: Noise::new(2).uniform(&[1, 12, 768]), fakes: None };
    let mut deviations = Vec::new();
    tch::no_grad(|| {
        let mut round = 0;
        while players.preparation(round).is_some() {
            let tally = players.look(round, &batch, 0, &Noise::new(7));
            let sums = Vec::<f64>::try_from(&tally.statistics[0]).unwrap();
            players.prepare(round, &sums, tally.weight);
            let after = players.look(round, &batch, 0, &Noise::new(7));
            let sums = Vec::<f64>::try_from(&after.statistics[0]).unwrap();
            deviations.push((sums[sums.len() / 2] / after.weight).sqrt());
            round += 1;
        }
    });
    assert_eq!(deviations.len(), 9 + 1 + 2);
    for (round, deviation) in deviations.iter().enumerate() {
        let expected = if round < 9 { 1.0 } else { 0.1 };
        assert!((deviation / expected - 1.0).abs() < 1e-3, "round {round}: {deviation}");
    }
    let turn = players.turn(2);
    assert_eq!(turn.networks, [GENERATOR, ENCODER]);
    for player in [GENERATOR, ENCODER] {
        players.networks()[player].1.tensors().iter().for_each(|leaf| _ = leaf.set_requires_grad(true));
    }
    let loss = players.loss(&turn, &batch, 0, &(), &Noise::new(3));
    assert_eq!(loss.objectives.len(), 2);
    let leaves = |player: usize| players.networks()[player].1.tensors();
    for (objective, player) in loss.objectives.iter().zip([GENERATOR, ENCODER]) {
        let gradients = Tensor::run_backward(&[objective], leaves(player), true, false);
        assert!(gradients.iter().all(|gradient| largest(gradient) > 0.0), "network {player}");
    }
    // The encoder's moments follow its batches too: three of the generator's, three of its own.
    assert_eq!(loss.statistics.len(), 12);
    let statistics: Vec<f64> =
        loss.statistics.iter().flat_map(|sums| Vec::<f64>::try_from(sums).unwrap()).collect();
    players.updated(&turn, &statistics, loss.weight);
    let moved = |(name, table): &(String, Tensor)| name.contains("running_mean") && largest(table) > 0.0;
    assert_eq!(players.tables().iter().filter(|table| moved(table)).count(), 6);
}

/// Value j of parameter number i, as tests/peers/complement_gan_gradients.py has it.
fn sines(shape: &[i64], i: usize) -> Tensor {
    let count: i64 = shape.iter().product();
    let value = |j: i64| {
        let j = j as f64;
        (0.37 * (j * j) + 0.91 * j + 1.7 * i as f64).sin()
    };
    Tensor::from_slice(&(0..count).map(value).collect::<Vec<_>>()).view(shape)
}

/// Networks with those values, in double precision.
fn set_by_formula(players: &mut Players) {
    for player in &mut players.all {
        let specs = player.plan.specs();
        let value = |(i, spec): (usize, &ParameterSpec)| match &spec.name {
            name if name.ends_with(".scale") || name.ends_with("norm.weight") => {
                sines(&spec.shape, i) * 0.25 + 1.0
            }
            _ => sines(&spec.shape, i) * 0.5,
        };
        let values = specs.iter().enumerate().map(value).collect();
        let parameters = Parameters::from_tensors(specs, values, Kind::Double);
        let trained = parameters.tensors().len();
        let scales = player.scales.iter().enumerate();
        let scales = scales.map(|(i, scale)| sines(&scale.size(), trained + i) * 0.25 + 1.0).collect();
        *player = Player { scales, ..Player::new(player.plan.clone(), parameters) };
    }
}

/// Sum, sum times cos j, and length.
fn digest(gradient: &Tensor) -> [f64; 3] {
    let flat = Vec::<f64>::try_from(gradient.reshape([-1])).unwrap();
    let weighted = flat.iter().enumerate().map(|(j, g)| g * (j as f64).cos()).sum();
    [flat.iter().sum(), weighted, flat.iter().map(|g| g * g).sum::<f64>().sqrt()]
}

/// Losses and gradients of both turns are PyTorch's, of layers and of convolutions, with feature matching, pull-away, entropies and batch norm within groups.
#[test]
fn gradients_are_those_of_a_second_program() {
    let cases: serde_json::Value = serde_json::from_str(include_str!("gradients.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let text = |key: &str| case[key].as_str().unwrap_or_default().to_string();
        let number = |key: &str| case[key].as_f64().unwrap_or(0.0);
        let mut keys = vec![
            "model.input_noise=0".to_string(),
            format!("train.group={}", number("group")),
            "objective.entropy=0.1".into(),
            "objective.pull_away=0.5".into(),
            format!("objective.input_entropy={}", number("input_entropy")),
        ];
        for (key, value) in [("entropy_over", text("entropy_over")), ("feature_distance", text("distance"))] {
            keys.extend((!value.is_empty()).then(|| format!("objective.{key}={value}")));
        }
        let more = match text("network").as_str() {
            "layers" => vec!["model.noise=0"],
            _ => vec![
                "model.filters=[3, 4]",
                "model.generator_filters=[8, 6, 5]",
                "model.noise_size=5",
                "model.input_dropout=0",
                "model.dropout=0",
            ],
        };
        let keys: Vec<&str> = keys.iter().map(String::as_str).chain(more).collect();
        let mut players = if text("network") == "layers" { players(&keys) } else { convolutional(&keys) };
        set_by_formula(&mut players);
        let pixels = if text("network") == "layers" { 12 } else { 768 };
        let input = |shape: [i64; 2], i: usize| sines(&shape, i) * 0.5 + 0.5;
        let [labelled, unlabelled] = [0, 1].map(|i| input([12, pixels], i));
        let z = input([12, players.noise_size], 2);
        let of_discriminator = text("turn") == "discriminator";
        let learn =
            if of_discriminator { vec![DISCRIMINATOR] } else { (GENERATOR..players.all.len()).collect() };
        let names: Vec<(String, Tensor)> = learn
            .iter()
            .flat_map(|player| {
                players.all[*player].parameters.specs().iter().zip(players.all[*player].parameters.tensors())
            })
            .map(|(spec, leaf)| (spec.name.clone(), leaf.set_requires_grad(true)))
            .collect();
        let objectives = if of_discriminator {
            let labels: Vec<i64> = (0..12).map(|image| 3 * image % 5).collect();
            let labelled = (labelled, Tensor::from_slice(&labels));
            let fakes = tch::no_grad(|| players.make(&z, players.group).states);
            vec![players.discriminator_objective(&labelled, &unlabelled, Some(&fakes), None).0]
        } else {
            players.generator_objectives(&unlabelled, &z, None).0
        };
        let expected = number("loss");
        let found = objectives[0].double_value(&[]);
        assert!((found - expected).abs() < 1e-9 * expected.abs(), "{case}: {found}");
        let leaves: Vec<&Tensor> = names.iter().map(|(_, leaf)| leaf).collect();
        let gradients = Tensor::run_backward(&objectives[..1], &leaves, false, false);
        assert_eq!(names.len(), case["gradients"].as_object().unwrap().len());
        for ((name, _), gradient) in names.iter().zip(&gradients) {
            for (found, expected) in digest(gradient).iter().zip(case["gradients"][name].as_array().unwrap())
            {
                let expected = expected.as_f64().unwrap();
                let text = format!("{} of {} {}", name, case["network"], case["turn"]);
                assert!(
                    (found - expected).abs() < 1e-8 * expected.abs().max(1.0),
                    "{text}: {found}, {expected}"
                );
            }
        }
    }
}
