//! What micro-steps come to: read from where they were computed at once, and put together over ranks.

use segue_collectives::Communicator;
use segue_collectives::tree::tree_sum;
use segue_kernels::TrainError;
use tch::{Kind, Tensor};

use super::doubles;
use crate::optim::NoiseEstimate;

/// What a micro-step has come to. Tensors lie where they are computed.
pub struct MicroStep {
    /// The sum that is reported, scalar.
    pub reported: Tensor,
    /// Sums that the learner asks for.
    pub statistics: Vec<Tensor>,
    /// Norms of its gradient, where the noise in it is measured.
    pub norms: Option<Tensor>,
    /// Targets that it has.
    pub weight: f64,
}

impl MicroStep {
    /// What is not known before it is read.
    pub fn computed(&self) -> impl Iterator<Item = &Tensor> {
        [&self.reported].into_iter().chain(&self.statistics).chain(&self.norms)
    }

    /// What is summed over micro-steps, of the values of [`computed`](Self::computed). `factor` is what losses were multiplied by before backward.
    pub fn row(&self, read: &mut impl Iterator<Item = Vec<f64>>, factor: f64) -> Vec<f64> {
        let mut row: Vec<f64> = read.by_ref().take(1 + self.statistics.len()).flatten().collect();
        if self.norms.is_some() {
            let squares = read.by_ref().take(1).flatten().map(|norm| norm.powi(2));
            row.extend(NoiseEstimate::part(squares.sum::<f64>() / factor.powi(2), self.weight));
        }
        row
    }
}

/// The values of each of some tensors of one device, which is waited for once.
pub fn read_at_once<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Vec<Vec<f64>>, TrainError> {
    let flat: Vec<Tensor> =
        tensors.into_iter().map(|tensor| tensor.reshape([-1]).to_kind(Kind::Double)).collect();
    // What is empty may lie anywhere.
    let some: Vec<&Tensor> = flat.iter().filter(|values| values.numel() > 0).collect();
    let mut read = match some.is_empty() {
        true => Vec::new(),
        false => Vec::<f64>::try_from(Tensor::f_cat(&some, 0)?)?,
    }
    .into_iter();
    Ok(flat.iter().map(|values| read.by_ref().take(values.numel()).collect()).collect())
}

/// Collective. Sums of the rows of all micro-steps, in the order of the tree; and for each value of `found` what every rank has found, by rank.
pub fn put_together(
    rows: &[Vec<f64>],
    found: &[f64],
    comm: &dyn Communicator,
) -> Result<(Vec<f64>, Vec<Vec<f64>>), TrainError> {
    // Rows are of one length, and each rank has some.
    let width = rows.first().map_or(1, Vec::len);
    let own = found.iter().chain(rows.iter().flatten()).copied();
    let all = comm.all_gather(&doubles::to_bytes(own))?;
    let (mut rows, mut by_rank) = (Vec::new(), vec![Vec::new(); found.len()]);
    for said in all.iter().map(|bytes| doubles::of_bytes(bytes)) {
        let (found, of_rows) = said.split_at(by_rank.len());
        by_rank.iter_mut().zip(found).for_each(|(by_rank, value)| by_rank.push(*value));
        rows.extend(of_rows.chunks_exact(width).map(<[f64]>::to_vec));
    }
    let add = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).map(|(a, b)| a + b).collect();
    Ok((tree_sum(rows, add).unwrap_or_else(|| vec![0.0]), by_rank))
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;
    use tch::Device;

    use super::*;

    fn micro_step(number: f64, statistics: &[f32], norms: Option<&[f32]>) -> MicroStep {
        MicroStep {
            reported: Tensor::from(number as f32),
            statistics: vec![Tensor::from_slice(statistics)],
            norms: norms.map(Tensor::from_slice),
            weight: 3.0,
        }
    }

    #[test]
    fn values_of_several_tensors_come_back_apart() {
        let empty = Tensor::zeros([0], (Kind::Double, Device::Cpu));
        let tensors = [Tensor::from(0.1), empty, Tensor::from_slice(&[1i64, 2, 3, 4]).view([2, 2])];
        assert_eq!(read_at_once(&tensors).unwrap(), [vec![0.1], vec![], vec![1.0, 2.0, 3.0, 4.0]]);
        assert_eq!(read_at_once(&tensors[1..2]).unwrap(), [vec![0.0; 0]]);
        assert!(read_at_once([]).unwrap().is_empty());
    }

    /// Loss, statistics, then what the noise is estimated by: the squared norm without the factor, and the squared weight.
    #[test]
    fn a_row_has_what_is_summed() {
        let made = [micro_step(0.5, &[7.0, 8.0], None), micro_step(1.5, &[9.0, 10.0], Some(&[6.0, 8.0]))];
        let mut read = read_at_once(made.iter().flat_map(MicroStep::computed)).unwrap().into_iter();
        let rows = made.each_ref().map(|made| made.row(&mut read, 2.0));
        assert_eq!(rows, [vec![0.5, 7.0, 8.0], vec![1.5, 9.0, 10.0, 25.0, 9.0]]);
        assert!(read.next().is_none());
    }

    #[test]
    fn ranks_put_together_rows_and_what_each_has_found() {
        let found = simulated::run(2, |comm| {
            let rank = comm.rank();
            // One after the other they would come to 1, first with third and second with fourth to 2.
            let rows = [[1e16, 0.5], [1.0, 0.25], [-1e16, 4.0], [1.0, 8.0]].map(Vec::from);
            put_together(&rows[2 * rank..][..2], &[rank as f64, 7.0], comm).unwrap()
        });
        for (sums, found) in found {
            assert_eq!(sums, [0.0, 12.75]);
            assert_eq!(found, [vec![0.0, 1.0], vec![7.0; 2]]);
        }
    }
}
