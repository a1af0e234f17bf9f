use std::path::{Path, PathBuf};

use clap::Args;
use segue_protocols::{
    DEFAULT_THRESHOLD, LossCache, LossGroup, contexts_between, drawn_positions, truncated_losses,
    weights_fingerprint,
};
use segue_report::{LineChart, Point, Series};
use serde_json::{Value, json};

use super::subject::{Subject, TextArgs};
use crate::commands::{at_least_one, not_negative, some_length};
use crate::failure::{BUG, Failure, USAGE};
use crate::folder::{Force, ResultFolder};
use crate::output::{Output, Unit};

/// RECL of published models for r = 0.1, 0.5 and 1: Yang 2019, table 2.9.
const THESIS: [(&str, [u64; 3]); 7] = [
    ("Transformer-XL 151M", [900, 800, 700]),
    ("QRNN", [500, 400, 300]),
    ("LSTM", [400, 300, 200]),
    ("Transformer-XL 128M", [700, 600, 500]),
    ("with Shaw's encoding", [400, 400, 300]),
    ("without recurrence", [300, 300, 300]),
    ("Transformer", [128, 128, 128]),
];

/// Folder of the losses within that of the results.
const LOSSES: &str = "losses";
/// Tokens of one forward pass, about.
const TOKENS_PER_PASS: u64 = 4096;

/// Arguments of `segue eval recl`.
#[derive(Args)]
#[command(after_help = "\
    The same command goes on where it was interrupted: losses are kept in OUTPUT/losses, and results \
    beside them are replaced.\n\n\
    Example:\n  \
    segue eval recl --models runs/xl runs/no-memory --labels XL 'no memory' \\\n      \
    --corpus corpora/wikitext2 --split test --delta 50 --max 500 --output recl")]
pub struct ReclArgs {
    /// Models of the group, all with the tokenizer of the corpus.
    #[arg(long, num_args = 1.., required = true, value_name = "DIR")]
    models: Vec<PathBuf>,
    /// Their names in tables and charts [default: the folders'].
    #[arg(long, num_args = 1.., value_name = "TEXT")]
    labels: Vec<String>,
    #[command(flatten)]
    text: TextArgs,
    /// Number of random positions, the same for all models.
    #[arg(long, default_value_t = 400, value_parser = at_least_one)]
    positions: usize,
    /// Seed of the positions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shortest context [default: --delta].
    #[arg(long, value_parser = some_length)]
    c0: Option<usize>,
    /// Step between contexts.
    #[arg(long, default_value_t = 100, value_parser = some_length)]
    delta: usize,
    /// Longest context.
    #[arg(long, default_value_t = 1000, value_parser = some_length)]
    max: usize,
    /// Fractions of hardest positions, in (0, 1].
    #[arg(long, num_args = 1.., default_values_t = [0.1, 0.5, 1.0], value_name = "SHARE")]
    r: Vec<f64>,
    /// Smallest relative gain for which more context counts.
    #[arg(long, default_value_t = DEFAULT_THRESHOLD, value_parser = not_negative)]
    threshold: f64,
    /// Folder for `recl.json`, `recl.csv`, `gains.csv`, `perplexity.csv`, `perplexity.svg`, `gains-rSHARE.svg`, and the
    /// losses.
    #[arg(long)]
    output: PathBuf,
    #[command(flatten)]
    force: Force,
}

/// Computes the losses, then everything that follows from them.
pub fn run(args: ReclArgs, out: &Output) -> Result<Value, Failure> {
    let labels = check(&args)?;
    // One with losses is gone on with.
    let folder = match args.output.join(LOSSES).is_dir() {
        true => ResultFolder::create(&args.output)?,
        false => ResultFolder::of_output(&args.output, args.force)?,
    };
    let c0 = args.c0.unwrap_or(args.delta);
    let contexts = contexts_between(c0 as u64, args.delta as u64, args.max as u64);
    let mut losses = Vec::new();
    for (model, label) in args.models.iter().zip(&labels) {
        losses.push(losses_of(model, label, &contexts, &args, out)?);
    }
    let group =
        LossGroup::new(contexts, losses).ok_or_else(|| Failure::new(BUG, "the table of losses has holes"))?;
    let analysis = Analysis { group, labels, shares: args.r.clone(), threshold: args.threshold };
    let result = analysis.result(&args);
    analysis.print(out);
    analysis.write(&folder, &result)?;
    out.line(&format!("written to {}", folder.path().display()));
    Ok(result)
}

