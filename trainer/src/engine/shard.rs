//! What of a network each rank updates, where ranks divide the state of training among themselves (Rajbhandari et al.
//! 2020, ZeRO).
//!
//! The values of all parameters lie in one row, in the order of the buckets, and each rank owns an equal stretch of it,
//! wherever its ends fall: a table that is larger than all else is divided like the rest. Stretches begin at multiples of
//! [`ALIGNMENT`] values of a parameter, so that an update of a part has the bits of an update of the whole. A norm has not:
//! it is taken of whole gradients, by the rank that owns a parameter's first value.

use std::ops::Range;

use segue_collectives::{CollectiveError, Communicator};
use segue_configs::Shard;
use tch::{Kind, Tensor, no_grad};

use super::buckets::{ALIGNMENT, padded};
use super::doubles;
use super::rows::{Rows, reduce_rows};
use super::sums::Sums;
use crate::optim::{Piece, norms};
use crate::{ParameterSpec, Parameters};

/// Values that ranks exchange in one round of [`Shards::gather`], all together: 16 MiB.
const ROUND: usize = (16 << 20) / size_of::<f32>();
/// Values of one rank in a round, at the least.
const LEAST: usize = (64 << 10) / size_of::<f32>();

/// Who owns which values of a network.
pub struct Shards {
    kind: Shard,
    rank: usize,
    /// By rank; one entry that is all of it where nothing is divided.
    pieces: Vec<Vec<Piece>>,
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
    /// As rank `rank` of `world_size` sees it.
    pub fn new(kind: Shard, parameters: &Parameters, rank: usize, world_size: usize) -> Self {
        if kind == Shard::None || world_size == 1 {
            return Self { kind: Shard::None, rank: 0, pieces: vec![Piece::all(parameters)] };
        }
        let specs = parameters.specs();
        let blocks: usize = specs.iter().map(|spec| padded(spec) / ALIGNMENT).sum();
        let start = |rank: usize| blocks * rank / world_size * ALIGNMENT;
        let pieces = (0..world_size).map(|rank| stretch(specs, start(rank)..start(rank + 1)));
        Self { kind, rank, pieces: pieces.collect() }
    }

    /// Whether ranks own parts, and not all of them everything.
    pub fn is_divided(&self) -> bool {
        self.pieces.len() > 1
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
            for Part { rank, number, piece, is_own } in self.parts(parameter) {
                let values = offset + piece.values.start..offset + piece.values.end;
                let home = piece.values.start == 0;
                let wanted = if home { offset..offset + specs[parameter].numel() } else { values.clone() };
                shard.wanted[rank] = match shard.wanted[rank].is_empty() {
                    true => wanted,
                    // What a rank owns of a bucket lies together.
                    false => shard.wanted[rank].start..wanted.end,
                };
                if is_own {
                    let whole = piece.values.len() == specs[parameter].numel();
                    let shape = match whole {
                        true => specs[parameter].shape.clone(),
                        false => vec![piece.values.len() as i64],
                    };
                    shard.own.push((number, values, shape));
                    if home {
                        shard.whole.push((parameter, offset, specs[parameter].shape.clone()));
                    }
                }
            }
            offset += padded(&specs[parameter]);
        }
        shard
    }

    /// Collective. Gives every rank the values that the others own of `weights`, one tensor a parameter.
    pub fn gather(&self, weights: &[Tensor], sums: &mut Sums) -> Result<(), CollectiveError> {
        let flat = |piece: &Piece| piece.of(&weights[piece.parameter]).detach().view([-1]);
        let views: Vec<Vec<Tensor>> = self.pieces.iter().map(|own| own.iter().map(flat).collect()).collect();
        let lengths: Vec<usize> =
            self.pieces.iter().map(|own| own.iter().map(|piece| piece.values.len()).sum()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let each = (ROUND / lengths.len()).max(LEAST).min(longest);
        let room = Tensor::zeros([(lengths.len() * each) as i64], (Kind::Float, sums.place()));
        for start in (0..longest).step_by(each.max(1)) {
            let round = |rank: usize| start.min(lengths[rank])..(start + each).min(lengths[rank]);
            let slices: Vec<Range<usize>> =
                (0..lengths.len()).map(|rank| rank * each..rank * each + round(rank).len()).collect();
            for (part, place) in parts_of(&views[self.rank], round(self.rank)) {
                no_grad(|| narrow(&room, slices[self.rank].start + place, part.numel()).copy_(&part));
            }
            sums.all_gather(&room, &slices)?;
            for rank in (0..lengths.len()).filter(|rank| *rank != self.rank) {
                for (mut part, place) in parts_of(&views[rank], round(rank)) {
                    no_grad(|| part.copy_(&narrow(&room, slices[rank].start + place, part.numel())));
                }
            }
        }
        Ok(())
    }
}

