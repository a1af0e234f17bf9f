//! What of a network each rank updates, where ranks divide the state of training among themselves (Rajbhandari et al.
//! 2020, ZeRO).
//!
//! The values of a bucket lie in one row, and each rank owns an equal stretch of it, wherever its ends fall: a table that is larger than all else is
//! divided like the rest, and of every bucket each rank has as much to send and to receive. Stretches begin at multiples of
//! [`ALIGNMENT`] values of a parameter, so that an update of a part has the bits of an update of the whole. A norm has not:
//! it is taken of whole [`chunks`], by the rank that owns a chunk's first value.

use std::ops::Range;
use std::sync::Arc;

use segue_collectives::{CollectiveError, Communicator};
use segue_configs::Shard;
use segue_kernels::{ParameterSpec, Parameters};
use tch::{Tensor, no_grad};

use super::alignment::{ALIGNMENT, padded};
use super::doubles;
use super::rows::{Rows, reduce_rows};
use super::sums::Sums;
use crate::optim::{Piece, chunks, norms};

/// Who owns which values of a network.
pub struct Shards {
    kind: Shard,
    rank: usize,
    /// By rank; one entry that is all of it where nothing is divided.
    pieces: Vec<Vec<Piece>>,
    /// Chunks of gradients before those of each parameter, and then of all.
    chunks_before: Vec<usize>,
}

/// The weights of one bucket, as ranks divide them.
pub struct Row {
    /// All of them, one parameter after the other, flat.
    pub values: Tensor,
    /// Numbers of the parameters.
    pub members: Range<usize>,
    /// What of the values each rank owns.
    pub slices: Arc<[Range<usize>]>,
}

/// A rank's part of a parameter; it has one at most.
pub struct Part<'a> {
    /// The rank.
    pub rank: usize,
    /// Whether that is this one.
    pub is_own: bool,
    /// Its number among the rank's pieces.
    pub number: usize,
    /// Which values.
    pub piece: &'a Piece,
}

impl Shards {
    /// As rank `rank` of `world_size` sees it, of buckets that have these parameters, each in the order of [`group`](super::group).
    pub fn new(
        kind: Shard,
        parameters: &Parameters,
        buckets: &[Vec<usize>],
        rank: usize,
        world_size: usize,
    ) -> Self {
        let specs = parameters.specs();
        let before = specs.iter().scan(0, |count, spec| {
            *count += chunks(spec.numel()).count();
            Some(*count)
        });
        let chunks_before = [0].into_iter().chain(before).collect();
        if kind == Shard::None || world_size == 1 {
            let pieces = vec![Piece::all(parameters)];
            return Self { kind: Shard::None, rank: 0, pieces, chunks_before };
        }
        let of_rank = |rank: usize| {
            let slice = |members: &Vec<usize>| slice(members, specs, rank, world_size);
            let mut pieces: Vec<Piece> =
                buckets.iter().flat_map(|members| stretch(members, specs, &slice(members))).collect();
            pieces.sort_by_key(|piece| piece.parameter);
            pieces
        };
        Self { kind, rank, pieces: (0..world_size).map(of_rank).collect(), chunks_before }
    }

    /// Whether ranks own parts, and not all of them everything.
    pub fn is_divided(&self) -> bool {
        self.pieces.len() > 1
    }

    /// Number of chunks that norms of all gradients are taken of.
    pub fn chunks(&self) -> usize {
        self.chunks_before.last().copied().unwrap_or(0)
    }

    /// Whether each rank keeps the sums of its own gradients alone.
    pub fn divides_gradients(&self) -> bool {
        self.kind == Shard::Gradients
    }

    /// What this rank owns.
    pub fn own(&self) -> &[Piece] {
        &self.pieces[self.rank]
    }

    /// What this rank owns as parameters of their own, which share the memory of `parameters`; `None` where that is all of them.
    pub fn part(&self, parameters: &Parameters) -> Option<Parameters> {
        if !self.is_divided() {
            return None;
        }
        let tensors: Vec<Tensor> = self
            .own()
            .iter()
            .map(|piece| piece.of(&parameters.tensors()[piece.parameter]).detach())
            .collect();
        let spec = |(piece, tensor): (&Piece, &Tensor)| ParameterSpec {
            shape: tensor.size(),
            ..parameters.specs()[piece.parameter].clone()
        };
        let specs = self.own().iter().zip(&tensors).map(spec).collect();
        Some(Parameters::from_tensors(specs, tensors, parameters.options().0))
    }

