//! Collective communication between the ranks of a job.
//!
//! [`Communicator`] is the one trait the engine speaks to. Behind it stand
//!
//! - [`local`]: a world of one, for a run without a launcher;
//! - [`mpi`]: a job started by `mpirun` or `srun`, one process per rank;
//! - [`simulated`]: any number of ranks as threads of one process, for tests.
//!
//! What lies on cards goes through [`nccl`], which uses one of these three to hand out its id.
//!
//! On top of the trait, for every implementation alike: [`tree`] sums over ranks in one fixed order, on hosts and on cards by the same routine,
//! which is what makes a run's bits independent of the number of ranks; [`consensus`] lets all ranks
//! take the same decision at the same step; [`GivingUp`] tells a rank that fails whether all do; [`panic_hook`] ends the
//! whole job when one rank panics, [`deadline`] when one waits too long for another that is not [`busy`], and [`calls`] tells what it was in; [`bench`](mod@bench) times an all-reduce, [`Slowed`] over a link of
//! another speed; [`Watched`] tells what was said.
//!
//! ```
//! use segue_collectives::{simulated, tree::{tree_all_reduce, Wire}, Communicator};
//!
//! let totals: Vec<Vec<f32>> = simulated::run(3, |comm| {
//!     let mut values = vec![comm.rank() as f32; 4];
//!     tree_all_reduce(comm, &mut values, &mut Vec::new(), Wire::F32).unwrap();
//!     values
//! });
//! assert!(totals.iter().all(|values| *values == [3.0; 4]));
//! ```

pub mod bench;
pub mod busy;
pub mod calls;
mod communicator;
pub mod consensus;
pub mod deadline;
mod error;
pub mod exit_code;
mod giving_up;
pub mod local;
pub mod mpi;
pub mod nccl;
pub mod panic_hook;
pub mod simulated;
mod slowed;
mod stderr;
pub mod tree;
mod watched;

pub use communicator::Communicator;
pub use error::CollectiveError;
pub use giving_up::GivingUp;
pub use slowed::Slowed;
pub use stderr::{print_line, printable, printable_name};
pub use watched::Watched;
