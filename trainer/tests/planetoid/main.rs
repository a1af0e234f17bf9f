//! Classes of nodes, from a folder to an accuracy: bytes, masks, baselines, and the published data sets where they are there.

mod published;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_configs::Config;
use segue_random::{Purpose, Stream};
use segue_trainer::engine::Outcome;
use segue_trainer::families::planetoid::Predictor;
use segue_trainer::families::{self, MODELS};
use segue_trainer::{Compute, libtorch};
use serde_json::Value;

const NODES: usize = 90;
const CLASSES: usize = 3;
const COLUMNS: usize = 24;
/// Labelled nodes come first, test nodes last, as in the published files.
const LABELLED: usize = 12;
const TESTED: usize = 30;

/// A graph of communities: nodes of a class are more often neighbours, and have more often columns of their class. `changed` may change
/// a label or a row of features before it is written.
fn write_graph(folder: &Path, changed: impl Fn(usize, &mut i64, &mut Vec<(usize, f32)>)) -> PathBuf {
    let class = |node: usize| node % CLASSES;
    let stream = Stream::new(11, Purpose::Synthetic, &[]);
    let drawn = |a: usize, b: usize, chance: f64| stream.uniform((a * 1000 + b) as u64) < chance;
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let mut write =
        |file: &'static str, line: String| files.entry(file).or_default().push_str(&(line + "\n"));
    for node in 0..NODES {
        for other in node + 1..NODES {
            if drawn(node, other, if class(node) == class(other) { 0.15 } else { 0.015 })
                || other == node + CLASSES
            {
                write("edges.txt", format!("{node} {other}"));
            }
        }
        let mut row: Vec<(usize, f32)> = (0..COLUMNS)
            .filter(|column| {
                drawn(node, 500 + column, if column % CLASSES == class(node) { 0.45 } else { 0.1 })
            })
            .map(|column| (column, 1.0))
            .collect();
        let mut label = class(node) as i64;
        changed(node, &mut label, &mut row);
        write("labels.txt", label.to_string());
        let row: String = row.iter().map(|(column, value)| format!(" {column}:{value}")).collect();
        write("features.svm", format!("{node}{row}"));
    }
    write("sizes.txt", format!("nodes {NODES}\ncolumns {COLUMNS}\nclasses {CLASSES}"));
    (0..LABELLED).for_each(|node| write("train.index", node.to_string()));
    (NODES - TESTED..NODES).for_each(|node| write("test.index", node.to_string()));
    for (file, text) in files {
        fs::write(folder.join(file), text).unwrap();
    }
    folder.to_path_buf()
}

fn as_it_is(_: usize, _: &mut i64, _: &mut Vec<(usize, f32)>) {}

/// Short runs: every kind of step, evaluations, checkpoints.
const SHORT: [&str; 10] = [
    "model.pretrain_label=3",
    "model.pretrain_contexts=3",
    "model.d_embed=6",
    "model.context_batch=10",
    "model.label_batch=7",
    "model.batch=8",
    "train.steps=14",
    "eval.every=4",
    "checkpoint.every=3",
    "log.every=100",
];

/// What a variant needs beside [`SHORT`].
const VARIANTS: [&[&str]; 9] = [
    &["model.variant=transductive", "model.context_steps=0.5"],
    &[
        "model.variant=transductive",
        "model.hidden=relu",
        "model.layer_losses=false",
        "model.d_hidden=5",
        "model.contexts=negative",
        "model.r2=0.5",
        "model.pairs_per_walk=one",
        "model.starts=uniform",
        "model.label_pairs=uniform",
        "model.context_steps=1",
    ],
    &["model.variant=inductive", "model.context_steps=0.5", "model.contexts=negative", "model.negatives=2"],
    &["model.variant=graph", "model.context_mean=true", "optim.kind=adam", "optim.lr=0.01"],
    &["model.variant=graph-embedding"],
    &["model.variant=features"],
    &["model.variant=manireg", "model.context_steps=1"],
    &["model.variant=semiemb", "model.context_steps=1"],
    &["model.variant=label-propagation", "optim.lr=1"],
];

