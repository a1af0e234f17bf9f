//! The family that docs/book/src/contributing/adding-a-family.md makes is compiled and trained here, and the page shows its files word for word.

use std::path::Path;
use std::sync::LazyLock;

use segue_collectives::local::Local;
use segue_collectives::simulated;
use segue_configs::Models;
use segue_decode::{Generator, Sampling};
use segue_engine::Watch;
use segue_family::{Asker, Evaluations, Predicts, Trained, Writes};
use segue_kernels::Compute;
use tempfile::TempDir;

#[path = "../../../docs/adding-a-family/lib.rs"]
mod slope;

const PAGE: &str = include_str!("../../../docs/book/src/contributing/adding-a-family.md");
const FILES: [(&str, &str); 6] = [
    ("toml", include_str!("../../../docs/adding-a-family/Cargo.toml")),
    ("rust", include_str!("../../../docs/adding-a-family/config.rs")),
    ("rust", include_str!("../../../docs/adding-a-family/model.rs")),
    ("rust", include_str!("../../../docs/adding-a-family/lib.rs")),
    ("rust", include_str!("../../../docs/adding-a-family/trained.rs")),
    ("toml", include_str!("../../../docs/adding-a-family/slope.toml")),
];

static MODELS: LazyLock<Models> = LazyLock::new(|| Models::new(vec![(slope::FAMILY.section)()]));

#[test]
fn the_page_on_adding_a_family_shows_the_files_of_one() {
    // The test that the reader writes is the one block of code without a file.
    assert_eq!(PAGE.matches("\n```rust\n").count(), 5);
    for (language, text) in FILES {
        let first = text.lines().next().unwrap_or_default();
        assert!(
            PAGE.contains(&format!("\n```{language}\n{text}```\n")),
            "another file than the page shows: {first}"
        );
    }
}

/// How far a run on so many ranks ends from the truth, and its weights. The run lies in `folder`.
fn trained(ranks: usize, folder: &TempDir) -> (f64, Vec<u8>) {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/adding-a-family/slope.toml");
    let overrides = [format!("run.dir={}", folder.path().display())];
    let mut config = MODELS.load(Some(&recipe), &overrides).unwrap().config;
    (slope::FAMILY.fit)(&mut config).unwrap();
    assert_eq!((slope::FAMILY.work)(&config).unwrap().specs.len(), 1);
    let outcomes = simulated::run(ranks, |comm| {
        let job = (slope::FAMILY.open)(&mut config.clone()).unwrap();
        job.train(&config, Compute::CPU, comm, &|| false, &mut |_| {}).unwrap()
    });
    let distance = outcomes[0].evaluation.as_ref().unwrap()["distance"].as_f64().unwrap();
    let weights = folder.path().join("checkpoints/latest/model.safetensors");
    (distance, std::fs::read(weights).unwrap())
}

#[test]
fn the_family_of_the_page_learns_alike_at_any_number_of_ranks() {
    let folder = || tempfile::tempdir().unwrap();
    let (distance, bytes) = trained(1, &folder());
    assert!(distance < 0.01, "{distance}");
    for ranks in [2, 4] {
        assert!(trained(ranks, &folder()).1 == bytes, "{ranks} ranks");
    }
}

#[test]
fn the_family_of_the_page_is_evaluated_and_writes() {
    let folder = tempfile::tempdir().unwrap();
    trained(1, &folder);
    let open = || Trained::open(&MODELS, folder.path()).unwrap();
    let Evaluations([asked]) = slope::FAMILY.capability().unwrap() else { panic!("one evaluation") };
    let (mut progress, mut lines) = (|_, _| {}, Vec::new());
    let mut tell = |line: &str| lines.push(line.to_string());
    let mut asker = Asker { comm: &Local, watch: Watch::new(&mut progress), tell: &mut tell };
    let given = (asked.options)(clap::Command::new("eval")).get_matches_from(["eval", "--at", "10"]);
    let answer = (asked.answer)(open(), &given, &mut asker).unwrap();
    assert!(answer.value["error"].as_f64().unwrap() < 0.1 && answer.value["at"] == 10.0, "{}", answer.value);
    assert!(lines.len() == 1 && lines[0].starts_with("y is off by"), "{lines:?}");
    let Writes(write) = slope::FAMILY.capability().unwrap();
    let writer = write(open(), None).unwrap();
    let prompt = writer.encode("3").unwrap();
    let greedy = Sampling { temperature: 0.0, ..Sampling::ALL };
    let written: Vec<i64> = Generator::new(writer.decoder(1, 1), &prompt, 8, greedy).take(4).collect();
    assert_eq!(writer.decode(&prompt, &written).whole, "6 12 24 48");
}

/// Options of a question stand on a command line once.
#[test]
fn families_that_share_a_question_are_asked_it_as_one() {
    let models: Vec<Vec<&str>> = crate::shared::<Predicts>().into_iter().map(|(models, _)| models).collect();
    let expected = [vec!["transfo-xl", "xlnet", "lstm"], vec!["planetoid"], vec!["complement-gan"]];
    assert_eq!(models, expected);
}

#[test]
fn names_of_other_programs_lead_to_keys_that_there_are() {
    let config = crate::MODELS.load(None, &[]).unwrap().config.to_json();
    for (name, key) in segue_configs::foreign::NAMES {
        let key = key.split('=').next().unwrap();
        assert!(config.pointer(&format!("/{}", key.replace('.', "/"))).is_some(), "{name}: {key}");
    }
}
