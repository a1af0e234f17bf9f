//! T14 to T17: what lanes yield, and how the corpora of Yang 2019, §2.1.4 are prepared and measured.

use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::fs;
use std::path::Path;

use segue_collectives::local::Local;
use segue_dataloader::{
    BuildOptions, Corpus, LaneCursor, Lanes, Preset, Segments, SentenceLanes, Split, StreamLanes,
    TokenStream, TokenizerChoice, build,
};
use segue_engine::Watch;
use segue_language::{EvalOptions, Evaluation, Objective, evaluate};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use segue_transfo_xl::{LanguageModel, TransfoXlConfig};
use tch::{Kind, Tensor};

use crate::tiny::tiny;

/// A corpus of `text` in a fresh folder.
fn corpus(folder: &Path, preset: Preset, text: impl AsRef<[u8]>) -> Corpus {
    let (input, output) = (folder.join("text"), folder.join("corpus"));
    fs::write(&input, text).unwrap();
    let options = BuildOptions::new(preset, vec![input], output.clone());
    let options = match preset {
        Preset::Sentences => {
            let words = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Word));
            BuildOptions { tokenizer: words, ..options }
        }
        _ => options,
    };
    build(&options, &()).unwrap();
    Corpus::open(&output).unwrap()
}

fn tokens(stream: &TokenStream) -> Vec<i64> {
    let mut tokens = vec![0; stream.len() as usize];
    stream.read(0, &mut tokens).unwrap();
    tokens
}

/// Lines of 1 to 9 words out of 50; the last of them names the line.
fn sentences(count: usize) -> String {
    let line = |i: usize| {
        let words: Vec<String> = (0..i * 7 % 9).map(|j| format!("w{}", (i * 13 + j * 31) % 50)).collect();
        format!("{} line{i}\n", words.join(" "))
    };
    (0..count).map(line).collect()
}

/// Inputs and targets of each of `count` lanes over `steps` steps.
fn read(lanes: &dyn Lanes, count: usize, steps: u64) -> Vec<Vec<(i64, i64)>> {
    let mut cursors = vec![LaneCursor::default(); count];
    let mut read = vec![Vec::new(); count];
    for step in 1..=steps {
        let batch = lanes.batch(0..count, &cursors, step).unwrap();
        let rows = batch.inputs.chunks(batch.segment).zip(batch.targets.chunks(batch.segment));
        for (pairs, (inputs, targets)) in read.iter_mut().zip(rows) {
            pairs.extend(inputs.iter().copied().zip(targets.iter().copied()));
        }
        cursors = batch.cursors_after;
    }
    read
}

/// Row T14.
#[test]
fn lanes_together_rebuild_the_stream_and_predict_no_token_twice() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), Preset::Sentences, sentences(300));
    let stream = corpus.tokens(Split::Train).unwrap();
    let tokens = tokens(&stream);
    let lanes = StreamLanes::new(stream, 4, Segments::fixed(10)).unwrap();
    let (piece, steps) = (lanes.lane_tokens() as usize, lanes.steps_per_epoch());
    for (lane, pairs) in read(&lanes, 4, steps).iter().enumerate() {
        let inputs: Vec<i64> = pairs.iter().map(|(input, _)| *input).collect();
        let targets: Vec<i64> = pairs.iter().map(|(_, target)| *target).collect();
        // Row b + 1 goes on where row b ends: both are cut from the one stream.
        let start = lane * piece;
        assert_eq!(inputs, tokens[start..start + inputs.len()]);
        assert_eq!(targets, tokens[start + 1..start + 1 + targets.len()]);
        assert!(piece - targets.len() <= 10, "at most one segment is left over");
    }
}

/// Row T15.
#[test]
fn packed_sentences_are_all_there_and_never_predict_across_their_borders() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), Preset::Sentences, sentences(100));
    let (stream, starts) = (corpus.tokens(Split::Train).unwrap(), corpus.sentences(Split::Train).unwrap());
    let eos = i64::from(corpus.tokenizer().unwrap().eos_id().unwrap());
    let (lanes, segment) = (3, 7);
    // Every (input, target) of every sentence, made the plain way: eos before the first word.
    let all = tokens(&stream);
    let mut expected: HashMap<Vec<(i64, i64)>, usize> = HashMap::new();
    for sentence in all.split_inclusive(|token| *token == eos) {
        let inputs = std::iter::once(eos).chain(sentence.iter().copied());
        *expected.entry(inputs.zip(sentence.iter().copied()).collect()).or_default() += 1;
    }
    let packed = SentenceLanes::new(stream, starts, lanes, Segments::fixed(segment), eos, 5).unwrap();
    let mut orders = Vec::new();
    let lanes_read = read(&packed, lanes, 400);
    for epoch in 0..2 {
        let mut found: HashMap<Vec<(i64, i64)>, usize> = HashMap::new();
        let mut order = Vec::new();
        for (lane, pairs) in lanes_read.iter().enumerate() {
            // A sentence ends where eos is the target; lane k of 3 gets every third of 100.
            let share = 100 / lanes + usize::from(lane < 100 % lanes);
            let sentences: Vec<_> = pairs.split_inclusive(|(_, target)| *target == eos).collect();
            for sentence in &sentences[epoch * share..(epoch + 1) * share] {
                *found.entry(sentence.to_vec()).or_default() += 1;
                order.push(sentence.to_vec());
            }
        }
        assert_eq!(found, expected, "epoch {epoch}");
        orders.push(order);
    }
    assert_ne!(orders[0], orders[1], "every epoch has its own order");
}

