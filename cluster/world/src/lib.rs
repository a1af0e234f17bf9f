//! Threads, channels and time of a rank: those of the system, or of a simulation.
//!
//! What a rank does besides computing goes through here: it starts threads ([`spawn`]), lets them talk ([`channel`]), looks at the clock
//! ([`now`]). Outside of a simulation these are the functions of the standard library, and cost what those cost.
//!
//! A test gives a thread a [`Simulation`] ([`enter`]); threads that it starts belong to it too. The simulation says which thread runs,
//! one at a time, what time it is, and when a process ends. So a whole job is a function of the simulation's seed: one seed is one history
//! (as FoundationDB and TigerBeetle are tested; Zhou et al. 2021, "FoundationDB: A Distributed Unbundled Transactional Key Value Store",
//! section 4).

mod channel;
mod flushing;
mod simulation;
mod thread;

pub use channel::{BoundedSender, Receiver, Sender, bounded, channel};
pub use flushing::{flush, flushing};
pub use simulation::{Killed, Refusal, Resource, Simulation, Thread, enter, is_killed, point, synced};
pub use thread::{JoinHandle, now, sleep, spawn};
