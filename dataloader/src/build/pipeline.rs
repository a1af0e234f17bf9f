use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use segue_data_error::DataError;

use crate::input::{Chunk, ChunkReader, Position};

/// Text in work per worker. While this much is encoded, as much again is read and what came out before is written.
const TEXT_PER_WORKER: usize = 4 << 20;

/// What the consumer of a pipeline wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More.
    Continue,
    /// Nothing more.
    Stop,
}

/// The threads of a build: as many as asked for, or one per core.
pub(crate) fn worker_pool(workers: usize) -> Result<ThreadPool, DataError> {
    ThreadPoolBuilder::new()
        .num_threads(workers)
        .thread_name(|number| format!("segue-encode-{number}"))
        .build()
        .map_err(|e| DataError::Thread(format!("cannot be started: {e}")))
}

/// Gives the text of some files in chunks. What a chunk holds depends on the files alone.
pub(crate) trait Chunks: Send {
    /// Text that is worked on at once.
    type Chunk: Send + Sync;
    /// What is known of a chunk once its text is gone.
    type End: Send;

    /// The next chunk, or `None` at the end.
    fn next_chunk(&mut self) -> Result<Option<Self::Chunk>, DataError>;

    /// Bytes of text in a chunk.
    fn size_of(chunk: &Self::Chunk) -> usize;

    /// What stays known of a chunk.
    fn end_of(chunk: &Self::Chunk) -> Self::End;
}

/// Where a chunk of running text ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkEnd {
    pub(crate) after: Position,
    pub(crate) file_bytes_read: u64,
}

impl Chunks for ChunkReader<'_> {
    type Chunk = Chunk;
    type End = ChunkEnd;

    fn next_chunk(&mut self) -> Result<Option<Chunk>, DataError> {
        self.next_chunk()
    }

    fn size_of(chunk: &Chunk) -> usize {
        chunk.text.len()
    }

    fn end_of(chunk: &Chunk) -> ChunkEnd {
        ChunkEnd { after: chunk.after, file_bytes_read: chunk.file_bytes_read }
    }
}

/// Reads chunks, works on them in parallel, and hands the results on in the order of the chunks.
///
/// Reading the next batch, working on this one and consuming the last one go on at the same time; each waits for the
/// others at the end of a batch, so what is in memory is bounded by two batches and their results.
pub(crate) fn in_order<C: Chunks, T: Send>(
    pool: &ThreadPool,
    reader: &mut C,
    work: impl Fn(&C::Chunk) -> Result<T, DataError> + Sync,
    mut consume: impl FnMut(T, C::End) -> Result<Next, DataError> + Send,
) -> Result<(), DataError> {
    let budget = TEXT_PER_WORKER * pool.current_num_threads();
    let mut batch = read_batch(reader, budget)?;
    let mut results: Vec<(Result<T, DataError>, C::End)> = Vec::new();
    while !batch.is_empty() || !results.is_empty() {
        let finished = std::mem::take(&mut results);
        let (next, (following, worked)) = pool.join(
            || consume_all(finished, &mut consume),
            || {
                rayon::join(
                    || if batch.is_empty() { Ok(Vec::new()) } else { read_batch(reader, budget) },
                    || batch.par_iter().map(|chunk| (work(chunk), C::end_of(chunk))).collect(),
                )
            },
        );
        if next? == Next::Stop {
            return Ok(());
        }
        results = worked;
        batch = following?;
    }
    Ok(())
}

fn read_batch<C: Chunks>(reader: &mut C, budget: usize) -> Result<Vec<C::Chunk>, DataError> {
    let mut batch = Vec::new();
    let mut held = 0;
    while held < budget {
        let Some(chunk) = reader.next_chunk()? else { break };
        held += C::size_of(&chunk);
        batch.push(chunk);
    }
    Ok(batch)
}

fn consume_all<T, E>(
    results: Vec<(Result<T, DataError>, E)>,
    consume: &mut impl FnMut(T, E) -> Result<Next, DataError>,
) -> Result<Next, DataError> {
    for (result, end) in results {
        if consume(result?, end)? == Next::Stop {
            return Ok(Next::Stop);
        }
    }
    Ok(Next::Continue)
}
