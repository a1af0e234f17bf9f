//! Attempt after attempt, until the job is done or another one would not help.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use segue_door::token;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use super::attempt;
use super::command::Start;
use super::hearing::{FirstFailure, Heard};
use super::hosts::Host;
use super::outcome::{Attempt, Limits};
use super::policy::{Next, Policy};
use super::pulse::{ATTEMPT, Address, VARIABLE};
use super::trials::Trials;
use crate::ClusterError;
use crate::exit_code::{BAD_CONFIG, PREEMPTED};

/// How often a wait between attempts asks whether to stop.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How long the run may be held by what an attempt has left behind. Some file servers keep the lock of a host that died until it is back.
const LET_GO_WITHIN: Duration = Duration::from_secs(4 * 3600);
/// After which time of that wait people are told of it.
const TELL_AFTER: Duration = Duration::from_secs(20);
/// Bytes of answers that the system keeps for a rank. It is given one a second.
const UNREAD: u32 = 4096;
/// Any port of another host: the system is asked which way leads there, and nothing is sent.
const ANY_PORT: u16 = 9;

/// What is to be kept running.
pub struct Job<'a> {
    /// What an attempt starts, on all hosts, with as many ranks as are wanted.
    pub start: Start,
    /// No attempt is made with fewer ranks.
    pub min_ranks: usize,
    /// The address that ranks reach this host by; found out where it is not given.
    pub listen: Option<IpAddr>,
    /// When an attempt counts as hung.
    pub limits: Limits,
    /// When there is another one.
    pub policy: Policy,
    /// Number of the attempt before the first.
    pub before: u64,
    /// Whether so many ranks can share the work.
    pub can_share: &'a dyn Fn(usize) -> bool,
    /// The step of the newest checkpoint.
    pub newest: &'a dyn Fn() -> u64,
    /// Whether no process trains in the run.
    pub is_free: &'a dyn Fn() -> bool,
    /// Whether to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// What happens to a job.
pub enum Event<'a> {
    /// An attempt begins.
    Begins {
        /// Its number.
        attempt: u64,
        /// How many ranks it has.
        ranks: usize,
        /// On which hosts; none for this one alone.
        hosts: &'a [Host],
        /// The step of the newest checkpoint.
        step: u64,
    },
    /// Something is heard of it.
    Heard(&'a Heard),
    /// It has ended.
    Ended(&'a Report),
    /// What it has left behind holds the run, and is waited for.
    Held,
    /// There are no hosts for another one.
    NoHosts(&'a str),
}

/// What there is to know of an attempt that has ended.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its number, from 1.
    pub attempt: u64,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How many ranks it had.
    pub world_size: usize,
    /// On which hosts, with their ranks; none for this one alone.
    pub hosts: Vec<(String, usize)>,
    /// What was started.
    pub command: Vec<String>,
    /// The step of the newest checkpoint before it.
    pub from_step: u64,
    /// The step of the newest checkpoint after it.
    pub to_step: u64,
    /// How it ended.
    #[serde(flatten)]
    pub end: Attempt,
    /// What follows.
    pub next: String,
}

/// How it ended for good.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code.
    pub code: i32,
    /// Why there is no other attempt, where the job is not done.
    pub why: Option<String>,
    /// Attempts made now.
    pub attempts: u64,
    /// The last line of the last attempt's stdout.
    pub result: Option<String>,
    /// The rank that failed first in the last attempt.
    pub first: Option<FirstFailure>,
}

/// Runs `job` to its end. `hear` is told of all that happens.
///
/// # Errors
///
/// The starter cannot be started, or there is no way for ranks to reach this process.
pub fn supervise(job: &Job, hear: &mut dyn FnMut(Event)) -> Result<Outcome, ClusterError> {
    let listening = |source| ClusterError::Supervisor { source };
    // A connection for each rank. Where no more are to be had, ranks beyond are not heard of, and the job says so.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    // Ranks are answered by a thread of its own: this one may have to wait for whoever reads what it prints.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(listening)?;
    runtime.block_on(async {
        let address = own_address(job).map_err(listening)?;
        let listener = segue_door::listen(SocketAddr::new(address, 0), UNREAD).map_err(listening)?;
        let listener = Arc::new(listener);
        let at = listener.local_addr().map_err(listening)?;
        let trials =
            Trials::new(&job.start.hosts, job.start.ranks, job.min_ranks, &job.policy, (job.newest)());
        Supervisor { job, listener, at, trials }.run(hear).await
    })
}

struct Supervisor<'a> {
    job: &'a Job<'a>,
    listener: Arc<TcpListener>,
    at: SocketAddr,
    trials: Trials<'a>,
}