fn config(run: &Path, data: &Path, overrides: &[&str]) -> Config {
    let own = [
        "model.model_type=planetoid".to_string(),
        format!("run.dir={}", run.display()),
        format!("data.corpus={}", data.display()),
    ];
    let all: Vec<String> = own.into_iter().chain(overrides.iter().map(|s| s.to_string())).collect();
    MODELS.load(None, &all).unwrap().config
}

fn train(config: &Config, comm: &dyn Communicator, stop: bool) -> Outcome {
    libtorch::set_threads(1);
    let mut config = config.clone();
    let job = (families::of(&config.model).open)(&mut config).unwrap();
    job.train(&config, Compute::CPU, comm, &|| stop, &mut |_| {}).unwrap()
}

/// Runs alone and gives the last evaluation.
fn evaluation(run: &Path, data: &Path, overrides: &[&str]) -> Value {
    train(&config(run, data, overrides), &Local, false).evaluation.unwrap()
}

/// The tensor files of a run's last checkpoint, and what the learner has kept.
fn bytes(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = run.join("checkpoints/latest");
    let state: Value = serde_json::from_slice(&fs::read(folder.join("trainer_state.json")).unwrap()).unwrap();
    let files = ["model.safetensors", "optimizer.safetensors"];
    let mut found: BTreeMap<String, Vec<u8>> =
        files.iter().map(|name| (name.to_string(), fs::read(folder.join(name)).unwrap())).collect();
    found.insert("best".into(), state["learner"].to_string().into_bytes());
    found
}

fn weights(run: &Path, name: &str) -> Vec<f32> {
    let bytes = fs::read(run.join("checkpoints/latest/model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    file.tensor(name)
        .unwrap()
        .data()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

#[test]
fn p07_p09_checkpoints_have_the_same_bytes_at_1_2_and_4_ranks() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    for variant in VARIANTS {
        let run = |ranks: usize| {
            let folder = tempfile::tempdir().unwrap();
            let config = config(folder.path(), &data, &[&SHORT[..], variant].concat());
            simulated::run(ranks, |comm| _ = train(&config, comm, false));
            bytes(folder.path())
        };
        let alone = run(1);
        for ranks in [2, 4] {
            assert!(run(ranks) == alone, "{variant:?}, {ranks} ranks");
        }
    }
}

/// Small tables share a bucket and are updated as a whole; in a bucket of their own, row by row. Softmax contexts touch all rows of one of the two
/// tables in some steps.
#[test]
fn p10_tables_updated_by_rows_have_the_bytes_of_whole_updates() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let graph = ["model.variant=graph", "model.contexts=negative", "model.negatives=3", "model.r2=0.5"];
    for variant in [VARIANTS[0], VARIANTS[1], &graph] {
        let overrides = [&SHORT[..], variant].concat();
        let run = |ranks: usize, bucket_bytes: &str| {
            let folder = tempfile::tempdir().unwrap();
            let config = config(folder.path(), &data, &[&overrides[..], &[bucket_bytes]].concat());
            simulated::run(ranks, |comm| _ = train(&config, comm, false));
            bytes(folder.path())
        };
        let whole = run(1, "train.bucket_bytes=1048576");
        for ranks in [1, 2, 4] {
            assert!(run(ranks, "train.bucket_bytes=1") == whole, "{variant:?}, {ranks} ranks");
        }
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), &data, &[&overrides[..], &["train.bucket_bytes=1"]].concat());
        let mut ranks = [2, 1, 4].into_iter().cycle();
        while simulated::run(ranks.next().unwrap(), |comm| train(&config, comm, true))[0].preempted {}
        assert!(bytes(folder.path()) == whole, "{variant:?}, stopped at every step");
    }
}

#[test]
fn p10_a_run_stopped_at_every_step_ends_with_the_same_bytes() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    for variant in [VARIANTS[0], VARIANTS[2], VARIANTS[6]] {
        let [whole, parts] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        train(&config(whole.path(), &data, &[&SHORT[..], variant].concat()), &Local, false);
        let config = config(parts.path(), &data, &[&SHORT[..], variant].concat());
        let (mut ranks, mut attempts) = ([1, 2, 4].into_iter().cycle(), 0);
        while simulated::run(ranks.next().unwrap(), |comm| train(&config, comm, true))[0].preempted {
            attempts += 1;
        }
        assert_eq!(attempts, 13);
        assert!(bytes(whole.path()) == bytes(parts.path()), "{variant:?}");
    }
}

