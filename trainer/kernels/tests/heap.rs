//! Where tensors lie. A process of its own: the allocator is no other thread's to change while one computes by oneDNN.

use segue_kernels::libtorch::{keep_freed_memory, place_tensors};
use tch::{Device, Kind, Tensor};

/// What libtorch's own kernels may count on.
const ALIGNMENT: usize = 64;

fn filled(values: i64) -> Tensor {
    Tensor::ones([values], (Kind::Float, Device::Cpu))
}

fn address(tensor: &Tensor) -> usize {
    tensor.data_ptr() as usize
}

#[test]
fn a_tensor_takes_the_place_of_a_freed_one_of_its_size() {
    keep_freed_memory();
    place_tensors();
    let mut all: Vec<Tensor> = (0..9).map(|_| filled(1 << 18)).collect();
    let freed = address(&all[4]);
    for _ in 0..10 {
        all[4] = Tensor::new();
        all[4] = filled(1 << 18);
        // There, or where a hole before it was wide enough, but not behind all others.
        assert!(address(&all[4]) <= freed);
    }
}

#[test]
fn tensors_from_before_grow_and_go() {
    let mut before = filled(1000);
    place_tensors();
    let _ = before.resize_([100_000]);
    assert_eq!(before.narrow(0, 0, 1000).sum(Kind::Float).double_value(&[]), 1000.0);
    assert_eq!(address(&before) % ALIGNMENT, 0);
    drop(before);
    assert_eq!(filled(1000).sum(Kind::Float).double_value(&[]), 1000.0);
}

#[test]
fn values_are_aligned_and_keep_to_themselves() {
    place_tensors();
    let mut all: Vec<Tensor> = (0..200).map(filled).collect();
    for (values, tensor) in all.iter_mut().enumerate() {
        assert_eq!(address(tensor) % ALIGNMENT, 0, "{values} values");
        let _ = tensor.fill_(values as f64);
    }
    for (values, tensor) in all.iter().enumerate() {
        assert_eq!(tensor.sum(Kind::Double).double_value(&[]), (values * values) as f64);
    }
}

#[test]
fn a_tensor_without_room_is_an_error() {
    place_tensors();
    let error = Tensor::f_empty([1 << 60], (Kind::Float, Device::Cpu)).unwrap_err();
    assert!(error.to_string().contains("no memory for a tensor of"), "{error}");
}
