//! Joins this process to its job as a rank.

use std::sync::Arc;
use std::time::Duration;

use segue_cluster::JobEnvironment;
use segue_cluster::launch::pulse::Pulse;
use segue_collectives::local::Local;
use segue_collectives::mpi::{self, Mpi};
use segue_collectives::panic_hook::install_panic_hook;
use segue_collectives::{Communicator, GivingUp, deadline};

use crate::failure::Failure;
use crate::pulse;

/// How long a rank waits for the others, where no recipe says.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// This process as a rank of its job.
pub struct Session {
    /// MPI under `mpirun` or `srun`, else a world of one.
    pub comm: Arc<dyn Communicator>,
    /// For a rank that cannot go on.
    pub giving_up: GivingUp,
    /// What tells its supervisor how far it is, where it has one.
    pub pulse: Option<Pulse>,
    environment: JobEnvironment,
}

impl Session {
    /// Refuses ranks that a launcher has announced and MPI does not have.
    pub fn check_launcher(&self) -> Result<(), Failure> {
        if !self.environment.under_mpi() {
            return Ok(());
        }
        let (rank, world_size) = (self.comm.rank(), self.comm.world_size());
        Ok(self.environment.agree_with_mpi(rank, world_size, &mpi::library())?)
    }

    /// Tells the supervisor, where there is one, that this process ends by itself with this exit code.
    pub fn leave(&self, code: u8) {
        if let Some(pulse) = &self.pulse {
            pulse.leave(code);
        }
    }
}

/// Joins the job.
pub fn join() -> Result<Session, Failure> {
    let environment = JobEnvironment::detect()?;
    let comm: Arc<dyn Communicator> =
        if environment.under_mpi() { Arc::new(Mpi::initialize()?) } else { Arc::new(Local) };
    install_panic_hook(&comm);
    deadline::set(DEADLINE);
    let giving_up = GivingUp::open(comm.as_ref())?;
    let pulse = pulse::start(comm.rank())?;
    Ok(Session { comm, giving_up, pulse, environment })
}
