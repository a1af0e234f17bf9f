//! The loop over steps: a run from its first step, or from its last checkpoint, to its end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segue_collectives::busy::first_works;
use segue_collectives::consensus::{any_rank, any_rank_of};
use segue_collectives::{Communicator, deadline};
use segue_configs::{CheckpointConfig, Config, RunConfig};
use segue_dataloader::Prefetcher;
use segue_faults as faults;
use segue_kernels::{Parameters, TrainError};
use serde_json::Value;
use tracing::trace_span;

use super::agreement::check_agreement;
use super::cursors::{gather_cursors, own_cursors, to_json};
use super::event::{EarlyEnd, Event, Outcome, Started};
use super::family::{Begun, Family, FamilyBatch, Place};
use super::identity::{dropped, other_start};
use super::keeper::Keeper;
use super::kept::reconcile;
use super::learner::Learner;
use super::preparation::prepare;
use super::publication::Publication;
use super::replicas::check_replicas;
use super::search::newest_checkpoint;
use super::snapshot::{model_folder, replicated, restore, snapshot};
use super::staging::Staging;
use super::state::TrainState;
use super::step::{Engine, StepReport};
use super::sums::without_effect;
use crate::checkpoint::{self, CHECKPOINTS, Stay, find_and_set_aside, tidy_up};

/// Trains as `config` says: resumes from the newest whole checkpoint of the run folder, and always leaves a checkpoint
/// of its last step. `stop` is asked at every step; where any rank says yes, all stop with a checkpoint. A run without a folder (an empty
/// `run.dir`) reads and writes none, and keeps no best model: it has nothing to go back to. A collective call.
pub fn train<F: Family>(
    config: &Config,
    family: F,
    learner: F::Learner,
    comm: &dyn Communicator,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Outcome, TrainError> {
    let mut run = Run::open(config, family, learner, comm, on_event)?;
    let last = match config.train.stop_at {
        0 => config.train.steps,
        stop_at => stop_at.min(config.train.steps),
    };
    run.begin_guard(on_event)?;
    let in_time = |over: bool| over.then_some(EarlyEnd::TimeLimit);
    let mut preempted = false;
    let mut stopped_early = run.out_of_patience().or(in_time(run.over_and_evaluated()));
    if run.evaluation_due() && stopped_early.is_none() {
        // The run ended before it was made.
        preempted = run.evaluate(stop, on_event)?;
        stopped_early = run.out_of_patience().or(in_time(run.over && !preempted));
        if stopped_early.is_some() || run.state.step >= last && !preempted {
            // No step follows that would leave one.
            run.checkpoint(on_event)?;
        }
    }
    while run.state.step < last && !preempted && stopped_early.is_none() {
        let step = run.step(on_event)?;
        let every = |n: u64| n > 0 && step.is_multiple_of(n);
        if every(config.train.check_replicas_every) {
            run.engine.settle()?;
            check_replicas(step, || replicated(&run.engine), comm)?;
        }
        let wanted = comm.rank() == 0 && run.keeper.wants_one(&config.checkpoint);
        let over = comm.rank() == 0 && run.out_of_time();
        let [stopping, wanted, over] = any_rank_of(comm, [stop(), wanted, over])?;
        run.over |= over;
        preempted = stopping && step < last;
        let due = step == last || wanted || run.over || every(config.checkpoint.every);
        if (due || preempted || run.evaluation_due()) && run.mend(on_event)? {
            continue;
        }
        if run.evaluation_due() && !preempted {
            if due {
                // An evaluation may take long: whoever is killed in it has lost nothing.
                run.checkpoint(on_event)?;
            }
            preempted = run.evaluate(stop, on_event)?;
            stopped_early = run.out_of_patience();
        }
        stopped_early = stopped_early.or(in_time(run.over && !preempted));
        // Once more after an evaluation: a checkpoint knows that its step has been evaluated, and what that brought.
        if due || preempted || stopped_early.is_some() {
            run.checkpoint(on_event)?;
        }
    }
    let ended = (run.state.step == config.train.steps || run.over) && !preempted;
    if ended && run.evaluation.is_none() && run.family.keeps_best().is_none() {
        // Started again after its end: nothing is left to train, the result is still of interest.
        preempted = run.evaluate(stop, on_event)?;
    }
    if run.state.unmeasured && !preempted {
        return run.end_with(
            TrainError::Unmeasured { step: run.state.evaluated, over: ended || stopped_early.is_some() },
            on_event,
        );
    }
    run.finish(on_event)?;
    let best = run.state.task.kept().map(|best| (best.step, best.value));
    Ok(Outcome {
        step: run.state.step,
        loss: run.loss,
        evaluation: run.evaluation,
        best,
        preempted,
        stopped_early: stopped_early.filter(|_| run.state.step < config.train.steps),
    })
}

/// Batches of one source, built ahead of time.
type Source<F> = Option<Prefetcher<FamilyBatch<F>>>;

/// How a run goes on after a step that made no update.
pub(super) enum Recovery {
    /// The step is left out.
    LeftOut,
    /// The run stands where an earlier checkpoint does.
    WentBack,
}

/// A run that goes on.
pub(super) struct Run<'a, F: Family> {
    pub(super) config: &'a Config,
    pub(super) comm: &'a dyn Communicator,
    pub(super) engine: Engine<'a, F::Learner>,
    pub(super) family: F,
    pub(super) state: TrainState,
    /// Where this rank's lanes stand.
    pub(super) cursors: Vec<F::Cursor>,
    /// By number; a source is opened with the first step that wants it.
    pub(super) sources: Vec<Source<F>>,
    pub(super) keeper: Keeper,
    staging: Staging,
    stall: Duration,
    /// Whether the time of the run is over, on all ranks alike.
    pub(super) over: bool,
    loss: Option<f64>,
    /// The row of its last evaluation.
    pub(super) evaluation: Option<Value>,
}

