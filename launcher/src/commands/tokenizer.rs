use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use segue_configs::counted;
use segue_data_error::DataError;
use segue_dataloader::{DEFAULT_TEXT_COLUMN, InvalidUtf8, Preset, TrainingText, train_tokenizer};
use segue_publish::FreshFolder;
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions, XlnetNormalization};
use serde_json::{Value, json};

use crate::commands::build_progress::BuildProgress;
use crate::commands::known;
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `segue tokenizer`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue tokenizer train --kind word --input wiki.train.tokens \\\n      \
    --output tokenizers/wikitext\n  \
    segue tokenizer import tokenizer.json --output tokenizers/gpt2")]
pub struct TokenizerArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Train a tokenizer on text.
    Train(TrainArgs),
    /// Import the vocabulary of another program.
    Import(ImportArgs),
}

#[derive(Args)]
#[command(after_help = "\
    The tokenizer depends on the text and the options, not on the number of workers.\n\n\
    Examples:\n  \
    segue tokenizer train --kind word --input wiki.train.tokens \\\n      \
    --output tokenizers/wikitext\n  \
    segue tokenizer train --kind bpe --vocab-size 16000 --input src docs \\\n      \
    --extension rs,md --output tokenizers/code\n  \
    segue tokenizer train --kind subword-nmt --merges 10000 --preset sentences \\\n      \
    --input train.de train.en --output tokenizers/de-en")]
struct TrainArgs {
    /// Kind of tokenizer to train.
    #[arg(long)]
    kind: Kind,
    /// Files, folders, patterns and lists of them, or `-` for stdin, as `segue data build` takes them.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Output folder of the tokenizer.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    vocabulary: VocabularyArgs,
    /// Layout of the text: `documents`, `jsonl` for JSON lines, Parquet and Arrow, or another preset of `segue data
    /// build`.
    #[arg(long, default_value = "documents", value_parser = known::<Preset>)]
    preset: Preset,
    /// File extensions to read from folders [default: all].
    #[arg(long, value_delimiter = ',', value_name = "EXT,..")]
    extension: Vec<String>,
    /// Key or column of the text in records of the `jsonl` preset.
    #[arg(long, default_value = DEFAULT_TEXT_COLUMN, value_name = "NAME")]
    text_column: String,
    /// Treatment of text that is not UTF-8.
    #[arg(long, default_value = "fail")]
    invalid_utf8: OnInvalidUtf8,
    /// Number of threads [default: one per core].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    workers: usize,
}

/// The options that shape a vocabulary.
#[derive(Args)]
pub struct VocabularyArgs {
    /// Vocabulary size, with special tokens; not of the byte and subword-nmt kinds [default: 32000 for bpe and unigram; all
    /// for word and char].
    #[arg(long, value_name = "N")]
    pub vocab_size: Option<usize>,
    /// Number of merges of the subword-nmt kind; its vocabulary is what they make of the text [default: 10000].
    #[arg(long, value_name = "N")]
    merges: Option<usize>,
    /// Minimum count of a word, character or merge; not of the byte kind [default: 2 for bpe and subword-nmt, 1 for word and
    /// char].
    #[arg(long, value_name = "N")]
    min_frequency: Option<u64>,
    /// Lower-case the text; not of the byte kind.
    #[arg(long)]
    lower: bool,
    /// Additional special tokens, after `<eos>`, or `<unk>` of the subword-nmt kind; not of the byte kind.
    #[arg(long, value_delimiter = ',', value_name = "TOKEN,..")]
    special: Vec<String>,
}

impl VocabularyArgs {
    /// Whether any of them is given.
    pub fn any(&self) -> bool {
        let sizes = [self.vocab_size, self.merges];
        sizes.iter().any(Option::is_some)
            || self.min_frequency.is_some()
            || self.lower
            || !self.special.is_empty()
    }

    /// The options for a kind.
    pub fn options(self, kind: Kind) -> TrainOptions {
        TrainOptions {
            vocab_size: self.vocab_size,
            merges: self.merges,
            min_frequency: self.min_frequency,
            lower_case: self.lower,
            special_tokens: self.special,
            ..TrainOptions::new(kind.into())
        }
    }
}

/// The kinds that can be trained.
#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    /// The 256 bytes.
    Byte,
    /// Characters, most frequent first.
    Char,
    /// Words between white space, most frequent first.
    Word,
    /// Byte-level byte-pair encoding, as in GPT-2.
    Bpe,
    /// Byte-level unigram language model.
    Unigram,
    /// Byte-pair encoding of words between blanks, in the files of subword-nmt and fairseq.
    SubwordNmt,
}

impl From<Kind> for TokenizerKind {
    fn from(kind: Kind) -> TokenizerKind {
        match kind {
            Kind::Byte => TokenizerKind::Byte,
            Kind::Char => TokenizerKind::Char,
            Kind::Word => TokenizerKind::Word,
            Kind::Bpe => TokenizerKind::Bpe,
            Kind::Unigram => TokenizerKind::Unigram,
            Kind::SubwordNmt => TokenizerKind::SubwordNmt,
        }
    }
}

