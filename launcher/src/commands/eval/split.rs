//! Evaluation of a split as the model's own run validates, but for what the command says.

use std::path::Path;

use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::{Config, DeviceKind};
use segue_dataloader::sections::{DataConfig, DataOrder, ObjectiveConfig, TextEvalConfig};
use segue_engine::Watch;
use segue_language::{ModelFolder, Validation, context, keeps_marks, load_objective};
use serde_json::{Value, json};

use super::subject::{TextArgs, Texts};
use super::walk::TemperatureArgs;
use super::{check_loss, check_tokenizer, refuse_fine_tuned};
use crate::commands::spelled::spelled;
use crate::commands::{at_least_one, device_of_rank, distance, length, some_length};
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// How a split is cut, read and predicted.
#[derive(Args)]
pub struct SplitArgs {
    #[command(flatten)]
    pub text: TextArgs,
    /// Number of lanes the split is cut into, each with fresh memory; 1 gives every token all of its past [default:
    /// `eval.lanes` of the run].
    #[arg(long, value_parser = at_least_one)]
    lanes: Option<usize>,
    /// Lanes per forward pass of a plain stream. Ranks take turns with groups of so many, so that under mpirun `lanes / group`
    /// ranks have work; it changes the last bits of the result [default: the run's].
    #[arg(long, value_parser = at_least_one)]
    group: Option<usize>,
    /// Tokens per lane and forward pass [default: those of the run].
    #[arg(long, value_parser = some_length)]
    segment: Option<usize>,
    /// Tokens to re-read before each segment, as context [default: `eval.ext_len` of the run].
    #[arg(long, value_parser = length)]
    ext_len: Option<usize>,
    /// Treatment of the memory at the end of a document [default: `train.at_document_end` of the run].
    #[arg(long, value_enum)]
    at_document_end: Option<DocumentEndName>,
    /// Predict each line from a fresh state, its first token from an end of line, as a run with `data.order = "episodes"` validates. Only for
    /// recurrent models.
    #[arg(long, conflicts_with_all = ["ext_len", "at_document_end", "by_rows", "mem_len", "clamp_len", "same_length"])]
    lines: bool,
    #[command(flatten)]
    temperature: TemperatureArgs,
    #[command(flatten)]
    attention: AttentionArgs,
    /// Report the mean over rows too: in each lane one more than predictions, which AWD-LSTM's program divides by.
    #[arg(long)]
    by_rows: bool,
    /// Objective of an XLNet on sequences of pairs [default: the one of its training].
    #[arg(long, value_enum)]
    objective: Option<ObjectiveName>,
    /// Values of the run's configuration, by dotted name, that win over those it was trained with: `data.order=stream`,
    /// `pairs.num_predict=40`.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Where to compute.
    #[arg(long, value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
}

/// Context of attention.
#[derive(Args)]
pub struct AttentionArgs {
    /// Memory length, in positions [default: that of the run's evaluations].
    #[arg(long, value_parser = length)]
    mem_len: Option<usize>,
    /// Largest distance; greater ones are clamped to it, -1 for no limit [default: that of the run's evaluations].
    #[arg(long, allow_negative_numbers = true, value_parser = distance)]
    clamp_len: Option<i64>,
    /// Show every query the same number of keys [default: as the run's evaluations do].
    #[arg(long)]
    same_length: bool,
}

impl AttentionArgs {
    /// What the model of `folder`, which was opened as `named`, sees of what came before.
    pub fn of(&self, folder: &ModelFolder, named: &Path) -> Result<TextEvalConfig, Failure> {
        self.over(folder, &folder.training_config(named, &[])?.own.get())
    }

