use tch::Tensor;

/// Keeps the factor finite where the norm is 0, as the reference does.
const EPSILON: f64 = 1e-6;

/// Euclidean norm of all gradients together. Summed per parameter in a fixed order, so that it depends
/// neither on buckets nor on ranks.
pub fn global_norm(grads: &[Tensor]) -> f64 {
    grads.iter().map(|g| g.norm().double_value(&[]).powi(2)).sum::<f64>().sqrt()
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
    fn clipped_norm_is_at_most_the_limit() {
        let grads = [Tensor::from_slice(&[3.0f32, 0.0]), Tensor::from_slice(&[4.0f32])];
        let norm = global_norm(&grads);
        assert_eq!(norm, 5.0);
        assert!(norm * clip_factor(norm, 0.25) <= 0.25);
        assert_eq!(clip_factor(0.1, 0.25), 1.0);
        assert_eq!(clip_factor(1e9, 0.0), 1.0);
    }
}
