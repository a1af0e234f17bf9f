//! What tells two tensors apart that should have the same bits.

use segue_kernels::libtorch::as_f32;
use tch::{Device, Kind, Tensor};

/// A hash of bits.
pub type Digest = [u8; 32];

/// Of the values' bytes as they lie in memory, where they are f32, and of the places of those that a sparse tensor has. Hosts of a job
/// have one byte order. On all cores.
pub fn digest(tensor: &Tensor) -> Digest {
    let mut hasher = blake3::Hasher::new();
    let tensor = tensor.detach().to_device(Device::Cpu);
    if tensor.is_sparse() {
        let summed = tensor.coalesce();
        let places = Vec::<i64>::try_from(summed.internal_indices().reshape(-1)).unwrap_or_default();
        hasher.update(bytemuck::cast_slice(&places));
        update(&mut hasher, &summed.internal_values());
    } else {
        update(&mut hasher, &tensor);
    }
    *hasher.finalize().as_bytes()
}

fn update(hasher: &mut blake3::Hasher, values: &Tensor) {
    let values = values.to_kind(Kind::Float).contiguous();
    // SAFETY: what is compared is written by the thread that makes steps, which is this one.
    hasher.update_rayon(bytemuck::cast_slice(unsafe { as_f32(&values) }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_the_places_of_sparse_ones_count() {
        let dense = |x: f32| Tensor::from_slice(&[0.0f32, x, 2.0]);
        assert_eq!(digest(&dense(1.0)), digest(&dense(1.0)));
        assert_ne!(digest(&dense(0.0)), digest(&dense(-0.0)));
        let sparse = |place: i64| {
            let (places, values) = (Tensor::from_slice(&[place]).view([1, 1]), Tensor::from_slice(&[1.0f32]));
            Tensor::sparse_coo_tensor_indices_size(&places, &values, [4], (Kind::Float, Device::Cpu), false)
        };
        assert_eq!(digest(&sparse(1)), digest(&sparse(1)));
        assert_ne!(digest(&sparse(1)), digest(&sparse(2)));
    }
}
