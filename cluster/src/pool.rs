//! A pool of child processes: many jobs, some at a time, each a sequence of commands.
//!
//! All of it runs on the calling thread: jobs take turns where they wait for a child. While children run, the pool
//! asks whether to stop; then no further child starts, and those that run get SIGTERM, which training answers with
//! a checkpoint. Children end with the process that started them, however that ends.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::ClusterError;

/// How often the pool asks whether to stop while a child runs.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; 128 + N where signal N ended it.
    pub code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
}

/// What the caller hears of.
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
    pool: &'a Pool<'a, R>,
}

/// What all jobs share.
struct Pool<'a, R> {
    next_job: Cell<usize>,
    stopping: Cell<bool>,
    stop: &'a dyn Fn() -> bool,
    hear: &'a dyn Fn(Event<R>),
}

impl<R> Runner<'_, R> {
    /// Runs `command` to its end, its stderr going to `log`. `None` where the pool is stopping and the
    /// command was not started. Dropped before that, it kills the child.
    pub async fn run(&self, command: Command, log: File) -> io::Result<Option<Ended>> {
        if self.pool.is_stopping() {
            return Ok(None);
        }
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        end_with_parent(&mut command);
        let mut child = command.spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(id as i32));
        let mut ended = pin!(async move {
            let mut stdout = Vec::new();
            if let Some(mut pipe) = child.stdout.take() {
                pipe.read_to_end(&mut stdout).await?;
            }
            Ok::<_, io::Error>((child.wait().await?, stdout))
        });
        let mut told = false;
        let (status, stdout) = loop {
            match timeout(ASK_EVERY, &mut ended).await {
                Ok(ended) => break ended?,
                // The future reaps the child in the poll that completes it, so the id is still the child's.
                Err(_) if !told && self.pool.is_stopping() => {
                    told = true;
                    // It fails where the child cannot be signalled any more; then it ends by itself.
                    let _ = id.map(|id| kill_process(id, Signal::TERM));
                }
                Err(_) => {}
            }
        };
        (self.pool.hear)(Event::Progress(self.job));
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        Ok(Some(Ended { code, stdout: String::from_utf8_lossy(&stdout).into_owned() }))
    }
}

impl<R> Pool<'_, R> {
    /// Whether `stop` has ever said so.
    fn is_stopping(&self) -> bool {
        if !self.stopping.get() {
            self.stopping.set((self.stop)());
        }
        self.stopping.get()
    }

    /// Takes jobs in order, one after the other.
    async fn work_off(&self, jobs: usize, work: &impl AsyncFn(usize, &Runner<'_, R>) -> R) {
        while self.next_job.get() < jobs && !self.is_stopping() {
            let job = self.next_job.replace(self.next_job.get() + 1);
            (self.hear)(Event::Started(job));
            let result = work(job, &Runner { job, pool: self }).await;
            (self.hear)(Event::Finished(job, result));
        }
    }
}

