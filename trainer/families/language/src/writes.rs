//! Language models that write: prompts in the words of their tokenizers, a memory to write from.

use segue_configs::ModelConfig;
use segue_data_error::DataError;
use segue_dataloader::sections::TextEvalConfig;
use segue_decode::Decoder;
use segue_family::{TextStream, Writer, Writes, Written};
use segue_kernels::TrainError;
use segue_tokenizer::{self as tokenizer, Tokenizer, TokenizerKind};

use super::family::next_tokens;
use super::folder::{ModelFolder, load_next_token};
use super::next_token::{NextToken, Writing};

/// The capability of each family whose models tell the next token.
pub static WRITES: Writes = Writes(|model, memory| {
    let folder = ModelFolder::of(model)?;
    let tokenizer = folder.tokenizer()?;
    let mut model = load_next_token(&folder)?;
    model.look(&context(&folder.config, writing_memory(&folder.config, memory)?, None, false)?);
    Ok(Box::new(TextWriter { model, tokenizer, notes: folder.notes }))
});

/// Positions of memory to write with; `None` for the model's. Refuses a model without, where nothing is
/// given: text is read and written a token at a time.
pub fn writing_memory(model: &ModelConfig, given: Option<usize>) -> Result<Option<usize>, TrainError> {
    let found = given.or(next_tokens(model)?.usual_memory(model));
    if found.is_none() && model.mem_len() == 0 {
        let message = "the model has no memory, and would go on from its last token alone";
        let hint =
            "hint: --mem-len N lets it see N tokens before: as many as the segment that it was trained on";
        return Err(DataError::Usage(format!("{message}\n{hint}")).into());
    }
    Ok(found)
}

/// Context of attention: what a command says of it, else the model's own.
pub fn context(
    model: &ModelConfig,
    mem_len: Option<usize>,
    clamp_len: Option<i64>,
    same_length: bool,
) -> Result<TextEvalConfig, TrainError> {
    let refuse = |message: &str| Err(DataError::Usage(message.into()).into());
    let family = next_tokens(model)?;
    let looks_elsewhere =
        same_length || clamp_len.is_some() || mem_len.is_some_and(|positions| positions > 1);
    if looks_elsewhere && !family.attends() {
        return refuse(
            "--same-length, --clamp-len and a --mem-len above 1 are of attention, which this model has not\nhint: --mem-len 0 \
             begins each segment without a state",
        );
    }
    if same_length && family.looks_both_ways(model) {
        return refuse(
            "same-length attention needs a model that attends to the left only, and this one attends \
             to both sides",
        );
    }
    let same_length = same_length || family.same_length(model);
    if same_length && mem_len.unwrap_or(model.mem_len()) == 0 {
        return refuse("same-length attention needs a memory of at least 1");
    }
    Ok(TextEvalConfig {
        mem_len: mem_len.map_or(-1, |n| n as i64),
        clamp_len: clamp_len.unwrap_or(0),
        same_length,
        ..Default::default()
    })
}

/// A model of the next token, and its tokenizer.
pub struct TextWriter {
    /// The model.
    pub model: Box<dyn NextToken>,
    /// The words that it writes in.
    pub tokenizer: Tokenizer,
    /// What is to be known of it, a line each.
    pub notes: Vec<String>,
}

impl TextWriter {
    /// Ids of a text, after those `before`; one at least, unless it goes on from another.
    fn ids(&self, text: &str, before: Vec<u32>, goes_on: bool) -> Vec<i64> {
        let mut ids = before;
        self.tokenizer.encode(text, &mut ids);
        if ids.is_empty() && !goes_on {
            ids.push(self.tokenizer.eos_id().unwrap_or(0));
        }
        ids.into_iter().map(i64::from).collect()
    }
}

/// Ids as tokenizers have them.
fn unsigned(ids: &[i64]) -> Vec<u32> {
    ids.iter().map(|id| *id as u32).collect()
}

impl Writer for TextWriter {
    /// No model can start from nothing: an empty prompt is the end of a sentence.
    fn encode(&self, prompt: &str) -> Result<Vec<i64>, TrainError> {
        Ok(self.ids(prompt, Vec::new(), false))
    }

    /// To a word model a line begins after an end of line.
    fn encode_line(&self, line: &str, goes_on: bool) -> Result<Vec<i64>, TrainError> {
        let before = match self.tokenizer.kind() {
            TokenizerKind::Word => self.tokenizer.eos_id().into_iter().collect(),
            _ => Vec::new(),
        };
        Ok(self.ids(line, before, goes_on))
    }

    fn decode(&self, prompt: &[i64], written: &[i64]) -> Written {
        let (prompt, written) = (unsigned(prompt), unsigned(written));
        let whole = self.tokenizer.decode(&[prompt.as_slice(), written.as_slice()].concat());
        let text = match self.tokenizer.kind() {
            // Decoded by itself it would lose the space before its first word.
            TokenizerKind::SentencePiece | TokenizerKind::SubwordNmt | TokenizerKind::Marian => {
                whole.strip_prefix(&self.tokenizer.decode(&prompt)).map(String::from)
            }
            _ => None,
        };
        let text = text.unwrap_or_else(|| self.tokenizer.decode(&written));
        Written { whole, text }
    }

    fn stream<'a>(&'a self, prompt: &[i64]) -> Box<dyn TextStream + 'a> {
        Box::new(Growing(tokenizer::TextStream::new(&self.tokenizer, unsigned(prompt))))
    }

    fn decoder(&self, texts: usize, _: u64) -> Box<dyn Decoder + '_> {
        Box::new(Writing::new(self.model.as_ref(), texts))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn sentence_end(&self) -> Option<i64> {
        self.tokenizer.eos_id().map(i64::from)
    }

    fn names(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    fn unknown(&self) -> Option<i64> {
        self.tokenizer.unk_id().map(i64::from)
    }
}

/// Text in the words of a tokenizer.
struct Growing<'a>(tokenizer::TextStream<'a>);

impl TextStream for Growing<'_> {
    fn push(&mut self, token: i64) -> String {
        self.0.push(token as u32)
    }

    fn rest(&mut self) -> String {
        self.0.rest()
    }
}
