//! Models of sentences with latent variables, trained for Monte-Carlo objectives whose information between sentence and latents is constrained (Melis 2023, chapter 5). See
//! `README.md` beside this file.
//!
//! [`Scores`] are what samples say of examples, of which an [`Objective`] is made; an [`Estimator`] gives its gradient by the parameters of q. A [`Running`] estimate
//! evaluates with many samples. Everything is per example: a batch is no part of any bound.

mod config;
mod data;
mod estimator;
mod evaluate;
mod keys;
mod latents;
mod learner;
mod network;
mod objective;
mod running;
mod scores;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelType};
use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, TurnWork, Work};
use segue_dataloader::{Corpus, Reader, Split};
use segue_engine::{
    Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch,
};
use segue_family::{Entry, Job, fit_to_data, own};
use segue_kernels::{Compute, TrainError};
use segue_sentences::SentenceTexts;
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

pub use data::{SentenceReader, sentences};
pub use estimator::Estimator;
pub use evaluate::{Found, estimate};
pub use keys::{
    DataConfig, EstimatorKind, LatentConfig, LatentEvalConfig, LatentKind, ObjectiveConfig, ObjectiveKind,
};
pub use latents::{Categorical, Gaussian};
pub use learner::{Model, Training, divergence};
pub use network::{Decoder, Dropout, Encoder, LatentSizes, Posterior, Sentences, Sizes};
pub use objective::{Counts, Factors, Objective, Term};
pub use running::Running;
pub use scores::{Scores, log_mean_exp};

/// The family's line in the list.
pub static FAMILY: Entry =
    Entry { section: ModelType::of::<LatentConfig>, open, fit, work, capabilities: &[] };

/// The sentences of a corpus.
struct Opened {
    corpus: Corpus,
    tokenizer: Arc<Tokenizer>,
    train: Arc<SentenceTexts>,
    valid: Option<Arc<SentenceTexts>>,
}

fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let data = config.own.get::<DataConfig>().into_owned();
    if data.corpus.is_empty() {
        let why = "data.corpus is not set\nhint: add data.corpus=FOLDER, which `segue data build --preset sentences` makes";
        return Err(TrainError::Layout(why.into()));
    }
    let corpus = Corpus::open(Path::new(&data.corpus))?;
    let texts = |split| SentenceTexts::open(&corpus, split, data.max_length).map(Arc::new);
    let has_valid = corpus.info().splits.contains_key(&Split::Valid);
    let (train, valid) = (texts(Split::Train)?, has_valid.then(|| texts(Split::Valid)).transpose()?);
    let tokenizer = Arc::new(corpus.tokenizer()?);
    fit_vocabulary(config, &tokenizer)?;
    Ok(Box::new(Opened { corpus, tokenizer, train, valid }))
}

fn fit(config: &mut Config) -> Result<(), TrainError> {
    let is_known = own::<LatentConfig>(&config.model).vocab_size > 0;
    let has_data = !config.own.get::<DataConfig>().corpus.is_empty();
    fit_to_data(config, (has_data, is_known), "a corpus", open)
}

/// Takes the vocabulary of the corpus. An error where the recipe names another.
fn fit_vocabulary(config: &mut Config, tokenizer: &Tokenizer) -> Result<(), TrainError> {
    let mut fitted = own::<LatentConfig>(&config.model).clone();
    let found = tokenizer.vocab_size();
    if fitted.vocab_size > 0 && fitted.vocab_size != found {
        let given = fitted.vocab_size;
        let why =
            format!("model.vocab_size is {given}, and the corpus has {found} tokens\nhint: leave it out");
        return Err(TrainError::Layout(why));
    }
    let Some(end) = tokenizer.eos_id() else {
        let why = "the tokenizer of the corpus has no token that ends a sentence\nhint: build it with `segue data build --preset sentences`";
        return Err(TrainError::Layout(why.into()));
    };
    (fitted.vocab_size, fitted.eos_token_id) = (found, end as usize);
    config.model = fitted.into();
    Ok(())
}

impl Job for Opened {
    fn data(&self) -> String {
        self.corpus.fingerprint().into()
    }

    fn check_data(&self) -> Result<(), TrainError> {
        Ok(self.corpus.check_headers()?)
    }

