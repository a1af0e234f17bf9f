use std::path::{Path, PathBuf};

use clap::Args;
use segue_configs::{Config, ModelConfig, OwnSections, RecipeReader, TrainConfig};
use segue_dataloader::sections::{DataConfig, DataOrder, ObjectiveConfig, ObjectiveKind};
use segue_dataloader::{Batch, LaneCursor, Lanes, PairLanes, PairOptions, Pairs, RecordLanes, Split};
use segue_family::ShownLane;
use segue_language::{ModelFolder, Sources, open_lanes};
use segue_publish::read_regular_text;
use segue_report::MaskChart;
use segue_tasks::TaskSplits;
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::task_batch::{self, piece};
use crate::commands::at_least_one;
use crate::commands::finetune::TaskRun;
use crate::failure::{BAD_CONFIG, BAD_DATA, Failure, USAGE};
use crate::folder::{Force, ResultFolder};
use crate::output::{Output, Unit};
use crate::recipes;

/// Longest sequence whose mask is printed as text.
const PRINTED_MASK: usize = 64;

/// Arguments of `segue inspect batch`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue inspect batch --run runs/xlnet --step 1200 --lane 3 --svg mask.svg\n  \
    segue inspect batch --config xlnet.toml data.corpus=corpora/wiki \\\n      \
    train.segment=64 model.reuse_len=32\n  \
    segue inspect batch --run runs/sst2 --step 3 --examples 4")]
pub struct BatchArgs {
    /// Run folder whose data and configuration to use.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    run: Option<PathBuf>,
    /// Recipe, a TOML file, or the name of one that comes with the program (`segue recipes`).
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Step of the run, from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    step: u64,
    /// Lane of the run, from 0; of a task the first example that is shown.
    #[arg(long, default_value_t = 0)]
    lane: usize,
    /// Number of examples of a task to show.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    examples: usize,
    /// File to draw the attention masks to, an SVG: rows see columns.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Overrides of the recipe or of the run, by dotted name.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// What is learnt from alone.
const ONLY_LEARNT: TaskSplits = TaskSplits { train: true, dev: false, test: false };

/// Prints one lane's part of one step.
pub fn run(args: &BatchArgs, out: &Output) -> Result<Value, Failure> {
    args.force.allow(args.svg.as_deref(), "--svg")?;
    let config = configuration(args)?;
    if args.lane >= config.train.lanes {
        let message = format!("lane {} does not exist: train.lanes = {}", args.lane, config.train.lanes);
        return Err(Failure::new(USAGE, message));
    }
    if !config.task.name.is_empty() {
        if args.svg.is_some() {
            let message = "--svg draws the attention mask of pre-training, and this batch is of a task";
            return Err(Failure::new(USAGE, message));
        }
        // A run has a tokenizer of its own, wherever the model that it began with is.
        let folder = args.run.as_deref().map(|run| ModelFolder::open(&segue_families::MODELS, run));
        let run = TaskRun::open(config, folder.transpose()?, ONLY_LEARNT, &|_| ())?;
        return task_batch::show(&run, args.step, args.lane, args.examples, out);
    }
    if segue_language::language(&config.model).is_err() {
        let mut config = config.clone();
        let job = (segue_family::of(&config.model).open)(&mut config)?;
        if args.svg.is_some() {
            let message = "--svg draws the attention mask of pre-training on text";
            return Err(Failure::new(USAGE, message));
        }
        if let Some(ShownLane { lines, value }) = job.lane(&config, args.step, args.lane)? {
            lines.iter().for_each(|line| out.line(line));
            return Ok(merged(json!({ "step": args.step, "lane": args.lane }), value));
        }
    }
    segue_language::language(&config.model)?;
    let data = config.own.get::<DataConfig>();
    if data.corpus.is_empty() && data.corpora.is_empty() {
        let message = "data.corpus is not set\nhint: add data.corpus=FOLDER to the command or the recipe";
        return Err(Failure::new(BAD_CONFIG, message));
    }
    let read = read(&config.train, &config.model, &config.own, args, out)?;
    let tokenizer = read.tokenizer.as_ref();
    let head = json!({
        "step": args.step, "lane": args.lane, "order": data.order, "corpus": read.corpus,
        "pass": read.begin.epoch, "offset": read.begin.offset, "restarts": read.batch.restarts[0],
    });
    out.line(&format!(
        "step {} of lane {}: pass {}, token {} of its piece of {}{}",
        args.step,
        args.lane,
        read.begin.epoch,
        read.begin.offset,
        read.corpus.display(),
        if read.batch.restarts[0] { ", with an empty memory" } else { "" }
    ));
    let body = match &read.batch.pairs {
        Some(pairs) => {
            let sequence = Sequence::new(&read.batch, pairs, config.model.reuse_len(), tokenizer);
            show_pairs(
                &sequence,
                config.own.get::<ObjectiveConfig>().kind,
                config.model.mem_len(),
                args,
                out,
            )?
        }
        None if args.svg.is_some() => {
            let message = "--svg draws the attention mask of sequences of pairs, and this lane reads a \
                plain stream";
            return Err(Failure::new(USAGE, message));
        }
        None => show_stream(&read.batch, tokenizer, out),
    };
    Ok(merged(head, body))
}

fn configuration(args: &BatchArgs) -> Result<Config, Failure> {
    let Some(run) = &args.run else {
        let reader = RecipeReader::new(&segue_families::MODELS);
        return Ok(reader.load(args.config.as_deref(), &args.overrides)?.config);
    };
    let path = run.join("config.json");
    let text = read_regular_text(&path).map_err(|e| Failure {
        hint: Some("give --run a run folder".into()),
        ..Failure::cannot_read(&path, &e)
    })?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|e| Failure::new(BAD_DATA, format!("{} is not JSON: {e}", path.display())))?;
    Ok(segue_families::MODELS.from_json_with(&value, &path.display().to_string(), &args.overrides)?)
}

