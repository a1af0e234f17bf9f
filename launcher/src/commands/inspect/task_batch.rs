//! What a model that learns a task reads at a step: the first examples of the batch, token by token, with what is right.

use segue_configs::counted;
use segue_task::batch_of_step;
use segue_tasks::{Example, Records, Sequence, Split, Target, TaskData};
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::commands::finetune::TaskRun;
use crate::failure::{Failure, USAGE};
use crate::output::Output;

/// A token as the vocabulary has it, or its id.
pub fn piece(tokenizer: Option<&Tokenizer>, id: i64) -> String {
    let token = u32::try_from(id).ok().and_then(|id| tokenizer?.token(id));
    token.unwrap_or_else(|| format!("#{id}"))
}

/// Prints `count` examples of the batch of step `step`, from lane `lane` on.
pub fn show(run: &TaskRun, step: u64, lane: usize, count: usize, out: &Output) -> Result<Value, Failure> {
    let (task, batch) = batch_of_step(&run.config.train, &run.config.own.get(), &run.tasks, step)?;
    let data = &run.tasks[task];
    let Some(split) = &data.train else { return Ok(Value::Null) };
    if lane >= batch.len() {
        let message = format!("lane {lane} has no example at step {step}, whose batch has {}", batch.len());
        return Err(Failure::new(USAGE, message));
    }
    let widths = micro_batch_widths(split, &batch, run.config.train.micro_batch);
    let shape = Shape::of(split, &batch, &widths);
    out.line(&format!(
        "step {step}: {} of {}, {:.1} % of {} positions are padding",
        counted(batch.len(), "example"),
        data.name,
        100.0 * shape.padding(),
        shape.positions
    ));
    let shown = batch.iter().zip(&widths).enumerate().skip(lane).take(count);
    let examples = shown.map(|(lane, (&number, &width))| {
        let example = &split.examples[number];
        out.line("");
        out.line(&format!(
            "lane {lane}: example {number}{}, {}",
            record(&split.records, number).map_or(String::new(), |name| format!(" ({name})")),
            answer(data, &example.target)
        ));
        let sequences = example.sequences.iter().enumerate();
        let sequences = sequences
            .map(|(nth, sequence)| show_sequence(data, example, (nth, sequence), width, &run.tokenizer, out));
        json!({
            "lane": lane, "example": number, "record": record(&split.records, number),
            "target": target(data, &example.target), "sequences": sequences.collect::<Vec<_>>(),
        })
    });
    let examples: Vec<Value> = examples.collect();
    Ok(json!({
        "step": step, "task": data.name, "split": split.name, "batch": batch, "positions": shape.positions,
        "padding": shape.padding(), "examples": examples,
    }))
}

/// Positions of a batch, and tokens among them.
struct Shape {
    positions: usize,
    tokens: usize,
}

impl Shape {
    /// `widths`: the length that each example of the batch is padded to.
    fn of(split: &Split, batch: &[usize], widths: &[usize]) -> Self {
        let mut shape = Self { positions: 0, tokens: 0 };
        for (&number, width) in batch.iter().zip(widths) {
            let sequences = &split.examples[number].sequences;
            shape.positions += width * sequences.len();
            shape.tokens += sequences.iter().map(|sequence| sequence.ids.len()).sum::<usize>();
        }
        shape
    }

    /// The fraction of positions that are padding.
    fn padding(&self) -> f64 {
        1.0 - self.tokens as f64 / self.positions.max(1) as f64
    }
}

/// For each example of a batch, the longest sequence of its micro-batch, to which all are padded.
fn micro_batch_widths(split: &Split, batch: &[usize], micro_batch: usize) -> Vec<usize> {
    let longest = |chunk: &[usize]| {
        let width = chunk.iter().map(|&number| split.examples[number].width()).max().unwrap_or(0);
        vec![width; chunk.len()]
    };
    batch.chunks(micro_batch).flat_map(longest).collect()
}

/// What files call the record of an example, and where its window lies.
fn record(records: &Records, example: usize) -> Option<String> {
    match records {
        Records::Rows(rows) => {
            rows.iter().find(|row| row.example as usize == example).map(|row| row.index.clone())
        }
        Records::Questions(all) => {
            let window = all.windows.get(example)?;
            let question = &all.questions[window.question as usize];
            let of = format!(
                "window {} of {}",
                example - question.windows.start as usize + 1,
                question.windows.len()
            );
            let last = window.first + window.length;
            Some(format!("{}, {of}, tokens {} to {last} of its paragraph", question.id, window.first + 1))
        }
        Records::Sentences(_) | Records::Rankings(_) => None,
    }
}

/// The name of a label.
fn label(data: &TaskData, number: u32) -> String {
    data.labels.get(number as usize).cloned().unwrap_or_else(|| number.to_string())
}

