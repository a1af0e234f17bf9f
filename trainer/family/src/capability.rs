//! What families can do beyond training. A command asks for a capability, and never which family it has before it.

use std::any::Any;
use std::path::PathBuf;

use segue_configs::ModelConfig;
use segue_dataloader::Split;
use segue_decode::{BeamSettings, Decoder, Decoding};
use segue_kernels::TrainError;
use segue_measure::translation::Bleu;
use serde::{Deserialize, Serialize};

use crate::parity::Cases;
use crate::question::{Asked, Asker};
use crate::trained::Trained;

/// A value in [`Entry::capabilities`](crate::Entry::capabilities): a family has one of a type at most.
pub trait Capability: Any + Send + Sync {
    /// What a model with it is called, as in "this command needs a language model".
    const OF: &'static str;
}

/// A capability of the family of this model, if it has it.
pub fn find<T: Capability>(model: &ModelConfig) -> Option<&'static T> {
    crate::of(model).capability()
}

/// A capability of the family of this model. Refuses a family without.
pub fn need<T: Capability>(model: &ModelConfig) -> Result<&'static T, TrainError> {
    let why = || format!("model.model_type is `{}`, and this command needs {}", model.model_type(), T::OF);
    find(model).ok_or_else(|| TrainError::Layout(why()))
}

/// Models that are held against reference numbers, tensor by tensor: `segue parity`. A tensor that nobody has taken out of the cases is an error.
pub struct Parity(pub fn(Trained, &mut Cases) -> Result<(), TrainError>);

impl Capability for Parity {
    const OF: &'static str = "a model with reference numbers";
}

/// Models that write text: `segue generate`.
pub struct Writes(pub OpenWriter);

/// Opens a model to write with a memory of this length, if the user gives one.
pub type OpenWriter = fn(Trained, Option<usize>) -> Result<Box<dyn Writer>, TrainError>;

impl Capability for Writes {
    const OF: &'static str = "a model that writes";
}

/// An open model that writes, and the words it writes in.
pub trait Writer {
    /// Tokens of a prompt, one at least.
    fn encode(&self, prompt: &str) -> Result<Vec<i64>, TrainError>;

    /// Tokens of a line of a conversation; there may be none where it `goes_on` from what was read and written before.
    fn encode_line(&self, line: &str, goes_on: bool) -> Result<Vec<i64>, TrainError> {
        let _ = goes_on;
        self.encode(line)
    }

    /// Whether a line of a conversation goes on from those before it; else each is answered by itself.
    fn remembers(&self) -> bool {
        true
    }

    /// The text of what was `written` after a prompt, which people are not shown again.
    fn decode(&self, prompt: &[i64], written: &[i64]) -> Written {
        let mut stream = self.stream(prompt);
        let text: String = written.iter().map(|token| stream.push(*token)).collect();
        let text = text + &stream.rest();
        Written { whole: text.clone(), text }
    }

    /// What people see of a text that grows, token by token.
    fn stream<'a>(&'a self, prompt: &[i64]) -> Box<dyn TextStream + 'a>;

    /// A decoder of `texts` rows that has read nothing. `seed`: of what it draws beside tokens.
    fn decoder(&self, texts: usize, seed: u64) -> Box<dyn Decoder + '_>;

    /// A decoder of `texts` rows that writes, from the first of two prompts to the second, what lies between them; `None` where nothing does. All rows begin as
    /// an empty prompt does.
    fn between(&self, prompts: [&[i64]; 2], texts: usize) -> Option<Box<dyn Decoder + '_>> {
        let _ = (prompts, texts);
        None
    }

    /// What opening it has shown, a line each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Tokens that may be chosen: those of lower numbers.
    fn names(&self) -> usize;

    /// The token of unknown words, which is not chosen unless asked for.
    fn unknown(&self) -> Option<i64> {
        None
    }

    /// The token that ends a text; `None` of texts that never end of themselves.
    fn end(&self) -> Option<i64> {
        None
    }

    /// The token at which a text may be asked to end.
    fn sentence_end(&self) -> Option<i64> {
        self.end()
    }
}

/// A text that was written.
pub struct Written {
    /// As people are shown it, with the prompt where it goes on from that.
    pub whole: String,
    /// What was written alone.
    pub text: String,
}

