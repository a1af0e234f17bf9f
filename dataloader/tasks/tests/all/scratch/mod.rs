//! Folders of tiny tasks, and what comes out of them.
#![allow(dead_code)]

mod models;
#[path = "../../../../tokenizer/tests/all/scratch/mod.rs"]
pub mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use segue_configs::Config;
use segue_data_error::DataError;
use segue_tasks::{Records, Row, Split, Target, TaskData, TaskSplits};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions, XlnetNormalization};

pub const ALL: TaskSplits = TaskSplits { train: true, dev: true, test: true };
pub const DEV: TaskSplits = TaskSplits { train: false, dev: true, test: false };

/// Words, with XLNet's symbols.
pub fn words(text: &str) -> Tokenizer {
    let options = TrainOptions {
        special_tokens: ["<cls>", "<sep>", "<pad>"].map(String::from).to_vec(),
        ..TrainOptions::new(TokenizerKind::Word)
    };
    text::train(text, &options)
}

/// XLNet's tokenizer, or `None` where it is not on this machine.
pub fn xlnet() -> Option<Tokenizer> {
    let model = segue_skip::shared_data("xlnet_spiece/spiece.model")?;
    Some(Tokenizer::import_xlnet(&model, XlnetNormalization::default()).unwrap())
}

/// The configuration of a task with sequences of 128 tokens.
pub fn config(name: &str, data: &Path) -> Config {
    let data = data.to_str().unwrap();
    let set = ["run.dir=run".into(), "train.segment=128".into()];
    let task = [format!("task.name={name}"), format!("task.data={data}")];
    models::MODELS.load(None, &[&set[..], &task].concat()).unwrap().config
}

/// The task of a configuration.
pub fn open(config: &Config, tokenizer: &Tokenizer, splits: TaskSplits) -> Result<TaskData, DataError> {
    TaskData::open(&config.task.name, &config.own, config.train.seed, tokenizer, splits)
}

/// A folder with these files.
pub fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// The rows of a split.
pub fn rows(split: &Split) -> &[Row] {
    match &split.records {
        Records::Rows(rows) => rows,
        _ => panic!("{} has no rows", split.name),
    }
}

/// How many rows have each label.
pub fn counts(data: &TaskData, split: &Split) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in rows(split) {
        let name = match row.gold {
            Target::Class(class) => data.labels[class as usize].clone(),
            Target::Option(option) => option.to_string(),
            _ => "?".into(),
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