/// Whatever the labels of test nodes are, and inductively their features, training makes the same weights of it; transductively it reads
/// features of test nodes no more than an inductive one does, as no step of contexts or labels asks for them.
#[test]
fn p09_p20_training_reads_nothing_of_test_nodes() {
    let [one, two] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let data = write_graph(one.path(), as_it_is);
    let other = write_graph(two.path(), |node, label, row| {
        if node >= NODES - TESTED {
            *label = (*label + 1) % CLASSES as i64;
            *row = vec![(node % COLUMNS, 3.0)];
        }
    });
    let mut judged_otherwise = 0;
    for variant in VARIANTS {
        let [a, b] = [&data, &other].map(|data| {
            let folder = tempfile::tempdir().unwrap();
            let found = evaluation(folder.path(), data, &[&SHORT[..], variant].concat());
            (
                found["accuracy"].clone(),
                fs::read(folder.path().join("checkpoints/latest/model.safetensors")).unwrap(),
            )
        });
        assert!(a.1 == b.1, "{variant:?}");
        judged_otherwise += usize::from(a.0 != b.0);
    }
    // Two accuracies may agree by chance, not most of them.
    assert!(2 * judged_otherwise > VARIANTS.len(), "the test nodes were not changed");
}

/// Means over no edges would be no numbers.
#[test]
fn p13_penalties_without_an_edge_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    // Nodes of one class apart: the last labelled one and the first tested one, of which training sees the first alone.
    fs::write(data.join("edges.txt"), format!("{} {}\n", LABELLED - 1, NODES - TESTED)).unwrap();
    for variant in ["model.variant=manireg", "model.variant=semiemb"] {
        let overrides = [&SHORT[..], &[variant, "model.context_steps=1"]].concat();
        let mut config = config(place.path(), &data, &overrides);
        let error = (families::of(&config.model).open)(&mut config).err().unwrap();
        assert!(error.to_string().contains("joins no two nodes"), "{error}");
    }
}

/// The features of the nodes that are neither labelled nor tested do enter where a penalty or contexts are paid for them.
#[test]
fn p09_p13_training_reads_the_features_of_unlabelled_nodes() {
    let [one, two] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let data = write_graph(one.path(), as_it_is);
    let other = write_graph(two.path(), |node, _, row| {
        if (LABELLED..NODES - TESTED).contains(&node) {
            *row = vec![(node % COLUMNS, 3.0)];
        }
    });
    for (variant, reads) in
        [(VARIANTS[2], true), (VARIANTS[5], false), (VARIANTS[6], true), (VARIANTS[7], true)]
    {
        let [a, b] = [&data, &other].map(|data| {
            let folder = tempfile::tempdir().unwrap();
            train(&config(folder.path(), data, &[&SHORT[..], variant].concat()), &Local, false);
            fs::read(folder.path().join("checkpoints/latest/model.safetensors")).unwrap()
        });
        assert_eq!(a != b, reads, "{variant:?}");
    }
}

#[test]
fn p11_a_classifier_of_embeddings_leaves_them_as_contexts_made_them() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let [early, late] = ["train.steps=6", "train.steps=14"].map(|steps| {
        let folder = tempfile::tempdir().unwrap();
        let overrides = [&SHORT[..], &["model.variant=graph-embedding", steps]].concat();
        train(&config(folder.path(), &data, &overrides), &Local, false);
        ["embedding.weight", "contexts.weight", "output.weight"].map(|name| weights(folder.path(), name))
    });
    assert!(early[0] == late[0] && early[1] == late[1] && early[2] != late[2]);
}

