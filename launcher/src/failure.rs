use segue_cluster::ClusterError;
use segue_collectives::CollectiveError;
use segue_configs::ConfigError;
use segue_dataloader::DataError;
use segue_trainer::TrainError;

/// Bad command line.
pub const USAGE: u8 = 64;
/// A limit that a check was to hold does not.
pub const CHECK_FAILED: u8 = 1;
/// Stopped on request after a checkpoint; the same command goes on.
pub const PREEMPTED: u8 = 75;

/// Why a command ends without its result: what `main` prints, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code, one of those in `docs/reference.md`.
    pub code: u8,
    /// What happened, where, and what to do.
    pub message: String,
    /// All ranks fail alike, and each knows it: nobody is left waiting.
    pub on_all_ranks: bool,
}

impl Failure {
    /// A failure of this process.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), on_all_ranks: false }
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        // What follows from the command line and from sums over all ranks.
        let on_all_ranks = matches!(
            error,
            TrainError::Layout(_)
                | TrainError::OtherRun { .. }
                | TrainError::NonFinite { .. }
                | TrainError::ReplicasDiffer { .. }
        );
        Self { on_all_ranks, ..Self::new(error.exit_code(), error.to_string()) }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        // A file may be missing on one host alone.
        let on_all_ranks = !matches!(error, ConfigError::Missing { .. });
        Self { on_all_ranks, ..Self::new(error.exit_code(), error.to_string()) }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        Self::new(error.exit_code() as u8, error.to_string())
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::new(error.exit_code() as u8, error.to_string())
    }
}
