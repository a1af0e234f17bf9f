//! Doubles as ranks exchange them: eight bytes each, the least significant first.

use segue_collectives::{CollectiveError, Communicator};

/// The bytes of `values`.
pub(super) fn to_bytes(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    values.into_iter().flat_map(f64::to_le_bytes).collect()
}

/// The values that `bytes` hold.
pub(super) fn of_bytes(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(8).map(|eight| f64::from_le_bytes(std::array::from_fn(|i| eight[i]))).collect()
}

/// What rank 0 found: processors of several kinds may round differently, and all must decide alike. A collective call.
pub(super) fn of_first_rank(
    found: impl IntoIterator<Item = f64>,
    comm: &dyn Communicator,
) -> Result<Vec<f64>, CollectiveError> {
    let mut bytes = to_bytes(found);
    if comm.world_size() > 1 {
        comm.broadcast(0, &mut bytes)?;
    }
    Ok(of_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_come_back_bit_by_bit() {
        let values = [0.1, -0.0, f64::INFINITY, f64::from_bits(0x7ff8_0000_0000_0123), f64::MIN_POSITIVE];
        let bytes = to_bytes(values);
        assert_eq!(bytes[..8], 0.1f64.to_bits().to_le_bytes());
        assert_eq!(
            of_bytes(&bytes).iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            values.map(f64::to_bits)
        );
    }
}
