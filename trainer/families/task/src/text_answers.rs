//! `segue predict`: what a fine-tuned model answers to texts of any origin.

use std::path::{Path, PathBuf};

use segue_configs::{advice, counted};
use segue_data_error::DataError;
use segue_dataloader::sections::SegmentConfig;
use segue_family::{Answer, Asked, Asker, Predicts, Question, Trained};
use segue_kernels::{TrainError, libtorch};
use segue_tasks::{
    InputExamples, InputFormat, InputOptions, InputText, Inputs, Kind, TaskConfig, Template, listed_lines,
};
use serde_json::json;

use super::answer_table::{AnswerTable, TextAnswer};
use super::answering::answering_config;
use super::answers::answers;
use super::folder::TaskFolder;
use super::head_spec::HeadSpec;
use super::hub::kind_name;
use super::model::Scores;
use super::squad::{SpanBeam, decode};

/// The capability of each family whose models are fine-tuned.
pub static PREDICTS: Predicts = Predicts(Asked::of::<TextAnswers>());

/// Which texts are answered, and what is shown of the answers.
#[derive(Debug, clap::Args)]
pub struct TextOptions {
    /// File with texts, or `-` for stdin. By its extension a table (`.tsv`, `.csv`) or JSON lines (`.json`, `.jsonl`, `.parquet`, `.arrow`), else a text
    /// a line; `.gz` and `.zst` are decompressed. Labels in it are not read. A text that is blank has a row without an answer; blank lines of a table
    /// have none.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Format of the input: `text`, `tsv`, `csv` or `jsonl` [default: by its extension; of stdin `text`].
    #[arg(long, value_parser = format_of)]
    format: Option<InputFormat>,
    /// Column of the text, or of the question, by name or by number from 0 [default: that of the fine-tuning, else the one that is found].
    #[arg(long, value_name = "COLUMN")]
    text: Option<String>,
    /// Column of a second text, or of the text that a question is asked on, likewise.
    #[arg(long, value_name = "COLUMN")]
    second_text: Option<String>,
    /// Task whose head answers, of a model with several.
    #[arg(long)]
    task: Option<String>,
    /// Show this many classes, or answers to a question, the most probable first [default: the first; of classes also the probability of each].
    #[arg(long, value_name = "N", value_parser = count)]
    top_k: Option<usize>,
    /// Longest sequence in tokens; what is over is cut off [default: that of the fine-tuning].
    #[arg(long, value_name = "TOKENS", value_parser = length)]
    segment: Option<usize>,
    /// Texts that are answered at a time [default: as in the fine-tuning].
    #[arg(long, value_name = "N", value_parser = count)]
    micro_batch: Option<usize>,
}

fn format_of(name: &str) -> Result<InputFormat, String> {
    name.parse().map_err(|error: DataError| advice::joined(&error, error.hint()))
}

fn count(text: &str) -> Result<usize, String> {
    at_least(1, text)
}

fn length(text: &str) -> Result<usize, String> {
    at_least(Template::SHORTEST, text)
}

fn at_least(least: usize, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number >= least => Ok(number),
        Ok(_) => Err(format!("must be at least {least}")),
        Err(_) => Err("not a whole number".into()),
    }
}

/// Labels of texts or of their words, numbers, or answers to questions, by the head of a fine-tuned model.
pub struct TextAnswers;

impl Question for TextAnswers {
    type Options = TextOptions;
    const NAME: &'static str = "texts";
    const ABOUT: &'static str = "Answers of a fine-tuned model to texts";
    const EXAMPLE: &'static str = "  segue predict runs/sst2 --input reviews.txt --csv labels.csv\n  \
        segue predict runs/mnli --input pairs.jsonl --top-k 2 --json\n  \
        cut -f 2 reviews.tsv | segue predict runs/sst2 --input -";

    fn answer(model: Trained, options: TextOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let Some(input) = &options.input else {
            return Err(usage(
                "there is no text to answer\nhint: add --input FILE, or --input - for stdin".into(),
            ));
        };
        let told = model.notes.len();
        let folder = TaskFolder::of(model)?;
        folder.folder.notes.iter().skip(told).for_each(|note| (asker.tell)(note));
        let number = head_of(&folder, options.task.as_deref())?;
        let head = &folder.heads[number];
        check(&folder, head, &options)?;
        let config = answering_config(&folder.folder, &head.task)?;
        let read_as = config.own.get::<TaskConfig>().into_owned();
        let task = TaskConfig { labels: head.labels.clone(), skip_bad: false, ..read_as };
        let inputs = read(input, &options, head, &task)?;
        inputs.notes.iter().for_each(|note| (asker.tell)(note));
        let tokenizer = folder.folder.tokenizer()?;
        let segment = options.segment.unwrap_or(config.own.get::<SegmentConfig>().segment);
        let template = Template::new(&tokenizer, segment)?;
        let asked = match head.kind {
            Kind::Span => inputs.encode_questions(&task, &tokenizer, template)?,
            kind => inputs.encode(kind, &tokenizer, template)?,
        };
        warn(&inputs, &asked, segment, asker);
        libtorch::keep_freed_memory();
        let group = options.micro_batch.unwrap_or(config.train.micro_batch);
        let model = folder.load(&task)?;
        let scores = answers(&model, number, &asked.examples, group, asker.comm, &mut asker.watch)?;
        let answers = by_line(&inputs, found(head, &asked, &scores, &task));
        let table = AnswerTable::new(head, options.top_k, answers);
        let value = json!({
            "model": folder.folder.path, "task": head.task, "kind": kind_name(head.kind), "labels": head.labels,
            "segment": segment, "cut": asked.cut, "blank": inputs.blank(), "predictions": table.json(),
        });
        Ok(Answer { value, text: table.csv() })
    }
}