/// Lets the child die with the thread that starts it, which is the caller's: a pool that is killed leaves nothing
/// behind that would write to the folders of the next.
fn end_with_parent(command: &mut tokio::process::Command) {
    let parent = std::process::id();
    let kill_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the call above sends no signal.
        let lives = getppid().is_some_and(|now| now.as_raw_nonzero().get().unsigned_abs() == parent);
        if lives { Ok(()) } else { Err(Errno::CHILD.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(kill_with_parent) };
}

/// Waits for all futures, side by side.
async fn all(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut open: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        open.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if open.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Works off jobs 0 to `jobs` - 1, `workers` at a time, in order. `stop` is asked now and then; `hear` is told
/// what happens. All three closures run on the calling thread; while one blocks, the other jobs wait. Returns when
/// every job that was begun is over.
pub fn run_all<R>(
    jobs: usize,
    workers: usize,
    stop: &dyn Fn() -> bool,
    work: impl AsyncFn(usize, &Runner<'_, R>) -> R,
    hear: &mut dyn FnMut(Event<R>),
) -> Result<(), ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ClusterError::Pool { source })?;
    let hear = RefCell::new(hear);
    let hear = |event| (hear.borrow_mut())(event);
    let pool = Pool { next_job: Cell::new(0), stopping: Cell::new(false), stop, hear: &hear };
    runtime.block_on(all((0..workers.clamp(1, jobs.max(1))).map(|_| pool.work_off(jobs, &work))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;
    use std::time::Instant;

    use super::*;

    /// Longest wait for something that has to happen.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn run<R>(runner: &Runner<'_, R>, script: &str) -> Option<Ended> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        runner.run(command, File::create("/dev/null").unwrap()).await.unwrap()
    }

    /// How one script ends in a pool that nobody stops.
    fn run_one(script: &str) -> Ended {
        let mut ended = None;
        let work = async |_: usize, runner: &Runner<'_, Option<Ended>>| run(runner, script).await;
        run_all(1, 1, &|| false, work, &mut |event| {
            if let Event::Finished(_, result) = event {
                ended = result;
            }
        })
        .unwrap();
        ended.unwrap()
    }

    /// Waits until the process whose id the file holds has ended. A zombie has.
    fn wait_for_end(id_file: &Path) {
        let id = fs::read_to_string(id_file).unwrap();
        let stat = format!("/proc/{}/stat", id.trim());
        let since = Instant::now();
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(since.elapsed() < PATIENCE, "process {id} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A script that never ends and says so in a file with its process id, whole from the first moment.
    fn endless(id_file: &Path) -> String {
        let path = id_file.display();
        format!("echo $$ > {path}.new; mv {path}.new {path}; while :; do sleep 0.05; done")
    }

    #[test]
    fn every_job_runs_once_and_failures_stop_nobody() {
        let mut codes = vec![None; 7];
        let work = async |job: usize, runner: &Runner<'_, i32>| {
            assert_eq!(run(runner, &format!("echo {job}")).await.unwrap().stdout, format!("{job}\n"));
            let script = format!("[ {job} -ne 3 ] || exit 65; [ {job} -ne 4 ] || kill -9 $$");
            run(runner, &script).await.unwrap().code
        };
        let mut progress = 0;
        run_all(7, 3, &|| false, work, &mut |event| match event {
            Event::Started(job) => assert_eq!(codes[job], None),
            Event::Progress(_) => progress += 1,
            Event::Finished(job, code) => assert_eq!(codes[job].replace(code), None),
        })
        .unwrap();
        assert_eq!(codes, [0, 0, 0, 65, 137, 0, 0].map(Some));
        assert_eq!(progress, 14);
    }

    #[test]
    fn no_more_children_run_at_once_than_there_are_workers() {
        // Each child holds one of two places while it lives; a third would find none.
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "cd {} && (mkdir a 2>/dev/null && p=a || mkdir b 2>/dev/null && p=${{p:-b}} || exit 9; rmdir $p)",
            dir.path().display()
        );
        let mut results = Vec::new();
        let work = async |_: usize, runner: &Runner<'_, i32>| run(runner, &script).await.unwrap().code;
        run_all(20, 2, &|| false, work, &mut |event| {
            if let Event::Finished(_, code) = event {
                results.push(code);
            }
        })
        .unwrap();
        assert_eq!(results, vec![0; 20]);
    }

    #[test]
    fn jobs_run_side_by_side() {
        // Each child waits for a file that the other one writes.
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let mut results = Vec::new();
        let work = async |job: usize, runner: &Runner<'_, i32>| {
            let other = 1 - job;
            let script = format!("> {at}/{job}; until [ -e {at}/{other} ]; do sleep 0.01; done");
            run(runner, &script).await.unwrap().code
        };
        run_all(2, 2, &|| false, work, &mut |event| {
            if let Event::Finished(_, code) = event {
                results.push(code);
            }
        })
        .unwrap();
        assert_eq!(results, [0, 0]);
    }

    #[test]
    fn a_child_that_closes_its_stdout_is_waited_for() {
        let ended = run_one("echo all; exec >&-; sleep 0.3; exit 3");
        assert_eq!(ended, Ended { code: 3, stdout: "all\n".into() });
    }

    #[test]
    fn stopping_ends_children_and_starts_no_more() {
        // The exit code of a child is 74 and one more for each SIGTERM.
        let dir = tempfile::tempdir().unwrap();
        let ready = |job: usize| dir.path().join(job.to_string());
        let (mut started, mut results) = (0, Vec::new());
        let work = async |job: usize, runner: &Runner<'_, [Option<i32>; 2]>| {
            let script = format!(
                "code=74; trap 'code=$((code + 1))' TERM; > {}; \
                 while [ $code = 74 ]; do sleep 0.05; done; for i in 1 2 3 4 5 6; do sleep 0.05; done; exit $code",
                ready(job).display()
            );
            let first = run(runner, &script).await;
            [first.map(|ended| ended.code), run(runner, "true").await.map(|ended| ended.code)]
        };
        let stop = || ready(0).exists() && ready(1).exists();
        run_all(5, 2, &stop, work, &mut |event| match event {
            Event::Started(_) => started += 1,
            Event::Progress(_) => {}
            Event::Finished(_, codes) => results.push(codes),
        })
        .unwrap();
        assert_eq!(started, 2);
        assert_eq!(results, [[Some(75), None]; 2]);
    }

    #[test]
    fn a_panic_of_the_caller_kills_the_children() {
        let dir = tempfile::tempdir().unwrap();
        let id_file = dir.path().join("id");
        let work = async |job: usize, runner: &Runner<'_, ()>| {
            let wait = format!("until [ -e {} ]; do sleep 0.01; done", id_file.display());
            run(runner, &if job == 0 { endless(&id_file) } else { wait }).await;
        };
        let result = catch_unwind(AssertUnwindSafe(|| {
            run_all(2, 2, &|| false, work, &mut |event| assert_ne!(event, Event::Progress(1)))
        }));
        assert!(result.is_err());
        wait_for_end(&id_file);
    }

    #[test]
    #[ignore = "started by the next test, in a process of its own"]
    fn program() {
        run_one(&endless(Path::new(&std::env::var("SEGUE_TEST_POOL").unwrap())));
    }

    #[test]
    fn children_of_a_pool_that_is_killed_end_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let id_file = dir.path().join("id");
        let mut pool = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pool::tests::program", "--ignored"])
            .env("SEGUE_TEST_POOL", &id_file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while !id_file.exists() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        pool.kill().unwrap();
        pool.wait().unwrap();
        wait_for_end(&id_file);
    }
}
