use std::ops::Range;
use std::time::Duration;

use segue_data_error::DataError;
use segue_random::{Purpose, Stream};
use segue_world::{JoinHandle, Receiver, bounded, now, spawn};

use crate::lanes::{Batch, LaneCursor, Lanes};

/// Batches that wait for their consumer; one more is in the making.
const DEPTH: usize = 2;

/// Gives the batches of one source of a run, one after another.
///
/// What a batch holds is a function of its number, and of where the reader was set up to begin, never of the number of
/// ranks.
pub trait Reader: Send + 'static {
    /// One rank's share of one batch.
    type Batch: Send + 'static;

    /// Batch number `nth` of the source, from 1. Numbers rise by one from call to call.
    fn read(&mut self, nth: u64) -> Result<Self::Batch, DataError>;

    /// Changes each batch by `make`, on the thread that reads.
    fn map<B, F>(self, make: F) -> Mapped<Self, F>
    where
        Self: Sized,
        F: FnMut(Self::Batch) -> B + Send + 'static,
    {
        Mapped { reader: self, make }
    }
}

/// A reader that changes the batches of another; made by [`Reader::map`].
pub struct Mapped<R, F> {
    reader: R,
    make: F,
}

impl<R, B, F> Reader for Mapped<R, F>
where
    R: Reader,
    B: Send + 'static,
    F: FnMut(R::Batch) -> B + Send + 'static,
{
    type Batch = B;

    fn read(&mut self, nth: u64) -> Result<B, DataError> {
        self.reader.read(nth).map(&mut self.make)
    }
}

/// Reads a range of lanes, step by step.
pub struct LaneReader {
    lanes: Box<dyn Lanes>,
    range: Range<usize>,
    cursors: Vec<LaneCursor>,
    turns: Option<Turns>,
    forgetting: Option<Forgetting>,
}

/// What lanes forget on the way.
struct Forgetting {
    probability: f64,
    /// Parts of a lane's memory, each of which is forgotten by itself.
    parts: usize,
    seed: u64,
}

/// Which lanes advance in a step.
struct Turns {
    /// Consecutive lanes that advance together.
    size: usize,
    /// Whether group `group` of the job advances in step `step`.
    advances: Box<dyn Fn(u64, usize) -> bool + Send>,
}

impl LaneReader {
    /// Of the lanes `range`, from the given cursors on, which are in the same order.
    pub fn new(lanes: Box<dyn Lanes>, range: Range<usize>, cursors: Vec<LaneCursor>) -> Self {
        Self { lanes, range, cursors, turns: None, forgetting: None }
    }

    /// Lets groups of `size` lanes, numbered over the job, take turns: a group for which `advances(step, group)` is false
    /// stays where it is. Its part of the batch is what it would have read.
    pub fn in_turns(self, size: usize, advances: impl Fn(u64, usize) -> bool + Send + 'static) -> Self {
        Self { turns: Some(Turns { size, advances: Box::new(advances) }), ..self }
    }

    /// Before each step, lets each of `parts` parts of a lane's memory be forgotten with this probability, drawn for step and lane with
    /// `seed`. A lane that waits for its turn keeps what it has.
    pub fn forgetting(self, probability: f64, parts: usize, seed: u64) -> Self {
        let parts = parts.max(1);
        Self { forgetting: (probability > 0.0).then_some(Forgetting { probability, parts, seed }), ..self }
    }

    /// Marks the parts of lanes that are forgotten before batch `nth`.
    fn forget(&self, forgetting: &Forgetting, batch: &mut Batch, nth: u64) {
        let Forgetting { probability, parts, seed } = *forgetting;
        let advances =
            |lane: usize| self.turns.as_ref().is_none_or(|turns| (turns.advances)(nth, lane / turns.size));
        let of_lane = |(lane, restarts): (usize, &bool)| {
            let draws = Stream::new(seed, Purpose::Forgetting, &[nth, lane as u64]);
            let (restarts, may) = (*restarts, advances(lane));
            (0..parts as u64).map(move |part| restarts || may && draws.uniform(part) < probability)
        };
        batch.restarts = self.range.clone().zip(&batch.restarts).flat_map(of_lane).collect();
    }

