use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::regions::{Message, Place, Regions, SLICE_LEN, even_slice};
use super::*;
use crate::Watched;
use crate::simulated::{self, Simulated};

/// The tree a second way, top down: the left branch is the largest power of two below the count.
fn naive(terms: &[f32]) -> f32 {
    match terms {
        [] => panic!("no terms"),
        [term] => *term,
        _ => {
            let left = terms.len().next_power_of_two() / 2;
            naive(&terms[..left]) + naive(&terms[left..])
        }
    }
}

/// What every rank must hold: `terms[rank][i]` summed over ranks, as bits.
fn naive_bits(terms: &[Vec<f32>]) -> Vec<u32> {
    (0..terms[0].len())
        .map(|i| naive(&terms.iter().map(|values| values[i]).collect::<Vec<_>>()).to_bits())
        .collect()
}

fn all_reduce_bits(terms: &[Vec<f32>]) -> Vec<Vec<u32>> {
    simulated::run(terms.len(), |comm| {
        let mut values = terms[comm.rank()].clone();
        tree_all_reduce(comm, &mut values, &mut Vec::new(), Wire::F32).unwrap();
        values.into_iter().map(f32::to_bits).collect()
    })
}

/// Reproducible values of very different sizes and both signs, so that a wrong order shows.
fn rough_values(len: usize, rank: usize) -> Vec<f32> {
    let mut state = (rank as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..len).map(|_| (draw() as f32 / 2f32.powi(30) - 1.0) * 10f32.powi((draw() % 9) as i32 - 4)).collect()
}

#[test]
fn five_and_seven_terms_meet_in_the_documented_order() {
    let letters = |n: u8| (0..n).map(|i| i.to_string()).collect();
    let bracket = |left, right| format!("({left}{right})");
    assert_eq!(tree_sum(letters(5), bracket).unwrap(), "(((01)(23))4)");
    assert_eq!(tree_sum(letters(7), bracket).unwrap(), "(((01)(23))((45)6))");
    assert_eq!(tree_sum(letters(0), bracket), None);
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_the_naive_tree() {
    for world_size in (1..=9).chain([10, 12, 20, 24]) {
        for len in [0, 1, 2, 3, 7, 8, 64, 1000, 4099] {
            let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
            let expected = naive_bits(&terms);
            for (rank, bits) in all_reduce_bits(&terms).into_iter().enumerate() {
                assert!(bits == expected, "rank {rank} of {world_size}, {len} values");
            }
        }
    }
}

/// 256 ranks in 8 exchanges each way; 200 in blocks of 8; 201, an odd number, in one of 200 messages.
#[test]
fn hundreds_of_ranks_give_the_bits_of_the_naive_tree() {
    for world_size in [200, 201, 256] {
        let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(1000, rank)).collect();
        let expected = naive_bits(&terms);
        assert!(all_reduce_bits(&terms).into_iter().all(|bits| bits == expected), "{world_size} ranks");
    }
}

#[test]
fn several_rounds_give_the_same_bits_as_one() {
    for world_size in [2, 3, 4, 6] {
        let len = SLICE_LEN * world_size * 2 + 4321;
        let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
        let expected = naive_bits(&terms);
        assert!(all_reduce_bits(&terms).into_iter().all(|bits| bits == expected), "{world_size} ranks");
    }
}

/// Each rank's part begins in its neighbour's, some ranks want nothing, and rank 0 wants all.
fn overlapping_parts(len: usize, world_size: usize) -> Vec<Range<usize>> {
    let part = |rank: usize| match rank {
        0 => 0..len,
        rank if rank % 3 == 2 => len..len,
        rank => (rank * len / world_size).saturating_sub(5)..(rank + 1) * len / world_size,
    };
    (0..world_size).map(part).collect()
}

