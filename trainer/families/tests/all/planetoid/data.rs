//! The data of a run: what cannot be learnt from, graphs other than that of the training, and splits that are drawn or given.

use std::fs;
use std::path::Path;

use segue_collectives::local::Local;
use segue_engine::Event;
use segue_kernels::{Compute, libtorch};
use segue_planetoid::Predictor;

use super::{
    CLASSES, COLUMNS, LABELLED, NODES, SHORT, TESTED, VARIANTS, as_it_is, bytes, config, evaluation, train,
    weights, write_graph,
};

/// Every method, those that read the features of unlabelled nodes among them, from pickles as Python 2 writes them, one of whose nodes is in no
/// matrix: to the bytes that the text beside them gives.
/// Rows P1, P9, P13.
#[test]
fn pickles_of_python_2_train_every_method_as_their_text_does() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/planetoid");
    for variant in VARIANTS {
        let of = |name: &str| {
            let folder = tempfile::tempdir().unwrap();
            let found = evaluation(folder.path(), &published.join(name), &[&SHORT[..], variant].concat());
            (bytes(folder.path()), found)
        };
        assert!(of("python2-protocol2") == of("text"), "{variant:?}");
    }
}

/// A file of features that is missing is told of, and is no mistake where entities and relations have none.
/// Row P19.
#[test]
fn a_graph_without_features_is_told_of_where_they_would_be_read() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let warnings = |variant: &str| -> Vec<String> {
        libtorch::set_threads(1);
        let folder = tempfile::tempdir().unwrap();
        let variant = format!("model.variant={variant}");
        let mut config = config(folder.path(), &data, &[&SHORT[..], &[variant.as_str()]].concat());
        let job = (segue_family::of(&config.model).open)(&mut config).unwrap();
        let mut told = Vec::new();
        let mut listen = |event| {
            if let Event::Warning { what } = event {
                told.push(what);
            }
        };
        job.train(&config, Compute::CPU, &Local, &|| false, &mut listen).unwrap();
        told
    };
    assert!(warnings("transductive").is_empty());
    fs::remove_file(data.join("features.svm")).unwrap();
    let told = warnings("transductive");
    assert!(
        told.len() == 1 && told[0].contains("has no features: it trains as model.variant=graph\nhint: "),
        "{told:?}"
    );
    assert!(warnings("graph").is_empty());
}

/// Means over no edges would be no numbers.
/// Row P13.
#[test]
fn penalties_without_an_edge_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    // Nodes of one class apart: the last labelled one and the first tested one, of which training sees the first alone.
    fs::write(data.join("edges.txt"), format!("{} {}\n", LABELLED - 1, NODES - TESTED)).unwrap();
    for variant in ["model.variant=manireg", "model.variant=semiemb"] {
        let overrides = [&SHORT[..], &[variant, "train.context_steps=1"]].concat();
        let mut config = config(place.path(), &data, &overrides);
        let error = (segue_family::of(&config.model).open)(&mut config).err().unwrap();
        assert!(error.to_string().contains("joins no two nodes"), "{error}");
    }
}

/// Disjoint nodes, as many of each class as were asked for, and another split for another seed.
/// Row P20.
#[test]
fn splits_that_are_drawn_change_what_is_learnt() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let of = |seed: &str| {
        let folder = tempfile::tempdir().unwrap();
        let split = [seed, "data.split_per_class=5", "data.split_test=40", "model.variant=features"];
        let found = evaluation(folder.path(), &data, &[&SHORT[..], &split].concat());
        let predictor = Predictor::open(&segue_families::MODELS, folder.path()).unwrap();
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
    let (one, two) = (of("data.split_seed=1"), of("data.split_seed=2"));
    assert!(one.0 != two.0 && one.1 != two.1);
}

#[test]
fn data_that_cannot_be_learnt_from_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    let open = |overrides: &[&str]| {
        let mut config = config(&place.path().join("run"), &data, overrides);
        (segue_family::of(&config.model).open)(&mut config).err().unwrap()
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
        assert!((segue_family::of(&config.model).open)(&mut config).is_ok(), "{accepted}");
    }
    fs::write(data.join("train.index"), "").unwrap();
    let error = open(&[]);
    assert!(error.to_string().contains("no labelled nodes"), "{error}");
}

