use std::io;
use std::path::Path;

use segue_cluster::ClusterError;
use segue_collectives::CollectiveError;
use segue_configs::exit_code::{of_read, of_write};
use segue_configs::{ConfigError, advice};
use segue_data_error::DataError;
use segue_kernels::TrainError;
use segue_tuner::TunerError;
use segue_watch::WatchError;
use serde_json::{Value, json};

pub use segue_configs::exit_code::{
    BAD_CONFIG, BAD_DATA, BUG, CANNOT_CREATE, CHECK_FAILED, INTERRUPTED, IO_FAILED, NO_INPUT, NOT_A_NUMBER,
    PREEMPTED, UNAVAILABLE, USAGE,
};

/// Why a command ends without its result: what `main` prints, and the exit code.
///
/// ```text
/// segue: error: unknown key `train.lane` in override `train.lane=4`
/// hint: did you mean `train.lanes`?
/// ```
#[derive(Debug, Clone)]
pub struct Failure {
    /// Exit code, one of those in `docs/book/src/reference/exit-codes.md`.
    pub code: u8,
    /// What happened and where: one sentence without a full stop.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

/// A path as the text of a configuration, of a command or of a name: those are UTF-8, and a path need not be.
pub fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        let message = format!("the path {path:?} is not UTF-8, and is written down as text");
        Failure::new(USAGE, format!("{message}\nhint: rename it, or give a link with another name"))
    })
}

impl Failure {
    /// A failure of this process. The message may come with [advice].
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        let (hint, fact) = (advice::hint(&message), advice::fact(&message).to_owned());
        Self { code, message: fact, hint }
    }

    /// Failure to read `path`.
    pub fn cannot_read(path: &Path, error: &io::Error) -> Self {
        Self::new(of_read(error), format!("cannot read {}: {error}", path.display()))
    }

    /// Failure to write `path`, which the user gives by `option`.
    pub fn cannot_write(path: &Path, error: &io::Error, option: &str) -> Self {
        use io::ErrorKind::*;
        let said = error.to_string();
        let advice = advice::hint(&said).unwrap_or_else(|| match error.kind() {
            StorageFull | QuotaExceeded => format!("free some space, or choose another {option}"),
            _ if of_write(error) == CANNOT_CREATE => format!("choose a writable {option}"),
            _ => "check the file system, then run the same command again".into(),
        });
        let fact = advice::fact(&said);
        Self::new(of_write(error), format!("cannot write {}: {fact}\nhint: {advice}", path.display()))
    }

    /// A failure of a training, or of a file in the folder of its run.
    pub fn of_run(error: TrainError) -> Self {
        use io::ErrorKind::*;
        let TrainError::Write { path, source } = &error else { return error.into() };
        let failure = Self::cannot_write(path, source, "run.dir");
        match source.kind() {
            StorageFull | QuotaExceeded => {
                let hint = "free some space, lower checkpoint.keep or choose another run.dir, then run the same command again";
                Self { hint: Some(hint.into()), ..failure }
            }
            _ => failure,
        }
    }

    /// The lines for people. `rank`: the one that speaks, where it is not the first.
    pub fn text(&self, rank: Option<usize>) -> String {
        let place = rank.map_or(String::new(), |rank| format!(" on rank {rank}"));
        let hint = self.hint.as_ref().map_or(String::new(), |hint| format!("\nhint: {hint}"));
        format!("segue: error{place}: {}{hint}", self.message)
    }

    /// The object for programs; `hint` is null where there is none.
    pub fn json(&self, rank: usize) -> Value {
        json!({ "error": self.message, "hint": self.hint, "rank": rank, "exit_code": self.code })
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        Self::new(error.exit_code(), advice::joined(&error, error.hint()))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(error.exit_code(), advice::joined(&error, error.hint()))
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::new(error.exit_code(), advice::joined(&error, error.hint()))
    }
}

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        Self::new(error.exit_code() as u8, advice::joined(&error, error.hint()))
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::new(error.exit_code() as u8, advice::joined(&error, error.hint()))
    }
}

impl From<TunerError> for Failure {
    fn from(error: TunerError) -> Self {
        Self::new(error.exit_code(), advice::joined(&error, error.hint()))
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        Self::new(error.exit_code(), advice::joined(&error, error.hint()))
    }
}

#[cfg(test)]
mod tests {
    use segue_configs::exit_code::{OVERDUE, RANKS_DIFFER};

    use super::*;

