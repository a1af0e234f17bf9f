//! The thread that writes checkpoints while training goes on.

use std::collections::VecDeque;
use std::path::PathBuf;

use segue_kernels::TrainError;
use segue_world::{BoundedSender, JoinHandle, Receiver, bounded, channel, spawn};

/// What runs on the writer's thread: it writes one checkpoint, or a rank's part of one, and gives its folder to the rank
/// that has published it.
pub type Job = Box<dyn FnOnce() -> Result<Option<PathBuf>, TrainError> + Send>;

/// Writes one checkpoint at a time, in order. A second one waits until the first is published, so at
/// most one copy of the state is alive beside the state itself.
pub struct Writer {
    jobs: Option<BoundedSender<Job>>,
    done: Receiver<Result<Option<PathBuf>, TrainError>>,
    thread: Option<JoinHandle<()>>,
    /// What is done and has not been told.
    finished: VecDeque<Result<Option<PathBuf>, TrainError>>,
    /// Jobs handed over that nobody was told of.
    pending: usize,
}

impl Writer {
    /// Starts the thread.
    pub fn start() -> Result<Self, TrainError> {
        let (jobs, queue) = bounded::<Job>(1);
        let (report, done) = channel();
        let work = move || {
            for job in queue {
                if report.send(job()).is_err() {
                    return;
                }
            }
        };
        let thread = spawn("checkpoint", work)
            .map_err(|e| TrainError::Thread { name: "checkpoint", what: format!("cannot start: {e}") })?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), finished: VecDeque::new(), pending: 0 })
    }

    /// Hands over a job, once the job before it is done; gives that one's folder, or its error.
    pub fn submit(&mut self, job: Job) -> Result<Option<PathBuf>, TrainError> {
        let published = self.wait()?;
        match self.jobs.as_ref().map(|jobs| jobs.send(job)) {
            Some(Ok(())) => self.pending += 1,
            _ => return Err(TrainError::Thread { name: "checkpoint", what: "has ended".into() }),
        }
        Ok(published)
    }

    /// What has been published since the last call, without waiting.
    pub fn poll(&mut self) -> Result<Option<PathBuf>, TrainError> {
        match self.finished.pop_front().map_or_else(|| self.done.try_recv(), Ok) {
            Ok(result) => {
                self.pending -= 1;
                result
            }
            Err(_) => Ok(None),
        }
    }

    /// Waits until nothing is being written. What came of it is told by the next call of another.
    pub fn settle(&mut self) {
        while self.finished.len() < self.pending {
            match self.done.recv() {
                Ok(result) => self.finished.push_back(result),
                Err(_) => return,
            }
        }
    }

    /// Waits until nothing is being written; gives the folder published meanwhile.
    pub fn wait(&mut self) -> Result<Option<PathBuf>, TrainError> {
        let mut last = None;
        while self.pending > 0 {
            self.pending -= 1;
            match self.finished.pop_front().map_or_else(|| self.done.recv(), Ok) {
                Ok(result) => last = result?,
                Err(_) => return Err(TrainError::Thread { name: "checkpoint", what: "has ended".into() }),
            }
        }
        Ok(last)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
