use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use segue_trainer::convert::{CheckedText, ConvertOptions, Report, Target, check_text, convert};
use segue_trainer::parity::parity;
use serde_json::{Value, json};

use crate::failure::{CHECK_FAILED, Failure, USAGE};
use crate::output::{Output, Unit};

/// Names of variables that a line of the account shows.
const NAMES_SHOWN: usize = 4;

/// Arguments of `segue convert`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue convert transfo-xl-wt103 models/wt103\n  \
    segue convert work_dir/model.pt models/mine --vocab data/cache.pt\n  \
    segue convert tf_wt103/model/model.ckpt-0 models/wt103 model.mem_len=1600 model.clamp_len=1000\n  \
    segue convert xlnet_cased_L-12_H-768_A-12 models/xlnet-base\n  \
    segue convert --to tf runs/wikitext2 tf/wikitext2\n\n\
    SRC is told by what it holds: a folder of Hugging Face's or of this program, model.pt of kimiyoung/transformer-xl, \
    checkpoint_*.pt of NVIDIA, a TensorFlow checkpoint of Transformer-XL or XLNet. Nothing in a pickle is run. conversion.json in DST says what \
    became of every variable.")]
pub struct ConvertArgs {
    /// Checkpoint file or folder.
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Folder to make.
    #[arg(value_name = "DST")]
    target: PathBuf,
    /// What the source does not say, or says wrongly.
    #[arg(value_name = "model.KEY=VALUE")]
    overrides: Vec<String>,
    /// Layout to write.
    #[arg(long, value_enum, default_value = "hf")]
    to: To,
    /// Vocabulary to put beside the weights, where the source's is elsewhere.
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Leave out variables that have no place in the model, instead of failing.
    #[arg(long)]
    allow_skipped: bool,
    /// Compare the converted model with the reference numbers of this file, as `segue parity` does.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Compute the loss on this text, of the converted model and of the source where this program can run it.
    #[arg(long, value_name = "TEXT")]
    check_text: Option<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum To {
    /// Hugging Face's folder, which is this program's model folder.
    Hf,
    /// A checkpoint of the model's TensorFlow program.
    Tf,
}

/// Converts, prints the account and checks the result.
pub fn run(args: ConvertArgs, out: &Output) -> Result<Value, Failure> {
    segue_trainer::libtorch::set_threads(1);
    if args.to == To::Tf && (args.check.is_some() || args.check_text.is_some()) {
        return Err(Failure::new(USAGE, "--check and --check-text run the model, which needs --to hf"));
    }
    let target = if args.to == To::Tf { Target::TensorFlow } else { Target::HuggingFace };
    let options = ConvertOptions {
        target,
        vocabulary: args.vocab,
        allow_skipped: args.allow_skipped,
        overrides: args.overrides,
    };
    let bar = out.progress(0, Unit::Steps, "convert");
    let made = convert(&args.source, &args.target, &options, |done, whole| bar.set_of(done, whole))?;
    drop(bar);
    describe(&made.report, &args.target, out);
    let mut result = json!({ "output": args.target, "report": made.report });
    if let Some(cases) = &args.check {
        let groups = parity(&args.target, cases)?;
        let worst = groups.iter().map(|group| group.error).fold(0.0, f64::max);
        let holds = groups.iter().all(|group| group.holds());
        let verdict = if holds { "holds" } else { "FAILS" };
        out.line(&format!("check {verdict}: {} groups, largest relative error {worst:.1e}", groups.len()));
        result["check"] = json!({ "holds": holds, "groups": groups });
        if !holds {
            result["exit_code"] = json!(CHECK_FAILED);
        }
    }
    if let Some(text) = &args.check_text {
        let checked = check_text(&args.target, &args.source, text)?;
        out.line(&told(&checked));
        if checked.before.is_some_and(|before| before != checked.loss) {
            result["exit_code"] = json!(CHECK_FAILED);
        }
        result["check_text"] = json!(checked);
    }
    Ok(result)
}

fn told(checked: &CheckedText) -> String {
    let before = match checked.before {
        Some(before) => format!("{before:.6} before, "),
        None => String::new(),
    };
    format!("loss on {} tokens: {before}{:.6} now", checked.targets, checked.loss)
}

fn describe(report: &Report, target: &Path, out: &Output) {
    let counts: Vec<String> = report.counts.iter().map(|(fate, count)| format!("{count} {fate}")).collect();
    out.line(&format!(
        "{} ({}): {} variables: {}",
        report.source.display(),
        report.source_kind,
        report.variables.len(),
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
    let vocabulary = match report.vocabulary["problem"].as_str() {
        Some(problem) => format!("no vocabulary: {problem}"),
        None => format!("vocabulary of {} from {}", report.vocabulary["entries"], report.vocabulary["file"]),
    };
    out.line(&format!(
        "{} parameters in {} tensors, {vocabulary}; account in {}",
        report.parameters_count,
        report.parameters.len(),
        target.join("conversion.json").display()
    ));
}
