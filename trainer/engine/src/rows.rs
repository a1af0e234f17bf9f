//! Sums over ranks of tables of which a step touches few rows.

use segue_collectives::CollectiveError;
use segue_kernels::libtorch::stream::put;
use tch::{Kind, Tensor, no_grad};

use super::alignment::ALIGNMENT;
use super::row_counter::sparse;
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
///
/// Where `values` is sparse, on ranks that list their rows, gives the sum: sparse too, with the rows of all ranks, unless a rank has listed none.
pub fn reduce_rows(
    sums: &mut Sums,
    values: &Tensor,
    width: usize,
    rows: &Rows,
    reduce: impl FnOnce(&mut Sums, &Tensor) -> Result<(), CollectiveError>,
) -> Result<Option<Tensor>, CollectiveError> {
    let number = |bytes: &[u8]| u32::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    let every = sums.comm().all_gather(&rows.to_bytes())?;
    let mut touched: Vec<u32> = every.iter().flat_map(|bytes| bytes.chunks_exact(4)).map(number).collect();
    touched.sort_unstable();
    touched.dedup();
    let has_all = touched.last() == Some(&ALL);
    if values.is_sparse() && has_all {
        let whole = whole(values);
        reduce(sums, &whole)?;
        return Ok(Some(whole.narrow(0, 0, values.numel() as i64).view(values.size().as_slice())));
    }
    // In a sparse sum the same rows at any number of ranks.
    if has_all || !values.is_sparse() && 2 * touched.len() * width > values.numel() {
        return reduce(sums, values).map(|()| None);
    }
    let numbers: Vec<i64> = touched.into_iter().map(i64::from).collect();
    let numbers = put(Tensor::from_slice(&numbers), values.device());
    if values.is_sparse() {
        let found = at_rows(values, &numbers);
        reduce(sums, &found.view([-1]))?;
        return Ok(Some(sparse(&numbers.unsqueeze(0), &found, &values.size())));
    }
    // What is behind the last row belongs to none.
    let (count, width) = ((values.numel() / width) as i64, width as i64);
    let mut table = values.narrow(0, 0, count * width).view([count, width]);
    let found = table.index_select(0, &numbers).view([-1]);
    reduce(sums, &found)?;
    no_grad(|| _ = table.index_copy_(0, &numbers, &found.view([-1, width])));
    Ok(None)
}

/// A sparse table as it lies in a bucket of those ranks that have all of it: flat, and aligned.
fn whole(table: &Tensor) -> Tensor {
    let len = table.numel().next_multiple_of(ALIGNMENT) as i64;
    let flat = Tensor::zeros([len], (table.kind(), table.device()));
    let mut view = flat.narrow(0, 0, table.numel() as i64).view(table.size().as_slice());
    no_grad(|| _ = view.g_add_(table));
    flat
}

/// The rows `numbers`, rising, of a sparse table that has no others: `[numbers, width]`.
fn at_rows(table: &Tensor, numbers: &Tensor) -> Tensor {
    let rows = Tensor::zeros([numbers.numel() as i64, table.size()[1]], (Kind::Float, table.device()));
    let places = table.indices().view([-1]).searchsorted(numbers, false, false, "left", None::<Tensor>);
    no_grad(|| rows.shallow_clone().index_copy_(0, &places, &table.values()))
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
            let elsewhere = reduce_rows(&mut sums, &by_rows, WIDTH, &rows, |sums, values| {
                exchanged = values.numel();
                sums.all_reduce(values)
            });
            assert!(elsewhere.unwrap().is_none());
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

    /// The rows of a table as a sparse one.
    fn sparse_table(rank: usize, numbers: &[u32]) -> Tensor {
        let whole = Tensor::from_slice(&table(rank, numbers)).view([TABLE as i64, WIDTH as i64]);
        let rising: std::collections::BTreeSet<i64> = numbers.iter().map(|n| i64::from(*n)).collect();
        let rising = Tensor::from_slice(&rising.into_iter().collect::<Vec<_>>());
        sparse(&rising.unsqueeze(0), &whole.index_select(0, &rising), &whole.size())
    }

    /// More than half of the rows too, and with a rank that has all of its table.
    #[test]
    fn sums_of_sparse_tables_have_the_bits_of_sums_of_tables() {
        let few = |rank: u32| vec![7, 31 + rank, 7, 39, 2 * rank];
        let most = |rank: u32| (rank..37).collect();
        let numbers: [&(dyn Fn(u32) -> Vec<u32> + Sync); 3] = [&few, &most, &|_| Vec::new()];
        for (numbers, dense) in numbers.into_iter().flat_map(|n| [(n, None), (n, Some(1))]) {
            for ranks in 1..=5 {
                let found = simulated::run(ranks, |comm| {
                    let rank = comm.rank();
                    let own = numbers(rank as u32);
                    let mut sums = Sums::simulated(comm, true);
                    let whole = Tensor::from_slice(&table(rank, &own));
                    let aligned = Tensor::zeros([128], (Kind::Float, tch::Device::Cpu));
                    aligned.narrow(0, 0, (TABLE * WIDTH) as i64).copy_(&whole);
                    let (values, rows) = match dense == Some(rank) {
                        true => (aligned.shallow_clone(), Rows::All),
                        false => (sparse_table(rank, &own), Rows::Some(own.clone())),
                    };
                    let total = reduce_rows(&mut sums, &values, WIDTH, &rows, Sums::all_reduce).unwrap();
                    sums.all_reduce(&whole).unwrap();
                    let is_sparse = total.as_ref().is_some_and(Tensor::is_sparse);
                    let total = total.unwrap_or_else(|| aligned.narrow(0, 0, (TABLE * WIDTH) as i64));
                    let total = if is_sparse { total.to_dense(None, false) } else { total };
                    let bits = |t: Tensor| Vec::<i32>::try_from(t.view([-1]).view_dtype(Kind::Int)).unwrap();
                    (bits(total) == bits(whole), is_sparse)
                });
                let all_sparse = dense.is_none_or(|rank| rank >= ranks);
                assert!(found.iter().all(|found| *found == (true, all_sparse)), "{ranks} ranks: {found:?}");
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
