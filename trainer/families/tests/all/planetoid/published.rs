//! Accuracies on the published data sets, where these lie beside the project.

use std::path::{Path, PathBuf};

use segue_collectives::local::Local;
use segue_families::MODELS;
use segue_measure::mean_silhouette;
use segue_planetoid::Predictor;

use super::train;

/// A published data set, where it is there.
fn published(name: &str) -> Option<PathBuf> {
    segue_skip::shared_data(&format!("planetoid/{name}"))
}

/// Trains by a recipe.
fn by_recipe(run: &Path, recipe: &str, data: &Path, overrides: &[&str]) -> f64 {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../configs/recipes/{recipe}.toml"));
    let own = [format!("run.dir={}", run.display()), format!("data.corpus={}", data.display())];
    let rest = ["log.every=100000", "eval.every=0", "checkpoint.every=0", "train.lanes=1"];
    let all: Vec<String> =
        own.into_iter().chain(rest.iter().chain(overrides).map(|s| s.to_string())).collect();
    let config = MODELS.load(Some(&recipe), &all).unwrap().config;
    train(&config, &Local, false).evaluation.unwrap()["accuracy"].as_f64().unwrap()
}

fn within(accuracy: f64, low: f64, high: f64, what: &str) {
    println!("{what}: accuracy {accuracy:.3}, expected {low} to {high}");
    assert!((low..=high).contains(&accuracy), "{what}: {accuracy}");
}

/// Accuracy of the last step on Cora, one seed of each: what a second program finds, with room for a seed.
/// Rows P7, P11.
#[test]
fn cora_is_classified_as_well_as_by_a_second_program() {
    let Some(cora) = published("cora") else { return };
    let of = |overrides: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        by_recipe(folder.path(), "planetoid-cora", &cora, overrides)
    };
    within(of(&["model.variant=features", "train.steps=1500"]), 0.56, 0.61, "Feat on Cora");
    within(of(&["model.variant=graph"]), 0.64, 0.70, "Planetoid-G on Cora");
}

/// The same of Citeseer, and of Planetoid-I on Cora.
/// Rows P7, P9.
#[test]
fn citeseer_and_unseen_nodes_of_cora_are_classified_as_well_as_by_a_second_program() {
    let (Some(citeseer), Some(cora)) = (published("citeseer"), published("cora")) else { return };
    let of = |data: &Path, overrides: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        by_recipe(folder.path(), "planetoid-cora", data, overrides)
    };
    within(of(&citeseer, &[]), 0.60, 0.66, "Planetoid-T on Citeseer");
    within(of(&cora, &INDUCTIVE), 0.60, 0.67, "Planetoid-I on Cora");
}

/// Planetoid-I as the public program trains it.
const INDUCTIVE: [&str; 9] = [
    "model.variant=inductive",
    "train.batch=20",
    "train.context_batch=20",
    "train.label_batch=20",
    "train.pretrain_label=10000",
    "train.pretrain_contexts=400",
    "train.context_steps=0.1",
    "model.lambda=0.01",
    "train.steps=11060",
];

/// Means of three seeds, and the order of the methods: minutes.
/// Rows P7, P9, P11.
#[test]
#[ignore = "minutes: make accuracies"]
fn three_seeds_of_each_method_are_within_the_bands_of_a_second_program() {
    let order = |found: &[f64], names: &str| assert!(found.is_sorted(), "{names}: {found:?}");
    let feat = ["model.variant=features", "train.steps=1500"];
    for (name, bands) in [
        ("cora", [(0.56, 0.61), (0.64, 0.70), (0.60, 0.67), (0.71, 0.78)]),
        ("citeseer", [(0.57, 0.62), (0.46, 0.53), (0.62, 0.67), (0.60, 0.66)]),
    ] {
        let Some(data) = published(name) else { return };
        let methods: [(&str, &[&str]); 4] = [
            ("Feat", &feat),
            ("Planetoid-G", &["model.variant=graph"]),
            ("Planetoid-I", &INDUCTIVE),
            ("Planetoid-T", &[]),
        ];
        let means: Vec<f64> = methods
            .iter()
            .zip(bands)
            .map(|((method, overrides), (low, high))| {
                let seeds = ["train.seed=1", "train.seed=2", "train.seed=3"].map(|seed| {
                    let folder = tempfile::tempdir().unwrap();
                    by_recipe(folder.path(), "planetoid-cora", &data, &[overrides, &[seed][..]].concat())
                });
                let mean = seeds.iter().sum::<f64>() / 3.0;
                within(mean, low, high, &format!("{method} on {name}, mean of {seeds:?}"));
                mean
            })
            .collect();
        let [feat, graph, inductive, both] = means[..] else { unreachable!() };
        match name {
            "cora" => {
                order(&[feat, graph, both], "Feat, G, T");
                order(&[feat, inductive, both], "Feat, I, T");
            }
            _ => order(&[graph, feat, both], "G, Feat, T"),
        }
    }
}

