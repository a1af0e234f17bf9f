//! Ranks that are killed at random moments.

use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::{at_once, children, end_where_stuck, mpirun, succeed};

/// Runs jobs of two ranks, killing one rank or another at random moments, until `wanted` kills are done. `job`: the command of a run of
/// that name; `assert_same`: panics unless two runs ended with the same bytes. The runs are `undisturbed` and `killed-0` and so on.
pub fn kill_often(wanted: usize, job: &dyn Fn(&str) -> Vec<String>, assert_same: &dyn Fn(&str, &str)) {
    succeed(mpirun(2, &job("undisturbed")));
    let (mut kills, mut runs, mut draw) = (0, 0, 0x5e6u64);
    while kills < wanted {
        let run = format!("killed-{runs}");
        loop {
            draw = draw.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Among them seconds that are enough for ranks to start beside other tests.
            let moment = Duration::from_millis(200 + (draw >> 33) % 1200);
            let victim = (draw >> 20) as usize % 2;
            let killed =
                kills < wanted && kill_rank(&mut spawn(job_to_kill(kills, &job(&run))), victim, moment);
            kills += usize::from(killed);
            if !killed {
                break;
            }
        }
        // The attempt above ended by itself, or the kills are used up: go on to the end.
        succeed(mpirun(2, &job(&run)));
        assert_same("undisturbed", &run);
        runs += 1;
    }
    println!("{kills} kills over {runs} runs");
}

/// A job of two ranks of which one is to be killed, after `kills` others.
pub fn job_to_kill(kills: usize, args: &[String]) -> Command {
    let mut command = mpirun(2, args);
    hurry(&mut command, kills);
    command
}

/// Each third time the ranks that a killed one leaves have the time that Open MPI gives them to end by themselves, as they have where people use
/// the program; else they are killed at once, as these seconds are most of what a killed job takes.
pub fn hurry(job: &mut Command, kills: usize) {
    if !kills.is_multiple_of(3) {
        at_once(job);
    }
}

/// Starts a job that says nothing.
pub fn spawn(mut command: Command) -> Child {
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.spawn().expect("mpirun starts")
}

/// SIGKILLs rank `victim` at `moment` after the start; false where the job has ended before.
pub fn kill_rank(job: &mut Child, victim: usize, moment: Duration) -> bool {
    let mpirun = job.id();
    let _guard = end_where_stuck(mpirun);
    let (ended, wait) = channel::<()>();
    std::thread::scope(|scope| {
        let killer = scope.spawn(move || {
            // The moment is what is drawn at random; nothing is synchronised by it.
            if wait.recv_timeout(moment) != Err(RecvTimeoutError::Timeout) {
                return false;
            }
            let ranks = children(mpirun);
            let target = ranks.get(victim).copied().unwrap_or(mpirun);
            // SAFETY: plain system call on a process of ours.
            unsafe { libc::kill(target as i32, libc::SIGKILL) == 0 }
        });
        let status = job.wait().expect("mpirun ends");
        drop(ended);
        killer.join().expect("the killer ends") && !status.success()
    })
}
