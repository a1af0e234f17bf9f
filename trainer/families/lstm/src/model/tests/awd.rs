//! Stacks as AWD-LSTM has them, and quasi-recurrent ones.

use segue_layers::recurrent::InputGate;

use super::super::super::keys::InitKind;
use super::*;

/// Three layers of widths of their own, with everything that drops.
fn awd() -> LstmConfig {
    LstmConfig {
        d_model: 8,
        d_embed: 5,
        d_last: 5,
        n_layer: 3,
        wiring: Wiring::Stack,
        input_gate: InputGate::Plain,
        two_biases: true,
        init: InitKind::Uniform,
        weight_dropout: 0.5,
        embedding_dropout: 0.2,
        locked_dropout: true,
        input_dropout: 0.3,
        inter_layer_dropout: 0.3,
        output_dropout: 0.3,
        ..small()
    }
}

fn qrnn() -> LstmConfig {
    LstmConfig { cell: CellKind::Qrnn, two_biases: false, input_gate: InputGate::Capped, ..awd() }
}

/// Rows of f, j, o and i in PyTorch's order i, f, g and o.
fn to_pytorch(gates: &Tensor) -> Tensor {
    let parts = gates.chunk(4, 0);
    Tensor::cat(&[3, 0, 1, 2].map(|gate: usize| &parts[gate]), 0)
}

/// Row S9.
#[test]
fn a_model_without_noise_is_the_lstm_of_libtorch() {
    let config = awd();
    let parameters = parameters(&config);
    let model = Model::new(&config, &parameters);
    let ids = ids(2, 9);
    let found = model.forward(&ids, &model.memory_start(2), None);
    let mut x = Tensor::embedding(&parameters.get(EMBEDDING), &ids, -1, false, false);
    for layer in 0..3 {
        let get = |name: &str| parameters.get(&format!("{}{name}", prefix(layer)));
        let bias = |f: &str, rest: &str| to_pytorch(&Tensor::cat(&[get(f), get(rest)], 0));
        let weights = [
            to_pytorch(&get("weight_x")),
            to_pytorch(&get("weight_h")),
            bias("bias_f", "bias"),
            bias("bias_fh", "bias_h"),
        ];
        let n = weights[1].size()[1];
        let zeros = || Tensor::zeros([1, 2, n], (Kind::Double, Device::Cpu));
        let (outputs, hidden, cell) = x.lstm(&[zeros(), zeros()], &weights, true, 1, 0.0, false, false, true);
        for (part, expected) in [hidden, cell].into_iter().enumerate() {
            let carried = found.memory.layers[2 * layer + part].squeeze_dim(1);
            assert!(difference(&carried, &expected.squeeze_dim(0)) < 1e-12, "layer {layer}");
        }
        x = outputs;
    }
    assert!(difference(&found.hidden, &x) < 1e-12 && found.undropped.equal(&found.hidden));
}

/// A pass with weights dropped is one of a model whose weights are these, and what is dropped gets no gradient.
/// Row S9.
#[test]
fn dropped_weights_take_the_place_of_the_weights() {
    let plain = |config: LstmConfig| LstmConfig {
        embedding_dropout: 0.0,
        input_dropout: 0.0,
        inter_layer_dropout: 0.0,
        output_dropout: 0.0,
        ..config
    };
    for (config, name) in [(plain(awd()), "weight_h"), (plain(qrnn()), "weight_x")] {
        let parameters = parameters(&config);
        let model = Model::new(&config, &parameters);
        let ids = ids(2, 9);
        let found = model.forward(&ids, &model.memory_start(2), Some(&Noise::new(3)));
        let noise = Noise::new(3);
        let masks: Vec<Tensor> = (0..3)
            .map(|layer| {
                let weight = parameters.get(&format!("{}{name}", prefix(layer)));
                dropout(weight.detach().ones_like(), 0.5, Some(&noise))
            })
            .collect();
        let substituted = parameters.specs().iter().map(|spec| {
            let layer = (0..3).find(|&layer| spec.name == format!("{}{name}", prefix(layer)));
            let value = parameters.get(&spec.name).detach();
            layer.map_or_else(|| value.copy(), |layer| &value * &masks[layer])
        });
        let others = Parameters::from_tensors(specs(&config), substituted.collect(), Kind::Double);
        let other = Model::new(&config, &others);
        let expected = other.forward(&ids, &other.memory_start(2), None);
        assert!(difference(&found.hidden, &expected.hidden) < 1e-12);
        let plain = model.forward(&ids, &model.memory_start(2), None);
        assert!(difference(&found.hidden, &plain.hidden) > 1e-3);
        model.nll(&found.hidden, &ids, None).sum(None::<Kind>).backward();
        for (layer, mask) in masks.iter().enumerate() {
            let gradient = parameters.get(&format!("{}{name}", prefix(layer))).grad();
            assert_eq!(gradient.masked_select(&mask.eq(0.0)).abs().max().double_value(&[]), 0.0);
            assert!(gradient.masked_select(&mask.ne(0.0)).abs().max().double_value(&[]) > 0.0);
        }
    }
}

