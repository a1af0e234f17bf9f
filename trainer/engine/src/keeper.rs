//! When checkpoints are due beside those of their step, and what becomes of one that cannot be written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_collectives::Communicator;
use segue_configs::CheckpointConfig;
use segue_kernels::TrainError;
use segue_world::now;

use super::event::Event;
use super::publication::Publication;
use crate::checkpoint::{Contents, Writer};

/// How long after a checkpoint that could not be written the next one is tried.
const RETRY: Duration = Duration::from_secs(60);

/// Writes the checkpoints of a run, with the keepers of the other ranks.
pub struct Keeper {
    writer: Writer,
    /// The channel of the ranks' checkpoint threads.
    comm: Arc<dyn Communicator>,
    /// Step and last evaluated step of the state that was handed over last: the same state is not written twice.
    saved: Option<(u64, u64)>,
    handed_over: Instant,
    failed: bool,
}

impl Keeper {
    /// Of a run that goes on from a checkpoint of `saved`, or from none. A collective call.
    pub fn start(saved: Option<(u64, u64)>, comm: &dyn Communicator) -> Result<Self, TrainError> {
        let (comm, writer) = (comm.duplicate()?.into(), Writer::start()?);
        Ok(Self { writer, comm, saved, handed_over: now(), failed: false })
    }

    /// Whether a checkpoint is due by the clock, or because the one before it could not be written.
    pub fn wants_one(&self, config: &CheckpointConfig) -> bool {
        let since = now() - self.handed_over;
        let by_clock = config.minutes > 0.0 && since.as_secs_f64() >= 60.0 * config.minutes;
        by_clock || self.failed && since >= RETRY
    }

    /// Takes note that the state of `step` is handed over; false where it has been before.
    pub fn is_new(&mut self, step: u64, evaluated: u64) -> bool {
        self.handed_over = now();
        self.saved.replace((step, evaluated)) != Some((step, evaluated))
    }

    /// Lets the next state be written whatever it is: the one that stands there knows less.
    pub fn forget(&mut self) {
        self.saved = None;
    }

    /// Hands over what this rank has of a checkpoint, as soon as the one before it is done. Every rank does so.
    pub(super) fn submit(
        &mut self,
        publication: Publication,
        contents: Contents,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TrainError> {
        self.wait(on_event)?;
        let comm = self.comm.clone();
        self.writer.submit(Box::new(move || publication.write(&contents, comm.as_ref()))).map(|_| ())
    }

    /// Takes note of what has been written meanwhile.
    pub fn poll(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let written = self.writer.poll();
        self.heard(written, on_event)
    }

    /// Waits until nothing is being written.
    pub fn wait(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        let written = self.writer.wait();
        self.heard(written, on_event)
    }

    /// Waits until nothing is being written, without taking note of what came of it.
    pub fn settle(&mut self) {
        self.writer.settle();
    }

    /// Waits for the last checkpoint, which has to be written.
    pub fn finish(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<(), TrainError> {
        if let Some(path) = self.writer.wait()? {
            on_event(Event::Checkpointed { path });
        }
        Ok(())
    }

    /// A full disk ends no training: there is a checkpoint from before, and another try to come.
    fn heard(
        &mut self,
        written: Result<Option<PathBuf>, TrainError>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), TrainError> {
        match written {
            Ok(None) => {}
            Ok(Some(path)) => {
                self.failed = false;
                on_event(Event::Checkpointed { path });
            }
            Err(error) if error.is_of_storage() => {
                self.failed = true;
                let what = format!(
                    "{error}; training goes on, the checkpoint before stays the newest, and the next one is tried when it is due, after {} s at the latest",
                    RETRY.as_secs()
                );
                on_event(Event::Warning { what });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
