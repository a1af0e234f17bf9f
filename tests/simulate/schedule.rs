//! Which thread runs, what time it is, and what befalls whom: all by one seed.
//!
//! Threads are real, and one at a time may run. Where it waits, or comes by a point of the code, the next one is drawn. A clock of the
//! simulation's own moves on a little each time, and jumps where all wait for it.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use segue_random::{Draws, Purpose};
use segue_world::{Killed, Refusal, Resource, Simulation, Thread};

use crate::disk::Disk;
use crate::plan::{Fault, Kind, Plan, When};

/// How far the clock moves on at most where the next thread is drawn.
const LONGEST_TURN: u64 = 4_000;
/// Points where something is written: nobody but the newest attempt may come by these.
const WRITING: [&str; 5] = ["folder.", "file.", "link.", "tensors.", "checkpoint."];

/// A process, by number. The first is the supervisor's.
pub type Process = usize;

/// The simulation of one history.
pub struct World {
    state: Mutex<State>,
    base: Instant,
}

pub struct State {
    pub draws: Draws,
    pub now: Duration,
    threads: Vec<ThreadState>,
    running: Option<Thread>,
    pub processes: Vec<ProcessState>,
    pub plan: Plan,
    pub disk: Disk,
    /// Attempts so far.
    pub attempt: u64,
    /// What befell the attempt.
    pub suffered: Vec<Kind>,
    /// The power has failed, and the disk has not been looked at since.
    pub dark: bool,
    /// Somebody asked the job to stop.
    pub asked: bool,
    /// What must not be.
    pub violations: Vec<String>,
    /// What happened, where somebody wants to read it.
    story: Option<Vec<String>>,
    /// A number that depends on all that happened, in its order.
    pub trace: u64,
    visits: BTreeMap<String, u64>,
}

