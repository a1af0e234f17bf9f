use super::super::keys::CellKind;
use super::super::layer::cell;
use super::super::parameters::{prefix, specs};
mod awd;
mod cells;
mod dropout;

use segue_layers::recurrent::Uses;
use tch::Device;

use super::*;

const WORDS: i64 = 11;

fn small() -> LstmConfig {
    LstmConfig { vocab_size: WORDS as usize, d_model: 8, ..Default::default() }
}

fn model(config: &LstmConfig) -> Model {
    Model::new(config, &parameters(config))
}

fn parameters(config: &LstmConfig) -> Parameters {
    Parameters::initialise(specs(config), 5, Kind::Double)
}

fn ids(lanes: i64, segment: i64) -> Tensor {
    (Tensor::arange(lanes * segment, (Kind::Int64, Device::Cpu)) * 7).remainder(WORDS).view([lanes, segment])
}

fn hidden(config: &LstmConfig) -> Tensor {
    let model = model(config);
    model.forward(&ids(2, 9), &model.memory_start(2), None).hidden.detach()
}

fn difference(one: &Tensor, other: &Tensor) -> f64 {
    (one - other).abs().max().double_value(&[])
}

/// Melis 2023, §4.1: for two layers both wirings are the same network, and for three they are not.
/// Row M6.
#[test]
fn wirings_agree_for_two_layers_alone() {
    let wired = |n_layer, wiring| hidden(&LstmConfig { n_layer, wiring, ..small() });
    assert!(difference(&wired(2, Wiring::Skip), &wired(2, Wiring::Residual)) < 1e-12);
    assert!(difference(&wired(3, Wiring::Skip), &wired(3, Wiring::Residual)) > 1e-3);
}

/// The embedding is no part of the sum of layers: where these give nothing, words have the probabilities of their biases.
/// Row M6.
#[test]
fn layers_that_give_nothing_leave_the_biases() {
    let config = small();
    let parameters = parameters(&config);
    tch::no_grad(|| {
        for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
            let mut tensor = tensor.shallow_clone();
            if spec.name.starts_with("layers.") {
                let _ = tensor.zero_();
            } else if spec.name == OUTPUT_BIAS {
                tensor.copy_(&Tensor::arange(WORDS, (Kind::Double, Device::Cpu)));
            }
        }
    });
    let model = Model::new(&config, &parameters);
    let out = model.forward(&ids(1, 3), &model.memory_start(1), None);
    let expected = Tensor::arange(WORDS, (Kind::Double, Device::Cpu)).log_softmax(-1, None::<Kind>);
    assert!(difference(&model.log_probs(&out.hidden), &expected.expand([1, 3, WORDS], false)) < 1e-12);
}

/// −ln P by targets is what the probabilities of all words say, which add up to 1.
/// Row M6.
#[test]
fn losses_are_those_of_probabilities() {
    let configs = [
        small(),
        LstmConfig { mixture: 2, ..small() },
        LstmConfig { input_embedding_ratio: 0.5, tie_word_embeddings: false, ..small() },
    ];
    for config in configs {
        let model = model(&config);
        let (ids, memory) = (ids(2, 9), model.memory_start(2));
        let hidden = model.forward(&ids, &memory, None).hidden;
        let log_probs = model.log_probs(&hidden);
        assert!(
            difference(&log_probs.exp().sum_dim_intlist(-1, false, None::<Kind>), &Tensor::from(1.0)) < 1e-12
        );
        let expected = -log_probs.gather(2, &ids.unsqueeze(2), false).squeeze_dim(2);
        assert!(difference(&model.nll(&hidden, &ids, None), &expected) < 1e-12, "{config:?}");
    }
}

/// Reference numbers of two softmaxes with weights softmax(0.4, −0.2) over three words.
/// Row M6.
#[test]
fn a_mixture_of_softmaxes_gives_the_reference_numbers() {
    let row = |values: &[f64]| Tensor::from_slice(values);
    // At an inverse temperature of 0.9.
    let scores = Tensor::stack(&[row(&[2.0, 0.5, -1.0]), row(&[-0.5, 1.0, 0.0])], 0) * 0.9;
    let log_priors = row(&[0.4, -0.2]).log_softmax(-1, None::<Kind>);
    let mixed = mix(&scores.unsqueeze(0), &log_priors.unsqueeze(0));
    let expected = row(&[-0.612671782, -1.082042871, -2.126982523]);
    assert!(difference(&mixed.squeeze_dim(0), &expected) < 1e-9, "{mixed}");
}

/// A segment read at once, or in pieces with the state between them.
/// Row M8.
#[test]
fn a_carried_state_makes_pieces_a_whole() {
    let mogrified = |cell| LstmConfig { cell, mogrifier_rounds: 2, ..small() };
    let kinds = [CellKind::Lstm, CellKind::Mlstm, CellKind::Rewired, CellKind::Gru, CellKind::Elman];
    for config in kinds.map(mogrified).into_iter().chain(cells::variants()) {
        let model = model(&config);
        let ids = ids(2, 50);
        let whole = model.forward(&ids, &model.memory_start(2), None);
        let (mut memory, mut pieces) = (model.memory_start(2), Vec::new());
        for start in (0..50).step_by(5) {
            let out = model.forward(&ids.narrow(1, start, 5), &memory, None);
            memory = out.memory;
            pieces.push(out.hidden);
        }
        assert!(difference(&Tensor::cat(&pieces, 1), &whole.hidden) < 1e-12, "{config:?}");
        for (piece, whole) in memory.layers.iter().zip(&whole.memory.layers) {
            assert!(difference(piece, whole) < 1e-12, "{config:?}");
        }
    }
}

