//! Work that ranks share: parts in turn, results in the order of the parts.

use segue_collectives::consensus::any_rank;
use segue_collectives::{CollectiveError, Communicator};
use segue_faults as faults;
use segue_kernels::TrainError;

use super::doubles;

/// Units of work between two questions whether to stop: few enough that a signal is answered in seconds, and so many that
/// the question costs nothing beside the work.
const UNITS_PER_QUESTION: u64 = 4;

/// Who follows a piece of shared work: hears how far it is, and may ask for its end.
pub struct Watch<'a> {
    progress: &'a mut dyn FnMut(u64, u64),
    stop: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Watch<'a> {
    /// Somebody who hears of units of work done and of all units of this rank.
    pub fn new(progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        Self { progress, stop: None }
    }

    /// And whose `stop` is asked meanwhile, on all ranks or on none: where any rank says yes, the work ends on all of them
    /// with [`TrainError::Stopped`].
    pub fn stopped_by(self, stop: &'a dyn Fn() -> bool) -> Self {
        Self { stop: Some(stop), ..self }
    }
}

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

    /// Does this rank's parts with `work` and gives what it makes of them, in their order. Each part is `units` units of work,
    /// after each of which `work` calls what it is given. A collective call: ranks with fewer parts than others answer
    /// their questions to the end.
    pub fn each<R>(
        &self,
        units: u64,
        watch: &mut Watch,
        mut work: impl FnMut(usize, &mut dyn FnMut() -> Result<(), TrainError>) -> Result<R, TrainError>,
    ) -> Result<Vec<R>, TrainError> {
        let (mut done, whole) = (0, self.own().len() as u64 * units);
        let most = self.parts.div_ceil(self.comm.world_size()) as u64 * units;
        let question = |watch: &Watch, done: u64| match watch.stop {
            Some(stop) if done.is_multiple_of(UNITS_PER_QUESTION) => match any_rank(self.comm, stop())? {
                true => Err(TrainError::Stopped),
                false => Ok(()),
            },
            _ => Ok(()),
        };
        let mut results = Vec::with_capacity(self.own().len());
        for part in self.own() {
            faults::point("evaluation.part");
            results.push(work(part, &mut || {
                done += 1;
                faults::gets_on();
                (watch.progress)(done, whole);
                question(watch, done)
            })?);
        }
        while done < most {
            done += 1;
            question(watch, done)?;
        }
        Ok(results)
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

    /// The numbers that all parts give, in the order of the parts; `own` are those of this rank's parts. A collective call.
    pub fn numbers<P: AsRef<[f64]>>(&self, own: &[P]) -> Result<Vec<Vec<f64>>, CollectiveError> {
        let bytes = |part: &P| doubles::to_bytes(part.as_ref().iter().copied());
        let own: Vec<Vec<u8>> = own.iter().map(bytes).collect();
        Ok(self.collect(&own)?.iter().map(|part| doubles::of_bytes(part)).collect())
    }

    /// Sums of as many numbers as each part has, added up in the order of the parts. A collective call.
    pub fn sum<const N: usize>(&self, own: &[[f64; N]]) -> Result<[f64; N], CollectiveError> {
        let mut sums = [0.0; N];
        for part in self.numbers(own)? {
            sums.iter_mut().zip(part).for_each(|(sum, number)| *sum += number);
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;

    use super::*;

    #[test]
    fn work_ends_on_all_ranks_where_one_is_asked_to_stop() {
        // More parts than some ranks have, and fewer than there are ranks.
        for (ranks, parts) in [(1, 7), (3, 7), (4, 2)] {
            for stopping in 0..ranks {
                let ended = simulated::run(ranks, |comm| {
                    let (seen, share) = (std::cell::Cell::new(0u64), Share::new(comm, parts));
                    let mut progress = |done, _| seen.set(done);
                    // Ranks without a part are asked too: at once.
                    let stop = || comm.rank() == stopping && (seen.get() >= 4 || share.own().len() == 0);
                    let mut watch = Watch::new(&mut progress).stopped_by(&stop);
                    let found = share.each(6, &mut watch, |part, done| {
                        (0..6).try_for_each(|_| done())?;
                        Ok(part)
                    });
                    (matches!(found, Err(TrainError::Stopped)), seen.get())
                });
                assert!(ended.iter().all(|(stopped, seen)| *stopped && *seen <= 8), "{ended:?}");
            }
            let all = simulated::run(ranks, |comm| {
                let (share, mut heard) = (Share::new(comm, parts), Vec::new());
                let mut progress = |done, whole| heard.push((done, whole));
                let work = |part, done: &mut dyn FnMut() -> Result<(), TrainError>| done().map(|()| part);
                let found =
                    share.each(1, &mut Watch::new(&mut progress).stopped_by(&|| false), work).unwrap();
                assert_eq!(heard.len(), found.len());
                found
            });
            assert_eq!(all.concat().len(), parts);
        }
    }

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
