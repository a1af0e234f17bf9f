//! Models of sentences with latent variables, trained for Monte-Carlo objectives whose information between sentence and latents is constrained (Melis 2023, chapter 5). See
//! `README.md` beside this file.
//!
//! [`Scores`] are what samples say of examples, of which an [`Objective`] is made; an [`Estimator`] gives its gradient by the parameters of q. A [`Running`] estimate
//! evaluates with many samples. Everything is per example: a batch is no part of any bound.

mod codebook;
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
mod trained;

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

pub use codebook::Codebook;
pub use data::{Examples, SentenceReader, sentences};
pub use estimator::Estimator;
pub use evaluate::{Found, estimate};
pub use keys::{
    DataConfig, EstimatorKind, LatentConfig, LatentEvalConfig, LatentKind, ObjectiveConfig, ObjectiveKind,
};
pub use latents::{Categorical, Gaussian};
pub use learner::{Model, Training, divergence};
pub use network::{Decoder, Dropout, Encoder, LatentSizes, NetworkKind, Posterior, Sentences, Sizes};
pub use objective::{Counts, Factors, Objective, Term};
pub use running::Running;
pub use scores::{Scores, log_mean_exp};

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<LatentConfig>,
    open,
    fit,
    work,
    capabilities: &[&trained::EVALUATIONS, &trained::WRITES],
};

/// What a run is trained and evaluated on.
struct Opened {
    /// The corpus and its tokenizer, where there are sentences.
    corpus: Option<(Corpus, Arc<Tokenizer>)>,
    train: Arc<Examples>,
    valid: Option<Arc<Examples>>,
}

fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let data = config.own.get::<DataConfig>().into_owned();
    if data.symbols > 0 {
        fit_vocabulary(config, data.symbols, "symbols", 0)?;
        let train = Arc::new(Examples::Symbols(data.symbols as u32));
        return Ok(Box::new(Opened { corpus: None, valid: Some(train.clone()), train }));
    }
    if data.corpus.is_empty() {
        let why = "data.corpus is not set\nhint: add data.corpus=FOLDER, which `segue data build --preset sentences` makes";
        return Err(TrainError::Layout(why.into()));
    }
    let corpus = Corpus::open(Path::new(&data.corpus))?;
    let examples = |split| {
        let texts = SentenceTexts::open(&corpus, split, data.max_length)?;
        Ok::<_, TrainError>(Arc::new(Examples::Sentences(texts)))
    };
    let has_valid = corpus.info().splits.contains_key(&Split::Valid);
    let (train, valid) = (examples(Split::Train)?, has_valid.then(|| examples(Split::Valid)).transpose()?);
    let tokenizer = Arc::new(corpus.tokenizer()?);
    let Some(end) = tokenizer.eos_id() else {
        let why = "the tokenizer of the corpus has no token that ends a sentence\nhint: build it with `segue data build --preset sentences`";
        return Err(TrainError::Layout(why.into()));
    };
    fit_vocabulary(config, tokenizer.vocab_size(), "tokens", end)?;
    Ok(Box::new(Opened { corpus: Some((corpus, tokenizer)), train, valid }))
}

fn fit(config: &mut Config) -> Result<(), TrainError> {
    let is_known = own::<LatentConfig>(&config.model).vocab_size > 0;
    let data = config.own.get::<DataConfig>();
    let has_data = !data.corpus.is_empty() || data.symbols > 0;
    drop(data);
    fit_to_data(config, (has_data, is_known), "a corpus", open)
}

/// Takes the vocabulary of the data, of `found` tokens or symbols. An error where the recipe names another.
fn fit_vocabulary(config: &mut Config, found: usize, what: &str, end: u32) -> Result<(), TrainError> {
    let mut fitted = own::<LatentConfig>(&config.model).clone();
    if fitted.vocab_size > 0 && fitted.vocab_size != found {
        let given = fitted.vocab_size;
        let why = format!("model.vocab_size is {given}, and the data has {found} {what}\nhint: leave it out");
        return Err(TrainError::Layout(why));
    }
    (fitted.vocab_size, fitted.eos_token_id) = (found, end as usize);
    config.model = fitted.into();
    Ok(())
}

impl Opened {
    /// Hash of the data, or its description.
    fn fingerprint(&self) -> String {
        match &self.corpus {
            Some((corpus, _)) => corpus.fingerprint().into(),
            None => format!("symbols-{}", self.train.count()),
        }
    }
}

impl Job for Opened {
    fn data(&self) -> String {
        self.fingerprint()
    }

    fn check_data(&self) -> Result<(), TrainError> {
        self.corpus.iter().try_for_each(|(corpus, _)| Ok(corpus.check_headers()?))
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
            if let Some(cut) = texts.map(|examples| examples.cut()).filter(|cut| *cut > 0) {
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
    let longest = match data.max_length {
        _ if data.symbols > 0 => 1,
        0 => DataConfig::default().max_length,
        tokens => tokens,
    };
    let tokens = (config.train.micro_batch * longest) as f64;
    let sizes = section.sizes();
    let samples =
        if section.latents == LatentKind::Codebook { 1.0 } else { objective.counts().drawn() as f64 };
    let lstm = |inputs: i64, units: i64| (4 * units * (inputs + units)) as f64;
    let written = (sizes.words * sizes.decoder) as f64;
    let (encoder, decoder) = match section.network {
        NetworkKind::Recurrent => (
            2.0 * lstm(sizes.embed, sizes.encoder),
            lstm(sizes.embed + sizes.latents.width(), sizes.decoder) + written,
        ),
        NetworkKind::Feedforward => (
            ((sizes.embed + sizes.encoder) * sizes.encoder) as f64,
            ((sizes.latents.width() + sizes.decoder) * sizes.decoder) as f64 + written,
        ),
    };
    // Gates, state and output of each unit.
    let activations = tokens * 6.0 * (2.0 * sizes.encoder as f64 + samples * sizes.decoder as f64);
    let turn = |steps: u64, networks: Vec<usize>| {
        let forward = tokens * (encoder + samples * decoder) * PER_MULTIPLY_ADD as f64;
        let micro_step = MicroStep::of_products(config.train.micro_batch as u64, 1, forward, activations);
        TurnWork { steps, networks, micro_step }
    };
    let (decoder, encoder) = (keys::DECODER, keys::ENCODER);
    let turns = match objective.encoder_steps {
        steps if steps > 0 && objective.encoder_steps_until == 0 => {
            vec![turn(steps, vec![encoder]), turn(1, vec![decoder])]
        }
        _ => vec![turn(1, vec![decoder, encoder])],
    };
    let counted = if data.symbols > 0 { "symbols" } else { "sentences" };
    Ok(Work::of_turns(Model::specs(section).into(), turns, |_| Role::Other).counted_in(counted))
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
        self.data.fingerprint()
    }

    fn data_key(&self) -> &'static str {
        "data.corpus"
    }

    fn labels(&self) -> Labels {
        let counted = if self.data.corpus.is_some() { "sentences" } else { "symbols" };
        Labels {
            doing: "train",
            step_of: counted,
            per_step: self.config.train.lanes as u64,
            rate_of: counted,
            loss_as: LossAs::Loss,
            group: None,
            sources: ("source", Vec::new()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let reader = SentenceReader {
            examples: self.data.train.clone(),
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
        let Some(examples) = &self.data.valid else { return Ok(None) };
        let found = estimate(&training.model, examples, &self.eval, self.config.train.seed, comm, watch)?;
        Ok(Some(found.measures()))
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
        self.data.corpus.as_ref().map(|(_, tokenizer)| tokenizer)
    }
}
