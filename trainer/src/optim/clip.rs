pub(super) mod card;

use tch::{Device, Kind, Tensor};

use crate::libtorch::stored_values;

/// Keeps the factor finite where the norm is 0, as the reference does.
const EPSILON: f64 = 1e-6;

/// Euclidean norm of all gradients together. Summed per parameter in a fixed order, so that it depends
/// neither on buckets nor on ranks. What lies on a card is read at once, as each read waits for it.
pub fn global_norm(grads: &[Tensor]) -> f64 {
    joint_norm(&norms(grads))
}

/// Norm of all gradients together that have these norms, one a parameter, in the parameters' order.
pub fn joint_norm(norms: &[f64]) -> f64 {
    norms.iter().map(|norm| norm.powi(2)).sum::<f64>().sqrt()
}

/// Norm of each gradient; of a sparse one that of the rows it lists.
pub fn norms(grads: &[Tensor]) -> Vec<f64> {
    let grads: Vec<Tensor> = grads.iter().map(stored_values).collect();
    if let Some(norms) = card::norms(&grads) {
        return norms;
    }
    let on_cpu = grads.iter().all(|grad| grad.device() == Device::Cpu);
    if on_cpu { norms_one_by_one(&grads) } else { norms_at_once(&grads) }
}

fn norms_one_by_one(grads: &[Tensor]) -> Vec<f64> {
    grads.iter().map(|grad| grad.norm().double_value(&[])).collect()
}

fn norms_at_once(grads: &[Tensor]) -> Vec<f64> {
    let norms: Vec<Tensor> = grads.iter().map(Tensor::norm).collect();
    let norms = Tensor::stack(&norms, 0).to_kind(Kind::Double);
    Vec::try_from(norms).expect("norms are one axis of f64")
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

    /// One of no values, one of a chunk and more, one that is not finite.
    #[test]
    fn norms_by_kernels_of_cards_are_those_of_the_tensors() {
        let values = |count: i64| (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.7).sin();
        let grads = [values(5), values(0), values(2 * 16384 + 77), values(16384), values(300).view([3, 100])];
        let [forwards, backwards] =
            [Order::Forwards, Order::Backwards].map(|order| emulated::during(order, || norms(&grads)));
        assert_eq!(forwards, backwards);
        for (found, grad) in forwards.iter().zip(&grads) {
            let expected = grad.to_kind(Kind::Double).norm().double_value(&[]);
            assert!((found - expected).abs() <= 1e-6 * expected, "{found}, expected {expected}");
        }
        // Whatever lies beside it, as on ranks that have a part of the gradients.
        assert_eq!(
            emulated::during(Order::Forwards, || norms(&grads[2..3]))[0].to_bits(),
            forwards[2].to_bits()
        );
        let wrong = [values(9), Tensor::from_slice(&[1.0, f32::NAN]), Tensor::from_slice(&[1e30f32])];
        let found = emulated::during(Order::Forwards, || norms(&wrong));
        assert!(found[0].is_finite() && found[1].is_nan() && found[2].is_infinite());
    }

    #[test]
    fn norms_read_at_once_are_those_read_one_by_one() {
        let grads = [
            Tensor::from_slice(&[3.0f32, 0.1]),
            Tensor::from_slice(&[4.0f32]),
            Tensor::from_slice(&[f32::NAN]),
        ];
        assert_eq!(norms_at_once(&grads[..2]), norms_one_by_one(&grads[..2]));
        assert!(
            norms_at_once(&grads)[2].is_nan() && norms_at_once(&[Tensor::from_slice(&[1.0f32])]).len() == 1
        );
    }

    #[test]
    fn clipped_norm_is_at_most_the_limit() {
        let grads = [Tensor::from_slice(&[3.0f32, 0.0]), Tensor::from_slice(&[4.0f32])];
        let norm = global_norm(&grads);
        assert_eq!(norm, 5.0);
        assert!(norm * clip_factor(norm, 0.25) <= 0.25);
        assert_eq!(clip_factor(0.1, 0.25), 1.0);
        assert_eq!(clip_factor(1e9, 0.0), 1.0);
    }
}
