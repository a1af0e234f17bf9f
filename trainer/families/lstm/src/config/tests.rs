use segue_kernels::ParameterSpec;
use segue_layers::recurrent::InputGate;

use super::super::parameters;
use super::*;
use crate::{ForgetBias, GateNormKind, InitKind, InputBias};

fn sized(vocab_size: usize, parameters: usize, config: LstmConfig) -> (usize, usize, usize) {
    let mut config = LstmConfig { parameters, ..config };
    config.set_vocabulary(vocab_size, None).unwrap();
    (config.d_model, config.embed_width(), config.count())
}

/// Melis 2023, appendix 2.A: models as large as their budgets allow.
/// Row M7.
#[test]
fn budgets_give_the_sizes_of_the_published_models() {
    let plain = LstmConfig::default();
    let mogrifier =
        |rounds, rank| LstmConfig { mogrifier_rounds: rounds, mogrifier_rank: rank, ..plain.clone() };
    let untied = |n_layer, config| LstmConfig { n_layer, tie_word_embeddings: false, ..config };
    let mixed = |input_embedding_ratio, config| LstmConfig { mixture: 2, input_embedding_ratio, ..config };
    let rewired = |config| LstmConfig { cell: CellKind::Rewired, ..config };
    let cases = [
        (10_001, 24_000_000, plain.clone(), (951, 951, 23_998_976)),
        (10_001, 24_000_000, mogrifier(5, 84), (912, 912, 23_987_393)),
        (
            10_001,
            24_000_000,
            LstmConfig { mogrifier_bias: false, ..mogrifier(5, 84) },
            (912, 912, 23_978_273),
        ),
        (10_001, 24_000_000, rewired(mogrifier(5, 84)), (956, 956, 23_989_349)),
        (33_279, 35_000_000, mixed(0.353_077_045_777_942_4, plain.clone()), (1211, 428, 34_997_757)),
        (33_279, 35_000_000, mixed(0.199_319_496_059_621_3, mogrifier(6, 48)), (1366, 272, 34_991_825)),
        (206, 48_000_000, untied(4, plain.clone()), (1218, 1218, 47_994_278)),
        (206, 48_000_000, untied(4, mogrifier(6, 79)), (1160, 1160, 47_982_446)),
        (206, 96_000_000, untied(4, plain.clone()), (1725, 1725, 95_958_506)),
        (206, 96_000_000, untied(4, mogrifier(5, 61)), (1687, 1687, 95_943_270)),
        (206, 48_000_000, untied(6, rewired(mogrifier(6, 79))), (998, 998, 47_980_054)),
    ];
    for (words, budget, config, expected) in cases {
        assert_eq!(sized(words, budget, config.clone()), expected, "{config:?}");
    }
    let tiny = LstmConfig { vocab_size: 11, d_model: 8, ..mogrifier(3, 2) };
    assert_eq!((tiny.count(), rewired(tiny).count()), (1427, 1299));
    let narrow = LstmConfig { vocab_size: 11, d_model: 8, ..untied(2, mixed(0.5, plain)) };
    assert_eq!(narrow.count(), 1147);
}

/// Between 370 and 400 the projection to the embeddings is too much; at 400 there is none.
/// Row M7.
#[test]
fn a_width_without_a_projection_is_found() {
    let config = LstmConfig { d_embed: 400, n_layer: 1, ..LstmConfig::default() };
    for (budget, narrowest, widest) in [(5_300_000, 400, 400), (5_290_000, 1, 399)] {
        let (found, embedding, count) = sized(10_000, budget, config.clone());
        assert!((narrowest..=widest).contains(&found) && embedding == 400, "{found}");
        assert!(count <= budget);
    }
}

/// Keys that nothing would look at are told.
#[test]
fn what_a_model_has_no_place_for_is_refused() {
    let refused = |config: LstmConfig, key: &str| {
        let message = config.check().unwrap_err().to_string();
        assert!(message.contains(key), "{message}");
    };
    let plain = LstmConfig::default;
    let residual = || LstmConfig { wiring: Wiring::Residual, ..plain() };
    refused(LstmConfig { inter_layer_dropout: 0.1, ..residual() }, "model.inter_layer_dropout");
    refused(LstmConfig { cell_output_dropout: 0.1, ..plain() }, "model.cell_output_dropout");
    refused(LstmConfig { projection_dropout: 0.1, ..plain() }, "model.projection_dropout");
    refused(LstmConfig { input_embedding_ratio: 0.999, ..residual() }, "model.input_embedding_ratio");
    let gru = || LstmConfig { cell: CellKind::Gru, ..plain() };
    refused(LstmConfig { state_dropout: 0.1, ..gru() }, "model.state_dropout");
    refused(LstmConfig { forget_bias: ForgetBias::Chrono, ..gru() }, "model.forget_bias");
    refused(LstmConfig { input_gate: InputGate::Tied, ..gru() }, "model.input_gate");
    let opposite = LstmConfig {
        forget_bias: ForgetBias::Chrono,
        input_bias: InputBias::Opposite,
        input_gate: InputGate::Tied,
        ..plain()
    };
    refused(opposite, "model.input_bias");
    refused(LstmConfig { mogrifier_rank: i64::MAX, ..plain() }, "model.mogrifier_rank");
    assert!(plain().check().is_ok() && residual().check().is_ok() && gru().check().is_ok());
}

