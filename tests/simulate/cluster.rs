//! A job in one process: a supervisor, and ranks that it starts, watches and starts again.
//!
//! What trains is what trains elsewhere, over real files; what decides is what decides in `segue launch` ([`Watched`], [`Trials`]). What
//! starts processes, sends signals and carries what ranks say is the simulation's.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use segue_cluster::launch::hearing::Heard;
use segue_cluster::launch::hosts::Host;
use segue_cluster::launch::outcome::{Attempt, Limits, Stall};
use segue_cluster::launch::policy::{Next, Policy};
use segue_cluster::launch::pulse::{Beat, EVERY, Hello};
use segue_cluster::launch::trials::Trials;
use segue_cluster::launch::watched::Watched;
use segue_collectives::Communicator;
use segue_collectives::simulated::{self, Faults, Link, Simulated};
use segue_configs::Config;
use segue_engine::checkpoint::{CHECKPOINTS, list};
use segue_engine::{Event, check_ranks};
use segue_world::{Killed, enter, now, sleep};

use crate::plan::Kind;
use crate::plants::Plant;
use crate::schedule::{Process, ProcessState, World};

const LOOK_EVERY: Duration = Duration::from_millis(200);
const LIMITS: Limits = Limits {
    start: Duration::from_secs(60),
    silence: Duration::from_secs(8),
    stall: Stall::Learnt,
    grace: Duration::from_secs(60),
};
/// How long the run may be held by what an attempt has left behind, as for `segue launch`.
const LET_GO_WITHIN: Duration = Duration::from_secs(4 * 3600);
/// Sessions of a supervisor: whoever asks a job to stop starts it again.
const SESSIONS: usize = 8;
/// How a process that was killed is told of by its starter.
const KILLED: i32 = 137;
const PANICKED: i32 = 70;
/// With which code a rank ends that finds the run taken, and the file that tells.
const HELD: u8 = 73;
const LOCK: &str = "lock";

/// What is to be run.
pub struct Job<'a> {
    pub config: &'a Config,
    pub ranks: usize,
    pub min_ranks: usize,
    /// Hosts beyond those that are needed.
    pub spare: usize,
    pub plant: Plant,
}

/// How it ended: the exit code of the supervisor, and how many attempts there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub code: i32,
    pub attempts: u64,
}

/// What ranks say to the supervisor.
type Mail = Arc<Mutex<Vec<Heard>>>;

struct Supervisor<'a> {
    job: &'a Job<'a>,
    world: &'a Arc<World>,
    mail: Mail,
    threads: Vec<JoinHandle<()>>,
    /// The newest step of which a rank was told that its checkpoint is written.
    told: Arc<Mutex<u64>>,
}

/// Runs a job to its end, on the calling thread.
pub fn run(job: &Job, world: &Arc<World>) -> End {
    let (_, main) = world.new_process(ProcessState::default());
    let mut supervisor =
        Supervisor { job, world, mail: Mail::default(), threads: Vec::new(), told: Arc::default() };
    let end = enter(world.clone(), main, || {
        let end = supervisor.sessions();
        supervisor.clear_away();
        end
    });
    for thread in supervisor.threads {
        thread.join().expect("what a rank panics with is caught");
    }
    end
}

