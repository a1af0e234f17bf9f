//! The communication thread: reduces buckets over ranks while backward goes on, and gathers updated weights.

use std::sync::Arc;

use segue_collectives::tree::tree_all_reduce;
use segue_collectives::{CollectiveError, Communicator};
use segue_faults as faults;
use segue_world::{JoinHandle, Receiver, Sender, channel, spawn};
use tch::{Device, Tensor};
use tracing::trace_span;

use super::buckets::Ready;
use super::rows::reduce_rows;
use super::shard::{Kept, Shards};
use crate::TrainError;
use crate::libtorch::as_f32_mut;

/// What the thread is given to do.
pub enum Job {
    /// Sum a bucket.
    Sum(Ready),
    /// Gather the weights of a network, of which this rank has updated its own.
    Gather(Arc<Shards>, Vec<Tensor>),
}

/// Owner of the communication thread. The thread ends when its [`Sender`]s are gone.
pub struct Reducer {
    done: Receiver<Result<Kept, CollectiveError>>,
    thread: Option<JoinHandle<()>>,
}

impl Reducer {
    /// Starts the thread over its own channel between ranks. `exact` keeps the order of the tree; else the
    /// library's all-reduce may add as it likes.
    pub fn start(comm: Box<dyn Communicator>, exact: bool) -> Result<(Self, Sender<Job>), TrainError> {
        let (ready, jobs) = channel::<Job>();
        let (report, done) = channel();
        let work = move || {
            let mut scratch = Vec::new();
            for job in jobs {
                let result = match job {
                    Job::Sum(ready) => sum(comm.as_ref(), ready, exact, &mut scratch),
                    Job::Gather(shards, weights) => {
                        let _span = trace_span!(target: "communication", "gather weights").entered();
                        shards.gather(&weights, comm.as_ref()).map(|()| Kept::default())
                    }
                };
                let failed = result.is_err();
                if report.send(result).is_err() || failed {
                    return;
                }
            }
        };
        let thread = spawn("reduce", work)
            .map_err(|e| TrainError::Thread { name: "reduce", what: format!("cannot start: {e}") })?;
        Ok((Self { done, thread: Some(thread) }, ready))
    }

    /// Blocks until `jobs` jobs are done. Gives what is kept of divided sums, which is nothing of others.
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

/// Sums a bucket over ranks.
fn sum(
    comm: &dyn Communicator,
    mut job: Ready,
    exact: bool,
    scratch: &mut Vec<f32>,
) -> Result<Kept, CollectiveError> {
    faults::point("reduce.bucket");
    let _span = trace_span!(target: "communication", "sum", bucket = job.bucket).entered();
    // The bucket's owner does not touch the sum before this thread reports it. That of a card is added up on the host.
    let mut sum = job.sum.to_device(Device::Cpu);
    let values = as_f32_mut(&mut sum);
    let mut reduce = |values: &mut [f32]| match exact {
        true => tree_all_reduce(comm, values, scratch),
        false => comm.all_reduce_any_order(values),
    };
    match (&job.shard, &job.table) {
        (Some(shard), table) => shard.reduce(comm, values, table, scratch)?,
        (None, Some((width, rows))) => reduce_rows(comm, values, *width, rows, reduce)?,
        (None, None) => reduce(values)?,
    }
    if job.sum.device() != Device::Cpu {
        job.sum.copy_(&sum);
    }
    Ok(job.shard.map_or_else(Kept::default, |shard| shard.keep(&job.sum)))
}

impl Drop for Reducer {
    fn drop(&mut self) {
        // By field order the engine has dropped its senders: the thread's loop is over or about to be.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