/// The models' names; or what is wrong with the command line.
fn check(args: &ReclArgs) -> Result<Vec<String>, Failure> {
    let usage = |what: &str| Err(Failure::new(USAGE, what));
    if !args.labels.is_empty() && args.labels.len() != args.models.len() {
        return usage(
            "the numbers of --labels and --models differ\nhint: give a label to every model, or to none",
        );
    }
    if args.r.iter().any(|r| !(*r > 0.0 && *r <= 1.0)) {
        return usage("--r must lie in (0, 1]");
    }
    if args.max < args.c0.unwrap_or(args.delta) + args.delta {
        return usage("--max leaves room for one context only\nhint: lower --c0 or --delta");
    }
    if !args.labels.is_empty() {
        return Ok(args.labels.clone());
    }
    let name = |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(args.models.iter().map(name).collect())
}

/// Losses of one model, by context and position; those that are there already are read.
fn losses_of(
    model: &Path,
    label: &str,
    contexts: &[u64],
    args: &ReclArgs,
    out: &Output,
) -> Result<Vec<Vec<f64>>, Failure> {
    let mut subject = Subject::open(model, &args.text, out)?;
    let (count, longest) = (args.positions as u64, args.max as u64);
    let targets = drawn_positions(longest..subject.stream.len().max(longest), count, args.seed)?;
    let cache = LossCache::open(&args.output.join(LOSSES))?;
    let weights = weights_fingerprint(&subject.folder.path)?;
    let corpus = subject.texts.of_split(args.text.split.into())?.fingerprint().to_string();
    let bar = out.progress(count * contexts.len() as u64, Unit::Steps, label);
    let mut all = Vec::new();
    for (k, &context) in contexts.iter().enumerate() {
        let key = json!({
            "weights": weights,
            "corpus": corpus,
            "split": format!("{}", segue_dataloader::Split::from(args.text.split)),
            "positions": count,
            "seed": args.seed,
            "first": longest,
            "context": context,
        });
        let done = k as u64 * count;
        let losses = match cache.get(&key, targets.len()) {
            Some(losses) => losses,
            None => {
                let batch = (TOKENS_PER_PASS / context).max(1) as usize;
                let report = |n| bar.set(done + n);
                let stream = &subject.stream;
                let losses = truncated_losses(
                    subject.model.as_mut(),
                    stream,
                    &targets,
                    context as usize,
                    batch,
                    report,
                )?;
                cache.put(&key, &losses)?;
                losses
            }
        };
        bar.set(done + count);
        super::check_loss(losses.iter().sum(), &subject.folder.path)?;
        all.push(losses);
    }
    Ok(all)
}

struct Analysis {
    group: LossGroup,
    labels: Vec<String>,
    shares: Vec<f64>,
    threshold: f64,
}

impl Analysis {
    fn steps(&self) -> std::ops::Range<usize> {
        0..self.group.contexts().len() - 1
    }

    fn result(&self, args: &ReclArgs) -> Value {
        let group = &self.group;
        let model = |i: usize| {
            let recl = |&r: &f64| json!({ "r": r, "recl": group.recl(i, r, self.threshold) });
            let perplexity = (0..group.contexts().len()).map(|c| group.perplexity(i, c)).collect::<Vec<_>>();
            json!({
                "label": self.labels[i],
                "model": args.models[i],
                "recl": self.shares.iter().map(recl).collect::<Vec<_>>(),
                "perplexity": perplexity,
            })
        };
        json!({
            "contexts": group.contexts(),
            "positions": group.positions(),
            "seed": args.seed,
            "threshold": self.threshold,
            "models": (0..group.models()).map(model).collect::<Vec<_>>(),
            "thesis": THESIS.map(|(label, recl)| json!({ "label": label, "recl": recl })),
        })
    }

