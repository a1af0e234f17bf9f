//! `metrics.csv`: a line for each number that is reported.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use segue_kernels::TrainError;

use super::sink::{GoesOn, MetricRow, Sink, keep_lines, open_to_append};

const FILE: &str = "metrics.csv";
const HEADER: &str = "time,attempt,kind,step,name,value";

/// The file, in the form of RFC 4180 with line feeds.
pub struct CsvFile {
    path: PathBuf,
    file: File,
}

impl CsvFile {
    /// Opens the file of a run, and takes back what is made again.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or written.
    pub fn open(run: &Path, goes_on: GoesOn) -> Result<Self, TrainError> {
        let path = run.join(FILE);
        let stays = |line: &str| {
            let mut cells = line.split(',').skip(2);
            let (kind, step) = (cells.next(), cells.next().and_then(|step| step.parse::<u64>().ok()));
            line == HEADER || kind.zip(step).is_some_and(|(kind, step)| step <= goes_on.last(kind))
        };
        keep_lines(&path, stays)?;
        let mut csv = Self { file: open_to_append(run, FILE)?, path };
        if csv.file.metadata().is_ok_and(|file| file.len() == 0) {
            csv.write(&format!("{HEADER}\n"))?;
        }
        Ok(csv)
    }

    fn write(&mut self, text: &str) -> Result<(), TrainError> {
        self.file
            .write_all(text.as_bytes())
            .map_err(|source| TrainError::Write { path: self.path.clone(), source })
    }
}

impl Sink for CsvFile {
    fn row(&mut self, row: &MetricRow) -> Result<(), TrainError> {
        let MetricRow { kind, step, attempt, time, .. } = row;
        let line = |(name, value): &(String, f64)| {
            // A line is a number, as whoever cuts the file counts on.
            let name = name.replace(['\n', '\r'], " ");
            csv_line([
                format!("{time:.3}"),
                attempt.to_string(),
                kind.to_string(),
                step.to_string(),
                name,
                value.to_string(),
            ])
        };
        // One write a row: it is torn at most once.
        self.write(&row.values.iter().map(line).collect::<String>())
    }
}

/// A line of a CSV file in the form of RFC 4180 with a line feed: cells with commas, quotes or line breaks stand in quotes.
pub fn csv_line<T: ToString>(cells: impl IntoIterator<Item = T>) -> String {
    let quoted = |cell: T| match cell.to_string() {
        cell if cell.contains(['"', ',', '\n', '\r']) => format!("\"{}\"", cell.replace('"', "\"\"")),
        cell => cell,
    };
    cells.into_iter().map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        let line = csv_line(["a", "", "b,c", "d\"e", "f\ng", "\r"]);
        assert_eq!(line, "a,,\"b,c\",\"d\"\"e\",\"f\ng\",\"\r\"\n");
        assert_eq!(csv_line([0.5, 2.0]), "0.5,2\n");
    }

    #[test]
    fn a_run_that_goes_on_takes_back_what_it_makes_again() {
        let dir = tempfile::tempdir().unwrap();
        let open = |step, evaluated| CsvFile::open(dir.path(), GoesOn { step, evaluated }).unwrap();
        let add = |csv: &mut CsvFile, kind, step, attempt| {
            let values = [("loss".to_string(), 0.1 + 0.2), ("a,b".to_string(), 2.0)];
            csv.row(&MetricRow { kind, step, attempt, time: 1.5, values: &values }).unwrap();
        };
        let mut csv = open(0, 0);
        (1..=3).for_each(|step| add(&mut csv, "train", step, 1));
        add(&mut csv, "eval", 2, 1);
        csv.write("1.5,1,train,4,lo").unwrap();
        let mut csv = open(2, 0);
        add(&mut csv, "train", 3, 2);
        let lines = |step, attempt| {
            [("loss", "0.30000000000000004"), ("\"a,b\"", "2")]
                .map(|(name, value)| format!("1.500,{attempt},train,{step},{name},{value}"))
        };
        let expected =
            [vec![HEADER.to_string()], lines(1, 1).into(), lines(2, 1).into(), lines(3, 2).into()].concat();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
