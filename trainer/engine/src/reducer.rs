//! The communication thread: reduces buckets over ranks while backward goes on, and gathers updated weights.

use std::ops::Range;
use std::sync::Arc;

use segue_faults as faults;
use segue_kernels::TrainError;
use segue_kernels::libtorch::stream::Event;
use segue_world::{JoinHandle, Receiver, Sender, channel, spawn};
use tch::Tensor;
use tracing::trace_span;

use super::jobs::{Gather, Job, Ready};
use super::rows::reduce_rows;
use super::shard::{BucketShard, Kept, Norms};
use super::sums::Sums;

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
                for result in ended.into_iter().chain(next).filter_map(Result::transpose) {
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

    /// What the thread has ended with.
    pub fn failure(&self) -> TrainError {
        loop {
            match self.done.recv() {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error,
                Err(_) => return TrainError::Thread { name: "reduce", what: "has ended".into() },
            }
        }
    }

    /// Blocks until `sums` sums are made. Gives what is kept of divided ones, and those that do not lie in their buckets.
    pub fn wait(&self, sums: usize) -> Result<Kept, TrainError> {
        let mut kept = Kept::default();
        for _ in 0..sums {
            match self.done.recv() {
                Ok(result) => kept.extend(result?),
                Err(_) => return Err(self.failure()),
            }
        }
        Ok(kept)
    }
}

/// A job that may not be over yet.
struct Queued {
    /// Behind it.
    mark: Event,
    then: Then,
}

/// What is done when a job is over.
enum Then {
    /// A sum is reported.
    Report {
        /// What it works on until then, which is nobody else's.
        values: Tensor,
        /// Where gradients are divided: what each rank gets, and the norms of what this one takes.
        divided: Option<(Arc<BucketShard>, Norms)>,
        kept: Kept,
    },
    /// Who waits for weights is told that these are here.
    Bring(Sender<Range<usize>>, Range<usize>),
}

impl Queued {
    /// Waits for its end. Gives what is to be reported.
    fn settle(self, sums: &Sums) -> Result<Option<Kept>, TrainError> {
        sums.wait(&self.mark)?;
        match self.then {
            Then::Report { values, divided, mut kept } => {
                if let Some((shard, norms)) = divided {
                    // What is kept is made where the others use it: memory of a card belongs to the stream that it was taken on.
                    kept.extend(shard.keep(&values, norms));
                }
                Ok(Some(kept))
            }
            Then::Bring(bring, members) => {
                // A run that is over waits for nothing.
                let _ = bring.send(members);
                Ok(None)
            }
        }
    }
}

