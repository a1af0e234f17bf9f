//! Scores from left to right: what `segue score` and `segue generate` take from an XLNet.

use std::fs;

use segue_configs::MemoryStart;
use segue_dataloader::{BuildOptions, Corpus, Preset, Split, TokenizerChoice, build};
use segue_language::NextToken;
use segue_protocols::{agreement, truncated_losses};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use segue_xlnet::{AttentionDirection, XlnetConfig};
use tch::{Kind, Tensor};

use crate::naive::{self, Scene};
use crate::tiny::{WORDS, difference, left_to_right, parameters, row, some_memory, tiny, tokens};

/// log P of the words for states `[n, d]`, from the weights themselves.
fn log_probs(config: &XlnetConfig, states: &Tensor) -> Tensor {
    let own = parameters(config);
    let table = own.get("transformer.word_embedding.weight").detach();
    let logits = states.matmul(&table.transpose(0, 1)) + own.get("lm_loss.bias").detach();
    logits.log_softmax(-1, None::<Kind>)
}

#[test]
fn each_token_is_predicted_from_those_before_it() {
    let config = tiny();
    let (model, ids) = (left_to_right(&config), tokens(9));
    let mut scene_ids = Vec::<i64>::try_from(ids.reshape([-1])).unwrap();
    for mem in [0, 4] {
        let memory = some_memory(&config, 1, mem);
        let (found, after) = model.next_log_probs(&ids, &memory);
        assert_eq!(found.size(), [1, 9, WORDS]);
        let layers: Vec<Tensor> = memory.layers.iter().map(|layer| layer.get(0)).collect();
        // Whatever stands behind the text.
        scene_ids.truncate(9);
        scene_ids.push(11);
        let (_, predictions) = naive::forward(
            &config,
            &parameters(&config),
            &Scene {
                ids: &scene_ids,
                segments: None,
                memory: &layers,
                content_sees: &|i, j| j <= i,
                prediction_sees: &|i, j| j < i,
                backwards: false,
            },
        );
        let expected = log_probs(&config, &predictions.narrow(0, 1, 9));
        assert!(difference(&found.get(0), &expected) < 1e-12);
        assert_eq!(after.len(), 6);
    }
}

#[test]
fn a_left_to_right_model_predicts_from_its_content() {
    let config = XlnetConfig { attn_type: AttentionDirection::Uni, ..tiny() };
    let (model, ids, memory) = (left_to_right(&config), tokens(7), some_memory(&config, 1, 4));
    let scene_ids = Vec::<i64>::try_from(ids.reshape([-1])).unwrap();
    let layers: Vec<Tensor> = memory.layers.iter().map(|layer| layer.get(0)).collect();
    let scene = Scene {
        ids: &scene_ids,
        segments: None,
        memory: &layers,
        content_sees: &|i, j| j <= i,
        prediction_sees: &|i, j| j < i,
        backwards: false,
    };
    let (content, _) = naive::forward(&config, &parameters(&config), &scene);
    let (found, _) = model.next_log_probs(&ids, &memory);
    assert!(difference(&found.get(0), &log_probs(&config, &content)) < 1e-12);
}

#[test]
fn a_text_in_pieces_has_the_scores_of_the_whole_whatever_is_reused() {
    for memory_start in [MemoryStart::Empty, MemoryStart::Masked] {
        for attn_type in [AttentionDirection::Bi, AttentionDirection::Uni] {
            let config = XlnetConfig { mem_len: 20, reuse_len: 2, memory_start, attn_type, ..tiny() };
            let (model, ids) = (left_to_right(&config), tokens(12));
            let (whole, end) = model.next_log_probs(&ids, &model.memory_start(1));
            let (first, memory) = model.next_log_probs(&ids.narrow(1, 0, 5), &model.memory_start(1));
            let (second, last) = model.next_log_probs(&ids.narrow(1, 5, 7), &memory);
            assert!(difference(&Tensor::cat(&[first, second], 1), &whole) < 1e-12);
            // What is only read leaves the same memory.
            let read =
                model.read(&ids.narrow(1, 5, 7), &model.read(&ids.narrow(1, 0, 5), &model.memory_start(1)));
            for i in 0..config.n_layer {
                assert!(difference(&last.layers[i], &end.layers[i]) < 1e-12);
                assert!(difference(&read.layers[i], &end.layers[i]) < 1e-12);
            }
        }
    }
}