    /// The parts of a parameter, in the order of their values.
    pub fn parts(&self, parameter: usize) -> Vec<Part<'_>> {
        let of_rank = |(rank, pieces): (usize, &'_ Vec<Piece>)| {
            let number = pieces.binary_search_by_key(&parameter, |piece| piece.parameter).ok()?;
            Some((rank, number))
        };
        let found = self.pieces.iter().enumerate().filter_map(of_rank);
        let part = |(rank, number): (usize, usize)| {
            let piece = &self.pieces[rank][number];
            Part { rank, number, piece, is_own: rank == self.rank }
        };
        found.map(part).collect()
    }

    /// What becomes of the sums of a bucket of these parameters.
    pub fn of_bucket(&self, members: &[usize], specs: &[ParameterSpec]) -> BucketShard {
        let mut shard =
            BucketShard { wanted: vec![0..0; self.pieces.len()], own: Vec::new(), whole: Vec::new() };
        let mut offset = 0;
        for &parameter in members {
            let numel = specs[parameter].numel();
            for Part { rank, number, piece, is_own } in self.parts(parameter) {
                let numbered = || (self.chunks_before[parameter]..).zip(chunks(numel));
                let at_home = || numbered().filter(|(_, chunk)| piece.values.contains(&chunk.start));
                let end = at_home().last().map_or(0, |(_, chunk)| chunk.end).max(piece.values.end);
                // What a rank owns of a bucket lies together.
                let start = match shard.wanted[rank].is_empty() {
                    true => offset + piece.values.start,
                    false => shard.wanted[rank].start,
                };
                shard.wanted[rank] = start..offset + end;
                if is_own {
                    let shape = match piece.values.len() == numel {
                        true => specs[parameter].shape.clone(),
                        false => vec![piece.values.len() as i64],
                    };
                    let values = offset + piece.values.start..offset + piece.values.end;
                    shard.own.push((number, values, shape));
                    let place = |chunk: Range<usize>| offset + chunk.start..offset + chunk.end;
                    shard.whole.extend(at_home().map(|(number, chunk)| (number, place(chunk))));
                }
            }
            offset += padded(&specs[parameter]);
        }
        shard
    }

    /// Lets the weights of each bucket lie in one row of memory, so that ranks give each other theirs as they lie: whoever has the leaves has them there
    /// then. None where nothing is divided.
    pub fn lay_out(&self, parameters: &Parameters, buckets: &[Vec<usize>]) -> Vec<Row> {
        let (specs, ranks) = (parameters.specs(), self.pieces.len());
        let row = |members: &Vec<usize>| {
            let values = Tensor::zeros([row_len(members, specs) as i64], parameters.options());
            let mut offset = 0;
            for &parameter in members {
                let leaf = &parameters.leaves()[parameter];
                let place = narrow(&values, offset, leaf.numel()).view(leaf.size().as_slice());
                no_grad(|| place.shallow_clone().copy_(leaf));
                leaf.shallow_clone().set_data(&place);
                offset += padded(&specs[parameter]);
            }
            let first = members.iter().min().copied().unwrap_or(0);
            let slices = (0..ranks).map(|rank| slice(members, specs, rank, ranks)).collect();
            Row { values, members: first..first + members.len(), slices }
        };
        if self.is_divided() { buckets.iter().map(row).collect() } else { Vec::new() }
    }
}

/// Values of a bucket, with what fills up between parameters.
fn row_len(members: &[usize], specs: &[ParameterSpec]) -> usize {
    members.iter().map(|&parameter| padded(&specs[parameter])).sum()
}

/// What rank `rank` of `world_size` owns of the values of a bucket.
fn slice(members: &[usize], specs: &[ParameterSpec], rank: usize, world_size: usize) -> Range<usize> {
    let blocks = row_len(members, specs) / ALIGNMENT;
    blocks * rank / world_size * ALIGNMENT..blocks * (rank + 1) / world_size * ALIGNMENT
}

