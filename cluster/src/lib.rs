//! Starting and watching jobs.
//!
//! [`environment`] tells how this process was started: by which launcher, as which rank, under which
//! scheduler. [`signals`] turns the signals by which a scheduler announces the end into a flag that the
//! training loop asks for. [`pool`] runs many commands, some at a time. [`launch`] starts a job on hosts, watches it and starts it again;
//! [`batch`] writes scripts that do so in a batch system.

mod announced;
pub mod batch;
pub mod environment;
mod error;
pub mod exit_code;
pub mod launch;
pub mod pool;
mod quoting;
pub mod signals;
pub mod stacks;
mod variables;

pub use environment::{JobEnvironment, host_identity, host_name};
pub use error::ClusterError;
pub use signals::Preemption;
