use segue_data_error::DataError;

use super::data::Skipped;

/// Refused lines and records that are told in full.
const TOLD: usize = 5;

/// What to do about a line or record that cannot be used, where it has no better advice.
const SKIP: &str = "correct it, or skip what cannot be used with task.skip_bad=true";

/// What becomes of lines and records that cannot be used: an error, or with `task.skip_bad` one more left out.
#[derive(Debug)]
pub(crate) struct Sieve {
    skip_bad: bool,
    skipped: Skipped,
}

impl Sieve {
    pub(crate) fn new(skip_bad: bool) -> Sieve {
        Sieve { skip_bad, skipped: Skipped::default() }
    }

    /// Gives the error back, or counts it.
    pub(crate) fn refuse(&mut self, error: DataError) -> Result<(), DataError> {
        if !self.skip_bad {
            return Err(error.advised(SKIP));
        }
        self.skipped.count += 1;
        if self.skipped.first.len() < TOLD {
            self.skipped.first.push(error.to_string());
        }
        Ok(())
    }

    /// The value, or none where it is an error that may be left out.
    pub(crate) fn keep<T>(&mut self, result: Result<T, DataError>) -> Result<Option<T>, DataError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.refuse(error).map(|()| None),
        }
    }

    /// Says that something was left out for another reason.
    pub(crate) fn note(&mut self, note: String) {
        self.skipped.notes.push(note);
    }

    pub(crate) fn done(self) -> Skipped {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(line: u64) -> DataError {
        DataError::line("train.tsv".as_ref(), line, "it has 2 columns")
    }

    #[test]
    fn bad_lines_are_errors_unless_they_may_be_left_out() {
        assert_eq!(
            Sieve::new(false).refuse(bad(3)).unwrap_err().to_string(),
            "train.tsv, line 3: it has 2 columns"
        );
        assert_eq!(bad(3).exit_code(), 65);
        let mut sieve = Sieve::new(true);
        for line in 1..=9 {
            sieve.refuse(bad(line)).unwrap();
        }
        assert_eq!(sieve.keep(Ok(7)).unwrap(), Some(7));
        let skipped = sieve.done();
        assert_eq!((skipped.count, skipped.first.len()), (9, TOLD));
    }
}
