//! Starting a job, watching it, and starting it again: a supervisor around `mpirun` or `srun`.
//!
//! [`hosts`] says where ranks may run, [`command`] how they are started. [`attempt`] runs them once, within limits and to an [`outcome`]; [`hearing`] is what it learns of them
//! meanwhile, by their [`pulse`] and by what they print, and [`watched`] what that means
//! and [`progress`] how they get on. [`policy`] says
//! what follows from how that ended, [`trials`] where it goes on, and [`supervisor`] does it.

pub mod attempt;
pub mod command;
pub mod hearing;
pub mod hosts;
pub mod names;
pub mod outcome;
pub mod policy;
pub mod progress;
pub mod pulse;
mod slurm;
mod source;
pub mod supervisor;
pub mod trials;
pub mod watched;
