use segue_data_error::DataError;

use crate::corpus::{Boundaries, Corpus, Split, TokenStream};

/// A corpus that lanes read, and how many of them it gets.
#[derive(Debug)]
pub struct PairSource {
    /// Its tokens.
    pub stream: TokenStream,
    /// Where its sentences begin.
    pub sentences: Boundaries,
    /// Its share of the lanes, relative to that of the others.
    pub weight: f64,
}

impl PairSource {
    /// A split of a corpus, weighted by its number of tokens.
    pub fn open(corpus: &Corpus, split: Split) -> Result<PairSource, DataError> {
        let (stream, sentences) = (corpus.tokens(split)?, corpus.sentences(split)?);
        let weight = stream.len() as f64;
        Ok(PairSource { stream, sentences, weight })
    }
}

#[cfg(test)]
impl PairSource {
    /// A corpus of these tokens whose sentences begin at `starts`.
    pub(super) fn of_tokens(tokens: &[u8], starts: &[u32], folder: &std::path::Path) -> PairSource {
        use std::sync::Arc;

        use crate::corpus::{Dtype, Indexed};
        use crate::shard::{CheckedShard, Lazy, MappedIndex, MappedShard, ShardWriter};

        let stem = folder.join("shard");
        let mut writer = ShardWriter::create(stem.clone(), Dtype::U16).unwrap();
        let payload: Vec<u8> = tokens.iter().flat_map(|token| [*token, 0]).collect();
        writer.append(&payload, &[], starts).unwrap();
        writer.finish(false).unwrap();
        let (tokens, entries) = (tokens.len() as u64, starts.len() as u64);
        let index_path = stem.with_extension("idx");
        let shard_index = index_path.clone();
        let shard = Lazy::new(move || {
            let shard = MappedShard::open(&stem.with_extension("bin"))?;
            Ok(CheckedShard::new(shard, Arc::new(MappedIndex::open(&shard_index)?), ""))
        });
        let index = Lazy::new(move || MappedIndex::open(&index_path).map(Arc::new));
        PairSource {
            stream: TokenStream::new(vec![(tokens, shard)], crate::corpus::Text::default()),
            sentences: Boundaries::sentences(vec![Indexed { tokens, entries, index }]),
            weight: 1.0,
        }
    }
}

/// The part of a corpus that a stream reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Number of the corpus.
    pub(super) source: usize,
    /// Position of the first token in the corpus.
    pub(super) start: u64,
    /// Number of tokens.
    pub(super) len: u64,
}

/// The pieces of `streams` streams: those of a corpus are of one length and follow each other; what is left at a
/// corpus' end belongs to none.
pub(super) fn cut(
    sources: &[PairSource],
    streams: usize,
    lanes: usize,
    segment: usize,
) -> Result<Vec<Piece>, DataError> {
    let weights: Vec<f64> = sources.iter().map(|source| source.weight).collect();
    let mut pieces = Vec::with_capacity(streams);
    for (source, count) in allot(&weights, streams)?.into_iter().enumerate() {
        let total = sources[source].stream.len();
        let len = total / count as u64;
        if len < segment as u64 {
            let needed = segment as u64;
            return Err(DataError::LaneTooShort { lane_tokens: len, lanes, segment, needed, total });
        }
        pieces.extend((0..count as u64).map(|i| Piece { source, start: i * len, len }));
    }
    Ok(pieces)
}

/// Shares `streams` out in proportion to weights, the largest remainders first, at least one to each.
fn allot(weights: &[f64], streams: usize) -> Result<Vec<usize>, DataError> {
    let corpora = weights.len();
    if corpora == 0 || streams < corpora {
        return Err(DataError::Usage(format!(
            "{corpora} corpora share {streams} streams of text, and each needs one\nhint: use fewer \
             corpora or more lanes (train.lanes; two per stream with pairs.bidirectional)"
        )));
    }
    let sum: f64 = weights.iter().sum();
    let quotas: Vec<f64> = weights.iter().map(|weight| weight / sum * streams as f64).collect();
    let mut counts: Vec<usize> = quotas.iter().map(|quota| (quota.floor() as usize).max(1)).collect();
    // Of equals the first; one at a time, so that those lifted to one are paid for by the best off.
    let surplus = |counts: &[usize], i: usize| counts[i] as f64 - quotas[i];
    while counts.iter().sum::<usize>() < streams {
        let poorest = (0..corpora).min_by(|i, j| surplus(&counts, *i).total_cmp(&surplus(&counts, *j)));
        counts[poorest.unwrap_or(0)] += 1;
    }
    while counts.iter().sum::<usize>() > streams {
        let spare = (0..corpora).filter(|i| counts[*i] > 1);
        let richest = spare.max_by(|i, j| surplus(&counts, *i).total_cmp(&surplus(&counts, *j)));
        counts[richest.unwrap_or(0)] -= 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn streams_are_shared_out_by_largest_remainder() {
        // Quotas 4.7, 3.1 and 2.2; 0.05, 0.05 and 3.9; XLNet's two first corpora (Yang 2019, §2.2.3) among 8.
        assert_eq!(allot(&[47.0, 31.0, 22.0], 10).unwrap(), [5, 3, 2]);
        assert_eq!(allot(&[0.5, 0.5, 39.0], 4).unwrap(), [1, 1, 2]);
        assert_eq!(allot(&[2.78, 1.09], 8).unwrap(), [6, 2]);
        let message = allot(&[1.0; 5], 4).unwrap_err().to_string();
        assert!(message.contains("5 corpora share 4 streams"), "{message}");
    }

    proptest! {
        #[test]
        fn every_corpus_gets_a_stream_and_none_is_left(
            weights in proptest::collection::vec(1e-9f64..1e12, 1..20), more in 0usize..100,
        ) {
            let streams = weights.len() + more;
            let counts = allot(&weights, streams).unwrap();
            prop_assert_eq!(counts.iter().sum::<usize>(), streams);
            prop_assert!(counts.iter().all(|count| *count > 0));
        }
    }
}
