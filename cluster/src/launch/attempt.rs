//! One attempt of a job: started, listened to, and ended where it does not end by itself.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use segue_door::Door;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::command::Start;
use super::hearing::{Ear, Heard, connections, lines, listen};
use super::outcome::{Attempt, Limits};
use super::watched::Watched;

/// How often the supervisor looks at what it has heard.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long what was said is waited for when the starter has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs one attempt to its end. `stop` is asked now and then; once it says so the ranks are asked to stop with a checkpoint, and
/// have the grace for it.
///
/// # Errors
///
/// The command cannot be started.
pub async fn run(
    start: &Start,
    listener: &Arc<TcpListener>,
    token: &str,
    limits: &Limits,
    stop: &dyn Fn() -> bool,
    hear: &mut dyn FnMut(&Heard),
) -> io::Result<Attempt> {
    let mut command = start.command();
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Command::from(command).kill_on_drop(true).spawn()?;
    let (heard_by, mut heard) = unbounded_channel();
    let said = child.stderr.take().map(|stderr| tokio::spawn(lines(stderr, heard_by.clone(), Heard::Line)));
    let told = child.stdout.take().map(|stdout| tokio::spawn(lines(stdout, heard_by.clone(), Heard::Result)));
    let mut watched = Watched::new(limits, &start.hosts, start.ranks);
    let ear =
        Ear { token: token.into(), heard: heard_by.downgrade(), wants_to_know: watched.wants_to_know() };
    let (door, listener) = (Door::new(connections(start.ranks)), Arc::clone(listener));
    // A task of its own: what is printed here may have to wait.
    let mut listening = JoinSet::new();
    listening.spawn(async move {
        door.open(&listener, |stream, place| listen(stream, place, ear.clone())).await;
    });
    let status = follow(&mut watched, &mut child, &mut heard, stop, hear).await?;
    // Without their starter, ranks that were stopped would go on for ever.
    watched.kill_ranks_here();
    // What the job has said to its end. Ranks that are left over elsewhere may hold its streams open.
    for reader in [said, told].into_iter().flatten() {
        let _ = timeout(LOOK_EVERY, reader).await;
    }
    drop(heard_by);
    let until = Instant::now() + LAST_WORDS;
    while let Ok(Some(message)) = timeout(until.saturating_duration_since(Instant::now()), heard.recv()).await
    {
        watched.take(message, hear);
    }
    // Whoever is left over elsewhere gets no answer from now on, and ends.
    listening.shutdown().await;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
    Ok(watched.attempt(code))
}

/// Listens to a running attempt, and ends it where it does not end by itself.
async fn follow(
    watched: &mut Watched<'_>,
    child: &mut Child,
    heard: &mut UnboundedReceiver<Heard>,
    stop: &dyn Fn() -> bool,
    hear: &mut dyn FnMut(&Heard),
) -> io::Result<std::process::ExitStatus> {
    let group = child.id().and_then(|id| Pid::from_raw(id as i32));
    let mut look = interval(LOOK_EVERY);
    loop {
        tokio::select! {
            status = child.wait() => return status,
            Some(message) = heard.recv() => watched.take(message, hear),
            _ = look.tick() => {
                // What was heard meanwhile counts before anybody is called silent.
                while let Ok(message) = heard.try_recv() {
                    watched.take(message, hear);
                }
                if let Some(straggler) = watched.straggler() {
                    watched.take(Heard::Straggles(straggler), hear);
                }
                let was_well = watched.hung().is_none();
                let signal = watched.next_signal(stop);
                if let Some(why) = watched.hung().filter(|_| was_well) {
                    watched.take(Heard::Hung(why), hear);
                }
                // What has ended meanwhile cannot be sent anything.
                match (signal, group) {
                    (Some(Signal::KILL), Some(group)) => _ = kill_process_group(group, Signal::KILL),
                    (Some(Signal::TERM), Some(group)) => {
                        watched.kill_ranks_here();
                        _ = kill_process(group, Signal::TERM);
                    }
                    (Some(signal), Some(group)) => _ = kill_process(group, signal),
                    _ => {}
                }
            }
        }
    }
}