/// Embeddings are of the nodes they were trained for, in their order; weights of features do for any graph.
/// Row P9.
#[test]
fn a_model_with_embeddings_takes_the_graph_of_its_training_alone() {
    let [first, second] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let data = write_graph(first.path(), as_it_is);
    let other = write_graph(second.path(), |node, label, _| *label = if node == 50 { -1 } else { *label });
    for (variant, expected) in [("transductive", false), ("graph", false), ("inductive", true)] {
        let run = tempfile::tempdir().unwrap();
        let variant = format!("model.variant={variant}");
        train(&config(run.path(), &data, &[&SHORT[..], &[&variant]].concat()), &Local, false);
        let predictor = Predictor::open(&segue_families::MODELS, run.path()).unwrap();
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
    let split = ["data.split_seed=4", "data.split_per_class=4", "data.split_test=30"];
    for variant in ["model.variant=inductive", "model.variant=manireg", "model.variant=features"] {
        let run = tempfile::tempdir().unwrap();
        train(&config(run.path(), &data, &[&SHORT[..], &split, &[variant]].concat()), &Local, false);
        let predictor = Predictor::open(&segue_families::MODELS, run.path()).unwrap();
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

/// Recall of each class by hand: test nodes among the `k` first of `nodes` by their probability of it, and the mean over classes.
fn recall(predictor: &Predictor, nodes: &[u32], k: usize) -> f64 {
    let material = predictor.material(None).unwrap();
    let mut found = predictor.predict(&material, nodes).unwrap();
    let of_class = |class: usize| {
        found.sort_by(|one, other| other.probabilities[class].total_cmp(&one.probabilities[class]));
        let label = |node: u32| material.data.labels[node as usize] == Some(class as u32);
        let of_test = |node: &u32| label(*node) && material.data.test.contains(node);
        let first = found[..k].iter().filter(|found| of_test(&found.node)).count();
        first as f64 / material.data.test.iter().filter(|node| label(**node)).count() as f64
    };
    (0..CLASSES).map(of_class).sum::<f64>() / CLASSES as f64
}

/// DIEL's protocol: splits that are given, and the recall of each class among the nodes of the highest probability, of all that no label is known of.
/// Rows P16, P18.
#[test]
fn recall_over_splits_that_are_given_is_among_all_that_is_not_trained_on() {
    let place = tempfile::tempdir().unwrap();
    let data = write_graph(place.path(), as_it_is);
    for (number, train, test) in [(1, 0..9, 30..60), (2, 3..12, 60..66)] {
        let folder = data.join(format!("splits/{number}"));
        fs::create_dir_all(&folder).unwrap();
        let lines = |nodes: std::ops::Range<usize>| nodes.map(|node| format!("{node}\n")).collect::<String>();
        fs::write(folder.join("train.index"), lines(train)).unwrap();
        fs::write(folder.join("test.index"), lines(test)).unwrap();
    }
    // A model that reads features alone ranks nodes that have some: the last node has none.
    let features = fs::read_to_string(data.join("features.svm")).unwrap();
    let last = format!("{} ", NODES - 1);
    let kept: String = features.lines().filter(|l| !l.starts_with(&last)).map(|l| format!("{l}\n")).collect();
    fs::write(data.join("features.svm"), kept).unwrap();
    let longer = ["train.pretrain_contexts=30", "train.steps=100"];
    for (variant, candidates) in [("transductive", NODES - 9), ("inductive", NODES - 9 - 1)] {
        let mut apart = 0;
        // Of ten test nodes of a class four are ranked first at most, of two both.
        for (number, trained, tested, ceiling) in [(1, 0..9, 30..60, 0.4), (2, 3..12, 60..66, 1.0)] {
            let run = tempfile::tempdir().unwrap();
            let given = [format!("data.given_split={number}"), format!("model.variant={variant}")];
            let given = [&given[0], &given[1], "eval.recall_at=4"];
            let row = evaluation(run.path(), &data, &[&SHORT[..], &longer, &given].concat());
            assert_eq!(row["nodes"], tested.len());
            assert_eq!((&row["k"], &row["candidates"]), (&4.into(), &candidates.into()));
            assert!((row["ceiling_at_k"].as_f64().unwrap() - ceiling).abs() < 1e-12, "{row}");
            let open: Vec<u32> = (0..NODES as u32)
                .filter(|node| !trained.contains(&(*node as usize)))
                .filter(|node| variant == "transductive" || *node as usize != NODES - 1)
                .collect();
            let predictor = Predictor::open(&segue_families::MODELS, run.path()).unwrap();
            let found = row["recall_at_k"].as_f64().unwrap();
            assert!((found - recall(&predictor, &open, 4)).abs() < 1e-12, "{row}");
            let of_tested: Vec<u32> = (tested.start as u32..tested.end as u32).collect();
            apart += usize::from(recall(&predictor, &of_tested, 4) > found + 0.1);
        }
        assert!(apart > 0, "{variant}: other nodes take no place");
    }
    let mut config = config(&place.path().join("run"), &data, &["data.given_split=3"]);
    let error = (segue_family::of(&config.model).open)(&mut config).err().unwrap();
    assert!(error.to_string().contains("splits/3/train.index"), "{error}");
}
