//! A run: pairs of sentences from a corpus, batches of about as many tokens each.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::Config;
use segue_cost::Work;
use segue_dataloader::{Corpus, Reader, Split};
use segue_engine::{
    Begun, Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch,
};
use segue_family::{Job, ShownLane, own};
use segue_kernels::{Compute, TrainError};
use segue_sentences::{
    BatchBudget, PairBatch, PairReader, PairSymbols, SentencePairs, TokenBatches, check_preset,
};
use segue_tokenizer::Tokenizer;
use serde_json::Value;

use super::cost;
use super::evaluate::{Validation, Vocabulary};
use super::keys::{DataConfig, TranslationConfig, TranslationEvalConfig};
use super::objective::{PairTensors, Translator};

/// Opens the corpus of a run, and gives the model its vocabulary.
pub fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let corpus = open_corpus(config)?;
    let pairs = Arc::new(SentencePairs::open(&corpus, Split::Train)?);
    let data = config.own.get::<DataConfig>();
    let budget = BatchBudget { tokens: data.batch_tokens, sentences: data.batch_sentences };
    let batches = Arc::new(TokenBatches::new(&pairs, budget, config.train.seed)?);
    let tokenizer = Arc::new(corpus.tokenizer()?);
    fit_to(config, &tokenizer)?;
    Ok(Box::new(Pairs { corpus, tokenizer, pairs, batches }))
}

/// Gives the model the vocabulary of the corpus, where the recipe leaves it open.
pub fn fit(config: &mut Config) -> Result<(), TrainError> {
    let data = config.own.get::<DataConfig>();
    let is_known = config.model.vocab_size() > 0;
    // A cost is told of a corpus that is elsewhere too.
    if is_known && (data.corpus.is_empty() || !Path::new(&data.corpus).exists()) {
        return Ok(());
    }
    let corpus = open_corpus(config)?;
    check_preset(&corpus)?;
    if is_known { Ok(()) } else { fit_to(config, &corpus.tokenizer()?) }
}

/// What a run takes: as many tokens on either side as a batch may have.
pub fn work(config: &Config) -> Result<Work, TrainError> {
    Ok(cost::work(own(&config.model), config.own.get::<DataConfig>().batch_tokens))
}

fn open_corpus(config: &Config) -> Result<Corpus, TrainError> {
    let data = config.own.get::<DataConfig>();
    if data.corpus.is_empty() {
        let why = "data.corpus is not set\nhint: add data.corpus=FOLDER, which `segue data build --preset pairs` makes";
        return Err(TrainError::Layout(why.into()));
    }
    Ok(Corpus::open(Path::new(&data.corpus))?)
}

fn fit_to(config: &mut Config, tokenizer: &Tokenizer) -> Result<(), TrainError> {
    let Some(model) = config.model.get_mut::<TranslationConfig>() else { return Ok(()) };
    let given = model.vocab_size;
    model.fit_tokenizer(tokenizer)?;
    if given > 0 && given != model.vocab_size {
        let why = format!(
            "model.vocab_size is {given}, and the corpus has {} tokens, padding among them\nhint: leave it out",
            model.vocab_size
        );
        return Err(TrainError::Layout(why));
    }
    Ok(())
}

/// The pairs of a corpus.
struct Pairs {
    corpus: Corpus,
    tokenizer: Arc<Tokenizer>,
    pairs: Arc<SentencePairs>,
    batches: Arc<TokenBatches>,
}

impl Pairs {
    /// Reads these lanes of each step.
    fn reader(&self, lanes: usize, range: Range<usize>, padding: i64) -> Result<PairReader, TrainError> {
        let symbols = PairSymbols { start: padding, pad: padding };
        Ok(PairReader::new(self.pairs.clone(), self.batches.clone(), lanes, range, symbols)?)
    }
}

impl Job for Pairs {
    fn data(&self) -> String {
        self.corpus.fingerprint().into()
    }

    fn check_data(&self) -> Result<(), TrainError> {
        Ok(self.corpus.check_headers()?)
    }

    fn check_validation(&self, _: &Config) -> Result<(), TrainError> {
        match self.corpus.info().splits.contains_key(&Split::Valid) {
            true => Ok(()),
            false => Err(TrainError::Layout(
                "data.corpus has no validation split\nhint: build it with --valid".into(),
            )),
        }
    }

    fn lane(&self, config: &Config, step: u64, lane: usize) -> Result<Option<ShownLane>, TrainError> {
        let model: &TranslationConfig = own(&config.model);
        let reader = self.reader(config.train.lanes, lane..lane + 1, model.pad_token_id as i64)?;
        let batches = { reader }.read(step)?;
        Ok(batches.first().map(|batch| super::shown::lane(batch, &self.tokenizer)))
    }

    fn train(
        &self,
        config: &Config,
        compute: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let model: &TranslationConfig = own(&config.model);
        let data = config.own.get::<DataConfig>();
        let eval = config.own.get::<TranslationEvalConfig>().into_owned();
        let words = Vocabulary { tokenizer: self.tokenizer.clone(), padding: model.pad_token_id as i64 };
        let validation = Validation::open(&self.corpus, Split::Valid, &data, eval, words)?;
        let run = Translation { config, model, data: self, validation, compute };
        let translator = Translator::fresh(model, config.train.seed, compute).trained_by(
            &config.own.get(),
            &config.own.get(),
            config.schedule_steps(),
        );
        segue_engine::train(config, run, translator, comm, stop, on_event)
    }
}

/// A run over them.
struct Translation<'a> {
    config: &'a Config,
    model: &'a TranslationConfig,
    data: &'a Pairs,
    validation: Option<Validation>,
    compute: Compute,
}

impl Family for Translation<'_> {
    type Learner = Translator;
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
            step_of: "batches",
            per_step: self.config.train.lanes as u64,
            rate_of: "tokens",
            loss_as: LossAs::Perplexity,
            group: None,
            sources: ("source", Vec::new()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let padding = self.model.pad_token_id as i64;
        let reader = self.data.reader(place.layout.lanes, place.layout.lane_range(), padding)?;
        let device = self.compute.device();
        let prepared = move |read: Vec<PairBatch>| {
            Prepared::of(read.iter().map(|batch| PairTensors::of(batch, device)).collect())
        };
        Ok(Box::new(reader.map(prepared)))
    }

    fn begin(&self, learner: &Translator, from: &Path) -> Result<Begun, TrainError> {
        super::folder::begin(
            self.config.models(),
            self.model,
            learner.parameters(),
            &self.data.tokenizer,
            from,
        )
    }

    fn evaluates(&self) -> bool {
        self.validation.is_some()
    }

    fn keeps_best(&self) -> Option<KeepBest> {
        (self.evaluates() && self.config.keeps_best()).then(|| KeepBest::of(&self.config.eval))
    }

    fn evaluate(
        &mut self,
        learner: &mut Translator,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        self.validation.as_ref().map(|validation| validation.measure(learner, comm, watch)).transpose()
    }

    fn model_config(&self, _: &Translator) -> Value {
        segue_language::hugging_face_config(&self.config.model)
    }

    fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        Some(&self.data.tokenizer)
    }
}
