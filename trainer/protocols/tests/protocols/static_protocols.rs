use std::convert::Infallible;

use segue_collectives::local::Local;
use segue_dataloader::{BuildOptions, Corpus, Preset, Split, TokenStream, TokenizerChoice, build};
use segue_engine::Watch;
use segue_language::{EvalOptions, Evaluation, NextToken, Objective, evaluate};
use segue_lstm::{LanguageModel, LstmConfig};
use segue_protocols::{best, search_temperature, token_losses};
use segue_tokenizer::{TokenizerKind, TrainOptions};
use tch::{Kind, Tensor};

use super::source::{fresh, on_ranks, small, stream, symbols, text, train, walk};

fn losses(model: &LanguageModel, text: &TokenStream, lanes: usize) -> Vec<f64> {
    token_losses(model, text, &walk(lanes, 1, 35), &Local, &mut Watch::new(&mut |_, _| {})).unwrap()
}

fn at(model: &mut LanguageModel, text: &TokenStream, temperature: f64) -> f64 {
    NextToken::set_inverse_temperature(model, temperature);
    let losses = losses(model, text, 1);
    losses.iter().sum::<f64>() / losses.len() as f64
}

/// Row M14.
#[test]
fn a_searched_temperature_is_never_worse_than_one_on_its_own_text() {
    let folder = tempfile::tempdir().unwrap();
    let known = stream(&folder, "known", &text(&symbols(900, 1), |_| false));
    let other = stream(&folder, "other", &text(&symbols(600, 2), |_| false));
    let mut model = fresh(&small(), Kind::Float);
    for steps in [0, 30, 250] {
        if steps > 0 {
            train(&model, &known, steps, 0.01);
        }
        let tried = search_temperature(false, |t| Ok::<f64, Infallible>(at(&mut model, &other, t))).unwrap();
        let (found, plain) = (best(&tried, |point| point.loss).unwrap(), at(&mut model, &other, 1.0));
        println!("after {steps} steps: {found:?}, {plain} at 1");
        assert!(found.loss <= plain);
        // Nor worse than any other of the grid.
        assert_eq!(tried.len(), 14);
        assert!(tried.iter().all(|point| found.loss <= point.loss));
    }
    // It has learned its text by heart, and is too sure of another.
    let tried = search_temperature(false, |t| Ok::<f64, Infallible>(at(&mut model, &other, t))).unwrap();
    assert!(best(&tried, |point| point.loss).unwrap().temperature < 1.0, "{tried:?}");
}

/// τ multiplies all scores, biases too: within each expert, and in head and clusters. What ln P of a plain softmax becomes is ln softmax(τ ln P).
/// Row M14.
#[test]
fn a_temperature_acts_on_all_scores_and_predictions_stay_distributions() {
    let ids = Tensor::from_slice(&[97i64, 98, 99, 100, 101, 102]).view([1, 6]);
    let plain = LstmConfig { d_model: 8, ..small() };
    let narrow = LstmConfig { input_embedding_ratio: 0.5, ..plain.clone() };
    let mixed = LstmConfig { mixture: 2, ..plain.clone() };
    let split = LstmConfig { cutoffs: vec![98, 101], ..plain.clone() };
    for (config, is_plain) in [(plain, true), (narrow, true), (mixed, false), (split, false)] {
        let mut model = fresh(&config, Kind::Double);
        for tensor in NextToken::parameters(&model).tensors() {
            // Biases that start at nothing would not show.
            let count = tensor.numel() as i64;
            let wave = (Tensor::arange(count, (Kind::Double, tch::Device::Cpu)) * 0.7).sin() * 0.3;
            let _ = tch::no_grad(|| tensor.shallow_clone().g_add_(&wave.view(tensor.size().as_slice())));
        }
        let memory = NextToken::memory_start(&model, 1);
        let before = model.next_log_probs(&ids, &memory).0;
        NextToken::set_inverse_temperature(&mut model, 0.8);
        let (found, _) = model.next_log_probs(&ids, &memory);
        let targets = (&ids + 1).clamp(0, 255);
        let (nll, _) = tch::no_grad(|| NextToken::nll(&model, &ids, &targets, &memory));
        let gathered = -found.gather(2, &targets.unsqueeze(2), false).squeeze_dim(2);
        let close = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]) < 1e-12;
        assert!(close(&nll, &gathered), "{config:?}");
        let sums = found.exp().sum_dim_intlist(-1, false, Kind::Double);
        assert!(close(&sums, &sums.ones_like()), "{config:?}");
        let sharpened = (&before * 0.8).log_softmax(-1, None::<Kind>);
        assert_eq!(close(&found, &sharpened), is_plain, "{config:?}");
        NextToken::set_inverse_temperature(&mut model, 1.0);
        assert_eq!(model.next_log_probs(&ids, &memory).0, before);
    }
}

fn evaluated(model: &LanguageModel, text: &TokenStream, lanes: usize) -> Evaluation {
    let options = EvalOptions { lanes, group: 1, segment: 35, ext_len: 0, documents: None };
    evaluate(model, text, options, &Local, &mut Watch::new(&mut |_, _| {})).unwrap()
}