struct ThreadState {
    process: Process,
    name: &'static str,
    status: Status,
    bell: Arc<Condvar>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Status {
    Ready,
    Waiting { resource: Option<Resource>, until: Option<Duration> },
    Over,
}

/// What there is to know of a process.
#[derive(Debug, Clone, Default)]
pub struct ProcessState {
    pub attempt: u64,
    pub rank: Option<usize>,
    /// It was killed, or has ended: its threads unwind.
    pub killed: bool,
    /// It does not run.
    pub stopped: bool,
    /// Nothing it sends arrives anywhere.
    pub cut: bool,
    /// The system refuses it so many more calls, with this error.
    pub refusals: (u32, i32),
    /// Points that it has come by.
    pub visits: u64,
    /// It has refused it something.
    pub was_refused: bool,
    /// It was asked to stop with a checkpoint.
    pub asked: bool,
    /// With which code it ended by itself.
    pub exit: Option<i32>,
}

impl World {
    pub fn new(seed: u64, plan: Plan, disk: Disk, tell: bool) -> Arc<Self> {
        let state = State {
            draws: Draws::new(seed, Purpose::Simulation, &[0]),
            now: Duration::ZERO,
            threads: Vec::new(),
            running: None,
            processes: Vec::new(),
            plan,
            disk,
            attempt: 0,
            suffered: Vec::new(),
            dark: false,
            asked: false,
            violations: Vec::new(),
            story: tell.then(Vec::new),
            trace: seed,
            visits: BTreeMap::new(),
        };
        Arc::new(Self { state: Mutex::new(state), base: Instant::now() })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process with its first thread.
    pub fn new_process(&self, process: ProcessState) -> (Process, Thread) {
        let mut state = self.state();
        state.processes.push(process);
        let number = state.processes.len() - 1;
        (number, state.new_thread(number, "main"))
    }

    /// Whether the system has refused a process anything.
    pub fn was_refused(&self, process: Process) -> bool {
        self.state().processes[process].was_refused
    }

    /// Whether nothing of a process runs any more.
    pub fn is_over(&self, process: Process) -> bool {
        let state = self.state();
        state.threads.iter().all(|thread| thread.process != process || thread.status == Status::Over)
    }

    /// Lets the thread that has the floor wait until it is its turn again.
    fn give_way(&self, mut state: MutexGuard<'_, State>, me: Thread) {
        state.next();
        let bell = state.threads[me].bell.clone();
        while state.running != Some(me) {
            state = bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.leave_if_killed(state, me);
    }

    fn leave_if_killed(&self, state: MutexGuard<'_, State>, me: Thread) {
        let killed = state.is_killed(me);
        drop(state);
        if killed && !thread::panicking() {
            resume_unwind(Box::new(Killed));
        }
    }
}

impl State {
    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.story.is_some() {
            let line = format!("{:10.4} s  {}", self.now.as_secs_f64(), what());
            self.story.iter_mut().for_each(|story| story.push(line.clone()));
        }
    }

    pub fn story(&self) -> String {
        self.story.iter().flatten().map(|line| format!("{line}\n")).collect()
    }

    /// Takes note of what must not be.
    pub fn violation(&mut self, what: String) {
        self.tell(|| format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    pub fn kill(&mut self, process: Process) {
        self.processes[process].killed = true;
        let ours = self.threads.iter_mut().filter(|thread| thread.process == process);
        ours.filter(|thread| thread.status != Status::Over).for_each(|thread| thread.status = Status::Ready);
    }

    fn new_thread(&mut self, process: Process, name: &'static str) -> Thread {
        self.threads.push(ThreadState { process, name, status: Status::Ready, bell: Arc::default() });
        self.threads.len() - 1
    }

    fn is_killed(&self, thread: Thread) -> bool {
        self.processes[self.threads[thread].process].killed
    }

    /// Gives the floor to a thread that is ready.
    fn next(&mut self) {
        self.now += Duration::from_micros(self.draws.below(LONGEST_TURN));
        self.running = loop {
            let now = self.now;
            for thread in &mut self.threads {
                if let Status::Waiting { until: Some(until), .. } = thread.status
                    && until <= now
                {
                    thread.status = Status::Ready;
                }
            }
            let is_ready = |thread: &Thread| self.threads[*thread].status == Status::Ready;
            let ready: Vec<Thread> = (0..self.threads.len()).filter(is_ready).collect();
            // What is killed is gone at once.
            let dying: Vec<Thread> = ready.iter().copied().filter(|thread| self.is_killed(*thread)).collect();
            let of = |thread: &Thread| &self.processes[self.threads[*thread].process];
            let free: Vec<Thread> = ready.into_iter().filter(|thread| !of(thread).stopped).collect();
            let among = if dying.is_empty() { free } else { dying };
            if !among.is_empty() {
                break Some(among[self.draws.below(among.len() as u64) as usize]);
            }
            let asleep = self.threads.iter().filter(|t| !self.processes[t.process].stopped);
            let until = |thread: &ThreadState| match thread.status {
                Status::Waiting { until, .. } => until,
                _ => None,
            };
            match asleep.filter_map(until).min() {
                Some(until) => self.now = until,
                None => break None,
            }
        };
        if let Some(next) = self.running {
            self.trace = (self.trace ^ (next as u64) ^ self.now.as_micros() as u64)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29);
            self.threads[next].bell.notify_one();
        }
    }

    /// What happens to the process of `me` at the point `name`.
    fn befall(&mut self, me: Thread, name: &str) -> Option<(Fault, Process)> {
        let process = self.threads[me].process;
        let rank = self.processes[process].rank.filter(|_| !self.processes[process].killed)?;
        let count = self.visits.entry(name.to_string()).or_default();
        *count += 1;
        let nth = *count;
        self.plan.visits += 1;
        let visits = self.plan.visits;
        let is_due = |fault: &Fault| match fault.when {
            When::Visit(visit) => visit <= visits && fault.kind.fits(name),
            When::Point(point, hit) => point == name && hit <= nth,
        };
        let due =
            self.plan.faults.iter().position(|fault| is_due(fault) && fault.rank.is_none_or(|r| r == rank));
        let fault = self.plan.faults.remove(due?);
        let attempt = self.attempt;
        self.tell(|| format!("rank {rank} of attempt {attempt}: {:?} at {name}", fault.kind));
        self.suffered.push(fault.kind);
        Some((fault, process))
    }

    /// Does to a process what is to happen; the rest of it, which the thread has to do itself, is given back.
    fn suffer(&mut self, fault: &Fault, process: Process) {
        match fault.kind {
            Kind::Kill => self.kill(process),
            Kind::PowerCut => {
                let ranks = (0..self.processes.len()).filter(|p| self.processes[*p].rank.is_some());
                ranks.collect::<Vec<_>>().into_iter().for_each(|process| self.kill(process));
                self.dark = true;
            }
            Kind::Stop => self.processes[process].stopped = true,
            Kind::Cut => self.processes[process].cut = true,
            Kind::Refuse { error, times } => self.processes[process].refusals = (times, error),
            Kind::AskToStop => self.asked = true,
            Kind::Nan | Kind::Flip | Kind::Slow(_) => {}
        }
    }

    /// What the system says to a call of a process.
    fn refusal(&mut self, process: Process, name: &str) -> Refusal {
        let is_call = WRITING.iter().any(|of| name.starts_with(of));
        let (left, error) = &mut self.processes[process].refusals;
        if *left == 0 || !is_call {
            return Refusal::None;
        }
        *left -= 1;
        let error = *error;
        self.processes[process].was_refused = true;
        Refusal::System(error)
    }
}

impl Simulation for World {
    fn start(&self, me: Thread, name: &'static str) -> Thread {
        let mut state = self.state();
        let process = state.threads[me].process;
        state.new_thread(process, name)
    }

    fn begin(&self, me: Thread) {
        let mut state = self.state();
        if me == 0 && state.running.is_none() {
            state.running = Some(me);
        }
        let bell = state.threads[me].bell.clone();
        while state.running != Some(me) {
            state = bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // One that was killed before its first step unwinds at its next call.
    }

    fn end(&self, me: Thread) {
        let mut state = self.state();
        state.threads[me].status = Status::Over;
        state.next();
    }

    fn wait(&self, me: Thread, resource: Resource) {
        let mut state = self.state();
        if let Some((fault, process)) = state.befall(me, "wait") {
            state.suffer(&fault, process);
        }
        state.threads[me].status = Status::Waiting { resource: Some(resource), until: None };
        if state.is_killed(me) {
            state.threads[me].status = Status::Ready;
        }
        self.give_way(state, me);
    }

    fn wake(&self, resource: Resource) {
        let mut state = self.state();
        for thread in &mut state.threads {
            if matches!(thread.status, Status::Waiting { resource: Some(wanted), .. } if wanted == resource) {
                thread.status = Status::Ready;
            }
        }
    }

    fn now(&self) -> Instant {
        self.base + self.state().now
    }

    fn sleep(&self, me: Thread, until: Instant) {
        let mut state = self.state();
        let until = until.saturating_duration_since(self.base);
        state.threads[me].status = match state.is_killed(me) {
            true => Status::Ready,
            false => Status::Waiting { resource: None, until: Some(until) },
        };
        self.give_way(state, me);
    }

    fn point(&self, me: Thread, name: &str) -> Refusal {
        let mut state = self.state();
        let process = state.threads[me].process;
        let (attempt, newest) = (state.processes[process].attempt, state.attempt);
        state.processes[process].visits += 1;
        let writes = WRITING.iter().any(|of| name.starts_with(of));
        if state.processes[process].rank.is_some() && attempt < newest && writes && !state.is_killed(me) {
            state.violation(format!("attempt {attempt} is at {name} while attempt {newest} runs"));
        }
        let mut spoiled = Refusal::None;
        if let Some((fault, process)) = state.befall(me, name) {
            state.suffer(&fault, process);
            match fault.kind {
                Kind::Nan => spoiled = Refusal::Nan,
                Kind::Flip => spoiled = Refusal::Flip,
                Kind::Slow(seconds) => {
                    let until = Some(state.now + Duration::from_secs_f64(seconds));
                    state.threads[me].status = Status::Waiting { resource: None, until };
                }
                _ => {}
            }
        }
        self.give_way(state, me);
        match spoiled {
            Refusal::None => self.state().refusal(process, name),
            spoiled => spoiled,
        }
    }

    fn synced(&self, _: Thread, path: &Path) {
        self.state().disk.synced(path);
    }

    fn is_killed(&self, me: Thread) -> bool {
        self.state().is_killed(me)
    }
}

impl State {
    /// Threads and where they are: what to look at where nothing goes on.
    pub fn whereabouts(&self) -> String {
        let line = |(number, thread): (usize, &ThreadState)| {
            let process = &self.processes[thread.process];
            format!(
                "thread {number} ({} of rank {:?}, attempt {}): {:?}\n",
                thread.name, process.rank, process.attempt, thread.status
            )
        };
        let open = self.threads.iter().enumerate().filter(|(_, thread)| thread.status != Status::Over);
        open.map(line).collect()
    }
}
