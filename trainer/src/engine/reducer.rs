//! The communication thread: reduces buckets over ranks while backward goes on, and gathers updated weights.

use std::sync::Arc;

use segue_faults as faults;
use segue_world::{JoinHandle, Receiver, Sender, channel, spawn};
use tch::Tensor;
use tracing::trace_span;

use super::buckets::Ready;
use super::rows::reduce_rows;
use super::shard::{BucketShard, Kept, Norms, Shards};
use super::sums::Sums;
use crate::TrainError;
use crate::libtorch::stream::Event;

/// What the thread is given to do.
pub enum Job {
    /// Sum a bucket.
    Sum(Ready),
    /// Gather the weights of a network, of which this rank has updated its own, behind the mark.
    Gather(Arc<Shards>, Vec<Tensor>, Event),
}

/// Owner of the communication thread. The thread ends when its [`Sender`]s are gone.
pub struct Reducer {
    done: Receiver<Result<Kept, TrainError>>,
    thread: Option<JoinHandle<()>>,
}

impl Reducer {
    /// Starts the thread over its own channel between ranks.
    pub fn start(mut sums: Sums) -> Result<(Self, Sender<Job>), TrainError> {
        let (ready, jobs) = channel::<Job>();
        let (report, done) = channel();
        let work = move || {
            // What cards are at: the job after it is queued behind it before anybody waits for its end.
            let mut before: Option<Queued> = None;
            loop {
                let job = if before.is_some() { jobs.try_recv().ok() } else { jobs.recv().ok() };
                if job.is_none() && before.is_none() {
                    return;
                }
                let next = job.map(|job| queue(&mut sums, job));
                let ended = before.take().map(|queued| queued.settle(&sums));
                let next = match next {
                    Some(Ok(queued)) if sums.is_from_card_to_card() => {
                        before = Some(queued);
                        None
                    }
                    Some(Ok(queued)) => Some(queued.settle(&sums)),
                    Some(Err(error)) => Some(Err(error)),
                    None => None,
                };
                for result in ended.into_iter().chain(next) {
                    let failed = result.is_err();
                    if report.send(result).is_err() || failed {
                        return;
                    }
                }
            }
        };
        let thread = spawn("reduce", work)
            .map_err(|e| TrainError::Thread { name: "reduce", what: format!("cannot start: {e}") })?;
        Ok((Self { done, thread: Some(thread) }, ready))
    }

    /// Blocks until `jobs` jobs are done. Gives what is kept of divided sums, and sums that do not lie in their buckets.
    pub fn wait(&self, jobs: usize) -> Result<Kept, TrainError> {
        let mut kept = Kept::default();
        for _ in 0..jobs {
            match self.done.recv() {
                Ok(result) => kept.extend(result?),
                Err(_) => return Err(TrainError::Thread { name: "reduce", what: "has ended".into() }),
            }
        }
        Ok(kept)
    }
}

/// A job that may not be over yet.
struct Queued {
    kept: Kept,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    /// Behind it.
    mark: Event,
    /// What it works on until then, which is nobody else's.
    values: Tensor,
    /// Where gradients are divided: what each rank gets, and the norms of what this one gets whole.
    divided: Option<(Arc<BucketShard>, Norms)>,
}

impl Queued {
    fn over(kept: Kept) -> Self {
        Self { kept, under_way: None }
    }

    /// Waits for its end.
    fn settle(mut self, sums: &Sums) -> Result<Kept, TrainError> {
        let Some(UnderWay { mark, values, divided }) = self.under_way else { return Ok(self.kept) };
        sums.wait(&mark)?;
        if let Some((shard, norms)) = divided {
            // What is kept is made where the others use it: memory of a card belongs to the stream that it was taken on.
            self.kept.extend(shard.keep(&values, norms));
        }
        Ok(self.kept)
    }
}

fn queue(sums: &mut Sums, job: Job) -> Result<Queued, TrainError> {
    match job {
        Job::Sum(ready) => sum(sums, ready),
        Job::Gather(shards, weights, made) => gather(sums, &shards, &weights, &made).map(Queued::over),
    }
}

