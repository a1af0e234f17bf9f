//! Rows X15 to X17: what is summed, and what labels teach.

use segue_collectives::local::Local;
use segue_configs::Config;
use segue_engine::Engine;
use segue_kernels::libtorch;
use segue_language as objective;
use segue_language::{Batch, Pairs};
use segue_random::{Purpose, Stream};
use tch::{Kind, Tensor};

/// Length of sequences; their first half is reused text.
const SEGMENT: i64 = 8;
const HALF: i64 = 4;

/// A small model for batches made by hand.
pub fn small(keys: &[&str]) -> Config {
    let base = [
        "model.model_type=xlnet",
        "model.vocab_size=12",
        "model.d_model=32",
        "model.n_head=2",
        "model.d_inner=64",
        "model.n_layer=2",
        "model.mem_len=0",
        "model.reuse_len=4",
        "model.dropout=0.0",
        "model.dropatt=0.0",
        "train.segment=8",
        "train.lanes=32",
        "train.micro_batch=32",
        "pairs.num_predict=2",
        "optim.lr=3e-3",
        "optim.clip=1.0",
        "schedule.kind=constant",
    ];
    let all: Vec<String> = base.iter().chain(keys).map(|key| key.to_string()).collect();
    segue_families::MODELS.load(None, &all).unwrap().config
}

/// A batch whose targets are at positions 5 and 6, in an order that `first_is_5` gives for each lane.
pub fn batch(inputs: &[[i64; 8]], targets: &[[i64; 2]], first_is_5: &[bool], follows: &[i64]) -> Batch {
    let lanes = inputs.len() as i64;
    let ranks: Vec<i64> = first_is_5
        .iter()
        .flat_map(|first| {
            let (five, six) = if *first { (6, 7) } else { (7, 6) };
            [0, 0, 0, 0, 5, five, six, 5]
        })
        .collect();
    let two: Vec<i64> = (0..lanes).flat_map(|_| [5, 6]).collect();
    let pairs = Pairs {
        segments: Tensor::from_slice(&[0i64, 0, 0, 0, 0, 1, 1, 2]).expand([lanes, SEGMENT], false),
        ranks: Tensor::from_slice(&ranks).view([lanes, SEGMENT]),
        positions: Tensor::from_slice(&two).view([lanes, 2]),
        weights: Tensor::ones([lanes, 2], (Kind::Float, tch::Device::Cpu)),
        follows: Tensor::from_slice(follows),
        reversed: 0,
    };
    let rows = |values: Vec<i64>, width: i64| Tensor::from_slice(&values).view([lanes, width]);
    Batch { pairs: Some(pairs), ..Batch::new(rows(inputs.concat(), SEGMENT), rows(targets.concat(), 2)) }
}

/// Uniform numbers below `n`, one for each of `count` things.
pub fn uniform(seed: u64, step: u64, count: usize, n: u64) -> Vec<i64> {
    let stream = Stream::new(seed, Purpose::Bench, &[step]);
    (0..count as u64).map(|i| (stream.bits(i) % n) as i64).collect()
}

/// 32 rows of uniform tokens.
fn noise_batch(step: u64) -> Batch {
    let ids = uniform(3, step, 32 * 8, 12);
    let rows: Vec<[i64; 8]> = ids.chunks(8).map(|row| std::array::from_fn(|i| row[i])).collect();
    let targets: Vec<[i64; 2]> = rows.iter().map(|row| [row[5], row[6]]).collect();
    let first: Vec<bool> = uniform(4, step, 32, 2).iter().map(|coin| *coin == 1).collect();
    batch(&rows, &targets, &first, &uniform(5, step, 32, 2))
}

/// Row X15.
#[test]
fn the_loss_is_a_weighted_sum_and_padding_adds_nothing() {
    libtorch::set_threads(1);
    for kind in ["permutation", "denoising"] {
        let config = small(&[&format!("objective.kind={kind}")]);
        let objective = objective::build(&config, segue_kernels::Compute::CPU).unwrap();
        let memory = objective.memory_start(32);
        let mut padded = noise_batch(1);
        let each = objective.score(&padded, &memory).nll;
        let weights: Vec<f32> = (0..64).map(|i| f32::from(i % 3 != 0)).collect();
        padded.pairs.as_mut().unwrap().weights = Tensor::from_slice(&weights).view([32, 2]);
        let loss = objective.loss(&padded, &memory, None);
        let each = Vec::<f32>::try_from(each.reshape([-1])).unwrap();
        let by_hand: f64 = each.iter().zip(&weights).map(|(nll, w)| f64::from(nll * w)).sum();
        assert!((loss.sum.double_value(&[]) - by_hand).abs() < 1e-3, "{kind}");
        assert_eq!(loss.weight, weights.iter().map(|w| f64::from(*w)).sum::<f64>());
        // Whatever stands in the places that fill up a row.
        let fill = Tensor::from_slice(&weights).view([32, 2]).eq(0.0);
        padded.targets = padded.targets.masked_fill(&fill, 11);
        let other = objective.loss(&padded, &memory, None).sum;
        assert_eq!(loss.sum.double_value(&[]), other.double_value(&[]), "{kind}");
    }
}

