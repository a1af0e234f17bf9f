//! What a run reads: lanes over its corpus as the configuration orders them, and batches as tensors.

use segue_configs::{Config, DataOrder, DocumentEnd};
use segue_dataloader::{
    Batch as Tokens, Corpus, Documents, Lanes, Segments, SentenceLanes, Split, StreamLanes, TokenStream,
};
use tch::Tensor;

use crate::TrainError;
use crate::objective::Batch;

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
    let (lanes, segment) = (micro_batch as i64, tokens.segment as i64);
    let width = (tokens.context + tokens.segment) as i64;
    let cut = |ids: &[i64], width: i64| -> Vec<Tensor> {
        let size = (lanes * width) as usize;
        ids.chunks(size).map(|ids| Tensor::from_slice(ids).view([lanes, width])).collect()
    };
    let mut documents = tokens.documents.as_ref().map(|ids| cut(ids, width).into_iter());
    let pairs = cut(&tokens.inputs, width).into_iter().zip(cut(&tokens.targets, segment));
    pairs
        .map(|(inputs, targets)| Batch {
            inputs,
            targets,
            documents: documents.as_mut().and_then(Iterator::next),
            overlap: tokens.overlap as i64,
        })
        .collect()
}
