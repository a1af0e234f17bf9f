use segue_configs::Config;
use segue_layers::cross_entropy::SmoothingForm;

use super::*;

fn config(overrides: &[&str]) -> Config {
    let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
    segue_testing::models::<TranslationConfig>().load(None, &overrides).unwrap().config
}

fn model() -> TranslationConfig {
    TranslationConfig {
        vocab_size: 40,
        d_model: 16,
        encoder_layers: 1,
        decoder_layers: 1,
        encoder_attention_heads: 2,
        decoder_attention_heads: 2,
        encoder_ffn_dim: 24,
        decoder_ffn_dim: 24,
        pad_token_id: 39,
        eos_token_id: 0,
        ..Default::default()
    }
}

fn batch() -> PairTensors {
    let batch = PairBatch {
        rows: 2,
        source: vec![3, 4, 0, 39, 5, 6, 7, 0],
        source_length: 4,
        source_lengths: vec![3, 4],
        target_input: vec![39, 8, 9, 39, 10, 39],
        target_output: vec![8, 9, 0, 10, 0, 39],
        target_length: 3,
        target_lengths: vec![3, 2],
        numbers: vec![0, 1],
    };
    PairTensors::of(&batch, Device::Cpu)
}

/// Reported loss, what is trained, and all gradients.
fn trained(overrides: &[&str]) -> (Tensor, Tensor, Vec<Tensor>) {
    let config = config(overrides);
    let translator = Translator::fresh(&model(), config.train.seed, Compute::CPU);
    let mut translator = translator.trained_by(&config.own.get(), &config.own.get(), config.schedule_steps());
    let turn = translator.turn(1);
    let loss = translator.loss(&turn, &vec![batch()], 0, &(), &Noise::new(5));
    loss.objectives[0].backward();
    assert_eq!(loss.weight, 5.0);
    let grads = translator.parameters().tensors().iter().map(Tensor::grad).collect();
    (loss.reported, loss.objectives[0].detach(), grads)
}

/// Rows S21, S26.
#[test]
fn an_adversary_without_reach_changes_no_bit() {
    for smoothing in ["objective.label_smoothing=0", "objective.label_smoothing=0.1"] {
        let none = trained(&[smoothing]);
        let still = trained(&[smoothing, "adversarial.always=true"]);
        assert_eq!(none, still, "{smoothing}");
    }
}

/// Row S21.
#[test]
fn the_reported_loss_is_that_of_the_targets_whatever_is_trained() {
    let (reported, plain, _) = trained(&["objective.label_smoothing=0"]);
    assert_eq!(reported, plain);
    let close = |a: &Tensor, b: &Tensor| (a - b).abs().double_value(&[]) < 1e-4;
    for also in ["adversarial.scale=0.05", "adversarial.scale=0"] {
        for form in ["all", "others", "others_from_least", "others_but_padding"] {
            let form = format!("objective.smoothing_form={form}");
            let (smoothed, trained, _) = trained(&["objective.label_smoothing=0.2", &form, also]);
            assert!(close(&smoothed, &reported), "{form}, {also}: {smoothed} and {reported}");
            assert!(!close(&trained, &reported), "{form}, {also}");
        }
    }
}

/// What an adversary takes raises the loss of every token that is not certain.
#[test]
fn an_adversary_raises_the_loss() {
    let plain = trained(&["objective.label_smoothing=0"]);
    for gradient in ["scalar", "delta", "full"] {
        let gradient = format!("adversarial.gradient={gradient}");
        let moved = trained(&["objective.label_smoothing=0", "adversarial.scale=0.05", &gradient]);
        assert!((moved.1 - &plain.1).double_value(&[]) > 0.0, "{gradient}");
    }
    assert!(Adversary::of(&AdversarialConfig::default()).is_none());
}

#[test]
fn smoothing_is_of_the_models_words() {
    let objective = ObjectiveConfig { label_smoothing: 0.39, smoothing_form: SmoothingForm::Others };
    let found = objective.smoothing(&model()).unwrap();
    assert!((found.off - 0.01).abs() < 1e-15 && found.without.is_none());
    assert!(ObjectiveConfig { label_smoothing: 0.0, ..objective }.smoothing(&model()).is_none());
}
