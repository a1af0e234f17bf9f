//! Kernels for cards that no layer is needed for.

use segue_kernels::noise::{Noise, dropout};
use segue_testing::emulated::{Order, during};
use tch::{Device, Kind, Tensor};

#[test]
fn masks_of_cards_have_the_bits_of_the_loop() {
    for kind in [Kind::Float, Kind::BFloat16, Kind::Double] {
        let x = Tensor::ones([3, 41, 129], (kind, Device::Cpu));
        let dropped = || dropout(x.shallow_clone(), 0.3, Some(&Noise::new(u64::MAX - 77)));
        for order in [Order::Forwards, Order::Backwards] {
            assert_eq!(during(order, dropped), dropped(), "{kind:?}");
        }
    }
}
