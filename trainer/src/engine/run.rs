//! The loop over steps: a run from its first step, or from its last checkpoint, to its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segue_collectives::consensus::{any_rank, any_rank_of};
use segue_collectives::{Communicator, deadline};
use segue_configs::{CheckpointConfig, Config, counted};
use segue_dataloader::Prefetcher;
use segue_faults as faults;
use serde_json::{Value, json};
use tracing::trace_span;

use super::agreement::check_agreement;
use super::best::Rating;
use super::doubles;
use super::event::{Event, Outcome, Started};
use super::family::{Better, Family, KeepBest, Measures, Place};
use super::keeper::Keeper;
use super::learner::Learner;
use super::publication::Publication;
use super::recovery::Recovery;
use super::replicas::check_replicas;
use super::search::newest_checkpoint;
use super::share::Watch;
use super::snapshot::{model_folder, replicated, restore, snapshot};
use super::staging::Staging;
use super::state::TrainState;
use super::step::{Chosen, Engine, StepReport};
use super::sums::without_effect;
use crate::TrainError;
use crate::checkpoint::{self, BEST, CHECKPOINTS, Stay, find_and_set_aside, tidy_up};
use crate::optim::averaging::{AveragingEvent, TRAINED};

/// Trains as `config` says: resumes from the newest whole checkpoint of the run folder, and always leaves a checkpoint
/// of its last step. `stop` is asked at every step; where any rank says yes, all stop with a checkpoint. A collective
/// call.
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
    let (mut preempted, mut stopped_early) = (false, run.out_of_patience() || run.over_and_evaluated());
    if run.evaluation_due() && !stopped_early {
        // The run ended before it was made.
        preempted = run.evaluate(stop, on_event)?;
        stopped_early = run.out_of_patience() || run.over && !preempted;
        if stopped_early || run.state.step >= last && !preempted {
            // No step follows that would leave one.
            run.checkpoint(on_event)?;
        }
    }
    while run.state.step < last && !preempted && !stopped_early {
        let step = run.step(on_event)?;
        let every = |n: u64| n > 0 && step.is_multiple_of(n);
        if every(config.train.check_replicas_every) {
            check_replicas(step, || replicated(&run.engine), comm)?;
        }
        let wanted = comm.rank() == 0 && run.keeper.wants_one(&config.checkpoint);
        let over = comm.rank() == 0 && run.out_of_time();
        let [stopping, wanted, over] = any_rank_of(comm, [stop(), wanted, over])?;
        run.over |= over;
        preempted = stopping && step < last;
        let due = step == last || wanted || run.over || every(config.checkpoint.every);
        if run.evaluation_due() && !preempted {
            if due {
                // An evaluation may take long: whoever is killed in it has lost nothing.
                run.checkpoint(on_event)?;
            }
            preempted = run.evaluate(stop, on_event)?;
            stopped_early = run.out_of_patience();
        }
        stopped_early |= run.over && !preempted;
        // Once more after an evaluation: a checkpoint knows that its step has been evaluated, and what that brought.
        if due || preempted || stopped_early {
            run.checkpoint(on_event)?;
        }
    }
    let ended = (run.state.step == config.train.steps || run.over) && !preempted;
    if ended && run.evaluation.is_none() && run.family.keeps_best().is_none() {
        // Started again after its end: nothing is left to train, the result is still of interest.
        preempted = run.evaluate(stop, on_event)?;
    }
    run.finish(on_event)?;
    let best = run.state.task.kept().map(|best| (best.step, best.value));
    Ok(Outcome {
        step: run.state.step,
        loss: run.loss,
        evaluation: run.evaluation,
        best,
        preempted,
        stopped_early,
    })
}

