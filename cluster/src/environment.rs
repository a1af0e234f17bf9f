//! How this process was started, from the environment variables of launchers and schedulers.
//!
//! Which launchers are known, and how far what they say is believed, is in [`announced`](crate::announced).

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::ClusterError;
use crate::announced::{Announced, Standing};
pub use crate::variables::Launcher;
use crate::variables::Variables;

/// The batch system whose job this process belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheduler {
    /// Slurm.
    Slurm {
        /// `SLURM_JOB_ID`.
        job_id: String,
        /// How often Slurm has started this job again, `SLURM_RESTART_COUNT`; 0 the first time.
        restart_count: usize,
    },
    /// PBS: OpenPBS, PBS Professional or Torque.
    Pbs {
        /// `PBS_JOBID`.
        job_id: String,
        /// The file that lists the job's hosts, `PBS_NODEFILE`.
        node_file: Option<PathBuf>,
    },
}

/// Where this process stands in its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnvironment {
    /// What gave this process its rank.
    pub launcher: Launcher,
    /// This rank, from 0.
    pub rank: usize,
    /// How many ranks the job has, where the launcher tells.
    pub world_size: Option<usize>,
    /// This rank among those on the same host, from 0, where the launcher tells.
    pub local_rank: Option<usize>,
    /// How many ranks the job has on this host, where the launcher tells.
    pub local_size: Option<usize>,
    /// The batch system around it all.
    pub scheduler: Option<Scheduler>,
    /// All that launchers say of ranks.
    announced: Announced,
}

impl JobEnvironment {
    /// Reads the variables of this process.
    pub fn detect() -> Result<JobEnvironment, ClusterError> {
        // A variable that is not UTF-8 is none of a launcher's.
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        JobEnvironment::from_variables(&variables.collect())
    }

    /// [`detect`](JobEnvironment::detect) from a given set of variables.
    ///
    /// ```
    /// use segue_cluster::environment::{JobEnvironment, Launcher};
    /// let variables = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")]
    ///     .map(|(name, value)| (name.to_owned(), value.to_owned()));
    /// let job = JobEnvironment::from_variables(&variables.into()).unwrap();
    /// assert_eq!((job.launcher, job.rank, job.world_size), (Launcher::OpenMpi, 3, Some(4)));
    /// ```
    pub fn from_variables(variables: &BTreeMap<String, String>) -> Result<JobEnvironment, ClusterError> {
        let variables = Variables(variables);
        let scheduler = scheduler(&variables)?;
        let announced = Announced::read(&variables)?;
        let Some((launcher, Standing { rank, world_size, .. })) = announced.mpi_launcher() else {
            announced.agree_with_one_process()?;
            return Ok(JobEnvironment {
                launcher: Launcher::Alone,
                rank: 0,
                world_size: Some(1),
                local_rank: Some(0),
                local_size: Some(1),
                scheduler,
                announced,
            });
        };
        let (local_rank, local_size) = match launcher {
            Launcher::OpenMpi => ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
            // Hydra, the launcher of MPICH and Intel MPI.
            _ if variables.text("MPI_LOCALRANKID").is_some() => ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
            // Slurm tells the size only as a list over nodes.
            _ => ("SLURM_LOCALID", ""),
        };
        Ok(JobEnvironment {
            launcher,
            rank: *rank,
            world_size: *world_size,
            local_rank: variables.number(local_rank)?,
            local_size: variables.number(local_size)?,
            scheduler,
            announced,
        })
    }

    /// Whether the ranks are to talk over MPI; where not, this process is the whole job.
    pub fn under_mpi(&self) -> bool {
        self.launcher != Launcher::Alone
    }

    /// Refuses a launcher that MPI does not agree with: in `library`, this process is rank `rank` of `world_size`.
    ///
    /// # Errors
    ///
    /// Several ranks are announced and MPI has one, so that each would train alone; or MPI has a number that nobody announces.
    pub fn agree_with_mpi(&self, rank: usize, world_size: usize, library: &str) -> Result<(), ClusterError> {
        self.announced.agree_with_mpi(rank, world_size, library)
    }
}