/// What each variant of an LSTM of widths m and n has more or less, by hand, and that budgets count it.
/// Row M3.
#[test]
fn variants_have_their_parameters() {
    let config = || LstmConfig { vocab_size: 11, d_model: 8, d_embed: 5, n_layer: 2, ..Default::default() };
    // Two layers, of m = 5 and of m = 8, with n = 8; gates of 4 n.
    let plain = 4 * 8 * (5 + 8 + 1) + 4 * 8 * (8 + 8 + 1);
    assert_eq!(config().count() - plain, 11 * 5 + 8 * 5 + 11);
    let more = |variant: LstmConfig| variant.count() as i64 - config().count() as i64;
    assert_eq!(more(LstmConfig { scale_vectors: true, ..config() }), (5 + 8) + (8 + 8));
    assert_eq!(more(LstmConfig { gate_norm: GateNormKind::Layer, ..config() }), 2 * 4 * 8);
    let tied = LstmConfig { input_gate: InputGate::Tied, ..config() };
    let normed = LstmConfig { gate_norm: GateNormKind::Layer, ..tied.clone() };
    assert_eq!(normed.count() - tied.count(), 2 * 3 * 8);
    for rank in [1, 4, 20] {
        // L of [n, k] and R of [k, m] for the input, of [k, n] for the state.
        let factors = |m: i64| 4 * rank * (8 + m) + 4 * rank * (8 + 8);
        let whole = 4 * 8 * (5 + 8) + 4 * 8 * (8 + 8);
        let ranked = LstmConfig { gate_rank: rank as usize, ..config() };
        assert_eq!(more(ranked.clone()), factors(5) + factors(8) - whole);
        let mlstm = |gate_rank| LstmConfig { cell: CellKind::Mlstm, gate_rank, ..config() };
        assert_eq!(mlstm(rank as usize).count() as i64 - mlstm(0).count() as i64, more(ranked));
    }
    // 10,001 words, two layers: 10,001 n + 10,001 of words, then gates, gains and scales as above with m = n.
    let sized = |variant: LstmConfig| sized(10_001, 24_000_000, variant);
    let of = |n: usize, each: usize| (n, n, 10_001 * n + 10_001 + 2 * each);
    let norm = LstmConfig { gate_norm: GateNormKind::Layer, ..Default::default() };
    assert_eq!(sized(norm), of(950, 4 * (950 * 950 * 2 + 950) + 4 * 950));
    let scaled = LstmConfig { scale_vectors: true, ..Default::default() };
    assert_eq!(sized(scaled), of(950, 4 * (950 * 950 * 2 + 950) + 2 * 950));
    let ranked = LstmConfig { gate_rank: 84, ..Default::default() };
    let of_ranked = |n| of(n, 4 * 84 * 4 * n + 4 * n);
    assert_eq!(sized(ranked), of_ranked(1889));
    assert!(of_ranked(1890).2 > 24_000_000);
}

/// Row M3.
#[test]
fn variants_of_other_cells_are_refused() {
    let refused = |config: LstmConfig, key: &str| {
        let message = config.check().unwrap_err().to_string();
        assert!(message.contains(&format!("`{key}`")), "{message}");
    };
    let of = |cell| LstmConfig { cell, ..Default::default() };
    for cell in [CellKind::Rewired, CellKind::Gru, CellKind::Elman, CellKind::Qrnn] {
        refused(LstmConfig { gate_rank: 2, ..of(cell) }, "model.gate_rank");
        refused(LstmConfig { gate_norm: GateNormKind::Layer, ..of(cell) }, "model.gate_norm");
    }
    refused(LstmConfig { gate_rank: 2, weight_dropout: 0.1, ..of(CellKind::Lstm) }, "model.weight_dropout");
    let scaled = |cell| LstmConfig { scale_vectors: true, ..of(cell) };
    refused(scaled(CellKind::Gru), "model.scale_vectors");
    refused(scaled(CellKind::Qrnn), "model.scale_vectors");
    refused(LstmConfig { mogrifier_rounds: 1, ..scaled(CellKind::Lstm) }, "model.scale_vectors");
    for cell in [CellKind::Lstm, CellKind::Mlstm] {
        let all = LstmConfig { gate_rank: 2, gate_norm: GateNormKind::Layer, ..scaled(cell) };
        assert!(all.check().is_ok());
    }
}