/// Planetoid-T and -G as table 3.6's sweep trains them: no node is a context of itself, twice the walks at half the rate.
const OF_THE_TABLE: [&str; 4] =
    ["model.self_pairs=false", "train.pretrain_contexts=140", "model.lambda=0.05", "train.steps=3640"];

/// GraphEmb likewise. Plain steps of a sum diverge for some seeds, and then any accuracy may come of them: hence the clip.
const GRAPH_EMBEDDING: [&str; 5] = [
    "model.variant=graph-embedding",
    "train.pretrain_label=0",
    "train.pretrain_contexts=140",
    "train.steps=1640",
    "optim.clip=200",
];

/// Means of three seeds with the settings of the table, and T above G above GraphEmb, as Yang 2019, table 3.6, has them: a minute or two.
/// Rows P7, P11.
#[test]
#[ignore = "minutes: make accuracies"]
fn three_seeds_with_the_settings_of_the_table_keep_its_order() {
    let Some(cora) = published("cora") else { return };
    let graph = [&OF_THE_TABLE[..], &["model.variant=graph"]].concat();
    let methods: [(&str, &[&str], f64, f64); 3] = [
        ("GraphEmb", &GRAPH_EMBEDDING, 0.62, 0.68),
        ("Planetoid-G", &graph, 0.68, 0.72),
        ("Planetoid-T", &OF_THE_TABLE, 0.735, 0.77),
    ];
    let means = methods.map(|(method, overrides, low, high)| {
        let seeds = ["train.seed=1", "train.seed=2", "train.seed=3"].map(|seed| {
            let folder = tempfile::tempdir().unwrap();
            by_recipe(folder.path(), "planetoid-cora", &cora, &[overrides, &[seed][..]].concat())
        });
        let mean = seeds.iter().sum::<f64>() / 3.0;
        within(mean, low, high, &format!("{method} of the table on cora, mean of {seeds:?}"));
        mean
    });
    assert!(means.is_sorted(), "GraphEmb, G, T: {means:?}");
}

/// 59 test nodes of Cora are out of reach of any label, and count as class 0.
/// Row P12.
#[test]
fn labels_spread_over_cora() {
    let Some(cora) = published("cora") else { return };
    let folder = tempfile::tempdir().unwrap();
    let overrides = ["model.variant=label-propagation", "optim.lr=1", "train.steps=3000"];
    let found = by_recipe(folder.path(), "planetoid-cora", &cora, &overrides);
    within(found, 0.7145, 0.7155, "LP on Cora");
}

/// The classes of Cora's test nodes lie further apart in the embedding that labels train too (Yang 2019, fig. 3.11).
/// Rows P7, P17.
#[test]
fn classes_lie_further_apart_with_labels_than_without() {
    let Some(cora) = published("cora") else { return };
    let of = |overrides: &[&str], low, high, what| {
        let folder = tempfile::tempdir().unwrap();
        within(by_recipe(folder.path(), "planetoid-cora", &cora, overrides), low, high, what);
        let predictor = Predictor::open(&segue_families::MODELS, folder.path()).unwrap();
        let material = predictor.material(None).unwrap();
        let test = &material.data.test;
        let classes: Vec<u32> = test.iter().filter_map(|node| material.data.labels[*node as usize]).collect();
        mean_silhouette(&predictor.embeddings(&material, test).unwrap(), &classes)
    };
    let with_labels = of(&[], 0.71, 0.78, "Planetoid-T on Cora");
    let without = of(&GRAPH_EMBEDDING, 0.63, 0.68, "GraphEmb on Cora");
    println!("mean silhouettes {with_labels:.4} and {without:.4}");
    assert!(with_labels > without);
}