#[test]
fn scattered_sums_have_the_bits_of_the_naive_tree_where_they_are_wanted() {
    for world_size in (1..=9).chain([12]) {
        for len in [0, 1, 3, 8, 1000, 4099, SLICE_LEN * world_size + 77] {
            // The last one takes two rounds; that one world of each kind does is enough.
            if len > 4099 && ![2, 3, 6].contains(&world_size) {
                continue;
            }
            let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
            let expected = naive_bits(&terms);
            let one_by_one: Vec<_> = (0..world_size).map(|rank| even_slice(len, world_size, rank)).collect();
            for wanted in [one_by_one, overlapping_parts(len, world_size)] {
                simulated::run(world_size, |comm| {
                    let mut values = terms[comm.rank()].clone();
                    tree_reduce_scatter(comm, &mut values, &wanted, &mut Vec::new(), Wire::F32).unwrap();
                    let own = wanted[comm.rank()].clone();
                    let found = values[own.clone()].iter().map(|x| x.to_bits());
                    assert!(found.eq(expected[own].iter().copied()), "{} of {world_size}", comm.rank());
                });
            }
        }
    }
}

#[test]
fn every_rank_gathers_the_slices_of_all() {
    for world_size in 1..=5 {
        // Of different lengths, one of them nothing, with a gap that nobody writes to.
        let starts: Vec<usize> = (0..=world_size).map(|rank: usize| rank * rank.saturating_sub(1)).collect();
        let slices: Vec<_> = starts.windows(2).map(|pair| pair[0]..pair[1] - pair[1].min(1)).collect();
        let len = starts[world_size];
        let gathered = simulated::run(world_size, |comm| {
            let mut values = vec![f32::NAN; len];
            let own = vec![comm.rank() as f32; slices[comm.rank()].len()];
            let (mut others, mut rest, mut at) = (Vec::new(), values.as_mut_slice(), 0);
            for slice in &slices {
                let (other, behind) = rest.split_at_mut(slice.start - at).1.split_at_mut(slice.len());
                others.push(other);
                (rest, at) = (behind, slice.end);
            }
            std::mem::take(&mut others[comm.rank()]).copy_from_slice(&own);
            all_gather_slices(comm, &own, &mut others).unwrap();
            values
        });
        for values in gathered {
            for (rank, slice) in slices.iter().enumerate() {
                assert!(values[slice.clone()].iter().all(|x| *x == rank as f32), "{values:?}");
            }
            let written: usize = slices.iter().map(Range::len).sum();
            assert_eq!(values.iter().filter(|x| x.is_nan()).count(), len - written);
        }
    }
}

/// Terms of each rank and what is summed of them by messages of 16 bits, on each.
fn short_sums(terms: &[Vec<f32>]) -> Vec<Vec<f32>> {
    simulated::run(terms.len(), |comm| {
        let mut values = terms[comm.rank()].clone();
        tree_all_reduce(comm, &mut values, &mut Vec::new(), Wire::Bf16).unwrap();
        values
    })
}

#[test]
fn short_messages_give_all_ranks_the_same_sums_as_near_as_their_roundings_let_them() {
    for world_size in (2..=9).chain([12]) {
        for len in [0, 1, 3, 1000, SLICE_LEN * world_size + 77] {
            if len > 1000 && ![2, 3, 6].contains(&world_size) {
                continue;
            }
            let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
            let sums = short_sums(&terms);
            assert!(sums.iter().all(|of_rank| bits(of_rank) == bits(&sums[0])), "{world_size} ranks");
            // Half of the last of 8 bits, at each level that crosses ranks and in the end.
            let levels = world_size.next_power_of_two().trailing_zeros() + 1;
            for (i, sum) in sums[0].iter().enumerate() {
                let exact: f64 = terms.iter().map(|of_rank| f64::from(of_rank[i])).sum();
                let size: f64 = terms.iter().map(|of_rank| f64::from(of_rank[i].abs())).sum();
                let most = f64::from(levels) * size / 256.0;
                assert!((f64::from(*sum) - exact).abs() <= most, "{sum} for {exact}, {world_size} ranks");
                assert_eq!(sum.to_bits() & 0xffff, 0, "{sum} is no bfloat16");
            }
        }
    }
    // Who is alone gives nobody anything.
    let own = rough_values(100, 0);
    assert_eq!(bits(&short_sums(std::slice::from_ref(&own))[0]), bits(&own));
}

