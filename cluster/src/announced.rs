//! What launchers say of ranks in environment variables, believed only as far as MPI agrees.
//!
//! An MPI library knows the launchers that it was built for. Started by another one, each process is rank 0 of 1 to it, whatever the variables
//! announce: such a job would train as often as it has processes, each in the way of the others.
//!
//! Inside a Slurm step `mpirun` starts one daemon a node, and the ranks inherit the daemon's `SLURM_PROCID` and PMI variables. So does MPICH's
//! `mpiexec`. So where the launcher's own variables are there and MPI agrees with them, those of the step do not count.

use crate::ClusterError;
use crate::error::WITHOUT_TORCH;
use crate::variables::{Launcher, Variables};

/// MPI launchers by the variables that they set, a rank and the number of ranks: Open MPI's `mpirun`; PMI, which MPICH's and Intel MPI's
/// `mpiexec`, PALS, Flux and `srun --mpi=pmi2` speak; `mpirun_rsh` of MVAPICH 2 and 3; `jsrun`.
const MPI: [(Launcher, [&str; 2]); 5] = [
    (Launcher::OpenMpi, ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"]),
    (Launcher::Pmi, ["PMI_RANK", "PMI_SIZE"]),
    (Launcher::Mvapich, ["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"]),
    (Launcher::Mvapich, ["MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"]),
    (Launcher::Jsrun, ["JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"]),
];
/// Launchers of processes that MPI need not know of: Flux without PMI, Horovod's, and the ranks of one host that hydra (MPICH, Intel MPI) and PALS
/// tell.
const OTHERS: [[&str; 2]; 4] =
    [FLUX, ["HOROVOD_RANK", "HOROVOD_SIZE"], HYDRA_ON_HOST, ["PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"]];
const FLUX: [&str; 2] = ["FLUX_TASK_RANK", "FLUX_JOB_SIZE"];
const HYDRA_ON_HOST: [&str; 2] = ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"];
/// PyTorch's launchers and many job templates.
const TORCH: [&str; 2] = ["RANK", "WORLD_SIZE"];
/// Ranks without their number: PALS, ALPS, and a Slurm that does not tell the tasks of a step.
const RANKS: [&str; 3] = ["PALS_RANKID", "ALPS_APP_PE", SLURM_RANK];
const SLURM_RANK: &str = "SLURM_PROCID";
/// A batch script has `SLURM_PROCID=0` and the `SLURM_NTASKS` of its whole job, and an interactive shell too, but only `srun` sets this.
const SLURM_SIZE: &str = "SLURM_STEP_NUM_TASKS";

const WITHOUT_MPI: &str = "start the job with mpirun";
const WITH_PMIX: &str = "start the job with mpirun, or with srun --mpi=pmix";

/// A rank and, where there is one, the number of ranks, with the names of the variables that hold them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) rank: usize,
    pub(crate) world_size: Option<usize>,
    variables: [&'static str; 2],
}

impl Standing {
    /// `None` where neither variable is set.
    fn read(variables: &Variables, names: [&'static str; 2]) -> Result<Option<Self>, ClusterError> {
        let [rank_name, size_name] = names;
        match (variables.number(rank_name)?, variables.number(size_name)?) {
            (None, None) => Ok(None),
            (Some(rank), None) => {
                Err(ClusterError::Incomplete { set: rank_name, value: rank, rank, missing: size_name })
            }
            (None, Some(value)) => {
                Err(ClusterError::Incomplete { set: size_name, value, rank: 0, missing: rank_name })
            }
            (Some(rank), Some(world_size)) if rank < world_size => {
                Ok(Some(Self { rank, world_size: Some(world_size), variables: names }))
            }
            (Some(rank), Some(world_size)) => Err(ClusterError::Contradiction {
                first: vec![(rank_name, rank)],
                second: vec![(size_name, world_size)],
            }),
        }
    }

    fn assignments(&self) -> Vec<(&'static str, usize)> {
        let size = self.world_size.map(|size| (self.variables[1], size));
        [(self.variables[0], self.rank)].into_iter().chain(size).collect()
    }

    fn place(&self) -> (usize, Option<usize>) {
        (self.rank, self.world_size)
    }

    /// Whether it can be rank `rank` of `world_size`.
    fn may_be(&self, rank: usize, world_size: usize) -> bool {
        self.rank == rank && self.world_size.is_none_or(|told| told == world_size)
    }

    /// Whether there are other ranks, as far as it tells.
    fn is_of_several(&self) -> bool {
        self.rank > 0 || self.world_size.is_some_and(|size| size > 1)
    }

    fn agree(&self, other: &Standing) -> Result<(), ClusterError> {
        if self.place() == other.place() {
            return Ok(());
        }
        Err(ClusterError::Contradiction { first: self.assignments(), second: other.assignments() })
    }
}

/// All that launchers say of the ranks of this process's job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    /// MPI launchers; what the first says stands until MPI is asked.
    mpi: Vec<(Launcher, Standing)>,
    /// The step of Slurm.
    step: Option<Standing>,
    /// What hydra says of this host.
    hydra: bool,
    /// Several ranks of whom MPI need not know, with what to do about it.
    others: Vec<(Vec<(&'static str, usize)>, &'static str)>,
}

impl Announced {
    /// # Errors
    ///
    /// Half of a pair, what is not a number, two that cannot both be true.
    pub(crate) fn read(variables: &Variables) -> Result<Self, ClusterError> {
        let mut mpi = Vec::new();
        for (launcher, names) in MPI {
            mpi.extend(Standing::read(variables, names)?.map(|standing| (launcher, standing)));
        }
        let step = match variables.number(SLURM_SIZE)? {
            Some(_) => Standing::read(variables, [SLURM_RANK, SLURM_SIZE])?,
            None => None,
        };
        let mut others = Vec::new();
        for (names, advice) in
            OTHERS.map(|names| (names, WITHOUT_MPI)).into_iter().chain([(TORCH, WITHOUT_TORCH)])
        {
            let standing = Standing::read(variables, names)?.filter(Standing::is_of_several);
            others.extend(standing.map(|standing| (standing.assignments(), advice)));
        }
        for name in RANKS {
            let rank =
                variables.number(name)?.filter(|rank| *rank > 0 && (name != SLURM_RANK || step.is_none()));
            others.extend(rank.map(|rank| (vec![(name, rank)], WITHOUT_MPI)));
        }
        let hydra = variables.number(HYDRA_ON_HOST[0])?.is_some();
        let mut announced = Self { mpi, step, hydra, others };
        announced.take_pmix(variables)?;
        if let (Some((_, standing)), Some(torch)) = (announced.mpi.first(), Standing::read(variables, TORCH)?)
        {
            standing.agree(&torch)?;
        }
        Ok(announced)
    }

    /// PMIx gives the number of ranks to the MPI library alone. The variables have it from the launcher that speaks it; where that tells none,
    /// as `prun` does, MPI is asked.
    fn take_pmix(&mut self, variables: &Variables) -> Result<(), ClusterError> {
        let Some(rank) = variables.number("PMIX_RANK")? else { return Ok(()) };
        let of_launcher = self.mpi.first().map(|(_, standing)| standing);
        let is_own = matches!(self.mpi.first(), Some((Launcher::OpenMpi | Launcher::Jsrun, _)));
        let flux = Standing::read(variables, FLUX)?;
        let whole = of_launcher.filter(|_| is_own).or(self.step.as_ref()).or(of_launcher).or(flux.as_ref());
        let alone = Standing { rank, world_size: None, variables: ["PMIX_RANK", ""] };
        let whole = whole.unwrap_or(&alone);
        if whole.rank != rank {
            let (first, second) = (whole.assignments(), vec![("PMIX_RANK", rank)]);
            return Err(ClusterError::Contradiction { first, second });
        }
        let variables = ["PMIX_RANK", whole.variables[1]];
        let standing = Standing { variables, ..whole.clone() };
        if !is_own {
            self.mpi.insert(0, (Launcher::Pmix, standing));
        }
        Ok(())
    }

    /// The MPI launcher that started this process, and what it says.
    pub(crate) fn mpi_launcher(&self) -> Option<(Launcher, &Standing)> {
        self.mpi.first().map(|(launcher, standing)| (*launcher, standing))
    }

    /// Refuses to call a process alone that was started as one of several, without MPI.
    pub(crate) fn agree_with_one_process(&self) -> Result<(), ClusterError> {
        let step = self.step.iter().filter(|step| step.is_of_several());
        let all = step.map(|step| (step.assignments(), WITH_PMIX)).chain(self.others.iter().cloned());
        all.map(|(found, advice)| Err(ClusterError::NoMpi { found, advice })).next().unwrap_or(Ok(()))
    }

    /// Refuses what MPI does not agree with, in whose `library` this process is rank `rank` of `world_size`.
    pub(crate) fn agree_with_mpi(
        &self,
        rank: usize,
        world_size: usize,
        library: &str,
    ) -> Result<(), ClusterError> {
        let refused = |found| ClusterError::MpiDisagrees { found, rank, world_size, library: library.into() };
        let own = self.mpi.iter().find(|(_, standing)| standing.may_be(rank, world_size));
        if world_size > 1 {
            let first = self.mpi.first().filter(|_| own.is_none());
            return first.map_or(Ok(()), |(_, standing)| Err(refused(standing.assignments())));
        }
        // Launchers whose daemons Slurm starts, and what those inherit.
        let is_inherited = match own {
            Some((Launcher::OpenMpi, _)) => true,
            Some((Launcher::Pmi, _)) => self.hydra,
            _ => false,
        };
        let step = self.step.as_ref();
        let of_step = |standing: &Standing| step.is_some_and(|step| step.place() == standing.place());
        let all = self.mpi.iter().map(|(_, standing)| standing).chain(step);
        let several = all.filter(|standing| standing.is_of_several() && !(is_inherited && of_step(standing)));
        let found =
            several.map(Standing::assignments).chain(self.others.iter().map(|(found, _)| found.clone()));
        found.map(|found| Err(refused(found))).next().unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::job;

    /// Checks the environment `variables` in a process that is rank `rank` of `world_size` to MPI.
    fn told(variables: &str, rank: usize, world_size: usize) -> Result<(), String> {
        let refused = |error: ClusterError| {
            assert_eq!(error.exit_code(), 78);
            format!("{error}\n{}", error.hint().unwrap_or_default())
        };
        let job = job(variables).map_err(refused)?;
        match job.under_mpi() {
            true => job.agree_with_mpi(rank, world_size, "Open MPI v4").map_err(refused),
            false => Ok(()),
        }
    }

    fn refusal(variables: &str) -> String {
        told(variables, 0, 1).expect_err(variables)
    }

    #[test]
    fn several_ranks_of_any_launcher_are_refused_where_mpi_has_one() {
        for found in [
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
            "PMI_RANK=0 PMI_SIZE=2",
            "PMI_RANK=1 PMI_SIZE=2",
            "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2",
            "MVP_COMM_WORLD_RANK=1 MVP_COMM_WORLD_SIZE=2",
            "JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=2",
            "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2",
            "HOROVOD_RANK=0 HOROVOD_SIZE=2",
            "MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
            "PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2",
            "PALS_RANKID=1",
            "ALPS_APP_PE=1",
            "SLURM_PROCID=1",
            "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4",
            "RANK=0 WORLD_SIZE=2",
        ] {
            let message = refusal(found);
            assert!(message.contains(found) && message.contains("would train alone"), "{message}");
            // Beside one that announces a single rank, as an interactive shell inherits it.
            let message = refusal(&format!("PMI_RANK=0 PMI_SIZE=1 {found}"));
            assert!(
                message.contains("=1 but RANK") || message.contains(found) || found.starts_with("PMI_"),
                "{message}"
            );
        }
        let message = refusal("PMIX_RANK=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2");
        assert!(message.contains("PMIX_RANK=1 SLURM_STEP_NUM_TASKS=2"), "{message}");
        let message = refusal("PMIX_RANK=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 PMI_RANK=1 PMI_SIZE=2");
        assert!(message.contains("PMI_RANK=1 PMI_SIZE=2"), "{message}");
    }

    #[test]
    fn another_number_of_ranks_than_mpi_has_is_refused() {
        let four = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4";
        assert_eq!(told(four, 1, 4), Ok(()));
        for (rank, world_size) in [(1, 2), (0, 4), (1, 8)] {
            let message = told(four, rank, world_size).unwrap_err();
            assert!(message.contains(four), "{message}");
            assert!(message.contains(&format!("rank {rank} of {world_size}")), "{message}");
            assert!(message.contains("Open MPI v4"), "{message}");
        }
    }

    #[test]
    fn what_a_slurm_step_says_of_daemons_is_nothing_to_their_ranks() {
        let step = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=8 SLURM_JOB_ID=17";
        for (own, rank, world_size) in [
            ("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 PMI_RANK=1 PMI_SIZE=2", 3, 8),
            ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMI_RANK=1 PMI_SIZE=2", 0, 1),
            ("PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", 0, 1),
            ("PMI_RANK=3 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4", 3, 8),
        ] {
            assert_eq!(told(&format!("{own} {step}"), rank, world_size), Ok(()), "{own}");
        }
        // A shell with PMI's variables of a step of its own, in which srun starts another step without them.
        assert!(refusal(&format!("PMI_RANK=0 PMI_SIZE=1 {step}")).contains("SLURM_STEP_NUM_TASKS=2"));
        // MPICH's mpiexec in a shell that PMIx was told to.
        let shell = "PMIX_RANK=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 PMI_RANK=1 PMI_SIZE=2";
        assert_eq!(told(shell, 1, 2), Ok(()));
    }

    /// PMIx exports a rank alone; Flux its own variables besides.
    #[test]
    fn where_pmix_tells_no_number_of_ranks_mpi_does() {
        for variables in ["PMIX_RANK=1", "PMIX_RANK=1 FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2"] {
            let found = job(variables).unwrap();
            assert_eq!((found.launcher, found.rank), (crate::environment::Launcher::Pmix, 1));
            assert_eq!(told(variables, 1, 2), Ok(()), "{variables}");
            let message = told(variables, 0, 1).unwrap_err();
            assert!(message.starts_with("PMIX_RANK=1") && message.contains("would train alone"), "{message}");
            assert!(told(variables, 0, 2).unwrap_err().contains("MPI has rank 0 of 2"), "{variables}");
        }
        for one in ["PMIX_RANK=0", "PMIX_RANK=0 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1"] {
            assert_eq!(told(one, 0, 1), Ok(()), "{one}");
        }
        assert_eq!(told("PMIX_RANK=0", 0, 2), Ok(()));
        assert!(refusal("PMIX_RANK=0 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2").contains("FLUX_JOB_SIZE=2"));
        let message = refusal("PMIX_RANK=1 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2");
        assert!(message.contains("FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2 but PMIX_RANK=1"), "{message}");
        assert!(refusal("PMIX_RANK=0 FLUX_JOB_SIZE=2").contains("FLUX_TASK_RANK is not"));
    }

    /// In the script of a job every process would follow it, and train alone.
    #[test]
    fn nobody_above_rank_0_is_told_to_unset_anything() {
        for variables in [
            "PMIX_RANK=1",
            "PMI_RANK=1",
            "PMI_RANK=1 PMI_SIZE=2",
            "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2",
            "PALS_RANKID=1",
            "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2",
            "RANK=1 WORLD_SIZE=2",
            "OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4",
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=1 WORLD_SIZE=4",
            "PMI_RANK=one PMI_SIZE=2",
        ] {
            let message = refusal(variables);
            assert!(!message.contains("unset"), "{variables}: {message}");
        }
        for variables in ["PMI_RANK=0", "WORLD_SIZE=2", "PMI_RANK=0 PMI_SIZE=2"] {
            let message = refusal(variables);
            assert!(message.contains("only for a job of one process"), "{variables}: {message}");
        }
        // torchrun shows what each of its ranks says.
        for variables in ["RANK=0 WORLD_SIZE=2", "RANK=1 WORLD_SIZE=2"] {
            let message = refusal(variables);
            assert!(message.ends_with(WITHOUT_TORCH), "{variables}: {message}");
        }
    }

    #[test]
    fn a_process_in_an_allocation_of_many_tasks_is_alone() {
        for variables in [
            // A batch script, a shell of salloc on the host of the user, and one in a step of its own.
            "SLURM_JOB_ID=17 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_TASKS_PER_NODE=2(x2) SLURM_PROCID=0 SLURM_LOCALID=0",
            "SLURM_JOB_ID=17 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_NNODES=2 SLURM_TASKS_PER_NODE=2(x2)",
            "SLURM_JOB_ID=17 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=4294967290",
            "PBS_JOBID=8.head PBS_NP=4 NCPUS=4",
            "LSB_JOBID=8 LSB_DJOB_NUMPROC=4",
            "FLUX_JOB_ID=f1",
        ] {
            let job = job(variables).unwrap();
            assert!(!job.under_mpi(), "{variables}");
        }
        let shell = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=4 PMI_RANK=0 PMI_SIZE=1";
        assert_eq!(told(shell, 0, 1), Ok(()));
    }

    #[test]
    fn several_ranks_without_mpi_are_refused() {
        let message = refusal("SLURM_JOB_ID=17 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4");
        assert!(message.contains("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4"), "{message}");
        assert!(message.contains("srun --mpi=pmix"), "{message}");
        let message = refusal("RANK=0 WORLD_SIZE=2");
        assert!(message.contains("RANK=0 WORLD_SIZE=2") && message.contains("mpirun"), "{message}");
    }

    #[test]
    fn contradictions_name_the_variables_and_their_values() {
        let message = refusal("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 RANK=1 WORLD_SIZE=2");
        let both = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 but RANK=1 WORLD_SIZE=2";
        assert!(message.contains(both), "{message}");
        let message = refusal("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=0");
        assert!(message.contains("OMPI_COMM_WORLD_SIZE=4 but PMIX_RANK=0"), "{message}");
        let message = refusal("OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4");
        assert!(message.contains("OMPI_COMM_WORLD_RANK=4 but OMPI_COMM_WORLD_SIZE=4"), "{message}");
        let message = refusal("PMIX_RANK=1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2");
        assert!(message.contains("PMIX_RANK=1") && message.contains("SLURM_PROCID=0"), "{message}");
        let message = refusal("SLURM_JOB_ID=1 PBS_JOBID=2.head");
        assert!(message.contains("SLURM_JOB_ID=1 and PBS_JOBID=2.head"), "{message}");
    }

    #[test]
    fn half_a_set_and_garbage_are_refused() {
        let message = refusal("OMPI_COMM_WORLD_RANK=1");
        assert!(
            message.contains("OMPI_COMM_WORLD_RANK=1 is set but OMPI_COMM_WORLD_SIZE is not"),
            "{message}"
        );
        let message = refusal("WORLD_SIZE=2");
        assert!(message.contains("WORLD_SIZE=2 is set but RANK is not"), "{message}");
        let message = refusal("PMI_RANK=-1 PMI_SIZE=2");
        assert!(message.contains("PMI_RANK=\"-1\" is not a number from 0"), "{message}");
    }
}
