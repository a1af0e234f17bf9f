use segue_collectives::local::Local;
use segue_dataloader::TokenStream;
use segue_engine::Watch;
use segue_kernels::noise::Noise;
use segue_language::NextToken;
use segue_lstm::{LanguageModel, LstmConfig};
use segue_protocols::{AfterPasses, Mean, MonteCarloOptions, Passes, monte_carlo, token_losses};
use segue_random::{Purpose, derive};
use tch::{Kind, Tensor};

use super::source::{fresh, on_ranks, small, stream, symbols, text, train, walk};

pub fn dropping() -> LstmConfig {
    LstmConfig {
        d_model: 16,
        input_dropout: 0.3,
        inter_layer_dropout: 0.2,
        state_dropout: 0.3,
        output_dropout: 0.4,
        input_embedding_ratio: 0.5,
        ..small()
    }
}

fn options(mean: Mean, passes: u64) -> MonteCarloOptions {
    MonteCarloOptions { walk: walk(2, 1, 12), passes: Passes { count: passes, rates: 1.0, seed: 7 }, mean }
}

fn passes(model: &LanguageModel, text: &TokenStream, options: &MonteCarloOptions) -> Vec<AfterPasses> {
    monte_carlo(model, text, options, &Local, &mut |_, _| {}).unwrap()
}

fn losses(model: &LanguageModel, text: &TokenStream) -> Vec<f64> {
    token_losses(model, text, &walk(2, 1, 12), &Local, &mut Watch::new(&mut |_, _| {})).unwrap()
}

/// Row M14.
#[test]
fn rates_of_nothing_are_the_evaluation_without_dropout() {
    let folder = tempfile::tempdir().unwrap();
    let text = stream(&folder, "text", &text(&symbols(150, 1), |_| false));
    let mixed = LstmConfig { mixture: 2, ..dropping() };
    let split = LstmConfig { input_embedding_ratio: 1.0, cutoffs: vec![100], ..dropping() };
    for config in [dropping(), mixed, split] {
        let model = fresh(&config, Kind::Double);
        let expected = losses(&model, &text).iter().sum::<f64>() / (text.len() - 1) as f64;
        for mean in [Mean::Arithmetic, Mean::Geometric, Mean::Power(0.5)] {
            let mut none = options(mean, 3);
            none.passes.rates = 0.0;
            for point in passes(&model, &text, &none) {
                assert!((point.loss - expected).abs() < 1e-12, "{mean:?}: {point:?}, {expected}");
            }
            let dropped = passes(&model, &text, &options(mean, 1))[0].loss;
            assert!((dropped - expected).abs() > 1e-4, "{mean:?} drops nothing");
        }
    }
}

/// Each pass written out: its masks by their counters, its own state, and the mean of probabilities of each target.
/// Row M14.
#[test]
fn the_arithmetic_mean_is_that_of_passes_with_states_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let text = stream(&folder, "text", &text(&symbols(61, 1), |_| false));
    let model = fresh(&dropping(), Kind::Double);
    let mut options = MonteCarloOptions { walk: walk(1, 1, 20), ..options(Mean::Arithmetic, 3) };
    options.passes.rates = 0.8;
    let mut ids = vec![0; text.len() as usize];
    text.read(0, &mut ids).unwrap();
    let targets = ids.len() - 1;
    assert_eq!(targets % 20, 0, "no segment is cut short");
    let mut probabilities = vec![0.0; targets];
    for pass in 0..3u64 {
        let mut memory = NextToken::memory_start(&model, 1);
        for segment in 0..targets / 20 {
            let row = |from: usize| Tensor::from_slice(&ids[from..from + 20]).unsqueeze(0);
            let seed = derive(7, Purpose::MonteCarlo, &[pass, 0, segment as u64]);
            let noise = Noise::new(seed).with_rates(0.8);
            let (from, to) = (segment * 20, segment * 20 + 20);
            let (log_probs, next) = model.next_log_probs_with(&row(from), &memory, Some(&noise));
            for (place, target) in (from..to).zip(&ids[from + 1..]) {
                probabilities[place] +=
                    log_probs.double_value(&[0, (place - from) as i64, *target]).exp() / 3.0;
            }
            memory = next;
        }
    }
    let expected = -probabilities.iter().map(|p| p.ln()).sum::<f64>() / targets as f64;
    let found = passes(&model, &text, &options);
    assert_eq!(found.iter().map(|point| point.passes).collect::<Vec<_>>(), [1, 2, 3]);
    assert!((found[2].loss - expected).abs() < 1e-12, "{found:?}, {expected}");
}

/// Row M14.
#[test]
fn more_passes_predict_better_on_a_net_that_has_learned_its_text_by_heart() {
    let folder = tempfile::tempdir().unwrap();
    let known = stream(&folder, "known", &text(&symbols(1200, 1), |_| false));
    let other = stream(&folder, "other", &text(&symbols(400, 2), |_| false));
    let model = fresh(&dropping(), Kind::Float);
    train(&model, &known, 250, 0.01);
    let learned = losses(&model, &known).iter().sum::<f64>() / (known.len() - 1) as f64;
    let found = passes(&model, &other, &options(Mean::Arithmetic, 20));
    println!("{learned:.3} nats on its own text; {found:?}");
    assert!(found.windows(2).all(|pair| pair[1].loss < pair[0].loss), "{found:?}");
    assert_eq!(found.last().map(|point| point.passes), Some(20));
}

/// Row M14.
#[test]
fn passes_have_the_same_bits_on_one_two_and_four_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(&symbols(120, 1), |_| false);
    let name = std::sync::atomic::AtomicUsize::new(0);
    let found = on_ranks(|comm| {
        let number = name.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let text = stream(&folder, &number.to_string(), &text);
        let model = fresh(&dropping(), Kind::Float);
        let of = |mean| {
            let options = MonteCarloOptions { walk: walk(3, 1, 12), ..options(mean, 5) };
            let found = monte_carlo(&model, &text, &options, comm, &mut |_, _| {}).unwrap();
            found.iter().map(|point| point.loss.to_bits()).collect::<Vec<_>>()
        };
        [Mean::Arithmetic, Mean::Geometric, Mean::Power(2.0)].map(of)
    });
    assert!(found[0] != found[1] && found[1] != found[2]);
}
