//! Scores of translations: of a text against references, or of a model on a split of its corpus.

mod options;
mod scores;
mod texts;

use std::path::{Path, PathBuf};

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::{DeviceKind, counted};
use segue_dataloader::Split;
use segue_decode::BeamSettings;
use segue_engine::Watch;
use segue_family::{Asker, SplitToTranslate, Trained, TranslatedPair, TranslatedSplit, TranslatesSplits};
use segue_measure::translation::Bleu;
use serde_json::{Value, json};

use self::options::{CompareArgs, SearchArgs};
use self::scores::{Besides, Translated, table};
use self::texts::{Texts, describe_empty, empty_lines};
use super::{SplitName, check_loss};
use crate::commands::child::write_whole;
use crate::commands::spelled::spelled;
use crate::commands::{at_least_one, device_of_rank, print_text};
use crate::failure::{Failure, USAGE, text_of};
use crate::folder::Force;
use crate::output::{Output, Unit};

/// Arguments of `segue eval bleu`.
#[derive(Args)]
#[command(after_help = "\
    Scores are those of sacrebleu 2.6.0, each with its signature. With --model the references are the split's \
    sentences as the vocabulary gives them back, under mpirun too; the translations are the same at any \
    number of ranks.\n\n\
    Examples:\n  \
    segue eval bleu --reference test.en --input out.en\n  \
    segue eval bleu --reference test.en --input out.en \\\n      \
    --measure bleu,chrf,ter --lower-case --json\n  \
    segue eval bleu --model runs/de-en --split test --beams 5")]
pub struct BleuArgs {
    /// Translations to score, a sentence a line; `.gz` and `.zst` are decompressed; `-` for stdin.
    #[arg(long, default_value = "-", requires = "reference", conflicts_with = "model")]
    input: PathBuf,
    /// What they should be, line by line; given again for each further reference of the same sentences.
    #[arg(long, required_unless_present = "model", conflicts_with = "model", value_name = "FILE")]
    reference: Vec<PathBuf>,
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or model folder: a model that translates a split of its corpus.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Corpus of pairs, built with the tokenizer of the model [default: the one that its run was trained on].
    #[arg(long, conflicts_with = "reference")]
    corpus: Option<PathBuf>,
    /// Split of the corpus.
    #[arg(long, value_enum, default_value = "valid", conflicts_with = "reference")]
    split: SplitName,
    /// Pairs to translate, from the first on; the loss is of all [default: all].
    #[arg(long, conflicts_with = "reference", value_parser = clap::value_parser!(u64).range(1..))]
    pairs: Option<u64>,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    compare: CompareArgs,
    /// File for the translations of a model.
    #[arg(long, conflicts_with = "reference")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// libtorch threads per rank.
    #[arg(long, default_value_t = 1, conflicts_with = "reference", value_parser = at_least_one)]
    threads: usize,
    /// Where to compute.
    #[arg(long, conflicts_with = "reference", value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
    /// Values of the run's configuration, by dotted name, that win over those it was trained with: `eval.more_tokens=20`.
    #[arg(value_name = "KEY=VALUE", conflicts_with = "reference")]
    overrides: Vec<String>,
}

impl BleuArgs {
    /// Whether ranks share the work: the translating, not the scoring.
    pub fn takes_ranks(&self) -> bool {
        self.model.is_some()
    }
}

/// Scores a text, or a model; with `quiet` scores of sentences are in the result alone.
pub fn run(args: &BleuArgs, quiet: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    if args.compare.has_idle_value() {
        let message = "--smooth-value is of --smooth floor and add-k\nhint: leave it out";
        return Err(Failure::new(USAGE, message));
    }
    if let Some((option, of)) = args.compare.idle() {
        let message = format!(
            "{option} is of {of}, which --measure leaves out\nhint: leave it out, or add the measure"
        );
        return Err(Failure::new(USAGE, message));
    }
    match &args.model {
        Some(model) => score_model(args, model, quiet, comm, out),
        None => score_texts(args, quiet, out),
    }
}

fn score_texts(args: &BleuArgs, quiet: bool, out: &Output) -> Result<Value, Failure> {
    let texts = Texts::read(&args.input, &args.reference)?;
    let translated = texts.translated();
    let scores = score(&args.compare, Bleu::default(), &translated, quiet, out)?;
    Ok(json!({
        "input": args.input, "references": args.reference, "lines": translated.len(), "empty": empty_lines(&translated),
        "scores": scores,
    }))
}

