//! Spans of some steps as lines of JSON: what each thread of this rank does, and when. `segue inspect trace` puts those of all ranks together.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use segue_collectives::{CollectiveError, Communicator, print_line};
use segue_configs::LogConfig;
use segue_publish::{empty_regular, make_own_folder};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Folder of a run's traces.
pub const FOLDER: &str = "trace";
/// What spans are about: the targets that are taken note of.
pub const CATEGORIES: [&str; 4] = ["compute", "data", "communication", "checkpoint"];
/// Times that ranks meet to compare their clocks.
const MEETINGS: usize = 33;

/// The first line of a rank's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Header {
    /// Which rank.
    pub rank: usize,
    /// Of how many.
    pub world_size: usize,
    /// Where it runs.
    pub host: String,
    /// Which attempt at the run.
    pub attempt: u64,
    /// The first step that is traced, and the one after the last that is to be.
    pub steps: (u64, u64),
    /// When times are 0, in microseconds since 1970 by this host's clock.
    pub began_us: i64,
    /// By how much this host's clock was ahead of that of rank 0's host then.
    pub ahead_us: i64,
}

/// Every other line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Span {
    /// What was done.
    pub name: String,
    /// One of [`CATEGORIES`].
    pub category: String,
    /// By which thread.
    pub thread: String,
    /// When it began, in microseconds.
    pub at_us: f64,
    /// How long it took, in microseconds.
    pub took_us: f64,
    /// What else is known: bytes, the number of the micro-step.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
}

/// Whether spans are taken note of, which is asked for each.
static ON: AtomicBool = AtomicBool::new(false);
static FILE: Mutex<Option<Open>> = Mutex::new(None);

struct Open {
    began: Instant,
    lines: BufWriter<File>,
}

impl Open {
    fn line(&mut self, line: &impl Serialize) {
        // What the disk refuses shows when it is flushed.
        let _ = serde_json::to_writer(&mut self.lines, line).map(|()| self.lines.write_all(b"\n"));
    }
}

fn file() -> MutexGuard<'static, Option<Open>> {
    FILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Steps of a run that are traced, once in a process: steps that are made again are not.
pub struct Window {
    steps: Range<u64>,
    folder: PathBuf,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Before,
    Open,
    Over,
}

impl Window {
    /// As `[log]` says.
    pub fn of(log: &LogConfig, run: &Path) -> Self {
        let (from, steps) = (log.trace_from, log.trace_steps);
        let folder = run.join(FOLDER);
        Self { steps: from..from.saturating_add(steps), folder, state: State::Before }
    }

    /// Takes note that `next` is the next step. A collective call where the window opens. A trace that cannot be written ends, with a
    /// warning: the run is worth more.
    pub fn at(&mut self, next: u64, attempt: u64, comm: &dyn Communicator) {
        let done = match (self.state, self.steps.contains(&next)) {
            (State::Before, true) => self.open(next, attempt, comm),
            (State::Open, false) => self.close(),
            // For whoever reads it while the run goes on, and for one that is killed.
            (State::Open, true) => file().as_mut().map_or(Ok(()), |open| open.lines.flush()),
            _ => Ok(()),
        };
        if let Err(error) = done {
            let (rank, folder) = (comm.rank(), self.folder.display());
            print_line(&format!("segue: warning: rank {rank} has no trace in {folder}: {error}"));
            let _ = self.close();
        }
    }

    fn open(&mut self, next: u64, attempt: u64, comm: &dyn Communicator) -> io::Result<()> {
        self.state = State::Open;
        // Of an attempt with more ranks some would be left. Whatever becomes of it, the others come to the meetings.
        let removed = if comm.rank() == 0 { remove_all(&self.folder) } else { Ok(()) };
        let ahead_us = ahead_of_first(comm).map_err(io::Error::other)?;
        removed?;
        make_own_folder(&self.folder)?;
        let lines = BufWriter::new(empty_regular(self.folder.join(file_name(comm.rank())))?);
        // At the same moment: creating a file may take long.
        let (mut open, began_us) = (Open { began: Instant::now(), lines }, now_us());
        open.line(&Header {
            rank: comm.rank(),
            world_size: comm.world_size(),
            host: segue_cluster::host_name(),
            attempt,
            steps: (next, self.steps.end),
            began_us,
            ahead_us,
        });
        *file() = Some(open);
        ON.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Nothing is taken note of any more.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn close(&mut self) -> io::Result<()> {
        self.state = State::Over;
        ON.store(false, Ordering::Relaxed);
        file().take().map_or(Ok(()), |mut open| open.lines.flush())
    }
}

/// Removes the files of all ranks.
fn remove_all(folder: &Path) -> io::Result<()> {
    make_own_folder(folder)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The file of a rank in [`FOLDER`].
pub fn file_name(rank: usize) -> String {
    format!("rank-{rank:05}.jsonl")
}

/// By how many microseconds this host's clock is ahead of that of rank 0's: the median of what clocks say when ranks leave meetings, which
/// they do at the same moment but for the time a message takes. A collective call.
fn ahead_of_first(comm: &dyn Communicator) -> Result<i64, CollectiveError> {
    let left = |_| comm.barrier().map(|()| now_us());
    let own = (0..MEETINGS).map(left).collect::<Result<Vec<i64>, _>>()?;
    let bytes: Vec<u8> = own.iter().flat_map(|at| at.to_le_bytes()).collect();
    let all = comm.all_gather(&bytes)?;
    let first = all.first().into_iter().flat_map(|bytes| bytes.chunks_exact(8));
    let first = first.map(|bytes| i64::from_le_bytes(std::array::from_fn(|i| bytes[i])));
    let mut ahead: Vec<i64> = own.iter().zip(first).map(|(own, first)| own - first).collect();
    ahead.sort_unstable();
    Ok(ahead.get(ahead.len() / 2).copied().unwrap_or(0))
}

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// What hears of spans, for the process' subscriber.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let is_wanted = |metadata: &tracing::Metadata, _: &Context<S>| {
        ON.load(Ordering::Relaxed) && metadata.is_span() && CATEGORIES.contains(&metadata.target())
    };
    Spans.with_filter(dynamic_filter_fn(is_wanted))
}

struct Spans;

struct Begun {
    at: Instant,
    more: Map<String, Value>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(Begun { at: Instant::now(), more: fields.0 });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Begun { at, mut more }) = span.extensions_mut().remove::<Begun>() else { return };
        let took = at.elapsed();
        let mut file = file();
        let Some(open) = file.as_mut() else { return };
        // Calls of a library share a span, and have names of their own.
        let name = match more.remove("call") {
            Some(Value::String(call)) => call,
            _ => span.name().to_string(),
        };
        let micros = |time: std::time::Duration| time.as_nanos() as f64 / 1e3;
        open.line(&Span {
            name,
            category: span.metadata().target().to_string(),
            thread: std::thread::current().name().unwrap_or_default().to_string(),
            at_us: micros(at.saturating_duration_since(open.began)),
            took_us: micros(took),
            more,
        });
    }
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), json!(format!("{value:?}")));
    }
}
