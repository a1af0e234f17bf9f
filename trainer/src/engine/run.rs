//! A run from its first step, or from its last checkpoint, to its end.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_collectives::Communicator;
use segue_collectives::consensus::any_rank;
use segue_configs::{Config, DocumentEnd};
use segue_dataloader::{LaneCursor, Prefetcher, Tokenizer};

use super::agreement::{check_agreement, newest_checkpoint};
use super::data::{Validation, micro_batches, open_lanes};
use super::evaluate::Evaluation;
use super::replicas::check_replicas;
use super::sources::Sources;
use super::step::Engine;
use super::updater::StepReport;
use crate::TrainError;
use crate::checkpoint::{self, LossSum, TrainState, Writer};
use crate::objective;

/// What a run is about, told once.
#[derive(Debug, Clone)]
pub struct Started {
    /// Steps already made.
    pub step: u64,
    /// Steps to make in all.
    pub steps: u64,
    /// Times the run has been started.
    pub attempt: u64,
    /// Trained values.
    pub parameters: usize,
    /// Ranks.
    pub world_size: usize,
    /// Targets of one step.
    pub targets_per_step: u64,
    /// The checkpoint it goes on from.
    pub resumed: Option<PathBuf>,
    /// Newer checkpoints that did not verify.
    pub refused: Vec<String>,
}

/// What happens while a run goes on. Every rank sees every event.
#[derive(Debug)]
pub enum Event {
    /// Everything is set up.
    Started(Started),
    /// A step is over.
    Step {
        /// What it did.
        report: StepReport,
        /// Targets trained on so far.
        tokens: u64,
        /// Loss since the last report, where one is due after this step.
        due: Option<LossSum>,
        /// Wall time of the step.
        elapsed: Duration,
        /// Of it, waiting for data.
        data_wait: Duration,
        /// Of it, copying state or waiting for the checkpoint before.
        checkpoint_stall: Duration,
    },
    /// The validation split was evaluated.
    Evaluated {
        /// After this step.
        step: u64,
        /// The result.
        evaluation: Evaluation,
    },
    /// A checkpoint is on the disk (rank 0).
    Checkpointed {
        /// Its folder.
        path: PathBuf,
    },
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Steps made.
    pub step: u64,
    /// Loss of the last step of this attempt.
    pub loss: Option<f64>,
    /// The last evaluation.
    pub evaluation: Option<Evaluation>,
    /// Stopped by a request, with a checkpoint, before its end.
    pub preempted: bool,
}

/// Trains as `config` says: resumes from the newest whole checkpoint of the run
/// folder, and always leaves a checkpoint of its last step. `stop` is asked at every step; where any
/// rank says yes, all stop with a checkpoint. A collective call.
pub fn pretrain(
    config: &Config,
    sources: &Sources,
    comm: &dyn Communicator,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Outcome, TrainError> {
    let mut run = Run::open(config, sources, comm, on_event)?;
    let last = match config.train.stop_at {
        0 => config.train.steps,
        stop_at => stop_at.min(config.train.steps),
    };
    let mut outcome = Outcome { step: run.state.step, loss: None, evaluation: None, preempted: false };
    if run.evaluation_due() && run.state.step < last {
        // Stopped on request before it could be made.
        run.evaluate(on_event)?;
    }
    while run.state.step < last {
        let report = run.step(on_event)?;
        outcome.loss = Some(report.loss);
        let step = run.state.step;
        let every = |n: u64| n > 0 && step.is_multiple_of(n);
        if every(config.train.check_replicas_every) && comm.world_size() > 1 {
            check_replicas(step, run.engine.objective.parameters(), comm)?;
        }
        outcome.preempted = any_rank(comm, stop())? && step < last;
        if run.evaluation_due() && !outcome.preempted {
            outcome.evaluation = run.evaluate(on_event)?;
        }
        // After the evaluation: a checkpoint knows that its step has been evaluated.
        if step == last || outcome.preempted || every(config.checkpoint.every) {
            run.checkpoint(on_event)?;
        }
        if outcome.preempted {
            break;
        }
    }
    if run.state.step == config.train.steps && outcome.evaluation.is_none() {
        // Started again after its end: nothing is left to train, the result is still of interest.
        outcome.evaluation = run.evaluate(on_event)?;
    }
    run.finish(on_event)?;
    outcome.step = run.state.step;
    Ok(outcome)
}

struct Run<'a> {
    config: &'a Config,
    comm: &'a dyn Communicator,
    engine: Engine<'a>,
    state: TrainState,
    batches: Prefetcher,
    valid: Option<Validation>,
    tokenizer: Arc<Tokenizer>,
    writer: Writer,
    stall: Duration,
}

