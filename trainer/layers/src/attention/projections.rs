//! Linear maps of a segment and of the memory before it: what attention's queries, keys and values are made by.

use segue_kernels::Kernels;
use segue_kernels::libtorch::{
    Autocast, Called, KERNEL_ADVICE, functions, plain_linear, short_kind, short_weight_gradient,
    transposed_product,
};
use tch::{Kind, Tensor};

/// A linear map without bias.
pub struct Projection<'a> {
    /// `[out, d_model]`.
    pub weight: &'a Tensor,
    /// Whether it maps memory as well as the segment.
    pub of_memory: bool,
}

/// `maps` of the segment `own`, `[lanes, segment, d_model]`, and those of memory of `mem`, `[lanes, mem, d_model]`, too:
/// `[lanes, segment, out]`, and `[lanes, mem + segment, out]` with memory first. `whole`: the tensor whose rows the maps' weights are, one after
/// the other, where there is one.
///
/// Memory mostly wants no gradient (SG of Yang 2019, §2.1.3). A graph of single operations would make that of memory and
/// segment for each map, add them, and keep half; here one product makes the segment's alone.
pub fn project<const N: usize>(
    kernels: Kernels,
    mem: &Tensor,
    own: &Tensor,
    maps: [Projection; N],
    whole: Option<&Tensor>,
) -> [Tensor; N] {
    let joined = |mem: &Tensor, own: &Tensor| {
        if mem.size()[1] == 0 { own.shallow_clone() } else { Tensor::cat(&[mem, own], 1) }
    };
    let short = (kernels == Kernels::Fused).then(|| short_kind(own)).flatten();
    if short.is_none() && !kernels.fuse(own) {
        let joined = joined(mem, own);
        return maps.map(|map| kernels.linear(if map.of_memory { &joined } else { own }, map.weight, None));
    }
    let inputs: Vec<&Tensor> = match whole {
        Some(whole) => vec![mem, own, whole],
        None => [mem, own].into_iter().chain(maps.iter().map(|map| map.weight)).collect(),
    };
    let wanted: Vec<bool> = inputs.iter().map(|input| input.requires_grad()).collect();
    let kinds: Vec<Kind> = inputs.iter().map(|input| input.kind()).collect();
    let products = Products(short);
    let (projected, maps) = products.during(|| {
        let own = products.cast(own);
        let joined = joined(&products.cast(mem), &own);
        let maps = maps.each_ref().map(|map| Map {
            of_memory: map.of_memory,
            read: if map.of_memory { joined.shallow_clone() } else { own.shallow_clone() },
            weight: products.cast(map.weight),
        });
        (maps.each_ref().map(|map| products.linear(&map.read, &map.weight)), maps)
    });
    let lengths = [mem.size()[1], own.size()[1]];
    let is_whole = whole.is_some();
    let backward = move |grads: Vec<Option<Tensor>>| {
        products.during(|| {
            let grads: Vec<Option<Tensor>> =
                grads.into_iter().map(|grad| grad.map(|grad| products.cast(&grad))).collect();
            // A map that nothing depends on has no part in any gradient.
            let used = |i: &usize| grads[*i].is_some();
            let grad = |i: usize| grads[i].as_ref();
            // The gradient of `length` positions from `start` of memory and segment on, by the maps of `by`.
            let of_positions = |by: Vec<usize>, start: i64, length: i64| {
                let part = |&i: &usize| {
                    let before = if maps[i].of_memory { start } else { start - lengths[0] };
                    grad(i).map(|grad| grad.narrow(1, before, length))
                };
                let parts: Vec<Tensor> = by.iter().filter_map(part).collect();
                let weights: Vec<&Tensor> = by.iter().map(|&i| &maps[i].weight).collect();
                (!parts.is_empty())
                    .then(|| products.linear(&Tensor::cat(&parts, 2), &Tensor::cat(&weights, 0).tr()))
            };
            let of_mem = || {
                let by = (0..N).filter(used).filter(|&i| maps[i].of_memory).collect();
                of_positions(by, 0, lengths[0])
            };
            let of_own = || of_positions((0..N).filter(used).collect(), lengths[0], lengths[1]);
            let of_weight = |i: usize| {
                let grad = grad(i).filter(|_| wanted[if is_whole { 2 } else { 2 + i }])?;
                Some(products.weight_gradient(grad, &maps[i], kinds[2]))
            };
            let mut found = vec![wanted[0].then(of_mem).flatten(), wanted[1].then(of_own).flatten()];
            let of_weights = (0..N).map(of_weight);
            if is_whole {
                let zeros = |i: usize| maps[i].weight.zeros_like().to_kind(kinds[2]);
                let rows: Vec<Tensor> =
                    of_weights.enumerate().map(|(i, of)| of.unwrap_or_else(|| zeros(i))).collect();
                found.push(wanted[2].then(|| Tensor::cat(&rows, 0)));
            } else {
                found.extend(of_weights);
            }
            found
                .into_iter()
                .zip(&kinds)
                .map(|(found, kind)| found.map(|found| found.to_kind(*kind)))
                .collect()
        })
    };
    let values: Vec<&Tensor> = projected.iter().collect();
    functions(Called { name: c"projections", advice: KERNEL_ADVICE }, &inputs, &values, backward);
    projected
}