/// Text that is shown while it is written.
pub trait TextStream {
    /// Takes the next token; gives what can be shown now.
    fn push(&mut self, token: i64) -> String;

    /// What is left to show at the end.
    fn rest(&mut self) -> String;
}

/// Tokens as words with blanks between them; what is no word is not shown.
pub struct Words<F> {
    word: F,
    began: bool,
}

impl<F: Fn(i64) -> Option<String>> Words<F> {
    /// Tokens whose words `word` tells.
    pub fn new(word: F) -> Self {
        Self { word, began: false }
    }
}

impl<F: Fn(i64) -> Option<String>> TextStream for Words<F> {
    fn push(&mut self, token: i64) -> String {
        let Some(word) = (self.word)(token) else { return String::new() };
        let blank = if std::mem::replace(&mut self.began, true) { " " } else { "" };
        format!("{blank}{word}")
    }

    fn rest(&mut self) -> String {
        String::new()
    }
}

/// Models that translate: `segue translate`.
pub struct Translates(pub fn(Trained) -> Result<Box<dyn Translator>, TrainError>);

impl Capability for Translates {
    const OF: &'static str = "a model that translates";
}

/// An open model that translates.
pub trait Translator {
    /// Whether several sentences take less time together than one by one.
    fn takes_many(&self) -> bool;

    /// Translations of each sentence: the best first, as many as there are beams at most, or those drawn; none of an empty one. They depend on the sentence, and on
    /// the seed of draws, alone. A sentence that is longer than the model reads is an error.
    fn translate(&self, sentences: &[&str], decoding: &Decoding)
    -> Vec<Result<Vec<Translation>, TrainError>>;
}

/// A translation that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Translation {
    /// Its text.
    pub text: String,
    /// Number of tokens, without the end.
    pub tokens: usize,
    /// ln P of its tokens and of its end.
    pub log_prob: f64,
    /// What it was chosen by.
    pub score: f64,
    /// Pieces of source and translation, where alignments were asked for.
    pub pieces: [Vec<String>; 2],
    /// For each piece of the translation the piece of the source that the last layer attends to most, where asked for.
    pub alignments: Vec<usize>,
}

/// Models that translate a split of their corpus, to be scored: `segue eval bleu`. A collective call.
pub struct TranslatesSplits(
    pub fn(Trained, &SplitToTranslate, &mut Asker) -> Result<TranslatedSplit, TrainError>,
);

impl Capability for TranslatesSplits {
    const OF: &'static str = "a model that translates";
}

/// What is to be translated, and how.
#[derive(Debug, Clone)]
pub struct SplitToTranslate {
    /// The path that the model was opened by, which may be that of its run.
    pub named: PathBuf,
    /// The corpus; where there is none, that of the run.
    pub corpus: Option<String>,
    /// Its split.
    pub split: Split,
    /// Pairs that are translated, from the first on; where there is no number, all of them.
    pub pairs: Option<u64>,
    /// Values that win over the configuration of the run, as `eval.beams=5`.
    pub overrides: Vec<String>,
}

/// The translations of a split.
#[derive(Debug, Clone)]
pub struct TranslatedSplit {
    /// The corpus.
    pub corpus: PathBuf,
    /// Pairs of the split.
    pub pairs: usize,
    /// Mean loss of all of them, in nats a target token.
    pub loss: f64,
    /// How translations were searched for.
    pub search: BeamSettings,
    /// Tokens that a translation might have more than its source.
    pub more_tokens: usize,
    /// How the run scores translations.
    pub bleu: Bleu,
    /// Those that were asked for, in the order of the corpus.
    pub translations: Vec<TranslatedPair>,
}

/// A translation, with what it is of and what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedPair {
    /// The sentence.
    pub source: String,
    /// Its translation in the corpus.
    pub reference: String,
    /// That of the model.
    pub translation: String,
}

/// What a family measures of its trained models: `segue eval NAME`.
pub struct Evaluations(pub &'static [Asked]);

impl Capability for Evaluations {
    const OF: &'static str = "a model with evaluations of its own";
}

/// What a family predicts with its trained models: `segue predict`.
pub struct Predicts(pub Asked);

impl Capability for Predicts {
    const OF: &'static str = "a model that predicts";
}
