use std::borrow::Cow;
use std::path::PathBuf;

use compact_str::CompactString;
use rayon::ThreadPool;
use segue_data_error::DataError;
use serde::{Deserialize, Serialize};

use super::bytes::ByteTokenizer;
use super::characters::CharTokenizer;
use super::count::{Counts, count};
use super::interface::{EOS, Model, Tokenizer, TokenizerKind, UNK};
use super::subword;
use super::words::{WordTokenizer, split_words};
use crate::build::{BuildObserver, Content, InvalidUtf8, Reading, Stretch, Unit, worker_pool};
use crate::input::collect;
use crate::preset::{Layout, Preset};

/// Size of a sub-word vocabulary where none is asked for.
const DEFAULT_SUBWORD_VOCABULARY: usize = 32_000;
/// Occurrences that a merge needs where nothing else is asked for.
const DEFAULT_SUBWORD_FREQUENCY: u64 = 2;

/// How a tokenizer is trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// What is trained.
    pub kind: TokenizerKind,
    /// Number of ids, special tokens included. Words and characters: all that occur unless given. BPE and unigram:
    /// 32,000 unless given.
    pub vocab_size: Option<usize>,
    /// How often a word, a character or a merge has to occur. Words and characters: once unless given. BPE: twice.
    pub min_frequency: Option<u64>,
    /// Whether upper-case letters are taken for lower-case ones, here and whenever the tokenizer is used.
    pub lower_case: bool,
    /// Further special tokens, after `<eos>`.
    pub special_tokens: Vec<String>,
    /// For the byte kind: only the bytes that occur, sorted by frequency and without the newline, as the
    /// Transformer-XL reference codes enwik8 and text8.
    pub coded: bool,
}

impl TrainOptions {
    /// The defaults of a kind.
    pub fn new(kind: TokenizerKind) -> TrainOptions {
        TrainOptions {
            kind,
            vocab_size: None,
            min_frequency: None,
            lower_case: false,
            special_tokens: Vec::new(),
            coded: false,
        }
    }

    /// The reference's coding of enwik8 and text8.
    pub(crate) fn coded_bytes() -> TrainOptions {
        TrainOptions { coded: true, ..TrainOptions::new(TokenizerKind::Byte) }
    }

    /// Refuses options that the kind cannot have.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        let usage = |message: String| Err(DataError::Usage(message));
        match self.kind {
            TokenizerKind::SentencePiece | TokenizerKind::Foreign => {
                return usage(format!("a {} tokenizer can be imported but not trained here", self.kind));
            }
            TokenizerKind::Byte => {
                let unused = self.vocab_size.is_some() || self.min_frequency.is_some() || self.lower_case;
                if unused || !self.special_tokens.is_empty() {
                    return usage("the byte tokenizer has 256 ids and takes no vocabulary options".into());
                }
            }
            TokenizerKind::Bpe | TokenizerKind::Unigram => {
                let least = subword::ALPHABET + 1 + self.special_tokens.len();
                if self.subword_vocabulary() < least {
                    return usage(format!(
                        "--vocab-size {}: a {} vocabulary needs at least {least} for the bytes and special tokens",
                        self.subword_vocabulary(),
                        self.kind
                    ));
                }
            }
            TokenizerKind::Char | TokenizerKind::Word => {
                let least = 3 + self.special_tokens.len();
                if self.vocab_size.is_some_and(|size| size < least) {
                    return usage(format!("--vocab-size must be at least {least}"));
                }
            }
        }
        let fault = |token: &String| token.is_empty() || token.contains(char::is_whitespace) || token == EOS;
        if let Some(token) = self.special_tokens.iter().find(|token| fault(token)) {
            return usage(format!(
                "{token:?} cannot be a special token: it must be one word other than \
                {EOS}"
            ));
        }
        Ok(())
    }

    pub(crate) fn subword_vocabulary(&self) -> usize {
        self.vocab_size.unwrap_or(DEFAULT_SUBWORD_VOCABULARY)
    }

    pub(crate) fn subword_frequency(&self) -> u64 {
        self.min_frequency.unwrap_or(DEFAULT_SUBWORD_FREQUENCY)
    }
}

/// Trains a tokenizer on files, folders or standard input, read as the preset says. `workers` is the number of threads,
/// 0 for one per core; the tokenizer does not depend on it.
pub fn train_tokenizer(
    inputs: &[PathBuf],
    extensions: &[String],
    preset: Preset,
    invalid_utf8: InvalidUtf8,
    options: &TrainOptions,
    workers: usize,
    observer: &dyn BuildObserver,
) -> Result<Tokenizer, DataError> {
    options.check()?;
    if options.kind == TokenizerKind::Byte && !options.coded {
        return Ok(Tokenizer::bytes());
    }
    let scratch = tempfile::tempdir().map_err(|e| DataError::write(&std::env::temp_dir(), e))?;
    let sources = match inputs {
        [] => return Err(DataError::Usage("there is no input to train on\nhint: add --input FILE".into())),
        [stdin] if stdin.as_os_str() == "-" => {
            vec![crate::input::spool_stdin(&scratch.path().join("stdin"))?]
        }
        inputs => collect(inputs, extensions)?,
    };
    let stretch = Stretch::whole(sources);
    let raw = options.kind == TokenizerKind::Byte;
    let reading = Reading { layout: preset.layout(), invalid_utf8, raw, trim: false, filter: None };
    train_on(&[(&stretch, reading)], options, &worker_pool(workers)?, observer)
}