/// Row X15.
#[test]
fn probabilities_come_from_the_tied_embedding_and_a_bias() {
    let model = crate::tiny::model(&crate::tiny::tiny());
    let own = crate::tiny::parameters(&crate::tiny::tiny());
    let states = (Tensor::arange(24, (Kind::Double, tch::Device::Cpu)) * 0.3).sin().view([1, 3, 8]);
    let table = own.get("transformer.word_embedding.weight").detach();
    let logits = states.matmul(&table.transpose(0, 1)) + own.get("lm_loss.bias").detach();
    let expected = -logits.log_softmax(-1, None::<Kind>).get(0).get(1).double_value(&[4]);
    let nll = model.nll(&states, &crate::tiny::row(&[0, 4, 16]));
    assert!((nll.double_value(&[0, 1]) - expected).abs() < 1e-12);
}

/// Row X16.
#[test]
fn denoising_predicts_targets_independently() {
    libtorch::set_threads(1);
    let config = small(&["objective.kind=denoising"]);
    let objective = objective::build(&config, segue_kernels::Compute::CPU).unwrap();
    let memory = objective.memory_start(32);
    let mut batch = noise_batch(2);
    let before = objective.score(&batch, &memory).nll;
    // The joint probability is the product of marginals: another token at one target does not touch the other.
    let other = (batch.targets.narrow(1, 0, 1) + 3).remainder(12);
    batch.targets = Tensor::cat(&[other, batch.targets.narrow(1, 1, 1)], 1);
    let after = objective.score(&batch, &memory).nll;
    assert_eq!(before.select(1, 1), after.select(1, 1));
    assert_ne!(before.select(1, 0), after.select(1, 0));
    // Predicted from the corrupted text at both sides, but not from the other half.
    let mut changed = noise_batch(2);
    changed.inputs =
        Tensor::cat(&[changed.inputs.narrow(1, 0, 7), (changed.inputs.narrow(1, 7, 1) + 1).remainder(12)], 1);
    assert_ne!(objective.score(&changed, &memory).nll.select(1, 1), before.select(1, 1));
    assert_eq!(changed.inputs.size(), [32, 2 * HALF]);
}

/// Share of labels told right by a model trained on `make`.
fn accuracy(make: impl Fn(u64) -> Batch, steps: u64) -> f64 {
    libtorch::set_threads(1);
    let config = small(&["objective.next_sentence=1.0"]);
    let mut engine =
        Engine::new(&config, objective::build(&config, segue_kernels::Compute::CPU).unwrap(), &Local)
            .unwrap();
    for step in 1..=steps {
        engine.step(step, &vec![make(step)]).unwrap();
    }
    let share = |step| {
        let memory = engine.learner.memory_start(32);
        let right = engine.learner.score(&make(step), &memory).follows.unwrap();
        right.to_kind(Kind::Double).mean(None::<Kind>).double_value(&[])
    };
    (0..20).map(|i| share(100_000 + i)).sum::<f64>() / 20.0
}

/// Row X17.
#[test]
fn next_sentence_is_learnt_where_there_is_something_to_learn() {
    // A word of A, which the last position has to look for, tells.
    let told = |step| {
        let follows = uniform(8, step, 32, 2);
        let rows: Vec<[i64; 8]> = follows.iter().map(|follows| [9, 9, 9, 9, *follows, 8, 8, 10]).collect();
        batch(&rows, &[[8, 8]; 32], &[true; 32], &follows)
    };
    let learnt = accuracy(told, 100);
    assert!(learnt > 0.95, "{learnt}");
    // Labels by a coin: five standard deviations of 640 guesses around one half.
    let chance = accuracy(noise_batch, 50);
    assert!((chance - 0.5).abs() < 0.1, "{chance}");
}