/// Melis 2023, §4.1: 7 n² + 4 n of a rewired cell whose input is as wide as its state, 8 n² + 4 n of an LSTM.
/// Row M4.
#[test]
fn a_rewired_cell_is_smaller_than_an_lstm() {
    let count = |cell| {
        let config = LstmConfig { d_model: 13, cell, ..Default::default() };
        parameters::layer_specs(&config, 1, "").iter().map(ParameterSpec::numel).sum::<usize>()
    };
    assert_eq!((count(CellKind::Rewired), count(CellKind::Lstm)), (7 * 169 + 4 * 13, 8 * 169 + 4 * 13));
}

/// Row M7.
#[test]
fn a_budget_that_no_width_meets_is_refused() {
    let mut config = LstmConfig { parameters: 10, ..Default::default() };
    let message = config.set_vocabulary(100, None).unwrap_err().to_string();
    assert!(message.contains("model.parameters") && message.contains("100 words"), "{message}");
}

/// The layers of AWD-LSTM: widths of the embeddings, of the layers, and of the last.
fn awd(d_embed: usize, d_model: usize, d_last: usize) -> LstmConfig {
    LstmConfig {
        d_embed,
        d_model,
        d_last,
        n_layer: 3,
        wiring: Wiring::Stack,
        input_gate: InputGate::Plain,
        two_biases: true,
        ..Default::default()
    }
}

/// Merity et al. 2018, Yang et al. 2018: every value of the published shapes, tied tables once.
/// Row S14.
#[test]
fn models_of_published_shapes_have_their_parameters() {
    let mixed = |config| LstmConfig { mixture: 15, ..config };
    let qrnn = LstmConfig {
        cell: CellKind::Qrnn,
        n_layer: 4,
        two_biases: false,
        input_gate: InputGate::Capped,
        cutoffs: vec![2800, 20_000, 76_000],
        ..awd(400, 2500, 400)
    };
    for (words, config, expected) in [
        (10_000, awd(400, 1150, 400), 24_221_600),
        (33_278, awd(400, 1150, 400), 33_556_078),
        (10_000, mixed(awd(280, 960, 620)), 21_500_620),
        (33_278, mixed(awd(300, 1150, 650)), 34_909_528),
        (267_735, qrnn, 46_523_700 + 107_361_735 + 1203),
    ] {
        assert!(config.check().is_ok());
        assert_eq!(sized(words, 0, config).2, expected);
    }
}

/// Where the last layer's width is not that of the embeddings, states are projected, as by a ratio.
/// Row S14.
#[test]
fn widths_that_differ_are_projected() {
    let tiny = |d_last| LstmConfig { vocab_size: 11, d_embed: 3, d_model: 8, d_last, ..awd(3, 8, d_last) };
    assert!(!tiny(3).projects() && tiny(5).projects() && tiny(0).projects());
    assert_eq!(
        parameters::specs(&tiny(5)).iter().find(|spec| spec.name == "projection.weight").unwrap().shape,
        [3, 5]
    );
    assert_eq!(
        [0, 1, 2].map(|layer| (tiny(5).input_width(layer), tiny(5).state_width(layer))),
        [(3, 8), (8, 8), (8, 5)]
    );
}

/// Merity et al. 2018: words in ±0.1, layers in ±1/√n, biases of words 0.
/// Row S14.
#[test]
fn uniform_values_start_within_their_bounds() {
    let config = LstmConfig { vocab_size: 11, init: InitKind::Uniform, ..awd(4, 9, 4) };
    for spec in parameters::specs(&config) {
        let expected = match spec.name.as_str() {
            "embedding.weight" => segue_kernels::Init::Uniform { range: 0.1 },
            "output.bias" => segue_kernels::Init::Zeros,
            name if name.starts_with("layers.2.") => segue_kernels::Init::Uniform { range: 0.5 },
            _ => segue_kernels::Init::Uniform { range: 1.0 / 3.0 },
        };
        assert_eq!(spec.init, expected, "{}", spec.name);
    }
}

