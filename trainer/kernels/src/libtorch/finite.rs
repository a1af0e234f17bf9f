//! Whether a tensor holds numbers alone.

use std::sync::atomic::{AtomicBool, Ordering};

use tch::Tensor;

use super::{as_f32, is_f32_slice, stored_values};
use crate::simd::are_finite;
use crate::threads::{PART, for_each_part};

/// Whether every value is a finite number. Nobody may write to it meanwhile. Nothing is copied, and on the CPU all threads look.
pub fn is_finite(tensor: &Tensor) -> bool {
    let values = stored_values(&tensor.detach());
    if values.numel() == 0 {
        return true;
    }
    if !is_f32_slice(&values) {
        // Both are NaN where any value is.
        return values.min().double_value(&[]).is_finite() && values.max().double_value(&[]).is_finite();
    }
    // SAFETY: nobody writes to it, as the caller promises.
    let values = unsafe { as_f32(&values) };
    let spoiled = AtomicBool::new(false);
    for_each_part(values.len(), PART, |part| {
        if !spoiled.load(Ordering::Relaxed) && !are_finite(bytemuck::cast_slice(&values[part])) {
            spoiled.store(true, Ordering::Relaxed);
        }
    });
    !spoiled.into_inner()
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn one_value_that_is_no_number_is_found_wherever_it_is() {
        for kind in [Kind::Float, Kind::Half, Kind::BFloat16, Kind::Double, Kind::Int64] {
            let tensor = Tensor::full([3, PART as i64], 7, (kind, Device::Cpu));
            assert!(is_finite(&tensor), "{kind:?}");
            let places = [(0, 0), (1, 5), (2, PART as i64 - 1)];
            for (row, column) in places.into_iter().filter(|_| kind != Kind::Int64) {
                for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    let spoiled = tensor.copy();
                    let _ = spoiled.get(row).get(column).fill_(value);
                    assert!(!is_finite(&spoiled), "{kind:?}, {value} at {row}, {column}");
                    assert!(!is_finite(&spoiled.transpose(0, 1)), "{kind:?}, {value}, turned");
                }
            }
        }
        let extreme = Tensor::from_slice(&[f32::MAX, f32::MIN, -0.0, f32::from_bits(1)]);
        assert!(is_finite(&extreme) && is_finite(&Tensor::from_slice::<f32>(&[])));
    }
}