    #[test]
    fn what_cannot_be_written_has_the_documented_code_and_advice() {
        use io::ErrorKind::*;
        let cases = [
            (NotFound, 73, "choose a writable --ids"),
            (IsADirectory, 73, "choose a writable --ids"),
            (ReadOnlyFilesystem, 73, "choose a writable --ids"),
            (StorageFull, 74, "free some space, or choose another --ids"),
            (Other, 74, "check the file system, then run the same command again"),
        ];
        for (kind, code, hint) in cases {
            let failure = Failure::cannot_write(Path::new("a/b"), &kind.into(), "--ids");
            assert_eq!((failure.code, failure.hint.as_deref()), (code, Some(hint)), "{}", failure.message);
            assert!(failure.message.starts_with("cannot write a/b: "));
        }
    }

    /// Who gives an output by an option is not sent to the folder of a run.
    #[test]
    fn advice_names_what_the_user_has_given() {
        let full = || TrainError::Write { path: "a".into(), source: io::ErrorKind::StorageFull.into() };
        let sealed =
            || TrainError::Write { path: "a".into(), source: io::ErrorKind::PermissionDenied.into() };
        let hint = |failure: Failure| failure.hint.unwrap();
        for error in [full(), sealed()] {
            let hint = hint(error.into());
            assert!(hint.contains("output") && !hint.contains("run.dir"), "{hint}");
        }
        assert!(hint(Failure::of_run(full())).contains("lower checkpoint.keep or choose another run.dir"));
        assert_eq!(hint(Failure::of_run(sealed())), "choose a writable run.dir");
        assert_eq!(Failure::of_run(TrainError::Stopped).code, PREEMPTED);
    }

    /// Crates below the configuration name their codes themselves.
    #[test]
    fn crates_that_do_not_know_the_configuration_have_the_same_codes() {
        use segue_cluster::exit_code as cluster;
        use segue_collectives::exit_code as collectives;
        use segue_watch::exit_code as watch;
        let of_ranks = [
            (collectives::UNAVAILABLE, UNAVAILABLE),
            (collectives::BUG, BUG),
            (collectives::BAD_CONFIG, BAD_CONFIG),
            (cluster::USAGE, USAGE),
            (cluster::BAD_DATA, BAD_DATA),
            (cluster::NO_INPUT, NO_INPUT),
            (cluster::UNAVAILABLE, UNAVAILABLE),
            (cluster::BUG, BUG),
            (cluster::CANNOT_CREATE, CANNOT_CREATE),
            (cluster::IO_FAILED, IO_FAILED),
            (cluster::PREEMPTED, PREEMPTED),
            (cluster::BAD_CONFIG, BAD_CONFIG),
            (cluster::NOT_A_NUMBER, NOT_A_NUMBER),
            (cluster::OVERDUE, OVERDUE),
            (segue_collectives::deadline::EXIT_CODE, OVERDUE),
        ];
        for (code, same) in of_ranks {
            assert_eq!(code, i32::from(same));
        }
        let of_watch = [watch::NO_INPUT, watch::UNAVAILABLE, watch::IO_FAILED];
        assert_eq!(of_watch, [NO_INPUT, UNAVAILABLE, IO_FAILED]);
    }

    /// What ends with a code that the table does not have tells nobody what to do.
    #[test]
    fn every_exit_code_stands_in_the_document() {
        let path = Path::new(segue_tests::ROOT).join("docs/book/src/reference/exit-codes.md");
        let table = std::fs::read_to_string(path).unwrap();
        for code in [
            BAD_CONFIG,
            BAD_DATA,
            BUG,
            CANNOT_CREATE,
            CHECK_FAILED,
            INTERRUPTED,
            IO_FAILED,
            NO_INPUT,
            NOT_A_NUMBER,
            PREEMPTED,
            UNAVAILABLE,
            USAGE,
            RANKS_DIFFER,
            OVERDUE,
        ] {
            assert_eq!(table.matches(&format!("\n| {code} |")).count(), 1, "{code}");
        }
    }

    #[test]
    fn advice_has_a_line_and_a_field_of_its_own() {
        let error = segue_families::MODELS.load(None, &["train.lane=4".into()]).unwrap_err();
        let failure = Failure::from(error);
        let message = "unknown key `train.lane` in override `train.lane=4`";
        let text = format!("segue: error on rank 2: {message}\nhint: did you mean `train.lanes`?");
        assert_eq!(failure.text(Some(2)), text);
        let object =
            json!({ "error": message, "hint": "did you mean `train.lanes`?", "rank": 0, "exit_code": 78 });
        assert_eq!(failure.json(0), object);
        let plain = Failure::new(70, "the reduce thread has ended");
        assert_eq!(plain.text(None), "segue: error: the reduce thread has ended");
        assert_eq!(plain.json(0)["hint"], Value::Null);
    }
}
