//! Where values of parameters lie in a bucket.

use segue_kernels::ParameterSpec;

/// Parameters start at multiples of this many values (64 bytes), so that a vector kernel sees the
/// same alignment, hence the same order of sums, whatever the buckets.
pub(super) const ALIGNMENT: usize = 16;

/// Values that a parameter takes in a bucket.
pub(super) fn padded(spec: &ParameterSpec) -> usize {
    spec.numel().next_multiple_of(ALIGNMENT)
}
