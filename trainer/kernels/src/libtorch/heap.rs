//! Where the values of tensors lie, and what the C allocator does with them once they are gone.

unsafe extern "C" {
    fn segue_use_heap();
}

/// Lets tensors on the processor begin where freed ones of their size did.
pub(super) fn place_tensors() {
    // SAFETY: takes nothing; of threads that make tensors there is no other yet, as commands call this before they compute. Tensors that are there
    // give their memory back to where they have it from.
    unsafe { segue_use_heap() }
}

/// Blocks up to this size are taken from the heap and kept there when freed, instead of being mapped,
/// zeroed page by page and unmapped again at each use.
const KEPT_BLOCK_BYTES: libc::c_int = 1 << 30;

/// Makes the C allocator keep the memory of tensors for the next step. On a step of 2 × 8 lanes of 128
/// tokens, width 256, it saves 5 %. What was freed before goes back: pieces that files were read into are of no use to tensors.
pub fn keep_freed_memory() {
    // SAFETY: plain calls of the C library; a value it refuses leaves it as it was.
    unsafe {
        libc::malloc_trim(0);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, KEPT_BLOCK_BYTES / 4);
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

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
}
