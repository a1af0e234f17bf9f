//! A pool of child processes: many jobs, some at a time, each a sequence of commands.
//!
//! A worker thread takes jobs in order and owns the child it has started. The calling thread hears of what
//! happens and asks whether to stop; then no further child starts, and those that run get SIGTERM, which
//! training answers with a checkpoint. Children end with the process that started them, however that ends.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often the calling thread asks whether to stop while nothing happens.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; 128 + N where signal N ended it.
    pub code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
}

/// What the calling thread hears of.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<R> {
    /// A job has begun.
    Started(usize),
    /// A command of a job has ended.
    Progress(usize),
    /// A job is over, with what its work returned.
    Finished(usize, R),
}

/// What the work of one job starts its commands with.
pub struct Runner<'a, R> {
    job: usize,
    children: &'a Children,
    events: &'a mpsc::Sender<Event<R>>,
}

/// Ids of the processes that run now, or none any more.
#[derive(Default)]
struct Children {
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    ids: BTreeSet<i32>,
    stopping: bool,
}

impl<R> Runner<'_, R> {
    /// Runs `command` to its end, its stderr going to `log`. `None` where the pool is stopping and the
    /// command was not started.
    pub fn run(&self, command: &mut Command, log: File) -> io::Result<Option<Ended>> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let Some(mut child) = self.children.start(command)? else { return Ok(None) };
        let mut stdout = Vec::new();
        let read = child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stdout));
        let status = self.children.wait(&mut child)?;
        read?;
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        // The calling thread listens until all workers are done.
        let _ = self.events.send(Event::Progress(self.job));
        Ok(Some(Ended { code, stdout: String::from_utf8_lossy(&stdout).into_owned() }))
    }
}

impl Children {
    /// Starting and stopping exclude each other: no child can be missed.
    fn start(&self, command: &mut Command) -> io::Result<Option<Child>> {
        let mut running = self.lock();
        if running.stopping {
            return Ok(None);
        }
        end_with_parent(command);
        let child = command.spawn()?;
        running.ids.insert(child.id() as i32);
        Ok(Some(child))
    }

    /// Waits, and forgets the id in the same breath as the system may give it away.
    fn wait(&self, child: &mut Child) -> io::Result<std::process::ExitStatus> {
        wait_without_reaping(child.id() as i32)?;
        let mut running = self.lock();
        running.ids.remove(&(child.id() as i32));
        child.wait()
    }

    fn stop(&self) {
        let mut running = self.lock();
        running.stopping = true;
        for id in &running.ids {
            // SAFETY: the call has no conditions; the child is ours and not yet reaped.
            unsafe { libc::kill(*id, libc::SIGTERM) };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Lets the child die with the thread that starts it: a pool that is killed leaves nothing behind that would
/// write to the folders of the next.
fn end_with_parent(command: &mut Command) {
    let kill_with_parent = || {
        // SAFETY: prctl is safe to call between fork and exec; the option takes a signal number.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(kill_with_parent) };
}

/// Waits until the process has ended, and leaves its id taken.
fn wait_without_reaping(id: i32) -> io::Result<()> {
    loop {
        // SAFETY: all zeros is a valid siginfo_t, and the call writes no more than one.
        let result = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, id as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        match (result, io::Error::last_os_error()) {
            (0, _) => return Ok(()),
            (_, error) if error.kind() == io::ErrorKind::Interrupted => {}
            (_, error) => return Err(error),
        }
    }
}

/// Works off jobs 0 to `jobs` - 1, `workers` at a time, in order. `stop` is asked now and then; `hear` is told
/// what happens, and both run on the calling thread. Returns when every job that was begun is over.
pub fn run_all<R: Send>(
    jobs: usize,
    workers: usize,
    stop: &dyn Fn() -> bool,
    work: &(dyn Fn(usize, &Runner<R>) -> R + Sync),
    hear: &mut dyn FnMut(Event<R>),
) {
    let (children, next) = (Children::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        for _ in 0..workers.clamp(1, jobs.max(1)) {
            let (sender, children, next) = (sender.clone(), &children, &next);
            scope.spawn(move || {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs || children.lock().stopping {
                        return;
                    }
                    let _ = sender.send(Event::Started(job));
                    let result = work(job, &Runner { job, children, events: &sender });
                    let _ = sender.send(Event::Finished(job, result));
                }
            });
        }
        drop(sender);
        let mut stopped = false;
        loop {
            match events.recv_timeout(ASK_EVERY) {
                Ok(event) => hear(event),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !stopped && stop() {
                stopped = true;
                children.stop();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run<R>(runner: &Runner<R>, script: &str) -> Option<Ended> {
        runner.run(&mut shell(script), File::create("/dev/null").unwrap()).unwrap()
    }

    #[test]
    fn every_job_runs_once_and_failures_stop_nobody() {
        let mut codes = vec![None; 7];
        let work = |job: usize, runner: &Runner<i32>| {
            assert_eq!(run(runner, &format!("echo {job}")).unwrap().stdout, format!("{job}\n"));
            run(runner, &format!("[ {job} -ne 3 ] || exit 65; [ {job} -ne 4 ] || kill -9 $$")).unwrap().code
        };
        let mut progress = 0;
        run_all(7, 3, &|| false, &work, &mut |event| match event {
            Event::Started(job) => assert_eq!(codes[job], None),
            Event::Progress(_) => progress += 1,
            Event::Finished(job, code) => assert_eq!(codes[job].replace(code), None),
        });
        assert_eq!(codes, [0, 0, 0, 65, 137, 0, 0].map(Some));
        assert_eq!(progress, 14);
    }

    #[test]
    fn no_more_children_run_at_once_than_there_are_workers() {
        // Each child holds one of two places while it lives; a third would find none.
        let dir = std::env::temp_dir().join(format!("segue-pool-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = format!(
            "cd {} && (mkdir a 2>/dev/null && p=a || mkdir b 2>/dev/null && p=${{p:-b}} || exit 9; rmdir $p)",
            dir.display()
        );
        let mut results = Vec::new();
        let work = |_: usize, runner: &Runner<i32>| run(runner, &script).unwrap().code;
        run_all(20, 2, &|| false, &work, &mut |event| {
            if let Event::Finished(_, code) = event {
                results.push(code);
            }
        });
        assert_eq!(results, vec![0; 20]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn stopping_ends_children_and_starts_no_more() {
        let (started, mut results) = (Cell::new(0), Vec::new());
        let work = |_: usize, runner: &Runner<Vec<Option<i32>>>| {
            let first = run(runner, "trap 'exit 75' TERM; echo; while :; do sleep 0.05; done");
            vec![first.map(|e| e.code), run(runner, "true").map(|e| e.code)]
        };
        run_all(5, 2, &|| started.get() == 2, &work, &mut |event| match event {
            Event::Started(_) => started.set(started.get() + 1),
            Event::Progress(_) => {}
            Event::Finished(_, codes) => results.push(codes),
        });
        // A child that had not set its trap yet dies of the signal; either way nothing follows.
        assert_eq!((started.get(), results.len()), (2, 2));
        for codes in results {
            assert!([None, Some(75), Some(143)].contains(&codes[0]) && codes[1].is_none(), "{codes:?}");
        }
    }
}