    /// One group after the other: they may stand at different places.
    fn read_in_turns(&self, turns: &Turns, nth: u64) -> Result<Batch, DataError> {
        let mut whole: Option<Batch> = None;
        for first in self.range.clone().step_by(turns.size) {
            let cursors = &self.cursors[first - self.range.start..][..turns.size];
            let mut batch = self.lanes.batch(first..first + turns.size, cursors, nth)?;
            if !(turns.advances)(nth, first / turns.size) {
                batch.restarts.fill(false);
                batch.cursors_after.copy_from_slice(cursors);
            }
            match &mut whole {
                None => whole = Some(batch),
                Some(whole) => whole.append(batch),
            }
        }
        whole.ok_or_else(|| DataError::Usage("a rank without lanes has nothing to read".into()))
    }
}

impl Reader for LaneReader {
    type Batch = Batch;

    fn read(&mut self, nth: u64) -> Result<Batch, DataError> {
        let mut batch = match &self.turns {
            Some(turns) => self.read_in_turns(turns, nth)?,
            None => self.lanes.batch(self.range.clone(), &self.cursors, nth)?,
        };
        self.cursors.clone_from(&batch.cursors_after);
        if let Some(forgetting) = &self.forgetting {
            self.forget(forgetting, &mut batch, nth);
        }
        Ok(batch)
    }
}

/// Builds the next batches of a reader on a thread of its own.
///
/// The thread owns the reading; the consumer only receives. It may wait for the thread in [`Prefetcher::next_batch`],
/// and the thread waits for it when two batches are ready. Dropping the prefetcher ends the thread.
///
/// ```no_run
/// use segue_dataloader::{Corpus, LaneCursor, LaneReader, Prefetcher, Segments, Split, StreamLanes};
///
/// let stream = Corpus::open("wikitext-103".as_ref())?.tokens(Split::Train)?;
/// let lanes = StreamLanes::new(stream, 60, Segments::fixed(150))?;
/// // The second of two ranks, from the first step on.
/// let reader = LaneReader::new(Box::new(lanes), 30..60, vec![LaneCursor::default(); 30]);
/// let mut batches = Prefetcher::spawn(reader, 1)?;
/// let batch = batches.next_batch()?;
/// assert_eq!(batch.inputs.len(), 30 * 150);
/// # Ok::<(), segue_data_error::DataError>(())
/// ```
#[derive(Debug)]
pub struct Prefetcher<B> {
    batches: Option<Receiver<Result<B, DataError>>>,
    thread: Option<JoinHandle<()>>,
    waited: Duration,
}

impl<B: Send + 'static> Prefetcher<B> {
    /// Starts building the batches of `reader` from number `first` on.
    pub fn spawn(mut reader: impl Reader<Batch = B>, first: u64) -> Result<Self, DataError> {
        let (sender, batches) = bounded(DEPTH);
        let build = move || {
            for nth in first.. {
                let batch = reader.read(nth);
                // The consumer sees an error in its place; nothing comes after it.
                let over = batch.is_err();
                if sender.send(batch).is_err() || over {
                    return;
                }
            }
        };
        let thread = spawn("segue-batches", build)
            .map_err(|e| DataError::Thread(format!("cannot be started: {e}")))?;
        Ok(Prefetcher { batches: Some(batches), thread: Some(thread), waited: Duration::ZERO })
    }

    /// The next batch, in order. After an error there are no more.
    pub fn next_batch(&mut self) -> Result<B, DataError> {
        let asked = now();
        let batch = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        self.waited += now() - asked;
        batch.unwrap_or_else(|| Err(DataError::Thread("has ended".into())))
    }

    /// Time spent waiting for batches so far.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl<B> Drop for Prefetcher<B> {
    fn drop(&mut self) {
        // A closed channel wakes the thread where it waits to send, and ends it.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<B> Reader for Box<dyn Reader<Batch = B>>
where
    B: Send + 'static,
{
    type Batch = B;

    fn read(&mut self, nth: u64) -> Result<B, DataError> {
        self.as_mut().read(nth)
    }
}
