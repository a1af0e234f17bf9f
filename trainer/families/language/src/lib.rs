//! Training of a language model on a corpus, whichever model it is: lanes over text, segment memory, perplexity.

mod batches;
mod cut;
mod encoder;
mod evaluate;
mod evaluate_pairs;
mod family;
mod folder;
mod micro_batches;
mod next_token;
mod objective;
mod parity;
mod random;
mod sources;
mod weights;
mod writes;

use std::path::Path;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, DecidingLoss};
use segue_cost::Work;
use segue_dataloader::sections::{DataConfig, ObjectiveConfig, SegmentConfig, targets_per_lane};
use segue_dataloader::{Batch as Tokens, LaneCursor, LaneReader, Reader};
use segue_engine::{
    Begun, Better, Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared,
    Watch, train,
};
use segue_family::Job;
use segue_kernels::{Compute, Parameters, TrainError};
use segue_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

pub use batches::{Validation, keeps_marks, open_lanes};
pub use cut::Cut;
pub use encoder::{Encoder, Rows, no_memory, rotated};
pub use evaluate::{ByRows, EvalOptions, Evaluation, OfPairs, OfText, WithoutMemory, evaluate};
pub use evaluate_pairs::PairValidation;
pub use family::{
    Encoders, Encodes, ForeignNames, Language, Names, NextTokens, PredictsTokens, TextModel, aliases,
    buffers, derived, encoders, language, names, next_tokens, specs,
};
pub use folder::{
    ModelFolder, fresh_next_token, hugging_face_config, load_next_token, load_objective, start_from,
};
pub use micro_batches::micro_batches;
pub use next_token::{FromMemory, NextToken, Steps, Writing};
pub use objective::{Batch, Loss, Objective, OfHost, Pairs, Scores};
pub use parity::parity_of_segments;
pub use random::{Frequencies, random_batch};
pub use sources::{Sources, refuse_pairs};
pub use weights::{
    ADAPTER_FACTORS, as_stored, is_of_a_head, is_of_an_adapter, read_finite, read_weights,
    refuse_foreign_weights, take_weights,
};
pub use writes::{TextWriter, WRITES, context, writing_memory};

/// The configured objective with fresh weights, where `compute` says.
pub fn build(config: &Config, compute: Compute) -> Result<Box<dyn Objective>, TrainError> {
    let family = crate::language(&config.model)?;
    let specs = family.trained_specs(&config.model, &config.own);
    let parameters = Parameters::initialise(specs, config.train.seed, Kind::Float);
    let parameters = parameters.to(compute.device()).with_recompute(config.train.recompute);
    Ok(family.objective_over(&config.model, &config.own, config.schedule_steps(), parameters))
}

/// Opens the corpus of a run, and gives the model its vocabulary.
pub fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let sources = Sources::open(&config.train, &config.model, &config.own)?;
    config.model.fit_vocabulary(sources.tokenizer().vocab_size(), sources.tokenizer().eos_id())?;
    Ok(Box::new(sources))
}

/// Gives the model the vocabulary of the corpus, where the recipe leaves it open.
pub fn fit(config: &mut Config) -> Result<(), TrainError> {
    let data = config.own.get::<DataConfig>();
    sources::check_presets(&data)?;
    if config.model.vocab_size() > 0 {
        return Ok(config.model.fit_vocabulary(0, None)?);
    }
    if data.corpus.is_empty() && data.corpora.is_empty() {
        let why = "the recipe takes the vocabulary size from the corpus\nhint: add model.vocab_size=N or data.corpus=FOLDER";
        return Err(TrainError::Layout(why.into()));
    }
    let vocabulary = Sources::open(&config.train, &config.model, &config.own)?.tokenizer().vocab_size();
    Ok(config.model.fit_vocabulary(vocabulary, None)?)
}

/// What a run trains; see [`segue_family::work`].
pub fn work(config: &Config) -> Result<Work, TrainError> {
    let Config { train, model, own, .. } = config;
    let family = crate::language(model)?;
    let (specs, micro_step) = (family.trained_specs(model, own), family.micro_step(train, model, own));
    Ok(Work::new(specs, micro_step, |name| family.role(name)))
}

impl Job for Sources {
    fn check_data(&self) -> Result<(), TrainError> {
        self.check_headers()
    }

    fn names(&self) -> Option<usize> {
        Some(self.tokenizer().vocab_size())
    }

    /// What a run is evaluated on is no part of the text that it goes on with, but of what it comes to.
    fn data(&self) -> String {
        let text = self.fingerprint();
        match self.named_valid() {
            None => text.into(),
            Some(valid) => format!("{text}, evaluated on {}", valid.fingerprint()),
        }
    }

    fn check_validation(&self, config: &Config) -> Result<(), TrainError> {
        let missing = || {
            let key =
                if config.own.get::<DataConfig>().corpus.is_empty() { "data.corpora" } else { "data.corpus" };
            TrainError::Layout(format!(
                "{key} has no validation split\nhint: build it with --valid or --split, or set data.valid to a corpus with one"
            ))
        };
        let Config { train, model, own, .. } = config;
        Validation::open(train, model, own, self)?.ok_or_else(missing)?.check(train, own)
    }

    fn train(
        &self,
        config: &Config,
        compute: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let mut objective = build(config, compute)?;
        if keeps_marks(&config.own) {
            objective.keep_marks();
        }
        train(config, Pretraining::open(config, self, compute)?, objective, comm, stop, on_event)
    }
}