/// As a bucket of another size would have them: no sum knows where its value lies.
#[test]
fn sums_of_short_messages_do_not_depend_on_the_places_of_values() {
    for world_size in [2, 3, 4, 6, 8] {
        let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(1001, rank)).collect();
        let whole = &short_sums(&terms)[0];
        let reversed: Vec<Vec<f32>> =
            terms.iter().map(|of_rank| of_rank.iter().rev().copied().collect()).collect();
        let parts = [0..17, 17..400, 400..1001].map(|part| {
            let own: Vec<Vec<f32>> = terms.iter().map(|of_rank| of_rank[part.clone()].to_vec()).collect();
            short_sums(&own)[0].clone()
        });
        assert_eq!(bits(&parts.concat()), bits(whole), "{world_size} ranks");
        let back: Vec<f32> = short_sums(&reversed)[0].iter().rev().copied().collect();
        assert_eq!(bits(&back), bits(whole), "{world_size} ranks");
    }
}

#[test]
fn scattered_sums_of_short_messages_have_the_bits_of_those_that_all_get() {
    for world_size in [2, 3, 4, 6] {
        let len = 4099;
        let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
        let (expected, wanted) = (short_sums(&terms), overlapping_parts(len, world_size));
        simulated::run(world_size, |comm| {
            let mut values = terms[comm.rank()].clone();
            tree_reduce_scatter(comm, &mut values, &wanted, &mut Vec::new(), Wire::Bf16).unwrap();
            let own = wanted[comm.rank()].clone();
            assert_eq!(
                bits(&values[own.clone()]),
                bits(&expected[0][own]),
                "{} of {world_size}",
                comm.rank()
            );
        });
    }
}

#[test]
fn short_messages_take_half_of_the_bytes() {
    let heard = |wire: Wire| {
        simulated::run(6, |comm| {
            let bytes = Arc::new(AtomicUsize::new(0));
            let counter = bytes.clone();
            let count = move |_: &'static str, received| _ = counter.fetch_add(received, Ordering::SeqCst);
            let comm = Watched::over(comm, count).unwrap();
            tree_all_reduce(&comm, &mut [1.0; 600], &mut Vec::new(), wire).unwrap();
            bytes.load(Ordering::SeqCst)
        })
    };
    assert_eq!(heard(Wire::F32), [600 * 2 * 5 / 6 * 4; 6]);
    assert_eq!(heard(Wire::Bf16), [600 * 2 * 5 / 6 * 2; 6]);
}

#[test]
fn scratch_of_another_call_does_not_matter() {
    let sums = simulated::run(3, |comm| {
        let mut scratch = vec![f32::NAN; 100];
        let mut values = vec![1.0; 7];
        tree_all_reduce(comm, &mut values, &mut scratch, Wire::F32).unwrap();
        tree_all_reduce(comm, &mut values, &mut scratch, Wire::F32).unwrap();
        values
    });
    assert_eq!(sums, vec![vec![9.0; 7]; 3]);
}

#[test]
fn a_rank_that_dies_ends_the_sum_on_all_ranks() {
    for world_size in [2, 3, 4, 5, 6, 8] {
        for dies_at in 1..=3 {
            let mut faults = vec![simulated::Faults::default(); world_size];
            faults[world_size - 1].dies_at_call = Some(dies_at);
            let results = simulated::run_with(faults, |comm| {
                let mut values = vec![1.0; 64];
                (0..3).try_for_each(|_| tree_all_reduce(comm, &mut values, &mut Vec::new(), Wire::F32))
            });
            assert!(results.iter().all(|result| result.as_ref().is_err_and(|e| e.exit_code() == 69)));
        }
    }
}

#[test]
fn aligned_blocks_summed_by_ranks_give_the_bits_of_the_whole_tree() {
    for micro_steps in 1..=48 {
        let terms = rough_values(micro_steps, 7);
        let whole = naive(&terms).to_bits();
        for world_size in 1..=micro_steps {
            let Ok(block) = aligned_blocks(micro_steps, world_size) else { continue };
            let by_rank =
                terms.chunks(block).map(|block| tree_sum(block.to_vec(), |a, b| a + b).unwrap()).collect();
            let sum: f32 = tree_sum(by_rank, |a, b| a + b).unwrap();
            assert_eq!(sum.to_bits(), whole, "{micro_steps} micro-steps on {world_size} ranks");
        }
    }
}

