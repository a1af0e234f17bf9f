use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use segue_configs::counted;
use segue_convert::{
    CheckedPart, CheckedText, ConvertOptions, RecurrentLayout, Report, Target, TensorFlowHead, check_text,
    check_vacant, convert,
};
use segue_families::parity;
use segue_task::{extract_adapter, extract_task};
use serde_json::{Value, json};

use crate::failure::{CHECK_FAILED, Failure, NO_INPUT, USAGE};
use crate::output::{Output, Unit};

/// Names of variables that a line of the account shows.
const NAMES_SHOWN: usize = 4;

/// Arguments of `segue convert`.
#[derive(Args)]
#[command(after_help = "\
    SRC is told by what it holds: a folder of Hugging Face's (whole or in pieces) or of this program, \
    model.pt of kimiyoung/transformer-xl, checkpoint_*.pt of NVIDIA, a TensorFlow checkpoint of \
    Transformer-XL or XLNet, a module or state dict of pytorch/examples' word_language_model, \
    salesforce/awd-lstm-lm or zihangdai/mos. Nothing in a pickle is run. conversion.json in DST says what \
    became of every variable.\n\n\
    Examples:\n  \
    segue convert transfo-xl-wt103 models/wt103\n  \
    segue convert --to tf --head regression:sts-b runs/sts-b tf/sts-b\n  \
    segue convert PTB.pt models/awd --vocab corpus.3ba0.data \\\n      \
    --check \"a text of known words\"")]
pub struct ConvertArgs {
    /// Checkpoint file or folder, told by what it holds.
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Output folder, which must not exist or be empty. It appears whole or not at all.
    #[arg(value_name = "DST")]
    target: PathBuf,
    /// Keys of `[model]` that the source lacks or has wrong.
    #[arg(value_name = "model.KEY=VALUE")]
    overrides: Vec<String>,
    /// Output layout.
    #[arg(long, value_enum, default_value = "hf")]
    to: To,
    /// Vocabulary to store beside the weights, if the source keeps it elsewhere: any format that `segue tokenizer
    /// import` reads, or a tokenizer folder.
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Skip and list variables that the model does not have, instead of failing with 78.
    #[arg(long)]
    allow_skipped: bool,
    /// Convert Adam's moments and update count too, to and from the slots and `global_step` of a TensorFlow checkpoint,
    /// or `optimizer.safetensors` with `trainer_state.json` or `conversion.json`. Fails with 78 if the source has none.
    #[arg(long)]
    optimizer: bool,
    /// Name of the layer that scores a sequence in TensorFlow's XLNet, with `--to tf`: `classification:TASK`
    /// (`model/classification_TASK/logit`), `regression:TASK` (`model/regression_TASK/logit`) or `race`
    /// (`logits/dense`). Fails with 78 where `config.json` does not tell either [default: from `architectures` of a
    /// multiple choice, else `problem_type` (or several scores) with `finetuning_task`].
    #[arg(long, value_name = "HEAD")]
    head: Option<TensorFlowHead>,
    /// Compare source and result on this text or file: hidden states layer by layer, heads and loss; exit code 1 if a
    /// bit differs. Both are read by the same table of names: this proves what was written, not that the table is right.
    /// Of a file `*.safetensors`: compare the result with the numbers of the original program in it, as `segue parity`
    /// does (with `--to hf` alone), which proves the table too; exit code 1 if a group fails.
    #[arg(long, value_name = "TEXT|FILE")]
    check: Option<String>,
    /// Compare source and result on this text, which is never taken for a file.
    #[arg(long, value_name = "TEXT")]
    check_text: Option<String>,
    /// Take one task out of a model that was fine-tuned on several: the encoder, its head, labels, scores and card as a
    /// folder of its own.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = [
            "overrides", "to", "vocab", "allow_skipped", "optimizer", "head", "check", "check_text",
        ],
    )]
    task: Option<String>,
    /// Take the low-rank adapters (`task.adapter_rank`) and the head out of a fine-tuned model: `adapter_config.json` and `adapter_model.safetensors`, as
    /// `peft` opens them beside the model they were trained on.
    #[arg(
        long,
        conflicts_with_all = [
            "overrides", "to", "vocab", "allow_skipped", "optimizer", "head", "check", "check_text", "task",
        ],
    )]
    adapter: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum To {
    /// Hugging Face's folder, which is Segue's own model folder.
    Hf,
    /// Checkpoint of the model's TensorFlow program: `model.ckpt.*`, `checkpoint` and `corpus-info.json` of
    /// Transformer-XL; `xlnet_model.ckpt.*`, `checkpoint` and `xlnet_config.json` of an XLNet.
    Tf,
    /// State dict `model.pt` of pytorch/examples' `word_language_model`.
    WordLm,
    /// State dict `model.pt` of salesforce/awd-lstm-lm; with a split softmax, a dict of `model`, `criterion` and its `splits`.
    AwdLstm,
    /// State dict `model.pt` of zihangdai/mos.
    Mos,
}

