//! What a run reads: lanes over its corpus as the configuration orders them, and its validation.

use std::path::Path;

use segue_collectives::Communicator;
use segue_configs::{ModelConfig, OwnSections, TrainConfig};
use segue_dataloader::sections::{DataConfig, DataOrder, DocumentEnd, SegmentConfig, TextEvalConfig};
use segue_dataloader::{
    Corpus, Documents, EvalLanes, Heads, Lanes, PairLanes, PairOptions, RecordLanes, Segments, SentenceLanes,
    Split, StreamLanes, TokenStream,
};
use segue_engine::Watch;
use segue_kernels::TrainError;
use serde_json::json;

use super::cut::Cut;
use super::evaluate::{EvalOptions, Evaluation, evaluate_pieces, lanes_with_targets};
use super::evaluate_pairs::PairValidation;
use super::sources::Sources;
use crate::Objective;

/// The lanes of a run over its training split.
pub fn open_lanes(
    train: &TrainConfig,
    model: &ModelConfig,
    own: &OwnSections,
    sources: &Sources,
) -> Result<Box<dyn Lanes>, TrainError> {
    let data = own.get::<DataConfig>();
    let pairs = || PairOptions::of(train, model, own);
    match data.order {
        DataOrder::Pairs => {
            Ok(Box::new(PairLanes::open(pairs()?, &data.weights, sources.corpora(), Split::Train)?))
        }
        DataOrder::Records => Ok(Box::new(RecordLanes::open(Path::new(&data.corpus), pairs()?)?)),
        DataOrder::Sentences => Ok(Box::new(sentence_lanes(train, own, &sources.corpora()[0])?)),
        DataOrder::Episodes => Ok(Box::new(sentence_lanes(train, own, &sources.corpora()[0])?.as_episodes())),
        DataOrder::Lines => Ok(Box::new(line_lanes(train, own, &sources.corpora()[0])?)),
        DataOrder::Stream => stream_lanes(train, own, &sources.corpora()[0]),
    }
}

/// Whether a run's memory needs marks of where lanes begin again: they do so at different steps where pieces have several lengths, where each line is a
/// piece, and where some lanes forget.
pub fn keeps_marks(own: &OwnSections) -> bool {
    let (order, segments) = (own.get::<DataConfig>().order, own.get::<SegmentConfig>());
    let apart = order.in_pairs() || order == DataOrder::Episodes || segments.drop_state > 0.0;
    apart || segments.at_document_end != DocumentEnd::Carry
}

/// What ends the lines of a corpus that is read in this order.
fn end_of_line(order: DataOrder, corpus: &Corpus) -> Result<i64, TrainError> {
    let eos = corpus.tokenizer()?.eos_id();
    let missing =
        || TrainError::Layout(format!("data.order = {} needs a tokenizer with an <eos> token", json!(order)));
    eos.map(i64::from).ok_or_else(missing)
}

fn sentence_lanes(
    train: &TrainConfig,
    own: &OwnSections,
    corpus: &Corpus,
) -> Result<SentenceLanes, TrainError> {
    let eos = end_of_line(own.get::<DataConfig>().order, corpus)?;
    let (stream, sentences) = (corpus.tokens(Split::Train)?, corpus.sentences(Split::Train)?);
    let segments = Segments::of(&own.get(), train.seed);
    Ok(SentenceLanes::new(stream, sentences, train.lanes, segments, eos, train.seed)?)
}

fn line_lanes(train: &TrainConfig, own: &OwnSections, corpus: &Corpus) -> Result<StreamLanes, TrainError> {
    let data = own.get::<DataConfig>();
    let eos = end_of_line(data.order, corpus)?;
    let lines = corpus.sentences(Split::Train)?;
    let heads = Heads::new(lines, train.lanes, data.line_jitter, eos, train.seed)?;
    let segments = Segments::of(&own.get(), train.seed);
    let lanes = StreamLanes::new(corpus.tokens(Split::Train)?, train.lanes, segments)?;
    Ok(lanes.from_lines(heads))
}

fn stream_lanes(
    train: &TrainConfig,
    own: &OwnSections,
    corpus: &Corpus,
) -> Result<Box<dyn Lanes>, TrainError> {
    let segments = own.get::<SegmentConfig>();
    let drawn = Segments::of(&segments, train.seed);
    let mut lanes = StreamLanes::new(corpus.tokens(Split::Train)?, train.lanes, drawn)?;
    if segments.roll {
        lanes = lanes.rolled(train.seed);
    }
    if segments.at_document_end != DocumentEnd::Carry {
        let documents = Documents::new(corpus.documents(Split::Train)?);
        lanes = lanes.with_documents(documents, segments.at_document_end);
    }
    Ok(Box::new(lanes))
}

/// The validation split of a run's corpora, or the beginning of its training split, read alike.
pub enum Validation {
    /// Read from its first token to its last.
    Stream {
        /// Its tokens.
        stream: TokenStream,
        /// How many of them are read.
        tokens: u64,
        /// Its documents, and what their ends do to memory, where that matters.
        documents: Option<(Documents, DocumentEnd)>,
    },
    /// Read line by line: the first token is a target too.
    Lines {
        /// Its tokens.
        stream: TokenStream,
        /// How many of them are read.
        tokens: u64,
        /// Where its lines begin.
        starts: Vec<u64>,
        /// What ends a line.
        eos: i64,
    },
    /// Read as sequences of pairs.
    Pairs(Box<PairValidation>),
}

