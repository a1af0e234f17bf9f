//! A folder of a task, whose files may all hold the same bytes.

use std::sync::OnceLock;

use segue_dataloader::{BuildObserver, Preset, TrainingText, train_tokenizer};
use segue_tasks::{Answer, Records, Target, TaskConfig, TaskData, TaskLoss, TaskSplits, rank_documents, write_predictions, write_run};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

pub struct TaskFolder(tempfile::TempDir);

struct Quiet;

impl BuildObserver for Quiet {}

impl TaskFolder {
    pub fn new(files: &[&str], bytes: &[u8]) -> TaskFolder {
        TaskFolder::of(files.iter().map(|file| (*file, bytes)))
    }

    pub fn of<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>) -> TaskFolder {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        for (file, bytes) in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        TaskFolder(folder)
    }

    /// Opens the task and writes its right answers down.
    pub fn open(&self, name: &str, skip_bad: bool) {
        let set = [
            "run.dir=run".to_string(),
            "data.corpus=corpus".into(),
            "train.segment=24".into(),
            format!("task.name={name}"),
            format!("task.data={}", self.0.path().display()),
            format!("task.skip_bad={skip_bad}"),
        ];
        let mut config = segue_families::MODELS.load(None, &set).unwrap().config;
        if name == "wnli" {
            config.change(|task: &mut TaskConfig| task.loss = TaskLoss::Margin);
        }
        let train = !name.starts_with("adv-");
        let splits = TaskSplits { train, dev: true, test: false };
        let Ok(data) = TaskData::open(name, &config.own, config.train.seed, tokenizer(), splits) else { return };
        let split = &data.dev[0];
        let right = |target: &Target| match target {
            Target::Class(class) => Answer::Class(*class),
            Target::Number(number) => Answer::Number(*number),
            Target::Option(option) => Answer::Option(*option),
            _ => Answer::Class(0),
        };
        let answers: Vec<Answer> = match &split.records {
            Records::Rows(rows) => rows.iter().map(|row| right(&row.gold)).collect(),
            Records::Sentences(all) => all.iter().map(|one| Answer::Tags(one.gold.clone())).collect(),
            Records::Questions(_) => return,
            Records::Rankings(rankings) => {
                assert!(split.examples.iter().all(|example| (1..=24).contains(&example.width())));
                let ranked = rank_documents(&rankings.queries, &vec![vec![0.0]; split.examples.len()]);
                return write_run(&rankings.queries, &ranked, &self.0.path().join("run")).unwrap();
            }
        };
        assert!(split.examples.iter().all(|example| example.width() <= 24 && !example.sequences.is_empty()));
        write_predictions(split, &data.labels, &answers, &self.0.path().join("answers")).unwrap();
    }
}

/// Characters, so that every text has tokens.
fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("text.txt");
        std::fs::write(&path, "abc é 0123\n").unwrap();
        let options = TrainOptions::new(TokenizerKind::Char);
        train_tokenizer(&TrainingText::new(Preset::Sentences, vec![path]), &options, 1, &Quiet).unwrap()
    })
}
