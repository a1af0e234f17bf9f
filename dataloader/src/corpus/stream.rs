use std::fmt;
use std::sync::Arc;

use segue_data_error::DataError;

use crate::shard::{CheckedShard, Lazy, MappedIndex};

/// The tokens of one split as one contiguous stream over its shards. Cloning shares the memory maps.
#[derive(Clone)]
pub struct TokenStream {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Vec<Lazy<CheckedShard>>,
    /// Position of each shard's first token in the stream, and the stream's length at the end.
    starts: Vec<u64>,
    text: Text,
}

/// What of a text each token stands for, the end of a line among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// One byte.
    Byte,
    /// One character.
    Character,
}

/// The source text of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text {
    /// Bytes, line ends included.
    pub bytes: u64,
    /// Characters, line ends included.
    pub chars: u64,
    /// What each token stands for; `None` where that differs, as of words.
    pub symbol: Option<Symbol>,
}

impl TokenStream {
    /// Of shards and the tokens in each, which are of this text.
    pub(crate) fn new(shards: Vec<(u64, Lazy<CheckedShard>)>, text: Text) -> TokenStream {
        let (lengths, shards): (Vec<u64>, Vec<_>) = shards.into_iter().unzip();
        let starts = cumulate(lengths.into_iter());
        TokenStream { inner: Arc::new(Inner { shards, starts, text }) }
    }

    /// Number of tokens.
    pub fn len(&self) -> u64 {
        self.inner.starts.last().copied().unwrap_or(0)
    }

    /// Whether there are no tokens; never so for a stream from [`crate::Corpus::tokens`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What each token stands for; `None` where that differs, as of words.
    pub fn symbol(&self) -> Option<Symbol> {
        self.inner.text.symbol
    }

    /// Bytes and characters that a loss over `targets` of the tokens is divided by. Of words, those of the source text, line ends included.
    /// Where every token is a byte or a character, those that are predicted: line ends that no token stands for are in no loss, nor are tokens
    /// that nothing predicts. What is left out so counts as single bytes. An end of a document is a token, and no text.
    pub fn size_of(&self, targets: u64) -> (u64, u64) {
        let Text { bytes, chars, symbol } = self.inner.text;
        let of_text = match symbol {
            None => return (bytes, chars),
            Some(Symbol::Byte) => bytes,
            Some(Symbol::Character) => chars,
        };
        let predicted = |size: u64| size.saturating_add(targets).saturating_sub(of_text).min(size);
        (predicted(bytes), predicted(chars))
    }

    /// Copies the tokens `start..start + out.len()`, across the borders of shards. A shard is mapped, and each block of it
    /// checked against its hash, when it is first read.
    pub fn read(&self, start: u64, out: &mut [i64]) -> Result<(), DataError> {
        let total = self.len();
        match start.checked_add(out.len() as u64) {
            Some(end) if end <= total => {}
            end => return Err(DataError::OutOfRange { start, end: end.unwrap_or(u64::MAX), total }),
        }
        let mut position = start;
        let mut rest = out;
        while !rest.is_empty() {
            let shard = holder(&self.inner.starts, position);
            let room = (self.inner.starts[shard + 1] - position).min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at_mut(room);
            self.inner.shards[shard].get()?.read(position - self.inner.starts[shard], now)?;
            position += room as u64;
            rest = later;
        }
        Ok(())
    }
}

impl fmt::Debug for TokenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenStream({} tokens in {} shards)", self.len(), self.inner.shards.len())
    }
}

/// Where the documents or the sentences of a split begin, read from memory maps of the indices, each of which is opened when
/// it is first asked.
pub struct Boundaries {
    indices: Vec<Lazy<Arc<MappedIndex>>>,
    /// Position of each shard's first token in the stream.
    tokens: Vec<u64>,
    /// Number of entries before each shard, and in all.
    entries: Vec<u64>,
    entry: fn(&MappedIndex, u64) -> Option<u64>,
}

impl Boundaries {
    pub(crate) fn documents(indices: Vec<Indexed>) -> Boundaries {
        Boundaries::new(indices, MappedIndex::document)
    }

    pub(crate) fn sentences(indices: Vec<Indexed>) -> Boundaries {
        Boundaries::new(indices, MappedIndex::sentence)
    }

    fn new(indices: Vec<Indexed>, entry: fn(&MappedIndex, u64) -> Option<u64>) -> Boundaries {
        let tokens = cumulate(indices.iter().map(|part| part.tokens));
        let entries = cumulate(indices.iter().map(|part| part.entries));
        Boundaries { indices: indices.into_iter().map(|part| part.index).collect(), tokens, entries, entry }
    }

    /// Number of documents or sentences.
    pub fn len(&self) -> u64 {
        self.entries.last().copied().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Position in the token stream at which entry `i` begins; `None` past the last.
    pub fn get(&self, i: u64) -> Result<Option<u64>, DataError> {
        if i >= self.len() {
            return Ok(None);
        }
        let shard = holder(&self.entries, i);
        let offset = (self.entry)(self.indices[shard].get()?, i - self.entries[shard]);
        Ok(offset.map(|offset| self.tokens[shard] + offset))
    }

    /// Number of entries that begin at `position` or before it.
    pub fn count_through(&self, position: u64) -> Result<u64, DataError> {
        if self.tokens.last().is_none_or(|total| position >= *total) {
            return Ok(self.len());
        }
        // One index is searched, that of the shard that holds the position.
        let shard = holder(&self.tokens, position);
        let (mut low, mut high) = (self.entries[shard], self.entries[shard + 1]);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle)? {
                Some(start) if start <= position => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

impl fmt::Debug for Boundaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Boundaries({} in {} shards)", self.len(), self.indices.len())
    }
}

/// The index of a shard.
pub(crate) struct Indexed {
    /// Tokens of the shard.
    pub tokens: u64,
    /// Documents or sentences that begin in it.
    pub entries: u64,
    /// The index itself.
    pub index: Lazy<Arc<MappedIndex>>,
}

/// Sums up to each item, starting with zero.
fn cumulate(lengths: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sums = vec![0];
    let mut sum = 0;
    for length in lengths {
        sum += length;
        sums.push(sum);
    }
    sums
}

/// The part that holds `position`, given where each part starts; parts may be empty.
fn holder(starts: &[u64], position: u64) -> usize {
    starts.partition_point(|start| *start <= position) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_parts_hold_nothing() {
        let starts = cumulate([2, 0, 3].into_iter());
        assert_eq!(starts, [0, 2, 2, 5]);
        let holders: Vec<usize> = (0..5).map(|position| holder(&starts, position)).collect();
        assert_eq!(holders, [0, 0, 2, 2, 2]);
    }
}
