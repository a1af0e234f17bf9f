use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use segue_configs::counted;
use segue_dataloader::{
    BuildOptions, Corpus, CorpusInfo, DEFAULT_SHARD_TOKENS, DEFAULT_TEXT_COLUMN, PairBuild, Preset,
    Published, TokenizerChoice, build, build_pairs,
};
use serde_json::{Value, json};

use crate::commands::build_progress::BuildProgress;
use crate::commands::data_graph::{self, GraphArgs};
use crate::commands::data_pairs::{self, PairArgs};
use crate::commands::import_records::{self, ImportRecordsArgs};
use crate::commands::known;
use crate::commands::tokenizer::note_smaller;
use crate::commands::tokenizer::{Kind, OnInvalidUtf8, VocabularyArgs, load_tokenizer};
use crate::failure::{BAD_DATA, Failure, USAGE};
use crate::output::{Output, Progress, Unit};

/// Arguments of `segue data`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue data build --preset documents --train src --split 0.9,0.05,0.05 \\\n      \
    --tokenizer-kind bpe --output corpora/mine\n  \
    segue data verify corpora/mine")]
pub struct DataArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Build a corpus from text: tokenised, sharded, indexed, hashed.
    Build(Box<BuildArgs>),
    /// Build a corpus from the TFRecords of XLNet's data_utils.py.
    ImportTfrecord(ImportRecordsArgs),
    /// Describe a graph whose nodes are classified, and write it in other forms.
    Graph(Box<GraphArgs>),
    /// Describe a corpus.
    #[command(after_help = "Example:\n  segue data info corpora/wikitext-2")]
    Info(CorpusArgs),
    /// Verify every hash of a corpus.
    #[command(after_help = "\
        It ends with exit code 65 where a hash is wrong, and names the file and the offset of the first bad \
        block.\n\n\
        Example:\n  segue data verify corpora/wikitext-2")]
    Verify(CorpusArgs),
}

#[derive(Args)]
#[command(after_help = "\
    A build that was killed is taken up again by the same command, without redoing finished shards. The \
    corpus does not depend on the number of workers or on interruptions. One of pairs appears whole or not \
    at all: its build starts again. Memory: 64 MiB a worker, however large the input. What encodes a \
    document as a whole takes up to 300 times its bytes beside that: 4 GiB over all workers, or what the \
    longest document (32 MiB) needs alone.\n\n\
    Examples:\n  \
    segue data build --preset wikitext --train wiki.train.tokens \\\n      \
    --valid wiki.valid.tokens --test wiki.test.tokens --output corpora/wiki\n  \
    segue data build --preset jsonl --train 'fineweb/*.parquet' \\\n      \
    --split 0.99,0.01,0 --tokenizer tokenizers/gpt2 --output corpora/fineweb\n  \
    segue data build --preset pairs --source de --target en --train data/train \\\n      \
    --valid data/val --tokenizer-kind bpe --vocab-size 10000 \\\n      \
    --output corpora/de-en")]