impl<'a, F: Family> Run<'a, F> {
    fn open(
        config: &'a Config,
        family: F,
        learner: F::Learner,
        comm: &'a dyn Communicator,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Self, TrainError> {
        if config.average.needs_evaluations() && !family.evaluates() {
            let what = "[average] decides by evaluations, and there is nothing to evaluate on\nhint: add a validation set, \
                        or choose an average that needs none, such as average.kind=exponential";
            return Err(TrainError::Layout(what.into()));
        }
        let patient = family.keeps_best().is_some_and(|kept| kept.patience > 0) || config.eval.patience > 0;
        if (config.checkpoint.best || patient) && (family.keeps_best().is_none() || !family.evaluates()) {
            let what = "checkpoint.best and patience (eval.patience, task.patience) choose by evaluations, and there is nothing to evaluate \
                        on\nhint: add a validation set, or leave them out";
            return Err(TrainError::Layout(what.into()));
        }
        let parameters = learner.networks().iter().map(|(_, parameters)| parameters.count()).sum();
        let held = learner.frozen().map_or(0, Parameters::count);
        let mut engine = Engine::new(config, learner, comm)?;
        for what in without_effect(&config.train, comm.world_size()) {
            on_event(Event::Warning { what: what.into() });
        }
        let lanes = family.cursors().iter().map(to_json).collect();
        let mut state =
            TrainState::start(config, &family.fingerprint(), lanes, comm.world_size(), engine.device());
        check_agreement(&config.train, &config.to_json(), &state, &family.evaluated_on(), comm)?;
        let found = match leaves_nothing(&config.run) {
            true => None,
            false => {
                newest_checkpoint(&checkpoints_of(&config.run), comm, &engine.layout, find_and_set_aside)?
            }
        };
        let (mut resumed, mut refused, mut fresh, mut changed) = (None, Vec::new(), Vec::new(), Vec::new());
        match found {
            Some((path, newer)) => {
                let (stored, other) = restore(&path, &config.recovery.allow_change, &family, &mut engine)?;
                let unread = other_start(&stored.config, &config.train.init_from);
                for what in dropped(&stored.config, config).into_iter().chain(unread) {
                    on_event(Event::Warning { what });
                }
                state.go_on_from(stored, &other);
                (resumed, refused, changed) = (Some(path), newer, other);
            }
            None => {
                if !config.train.init_from.is_empty() {
                    let begun = begin(&config.train.init_from, &family, &engine)?;
                    fresh = begun.fresh;
                    for note in begun.notes {
                        on_event(Event::Warning { what: format!("train.init_from: {note}") });
                    }
                }
                if config.train.init_from.is_empty() {
                    let cursors: Vec<F::Cursor> = own_cursors(&state, &engine, None)?;
                    prepare(&family, &mut engine, &cursors)?;
                }
                engine.begin_averages(&state.fine_tuning);
            }
        }
        // Every rank has read it for itself.
        check_replicas(state.step, || replicated(&engine), comm)?;
        let cursors = own_cursors(&state, &engine, resumed.as_deref())?;
        // Only now: a command that is refused removes nothing.
        if comm.rank() == 0
            && !leaves_nothing(&config.run)
            && let Err(error) = tidy_up(Path::new(&config.run.dir), stay(&config.checkpoint, &state))
        {
            on_event(Event::Warning { what: error.to_string() });
        }
        if resumed.is_some() && family.keeps_best().is_some() {
            reconcile(Path::new(&config.run.dir), &mut state.task, comm, on_event)?;
        }
        engine.scale_rates(&state);
        let saved = resumed.as_ref().map(|_| (state.step, state.evaluated));
        let keeper = Keeper::start(saved, comm)?;
        let CheckpointConfig { every, minutes, .. } = config.checkpoint;
        // Where none is due but at the end, the run waits for it as it is.
        let mut staging = if every == 0 && minutes == 0.0 { Staging::sharing() } else { Staging::default() };
        if !leaves_nothing(&config.run) {
            // So that the first checkpoint finds memory in use, as those after it do.
            drop(snapshot(&family, &engine, &state, comm.rank(), &mut staging)?);
        }
        on_event(Event::Started(Started {
            step: state.step,
            evaluated: state.evaluated,
            steps: config.train.steps,
            attempt: state.attempt,
            parameters,
            held,
            world_size: comm.world_size(),
            optimizer_bytes: engine.optimizer_bytes(),
            labels: family.labels(),
            resumed,
            refused,
            fresh,
            changed,
        }));
        let limit = config.train.time_limit;
        Ok(Self {
            over: limit > 0.0 && state.seconds >= limit,
            config,
            comm,
            engine,
            family,
            state,
            cursors,
            sources: Vec::new(),
            keeper,
            staging,
            stall: Duration::ZERO,
            loss: None,
            evaluation: None,
        })
    }