    fn print(&self, out: &Output) {
        let width = self.labels.iter().map(|l| l.chars().count()).max().unwrap_or(0).max(22);
        let row = |label: &str, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!(" {cell:>8}")).collect();
            out.line(&format!("{label:width$}{cells}"));
        };
        row("RECL", self.shares.iter().map(|r| format!("r = {r}")).collect());
        for (i, label) in self.labels.iter().enumerate() {
            let recl = |&r: &f64| self.group.recl(i, r, self.threshold);
            let cell = |r: &f64| format!("{}{}", if recl(r).at_least { "≥ " } else { "" }, recl(r).context);
            row(label, self.shares.iter().map(cell).collect());
        }
        row("published (Yang 2019)", ["0.1", "0.5", "1"].iter().map(|r| format!("r = {r}")).collect());
        for (label, recl) in THESIS {
            row(label, recl.iter().map(u64::to_string).collect());
        }
    }

    fn write(&self, folder: &ResultFolder, result: &Value) -> Result<(), Failure> {
        folder.write_json("recl.json", result)?;
        let (mut recl, mut gains, mut perplexity) = (Vec::new(), Vec::new(), Vec::new());
        let contexts = self.group.contexts();
        for (i, label) in self.labels.iter().enumerate() {
            for &r in &self.shares {
                let found = self.group.recl(i, r, self.threshold);
                recl.push(vec![
                    label.clone(),
                    r.to_string(),
                    found.context.to_string(),
                    found.at_least.to_string(),
                ]);
                for c in self.steps() {
                    gains.push(vec![
                        label.clone(),
                        r.to_string(),
                        contexts[c].to_string(),
                        contexts[c + 1].to_string(),
                        self.group.gain(i, c, c + 1, r).to_string(),
                        self.group.relative_gain(i, c, c + 1, r).to_string(),
                    ]);
                }
            }
            for (c, context) in contexts.iter().enumerate() {
                let ppl = self.group.perplexity(i, c);
                perplexity.push(vec![label.clone(), context.to_string(), ppl.to_string()]);
            }
        }
        folder.write_csv("recl.csv", &["model", "r", "recl", "at_least"], &recl)?;
        let header = ["model", "r", "context", "longer", "gain", "relative_gain"];
        folder.write_csv("gains.csv", &header, &gains)?;
        folder.write_csv("perplexity.csv", &["model", "context", "perplexity"], &perplexity)?;
        folder.write("perplexity.svg", &self.perplexity_chart().svg())?;
        for &r in &self.shares {
            folder.write(&format!("gains-r{r}.svg"), &self.gain_chart(r).svg())?;
        }
        Ok(())
    }

    /// Figure 2.5.
    fn perplexity_chart(&self) -> LineChart {
        let chart = LineChart::new("Perplexity by context", "tokens of context", "perplexity");
        self.lines(chart, 0..self.group.contexts().len(), 0, |i, c| self.group.perplexity(i, c))
    }

    /// Figure 2.4.
    fn gain_chart(&self, r: f64) -> LineChart {
        let title = format!("Gain of a longer context over the group's baseline, r = {r}");
        let chart = LineChart::new(title, "tokens of the longer context", "gain in perplexity");
        self.lines(chart, self.steps(), 1, |i, c| self.group.gain(i, c, c + 1, r))
    }

    /// One line a model: `value(model, c)` over context number `c + shift`.
    fn lines(
        &self,
        chart: LineChart,
        steps: std::ops::Range<usize>,
        shift: usize,
        value: impl Fn(usize, usize) -> f64,
    ) -> LineChart {
        self.labels.iter().enumerate().fold(chart, |chart, (i, label)| {
            let point = |c: usize| Point::from((self.group.contexts()[c + shift] as f64, value(i, c)));
            chart.with(Series::new(label, steps.clone().map(point).collect()))
        })
    }
}
