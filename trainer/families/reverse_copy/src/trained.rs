//! A trained model: how well it copies strings, and what it writes.

use segue_data_error::DataError;
use segue_decode::Decoder;
use segue_family::{Answer, Asker, Question, TextStream, Trained, Words, Writer, Writes};
use segue_kernels::TrainError;
use serde_json::json;

use super::data::{Strings, Use};
use super::keys::ReverseCopyConfig;
use super::model::{self, Copier};
use super::score;

/// Strings that are scored at once.
const GROUP: u64 = 64;

impl Copier {
    /// The model of a folder, with its weights, in single precision.
    pub fn of(trained: &Trained) -> Result<Self, TrainError> {
        let Some(config) = trained.config.get::<ReverseCopyConfig>() else {
            return Err(trained.is_not("a model of reverse copy"));
        };
        Ok(Self::over(config, trained.parameters(model::specs(config))?))
    }
}

/// Which strings are copied.
#[derive(Debug, clap::Args)]
pub struct StringsOptions {
    /// Tokens of a string [default: as many as in training].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    length: Option<u64>,
    /// Number of strings.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    strings: u64,
    /// Seed that they are drawn from: that of a training with as long strings gives those of its tests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How well strings are copied, of other lengths than in training too.
pub struct CopiedStrings;

impl Question for CopiedStrings {
    type Options = StringsOptions;
    const NAME: &'static str = "strings";
    const ABOUT: &'static str = "Measure how well a model of reverse copy writes strings of any length";
    const EXAMPLE: &'static str = "  segue eval strings --model runs/reverse-copy --length 20";

    fn answer(trained: Trained, options: StringsOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let copier = Copier::of(&trained)?;
        let trained_on = copier.config().length;
        let length = options.length.map_or(trained_on, |length| length as usize);
        let copier = copier.of_length(length);
        let strings = Strings::new(copier.config(), options.seed, Use::Test);
        let copied = score(&copier, &strings, (options.strings, GROUP), asker.comm, &mut asker.watch)?;
        let value = json!({
            "model": trained.path, "length": length, "trained_on": trained_on, "seed": options.seed, "copied": copied,
        });
        (asker.tell)(&format!("strings of {length} tokens: {}", copied.describe()));
        Ok(Answer { value, ..Answer::default() })
    }
}

/// The capability: a prompt is the numbers of tokens, and what is written is the same ones backwards, if the model is good.
pub static WRITES: Writes = Writes(|trained, memory| {
    if memory.is_some() {
        let why = "--mem-len is of models with a memory, which this model has not\nhint: leave it out";
        return Err(DataError::Usage(why.into()).into());
    }
    let copier = Copier::of(&trained)?;
    Ok(Box::new(StringWriter { copier }))
});

/// A model that writes strings.
struct StringWriter {
    copier: Copier,
}

impl Writer for StringWriter {
    /// A string of numbers, and the mark, after which the writing begins.
    fn encode(&self, prompt: &str) -> Result<Vec<i64>, TrainError> {
        let tokens = self.copier.config().tokens;
        let number = |word: &str| match word.parse::<usize>() {
            Ok(number) if number < tokens => Ok(number as i64),
            _ => Err(DataError::Usage(format!(
                "`{word}` is not a token of the model\nhint: give numbers from 0 to {}, with blanks between them",
                tokens - 1
            ))),
        };
        let mut ids = prompt.split_whitespace().map(number).collect::<Result<Vec<_>, _>>()?;
        ids.push(self.copier.config().end());
        Ok(ids)
    }

    /// Each string is copied by itself.
    fn remembers(&self) -> bool {
        false
    }

    fn stream<'a>(&'a self, _: &[i64]) -> Box<dyn TextStream + 'a> {
        let end = self.copier.config().end();
        Box::new(Words::new(move |token| (token != end).then(|| token.to_string())))
    }

    fn decoder(&self, texts: usize, _: u64) -> Box<dyn Decoder + '_> {
        Box::new(self.copier.copying(texts as i64))
    }

    fn names(&self) -> usize {
        self.copier.config().tokens + 1
    }

    fn end(&self) -> Option<i64> {
        Some(self.copier.config().end())
    }
}