    /// What the command says, else the run.
    fn over(&self, folder: &ModelFolder, run: &TextEvalConfig) -> Result<TextEvalConfig, Failure> {
        let mem_len = self.mem_len.or(usize::try_from(run.mem_len).ok());
        let clamp_len = self.clamp_len.or((run.clamp_len != 0).then_some(run.clamp_len));
        Ok(context(&folder.config, mem_len, clamp_len, self.same_length || run.same_length)?)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum DocumentEndName {
    /// Nothing.
    Carry,
    /// The next segment starts with a fresh memory.
    Reset,
    /// No position sees another document.
    Mask,
}

#[derive(Clone, Copy, ValueEnum)]
enum ObjectiveName {
    /// Targets in a random order, each from those before it and the rest.
    Permutation,
    /// All targets at once, from a text in which they are masked.
    Denoising,
}

impl SplitArgs {
    /// The run's configuration, with `[eval]` and the order of reading as the command wants them.
    fn config(&self, folder: &ModelFolder, named: &Path) -> Result<Config, Failure> {
        let tokens = folder.next_tokens()?;
        let in_pairs = tokens.looks_both_ways(&folder.config);
        match in_pairs {
            true => self.refuse_stream_options()?,
            false => self.refuse_pair_options()?,
        }
        let masks = matches!(self.at_document_end, Some(DocumentEndName::Mask));
        if !tokens.reads_context_again() && (self.ext_len.unwrap_or(0) > 0 || masks) {
            return Err(usage(
                "--ext-len and --at-document-end mask are options of Transformer-XL\nhint: use --at-document-end reset",
            ));
        }
        if self.lines && tokens.attends() {
            return Err(usage("--lines is for recurrent models\nhint: evaluate without it"));
        }
        let mut config = folder.training_config(named, &self.all_overrides())?;
        let seen = self.attention.over(folder, &config.own.get())?;
        config.change(|eval: &mut TextEvalConfig| {
            eval.mem_len = seen.mem_len;
            eval.clamp_len = seen.clamp_len;
            eval.same_length = seen.same_length;
        });
        if self.lines {
            config.change(|data: &mut DataConfig| data.order = DataOrder::Episodes);
        }
        Ok(config)
    }

    /// All that is to win over the model's own configuration.
    fn all_overrides(&self) -> Vec<String> {
        let kind = self.objective.map(|objective| match objective {
            ObjectiveName::Permutation => "objective.kind=permutation",
            ObjectiveName::Denoising => "objective.kind=denoising",
        });
        let numbers = [
            ("eval.lanes", self.lanes),
            ("eval.group", self.group),
            ("eval.segment", self.segment),
            ("eval.ext_len", self.ext_len),
        ];
        let numbers = numbers.into_iter().filter_map(|(key, given)| Some(format!("{key}={}", given?)));
        let policy = self.at_document_end.map(|policy| match policy {
            DocumentEndName::Carry => "train.at_document_end=carry",
            DocumentEndName::Reset => "train.at_document_end=reset",
            DocumentEndName::Mask => "train.at_document_end=mask",
        });
        let all = self.overrides.iter().cloned().chain(kind.map(String::from)).chain(numbers);
        all.chain(policy.map(String::from)).collect()
    }

    fn refuse_pair_options(&self) -> Result<(), Failure> {
        match self.objective {
            Some(_) => {
                Err(usage("--objective is for an XLNet on sequences of pairs; this model reads a stream"))
            }
            None => Ok(()),
        }
    }

    fn refuse_stream_options(&self) -> Result<(), Failure> {
        if self.segment.is_some()
            || self.ext_len.is_some()
            || self.at_document_end.is_some()
            || self.attention.same_length
            || self.by_rows
            || self.lines
        {
            return Err(usage(
                "--segment, --ext-len, --at-document-end, --same-length, --by-rows and --lines are options for plain streams, \
                 and this XLNet reads sequences of pairs\nhint: set their length with train.segment=N",
            ));
        }
        Ok(())
    }
}

/// Evaluates a split and prints perplexity and bits.
pub fn run(named: &Path, args: &SplitArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let compute = device_of_rank(args.device, comm, out)?;
    let folder = ModelFolder { compute, ..args.text.open_folder(named, out)? };
    if args.text.corpus.is_none() {
        refuse_fine_tuned(named)?;
    }
    let mut config = args.config(&folder, named)?;
    let Config { train, model, own, .. } = &config;
    let texts = Texts::open(args.text.corpus.as_deref(), named, train, model, own)?;
    let corpus = texts.of_split(args.text.split.into())?;
    check_tokenizer(&folder, corpus, out)?;
    config.model.fit_vocabulary(corpus.vocab_size(), None)?;
    let Config { train, model, own, .. } = &config;
    let mut objective = load_objective(&folder, model, own, config.schedule_steps())?;
    let validation = Validation::of_split(train, model, own, corpus, args.text.split.into())?;
    check_lanes(args, &validation)?;
    if args.at_document_end.is_some() && matches!(validation, Validation::Lines { .. }) {
        return Err(usage(
            "--at-document-end is of a stream, and this run reads line by line\nhint: add data.order=stream",
        ));
    }
    if args.by_rows && !matches!(validation, Validation::Stream { .. }) {
        return Err(usage(
            "--by-rows is of a stream, and this run reads line by line\nhint: add data.order=stream",
        ));
    }
    if keeps_marks(own) {
        objective.keep_marks();
    }
    objective.set_inverse_temperature(args.temperature.temperature);
    let bar = out.progress(0, Unit::Steps, "evaluate");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let result = validation.evaluate(objective.as_mut(), train, own, comm, &mut Watch::new(&mut progress))?;
    drop(bar);
    let cut = validation.cut(train, model, own)?;
    out.line(&format!("{} ({cut}; weights of {})", result.describe(), folder.path.display()));
    check_loss(result.loss, &folder.path)?;
    let mut found = json!({ "model": folder.path, "cut": cut, "evaluation": result });
    if args.by_rows {
        let rows = result.by_rows(cut.lanes);
        out.line(&format!("by rows: loss {:.4}, perplexity {:.3}", rows.loss, rows.ppl));
        found["by_rows"] = json!(rows);
    }
    if matches!(validation, Validation::Pairs(_)) {
        found["objective"] = json!(own.get::<ObjectiveConfig>().kind);
    }
    Ok(found)
}

/// Refuses more lanes of the command than there are tokens.
fn check_lanes(args: &SplitArgs, validation: &Validation) -> Result<(), Failure> {
    match (args.lanes, validation) {
        (Some(lanes), Validation::Stream { tokens, .. } | Validation::Lines { tokens, .. })
            if lanes as u64 > *tokens =>
        {
            Err(usage(&format!("--lanes {lanes} is more than the {tokens} tokens of the split")))
        }
        _ => Ok(()),
    }
}

fn usage(message: &str) -> Failure {
    Failure::new(USAGE, message)
}
