//! What surrounds every training, whatever is trained: settings of the process, checks before the first step, lock, logs, reports.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use segue_cluster::{Preemption, host_identity};
use segue_collectives::consensus::{hosts_of_ranks, ranks_beside};
use segue_collectives::tree::meets_on_hosts;
use segue_collectives::{Communicator, deadline};
use segue_configs::{Config, RunConfig, TrainConfig, counted};
use segue_engine::{EarlyEnd, Event, Outcome};
use segue_families::missing_kernels;
use segue_family::Job;
use segue_kernels::{Compute, libtorch};

use crate::commands::check_set;
use crate::commands::place_among;
use crate::failure::Failure;
use crate::hang;
use crate::memory;
use crate::output::Output;
use crate::reporter::Reporter;
use crate::run_folder::{RunLock, lock_run, start_log};

/// Refuses a run without a folder, by its `run.dir`.
pub fn check_run_dir(dir: &Path) -> Result<(), Failure> {
    if dir.as_os_str().is_empty() {
        return check_set(&[("run.dir", true, "run.dir=FOLDER")]);
    }
    Ok(())
}

/// Why a run ended before its last step, in words. `patience`: the key of its patience; `min_delta`: how much better an evaluation had to be.
pub fn early_end(outcome: &Outcome, patience: &str, min_delta: f64) -> Option<String> {
    let why = match outcome.stopped_early? {
        EarlyEnd::Patience(count) => {
            let least = if min_delta > 0.0 { format!(" above {min_delta}") } else { String::new() };
            let best = outcome
                .best
                .map_or(String::new(), |(step, value)| format!("; the best was {value:.4} at step {step}"));
            format!("no improvement{least} in {}{best} ({patience} = {count})", counted(count, "evaluation"))
        }
        EarlyEnd::Stages => "the last stage of average.fine_tuning is over".into(),
        EarlyEnd::TimeLimit => "train.time_limit is over".into(),
    };
    Some(format!("stopped early after step {}: {why}", outcome.step))
}

/// What a run has come to: all its steps, those up to `train.stop_at`, or more than are asked for now.
pub fn end_of(step: u64, train: &TrainConfig) -> String {
    let (steps, stop_at) = (train.steps, train.stop_at);
    let stops = stop_at > 0 && stop_at < steps;
    match step {
        _ if step > steps => {
            format!("the run is at step {step}, past train.steps = {steps}: nothing was trained")
        }
        _ if stops && step == stop_at => format!(
            "stopped at train.stop_at = {stop_at} of {steps} steps; the same command without it goes on"
        ),
        _ if stops && step > stop_at && step < steps => {
            format!("the run is at step {step}, past train.stop_at = {stop_at}: nothing was trained")
        }
        _ => format!("step {step} of {steps} is done"),
    }
}

/// Where this rank computes, and beside whom.
pub struct Place {
    /// By rank, the first rank on its host.
    hosts: Vec<usize>,
    /// Ranks of this host, in their order.
    ranks: Vec<usize>,
    compute: Compute,
}

impl Place {
    /// Finds it out, and sets up what the process keeps for as long as it computes for this run. A collective call.
    pub fn find(run: &RunConfig, train: &TrainConfig, comm: &dyn Communicator) -> Result<Self, Failure> {
        // From here on ranks wait for each other, and one may wait for its data.
        hang::of_run(Path::new(&run.dir), comm.rank());
        deadline::set(Duration::from_secs(train.deadline));
        // Hosts may have copies of their own.
        let hosts = hosts_of_ranks(comm, &host_identity())?;
        let ranks = ranks_beside(&hosts, comm.rank());
        let place = place_among(&ranks, comm.rank());
        let compute = Compute::choose(train.device, place)?.allow_tf32(train.tf32);
        libtorch::start(train.threads);
        Ok(Self { hosts, ranks, compute })
    }

    /// What this rank computes on.
    pub fn compute(&self) -> Compute {
        self.compute
    }

    /// Checks that `job`, whose data are open, has room on this host and that its data are whole.
    pub fn check(&self, config: &Config, job: &dyn Job, comm: &dyn Communicator) -> Result<(), Failure> {
        // What reading the data has freed goes back.
        libtorch::keep_freed_memory();
        if self.compute == Compute::CPU {
            memory::check(&job.memory(config, comm.world_size())?, self.ranks.len())?;
        }
        if self.ranks.first() == Some(&comm.rank()) {
            job.check_data()?;
        }
        Ok(())
    }
}

/// A run folder that is this job's, ready for training.
pub struct Training<'a> {
    compute: Compute,
    hosts: Vec<usize>,
    preemption: Preemption,
    comm: &'a dyn Communicator,
    out: &'a Output,
    _lock: Option<RunLock>,
}

