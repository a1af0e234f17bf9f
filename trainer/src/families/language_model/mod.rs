//! Training of a language model on a corpus, whichever model it is: lanes over text, segment memory, perplexity.

mod batches;
mod evaluate;
mod evaluate_pairs;
mod sources;

use std::path::Path;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, DataOrder, DocumentEnd};
use segue_dataloader::{Batch as Tokens, LaneCursor, LaneReader, Tokenizer, TokenizerKind};
use serde_json::json;
use tch::Tensor;

pub use batches::{Validation, micro_batches, open_lanes};
pub use evaluate::{EvalOptions, Evaluation, OfPairs, OfText, WithoutMemory, evaluate};
pub use evaluate_pairs::PairValidation;
pub use sources::Sources;

use crate::TrainError;
use crate::engine::{
    Better, Event, Family, FamilyReader, Folder, Labels, Layout, LossAs, Measures, Outcome, Place, Prepared,
    train,
};
use crate::folder;
use crate::objective::{self, Objective};

/// Trains the configured language model on `sources`; see [`train`].
pub fn pretrain(
    config: &Config,
    sources: &Sources,
    comm: &dyn Communicator,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Outcome, TrainError> {
    let mut objective = objective::build(config);
    // Lanes over pieces of several lengths begin again at different steps.
    if config.train.at_document_end != DocumentEnd::Carry || config.data.order.in_pairs() {
        objective.keep_marks();
    }
    train(config, Pretraining::open(config, sources)?, objective, comm, stop, on_event)
}

/// A run over a corpus.
struct Pretraining<'a> {
    config: &'a Config,
    sources: &'a Sources,
    valid: Option<Validation>,
    tokenizer: Arc<Tokenizer>,
}

impl<'a> Pretraining<'a> {
    fn open(config: &'a Config, sources: &'a Sources) -> Result<Self, TrainError> {
        Ok(Self {
            config,
            sources,
            valid: Validation::open(config, sources)?,
            tokenizer: Arc::new(sources.tokenizer().clone()),
        })
    }
}

impl Family for Pretraining<'_> {
    type Learner = Box<dyn Objective>;
    type Raw = Tokens;
    type Cursor = LaneCursor;

    fn fingerprint(&self) -> String {
        self.sources.fingerprint().into()
    }

    fn data_key(&self) -> &'static str {
        "data.corpus"
    }

    fn labels(&self) -> Labels {
        let train = &self.config.train;
        let in_characters = matches!(self.tokenizer.kind(), TokenizerKind::Byte | TokenizerKind::Char);
        Labels {
            doing: "train",
            step_of: "targets",
            per_step: (train.lanes * self.config.targets_per_lane()) as u64,
            rate_of: "tokens",
            work: match self.config.data.order {
                // Every token is read, few are targets.
                DataOrder::Pairs | DataOrder::Records => Some((train.lanes * train.segment) as f64),
                DataOrder::Stream | DataOrder::Sentences => None,
            },
            loss_as: if in_characters { LossAs::Bits } else { LossAs::Perplexity },
            sources: ("source", Vec::new()),
        }
    }

    fn cursors(&self) -> Vec<LaneCursor> {
        vec![LaneCursor::default(); self.config.train.lanes]
    }

    fn reader(&self, place: Place<LaneCursor>) -> Result<FamilyReader<Self>, TrainError> {
        let lanes = open_lanes(self.config, self.sources)?;
        Ok(Box::new(LaneReader::new(lanes, place.layout.lane_range(), place.cursors)))
    }

    fn prepare(&self, tokens: Tokens, layout: &Layout) -> Prepared<Vec<objective::Batch>, LaneCursor> {
        Prepared {
            batch: micro_batches(&tokens, layout.micro_batch),
            restarts: tokens.restarts,
            cursors: tokens.cursors_after,
        }
    }

    fn begin(&self, objective: &Box<dyn Objective>) -> Result<Vec<String>, TrainError> {
        let init_from = &self.config.train.init_from;
        if !init_from.is_empty() {
            folder::start_from(Path::new(init_from), &self.config.model, objective.parameters())?;
        }
        Ok(Vec::new())
    }

    fn evaluate(
        &mut self,
        objective: &mut Box<dyn Objective>,
        comm: &dyn Communicator,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<Measures>, TrainError> {
        let Some(valid) = &self.valid else { return Ok(None) };
        let evaluation = valid.evaluate(objective.as_mut(), self.config, comm, progress)?;
        Ok(Some(measures(&evaluation)))
    }

    fn folder(&self, _: &Box<dyn Objective>) -> Folder {
        Folder {
            config: folder::hugging_face_config(&self.config.model),
            tokenizer: Some(self.tokenizer.clone()),
        }
    }

    fn stored(
        &self,
        _: &Box<dyn Objective>,
        _: usize,
        weights: Vec<(String, Tensor)>,
    ) -> Vec<(String, Tensor)> {
        folder::as_stored(&self.config.model, weights)
    }

    fn read(&self, objective: &Box<dyn Objective>, _: usize, path: &Path) -> Result<Vec<Tensor>, TrainError> {
        folder::read_weights(path, &self.config.model, objective.parameters().specs())
    }
}

fn measures(evaluation: &Evaluation) -> Measures {
    let named = |(name, value): (&str, f64)| (format!("valid/{name}"), value);
    let mut values = vec![("loss", evaluation.loss), ("ppl", evaluation.ppl)];
    values.extend(evaluation.of_text.map(|text| ("bpc", text.bits_per_char)));
    values.extend(evaluation.of_pairs.map(|pairs| ("accuracy", pairs.accuracy)));
    Measures {
        lead: evaluation.loss,
        better: Better::Lower,
        row: json!(evaluation),
        scalars: values.into_iter().map(named).collect(),
        lines: vec![format!("validation: {}", evaluation.describe())],
    }
}
