//! Evaluation of an XLNet on sequences of pairs, with the measures of its own validation.

use std::path::Path;

use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::Config;
use segue_dataloader::sections::{DataConfig, ObjectiveConfig, TextEvalConfig};
use segue_dataloader::{Corpus, Split};
use segue_engine::Watch;
use segue_language::{ModelFolder, PairValidation, Sources, context, load_objective};
use serde_json::{Value, json};

use super::{DocumentEndName, EvalArgs, check_tokenizer};
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// How sequences of pairs are made and predicted.
#[derive(Args)]
pub struct PairArgs {
    /// Objective of an XLNet on sequences of pairs [default: the one of its training].
    #[arg(long, value_enum)]
    objective: Option<ObjectiveName>,
    /// Values of an XLNet's configuration, by dotted name, that win over those it was trained with:
    /// `pairs.num_predict=40`.
    #[arg(value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ObjectiveName {
    /// Targets in a random order, each from those before it and the rest.
    Permutation,
    /// All targets at once, from a text in which they are masked.
    Denoising,
}

impl PairArgs {
    /// For models that read plain streams.
    pub fn refuse(&self) -> Result<(), Failure> {
        match self.objective.is_none() && self.overrides.is_empty() {
            true => Ok(()),
            false => Err(usage(
                "--objective and KEY=VALUE configure an XLNet on sequences of pairs; this model reads a \
                 stream",
            )),
        }
    }

    /// All that is to win over the model's own configuration.
    fn all_overrides(&self) -> Vec<String> {
        let kind = self.objective.map(|objective| match objective {
            ObjectiveName::Permutation => "objective.kind=permutation",
            ObjectiveName::Denoising => "objective.kind=denoising",
        });
        self.overrides.iter().cloned().chain(kind.map(String::from)).collect()
    }
}

/// Evaluates the model of `folder`, which was opened as `named`.
pub fn run(
    folder: ModelFolder,
    named: &Path,
    args: &EvalArgs,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    refuse_stream_options(args)?;
    let mut config = folder.training_config(named, &args.pairs.all_overrides())?;
    context(&config.model, args.attention.mem_len, args.attention.clamp_len, false)?;
    config.change(|eval: &mut TextEvalConfig| {
        eval.lanes = args.lanes.unwrap_or(eval.lanes);
        eval.mem_len = args.attention.mem_len.map_or(eval.mem_len, |n| n as i64);
        eval.clamp_len = args.attention.clamp_len.unwrap_or(eval.clamp_len);
    });
    let split = args.text.split.into();
    let corpus = corpus(&config, args.text.corpus.as_deref(), split, named)?;
    config.model.fit_vocabulary(corpus.vocab_size(), None)?;
    check_tokenizer(&folder, &corpus, out)?;
    let pairs = PairValidation::open(&config, &corpus, split)?;
    let mut objective = load_objective(&folder, &config)?;
    objective.keep_marks();
    objective.set_inverse_temperature(args.temperature.temperature);
    let bar = out.progress(0, Unit::Steps, "evaluate");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let mut watch = Watch::new(&mut progress);
    let result = pairs.evaluate(objective.as_mut(), &config.own(), comm, &mut watch)?;
    drop(bar);
    out.line(&result.describe());
    super::check_loss(result.loss, &folder.path)?;
    Ok(
        json!({ "model": folder.path, "objective": config.own::<ObjectiveConfig>().kind, "evaluation": result }),
    )
}

/// The corpus that is named, or the one that a run evaluates.
fn corpus(config: &Config, named: Option<&Path>, split: Split, model: &Path) -> Result<Corpus, Failure> {
    if let Some(corpus) = named {
        return Ok(Corpus::open(corpus)?);
    }
    let data = config.own::<DataConfig>();
    if data.corpus.is_empty() && data.corpora.is_empty() {
        let message = format!(
            "{} does not record the corpus it was trained on\nhint: add --corpus FOLDER",
            model.display()
        );
        return Err(usage(&message));
    }
    let sources = Sources::open(config)?;
    let found = sources.of_split(split).cloned();
    found.ok_or_else(|| {
        let message =
            format!("no corpus of {} has a split `{split}`\nhint: add --corpus FOLDER", model.display());
        usage(&message)
    })
}

fn refuse_stream_options(args: &EvalArgs) -> Result<(), Failure> {
    let carries = matches!(args.at_document_end, DocumentEndName::Carry);
    if args.segment.is_some()
        || args.ext_len > 0
        || !carries
        || args.attention.same_length
        || args.by_rows
        || args.lines
    {
        return Err(usage(
            "--segment, --ext-len, --at-document-end, --same-length, --by-rows and --lines are options for plain streams, \
             and this XLNet reads sequences of pairs\nhint: set their length with train.segment=N",
        ));
    }
    Ok(())
}

fn usage(message: &str) -> Failure {
    Failure::new(USAGE, message)
}