/// Sums a bucket over ranks. Its owner does not touch the sum before this thread reports it.
fn sum(sums: &mut Sums, job: Ready) -> Result<Queued, TrainError> {
    faults::point("reduce.bucket");
    let _span = trace_span!(target: "communication", "sum", bucket = job.bucket).entered();
    let values = &job.sum;
    let _beside = sums.begin(&job.made?)?;
    // Models on cards list no rows: their gradients are whole tables, for which a word of the hosts' would keep cards waiting.
    let table = job.table.filter(|_| job.by_rows || !sums.is_from_card_to_card());
    let total = match (&job.shard, &table) {
        (Some(shard), table) => shard.reduce(sums, values, table).map(|()| None)?,
        (None, Some((width, rows))) => reduce_rows(sums, values, *width, rows, Sums::all_reduce)?,
        (None, None) => sums.all_reduce(values).map(|()| None)?,
    };
    // Before the mark: after it the card has the next sum to make, which nobody should wait for.
    let norms = job.shard.as_ref().map(|shard| shard.norms(values));
    let tables = total.into_iter().map(|total| (job.bucket, total)).collect();
    let under_way = Some(UnderWay { mark: sums.mark()?, values: job.sum, divided: job.shard.zip(norms) });
    Ok(Queued { kept: Kept { tables, ..Kept::default() }, under_way })
}

/// Gathers weights of which each rank has updated its own.
fn gather(sums: &mut Sums, shards: &Shards, weights: &[Tensor], made: &Event) -> Result<Kept, TrainError> {
    let _span = trace_span!(target: "communication", "gather weights").entered();
    let _beside = sums.begin(made)?;
    shards.gather(weights, sums)?;
    sums.wait(&sums.mark()?)?;
    Ok(Kept::default())
}