impl Supervisor<'_> {
    async fn run(&mut self, hear: &mut dyn FnMut(Event<'_>)) -> Result<Outcome, ClusterError> {
        let mut outcome = Outcome { code: 0, why: None, attempts: 0, result: None, first: None };
        loop {
            let Some(hosts_and_ranks) = self.trials.choose(self.job.can_share) else {
                let least = self.job.min_ranks;
                outcome.why = Some(format!("no number of ranks from {least} on can share the work"));
                outcome.code = if outcome.code == 0 { BAD_CONFIG } else { outcome.code };
                hear(Event::NoHosts(outcome.why.as_deref().unwrap_or_default()));
                return Ok(outcome);
            };
            outcome.attempts += 1;
            let (report, next) =
                self.attempt(hosts_and_ranks, outcome.attempts, &mut outcome.result, hear).await?;
            outcome.code = report.end.code;
            outcome.first = report.end.first.clone();
            hear(Event::Ended(&report));
            match next {
                Next::Done => return Ok(outcome),
                Next::Stopped => {
                    outcome.code = PREEMPTED;
                    return Ok(outcome);
                }
                Next::GiveUp { code, why } => {
                    outcome.code = code;
                    outcome.why = Some(why);
                    return Ok(outcome);
                }
                Next::Restart(wait) => {
                    // Ranks that are out of sight may still write into the run.
                    if self.wait(wait.max(report.end.lease_left)).await || self.wait_for_the_run(hear).await {
                        outcome.code = PREEMPTED;
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    /// Waits; true where the job is to stop meanwhile.
    async fn wait(&self, wait: Duration) -> bool {
        let until = tokio::time::Instant::now() + wait;
        while tokio::time::Instant::now() < until {
            if (self.job.stop)() {
                return true;
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        (self.job.stop)()
    }

    /// Waits until no rank of the attempt before holds the run any more; true where the job is to stop meanwhile. A process that was killed
    /// may take long to end, and a file server to notice that a host is gone.
    async fn wait_for_the_run(&self, hear: &mut dyn FnMut(Event<'_>)) -> bool {
        let (begun, mut told) = (tokio::time::Instant::now(), false);
        while !(self.job.is_free)() && begun.elapsed() < LET_GO_WITHIN {
            if !told && begun.elapsed() > TELL_AFTER {
                hear(Event::Held);
                told = true;
            }
            if self.wait(ASK_EVERY).await {
                return true;
            }
        }
        false
    }

    async fn attempt(
        &mut self,
        (hosts, ranks): (Vec<Host>, usize),
        number: u64,
        result: &mut Option<String>,
        hear: &mut dyn FnMut(Event<'_>),
    ) -> Result<(Report, Next), ClusterError> {
        let job = self.job;
        let (number, from_step) = (job.before + number, (job.newest)());
        // What tells ranks of this attempt from whoever else can reach the port.
        let token = token().map_err(|source| ClusterError::Supervisor { source })?;
        let address = Address { at: self.at, token: token.clone(), lease: job.limits.silence };
        let mut start = Start { hosts, ranks, ..job.start.clone() };
        start.variables.extend([(VARIABLE, address.text()), (ATTEMPT, number.to_string())]);
        hear(Event::Begins { attempt: number, ranks, hosts: &start.hosts, step: from_step });
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut listen = |heard: &Heard| {
            if let Heard::Result(line) = heard {
                *result = Some(line.clone());
            }
            hear(Event::Heard(heard));
        };
        let end = attempt::run(&start, &self.listener, &token, &job.limits, job.stop, &mut listen).await;
        let end =
            end.map_err(|source| ClusterError::Start { program: start.words().swap_remove(0), source })?;
        let to_step = (job.newest)();
        let next = self.trials.after(&end, to_step);
        let report = Report {
            attempt: number,
            began,
            world_size: ranks,
            hosts: start.hosts.iter().map(|host| (host.name.clone(), host.slots)).collect(),
            command: start.words(),
            from_step,
            to_step,
            end,
            next: next.to_string(),
        };
        Ok((report, next))
    }
}

/// The address of this host by which the ranks of `job` reach it: the loopback where all of them are here.
fn own_address(job: &Job) -> io::Result<IpAddr> {
    if let Some(address) = job.listen {
        return Ok(address);
    }
    // Slurm's names of nodes need not be those of hosts.
    let here = [crate::host_name(), "localhost".into(), std::env::var("SLURMD_NODENAME").unwrap_or_default()];
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_string();
    let is_here = |host: &&Host| here.iter().any(|here| *here == host.name || *here == short(&host.name));
    let mut result = Ok(Ipv4Addr::LOCALHOST.into());
    for host in job.start.hosts.iter().filter(|host| !is_here(host)) {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        result = socket.connect((host.name.as_str(), ANY_PORT)).and_then(|()| Ok(socket.local_addr()?.ip()));
        // The way to a name of this host itself leads nowhere else.
        if result.as_ref().is_ok_and(|address| !address.is_loopback()) {
            break;
        }
    }
    result
}
