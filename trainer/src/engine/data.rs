//! What a run reads: lanes over its corpus as the configuration orders them, and batches as tensors.

use segue_configs::{Config, DataOrder, DocumentEnd};
use segue_dataloader::{
    Batch as Tokens, Corpus, Documents, Lanes, Pairs as TokenPairs, Segments, SentenceLanes, Split,
    StreamLanes, TokenStream,
};
use tch::Tensor;
use tch::kind::Element;

use crate::TrainError;
use crate::objective::{Batch, Pairs};

/// The lanes of a run over its training split.
pub fn open_lanes(config: &Config, corpus: &Corpus) -> Result<Box<dyn Lanes>, TrainError> {
    let train = &config.train;
    let stream = corpus.tokens(Split::Train)?;
    let varlen = train.varlen.then_some(train.seed);
    let segments = Segments { longest: train.segment, ext_len: train.ext_len, varlen };
    if config.data.order == DataOrder::Sentences {
        let eos = corpus.tokenizer()?.eos_id().ok_or_else(|| {
            TrainError::Layout("data.order = \"sentences\" needs a tokenizer with an <eos> token".into())
        })?;
        let sentences = corpus.sentences(Split::Train)?;
        let lanes = SentenceLanes::new(stream, sentences, train.lanes, segments, i64::from(eos), train.seed)?;
        return Ok(Box::new(lanes));
    }
    let mut lanes = StreamLanes::new(stream, train.lanes, segments)?;
    if train.roll {
        lanes = lanes.rolled(train.seed);
    }
    if train.at_document_end != DocumentEnd::Carry {
        let documents = Documents::new(corpus.documents(Split::Train)?);
        lanes = lanes.with_documents(documents, train.at_document_end);
    }
    Ok(Box::new(lanes))
}

/// The validation split of a run's corpus, with its documents where memory minds their ends.
pub struct Validation {
    /// Its tokens.
    pub stream: TokenStream,
    documents: Option<Documents>,
    policy: DocumentEnd,
}

impl Validation {
    /// `None` where the corpus has no validation split.
    pub fn open(corpus: &Corpus, policy: DocumentEnd) -> Result<Option<Self>, TrainError> {
        if !corpus.info().splits.contains_key(&Split::Valid) {
            return Ok(None);
        }
        let documents = match policy {
            DocumentEnd::Carry => None,
            DocumentEnd::Reset | DocumentEnd::Mask => Some(Documents::new(corpus.documents(Split::Valid)?)),
        };
        Ok(Some(Self { stream: corpus.tokens(Split::Valid)?, documents, policy }))
    }

    /// The documents and what their ends do.
    pub fn documents(&self) -> Option<(&Documents, DocumentEnd)> {
        self.documents.as_ref().map(|documents| (documents, self.policy))
    }
}

/// Cuts a step of this rank's lanes into micro-batches of `micro_batch` lanes.
pub fn micro_batches(tokens: &Tokens, micro_batch: usize) -> Vec<Batch> {
    let lanes = tokens.restarts.len();
    let width = tokens.inputs.len() / lanes;
    let targets = tokens.targets.len() / lanes;
    (0..lanes / micro_batch)
        .map(|number| {
            let cut = Cut { first: number * micro_batch, lanes: micro_batch };
            Batch {
                inputs: cut.rows(&tokens.inputs, width),
                targets: cut.rows(&tokens.targets, targets),
                pairs: tokens.pairs.as_ref().map(|pairs| cut.pairs(pairs, width, targets)),
                documents: tokens.documents.as_ref().map(|documents| cut.rows(documents, width)),
                overlap: tokens.overlap as i64,
            }
        })
        .collect()
}

/// The lanes of one micro-batch.
struct Cut {
    first: usize,
    lanes: usize,
}

impl Cut {
    fn own<'a, T>(&self, values: &'a [T], width: usize) -> &'a [T] {
        &values[self.first * width..(self.first + self.lanes) * width]
    }

    /// `[lanes, width]`.
    fn rows<T: Element>(&self, values: &[T], width: usize) -> Tensor {
        Tensor::from_slice(self.own(values, width)).view([self.lanes as i64, width as i64])
    }

    fn pairs(&self, pairs: &TokenPairs, width: usize, targets: usize) -> Pairs {
        let follows: Vec<i64> =
            self.own(&pairs.follows, 1).iter().map(|follows| i64::from(*follows)).collect();
        Pairs {
            segments: self.rows(&pairs.segments, width),
            ranks: self.rows(&pairs.ranks, width),
            positions: self.rows(&pairs.positions, targets),
            weights: self.rows(&pairs.weights, targets),
            follows: Tensor::from_slice(&follows),
            reversed: self.own(&pairs.reversed, 1).iter().filter(|reversed| **reversed).count() as i64,
        }
    }
}