/// What of the parameters lies in these places of their bucket.
fn stretch(members: &[usize], specs: &[ParameterSpec], places: &Range<usize>) -> Vec<Piece> {
    let (mut pieces, mut offset) = (Vec::new(), 0);
    for &parameter in members {
        let spec = &specs[parameter];
        let values = places.start.max(offset) - offset..places.end.saturating_sub(offset).min(spec.numel());
        if !values.is_empty() {
            pieces.push(Piece { parameter, values });
        }
        offset += padded(spec);
    }
    pieces
}

fn narrow(tensor: &Tensor, start: usize, len: usize) -> Tensor {
    tensor.narrow(0, start as i64, len as i64)
}

/// What becomes of the sums of one bucket where gradients are divided.
pub struct BucketShard {
    /// What each rank needs of the bucket's values: its own, and what it takes norms of.
    wanted: Vec<Range<usize>>,
    /// This rank's pieces in the bucket: number, place, and the shape that [`Piece::of`] gives.
    own: Vec<(usize, Range<usize>, Vec<i64>)>,
    /// Chunks that this rank takes the norms of: their numbers among all, and their places.
    whole: Vec<(usize, Range<usize>)>,
}

/// What a rank keeps of sums that ranks have divided, or that lie in no bucket.
#[derive(Default)]
pub struct Kept {
    /// Sums of gradients of its pieces, by the piece's number, each of the shape that [`Piece::of`] gives.
    pub gradients: Vec<(usize, Tensor)>,
    /// Norms of chunks of gradients, an entry a bucket, in the order in which their sums came.
    pub norms: Vec<Norms>,
    /// Sums of tables whose rows were counted, by bucket.
    pub tables: Vec<(usize, Tensor)>,
}

/// Numbers of chunks of gradients, and their norms, which may still be in the making.
pub type Norms = (Vec<usize>, Tensor);

impl BucketShard {
    /// Collective. Sums the bucket's `values` over ranks, as far as this one needs them; `table` is as in [`Ready`](super::jobs::Ready).
    pub fn reduce(
        &self,
        sums: &mut Sums,
        values: &Tensor,
        table: &Option<(usize, Rows)>,
    ) -> Result<(), CollectiveError> {
        let whole = values.numel();
        let reduce = |sums: &mut Sums, values: &Tensor| match values.numel() == whole {
            true => sums.reduce_scatter(values, &self.wanted),
            // The rows of a table that some rank has touched: few, and everybody's.
            false => sums.tree_all_reduce(values),
        };
        match table {
            Some((width, rows)) => reduce_rows(sums, values, *width, rows, reduce).map(|_| ()),
            None => reduce(sums, values),
        }
    }

    /// What this rank keeps of the bucket's sums, which are not needed any more then.
    pub fn keep(&self, sums: &Tensor, norms: Norms) -> Kept {
        let gradient = |(number, values, shape): &(usize, Range<usize>, Vec<i64>)| {
            (*number, narrow(sums, values.start, values.len()).copy().view(shape.as_slice()))
        };
        Kept { gradients: self.own.iter().map(gradient).collect(), norms: vec![norms], tables: Vec::new() }
    }

    /// Norms of the chunks of `sums` that this rank takes.
    pub fn norms(&self, sums: &Tensor) -> Norms {
        let whole = self.whole.iter().map(|(_, place)| narrow(sums, place.start, place.len()));
        (self.whole.iter().map(|(number, _)| *number).collect(), norms(&whole.collect::<Vec<_>>()))
    }
}

impl Kept {
    /// Adds what is kept of another bucket.
    pub fn extend(&mut self, other: Self) {
        self.gradients.extend(other.gradients);
        self.norms.extend(other.norms);
        self.tables.extend(other.tables);
    }