fn scheduler(variables: &Variables) -> Result<Option<Scheduler>, ClusterError> {
    let slurm = variables.text("SLURM_JOB_ID").or_else(|| variables.text("SLURM_JOBID"));
    match (slurm, variables.text("PBS_JOBID")) {
        (Some(slurm), Some(pbs)) => {
            Err(ClusterError::TwoSchedulers { slurm: slurm.to_owned(), pbs: pbs.to_owned() })
        }
        (Some(job_id), None) => Ok(Some(Scheduler::Slurm {
            job_id: job_id.to_owned(),
            restart_count: variables.number("SLURM_RESTART_COUNT")?.unwrap_or(0),
        })),
        (None, Some(job_id)) => Ok(Some(Scheduler::Pbs {
            job_id: job_id.to_owned(),
            node_file: variables.text("PBS_NODEFILE").map(PathBuf::from),
        })),
        (None, None) => Ok(None),
    }
}

/// The name of this host; empty where it has none.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .unwrap_or_default()
}

/// What tells this host from others: its name, which all containers of an image may share, and when it started.
pub fn host_identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {}", host_name(), boot.trim())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The job of an environment of `NAME=VALUE` words.
    pub(crate) fn job(variables: &str) -> Result<JobEnvironment, ClusterError> {
        let pair = |assignment: &str| {
            let (name, value) = assignment.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        JobEnvironment::from_variables(&variables.split_whitespace().map(pair).collect())
    }

    #[test]
    fn without_a_launcher_the_process_is_the_whole_job() {
        let alone = JobEnvironment {
            launcher: Launcher::Alone,
            rank: 0,
            world_size: Some(1),
            local_rank: Some(0),
            local_size: Some(1),
            scheduler: None,
            announced: Announced::default(),
        };
        assert!(!alone.under_mpi());
        assert_eq!(job("HOME=/root RANK=").unwrap(), alone);
        assert_eq!(job("RANK=0 WORLD_SIZE=1").unwrap().launcher, Launcher::Alone);
    }

    #[test]
    fn open_mpi_tells_ranks_and_local_ranks() {
        let job = job("OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                       OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=5 RANK=5 WORLD_SIZE=8")
        .unwrap();
        assert!(job.under_mpi());
        assert_eq!((job.launcher, job.rank, job.world_size), (Launcher::OpenMpi, 5, Some(8)));
        assert_eq!((job.local_rank, job.local_size), (Some(1), Some(4)));
    }

    #[test]
    fn the_slurm_variables_of_a_daemon_are_not_those_of_its_ranks() {
        // What rank 3 of 4 inherits on the second of two nodes, where srun started the only daemon.
        let job = job("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 \
                       SLURM_NTASKS=4 SLURM_JOB_ID=17 SLURM_RESTART_COUNT=2 PMI_RANK=0 PMI_SIZE=1")
        .unwrap();
        assert_eq!((job.rank, job.world_size), (3, Some(4)));
        assert_eq!(job.scheduler, Some(Scheduler::Slurm { job_id: "17".into(), restart_count: 2 }));
    }

    #[test]
    fn srun_with_pmix_or_pmi_is_an_mpi_launcher() {
        let pmix =
            job("PMIX_RANK=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=9").unwrap();
        assert_eq!((pmix.launcher, pmix.rank, pmix.world_size), (Launcher::Pmix, 1, Some(2)));
        assert_eq!((pmix.local_rank, pmix.local_size), (Some(0), None));
        let pmi = job("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2").unwrap();
        assert_eq!((pmi.launcher, pmi.rank, pmi.world_size), (Launcher::Pmi, 1, Some(2)));
        assert_eq!((pmi.local_rank, pmi.local_size), (Some(1), Some(2)));
    }

    #[test]
    fn a_batch_script_is_alone_in_its_job() {
        let slurm = job("SLURM_JOB_ID=17 SLURM_PROCID=0 SLURM_NTASKS=4").unwrap();
        assert_eq!(slurm.launcher, Launcher::Alone);
        assert_eq!(slurm.scheduler, Some(Scheduler::Slurm { job_id: "17".into(), restart_count: 0 }));
        let pbs = job("PBS_JOBID=8.head PBS_NODEFILE=/var/spool/aux/8.head").unwrap();
        let node_file = Some("/var/spool/aux/8.head".into());
        assert_eq!(pbs.scheduler, Some(Scheduler::Pbs { job_id: "8.head".into(), node_file }));
    }
}
