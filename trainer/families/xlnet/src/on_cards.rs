//! The model by kernels for cards, which the processor makes believe it is.

use segue_configs::{MemoryStart, Precision};
use segue_kernels::libtorch::Autocast;
use segue_kernels::noise::Noise;
use segue_kernels::{Kernels, Parameters};
use segue_testing::emulated::{self, Order};
use tch::{Device, Kind, Tensor};

use super::{Sequence, Visibility, Xlnet, XlnetConfig};

const LANES: i64 = 3;
const LENGTH: i64 = 20;

/// Words, or an order of places, `[lanes, length]`.
fn numbers(from: i64) -> Tensor {
    let numbers = Tensor::arange_start(from, from + LANES * LENGTH, (Kind::Int64, Device::Cpu));
    (&numbers * &numbers + numbers * 7).remainder(41).view([LANES, LENGTH])
}

/// Both streams after two segments with unwritten memory, orders in halves, segments, and a lane that reads backwards; and all gradients.
fn found(config: &XlnetConfig, kind: Kind, kernels: Kernels) -> Vec<Tensor> {
    let parameters = Parameters::initialise(Xlnet::specs(config), 3, kind).with_kernels(kernels);
    let model = Xlnet::new(config, &parameters);
    let (first, second, ranks) = (numbers(3), numbers(90), numbers(17));
    let own = Tensor::arange(LENGTH, (Kind::Int64, Device::Cpu)).ge(13).to_kind(Kind::Int64);
    let segments = own.unsqueeze(0).repeat([LANES, 1]);
    let targets = Tensor::from_slice(&[1i64, 4, 6, 15]).unsqueeze(0).repeat([LANES, 1]);
    let sequence = |ids, targets| Sequence {
        segments: Some(&segments),
        visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 },
        targets,
        reversed: 1,
        ..Sequence::new(ids)
    };
    let noise = Noise::new(13);
    let one = model.forward(sequence(&first, None), &model.memory_start(LANES), Some(&noise));
    let two = model.forward(sequence(&second, Some(&targets)), &one.memory, Some(&noise));
    let (Some(content), Some(predictions)) = (two.content, two.predictions) else {
        panic!("both were asked for")
    };
    let labels = second.gather(1, &targets, false);
    let loss = model.nll(&predictions, &labels).sum(None::<Kind>) + content.square().sum(None::<Kind>);
    loss.backward();
    let gradients = parameters.tensors().iter().map(Tensor::grad).filter(Tensor::defined);
    let gradients = gradients.map(|grad| if grad.is_sparse() { grad.to_dense(None, false) } else { grad });
    [content.detach(), predictions.detach()].into_iter().chain(gradients).collect()
}

#[track_caller]
fn assert_alike(found: &[Tensor], expected: &[Tensor], limit: f64) {
    assert!(found.len() == expected.len() && found.len() > 20);
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = ((found - expected).abs().max() / (expected.abs().max() + 0.1)).double_value(&[]);
        assert!(error < limit, "tensor {i} is off by {error}");
    }
}

/// In single precision, of the largest value; the limit of the CPU's own kernels.
const LIMIT: f64 = 1e-4;

#[test]
fn kernels_for_cards_give_what_tensors_give_and_drop_what_tiles_drop() {
    let config = XlnetConfig {
        vocab_size: 41,
        d_model: 24,
        n_head: 3,
        d_inner: 32,
        n_layer: 2,
        mem_len: 10,
        reuse_len: 6,
        dropout: 0.1,
        dropatt: 0.0,
        initializer_range: 0.3,
        memory_start: MemoryStart::Masked,
        ..Default::default()
    };
    let on_card = |config| emulated::during(Order::Forwards, || found(config, Kind::Float, Kernels::Fused));
    assert_alike(&on_card(&config), &found(&config, Kind::Double, Kernels::Plain), LIMIT);
    // Attention drops the same weights.
    let dropping = XlnetConfig { dropatt: 0.2, ..config };
    assert_alike(&on_card(&dropping), &found(&dropping, Kind::Double, Kernels::Plain), LIMIT);
}

/// Products of short numbers, whose rounding is within 2^-8 of each: an error of a term that is left out would be larger.
#[test]
fn with_casts_states_are_rounded_once_and_added_to_whole() {
    let config = XlnetConfig {
        vocab_size: 41,
        d_model: 24,
        n_head: 3,
        d_inner: 32,
        n_layer: 2,
        mem_len: 10,
        reuse_len: 6,
        dropout: 0.1,
        dropatt: 0.0,
        initializer_range: 0.3,
        memory_start: MemoryStart::Masked,
        ..Default::default()
    };
    let casts = Autocast::to(Precision::Bf16, Device::Cpu).expect("casts to 16 bits");
    let on_card =
        emulated::during(Order::Forwards, || casts.during(|| found(&config, Kind::Float, Kernels::Fused)));
    assert_alike(&on_card, &found(&config, Kind::Double, Kernels::Plain), 0.1);
}