/// Where h' is 0 recurrent weights count for nothing, dropped or not; from the second position on they do.
/// Row S9.
#[test]
fn the_first_step_knows_nothing_of_the_mask() {
    let config = LstmConfig { weight_dropout: 0.5, wiring: Wiring::Stack, ..small() };
    let model = model(&config);
    let of = |positions: i64, noise: Option<&Noise>| {
        model.forward(&ids(2, positions), &model.memory_start(2), noise).hidden
    };
    assert!(of(1, Some(&Noise::new(1))).equal(&of(1, None)));
    assert!(difference(&of(2, Some(&Noise::new(1))), &of(2, None)) > 1e-6);
    assert!(difference(&of(2, Some(&Noise::new(1))), &of(2, Some(&Noise::new(2)))) > 1e-6);
}

/// Words, then masks that are locked, in the order of AWD-LSTM: embeddings, input, between layers, after the last.
/// Row S10.
#[test]
fn dropout_acts_where_awd_lstm_has_it() {
    for config in [awd(), qrnn()] {
        let parameters = parameters(&config);
        let model = Model::new(&config, &parameters);
        let ids = ids(2, 7);
        let found = model.forward(&ids, &model.memory_start(2), Some(&Noise::new(7)));
        let noise = Noise::new(7);
        let layers = layer::layers(&config, &parameters, &|weight| dropout(weight, 0.5, Some(&noise)));
        let words = dropout(Tensor::ones([WORDS, 1], (Kind::Double, Device::Cpu)), 0.2, Some(&noise));
        let table = parameters.get(EMBEDDING) * words;
        let locked = |x: &Tensor| {
            let one = dropout(x.detach().get(0).ones_like(), 0.3, Some(&noise));
            x * one
        };
        let mut x = locked(&Tensor::embedding(&table, &ids.transpose(0, 1), -1, false, false));
        for (number, layer) in layers.iter().enumerate() {
            if number > 0 {
                x = locked(&x);
            }
            let (state, _) = model.start_of(number, &model.memory_start(2), None);
            x = layer.forward(&x, state, None).0;
        }
        assert!(difference(&found.undropped, &x.transpose(0, 1)) < 1e-12);
        assert!(difference(&found.hidden, &locked(&x).transpose(0, 1)) < 1e-12);
    }
}

/// The table that predicts is whole whatever the input's loses, and a projection's mask is one for all positions.
/// Row S10.
#[test]
fn words_are_predicted_by_all_rows() {
    let config = awd();
    let model = model(&config);
    let hidden = model.forward(&ids(2, 7), &model.memory_start(2), None).hidden;
    let [with, without] = [Some(&Noise::new(1)), None].map(|noise| model.nll(&hidden, &ids(2, 7), noise));
    assert!(with.equal(&without));
    let wide = LstmConfig { d_last: 0, projection_dropout: 0.5, ..awd() };
    let wide = super::model(&wide);
    assert!(wide.projection.is_some());
    let ones = Tensor::ones([2 * 7, 5], (Kind::Double, Device::Cpu));
    let mask = wide.drop_projected(ones, 2, Some(&Noise::new(1))).view([2, 7, 5]);
    assert!(mask.equal(&mask.narrow(1, 0, 1).expand_as(&mask)));
    assert_eq!(mask.eq(0.0).any().int64_value(&[]), 1);
}

