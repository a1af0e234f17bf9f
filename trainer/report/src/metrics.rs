use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use segue_kernels::TrainError;
use segue_publish::{append_regular, make_own_folders, open_regular, read_regular};
use serde_json::Value;

const FILE: &str = "metrics.jsonl";
/// Rows of steps that a later attempt made again.
const SUPERSEDED: &str = "metrics.superseded.jsonl";

/// `metrics.jsonl`: one JSON object a line, each with its `step`, which never goes backwards.
pub struct MetricsFile {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines in it.
    whole: u64,
    of_step: Vec<Value>,
}

impl MetricsFile {
    /// Opens the file of a run that goes on after `step`, and has been evaluated up to `evaluated`. Rows past these, left by an
    /// attempt that died after its last checkpoint, move to `metrics.superseded.jsonl`, and so does a torn last line.
    pub fn open(run: &Path, step: u64, evaluated: u64) -> Result<Self, TrainError> {
        let path = run.join(FILE);
        let write_error = |source| TrainError::Write { path: path.clone(), source };
        make_own_folders(run, "").map_err(write_error)?;
        let mut of_step = Vec::new();
        if path.exists() {
            let (kept, superseded) = split_rows(&path, step, evaluated, &mut of_step)?;
            // A last row may lack the end of its line alone.
            if kept.len() as u64 != fs::metadata(&path).map_err(write_error)?.len() {
                append(&run.join(SUPERSEDED), &superseded).map_err(write_error)?;
                segue_publish::write_file(&path, kept.as_bytes()).map_err(|e| write_error(e.source))?;
            }
        }
        let file = append_regular(&path).map_err(write_error)?;
        let whole = file.metadata().map_err(write_error)?.len();
        Ok(Self { path, file, whole, of_step })
    }

    /// The rows of the step that the run goes on after, as they were when the file was opened.
    pub fn of_step(&self) -> &[Value] {
        &self.of_step
    }

    /// Adds one row, or nothing of it where the disk is full: the next one would stand on its line.
    pub fn append(&mut self, row: &Value) -> Result<(), TrainError> {
        let line = format!("{row}\n");
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => self.whole += line.len() as u64,
            Err(source) => {
                self.cut();
                return Err(self.error(source));
            }
        }
        Ok(())
    }

    /// Cuts off what stands behind the last whole line. What stays all the same is a torn line, which readers leave out.
    fn cut(&mut self) {
        _ = self.file.set_len(self.whole);
    }

    /// Lets the rows so far outlast a power cut.
    pub fn sync(&self) -> Result<(), TrainError> {
        self.file.sync_data().map_err(|source| self.error(source))
    }

    fn error(&self, source: std::io::Error) -> TrainError {
        TrainError::Write { path: self.path.clone(), source }
    }
}

/// The rows of a run so far. A torn line is left out.
pub fn read_metrics(run: &Path) -> Result<Vec<Value>, TrainError> {
    let path = run.join(FILE);
    let bytes = read_regular(&path).map_err(|source| TrainError::Read { path, source })?;
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// The rows that stay, and the others; of those that stay, `of_step` gets those of `step`.
fn split_rows(
    path: &Path,
    step: u64,
    evaluated: u64,
    of_step: &mut Vec<Value>,
) -> Result<(String, String), TrainError> {
    let read_error = |source| TrainError::Read { path: path.into(), source };
    let (mut kept, mut superseded) = (String::new(), String::new());
    // A torn line may end within a character.
    for line in BufReader::new(open_regular(path).map_err(read_error)?).split(b'\n') {
        let line = line.map_err(read_error)?;
        let line = String::from_utf8_lossy(&line);
        let stays = |row: &Value| {
            let last = if row["kind"] == "eval" { evaluated } else { step };
            row["step"].as_u64().is_some_and(|step| step <= last)
        };
        let row = serde_json::from_str::<Value>(&line).ok().filter(stays);
        let rows = if row.is_some() { &mut kept } else { &mut superseded };
        of_step.extend(row.filter(|row| row["step"] == step));
        rows.push_str(&line);
        rows.push('\n');
    }
    Ok((kept, superseded))
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    append_regular(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_never_go_backwards_and_no_row_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::open(dir.path(), 0, 0).unwrap();
        for step in 1..=5 {
            file.append(&json!({"step": step, "attempt": 1})).unwrap();
        }
        file.file.write_all(b"{\"step\": 6, \"att").unwrap();
        file.file.write_all(b"\n").unwrap();
        file.append(&json!({"kind": "eval", "step": 2})).unwrap();
        file.append(&json!({"kind": "eval", "step": 3})).unwrap();
        let mut file = MetricsFile::open(dir.path(), 3, 2).unwrap();
        let of_step = file.of_step().to_vec();
        file.append(&json!({"step": 4, "attempt": 2})).unwrap();
        let read = |name| fs::read_to_string(dir.path().join(name)).unwrap();
        let steps: Vec<u64> = read(FILE)
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap()["step"].as_u64().unwrap())
            .collect();
        assert_eq!(steps, [1, 2, 3, 2, 4]);
        assert_eq!(read(SUPERSEDED).lines().count(), 4);
        // The evaluation of step 3 is void.
        assert_eq!(of_step, [json!({"step": 3, "attempt": 1})]);
    }

    /// Without the end of the last line, and within a character of it.
    #[test]
    fn a_row_that_follows_a_torn_one_stands_on_its_own_line() {
        for (torn, kept) in [(&b"{\"step\": 2}"[..], 3), (b"{\"step\": 2, \"task\": \"\xc3", 2)] {
            let dir = tempfile::tempdir().unwrap();
            let mut file = MetricsFile::open(dir.path(), 0, 0).unwrap();
            file.append(&json!({"step": 1})).unwrap();
            file.file.write_all(torn).unwrap();
            let mut file = MetricsFile::open(dir.path(), 2, 0).unwrap();
            file.append(&json!({"step": 3})).unwrap();
            file.sync().unwrap();
            let rows = read_metrics(dir.path()).unwrap();
            assert_eq!((rows.len(), &rows[0]["step"], &rows[kept - 1]["step"]), (kept, &json!(1), &json!(3)));
        }
    }

    #[test]
    fn a_row_that_was_not_written_whole_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::open(dir.path(), 0, 0).unwrap();
        file.append(&json!({"step": 1})).unwrap();
        file.file.write_all(b"{\"step\": 2, ").unwrap();
        file.cut();
        file.append(&json!({"step": 3})).unwrap();
        let steps: Vec<Value> =
            read_metrics(dir.path()).unwrap().into_iter().map(|row| row["step"].clone()).collect();
        assert_eq!(steps, [1, 3]);
    }
}