fn queue(sums: &mut Sums, job: Job) -> Result<Queued, TrainError> {
    match job {
        Job::Sum(ready) => sum(sums, ready),
        Job::Gather(job) => gather(sums, job),
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
    let kept =
        Kept { tables: total.into_iter().map(|total| (job.bucket, total)).collect(), ..Kept::default() };
    let then = Then::Report { values: job.sum, divided: job.shard.zip(norms), kept };
    Ok(Queued { mark: sums.mark()?, then })
}

/// Gathers weights of which each rank has updated its own.
fn gather(sums: &mut Sums, job: Gather) -> Result<Queued, TrainError> {
    let Gather { values, slices, members, made, bring } = job;
    let _span = trace_span!(target: "communication", "gather weights", first = members.start).entered();
    let _beside = sums.begin(&made)?;
    sums.all_gather(&values, &slices)?;
    Ok(Queued { mark: sums.mark()?, then: Then::Bring(bring, members) })
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
    use segue_configs::Shard;
    use segue_kernels::{Init, ParameterSpec, Parameters};
    use tch::Device;

    use super::super::group;
    use super::super::rows::Rows;
    use super::super::shard::{Row, Shards};
    use super::*;

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
            let shards = Shards::new(Shard::Gradients, &parameters, &group(&specs, 1), comm.rank(), 2);
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
        let [first, second] = &found[..] else { unreachable!("two ranks") };
        // Two sums, then a wait for the first of them, and so on.
        assert_eq!([&first.0, &second.0], [&[false, true, false, true, true]; 2]);
        // Halves of each parameter's sixteens, the smaller one first.
        assert_eq!(first.1, [vec![3.0; 16], vec![5.0; 16]]);
        assert_eq!(second.1, [vec![1.0; 16], vec![3.0; 16], vec![5.0; 32]]);
        // Of whole chunks, here the parameters, from those who have their first values.
        assert_eq!(first.2, [9.0 * 32.0, 25.0 * 48.0].map(f64::sqrt));
        assert_eq!(second.2, [4.0]);
    }

    /// A link over which nothing comes.
    struct Broken;

    impl CardLink for Broken {
        unsafe fn exchange(&self, _: &[Stretch], _: CardStream) -> Result<(), CollectiveError> {
            Err(CollectiveError::NcclUnavailable { reason: "broken on purpose".into() })
        }

        unsafe fn all_reduce(&self, _: *mut f32, _: usize, _: CardStream) -> Result<(), CollectiveError> {
            unreachable!("nothing is added up")
        }

        fn wait(&self, _: &mut dyn FnMut() -> Result<bool, String>) -> Result<(), CollectiveError> {
            unreachable!("nothing is queued")
        }
    }

    /// Of weights that do not come nobody waits for ever, and the thread says why.
    #[test]
    fn weights_that_are_lost_are_told_of() {
        let found = simulated::run(2, |comm| {
            let parameters = Parameters::initialise(
                vec![ParameterSpec { name: "p".into(), shape: vec![64], init: Init::Zeros }],
                1,
                tch::Kind::Float,
            );
            let groups = group(parameters.specs(), 1);
            let shards = Shards::new(Shard::Optimizer, &parameters, &groups, comm.rank(), 2);
            let (reducer, jobs) = Reducer::start(Sums::over_link(comm, Box::new(Broken))).unwrap();
            let bring = parameters.arrivals().announce(std::iter::once(0..1), Device::Cpu);
            let made = Arc::new(Event::now(Device::Cpu).unwrap());
            for Row { values, members, slices } in shards.lay_out(&parameters, &groups) {
                let job = Gather { values, slices, members, made: made.clone(), bring: bring.clone() };
                assert!(jobs.send(Job::Gather(job)).is_ok());
            }
            drop(bring);
            parameters.tensors();
            (parameters.arrivals().is_lost(), reducer.failure().to_string())
        });
        assert!(found.iter().all(|(lost, why)| *lost && why.contains("broken on purpose")), "{found:?}");
    }

    /// Whoever waits for weights is told of each bucket, and sums behind it are reported as ever.
    #[test]
    fn weights_are_here_bucket_by_bucket_as_a_forward_pass_reads_them() {
        let specs: Vec<ParameterSpec> = [3, 2, 1]
            .map(|len| ParameterSpec { name: format!("p{len}"), shape: vec![16 * len], init: Init::Zeros })
            .into();
        for cards in [false, true] {
            let found = simulated::run(2, |comm| {
                let parameters = Parameters::initialise(specs.clone(), 1, tch::Kind::Float);
                let groups = group(&specs, 1);
                let shards = Shards::new(Shard::Optimizer, &parameters, &groups, comm.rank(), 2);
                let rows = shards.lay_out(&parameters, &groups);
                for piece in shards.own() {
                    _ = piece
                        .of(&parameters.leaves()[piece.parameter].detach())
                        .fill_(comm.rank() as f64 + 1.0);
                }
                let sums = if cards { Sums::of_cards(comm, true) } else { Sums::simulated(comm, true) };
                let (reducer, jobs) = Reducer::start(sums).unwrap();
                let (bring, brought) = channel();
                let made = Arc::new(Event::now(Device::Cpu).unwrap());
                for Row { values, members, slices } in rows.into_iter().rev() {
                    let job = Gather { values, slices, members, made: made.clone(), bring: bring.clone() };
                    assert!(jobs.send(Job::Gather(job)).is_ok());
                }
                let sum = Tensor::ones([16], (tch::Kind::Float, Device::Cpu));
                let made = Event::now(Device::Cpu);
                let job = Ready { bucket: 0, sum, table: None, by_rows: false, shard: None, made };
                assert!(jobs.send(Job::Sum(job)).is_ok());
                reducer.wait(1).unwrap();
                let order: Vec<_> = [(); 3].iter().map(|()| brought.recv().unwrap()).collect();
                let values =
                    parameters.tensors().iter().map(|t| t.detach().sum(tch::Kind::Double).double_value(&[]));
                (order, values.collect::<Vec<_>>())
            });
            // Of 48 values rank 0 has 16, of 32 it has 16, of 16 none.
            let expected = (vec![0..1, 1..2, 2..3], vec![16.0 + 64.0, 16.0 + 32.0, 32.0]);
            assert_eq!(found, vec![expected; 2], "cards: {cards}");
        }
    }
}