/// What a lane read.
struct Read {
    batch: Batch,
    begin: LaneCursor,
    corpus: PathBuf,
    /// Records come without one.
    tokenizer: Option<Tokenizer>,
}

/// Pairs are found by arithmetic; other orders are read through up to the step.
fn read(
    train: &TrainConfig,
    model: &ModelConfig,
    own: &OwnSections,
    args: &BatchArgs,
    out: &Output,
) -> Result<Read, Failure> {
    let (range, data) = (args.lane..args.lane + 1, own.get::<DataConfig>());
    if data.order == DataOrder::Records {
        let lanes = RecordLanes::open(Path::new(&data.corpus), PairOptions::of(train, model, own)?)?;
        let begin = lanes.cursor(args.lane, args.step);
        let batch = lanes.batch(range, &[begin], args.step)?;
        return Ok(Read { batch, begin, corpus: PathBuf::from(&data.corpus), tokenizer: None });
    }
    let sources = Sources::open(train, model, own)?;
    let tokenizer = Some(sources.tokenizer().clone());
    if data.order == DataOrder::Pairs {
        let options = PairOptions::of(train, model, own)?;
        let lanes = PairLanes::open(options, &data.weights, sources.corpora(), Split::Train)?;
        let begin = lanes.cursor(args.lane, args.step);
        let batch = lanes.batch(range, &[begin], args.step)?;
        let corpus = sources.corpora()[lanes.corpus_of(args.lane)].dir().into();
        return Ok(Read { batch, begin, corpus, tokenizer });
    }
    let lanes = open_lanes(train, model, own, &sources)?;
    let bar = out.progress(args.step, Unit::Steps, "read");
    let mut begin = LaneCursor::default();
    let mut batch = lanes.batch(range.clone(), &[begin], 1)?;
    for step in 2..=args.step {
        begin = batch.cursors_after[0];
        batch = lanes.batch(range.clone(), &[begin], step)?;
        bar.set(step);
    }
    // A stream that begins again says so in where it goes on.
    let after = batch.cursors_after[0];
    if matches!(data.order, DataOrder::Stream | DataOrder::Lines) && after.epoch > begin.epoch {
        begin = LaneCursor { epoch: after.epoch, ..LaneCursor::default() };
    }
    Ok(Read { batch, begin, corpus: sources.corpora()[0].dir().into(), tokenizer })
}

/// Prints inputs and what follows each.
fn show_stream(batch: &Batch, tokenizer: Option<&Tokenizer>, out: &Output) -> Value {
    let texts = |ids: &[i64]| ids.iter().map(|id| piece(tokenizer, *id)).collect::<Vec<_>>();
    let (inputs, targets) = (texts(&batch.inputs), texts(&batch.targets));
    for (i, input) in inputs.iter().enumerate() {
        let target = i.checked_sub(batch.context).map_or("(context)", |i| targets[i].as_str());
        out.line(&format!("{i:>5}  {input:<20} {target}"));
    }
    json!({
        "inputs": batch.inputs, "targets": batch.targets, "documents": batch.documents, "context": batch.context,
        "input_pieces": inputs, "target_pieces": targets,
    })
}

/// One sequence of pairs with the words for it.
struct Sequence<'a> {
    batch: &'a Batch,
    pairs: &'a Pairs,
    reused: usize,
    pieces: Vec<String>,
    target_pieces: Vec<String>,
    parts: Vec<&'static str>,
    /// Places of the targets, in the order of the text.
    targets: Vec<usize>,
    /// Targets in the order they are predicted, the first part's before the second's.
    order: Vec<usize>,
}

impl<'a> Sequence<'a> {
    fn new(
        batch: &'a Batch,
        pairs: &'a Pairs,
        reuse_len: Option<usize>,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let reused = reuse_len.map_or(0, |reused| match reused {
            0 => batch.segment,
            some => some.min(batch.segment),
        });
        let real = pairs.weights.iter().filter(|weight| **weight > 0.0).count();
        let targets: Vec<usize> = pairs.positions[..real].iter().map(|place| *place as usize).collect();
        let mut order = targets.clone();
        order.sort_by_key(|place| pairs.ranks[*place]);
        Self {
            batch,
            pairs,
            reused,
            pieces: batch.inputs.iter().map(|id| piece(tokenizer, *id)).collect(),
            target_pieces: batch.targets[..real].iter().map(|id| piece(tokenizer, *id)).collect(),
            parts: (0..batch.segment).map(|place| part(&pairs.segments, reused, place)).collect(),
            targets,
            order,
        }
    }