/// Batches of one source, built ahead of time.
type Source<F> = Option<Prefetcher<<F as Family>::Raw>>;

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
    over: bool,
    loss: Option<f64>,
    evaluation: Option<Value>,
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
        let mut engine = Engine::new(config, learner, comm)?;
        if let Some(what) = without_effect(config.train.collectives, comm.world_size()) {
            on_event(Event::Warning { what: what.into() });
        }
        let lanes = family.cursors().iter().map(to_json).collect();
        let mut state =
            TrainState::start(config, &family.fingerprint(), lanes, comm.world_size(), engine.device());
        check_agreement(config, &state, &family.evaluated_on(), comm)?;
        let found = newest_checkpoint(&checkpoints_of(config), comm, &engine.layout, find_and_set_aside)?;
        let (mut resumed, mut refused, mut fresh, mut changed) = (None, Vec::new(), Vec::new(), Vec::new());
        match found {
            Some((path, newer)) => {
                let (stored, other) = restore(&path, config, &family, &mut engine)?;
                state.go_on_from(stored, &other);
                (resumed, refused, changed) = (Some(path), newer, other);
            }
            None => {
                if !config.train.init_from.is_empty() {
                    fresh = family.begin(&engine.learner, Path::new(&config.train.init_from))?;
                }
                engine.begin_averages(&state.fine_tuning);
            }
        }
        // Every rank has read it for itself.
        check_replicas(state.step, || replicated(&engine), comm)?;
        let cursors = own_cursors(&state, &engine, resumed.as_deref())?;
        // Only now: a command that is refused removes nothing.
        if comm.rank() == 0
            && let Err(error) = tidy_up(Path::new(&config.run.dir), stay(config, &state))
        {
            on_event(Event::Warning { what: error.to_string() });
        }
        engine.scale_rates(&state);
        let saved = resumed.as_ref().map(|_| (state.step, state.evaluated));
        let keeper = Keeper::start(saved, comm)?;
        let CheckpointConfig { every, minutes, .. } = config.checkpoint;
        // Where none is due but at the end, the run waits for it as it is.
        let mut staging = if every == 0 && minutes == 0.0 { Staging::sharing() } else { Staging::default() };
        // So that the first checkpoint finds memory in use, as those after it do.
        drop(snapshot(&family, &engine, &state, comm.rank(), &mut staging)?);
        on_event(Event::Started(Started {
            step: state.step,
            evaluated: state.evaluated,
            steps: config.train.steps,
            attempt: state.attempt,
            parameters,
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
        let (raw, data_wait) = self.next_batch(step)?;
        let prepared = {
            let _span = trace_span!(target: "data", "prepare").entered();
            self.family.prepare(raw, &self.engine.layout)
        };
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
            Some(report) => self.tell(report, elapsed, data_wait, on_event),
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

    /// Whether the time is over, and nothing is left to be done.
    fn over_and_evaluated(&self) -> bool {
        self.over && !self.evaluation_due()
    }

    fn tell(
        &mut self,
        report: StepReport,
        elapsed: Duration,
        data_wait: Duration,
        on_event: &mut dyn FnMut(Event),
    ) {
        let step = report.step;
        self.loss = Some(report.loss);
        self.state.tokens += report.targets as u64;
        self.state.unreported.add(report.loss, report.adversarial_loss, report.targets);
        let due = step.is_multiple_of(self.config.log.every) || step == self.config.train.steps;
        if let Some(estimate) = report.noise {
            self.state.noise.entry(report.network.to_string()).or_default().fold(estimate);
        }
        if let Some(scaled) = report.scaled.filter(|scaled| scaled.overflowed) {
            on_event(Event::Overflowed { step, scale: scaled.scale });
        }
        let noise = self.state.noise.get(report.network).copied();
        on_event(Event::Step {
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
    fn next_batch(&mut self, step: u64) -> Result<(F::Raw, Duration), TrainError> {
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
        let raw = batches.next_batch()?;
        Ok((raw, batches.waited() - waited))
    }

    /// Hands the state over to be written, where that has not been done. A collective call.
    pub(super) fn checkpoint(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        if !self.keeper.is_new(self.state.step, self.state.evaluated) {
            return Ok(());
        }
        let began = Instant::now();
        let _span = trace_span!(target: "checkpoint", "stage").entered();
        self.gather_cursors()?;
        faults::point("checkpoint.stage");
        // The copy goes where the one before lay.
        self.keeper.wait(on_event)?;
        let contents =
            snapshot(&self.family, &self.engine, &self.state, self.comm.rank(), &mut self.staging)?;
        let publication = Publication {
            folder: self.checkpoints(),
            step: self.state.step,
            stay: stay(self.config, &self.state),
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
        checkpoints_of(self.config)
    }

    /// Whether the state's step is one to evaluate after, and that has not been done.
    fn evaluation_due(&self) -> bool {
        let step = self.state.step;
        let due = step == self.config.train.steps || self.over || self.counts();
        due && step > 0 && self.state.evaluated != step
    }

    /// Whether an evaluation after the state's step decides anything. One more at a run's end does not: a run made longer would remember it.
    /// Nor does one of weights that have not changed since the last one was due.
    pub(super) fn counts(&self) -> bool {
        let every = self.config.eval.every;
        every > 0 && self.state.step.is_multiple_of(every) && !self.state.stood_still(every)
    }

    /// Evaluates, and keeps the model where it is the best so far. True where `stop` ended it before it was done.
    fn evaluate(
        &mut self,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<bool, TrainError> {
        let _span = trace_span!(target: "compute", "evaluate").entered();
        let (step, counts) = (self.state.step, self.counts());
        let Self { engine, family, comm, .. } = self;
        let mut progress = |done, total| on_event(Event::Evaluating { done, total });
        let mut watch = Watch::new(&mut progress).stopped_by(stop);
        let found = match engine.evaluate(step, counts, |learner| family.evaluate(learner, *comm, &mut watch))
        {
            Err(TrainError::Stopped) => return Ok(true),
            found => found?,
        };
        let Some(chosen) = found else { return Ok(false) };
        self.state.evaluated = step;
        let ends = chosen.choice.events.contains(&AveragingEvent::Stagnated);
        let mut measures = reported(chosen);
        let best = self.keep_best(&measures, on_event)?;
        self.guard(&measures, on_event)?;
        self.mark_stage(&mut measures, ends);
        self.evaluation = Some(measures.row.clone());
        on_event(Event::Evaluated { step, measures, best });
        if ends {
            self.end_stage(on_event)?;
        }
        Ok(false)
    }

    /// Writes the model down where it is the best so far, and says whether it is.
    fn keep_best(
        &mut self,
        measures: &Measures,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Option<bool>, TrainError> {
        if self.family.keeps_best().is_none() {
            return Ok(None);
        }
        let step = self.state.step;
        let is_better = |a: f64, b: f64| match measures.better {
            Better::Lower => a < b,
            Better::Higher => a > b,
        };
        let [lead, tie] = self.of_first_rank([measures.lead, measures.tie.unwrap_or(f64::NAN)])?;
        let found = Rating { value: lead, tie: Some(tie).filter(|tie| tie.is_finite()), step };
        let mut so_far = self.state.task.clone();
        let best = so_far.observe(found, self.counts(), is_better);
        if best {
            let files = self.family.beside_best(measures, step);
            if !self.write_model(BEST, files, on_event)? {
                // The best model is the one that lies there.
                self.state.task.since_best = so_far.since_best;
                return Ok(Some(false));
            }
        }
        self.state.task = so_far;
        Ok(Some(best))
    }

    /// What rank 0 found: processors of several kinds may round differently, and all must decide alike. A collective call.
    pub(super) fn of_first_rank<const N: usize>(&self, found: [f64; N]) -> Result<[f64; N], TrainError> {
        let mut bytes = doubles::to_bytes(found);
        if self.comm.world_size() > 1 {
            self.comm.broadcast(0, &mut bytes)?;
        }
        let agreed = doubles::of_bytes(&bytes);
        Ok(std::array::from_fn(|place| agreed[place]))
    }

    /// Writes the model, and `files` beside it, in the place of the folder `name` of the run; false, on all ranks, where the disk would not
    /// have it. A collective call.
    pub(super) fn write_model(
        &mut self,
        name: &str,
        files: Vec<(String, Vec<u8>)>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<bool, TrainError> {
        let mut written = Ok(());
        let began = Instant::now();
        let rank = self.comm.rank();
        let mut contents = model_folder(&self.family, &self.engine, rank, &mut Staging::sharing())?;
        if rank == 0 {
            contents.files = files;
            let folder = Path::new(&self.config.run.dir).join(name);
            written = checkpoint::replace(&folder, |dir| contents.write(dir));
            self.stall += began.elapsed();
        }
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

    fn out_of_patience(&self) -> bool {
        let KeepBest { patience } = self.family.keeps_best().unwrap_or(KeepBest { patience: 0 });
        self.state.fine_tuning.over || patience > 0 && self.state.task.since_best >= patience
    }

    /// Completes the cursors of all lanes of the job by those of the other ranks.
    fn gather_cursors(&mut self) -> Result<(), TrainError> {
        if self.cursors.is_empty() {
            return Ok(());
        }
        let own: Vec<Value> = self.cursors.iter().map(to_json).collect();
        let bytes = serde_json::to_vec(&own).unwrap_or_default();
        let mut lanes = Vec::with_capacity(self.state.lanes.len());
        for bytes in self.comm.all_gather(&bytes)? {
            let of_rank: Vec<Value> = serde_json::from_slice(&bytes)
                .map_err(|e| TrainError::Layout(format!("a rank sends cursors that cannot be read: {e}")))?;
            lanes.extend(of_rank);
        }
        self.state.lanes = lanes;
        Ok(())
    }

    pub(super) fn finish(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        self.keeper.finish(on_event)?;
        // No rank leaves before the last checkpoint is on the disk.
        self.comm.barrier()?;
        Ok(())
    }
}

/// Which checkpoints stay.
fn stay(config: &Config, state: &TrainState) -> Stay {
    Stay::of(&config.checkpoint, state.guard.as_ref().map(|guard| guard.step))
}

fn checkpoints_of(config: &Config) -> PathBuf {
    Path::new(&config.run.dir).join(CHECKPOINTS)
}

/// What is reported of an evaluation: the chosen weight set, and beside it the losses of all where there were several.
fn reported(chosen: Chosen) -> Measures {
    let Chosen { mut candidates, choice, lengths, trained } = chosen;
    let mut losses: Vec<(&str, f64)> = candidates.iter().map(|(name, found)| (*name, found.lead)).collect();
    losses.extend(trained.map(|found| (TRAINED, found.lead)));
    let decided: Vec<(&str, f64)> =
        candidates.iter().filter_map(|(name, found)| Some((*name, found.decide?))).collect();
    let (name, mut measures) = candidates.swap_remove(choice.candidate);
    if choice.best.as_ref().is_some_and(|best| best.since > 0) {
        // Weights from before are kept as the model: these win no tie.
        measures.tie = None;
    }
    if losses.len() == 1 && choice.events.is_empty() {
        return measures;
    }
    measures.row["average"] = json!({
        "weights": name,
        "length": choice.length,
        "lengths": lengths.into_iter().collect::<BTreeMap<_, _>>(),
        "losses": by_name(&losses),
        "events": choice.events,
        "best": choice.best,
    });
    if !decided.is_empty() {
        measures.row["average"]["decided_by"] = by_name(&decided);
    }
    let told: Vec<String> = losses.iter().map(|(name, loss)| format!("{name} {loss:.4}")).collect();
    if losses.len() > 1 {
        measures.lines.push(format!(
            "weights: {name} of {} ({})",
            counted(choice.length, "step"),
            told.join(", ")
        ));
        measures.scalars.extend(losses.iter().map(|(name, loss)| (format!("average/{name}"), *loss)));
        measures.scalars.push(("average/length".into(), choice.length as f64));
    }
    measures
}

fn by_name(losses: &[(&str, f64)]) -> Value {
    losses.iter().map(|(name, loss)| (name.to_string(), json!(loss))).collect()
}

fn to_json(cursor: &impl serde::Serialize) -> Value {
    serde_json::to_value(cursor).unwrap_or_default()
}

/// This rank's cursors out of those of all lanes.
pub(super) fn own_cursors<C: serde::de::DeserializeOwned, L: Learner>(
    state: &TrainState,
    engine: &Engine<L>,
    resumed: Option<&Path>,
) -> Result<Vec<C>, TrainError> {
    if state.lanes.is_empty() {
        return Ok(Vec::new());
    }
    let own = state.lanes.get(engine.layout.lane_range());
    let read = own.map(|own| own.iter().map(|cursor| C::deserialize(cursor)).collect::<Result<Vec<C>, _>>());
    match read {
        Some(Ok(cursors)) => Ok(cursors),
        wrong => {
            let why = wrong.and_then(Result::err).map_or("too few lanes".to_string(), |e| e.to_string());
            let path = resumed.unwrap_or(Path::new("")).join(checkpoint::STATE);
            Err(TrainError::Damaged { path, what: format!("cursors of lanes: {why}") })
        }
    }
}
