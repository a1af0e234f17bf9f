//! Work that ranks share: parts in turn, results in the order of the parts.

use segue_collectives::{CollectiveError, Communicator};

/// The parts of a piece of work that are this rank's: rank r takes parts r, r + ranks, .. What is made of a part depends
/// on the part alone, so results have the same bits at any number of ranks.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    comm: &'a dyn Communicator,
    parts: usize,
}

impl<'a> Share<'a> {
    /// Of `parts` parts.
    pub fn new(comm: &'a dyn Communicator, parts: usize) -> Self {
        Self { comm, parts }
    }

    /// Numbers of this rank's parts, rising.
    pub fn own(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        (self.comm.rank()..self.parts).step_by(self.comm.world_size())
    }

    /// The results of all parts, in their order; `own` are those of this rank's parts, in theirs. A collective call.
    pub fn collect(&self, own: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let message: Vec<u8> = own
            .iter()
            .flat_map(|part| [&(part.len() as u64).to_le_bytes(), part.as_slice()].concat())
            .collect();
        let mut all = vec![Vec::new(); self.parts];
        for (rank, bytes) in self.comm.all_gather(&message)?.iter().enumerate() {
            let mut rest = bytes.as_slice();
            for part in (rank..self.parts).step_by(self.comm.world_size()) {
                let Some((length, after)) = rest.split_first_chunk::<8>() else { break };
                let (own, after) = after.split_at((u64::from_le_bytes(*length) as usize).min(after.len()));
                all[part] = own.to_vec();
                rest = after;
            }
        }
        Ok(all)
    }

    /// Sums of as many numbers as each part has, added up in the order of the parts. A collective call.
    pub fn sum<const N: usize>(&self, own: &[[f64; N]]) -> Result<[f64; N], CollectiveError> {
        let own: Vec<Vec<u8>> =
            own.iter().map(|row| row.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        let mut sums = [0.0; N];
        for row in self.collect(&own)? {
            for (sum, number) in sums.iter_mut().zip(row.chunks_exact(8)) {
                *sum += f64::from_le_bytes(std::array::from_fn(|i| number[i]));
            }
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;

    use super::*;

    /// Numbers whose sum depends on the order.
    fn number(part: usize) -> f64 {
        10f64.powi((part as i32 * 7) % 31 - 15) * (1.0 + part as f64 / 3.0)
    }

    #[test]
    fn results_come_in_the_order_of_the_parts_at_any_number_of_ranks() {
        for parts in [0, 1, 2, 5, 16] {
            let expected = (0..parts).map(number).fold(0.0, |sum, x| sum + x);
            for ranks in 1..=5 {
                for (sum, texts) in simulated::run(ranks, |comm| {
                    let share = Share::new(comm, parts);
                    let own: Vec<_> = share.own().map(|part| [number(part), 1.0]).collect();
                    let texts: Vec<_> = share.own().map(|part| vec![part as u8; part]).collect();
                    (share.sum(&own).unwrap(), share.collect(&texts).unwrap())
                }) {
                    assert_eq!((sum[0].to_bits(), sum[1]), (expected.to_bits(), parts as f64));
                    assert_eq!(texts, (0..parts).map(|part| vec![part as u8; part]).collect::<Vec<_>>());
                }
            }
        }
    }
}
