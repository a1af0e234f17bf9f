//! Errors of the environment that started a job.

use thiserror::Error;

use crate::exit_code;

/// The environment of a job does not fit together, or the system refuses what a job needs.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A variable does not hold what its launcher would write.
    #[error("environment variable {name}={value:?} is not {expected}")]
    Malformed {
        /// The variable.
        name: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },

    /// One half of a pair of variables is missing.
    #[error(
        "environment variable {set}={value} is set but {missing} is not: the launcher's environment is incomplete"
    )]
    Incomplete {
        /// The variable that is there.
        set: &'static str,
        /// What it holds.
        value: usize,
        /// The rank of this process, as far as the variables tell.
        rank: usize,
        /// The variable that is not.
        missing: &'static str,
    },

    /// Two sources disagree on the rank or the number of ranks.
    #[error("environment variables contradict each other: {} but {}", assignments(.first), assignments(.second))]
    Contradiction {
        /// Variables and their values that say one thing.
        first: Vec<(&'static str, usize)>,
        /// Variables and their values that say another.
        second: Vec<(&'static str, usize)>,
    },

    /// Several processes were started, but not in a way that lets them find each other.
    #[error(
        "{} {} several ranks, but no MPI launcher started this process, so each would train alone",
        assignments(.found), announce(.found)
    )]
    NoMpi {
        /// The variables that announce several ranks.
        found: Vec<(&'static str, usize)>,
        /// How to start the job instead.
        advice: &'static str,
    },

    /// Variables announce other ranks than MPI has.
    #[error(
        "{} {} {}, but MPI has rank {rank} of {world_size}{}",
        assignments(.found), announce(.found),
        if *.world_size == 1 { "several ranks" } else { "something else" },
        if *.world_size == 1 { ": each would train alone" } else { "" }
    )]
    MpiDisagrees {
        /// The variables.
        found: Vec<(&'static str, usize)>,
        /// The rank of this process in MPI.
        rank: usize,
        /// The number of MPI's ranks.
        world_size: usize,
        /// The MPI library.
        library: String,
    },

    /// Two schedulers claim the job.
    #[error("environment variables SLURM_JOB_ID={slurm} and PBS_JOBID={pbs} are both set")]
    TwoSchedulers {
        /// The Slurm job.
        slurm: String,
        /// The PBS job.
        pbs: String,
    },

    /// An option of the command line does not hold what it takes.
    #[error("`{value}` in {option} is not {expected}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// What is wrong in it.
        value: String,
        /// What should be there.
        expected: &'static str,
    },

    /// A line of a file of hosts cannot be read.
    #[error("`{value}` in {path}, line {line}, is not {expected}")]
    HostLine {
        /// The file.
        path: std::path::PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong in it.
        value: String,
        /// What should be there.
        expected: &'static str,
    },

    /// A list of hosts names none that takes a rank.
    #[error("the hosts of {from} cannot be used: none of them takes a rank, or one has no name")]
    NoHosts {
        /// Where the list is from.
        from: crate::launch::hosts::Source,
    },

    /// A list of hosts takes more ranks than any job has.
    #[error("the hosts of {from} take more than {most} ranks")]
    TooManyRanks {
        /// Where the list is from.
        from: crate::launch::hosts::Source,
        /// As many as may be.
        most: usize,
    },

    /// A list names more hosts than any cluster has.
    #[error("the hosts of {from} are more than {most}")]
    TooManyHosts {
        /// Where the list is from.
        from: crate::launch::hosts::Source,
        /// As many as may be.
        most: usize,
    },

    /// The file of a batch system's hosts could not be read.
    #[error("cannot read the list of hosts {path}: {source}")]
    HostFile {
        /// The file.
        path: std::path::PathBuf,
        /// What the system says.
        source: std::io::Error,
    },

    /// What starts ranks cannot be started itself.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: std::io::Error,
    },

    /// The script of a batch job cannot be made.
    #[error("the script of the job cannot be made: {what}")]
    Template {
        /// What is wrong.
        what: String,
    },

    /// A batch system refuses a job.
    #[error("{program} refused the job: {said}")]
    Refused {
        /// Its program.
        program: String,
        /// What it says.
        said: String,
    },

    /// The name of a host leads to no address.
    #[error("the host {name} of {from} cannot be found: its name leads to no address")]
    UnknownHost {
        /// The name.
        name: String,
        /// Where it stands.
        from: crate::launch::hosts::Source,
    },

    /// The program that starts ranks elsewhere does not reach a host.
    #[error("ssh does not reach {name}: {said}")]
    Unreached {
        /// The name of the host.
        name: String,
        /// What ssh says.
        said: String,
    },

    /// Ranks have no way to reach their supervisor.
    #[error("cannot listen for the ranks of the job: {source}")]
    Supervisor {
        /// What the system says.
        source: std::io::Error,
    },

    /// A signal handler could not be installed.
    #[error("cannot listen for {signal}: {source}")]
    Signal {
        /// Name of the signal.
        signal: &'static str,
        /// What the system says.
        source: std::io::Error,
    },

    /// The pool of child processes could not be set up.
    #[error("cannot wait for child processes: {source}")]
    Pool {
        /// What the system says.
        source: std::io::Error,
    },
}