struct BuildArgs {
    /// Layout of the text: `wikitext`, `ptb`, `ptb-char`, `mwc`, `enwik8`, `enwik8-bytes`, `text8`, `sentences`, `pairs`,
    /// `xlnet`, `wikitext-xlnet`, `jsonl` or `documents`.
    #[arg(long, value_parser = known::<Preset>)]
    preset: Preset,
    /// Files or folders of text, or `-` for stdin (for one split, once); `.gz` and `.zst` are decompressed, and the
    /// preset `jsonl` reads `.parquet`, `.arrow` and `.feather` too. Folders are read in the order of names, without
    /// hidden entries. A pattern such as `data/*.parquet` stands for what matches it, in that order, and `@FILE` for the
    /// inputs that a file names, one a line. The preset `pairs` reads PREFIX.SOURCE and PREFIX.TARGET side by side, and
    /// files of JSON lines.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    train: Vec<PathBuf>,
    /// Input of the valid split.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    valid: Vec<PathBuf>,
    /// Input of the test split.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    test: Vec<PathBuf>,
    /// Fractions to split the train input by, into train, valid and test, with the sum 1. Not with --valid or --test
    /// [default: 0.9,0.05,0.05 for enwik8, enwik8-bytes and text8, else none].
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "A,B,C")]
    split: Vec<f64>,
    /// Tokenizer folder: one that Segue wrote, or one with a `tokenizer.json` or `spiece.model` [default: the preset's
    /// own].
    #[arg(long, value_name = "DIR", conflicts_with = "tokenizer_kind")]
    tokenizer: Option<PathBuf>,
    /// Kind of tokenizer to train on the train split first.
    #[arg(long, value_name = "KIND")]
    tokenizer_kind: Option<Kind>,
    #[command(flatten)]
    vocabulary: VocabularyArgs,
    #[command(flatten)]
    pairs: PairArgs,
    /// Output folder of the corpus: new, empty, or one with an interrupted build.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Number of threads [default: one per core].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    workers: usize,
    /// Compress shards with zstd; they are decompressed into the cache on first use.
    #[arg(long)]
    compress: bool,
    /// File extensions to read from folders [default: all].
    #[arg(long, value_delimiter = ',', value_name = "EXT,..")]
    extension: Vec<String>,
    /// Key or column of the text in records of the `jsonl` preset; a dot goes into a nested one, as in `meta.body`.
    #[arg(long, default_value = DEFAULT_TEXT_COLUMN, value_name = "NAME")]
    text_column: String,
    /// Treatment of text that is not UTF-8; a byte tokenizer takes any bytes, but for `jsonl` and the `xlnet` presets.
    #[arg(long, default_value = "fail")]
    invalid_utf8: OnInvalidUtf8,
    /// Split lines of the `xlnet` preset, as paragraphs, into sentences, where Unicode's annex 29 says.
    #[arg(long)]
    split_sentences: bool,
    /// Omit `<eod>` at the end of documents (presets `xlnet` and `wikitext-xlnet`).
    #[arg(long)]
    no_eod: bool,
    /// Number of tokens after which a new shard begins.
    #[arg(long, default_value_t = DEFAULT_SHARD_TOKENS, value_name = "N")]
    shard_tokens: u64,
    /// Data set whose published counts the corpus must have: `ptb`, `ptb-char`, `wikitext-2`, `wikitext-103`, `enwik8`,
    /// `enwik8-bytes` or `text8`. Others are refused.
    #[arg(long, value_name = "NAME", value_parser = known::<Published>)]
    published: Option<Published>,
}

#[derive(Args)]
struct CorpusArgs {
    /// Corpus folder.
    corpus: PathBuf,
}

/// Builds, describes or verifies a corpus.
pub fn run(args: DataArgs, out: &Output) -> Result<Value, Failure> {
    match args.action {
        Action::Build(args) => build_corpus(*args, out),
        Action::ImportTfrecord(args) => {
            let info = import_records::run(&args, out)?;
            Ok(finished(&args.output, &info, out))
        }
        Action::Graph(args) => data_graph::run(&args, out),
        Action::Info(args) => info(&args.corpus, out),
        Action::Verify(args) => verify(&args.corpus, out),
    }
}

fn build_corpus(args: BuildArgs, out: &Output) -> Result<Value, Failure> {
    let asked = args.vocabulary.vocab_size.filter(|_| args.tokenizer.is_none());
    let output = args.output.clone();
    let progress = BuildProgress::new(out);
    let info = match args.preset {
        Preset::Pairs => build_pairs(&pair_build(args, out)?, &progress)?,
        _ => build(&build_options(args, out)?, &progress)?,
    };
    drop(progress);
    note_smaller(asked, info.vocab_size, out);
    Ok(finished(&output, &info, out))
}

/// Where the tokenizer comes from.
fn tokenizer_choice(
    folder: Option<&Path>,
    kind: Option<Kind>,
    vocabulary: VocabularyArgs,
    out: &Output,
) -> Result<TokenizerChoice, Failure> {
    match (folder, kind) {
        (Some(dir), _) => Ok(TokenizerChoice::Given(load_tokenizer(dir, out)?)),
        (None, Some(kind)) => Ok(TokenizerChoice::Train(vocabulary.options(kind))),
        (None, None) if vocabulary.any() => {
            let message = "--vocab-size, --merges, --min-frequency, --lower and --special are options of a \
                tokenizer to train\nhint: add --tokenizer-kind KIND";
            Err(Failure::new(USAGE, message))
        }
        (None, None) => Ok(TokenizerChoice::Preset),
    }
}