/// With λ = 0 the penalty of outputs is no penalty: what is left is the linear softmax of the features, bit by bit.
#[test]
fn p13_manifold_regularisation_without_weight_is_the_linear_softmax() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let of = |overrides: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        train(&config(folder.path(), &data, &[&SHORT[..], overrides].concat()), &Local, false);
        ["output.weight", "output.bias"].map(|name| weights(folder.path(), name))
    };
    let linear = of(&["model.variant=features", "train.steps=7"]);
    let penalised =
        |lambda: &str| of(&["model.variant=manireg", "model.context_steps=1", lambda, "train.steps=14"]);
    assert!(penalised("model.lambda=0") == linear);
    assert!(penalised("model.lambda=1") != linear);
    // And the other penalty, likewise, against the same network that is trained by labels alone.
    let embedded = |more: &[&str]| of(&[&["model.variant=semiemb", "model.lambda=0"], more].concat());
    assert!(
        embedded(&["train.steps=14", "model.context_steps=1"])
            == embedded(&["train.steps=7", "model.context_steps=0"])
    );
}

/// A triangle 0-1-2 with a tail 2-3-4; node 0 is of class 0 and node 4 of class 1.
fn toy(folder: &Path) -> PathBuf {
    for (file, text) in [
        ("edges.txt", "0 1\n0 2\n1 2\n2 3\n3 4\n"),
        ("labels.txt", "0\n0\n0\n1\n1\n"),
        ("features.svm", "0 0:1\n1\n2\n3\n4\n"),
        ("train.index", "0\n4\n"),
        ("test.index", "1\n2\n3\n"),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    folder.to_path_buf()
}

/// Clamped, each other node has the mean of its neighbours: f₁ = (1 + f₂)/2, f₂ = (1 + f₁ + f₃)/3, f₃ = f₂/2, so that
/// `(D_UU − A_UU)⁻¹ A_UL Y_L` is 7/8, 3/4 and 3/8 of class 0.
#[test]
fn p12_labels_spread_to_the_closed_form() {
    let place = tempfile::tempdir().unwrap();
    let data = toy(place.path());
    let run = place.path().join("run");
    let found =
        evaluation(&run, &data, &["model.variant=label-propagation", "optim.lr=1", "train.steps=200"]);
    let labels = weights(&run, "labels");
    let expected = [1.0, 7.0 / 8.0, 3.0 / 4.0, 3.0 / 8.0, 0.0];
    for (node, share) in expected.into_iter().enumerate() {
        let [of_first, of_second] = [0, 1].map(|class| f64::from(labels[2 * node + class]));
        assert!((of_first - share).abs() < 1e-6 && (of_second - (1.0 - share)).abs() < 1e-6, "{labels:?}");
    }
    assert_eq!(found["accuracy"], 1.0);
}

/// `(1 − α)(I − α S)⁻¹ Y` with S = D^(−1/2) A D^(−1/2), by the sum `Σ (α S)^k`.
#[test]
fn p21_labels_spread_without_clamps_to_the_closed_form() {
    let place = tempfile::tempdir().unwrap();
    let data = toy(place.path());
    let run = place.path().join("run");
    evaluation(
        &run,
        &data,
        &["model.variant=label-spreading", "model.alpha=0.8", "optim.lr=1", "train.steps=300"],
    );
    let degrees = [2.0, 2.0, 3.0, 2.0, 1.0f64];
    let edges = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)];
    let mut term = [[0.2, 0.0], [0.0; 2], [0.0; 2], [0.0; 2], [0.0, 0.2f64]];
    let mut sum = [[0.0; 2]; 5];
    for _ in 0..400 {
        let mut next = [[0.0; 2]; 5];
        for class in 0..2 {
            (0..5).for_each(|node| sum[node][class] += term[node][class]);
            for (a, b) in edges {
                let weight = 0.8 / (degrees[a] * degrees[b]).sqrt();
                next[a][class] += weight * term[b][class];
                next[b][class] += weight * term[a][class];
            }
        }
        term = next;
    }
    let labels = weights(&run, "labels");
    for (found, expected) in labels.iter().zip(sum.as_flattened()) {
        assert!((f64::from(*found) - expected).abs() < 1e-6, "{labels:?} against {sum:?}");
    }
}