/// Scores translations and tells the scores.
fn score(
    compare: &CompareArgs,
    usual: Bleu,
    texts: &[Translated],
    quiet: bool,
    out: &Output,
) -> Result<Vec<Value>, Failure> {
    describe_empty(&empty_lines(texts)).iter().for_each(|warning| out.line(warning));
    let besides = Besides { sentences: compare.sentences, confidence: compare.confidence };
    let measures = compare.measures(usual);
    let scores: Vec<_> = measures.iter().map(|measure| measure.score(texts, besides)).collect();
    for scored in &scores {
        out.line(&scored.line);
        if let Some(interval) = scored.interval {
            let (name, mean, half) = (&scored.name, interval.mean, interval.half_width);
            out.line(&format!("{name}: μ = {mean:.2} ± {half:.2} (95 % of resampled texts)"));
        }
    }
    if compare.sentences && !quiet {
        print_text(table(&scores).as_bytes())?;
    }
    Ok(scores.into_iter().map(|scored| scored.value).collect())
}

fn score_model(
    args: &BleuArgs,
    named: &Path,
    quiet: bool,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    args.force.allow(args.output.as_deref(), "--output")?;
    let compute = device_of_rank(args.device, comm, out)?;
    segue_kernels::libtorch::start(args.threads);
    let mut model = Trained { compute, ..Trained::open(&segue_families::MODELS, named)? };
    std::mem::take(&mut model.notes).iter().for_each(|note| out.line(note));
    let folder = model.path.clone();
    let found = translate(args, named, model, comm, out)?;
    // First of all, as it took longest.
    if let Some(path) = args.output.as_deref().filter(|_| comm.rank() == 0) {
        write_whole(path, &text_of_translations(&found))?;
    }
    check_loss(found.loss, &folder)?;
    // The first rank scores.
    if comm.rank() > 0 {
        return Ok(json!({ "model": folder }));
    }
    let split = Split::from(args.split).name();
    let texts: Vec<Translated> = found.translations.iter().map(translated).collect();
    out.line(&format!("{split}: {} (weights of {})", describe(&found), folder.display()));
    let scores = score(&args.compare, found.bleu, &texts, quiet, out)?;
    Ok(json!({
        "model": folder, "corpus": found.corpus, "split": split, "pairs": found.pairs, "loss": found.loss,
        "ppl": found.loss.exp(), "translated": texts.len(), "empty": empty_lines(&texts),
        "search": search_json(&found.search, found.more_tokens),
        "scores": scores, "output": args.output,
    }))
}

fn translated(pair: &TranslatedPair) -> Translated<'_> {
    Translated { text: &pair.translation, references: vec![&pair.reference] }
}

/// Loss and number of translations, without scores.
fn describe(found: &TranslatedSplit) -> String {
    format!(
        "loss {:.4}, ppl {:.3} of {}; {} translated with {}",
        found.loss,
        found.loss.exp(),
        counted(found.pairs, "pair"),
        found.translations.len(),
        counted(found.search.beams, "beam")
    )
}

/// Lets a model translate. A collective call.
fn translate(
    args: &BleuArgs,
    named: &Path,
    model: Trained,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<TranslatedSplit, Failure> {
    let TranslatesSplits(translate) = segue_families::need_of(&model)?;
    let wanted = SplitToTranslate {
        named: named.into(),
        corpus: args.corpus.as_deref().map(text_of).transpose()?.map(String::from),
        split: args.split.into(),
        pairs: args.pairs,
        overrides: args.overrides.iter().cloned().chain(args.search.overrides()).collect(),
    };
    let mut bar = None;
    let mut progress = |done, whole| {
        bar.get_or_insert_with(|| out.progress(0, Unit::Steps, "bleu")).set_of(done, whole);
    };
    let mut tell = |line: &str| out.line(line);
    let mut asker = Asker { comm, watch: Watch::new(&mut progress), tell: &mut tell };
    Ok(translate(model, &wanted, &mut asker)?)
}

/// A line for each translation. A line break of one would move the lines after it.
fn text_of_translations(found: &TranslatedSplit) -> String {
    let line = |text: &str| text.replace(['\n', '\r'], " ") + "\n";
    found.translations.iter().map(|pair| line(&pair.translation)).collect()
}

/// A search for programs, by the names of the keys.
fn search_json(search: &BeamSettings, more_tokens: usize) -> Value {
    json!({
        "beams": search.beams, "length_penalty": search.alpha, "length_form": search.form,
        "coverage_penalty": search.coverage, "finish": search.finish, "more_tokens": more_tokens,
    })
}