/// Trains a tokenizer on stretches of text.
pub(crate) fn train_on(
    texts: &[(&Stretch, Reading)],
    options: &TrainOptions,
    pool: &ThreadPool,
    observer: &dyn BuildObserver,
) -> Result<Tokenizer, DataError> {
    let kind = options.kind;
    let fault = |why: String| DataError::Training { kind: kind.name(), why };
    let empty = || fault("its training text is empty".into());
    let model = match kind {
        TokenizerKind::Byte if !options.coded => return Ok(Tokenizer::bytes()),
        TokenizerKind::Byte => {
            let texts: Vec<_> =
                texts.iter().map(|(stretch, reading)| (*stretch, as_bytes(*reading))).collect();
            let counts = count(&texts, pool, observer, count_bytes)?;
            let symbols = counts.by_frequency().into_iter().map(|(byte, _)| byte);
            let symbols = symbols.filter(|byte| *byte != b'\n').collect();
            Model::Bytes(Box::new(ByteTokenizer::coded(symbols).map_err(|_| empty())?))
        }
        TokenizerKind::Char => {
            let counts = count(texts, pool, observer, |unit, counts: &mut Counts<CompactString>| {
                let mut buffer = [0; 4];
                for c in text_of(unit, options.lower_case).chars() {
                    counts.add_borrowed(&*c.encode_utf8(&mut buffer));
                }
            })?;
            let symbols = vocabulary(counts, options).ok_or_else(empty)?;
            let symbols = symbols.into_iter().map(String::from).collect();
            Model::Characters(CharTokenizer::new(symbols, options.lower_case).map_err(fault)?)
        }
        TokenizerKind::Word => {
            let counts = count(texts, pool, observer, |unit, counts: &mut Counts<CompactString>| {
                for word in split_words(&text_of(unit, options.lower_case)) {
                    counts.add_borrowed(word);
                }
            })?;
            let words = vocabulary(counts, options).ok_or_else(empty)?;
            let words = words.into_iter().map(|word| word.as_str().into()).collect();
            Model::Words(WordTokenizer::new(words, options.lower_case).map_err(fault)?)
        }
        TokenizerKind::Bpe | TokenizerKind::Unigram => {
            let counts = count(texts, pool, observer, |unit, counts| {
                subword::count_words(&text_of(unit, options.lower_case), counts);
            })?;
            if counts.is_empty() {
                return Err(empty());
            }
            Model::HuggingFace(Box::new(subword::train(counts, options, pool, observer)?))
        }
        TokenizerKind::SentencePiece | TokenizerKind::Foreign => {
            return Err(fault("it can be imported but not trained here".into()));
        }
    };
    Ok(Tokenizer::new(kind, model))
}

fn as_bytes(reading: Reading) -> Reading {
    Reading { layout: Layout::Bytes, raw: true, ..reading }
}

fn count_bytes(unit: &Unit<'_>, counts: &mut Counts<u8>) {
    let Content::Bytes(bytes) = unit.text else { return };
    let (mut table, mut order) = ([0u64; 256], Vec::new());
    for byte in bytes {
        if table[*byte as usize] == 0 {
            order.push(*byte);
        }
        table[*byte as usize] += 1;
    }
    for byte in order {
        counts.add(byte, table[byte as usize]);
    }
}

/// The text of a unit, in lower case where asked. Byte units are counted elsewhere.
fn text_of<'a>(unit: &Unit<'a>, lower_case: bool) -> Cow<'a, str> {
    let text = match unit.text {
        Content::Line(text) | Content::Sentence(text) | Content::Text(text) => Cow::Borrowed(text),
        Content::DocumentEnd => Cow::Borrowed(""),
        Content::Bytes(bytes) => String::from_utf8_lossy(bytes),
    };
    if lower_case { Cow::Owned(text.to_lowercase()) } else { text }
}

/// A vocabulary sorted by frequency: `<eos>`, the further special tokens, then what was counted, most frequent first,
/// equal counts in the order of first appearance. `<unk>` stands where its frequency puts it, which is how often it
/// stands in the text and how often it will stand for what was left out; it is last where that is never.
///
/// So on WikiText, whose text holds `<unk>`, the order is that of the Transformer-XL reference.
fn vocabulary(counts: Counts<CompactString>, options: &TrainOptions) -> Option<Vec<CompactString>> {
    if counts.is_empty() {
        return None;
    }
    let mut vocabulary = vec![CompactString::from(EOS)];
    vocabulary.extend(options.special_tokens.iter().map(|token| CompactString::from(token.as_str())));
    let mut items = counts.by_frequency();
    items.retain(|(item, _)| !vocabulary.contains(item));
    let is_unk = |item: &CompactString| item == UNK;
    let in_text = items.iter().find(|(item, _)| is_unk(item)).map(|(_, count)| *count);
    // Room for everything but the special tokens and `<unk>`.
    let room = options.vocab_size.map_or(usize::MAX, |size| size.saturating_sub(vocabulary.len() + 1));
    let least = options.min_frequency.unwrap_or(1);
    let mut kept = 0;
    let mut left_out = 0;
    items.retain(|(item, count)| {
        let keep = is_unk(item) || kept < room && *count >= least;
        kept += usize::from(keep && !is_unk(item));
        left_out += if keep { 0 } else { *count };
        keep
    });
    if in_text.is_none() {
        items.push((UNK.into(), 0));
    }
    for (item, count) in &mut items {
        if is_unk(item) {
            *count += left_out;
        }
    }
    items.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    vocabulary.extend(items.into_iter().map(|(item, _)| item));
    Some(vocabulary)
}