/// A node that no label reaches is of the class that most labelled nodes have.
#[test]
fn p12_nodes_out_of_reach_are_of_the_most_frequent_class() {
    let place = tempfile::tempdir().unwrap();
    let data = toy(place.path());
    fs::write(data.join("edges.txt"), "0 1\n3 4\n").unwrap();
    fs::write(data.join("train.index"), "0\n3\n4\n").unwrap();
    fs::write(data.join("test.index"), "1\n2\n").unwrap();
    let run = place.path().join("run");
    evaluation(&run, &data, &["model.variant=label-propagation", "optim.lr=1", "train.steps=50"]);
    let predictor = Predictor::open(&run).unwrap();
    let found = predictor.predict(&predictor.material(None).unwrap(), &[1, 2]).unwrap();
    assert_eq!(found.iter().map(|found| found.class).collect::<Vec<_>>(), [0, 1]);
    assert!((found[1].probabilities[1] - 2.0 / 3.0).abs() < 1e-6);
    let error = predictor.predict(&predictor.material(None).unwrap(), &[5]).unwrap_err();
    assert!(error.to_string().contains("node 5"), "{error}");
}

/// Disjoint nodes, as many of each class as were asked for, and another split for another seed.
#[test]
fn p20_splits_that_are_drawn_change_what_is_learnt() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let of = |seed: &str| {
        let folder = tempfile::tempdir().unwrap();
        let split = [seed, "model.split_per_class=5", "model.split_test=40", "model.variant=features"];
        let found = evaluation(folder.path(), &data, &[&SHORT[..], &split].concat());
        let predictor = Predictor::open(folder.path()).unwrap();
        let material = predictor.material(None).unwrap();
        assert_eq!(
            (material.labelled.len(), material.data.test.len(), found["nodes"].clone()),
            (15, 40, 40.into())
        );
        assert!(material.labelled.iter().all(|(node, _)| !material.data.test.contains(node)));
        for class in 0..CLASSES as u32 {
            assert_eq!(material.labelled.iter().filter(|(_, own)| *own == class).count(), 5);
        }
        (material.labelled.clone(), weights(folder.path(), "output.weight"))
    };
    let (one, two) = (of("model.split_seed=1"), of("model.split_seed=2"));
    assert!(one.0 != two.0 && one.1 != two.1);
}

/// Nodes of the graph and unseen rows are predicted alike, where both have the same features.
#[test]
fn p09_unseen_nodes_are_predicted_by_their_features() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let run = tempfile::tempdir().unwrap();
    train(&config(run.path(), &data, &[&SHORT[..], VARIANTS[2]].concat()), &Local, false);
    let predictor = Predictor::open(run.path()).unwrap();
    let material = predictor.material(None).unwrap();
    let of_nodes = predictor.predict(&material, &material.data.test).unwrap();
    let of_rows = predictor.predict_rows(&material.data.features.select(&material.data.test)).unwrap();
    let shares = |found: &[segue_trainer::families::planetoid::Prediction]| -> Vec<Vec<f32>> {
        found.iter().map(|found| found.probabilities.clone()).collect()
    };
    assert_eq!(shares(&of_nodes), shares(&of_rows));
    let embeddings = predictor.embeddings(&material, &[0, 1]).unwrap();
    assert_eq!(embeddings.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);

    let run = tempfile::tempdir().unwrap();
    train(&config(run.path(), &data, &[&SHORT[..], VARIANTS[0]].concat()), &Local, false);
    let error = Predictor::open(run.path()).unwrap().predict_rows(&material.data.features).unwrap_err();
    assert!(error.to_string().contains("nodes of its graph alone"), "{error}");
}

/// Communities are told apart by the graph and by features, and better than by guessing.
#[test]
fn p07_communities_are_learnt() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let accuracy = |overrides: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let found = evaluation(folder.path(), &data, overrides);
        assert_eq!(found["nodes"], TESTED);
        found["accuracy"].as_f64().unwrap()
    };
    let usual = [
        "model.pretrain_label=200",
        "model.pretrain_contexts=100",
        "train.steps=700",
        "model.context_batch=40",
    ];
    for variant in ["transductive", "inductive", "graph"] {
        let variant = format!("model.variant={variant}");
        let found = accuracy(&[&usual[..], &[&variant]].concat());
        assert!(found > 0.6, "{variant}: {found}");
    }
}

