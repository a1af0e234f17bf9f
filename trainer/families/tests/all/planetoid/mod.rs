//! Classes of nodes, from a folder to an accuracy: bytes, masks, baselines, and the published data sets where they are there.

mod data;
mod published;
mod spreading;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_configs::Config;
use segue_engine::Outcome;
use segue_families::MODELS;
use segue_kernels::{Compute, libtorch};
use segue_planetoid::{Predictor, negative_contexts};
use segue_random::{Purpose, Stream};
use serde_json::Value;
use tch::Tensor;

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
    "train.pretrain_label=3",
    "train.pretrain_contexts=3",
    "model.d_embed=6",
    "train.context_batch=10",
    "train.label_batch=7",
    "train.batch=8",
    "train.steps=14",
    "eval.every=4",
    "checkpoint.every=3",
    "log.every=100",
];

/// What a variant needs beside [`SHORT`].
const VARIANTS: [&[&str]; 9] = [
    &["model.variant=transductive", "train.context_steps=0.5"],
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
        "train.context_steps=1",
    ],
    &["model.variant=inductive", "train.context_steps=0.5", "model.contexts=negative", "model.negatives=2"],
    &["model.variant=graph", "model.context_mean=true", "optim.kind=adam", "optim.lr=0.01"],
    &["model.variant=graph-embedding"],
    &["model.variant=features"],
    &["model.variant=manireg", "train.context_steps=1"],
    &["model.variant=semiemb", "train.context_steps=1"],
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
    let job = (segue_family::of(&config.model).open)(&mut config).unwrap();
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