    /// A row for each position: `.` seen, `c` seen by its content alone, `#` not seen.
    fn mask(&self, two_streams: bool) -> Vec<String> {
        let ranks = &self.pairs.ranks;
        let sees = |i: usize, j: usize| match ranks[j].cmp(&ranks[i]) {
            std::cmp::Ordering::Greater => '#',
            std::cmp::Ordering::Equal if two_streams && self.targets.contains(&i) => 'c',
            _ => '.',
        };
        (0..ranks.len()).map(|i| (0..ranks.len()).map(|j| sees(i, j)).collect()).collect()
    }
}

/// The part of a sequence that a place belongs to. A separator stands where its segment ends.
fn part(segments: &[i64], reused: usize, place: usize) -> &'static str {
    let ends = segments.get(place + 1).is_some_and(|next| *next != segments[place]);
    match segments[place] {
        _ if place < reused => "reused",
        2 => "CLS",
        _ if ends => "SEP",
        0 => "A",
        _ => "B",
    }
}

fn show_pairs(
    sequence: &Sequence<'_>,
    kind: ObjectiveKind,
    mem_len: usize,
    args: &BatchArgs,
    out: &Output,
) -> Result<Value, Failure> {
    let pairs = sequence.pairs;
    let two_streams = kind == ObjectiveKind::Permutation;
    out.line(&format!(
        "read {}; B {}; {} targets{}",
        if pairs.reversed[0] { "backwards" } else { "forwards" },
        if pairs.follows[0] { "continues A" } else { "is from elsewhere" },
        sequence.targets.len(),
        if two_streams { ", predicted one after the other" } else { ", predicted all at once" },
    ));
    (0..sequence.pieces.len()).for_each(|place| out.line(&line(sequence, place, two_streams)));
    let mask = sequence.mask(two_streams);
    if mask.len() <= PRINTED_MASK {
        out.line("a row for each position: . seen, c seen by its own content alone, # not seen");
        mask.iter().for_each(|row| out.line(row));
    }
    if let Some(path) = &args.svg {
        let chart = MaskChart {
            title: format!("step {}, lane {}", args.step, args.lane),
            tokens: sequence.pieces.clone(),
            ranks: pairs.ranks.clone(),
            targets: sequence.targets.clone(),
            border: sequence.reused,
            two_streams,
            memory: mem_len,
        };
        write(path, &chart.svg())?;
        out.line(&format!("the mask is in {}", path.display()));
    }
    Ok(json!({
        "reversed": pairs.reversed[0], "follows": pairs.follows[0], "reuse_len": sequence.reused,
        "inputs": sequence.batch.inputs, "pieces": sequence.pieces, "target_pieces": sequence.target_pieces, "parts": sequence.parts,
        "segments": pairs.segments, "ranks": pairs.ranks,
        "positions": pairs.positions, "targets": sequence.batch.targets, "weights": pairs.weights,
        "predicted_in_order": two_streams.then_some(&sequence.order), "mask": mask,
    }))
}

/// One position for people: number, part, piece, and for targets when they are predicted or what they were.
fn line(sequence: &Sequence<'_>, place: usize, two_streams: bool) -> String {
    let (part, text) = (sequence.parts[place], &sequence.pieces[place]);
    let number = sequence.targets.iter().position(|target| *target == place);
    let turn = sequence.order.iter().position(|target| *target == place);
    let note = match (turn, number) {
        (Some(turn), _) if two_streams => format!("target {}", turn + 1),
        (_, Some(number)) => format!("target {}", sequence.target_pieces[number]),
        _ => String::new(),
    };
    format!("{place:>5}  {part:<7}{text:<20} {note}").trim_end().to_string()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(Failure::new(USAGE, format!("{} is not a file name", path.display())));
    };
    ResultFolder::create(folder)?.write(name, text)
}

/// The fields of two objects.
fn merged(mut first: Value, second: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (first.as_object_mut(), second) {
        fields.extend(more);
    }
    first
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BatchArgs,
    }

    #[test]
    fn a_run_is_looked_at_under_overrides() {
        let dir = tempfile::tempdir().unwrap();
        let config = segue_families::MODELS.load(None, &["data.corpus=old".into()]).unwrap().config;
        std::fs::write(dir.path().join("config.json"), config.to_json().to_string()).unwrap();
        let run = dir.path().to_str().unwrap();
        let corpus = |words: &[&str]| {
            let args = Line::parse_from([&["batch", "--run", run], words].concat()).args;
            configuration(&args).unwrap().own.get::<DataConfig>().corpus.clone()
        };
        assert_eq!([corpus(&[]), corpus(&["data.corpus=new"])], ["old", "new"]);
        assert!(Line::try_parse_from(["batch", "--run", run, "--config", "tiny.toml"]).is_err());
    }
}
