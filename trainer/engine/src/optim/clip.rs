pub(super) mod card;

use std::ops::Range;

use segue_kernels::cards::CHUNK;
use segue_kernels::libtorch::{as_f32_mut, is_f32_slice, stored_values};
use segue_kernels::simd::vectorised;
use segue_kernels::threads;
use tch::{Device, Kind, Tensor};

/// Keeps the factor finite where the norm is 0, as the reference does.
const EPSILON: f64 = 1e-6;

/// What norms are taken of in a gradient of `count` values, in their order: chunks as large as those of a block of a card's kernels. A gradient is cut
/// there, however many ranks have parts of it, so that each of these can take norms of what it has.
pub fn chunks(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(CHUNK).map(move |first| first..(first + CHUNK).min(count))
}

/// Norm of all gradients together whose chunks have these norms, in the parameters' order: summed in a fixed order, it depends neither on
/// buckets nor on ranks.
pub fn joint_norm(norms: &[f64]) -> f64 {
    norms.iter().map(|norm| norm.powi(2)).sum::<f64>().sqrt()
}

/// Euclidean norm of each of the [`chunks`] of each gradient, in f64, where they lie: nothing waits for a card. Of a sparse one those of the rows it lists.
pub fn norms(grads: &[Tensor]) -> Tensor {
    let mut grads: Vec<Tensor> =
        grads.iter().map(|grad| stored_values(grad).detach().reshape([-1])).collect();
    let Some(first) = grads.first() else { return Tensor::zeros([0], (Kind::Double, Device::Cpu)) };
    match card::norms(first, &grads) {
        Some(norms) => norms.to_kind(Kind::Double),
        None if grads.iter().all(is_f32_slice) => norms_of_slices(&mut grads),
        None => norms_of_tensors(&grads),
    }
}

/// Squares are added up in f64, in an order that depends neither on threads nor on the processor.
fn norms_of_slices(grads: &mut [Tensor]) -> Tensor {
    let slices = grads.iter_mut().map(|grad| &*as_f32_mut(grad));
    let chunks: Vec<&[f32]> = slices.flat_map(|grad| grad.chunks(CHUNK)).collect();
    let mut norms = vec![0.0; chunks.len()];
    let pairs = chunks.into_iter().zip(&mut norms).collect();
    threads::for_each_of(pairs, |(chunk, norm): (_, &mut f64)| *norm = sum_of_squares(chunk).sqrt());
    Tensor::from_slice(&norms)
}

fn norms_of_tensors(grads: &[Tensor]) -> Tensor {
    let of_chunk = |grad: &Tensor, chunk: Range<usize>| {
        grad.narrow(0, chunk.start as i64, chunk.len() as i64).norm().to_kind(Kind::Double)
    };
    let norms: Vec<Tensor> =
        grads.iter().flat_map(|grad| chunks(grad.numel()).map(|chunk| of_chunk(grad, chunk))).collect();
    match norms.is_empty() {
        true => Tensor::zeros([0], (Kind::Double, grads[0].device())),
        false => Tensor::stack(&norms, 0),
    }
}

vectorised! {
    fn sum_of_squares(values: &[f32]) -> f64 = sum_of_squares_plain;
}

#[inline(always)]
fn sum_of_squares_plain(values: &[f32]) -> f64 {
    /// Values whose squares are added up side by side.
    const LANES: usize = 16;
    let (wide, rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for values in wide {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += f64::from(*value) * f64::from(*value);
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += f64::from(*value) * f64::from(*value);
    }
    sums.iter().sum()
}

/// What gradients of norm `norm` are multiplied by so that their norm is at most `limit`; 1 where
/// `limit` is 0.
pub fn clip_factor(norm: f64, limit: f64) -> f64 {
    if limit > 0.0 { (limit / (norm + EPSILON)).min(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use segue_testing::emulated::{self, Order};

    use super::*;

    fn read(grads: &[Tensor]) -> Vec<f64> {
        norms(grads).try_into().unwrap()
    }

    /// One of no values, one of a chunk and more, one that is not finite.
    #[test]
    fn norms_by_kernels_of_cards_are_those_of_the_tensors() {
        let values = |count: i64| (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.7).sin();
        let grads =
            [values(5), values(0), values(CHUNK as i64 + 77), values(16384), values(300).view([3, 100])];
        let [forwards, backwards] =
            [Order::Forwards, Order::Backwards].map(|order| emulated::during(order, || read(&grads)));
        assert_eq!(forwards, backwards);
        let long = |from: i64, count: i64| grads[2].narrow(0, from, count);
        let cut = [&grads[0], &long(0, CHUNK as i64), &long(CHUNK as i64, 77), &grads[3], &grads[4]];
        assert_eq!(forwards.len(), cut.len());
        for (found, grad) in forwards.iter().zip(cut) {
            let expected = grad.to_kind(Kind::Double).norm().double_value(&[]);
            assert!((found - expected).abs() <= 1e-6 * expected, "{found}, expected {expected}");
        }
        // Whatever lies beside it, as on ranks that have a part of the gradients.
        assert_eq!(
            emulated::during(Order::Forwards, || read(&grads[2..3]))[0].to_bits(),
            forwards[1].to_bits()
        );
        let wrong = [values(9), Tensor::from_slice(&[1.0, f32::NAN]), Tensor::from_slice(&[1e30f32])];
        let found = emulated::during(Order::Forwards, || read(&wrong));
        assert!(found[0].is_finite() && found[1].is_nan() && found[2].is_infinite());
    }

    #[test]
    fn norms_of_chunks_come_to_that_of_the_gradient() {
        let grad = (Tensor::arange(3 * CHUNK as i64 + 23, (Kind::Float, Device::Cpu)) * 0.3).cos();
        let found = read(&[grad.view([5, -1])]);
        let exact = read(&[grad.to_kind(Kind::Double)]);
        assert!(found.len() == 4 && exact.len() == 4);
        assert!(found.iter().zip(&exact).all(|(found, exact)| (found - exact).abs() < 1e-12 * exact));
        let expected = grad.to_kind(Kind::Double).norm().double_value(&[]);
        assert!((joint_norm(&found) - expected).abs() < 1e-12 * expected);
        let of_part = read(&[grad.narrow(0, CHUNK as i64, CHUNK as i64)]);
        assert_eq!(of_part[0].to_bits(), found[1].to_bits());
    }

    #[test]
    fn no_gradients_have_no_norms() {
        let grads = [Tensor::from_slice(&[3.0f32, 4.0]), Tensor::from_slice(&[f32::NAN])];
        let found = read(&grads);
        assert!(found[0] == 5.0 && found[1].is_nan() && read(&[]).is_empty());
        let empty = |kind| Tensor::zeros([0], (kind, Device::Cpu));
        assert!(read(&[empty(Kind::Float)]).is_empty() && read(&[empty(Kind::Double)]).is_empty());
    }

    #[test]
    fn clipped_norm_is_at_most_the_limit() {
        let norm = joint_norm(&read(&[Tensor::from_slice(&[3.0f32, 0.0]), Tensor::from_slice(&[4.0f32])]));
        assert_eq!(norm, 5.0);
        assert!(norm * clip_factor(norm, 0.25) <= 0.25);
        assert_eq!(clip_factor(0.1, 0.25), 1.0);
        assert_eq!(clip_factor(1e9, 0.0), 1.0);
    }
}