/// What of the parameters lies in these places of the row, in the parameters' order.
fn stretch(specs: &[ParameterSpec], places: Range<usize>) -> Vec<Piece> {
    let (mut pieces, mut offset) = (Vec::new(), 0);
    for (parameter, spec) in specs.iter().enumerate().rev() {
        let start = places.start.max(offset) - offset;
        let end = places.end.saturating_sub(offset).min(spec.numel());
        if start < end {
            pieces.push(Piece { parameter, values: start..end });
        }
        offset += padded(spec);
    }
    pieces.reverse();
    pieces
}

/// What lies in `window` of tensors that are thought one after the other: parts of them, each with its place in the window.
fn parts_of(tensors: &[Tensor], window: Range<usize>) -> Vec<(Tensor, usize)> {
    let (mut parts, mut offset) = (Vec::new(), 0);
    for tensor in tensors {
        let (first, len) = (offset, tensor.numel());
        let (start, end) = (window.start.max(first), window.end.min(first + len));
        if start < end {
            parts.push((narrow(tensor, start - first, end - start), start - window.start));
        }
        offset += len;
    }
    parts
}

fn narrow(tensor: &Tensor, start: usize, len: usize) -> Tensor {
    tensor.narrow(0, start as i64, len as i64)
}

/// What becomes of the sums of one bucket where gradients are divided.
pub struct BucketShard {
    /// What each rank needs of the bucket's values: its own, and parameters as a whole that it takes the norm of.
    wanted: Vec<Range<usize>>,
    /// This rank's pieces in the bucket: number, place, and the shape that [`Piece::of`] gives.
    own: Vec<(usize, Range<usize>, Vec<i64>)>,
    /// Parameters that this rank takes the norm of: number, place, shape.
    whole: Vec<(usize, usize, Vec<i64>)>,
}

/// What a rank keeps of sums that ranks have divided, or that lie in no bucket.
#[derive(Default)]
pub struct Kept {
    /// Sums of gradients of its pieces, by the piece's number, each of the shape that [`Piece::of`] gives.
    pub gradients: Vec<(usize, Tensor)>,
    /// Norms of whole gradients, an entry a bucket, in the order in which their sums came.
    pub norms: Vec<Norms>,
    /// Sums of tables whose rows were counted, by bucket.
    pub tables: Vec<(usize, Tensor)>,
}

/// Numbers of parameters, and the norms of their gradients, which may still be in the making.
pub type Norms = (Vec<usize>, Tensor);

impl BucketShard {
    /// Collective. Sums the bucket's `values` over ranks, as far as this one needs them; `table` is as in [`Ready`](super::buckets::Ready).
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

    /// Norms of the gradients in `sums` that this rank takes whole.
    pub fn norms(&self, sums: &Tensor) -> Norms {
        let whole = self.whole.iter().map(|(_, offset, shape)| {
            narrow(sums, *offset, shape.iter().product::<i64>() as usize).view(shape.as_slice())
        });
        let norms = norms(&whole.collect::<Vec<_>>());
        (self.whole.iter().map(|(parameter, _, _)| *parameter).collect(), norms)
    }
}

impl Kept {
    /// Adds what is kept of another bucket.
    pub fn extend(&mut self, other: Self) {
        self.gradients.extend(other.gradients);
        self.norms.extend(other.norms);
        self.tables.extend(other.tables);
    }

