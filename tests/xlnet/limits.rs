//! Row X18: what permutation language modelling can learn and denoising cannot (two equal tokens; docs/book/src/contributing/expected-values.md).

use segue_collectives::local::Local;
use segue_engine::Engine;
use segue_kernels::libtorch;
use segue_language as objective;
use tch::Kind;

use crate::losses::{batch, small, uniform};

/// Words that the two equal tokens are drawn from.
const VOCABULARY: u64 = 8;
/// Stands for a corrupted token.
const MASK: i64 = 11;

/// Loss of a pair of equal tokens that nothing else tells of, in nats, after training.
fn pair_loss(kind: &str) -> f64 {
    libtorch::set_threads(1);
    let config = small(&[&format!("objective.kind={kind}")]);
    let mut engine =
        Engine::new(&config, objective::build(&config, segue_kernels::Compute::CPU).unwrap(), &Local)
            .unwrap();
    let make = |step| {
        let words = uniform(1, step, 32, VOCABULARY);
        let shown = |word: i64| if kind == "denoising" { MASK } else { word };
        let rows: Vec<[i64; 8]> =
            words.iter().map(|word| [9, 9, 9, 9, 9, shown(*word), shown(*word), 9]).collect();
        let targets: Vec<[i64; 2]> = words.iter().map(|word| [*word, *word]).collect();
        let first: Vec<bool> = uniform(2, step, 32, 2).iter().map(|coin| *coin == 1).collect();
        batch(&rows, &targets, &first, &[0; 32])
    };
    for step in 1..=300 {
        engine.step(step, &vec![make(step)]).unwrap();
    }
    let mean = |step| {
        let nll = engine.learner.score(&make(step), &engine.learner.memory_start(32)).nll;
        2.0 * nll.mean(Kind::Double).double_value(&[])
    };
    (0..20).map(|i| mean(1_000_000 + i)).sum::<f64>() / 20.0
}

/// Row X18.
#[test]
fn denoising_stays_at_twice_ln_v_and_permutation_reaches_ln_v() {
    let limit = (VOCABULARY as f64).ln();
    let (denoising, permutation) = (pair_loss("denoising"), pair_loss("permutation"));
    println!(
        "denoising {denoising:.4} of 2 ln V = {:.4}, permutation {permutation:.4} of ln V = {limit:.4}",
        2.0 * limit
    );
    // The uniform distribution over 640 draws is not exactly uniform: a few percent of room.
    assert!((denoising - 2.0 * limit).abs() < 0.05 * limit, "{denoising} against {}", 2.0 * limit);
    assert!((permutation - limit).abs() < 0.05 * limit, "{permutation} against {limit}");
}
