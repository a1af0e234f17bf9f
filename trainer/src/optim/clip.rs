pub(super) mod card;

use tch::{Device, Kind, Tensor};

use crate::libtorch::stored_values;

/// Keeps the factor finite where the norm is 0, as the reference does.
const EPSILON: f64 = 1e-6;

/// Norm of all gradients together that have these norms, one a parameter, in the parameters' order: summed in a fixed order, it depends neither on
/// buckets nor on ranks.
pub fn joint_norm(norms: &[f64]) -> f64 {
    norms.iter().map(|norm| norm.powi(2)).sum::<f64>().sqrt()
}

/// Euclidean norm of each gradient, in f64, where they lie: nothing waits for a card. Of a sparse one that of the rows it lists.
pub fn norms(grads: &[Tensor]) -> Tensor {
    let grads: Vec<Tensor> = grads.iter().map(stored_values).collect();
    let Some(first) = grads.first() else { return Tensor::zeros([0], (Kind::Double, Device::Cpu)) };
    let norms = card::norms(first, &grads)
        .unwrap_or_else(|| Tensor::stack(&grads.iter().map(Tensor::norm).collect::<Vec<_>>(), 0));
    norms.to_kind(Kind::Double)
}

/// What gradients of norm `norm` are multiplied by so that their norm is at most `limit`; 1 where
/// `limit` is 0.
pub fn clip_factor(norm: f64, limit: f64) -> f64 {
    if limit > 0.0 { (limit / (norm + EPSILON)).min(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::emulated::{self, Order};

    fn read(grads: &[Tensor]) -> Vec<f64> {
        norms(grads).try_into().unwrap()
    }

    /// One of no values, one of a chunk and more, one that is not finite.
    #[test]
    fn norms_by_kernels_of_cards_are_those_of_the_tensors() {
        let values = |count: i64| (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.7).sin();
        let grads = [values(5), values(0), values(2 * 16384 + 77), values(16384), values(300).view([3, 100])];
        let [forwards, backwards] =
            [Order::Forwards, Order::Backwards].map(|order| emulated::during(order, || read(&grads)));
        assert_eq!(forwards, backwards);
        for (found, grad) in forwards.iter().zip(&grads) {
            let expected = grad.to_kind(Kind::Double).norm().double_value(&[]);
            assert!((found - expected).abs() <= 1e-6 * expected, "{found}, expected {expected}");
        }
        // Whatever lies beside it, as on ranks that have a part of the gradients.
        assert_eq!(
            emulated::during(Order::Forwards, || read(&grads[2..3]))[0].to_bits(),
            forwards[2].to_bits()
        );
        let wrong = [values(9), Tensor::from_slice(&[1.0, f32::NAN]), Tensor::from_slice(&[1e30f32])];
        let found = emulated::during(Order::Forwards, || read(&wrong));
        assert!(found[0].is_finite() && found[1].is_nan() && found[2].is_infinite());
    }

    #[test]
    fn no_gradients_have_no_norms() {
        let grads = [Tensor::from_slice(&[3.0f32, 4.0]), Tensor::from_slice(&[f32::NAN])];
        let found = read(&grads);
        assert!(found[0] == 5.0 && found[1].is_nan() && read(&[]).is_empty());
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