impl ClusterError {
    /// The process exit code for this error, one of [`exit_code`].
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Signal { .. } | Self::Pool { .. } => exit_code::BUG,
            Self::Malformed { .. }
            | Self::Incomplete { .. }
            | Self::Contradiction { .. }
            | Self::NoMpi { .. }
            | Self::MpiDisagrees { .. }
            | Self::Template { .. }
            | Self::TwoSchedulers { .. } => exit_code::BAD_CONFIG,
            Self::BadOption { .. } => exit_code::USAGE,
            Self::HostLine { .. } => exit_code::BAD_DATA,
            Self::NoHosts { from } | Self::TooManyRanks { from, .. } | Self::TooManyHosts { from, .. } => {
                from.exit_code()
            }
            Self::HostFile { .. } => exit_code::NO_INPUT,
            Self::Start { .. }
            | Self::Supervisor { .. }
            | Self::Refused { .. }
            | Self::UnknownHost { .. }
            | Self::Unreached { .. } => exit_code::UNAVAILABLE,
        }
    }

    /// What the user can do about it, where that is known: a sentence in the imperative, for a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Malformed { name, .. } => {
                Some(format!("pass {name} on as the launcher or the batch system has set it"))
            }
            Self::Incomplete { set, rank, .. } => {
                Some(or_unset("pass on the whole environment of the launcher", *rank, set))
            }
            Self::Contradiction { .. } => Some(
                "pass on the whole environment of the launcher that started this job, and no other's".into(),
            ),
            // One text for all ranks: torchrun shows what each of them says.
            Self::NoMpi { advice, .. } if *advice == WITHOUT_TORCH => Some((*advice).to_owned()),
            Self::NoMpi { advice, found } => Some(or_unset(advice, announced_rank(found), "these variables")),
            Self::MpiDisagrees { library, found, .. } => {
                let advice = format!("start the job with the mpirun of {library}, which this program uses");
                Some(or_unset(&advice, announced_rank(found), "these variables"))
            }
            Self::BadOption { .. } | Self::HostLine { .. } => Some(NAME_HOSTS.to_owned()),
            Self::TwoSchedulers { .. } => Some("unset the stale one".to_owned()),
            Self::NoHosts { .. } | Self::TooManyRanks { .. } | Self::TooManyHosts { .. } => {
                Some(NAME_HOSTS.to_owned())
            }
            Self::HostFile { .. } | Self::Template { .. } | Self::Refused { .. } => None,
            Self::Start { program, .. } => {
                let package = package_of(program).map_or(String::new(), |name| format!(" (Debian: {name})"));
                Some(format!("install what {program} belongs to{package}, or put it into PATH"))
            }
            Self::UnknownHost { .. } => Some(
                "correct the name; where another program than ssh starts ranks there, say how this host is reached: --listen ADDRESS"
                    .to_owned(),
            ),
            Self::Unreached { name, .. } => Some(format!("try `ssh {name} true`")),
            Self::Supervisor { .. } => {
                Some("name an address of this host that the others reach: --listen ADDRESS".to_owned())
            }
            Self::Signal { .. } | Self::Pool { .. } => None,
        }
    }
}

/// What to do where ranks were started by torchrun, which MPI does not know.
pub(crate) const WITHOUT_TORCH: &str = "start the job with `segue launch -n N` or mpirun instead of torchrun; for one process set neither RANK nor WORLD_SIZE";
pub(crate) const NAME_HOSTS: &str = "name each host with the number of its ranks, such as node1:4";

/// The package of Debian that has a program which starts ranks, or jobs.
fn package_of(program: &str) -> Option<&'static str> {
    match program.rsplit('/').next()? {
        "mpirun" | "mpiexec" => Some("openmpi-bin"),
        "srun" | "sbatch" => Some("slurm-client"),
        _ => None,
    }
}

/// `advice`; for rank 0, which may be the only process of its job, to unset the variables too. Ranks share one job script, so what a higher rank unset would go for all.
fn or_unset(advice: &str, rank: usize, what: &str) -> String {
    match rank {
        0 => format!("{advice}; unset {what} only for a job of one process"),
        _ => advice.to_owned(),
    }
}

/// The rank that variables announce, which is the first of them.
fn announced_rank(variables: &[(&'static str, usize)]) -> usize {
    variables.first().map_or(0, |(_, rank)| *rank)
}

fn announce(variables: &[(&'static str, usize)]) -> &'static str {
    if variables.len() == 1 { "announces" } else { "announce" }
}

fn assignments(variables: &[(&'static str, usize)]) -> String {
    let each: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    each.join(" ")
}
