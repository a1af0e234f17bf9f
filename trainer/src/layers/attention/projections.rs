//! Linear maps of a segment and of the memory before it: what attention's queries, keys and values are made by.

use tch::Tensor;

use crate::Kernels;
use crate::libtorch::{Called, KERNEL_ADVICE, functions, plain_linear, transposed_product};

/// A linear map without bias.
pub(crate) struct Projection<'a> {
    /// `[out, d_model]`.
    pub weight: &'a Tensor,
    /// Whether it maps memory as well as the segment.
    pub of_memory: bool,
}

/// `maps` of the segment `own`, `[lanes, segment, d_model]`, and those of memory of `mem`, `[lanes, mem, d_model]`, too:
/// `[lanes, segment, out]`, and `[lanes, mem + segment, out]` with memory first.
///
/// Memory mostly wants no gradient (SG of Yang 2019, §2.1.3). A graph of single operations would make that of memory and
/// segment for each map, add them, and keep half; here one product makes the segment's alone.
pub(crate) fn project<const N: usize>(
    kernels: Kernels,
    mem: &Tensor,
    own: &Tensor,
    maps: [Projection; N],
) -> [Tensor; N] {
    let joined = || if mem.size()[1] == 0 { own.shallow_clone() } else { Tensor::cat(&[mem, own], 1) };
    if !kernels.fuse(own) {
        let joined = joined();
        return maps.map(|map| kernels.linear(if map.of_memory { &joined } else { own }, map.weight, None));
    }
    let joined = tch::no_grad(joined);
    let read = maps.each_ref().map(|map| if map.of_memory { joined.detach() } else { own.detach() });
    let weights = maps.each_ref().map(|map| map.weight.detach());
    let projected: [Tensor; N] = std::array::from_fn(|i| plain_linear(&read[i], &weights[i], None));
    let inputs: Vec<&Tensor> = [mem, own].into_iter().chain(maps.iter().map(|map| map.weight)).collect();
    let wanted: Vec<bool> = inputs.iter().map(|input| input.requires_grad()).collect();
    let of_memory = maps.each_ref().map(|map| map.of_memory);
    let lengths = [mem.size()[1], own.size()[1]];
    let backward = move |grads: Vec<Option<Tensor>>| {
        // A map that nothing depends on has no part in any gradient.
        let used: Vec<usize> = (0..N).filter(|&i| grads[i].is_some()).collect();
        let grad = |i: usize| grads[i].as_ref();
        // The gradient of `length` positions from `start` of memory and segment on, by the maps of `by`.
        let of_positions = |by: Vec<usize>, start: i64, length: i64| {
            let part = |&i: &usize| {
                let before = if of_memory[i] { start } else { start - lengths[0] };
                grad(i).map(|grad| grad.narrow(1, before, length))
            };
            let parts: Vec<Tensor> = by.iter().filter_map(part).collect();
            let weights: Vec<&Tensor> = by.iter().map(|&i| &weights[i]).collect();
            (!parts.is_empty())
                .then(|| plain_linear(&Tensor::cat(&parts, 2), &Tensor::cat(&weights, 0).tr(), None))
        };
        let of_mem = || {
            let by = used.iter().copied().filter(|&i| of_memory[i]).collect();
            of_positions(by, 0, lengths[0])
        };
        let of_own = || of_positions(used.clone(), lengths[0], lengths[1]);
        let rows = |x: &Tensor| x.reshape([-1, x.size()[2]]);
        let mut found = vec![wanted[0].then(of_mem).flatten(), wanted[1].then(of_own).flatten()];
        found.extend((0..N).map(|i| {
            let grad = grad(i).filter(|_| wanted[2 + i])?;
            Some(transposed_product(&rows(&grad.contiguous()), &rows(&read[i])))
        }));
        found
    };
    let values: Vec<&Tensor> = projected.iter().collect();
    functions(Called { name: c"projections", advice: KERNEL_ADVICE }, &inputs, &values, backward);
    projected
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    /// The same values in each precision: those of single precision.
    fn wave(shape: &[i64], speed: f64, kind: Kind) -> Tensor {
        let count = shape.iter().product::<i64>();
        let exact = (Tensor::arange(count, (Kind::Double, Device::Cpu)) * speed).sin();
        exact.to_kind(Kind::Float).to_kind(kind).view(shape)
    }

    /// Values and gradients of memory, segment and weights. The second map reads memory; a third is not used for anything where not `all`.
    fn found(kind: Kind, mem_len: i64, mem_learns: bool, all: bool) -> Vec<Tensor> {
        let mem = wave(&[2, mem_len, 6], 0.7, kind).set_requires_grad(mem_learns);
        let own = wave(&[2, 5, 6], 1.1, kind).set_requires_grad(true);
        let weight = wave(&[12, 6], 1.3, kind).set_requires_grad(true);
        let parts = weight.chunk(3, 0);
        let map = |i: usize| Projection { weight: &parts[i], of_memory: i > 0 };
        let projected = project(Kernels::Fused, &mem, &own, [map(0), map(1), map(2)]);
        let used = if all { 3 } else { 2 };
        let weighed = projected.iter().take(used).zip([0.3, 0.9, 1.7]).map(|(y, speed)| {
            let scale = wave(&y.size(), speed, kind);
            (y * scale).sum(None::<Kind>)
        });
        weighed.reduce(|a, b| a + b).unwrap().backward();
        let grads = [&mem, &own, &weight].map(Tensor::grad).into_iter().filter(Tensor::defined);
        projected.iter().map(Tensor::detach).chain(grads).collect()
    }

    #[test]
    fn maps_of_memory_and_segment_have_the_gradients_of_single_operations() {
        for (mem_len, mem_learns) in [(0, false), (3, false), (3, true)] {
            for all in [true, false] {
                // Double precision is not Segue's own kernel's: libtorch's products of the joined states.
                let ours = found(Kind::Float, mem_len, mem_learns, all);
                let exact = found(Kind::Double, mem_len, mem_learns, all);
                assert_eq!(ours.len(), exact.len());
                assert_eq!(ours.len(), 5 + usize::from(mem_learns));
                for (ours, exact) in ours.iter().zip(&exact) {
                    assert_eq!(ours.size(), exact.size());
                    let error = (ours - exact).abs().max().double_value(&[]);
                    assert!(error < 1e-5, "{mem_len} {mem_learns} {all}: {error}");
                }
            }
        }
    }
}