impl Supervisor<'_> {
    fn sessions(&mut self) -> End {
        let mut end = End { code: 75, attempts: 0 };
        for _ in 0..SESSIONS {
            end.code = self.supervise(&mut end.attempts);
            if end.code != 75 {
                break;
            }
            // Somebody asked it to stop, and starts it again.
            self.world.state().asked = false;
        }
        end
    }

    /// What `segue launch` does.
    fn supervise(&mut self, attempts: &mut u64) -> i32 {
        let hosts: Vec<Host> = (0..self.job.ranks + self.job.spare)
            .map(|number| Host { name: format!("h{number}"), slots: 1 })
            .collect();
        let policy = Policy::default();
        let mut trials = Trials::new(&hosts, self.job.ranks, self.job.min_ranks, &policy, self.newest());
        loop {
            let can_share = |ranks: usize| check_ranks(&self.job.config.train, ranks).is_ok();
            let Some((hosts, ranks)) = trials.choose(&can_share) else { return 78 };
            *attempts += 1;
            let attempt = self.attempt(&hosts, ranks);
            let next = trials.after(&attempt, self.newest());
            self.judge(&attempt);
            match next {
                Next::Done => return 0,
                Next::Stopped => return 75,
                Next::GiveUp { code, .. } => return code,
                Next::Restart(wait) => {
                    sleep(wait.max(attempt.lease_left));
                    let until = now() + LET_GO_WITHIN;
                    while self.is_held() && now() < until {
                        sleep(LOOK_EVERY);
                    }
                }
            }
        }
    }

    fn attempt(&mut self, hosts: &[Host], ranks: usize) -> Attempt {
        {
            let mut state = self.world.state();
            state.attempt += 1;
            state.suffered.clear();
            let attempt = state.attempt;
            state.tell(|| format!("attempt {attempt} begins with {ranks} ranks"));
        }
        self.look_at_the_disk();
        self.mail().clear();
        let mut watched = Watched::new(&LIMITS, hosts, ranks);
        let processes = self.start(hosts, ranks);
        let mut said = vec![false; ranks];
        let mut broken = None;
        loop {
            sleep(LOOK_EVERY);
            self.look_at_the_disk();
            let code = self.starter(&processes, &mut said, &mut broken);
            let mail = std::mem::take(&mut *self.mail());
            mail.into_iter().for_each(|heard| watched.take(heard, &mut |_| {}));
            if let Some(code) = code {
                let attempt = watched.attempt(code);
                let why = attempt.first.as_ref().map(|first| format!("rank {}: {}", first.rank, first.what));
                self.world
                    .state()
                    .tell(|| format!("it ends with {}, hung: {:?}, {why:?}", attempt.code, attempt.hung));
                return attempt;
            }
            let asked = self.world.state().asked;
            match watched.next_signal(&|| asked) {
                Some(Signal::USR1) => self.each(&processes, |process| process.asked = true),
                Some(_) => self.kill(&processes),
                None => {}
            }
        }
    }

    /// Starts ranks, as `mpirun` does.
    fn start(&mut self, hosts: &[Host], ranks: usize) -> Vec<Process> {
        let attempt = self.world.state().attempt;
        let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
        let begin = |rank: usize| {
            let process = ProcessState { attempt, rank: Some(rank), ..ProcessState::default() };
            self.world.new_process(process)
        };
        let started: Vec<(Process, usize)> = (0..ranks).map(begin).collect();
        let processes: Vec<Process> = started.iter().map(|(process, _)| *process).collect();
        let links =
            (0..ranks).map(|rank| Faults { link: Some(self.link(rank, &processes)), dies_at_call: None });
        let comms = simulated::world_with(links.collect());
        for (rank, ((process, thread), comm)) in started.into_iter().zip(comms).enumerate() {
            let rank = Rank {
                process,
                world: self.world.clone(),
                mail: self.mail.clone(),
                told: self.told.clone(),
                config: self.job.config.clone(),
                plant: self.job.plant,
                step: AtomicU64::new(0),
                hello: Hello {
                    token: String::new(),
                    rank,
                    host: names.get(rank).cloned().unwrap_or_default(),
                    process: 0,
                    identity: String::new(),
                },
            };
            let world = self.world.clone();
            self.threads.push(thread::spawn(move || enter(world, thread, || rank.run(comm))));
        }
        processes
    }

    /// What becomes of the messages that `rank` sends.
    fn link(&self, rank: usize, processes: &[Process]) -> Link {
        let (world, processes) = (self.world.clone(), processes.to_vec());
        Arc::new(move |peer| {
            let mut state = world.state();
            let is_cut = state.processes[processes[rank]].cut || state.processes[processes[peer]].cut;
            (!is_cut).then(|| Duration::from_micros(state.draws.below(3_000)))
        })
    }

    /// What `mpirun` does: it ends all that it can reach once a rank fails, and ends when none is left.
    fn starter(
        &self,
        processes: &[Process],
        said: &mut [bool],
        broken: &mut Option<(Instant, i32)>,
    ) -> Option<i32> {
        for (rank, process) in processes.iter().enumerate() {
            let state = self.world.state().processes[*process].clone();
            if state.cut || said[rank] || !self.world.is_over(*process) {
                continue;
            }
            said[rank] = true;
            let code = state.exit.unwrap_or(KILLED);
            self.mail().push(Heard::Left(rank));
            if code != 0 && broken.is_none() {
                *broken = Some((now(), code));
            }
        }
        if broken.is_some_and(|(since, _)| now() - since > LOOK_EVERY) {
            self.kill(processes);
        }
        let is_over =
            |process: &Process| self.world.state().processes[*process].cut || self.world.is_over(*process);
        processes.iter().all(is_over).then(|| broken.map_or(0, |(_, code)| code))
    }

    fn each(&self, processes: &[Process], mut work: impl FnMut(&mut ProcessState)) {
        let mut state = self.world.state();
        processes.iter().for_each(|process| work(&mut state.processes[*process]));
    }

    /// Kills what can be reached.
    fn kill(&self, processes: &[Process]) {
        let mut state = self.world.state();
        for process in processes {
            if !state.processes[*process].cut {
                state.kill(*process);
            }
        }
    }

    /// What lies there where the power has failed.
    fn look_at_the_disk(&self) {
        let mut state = self.world.state();
        if state.dark {
            state.dark = false;
            state.tell(|| "the power comes back".into());
            let state = &mut *state;
            state.disk.lose_power(&mut state.draws);
        }
    }

    /// An attempt that nothing befell has to end well; one that the system refused something, well or with what it was refused.
    fn judge(&self, attempt: &Attempt) {
        let mut state = self.world.state();
        let is_refusal = |kind: &Kind| matches!(kind, Kind::Refuse { .. });
        let is_harmless = |kind: &Kind| matches!(kind, Kind::AskToStop | Kind::Slow(_));
        let may_end_with: &[i32] = match &state.suffered {
            all if all.iter().all(is_harmless) => &[0, 75],
            all if all.iter().all(|kind| is_harmless(kind) || is_refusal(kind)) => &[0, 73, 74, 75],
            _ => return,
        };
        // Of a host that is out of reach a process that stands still holds the run for ever.
        let taken = attempt.code == i32::from(HELD) && self.is_held();
        if !taken && !may_end_with.contains(&attempt.code) {
            let why = format!("{:?}, {:?}", attempt.first, attempt.hung);
            let (suffered, whereabouts) = (state.suffered.clone(), state.whereabouts());
            state.violation(format!(
                "after {suffered:?} an attempt ended with {}: {why}\n{whereabouts}",
                attempt.code
            ));
        }
    }

    /// Ends all that is left, so that no thread outlives its history.
    fn clear_away(&self) {
        let all = self.world.state().processes.len();
        for process in 1..all {
            self.world.state().kill(process);
        }
        while (1..all).any(|process| !self.world.is_over(process)) {
            sleep(LOOK_EVERY);
        }
    }

    fn is_held(&self) -> bool {
        let lock = File::open(Path::new(&self.job.config.run.dir).join(LOCK));
        lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    }

    fn newest(&self) -> u64 {
        let checkpoints = list(&Path::new(&self.job.config.run.dir).join(CHECKPOINTS)).unwrap_or_default();
        checkpoints.last().map_or(0, |(step, _)| *step)
    }

    fn mail(&self) -> std::sync::MutexGuard<'_, Vec<Heard>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank's process.