/// Treatment of text that is not UTF-8.
#[derive(Clone, Copy, ValueEnum)]
pub enum OnInvalidUtf8 {
    /// Stop with file and offset.
    Fail,
    /// Replace each invalid sequence with U+FFFD, and count them.
    Replace,
}

impl From<OnInvalidUtf8> for InvalidUtf8 {
    fn from(choice: OnInvalidUtf8) -> InvalidUtf8 {
        match choice {
            OnInvalidUtf8::Fail => InvalidUtf8::Fail,
            OnInvalidUtf8::Replace => InvalidUtf8::Replace,
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
    The name tells the format: *.json a Hugging Face tokenizer, *.model a SentencePiece unigram model, \
    *.bin, *.pkl and *.pt what the Transformer-XL programs have pickled of their vocabulary (nothing in it \
    is run), corpus-info.json the cache.pkl beside it, with --dictionary any name merges of subword-nmt, \
    anything else a vocabulary list with one word per line. Tokens that transformers' files beside it add \
    are read with it.\n\n\
    Examples:\n  \
    segue tokenizer import tokenizer.json --output tokenizers/gpt2\n  \
    segue tokenizer import bpecodes --dictionary dict.txt --output tokenizers/de\n  \
    segue tokenizer import spiece.model --xlnet --output tokenizers/xlnet")]
struct ImportArgs {
    /// File to import.
    file: PathBuf,
    /// Normalise text as XLNet does around its SentencePiece model: single spaces, plain double quotes, no accents,
    /// `2,000,` as `2,000` and `,`.
    #[arg(long, group = "cased")]
    xlnet: bool,
    /// fairseq's dictionary of the pieces that the merges of subword-nmt in the file make: a symbol and its count a line.
    #[arg(long, value_name = "FILE", group = "cased")]
    dictionary: Option<PathBuf>,
    /// Lower-case the text first, if the weights were trained so; the published XLNet models are cased.
    #[arg(long, requires = "cased")]
    uncased: bool,
    /// Output folder of the tokenizer.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

/// Trains or imports a tokenizer.
pub fn run(args: TokenizerArgs, out: &Output) -> Result<Value, Failure> {
    match args.action {
        Action::Train(args) => train(args, out),
        Action::Import(args) => {
            let fresh = DataError::begin_folder(&args.output)?;
            let tokenizer = match (&args.dictionary, args.xlnet) {
                (Some(dictionary), _) => Tokenizer::import_subword_nmt(&args.file, dictionary, args.uncased)?,
                (None, false) => Tokenizer::import(&args.file)?,
                (None, true) => {
                    let normalization =
                        XlnetNormalization { lower_case: args.uncased, ..XlnetNormalization::default() };
                    Tokenizer::import_xlnet(&args.file, normalization)?
                }
            };
            finish(&tokenizer, fresh, &args.output, out)
        }
    }
}

fn train(args: TrainArgs, out: &Output) -> Result<Value, Failure> {
    let fresh = DataError::begin_folder(&args.output)?;
    let progress = BuildProgress::new(out);
    let text = TrainingText {
        preset: args.preset,
        inputs: args.input,
        extensions: args.extension,
        text_column: args.text_column,
        invalid_utf8: args.invalid_utf8.into(),
    };
    let asked = args.vocabulary.vocab_size;
    let tokenizer = train_tokenizer(&text, &args.vocabulary.options(args.kind), args.workers, &progress)?;
    drop(progress);
    note_smaller(asked, tokenizer.vocab_size(), out);
    finish(&tokenizer, fresh, &args.output, out)
}

/// Says so where the text has not as many pieces as the vocabulary was to have.
pub fn note_smaller(asked: Option<usize>, found: usize, out: &Output) {
    if let Some(asked) = asked.filter(|asked| found < *asked) {
        out.line(&format!(
            "the vocabulary has {found} entries where {asked} were asked for: the text has no more"
        ));
    }
}

fn finish(tokenizer: &Tokenizer, fresh: FreshFolder, output: &Path, out: &Output) -> Result<Value, Failure> {
    tokenizer.save(fresh.path())?;
    fresh.publish().map_err(DataError::from)?;
    tokenizer.notes().iter().for_each(|note| out.line(note));
    out.line(&format!(
        "{} tokenizer with {} in {}",
        tokenizer.kind(),
        counted(tokenizer.vocab_size(), "id"),
        output.display()
    ));
    Ok(json!({
        "output": output,
        "kind": tokenizer.kind(),
        "vocab_size": tokenizer.vocab_size(),
        "eos_id": tokenizer.eos_id(),
        "unk_id": tokenizer.unk_id(),
        "fingerprint": tokenizer.fingerprint(),
    }))
}

/// The tokenizer of a folder; says what is to be known of it.
pub fn load_tokenizer(dir: &Path, out: &Output) -> Result<Tokenizer, Failure> {
    let tokenizer = Tokenizer::load(dir)?;
    tokenizer.notes().iter().for_each(|note| out.line(note));
    Ok(tokenizer)
}