/// The mask of the state is one for all positions of a segment, another for each lane, each layer and each segment; without noise there is none.
/// Row M5.
#[test]
fn the_mask_of_the_state_is_drawn_once_a_segment() {
    let config = LstmConfig { state_dropout: 0.5, d_model: 512, ..small() };
    let model = model(&config);
    let state = Tensor::zeros([2, 512], (Kind::Double, Device::Cpu));
    let noise = Noise::new(3);
    let [first, second] = [(), ()].map(|()| model.state_mask(&state, Some(&noise)).unwrap());
    assert!(difference(&first, &second) > 1.0);
    assert!(difference(&first.get(0), &first.get(1)) > 1.0);
    let again = model.state_mask(&state, Some(&Noise::new(3))).unwrap();
    assert!(again.equal(&first));
    // The noise of another micro-step, which a lane's next segment is in.
    let next = model.state_mask(&state, Some(&Noise::new(4))).unwrap();
    assert!(difference(&next, &first) > 1.0);
    assert!(model.state_mask(&state, None).is_none());
}

/// Two layers and every kind of dropout, against cells stepped one by one: masks of input and layers are drawn for each position, that of the
/// state once for each layer, and what is carried is not masked.
/// Row M5.
#[test]
fn dropout_acts_where_the_equations_have_it() {
    for wiring in [Wiring::Skip, Wiring::Residual] {
        let rates = if wiring == Wiring::Skip { (0.3, 0.0) } else { (0.0, 0.3) };
        let config = LstmConfig {
            wiring,
            cell: CellKind::Rewired,
            input_dropout: 0.3,
            inter_layer_dropout: rates.0,
            cell_output_dropout: rates.1,
            state_dropout: 0.3,
            output_dropout: 0.3,
            ..small()
        };
        let parameters = parameters(&config);
        let model = Model::new(&config, &parameters);
        let ids = ids(2, 5);
        let found = model.forward(&ids, &model.memory_start(2), Some(&Noise::new(7)));
        let noise = Noise::new(7);
        let drop = |x: &Tensor| dropout(x.shallow_clone(), 0.3, Some(&noise));
        let zeros = || Tensor::zeros([2, 8], (Kind::Double, Device::Cpu));
        let embedded = Tensor::embedding(&model.embedding, &ids.transpose(0, 1), -1, false, false);
        let mut input = drop(&embedded);
        let mut sum = Tensor::zeros([5, 2, 8], (Kind::Double, Device::Cpu));
        for layer in 0..2 {
            if layer == 1 && wiring == Wiring::Skip {
                input = drop(&input);
            }
            let mask = drop(&zeros().ones_like());
            let cell = cell(&config, &prefix(layer), &parameters, &|weight| weight);
            let mut state = State { hidden: zeros(), cell: zeros() };
            let step = |position: i64| {
                let seen = &state.hidden * &mask;
                let unrolled = cell.unroll(Uses { reads: 0, steps: 1 });
                state = unrolled.step(&cell.read(&input.get(position)), &seen, &state.cell, Some(&mask));
                state.hidden.shallow_clone()
            };
            let outputs = Tensor::stack(&(0..5).map(step).collect::<Vec<_>>(), 0);
            let added = if wiring == Wiring::Skip { outputs.shallow_clone() } else { drop(&outputs) };
            sum += added;
            input = if wiring == Wiring::Skip { outputs } else { sum.copy() };
        }
        assert!(difference(&drop(&sum).transpose(0, 1), &found.hidden) < 1e-12, "{wiring:?}");
    }
}

/// With nothing to drop, noise changes no bit.
/// Row M5.
#[test]
fn rates_of_zero_change_no_bit() {
    let model = model(&LstmConfig { mogrifier_rounds: 2, ..small() });
    let (ids, memory) = (ids(2, 9), model.memory_start(2));
    let [with, without] = [Some(&Noise::new(1)), None].map(|noise| {
        let out = model.forward(&ids, &memory, noise);
        model.nll(&out.hidden, &ids, noise)
    });
    assert!(with.equal(&without));
}

/// A tied table's gradient is the sum of those of its two uses.
/// Row M6.
#[test]
fn a_tied_table_gets_the_gradients_of_both_uses() {
    let gradients = |tie_word_embeddings| {
        let config = LstmConfig { tie_word_embeddings, ..small() };
        let mut parameters = parameters(&config);
        if !tie_word_embeddings {
            let tensors = parameters.specs().iter().map(|spec| {
                let name = if spec.name == OUTPUT { EMBEDDING } else { &spec.name };
                parameters.get(name).detach().copy()
            });
            parameters = Parameters::from_tensors(specs(&config), tensors.collect(), Kind::Double);
        }
        let model = Model::new(&config, &parameters);
        let out = model.forward(&ids(2, 9), &model.memory_start(2), None);
        model.nll(&out.hidden, &ids(2, 9), None).sum(None::<Kind>).backward();
        [EMBEDDING, OUTPUT].map(|name| parameters.find(name).map(|table| table.grad()))
    };
    let [Some(tied), None] = gradients(true) else { panic!("one table") };
    let [Some(input), Some(output)] = gradients(false) else { panic!("two tables") };
    assert!(difference(&tied, &(input + output)) < 1e-12);
}
