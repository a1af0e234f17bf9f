use segue_data_error::DataError;
use segue_tokenizer::{Encoder, Tokenizer};

use super::input::PairInput;
use super::lockstep::{PairChunk, PairPlace, RawPair};
use super::options::{PairBuild, PairFilter};
use super::text::{PairText, text_of};
use crate::build::encoders::Encoders;
use crate::build::units::SourceSize;
use crate::corpus::{Dtype, PairFault, Split};

/// The pairs of a chunk as they go into a shard.
#[derive(Default)]
pub(super) struct EncodedPairs {
    /// Packed token ids.
    pub(super) payload: Vec<u8>,
    /// Token offsets in the chunk at which pairs begin.
    pub(super) pairs: Vec<u32>,
    /// Token offsets in the chunk at which sides begin, two a pair.
    pub(super) sides: Vec<u32>,
    /// Size of the text of these pairs, a line end a side.
    pub(super) size: SourceSize,
    /// Tokens that stand for something outside the vocabulary.
    pub(super) unknown: u64,
    /// Pairs in the chunk.
    pub(super) read: u64,
    /// Pairs that have a fault, kept or not.
    pub(super) faults: Vec<(PairFault, PairPlace)>,
}

/// Encodes chunks of pairs, each by itself, on any number of threads.
pub(super) struct PairEncoder<'a> {
    build: &'a PairBuild,
    inputs: &'a [PairInput],
    encoders: Encoders<'a>,
    dtype: Dtype,
    eos: u32,
    unk: Option<u32>,
    /// Pairs with a fault are dropped from what a model is trained on, and from nothing else.
    filter: Option<PairFilter>,
}

impl<'a> PairEncoder<'a> {
    /// `eos` ends every sentence.
    pub(super) fn new(
        build: &'a PairBuild,
        split: Split,
        inputs: &'a [PairInput],
        tokenizer: &'a Tokenizer,
        eos: u32,
    ) -> PairEncoder<'a> {
        PairEncoder {
            build,
            inputs,
            encoders: Encoders::new(tokenizer),
            dtype: Dtype::for_vocabulary(tokenizer.vocab_size()),
            eos,
            unk: tokenizer.unk_id(),
            filter: (split == Split::Train).then_some(build.filter),
        }
    }

    pub(super) fn encode(&self, chunk: &PairChunk) -> Result<EncodedPairs, DataError> {
        self.encoders.lend(|encoder| {
            let mut encoded = EncodedPairs { read: chunk.pairs.len() as u64, ..EncodedPairs::default() };
            let mut ids = Vec::new();
            for pair in &chunk.pairs {
                let text = text_of(pair, chunk, self.inputs, self.build)?;
                self.encode_pair(encoder, pair, &text, &mut ids, &mut encoded)?;
            }
            Ok(encoded)
        })
    }

    fn encode_pair(
        &self,
        encoder: &mut Encoder<'a>,
        pair: &RawPair,
        text: &PairText<'_>,
        ids: &mut Vec<u32>,
        encoded: &mut EncodedPairs,
    ) -> Result<(), DataError> {
        ids.clear();
        let source = self.encode_side(&text.source, pair, ids, |text, ids| encoder.encode(text, ids))?;
        let middle = ids.len() as u32;
        let target =
            self.encode_side(&text.target, pair, ids, |text, ids| encoder.encode_target(text, ids))?;
        let fault = self.filter.unwrap_or_default().fault(source, target);
        encoded.faults.extend(fault.map(|fault| (fault, pair.place)));
        if fault.is_some() && self.filter.is_some() {
            return Ok(());
        }
        let begin = (encoded.payload.len() / self.dtype.bytes()) as u32;
        encoded.pairs.push(begin);
        encoded.sides.extend([begin, begin + middle]);
        encoded.unknown += ids.iter().filter(|id| Some(**id) == self.unk).count() as u64;
        encoded.size.replaced += text.replaced;
        for side in [&text.source, &text.target] {
            encoded.size.add(side.as_bytes());
            encoded.size.add(b"\n");
        }
        self.dtype.pack(ids, &mut encoded.payload);
        Ok(())
    }

    /// Appends a side with its end, and tells how many tokens it has without; 0 where it holds nothing but white space.
    fn encode_side(
        &self,
        text: &str,
        pair: &RawPair,
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&str, &mut Vec<u32>) -> Result<(), String>,
    ) -> Result<usize, DataError> {
        let begin = ids.len();
        encode(text, ids).map_err(|why| {
            let why = format!("the tokenizer cannot encode a side of the pair: {why}");
            DataError::line(self.inputs[pair.place.input].path(), pair.place.line, why)
        })?;
        let tokens = ids.len() - begin;
        ids.push(self.eos);
        Ok(if text.trim().is_empty() { 0 } else { tokens })
    }
}