/// What is right, in words.
fn answer(data: &TaskData, right: &Target) -> String {
    match right {
        Target::Unknown => "answer unknown".into(),
        Target::Class(class) => format!("label {}", label(data, *class)),
        Target::Number(number) => format!("number {number}"),
        Target::Option(option) => format!("option {option}"),
        Target::Span { impossible: true, .. } => "no answer in it".into(),
        Target::Span { start, end, .. } => format!("answer from {start} to {end}"),
        Target::Tags(_) => "a label for each word".into(),
    }
}

/// What is right, for programs.
fn target(data: &TaskData, right: &Target) -> Value {
    match right {
        Target::Unknown => Value::Null,
        Target::Class(class) => json!({ "label": label(data, *class) }),
        Target::Number(number) => json!({ "number": number }),
        Target::Option(option) => json!({ "option": option }),
        Target::Span { start, end, impossible } => {
            json!({ "start": start, "end": end, "impossible": impossible })
        }
        Target::Tags(tags) => {
            json!({ "labels": tags.iter().map(|tag| tag.map(|tag| label(data, tag))).collect::<Vec<_>>() })
        }
    }
}

/// Prints one sequence, a line for each token, and says what stands there. Padding is before it, so that `<cls>` stands last.
fn show_sequence(
    data: &TaskData,
    example: &Example,
    (nth, sequence): (usize, &Sequence),
    width: usize,
    tokenizer: &Tokenizer,
    out: &Output,
) -> Value {
    let padding = width - sequence.ids.len();
    if example.sequences.len() > 1 {
        let right = if example.target == Target::Option(nth as u32) { ", the right one" } else { "" };
        out.line(&format!("option {nth}{right}"));
    }
    if padding > 0 {
        out.line(&format!("       padding {padding}"));
    }
    let pieces: Vec<String> = sequence.ids.iter().map(|id| piece(Some(tokenizer), i64::from(*id))).collect();
    for (place, piece) in pieces.iter().enumerate() {
        let part = match sequence.segments[place] {
            0 => "A",
            1 => "B",
            _ => "CLS",
        };
        let note = note(data, &example.target, place);
        out.line(format!("{place:>5}  {part:<7}{piece:<20} {note}").trim_end());
    }
    json!({ "padding": padding, "ids": sequence.ids, "pieces": pieces, "segments": sequence.segments })
}

/// What is right at one place of a sequence.
fn note(data: &TaskData, right: &Target, place: usize) -> String {
    match right {
        Target::Span { start, end, impossible: false } if (*start..=*end).contains(&(place as u32)) => {
            "answer".into()
        }
        Target::Tags(tags) => {
            tags.get(place).copied().flatten().map_or(String::new(), |tag| label(data, tag))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use segue_tasks::{Kind, Skipped};

    use super::*;

    fn example(length: usize, target: Target) -> Example {
        let sequence =
            Sequence { ids: vec![7; length], segments: vec![0; length], outside: Vec::new(), is_cut: false };
        Example { sequences: vec![sequence], target }
    }

    fn split(lengths: &[usize]) -> Split {
        Split {
            name: "train".into(),
            examples: lengths.iter().map(|length| example(*length, Target::Unknown)).collect(),
            records: Records::Rows(Vec::new()),
            skipped: Skipped::default(),
            fingerprint: String::new(),
            submission: None,
        }
    }

    /// Micro-batches of two: 3 and 5 tokens at a length of 5, then 2 alone: 10 of 12 positions are tokens.
    #[test]
    fn examples_are_padded_to_the_longest_of_their_micro_batch() {
        let split = split(&[2, 3, 5]);
        let widths = micro_batch_widths(&split, &[1, 2, 0], 2);
        assert_eq!(widths, [5, 5, 2]);
        let shape = Shape::of(&split, &[1, 2, 0], &widths);
        assert_eq!((shape.positions, shape.tokens), (12, 10));
        assert!((shape.padding() - 2.0 / 12.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_right_is_told_by_the_names_of_labels() {
        let labels = ["no", "yes"].map(String::from).to_vec();
        let data = TaskData {
            name: "t".into(),
            kind: Kind::Tagging,
            labels,
            columns: None,
            train: None,
            dev: Vec::new(),
            test: Vec::new(),
        };
        assert_eq!(answer(&data, &Target::Class(1)), "label yes");
        let span = Target::Span { start: 2, end: 3, impossible: false };
        assert_eq!([1, 2, 3, 4].map(|place| note(&data, &span, place)), ["", "answer", "answer", ""]);
        let tags = Target::Tags(vec![Some(1), None]);
        assert_eq!([0, 1, 2].map(|place| note(&data, &tags, place)), ["yes", "", ""]);
        assert_eq!(target(&data, &tags), json!({ "labels": ["yes", null] }));
    }
}
