//! A trained model: its bounds over a split, and the sentences that it writes.

use std::path::Path;

use segue_configs::TrainConfig;
use segue_data_error::DataError;
use segue_dataloader::{Corpus, Split};
use segue_decode::Decoder as Writing;
use segue_family::{
    Answer, Asked, Asker, Evaluations, Question, TextStream, Trained, Writer, Writes, read_tables,
};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_layers::recurrent::State;
use segue_sentences::SentenceTexts;
use segue_tokenizer::{self as tokenizer, Tokenizer};
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::data::{Examples, side_by_side};
use crate::evaluate::estimate;
use crate::keys::{DataConfig, LatentConfig, LatentEvalConfig};
use crate::learner::Model;
use crate::network::Decoder;

/// The capability.
pub static EVALUATIONS: Evaluations = Evaluations(&[Asked::of::<LatentBounds>()]);

impl Model {
    /// The model of a folder, with its weights.
    fn of(trained: &Trained) -> Result<Self, TrainError> {
        let Some(config) = trained.config.get::<LatentConfig>() else {
            return Err(trained.is_not("a model with latent variables"));
        };
        let [(_, decoder), (encoder, of_encoder)] = Self::specs(config);
        let (decoder, encoder) = (trained.parameters(decoder)?, trained.network(encoder, of_encoder)?);
        let model = Self::over(config, decoder, encoder, 0);
        read_tables(&trained.path, model.tables())?;
        Ok(model)
    }
}

/// What a model is evaluated on, and how.
#[derive(Debug, clap::Args)]
pub struct BoundsOptions {
    /// Corpus of sentences, built with the tokenizer of the model [default: the one that its run was trained on].
    #[arg(long)]
    corpus: Option<String>,
    /// Split of the corpus: train, valid or test.
    #[arg(long, default_value = "valid")]
    split: Split,
    /// Samples of a sentence [default: eval.samples of the run].
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..=1 << 16))]
    samples: Option<i64>,
    /// Tokens of a sentence that are read, its end among them; 0 for all [default: data.max_length of the run].
    #[arg(long)]
    max_length: Option<usize>,
    /// Seed of the samples [default: train.seed of the run].
    #[arg(long)]
    seed: Option<u64>,
}

/// Bounds on ln p(x), and what latents tell of a split.
pub struct LatentBounds;

impl Question for LatentBounds {
    type Options = BoundsOptions;
    const NAME: &'static str = "latent";
    const ABOUT: &'static str =
        "Bound the likelihood of a model with latent variables, and measure what they tell of sentences";
    const EXAMPLE: &'static str = "  segue eval latent --model runs/captions --split test --samples 500";

    fn answer(trained: Trained, options: BoundsOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let model = Model::of(&trained)?;
        let data: Result<DataConfig, TrainError> = trained.section("data");
        let mut data = match (data, &options.corpus) {
            (Ok(data), _) => data,
            // A folder from elsewhere has no run: defaults hold.
            (Err(_), Some(_)) => DataConfig::default(),
            (Err(why), None) => return Err(why),
        };
        data.corpus = options.corpus.unwrap_or(data.corpus);
        data.max_length = options.max_length.unwrap_or(data.max_length);
        let mut eval: LatentEvalConfig = trained.section("eval").unwrap_or_default();
        eval.samples = options.samples.unwrap_or(eval.samples);
        // As the run's own evaluations draw them.
        let of_run = || trained.section::<TrainConfig>("train").map_or(1, |train| train.seed);
        let seed = options.seed.unwrap_or_else(of_run);
        let examples = examples(&trained, &data, options.split)?;
        let found = estimate(&model, &examples, &eval, seed, asker.comm, &mut asker.watch)?;
        found.lines().iter().for_each(|line| (asker.tell)(line));
        let mut value = found.row();
        value["model"] = json!(trained.path);
        value["seed"] = json!(seed);
        if let Examples::Sentences(texts) = &examples {
            value["corpus"] = json!(data.corpus);
            value["split"] = json!(options.split.name());
            value["max_length"] = json!(data.max_length);
            value["cut"] = json!(texts.cut());
        }
        Ok(Answer { value, ..Answer::default() })
    }
}

/// What a model is evaluated on: symbols, or a split of a corpus whose tokenizer is the model's.
fn examples(trained: &Trained, data: &DataConfig, split: Split) -> Result<Examples, TrainError> {
    if data.symbols > 0 && data.corpus.is_empty() {
        return Ok(Examples::Symbols(data.symbols as u32));
    }
    if data.corpus.is_empty() {
        let why =
            format!("{} does not record its corpus\nhint: add --corpus FOLDER", trained.named.display());
        return Err(DataError::Usage(why).into());
    }
    let corpus = Corpus::open(Path::new(&data.corpus))?;
    if Tokenizer::load(&trained.path)?.fingerprint() != corpus.info().tokenizer.fingerprint {
        let what = format!(
            "its tokenizer is another one than {} has: its ids stand for other words\nhint: build the corpus with --tokenizer and this folder",
            corpus.dir().display()
        );
        return Err(TrainError::OtherModel { path: trained.path.clone(), what });
    }
    Ok(Examples::Sentences(SentenceTexts::open(&corpus, split, data.max_length)?))
}