impl Drop for Reducer {
    fn drop(&mut self) {
        // By field order the engine has dropped its senders: the thread's loop is over or about to be.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use segue_collectives::nccl::{CardLink, CardStream, Stretch};
    use segue_collectives::{CollectiveError, Communicator, simulated};
    use tch::Device;

    use segue_configs::Shard;

    use super::super::rows::Rows;
    use super::*;
    use crate::{Init, ParameterSpec, Parameters};

    /// Ranks that disagree on whether a bucket is a table still add it up: no rank has told another of its rows.
    #[test]
    fn tables_go_from_card_to_card_without_a_word_of_the_hosts() {
        let found = simulated::run(2, |comm| {
            let rank = comm.rank();
            let (reducer, jobs) = Reducer::start(Sums::of_cards(comm, true)).unwrap();
            let values = Tensor::from_slice(&[1.0 + rank as f32, 10.0]);
            let table = (rank == 0).then_some((1, Rows::Some(vec![0, 1])));
            let made = Event::now(Device::Cpu);
            let sum = values.shallow_clone();
            let job = Ready { bucket: 0, sum, table, by_rows: false, shard: None, made };
            assert!(jobs.send(Job::Sum(job)).is_ok());
            assert!(reducer.wait(1).unwrap().tables.is_empty());
            drop(jobs);
            Vec::<f32>::try_from(&values).unwrap()
        });
        assert_eq!(found, [[3.0, 20.0]; 2]);
    }
    /// A link that tells what is asked of it, and begins when it is told to.
    struct Told {
        begins: mpsc::Receiver<()>,
        says: mpsc::Sender<String>,
        link: Box<dyn CardLink>,
    }

    impl Told {
        fn queue(&self, len: usize) {
            // Only the first waits: all jobs are there then.
            let _ = self.begins.recv();
            self.says.send(format!("queue {len}")).unwrap();
        }
    }

    impl CardLink for Told {
        unsafe fn exchange(&self, stretches: &[Stretch], stream: CardStream) -> Result<(), CollectiveError> {
            self.queue(stretches.iter().map(|stretch| stretch.recv.1).sum());
            // SAFETY: the caller's word.
            unsafe { self.link.exchange(stretches, stream) }
        }

        unsafe fn all_reduce(&self, _: *mut f32, len: usize, _: CardStream) -> Result<(), CollectiveError> {
            self.queue(len);
            Ok(())
        }

        fn wait(&self, _: &mut dyn FnMut() -> Result<bool, String>) -> Result<(), CollectiveError> {
            self.says.send("wait".into()).unwrap();
            Ok(())
        }
    }

    #[test]
    fn cards_have_the_next_sum_before_anybody_waits_for_the_one_before() {
        simulated::run(1, |comm| {
            let ((begin, begins), (says, said)) = (mpsc::channel(), mpsc::channel());
            let link = Sums::copying_link(comm);
            let sums = Sums::over_link(comm, Box::new(Told { begins, says, link }));
            let (reducer, jobs) = Reducer::start(sums).unwrap();
            for bucket in 0..3 {
                let sum = Tensor::zeros([bucket as i64 + 1], (tch::Kind::Float, Device::Cpu));
                let made = Event::now(Device::Cpu);
                let job = Ready { bucket, sum, table: None, by_rows: false, shard: None, made };
                assert!(jobs.send(Job::Sum(job)).is_ok());
            }
            drop(begin);
            reducer.wait(3).unwrap();
            drop((jobs, reducer));
            let said: Vec<String> = said.iter().collect();
            assert_eq!(said, ["queue 1", "queue 2", "wait", "queue 3", "wait", "wait"]);
        });
    }

    /// What a rank keeps of a sum, and its norm, are those of that sum, although the next one is under way when they are taken.
    #[test]
    fn cards_have_the_next_divided_sum_before_anybody_waits_for_the_one_before() {
        let specs: Vec<ParameterSpec> = [3, 2, 1]
            .map(|len| ParameterSpec { name: format!("p{len}"), shape: vec![16 * len], init: Init::Zeros })
            .into();
        let found = simulated::run(2, |comm| {
            let parameters = Parameters::initialise(specs.clone(), 1, tch::Kind::Float);
            let ((begin, begins), (says, said)) = (mpsc::channel(), mpsc::channel());
            let link = Sums::copying_link(comm);
            let sums = Sums::over_link(comm, Box::new(Told { begins, says, link }));
            let (reducer, jobs) = Reducer::start(sums).unwrap();
            let shards = Shards::new(Shard::Gradients, &parameters, comm.rank(), 2);
            for (bucket, parameter) in [2, 1, 0].into_iter().enumerate() {
                let sum = Tensor::full(
                    &specs[parameter].shape,
                    bucket as f64 + 0.5,
                    (tch::Kind::Float, Device::Cpu),
                );
                let shard = Some(Arc::new(shards.of_bucket(&[parameter], &specs)));
                let made = Event::now(Device::Cpu);
                let job = Ready { bucket, sum, table: None, by_rows: false, shard, made };
                assert!(jobs.send(Job::Sum(job)).is_ok());
            }
            drop(begin);
            let kept = reducer.wait(3).unwrap();
            drop((jobs, reducer));
            let values = kept.gradients.iter().map(|(_, part)| Vec::<f32>::try_from(part).unwrap());
            let norms = kept.norms.iter().flat_map(|(_, norms)| Vec::<f64>::try_from(norms).unwrap());
            let mut said: Vec<bool> = said.iter().map(|word| word == "wait").collect();
            // A sum is several messages.
            said.dedup_by(|after, before| !*after && !*before);
            (said, values.collect::<Vec<_>>(), norms.collect::<Vec<_>>())
        });
        // Rank 0 has the last two parameters, rank 1 the first, which is as long.
        let [first, second] = &found[..] else { unreachable!("two ranks") };
        // Two sums, then a wait for the first of them, and so on.
        assert_eq!([&first.0, &second.0], [&[false, true, false, true, true]; 2]);
        assert_eq!(first.1, [vec![1.0; 16], vec![3.0; 32]]);
        assert_eq!(second.1, [vec![5.0; 48]]);
        let norm = |square: f64| f64::from(square.sqrt() as f32);
        assert_eq!((&first.2[..], &second.2[..]), (&[4.0, norm(9.0 * 32.0)][..], &[norm(25.0 * 48.0)][..]));
    }
}
