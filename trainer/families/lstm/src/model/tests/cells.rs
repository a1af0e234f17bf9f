//! Every cell and variant as a model: gradients, kernels, and weights that change.

use super::super::super::keys::GateNormKind;
use super::*;

/// The variants of an LSTM (Melis 2023, §2.3.4), alone and with each other.
pub(super) fn variants() -> Vec<LstmConfig> {
    let scaled = || LstmConfig { scale_vectors: true, ..small() };
    let normed = || LstmConfig { gate_norm: GateNormKind::Layer, ..small() };
    vec![
        scaled(),
        LstmConfig { cell: CellKind::Rewired, ..scaled() },
        LstmConfig { cell: CellKind::Elman, ..scaled() },
        LstmConfig { gate_rank: 1, ..small() },
        LstmConfig { gate_rank: 3, cell: CellKind::Mlstm, ..small() },
        normed(),
        LstmConfig { cell: CellKind::Mlstm, mogrifier_rounds: 2, ..normed() },
        LstmConfig { gate_rank: 2, gate_norm: GateNormKind::Layer, two_biases: true, ..scaled() },
    ]
}

/// All cells with and without a mogrifier, and the variants.
fn all() -> Vec<LstmConfig> {
    let cells = [CellKind::Lstm, CellKind::Mlstm, CellKind::Rewired, CellKind::Gru, CellKind::Elman];
    let with = |rounds, rank| {
        cells.map(|cell| LstmConfig { cell, mogrifier_rounds: rounds, mogrifier_rank: rank, ..small() })
    };
    with(0, 0).into_iter().chain(with(3, 2)).chain(with(2, 0)).chain(variants()).collect()
}

fn loss(config: &LstmConfig, parameters: &Parameters) -> Tensor {
    let model = Model::new(config, parameters);
    let ids = ids(2, 3);
    let hidden = model.forward(&ids, &model.memory_start(2), None).hidden;
    model.nll(&hidden, &ids.flip([1]), None).sum(None::<Kind>)
}

/// Each parameter moved a little to both sides, along a direction that no two values share.
/// Rows M1, M2, M3, M4, M24.
#[test]
fn gradients_are_those_of_finite_differences() {
    const STEP: f64 = 1e-5;
    for config in all() {
        let config = LstmConfig { d_model: 4, n_layer: 1, ..config };
        let parameters = parameters(&config);
        loss(&config, &parameters).backward();
        for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
            let along = (Tensor::arange(spec.numel() as i64, (Kind::Double, Device::Cpu)) * 1.7 + 0.4).cos();
            let along = along.view(spec.shape.as_slice());
            let moved = |by: f64| {
                tch::no_grad(|| {
                    let _ = tensor.shallow_clone().g_add_(&(&along * by));
                    let loss = loss(&config, &parameters).double_value(&[]);
                    let _ = tensor.shallow_clone().g_add_(&(&along * -by));
                    loss
                })
            };
            let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let found = (tensor.grad() * along).sum(None::<Kind>).double_value(&[]);
            assert!(
                (found - expected).abs() < 1e-6,
                "{}: {found} instead of {expected}, {config:?}",
                spec.name
            );
        }
    }
}

/// Our kernels in single precision against libtorch's operations in double, over widths that no kernel divides.
/// Row M3.
#[test]
fn fused_variants_are_those_of_double_precision() {
    for config in variants() {
        let config = LstmConfig { d_model: 37, ..config };
        let of = |kernels, kind| {
            let parameters = Parameters::initialise(specs(&config), 5, kind).with_kernels(kernels);
            let model = Model::new(&config, &parameters);
            let ids = ids(3, 9);
            let hidden = model.forward(&ids, &model.memory_start(3), None).hidden;
            let nll = model.nll(&hidden, &ids.flip([1]), None);
            nll.sum(None::<Kind>).backward();
            let grads = parameters.tensors().iter().map(Tensor::grad);
            [hidden.detach(), nll.detach()].into_iter().chain(grads).collect::<Vec<_>>()
        };
        let (ours, exact) = (of(Kernels::Fused, Kind::Float), of(Kernels::Plain, Kind::Double));
        for (number, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
            let error = difference(ours, exact) / exact.abs().max().double_value(&[]).max(1.0);
            // A norm divides what is rounded by its deviation, which is small where ranks are.
            let limit = if config.gate_norm == GateNormKind::None { 1e-5 } else { 5e-5 };
            assert!(error < limit, "{number}: {error:e}, {config:?}");
        }
    }
}

/// A model reads its weights anew in each pass, products of factors too: an update, or a step of a dynamic evaluation, changes what a model that
/// stands already says to what one over the changed weights says.
/// Row M3.
#[test]
fn a_model_follows_its_weights() {
    for config in variants() {
        let parameters = parameters(&config);
        let model = Model::new(&config, &parameters);
        let said = |model: &Model| model.forward(&ids(1, 4), &model.memory_start(1), None).hidden.detach();
        for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
            if !spec.name.starts_with("layers.") {
                continue;
            }
            let before = said(&model);
            // Of each value its own: a norm takes out what is added to all places of a gate.
            let change = (Tensor::arange(spec.numel() as i64, (Kind::Double, Device::Cpu)) * 1.7).cos() * 0.1;
            tch::no_grad(|| _ = tensor.shallow_clone().g_add_(&change.view(spec.shape.as_slice())));
            let after = said(&model);
            assert!(difference(&before, &after) > 0.0, "{}: {config:?}", spec.name);
            assert!(after.equal(&said(&Model::new(&config, &parameters))), "{}: {config:?}", spec.name);
        }
    }
}

/// Of equal numbers, the same model: scales of ones change no bit, whatever the cell.
/// Row M3.
#[test]
fn scales_start_as_the_model_without_them() {
    for cell in [CellKind::Lstm, CellKind::Mlstm, CellKind::Rewired, CellKind::Elman] {
        let scaled = hidden(&LstmConfig { cell, scale_vectors: true, ..small() });
        assert!(scaled.equal(&hidden(&LstmConfig { cell, ..small() })), "{cell:?}");
    }
}
