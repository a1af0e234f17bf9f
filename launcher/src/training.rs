//! What surrounds every training, whatever is trained: settings of the process, checks before the first step, lock, logs, reports.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use segue_cluster::{Preemption, host_identity};
use segue_collectives::consensus::ranks_of_host;
use segue_collectives::{Communicator, deadline};
use segue_configs::{Config, DeviceKind};
use segue_trainer::engine::{Event, Outcome};
use segue_trainer::families::Job;
use segue_trainer::{Compute, libtorch, missing_kernels};

use crate::commands::place_among;
use crate::failure::{BAD_CONFIG, Failure};
use crate::hang;
use crate::memory;
use crate::output::Output;
use crate::reporter::Reporter;
use crate::run_folder::{lock, start_log};

/// Refuses a run without a folder.
pub fn check_run_dir(config: &Config) -> Result<(), Failure> {
    if config.run.dir.is_empty() {
        let message = "run.dir is not set\nhint: add run.dir=FOLDER to the command or the recipe";
        return Err(Failure::new(BAD_CONFIG, message));
    }
    Ok(())
}

/// Where this rank computes, and beside whom.
pub struct Place {
    /// Ranks of this host, in their order.
    ranks: Vec<usize>,
    compute: Compute,
}

impl Place {
    /// Finds it out, and sets up what the process keeps for as long as it computes by `config`. A collective call.
    pub fn find(config: &Config, device: DeviceKind, comm: &dyn Communicator) -> Result<Self, Failure> {
        // From here on ranks wait for each other, and one may wait for its data.
        hang::of_run(Path::new(&config.run.dir), comm.rank());
        deadline::set(Duration::from_secs(config.train.deadline));
        // Hosts may have copies of their own.
        let ranks = ranks_of_host(comm, &host_identity())?;
        let place = place_among(&ranks, comm.rank());
        let compute = Compute::choose(device, place)?.allow_tf32(config.train.tf32);
        libtorch::set_threads(config.train.threads);
        Ok(Self { ranks, compute })
    }
}

/// A run folder that is this job's, ready for training.
pub struct Training<'a> {
    compute: Compute,
    preemption: Preemption,
    comm: &'a dyn Communicator,
    out: &'a Output,
    _lock: Option<File>,
}

impl<'a> Training<'a> {
    /// Checks that `job` has room on this host and that its data are whole, then takes the run's folder and starts its logs.
    pub fn begin(
        place: Place,
        config: &Config,
        job: &dyn Job,
        comm: &'a dyn Communicator,
        out: &'a Output,
    ) -> Result<Self, Failure> {
        let Place { ranks, compute } = place;
        // All data are open: what reading them has freed goes back.
        libtorch::keep_freed_memory();
        let preemption = Preemption::install()?;
        if compute == Compute::CPU {
            memory::check(&job.memory(config, comm.world_size())?, ranks.len())?;
        }
        if ranks.first() == Some(&comm.rank()) {
            job.check_data()?;
        }
        let run = Path::new(&config.run.dir);
        let _lock = if comm.rank() == 0 { Some(lock(run)?) } else { None };
        start_log(run, comm.rank(), config.log.trace_steps > 0)?;
        Ok(Self { compute, preemption, comm, out, _lock })
    }

    /// Trains, and reports to stderr, `metrics.jsonl`, TensorBoard and logs. A collective call.
    pub fn train(&self, config: &Config, job: &dyn Job) -> Result<Outcome, Failure> {
        let mut reporter = Reporter::new(config, self.comm, self.out);
        if let Some(why) = Compute::without_card(config.train.device) {
            let what = format!("this computes on the processor: {why}");
            reporter.report(Event::Warning { what });
        }
        let mut told = BTreeSet::new();
        let stop = || self.preemption.requested();
        let outcome = job.train(config, self.compute, self.comm, &stop, &mut |event| {
            reporter.report(event);
            tell_missing_kernels(&mut told, &mut reporter);
        });
        let problem = reporter.finish(outcome.as_ref().ok());
        let outcome = outcome.map_err(Failure::of_run)?;
        problem.map_or(Ok(outcome), Err)
    }
}

/// Reports why a card goes without kernels of Segue's own, each reason once.
fn tell_missing_kernels(told: &mut BTreeSet<String>, reporter: &mut Reporter) {
    for missing in missing_kernels() {
        if told.insert(missing.why.clone()) {
            reporter.report(Event::Warning { what: missing.to_string() });
        }
    }
}
