//! Models on the device that `SEGUE_DEVICE` names (`cpu`, or `cuda` on a host with a card) next to themselves on the CPU: states, losses and
//! gradients. On the CPU these tests hold the fused kernels against plain ones.

mod models;
mod ranks;
mod tasks;

use segue_configs::DeviceKind;
use segue_families::card_sources;
use segue_kernels::Compute;
use segue_kernels::noise::{Noise, dropout, locked_dropout};
use tch::{Device, Kind, Tensor};

/// What is held against the CPU.
fn compute() -> Compute {
    let kind = match std::env::var("SEGUE_DEVICE").as_deref() {
        Ok("cuda") => DeviceKind::Cuda,
        Ok("cpu") | Err(_) => DeviceKind::Cpu,
        Ok(other) => panic!("SEGUE_DEVICE is {other}, and may be cpu or cuda"),
    };
    let compute = Compute::choose(kind, 0).unwrap_or_else(|error| panic!("{error}"));
    segue_kernels::libtorch::set_threads(1);
    compute
}

/// Where its tensors lie.
fn device() -> Device {
    compute().device()
}

/// The largest difference beside the largest value.
#[track_caller]
fn assert_close(what: &str, found: &Tensor, expected: &Tensor, limit: f64) {
    let on_cpu = |tensor: &Tensor| tensor.detach().to_device(Device::Cpu).to_kind(Kind::Double);
    let (found, expected) = (on_cpu(found), on_cpu(expected));
    assert_eq!(found.size(), expected.size(), "{what}");
    let error = ((&found - &expected).abs().max() / (expected.abs().max() + 1e-3)).double_value(&[]);
    assert!(error <= limit, "{what} is off by {error:.2e}, limit {limit:.0e}");
}

#[test]
fn masks_are_those_of_the_cpu() {
    let device = device();
    for kind in [Kind::Float, Kind::Double] {
        let x = Tensor::ones([3, 37, 129], (kind, Device::Cpu));
        for (place, rate) in [(0, 0.1), (5, 0.5)] {
            let dropped = |x: Tensor| {
                let noise = Noise::new(0x1234_5678_9abc_def0);
                (0..place).for_each(|_| _ = noise.drops(0.1));
                let one = dropout(x.shallow_clone(), rate, Some(&noise));
                let locked = locked_dropout(x, 1, rate, Some(&noise));
                (one.to_device(Device::Cpu), locked.to_device(Device::Cpu))
            };
            assert_eq!(dropped(x.to_device(device)), dropped(x.shallow_clone()), "rate {rate}");
        }
    }
}

/// So that the tests of models are tests of them. Attention in one pass is for cards that have what it needs.
#[test]
fn kernels_of_our_own_are_there_where_the_device_is_a_card() {
    let x = Tensor::ones([3], (Kind::Float, device()));
    for source in card_sources() {
        let for_some = source.name().contains("flash");
        assert!(source.is_for(&x) || for_some || device() == Device::Cpu, "{}", source.name());
        assert_eq!(
            source.kernels(&x).is_some(),
            source.is_for(&x),
            "{}: {:?}",
            source.name(),
            source.failures()
        );
    }
}

/// The kernels' own limits: that nothing is lost where a model is moved.
#[test]
fn a_model_that_is_moved_keeps_its_values_and_its_leaves() {
    let device = device();
    let made = || models::transformer_xl().0;
    let moved = made().to(device);
    for (moved, kept) in moved.tensors().iter().zip(made().tensors()) {
        assert!(moved.is_leaf() && moved.requires_grad());
        assert_eq!(moved.to_device(Device::Cpu), *kept);
    }
    assert_eq!(moved.options().1, device);
}
