use std::path::Path;

use segue_data_error::DataError;

use super::encode::Encoded;
use super::journal::{Entry, Journal, ShardEntry};
use super::observer::BuildObserver;
use super::options::BuildOptions;
use super::units::SourceSize;
use crate::corpus::{Dtype, Split, SplitInfo};
use crate::input::Position;
use crate::shard::ShardWriter;

/// Writes the encoded chunks of a split into shards, in order. A shard is closed after the chunk with which it has enough
/// tokens, so where it ends depends on the text alone.
pub(crate) struct SplitWriter<'a> {
    pub(crate) split: Split,
    pub(crate) folder: &'a Path,
    pub(crate) options: &'a BuildOptions,
    pub(crate) dtype: Dtype,
    pub(crate) journal: &'a mut Journal,
    pub(crate) observer: &'a dyn BuildObserver,
    /// Shards published by this call of the build.
    pub(crate) published: &'a mut u64,
    pub(crate) open: Option<OpenShard>,
    /// What is finished.
    pub(crate) info: SplitInfo,
}

/// A shard that is being written.
pub(crate) struct OpenShard {
    writer: ShardWriter,
    size: SourceSize,
    unknown: u64,
    after: Position,
}

impl SplitWriter<'_> {
    /// Appends a chunk; `after` is where the next one begins.
    pub(crate) fn append(&mut self, chunk: &Encoded, after: Position) -> Result<(), DataError> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let stem = self.folder.join(format!("{}-{:05}", self.split, self.info.shards.len()));
                let writer = ShardWriter::create(stem, self.dtype)?;
                self.open.insert(OpenShard { writer, size: SourceSize::default(), unknown: 0, after })
            }
        };
        open.writer.append(&chunk.payload, &chunk.documents, &chunk.sentences)?;
        open.size.bytes += chunk.size.bytes;
        open.size.chars += chunk.size.chars;
        open.size.replaced += chunk.size.replaced;
        open.unknown += chunk.unknown;
        open.after = after;
        if open.writer.tokens() >= self.options.shard_tokens {
            self.publish()?;
        }
        Ok(())
    }

    /// Publishes the last shard and returns the split.
    pub(crate) fn finish(mut self) -> Result<SplitInfo, DataError> {
        self.publish()?;
        Ok(self.info)
    }

    fn publish(&mut self) -> Result<(), DataError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        // Text without tokens (blank lines at the end, say) makes no shard of its own.
        if open.writer.tokens() == 0 && !self.info.shards.is_empty() {
            return open.writer.discard();
        }
        let shard = open.writer.finish(self.options.compress)?;
        let entry = ShardEntry {
            split: self.split,
            shard: shard.into(),
            bytes: open.size.bytes,
            chars: open.size.chars,
            unknown: open.unknown,
            replaced: open.size.replaced,
            after: open.after,
        };
        entry.add_to(&mut self.info);
        self.journal.record(Entry::Shard(Box::new(entry)))?;
        *self.published += 1;
        match self.observer.stops_after(*self.published) {
            true => Err(DataError::Stopped { shards: *self.published }),
            false => Ok(()),
        }
    }
}
