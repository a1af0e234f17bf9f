//! Layers over rows that stand side by side, in f32 on the calling thread and without a graph: a row has the same bits whatever stands beside it, and on every
//! processor. Who decodes many texts at once uses them, so that a text depends on no other one.

mod attention;
mod norm;

use segue_kernels::libtorch::is_f32_slice;
use segue_kernels::simd::{exp, ln, max, sum_of_pairs, vectorised};
use segue_kernels::{Parameters, RowMap};
use tch::Tensor;

pub use attention::RowHeads;
pub use norm::RowNorm;

/// The values of a tensor in f32 on the CPU; `None` of any other.
pub fn values_of(tensor: &Tensor) -> Option<Vec<f32>> {
    is_f32_slice(tensor).then(|| {
        let mut values = vec![0.0; tensor.numel()];
        tensor.copy_data(&mut values, tensor.numel());
        values
    })
}

/// One map that gives the outputs of several linear maps, one after the other, of parameters `NAME.weight`, `[out, in]`, and an optional `NAME.bias`, `[out]`.
/// `None` if they are not in f32 on the CPU.
pub fn row_map(parameters: &Parameters, names: &[String]) -> Option<RowMap> {
    let (mut weights, mut biases, mut inputs) = (Vec::new(), Vec::new(), 0);
    for name in names {
        let weight = parameters.get(&format!("{name}.weight"));
        let [out, width] = weight.size()[..] else { unreachable!("[out, in]") };
        inputs = width as usize;
        weights.extend(values_of(&weight)?);
        match parameters.find(&format!("{name}.bias")) {
            Some(bias) => biases.extend(values_of(&bias)?),
            None => biases.resize(biases.len() + out as usize, 0.0),
        }
    }
    Some(RowMap::new(&weights, [biases.len(), inputs], Some(&biases)))
}

/// The linear map of rows `x`, `[rows, in]`: `[rows, out]`.
pub fn mapped(map: &RowMap, x: &[f32]) -> Vec<f32> {
    let [inputs, outputs] = map.sides();
    let mut y = vec![0.0; x.len() / inputs * outputs];
    map.apply(x, &mut y);
    y
}

vectorised! {
    /// Makes ln P of scores, a distribution of `width` values each.
    pub fn log_softmax(scores: &mut [f32], width: usize) = log_softmax_plain;
}

#[inline(always)]
fn log_softmax_plain(scores: &mut [f32], width: usize) {
    for row in scores.chunks_exact_mut(width) {
        let top = max(row);
        let sum = sum_of_pairs(row, row, |score, _| exp(score - top));
        let log_sum = top + ln(sum);
        row.iter_mut().for_each(|score| *score -= log_sum);
    }
}

vectorised! {
    /// x += y.
    pub fn add(x: &mut [f32], y: &[f32]) = add_plain;
}

#[inline(always)]
fn add_plain(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

#[cfg(test)]
mod tests;