#[test]
fn a_split_that_is_no_subtree_is_refused() {
    let error = aligned_blocks(12, 4).unwrap_err();
    assert_eq!(error.exit_code(), 78);
    let message = error.to_string();
    assert!(message.contains("12 micro-steps cannot be shared by 4 ranks"), "{message}");
    assert!(aligned_blocks(4, 8).is_err());
    assert!(aligned_blocks(4, 0).is_err());
    assert!(aligned_blocks(0, 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_bits_are_those_of_the_naive_tree(
        (world_size, values) in (1usize..=9).prop_flat_map(|world_size| {
            let values = prop::collection::vec(-1e30f32..1e30, 0..300);
            (Just(world_size), values)
        })
    ) {
        let terms: Vec<Vec<f32>> =
            values.chunks_exact((values.len() / world_size).max(1)).take(world_size).map(<[f32]>::to_vec).collect();
        prop_assume!(terms.len() == world_size);
        let expected = naive_bits(&terms);
        for bits in all_reduce_bits(&terms) {
            prop_assert_eq!(&bits, &expected);
        }
    }
}

/// Memory and a queue of a device that works late: what is asked of it is done in [`Regions::finish`] alone, and what makes the values waits in the
/// owner's queue until somebody waits for it.
struct Late<'a> {
    comm: &'a Simulated,
    memory: Arc<Mutex<[Vec<f32>; 2]>>,
    /// What makes the values: whoever does not wait for it finds what was there before.
    owner: Option<Vec<f32>>,
    queue: Vec<Work<'a>>,
}

type Work<'a> = Box<dyn FnOnce(&mut [Vec<f32>; 2]) -> Result<(), CollectiveError> + 'a>;

impl<'a> Late<'a> {
    fn new(comm: &'a Simulated, values: Vec<f32>) -> Self {
        let memory = Arc::new(Mutex::new([vec![f32::NAN; values.len()], Vec::new()]));
        Self { comm, memory, owner: Some(values), queue: Vec::new() }
    }

    fn values(&self) -> Vec<f32> {
        self.memory.lock().unwrap()[0].clone()
    }
}

fn of_place(place: &Place) -> (usize, Range<usize>) {
    match place.clone() {
        Place::Values(range) => (0, range),
        Place::Room(range) => (1, range),
    }
}

impl Regions for Late<'_> {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn world_size(&self) -> usize {
        self.comm.world_size()
    }

    fn len(&self) -> usize {
        self.memory.lock().unwrap()[0].len()
    }

    fn begin(&mut self, room: usize) -> Result<(), CollectiveError> {
        let made = self.owner.take();
        self.queue.push(Box::new(move |memory| {
            if let Some(made) = made {
                memory[0] = made;
            }
            memory[1] = vec![f32::NAN; room];
            Ok(())
        }));
        Ok(())
    }

    fn exchange(&mut self, messages: &[Message]) -> Result<(), CollectiveError> {
        let (comm, messages) = (self.comm, messages.to_vec());
        self.queue.push(Box::new(move |memory| {
            // All of them at once: what is sent is what was there before any of them arrived. Like a card's, messages without values are not sent.
            let sent: Vec<Vec<f32>> = messages.iter().map(|m| memory[0][m.send.clone()].to_vec()).collect();
            for (message, sent) in messages.iter().zip(sent).filter(|(_, sent)| !sent.is_empty()) {
                comm.send(message.peer, bytemuck::cast_slice(&sent))?;
            }
            for message in messages.iter().rev() {
                let (of, range) = of_place(&message.recv);
                if !range.is_empty() {
                    comm.recv(message.peer, bytemuck::cast_slice_mut(&mut memory[of][range]))?;
                }
            }
            Ok(())
        }));
        Ok(())
    }

    fn add(&mut self, sums: &Place, terms: &Place) -> Result<(), CollectiveError> {
        let ((to, sums), (from, terms)) = (of_place(sums), of_place(terms));
        self.queue.push(Box::new(move |memory| {
            let terms = memory[from][terms].to_vec();
            memory[to][sums].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            Ok(())
        }));
        Ok(())
    }

    fn copy(&mut self, to: &Place, from: &Place) -> Result<(), CollectiveError> {
        let ((to, target), (from, source)) = (of_place(to), of_place(from));
        self.queue.push(Box::new(move |memory| {
            let source = memory[from][source].to_vec();
            memory[to][target].copy_from_slice(&source);
            Ok(())
        }));
        Ok(())
    }

    fn round(&mut self, _: &Range<usize>) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), CollectiveError> {
        let mut memory = self.memory.lock().unwrap();
        std::mem::take(&mut self.queue).into_iter().try_for_each(|work| work(&mut memory))
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_device_that_works_late_gives_the_bits_of_the_naive_tree() {
    for world_size in 2..=9 {
        for len in [0, 1, 3, 64, 1000, SLICE_LEN * world_size + 77] {
            if len > 1000 && ![2, 3, 6].contains(&world_size) {
                continue;
            }
            let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
            let (expected, wanted) = (naive_bits(&terms), overlapping_parts(len, world_size));
            simulated::run(world_size, |comm| {
                let own = terms[comm.rank()].clone();
                let mut late = Late::new(comm, own.clone());
                regions::all_reduce(&mut late).unwrap();
                assert!(bits(&late.values()) == expected, "{} of {world_size}, {len} values", comm.rank());
                let mut late = Late::new(comm, own);
                regions::reduce_scatter(&mut late, &wanted).unwrap();
                let own = wanted[comm.rank()].clone();
                assert!(
                    bits(&late.values()[own.clone()]) == expected[own],
                    "{} of {world_size}",
                    comm.rank()
                );
            });
        }
    }
}

#[test]
fn slices_are_gathered_behind_what_makes_them() {
    let gathered = simulated::run(5, |comm| {
        let mut late = Late::new(comm, vec![comm.rank() as f32; 9]);
        regions::all_gather(&mut late, &[0..1, 1..1, 1..4, 4..8, 8..9]).unwrap();
        late.values()
    });
    assert_eq!(gathered, vec![[0.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 4.0]; 5]);
}

/// Counts what a rank sends, by peer.
struct Counted<'a> {
    late: Late<'a>,
    sent: Vec<(usize, usize)>,
}

