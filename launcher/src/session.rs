//! Joins this process to its job as a rank.

use std::sync::Arc;
use std::time::Duration;

use segue_cluster::JobEnvironment;
use segue_collectives::local::Local;
use segue_collectives::mpi::Mpi;
use segue_collectives::panic_hook::install_panic_hook;
use segue_collectives::{Communicator, GivingUp, deadline, print_line};

use crate::failure::{Failure, USAGE};

/// How long a rank waits for the others, where no recipe says.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// This process as a rank of its job.
pub struct Session {
    /// MPI under `mpirun` or `srun`, else a world of one.
    pub comm: Arc<dyn Communicator>,
    /// For a rank that cannot go on.
    pub giving_up: GivingUp,
}

/// Joins the job.
pub fn join() -> Result<Session, Failure> {
    let environment = JobEnvironment::detect()?;
    let comm: Arc<dyn Communicator> =
        if environment.under_mpi() { Arc::new(Mpi::initialize()?) } else { Arc::new(Local) };
    install_panic_hook(&comm);
    deadline::set(DEADLINE);
    if segue_faults::arm(comm.rank())
        .map_err(|bad| Failure::new(USAGE, format!("{}: {bad}", segue_faults::VARIABLE)))?
    {
        print_line(&format!(
            "segue: warning: {} is set: this process fails on purpose",
            segue_faults::VARIABLE
        ));
    }
    let giving_up = GivingUp::open(comm.as_ref())?;
    Ok(Session { comm, giving_up })
}