/// The capability: of an empty prompt a sentence from the prior, of any other one from its posterior.
pub static WRITES: Writes = Writes(|trained, memory| {
    if memory.is_some() {
        let why = "--mem-len is of models with a memory, which this model has not\nhint: leave it out";
        return Err(DataError::Usage(why.into()).into());
    }
    let model = Model::of(&trained)?;
    if trained.section::<DataConfig>("data").is_ok_and(|data| data.symbols > 0) {
        let why = "the model was trained on symbols, which are no text\nhint: `segue eval latent` scores it";
        return Err(DataError::Usage(why.into()).into());
    }
    Ok(Box::new(SentenceWriter { model, tokenizer: Tokenizer::load(&trained.path)? }))
});

/// A model that writes sentences.
struct SentenceWriter {
    model: Model,
    tokenizer: Tokenizer,
}

impl SentenceWriter {
    fn end(&self) -> i64 {
        self.model.config.eos_token_id as i64
    }

    fn writing(&self, latents: Latents) -> Box<dyn Writing + '_> {
        let decoder = self.model.decoder();
        Box::new(SentenceInTheMaking { writer: self, decoder, latents, state: None })
    }
}

impl Writer for SentenceWriter {
    /// Its tokens and the end, which stands before the first token that is written.
    fn encode(&self, prompt: &str) -> Result<Vec<i64>, TrainError> {
        let mut ids = Vec::new();
        self.tokenizer.encode(prompt, &mut ids);
        Ok(ids.into_iter().map(i64::from).chain([self.end()]).collect())
    }

    /// Each sentence is read by itself.
    fn remembers(&self) -> bool {
        false
    }

    fn stream<'a>(&'a self, _: &[i64]) -> Box<dyn TextStream + 'a> {
        Box::new(SentenceStream {
            end: self.end(),
            stream: tokenizer::TextStream::new(&self.tokenizer, Vec::new()),
        })
    }

    fn decoder(&self, texts: usize, seed: u64) -> Box<dyn Writing + '_> {
        let prompt = Tensor::empty([texts as i64, 0], (Kind::Int64, Device::Cpu));
        self.writing(Latents::Awaited { prompt, noise: Noise::new(seed) })
    }

    fn between(&self, prompts: [&[i64]; 2], texts: usize) -> Option<Box<dyn Writing + '_>> {
        let two = side_by_side(prompts.map(<[i64]>::to_vec).into(), self.end());
        Some(self.writing(Latents::Known(self.model.between(&two, texts))))
    }

    fn names(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    fn unknown(&self) -> Option<i64> {
        self.tokenizer.unk_id().map(i64::from)
    }

    fn end(&self) -> Option<i64> {
        Some(self.end())
    }
}

/// A sentence without its end.
struct SentenceStream<'a> {
    end: i64,
    stream: tokenizer::TextStream<'a>,
}

impl TextStream for SentenceStream<'_> {
    fn push(&mut self, token: i64) -> String {
        if token == self.end { String::new() } else { self.stream.push(token as u32) }
    }

    fn rest(&mut self) -> String {
        self.stream.rest()
    }
}

/// The latent variables of sentences in the making.
enum Latents {
    /// Drawn when the first token is asked for: from the posterior of what was read, `[texts, positions]`, or where nothing was, from the prior.
    Awaited { prompt: Tensor, noise: Noise },
    /// `[texts, 1, latents]`.
    Known(Tensor),
}

/// Sentences that are written side by side.
struct SentenceInTheMaking<'a> {
    writer: &'a SentenceWriter,
    decoder: Decoder,
    latents: Latents,
    state: Option<State>,
}

impl SentenceInTheMaking<'_> {
    /// Their latents, which are drawn now if they were not.
    fn latents(&mut self) -> Tensor {
        let z = match &self.latents {
            Latents::Known(z) => z.shallow_clone(),
            Latents::Awaited { prompt, noise } => {
                let (model, end) = (&self.writer.model, self.writer.end());
                let [texts, positions] = prompt.size()[..] else { unreachable!("prompts have two axes") };
                match positions {
                    0 => model.prior(texts, noise),
                    _ => {
                        let ids = Tensor::cat(
                            &[prompt, &Tensor::full([texts, 1], end, (Kind::Int64, prompt.device()))],
                            1,
                        );
                        let lengths = Tensor::full([texts], positions + 1, (Kind::Int64, prompt.device()));
                        let sentences = crate::network::Sentences { ids, lengths, end };
                        let posterior = tch::no_grad(|| model.encoder().posterior(&sentences));
                        model.draws(&posterior, 1, noise)
                    }
                }
            }
        };
        self.latents = Latents::Known(z.shallow_clone());
        z
    }
}

impl Writing for SentenceInTheMaking<'_> {
    fn read(&mut self, ids: &Tensor) {
        if let Latents::Awaited { prompt, .. } = &mut self.latents {
            *prompt = Tensor::cat(&[&*prompt, ids], 1);
        }
    }

    fn step(&mut self, last: &Tensor) -> Tensor {
        let z = self.latents();
        tch::no_grad(|| {
            let latents = self.decoder.read_latents(&z);
            let (scores, state) = self.decoder.step(last, &latents, self.state.take());
            self.state = state;
            scores
        })
    }

    fn keep(&mut self, rows: &Tensor) {
        let kept = |of: &Tensor| of.index_select(0, rows);
        match &mut self.latents {
            Latents::Known(z) => *z = kept(z),
            Latents::Awaited { prompt, .. } => *prompt = kept(prompt),
        }
        if let Some(State { hidden, cell }) = &self.state {
            self.state = Some(State { hidden: kept(hidden), cell: kept(cell) });
        }
    }

    fn device(&self) -> Device {
        Device::Cpu
    }
}