/// The text's own sampler and loop (Yang 2019, algorithms 2 and 3), with r1 as it is printed, five true pairs to a drawn one, and the other
/// way round, five drawn ones to a true one: both learn communities.
#[test]
fn p08_both_readings_of_r1_learn_communities() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let literal = [
        "model.hidden=relu",
        "model.layer_losses=false",
        "model.d_hidden=16",
        "model.contexts=negative",
        "model.r2=0.5",
        "model.walk_nodes=10",
        "model.window=2",
        "model.pairs_per_walk=one",
        "model.starts=uniform",
        "model.label_pairs=uniform",
        "model.pretrain_label=0",
        "model.pretrain_contexts=1000",
        "model.context_steps=1",
        "model.context_batch=40",
        "model.lambda=0.5",
        "train.steps=2000",
    ];
    let weights = ["model.r1=0.8333333333333334", "model.r1=0.16666666666666666"].map(|r1| {
        let folder = tempfile::tempdir().unwrap();
        let found = evaluation(folder.path(), &data, &[&literal[..], &[r1]].concat());
        let accuracy = found["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.6, "{r1}: {accuracy}");
        weights(folder.path(), "embedding.weight")
    });
    assert!(weights[0] != weights[1]);
}

/// Without features, contexts make the same embedding of both models, bit by bit, and the layer of features learns nothing.
#[test]
fn p19_without_features_the_transductive_model_is_the_one_of_the_graph_alone() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), |_, _, row| row.clear());
    let of = |variant: &str, steps: &str, names: &[&str]| -> Vec<Vec<f32>> {
        let folder = tempfile::tempdir().unwrap();
        train(&config(folder.path(), &data, &[&SHORT[..], &[variant, steps]].concat()), &Local, false);
        names.iter().map(|name| weights(folder.path(), name)).collect()
    };
    // Three steps of label contexts and three of the graph's come before the first supervised one.
    let contexts = ["embedding.weight", "contexts.weight", "contexts.bias"];
    let [both, graph] = ["model.variant=transductive", "model.variant=graph"];
    assert!(of(both, "train.steps=6", &contexts) == of(graph, "train.steps=6", &contexts));
    let layer = |steps: &str| of(both, steps, &["hidden.features.weight"]);
    assert!(layer("train.steps=6") == layer("train.steps=14"));
}

#[test]
fn data_that_cannot_be_learnt_from_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let open = |overrides: &[&str]| {
        let mut config = config(&place.path().join("run"), &data, overrides);
        (families::of(&config.model).open)(&mut config).err().unwrap()
    };
    let error = open(&["model.nodes=91"]);
    assert!(error.to_string().contains("model.nodes"), "{error}");
    let error = open(&["data.corpus="]);
    assert!(error.to_string().contains("data.corpus"), "{error}");
    // Node 20 is in no part of the split, and 61 is one of the test nodes.
    let features = fs::read_to_string(data.join("features.svm")).unwrap();
    let without = |node: &str| -> String {
        features
            .lines()
            .filter(|line| line.split(' ').next() != Some(node))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    fs::write(data.join("features.svm"), without("61")).unwrap();
    for variant in ["model.variant=transductive", "model.variant=features"] {
        let error = open(&[variant]);
        assert!(error.to_string().contains("test.index, line 2: node 61 has no features"), "{error}");
        assert_eq!(error.exit_code(), 65);
    }
    fs::write(data.join("features.svm"), without("20")).unwrap();
    for accepted in ["model.variant=graph", "model.variant=transductive"] {
        let mut config = config(&place.path().join("run"), &data, &[accepted]);
        assert!((families::of(&config.model).open)(&mut config).is_ok(), "{accepted}");
    }
    fs::write(data.join("train.index"), "").unwrap();
    let error = open(&[]);
    assert!(error.to_string().contains("no labelled nodes"), "{error}");
}

