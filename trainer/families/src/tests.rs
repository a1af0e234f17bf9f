//! The family that docs/book/src/contributing/adding-a-family.md makes is compiled and trained here, and the page shows its files word for word.

use std::path::Path;
use std::sync::LazyLock;

use segue_collectives::simulated;
use segue_configs::Models;
use segue_kernels::Compute;

#[path = "../../../docs/adding-a-family/lib.rs"]
mod slope;

const PAGE: &str = include_str!("../../../docs/book/src/contributing/adding-a-family.md");
const FILES: [(&str, &str); 5] = [
    ("toml", include_str!("../../../docs/adding-a-family/Cargo.toml")),
    ("rust", include_str!("../../../docs/adding-a-family/config.rs")),
    ("rust", include_str!("../../../docs/adding-a-family/model.rs")),
    ("rust", include_str!("../../../docs/adding-a-family/lib.rs")),
    ("toml", include_str!("../../../docs/adding-a-family/slope.toml")),
];

static MODELS: LazyLock<Models> = LazyLock::new(|| Models::new(vec![(slope::FAMILY.section)()]));

#[test]
fn the_page_on_adding_a_family_shows_the_files_of_one() {
    // The test that the reader writes is the one block of code without a file.
    assert_eq!(PAGE.matches("\n```rust\n").count(), 4);
    for (language, text) in FILES {
        let first = text.lines().next().unwrap_or_default();
        assert!(
            PAGE.contains(&format!("\n```{language}\n{text}```\n")),
            "another file than the page shows: {first}"
        );
    }
}

/// How far a run on so many ranks ends from the truth, and its weights.
fn trained(ranks: usize) -> (f64, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
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
    let (distance, bytes) = trained(1);
    assert!(distance < 0.01, "{distance}");
    for ranks in [2, 4] {
        assert!(trained(ranks).1 == bytes, "{ranks} ranks");
    }
}
