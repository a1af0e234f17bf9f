//! Parameters, operations and memory of runs, against counts by hand and published figures.

mod held;
mod plan;
mod turns;

use std::path::PathBuf;

use segue_configs::Config;
use segue_cost::*;
use segue_family::cost;

fn config(keys: &[&str]) -> Config {
    let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
    segue_families::MODELS.load(None, &overrides).unwrap().config
}

fn recipes() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/recipes"))
}

fn recipe(name: &str, keys: &[&str]) -> Config {
    let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
    segue_families::MODELS.load(Some(&recipes().join(name)), &overrides).unwrap().config
}

fn parameters(name: &str, keys: &[&str]) -> u64 {
    cost(&recipe(name, keys), 1).unwrap().parameters
}

/// The integers of the reference programs' own counts (docs/book/src/contributing/expected-values.md).
/// Row T26.
#[test]
fn recipes_have_the_published_parameters() {
    for (name, keys, count) in [
        ("enwik8-base.toml", &[][..], 41_055_436),
        ("enwik8-large.toml", &[], 277_231_820),
        ("text8-large.toml", &[], 277_050_395),
        ("wikitext103-base.toml", &[], 151_107_538),
        ("wikitext103-base.toml", &["model.untie_r=true"], 151_119_838),
        ("wikitext103-large.toml", &[], 285_170_506),
        ("wikitext103-large.toml", &["model.n_layer=16"], 257_889_098),
        ("lm1b-base.toml", &[], 466_962_273),
        ("lm1b-large.toml", &[], 838_078_041),
    ] {
        assert_eq!(parameters(name, keys), count, "{name} {keys:?}");
    }
}

