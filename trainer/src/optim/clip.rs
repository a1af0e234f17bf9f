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
