use std::path::Path;

use segue_configs::counted;
use segue_data_error::DataError;

use super::data::Skipped;

/// Refused lines and records that are told in full.
const TOLD: usize = 5;

/// The split that is learnt from.
pub(crate) const TRAIN: &str = "train";

/// How the names of splits begin that are answered for others to score.
const TEST: &str = "test";

/// What the records of a split are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// To learn from.
    Learnt,
    /// To score answers on: what is right is told, unless of no record.
    Scored,
    /// To answer: what is right may be told, and then answers are scored too.
    Answered,
}

/// What to do about a line or record that cannot be used, where it has no better advice.
const SKIP: &str = "correct it, or skip what cannot be used with task.skip_bad=true";
/// The same where the record is answered and scored all the same.
const SPARE: &str = "correct it, or have it answered and scored as it stands with task.skip_bad=true";

/// What becomes of lines and records that cannot be used: an error, or with `task.skip_bad` one more left out.
#[derive(Debug)]
pub(crate) struct Sieve {
    skip_bad: bool,
    role: Role,
    /// What to do about a line that cannot be used, where the error has no better advice.
    advice: Option<&'static str>,
    skipped: Skipped,
    /// Records that stay though something of them cannot be used, and what is wrong with the first.
    spared: (u64, String),
}

impl Sieve {
    /// Of records that are learnt from, or that are no records of a split.
    pub(crate) fn new(skip_bad: bool) -> Sieve {
        let (skipped, spared) = (Skipped::default(), (0, String::new()));
        Sieve { skip_bad, role: Role::Learnt, advice: Some(SKIP), skipped, spared }
    }

    /// Of the records of a split.
    pub(crate) fn of_split(skip_bad: bool, split: &str) -> Sieve {
        let role = match split {
            TRAIN => Role::Learnt,
            split if split.starts_with(TEST) => Role::Answered,
            _ => Role::Scored,
        };
        Sieve { role, ..Sieve::new(skip_bad) }
    }

    /// Of texts that are asked about outside any task: there is no key to skip them by.
    pub(crate) fn of_inputs() -> Sieve {
        Sieve { role: Role::Answered, advice: None, ..Sieve::new(false) }
    }

    /// What the records are for.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Gives the error back, or counts it.
    pub(crate) fn refuse(&mut self, error: DataError) -> Result<(), DataError> {
        if !self.skip_bad {
            return Err(match self.advice {
                Some(advice) => error.advised(advice),
                None => error,
            });
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

    /// Gives the error back, or says whether the record stays. What is learnt from is left out. What is answered is
    /// answered and scored with whatever can be read of it: a scorer that has the file counts it too, and without it
    /// scores would look better than they are.
    pub(crate) fn spare(&mut self, error: DataError) -> Result<bool, DataError> {
        if self.role == Role::Learnt {
            return self.refuse(error).map(|()| false);
        }
        if !self.skip_bad {
            return Err(error.advised(SPARE));
        }
        self.spared.0 += 1;
        if self.spared.0 == 1 {
            self.spared.1 = error.to_string();
        }
        Ok(true)
    }

    /// That nothing of a file can be used.
    pub(crate) fn nothing(&self, path: &Path, why: &str) -> DataError {
        let hint = if self.skipped.count > 0 { "\nhint: run without task.skip_bad to see why" } else { "" };
        DataError::line(path, 1, format!("{why}{hint}"))
    }

    /// Says that something was left out for another reason.
    pub(crate) fn note(&mut self, note: String) {
        self.skipped.notes.push(note);
    }

    pub(crate) fn done(mut self) -> Skipped {
        let (spared, first) = &self.spared;
        if *spared > 0 {
            let what = counted(*spared, "record");
            let note = format!("{what} answered and scored with what can be read; the first: {first}");
            self.skipped.notes.push(note);
        }
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

    #[test]
    fn what_is_answered_stays_where_what_is_learnt_from_goes() {
        let mut learnt = Sieve::of_split(true, "train");
        assert!(!learnt.spare(bad(3)).unwrap());
        assert_eq!(learnt.done().count, 1);
        let mut answered = Sieve::of_split(true, "dev");
        assert!(answered.spare(bad(3)).unwrap() && answered.spare(bad(4)).unwrap());
        let told = answered.done();
        assert_eq!((told.count, told.notes.len()), (0, 1));
        assert!(told.notes[0].starts_with("2 records answered") && told.notes[0].contains("line 3"));
        let error = Sieve::of_split(false, "dev").spare(bad(3)).unwrap_err();
        assert!(error.hint().unwrap().contains("scored as it stands"), "{error}");
    }

    #[test]
    fn skipping_is_blamed_only_where_something_was_skipped() {
        let mut sieve = Sieve::new(true);
        assert_eq!(sieve.nothing("a".as_ref(), "nothing").hint(), None);
        sieve.refuse(bad(3)).unwrap();
        assert!(sieve.nothing("a".as_ref(), "nothing").hint().unwrap().contains("without task.skip_bad"));
    }
}
