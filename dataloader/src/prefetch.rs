use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::DataError;
use crate::lanes::{Batch, LaneCursor, Lanes};

/// Batches that wait for their consumer; one more is in the making.
const DEPTH: usize = 2;

/// Builds the next batches of a range of lanes on a thread of its own.
///
/// The thread owns the reading; the consumer only receives. It may wait for the thread in [`Prefetcher::next_batch`],
/// and the thread waits for it when two batches are ready. Dropping the prefetcher ends the thread.
///
/// ```no_run
/// use segue_dataloader::{Corpus, LaneCursor, Prefetcher, Segments, Split, StreamLanes};
///
/// let stream = Corpus::open("wikitext-103".as_ref())?.tokens(Split::Train)?;
/// let lanes = StreamLanes::new(stream, 60, Segments::fixed(150))?;
/// // The second of two ranks, from the first step on.
/// let mut batches = Prefetcher::spawn(Box::new(lanes), 30..60, vec![LaneCursor::default(); 30], 1)?;
/// let batch = batches.next_batch()?;
/// assert_eq!(batch.inputs.len(), 30 * 150);
/// # Ok::<(), segue_dataloader::DataError>(())
/// ```
#[derive(Debug)]
pub struct Prefetcher {
    batches: Option<Receiver<Result<Batch, DataError>>>,
    thread: Option<JoinHandle<()>>,
    waited: Duration,
}

impl Prefetcher {
    /// Starts building batches of the lanes `range`, from step `first_step` and the given cursors on.
    pub fn spawn(
        lanes: Box<dyn Lanes>,
        range: Range<usize>,
        cursors: Vec<LaneCursor>,
        first_step: u64,
    ) -> Result<Prefetcher, DataError> {
        let (sender, batches) = sync_channel(DEPTH);
        let build = move || {
            let mut cursors = cursors;
            for step in first_step.. {
                let batch = lanes.batch(range.clone(), &cursors, step);
                match &batch {
                    Ok(batch) => cursors.clone_from(&batch.cursors_after),
                    Err(_) => {
                        // The consumer sees the error in its place; nothing comes after it.
                        let _ = sender.send(batch);
                        return;
                    }
                }
                if sender.send(batch).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("segue-batches".into())
            .spawn(build)
            .map_err(|e| DataError::Thread(format!("cannot be started: {e}")))?;
        Ok(Prefetcher { batches: Some(batches), thread: Some(thread), waited: Duration::ZERO })
    }

    /// The next batch, in order. After an error there are no more.
    pub fn next_batch(&mut self) -> Result<Batch, DataError> {
        let asked = Instant::now();
        let batch = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        self.waited += asked.elapsed();
        batch.unwrap_or_else(|| Err(DataError::Thread("has ended".into())))
    }

    /// Time spent waiting for batches so far.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        // A closed channel wakes the thread where it waits to send, and ends it.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