impl Regions for Counted<'_> {
    fn rank(&self) -> usize {
        self.late.rank()
    }

    fn world_size(&self) -> usize {
        self.late.world_size()
    }

    fn len(&self) -> usize {
        self.late.len()
    }

    fn begin(&mut self, room: usize) -> Result<(), CollectiveError> {
        self.late.begin(room)
    }

    fn exchange(&mut self, messages: &[Message]) -> Result<(), CollectiveError> {
        self.sent.extend(messages.iter().map(|message| (message.peer, message.send.len())));
        self.late.exchange(messages)
    }

    fn add(&mut self, sums: &Place, terms: &Place) -> Result<(), CollectiveError> {
        self.late.add(sums, terms)
    }

    fn copy(&mut self, to: &Place, from: &Place) -> Result<(), CollectiveError> {
        self.late.copy(to, from)
    }

    fn round(&mut self, values: &Range<usize>) -> Result<(), CollectiveError> {
        self.late.round(values)
    }

    fn finish(&mut self) -> Result<(), CollectiveError> {
        self.late.finish()
    }
}

/// `(ranks, ranks of a host)`: what crosses between hosts is what a leader of each host would send and receive, and no more; messages are as few
/// as a number of ranks 2^k m allows.
#[test]
fn ranks_of_a_host_meet_before_they_talk_to_other_hosts() {
    const LEN: usize = 1 << 12;
    for (ranks, of_host) in [(4, 2), (8, 4), (6, 2), (12, 4), (24, 8), (20, 4)] {
        let sent = simulated::run(ranks, |comm| {
            let late = Late::new(comm, rough_values(LEN, comm.rank()));
            let mut counted = Counted { late, sent: Vec::new() };
            regions::all_reduce(&mut counted).unwrap();
            counted.sent
        });
        let hosts = ranks / of_host;
        let host = |rank: usize| rank / of_host;
        for here in 0..hosts {
            let crossing = |rank: usize| {
                let messages = sent[rank].iter().filter(move |(peer, _)| host(*peer) != host(rank));
                messages.map(|(_, len)| len).sum::<usize>()
            };
            let crossing: usize = (0..ranks).filter(|rank| host(*rank) == here).map(crossing).sum();
            // As many values as a rank of its own for each host would send, but for slices that do not come out even.
            let leader = 2 * LEN * (hosts - 1) / hosts;
            assert!(crossing.abs_diff(leader) <= 2 * ranks, "{crossing} of {leader} at {ranks} ranks");
        }
        let (levels, blocks) = (ranks.trailing_zeros() as usize, ranks >> ranks.trailing_zeros());
        assert!(sent.iter().all(|sent| sent.len() == 2 * (levels + blocks - 1)), "{ranks} ranks");
    }
}
