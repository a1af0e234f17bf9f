//! AdvGLUE: rows of five GLUE tasks, perturbed to mislead models trained on them. Scored, never trained on.

use std::collections::BTreeMap;

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::data::{Split, TaskData};
use super::example::{Kind, Target};
use super::gold::{Gold, Told};
use super::json::{Lines, Name, whole_number, without_place};
use super::labels::Labels;
use super::request::{Request, first_there, nothing_read};
use super::rows::{Asked, encode_each, split_of};
use super::table::cell_of;

/// The release's name of its file, and that of the copy with what was changed in each row.
const FILES: &[&str] = &["dev.json", "dev_ann.json"];
/// What is scored.
const DEV: &str = "dev";
/// The folder beside GLUE's.
const FOLDER: &str = "AdvGLUE";

struct Adversarial {
    name: &'static str,
    /// Keys of the file, a split each.
    keys: &'static [&'static str],
    first: &'static str,
    second: Option<&'static str>,
    /// Labels in the order of GLUE's task.
    labels: &'static [&'static str],
    /// Which of them the numbers 0, 1, .. of the file are.
    numbers: &'static [u32],
}

const TASKS: &[Adversarial] = &[
    Adversarial {
        name: "adv-sst2",
        keys: &["sst2"],
        first: "sentence",
        second: None,
        labels: &["0", "1"],
        numbers: &[0, 1],
    },
    Adversarial {
        name: "adv-qqp",
        keys: &["qqp"],
        first: "question1",
        second: Some("question2"),
        labels: &["0", "1"],
        numbers: &[0, 1],
    },
    // The file counts entailment, neutral, contradiction.
    Adversarial {
        name: "adv-mnli",
        keys: &["mnli", "mnli-mm"],
        first: "premise",
        second: Some("hypothesis"),
        labels: &["contradiction", "entailment", "neutral"],
        numbers: &[1, 2, 0],
    },
    Adversarial {
        name: "adv-qnli",
        keys: &["qnli"],
        first: "question",
        second: Some("sentence"),
        labels: &["entailment", "not_entailment"],
        numbers: &[0, 1],
    },
    Adversarial {
        name: "adv-rte",
        keys: &["rte"],
        first: "sentence1",
        second: Some("sentence2"),
        labels: &["entailment", "not_entailment"],
        numbers: &[0, 1],
    },
];

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let task = TASKS.iter().find(|task| task.name == request.name());
    let task =
        task.ok_or_else(|| DataError::Usage(format!("`{}` is not a task of AdvGLUE", request.name())))?;
    if request.splits.train {
        let glue = task.name.trim_start_matches("adv-");
        return Err(DataError::Usage(format!(
            "`{}` has no training data\nhint: train on `{glue}`, and evaluate that model",
            task.name
        )));
    }
    let names = task.labels.iter().map(|label| label.to_string()).collect();
    let labels = if request.task.labels.is_empty() { names } else { request.task.labels.clone() };
    let mut data = nothing_read(request, Kind::Classification, labels.clone());
    if request.splits.dev {
        data.dev = task.read(request, &Labels::new(labels))?;
    }
    Ok(data)
}

impl Adversarial {
    fn read(&self, request: &Request<'_>, labels: &Labels) -> Result<Vec<Split>, DataError> {
        let folder = request.folder();
        let found = first_there(&folder.join(FOLDER), FILES).or_else(|| first_there(folder, FILES));
        let path = found.ok_or_else(|| request.missing(folder, FILES))?;
        let bytes = read_regular(&path).map_err(|e| DataError::read(&path, e))?;
        let fingerprint = blake3::hash(&bytes).to_hex().to_string();
        let text = without_mark(&bytes);
        let file: BTreeMap<String, &RawValue> = serde_json::from_slice(text).map_err(|e| {
            DataError::line(&path, e.line().max(1) as u64, format!("it is not in AdvGLUE's layout: {e}"))
        })?;
        let mut splits = Vec::with_capacity(self.keys.len());
        for key in self.keys {
            let rows =
                file.get(*key).and_then(|rows| serde_json::from_str::<Vec<&RawValue>>(rows.get()).ok());
            let Some(rows) = rows else {
                return Err(DataError::line(
                    &path,
                    1,
                    format!("it has no list `{key}`: is it AdvGLUE's file?"),
                ));
            };
            let mut sieve = request.sieve_of(DEV);
            let mut read = Vec::with_capacity(rows.len());
            let mut lines = Lines::of(text);
            for (number, row) in rows.into_iter().enumerate() {
                let line = lines.next(row);
                let named = |why| DataError::record(&path, format!("line {line}, {key} {number}"), why);
                read.extend(sieve.keep(self.asked(number, line, row).map_err(named))?);
            }
            let bad = |asked: &Asked, why: String| {
                DataError::record(&path, format!("line {}, {key} {}", asked.line, asked.index), why)
            };
            let mut told = Gold::new(Told::Labels, read.iter().map(|(_, label)| label.as_str()));
            let mut asked = Vec::with_capacity(read.len());
            for (mut row, label) in read {
                let gold = |label: &str| self.gold(label, labels);
                if let Some(gold) = told.of(&label, row.line, gold, |why| bad(&row, why), &mut sieve)? {
                    row.gold = gold;
                    asked.push(row);
                }
            }
            told.note(&mut sieve);
            let encoded = encode_each(request, asked, &mut sieve, bad, &path)?;
            let name = if self.keys.len() > 1 { format!("{DEV}-{key}") } else { DEV.into() };
            splits.push(split_of(&name, encoded, fingerprint.clone(), sieve));
        }
        Ok(splits)
    }

    /// A row, and what stands in the place of its label.
    fn asked(&self, number: usize, line: u64, row: &RawValue) -> Result<(Asked, String), String> {
        #[derive(Deserialize)]
        struct Numbered {
            idx: Option<Name>,
        }
        let Numbered { idx } = serde_json::from_str(row.get()).map_err(|e| without_place(&e))?;
        let row: Value = serde_json::from_str(row.get()).map_err(|e| without_place(&e))?;
        let text = |key: &str| {
            let text = row.get(key).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| format!("it has no text `{key}`"))
        };
        let asked = Asked {
            line,
            index: idx.map_or_else(|| number.to_string(), String::from),
            first: text(self.first)?,
            second: self.second.map(text).transpose()?,
            gold: Target::Unknown,
        };
        Ok((asked, cell_of(row.get("label").cloned())))
    }

    fn gold(&self, label: &str, labels: &Labels) -> Result<Target, String> {
        let place = whole_number(&label.into()).and_then(|label| self.numbers.get(label as usize));
        let place = place.ok_or_else(|| format!("its label is not a number below {}", self.numbers.len()))?;
        Ok(Target::Class(labels.number(self.labels[*place as usize])?))
    }
}