impl<'a> Run<'a> {
    fn open(
        config: &'a Config,
        sources: &Sources,
        comm: &'a dyn Communicator,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Self, TrainError> {
        let lanes = open_lanes(config, sources)?;
        let mut objective = objective::build(config);
        // Lanes over pieces of several lengths begin again at different steps.
        if config.train.at_document_end != DocumentEnd::Carry || config.data.order.in_pairs() {
            objective.keep_marks();
        }
        let parameters = objective.parameters().count();
        let mut engine = Engine::new(config, objective, comm)?;
        let start = vec![LaneCursor::default(); config.train.lanes];
        let mut state = TrainState::start(config, sources.fingerprint(), start, comm.world_size());
        check_agreement(&state, comm)?;
        let found = newest_checkpoint(&Path::new(&config.run.dir).join("checkpoints"), comm)?;
        let (resumed, refused) = match found {
            Some((path, refused)) => {
                state.go_on_from(checkpoint::restore(&path, config, sources.fingerprint(), &mut engine)?);
                (Some(path), refused)
            }
            None => {
                if !config.train.init_from.is_empty() {
                    let folder = Path::new(&config.train.init_from);
                    checkpoint::start_from(folder, &config.model, engine.objective.parameters())?;
                }
                (None, Vec::new())
            }
        };
        let range = engine.updater.layout.lane_range();
        let cursors = state.lanes[range.clone()].to_vec();
        let batches = Prefetcher::spawn(lanes, range, cursors, state.step + 1)?;
        on_event(Event::Started(Started {
            step: state.step,
            steps: config.train.steps,
            attempt: state.attempt,
            parameters,
            world_size: comm.world_size(),
            targets_per_step: (config.train.lanes * config.targets_per_lane()) as u64,
            resumed,
            refused,
        }));
        let valid = Validation::open(config, sources)?;
        let tokenizer = Arc::new(sources.tokenizer().clone());
        let writer = Writer::start()?;
        Ok(Self { config, comm, engine, state, batches, valid, tokenizer, writer, stall: Duration::ZERO })
    }

    fn step(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<StepReport, TrainError> {
        let began = Instant::now();
        let waited = self.batches.waited();
        let batch = self.batches.next_batch()?;
        let data_wait = self.batches.waited() - waited;
        self.forget_restarted_lanes(&batch.restarts);
        let micro_batches = micro_batches(&batch, self.engine.updater.layout.micro_batch);
        if self.config.average.start > 0 && self.state.step >= self.config.average.start {
            self.engine.start_average();
        }
        let report = self.engine.step(self.state.step + 1, &micro_batches)?;
        self.state.step = report.step;
        self.state.tokens += report.targets as u64;
        self.state.lanes[self.engine.updater.layout.lane_range()].copy_from_slice(&batch.cursors_after);
        self.state.unreported.nats += report.loss * report.targets;
        self.state.unreported.targets += report.targets;
        let due = report.step.is_multiple_of(self.config.log.every) || report.step == self.config.train.steps;
        on_event(Event::Step {
            report,
            tokens: self.state.tokens,
            due: due.then(|| std::mem::take(&mut self.state.unreported)),
            elapsed: began.elapsed() + self.stall,
            data_wait,
            checkpoint_stall: std::mem::take(&mut self.stall),
        });
        if let Some(path) = self.writer.poll()? {
            on_event(Event::Checkpointed { path });
        }
        Ok(report)
    }

    /// Lanes that begin anew, or that have left a document behind them, begin with a fresh memory.
    fn forget_restarted_lanes(&mut self, restarts: &[bool]) {
        let each = self.engine.updater.layout.micro_batch;
        for (micro_step, restarts) in restarts.chunks(each).enumerate() {
            if restarts.contains(&true) {
                let fresh = self.engine.objective.memory_start(each as i64);
                self.engine.memory[micro_step].forget(restarts, fresh);
            }
        }
    }

    fn checkpoint(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let began = Instant::now();
        let run = Path::new(&self.config.run.dir);
        let tokenizer = self.tokenizer.clone();
        gather_cursors(&mut self.state.lanes, self.engine.updater.layout.lane_range(), self.comm)?;
        let job = checkpoint::snapshot(run, self.config, &self.engine, &self.state, tokenizer, self.comm)?;
        if let Some(job) = job
            && let Some(path) = self.writer.submit(job)?
        {
            on_event(Event::Checkpointed { path });
        }
        self.stall += began.elapsed();
        Ok(())
    }

    /// Whether the state's step is one to evaluate after, and that has not been done.
    fn evaluation_due(&self) -> bool {
        let (step, every) = (self.state.step, self.config.eval.every);
        let due = step == self.config.train.steps || every > 0 && step.is_multiple_of(every);
        due && step > 0 && self.state.evaluated != step
    }

    /// Perplexity on the validation split, if the corpus has one.
    fn evaluate(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<Option<Evaluation>, TrainError> {
        let Some(valid) = &self.valid else { return Ok(None) };
        let evaluation =
            self.engine.with_average(|objective| valid.evaluate(objective, self.config, self.comm))?;
        self.state.evaluated = self.state.step;
        if self.state.average.observe(evaluation.loss, self.config.average.patience) {
            self.engine.start_average();
        }
        on_event(Event::Evaluated { step: self.state.step, evaluation });
        Ok(Some(evaluation))
    }

    fn finish(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        if let Some(path) = self.writer.wait()? {
            on_event(Event::Checkpointed { path });
        }
        // No rank leaves before the last checkpoint is on the disk.
        self.comm.barrier()?;
        Ok(())
    }
}

/// Completes the cursors of all lanes of the job by those of the other ranks.
fn gather_cursors(
    lanes: &mut [LaneCursor],
    own: Range<usize>,
    comm: &dyn Communicator,
) -> Result<(), TrainError> {
    let bytes: Vec<u8> = lanes[own]
        .iter()
        .flat_map(|c| [c.epoch, c.sentence, c.offset, u64::from(c.forget)])
        .flat_map(u64::to_le_bytes)
        .collect();
    let all = comm.all_gather(&bytes)?.concat();
    let numbers: Vec<u64> =
        all.chunks_exact(8).map(|b| u64::from_le_bytes(std::array::from_fn(|i| b[i]))).collect();
    for (lane, c) in lanes.iter_mut().zip(numbers.chunks_exact(4)) {
        *lane = LaneCursor { epoch: c[0], sentence: c[1], offset: c[2], forget: c[3] != 0 };
    }
    Ok(())
}