/// A map with what it reads, without a graph.
struct Map {
    of_memory: bool,
    read: Tensor,
    weight: Tensor,
}

/// Products by Segue's kernels for the CPU, or on a card in a kind of 16 bits.
#[derive(Clone, Copy)]
struct Products(Option<Kind>);

impl Products {
    /// Calls `f` without a graph, and without casts other than its own.
    fn during<T>(self, f: impl FnOnce() -> T) -> T {
        match self.0 {
            Some(_) => Autocast::without(|| tch::no_grad(f)),
            None => tch::no_grad(f),
        }
    }

    fn cast(self, x: &Tensor) -> Tensor {
        let x = x.detach();
        self.0.map_or_else(|| x.shallow_clone(), |kind| x.to_kind(kind))
    }

    fn linear(self, x: &Tensor, weight: &Tensor) -> Tensor {
        match self.0 {
            Some(_) => x.linear(weight, None::<&Tensor>),
            None => plain_linear(x, weight, None),
        }
    }

    fn weight_gradient(self, grad: &Tensor, map: &Map, kind: Kind) -> Tensor {
        let rows = |x: &Tensor| x.reshape([-1, x.size()[2]]);
        match self.0 {
            Some(_) => short_weight_gradient(&rows(grad), &rows(&map.read), &map.weight, kind),
            None => transposed_product(&rows(&grad.contiguous()), &rows(&map.read)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    /// The same values in each precision: those of single precision.
    fn wave(shape: &[i64], speed: f64, kind: Kind) -> Tensor {
        let count = shape.iter().product::<i64>();
        let exact = (Tensor::arange(count, (Kind::Double, Device::Cpu)) * speed).sin();
        exact.to_kind(Kind::Float).to_kind(kind).view(shape)
    }

    /// Values and gradients of memory, segment and weights. The second map reads memory; a third is not used for anything where not `all`.
    fn found(kind: Kind, mem_len: i64, [mem_learns, all, is_whole]: [bool; 3]) -> Vec<Tensor> {
        let mem = wave(&[2, mem_len, 6], 0.7, kind).set_requires_grad(mem_learns);
        let own = wave(&[2, 5, 6], 1.1, kind).set_requires_grad(true);
        let weight = wave(&[12, 6], 1.3, kind).set_requires_grad(true);
        let parts = weight.chunk(3, 0);
        let map = |i: usize| Projection { weight: &parts[i], of_memory: i > 0 };
        let projected =
            project(Kernels::Fused, &mem, &own, [map(0), map(1), map(2)], is_whole.then_some(&weight));
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
            for (all, is_whole) in [(true, false), (false, false), (true, true), (false, true)] {
                // Double precision is not Segue's own kernel's: libtorch's products of the joined states.
                let ours = found(Kind::Float, mem_len, [mem_learns, all, is_whole]);
                let exact = found(Kind::Double, mem_len, [mem_learns, all, is_whole]);
                assert_eq!(ours.len(), exact.len());
                assert_eq!(ours.len(), 5 + usize::from(mem_learns));
                for (ours, exact) in ours.iter().zip(&exact) {
                    assert_eq!(ours.size(), exact.size());
                    let error = (ours - exact).abs().max().double_value(&[]);
                    assert!(error < 1e-5, "{mem_len} {mem_learns} {all} {is_whole}: {error}");
                }
            }
        }
    }
}
