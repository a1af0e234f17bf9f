//! What values are on their way between ranks.

/// What messages carry of a value that is summed in single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wire {
    /// All of it.
    #[default]
    F32,
    /// The nearest bfloat16: half of the bytes. Both terms of a sum are rounded wherever one of them crosses ranks, and the sums of all once more: the
    /// same ones on all ranks, wherever values lie and however they are cut, but others at another number of ranks.
    Bf16,
}

/// The nearest bfloat16, from the middle the even one, as its bits. What is no number stays none. Without a branch, which crate `half` takes for each
/// value: loops over it are vector code, and three times as fast.
#[inline(always)]
fn nearest(value: f32) -> u16 {
    let bits = value.to_bits();
    // Half of the last place that stays, or one less where that place is even.
    let carried = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // Of what is no number the carry might leave an infinity; the highest bit of its mantissa keeps it.
    let rounded = if value.is_nan() { bits | 0x0040_0000 } else { carried };
    (rounded >> 16) as u16
}

#[inline(always)]
fn widened(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `to` is given the nearest of `values`.
pub(super) fn shorten(values: &[f32], to: &mut [u16]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to = nearest(*value);
    }
}

/// `to` is given what `short` stands for.
pub(super) fn widen(short: &[u16], to: &mut [f32]) {
    for (to, short) in to.iter_mut().zip(short) {
        *to = widened(*short);
    }
}

/// Each of `values` becomes its nearest.
pub(super) fn round(values: &mut [f32]) {
    for value in values {
        *value = widened(nearest(*value));
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    /// Around every bfloat16: itself, the middles to its neighbours, and what lies beside these.
    #[test]
    fn values_become_those_that_another_implementation_finds() {
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(high) << 16 | low);
                let (ours, theirs) = (nearest(value), bf16::from_f32(value));
                assert_eq!(ours, theirs.to_bits(), "{value:e}");
                assert_eq!(widened(ours).to_bits(), theirs.to_f32().to_bits(), "{value:e}");
            }
        }
    }
}