/// Row S19.
#[test]
fn a_uniform_model_has_the_perplexity_of_its_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    // "the cat", end of line, and so on: every byte is a token, each line has one that ends it.
    let lines = b"the cat sat\non the mat\n".repeat(30);
    let text = stream(&folder, "lines", &lines);
    let model = fresh(&small(), Kind::Double);
    for tensor in NextToken::parameters(&model).tensors() {
        let _ = tch::no_grad(|| tensor.shallow_clone().zero_());
    }
    for lanes in [1, 4] {
        let found = evaluated(&model, &text, lanes);
        assert!((found.ppl - 256.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.targets, text.len() - 1);
        // The program's columns have a row more than predictions: Σ −ln P / (targets + columns).
        let rows = found.by_rows(lanes);
        let count = (text.len() - 1 + lanes as u64) as f64;
        let expected = 256f64.ln() * found.targets as f64 / count;
        assert!((rows.loss - expected).abs() < 1e-12 && (rows.ppl - expected.exp()).abs() < 1e-9);
    }
}

/// Bits of a symbol are nats / (ln 2 × symbols that are predicted): line ends that are no tokens, white space between symbols, and the first
/// token, which nothing predicts, are no part of it. A uniform model has log2 of its vocabulary everywhere.
#[test]
fn m8_bits_are_divided_by_the_symbols_that_are_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "ab äé\ncd\n\nabcd\n";
    let spaced = "a b _ c\n c d\n";
    // Preset, text, vocabulary, tokens, and bytes and characters of all tokens but the first.
    let cases = [
        // 11 characters on four lines, two of them of two bytes.
        (Preset::Enwik8, lines, 8, 13, 12, 10),
        (Preset::Enwik8Bytes, lines, 9, 17, 16, 14),
        // <eos> and <unk> beside seven characters.
        (Preset::Mwc, lines, 9, 15, 16, 14),
        (Preset::PtbChar, spaced, 7, 8, 7, 7),
        // A document of 15 characters and its end, with which as many tokens are predicted as it has characters.
        (Preset::Documents, lines, 10, 16, 17, 15),
    ];
    for (preset, text, words, tokens, bytes, chars) in cases {
        let (input, output) =
            (folder.path().join(preset.name()), folder.path().join(format!("{preset}-corpus")));
        std::fs::write(&input, text).unwrap();
        let tokenizer = match preset {
            Preset::Documents => TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Char)),
            _ => TokenizerChoice::Preset,
        };
        let options = BuildOptions::new(preset, vec![input], output.clone());
        build(&BuildOptions { split: Some([1.0, 0.0, 0.0]), tokenizer, ..options }, &()).unwrap();
        let corpus = Corpus::open(&output).unwrap();
        let stream = corpus.tokens(Split::Train).unwrap();
        assert_eq!((corpus.vocab_size(), stream.len()), (words, tokens), "{preset}");
        let model = fresh(&LstmConfig { vocab_size: words, ..small() }, Kind::Double);
        for tensor in NextToken::parameters(&model).tensors() {
            let _ = tch::no_grad(|| tensor.shallow_clone().zero_());
        }
        let found = evaluated(&model, &stream, 1);
        assert!((found.nats - (tokens - 1) as f64 * (words as f64).ln()).abs() < 1e-9, "{preset}");
        let of_text = found.of_text.unwrap();
        assert_eq!((of_text.bytes, of_text.chars), (bytes, chars), "{preset}");
        let bits = found.nats / std::f64::consts::LN_2;
        assert_eq!(of_text.bits_per_byte, bits / bytes as f64, "{preset}");
        assert_eq!(of_text.bits_per_char, bits / chars as f64, "{preset}");
        assert!((of_text.bits_per_symbol - (words as f64).log2()).abs() < 1e-12, "{preset}");
        assert!((of_text.bits_per_symbol - found.bits_per_token).abs() < 1e-12, "{preset}");
    }
}

/// Row M14.
#[test]
fn losses_of_tokens_add_up_to_the_evaluation_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(&symbols(203, 1), |_| false);
    let name = std::sync::atomic::AtomicUsize::new(0);
    let (losses, nats) = on_ranks(|comm| {
        let number = name.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let text = stream(&folder, &number.to_string(), &text);
        let mut model = fresh(&small(), Kind::Float);
        Objective::set_inverse_temperature(&mut model, 0.9);
        let mut nothing = |_, _| {};
        let losses = token_losses(&model, &text, &walk(3, 1, 16), comm, &mut Watch::new(&mut nothing));
        let options = EvalOptions { lanes: 3, group: 1, segment: 16, ext_len: 0, documents: None };
        let evaluation = evaluate(&model, &text, options, comm, &mut Watch::new(&mut nothing)).unwrap();
        (losses.unwrap(), evaluation.nats)
    });
    assert!((losses.iter().sum::<f64>() - nats).abs() < 1e-9);
}
