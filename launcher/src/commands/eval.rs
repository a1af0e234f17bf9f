use std::path::PathBuf;

use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::ModelConfig;
use segue_dataloader::{Corpus, Split};
use segue_trainer::checkpoint::{ModelFolder, load_language_model};
use segue_trainer::engine::{EvalOptions, Evaluation, evaluate};
use segue_trainer::objective::LanguageModel;
use serde_json::{Value, json};
use tch::Kind;

use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// Arguments of `segue eval`.
#[derive(Args)]
#[command(after_help = "Example:\n  segue eval --model runs/wikitext2 --corpus corpora/wikitext2 --split test --lanes 1 --mem-len 400\n\n\
    Works under mpirun too; the result has the same bits at any number of ranks.")]
pub struct EvalArgs {
    /// Run folder (its newest whole checkpoint), checkpoint, or folder in Hugging Face's layout.
    #[arg(long)]
    model: PathBuf,
    /// Corpus folder; for a run folder, the one it was trained on.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Part of the corpus.
    #[arg(long, value_enum, default_value = "valid")]
    split: SplitName,
    /// Pieces the split is cut into; 1 gives every token its whole past.
    #[arg(long, default_value_t = 4)]
    lanes: usize,
    /// Tokens of a piece per forward pass.
    #[arg(long, default_value_t = 128)]
    segment: usize,
    /// Positions of memory; the model's where not given.
    #[arg(long)]
    mem_len: Option<usize>,
    /// Distances above this count as this; 0 for no limit.
    #[arg(long)]
    clamp_len: Option<i64>,
    /// Let every query see the same number of keys.
    #[arg(long)]
    same_length: bool,
    /// Threads of libtorch in each rank.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum SplitName {
    Train,
    Valid,
    Test,
}

impl From<SplitName> for Split {
    fn from(name: SplitName) -> Split {
        match name {
            SplitName::Train => Split::Train,
            SplitName::Valid => Split::Valid,
            SplitName::Test => Split::Test,
        }
    }
}

/// Evaluates and prints perplexity and bits.
pub fn run(args: EvalArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    segue_trainer::libtorch::set_threads(args.threads);
    let folder = ModelFolder::open(&args.model)?;
    for refused in &folder.refused {
        out.line(&format!("passed over: {refused}"));
    }
    let corpus = Corpus::open(&corpus_folder(&args)?)?;
    let mut config = folder.config.clone();
    config.fit_vocabulary(corpus.vocab_size())?;
    let mut model = load_language_model(&folder, Kind::Float)?;
    set_context(&mut model, &config, &args)?;
    let stream = corpus.tokens(args.split.into())?;
    let options = EvalOptions { lanes: args.lanes, group: args.lanes.min(4), segment: args.segment };
    let bar = out.progress(0, Unit::Steps, "evaluate");
    let result = evaluate(&model, &stream, options, comm, |done, whole| bar.set_of(done, whole))?;
    drop(bar);
    out.line(&describe(&result));
    Ok(json!({ "model": folder.path, "evaluation": result }))
}

/// One line for people.
pub fn describe(e: &Evaluation) -> String {
    format!(
        "{} targets: loss {:.4}, perplexity {:.3}, {:.4} bits per character, {:.4} bits per byte",
        e.targets, e.loss, e.ppl, e.bits_per_char, e.bits_per_byte
    )
}

fn corpus_folder(args: &EvalArgs) -> Result<PathBuf, Failure> {
    if let Some(corpus) = &args.corpus {
        return Ok(corpus.clone());
    }
    let record = args.model.join("config.json");
    let text = std::fs::read_to_string(&record).unwrap_or_default();
    let corpus = serde_json::from_str::<Value>(&text).ok().and_then(|c| Some(c["data"]["corpus"].as_str()?.to_string()));
    corpus.map(PathBuf::from).ok_or_else(|| {
        let message = format!("{} does not say which corpus it was trained on; give --corpus", args.model.display());
        Failure::new(USAGE, message)
    })
}

fn set_context(model: &mut LanguageModel, config: &ModelConfig, args: &EvalArgs) -> Result<(), Failure> {
    let ModelConfig::TransfoXl(config) = config;
    let context = &mut model.model.context;
    if let Some(mem_len) = args.mem_len {
        context.mem_len = mem_len as i64;
    }
    if let Some(clamp_len) = args.clamp_len {
        context.clamp_len = clamp_len;
    }
    if args.same_length || config.same_length {
        if context.mem_len == 0 {
            return Err(Failure::new(USAGE, "--same-length needs a memory of at least 1"));
        }
        *context = context.with_same_length(config.same_length_keys);
    }
    Ok(())
}