/// A segment read at once, or in pieces with the state between them, where layers have widths of their own.
/// Row S16.
#[test]
fn a_carried_state_makes_pieces_of_a_stack_a_whole() {
    for config in [awd(), qrnn(), LstmConfig { window: 4, ..qrnn() }, LstmConfig { d_last: 0, ..qrnn() }] {
        let model = model(&config);
        let ids = ids(2, 24);
        let whole = model.forward(&ids, &model.memory_start(2), None);
        let (mut memory, mut pieces) = (model.memory_start(2), Vec::new());
        for start in (0..24).step_by(3) {
            let out = model.forward(&ids.narrow(1, start, 3), &memory, None);
            memory = out.memory;
            pieces.push(out.hidden);
        }
        assert!(difference(&Tensor::cat(&pieces, 1), &whole.hidden) < 1e-12);
        for (layer, (piece, whole)) in memory.layers.iter().zip(&whole.memory.layers).enumerate() {
            assert_eq!(piece.size(), whole.size());
            assert_eq!(piece.size()[2] as usize, config.carried_widths(layer / 2)[layer % 2]);
            assert!(piece.numel() == 0 || difference(piece, whole) < 1e-12);
        }
    }
}

/// Every parameter of a QRNN against finite differences, through both kernels' plain twins.
/// Row S16.
#[test]
fn gradients_of_a_model_are_those_of_finite_differences() {
    let config = LstmConfig { n_layer: 2, d_model: 4, d_embed: 3, d_last: 3, ..qrnn() };
    let parameters = parameters(&config);
    let model = Model::new(&config, &parameters);
    let loss = || {
        let memory = model.memory_start(2);
        let first = model.forward(&ids(2, 4), &memory, Some(&Noise::new(5)));
        // The state is cut off between segments, its value is not.
        let second = model.forward(&ids(2, 4), &first.memory, Some(&Noise::new(6)));
        model.nll(&second.hidden, &ids(2, 4), None).sum(None::<Kind>)
    };
    let memory = model.forward(&ids(2, 4), &model.memory_start(2), Some(&Noise::new(5))).memory;
    let of_second = || {
        let second = model.forward(&ids(2, 4), &memory, Some(&Noise::new(6)));
        model.nll(&second.hidden, &ids(2, 4), None).sum(None::<Kind>)
    };
    assert!(loss().equal(&of_second()));
    of_second().backward();
    const STEP: f64 = 1e-6;
    for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
        let gradient = tensor.grad();
        for place in (0..spec.numel() as i64).step_by(3) {
            let value = tensor.detach().view([-1]).get(place);
            let moved = |by: f64| {
                let mut value = value.shallow_clone();
                let _ = value.g_add_scalar_(by);
                let loss = tch::no_grad(of_second).double_value(&[]);
                let _ = value.g_add_scalar_(-by);
                loss
            };
            let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let found = gradient.view([-1]).double_value(&[place]);
            assert!((found - expected).abs() < 1e-7, "{}, {place}: {found} instead of {expected}", spec.name);
        }
    }
}

/// Row S15: over many contexts, logarithms of one softmax of vectors of width e have a rank of at most e + 2 (the vectors, the biases of words,
/// the normaliser); those of a mixture may have more.
/// Row S15.
#[test]
fn a_mixture_has_a_rank_that_no_single_softmax_has() {
    let rank = |mixture: usize, mixture_of_one: bool| {
        let config =
            LstmConfig { d_embed: 2, d_last: 8, mixture, mixture_of_one, weight_dropout: 0.0, ..awd() };
        let parameters = parameters(&config);
        tch::no_grad(|| {
            for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
                // Words and experts that differ more than at the start.
                let mut tensor = tensor.shallow_clone();
                let ramp = Tensor::arange(spec.numel() as i64, (Kind::Double, Device::Cpu))
                    .view(spec.shape.as_slice());
                tensor += (ramp * 1.7).sin();
            }
        });
        let model = Model::new(&config, &parameters);
        let hidden = model.forward(&ids(4, 30), &model.memory_start(4), None).hidden;
        let (_, values, _) = model.log_probs(&hidden).view([-1, WORDS]).svd(true, false);
        (values.get(0) * 1e-9).lt_tensor(&values).sum(Kind::Int64).int64_value(&[])
    };
    for alone in [rank(1, false), rank(1, true)] {
        assert!(alone <= 2 + 2, "{alone}");
    }
    let mixed = rank(3, false);
    assert!(mixed > 2 + 2, "{mixed}");
}