struct Rank {
    process: Process,
    world: Arc<World>,
    mail: Mail,
    told: Arc<Mutex<u64>>,
    config: Config,
    plant: Plant,
    hello: Hello,
    /// The last step that it made.
    step: AtomicU64,
}

impl Rank {
    fn run(self, comm: Simulated) {
        let this = Arc::new(self);
        let code = catch_unwind(AssertUnwindSafe(|| this.train(comm))).unwrap_or_else(|payload| {
            if payload.is::<Killed>() {
                return KILLED;
            }
            let what = payload.downcast_ref::<i32>().copied();
            what.unwrap_or_else(|| {
                let what = payload.downcast_ref::<String>().cloned();
                let what = what.or_else(|| payload.downcast_ref::<&str>().map(|what| what.to_string()));
                this.world.state().violation(format!(
                    "rank {} panics: {}",
                    this.hello.rank,
                    what.unwrap_or_default()
                ));
                PANICKED
            })
        });
        let mut state = this.world.state();
        if !state.processes[this.process].killed {
            state.processes[this.process].exit = Some(code);
        }
        // With its main thread a process ends.
        state.kill(this.process);
    }

    fn train(self: &Arc<Self>, comm: Simulated) -> i32 {
        self.say(Some(Heard::Joined(self.hello.clone())));
        let pulse = self.clone();
        let _pulse = segue_world::spawn("pulse", move || pulse.beat());
        let mut config = self.config.clone();
        let rank = comm.rank();
        let comm = self.plant.over(comm, self.world.clone(), self.process);
        let lock = (rank == 0).then(|| File::create(Path::new(&config.run.dir).join(LOCK)));
        let held = lock.as_ref().is_some_and(|lock| lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err()));
        if held {
            return self.leave(rank, HELD, Some("segue: error: another job is training"));
        }
        let trained = (segue_family::of(&config.model).open)(&mut config).and_then(|job| {
            let stop = || self.world.state().processes[self.process].asked;
            job.train(&config, segue_kernels::Compute::CPU, comm.as_ref(), &stop, &mut |event| {
                self.hear(event, rank)
            })
        });
        match trained {
            Ok(outcome) => self.leave(rank, if outcome.preempted { 75 } else { 0 }, None),
            Err(error) => {
                let said = format!("segue: error on rank {rank}: {error}");
                self.leave(rank, error.exit_code(), Some(&said))
            }
        }
    }

    /// Says with which code the rank ends, and why.
    fn leave(&self, rank: usize, code: u8, why: Option<&str>) -> i32 {
        self.world.state().tell(|| format!("rank {rank} ends with {code} {}", why.unwrap_or_default()));
        self.say(why.map(|why| Heard::Line(why.into())));
        let leaving = Beat { leaving: Some(code), ..Beat::default() };
        self.say(Some(Heard::Beat(rank, leaving, now())));
        code.into()
    }

    /// Tells the supervisor once a second that it lives, and ends the process where the supervisor is out of reach for too long.
    fn beat(&self) {
        let rank = self.hello.rank;
        let mut answered = now();
        loop {
            sleep(EVERY);
            let said = now();
            if self.say(Some(Heard::Beat(rank, self.standing(), said))) {
                answered = said;
            }
            if now() - answered > LIMITS.silence {
                let mut state = self.world.state();
                state.tell(|| format!("rank {rank} has lost its supervisor, and ends"));
                state.kill(self.process);
                return;
            }
        }
    }

    fn standing(&self) -> Beat {
        let progress = self.world.state().processes[self.process].visits;
        Beat { step: self.step.load(Ordering::Relaxed), progress, ..Beat::default() }
    }

    /// Says something to the supervisor; whether it arrived.
    fn say(&self, what: Option<Heard>) -> bool {
        let is_cut = self.world.state().processes[self.process].cut;
        if !is_cut {
            self.mail.lock().unwrap_or_else(PoisonError::into_inner).extend(what);
        }
        !is_cut
    }

    /// What was written is there, whatever happens.
    fn hear(&self, event: Event, rank: usize) {
        if let Event::Step { report, .. } = &event {
            self.step.store(report.step, Ordering::Relaxed);
        }
        if rank != 0 {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Started(started) => {
                let mut state = self.world.state();
                state.tell(|| format!("it goes on from step {} ({:?})", started.step, started.refused));
                if started.step < *told {
                    let (from, told) = (started.step, *told);
                    state
                        .violation(format!("step {told} was told to be written, and it goes on from {from}"));
                }
            }
            Event::Checkpointed { path } => {
                let step = step_of(&path);
                *told = (*told).max(step);
                self.world.state().tell(|| format!("the checkpoint of step {step} is written"));
            }
            Event::Warning { what } => self.world.state().tell(|| format!("warning: {what}")),
            _ => {}
        }
    }
}

fn step_of(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("step-").and_then(|step| step.parse().ok()).unwrap_or_default()
}