impl<'a> Training<'a> {
    /// What this rank computes on.
    pub fn compute(&self) -> Compute {
        self.compute
    }

    /// Checks that `job` has room on this host and that its data are whole, then takes the run's folder and starts its logs.
    pub fn begin(
        place: Place,
        config: &Config,
        job: &dyn Job,
        comm: &'a dyn Communicator,
        out: &'a Output,
    ) -> Result<Self, Failure> {
        let preemption = Preemption::install()?;
        place.check(config, job, comm)?;
        let Place { hosts, compute, .. } = place;
        let run = Path::new(&config.run.dir);
        let _lock = if comm.rank() == 0 { Some(lock_run(run)?) } else { None };
        start_log(run, comm.rank(), config.log.trace_steps > 0)?;
        Ok(Self { compute, hosts, preemption, comm, out, _lock })
    }

    /// Trains, and reports to stderr, `metrics.jsonl`, TensorBoard and logs. A collective call.
    pub fn train(&self, config: &Config, job: &dyn Job) -> Result<Outcome, Failure> {
        let mut reporter = Reporter::new(config, self.comm, self.out);
        if let Some(why) = Compute::without_card(config.train.device) {
            let what = format!("this computes on the processor: {why}");
            reporter.report(Event::Warning { what });
        }
        if let Some(what) = far_sums(&config.train, &self.hosts) {
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

/// Why sums in the order of the tree send more between hosts than they have to; `None` where they do not. `hosts`: by rank, the first rank on its host.
fn far_sums(train: &TrainConfig, hosts: &[usize]) -> Option<String> {
    (train.sums_by_tree() && !meets_on_hosts(hosts)).then(|| {
        "sums over ranks send more bytes between hosts than others would: ranks of a host do not come together in the tree of sums\nhint: number \
         ranks host by host, as mpirun does with --map-by slot, and start as many on each host, a power of two where that can be chosen"
            .into()
    })
}

/// Reports why a card goes without kernels of Segue's own, each reason once.
fn tell_missing_kernels(told: &mut BTreeSet<String>, reporter: &mut Reporter) {
    for missing in missing_kernels() {
        if told.insert(missing.why.clone()) {
            reporter.report(Event::Warning { what: missing.to_string() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_past_its_last_step_says_so() {
        let of = |step, steps, stop_at| end_of(step, &TrainConfig { steps, stop_at, ..Default::default() });
        assert_eq!(of(200, 400, 0), "step 200 of 400 is done");
        assert_eq!(of(400, 200, 0), "the run is at step 400, past train.steps = 200: nothing was trained");
        let stopped = "stopped at train.stop_at = 400 of 2000 steps; the same command without it goes on";
        assert_eq!(of(400, 2000, 400), stopped);
        let past = "the run is at step 400, past train.stop_at = 200: nothing was trained";
        assert_eq!(of(400, 2000, 200), past);
        assert_eq!(of(2000, 2000, 2000), "step 2000 of 2000 is done");
        assert_eq!(of(120, 2000, 400), "step 120 of 2000 is done");
    }

    #[test]
    fn an_early_end_is_told_with_the_best_evaluation() {
        let outcome = |why, best| Outcome {
            step: 120,
            loss: None,
            evaluation: None,
            best,
            preempted: false,
            stopped_early: Some(why),
        };
        let told = early_end(&outcome(EarlyEnd::Patience(2), Some((60, 5.8275))), "eval.patience", 5.0);
        let best = "the best was 5.8275 at step 60 (eval.patience = 2)";
        assert_eq!(
            told.unwrap(),
            format!("stopped early after step 120: no improvement above 5 in 2 evaluations; {best}")
        );
        let told = early_end(&outcome(EarlyEnd::Patience(1), None), "task.patience", 0.0).unwrap();
        assert!(told.ends_with("no improvement in 1 evaluation (task.patience = 1)"), "{told}");
    }

    #[test]
    fn ranks_that_are_far_from_their_neighbours_in_the_tree_are_told_of() {
        let config = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            segue_families::MODELS.load(None, &keys).unwrap().config
        };
        let (near, far) = ([0, 0, 2, 2], [0, 1, 0, 1]);
        let loose = ["train.exact=false"];
        let short = ["train.exact=false", "train.reduce_precision=bf16"];
        let divided = ["train.exact=false", "train.shard=gradients"];
        for (keys, hosts, told) in [
            (&[][..], near, false),
            (&[], far, true),
            (&loose, far, false),
            (&short, far, true),
            (&divided, far, true),
        ] {
            assert_eq!(far_sums(&config(keys).train, &hosts).is_some(), told, "{keys:?} {hosts:?}");
        }
    }
}