    fn check_validation(&self, _: &Config) -> Result<(), TrainError> {
        match self.valid {
            Some(_) => Ok(()),
            None => {
                let why = "data.corpus has no validation split\nhint: build it with --valid";
                Err(TrainError::Layout(why.into()))
            }
        }
    }

    fn train(
        &self,
        config: &Config,
        _: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let section: &LatentConfig = own(&config.model);
        for (name, texts) in [("training", Some(&self.train)), ("validation", self.valid.as_ref())] {
            if let Some(cut) = texts.map(|texts| texts.cut()).filter(|cut| *cut > 0) {
                let what = format!(
                    "{cut} {name} sentences are longer than data.max_length={} and lose their end\nhint: data.max_length=0 reads whole ones",
                    config.own.get::<DataConfig>().max_length
                );
                on_event(Event::Warning { what });
            }
        }
        let model = Model::new(&config.train, section);
        let training = Training::new(model, &config.own.get());
        let eval = config.own.get::<LatentEvalConfig>().into_owned();
        segue_engine::train(config, Run { config, section, data: self, eval }, training, comm, stop, on_event)
    }
}

/// What a run takes, of sentences of the most tokens: the encoder reads a sentence in both directions, the decoder writes it from each sample.
fn work(config: &Config) -> Result<Work, TrainError> {
    let section: &LatentConfig = own(&config.model);
    let (data, objective) = (config.own.get::<DataConfig>(), config.own.get::<ObjectiveConfig>());
    let longest = if data.max_length > 0 { data.max_length } else { DataConfig::default().max_length };
    let tokens = (config.train.micro_batch * longest) as f64;
    let samples = objective.counts().drawn() as f64;
    let sizes = section.sizes();
    let lstm = |inputs: i64, units: i64| (4 * units * (inputs + units)) as f64;
    let encoder = 2.0 * lstm(sizes.embed, sizes.encoder);
    let decoder =
        lstm(sizes.embed + sizes.latents.width(), sizes.decoder) + (sizes.words * sizes.decoder) as f64;
    let forward = tokens * (encoder + samples * decoder) * PER_MULTIPLY_ADD as f64;
    // Gates, state and output of each unit.
    let activations = tokens * 6.0 * (2.0 * sizes.encoder as f64 + samples * sizes.decoder as f64);
    let micro_step = MicroStep::of_products(config.train.micro_batch as u64, 1, forward, activations);
    let turn = TurnWork { steps: 1, networks: vec![0, 1], micro_step };
    let work = Work::of_turns(Model::specs(section).into(), vec![turn], |_| Role::Other);
    Ok(work.counted_in("sentences"))
}

/// A run.
struct Run<'a> {
    config: &'a Config,
    section: &'a LatentConfig,
    data: &'a Opened,
    eval: LatentEvalConfig,
}

impl Family for Run<'_> {
    type Learner = Training;
    /// A batch is a function of its number: no place in the data to remember.
    type Cursor = ();

    fn fingerprint(&self) -> String {
        self.data.corpus.fingerprint().into()
    }

    fn data_key(&self) -> &'static str {
        "data.corpus"
    }

    fn labels(&self) -> Labels {
        Labels {
            doing: "train",
            step_of: "sentences",
            per_step: self.config.train.lanes as u64,
            rate_of: "sentences",
            loss_as: LossAs::Loss,
            group: None,
            sources: ("source", Vec::new()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let reader = SentenceReader {
            texts: self.data.train.clone(),
            end: self.section.eos_token_id as i64,
            seed: self.config.train.seed,
            all: self.config.train.lanes,
            own: place.layout.lane_range(),
            micro_batch: self.config.train.micro_batch,
        };
        Ok(Box::new(reader.map(Prepared::of)))
    }

    fn evaluates(&self) -> bool {
        self.data.valid.is_some()
    }

    fn evaluate(
        &mut self,
        training: &mut Training,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let Some(texts) = &self.data.valid else { return Ok(None) };
        let found = estimate(&training.model, texts, &self.eval, self.config.train.seed, comm, watch)?;
        Ok(Some(found.measures(self.eval.samples)))
    }

    fn keeps_best(&self) -> Option<KeepBest> {
        (self.evaluates() && self.config.keeps_best()).then(|| KeepBest::of(&self.config.eval))
    }

    fn model_config(&self, _: &Training) -> Value {
        let mut config = json!(self.section);
        config["model_type"] = json!("latent");
        config
    }

    fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        Some(&self.data.tokenizer)
    }
}