/// 205 byte values, the newline among them, `repeat` times.
fn bytes(repeat: usize) -> Vec<u8> {
    let mut line: Vec<u8> = (0..=255u8).filter(|b| *b != b'\n').take(204).collect();
    line.push(b'\n');
    line.repeat(repeat)
}

/// Row T16.
#[test]
fn enwik8_is_split_90_5_5_and_loses_its_newlines() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), Preset::Enwik8, bytes(1000));
    assert_eq!(corpus.vocab_size(), 204);
    let lengths = [Split::Train, Split::Valid, Split::Test].map(|split| corpus.info().splits[&split].tokens);
    // 205,000 bytes: nine tenths, then twice one twentieth; one byte in 205 is a newline.
    assert_eq!(lengths, [900 * 204, 50 * 204, 50 * 204]);
    let bytes = [Split::Train, Split::Valid, Split::Test].map(|split| corpus.info().splits[&split].bytes);
    assert_eq!(bytes, [900 * 205, 50 * 205, 50 * 205]);
}

/// Row T16.
#[test]
fn text8_has_27_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = ('a'..='z').chain([' ']).cycle().take(27_000).collect();
    assert_eq!(corpus(folder.path(), Preset::Text8, text).vocab_size(), 27);
}

/// Evaluates a model whose states say nothing: its losses are those of `bias` alone.
fn of_bias(corpus: &Corpus, bias: Option<&Tensor>) -> Evaluation {
    let config = TransfoXlConfig { vocab_size: corpus.vocab_size(), ..tiny() };
    let objective = LanguageModel::new(&config, 1, Kind::Double);
    tch::no_grad(|| {
        for tensor in objective.parameters().tensors() {
            let _ = tensor.shallow_clone().zero_();
        }
        if let Some(bias) = bias {
            objective.parameters().get("crit.out_layers.0.bias").copy_(bias);
        }
    });
    let options = EvalOptions { lanes: 2, group: 1, segment: 16, ext_len: 0, documents: None };
    let stream = corpus.tokens(Split::Train).unwrap();
    evaluate(&objective, &stream, options, &Local, &mut Watch::new(&mut |_, _| {})).unwrap()
}

/// Row T16.
#[test]
fn bits_per_character_are_nats_over_ln_2() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), Preset::Text8, "abcdefgh".repeat(1000));
    let result = of_bias(&corpus, None);
    assert!((result.bits_per_token - result.loss / LN_2).abs() < 1e-12);
    // Eight symbols, all alike: three bits each.
    assert!((result.bits_per_token - 3.0).abs() < 1e-12);
}

/// Row T17.
#[test]
fn a_uniform_model_has_the_vocabulary_as_its_perplexity() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), Preset::WikiText, sentences(120));
    let vocabulary = corpus.vocab_size() as f64;
    assert!((of_bias(&corpus, None).ppl - vocabulary).abs() < 1e-9 * vocabulary);
}

/// Row T17.
#[test]
fn a_unigram_model_reaches_the_empirical_entropy() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), Preset::WikiText, sentences(120));
    // Counts of the targets: every token but the first.
    let tokens = tokens(&corpus.tokens(Split::Train).unwrap());
    let mut counts = vec![0.0; corpus.vocab_size()];
    tokens[1..].iter().for_each(|token| counts[*token as usize] += 1.0);
    let total = (tokens.len() - 1) as f64;
    let entropy: f64 = counts.iter().filter(|n| **n > 0.0).map(|n: &f64| -n / total * (n / total).ln()).sum();
    let bias = Tensor::from_slice(&counts).clamp_min(1e-30).log();
    let found = of_bias(&corpus, Some(&bias)).loss;
    assert!((found - entropy).abs() < 1e-9, "{found} {entropy}");
}

/// Row T17.
#[test]
fn words_are_those_of_the_training_text_in_the_order_of_their_counts() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), Preset::Ptb, "b a a\nc a b\n");
    let tokenizer = corpus.tokenizer().unwrap();
    let mut ids = Vec::new();
    tokenizer.encode("a b c", &mut ids);
    // <eos> twice and the unknown word, which never occurs, are words as well.
    let rank = |word: u32| ids.iter().position(|id| *id == word);
    assert!(ids[0] < ids[1] && ids[1] < ids[2], "{ids:?}");
    assert!(rank(tokenizer.unk_id().unwrap()).is_none());
    assert_eq!(corpus.vocab_size(), 5);
}
