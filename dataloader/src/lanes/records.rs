use std::path::Path;

use segue_data_error::DataError;
use segue_foreign::{Example, RecordFile, RecordFolder, RecordSettings};

/// The rows that XLNet's reference has prepared, step by step, with random access.
///
/// A step has `bsz_per_host` rows, whatever the number of ranks; row r of a step goes on with the text of row r of the
/// step before, by `reuse_len` tokens. The text breaks off where a file ends. Steps are counted from 0 over all files,
/// which stand in the order of pass and task.
#[derive(Debug)]
pub struct RecordSteps {
    settings: RecordSettings,
    files: Vec<RecordFile>,
    /// Steps before each file, and at the end those of all.
    begins: Vec<u64>,
}

/// One row of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// Token ids: `reuse_len` that continue the stream, then A, `<sep>`, B, `<sep>`, `<cls>`; `[seq_len]`. Of a
    /// backward row all parts stand in this order, with their text reversed.
    pub input: Vec<i64>,
    /// Whether a token is a target, `[seq_len]`. Targets may fall on `<sep>` and `<cls>`; those do not count.
    pub is_masked: Vec<bool>,
    /// 0 for what is reused, A and its `<sep>`, 1 for B and its `<sep>`, 2 for `<cls>`; `[seq_len]`.
    pub seg_id: Vec<i64>,
    /// 1 where B follows A in the text, 0 where it is from elsewhere.
    pub label: i64,
}

impl RecordSteps {
    /// Opens the records of a split (`train`, `dev` or `test`): of the passes named, or of all of them. Every file is read
    /// once to find its records; payloads are checked when they are read.
    pub fn open(folder: &Path, split: &str, passes: &[u64]) -> Result<RecordSteps, DataError> {
        RecordSteps::of(&RecordFolder::open(folder)?, split, passes)
    }

    /// [`RecordSteps::open`] of a folder that is known.
    pub fn of(folder: &RecordFolder, split: &str, passes: &[u64]) -> Result<RecordSteps, DataError> {
        let wanted = |pass: u64| passes.is_empty() || passes.contains(&pass);
        let of_split = || folder.infos.iter().filter(|info| info.split == split);
        if let Some(pass) = passes.iter().find(|pass| of_split().all(|info| info.pass != **pass)) {
            let mut known: Vec<String> = of_split().map(|info| info.pass.to_string()).collect();
            known.dedup();
            let found = if known.is_empty() { "none".into() } else { known.join(", ") };
            let why = format!("it has no {split} records of pass {pass}; passes there: {found}");
            return Err(DataError::foreign(&folder.path, why));
        }
        let mut steps = RecordSteps { settings: folder.settings.clone(), files: Vec::new(), begins: vec![0] };
        for info in of_split().filter(|info| wanted(info.pass)) {
            let before = steps.steps();
            info.files.iter().try_for_each(|path| steps.append(path))?;
            let found = steps.steps() - before;
            if found != info.steps {
                let why = format!(
                    "the records of {split}, task {}, pass {} are {found} steps of {} rows, and their record_info \
                     says {}: a file is truncated or was replaced",
                    info.task, info.pass, steps.settings.bsz_per_host, info.steps
                );
                return Err(DataError::foreign(&folder.path, why));
            }
        }
        match steps.steps() {
            0 => Err(DataError::foreign(&folder.path, format!("it has no {split} records"))),
            _ => Ok(steps),
        }
    }

    fn append(&mut self, path: &Path) -> Result<(), DataError> {
        let (file, rows) = (RecordFile::open(path)?, self.settings.bsz_per_host);
        if !file.len().is_multiple_of(rows) {
            let why =
                format!("it has {} records, which is not a multiple of bsz_per_host {rows}", file.len());
            return Err(DataError::foreign(path, why));
        }
        self.begins.push(self.steps() + (file.len() / rows) as u64);
        self.files.push(file);
        Ok(())
    }

    /// What the records were made with, and which rows read backwards.
    pub fn settings(&self) -> &RecordSettings {
        &self.settings
    }

    /// Rows of a step.
    pub fn rows(&self) -> usize {
        self.settings.bsz_per_host
    }

    /// Steps of all files.
    pub fn steps(&self) -> u64 {
        self.begins.last().copied().unwrap_or(0)
    }

    /// The step at which each file begins: there every row's text breaks off.
    pub fn file_begins(&self) -> &[u64] {
        &self.begins[..self.files.len()]
    }

    /// Whether a row of every step reads its text backwards.
    pub fn is_backward(&self, row: usize) -> bool {
        self.settings.is_backward(row)
    }

    /// Size of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(RecordFile::bytes).sum()
    }

    /// An error about a row.
    pub(crate) fn bad(&self, row: usize, step: u64, why: String) -> DataError {
        let (file, record) = self.place(row, step);
        file.bad(record, why)
    }

    /// The file and the record of a row that there is.
    fn place(&self, row: usize, step: u64) -> (&RecordFile, usize) {
        let number = self.begins.partition_point(|begin| *begin <= step) - 1;
        (&self.files[number], (step - self.begins[number]) as usize * self.rows() + row)
    }

    /// Row `row` of step `step`, checked: its checksum, its lengths, its ids.
    pub fn row(&self, row: usize, step: u64) -> Result<RecordRow, DataError> {
        if row >= self.rows() || step >= self.steps() {
            return Err(DataError::OutOfRange { start: step, end: step + 1, total: self.steps() });
        }
        let (file, record) = self.place(row, step);
        let payload = file.payload(record)?;
        self.read(payload).map_err(|why| file.bad(record, why))
    }

    fn read(&self, payload: &[u8]) -> Result<RecordRow, String> {
        let example = Example::parse(payload)?;
        let length = self.settings.seq_len;
        let list = |name: &str, least: i64, most: usize| {
            let numbers = example.int64s(name)?;
            if numbers.len() != length {
                return Err(format!("`{name}` has {} values, expected seq_len = {length}", numbers.len()));
            }
            let within = |number: &&i64| **number >= least && (**number as u64) < most as u64;
            match numbers.iter().find(|number| !within(number)) {
                Some(bad) => Err(format!("`{name}` holds {bad}, outside {least}..{most}")),
                None => Ok(numbers),
            }
        };
        let input = list("input", 0, self.settings.vocab_size)?;
        let seg_id = list("seg_id", 0, 3)?;
        if !seg_id.is_sorted() || seg_id[..self.settings.reuse_len].iter().any(|segment| *segment != 0) {
            return Err("`seg_id` is not 0 for what is reused and A, then 1 for B, then 2".into());
        }
        let is_masked: Vec<bool> = list("is_masked", 0, 2)?.into_iter().map(|flag| flag == 1).collect();
        let targets = is_masked.iter().filter(|flag| **flag).count();
        if let Some(expected) = self.settings.num_predict.filter(|expected| *expected != targets) {
            return Err(format!("`is_masked` marks {targets} targets and num_predict is {expected}"));
        }
        match example.int64s("label")?.as_slice() {
            [label @ 0..=1] => Ok(RecordRow { input, is_masked, seg_id, label: *label }),
            other => Err(format!("`label` is {other:?}, not one 0 or 1")),
        }
    }
}