impl To {
    fn target(self) -> Target {
        match self {
            Self::Hf => Target::HuggingFace,
            Self::Tf => Target::TensorFlow,
            Self::WordLm => Target::Recurrent(RecurrentLayout::WordLanguageModel),
            Self::AwdLstm => Target::Recurrent(RecurrentLayout::AwdLstm),
            Self::Mos => Target::Recurrent(RecurrentLayout::Mos),
        }
    }
}

/// What `--check` and `--check-text` ask for.
#[derive(Default)]
struct Checks {
    cases: Option<PathBuf>,
    texts: Vec<String>,
}

impl Checks {
    fn of(args: &ConvertArgs) -> Result<Self, Failure> {
        let mut checks = Self { texts: args.check_text.iter().cloned().collect(), cases: None };
        let Some(given) = &args.check else { return Ok(checks) };
        let path = PathBuf::from(given);
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            if args.to != To::Hf {
                let message = "reference numbers are compared with a model folder\nhint: add --to hf";
                return Err(Failure::new(USAGE, message));
            }
            if !path.is_file() {
                let message = format!("{} is not a file of reference numbers", path.display());
                return Err(Failure::new(NO_INPUT, message));
            }
            checks.cases = Some(path);
        } else if path.is_file() {
            let text = std::fs::read_to_string(&path).map_err(|e| Failure::cannot_read(&path, &e))?;
            checks.texts.push(text);
        } else {
            checks.texts.push(given.clone());
        }
        Ok(checks)
    }
}

/// Converts, prints the account and checks the result.
pub fn run(args: ConvertArgs, out: &Output) -> Result<Value, Failure> {
    segue_kernels::libtorch::start(1);
    if let Some(task) = &args.task {
        return take_task(&args.source, task, &args.target, out);
    }
    if args.adapter {
        return take_adapter(&args.source, &args.target, out);
    }
    let checks = Checks::of(&args)?;
    if args.head.is_some() && args.to != To::Tf {
        return Err(Failure::new(
            USAGE,
            "--head names a layer of a TensorFlow checkpoint\nhint: add --to tf",
        ));
    }
    let options = ConvertOptions {
        target: args.to.target(),
        vocabulary: args.vocab,
        allow_skipped: args.allow_skipped,
        optimizer: args.optimizer,
        head: args.head,
        overrides: args.overrides,
        texts: checks.texts.clone(),
    };
    let bar = out.progress(0, Unit::Steps, "convert");
    let made = convert(&args.source, &args.target, &options, |done, whole| bar.set_of(done, whole))?;
    drop(bar);
    describe(&made.report, &args.target, out);
    let mut result = json!({ "output": args.target, "report": made.report });
    let checked = check(&checks, &args.source, &args.target, &options, &mut result, out);
    if checked.is_err() {
        // It was to be there as checked. The folder is this command's own: it was not there, or empty.
        let _ = std::fs::remove_dir_all(&args.target);
    }
    if !checked? {
        result["exit_code"] = json!(CHECK_FAILED);
    }
    Ok(result)
}

/// Takes one task out of a model of several.
fn take_task(source: &Path, task: &str, target: &Path, out: &Output) -> Result<Value, Failure> {
    check_vacant(target)?;
    let head = extract_task(&segue_families::MODELS, source, task, target)?;
    out.line(&format!("the head for {task} on its encoder: {}", target.display()));
    Ok(json!({ "output": target, "task": head.task, "labels": head.labels }))
}

