//! Joins this process to its job as a rank.

use std::sync::Arc;

use segue_cluster::JobEnvironment;
use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::mpi::Mpi;
use segue_collectives::panic_hook::install_panic_hook;

use crate::failure::Failure;

/// The communicator of this job: MPI under `mpirun` or `srun`, else a world of one.
pub fn join() -> Result<Arc<dyn Communicator>, Failure> {
    let environment = JobEnvironment::detect()?;
    let comm: Arc<dyn Communicator> =
        if environment.under_mpi() { Arc::new(Mpi::initialize()?) } else { Arc::new(Local) };
    install_panic_hook(&comm);
    Ok(comm)
}