    /// Collective. Norms of the gradients of all `parameters` parameters, in their order, from the ranks that have taken them: this one has `taken`.
    pub fn gather_norms(
        &self,
        taken: &[f64],
        parameters: usize,
        comm: &dyn Communicator,
    ) -> Result<Vec<f64>, CollectiveError> {
        let of_parameters = self.norms.iter().flat_map(|(parameters, _)| parameters);
        // The number of a parameter is exact as a double.
        let own = of_parameters.zip(taken).flat_map(|(parameter, norm)| [*parameter as f64, *norm]);
        // Of a parameter that nobody has told of, nothing finite is known.
        let mut norms = vec![f64::NAN; parameters];
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
    use tch::Device;

    use super::*;
    use crate::Init;

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
            world_size in 2usize..9,
        ) {
            let parameters = parameters(&sizes);
            let shards = Shards::new(Shard::Optimizer, &parameters, 0, world_size);
            for (parameter, &size) in sizes.iter().enumerate() {
                let mut next = 0;
                for part in shards.parts(parameter) {
                    prop_assert_eq!(part.piece.values.start, next);
                    prop_assert!(next % ALIGNMENT == 0 && !part.piece.values.is_empty());
                    next = part.piece.values.end;
                }
                prop_assert_eq!(next, size);
            }
            let blocks = |rank: usize| {
                let pieces = shards.pieces[rank].iter();
                pieces.map(|piece| piece.values.len().div_ceil(ALIGNMENT)).sum::<usize>()
            };
            let all: usize = (0..world_size).map(blocks).sum();
            prop_assert!((0..world_size).all(|rank| blocks(rank).abs_diff(all / world_size) <= 1));
        }
    }

    #[test]
    fn every_rank_gathers_what_the_others_have_updated() {
        // The first is longer than a round.
        for (sizes, cards) in [
            (&[3 * ROUND / 2, 40][..], false),
            (&[40, 3, 700, 16], false),
            (&[40, 3, 700, 16], true),
            (&[5], true),
        ] {
            for world_size in 2..=5 {
                let found = simulated::run(world_size, |comm| {
                    let parameters = parameters(sizes);
                    let shards = Shards::new(Shard::Optimizer, &parameters, comm.rank(), world_size);
                    let weights: Vec<Tensor> =
                        parameters.tensors().iter().map(|t| t.detach().copy()).collect();
                    for piece in shards.own() {
                        _ = piece.of(&weights[piece.parameter]).fill_((comm.rank() + 2) as f64);
                    }
                    let mut sums = match cards {
                        true => Sums::of_cards(comm, true),
                        false => Sums::simulated(comm, true),
                    };
                    shards.gather(&weights, &mut sums).unwrap();
                    let owned = |(parameter, weights): (usize, &Tensor)| {
                        let mut owners = shards.parts(parameter).into_iter();
                        owners.all(|part| {
                            part.piece.of(weights).eq((part.rank + 2) as i64).all().int64_value(&[]) == 1
                        })
                    };
                    weights.iter().enumerate().all(owned)
                });
                assert_eq!(found, vec![true; world_size], "{sizes:?}");
            }
        }
    }

    fn read(norms: &Tensor) -> Vec<f64> {
        norms.try_into().unwrap()
    }

    /// Sums, and norms of whole parameters, although most of these lie on several ranks.
    #[test]
    fn ranks_keep_the_sums_of_their_pieces_and_know_all_norms() {
        let sizes = [70, 16, 300, 5];
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
                let shards = Shards::new(Shard::Gradients, &parameters, comm.rank(), world_size);
                let mut kept = Kept::default();
                for members in [&[3, 2][..], &[1, 0]] {
                    let room = members.iter().map(|&i| padded(&specs[i])).sum::<usize>();
                    let sums = Tensor::zeros([room as i64], (Kind::Float, Device::Cpu));
                    let mut offset = 0;
                    for &i in members {
                        narrow(&sums, offset, sizes[i]).copy_(&gradient(comm.rank(), i).view([-1]));
                        offset += padded(&specs[i]);
                    }
                    let shard = shards.of_bucket(members, specs);
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
                kept.gather_norms(&read(&Tensor::cat(&taken, 0)), sizes.len(), comm).unwrap()
            });
            let expected: Vec<Tensor> = (0..sizes.len()).map(sum).collect();
            assert!(found.iter().all(|found| *found == read(&norms(&expected))), "{found:?}");
        }
    }
}