/// Takes the adapters out of a fine-tuned model.
fn take_adapter(source: &Path, target: &Path, out: &Output) -> Result<Value, Failure> {
    check_vacant(target)?;
    let adapted = extract_adapter(&segue_families::MODELS, source, target)?;
    out.line(&format!("adapters of {}, and the head: {}", counted(adapted, "module"), target.display()));
    Ok(json!({ "output": target, "modules": adapted }))
}

/// Compares the result with its source and with reference numbers, as far as that is asked for, and adds what was found to
/// `result`. Whether all holds.
fn check(
    checks: &Checks,
    source: &Path,
    target: &Path,
    options: &ConvertOptions,
    result: &mut Value,
    out: &Output,
) -> Result<bool, Failure> {
    let mut holds = true;
    if let Some(cases) = &checks.cases {
        let groups = parity(target, cases, segue_kernels::Compute::CPU)?;
        let worst = groups.iter().map(|group| group.error).fold(0.0, f64::max);
        let all = groups.iter().all(|group| group.holds());
        let verdict = if all { "holds" } else { "FAILS" };
        out.line(&format!(
            "check {verdict}: {}, largest relative error {worst:.1e}",
            counted(groups.len(), "group")
        ));
        result["check"] = json!({ "holds": all, "groups": groups });
        holds &= all;
    }
    for text in &checks.texts {
        let bar = out.progress(0, Unit::Steps, "check");
        let progress = |done, whole| bar.set_of(done, whole);
        let checked = check_text(source, target, options, text, progress)?;
        drop(bar);
        tell(&checked, out);
        holds &= checked.holds();
        result["check_text"] = json!(checked);
        result["check_text"]["holds"] = json!(checked.holds());
    }
    Ok(holds)
}

/// Prints how far every layer is from the source's.
fn tell(checked: &CheckedText, out: &Output) {
    let parts = || checked.layers.iter().chain(&checked.heads);
    let width = parts().map(|part| part.name.len()).max().unwrap_or(0);
    out.line(&format!("{:width$}  {:>14}  {:>12}", "", "max difference", "max value"));
    for CheckedPart { name, max_difference, max_value } in parts() {
        out.line(&format!("{name:width$}  {max_difference:>14.3e}  {max_value:>12.4e}"));
    }
    let verdict = if checked.holds() { "check holds" } else { "check FAILS" };
    out.line(&format!(
        "{verdict}: loss on {} tokens {:.6} before, {:.6} after",
        checked.targets, checked.before, checked.loss
    ));
    out.line(
        "this compares what was written with what was read, both by one table of names; numbers of the original program \
         show whether the table is right: --check CASES.safetensors, as for segue parity",
    );
}

fn describe(report: &Report, target: &Path, out: &Output) {
    let counts: Vec<String> = report.counts.iter().map(|(fate, count)| format!("{count} {fate}")).collect();
    out.line(&format!(
        "{} ({}): {}: {}",
        report.source.display(),
        report.source_kind,
        counted(report.variables.len(), "variable"),
        counts.join(", ")
    ));
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for variable in &report.variables {
        if let Some(reason) = &variable.reason {
            reasons.entry((variable.fate, reason)).or_default().push(&variable.name);
        }
    }
    for ((fate, reason), names) in reasons {
        let more = if names.len() > NAMES_SHOWN { ", .." } else { "" };
        let shown = names[..names.len().min(NAMES_SHOWN)].join(", ");
        out.line(&format!("  {fate} {}: {shown}{more}: {reason}", names.len()));
    }
    for note in &report.notes {
        out.line(&format!("  note: {note}"));
    }
    for guesses in report.guesses.chunk_by(|a, b| a.why == b.why) {
        let values: Vec<String> =
            guesses.iter().map(|guess| format!("{} = {}", guess.key, guess.value)).collect();
        out.line(&format!("  guess: {}: {}", values.join(", "), guesses[0].why));
    }
    let vocabulary = match report.vocabulary["problem"].as_str() {
        Some(problem) => format!("no vocabulary: {problem}"),
        None => format!("vocabulary of {} from {}", report.vocabulary["entries"], report.vocabulary["file"]),
    };
    out.line(&format!(
        "{} parameters in {}, {vocabulary}; account in {}",
        report.parameters_count,
        counted(report.parameters.len(), "tensor"),
        target.join("conversion.json").display()
    ));
}