fn pair_build(args: BuildArgs, out: &Output) -> Result<PairBuild, Failure> {
    let of_others = !args.split.is_empty()
        || !args.extension.is_empty()
        || args.text_column != DEFAULT_TEXT_COLUMN
        || args.split_sentences
        || args.no_eod
        || args.published.is_some();
    let tokenizer = tokenizer_choice(args.tokenizer.as_deref(), args.tokenizer_kind, args.vocabulary, out)?;
    let build = PairBuild {
        valid: args.valid,
        test: args.test,
        invalid_utf8: args.invalid_utf8.into(),
        workers: args.workers,
        compress: args.compress,
        shard_tokens: args.shard_tokens,
        ..PairBuild::new(["", ""], args.train, tokenizer, args.output)
    };
    args.pairs.apply(build, of_others)
}

fn build_options(args: BuildArgs, out: &Output) -> Result<BuildOptions, Failure> {
    args.pairs.refuse()?;
    let tokenizer = tokenizer_choice(args.tokenizer.as_deref(), args.tokenizer_kind, args.vocabulary, out)?;
    let split = match args.split.as_slice() {
        [] => None,
        [train, valid, test] => Some([*train, *valid, *test]),
        _ => {
            return Err(Failure::new(
                USAGE,
                "--split needs three fractions\nhint: for example --split 0.9,0.05,0.05",
            ));
        }
    };
    Ok(BuildOptions {
        preset: args.preset,
        train: args.train,
        valid: args.valid,
        test: args.test,
        split,
        tokenizer,
        output: args.output,
        workers: args.workers,
        compress: args.compress,
        extensions: args.extension,
        text_column: args.text_column,
        invalid_utf8: args.invalid_utf8.into(),
        split_sentences: args.split_sentences,
        no_eod: args.no_eod,
        shard_tokens: args.shard_tokens,
        published: args.published,
    })
}

/// Tells of a corpus that was made.
fn finished(dir: &Path, info: &CorpusInfo, out: &Output) -> Value {
    out.line(&format!("corpus in {}", dir.display()));
    describe(info, out);
    result(dir, info)
}

fn info(dir: &Path, out: &Output) -> Result<Value, Failure> {
    let corpus = Corpus::open(dir)?;
    describe(corpus.info(), out);
    Ok(result(dir, corpus.info()))
}

fn verify(dir: &Path, out: &Output) -> Result<Value, Failure> {
    let corpus = Corpus::open_lazily(dir)?;
    let mut bar: Option<Progress<'_>> = None;
    let report = corpus.verify(&mut |done, total| {
        bar.get_or_insert_with(|| out.progress(total, Unit::Bytes, "verifying")).set(done);
    })?;
    drop(bar);
    for bad in &report.bad {
        out.line(&format!("bad: {}: {}", bad.file, bad.why));
    }
    match report.ok {
        true => out.line(&format!(
            "{}, {} bytes: every hash is right",
            counted(report.files, "file"),
            report.bytes
        )),
        false => out.line("restore the files named above, or build the corpus again"),
    }
    let code = if report.ok { 0 } else { BAD_DATA };
    let mut value = json!({ "exit_code": code, "corpus": dir });
    if let (Value::Object(all), Ok(Value::Object(found))) = (&mut value, serde_json::to_value(&report)) {
        all.extend(found);
    }
    Ok(value)
}

/// Human words for a corpus.
fn describe(info: &CorpusInfo, out: &Output) {
    out.line(&format!(
        "{} preset, {} tokenizer with {} ids, fingerprint {}",
        info.preset,
        info.tokenizer.kind,
        info.vocab_size,
        &info.fingerprint[..12.min(info.fingerprint.len())]
    ));
    for (split, part) in &info.splits {
        out.line(&format!(
            "  {split}: {} ({} unknown), {}, {}, {} of text, {}",
            counted(part.tokens, "token"),
            part.unknown,
            counted(part.documents, "document"),
            counted(part.sentences, "sentence"),
            counted(part.bytes, "byte"),
            counted(part.shards.len(), "shard")
        ));
        if let Some(counts) = &part.pairs {
            out.line(&format!("  {}", data_pairs::describe(*split, counts)));
        }
        if part.replaced > 0 {
            out.line(&format!("  {split}: replaced {}", counted(part.replaced, "invalid UTF-8 sequence")));
        }
    }
}

/// The result object: where the corpus is, and its `corpus.json`.
fn result(dir: &Path, info: &CorpusInfo) -> Value {
    let mut value = json!({ "corpus": dir });
    if let (Value::Object(all), Ok(Value::Object(described))) = (&mut value, serde_json::to_value(info)) {
        all.extend(described);
    }
    value
}