fn usage(why: String) -> TrainError {
    DataError::Usage(why).into()
}

/// Number of the head that answers: that of the task that is named, or the only one.
fn head_of(folder: &TaskFolder, task: Option<&str>) -> Result<usize, TrainError> {
    let found = match task {
        Some(task) => folder.heads.iter().position(|head| head.task == task),
        None => (folder.heads.len() == 1).then_some(0),
    };
    found.ok_or_else(|| {
        let known: Vec<&str> = folder.heads.iter().map(|head| head.task.as_str()).collect();
        let (path, known) = (folder.folder.path.display(), known.join(", "));
        usage(match task {
            Some(task) => format!(
                "{path} has no head for `{task}`, only for {known}\nhint: name one of these by --task"
            ),
            None => format!("{path} has heads for {known}\nhint: name the one that answers by --task"),
        })
    })
}

/// Refuses heads that are asked about more than texts, and options that are for other heads.
fn check(folder: &TaskFolder, head: &HeadSpec, options: &TextOptions) -> Result<(), TrainError> {
    let asked = match head.kind {
        Kind::Classification | Kind::Regression | Kind::Tagging | Kind::Span => None,
        Kind::Choice => Some("chooses among options"),
        Kind::Ranking => Some("ranks documents for queries"),
    };
    if let Some(does) = asked {
        let what = format!(
            "its head for `{}` {does}, and this command takes texts\nhint: answer files of the task: segue finetune --predict \
             --task {} --data FOLDER --model {} --output FOLDER",
            head.task,
            if head.task.is_empty() { "TASK" } else { &head.task },
            folder.folder.path.display()
        );
        return Err(TrainError::OtherModel { path: folder.folder.path.clone(), what });
    }
    if options.top_k.is_some() && !matches!(head.kind, Kind::Classification | Kind::Span) {
        let kind = kind_name(head.kind);
        return Err(usage(format!(
            "--top-k shows classes or spans, and the head is one of {kind}\nhint: leave it out"
        )));
    }
    Ok(())
}

fn read(
    input: &Path,
    options: &TextOptions,
    head: &HeadSpec,
    task: &TaskConfig,
) -> Result<Inputs, TrainError> {
    let asked = InputOptions {
        name: &head.task,
        task,
        format: options.format,
        text: options.text.as_deref(),
        second_text: options.second_text.as_deref(),
    };
    let inputs = Inputs::read(input, &asked)?;
    if head.kind == Kind::Tagging && inputs.texts.iter().any(|text| text.second.is_some()) {
        let why = "words are labelled in one text, and the input has pairs\nhint: name the column of the text by --text";
        return Err(usage(why.into()));
    }
    Ok(inputs)
}

/// Says which texts are not answered, and which are answered without their end.
fn warn(inputs: &Inputs, asked: &InputExamples, segment: usize, asker: &mut Asker) {
    asked.notes.iter().for_each(|note| (asker.tell)(note));
    let all = counted(inputs.texts.len(), "text");
    let mut tell = |lines: &[u64], what: String| {
        if !lines.is_empty() {
            (asker.tell)(&format!("warning: {what}: {} of {all} ({})", lines.len(), listed_lines(lines)));
        }
    };
    tell(&inputs.blank(), "blank, and not answered".into());
    tell(&asked.cut, format!("cut off, as they are longer than {segment} tokens (--segment)"));
}

/// What is answered to each text that is not blank.
fn found(head: &HeadSpec, asked: &InputExamples, scores: &[Scores], task: &TaskConfig) -> Vec<TextAnswer> {
    let Some(questions) = &asked.questions else {
        let of = |(i, scores): (usize, &Scores)| TextAnswer::of(head, scores, asked.words.get(i));
        return scores.iter().enumerate().map(of).collect();
    };
    let beams: Vec<SpanBeam> =
        scores.iter().map(|scores| SpanBeam::from_scores(scores).unwrap_or_default()).collect();
    decode(questions, &beams, task.into()).into_iter().map(TextAnswer::Span).collect()
}

/// What is answered on each line of the input.
fn by_line(inputs: &Inputs, found: Vec<TextAnswer>) -> Vec<(u64, TextAnswer)> {
    let mut found = found.into_iter();
    let of_text = |text: &InputText| match text.is_blank() {
        true => (text.line, TextAnswer::Nothing),
        false => (text.line, found.next().unwrap_or(TextAnswer::Nothing)),
    };
    inputs.texts.iter().map(of_text).collect()
}