/// Rows P7, P9.
#[test]
fn checkpoints_have_the_same_bytes_at_1_2_and_4_ranks() {
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
/// Row P10.
#[test]
fn tables_updated_by_rows_have_the_bytes_of_whole_updates() {
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

/// Walks from nodes that have no neighbour meet nobody.
#[test]
fn steps_of_contexts_without_a_pair_leave_weights_finite() {
    let (place, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = write_graph(place.path(), as_it_is);
    fs::write(data.join("edges.txt"), "0 1\n").unwrap();
    let mean =
        ["model.variant=graph", "model.context_mean=true", "model.self_pairs=false", "model.starts=uniform"];
    let few = ["train.lanes=1", "train.context_batch=1", "train.pretrain_contexts=9"];
    for kind in ["sgd", "adam", "lamb"] {
        let kind = format!("optim.kind={kind}");
        let config =
            config(run.path(), &data, &[&SHORT[..], &mean, &few, &[&kind, "optim.lr=0.01"]].concat());
        train(&config, &Local, false);
        for name in ["embedding.weight", "contexts.weight", "output.weight"] {
            assert!(weights(run.path(), name).iter().all(|value| value.is_finite()), "{kind}: {name}");
        }
        fs::remove_dir_all(run.path()).unwrap();
    }
}

/// Row P10.
#[test]
fn a_run_stopped_at_every_step_ends_with_the_same_bytes() {
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
/// Rows P9, P20.
#[test]
fn training_reads_nothing_of_test_nodes() {
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

/// The features of the nodes that are neither labelled nor tested do enter where a penalty or contexts are paid for them.
/// Rows P9, P13.
#[test]
fn training_reads_the_features_of_unlabelled_nodes() {
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

/// Row P11.
#[test]
fn a_classifier_of_embeddings_leaves_them_as_contexts_made_them() {
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
/// Row P13.
#[test]
fn manifold_regularisation_without_weight_is_the_linear_softmax() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let of = |overrides: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        train(&config(folder.path(), &data, &[&SHORT[..], overrides].concat()), &Local, false);
        ["output.weight", "output.bias"].map(|name| weights(folder.path(), name))
    };
    let linear = of(&["model.variant=features", "train.steps=7"]);
    let penalised =
        |lambda: &str| of(&["model.variant=manireg", "train.context_steps=1", lambda, "train.steps=14"]);
    assert!(penalised("model.lambda=0") == linear);
    assert!(penalised("model.lambda=1") != linear);
    // And the other penalty, likewise, against the same network that is trained by labels alone.
    let embedded = |more: &[&str]| of(&[&["model.variant=semiemb", "model.lambda=0"], more].concat());
    assert!(
        embedded(&["train.steps=14", "train.context_steps=1"])
            == embedded(&["train.steps=7", "train.context_steps=0"])
    );
}

/// A difference along an edge costs its weight: weights of 4 and a λ of a quarter are weights of 1 and a λ of 1, bit by bit, as powers of two
/// lose nothing. Weights that differ are other penalties.
/// Row P13.
#[test]
fn penalties_are_paid_by_the_weight_of_edges() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let edges = fs::read_to_string(data.join("edges.txt")).unwrap();
    let weigh = |weight: &dyn Fn(usize) -> u32| {
        let lines = edges.lines().enumerate().map(|(at, edge)| format!("{edge} {}\n", weight(at)));
        fs::write(data.join("edges.txt"), lines.collect::<String>()).unwrap();
    };
    let of = |variant: &str, lambda: &str| {
        let folder = tempfile::tempdir().unwrap();
        let overrides = [&SHORT[..], &[variant, lambda, "train.context_steps=1"]].concat();
        train(&config(folder.path(), &data, &overrides), &Local, false);
        fs::read(folder.path().join("checkpoints/latest/model.safetensors")).unwrap()
    };
    for variant in ["model.variant=manireg", "model.variant=semiemb"] {
        weigh(&|_| 1);
        let plain = of(variant, "model.lambda=1");
        weigh(&|_| 4);
        assert!(of(variant, "model.lambda=0.25") == plain, "{variant}");
        assert!(of(variant, "model.lambda=1") != plain, "{variant}");
        weigh(&|at| 1 + 3 * (at % 2) as u32);
        let mixed = [of(variant, "model.lambda=1"), of(variant, "model.lambda=0.25")];
        assert!(!mixed.contains(&plain), "{variant}");
    }
}

/// Nodes of the graph and unseen rows are predicted alike, where both have the same features.
/// Row P9.
#[test]
fn unseen_nodes_are_predicted_by_their_features() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let run = tempfile::tempdir().unwrap();
    train(&config(run.path(), &data, &[&SHORT[..], VARIANTS[2]].concat()), &Local, false);
    let predictor = Predictor::open(&segue_families::MODELS, run.path()).unwrap();
    let material = predictor.material(None).unwrap();
    let of_nodes = predictor.predict(&material, &material.data.test).unwrap();
    let of_rows = predictor.predict_rows(&material.data.features.select(&material.data.test)).unwrap();
    let shares = |found: &[segue_planetoid::Prediction]| -> Vec<Vec<f32>> {
        found.iter().map(|found| found.probabilities.clone()).collect()
    };
    assert_eq!(shares(&of_nodes), shares(&of_rows));
    let embeddings = predictor.embeddings(&material, &[0, 1]).unwrap();
    assert_eq!(embeddings.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);

    let run = tempfile::tempdir().unwrap();
    train(&config(run.path(), &data, &[&SHORT[..], VARIANTS[0]].concat()), &Local, false);
    let error = Predictor::open(&segue_families::MODELS, run.path())
        .unwrap()
        .predict_rows(&material.data.features)
        .unwrap_err();
    assert!(error.to_string().contains("nodes of its graph alone"), "{error}");
}

/// Communities are told apart by the graph and by features, and better than by guessing.
/// Row P7.
#[test]
fn communities_are_learnt() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let accuracy = |overrides: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let found = evaluation(folder.path(), &data, overrides);
        assert_eq!(found["nodes"], TESTED);
        found["accuracy"].as_f64().unwrap()
    };
    let usual = [
        "train.pretrain_label=200",
        "train.pretrain_contexts=100",
        "train.steps=700",
        "train.context_batch=40",
    ];
    for variant in ["transductive", "inductive", "graph"] {
        let variant = format!("model.variant={variant}");
        let found = accuracy(&[&usual[..], &[&variant]].concat());
        assert!(found > 0.6, "{variant}: {found}");
    }
}

/// Mean accuracies over three splits of the communities: features with the graph say more than features, and more than the graph.
/// Rows P7, P9, P11, P12.
#[test]
fn methods_keep_their_order_on_communities() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let walks =
        ["train.pretrain_contexts=100", "train.context_batch=40", "model.d_embed=8", "train.steps=500"];
    let mean = |variant: &str, more: &[&str]| {
        let of = |seed: u64| {
            let folder = tempfile::tempdir().unwrap();
            let keys = [
                format!("model.variant={variant}"),
                format!("data.split_seed={seed}"),
                format!("train.seed={seed}"),
            ];
            let keys = keys.each_ref().map(String::as_str);
            let split = ["data.split_per_class=3", "data.split_test=60"];
            let found = evaluation(folder.path(), &data, &[&keys[..], &split, more].concat());
            found["accuracy"].as_f64().unwrap()
        };
        let mean = [1, 2, 3].map(of).iter().sum::<f64>() / 3.0;
        println!("{variant}: {mean:.3}");
        mean
    };
    let contexts = |pretrain_label: &'static str| [&walks[..], &[pretrain_label]].concat();
    let labelled = contexts("train.pretrain_label=100");
    let features = mean("features", &["train.steps=300"]);
    let [inductive, graph, both] =
        ["inductive", "graph", "transductive"].map(|variant| mean(variant, &labelled));
    let embedding = mean("graph-embedding", &contexts("train.pretrain_label=0"));
    let spread = mean("label-propagation", &["train.steps=100", "optim.lr=1"]);
    // Features alone, then with the graph around them, then with embeddings of the graph.
    assert!(features > 0.7 && inductive > features + 0.04 && both > inductive + 0.04);
    assert!(graph > 0.7 && both > graph + 0.1);
    // Those of the graph alone: communities hang together.
    assert!(embedding > 0.85 && spread > 0.9);
}

