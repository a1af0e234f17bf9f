//! The communication thread: reduces buckets over ranks while backward goes on.

use segue_collectives::tree::tree_all_reduce;
use segue_collectives::{CollectiveError, Communicator};
use segue_faults as faults;
use segue_world::{JoinHandle, Receiver, Sender, channel, spawn};
use tracing::trace_span;

use super::buckets::Ready;
use super::rows::reduce_rows;
use crate::TrainError;
use crate::libtorch::as_f32_mut;

/// Owner of the communication thread. The thread ends when its [`Sender`]s are gone.
pub struct Reducer {
    done: Receiver<Result<usize, CollectiveError>>,
    thread: Option<JoinHandle<()>>,
}

impl Reducer {
    /// Starts the thread over its own channel between ranks. `exact` keeps the order of the tree; else the
    /// library's all-reduce may add as it likes.
    pub fn start(comm: Box<dyn Communicator>, exact: bool) -> Result<(Self, Sender<Ready>), TrainError> {
        let (ready, jobs) = channel::<Ready>();
        let (report, done) = channel();
        let work = move || {
            let mut scratch = Vec::new();
            for mut job in jobs {
                faults::point("reduce.bucket");
                let _span = trace_span!(target: "communication", "sum", bucket = job.bucket).entered();
                // The bucket's owner does not touch the sum before this thread reports it.
                let values = as_f32_mut(&mut job.sum);
                let mut reduce = |values: &mut [f32]| match exact {
                    true => tree_all_reduce(comm.as_ref(), values, &mut scratch),
                    false => comm.all_reduce_any_order(values),
                };
                let result = match &job.table {
                    Some((width, rows)) => reduce_rows(comm.as_ref(), values, *width, rows, reduce),
                    None => reduce(values),
                };
                let failed = result.is_err();
                if report.send(result.map(|()| job.bucket)).is_err() || failed {
                    return;
                }
            }
        };
        let thread = spawn("reduce", work)
            .map_err(|e| TrainError::Thread { name: "reduce", what: format!("cannot start: {e}") })?;
        Ok((Self { done, thread: Some(thread) }, ready))
    }

    /// Blocks until `buckets` buckets have been reduced.
    pub fn wait(&self, buckets: usize) -> Result<(), TrainError> {
        for _ in 0..buckets {
            match self.done.recv() {
                Ok(result) => result.map(drop)?,
                Err(_) => return Err(TrainError::Thread { name: "reduce", what: "has ended".into() }),
            }
        }
        Ok(())
    }
}

impl Drop for Reducer {
    fn drop(&mut self) {
        // By field order the engine has dropped its senders: the thread's loop is over or about to be.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