#[test]
fn what_comes_later_does_not_matter_and_probabilities_sum_to_one() {
    let model = left_to_right(&tiny());
    let (a, b) = (row(&[1, 5, 9, 2, 6]), row(&[1, 5, 9, 11, 3]));
    let scores = |ids| model.next_log_probs(ids, &model.memory_start(1)).0;
    let (a, b) = (scores(&a), scores(&b));
    assert_eq!(difference(&a.narrow(1, 0, 3), &b.narrow(1, 0, 3)), 0.0);
    assert!(difference(&a.narrow(1, 3, 1), &b.narrow(1, 3, 1)) > 1e-3);
    let sums = a.exp().sum_dim_intlist(-1, false, None::<Kind>);
    assert!((sums - 1.0).abs().max().double_value(&[]) < 1e-12);
}

const BOTH: [AttentionDirection; 2] = [AttentionDirection::Bi, AttentionDirection::Uni];

#[test]
fn losses_are_those_of_the_probabilities_and_have_their_gradient() {
    for attn_type in BOTH {
        let config = XlnetConfig { attn_type, ..tiny() };
        let (model, ids, memory) = (left_to_right(&config), tokens(7), some_memory(&config, 1, 4));
        let targets = row(&[3, 11, 5]);
        let (nll, after) = model.nll(&ids, &targets, &memory);
        let (log_probs, expected_after) = model.next_log_probs(&ids, &memory);
        let expected = log_probs.narrow(1, 4, 3).gather(2, &targets.unsqueeze(2), false).squeeze_dim(2);
        assert!(difference(&nll.detach(), &-expected) < 1e-12);
        assert!(difference(&after.layers[2], &expected_after.layers[2]) < 1e-12);
        nll.sum(None::<Kind>).backward();
        let bias = model.parameters().get("lm_loss.bias");
        let (step, slope) = (1e-5, bias.grad().double_value(&[4]));
        let moved = |by: f64| tch::no_grad(|| bias.get(4).g_add_scalar_(by));
        let loss =
            || tch::no_grad(|| model.nll(&ids, &targets, &memory).0.sum(None::<Kind>).double_value(&[]));
        let _ = moved(step);
        let above = loss();
        let _ = moved(-2.0 * step);
        assert!(((above - loss()) / (2.0 * step) - slope).abs() < 1e-8);
        assert!(slope.abs() > 1e-4);
    }
}

#[test]
fn protocols_with_and_without_memory_agree() {
    for attn_type in BOTH {
        for memory_start in [MemoryStart::Empty, MemoryStart::Zeros] {
            let mut model = left_to_right(&XlnetConfig { attn_type, memory_start, ..tiny() });
            let before = model.context();
            let found = agreement(&mut model, 5, 10);
            assert_eq!(found.window, 3 * 4 + 1);
            assert!(found.difference < 1e-12, "{attn_type:?} {memory_start:?}: {found:?}");
            assert_eq!(model.context(), before);
        }
    }
}

#[test]
fn a_window_is_all_that_a_target_is_predicted_from() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("text"), folder.path().join("corpus"));
    fs::write(&input, [3u8, 9, 1, 4, 12, 7, 5, 2, 8, 6, 16, 10].repeat(4)).unwrap();
    let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Byte));
    build(
        &BuildOptions { tokenizer, ..BuildOptions::new(Preset::Documents, vec![input], output.clone()) },
        &(),
    )
    .unwrap();
    let stream = Corpus::open(&output).unwrap().tokens(Split::Train).unwrap();
    for attn_type in BOTH {
        let config = XlnetConfig { attn_type, vocab_size: 257, memory_start: MemoryStart::Zeros, ..tiny() };
        let mut model = left_to_right(&config);
        let found = truncated_losses(&mut model, &stream, &[9, 20, 31], 6, 2, |_| {}).unwrap();
        let nothing = some_memory(&config, 1, 0);
        for (loss, target) in found.iter().zip([9, 20, 31]) {
            let mut ids = [0; 7];
            stream.read(target - 6, &mut ids).unwrap();
            let log_probs = model.next_log_probs(&row(&ids[..6]), &nothing).0;
            assert!((loss + log_probs.double_value(&[0, 5, ids[6]])).abs() < 1e-12);
        }
    }
}