/// Rows S9, S16.
#[test]
fn what_other_layers_have_no_place_for_is_refused() {
    let refused = |config: LstmConfig, key: &str| {
        let message = config.check().unwrap_err().to_string();
        assert!(message.contains(&format!("`{key}`")), "{message}");
    };
    let qrnn = || LstmConfig { cell: CellKind::Qrnn, ..Default::default() };
    refused(LstmConfig { wiring: Wiring::Skip, ..awd(4, 8, 4) }, "model.d_last");
    refused(LstmConfig { n_layer: 1, ..awd(4, 8, 4) }, "model.d_last");
    refused(LstmConfig { input_embedding_ratio: 0.5, ..awd(4, 8, 4) }, "model.input_embedding_ratio");
    refused(LstmConfig { wiring: Wiring::Residual, ..awd(4, 8, 0) }, "model.d_embed");
    refused(LstmConfig { projection_dropout: 0.1, ..awd(4, 8, 4) }, "model.projection_dropout");
    refused(LstmConfig { two_biases: true, ..qrnn() }, "model.two_biases");
    refused(LstmConfig { window: 1, ..awd(4, 8, 4) }, "model.window");
    refused(LstmConfig { mogrifier_rounds: 1, ..qrnn() }, "model.mogrifier_rounds");
    refused(LstmConfig { state_dropout: 0.1, ..qrnn() }, "model.state_dropout");
    refused(LstmConfig { input_gate: InputGate::Plain, ..qrnn() }, "model.input_gate");
    let uniform = LstmConfig { init: InitKind::Uniform, ..awd(4, 8, 4) };
    refused(LstmConfig { forget_bias: ForgetBias::Chrono, ..uniform }, "model.forget_bias");
    assert!(LstmConfig { projection_dropout: 0.1, ..awd(4, 8, 5) }.check().is_ok());
    assert!(LstmConfig { forget_bias: ForgetBias::Chrono, window: 3, ..qrnn() }.check().is_ok());
}

/// Keys of the model that nothing looks at are refused where they are given, and only there: what a later setting takes away may stay.
#[test]
fn keys_without_effect_are_refused_by_name() {
    let load = |keys: &[&str]| {
        let keys: Vec<String> =
            ["model.model_type=lstm"].iter().chain(keys).map(|key| key.to_string()).collect();
        segue_testing::models::<crate::LstmConfig>().load(None, &keys).map(|_| ()).map_err(|e| e.to_string())
    };
    for (keys, message) in [
        (
            &["model.input_bias=opposite"][..],
            "`model.input_bias` = opposite is invalid: needs model.forget_bias = \"chrono\"",
        ),
        (&["model.t_max=50"], "`model.t_max` = 50.0 is invalid: needs model.forget_bias = \"chrono\""),
        (
            &["model.mogrifier_rank=8"],
            "`model.mogrifier_rank` = 8 is invalid: needs model.mogrifier_rounds of at least 1",
        ),
        (&["model.mogrifier_bias=false"], "`model.mogrifier_bias` = false"),
        (&["model.mogrifier_rounds=0", "model.mogrifier_zigzag=false"], "`model.mogrifier_zigzag` = false"),
        (&["model.locked_dropout=true"], "`model.locked_dropout` = true is invalid: needs masks"),
        (&["model.locked_dropout=true", "model.state_dropout=0.1"], "`model.locked_dropout` = true"),
        (
            &["adversarial.scale=0.1", "adversarial.clusters=true"],
            "`adversarial.clusters` = true is invalid: needs model.cutoffs",
        ),
        (&["adversarial.clusters=true"], "needs adversarial.scale above 0"),
    ] {
        let found = load(keys).unwrap_err();
        assert!(found.contains(message), "{keys:?}: {found}");
    }
    for keys in [
        &["model.forget_bias=chrono", "model.t_max=50"][..],
        &["model.t_max=50", "model.forget_bias=one"],
        &["model.mogrifier_rounds=2", "model.mogrifier_rank=8", "model.mogrifier_bias=false"],
        // A recipe's mogrifier, which the command line takes away.
        &["model.mogrifier_rank=8", "model.mogrifier_rounds=0"],
        &["model.locked_dropout=true", "model.output_dropout=0.1"],
        &["adversarial.scale=0.1", "adversarial.clusters=true", "model.cutoffs=[10]"],
    ] {
        load(keys).unwrap_or_else(|e| panic!("{keys:?}: {e}"));
    }
}