    /// Collective. Norms of all `chunks` chunks of gradients, in their order, from the ranks that have taken them: this one has `taken`.
    pub fn gather_norms(
        &self,
        taken: &[f64],
        chunks: usize,
        comm: &dyn Communicator,
    ) -> Result<Vec<f64>, CollectiveError> {
        let numbers = self.norms.iter().flat_map(|(numbers, _)| numbers);
        // The number of a chunk is exact as a double.
        let own = numbers.zip(taken).flat_map(|(number, norm)| [*number as f64, *norm]);
        // Of a chunk that nobody has told of, nothing finite is known.
        let mut norms = vec![f64::NAN; chunks];
        for pair in doubles::of_bytes(&comm.all_gather(&doubles::to_bytes(own))?.concat()).chunks_exact(2) {
            if let Some(norm) = norms.get_mut(pair[0] as usize) {
                *norm = pair[1];
            }
        }
        Ok(norms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use segue_collectives::simulated;
    use segue_kernels::Init;
    use tch::{Device, Kind};

    use super::super::group;
    use super::*;

    fn parameters(sizes: &[usize]) -> Parameters {
        of_shapes(sizes.iter().map(|&n| vec![n as i64]))
    }

    fn of_shapes(shapes: impl Iterator<Item = Vec<i64>>) -> Parameters {
        let spec = |(i, shape): (usize, Vec<i64>)| ParameterSpec {
            name: format!("p{i}"),
            shape,
            init: Init::Uniform { range: 1.0 },
        };
        Parameters::initialise(shapes.enumerate().map(spec).collect(), 1, Kind::Float)
    }

    proptest! {
        #[test]
        fn every_value_is_owned_once_and_ranks_own_alike(
            sizes in prop::collection::vec(1usize..300, 1..12),
            bucket_bytes in 1usize..3000,
            world_size in 2usize..9,
        ) {
            let parameters = parameters(&sizes);
            let buckets = group(parameters.specs(), bucket_bytes);
            let shards = Shards::new(Shard::Optimizer, &parameters, &buckets, 0, world_size);
            for (parameter, &size) in sizes.iter().enumerate() {
                let mut next = 0;
                for part in shards.parts(parameter) {
                    prop_assert_eq!(part.piece.values.start, next);
                    prop_assert!(next % ALIGNMENT == 0 && !part.piece.values.is_empty());
                    next = part.piece.values.end;
                }
                prop_assert_eq!(next, size);
            }
            for (row, members) in shards.lay_out(&parameters, &buckets).iter().zip(&buckets) {
                let blocks = |slice: &Range<usize>| slice.len() / ALIGNMENT;
                let all = row.values.numel() / ALIGNMENT;
                prop_assert!(row.slices.iter().all(|own| blocks(own).abs_diff(all / world_size) <= 1));
                prop_assert!(row.slices.iter().map(blocks).sum::<usize>() == all);
                prop_assert!(row.members.clone().rev().eq(members.iter().copied()));
            }
        }
    }

    #[test]
    fn every_rank_gathers_what_the_others_have_updated() {
        for (sizes, cards) in [
            (&[3 * 2048, 40][..], false),
            (&[40, 3, 700, 16], false),
            (&[40, 3, 700, 16], true),
            (&[5], true),
        ] {
            for world_size in 2..=5 {
                let found = simulated::run(world_size, |comm| {
                    let parameters = parameters(sizes);
                    // Whoever has taken one before has it where it lies then.
                    let taken: Vec<Tensor> =
                        (0..sizes.len()).map(|i| parameters.get(&format!("p{i}")).detach().copy()).collect();
                    let leaves: Vec<Tensor> =
                        (0..sizes.len()).map(|i| parameters.get(&format!("p{i}"))).collect();
                    let buckets = group(parameters.specs(), 3000);
                    let shards =
                        Shards::new(Shard::Optimizer, &parameters, &buckets, comm.rank(), world_size);
                    let rows = shards.lay_out(&parameters, &buckets);
                    assert!(leaves.iter().zip(&taken).all(|(leaf, before)| leaf.detach() == *before));
                    let owned = |rank: usize, parameter: usize| {
                        (taken[parameter].shallow_clone() * (rank + 2) as f64).view([-1])
                    };
                    for piece in shards.own() {
                        let own = piece.of(&owned(comm.rank(), piece.parameter));
                        no_grad(|| piece.of(&parameters.leaves()[piece.parameter]).copy_(&own));
                    }
                    let mut sums = match cards {
                        true => Sums::of_cards(comm, true),
                        false => Sums::simulated(comm, true),
                    };
                    rows.iter().for_each(|row| sums.all_gather(&row.values, &row.slices).unwrap());
                    leaves.iter().enumerate().all(|(parameter, leaf)| {
                        let parts = shards.parts(parameter).into_iter();
                        let parts: Vec<Tensor> = parts
                            .map(|part| part.piece.of(&owned(part.rank, parameter)).view([-1]))
                            .collect();
                        leaf.requires_grad() && leaf.detach().view([-1]) == Tensor::cat(&parts, 0)
                    })
                });
                assert_eq!(found, vec![true; world_size], "{sizes:?}");
            }
        }
    }

    fn read(norms: &Tensor) -> Vec<f64> {
        norms.try_into().unwrap()
    }

    /// Sums, and norms of whole chunks, although most of these lie on several ranks.
    #[test]
    fn ranks_keep_the_sums_of_their_pieces_and_know_all_norms() {
        let (sizes, bucket_bytes) = ([131_150, 16, 40_000, 5], 524_700);
        let shape = |parameter: usize| if parameter == 1 { [4, 4] } else { [sizes[parameter] as i64 / 5, 5] };
        for world_size in 2..=5 {
            let gradient = |rank: usize, parameter: usize| {
                let i = Tensor::arange(sizes[parameter] as i64, (Kind::Float, Device::Cpu));
                (i * 0.7 + rank as i64 * 3 + parameter as i64).sin().view(shape(parameter))
            };
            let add = |a: Tensor, b: Tensor| a + b;
            let sum = |parameter: usize| {
                let terms = (0..world_size).map(|rank| gradient(rank, parameter)).collect();
                segue_collectives::tree::tree_sum(terms, add).unwrap()
            };
            let found = simulated::run(world_size, |comm| {
                let expected: Vec<Tensor> = (0..sizes.len()).map(sum).collect();
                let parameters = of_shapes((0..sizes.len()).map(|i| shape(i).to_vec()));
                let specs = parameters.specs();
                let buckets = group(specs, bucket_bytes);
                assert_eq!(buckets, [vec![3, 2, 1], vec![0]]);
                let shards = Shards::new(Shard::Gradients, &parameters, &buckets, comm.rank(), world_size);
                let mut kept = Kept::default();
                for members in buckets {
                    let room = members.iter().map(|&i| padded(&specs[i])).sum::<usize>();
                    let sums = Tensor::zeros([room as i64], (Kind::Float, Device::Cpu));
                    let mut offset = 0;
                    for &i in &members {
                        narrow(&sums, offset, sizes[i]).copy_(&gradient(comm.rank(), i).view([-1]));
                        offset += padded(&specs[i]);
                    }
                    let shard = shards.of_bucket(&members, specs);
                    shard.reduce(&mut Sums::of_cards(comm, true), &sums, &None).unwrap();
                    kept.extend(shard.keep(&sums, shard.norms(&sums)));
                }
                kept.gradients.sort_by_key(|(number, _)| *number);
                // Shapes too: an optimizer's kernels for cards refuse a gradient of another one than the weights'.
                let values = |t: &Tensor| (t.size(), Vec::<f32>::try_from(t.view([-1])).unwrap());
                let own = kept.gradients.iter().map(|(_, sum)| values(sum)).collect::<Vec<_>>();
                let wanted = shards.own().iter().map(|piece| values(&piece.of(&expected[piece.parameter])));
                assert_eq!(own, wanted.collect::<Vec<_>>());
                let taken: Vec<Tensor> = kept.norms.iter().map(|(_, norms)| norms.shallow_clone()).collect();
                kept.gather_norms(&read(&Tensor::cat(&taken, 0)), shards.chunks(), comm).unwrap()
            });
            let expected: Vec<Tensor> = (0..sizes.len()).map(sum).collect();
            assert!(found.iter().all(|found| *found == read(&norms(&expected))), "{found:?}");
        }
    }
}
