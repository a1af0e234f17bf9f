//! Sums over ranks of tables of which a step touches few rows.

use segue_collectives::CollectiveError;
use tch::{Tensor, no_grad};

use super::sums::Sums;

/// Which rows of a table have a gradient on this rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// Any.
    All,
    /// These, some of them perhaps more than once; all others are zero.
    Some(Vec<u32>),
}

/// Stands for [`Rows::All`] in messages; no table has that many rows.
const ALL: u32 = u32::MAX;

impl Rows {
    /// Those of both.
    pub fn extend(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Some(own), Self::Some(more)) => own.extend(more),
            _ => *self = Self::All,
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::All => ALL.to_le_bytes().to_vec(),
            Self::Some(numbers) => numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        }
    }
}

/// Collective. Does to `values`, a table of rows of `width`, what `reduce` would do to all of it, but gives it the rows alone
/// that some rank has a gradient of, where they are at most half: what is zero everywhere stays zero. Their sums have
/// the bits that those of the whole table would have.
pub fn reduce_rows(
    sums: &mut Sums,
    values: &Tensor,
    width: usize,
    rows: &Rows,
    reduce: impl FnOnce(&mut Sums, &Tensor) -> Result<(), CollectiveError>,
) -> Result<(), CollectiveError> {
    let number = |bytes: &[u8]| u32::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    let every = sums.comm().all_gather(&rows.to_bytes())?;
    let mut touched: Vec<u32> = every.iter().flat_map(|bytes| bytes.chunks_exact(4)).map(number).collect();
    touched.sort_unstable();
    touched.dedup();
    if touched.last() == Some(&ALL) || 2 * touched.len() * width > values.numel() {
        return reduce(sums, values);
    }
    let numbers: Vec<i64> = touched.into_iter().map(i64::from).collect();
    let numbers = Tensor::from_slice(&numbers).to_device(values.device());
    // What is behind the last row belongs to none.
    let (count, width) = ((values.numel() / width) as i64, width as i64);
    let mut table = values.narrow(0, 0, count * width).view([count, width]);
    let found = table.index_select(0, &numbers).view([-1]);
    reduce(sums, &found)?;
    no_grad(|| _ = table.index_copy_(0, &numbers, &found.view([-1, width])));
    Ok(())
}

#[cfg(test)]
mod tests {
    use segue_collectives::{Communicator, simulated};

    use super::*;

    const WIDTH: usize = 3;
    const TABLE: usize = 40;

    /// A table with values at `numbers` whose sums depend on the order of addition.
    fn table(rank: usize, numbers: &[u32]) -> Vec<f32> {
        let mut values = vec![0.0; TABLE * WIDTH];
        for number in numbers {
            for i in 0..WIDTH {
                values[*number as usize * WIDTH + i] = (1.0 + rank as f32 * 0.377 + i as f32)
                    * 10f32.powi((rank as i32 * 7 + *number as i32) % 9 - 4);
            }
        }
        values
    }

    /// The sum of the whole tables and that of their rows, and how many values the latter exchanged.
    fn both(rows: &(impl Fn(usize) -> Rows + Sync), ranks: usize) -> Vec<(Vec<f32>, Vec<f32>, usize)> {
        simulated::run(ranks, |comm| {
            let rows = rows(Communicator::rank(comm));
            let numbers = match &rows {
                Rows::All => (0..TABLE as u32).collect(),
                Rows::Some(numbers) => numbers.clone(),
            };
            let whole = Tensor::from_slice(&table(Communicator::rank(comm), &numbers));
            let (by_rows, mut exchanged) = (whole.copy(), 0);
            let mut sums = Sums::simulated(comm, true);
            sums.all_reduce(&whole).unwrap();
            reduce_rows(&mut sums, &by_rows, WIDTH, &rows, |sums, values| {
                exchanged = values.numel();
                sums.all_reduce(values)
            })
            .unwrap();
            let values = |tensor: &Tensor| Vec::try_from(tensor).unwrap();
            (values(&whole), values(&by_rows), exchanged)
        })
    }

    #[test]
    fn sums_of_rows_have_the_bits_of_sums_of_tables() {
        for ranks in 1..=5 {
            let rows = |rank: usize| Rows::Some(vec![7, rank as u32, 7, 39, 2 * rank as u32]);
            for (whole, by_rows, exchanged) in both(&rows, ranks) {
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&whole), bits(&by_rows), "{ranks} ranks");
                assert!(exchanged < TABLE * WIDTH / 2, "{exchanged} values");
            }
        }
    }

    #[test]
    fn one_rank_with_all_rows_makes_it_the_whole_table_for_all() {
        let rows = |rank: usize| if rank == 1 { Rows::All } else { Rows::Some(vec![5]) };
        for (whole, by_rows, exchanged) in both(&rows, 3) {
            assert_eq!((whole == by_rows, exchanged), (true, TABLE * WIDTH));
        }
    }

    #[test]
    fn many_rows_go_as_a_whole_table_and_none_as_nothing() {
        let most = |rank: usize| Rows::Some((rank as u32..25).collect());
        assert!(both(&most, 2).iter().all(|(whole, by_rows, n)| whole == by_rows && *n == TABLE * WIDTH));
        let none = |_: usize| Rows::Some(Vec::new());
        assert!(both(&none, 2).iter().all(|(whole, by_rows, n)| whole == by_rows && *n == 0));
    }
}