/// Embeddings are of the nodes they were trained for, in their order; weights of features do for any graph.
#[test]
fn p09_a_model_with_embeddings_takes_the_graph_of_its_training_alone() {
    let [first, second] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let data = write_graph(first.path(), as_it_is);
    let other = write_graph(second.path(), |node, label, _| *label = if node == 50 { -1 } else { *label });
    for (variant, expected) in [("transductive", false), ("graph", false), ("inductive", true)] {
        let run = tempfile::tempdir().unwrap();
        let variant = format!("model.variant={variant}");
        train(&config(run.path(), &data, &[&SHORT[..], &[&variant]].concat()), &Local, false);
        let predictor = Predictor::open(run.path()).unwrap();
        assert!(predictor.material(Some(&data)).is_ok());
        let found = predictor.material(Some(&other));
        assert_eq!(found.is_ok(), expected, "{variant}");
        if let Some(error) = found.err() {
            assert!(error.to_string().contains("not the one that the model was trained on"), "{error}");
            assert!(error.hint().unwrap().contains(&data.display().to_string()));
        }
    }
    // Another graph may have other nodes, and no labels at all.
    let [small, wide] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    for place in [&small, &wide] {
        let features = "0 0:1\n1 1:1\n2 9:1\n";
        for (file, text) in [("edges.txt", "0 1\n1 2\n"), ("features.svm", features)] {
            fs::write(place.path().join(file), text).unwrap();
        }
        for file in ["labels.txt", "train.index", "test.index"] {
            fs::write(place.path().join(file), "").unwrap();
        }
    }
    let split = ["model.split_seed=4", "model.split_per_class=4", "model.split_test=30"];
    for variant in ["model.variant=inductive", "model.variant=manireg", "model.variant=features"] {
        let run = tempfile::tempdir().unwrap();
        train(&config(run.path(), &data, &[&SHORT[..], &split, &[variant]].concat()), &Local, false);
        let predictor = Predictor::open(run.path()).unwrap();
        let material = predictor.material(Some(small.path())).unwrap();
        assert_eq!(predictor.predict(&material, &[2, 0]).unwrap().len(), 2, "{variant}");
        fs::write(wide.path().join("features.svm"), format!("0 {COLUMNS}:1\n1 1:1\n2 9:1\n")).unwrap();
        let error = predictor.material(Some(wide.path())).err().unwrap();
        assert!(error.to_string().contains("25 columns, and the model was trained on 24"), "{error}");
        // On its own graph, the nodes of the split that was drawn.
        let test = |data: Option<&Path>| predictor.material(data).unwrap().data.test;
        assert!(test(Some(&data)) == test(None) && test(None).len() == 30);
    }
}

/// DIEL's protocol: splits that are given, and the recall of each class among the nodes of the highest probability.
#[test]
fn p18_recall_is_measured_over_splits_that_are_given() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    for (number, train, test) in [(1, 0..9, 30..60), (2, 3..12, 60..66)] {
        let folder = data.join(format!("splits/{number}"));
        fs::create_dir_all(&folder).unwrap();
        let lines = |nodes: std::ops::Range<usize>| nodes.map(|node| format!("{node}\n")).collect::<String>();
        fs::write(folder.join("train.index"), lines(train)).unwrap();
        fs::write(folder.join("test.index"), lines(test)).unwrap();
    }
    let found = ["1", "2"].map(|number| {
        let run = tempfile::tempdir().unwrap();
        let given = format!("model.given_split={number}");
        evaluation(run.path(), &data, &[&SHORT[..], &[&given, "model.recall_at=4"]].concat())
    });
    assert_eq!(found.each_ref().map(|row| row["nodes"].as_u64()), [Some(30), Some(6)]);
    // Of ten nodes of a class four are ranked first at most, of two both.
    for (row, ceiling) in found.iter().zip([0.4, 1.0]) {
        assert!((row["ceiling_at_k"].as_f64().unwrap() - ceiling).abs() < 1e-12);
    }
    for row in &found {
        let recall = row["recall_at_k"].as_f64().unwrap();
        assert!(
            (0.0..=1.0).contains(&recall) && recall <= row["ceiling_at_k"].as_f64().unwrap() + 1e-12,
            "{row}"
        );
    }
    let mut config = config(&place.path().join("run"), &data, &["model.given_split=3"]);
    let error = (families::of(&config.model).open)(&mut config).err().unwrap();
    assert!(error.to_string().contains("splits/3/train.index"), "{error}");
}