impl Validation {
    /// `None` where no corpus has a validation split.
    pub fn open(
        train: &TrainConfig,
        model: &ModelConfig,
        own: &OwnSections,
        sources: &Sources,
    ) -> Result<Option<Self>, TrainError> {
        let Some(corpus) = sources.valid() else { return Ok(None) };
        Self::of_split(train, model, own, corpus, Split::Valid).map(Some)
    }

    /// A split of a corpus, read as `data.order` says.
    pub fn of_split(
        train: &TrainConfig,
        model: &ModelConfig,
        own: &OwnSections,
        corpus: &Corpus,
        split: Split,
    ) -> Result<Self, TrainError> {
        match own.get::<DataConfig>().order.in_pairs() {
            true => Ok(Self::Pairs(Box::new(PairValidation::open(train, model, own, corpus, split)?))),
            false => Self::of_text(own, corpus, split, u64::MAX),
        }
    }

    /// As many tokens of the training split as the validation split has, from its beginning, for averages that decide by them; `None` where
    /// there is no validation split. Of an [`Evaluation`] of them the loss alone has a meaning, as bytes and characters are those of the split.
    pub fn of_training(own: &OwnSections, sources: &Sources) -> Result<Option<Self>, TrainError> {
        let (Some(valid), Some(train)) = (sources.valid(), sources.of_split(Split::Train)) else {
            return Ok(None);
        };
        Self::of_text(own, train, Split::Train, valid.tokens(Split::Valid)?.len()).map(Some)
    }

    /// At most `most` tokens of a split that is read from left to right.
    fn of_text(own: &OwnSections, corpus: &Corpus, split: Split, most: u64) -> Result<Self, TrainError> {
        let stream = corpus.tokens(split)?;
        let tokens = stream.len().min(most);
        let order = own.get::<DataConfig>().order;
        if matches!(order, DataOrder::Lines | DataOrder::Episodes) {
            let lines = corpus.sentences(split)?;
            let starts = (0..lines.len()).filter_map(|line| lines.get(line).transpose());
            let starts = starts.take_while(|start| start.as_ref().map_or(true, |start| *start < tokens));
            let starts = starts.collect::<Result<_, _>>()?;
            return Ok(Self::Lines { stream, tokens, starts, eos: end_of_line(order, corpus)? });
        }
        let policy = own.get::<SegmentConfig>().at_document_end;
        let documents = match policy {
            DocumentEnd::Carry => None,
            DocumentEnd::Reset | DocumentEnd::Mask => {
                Some((Documents::new(corpus.documents(split)?), policy))
            }
        };
        Ok(Self::Stream { stream, tokens, documents })
    }

    /// Checks that there is enough of it for `[eval]`.
    pub fn check(&self, train: &TrainConfig, own: &OwnSections) -> Result<(), TrainError> {
        match self {
            Self::Stream { tokens, .. } | Self::Lines { tokens, .. } => {
                Self::pieces(*tokens, train, own).map(drop)
            }
            Self::Pairs(_) => Ok(()),
        }
    }

    /// The pieces of so many tokens that lanes read.
    fn pieces(tokens: u64, train: &TrainConfig, own: &OwnSections) -> Result<EvalLanes, TrainError> {
        let eval = own.get::<TextEvalConfig>();
        let lanes = lanes_with_targets(eval.lanes, eval.lanes_per_group(train), tokens);
        Ok(EvalLanes::new(tokens, lanes, eval.segment_of(&own.get()))?)
    }

    /// How it is cut and what the model sees of what came before.
    pub fn cut(
        &self,
        train: &TrainConfig,
        model: &ModelConfig,
        own: &OwnSections,
    ) -> Result<Cut, TrainError> {
        let eval = own.get::<TextEvalConfig>();
        let lanes = match self {
            Self::Stream { tokens, .. } | Self::Lines { tokens, .. } => {
                lanes_with_targets(eval.lanes, eval.lanes_per_group(train), *tokens)
            }
            Self::Pairs(pairs) => pairs.lanes(),
        };
        Cut::new(model, &eval, lanes, eval.segment_of(&own.get()))
    }

    /// Evaluates as `[eval]` says. A collective call.
    pub fn evaluate(
        &self,
        objective: &mut dyn Objective,
        train: &TrainConfig,
        own: &OwnSections,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Evaluation, TrainError> {
        let eval = &*own.get::<TextEvalConfig>();
        let (stream, tokens, documents) = match self {
            Self::Pairs(pairs) => return pairs.evaluate(objective, eval, comm, watch),
            Self::Stream { stream, tokens, documents } => (stream, *tokens, documents.as_ref()),
            Self::Lines { stream, tokens, .. } => (stream, *tokens, None),
        };
        let options = EvalOptions {
            lanes: eval.lanes,
            group: eval.lanes_per_group(train),
            segment: eval.segment_of(&own.get()),
            ext_len: eval.ext_len,
            documents: documents.map(|(documents, policy)| (documents, *policy)),
        };
        let mut pieces = Self::pieces(tokens, train, own)?;
        if let Self::Lines { starts, eos, .. } = self {
            pieces = match own.get::<DataConfig>().order {
                DataOrder::Episodes => pieces.in_episodes(starts, *eos),
                _ => pieces.by_lines(starts, *eos),
            };
        }
        objective.look(Some(eval));
        let result =
            evaluate_pieces(objective, stream, &pieces.with_context(options.ext_len), options, comm, watch);
        objective.look(None);
        result
    }
}