/// Of both tables, in double precision: a node may be an anchor twice, and a context with either sign.
/// Row P4.
#[test]
fn gradients_of_nodes_and_of_contexts_are_finite_differences() {
    let table = |shift: f64| {
        let values: Vec<f64> = (0..15).map(|at| (shift + 1.7 * f64::from(at)).sin()).collect();
        Tensor::from_slice(&values).view([5, 3])
    };
    let pairs = [[0i64, 1, 1, 4, 1], [2, 1, 2, 0, 1]].map(|numbers| Tensor::from_slice(&numbers));
    let signs = Tensor::from_slice(&[1.0, -1.0, -1.0, 1.0, 1.0]);
    let loss = |tables: &[Tensor; 2]| {
        let [e, w] = [0, 1].map(|at| tables[at].index_select(0, &pairs[at]));
        negative_contexts(&e, &w, &signs)
    };
    let leaves = [0.3, 2.9].map(|shift| table(shift).set_requires_grad(true));
    let gradients = Tensor::run_backward(&[loss(&leaves)], &leaves, false, false);
    for which in 0..2 {
        for place in 0..15 {
            let moved = |by: f64| {
                let tables = leaves.each_ref().map(|leaf| leaf.detach().copy());
                let _ = tables[which].view([-1]).narrow(0, place, 1).g_add_scalar_(by);
                loss(&tables).double_value(&[])
            };
            let difference = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            let found = gradients[which].view([-1]).double_value(&[place]);
            assert!((found - difference).abs() < 1e-8, "table {which}, {place}: {found}, not {difference}");
        }
    }
}

/// The text's own sampler and loop (Yang 2019, algorithms 2 and 3), with r1 as it is printed, five true pairs to a drawn one, and the other
/// way round, five drawn ones to a true one: both learn communities.
/// Row P8.
#[test]
fn both_readings_of_r1_learn_communities() {
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
        "train.pretrain_label=0",
        "train.pretrain_contexts=1000",
        "train.context_steps=1",
        "train.context_batch=40",
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

/// Without features the transductive model is that of the graph alone, bit by bit, with its predictions: where rows hold nothing, and where no
/// node has a row. One feature of one node is enough for a model that reads it.
/// Row P19.
#[test]
fn without_features_the_transductive_model_is_the_one_of_the_graph_alone() {
    let places = [0, 1, 2].map(|_| tempfile::tempdir().unwrap());
    let zeros = write_graph(places[0].path(), |_, _, row| row.clear());
    let none = write_graph(places[1].path(), as_it_is);
    fs::remove_file(none.join("features.svm")).unwrap();
    fs::write(none.join("sizes.txt"), format!("nodes {NODES}\ncolumns 0\nclasses {CLASSES}\n")).unwrap();
    let single = write_graph(places[2].path(), |node, _, row| row.truncate(usize::from(node == LABELLED)));
    let of = |data: &Path, variant: &str, ranks: usize| {
        let folder = tempfile::tempdir().unwrap();
        let variant = format!("model.variant={variant}");
        let more = [variant.as_str(), "train.context_steps=0.5", "model.update_embedding=false"];
        let config = config(folder.path(), data, &[&SHORT[..], &more].concat());
        let found = simulated::run(ranks, |comm| train(&config, comm, false)).remove(0).evaluation.unwrap();
        let predictor = Predictor::open(&segue_families::MODELS, folder.path()).unwrap();
        let predictions = predictor.predict(&predictor.material(None).unwrap(), &[0, 40, 80]).unwrap();
        (bytes(folder.path()), found["accuracy"].clone(), predictions)
    };
    for data in [&zeros, &none] {
        let graph = of(data, "graph", 1);
        for ranks in [1, 2, 4] {
            assert!(of(data, "transductive", ranks) == graph, "{}, {ranks} ranks", data.display());
        }
    }
    assert!(of(&single, "transductive", 1).0 != of(&single, "graph", 1).0);
}
