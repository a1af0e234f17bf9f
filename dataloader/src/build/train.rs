//! Training a tokenizer on files: reads them and counts; what is made of the counts, the tokenizers know.

use std::borrow::Cow;
use std::hash::Hash;
use std::path::PathBuf;

use rayon::ThreadPool;
use segue_data_error::DataError;
use segue_tokenizer::{
    Counts, Tokenizer, TokenizerKind, TrainOptions, count_bytes, count_text, train_on_bytes, train_on_text,
};

use super::inputs::{Stretch, note_empty};
use super::observer::{BuildObserver, Stage};
use super::options::{DEFAULT_TEXT_COLUMN, InvalidUtf8};
use super::pipeline::{Next, in_order, worker_pool};
use super::unit::{Content, Unit};
use super::units::{Reading, for_each_unit};
use crate::input::Files;
use crate::preset::{Layout, Preset};

/// Distinct items that are counted at once (with their text, roughly 1 GiB of words); beyond this the rarest are dropped.
const MOST_ITEMS: usize = 12 << 20;

/// Text to train a tokenizer on, by the names and with the defaults of [`BuildOptions`](super::BuildOptions).
#[derive(Clone, Debug)]
pub struct TrainingText {
    /// How the text is read.
    pub preset: Preset,
    /// Files, folders, patterns and lists of them, or `-` alone for standard input.
    pub inputs: Vec<PathBuf>,
    /// Extensions of the files taken from folders; all files where empty.
    pub extensions: Vec<String>,
    /// Where the records of the `jsonl` preset have their text.
    pub text_column: String,
    /// What to do with input that is not UTF-8.
    pub invalid_utf8: InvalidUtf8,
}

impl TrainingText {
    /// The defaults for a preset.
    pub fn new(preset: Preset, inputs: Vec<PathBuf>) -> TrainingText {
        TrainingText {
            preset,
            inputs,
            extensions: Vec::new(),
            text_column: DEFAULT_TEXT_COLUMN.into(),
            invalid_utf8: InvalidUtf8::Fail,
        }
    }
}

/// Trains a tokenizer on text. `workers` is the number of threads, 0 for one per core; the tokenizer does not depend on
/// it.
pub fn train_tokenizer(
    text: &TrainingText,
    options: &TrainOptions,
    workers: usize,
    observer: &dyn BuildObserver,
) -> Result<Tokenizer, DataError> {
    options.check()?;
    if options.kind == TokenizerKind::Byte && !options.coded {
        return Ok(Tokenizer::bytes());
    }
    let scratch = tempfile::tempdir().map_err(|e| DataError::write(&std::env::temp_dir(), e))?;
    let text_column = (text.preset == Preset::Jsonl).then_some(&*text.text_column);
    let files = Files { extensions: &text.extensions, text_column };
    let sources = match &text.inputs[..] {
        [] => return Err(DataError::Usage("there is no input to train on\nhint: add --input FILE".into())),
        [stdin] if stdin.as_os_str() == "-" => {
            vec![files.spool_stdin(&scratch.path().join("stdin"))?]
        }
        inputs => files.collect(inputs)?,
    };
    note_empty(sources.iter(), observer);
    let stretch = Stretch::whole(sources);
    let raw = options.kind == TokenizerKind::Byte;
    let (layout, invalid_utf8) = (text.preset.layout(), text.invalid_utf8);
    let text_cut = options.text_cut();
    let reading = Reading { layout, invalid_utf8, text_cut, raw, trim: false, filter: None };
    train_on(&[(&stretch, reading)], options, &worker_pool(workers)?, observer)
}

/// Trains a tokenizer on stretches of text.
pub(crate) fn train_on(
    texts: &[(&Stretch, Reading)],
    options: &TrainOptions,
    pool: &ThreadPool,
    observer: &dyn BuildObserver,
) -> Result<Tokenizer, DataError> {
    if options.kind == TokenizerKind::Byte {
        return match options.coded {
            true => code_bytes(texts, options.newline, pool, observer),
            false => Ok(Tokenizer::bytes()),
        };
    }
    let counts = count(texts, pool, observer, |unit, counts| count_text(&text_of(unit), options, counts))?;
    let is_subword =
        matches!(options.kind, TokenizerKind::Bpe | TokenizerKind::Unigram | TokenizerKind::SubwordNmt);
    if is_subword && !counts.is_empty() {
        observer.stage(Stage::Training, 0);
    }
    train_on_text(counts, options, pool)
}

fn code_bytes(
    texts: &[(&Stretch, Reading)],
    newline: bool,
    pool: &ThreadPool,
    observer: &dyn BuildObserver,
) -> Result<Tokenizer, DataError> {
    let as_bytes = |reading: Reading| Reading { layout: Layout::Bytes, raw: true, ..reading };
    let texts: Vec<_> = texts.iter().map(|(stretch, reading)| (*stretch, as_bytes(*reading))).collect();
    let counts = count(&texts, pool, observer, |unit, counts| {
        if let Content::Bytes(bytes) = unit.text {
            count_bytes(bytes, counts);
        }
    })?;
    train_on_bytes(counts, newline)
}

/// The text of a unit. Byte units are counted elsewhere.
fn text_of<'a>(unit: &Unit<'a>) -> Cow<'a, str> {
    match unit.text {
        Content::Line(text) | Content::Sentence(text) | Content::Text(text) => Cow::Borrowed(text),
        Content::DocumentEnd => Cow::Borrowed(""),
        Content::Bytes(bytes) | Content::RawLine(bytes) => String::from_utf8_lossy(bytes),
    }
}

/// Counts over all units of some texts, in parallel. The result does not depend on the number of threads.
fn count<K: Hash + Eq + Clone + Send>(
    texts: &[(&Stretch, Reading)],
    pool: &ThreadPool,
    observer: &dyn BuildObserver,
    each: impl Fn(&Unit<'_>, &mut Counts<K>) + Sync,
) -> Result<Counts<K>, DataError> {
    let mut all = Counts::default();
    let mut dropped = 0;
    observer.stage(Stage::Counting, texts.iter().map(|(stretch, _)| stretch.file_bytes()).sum());
    let mut before = 0;
    for (stretch, reading) in texts {
        let already = stretch.file_bytes_before(stretch.begin);
        let mut reader = stretch.reader(reading.cut(), stretch.begin);
        in_order(
            pool,
            &mut reader,
            |chunk| {
                let mut counts = Counts::default();
                for_each_unit(reading, &stretch.sources, chunk, &mut |unit| {
                    each(&unit, &mut counts);
                    Ok(())
                })?;
                Ok(counts)
            },
            |counts, end| {
                all.append(counts);
                dropped += prune(&mut all);
                observer.progress(before + end.file_bytes_read.saturating_sub(already));
                Ok(Next::Continue)
            },
        )?;
        before += stretch.file_bytes();
    }
    note_dropped(dropped, observer);
    Ok(all)
}

/// Drops the rarest items where there are too many, and tells how many.
pub(super) fn prune<K: Hash + Eq + Clone>(counts: &mut Counts<K>) -> usize {
    counts.prune(MOST_ITEMS)
}

/// Says how many items were dropped.
pub(super) fn note_dropped(dropped: usize, observer: &dyn BuildObserver) {
    if dropped > 0 {
        observer
            .note(&format!("{dropped} rare words were left out of the counts to bound the memory they take"));
    }
}