/// A run over a corpus.
struct Pretraining<'a> {
    config: &'a Config,
    sources: &'a Sources,
    valid: Option<Validation>,
    /// What averages decide by, where that is another text.
    deciding: Option<Validation>,
    tokenizer: Arc<Tokenizer>,
    compute: Compute,
}

impl<'a> Pretraining<'a> {
    fn open(config: &'a Config, sources: &'a Sources, compute: Compute) -> Result<Self, TrainError> {
        let Config { train, model, own, .. } = config;
        Ok(Self {
            config,
            sources,
            valid: Validation::open(train, model, own, sources)?,
            deciding: match config.average.decide_by {
                DecidingLoss::Validation => None,
                DecidingLoss::Training => Validation::of_training(own, sources)?,
            },
            tokenizer: Arc::new(sources.tokenizer().clone()),
            compute,
        })
    }
}

impl Family for Pretraining<'_> {
    type Learner = Box<dyn Objective>;
    type Cursor = LaneCursor;

    fn fingerprint(&self) -> String {
        self.sources.fingerprint().into()
    }

    fn evaluated_on(&self) -> String {
        self.sources.valid().map_or_else(String::new, |corpus| corpus.fingerprint().into())
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
            per_step: (train.lanes * targets_per_lane(&self.config.own)) as u64,
            rate_of: "tokens",
            loss_as: if in_characters { LossAs::Bits } else { LossAs::Perplexity },
            group: None,
            sources: ("source", Vec::new()),
        }
    }

    fn cursors(&self) -> Vec<LaneCursor> {
        vec![LaneCursor::default(); self.config.train.lanes]
    }

    fn reader(&self, place: Place<LaneCursor>) -> Result<FamilyReader<Self>, TrainError> {
        let Config { train, model, own, .. } = self.config;
        let lanes = open_lanes(train, model, own, self.sources)?;
        let reader = LaneReader::new(lanes, place.layout.lane_range(), place.cursors);
        let (train, samples) = (train.clone(), own.get::<ObjectiveConfig>().samples);
        let segments = own.get::<SegmentConfig>();
        let reader = reader.forgetting(segments.drop_state, samples, train.seed);
        let (device, micro_batch, segment) = (self.compute.device(), train.micro_batch, segments.segment);
        // Of pairs every token is read, few are targets.
        let in_pairs = own.get::<DataConfig>().order.in_pairs();
        let work = in_pairs.then_some((train.lanes * segment) as f64);
        let scales = segments.draws_lengths() && segments.segment_rate;
        let reader = match train.batch_warmup {
            0 => reader,
            _ => reader.in_turns(micro_batch, move |step, micro_step| train.takes_part(step, micro_step)),
        };
        let prepared = move |tokens: Tokens| Prepared {
            work,
            batch: micro_batches(&tokens, micro_batch).into_iter().map(|batch| batch.to(device)).collect(),
            restarts: tokens.restarts,
            rate: if scales { tokens.segment as f64 / segment as f64 } else { 1.0 },
            cursors: tokens.cursors_after,
        };
        Ok(Box::new(reader.map(prepared)))
    }

    fn begin(&self, objective: &Box<dyn Objective>, from: &Path) -> Result<Begun, TrainError> {
        let folder = ModelFolder::open(self.config.models(), from)?;
        self.sources.check_ids(&folder)?;
        start_from(folder, &self.config.model, objective.parameters())
    }

    fn evaluates(&self) -> bool {
        self.valid.is_some()
    }

    fn keeps_best(&self) -> Option<KeepBest> {
        (self.valid.is_some() && self.config.keeps_best()).then(|| KeepBest::of(&self.config.eval))
    }

    fn evaluate(
        &mut self,
        objective: &mut Box<dyn Objective>,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let Some(valid) = &self.valid else { return Ok(None) };
        let Config { train, model, own, .. } = self.config;
        let evaluation = valid.evaluate(objective.as_mut(), train, own, comm, watch)?;
        let mut found = measures(&evaluation, valid.cut(train, model, own)?);
        if let Some(deciding) = &self.deciding {
            found.decide = Some(deciding.evaluate(objective.as_mut(), train, own, comm, watch)?.loss);
        }
        Ok(Some(found))
    }

    fn model_config(&self, _: &Box<dyn Objective>) -> Value {
        hugging_face_config(&self.config.model)
    }

    fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        Some(&self.tokenizer)
    }

    fn stored(
        &self,
        _: &Box<dyn Objective>,
        _: usize,
        weights: Vec<(String, Tensor)>,
    ) -> Vec<(String, Tensor)> {
        as_stored(&self.config.model, weights)
    }

    fn read(&self, objective: &Box<dyn Objective>, _: usize, path: &Path) -> Result<Vec<Tensor>, TrainError> {
        read_weights(path, &self.config.model, objective.parameters().specs())
    }
}

fn measures(evaluation: &Evaluation, cut: Cut) -> Measures {
    let named = |(name, value): (&str, f64)| (format!("valid/{name}"), value);
    let mut values = vec![("loss", evaluation.loss), ("ppl", evaluation.ppl)];
    values.extend(evaluation.of_text.map(|text| ("bpc", text.bits_per_symbol)));
    values.extend(evaluation.of_pairs.map(|pairs| ("accuracy", pairs.accuracy)));
    Measures {
        lead: evaluation.loss,
        better: Better::Lower,
        decide: None,
        tie: None,
        row: json!(evaluation),
        scalars: values.into_iter().map(named).collect(),
        lines: vec![format!("validation: {} ({cut})", evaluation.describe())],
    }
}