/// Row T26.
#[test]
fn every_recipe_agrees_with_what_it_says_is_published() {
    let mut seen = 0;
    for entry in std::fs::read_dir(recipes()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut config = recipe(&name, &[]);
        if config.model.vocab_size() == 0 {
            continue;
        }
        // Widths within a budget follow from it.
        config.model.fit_vocabulary(0, None).unwrap();
        let cost = cost(&config, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
        let published = &config.published;
        if published.parameters > 0 {
            assert_eq!(cost.parameters, published.parameters, "{name}");
        }
        // Yang 2019 rounds to millions, or to hundredths or tenths of a billion. Its 257M are those
        // of 16 of the 18 layers; Al-Rfou's 44M hold the auxiliary outputs too.
        let rounded = cost.parameters as f64;
        let close = match published.thesis_parameters.as_str() {
            "" => true,
            "257M" => name == "wikitext103-large.toml",
            "44M" => name == "alrfou-enwik8.toml",
            text if text.ends_with('B') => {
                let billions: f64 = text.trim_end_matches('B').parse().unwrap();
                (rounded / 1e9 - billions).abs() < 0.05
            }
            text => {
                let millions: f64 = text.trim_end_matches('M').parse().unwrap();
                (rounded / 1e6 - millions).abs() < 1.0
            }
        };
        assert!(close, "{name}: {} against {}", cost.parameters, published.thesis_parameters);
        seen += 1;
    }
    assert!(seen >= 17, "only {seen} recipes say their vocabulary");
}

/// Row T13.
#[test]
fn tied_and_shared_parameters_count_once() {
    // By hand: 10 words of width 4; tail of 6 words of width 2.
    let keys = [
        "model.vocab_size=10",
        "model.cutoffs=[4]",
        "model.div_val=2",
        "model.d_model=4",
        "model.n_head=1",
        "model.d_inner=8",
        "model.n_layer=1",
        "model.untie_r=false",
    ];
    let parts = cost(&config(&keys), 1).unwrap().parameters_by_part;
    assert_eq!(parts.embedding, 4 * 4 + 6 * 2);
    // Input 4x4 and 4x2; output 4x4, the tail's being the input's.
    assert_eq!(parts.projections, 16 + 8 + 16);
    assert_eq!(parts.softmax, 10 + 4 + 1);
    // qkv, r, o; u and v; two norms; feed-forward with biases.
    assert_eq!(parts.layers, 5 * 16 + 2 * 4 + 4 * 4 + 2 * 32 + 8 + 4);
    let untied = [&keys[..], &["model.tie_word_embeddings=false", "model.proj_share_all_but_first=false"]];
    let more = cost(&config(&untied.concat()), 1).unwrap().parameters;
    assert_eq!(more, parts.total() + (16 + 12) + 8);
}

/// By hand: a layer has weights of inputs, of states, and biases of four gates.
#[test]
fn parameters_of_a_recurrent_model_are_told_by_part() {
    let keys = [
        "model.model_type=lstm",
        "model.vocab_size=10",
        "model.d_model=4",
        "model.d_embed=3",
        "model.n_layer=2",
    ];
    let parts = cost(&config(&keys), 1).unwrap().parameters_by_part;
    assert_eq!((parts.embedding, parts.projections, parts.softmax, parts.head), (10 * 3, 4 * 3, 10, 0));
    let gates = |inputs: u64| 4 * (4 * inputs + 4 * 4 + 4);
    assert_eq!(parts.layers, gates(3) + gates(4));
    // The last layer's gradient is there before the first one's, and the input's comes last.
    let work = segue_family::work(&config(&keys)).unwrap();
    let ready = |name: &str| {
        let place = work.specs.iter().position(|spec| spec.name.starts_with(name)).unwrap();
        work.roles[place].ready(0.5, 2.0)
    };
    assert_eq!(["output.", "layers.1.", "layers.0.", "embedding."].map(ready), [0.5, 0.75, 1.0, 1.0]);
}

/// benchmarks/2026-11-two-cores.md: a step of `bench step` with 16 lanes is 109 GFLOP.
#[test]
fn operations_are_those_of_the_measured_step() {
    let config = config(&[
        "model.vocab_size=8000",
        "model.d_model=256",
        "model.d_inner=1024",
        "model.n_layer=6",
        "train.lanes=16",
        "train.micro_batch=8",
    ]);
    let cost = cost(&config, 2).unwrap();
    let step = cost.training_flops_per_token.most * cost.tokens_per_step as f64;
    assert_eq!((step / 1e9).round(), 109.0);
}

#[test]
fn recomputed_layers_cost_a_forward_pass_and_keep_their_inputs() {
    for (model, rows) in [("transfo-xl", 128), ("xlnet", 128 + 20)] {
        let at = |layers: u64, recompute: bool| {
            let keys = [
                format!("model.model_type={model}"),
                format!("model.n_layer={layers}"),
                format!("train.recompute={recompute}"),
                "model.vocab_size=100".into(),
                "model.d_model=64".into(),
                "model.n_head=4".into(),
                "train.segment=128".into(),
                "train.lanes=8".into(),
                "train.micro_batch=8".into(),
            ];
            let pairs = ["model.reuse_len=64".to_string(), "pairs.num_predict=20".into()];
            let keys = keys.iter().chain(pairs.iter().filter(|_| model == "xlnet"));
            cost(&config(&keys.map(String::as_str).collect::<Vec<_>>()), 1).unwrap()
        };
        // Two layers are made again, the last is not.
        let more = at(3, true).training_flops_per_token.most - at(3, false).training_flops_per_token.most;
        let two = at(3, false).forward_flops_per_token.most - at(1, false).forward_flops_per_token.most;
        assert!((more / two - 1.0).abs() < 1e-9, "{model}: {more} and {two}");
        assert_eq!(at(3, true).forward_flops_per_token, at(3, false).forward_flops_per_token);
        let activations = |layers| at(layers, true).memory_per_rank.activations.most;
        assert_eq!(activations(7) - activations(3), 4.0 * (8 * rows * 64 * VALUE_BYTES) as f64, "{model}");
        assert!(activations(7) < 0.4 * at(7, false).memory_per_rank.activations.most);
    }
}

#[test]
fn memory_of_a_rank_is_that_of_its_lanes() {
    let config = config(&["model.vocab_size=100", "train.lanes=32", "train.micro_batch=4"]);
    let (one, four) = (cost(&config, 1).unwrap(), cost(&config, 4).unwrap());
    let weights = one.parameters * 4;
    // 8 micro-steps: sums of 1, 2, 4 and 8. On four ranks each has 2: sums of 1 and 2.
    assert_eq!(one.memory_per_rank.gradients, 4 * weights);
    assert_eq!(four.memory_per_rank.gradients, 2 * weights);
    assert_eq!(one.memory_per_rank.segment_memory, 2 * 32 * 6 * 128 * 256 * 4);
    assert_eq!(four.memory_per_rank.segment_memory, one.memory_per_rank.segment_memory / 4);
    let checkpoint = four.checkpoint;
    assert_eq!(checkpoint.carry, 32 * 6 * 128 * 256 * 4);
    assert_eq!(checkpoint.disk, 3 * weights + checkpoint.carry);
    assert_eq!(checkpoint.held_by_rank_0, 3 * weights + checkpoint.carry / 4);
    assert_eq!(checkpoint.held_by_others, checkpoint.carry / 4);
    assert!(cost(&config, 3).unwrap_err().to_string().contains("3 ranks do not divide"));
}

#[test]
fn ranks_that_divide_moments_and_gradients_hold_a_part_of_each() {
    let costs = |shard: &str, lanes: &str| {
        let config =
            config(&["model.vocab_size=100", "train.micro_batch=4", "train.bucket_bytes=4", shard, lanes]);
        (cost(&config, 1).unwrap(), cost(&config, 4).unwrap())
    };
    for shard in ["train.shard=optimizer", "train.shard=gradients"] {
        let (one, four) = costs(shard, "train.lanes=32");
        let weights = one.parameters * 4;
        assert_eq!(one.memory_per_rank.optimizer, 2 * weights);
        assert_eq!(four.memory_per_rank.optimizer, weights / 2);
        // Two micro-steps a rank: sums of 1 and 2.
        assert_eq!(four.memory_per_rank.gradients, 2 * weights);
        assert_eq!(four.checkpoint.disk, one.checkpoint.disk);
        assert_eq!(four.checkpoint.held_by_rank_0, weights * 3 / 2 + four.checkpoint.carry / 4);
        assert_eq!(four.checkpoint.held_by_others, weights / 2 + four.checkpoint.carry / 4);
    }
    // An average is gathered in the place of the trained weights, of which each rank keeps a copy meanwhile.
    let keys = ["model.vocab_size=100", "train.micro_batch=4", "train.lanes=32", "average.kind=polyak"];
    let held = |shard: &str| cost(&config(&[&keys[..], &[shard]].concat()), 4).unwrap();
    let (alike, divided) = (held("train.shard=none"), held("train.shard=optimizer"));
    assert_eq!(alike.checkpoint.held_by_others, alike.checkpoint.carry / 4);
    assert_eq!(divided.checkpoint.held_by_others, alike.checkpoint.carry / 4 + alike.parameters * 4);
    let (_, four) = costs("train.shard=gradients", "train.lanes=16");
    // The largest parameter, a feed-forward matrix, is a bucket of its own.
    assert_eq!(four.memory_per_rank.gradients, four.parameters + 256 * 1024 * 4);
    let (_, four) = costs("train.shard=optimizer", "train.lanes=16");
    assert_eq!(four.memory_per_rank.gradients, 4 * four.parameters);
}