    /// Makes one step and gives its number.
    fn step(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<u64, TrainError> {
        let began = Instant::now();
        let step = self.state.step + 1;
        let (prepared, data_wait) = self.next_batch(step)?;
        self.engine.forget(&prepared.restarts);
        deadline::at_step(step);
        faults::at_step(step);
        let made = match self.leaves_out(step) {
            true => {
                self.state.leave_out(step, step);
                None
            }
            false => {
                let carries = self.engine.held_carries();
                match self.engine.step_at_rate(step, prepared.rate, &prepared.batch) {
                    Err(error @ TrainError::NonFinite { .. }) => {
                        self.engine.carries = carries;
                        match self.recover(step, error, on_event)? {
                            Recovery::LeftOut => None,
                            Recovery::WentBack => return Ok(self.state.step),
                        }
                    }
                    report => Some(report?),
                }
            }
        };
        // A source without lanes says nothing of where those of another stand.
        if !prepared.cursors.is_empty() {
            self.cursors = prepared.cursors;
        }
        self.state.step = step;
        let elapsed = began.elapsed() + self.stall;
        match made {
            None => on_event(Event::Skipped { step }),
            Some(report) => self.tell(report, prepared.work, elapsed, data_wait, on_event),
        }
        self.keeper.poll(on_event)?;
        if self.config.train.time_limit > 0.0 {
            self.state.seconds += began.elapsed().as_secs_f64();
        }
        Ok(step)
    }

    /// Whether this rank's clock says that the time of the run is over.
    fn out_of_time(&self) -> bool {
        let limit = self.config.train.time_limit;
        limit > 0.0 && self.state.seconds >= limit
    }

    fn tell(
        &mut self,
        report: StepReport,
        work: Option<f64>,
        elapsed: Duration,
        data_wait: Duration,
        on_event: &mut dyn FnMut(Event),
    ) {
        let step = report.step;
        self.loss = Some(report.loss);
        self.state.tokens += report.targets.round() as u64;
        self.state.unreported.add(report.loss, report.adversarial_loss, report.targets);
        let due = step.is_multiple_of(self.config.log.every) || step == self.config.train.steps;
        if let Some(estimate) = report.noise {
            self.state.noise.entry(report.network.to_string()).or_default().fold(estimate);
        }
        if let Some(scaled) = report.scaled.filter(|scaled| scaled.overflowed) {
            on_event(Event::Overflowed { step, scale: scaled.scale });
        }
        let noise = self.state.noise.get(report.network).copied();
        let stride = self.config.train.batch_stride(step) as f64;
        on_event(Event::Step {
            work: work.map_or(report.targets, |work| work / stride),
            report,
            noise,
            tokens: self.state.tokens,
            due: due.then(|| std::mem::take(&mut self.state.unreported)),
            elapsed,
            data_wait,
            checkpoint_stall: std::mem::take(&mut self.stall),
        });
    }

    /// What step `step` trains on, and how long that was waited for.
    fn next_batch(&mut self, step: u64) -> Result<(FamilyBatch<F>, Duration), TrainError> {
        let turn = self.engine.learner.turn(step);
        if self.sources.len() <= turn.source {
            self.sources.resize_with(turn.source + 1, || None);
        }
        let source = &mut self.sources[turn.source];
        let batches = match source {
            Some(batches) => batches,
            None => {
                let place = Place {
                    source: turn.source,
                    layout: self.engine.layout.clone(),
                    cursors: self.cursors.clone(),
                };
                source.insert(Prefetcher::spawn(self.family.reader(place)?, turn.nth)?)
            }
        };
        let _span = trace_span!(target: "data", "wait for a batch").entered();
        let waited = batches.waited();
        let batch = batches.next_batch()?;
        Ok((batch, batches.waited() - waited))
    }

    /// Hands the state over to be written, where that has not been done. A collective call.
    pub(super) fn checkpoint(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        if leaves_nothing(&self.config.run) || !self.keeper.is_new(self.state.step, self.state.evaluated) {
            return Ok(());
        }
        let began = Instant::now();
        let _span = trace_span!(target: "checkpoint", "stage").entered();
        self.engine.settle()?;
        if !self.cursors.is_empty() {
            self.state.lanes = gather_cursors(&self.cursors, self.comm)?;
        }
        faults::point("checkpoint.stage");
        // The copy goes where the one before lay.
        self.keeper.wait(on_event)?;
        let contents =
            snapshot(&self.family, &self.engine, &self.state, self.comm.rank(), &mut self.staging)?;
        let publication = Publication {
            folder: self.checkpoints(),
            step: self.state.step,
            stay: stay(&self.config.checkpoint, &self.state),
        };
        on_event(Event::Checkpointing);
        self.keeper.submit(publication, contents, on_event)?;
        if self.staging.shares() {
            self.keeper.settle();
        }
        self.stall += began.elapsed();
        Ok(())
    }

    /// Where its checkpoints lie.
    pub(super) fn checkpoints(&self) -> PathBuf {
        checkpoints_of(&self.config.run)
    }

    /// Writes the model, and `files` beside it, in the place of the folder `name` of the run; false, on all ranks, where the disk would not
    /// have it. A collective call.
    pub(super) fn write_model(
        &mut self,
        name: &str,
        files: Vec<(String, Vec<u8>)>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<bool, TrainError> {
        let began = Instant::now();
        let rank = self.comm.rank();
        let mut contents = model_folder(&self.family, &self.engine, rank, &mut Staging::sharing())?;
        let written = first_works(self.comm, faults::visits, || {
            contents.files = files;
            let folder = Path::new(&self.config.run.dir).join(name);
            checkpoint::replace(&folder, |dir| contents.write(dir))
        })?;
        if rank == 0 {
            self.stall += began.elapsed();
        }
        let written = written.unwrap_or(Ok(()));
        let failed = any_rank(self.comm, written.is_err())?;
        match written {
            Err(error) if error.is_of_storage() => {
                let what = format!("{error}; `{name}` stays as it was before");
                on_event(Event::Warning { what });
            }
            written => written?,
        }
        Ok(!failed)
    }

    pub(super) fn finish(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        self.engine.settle()?;
        self.keeper.finish(on_event)?;
        // No rank leaves before the last checkpoint is on the disk.
        self.comm.barrier()?;
        Ok(())
    }
}

/// Fills fresh weights with those that `train.init_from`, which is `from`, names. Gives the names of those that stay as they were drawn.
fn begin<F: Family>(from: &str, family: &F, engine: &Engine<F::Learner>) -> Result<Begun, TrainError> {
    let from = Path::new(from);
    let begun = family.begin(&engine.learner, from)?;
    match engine.first_spoiled() {
        None => Ok(begun),
        Some(spoiled) => {
            let what = format!(
                "{spoiled} holds a value that is not finite\nhint: choose another train.init_from, such as an earlier checkpoint"
            );
            Err(TrainError::Damaged { path: from.into(), what })
        }
    }
}

/// Which checkpoints stay.
fn stay(config: &CheckpointConfig, state: &TrainState) -> Stay {
    Stay::of(config, state.guard.as_ref().map(|guard| guard.step))
}

/// Whether a run has no folder.
pub(super) fn leaves_nothing(run: &RunConfig) -> bool {
    run.dir.is_empty()
}

fn checkpoints_of(run: &RunConfig) -> PathBuf {
    Path::new(&run.dir).join(CHECKPOINTS)
}
